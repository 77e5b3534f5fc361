// lane_exchange: the permutation that stages of a transform need between them, on two lanes and frames of 2 D beats,
// D = 2^LOG_DISTANCE. For t < D, lane 1 of beat t and lane 0 of beat t + D change places; the other words stay where they
// are. Valid in, valid out: gaps anywhere within or between frames, and the rest of a frame leaves by itself.
//
// Lane 1 waits D beats in a memory, what the switch gives lane 0 in another: D words each, where permutation_network has
// 4 D for the same and a switch more.
//
// LOG_DISTANCE  0 to 20
// WIDTH         bits of a lane, >= 1: any number of words side by side that go the same way
// Latency: permutation_pkg::exchange_latency, from beat u of the input to beat u of the output where no cycle of the frame
// is without a beat. Beat u < D leaves a cycle after beat u + D came, the second half right behind the first.
module lane_exchange #(
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
  if (LOG_DISTANCE < 0 || LOG_DISTANCE > 20) begin : g_check_distance
    $fatal(1, "lane_exchange: LOG_DISTANCE must be 0 to 20");
  end
  if (WIDTH < 1) begin : g_check_width
    $fatal(1, "lane_exchange: WIDTH must be at least 1");
  end

  localparam int Distance = 1 << LOG_DISTANCE;
  localparam int SlotWidth = toroid_pkg::index_width(Distance);
  localparam logic [SlotWidth-1:0] LastSlot = SlotWidth'(Distance - 1);

  // Beats of the second half fetch what waits in their slots, and so does the rest, D cycles long behind the last beat;
  // the first half of the next frame only fills slots, at the earliest those that the rest has left in the same cycle.
  logic [LOG_DISTANCE:0] beat_q;
  logic [SlotWidth-1:0] slot, rest_slot_q;
  logic is_second, is_rest_q;
  assign slot = SlotWidth'(beat_q) & LastSlot;
  assign is_second = beat_q[LOG_DISTANCE];
  assign in_last_o = beat_q == '1;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      beat_q      <= '0;
      rest_slot_q <= '0;
      is_rest_q   <= 1'b0;
    end else begin
      if (in_valid_i) beat_q <= beat_q + 1'b1;
      if (is_rest_q) rest_slot_q <= (rest_slot_q + 1'b1) & LastSlot;
      if (in_valid_i && in_last_o) is_rest_q <= 1'b1;
      else if (rest_slot_q == LastSlot) is_rest_q <= 1'b0;
    end
  end

  // A cycle later, when the words are fetched, slots are filled.
  logic in_valid_q, is_second_q, rest_q, last_q;
  logic [SlotWidth-1:0] slot_q;
  logic [1:0][WIDTH-1:0] in_data_q, fetched, filling;
  always_ff @(posedge clk_i) begin
    in_valid_q  <= rst_ni && in_valid_i;
    out_valid_o <= rst_ni && ((in_valid_i && is_second) || is_rest_q);
    is_second_q <= is_second;
    rest_q      <= is_rest_q;
    last_q      <= is_rest_q && rest_slot_q == LastSlot;
    slot_q      <= slot;
    in_data_q   <= in_data_i;
  end
  assign filling = {in_data_q[1], is_second_q ? fetched[1] : in_data_q[0]};
  assign out_data_o = {rest_q ? fetched[1] : in_data_q[0], fetched[0]};
  assign out_last_o = last_q;

  for (genvar lane = 0; lane < 2; lane++) begin : g_lane
    if (LOG_DISTANCE == 0) begin : g_register
      always_ff @(posedge clk_i) if (in_valid_q) fetched[lane] <= filling[lane];
    end else begin : g_memory
      ram_sdp #(
          .WIDTH          (WIDTH),
          .DEPTH          (Distance),
          .OUTPUT_REGISTER(0)
      ) i_memory (
          .clk_i,
          .we_i   (in_valid_q),
          .waddr_i(slot_q),
          .wdata_i(filling[lane]),
          .raddr_i(is_rest_q ? rest_slot_q : slot),
          .rdata_o(fetched[lane])
      );
    end
  end
  if (LOG_DISTANCE == 0) begin : g_one_slot
    logic unused;
    assign unused = &slot_q;
  end
endmodule
