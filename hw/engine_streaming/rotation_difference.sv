// SPDX-License-Identifier: Apache-2.0 OR MIT
// A word of the accumulator turned, with its sign, and the difference to the straight word, modulo p = 2^64 - 2^32 + 1 or 2^32.
//
// Latency: turned_o 1 cycle, difference_o 2.
module rotation_difference (
    input logic clk_i,
    input logic goldilocks_i,
    input logic [63:0] word_i,
    input logic negative_i,
    input logic [63:0] straight_i,
    output logic [63:0] turned_o,
    output logic [63:0] difference_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  localparam logic [63:0] P = toroid_pkg::GOLDILOCKS;

  // p - word is the complement and p + 1, and -word modulo 2^32 the complement and 1.
  logic negates;
  logic [63:0] straight_q;
  logic [64:0] difference;
  assign negates = negative_i && word_i != '0;
  assign difference = 65'(turned_o) - 65'(straight_q);
  always_ff @(posedge clk_i) begin
    turned_o <= (word_i ^ {64{negates}}) + (negates ? goldilocks_i ? P + 64'd1 : 64'd1 : '0);
    straight_q <= straight_i;
    difference_o <= difference[63:0] + (difference[64] && goldilocks_i ? P : '0);
    if (!goldilocks_i) begin
      turned_o[63:32] <= '0;
      difference_o[63:32] <= '0;
    end
  end
endmodule
