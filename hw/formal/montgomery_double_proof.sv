// montgomery_double_mul, step by step, for q = H * 2^WORD + 1. Step n: for x up to its bound and m = -x / q modulo
// 2^(2 * WORD), r * 2^(2 * WORD) = x + m * q, and r is within the bound of step n + 1. The last bound is below 2 q, for
// which mod_canonical is proved by montgomery_proof.
//
// The product m * H is the solvers' own.
//
// H_USED  what the steps are given for H; other than that in self-tests only
module montgomery_double_proof #(
    parameter int WIDTH = 32,
    parameter int WORD = 8,
    parameter logic [63:0] Q = 64'd4244570881,
    parameter logic [WORD-1:0] H_USED = Q[2*WORD-1:WORD]
) (
    input logic [127:0] x_i
);
  localparam int Steps = toroid_pkg::ceil_div(WIDTH, 2 * WORD);
  localparam int WidthP = WIDTH + WORD;
  localparam logic [159:0] Largest = (160'd1 << 2 * WORD) - 160'd1;

  function automatic logic [159:0] bound(int n);
    logic [159:0] b = 160'(Q - 64'd1) * 160'(Q - 64'd1);
    for (int step = 0; step < n; step++) b = (b + Largest * 160'(Q)) >> 2 * WORD;
    return b;
  endfunction

  for (genvar n = 0; n < Steps; n++) begin : g_step
    localparam int WidthX = toroid_pkg::montgomery_width(WIDTH, 2 * WORD, n);
    localparam int WidthR = toroid_pkg::montgomery_width(WIDTH, 2 * WORD, n + 1);
    localparam int W = 2 * WIDTH + 2 * WORD + 2;
    logic [WidthR-1:0] r;
    logic [2*WORD-1:0] m;
    logic [WidthP-1:0] p;
    assign p = WidthP'(m) * WidthP'(Q >> WORD);
    montgomery_double_step #(
        .WORD   (WORD),
        .H      (H_USED),
        .WIDTH_X(WidthX),
        .WIDTH_P(WidthP),
        .WIDTH_R(WidthR)
    ) i_step (
        .low_i(x_i[2*WORD-1:0]),
        .m_o  (m),
        .x_i  (x_i[WidthX-1:0]),
        .m_i  (m[2*WORD-1:WORD]),
        .p_i  (p),
        .r_o  (r)
    );
    always_comb begin
      if (160'(x_i[WidthX-1:0]) <= bound(n)) begin
        assert ((W'(r) << 2 * WORD) == W'(x_i[WidthX-1:0]) + (W'(p) << WORD) + W'(m));
        assert (160'(r) <= bound(n + 1));
      end
    end
  end

  always_comb assert (bound(Steps) < 160'(Q) << 1);
endmodule
