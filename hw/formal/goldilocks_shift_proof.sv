// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_shift: t is d * 2^EXPONENT + shift_offset modulo q.
//
// y = d * 2^(EXPONENT modulo 32) is the sum of its limbs of 32 bits, each at its place; t is the offset and the sum of the same limbs, each times
// the residue of its place in y * 2^(EXPONENT - EXPONENT modulo 32). The residues are right since 2^64 - (2^32 - 1) = q, 2^96 + 1 = q (2^32 + 1),
// 2^128 + 2^32 = 2^32 q (2^32 + 1), 2^160 + 2^32 - 1 = q (2^64 (2^32 + 1) - 1) and 2^192 - 1 = (2^96 - 1) q (2^32 + 1).
//
// EXPONENT_USED  what the unit is given; other than EXPONENT in self-tests only
module goldilocks_shift_proof #(
    parameter int WIDTH = 66,
    parameter int EXPONENT = 0,
    parameter int EXPONENT_USED = EXPONENT
) (
    input logic clk_i,
    input logic [WIDTH-1:0] d_i
);
  localparam int Bits = EXPONENT % 32;
  localparam int Limbs = EXPONENT / 32;
  localparam int Top = WIDTH + Bits <= 96 ? 2 : 3;
  logic [64:0] t;
  goldilocks_shift #(
      .WIDTH     (WIDTH),
      .EXPONENT  (EXPONENT_USED),
      .REGISTERED(0)
  ) i_shift (
      .clk_i,
      .d_i,
      .t_o(t)
  );
  // A limb times the residue of 2^(32 * place).
  function automatic logic signed [127:0] residue(logic signed [127:0] limb, int place);
    case (place % 6)
      0: return limb;
      1: return limb <<< 32;
      2: return (limb <<< 32) - limb;
      3: return -limb;
      4: return -(limb <<< 32);
      default: return limb - (limb <<< 32);
    endcase
  endfunction
  logic signed [127:0] y, limb, whole, reduced;
  always_comb begin
    y = $signed(128'(d_i)) <<< Bits;
    whole = '0;
    reduced = '0;
    for (int n = 0; n <= Top; n++) begin
      limb = n == Top ? y >>> 32 * n : $signed({96'b0, y[32*n+:32]});
      whole += limb <<< 32 * n;
      reduced += residue(limb, n + Limbs);
    end
    assert (whole == y);
    assert (128'(t) == reduced + 128'(stream_transform_pkg::shift_offset(WIDTH, EXPONENT_USED)));
  end
endmodule
