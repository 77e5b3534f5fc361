// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream_register: a register slice of an AXI4-Stream; a word per cycle, and no path from either side's inputs to the
// other side's outputs.
//
// WIDTH  bits of tdata, >= 1
// Latency: 1
module stream_register #(
    parameter int WIDTH = 64
) (
    input  logic             clk_i,
    input  logic             rst_ni,
    input  logic             in_tvalid_i,
    output logic             in_tready_o,
    input  logic [WIDTH-1:0] in_tdata_i,
    input  logic             in_tlast_i,
    output logic             out_tvalid_o,
    input  logic             out_tready_i,
    output logic [WIDTH-1:0] out_tdata_o,
    output logic             out_tlast_o
);
  if (WIDTH < 1) begin : g_check
    $fatal(1, "stream_register: WIDTH must be at least 1");
  end

  // spare holds the word that arrived while the output was held back.
  logic [WIDTH:0] out_q, spare_q;
  logic out_valid_q, spare_valid_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      out_valid_q   <= 1'b0;
      spare_valid_q <= 1'b0;
    end else if (out_tready_i || !out_valid_q) begin
      out_valid_q   <= in_tvalid_i || spare_valid_q;
      spare_valid_q <= 1'b0;
    end else if (in_tvalid_i) begin
      spare_valid_q <= 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!spare_valid_q) spare_q <= {in_tlast_i, in_tdata_i};
    if (out_tready_i || !out_valid_q) out_q <= spare_valid_q ? spare_q : {in_tlast_i, in_tdata_i};
  end
  assign in_tready_o = !spare_valid_q;
  assign out_tvalid_o = out_valid_q;
  assign {out_tlast_o, out_tdata_o} = out_q;
endmodule
