// SPDX-License-Identifier: Apache-2.0 OR MIT
// A signed digit times one of COUNT constants modulo p = 2^64 - 2^32 + 1, from tables of slices and without DSP slices.
//
// Slices of 5 bits, the top one signed, choose words of tables; with one more bit for the choice of the constant, a table is one LUT of 6
// inputs a bit. Table words are centred, in [-(p - 1)/2, (p - 1)/2], so the sum of five of them stays within what one reduction takes.
//
// DIGIT_BITS: 1 to 25. COUNT: 1 or more constants; CONSTANTS: constant number n in bits 64 n and up, below p.
// Latency: 3 cycles.
module digit_twist #(
    parameter int DIGIT_BITS = 24,
    parameter int COUNT = 2,
    parameter logic [COUNT*64-1:0] CONSTANTS = '1,
    localparam int CHOICE_BITS = toroid_pkg::index_width(COUNT)
) (
    input logic clk_i,
    input logic [CHOICE_BITS-1:0] choice_i,
    input logic [DIGIT_BITS-1:0] digit_i,
    output logic [63:0] word_o
);
  localparam int SLICE = 5;
  localparam int SLICES = toroid_pkg::ceil_div(DIGIT_BITS, SLICE);
  localparam logic [63:0] P = toroid_pkg::GOLDILOCKS;

  if (DIGIT_BITS < 1 || DIGIT_BITS > 5 * SLICE || COUNT < 1) begin : g_check
    $fatal(1, "digit_twist: DIGIT_BITS must be 1 to 25 and COUNT positive");
  end

  logic signed [63:0] part_q[SLICES];
  logic signed [66:0] sum_d, sum_q;
  logic [63:0] word_d;

  typedef logic [COUNT-1:0][(1<<SLICE)-1:0][63:0] table_t;

  // The representative nearest to zero.
  function automatic logic [63:0] centred(logic [64:0] word);
    return word > 65'(P >> 1) ? 64'(word - 65'(P)) : word[63:0];
  endfunction

  // Words of a slice of `bits` bits, the upper half of them negative in the top slice: by doubling and adding modulo p.
  function automatic table_t words(int slice, int bits, bit is_top);
    for (int choice = 0; choice < COUNT; choice++) begin
      automatic logic [64:0] unit = 65'(CONSTANTS[choice*64+:64]);
      automatic logic [64:0] sum = '0;
      for (int value = 0; value < 1 << SLICE; value++) words[choice][value] = '0;
      for (int step = 0; step < slice * SLICE; step++) begin
        unit = unit << 1;
        if (unit >= 65'(P)) unit = unit - 65'(P);
      end
      for (int value = 0; value < 1 << bits; value++) begin
        words[choice][value] = centred(sum);
        sum = sum + unit;
        if (sum >= 65'(P)) sum = sum - 65'(P);
      end
      sum = '0;
      for (int value = (1 << bits) - 1; is_top && value >= 1 << (bits - 1); value--) begin
        sum = sum < unit ? sum + 65'(P) - unit : sum - unit;
        words[choice][value] = centred(sum);
      end
    end
  endfunction

  for (genvar slice = 0; slice < SLICES; slice++) begin : gen_slice
    localparam bit IS_TOP = slice == SLICES - 1;
    localparam int BITS = IS_TOP ? DIGIT_BITS - slice * SLICE : SLICE;
    localparam table_t WORDS = words(slice, BITS, IS_TOP);
    always_ff @(posedge clk_i) part_q[slice] <= WORDS[choice_i][SLICE'(digit_i[slice*SLICE+:BITS])];
  end

  always_comb begin
    sum_d = '0;
    for (int slice = 0; slice < SLICES; slice++) sum_d += 67'(part_q[slice]);
  end

  goldilocks_canonical #(
      .LOW (-3),
      .HIGH(3)
  ) i_canonical (
      .clk_i,
      .t_i(sum_q),
      .r_o(word_d)
  );

  always_ff @(posedge clk_i) begin
    sum_q  <= sum_d;
    word_o <= word_d;
  end
endmodule
