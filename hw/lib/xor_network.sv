// SPDX-License-Identifier: Apache-2.0 OR MIT
// xor_network: moves the word of lane j ^ key_i to lane j, for every lane j: the routing between lanes and the banks of an
// XOR-skewed memory. It is its own inverse.
//
// LOG_LANES  log2 of the number of lanes, 1 to 10
// KEY_BITS   bits of the key, 1 to LOG_LANES: lanes change places within aligned blocks of 2^KEY_BITS
// WIDTH      bits of a word, >= 1
// Latency: 2, a key and its words together; new ones every cycle. Two bits of the key cost a LUT of 6 inputs for each bit of a lane.
module xor_network #(
    parameter int LOG_LANES = 3,
    parameter int KEY_BITS = LOG_LANES,
    parameter int WIDTH = 64
) (
    input logic clk_i,
    input logic [KEY_BITS-1:0] key_i,
    input logic [WIDTH-1:0] lane_i[1 << LOG_LANES],
    output logic [WIDTH-1:0] lane_o[1 << LOG_LANES]
);
  localparam int Lanes = 1 << LOG_LANES;
  // Of pairs of key bits, those before the first register.
  localparam int Pairs = (KEY_BITS + 1) / 2;
  localparam int First = (Pairs + 1) / 2;

  if (LOG_LANES < 1 || LOG_LANES > 10 || KEY_BITS < 1 || KEY_BITS > LOG_LANES || WIDTH < 1) begin : g_check
    $fatal(1, "xor_network: LOG_LANES must be 1 to 10, KEY_BITS 1 to LOG_LANES and WIDTH positive");
  end

  logic [2*Pairs-1:0] key, key_q;
  logic [WIDTH-1:0] front_q[Lanes], front[Lanes], back[Lanes];

  assign key = (2 * Pairs)'(key_i);

  // Selects of four words, each of them a LUT for a bit.
  always_comb begin
    logic [WIDTH-1:0] from[Lanes];
    front = lane_i;
    for (int pair = 0; pair < First; pair++) begin
      from = front;
      for (int lane = 0; lane < Lanes; lane++) begin
        front[lane] = key[2*pair+1] ?
            (key[2*pair] ? from[(lane^(3<<2*pair))%Lanes] : from[(lane^(2<<2*pair))%Lanes]) :
            (key[2*pair] ? from[(lane^(1<<2*pair))%Lanes] : from[lane]);
      end
    end
  end

  always_comb begin
    logic [WIDTH-1:0] from[Lanes];
    back = front_q;
    for (int pair = First; pair < Pairs; pair++) begin
      from = back;
      for (int lane = 0; lane < Lanes; lane++) begin
        back[lane] = key_q[2*pair+1] ?
            (key_q[2*pair] ? from[(lane^(3<<2*pair))%Lanes] : from[(lane^(2<<2*pair))%Lanes]) :
            (key_q[2*pair] ? from[(lane^(1<<2*pair))%Lanes] : from[lane]);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    key_q   <= key;
    front_q <= front;
    lane_o  <= back;
  end
endmodule
