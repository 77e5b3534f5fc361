// valid_delay: the valid of a pipeline, which a reset clears, and a flag beside it.
//
// CYCLES >= 0; 0 are wires
// Latency: CYCLES
module valid_delay #(
    parameter int CYCLES = 1
) (
    // Wires have no clock and no reset.
    // verilator lint_off UNUSEDSIGNAL
    input  logic clk_i,
    input  logic rst_ni,
    // verilator lint_on UNUSEDSIGNAL
    input  logic valid_i,
    input  logic last_i,
    output logic valid_o,
    output logic last_o
);
  if (CYCLES < 0) begin : g_check
    $fatal(1, "valid_delay: CYCLES must not be negative");
  end

  delay #(
      .WIDTH (1),
      .CYCLES(CYCLES)
  ) i_last (
      .clk_i,
      .d_i(last_i),
      .q_o(last_o)
  );
  if (CYCLES == 0) begin : g_wire
    assign valid_o = valid_i;
  end else begin : g_registers
    logic [CYCLES:0] valid;
    assign valid[0] = valid_i;
    always_ff @(posedge clk_i) valid[CYCLES:1] <= rst_ni ? valid[CYCLES-1:0] : '0;
    assign valid_o = valid[CYCLES];
  end
endmodule
