// SPDX-License-Identifier: Apache-2.0 OR MIT
// barrett_mul: p = a * b modulo Q, one product a cycle, for any Q.
//
// With 2^(n - 1) < Q < 2^n, mu = floor(2^(2 n) / Q), x = a * b and e = floor(floor(x / 2^(n - 1)) * mu / 2^(n + 1)),
// x - e * Q is in [0, 3 Q): only n + 2 bits of it are computed.
//
// WIDTH           width of a word, 2 to 64
// Q               modulus, 2 < Q < 2^WIDTH, not a power of two
// TILE_A, TILE_B  tiles of the multipliers (see mul_tiles)
// SHORT           fewer, longer stages
// Latency: toroid_pkg::barrett_mul_latency
// Source: P. Barrett, Implementing the Rivest Shamir and Adleman public key encryption algorithm ..., 1986;
// Handbook of Applied Cryptography, algorithm 14.42 with b = 2
module barrett_mul #(
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
    $fatal(1, "barrett_mul: WIDTH must be 2 to 64");
  end
  if (Q < 3 || (Q & (Q - 1'b1)) == 0) begin : g_check_q
    $fatal(1, "barrett_mul: Q must be above 2 and not a power of two");
  end

  localparam int N = $clog2(Q);
  localparam logic [129:0] Mu = (130'd1 << (2 * N)) / 130'(Q);
  localparam int QuotientLatency = toroid_pkg::mul_latency(N + 1, N + 1, TILE_A, TILE_B, SHORT);

  logic [2*N-1:0] x;
  mul_tiles #(
      .WIDTH_A(N),
      .WIDTH_B(N),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .SHORT  (SHORT)
  ) i_product (
      .clk_i,
      .a_i(a_i[N-1:0]),
      .b_i(b_i[N-1:0]),
      .p_o(x)
  );

  // The upper half of the first of these products is used, and the lower half of the second.
  // verilator lint_off UNUSEDSIGNAL
  logic [2*N+1:0] estimate, multiple;
  // verilator lint_on UNUSEDSIGNAL
  mul_tiles #(
      .WIDTH_A(N + 1),
      .WIDTH_B(N + 1),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .SHORT  (SHORT)
  ) i_estimate (
      .clk_i,
      .a_i(Mu[N:0]),
      .b_i(x[2*N-1:N-1]),
      .p_o(estimate)
  );
  mul_tiles #(
      .WIDTH_A(N + 1),
      .WIDTH_B(N + 1),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .SHORT  (SHORT)
  ) i_multiple (
      .clk_i,
      .a_i((N + 1)'(Q)),
      .b_i(estimate[2*N+1:N+1]),
      .p_o(multiple)
  );

  logic [N+1:0] x_late, rest_q;
  logic [N-1:0] p_d;
  delay #(
      .WIDTH (N + 2),
      .CYCLES(2 * QuotientLatency)
  ) i_delay (
      .clk_i,
      .d_i((N + 2)'(x)),
      .q_o(x_late)
  );
  mod_canonical #(
      .WIDTH    (N),
      .WIDTH_X  (N + 2),
      .MULTIPLES(2)
  ) i_canonical (
      .q_i(Q[N-1:0]),
      .x_i(rest_q),
      .r_o(p_d)
  );
  always_ff @(posedge clk_i) begin
    rest_q <= x_late - multiple[N+1:0];
    p_o <= WIDTH'(p_d);
  end
endmodule
