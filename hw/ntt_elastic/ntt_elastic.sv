// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_elastic: transforms of N = LANES^2 * N2 words, one every N / LANES cycles, whose length, modulus and kind may
// change from each to the next without a bubble: NTT, INTT, negacyclic NTT (NCN) and its inverse (INCN).
//
// Beat c of a transform has the word of index c + B * lane in each lane, B = N / LANES. A transform over the lanes, a
// product with powers of a root, a transposition in banks, LANES / N2 transforms of N2 words with the next powers in
// their twiddles, a transposition by commutators, and another transform over the lanes: beat k1 * N2 + k2 leaves with
// the word of index k1 + LANES * k2 + B * lane.
//
// No twiddle is stored. Each beat has two words of factors beside it, in Montgomery form, but for q (toroid_pkg):
// - the lower one is omega^c (NTT), psi^c (NCN), or with the inverse roots omega^c (INTT) or omega^c * psi (INCN);
// - the upper ones are the constants of the next transform, in the order of ntt_elastic_pkg.
// Before the first transform, and behind a pause in which what comes next is not known, a preamble brings its
// constants: 2 LANES beats of factors, the first with factor_tuser_i = 1, and no data. It has two constants a beat: in
// the lower words are those from number 2 LANES on.
//
// LOG_LANES       log2 of the words of a beat, 2 to 5; N2 = LANES >> shift is 4 to LANES
// WORD            every modulus is 1 modulo 2^WORD, odd and above 2; 2 to TILE_A - 1
// TILE_A, TILE_B  see mul_tiles
// in_tuser_i      {what, shift} in the first beat of a transform; what is 0 NTT, 1 INTT, 2 NCN, 3 INCN
// out_tuser_o     the same in all beats
// A beat is taken when both its data and its factors are there. A shift that does not exist is the largest.
// Source: Z. Guan et al., ESC-NTT: An Elastic, Seamless and Compact Architecture for Multi-Parameter NTT Acceleration
module ntt_elastic
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    parameter int WORD = 10,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    localparam int Lanes = 1 << LOG_LANES,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES))
) (
    input  logic                             clk_i,
    input  logic                             rst_ni,
    input  logic                             in_tvalid_i,
    output logic                             in_tready_o,
    input  logic [     Lanes-1:0][WIDTH-1:0] in_tdata_i,
    input  logic [ShiftWidth+1:0]            in_tuser_i,
    input  logic                             factor_tvalid_i,
    output logic                             factor_tready_o,
    input  logic [           1:0][WIDTH-1:0] factor_tdata_i,
    input  logic                             factor_tuser_i,
    output logic                             out_tvalid_o,
    input  logic                             out_tready_i,
    output logic [     Lanes-1:0][WIDTH-1:0] out_tdata_o,
    output logic [ShiftWidth+1:0]            out_tuser_o,
    output logic                             out_tlast_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check_lanes
    $fatal(1, "ntt_elastic: LOG_LANES must be 2 to 5");
  end

  localparam int Mul = toroid_pkg::montgomery_wide_latency(WIDTH, WORD, TILE_A, TILE_B);
  localparam int Unit = unit_latency(LOG_LANES, Mul);
  localparam int Write = write_latency(LOG_LANES, Mul);
  localparam int Lead = read_lead(Mul);
  localparam int LogBeats = 2 * LOG_LANES;
  localparam logic [ShiftWidth-1:0] MaxShift = ShiftWidth'(shifts(LOG_LANES) - 1);
  // Whether it is a preamble, and what is to be done with them.
  localparam int Tag = 3;

  // The ends. A beat of a preamble takes no room behind the pipeline; one of the longest transform waits LANES^2 -
  // LANES + 1 cycles in the banks.
  logic factor_valid, factor_void, is_void, in_expected, data_ready, data_take, take;
  logic [1:0][WIDTH-1:0] factor;
  logic unused_factor_last;
  stream_register #(
      .WIDTH(2 * WIDTH + 1)
  ) i_factor (
      .clk_i,
      .rst_ni,
      .in_tvalid_i (factor_tvalid_i),
      .in_tready_o (factor_tready_o),
      .in_tdata_i  ({factor_tuser_i, factor_tdata_i}),
      .in_tlast_i  (1'b0),
      .out_tvalid_o(factor_valid),
      .out_tready_i(take),
      .out_tdata_o ({factor_void, factor}),
      .out_tlast_o (unused_factor_last)
  );
  logic out_valid, out_last;
  logic [ShiftWidth+1:0] out_user;
  logic [Lanes-1:0][WIDTH-1:0] out_lanes;
  stream_ends #(
      .WIDTH(ShiftWidth + 2 + Lanes * WIDTH),
      .DEPTH(Lanes * Lanes - Lanes + 2 + transit(LOG_LANES, Mul))
  ) i_ends (
      .clk_i,
      .rst_ni,
      .in_tvalid_i (in_tvalid_i && in_expected),
      .in_tready_o (data_ready),
      .take_o      (data_take),
      .pipe_valid_i(out_valid),
      .pipe_data_i ({out_user, out_lanes}),
      .pipe_last_i (out_last),
      .out_tvalid_o,
      .out_tready_i,
      .out_tdata_o ({out_tuser_o, out_tdata_o}),
      .out_tlast_o
  );
  assign in_expected = factor_valid && !is_void;
  assign in_tready_o = data_ready && in_expected;
  assign take = data_take || factor_valid && is_void;

  // A transform is what its first beat says.
  logic first, last, is_void_q;
  logic [LogBeats-1:0] beat_q;
  logic [1:0] what, what_q;
  logic [ShiftWidth-1:0] shift, shift_q;
  assign first = beat_q == '0;
  assign last = beat_q == (is_void ? LogBeats'(preamble(Lanes) - 1) : {LogBeats{1'b1}} >> shift);
  assign is_void = first ? factor_void : is_void_q;
  assign what = first ? in_tuser_i[ShiftWidth+1:ShiftWidth] : what_q;
  always_comb begin
    shift = shift_q;
    if (first) begin
      shift = in_tuser_i[ShiftWidth-1:0];
      if (is_void || int'(shift) > int'(MaxShift)) shift = MaxShift;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) beat_q <= '0;
    else if (take) beat_q <= last ? '0 : beat_q + 1'b1;
    if (take) begin
      is_void_q <= is_void;
      what_q <= what;
      shift_q <= shift;
    end
  end

  // A cycle behind its beat: what the beat is, and its factors; another one behind, the data.
  logic front_valid, front_last;
  logic [LogBeats-1:0] front_beat;
  logic [ShiftWidth-1:0] front_shift;
  logic [Tag-1:0] front_tag;
  logic [1:0][WIDTH-1:0] front_factor;
  valid_delay #(
      .CYCLES(1)
  ) i_front_valid (
      .clk_i,
      .rst_ni,
      .valid_i(take),
      .valid_o(front_valid)
  );
  delay #(
      .WIDTH (1 + LogBeats + ShiftWidth + Tag + 2 * WIDTH),
      .CYCLES(1)
  ) i_front (
      .clk_i,
      .d_i({last, beat_q, shift, is_void, what, factor}),
      .q_o({front_last, front_beat, front_shift, front_tag, front_factor})
  );
  logic [Lanes-1:0][WIDTH-1:0] front_lanes;
  delay #(
      .WIDTH (Lanes * WIDTH),
      .CYCLES(2)
  ) i_front_lanes (
      .clk_i,
      .d_i(in_tdata_i),
      .q_o(front_lanes)
  );

  // The first unit, and the product behind it.
  logic [1:0][WIDTH-1:0] front_constants;
  elastic_words #(
      .COUNT    (2),
      .FIRST    (AT_Q),
      .LOG_BEATS(LogBeats)
  ) i_front_constants (
      .clk_i,
      .valid_i(front_valid),
      .beat_i (front_beat),
      .word_i (front_factor[1]),
      .words_o(front_constants)
  );
  logic [Lanes-1:0][WIDTH-1:0] first_lanes;
  elastic_fixed_unit #(
      .LOG_LANES(LOG_LANES),
      .INVERSE  (0),
      .FIRST    (AT_FIRST),
      .LOG_BEATS(LogBeats),
      .WORD     (WORD),
      .TILE_A   (TILE_A),
      .TILE_B   (TILE_B)
  ) i_first_unit (
      .clk_i,
      .rst_ni,
      .valid_i(front_valid),
      .beat_i (front_beat),
      .word_i (front_factor[1]),
      .q_i    (front_constants[AT_Q]),
      .lanes_i(front_lanes),
      .lanes_o(first_lanes)
  );
  logic is_ncn;
  logic [WIDTH-1:0] ratio, powers_q, unused_q;
  logic [Lanes-1:0][WIDTH-1:0] powers, powers_turned;
  delay #(
      .WIDTH (1 + WIDTH),
      .CYCLES(1)
  ) i_ratio (
      .clk_i,
      .d_i({front_tag[1:0] == NCN, front_factor[0]}),
      .q_o({is_ncn, ratio})
  );
  elastic_powers #(
      .LOG_LANES(LOG_LANES),
      .WORD     (WORD),
      .TILE_A   (TILE_A),
      .TILE_B   (TILE_B)
  ) i_powers (
      .clk_i,
      .q_i      (front_constants[AT_Q]),
      .square_i (is_ncn),
      .base_i   (front_constants[AT_BASE]),
      .word_i   (ratio),
      .q_o      (powers_q),
      .factors_o(powers)
  );
  for (genvar n = 0; n < Lanes; n++) begin : g_turned
    assign powers_turned[n] = powers[reversed(n, LOG_LANES)];
  end
  logic [Lanes-1:0][WIDTH-1:0] first_late, turned_lanes;
  delay #(
      .WIDTH (Lanes * WIDTH),
      .CYCLES(first_product(LOG_LANES, Mul) - 2 - Unit)
  ) i_first_late (
      .clk_i,
      .d_i(first_lanes),
      .q_o(first_late)
  );
  montgomery_column #(
      .COUNT (Lanes),
      .WIDTH (WIDTH),
      .WORD  (WORD),
      .TILE_A(TILE_A),
      .TILE_B(TILE_B)
  ) i_product (
      .clk_i,
      .q_i(powers_q),
      .a_i(powers_turned),
      .b_i(first_late),
      .q_o(unused_q),
      .p_o(turned_lanes)
  );

  // The first transposition. The order of reading is known a product before the words are there, for the factors' sake.
  logic order_valid, order_last;
  logic [LogBeats-1:0] order_beat;
  logic [ShiftWidth-1:0] order_shift;
  logic [Tag-1:0] order_tag;
  logic [LogBeats:0] order_row;
  elastic_order #(
      .LOG_LANES(LOG_LANES),
      .WAIT     (Write + 1 - Lead - Lanes),
      .TAG      (Tag)
  ) i_order (
      .clk_i,
      .rst_ni,
      .valid_i(front_valid),
      .last_i (front_last),
      .shift_i(front_shift),
      .tag_i  (front_tag),
      .valid_o(order_valid),
      .beat_o (order_beat),
      .last_o (order_last),
      .shift_o(order_shift),
      .tag_o  (order_tag),
      .row_o  (order_row)
  );
  logic write_valid;
  logic [LogBeats-1:0] write_beat, read_beat;
  logic [ShiftWidth-1:0] write_shift, read_shift;
  logic [LogBeats:0] read_row;
  valid_delay #(
      .CYCLES(Write - 2)
  ) i_write_valid (
      .clk_i,
      .rst_ni,
      .valid_i(front_valid && !front_tag[Tag-1]),
      .valid_o(write_valid)
  );
  delay #(
      .WIDTH (LogBeats + ShiftWidth),
      .CYCLES(Write - 2)
  ) i_write (
      .clk_i,
      .d_i({front_beat, front_shift}),
      .q_o({write_beat, write_shift})
  );
  delay #(
      .WIDTH (LogBeats + ShiftWidth + LogBeats + 1),
      .CYCLES(Lead - 1)
  ) i_read (
      .clk_i,
      .d_i({order_beat, order_shift, order_row}),
      .q_o({read_beat, read_shift, read_row})
  );
  logic [Lanes-1:0][WIDTH-1:0] second_lanes;
  elastic_banks #(
      .LOG_LANES(LOG_LANES)
  ) i_banks (
      .clk_i,
      .rst_ni,
      .we_i         (write_valid),
      .write_beat_i (write_beat),
      .write_shift_i(write_shift),
      .lanes_i      (turned_lanes),
      .read_beat_i  (read_beat),
      .read_shift_i (read_shift),
      .row_i        (read_row),
      .lanes_o      (second_lanes)
  );

  // Constants go past the banks in a ring of their own, in the order of beats, and as much before them as the order is
  // known.
  logic constant_valid;
  logic [LogBeats:0] constant_in_q, constant_out_q;
  logic [1:0][WIDTH-1:0] constant, back_constant;
  valid_delay #(
      .CYCLES(Write - Lead - 1)
  ) i_constant_valid (
      .clk_i,
      .rst_ni,
      .valid_i(front_valid),
      .valid_o(constant_valid)
  );
  delay #(
      .WIDTH (2 * WIDTH),
      .CYCLES(Write - Lead - 1)
  ) i_constant (
      .clk_i,
      .d_i(front_factor),
      .q_o(constant)
  );
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      constant_in_q  <= '0;
      constant_out_q <= '0;
    end else begin
      constant_in_q  <= constant_in_q + (LogBeats + 1)'(constant_valid);
      constant_out_q <= constant_out_q + (LogBeats + 1)'(order_valid);
    end
  end
  ram_sdp #(
      .WIDTH          (2 * WIDTH),
      .DEPTH          (2 * Lanes * Lanes),
      .OUTPUT_REGISTER(0)
  ) i_constants (
      .clk_i,
      .we_i   (constant_valid),
      .waddr_i(constant_in_q),
      .wdata_i(constant),
      .raddr_i(constant_out_q),
      .rdata_o(back_constant)
  );
  logic back_valid, back_last;
  logic [LogBeats-1:0] back_beat;
  logic [ShiftWidth-1:0] back_shift;
  logic [Tag-1:0] back_tag;
  valid_delay #(
      .CYCLES(1)
  ) i_back_valid (
      .clk_i,
      .rst_ni,
      .valid_i(order_valid),
      .valid_o(back_valid)
  );
  delay #(
      .WIDTH (1 + LogBeats + ShiftWidth + Tag),
      .CYCLES(1)
  ) i_back (
      .clk_i,
      .d_i({order_last, order_beat, order_shift, order_tag}),
      .q_o({back_last, back_beat, back_shift, back_tag})
  );

  // The second unit.
  logic [Lanes-1:0][WIDTH-1:0] exchange_lanes, third_lanes;
  elastic_turned_unit #(
      .LOG_LANES(LOG_LANES),
      .LOG_BEATS(LogBeats),
      .WORD     (WORD),
      .TILE_A   (TILE_A),
      .TILE_B   (TILE_B)
  ) i_second_unit (
      .clk_i,
      .rst_ni,
      .valid_i(back_valid),
      .beat_i (back_beat),
      .shift_i(back_shift),
      .last_i (back_last),
      .void_i (back_tag[Tag-1]),
      .words_i(back_constant),
      .lanes_i(second_lanes),
      .lanes_o(exchange_lanes)
  );

  // The second transposition, and the third unit with its constants a cycle before its lanes.
  logic [ LOG_LANES-1:0] exchange_beat;
  logic [ShiftWidth-1:0] exchange_shift;
  delay #(
      .WIDTH (LOG_LANES + ShiftWidth),
      .CYCLES(Mul + Unit)
  ) i_exchange_beat (
      .clk_i,
      .d_i({back_beat[LOG_LANES-1:0], back_shift}),
      .q_o({exchange_beat, exchange_shift})
  );
  elastic_exchange #(
      .LOG_LANES(LOG_LANES)
  ) i_exchange (
      .clk_i,
      .beat_i (exchange_beat),
      .shift_i(exchange_shift),
      .lanes_i(exchange_lanes),
      .lanes_o(third_lanes)
  );
  localparam int Late = Mul + Unit + Lanes - 2;
  logic third_valid, third_last;
  logic [LogBeats-1:0] third_beat;
  logic [ShiftWidth-1:0] third_shift;
  logic [Tag-1:0] third_tag;
  logic [WIDTH-1:0] third_constant, third_q;
  valid_delay #(
      .CYCLES(Late)
  ) i_third_valid (
      .clk_i,
      .rst_ni,
      .valid_i(back_valid),
      .valid_o(third_valid)
  );
  delay #(
      .WIDTH (1 + LogBeats + ShiftWidth + Tag + WIDTH),
      .CYCLES(Late)
  ) i_third (
      .clk_i,
      .d_i({back_last, back_beat, back_shift, back_tag, back_constant[1]}),
      .q_o({third_last, third_beat, third_shift, third_tag, third_constant})
  );
  elastic_words #(
      .COUNT    (1),
      .FIRST    (AT_Q),
      .LOG_BEATS(LogBeats)
  ) i_third_q (
      .clk_i,
      .valid_i(third_valid),
      .beat_i (third_beat),
      .word_i (third_constant),
      .words_o(third_q)
  );
  elastic_fixed_unit #(
      .LOG_LANES(LOG_LANES),
      .INVERSE  (1),
      .FIRST    (at_third(Lanes)),
      .LOG_BEATS(LogBeats),
      .WORD     (WORD),
      .TILE_A   (TILE_A),
      .TILE_B   (TILE_B)
  ) i_third_unit (
      .clk_i,
      .rst_ni,
      .valid_i(third_valid),
      .beat_i (third_beat),
      .word_i (third_constant),
      .q_i    (third_q),
      .lanes_i(third_lanes),
      .lanes_o(out_lanes)
  );

  // A preamble leaves nothing.
  valid_delay #(
      .CYCLES(1 + Unit)
  ) i_out_valid (
      .clk_i,
      .rst_ni,
      .valid_i(third_valid && !third_tag[Tag-1]),
      .valid_o(out_valid)
  );
  delay #(
      .WIDTH (1 + ShiftWidth + 2),
      .CYCLES(1 + Unit)
  ) i_out (
      .clk_i,
      .d_i({third_last, third_tag[1:0], third_shift}),
      .q_o({out_last, out_user})
  );
endmodule
