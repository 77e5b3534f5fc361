// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_transform: negacyclic NTTs and INTTs of N = 2^LOG_N words modulo q = 2^64 - 2^32 + 1, P = 2^LOG_LANES words a cycle.
//
// N = R * R. A transform is R cyclic DFTs of R points by shifts (stream_dft), one product a word, a transposition, and R more
// such DFTs. What is left, factors psi^(R i1), is the caller's, who has small words (digits) or idle multipliers there.
//
// Forward, lane x of beat c * R / P + h takes a[i] * psi^(R i1), i = i1 * R + c, i1 = h * P + x, and lane x of beat b gives the
// value at position b * P + x: that at psi^(2 rev(b * P + x) + 1). Inverse, the values enter so, and lane x of beat c * R / P
// + h gives N * a[i] * psi^(-R i1): both directions take the same factors of the caller.
//
// The N / P beats of a frame are in consecutive cycles, first_i with the first of them; inverse_i counts with first_i. Frames
// of any direction may follow each other after any number of cycles, also none. Words of any 64 bits enter, canonical ones
// leave.
//
// LOG_N           even, 4 to 14
// LOG_LANES       2 to LOG_N / 2, and at least LOG_N / 4
// TWIDDLE_FILE    the factors between both DFTs, for $readmemh, by toroid_cores::stream_transform::twiddle_rom
// TILE_A, TILE_B  see mul_tiles
// KARATSUBA       see goldilocks_mul
// Latency: stream_transform_pkg::transform_latency
module stream_transform
  import stream_transform_pkg::*;
#(
    parameter int LOG_N = 14,
    parameter int LOG_LANES = 6,
    parameter string TWIDDLE_FILE = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter int KARATSUBA = 8,
    localparam int LANES = 1 << LOG_LANES
) (
    input logic clk_i,
    input logic rst_ni,
    input logic first_i,
    input logic inverse_i,
    input logic [LANES*64-1:0] data_i,
    output logic valid_o,
    output logic first_o,
    output logic inverse_o,
    output logic [LANES*64-1:0] data_o
);
  localparam int LOG_R = LOG_N / 2;
  localparam int COUNT_BITS = LOG_N - LOG_LANES;
  localparam int BEAT_BITS = LOG_R > LOG_LANES ? LOG_R - LOG_LANES : 1;
  localparam int BEAT_MASK = (1 << (LOG_R - LOG_LANES)) - 1;
  localparam int BEATS = 1 << (LOG_R - LOG_LANES);
  localparam int WIDTH = stage_width(LOG_R);
  localparam widths_t WIDTHS = lane_widths(LOG_R, LOG_LANES, LOG_R);
  localparam offsets_t OFFSETS = value_offsets(LOG_R, LOG_LANES);
  localparam int REVERSAL = reversal_latency(LOG_R, LOG_LANES);
  localparam int DFT = stage_start(LOG_R, LOG_LANES, LOG_R);
  localparam int PRODUCTS = product_start(LOG_N, LOG_LANES);
  localparam int TRANSPOSE = transpose_start(LOG_N, LOG_LANES, TILE_A, TILE_B, KARATSUBA);

  if (!is_legal(LOG_N, LOG_LANES)) begin : g_check
    $fatal(
        1, "stream_transform: LOG_N must be even, 4 to 14, and LOG_LANES at least 2 and LOG_N / 4, at most LOG_N / 2"
    );
  end

  typedef logic [COUNT_BITS-1:0] count_t;

  // Of a lane in each beat of a block.
  function automatic logic [BEATS*64-1:0] offsets(int x);
    for (int beat = 0; beat < BEATS; beat++) offsets[64*beat+:64] = OFFSETS[beat*LANES+x];
  endfunction

  function automatic logic [BEAT_BITS-1:0] beat_of(count_t count);
    return BEAT_BITS'(count & count_t'(BEAT_MASK));
  endfunction

  // The beats of frames, counted as they enter; 0 between them.
  logic active_q, inverse_q, valid, inverse;
  count_t count_q, count;
  assign valid   = first_i || active_q;
  assign count   = first_i ? '0 : count_q;
  assign inverse = first_i ? inverse_i : inverse_q;
  always_ff @(posedge clk_i) begin
    inverse_q <= inverse;
    if (valid) begin
      active_q <= count != '1;
      count_q  <= count + 1'b1;
    end
    if (!rst_ni) begin
      active_q <= 1'b0;
      count_q  <= '0;
    end
  end

  logic [63:0] entering[LANES], reversed[LANES], reduced[LANES], product[LANES], transposed[LANES], result[LANES];
  logic [63:0] leaving[LANES];
  logic [WIDTH-1:0] first_value[LANES], second_value[LANES];
  logic [BEAT_BITS-1:0] first_beat, second_beat;
  for (genvar x = 0; x < LANES; x++) begin : g_ends
    assign entering[x] = data_i[64*x+:64];
    assign data_o[64*x+:64] = leaving[x];
  end

  // The first half.
  count_t dft_count, rom_count, transpose_count;
  logic dft_inverse, rom_inverse, transpose_inverse, transpose_valid;
  stream_reversal #(
      .LOG_R    (LOG_R),
      .LOG_LANES(LOG_LANES)
  ) i_entry (
      .clk_i,
      .beat_i(beat_of(count)),
      .reverse_i(inverse),
      .lane_i(entering),
      .lane_o(reversed)
  );
  delay #(
      .WIDTH (COUNT_BITS + 1),
      .CYCLES(REVERSAL)
  ) i_dft_count (
      .clk_i,
      .d_i({inverse, count}),
      .q_o({dft_inverse, dft_count})
  );
  stream_dft #(
      .LOG_R    (LOG_R),
      .LOG_LANES(LOG_LANES)
  ) i_first_dft (
      .clk_i,
      .beat_i(beat_of(dft_count)),
      .lane_i(reversed),
      .beat_o(first_beat),
      .lane_o(first_value)
  );

  // The table is read ahead.
  logic [LANES*64-1:0] twiddles;
  delay #(
      .WIDTH (COUNT_BITS + 1),
      .CYCLES(PRODUCTS - toroid_pkg::ram_latency(1'b1) - REVERSAL)
  ) i_rom_count (
      .clk_i,
      .d_i({dft_inverse, dft_count}),
      .q_o({rom_inverse, rom_count})
  );
  rom #(
      .WIDTH(LANES * 64),
      .DEPTH(2 << COUNT_BITS),
      .FILE (TWIDDLE_FILE)
  ) i_twiddles (
      .clk_i,
      .addr_i({rom_inverse, rom_count}),
      .data_o(twiddles)
  );
  for (genvar x = 0; x < LANES; x++) begin : g_product
    stream_reduce #(
        .WIDTH  (int'(WIDTHS[x])),
        .COUNT  (BEATS),
        .OFFSETS(offsets(x))
    ) i_reduce (
        .clk_i,
        .d_i(first_value[x][WIDTHS[x]-1:0]),
        .choice_i(first_beat),
        .r_o(reduced[x])
    );
    goldilocks_mul #(
        .TILE_A   (TILE_A),
        .TILE_B   (TILE_B),
        .KARATSUBA(KARATSUBA)
    ) i_mul (
        .clk_i,
        .a_i(twiddles[64*x+:64]),
        .b_i(reduced[x]),
        .p_o(product[x])
    );
  end

  valid_delay #(
      .CYCLES(TRANSPOSE)
  ) i_transpose_valid (
      .clk_i,
      .rst_ni,
      .valid_i(valid),
      .valid_o(transpose_valid)
  );
  delay #(
      .WIDTH (COUNT_BITS + 1),
      .CYCLES(TRANSPOSE - PRODUCTS + toroid_pkg::ram_latency(1'b1))
  ) i_transpose_count (
      .clk_i,
      .d_i({rom_inverse, rom_count}),
      .q_o({transpose_inverse, transpose_count})
  );

  // The second half.
  logic back_valid, back_inverse, end_inverse, result_valid, result_first;
  count_t back_count, end_count;
  stream_transpose #(
      .LOG_R    (LOG_R),
      .LOG_LANES(LOG_LANES)
  ) i_transpose (
      .clk_i,
      .rst_ni,
      .valid_i  (transpose_valid),
      .inverse_i(transpose_inverse),
      .count_i  (transpose_count),
      .lane_i   (product),
      .valid_o  (back_valid),
      .inverse_o(back_inverse),
      .count_o  (back_count),
      .lane_o   (transposed)
  );
  stream_dft #(
      .LOG_R    (LOG_R),
      .LOG_LANES(LOG_LANES)
  ) i_second_dft (
      .clk_i,
      .beat_i(beat_of(back_count)),
      .lane_i(transposed),
      .beat_o(second_beat),
      .lane_o(second_value)
  );
  for (genvar x = 0; x < LANES; x++) begin : g_result
    stream_reduce #(
        .WIDTH  (int'(WIDTHS[x])),
        .COUNT  (BEATS),
        .OFFSETS(offsets(x))
    ) i_reduce (
        .clk_i,
        .d_i(second_value[x][WIDTHS[x]-1:0]),
        .choice_i(second_beat),
        .r_o(result[x])
    );
  end
  delay #(
      .WIDTH (COUNT_BITS + 1),
      .CYCLES(DFT + REDUCE_LATENCY)
  ) i_end_count (
      .clk_i,
      .d_i({back_inverse, back_count}),
      .q_o({end_inverse, end_count})
  );
  stream_reversal #(
      .LOG_R    (LOG_R),
      .LOG_LANES(LOG_LANES)
  ) i_exit (
      .clk_i,
      .beat_i(beat_of(end_count)),
      .reverse_i(end_inverse),
      .lane_i(result),
      .lane_o(leaving)
  );
  valid_delay #(
      .CYCLES(DFT + REDUCE_LATENCY + REVERSAL)
  ) i_valid (
      .clk_i,
      .rst_ni,
      .valid_i(back_valid),
      .valid_o(result_valid)
  );
  delay #(
      .WIDTH (2),
      .CYCLES(REVERSAL)
  ) i_first (
      .clk_i,
      .d_i({end_count == '0, end_inverse}),
      .q_o({result_first, inverse_o})
  );
  assign valid_o = result_valid;
  assign first_o = result_valid && result_first;
endmodule
