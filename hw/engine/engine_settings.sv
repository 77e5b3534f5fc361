// SPDX-License-Identifier: Apache-2.0 OR MIT
// What SET commands set: settings by their numbers, in bits 39:32 of a command, with their values in bits 127:64. Undefined at power-up; a reset
// keeps them.
module engine_settings
  import engine_pkg::*;
(
    input logic clk_i,
    input logic set_i,
    input logic [7:0] number_i,
    input logic [63:0] value_i,
    output settings_t settings_o
);
  settings_t settings_q;
  assign settings_o = settings_q;

  always_ff @(posedge clk_i)
    if (set_i)
      case (number_i)
        8'd0: {settings_q.compensated, settings_q.goldilocks} <= value_i[1:0];
        8'd1: settings_q.lwe_dimension <= value_i[15:0];
        8'd2: settings_q.tlwe_rows <= value_i[15:0];
        8'd3: {settings_q.body_levels, settings_q.levels} <= value_i[15:0];
        8'd4: settings_q.gadget[0].offset <= value_i;
        8'd5: settings_q.gadget[0].log2_base <= value_i[5:0];
        8'd6: settings_q.gadget[1].offset <= value_i;
        8'd7: settings_q.gadget[1].log2_base <= value_i[5:0];
        8'd8: settings_q.switch_levels <= value_i[7:0];
        8'd9: settings_q.switch_gadget.offset <= value_i;
        8'd10: settings_q.switch_gadget.log2_base <= value_i[5:0];
        8'd11: settings_q.switch_sets <= value_i[7:0];
        8'd12: settings_q.key_base <= value_i[31:0];
        8'd13: settings_q.key_beats <= value_i[31:0];
        8'd14: settings_q.switch_base <= value_i[31:0];
        8'd15: settings_q.switch_beats <= value_i[31:0];
        8'd16: settings_q.vector_base <= value_i[31:0];
        8'd17: settings_q.register_base <= value_i[31:0];
        8'd18: settings_q.register_log2_stride <= value_i[4:0];
        8'd19: settings_q.stack_base <= value_i[31:0];
        default: ;
      endcase
endmodule
