// SPDX-License-Identifier: Apache-2.0 OR MIT
// Types and constants of the computing engine: what its sequencer asks of its two circuits.
//
// A circuit holds four slots of N words. Vector operations run over rows of VECTOR = LANES/2 words: row r of a slot holds its words
// r·VECTOR ... r·VECTOR + VECTOR - 1. Each is t + u·w or t - u·w modulo p, by the butterflies of the transform.
package engine_pkg;
  // A design uses some of these constants.
  // verilator lint_off UNUSEDPARAM
  // Slots. Operands t and u of one operation must be in slots that differ in bit 0.
  localparam logic [1:0] SLOT_ACC = 2'd0;  // the accumulator of blind rotation
  localparam logic [1:0] SLOT_SUM = 2'd1;  // sums of products
  localparam logic [1:0] SLOT_WORK = 2'd2;  // the digit that is transformed
  localparam logic [1:0] SLOT_DIFFERENCE = 2'd3;  // X^a·ACC - ACC

  typedef enum logic [2:0] {
    U_SLOT,
    U_CROSS,  // the other circuit's word
    U_ROTATED,  // rows turned by X^a (RING_ROT, VECTOR_ROT)
    U_DIGIT,  // a digit modulo p (DECOMP)
    U_STREAM,  // 64-bit words from memory
    U_HALF_STREAM,  // 32-bit words from memory
    U_SELECT  // 1 at the body of a TLWE sample, 0 at its mask
  } u_source_e;

  typedef enum logic [1:0] {
    T_ZERO,
    T_SLOT,
    T_TOP_BIT  // bit 31 of u
  } t_source_e;

  typedef enum logic [1:0] {
    W_SCALAR,
    W_STREAM,
    W_SIGN,    // 1 or p - 1: the sign of the rotation
    W_TWIDDLE
  } w_source_e;

  typedef enum logic [1:0] {
    SINK_SLOT,
    SINK_STORE,  // u to main memory or to the result stream
    SINK_ROW  // u to the scalar unit
  } sink_e;

  // An operation on both circuits: a transform of slot_t, or a vector operation on `rows` rows.
  typedef struct packed {
    logic transform;
    logic inverse;
    logic drain;  // starts when everything before it has been written
    logic [1:0] slot_t;
    logic [1:0] slot_u;
    logic [1:0] slot_result;
    u_source_e u;
    t_source_e t;
    w_source_e w;
    sink_e sink;
    logic minus;  // t - u·w
    logic torus32;  // the result is brought to the 32-bit torus
    logic [19:0] rows;
    logic [19:0] row_operand;
    logic [19:0] row_result;
    logic [20:0] exponent;  // of U_ROTATED, modulo 2N
    logic [63:0] scalar;
  } operation_t;

  // What goes with each row of a vector operation.
  typedef struct packed {
    u_source_e u;
    t_source_e t;
    w_source_e w;
    sink_e sink;
    logic minus;
    logic torus32;
    logic select;  // this row holds the body of a TLWE sample
    logic negative;  // sign of the row that is rotated
    logic half;  // which half of a beat of 32-bit words
    logic [63:0] scalar;
  } vector_t;

  // Cycles that the rotation and the digits need before the operands.
  localparam int LATE = 4;
  // verilator lint_on UNUSEDPARAM

  function automatic logic is_late(u_source_e u);
    return u == U_ROTATED || u == U_DIGIT;
  endfunction

  // Digits of a gadget: how a word is brought to bit fields.
  typedef struct packed {
    logic [63:0] offset;  // half of every digit's range, and half a unit of the last
    logic [5:0] log2_base;
  } gadget_t;

  // What SET commands set.
  typedef struct packed {
    logic goldilocks;  // ciphertext modulus: the Goldilocks prime, or 2^32
    logic compensated;  // modulus switch with the mean of its errors taken off
    logic [15:0] lwe_dimension;
    logic [15:0] tlwe_rows;  // rows of a TLWE sample, in both circuits together 2·VECTOR words each
    logic [7:0] levels;  // of the bootstrapping key; where components differ, those of the mask
    logic [7:0] body_levels;  // where components differ
    gadget_t [1:0] gadget;  // of each circuit's polynomial
    logic [7:0] switch_levels;
    gadget_t switch_gadget;
    logic [7:0] switch_sets;  // partial sums of the key switch
    logic [31:0] key_base;  // addresses in beats of the main memory
    logic [31:0] key_beats;
    logic [31:0] switch_base;
    logic [31:0] switch_beats;
    logic [31:0] vector_base;  // test vectors
    logic [31:0] register_base;  // TLWE samples
    logic [4:0] register_log2_stride;
    logic [31:0] stack_base;
  } settings_t;

  typedef enum logic [7:0] {
    OP_RETURN = 8'd0,
    OP_MOVE = 8'd1,
    OP_PUSH = 8'd2,
    OP_POP = 8'd3,
    OP_BOOTSTRAP = 8'd4,
    OP_HOM_ADD = 8'd5,
    OP_HOM_SUB = 8'd6,
    OP_HOM_INT_MULT = 8'd7,
    OP_SET = 8'd8
  } opcode_e;
endpackage
