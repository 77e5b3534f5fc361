// SPDX-License-Identifier: Apache-2.0 OR MIT
// Blind rotation as a stream: steps ACC + (X^a - 1)·ACC x key row by row, with 2^LOG_LANES words a cycle through one transform.
//
// A step takes a frame of N/P beats for each row of the key: the accumulator is read straight and turned, the difference becomes a digit, the
// digit is multiplied by its lane's root (`digit_twist`) and transformed, and both of its products with the key are added to two sums. The last
// row's sum of column 0 goes straight back into the transform, that of column 1 after it. Multipliers that then idle take the roots out again,
// and the results are added to the accumulator. The next step begins with the mask as soon as that is complete.
//
// Key beats hold P words of column 0, then P of column 1, for each step, row, and beat of the transform's output; the rows of component 0 come
// first. `key_filled_i` beats are there; `key_take_i` takes one, whose words are at key_i three cycles later, as `memory_reader` does.
//
// Before the first step both polynomials are loaded; then they are turned by X^exponent: from the copy that is read turned to the other, and
// back. While nothing is under way, the multipliers make sums t + u·w of words from outside (pass_i).
//
// Cycles of a step: rows·N/P + 2·transform + 2·product + 26, and 2 more if component 0 has one level only, which then waits for the body's sum.
//
// LOG_N: 6 to 14, even. LOG_LANES: LOG_N/4 to LOG_N/2. DIGIT_BITS: 1 to 25, bits of the largest digit. KARATSUBA: see `goldilocks_mul`.
module blind_rotation
  import engine_pkg::*;
#(
    parameter int LOG_N = 8,
    parameter int LOG_LANES = 3,
    parameter int DIGIT_BITS = 24,
    parameter int KARATSUBA = 8,
    parameter string TWIDDLE_FILE = "",
    localparam int LANES = 1 << LOG_LANES,
    localparam int BEAT_BITS = LOG_N - LOG_LANES
) (
    input logic clk_i,
    input logic rst_ni,
    input logic goldilocks_i,
    input gadget_t [1:0] gadget_i,
    input logic [1:0][7:0] levels_i,
    input logic step_valid_i,
    output logic step_ready_o,
    input logic [LOG_N:0] exponent_i,
    input logic [15:0] key_filled_i,
    output logic key_take_o,
    input logic [63:0] key_i[2*LANES],
    // Both polynomials, a beat of each at a time in their order; only while no step is under way. With the last they are turned.
    input logic load_i,
    input logic [BEAT_BITS-1:0] beat_i,
    input logic [63:0] word_i[2*LANES],
    output logic [63:0] word_o[2*LANES],  // of beat_i, two cycles later
    output logic idle_o,
    // Sums of words from outside; the addend comes PRODUCT - 3 cycles later than the word, and the sum four cycles after it.
    input logic pass_i,
    input logic [63:0] pass_word_i[2*LANES],
    input logic [63:0] pass_factor_i,
    input logic [63:0] pass_addend_i[2*LANES],
    output logic [63:0] pass_sum_o[2*LANES]
);
  localparam int LOG_COLUMNS = LOG_N / 2;
  localparam int LOG_HEIGHT = BEAT_BITS - LOG_COLUMNS;
  localparam int HEIGHT = 1 << LOG_HEIGHT;
  localparam logic [BEAT_BITS-1:0] LAST_BEAT = '1;
  localparam int TAKE = 3;
  localparam int PRODUCT = toroid_pkg::goldilocks_mul_latency(24, 17, 0, KARATSUBA);
  localparam int TURN = 5;  // from a turned read to words in their lanes, without signs
  localparam int SUMMED = TAKE + PRODUCT + 1;  // from the transform's output to sums
  localparam int ADDEND = SUMMED - 4;  // from there to words that are added
  localparam int READ = toroid_pkg::ram_latency(1'b1);
  localparam int DIGITS = 14;  // from a read of the accumulator to twisted digits

  if (LOG_N < 6 || LOG_N > 14 || LOG_N % 2 != 0 || 4 * LOG_LANES < LOG_N || 2 * LOG_LANES > LOG_N) begin : g_check
    $fatal(1, "blind_rotation: LOG_N must be even, 6 to 14, and LOG_LANES LOG_N/4 to LOG_N/2");
  end

  // Rows of the key, frame by frame.
  typedef struct packed {
    logic valid;
    logic turn;  // the beat is turned only
    logic component;
    logic [5:0] shift;
    logic [BEAT_BITS-1:0] beat;
  } issue_t;
  issue_t issue_q[DIGITS+1];
  logic [BEAT_BITS-1:0] beat_q;
  logic component_q, go, last_row;
  logic [ 7:0] level_q;
  logic [ 5:0] shift_q;
  logic [15:0] spoken_q;
  logic [ 1:0] ready_q;  // polynomials that hold all that was added to them
  logic turns_q, copies_q;
  logic [READ-1:0] copying_q;
  logic [BEAT_BITS-1:0] copy_beat_q[READ];

  assign last_row = component_q && level_q + 8'd1 == levels_i[1];
  assign go = !turns_q && !copies_q && (beat_q != '0 || (step_valid_i && ready_q[component_q] && key_filled_i >= spoken_q + 16'(1 << BEAT_BITS)));
  assign step_ready_o = go && beat_q == LAST_BEAT && last_row;

  // Transform.
  logic in_first_q, in_inverse_q, out_valid, out_first, out_inverse;
  logic [LANES*64-1:0] in_words_q, out_words;
  stream_transform #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES),
      .TWIDDLE_FILE(TWIDDLE_FILE),
      .KARATSUBA(KARATSUBA)
  ) i_transform (
      .clk_i,
      .rst_ni,
      .first_i(in_first_q),
      .inverse_i(in_inverse_q),
      .data_i(in_words_q),
      .valid_o(out_valid),
      .first_o(out_first),
      .inverse_o(out_inverse),
      .data_o(out_words)
  );

  // What leaves the transform, until its products are there.
  typedef struct packed {
    logic valid;
    logic inverse;
    logic fresh;  // nothing has been added to the sums
    logic last;  // row of the step, or of an inverse transform the body
    logic [BEAT_BITS-1:0] beat;
  } product_t;
  product_t product, product_q[SUMMED+3];
  logic [BEAT_BITS-1:0] out_beat_q;
  logic [8:0] out_row_q, rows;
  logic out_body_q;

  assign rows = 9'(levels_i[0]) + 9'(levels_i[1]);
  always_comb begin
    product = '0;
    product.valid = out_valid;
    product.inverse = out_inverse;
    product.fresh = out_inverse || out_row_q == '0;
    product.last = out_inverse ? out_body_q : out_row_q + 9'd1 == rows;
    product.beat = out_first ? '0 : out_beat_q;
  end
  assign key_take_o = out_valid && !out_inverse;

  // The body's sum on its way back.
  logic returns_q;
  logic [BEAT_BITS-1:0] return_beat_q;
  logic [READ:0] returning_q, return_first_q;

  always_ff @(posedge clk_i) begin
    issue_q[0] <= '{valid: go, turn: turns_q, component: component_q, shift: shift_q, beat: beat_q};
    for (int stage = 1; stage <= DIGITS; stage++) issue_q[stage] <= issue_q[stage-1];
    if (go || turns_q || copies_q) beat_q <= beat_q + 1'b1;
    if (go) begin
      if (beat_q == LAST_BEAT) begin
        level_q <= level_q + 8'd1;
        shift_q <= shift_q - gadget_i[component_q].log2_base;
        if (level_q + 8'd1 == levels_i[component_q]) begin
          level_q <= '0;
          component_q <= !component_q;
          shift_q <= -gadget_i[!component_q].log2_base;
        end
      end
    end
    spoken_q <= spoken_q + (go && beat_q == '0 ? 16'(1 << BEAT_BITS) : '0) - 16'(key_take_o);
    if (step_ready_o) ready_q <= '0;
    if (product_q[SUMMED+1].valid && product_q[SUMMED+1].inverse && product_q[SUMMED+1].beat == LAST_BEAT)
      ready_q[product_q[SUMMED+1].last] <= 1'b1;
    if (load_i) begin
      ready_q <= '0;
      shift_q <= -gadget_i[0].log2_base;
      if (beat_i == LAST_BEAT) turns_q <= 1'b1;
    end
    if (turns_q && beat_q == LAST_BEAT) begin
      component_q <= !component_q;
      if (component_q) turns_q <= 1'b0;
    end
    // The other copy is whole.
    if (issue_q[TURN].turn && issue_q[TURN].component && issue_q[TURN].beat == LAST_BEAT) copies_q <= 1'b1;
    if (copies_q && beat_q == LAST_BEAT) copies_q <= 1'b0;
    copying_q <= {copying_q[READ-2:0], copies_q};
    copy_beat_q[0] <= beat_q;
    for (int stage = 1; stage < READ; stage++) copy_beat_q[stage] <= copy_beat_q[stage-1];
    if (copying_q[READ-1] && copy_beat_q[READ-1] == LAST_BEAT) ready_q <= '1;

    product_q[0] <= product;
    for (int stage = 1; stage < SUMMED + 3; stage++) product_q[stage] <= product_q[stage-1];
    if (out_valid) begin
      out_beat_q <= product.beat + 1'b1;
      if (product.beat == LAST_BEAT) begin
        if (out_inverse) out_body_q <= !out_body_q;
        else out_row_q <= product.last ? '0 : out_row_q + 9'd1;
      end
    end

    if (product_q[SUMMED-1].valid && !product_q[SUMMED-1].inverse && product_q[SUMMED-1].last && product_q[SUMMED-1].beat == LAST_BEAT)
      returns_q <= 1'b1;
    if (returns_q) begin
      return_beat_q <= return_beat_q + 1'b1;
      if (return_beat_q == LAST_BEAT) returns_q <= 1'b0;
    end
    returning_q <= {returning_q[READ-1:0], returns_q};
    return_first_q <= {return_first_q[READ-1:0], returns_q && return_beat_q == '0};

    if (!rst_ni) begin
      for (int stage = 0; stage <= DIGITS; stage++) {issue_q[stage].valid, issue_q[stage].turn} <= '0;
      for (int stage = 0; stage < SUMMED + 3; stage++) product_q[stage].valid <= 1'b0;
      beat_q <= '0;
      component_q <= 1'b0;
      level_q <= '0;
      spoken_q <= '0;
      ready_q <= '0;
      turns_q <= 1'b0;
      copies_q <= 1'b0;
      copying_q <= '0;
      out_row_q <= '0;
      out_body_q <= 1'b0;
      returns_q <= 1'b0;
      return_beat_q <= '0;
      returning_q <= '0;
      return_first_q <= '0;
    end
  end
  assign idle_o = &ready_q && beat_q == '0;

  // Accumulator.
  logic [63:0] straight[2][LANES], banked[2][LANES], turned[LANES], to[LANES], added[LANES], loaded[2][LANES];
  logic [LANES-1:0] negative[2], negative_q[TURN-READ];
  logic [LOG_LANES-1:0] shift[2];
  logic adds, reads_sum;
  assign adds = product_q[SUMMED+1].valid && product_q[SUMMED+1].inverse;
  assign reads_sum = product_q[ADDEND-READ-1].valid && product_q[ADDEND-READ-1].inverse;

  for (genvar part = 0; part < 2; part++) begin : gen_accumulator
    logic [BEAT_BITS-1:0] straight_beat, write_beat;
    logic writes, turns;
    assign writes = adds && product_q[SUMMED+1].last == 1'(part);
    assign turns = issue_q[TURN].turn && issue_q[TURN].component == 1'(part);
    assign write_beat = load_i ? beat_i : turns ? issue_q[TURN].beat : copying_q[READ-1] ? copy_beat_q[READ-1] : product_q[SUMMED+1].beat;
    // A polynomial is added to, or read for its digits, or read from outside.
    assign straight_beat = reads_sum && product_q[ADDEND-READ-1].last == 1'(part) ? product_q[ADDEND-READ-1].beat :
        issue_q[2].valid ? issue_q[2].beat : copies_q ? beat_q : beat_i;
    always_comb
      for (int lane = 0; lane < LANES; lane++) begin
        loaded[part][lane] = load_i ? word_i[part*LANES+lane] : turns ? to[lane] : copying_q[READ-1] ? straight[part][lane] : added[lane];
        word_o[part*LANES+lane] = straight[part][lane];
      end
    accumulator #(
        .LOG_N(LOG_N),
        .LOG_COLUMNS(LOG_COLUMNS),
        .LOG_LANES(LOG_LANES)
    ) i_accumulator (
        .clk_i,
        .write_straight_i(load_i || writes || turns),
        .write_turned_i(load_i || writes || copying_q[READ-1]),
        .write_beat_i(write_beat),
        .word_i(loaded[part]),
        .straight_beat_i(straight_beat),
        .straight_o(straight[part]),
        .turned_beat_i(beat_q),
        .exponent_i,
        .banked_o(banked[part]),
        .shift_o(shift[part]),
        .negative_o(negative[part])
    );
  end

  // One polynomial is turned at a time.
  lane_rotator #(
      .LOG_LANES(LOG_LANES)
  ) i_rotator (
      .clk_i,
      .shift_i(shift[issue_q[READ-1].component]),
      .word_i (banked[issue_q[READ-1].component]),
      .word_o (turned)
  );
  always_ff @(posedge clk_i) begin
    negative_q[0] <= negative[issue_q[READ-1].component];
    for (int stage = 1; stage < TURN - READ; stage++) negative_q[stage] <= negative_q[stage-1];
  end

  // Differences and digits.
  logic [DIGIT_BITS-1:0] digit_half_q[2];
  logic [63:0] twisted[LANES];
  always_ff @(posedge clk_i)
    for (int part = 0; part < 2; part++)
      digit_half_q[part] <= DIGIT_BITS'((32'b1 << gadget_i[part].log2_base) >> 1);

  // Lanes.
  logic [1:0][63:0] sum[LANES], read_sum[LANES], factor[LANES];
  logic [63:0] out_word_q[TAKE][LANES];

  // Of a lane in each of its rows.
  function automatic logic [HEIGHT*64-1:0] roots(int lane);
    for (int height = 0; height < HEIGHT; height++)
    roots[height*64+:64] = engine_streaming_pkg::psi_power(LOG_N - LOG_COLUMNS, height * LANES + lane);
  endfunction

  for (genvar lane = 0; lane < LANES; lane++) begin : gen_lane
    localparam logic [HEIGHT*64-1:0] ROOTS = roots(lane);
    localparam int CHOICE_BITS = toroid_pkg::index_width(HEIGHT);

    logic [63:0] difference;
    logic [63:0] unused_digit;
    logic [DIGIT_BITS-1:0] digit;
    rotation_difference i_difference (
        .clk_i,
        .goldilocks_i,
        .word_i(turned[lane]),
        .negative_i(negative_q[TURN-READ-1][lane]),
        .straight_i(straight[issue_q[4].component][lane]),
        .turned_o(to[lane]),
        .difference_o(difference)
    );

    digit_unit #(
        .BITS (DIGIT_BITS),
        .FIELD(0)
    ) i_digit (
        .clk_i,
        .goldilocks_i,
        .offset_i(gadget_i[issue_q[7].component].offset),
        .shift_i (issue_q[8].shift),
        .half_i  (digit_half_q[issue_q[9].component]),
        .word_i  (difference),
        .digit_o (unused_digit),
        .signed_o(digit)
    );

    digit_twist #(
        .DIGIT_BITS(DIGIT_BITS),
        .COUNT(HEIGHT),
        .CONSTANTS(ROOTS)
    ) i_twist (
        .clk_i,
        .choice_i(CHOICE_BITS'(issue_q[10].beat & BEAT_BITS'(HEIGHT - 1))),
        .digit_i (digit),
        .word_o  (twisted[lane])
    );

    assign factor[lane][0] = pass_i ? pass_factor_i : product_q[TAKE-1].inverse ? ROOTS[64*(32'(product_q[TAKE-1].beat)&(HEIGHT-1))+:64] : key_i[lane];
    assign factor[lane][1] = pass_i ? pass_factor_i : key_i[LANES+lane];

    logic [1:0][63:0] word, addend_q;
    logic [63:0] old;
    assign word = pass_i ? {pass_word_i[LANES+lane], pass_word_i[lane]} : {2{out_word_q[TAKE-1][lane]}};
    assign old  = straight[product_q[ADDEND-1].last][lane];
    // To nothing, to the sum so far, or, modulo p, to the old word of the accumulator.
    always_ff @(posedge clk_i) begin
      addend_q <= pass_i ? {pass_addend_i[LANES+lane], pass_addend_i[lane]} :
          {read_sum[lane][1], product_q[ADDEND-1].inverse ? old : read_sum[lane][0]};
      if (!pass_i && product_q[ADDEND-1].fresh) begin
        addend_q[1] <= '0;
        if (!product_q[ADDEND-1].inverse || !goldilocks_i) addend_q[0] <= '0;
      end
    end
    assign pass_sum_o[lane] = sum[lane][0];
    assign pass_sum_o[LANES+lane] = sum[lane][1];
    product_lane #(
        .KARATSUBA(KARATSUBA)
    ) i_product (
        .clk_i,
        .word_i(word),
        .factor_i(factor[lane]),
        .sum_i(addend_q),
        .sum_o(sum[lane])
    );

    ram_sdp #(
        .WIDTH(128),
        .DEPTH(1 << BEAT_BITS)
    ) i_sums (
        .clk_i,
        .we_i(product_q[SUMMED-1].valid && !product_q[SUMMED-1].inverse),
        .waddr_i(product_q[SUMMED-1].beat),
        .wdata_i(sum[lane]),
        .raddr_i(returns_q ? return_beat_q : product_q[ADDEND-READ-1].beat),
        .rdata_o(read_sum[lane])
    );

    logic [31:0] old_late;
    delay #(
        .WIDTH (32),
        .CYCLES(SUMMED - ADDEND)
    ) i_old (
        .clk_i,
        .d_i(old[31:0]),
        .q_o(old_late)
    );
    rotation_sum i_sum (
        .clk_i,
        .goldilocks_i,
        .product_i(sum[lane][0]),
        .word_i(old_late),
        .word_o(added[lane])
    );
    always_ff @(posedge clk_i) begin
      out_word_q[0][lane] <= out_words[lane*64+:64];
      for (int stage = 1; stage < TAKE; stage++) out_word_q[stage][lane] <= out_word_q[stage-1][lane];
      in_words_q[lane*64+:64] <= issue_q[DIGITS-1].valid ? twisted[lane] :
          returning_q[READ-1] ? read_sum[lane][1] : sum[lane][0];
    end
  end

  always_ff @(posedge clk_i) begin
    logic forwards, turns;
    forwards = issue_q[DIGITS-1].valid && issue_q[DIGITS-1].beat == '0;
    turns = product_q[SUMMED-1].valid && !product_q[SUMMED-1].inverse && product_q[SUMMED-1].last && product_q[SUMMED-1].beat == '0;
    in_first_q   <= rst_ni && (forwards || turns || return_first_q[READ-1]);
    in_inverse_q <= !forwards;
  end
endmodule
