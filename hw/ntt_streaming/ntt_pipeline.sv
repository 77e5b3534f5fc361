// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_pipeline: the stages of a streaming transform of N words, LANES of them a beat, without the ends that bring other
// orders and handshakes to it: canonical words in and out.
//
// Stages are joined by wires, and by commutators where the words of a butterfly come in different beats
// (ntt_streaming_pkg, which says in which order words enter and leave).
//
// LOG_N           log2 of the words of the longest polynomial, 2 to 20
// LOG_LANES       log2 of the words of a beat, 1 to 10, at most LOG_N
// SHIFTS          a polynomial has 2^(LOG_N - shift) words, shift below SHIFTS
// MODULI, Q       the moduli, 64 bits each, number 0 lowest
// SOLINAS         1: Q = 2^i - 2^j + 1, j < i - 1, and MODULI = 1; 0: any odd Q (see ntt_stage)
// BARRETT         1, with SOLINAS = 0 and MODULI = 1: Barrett's reduction in place of Montgomery's
// INVERSE         direction
// ASCENDING       the order of the stages (see ntt_streaming_pkg)
// FEEDBACK        1: stages that pair words of different beats are ntt_feedback, of LANES butterflies; one degree, one
//                 modulus
// TWIDDLES        {TWIDDLES, "_", stage, ".hex"} are the files of the stages' twiddles, stage in two decimal digits
// TILE_A, TILE_B, SHORT, NARROW  see mul_tiles
// tag_i           {modulus, shift} of the beat's polynomial, the same in all of its beats, below MODULI and SHIFTS. It
//                 travels with the beats.
// Beats of a polynomial may have any distance; the last ones of it leave without others behind them.
// Latency: ntt_streaming_pkg::transform_latency where beats follow each other
module ntt_pipeline #(
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
    parameter string TWIDDLES = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Lanes = 1 << LOG_LANES,
    localparam int Width = ntt_streaming_pkg::modulus_bits(MODULI, 1024'(Q)),
    localparam int Tag = toroid_pkg::index_width(MODULI) + toroid_pkg::index_width(SHIFTS)
) (
    input  logic                        clk_i,
    input  logic                        rst_ni,
    input  logic                        valid_i,
    input  logic [  Tag-1:0]            tag_i,
    input  logic [Lanes-1:0][Width-1:0] words_i,
    output logic                        valid_o,
    output logic [  Tag-1:0]            tag_o,
    output logic [Lanes-1:0][Width-1:0] words_o
);
  import ntt_streaming_pkg::*;

  if (!is_legal_size(LOG_N, LOG_LANES, SHIFTS, MODULI)) begin : g_check_size
    $fatal(1, "ntt_pipeline: LOG_N is 2 to 20, LOG_LANES 1 to 10, SHIFTS 1 to LOG_N - LOG_LANES + 1, MODULI 1 to 16");
  end
  if (!is_legal_modulus(MODULI, 1024'(Q), SOLINAS)) begin : g_check_q
    $fatal(1, "ntt_pipeline: moduli are odd and at least 5, and for SOLINAS one Q = 2^i - 2^j + 1 with j < i - 1");
  end
  if (SHIFTS * MODULI > 1 && FEEDBACK) begin : g_check_feedback
    $fatal(1, "ntt_pipeline: FEEDBACK is for one degree and one modulus");
  end

  localparam int LogBeats = LOG_N - LOG_LANES;
  localparam int Word = Width + int'(SOLINAS);
  localparam int Half = Lanes / 2 * Word;

  // The words between stages: valid[n] and so on before stage n.
  logic valid[LOG_N+1];
  logic [Tag-1:0] tags[LOG_N+1];
  logic [Lanes-1:0][Word-1:0] lanes[LOG_N+1];
  assign valid[0] = valid_i;
  assign tags[0]  = tag_i;
  always_comb for (int n = 0; n < Lanes; n++) lanes[0][n] = Word'(words_i[n]);

  for (genvar n = 0; n < LOG_N; n++) begin : g_stage
    localparam string File = TWIDDLES == "" ? "" :
        {TWIDDLES, "_", string'(8'(48 + n / 10)), string'(8'(48 + n % 10)), ".hex"};
    if (FEEDBACK && feedback_bit(LOG_N, LOG_LANES, ASCENDING, n) >= 0) begin : g_feedback
      ntt_feedback #(
          .SOLINAS  (SOLINAS),
          .BARRETT  (BARRETT),
          .Q        (Q[63:0]),
          .WIDTH    (Width),
          .LOG_N    (LOG_N),
          .LOG_LANES(LOG_LANES),
          .ASCENDING(ASCENDING),
          .INVERSE  (INVERSE),
          .LOG_STEPS(feedback_bit(LOG_N, LOG_LANES, ASCENDING, n)),
          .FILE     (File),
          .TILE_A   (TILE_A),
          .TILE_B   (TILE_B),
          .SHORT    (SHORT),
          .NARROW   (NARROW)
      ) i_feedback (
          .clk_i,
          .rst_ni,
          .valid_i(valid[n]),
          .lanes_i(lanes[n]),
          .valid_o(valid[n+1]),
          .lanes_o(lanes[n+1])
      );
      assign tags[n+1] = tags[n];
    end else begin : g_pairs
      localparam int Exchange = FEEDBACK ? -1 : commutator_bit(LOG_N, LOG_LANES, ASCENDING, n);
      logic valid_behind;
      logic [Tag-1:0] tag_behind;
      logic [Lanes-1:0][Word-1:0] lanes_behind;
      ntt_stage #(
          .SOLINAS  (SOLINAS),
          .BARRETT  (BARRETT),
          .MODULI   (MODULI),
          .Q        (Q),
          .WIDTH    (Width),
          .LOG_N    (LOG_N),
          .LOG_LANES(LOG_LANES),
          .ASCENDING(ASCENDING),
          .INVERSE  (INVERSE),
          .STAGE    (n),
          .SHIFTS   (SHIFTS),
          .FILE     (File),
          .TILE_A   (TILE_A),
          .TILE_B   (TILE_B),
          .SHORT    (SHORT),
          .NARROW   (NARROW)
      ) i_stage (
          .clk_i,
          .rst_ni,
          .valid_i(valid[n]),
          .tag_i  (tags[n]),
          .lanes_i(lanes[n]),
          .valid_o(valid_behind),
          .tag_o  (tag_behind),
          .lanes_o(lanes_behind)
      );
      if (Exchange >= 0) begin : g_commutator
        ntt_commutator #(
            .WIDTH    (Half),
            .LOG_STEPS(Exchange),
            .LOG_BEATS(LogBeats),
            .SHIFTS   (SHIFTS),
            .TAG      (Tag)
        ) i_commutator (
            .clk_i,
            .rst_ni,
            .valid_i(valid_behind),
            .tag_i  (tag_behind),
            .lower_i(lanes_behind[Lanes/2-1:0]),
            .upper_i(lanes_behind[Lanes-1:Lanes/2]),
            .valid_o(valid[n+1]),
            .tag_o  (tags[n+1]),
            .lower_o(lanes[n+1][Lanes/2-1:0]),
            .upper_o(lanes[n+1][Lanes-1:Lanes/2])
        );
      end else begin : g_wires
        assign valid[n+1] = valid_behind;
        assign tags[n+1]  = tag_behind;
        assign lanes[n+1] = lanes_behind;
      end
    end
  end

  if (SOLINAS) begin : g_canonical
    logic [Lanes-1:0][Width-1:0] canonical_d;
    for (genvar n = 0; n < Lanes; n++) begin : g_lane
      mod_canonical #(
          .WIDTH    (Width),
          .WIDTH_X  (Word),
          .MULTIPLES(toroid_pkg::solinas_j(Q[63:0]) == Width - 2 ? 2 : 1)
      ) i_canonical (
          .q_i(Q[Width-1:0]),
          .x_i(lanes[LOG_N][n]),
          .r_o(canonical_d[n])
      );
    end
    always_ff @(posedge clk_i) begin
      words_o <= canonical_d;
      tag_o   <= tags[LOG_N];
    end
    valid_delay #(
        .CYCLES(1)
    ) i_valid (
        .clk_i,
        .rst_ni,
        .valid_i(valid[LOG_N]),
        .valid_o(valid_o)
    );
  end else begin : g_canonical
    assign words_o = lanes[LOG_N];
    assign tag_o   = tags[LOG_N];
    assign valid_o = valid[LOG_N];
  end
endmodule
