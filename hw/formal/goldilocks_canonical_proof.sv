// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_canonical: for t in its range, r is in [0, q) and t - r is a multiple of q.
//
// HIGH_USED  what the unit is given; other than HIGH in self-tests only
module goldilocks_canonical_proof #(
    parameter int LOW = 0,
    parameter int HIGH = 2,
    parameter bit SPLIT = 0,
    parameter int HIGH_USED = HIGH
) (
    input logic clk_i,
    input logic signed [66:0] t_i
);
  localparam logic signed [69:0] Q = 70'(toroid_pkg::GOLDILOCKS);
  localparam logic signed [69:0] Margin = 70'd1 << 34;
  logic [63:0] r;
  goldilocks_canonical #(
      .LOW       (LOW),
      .HIGH      (HIGH_USED),
      .REGISTERED(1),
      .SPLIT     (SPLIT)
  ) i_canonical (
      .clk_i,
      .t_i,
      .r_o(r)
  );
  logic congruent;
  always_comb begin
    congruent = 1'b0;
    for (int k = -4; k <= 4; k++) begin
      if (70'(t_i) == $signed(70'(r)) + $signed(70'(k)) * Q) congruent = 1'b1;
    end
    assume (70'(t_i) > (LOW == 0 ? -Margin : $signed(70'(LOW)) * Q));
    assume (70'(t_i) < $signed(70'(HIGH)) * Q + Margin);
    assert (r < toroid_pkg::GOLDILOCKS);
    assert (congruent);
  end
endmodule
