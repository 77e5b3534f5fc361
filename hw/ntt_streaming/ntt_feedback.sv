// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_feedback: a stage of a streaming transform that pairs words of different beats, bit LOG_STEPS of whose numbers
// differs, and leaves every word in its place.
//
// The words of a beat wait until those 2^LOG_STEPS beats behind them come, and both go through LANES butterflies. One
// half of the results leaves at once, the other waits until it has, and leaves while the next words wait: single-path
// delay feedback on every lane. The butterflies work half of the time; ntt_commutator and ntt_stage do with half as
// many, but change places.
//
// The parameters are those of ntt_stage, and LOG_STEPS, below LOG_N - LOG_LANES. FILE has, where ASCENDING = INVERSE, a
// line for each value of the bits of the beat's number above LOG_STEPS, of one word; else a line for each value of
// those below it, of LANES words, that of lane 0 lowest. Beats of a polynomial may have any distance; what has begun to
// leave does not wait for others. Latency: 2^LOG_STEPS beats, and ntt_streaming_pkg::butterfly_latency
module ntt_feedback #(
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter logic [63:0] Q = 64'd268369921,
    parameter int WIDTH = 28,
    parameter int LOG_N = 4,
    parameter int LOG_LANES = 2,
    parameter bit ASCENDING = 0,
    parameter bit INVERSE = 0,
    parameter int LOG_STEPS = 0,
    parameter string FILE = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Word = WIDTH + int'(SOLINAS),
    localparam int Lanes = 1 << LOG_LANES
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       valid_i,
    input  logic [Lanes-1:0][Word-1:0] lanes_i,
    output logic                       valid_o,
    output logic [Lanes-1:0][Word-1:0] lanes_o
);
  localparam int LogBeats = LOG_N - LOG_LANES;
  if (LOG_STEPS < 0 || LOG_STEPS >= LogBeats) begin : g_check
    $fatal(1, "ntt_feedback: 0 <= LOG_STEPS < LOG_N - LOG_LANES is needed");
  end

  localparam int Steps = 1 << LOG_STEPS;
  localparam bit Upper = ASCENDING == INVERSE;
  localparam int Rows = Upper ? 1 << (LogBeats - 1 - LOG_STEPS) : Steps;
  localparam int Groups = Upper ? 1 : Lanes;
  localparam int AddressWidth = toroid_pkg::index_width(Rows);
  localparam int Latency = ntt_streaming_pkg::butterfly_latency(SOLINAS, 1, 1024'(Q), TILE_A, TILE_B, SHORT, BARRETT);

  logic [LogBeats-1:0] beat, next;
  ntt_beats #(
      .LOG_BEATS(LogBeats)
  ) i_beats (
      .clk_i,
      .rst_ni,
      .valid_i,
      .shift_i(1'b0),
      .beat_o (beat),
      .next_o (next)
  );

  // The memory reads ahead: in each cycle it is given the row of the beat that comes in the next one.
  logic [Groups-1:0][WIDTH-1:0] row;
  rom #(
      .WIDTH          (Groups * WIDTH),
      .DEPTH          (Rows),
      .FILE           (FILE),
      .OUTPUT_REGISTER(0)
  ) i_twiddles (
      .clk_i,
      .addr_i(Upper ? AddressWidth'({1'b0, next} >> (LOG_STEPS + 1)) : AddressWidth'(next & LogBeats'(Steps - 1))),
      .data_o(row)
  );

  logic [Lanes-1:0][Word-1:0] earlier, sums, differences, differences_late;
  stepped_delay #(
      .WIDTH(Lanes * Word),
      .STEPS(Steps)
  ) i_earlier (
      .clk_i,
      .rst_ni,
      .step_i(valid_i),
      .d_i(lanes_i),
      .q_o(earlier)
  );
  for (genvar n = 0; n < Lanes; n++) begin : g_butterfly
    if (SOLINAS) begin : g_solinas
      butterfly_solinas #(
          .I      (WIDTH),
          .J      (toroid_pkg::solinas_j(Q)),
          .INVERSE(INVERSE),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT),
          .NARROW (NARROW)
      ) i_butterfly (
          .clk_i,
          .bypass_i(1'b0),
          .a_i(earlier[n]),
          .b_i(lanes_i[n]),
          .w_i(row[Upper?0 : n]),
          .a_o(sums[n]),
          .b_o(differences[n])
      );
    end else begin : g_montgomery
      butterfly_montgomery #(
          .WIDTH  (WIDTH),
          .WORD   (ntt_streaming_pkg::word_bits(1, 1024'(Q), TILE_B)),
          .BARRETT(BARRETT ? Q[WIDTH-1:0] : '0),
          .INVERSE(INVERSE),
          .TILE_A (TILE_A),
          .TILE_B (TILE_B),
          .SHORT  (SHORT)
      ) i_butterfly (
          .clk_i,
          .q_i(Q[WIDTH-1:0]),
          .bypass_i(1'b0),
          .a_i(earlier[n]),
          .b_i(lanes_i[n]),
          .w_i(row[Upper?0 : n]),
          .a_o(sums[n]),
          .b_o(differences[n])
      );
    end
  end

  // Steps of the output: sums in the first half, differences in the second, which needs no input. It ends before the
  // next sums come, since their butterflies wait for as many beats.
  logic sum_valid, step;
  logic [LOG_STEPS:0] step_q;
  valid_delay #(
      .CYCLES(Latency)
  ) i_valid (
      .clk_i,
      .rst_ni,
      .valid_i(valid_i && beat[LOG_STEPS]),
      .valid_o(sum_valid)
  );
  assign step = sum_valid || step_q[LOG_STEPS];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) step_q <= '0;
    else if (step) step_q <= step_q + 1'b1;
  end
  stepped_delay #(
      .WIDTH(Lanes * Word),
      .STEPS(Steps)
  ) i_differences (
      .clk_i,
      .rst_ni,
      .step_i(step),
      .d_i(differences),
      .q_o(differences_late)
  );
  assign valid_o = step;
  assign lanes_o = step_q[LOG_STEPS] ? differences_late : sums;
endmodule
