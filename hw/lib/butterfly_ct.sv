// SPDX-License-Identifier: Apache-2.0 OR MIT
// butterfly_ct: the Cooley-Tukey butterfly, one per cycle.
//
// a' = a + b * w    b' = a - b * w
//
// It is butterfly_integrated in one direction; the other is left to the tool to remove.
//
// Parameters: see butterfly_integrated
// Latency: toroid_pkg::butterfly_latency
module butterfly_ct #(
    parameter toroid_pkg::modulus_e KIND = toroid_pkg::MOD_GOLDILOCKS,
    parameter int WIDTH = 64,
    parameter logic [WIDTH-1:0] Q = WIDTH'(toroid_pkg::GOLDILOCKS),
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0
) (
    input  logic             clk_i,
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    input  logic [WIDTH-1:0] w_i,
    output logic [WIDTH-1:0] a_o,
    output logic [WIDTH-1:0] b_o
);
  butterfly_integrated #(
      .KIND  (KIND),
      .WIDTH (WIDTH),
      .Q     (Q),
      .TILE_A(TILE_A),
      .TILE_B(TILE_B),
      .SHORT (SHORT)
  ) i_butterfly (
      .clk_i,
      .inverse_i(1'b0),
      .a_i(a_i),
      .b_i(b_i),
      .w_i,
      .a_o,
      .b_o
  );
endmodule
