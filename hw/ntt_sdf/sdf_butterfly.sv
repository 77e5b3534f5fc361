// SPDX-License-Identifier: Apache-2.0 OR MIT
// sdf_butterfly: a + b and a - b of words a and b that come 2^LOG_STEPS apart, one word per cycle: single-delay feedback.
//
// The first half of a block, of 2^LOG_STEPS words, is stored. When the second half comes, sums leave, and differences
// take the places of the stored words; they leave while the first half of the next block comes. Every word is a step,
// and so is every cycle between two blocks, so that differences leave without another block behind them. Words of a
// block may have any distance.
//
// LOG_STEPS  >= 0
// SOLINAS, Q  see twiddle_mul
// Latency: 2^LOG_STEPS words and one cycle. word_o comes from an adder behind its register (SOLINAS).
module sdf_butterfly #(
    parameter int LOG_STEPS = 0,
    parameter bit SOLINAS = 1,
    parameter logic [63:0] Q = 64'd7681,
    localparam int Width = $clog2(Q),
    localparam int Word = Width + int'(SOLINAS),
    localparam int Term = Width + 2 * int'(SOLINAS),
    localparam int Rest = Width + 3 * int'(SOLINAS)
) (
    input  logic            clk_i,
    input  logic            rst_ni,
    input  logic            valid_i,
    input  logic [Term-1:0] term_i,
    output logic            valid_o,
    output logic [Word-1:0] word_o
);
  if (LOG_STEPS < 0) begin : g_check
    $fatal(1, "sdf_butterfly: LOG_STEPS >= 0 is needed");
  end

  localparam int Steps = 1 << LOG_STEPS;

  logic [LOG_STEPS:0] place, unused_next;
  ntt_beats #(
      .LOG_BEATS(LOG_STEPS + 1)
  ) i_places (
      .clk_i,
      .rst_ni,
      .valid_i,
      .shift_i(1'b0),
      .beat_o (place),
      .next_o (unused_next)
  );
  logic step, second;
  assign step   = valid_i || place == '0;
  assign second = place[LOG_STEPS];

  // After a reset, what is stored is not valid until it has been shifted out.
  logic [LOG_STEPS:0] filled_q;
  logic filled;
  assign filled = filled_q[LOG_STEPS];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) filled_q <= '0;
    else if (step && !filled) filled_q <= filled_q + 1'b1;
  end

  logic stored_valid;
  logic [Word-1:0] stored;
  logic [Rest-1:0] rest;
  sdf_sums #(
      .SOLINAS(SOLINAS),
      .Q      (Q)
  ) i_sums (
      .clk_i,
      .second_i(second),
      .stored_i(stored),
      .term_i,
      .word_o,
      .rest_o  (rest)
  );
  logic valid_q;
  always_ff @(posedge clk_i) valid_q <= rst_ni && step && (second || filled && stored_valid);
  assign valid_o = valid_q;

  // The first of the steps is a register in front of the carry.
  logic rest_valid_q;
  logic [Rest-1:0] rest_q;
  logic [Word-1:0] rest_word;
  always_ff @(posedge clk_i) begin
    if (step) begin
      rest_valid_q <= valid_i;
      rest_q <= rest;
    end
  end
  if (SOLINAS) begin : g_carry
    solinas_carry #(
        .I(Width),
        .J(toroid_pkg::solinas_j(Q))
    ) i_carry (
        .v_i(rest_q),
        .r_o(rest_word)
    );
  end else begin : g_canonical
    assign rest_word = rest_q;
  end
  if (Steps == 1) begin : g_one
    assign {stored_valid, stored} = {rest_valid_q, rest_word};
  end else begin : g_delay
    stepped_delay #(
        .WIDTH(Word + 1),
        .STEPS(Steps - 1)
    ) i_delay (
        .clk_i,
        .rst_ni,
        .step_i(step),
        .d_i({rest_valid_q, rest_word}),
        .q_o({stored_valid, stored})
    );
  end
endmodule
