// SPDX-License-Identifier: Apache-2.0 OR MIT
// solinas_reduce: r = x modulo q = 2^I - 2^J + 1, for x <= (q - 1)^2.
//
// As many steps of solinas_fold as bring x below 2^(I + 1) (at most 2 q, or 3 q where J = I - 1), then the last
// subtractions.
//
// I, J        exponents, 0 < J < I, 3 <= I <= 64
// REGISTERED  a register after each step and after the last subtractions; otherwise only the latter
// Latency: solinas_folds + 1 with registers, else 1
module solinas_reduce #(
    parameter int I = 28,
    parameter int J = 16,
    parameter bit REGISTERED = 1
) (
    input  logic           clk_i,
    input  logic [2*I-1:0] x_i,
    output logic [  I-1:0] r_o
);
  if (J < 1 || J >= I || I < 3 || I > 64) begin : g_check
    $fatal(1, "solinas_reduce: 0 < J < I and 3 <= I <= 64 are needed");
  end else begin : g_reduce
    localparam int Folds = toroid_pkg::solinas_folds(I, J);
    localparam logic [63:0] Q = toroid_pkg::solinas_modulus(I, J);
    for (genvar n = 0; n <= Folds; n++) begin : g_fold
      localparam int Width = toroid_pkg::solinas_width(I, J, n);
      logic [Width-1:0] x;
      if (n == 0) begin : g_first
        assign x = x_i;
      end else begin : g_step
        logic [Width-1:0] x_d;
        solinas_fold #(
            .I      (I),
            .J      (J),
            .WIDTH_X(toroid_pkg::solinas_width(I, J, n - 1)),
            .WIDTH_R(Width)
        ) i_fold (
            .x_i(g_fold[n-1].x),
            .r_o(x_d)
        );
        delay #(
            .WIDTH (Width),
            .CYCLES(int'(REGISTERED))
        ) i_delay (
            .clk_i,
            .d_i(x_d),
            .q_o(x)
        );
      end
    end

    logic [I-1:0] r_d;
    mod_canonical #(
        .WIDTH    (I),
        .WIDTH_X  (toroid_pkg::solinas_width(I, J, Folds)),
        .MULTIPLES(int'(toroid_pkg::solinas_bound(I, J, Folds) / 128'(Q)))
    ) i_canonical (
        .q_i(Q[I-1:0]),
        .x_i(g_fold[Folds].x),
        .r_o(r_d)
    );
    always_ff @(posedge clk_i) r_o <= r_d;
  end
endmodule
