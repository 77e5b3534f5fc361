// SPDX-License-Identifier: Apache-2.0 OR MIT
// Data mover from main memory: reads descriptors' beats in order, ahead of their use, into a buffer.
//
// PORTS AXI4 ports of WIDTH bits stand side by side: a beat of the stream is one beat of each port, all at the same address. A descriptor
// (first address and number of beats) is taken where desc_ready_o is set. A beat is spoken for by take_i while available_o is set; its data are
// at data_o TAKE_LATENCY cycles later. filled_o beats can be spoken for.
//
// PORTS: 1 or more. WIDTH: 32 to 1024, a power of two. LOG_DEPTH: 5 to 12, log2 of the buffer's beats; it must hold what comes
// within the memory's latency for the stream not to stall. TAKE_LATENCY: 3 to 16.
module memory_reader #(
    parameter int PORTS = 1,
    parameter int WIDTH = 512,
    parameter int LOG_DEPTH = 9,
    parameter int TAKE_LATENCY = 7,
    parameter int ADDRESS_BITS = 40
) (
    input logic clk_i,
    input logic rst_ni,
    input logic desc_valid_i,
    output logic desc_ready_o,
    input logic [31:0] desc_address_i,
    input logic [31:0] desc_beats_i,
    output logic available_o,
    output logic [LOG_DEPTH:0] filled_o,
    input logic take_i,
    output logic [PORTS-1:0][WIDTH-1:0] data_o,
    output logic [PORTS-1:0] m_axi_arvalid,
    input logic [PORTS-1:0] m_axi_arready,
    output logic [PORTS-1:0][ADDRESS_BITS-1:0] m_axi_araddr,
    output logic [PORTS-1:0][7:0] m_axi_arlen,
    input logic [PORTS-1:0] m_axi_rvalid,
    output logic [PORTS-1:0] m_axi_rready,
    input logic [PORTS-1:0][WIDTH-1:0] m_axi_rdata
);
  localparam int BYTES = WIDTH / 8;
  // A burst must not cross 4 KiB nor exceed 256 beats, and leaves room in the buffer for others.
  localparam int LOG_PAGE = $clog2(4096 / BYTES) < 8 ? $clog2(4096 / BYTES) : 8;
  localparam int LOG_BURST = LOG_PAGE < LOG_DEPTH - 2 ? LOG_PAGE : LOG_DEPTH - 2;
  localparam int BURST = 1 << LOG_BURST;
  // A beat that is spoken for stays in the buffer until it is read.
  localparam int USABLE = (1 << LOG_DEPTH) - TAKE_LATENCY;

  if (PORTS < 1 || WIDTH < 32 || WIDTH > 1024 || (WIDTH & (WIDTH - 1)) != 0 || LOG_DEPTH < 5 || LOG_DEPTH > 12 ||
      TAKE_LATENCY < 3 || TAKE_LATENCY > 16) begin : g_check
    $fatal(1, "memory_reader: WIDTH must be a power of two from 32 to 1024, LOG_DEPTH 5 to 12, TAKE_LATENCY 3 to 16");
  end

  logic [PORTS-1:0] port_ready, port_available;
  assign desc_ready_o = &port_ready;
  assign available_o  = &port_available;

  logic [LOG_DEPTH:0] port_filled[PORTS];
  always_comb begin
    filled_o = port_filled[0];
    for (int port = 1; port < PORTS; port++) if (port_filled[port] < filled_o) filled_o = port_filled[port];
  end

  for (genvar port = 0; port < PORTS; port++) begin : gen_port
    logic desc_valid, desc_ready;
    logic [31:0] desc_address, desc_beats;
    logic [31:0] address_q, beats_q;
    logic [LOG_DEPTH:0] claimed_q;  // beats of the buffer that are asked for, filled, or still to be read
    logic [LOG_DEPTH:0] filled_q;  // beats that may be spoken for
    logic [LOG_DEPTH-1:0] write_q, take_q, read_q[TAKE_LATENCY-2];
    logic [8:0] burst;
    logic ar_sent, r_taken;

    stream_fifo #(
        .WIDTH(64),
        .DEPTH(8)
    ) i_descriptors (
        .clk_i,
        .rst_ni,
        .in_tvalid_i(desc_valid_i && desc_ready_o),
        .in_tready_o(port_ready[port]),
        .in_tdata_i({desc_address_i, desc_beats_i}),
        .in_tlast_i(1'b0),
        .out_tvalid_o(desc_valid),
        .out_tready_i(desc_ready),
        .out_tdata_o({desc_address, desc_beats}),
        // Neither packets nor a count here.
        // verilator lint_off PINCONNECTEMPTY
        .out_tlast_o(),
        .count_o()
        // verilator lint_on PINCONNECTEMPTY
    );

    // To the end of the burst-sized block that the address is in, or to the end of the descriptor.
    always_comb begin
      burst = 9'(BURST) - 9'(address_q & 32'(BURST - 1));
      if (32'(burst) > beats_q) burst = beats_q[8:0];
    end

    assign desc_ready = beats_q == 0;
    assign m_axi_arvalid[port] = beats_q != 0 && claimed_q + (LOG_DEPTH + 1)'(BURST) <= (LOG_DEPTH + 1)'(USABLE);
    assign m_axi_araddr[port] = ADDRESS_BITS'(address_q) << $clog2(BYTES);
    assign m_axi_arlen[port] = 8'(burst - 9'd1);
    assign m_axi_rready[port] = 1'b1;
    assign ar_sent = m_axi_arvalid[port] && m_axi_arready[port];
    assign r_taken = m_axi_rvalid[port];
    assign port_available[port] = filled_q != 0;
    assign port_filled[port] = filled_q;

    always_ff @(posedge clk_i) begin
      if (desc_valid && desc_ready) begin
        address_q <= desc_address;
        beats_q   <= desc_beats;
      end else if (ar_sent) begin
        address_q <= address_q + 32'(burst);
        beats_q   <= beats_q - 32'(burst);
      end
      claimed_q <= claimed_q + (ar_sent ? (LOG_DEPTH + 1)'(burst) : '0) - (LOG_DEPTH + 1)'(take_i);
      filled_q <= filled_q + (LOG_DEPTH + 1)'(r_taken) - (LOG_DEPTH + 1)'(take_i);
      write_q <= write_q + LOG_DEPTH'(r_taken);
      take_q <= take_q + LOG_DEPTH'(take_i);
      read_q[0] <= take_q;
      for (int stage = 1; stage < TAKE_LATENCY - 2; stage++) read_q[stage] <= read_q[stage-1];
      if (!rst_ni) begin
        beats_q <= '0;
        claimed_q <= '0;
        filled_q <= '0;
        write_q <= '0;
        take_q <= '0;
      end
    end

    ram_sdp #(
        .WIDTH(WIDTH),
        .DEPTH(1 << LOG_DEPTH)
    ) i_buffer (
        .clk_i,
        .we_i(r_taken),
        .waddr_i(write_q),
        .wdata_i(m_axi_rdata[port]),
        .raddr_i(read_q[TAKE_LATENCY-3]),
        .rdata_o(data_o[port])
    );
  end
endmodule
