// SPDX-License-Identifier: Apache-2.0 OR MIT
// butterfly_integrated: both butterflies of an NTT from one multiplier, one butterfly a cycle.
//
// inverse_i = 0 (Cooley-Tukey):     a' = a + b * w    b' = a - b * w
// inverse_i = 1 (Gentleman-Sande):  a' = a + b        b' = (b - a) * w
//
// The difference is b - a because psi^-e = -psi^(N - e): (a - b) * psi^-e = (b - a) * psi^(N - e), so that one table of
// psi^0 ... psi^(N - 1) serves both directions. inverse_i travels with its operands and may change in every cycle.
//
// Goldilocks: the difference enters the multiplier as a signed word, the sum runs beside it unreduced, and each output is
// reduced once, at the end (goldilocks_canonical). The difference is formed in front of the first registers, which are the
// multiplier's: the inputs should come from registers.
//
// KIND, WIDTH, Q  see mod_mul; with MOD_MONTGOMERY, w is the twiddle times R modulo Q
// TILE_A, TILE_B  tiles of the multiplier (see mul_tiles)
// SHORT           fewer, longer stages
// Latency: toroid_pkg::butterfly_latency in both directions
module butterfly_integrated #(
    parameter toroid_pkg::modulus_e KIND = toroid_pkg::MOD_GOLDILOCKS,
    parameter int WIDTH = 64,
    parameter logic [WIDTH-1:0] Q = WIDTH'(toroid_pkg::GOLDILOCKS),
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0
) (
    input  logic             clk_i,
    input  logic             inverse_i,
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    input  logic [WIDTH-1:0] w_i,
    output logic [WIDTH-1:0] a_o,
    output logic [WIDTH-1:0] b_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  localparam int Registers = SHORT ? 0 : 1;

  if (KIND == toroid_pkg::MOD_GOLDILOCKS) begin : g_goldilocks
    if (WIDTH != 64 || 64'(Q) != toroid_pkg::GOLDILOCKS) begin : g_check
      $fatal(1, "butterfly_integrated: MOD_GOLDILOCKS needs WIDTH = 64 and Q = 2^64 - 2^32 + 1");
    end
    localparam int ProductLatency = toroid_pkg::mul_latency(64, 65, TILE_A, TILE_B, SHORT) + (SHORT ? 1 : 2);

    // Before the multiplier, whose registers take the difference.
    logic [64:0] sum;
    logic signed [64:0] difference;
    assign sum = {1'b0, a_i} + {1'b0, b_i & {64{inverse_i}}};
    assign difference = {1'b0, b_i} - {1'b0, a_i & {64{inverse_i}}};

    // The bias of a signed operand, taken away modulo q.
    localparam logic [255:0] Bias = toroid_pkg::mul_bias(64, 65, TILE_A) % 256'(toroid_pkg::GOLDILOCKS);
    logic [130:0] product;
    logic signed [65:0] t, t_fold;
    mul_tiles #(
        .WIDTH_A (64),
        .WIDTH_B (65),
        .TILE_A  (TILE_A),
        .TILE_B  (TILE_B),
        .SIGNED_B(1),
        .ADDEND  (toroid_pkg::GOLDILOCKS - Bias[63:0]),
        .CUT     (96),
        .SHORT   (SHORT)
    ) i_mul (
        .clk_i,
        .a_i(w_i),
        .b_i(difference),
        .p_o(product)
    );
    goldilocks_fold #(
        .WIDTH     (130),
        .REGISTERED(!SHORT)
    ) i_fold (
        .clk_i,
        .x_i(product[129:0]),
        .carry_i(product[130]),
        .t_o(t_fold)
    );
    delay #(
        .WIDTH (66),
        .CYCLES(1 - Registers)
    ) i_t (
        .clk_i,
        .d_i(t_fold),
        .q_o(t)
    );

    logic inverse_early, inverse_late_q;
    logic [64:0] sum_early, sum_late_q;
    delay #(
        .WIDTH (66),
        .CYCLES(ProductLatency - 1)
    ) i_delay (
        .clk_i,
        .d_i({inverse_i, sum}),
        .q_o({inverse_early, sum_early})
    );

    // After it. The minuend is zero where the product itself is wanted: a synchronous reset, not a multiplexer.
    logic [63:0] minuend_q;
    logic signed [66:0] a, a_q, b, b_q;
    logic unused_b;
    logic [63:0] a_d, b_d;
    always_ff @(posedge clk_i) begin
      inverse_late_q <= inverse_early;
      sum_late_q <= sum_early;
      if (inverse_early) minuend_q <= '0;
      else minuend_q <= sum_early[63:0];
      a_o <= a_d;
      b_o <= b_d;
    end
    assign a = $signed({2'b0, sum_late_q}) + (67'(t) & {67{!inverse_late_q}});
    // The one that ends the complement of t is the carry out of a bit below.
    assign {b, unused_b} = {$signed({3'b0, minuend_q}), 1'b1} + {67'(t) ^ {67{!inverse_late_q}}, !inverse_late_q};
    delay #(
        .WIDTH (134),
        .CYCLES(Registers)
    ) i_back (
        .clk_i,
        .d_i({a, b}),
        .q_o({a_q, b_q})
    );
    goldilocks_canonical #(
        .LOW       (0),
        .HIGH      (3),
        .REGISTERED(!SHORT)
    ) i_canonical_a (
        .clk_i,
        .t_i(a_q),
        .r_o(a_d)
    );
    goldilocks_canonical #(
        .LOW       (-2),
        .HIGH      (2),
        .REGISTERED(!SHORT)
    ) i_canonical_b (
        .clk_i,
        .t_i(b_q),
        .r_o(b_d)
    );
  end else begin : g_any
    localparam int ProductLatency = toroid_pkg::mod_mul_latency(KIND, WIDTH, TILE_A, TILE_B, SHORT, 64'(Q));

    logic inverse_q;
    logic [WIDTH-1:0] sum, sum_q, difference, difference_q, w_q;
    mod_add #(
        .WIDTH(WIDTH)
    ) i_sum (
        .q_i(Q),
        .a_i(a_i),
        .b_i(b_i & {WIDTH{inverse_i}}),
        .s_o(sum)
    );
    mod_sub #(
        .WIDTH(WIDTH)
    ) i_difference (
        .q_i(Q),
        .a_i(b_i),
        .b_i(a_i & {WIDTH{inverse_i}}),
        .d_o(difference)
    );
    delay #(
        .WIDTH (3 * WIDTH + 1),
        .CYCLES(Registers)
    ) i_front (
        .clk_i,
        .d_i({inverse_i, sum, difference, w_i}),
        .q_o({inverse_q, sum_q, difference_q, w_q})
    );

    logic inverse_late;
    logic [WIDTH-1:0] t, sum_late, a_d, b_d;
    mod_mul #(
        .KIND  (KIND),
        .WIDTH (WIDTH),
        .Q     (Q),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .a_i(w_q),
        .b_i(difference_q),
        .p_o(t)
    );
    delay #(
        .WIDTH (WIDTH + 1),
        .CYCLES(ProductLatency)
    ) i_delay (
        .clk_i,
        .d_i({inverse_q, sum_q}),
        .q_o({inverse_late, sum_late})
    );
    mod_add #(
        .WIDTH(WIDTH)
    ) i_a (
        .q_i(Q),
        .a_i(sum_late),
        .b_i(t & {WIDTH{!inverse_late}}),
        .s_o(a_d)
    );
    mod_sub #(
        .WIDTH(WIDTH)
    ) i_b (
        .q_i(Q),
        .a_i(sum_late),
        .b_i(t),
        .d_o(b_d)
    );
    always_ff @(posedge clk_i) begin
      a_o <= a_d;
      b_o <= inverse_late ? t : b_d;
    end
  end
endmodule
