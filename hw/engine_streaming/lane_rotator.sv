// SPDX-License-Identifier: Apache-2.0 OR MIT
// Turns the words of a beat around the lanes: lane x takes the word of lane (x - shift) mod 2^LOG_LANES. Every beat has a shift of its own.
//
// LOG_LANES: 1 to 9. WIDTH: bits of a word.
// Latency: 2 cycles, shift and words together. Two bits of the shift cost a LUT of 6 inputs for each bit of a word.
module lane_rotator #(
    parameter int LOG_LANES = 3,
    parameter int WIDTH = 64,
    localparam int LANES = 1 << LOG_LANES
) (
    input logic clk_i,
    input logic [LOG_LANES-1:0] shift_i,
    input logic [WIDTH-1:0] word_i[LANES],
    output logic [WIDTH-1:0] word_o[LANES]
);
  if (LOG_LANES < 1 || LOG_LANES > 9 || WIDTH < 1) begin : g_check
    $fatal(1, "lane_rotator: LOG_LANES must be 1 to 9 and WIDTH positive");
  end

  localparam int FIRST = (LOG_LANES + 1) / 2;

  logic [LOG_LANES-1:0] shift_q;
  logic [WIDTH-1:0] front[LANES], front_q[LANES], back[LANES];

  always_comb begin
    logic [WIDTH-1:0] from[LANES];
    front = word_i;
    for (int place = 0; place < FIRST; place++) begin
      from = front;
      for (int lane = 0; lane < LANES; lane++)
      front[lane] = shift_i[place] ? from[(lane+LANES-(1<<place))%LANES] : from[lane];
    end
  end

  always_comb begin
    logic [WIDTH-1:0] from[LANES];
    back = front_q;
    for (int place = FIRST; place < LOG_LANES; place++) begin
      from = back;
      for (int lane = 0; lane < LANES; lane++)
      back[lane] = shift_q[place] ? from[(lane+LANES-(1<<place))%LANES] : from[lane];
    end
  end

  always_ff @(posedge clk_i) begin
    shift_q <= shift_i;
    front_q <= front;
    word_o  <= back;
  end
endmodule
