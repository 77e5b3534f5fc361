// SPDX-License-Identifier: Apache-2.0 OR MIT
// Two multipliers of one lane: the products of a transformed digit with both columns of a row of the bootstrapping key, added to their sums so
// far; or, after an inverse transform, the product of its word with a constant of the lane (column 0 only); or what a pass asks for.
//
// KARATSUBA: see `goldilocks_mul`. sum_i must come PRODUCT cycles after its word. Latency: PRODUCT + 1 cycles, PRODUCT that of `goldilocks_mul`.
module product_lane #(
    parameter int KARATSUBA = 8
) (
    input logic clk_i,
    input logic [1:0][63:0] word_i,
    input logic [1:0][63:0] factor_i,
    input logic [1:0][63:0] sum_i,
    output logic [1:0][63:0] sum_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  for (genvar column = 0; column < 2; column++) begin : gen_column
    logic [63:0] product, sum;
    goldilocks_mul #(
        .KARATSUBA(KARATSUBA)
    ) i_mul (
        .clk_i,
        .a_i(word_i[column]),
        .b_i(factor_i[column]),
        .p_o(product)
    );
    mod_add #(
        .WIDTH(64)
    ) i_add (
        .q_i(toroid_pkg::GOLDILOCKS),
        .a_i(product),
        .b_i(sum_i[column]),
        .s_o(sum)
    );
    always_ff @(posedge clk_i) sum_o[column] <= sum;
  end
endmodule
