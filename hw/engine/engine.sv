// SPDX-License-Identifier: Apache-2.0 OR MIT
// The secure computing engine: runs TFHE instructions on ciphertexts and keys in main memory, bit for bit as the exact path of `toroid-tfhe`.
//
// Two circuits of LANES/2 integrated butterflies work in lockstep, one on each polynomial of a TRLWE sample (k = 1). A beat of main memory is LANES
// words of 64 bits, VECTOR = LANES/2 of them for circuit 0, then those for circuit 1; it is spread over PORTS AXI4 ports of at most 1,024 bits,
// which all see the same addresses (channels of an HBM, interleaved by beats).
//
// In main memory, in beats:
//   test vector, row r:    words r·VECTOR + x of the mask polynomial (circuit 0) and of the body (circuit 1), one word in 64 bits
//   TLWE sample, row r:    words r·LANES + x, one word in 64 bits; what is beyond word n is not used
//   bootstrapping key:     for each of n steps, level, own/cross, row r: words r·VECTOR + x in the order of the NTT's output (bit-reversed) of
//                          column c of the TRGSW row of polynomial c (own) or 1 - c (cross), for circuits c = 0, 1; scaled by 1/N
//   key-switching key:     for each coefficient c of the mask, level, row r: LANES words of 32 bits, in half a beat, of the TLWE sample of
//                          index (N - c) mod N
//
// LOG_N: log2 of the ring degree, 6 to 16. LOG_LANES: log2 of LANES, 2 to 8, at most LOG_N - 4. LOG_BUFFER: log2 of the beats that are read ahead, 5 to 12.
// TWIDDLE_FILE: hexadecimal table of `ntt_inplace_pkg`, LANES/2 words of 64 bits a line.
// Source: the NVMe platform paper, sections 4.4 to 4.6 and Table 1.
module engine
  import engine_pkg::*;
  import ntt_inplace_pkg::*;
#(
    parameter int LOG_N = 9,
    parameter int LOG_LANES = 3,
    parameter int LOG_BUFFER = 9,
    parameter string TWIDDLE_FILE = "",
    localparam int LANES = 1 << LOG_LANES,
    localparam int WIDTH = LANES * 64 < 1024 ? LANES * 64 : 1024,
    localparam int PORTS = LANES * 64 / WIDTH
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
    output logic [LANES*64-1:0] result_tdata_o,
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
  localparam int VECTOR = LANES / 2;
  localparam int BUTTERFLY = toroid_pkg::butterfly_latency(toroid_pkg::MOD_GOLDILOCKS, 64, 24, 17);
  localparam int HAZARD = READ_LATENCY + BUTTERFLY + 3 + WRITE_LATENCY;
  localparam int TWIDDLES = twiddle_base(LOG_N, LOG_LANES, -1);
  localparam int TWIDDLE_BITS = $clog2(TWIDDLES);
  localparam int ROM_LATENCY = toroid_pkg::ram_latency(1'b1);
  localparam int STORE_DEPTH = 16;

  // Partial sums of the key switch take as many rows as a beat takes cycles to come back.
  if (LOG_N < 6 || LOG_N > 16 || LOG_LANES < 2 || LOG_LANES > 8 || LOG_N - LOG_LANES < 4) begin : g_check
    $fatal(1, "engine: LOG_N must be 6 to 16, and LOG_LANES 2 to 8 and at most LOG_N - 4");
  end

  logic goldilocks;
  gadget_t [1:0] gadget;
  logic op_valid, op_ready;
  operation_t op;
  logic [1:0][5:0] digit_shift;
  logic [LOG_LANES-2:0] rotate_shift;
  logic [1:0][VECTOR-1:0] select;
  logic [19:0] body_row;
  logic idle, row_valid_q;
  logic [63:0] row_q[LANES];
  logic read_valid, read_ready, write_valid, write_ready, write_idle, to_result;
  logic [31:0] read_address, read_beats, write_address, write_beats;

  // Rows that wait to be stored, or are on their way there.
  logic [4:0] stored_q;

  engine_sequencer #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES)
  ) i_sequencer (
      .clk_i,
      .rst_ni,
      .cmd_tvalid_i,
      .cmd_tready_o,
      .cmd_tdata_i,
      .rsp_tvalid_o,
      .rsp_tready_i,
      .rsp_tdata_o,
      .goldilocks_o(goldilocks),
      .gadget_o(gadget),
      .op_valid_o(op_valid),
      .op_ready_i(op_ready),
      .op_o(op),
      .digit_shift_o(digit_shift),
      .rotate_shift_o(rotate_shift),
      .select_o(select),
      .body_row_o(body_row),
      .idle_i(idle),
      .row_valid_i(row_valid_q),
      .row_i(row_q),
      .read_valid_o(read_valid),
      .read_ready_i(read_ready),
      .read_address_o(read_address),
      .read_beats_o(read_beats),
      .write_valid_o(write_valid),
      .write_ready_i(write_ready),
      .write_address_o(write_address),
      .write_beats_o(write_beats),
      .write_idle_i(write_idle),
      .stored_i(stored_q == '0),
      .to_result_o(to_result)
  );

  // Beats.
  logic stream_available, stream_take, store_take, store_ready;
  beat_t beat;
  vector_t vector;
  logic [TWIDDLE_BITS-1:0] twiddle_address;

  engine_issuer #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES),
      .HAZARD(HAZARD)
  ) i_issuer (
      .clk_i,
      .rst_ni,
      .op_valid_i(op_valid),
      .op_ready_o(op_ready),
      .op_i(op),
      .body_row_i(body_row),
      .stream_available_i(stream_available),
      .stream_take_o(stream_take),
      .store_ready_i(store_ready),
      .store_take_o(store_take),
      .beat_o(beat),
      .vector_o(vector),
      .twiddle_o(twiddle_address),
      .idle_o(idle)
  );

  // What goes with the operands.
  vector_t vector_q[READ_LATENCY+LATE];
  logic [READ_LATENCY-1:0] valid_q;
  logic [TWIDDLE_BITS-1:0] twiddle_address_q[READ_LATENCY-ROM_LATENCY];
  logic [VECTOR*64-1:0] twiddle_words;
  logic [63:0] twiddle[VECTOR];

  always_ff @(posedge clk_i) begin
    vector_q[0] <= vector;
    for (int stage = 1; stage < READ_LATENCY + LATE; stage++) vector_q[stage] <= vector_q[stage-1];
    valid_q <= {valid_q[READ_LATENCY-2:0], beat.valid && !beat.transform};
    twiddle_address_q[0] <= twiddle_address;
    for (int stage = 1; stage < READ_LATENCY - ROM_LATENCY; stage++)
    twiddle_address_q[stage] <= twiddle_address_q[stage-1];
    if (!rst_ni) valid_q <= '0;
  end

  rom #(
      .WIDTH(VECTOR * 64),
      .DEPTH(TWIDDLES),
      .FILE (TWIDDLE_FILE)
  ) i_twiddles (
      .clk_i,
      .addr_i(twiddle_address_q[READ_LATENCY-ROM_LATENCY-1]),
      .data_o(twiddle_words)
  );

  // Main memory.
  logic [LANES*64-1:0] read_words;

  memory_reader #(
      .PORTS(PORTS),
      .WIDTH(WIDTH),
      .LOG_DEPTH(LOG_BUFFER),
      .TAKE_LATENCY(READ_LATENCY)
  ) i_reader (
      .clk_i,
      .rst_ni,
      .desc_valid_i(read_valid),
      .desc_ready_o(read_ready),
      .desc_address_i(read_address),
      .desc_beats_i(read_beats),
      .available_o(stream_available),
      // Rows wait for single beats.
      // verilator lint_off PINCONNECTEMPTY
      .filled_o(),
      // verilator lint_on PINCONNECTEMPTY
      .take_i(stream_take),
      .data_o(read_words),
      .m_axi_arvalid(m_axi_arvalid_o),
      .m_axi_arready(m_axi_arready_i),
      .m_axi_araddr(m_axi_araddr_o),
      .m_axi_arlen(m_axi_arlen_o),
      .m_axi_rvalid(m_axi_rvalid_i),
      .m_axi_rready(m_axi_rready_o),
      .m_axi_rdata(m_axi_rdata_i)
  );

  logic store_valid, writer_ready;
  logic [LANES*64-1:0] store_words;
  logic store_in_ready, store_out_valid, store_out_ready;
  logic [LANES*64-1:0] store_out_words;

  // Rows are let go only as far as the queue has room for all that are on their way.
  assign store_ready = stored_q != 5'(STORE_DEPTH);
  logic unused;
  assign unused = store_in_ready;
  always_ff @(posedge clk_i) begin
    stored_q <= stored_q + 5'(store_take) - 5'(store_out_valid && store_out_ready);
    if (!rst_ni) stored_q <= '0;
  end

  stream_fifo #(
      .WIDTH(LANES * 64),
      .DEPTH(STORE_DEPTH)
  ) i_store (
      .clk_i,
      .rst_ni,
      .in_tvalid_i(store_valid),
      .in_tready_o(store_in_ready),
      .in_tdata_i(store_words),
      .in_tlast_i(1'b0),
      .out_tvalid_o(store_out_valid),
      .out_tready_i(store_out_ready),
      .out_tdata_o(store_out_words),
      // Neither packets nor a count here.
      // verilator lint_off PINCONNECTEMPTY
      .out_tlast_o(),
      .count_o()
      // verilator lint_on PINCONNECTEMPTY
  );

  assign store_out_ready = to_result ? result_tready_i : writer_ready;
  assign result_tvalid_o = store_out_valid && to_result;
  assign result_tdata_o  = store_out_words;

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
      .in_tvalid_i(store_out_valid && !to_result),
      .in_tready_o(writer_ready),
      .in_tdata_i(store_out_words),
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

  // Circuits.
  logic [63:0] stream[2][VECTOR], upper[2][VECTOR];
  logic [31:0] half_stream[2][VECTOR];

  always_comb begin
    for (int index = 0; index < VECTOR; index++) begin
      twiddle[index] = twiddle_words[index*64+:64];
      for (int circuit = 0; circuit < 2; circuit++) begin
        stream[circuit][index] = read_words[(circuit*VECTOR+index)*64+:64];
        half_stream[circuit][index] = vector_q[READ_LATENCY-1].half ?
            read_words[(LANES+circuit*VECTOR+index)*32+:32] : read_words[(circuit*VECTOR+index)*32+:32];
        store_words[(circuit*VECTOR+index)*64+:64] = upper[circuit][index];
      end
    end
  end

  assign store_valid = valid_q[READ_LATENCY-1] && vector_q[READ_LATENCY-1].sink == SINK_STORE;

  always_ff @(posedge clk_i) begin
    row_valid_q <= rst_ni && valid_q[READ_LATENCY-1] && vector_q[READ_LATENCY-1].sink == SINK_ROW;
    for (int circuit = 0; circuit < 2; circuit++) begin
      for (int index = 0; index < VECTOR; index++) row_q[circuit*VECTOR+index] <= upper[circuit][index];
    end
  end

  for (genvar circuit = 0; circuit < 2; circuit++) begin : gen_circuit
    engine_circuit #(
        .LOG_N(LOG_N),
        .LOG_LANES(LOG_LANES)
    ) i_circuit (
        .clk_i,
        .rst_ni,
        .goldilocks_i(goldilocks),
        .gadget_i(gadget[circuit]),
        .digit_shift_i(digit_shift[circuit]),
        .rotate_shift_i(rotate_shift),
        .select_i(select[circuit]),
        .beat_i(beat),
        .vector_i(vector_q[READ_LATENCY-1]),
        .late_vector_i(vector_q[READ_LATENCY+LATE-1]),
        .twiddle_i(twiddle),
        .stream_i(stream[circuit]),
        .half_stream_i(half_stream[circuit]),
        .cross_i(upper[1-circuit]),
        .cross_o(upper[circuit])
    );
  end
endmodule
