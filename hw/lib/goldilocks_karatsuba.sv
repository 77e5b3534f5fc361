// SPDX-License-Identifier: Apache-2.0 OR MIT
// goldilocks_karatsuba: t congruent to a * b modulo q = 2^64 - 2^32 + 1 with -2 q < t < 2 q, one product a cycle, from three
// products of halves. goldilocks_canonical takes t into [0, q).
//
// With f = 2^32, f^2 = f - 1 and f^3 = -1 modulo q, so that for a = a1 f + a0 and b = b1 f + b0
//   a * b = f (a0 + a1) (b0 + b1) - a1 b1 - f^2 a0 b0
// and the middle product is never taken apart (Karatsuba's method). Each product is made of few tiles (mul_strip), the sum of
// the three by goldilocks_join. a and b may be any words of 64 bits.
//
// TILE_A, TILE_B  tiles of the multipliers: 24 x 17 for Xilinx DSP48
// TILES           6, or 8, which leaves less to LUTs
// Latency: toroid_pkg::goldilocks_karatsuba_latency
module goldilocks_karatsuba #(
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter int TILES  = 8
) (
    input  logic               clk_i,
    input  logic        [63:0] a_i,
    input  logic        [63:0] b_i,
    output logic signed [65:0] t_o
);
  if (TILES != 6 && TILES != 8) begin : g_check
    $fatal(1, "goldilocks_karatsuba: TILES must be 6 or 8");
  end

  localparam bit Corner = TILES == 8;
  // The product of the sums comes last.
  localparam int Middle = 1 + toroid_pkg::mul_strip_latency(33, TILE_A, 0);
  localparam int Others = toroid_pkg::mul_strip_latency(32, TILE_A, Corner);

  logic [63:0] a_q, b_q;
  logic [32:0] a_sum_q, b_sum_q;
  always_ff @(posedge clk_i) begin
    a_q <= a_i;
    b_q <= b_i;
    a_sum_q <= 33'(a_q[31:0]) + 33'(a_q[63:32]);
    b_sum_q <= 33'(b_q[31:0]) + 33'(b_q[63:32]);
  end

  logic [63:0] low, high, low_late, high_late;
  logic [65:0] middle;
  mul_strip #(
      .WIDTH_A(33),
      .WIDTH_B(33),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B)
  ) i_middle (
      .clk_i,
      .a_i(a_sum_q),
      .b_i(b_sum_q),
      .p_o(middle)
  );
  mul_strip #(
      .WIDTH_A(32),
      .WIDTH_B(32),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .CORNER (Corner)
  ) i_low (
      .clk_i,
      .a_i(a_q[31:0]),
      .b_i(b_q[31:0]),
      .p_o(low)
  );
  mul_strip #(
      .WIDTH_A(32),
      .WIDTH_B(32),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .CORNER (Corner),
      .ADDEND (1)
  ) i_high (
      .clk_i,
      .a_i(a_q[63:32]),
      .b_i(b_q[63:32]),
      .p_o(high)
  );
  delay #(
      .WIDTH (128),
      .CYCLES(Middle - Others)
  ) i_late (
      .clk_i,
      .d_i({low, high}),
      .q_o({low_late, high_late})
  );
  goldilocks_join i_join (
      .clk_i,
      .low_i(low_late),
      .high_i(high_late),
      .middle_i(middle),
      .t_o
  );
endmodule
