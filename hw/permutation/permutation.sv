// SPDX-License-Identifier: Apache-2.0 OR MIT
// permutation: a fixed permutation of the words of frames, between AXI4-Streams.
//
// in_*   2^LOG_BEATS beats a frame, 2^LOG_LANES words a beat; tlast ends a frame
// out_*  the same
// error_o: a beat was taken in the cycle before whose tlast was wrong; the core goes on as if it had been right
//
// Parameters as of permutation_network, but WIDTH at most 64.
// Latency: permutation_pkg::latency where neither side is held back; a frame in as many cycles as it has beats.
module permutation
  import permutation_pkg::*;
#(
    parameter int LOG_LANES = 1,
    parameter int LOG_BEATS = 0,
    parameter int WIDTH = 64,
    parameter int DELAY = 0,
    parameter int LOG_DEPTH = LOG_BEATS + 1,
    parameter logic [map_width(switches(LOG_LANES))-1:0] FIRST_MAP = '0,
    parameter logic [map_width(address_bits(LOG_BEATS, LOG_DEPTH, DELAY) << LOG_LANES)-1:0] ADDRESS_MAP = '0,
    parameter logic [map_width(switches(LOG_LANES))-1:0] SECOND_MAP = '0,
    parameter int WRITE_BITS = 0,
    parameter string WRITE_FILE = "",
    parameter int READ_BITS = 0,
    parameter string READ_FILE = "",
    localparam int Lanes = 1 << LOG_LANES,
    localparam int LaneWidth = toroid_pkg::lane_width(WIDTH)
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       in_tvalid_i,
    output logic                       in_tready_o,
    // The bits above a word are not read.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [Lanes*LaneWidth-1:0] in_tdata_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic                       in_tlast_i,
    output logic                       out_tvalid_o,
    input  logic                       out_tready_i,
    output logic [Lanes*LaneWidth-1:0] out_tdata_o,
    output logic                       out_tlast_o,
    output logic                       error_o
);
  if (WIDTH < 1 || WIDTH > 64) begin : g_check_width
    $fatal(1, "permutation: WIDTH must be 1 to 64");
  end

  localparam int Latency = latency(switch_map_t'(FIRST_MAP), switch_map_t'(SECOND_MAP), LOG_LANES, DELAY);

  logic take, last, pipe_valid, pipe_last;
  logic [Lanes-1:0][WIDTH-1:0] in_data, pipe_data, out_data;
  for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
    assign in_data[lane] = in_tdata_i[lane*LaneWidth+:WIDTH];
    assign out_tdata_o[lane*LaneWidth+:LaneWidth] = LaneWidth'(out_data[lane]);
  end
  permutation_network #(
      .LOG_LANES  (LOG_LANES),
      .LOG_BEATS  (LOG_BEATS),
      .WIDTH      (WIDTH),
      .DELAY      (DELAY),
      .LOG_DEPTH  (LOG_DEPTH),
      .FIRST_MAP  (FIRST_MAP),
      .ADDRESS_MAP(ADDRESS_MAP),
      .SECOND_MAP (SECOND_MAP),
      .WRITE_BITS (WRITE_BITS),
      .WRITE_FILE (WRITE_FILE),
      .READ_BITS  (READ_BITS),
      .READ_FILE  (READ_FILE)
  ) i_network (
      .clk_i,
      .rst_ni,
      .in_valid_i (take),
      .in_data_i  (in_data),
      .in_last_o  (last),
      .out_valid_o(pipe_valid),
      .out_data_o (pipe_data),
      .out_last_o (pipe_last)
  );
  // A depth above the latency, so that the input is never held back unless the output is.
  stream_ends #(
      .WIDTH(Lanes * WIDTH),
      .DEPTH(Latency < 1 ? 2 : Latency + 1)
  ) i_ends (
      .clk_i,
      .rst_ni,
      .in_tvalid_i,
      .in_tready_o,
      .take_o      (take),
      .pipe_valid_i(pipe_valid),
      .pipe_data_i (pipe_data),
      .pipe_last_i (pipe_last),
      .out_tvalid_o,
      .out_tready_i,
      .out_tdata_o (out_data),
      .out_tlast_o
  );

  logic error_q;
  always_ff @(posedge clk_i) error_q <= rst_ni && take && in_tlast_i != last;
  assign error_o = error_q;
endmodule
