// SPDX-License-Identifier: Apache-2.0 OR MIT
// sdf_sums: the sums of a butterfly with feedback.
//
// second_i = 0: word = stored           rest = term
// second_i = 1: word = stored + term    rest = stored - term
//
// SOLINAS, Q  see twiddle_mul, also for what words and terms are; the rest is one bit wider than a term, in the
//                    range of solinas_carry, or canonical
// Latency: 1 to word_o, 0 to rest_o. word_o comes from an adder behind its register (SOLINAS).
module sdf_sums #(
    parameter bit SOLINAS = 1,
    parameter logic [63:0] Q = 64'd7681,
    localparam int Width = $clog2(Q),
    localparam int Word = Width + int'(SOLINAS),
    localparam int Term = Width + 2 * int'(SOLINAS),
    localparam int Rest = Width + 3 * int'(SOLINAS)
) (
    input  logic            clk_i,
    input  logic            second_i,
    input  logic [Word-1:0] stored_i,
    input  logic [Term-1:0] term_i,
    output logic [Word-1:0] word_o,
    output logic [Rest-1:0] rest_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  if (!Q[0] || Q < 64'd5 || SOLINAS && !ntt_streaming_pkg::is_solinas(Q)) begin : g_check
    $fatal(1, "sdf_sums: Q must be odd and at least 5, and for SOLINAS 2^i - 2^j + 1 with j < i - 1");
  end

  if (SOLINAS) begin : g_solinas
    logic [Rest-1:0] stored, term, sum_q;
    assign stored = {2'b0, stored_i};
    assign term   = {term_i[Term-1], term_i};
    // One adder: 0 + term or stored - term.
    assign rest_o = (stored & {Rest{second_i}}) + (term ^ {Rest{second_i}}) + Rest'(second_i);
    always_ff @(posedge clk_i) sum_q <= stored + (term & {Rest{second_i}});
    solinas_carry #(
        .I(Width),
        .J(toroid_pkg::solinas_j(Q))
    ) i_carry (
        .v_i(sum_q),
        .r_o(word_o)
    );
  end else begin : g_canonical
    logic [Width-1:0] sum, difference;
    mod_add #(
        .WIDTH(Width)
    ) i_sum (
        .q_i(Q[Width-1:0]),
        .a_i(stored_i),
        .b_i(term_i & {Width{second_i}}),
        .s_o(sum)
    );
    mod_sub #(
        .WIDTH(Width)
    ) i_difference (
        .q_i(Q[Width-1:0]),
        .a_i(stored_i),
        .b_i(term_i),
        .d_o(difference)
    );
    assign rest_o = second_i ? difference : term_i;
    always_ff @(posedge clk_i) word_o <= sum;
  end
endmodule
