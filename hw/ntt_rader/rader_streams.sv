// SPDX-License-Identifier: Apache-2.0 OR MIT
// rader_streams: which beats enter and leave the columns of ntt_rader, and where.
//
// There is room for two transforms, which take turns: while one is computed, the results of the one before leave and
// the next enters, its beats behind those that have left. A column does one thing a cycle, and computing goes first.
//
// Word b of beat r is word COLUMNS r + b of the transform, and has the address (COLUMNS r + b) modulo WORDS: for lane
// b + COLUMNS, what lane b has in the next beat. So addresses go round in a ring of WORDS registers, and lane b has
// register b modulo WORDS.
//
// COLUMNS     P, words of a beat
// WORDS       C, words of a column, and beats of a transform
// CREDITS     beats that may be under way behind the columns
// loaded_o, inverse_o    see rader_control
// take_o, load_*_o       a beat enters: its words are written in this cycle
// unload_o, unload_*_o   a beat is read in this cycle
// leave_i                a beat has left
module rader_streams #(
    parameter int COLUMNS = 257,
    parameter int WORDS = 85,
    parameter int CREDITS = 8,
    localparam int Word = toroid_pkg::index_width(WORDS)
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       in_tvalid_i,
    output logic                       in_tready_o,
    input  logic                       in_tuser_i,
    output logic [      1:0]           loaded_o,
    output logic [      1:0]           inverse_o,
    input  logic                       finished_i,
    input  logic                       finished_set_i,
    input  logic                       reads_soon_i,
    input  logic                       writes_soon_i,
    output logic                       take_o,
    output logic                       load_set_o,
    output logic [WORDS-1:0][Word-1:0] load_ring_o,
    output logic                       unload_o,
    output logic                       unload_set_o,
    output logic [WORDS-1:0][Word-1:0] unload_ring_o,
    output logic                       unload_last_o,
    output logic                       unload_inverse_o,
    input  logic                       leave_i
);
  if (WORDS < 2 || COLUMNS <= WORDS || COLUMNS % WORDS == 0 || CREDITS < 1) begin : g_check
    $fatal(1, "rader_streams: 2 <= WORDS < COLUMNS, of which it is no divisor, and CREDITS >= 1 are needed");
  end

  localparam int CountWidth = $clog2(WORDS + 1);
  localparam int CreditWidth = $clog2(CREDITS + 1);
  localparam logic [CountWidth-1:0] Last = CountWidth'(WORDS - 1);

  // By memory: all words are there and computing has not ended; results are there. The direction of what leaves must
  // outlast the first beat of the next.
  logic [1:0] loaded_q, loaded_d, done_q, done_d, inverse_q, inverse_d, result_inverse_q, result_inverse_d;
  logic [CountWidth-1:0] load_q, load_d, unload_q, unload_d;
  logic load_set_q, load_set_d, unload_set_q, unload_set_d, ready_q, ready_d, issue, issue_q, last_q;
  logic read_set_q, read_inverse_q;
  logic [CreditWidth-1:0] credits_q;

  assign take_o = in_tvalid_i && ready_q;
  assign issue  = done_q[unload_set_q] && credits_q != '0 && !reads_soon_i;
  always_comb begin
    {loaded_d, done_d, inverse_d, result_inverse_d} = {loaded_q, done_q, inverse_q, result_inverse_q};
    {load_d, unload_d, load_set_d, unload_set_d} = {load_q, unload_q, load_set_q, unload_set_q};
    if (take_o) begin
      if (load_q == '0) inverse_d[load_set_q] = in_tuser_i;
      load_d = load_q == Last ? '0 : load_q + 1'b1;
      if (load_q == Last) begin
        loaded_d[load_set_q] = 1'b1;
        load_set_d = !load_set_q;
      end
    end
    if (issue) begin
      unload_d = unload_q == Last ? '0 : unload_q + 1'b1;
      if (unload_q == Last) begin
        done_d[unload_set_q] = 1'b0;
        unload_set_d = !unload_set_q;
      end
    end
    if (finished_i) begin
      loaded_d[finished_set_i] = 1'b0;
      done_d[finished_set_i] = 1'b1;
      result_inverse_d[finished_set_i] = inverse_q[finished_set_i];
    end
    ready_d = !writes_soon_i && !loaded_d[load_set_d] && (!done_d[load_set_d] || load_d < unload_q);
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      {loaded_q, done_q, load_set_q, unload_set_q, ready_q, issue_q} <= '0;
      {load_q, unload_q} <= '0;
      credits_q <= CreditWidth'(CREDITS);
    end else begin
      {loaded_q, done_q, load_set_q, unload_set_q} <= {loaded_d, done_d, load_set_d, unload_set_d};
      {ready_q, issue_q} <= {ready_d, issue};
      {load_q, unload_q} <= {load_d, unload_d};
      credits_q <= credits_q + CreditWidth'(leave_i) - CreditWidth'(issue);
    end
    {inverse_q, result_inverse_q} <= {inverse_d, result_inverse_d};
    {last_q, read_set_q} <= {unload_q == Last, unload_set_q};
    read_inverse_q <= result_inverse_q[unload_set_q];
  end
  assign in_tready_o = ready_q;
  assign {loaded_o, inverse_o} = {loaded_q, inverse_q};
  assign {load_set_o, unload_set_o} = {load_set_q, read_set_q};
  assign {unload_o, unload_last_o, unload_inverse_o} = {issue_q, last_q, read_inverse_q};

  // Behind the last beat they are as before the first.
  localparam int Step = COLUMNS % WORDS;
  function automatic logic [WORDS-1:0][Word-1:0] first_addresses();
    logic [WORDS-1:0][Word-1:0] addresses;
    for (int n = 0; n < WORDS; n++) addresses[n] = Word'(n);
    return addresses;
  endfunction
  localparam logic [WORDS-1:0][Word-1:0] First = first_addresses();
  logic [WORDS-1:0][Word-1:0] load_ring_q, unload_ring_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) load_ring_q <= First;
    else if (take_o) load_ring_q <= {load_ring_q[Step-1:0], load_ring_q[WORDS-1:Step]};
    if (!rst_ni) unload_ring_q <= First;
    else if (issue_q) unload_ring_q <= {unload_ring_q[Step-1:0], unload_ring_q[WORDS-1:Step]};
  end
  assign {load_ring_o, unload_ring_o} = {load_ring_q, unload_ring_q};
endmodule
