// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_end: brings the words of a polynomial from one order to another.
//
// KIND         0: it leaves them as they are. 1: one commutator for each bit of the beat, from bit 0 up (ASCENDING = 1,
//              from the order of the index to halves side by side) or down to bit 0 (ASCENDING = 0, back). 2: a
//              permutation network
// LOG_LANES    log2 of the lanes
// LOG_BEATS    log2 of the beats of a polynomial
// WIDTH        bits of a word
// LOG_NETWORK  log2 of the lanes of the network, at most LOG_LANES
// The other parameters are those of permutation_network.
// Latency: ntt_streaming_pkg::end_latency
module ntt_end
  import permutation_pkg::*;
#(
    parameter int KIND = 0,
    parameter bit ASCENDING = 1,
    parameter int LOG_LANES = 1,
    parameter int LOG_BEATS = 1,
    parameter int WIDTH = 28,
    parameter int LOG_NETWORK = 1,
    parameter int DELAY = 0,
    parameter int LOG_DEPTH = LOG_BEATS + 1,
    parameter logic [map_width(switches(LOG_NETWORK))-1:0] FIRST_MAP = '0,
    parameter logic [map_width(
address_bits(LOG_BEATS, LOG_DEPTH, DELAY) << LOG_NETWORK
)-1:0] ADDRESS_MAP = '0,
    parameter logic [map_width(switches(LOG_NETWORK))-1:0] SECOND_MAP = '0,
    parameter int WRITE_BITS = 0,
    parameter string WRITE_FILE = "",
    parameter int READ_BITS = 0,
    parameter string READ_FILE = "",
    localparam int Lanes = 1 << LOG_LANES
) (
    // Wires have no clock.
    // verilator lint_off UNUSEDSIGNAL
    input  logic                        clk_i,
    input  logic                        rst_ni,
    // verilator lint_on UNUSEDSIGNAL
    input  logic                        valid_i,
    input  logic [Lanes-1:0][WIDTH-1:0] lanes_i,
    output logic                        valid_o,
    output logic [Lanes-1:0][WIDTH-1:0] lanes_o
);
  if (KIND < 0 || KIND > 2 || LOG_NETWORK > LOG_LANES) begin : g_check
    $fatal(1, "ntt_end: KIND is 0 to 2, and LOG_NETWORK at most LOG_LANES");
  end

  if (KIND == 0) begin : g_wires
    assign valid_o = valid_i;
    assign lanes_o = lanes_i;
  end else if (KIND == 1) begin : g_commutators
    logic valid[LOG_BEATS+1];
    logic [Lanes-1:0][WIDTH-1:0] lanes[LOG_BEATS+1];
    assign valid[0] = valid_i;
    assign lanes[0] = lanes_i;
    for (genvar n = 0; n < LOG_BEATS; n++) begin : g_bit
      logic unused_tag;
      ntt_commutator #(
          .WIDTH    (Lanes / 2 * WIDTH),
          .LOG_STEPS(ASCENDING ? n : LOG_BEATS - 1 - n),
          .LOG_BEATS(LOG_BEATS)
      ) i_commutator (
          .clk_i,
          .rst_ni,
          .valid_i(valid[n]),
          .tag_i  (1'b0),
          .lower_i(lanes[n][Lanes/2-1:0]),
          .upper_i(lanes[n][Lanes-1:Lanes/2]),
          .valid_o(valid[n+1]),
          .tag_o  (unused_tag),
          .lower_o(lanes[n+1][Lanes/2-1:0]),
          .upper_o(lanes[n+1][Lanes-1:Lanes/2])
      );
    end
    assign valid_o = valid[LOG_BEATS];
    assign lanes_o = lanes[LOG_BEATS];
  end else begin : g_network
    logic unused_in_last, unused_out_last;
    permutation_network #(
        .LOG_LANES  (LOG_NETWORK),
        .LOG_BEATS  (LOG_BEATS),
        .WIDTH      (WIDTH << (LOG_LANES - LOG_NETWORK)),
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
        .in_valid_i (valid_i),
        .in_data_i  (lanes_i),
        .in_last_o  (unused_in_last),
        .out_valid_o(valid_o),
        .out_data_o (lanes_o),
        .out_last_o (unused_out_last)
    );
  end
endmodule
