// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_half: for odd q, 2 h = x or 2 h = x + q, and for x < b, h < (b + q) / 2.
//
// ODD  0 lets q be even, in self-tests only
module mod_half_proof #(
    parameter int WIDTH = 64,
    parameter bit ODD   = 1
) (
    input logic [WIDTH-1:0] q_i,
    input logic [WIDTH-1:0] x_i,
    input logic [WIDTH-1:0] b_i
);
  localparam int W = WIDTH + 2;
  logic [WIDTH-1:0] h;
  mod_half #(
      .WIDTH(WIDTH)
  ) i_half (
      .q_i,
      .x_i,
      .h_o(h)
  );
  always_comb begin
    assume (q_i[0] || !ODD);
    assert (W'(h) << 1 == W'(x_i) || W'(h) << 1 == W'(x_i) + W'(q_i));
    if (x_i < b_i) assert (W'(h) << 1 < W'(b_i) + W'(q_i));
  end
endmodule
