// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_join: for products low and high - 1 of words of 32 bits and middle < 2^66, with the words z0, z1, s0, s1, m0, m1 of
// low, high - 1 and middle and the upper bits m2, t = z0 + z1 - s0 - m1 - m2 + f (m0 + m1 - s1 - z0), f = 2^32, and -2 q < t < 2 q.
//
// So f * middle - (high - 1) - f^2 * low - t = (m1 - z0) * q + (m2 - z1) * (f^3 + 1), and f^3 + 1 = q * (f + 1).
//
// ADDEND_USED  what high has too many; other than 1 in self-tests only
module goldilocks_join_proof #(
    parameter logic [1:0] UPPER = 0,
    parameter int ADDEND_USED = 1
) (
    input logic clk_i,
    input logic [63:0] low_i,
    input logic [63:0] high_i,
    input logic [63:0] lower_i
);
  localparam logic signed [69:0] Q = 70'(toroid_pkg::GOLDILOCKS);
  localparam logic [63:0] Largest = 64'hFFFF_FFFE_0000_0001;
  logic [65:0] middle_i;
  assign middle_i = {UPPER, lower_i};
  logic signed [65:0] t;
  goldilocks_join i_join (
      .clk_i,
      .low_i,
      .high_i(high_i + 64'(ADDEND_USED)),
      .middle_i,
      .t_o(t)
  );
  // Grouped as the unit adds, which helps the solvers.
  logic signed [36:0] shared, ones, halves;
  assign shared = 37'(low_i[31:0]) - 37'(middle_i[63:32]);
  assign ones   = (37'(low_i[63:32]) - 37'(high_i[31:0]) + shared) - 37'(middle_i[65:64]);
  assign halves = (37'(middle_i[31:0]) - 37'(high_i[63:32])) - shared;
  always_comb begin
    assume (low_i <= Largest);
    assume (high_i <= Largest);
    assert (t[31:0] == ones[31:0]);
    assert (37'(t >>> 32) == halves + (ones >>> 32));
    assert (70'(t) < 2 * Q);
    assert (70'(t) > -2 * Q);
  end
endmodule
