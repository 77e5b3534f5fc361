//! The modules of `hw/lib` against plain integer arithmetic.

#![allow(clippy::unwrap_used)]

use toroid_cosim::model::{Design, Model, ModelError, Options, Value};
use toroid_cosim::random::Random;
use toroid_cosim::simulation::Simulation;
use toroid_cosim::stream::{Beat, Sink, Source, transfer};
use toroid_cosim::toolchain::tests_are_skipped;
use toroid_ring::goldilocks::P;
use toroid_ring::prime::{inv, mul, pow};

const OPTIONS: Options = Options {
    trace: false,
    random_start: true,
    quick: true,
};
const Q28: u64 = (1 << 28) - (1 << 16) + 1;
const M61: u64 = (1 << 61) - 1;

/// `MOD_*` of `toroid_pkg::modulus_e`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Goldilocks = 0,
    Solinas = 1,
    Montgomery = 2,
    Barrett = 3,
}

/// A modulus, how it is reduced, and whether the pipeline is short.
#[derive(Clone, Copy)]
struct Setting {
    kind: Kind,
    q: u64,
    short: bool,
    latency: usize,
}

impl Setting {
    const fn new(kind: Kind, q: u64, short: bool, latency: usize) -> Setting {
        Setting {
            kind,
            q,
            short,
            latency,
        }
    }

    fn width(&self) -> u32 {
        64 - self.q.leading_zeros()
    }

    fn start(&self, top: &str) -> Simulation {
        let q = Value::Bits {
            width: self.width(),
            hex: format!("{:x}", self.q),
        };
        let mut design = Design::of(top)
            .unwrap()
            .with("KIND", self.kind as u32)
            .with("WIDTH", self.width())
            .with("SHORT", u32::from(self.short));
        design.parameters.push(("Q".to_owned(), q));
        Model::build(&design, &OPTIONS)
            .unwrap()
            .start_random(1)
            .unwrap()
    }

    /// The inverse of the factor R that a Montgomery product carries.
    fn factor(&self) -> u64 {
        if self.kind != Kind::Montgomery {
            return 1;
        }
        let word = (self.q - 1).trailing_zeros().min(17);
        let bits = self.width().div_ceil(word) * word;
        inv(pow(2, bits.into(), self.q), self.q)
    }

    /// Words at the ends of reductions and carries, and random ones.
    fn word(&self, random: &mut Random) -> u64 {
        let shift = random.below(u64::from(self.width()));
        let word = match random.below(6) {
            0 => self.q - 1 - random.below(3),
            1 => random.below(3),
            2 => u64::MAX << shift,
            3 => u64::MAX >> shift,
            _ => random.word(),
        };
        word % self.q
    }
}

/// Gives a module a row of inputs a cycle and expects each row of outputs `latency` cycles later.
fn stream(
    simulation: &mut Simulation,
    inputs: &[&str],
    outputs: &[&str],
    latency: usize,
    rows: &[(Vec<u64>, Vec<u64>)],
) {
    let ports = |names: &[&str]| -> Vec<_> {
        names
            .iter()
            .map(|name| simulation.port(name).unwrap())
            .collect()
    };
    let (inputs, outputs) = (ports(inputs), ports(outputs));
    for cycle in 0..rows.len() + latency - 1 {
        if let Some((words, _)) = rows.get(cycle) {
            for (&port, &word) in inputs.iter().zip(words) {
                simulation.set(port, word);
            }
        }
        simulation.tick().unwrap();
        if let Some(row) = (cycle + 1).checked_sub(latency) {
            let found: Vec<u64> = outputs.iter().map(|&port| simulation.get(port)).collect();
            assert_eq!(
                found, rows[row].1,
                "row {row}, inputs {:x?}, modules {simulation:?}",
                rows[row].0
            );
        }
    }
}

#[test]
fn products_of_every_reduction() {
    if tests_are_skipped() {
        return;
    }
    for setting in [
        Setting::new(Kind::Goldilocks, P, true, 4),
        Setting::new(Kind::Solinas, Q28, false, 9),
        Setting::new(Kind::Solinas, P, true, 4),
        Setting::new(Kind::Solinas, 12289, false, 11),
        Setting::new(Kind::Solinas, 65537, true, 4),
        Setting::new(Kind::Montgomery, P, false, 29),
        Setting::new(Kind::Montgomery, 40961, true, 12),
        Setting::new(Kind::Barrett, M61, false, 26),
        Setting::new(Kind::Barrett, 12289, true, 11),
    ] {
        let mut random = Random::new(setting.q);
        let factor = setting.factor();
        let q = setting.q;
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                let (a, b) = (setting.word(&mut random), setting.word(&mut random));
                (vec![a, b], vec![mul(mul(a, b, q), factor, q)])
            })
            .collect();
        let mut simulation = setting.start("mod_mul");
        stream(
            &mut simulation,
            &["a_i", "b_i"],
            &["p_o"],
            setting.latency,
            &rows,
        );
    }
}

#[test]
fn butterflies_of_every_reduction() {
    if tests_are_skipped() {
        return;
    }
    for (top, setting) in [
        (
            "butterfly_integrated",
            Setting::new(Kind::Goldilocks, P, false, 13),
        ),
        (
            "butterfly_integrated",
            Setting::new(Kind::Goldilocks, P, true, 5),
        ),
        (
            "butterfly_integrated",
            Setting::new(Kind::Solinas, Q28, true, 5),
        ),
        (
            "butterfly_integrated",
            Setting::new(Kind::Montgomery, Q28, false, 16),
        ),
        ("butterfly_ct", Setting::new(Kind::Goldilocks, P, false, 13)),
        ("butterfly_gs", Setting::new(Kind::Goldilocks, P, false, 13)),
    ] {
        let mut random = Random::new(setting.q);
        let factor = setting.factor();
        let q = setting.q;
        let add = |a: u64, b: u64| ((u128::from(a) + u128::from(b)) % u128::from(q)) as u64;
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                let [a, b, w] = [(); 3].map(|()| setting.word(&mut random));
                let twiddle = mul(w, factor, q);
                let product = mul(b, twiddle, q);
                let cooley_tukey = vec![add(a, product), add(a, q - product)];
                match top {
                    "butterfly_ct" => (vec![a, b, w], cooley_tukey),
                    "butterfly_gs" => (
                        vec![a, b, w],
                        vec![add(a, b), mul(add(a, q - b), twiddle, q)],
                    ),
                    _ if random.chance(0.5) => (vec![a, b, w, 0], cooley_tukey),
                    _ => (
                        vec![a, b, w, 1],
                        vec![add(a, b), mul(add(b, q - a), twiddle, q)],
                    ),
                }
            })
            .collect();
        let mut simulation = setting.start(top);
        let inputs = ["a_i", "b_i", "w_i", "inverse_i"];
        stream(
            &mut simulation,
            &inputs[..rows[0].0.len()],
            &["a_o", "b_o"],
            setting.latency,
            &rows,
        );
    }
}

#[test]
fn memories() {
    if tests_are_skipped() {
        return;
    }
    let design = Design::of("ram_sdp")
        .unwrap()
        .with("WIDTH", 40u32)
        .with("DEPTH", 37u32);
    let mut simulation = Model::build(&design, &OPTIONS)
        .unwrap()
        .start_random(1)
        .unwrap();
    let [enable, to, data, from, out] =
        ["we_i", "waddr_i", "wdata_i", "raddr_i", "rdata_o"].map(|n| simulation.port(n).unwrap());
    let mut random = Random::new(1);
    let mut memory = [None; 37];
    let mut expected = [None; 2];
    for _ in 0..2_000 {
        let (address, word, reading) = (random.below(37), random.word() >> 24, random.below(37));
        let writes = random.chance(0.7);
        simulation.set(enable, u64::from(writes));
        simulation.set(to, address);
        simulation.set(data, word);
        simulation.set(from, reading);
        // The word of an address that is read and written at once is not defined.
        let collides = writes && address == reading;
        expected = [
            if collides {
                None
            } else {
                memory[reading as usize]
            },
            expected[0],
        ];
        if writes {
            memory[address as usize] = Some(word);
        }
        simulation.tick().unwrap();
        if let Some(word) = expected[1] {
            assert_eq!(simulation.get(out), word);
        }
    }
    assert!(memory.iter().all(Option::is_some));

    let words: Vec<u64> = (0..11).map(|_| random.word() >> 45).collect();
    let text: String = words.iter().map(|word| format!("{word:x}\n")).collect();
    let design = Design::of("rom")
        .unwrap()
        .with("WIDTH", 19u32)
        .with("DEPTH", 11u32)
        .with("OUTPUT_REGISTER", 0u32)
        .with_file("FILE", "words.hex", text.into_bytes());
    let mut simulation = Model::build(&design, &OPTIONS)
        .unwrap()
        .start_random(1)
        .unwrap();
    let rows: Vec<_> = (0..11)
        .map(|n| (vec![n], vec![words[n as usize]]))
        .collect();
    stream(&mut simulation, &["addr_i"], &["data_o"], 1, &rows);
}

#[test]
fn streams_keep_order_and_throughput() {
    if tests_are_skipped() {
        return;
    }
    for (top, depth) in [("stream_register", None), ("stream_fifo", Some(5u32))] {
        let mut design = Design::of(top).unwrap().with("WIDTH", 16u32);
        if let Some(depth) = depth {
            design = design.with("DEPTH", depth);
        }
        let model = Model::build(&design, &OPTIONS).unwrap();
        for (seed, stalls) in [(0.0, 0.0), (0.6, 0.1), (0.1, 0.6), (0.5, 0.5)]
            .into_iter()
            .enumerate()
        {
            let mut simulation = model.start_random(seed as u32).unwrap();
            simulation.reset(2).unwrap();
            let mut source = Source::new(&simulation, "in", stalls.0, 1 + seed as u64).unwrap();
            let mut sink = Sink::new(&simulation, "out", stalls.1, 9 + seed as u64).unwrap();
            let mut random = Random::new(seed as u64);
            let beats: Vec<Beat> = (0..500)
                .map(|_| Beat::of_words(&[random.below(1 << 16)], 2, random.chance(0.2)))
                .collect();
            beats.iter().for_each(|beat| source.push(beat.clone()));
            let start = simulation.cycles();
            transfer(&mut simulation, &mut source, &mut sink, beats.len(), 5_000).unwrap();
            assert_eq!(sink.received(), beats, "{top}");
            if stalls == (0.0, 0.0) {
                assert!(simulation.cycles() - start <= 503, "{top} loses cycles");
            }
        }

        // With nobody to take a word, as many wait as there is room for.
        let mut simulation = model.start_random(7).unwrap();
        simulation.reset(2).unwrap();
        let mut source = Source::new(&simulation, "in", 0.0, 1).unwrap();
        let mut sink = Sink::new(&simulation, "out", 1.0, 1).unwrap();
        (0..20).for_each(|n| source.push(Beat::of_words(&[n], 2, false)));
        transfer(&mut simulation, &mut source, &mut sink, 1, 50).unwrap_err();
        assert_eq!(source.sent(), u64::from(depth.unwrap_or(2)), "{top}");
        if depth.is_some() {
            assert_eq!(
                simulation.get(simulation.port("count_o").unwrap()),
                source.sent()
            );
        }
    }
}

/// `stream_ends` around a pipeline of registers.
const PIPELINE: &str = "
module pipeline #(
    parameter int CYCLES = 5,
    parameter int DEPTH  = 6
) (
    input  logic        clk_i,
    input  logic        rst_ni,
    input  logic        in_tvalid_i,
    output logic        in_tready_o,
    input  logic [15:0] in_tdata_i,
    input  logic        in_tlast_i,
    output logic        out_tvalid_o,
    input  logic        out_tready_i,
    output logic [15:0] out_tdata_o,
    output logic        out_tlast_o
);
  logic take, pipe_last;
  logic [15:0] pipe_data;
  logic [CYCLES:0] valid;
  assign valid[0] = take;
  always_ff @(posedge clk_i) valid[CYCLES:1] <= rst_ni ? valid[CYCLES-1:0] : '0;
  delay #(.WIDTH(17), .CYCLES(CYCLES)) i_data (.clk_i, .d_i({in_tlast_i, in_tdata_i}), .q_o({pipe_last, pipe_data}));
  stream_ends #(.WIDTH(16), .DEPTH(DEPTH)) i_ends (
      .clk_i, .rst_ni, .in_tvalid_i, .in_tready_o, .take_o(take), .pipe_valid_i(valid[CYCLES]), .pipe_data_i(pipe_data),
      .pipe_last_i(pipe_last), .out_tvalid_o, .out_tready_i, .out_tdata_o, .out_tlast_o
  );
endmodule
";

#[test]
fn stream_ends_never_lose_a_beat_and_stall_only_where_the_queue_is_short() {
    if tests_are_skipped() {
        return;
    }
    // The least depth at which the input is never held back, and one less; the shortest pipeline.
    for (cycles, depth) in [(5u32, 6u32), (5, 5), (1, 2)] {
        let mut design = Design::of("stream_ends").unwrap();
        design
            .sources
            .push(("pipeline.sv".to_owned(), PIPELINE.to_owned()));
        design.top = "pipeline".to_owned();
        let design = design.with("CYCLES", cycles).with("DEPTH", depth);
        let model = Model::build(&design, &OPTIONS).unwrap();
        let stalls = [(0.0, 0.0), (0.6, 0.1), (0.1, 0.6), (0.5, 0.5), (0.0, 0.5)];
        for (seed, stalls) in stalls.into_iter().enumerate() {
            let mut simulation = model.start_random(seed as u32).unwrap();
            simulation.reset(2).unwrap();
            let ready = simulation.output("in_tready_o", 1).unwrap();
            let mut source = Source::new(&simulation, "in", stalls.0, 1 + seed as u64).unwrap();
            let mut sink = Sink::new(&simulation, "out", stalls.1, 9 + seed as u64).unwrap();
            let mut random = Random::new(seed as u64);
            let beats: Vec<Beat> = (0..2_000)
                .map(|_| Beat::of_words(&[random.below(1 << 16)], 2, random.chance(0.2)))
                .collect();
            beats.iter().for_each(|beat| source.push(beat.clone()));
            let start = simulation.cycles();
            let mut held_back = 0;
            while sink.received().len() < beats.len() {
                assert!(simulation.cycles() - start < 20_000, "no more beats");
                simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
                held_back += u32::from(simulation.get(ready) == 0);
            }
            assert_eq!(sink.received(), beats);
            if stalls == (0.0, 0.0) {
                assert_eq!(sink.first_cycle().unwrap() - start, u64::from(cycles));
                assert_eq!(held_back == 0, depth > cycles);
                if depth > cycles {
                    let last = sink.last_cycle().unwrap() - start;
                    assert_eq!(last, 1_999 + u64::from(cycles));
                }
            }
        }

        // With nobody to take a beat, as many are taken as there is room for, and all come out without a gap.
        let mut simulation = model.start_random(7).unwrap();
        simulation.reset(2).unwrap();
        let mut source = Source::new(&simulation, "in", 0.0, 1).unwrap();
        let mut sink = Sink::new(&simulation, "out", 1.0, 1).unwrap();
        (0..40).for_each(|n| source.push(Beat::of_words(&[n], 2, false)));
        transfer(&mut simulation, &mut source, &mut sink, 1, 50).unwrap_err();
        assert_eq!(source.sent(), u64::from(depth));
        let mut sink = Sink::new(&simulation, "out", 0.0, 1).unwrap();
        transfer(&mut simulation, &mut source, &mut sink, depth as usize, 100).unwrap();
        let span = sink.last_cycle().unwrap() - sink.first_cycle().unwrap();
        assert_eq!(span + 1, u64::from(depth));

        // A reset while beats are under way forgets them.
        let valid = simulation.input("in_tvalid_i", 1).unwrap();
        simulation.set(valid, 0);
        simulation.reset(1).unwrap();
        let mut source = Source::new(&simulation, "in", 0.0, 1).unwrap();
        let mut sink = Sink::new(&simulation, "out", 0.0, 1).unwrap();
        source.push(Beat::of_words(&[777], 2, true));
        transfer(&mut simulation, &mut source, &mut sink, 2, 50).unwrap_err();
        assert_eq!(sink.received(), [Beat::of_words(&[777], 2, true)]);
    }
}

#[test]
fn wrong_parameters_are_refused() {
    if tests_are_skipped() {
        return;
    }
    for (top, parameter, value, sentence) in [
        (
            "mul_tiles",
            "TILE_A",
            1u32,
            "mul_tiles: TILE_A and TILE_B must be at least 2",
        ),
        (
            "solinas_mul",
            "J",
            28,
            "solinas_reduce: 0 < J < I and 3 <= I <= 64 are needed",
        ),
        (
            "mod_mul",
            "KIND",
            4,
            "mod_mul: KIND must be MOD_GOLDILOCKS, MOD_SOLINAS, MOD_MONTGOMERY or MOD_BARRETT",
        ),
        (
            "stream_fifo",
            "DEPTH",
            1,
            "stream_fifo: DEPTH must be at least 2",
        ),
        (
            "stream_ends",
            "DEPTH",
            1,
            "stream_ends: DEPTH must be at least 2",
        ),
    ] {
        let design = Design::of(top).unwrap().with(parameter, value);
        match Model::build(&design, &OPTIONS) {
            Err(ModelError::Elaboration { message, .. }) => assert_eq!(message, sentence),
            other => panic!("{top}: {other:?}"),
        }
    }
}
