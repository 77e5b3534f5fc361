// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_fold: one step of the reduction modulo q = 2^I - 2^J + 1; combinational.
//
// 2^I = 2^J - 1 modulo q: x = h * 2^I + l becomes r = l + h * 2^J - h, which is x - h * q.
//
// I, J     exponents, 0 < J < I <= 64
// WIDTH_X  width of x, > I
// WIDTH_R  width of r, enough for it (see toroid_pkg::solinas_bound)
// Latency: 0
module solinas_fold #(
    parameter int I = 28,
    parameter int J = 16,
    parameter int WIDTH_X = 2 * I,
    parameter int WIDTH_R = I + J + 1
) (
    input  logic [WIDTH_X-1:0] x_i,
    output logic [WIDTH_R-1:0] r_o
);
  if (J < 1 || J >= I || I > 64 || WIDTH_X <= I || WIDTH_R < I) begin : g_check
    $fatal(1, "solinas_fold: 0 < J < I <= 64, WIDTH_X > I and WIDTH_R >= I are needed");
  end

  // The sum of l and h * 2^J touches the bits from J on only.
  logic [WIDTH_X-I-1:0] h;
  logic [WIDTH_R-J-1:0] upper;
  assign h = x_i[WIDTH_X-1:I];
  assign upper = (WIDTH_R - J)'(x_i[I-1:J]) + (WIDTH_R - J)'(h);
  assign r_o = {upper, x_i[J-1:0]} - WIDTH_R'(h);
endmodule
