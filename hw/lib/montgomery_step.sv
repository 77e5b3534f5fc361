// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_step: one word of Montgomery's reduction for q = h * 2^WORD + 1; combinational but for its product.
//
// -q^-1 = -1 modulo 2^WORD, so the multiple of q that clears the low word of x is m = -x modulo 2^WORD, without a
// multiplication: (x + m * q) / 2^WORD = (x >> WORD) + m * h + (1 where the low word is not 0). m_o goes out, the product
// m * h comes back in p_i together with the same x.
//
// WORD     width of the word, >= 1
// WIDTH_X  width of x, > WORD
// WIDTH_P  width of m * h
// WIDTH_R  width of r, enough for it
// Latency: 0
module montgomery_step #(
    parameter int WORD = 16,
    parameter int WIDTH_X = 128,
    parameter int WIDTH_P = 64,
    parameter int WIDTH_R = WIDTH_X - WORD + 1
) (
    input  logic [WIDTH_X-1:0] x_i,
    input  logic [WIDTH_P-1:0] p_i,
    output logic [WIDTH_R-1:0] r_o
);
  if (WORD < 1 || WIDTH_X <= WORD) begin : g_check
    $fatal(1, "montgomery_step: 1 <= WORD < WIDTH_X is needed");
  end

  assign r_o = WIDTH_R'(x_i[WIDTH_X-1:WORD]) + WIDTH_R'(p_i) + WIDTH_R'(|x_i[WORD-1:0]);
endmodule
