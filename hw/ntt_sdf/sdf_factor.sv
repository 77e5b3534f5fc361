// SPDX-License-Identifier: Apache-2.0 OR MIT
// sdf_factor: multiplies the words of polynomials, one per cycle, each by the entry of a table that its index chooses.
//
// LOG_N     log2 of the words of a polynomial
// SHIFT, LOG_ROWS  word i takes row (i >> SHIFT) modulo 2^LOG_ROWS
// PASS      1: words whose bit SHIFT - 1 is 0 are multiplied by 1
// FILE      the table, as twiddle_mul takes its entries
// SOLINAS, BARRETT, Q, TILE_A, TILE_B, SHORT, NARROW  see twiddle_mul, also for what words and terms are
// Latency: ntt_sdf_pkg::twiddle_latency; words of a polynomial may have any distance
module sdf_factor #(
    parameter int LOG_N = 6,
    parameter int SHIFT = 1,
    parameter int LOG_ROWS = 5,
    parameter bit PASS = 1,
    parameter string FILE = "",
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter logic [63:0] Q = 64'd7681,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Width = $clog2(Q),
    localparam int Word = Width + int'(SOLINAS),
    localparam int Term = Width + 2 * int'(SOLINAS)
) (
    input  logic            clk_i,
    input  logic            rst_ni,
    input  logic            valid_i,
    input  logic [Word-1:0] word_i,
    output logic            valid_o,
    output logic [Term-1:0] term_o
);
  if (SHIFT < int'(PASS) || LOG_ROWS < 0 || SHIFT + LOG_ROWS > LOG_N) begin : g_check
    $fatal(1, "sdf_factor: SHIFT + LOG_ROWS is at most LOG_N, and PASS needs a SHIFT above 0");
  end

  localparam int AddressWidth = LOG_ROWS > 0 ? LOG_ROWS : 1;
  localparam logic [63:0] Unit = ntt_sdf_pkg::unit(SOLINAS, BARRETT, Q, TILE_B);

  // Some of their bits matter.
  // verilator lint_off UNUSEDSIGNAL
  logic [LOG_N-1:0] here, next;
  // verilator lint_on UNUSEDSIGNAL
  ntt_beats #(
      .LOG_BEATS(LOG_N)
  ) i_beats (
      .clk_i,
      .rst_ni,
      .valid_i,
      .shift_i(1'b0),
      .beat_o (here),
      .next_o (next)
  );

  // The table is read ahead: in each cycle it is given the row of the word that comes in the next one.
  logic [Width-1:0] row, factor;
  rom #(
      .WIDTH          (Width),
      .DEPTH          (1 << LOG_ROWS),
      .FILE           (FILE),
      .OUTPUT_REGISTER(0)
  ) i_table (
      .clk_i,
      .addr_i(AddressWidth'(next >> SHIFT) & AddressWidth'((1 << LOG_ROWS) - 1)),
      .data_o(row)
  );
  if (PASS) begin : g_pass
    assign factor = here[SHIFT-1] ? row : Unit[Width-1:0];
  end else begin : g_always
    assign factor = row;
  end

  twiddle_mul #(
      .SOLINAS(SOLINAS),
      .BARRETT(BARRETT),
      .Q      (Q),
      .TILE_A (TILE_A),
      .TILE_B (TILE_B),
      .SHORT  (SHORT),
      .NARROW (NARROW)
  ) i_mul (
      .clk_i,
      .x_i(word_i),
      .w_i(factor),
      .p_o(term_o)
  );
  valid_delay #(
      .CYCLES(ntt_sdf_pkg::twiddle_latency(SOLINAS, BARRETT, Q, TILE_A, TILE_B, SHORT))
  ) i_valid (
      .clk_i,
      .rst_ni,
      .valid_i,
      .valid_o
  );
endmodule
