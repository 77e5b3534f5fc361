// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_mul: p = a * b / R modulo q, one product a cycle, for any odd q = 1 modulo 2^WORD, as every prime of an
// NTT.
//
// R = 2^(WORD * ceil(WIDTH / WORD)). With b = w * R modulo q, the product is a * w: twiddles are stored that way.
// Montgomery's reduction word by word; each step multiplies one word by the upper part of q (see montgomery_step).
//
// q_i             the modulus, which comes with its operands; q = 1 modulo 2^WORD, q < 2^WIDTH
// WIDTH           width of a word, up to 64
// WORD            1 to WIDTH - 1; 2 N divides q - 1 for a negacyclic NTT of length N, so WORD <= log2(2 N) always holds
// TILE_A, TILE_B  tiles of the multipliers (see mul_tiles)
// SHORT           fewer, longer stages
// Latency: toroid_pkg::montgomery_mul_latency
// Source: P. L. Montgomery, Modular multiplication without trial division, 1985
module montgomery_mul #(
    parameter int WIDTH  = 64,
    parameter int WORD   = 16,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT  = 0
) (
    input  logic             clk_i,
    // Its lowest bits are those of 1.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [WIDTH-1:0] q_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    output logic [WIDTH-1:0] p_o
);
  if (WIDTH < 2 || WIDTH > 64 || WORD < 1 || WORD >= WIDTH) begin : g_check
    $fatal(1, "montgomery_mul: 2 <= WIDTH <= 64 and 1 <= WORD < WIDTH are needed");
  end

  localparam int Steps = toroid_pkg::ceil_div(WIDTH, WORD);
  localparam int StepLatency = toroid_pkg::mul_latency(WIDTH - WORD, WORD, TILE_A, TILE_B, SHORT);

  for (genvar n = 0; n <= Steps; n++) begin : g_step
    localparam int Width = toroid_pkg::montgomery_width(WIDTH, WORD, n);
    logic [Width-1:0] x;
    // q / 2^WORD, beside x.
    logic [WIDTH-WORD-1:0] q;
    if (n == 0) begin : g_product
      delay #(
          .WIDTH (WIDTH - WORD),
          .CYCLES(toroid_pkg::mul_latency(WIDTH, WIDTH, TILE_A, TILE_B, SHORT))
      ) i_delay_q (
          .clk_i,
          .d_i(q_i[WIDTH-1:WORD]),
          .q_o(q)
      );
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
    end else begin : g_word
      localparam int WidthX = toroid_pkg::montgomery_width(WIDTH, WORD, n - 1);
      logic [WidthX-1:0] x_late;
      logic [ WIDTH-1:0] p;
      logic [ Width-1:0] x_d;
      mul_tiles #(
          .WIDTH_A(WIDTH - WORD),
          .WIDTH_B(WORD),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT)
      ) i_mul (
          .clk_i,
          .a_i(g_step[n-1].q),
          .b_i(-g_step[n-1].x[WORD-1:0]),
          .p_o(p)
      );
      delay #(
          .WIDTH (WidthX),
          .CYCLES(StepLatency)
      ) i_delay (
          .clk_i,
          .d_i(g_step[n-1].x),
          .q_o(x_late)
      );
      delay #(
          .WIDTH (WIDTH - WORD),
          .CYCLES(StepLatency + 1)
      ) i_delay_q (
          .clk_i,
          .d_i(g_step[n-1].q),
          .q_o(q)
      );
      montgomery_step #(
          .WORD   (WORD),
          .WIDTH_X(WidthX),
          .WIDTH_P(WIDTH),
          .WIDTH_R(Width)
      ) i_step (
          .x_i(x_late),
          .p_i(p),
          .r_o(x_d)
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
      .q_i({g_step[Steps].q, WORD'(1)}),
      .x_i(g_step[Steps].x),
      .r_o(p_d)
  );
  always_ff @(posedge clk_i) p_o <= p_d;
endmodule
