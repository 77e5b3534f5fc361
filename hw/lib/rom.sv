// SPDX-License-Identifier: Apache-2.0 OR MIT
// rom: a memory whose words are read from a file of hexadecimal numbers ($readmemh).
//
// WIDTH            bits of a word, >= 1
// DEPTH            words, >= 1
// FILE             path of the file, as the tool resolves it; empty: the contents are undefined
// OUTPUT_REGISTER  a second register behind the memory's own
// Latency: toroid_pkg::ram_latency
module rom #(
    parameter int WIDTH = 64,
    parameter int DEPTH = 512,
    parameter string FILE = "",
    parameter bit OUTPUT_REGISTER = 1,
    localparam int AddressWidth = toroid_pkg::index_width(DEPTH)
) (
    input  logic                    clk_i,
    input  logic [AddressWidth-1:0] addr_i,
    output logic [       WIDTH-1:0] data_o
);
  if (WIDTH < 1 || DEPTH < 1) begin : g_check
    $fatal(1, "rom: WIDTH and DEPTH must be at least 1");
  end

  // Beyond 256 words, an address that drives look-up tables takes longer than the tables: a block of memory is one load.
  (* rom_style = DEPTH > 256 ? "block" : "auto", nomem2reg *)
  logic [WIDTH-1:0] memory [DEPTH];
  logic [WIDTH-1:0] data_q;
  initial if (FILE != "") $readmemh(FILE, memory);
  always_ff @(posedge clk_i) data_q <= memory[addr_i];
  delay #(
      .WIDTH (WIDTH),
      .CYCLES(int'(OUTPUT_REGISTER))
  ) i_output (
      .clk_i,
      .d_i(data_q),
      .q_o(data_o)
  );
endmodule
