// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_sdf: NTT or INTT of N words, one per cycle by single-delay feedback (R2SDF, R2^2SDF), or two side by side (Modr2),
// between AXI4-Streams. Transforms follow each other every N or N / 2 cycles without a bubble.
//
// FRONT, BACK     what stands before and behind the stages, as the KIND of ntt_end
// FRONT_LOG_LANES, and so on, and those of BACK: the parameters of permutation_network
// The other parameters are those of sdf_transform.
// A polynomial that has begun must be delivered: those before it may wait for its words.
// Source: N. Thanawala, Hardware Acceleration of Polynomial Multiplication using Pipelined FFT, 2021, chapter 3;
// S. He, M. Torkelson, A new approach to pipeline FFT processor, 1996 (R2^2SDF)
module ntt_sdf
  import permutation_pkg::*;
  import ntt_sdf_pkg::*;
#(
    parameter int ARCHITECTURE = R2SDF,
    parameter int LOG_N = 6,
    parameter logic [63:0] Q = 64'd7681,
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter bit INVERSE = 0,
    parameter bit ASCENDING = INVERSE,
    parameter int FRONT = 0,
    parameter int FRONT_LOG_LANES = log_lanes(ARCHITECTURE),
    parameter int FRONT_DELAY = 0,
    parameter int FRONT_LOG_DEPTH = LOG_N - FRONT_LOG_LANES + 1,
    parameter logic [map_width(switches(FRONT_LOG_LANES))-1:0] FRONT_FIRST_MAP = '0,
    parameter logic [map_width(
address_bits(LOG_N - FRONT_LOG_LANES, FRONT_LOG_DEPTH, FRONT_DELAY) << FRONT_LOG_LANES
)-1:0] FRONT_ADDRESS_MAP = '0,
    parameter logic [map_width(switches(FRONT_LOG_LANES))-1:0] FRONT_SECOND_MAP = '0,
    parameter int FRONT_WRITE_BITS = 0,
    parameter string FRONT_WRITE_FILE = "",
    parameter int FRONT_READ_BITS = 0,
    parameter string FRONT_READ_FILE = "",
    parameter int BACK = 0,
    parameter int BACK_LOG_LANES = log_lanes(ARCHITECTURE),
    parameter int BACK_DELAY = 0,
    parameter int BACK_LOG_DEPTH = LOG_N - BACK_LOG_LANES + 1,
    parameter logic [map_width(switches(BACK_LOG_LANES))-1:0] BACK_FIRST_MAP = '0,
    parameter logic [map_width(
address_bits(LOG_N - BACK_LOG_LANES, BACK_LOG_DEPTH, BACK_DELAY) << BACK_LOG_LANES
)-1:0] BACK_ADDRESS_MAP = '0,
    parameter logic [map_width(switches(BACK_LOG_LANES))-1:0] BACK_SECOND_MAP = '0,
    parameter int BACK_WRITE_BITS = 0,
    parameter string BACK_WRITE_FILE = "",
    parameter int BACK_READ_BITS = 0,
    parameter string BACK_READ_FILE = "",
    parameter string TWIDDLES = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Lanes = 1 << log_lanes(ARCHITECTURE),
    localparam int Width = $clog2(Q),
    localparam int Lane = toroid_pkg::lane_width(Width)
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       in_tvalid_i,
    output logic                       in_tready_o,
    // The bits above a word are not read.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [Lanes-1:0][Lane-1:0] in_tdata_i,
    // verilator lint_on UNUSEDSIGNAL
    output logic                       out_tvalid_o,
    input  logic                       out_tready_i,
    output logic [Lanes-1:0][Lane-1:0] out_tdata_o,
    output logic                       out_tlast_o
);
  if (!is_legal(ARCHITECTURE, LOG_N, Q, SOLINAS, BARRETT)) begin : g_check
    $fatal(1, "ntt_sdf: ARCHITECTURE is 0 to 2, LOG_N 2 to 20; SOLINAS needs Q = 2^i - 2^j + 1 and no BARRETT");
  end
  if (ARCHITECTURE != MODR2 && (FRONT == 1 || BACK == 1)) begin : g_check_ends
    $fatal(1, "ntt_sdf: commutators at an end need two lanes");
  end

  localparam int LogLanes = log_lanes(ARCHITECTURE);
  localparam int LogBeats = LOG_N - LogLanes;
  // Of one lane, the memory of a network behind the stages is the register of canonical words.
  localparam bit Registered = LogLanes > 0 || BACK == 0;

  logic take, front_valid, transform_valid, back_valid;
  logic [Lanes-1:0][Width-1:0] in_words, front_words, transform_words, back_words, out_words;
  always_comb for (int n = 0; n < Lanes; n++) in_words[n] = in_tdata_i[n][Width-1:0];

  ntt_end #(
      .KIND       (FRONT),
      .ASCENDING  (1),
      .LOG_LANES  (LogLanes),
      .LOG_BEATS  (LogBeats),
      .WIDTH      (Width),
      .LOG_NETWORK(FRONT_LOG_LANES),
      .DELAY      (FRONT_DELAY),
      .LOG_DEPTH  (FRONT_LOG_DEPTH),
      .FIRST_MAP  (FRONT_FIRST_MAP),
      .ADDRESS_MAP(FRONT_ADDRESS_MAP),
      .SECOND_MAP (FRONT_SECOND_MAP),
      .WRITE_BITS (FRONT_WRITE_BITS),
      .WRITE_FILE (FRONT_WRITE_FILE),
      .READ_BITS  (FRONT_READ_BITS),
      .READ_FILE  (FRONT_READ_FILE)
  ) i_front (
      .clk_i,
      .rst_ni,
      .valid_i(take),
      .lanes_i(in_words),
      .valid_o(front_valid),
      .lanes_o(front_words)
  );
  sdf_transform #(
      .ARCHITECTURE(ARCHITECTURE),
      .LOG_N       (LOG_N),
      .Q           (Q),
      .SOLINAS     (SOLINAS),
      .BARRETT     (BARRETT),
      .INVERSE     (INVERSE),
      .ASCENDING   (ASCENDING),
      .REGISTERED  (Registered),
      .TWIDDLES    (TWIDDLES),
      .TILE_A      (TILE_A),
      .TILE_B      (TILE_B),
      .SHORT       (SHORT),
      .NARROW      (NARROW)
  ) i_transform (
      .clk_i,
      .rst_ni,
      .valid_i(front_valid),
      .words_i(front_words),
      .valid_o(transform_valid),
      .words_o(transform_words)
  );
  ntt_end #(
      .KIND       (BACK),
      .ASCENDING  (0),
      .LOG_LANES  (LogLanes),
      .LOG_BEATS  (LogBeats),
      .WIDTH      (Width),
      .LOG_NETWORK(BACK_LOG_LANES),
      .DELAY      (BACK_DELAY),
      .LOG_DEPTH  (BACK_LOG_DEPTH),
      .FIRST_MAP  (BACK_FIRST_MAP),
      .ADDRESS_MAP(BACK_ADDRESS_MAP),
      .SECOND_MAP (BACK_SECOND_MAP),
      .WRITE_BITS (BACK_WRITE_BITS),
      .WRITE_FILE (BACK_WRITE_FILE),
      .READ_BITS  (BACK_READ_BITS),
      .READ_FILE  (BACK_READ_FILE)
  ) i_back (
      .clk_i,
      .rst_ni,
      .valid_i(transform_valid),
      .lanes_i(transform_words),
      .valid_o(back_valid),
      .lanes_o(back_words)
  );

  logic [LogBeats-1:0] unused_beat, out_next;
  ntt_beats #(
      .LOG_BEATS(LogBeats)
  ) i_out_beats (
      .clk_i,
      .rst_ni,
      .valid_i(back_valid),
      .shift_i(1'b0),
      .beat_o (unused_beat),
      .next_o (out_next)
  );

  localparam int Pipeline = transform_latency(
      ARCHITECTURE, LOG_N, SOLINAS, BARRETT, Q, TILE_A, TILE_B, SHORT, Registered
  ) + ntt_streaming_pkg::end_latency(
      FRONT, FRONT_LOG_LANES, LogBeats, FRONT_DELAY, switch_map_t'(FRONT_FIRST_MAP), switch_map_t'(FRONT_SECOND_MAP)
  ) + ntt_streaming_pkg::end_latency(
      BACK, BACK_LOG_LANES, LogBeats, BACK_DELAY, switch_map_t'(BACK_FIRST_MAP), switch_map_t'(BACK_SECOND_MAP)
  );
  stream_ends #(
      .WIDTH(Lanes * Width),
      .DEPTH(Pipeline + 1)
  ) i_ends (
      .clk_i,
      .rst_ni,
      .in_tvalid_i,
      .in_tready_o,
      .take_o      (take),
      .pipe_valid_i(back_valid),
      .pipe_data_i (back_words),
      .pipe_last_i (out_next == '0),
      .out_tvalid_o,
      .out_tready_i,
      .out_tdata_o (out_words),
      .out_tlast_o
  );
  always_comb for (int n = 0; n < Lanes; n++) out_tdata_o[n] = Lane'(out_words[n]);
endmodule
