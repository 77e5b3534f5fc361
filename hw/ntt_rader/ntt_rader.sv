// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_rader: the discrete Fourier transform of COLUMNS * WORDS points modulo Q, and its inverse, by the prime-factor
// and Rader's algorithms, for products of different primes of 3, 5, 17 and 257; the direction by the transform.
//
// COLUMNS = P is the greatest prime, WORDS = C the product of the others. (P - 1) / 2 elements of one multiplier have
// two columns each, of the residues g^i and g^(i + (P - 1) / 2) modulo P of the words' indices; another has that of
// residue 0. Rows, of one word of each column, go round through the elements for the transforms along P; the transforms
// along the other primes are a program of butterflies which all columns go through at once. See rader_control and
// rader_element.
//
// GENERATOR    g, a primitive root modulo COLUMNS
// Q            a prime, 1 modulo 256 * COLUMNS * WORDS; that it is prime is not checked
// SLOTS        steps of the program
// PROGRAM      its file (see rader_control)
// CONSTANTS    file of the elements' constants by {direction, pass}: that of residue 0 highest, element 0 lowest, times
//              2^32 modulo Q
// TILE_A, TILE_B, SHORT  see mul_tiles
// in_tuser_i   in the first beat: 1 for the inverse transform, divided by its length; out_tuser_o in all beats
// Streams: WORDS beats of COLUMNS words a transform, in the order of the index
// Source: Du Pont, Hardware Acceleration of the Prime-Factor and Rader NTT for BGV Fully Homomorphic Encryption
module ntt_rader
  import ntt_rader_pkg::*;
#(
    parameter int COLUMNS = 257,
    parameter int WORDS = 85,
    parameter int GENERATOR = 3,
    parameter logic [31:0] Q = 32'd4244570881,
    parameter int SLOTS = 478,
    parameter string PROGRAM = "",
    parameter string CONSTANTS = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1
) (
    input  logic                          clk_i,
    input  logic                          rst_ni,
    input  logic                          in_tvalid_i,
    output logic                          in_tready_o,
    input  logic [COLUMNS-1:0][WIDTH-1:0] in_tdata_i,
    input  logic                          in_tuser_i,
    output logic                          out_tvalid_o,
    input  logic                          out_tready_i,
    output logic [COLUMNS-1:0][WIDTH-1:0] out_tdata_o,
    output logic                          out_tuser_o,
    output logic                          out_tlast_o
);
  if (COLUMNS != 5 && COLUMNS != 17 && COLUMNS != 257) begin : g_check_columns
    $fatal(1, "ntt_rader: COLUMNS must be 5, 17 or 257");
  end
  if (WORDS < 3 || 255 % WORDS != 0 || WORDS > COLUMNS - 2) begin : g_check_words
    $fatal(1, "ntt_rader: WORDS must be a product of different primes of 3, 5 and 17 below COLUMNS");
  end
  if (Q < 32'd3 || (Q - 32'd1) % 32'(COLUMNS * WORDS * (1 << WORD)) != 32'd0) begin : g_check_q
    $fatal(1, "ntt_rader: Q must be a prime that is 1 modulo 256 * COLUMNS * WORDS");
  end
  if (GENERATOR < 2 || GENERATOR >= COLUMNS || residue(
          GENERATOR, (COLUMNS - 1) / 2, COLUMNS
      ) != COLUMNS - 1) begin : g_check_generator
    $fatal(1, "ntt_rader: GENERATOR must be a primitive root modulo COLUMNS, below it");
  end

  localparam int Elements = (COLUMNS - 1) / 2;
  localparam int LogPoints = $clog2(COLUMNS - 1);
  localparam int Word = toroid_pkg::index_width(WORDS);
  localparam int PassWidth = toroid_pkg::index_width(2 * LogPoints);
  localparam int Credits = 8;

  logic [1:0] loaded, inverse, write, second;
  logic finished, finished_set, reads_soon, writes_soon;
  element_control_t control;
  logic [WIDTH-1:0] step_constant;
  logic [PassWidth:0] row_address;
  logic [1:0][Word:0] read_address, write_address;
  rader_control #(
      .LOG_POINTS     (LogPoints),
      .WORDS          (WORDS),
      .SLOTS          (SLOTS),
      .PROGRAM        (PROGRAM),
      .PRODUCT_LATENCY(product_latency(TILE_A, TILE_B, SHORT))
  ) i_control (
      .clk_i,
      .rst_ni,
      .loaded_i       (loaded),
      .inverse_i      (inverse),
      .finished_o     (finished),
      .finished_set_o (finished_set),
      .control_o      (control),
      .step_constant_o(step_constant),
      .row_address_o  (row_address),
      .read_address_o (read_address),
      .write_o        (write),
      .second_o       (second),
      .write_address_o(write_address),
      .reads_soon_o   (reads_soon),
      .writes_soon_o  (writes_soon)
  );

  logic take, load_set, unload, unload_set, unload_last, unload_inverse;
  logic [WORDS-1:0][Word-1:0] load_ring, unload_ring;
  rader_streams #(
      .COLUMNS(COLUMNS),
      .WORDS  (WORDS),
      .CREDITS(Credits)
  ) i_streams (
      .clk_i,
      .rst_ni,
      .in_tvalid_i,
      .in_tready_o,
      .in_tuser_i,
      .loaded_o        (loaded),
      .inverse_o       (inverse),
      .finished_i      (finished),
      .finished_set_i  (finished_set),
      .reads_soon_i    (reads_soon),
      .writes_soon_i   (writes_soon),
      .take_o          (take),
      .load_set_o      (load_set),
      .load_ring_o     (load_ring),
      .unload_o        (unload),
      .unload_set_o    (unload_set),
      .unload_ring_o   (unload_ring),
      .unload_last_o   (unload_last),
      .unload_inverse_o(unload_inverse),
      .leave_i         (out_tvalid_o && out_tready_i)
  );

  logic [Elements:0][WIDTH-1:0] constants;
  rom #(
      .WIDTH((Elements + 1) * WIDTH),
      .DEPTH(2 << PassWidth),
      .FILE (CONSTANTS)
  ) i_constants (
      .clk_i,
      .addr_i(row_address),
      .data_o(constants)
  );

  // By position, that of residue 0 last: words of the columns; by element: results.
  logic [COLUMNS-1:0][WIDTH-1:0] word, out_word;
  logic [Elements:0][WIDTH-1:0] a, b, later_b, sum;
  for (genvar n = 0; n < COLUMNS; n++) begin : g_column
    localparam int Lane = n == COLUMNS - 1 ? 0 : residue(GENERATOR, n, COLUMNS);
    localparam int Element = n == COLUMNS - 1 ? Elements : n % Elements;
    localparam int Upper = n >= Elements && n < COLUMNS - 1 ? 1 : 0;
    rader_column #(
        .ADDRESS(Word + 1)
    ) i_column (
        .clk_i,
        .write_i         (write[Upper]),
        .second_i        (second[Upper]),
        .write_address_i (write_address[Upper]),
        .first_word_i    (a[Element]),
        .second_word_i   (later_b[Element]),
        .take_i          (take),
        .load_address_i  ({load_set, load_ring[Lane%WORDS]}),
        .in_i            (in_tdata_i[Lane]),
        .unload_i        (unload),
        .unload_address_i({unload_set, unload_ring[Lane%WORDS]}),
        .read_address_i  (read_address[Upper]),
        .word_o          (word[n])
    );
    assign out_word[Lane] = word[n];
  end

  // What x_0 adds to point 0 of the convolution is element Elements' product of the pass before, in AT_SUMS.
  logic [WIDTH-1:0] share;
  delay #(
      .WIDTH (WIDTH),
      .CYCLES(AT_SUMS - AT_SECOND)
  ) i_share (
      .clk_i,
      .d_i(b[Elements]),
      .q_o(share)
  );

  for (genvar i = 0; i <= Elements; i++) begin : g_element
    logic [WIDTH-1:0] upper, forward_a, forward_b, self_a, inverse_a, inverse_b, inject;
    if (i < Elements) begin : g_wires
      // An element gives positions 2 i and 2 i + 1 forward, i and i + Elements behind the turn.
      localparam int First = 2 * i;
      assign upper = word[i+Elements];
      assign forward_a = i % 2 == 0 ? a[i/2] : b[i/2];
      assign forward_b = i % 2 == 0 ? a[(i+Elements)/2] : b[(i+Elements)/2];
      assign self_a = b[i];
      assign inverse_a = First < Elements ? a[First%Elements] : b[First%Elements];
      assign inverse_b = First < Elements ? a[(First+1)%Elements] : b[(First+1)%Elements];
      assign inject = share;
    end else begin : g_wires
      // Beside 0, a keeps its word.
      assign upper = '0;
      assign forward_a = a[i];
      assign forward_b = '0;
      assign self_a = '0;
      assign inverse_a = a[i];
      assign inverse_b = '0;
      assign inject = sum[0];
    end
    rader_element #(
        .Q     (Q),
        .INJECT(i == 0 || i == Elements),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B),
        .SHORT (SHORT)
    ) i_element (
        .clk_i,
        .control_i      (control),
        .inject_i       (inject),
        .lower_i        (word[i<Elements?i : COLUMNS-1]),
        .upper_i        (upper),
        .forward_a_i    (forward_a),
        .forward_b_i    (forward_b),
        .self_a_i       (self_a),
        .self_b_i       (a[i]),
        .inverse_a_i    (inverse_a),
        .inverse_b_i    (inverse_b),
        .constant_i     (constants[i]),
        .step_constant_i(step_constant),
        .sum_o          (sum[i]),
        .a_o            (a[i]),
        .b_o            (b[i]),
        .second_o       (later_b[i])
    );
  end
  logic unused_sums;
  assign unused_sums = ^sum[Elements:1];

  // A beat that is read has a place in the queue.
  logic pushed, pushed_last, pushed_inverse, unused_ready;
  logic [$clog2(Credits+1)-1:0] unused_count;
  valid_delay #(
      .CYCLES(2)
  ) i_pushed (
      .clk_i,
      .rst_ni,
      .valid_i(unload),
      .valid_o(pushed)
  );
  delay #(
      .WIDTH (2),
      .CYCLES(2)
  ) i_flags (
      .clk_i,
      .d_i({unload_last, unload_inverse}),
      .q_o({pushed_last, pushed_inverse})
  );
  stream_fifo #(
      .WIDTH(COLUMNS * WIDTH + 1),
      .DEPTH(Credits)
  ) i_queue (
      .clk_i,
      .rst_ni,
      .in_tvalid_i(pushed),
      .in_tready_o(unused_ready),
      .in_tdata_i ({pushed_inverse, out_word}),
      .in_tlast_i (pushed_last),
      .out_tvalid_o,
      .out_tready_i,
      .out_tdata_o({out_tuser_o, out_tdata_o}),
      .out_tlast_o,
      .count_o    (unused_count)
  );
endmodule
