// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_exchange: the second transposition, of groups of N2 beats: bit n of the beat is exchanged with bit
// LOG_LANES - 1 - n of the lane, for the bits below log2(N2).
//
// A chain of delay commutators, one a bit: half of the lanes are delayed, the halves are handed through or crossed, and
// what is then the other half is delayed. For the bits that N2 has not, the switches stand still, which leaves the
// delay as it is, so groups of any N2 may follow each other. All beats of a group come back to back.
//
// LOG_LANES  log2 of the lanes
// beat_i, shift_i  the lower bits of a beat's number, and N2 = LANES >> shift, with its lanes
// Latency: LANES - 1
module elastic_exchange
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    localparam int Lanes = 1 << LOG_LANES,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES))
) (
    input  logic                             clk_i,
    input  logic [ LOG_LANES-1:0]            beat_i,
    input  logic [ShiftWidth-1:0]            shift_i,
    input  logic [     Lanes-1:0][WIDTH-1:0] lanes_i,
    output logic [     Lanes-1:0][WIDTH-1:0] lanes_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check
    $fatal(1, "elastic_exchange: LOG_LANES must be 2 to 5");
  end

  // Bit n: whether the commutator of this bit crosses.
  logic [LOG_LANES-1:0] crosses;
  assign crosses = beat_i & ({LOG_LANES{1'b1}} >> shift_i);

  logic [Lanes-1:0][WIDTH-1:0] lanes[LOG_LANES+1];
  assign lanes[0] = lanes_i;
  assign lanes_o  = lanes[LOG_LANES];
  for (genvar n = 0; n < LOG_LANES; n++) begin : g_bit
    localparam int Steps = 1 << n;
    localparam int Bit = LOG_LANES - 1 - n;
    logic cross_over;
    delay #(
        .WIDTH (1),
        .CYCLES(Steps - 1)
    ) i_cross (
        .clk_i,
        .d_i(crosses[n]),
        .q_o(cross_over)
    );
    for (genvar i = 0; i < Lanes / 2; i++) begin : g_pair
      localparam int A = i >> Bit << (Bit + 1) | i & ((1 << Bit) - 1);
      localparam int B = A | 1 << Bit;
      logic [WIDTH-1:0] upper;
      delay #(
          .WIDTH (WIDTH),
          .CYCLES(Steps)
      ) i_upper (
          .clk_i,
          .d_i(lanes[n][B]),
          .q_o(upper)
      );
      delay #(
          .WIDTH (WIDTH),
          .CYCLES(Steps)
      ) i_lower (
          .clk_i,
          .d_i(cross_over ? upper : lanes[n][A]),
          .q_o(lanes[n+1][A])
      );
      assign lanes[n+1][B] = cross_over ? lanes[n][A] : upper;
    end
  end
endmodule
