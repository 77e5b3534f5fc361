// mod_mul: p = a * b modulo Q, one product a cycle, by the reduction that KIND names.
//
// KIND            MOD_GOLDILOCKS (WIDTH 64, Q = 2^64 - 2^32 + 1)
// WIDTH           width of a word
// Q               modulus, Q < 2^WIDTH
// TILE_A, TILE_B  tiles of the multiplier (see mul_tiles)
// Latency: toroid_pkg::mod_mul_latency
module mod_mul #(
    parameter toroid_pkg::modulus_e KIND = toroid_pkg::MOD_GOLDILOCKS,
    parameter int WIDTH = 64,
    parameter logic [WIDTH-1:0] Q = WIDTH'(toroid_pkg::GOLDILOCKS),
    parameter int TILE_A = 24,
    parameter int TILE_B = 17
) (
    input  logic             clk_i,
    input  logic [WIDTH-1:0] a_i,
    input  logic [WIDTH-1:0] b_i,
    output logic [WIDTH-1:0] p_o
);
  if (KIND == toroid_pkg::MOD_GOLDILOCKS) begin : g_goldilocks
    if (WIDTH != 64 || Q != toroid_pkg::GOLDILOCKS) begin : g_check
      $fatal(1, "mod_mul: MOD_GOLDILOCKS needs WIDTH = 64 and Q = 2^64 - 2^32 + 1");
    end
    goldilocks_mul #(
        .TILE_A(TILE_A),
        .TILE_B(TILE_B)
    ) i_mul (
        .clk_i,
        .a_i,
        .b_i,
        .p_o
    );
  end else begin : g_check
    $fatal(1, "mod_mul: KIND must be MOD_GOLDILOCKS");
  end
endmodule
