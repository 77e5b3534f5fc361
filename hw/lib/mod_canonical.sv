// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_canonical: r = x modulo q, for x < (MULTIPLES + 1) * q, by as many subtractions side by side; combinational.
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

  // All differences side by side: the last one that is not negative counts.
  localparam int Sum = WIDTH + $clog2(MULTIPLES + 1);
  localparam int Bits = WIDTH_X > Sum ? WIDTH_X : Sum;
  always_comb begin
    // Of what is left, the bits above r are 0.
    // verilator lint_off UNUSEDSIGNAL
    logic [Bits:0] rest;
    // verilator lint_on UNUSEDSIGNAL
    r_o = x_i[WIDTH-1:0];
    for (int n = 1; n <= MULTIPLES; n++) begin
      rest = (Bits + 1)'(x_i) - (Bits + 1)'(n) * (Bits + 1)'(q_i);
      if (!rest[Bits]) r_o = rest[WIDTH-1:0];
    end
  end
endmodule
