// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_reduce: r = d modulo q = 2^64 - 2^32 + 1, canonical.
//
// d = h * 2^64 + l = h * (2^32 - 1) + l: two sums, after which goldilocks_canonical ends.
//
// WIDTH       bits of d, signed, 66 to 80
// REGISTERED  registers after each sum and after the choice of the last
// Latency: stream_transform_pkg::REDUCE_LATENCY with registers, else 0
module stream_reduce #(
    parameter int WIDTH = 74,
    parameter bit REGISTERED = 1
) (
    input  logic                    clk_i,
    input  logic signed [WIDTH-1:0] d_i,
    output logic        [     63:0] r_o
);
  if (WIDTH < 66 || WIDTH > 80) begin : g_check
    $fatal(1, "stream_reduce: WIDTH must be 66 to 80");
  end

  localparam int High = WIDTH - 64;
  logic signed [34:0] upper;
  logic signed [High-1:0] high, high_q;
  logic [31:0] low_q;
  logic signed [34:0] upper_q;
  logic signed [66:0] t_q;
  logic [63:0] r;
  assign high  = d_i[WIDTH-1:64];
  assign upper = $signed({3'b0, d_i[63:32]}) + 35'(high);
  delay #(
      .WIDTH (67 + High),
      .CYCLES(int'(REGISTERED))
  ) i_upper (
      .clk_i,
      .d_i({upper, d_i[31:0], high}),
      .q_o({upper_q, low_q, high_q})
  );
  delay #(
      .WIDTH (67),
      .CYCLES(int'(REGISTERED))
  ) i_t (
      .clk_i,
      .d_i($signed({upper_q, low_q}) - 67'(high_q)),
      .q_o(t_q)
  );
  goldilocks_canonical #(
      .LOW       (-1),
      .HIGH      (2),
      .REGISTERED(REGISTERED)
  ) i_canonical (
      .clk_i,
      .t_i(t_q),
      .r_o(r)
  );
  delay #(
      .WIDTH (64),
      .CYCLES(int'(REGISTERED))
  ) i_r (
      .clk_i,
      .d_i(r),
      .q_o(r_o)
  );
endmodule
