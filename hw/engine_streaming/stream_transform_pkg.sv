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
  localparam int SHIFT_LATENCY = 2;
  localparam int ROOT_LATENCY = SHIFT_LATENCY + 1;
  // From words that are not reduced to canonical ones.
  localparam int REDUCE_LATENCY = 4;
  // Of the transposition, besides N / P cycles of a frame: the network, the memory, and the network again.
  localparam int WRITE_LATENCY = 3;
  localparam int READ_LATENCY = 5;

  function automatic bit is_legal(int log_n, int log_lanes);
    return log_n % 2 == 0 && log_n >= 4 && log_n <= 14 && log_lanes >= 2 && 4 * log_lanes >= log_n &&
        2 * log_lanes <= log_n;
  endfunction

  // The exponent of sqrt(2) that is the primitive root of 2^log_r points, to the power `power`.
  function automatic int root(int log_r, int power);
    return (ROOT_EXPONENT << (7 - log_r)) * power % ROOT_ORDER;
  endfunction

  // Bits of a signed word that enters stage `stage` of a DFT: 0 takes words of 64 bits without sign.
  function automatic int stage_width(int stage);
    return stage == 0 ? 65 : 67 + stage;
  endfunction

  // Cycles of the product of a stage: the first of 128 points takes odd powers of sqrt(2), the last of any takes none.
  function automatic int factor_latency(int log_r, int stage);
    if (stage == log_r - 1) return 0;
    return log_r == 7 && stage == 0 ? ROOT_LATENCY : SHIFT_LATENCY;
  endfunction

  // A stage that pairs words of different beats waits for the second, and has a register behind its selection.
  function automatic int stage_latency(int log_r, int log_lanes, int stage);
    int beats = log_r - log_lanes;
    return 1 + factor_latency(log_r, stage) + (stage < beats ? (1 << (beats - 1 - stage)) + 1 : 0);
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
