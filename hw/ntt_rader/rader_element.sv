// SPDX-License-Identifier: Apache-2.0 OR MIT
// rader_element: a butterfly of ntt_rader with its one multiplier, and the multiplexers in front of it.
//
// Operands are two words of one column, in two cycles (the program's steps), one word of each column (first pass of a
// row), or what elements gave LOOP cycles before. The product is of the difference, which becomes 0 - b where b is to
// be multiplied; constants have the sign that takes this off (see mode_e).
//
// Q                      the modulus, a prime that is 1 modulo 2^WORD
// INJECT                 1: inject_i adds a word to a + b, one cycle behind it
// TILE_A, TILE_B, SHORT  see mul_tiles
// lower_i, upper_i       words of the columns, in cycles 2 and 3
// constant_i             w of a row; step_constant_i: w of a step; both times 2^32, in AT_OPERANDS
// second_o               b_o, a cycle later: it is written behind a_o
// sum_o                  a + b in AT_SUMS, without what is injected
// Latency: LOOP from forward_*_i and inverse_*_i to a_o and b_o
module rader_element
  import ntt_rader_pkg::*;
#(
    parameter logic [WIDTH-1:0] Q = 32'd4244570881,
    parameter bit INJECT = 0,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1
) (
    input logic clk_i,
    // Without INJECT, inject is not used.
    // verilator lint_off UNUSEDSIGNAL
    input element_control_t control_i,
    input logic [WIDTH-1:0] inject_i,
    // verilator lint_on UNUSEDSIGNAL
    input logic [WIDTH-1:0] lower_i,
    input logic [WIDTH-1:0] upper_i,
    input logic [WIDTH-1:0] forward_a_i,
    input logic [WIDTH-1:0] forward_b_i,
    input logic [WIDTH-1:0] self_a_i,
    input logic [WIDTH-1:0] self_b_i,
    input logic [WIDTH-1:0] inverse_a_i,
    input logic [WIDTH-1:0] inverse_b_i,
    input logic [WIDTH-1:0] constant_i,
    input logic [WIDTH-1:0] step_constant_i,
    output logic [WIDTH-1:0] sum_o,
    output logic [WIDTH-1:0] a_o,
    output logic [WIDTH-1:0] b_o,
    output logic [WIDTH-1:0] second_o
);
  // Copies share their code in simulation, which the core could not be compiled without.
  /* verilator no_inline_module */

  localparam int ProductLatency = product_latency(TILE_A, TILE_B, SHORT);
  localparam int Wires = wire_registers(TILE_A, TILE_B, SHORT);
  if (Wires < 0) begin : g_check
    $fatal(1, "rader_element: the multiplier takes more cycles than the loop has; SHORT = 1 takes fewer");
  end

  logic [WIDTH-1:0] first_q, a, b, a_q, b_q;
  always_ff @(posedge clk_i) first_q <= control_i.first_upper ? upper_i : lower_i;
  always_comb begin
    case (control_i.source)
      FROM_FORWARD: {a, b} = {forward_a_i, forward_b_i};
      FROM_SELF: {a, b} = {self_a_i, self_b_i};
      FROM_INVERSE: {a, b} = {inverse_a_i, inverse_b_i};
      default: {a, b} = {first_q, control_i.second_upper ? upper_i : lower_i};
    endcase
  end
  always_ff @(posedge clk_i) begin
    a_q <= a;
    b_q <= b;
  end

  logic adds_before, subtracts_before;
  assign adds_before = control_i.mode == MODE_FORWARD || control_i.mode == MODE_ZERO;
  assign subtracts_before = control_i.mode == MODE_FORWARD;
  logic [WIDTH-1:0] sum, difference, sum_q, operand_q, w_q;
  mod_add #(
      .WIDTH(WIDTH)
  ) i_sum (
      .q_i(Q),
      .a_i(a_q),
      .b_i(b_q & {WIDTH{adds_before}}),
      .s_o(sum)
  );
  mod_sub #(
      .WIDTH(WIDTH)
  ) i_difference (
      .q_i(Q),
      .a_i(a_q & {WIDTH{subtracts_before}}),
      .b_i(b_q),
      .d_o(difference)
  );
  always_ff @(posedge clk_i) begin
    sum_q <= sum;
    operand_q <= difference;
    w_q <= control_i.is_row ? constant_i : step_constant_i;
  end
  assign sum_o = sum_q;

  logic [WIDTH-1:0] product, line;
  montgomery_double_mul #(
      .Q     (64'(Q)),
      .WIDTH (WIDTH),
      .WORD  (WORD),
      .TILE_A(TILE_A),
      .TILE_B(TILE_B),
      .SHORT (SHORT)
  ) i_mul (
      .clk_i,
      .a_i(w_q),
      .b_i(operand_q),
      .p_o(product)
  );
  if (INJECT) begin : g_line
    logic [WIDTH-1:0] injected, injected_q;
    mod_add #(
        .WIDTH(WIDTH)
    ) i_inject (
        .q_i(Q),
        .a_i(sum_q),
        .b_i(inject_i & {WIDTH{control_i.inject}}),
        .s_o(injected)
    );
    always_ff @(posedge clk_i) injected_q <= injected;
    delay #(
        .WIDTH (WIDTH),
        .CYCLES(ProductLatency - 1)
    ) i_delay (
        .clk_i,
        .d_i(injected_q),
        .q_o(line)
    );
  end else begin : g_line
    delay #(
        .WIDTH (WIDTH),
        .CYCLES(ProductLatency)
    ) i_delay (
        .clk_i,
        .d_i(sum_q),
        .q_o(line)
    );
  end

  logic adds_behind, is_exchanged, subtracts_line;
  assign adds_behind = control_i.mode_late == MODE_INVERSE || control_i.mode_late == MODE_TURN;
  assign is_exchanged = control_i.mode_late == MODE_FORWARD || control_i.mode_late == MODE_TURN;
  assign subtracts_line = control_i.mode_late == MODE_TURN;
  logic [WIDTH-1:0] a_d, b_d, a_late_q, b_late_q;
  mod_add #(
      .WIDTH(WIDTH)
  ) i_a (
      .q_i(Q),
      .a_i(line),
      .b_i(product & {WIDTH{adds_behind}}),
      .s_o(a_d)
  );
  mod_sub #(
      .WIDTH(WIDTH)
  ) i_b (
      .q_i(Q),
      .a_i(is_exchanged ? product : line),
      .b_i(is_exchanged ? line & {WIDTH{subtracts_line}} : product),
      .d_o(b_d)
  );
  always_ff @(posedge clk_i) begin
    a_late_q <= a_d;
    b_late_q <= b_d;
  end
  delay #(
      .WIDTH (2 * WIDTH),
      .CYCLES(Wires < 0 ? 0 : Wires)
  ) i_wires (
      .clk_i,
      .d_i({a_late_q, b_late_q}),
      .q_o({a_o, b_o})
  );
  always_ff @(posedge clk_i) second_o <= b_o;
endmodule
