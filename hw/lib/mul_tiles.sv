// SPDX-License-Identifier: Apache-2.0 OR MIT
// mul_tiles: p = a * b + ADDEND, one product a cycle, from tiles that fit the multipliers of an FPGA.
//
// Row r multiplies tile r of a by every tile of b; the products of a row run through one accumulating chain, which
// is the cascade of DSP48 slices (its shift is TILE_B = 17): p(r, j) = a(r) * b(j) + (p(r, j - 1) >> TILE_B). The rows
// are then added, one per cycle. Every operand and every product of a tile is registered.
//
// A signed b would need sign extensions in every sum of rows. Instead the top bit of each row is inverted, which adds
// toroid_pkg::mul_bias to the product; ADDEND, which enters the chains at their free input, is there to cancel it modulo q.
//
// The sums of rows are the longest carry chains. CUT ends them at one bit of the product: the carry into it waits from row to
// row, where it enters the upper part, and the last one leaves beside the product, for a later sum that has room for it.
//
// WIDTH_A, WIDTH_B >= 1
// TILE_A, TILE_B   width of a tile, unsigned: 24 x 17 for Xilinx DSP48, 18 x 18 for ECP5
// SIGNED_B         b is in two's complement, and p = a * b + ADDEND + mul_bias, without sign, one bit wider
// ADDEND           < 2^WIDTH_A
// CUT              0, or a bit that all sums of rows have above their lowest: the top bit of p is then that carry, and the
//                  bits below it are the product less 2^CUT times the carry
// SHORT            three cycles: operands, products, and the sum of all of them at once, in LUTs
// NARROW           with SHORT: rows of at most these bits are multiplied in LUTs, without tiles: the last one, or all where
//                  TILE_A is no larger
// Latency: toroid_pkg::mul_latency
module mul_tiles #(
    parameter int WIDTH_A = 64,
    parameter int WIDTH_B = 64,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SIGNED_B = 0,
    parameter logic [WIDTH_A-1:0] ADDEND = '0,
    parameter int CUT = 0,
    parameter bit SHORT = 0,
    parameter int NARROW = 0,
    localparam int WidthP = WIDTH_A + WIDTH_B + int'(SIGNED_B) + int'(CUT > 0)
) (
    input  logic               clk_i,
    input  logic [WIDTH_A-1:0] a_i,
    input  logic [WIDTH_B-1:0] b_i,
    output logic [ WidthP-1:0] p_o
);
  if (WIDTH_A < 1 || WIDTH_B < 1) begin : g_check_width
    $fatal(1, "mul_tiles: WIDTH_A and WIDTH_B must be at least 1");
  end
  if (TILE_A < 2 || TILE_B < 2) begin : g_check_tile
    $fatal(1, "mul_tiles: TILE_A and TILE_B must be at least 2");
  end

  if (NARROW < 0 || NARROW > 0 && (!SHORT || SIGNED_B)) begin : g_check_narrow
    $fatal(1, "mul_tiles: NARROW needs SHORT and an unsigned b");
  end

  localparam int TilesA = toroid_pkg::ceil_div(WIDTH_A, TILE_A);
  localparam int TilesB = toroid_pkg::ceil_div(WIDTH_B, TILE_B);
  localparam int TopB = WIDTH_B - (TilesB - 1) * TILE_B;
  localparam int CarryWidth = WIDTH_B + int'(SIGNED_B);

  if (CUT != 0 && (CUT <= (TilesA - 1) * TILE_A || CUT >= WIDTH_A + CarryWidth)) begin : g_check_cut
    $fatal(1, "mul_tiles: CUT must lie above the lowest bit of the last row and below the top of the product");
  end

  logic [WidthP-1:0] p_d;
  delay #(
      .WIDTH (WidthP),
      .CYCLES(SHORT ? 1 : 0)
  ) i_product (
      .clk_i,
      .d_i(p_d),
      .q_o(p_o)
  );

  for (genvar r = 0; r < TilesA; r++) begin : g_row
    localparam int WidthA = r == TilesA - 1 ? WIDTH_A - r * TILE_A : TILE_A;
    localparam int RowWidth = WidthA + WIDTH_B;
    localparam int TotalWidth = WidthA + CarryWidth;

    // Tile j of b enters its chain j cycles after tile 0, and each row from the third on one cycle after the row before.
    logic [WIDTH_B-1:0] b_q;
    logic [ WidthA-1:0] a;
    if (r < 2) begin : g_together
      for (genvar j = 0; j < TilesB; j++) begin : g_b
        localparam int WidthB = j == TilesB - 1 ? TopB : TILE_B;
        delay #(
            .WIDTH (WidthB),
            .CYCLES(SHORT ? 1 : 1 + j)
        ) i_delay (
            .clk_i,
            .d_i(b_i[j*TILE_B+:WidthB]),
            .q_o(b_q[j*TILE_B+:WidthB])
        );
      end
      assign a = a_i[r*TILE_A+:WidthA];
    end else begin : g_later
      delay #(
          .WIDTH (WIDTH_B),
          .CYCLES(SHORT ? 0 : 1)
      ) i_delay_b (
          .clk_i,
          .d_i(g_row[r-1].b_q),
          .q_o(b_q)
      );
      delay #(
          .WIDTH (WidthA),
          .CYCLES(SHORT ? 0 : r - 1)
      ) i_delay_a (
          .clk_i,
          .d_i(a_i[r*TILE_A+:WidthA]),
          .q_o(a)
      );
    end

    // total: rows 0 to r, less the digits that the rows before have settled.
    logic [  RowWidth-1:0] row;
    logic [TotalWidth-1:0] total;
    if (WidthA <= NARROW) begin : g_narrow
      // Shifted copies of b, all added at once.
      logic [WidthA-1:0] a_q;
      logic [RowWidth-1:0] m, m_q;
      always_comb begin
        m = RowWidth'(ADDEND[r*TILE_A+:WidthA]);
        for (int n = 0; n < WidthA; n++) m += RowWidth'(b_q & {WIDTH_B{a_q[n]}}) << n;
      end
      always_ff @(posedge clk_i) begin
        a_q <= a;
        m_q <= m;
      end
      assign row = m_q;
    end
    for (genvar j = 0; j < TilesB && WidthA > NARROW; j++) begin : g_tile
      localparam bit Last = j == TilesB - 1;
      localparam int WidthB = Last ? TopB : TILE_B;
      localparam int Width = WidthA + WidthB;
      logic [WidthA-1:0] a_q;
      logic [Width-1:0] m_q, carry, p;
      if (j == 0 || SHORT) begin : g_operand
        always_ff @(posedge clk_i) a_q <= a;
      end else begin : g_operand
        always_ff @(posedge clk_i) a_q <= g_tile[j-1].a_q;
      end
      if (j == 0) begin : g_carry
        assign carry = Width'(ADDEND[r*TILE_A+:WidthA]);
      end else begin : g_carry
        assign carry = Width'(g_tile[j-1].p[WidthA+TILE_B-1:TILE_B]);
      end
      delay #(
          .WIDTH (Width),
          .CYCLES(SHORT ? 0 : 1)
      ) i_p (
          .clk_i,
          .d_i(m_q + carry),
          .q_o(p)
      );
      if (Last && SIGNED_B) begin : g_signed
        always_ff @(posedge clk_i) m_q <= Width'($signed({1'b0, a_q})) * Width'($signed(b_q[j*TILE_B+:WidthB]));
      end else begin : g_unsigned
        always_ff @(posedge clk_i) m_q <= Width'(a_q) * Width'(b_q[j*TILE_B+:WidthB]);
      end
      if (Last) begin : g_last
        assign row[RowWidth-1:j*TILE_B] = {p[Width-1] ^ SIGNED_B, p[Width-2:0]};
      end else begin : g_digit
        delay #(
            .WIDTH (TILE_B),
            .CYCLES(SHORT ? 0 : TilesB - 1 - j)
        ) i_delay (
            .clk_i,
            .d_i(p[TILE_B-1:0]),
            .q_o(row[j*TILE_B+:TILE_B])
        );
      end
    end

    // carry: what is left to add at CUT. Without one it is not used.
    // verilator lint_off UNUSEDSIGNAL
    logic carry;
    // verilator lint_on UNUSEDSIGNAL
    if (r == 0) begin : g_total
      assign total = TotalWidth'(row);
      assign carry = 1'b0;
    end else begin : g_total
      localparam int Low = CUT - r * TILE_A;
      logic [TotalWidth-1:0] above, sum;
      logic carry_d;
      assign above = TotalWidth'(g_row[r-1].total[CarryWidth+TILE_A-1:TILE_A]);
      if (CUT > 0 && Low < TotalWidth) begin : g_cut
        logic unused_carry;
        assign {carry_d, sum[Low-1:0]} = (Low + 1)'(row[Low-1:0]) + (Low + 1)'(above[Low-1:0]);
        // The carry that waited is that out of a bit below.
        assign {sum[TotalWidth-1:Low], unused_carry} = {(TotalWidth - Low)'(row[RowWidth-1:Low]), 1'b1} + {above[TotalWidth-1:Low], g_row[r-1].carry};
      end else begin : g_whole
        assign sum = TotalWidth'(row) + above;
        assign carry_d = 1'b0;
      end
      delay #(
          .WIDTH (TotalWidth + 1),
          .CYCLES(SHORT ? 0 : 1)
      ) i_total (
          .clk_i,
          .d_i({carry_d, sum}),
          .q_o({carry, total})
      );
    end

    if (r == TilesA - 1) begin : g_top
      assign p_d[WidthP-1:r*TILE_A] = (WidthP - r * TILE_A)'({carry, total});
    end else begin : g_low
      delay #(
          .WIDTH (TILE_A),
          .CYCLES(SHORT ? 0 : TilesA - 1 - r)
      ) i_delay (
          .clk_i,
          .d_i(total[TILE_A-1:0]),
          .q_o(p_d[r*TILE_A+:TILE_A])
      );
    end
  end
endmodule
