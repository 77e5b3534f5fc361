// SPDX-License-Identifier: Apache-2.0 OR MIT
// Two multipliers of one lane: the products of a transformed digit with both columns of a row of the bootstrapping key, added to their sums so
// far; or, after an inverse transform, the product of its word with a constant of the lane (column 0 only); or what a pass asks for. Product and sum
// share a reduction.
//
// KARATSUBA: see `goldilocks_product`. Latency: PRODUCT + 1 cycles, PRODUCT that of `goldilocks_mul`. sum_i must come PRODUCT - 2 cycles after its
// word.
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

  // Both kinds of multipliers end alike but for a register between the choice and the sum of the reduction.
  localparam bit REGISTERED = KARATSUBA > 0;

  for (genvar column = 0; column < 2; column++) begin : gen_column
    logic signed [65:0] product;
    logic [63:0] addend, sum;
    logic signed [66:0] both_q;
    goldilocks_product #(
        .KARATSUBA(KARATSUBA)
    ) i_product (
        .clk_i,
        .a_i(word_i[column]),
        .b_i(factor_i[column]),
        .t_o(product)
    );
    delay #(
        .WIDTH (64),
        .CYCLES(REGISTERED ? 0 : 1)
    ) i_addend (
        .clk_i,
        .d_i(sum_i[column]),
        .q_o(addend)
    );
    goldilocks_canonical #(
        .LOW       (KARATSUBA > 0 ? -2 : 0),
        .HIGH      (3),
        .REGISTERED(REGISTERED),
        .SPLIT     (1)
    ) i_canonical (
        .clk_i,
        .t_i(both_q),
        .r_o(sum)
    );
    always_ff @(posedge clk_i) begin
      both_q <= 67'(product) + $signed(67'(addend));
      sum_o[column] <= sum;
    end
  end
endmodule
