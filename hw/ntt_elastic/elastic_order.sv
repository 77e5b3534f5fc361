// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_order: when the beats of transforms are read for their second half: each transform whole, in cycles that
// follow each other, as soon as its beats will have been written by then and the transform before has been read.
//
// A preamble passes as a transform of its own beats, but takes no rows.
//
// Beat j of a group of N2 needs the word of beat N - N2 + j of its transform, so reading begins N2 - 2 cycles before
// the last beat is written.
//
// LOG_LANES  log2 of the lanes
// WAIT       from valid_i && last_i of a transform with N2 = LANES to the first command, >= 3
// TAG        bits that travel with a transform, the highest of which marks a preamble
// valid_i, last_i, shift_i, tag_i  a beat that will be written
// valid_o, beat_o, last_o, shift_o, tag_o, row_o  a beat to be read, and the row where its transform begins
// Latency: WAIT + LANES - N2
module elastic_order
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    parameter int WAIT = 64,
    parameter int TAG = 3,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES)),
    localparam int LogBeats = 2 * LOG_LANES
) (
    input  logic                  clk_i,
    input  logic                  rst_ni,
    input  logic                  valid_i,
    input  logic                  last_i,
    input  logic [ShiftWidth-1:0] shift_i,
    input  logic [       TAG-1:0] tag_i,
    output logic                  valid_o,
    output logic [  LogBeats-1:0] beat_o,
    output logic                  last_o,
    output logic [ShiftWidth-1:0] shift_o,
    output logic [       TAG-1:0] tag_o,
    output logic [    LogBeats:0] row_o
);
  if (WAIT < 3) begin : g_check
    $fatal(1, "elastic_order: WAIT must be at least 3");
  end
  if (TAG < 1) begin : g_check_tag
    $fatal(1, "elastic_order: TAG must be at least 1");
  end

  localparam int Lanes = 1 << LOG_LANES;
  localparam int Shifts = shifts(LOG_LANES);

  // Of a queue that is empty, a transform shows two cycles later, and is begun in the next one.
  logic whole;
  logic [ShiftWidth+TAG-1:0] tag, tag_q, tag_now;
  valid_delay #(
      .CYCLES(WAIT - 3)
  ) i_valid (
      .clk_i,
      .rst_ni,
      .valid_i(valid_i && last_i),
      .valid_o(whole)
  );
  delay #(
      .WIDTH (ShiftWidth + TAG),
      .CYCLES(WAIT - 3)
  ) i_tag (
      .clk_i,
      .d_i({shift_i, tag_i}),
      .q_o(tag)
  );
  // What comes next is whole only after 2 LANES beats or more.
  assign tag_now = whole ? tag : tag_q;
  always_ff @(posedge clk_i) tag_q <= tag_now;
  logic [Shifts-1:0] ready;
  for (genvar n = 0; n < Shifts; n++) begin : g_shift
    valid_delay #(
        .CYCLES(Lanes - (Lanes >> n))
    ) i_ready (
        .clk_i,
        .rst_ni,
        .valid_i(whole && int'(tag[ShiftWidth+TAG-1:TAG]) == n),
        .valid_o(ready[n])
    );
  end

  logic unused_ready, unused_last, next_valid, next_take;
  logic [ShiftWidth+TAG-1:0] next;
  logic [$clog2(Lanes + 1)-1:0] unused_count;
  stream_fifo #(
      .WIDTH(ShiftWidth + TAG),
      .DEPTH(Lanes)
  ) i_queue (
      .clk_i,
      .rst_ni,
      .in_tvalid_i (|ready),
      .in_tready_o (unused_ready),
      .in_tdata_i  (tag_now),
      .in_tlast_i  (1'b0),
      .out_tvalid_o(next_valid),
      .out_tready_i(next_take),
      .out_tdata_o (next),
      .out_tlast_o (unused_last),
      .count_o     (unused_count)
  );

  logic valid_q, is_void;
  logic [LogBeats-1:0] beat_q;
  logic [ShiftWidth-1:0] shift_q;
  logic [TAG-1:0] tag_read_q;
  logic [LogBeats:0] row_q;
  assign is_void = tag_read_q[TAG-1];
  assign last_o = beat_q == (is_void ? LogBeats'(preamble(Lanes) - 1) : {LogBeats{1'b1}} >> shift_q);
  assign next_take = !valid_q || last_o;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
      row_q   <= '0;
    end else begin
      if (next_take) valid_q <= next_valid;
      if (valid_q && last_o && !is_void) row_q <= row_q + (LogBeats + 1)'(beat_q) + 1'b1;
    end
    if (next_take) begin
      beat_q <= '0;
      {shift_q, tag_read_q} <= next;
    end else begin
      beat_q <= beat_q + 1'b1;
    end
  end
  assign valid_o = valid_q;
  assign beat_o  = beat_q;
  assign shift_o = shift_q;
  assign tag_o   = tag_read_q;
  assign row_o   = row_q;
endmodule
