// SPDX-License-Identifier: Apache-2.0 OR MIT
// Brings words of a TLWE sample to multiples of 1/2N: exponents of BITS = log2(2N) bits.
//
// A word of the mask is rounded; with compensated_i, half of the sum of the errors is taken off the body. clear_i begins a sample, count_i adds the
// error of word_i.
// Latency: 0; errors count from the next cycle on.
module modulus_switch #(
    parameter int BITS = 10
) (
    input logic clk_i,
    input logic goldilocks_i,
    input logic compensated_i,
    input logic clear_i,
    input logic count_i,
    input logic [63:0] word_i,
    output logic [BITS-1:0] mask_o,
    output logic [BITS-1:0] body_o
);
  // The word on the torus in units of 2^-64.
  logic [63:0] torus, rounded, body, error;
  logic signed [79:0] errors_q;
  assign torus = goldilocks_i ? word_i : word_i << 32;
  assign rounded = torus + (64'b1 << (63 - BITS));
  assign body = torus - (compensated_i ? 64'(errors_q >>> 1) : 64'b0);
  assign error = torus - {mask_o, {(64 - BITS) {1'b0}}};
  assign mask_o = rounded[63-:BITS];
  assign body_o = body[63-:BITS];

  always_ff @(posedge clk_i) begin
    if (clear_i) errors_q <= '0;
    else if (count_i) errors_q <= errors_q + 80'(signed'(error));
  end

  // Rounding keeps the upper bits only.
  logic unused;
  assign unused = &{rounded[63-BITS:0], body[63-BITS:0]};
endmodule
