// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_shift: t = d * 2^EXPONENT + K modulo q = 2^64 - 2^32 + 1, with the constant K = stream_transform_pkg::shift_offset, by one sum.
//
// Modulo 2^96 + 1, a multiple of q, a product by a power of two only moves bits: those that leave at the top come back at the bottom, negative.
// With limbs of 32 bits, 2^64 = 2^32 - 1 then leaves two bits at each of 64 places, x0 - x2 and x1 + x2. A bit that counts negative is complemented,
// which adds a constant; who takes t knows K.
//
// WIDTH       bits of d, 64 to 96
// EXPONENT    0 to 191
// REGISTERED  a register after the sum
// Latency: 1 with the register, else 0
module goldilocks_shift #(
    parameter int WIDTH = 66,
    parameter int EXPONENT = 0,
    parameter bit REGISTERED = 1
) (
    // Without a register there is no clock.
    // verilator lint_off UNUSEDSIGNAL
    input  logic             clk_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [WIDTH-1:0] d_i,
    output logic [     64:0] t_o
);
  if (WIDTH < 64 || WIDTH > 96 || EXPONENT < 0 || EXPONENT > 191) begin : g_check
    $fatal(1, "goldilocks_shift: WIDTH must be 64 to 96 and EXPONENT 0 to 191");
  end

  localparam logic [95:0] Negative = stream_transform_pkg::shift_negative(WIDTH, EXPONENT);

  // Complements stand in the second operand where they can: the first one also feeds the carries.
  logic [95:0] x;
  logic [31:0] minus_x2;
  logic [63:0] first, second;
  always_comb begin
    x = '0;
    minus_x2 = '0;
    for (int n = 0; n < WIDTH; n++) begin
      x[(EXPONENT+n)%96] = d_i[n] ^ Negative[(EXPONENT+n)%96];
      if ((EXPONENT + n) % 96 >= 64) minus_x2[(EXPONENT+n)%32] = d_i[n] ^ !Negative[(EXPONENT+n)%96];
    end
    for (int n = 0; n < 64; n++) begin
      first[n]  = x[n];
      second[n] = n < 32 ? minus_x2[n] : x[n+32];
      if (Negative[n]) {first[n], second[n]} = {second[n], first[n]};
    end
  end
  delay #(
      .WIDTH (65),
      .CYCLES(int'(REGISTERED))
  ) i_t (
      .clk_i,
      .d_i(65'(first) + 65'(second)),
      .q_o(t_o)
  );
endmodule
