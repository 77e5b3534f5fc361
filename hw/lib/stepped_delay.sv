// SPDX-License-Identifier: Apache-2.0 OR MIT
// stepped_delay: WIDTH bits, STEPS steps later; the clock edges with step_i are the steps. No reset.
//
// Shift registers, which tools map to LUTs, or from RAM_STEPS on a ring in a memory.
//
// WIDTH      >= 1
// STEPS      >= 1
// RAM_STEPS  >= 3
// Latency: STEPS steps
module stepped_delay #(
    parameter int WIDTH = 1,
    parameter int STEPS = 1,
    parameter int RAM_STEPS = 64
) (
    input  logic             clk_i,
    // Where the ring begins does not matter, but it must not be unknown.
    // verilator lint_off UNUSEDSIGNAL
    input  logic             rst_ni,
    // verilator lint_on UNUSEDSIGNAL
    input  logic             step_i,
    input  logic [WIDTH-1:0] d_i,
    output logic [WIDTH-1:0] q_o
);
  if (WIDTH < 1 || STEPS < 1 || RAM_STEPS < 3) begin : g_check
    $fatal(1, "stepped_delay: WIDTH and STEPS must be at least 1, RAM_STEPS at least 3");
  end

  if (STEPS < RAM_STEPS) begin : g_registers
    logic [WIDTH-1:0] d_q[STEPS];
    always_ff @(posedge clk_i) begin
      if (step_i) begin
        d_q[0] <= d_i;
        for (int n = 1; n < STEPS; n++) d_q[n] <= d_q[n-1];
      end
    end
    assign q_o = d_q[STEPS-1];
  end else begin : g_ring
    // The memory reads ahead: in each cycle it is given the address of the word that the output shows in the next one.
    localparam int AddressWidth = toroid_pkg::index_width(STEPS);
    logic [AddressWidth-1:0] at_q, at_d;
    assign at_d = !rst_ni ? '0 : !step_i ? at_q : at_q == AddressWidth'(STEPS - 1) ? '0 : at_q + 1'b1;
    always_ff @(posedge clk_i) at_q <= at_d;
    ram_sdp #(
        .WIDTH          (WIDTH),
        .DEPTH          (STEPS),
        .OUTPUT_REGISTER(0)
    ) i_memory (
        .clk_i,
        .we_i   (step_i),
        .waddr_i(at_q),
        .wdata_i(d_i),
        .raddr_i(at_d),
        .rdata_o(q_o)
    );
  end
endmodule
