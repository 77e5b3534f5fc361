// SPDX-License-Identifier: Apache-2.0 OR MIT
// valid_delay: the valid of a pipeline, CYCLES clock cycles later; a reset clears it.
//
// CYCLES >= 0; 0 is a wire
// Latency: CYCLES
module valid_delay #(
    parameter int CYCLES = 1
) (
    // A wire has no clock and no reset.
    // verilator lint_off UNUSEDSIGNAL
    input  logic clk_i,
    input  logic rst_ni,
    // verilator lint_on UNUSEDSIGNAL
    input  logic valid_i,
    output logic valid_o
);
  if (CYCLES < 0) begin : g_check
    $fatal(1, "valid_delay: CYCLES must not be negative");
  end

  if (CYCLES == 0) begin : g_wire
    assign valid_o = valid_i;
  end else begin : g_registers
    logic [CYCLES-1:0] valid_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) valid_q <= '0;
      else valid_q <= CYCLES'({valid_q, valid_i});
    end
    assign valid_o = valid_q[CYCLES-1];
  end
endmodule
