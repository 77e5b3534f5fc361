// SPDX-License-Identifier: Apache-2.0 OR MIT
// A new word of the accumulator: modulo p = 2^64 - 2^32 + 1 the sum that the multiplier made; modulo 2^32 the old word and the product, of which what
// is above p/2 stands for a negative number, and p = 1.
//
// Latency: 2 cycles.
module rotation_sum (
    input logic clk_i,
    input logic goldilocks_i,
    input logic [63:0] product_i,
    input logic [31:0] word_i,
    output logic [63:0] word_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  logic above_q;
  logic [31:0] word_q;
  logic [63:0] product_q;
  always_ff @(posedge clk_i) begin
    product_q <= product_i;
    above_q <= product_i > toroid_pkg::GOLDILOCKS >> 1;
    word_q <= word_i;
    if (goldilocks_i) begin
      above_q <= 1'b0;
      word_q  <= '0;
    end
    word_o <= {product_q[63:32], product_q[31:0] + word_q - 32'(above_q)};
    if (!goldilocks_i) word_o[63:32] <= '0;
  end
endmodule
