// SPDX-License-Identifier: Apache-2.0 OR MIT
// rader_control: the order of events of ntt_rader's transforms, and what elements and columns need for it.
//
// A transform begins as soon as its words are loaded and the one before has issued its last operation. First come the
// rows, in groups of LOOP: a row a cycle, 2 LOG_POINTS passes each, of which the first reads and the last writes. Then
// come the steps of the program, two cycles each: in the first, the first columns read a and the second columns read
// the b of the step before; in the second it is b and a.
//
// LOG_POINTS  log2(P - 1): passes in one direction
// WORDS       C, words of a column
// SLOTS       steps of the program, those that do nothing among them
// PROGRAM     file of the program: {valid, mode, b, a, w}, for an inverse transform from 2^index_width(SLOTS) on
// PRODUCT_LATENCY  ntt_rader_pkg::product_latency
// loaded_i    by transform memory: its words are there
// inverse_i   by transform memory: the direction
// finished_o, finished_set_o    the results are there from the next cycle on
// row_address_o                 {direction, pass} for a ROM of latency 2 with the elements' constants
// *_o[0] and [1]                for first and second columns
// reads_soon_o, writes_soon_o   in the next cycle some column reads (is given what it writes)
module rader_control
  import ntt_rader_pkg::*;
#(
    parameter int LOG_POINTS = 8,
    parameter int WORDS = 85,
    parameter int SLOTS = 478,
    parameter string PROGRAM = "",
    parameter int PRODUCT_LATENCY = 12,
    localparam int Word = toroid_pkg::index_width(WORDS),
    localparam int Passes = 2 * LOG_POINTS,
    localparam int PassWidth = toroid_pkg::index_width(Passes)
) (
    input  logic                                   clk_i,
    input  logic                                   rst_ni,
    input  logic             [        1:0]         loaded_i,
    input  logic             [        1:0]         inverse_i,
    output logic                                   finished_o,
    output logic                                   finished_set_o,
    output element_control_t                       control_o,
    output logic             [  WIDTH-1:0]         step_constant_o,
    output logic             [PassWidth:0]         row_address_o,
    output logic             [        1:0][Word:0] read_address_o,
    output logic             [        1:0]         write_o,
    output logic             [        1:0]         second_o,
    output logic             [        1:0][Word:0] write_address_o,
    output logic                                   reads_soon_o,
    output logic                                   writes_soon_o
);
  if (LOG_POINTS < 1 || WORDS < 1 || SLOTS < 1 || PRODUCT_LATENCY < 1) begin : g_check
    $fatal(1, "rader_control: LOG_POINTS, WORDS, SLOTS and PRODUCT_LATENCY must be at least 1");
  end

  localparam int Groups = toroid_pkg::ceil_div(WORDS, LOOP);
  localparam int GroupWidth = toroid_pkg::index_width(Groups);
  localparam int SlotWidth = toroid_pkg::index_width(LOOP);
  // The last row of a group may lie behind the last word.
  localparam int RowWidth = $clog2((LOOP + 1) * Groups + 1);
  localparam int StepWidth = toroid_pkg::index_width(SLOTS);

  // What is issued.
  logic run_q, run_d, is_step_q, is_step_d, half_q, half_d, set_q, set_d;
  logic [SlotWidth-1:0] slot_q, slot_d;
  logic [PassWidth-1:0] pass_q, pass_d;
  logic [GroupWidth-1:0] group_q, group_d;
  logic [RowWidth-1:0] row_q, row_d;
  logic [StepWidth-1:0] step_q, step_d;
  logic finish;
  assign finish = run_q && is_step_q && half_q && step_q == StepWidth'(SLOTS - 1);
  always_comb begin
    {run_d, is_step_d, half_d, set_d} = {run_q, is_step_q, half_q, set_q};
    {slot_d, pass_d, group_d, row_d, step_d} = {slot_q, pass_q, group_q, row_q, step_q};
    if (!run_q) begin
      run_d = loaded_i[set_q];
    end else if (!is_step_q) begin
      slot_d = slot_q + 1'b1;
      row_d  = row_q + RowWidth'(Groups);
      if (slot_q == SlotWidth'(LOOP - 1)) begin
        slot_d = '0;
        pass_d = pass_q + 1'b1;
        if (pass_q == PassWidth'(Passes - 1)) begin
          pass_d  = '0;
          group_d = group_q + 1'b1;
          if (group_q == GroupWidth'(Groups - 1)) begin
            group_d   = '0;
            is_step_d = 1'b1;
          end
        end
        row_d = RowWidth'(group_d);
      end
    end else begin
      half_d = !half_q;
      if (half_q) step_d = step_q + 1'b1;
      if (finish) begin
        step_d = '0;
        is_step_d = 1'b0;
        set_d = !set_q;
        run_d = loaded_i[set_d];
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      {run_q, is_step_q, half_q, set_q} <= '0;
      {slot_q, pass_q, group_q, row_q, step_q} <= '0;
    end else begin
      {run_q, is_step_q, half_q, set_q} <= {run_d, is_step_d, half_d, set_d};
      {slot_q, pass_q, group_q, row_q, step_q} <= {slot_d, pass_d, group_d, row_d, step_d};
    end
  end

  // The program is read in two cycles, beside which all else waits.
  logic program_valid;
  logic [1:0] program_mode;
  logic [Word-1:0] program_a, program_b;
  logic [WIDTH-1:0] program_constant;
  rom #(
      .WIDTH(3 + 2 * Word + WIDTH),
      .DEPTH(2 << StepWidth),
      .FILE (PROGRAM)
  ) i_program (
      .clk_i,
      .addr_i({inverse_i[set_q], step_q}),
      .data_o({program_valid, program_mode, program_b, program_a, program_constant})
  );
  logic runs, is_step, half, set, is_valid_row;
  logic [PassWidth-1:0] pass;
  logic [Word-1:0] row;
  valid_delay #(
      .CYCLES(2)
  ) i_runs (
      .clk_i,
      .rst_ni,
      .valid_i(run_q),
      .valid_o(runs)
  );
  delay #(
      .WIDTH (4 + PassWidth + Word),
      .CYCLES(2)
  ) i_issued (
      .clk_i,
      .d_i({is_step_q, half_q, set_q, row_q < RowWidth'(WORDS), pass_q, Word'(row_q)}),
      .q_o({is_step, half, set, is_valid_row, pass, row})
  );

  // Cycle 0 of what was issued, behind these registers.
  logic reads, writes, reads_0, writes_0, is_step_0, half_0, injects_0;
  logic [Word:0] address_0;
  source_e source, source_0;
  mode_e mode, mode_0;
  assign reads  = runs && (is_step ? program_valid : is_valid_row && pass == '0);
  assign writes = runs && (is_step ? program_valid : is_valid_row && pass == PassWidth'(Passes - 1));
  always_comb begin
    source = FROM_INVERSE;
    mode   = MODE_INVERSE;
    if (pass == PassWidth'(LOG_POINTS)) begin
      source = FROM_SELF;
      mode   = MODE_TURN;
    end else if (pass < PassWidth'(LOG_POINTS)) begin
      source = FROM_FORWARD;
      mode   = MODE_FORWARD;
    end
    if (is_step || pass == '0) source = FROM_COLUMNS;
    if (is_step) mode = mode_e'(program_mode);
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) {reads_0, writes_0} <= '0;
    else {reads_0, writes_0} <= {reads, writes};
    address_0 <= {set, !is_step ? row : half ? program_b : program_a};
    {is_step_0, half_0} <= {is_step, half};
    injects_0 <= !is_step && pass == PassWidth'(LOG_POINTS - 1);
    source_0 <= source;
    mode_0 <= mode;
  end
  assign reads_soon_o = reads || reads_0;
  assign read_address_o[0] = address_0;
  always_ff @(posedge clk_i) read_address_o[1] <= address_0;

  delay #(
      .CYCLES(AT_FIRST)
  ) i_first (
      .clk_i,
      .d_i(is_step_0 && half_0),
      .q_o(control_o.first_upper)
  );
  logic [1:0] source_late;
  delay #(
      .WIDTH (3),
      .CYCLES(AT_SECOND)
  ) i_second (
      .clk_i,
      .d_i({!is_step_0 || half_0, source_0}),
      .q_o({control_o.second_upper, source_late})
  );
  assign control_o.source = source_e'(source_late);
  logic [1:0] mode_early, mode_late;
  delay #(
      .WIDTH (3),
      .CYCLES(AT_OPERANDS)
  ) i_operands (
      .clk_i,
      .d_i({mode_0, !is_step_0}),
      .q_o({mode_early, control_o.is_row})
  );
  assign control_o.mode = mode_e'(mode_early);
  delay #(
      .CYCLES(AT_SUMS)
  ) i_sums (
      .clk_i,
      .d_i(injects_0),
      .q_o(control_o.inject)
  );
  delay #(
      .WIDTH (2),
      .CYCLES(AT_SUMS + PRODUCT_LATENCY)
  ) i_mode_late (
      .clk_i,
      .d_i(mode_0),
      .q_o(mode_late)
  );
  assign control_o.mode_late = mode_e'(mode_late);
  delay #(
      .WIDTH (WIDTH),
      .CYCLES(AT_OPERANDS + 1)
  ) i_step_constant (
      .clk_i,
      .d_i(program_constant),
      .q_o(step_constant_o)
  );
  delay #(
      .WIDTH (PassWidth + 1),
      .CYCLES(AT_OPERANDS + 1)
  ) i_row_address (
      .clk_i,
      .d_i({inverse_i[set_q], pass_q}),
      .q_o(row_address_o)
  );

  // What comes back is written.
  logic writes_next;
  valid_delay #(
      .CYCLES(AT_RESULTS - 1)
  ) i_writes (
      .clk_i,
      .rst_ni,
      .valid_i(writes_0),
      .valid_o(writes_next)
  );
  always_ff @(posedge clk_i) begin
    if (!rst_ni) write_o <= '0;
    else write_o <= {write_o[0], writes_next};
  end
  assign writes_soon_o = writes_next || write_o[0];
  logic second_upper;
  delay #(
      .WIDTH (3 + Word),
      .CYCLES(AT_RESULTS)
  ) i_write_address (
      .clk_i,
      .d_i({!is_step_0 || half_0, is_step_0 && half_0, address_0}),
      .q_o({second_upper, second_o[0], write_address_o[0]})
  );
  always_ff @(posedge clk_i) begin
    second_o[1] <= second_upper;
    write_address_o[1] <= write_address_o[0];
  end

  // Issue, three cycles to cycle 0, and the write of the second word of the second columns.
  localparam int Finish = 3 + AT_RESULTS + 2;
  valid_delay #(
      .CYCLES(Finish)
  ) i_finished (
      .clk_i,
      .rst_ni,
      .valid_i(finish),
      .valid_o(finished_o)
  );
  delay #(
      .CYCLES(Finish)
  ) i_finished_set (
      .clk_i,
      .d_i(set_q),
      .q_o(finished_set_o)
  );
endmodule
