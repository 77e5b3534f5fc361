// SPDX-License-Identifier: Apache-2.0 OR MIT
// A word's part in the key switch: what two digits times their words of the key add to a sum, modulo 2^32 and but for what the digits say alone.
//
// Booth's digits of two bits choose among 0, +-w and +-2 w. A negative one adds the complement; the 1 that is missing then depends on the digit only
// (`missing` in key_switch), so it is left out here. Multiples are sums of chosen words and take no DSP slice.
//
// DIGIT_BITS: 1 to 31, bits of a digit, a two's complement.
// Latency: 4 cycles for key and digits, 1 for before_i, which is 0 with fresh_i.
module switch_word #(
    parameter int DIGIT_BITS = 6
) (
    input logic clk_i,
    input logic [31:0] key_i[2],
    input logic [DIGIT_BITS-1:0] digit_i[2],
    input logic fresh_i,
    input logic [31:0] before_i,
    output logic [31:0] sum_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  localparam int PAIRS = (DIGIT_BITS + 1) / 2;
  localparam int LOW = (PAIRS + 1) / 2;

  if (DIGIT_BITS < 1 || DIGIT_BITS > 31) begin : g_check
    $fatal(1, "switch_word: DIGIT_BITS must be 1 to 31");
  end

  function automatic logic [31:0] multiples(logic [31:0] word, logic [DIGIT_BITS-1:0] digit, int first, int after);
    automatic logic [2*PAIRS:0] bits = {(2 * PAIRS)'(signed'(digit)), 1'b0};
    multiples = '0;
    for (int pair = first; pair < after; pair++) begin
      automatic logic [ 2:0] booth = bits[2*pair+:3];
      automatic logic [31:0] multiple = booth[1] ^ booth[0] ? word : booth[2] ^ booth[1] ? word << 1 : '0;
      multiples = multiples + ((multiple ^ {32{booth[2]}}) << 2 * pair);
    end
  endfunction

  logic [31:0] low_q[2], high_q[2], product_q[2], both_q;
  always_ff @(posedge clk_i) begin
    for (int half = 0; half < 2; half++) begin
      low_q[half] <= multiples(key_i[half], digit_i[half], 0, LOW);
      high_q[half] <= multiples(key_i[half], digit_i[half], LOW, PAIRS);
      product_q[half] <= low_q[half] + high_q[half];
    end
    both_q <= product_q[0] + product_q[1];
    sum_o  <= both_q + (fresh_i ? '0 : before_i);
  end
endmodule
