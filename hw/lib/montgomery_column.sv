// SPDX-License-Identifier: Apache-2.0 OR MIT
// montgomery_column: COUNT products a * b / R modulo the same q, one set a cycle, for any odd q = 1 modulo 2^WORD,
// which may change from cycle to cycle.
//
// Few and wide steps: R = 2^(STEP * STEPS), STEP up to 2 * WORD + 2 bits and a tile (see montgomery_wide_step), three
// steps of 22 bits for 64-bit words and WORD = 10. What the steps need of q is delayed once for all lanes, and goes on
// to the column behind.
//
// q_i, q_o        the modulus, with the operands and with the products
// COUNT           >= 1
// WIDTH           width of a word, up to 64
// WORD            2 to TILE_A - 1
// TILE_A, TILE_B  tiles of the multipliers, one of which takes a step whole: STEP - WORD <= TILE_B
// Latency: toroid_pkg::montgomery_wide_latency
// Source: P. L. Montgomery, Modular multiplication without trial division, 1985
module montgomery_column #(
    parameter int COUNT  = 8,
    parameter int WIDTH  = 64,
    parameter int WORD   = 10,
    parameter int TILE_A = 24,
    parameter int TILE_B = 17
) (
    input  logic                        clk_i,
    // Its lowest bits are those of 1.
    // verilator lint_off UNUSEDSIGNAL
    input  logic [WIDTH-1:0]            q_i,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [COUNT-1:0][WIDTH-1:0] a_i,
    input  logic [COUNT-1:0][WIDTH-1:0] b_i,
    output logic [WIDTH-1:0]            q_o,
    output logic [COUNT-1:0][WIDTH-1:0] p_o
);
  localparam int Steps = toroid_pkg::montgomery_wide_steps(WIDTH, WORD, TILE_A);
  localparam int Step = toroid_pkg::montgomery_wide_bits(WIDTH, WORD, TILE_A);
  localparam int Half = Step - WORD;
  localparam int Upper = WIDTH - WORD;

  if (WIDTH < 2 || WIDTH > 64 || COUNT < 1) begin : g_check
    $fatal(1, "montgomery_column: 2 <= WIDTH <= 64 and COUNT >= 1 are needed");
  end
  if (WORD < 2 || WORD >= TILE_A || WORD >= WIDTH || Half > TILE_B || Step > 2 * WORD + 2) begin : g_check_word
    $fatal(1, "montgomery_column: 2 <= WORD < TILE_A and steps of at most TILE_B + WORD bits are needed");
  end

  logic [Steps-1:0][Upper-1:0] h, h_late;
  logic [Steps-1:0][Half-1:0] g;
  logic [Upper-1:0] h_end;
  for (genvar n = 0; n < Steps; n++) begin : g_step
    if (n == 0) begin : g_first
      delay #(
          .WIDTH (Upper),
          .CYCLES(toroid_pkg::mul_latency(WIDTH, WIDTH, TILE_A, TILE_B, 1) + 1)
      ) i_delay (
          .clk_i,
          .d_i(q_i[WIDTH-1:WORD]),
          .q_o(h[0])
      );
    end else begin : g_next
      delay #(
          .WIDTH (Upper),
          .CYCLES(2)
      ) i_delay (
          .clk_i,
          .d_i(h_late[n-1]),
          .q_o(h[n])
      );
    end
    montgomery_wide_inverse #(
        .WORD(WORD),
        .STEP(Step)
    ) i_inverse (
        .h_i(h[n][Half-1:0]),
        .g_o(g[n])
    );
    delay #(
        .WIDTH (Upper),
        .CYCLES(2)
    ) i_late (
        .clk_i,
        .d_i(h[n]),
        .q_o(h_late[n])
    );
  end
  delay #(
      .WIDTH (Upper),
      .CYCLES(2)
  ) i_end (
      .clk_i,
      .d_i(h_late[Steps-1]),
      .q_o(h_end)
  );
  logic [Upper-1:0] h_out;
  always_ff @(posedge clk_i) h_out <= h_end;
  assign q_o = {h_out, WORD'(1)};

  for (genvar n = 0; n < COUNT; n++) begin : g_lane
    montgomery_lane #(
        .WIDTH (WIDTH),
        .WORD  (WORD),
        .TILE_A(TILE_A),
        .TILE_B(TILE_B)
    ) i_lane (
        .clk_i,
        .h_i(h_late),
        .g_i(g),
        .q_i({h_end, WORD'(1)}),
        .a_i(a_i[n]),
        .b_i(b_i[n]),
        .p_o(p_o[n])
    );
  end
endmodule
