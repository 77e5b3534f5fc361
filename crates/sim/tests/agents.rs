//! Streams and memories around designs, and what they say of designs that break a protocol.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::sync::Arc;

use toroid_sim::memory::{AxiMemory, Memory, Timing};
use toroid_sim::model::{Design, Model, Options};
use toroid_sim::random::Random;
use toroid_sim::simulation::{Simulation, SimulationError};
use toroid_sim::stream::{Beat, Sink, Source, transfer};
use toroid_sim::toolchain::tests_are_skipped;

fn start(top: &str, text: &str, parameters: &[(&str, u64)]) -> Simulation {
    let mut design = Design {
        top: top.to_owned(),
        sources: vec![(format!("{top}.sv"), text.to_owned())],
        ..Design::default()
    };
    let is_mode = |(name, _): &&(&str, u64)| *name == "mode_i";
    for (name, value) in parameters.iter().filter(|parameter| !is_mode(parameter)) {
        design = design.with(name, *value);
    }
    let options = Options {
        quick: true,
        ..Options::default()
    };
    let mut simulation = Model::build(&design, &options).unwrap().start().unwrap();
    for (name, value) in parameters.iter().filter(is_mode) {
        let port = simulation.port(name).unwrap();
        simulation.set(port, *value);
    }
    simulation.reset(2).unwrap();
    simulation
}

/// A register on a stream; with mode_i other than 0 one that is wrong.
const REGISTER: &str = r#"
module register #(
    parameter int WIDTH = 72
) (
    input  logic             clk_i,
    input  logic [2:0]       mode_i,
    input  logic             rst_ni,
    input  logic             in_tvalid_i,
    output logic             in_tready_o,
    input  logic [WIDTH-1:0] in_tdata_i,
    input  logic             in_tlast_i,
    output logic             out_tvalid,
    input  logic             out_tready,
    output logic [WIDTH-1:0] out_tdata,
    output logic             out_tlast
);
  logic full_q, last_q;
  logic [WIDTH-1:0] data_q;
  logic [7:0] count_q;
  assign in_tready_o = !full_q || out_tready;
  assign out_tvalid = mode_i == 1 ? full_q && out_tready : mode_i == 2 ? full_q && count_q[1:0] != 0 : full_q;
  assign out_tdata = mode_i == 3 ? data_q ^ WIDTH'(count_q) : data_q;
  assign out_tlast = last_q;
  always_ff @(posedge clk_i) begin
    count_q <= count_q + 8'd1;
    if (in_tready_o) {data_q, last_q} <= {in_tdata_i, in_tlast_i};
    if (!rst_ni) begin
      full_q <= 1'b0;
      count_q <= '0;
    end else if (in_tready_o) full_q <= in_tvalid_i;
  end
endmodule
"#;

fn beats(count: u64, seed: u64) -> Vec<Beat> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|i| {
            let mut beat = Beat::of_words(&[random.word()], 8, i % 5 == 4);
            beat.data.push(random.word() as u8);
            beat
        })
        .collect()
}

fn pass(mode: u64, stalls: (f64, f64)) -> Result<u64, SimulationError> {
    let mut simulation = start("register", REGISTER, &[("mode_i", mode)]);
    let mut source = Source::new(&simulation, "in", stalls.0, 1).unwrap();
    let mut sink = Sink::new(&simulation, "out", stalls.1, 2).unwrap();
    let expected = beats(300, 3);
    source.extend(expected.iter().cloned());
    transfer(&mut simulation, &mut source, &mut sink, 300, 5000)?;
    assert!(source.is_empty());
    assert_eq!(source.sent(), 300);
    assert_eq!(sink.received(), expected);
    Ok(simulation.cycles() - 2)
}

#[test]
fn streams_pass_whatever_the_stalls_and_their_cycles_count() {
    if tests_are_skipped() {
        return;
    }
    assert_eq!(pass(0, (0.0, 0.0)), Ok(301));
    for stalls in [(0.5, 0.0), (0.0, 0.5), (0.3, 0.7)] {
        let cycles = pass(0, stalls).unwrap();
        assert!((500..2000).contains(&cycles), "{stalls:?}: {cycles}");
    }
    let timeout = pass(0, (1.0, 0.0)).unwrap_err();
    assert_eq!(
        timeout.to_string(),
        "beat 1 of 300 of stream out did not happen within 5000 cycles"
    );
}

#[test]
fn wrong_streams_are_found() {
    if tests_are_skipped() {
        return;
    }
    for (mode, what) in [
        (1, "depends on tready"),
        (2, "tvalid fell"),
        (3, "payload changed"),
    ] {
        let error = pass(mode, (0.2, 0.5)).unwrap_err().to_string();
        assert!(error.contains(what), "{mode}: {error}");
    }
}

#[test]
fn a_reset_in_the_middle_leaves_nothing() {
    if tests_are_skipped() {
        return;
    }
    let mut simulation = start("register", REGISTER, &[("mode_i", 0)]);
    let mut source = Source::new(&simulation, "in", 0.2, 1).unwrap();
    let mut sink = Sink::new(&simulation, "out", 0.5, 2).unwrap();
    source.extend(beats(50, 4));
    for _ in 0..20 {
        simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
    }
    assert!(source.sent() > 0);
    source.clear();
    sink.clear();
    simulation.cycle(&mut [&mut source]).unwrap();
    simulation.reset(1).unwrap();
    let expected = beats(9, 5);
    source.extend(expected.iter().cloned());
    transfer(&mut simulation, &mut source, &mut sink, 9, 200).unwrap();
    assert_eq!(sink.take(), expected);
    assert_eq!(sink.received(), []);
}

/// Copies COUNT bursts of LENGTH beats from address 0 to 2^20, on two ports that take every other burst; with mode_i other
/// than 0 wrong.
const COPIER: &str = r#"
module copier #(
    parameter int WIDTH = 64,
    parameter int LENGTH = 8,
    parameter int COUNT = 4,
    localparam int BYTES = LENGTH * WIDTH / 8
) (
    input  logic                  clk_i,
    input  logic [2:0]            mode_i,
    input  logic                  rst_ni,
    output logic                  done_o,
    output logic [1:0]            m_axi_arvalid_o,
    input  logic [1:0]            m_axi_arready_i,
    output logic [1:0][39:0]      m_axi_araddr_o,
    output logic [1:0][7:0]       m_axi_arlen_o,
    output logic [1:0][2:0]       m_axi_arsize_o,
    output logic [1:0][1:0]       m_axi_arburst_o,
    input  logic [1:0]            m_axi_rvalid_i,
    output logic [1:0]            m_axi_rready_o,
    input  logic [1:0][WIDTH-1:0] m_axi_rdata_i,
    input  logic [1:0]            m_axi_rlast_i,
    output logic [1:0]            m_axi_awvalid_o,
    input  logic [1:0]            m_axi_awready_i,
    output logic [1:0][39:0]      m_axi_awaddr_o,
    output logic [1:0][7:0]       m_axi_awlen_o,
    output logic [1:0]            m_axi_wvalid_o,
    input  logic [1:0]            m_axi_wready_i,
    output logic [1:0][WIDTH-1:0] m_axi_wdata_o,
    output logic [1:0]            m_axi_wlast_o,
    input  logic [1:0]            m_axi_bvalid_i,
    output logic [1:0]            m_axi_bready_o
);
  logic [1:0] done;
  assign done_o = &done;
  for (genvar p = 0; p < 2; p++) begin : g_port
    int reads_q, writes_q, responses_q, beat_q;
    assign done[p] = responses_q >= COUNT;
    assign m_axi_arvalid_o[p] = rst_ni && reads_q < COUNT;
    assign m_axi_araddr_o[p] = 40'((reads_q * 2 + p) * BYTES) + 40'((mode_i == 1 ? 4 : mode_i == 2 ? 4088 : 0));
    assign m_axi_arlen_o[p] = 8'(LENGTH - 1);
    assign m_axi_arsize_o[p] = 3'($clog2(BYTES / LENGTH)) - (mode_i == 3 ? 3'd1 : 3'd0);
    assign m_axi_arburst_o[p] = mode_i == 4 ? 2'd0 : 2'd1;
    assign m_axi_awvalid_o[p] = rst_ni && writes_q < COUNT;
    assign m_axi_awaddr_o[p] = 40'((mode_i == 5 ? 0 : 1 << 20)) + 40'((writes_q * 2 + p) * BYTES);
    assign m_axi_awlen_o[p] = 8'(LENGTH - 1);
    assign m_axi_wvalid_o[p] = m_axi_rvalid_i[p];
    assign m_axi_rready_o[p] = m_axi_wready_i[p];
    assign m_axi_wdata_o[p] = ~m_axi_rdata_i[p];
    assign m_axi_wlast_o[p] = mode_i == 6 ? 1'b0 : m_axi_rlast_i[p];
    assign m_axi_bready_o[p] = 1'b1;
    always_ff @(posedge clk_i) begin
      if (m_axi_arvalid_o[p] && m_axi_arready_i[p]) reads_q <= reads_q + 1;
      if (m_axi_awvalid_o[p] && m_axi_awready_i[p]) writes_q <= writes_q + 1;
      if (m_axi_bvalid_i[p]) responses_q <= responses_q + 1;
      if (m_axi_rvalid_i[p] && m_axi_wready_i[p]) begin
        beat_q <= beat_q == LENGTH - 1 ? 0 : beat_q + 1;
        if (m_axi_rlast_i[p] != (beat_q == LENGTH - 1)) $fatal(1, "copier: rlast is not where it belongs");
      end
      if (!rst_ni) begin
        reads_q <= 0;
        writes_q <= 0;
        responses_q <= 0;
        beat_q <= 0;
      end
    end
  end
endmodule
"#;

const COUNT: usize = 4;
const TARGET: u64 = 1 << 20;

fn copy(width: u64, length: u64, mode: u64, timing: Timing) -> Result<u64, SimulationError> {
    let parameters = [
        ("WIDTH", width),
        ("LENGTH", length),
        ("COUNT", COUNT as u64),
        ("mode_i", mode),
    ];
    let mut simulation = start("copier", COPIER, &parameters);
    let bytes = 2 * COUNT * (length * width / 8) as usize;
    let mut random = Random::new(7);
    let data: Vec<u8> = (0..bytes).map(|_| random.word() as u8).collect();
    let mut memory = Memory::new();
    memory.share(0, Arc::new(data.clone())).unwrap();
    memory.insert(TARGET, vec![0; bytes]).unwrap();
    let mut memory = AxiMemory::new(&simulation, "m_axi", memory, timing, 9)?;
    let done = simulation.port("done_o").unwrap();
    for _ in 0..20_000 {
        if simulation.get(done) != 0 {
            let inverted: Vec<u8> = data.iter().map(|byte| !byte).collect();
            assert_eq!(memory.memory().bytes(TARGET, bytes).unwrap(), inverted);
            assert!(memory.is_idle());
            for traffic in memory.traffic() {
                assert_eq!(traffic.read_beats, COUNT as u64 * length);
                assert_eq!(traffic.read_bursts, COUNT as u64);
                assert_eq!(
                    (traffic.write_bursts, traffic.write_beats),
                    (traffic.read_bursts, traffic.read_beats)
                );
            }
            return Ok(simulation.cycles() - 2);
        }
        simulation.cycle(&mut [&mut memory])?;
    }
    panic!("the copy does not end");
}

#[test]
fn a_memory_has_latency_bandwidth_and_stalls() {
    if tests_are_skipped() {
        return;
    }
    let timing = Timing {
        latency: 20,
        ..Timing::default()
    };
    // Address, latency, beats, latency of the response.
    let beats = COUNT as u64 * 8;
    assert_eq!(copy(64, 8, 0, timing), Ok(20 + beats + 20));
    let slow = Timing {
        latency: 60,
        ..timing
    };
    assert_eq!(copy(64, 8, 0, slow), Ok(60 + beats + 60));
    let half = Timing {
        bandwidth: 0.5,
        ..timing
    };
    let cycles = copy(64, 8, 0, half).unwrap();
    assert!(
        (20 + 2 * beats + 18..=20 + 2 * beats + 22).contains(&cycles),
        "{cycles}"
    );
    let one = Timing {
        outstanding: 1,
        ..timing
    };
    assert!(copy(64, 8, 0, one).unwrap() > COUNT as u64 * (8 + 20));
    let stalling = Timing {
        stall: 0.5,
        ..timing
    };
    for (width, length) in [(64, 8), (32, 16), (1024, 4)] {
        let cycles = copy(width, length, 0, stalling).unwrap();
        assert!(cycles > 40 + COUNT as u64 * length * 2, "{width}: {cycles}");
    }
}

#[test]
fn wrong_requests_are_found() {
    if tests_are_skipped() {
        return;
    }
    let expected = [
        (1, "not a multiple of the beat's 8 bytes"),
        (2, "crosses a boundary of 4 KiB"),
        (3, "size of a beat must be 8 bytes"),
        (4, "must be INCR"),
        (5, "cannot be written"),
        (6, "wlast does not fit beat 8 of 8"),
    ];
    for (mode, what) in expected {
        let error = copy(64, 8, mode, Timing::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{mode}: {error}");
    }
    let error = copy(48, 8, 0, Timing::default()).unwrap_err().to_string();
    assert!(error.contains("32, 64, 128"), "{error}");
}
