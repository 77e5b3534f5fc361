// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_lane: one multiplier of a montgomery_column, p = a * b / R modulo q.
//
// WIDTH, WORD, TILE_A, TILE_B  see montgomery_column
// h_i, g_i  q / 2^WORD and the inverse of montgomery_wide_step, of each step: h when m is there, g when x is
// q_i       q, when the last sum is there
// Latency: toroid_pkg::montgomery_wide_latency
module montgomery_lane #(
    parameter  int WIDTH  = 64,
    parameter  int WORD   = 10,
    parameter  int TILE_A = 24,
    parameter  int TILE_B = 17,
    localparam int Steps  = toroid_pkg::montgomery_wide_steps(WIDTH, WORD, TILE_A),
    localparam int Step   = toroid_pkg::montgomery_wide_bits(WIDTH, WORD, TILE_A),
    localparam int Upper  = WIDTH - WORD
) (
    input  logic                            clk_i,
    input  logic [Steps-1:0][    Upper-1:0] h_i,
    input  logic [Steps-1:0][Step-WORD-1:0] g_i,
    input  logic [WIDTH-1:0]                q_i,
    input  logic [WIDTH-1:0]                a_i,
    input  logic [WIDTH-1:0]                b_i,
    output logic [WIDTH-1:0]                p_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  localparam int Rows = toroid_pkg::ceil_div(WIDTH, TILE_A);
  localparam int Half = Step - WORD;
  // The tiles of h, of which a narrow last one is multiplied in LUTs.
  localparam int Tiles = toroid_pkg::ceil_div(Upper, TILE_B);
  localparam int WidthP = WIDTH;

  logic [Rows-1:0][2*WIDTH-1:0] rows;
  for (genvar r = 0; r < Rows; r++) begin : g_row
    localparam int WidthA = r == Rows - 1 ? WIDTH - r * TILE_A : TILE_A;
    logic [WidthA+WIDTH-1:0] row;
    mul_tiles #(
        .WIDTH_A(WidthA),
        .WIDTH_B(WIDTH),
        .TILE_A (TILE_A),
        .TILE_B (TILE_B),
        .SHORT  (1)
    ) i_mul (
        .clk_i,
        .a_i(a_i[r*TILE_A+:WidthA]),
        .b_i,
        .p_o(row)
    );
    assign rows[r] = (2 * WIDTH)'(row) << (r * TILE_A);
  end

  for (genvar n = 0; n <= Steps; n++) begin : g_step
    localparam int Width = toroid_pkg::montgomery_width(WIDTH, Step, n);
    logic [Width-1:0] x;
    if (n == 0) begin : g_product
      logic [Width-1:0] sum;
      always_comb begin
        sum = '0;
        for (int r = 0; r < Rows; r++) sum += rows[r];
      end
      always_ff @(posedge clk_i) x <= sum;
    end else begin : g_word
      localparam int WidthX = toroid_pkg::montgomery_width(WIDTH, Step, n - 1) - Step;
      logic [Half-1:0] t_q;
      logic [Step-1:0] y_q, m, m_q;
      logic borrow, borrow_q, borrow_late, carry, carry_q, carry_late;
      logic [WidthX-1:0] x_late;
      logic [WidthP-1:0] p;
      logic [ Width-1:0] x_d;
      montgomery_wide_step #(
          .WORD   (WORD),
          .STEP   (Step),
          .WIDTH_X(WidthX),
          .WIDTH_P(WidthP),
          .WIDTH_R(Width)
      ) i_step (
          .y_i     (y_q),
          .t_i     (t_q),
          .m_o     (m),
          .borrow_o(borrow),
          .carry_o (carry),
          .x_i     (x_late),
          .p_i     (p),
          .borrow_i(borrow_late),
          .carry_i (carry_late),
          .r_o     (x_d)
      );
      delay #(
          .WIDTH (WidthX),
          .CYCLES(3)
      ) i_delay (
          .clk_i,
          .d_i(g_step[n-1].x[WidthX+Step-1:Step]),
          .q_o(x_late)
      );
      always_ff @(posedge clk_i) begin
        t_q <= g_step[n-1].x[Half-1:0] * g_i[n-1];
        y_q <= g_step[n-1].x[Step-1:0];
        m_q <= m;
        {borrow_late, borrow_q} <= {borrow_q, borrow};
        {carry_late, carry_q} <= {carry_q, carry};
        x <= x_d;
      end
      // Only tile 0 reaches below 2^Half, as TILE_B >= Half.
      logic [Tiles-1:0][WidthP-1:0] terms;
      for (genvar j = 0; j < Tiles; j++) begin : g_tile
        localparam int WidthH = j == Tiles - 1 ? Upper - j * TILE_B : TILE_B;
        logic [Step+WidthH-1:0] m_h;
        if (WidthH <= 3) begin : g_narrow
          always_comb begin
            m_h = '0;
            for (int i = 0; i < WidthH; i++) m_h += (Step + WidthH)'(m_q & {Step{h_i[n-1][j*TILE_B+i]}}) << i;
          end
        end else begin : g_product
          assign m_h = (Step + WidthH)'(m_q) * (Step + WidthH)'(h_i[n-1][j*TILE_B+:WidthH]);
        end
        if (j == 0) begin : g_first
          logic [Step+WidthH-Half-1:0] m_h_q;
          always_ff @(posedge clk_i) m_h_q <= (Step + WidthH - Half)'(m_h >> Half);
          assign terms[j] = WidthP'(m_h_q);
        end else begin : g_next
          logic [Step+WidthH-1:0] m_h_q;
          always_ff @(posedge clk_i) m_h_q <= m_h;
          assign terms[j] = WidthP'(m_h_q) << (j * TILE_B - Half);
        end
      end
      always_comb begin
        p = '0;
        for (int j = 0; j < Tiles; j++) p += terms[j];
      end
    end
  end

  // x < q^2 / R + q < 2 q
  logic [WIDTH-1:0] p_d;
  mod_canonical #(
      .WIDTH  (WIDTH),
      .WIDTH_X(WIDTH + 1)
  ) i_canonical (
      .q_i,
      .x_i(g_step[Steps].x),
      .r_o(p_d)
  );
  always_ff @(posedge clk_i) p_o <= p_d;
endmodule
