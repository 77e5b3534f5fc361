// SPDX-License-Identifier: Apache-2.0 OR MIT
// toroid_pkg: constants and latencies that every core shares.
package toroid_pkg;
  // A design uses some of these.
  // verilator lint_off UNUSEDPARAM
  // q = 2^64 - 2^32 + 1
  localparam logic [63:0] GOLDILOCKS = 64'hFFFF_FFFF_0000_0001;

  // How a product is reduced (see mod_mul).
  typedef enum int {
    MOD_GOLDILOCKS,
    MOD_SOLINAS,
    MOD_MONTGOMERY,
    MOD_BARRETT
  } modulus_e;

  function automatic int ceil_div(int a, int b);
    return (a + b - 1) / b;
  endfunction

  // Bits that hold 0 to n - 1, at least one: the width of an address.
  function automatic int index_width(int n);
    return n > 1 ? $clog2(n) : 1;
  endfunction

  // The least multiple of eight bits that holds a word: the width of a lane of tdata.
  function automatic int lane_width(int width);
    return 8 * ceil_div(width, 8);
  endfunction

  // mul_tiles: operands, products, then one cycle for each tile of b and for each further tile of a; a short pipeline
  // takes one for the whole sum.
  function automatic int mul_latency(int width_a, int width_b, int tile_a, int tile_b, bit short_pipeline = 0);
    return short_pipeline ? 3 : 1 + ceil_div(width_b, tile_b) + ceil_div(width_a, tile_a);
  endfunction

  // mul_tiles with a signed b: what the inverted top bits of its rows add to the product.
  function automatic logic [255:0] mul_bias(int width_a, int width_b, int tile_a);
    logic [255:0] bias = '0;
    for (int low = 0; low < width_a; low += tile_a) begin
      bias += 256'd1 << (width_b - 1 + (low + tile_a < width_a ? low + tile_a : width_a));
    end
    return bias;
  endfunction

  // mul_strip: digits that are added in a cycle. A corner is so narrow that two are.
  function automatic int mul_strip_digits(bit corner);
    return corner ? 2 : 1;
  endfunction

  // mul_strip: the sums of the digits, then one cycle for each tile.
  function automatic int mul_strip_latency(int width_a, int tile_a, bit corner);
    return ceil_div((width_a - tile_a) / 2, mul_strip_digits(corner)) + (corner ? 3 : 2);
  endfunction

  // goldilocks_karatsuba: operands, their sums, the product of these, and three cycles for the sum of all products.
  function automatic int goldilocks_karatsuba_latency(int tile_a);
    return 2 + mul_strip_latency(33, tile_a, 0) + 3;
  endfunction

  // goldilocks_product
  function automatic int goldilocks_product_latency(int tile_a, int tile_b, bit short_pipeline = 0, int karatsuba = 0);
    if (karatsuba > 0) return goldilocks_karatsuba_latency(tile_a);
    return mul_latency(64, 64, tile_a, tile_b, short_pipeline) + (short_pipeline ? 0 : 2);
  endfunction

  // goldilocks_mul
  function automatic int goldilocks_mul_latency(int tile_a, int tile_b, bit short_pipeline = 0, int karatsuba = 0);
    return goldilocks_product_latency(tile_a, tile_b, short_pipeline, karatsuba) + (karatsuba > 0 ? 2 : 1);
  endfunction

  // q = 2^i - 2^j + 1
  function automatic logic [63:0] solinas_modulus(int i, int j);
    return 64'((128'd1 << i) - (128'd1 << j) + 128'd1);
  endfunction

  // The exponents of q = 2^i - 2^j + 1.
  function automatic int solinas_i(logic [63:0] q);
    return $clog2(q);
  endfunction
  function automatic int solinas_j(logic [63:0] q);
    int j = 0;
    while (j < 63 && !1'((q - 64'd1) >> j)) j++;
    return j;
  endfunction

  // The largest value after n steps x = h * 2^i + l -> l + h * (2^j - 1), from (q - 1)^2.
  function automatic logic [127:0] solinas_bound(int i, int j, int n);
    logic [127:0] bound = 128'(solinas_modulus(i, j) - 64'd1) * 128'(solinas_modulus(i, j) - 64'd1);
    for (int step = 0; step < n; step++) begin
      bound = ((128'd1 << i) - 128'd1) + (bound >> i) * ((128'd1 << j) - 128'd1);
    end
    return bound;
  endfunction

  // The width of a value after n steps.
  function automatic int solinas_width(int i, int j, int n);
    return n == 0 ? 2 * i : $clog2(solinas_bound(i, j, n) + 128'd1);
  endfunction

  // Steps until h is 0 or 1.
  function automatic int solinas_folds(int i, int j);
    int n = 0;
    while ((solinas_bound(i, j, n) >> i) > 128'd1) n++;
    return n;
  endfunction

  // solinas_mul
  function automatic int solinas_mul_latency(int i, int j, int tile_a, int tile_b, bit short_pipeline = 0);
    return mul_latency(i, i, tile_a, tile_b, short_pipeline) + (short_pipeline ? 1 : solinas_folds(i, j) + 1);
  endfunction

  // montgomery_mul: the product, each step's product and sum, and the last subtraction.
  function automatic int montgomery_mul_latency(int width, int word, int tile_a, int tile_b, bit short_pipeline = 0);
    return mul_latency(width, width, tile_a, tile_b, short_pipeline) +
        ceil_div(width, word) * (mul_latency(width - word, word, tile_a, tile_b, short_pipeline) + 1) + 1;
  endfunction

  // montgomery_double_mul: the same with steps of two words.
  function automatic int montgomery_double_latency(int width, int word, int tile_a, int tile_b, bit short_pipeline = 0);
    return mul_latency(width, width, tile_a, tile_b, short_pipeline) +
        ceil_div(width, 2 * word) * (mul_latency(width - word, 2 * word, tile_a, tile_b, short_pipeline) + 1) + 1;
  endfunction

  // The width of a value after n steps: below 2^(2 width - n word) + 2^(width + 1), and 2 q after the last.
  function automatic int montgomery_width(int width, int word, int n);
    if (n == 0) return 2 * width;
    if (n * word >= width) return width + 1;
    return (2 * width - n * word > width + 1 ? 2 * width - n * word : width + 1) + 1;
  endfunction

  // montgomery_column: bits of a step, at most a tile's; for these, the inverse of q needs one product of half as many.
  function automatic int montgomery_wide_steps(int width, int word, int tile_a);
    return ceil_div(width, 2 * word + 2 < tile_a ? 2 * word + 2 : tile_a);
  endfunction
  function automatic int montgomery_wide_bits(int width, int word, int tile_a);
    automatic int bits = ceil_div(width, montgomery_wide_steps(width, word, tile_a));
    return bits > word ? bits : word + 1;
  endfunction

  // montgomery_column: the product with its rows added in a cycle of their own, four cycles a step, the last subtraction.
  function automatic int montgomery_wide_latency(int width, int word, int tile_a, int tile_b);
    return mul_latency(width, width, tile_a, tile_b, 1) + 1 + 4 * montgomery_wide_steps(width, word, tile_a) + 1;
  endfunction

  // The word that mod_mul uses: q = 1 modulo 2^word, and word fits a tile of b.
  function automatic int montgomery_word(logic [63:0] q, int tile_b);
    return solinas_j(q) < tile_b ? solinas_j(q) : tile_b;
  endfunction

  // barrett_mul: three products and the last subtractions.
  function automatic int barrett_mul_latency(logic [63:0] q, int tile_a, int tile_b, bit short_pipeline = 0);
    return mul_latency($clog2(q), $clog2(q), tile_a, tile_b, short_pipeline) +
        2 * mul_latency($clog2(q) + 1, $clog2(q) + 1, tile_a, tile_b, short_pipeline) + 2;
  endfunction

  // mod_mul
  function automatic int mod_mul_latency(modulus_e kind, int width, int tile_a, int tile_b, bit short_pipeline = 0,
                                         logic [63:0] q = GOLDILOCKS);
    case (kind)
      MOD_GOLDILOCKS: return goldilocks_mul_latency(tile_a, tile_b, short_pipeline);
      MOD_SOLINAS: return solinas_mul_latency(solinas_i(q), solinas_j(q), tile_a, tile_b, short_pipeline);
      MOD_MONTGOMERY: return montgomery_mul_latency(width, montgomery_word(q, tile_b), tile_a, tile_b, short_pipeline);
      default: return barrett_mul_latency(q, tile_a, tile_b, short_pipeline);
    endcase
  endfunction

  // butterfly_integrated, butterfly_ct and butterfly_gs
  function automatic int butterfly_latency(modulus_e kind, int width, int tile_a, int tile_b, bit short_pipeline = 0,
                                           logic [63:0] q = GOLDILOCKS);
    if (kind == MOD_GOLDILOCKS) return mul_latency(64, 65, tile_a, tile_b, short_pipeline) + (short_pipeline ? 2 : 5);
    return mod_mul_latency(kind, width, tile_a, tile_b, short_pipeline, q) + (short_pipeline ? 1 : 2);
  endfunction

  // butterfly_solinas: the product, its reduction, and the sums before or after it.
  function automatic int butterfly_solinas_latency(int i, int tile_a, int tile_b, bit short_pipeline = 0);
    return mul_latency(i - 1, i + 1, tile_a, tile_b, short_pipeline) + 2;
  endfunction

  // butterfly_montgomery: the product, and the sums before or after it.
  function automatic int butterfly_montgomery_latency(int width, int word, int tile_a, int tile_b,
                                                      bit short_pipeline = 0);
    return montgomery_mul_latency(width, word, tile_a, tile_b, short_pipeline) + 1;
  endfunction

  // ram_sdp and rom
  function automatic int ram_latency(bit output_register);
    return output_register ? 2 : 1;
  endfunction
endpackage
