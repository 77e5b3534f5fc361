// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_beats: counts the beats of polynomials.
//
// LOG_BEATS  log2 of the beats of the longest polynomial, >= 0
// SHIFTS     a polynomial has 2^(LOG_BEATS - shift) beats, shift_i being below SHIFTS and the same for all of its beats
// beat_o is the number of the beat that is here or comes next, next_o that of the next cycle: what is looked up by it
// is there with the beat, the first after a reset too.
// Latency: 0
module ntt_beats #(
    parameter int LOG_BEATS = 1,
    parameter int SHIFTS = 1,
    localparam int Width = LOG_BEATS > 0 ? LOG_BEATS : 1,
    localparam int ShiftWidth = toroid_pkg::index_width(SHIFTS)
) (
    // One beat needs no counter, one length no shift.
    // verilator lint_off UNUSEDSIGNAL
    input  logic                  clk_i,
    input  logic                  rst_ni,
    input  logic                  valid_i,
    input  logic [ShiftWidth-1:0] shift_i,
    // verilator lint_on UNUSEDSIGNAL
    output logic [     Width-1:0] beat_o,
    output logic [     Width-1:0] next_o
);
  if (LOG_BEATS < 0 || SHIFTS < 1 || SHIFTS > LOG_BEATS + 1) begin : g_check
    $fatal(1, "ntt_beats: LOG_BEATS >= 0 and 1 <= SHIFTS <= LOG_BEATS + 1 are needed");
  end

  if (LOG_BEATS == 0) begin : g_one
    assign beat_o = '0;
    assign next_o = '0;
  end else begin : g_counter
    logic [Width-1:0] beat_q, last;
    assign last   = SHIFTS > 1 ? {Width{1'b1}} >> shift_i : '1;
    assign next_o = !rst_ni ? '0 : !valid_i ? beat_q : beat_q == last ? '0 : beat_q + 1'b1;
    always_ff @(posedge clk_i) beat_q <= next_o;
    assign beat_o = beat_q;
  end
endmodule
