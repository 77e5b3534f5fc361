// SPDX-License-Identifier: Apache-2.0 OR MIT
// The central processor: runs commands as operations on the circuits, and does what is scalar: modulus switch, digits of the key switch.
//
// Commands are 128 bits: bits 7:0 the opcode (Table 4 of the platform paper: RETURN, MOVE, PUSH, POP, BOOTSTRAP, HOM_ADD, HOM_SUB,
// HOM_INT_MULT; and SET), 31:8 a tag, 63:32 and 95:64 the arguments in the order of Table 4; of SET, the number of a setting, and its value in
// 127:64. Every command but SET is answered, when its effects are in main memory, by 64 bits: 39:0 the cycles it took, 63:40 its tag.
module engine_sequencer
  import engine_pkg::*;
#(
    parameter int LOG_N = 9,
    parameter int LOG_LANES = 3,
    parameter int MAX_LWE_DIMENSION = 2047,
    localparam int VECTOR = 1 << (LOG_LANES - 1)
) (
    input logic clk_i,
    input logic rst_ni,
    input logic cmd_tvalid_i,
    output logic cmd_tready_o,
    input logic [127:0] cmd_tdata_i,
    output logic rsp_tvalid_o,
    input logic rsp_tready_i,
    output logic [63:0] rsp_tdata_o,
    output logic goldilocks_o,
    output gadget_t [1:0] gadget_o,
    output logic op_valid_o,
    input logic op_ready_i,
    output operation_t op_o,
    output logic [1:0][5:0] digit_shift_o,
    output logic [LOG_LANES-2:0] rotate_shift_o,
    output logic [1:0][VECTOR-1:0] select_o,
    output logic [19:0] body_row_o,
    input logic idle_i,
    input logic row_valid_i,
    input logic [63:0] row_i[2*VECTOR],
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
  localparam int LOG_ROWS = LOG_N - LOG_LANES + 1;
  localparam logic [19:0] ROWS = 20'(1 << LOG_ROWS);
  localparam int EXPONENT_BITS = LOG_N + 1;
  localparam int INDEX_BITS = $clog2(MAX_LWE_DIMENSION + 1);
  localparam logic [63:0] P = toroid_pkg::GOLDILOCKS;

  typedef enum logic [5:0] {
    IDLE,
    READ_FIRST,
    READ_SECOND,
    READ_KEY,
    READ_SWITCH,
    LOAD_FIRST,
    LOAD_SECOND,
    COMBINE,
    SWITCH_FEED,
    SWITCH_WAIT,
    SWITCH_WORDS,
    LOAD_VECTOR,
    TURN_VECTOR,
    EXPONENT,
    TURN,
    SUBTRACT,
    DIGIT,
    FORWARD,
    PRODUCT_OWN,
    PRODUCT_CROSS,
    BACKWARD,
    ACCUMULATE,
    SWITCH_DRAIN,
    KEY_FEED,
    KEY_WAIT,
    KEY_WORD,
    KEY_TORUS,
    KEY_FIELD,
    KEY_DIGIT,
    KEY_ROW,
    SETS_FIRST,
    SETS_MOVE,
    SETS_ADD,
    NEGATE,
    EXPAND,
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

  engine_settings i_settings (
      .clk_i,
      .set_i(state_q == IDLE && cmd_tvalid_i && cmd_tdata_i[7:0] == OP_SET),
      .number_i(cmd_tdata_i[39:32]),
      .value_i(cmd_tdata_i[127:64]),
      .settings_o(settings)
  );

  assign goldilocks_o = settings.goldilocks;
  assign gadget_o = settings.gadget;
  assign cmd_tready_o = state_q == IDLE;

  // Addresses.
  function automatic logic [31:0] register_address(logic [31:0] register);
    return settings.register_base + (register << settings.register_log2_stride);
  endfunction

  function automatic logic [31:0] stack_address(logic [31:0] depth);
    return settings.stack_base + (depth << settings.register_log2_stride);
  endfunction

  // Scalars.
  logic [63:0] word_q[2*VECTOR];
  logic [INDEX_BITS-1:0] index_q;  // of TLWE words, then of blind rotation's steps
  logic [19:0] row_q;
  logic [LOG_LANES:0] lane_q;
  logic [EXPONENT_BITS-1:0] exponent_q, exponent_read;
  logic [63:0] body_q;
  logic [7:0] level_q;
  logic [1:0][5:0] digit_shift_q;
  logic [5:0] key_shift_q;
  logic [63:0] key_word_q, key_scalar_q;
  logic [7:0] set_q;
  logic [19:0] set_row_q;
  logic fresh_q;  // the sets of the key switch have not all been begun


  logic is_body;
  logic [EXPONENT_BITS-1:0] mask_exponent, body_exponent;
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
  assign is_body = 16'(index_q) == settings.lwe_dimension;

  // Both circuits go through the same levels.
  logic unused;
  assign unused = &settings.body_levels;

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

  // The key switch's digit as a field element.
  logic [31:0] key_field, key_half;
  assign key_half = (32'b1 << settings.switch_gadget.log2_base) >> 1;
  assign key_field = 32'(key_word_q >> key_shift_q) & ((key_half << 1) - 32'b1);

  assign digit_shift_o = digit_shift_q;
  assign rotate_shift_o = exponent_q[LOG_LANES-2:0];
  // Word n of a TLWE sample: rows hold VECTOR words in circuit 0, then VECTOR words in circuit 1.
  assign body_row_o = 20'(settings.lwe_dimension >> LOG_LANES);
  assign select_o = (2 * VECTOR)'(1) << settings.lwe_dimension[LOG_LANES-1:0];

  logic last_step, last_level, last_switch_level, last_set;
  assign last_step = 16'(index_q) + 16'd1 == settings.lwe_dimension;
  assign last_level = level_q + 8'd1 == settings.levels;
  assign last_switch_level = level_q + 8'd1 == settings.switch_levels;
  assign last_set = set_q + 8'd1 == settings.switch_sets;

  logic binary;
  assign binary = opcode_q == OP_HOM_ADD || opcode_q == OP_HOM_SUB;
  assign to_result_o = opcode_q == OP_RETURN;

  // Operations.
  always_comb begin
    op_o = '0;
    op_o.drain = 1'b1;
    op_o.rows = ROWS;
    op_o.w = W_SCALAR;
    op_o.scalar = 64'd1;
    op_valid_o = 1'b1;
    case (state_q)
      LOAD_FIRST: begin
        op_o.u = U_STREAM;
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.slot_result = SLOT_ACC;
      end
      LOAD_SECOND: begin
        op_o.u = U_STREAM;
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.slot_result = SLOT_SUM;
      end
      COMBINE: begin
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.t = binary ? T_SLOT : T_ZERO;
        op_o.slot_t = binary ? SLOT_ACC : SLOT_SUM;
        op_o.slot_u = binary ? SLOT_SUM : SLOT_ACC;
        op_o.minus = opcode_q == OP_HOM_SUB;
        // second_q is a signed integer; p = 2^64 - (2^32 - 1).
        if (!binary) op_o.scalar = second_q[31] ? 64'(signed'(second_q)) - 64'hFFFF_FFFF : 64'(second_q);
        op_o.torus32 = !settings.goldilocks;
        op_o.slot_result = SLOT_ACC;
      end
      SWITCH_FEED: begin
        op_o.u = U_SLOT;
        op_o.slot_u = SLOT_ACC;
        op_o.sink = SINK_ROW;
        op_o.rows = 20'd1;
        op_o.row_operand = row_q;
      end
      LOAD_VECTOR: begin
        op_o.u = U_STREAM;
        op_o.slot_result = SLOT_WORK;
      end
      TURN_VECTOR, TURN: begin
        op_o.u = U_ROTATED;
        op_o.w = W_SIGN;
        op_o.slot_u = state_q == TURN ? SLOT_ACC : SLOT_WORK;
        op_o.slot_result = state_q == TURN ? SLOT_DIFFERENCE : SLOT_ACC;
        op_o.exponent = 21'(exponent_q);
        op_o.torus32 = !settings.goldilocks;
      end
      SUBTRACT: begin
        op_o.t = T_SLOT;
        op_o.slot_t = SLOT_DIFFERENCE;
        op_o.slot_u = SLOT_ACC;
        op_o.minus = 1'b1;
        op_o.torus32 = !settings.goldilocks;
        op_o.slot_result = SLOT_DIFFERENCE;
      end
      DIGIT: begin
        op_o.u = U_DIGIT;
        op_o.slot_u = SLOT_DIFFERENCE;
        op_o.slot_result = SLOT_WORK;
      end
      FORWARD: begin
        op_o.transform = 1'b1;
        op_o.t = T_SLOT;
        op_o.w = W_TWIDDLE;
        op_o.slot_t = SLOT_WORK;
      end
      PRODUCT_OWN, PRODUCT_CROSS: begin
        op_o.u = state_q == PRODUCT_OWN ? U_SLOT : U_CROSS;
        op_o.t = state_q == PRODUCT_OWN && level_q == 0 ? T_ZERO : T_SLOT;
        op_o.w = W_STREAM;
        op_o.slot_t = SLOT_SUM;
        op_o.slot_u = SLOT_WORK;
        op_o.slot_result = SLOT_SUM;
      end
      BACKWARD: begin
        op_o.transform = 1'b1;
        op_o.t = T_SLOT;
        op_o.w = W_TWIDDLE;
        op_o.inverse = 1'b1;
        op_o.slot_t = SLOT_SUM;
      end
      ACCUMULATE: begin
        op_o.t = T_SLOT;
        op_o.slot_t = SLOT_ACC;
        op_o.slot_u = SLOT_SUM;
        op_o.torus32 = !settings.goldilocks;
        op_o.slot_result = SLOT_ACC;
      end
      KEY_FEED: begin
        op_o.slot_u = SLOT_ACC;
        op_o.sink = SINK_ROW;
        op_o.rows = 20'd1;
        op_o.row_operand = row_q;
        op_o.drain = 1'b0;
      end
      KEY_ROW: begin
        op_o.drain = 1'b0;
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.u = U_HALF_STREAM;
        op_o.t = fresh_q ? T_ZERO : T_SLOT;
        op_o.scalar = key_scalar_q;
        op_o.slot_t = SLOT_SUM;
        op_o.row_operand = set_row_q;
        op_o.slot_result = SLOT_SUM;
        op_o.row_result = set_row_q;
      end
      SETS_FIRST, SETS_MOVE: begin
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.slot_u = SLOT_SUM;
        op_o.row_operand = set_row_q;
        op_o.slot_result = state_q == SETS_FIRST ? SLOT_DIFFERENCE : SLOT_WORK;
      end
      SETS_ADD: begin
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.t = T_SLOT;
        op_o.slot_t = SLOT_DIFFERENCE;
        op_o.slot_u = SLOT_WORK;
        op_o.slot_result = SLOT_DIFFERENCE;
      end
      NEGATE: begin
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.slot_u = SLOT_DIFFERENCE;
        op_o.minus = 1'b1;
        op_o.torus32 = 1'b1;
        op_o.slot_result = SLOT_ACC;
      end
      EXPAND: begin
        // The word of the Goldilocks modulus nearest to a·p/2^32: a·(2^32 - 1) and the top bit of a.
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.slot_u = SLOT_ACC;
        op_o.t = T_TOP_BIT;
        op_o.scalar = 64'hFFFF_FFFF;
        op_o.slot_result = SLOT_ACC;
      end
      ADD_BODY: begin
        op_o.rows = 20'(settings.tlwe_rows);
        op_o.t = T_SLOT;
        op_o.slot_t = SLOT_ACC;
        op_o.slot_u = SLOT_SUM;
        op_o.u = U_SELECT;
        op_o.scalar = body_q;
        op_o.torus32 = !settings.goldilocks;
        op_o.slot_result = SLOT_ACC;
      end
      STORE: begin
        op_o.rows   = 20'(settings.tlwe_rows);
        op_o.slot_u = SLOT_ACC;
        op_o.sink   = SINK_STORE;
        op_valid_o  = to_result_o || write_ready_i;
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
          read_address_o = settings.vector_base + (first_q << LOG_ROWS);
          read_beats_o   = 32'(ROWS);
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
  assign op_taken = op_valid_o && op_ready_i;

  always_ff @(posedge clk_i) begin
    // A response stays as it is until it is taken.
    if (state_q != RESPOND) cycles_q <= cycles_q + 1'b1;

    if (row_valid_i) begin
      word_q <= row_i;
    end else if (state_q == SWITCH_WORDS || state_q == KEY_WORD) begin
      for (int lane = 0; lane < 2 * VECTOR - 1; lane++) word_q[lane] <= word_q[lane+1];
    end

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
          OP_HOM_INT_MULT: state_q <= COMBINE;
          default: state_q <= STORE;
        endcase
      end
      LOAD_SECOND: if (op_taken) state_q <= COMBINE;
      COMBINE: if (op_taken) state_q <= STORE;

      // Modulus switch.
      SWITCH_FEED:
      if (op_taken) begin
        state_q <= SWITCH_WAIT;
        lane_q  <= '0;
      end
      SWITCH_WAIT: if (row_valid_i) state_q <= SWITCH_WORDS;
      SWITCH_WORDS: begin
        lane_q  <= lane_q + 1'b1;
        index_q <= index_q + 1'b1;
        if (is_body) begin
          // X^-b.
          exponent_q <= -body_exponent;
          state_q <= LOAD_VECTOR;
        end else if (lane_q == (LOG_LANES + 1)'(2 * VECTOR - 1)) begin
          row_q   <= row_q + 1'b1;
          state_q <= SWITCH_FEED;
        end
      end

      // Blind rotation.
      LOAD_VECTOR: if (op_taken) state_q <= TURN_VECTOR;
      TURN_VECTOR:
      if (op_taken) begin
        index_q <= '0;
        state_q <= EXPONENT;
      end
      EXPONENT:
      // The exponent of the step before must have done its work, and this one's has been read.
      if (idle_i) begin
        exponent_q <= exponent_read;
        state_q <= TURN;
      end
      TURN: if (op_taken) state_q <= SUBTRACT;
      SUBTRACT:
      if (op_taken) begin
        level_q <= '0;
        for (int circuit = 0; circuit < 2; circuit++) digit_shift_q[circuit] <= -settings.gadget[circuit].log2_base;
        state_q <= DIGIT;
      end
      DIGIT: if (op_taken) state_q <= FORWARD;
      FORWARD: if (op_taken) state_q <= PRODUCT_OWN;
      PRODUCT_OWN: if (op_taken) state_q <= PRODUCT_CROSS;
      PRODUCT_CROSS:
      if (op_taken) begin
        level_q <= level_q + 1'b1;
        for (int circuit = 0; circuit < 2; circuit++)
        digit_shift_q[circuit] <= digit_shift_q[circuit] - settings.gadget[circuit].log2_base;
        state_q <= last_level ? BACKWARD : DIGIT;
      end
      BACKWARD: if (op_taken) state_q <= ACCUMULATE;
      ACCUMULATE:
      if (op_taken) begin
        index_q <= index_q + 1'b1;
        row_q <= '0;
        set_q <= '0;
        set_row_q <= '0;
        fresh_q <= 1'b1;
        state_q <= last_step ? SWITCH_DRAIN : EXPONENT;
      end

      // Sample extraction and key switch: word c of the mask polynomial is word -c of the sample, negated but for c = 0; rows of the key
      // come in the order of c.
      SWITCH_DRAIN: if (idle_i) state_q <= KEY_FEED;
      KEY_FEED:
      if (op_taken) begin
        lane_q  <= '0;
        state_q <= KEY_WAIT;
      end
      KEY_WAIT:
      if (row_valid_i) begin
        state_q <= KEY_WORD;
        if (row_q == 0) body_q <= row_i[VECTOR];
      end
      KEY_WORD: begin
        lane_q <= lane_q + 1'b1;
        key_word_q <= (row_q == 0 && lane_q == 0) || word_q[0] == 0 ? word_q[0] :
            settings.goldilocks ? P - word_q[0] : 64'(-word_q[0][31:0]);
        state_q <= KEY_TORUS;
      end
      KEY_TORUS: begin
        key_word_q <= settings.goldilocks ? key_word_q + 64'(key_word_q[63:32]) + 64'(key_word_q[31]) : key_word_q << 32;
        state_q <= KEY_FIELD;
      end
      KEY_FIELD: begin
        key_word_q <= key_word_q + settings.switch_gadget.offset;
        key_shift_q <= -settings.switch_gadget.log2_base;
        level_q <= '0;
        state_q <= KEY_DIGIT;
      end
      KEY_DIGIT: begin
        key_scalar_q <= key_field < key_half ? P - 64'(key_half - key_field) : 64'(key_field - key_half);
        state_q <= KEY_ROW;
      end
      KEY_ROW:
      if (op_taken) begin
        level_q <= level_q + 1'b1;
        key_shift_q <= key_shift_q - settings.switch_gadget.log2_base;
        set_q <= last_set ? '0 : set_q + 1'b1;
        set_row_q <= last_set ? '0 : set_row_q + 20'(settings.tlwe_rows);
        if (last_set) fresh_q <= 1'b0;
        if (!last_switch_level) begin
          state_q <= KEY_DIGIT;
        end else if (lane_q != (LOG_LANES + 1)'(VECTOR)) begin
          state_q <= KEY_WORD;
        end else if (row_q != ROWS - 20'd1) begin
          row_q   <= row_q + 1'b1;
          state_q <= KEY_FEED;
        end else begin
          set_q <= '0;
          set_row_q <= '0;
          state_q <= SETS_FIRST;
        end
      end
      SETS_FIRST, SETS_ADD:
      if (op_taken) begin
        set_q <= set_q + 1'b1;
        set_row_q <= set_row_q + 20'(settings.tlwe_rows);
        state_q <= last_set ? NEGATE : SETS_MOVE;
      end
      SETS_MOVE: if (op_taken) state_q <= SETS_ADD;
      NEGATE: if (op_taken) state_q <= settings.goldilocks ? EXPAND : ADD_BODY;
      EXPAND: if (op_taken) state_q <= ADD_BODY;
      ADD_BODY: if (op_taken) state_q <= STORE;

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
      FINISH:  if (idle_i && stored_i && write_idle_i) state_q <= RESPOND;
      RESPOND: if (rsp_tready_i) state_q <= IDLE;
      default: ;
    endcase

    if (!rst_ni) begin
      state_q <= IDLE;
      stack_q <= '0;
    end
  end
endmodule
