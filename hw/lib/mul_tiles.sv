// mul_tiles: p = a * b, one product a cycle, from tiles that fit the multipliers of an FPGA.
//
// Row r multiplies tile r of a by every tile of b; the products of a row run through one accumulating chain, which
// is the cascade of DSP48 slices (its shift is TILE_B = 17): p(r, j) = a(r) * b(j) + (p(r, j - 1) >> TILE_B). The rows
// are then added, one a cycle. Every operand and every product of a tile is registered.
//
// WIDTH_A, WIDTH_B >= 1
// TILE_A, TILE_B   width of a tile, unsigned: 24 x 17 for Xilinx DSP48, 18 x 18 for ECP5
// SIGNED_B         b and p are in two's complement; a is unsigned always
// Latency: toroid_pkg::mul_latency
module mul_tiles #(
    parameter int WIDTH_A  = 64,
    parameter int WIDTH_B  = 64,
    parameter int TILE_A   = 24,
    parameter int TILE_B   = 17,
    parameter bit SIGNED_B = 0
) (
    input  logic                       clk_i,
    input  logic [        WIDTH_A-1:0] a_i,
    input  logic [        WIDTH_B-1:0] b_i,
    output logic [WIDTH_A+WIDTH_B-1:0] p_o
);
  if (WIDTH_A < 1 || WIDTH_B < 1) begin : g_check_1
    $fatal(1, "mul_tiles: WIDTH_A and WIDTH_B must be at least 1");
  end
  if (TILE_A < 2 || TILE_B < 2) begin : g_check_2
    $fatal(1, "mul_tiles: TILE_A and TILE_B must be at least 2");
  end

  localparam int TILES_A = toroid_pkg::ceil_div(WIDTH_A, TILE_A);
  localparam int TILES_B = toroid_pkg::ceil_div(WIDTH_B, TILE_B);
  localparam int TOP_B = WIDTH_B - (TILES_B - 1) * TILE_B;

  // Tile j of b enters the chains j cycles after tile 0.
  logic [WIDTH_B-1:0] b_q;
  for (genvar j = 0; j < TILES_B; j++) begin : g_b
    localparam int TileWidth = j == TILES_B - 1 ? TOP_B : TILE_B;
    delay #(
        .WIDTH (TileWidth),
        .CYCLES(1 + j)
    ) i_delay (
        .clk_i,
        .d_i(b_i[j*TILE_B+:TileWidth]),
        .q_o(b_q[j*TILE_B+:TileWidth])
    );
  end

  // sum: rows 0 to r, less the digits that the rows before have settled.
  for (genvar r = 0; r < TILES_A; r++) begin : g_row
    localparam int WidthA = r == TILES_A - 1 ? WIDTH_A - r * TILE_A : TILE_A;
    localparam int RowWidth = WidthA + WIDTH_B;
    logic [RowWidth-1:0] row, sum;

    for (genvar j = 0; j < TILES_B; j++) begin : g_tile
      localparam bit Last = j == TILES_B - 1;
      localparam int WidthB = Last ? TOP_B : TILE_B;
      localparam int Width = WidthA + WidthB;
      logic [WidthA-1:0] a_q;
      logic [Width-1:0] m_q, p_q;
      if (j == 0) begin : g_first
        always_ff @(posedge clk_i) a_q <= a_i[r*TILE_A+:WidthA];
        always_ff @(posedge clk_i) p_q <= m_q;
      end else begin : g_next
        always_ff @(posedge clk_i) a_q <= g_tile[j-1].a_q;
        always_ff @(posedge clk_i) p_q <= m_q + Width'(g_tile[j-1].p_q[WidthA+TILE_B-1:TILE_B]);
      end
      if (Last && SIGNED_B) begin : g_signed
        always_ff @(posedge clk_i) m_q <= Width'($signed({1'b0, a_q})) * Width'($signed(b_q[j*TILE_B+:WidthB]));
      end else begin : g_unsigned
        always_ff @(posedge clk_i) m_q <= Width'(a_q) * Width'(b_q[j*TILE_B+:WidthB]);
      end
      if (Last) begin : g_last
        assign row[RowWidth-1:j*TILE_B] = p_q;
      end else begin : g_digit
        delay #(
            .WIDTH (TILE_B),
            .CYCLES(TILES_B - 1 - j)
        ) i_delay (
            .clk_i,
            .d_i(p_q[TILE_B-1:0]),
            .q_o(row[j*TILE_B+:TILE_B])
        );
      end
    end

    if (r == 0) begin : g_sum
      assign sum = row;
    end else begin : g_sum
      logic [  RowWidth-1:0] row_q;
      logic [WIDTH_B-1:0] carry;
      delay #(
          .WIDTH (RowWidth),
          .CYCLES(r - 1)
      ) i_delay (
          .clk_i,
          .d_i(row),
          .q_o(row_q)
      );
      assign carry = g_row[r-1].sum[WIDTH_B+TILE_A-1:TILE_A];
      if (SIGNED_B) begin : g_signed
        always_ff @(posedge clk_i) sum <= row_q + RowWidth'($signed(carry));
      end else begin : g_unsigned
        always_ff @(posedge clk_i) sum <= row_q + RowWidth'(carry);
      end
    end

    if (r == TILES_A - 1) begin : g_top
      assign p_o[WIDTH_A+WIDTH_B-1:r*TILE_A] = sum;
    end else begin : g_low
      delay #(
          .WIDTH (TILE_A),
          .CYCLES(TILES_A - 1 - r)
      ) i_delay (
          .clk_i,
          .d_i(sum[TILE_A-1:0]),
          .q_o(p_o[r*TILE_A+:TILE_A])
      );
    end
  end
endmodule
