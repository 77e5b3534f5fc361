// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_carry: for v = k * 2^I + l in [-2^(I + 1), 2^(I + 2)), r = v - k * q, or v - k * q + q where k is negative, and r is
// within the bounds that its header states.
//
// J_USED  the exponent that the unit is given; other than J in self-tests only
module solinas_carry_proof #(
    parameter int I = 28,
    parameter int J = 16,
    parameter int J_USED = J
) (
    input logic signed [I+2:0] v_i
);
  localparam int W = I + 5;
  localparam logic signed [W-1:0] Q = W'(toroid_pkg::solinas_modulus(I, J));
  logic [I:0] r;
  logic signed [W-1:0] k;
  solinas_carry #(
      .I(I),
      .J(J_USED)
  ) i_carry (
      .v_i(v_i),
      .r_o(r)
  );
  assign k = W'(v_i >>> I);
  always_comb begin
    assume (W'(v_i) >= -$signed(W'(1) << (I + 1)));
    assert ($signed(W'(r)) == W'(v_i) - (k << I) + (k << J) - k + (k < 0 ? Q : 0));
    if (J < I - 2)
      assert ($signed(W'(r)) < 2 * Q);
      else assert ($signed(W'(r)) < 3 * Q);
  end
endmodule
