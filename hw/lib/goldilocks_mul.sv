// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_mul: p = a * b modulo q = 2^64 - 2^32 + 1, one product a cycle.
//
// TILE_A, TILE_B    tiles of the multiplier: 24 x 17 takes 12 DSP48
// SHORT, KARATSUBA  see goldilocks_product
// Latency: toroid_pkg::goldilocks_mul_latency
module goldilocks_mul #(
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0,
    parameter int KARATSUBA = 0
) (
    input  logic        clk_i,
    input  logic [63:0] a_i,
    input  logic [63:0] b_i,
    output logic [63:0] p_o
);
  logic signed [65:0] t;
  logic [63:0] p_d;
  goldilocks_product #(
      .TILE_A   (TILE_A),
      .TILE_B   (TILE_B),
      .SHORT    (SHORT),
      .KARATSUBA(KARATSUBA)
  ) i_product (
      .clk_i,
      .a_i,
      .b_i,
      .t_o(t)
  );
  goldilocks_canonical #(
      .LOW       (KARATSUBA > 0 ? -2 : 0),
      .REGISTERED(KARATSUBA > 0),
      .SPLIT     (!SHORT)
  ) i_canonical (
      .clk_i,
      .t_i(67'(t)),
      .r_o(p_d)
  );
  always_ff @(posedge clk_i) p_o <= p_d;
endmodule
