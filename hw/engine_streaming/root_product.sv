// SPDX-License-Identifier: Apache-2.0 OR MIT
// root_product: t = d * sqrt(2)^EXPONENT + K modulo q = 2^64 - 2^32 + 1, not reduced and without signs, where -d is given if
// stream_transform_pkg::is_swapped(EXPONENT).
//
// Even exponents are powers of two, one sum (goldilocks_shift); odd ones are sqrt(2) = 2^24 - 2^72 times a power of two, the sum of two such
// products. 1 takes nothing. K is a constant, as stream_transform_pkg::product_offset has it.
//
// WIDTH     bits of d, 65 to 76
// EXPONENT  0 to 383
// LATENCY   0 where EXPONENT is 0, else at least stream_transform_pkg::SHIFT_LATENCY, or ROOT_LATENCY where EXPONENT is odd
// Latency: LATENCY
module root_product
  import stream_transform_pkg::*;
#(
    parameter int WIDTH = 67,
    parameter int EXPONENT = 0,
    parameter int LATENCY = 0,
    localparam int OUT = product_width(WIDTH, EXPONENT)
) (
    input  logic             clk_i,
    input  logic [WIDTH-1:0] d_i,
    output logic [  OUT-1:0] t_o
);
  localparam bit IsOdd = EXPONENT % 2 == 1;
  localparam int Needed = EXPONENT == 0 ? 0 : IsOdd ? ROOT_LATENCY : SHIFT_LATENCY;

  if (EXPONENT < 0 || EXPONENT >= ROOT_ORDER || LATENCY < Needed || WIDTH < 65 || WIDTH > 76) begin : g_check
    $fatal(1, "root_product: EXPONENT must be 0 to 383, LATENCY that of its product and WIDTH 65 to 76");
  end

  logic [OUT-1:0] product;
  if (EXPONENT == 0) begin : g_one
    assign product = d_i;
  end else begin : g_shift
    logic [64:0] first;
    goldilocks_shift #(
        .WIDTH   (WIDTH),
        .EXPONENT(first_shift(EXPONENT))
    ) i_first (
        .clk_i,
        .d_i,
        .t_o(first)
    );
    if (IsOdd) begin : g_root
      logic [64:0] second;
      logic [65:0] both_q;
      goldilocks_shift #(
          .WIDTH   (WIDTH),
          .EXPONENT(second_shift(EXPONENT))
      ) i_second (
          .clk_i,
          .d_i,
          .t_o(second)
      );
      always_ff @(posedge clk_i) both_q <= 66'(first) + 66'(second);
      assign product = both_q;
    end else begin : g_power
      assign product = first;
    end
  end
  delay #(
      .WIDTH (OUT),
      .CYCLES(LATENCY - Needed)
  ) i_product (
      .clk_i,
      .d_i(product),
      .q_o(t_o)
  );
endmodule
