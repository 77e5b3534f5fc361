// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_wide_step: a step of Montgomery's reduction by more bits than WORD for q = h * 2^WORD + 1; combinational
// but for its two products.
//
// With y the lower STEP bits of x, the multiple of q that clears them is m = -y / q = t * 2^WORD - y modulo 2^STEP,
// where t = y * g modulo 2^(STEP - WORD) (montgomery_wide_inverse). y + m is t * 2^WORD, plus 2^STEP where the
// difference borrows, so that
//
//   (x + m * q) / 2^STEP = (x >> STEP) + borrow + (t + m * h) / 2^(STEP - WORD)
//
// whose last term has no rest: it is (m * h >> (STEP - WORD)), and one more where t is not 0.
//
// The products y * g and m * h are outside; what belongs together comes in when its product is there.
//
// WORD     q = 1 modulo 2^WORD, >= 2
// STEP     above WORD, at most 2 * WORD + 2
// WIDTH_X  width of x >> STEP
// WIDTH_P  width of m * h >> (STEP - WORD)
// WIDTH_R  width of r, enough for it
// Latency: 0
// Source: P. L. Montgomery, Modular multiplication without trial division, 1985
module montgomery_wide_step #(
    parameter int WORD = 10,
    parameter int STEP = 22,
    parameter int WIDTH_X = 106,
    parameter int WIDTH_P = 64,
    parameter int WIDTH_R = 107,
    localparam int Half = STEP - WORD
) (
    // y and t, and m from them.
    input  logic [   STEP-1:0] y_i,
    input  logic [   Half-1:0] t_i,
    output logic [   STEP-1:0] m_o,
    output logic               borrow_o,
    output logic               carry_o,
    // The rest of x, the product with m, and what came out beside m.
    input  logic [WIDTH_X-1:0] x_i,
    input  logic [WIDTH_P-1:0] p_i,
    input  logic               borrow_i,
    input  logic               carry_i,
    output logic [WIDTH_R-1:0] r_o
);
  if (WORD < 2 || STEP <= WORD || STEP > 2 * WORD + 2) begin : g_check
    $fatal(1, "montgomery_wide_step: 2 <= WORD < STEP <= 2 * WORD + 2 is needed");
  end

  assign {borrow_o, m_o} = (STEP + 1)'({t_i, WORD'(0)}) - (STEP + 1)'(y_i);
  assign carry_o = t_i != '0;
  assign r_o = WIDTH_R'(x_i) + WIDTH_R'(p_i) + WIDTH_R'(borrow_i) + WIDTH_R'(carry_i);
endmodule
