// SPDX-License-Identifier: Apache-2.0 OR MIT
// rader_column: the words of one residue modulo P, of two transforms, with its ports for computing and for streams.
//
// ADDRESS     bits of an address, of which the highest says which transform
// write_i     computing writes first_word_i or, with second_i, second_word_i
// take_i      the stream writes in_i; never in a cycle with write_i
// unload_i    the stream reads
// Latency: a write is done in the cycle behind; 2 from the addresses to word_o
module rader_column
  import ntt_rader_pkg::*;
#(
    parameter int ADDRESS = 8
) (
    input  logic               clk_i,
    input  logic               write_i,
    input  logic               second_i,
    input  logic [ADDRESS-1:0] write_address_i,
    input  logic [  WIDTH-1:0] first_word_i,
    input  logic [  WIDTH-1:0] second_word_i,
    input  logic               take_i,
    input  logic [ADDRESS-1:0] load_address_i,
    input  logic [  WIDTH-1:0] in_i,
    input  logic               unload_i,
    input  logic [ADDRESS-1:0] unload_address_i,
    input  logic [ADDRESS-1:0] read_address_i,
    output logic [  WIDTH-1:0] word_o
);
  /* verilator no_inline_module */

  if (ADDRESS < 1) begin : g_check
    $fatal(1, "rader_column: ADDRESS must be at least 1");
  end

  logic write_q;
  logic [ADDRESS-1:0] address_q;
  logic [WIDTH-1:0] word_q;
  always_ff @(posedge clk_i) begin
    write_q   <= write_i || take_i;
    address_q <= take_i ? load_address_i : write_address_i;
    if (take_i) word_q <= in_i;
    else word_q <= second_i ? second_word_i : first_word_i;
  end
  ram_sdp #(
      .WIDTH(WIDTH),
      .DEPTH(1 << ADDRESS)
  ) i_memory (
      .clk_i,
      .we_i   (write_q),
      .waddr_i(address_q),
      .wdata_i(word_q),
      .raddr_i(unload_i ? unload_address_i : read_address_i),
      .rdata_o(word_o)
  );
endmodule
