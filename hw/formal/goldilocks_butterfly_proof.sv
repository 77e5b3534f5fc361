// SPDX-License-Identifier: Apache-2.0 OR MIT
// The outputs of the Goldilocks butterfly, reduced once, are those of mod_add and mod_sub on reduced words.
module goldilocks_butterfly_proof (
    input logic clk_i,
    input logic [63:0] a_i,
    input logic [63:0] b_i,
    input logic signed [65:0] t_i
);
  logic [63:0] t, sum, difference, plain_sum, expected_sum, expected_difference, expected_plain_sum;
  goldilocks_canonical #(
      .LOW (0),
      .HIGH(2)
  ) i_t (
      .clk_i,
      .t_i(67'(t_i)),
      .r_o(t)
  );
  goldilocks_canonical #(
      .LOW (0),
      .HIGH(3)
  ) i_sum (
      .clk_i,
      .t_i($signed({3'b0, a_i}) + 67'(t_i)),
      .r_o(sum)
  );
  goldilocks_canonical #(
      .LOW (-2),
      .HIGH(2)
  ) i_difference (
      .clk_i,
      .t_i($signed({3'b0, a_i}) - 67'(t_i)),
      .r_o(difference)
  );
  goldilocks_canonical #(
      .LOW (0),
      .HIGH(3)
  ) i_plain_sum (
      .clk_i,
      .t_i($signed({3'b0, a_i}) + $signed({3'b0, b_i})),
      .r_o(plain_sum)
  );
  mod_add i_expected_sum (
      .q_i(toroid_pkg::GOLDILOCKS),
      .a_i,
      .b_i(t),
      .s_o(expected_sum)
  );
  mod_sub i_expected_difference (
      .q_i(toroid_pkg::GOLDILOCKS),
      .a_i,
      .b_i(t),
      .d_o(expected_difference)
  );
  mod_add i_expected_plain_sum (
      .q_i(toroid_pkg::GOLDILOCKS),
      .a_i,
      .b_i,
      .s_o(expected_plain_sum)
  );
  always_comb begin
    assume (a_i < toroid_pkg::GOLDILOCKS);
    assume (b_i < toroid_pkg::GOLDILOCKS);
    assume (t_i > -$signed(66'd1 << 34));
    assume (t_i < $signed({1'b0, toroid_pkg::GOLDILOCKS, 1'b0}));
    assert (sum == expected_sum);
    assert (difference == expected_difference);
    assert (plain_sum == expected_plain_sum);
  end
endmodule
