// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_half: h = x / 2 modulo an odd q; combinational. For x below b, h is below (b + q) / 2.
//
// WIDTH  1 to 65
// Latency: 0
module mod_half #(
    parameter int WIDTH = 64
) (
    input  logic [WIDTH-1:0] q_i,
    input  logic [WIDTH-1:0] x_i,
    output logic [WIDTH-1:0] h_o
);
  if (WIDTH < 1 || WIDTH > 65) begin : g_check
    $fatal(1, "mod_half: WIDTH must be 1 to 65");
  end

  assign h_o = WIDTH'(({1'b0, x_i} + {1'b0, q_i & {WIDTH{x_i[0]}}}) >> 1);
endmodule
