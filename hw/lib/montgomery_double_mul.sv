// montgomery_double_mul: p = a * b / R modulo a fixed q = 1 modulo 2^WORD, one product a cycle.
//
// R = 2^(2 * WORD * ceil(WIDTH / (2 * WORD))). As montgomery_mul, but each step clears two words (see
// montgomery_double_step): half of the products, with q known at elaboration. At WIDTH = 32 and WORD = 8 these are two
// of 24 x 16 bits, a DSP tile each.
//
// Q                  the modulus, 1 modulo 2^WORD, below 2^WIDTH
// WIDTH              width of a word, up to 64
// WORD               1 or more, 2 * WORD < 2 * WIDTH
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
  if (WIDTH < 2 || WIDTH > 64 || WORD < 1 || WORD >= WIDTH) begin : g_check
    $fatal(1, "montgomery_double_mul: 2 <= WIDTH <= 64 and 1 <= WORD < WIDTH are needed");
  end
  if (Q[WORD-1:0] != WORD'(1) || 65'(Q) >> WIDTH != 65'd0) begin : g_check_q
    $fatal(1, "montgomery_double_mul: Q must be 1 modulo 2^WORD and below 2^WIDTH");
  end

  localparam int Steps = toroid_pkg::ceil_div(WIDTH, 2 * WORD);
  localparam int StepLatency = toroid_pkg::mul_latency(WIDTH - WORD, 2 * WORD, TILE_A, TILE_B, SHORT);
  localparam logic [WIDTH-WORD-1:0] H = Q[WIDTH-1:WORD];

  for (genvar n = 0; n <= Steps; n++) begin : g_step
    localparam int Width = toroid_pkg::montgomery_width(WIDTH, 2 * WORD, n);
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
      localparam int WidthX = toroid_pkg::montgomery_width(WIDTH, 2 * WORD, n - 1);
      localparam int WidthP = WIDTH + WORD;
      logic [WidthX-1:0] x_late;
      logic [WidthP-1:0] p;
      logic [2*WORD-1:0] m;
      logic [  WORD-1:0] m_late;
      logic [ Width-1:0] x_d;
      mul_tiles #(
          .WIDTH_A(WIDTH - WORD),
          .WIDTH_B(2 * WORD),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT)
      ) i_mul (
          .clk_i,
          .a_i(H),
          .b_i(m),
          .p_o(p)
      );
      delay #(
          .WIDTH (WidthX + WORD),
          .CYCLES(StepLatency)
      ) i_delay (
          .clk_i,
          .d_i({g_step[n-1].x, m[2*WORD-1:WORD]}),
          .q_o({x_late, m_late})
      );
      montgomery_double_step #(
          .WORD   (WORD),
          .H      (WORD'(H)),
          .WIDTH_X(WidthX),
          .WIDTH_P(WidthP),
          .WIDTH_R(Width)
      ) i_step (
          .low_i(g_step[n-1].x[2*WORD-1:0]),
          .m_o  (m),
          .x_i  (x_late),
          .m_i  (m_late),
          .p_i  (p),
          .r_o  (x_d)
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
