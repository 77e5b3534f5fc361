// SPDX-License-Identifier: Apache-2.0 OR MIT
// permutation_pkg: maps of control signals and latencies of the permutation network.
//
// A control signal is a switch or a bit of an address. Its entry of a map says what it is: 0 and 1 are constants;
// 2 + 2 i + v is bit i of {ROM, counter of beats}, inverted if v is 1. The counter has index_width(beats) bits.
package permutation_pkg;
  // A design uses some of these.
  // verilator lint_off UNUSEDPARAM
  localparam int ENTRY_BITS = 16;
  localparam int MAX_LOG_LANES = 7;
  localparam int MAX_LOG_BEATS = 20;

  // The switches of the columns of one side: that of pair i in column c is c * lanes / 2 + i.
  typedef logic [MAX_LOG_LANES*(1 << MAX_LOG_LANES)/2*ENTRY_BITS-1:0] switch_map_t;

  function automatic int switches(int log_lanes);
    return log_lanes * (1 << log_lanes) / 2;
  endfunction

  // The width of a map of n signals.
  function automatic int map_width(int n);
    return ENTRY_BITS * (n > 0 ? n : 1);
  endfunction

  // Bits of an address that come from a map, none where words keep their beats.
  function automatic int address_bits(int log_beats, int log_depth, int delay);
    if (delay == 0) return 0;
    return log_depth < log_beats ? log_depth : log_beats;
  endfunction

  // Whether a column of switches is more than wires.
  function automatic bit is_active(switch_map_t map, int log_lanes, int column);
    int half = (1 << log_lanes) / 2;
    for (int i = column * half; i < (column + 1) * half; i++) if (map[i*ENTRY_BITS+:ENTRY_BITS] > 1) return 1'b1;
    return 1'b0;
  endfunction

  // Active columns among the first n of a side, in the order in which words pass them.
  function automatic int active_columns(switch_map_t map, int log_lanes, int n, bit reverse);
    int count = 0;
    for (int c = 0; c < n; c++) begin
      if (is_active(map, log_lanes, reverse ? log_lanes - 1 - c : c)) count++;
    end
    return count;
  endfunction

  // Three columns from register to register, and none behind the last.
  function automatic int columns_latency(switch_map_t map, int log_lanes);
    int columns = active_columns(map, log_lanes, log_lanes, 1'b0);
    return columns == 0 ? 0 : (columns - 1) / 3;
  endfunction

  // From columns to columns: the memory, or a register where there are columns on both sides.
  function automatic int middle_latency(switch_map_t first, switch_map_t second, int log_lanes, int delay);
    if (delay != 0) return delay + 2;
    return active_columns(
        first, log_lanes, log_lanes, 1'b0
    ) > 0 && active_columns(
        second, log_lanes, log_lanes, 1'b0
    ) > 0 ? 1 : 0;
  endfunction

  // permutation_network, from beat u of the input to beat u of the output where no cycle of the frame is without a
  // beat.
  function automatic int latency(switch_map_t first, switch_map_t second, int log_lanes, int delay);
    return columns_latency(first, log_lanes) + middle_latency(first, second, log_lanes, delay) +
        columns_latency(second, log_lanes);
  endfunction
endpackage
