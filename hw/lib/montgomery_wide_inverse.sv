// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_wide_inverse: g with -1 / q = g * 2^WORD - 1 modulo 2^STEP, for q = h * 2^WORD + 1; combinational.
//
// 1 / q = 1 - 2^WORD * h + 2^(2 WORD) * h^2 - ..., so g = h - 2^WORD * h^2 modulo 2^(STEP - WORD), where no more than
// two bits of h^2 are left: 1 or 0, as h is odd or even.
//
// WORD  q = 1 modulo 2^WORD, >= 2
// STEP  above WORD, at most 2 * WORD + 2
// Latency: 0
module montgomery_wide_inverse #(
    parameter  int WORD = 10,
    parameter  int STEP = 22,
    localparam int Half = STEP - WORD
) (
    input  logic [Half-1:0] h_i,
    output logic [Half-1:0] g_o
);
  if (WORD < 2 || STEP <= WORD || STEP > 2 * WORD + 2) begin : g_check
    $fatal(1, "montgomery_wide_inverse: 2 <= WORD < STEP <= 2 * WORD + 2 is needed");
  end

  if (Half > WORD) begin : g_square
    assign g_o = h_i - (Half'(h_i[0]) << WORD);
  end else begin : g_plain
    assign g_o = h_i;
  end
endmodule
