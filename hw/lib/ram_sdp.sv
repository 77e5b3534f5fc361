// SPDX-License-Identifier: Apache-2.0 OR MIT
// ram_sdp: a memory with one write port and one read port.
//
// A read of the address that is written in the same cycle returns an undefined word.
//
// WIDTH            bits of a word, >= 1
// DEPTH            words, >= 1
// OUTPUT_REGISTER  a second register behind the memory's own
// Latency of a read: toroid_pkg::ram_latency
module ram_sdp #(
    parameter int WIDTH = 64,
    parameter int DEPTH = 512,
    parameter bit OUTPUT_REGISTER = 1,
    localparam int AddressWidth = toroid_pkg::index_width(DEPTH)
) (
    input  logic                    clk_i,
    input  logic                    we_i,
    input  logic [AddressWidth-1:0] waddr_i,
    input  logic [       WIDTH-1:0] wdata_i,
    input  logic [AddressWidth-1:0] raddr_i,
    output logic [       WIDTH-1:0] rdata_o
);
  if (WIDTH < 1 || DEPTH < 1) begin : g_check
    $fatal(1, "ram_sdp: WIDTH and DEPTH must be at least 1");
  end

  (* ram_style = "auto", nomem2reg *)
  logic [WIDTH-1:0] memory  [DEPTH];
  logic [WIDTH-1:0] rdata_q;
  always_ff @(posedge clk_i) begin
    if (we_i) memory[waddr_i] <= wdata_i;
    rdata_q <= memory[raddr_i];
  end
  delay #(
      .WIDTH (WIDTH),
      .CYCLES(int'(OUTPUT_REGISTER))
  ) i_output (
      .clk_i,
      .d_i(rdata_q),
      .q_o(rdata_o)
  );
endmodule
