// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_fifo: a queue of DEPTH words of an AXI4-Stream in a ram_sdp; a word per cycle.
//
// WIDTH  bits of tdata, >= 1
// DEPTH  words, >= 2
// Latency: 2, from a word that enters an empty queue to out_tvalid_o
module stream_fifo #(
    parameter int WIDTH = 64,
    parameter int DEPTH = 16,
    localparam int CountWidth = $clog2(DEPTH + 1)
) (
    input  logic                  clk_i,
    input  logic                  rst_ni,
    input  logic                  in_tvalid_i,
    output logic                  in_tready_o,
    input  logic [     WIDTH-1:0] in_tdata_i,
    input  logic                  in_tlast_i,
    output logic                  out_tvalid_o,
    input  logic                  out_tready_i,
    output logic [     WIDTH-1:0] out_tdata_o,
    output logic                  out_tlast_o,
    output logic [CountWidth-1:0] count_o
);
  if (WIDTH < 1) begin : g_check_width
    $fatal(1, "stream_fifo: WIDTH must be at least 1");
  end
  if (DEPTH < 2) begin : g_check_depth
    $fatal(1, "stream_fifo: DEPTH must be at least 2");
  end

  localparam int AddressWidth = toroid_pkg::index_width(DEPTH);
  localparam logic [AddressWidth-1:0] Last = AddressWidth'(DEPTH - 1);

  // The memory reads ahead: in each cycle it is given the address of the word that the output shows in the next one.
  logic [AddressWidth-1:0] head_q, head_d, tail_q, tail_d;
  logic [CountWidth-1:0] count_q, rest;
  logic valid_q, push, pop;
  assign push = in_tvalid_i && in_tready_o;
  assign pop = valid_q && out_tready_i;
  assign head_d = !pop ? head_q : head_q == Last ? '0 : head_q + 1'b1;
  assign tail_d = !push ? tail_q : tail_q == Last ? '0 : tail_q + 1'b1;
  assign rest = count_q - CountWidth'(pop);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q  <= '0;
      tail_q  <= '0;
      count_q <= '0;
      valid_q <= 1'b0;
    end else begin
      head_q  <= head_d;
      tail_q  <= tail_d;
      count_q <= rest + CountWidth'(push);
      valid_q <= rest != '0;
    end
  end
  ram_sdp #(
      .WIDTH          (WIDTH + 1),
      .DEPTH          (DEPTH),
      .OUTPUT_REGISTER(0)
  ) i_memory (
      .clk_i,
      .we_i   (push),
      .waddr_i(tail_q),
      .wdata_i({in_tlast_i, in_tdata_i}),
      .raddr_i(head_d),
      .rdata_o({out_tlast_o, out_tdata_o})
  );
  assign in_tready_o = count_q != CountWidth'(DEPTH);
  assign out_tvalid_o = valid_q;
  assign count_o = count_q;
endmodule
