// SPDX-License-Identifier: Apache-2.0 OR MIT
// The central processor of the streaming engine: runs commands, which are those of `engine_sequencer`, as operations on the sample at work, blind
// rotation and key switch, and does the modulus switch.
module streaming_sequencer
  import engine_pkg::*;
  import engine_streaming_pkg::*;
#(
    parameter int LOG_N = 8,
    parameter int LOG_LANES = 3,
    parameter int MAX_LWE_DIMENSION = 2047,
    localparam int LOG_WORDS = LOG_LANES + 1,
    localparam int WORDS = 1 << LOG_WORDS,
    localparam int BEAT_BITS = LOG_N - LOG_LANES,
    localparam int ROW_BITS = toroid_pkg::index_width((MAX_LWE_DIMENSION + WORDS) / WORDS)
) (
    input logic clk_i,
    input logic rst_ni,
    input logic cmd_tvalid_i,
    output logic cmd_tready_o,
    input logic [127:0] cmd_tdata_i,
    output logic rsp_tvalid_o,
    input logic rsp_tready_i,
    output logic [63:0] rsp_tdata_o,
    output settings_t settings_o,
    // The sample at work.
    output logic op_valid_o,
    input logic op_ready_i,
    output row_operation_t op_o,
    output logic [ROW_BITS-1:0] feed_row_o,
    input logic [63:0] row_i[WORDS],
    // Blind rotation, and the beats of a test vector.
    input logic available_i,
    output logic vector_take_o,
    input logic vector_loaded_i,  // with the last of them
    input logic rotation_idle_i,
    output logic step_valid_o,
    input logic step_ready_i,
    output logic [LOG_N:0] exponent_o,
    // Key switch.
    output logic switch_start_o,
    input logic switch_idle_i,
    input logic [63:0] body_i,
    // Main memory.
    output logic read_valid_o,
    input logic read_ready_i,
    output logic [31:0] read_address_o,
    output logic [31:0] read_beats_o,
    output logic write_valid_o,
    input logic write_ready_i,
    output logic [31:0] write_address_o,
    output logic [31:0] write_beats_o,
    input logic write_idle_i,
    input logic stored_i,
    output logic to_result_o
);
  localparam int EXPONENT_BITS = LOG_N + 1;
  localparam int INDEX_BITS = $clog2(MAX_LWE_DIMENSION + 1);

  typedef enum logic [4:0] {
    IDLE,
    READ_FIRST,
    READ_SECOND,
    READ_KEY,
    READ_SWITCH,
    LOAD_FIRST,
    LOAD_SECOND,
    SWITCH_FEED,
    SWITCH_WAIT,
    SWITCH_WORDS,
    LOAD_VECTOR,
    WAIT_VECTOR,
    TURN_VECTOR,
    STEPS,
    ROTATED,
    KEY_START,
    KEY_SUMS,
    TAKE_SUMS,
    ADD_BODY,
    STORE,
    FINISH,
    RESPOND
  } state_e;

  state_e state_q;
  settings_t settings;
  opcode_e opcode_q;
  logic [23:0] tag_q;
  logic [31:0] first_q, second_q;
  logic [31:0] stack_q;
  logic [39:0] cycles_q;
  logic [63:0] word_q[WORDS];
  logic [INDEX_BITS-1:0] index_q;  // of words, then of the step after this one
  logic [ROW_BITS-1:0] row_q;
  logic [LOG_WORDS-1:0] lane_q;
  logic [EXPONENT_BITS-1:0] exponent_q, exponent_read, mask_exponent, body_exponent;
  logic [BEAT_BITS-1:0] beat_q;
  logic is_body, binary;

  engine_settings i_settings (
      .clk_i,
      .set_i(state_q == IDLE && cmd_tvalid_i && cmd_tdata_i[7:0] == OP_SET),
      .number_i(cmd_tdata_i[39:32]),
      .value_i(cmd_tdata_i[127:64]),
      .settings_o(settings)
  );

  assign settings_o = settings;
  assign cmd_tready_o = state_q == IDLE;
  assign binary = opcode_q == OP_HOM_ADD || opcode_q == OP_HOM_SUB;
  assign to_result_o = opcode_q == OP_RETURN;
  assign is_body = 16'(index_q) == settings.lwe_dimension;
  assign feed_row_o = row_q;
  assign vector_take_o = state_q == LOAD_VECTOR && available_i;
  assign step_valid_o = state_q == STEPS;
  assign exponent_o = exponent_q;
  assign switch_start_o = state_q == KEY_START;

  // Addresses.
  function automatic logic [31:0] register_address(logic [31:0] register);
    return settings.register_base + (register << settings.register_log2_stride);
  endfunction

  function automatic logic [31:0] stack_address(logic [31:0] depth);
    return settings.stack_base + (depth << settings.register_log2_stride);
  endfunction

  modulus_switch #(
      .BITS(EXPONENT_BITS)
  ) i_switch (
      .clk_i,
      .goldilocks_i(settings.goldilocks),
      .compensated_i(settings.compensated),
      .clear_i(state_q == LOAD_FIRST),
      .count_i(state_q == SWITCH_WORDS),
      .word_i(word_q[0]),
      .mask_o(mask_exponent),
      .body_o(body_exponent)
  );

  ram_sdp #(
      .WIDTH(EXPONENT_BITS),
      .DEPTH(1 << INDEX_BITS),
      .OUTPUT_REGISTER(0)
  ) i_exponents (
      .clk_i,
      .we_i(state_q == SWITCH_WORDS),
      .waddr_i(index_q),
      .wdata_i(mask_exponent),
      .raddr_i(index_q),
      .rdata_o(exponent_read)
  );

  // Operations on the sample.
  always_comb begin
    op_o = '{u: ROW_STREAM, t: ADD_ZERO, torus32: !settings.goldilocks, factor: 64'd1};
    op_valid_o = 1'b1;
    case (state_q)
      // second_q is a signed integer; p = 2^64 - (2^32 - 1).
      LOAD_FIRST:
      if (opcode_q == OP_HOM_INT_MULT)
        op_o.factor = second_q[31] ? 64'(signed'(second_q)) - 64'hFFFF_FFFF : 64'(second_q);
      LOAD_SECOND: begin
        op_o.t = ADD_SAMPLE;
        if (opcode_q == OP_HOM_SUB) op_o.factor = P - 64'd1;
      end
      TAKE_SUMS: begin
        op_o.u = ROW_SUM;
        // The word of the Goldilocks modulus nearest to a·p/2^32: a·(2^32 - 1) and the top bit of a.
        if (settings.goldilocks) begin
          op_o.t = ADD_TOP_BIT;
          op_o.factor = 64'hFFFF_FFFF;
        end
      end
      ADD_BODY: begin
        op_o.u = ROW_BODY;
        op_o.t = ADD_SAMPLE;
        op_o.factor = body_i;
      end
      STORE: begin
        op_o.u = ROW_STORE;
        op_valid_o = to_result_o || write_ready_i;
      end
      default: op_valid_o = 1'b0;
    endcase
  end

  // Descriptors.
  always_comb begin
    read_valid_o   = 1'b0;
    read_address_o = register_address(first_q);
    read_beats_o   = 32'(settings.tlwe_rows);
    case (state_q)
      READ_FIRST: begin
        read_valid_o = 1'b1;
        case (opcode_q)
          OP_MOVE, OP_BOOTSTRAP: read_address_o = register_address(second_q);
          OP_POP: read_address_o = stack_address(stack_q - 32'd1);
          default: ;
        endcase
      end
      READ_SECOND: begin
        read_valid_o = 1'b1;
        if (binary) begin
          read_address_o = register_address(second_q);
        end else begin
          read_address_o = settings.vector_base + (first_q << BEAT_BITS);
          read_beats_o   = 32'd1 << BEAT_BITS;
        end
      end
      READ_KEY: begin
        read_valid_o   = 1'b1;
        read_address_o = settings.key_base;
        read_beats_o   = settings.key_beats;
      end
      READ_SWITCH: begin
        read_valid_o   = 1'b1;
        read_address_o = settings.switch_base;
        read_beats_o   = settings.switch_beats;
      end
      default: ;
    endcase

    write_valid_o = state_q == STORE && op_ready_i && !to_result_o;
    write_beats_o = 32'(settings.tlwe_rows);
    case (opcode_q)
      OP_BOOTSTRAP: write_address_o = register_address(second_q);
      OP_PUSH: write_address_o = stack_address(stack_q);
      default: write_address_o = register_address(first_q);
    endcase
  end

  assign rsp_tvalid_o = state_q == RESPOND;
  assign rsp_tdata_o  = {tag_q, cycles_q};

  logic op_taken;
  logic [1:0] wait_q;
  assign op_taken = op_valid_o && op_ready_i;

  always_ff @(posedge clk_i) begin
    // A response stays as it is until it is taken.
    if (state_q != RESPOND) cycles_q <= cycles_q + 1'b1;

    case (state_q)
      IDLE:
      if (cmd_tvalid_i) begin
        opcode_q <= opcode_e'(cmd_tdata_i[7:0]);
        tag_q <= cmd_tdata_i[31:8];
        first_q <= cmd_tdata_i[63:32];
        second_q <= cmd_tdata_i[95:64];
        cycles_q <= '0;
        case (cmd_tdata_i[7:0])
          OP_SET: ;
          OP_RETURN, OP_MOVE, OP_PUSH, OP_POP, OP_BOOTSTRAP, OP_HOM_ADD, OP_HOM_SUB, OP_HOM_INT_MULT:
          state_q <= READ_FIRST;
          default: state_q <= RESPOND;
        endcase
      end

      READ_FIRST: if (read_ready_i) state_q <= binary || opcode_q == OP_BOOTSTRAP ? READ_SECOND : LOAD_FIRST;
      READ_SECOND: if (read_ready_i) state_q <= binary ? LOAD_FIRST : READ_KEY;
      READ_KEY: if (read_ready_i) state_q <= READ_SWITCH;
      READ_SWITCH: if (read_ready_i) state_q <= LOAD_FIRST;

      LOAD_FIRST:
      if (op_taken) begin
        index_q <= '0;
        row_q   <= '0;
        case (opcode_q)
          OP_BOOTSTRAP: state_q <= SWITCH_FEED;
          OP_HOM_ADD, OP_HOM_SUB: state_q <= LOAD_SECOND;
          default: state_q <= STORE;
        endcase
      end
      LOAD_SECOND: if (op_taken) state_q <= STORE;

      // Modulus switch.
      SWITCH_FEED:
      if (op_ready_i) begin
        state_q <= SWITCH_WAIT;
        wait_q  <= 2'd1;
        lane_q  <= '0;
      end
      SWITCH_WAIT: begin
        wait_q <= wait_q - 1'b1;
        word_q <= row_i;
        if (wait_q == 0) state_q <= SWITCH_WORDS;
      end
      SWITCH_WORDS: begin
        lane_q  <= lane_q + 1'b1;
        index_q <= index_q + 1'b1;
        for (int lane = 0; lane < WORDS - 1; lane++) word_q[lane] <= word_q[lane+1];
        if (is_body) begin
          // X^-b.
          exponent_q <= -body_exponent;
          index_q <= '0;
          beat_q <= '0;
          state_q <= LOAD_VECTOR;
        end else if (lane_q == '1) begin
          row_q   <= row_q + 1'b1;
          state_q <= SWITCH_FEED;
        end
      end

      // Blind rotation.
      LOAD_VECTOR:
      if (available_i) begin
        beat_q <= beat_q + 1'b1;
        if (beat_q == '1) state_q <= WAIT_VECTOR;
      end
      WAIT_VECTOR: if (vector_loaded_i) state_q <= TURN_VECTOR;
      TURN_VECTOR:
      if (rotation_idle_i) begin
        exponent_q <= exponent_read;
        index_q <= index_q + 1'b1;
        state_q <= STEPS;
      end
      STEPS:
      if (step_ready_i) begin
        exponent_q <= exponent_read;
        index_q <= index_q + 1'b1;
        if (is_body) state_q <= ROTATED;
      end
      ROTATED: if (rotation_idle_i) state_q <= KEY_START;

      // Sample extraction and key switch.
      KEY_START: state_q <= KEY_SUMS;
      KEY_SUMS:  if (switch_idle_i) state_q <= TAKE_SUMS;
      TAKE_SUMS: if (op_taken) state_q <= ADD_BODY;
      ADD_BODY:  if (op_taken) state_q <= STORE;

      STORE:
      if (op_taken) begin
        case (opcode_q)
          OP_PUSH: stack_q <= stack_q + 32'd1;
          OP_POP:  stack_q <= stack_q - 32'd1;
          default: ;
        endcase
        state_q <= FINISH;
      end
      // Nothing may be left where stores wait: the next command would send it elsewhere.
      FINISH:  if (op_ready_i && stored_i && write_idle_i) state_q <= RESPOND;
      RESPOND: if (rsp_tready_i) state_q <= IDLE;
      default: ;
    endcase

    if (!rst_ni) begin
      state_q <= IDLE;
      stack_q <= '0;
    end
  end
endmodule
