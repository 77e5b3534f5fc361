// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_product: t congruent to a * b modulo q = 2^64 - 2^32 + 1, one product a cycle, not reduced: -2 q < t < 2 q, and t > -2^32 where
// KARATSUBA is 0. goldilocks_canonical takes it, or its sum with a word, into [0, q).
//
// TILE_A, TILE_B  tiles of the multiplier (see mul_tiles): 24 x 17 takes 12 DSP48
// SHORT           fewer, longer stages (see mul_tiles)
// KARATSUBA       0, or 6 or 8: that many tiles, and more LUTs (see goldilocks_karatsuba), not with SHORT
// Latency: toroid_pkg::goldilocks_product_latency
module goldilocks_product #(
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0,
    parameter int KARATSUBA = 0
) (
    input  logic               clk_i,
    input  logic        [63:0] a_i,
    input  logic        [63:0] b_i,
    output logic signed [65:0] t_o
);
  if (KARATSUBA > 0) begin : g_karatsuba
    if (SHORT) begin : g_check
      $fatal(1, "goldilocks_product: KARATSUBA is no choice with SHORT");
    end
    goldilocks_karatsuba #(
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .TILES (KARATSUBA)
    ) i_mul (
        .clk_i,
        .a_i,
        .b_i,
        .t_o
    );
  end else begin : g_tiles
    logic [128:0] x;
    mul_tiles #(
        .WIDTH_A(64),
        .WIDTH_B(64),
        .TILE_A (TILE_A),
        .TILE_B (TILE_B),
        .CUT    (96),
        .SHORT  (SHORT)
    ) i_mul (
        .clk_i,
        .a_i,
        .b_i,
        .p_o(x)
    );
    goldilocks_fold #(
        .REGISTERED(!SHORT)
    ) i_fold (
        .clk_i,
        .x_i(x[127:0]),
        .carry_i(x[128]),
        .t_o
    );
  end
endmodule
