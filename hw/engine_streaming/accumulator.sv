// SPDX-License-Identifier: Apache-2.0 OR MIT
// One polynomial of the accumulator, in two copies: one is read straight, the other turned by X^exponent. Both are written with the same word
// but where a polynomial is turned from one to the other.
//
// A beat is 2^LOG_LANES words of one column: beat (column, row), lane x is coefficient ((row·2^LOG_LANES + x)·C + column), with N = R·C,
// C = 2^LOG_COLUMNS. All reads and writes take whole beats, and X^a moves a column to a column, so the bank of a word is its lane: neither copy
// ever meets a conflict.
//
// LOG_N, LOG_COLUMNS: log2 of N and C. LOG_LANES: 1 to LOG_N - LOG_COLUMNS.
// Latency of a read: 2 cycles. The exponent goes with its beat. Words for the turned read come as the banks have them, beside the shift that a
// `lane_rotator` brings them to their lanes with; negative_o says which of them, at their lanes, change their sign.
module accumulator #(
    parameter int LOG_N = 9,
    parameter int LOG_COLUMNS = 4,
    parameter int LOG_LANES = 3,
    localparam int LANES = 1 << LOG_LANES,
    localparam int BEAT_BITS = LOG_N - LOG_LANES
) (
    input logic clk_i,
    input logic write_straight_i,
    input logic write_turned_i,
    input logic [BEAT_BITS-1:0] write_beat_i,
    input logic [63:0] word_i[LANES],
    input logic [BEAT_BITS-1:0] straight_beat_i,
    output logic [63:0] straight_o[LANES],
    input logic [BEAT_BITS-1:0] turned_beat_i,
    input logic [LOG_N:0] exponent_i,
    output logic [63:0] banked_o[LANES],
    output logic [LOG_LANES-1:0] shift_o,
    output logic [LANES-1:0] negative_o
);
  // Rows of a column, by number and with the sign above it.
  localparam int LOG_HEIGHT = BEAT_BITS - LOG_COLUMNS;
  localparam int ROW_BITS = LOG_HEIGHT + 1 + LOG_LANES;

  if (LOG_COLUMNS < 1 || LOG_LANES < 1 || LOG_HEIGHT < 0) begin : g_check
    $fatal(1, "accumulator: LOG_LANES must be 1 to LOG_N - LOG_COLUMNS");
  end

  // Beats are column·H + row.
  logic [LOG_COLUMNS-1:0] column, from_column;
  logic [LOG_HEIGHT:0] row;
  logic [ROW_BITS-1:0] back;
  logic [LOG_LANES-1:0] shift, shift_q[2];
  logic [LANES-1:0] negative, negative_q[2];

  assign column = turned_beat_i[BEAT_BITS-1:LOG_HEIGHT];
  assign row = LOG_HEIGHT == 0 ? '0 : (LOG_HEIGHT + 1)'(turned_beat_i & BEAT_BITS'((1 << LOG_HEIGHT) - 1));
  assign from_column = column - exponent_i[LOG_COLUMNS-1:0];
  assign back = exponent_i[LOG_N:LOG_COLUMNS] + ROW_BITS'(column < exponent_i[LOG_COLUMNS-1:0]);
  assign shift = back[LOG_LANES-1:0];

  for (genvar lane = 0; lane < LANES; lane++) begin : gen_bank
    // Of the bank, and of the lane that its word goes to or comes from.
    logic [LOG_HEIGHT:0] bank_row, lane_row;
    logic [BEAT_BITS-1:0] bank_beat;
    assign bank_row = row - back[ROW_BITS-1:LOG_LANES] - (LOG_HEIGHT + 1)'({1'b0, LOG_LANES'(lane)} + {1'b0, shift} >= (LOG_LANES + 1)'(LANES));
    assign lane_row = row - back[ROW_BITS-1:LOG_LANES] - (LOG_HEIGHT + 1)'((LOG_LANES + 1)'(lane) < {1'b0, shift});
    assign negative[lane] = lane_row[LOG_HEIGHT];
    assign bank_beat = (BEAT_BITS'(from_column) << LOG_HEIGHT) | (BEAT_BITS'(bank_row) & BEAT_BITS'((1 << LOG_HEIGHT) - 1));

    ram_sdp #(
        .WIDTH(64),
        .DEPTH(1 << BEAT_BITS)
    ) i_straight (
        .clk_i,
        .we_i(write_straight_i),
        .waddr_i(write_beat_i),
        .wdata_i(word_i[lane]),
        .raddr_i(straight_beat_i),
        .rdata_o(straight_o[lane])
    );

    ram_sdp #(
        .WIDTH(64),
        .DEPTH(1 << BEAT_BITS)
    ) i_turned (
        .clk_i,
        .we_i(write_turned_i),
        .waddr_i(write_beat_i),
        .wdata_i(word_i[lane]),
        .raddr_i(bank_beat),
        .rdata_o(banked_o[lane])
    );
  end

  assign shift_o = shift_q[1];
  assign negative_o = negative_q[1];
  always_ff @(posedge clk_i) begin
    shift_q[0] <= shift;
    shift_q[1] <= shift_q[0];
    negative_q[0] <= negative;
    negative_q[1] <= negative_q[0];
  end
endmodule
