// montgomery_double_step: 2 * WORD bits of Montgomery's reduction for q = H * 2^WORD + 1; combinational but for its
// product.
//
// q^-1 = 1 - H * 2^WORD modulo 2^(2 * WORD), so the multiple of q that clears the lower 2 * WORD bits of x,
// m = -x / q = -x + 2^WORD * (x * H modulo 2^WORD), needs a product of WORD by WORD bits only. What is left of x + m *
// q is (x >> 2 * WORD) + (m * q >> 2 * WORD) + (1 where the cleared bits were not 0), and m * q >> WORD = m * H + (m >>
// WORD). m_o goes out; its upper half and the product m * H come back together with the same x.
//
// WORD     half of the cleared bits, >= 1
// H        q >> WORD, modulo 2^WORD
// WIDTH_X  width of x, > 2 * WORD
// WIDTH_P  width of m * H
// WIDTH_R  width of r, enough for it
// Latency: 0
module montgomery_double_step #(
    parameter int WORD = 8,
    parameter logic [WORD-1:0] H = 1,
    parameter int WIDTH_X = 64,
    parameter int WIDTH_P = 40,
    parameter int WIDTH_R = WIDTH_X - 2 * WORD + 1
) (
    input  logic [ 2*WORD-1:0] low_i,
    output logic [ 2*WORD-1:0] m_o,
    input  logic [WIDTH_X-1:0] x_i,
    input  logic [   WORD-1:0] m_i,
    input  logic [WIDTH_P-1:0] p_i,
    output logic [WIDTH_R-1:0] r_o
);
  if (WORD < 1 || WIDTH_X <= 2 * WORD) begin : g_check
    $fatal(1, "montgomery_double_step: WORD >= 1 and WIDTH_X > 2 * WORD are needed");
  end

  // A sum of shifted words, as H is constant.
  logic [WORD-1:0] product;
  always_comb begin
    product = '0;
    for (int n = 0; n < WORD; n++) if (H[n]) product += low_i[WORD-1:0] << n;
  end
  assign m_o = {product, WORD'(0)} - low_i;

  logic [WIDTH_P:0] upper;
  assign upper = (WIDTH_P + 1)'(p_i) + (WIDTH_P + 1)'(m_i);
  assign r_o   = WIDTH_R'(x_i[WIDTH_X-1:2*WORD]) + WIDTH_R'(upper[WIDTH_P:WORD]) + WIDTH_R'(|x_i[2*WORD-1:0]);
  logic unused_low;
  assign unused_low = ^upper[WORD-1:0];
endmodule
