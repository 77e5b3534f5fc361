// SPDX-License-Identifier: Apache-2.0 OR MIT
// twiddle_mul: the product of a word and a twiddle, one per cycle, as the stages of a transform need it.
//
// SOLINAS  1: Q = 2^I - 2^J + 1, J < I - 1. Words are in [0, 2^(I + 1)), the product is in [-2^(I + 1), 2^(I + 1)), in
//             two's complement, congruent modulo Q; w_i = {negative, |w * 2^J|} as of butterfly_solinas.
//          0: canonical words and products
// BARRETT  1, with SOLINAS = 0: Barrett's reduction; 0: Montgomery's, w_i being the twiddle times R (montgomery_mul)
// Q        modulus
// TILE_A, TILE_B, SHORT, NARROW  see mul_tiles
// Latency: ntt_sdf_pkg::twiddle_latency
module twiddle_mul #(
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter logic [63:0] Q = 64'd7681,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 0,
    parameter int NARROW = 0,
    localparam int Width = $clog2(Q),
    localparam int Word = Width + int'(SOLINAS),
    localparam int Term = Width + 2 * int'(SOLINAS)
) (
    input  logic             clk_i,
    input  logic [ Word-1:0] x_i,
    input  logic [Width-1:0] w_i,
    output logic [ Term-1:0] p_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  if (SOLINAS && (BARRETT || !ntt_streaming_pkg::is_solinas(Q))) begin : g_check
    $fatal(1, "twiddle_mul: SOLINAS needs Q = 2^i - 2^j + 1 with j < i - 1, and no BARRETT");
  end

  if (SOLINAS) begin : g_solinas
    localparam int J = toroid_pkg::solinas_j(Q);
    logic negative;
    logic [2*Width-1:0] product;
    logic [Width+1:0] t;
    mul_tiles #(
        .WIDTH_A(Width - 1),
        .WIDTH_B(Width + 1),
        .TILE_A (TILE_A),
        .TILE_B (TILE_B),
        .SHORT  (SHORT),
        .NARROW (NARROW)
    ) i_mul (
        .clk_i,
        .a_i(w_i[Width-2:0]),
        .b_i(x_i),
        .p_o(product)
    );
    delay #(
        .WIDTH (1),
        .CYCLES(toroid_pkg::mul_latency(Width - 1, Width + 1, TILE_A, TILE_B, SHORT))
    ) i_sign (
        .clk_i,
        .d_i(w_i[Width-1]),
        .q_o(negative)
    );
    solinas_shift #(
        .I(Width),
        .J(J)
    ) i_shift (
        .x_i(product),
        .t_o(t)
    );
    always_ff @(posedge clk_i) p_o <= (t ^ {(Width + 2) {negative}}) + (Width + 2)'(negative);
  end else begin : g_canonical
    mod_mul #(
        .KIND  (BARRETT ? toroid_pkg::MOD_BARRETT : toroid_pkg::MOD_MONTGOMERY),
        .WIDTH (Width),
        .Q     (Q[Width-1:0]),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .a_i(w_i),
        .b_i(x_i),
        .p_o
    );
  end
endmodule
