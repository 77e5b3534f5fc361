// SPDX-License-Identifier: Apache-2.0 OR MIT
// Beats of one in-place transform after the other, in the order of `ntt_inplace_pkg`.
//
// A transform starts at a cycle with start_i and ready_o, and its first beat leaves in the next cycle. HAZARD is the
// least number of cycles from a beat to another that reads what it wrote. `twiddle_o` is the address of the beat's
// twiddles in the table of `ntt_inplace_pkg`; both directions share it (see `butterfly_integrated`). `last_o` goes with
// the last beat; ready_o returns with it.
module ntt_schedule
  import ntt_inplace_pkg::*;
#(
    parameter int LOG_N = 14,
    parameter int LOG_LANES = 5,
    parameter int HAZARD = 22,
    localparam int TWIDDLE_BITS = $clog2(twiddle_base(LOG_N, LOG_LANES, -1))
) (
    input logic clk_i,
    input logic rst_ni,
    input logic start_i,
    input logic inverse_i,
    input logic [1:0] slot_i,
    output logic ready_o,
    output beat_t beat_o,
    output logic [TWIDDLE_BITS-1:0] twiddle_o,
    output logic last_o
);
  localparam int COUNT_BITS = LOG_N - LOG_LANES;
  localparam int ROW_BITS = $clog2(LOG_N);
  localparam int LAST_CHUNK = chunks(LOG_N, LOG_LANES) - 1;
  localparam bit SHORT = chunk_width(LOG_N, LOG_LANES, LAST_CHUNK) != LOG_LANES;

  if (!is_legal(LOG_N, LOG_LANES)) begin : g_check
    $fatal(1, "ntt_schedule: 2 <= LOG_LANES <= 10, LOG_LANES < LOG_N <= 20 and LOG_N <= 8 LOG_LANES must hold");
  end

  logic active_q, inverse_q;
  logic [1:0] slot_q;
  logic [ROW_BITS-1:0] pair_bit_q;
  logic [COUNT_BITS-1:0] count_q;
  logic [7:0] wait_q;

  // What each row needs, by its pair bit.
  logic [LOG_N-1:0] index[LOG_N];
  logic [TWIDDLE_BITS-1:0] twiddle[LOG_N];
  logic [7:0] bubble_after[LOG_N];

  for (genvar row = 0; row < LOG_N; row++) begin : gen_row
    localparam int UPPER = upper_bits(LOG_N, LOG_LANES, row);
    localparam int DOWN = row == 0 ? 0 : bubble(LOG_N, LOG_LANES, row, row - 1, HAZARD);
    localparam int UP = row == LOG_N - 1 ? 0 : bubble(LOG_N, LOG_LANES, row, row + 1, HAZARD);

    if (DOWN > 255 || UP > 255) begin : g_check
      $fatal(1, "ntt_schedule: HAZARD must be at most 255");
    end

    for (genvar index_bit = 0; index_bit < LOG_N; index_bit++) begin : gen_bit
      localparam int WEIGHT = counter_weight(LOG_N, LOG_LANES, row, index_bit);
      if (WEIGHT == 0) begin : gen_lane
        assign index[row][index_bit] = 1'b0;
      end else begin : gen_count
        assign index[row][index_bit] = count_q[$clog2(WEIGHT)];
      end
    end

    if (UPPER == 0) begin : gen_one_twiddle
      assign twiddle[row] = TWIDDLE_BITS'(twiddle_base(LOG_N, LOG_LANES, row));
    end else begin : gen_twiddles
      localparam int BASE = twiddle_base(LOG_N, LOG_LANES, row);
      assign twiddle[row] = TWIDDLE_BITS'(BASE) + TWIDDLE_BITS'(index[row][LOG_N-1-:UPPER] ^ {UPPER{inverse_q}});
    end

    assign bubble_after[row] = inverse_q ? 8'(UP) : 8'(DOWN);
  end

  logic row_ends, transform_ends;
  assign row_ends = wait_q == 0 && count_q == '1;
  assign transform_ends = row_ends && pair_bit_q == (inverse_q ? ROW_BITS'(LOG_N - 1) : '0);
  assign ready_o = !active_q || transform_ends;
  assign last_o = active_q && transform_ends;

  always_comb begin
    beat_o = '0;
    beat_o.valid = active_q && wait_q == 0;
    beat_o.write = beat_o.valid;
    beat_o.transform = 1'b1;
    beat_o.inverse = inverse_q;
    beat_o.group = 3'(pair_bit_q / ROW_BITS'(LOG_LANES));
    beat_o.read_index = MAX_LOG_N'(index[pair_bit_q]);
    beat_o.write_index = beat_o.read_index;
    beat_o.slot_a = slot_q;
    beat_o.slot_b = slot_q;
    beat_o.slot_write = slot_q;
    beat_o.turn_in = inverse_q ? 2'd1 : (SHORT && pair_bit_q == ROW_BITS'(LOG_N - 1)) ? 2'd2 : 2'd0;
    beat_o.turn_out = !inverse_q ? 2'd1 : (SHORT && pair_bit_q == ROW_BITS'(LOG_N - 1)) ? 2'd2 : 2'd0;
    twiddle_o = twiddle[pair_bit_q];
  end

  always_ff @(posedge clk_i) begin
    if (active_q) begin
      if (wait_q != 0) begin
        wait_q <= wait_q - 1'b1;
      end else begin
        count_q <= count_q + 1'b1;
        if (row_ends) begin
          pair_bit_q <= inverse_q ? pair_bit_q + 1'b1 : pair_bit_q - 1'b1;
          wait_q <= bubble_after[pair_bit_q];
          if (transform_ends) active_q <= 1'b0;
        end
      end
    end
    if (start_i && ready_o) begin
      active_q <= 1'b1;
      inverse_q <= inverse_i;
      slot_q <= slot_i;
      pair_bit_q <= inverse_i ? '0 : ROW_BITS'(LOG_N - 1);
      count_q <= '0;
      wait_q <= '0;
    end
    if (!rst_ni) active_q <= 1'b0;
  end
endmodule
