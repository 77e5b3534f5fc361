// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_row: the beat of a transform whose word goes to a lane when it is read, the reverse of elastic_turn;
// combinational.
//
// Of the beats whose number has the given lower log2(N2) bits, each is that of one lane.
//
// LOG_LANES        log2 of the lanes
// turn_i           the lane
// beat_i, shift_i  the number of the beat that is read, whose lower bits are given, N2 = LANES >> shift
// Latency: 0
module elastic_row
  import ntt_elastic_pkg::*;
#(
    parameter  int LOG_LANES  = 4,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES))
) (
    input  logic [  LOG_LANES-1:0] turn_i,
    input  logic [  LOG_LANES-1:0] beat_i,
    input  logic [ ShiftWidth-1:0] shift_i,
    output logic [2*LOG_LANES-1:0] row_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check
    $fatal(1, "elastic_row: LOG_LANES must be 2 to 5");
  end

  logic [LOG_LANES-1:0] lower, lower_turned;
  always_comb begin
    lower = turn_i & ~({LOG_LANES{1'b1}} << shift_i);
    for (int n = 0; n < LOG_LANES; n++) lower_turned[n] = lower[LOG_LANES-1-n];
    row_o = {turn_i >> shift_i, lower_turned | beat_i & ({LOG_LANES{1'b1}} >> shift_i)};
  end
endmodule
