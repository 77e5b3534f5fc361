// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_double_mul: p = a * b / R modulo a fixed q = 1 modulo 2^WORD, one product a cycle.
//
// R = 2^(2 * WORD * ceil(WIDTH / (2 * WORD))). As montgomery_mul, but each step clears two words (see
// montgomery_wide_step): half of the products, with q known at elaboration, so that those by g are sums of shifted words.
// At WIDTH = 32 and WORD = 8 two products of 24 x 16 bits are left, a DSP tile each.
//
// Q                  the modulus, 1 modulo 2^WORD, below 2^WIDTH
// WIDTH              width of a word, up to 64
// WORD               2 to WIDTH - 1
// TILE_A, TILE_B, SHORT  see mul_tiles
// Latency: toroid_pkg::montgomery_double_latency
// Source: P. L. Montgomery, Modular multiplication without trial division, 1985
module montgomery_double_mul #(
    parameter logic [63:0] Q = 64'd4244570881,
    parameter int WIDTH = 32,
    parameter int WORD = 8,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0
) (
    input  logic             clk_i,
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    output logic [WIDTH-1:0] p_o
);
  if (WIDTH > 64 || WORD < 2 || WORD >= WIDTH) begin : g_check
    $fatal(1, "montgomery_double_mul: WIDTH <= 64 and 2 <= WORD < WIDTH are needed");
  end
  if (Q[WORD-1:0] != WORD'(1) || 65'(Q) >> WIDTH != 65'd0) begin : g_check_q
    $fatal(1, "montgomery_double_mul: Q must be 1 modulo 2^WORD and below 2^WIDTH");
  end

  localparam int Step = 2 * WORD;
  localparam int Steps = toroid_pkg::ceil_div(WIDTH, Step);
  localparam int StepLatency = toroid_pkg::mul_latency(WIDTH - WORD, Step, TILE_A, TILE_B, SHORT);
  localparam logic [WIDTH-WORD-1:0] H = Q[WIDTH-1:WORD];

  for (genvar n = 0; n <= Steps; n++) begin : g_step
    localparam int Width = toroid_pkg::montgomery_width(WIDTH, Step, n);
    logic [Width-1:0] x;
    if (n == 0) begin : g_product
      mul_tiles #(
          .WIDTH_A(WIDTH),
          .WIDTH_B(WIDTH),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT)
      ) i_mul (
          .clk_i,
          .a_i,
          .b_i,
          .p_o(x)
      );
    end else begin : g_words
      localparam int WidthX = toroid_pkg::montgomery_width(WIDTH, Step, n - 1) - Step;
      logic [Step-1:0] y, m;
      logic [WORD-1:0] g, t;
      logic borrow, carry, borrow_late, carry_late;
      logic [WidthX-1:0] x_late;
      logic [ WIDTH-1:0] p;
      logic [  WORD-1:0] unused_low;
      logic [ Width-1:0] x_d;
      assign y = g_step[n-1].x[Step-1:0];
      montgomery_wide_inverse #(
          .WORD(WORD),
          .STEP(Step)
      ) i_inverse (
          .h_i(WORD'(H)),
          .g_o(g)
      );
      always_comb begin
        t = '0;
        for (int bit_n = 0; bit_n < WORD; bit_n++) t += (y[WORD-1:0] << bit_n) & {WORD{g[bit_n]}};
      end
      mul_tiles #(
          .WIDTH_A(WIDTH - WORD),
          .WIDTH_B(Step),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT)
      ) i_mul (
          .clk_i,
          .a_i(H),
          .b_i(m),
          .p_o({p, unused_low})
      );
      delay #(
          .WIDTH (WidthX + 2),
          .CYCLES(StepLatency)
      ) i_delay (
          .clk_i,
          .d_i({g_step[n-1].x[WidthX+Step-1:Step], borrow, carry}),
          .q_o({x_late, borrow_late, carry_late})
      );
      montgomery_wide_step #(
          .WORD   (WORD),
          .STEP   (Step),
          .WIDTH_X(WidthX),
          .WIDTH_P(WIDTH),
          .WIDTH_R(Width)
      ) i_step (
          .y_i     (y),
          .t_i     (t),
          .m_o     (m),
          .borrow_o(borrow),
          .carry_o (carry),
          .x_i     (x_late),
          .p_i     (p),
          .borrow_i(borrow_late),
          .carry_i (carry_late),
          .r_o     (x_d)
      );
      always_ff @(posedge clk_i) x <= x_d;
    end
  end

  // x < q^2 / R + q < 2 q
  logic [WIDTH-1:0] p_d;
  mod_canonical #(
      .WIDTH  (WIDTH),
      .WIDTH_X(WIDTH + 1)
  ) i_canonical (
      .q_i(Q[WIDTH-1:0]),
      .x_i(g_step[Steps].x),
      .r_o(p_d)
  );
  always_ff @(posedge clk_i) p_o <= p_d;
endmodule
