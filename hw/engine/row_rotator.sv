// SPDX-License-Identifier: Apache-2.0 OR MIT
// Turns a polynomial by X^a, row by row: word x of the result's row is word x - shift of the row read with it, or, where that is negative, word
// x - shift + 2^LOG_LANES of the row read before it; with that row's sign.
//
// LOG_LANES: 1 to 9, log2 of the words of a row. shift_i is a modulo 2^LOG_LANES and must not change while rows are on their way.
// Latency: 4 cycles after the later row. Two bits of the shift cost a LUT of 6 inputs for each bit of a word.
module row_rotator #(
    parameter int LOG_LANES = 2,
    localparam int LANES = 1 << LOG_LANES
) (
    input logic clk_i,
    input logic valid_i,
    input logic negative_i,
    input logic [LOG_LANES-1:0] shift_i,
    input logic [63:0] word_i[LANES],
    output logic [63:0] word_o[LANES],
    output logic [LANES-1:0] negative_o
);
  localparam int PAIRS = (LOG_LANES + 1) / 2;
  localparam int STAGES = 3;

  if (LOG_LANES < 1 || LOG_LANES > 9) begin : g_check
    $fatal(1, "row_rotator: LOG_LANES must be 1 to 9");
  end

  // The lane that lies `places` below, around the end.
  function automatic int back(int number, int places);
    return (number + LANES - places % LANES) % LANES;
  endfunction

  logic [2*PAIRS-1:0] shift;
  logic [63:0] turned[STAGES][LANES], turned_q[STAGES][LANES], before_q[LANES];
  logic [STAGES-1:0] valid_q, negative_q;
  logic before_negative_q;

  assign shift = (2 * PAIRS)'(shift_i);

  // Pair of bits `pair` of the shift is done in stage pair·STAGES/PAIRS.
  always_comb begin
    logic [63:0] from[LANES];
    turned[0] = word_i;
    for (int stage = 1; stage < STAGES; stage++) turned[stage] = turned_q[stage-1];
    for (int pair = 0; pair < PAIRS; pair++) begin
      from = turned[pair*STAGES/PAIRS];
      for (int lane = 0; lane < LANES; lane++) begin
        turned[pair*STAGES/PAIRS][lane] = shift[2*pair+1] ?
            (shift[2*pair] ? from[back(lane, 3<<2*pair)] : from[back(lane, 2<<2*pair)]) :
            (shift[2*pair] ? from[back(lane, 1<<2*pair)] : from[lane]);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    turned_q <= turned;
    valid_q <= {valid_q[STAGES-2:0], valid_i};
    negative_q <= {negative_q[STAGES-2:0], negative_i};
    if (valid_q[STAGES-1]) begin
      before_q <= turned_q[STAGES-1];
      before_negative_q <= negative_q[STAGES-1];
    end
    for (int lane = 0; lane < LANES; lane++) begin
      word_o[lane] <= LOG_LANES'(lane) < shift_i ? before_q[lane] : turned_q[STAGES-1][lane];
      negative_o[lane] <= LOG_LANES'(lane) < shift_i ? before_negative_q : negative_q[STAGES-1];
    end
  end
endmodule
