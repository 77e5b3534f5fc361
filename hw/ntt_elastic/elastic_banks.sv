// elastic_banks: the first transposition: LANES memories, each a ring of 2 LANES^2 rows.
//
// Lane p of a beat is written to bank p + r modulo LANES, where r depends on the beat alone. A beat that is read takes
// one word of each of LANES beats, all from one lane p, into lane l the word whose r is l: then no two of them are in
// one bank. For beat c = n2 * LANES + n3 of a transform, r has n2 in its upper log2(N2) bits, and in the others the
// rest of n3 above its lower log2(N2) bits, reversed. Beat k1 * N2 + j is read from lane k1 reversed, and has of n3 the
// lower bits j.
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
  function automatic logic [LOG_LANES-1:0] turned(logic [LOG_LANES-1:0] x);
    for (int n = 0; n < LOG_LANES; n++) turned[n] = x[LOG_LANES-1-n];
  endfunction

  // The bits of a lane that a group of N2 words has not.
  function automatic logic [LOG_LANES-1:0] others(logic [ShiftWidth-1:0] shift);
    return ~({LOG_LANES{1'b1}} << shift);
  endfunction

  // Writing.
  logic [LOG_LANES-1:0] write_turn;
  assign write_turn = (write_beat_i[LogBeats-1:LOG_LANES] << write_shift_i) | (turned(
      write_beat_i[LOG_LANES-1:0]
  ) & others(
      write_shift_i
  ));
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

  // Reading.
  logic [LOG_LANES-1:0] lane, lane_late, group;
  assign lane  = turned(LOG_LANES'(read_beat_i >> (LOG_LANES - int'(read_shift_i))));
  assign group = read_beat_i[LOG_LANES-1:0] & ({LOG_LANES{1'b1}} >> read_shift_i);
  logic [Lanes-1:0][LogBeats:0] rows_d, rows_q;
  always_comb begin
    for (int b = 0; b < Lanes; b++) begin
      automatic logic [LOG_LANES-1:0] turn = LOG_LANES'(b) - lane;
      rows_d[b] = row_i + (LogBeats + 1)'({turn >> read_shift_i, turned(turn & others(read_shift_i)) | group});
    end
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
