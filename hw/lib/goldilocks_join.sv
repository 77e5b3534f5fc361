// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_join: t = f * middle - (high - 1) - f^2 * low modulo q = 2^64 - 2^32 + 1, where f = 2^32 (see goldilocks_karatsuba).
//
// With f^2 = f - 1 and f^3 = -1, words of 32 bits z0, z1 of low, s0, s1 of high and m0, m1 of middle, and its two upper bits m2,
//   t = (z0 + z1 - s0 - m1 - m2 + 1) + f (m0 + m1 - s1 - z0)
// whose terms share z0 - m1. Differences add complements; the ones that then are missing, and the one that high has too many,
// are carries where they take m2 away, so that neither takes a sum.
//
// low_i     product of two words of 32 bits
// high_i    another, plus one
// middle_i  below 2^66
// t_o       -2 q < t < 2 q
// Latency: 3
module goldilocks_join (
    input  logic               clk_i,
    input  logic        [63:0] low_i,
    input  logic        [63:0] high_i,
    input  logic        [65:0] middle_i,
    output logic signed [65:0] t_o
);
  // Sums of signed words with a carry, which enters by a bit below.
  logic [32:0] upper, shared, other, upper_q, shared_q, other_q;
  logic [33:0] ones, halves, ones_q, halves_q;
  logic none, none_q, even_q;
  logic unused_upper, unused_shared, unused_ones, unused_halves;
  assign none = !middle_i[65];
  assign {upper, unused_upper} = {1'b0, low_i[63:32], 1'b1} + {1'b1, ~high_i[31:0], none};
  assign {shared, unused_shared} = {1'b0, low_i[31:0], 1'b1} + {1'b1, ~middle_i[63:32], none};
  assign other = 33'(middle_i[31:0]) - 33'(high_i[63:32]);
  assign {ones, unused_ones} = {upper_q[32], upper_q, 1'b1} + {shared_q[32], shared_q, even_q};
  assign {halves, unused_halves} = {other_q[32], other_q, 1'b1} + {~shared_q[32], ~shared_q, none_q};
  always_ff @(posedge clk_i) begin
    none_q <= none;
    even_q <= !middle_i[64];
    upper_q <= upper;
    shared_q <= shared;
    other_q <= other;
    ones_q <= ones;
    halves_q <= halves;
    t_o <= {halves_q + {{32{ones_q[33]}}, ones_q[33:32]}, ones_q[31:0]};
  end
endmodule
