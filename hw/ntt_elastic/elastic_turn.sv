// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_turn: by how much the lanes of a beat are turned before they are written to the banks; combinational.
//
// Of beat c = n2 * LANES + n3: n2 in the upper log2(N2) bits, and in the others what n3 has above its lower log2(N2)
// bits, reversed. It is also the lane to which the beat's word goes when it is read.
//
// LOG_LANES        log2 of the lanes
// beat_i, shift_i  the number of a beat in its transform, N2 = LANES >> shift
// Latency: 0
module elastic_turn
  import ntt_elastic_pkg::*;
#(
    parameter  int LOG_LANES  = 4,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES))
) (
    input  logic [2*LOG_LANES-1:0] beat_i,
    input  logic [ ShiftWidth-1:0] shift_i,
    output logic [  LOG_LANES-1:0] turn_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check
    $fatal(1, "elastic_turn: LOG_LANES must be 2 to 5");
  end

  logic [LOG_LANES-1:0] n3_turned;
  always_comb begin
    for (int n = 0; n < LOG_LANES; n++) n3_turned[n] = beat_i[LOG_LANES-1-n];
    turn_o = (beat_i[2*LOG_LANES-1:LOG_LANES] << shift_i) | (n3_turned & ~({LOG_LANES{1'b1}} << shift_i));
  end
endmodule
