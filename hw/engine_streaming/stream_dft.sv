// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_dft: cyclic DFTs of R = 2^LOG_R points modulo q = 2^64 - 2^32 + 1, block after block, decimated in frequency.
//
// A block is R / P beats of P = 2^LOG_LANES words. Point h * P + x enters by lane x of beat h, and value j leaves at the place
// h * P + x that is j with its bits reversed. All twiddles are powers of sqrt(2), so that no stage multiplies. The first
// log2(R / P) stages pair beats: a beat waits for its partner, one adder a lane gives the differences and then the sums, which leave while the
// differences become products. The others pair lanes. Words have no signs and grow by a bit a sum; those that leave are more than the values by constants,
// stream_transform_pkg::value_offsets.
//
// LOG_R      1 to 7
// LOG_LANES  1 to LOG_R
// Latency: stream_transform_pkg::stage_start of stage LOG_R. beat_i is the number h of the beat, 0 between frames; beat_o is that of the words
// that leave.
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
    input logic [BEAT_BITS-1:0] beat_i,
    input logic [63:0] lane_i[LANES],
    output logic [BEAT_BITS-1:0] beat_o,
    output logic [OUT-1:0] lane_o[LANES]
);
  if (LOG_R < 1 || LOG_R > 7 || LOG_LANES < 1 || LOG_LANES > LOG_R) begin : g_check
    $fatal(1, "stream_dft: 1 <= LOG_LANES <= LOG_R <= 7 must hold");
  end

  localparam int Beats = LOG_R - LOG_LANES;

  for (genvar stage = 0; stage <= LOG_R; stage++) begin : g_stage
    localparam int Width = stage_width(stage);
    localparam widths_t Widths = lane_widths(LOG_R, LOG_LANES, stage);
    logic [Width-1:0] lane[LANES];
    if (stage == 0) begin : g_words
      assign lane = lane_i;
    end else if (stage <= Beats) begin : g_words
      // The stage before pairs beats.
      localparam int Before = stage - 1;
      localparam int LogDistance = Beats - stage;
      localparam int Distance = 1 << LogDistance;
      localparam widths_t Earlier = lane_widths(LOG_R, LOG_LANES, Before);
      // Of the words that enter, of their operands, of the products, and where the words leave.
      logic [BEAT_BITS-1:0] beat, beat_add, beat_product, beat_leaves;
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
          .CYCLES(1)
      ) i_beat_add (
          .clk_i,
          .d_i(beat),
          .q_o(beat_add)
      );
      delay #(
          .WIDTH (BEAT_BITS),
          .CYCLES(1 + ROOT_LATENCY)
      ) i_beat_product (
          .clk_i,
          .d_i(beat_add),
          .q_o(beat_product)
      );
      delay #(
          .WIDTH (BEAT_BITS),
          .CYCLES(2 * Distance - ROOT_LATENCY)
      ) i_beat_leaves (
          .clk_i,
          .d_i(beat_product),
          .q_o(beat_leaves)
      );
      // Bits above are those of other blocks, and one distance has no number.
      logic unused_beat;
      assign unused_beat = ^{beat_add, beat_product, beat_leaves};
      for (genvar x = 0; x < LANES; x++) begin : g_lane
        localparam int From = int'(Earlier[x]);
        localparam int To = int'(Widths[x]);
        logic [From-1:0] now, earlier, first_q, second_q;
        logic [From:0] result_q;
        logic [To-1:0] product[Distance], chosen, waiting;
        logic subtracts, unused_carry;
        assign now = g_stage[Before].lane[x][From-1:0];
        delay #(
            .WIDTH (From),
            .CYCLES(Distance)
        ) i_earlier (
            .clk_i,
            .d_i(now),
            .q_o(earlier)
        );
        if (Distance == 1) begin : g_hold
          localparam bit IsSwapped = is_swapped(root(LOG_R, x << Before));
          always_ff @(posedge clk_i)
            if (beat[LogDistance])
              {first_q, second_q} <= IsSwapped ? {now, earlier} : {earlier, now};
        end else begin : g_again
          // A pair comes again when its sum is wanted.
          logic [From-1:0] earliest, a, b;
          logic [Distance-1:0] is_swapped_at;
          delay #(
              .WIDTH (From),
              .CYCLES(Distance)
          ) i_earliest (
              .clk_i,
              .d_i(earlier),
              .q_o(earliest)
          );
          for (genvar h = 0; h < Distance; h++) begin : g_beat
            assign is_swapped_at[h] = is_swapped(root(LOG_R, (h * LANES + x) << Before));
          end
          assign {a, b} = beat[LogDistance] ? {earlier, now} : {earliest, earlier};
          always_ff @(posedge clk_i) {first_q, second_q} <= is_swapped_at[beat[LogDistance-1:0]] ? {b, a} : {a, b};
        end
        // A difference is 2^From more, so that it has no sign.
        assign subtracts = beat_add[LogDistance];
        always_ff @(posedge clk_i)
          {result_q, unused_carry} <= {subtracts, first_q, 1'b1} + {{(From + 1) {subtracts}} ^ {1'b0, second_q}, subtracts};
        for (genvar h = 0; h < Distance; h++) begin : g_beat
          localparam int Exponent = root(LOG_R, (h * LANES + x) << Before);
          logic [product_width(From+1, Exponent)-1:0] t;
          root_product #(
              .WIDTH   (From + 1),
              .EXPONENT(Exponent),
              .LATENCY (ROOT_LATENCY)
          ) i_product (
              .clk_i,
              .d_i(result_q),
              .t_o(t)
          );
          assign product[h] = To'(t);
        end
        if (Distance == 1) begin : g_one
          assign chosen = product[0];
        end else begin : g_several
          assign chosen = product[beat_product[LogDistance-1:0]];
        end
        delay #(
            .WIDTH (To),
            .CYCLES(2 * Distance - ROOT_LATENCY)
        ) i_waiting (
            .clk_i,
            .d_i(chosen),
            .q_o(waiting)
        );
        always_ff @(posedge clk_i) lane[x] <= Width'(beat_leaves[LogDistance] ? waiting : To'(result_q));
      end
    end else begin : g_words
      localparam int Before = stage - 1;
      localparam int Half = 1 << (LOG_R - stage);
      for (genvar x = 0; x < LANES; x++) begin : g_lane
        if (x % (2 * Half) < Half) begin : g_butterfly
          localparam int Exponent = root(LOG_R, (x % Half) << Before);
          localparam int From = int'(Widths[x]) - 1;
          logic [From:0] s;
          logic [product_width(From+1, Exponent)-1:0] t;
          shift_butterfly #(
              .WIDTH   (From),
              .EXPONENT(Exponent),
              .LATENCY (factor_latency(LOG_R, Before))
          ) i_butterfly (
              .clk_i,
              .a_i(g_stage[Before].lane[x][From-1:0]),
              .b_i(g_stage[Before].lane[x+Half][From-1:0]),
              .s_o(s),
              .t_o(t)
          );
          assign lane[x] = Width'(s);
          assign lane[x+Half] = Width'(t);
        end
      end
    end
  end
  assign lane_o = g_stage[LOG_R].lane;
  delay #(
      .WIDTH (BEAT_BITS),
      .CYCLES(stage_start(LOG_R, LOG_LANES, LOG_R))
  ) i_beat_o (
      .clk_i,
      .d_i(beat_i),
      .q_o(beat_o)
  );
endmodule
