// SPDX-License-Identifier: Apache-2.0 OR MIT
// The order in which an in-place transform of N = 2^LOG_N words walks through 2^LOG_LANES banks, as constant functions.
//
// The bits of a word's index are cut into chunks of LOG_LANES bits from the bottom; the top chunk may be shorter. Row
// after row, the lanes span one chunk (a short one is filled up with the upper bits of chunk 0), and a counter spans
// the other bits of the index. All rows of a chunk read the same words at the same time; the butterflies between them
// always pair lanes j and j + LANES/2, since the words of a beat are written back turned by one bit of the lane number
// (forward), or read turned back by one (inverse).
//
// A word of index i is in bank `fold(i)`, the XOR of its chunks, at address i >> LOG_LANES: every chunk spans all
// banks.
package ntt_inplace_pkg;
  // A design uses some of these.
  // verilator lint_off UNUSEDPARAM
  localparam int MAX_LOG_N = 20;

  // One access to all banks: read, and written back where `write` is set.
  typedef struct packed {
    logic valid;  // this beat reads
    logic write;  // its words are written
    // A row of a transform: all lanes. Else lanes below LANES/2 read slot_a, the others slot_b; the former are written.
    logic transform;
    logic inverse;  // of the transform
    logic [2:0] group;  // the chunk that the lanes span
    logic [MAX_LOG_N-1:0] read_index;  // the index, but for the bits that lanes span
    logic [MAX_LOG_N-1:0] write_index;
    logic [1:0] slot_a;
    logic [1:0] slot_b;
    logic [1:0] slot_write;
    logic [1:0] turn_in;  // 0: none; 1: right by one bit; 2: left by the fill of a short chunk
    logic [1:0] turn_out;  // 0: none; 1: left by one bit; 2: right by the fill
  } beat_t;

  // Beats from `beat_t` at the input of `banked_lanes` to lanes at its output.
  localparam int READ_LATENCY = 7;
  // From lanes at its write port until a beat that enters may read them: the write (4) less the two cycles before banks
  // are read.
  localparam int WRITE_LATENCY = 2;

  // What the functions below, `ntt_schedule` and `banked_lanes` are made for: two lanes a butterfly, two words a bank,
  // and a chunk's number in 3 bits.
  function automatic bit is_legal(int log_n, int log_lanes);
    return log_lanes >= 2 && log_lanes <= 10 && log_lanes < log_n && log_n <= MAX_LOG_N && log_n <= 8 * log_lanes;
  endfunction

  function automatic int chunks(int log_n, int log_lanes);
    return (log_n + log_lanes - 1) / log_lanes;
  endfunction

  // Bits of chunk `group`.
  function automatic int chunk_width(int log_n, int log_lanes, int group);
    return group == chunks(log_n, log_lanes) - 1 ? log_n - group * log_lanes : log_lanes;
  endfunction

  // The bits of the index that lanes span, as a mask.
  function automatic int lane_bits(int log_n, int log_lanes, int group);
    int width = chunk_width(log_n, log_lanes, group);
    int fill = (1 << log_lanes) - (1 << width);
    return (((1 << width) - 1) << (group * log_lanes)) | fill;
  endfunction

  // The bit of the index at position `place` of the counter in the row that pairs indices differing in `pair_bit`. What
  // the lanes span next (or did before) counts fastest, so that words are written long before they are read.
  function automatic int counter_bit(int log_n, int log_lanes, int pair_bit, int place);
    int group = pair_bit / log_lanes;
    int last = chunks(log_n, log_lanes) - 1;
    bit below = group == last || (group != 0 && pair_bit % log_lanes == 0);
    int lanes = lane_bits(log_n, log_lanes, group);
    int fast = lane_bits(log_n, log_lanes, below ? group - 1 : group + 1) & ~lanes;
    int found = 0;
    for (int pass = 0; pass < 2; pass++) begin
      for (int index_bit = 0; index_bit < log_n; index_bit++) begin
        if (!lanes[index_bit] && fast[index_bit] == (pass == 0)) begin
          if (found == place) return index_bit;
          found++;
        end
      end
    end
    return -1;
  endfunction

  // The weight of a bit of the index in the counter of a row; 0 where the lanes span it.
  function automatic int counter_weight(int log_n, int log_lanes, int pair_bit, int index_bit);
    for (int place = 0; place < log_n - log_lanes; place++) begin
      if (counter_bit(log_n, log_lanes, pair_bit, place) == index_bit) return 1 << place;
    end
    return 0;
  endfunction

  // Cycles to wait between the row of `pair_bit` and the next, whose pair bit is `next_bit`, if a word may be read
  // `hazard` cycles after the beat that writes it. A beat at count c of the next row comes `gap` or more cycles after
  // the last beat of this row that it depends on.
  function automatic int bubble(int log_n, int log_lanes, int pair_bit, int next_bit, int hazard);
    int gap = 1 << (log_n - log_lanes);
    for (int index_bit = 0; index_bit < log_n; index_bit++) begin
      int here = counter_weight(log_n, log_lanes, pair_bit, index_bit);
      int there = counter_weight(log_n, log_lanes, next_bit, index_bit);
      if (here > there) gap -= here - there;
    end
    return gap < hazard ? hazard - gap : 0;
  endfunction

  // Bits of the index above a chunk: a row reads 2^these different twiddles a butterfly.
  function automatic int upper_bits(int log_n, int log_lanes, int pair_bit);
    int group = pair_bit / log_lanes;
    return log_n - group * log_lanes - chunk_width(log_n, log_lanes, group);
  endfunction

  // First address of a row's twiddles; for pair_bit = -1, the depth of the table.
  function automatic int twiddle_base(int log_n, int log_lanes, int pair_bit);
    int base = 0;
    for (int row_bit = log_n - 1; row_bit > pair_bit; row_bit--) base += 1 << upper_bits(log_n, log_lanes, row_bit);
    return base;
  endfunction

  // Cycles from the first beat of a transform to the first beat that may follow it (which must not depend on it).
  function automatic int transform_beats(int log_n, int log_lanes, bit inverse, int hazard);
    int beats = 0;
    for (int row = 0; row < log_n; row++) begin
      int pair_bit = inverse ? row : log_n - 1 - row;
      beats += 1 << (log_n - log_lanes);
      if (row < log_n - 1) beats += bubble(log_n, log_lanes, pair_bit, inverse ? pair_bit + 1 : pair_bit - 1, hazard);
    end
    return beats;
  endfunction
endpackage
