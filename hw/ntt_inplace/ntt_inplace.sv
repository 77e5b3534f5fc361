// SPDX-License-Identifier: Apache-2.0 OR MIT
// Negacyclic NTT and inverse NTT (INTT) over the Goldilocks prime, in place, of CIRCUITS polynomials side by side.
//
// The NTT takes N = 2^LOG_N coefficients in natural order and gives values in bit-reversed order: the word at position
// i is f(psi^(2 rev(i) + 1)). The INTT takes these and gives N times the coefficients in natural order. There is no
// pass of bit reversal and no scaling: a row of N/2 butterflies takes N / 2^LOG_LANES cycles, and the next row follows
// at once where N is large (see README.md).
//
// Streams: a beat has 2^LOG_LANES consecutive words of each circuit, circuit 0 lowest; N / 2^LOG_LANES beats are a
// polynomial of each circuit. in_tuser_i of the first of them says the direction: 0 NTT, 1 INTT. in_tlast_i goes with
// the last of them; out_tuser_o and out_tlast_o are as at the input. error_o is high for a cycle after a beat whose
// in_tlast_i is not where it belongs; the transform goes on by the count. While results leave, the next polynomials
// enter.
//
// LOG_N: 3 to 20. LOG_LANES: 2 to 10, below LOG_N and at least LOG_N / 8; a circuit has 2^(LOG_LANES - 1) butterflies.
// CIRCUITS: 1 to 8.
// TWIDDLE_FILE: the table of ntt_inplace_pkg, for $readmemh. TILE_A, TILE_B: operands of a DSP tile.
// Latency: see README.md. Source: appendix A of the NVMe secure computing platform's paper, with the butterflies
// exchanged.
module ntt_inplace
  import ntt_inplace_pkg::*;
  import toroid_pkg::*;
#(
    parameter int LOG_N = 14,
    parameter int LOG_LANES = 5,
    parameter int CIRCUITS = 2,
    parameter string TWIDDLE_FILE = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    localparam int LANES = 1 << LOG_LANES,
    localparam int BEAT_BITS = CIRCUITS * LANES * 64
) (
    input logic clk_i,
    input logic rst_ni,
    input logic in_tvalid_i,
    output logic in_tready_o,
    input logic [BEAT_BITS-1:0] in_tdata_i,
    input logic in_tuser_i,
    input logic in_tlast_i,
    output logic out_tvalid_o,
    input logic out_tready_i,
    output logic [BEAT_BITS-1:0] out_tdata_o,
    output logic out_tuser_o,
    output logic out_tlast_o,
    output logic error_o
);
  localparam int COUNT_BITS = LOG_N - LOG_LANES;
  localparam int HALF = LANES / 2;
  localparam int BUTTERFLY = butterfly_latency(MOD_GOLDILOCKS, 64, TILE_A, TILE_B);
  localparam int HAZARD = READ_LATENCY + BUTTERFLY + WRITE_LATENCY;
  localparam int TWIDDLES = twiddle_base(LOG_N, LOG_LANES, -1);
  localparam int TWIDDLE_BITS = $clog2(TWIDDLES);
  localparam int TWIDDLE_DELAY = READ_LATENCY - ram_latency(1'b1);
  localparam int FIFO_DEPTH = 16;

  if (!is_legal(LOG_N, LOG_LANES)) begin : g_check
    $fatal(1, "ntt_inplace: 2 <= LOG_LANES <= 10, LOG_LANES < LOG_N <= 20 and LOG_N <= 8 LOG_LANES must hold");
  end
  if (CIRCUITS < 1 || CIRCUITS > 8) begin : g_check_circuits
    $fatal(1, "ntt_inplace: CIRCUITS must be 1 to 8");
  end
  if (TWIDDLE_FILE == "") begin : g_check_file
    $fatal(1, "ntt_inplace: TWIDDLE_FILE must name the table of twiddles");
  end

  // Loading, transforming and unloading. A beat is loaded where the beat of that count was unloaded before.
  logic loaded_q, running_q, unloading_q, inverse_q, unload_inverse_q;
  logic [COUNT_BITS-1:0] load_q, unload_q;
  logic load, start, drained, unload, row_last;
  logic [$clog2(FIFO_DEPTH):0] room_q;

  assign in_tready_o = !loaded_q && !running_q && (!unloading_q || load_q < unload_q);
  assign load = in_tvalid_i && in_tready_o;
  assign start = loaded_q && !running_q && !unloading_q;
  assign unload = unloading_q && room_q != 0;

  always_ff @(posedge clk_i) begin
    error_o <= load && in_tlast_i != (load_q == '1);
    if (load) begin
      load_q <= load_q + 1'b1;
      if (load_q == '0) inverse_q <= in_tuser_i;
      if (load_q == '1) loaded_q <= 1'b1;
    end
    if (start) begin
      loaded_q <= 1'b0;
      running_q <= 1'b1;
      unload_inverse_q <= inverse_q;
    end
    if (drained) begin
      running_q   <= 1'b0;
      unloading_q <= 1'b1;
    end
    if (unload) begin
      unload_q <= unload_q + 1'b1;
      if (unload_q == '1) unloading_q <= 1'b0;
    end
    room_q <= room_q + ($clog2(FIFO_DEPTH) + 1)'(out_tvalid_o && out_tready_i) - ($clog2(FIFO_DEPTH) + 1)'(unload);
    if (!rst_ni) begin
      error_o <= 1'b0;
      loaded_q <= 1'b0;
      running_q <= 1'b0;
      unloading_q <= 1'b0;
      load_q <= '0;
      unload_q <= '0;
      room_q <= ($clog2(FIFO_DEPTH) + 1)'(FIFO_DEPTH);
    end
  end

  // Beats.
  beat_t row_beat, read_beat, lane_beat[CIRCUITS], result_beat, write_beat;
  logic [TWIDDLE_BITS-1:0] row_twiddle, twiddle;
  logic [HALF*64-1:0] twiddles;

  function automatic beat_t whole_words(logic [COUNT_BITS-1:0] count);
    beat_t beat = '0;
    beat.valid = 1'b1;
    beat.transform = 1'b1;
    beat.read_index = MAX_LOG_N'({count, LOG_LANES'(0)});
    beat.write_index = beat.read_index;
    return beat;
  endfunction

  ntt_schedule #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES),
      .HAZARD(HAZARD)
  ) i_schedule (
      .clk_i,
      .rst_ni,
      .start_i(start),
      .inverse_i(inverse_q),
      .slot_i(2'd0),
      // The next start comes after all has left.
      // verilator lint_off PINCONNECTEMPTY
      .ready_o(),
      // verilator lint_on PINCONNECTEMPTY
      .beat_o(row_beat),
      .twiddle_o(row_twiddle),
      .last_o(row_last)
  );

  always_comb begin
    read_beat = row_beat;
    if (unloading_q) begin
      read_beat = whole_words(unload_q);
      read_beat.valid = unload;
    end
    write_beat = result_beat;
    if (!running_q) begin
      write_beat = whole_words(load_q);
      write_beat.valid = load;
      write_beat.write = load;
    end
  end

  // The last word of a transform may be read HAZARD cycles after its beat; unloading_q comes a cycle after drained.
  beat_t result_beat_q[BUTTERFLY];
  logic [HAZARD-2:0] last_q;
  assign result_beat = result_beat_q[BUTTERFLY-1];
  assign drained = last_q[HAZARD-2];
  always_ff @(posedge clk_i) begin
    result_beat_q[0] <= lane_beat[0];
    for (int stage = 1; stage < BUTTERFLY; stage++) result_beat_q[stage] <= result_beat_q[stage-1];
    last_q <= {last_q[HAZARD-3:0], row_last};
    if (!rst_ni) begin
      for (int stage = 0; stage < BUTTERFLY; stage++) result_beat_q[stage].valid <= 1'b0;
      last_q <= '0;
    end
  end

  delay #(
      .WIDTH (TWIDDLE_BITS),
      .CYCLES(TWIDDLE_DELAY)
  ) i_twiddle (
      .clk_i,
      .d_i(row_twiddle),
      .q_o(twiddle)
  );

  rom #(
      .WIDTH(HALF * 64),
      .DEPTH(TWIDDLES),
      .FILE (TWIDDLE_FILE)
  ) i_rom (
      .clk_i,
      .addr_i(twiddle),
      .data_o(twiddles)
  );

  logic [BEAT_BITS-1:0] words;
  for (genvar circuit = 0; circuit < CIRCUITS; circuit++) begin : gen_circuit
    logic [63:0] lane[LANES], result[LANES], write_lane[LANES];

    banked_lanes #(
        .LOG_N(LOG_N),
        .LOG_LANES(LOG_LANES),
        .LOG_SLOTS(0)
    ) i_lanes (
        .clk_i,
        .rst_ni,
        .read_beat_i(read_beat),
        .beat_o(lane_beat[circuit]),
        .lane_o(lane),
        .write_beat_i(write_beat),
        .lane_i(write_lane)
    );

    for (genvar butterfly = 0; butterfly < HALF; butterfly++) begin : gen_butterfly
      butterfly_integrated #(
          .TILE_A(TILE_A),
          .TILE_B(TILE_B)
      ) i_butterfly (
          .clk_i,
          .inverse_i(lane_beat[circuit].inverse),
          .a_i(lane[butterfly]),
          .b_i(lane[butterfly+HALF]),
          .w_i(twiddles[butterfly*64+:64]),
          .a_o(result[butterfly]),
          .b_o(result[butterfly+HALF])
      );
    end

    for (genvar word = 0; word < LANES; word++) begin : gen_lane
      assign write_lane[word] = running_q ? result[word] : in_tdata_i[(circuit*LANES+word)*64+:64];
      assign words[(circuit*LANES+word)*64+:64] = lane[word];
    end
  end

  // Beats that do not write are those that unload. A word is on its way to the queue for READ_LATENCY cycles, and room
  // was made for it.
  logic words_inverse, words_last;
  delay #(
      .WIDTH (2),
      .CYCLES(READ_LATENCY)
  ) i_words (
      .clk_i,
      .d_i({unload_inverse_q, unload_q == '1}),
      .q_o({words_inverse, words_last})
  );

  stream_fifo #(
      .WIDTH(BEAT_BITS + 1),
      .DEPTH(FIFO_DEPTH)
  ) i_fifo (
      .clk_i,
      .rst_ni,
      .in_tvalid_i(lane_beat[0].valid && !lane_beat[0].write),
      // room_q keeps room for each word that is read.
      // verilator lint_off PINCONNECTEMPTY
      .in_tready_o(),
      // verilator lint_on PINCONNECTEMPTY
      .in_tdata_i({words_inverse, words}),
      .in_tlast_i(words_last),
      .out_tvalid_o(out_tvalid_o),
      .out_tready_i(out_tready_i),
      .out_tdata_o({out_tuser_o, out_tdata_o}),
      .out_tlast_o(out_tlast_o),
      // room_q counts words on their way, too.
      // verilator lint_off PINCONNECTEMPTY
      .count_o()
      // verilator lint_on PINCONNECTEMPTY
  );
endmodule
