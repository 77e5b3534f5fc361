// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_shift: for any x < 2^(2 I) = h * 2^(I + J) + m * 2^J + l, x = t * 2^J + {h, l} * q exactly, and t is in (-2^I, 2^(I + 1)).
//
// J_USED  the exponent that the unit is given; other than J in self-tests only
module solinas_shift_proof #(
    parameter int I = 28,
    parameter int J = 16,
    parameter int J_USED = J
) (
    input logic [2*I-1:0] x_i
);
  localparam int W = 2 * I + 4;
  logic signed [I+1:0] t;
  logic signed [W-1:0] u;
  solinas_shift #(
      .I(I),
      .J(J_USED)
  ) i_shift (
      .x_i,
      .t_o(t)
  );
  assign u = W'({1'b0, x_i[2*I-1:I+J], x_i[J-1:0]});
  always_comb begin
    assert ($signed(W'(x_i)) == (W'(t) << J) + (u << I) - (u << J) + u);
    assert (W'(t) > -$signed(W'(1) << I));
    assert (W'(t) < $signed(W'(1) << (I + 1)));
  end
endmodule
