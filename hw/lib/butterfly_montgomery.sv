// SPDX-License-Identifier: Apache-2.0 OR MIT
// butterfly_montgomery: the butterfly of one direction on canonical words, one per cycle, for any q = 1 modulo 2^WORD,
// which may change from cycle to cycle; or, with Barrett's reduction in place of Montgomery's, for one modulus.
//
// INVERSE = 0 (Cooley-Tukey):     a' = a + b * w        b' = a - b * w
// INVERSE = 1 (Gentleman-Sande):  a' = (a + b) / 2      b' = (a - b) * w    (w has the half of b' in it)
//
// A twiddle is given times R modulo q (see montgomery_mul), or as it is with Barrett's reduction.
//
// q_i             the modulus, which comes with its operands
// BARRETT         0: Montgomery's reduction; else the modulus of Barrett's, 1 modulo 2^WORD too, which q_i must be
// WIDTH, WORD     see montgomery_mul
// INVERSE         direction
// BYPASS          bypass_i = 1 hands a and b through beside butterflies of other cycles; for INVERSE = 1, w must be 1
//                 then.
//                 BYPASS = 0: there is no such thing.
// TILE_A, TILE_B, SHORT  see mul_tiles
// Latency: toroid_pkg::butterfly_montgomery_latency; with Barrett's reduction toroid_pkg::barrett_mul_latency + 1
module butterfly_montgomery #(
    parameter int WIDTH = 64,
    parameter int WORD = 16,
    parameter logic [WIDTH-1:0] BARRETT = '0,
    parameter bit INVERSE = 0,
    parameter bit BYPASS = 0,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0
) (
    input  logic             clk_i,
    input  logic [WIDTH-1:0] q_i,
    // Without BYPASS it is not used.
    // verilator lint_off UNUSEDSIGNAL
    input  logic             bypass_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    input  logic [WIDTH-1:0] w_i,
    output logic [WIDTH-1:0] a_o,
    output logic [WIDTH-1:0] b_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  if (BARRETT != 0 && BARRETT[WORD-1:0] != WORD'(1)) begin : g_check
    $fatal(1, "butterfly_montgomery: BARRETT must be 1 modulo 2^WORD");
  end

  localparam int ProductLatency = BARRETT != 0 ? toroid_pkg::barrett_mul_latency(
      64'(BARRETT), TILE_A, TILE_B, SHORT
  ) : toroid_pkg::montgomery_mul_latency(
      WIDTH, WORD, TILE_A, TILE_B, SHORT
  );

  logic bypass;
  assign bypass = BYPASS && bypass_i;

  // The sum and the difference: of a and the product behind it, or of a and b before it.
  logic [WIDTH-1:0] q, a, b, minuend, subtrahend, sum, difference;
  mod_add #(
      .WIDTH(WIDTH)
  ) i_sum (
      .q_i(q),
      .a_i(a),
      .b_i(b),
      .s_o(sum)
  );
  mod_sub #(
      .WIDTH(WIDTH)
  ) i_difference (
      .q_i(q),
      .a_i(minuend),
      .b_i(subtrahend),
      .d_o(difference)
  );

  logic [WIDTH-1:0] product_q, factor, w, p;
  if (BARRETT != 0) begin : g_barrett
    logic unused_q;
    assign unused_q = ^product_q;
    barrett_mul #(
        .WIDTH (WIDTH),
        .Q     (BARRETT),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .a_i(w),
        .b_i(factor),
        .p_o(p)
    );
  end else begin : g_montgomery
    montgomery_mul #(
        .WIDTH (WIDTH),
        .WORD  (WORD),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .q_i(product_q),
        .a_i(w),
        .b_i(factor),
        .p_o(p)
    );
  end

  if (!INVERSE) begin : g_ct
    logic bypass_late;
    logic [WIDTH-WORD-1:0] q_late;
    logic [WIDTH-1:0] b_late;
    assign product_q = q_i;
    assign factor = b_i;
    assign w = w_i;
    delay #(
        .WIDTH (2 * WIDTH - WORD + 1),
        .CYCLES(ProductLatency)
    ) i_delay (
        .clk_i,
        .d_i({bypass, q_i[WIDTH-1:WORD], a_i}),
        .q_o({bypass_late, q_late, a})
    );
    if (BYPASS) begin : g_bypass
      delay #(
          .WIDTH (WIDTH),
          .CYCLES(ProductLatency)
      ) i_delay (
          .clk_i,
          .d_i(b_i),
          .q_o(b_late)
      );
    end else begin : g_always
      assign b_late = a;
    end
    assign q = {q_late, WORD'(1)};
    assign b = p & {WIDTH{!bypass_late}};
    assign minuend = bypass_late ? b_late : a;
    assign subtrahend = b;
    always_ff @(posedge clk_i) begin
      a_o <= sum;
      b_o <= difference;
    end
  end else begin : g_gs
    logic bypass_q;
    logic [WIDTH-1:0] q_q, sum_q, difference_q, w_q, half;
    assign q = q_i;
    assign a = a_i;
    assign b = b_i & {WIDTH{!bypass}};
    assign minuend = bypass ? b_i : a_i;
    assign subtrahend = b;
    always_ff @(posedge clk_i) begin
      bypass_q <= bypass;
      q_q <= q_i;
      sum_q <= sum;
      difference_q <= difference;
      w_q <= w_i;
    end
    assign product_q = q_q;
    assign factor = difference_q;
    assign w = w_q;
    mod_half #(
        .WIDTH(WIDTH)
    ) i_half (
        .q_i(q_q),
        .x_i(sum_q),
        .h_o(half)
    );
    delay #(
        .WIDTH (WIDTH),
        .CYCLES(ProductLatency)
    ) i_delay (
        .clk_i,
        .d_i(bypass_q ? sum_q : half),
        .q_o(a_o)
    );
    assign b_o = p;
  end
endmodule
