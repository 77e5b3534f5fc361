// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_turn and elastic_row: the beats that a read takes words of are those of its transform that are j modulo N2, and
// each of them goes to the lane by which it was turned. So no two of them are in one bank, whatever lane is read, and
// the reads of a transform take every word once.
//
// SHIFT_USED  1 in self-tests only: the row of another N2
module elastic_turn_proof
  import ntt_elastic_pkg::*;
#(
    parameter  int LOG_LANES  = 4,
    parameter  bit SHIFT_USED = 0,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES))
) (
    input logic [ LOG_LANES-1:0] lane_i,
    input logic [ LOG_LANES-1:0] beat_i,
    input logic [ShiftWidth-1:0] shift_i
);
  logic [2*LOG_LANES-1:0] row;
  logic [  LOG_LANES-1:0] turn;
  elastic_row #(
      .LOG_LANES(LOG_LANES)
  ) i_row (
      .turn_i (lane_i),
      .beat_i,
      .shift_i(shift_i ^ ShiftWidth'(SHIFT_USED)),
      .row_o  (row)
  );
  elastic_turn #(
      .LOG_LANES(LOG_LANES)
  ) i_turn (
      .beat_i(row),
      .shift_i,
      .turn_o(turn)
  );
  always_comb begin
    if (int'(shift_i) < shifts(LOG_LANES)) begin
      assert (turn == lane_i);
      assert (((row[LOG_LANES-1:0] ^ beat_i) & ({LOG_LANES{1'b1}} >> shift_i)) == '0);
      assert (row <= {(2 * LOG_LANES) {1'b1}} >> shift_i);
    end
  end
endmodule
