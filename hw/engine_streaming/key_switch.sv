// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sample extraction and key switch: minus the sum, over the mask's words and the gadget's levels, of digit times the key's sample, modulo 2^32.
//
// The mask comes in beats of LANES words, beat after beat, and coefficient 0 is the first word; the extracted sample has the word at coefficient
// 0 as it is and the others negated. Two words are at work at a time: a beat of the key holds a row of 2·LANES words of 32 bits for the first,
// then one for the second. Rows of a digit come one after the other, then the levels, pairs of words of a beat, beats.
//
// A digit's rows take 4 cycles at least, which is what a pair of words takes to become digits; a sum comes back in 3.
//
// BEAT_BITS: log2 of the mask's beats. LOG_LANES: 2 to 8. DIGIT_BITS: 1 to 31, bits of the largest digit. ROWS: rows of a sample, at most.
// key_take_i: as in `memory_reader`, with words three cycles later. sum_row_i: row of the result, whose words are there two cycles later.
module key_switch
  import engine_pkg::*;
#(
    parameter int BEAT_BITS = 5,
    parameter int LOG_LANES = 3,
    parameter int DIGIT_BITS = 6,
    parameter int ROWS = 128,
    localparam int LANES = 1 << LOG_LANES,
    localparam int WORDS = 2 * LANES,
    localparam int ROW_BITS = toroid_pkg::index_width(ROWS)
) (
    input logic clk_i,
    input logic rst_ni,
    input logic goldilocks_i,
    input gadget_t gadget_i,
    input logic [7:0] levels_i,
    input logic [15:0] rows_i,
    input logic start_i,
    output logic idle_o,
    // The mask: words of beat_o two cycles later.
    output logic [BEAT_BITS-1:0] beat_o,
    input logic [63:0] word_i[LANES],
    input logic [63:0] body_i,  // the body's first word, with beat 0
    output logic [63:0] body_o,  // kept
    input logic key_available_i,
    output logic key_take_o,
    input logic [31:0] key_i[2*WORDS],
    input logic [ROW_BITS-1:0] sum_row_i,
    output logic [31:0] sum_o[WORDS]
);
  localparam logic [63:0] P = toroid_pkg::GOLDILOCKS;
  localparam int PERIOD = 4;
  localparam int TAKE = 3;
  localparam int FIRST = 3;  // cycles until the first words are there
  localparam int PAIR_BITS = LOG_LANES - 1;
  localparam int PRODUCT = 3;
  localparam int STAGES = TAKE + PRODUCT;

  if (LOG_LANES < 2 || LOG_LANES > 8 || DIGIT_BITS < 1 || DIGIT_BITS > 31 || ROWS < 1) begin : g_check
    $fatal(1, "key_switch: LOG_LANES must be 2 to 8, DIGIT_BITS 1 to 31 and ROWS positive");
  end

  // Words of the mask: those at the front become the pair of digits that comes next.
  logic [63:0] words_q[LANES], minus_q[2], torus_q[2], next_q[2], field_q[2];
  logic front_q;  // coefficient 0 is at the front
  logic [BEAT_BITS-1:0] beat_q;
  logic [PAIR_BITS-1:0] pair_q;
  logic load, shift;

  // Places in the stream of key beats: of the pair at work, the row and the level; pairs are counted at the front, one ahead.
  typedef enum logic [1:0] {
    IDLE,
    LOAD,
    FILL,
    RUN
  } state_e;
  state_e state_q;
  logic [3:0] wait_q;
  logic [15:0] row_q;
  logic [7:0] level_q;
  logic [5:0] shift_q;
  logic fresh_q;  // sums begin
  logic ends_q;  // nothing is at the front any more
  logic go, takes, last_row, last_level;

  assign takes = row_q < rows_i;
  assign go = state_q == RUN && (!takes || key_available_i);
  assign key_take_o = go && takes;
  assign last_row = row_q + 16'd1 >= rows_i && row_q >= 16'(PERIOD - 1);
  assign last_level = level_q + 8'd1 == levels_i;
  // The pair at the front goes to work.
  assign shift = (state_q == FILL && wait_q == 0) || (go && last_row && last_level);
  assign load = (state_q == LOAD && wait_q == 0) || (shift && pair_q == '1);
  assign beat_o = beat_q;

  always_ff @(posedge clk_i) begin
    if (wait_q != 0) wait_q <= wait_q - 1'b1;
    case (state_q)
      IDLE:
      if (start_i) begin
        state_q <= LOAD;
        wait_q  <= 4'(FIRST);
        beat_q  <= '0;
        pair_q  <= '0;
        ends_q  <= 1'b0;
        front_q <= 1'b1;
      end
      LOAD:
      if (wait_q == 0) begin
        state_q <= FILL;
        wait_q  <= 4'(PERIOD);
      end
      FILL:
      if (wait_q == 0) begin
        state_q <= RUN;
        row_q   <= '0;
        level_q <= '0;
        shift_q <= -gadget_i.log2_base;
        fresh_q <= 1'b1;
      end
      RUN:
      if (go) begin
        row_q <= row_q + 16'd1;
        if (last_row) begin
          row_q   <= '0;
          fresh_q <= 1'b0;
          level_q <= level_q + 8'd1;
          shift_q <= shift_q - gadget_i.log2_base;
          if (last_level) begin
            level_q <= '0;
            shift_q <= -gadget_i.log2_base;
            if (ends_q) state_q <= IDLE;
          end
        end
      end
    endcase

    if (shift) begin
      front_q <= 1'b0;
      pair_q  <= pair_q + 1'b1;
      for (int lane = 0; lane < LANES - 2; lane++) words_q[lane] <= words_q[lane+2];
      for (int half = 0; half < 2; half++) field_q[half] <= next_q[half];
      if (pair_q == '1 && beat_q == '0) ends_q <= 1'b1;
    end
    // The beat after the one that is loaded is read on.
    if (load) begin
      words_q <= word_i;
      beat_q  <= beat_q + 1'b1;
    end
    if (state_q == LOAD) body_o <= body_i;
    if (!rst_ni) state_q <= IDLE;
  end

  always_ff @(posedge clk_i)
    for (int half = 0; half < 2; half++) begin
      minus_q[half] <= (front_q && half == 0) || words_q[half] == 0 ? words_q[half] : goldilocks_i ? P - words_q[half] :
          64'(-words_q[half][31:0]);
      torus_q[half] <= goldilocks_i ? minus_q[half] + 64'(minus_q[half][63:32]) + 64'(minus_q[half][31]) : minus_q[half] << 32;
      next_q[half] <= torus_q[half] + gadget_i.offset;
    end

  // Digits, and what goes with the key's words.
  logic [31:0] half_base, bits_q[2];
  logic [DIGIT_BITS-1:0] digit_q[2], digit_here_q[2];
  logic [STAGES:0] valid_q, fresh_at_q;
  logic [ROW_BITS-1:0] row_at_q[STAGES+1];
  logic [63:0] shifted[2];
  assign half_base = (32'b1 << gadget_i.log2_base) >> 1;
  assign idle_o = state_q == IDLE && valid_q == '0;

  always_comb for (int half = 0; half < 2; half++) shifted[half] = field_q[half] >> shift_q;

  always_ff @(posedge clk_i) begin
    for (int half = 0; half < 2; half++) begin
      bits_q[half] <= shifted[half][31:0] & ((half_base << 1) - 32'd1);
      digit_q[half] <= DIGIT_BITS'(bits_q[half] - half_base);
      digit_here_q[half] <= digit_q[half];
    end
    valid_q <= {valid_q[STAGES-1:0], key_take_o};
    fresh_at_q <= {fresh_at_q[STAGES-1:0], fresh_q};
    row_at_q[0] <= ROW_BITS'(row_q);
    for (int stage = 1; stage <= STAGES; stage++) row_at_q[stage] <= row_at_q[stage-1];
    if (!rst_ni) valid_q <= '0;
  end

  // What switch_word leaves out of the products with a digit: 1 at the place of each of Booth's digits that is negative.
  function automatic logic [31:0] missing(logic [DIGIT_BITS-1:0] digit);
    missing = '0;
    for (int place = 1; place < DIGIT_BITS; place += 2) missing[place-1] = digit[place];
    if (DIGIT_BITS % 2 == 1) missing[DIGIT_BITS-1] = digit[DIGIT_BITS-1];
  endfunction

  // The same for every word. The result is minus the sum.
  logic [31:0] minus_missing_q, digits_missing;
  assign digits_missing = missing(digit_here_q[0]) + missing(digit_here_q[1]);
  always_ff @(posedge clk_i)
    if (valid_q[TAKE-1] && row_at_q[TAKE-1] == '0)
      minus_missing_q <= (fresh_at_q[TAKE-1] ? '0 : minus_missing_q) - digits_missing;

  // Sums, in a row's cycle after its products.
  for (genvar word = 0; word < WORDS; word++) begin : gen_word
    logic [31:0] words[2], sum, sum_before;
    assign words = '{key_i[word], key_i[WORDS+word]};
    switch_word #(
        .DIGIT_BITS(DIGIT_BITS)
    ) i_word (
        .clk_i,
        .key_i(words),
        .digit_i(digit_here_q),
        .fresh_i(fresh_at_q[TAKE+PRODUCT-1]),
        .before_i(sum_before),
        .sum_o(sum)
    );
    ram_sdp #(
        .WIDTH(32),
        .DEPTH(ROWS),
        .OUTPUT_REGISTER(0)
    ) i_sums (
        .clk_i,
        .we_i(valid_q[TAKE+PRODUCT]),
        .waddr_i(row_at_q[TAKE+PRODUCT]),
        .wdata_i(sum),
        .raddr_i(idle_o ? sum_row_i : row_at_q[TAKE+PRODUCT-2]),
        .rdata_o(sum_before)
    );
    always_ff @(posedge clk_i) sum_o[word] <= minus_missing_q - sum_before;
  end
endmodule
