// SPDX-License-Identifier: Apache-2.0 OR MIT
// One of the engine's two circuits: four slots of N words, LANES/2 integrated butterflies, and what brings their operands together. It works on
// one polynomial of a TRLWE sample, or on half of the rows of a TLWE sample.
//
// LOG_N, LOG_LANES: as in `banked_lanes`.
// vector_i goes with the beat at the operands, READ_LATENCY cycles after beat_i; late_vector_i with the operands of rotations and digits, LATE
// cycles later. Words of the stream, twiddles and the other circuit's words come at the same time.
// Latency from beat_i until a beat may read what it wrote: HAZARD = READ_LATENCY + WRITE_LATENCY + butterfly + 3, and LATE more for late ones.
module engine_circuit
  import engine_pkg::*;
  import ntt_inplace_pkg::*;
#(
    parameter int LOG_N = 9,
    parameter int LOG_LANES = 3,
    localparam int LANES = 1 << LOG_LANES,
    localparam int VECTOR = LANES / 2
) (
    input logic clk_i,
    input logic rst_ni,
    input logic goldilocks_i,
    input gadget_t gadget_i,
    input logic [5:0] digit_shift_i,
    input logic [LOG_LANES-2:0] rotate_shift_i,
    input logic [VECTOR-1:0] select_i,
    input beat_t beat_i,
    input vector_t vector_i,
    input vector_t late_vector_i,
    input logic [63:0] twiddle_i[VECTOR],
    input logic [63:0] stream_i[VECTOR],
    input logic [31:0] half_stream_i[VECTOR],
    input logic [63:0] cross_i[VECTOR],
    output logic [63:0] cross_o[VECTOR]
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  localparam int BUTTERFLY = toroid_pkg::butterfly_latency(toroid_pkg::MOD_GOLDILOCKS, 64, 24, 17);
  localparam logic [63:0] P = toroid_pkg::GOLDILOCKS;

  // Operands.
  beat_t beat, late_beat_q[LATE], operand_beat;
  vector_t vector;
  logic late;
  logic [63:0] lane[LANES];
  logic [63:0] upper[VECTOR];
  logic [63:0] rotated[VECTOR];
  logic [VECTOR-1:0] rotated_negative;
  logic [63:0] digit[VECTOR];

  always_comb for (int index = 0; index < VECTOR; index++) upper[index] = lane[VECTOR+index];
  assign cross_o = upper;

  row_rotator #(
      .LOG_LANES(LOG_LANES - 1)
  ) i_rotator (
      .clk_i,
      .valid_i(beat.valid && !beat.transform && vector_i.u == U_ROTATED),
      .negative_i(vector_i.negative),
      .shift_i(rotate_shift_i),
      .word_i(upper),
      .word_o(rotated),
      .negative_o(rotated_negative)
  );

  logic [31:0] digit_half_q;
  always_ff @(posedge clk_i) digit_half_q <= (32'b1 << gadget_i.log2_base) >> 1;

  for (genvar index = 0; index < VECTOR; index++) begin : gen_digit
    digit_unit i_digit (
        .clk_i,
        .goldilocks_i,
        .offset_i(gadget_i.offset),
        .shift_i (digit_shift_i),
        .half_i  (digit_half_q),
        .word_i  (upper[index]),
        .digit_o (digit[index]),
        // Products need the digit modulo p.
        // verilator lint_off PINCONNECTEMPTY
        .signed_o()
        // verilator lint_on PINCONNECTEMPTY
    );
  end

  // Late rows have their operands after `LATE` cycles. The sequencer lets nothing else come in between.
  assign late = late_beat_q[LATE-1].valid;
  assign operand_beat = late ? late_beat_q[LATE-1] : beat;
  assign vector = late ? late_vector_i : vector_i;

  // Of what goes with a row, these are used before.
  logic unused;
  assign unused = &{vector.sink, vector.negative, vector.half};

  logic operand_valid;
  logic inverse_q;
  logic [63:0] a_q[VECTOR], b_q[VECTOR], w_q[VECTOR];
  assign operand_valid = late || (beat.valid && (beat.transform || !is_late(vector_i.u)));

  always_ff @(posedge clk_i) begin
    late_beat_q[0] <= beat;
    late_beat_q[0].valid <= beat.valid && !beat.transform && is_late(vector_i.u);
    for (int stage = 1; stage < LATE; stage++) late_beat_q[stage] <= late_beat_q[stage-1];
    inverse_q <= operand_beat.transform && operand_beat.inverse;
    // Selections are written as trees of binary ones, which take the fewest LUTs. A transform asks for its lanes and twiddles like any row.
    for (int index = 0; index < VECTOR; index++) begin
      a_q[index] <= vector.t == T_SLOT ? lane[index] : 64'(vector.t == T_TOP_BIT && upper[index][31]);
      b_q[index] <= vector.u[2] ?
          (vector.u[1] ? 64'(vector.select && select_i[index]) :
           vector.u[0] ? 64'(half_stream_i[index]) : stream_i[index]) :
          (vector.u[1] ? (vector.u[0] ? digit[index] : rotated[index]) :
           vector.u[0] ? cross_i[index] : upper[index]);
      w_q[index] <= vector.w[1] ?
          (vector.w[0] ? twiddle_i[index] : rotated_negative[index] ? P - 64'd1 : 64'd1) :
          (vector.w[0] ? stream_i[index] : vector.scalar);
    end
    if (!rst_ni) begin
      for (int stage = 0; stage < LATE; stage++) late_beat_q[stage].valid <= 1'b0;
    end
  end

  // Butterflies.
  logic [63:0] sum[VECTOR], difference[VECTOR];
  for (genvar index = 0; index < VECTOR; index++) begin : gen_butterfly
    butterfly_integrated i_butterfly (
        .clk_i,
        .inverse_i(inverse_q),
        .a_i(a_q[index]),
        .b_i(b_q[index]),
        .w_i(w_q[index]),
        .a_o(sum[index]),
        .b_o(difference[index])
    );
  end

  // Results. What is above p/2 stands for a negative number, and p = 1 modulo 2^32.
  typedef struct packed {
    beat_t beat;
    logic  minus;
    logic  torus32;
  } result_t;
  result_t result_q[BUTTERFLY+1];
  logic torus32_q;
  beat_t chosen_beat_q, write_beat_q;
  logic [63:0] chosen_q[LANES], written_q[LANES];
  logic [VECTOR-1:0] above_q;

  always_ff @(posedge clk_i) begin
    logic [63:0] chosen;
    result_q[0] <= '{beat: operand_beat, minus: vector.minus, torus32: vector.torus32};
    result_q[0].beat.valid <= operand_valid;
    for (int stage = 1; stage <= BUTTERFLY; stage++) result_q[stage] <= result_q[stage-1];

    chosen_beat_q <= result_q[BUTTERFLY].beat;
    torus32_q <= result_q[BUTTERFLY].torus32;
    for (int index = 0; index < VECTOR; index++) begin
      chosen = result_q[BUTTERFLY].minus ? difference[index] : sum[index];
      chosen_q[index] <= chosen;
      above_q[index] <= chosen > P >> 1;
      chosen_q[VECTOR+index] <= difference[index];
    end

    write_beat_q <= chosen_beat_q;
    for (int index = 0; index < VECTOR; index++) begin
      written_q[index] <= torus32_q ? 64'(chosen_q[index][31:0] - 32'(above_q[index])) : chosen_q[index];
      written_q[VECTOR+index] <= chosen_q[VECTOR+index];
    end
    if (!rst_ni) begin
      for (int stage = 0; stage <= BUTTERFLY; stage++) result_q[stage].beat.valid <= 1'b0;
      chosen_beat_q.valid <= 1'b0;
      write_beat_q.valid  <= 1'b0;
    end
  end

  banked_lanes #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES),
      .LOG_SLOTS(2)
  ) i_lanes (
      .clk_i,
      .rst_ni,
      .read_beat_i(beat_i),
      .beat_o(beat),
      .lane_o(lane),
      .write_beat_i(write_beat_q),
      .lane_i(written_q)
  );
endmodule
