// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_transpose: turns the blocks of a frame into its places, frame after frame: R = 2^LOG_R blocks of R words, P =
// 2^LOG_LANES a beat.
//
// Forward, place s of block q that leaves is place q of block s that entered. Inverse, it is place rev(-q) of block rev(~s),
// with bits reversed: after the transform over a block, which leaves value j at place rev(j), and whose index is negated
// where it is that of the other direction; ~s = -s - 1 does so too, but for a factor of the results.
//
// There are P banks, of two frames each. Place p of block B is in bank p ^ B ^ (B / P) modulo P, so that the beats of both
// directions find each of their words in another bank.
//
// LOG_R      LOG_LANES to 2 LOG_LANES
// LOG_LANES  >= 1
// Latency: stream_transform_pkg::transpose_latency(2 LOG_R, LOG_LANES). count_i is the number of the beat in its frame.
module stream_transpose
  import stream_transform_pkg::*;
#(
    parameter int LOG_R = 7,
    parameter int LOG_LANES = 6,
    localparam int LANES = 1 << LOG_LANES,
    localparam int BEAT_BITS = LOG_R - LOG_LANES,
    localparam int COUNT_BITS = LOG_R + BEAT_BITS
) (
    input logic clk_i,
    input logic rst_ni,
    input logic valid_i,
    input logic inverse_i,
    input logic [COUNT_BITS-1:0] count_i,
    input logic [63:0] lane_i[LANES],
    output logic valid_o,
    output logic inverse_o,
    output logic [COUNT_BITS-1:0] count_o,
    output logic [63:0] lane_o[LANES]
);
  if (LOG_LANES < 1 || LOG_R < LOG_LANES || LOG_R > 2 * LOG_LANES) begin : g_check
    $fatal(1, "stream_transpose: 1 <= LOG_LANES <= LOG_R <= 2 LOG_LANES must hold");
  end

  typedef logic [LOG_LANES-1:0] lane_t;
  typedef logic [LOG_R-1:0] place_t;

  function automatic place_t reversed(place_t place);
    for (int n = 0; n < LOG_R; n++) reversed[n] = place[LOG_R-1-n];
  endfunction

  // Of a block's number, the part above the lanes.
  function automatic lane_t above(place_t block);
    return lane_t'(block >> LOG_LANES);
  endfunction

  // Which lane of the network lane x of an inverse frame takes: its bits reversed and complemented, then turned left.
  function automatic int from (int x);
    int lane = 0;
    for (int n = 0; n < LOG_LANES; n++) lane |= (1 - (x >> n & 1)) << ((LOG_LANES - 1 - n + BEAT_BITS) % LOG_LANES);
    return lane;
  endfunction

  // Writing.
  logic write, write_q, last, last_late, write_buffer_q, write_buffer_late;
  logic [COUNT_BITS-1:0] write_count;
  logic [COUNT_BITS:0] write_address_q;
  place_t block;
  logic [63:0] turned[LANES], word_q[LANES];
  assign block = count_i[COUNT_BITS-1:BEAT_BITS];
  xor_network #(
      .LOG_LANES(LOG_LANES),
      .STAGES(NETWORK_LATENCY)
  ) i_write_network (
      .clk_i,
      .key_i (lane_t'(block) ^ above(block)),
      .lane_i,
      .lane_o(turned)
  );
  valid_delay #(
      .CYCLES(NETWORK_LATENCY)
  ) i_write (
      .clk_i,
      .rst_ni,
      .valid_i,
      .valid_o(write)
  );
  delay #(
      .WIDTH (COUNT_BITS + 1),
      .CYCLES(NETWORK_LATENCY)
  ) i_write_count (
      .clk_i,
      .d_i({write_buffer_q, count_i}),
      .q_o({write_buffer_late, write_count})
  );
  assign last = valid_i && count_i == '1;
  always_ff @(posedge clk_i) begin
    write_q <= write;
    write_address_q <= {write_buffer_late, write_count};
    word_q <= turned;
    if (last) write_buffer_q <= !write_buffer_q;
    if (!rst_ni) begin
      write_q <= 1'b0;
      write_buffer_q <= 1'b0;
    end
  end

  // Reading begins when the last beat of a frame is in memory.
  logic last_inverse, read_q, inverse_q, read_buffer_q;
  logic [COUNT_BITS-1:0] count_q;
  valid_delay #(
      .CYCLES(WRITE_LATENCY - 1)
  ) i_last (
      .clk_i,
      .rst_ni,
      .valid_i(last),
      .valid_o(last_late)
  );
  delay #(
      .WIDTH (1),
      .CYCLES(WRITE_LATENCY - 1)
  ) i_last_inverse (
      .clk_i,
      .d_i(inverse_i),
      .q_o(last_inverse)
  );
  always_ff @(posedge clk_i) begin
    if (read_q) count_q <= count_q + 1'b1;
    if (read_q && count_q == '1) begin
      read_q <= 1'b0;
      read_buffer_q <= !read_buffer_q;
    end
    if (last_late) begin
      read_q <= 1'b1;
      inverse_q <= last_inverse;
    end
    if (!rst_ni) begin
      read_q <= 1'b0;
      read_buffer_q <= 1'b0;
      count_q <= '0;
    end
  end

  // The place of the words in their blocks, what their beat gives to the blocks' numbers, and the key of the network.
  place_t block_out, place;
  lane_t beat, beat_reversed, key, key_late;
  assign block_out = count_q[COUNT_BITS-1:BEAT_BITS];
  assign place = inverse_q ? reversed(-block_out) : block_out;
  assign beat = lane_t'(count_q) & lane_t'((1 << BEAT_BITS) - 1);
  always_comb begin
    beat_reversed = '0;
    for (int n = 0; n < BEAT_BITS; n++) beat_reversed[n] = !beat[BEAT_BITS-1-n];
  end
  assign key = lane_t'(place) ^ (inverse_q ? beat_reversed : beat);

  logic [COUNT_BITS:0] read_address_q[LANES];
  logic [63:0] word[LANES], lane[LANES];
  for (genvar bank = 0; bank < LANES; bank++) begin : g_bank
    lane_t  number;
    place_t from_block;
    assign number = lane_t'(bank) ^ key;
    assign from_block = inverse_q ?
        (place_t'({number, number} >> BEAT_BITS) & place_t'(LANES - 1)) << BEAT_BITS | place_t'(beat_reversed) :
        place_t'(beat) << LOG_LANES | place_t'(number);
    always_ff @(posedge clk_i) begin
      read_address_q[bank] <= (COUNT_BITS + 1)'(from_block) << BEAT_BITS | (COUNT_BITS + 1)'(place >> LOG_LANES);
      read_address_q[bank][COUNT_BITS] <= read_buffer_q;
    end
    ram_sdp #(
        .WIDTH(64),
        .DEPTH(2 << COUNT_BITS)
    ) i_ram (
        .clk_i,
        .we_i   (write_q),
        .waddr_i(write_address_q),
        .wdata_i(word_q[bank]),
        .raddr_i(read_address_q[bank]),
        .rdata_o(word[bank])
    );
  end

  delay #(
      .WIDTH (LOG_LANES),
      .CYCLES(3)
  ) i_key (
      .clk_i,
      .d_i(key),
      .q_o(key_late)
  );
  xor_network #(
      .LOG_LANES(LOG_LANES),
      .STAGES(NETWORK_LATENCY)
  ) i_read_network (
      .clk_i,
      .key_i (key_late),
      .lane_i(word),
      .lane_o(lane)
  );

  logic inverse_late;
  logic [COUNT_BITS-1:0] count;
  valid_delay #(
      .CYCLES(READ_LATENCY + 1)
  ) i_valid (
      .clk_i,
      .rst_ni,
      .valid_i(read_q),
      .valid_o
  );
  // Between frames the count is 0.
  delay #(
      .WIDTH (COUNT_BITS + 1),
      .CYCLES(READ_LATENCY)
  ) i_count (
      .clk_i,
      .d_i({inverse_q, count_q}),
      .q_o({inverse_late, count})
  );
  always_ff @(posedge clk_i) begin
    for (int x = 0; x < LANES; x++) lane_o[x] <= inverse_late ? lane[from (x)] : lane[x];
    inverse_o <= inverse_late;
    count_o   <= count;
  end
endmodule
