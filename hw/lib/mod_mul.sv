// SPDX-License-Identifier: Apache-2.0 OR MIT
// mod_mul: p = a * b modulo Q, one product a cycle, by the reduction that KIND names.
//
// KIND            MOD_GOLDILOCKS  Q = 2^64 - 2^32 + 1 (goldilocks_mul)
//                 MOD_SOLINAS     Q = 2^i - 2^j + 1 with 2^i the least power of two above Q (solinas_mul)
//                 MOD_MONTGOMERY  any odd Q; p = a * b / R modulo Q (montgomery_mul), with the word and so R that
//                                 toroid_pkg::montgomery_word gives
//                 MOD_BARRETT     any Q (barrett_mul)
// WIDTH           width of a word, up to 64
// Q               modulus, Q < 2^WIDTH
// TILE_A, TILE_B  tiles of the multiplier (see mul_tiles)
// SHORT           fewer, longer stages
// Latency: toroid_pkg::mod_mul_latency
module mod_mul #(
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
    output logic [WIDTH-1:0] p_o
);
  if (WIDTH < 2 || WIDTH > 64) begin : g_check_width
    $fatal(1, "mod_mul: WIDTH must be 2 to 64");
  end

  if (KIND == toroid_pkg::MOD_GOLDILOCKS) begin : g_goldilocks
    if (WIDTH != 64 || 64'(Q) != toroid_pkg::GOLDILOCKS) begin : g_check
      $fatal(1, "mod_mul: MOD_GOLDILOCKS needs WIDTH = 64 and Q = 2^64 - 2^32 + 1");
    end
    goldilocks_mul #(
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .a_i,
        .b_i,
        .p_o
    );
  end else if (KIND == toroid_pkg::MOD_SOLINAS) begin : g_solinas
    localparam int I = toroid_pkg::solinas_i(64'(Q));
    localparam int J = toroid_pkg::solinas_j(64'(Q));
    if (64'(Q) != toroid_pkg::solinas_modulus(I, J)) begin : g_check
      $fatal(1, "mod_mul: MOD_SOLINAS needs Q = 2^i - 2^j + 1");
    end
    logic [I-1:0] p;
    solinas_mul #(
        .I     (I),
        .J     (J),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .a_i(a_i[I-1:0]),
        .b_i(b_i[I-1:0]),
        .p_o(p)
    );
    assign p_o = WIDTH'(p);
  end else if (KIND == toroid_pkg::MOD_MONTGOMERY) begin : g_montgomery
    if (!Q[0] || Q < 3) begin : g_check
      $fatal(1, "mod_mul: MOD_MONTGOMERY needs an odd Q above 2");
    end
    montgomery_mul #(
        .WIDTH (WIDTH),
        .WORD  (toroid_pkg::montgomery_word(64'(Q), TILE_B)),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .q_i(Q),
        .a_i,
        .b_i,
        .p_o
    );
  end else if (KIND == toroid_pkg::MOD_BARRETT) begin : g_barrett
    barrett_mul #(
        .WIDTH (WIDTH),
        .Q     (Q),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_mul (
        .clk_i,
        .a_i,
        .b_i,
        .p_o
    );
  end else begin : g_check
    $fatal(1, "mod_mul: KIND must be MOD_GOLDILOCKS, MOD_SOLINAS, MOD_MONTGOMERY or MOD_BARRETT");
  end
endmodule
