// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_canonical: r = x modulo q, for x < (MULTIPLES + 1) * q, by as many subtractions; combinational.
//
// WIDTH      width of q, 1 to 64
// WIDTH_X    width of x, >= WIDTH
// MULTIPLES  1 or more
// Latency: 0
module mod_canonical #(
    parameter int WIDTH = 64,
    parameter int WIDTH_X = 65,
    parameter int MULTIPLES = 1
) (
    input  logic [  WIDTH-1:0] q_i,
    input  logic [WIDTH_X-1:0] x_i,
    output logic [  WIDTH-1:0] r_o
);
  if (WIDTH < 1 || WIDTH > 64 || WIDTH_X < WIDTH || MULTIPLES < 1) begin : g_check
    $fatal(1, "mod_canonical: WIDTH must be 1 to 64, WIDTH_X at least WIDTH, MULTIPLES at least 1");
  end

  always_comb begin
    logic [WIDTH_X-1:0] x;
    logic [  WIDTH_X:0] rest;
    x = x_i;
    for (int n = 0; n < MULTIPLES; n++) begin
      rest = {1'b0, x} - (WIDTH_X + 1)'(q_i);
      if (!rest[WIDTH_X]) x = rest[WIDTH_X-1:0];
    end
    r_o = x[WIDTH-1:0];
  end
endmodule
