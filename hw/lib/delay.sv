// SPDX-License-Identifier: Apache-2.0 OR MIT
// delay: WIDTH bits, CYCLES clock cycles later. No reset, so that tools map long delays to shift-register LUTs.
//
// WIDTH  >= 1
// CYCLES >= 0; 0 is a wire
// Latency: CYCLES
module delay #(
    parameter int WIDTH  = 1,
    parameter int CYCLES = 1
) (
    // A wire has no clock.
    // verilator lint_off UNUSEDSIGNAL
    input  logic             clk_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [WIDTH-1:0] d_i,
    output logic [WIDTH-1:0] q_o
);
  if (WIDTH < 1) begin : g_check_1
    $fatal(1, "delay: WIDTH must be at least 1");
  end
  if (CYCLES < 0) begin : g_check_2
    $fatal(1, "delay: CYCLES must not be negative");
  end

  if (CYCLES == 0) begin : g_wire
    assign q_o = d_i;
  end else begin : g_registers
    logic [WIDTH-1:0] d_q[CYCLES];
    always_ff @(posedge clk_i) begin
      d_q[0] <= d_i;
      for (int n = 1; n < CYCLES; n++) d_q[n] <= d_q[n-1];
    end
    assign q_o = d_q[CYCLES-1];
  end
endmodule
