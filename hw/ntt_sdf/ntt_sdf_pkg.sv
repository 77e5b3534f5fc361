// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a transform by single-delay feedback is made of, as constant functions.
//
// One word per cycle. For each bit of the index there is a product (sdf_factor) and a butterfly (sdf_butterfly) of the
// words whose indices differ in that bit, bits from the top down and the product in front in an NTT, the mirror image
// in an INTT. Every word goes through every product, if only by 1.
//
// ARCHITECTURE  0, R2SDF: the product of each bit has the twiddle of its block on the words whose bit is 1.
//               1, R2^2SDF: of two bits, 2 k + 1 and 2 k, the upper one has all that differs between blocks: z^0 to z^3
//               on the four quarters of a block, which is a polynomial modulo x^n - z^4; the lower one only multiplies
//               the last quarter by j, j^2 = -1, the same everywhere. Where the number of bits is odd, the top one is
//               as in R2SDF.
//               2, Modr2: two words per cycle, ntt_pipeline.
package ntt_sdf_pkg;
  // A design uses some of these.
  // verilator lint_off UNUSEDPARAM
  localparam int R2SDF = 0;
  localparam int R22SDF = 1;
  localparam int MODR2 = 2;

  // What every module here needs: these ranges, Q odd and above 3, and for SOLINAS j < i - 1.
  function automatic bit is_legal(int architecture, int log_n, logic [63:0] q, bit solinas, bit barrett);
    if (architecture < 0 || architecture > 2 || log_n < 2 || log_n > 20 || !q[0] || q < 64'd5) return 1'b0;
    return !solinas || !barrett && ntt_streaming_pkg::is_solinas(q);
  endfunction

  // log2 of the words of a beat.
  function automatic int log_lanes(int architecture);
    return architecture == MODR2 ? 1 : 0;
  endfunction

  // Whether a bit's product is the general one of R2^2SDF, or that by j.
  function automatic bit is_upper(int architecture, int log_n, int index_bit);
    return architecture == R22SDF && !is_single(architecture, log_n, index_bit) && 1'(index_bit & 1);
  endfunction
  function automatic bit is_lower(int architecture, int log_n, int index_bit);
    return architecture == R22SDF && !is_single(architecture, log_n, index_bit) && !1'(index_bit & 1);
  endfunction
  // Whether it is that of R2SDF.
  function automatic bit is_single(int architecture, int log_n, int index_bit);
    return architecture == R2SDF || (index_bit == log_n - 1 && !1'(index_bit & 1));
  endfunction

  // Words whose bit is 0 are multiplied by 1, which takes no row of the table. In the last product of an INTT they are
  // divided by N.
  function automatic bit passes(int architecture, int log_n, bit inverse, int index_bit);
    return is_single(architecture, log_n, index_bit) && !(inverse && index_bit == log_n - 1);
  endfunction

  // A product's table has 2^row_bits rows, and a word takes row (index >> row_shift), less what is above row_bits.
  function automatic int row_shift(int architecture, int log_n, bit inverse, int index_bit);
    if (is_upper(architecture, log_n, index_bit)) return index_bit - 1;
    return passes(architecture, log_n, inverse, index_bit) ? index_bit + 1 : index_bit;
  endfunction
  function automatic int row_bits(int architecture, int log_n, bit inverse, int index_bit);
    if (is_lower(architecture, log_n, index_bit)) return 2;
    return log_n - row_shift(architecture, log_n, inverse, index_bit);
  endfunction

  // twiddle_mul
  function automatic int twiddle_latency(bit solinas, bit barrett, logic [63:0] q, int tile_a, int tile_b,
                                         bit short_pipeline);
    return ntt_streaming_pkg::butterfly_latency(solinas, 1, 1024'(q), tile_a, tile_b, short_pipeline, barrett) - 1;
  endfunction

  // 1 as twiddle_mul takes it.
  function automatic logic [63:0] unit(bit solinas, bit barrett, logic [63:0] q, int tile_b);
    int word, bits;
    if (barrett) return 64'd1;
    if (solinas) return 64'd1 << toroid_pkg::solinas_j(q);
    word = toroid_pkg::montgomery_word(q, tile_b);
    bits = word * toroid_pkg::ceil_div($clog2(q), word);
    return 64'((130'd1 << bits) % 130'(q));
  endfunction

  // value_mul
  function automatic toroid_pkg::modulus_e product_kind(bit solinas, bit barrett, logic [63:0] q);
    if (barrett) return toroid_pkg::MOD_BARRETT;
    if (!solinas) return toroid_pkg::MOD_MONTGOMERY;
    return q == toroid_pkg::GOLDILOCKS ? toroid_pkg::MOD_GOLDILOCKS : toroid_pkg::MOD_SOLINAS;
  endfunction
  function automatic int product_latency(bit solinas, bit barrett, logic [63:0] q, int tile_a, int tile_b,
                                         bit short_pipeline);
    int each;
    each = toroid_pkg::mod_mul_latency(product_kind(solinas, barrett, q), $clog2(q), tile_a, tile_b, short_pipeline, q);
    return solinas || barrett ? each : 2 * each;
  endfunction

  // sdf_transform: from a beat to the beat of the same number, where beats follow each other.
  function automatic int transform_latency(int architecture, int log_n, bit solinas, bit barrett, logic [63:0] q,
                                           int tile_a, int tile_b, bit short_pipeline, bit registered);
    return ntt_streaming_pkg::transform_latency(log_n, log_lanes(architecture), solinas, 1, 1024'(q), 1, tile_a, tile_b,
                                                short_pipeline, barrett) - int'(solinas && !registered);
  endfunction
endpackage
