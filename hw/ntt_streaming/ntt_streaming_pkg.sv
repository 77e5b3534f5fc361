// SPDX-License-Identifier: Apache-2.0 OR MIT
// Where the words of a streaming transform of N = 2^LOG_N words on 2^LOG_LANES lanes are, and what each of its LOG_N
// stages needs, as constant functions.
//
// A word's index has LOG_BEATS = LOG_N - LOG_LANES bits of its beat and LOG_LANES bits of its lane. A stage pairs the
// two words whose indices differ in one bit, which must be a bit of the lane then: butterfly j has the lanes whose
// number without that bit is j.
//
// Descending (ASCENDING = 0), bits are paired from the top down. The first LOG_BEATS + 1 stages pair the top bit of the
// lane, and commutators between them exchange it with a bit of the beat, LOG_BEATS - 1 down to 0; the stages behind
// pair the lower bits of the lane. The input has the top bit of the index in the top bit of the lane, and the others in
// order in the beat and the rest of the lane (its two halves side by side); the output is in the order of the index.
// Ascending is the reverse: from the order of the index, by the lower bits of the lane, then by the top bit of the lane
// with commutators 0 up to LOG_BEATS - 1, to halves side by side.
//
// With feedback (ntt_feedback) all words stay in the order of the index: a stage pairs a bit of the beat, with twice as
// many butterflies, or a bit of the lane.
//
// The twiddle of a butterfly depends on the bits of the index that were paired before (NTT), or on those that will be
// paired behind (INTT).
package ntt_streaming_pkg;
  // A design uses some of these.
  // verilator lint_off UNUSEDPARAM

  // Whether q is 2^i - 2^j + 1 with j < i - 1.
  function automatic bit is_solinas(logic [63:0] q);
    int i, j;
    i = toroid_pkg::solinas_i(q);
    j = toroid_pkg::solinas_j(q);
    return j < i - 1 && q == toroid_pkg::solinas_modulus(i, j);
  endfunction

  // What ntt_streaming and ntt_pipeline need.
  function automatic bit is_legal_size(int log_n, int log_lanes, int shifts, int moduli);
    return log_n >= 2 && log_n <= 20 && log_lanes >= 1 && log_lanes <= 10 && shifts >= 1 &&
        shifts <= log_n - log_lanes + 1 && moduli >= 1 && moduli <= 16;
  endfunction
  function automatic bit is_legal_modulus(int moduli, logic [1023:0] q, bit solinas);
    for (int n = 0; n < moduli && n < 16; n++) if (!q[64*n] || q[64*n+:64] < 64'd5) return 1'b0;
    return !solinas || moduli == 1 && is_solinas(q[63:0]);
  endfunction

  // The bit of the lane that a stage pairs.
  function automatic int pair_bit(int log_n, int log_lanes, bit ascending, int stage);
    if (ascending) return stage < log_lanes ? stage : log_lanes - 1;
    return stage <= log_n - log_lanes ? log_lanes - 1 : log_n - 1 - stage;
  endfunction

  // The bit of the beat that is exchanged with the top bit of the lane behind a stage; -1: none.
  function automatic int commutator_bit(int log_n, int log_lanes, bit ascending, int stage);
    int bit_of_beat;
    bit_of_beat = ascending ? stage - (log_lanes - 1) : log_n - log_lanes - 1 - stage;
    return bit_of_beat >= 0 && bit_of_beat < log_n - log_lanes ? bit_of_beat : -1;
  endfunction

  // With feedback (ntt_feedback), the bit of the beat that a stage pairs, its words in their places; -1: it pairs
  // lanes.
  function automatic int feedback_bit(int log_n, int log_lanes, bit ascending, int stage);
    if (ascending) return stage < log_lanes ? -1 : stage - log_lanes;
    return stage < log_n - log_lanes ? log_n - log_lanes - 1 - stage : -1;
  endfunction

  // Twiddles of a stage: 2^twiddle_bits rows, of which a beat takes row (beat >> twiddle_shift); in it,
  // 2^twiddle_group_bits words.
  function automatic int twiddle_bits(int log_n, int log_lanes, bit ascending, bit inverse, int stage);
    int beats, lower;
    beats = log_n - log_lanes;
    // How many bits of the beat were exchanged before, from the end where that begins.
    lower = ascending ? stage - (log_lanes - 1) : stage;
    if (lower < 0) lower = 0;
    if (lower > beats) lower = beats;
    return inverse ? beats - lower : lower;
  endfunction
  function automatic int twiddle_shift(int log_n, int log_lanes, bit ascending, bit inverse, int stage);
    // Descending NTTs and ascending INTTs depend on the upper bits of the beat.
    if (ascending != inverse) return 0;
    return log_n - log_lanes - twiddle_bits(log_n, log_lanes, ascending, inverse, stage);
  endfunction
  function automatic int twiddle_group_bits(int log_n, int log_lanes, bit ascending, bit inverse, int stage);
    int pair;
    pair = pair_bit(log_n, log_lanes, ascending, stage);
    // The bits of the butterfly's number above the pair's, or below it.
    return ascending == inverse ? log_lanes - 1 - pair : pair;
  endfunction
  // The word of a row that a butterfly takes.
  function automatic int twiddle_group(int log_n, int log_lanes, bit ascending, bit inverse, int stage, int butterfly);
    int pair;
    pair = pair_bit(log_n, log_lanes, ascending, stage);
    return ascending == inverse ? butterfly >> pair : butterfly & ((1 << pair) - 1);
  endfunction

  // Bits of the largest of up to 16 moduli, 64 bits each.
  function automatic int modulus_bits(int moduli, logic [1023:0] q);
    int bits = 0;
    for (int n = 0; n < moduli; n++) if ($clog2(q[64*n+:64]) > bits) bits = $clog2(q[64*n+:64]);
    return bits;
  endfunction

  // The word of Montgomery's reduction that all moduli allow, 1 for illegal ones.
  function automatic int word_bits(int moduli, logic [1023:0] q, int tile_b);
    int bits = tile_b;
    for (int n = 0; n < moduli; n++) begin
      if (toroid_pkg::montgomery_word(q[64*n+:64], tile_b) < bits) begin
        bits = toroid_pkg::montgomery_word(q[64*n+:64], tile_b);
      end
    end
    return bits > 1 ? bits : 1;
  endfunction

  function automatic int butterfly_latency(bit solinas, int moduli, logic [1023:0] q, int tile_a, int tile_b,
                                           bit short_pipeline, bit barrett);
    if (barrett) return toroid_pkg::barrett_mul_latency(q[63:0], tile_a, tile_b, short_pipeline) + 1;
    if (solinas) return toroid_pkg::butterfly_solinas_latency(modulus_bits(moduli, q), tile_a, tile_b, short_pipeline);
    return toroid_pkg::butterfly_montgomery_latency(
        modulus_bits(moduli, q), word_bits(moduli, q, tile_b), tile_a, tile_b, short_pipeline
    );
  endfunction

  // A stage of a core for several degrees or moduli registers its input, while it looks the twiddles up.
  function automatic int stage_latency(bit solinas, int moduli, logic [1023:0] q, int shifts, int tile_a, int tile_b,
                                       bit short_pipeline, bit barrett);
    return butterfly_latency(solinas, moduli, q, tile_a, tile_b, short_pipeline, barrett) + int'(moduli * shifts > 1);
  endfunction

  // ntt_pipeline, where beats follow each other.
  function automatic int transform_latency(int log_n, int log_lanes, bit solinas, int moduli, logic [1023:0] q,
                                           int shifts, int tile_a, int tile_b, bit short_pipeline, bit barrett);
    return pipeline_latency(log_n, log_lanes, stage_latency(solinas, moduli, q, shifts, tile_a, tile_b, short_pipeline,
                                                            barrett)) + int'(solinas);
  endfunction

  // From a beat at the input of the first stage, each of which takes `cycles`, to the beat of the same number behind
  // the last, where beats follow each other.
  function automatic int pipeline_latency(int log_n, int log_lanes, int cycles);
    return log_n * cycles + (1 << (log_n - log_lanes)) - 1;
  endfunction

  // ntt_end
  function automatic int end_latency(int kind, int log_network, int log_beats, int network_delay,
                                     permutation_pkg::switch_map_t first, permutation_pkg::switch_map_t second);
    case (kind)
      0: return 0;
      1: return (1 << log_beats) - 1;
      default: return permutation_pkg::latency(first, second, log_network, network_delay);
    endcase
  endfunction
endpackage
