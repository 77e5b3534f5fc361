// SPDX-License-Identifier: Apache-2.0 OR MIT
// Constants and types of the streaming engine: roots of unity modulo p = 2^64 - 2^32 + 1, as constant functions, and what is done with rows of
// TLWE samples.
package engine_streaming_pkg;
  localparam logic [63:0] P = toroid_pkg::GOLDILOCKS;
  localparam int MOST_LOG_N = 17;
  // psi(2^17) of `toroid-ring`, a root of unity of order 2^18.
  localparam logic [63:0] PSI_131072 = 64'd2311990510900735078;

  function automatic logic [63:0] product(logic [63:0] a, logic [63:0] b);
    automatic logic [64:0] sum = '0;
    for (int place = 63; place >= 0; place--) begin
      sum = sum << 1;
      if (sum >= 65'(P)) sum = sum - 65'(P);
      if (a[place]) sum = sum + 65'(b);
      if (sum >= 65'(P)) sum = sum - 65'(P);
    end
    return sum[63:0];
  endfunction

  // A root of order 2^(log_n + 1): that of `toroid-ring` for degree 2^log_n.
  function automatic logic [63:0] psi(int log_n);
    psi = PSI_131072;
    for (int square = log_n; square < MOST_LOG_N; square++) psi = product(psi, psi);
  endfunction

  // psi(2^log_n)^exponent.
  function automatic logic [63:0] psi_power(int log_n, int exponent);
    psi_power = 64'd1;
    for (int factor = 0; factor < exponent; factor++) psi_power = product(psi_power, psi(log_n));
  endfunction

  // Operations on rows of the sample at work, each 2·P words. Rows become t + u·w modulo p, by the multipliers of blind rotation.
  typedef enum logic [1:0] {
    ROW_STREAM,  // u from memory
    ROW_SUM,  // u of the key switch
    ROW_BODY,  // u = 1 at the body, 0 at the mask
    ROW_STORE  // rows go to main memory or to the result stream
  } row_source_e;

  typedef enum logic [1:0] {
    ADD_ZERO,
    ADD_SAMPLE,  // the row
    ADD_TOP_BIT  // bit 31 of u
  } row_addend_e;

  typedef struct packed {
    row_source_e u;
    row_addend_e t;
    logic torus32;  // the result is brought to the 32-bit torus
    logic [63:0] factor;
  } row_operation_t;
endpackage
