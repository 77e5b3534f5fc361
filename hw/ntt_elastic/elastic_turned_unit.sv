// SPDX-License-Identifier: Apache-2.0 OR MIT
// elastic_turned_unit: LANES / N2 transforms of N2 words side by side, Gentleman-Sande, each with the powers of a
// factor in its twiddles: word k2 leaves times u^k2.
//
// The first log2(N2) stages of a transform of all lanes, the others handing words through. Butterfly e of the first
// stage has the twiddle u_j * c_e, where u_j belongs to the beat and c_e to the lane; a stage's twiddles are the
// squares of the first half of those of the stage before. Word k2 of a transform leaves in the lane that has bit n of
// k2 in bit LOG_LANES - 1 - n.
//
// LOG_LANES  log2 of the lanes
// LOG_BEATS  bits of the number of a beat
// WORD, TILE_A, TILE_B  see montgomery_column
// valid_i, beat_i, last_i, shift_i  a beat, its number in its transform and whether that is the last, N2 = LANES >> shift;
//                                   one product before its lanes
// void_i, words_i                   whether it belongs to a preamble, and its words: the upper one is its constant, in a
//                                   preamble the lower one too, that of beat 2 LANES + beat_i
// Latency: ntt_elastic_pkg::unit_latency, from lanes_i
module elastic_turned_unit
  import ntt_elastic_pkg::*;
#(
    parameter int LOG_LANES = 4,
    parameter int LOG_BEATS = 8,
    parameter int WORD = 10,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    localparam int Lanes = 1 << LOG_LANES,
    localparam int ShiftWidth = toroid_pkg::index_width(shifts(LOG_LANES))
) (
    input  logic                             clk_i,
    input  logic                             rst_ni,
    input  logic                             valid_i,
    input  logic [ LOG_BEATS-1:0]            beat_i,
    input  logic [ShiftWidth-1:0]            shift_i,
    input  logic                             last_i,
    input  logic                             void_i,
    input  logic [           1:0][WIDTH-1:0] words_i,
    input  logic [     Lanes-1:0][WIDTH-1:0] lanes_i,
    output logic [     Lanes-1:0][WIDTH-1:0] lanes_o
);
  if (LOG_LANES < 2 || LOG_LANES > 5) begin : g_check
    $fatal(1, "elastic_turned_unit: LOG_LANES must be 2 to 5");
  end

  localparam int Latency = toroid_pkg::montgomery_wide_latency(WIDTH, WORD, TILE_A, TILE_B);

  logic [WIDTH-1:0] q_now;
  elastic_words #(
      .COUNT    (1),
      .FIRST    (AT_Q),
      .LOG_BEATS(LOG_BEATS)
  ) i_q (
      .clk_i,
      .valid_i,
      .beat_i,
      .word_i (words_i[1]),
      .words_o(q_now)
  );
  // The other constants of this unit are those that a preamble has below.
  logic [LOG_BEATS-1:0] constant_beat;
  logic [WIDTH-1:0] constant;
  assign constant_beat = void_i ? beat_i + LOG_BEATS'(at_second(Lanes)) : beat_i;
  assign constant = words_i[!void_i];
  logic [Lanes/2-1:0][WIDTH-1:0] of_lanes;
  elastic_words #(
      .COUNT    (Lanes / 2),
      .FIRST    (at_second(Lanes)),
      .LOG_BEATS(LOG_BEATS)
  ) i_of_lanes (
      .clk_i,
      .valid_i,
      .beat_i (constant_beat),
      .word_i (constant),
      .words_o(of_lanes)
  );

  // The factors of beats: one half of a memory is read, the other one written for the next transform.
  localparam int FirstOfBeats = at_beats(Lanes);
  logic half_q;
  logic [LOG_LANES-1:0] number;
  logic [LOG_BEATS-1:0] at;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) half_q <= 1'b0;
    else if (valid_i && last_i) half_q <= !half_q;
  end
  assign number = beat_i[LOG_LANES-1:0] & ({LOG_LANES{1'b1}} >> shift_i);
  assign at = constant_beat - LOG_BEATS'(FirstOfBeats);
  logic [WIDTH-1:0] of_beat;
  ram_sdp #(
      .WIDTH          (WIDTH),
      .DEPTH          (2 * Lanes),
      .OUTPUT_REGISTER(0)
  ) i_of_beats (
      .clk_i,
      .we_i   (valid_i && at < LOG_BEATS'(Lanes)),
      .waddr_i({!half_q, at[LOG_LANES-1:0]}),
      .wdata_i(constant),
      .raddr_i({half_q, number}),
      .rdata_o(of_beat)
  );

  // Twiddles of stage s are in its words[Lanes / 2 >> s], with the multipliers; chain[s] is q beside them.
  logic [WIDTH-1:0] chain[LOG_LANES];
  logic [Lanes/2-1:0][WIDTH-1:0] twiddles[LOG_LANES];
  // 1, which is the first of the lanes' words, for stages that hand words through.
  logic [WIDTH-1:0] one[LOG_LANES];
  logic [ShiftWidth-1:0] shift[LOG_LANES];
  montgomery_column #(
      .COUNT (Lanes / 2),
      .WIDTH (WIDTH),
      .WORD  (WORD),
      .TILE_A(TILE_A),
      .TILE_B(TILE_B)
  ) i_first (
      .clk_i,
      .q_i(q_now),
      .a_i({(Lanes / 2) {of_beat}}),
      .b_i(of_lanes),
      .q_o(chain[0]),
      .p_o(twiddles[0])
  );
  delay #(
      .WIDTH (WIDTH),
      .CYCLES(Latency)
  ) i_one (
      .clk_i,
      .d_i(of_lanes[0]),
      .q_o(one[0])
  );
  delay #(
      .WIDTH (ShiftWidth),
      .CYCLES(Latency)
  ) i_shift (
      .clk_i,
      .d_i(shift_i),
      .q_o(shift[0])
  );
  for (genvar s = 1; s < LOG_LANES; s++) begin : g_squares
    localparam int Count = Lanes / 2 >> s;
    logic [WIDTH-1:0] q_q;
    logic [Count-1:0][WIDTH-1:0] twiddles_q;
    always_ff @(posedge clk_i) begin
      q_q <= chain[s-1];
      twiddles_q <= twiddles[s-1][Count-1:0];
    end
    montgomery_column #(
        .COUNT (Count),
        .WIDTH (WIDTH),
        .WORD  (WORD),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B)
    ) i_column (
        .clk_i,
        .q_i(q_q),
        .a_i(twiddles_q),
        .b_i(twiddles_q),
        .q_o(chain[s]),
        .p_o(twiddles[s][Count-1:0])
    );
    delay #(
        .WIDTH (WIDTH),
        .CYCLES(Latency + 1)
    ) i_one (
        .clk_i,
        .d_i(one[s-1]),
        .q_o(one[s])
    );
    delay #(
        .WIDTH (ShiftWidth),
        .CYCLES(Latency + 1)
    ) i_shift (
        .clk_i,
        .d_i(shift[s-1]),
        .q_o(shift[s])
    );
  end

  // q_now is a cycle behind valid_i, the lanes one product.
  logic [WIDTH-1:0] q[LOG_LANES+1];
  logic [WIDTH-1:0] unused_q;
  logic [Lanes-1:0][WIDTH-1:0] lanes[LOG_LANES+1];
  delay #(
      .WIDTH (WIDTH),
      .CYCLES(Latency - 1)
  ) i_q_late (
      .clk_i,
      .d_i(q_now),
      .q_o(q[0])
  );
  assign unused_q = q[LOG_LANES];
  assign lanes[0] = lanes_i;
  assign lanes_o  = lanes[LOG_LANES];
  for (genvar s = 0; s < LOG_LANES; s++) begin : g_stage
    localparam int Count = Lanes / 2 >> s;
    // N2 is at least 4.
    localparam bit Bypass = s >= 2;
    logic bypass, bypass_q;
    assign bypass = Bypass && int'(shift[s]) >= LOG_LANES - s;
    always_ff @(posedge clk_i) bypass_q <= bypass;
    logic [Lanes/2-1:0][WIDTH-1:0] w;
    for (genvar n = 0; n < Lanes / 2; n++) begin : g_w
      assign w[n] = bypass_q ? one[s] : twiddles[s][n%Count];
    end
    elastic_stage #(
        .LOG_LANES(LOG_LANES),
        .PAIR     (LOG_LANES - 1 - s),
        .INVERSE  (1),
        .BYPASS   (Bypass),
        .WORD     (WORD),
        .TILE_A   (TILE_A),
        .TILE_B   (TILE_B)
    ) i_stage (
        .clk_i,
        .q_i     (q[s]),
        .bypass_i(bypass),
        .lanes_i (lanes[s]),
        .w_i     (w),
        .q_o     (q[s+1]),
        .lanes_o (lanes[s+1])
    );
  end
endmodule
