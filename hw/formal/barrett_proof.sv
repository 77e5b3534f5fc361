// SPDX-License-Identifier: Apache-2.0 OR MIT
// barrett_mul: the error of its estimate stays below 3 q, and the last subtractions reduce every x < 3 q.
//
// With e the estimate and f the fraction that it drops, (x - e * q) * 2^(n + 1) =
// x0 * 2^(n + 1) + x1 * (2^(2 n) - mu * q) + f * q, where x = x1 * 2^(n - 1) + x0 and f < 2^(n + 1): the largest value of each
// term is a constant, and their sum is compared with 3 q * 2^(n + 1). Where FULL is set the estimate itself is computed too,
// for every product; a solver can do that for small q only.
//
// MULTIPLES_USED  what mod_canonical is given; other than 2 in self-tests only
module barrett_proof #(
    parameter logic [63:0] Q = toroid_pkg::GOLDILOCKS,
    parameter bit FULL = 0,
    parameter int MULTIPLES_USED = 2
) (
    input logic [127:0] x_i
);
  localparam int N = $clog2(Q);
  localparam logic [255:0] One = 256'd1;
  localparam logic [255:0] Mu = (One << (2 * N)) / 256'(Q);
  localparam logic [255:0] Rest = (One << (2 * N)) - Mu * 256'(Q);
  localparam logic [255:0] Error = (((One << (N - 1)) - One) << (N + 1)) + ((One << (N + 1)) - One) * Rest
      + ((One << (N + 1)) - One) * 256'(Q);

  logic [N+1:0] rest;
  logic [N-1:0] r;
  if (FULL) begin : g_full
    logic [N:0] x1, estimate;
    logic [2*N+1:0] product;
    assign x1 = x_i[2*N-1:N-1];
    assign product = (2 * N + 2)'(x1) * Mu[2*N+1:0];
    assign estimate = product[2*N+1:N+1];
    assign rest = x_i[N+1:0] - (N + 2)'(estimate) * (N + 2)'(Q);
    always_comb assume (128'(x_i[2*N-1:0]) <= 128'(Q - 64'd1) * 128'(Q - 64'd1));
    always_comb begin
      assert (64'(rest) < 3 * Q);
      assert (128'(x_i[2*N-1:0]) == 128'(estimate) * 128'(Q) + 128'(rest));
    end
  end else begin : g_rest
    assign rest = x_i[N+1:0];
    always_comb assume (68'(rest) < 3 * 68'(Q));
  end
  mod_canonical #(
      .WIDTH    (N),
      .WIDTH_X  (N + 2),
      .MULTIPLES(MULTIPLES_USED)
  ) i_canonical (
      .q_i(Q[N-1:0]),
      .x_i(rest),
      .r_o(r)
  );
  logic [67:0] low, high;
  assign low  = 68'(r);
  assign high = 68'(rest);
  always_comb begin
    assert (Error < (3 * 256'(Q)) << (N + 1));
    assert (low < 68'(Q));
    assert (high == low || high == low + 68'(Q) || high == low + 2 * 68'(Q));
  end
endmodule
