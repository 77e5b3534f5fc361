// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_ends: AXI4-Stream ends with back-pressure for a pipeline that never stalls, keeps the order of its beats and
// gives one for each that it takes. A beat is taken only if there is room for it behind the pipeline:
//
//   in_* -> take_o -> the pipeline, with the data of in_* -> pipe_* -> queue -> out_*
//
// WIDTH  bits of tdata at the output, >= 1
// DEPTH  beats under way, in the pipeline and the queue together, >= 2. Where out_tready_i never drops, in_tready_o never
//        does if and only if DEPTH is above the most beats that the pipeline ever holds at the end of a cycle; for one that
//        gives each beat P cycles after it takes it, those are P. One that keeps beats back until others follow stops where
//        DEPTH is not above the beats that it can keep.
// Latency: 0 from pipe_valid_i to out_tvalid_o, as long as the queue is empty. in_tready_o is a register.
module stream_ends #(
    parameter int WIDTH = 64,
    parameter int DEPTH = 16
) (
    input  logic             clk_i,
    input  logic             rst_ni,
    input  logic             in_tvalid_i,
    output logic             in_tready_o,
    output logic             take_o,
    input  logic             pipe_valid_i,
    input  logic [WIDTH-1:0] pipe_data_i,
    input  logic             pipe_last_i,
    output logic             out_tvalid_o,
    input  logic             out_tready_i,
    output logic [WIDTH-1:0] out_tdata_o,
    output logic             out_tlast_o
);
  if (WIDTH < 1) begin : g_check_width
    $fatal(1, "stream_ends: WIDTH must be at least 1");
  end
  if (DEPTH < 2) begin : g_check_depth
    $fatal(1, "stream_ends: DEPTH must be at least 2");
  end

  localparam int CountWidth = $clog2(DEPTH + 1);

  // Beats that were taken and did not leave yet.
  logic [CountWidth-1:0] count_q, count_d;
  logic ready_q, leave;
  assign count_d = count_q + CountWidth'(take_o) - CountWidth'(leave);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      count_q <= '0;
      ready_q <= 1'b1;
    end else begin
      count_q <= count_d;
      ready_q <= count_d != CountWidth'(DEPTH);
    end
  end
  assign in_tready_o = ready_q;
  assign take_o = in_tvalid_i && ready_q;

  // Beats in their order: held, those of the queue, the pipeline's. A beat that cannot leave is held if it is the next to
  // leave, as the queue would show it only two cycles later; so while anything waits, it is held or shown by the queue.
  logic held_valid_q, queue_valid, keep, is_next, push;
  logic [  WIDTH:0] held_q;
  logic [WIDTH-1:0] queue_data;
  logic queue_last, queue_pop;
  logic [CountWidth-1:0] queue_count;
  assign out_tvalid_o = held_valid_q || queue_valid || pipe_valid_i;
  assign leave = out_tvalid_o && out_tready_i;
  assign queue_pop = !held_valid_q && queue_valid && out_tready_i;
  // The beat of the pipeline stays, and whether nothing waits before it from the next cycle on.
  assign keep = pipe_valid_i && (held_valid_q || queue_valid || !out_tready_i);
  assign is_next = (!held_valid_q || out_tready_i) && queue_count == CountWidth'(queue_pop);
  assign push = keep && !is_next;
  assign {out_tlast_o, out_tdata_o} = held_valid_q ? held_q :
      queue_valid ? {queue_last, queue_data} : {pipe_last_i, pipe_data_i};
  always_ff @(posedge clk_i) begin
    if (!rst_ni) held_valid_q <= 1'b0;
    else if (keep && is_next) held_valid_q <= 1'b1;
    else if (out_tready_i) held_valid_q <= 1'b0;
  end
  always_ff @(posedge clk_i) if (keep && is_next) held_q <= {pipe_last_i, pipe_data_i};

  // What was taken has room.
  logic unused_ready;
  stream_fifo #(
      .WIDTH(WIDTH),
      .DEPTH(DEPTH)
  ) i_queue (
      .clk_i,
      .rst_ni,
      .in_tvalid_i (push),
      .in_tready_o (unused_ready),
      .in_tdata_i  (pipe_data_i),
      .in_tlast_i  (pipe_last_i),
      .out_tvalid_o(queue_valid),
      .out_tready_i(queue_pop),
      .out_tdata_o (queue_data),
      .out_tlast_o (queue_last),
      .count_o     (queue_count)
  );
endmodule
