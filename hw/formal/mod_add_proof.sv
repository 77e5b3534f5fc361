// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_add and mod_sub: for a and b in [0, Q), the result is in [0, Q) and differs from the sum or difference by 0 or Q.
//
// Q_USED  the modulus that the units are given; other than Q in self-tests only
module mod_add_proof #(
    parameter int WIDTH = 64,
    parameter logic [63:0] Q = toroid_pkg::GOLDILOCKS,
    parameter logic [63:0] Q_USED = Q
) (
    input logic [WIDTH-1:0] a_i,
    input logic [WIDTH-1:0] b_i
);
  localparam int W = WIDTH + 2;
  logic [WIDTH-1:0] s, d;
  mod_add #(
      .WIDTH(WIDTH)
  ) i_add (
      .q_i(Q_USED[WIDTH-1:0]),
      .a_i,
      .b_i,
      .s_o(s)
  );
  mod_sub #(
      .WIDTH(WIDTH)
  ) i_sub (
      .q_i(Q_USED[WIDTH-1:0]),
      .a_i,
      .b_i,
      .d_o(d)
  );
  always_comb begin
    assume (a_i < Q[WIDTH-1:0]);
    assume (b_i < Q[WIDTH-1:0]);
    assert (s < Q[WIDTH-1:0]);
    assert (W'(s) == W'(a_i) + W'(b_i) || W'(s) + W'(Q) == W'(a_i) + W'(b_i));
    assert (d < Q[WIDTH-1:0]);
    assert (W'(d) + W'(b_i) == W'(a_i) || W'(d) + W'(b_i) == W'(a_i) + W'(Q));
  end
endmodule
