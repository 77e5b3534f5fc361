// SPDX-License-Identifier: Apache-2.0 OR MIT
// shift_butterfly: s = a + b and t = (a - b) * sqrt(2)^EXPONENT modulo q = 2^64 - 2^32 + 1, not reduced.
//
// Even exponents are powers of two, wires and a sum (goldilocks_shift); odd ones are sqrt(2) = 2^24 - 2^72 times a power of
// two, the difference of two such products. A power from 2^96 = -1 on takes b - a. 1 takes nothing: words grow by a bit.
//
// WIDTH     bits of a and b, signed, 65 to 75
// OUT       bits of s and t, at least WIDTH + 1 and 68
// EXPONENT  0 to 383
// LATENCY   of the product: 0 where EXPONENT is 0, else at least stream_transform_pkg::SHIFT_LATENCY, or ROOT_LATENCY where
//           EXPONENT is odd
// Latency: 1 + LATENCY
module shift_butterfly
  import stream_transform_pkg::*;
#(
    parameter int WIDTH = 68,
    parameter int OUT = WIDTH + 1,
    parameter int EXPONENT = 0,
    parameter int LATENCY = 0
) (
    input  logic                    clk_i,
    input  logic signed [WIDTH-1:0] a_i,
    input  logic signed [WIDTH-1:0] b_i,
    output logic signed [  OUT-1:0] s_o,
    output logic signed [  OUT-1:0] t_o
);
  localparam bit IsOdd = EXPONENT % 2 == 1;
  localparam int Needed = EXPONENT == 0 ? 0 : IsOdd ? ROOT_LATENCY : SHIFT_LATENCY;

  if (EXPONENT < 0 || EXPONENT >= ROOT_ORDER || LATENCY < Needed || OUT <= WIDTH || OUT < 68) begin : g_check
    $fatal(1, "shift_butterfly: EXPONENT must be 0 to 383, LATENCY that of its product and OUT above WIDTH and 67");
  end

  // The power of two, and of sqrt(2) its second term.
  localparam int First = (EXPONENT / 2 + (IsOdd ? 24 : 0)) % 192;
  localparam int Second = (EXPONENT / 2 + 72) % 192;

  logic signed [WIDTH:0] sum_q, difference_q;
  logic signed [OUT-1:0] product;
  always_ff @(posedge clk_i) begin
    sum_q <= (WIDTH + 1)'(a_i) + (WIDTH + 1)'(b_i);
    if (First >= 96) difference_q <= (WIDTH + 1)'(b_i) - (WIDTH + 1)'(a_i);
    else difference_q <= (WIDTH + 1)'(a_i) - (WIDTH + 1)'(b_i);
  end

  if (EXPONENT == 0) begin : g_one
    assign product = OUT'(difference_q);
  end else begin : g_shift
    logic signed [66:0] first;
    goldilocks_shift #(
        .WIDTH   (WIDTH + 1),
        .EXPONENT(First % 96)
    ) i_first (
        .clk_i,
        .d_i(difference_q),
        .t_o(first)
    );
    if (IsOdd) begin : g_root
      // 2^First - 2^Second with the sign of the first taken out.
      localparam bit Adds = (First >= 96) != (Second >= 96);
      logic signed [66:0] second;
      logic signed [67:0] both_q;
      goldilocks_shift #(
          .WIDTH   (WIDTH + 1),
          .EXPONENT(Second % 96)
      ) i_second (
          .clk_i,
          .d_i(difference_q),
          .t_o(second)
      );
      always_ff @(posedge clk_i) begin
        if (Adds) both_q <= 68'(first) + 68'(second);
        else both_q <= 68'(first) - 68'(second);
      end
      assign product = OUT'(both_q);
    end else begin : g_power
      assign product = OUT'(first);
    end
  end

  delay #(
      .WIDTH (WIDTH + 1),
      .CYCLES(LATENCY)
  ) i_sum (
      .clk_i,
      .d_i(sum_q),
      .q_o(s_o[WIDTH:0])
  );
  if (OUT > WIDTH + 1) begin : g_sign
    assign s_o[OUT-1:WIDTH+1] = {(OUT - WIDTH - 1) {s_o[WIDTH]}};
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
