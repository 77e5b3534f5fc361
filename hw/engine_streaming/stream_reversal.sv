// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_reversal: reverses the bits of the places of the words in blocks of R = 2^LOG_R, or hands them through.
//
// A block is R / P beats of P = 2^LOG_LANES words; word h * P + x enters by lane x of beat h. Each bit of the beat changes
// places with one of the lane in a delay commutator: the lanes whose bit is 1 wait, the words of a pair of lanes are crossed, and
// the lanes whose bit is 0 wait. The other bits of the lane are wires.
//
// LOG_R      LOG_LANES to 2 LOG_LANES
// LOG_LANES  >= 1
// Latency: stream_transform_pkg::reversal_latency. beat_i is the number h of the beat, 0 between frames; reverse_i is the same in
// all beats of a frame.
module stream_reversal
  import stream_transform_pkg::*;
#(
    parameter int LOG_R = 7,
    parameter int LOG_LANES = 6,
    localparam int LANES = 1 << LOG_LANES,
    localparam int BEAT_BITS = LOG_R > LOG_LANES ? LOG_R - LOG_LANES : 1
) (
    input logic clk_i,
    // One beat a block has no number.
    // verilator lint_off UNUSEDSIGNAL
    input logic [BEAT_BITS-1:0] beat_i,
    // verilator lint_on UNUSEDSIGNAL
    input logic reverse_i,
    input logic [63:0] lane_i[LANES],
    output logic [63:0] lane_o[LANES]
);
  if (LOG_LANES < 1 || LOG_R < LOG_LANES || LOG_R > 2 * LOG_LANES) begin : g_check
    $fatal(1, "stream_reversal: 1 <= LOG_LANES <= LOG_R <= 2 LOG_LANES must hold");
  end

  localparam int Beats = LOG_R - LOG_LANES;

  // Where the word of a lane comes from, once the bits of the beat have changed places with the lowest ones of the lane.
  function automatic int from (int x);
    int place = x % (1 << Beats);
    for (int n = Beats; n < LOG_LANES; n++) place |= (x >> n & 1) << (LOG_R - 1 - n);
    return place;
  endfunction

  for (genvar n = 0; n <= Beats; n++) begin : g_bit
    logic [63:0] lane[LANES];
    logic reverse;
    // The last ones need no number.
    logic [BEAT_BITS-1:0] beat;
    if (n == 0) begin : g_exchange
      assign lane = lane_i;
      assign reverse = reverse_i;
      assign beat = beat_i;
    end else begin : g_exchange
      localparam int Steps = 1 << (n - 1);
      localparam int Other = 1 << (Beats - n);
      logic crosses;
      assign crosses = g_bit[n-1].reverse && g_bit[n-1].beat[n-1];
      delay #(
          .WIDTH (BEAT_BITS + 1),
          .CYCLES(Steps + 1)
      ) i_control (
          .clk_i,
          .d_i({g_bit[n-1].reverse, g_bit[n-1].beat}),
          .q_o({reverse, beat})
      );
      for (genvar x = 0; x < LANES; x++) begin : g_lane
        if ((x & Other) == 0) begin : g_pair
          logic [63:0] upper_late, upper_q, lower_q;
          delay #(
              .WIDTH (64),
              .CYCLES(Steps)
          ) i_upper (
              .clk_i,
              .d_i(g_bit[n-1].lane[x+Other]),
              .q_o(upper_late)
          );
          always_ff @(posedge clk_i) begin
            upper_q <= crosses ? g_bit[n-1].lane[x] : upper_late;
            lower_q <= crosses ? upper_late : g_bit[n-1].lane[x];
          end
          delay #(
              .WIDTH (64),
              .CYCLES(Steps)
          ) i_lower (
              .clk_i,
              .d_i(lower_q),
              .q_o(lane[x])
          );
          assign lane[x+Other] = upper_q;
        end
      end
    end
  end

  logic unused_beat;
  assign unused_beat = ^g_bit[Beats].beat;
  for (genvar x = 0; x < LANES; x++) begin : g_wires
    always_ff @(posedge clk_i) lane_o[x] <= g_bit[Beats].reverse ? g_bit[Beats].lane[from (x)] : g_bit[Beats].lane[x];
  end
endmodule
