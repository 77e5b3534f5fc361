// SPDX-License-Identifier: Apache-2.0 OR MIT
// sdf_sums, both outputs, between what twiddle_mul_proof and solinas_carry_proof say.
// SOLINAS: if a stored word is within the bound of solinas_carry and a term is above -2^(I + 1), then
// - the word is the stored one, or its sum with the term, as solinas_carry reduces it exactly, and within the bound again;
// - the rest is exactly the term, or the stored word less the term, and in the range of solinas_carry, which is behind it.
// Otherwise: for canonical words, both are the canonical ones.
//
// Q_USED  the modulus that the unit is given; other than the right one in self-tests only
module sdf_sums_proof #(
    parameter int I = 13,
    parameter int J = 9,
    parameter bit SOLINAS = 1,
    parameter logic [63:0] Q_USED = toroid_pkg::solinas_modulus(I, J)
) (
    input logic                clk_i,
    input logic                second_i,
    input logic        [  I:0] stored_i,
    input logic signed [I+1:0] term_i
);
  localparam int W = I + 6;
  localparam logic signed [W-1:0] Q = W'(toroid_pkg::solinas_modulus(I, J));
  localparam logic signed [W-1:0] Low = -$signed(W'(1) << (I + 1));
  localparam logic signed [W-1:0] High = W'(1) << (I + 2);
  // The largest word.
  localparam logic [I:0] Bound = !SOLINAS ? (I + 1)'(Q - 1) : J == I - 2 ? '1 : (I + 1)'(2 * Q - 1);

  // Exactly.
  logic signed [W-1:0] stored, term, sum, rest;
  assign stored = W'(stored_i);
  assign sum = second_i ? stored + term : stored;
  assign rest = second_i ? stored - term : term;
  always_comb assume (stored_i <= Bound);

  if (SOLINAS) begin : g_solinas
    logic [I+2:0] rest_found;
    logic [I:0] word_found;
    logic signed [W-1:0] k;
    assign term = W'(term_i);
    assign k = sum >>> I;
    sdf_sums #(
        .SOLINAS(1),
        .Q      (Q_USED)
    ) i_sums (
        .clk_i,
        .second_i,
        .stored_i,
        .term_i(term_i),
        .word_o(word_found),
        .rest_o(rest_found)
    );
    always_comb begin
      assume (term > Low);
      assert (sum >= Low && sum < High);
      assert ($signed(W'(word_found)) == sum - (k << I) + (k << J) - k + (k < 0 ? Q : 0));
      assert (word_found <= Bound);
      assert (rest >= Low && rest < High);
      assert (W'($signed(rest_found)) == rest);
    end
  end else begin : g_canonical
    logic [I-1:0] rest_found, word_found;
    assign term = $signed(W'(term_i[I-1:0]));
    sdf_sums #(
        .SOLINAS(0),
        .Q      (Q_USED)
    ) i_sums (
        .clk_i,
        .second_i,
        .stored_i(stored_i[I-1:0]),
        .term_i  (term_i[I-1:0]),
        .word_o  (word_found),
        .rest_o  (rest_found)
    );
    always_comb begin
      assume (term < Q);
      assert ($signed(W'(word_found)) == (sum < Q ? sum : sum - Q));
      assert ($signed(W'(rest_found)) == (rest < 0 ? rest + Q : rest));
    end
  end
endmodule
