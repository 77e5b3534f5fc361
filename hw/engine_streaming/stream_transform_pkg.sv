// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_transform_pkg: roots of unity, widths and latencies of the streaming transform.
//
// N = R * R words, P = 2^LOG_LANES lanes, H = R / P beats a block of R words.
package stream_transform_pkg;
  // A design uses some of these.
  // verilator lint_off UNUSEDPARAM
  // Modulo q = 2^64 - 2^32 + 1, sqrt(2) = 2^24 - 2^72 has the order 384, and psi of degree 64 is its power of this exponent.
  localparam int ROOT_EXPONENT = 195;
  localparam int ROOT_ORDER = 384;

  // Cycles of a product by a power of two, and of one by a power of two and sqrt(2).
  localparam int SHIFT_LATENCY = 1;
  localparam int ROOT_LATENCY = SHIFT_LATENCY + 1;
  // From words that are not reduced to canonical ones.
  localparam int REDUCE_LATENCY = 4;
  // Of the transposition, besides N / P cycles of a frame: the network, the memory, and the network again.
  localparam int NETWORK_LATENCY = 3;
  localparam int WRITE_LATENCY = NETWORK_LATENCY + 1;
  localparam int READ_LATENCY = 3 + NETWORK_LATENCY;

  function automatic bit is_legal(int log_n, int log_lanes);
    return log_n % 2 == 0 && log_n >= 4 && log_n <= 14 && log_lanes >= 2 && 4 * log_lanes >= log_n &&
        2 * log_lanes <= log_n;
  endfunction

  // The exponent of sqrt(2) that is the primitive root of 2^log_r points, to the power `power`.
  function automatic int root(int log_r, int power);
    return (ROOT_EXPONENT << (7 - log_r)) * power % ROOT_ORDER;
  endfunction

  // 2^exponent modulo 2^96 + 1 moves bit n of a word to place (exponent + n) modulo 96. The places whose bit then counts negative.
  function automatic logic [95:0] shift_negative(int width, int exponent);
    shift_negative = '0;
    for (int n = 0; n < width; n++) shift_negative[(exponent+n)%96] = (exponent + n) % 192 >= 96;
  endfunction

  // What goldilocks_shift adds by complements: 2^place for each bit that counts negative, and for each of limb 2, which is subtracted.
  function automatic logic [65:0] shift_offset(int width, int exponent);
    automatic logic [95:0] negative = shift_negative(width, exponent);
    shift_offset = '0;
    for (int n = 0; n < width; n++) begin
      automatic int place = (exponent + n) % 96;
      if (place >= 64) begin
        if (negative[place]) shift_offset += 66'd1 << (place - 32);
        else shift_offset += 66'd1 << (place - 64);
      end else if (negative[place]) shift_offset += 66'd1 << place;
    end
  endfunction

  // The powers of two whose products root_product sums, sqrt(2) = 2^24 - 2^72 having two. Butterflies give it b - a, and it has -1 = 2^96, where that
  // leaves fewer complements.
  function automatic bit is_swapped(int exponent);
    automatic int first = (exponent / 2 + (exponent % 2 == 1 ? 24 : 0)) % 192;
    return first >= 48 && first < 144;
  endfunction
  function automatic int first_shift(int exponent);
    return (exponent / 2 + (exponent % 2 == 1 ? 24 : 0) + (is_swapped(exponent) ? 96 : 0)) % 192;
  endfunction
  function automatic int second_shift(int exponent);
    return (exponent / 2 + 72 + 96 + (is_swapped(exponent) ? 96 : 0)) % 192;
  endfunction

  // Bits of root_product's product of a word of `width` bits.
  function automatic int product_width(int width, int exponent);
    if (exponent == 0) return width;
    return exponent % 2 == 1 ? 66 : 65;
  endfunction

  function automatic logic [63:0] times_power(logic [63:0] word, int exponent);
    return 64'((256'(word) << exponent) % 256'(toroid_pkg::GOLDILOCKS));
  endfunction

  // What a product is more than the root times what d, of `width` bits, stands for, if d is more than that by `offset`.
  function automatic logic [63:0] product_offset(logic [63:0] offset, int width, int exponent);
    automatic logic [127:0] sum;
    if (exponent == 0) return offset;
    sum = 128'(times_power(offset, first_shift(exponent))) + 128'(shift_offset(width, first_shift(exponent)));
    if (exponent % 2 == 1)
      sum += 128'(times_power(offset, second_shift(exponent))) + 128'(shift_offset(width, second_shift(exponent)));
    return 64'(sum % 128'(toroid_pkg::GOLDILOCKS));
  endfunction

  // The same of a butterfly's product, if a and b are more by these.
  function automatic logic [63:0] butterfly_offset(logic [63:0] a, logic [63:0] b, int width, int exponent);
    automatic logic [127:0] difference = is_swapped(exponent) ? 128'(b) - 128'(a) : 128'(a) - 128'(b);
    difference = (difference + 128'(toroid_pkg::GOLDILOCKS) + (128'd1 << width)) % 128'(toroid_pkg::GOLDILOCKS);
    return product_offset(64'(difference), width + 1, exponent);
  endfunction

  // Of the lanes that enter stage `stage` of a DFT, or leave the last: the bits of each word.
  typedef logic [127:0][7:0] widths_t;
  function automatic widths_t lane_widths(int log_r, int log_lanes, int stage);
    automatic int lanes = 1 << log_lanes;
    lane_widths = '0;
    for (int x = 0; x < lanes; x++) lane_widths[x] = 8'd64;
    for (int earlier = 0; earlier < stage; earlier++) begin
      automatic int half = 1 << (log_r - 1 - earlier);
      for (int x = 0; x < lanes; x++) begin
        automatic int width = int'(lane_widths[x]);
        if (half >= lanes) begin
          // Sums, and products of every beat.
          lane_widths[x] = 8'(width + 1);
          for (int place = x; place < half; place += lanes)
          if (product_width(width + 1, root(log_r, place << earlier)) > int'(lane_widths[x]))
            lane_widths[x] = 8'(product_width(width + 1, root(log_r, place << earlier)));
        end else if (x % (2 * half) < half) begin
          if (int'(lane_widths[x+half]) > width) width = int'(lane_widths[x+half]);
          lane_widths[x] = 8'(width + 1);
          lane_widths[x+half] = 8'(product_width(width + 1, root(log_r, (x % half) << earlier)));
        end
      end
    end
  endfunction

  // What the words that leave a DFT are more than its values, by their places.
  typedef logic [127:0][63:0] offsets_t;
  function automatic offsets_t value_offsets(int log_r, int log_lanes);
    automatic int lanes = 1 << log_lanes;
    value_offsets = '0;
    for (int stage = 0; stage < log_r; stage++) begin
      automatic widths_t widths = lane_widths(log_r, log_lanes, stage);
      automatic int half = 1 << (log_r - 1 - stage);
      for (int place = 0; place < 1 << log_r; place++) begin
        if (place % (2 * half) < half) begin
          automatic int width = int'(widths[place%lanes]);
          automatic int other = int'(widths[(place+half)%lanes]);
          automatic logic [63:0] a = value_offsets[place];
          automatic logic [63:0] b = value_offsets[place+half];
          value_offsets[place] = 64'((128'(a) + 128'(b)) % 128'(toroid_pkg::GOLDILOCKS));
          value_offsets[place+half] =
              butterfly_offset(a, b, other > width ? other : width, root(log_r, (place % half) << stage));
        end
      end
    end
  endfunction

  // The most bits of a word that enters stage `stage`.
  function automatic int stage_width(int stage);
    return stage == 0 ? 64 : 65 + stage;
  endfunction

  // Cycles of the product of a stage that pairs lanes: the first of 128 points takes odd powers of sqrt(2), the last of any takes none.
  function automatic int factor_latency(int log_r, int stage);
    if (stage == log_r - 1) return 0;
    return log_r == 7 && stage == 0 ? ROOT_LATENCY : SHIFT_LATENCY;
  endfunction

  // A stage that pairs words of different beats has one adder a lane for the difference and then the sum: it waits for the second word, and sums
  // leave before products.
  function automatic int stage_latency(int log_r, int log_lanes, int stage);
    int beats = log_r - log_lanes;
    return stage < beats ? (2 << (beats - 1 - stage)) + 3 : 1 + factor_latency(log_r, stage);
  endfunction

  // From the input of a DFT to that of one of its stages; for stage = log_r, to its output.
  function automatic int stage_start(int log_r, int log_lanes, int stage);
    int cycles = 0;
    for (int earlier = 0; earlier < stage; earlier++) cycles += stage_latency(log_r, log_lanes, earlier);
    return cycles;
  endfunction

  // stream_reversal
  function automatic int reversal_latency(int log_r, int log_lanes);
    return (1 << (log_r - log_lanes)) - 1 + (log_r - log_lanes) + 1;
  endfunction

  // From the first beat in to where a DFT begins, to the products, to the transposition, and behind it.
  function automatic int product_start(int log_n, int log_lanes);
    return reversal_latency(log_n / 2, log_lanes) + stage_start(log_n / 2, log_lanes, log_n / 2) + REDUCE_LATENCY;
  endfunction
  function automatic int transpose_start(int log_n, int log_lanes, int tile_a, int tile_b, int karatsuba);
    return product_start(log_n, log_lanes) + toroid_pkg::goldilocks_mul_latency(tile_a, tile_b, 0, karatsuba);
  endfunction
  function automatic int transpose_latency(int log_n, int log_lanes);
    return WRITE_LATENCY + (1 << (log_n - log_lanes)) + READ_LATENCY;
  endfunction

  // stream_transform, from the first beat in to the first beat out.
  function automatic int transform_latency(int log_n, int log_lanes, int tile_a, int tile_b, int karatsuba);
    return transpose_start(log_n, log_lanes, tile_a, tile_b, karatsuba) + transpose_latency(log_n, log_lanes) +
        stage_start(log_n / 2, log_lanes, log_n / 2) + REDUCE_LATENCY + reversal_latency(log_n / 2, log_lanes);
  endfunction
endpackage
