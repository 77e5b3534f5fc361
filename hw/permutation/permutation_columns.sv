// SPDX-License-Identifier: Apache-2.0 OR MIT
// permutation_columns: columns of 2 x 2 switches, one for each bit of a lane's number: that of bit c exchanges lanes
// whose numbers differ in this bit. A register after every third column that is more than wires, but for the last.
//
// LOG_LANES  0 to 7
// WIDTH      bits of a lane, >= 1
// CONTROLS   bits of controls_i, >= 1
// REVERSE    from the top bit down, instead of from bit 0 up
// MAP        of the switches (permutation_pkg)
// Latency: permutation_pkg::columns_latency
module permutation_columns
  import permutation_pkg::*;
#(
    parameter int LOG_LANES = 1,
    parameter int WIDTH = 64,
    parameter int CONTROLS = 1,
    parameter bit REVERSE = 0,
    parameter logic [map_width(switches(LOG_LANES))-1:0] MAP = '0,
    localparam int Lanes = 1 << LOG_LANES
) (
    // Wires have neither clock nor controls.
    // verilator lint_off UNUSEDSIGNAL
    input  logic                           clk_i,
    input  logic [CONTROLS-1:0]            controls_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [   Lanes-1:0][WIDTH-1:0] data_i,
    output logic [   Lanes-1:0][WIDTH-1:0] data_o
);
  if (LOG_LANES < 0 || LOG_LANES > MAX_LOG_LANES || WIDTH < 1 || CONTROLS < 1) begin : g_check
    $fatal(1, "permutation_columns: 0 <= LOG_LANES <= 7, WIDTH >= 1 and CONTROLS >= 1 are needed");
  end

  localparam int PayloadWidth = CONTROLS + Lanes * WIDTH;

  for (genvar n = 0; n < LOG_LANES; n++) begin : g_column
    localparam int Column = REVERSE ? LOG_LANES - 1 - n : n;
    localparam int Before = active_columns(switch_map_t'(MAP), LOG_LANES, n, REVERSE);
    localparam bit HasRegister = is_active(switch_map_t'(MAP), LOG_LANES, Column) && Before != 0 && Before % 3 == 0;

    logic [Lanes-1:0][WIDTH-1:0] entering, here, leaving;
    // Behind the last column nobody wants them.
    // verilator lint_off UNUSEDSIGNAL
    logic [CONTROLS-1:0] controls_ahead, controls;
    // verilator lint_on UNUSEDSIGNAL
    if (n == 0) begin : g_first
      assign entering = data_i;
      assign controls_ahead = controls_i;
    end else begin : g_next
      assign entering = g_column[n-1].leaving;
      assign controls_ahead = g_column[n-1].controls;
    end
    delay #(
        .WIDTH (PayloadWidth),
        .CYCLES(int'(HasRegister))
    ) i_register (
        .clk_i,
        .d_i({controls_ahead, entering}),
        .q_o({controls, here})
    );
    for (genvar pair = 0; pair < Lanes / 2; pair++) begin : g_switch
      localparam int Low = ((pair >> Column) << (Column + 1)) | (pair & ((1 << Column) - 1));
      localparam int High = Low | (1 << Column);
      localparam logic [ENTRY_BITS-1:0] Entry = MAP[(Column*Lanes/2+pair)*ENTRY_BITS+:ENTRY_BITS];
      logic crosses;
      if (Entry < 2) begin : g_constant
        assign crosses = Entry[0];
      end else begin : g_control
        assign crosses = controls[int'(Entry)/2-1] ^ Entry[0];
      end
      assign leaving[Low]  = crosses ? here[High] : here[Low];
      assign leaving[High] = crosses ? here[Low] : here[High];
    end
  end
  if (LOG_LANES == 0) begin : g_wire
    assign data_o = data_i;
  end else begin : g_output
    assign data_o = g_column[LOG_LANES-1].leaving;
  end
endmodule
