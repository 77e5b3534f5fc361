// SPDX-License-Identifier: Apache-2.0 OR MIT
// mul_strip: p = a * b + ADDEND, one product a cycle, from two or three tiles that fit the multipliers of an FPGA.
//
// Two tiles multiply the upper TILE_A bits of a by both tiles of b. The strip that is left, the lower bits of a times b, is made
// of LUTs: Booth's digits of two bits choose among 0, +-b and +-2 b, which together with the sum of the digits before is one LUT
// a bit. The strip enters the chain of the tiles at its free input, so that no further sum is needed. A negative digit adds the
// complement, and the one that is missing is the carry into the next sum; the last digit is not negative.
//
// CORNER gives the strip a tile of its own, lower bits of a by the upper TILE_A bits of b, which leaves a corner for the LUTs.
//
// WIDTH_A, WIDTH_B  TILE_A + 2 <= WIDTH_A <= TILE_A + TILE_B, TILE_B < WIDTH_B <= 2 TILE_B and TILE_A + TILE_B;
//                   with CORNER, both are the same
// TILE_A, TILE_B    width of a tile, unsigned: 24 x 17 for Xilinx DSP48
// CORNER            three tiles
// ADDEND            0 or 1
// The inputs should come from registers: sums stand before the first ones.
// Latency: toroid_pkg::mul_strip_latency
module mul_strip #(
    parameter int WIDTH_A = 33,
    parameter int WIDTH_B = 33,
    parameter int TILE_A  = 24,
    parameter int TILE_B  = 17,
    parameter bit CORNER  = 0,
    parameter bit ADDEND  = 0
) (
    input  logic                       clk_i,
    input  logic [        WIDTH_A-1:0] a_i,
    input  logic [        WIDTH_B-1:0] b_i,
    output logic [WIDTH_A+WIDTH_B-1:0] p_o
);
  if (WIDTH_A < TILE_A + 2 || WIDTH_A > TILE_A + TILE_B || WIDTH_B <= TILE_B || WIDTH_B > 2 * TILE_B || WIDTH_B > TILE_A + TILE_B) begin : g_check
    $fatal(1, "mul_strip: WIDTH_A or WIDTH_B does not fit the tiles");
  end
  if (CORNER && WIDTH_A != WIDTH_B) begin : g_check_corner
    $fatal(1, "mul_strip: CORNER needs WIDTH_A = WIDTH_B");
  end

  localparam int StripA = WIDTH_A - TILE_A;
  localparam int StripB = CORNER ? WIDTH_B - TILE_A : WIDTH_B;
  localparam int Digits = StripA / 2 + 1;
  localparam int Each = toroid_pkg::mul_strip_digits(CORNER);
  localparam int Cycles = toroid_pkg::ceil_div(Digits - 1, Each);
  // Cycles before the operands of the first tile of the upper bits.
  localparam int Wait = Cycles - 1 + int'(CORNER);

  // The operands, and as they were 1 to Wait + 1 cycles ago.
  logic [WIDTH_A-1:0] a[Wait+2];
  logic [WIDTH_B-1:0] b[Wait+2];
  assign a[0] = a_i;
  assign b[0] = b_i;
  always_ff @(posedge clk_i) begin
    for (int n = 1; n < Wait + 2; n++) begin
      a[n] <= a[n-1];
      b[n] <= b[n-1];
    end
  end

  // total: the digits up to this one, less what has been settled, less one in place of the last digit if it is negative.
  logic [StripA-1:0] low;
  for (genvar n = 0; n < Digits; n++) begin : g_digit
    localparam int Now = n == 0 ? 0 : (n - 1) / Each;
    localparam bit Last = n == Digits - 1;
    logic [2:0] digit;
    logic negative, one, two;
    logic [StripB+1:0] multiple;
    // The last one is not negative, and nothing is in its upper bits.
    // verilator lint_off UNUSEDSIGNAL
    logic [StripB+3:0] total;
    // verilator lint_on UNUSEDSIGNAL
    assign digit = 3'({a[Now][StripA-1:0], 1'b0} >> 2 * n);
    assign negative = digit[2];
    assign one = digit[1] ^ digit[0];
    assign two = digit[2] ^ digit[1];
    // 2 b where the digit is even and not zero.
    assign multiple = {(StripB + 2) {negative}} ^ (one ? {2'b0, b[Now][StripB-1:0]} : two ? {1'b0, b[Now][StripB-1:0], 1'b0} : '0);
    if (n == 0) begin : g_sum
      assign total = {{2{negative}}, multiple};
    end else begin : g_sum
      localparam bit Registered = Last || n % Each == 0;
      logic [StripB+3:0] above, total_d;
      logic carry, unused_carry;
      if (n == 1) begin : g_above
        assign above = g_digit[0].total;
        assign carry = g_digit[0].negative;
      end else begin : g_above
        assign above = {{2{g_digit[n-1].total[StripB+3]}}, g_digit[n-1].total[StripB+3:2]};
        delay #(
            .WIDTH (1),
            .CYCLES(int'((n - 1) % Each == 0))
        ) i_carry (
            .clk_i,
            .d_i(g_digit[n-1].negative),
            .q_o(carry)
        );
      end
      assign {total_d, unused_carry} = {above, 1'b1} + {multiple, 1'b0, ADDEND && n == 1, carry};
      delay #(
          .WIDTH (StripB + 4),
          .CYCLES(int'(Registered))
      ) i_total (
          .clk_i,
          .d_i(total_d),
          .q_o(total)
      );
      if (!Last) begin : g_low
        delay #(
            .WIDTH (2),
            .CYCLES(Cycles - Now - int'(Registered))
        ) i_low (
            .clk_i,
            .d_i(total[1:0]),
            .q_o(low[2*n-2+:2])
        );
      end else begin : g_low
        assign low[StripA-1:2*n-2] = total[StripA-2*n+1:0];
      end
    end
  end

  // The strip above its lowest StripA bits.
  logic [WIDTH_B-1:0] strip;
  logic [ StripB-1:0] corner;
  assign corner = g_digit[Digits-1].total[StripA-2*Digits+4+:StripB];
  if (CORNER) begin : g_corner
    logic [WIDTH_B-1:0] m_q;
    always_ff @(posedge clk_i) begin
      m_q   <= WIDTH_B'(a[Wait-1][StripA-1:0]) * WIDTH_B'(b[Wait-1][WIDTH_B-1:StripB]);
      strip <= m_q + WIDTH_B'(corner);
    end
  end else begin : g_strip
    assign strip = corner;
  end

  localparam int WidthB = WIDTH_B - TILE_B;
  logic [TILE_A+TILE_B-1:0] m0_q;
  logic [  TILE_A+TILE_B:0] p0_q;
  logic [TILE_A+WidthB-1:0] m1_q, p1_q;
  always_ff @(posedge clk_i) begin
    m0_q <= (TILE_A + TILE_B)'(a[Wait][WIDTH_A-1:StripA]) * (TILE_A + TILE_B)'(b[Wait][TILE_B-1:0]);
    m1_q <= (TILE_A + WidthB)'(a[Wait+1][WIDTH_A-1:StripA]) * (TILE_A + WidthB)'(b[Wait+1][WIDTH_B-1:TILE_B]);
    p0_q <= (TILE_A + TILE_B + 1)'(m0_q) + (TILE_A + TILE_B + 1)'(strip);
    p1_q <= m1_q + (TILE_A + WidthB)'(p0_q[TILE_A+TILE_B:TILE_B]);
  end
  assign p_o[WIDTH_A+WIDTH_B-1:StripA+TILE_B] = p1_q;
  delay #(
      .WIDTH (TILE_B),
      .CYCLES(1)
  ) i_middle (
      .clk_i,
      .d_i(p0_q[TILE_B-1:0]),
      .q_o(p_o[StripA+:TILE_B])
  );
  delay #(
      .WIDTH (StripA),
      .CYCLES(2 + int'(CORNER))
  ) i_low (
      .clk_i,
      .d_i(low),
      .q_o(p_o[StripA-1:0])
  );
endmodule
