// SPDX-License-Identifier: Apache-2.0 OR MIT
// The sums of butterfly_solinas, put together as there, between what solinas_shift_proof, solinas_carry_proof and mod_half_proof say.
// If words are within the bound of solinas_carry, then in both directions
// - the product is below 2^(2 I), as solinas_shift wants it;
// - what enters solinas_carry is exact and in its range, so that what leaves it is within the bound again, as is half of that;
// - mod_canonical with the MULTIPLES of ntt_streaming makes any word within the bound canonical.
// The product is a free input up to the largest magnitude of a twiddle, (q - 1) / 2, times the bound, and t one in the range of
// solinas_shift.
//
// MULTIPLES_USED   subtractions of mod_canonical, and
// MAGNITUDE_SHIFT  q / 2^MAGNITUDE_SHIFT, rounded down, is the largest magnitude; other than their defaults in self-tests only
module butterfly_solinas_proof #(
    parameter int I = 28,
    parameter int J = 16,
    parameter int MULTIPLES_USED = J == I - 2 ? 2 : 1,
    parameter int MAGNITUDE_SHIFT = 1
) (
    input logic        [  I:0] a_i,
    input logic        [  I:0] b_i,
    input logic        [2*I:0] product_i,
    input logic signed [I+1:0] t_i
);
  localparam int W = I + 6;
  localparam logic signed [W-1:0] Q = W'(toroid_pkg::solinas_modulus(I, J));
  localparam logic signed [W-1:0] Low = -$signed(W'(1) << (I + 1));
  localparam logic signed [W-1:0] High = W'(1) << (I + 2);
  // The largest word.
  localparam logic [I:0] Bound = J == I - 2 ? '1 : (I + 1)'(2 * Q - 1);
  localparam logic [2*I:0] Magnitude = (2 * I + 1)'(Q >> MAGNITUDE_SHIFT);

  always_comb begin
    assume (a_i <= Bound);
    assume (b_i <= Bound);
    assume (product_i <= Magnitude * (2 * I + 1)'(Bound));
    assume (W'(t_i) > -$signed(W'(1) << I));
    assert (!product_i[2*I]);
  end

  // What enters solinas_carry, exactly and as the butterfly computes it, for either sign of a twiddle:
  // 0: a + t or a - t, 1: a + b, 2: a - b or b - a, 3: t. The other of 0 is that for the other sign.
  logic [I+2:0] a, b, t;
  assign a = {2'b0, a_i};
  assign b = {2'b0, b_i};
  assign t = {t_i[I+1], t_i};
  for (genvar negative = 0; negative < 2; negative++) begin : g_sign
    localparam int Sums = 4;
    localparam logic [I+2:0] Sign = {(I + 3) {1'(negative)}};
    logic signed [W-1:0] exact[Sums];
    logic [I+2:0] sum[Sums];
    assign exact[0] = negative == 1 ? $signed(W'(a_i)) - W'(t_i) : $signed(W'(a_i)) + W'(t_i);
    assign exact[1] = $signed(W'(a_i)) + $signed(W'(b_i));
    assign exact[2] = negative == 1 ? $signed(W'(b_i)) - $signed(W'(a_i)) : $signed(W'(a_i)) - $signed(W'(b_i));
    assign exact[3] = W'(t_i);
    assign sum[0]   = a + (t ^ Sign) + (I + 3)'(negative);
    assign sum[1]   = a + b;
    assign sum[2]   = (a ^ Sign) + (b ^ ~Sign) + 1'b1;
    assign sum[3]   = t;
    for (genvar n = 0; n < Sums; n++) begin : g_sum
      always_comb begin
        assert (exact[n] >= Low && exact[n] < High);
        assert (exact[n] == W'($signed(sum[n])));
      end
    end
  end

  // The half of a word.
  logic [I:0] half;
  mod_half #(
      .WIDTH(I + 1)
  ) i_half (
      .q_i(Q[I:0]),
      .x_i(a_i),
      .h_o(half)
  );
  always_comb assert (half <= Bound);

  logic [I-1:0] r;
  mod_canonical #(
      .WIDTH    (I),
      .WIDTH_X  (I + 1),
      .MULTIPLES(MULTIPLES_USED)
  ) i_canonical (
      .q_i(Q[I-1:0]),
      .x_i(a_i),
      .r_o(r)
  );
  logic signed [W-1:0] rest;
  assign rest = $signed(W'(a_i)) - $signed(W'(r));
  always_comb begin
    assert ($signed(W'(r)) < Q);
    assert (rest == 0 || rest == Q || rest == 2 * Q);
  end
endmodule
