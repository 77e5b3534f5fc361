// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_dft: cyclic DFTs of R = 2^LOG_R points modulo q = 2^64 - 2^32 + 1, block after block, decimated in frequency.
//
// A block is R / P beats of P = 2^LOG_LANES words. Point h * P + x enters by lane x of beat h, and value j leaves at the place
// h * P + x that is j with its bits reversed. All twiddles are powers of sqrt(2), so that no stage multiplies. The first
// log2(R / P) stages pair beats: a beat waits for its partner, the sums leave, and the products of the differences wait until
// the sums have left. The others pair lanes. Words grow by a bit a stage.
//
// LOG_R      1 to 7
// LOG_LANES  1 to LOG_R
// Latency: stream_transform_pkg::stage_start of stage LOG_R. beat_i is the number h of the beat, 0 between frames.
module stream_dft
  import stream_transform_pkg::*;
#(
    parameter int LOG_R = 7,
    parameter int LOG_LANES = 6,
    localparam int LANES = 1 << LOG_LANES,
    localparam int BEAT_BITS = LOG_R > LOG_LANES ? LOG_R - LOG_LANES : 1,
    localparam int OUT = stage_width(LOG_R)
) (
    input logic clk_i,
    // One beat a block has no number.
    // verilator lint_off UNUSEDSIGNAL
    input logic [BEAT_BITS-1:0] beat_i,
    // verilator lint_on UNUSEDSIGNAL
    input logic [63:0] lane_i[LANES],
    output logic signed [OUT-1:0] lane_o[LANES]
);
  if (LOG_R < 1 || LOG_R > 7 || LOG_LANES < 1 || LOG_LANES > LOG_R) begin : g_check
    $fatal(1, "stream_dft: 1 <= LOG_LANES <= LOG_R <= 7 must hold");
  end

  localparam int Beats = LOG_R - LOG_LANES;

  for (genvar stage = 0; stage <= LOG_R; stage++) begin : g_stage
    localparam int Width = stage_width(stage);
    logic signed [Width-1:0] lane[LANES];
    if (stage == 0) begin : g_words
      for (genvar x = 0; x < LANES; x++) begin : g_lane
        assign lane[x] = $signed({1'b0, lane_i[x]});
      end
    end else if (stage <= Beats) begin : g_words
      // The stage before pairs beats.
      localparam int Before = stage - 1;
      localparam int From = stage_width(Before);
      localparam int LogDistance = Beats - stage;
      localparam int Distance = 1 << LogDistance;
      localparam int Latency = factor_latency(LOG_R, Before);
      logic [BEAT_BITS-1:0] beat, beat_late;
      delay #(
          .WIDTH (BEAT_BITS),
          .CYCLES(stage_start(LOG_R, LOG_LANES, Before))
      ) i_beat (
          .clk_i,
          .d_i(beat_i),
          .q_o(beat)
      );
      delay #(
          .WIDTH (BEAT_BITS),
          .CYCLES(1 + Latency)
      ) i_beat_late (
          .clk_i,
          .d_i(beat),
          .q_o(beat_late)
      );
      // Its bits above are those of other blocks.
      logic unused_beat;
      assign unused_beat = ^beat_late;
      for (genvar x = 0; x < LANES; x++) begin : g_lane
        logic signed [From-1:0] earlier;
        logic signed [Width-1:0] sum[Distance], product[Distance], chosen, waiting;
        delay #(
            .WIDTH (From),
            .CYCLES(Distance)
        ) i_earlier (
            .clk_i,
            .d_i(g_stage[Before].lane[x]),
            .q_o(earlier)
        );
        for (genvar h = 0; h < Distance; h++) begin : g_beat
          shift_butterfly #(
              .WIDTH   (From),
              .OUT     (Width),
              .EXPONENT(root(LOG_R, (h * LANES + x) << Before)),
              .LATENCY (Latency)
          ) i_butterfly (
              .clk_i,
              .a_i(earlier),
              .b_i(g_stage[Before].lane[x]),
              .s_o(sum[h]),
              .t_o(product[h])
          );
        end
        if (Distance == 1) begin : g_one
          assign chosen = product[0];
        end else begin : g_several
          assign chosen = product[beat_late[LogDistance-1:0]];
        end
        delay #(
            .WIDTH (Width),
            .CYCLES(Distance)
        ) i_waiting (
            .clk_i,
            .d_i(chosen),
            .q_o(waiting)
        );
        always_ff @(posedge clk_i) lane[x] <= beat_late[LogDistance] ? sum[0] : waiting;
      end
    end else begin : g_words
      localparam int Before = stage - 1;
      localparam int Half = 1 << (LOG_R - stage);
      for (genvar x = 0; x < LANES; x++) begin : g_lane
        if (x % (2 * Half) < Half) begin : g_butterfly
          shift_butterfly #(
              .WIDTH   (stage_width(Before)),
              .OUT     (Width),
              .EXPONENT(root(LOG_R, (x % Half) << Before)),
              .LATENCY (factor_latency(LOG_R, Before))
          ) i_butterfly (
              .clk_i,
              .a_i(g_stage[Before].lane[x]),
              .b_i(g_stage[Before].lane[x+Half]),
              .s_o(lane[x]),
              .t_o(lane[x+Half])
          );
        end
      end
    end
  end
  assign lane_o = g_stage[LOG_R].lane;
endmodule
