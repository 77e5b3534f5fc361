// ntt_streaming: NTT or INTT of N words, LANES of them a cycle, fully unrolled: LOG_N stages of LANES / 2 butterflies
// each.
//
// Transforms follow each other every N / LANES cycles without a bubble. Stages are joined by wires, and by commutators
// where the words of a butterfly come in different beats (ntt_streaming_pkg); a network or a chain of commutators at
// either end brings other orders to those that the stages work in.
//
// LOG_N           log2 of the words of the longest polynomial, 2 to 20
// LOG_LANES       log2 of the words of a beat, 1 to 10, at most LOG_N
// SHIFTS          a polynomial has 2^(LOG_N - shift) words, shift below SHIFTS: its in_tuser says which
// MODULI, Q       the moduli, 64 bits each, number 0 lowest; in_tuser says which
// SOLINAS         1: Q = 2^i - 2^j + 1, j < i - 1, and MODULI = 1; 0: any odd Q (see ntt_stage)
// INVERSE         direction
// ASCENDING       the order of the stages (see ntt_streaming_pkg)
// FEEDBACK        1: stages that pair words of different beats are ntt_feedback, of LANES butterflies, and both ends
//                 are in the order of the index; one degree, one modulus
// FRONT, BACK     what stands before and behind them: 0 nothing; 1 a commutator for each bit of the beat, between the
//                 order of the index and halves side by side; 2 a permutation network
// FRONT_LOG_LANES, and so on, and those of BACK: the parameters of permutation_network. A lane of the network is
//                 2^(LOG_LANES - FRONT_LOG_LANES) lanes of the transform.
// TWIDDLES        {TWIDDLES, "_", stage, ".hex"} are the files of the stages' twiddles, stage in two decimal digits
// TILE_A, TILE_B, SHORT, NARROW  see mul_tiles
// in_tuser_i      {modulus, shift} of a polynomial, in its first beat; out_tuser_o: in all its beats
// A polynomial that has begun must be delivered: those before it may wait for its beats.
// Source: T. Ye et al., FPGA Acceleration of Number Theoretic Transform, 2021, section 4
module ntt_streaming
  import permutation_pkg::*;
#(
    parameter int LOG_N = 9,
    parameter int LOG_LANES = 5,
    parameter int SHIFTS = 1,
    parameter int MODULI = 1,
    parameter logic [64*MODULI-1:0] Q = 64'd268369921,
    parameter bit SOLINAS = 1,
    parameter bit INVERSE = 0,
    parameter bit ASCENDING = 0,
    parameter bit FEEDBACK = 0,
    parameter int FRONT = 0,
    parameter int FRONT_LOG_LANES = 1,
    parameter int FRONT_DELAY = 0,
    parameter int FRONT_LOG_DEPTH = LOG_N - LOG_LANES + 1,
    parameter logic [map_width(switches(FRONT_LOG_LANES))-1:0] FRONT_FIRST_MAP = '0,
    parameter logic [map_width(
address_bits(LOG_N - LOG_LANES, FRONT_LOG_DEPTH, FRONT_DELAY) << FRONT_LOG_LANES
)-1:0] FRONT_ADDRESS_MAP = '0,
    parameter logic [map_width(switches(FRONT_LOG_LANES))-1:0] FRONT_SECOND_MAP = '0,
    parameter int FRONT_WRITE_BITS = 0,
    parameter string FRONT_WRITE_FILE = "",
    parameter int FRONT_READ_BITS = 0,
    parameter string FRONT_READ_FILE = "",
    parameter int BACK = 0,
    parameter int BACK_LOG_LANES = 1,
    parameter int BACK_DELAY = 0,
    parameter int BACK_LOG_DEPTH = LOG_N - LOG_LANES + 1,
    parameter logic [map_width(switches(BACK_LOG_LANES))-1:0] BACK_FIRST_MAP = '0,
    parameter logic [map_width(
address_bits(LOG_N - LOG_LANES, BACK_LOG_DEPTH, BACK_DELAY) << BACK_LOG_LANES
)-1:0] BACK_ADDRESS_MAP = '0,
    parameter logic [map_width(switches(BACK_LOG_LANES))-1:0] BACK_SECOND_MAP = '0,
    parameter int BACK_WRITE_BITS = 0,
    parameter string BACK_WRITE_FILE = "",
    parameter int BACK_READ_BITS = 0,
    parameter string BACK_READ_FILE = "",
    parameter string TWIDDLES = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Lanes = 1 << LOG_LANES,
    localparam int Width = ntt_streaming_pkg::modulus_bits(MODULI, 1024'(Q)),
    localparam int Lane = toroid_pkg::lane_width(Width),
    localparam int ShiftWidth = toroid_pkg::index_width(SHIFTS),
    localparam int Tag = toroid_pkg::index_width(MODULI) + ShiftWidth
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       in_tvalid_i,
    output logic                       in_tready_o,
    input  logic [Lanes-1:0][Lane-1:0] in_tdata_i,
    input  logic [  Tag-1:0]           in_tuser_i,
    output logic                       out_tvalid_o,
    input  logic                       out_tready_i,
    output logic [Lanes-1:0][Lane-1:0] out_tdata_o,
    output logic [  Tag-1:0]           out_tuser_o,
    output logic                       out_tlast_o
);
  import ntt_streaming_pkg::*;

  if (FRONT < 0 || FRONT > 2 || BACK < 0 || BACK > 2) begin : g_check_ends
    $fatal(1, "ntt_streaming: FRONT and BACK are 0 to 2");
  end
  if (FRONT_LOG_LANES > LOG_LANES || BACK_LOG_LANES > LOG_LANES) begin : g_check_networks
    $fatal(1, "ntt_streaming: the networks of FRONT and BACK have 2^LOG_LANES lanes or fewer");
  end
  for (genvar n = 0; n < MODULI; n++) begin : g_check_modulus
    if (!Q[64*n] || Q[64*n+:64] < 64'd5) begin : g_check
      $fatal(1, "ntt_streaming: moduli must be odd and at least 5");
    end
  end
  if (LOG_N < 2 || LOG_N > 20 || LOG_LANES < 1 || LOG_LANES > LOG_N || LOG_LANES > 10) begin : g_check_size
    $fatal(1, "ntt_streaming: 2 <= LOG_N <= 20, 1 <= LOG_LANES <= 10 and LOG_LANES <= LOG_N are needed");
  end
  if (SHIFTS < 1 || SHIFTS > LOG_N - LOG_LANES + 1 || MODULI < 1 || MODULI > 16) begin : g_check_sets
    $fatal(1, "ntt_streaming: 1 <= MODULI <= 16 and 1 <= SHIFTS <= LOG_N - LOG_LANES + 1 are needed");
  end
  if (SHIFTS * MODULI > 1 && (FRONT != 0 || BACK != 0 || FEEDBACK)) begin : g_check_orders
    $fatal(1, "ntt_streaming: FEEDBACK, FRONT and BACK are for one degree and one modulus");
  end
  if (SOLINAS && (MODULI != 1 || toroid_pkg::solinas_j(
          Q[63:0]
      ) >= toroid_pkg::solinas_i(
          Q[63:0]
      ) - 1 || Q[63:0] != toroid_pkg::solinas_modulus(
          toroid_pkg::solinas_i(Q[63:0]), toroid_pkg::solinas_j(Q[63:0])
      ))) begin : g_check_q
    $fatal(1, "ntt_streaming: SOLINAS needs one modulus Q = 2^i - 2^j + 1 with j < i - 1");
  end

  localparam int LogBeats = LOG_N - LOG_LANES;
  localparam int BeatWidth = LogBeats > 0 ? LogBeats : 1;
  localparam int Word = Width + int'(SOLINAS);
  localparam int Half = Lanes / 2 * Word;
  localparam int StageLatency = stage_latency(SOLINAS, MODULI, 1024'(Q), SHIFTS, TILE_A, TILE_B, SHORT);

  // The tag of a polynomial stays; one that does not exist is 0.
  logic take, first;
  logic [Tag-1:0] user, tag, tag_q;
  assign user[ShiftWidth-1:0] = SHIFTS > 1 && int'(in_tuser_i[ShiftWidth-1:0]) < SHIFTS ?
      in_tuser_i[ShiftWidth-1:0] : '0;
  assign user[Tag-1:ShiftWidth] = MODULI > 1 && int'(in_tuser_i[Tag-1:ShiftWidth]) < MODULI ?
      in_tuser_i[Tag-1:ShiftWidth] : '0;
  assign tag = first ? user : tag_q;
  always_ff @(posedge clk_i) tag_q <= tag;
  logic [BeatWidth-1:0] in_beat, unused_next;
  ntt_beats #(
      .LOG_BEATS(LogBeats),
      .SHIFTS   (SHIFTS)
  ) i_in_beats (
      .clk_i,
      .rst_ni,
      .valid_i(take),
      .shift_i(tag[ShiftWidth-1:0]),
      .beat_o (in_beat),
      .next_o (unused_next)
  );
  assign first = in_beat == '0;

  // The words between stages: valid[n] and so on before stage n.
  logic valid[LOG_N+1];
  logic [Tag-1:0] tags[LOG_N+1];
  logic [Lanes-1:0][Word-1:0] lanes[LOG_N+1];

  logic [Lanes-1:0][Width-1:0] in_words;
  always_comb for (int n = 0; n < Lanes; n++) in_words[n] = in_tdata_i[n][Width-1:0];

  // Only a core without tags has a front.
  logic front_valid;
  logic [Lanes-1:0][Width-1:0] front_words;
  ntt_end #(
      .KIND       (FRONT),
      .ASCENDING  (1),
      .LOG_LANES  (LOG_LANES),
      .LOG_BEATS  (LogBeats),
      .WIDTH      (Width),
      .LOG_NETWORK(FRONT_LOG_LANES),
      .DELAY      (FRONT_DELAY),
      .LOG_DEPTH  (FRONT_LOG_DEPTH),
      .FIRST_MAP  (FRONT_FIRST_MAP),
      .ADDRESS_MAP(FRONT_ADDRESS_MAP),
      .SECOND_MAP (FRONT_SECOND_MAP),
      .WRITE_BITS (FRONT_WRITE_BITS),
      .WRITE_FILE (FRONT_WRITE_FILE),
      .READ_BITS  (FRONT_READ_BITS),
      .READ_FILE  (FRONT_READ_FILE)
  ) i_front (
      .clk_i,
      .rst_ni,
      .valid_i(take),
      .lanes_i(in_words),
      .valid_o(front_valid),
      .lanes_o(front_words)
  );
  assign valid[0] = front_valid;
  assign tags[0]  = tag;
  always_comb for (int n = 0; n < Lanes; n++) lanes[0][n] = Word'(front_words[n]);

  for (genvar n = 0; n < LOG_N; n++) begin : g_stage
    localparam string File = TWIDDLES == "" ? "" :
        {TWIDDLES, "_", string'(8'(48 + n / 10)), string'(8'(48 + n % 10)), ".hex"};
    if (FEEDBACK && feedback_bit(LOG_N, LOG_LANES, ASCENDING, n) >= 0) begin : g_feedback
      ntt_feedback #(
          .SOLINAS  (SOLINAS),
          .Q        (Q[63:0]),
          .WIDTH    (Width),
          .LOG_N    (LOG_N),
          .LOG_LANES(LOG_LANES),
          .ASCENDING(ASCENDING),
          .INVERSE  (INVERSE),
          .LOG_STEPS(feedback_bit(LOG_N, LOG_LANES, ASCENDING, n)),
          .FILE     (File),
          .TILE_A   (TILE_A),
          .TILE_B   (TILE_B),
          .SHORT    (SHORT),
          .NARROW   (NARROW)
      ) i_feedback (
          .clk_i,
          .rst_ni,
          .valid_i(valid[n]),
          .lanes_i(lanes[n]),
          .valid_o(valid[n+1]),
          .lanes_o(lanes[n+1])
      );
      assign tags[n+1] = tags[n];
    end else begin : g_pairs
      localparam int Exchange = FEEDBACK ? -1 : commutator_bit(LOG_N, LOG_LANES, ASCENDING, n);
      logic valid_behind;
      logic [Tag-1:0] tag_behind;
      logic [Lanes-1:0][Word-1:0] lanes_behind;
      ntt_stage #(
          .SOLINAS  (SOLINAS),
          .MODULI   (MODULI),
          .Q        (Q),
          .WIDTH    (Width),
          .LOG_N    (LOG_N),
          .LOG_LANES(LOG_LANES),
          .ASCENDING(ASCENDING),
          .INVERSE  (INVERSE),
          .STAGE    (n),
          .SHIFTS   (SHIFTS),
          .FILE     (File),
          .TILE_A   (TILE_A),
          .TILE_B   (TILE_B),
          .SHORT    (SHORT),
          .NARROW   (NARROW)
      ) i_stage (
          .clk_i,
          .rst_ni,
          .valid_i(valid[n]),
          .tag_i  (tags[n]),
          .lanes_i(lanes[n]),
          .valid_o(valid_behind),
          .tag_o  (tag_behind),
          .lanes_o(lanes_behind)
      );
      if (Exchange >= 0) begin : g_commutator
        ntt_commutator #(
            .WIDTH    (Half),
            .LOG_STEPS(Exchange),
            .LOG_BEATS(LogBeats),
            .SHIFTS   (SHIFTS),
            .TAG      (Tag)
        ) i_commutator (
            .clk_i,
            .rst_ni,
            .valid_i(valid_behind),
            .tag_i  (tag_behind),
            .lower_i(lanes_behind[Lanes/2-1:0]),
            .upper_i(lanes_behind[Lanes-1:Lanes/2]),
            .valid_o(valid[n+1]),
            .tag_o  (tags[n+1]),
            .lower_o(lanes[n+1][Lanes/2-1:0]),
            .upper_o(lanes[n+1][Lanes-1:Lanes/2])
        );
      end else begin : g_wires
        assign valid[n+1] = valid_behind;
        assign tags[n+1]  = tag_behind;
        assign lanes[n+1] = lanes_behind;
      end
    end
  end

  logic canonical_valid;
  logic [Tag-1:0] canonical_tag;
  logic [Lanes-1:0][Width-1:0] canonical;
  if (SOLINAS) begin : g_canonical
    logic [Lanes-1:0][Width-1:0] canonical_d;
    for (genvar n = 0; n < Lanes; n++) begin : g_lane
      mod_canonical #(
          .WIDTH    (Width),
          .WIDTH_X  (Word),
          .MULTIPLES(toroid_pkg::solinas_j(Q[63:0]) == Width - 2 ? 2 : 1)
      ) i_canonical (
          .q_i(Q[Width-1:0]),
          .x_i(lanes[LOG_N][n]),
          .r_o(canonical_d[n])
      );
    end
    always_ff @(posedge clk_i) begin
      canonical <= canonical_d;
      canonical_tag <= tags[LOG_N];
    end
    valid_delay #(
        .CYCLES(1)
    ) i_valid (
        .clk_i,
        .rst_ni,
        .valid_i(valid[LOG_N]),
        .valid_o(canonical_valid)
    );
  end else begin : g_canonical
    assign canonical = lanes[LOG_N];
    assign canonical_tag = tags[LOG_N];
    assign canonical_valid = valid[LOG_N];
  end

  logic back_valid;
  logic [Lanes-1:0][Width-1:0] back_words;
  ntt_end #(
      .KIND       (BACK),
      .ASCENDING  (0),
      .LOG_LANES  (LOG_LANES),
      .LOG_BEATS  (LogBeats),
      .WIDTH      (Width),
      .LOG_NETWORK(BACK_LOG_LANES),
      .DELAY      (BACK_DELAY),
      .LOG_DEPTH  (BACK_LOG_DEPTH),
      .FIRST_MAP  (BACK_FIRST_MAP),
      .ADDRESS_MAP(BACK_ADDRESS_MAP),
      .SECOND_MAP (BACK_SECOND_MAP),
      .WRITE_BITS (BACK_WRITE_BITS),
      .WRITE_FILE (BACK_WRITE_FILE),
      .READ_BITS  (BACK_READ_BITS),
      .READ_FILE  (BACK_READ_FILE)
  ) i_back (
      .clk_i,
      .rst_ni,
      .valid_i(canonical_valid),
      .lanes_i(canonical),
      .valid_o(back_valid),
      .lanes_o(back_words)
  );

  logic [BeatWidth-1:0] unused_beat, out_next;
  ntt_beats #(
      .LOG_BEATS(LogBeats),
      .SHIFTS   (SHIFTS)
  ) i_out_beats (
      .clk_i,
      .rst_ni,
      .valid_i(back_valid),
      .shift_i(canonical_tag[ShiftWidth-1:0]),
      .beat_o (unused_beat),
      .next_o (out_next)
  );

  localparam int Pipeline = pipeline_latency(
      LOG_N, LOG_LANES, StageLatency
  ) + int'(SOLINAS) + end_latency(
      FRONT, FRONT_LOG_LANES, LogBeats, FRONT_DELAY, switch_map_t'(FRONT_FIRST_MAP), switch_map_t'(FRONT_SECOND_MAP)
  ) + end_latency(
      BACK, BACK_LOG_LANES, LogBeats, BACK_DELAY, switch_map_t'(BACK_FIRST_MAP), switch_map_t'(BACK_SECOND_MAP)
  );
  logic [Lanes-1:0][Width-1:0] out_words;
  stream_ends #(
      .WIDTH(Tag + Lanes * Width),
      .DEPTH(Pipeline + 1)
  ) i_ends (
      .clk_i,
      .rst_ni,
      .in_tvalid_i,
      .in_tready_o,
      .take_o      (take),
      .pipe_valid_i(back_valid),
      .pipe_data_i ({canonical_tag, back_words}),
      .pipe_last_i (out_next == '0),
      .out_tvalid_o,
      .out_tready_i,
      .out_tdata_o ({out_tuser_o, out_words}),
      .out_tlast_o
  );
  always_comb for (int n = 0; n < Lanes; n++) out_tdata_o[n] = Lane'(out_words[n]);
endmodule
