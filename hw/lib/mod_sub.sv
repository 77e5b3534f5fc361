// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_sub: d = a - b modulo q, for a and b in [0, q); combinational.
//
// WIDTH  1 to 64
// Latency: 0
module mod_sub #(
    parameter int WIDTH = 64
) (
    input  logic [WIDTH-1:0] q_i,
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    output logic [WIDTH-1:0] d_o
);
  if (WIDTH < 1 || WIDTH > 64) begin : g_check
    $fatal(1, "mod_sub: WIDTH must be 1 to 64");
  end

  logic [WIDTH:0] difference;
  assign difference = {1'b0, a_i} - {1'b0, b_i};
  assign d_o = difference[WIDTH-1:0] + (q_i & {WIDTH{difference[WIDTH]}});
endmodule
