// SPDX-License-Identifier: Apache-2.0 OR MIT
// permutation_network: a fixed permutation of the words of frames of 2^LOG_BEATS beats of 2^LOG_LANES words. Frames
// come back to back or with gaps, and with gaps within them; one leaves in as many cycles as it enters in, or
// less.
//
// Columns of switches bring each word of a beat to its bank, a memory; each beat of the output reads a word of every
// bank, and columns of switches bring them to their lanes. Beat u leaves once beat u + DELAY or the last of its frame
// is there. toroid_cores::order::network computes the parameters from LOG_DEPTH on, whose defaults change nothing.
//
// LOG_LANES    0 to 7
// LOG_BEATS    0 to 20
// WIDTH        bits of a word, >= 1
// DELAY        most beats by which a word moves towards the front of its frame, 0 to 2^LOG_BEATS - 1; 0 if and only if
//              each word keeps its beat: then there is no memory
// LOG_DEPTH    2^LOG_DEPTH words a bank, at least 2 + DELAY + most beats by which a word moves towards the end
// FIRST_MAP    of the switches in front of the banks (permutation_pkg), with WRITE_FILE
// ADDRESS_MAP  of the bits of addresses, those of bank 0 first, with READ_FILE: the beat of the input, modulo
//              2^LOG_DEPTH
// SECOND_MAP   of the switches behind the banks, with READ_FILE
// WRITE_BITS   bits of the ROM in WRITE_FILE, with a word for each beat of the input; 0: there is none
// READ_BITS    bits of the ROM in READ_FILE, with a word for each beat of the output; 0: there is none
// Latency: permutation_pkg::latency. The outputs are behind up to three columns of switches without a register.
// Source: T. Ye, Y. Yang, S. Kuppannagari, R. Kannan, V. Prasanna, FPGA Acceleration of Number Theoretic Transform,
// section 4.3, whose two Benes networks have 2 LOG_LANES - 1 columns each; here LOG_LANES suffice (README.md).
module permutation_network
  import permutation_pkg::*;
#(
    parameter int LOG_LANES = 1,
    parameter int LOG_BEATS = 0,
    parameter int WIDTH = 64,
    parameter int DELAY = 0,
    parameter int LOG_DEPTH = LOG_BEATS + 1,
    parameter logic [map_width(switches(LOG_LANES))-1:0] FIRST_MAP = '0,
    parameter logic [map_width(address_bits(LOG_BEATS, LOG_DEPTH, DELAY) << LOG_LANES)-1:0] ADDRESS_MAP = '0,
    parameter logic [map_width(switches(LOG_LANES))-1:0] SECOND_MAP = '0,
    parameter int WRITE_BITS = 0,
    parameter string WRITE_FILE = "",
    parameter int READ_BITS = 0,
    parameter string READ_FILE = "",
    localparam int Lanes = 1 << LOG_LANES
) (
    input  logic                        clk_i,
    input  logic                        rst_ni,
    input  logic                        in_valid_i,
    input  logic [Lanes-1:0][WIDTH-1:0] in_data_i,
    // The beat that is given now is the last of its frame.
    output logic                        in_last_o,
    output logic                        out_valid_o,
    output logic [Lanes-1:0][WIDTH-1:0] out_data_o,
    output logic                        out_last_o
);
  if (LOG_LANES < 0 || LOG_LANES > MAX_LOG_LANES || LOG_BEATS < 0 || LOG_BEATS > MAX_LOG_BEATS) begin : g_check_shape
    $fatal(1, "permutation_network: 0 <= LOG_LANES <= 7 and 0 <= LOG_BEATS <= 20 are needed");
  end
  if (WIDTH < 1) begin : g_check_width
    $fatal(1, "permutation_network: WIDTH must be at least 1");
  end
  if (DELAY < 0 || DELAY >= (1 << LOG_BEATS)) begin : g_check_delay
    $fatal(1, "permutation_network: 0 <= DELAY < 2^LOG_BEATS is needed");
  end
  if (DELAY != 0 && (LOG_DEPTH < 1 || LOG_DEPTH > LOG_BEATS + 1 || (1 << LOG_DEPTH) < DELAY + 2)) begin : g_check_depth
    $fatal(1, "permutation_network: DELAY + 2 <= 2^LOG_DEPTH <= 2^(LOG_BEATS + 1) is needed");
  end
  if (WRITE_BITS < 0 || READ_BITS < 0 || (WRITE_BITS != 0 && WRITE_FILE == "") || (READ_BITS != 0 && READ_FILE == "")) begin : g_check_files
    $fatal(
        1, "permutation_network: WRITE_FILE and READ_FILE must name the contents of ROMs of WRITE_BITS and READ_BITS"
    );
  end

  localparam int Beats = 1 << LOG_BEATS;
  localparam int BeatWidth = toroid_pkg::index_width(Beats);
  localparam logic [BeatWidth-1:0] LastBeat = BeatWidth'(Beats - 1);
  localparam int FirstLatency = columns_latency(switch_map_t'(FIRST_MAP), LOG_LANES);
  localparam int SecondLatency = columns_latency(switch_map_t'(SECOND_MAP), LOG_LANES);

  // Of the input and of the output: the beat that comes next, and its control signals, which the ROM reads ahead.
  logic [BeatWidth-1:0] in_beat_q, in_beat_d, out_beat_q, out_beat_d;
  logic issue, in_last, out_last;
  assign in_last = in_beat_q == LastBeat;
  assign out_last = out_beat_q == LastBeat;
  assign in_beat_d = !rst_ni ? '0 : !in_valid_i ? in_beat_q : in_last ? '0 : in_beat_q + 1'b1;
  assign out_beat_d = !rst_ni ? '0 : !issue ? out_beat_q : out_last ? '0 : out_beat_q + 1'b1;
  always_ff @(posedge clk_i) begin
    in_beat_q  <= in_beat_d;
    out_beat_q <= out_beat_d;
  end
  assign in_last_o = in_last;

  localparam int WriteControls = BeatWidth + WRITE_BITS;
  logic [WriteControls-1:0] write_controls;
  if (WRITE_BITS > 0) begin : g_write_rom
    logic [WRITE_BITS-1:0] word;
    rom #(
        .WIDTH          (WRITE_BITS),
        .DEPTH          (Beats),
        .FILE           (WRITE_FILE),
        .OUTPUT_REGISTER(0)
    ) i_rom (
        .clk_i,
        .addr_i(in_beat_d),
        .data_o(word)
    );
    assign write_controls = {word, in_beat_q};
  end else begin : g_write_counter
    assign write_controls = in_beat_q;
  end

  localparam int ReadControls = BeatWidth + READ_BITS;
  logic [ReadControls-1:0] read_controls;
  if (READ_BITS > 0) begin : g_read_rom
    logic [READ_BITS-1:0] word;
    rom #(
        .WIDTH          (READ_BITS),
        .DEPTH          (Beats),
        .FILE           (READ_FILE),
        .OUTPUT_REGISTER(0)
    ) i_rom (
        .clk_i,
        .addr_i(out_beat_d),
        .data_o(word)
    );
    assign read_controls = {word, out_beat_q};
  end else begin : g_read_counter
    assign read_controls = out_beat_q;
  end

  logic [Lanes-1:0][WIDTH-1:0] write_data, read_data;
  permutation_columns #(
      .LOG_LANES(LOG_LANES),
      .WIDTH    (WIDTH),
      .CONTROLS (WriteControls),
      .MAP      (FIRST_MAP)
  ) i_first (
      .clk_i,
      .controls_i(write_controls),
      .data_i    (in_data_i),
      .data_o    (write_data)
  );

  logic write_valid, write_last;
  valid_delay #(
      .CYCLES(FirstLatency)
  ) i_write (
      .clk_i,
      .rst_ni,
      .valid_i(in_valid_i),
      .valid_o(write_valid)
  );
  delay #(
      .WIDTH (1),
      .CYCLES(FirstLatency)
  ) i_write_last (
      .clk_i,
      .d_i(in_last),
      .q_o(write_last)
  );

  localparam int Middle = DELAY != 0 ? 1 : middle_latency(
      switch_map_t'(FIRST_MAP), switch_map_t'(SECOND_MAP), LOG_LANES, 0
  );
  if (DELAY == 0) begin : g_space
    // Beats leave as they come.
    assign issue = write_valid;
    delay #(
        .WIDTH (Lanes * WIDTH),
        .CYCLES(Middle)
    ) i_data (
        .clk_i,
        .d_i(write_data),
        .q_o(read_data)
    );
    logic unused;
    assign unused = write_last;
  end else begin : g_banks
    // How many beats are written that were not yet issued before, never more than one above DELAY; and whether the last
    // of the frame that leaves is among them.
    localparam int AheadWidth = $clog2(DELAY + 2);
    localparam int AddressBits = address_bits(LOG_BEATS, LOG_DEPTH, DELAY);
    logic [AheadWidth-1:0] ahead_q;
    logic [ LOG_DEPTH-1:0] write_address_q;
    logic is_complete_q, frame_q;
    assign issue = is_complete_q || ahead_q == AheadWidth'(DELAY + 1);
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        ahead_q         <= '0;
        write_address_q <= '0;
        is_complete_q   <= 1'b0;
        frame_q         <= 1'b0;
      end else begin
        ahead_q         <= ahead_q + AheadWidth'(write_valid) - AheadWidth'(issue);
        write_address_q <= write_address_q + LOG_DEPTH'(write_valid);
        if (write_valid && write_last) is_complete_q <= 1'b1;
        else if (issue && out_last) is_complete_q <= 1'b0;
        if (issue && out_last) frame_q <= !frame_q;
      end
    end
    for (genvar bank = 0; bank < Lanes; bank++) begin : g_bank
      logic [LOG_DEPTH-1:0] read_address;
      for (genvar n = 0; n < AddressBits; n++) begin : g_bit
        localparam logic [ENTRY_BITS-1:0] Entry = ADDRESS_MAP[(bank*AddressBits+n)*ENTRY_BITS+:ENTRY_BITS];
        if (Entry < 2) begin : g_constant
          assign read_address[n] = Entry[0];
        end else begin : g_control
          assign read_address[n] = read_controls[int'(Entry)/2-1] ^ Entry[0];
        end
      end
      if (AddressBits < LOG_DEPTH) begin : g_frame
        assign read_address[LOG_DEPTH-1] = frame_q;
      end
      ram_sdp #(
          .WIDTH          (WIDTH),
          .DEPTH          (1 << LOG_DEPTH),
          .OUTPUT_REGISTER(0)
      ) i_memory (
          .clk_i,
          .we_i   (write_valid),
          .waddr_i(write_address_q),
          .wdata_i(write_data[bank]),
          .raddr_i(read_address),
          .rdata_o(read_data[bank])
      );
    end
    if (AddressBits == LOG_DEPTH) begin : g_one_frame
      logic unused;
      assign unused = frame_q;
    end
  end

  logic [ReadControls-1:0] second_controls;
  delay #(
      .WIDTH (ReadControls),
      .CYCLES(Middle)
  ) i_controls (
      .clk_i,
      .d_i(read_controls),
      .q_o(second_controls)
  );
  permutation_columns #(
      .LOG_LANES(LOG_LANES),
      .WIDTH    (WIDTH),
      .CONTROLS (ReadControls),
      .REVERSE  (1),
      .MAP      (SECOND_MAP)
  ) i_second (
      .clk_i,
      .controls_i(second_controls),
      .data_i    (read_data),
      .data_o    (out_data_o)
  );
  valid_delay #(
      .CYCLES(Middle + SecondLatency)
  ) i_read (
      .clk_i,
      .rst_ni,
      .valid_i(issue),
      .valid_o(out_valid_o)
  );
  delay #(
      .WIDTH (1),
      .CYCLES(Middle + SecondLatency)
  ) i_read_last (
      .clk_i,
      .d_i(out_last),
      .q_o(out_last_o)
  );
endmodule
