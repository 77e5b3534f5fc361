// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_reduce: r is in [0, q), and d - OFFSETS[choice] - r is a multiple of q.
//
// WIDTH_USED  what the unit is given; other than WIDTH in self-tests only
module stream_reduce_proof #(
    parameter int WIDTH = 72,
    parameter int WIDTH_USED = WIDTH
) (
    input logic clk_i,
    input logic [WIDTH-1:0] d_i,
    input logic choice_i
);
  localparam logic [127:0] OFFSETS = 128'hfedcba9876543210_ffffffff00000000;
  localparam logic signed [83:0] Q = 84'(toroid_pkg::GOLDILOCKS);
  logic [63:0] r;
  stream_reduce #(
      .WIDTH     (WIDTH_USED),
      .COUNT     (2),
      .OFFSETS   (OFFSETS),
      .REGISTERED(0)
  ) i_reduce (
      .clk_i,
      .d_i(d_i[WIDTH_USED-1:0]),
      .choice_i,
      .r_o(r)
  );
  logic signed [83:0] high, rest;
  logic congruent;
  always_comb begin
    // d less the multiple of q that its bits from 64 on say, q being 2^64 - 2^32 + 1
    high = 84'(d_i >> 64);
    rest = 84'(d_i) - (high <<< 64) + (high <<< 32) - high - 84'(OFFSETS[64*choice_i+:64]);
    congruent = rest == $signed(84'(r)) || rest == $signed(84'(r)) + Q || rest == $signed(84'(r)) - Q;
    assert (r < toroid_pkg::GOLDILOCKS);
    assert (congruent);
  end
endmodule
