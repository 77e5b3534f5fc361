// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_banks: the first transposition: LANES memories, each a ring of 2 LANES^2 rows.
//
// Lane p of a beat is written to bank p + r modulo LANES, where r depends on the beat alone (elastic_turn). Beat k1 *
// N2 + j that is read takes from lane p, k1 reversed, the words of the beats c with c = j modulo N2, the one whose r is
// l into lane l: their r are all different (elastic_row), and so are their banks.
//
// LOG_LANES  log2 of the lanes
// we_i, write_beat_i, write_shift_i, lanes_i   a beat, its number in its transform, N2 = LANES >> shift
// read_beat_i, read_shift_i, row_i             the beat that is to be read, and the row where its transform begins
// A read must be at least one cycle behind the last write that it needs.
// Latency: 1 to the banks; 4 from a read
module elastic_banks
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    localparam int Lanes = 1 << LOG_LANES,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES)),
    localparam int LogBeats = 2 * LOG_LANES
) (
    input  logic                             clk_i,
    input  logic                             rst_ni,
    input  logic                             we_i,
    input  logic [  LogBeats-1:0]            write_beat_i,
    input  logic [ShiftWidth-1:0]            write_shift_i,
    input  logic [     Lanes-1:0][WIDTH-1:0] lanes_i,
    input  logic [  LogBeats-1:0]            read_beat_i,
    input  logic [ShiftWidth-1:0]            read_shift_i,
    input  logic [    LogBeats:0]            row_i,
    output logic [     Lanes-1:0][WIDTH-1:0] lanes_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check
    $fatal(1, "elastic_banks: LOG_LANES must be 2 to 5");
  end

  // Writing.
  logic [LOG_LANES-1:0] write_turn;
  elastic_turn #(
      .LOG_LANES(LOG_LANES)
  ) i_turn (
      .beat_i (write_beat_i),
      .shift_i(write_shift_i),
      .turn_o (write_turn)
  );
  logic we_q;
  logic [LogBeats:0] write_row_q;
  logic [Lanes-1:0][WIDTH-1:0] write_q, write_d;
  always_comb for (int b = 0; b < Lanes; b++) write_d[b] = lanes_i[LOG_LANES'(b)-write_turn];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      we_q <= 1'b0;
      write_row_q <= '0;
    end else begin
      we_q <= we_i;
      write_row_q <= write_row_q + (LogBeats + 1)'(we_q);
    end
    write_q <= write_d;
  end

  // Reading: lane k1 reversed.
  logic [LOG_LANES-1:0] k1, lane, lane_late;
  assign k1 = LOG_LANES'(read_beat_i >> (LOG_LANES - int'(read_shift_i)));
  always_comb for (int n = 0; n < LOG_LANES; n++) lane[n] = k1[LOG_LANES-1-n];
  logic [Lanes-1:0][LogBeats:0] rows_d, rows_q;
  for (genvar b = 0; b < Lanes; b++) begin : g_row
    logic [LogBeats-1:0] row;
    elastic_row #(
        .LOG_LANES(LOG_LANES)
    ) i_row (
        .turn_i (LOG_LANES'(b) - lane),
        .beat_i (read_beat_i[LOG_LANES-1:0]),
        .shift_i(read_shift_i),
        .row_o  (row)
    );
    assign rows_d[b] = row_i + (LogBeats + 1)'(row);
  end
  always_ff @(posedge clk_i) rows_q <= rows_d;
  delay #(
      .WIDTH (LOG_LANES),
      .CYCLES(3)
  ) i_lane (
      .clk_i,
      .d_i(lane),
      .q_o(lane_late)
  );

  logic [Lanes-1:0][WIDTH-1:0] read;
  for (genvar b = 0; b < Lanes; b++) begin : g_bank
    ram_sdp #(
        .WIDTH          (WIDTH),
        .DEPTH          (2 * Lanes * Lanes),
        .OUTPUT_REGISTER(1)
    ) i_bank (
        .clk_i,
        .we_i   (we_q),
        .waddr_i(write_row_q),
        .wdata_i(write_q[b]),
        .raddr_i(rows_q[b]),
        .rdata_o(read[b])
    );
  end
  always_ff @(posedge clk_i) begin
    for (int l = 0; l < Lanes; l++) lanes_o[l] <= read[LOG_LANES'(l)+lane_late];
  end
endmodule
