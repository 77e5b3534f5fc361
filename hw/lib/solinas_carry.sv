// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_carry: r = v modulo q = 2^I - 2^J + 1, in [0, 2^(I + 1)), by one addition; combinational.
//
// v = k * 2^I + l becomes r = l + k * (2^J - 1), plus q where k is negative. The second operand is a function of the
// three bits of k, so each bit of the sum takes one LUT.
//
// I, J  exponents, 0 < J < I - 1 < 64
// v     in two's complement, in [-2^(I + 1), 2^(I + 2)), so that k is -2 to 3
// r     at most 2 q - 1 where J < I - 2 and below 3 q where J = I - 2
// Latency: 0
module solinas_carry #(
    parameter int I = 28,
    parameter int J = 16
) (
    input  logic [I+2:0] v_i,
    output logic [  I:0] r_o
);
  if (J < 1 || J >= I - 1 || I > 64) begin : g_check
    $fatal(1, "solinas_carry: 0 < J < I - 1 < 64 is needed");
  end

  localparam logic [I:0] Unit = (I + 1)'(128'd1 << J) - 1'b1;
  localparam logic [I:0] Q = (I + 1)'(toroid_pkg::solinas_modulus(I, J));
  logic [I:0] addend;
  always_comb begin
    case (v_i[I+2:I])
      3'd0: addend = '0;
      3'd1: addend = Unit;
      3'd2: addend = 2'd2 * Unit;
      3'd3: addend = 2'd3 * Unit;
      3'd6: addend = Q - 2'd2 * Unit;
      3'd7: addend = Q - Unit;
      default: addend = 'x;
    endcase
  end
  assign r_o = {1'b0, v_i[I-1:0]} + addend;
endmodule
