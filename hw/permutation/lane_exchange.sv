// lane_exchange: permutation_network for what stages of a transform need between them: two lanes, and frames of
// 2^(LOG_DISTANCE + 1) beats. What was in lane 1 of beat t goes to lane 0 of beat t + 2^LOG_DISTANCE, for t in the first
// half of the frame, and what was there goes to where it came from; everything else stays where it is.
//
// LOG_DISTANCE  0 to 19
// WIDTH         bits of a lane, >= 1: any number of words side by side that go the same way
// Latency: permutation_pkg::exchange_latency
module lane_exchange
  import permutation_pkg::*;
#(
    parameter int LOG_DISTANCE = 0,
    parameter int WIDTH = 64
) (
    input  logic                  clk_i,
    input  logic                  rst_ni,
    input  logic                  in_valid_i,
    input  logic [1:0][WIDTH-1:0] in_data_i,
    // The beat that is given now is the last of its frame.
    output logic                  in_last_o,
    output logic                  out_valid_o,
    output logic [1:0][WIDTH-1:0] out_data_o,
    output logic                  out_last_o
);
  if (LOG_DISTANCE < 0 || LOG_DISTANCE >= MAX_LOG_BEATS) begin : g_check
    $fatal(1, "lane_exchange: LOG_DISTANCE must be 0 to 19");
  end

  localparam int MapWidth = map_width((LOG_DISTANCE + 1) << 1);

  permutation_network #(
      .LOG_LANES  (1),
      .LOG_BEATS  (LOG_DISTANCE + 1),
      .WIDTH      (WIDTH),
      .DELAY      (1 << LOG_DISTANCE),
      .FIRST_MAP  (exchange_switch(LOG_DISTANCE)),
      .ADDRESS_MAP(MapWidth'(exchange_addresses(LOG_DISTANCE))),
      .SECOND_MAP (exchange_switch(LOG_DISTANCE))
  ) i_network (
      .clk_i,
      .rst_ni,
      .in_valid_i,
      .in_data_i,
      .in_last_o,
      .out_valid_o,
      .out_data_o,
      .out_last_o
  );
endmodule
