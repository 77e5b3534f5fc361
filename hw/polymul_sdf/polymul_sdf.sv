// SPDX-License-Identifier: Apache-2.0 OR MIT
// polymul_sdf: products of polynomials modulo x^N + 1, back to back without a bubble, by sdf_transform: NTTs of
// the factors, the products of their values, and an INTT, which takes values in the order in which the NTTs give them.
//
// PARALLEL      1: two NTTs; a beat of a_ and the same of b_ are taken in the same cycle
//               0: one NTT; a_ takes the factors in turn, and b_ nothing
// FORWARD       {FORWARD, "_", n, ".hex"} are the tables of the NTT
// BACKWARD      the same of the INTT
// ARCHITECTURE, LOG_N, Q, SOLINAS, BARRETT, TILE_A, TILE_B, SHORT, NARROW  see sdf_transform, also for the order of
//               coefficients on the streams
// Polynomials that have begun must be delivered, in pairs: those before may wait for their words.
// Source: N. Thanawala, Hardware Acceleration of Polynomial Multiplication using Pipelined FFT, 2021, chapter 5
module polymul_sdf
  import ntt_sdf_pkg::*;
#(
    parameter int ARCHITECTURE = R2SDF,
    parameter bit PARALLEL = 0,
    parameter int LOG_N = 6,
    parameter logic [63:0] Q = 64'd7681,
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter string FORWARD = "",
    parameter string BACKWARD = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Lanes = 1 << log_lanes(ARCHITECTURE),
    localparam int Width = $clog2(Q),
    localparam int Lane = toroid_pkg::lane_width(Width)
) (
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       a_tvalid_i,
    output logic                       a_tready_o,
    // The bits above a word are not read, and nothing of b without PARALLEL.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [Lanes-1:0][Lane-1:0] a_tdata_i,
    input  logic                       b_tvalid_i,
    output logic                       b_tready_o,
    input  logic [Lanes-1:0][Lane-1:0] b_tdata_i,
    // verilator lint_on UNUSEDSIGNAL
    output logic                       out_tvalid_o,
    input  logic                       out_tready_i,
    output logic [Lanes-1:0][Lane-1:0] out_tdata_o,
    output logic                       out_tlast_o
);
  if (!is_legal(ARCHITECTURE, LOG_N, Q, SOLINAS, BARRETT)) begin : g_check
    $fatal(1, "polymul_sdf: ARCHITECTURE is 0 to 2, LOG_N 2 to 20; SOLINAS needs Q = 2^i - 2^j + 1 and no BARRETT");
  end

  localparam int LogBeats = LOG_N - log_lanes(ARCHITECTURE);

  // What is taken: a beat of the second factor, which a beat of the product follows, or one of the first alone.
  logic offered, ready, take_second, take;
  logic [Lanes-1:0][Width-1:0] in_words;
  always_comb for (int n = 0; n < Lanes; n++) in_words[n] = a_tdata_i[n][Width-1:0];
  logic transform_valid;
  logic [Lanes-1:0][Width-1:0] transform_words;
  sdf_transform #(
      .ARCHITECTURE(ARCHITECTURE),
      .LOG_N       (LOG_N),
      .Q           (Q),
      .SOLINAS     (SOLINAS),
      .BARRETT     (BARRETT),
      .INVERSE     (0),
      .TWIDDLES    (FORWARD),
      .TILE_A      (TILE_A),
      .TILE_B      (TILE_B),
      .SHORT       (SHORT),
      .NARROW      (NARROW)
  ) i_forward (
      .clk_i,
      .rst_ni,
      .valid_i(take),
      .words_i(in_words),
      .valid_o(transform_valid),
      .words_o(transform_words)
  );

  logic pair_valid;
  logic [Lanes-1:0][Width-1:0] a_values, b_values;
  if (PARALLEL) begin : g_parallel
    assign offered = a_tvalid_i && b_tvalid_i;
    assign a_tready_o = ready && b_tvalid_i;
    assign b_tready_o = ready && a_tvalid_i;
    assign take = take_second;

    logic unused_valid;
    logic [Lanes-1:0][Width-1:0] b_words;
    always_comb for (int n = 0; n < Lanes; n++) b_words[n] = b_tdata_i[n][Width-1:0];
    sdf_transform #(
        .ARCHITECTURE(ARCHITECTURE),
        .LOG_N       (LOG_N),
        .Q           (Q),
        .SOLINAS     (SOLINAS),
        .BARRETT     (BARRETT),
        .INVERSE     (0),
        .TWIDDLES    (FORWARD),
        .TILE_A      (TILE_A),
        .TILE_B      (TILE_B),
        .SHORT       (SHORT),
        .NARROW      (NARROW)
    ) i_other (
        .clk_i,
        .rst_ni,
        .valid_i(take),
        .words_i(b_words),
        .valid_o(unused_valid),
        .words_o(b_values)
    );
    assign a_values   = transform_words;
    assign pair_valid = transform_valid;
  end else begin : g_serial
    // The top bit says which factor it is.
    logic [LogBeats:0] in_beat, unused_in_next, here, next;
    ntt_beats #(
        .LOG_BEATS(LogBeats + 1)
    ) i_in_beats (
        .clk_i,
        .rst_ni,
        .valid_i(take),
        .shift_i(1'b0),
        .beat_o (in_beat),
        .next_o (unused_in_next)
    );
    // A first factor needs no room at the output. Its values take the places of the last one's, behind which they come.
    assign offered = a_tvalid_i && in_beat[LogBeats];
    assign a_tready_o = ready || !in_beat[LogBeats];
    assign b_tready_o = 1'b0;
    assign take = a_tvalid_i && a_tready_o;
    logic unused_take;
    assign unused_take = take_second;

    ntt_beats #(
        .LOG_BEATS(LogBeats + 1)
    ) i_beats (
        .clk_i,
        .rst_ni,
        .valid_i(transform_valid),
        .shift_i(1'b0),
        .beat_o (here),
        .next_o (next)
    );
    ram_sdp #(
        .WIDTH          (Lanes * Width),
        .DEPTH          (1 << LogBeats),
        .OUTPUT_REGISTER(0)
    ) i_first (
        .clk_i,
        .we_i   (transform_valid && !here[LogBeats]),
        .waddr_i(here[LogBeats-1:0]),
        .wdata_i(transform_words),
        .raddr_i(next[LogBeats-1:0]),
        .rdata_o(a_values)
    );
    logic unused_top;
    assign unused_top = next[LogBeats];
    assign b_values   = transform_words;
    assign pair_valid = transform_valid && here[LogBeats];
  end

  // The many folds of a product modulo 2^i - 2^j + 1 have registers between them.
  localparam bit ProductShort = SHORT && !SOLINAS;
  logic product_valid;
  logic [Lanes-1:0][Width-1:0] products;
  for (genvar n = 0; n < Lanes; n++) begin : g_product
    value_mul #(
        .SOLINAS(SOLINAS),
        .BARRETT(BARRETT),
        .Q      (Q),
        .TILE_A (TILE_A),
        .TILE_B (TILE_B),
        .SHORT  (ProductShort)
    ) i_mul (
        .clk_i,
        .a_i(a_values[n]),
        .b_i(b_values[n]),
        .p_o(products[n])
    );
  end
  localparam int ProductLatency = product_latency(SOLINAS, BARRETT, Q, TILE_A, TILE_B, ProductShort);
  valid_delay #(
      .CYCLES(ProductLatency)
  ) i_valid (
      .clk_i,
      .rst_ni,
      .valid_i(pair_valid),
      .valid_o(product_valid)
  );

  logic back_valid;
  logic [Lanes-1:0][Width-1:0] back_words, out_words;
  sdf_transform #(
      .ARCHITECTURE(ARCHITECTURE),
      .LOG_N       (LOG_N),
      .Q           (Q),
      .SOLINAS     (SOLINAS),
      .BARRETT     (BARRETT),
      .INVERSE     (1),
      .TWIDDLES    (BACKWARD),
      .TILE_A      (TILE_A),
      .TILE_B      (TILE_B),
      .SHORT       (SHORT),
      .NARROW      (NARROW)
  ) i_backward (
      .clk_i,
      .rst_ni,
      .valid_i(product_valid),
      .words_i(products),
      .valid_o(back_valid),
      .words_o(back_words)
  );

  logic [LogBeats-1:0] unused_beat, out_next;
  ntt_beats #(
      .LOG_BEATS(LogBeats)
  ) i_out_beats (
      .clk_i,
      .rst_ni,
      .valid_i(back_valid),
      .shift_i(1'b0),
      .beat_o (unused_beat),
      .next_o (out_next)
  );
  localparam int Pipeline = 2 * transform_latency(
      ARCHITECTURE, LOG_N, SOLINAS, BARRETT, Q, TILE_A, TILE_B, SHORT, 1
  ) + ProductLatency;
  stream_ends #(
      .WIDTH(Lanes * Width),
      .DEPTH(Pipeline + 1)
  ) i_ends (
      .clk_i,
      .rst_ni,
      .in_tvalid_i (offered),
      .in_tready_o (ready),
      .take_o      (take_second),
      .pipe_valid_i(back_valid),
      .pipe_data_i (back_words),
      .pipe_last_i (out_next == '0),
      .out_tvalid_o,
      .out_tready_i,
      .out_tdata_o (out_words),
      .out_tlast_o
  );
  always_comb for (int n = 0; n < Lanes; n++) out_tdata_o[n] = Lane'(out_words[n]);
endmodule
