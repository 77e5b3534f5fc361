// SPDX-License-Identifier: Apache-2.0 OR MIT
// shift_butterfly: s = a + b and t = (a - b) * sqrt(2)^EXPONENT + K modulo q = 2^64 - 2^32 + 1, not reduced and without signs (root_product).
//
// WIDTH     bits of a and b, 64 to 75
// EXPONENT  0 to 383
// LATENCY   of the product, see root_product
// Latency: 1 + LATENCY
module shift_butterfly
  import stream_transform_pkg::*;
#(
    parameter int WIDTH = 66,
    parameter int EXPONENT = 0,
    parameter int LATENCY = 0,
    localparam int OUT = product_width(WIDTH + 1, EXPONENT)
) (
    input  logic             clk_i,
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    output logic [  WIDTH:0] s_o,
    output logic [  OUT-1:0] t_o
);
  // 2^WIDTH more than the difference, so that it has no sign.
  logic [WIDTH:0] sum_q, difference_q;
  always_ff @(posedge clk_i) begin
    sum_q <= (WIDTH + 1)'(a_i) + (WIDTH + 1)'(b_i);
    if (is_swapped(EXPONENT)) difference_q <= {1'b1, b_i} - {1'b0, a_i};
    else difference_q <= {1'b1, a_i} - {1'b0, b_i};
  end

  root_product #(
      .WIDTH   (WIDTH + 1),
      .EXPONENT(EXPONENT),
      .LATENCY (LATENCY)
  ) i_product (
      .clk_i,
      .d_i(difference_q),
      .t_o
  );
  delay #(
      .WIDTH (WIDTH + 1),
      .CYCLES(LATENCY)
  ) i_sum (
      .clk_i,
      .d_i(sum_q),
      .q_o(s_o)
  );
endmodule
