// SPDX-License-Identifier: Apache-2.0 OR MIT
// Data mover to main memory: writes descriptors' beats in order. The stream is PORTS AXI4 ports of WIDTH bits side by side, as in `memory_reader`.
//
// PORTS: 1 or more. WIDTH: 32 to 1024, a power of two. DEPTH: 2 or more, beats that wait for memory.
//
// idle_o: everything that was taken has been written, and memory has said so. A reset while a burst is under way breaks the burst off: memory
// must be reset too.
module memory_writer #(
    parameter int PORTS = 1,
    parameter int WIDTH = 512,
    parameter int DEPTH = 16,
    parameter int ADDRESS_BITS = 40
) (
    input logic clk_i,
    input logic rst_ni,
    input logic desc_valid_i,
    output logic desc_ready_o,
    input logic [31:0] desc_address_i,
    input logic [31:0] desc_beats_i,
    input logic in_tvalid_i,
    output logic in_tready_o,
    input logic [PORTS-1:0][WIDTH-1:0] in_tdata_i,
    output logic idle_o,
    output logic [PORTS-1:0] m_axi_awvalid,
    input logic [PORTS-1:0] m_axi_awready,
    output logic [PORTS-1:0][ADDRESS_BITS-1:0] m_axi_awaddr,
    output logic [PORTS-1:0][7:0] m_axi_awlen,
    output logic [PORTS-1:0] m_axi_wvalid,
    input logic [PORTS-1:0] m_axi_wready,
    output logic [PORTS-1:0][WIDTH-1:0] m_axi_wdata,
    output logic [PORTS-1:0] m_axi_wlast,
    input logic [PORTS-1:0] m_axi_bvalid,
    output logic [PORTS-1:0] m_axi_bready
);
  localparam int BYTES = WIDTH / 8;
  localparam int BURST = 4096 / BYTES < 256 ? 4096 / BYTES : 256;

  if (PORTS < 1 || WIDTH < 32 || WIDTH > 1024 || (WIDTH & (WIDTH - 1)) != 0) begin : g_check
    $fatal(1, "memory_writer: WIDTH must be a power of two from 32 to 1024");
  end

  logic [PORTS-1:0] port_idle, port_ready;
  assign desc_ready_o = &port_idle;
  assign idle_o = &port_idle;
  assign in_tready_o = &port_ready;

  for (genvar port = 0; port < PORTS; port++) begin : gen_port
    typedef enum logic [1:0] {
      IDLE,
      ADDRESS,
      DATA,
      RESPONSE
    } state_e;
    state_e state_q;
    logic [31:0] address_q, beats_q;
    logic [8:0] burst, left_q;
    logic word_valid;

    stream_fifo #(
        .WIDTH(WIDTH),
        .DEPTH(DEPTH)
    ) i_words (
        .clk_i,
        .rst_ni,
        .in_tvalid_i(in_tvalid_i && in_tready_o),
        .in_tready_o(port_ready[port]),
        .in_tdata_i(in_tdata_i[port]),
        .in_tlast_i(1'b0),
        .out_tvalid_o(word_valid),
        .out_tready_i(state_q == DATA && m_axi_wready[port]),
        .out_tdata_o(m_axi_wdata[port]),
        // Neither packets nor a count here.
        // verilator lint_off PINCONNECTEMPTY
        .out_tlast_o(),
        .count_o()
        // verilator lint_on PINCONNECTEMPTY
    );

    always_comb begin
      burst = 9'(BURST) - 9'(address_q & 32'(BURST - 1));
      if (32'(burst) > beats_q) burst = beats_q[8:0];
    end

    assign port_idle[port] = state_q == IDLE;
    assign m_axi_awvalid[port] = state_q == ADDRESS;
    assign m_axi_awaddr[port] = ADDRESS_BITS'(address_q) << $clog2(BYTES);
    assign m_axi_awlen[port] = 8'(burst - 9'd1);
    assign m_axi_wvalid[port] = state_q == DATA && word_valid;
    assign m_axi_wlast[port] = left_q == 9'd1;
    assign m_axi_bready[port] = state_q == RESPONSE;

    always_ff @(posedge clk_i) begin
      case (state_q)
        IDLE:
        if (desc_valid_i && desc_ready_o && desc_beats_i != 0) begin
          address_q <= desc_address_i;
          beats_q   <= desc_beats_i;
          state_q   <= ADDRESS;
        end
        ADDRESS:
        if (m_axi_awready[port]) begin
          address_q <= address_q + 32'(burst);
          beats_q <= beats_q - 32'(burst);
          left_q <= burst;
          state_q <= DATA;
        end
        DATA:
        if (m_axi_wvalid[port] && m_axi_wready[port]) begin
          left_q <= left_q - 9'd1;
          if (left_q == 9'd1) state_q <= RESPONSE;
        end
        RESPONSE: if (m_axi_bvalid[port]) state_q <= beats_q == 0 ? IDLE : ADDRESS;
      endcase
      if (!rst_ni) state_q <= IDLE;
    end
  end
endmodule
