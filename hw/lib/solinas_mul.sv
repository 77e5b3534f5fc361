// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_mul: p = a * b modulo q = 2^I - 2^J + 1, one product a cycle.
//
// I, J            exponents, 0 < J < I, 3 <= I <= 64; the wider I - J, the fewer steps (see solinas_reduce)
// TILE_A, TILE_B  tiles of the multiplier (see mul_tiles)
// SHORT           fewer, longer stages
// Latency: toroid_pkg::solinas_mul_latency
module solinas_mul #(
    parameter int I = 28,
    parameter int J = 16,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0
) (
    input  logic         clk_i,
    input  logic [I-1:0] a_i,
    input  logic [I-1:0] b_i,
    output logic [I-1:0] p_o
);
  logic [2*I-1:0] x;
  mul_tiles #(
      .WIDTH_A(I),
      .WIDTH_B(I),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .SHORT  (SHORT)
  ) i_mul (
      .clk_i,
      .a_i,
      .b_i,
      .p_o(x)
  );
  solinas_reduce #(
      .I         (I),
      .J         (J),
      .REGISTERED(!SHORT)
  ) i_reduce (
      .clk_i,
      .x_i(x),
      .r_o(p_o)
  );
endmodule
