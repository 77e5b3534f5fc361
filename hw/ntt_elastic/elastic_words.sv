// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_words: constants of a transform, which come one a beat with the transform before.
//
// Word n is the constant of beat FIRST + n. They are shown from the cycle behind beat 0 of their transform on.
//
// COUNT      >= 1
// FIRST      >= 0
// LOG_BEATS  bits of the number of a beat
// Latency: 1, from beat 0
module elastic_words #(
    parameter int COUNT = 1,
    parameter int FIRST = 0,
    parameter int LOG_BEATS = 8
) (
    input  logic                                                          clk_i,
    input  logic                                                          valid_i,
    input  logic [             LOG_BEATS-1:0]                             beat_i,
    input  logic [ntt_elastic_pkg::WIDTH-1:0]                             word_i,
    output logic [                 COUNT-1:0][ntt_elastic_pkg::WIDTH-1:0] words_o
);
  if (COUNT < 1 || FIRST < 0) begin : g_check
    $fatal(1, "elastic_words: COUNT >= 1 and FIRST >= 0 are needed");
  end

  logic [COUNT-1:0][ntt_elastic_pkg::WIDTH-1:0] next_q;
  for (genvar n = 0; n < COUNT; n++) begin : g_word
    always_ff @(posedge clk_i) if (valid_i && beat_i == LOG_BEATS'(FIRST + n)) next_q[n] <= word_i;
  end
  always_ff @(posedge clk_i) if (valid_i && beat_i == '0) words_o <= next_q;
endmodule
