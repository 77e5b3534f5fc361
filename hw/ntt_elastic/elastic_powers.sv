// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_powers: factors of the lanes in geometric progression, base * ratio^k, from one word a beat.
//
// The word is the ratio, and base_i the base; with square_i the word is the base and its square the ratio, as an NCN
// needs: psi^c * (psi^2)^(c k). Powers are made by doubling, log2 of the lanes products deep.
//
// LOG_LANES  log2 of the lanes
// WORD, TILE_A, TILE_B  see montgomery_column
// q_i, square_i, base_i  with word_i; q_o with factors_o
// Latency: LOG_LANES + 1 products
module elastic_powers
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    parameter int WORD = 10,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    localparam int Lanes = 1 << LOG_LANES
) (
    input  logic                        clk_i,
    input  logic [WIDTH-1:0]            q_i,
    input  logic                        square_i,
    input  logic [WIDTH-1:0]            base_i,
    input  logic [WIDTH-1:0]            word_i,
    output logic [WIDTH-1:0]            q_o,
    output logic [Lanes-1:0][WIDTH-1:0] factors_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check
    $fatal(1, "elastic_powers: LOG_LANES must be 2 to 5");
  end

  localparam int Latency = toroid_pkg::montgomery_wide_latency(WIDTH, WORD, TILE_A, TILE_B);

  logic [WIDTH-1:0] q[LOG_LANES+1];
  // ratio[d] is ratio^(2^d); factors[d] are the first 2^d.
  logic [WIDTH-1:0] ratio[LOG_LANES];
  logic [Lanes-1:0][WIDTH-1:0] factors[LOG_LANES+1];

  logic square;
  logic [WIDTH-1:0] word, squared;
  montgomery_column #(
      .COUNT (1),
      .WIDTH (WIDTH),
      .WORD  (WORD),
      .TILE_A(TILE_A),
      .TILE_B(TILE_B)
  ) i_square (
      .clk_i,
      .q_i,
      .a_i(word_i),
      .b_i(word_i),
      .q_o(q[0]),
      .p_o(squared)
  );
  delay #(
      .WIDTH (WIDTH + 1),
      .CYCLES(Latency)
  ) i_word (
      .clk_i,
      .d_i({square_i, word_i}),
      .q_o({square, word})
  );
  logic [WIDTH-1:0] base;
  delay #(
      .WIDTH (WIDTH),
      .CYCLES(Latency)
  ) i_base (
      .clk_i,
      .d_i(square_i ? word_i : base_i),
      .q_o(base)
  );
  assign ratio[0] = square ? squared : word;
  assign factors[0][0] = base;

  for (genvar d = 0; d < LOG_LANES; d++) begin : g_double
    localparam int Count = 1 << d;
    // The next power of the ratio, but at the end, and the factors times this one.
    localparam int More = int'(d < LOG_LANES - 1);
    logic [Count+More-1:0][WIDTH-1:0] operands, products;
    montgomery_column #(
        .COUNT (Count + More),
        .WIDTH (WIDTH),
        .WORD  (WORD),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B)
    ) i_column (
        .clk_i,
        .q_i(q[d]),
        .a_i({(Count + More) {ratio[d]}}),
        .b_i(operands),
        .q_o(q[d+1]),
        .p_o(products)
    );
    assign operands[Count-1:0] = factors[d][Count-1:0];
    delay #(
        .WIDTH (Count * WIDTH),
        .CYCLES(Latency)
    ) i_delay (
        .clk_i,
        .d_i(factors[d][Count-1:0]),
        .q_o(factors[d+1][Count-1:0])
    );
    assign factors[d+1][2*Count-1:Count] = products[Count-1:0];
    if (More != 0) begin : g_ratio
      assign operands[Count] = ratio[d];
      assign ratio[d+1] = products[Count];
    end
  end
  assign q_o = q[LOG_LANES];
  assign factors_o = factors[LOG_LANES];
endmodule
