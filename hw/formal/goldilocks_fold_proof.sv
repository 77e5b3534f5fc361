// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_fold: for x = h1 * 2^96 + h0 * 2^64 + l, where h1 includes the carry, t + h1 + h0 = l + h0 * 2^32 and -2^(WIDTH - 96) < t < 2 q.
//
// So x - t = h1 * (2^96 + 1) + h0 * q, and 2^96 + 1 = q * (2^32 + 1).
module goldilocks_fold_proof #(
    parameter int WIDTH = 128
) (
    input logic clk_i,
    input logic [WIDTH-1:0] x_i,
    input logic carry_i
);
  localparam logic signed [69:0] Q = 70'(toroid_pkg::GOLDILOCKS);
  logic signed [65:0] t;
  goldilocks_fold #(
      .WIDTH     (WIDTH),
      .REGISTERED(0)
  ) i_fold (
      .clk_i,
      .x_i,
      .carry_i,
      .t_o(t)
  );
  logic signed [69:0] l, h0, h1;
  assign l  = 70'(x_i[63:0]);
  assign h0 = 70'(x_i[95:64]);
  assign h1 = 70'(x_i[WIDTH-1:96]) + 70'(carry_i);
  always_comb begin
    assume (h1 < $signed(70'd1 << (WIDTH - 96)));
    assert (70'(t) + h1 + h0 == l + (h0 << 32));
    assert (70'(t) < 2 * Q);
    assert (70'(t) > -$signed(70'd1 << (WIDTH - 96)));
  end
endmodule
