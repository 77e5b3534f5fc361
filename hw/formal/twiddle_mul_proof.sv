// SPDX-License-Identifier: Apache-2.0 OR MIT
// twiddle_mul modulo 2^I - 2^J + 1, the product of integers in one tile: whatever that is below 2^(2 I), what leaves is exactly
// what solinas_shift makes of it with the sign of the twiddle, and above -2^(I + 1) if that is above -2^I (solinas_shift_proof).
//
// NEGATIVE_USED  0 hides the twiddle's sign from the unit, in self-tests only
module twiddle_mul_proof #(
    parameter int I = 13,
    parameter int J = 9,
    parameter bit NEGATIVE_USED = 1
) (
    input logic         clk_i,
    input logic [  I:0] x_i,
    input logic         negative_i,
    input logic [I-2:0] magnitude_i
);
  localparam int W = I + 4;
  logic signed [I+1:0] p;
  twiddle_mul #(
      .SOLINAS(1),
      .Q      (toroid_pkg::solinas_modulus(I, J)),
      .TILE_A (I),
      .TILE_B (I + 1)
  ) i_mul (
      .clk_i,
      .x_i,
      .w_i({negative_i && NEGATIVE_USED, magnitude_i}),
      .p_o(p)
  );
  logic [2*I-1:0] product;
  logic signed [I+1:0] t;
  assign product = (2 * I)'(magnitude_i) * (2 * I)'(x_i);
  solinas_shift #(
      .I(I),
      .J(J)
  ) i_shift (
      .x_i(product),
      .t_o(t)
  );
  always_comb begin
    assume (W'(t) > -$signed(W'(1) << I));
    assert (W'(p) == (negative_i ? -W'(t) : W'(t)));
    assert (W'(p) > -$signed(W'(1) << (I + 1)));
  end
endmodule
