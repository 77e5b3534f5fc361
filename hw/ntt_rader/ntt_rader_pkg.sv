// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_rader_pkg: what the modules of ntt_rader agree upon. "Cycle 0" of an operation is the one in which its first word
// is read; the second columns are a cycle late in everything.
package ntt_rader_pkg;
  // Bits of a word, and the word of its Montgomery reduction: q = 1 modulo 2^WORD.
  localparam int WIDTH = 32;
  localparam int WORD = 8;

  // Cycles from an element's operands to its results, by which they come round as the operands of the next pass.
  localparam int LOOP = 17;

  // The cycles of an operation: its columns' first words, operands at the element's multiplexers, operands registered,
  // sum and difference registered, results.
  localparam int AT_FIRST = 2;
  localparam int AT_SECOND = 3;
  localparam int AT_OPERANDS = 4;
  localparam int AT_SUMS = 5;
  localparam int AT_RESULTS = AT_SECOND + LOOP;

  // What an element does with a, b and its constant w: a + b and (a - b) w; a - b w and a + b w; -b w + a and -b w - a;
  // a + b and a + b + b w.
  typedef enum logic [1:0] {
    MODE_FORWARD,
    MODE_INVERSE,
    MODE_TURN,
    MODE_ZERO
  } mode_e;

  // Where an element's operands come from.
  typedef enum logic [1:0] {
    FROM_COLUMNS,
    FROM_FORWARD,
    FROM_SELF,
    FROM_INVERSE
  } source_e;

  // To the elements, each of them at its time.
  typedef struct packed {
    logic    first_upper;   // AT_FIRST: a is a word of the second column
    logic    second_upper;  // AT_SECOND: so is b
    source_e source;        // AT_SECOND
    mode_e   mode;          // AT_OPERANDS
    logic    is_row;        // AT_OPERANDS: the constant is the element's own
    logic    inject;        // AT_SUMS
    mode_e   mode_late;     // with the product
  } element_control_t;

  // Cycles from registered sum and difference to the product.
  function automatic int product_latency(int tile_a, int tile_b, bit short_pipeline);
    return toroid_pkg::montgomery_double_latency(WIDTH, WORD, tile_a, tile_b, short_pipeline);
  endfunction

  // Registers of the wires between elements, so that the loop is complete.
  function automatic int wire_registers(int tile_a, int tile_b, bit short_pipeline);
    return AT_RESULTS - AT_SUMS - 1 - product_latency(tile_a, tile_b, short_pipeline);
  endfunction

  // generator^position modulo prime: the residue of a position.
  function automatic int residue(int generator, int position, int prime);
    int power = 1;
    for (int n = 0; n < position; n++) power = power * generator % prime;
    return power;
  endfunction
endpackage
