// SPDX-License-Identifier: Apache-2.0 OR MIT
// The streaming engine: runs the commands of `engine` on ciphertexts and keys in main memory, bit for bit as it does, with blind rotation as a
// stream of P = 2^LOG_LANES words a cycle through one transform.
//
// A beat of main memory is 2·P words of 64 bits, over PORTS AXI4 ports of at most 1,024 bits at the same addresses. Coefficients are in the order of
// columns: with N = C^2, beat (c, h), lane x is coefficient (h·P + x)·C + c, and beats are counted c·C/P + h. In main memory, in beats:
//   test vector:           a beat of the mask polynomial, then P words of the body
//   TLWE sample, row r:    words r·2·P + x, one word in 64 bits; what is beyond word n is not used
//   bootstrapping key:     for each of n steps, row of the TRGSW sample (those of the mask first), beat of P words in the order of the NTT's output
//                          (bit-reversed): the row's column 0, then its column 1; scaled by 1/N
//   key-switching key:     for each beat of the mask, pair of lanes, level, row r of a TLWE sample: 2·P words of 32 bits of the sample for the first
//                          lane, then for the second; the sample of coefficient i is that of index (N - i) mod N
//
// LOG_N: log2 of the ring degree, even, 6 to 14. LOG_LANES: LOG_N/4 to LOG_N/2, at least 2. LOG_BUFFER: log2 of the beats that are read ahead, 5 to
// 12, more than LOG_N - LOG_LANES; four frames hide the way through the transform. DIGIT_BITS, SWITCH_DIGIT_BITS: bits of the largest digits of
// both keys, 1 to 25 and 1 to 31. KARATSUBA: DSP slices of each of 3·P multipliers, 8, 6, or 0 for 12 (see `goldilocks_mul`). TWIDDLE_FILE:
// hexadecimal table of `stream_transform`.
module engine_streaming
  import engine_pkg::*;
  import engine_streaming_pkg::*;
#(
    parameter int LOG_N = 8,
    parameter int LOG_LANES = 3,
    parameter int LOG_BUFFER = LOG_N - LOG_LANES + 2 > 10 ? LOG_N - LOG_LANES + 2 : 10,
    parameter int DIGIT_BITS = 24,
    parameter int SWITCH_DIGIT_BITS = 6,
    parameter int KARATSUBA = 8,
    parameter string TWIDDLE_FILE = "",
    localparam int LANES = 1 << LOG_LANES,
    localparam int WORDS = 2 * LANES,
    localparam int WIDTH = WORDS * 64 < 1024 ? WORDS * 64 : 1024,
    localparam int PORTS = WORDS * 64 / WIDTH
) (
    input logic clk_i,
    input logic rst_ni,
    input logic cmd_tvalid_i,
    output logic cmd_tready_o,
    input logic [127:0] cmd_tdata_i,
    output logic rsp_tvalid_o,
    input logic rsp_tready_i,
    output logic [63:0] rsp_tdata_o,
    output logic result_tvalid_o,
    input logic result_tready_i,
    output logic [WORDS*64-1:0] result_tdata_o,
    output logic [PORTS-1:0] m_axi_arvalid_o,
    input logic [PORTS-1:0] m_axi_arready_i,
    output logic [PORTS-1:0][39:0] m_axi_araddr_o,
    output logic [PORTS-1:0][7:0] m_axi_arlen_o,
    input logic [PORTS-1:0] m_axi_rvalid_i,
    output logic [PORTS-1:0] m_axi_rready_o,
    input logic [PORTS-1:0][WIDTH-1:0] m_axi_rdata_i,
    output logic [PORTS-1:0] m_axi_awvalid_o,
    input logic [PORTS-1:0] m_axi_awready_i,
    output logic [PORTS-1:0][39:0] m_axi_awaddr_o,
    output logic [PORTS-1:0][7:0] m_axi_awlen_o,
    output logic [PORTS-1:0] m_axi_wvalid_o,
    input logic [PORTS-1:0] m_axi_wready_i,
    output logic [PORTS-1:0][WIDTH-1:0] m_axi_wdata_o,
    output logic [PORTS-1:0] m_axi_wlast_o,
    input logic [PORTS-1:0] m_axi_bvalid_i,
    output logic [PORTS-1:0] m_axi_bready_o
);
  localparam int BEAT_BITS = LOG_N - LOG_LANES;
  localparam int MAX_LWE_DIMENSION = 2047;
  localparam int ROWS = (MAX_LWE_DIMENSION + WORDS) / WORDS;
  localparam int ROW_BITS = toroid_pkg::index_width(ROWS);
  localparam int TAKE = 3;

  // A frame of the key must fit the buffer beside a burst.
  if (LOG_BUFFER <= BEAT_BITS) begin : g_check
    $fatal(1, "engine_streaming: LOG_BUFFER must be more than LOG_N - LOG_LANES");
  end

  // Main memory.
  logic read_valid, read_ready, write_valid, write_ready, write_idle, to_result;
  logic [31:0] read_address, read_beats, write_address, write_beats;
  logic available, vector_take, key_take, switch_take, sample_take;
  logic [LOG_BUFFER:0] filled;
  logic [WORDS*64-1:0] read_words;
  logic [63:0] stream[WORDS];
  logic [31:0] half_stream[2*WORDS];

  memory_reader #(
      .PORTS(PORTS),
      .WIDTH(WIDTH),
      .LOG_DEPTH(LOG_BUFFER),
      .TAKE_LATENCY(TAKE)
  ) i_reader (
      .clk_i,
      .rst_ni,
      .desc_valid_i(read_valid),
      .desc_ready_o(read_ready),
      .desc_address_i(read_address),
      .desc_beats_i(read_beats),
      .available_o(available),
      .filled_o(filled),
      .take_i(vector_take || key_take || switch_take || sample_take),
      .data_o(read_words),
      .m_axi_arvalid(m_axi_arvalid_o),
      .m_axi_arready(m_axi_arready_i),
      .m_axi_araddr(m_axi_araddr_o),
      .m_axi_arlen(m_axi_arlen_o),
      .m_axi_rvalid(m_axi_rvalid_i),
      .m_axi_rready(m_axi_rready_o),
      .m_axi_rdata(m_axi_rdata_i)
  );

  always_comb begin
    for (int word = 0; word < WORDS; word++) stream[word] = read_words[word*64+:64];
    for (int word = 0; word < 2 * WORDS; word++) half_stream[word] = read_words[word*32+:32];
  end

  // Addresses are the sequencer's.
  // verilator lint_off UNUSEDSIGNAL
  settings_t settings;
  // verilator lint_on UNUSEDSIGNAL
  logic op_valid, op_ready, stored;
  row_operation_t op;
  logic [ROW_BITS-1:0] feed_row, sum_row;
  logic [63:0] row[WORDS];
  logic rotation_idle, step_valid, step_ready, switch_start, switch_idle;
  logic [LOG_N:0] exponent;
  logic [63:0] body;

  // Beats of a test vector on their way.
  logic [TAKE-1:0] vector_q;
  logic [BEAT_BITS-1:0] load_beat_q, switch_beat;
  always_ff @(posedge clk_i) begin
    vector_q <= {vector_q[TAKE-2:0], vector_take};
    load_beat_q <= load_beat_q + BEAT_BITS'(vector_q[TAKE-1]);
    if (!rst_ni) begin
      vector_q <= '0;
      load_beat_q <= '0;
    end
  end

  streaming_sequencer #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES),
      .MAX_LWE_DIMENSION(MAX_LWE_DIMENSION)
  ) i_sequencer (
      .clk_i,
      .rst_ni,
      .cmd_tvalid_i,
      .cmd_tready_o,
      .cmd_tdata_i,
      .rsp_tvalid_o,
      .rsp_tready_i,
      .rsp_tdata_o,
      .settings_o(settings),
      .op_valid_o(op_valid),
      .op_ready_i(op_ready),
      .op_o(op),
      .feed_row_o(feed_row),
      .row_i(row),
      .available_i(available),
      .vector_take_o(vector_take),
      .vector_loaded_i(vector_q[TAKE-1] && load_beat_q == '1),
      .rotation_idle_i(rotation_idle),
      .step_valid_o(step_valid),
      .step_ready_i(step_ready),
      .exponent_o(exponent),
      .switch_start_o(switch_start),
      .switch_idle_i(switch_idle),
      .body_i(body),
      .read_valid_o(read_valid),
      .read_ready_i(read_ready),
      .read_address_o(read_address),
      .read_beats_o(read_beats),
      .write_valid_o(write_valid),
      .write_ready_i(write_ready),
      .write_address_o(write_address),
      .write_beats_o(write_beats),
      .write_idle_i(write_idle),
      .stored_i(stored),
      .to_result_o(to_result)
  );

  // Blind rotation.
  logic pass;
  logic [63:0]
      pass_word[WORDS], pass_factor, pass_addend[WORDS], pass_sum[WORDS], accumulator_word[WORDS], mask_word[LANES];

  blind_rotation #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES),
      .DIGIT_BITS(DIGIT_BITS),
      .KARATSUBA(KARATSUBA),
      .TWIDDLE_FILE(TWIDDLE_FILE)
  ) i_rotation (
      .clk_i,
      .rst_ni,
      .goldilocks_i(settings.goldilocks),
      .gadget_i(settings.gadget),
      .levels_i({settings.body_levels, settings.levels}),
      .step_valid_i(step_valid),
      .step_ready_o(step_ready),
      .exponent_i(exponent),
      .key_filled_i(16'(filled)),
      .key_take_o(key_take),
      .key_i(stream),
      .load_i(vector_q[TAKE-1]),
      .beat_i(vector_q[TAKE-1] ? load_beat_q : switch_beat),
      .word_i(stream),
      .word_o(accumulator_word),
      .idle_o(rotation_idle),
      .pass_i(pass),
      .pass_word_i(pass_word),
      .pass_factor_i(pass_factor),
      .pass_addend_i(pass_addend),
      .pass_sum_o(pass_sum)
  );

  // Key switch.
  logic [31:0] sum[WORDS];
  always_comb for (int lane = 0; lane < LANES; lane++) mask_word[lane] = accumulator_word[lane];

  key_switch #(
      .BEAT_BITS(BEAT_BITS),
      .LOG_LANES(LOG_LANES),
      .DIGIT_BITS(SWITCH_DIGIT_BITS),
      .ROWS(ROWS)
  ) i_switch (
      .clk_i,
      .rst_ni,
      .goldilocks_i(settings.goldilocks),
      .gadget_i(settings.switch_gadget),
      .levels_i(settings.switch_levels),
      .rows_i(settings.tlwe_rows),
      .start_i(switch_start),
      .idle_o(switch_idle),
      .beat_o(switch_beat),
      .word_i(mask_word),
      .body_i(accumulator_word[LANES]),
      .body_o(body),
      .key_available_i(available),
      .key_take_o(switch_take),
      .key_i(half_stream),
      .sum_row_i(sum_row),
      .sum_o(sum)
  );

  // The sample at work.
  logic store_valid, store_ready, writer_ready;
  logic [WORDS*64-1:0] store_words;

  sample_unit #(
      .ROWS(ROWS),
      .WORDS(WORDS),
      .PRODUCT(toroid_pkg::goldilocks_mul_latency(24, 17, 0, KARATSUBA))
  ) i_sample (
      .clk_i,
      .rst_ni,
      .op_valid_i(op_valid),
      .op_ready_o(op_ready),
      .op_i(op),
      .rows_i(settings.tlwe_rows),
      .body_i(settings.lwe_dimension),
      .available_i(available),
      .take_o(sample_take),
      .stream_i(stream),
      .sum_row_o(sum_row),
      .sum_i(sum),
      .pass_o(pass),
      .word_o(pass_word),
      .factor_o(pass_factor),
      .addend_o(pass_addend),
      .product_i(pass_sum),
      .feed_row_i(feed_row),
      .row_o(row),
      .store_tvalid_o(store_valid),
      .store_tready_i(store_ready),
      .store_tdata_o(store_words),
      .stored_o(stored)
  );

  assign store_ready = to_result ? result_tready_i : writer_ready;
  assign result_tvalid_o = store_valid && to_result;
  assign result_tdata_o = store_words;

  memory_writer #(
      .PORTS(PORTS),
      .WIDTH(WIDTH)
  ) i_writer (
      .clk_i,
      .rst_ni,
      .desc_valid_i(write_valid),
      .desc_ready_o(write_ready),
      .desc_address_i(write_address),
      .desc_beats_i(write_beats),
      .in_tvalid_i(store_valid && !to_result),
      .in_tready_o(writer_ready),
      .in_tdata_i(store_words),
      .idle_o(write_idle),
      .m_axi_awvalid(m_axi_awvalid_o),
      .m_axi_awready(m_axi_awready_i),
      .m_axi_awaddr(m_axi_awaddr_o),
      .m_axi_awlen(m_axi_awlen_o),
      .m_axi_wvalid(m_axi_wvalid_o),
      .m_axi_wready(m_axi_wready_i),
      .m_axi_wdata(m_axi_wdata_o),
      .m_axi_wlast(m_axi_wlast_o),
      .m_axi_bvalid(m_axi_bvalid_i),
      .m_axi_bready(m_axi_bready_o)
  );
endmodule
