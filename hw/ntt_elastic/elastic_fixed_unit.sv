// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_fixed_unit: a transform over the lanes whose twiddles stay the same for all beats of a transform: the first
// unit and the third.
//
// INVERSE = 0: Cooley-Tukey, lanes in order of their index to bits of the index reversed, stage s with 2^s words, one a
// group of lanes. INVERSE = 1: Gentleman-Sande, the other way round, stage t with 2^(LOG_LANES - 1 - t) words. With
// merged powers of psi either is half of a negacyclic transform.
//
// LOG_LANES  log2 of the lanes
// INVERSE    the kind of its butterflies
// FIRST      the constant that is its first word
// LOG_BEATS  bits of the number of a beat
// WORD, TILE_A, TILE_B  see montgomery_column
// valid_i, beat_i, word_i  a beat and its constant, a cycle before its lanes
// q_i        with the lanes
// Latency: ntt_elastic_pkg::unit_latency
module elastic_fixed_unit
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    parameter bit INVERSE = 0,
    parameter int FIRST = 2,
    parameter int LOG_BEATS = 8,
    parameter int WORD = 10,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    localparam int Lanes = 1 << LOG_LANES
) (
    input  logic                            clk_i,
    input  logic                            rst_ni,
    input  logic                            valid_i,
    input  logic [LOG_BEATS-1:0]            beat_i,
    input  logic [    WIDTH-1:0]            word_i,
    input  logic [    WIDTH-1:0]            q_i,
    input  logic [    Lanes-1:0][WIDTH-1:0] lanes_i,
    output logic [    Lanes-1:0][WIDTH-1:0] lanes_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check
    $fatal(1, "elastic_fixed_unit: LOG_LANES must be 2 to 5");
  end

  localparam int StageLatency = toroid_pkg::montgomery_wide_latency(WIDTH, WORD, TILE_A, TILE_B) + 1;

  logic valid[LOG_LANES];
  logic [LOG_BEATS-1:0] beat[LOG_LANES];
  logic [WIDTH-1:0] word[LOG_LANES];
  logic [WIDTH-1:0] q[LOG_LANES+1];
  logic [Lanes-1:0][WIDTH-1:0] lanes[LOG_LANES+1];
  assign q[0] = q_i;
  assign lanes[0] = lanes_i;
  assign lanes_o = lanes[LOG_LANES];
  logic [WIDTH-1:0] unused_q;
  assign unused_q = q[LOG_LANES];

  for (genvar s = 0; s < LOG_LANES; s++) begin : g_stage
    localparam int Count = INVERSE ? 1 << (LOG_LANES - 1 - s) : 1 << s;
    localparam int Pair = INVERSE ? s : LOG_LANES - 1 - s;
    localparam int First = FIRST + (INVERSE ? Lanes - (Lanes >> s) : Count - 1);
    // Words of INVERSE are needed with the multipliers, a cycle later.
    localparam int Cycles = s == 0 ? int'(INVERSE) : StageLatency;
    if (s == 0) begin : g_first
      valid_delay #(
          .CYCLES(Cycles)
      ) i_valid (
          .clk_i,
          .rst_ni,
          .valid_i,
          .valid_o(valid[s])
      );
      delay #(
          .WIDTH (LOG_BEATS + WIDTH),
          .CYCLES(Cycles)
      ) i_word (
          .clk_i,
          .d_i({beat_i, word_i}),
          .q_o({beat[s], word[s]})
      );
    end else begin : g_next
      valid_delay #(
          .CYCLES(Cycles)
      ) i_valid (
          .clk_i,
          .rst_ni,
          .valid_i(valid[s-1]),
          .valid_o(valid[s])
      );
      delay #(
          .WIDTH (LOG_BEATS + WIDTH),
          .CYCLES(Cycles)
      ) i_word (
          .clk_i,
          .d_i({beat[s-1], word[s-1]}),
          .q_o({beat[s], word[s]})
      );
    end

    logic [Count-1:0][WIDTH-1:0] words;
    elastic_words #(
        .COUNT    (Count),
        .FIRST    (First),
        .LOG_BEATS(LOG_BEATS)
    ) i_words (
        .clk_i,
        .valid_i(valid[s]),
        .beat_i (beat[s]),
        .word_i (word[s]),
        .words_o(words)
    );
    // Butterfly n is in group n >> Pair.
    logic [Lanes/2-1:0][WIDTH-1:0] w;
    for (genvar n = 0; n < Lanes / 2; n++) begin : g_w
      assign w[n] = words[n>>Pair];
    end
    elastic_stage #(
        .LOG_LANES(LOG_LANES),
        .PAIR     (Pair),
        .INVERSE  (INVERSE),
        .WORD     (WORD),
        .TILE_A   (TILE_A),
        .TILE_B   (TILE_B)
    ) i_stage (
        .clk_i,
        .q_i     (q[s]),
        .bypass_i(1'b0),
        .lanes_i (lanes[s]),
        .w_i     (w),
        .q_o     (q[s+1]),
        .lanes_o (lanes[s+1])
    );
  end
endmodule
