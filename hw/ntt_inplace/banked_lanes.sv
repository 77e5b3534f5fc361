// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory of 2^LOG_LANES banks that gives and takes one word a bank each cycle, for the access patterns of in-place
// transforms and of vectors (see `ntt_inplace_pkg`), without conflicts.
//
// The bank of a word is the XOR of the chunks of its index, and of the skew of its slot: bit 0 of the slot's number, at
// the top bit of the bank. So lane j of a beat is bank j ^ key for a key of the beat, and half of the lanes can read a
// slot while the other half reads another slot of other skew.
//
// An inverse transform addresses its lanes by the complement, all but the bit that pairs them: then butterfly j reads
// the twiddle of its own table in both directions.
//
// LOG_N: log2 of the words of a slot. LOG_LANES: log2 of the banks, 2 to 10 and below LOG_N. LOG_SLOTS: log2 of the
// slots, at most 2.
// Latency: READ_LATENCY from read_beat_i to lane_o (with beat_o); words at lane_i with write_beat_i are in memory 4
// cycles later.
module banked_lanes
  import ntt_inplace_pkg::*;
#(
    parameter int LOG_N = 14,
    parameter int LOG_LANES = 5,
    parameter int LOG_SLOTS = 0,
    localparam int LANES = 1 << LOG_LANES
) (
    input logic clk_i,
    input logic rst_ni,
    input beat_t read_beat_i,
    output beat_t beat_o,
    output logic [63:0] lane_o[LANES],
    input beat_t write_beat_i,
    input logic [63:0] lane_i[LANES]
);
  localparam int ADDRESS_BITS = LOG_N - LOG_LANES + LOG_SLOTS;
  localparam int CHUNKS = chunks(LOG_N, LOG_LANES);
  localparam int SHORT_WIDTH = chunk_width(LOG_N, LOG_LANES, CHUNKS - 1);
  localparam int FILL = LOG_LANES - SHORT_WIDTH;
  localparam int TOP = LANES / 2;

  if (!is_legal(LOG_N, LOG_LANES)) begin : g_check
    $fatal(1, "banked_lanes: 2 <= LOG_LANES <= 10, LOG_LANES < LOG_N <= 20 and LOG_N <= 8 LOG_LANES must hold");
  end
  if (LOG_SLOTS < 0 || LOG_SLOTS > 2) begin : g_check_slots
    $fatal(1, "banked_lanes: LOG_SLOTS must be 0 to 2");
  end

  typedef logic [LOG_LANES-1:0] lane_t;

  function automatic lane_t fold(logic [MAX_LOG_N-1:0] index);
    lane_t folded = '0;
    for (int index_bit = 0; index_bit < LOG_N; index_bit++) folded[index_bit%LOG_LANES] ^= index[index_bit];
    return folded;
  endfunction

  function automatic lane_t top(logic value);
    return lane_t'(value) << (LOG_LANES - 1);
  endfunction

  // A lane's number turned left.
  function automatic int left(int number, int bits);
    return (number << bits) % LANES | number >> (LOG_LANES - bits);
  endfunction

  // Address of a bank that holds lane `number` of a beat, whose index is `row` above chunk 0.
  function automatic logic [ADDRESS_BITS-1:0] address(logic [LOG_N-LOG_LANES-1:0] row, logic [2:0] group,
                                                      logic [1:0] slot, lane_t number);
    for (int chunk = 1; chunk < CHUNKS; chunk++) begin
      for (int chunk_bit = 0; chunk_bit < chunk_width(LOG_N, LOG_LANES, chunk); chunk_bit++) begin
        if (group == 3'(chunk)) row[(chunk-1)*LOG_LANES+chunk_bit] |= number[chunk_bit];
      end
    end
    return ADDRESS_BITS'({slot, row});
  endfunction

  // The keys of a beat: the lanes' true numbers, and those complemented as the inverse transform wants them.
  lane_t read_key, write_key, read_complement, write_complement;
  always_comb begin
    // A vector's upper half lies where its lower half would lie in a slot of other skew.
    read_key = fold(read_beat_i.read_index) ^ top(read_beat_i.slot_b[0] ^ !read_beat_i.transform);
    write_key = fold(write_beat_i.write_index) ^ top(write_beat_i.slot_write[0]);
    read_complement = '0;
    write_complement = '0;
    if (read_beat_i.transform && read_beat_i.inverse) read_complement = ~lane_t'(1);
    if (write_beat_i.transform && write_beat_i.inverse) begin
      write_complement = write_beat_i.turn_out == 2'd2 ? ~(lane_t'(1) << (SHORT_WIDTH - 1)) : ~top(1'b1);
    end
  end

  // Reads.
  beat_t read_beat_q[READ_LATENCY];
  lane_t read_key_q, read_lane_key_q[6];
  logic [ADDRESS_BITS-1:0] read_address_q[LANES];
  logic [63:0] read_word[LANES], read_lane[LANES], turned_lane[LANES];

  always_ff @(posedge clk_i) begin
    read_beat_q[0] <= read_beat_i;
    for (int stage = 1; stage < READ_LATENCY; stage++) read_beat_q[stage] <= read_beat_q[stage-1];
    read_key_q <= read_key;
    read_lane_key_q[0] <= read_key ^ read_complement;
    for (int stage = 1; stage < 6; stage++) read_lane_key_q[stage] <= read_lane_key_q[stage-1];
    for (int bank = 0; bank < LANES; bank++) begin
      automatic lane_t lane = lane_t'(bank) ^ read_key_q;
      read_address_q[bank] <= address(
          read_beat_q[0].read_index[LOG_N-1:LOG_LANES],
          read_beat_q[0].group,
          lane[LOG_LANES-1] ? read_beat_q[0].slot_b : read_beat_q[0].slot_a,
          lane
      );
    end
    if (!rst_ni) begin
      for (int stage = 0; stage < READ_LATENCY; stage++) read_beat_q[stage].valid <= 1'b0;
    end
  end

  // The network leaves the key's top bit to the selection that turns the lanes.
  xor_network #(
      .LOG_LANES(LOG_LANES),
      .KEY_BITS(LOG_LANES - 1),
      .WIDTH(64)
  ) i_read_network (
      .clk_i,
      .key_i (read_lane_key_q[3][LOG_LANES-2:0]),
      .lane_i(read_word),
      .lane_o(read_lane)
  );

  // The turn and the key's top bit together select among four words; short chunks have a turn more.
  logic read_top;
  logic [1:0] turn_in;
  assign read_top = read_lane_key_q[5][LOG_LANES-1];
  assign turn_in  = read_beat_q[READ_LATENCY-2].turn_in;
  always_comb begin
    for (int lane = 0; lane < LANES; lane++) begin
      turned_lane[lane] = turn_in[0] ? (read_top ? read_lane[left(lane, 1)^TOP] : read_lane[left(lane, 1)]) :
          (read_top ? read_lane[lane^TOP] : read_lane[lane]);
      if (FILL != 0 && turn_in[1]) begin
        turned_lane[lane] = read_top ? read_lane[left(lane, SHORT_WIDTH)^TOP] : read_lane[left(lane, SHORT_WIDTH)];
      end
    end
  end

  always_ff @(posedge clk_i) lane_o <= turned_lane;
  assign beat_o = read_beat_q[READ_LATENCY-1];

  // Writes.
  beat_t write_beat_q[3];
  lane_t write_key_q[3], write_lane_key;
  logic [LOG_LANES-2:0] write_lane_key_q;
  logic [63:0] write_turned_q[LANES], write_word[LANES];
  logic [ADDRESS_BITS-1:0] write_address_q[LANES];
  logic [LANES-1:0] write_enable_q;

  assign write_lane_key = write_key ^ write_complement;
  logic write_top;
  logic [1:0] turn_out;
  assign write_top = write_lane_key[LOG_LANES-1];
  assign turn_out  = write_beat_i.turn_out;

  always_ff @(posedge clk_i) begin
    // With the turn, what the key's top bit asks for, which the network leaves out.
    for (int lane = 0; lane < LANES; lane++) begin
      write_turned_q[lane] <= turn_out[0] ? (write_top ? lane_i[left(
          lane^TOP, LOG_LANES-1
      )] : lane_i[left(
          lane, LOG_LANES-1
      )]) : (write_top ? lane_i[lane^TOP] : lane_i[lane]);
      if (FILL != 0 && turn_out[1]) begin
        write_turned_q[lane] <= write_top ? lane_i[left(lane^TOP, FILL)] : lane_i[left(lane, FILL)];
      end
    end
    write_beat_q[0]  <= write_beat_i;
    write_key_q[0]   <= write_key;
    write_lane_key_q <= write_lane_key[LOG_LANES-2:0];
    for (int stage = 1; stage < 3; stage++) begin
      write_beat_q[stage] <= write_beat_q[stage-1];
      write_key_q[stage]  <= write_key_q[stage-1];
    end
    for (int bank = 0; bank < LANES; bank++) begin
      automatic lane_t lane = lane_t'(bank) ^ write_key_q[1];
      write_address_q[bank] <= address(
          write_beat_q[1].write_index[LOG_N-1:LOG_LANES], write_beat_q[1].group, write_beat_q[1].slot_write, lane
      );
      write_enable_q[bank] <= write_beat_q[1].valid && write_beat_q[1].write &&
          (write_beat_q[1].transform || !lane[LOG_LANES-1]);
    end
    if (!rst_ni) begin
      for (int stage = 0; stage < 3; stage++) write_beat_q[stage].valid <= 1'b0;
      write_enable_q <= '0;
    end
  end

  xor_network #(
      .LOG_LANES(LOG_LANES),
      .KEY_BITS(LOG_LANES - 1),
      .WIDTH(64)
  ) i_write_network (
      .clk_i,
      .key_i (write_lane_key_q),
      .lane_i(write_turned_q),
      .lane_o(write_word)
  );

  for (genvar bank = 0; bank < LANES; bank++) begin : gen_bank
    ram_sdp #(
        .WIDTH(64),
        .DEPTH(1 << ADDRESS_BITS)
    ) i_ram (
        .clk_i,
        .we_i(write_enable_q[bank]),
        .waddr_i(write_address_q[bank]),
        .wdata_i(write_word[bank]),
        .raddr_i(read_address_q[bank]),
        .rdata_o(read_word[bank])
    );
  end
endmodule
