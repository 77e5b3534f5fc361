// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_canonical: r = t modulo q = 2^64 - 2^32 + 1, for t > LOW * q (t > -2^34 where LOW = 0) and
// t < HIGH * q + 2^34.
//
// t = c * 2^64 + v, so t is congruent to v + c * (2^32 - 1), and at most one q more or less is needed to reach [0, q):
// r = v + k * (2^32 - 1) with k = c or its neighbour away from zero. One adder of 64 bits; the choice of k looks at v
// only where it is within n * (2^32 - 1) of an end of its range: the upper bits are then all ones or all zeros. What it
// adds is read from a table of c and the choice, so that no sum of k stands before the adder.
//
// LOW         -3 to 0
// HIGH        1 to 3
// REGISTERED  registers between the choice of k and the sum
// SPLIT       two adders of 32 bits in place of one of 64. The lower one adds -k, so its carry is known as soon as k: it is
//             chosen with k, which takes some LUTs.
// Latency: 1 with registers, else 0
module goldilocks_canonical #(
    parameter int LOW = 0,
    parameter int HIGH = 2,
    parameter bit REGISTERED = 0,
    parameter bit SPLIT = 0
) (
    input  logic               clk_i,
    input  logic signed [66:0] t_i,
    output logic        [63:0] r_o
);
  if (LOW < -3 || LOW > 0 || HIGH < 1 || HIGH > 3) begin : g_check
    $fatal(1, "goldilocks_canonical: LOW must be -3 to 0 and HIGH 1 to 3");
  end

  // k * (2^32 - 1) in two halves for each {over, c}: k, less one where it is positive, and -k.
  function automatic logic [15:0][7:0] halves();
    for (int n = 0; n < 16; n++) begin
      automatic int c = (n + 4) % 8 - 4;
      automatic int k = n < 8 ? c : c < 0 ? c - 1 : c + 1;
      halves[n] = {4'(k > 0 ? k - 1 : k), 4'(-k)};
    end
  endfunction
  localparam logic [15:0][7:0] HALVES = halves();

  logic signed [2:0] c;
  logic signed [3:0] low, high;
  logic below, over;
  logic [63:0] y;
  logic [3:1] chosen, beyond;
  assign c = t_i[66:64];
  // With y = v, or its complement where t < 0, over tells y >= 2^64 - n * (2^32 - 1), for n = c + 1 or -c.
  assign below = LOW < 0 && c[2];
  assign y = t_i[63:0] ^ {64{below}};
  for (genvar n = 1; n <= 3; n++) begin : g_multiple
    assign chosen[n] = (n <= HIGH && c == 3'(n - 1)) || (n < -LOW && c == 3'(-n));
    assign beyond[n] = {y[33:32], |y[31:2], y[1:0]} >= {2'(4 - n), 3'(n)};
  end
  assign over = &y[63:34] && |(chosen & beyond);
  assign {high, low} = HALVES[{over, c}];

  // Out of the lower half: where k > 0, if it is at least k; where k < 0, unless its complement is at least -k.
  logic carry;
  if (SPLIT) begin : g_carry
    logic [31:0] lower;
    logic [ 1:0] carries;
    assign lower = t_i[31:0] ^ {32{c[2]}};
    for (genvar n = 0; n < 2; n++) begin : g_choice
      logic [3:0] minus_k;
      assign minus_k = HALVES[{1'(n), c}][3:0];
      assign carries[n] = minus_k != 0 && c[2] ^ (|lower[31:2] || lower[1:0] >= (c[2] ? minus_k[1:0] : 2'(-minus_k)));
    end
    assign carry = carries[over];
  end else begin : g_carry
    assign carry = 1'b0;
  end

  logic [63:0] v;
  logic signed [3:0] low_late, high_late;
  logic carry_late;
  delay #(
      .WIDTH (73),
      .CYCLES(int'(REGISTERED))
  ) i_delay (
      .clk_i,
      .d_i({t_i[63:0], high, low, carry}),
      .q_o({v, high_late, low_late, carry_late})
  );
  if (SPLIT) begin : g_sum
    logic unused_carry;
    assign r_o[31:0] = v[31:0] + 32'(low_late);
    assign {r_o[63:32], unused_carry} = {v[63:32], 1'b1} + {32'(high_late), carry_late};
  end else begin : g_sum
    logic unused_carry;
    assign unused_carry = carry_late;
    assign r_o = v + {32'(high_late), 32'(low_late)};
  end
endmodule
