// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_stage: a stage of a transform over the lanes: LANES / 2 butterflies modulo one q.
//
// INVERSE = 0 (Cooley-Tukey):   a' = a + b * w   b' = a - b * w
// INVERSE = 1 (Gentleman-Sande): a' = a + b      b' = (a - b) * w
//
// LOG_LANES  log2 of the lanes
// PAIR       the bit of the lane that tells a from b
// BYPASS     bypass_i = 1 hands both through, for INVERSE = 1 and w = 1
// WORD, TILE_A, TILE_B  see montgomery_column
// w_i        words of the butterflies in order of their lanes, times R; for INVERSE = 1 one cycle behind the lanes
// Latency: toroid_pkg::montgomery_wide_latency + 1
module elastic_stage
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    parameter int PAIR = 0,
    parameter bit INVERSE = 0,
    parameter bit BYPASS = 0,
    parameter int WORD = 10,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    localparam int Lanes = 1 << LOG_LANES
) (
    input  logic                          clk_i,
    input  logic [  WIDTH-1:0]            q_i,
    // Without BYPASS it is not used.
    // verilator lint_off UNUSEDSIGNAL
    input  logic                          bypass_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [  Lanes-1:0][WIDTH-1:0] lanes_i,
    input  logic [Lanes/2-1:0][WIDTH-1:0] w_i,
    output logic [  WIDTH-1:0]            q_o,
    output logic [  Lanes-1:0][WIDTH-1:0] lanes_o
);
  if (PAIR < 0 || PAIR >= LOG_LANES || BYPASS && !INVERSE) begin : g_check
    $fatal(1, "elastic_stage: 0 <= PAIR < LOG_LANES is needed, and INVERSE for BYPASS");
  end

  localparam int Latency = toroid_pkg::montgomery_wide_latency(WIDTH, WORD, TILE_A, TILE_B);

  logic [WIDTH-1:0] column_q, product_q, sum_q;
  logic [Lanes/2-1:0][WIDTH-1:0] factors, products;
  montgomery_column #(
      .COUNT (Lanes / 2),
      .WIDTH (WIDTH),
      .WORD  (WORD),
      .TILE_A(TILE_A),
      .TILE_B(TILE_B)
  ) i_column (
      .clk_i,
      .q_i(column_q),
      .a_i(w_i),
      .b_i(factors),
      .q_o(product_q),
      .p_o(products)
  );
  if (INVERSE) begin : g_before
    always_ff @(posedge clk_i) column_q <= q_i;
    assign sum_q = q_i;
    assign q_o   = product_q;
  end else begin : g_behind
    assign column_q = q_i;
    assign sum_q = product_q;
    always_ff @(posedge clk_i) q_o <= product_q;
  end

  for (genvar n = 0; n < Lanes / 2; n++) begin : g_butterfly
    localparam int A = n >> PAIR << (PAIR + 1) | n & ((1 << PAIR) - 1);
    localparam int B = A | 1 << PAIR;
    logic [WIDTH-1:0] a, b, minuend, sum, difference;
    mod_add #(
        .WIDTH(WIDTH)
    ) i_sum (
        .q_i(sum_q),
        .a_i(a),
        .b_i(b),
        .s_o(sum)
    );
    mod_sub #(
        .WIDTH(WIDTH)
    ) i_difference (
        .q_i(sum_q),
        .a_i(minuend),
        .b_i(b),
        .d_o(difference)
    );
    if (INVERSE) begin : g_gs
      logic bypass;
      assign bypass = BYPASS && bypass_i;
      assign a = lanes_i[A];
      assign b = lanes_i[B] & {WIDTH{!bypass}};
      assign minuend = bypass ? lanes_i[B] : a;
      always_ff @(posedge clk_i) factors[n] <= difference;
      delay #(
          .WIDTH (WIDTH),
          .CYCLES(Latency + 1)
      ) i_delay (
          .clk_i,
          .d_i(sum),
          .q_o(lanes_o[A])
      );
      assign lanes_o[B] = products[n];
    end else begin : g_ct
      assign factors[n] = lanes_i[B];
      assign b = products[n];
      assign minuend = a;
      delay #(
          .WIDTH (WIDTH),
          .CYCLES(Latency)
      ) i_delay (
          .clk_i,
          .d_i(lanes_i[A]),
          .q_o(a)
      );
      always_ff @(posedge clk_i) begin
        lanes_o[A] <= sum;
        lanes_o[B] <= difference;
      end
    end
  end
endmodule
