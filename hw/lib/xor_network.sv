// SPDX-License-Identifier: Apache-2.0 OR MIT
// xor_network: moves the word of lane j ^ key_i to lane j, for every lane j: the routing between lanes and the banks of an
// XOR-skewed memory. It is its own inverse.
//
// LOG_LANES  log2 of the number of lanes, 1 to 10
// KEY_BITS   bits of the key, 1 to LOG_LANES: lanes change places within aligned blocks of 2^KEY_BITS
// WIDTH      bits of a word, >= 1
// STAGES     registers, 1 or more
// Latency: STAGES, a key and its words together; new ones every cycle. Two bits of the key cost a LUT of 6 inputs for each bit of a lane;
// Yosys needs more where no register is between one pair of bits and the next.
module xor_network #(
    parameter int LOG_LANES = 3,
    parameter int KEY_BITS = LOG_LANES,
    parameter int WIDTH = 64,
    parameter int STAGES = 2
) (
    input logic clk_i,
    input logic [KEY_BITS-1:0] key_i,
    input logic [WIDTH-1:0] lane_i[1 << LOG_LANES],
    output logic [WIDTH-1:0] lane_o[1 << LOG_LANES]
);
  localparam int Lanes = 1 << LOG_LANES;
  localparam int Pairs = (KEY_BITS + 1) / 2;

  if (LOG_LANES < 1 || LOG_LANES > 10 || KEY_BITS < 1 || KEY_BITS > LOG_LANES || WIDTH < 1 || STAGES < 1) begin : g_check
    $fatal(1, "xor_network: LOG_LANES must be 1 to 10, KEY_BITS 1 to LOG_LANES, WIDTH and STAGES positive");
  end

  for (genvar stage = 0; stage <= STAGES; stage++) begin : g_stage
    // The last stage needs no key.
    // verilator lint_off UNUSEDSIGNAL
    logic [2*Pairs-1:0] key;
    // verilator lint_on UNUSEDSIGNAL
    logic [  WIDTH-1:0] words[Lanes];
    if (stage == 0) begin : g_words
      assign key   = (2 * Pairs)'(key_i);
      assign words = lane_i;
    end else begin : g_words
      logic [WIDTH-1:0] chosen[Lanes];
      // Selects of four words, each of them a LUT for a bit.
      always_comb begin
        logic [WIDTH-1:0] from[Lanes];
        chosen = g_stage[stage-1].words;
        for (int pair = 0; pair < Pairs; pair++) begin
          if (pair * STAGES / Pairs == stage - 1) begin
            from = chosen;
            for (int lane = 0; lane < Lanes; lane++) begin
              chosen[lane] = g_stage[stage-1].key[2*pair+1] ?
                  (g_stage[stage-1].key[2*pair] ? from[(lane^(3<<2*pair))%Lanes] : from[(lane^(2<<2*pair))%Lanes]) :
                  (g_stage[stage-1].key[2*pair] ? from[(lane^(1<<2*pair))%Lanes] : from[lane]);
            end
          end
        end
      end
      always_ff @(posedge clk_i) begin
        key   <= g_stage[stage-1].key;
        words <= chosen;
      end
    end
  end
  assign lane_o = g_stage[STAGES].words;
endmodule
