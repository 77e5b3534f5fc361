// SPDX-License-Identifier: Apache-2.0 OR MIT
// sdf_transform: an NTT or INTT, divided by N, of canonical words, one or two per cycle, without handshakes.
//
// An NTT takes words in the order of their indices (Modr2: words i and i + N / 2 in beat i) and gives values with the
// bits of their numbers reversed (Modr2: two by two); an INTT the other way round.
//
// ARCHITECTURE      0 R2SDF, 1 R2^2SDF, 2 Modr2 (ntt_sdf_pkg)
// LOG_N             log2 of the words of a polynomial, 2 to 20
// SOLINAS, BARRETT, Q, TILE_A, TILE_B, SHORT, NARROW  see twiddle_mul
// INVERSE           direction
// ASCENDING         of Modr2, the order of the stages (ntt_streaming_pkg): INVERSE for the orders above
// REGISTERED        0, of one lane: words become canonical by an adder behind the last register
// TWIDDLES          {TWIDDLES, "_", n, ".hex"} is the table of product n, in two decimal digits
// Words of a polynomial may have any distance; the last ones of it leave without others behind them.
// Latency: ntt_sdf_pkg::transform_latency where words follow each other
module sdf_transform
  import ntt_sdf_pkg::*;
#(
    parameter int ARCHITECTURE = R2SDF,
    parameter int LOG_N = 6,
    parameter logic [63:0] Q = 64'd7681,
    parameter bit SOLINAS = 1,
    parameter bit BARRETT = 0,
    parameter bit INVERSE = 0,
    parameter bit ASCENDING = INVERSE,
    parameter bit REGISTERED = 1,
    parameter string TWIDDLES = "",
    parameter int TILE_A = 24,
    parameter int TILE_B = 17,
    parameter bit SHORT = 1,
    parameter int NARROW = 0,
    localparam int Lanes = 1 << log_lanes(ARCHITECTURE),
    localparam int Width = $clog2(Q)
) (
    input  logic                        clk_i,
    input  logic                        rst_ni,
    input  logic                        valid_i,
    input  logic [Lanes-1:0][Width-1:0] words_i,
    output logic                        valid_o,
    output logic [Lanes-1:0][Width-1:0] words_o
);
  if (!is_legal(ARCHITECTURE, LOG_N, Q, SOLINAS, BARRETT)) begin : g_check
    $fatal(1, "sdf_transform: ARCHITECTURE is 0 to 2, LOG_N 2 to 20; SOLINAS needs Q = 2^i - 2^j + 1 and no BARRETT");
  end
  if (ARCHITECTURE == MODR2 && !REGISTERED) begin : g_check_register
    $fatal(1, "sdf_transform: REGISTERED = 0 is for one lane");
  end

  if (ARCHITECTURE == MODR2) begin : g_pairs
    logic [1:0] unused_tag;
    ntt_pipeline #(
        .LOG_N    (LOG_N),
        .LOG_LANES(1),
        .Q        (Q),
        .SOLINAS  (SOLINAS),
        .BARRETT  (BARRETT),
        .INVERSE  (INVERSE),
        .ASCENDING(ASCENDING),
        .TWIDDLES (TWIDDLES),
        .TILE_A   (TILE_A),
        .TILE_B   (TILE_B),
        .SHORT    (SHORT),
        .NARROW   (NARROW)
    ) i_pipeline (
        .clk_i,
        .rst_ni,
        .valid_i,
        .tag_i(2'b0),
        .words_i,
        .valid_o,
        .tag_o(unused_tag),
        .words_o
    );
  end else begin : g_chain
    localparam int Word = Width + int'(SOLINAS);
    localparam int Term = Width + 2 * int'(SOLINAS);

    // Before stage n.
    logic valid[LOG_N+1];
    logic [Term-1:0] terms[LOG_N+1];
    assign valid[0] = valid_i;
    assign terms[0] = Term'(words_i[0]);
    for (genvar n = 0; n < LOG_N; n++) begin : g_stage
      localparam int Bit = INVERSE ? n : LOG_N - 1 - n;
      localparam string File = TWIDDLES == "" ? "" :
          {TWIDDLES, "_", string'(8'(48 + n / 10)), string'(8'(48 + n % 10)), ".hex"};
      logic factor_valid_in, factor_valid, butterfly_valid_in, butterfly_valid;
      logic [Word-1:0] factor_in, sums;
      logic [Term-1:0] factor_out, butterfly_in;
      sdf_factor #(
          .LOG_N   (LOG_N),
          .SHIFT   (row_shift(ARCHITECTURE, LOG_N, INVERSE, Bit)),
          .LOG_ROWS(row_bits(ARCHITECTURE, LOG_N, INVERSE, Bit)),
          .PASS    (passes(ARCHITECTURE, LOG_N, INVERSE, Bit)),
          .FILE    (File),
          .SOLINAS (SOLINAS),
          .BARRETT (BARRETT),
          .Q       (Q),
          .TILE_A  (TILE_A),
          .TILE_B  (TILE_B),
          .SHORT   (SHORT),
          .NARROW  (NARROW)
      ) i_factor (
          .clk_i,
          .rst_ni,
          .valid_i(factor_valid_in),
          .word_i (factor_in),
          .valid_o(factor_valid),
          .term_o (factor_out)
      );
      sdf_butterfly #(
          .LOG_STEPS(Bit),
          .SOLINAS  (SOLINAS),
          .Q        (Q)
      ) i_butterfly (
          .clk_i,
          .rst_ni,
          .valid_i(butterfly_valid_in),
          .term_i (butterfly_in),
          .valid_o(butterfly_valid),
          .word_o (sums)
      );
      if (INVERSE) begin : g_inverse
        assign {butterfly_valid_in, butterfly_in} = {valid[n], terms[n]};
        assign {factor_valid_in, factor_in} = {butterfly_valid, sums};
        assign {valid[n+1], terms[n+1]} = {factor_valid, factor_out};
      end else begin : g_forward
        assign {factor_valid_in, factor_in} = {valid[n], terms[n][Word-1:0]};
        assign {butterfly_valid_in, butterfly_in} = {factor_valid, factor_out};
        assign {valid[n+1], terms[n+1]} = {butterfly_valid, Term'(sums)};
      end
    end

    if (SOLINAS) begin : g_canonical
      localparam int J = toroid_pkg::solinas_j(Q);
      logic [ Word-1:0] last;
      logic [Width-1:0] canonical;
      if (INVERSE) begin : g_inverse
        solinas_carry #(
            .I(Width),
            .J(J)
        ) i_carry (
            .v_i({terms[LOG_N][Term-1], terms[LOG_N]}),
            .r_o(last)
        );
      end else begin : g_forward
        assign last = terms[LOG_N][Word-1:0];
      end
      mod_canonical #(
          .WIDTH    (Width),
          .WIDTH_X  (Word),
          .MULTIPLES(J == Width - 2 ? 2 : 1)
      ) i_canonical (
          .q_i(Q[Width-1:0]),
          .x_i(last),
          .r_o(canonical)
      );
      delay #(
          .WIDTH (Width),
          .CYCLES(int'(REGISTERED))
      ) i_delay (
          .clk_i,
          .d_i(canonical),
          .q_o(words_o)
      );
      valid_delay #(
          .CYCLES(int'(REGISTERED))
      ) i_valid (
          .clk_i,
          .rst_ni,
          .valid_i(valid[LOG_N]),
          .valid_o
      );
    end else begin : g_canonical
      assign words_o = terms[LOG_N];
      assign valid_o = valid[LOG_N];
    end
  end
endmodule
