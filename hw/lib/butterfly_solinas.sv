// SPDX-License-Identifier: Apache-2.0 OR MIT
// butterfly_solinas: the butterfly of one direction modulo q = 2^I - 2^J + 1, one per cycle, on words that are not
// reduced between butterflies.
//
// INVERSE = 0 (Cooley-Tukey):     a' = a + b * w        b' = a - b * w
// INVERSE = 1 (Gentleman-Sande):  a' = (a + b) / 2      b' = (a - b) * w    (w has the half of b' in it)
//
// Words are in [0, 2^(I + 1)): each output is brought there by one addition (solinas_carry), and at the end of a
// transform mod_canonical makes them canonical. A product needs one addition and one subtraction (solinas_shift), which
// divide it by 2^J. For that it must be below 2^(2 I), so a twiddle is given by magnitude and sign:
// w_i = {negative, |w * 2^J|}, where w * 2^J modulo q is taken in (-q / 2, q / 2).
//
// The outputs come from an adder behind the last register. A selection of two words and the input registers of the next
// butterfly fit behind it.
//
// I, J            exponents, 0 < J < I - 1 < 64, 4 <= I
// INVERSE         direction
// BYPASS          bypass_i = 1 hands a and b through, congruent modulo q, beside butterflies of other cycles; for
//                 INVERSE = 1, w must be -1 then. BYPASS = 0: there is no such thing.
// TILE_A, TILE_B, SHORT, NARROW  see mul_tiles
// Latency: toroid_pkg::butterfly_solinas_latency
module butterfly_solinas #(
    parameter int I = 28,
    parameter int J = 16,
    parameter bit INVERSE = 0,
    parameter bit BYPASS = 0,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0,
    parameter int NARROW = 0
) (
    input  logic         clk_i,
    // Without BYPASS it is not used.
    // verilator lint_off UNUSEDSIGNAL
    input  logic         bypass_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [  I:0] a_i,
    input  logic [  I:0] b_i,
    input  logic [I-1:0] w_i,
    output logic [  I:0] a_o,
    output logic [  I:0] b_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  if (I < 4 || J < 1 || J >= I - 1 || I > 64) begin : g_check
    $fatal(1, "butterfly_solinas: 4 <= I <= 64 and 0 < J < I - 1 are needed");
  end

  localparam int ProductLatency = toroid_pkg::mul_latency(I - 1, I + 1, TILE_A, TILE_B, SHORT);

  logic bypass;
  assign bypass = BYPASS && bypass_i;

  logic [I-2:0] magnitude;
  logic [I:0] factor;
  logic [2*I-1:0] product;
  logic [I+1:0] t_d, t_q;
  mul_tiles #(
      .WIDTH_A(I - 1),
      .WIDTH_B(I + 1),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .SHORT  (SHORT),
      .NARROW (NARROW)
  ) i_mul (
      .clk_i,
      .a_i(magnitude),
      .b_i(factor),
      .p_o(product)
  );
  solinas_shift #(
      .I(I),
      .J(J)
  ) i_shift (
      .x_i(product),
      .t_o(t_d)
  );
  always_ff @(posedge clk_i) t_q <= t_d;

  if (!INVERSE) begin : g_ct
    // Beside the product: a, the sign of w, and b if it is to be handed through.
    logic bypass_late, negative_late;
    logic [I:0] a_late, b_late;
    logic [I+2:0] t, a_q, b_q;
    assign factor = b_i;
    assign magnitude = w_i[I-2:0];
    delay #(
        .WIDTH (I + 3),
        .CYCLES(ProductLatency + 1)
    ) i_delay (
        .clk_i,
        .d_i({bypass, w_i[I-1], a_i}),
        .q_o({bypass_late, negative_late, a_late})
    );
    if (BYPASS) begin : g_bypass
      delay #(
          .WIDTH (I + 1),
          .CYCLES(ProductLatency + 1)
      ) i_delay (
          .clk_i,
          .d_i(b_i),
          .q_o(b_late)
      );
    end else begin : g_always
      assign b_late = a_late;
    end
    assign t = {t_q[I+1], t_q} & {(I + 3) {!bypass_late}};
    always_ff @(posedge clk_i) begin
      a_q <= {2'b0, a_late} + (t ^ {(I + 3) {negative_late}}) + (I + 3)'(negative_late);
      b_q <= {2'b0, bypass_late ? b_late : a_late} + (t ^ {(I + 3) {!negative_late}}) + (I + 3)'(!negative_late);
    end
    solinas_carry #(
        .I(I),
        .J(J)
    ) i_carry_a (
        .v_i(a_q),
        .r_o(a_o)
    );
    solinas_carry #(
        .I(I),
        .J(J)
    ) i_carry_b (
        .v_i(b_q),
        .r_o(b_o)
    );
  end else begin : g_gs
    // The sign of w goes into the difference.
    logic bypass_q;
    logic [I:0] a, b, sum, half;
    logic [I+2:0] sum_q, difference_q;
    assign a = a_i & {(I + 1) {!bypass}};
    assign b = b_i & {(I + 1) {!bypass}};
    always_ff @(posedge clk_i) begin
      bypass_q <= bypass;
      magnitude <= w_i[I-2:0];
      sum_q <= {2'b0, a_i} + {2'b0, b};
      difference_q <= ({2'b0, a} ^ {(I + 3) {w_i[I-1]}}) + ({2'b0, b_i} ^ {(I + 3) {!w_i[I-1]}}) + 1'b1;
    end
    solinas_carry #(
        .I(I),
        .J(J)
    ) i_carry_difference (
        .v_i(difference_q),
        .r_o(factor)
    );
    solinas_carry #(
        .I(I),
        .J(J)
    ) i_carry_sum (
        .v_i(sum_q),
        .r_o(sum)
    );
    mod_half #(
        .WIDTH(I + 1)
    ) i_half (
        .q_i((I + 1)'(toroid_pkg::solinas_modulus(I, J))),
        .x_i(sum),
        .h_o(half)
    );
    delay #(
        .WIDTH (I + 1),
        .CYCLES(ProductLatency + 1)
    ) i_delay (
        .clk_i,
        .d_i(bypass_q ? sum : half),
        .q_o(a_o)
    );
    solinas_carry #(
        .I(I),
        .J(J)
    ) i_carry_b (
        .v_i({t_q[I+1], t_q}),
        .r_o(b_o)
    );
  end
endmodule
