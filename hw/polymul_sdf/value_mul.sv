// SPDX-License-Identifier: Apache-2.0 OR MIT
// value_mul: p = a * b modulo Q of canonical words, one product a cycle.
//
// SOLINAS, BARRETT, Q  the reduction, as of twiddle_mul. Montgomery's is applied twice, to a * b and to that times R^2.
// TILE_A, TILE_B, SHORT  see mul_tiles
// Latency: ntt_sdf_pkg::product_latency
module value_mul #(
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter logic [63:0] Q = 64'd7681,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    localparam int Width = $clog2(Q)
) (
    input  logic             clk_i,
    input  logic [Width-1:0] a_i,
    input  logic [Width-1:0] b_i,
    output logic [Width-1:0] p_o
);
  localparam toroid_pkg::modulus_e Kind = ntt_sdf_pkg::product_kind(SOLINAS, BARRETT, Q);

  logic [Width-1:0] p;
  mod_mul #(
      .KIND  (Kind),
      .WIDTH (Width),
      .Q     (Q[Width-1:0]),
      .TILE_A(TILE_A),
      .TILE_B(TILE_B),
      .SHORT (SHORT)
  ) i_mul (
      .clk_i,
      .a_i,
      .b_i,
      .p_o(p)
  );
  if (Kind == toroid_pkg::MOD_MONTGOMERY) begin : g_again
    localparam logic [127:0] R = 128'(ntt_sdf_pkg::unit(0, 0, Q, TILE_B));
    localparam logic [127:0] Square = R * R % 128'(Q);
    mod_mul #(
        .KIND  (Kind),
        .WIDTH (Width),
        .Q     (Q[Width-1:0]),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .a_i(p),
        .b_i(Square[Width-1:0]),
        .p_o
    );
  end else begin : g_once
    assign p_o = p;
  end
endmodule
