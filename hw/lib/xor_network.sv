// Moves the word of lane j ^ key_i to lane j, for every lane j: the routing between lanes and the banks of an
// XOR-skewed memory. It is its own inverse.
//
// LOG_LANES: 1 to 10, log2 of the number of lanes. WIDTH: 1 or more, bits of a word.
// Latency: 2 cycles, a key and its words together; new ones every cycle. Each bit of a lane costs one 6-input LUT for
// two stages.
module xor_network #(
    parameter int LOG_LANES = 3,
    parameter int WIDTH = 64
) (
    input logic clk_i,
    input logic [LOG_LANES-1:0] key_i,
    input logic [WIDTH-1:0] lane_i[1 << LOG_LANES],
    output logic [WIDTH-1:0] lane_o[1 << LOG_LANES]
);
  localparam int LANES = 1 << LOG_LANES;
  // Registers stand after an even number of stages, so that stages pair up in one LUT.
  localparam int FIRST = (LOG_LANES + 3) / 4 * 2 < LOG_LANES ? (LOG_LANES + 3) / 4 * 2 : LOG_LANES;

  if (LOG_LANES < 1 || LOG_LANES > 10 || WIDTH < 1) begin : gen_illegal
    $fatal(1, "xor_network: LOG_LANES must be 1 to 10 and WIDTH positive");
  end

  logic [LOG_LANES-1:0] key_q;
  logic [WIDTH-1:0] front_q[LANES];
  logic [WIDTH-1:0] front[LANES];
  logic [WIDTH-1:0] back[LANES];

  always_comb begin
    logic [WIDTH-1:0] from[LANES];
    front = lane_i;
    for (int stage = 0; stage < FIRST; stage++) begin
      from = front;
      for (int lane = 0; lane < LANES; lane++) begin
        front[lane] = key_i[stage] ? from[lane^(1<<stage)] : from[lane];
      end
    end
  end

  always_comb begin
    logic [WIDTH-1:0] from[LANES];
    back = front_q;
    for (int stage = FIRST; stage < LOG_LANES; stage++) begin
      from = back;
      for (int lane = 0; lane < LANES; lane++) begin
        back[lane] = key_q[stage] ? from[lane^(1<<stage)] : from[lane];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    key_q   <= key_i;
    front_q <= front;
    lane_o  <= back;
  end
endmodule
