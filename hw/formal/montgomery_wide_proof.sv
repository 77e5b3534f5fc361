// montgomery_wide_inverse and montgomery_wide_step, step by step, for q = h * 2^WORD + 1, h free. Step n: for x up to
// its bound and a product m * h whose lower bits are right and whose upper bits are free, r * 2^STEP = x + m * q, and r
// fits its width. That m clears the lower bits of x is what makes the division exact.
//
// CLEARS       0: any t, and that g is right and m clears the lower bits of x is taken for granted. For
//              STEP - WORD = 12 solvers take too long for that, and a test of toroid-cosim goes through all cases instead
// SQUARE_USED  0 in self-tests only: g without its square
module montgomery_wide_proof #(
    parameter int WIDTH = 64,
    parameter int WORD = 10,
    parameter int STEP = 22,
    parameter bit CLEARS = 1,
    parameter bit SQUARE_USED = 1
) (
    input logic [        127:0] x_i,
    input logic [     STEP-1:0] h_i,
    input logic [    WIDTH-1:0] p_i,
    input logic [STEP-WORD-1:0] t_i
);
  localparam int Half = STEP - WORD;
  localparam int Steps = toroid_pkg::ceil_div(WIDTH, STEP);
  localparam int W = 2 * WIDTH + STEP + 2;

  // Of any q below 2^WIDTH, from (q - 1)^2 on.
  localparam logic [159:0] LargestQ = (160'd1 << WIDTH) - 160'd1;
  localparam logic [159:0] LargestM = (160'd1 << STEP) - 160'd1;
  function automatic logic [159:0] bound(int n);
    logic [159:0] b = (LargestQ - 160'd1) * (LargestQ - 160'd1);
    for (int step = 0; step < n; step++) b = (b + LargestM * LargestQ) >> STEP;
    return b;
  endfunction

  logic [Half-1:0] g;
  montgomery_wide_inverse #(
      .WORD(WORD),
      .STEP(STEP)
  ) i_inverse (
      .h_i(h_i[Half-1:0]),
      .g_o(g)
  );
  // q times (g * 2^WORD - 1) is -1.
  always_comb if (CLEARS) assert ((h_i << WORD | STEP'(1)) * (STEP'(g) << WORD) - (h_i << WORD | STEP'(1)) == '1);

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
    always_comb begin
      if (CLEARS) assert (lower == -t);
      if (160'(x_i[Width-1:0]) <= bound(n) && 160'(p_i) <= LargestM * (LargestQ >> WORD) >> Half) begin
        assert ((W'(r) << STEP) == W'(x_i[Width-1:0]) + W'(m) + (W'(product) << WORD));
      end
    end
  end
  // What is left is below 2 q, for which montgomery_proof shows the last subtraction.
  always_comb assert (bound(Steps) <= 160'd1 << (WIDTH + 1));
endmodule
