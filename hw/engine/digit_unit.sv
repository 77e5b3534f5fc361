// A signed digit of a word (DECOMP): its absolute value and its sign.
//
// The word is brought to the torus in units of 2^-64, and half of every digit's range is added, which turns balanced digits into plain bit
// fields without carries; half the base is then taken off the field.
// Latency: 3 cycles. Source: the exact gadget decomposition of `toroid-tfhe` (`DigitField`).
module digit_unit (
    input logic clk_i,
    input logic goldilocks_i,
    input logic [63:0] offset_i,
    input logic [5:0] shift_i,
    input logic [31:0] mask_i,
    input logic [31:0] half_i,
    input logic [63:0] word_i,
    output logic [31:0] magnitude_o,
    output logic negative_o
);
  // Copies share their code in simulation, which large designs could not be compiled without.
  /* verilator no_inline_module */

  logic [63:0] torus_q, field_q;
  logic [31:0] field;

  assign field = 32'(field_q >> shift_i) & mask_i;

  always_ff @(posedge clk_i) begin
    // word·2^64/p is word + word·2^-32, rounded, to within one unit.
    torus_q <= goldilocks_i ? word_i + 64'(word_i[63:32]) + 64'(word_i[31]) : {word_i[31:0], 32'b0};
    field_q <= torus_q + offset_i;
    negative_o <= field < half_i;
    magnitude_o <= field < half_i ? half_i - field : field - half_i;
  end
endmodule
