// Turns a polynomial by X^a, row by row: word x of the result's row is word x - shift of the row read with it, or, where that is negative, word
// x - shift + 2^LOG_LANES of the row read before it; with that row's sign.
//
// LOG_LANES: 1 to 9, log2 of the words of a row. shift_i is a modulo 2^LOG_LANES and must not change while rows are on their way.
// Latency: 3 cycles after the later row.
module row_rotator #(
    parameter int LOG_LANES = 2,
    localparam int LANES = 1 << LOG_LANES
) (
    input logic clk_i,
    input logic valid_i,
    input logic negative_i,
    input logic [LOG_LANES-1:0] shift_i,
    input logic [63:0] word_i[LANES],
    output logic [63:0] word_o[LANES],
    output logic [LANES-1:0] negative_o
);
  localparam int FIRST = (LOG_LANES + 1) / 2;

  logic [63:0] front[LANES], front_q[LANES], back[LANES], back_q[LANES], before_q[LANES];
  logic [1:0] valid_q, negative_q;
  logic before_negative_q;

  always_comb begin
    logic [63:0] from[LANES];
    front = word_i;
    for (int stage = 0; stage < FIRST; stage++) begin
      from = front;
      for (int lane = 0; lane < LANES; lane++) begin
        front[lane] = shift_i[stage] ? from[(lane+LANES-(1<<stage))%LANES] : from[lane];
      end
    end
  end

  always_comb begin
    logic [63:0] from[LANES];
    back = front_q;
    for (int stage = FIRST; stage < LOG_LANES; stage++) begin
      from = back;
      for (int lane = 0; lane < LANES; lane++) begin
        back[lane] = shift_i[stage] ? from[(lane+LANES-(1<<stage))%LANES] : from[lane];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    front_q <= front;
    back_q <= back;
    valid_q <= {valid_q[0], valid_i};
    negative_q <= {negative_q[0], negative_i};
    if (valid_q[1]) begin
      before_q <= back_q;
      before_negative_q <= negative_q[1];
    end
    for (int lane = 0; lane < LANES; lane++) begin
      word_o[lane] <= LOG_LANES'(lane) < shift_i ? before_q[lane] : back_q[lane];
      negative_o[lane] <= LOG_LANES'(lane) < shift_i ? before_negative_q : negative_q[1];
    end
  end
endmodule
