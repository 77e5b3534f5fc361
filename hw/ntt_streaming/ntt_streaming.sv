// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_streaming: NTT or INTT of N words, LANES of them a cycle, fully unrolled: LOG_N stages of LANES / 2 butterflies
// each.
//
// Transforms follow each other every N / LANES cycles without a bubble. The stages are an ntt_pipeline; a network or a
// chain of commutators at either end brings other orders to those that they work in.
//
// LOG_N           log2 of the words of the longest polynomial, 2 to 20
// LOG_LANES       log2 of the words of a beat, 1 to 10, at most LOG_N
// SHIFTS          a polynomial has 2^(LOG_N - shift) words, shift below SHIFTS: its in_tuser says which
// MODULI, Q       the moduli, 64 bits each, number 0 lowest; in_tuser says which
// SOLINAS, BARRETT  how products are reduced (see ntt_pipeline)
// INVERSE         direction
// ASCENDING       the order of the stages (see ntt_streaming_pkg)
// FEEDBACK        1: stages that pair words of different beats are ntt_feedback, of LANES butterflies, and both ends
//                 are in the order of the index; one degree, one modulus
// FRONT, BACK     what stands before and behind them: 0 nothing; 1 a commutator for each bit of the beat, between the
//                 order of the index and halves side by side; 2 a permutation network
// FRONT_LOG_LANES, and so on, and those of BACK: the parameters of permutation_network. A lane of the network is
//                 2^(LOG_LANES - FRONT_LOG_LANES) lanes of the transform.
// TWIDDLES        {TWIDDLES, "_", stage, ".hex"} are the files of the stages' twiddles, stage in two decimal digits
// TILE_A, TILE_B, SHORT, NARROW  see mul_tiles
// in_tuser_i      {modulus, shift} of a polynomial, in its first beat; out_tuser_o: in all its beats
// A polynomial that has begun must be delivered: those before it may wait for its beats.
// Source: T. Ye et al., FPGA Acceleration of Number Theoretic Transform, 2021, section 4
module ntt_streaming
  import permutation_pkg::*;
#(
    parameter int LOG_N = 9,
    parameter int LOG_LANES = 5,
    parameter int SHIFTS = 1,
    parameter int MODULI = 1,
    parameter logic [64*MODULI-1:0] Q = 64'd268369921,
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter bit INVERSE = 0,
    parameter bit ASCENDING = 0,
    parameter bit FEEDBACK = 0,
    parameter int FRONT = 0,
    parameter int FRONT_LOG_LANES = 1,
    parameter int FRONT_DELAY = 0,
    parameter int FRONT_LOG_DEPTH = LOG_N - LOG_LANES + 1,
    parameter logic [map_width(switches(FRONT_LOG_LANES))-1:0] FRONT_FIRST_MAP = '0,
    parameter logic [map_width(
address_bits(LOG_N - LOG_LANES, FRONT_LOG_DEPTH, FRONT_DELAY) << FRONT_LOG_LANES
)-1:0] FRONT_ADDRESS_MAP = '0,
    parameter logic [map_width(switches(FRONT_LOG_LANES))-1:0] FRONT_SECOND_MAP = '0,
    parameter int FRONT_WRITE_BITS = 0,
    parameter string FRONT_WRITE_FILE = "",
    parameter int FRONT_READ_BITS = 0,
    parameter string FRONT_READ_FILE = "",
    parameter int BACK = 0,
    parameter int BACK_LOG_LANES = 1,
    parameter int BACK_DELAY = 0,
    parameter int BACK_LOG_DEPTH = LOG_N - LOG_LANES + 1,
    parameter logic [map_width(switches(BACK_LOG_LANES))-1:0] BACK_FIRST_MAP = '0,
    parameter logic [map_width(
address_bits(LOG_N - LOG_LANES, BACK_LOG_DEPTH, BACK_DELAY) << BACK_LOG_LANES
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
    localparam int Lanes = 1 << LOG_LANES,
    localparam int Width = ntt_streaming_pkg::modulus_bits(MODULI, 1024'(Q)),
    localparam int Lane = toroid_pkg::lane_width(Width),
    localparam int ShiftWidth = toroid_pkg::index_width(SHIFTS),
    localparam int Tag = toroid_pkg::index_width(MODULI) + ShiftWidth
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       in_tvalid_i,
    output logic                       in_tready_o,
    input  logic [Lanes-1:0][Lane-1:0] in_tdata_i,
    input  logic [  Tag-1:0]           in_tuser_i,
    output logic                       out_tvalid_o,
    input  logic                       out_tready_i,
    output logic [Lanes-1:0][Lane-1:0] out_tdata_o,
    output logic [  Tag-1:0]           out_tuser_o,
    output logic                       out_tlast_o
);
  import ntt_streaming_pkg::*;

  if (FRONT < 0 || FRONT > 2 || BACK < 0 || BACK > 2) begin : g_check_ends
    $fatal(1, "ntt_streaming: FRONT and BACK are 0 to 2");
  end
  if (FRONT_LOG_LANES > LOG_LANES || BACK_LOG_LANES > LOG_LANES) begin : g_check_networks
    $fatal(1, "ntt_streaming: the networks of FRONT and BACK have 2^LOG_LANES lanes or fewer");
  end
  if (!is_legal_size(LOG_N, LOG_LANES, SHIFTS, MODULI)) begin : g_check_size
    $fatal(1, "ntt_streaming: LOG_N is 2 to 20, LOG_LANES 1 to 10, SHIFTS 1 to LOG_N - LOG_LANES + 1, MODULI 1 to 16");
  end
  if (!is_legal_modulus(MODULI, 1024'(Q), SOLINAS)) begin : g_check_q
    $fatal(1, "ntt_streaming: moduli are odd and at least 5, and for SOLINAS one Q = 2^i - 2^j + 1 with j < i - 1");
  end
  if (SHIFTS * MODULI > 1 && (FRONT != 0 || BACK != 0 || FEEDBACK)) begin : g_check_orders
    $fatal(1, "ntt_streaming: FEEDBACK, FRONT and BACK are for one degree and one modulus");
  end

  localparam int LogBeats = LOG_N - LOG_LANES;
  localparam int BeatWidth = LogBeats > 0 ? LogBeats : 1;

  // The tag of a polynomial stays; one that does not exist is 0.
  logic take, first;
  logic [Tag-1:0] user, tag, tag_q;
  assign user[ShiftWidth-1:0] = SHIFTS > 1 && int'(in_tuser_i[ShiftWidth-1:0]) < SHIFTS ?
      in_tuser_i[ShiftWidth-1:0] : '0;
  assign user[Tag-1:ShiftWidth] = MODULI > 1 && int'(in_tuser_i[Tag-1:ShiftWidth]) < MODULI ?
      in_tuser_i[Tag-1:ShiftWidth] : '0;
  assign tag = first ? user : tag_q;
  always_ff @(posedge clk_i) tag_q <= tag;
  logic [BeatWidth-1:0] in_beat, unused_next;
  ntt_beats #(
      .LOG_BEATS(LogBeats),
      .SHIFTS   (SHIFTS)
  ) i_in_beats (
      .clk_i,
      .rst_ni,
      .valid_i(take),
      .shift_i(tag[ShiftWidth-1:0]),
      .beat_o (in_beat),
      .next_o (unused_next)
  );
  assign first = in_beat == '0;

  logic [Lanes-1:0][Width-1:0] in_words;
  always_comb for (int n = 0; n < Lanes; n++) in_words[n] = in_tdata_i[n][Width-1:0];

  // Only a core without tags has a front.
  logic front_valid;
  logic [Lanes-1:0][Width-1:0] front_words;
  ntt_end #(
      .KIND       (FRONT),
      .ASCENDING  (1),
      .LOG_LANES  (LOG_LANES),
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

  logic canonical_valid;
  logic [Tag-1:0] canonical_tag;
  logic [Lanes-1:0][Width-1:0] canonical;
  ntt_pipeline #(
      .LOG_N    (LOG_N),
      .LOG_LANES(LOG_LANES),
      .SHIFTS   (SHIFTS),
      .MODULI   (MODULI),
      .Q        (Q),
      .SOLINAS  (SOLINAS),
      .BARRETT  (BARRETT),
      .INVERSE  (INVERSE),
      .ASCENDING(ASCENDING),
      .FEEDBACK (FEEDBACK),
      .TWIDDLES (TWIDDLES),
      .TILE_A   (TILE_A),
      .TILE_B   (TILE_B),
      .SHORT    (SHORT),
      .NARROW   (NARROW)
  ) i_pipeline (
      .clk_i,
      .rst_ni,
      .valid_i(front_valid),
      .tag_i  (tag),
      .words_i(front_words),
      .valid_o(canonical_valid),
      .tag_o  (canonical_tag),
      .words_o(canonical)
  );

  logic back_valid;
  logic [Lanes-1:0][Width-1:0] back_words;
  ntt_end #(
      .KIND       (BACK),
      .ASCENDING  (0),
      .LOG_LANES  (LOG_LANES),
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
      .valid_i(canonical_valid),
      .lanes_i(canonical),
      .valid_o(back_valid),
      .lanes_o(back_words)
  );

  logic [BeatWidth-1:0] unused_beat, out_next;
  ntt_beats #(
      .LOG_BEATS(LogBeats),
      .SHIFTS   (SHIFTS)
  ) i_out_beats (
      .clk_i,
      .rst_ni,
      .valid_i(back_valid),
      .shift_i(canonical_tag[ShiftWidth-1:0]),
      .beat_o (unused_beat),
      .next_o (out_next)
  );

  localparam int Pipeline = transform_latency(
      LOG_N, LOG_LANES, SOLINAS, MODULI, 1024'(Q), SHIFTS, TILE_A, TILE_B, SHORT, BARRETT
  ) + end_latency(
      FRONT, FRONT_LOG_LANES, LogBeats, FRONT_DELAY, switch_map_t'(FRONT_FIRST_MAP), switch_map_t'(FRONT_SECOND_MAP)
  ) + end_latency(
      BACK, BACK_LOG_LANES, LogBeats, BACK_DELAY, switch_map_t'(BACK_FIRST_MAP), switch_map_t'(BACK_SECOND_MAP)
  );
  logic [Lanes-1:0][Width-1:0] out_words;
  stream_ends #(
      .WIDTH(Tag + Lanes * Width),
      .DEPTH(Pipeline + 1)
  ) i_ends (
      .clk_i,
      .rst_ni,
      .in_tvalid_i,
      .in_tready_o,
      .take_o      (take),
      .pipe_valid_i(back_valid),
      .pipe_data_i ({canonical_tag, back_words}),
      .pipe_last_i (out_next == '0),
      .out_tvalid_o,
      .out_tready_i,
      .out_tdata_o ({out_tuser_o, out_words}),
      .out_tlast_o
  );
  always_comb for (int n = 0; n < Lanes; n++) out_tdata_o[n] = Lane'(out_words[n]);
endmodule
