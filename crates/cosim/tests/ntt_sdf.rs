//! The cores `ntt_sdf` and `polymul_sdf` against the library's transforms and products. `toroid-hw-bench sdf` does the same at the
//! settings of the tables, and at large ones.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use toroid_cosim::core::vectors::Vectors;
use toroid_cosim::core::{self, CoreError, Values, find};
use toroid_cosim::model::{Model, ModelError, Options, Value};
use toroid_cosim::random::Random;
use toroid_cosim::simulation::Agent;
use toroid_cosim::stream::{Sink, Source};
use toroid_cosim::toolchain::tests_are_skipped;
use toroid_ring::goldilocks;

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
        let outcome = core::test(core, &values, 1, 7, None, &())
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
            &[("ARCHITECTURE", 0), ("LOG_N", 2)],
            &[("ARCHITECTURE", 1), ("LOG_N", 2), ("INVERSE", 1)],
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

#[test]
fn moduli_of_all_widths() {
    verify(
        "ntt_sdf",
        &[
            &[("ARCHITECTURE", 0), ("LOG_N", 3), ("Q", 17)],
            &[("ARCHITECTURE", 1), ("LOG_N", 4), ("Q", goldilocks::P)],
            &[
                ("ARCHITECTURE", 0),
                ("LOG_N", 4),
                ("Q", 18_446_744_073_709_550_593),
                ("INVERSE", 1),
            ],
            &[
                ("ARCHITECTURE", 1),
                ("LOG_N", 4),
                ("Q", 18_446_744_073_709_550_593),
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
        &[
            &[
                ("ARCHITECTURE", 1),
                ("LOG_N", 5),
                ("REDUCTION", MONTGOMERY),
                ("PARALLEL", 0),
            ],
            &[
                ("ARCHITECTURE", 2),
                ("LOG_N", 2),
                ("Q", goldilocks::P),
                ("PARALLEL", 0),
            ],
            &[
                ("ARCHITECTURE", 0),
                ("LOG_N", 2),
                ("Q", 18_446_744_073_709_550_593),
            ],
        ],
    );
}

#[test]
fn a_reset_leaves_nothing_behind() {
    if tests_are_skipped() {
        return;
    }
    let cases: [(&str, Given); 3] = [
        ("ntt_sdf", &[("ARCHITECTURE", 0), ("LOG_N", 5)]),
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
    ];
    for (name, given) in cases {
        let values = values(name, given).unwrap();
        let core = find(name).unwrap();
        let options = Options {
            random_start: true,
            quick: true,
            ..Options::default()
        };
        let model = Model::build(&core.design(&values).unwrap(), &options).unwrap();
        let mut simulation = model.start_random(9).unwrap();
        simulation.reset(1).unwrap();
        let mut random = Random::new(1);
        for _ in 0..12 {
            let vectors = core.vectors(&values, 1, random.word()).unwrap();
            let streams = match &vectors {
                Vectors::Joined(joined) => &joined.streams,
                Vectors::Streams(streams) => streams,
                Vectors::Pipeline(_) => unreachable!(),
            };
            let mut source = Source::new(&simulation, streams.input, 0.3, random.word()).unwrap();
            let mut sink = Sink::new(&simulation, "out", 0.3, random.word()).unwrap();
            streams
                .sent
                .iter()
                .for_each(|beat| source.push(beat.clone()));
            for _ in 0..random.below(300) {
                simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
            }
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
            .design(&values)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    for name in ["ntt_sdf", "polymul_sdf"] {
        let message = refused(name, &[("LOG_N", 9)]);
        assert!(message.contains("1 modulo 1024, not 7681"), "{message}");
        let message = refused(name, &[("LOG_N", 4), ("Q", 257), ("REDUCTION", SOLINAS)]);
        assert!(message.contains("REDUCTION must be 0, 2 or 3"), "{message}");
        assert!(values(name, &[("ARCHITECTURE", 3)]).is_err());
        assert!(values(name, &[("LOG_N", 16)]).is_err());
        assert!(values(name, &[("LOG_N", 1)]).is_err());
    }
    // A cyclic transform needs half the root.
    let cyclic = values("ntt_sdf", &[("LOG_N", 9), ("CYCLIC", 1)]).unwrap();
    assert!(find("ntt_sdf").unwrap().design(&cyclic).is_ok());
}

#[test]
fn illegal_parameters_are_refused_at_elaboration() {
    if tests_are_skipped() {
        return;
    }
    let core = find("ntt_sdf").unwrap();
    let given = values("ntt_sdf", &[("ARCHITECTURE", 0), ("LOG_N", 4)]).unwrap();
    let design = core.design(&given).unwrap();
    let q = |hex: &str| Value::Bits {
        width: 64,
        hex: hex.to_owned(),
    };
    for (name, value, message) in [
        ("ARCHITECTURE", Value::Int(3), "ARCHITECTURE is 0 to 2"),
        ("BARRETT", Value::Int(1), "no BARRETT"),
        ("Q", q("1e61"), "Q = 2^i - 2^j + 1"),
        (
            "FRONT",
            Value::Int(1),
            "commutators at an end need two lanes",
        ),
    ] {
        let mut wrong = design.clone();
        let mut parameters = wrong.parameters.iter_mut();
        parameters.find(|(each, _)| each == name).unwrap().1 = value;
        match Model::build(&wrong, &Options::default()) {
            Err(error @ ModelError::Elaboration { .. }) => {
                assert!(error.to_string().contains(message), "{name}: {error}");
            }
            other => panic!("{name}: {:?}", other.map(|_| ())),
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
        let options = Options {
            random_start: true,
            quick: true,
            ..Options::default()
        };
        let model = Model::build(&core.design(&values).unwrap(), &options).unwrap();
        let mut simulation = model.start_random(4).unwrap();
        simulation.reset(2).unwrap();
        let input = if name == "ntt_sdf" { "in" } else { "a" };
        let mut source = Source::new(&simulation, input, 0.0, 1).unwrap();
        let mut other = (name != "ntt_sdf").then(|| Source::new(&simulation, "b", 0.3, 2).unwrap());
        let mut expected = Vec::new();
        for seed in 0..20 {
            let (streams, others) = match core.vectors(&values, 1, seed).unwrap() {
                Vectors::Joined(joined) => (joined.streams, joined.others),
                Vectors::Streams(streams) => (streams, Vec::new()),
                Vectors::Pipeline(_) => unreachable!(),
            };
            streams.sent.into_iter().for_each(|beat| source.push(beat));
            if let (Some(other), [input]) = (&mut other, &others[..]) {
                input.sent.iter().for_each(|beat| other.push(beat.clone()));
            }
            expected.extend(streams.expected);
        }
        let mut run = |sink: &mut Sink, source: &mut Source, cycles: usize| {
            for _ in 0..cycles {
                let mut agents: Vec<&mut dyn Agent> = vec![&mut *source, &mut *sink];
                agents.extend(other.iter_mut().map(|other| other as &mut dyn Agent));
                simulation.cycle(&mut agents).unwrap();
            }
        };
        let mut waiting = Sink::new(&model.start().unwrap(), "out", 1.0, 3).unwrap();
        run(&mut waiting, &mut source, 600);
        let before = source.sent();
        run(&mut waiting, &mut source, 100);
        assert_eq!(source.sent(), before, "{name} {given:?}");
        assert!(!source.is_empty() && waiting.received().is_empty());
        let mut taking = Sink::new(&model.start().unwrap(), "out", 0.0, 3).unwrap();
        run(&mut taking, &mut source, 2500);
        assert_eq!(taking.received(), &expected[..], "{name} {given:?}");
    }
}
