// SPDX-License-Identifier: Apache-2.0 OR MIT
// Turns the words of a beat around the lanes: lane x takes the word of lane (x - shift) mod 2^LOG_LANES. Every beat has a shift of its own.
//
// LOG_LANES: 1 to 9. WIDTH: bits of a word.
// Latency: 3 cycles, shift and words together. Two bits of the shift cost a LUT of 6 inputs for each bit of a word; with registers between them
// tools find these.
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

  localparam int STAGES = 3;
  localparam int PAIRS = (LOG_LANES + 1) / 2;

  for (genvar stage = 0; stage <= STAGES; stage++) begin : gen_stage
    // The last stage needs no shift.
    // verilator lint_off UNUSEDSIGNAL
    logic [2*PAIRS-1:0] shift;
    // verilator lint_on UNUSEDSIGNAL
    logic [  WIDTH-1:0] word  [LANES];
    if (stage == 0) begin : gen_words
      assign shift = (2 * PAIRS)'(shift_i);
      assign word  = word_i;
    end else begin : gen_words
      logic [WIDTH-1:0] turned[LANES];
      always_comb begin
        logic [WIDTH-1:0] from[LANES];
        turned = gen_stage[stage-1].word;
        for (int pair = 0; pair < PAIRS; pair++) begin
          if (pair * STAGES / PAIRS == stage - 1) begin
            from = turned;
            for (int lane = 0; lane < LANES; lane++) begin
              turned[lane] = gen_stage[stage-1].shift[2*pair+1] ?
                  (gen_stage[stage-1].shift[2*pair] ? from[(lane+4*LANES-(3<<2*pair))%LANES] : from[(lane+4*LANES-(2<<2*pair))%LANES]) :
                  (gen_stage[stage-1].shift[2*pair] ? from[(lane+4*LANES-(1<<2*pair))%LANES] : from[lane]);
            end
          end
        end
      end
      always_ff @(posedge clk_i) begin
        shift <= gen_stage[stage-1].shift;
        word  <= turned;
      end
    end
  end
  assign word_o = gen_stage[STAGES].word;
endmodule
