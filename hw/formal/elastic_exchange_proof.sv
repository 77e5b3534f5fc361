// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_exchange: a word of beat c and lane l of a group of N2 beats comes LANES - 1 cycles later in the beat and the
// lane whose numbers have bit n of the beat and bit LOG_LANES - 1 - n of the lane exchanged, for the bits below log2(N2),
// whatever the registers held before and whatever groups of any N2 or cycles without a group lie around it. With its
// registers, over as many cycles as a word that leaves in the last one can depend on.
//
// SHIFT_USED  1 in self-tests only: the transposition of another N2
module elastic_exchange_proof
  import ntt_elastic_pkg::*;
#(
    parameter  int LOG_LANES  = 3,
    parameter  bit SHIFT_USED = 0,
    localparam int Lanes      = 1 << LOG_LANES,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES))
) (
    input logic                             clk_i,
    input logic                             in_group_i,
    input logic [ LOG_LANES-1:0]            beat_i,
    input logic [ShiftWidth-1:0]            shift_i,
    input logic [     Lanes-1:0][WIDTH-1:0] lanes_i,
    // Any lane of the output.
    input logic [ LOG_LANES-1:0]            lane_i
);
  localparam int Latency = Lanes - 1;

  // What came n cycles ago.
  logic [2*Latency:0] in_group;
  logic [2*Latency:0][LOG_LANES-1:0] beat;
  logic [2*Latency:0][ShiftWidth-1:0] shift;
  logic [2*Latency:0][Lanes-1:0][WIDTH-1:0] words;
  assign {in_group[0], beat[0], shift[0], words[0]} = {in_group_i, beat_i, shift_i, lanes_i};
  always_ff @(posedge clk_i) begin
    in_group[2*Latency:1] <= in_group[2*Latency-1:0];
    beat[2*Latency:1] <= beat[2*Latency-1:0];
    shift[2*Latency:1] <= shift[2*Latency-1:0];
    words[2*Latency:1] <= words[2*Latency-1:0];
  end

  // Of a group the beats are counted and N2 is the same; outside of groups beats are 0.
  logic [LOG_LANES-1:0] mask, mask_before, number, number_before;
  assign mask = {LOG_LANES{1'b1}} >> shift[0];
  assign mask_before = {LOG_LANES{1'b1}} >> shift[1];
  assign number = beat[0] & mask;
  assign number_before = beat[1] & mask_before;
  always_comb begin
    assume (int'(shift[0]) < shifts(LOG_LANES));
    if (!in_group[0]) assume (number == '0);
    if (in_group[1] && number_before != mask_before) begin
      assume (in_group[0] && number == number_before + 1'b1 && shift[0] == shift[1]);
    end else begin
      assume (number == '0);
    end
  end

  logic [Lanes-1:0][WIDTH-1:0] lanes;
  elastic_exchange #(
      .LOG_LANES(LOG_LANES)
  ) i_exchange (
      .clk_i,
      .beat_i,
      .shift_i(shift_i ^ ShiftWidth'(SHIFT_USED)),
      .lanes_i,
      .lanes_o(lanes)
  );

  logic [LOG_LANES-1:0] to_beat, from_beat, from_lane;
  logic [$clog2(2*Latency+1)-1:0] ago;
  always_comb begin
    to_beat   = beat[Latency] & ({LOG_LANES{1'b1}} >> shift[Latency]);
    from_beat = to_beat;
    from_lane = lane_i;
    for (int n = 0; n < LOG_LANES; n++) begin
      if (n < LOG_LANES - int'(shift[Latency])) begin
        from_beat[n] = lane_i[LOG_LANES-1-n];
        from_lane[LOG_LANES-1-n] = to_beat[n];
      end
    end
    ago = ($bits(ago))'(Latency + int'(to_beat) - int'(from_beat));
    if (in_group[Latency]) assert (lanes[lane_i] == words[ago][from_lane]);
  end
endmodule
