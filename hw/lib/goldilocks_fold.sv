// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_fold: a product modulo q = 2^64 - 2^32 + 1, all but the last subtractions.
//
// 2^64 = 2^32 - 1 and 2^96 = -1 modulo q: x = h1 * 2^96 + h0 * 2^64 + l becomes t = l + h0 * (2^32 - 1) - h1, congruent to
// x, with -2^(WIDTH - 96) < t < 2 q. goldilocks_canonical takes t, or the sum of t and a word, into [0, q). A carry into bit
// 96 that the product has left out belongs to h1, which must hold it.
//
// WIDTH       width of x, 97 to 130
// REGISTERED  registers after both additions
// Latency: 2 with registers, else 0
module goldilocks_fold #(
    parameter int WIDTH = 128,
    parameter bit REGISTERED = 1
) (
    input  logic                    clk_i,
    input  logic        [WIDTH-1:0] x_i,
    input  logic                    carry_i,
    output logic signed [     65:0] t_o
);
  if (WIDTH < 97 || WIDTH > 130) begin : g_check
    $fatal(1, "goldilocks_fold: WIDTH must be 97 to 130");
  end

  // t = v - u with u = h0 + h1 and v = l + h0 * 2^32
  logic [34:0] u_d, u_q;
  logic [64:0] v_d, v_q;
  logic signed [65:0] t_d;
  assign u_d = 35'(x_i[95:64]) + 35'(x_i[WIDTH-1:96]) + 35'(carry_i);
  assign v_d = {33'(x_i[63:32]) + 33'(x_i[95:64]), x_i[31:0]};
  delay #(
      .WIDTH (100),
      .CYCLES(int'(REGISTERED))
  ) i_sums (
      .clk_i,
      .d_i({u_d, v_d}),
      .q_o({u_q, v_q})
  );
  assign t_d = 66'(v_q) - 66'(u_q);
  delay #(
      .WIDTH (66),
      .CYCLES(int'(REGISTERED))
  ) i_t (
      .clk_i,
      .d_i(t_d),
      .q_o(t_o)
  );
endmodule
