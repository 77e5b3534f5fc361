// SPDX-License-Identifier: Apache-2.0 OR MIT
// Turns operations into beats for the circuits, one per cycle: transforms by `ntt_schedule`, vector operations row by row as their operands from
// memory are there.
//
// An operation is taken where op_ready_o is set: with the last beat of the one before it, or, where `drain` is set, when everything before it
// has been written. idle_o: nothing is on its way.
module engine_issuer
  import engine_pkg::*;
  import ntt_inplace_pkg::*;
#(
    parameter int LOG_N = 9,
    parameter int LOG_LANES = 3,
    parameter int HAZARD = 25,
    localparam int TWIDDLE_BITS = $clog2(twiddle_base(LOG_N, LOG_LANES, -1))
) (
    input logic clk_i,
    input logic rst_ni,
    input logic op_valid_i,
    output logic op_ready_o,
    input operation_t op_i,
    input logic [19:0] body_row_i,
    input logic stream_available_i,
    output logic stream_take_o,
    input logic store_ready_i,
    output logic store_take_o,
    output beat_t beat_o,
    output vector_t vector_o,
    output logic [TWIDDLE_BITS-1:0] twiddle_o,
    output logic idle_o
);
  localparam int LOG_ROWS = LOG_N - LOG_LANES + 1;

  operation_t op_q;
  logic active_q;
  logic [19:0] row_q;
  logic half_q;
  logic [7:0] drain_q;
  logic [LOG_ROWS:0] turned_q;

  logic transform_ready, transform_last;
  beat_t transform_beat;
  logic streams, half_streams, stores, go, last, take_op, rotates, prime;

  assign streams = op_q.u == U_STREAM || op_q.w == W_STREAM;
  assign half_streams = op_q.u == U_HALF_STREAM;
  assign stores = op_q.sink == SINK_STORE;
  assign rotates = op_q.u == U_ROTATED;
  // A rotation reads one row more, ahead of those that it gives.
  assign prime = rotates && row_q == 0;
  assign go = active_q && !op_q.transform && (!(streams || half_streams) || stream_available_i) && (!stores || store_ready_i);
  assign last = op_q.transform ? transform_last : go && row_q == op_q.rows - (rotates ? 20'd0 : 20'd1);
  assign op_ready_o = (!active_q || last) && (!op_i.drain || (!active_q && drain_q == 0));
  assign take_op = op_valid_i && op_ready_o;
  assign stream_take_o = go && (streams || (half_streams && half_q));
  assign store_take_o = go && stores;
  assign idle_o = !active_q && drain_q == 0;

  ntt_schedule #(
      .LOG_N(LOG_N),
      .LOG_LANES(LOG_LANES),
      .HAZARD(HAZARD)
  ) i_schedule (
      .clk_i,
      .rst_ni,
      .start_i(take_op && op_i.transform),
      .inverse_i(op_i.inverse),
      .slot_i(op_i.slot_t),
      .ready_o(transform_ready),
      .beat_o(transform_beat),
      .twiddle_o,
      .last_o(transform_last)
  );

  always_comb begin
    logic [19:0] operand_row, result_row;
    operand_row = rotates ? 20'(turned_q[LOG_ROWS-1:0]) : op_q.row_operand + row_q;
    result_row  = op_q.row_result + row_q - 20'(rotates);
    if (op_q.transform) begin
      beat_o = transform_beat;
    end else begin
      beat_o = '0;
      beat_o.valid = go;
      beat_o.write = go && op_q.sink == SINK_SLOT && !prime;
      beat_o.read_index = MAX_LOG_N'(operand_row) << (LOG_LANES - 1);
      beat_o.write_index = MAX_LOG_N'(result_row) << (LOG_LANES - 1);
      beat_o.slot_a = op_q.slot_t;
      beat_o.slot_b = op_q.slot_u;
      beat_o.slot_write = op_q.slot_result;
    end
    vector_o = '{
        u: op_q.u,
        t: op_q.t,
        w: op_q.w,
        sink: op_q.sink,
        minus: op_q.minus,
        torus32: op_q.torus32,
        select: result_row == body_row_i,
        negative: turned_q[LOG_ROWS],
        half: half_q,
        scalar: op_q.scalar
    };
  end

  always_ff @(posedge clk_i) begin
    if (drain_q != 0) drain_q <= drain_q - 1'b1;
    if (active_q && (op_q.transform || go)) drain_q <= 8'(HAZARD + LATE);
    if (go) begin
      row_q <= row_q + 1'b1;
      turned_q <= turned_q + 1'b1;
      if (half_streams) half_q <= !half_q;
    end
    if (last) active_q <= 1'b0;
    if (take_op) begin
      active_q <= 1'b1;
      op_q <= op_i;
      row_q <= '0;
      // The row before the one that holds word -a.
      turned_q <= ~op_i.exponent[LOG_N:LOG_LANES-1];
      if (op_i.drain) half_q <= 1'b0;
    end
    if (!rst_ni) begin
      active_q <= 1'b0;
      drain_q  <= '0;
    end
  end

  // The sequencer never starts a transform while another runs.
  logic unused;
  assign unused = &{transform_ready, op_q.exponent, op_q.inverse, op_q.drain};
endmodule
