// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_canonical: r = t modulo q = 2^64 - 2^32 + 1, for t > LOW * q (t > -2^34 where LOW = 0) and
// t < HIGH * q + 2^34; combinational.
//
// t = c * 2^64 + v, so t is congruent to v + c * (2^32 - 1), and at most one q more or less is needed to reach [0, q):
// r = v + k * (2^32 - 1) with k = c or its neighbour away from zero. One adder of 64 bits; the choice of k looks at v
// only where it is within n * (2^32 - 1) of an end of its range: the upper bits are then all ones or all zeros.
//
// LOW   -3 to 0
// HIGH  1 to 3
// Latency: 0
module goldilocks_canonical #(
    parameter int LOW  = 0,
    parameter int HIGH = 2
) (
    input  logic signed [66:0] t_i,
    output logic        [63:0] r_o
);
  if (LOW < -3 || LOW > 0 || HIGH < 1 || HIGH > 3) begin : g_check
    $fatal(1, "goldilocks_canonical: LOW must be -3 to 0 and HIGH 1 to 3");
  end

  logic signed [2:0] c;
  logic signed [3:0] k, low, high;
  logic below, over;
  logic [63:0] y;
  assign c = t_i[66:64];
  // With y = v, or its complement where t < 0, over tells y >= 2^64 - n * (2^32 - 1), for n = c + 1 or -c.
  assign below = LOW < 0 && c[2];
  assign y = t_i[63:0] ^ {64{below}};
  always_comb begin
    over = 1'b0;
    for (int n = 1; n <= 3; n++) begin
      if ((n <= HIGH && c == 3'(n - 1)) || (n < -LOW && c == 3'(-n))) begin
        over = &y[63:34] && (y[33:32] > 2'(4 - n) || (y[33:32] == 2'(4 - n) && {|y[31:2], y[1:0]} >= 3'(n)));
      end
    end
    k = 4'(c);
    if (over) k = below ? 4'(c) - 4'sd1 : 4'(c) + 4'sd1;
  end
  // k * (2^32 - 1) in two halves
  assign low  = -k;
  assign high = k > 0 ? k - 4'sd1 : k;
  assign r_o  = t_i[63:0] + {32'(high), 32'(low)};
endmodule
