// goldilocks_fold: a product modulo q = 2^64 - 2^32 + 1, all but the last subtraction.
//
// 2^64 = 2^32 - 1 and 2^96 = -1 modulo q: x = h1 * 2^96 + h0 * 2^64 + l becomes t = l + h0 * 2^32 - (h0 + h1), congruent
// to x with -2^32 < t < 2 q + 2^32. goldilocks_canonical takes t, or the sum of t and a few words, into [0, q).
//
// SIGNED      x is in two's complement, of 129 bits; otherwise it has 128 bits and t < 2 q
// REGISTERED  registers after both additions
// Latency: 2 with registers, else 0
module goldilocks_fold #(
    parameter bit SIGNED = 0,
    parameter bit REGISTERED = 1
) (
    input  logic                       clk_i,
    input  logic        [127+SIGNED:0] x_i,
    output logic signed [        65:0] t_o
);
  logic [31:0] h0;
  logic signed [32:0] h1;
  logic signed [33:0] u_d, u_q;
  logic [64:0] v_d, v_q;
  logic signed [65:0] t_d;

  assign h0 = x_i[95:64];
  if (SIGNED) begin : g_signed
    assign h1 = x_i[128:96];
  end else begin : g_unsigned
    assign h1 = {1'b0, x_i[127:96]};
  end
  assign u_d = 34'(h1) + $signed({2'b0, h0});
  assign v_d = {33'({1'b0, x_i[63:32]}) + 33'({1'b0, h0}), x_i[31:0]};
  delay #(
      .WIDTH (99),
      .CYCLES(int'(REGISTERED))
  ) i_sums (
      .clk_i,
      .d_i({u_d, v_d}),
      .q_o({u_q, v_q})
  );
  assign t_d = $signed({1'b0, v_q}) - 66'(u_q);
  delay #(
      .WIDTH (66),
      .CYCLES(int'(REGISTERED))
  ) i_t (
      .clk_i,
      .d_i(t_d),
      .q_o(t_o)
  );
endmodule
