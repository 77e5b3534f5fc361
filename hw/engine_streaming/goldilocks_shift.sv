// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_shift: t = d * 2^EXPONENT modulo q = 2^64 - 2^32 + 1, not reduced: |t| < 2^66.
//
// The product is cut into limbs of 32 bits, the top one signed. 2^64 = 2^32 - 1, 2^96 = -1, 2^128 = -2^32 and
// 2^160 = 1 - 2^32 modulo q then leave one sum of limbs at bit 32 and one at bit 0.
//
// WIDTH       bits of d, 65 to 76
// EXPONENT    0 to 95
// REGISTERED  registers after both additions
// Latency: 2 with registers, else 0
module goldilocks_shift #(
    parameter int WIDTH = 68,
    parameter int EXPONENT = 0,
    parameter bit REGISTERED = 1
) (
    // Without registers there is no clock.
    // verilator lint_off UNUSEDSIGNAL
    input  logic                    clk_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic signed [WIDTH-1:0] d_i,
    output logic signed [     66:0] t_o
);
  if (WIDTH < 65 || WIDTH > 76 || EXPONENT < 0 || EXPONENT > 95) begin : g_check
    $fatal(1, "goldilocks_shift: WIDTH must be 65 to 76 and EXPONENT 0 to 95");
  end

  localparam int Limbs = EXPONENT / 32;
  localparam int Bits = EXPONENT % 32;

  // Limbs 0 to 2, and 3 with the sign. Where the third holds the sign, there is no fourth.
  logic signed [WIDTH+Bits-1:0] y;
  // Limb 0 may stay at its place.
  // verilator lint_off UNUSEDSIGNAL
  logic signed [35:0] limb0;
  // verilator lint_on UNUSEDSIGNAL
  logic signed [35:0] limb1, limb2, limb3;
  assign y = (WIDTH + Bits)'(d_i) << Bits;
  assign limb0 = $signed({4'b0, y[31:0]});
  assign limb1 = $signed({4'b0, y[63:32]});
  if (WIDTH + Bits <= 96) begin : g_three
    assign limb2 = 36'($signed(y[WIDTH+Bits-1:64]));
    assign limb3 = '0;
  end else begin : g_four
    assign limb2 = $signed({4'b0, y[95:64]});
    assign limb3 = 36'($signed(y[WIDTH+Bits-1:96]));
  end

  // t = high * 2^32 + low - away
  logic signed [35:0] high, away, high_q, away_q;
  logic [31:0] low, low_q;
  if (Limbs == 0) begin : g_sums
    assign high = limb1 + limb2;
    assign away = limb2 + limb3;
    assign low  = y[31:0];
  end else if (Limbs == 1) begin : g_sums
    assign high = limb0 + limb1 - limb3;
    assign away = limb1 + limb2;
    assign low  = '0;
  end else begin : g_sums
    assign high = limb0 - limb2 - limb3;
    assign away = limb0 + limb1 - limb3;
    assign low  = '0;
  end
  delay #(
      .WIDTH (104),
      .CYCLES(int'(REGISTERED))
  ) i_sums (
      .clk_i,
      .d_i({high, away, low}),
      .q_o({high_q, away_q, low_q})
  );
  delay #(
      .WIDTH (67),
      .CYCLES(int'(REGISTERED))
  ) i_t (
      .clk_i,
      .d_i(67'($signed({high_q, low_q})) - 67'(away_q)),
      .q_o(t_o)
  );
endmodule
