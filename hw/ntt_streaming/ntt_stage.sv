// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_stage: one stage of a streaming transform: LANES / 2 butterflies with their twiddles.
//
// SOLINAS         1: q = 2^i - 2^j + 1, butterfly_solinas, words in [0, 2^(i + 1)); 0: butterfly_montgomery, canonical
//                 words
// BARRETT         1, with SOLINAS = 0 and MODULI = 1: Barrett's reduction in place of Montgomery's
// MODULI          how many moduli there are; a polynomial has one of them. 1 with SOLINAS
// Q               the moduli, 64 bits each, number 0 lowest
// WIDTH           bits of the largest modulus
// LOG_N, LOG_LANES, ASCENDING, INVERSE, STAGE  see ntt_streaming_pkg
// SHIFTS          a polynomial has 2^(LOG_N - shift) words, shift below SHIFTS; shorter ones pass the stages that they
//                 do not need as they are
// FILE            twiddles, a line a row of ntt_streaming_pkg, its word 0 lowest: for each modulus and shift, one after
//                 the other, as many rows as the longest polynomial has
// TILE_A, TILE_B, SHORT, NARROW  see mul_tiles
// tag_i           {modulus, shift} of the beat's polynomial
// Latency: ntt_streaming_pkg::stage_latency; a beat per cycle, with any bubbles
module ntt_stage #(
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter int MODULI = 1,
    parameter logic [64*MODULI-1:0] Q = 64'd268369921,
    parameter int WIDTH = 28,
    parameter int LOG_N = 4,
    parameter int LOG_LANES = 2,
    parameter bit ASCENDING = 0,
    parameter bit INVERSE = 0,
    parameter int STAGE = 0,
    parameter int SHIFTS = 1,
    parameter string FILE = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Word = WIDTH + int'(SOLINAS),
    localparam int Lanes = 1 << LOG_LANES,
    localparam int ShiftWidth = toroid_pkg::index_width(SHIFTS),
    localparam int Tag = toroid_pkg::index_width(MODULI) + ShiftWidth
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       valid_i,
    input  logic [  Tag-1:0]           tag_i,
    input  logic [Lanes-1:0][Word-1:0] lanes_i,
    output logic                       valid_o,
    output logic [  Tag-1:0]           tag_o,
    output logic [Lanes-1:0][Word-1:0] lanes_o
);
  import ntt_streaming_pkg::*;

  if ((SOLINAS || BARRETT) && MODULI != 1 || SOLINAS && BARRETT) begin : g_check
    $fatal(1, "ntt_stage: SOLINAS and BARRETT need MODULI = 1, and exclude each other");
  end

  localparam int LogBeats = LOG_N - LOG_LANES;
  localparam int BeatWidth = LogBeats > 0 ? LogBeats : 1;
  localparam int Sections = MODULI * SHIFTS;
  localparam int Pair = pair_bit(LOG_N, LOG_LANES, ASCENDING, STAGE);
  localparam int RowBits = twiddle_bits(LOG_N, LOG_LANES, ASCENDING, INVERSE, STAGE);
  localparam int RowShift = twiddle_shift(LOG_N, LOG_LANES, ASCENDING, INVERSE, STAGE);
  localparam int Groups = 1 << twiddle_group_bits(LOG_N, LOG_LANES, ASCENDING, INVERSE, STAGE);
  localparam int Rows = Sections << RowBits;
  localparam int AddressWidth = toroid_pkg::index_width(Rows);
  // Whether there are polynomials that do not need this stage.
  localparam bit Bypass = ASCENDING ? STAGE > LOG_N - SHIFTS : STAGE < SHIFTS - 1;
  localparam int Latency = butterfly_latency(SOLINAS, MODULI, 1024'(Q), TILE_A, TILE_B, SHORT, BARRETT);
  // The row of a beat is read in the cycle before it, which is possible only if it is known before the beat has come.
  localparam bit Early = Sections > 1;

  logic [Tag-1:0] tag;
  logic [Lanes-1:0][Word-1:0] lanes;
  delay #(
      .WIDTH (Tag + Lanes * Word),
      .CYCLES(int'(Early))
  ) i_early (
      .clk_i,
      .d_i({tag_i, lanes_i}),
      .q_o({tag, lanes})
  );

  logic [AddressWidth-1:0] address;
  logic [Groups-1:0][WIDTH-1:0] row;
  if (Rows == 1) begin : g_constant
    assign address = '0;
  end else begin : g_rows
    logic [BeatWidth-1:0] here, next;
    ntt_beats #(
        .LOG_BEATS(LogBeats),
        .SHIFTS   (SHIFTS)
    ) i_beats (
        .clk_i,
        .rst_ni,
        .valid_i,
        .shift_i(tag_i[ShiftWidth-1:0]),
        .beat_o (here),
        .next_o (next)
    );
    assign address = AddressWidth'((int'(tag_i[Tag-1:ShiftWidth]) * SHIFTS + int'(tag_i[ShiftWidth-1:0])) << RowBits) |
        AddressWidth'(BeatWidth'((Early ? here : next) >> RowShift) & BeatWidth'((1 << RowBits) - 1));
  end
  rom #(
      .WIDTH          (Groups * WIDTH),
      .DEPTH          (Rows),
      .FILE           (FILE),
      .OUTPUT_REGISTER(0)
  ) i_twiddles (
      .clk_i,
      .addr_i(address),
      .data_o(row)
  );

  logic bypass;
  assign bypass = Bypass &&
      (ASCENDING ? STAGE >= LOG_N - int'(tag[ShiftWidth-1:0]) : STAGE < int'(tag[ShiftWidth-1:0]));
  for (genvar n = 0; n < Lanes / 2; n++) begin : g_butterfly
    localparam int A = n >> Pair << (Pair + 1) | n & ((1 << Pair) - 1);
    localparam int B = A | 1 << Pair;
    localparam int Group = twiddle_group(LOG_N, LOG_LANES, ASCENDING, INVERSE, STAGE, n);
    if (SOLINAS) begin : g_solinas
      butterfly_solinas #(
          .I      (WIDTH),
          .J      (toroid_pkg::solinas_j(Q[63:0])),
          .INVERSE(INVERSE),
          .BYPASS (Bypass),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT),
          .NARROW (NARROW)
      ) i_butterfly (
          .clk_i,
          .bypass_i(bypass),
          .a_i(lanes[A]),
          .b_i(lanes[B]),
          .w_i(row[Group]),
          .a_o(lanes_o[A]),
          .b_o(lanes_o[B])
      );
    end else begin : g_montgomery
      logic [WIDTH-1:0] q;
      always_comb begin
        q = Q[WIDTH-1:0];
        for (int m = 1; m < MODULI; m++) if (int'(tag[Tag-1:ShiftWidth]) == m) q = Q[64*m+:WIDTH];
      end
      butterfly_montgomery #(
          .WIDTH  (WIDTH),
          .WORD   (word_bits(MODULI, 1024'(Q), TILE_B)),
          .BARRETT(BARRETT ? Q[WIDTH-1:0] : '0),
          .INVERSE(INVERSE),
          .BYPASS (Bypass),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT)
      ) i_butterfly (
          .clk_i,
          .q_i(q),
          .bypass_i(bypass),
          .a_i(lanes[A]),
          .b_i(lanes[B]),
          .w_i(row[Group]),
          .a_o(lanes_o[A]),
          .b_o(lanes_o[B])
      );
    end
  end

  valid_delay #(
      .CYCLES(Latency + int'(Early))
  ) i_valid (
      .clk_i,
      .rst_ni,
      .valid_i,
      .valid_o
  );
  delay #(
      .WIDTH (Tag),
      .CYCLES(Latency)
  ) i_tag (
      .clk_i,
      .d_i(tag),
      .q_o(tag_o)
  );
endmodule
