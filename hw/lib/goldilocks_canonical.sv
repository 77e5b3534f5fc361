// goldilocks_canonical: t modulo q = 2^64 - 2^32 + 1 for a few multiples of q; combinational.
//
// t = c * 2^64 + v, so t is congruent to v + c * (2^32 - 1), and at most one q more or less is needed to reach [0, q):
// r = v + k * (2^32 - 1) with k = c or its neighbour away from 0. One adder of 64 bits; the choice of k looks at v only
// where the bits above 2^34 are all ones (c >= 0) or all zeros (c < 0).
//
// WIDTH  66 to 68: the width of t, in two's complement; -4 * 2^64 <= t < 4 * 2^64
// Latency: 0
module goldilocks_canonical #(
    parameter int WIDTH = 66
) (
    input  logic signed [WIDTH-1:0] t_i,
    output logic        [     63:0] r_o
);
  if (WIDTH < 66 || WIDTH > 68) begin : g_check
    $fatal(1, "goldilocks_canonical: WIDTH must be 66, 67 or 68");
  end

  // n = c + 1 for c >= 0, -c for c < 0; y counts the distance of v to the end of its range.
  logic signed [3:0] c, k, low, high;
  logic [2:0] n;
  logic [63:0] y;
  logic over;
  assign c = 4'($signed(t_i[WIDTH-1:64]));
  assign n = c[3] ? 3'(-c) : 3'(c) + 3'd1;
  assign y = t_i[63:0] ^ {64{c[3]}};
  // over: y >= 2^64 - n * (2^32 - 1), written without carries
  assign over = (&y[63:34]) && ({1'b0, y[33:32]} > 3'd4 - n || ({1'b0, y[33:32]} == 3'd4 - n && {|y[31:2], y[1:0]} >= n));
  always_comb begin
    if (c[3]) k = over ? c - 4'sd1 : c;
    else k = over ? c + 4'sd1 : c;
  end
  // k * (2^32 - 1) in two halves
  assign low  = -k;
  assign high = k > 0 ? k - 4'sd1 : k;
  assign r_o  = t_i[63:0] + {32'(high), 32'(low)};
endmodule
