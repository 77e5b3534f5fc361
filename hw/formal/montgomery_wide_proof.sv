// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_wide_inverse and montgomery_wide_step, step by step, for any q = h * 2^WORD + 1 below 2^WIDTH. Step n: for x
// up to its bound and a product m * h whose lower bits are right and whose upper bits are free, r * 2^STEP = x + m * q,
// and r fits its width. That m clears the lower bits of x is what makes the division exact. For x < bound(q, n) and
// m * h <= (2^STEP - 1) * h, r < bound(q, n + 1). As a * b < q * 2^WIDTH for a < q, what the last step leaves of it is
// below 2 q, for which montgomery_proof shows the last subtraction.
//
// CLEARS       1: only that m clears the lower bits of x; 0: all else, for any t. For STEP - WORD = 12 solvers take too long
//              for the former, and a test of toroid-cores goes through all cases instead
// SQUARE_USED  0 in self-tests only: g without its square
// BOUND_USED   1 in self-tests only: less than q is left
module montgomery_wide_proof #(
    parameter int WIDTH = 64,
    parameter int WORD = 10,
    parameter int STEP = 22,
    parameter bit CLEARS = 1,
    parameter bit SQUARE_USED = 1,
    parameter int BOUND_USED = 2
) (
    input logic [         127:0] x_i,
    input logic [WIDTH-WORD-1:0] h_i,
    input logic [     WIDTH-1:0] p_i,
    input logic [ STEP-WORD-1:0] t_i
);
  localparam int Half = STEP - WORD;
  localparam int Steps = toroid_pkg::ceil_div(WIDTH, STEP);
  localparam int W = 2 * WIDTH + STEP + 2;

  localparam logic [W-1:0] LargestQ = (W'(1) << WIDTH) - W'(1);
  localparam logic [W-1:0] LargestM = (W'(1) << STEP) - W'(1);
  // What x is below before step n, of q or of the largest one: q * 2^WIDTH, then q * (2^(WIDTH - n * STEP) + 1), 2 q.
  function automatic logic [W-1:0] bound(logic [W-1:0] q, int n);
    if (n == 0) return q << WIDTH;
    if (n == Steps) return BOUND_USED == 2 ? q << 1 : q;
    return (q << (WIDTH - n * STEP)) + q;
  endfunction

  logic [WIDTH-1:0] q;
  assign q = {h_i, WORD'(1)};
  logic [Half-1:0] g;
  montgomery_wide_inverse #(
      .WORD(WORD),
      .STEP(STEP)
  ) i_inverse (
      .h_i(h_i[Half-1:0]),
      .g_o(g)
  );
  // q * (g * 2^WORD - 1) = -1 modulo 2^STEP.
  always_comb assert (q[Half-1:0] * g == h_i[Half-1:0]);

  for (genvar n = 0; n < Steps; n++) begin : g_step
    localparam int Width = toroid_pkg::montgomery_width(WIDTH, STEP, n);
    localparam int WidthR = toroid_pkg::montgomery_width(WIDTH, STEP, n + 1);
    logic [STEP-1:0] y, m;
    logic [Half-1:0] t, lower;
    logic [Half+WIDTH-1:0] product;
    logic [WidthR-1:0] r;
    logic borrow, carry;
    assign y = x_i[STEP-1:0];
    assign t = !CLEARS ? t_i : SQUARE_USED ? y[Half-1:0] * g : y[Half-1:0] * h_i[Half-1:0];
    // Modulo 2^Half, m * h: what t cancels.
    assign lower = m[Half-1:0] * h_i[Half-1:0];
    assign product = {p_i, -t};
    montgomery_wide_step #(
        .WORD   (WORD),
        .STEP   (STEP),
        .WIDTH_X(Width - STEP),
        .WIDTH_P(WIDTH),
        .WIDTH_R(WidthR)
    ) i_step (
        .y_i     (y),
        .t_i     (t),
        .m_o     (m),
        .borrow_o(borrow),
        .carry_o (carry),
        .x_i     (x_i[Width-1:STEP]),
        .p_i     (p_i),
        .borrow_i(borrow),
        .carry_i (carry),
        .r_o     (r)
    );
    if (CLEARS) begin : g_clears
      always_comb assert (lower == -t);
    end else begin : g_sum
      logic [W-1:0] x, m_q, most;
      assign x = W'(x_i[Width-1:0]);
      assign m_q = W'(m) + (W'(product) << WORD);
      assign most = (W'(q) << STEP) - W'(q);
      always_comb begin
        if (x < bound(LargestQ, n) && W'(p_i) <= LargestM * (LargestQ >> WORD) >> Half) begin
          assert (W'(r) << STEP == x + m_q);
        end
        if (W'(product) <= (W'(h_i) << STEP) - W'(h_i)) assert (m_q <= most);
        // Of any r: x and m * q within these bounds are together less than this.
        if (W'(x_i[WidthR-1:0]) << STEP < (W'(q) << (WIDTH - n * STEP)) + (W'(q) << STEP)) begin
          assert (W'(x_i[WidthR-1:0]) < bound(W'(q), n + 1));
        end
      end
    end
  end
endmodule
