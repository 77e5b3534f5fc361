// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_reduce, step by step. Step n: for x = h * 2^I + l up to its bound, r + h = l + h * 2^J, that is r = x - h * q, and
// r is within the bound of step n + 1. The last subtractions: for x up to the last bound, r is in [0, q) and x - r a multiple of q.
//
// J_USED  the exponent that the steps are given; other than J in self-tests only
module solinas_proof #(
    parameter int I = 28,
    parameter int J = 16,
    parameter int J_USED = J
) (
    input logic [127:0] x_i
);
  localparam int Folds = toroid_pkg::solinas_folds(I, J);
  localparam logic [63:0] Q = toroid_pkg::solinas_modulus(I, J);
  for (genvar n = 0; n < Folds; n++) begin : g_fold
    localparam int WidthX = toroid_pkg::solinas_width(I, J, n);
    localparam int WidthR = toroid_pkg::solinas_width(I, J, n + 1);
    logic [WidthR-1:0] r;
    localparam int W = WidthX + 1;
    logic [W-1:0] h, l;
    solinas_fold #(
        .I      (I),
        .J      (J_USED),
        .WIDTH_X(WidthX),
        .WIDTH_R(WidthR)
    ) i_fold (
        .x_i(x_i[WidthX-1:0]),
        .r_o(r)
    );
    assign h = W'(x_i[WidthX-1:I]);
    assign l = W'(x_i[I-1:0]);
    always_comb begin
      if (128'(x_i[WidthX-1:0]) <= toroid_pkg::solinas_bound(I, J, n)) begin
        assert (W'(r) + h == l + (h << J));
        assert (128'(r) <= toroid_pkg::solinas_bound(I, J, n + 1));
      end
    end
  end

  localparam int Width = toroid_pkg::solinas_width(I, J, Folds);
  localparam int Multiples = int'(toroid_pkg::solinas_bound(I, J, Folds) / 128'(Q));
  logic [I-1:0] r;
  logic congruent;
  mod_canonical #(
      .WIDTH    (I),
      .WIDTH_X  (Width),
      .MULTIPLES(Multiples)
  ) i_canonical (
      .q_i(Q[I-1:0]),
      .x_i(x_i[Width-1:0]),
      .r_o(r)
  );
  always_comb begin
    congruent = 1'b0;
    for (int k = 0; k <= Multiples; k++) begin
      if ((Width + 2)'(x_i[Width-1:0]) == (Width + 2)'(r) + (Width + 2)'(k) * (Width + 2)'(Q)) congruent = 1'b1;
    end
    if (128'(x_i[Width-1:0]) <= toroid_pkg::solinas_bound(I, J, Folds)) begin
      assert (64'(r) < Q);
      assert (congruent);
    end
  end
endmodule
