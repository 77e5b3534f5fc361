// SPDX-License-Identifier: Apache-2.0 OR MIT
// The TLWE sample at work, and operations on its rows of WORDS words: sums t + u·w modulo p by multipliers elsewhere, and stores.
//
// An operation is taken where op_ready_o is set, which is when everything before it has been written. Multipliers take word_o and factor_o while
// pass_o is set, addend_o PRODUCT - 3 cycles later, and have the sum four cycles after that.
//
// ROWS: rows, at most. WORDS: words of a row. PRODUCT: cycles of a product. Rows of the stream come three cycles after take_o, those of the key
// switch two cycles after sum_row_o, those for the scalar unit two cycles after feed_row_i while nothing is under way.
module sample_unit
  import engine_streaming_pkg::*;
#(
    parameter int ROWS = 128,
    parameter int WORDS = 16,
    parameter int PRODUCT = 11,
    localparam int ROW_BITS = toroid_pkg::index_width(ROWS)
) (
    input logic clk_i,
    input logic rst_ni,
    input logic op_valid_i,
    output logic op_ready_o,
    input row_operation_t op_i,
    input logic [15:0] rows_i,
    input logic [15:0] body_i,  // index of the sample's body
    input logic available_i,
    output logic take_o,
    input logic [63:0] stream_i[WORDS],
    output logic [ROW_BITS-1:0] sum_row_o,
    input logic [31:0] sum_i[WORDS],
    output logic pass_o,
    output logic [63:0] word_o[WORDS],
    output logic [63:0] factor_o,
    output logic [63:0] addend_o[WORDS],
    input logic [63:0] product_i[WORDS],
    input logic [ROW_BITS-1:0] feed_row_i,
    output logic [63:0] row_o[WORDS],
    output logic store_tvalid_o,
    input logic store_tready_i,
    output logic [WORDS*64-1:0] store_tdata_o,
    output logic stored_o  // no row waits to be stored
);
  localparam int LOG_WORDS = $clog2(WORDS);
  localparam int TAKE = 3;
  localparam int READ = toroid_pkg::ram_latency(1'b1);
  localparam int READS = TAKE + PRODUCT - 3 - READ;  // of the row that is the addend
  localparam int SUM = TAKE + PRODUCT + 2;  // the sum is there
  localparam int STORE_DEPTH = 16;

  row_operation_t op_q;
  logic active_q, go, store_ready;
  logic [15:0] row_q;
  logic [SUM+1:0] valid_q;
  logic [ROW_BITS-1:0] row_at_q[SUM+2];
  logic [4:0] stored_q;

  assign store_ready = stored_q != 5'(STORE_DEPTH);
  assign op_ready_o = !active_q && valid_q == '0;
  assign go = active_q && (op_q.u != ROW_STREAM || available_i) && (op_q.u != ROW_STORE || store_ready);
  assign take_o = go && op_q.u == ROW_STREAM;
  assign pass_o = !op_ready_o;
  assign factor_o = op_q.factor;
  assign sum_row_o = row_at_q[0];

  always_ff @(posedge clk_i) begin
    if (op_valid_i && op_ready_o) begin
      active_q <= 1'b1;
      op_q <= op_i;
      row_q <= '0;
    end
    if (go) begin
      row_q <= row_q + 16'd1;
      if (row_q + 16'd1 == rows_i) active_q <= 1'b0;
    end
    valid_q <= {valid_q[SUM:0], go};
    row_at_q[0] <= ROW_BITS'(row_q);
    for (int stage = 1; stage < SUM + 2; stage++) row_at_q[stage] <= row_at_q[stage-1];
    if (!rst_ni) begin
      active_q <= 1'b0;
      valid_q  <= '0;
    end
  end

  // Rows are let go only as far as the queue has room for all that are on their way.
  logic store_taken, unused;
  assign store_taken = store_tvalid_o && store_tready_i;
  assign stored_o = stored_q == '0;
  always_ff @(posedge clk_i) begin
    stored_q <= stored_q + 5'(go && op_q.u == ROW_STORE) - 5'(store_taken);
    if (!rst_ni) stored_q <= '0;
  end

  logic [WORDS*64-1:0] store_words;
  stream_fifo #(
      .WIDTH(WORDS * 64),
      .DEPTH(STORE_DEPTH)
  ) i_store (
      .clk_i,
      .rst_ni,
      .in_tvalid_i(valid_q[READ-1] && op_q.u == ROW_STORE),
      .in_tready_o(unused),
      .in_tdata_i(store_words),
      .in_tlast_i(1'b0),
      .out_tvalid_o(store_tvalid_o),
      .out_tready_i(store_tready_i),
      .out_tdata_o(store_tdata_o),
      // Neither packets nor a count here.
      // verilator lint_off PINCONNECTEMPTY
      .out_tlast_o(),
      .count_o()
      // verilator lint_on PINCONNECTEMPTY
  );

  logic [ROW_BITS-1:0] read_row;
  assign read_row = op_ready_o ? feed_row_i : op_q.u == ROW_STORE ? ROW_BITS'(row_q) : row_at_q[READS-1];

  for (genvar word = 0; word < WORDS; word++) begin : gen_word
    logic above_q, top;
    logic [63:0] sum_q, result_q;
    assign store_words[word*64+:64] = row_o[word];

    delay #(
        .CYCLES(PRODUCT - 4)
    ) i_top (
        .clk_i,
        .d_i(word_o[word][31]),
        .q_o(top)
    );

    always_ff @(posedge clk_i) begin
      case (op_q.u)
        ROW_STREAM: word_o[word] <= stream_i[word];
        ROW_SUM: word_o[word] <= 64'(sum_i[word]);
        default: word_o[word] <= 64'(body_i == {(16 - LOG_WORDS)'(row_at_q[TAKE-1]), LOG_WORDS'(word)});
      endcase
      addend_o[word] <= op_q.t == ADD_SAMPLE ? row_o[word] : 64'(op_q.t == ADD_TOP_BIT && top);
      // What is above p/2 stands for a negative number, and p = 1 modulo 2^32.
      sum_q <= product_i[word];
      above_q <= product_i[word] > P >> 1;
      result_q <= op_q.torus32 ? 64'(sum_q[31:0] - 32'(above_q)) : sum_q;
    end

    ram_sdp #(
        .WIDTH(64),
        .DEPTH(ROWS)
    ) i_row (
        .clk_i,
        .we_i(valid_q[SUM+1] && op_q.u != ROW_STORE),
        .waddr_i(row_at_q[SUM+1]),
        .wdata_i(result_q),
        .raddr_i(read_row),
        .rdata_o(row_o[word])
    );
  end
endmodule
