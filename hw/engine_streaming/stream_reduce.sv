// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_reduce: r = d - OFFSETS[choice_i] modulo q = 2^64 - 2^32 + 1, canonical.
//
// d = h * 2^64 + l = h * (2^32 - 1) + l. A table has h * (2^32 - 1) less the offset, so that one sum is left, after which goldilocks_canonical
// ends. With up to 6 bits of h and of the choice, the table is one LUT a bit.
//
// WIDTH       bits of d, 65 to 75
// COUNT       1 or more offsets; OFFSETS: number n in bits 64 n and up, below q
// REGISTERED  registers after the table, the sum and the choice of the last
// Latency: stream_transform_pkg::REDUCE_LATENCY with registers, else 0
module stream_reduce #(
    parameter int WIDTH = 72,
    parameter int COUNT = 1,
    parameter logic [COUNT*64-1:0] OFFSETS = '0,
    parameter bit REGISTERED = 1,
    localparam int CHOICE_BITS = toroid_pkg::index_width(COUNT)
) (
    input  logic                   clk_i,
    input  logic [      WIDTH-1:0] d_i,
    input  logic [CHOICE_BITS-1:0] choice_i,
    output logic [           63:0] r_o
);
  if (WIDTH < 65 || WIDTH > 75 || COUNT < 1) begin : g_check
    $fatal(1, "stream_reduce: WIDTH must be 65 to 75 and COUNT positive");
  end

  localparam int High = WIDTH - 64;
  typedef logic [COUNT-1:0][(1<<High)-1:0][63:0] table_t;
  function automatic table_t terms();
    for (int choice = 0; choice < COUNT; choice++) begin
      for (int high = 0; high < 1 << High; high++) begin
        automatic
        logic [65:0]
        term = 66'(high) * 66'hFFFF_FFFF + 66'(toroid_pkg::GOLDILOCKS) - 66'(OFFSETS[choice*64+:64]);
        terms[choice][high] = 64'(term % 66'(toroid_pkg::GOLDILOCKS));
      end
    end
  endfunction
  localparam table_t Terms = terms();

  logic [63:0] low_q, term_q, r;
  logic [64:0] t_q;
  delay #(
      .WIDTH (128),
      .CYCLES(int'(REGISTERED))
  ) i_term (
      .clk_i,
      .d_i({d_i[63:0], Terms[choice_i][d_i[WIDTH-1:64]]}),
      .q_o({low_q, term_q})
  );
  delay #(
      .WIDTH (65),
      .CYCLES(int'(REGISTERED))
  ) i_t (
      .clk_i,
      .d_i(65'(low_q) + 65'(term_q)),
      .q_o(t_q)
  );
  goldilocks_canonical #(
      .LOW       (0),
      .HIGH      (2),
      .REGISTERED(REGISTERED)
  ) i_canonical (
      .clk_i,
      .t_i(67'(t_q)),
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
