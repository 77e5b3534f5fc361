// SPDX-License-Identifier: Apache-2.0 OR MIT
// ntt_elastic_pkg: shapes and latencies of the elastic transform.
package ntt_elastic_pkg;
  import toroid_pkg::*;

  // A design uses some of these.
  // verilator lint_off UNUSEDPARAM
  localparam int WIDTH = 64;
  // What a transform computes.
  localparam logic [1:0] NTT = 2'd0, INTT = 2'd1, NCN = 2'd2, INCN = 2'd3;
  // verilator lint_on UNUSEDPARAM

  // N2 = LANES >> shift, at least 4.
  function automatic int shifts(int log_lanes);
    return log_lanes - 1;
  endfunction

  // The constants of a transform in their order: q, what the first product begins with, words of the first unit, of the
  // third; then the second unit's, those of its first stage and those of each beat of a group, N2 of them.
  localparam int AT_Q = 0, AT_BASE = 1, AT_FIRST = 2;
  function automatic int at_third(int lanes);
    return lanes + 1;
  endfunction
  function automatic int at_second(int lanes);
    return 2 * lanes;
  endfunction
  function automatic int at_beats(int lanes);
    return 2 * lanes + lanes / 2;
  endfunction

  // Beats of a preamble: the second unit's constants are in the lower words, so the upper ones end where these begin.
  function automatic int preamble(int lanes);
    return at_second(lanes);
  endfunction

  // Number i of lanes bits, reversed.
  function automatic int reversed(int i, int bits);
    int r = 0;
    for (int n = 0; n < bits; n++) r = r << 1 | i >> n & 1;
    return r;
  endfunction

  // From a word to its product, from lanes to those behind a unit.
  function automatic int unit_latency(int log_lanes, int mul);
    return log_lanes * (mul + 1);
  endfunction

  // From a beat that is taken to the first product, whose factors are later than its data.
  function automatic int first_product(int log_lanes, int mul);
    return 2 + (log_lanes + 1) * mul;
  endfunction

  // From a beat that is taken to the cycle that writes it to the banks.
  function automatic int write_latency(int log_lanes, int mul);
    return first_product(log_lanes, mul) + mul + 1;
  endfunction

  // From the command to read a beat to that read.
  function automatic int read_lead(int mul);
    return mul - 2;
  endfunction

  // From a beat that is taken to the same beat at the output, but for what it waits in the banks.
  function automatic int transit(int log_lanes, int mul);
    return write_latency(log_lanes, mul) + 3 + 2 * unit_latency(log_lanes, mul) + (1 << log_lanes) - 1;
  endfunction
endpackage
