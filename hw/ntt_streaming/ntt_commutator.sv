// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_commutator: exchanges a bit of the beat with the top bit of the lane: word (beat, lane) leaves as (beat with bit
// LOG_STEPS replaced by the top bit of lane, lane with its top bit replaced by that bit of beat).
//
// The delay commutator: the upper half of the lanes is delayed by 2^LOG_STEPS steps, the halves are handed through or
// crossed by that bit of the beat, and what is then the lower half is delayed by as much. Every beat is a step, and so
// is every cycle between two polynomials, so that the end of the last one leaves without another behind it. Beats of a
// polynomial may have any distance. A polynomial of 2^LOG_STEPS beats or fewer passes as it is.
//
// WIDTH      bits of half the lanes
// LOG_STEPS  the bit of the beat, >= 0
// LOG_BEATS  log2 of the beats of the longest polynomial, > LOG_STEPS
// SHIFTS     polynomials have 2^(LOG_BEATS - shift) beats, shift below SHIFTS by the polynomial
// TAG        bits that travel with each beat; the lowest are its shift
// Latency: 2^LOG_STEPS steps
module ntt_commutator #(
    parameter int WIDTH = 64,
    parameter int LOG_STEPS = 0,
    parameter int LOG_BEATS = 1,
    parameter int SHIFTS = 1,
    parameter int TAG = 1
) (
    input  logic             clk_i,
    input  logic             rst_ni,
    input  logic             valid_i,
    input  logic [  TAG-1:0] tag_i,
    input  logic [WIDTH-1:0] lower_i,
    input  logic [WIDTH-1:0] upper_i,
    output logic             valid_o,
    output logic [  TAG-1:0] tag_o,
    output logic [WIDTH-1:0] lower_o,
    output logic [WIDTH-1:0] upper_o
);
  if (WIDTH < 1 || LOG_STEPS < 0 || LOG_BEATS <= LOG_STEPS || TAG < toroid_pkg::index_width(SHIFTS)) begin : g_check
    $fatal(1, "ntt_commutator: WIDTH >= 1, 0 <= LOG_STEPS < LOG_BEATS and TAG >= log2(SHIFTS) are needed");
  end

  localparam int Steps = 1 << LOG_STEPS;

  logic [LOG_BEATS-1:0] beat, unused_next;
  ntt_beats #(
      .LOG_BEATS(LOG_BEATS),
      .SHIFTS   (SHIFTS)
  ) i_beats (
      .clk_i,
      .rst_ni,
      .valid_i,
      .shift_i(tag_i[toroid_pkg::index_width(SHIFTS)-1:0]),
      .beat_o (beat),
      .next_o (unused_next)
  );
  logic step, exchange;
  assign step = valid_i || beat == '0;
  assign exchange = beat[LOG_STEPS];

  // After a reset, what is in the delay is not valid until it has been shifted out.
  logic [LOG_STEPS:0] filled_q;
  logic filled, valid_late;
  assign filled = filled_q[LOG_STEPS];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) filled_q <= '0;
    else if (step && !filled) filled_q <= filled_q + 1'b1;
  end

  logic [WIDTH-1:0] upper_late;
  stepped_delay #(
      .WIDTH(WIDTH + TAG + 1),
      .STEPS(Steps)
  ) i_upper (
      .clk_i,
      .rst_ni,
      .step_i(step),
      .d_i({valid_i, tag_i, upper_i}),
      .q_o({valid_late, tag_o, upper_late})
  );
  stepped_delay #(
      .WIDTH(WIDTH),
      .STEPS(Steps)
  ) i_lower (
      .clk_i,
      .rst_ni,
      .step_i(step),
      .d_i(exchange ? upper_late : lower_i),
      .q_o(lower_o)
  );
  assign upper_o = exchange ? lower_i : upper_late;
  assign valid_o = step && filled && valid_late;
endmodule
