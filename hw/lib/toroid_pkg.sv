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

  // mul_tiles: operands, products, one cycle for each further tile of b, one for each further tile of a.
  function automatic int mul_latency(int width_a, int width_b, int tile_a, int tile_b);
    return 1 + ceil_div(width_b, tile_b) + ceil_div(width_a, tile_a);
  endfunction

  // mul_tiles with a signed b: what the inverted top bits of its rows add to the product.
  function automatic logic [255:0] mul_bias(int width_a, int width_b, int tile_a);
    logic [255:0] bias = '0;
    for (int low = 0; low < width_a; low += tile_a) begin
      bias += 256'd1 << (width_b - 1 + (low + tile_a < width_a ? low + tile_a : width_a));
    end
    return bias;
  endfunction

  // goldilocks_fold
  localparam int GOLDILOCKS_FOLD_LATENCY = 2;

  // goldilocks_mul
  function automatic int goldilocks_mul_latency(int tile_a, int tile_b);
    return mul_latency(64, 64, tile_a, tile_b) + GOLDILOCKS_FOLD_LATENCY + 1;
  endfunction

  // mod_mul
  function automatic int mod_mul_latency(modulus_e kind, int width, int tile_a, int tile_b);
    case (kind)
      MOD_GOLDILOCKS: return goldilocks_mul_latency(tile_a, tile_b);
      default: return mul_latency(width, width, tile_a, tile_b) + 2;
    endcase
  endfunction

  // butterfly_integrated, butterfly_ct and butterfly_gs
  function automatic int butterfly_latency(modulus_e kind, int width, int tile_a, int tile_b);
    case (kind)
      MOD_GOLDILOCKS: return 1 + mul_latency(64, 65, tile_a, tile_b) + GOLDILOCKS_FOLD_LATENCY + 2;
      default: return 2 + mod_mul_latency(kind, width, tile_a, tile_b);
    endcase
  endfunction

  // ram_sdp and rom
  function automatic int ram_latency(bit output_register);
    return output_register ? 2 : 1;
  endfunction
endpackage
