// SPDX-License-Identifier: Apache-2.0 OR MIT
// A signed digit of a word (DECOMP), modulo p = 2^64 - 2^32 + 1.
//
// The word is brought to the torus in units of 2^-64, and half of every digit's range is added, which turns balanced digits into plain bit
// fields without carries. A field f of the base B = 2·half_i stands for the digit f - half_i: with its top bit inverted, f is the digit's two's
// complement. It leaves modulo p, and as it is.
// BITS: of the largest digit, 1 to 32. FIELD: 0 leaves digit_o out, which then is 0.
// Latency: 4 cycles. Source: the exact gadget decomposition of `toroid-tfhe` (`DigitField`).
module digit_unit #(
    parameter int BITS  = 32,
    parameter bit FIELD = 1
) (
    input logic clk_i,
    input logic goldilocks_i,
    input logic [63:0] offset_i,
    input logic [5:0] shift_i,
    input logic [BITS-1:0] half_i,
    input logic [63:0] word_i,
    output logic [63:0] digit_o,
    output logic [BITS-1:0] signed_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  logic [63:0] torus_q, field_q;
  logic [BITS+14:0] coarse;
  logic [ BITS+2:0] middle;
  logic [BITS-1:0] shifted_q, below, signed_digit, digit;
  logic negative;

  // The upper bits of the shift first: then each step has fewer bits to give.
  assign coarse = (BITS + 15)'(field_q >> {shift_i[5:4], 4'b0});
  assign middle = (BITS + 3)'(coarse >> {shift_i[3:2], 2'b0});

  // A negative digit -m is p - m = 2^64 - 2^32 + (1 - m).
  assign below = half_i - 1'b1;
  assign negative = (shifted_q & half_i) == '0;
  assign signed_digit = negative ? shifted_q | ~below : shifted_q & below;
  assign digit = signed_digit + BITS'(negative);

  always_ff @(posedge clk_i) begin
    // word·2^64/p is word + word·2^-32, rounded, to within one unit.
    torus_q   <= goldilocks_i ? word_i + 64'(word_i[63:32]) + 64'(word_i[31]) : {word_i[31:0], 32'b0};
    field_q   <= torus_q + offset_i;
    shifted_q <= BITS'(middle >> shift_i[1:0]);
    signed_o  <= signed_digit;
    digit_o   <= FIELD ? {{(63 - BITS) {negative}}, negative && digit == '0, digit} : '0;
  end
endmodule
