// SPDX-License-Identifier: Apache-2.0 OR MIT
// rader_streams: in beat r of a transform, ring register b is (COLUMNS r + b) modulo WORDS, of what enters and of what
// leaves. With its registers: whatever they hold, this is so behind a reset, and remains so behind a cycle.
//
// COLUMNS_USED  another COLUMNS in self-tests only
module rader_streams_proof #(
    parameter int COLUMNS = 257,
    parameter int WORDS = 85,
    parameter int COLUMNS_USED = COLUMNS,
    localparam int Word = toroid_pkg::index_width(WORDS)
) (
    input logic clk_i,
    input logic rst_ni,
    input logic in_tvalid_i,
    input logic in_tuser_i,
    input logic finished_i,
    input logic finished_set_i,
    input logic reads_soon_i,
    input logic writes_soon_i,
    input logic leave_i
);
  function automatic logic [WORDS-1:0][Word-1:0] first_addresses();
    logic [WORDS-1:0][Word-1:0] addresses;
    for (int r = 0; r < WORDS; r++) addresses[r] = Word'(COLUMNS * r % WORDS);
    return addresses;
  endfunction
  localparam logic [WORDS-1:0][Word-1:0] First = first_addresses();

  // Of beats that enter, and that leave.
  logic [1:0] moves;
  logic [1:0][WORDS-1:0][Word-1:0] rings;
  logic unload_last, unused_ready, unused_load_set, unused_unload_set, unused_inverse;
  logic [1:0] unused_loaded, unused_directions;
  rader_streams #(
      .COLUMNS(COLUMNS_USED),
      .WORDS  (WORDS)
  ) i_streams (
      .clk_i,
      .rst_ni,
      .in_tvalid_i,
      .in_tready_o     (unused_ready),
      .in_tuser_i,
      .loaded_o        (unused_loaded),
      .inverse_o       (unused_directions),
      .finished_i,
      .finished_set_i,
      .reads_soon_i,
      .writes_soon_i,
      .take_o          (moves[0]),
      .load_set_o      (unused_load_set),
      .load_ring_o     (rings[0]),
      .unload_o        (moves[1]),
      .unload_set_o    (unused_unload_set),
      .unload_ring_o   (rings[1]),
      .unload_last_o   (unload_last),
      .unload_inverse_o(unused_inverse),
      .leave_i
  );

  for (genvar n = 0; n < 2; n++) begin : g_ring
    logic [ Word-1:0] beat_q;
    logic [WORDS-1:0] right;
    logic counts, holds, held_q;
    int next;
    for (genvar b = 0; b < WORDS; b++) begin : g_register
      logic [Word:0] sum;
      assign sum = (Word + 1)'(First[beat_q]) + (Word + 1)'(b);
      assign right[b] = (Word + 1)'(rings[n][b]) == (sum < (Word + 1)'(WORDS) ? sum : sum - (Word + 1)'(WORDS));
    end
    // The unit's own number of the beat; of a beat that leaves, it is that of the next one.
    if (n == 0) begin : g_load
      assign counts = int'(i_streams.load_q) == int'(beat_q);
    end else begin : g_unload
      assign next = int'(beat_q) == WORDS - 1 ? 0 : int'(beat_q) + 1;
      assign counts = moves[n] ? int'(i_streams.unload_q) == next && unload_last == (next == 0) :
          int'(i_streams.unload_q) == int'(beat_q);
    end
    assign holds = &right && int'(beat_q) < WORDS && counts;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) beat_q <= '0;
      else if (moves[n]) beat_q <= int'(beat_q) == WORDS - 1 ? '0 : beat_q + 1'b1;
      held_q <= !rst_ni || holds;
    end
    always_comb if (held_q) assert (holds);
  end
endmodule
