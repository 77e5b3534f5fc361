// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_mul, step by step, for q = h * 2^WORD + 1. Step n: for x up to its bound and a product p = m * h,
// r * 2^WORD = x + m * q, and r is within the bound of step n + 1. The product itself is free: any p up to the largest.
// The last bound is below 2 q, for which the last subtraction is proved.
//
// WORD_USED  the word that the steps are given; other than WORD in self-tests only
module montgomery_proof #(
    parameter int WIDTH = 64,
    parameter int WORD = 17,
    parameter logic [63:0] Q = toroid_pkg::GOLDILOCKS,
    parameter int WORD_USED = WORD
) (
    input logic [127:0] x_i,
    input logic [ 63:0] p_i
);
  localparam int Steps = toroid_pkg::ceil_div(WIDTH, WORD);
  localparam logic [159:0] Largest = (160'd1 << WORD) - 160'd1;

  function automatic logic [159:0] bound(int n);
    logic [159:0] b = 160'(Q - 64'd1) * 160'(Q - 64'd1);
    for (int step = 0; step < n; step++) b = (b + Largest * 160'(Q)) >> WORD;
    return b;
  endfunction

  for (genvar n = 0; n < Steps; n++) begin : g_step
    localparam int WidthX = toroid_pkg::montgomery_width(WIDTH, WORD, n);
    localparam int WidthR = toroid_pkg::montgomery_width(WIDTH, WORD, n + 1);
    localparam int W = 2 * WIDTH + WORD + 2;
    logic [WidthR-1:0] r;
    logic [  WORD-1:0] m;
    montgomery_step #(
        .WORD   (WORD_USED),
        .WIDTH_X(WidthX),
        .WIDTH_P(WIDTH),
        .WIDTH_R(WidthR)
    ) i_step (
        .x_i(x_i[WidthX-1:0]),
        .p_i(p_i[WIDTH-1:0]),
        .r_o(r)
    );
    assign m = -x_i[WORD-1:0];
    always_comb begin
      if (160'(x_i[WidthX-1:0]) <= bound(n) && 160'(p_i[WIDTH-1:0]) <= Largest * 160'(Q >> WORD)) begin
        assert ((W'(r) << WORD) == W'(x_i[WidthX-1:0]) + (W'(p_i[WIDTH-1:0]) << WORD) + W'(m));
        assert (160'(r) <= bound(n + 1));
      end
    end
  end

  logic [WIDTH-1:0] r;
  mod_canonical #(
      .WIDTH  (WIDTH),
      .WIDTH_X(WIDTH + 1)
  ) i_canonical (
      .q_i(Q[WIDTH-1:0]),
      .x_i(x_i[WIDTH:0]),
      .r_o(r)
  );
  always_comb begin
    assert (bound(Steps) < 160'(Q) << 1);
    if (160'(x_i[WIDTH:0]) <= bound(Steps)) begin
      assert (64'(r) < Q);
      assert (66'(r) == 66'(x_i[WIDTH:0]) || 66'(r) + 66'(Q) == 66'(x_i[WIDTH:0]));
    end
  end
endmodule
