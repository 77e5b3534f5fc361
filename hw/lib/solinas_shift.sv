// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_shift: t = x / 2^J modulo q = 2^I - 2^J + 1, for any x below 2^(2 I), by one addition and one subtraction;
// combinational.
//
// 1 / 2^J = 1 - 2^(I - J) and 2^I = 2^J - 1 modulo q, so that of x = h * 2^(I + J) + m * 2^J + l
//   x / 2^J = m + h * 2^I + l / 2^J = m + (h * 2^J + l) - (l * 2^(I - J) + h),
// where h, of I - J bits, and l, of J bits, fit together without carries: t = m + {h, l} - {l, h}. It is Montgomery's
// reduction from below and the substitution of 2^I from above in one, and takes the same for every I and J.
// Exactly, x = t * 2^J + {h, l} * q.
//
// I, J  exponents, 0 < J < I <= 64
// t is in (-2^I, 2^(I + 1)), in two's complement.
// Latency: 0
module solinas_shift #(
    parameter int I = 28,
    parameter int J = 16
) (
    input  logic [2*I-1:0] x_i,
    output logic [  I+1:0] t_o
);
  if (J < 1 || J >= I || I > 64) begin : g_check
    $fatal(1, "solinas_shift: 0 < J < I <= 64 is needed");
  end

  logic [  I-1:0] m;
  logic [I-J-1:0] h;
  logic [  J-1:0] l;
  assign {h, m, l} = x_i;
  assign t_o = {2'b0, m} + {2'b0, h, l} - {2'b0, l, h};
endmodule
