// sdf_sums and the products in front of it, between what solinas_shift_proof and solinas_carry_proof say.
// - What solinas_shift gives is exact in the bits of a term with the sign of its twiddle, and above -2^(I + 1).
// If a stored word is within the bound of solinas_carry and a term is above -2^(I + 1), then
// - the rest is exact: the term, or the stored word less the term;
// - the rest and the sum are in the range of solinas_carry.
// For canonical words, the rest is the term, or congruent to the difference and canonical.
//
// Q_USED  the modulus that the unit is given; other than the right one in self-tests only
module sdf_sums_proof #(
    parameter int I = 13,
    parameter int J = 9,
    parameter bit SOLINAS = 1,
    parameter logic [63:0] Q_USED = toroid_pkg::solinas_modulus(I, J)
) (
    // The clock of a register that is not looked at.
    input logic                clk_i,
    input logic                second_i,
    input logic                negative_i,
    input logic        [  I:0] stored_i,
    input logic signed [I+1:0] t_i,
    input logic signed [I+1:0] term_i
);
  localparam int W = I + 6;
  localparam logic signed [W-1:0] Q = W'(toroid_pkg::solinas_modulus(I, J));
  localparam logic signed [W-1:0] Low = -$signed(W'(1) << (I + 1));
  localparam logic signed [W-1:0] High = W'(1) << (I + 2);
  // The largest word.
  localparam logic [I:0] Bound = !SOLINAS ? (I + 1)'(Q - 1) : J == I - 2 ? '1 : (I + 1)'(2 * Q - 1);

  if (SOLINAS) begin : g_solinas
    logic [I+1:0] term;
    logic [I+2:0] rest;
    logic [  I:0] unused_word;
    logic signed [W-1:0] rest_exact, sum;
    assign term = (t_i ^ {(I + 2) {negative_i}}) + (I + 2)'(negative_i);
    assign rest_exact = second_i ? $signed(W'(stored_i)) - W'(term_i) : W'(term_i);
    assign sum = second_i ? $signed(W'(stored_i)) + W'(term_i) : $signed(W'(stored_i));
    sdf_sums #(
        .SOLINAS(1),
        .Q      (Q_USED),
        .WIDTH  (I)
    ) i_sums (
        .clk_i,
        .second_i,
        .stored_i,
        .term_i(term_i),
        .word_o(unused_word),
        .rest_o(rest)
    );
    always_comb begin
      assume (stored_i <= Bound);
      assume (W'(t_i) > -$signed(W'(1) << I));
      assume (W'(term_i) > Low);
      assert (W'($signed(term)) == (negative_i ? -W'(t_i) : W'(t_i)));
      assert (W'($signed(term)) > Low);
      assert (W'($signed(rest)) == rest_exact);
      assert (rest_exact >= Low && rest_exact < High);
      assert (sum >= Low && sum < High);
    end
  end else begin : g_canonical
    logic [I-1:0] rest, unused_word;
    logic signed [W-1:0] difference;
    assign difference = $signed(W'(stored_i)) - $signed(W'(term_i[I-1:0]));
    sdf_sums #(
        .SOLINAS(0),
        .Q      (Q_USED),
        .WIDTH  (I)
    ) i_sums (
        .clk_i,
        .second_i,
        .stored_i(stored_i[I-1:0]),
        .term_i  (term_i[I-1:0]),
        .word_o  (unused_word),
        .rest_o  (rest)
    );
    always_comb begin
      assume (stored_i <= Bound);
      assume (term_i[I-1:0] <= Bound[I-1:0]);
      assert ($signed(W'(rest)) < Q);
      if (second_i)
        assert ($signed(W'(rest)) == difference || $signed(W'(rest)) == difference + Q);
        else assert (rest == term_i[I-1:0]);
    end
  end
endmodule
