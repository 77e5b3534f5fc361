// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_add: s = a + b modulo q, for a and b in [0, q); combinational.
//
// WIDTH  1 to 64
// Latency: 0
module mod_add #(
    parameter int WIDTH = 64
) (
    input  logic [WIDTH-1:0] q_i,
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    output logic [WIDTH-1:0] s_o
);
  if (WIDTH < 1 || WIDTH > 64) begin : g_check
    $fatal(1, "mod_add: WIDTH must be 1 to 64");
  end

  logic [  WIDTH:0] sum;
  logic [WIDTH+1:0] rest;
  assign sum  = {1'b0, a_i} + {1'b0, b_i};
  assign rest = {1'b0, sum} - {2'b0, q_i};
  assign s_o  = rest[WIDTH+1] ? sum[WIDTH-1:0] : rest[WIDTH-1:0];
endmodule
