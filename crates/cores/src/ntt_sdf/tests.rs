//! The cores `ntt_sdf` and `polymul_sdf` against the library's transforms and products. `toroid-hw-bench sdf` does the same at the
//! settings of the tables, and at large ones.

use crate::ntt_sdf::{Architecture, Plan, Setting};
use crate::testing::{refusal, replaced, start};
use crate::vectors::{Streams, Vectors};
use crate::{CoreError, Values, find};
use toroid_ring::goldilocks;
use toroid_sim::model::Value;
use toroid_sim::random::Random;
use toroid_sim::simulation::{Agent, Simulation};
use toroid_sim::stream::{Beat, Sink, Source};
use toroid_sim::toolchain::tests_are_skipped;

/// Settings of a core: those that are not given keep their defaults.
type Given<'a> = &'a [(&'static str, u64)];

fn values(core: &str, given: Given) -> Result<Values, CoreError> {
    Values::new(find(core).unwrap(), given.iter().copied())
}

/// Polynomials back to back, with cycles as by the formula, and under random back-pressure.
fn verify(name: &str, settings: &[Given]) {
    if tests_are_skipped() {
        return;
    }
    for given in settings {
        let values = values(name, given).unwrap();
        let core = find(name).unwrap();
        let outcome = crate::test(core, &values, 1, 7, None, &())
            .unwrap_or_else(|error| panic!("{given:?}: {error}"));
        assert_eq!(outcome.measured, outcome.expected, "{given:?}");
    }
}

const SOLINAS: u64 = 1;
const MONTGOMERY: u64 = 2;
const BARRETT: u64 = 3;

fn with(settings: Given, more: Given) -> Vec<(&'static str, u64)> {
    [settings, more].concat()
}

#[test]
fn every_architecture_reduction_and_direction() {
    for architecture in 0..3 {
        let base: Given = &[("ARCHITECTURE", architecture), ("LOG_N", 5)];
        verify(
            "ntt_sdf",
            &[
                &with(base, &[("REDUCTION", SOLINAS)]),
                &with(
                    base,
                    &[("REDUCTION", SOLINAS), ("INVERSE", 1), ("NATURAL", 1)],
                ),
                &with(
                    base,
                    &[("REDUCTION", MONTGOMERY), ("CYCLIC", 1), ("NATURAL", 1)],
                ),
                &with(base, &[("REDUCTION", MONTGOMERY), ("INVERSE", 1)]),
                &with(base, &[("REDUCTION", BARRETT), ("NATURAL", 1)]),
                &with(
                    base,
                    &[("REDUCTION", BARRETT), ("INVERSE", 1), ("CYCLIC", 1)],
                ),
            ],
        );
    }
}

#[test]
fn every_size_to_long_delays_in_memories() {
    verify(
        "ntt_sdf",
        &[
            &[("ARCHITECTURE", 0), ("LOG_N", 2), ("Q", 17)],
            &[("ARCHITECTURE", 2), ("LOG_N", 2), ("NATURAL", 1)],
            &[("ARCHITECTURE", 1), ("LOG_N", 3)],
            &[("ARCHITECTURE", 0), ("LOG_N", 10), ("Q", 12_289)],
            &[
                ("ARCHITECTURE", 1),
                ("LOG_N", 10),
                ("Q", 12_289),
                ("INVERSE", 1),
                ("NATURAL", 1),
            ],
        ],
    );
}

/// 2^4 - 2^2 + 1, which is 1 modulo 4 only.
const NARROWEST: u64 = 13;
/// 2^35 - 2^19 + 1
const Q35: u64 = 34_359_214_081;
/// 2^38 - 2^36 + 1
const Q38: u64 = 206_158_430_209;
/// 2^64 - 2^10 + 1
const WIDEST: u64 = 18_446_744_073_709_550_593;

#[test]
fn moduli_of_all_widths() {
    verify(
        "ntt_sdf",
        &[
            &[
                ("ARCHITECTURE", 0),
                ("LOG_N", 2),
                ("Q", NARROWEST),
                ("CYCLIC", 1),
                ("REDUCTION", SOLINAS),
            ],
            &[
                ("ARCHITECTURE", 1),
                ("LOG_N", 2),
                ("Q", NARROWEST),
                ("CYCLIC", 1),
                ("INVERSE", 1),
                ("REDUCTION", SOLINAS),
            ],
            &[
                ("ARCHITECTURE", 1),
                ("LOG_N", 4),
                ("Q", WIDEST),
                ("REDUCTION", BARRETT),
            ],
            &[
                ("ARCHITECTURE", 0),
                ("LOG_N", 4),
                ("Q", 268_369_921),
                ("TILE_A", 18),
                ("TILE_B", 18),
            ],
        ],
    );
    // An NTT and an INTT in each.
    verify(
        "polymul_sdf",
        &[
            &[
                ("ARCHITECTURE", 0),
                ("LOG_N", 2),
                ("Q", Q38),
                ("REDUCTION", SOLINAS),
            ],
            &[
                ("ARCHITECTURE", 2),
                ("LOG_N", 2),
                ("Q", Q35),
                ("REDUCTION", SOLINAS),
            ],
            &[
                ("ARCHITECTURE", 1),
                ("LOG_N", 3),
                ("Q", goldilocks::P),
                ("PARALLEL", 0),
            ],
            &[
                ("ARCHITECTURE", 0),
                ("LOG_N", 2),
                ("Q", WIDEST),
                ("REDUCTION", MONTGOMERY),
            ],
        ],
    );
}

#[test]
fn products_of_polynomials() {
    for architecture in 0..3 {
        let base: Given = &[("ARCHITECTURE", architecture), ("LOG_N", 4)];
        verify(
            "polymul_sdf",
            &[
                &with(base, &[("PARALLEL", 0)]),
                &with(base, &[("REDUCTION", BARRETT)]),
            ],
        );
    }
    verify(
        "polymul_sdf",
        &[&[
            ("ARCHITECTURE", 1),
            ("LOG_N", 5),
            ("REDUCTION", MONTGOMERY),
            ("PARALLEL", 0),
        ]],
    );
}

/// The first input stream with the output, and what enters by the second, if there is one and it takes anything.
fn streams(vectors: &Vectors) -> (&Streams, &[Beat]) {
    match vectors {
        Vectors::Joined(joined) => (&joined.streams, &joined.others[0].sent),
        Vectors::Streams(streams) => (streams, &[]),
        Vectors::Pipeline(_) => unreachable!(),
    }
}

/// Runs for some cycles, with the second input if there is one.
fn run(
    simulation: &mut Simulation,
    cycles: u64,
    source: &mut Source,
    other: &mut Option<Source>,
    sink: &mut Sink,
) {
    for _ in 0..cycles {
        let mut agents: Vec<&mut dyn Agent> = vec![source, sink];
        agents.extend(other.iter_mut().map(|other| other as &mut dyn Agent));
        simulation.cycle(&mut agents).unwrap();
    }
}

/// The source of the second input.
fn other(simulation: &Simulation, stall: f64, seed: u64) -> Option<Source> {
    let is_there = simulation.has_port("b_tvalid_i");
    is_there.then(|| Source::new(simulation, "b", stall, seed).unwrap())
}

#[test]
fn a_reset_leaves_nothing_behind() {
    if tests_are_skipped() {
        return;
    }
    let cases: [(&str, Given); 4] = [
        // The longest of its delays are memories.
        ("ntt_sdf", &[("ARCHITECTURE", 0), ("LOG_N", 8)]),
        (
            "ntt_sdf",
            &[
                ("ARCHITECTURE", 1),
                ("LOG_N", 5),
                ("INVERSE", 1),
                ("REDUCTION", BARRETT),
            ],
        ),
        (
            "polymul_sdf",
            &[("ARCHITECTURE", 1), ("LOG_N", 4), ("PARALLEL", 0)],
        ),
        ("polymul_sdf", &[("ARCHITECTURE", 2), ("LOG_N", 4)]),
    ];
    for (name, given) in cases {
        let values = values(name, given).unwrap();
        let core = find(name).unwrap();
        let mut simulation = start(name, &values, 9);
        let mut random = Random::new(1);
        for _ in 0..12 {
            let vectors = core
                .configure(&values)
                .unwrap()
                .vectors(1, random.word())
                .unwrap();
            let (streams, others) = streams(&vectors);
            let mut source = Source::new(&simulation, streams.input, 0.3, random.word()).unwrap();
            let mut other = other(&simulation, 0.3, random.word());
            let mut sink = Sink::new(&simulation, "out", 0.3, random.word()).unwrap();
            source.extend(streams.sent.iter().cloned());
            other
                .iter_mut()
                .for_each(|other| other.extend(others.iter().cloned()));
            let cycles = random.below(2 * streams.cycles);
            run(&mut simulation, cycles, &mut source, &mut other, &mut sink);
            simulation.reset(1).unwrap();
            let outcome = vectors.run(&mut simulation, random.word(), &()).unwrap();
            assert_eq!(outcome.measured, outcome.expected, "{name} {given:?}");
        }
    }
}

#[test]
fn what_there_is_no_transform_for_is_refused() {
    let refused = |name: &str, given: Given| {
        let values = values(name, given).unwrap();
        find(name)
            .unwrap()
            .configure(&values)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    for name in ["ntt_sdf", "polymul_sdf"] {
        // No prime below 7681 is 1 modulo 1024; the next above is named.
        assert_eq!(
            refused(name, &[("LOG_N", 9)]),
            format!(
                "{name}: Q must be a prime of 4 to 64 bits that is 1 modulo 1024, as 12289, not 7681"
            )
        );
        assert_eq!(
            refused(name, &[("LOG_N", 4), ("Q", 257), ("REDUCTION", SOLINAS)]),
            format!(
                "{name}: REDUCTION must be 0, 2 or 3 for a Q that is not 2^i - 2^j + 1 with j < i - 1, not 1"
            )
        );
        let out_of_range = |given: Given| values(name, given).unwrap_err().to_string();
        assert_eq!(
            out_of_range(&[("ARCHITECTURE", 3)]),
            format!("{name}: ARCHITECTURE must be from 0 to 2, not 3")
        );
        for log_n in [1, 16] {
            assert_eq!(
                out_of_range(&[("LOG_N", log_n)]),
                format!("{name}: LOG_N must be from 2 to 15, not {log_n}")
            );
        }
    }
    for log_n in [1, 16] {
        let setting = Setting {
            architecture: Architecture::Modr2,
            log_n,
            modulus: goldilocks::P,
            reduction: None,
            is_inverse: false,
            is_cyclic: false,
            is_natural: false,
            tiles: (24, 17),
            narrow: 3,
        };
        assert_eq!(
            Plan::new(setting).unwrap_err().to_string(),
            format!("log2 of the words of a polynomial must be 2 to 15, not {log_n}")
        );
    }
    // A cyclic transform needs half the root.
    let cyclic = values("ntt_sdf", &[("LOG_N", 9), ("CYCLIC", 1)]).unwrap();
    assert!(find("ntt_sdf").unwrap().configure(&cyclic).is_ok());
}

#[test]
fn illegal_parameters_are_refused_at_elaboration() {
    if tests_are_skipped() {
        return;
    }
    let q = |hex: &str| Value::Bits {
        width: 64,
        hex: hex.to_owned(),
    };
    let illegal = "ARCHITECTURE is 0 to 2, LOG_N 2 to 20; SOLINAS needs Q = 2^i - 2^j + 1";
    let ends = "commutators at an end need two lanes";
    for name in ["ntt_sdf", "polymul_sdf"] {
        let given = values(name, &[("ARCHITECTURE", 0), ("LOG_N", 4)]).unwrap();
        let design = find(name)
            .unwrap()
            .configure(&given)
            .unwrap()
            .design()
            .unwrap();
        for (parameter, value, message) in [
            ("ARCHITECTURE", Value::Int(3), illegal),
            ("BARRETT", Value::Int(1), illegal),
            ("LOG_N", Value::Int(1), illegal),
            ("Q", q("1e61"), illegal),
            ("FRONT", Value::Int(1), ends),
        ] {
            // The multiplier has no ends of its own.
            if name == "polymul_sdf" && parameter == "FRONT" {
                continue;
            }
            let said = refusal(&replaced(&design, parameter, value));
            let message = format!("{name}: {message}");
            assert!(said.contains(&message), "{parameter}: {said}");
        }
    }
}

/// Nothing is taken at the output until the input has stopped, and then everything comes as it should.
#[test]
fn an_output_that_waits_stops_the_input() {
    if tests_are_skipped() {
        return;
    }
    let cases: [(&str, Given); 4] = [
        ("ntt_sdf", &[("ARCHITECTURE", 0), ("LOG_N", 3)]),
        (
            "polymul_sdf",
            &[("ARCHITECTURE", 0), ("LOG_N", 3), ("PARALLEL", 0)],
        ),
        ("polymul_sdf", &[("ARCHITECTURE", 1), ("LOG_N", 3)]),
        (
            "polymul_sdf",
            &[("ARCHITECTURE", 2), ("LOG_N", 3), ("PARALLEL", 0)],
        ),
    ];
    for (name, given) in cases {
        let values = values(name, given).unwrap();
        let core = find(name).unwrap();
        let timing = core.configure(&values).unwrap().timing();
        let [latency, interval] =
            [timing.latency, timing.interval].map(|cycles| cycles.unwrap().cycles);
        let mut simulation = start(name, &values, 4);
        let mut other = other(&simulation, 0.3, 2);
        let mut expected = Vec::new();
        let mut source = None;
        for seed in 0..20 {
            let vectors = core.configure(&values).unwrap().vectors(1, seed).unwrap();
            let (streams, others) = streams(&vectors);
            let source = source
                .get_or_insert_with(|| Source::new(&simulation, streams.input, 0.0, 1).unwrap());
            source.extend(streams.sent.iter().cloned());
            other
                .iter_mut()
                .for_each(|other| other.extend(others.iter().cloned()));
            expected.extend_from_slice(&streams.expected);
        }
        let mut source = source.unwrap();
        let mut waiting = Sink::new(&simulation, "out", 1.0, 3).unwrap();
        run(&mut simulation, 600, &mut source, &mut other, &mut waiting);
        // As many as are under way where nothing waits, and one. Of the serial multiplier, these are second factors: the first
        // factor in front of each comes besides, and one more behind them.
        let mut room = latency - interval + 1;
        if values.get("PARALLEL") == Some(0) {
            let beats = interval / 2;
            room += (room / beats + 1) * beats;
        }
        assert_eq!(source.sent(), room, "{name} {given:?}");
        assert!(waiting.received().is_empty());
        let mut taking = Sink::new(&simulation, "out", 0.0, 3).unwrap();
        run(&mut simulation, 2500, &mut source, &mut other, &mut taking);
        assert_eq!(taking.received(), &expected[..], "{name} {given:?}");
    }
}

/// One factor stops in the midst of a polynomial, for longer than the core is long, and the other one has come to its next by far.
#[test]
fn factors_far_out_of_step() {
    if tests_are_skipped() {
        return;
    }
    let name = "polymul_sdf";
    // The models of the tests above.
    let cases: [Given; 2] = [
        &[("ARCHITECTURE", 1), ("LOG_N", 3)],
        &[("ARCHITECTURE", 2), ("LOG_N", 4)],
    ];
    for given in cases {
        let values = values(name, given).unwrap();
        let vectors = find(name)
            .unwrap()
            .configure(&values)
            .unwrap()
            .vectors(1, 5)
            .unwrap();
        let (streams, others) = streams(&vectors);
        let mut simulation = start(name, &values, 6);
        let mut sink = Sink::new(&simulation, "out", 0.0, 1).unwrap();
        let mut a = Source::new(&simulation, "a", 0.0, 2).unwrap();
        let mut b = other(&simulation, 0.0, 3);
        let (from_a, from_b) = (&streams.sent, others);
        assert_eq!(from_a.len(), from_b.len());
        // Where each of them stops in turn.
        let (mut at_a, mut at_b) = (0, 0);
        for (to_a, to_b) in [(3, 1), (3, 10), (24, 10), (24, 21), (24, 24)] {
            a.extend(from_a[at_a..to_a].iter().cloned());
            b.as_mut()
                .unwrap()
                .extend(from_b[at_b..to_b].iter().cloned());
            (at_a, at_b) = (to_a, to_b);
            run(
                &mut simulation,
                3 * streams.cycles,
                &mut a,
                &mut b,
                &mut sink,
            );
            let taken = [&a, b.as_ref().unwrap()].map(Source::sent);
            assert_eq!(taken, [at_a.min(at_b) as u64; 2]);
        }
        assert!(a.is_empty());
        assert_eq!(sink.received(), &streams.expected[..], "{given:?}");
    }
}
