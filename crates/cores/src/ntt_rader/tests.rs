//! The core `ntt_rader` against the library's transforms. `toroid-hw-bench rader` does the same for large lengths and many moduli.

use crate::ntt_rader::plan;
use crate::testing::{refusal, replaced, start};
use crate::vectors::Vectors;
use crate::{CoreError, Values, find};
use toroid_ring::cyclotomic::CyclotomicRing;
use toroid_ring::prime;
use toroid_sim::model::{Model, Options, Value};
use toroid_sim::random::Random;
use toroid_sim::stream::{Sink, Source, transfer};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

fn values(length: u64, modulus: u64) -> Result<Values, CoreError> {
    let given = [("M", length), ("Q", modulus)];
    Values::new(find("ntt_rader").unwrap(), given)
}

/// Transforms back to back, with cycles as by the formula, and under random back-pressure.
fn verify(length: u64, modulus: u64) {
    if tests_are_skipped() {
        return;
    }
    let values = values(length, modulus).unwrap();
    let core = find("ntt_rader").unwrap();
    let outcome = crate::test(core, &values, 1, 7, None, &Progress::none())
        .unwrap_or_else(|error| panic!("{length} modulo {modulus}: {error}"));
    assert_eq!(outcome.measured, outcome.expected, "{length}");
}

#[test]
fn small_lengths() {
    verify(15, 7681);
    verify(51, 26113);
    verify(85, 87041);
    verify(255, 783_361);
    // The largest modulus there is for it: every bit of a word counts.
    verify(15, 4_294_928_641);
}

#[test]
fn the_length_of_bgv() {
    verify(21845, 4_244_570_881);
}

#[test]
fn a_reset_at_any_time_leaves_a_core_that_begins_anew() {
    if tests_are_skipped() {
        return;
    }
    let core = find("ntt_rader").unwrap();
    let values = values(51, 26113).unwrap();
    let plan = plan(&values).unwrap();
    let mut simulation = start(core.name, &values, 3);
    let mut random = Random::new(5);
    for round in 0..30 {
        let Some(Vectors::Streams(streams)) = core.configure(&values).unwrap().vectors(1, round)
        else {
            panic!("no streams");
        };
        let mut source = Source::new(&simulation, "in", 0.2, round).unwrap();
        let mut sink = Sink::new(&simulation, "out", 0.2, round).unwrap();
        source.extend(streams.sent.iter().cloned());
        for _ in 0..random.below(plan.alone() + 2 * plan.interval()) {
            simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
        }
        simulation.reset(1).unwrap();
        let expected = streams.cycles;
        let outcome = Vectors::Streams(streams)
            .run(&mut simulation, round, &Progress::none())
            .unwrap();
        assert_eq!(outcome.measured, expected, "round {round}");
    }
}

/// A sink that stops for long, and transforms that enter beat by beat with gaps or wait for results.
#[test]
fn sources_and_sinks_may_wait() {
    if tests_are_skipped() {
        return;
    }
    let core = find("ntt_rader").unwrap();
    let values = values(85, 87041).unwrap();
    let plan = plan(&values).unwrap();
    let mut simulation = start(core.name, &values, 4);
    let limit = 20 * plan.alone();
    for (seed, stalls) in [(0.0, 0.97), (0.97, 0.0), (0.9, 0.9), (0.5, 0.1)]
        .into_iter()
        .enumerate()
    {
        let seed = seed as u64;
        let Some(Vectors::Streams(streams)) = core.configure(&values).unwrap().vectors(1, seed)
        else {
            panic!("no streams");
        };
        let mut source = Source::new(&simulation, "in", stalls.0, seed).unwrap();
        let mut sink = Sink::new(&simulation, "out", stalls.1, seed).unwrap();
        source.extend(streams.sent.iter().cloned());
        let beats = streams.expected.len();
        transfer(&mut simulation, &mut source, &mut sink, beats, limit).unwrap();
        assert_eq!(sink.received(), streams.expected, "{stalls:?}");
    }
    // One at a time: the core is idle between them.
    let mut source = Source::new(&simulation, "in", 0.0, 9).unwrap();
    let mut sink = Sink::new(&simulation, "out", 0.0, 9).unwrap();
    let mut words: Vec<u32> = (0..85).collect();
    for is_inverse in [false, false, true, true, false] {
        source.extend(plan.beats(&words, |_| is_inverse.into()));
        let begin = simulation.cycles();
        transfer(&mut simulation, &mut source, &mut sink, plan.words(), limit).unwrap();
        assert_eq!(simulation.cycles() - begin, plan.alone());
        words = plan.expected(is_inverse, &words);
        let expected = plan.beats(&words, |_| is_inverse.into());
        assert_eq!(sink.take(), expected);
    }
}

/// A product of BGV: two forward transforms in a row, the inverse one once all their values are there.
#[test]
fn three_transforms_make_a_product_modulo_the_cyclotomic_polynomial() {
    if tests_are_skipped() {
        return;
    }
    let values = values(85, 87041).unwrap();
    let plan = plan(&values).unwrap();
    let mut simulation = start("ntt_rader", &values, 6);
    let ring = CyclotomicRing::new(85, 87041).unwrap();
    let mut random = Random::new(1);
    let mut drawn = || -> Vec<u32> {
        let word = |_| random.below(87041) as u32;
        (0..ring.degree()).map(word).collect()
    };
    let one: Vec<u32> = (0..ring.degree()).map(|i| u32::from(i == 0)).collect();
    let largest = vec![87040; ring.degree()];
    let factors = [
        (drawn(), drawn()),
        (largest.clone(), largest),
        (drawn(), one),
        (drawn(), drawn()),
    ];
    for (a, b) in factors {
        let product = plan.multiply(&mut simulation, &a, &b).unwrap();
        assert_eq!(product.words, ring.mul(&a, &b));
        assert_eq!(product.cycles, 2 * plan.alone() + plan.interval());
    }
}

#[test]
fn what_there_is_no_transform_for_is_refused() {
    let refused = |length, modulus| {
        let values = values(length, modulus).unwrap();
        plan(&values).map(|_| ()).unwrap_err().to_string()
    };
    for length in [17, 16, 45, 257, 289, 1024, 21846] {
        let message = refused(length, 7681);
        assert!(
            message.contains("M must be a product of two or more different primes"),
            "{message}"
        );
    }
    let message = refused(15, 7683);
    assert!(
        message.contains("1 modulo 3840, for example 7681, not 7683"),
        "{message}"
    );
    // 1 modulo 3840, and no prime.
    assert!(refused(15, 3841 + 3840 * 2).contains("Q must be"));
    assert!(values(14, 7681).is_err());
    assert!(values(15, 1 << 32).is_err());
}

#[test]
fn illegal_parameters_are_refused_at_elaboration() {
    if tests_are_skipped() {
        return;
    }
    let core = find("ntt_rader").unwrap();
    let design = core
        .configure(&values(15, 7681).unwrap())
        .unwrap()
        .design()
        .unwrap();
    for (name, value, message) in [
        ("COLUMNS", 19, "COLUMNS must be 5, 17 or 257"),
        ("WORDS", 4, "WORDS must be a product"),
        ("WORDS", 5, "WORDS must be a product"),
        ("GENERATOR", 4, "GENERATOR must be a primitive root"),
        ("GENERATOR", 8, "GENERATOR must be a primitive root"),
        ("Q", 1, "1 modulo 256 * COLUMNS * WORDS"),
        ("Q", 7937, "1 modulo 256 * COLUMNS * WORDS"),
        (
            "SLOTS",
            0,
            "WORDS, SLOTS and PRODUCT_LATENCY must be at least 1",
        ),
    ] {
        let said = refusal(&replaced(&design, name, Value::Int(value)));
        assert!(said.contains(message), "{name}: {said}");
    }
    let long = replaced(&design, "TILE_A", Value::Int(2)).with("SHORT", 0u64);
    let said = refusal(&long);
    assert!(said.contains("the multiplier takes more cycles"), "{said}");
}

#[test]
fn what_is_expected_is_the_definition() {
    for (length, modulus) in [(15, 7681), (51, 26113), (255, 783_361)] {
        let plan = plan(&values(length, modulus).unwrap()).unwrap();
        let mut random = Random::new(length);
        let words: Vec<u32> = (0..length).map(|_| random.below(modulus) as u32).collect();
        let values = plan.expected(false, &words);
        for (k, value) in values.iter().enumerate() {
            let point = prime::pow(plan.dft().root().into(), k as u64, modulus);
            let sum = words.iter().rev().fold(0, |sum, &word| {
                (prime::mul(sum, point, modulus) + u64::from(word)) % modulus
            });
            assert_eq!(u64::from(*value), sum, "m = {length}, k = {k}");
        }
        assert_eq!(plan.expected(true, &values), words);
    }
}

/// What the core's design does not set, and tiles of another family.
#[test]
fn long_pipelines_and_other_tiles() {
    if tests_are_skipped() {
        return;
    }
    let core = find("ntt_rader").unwrap();
    for (length, modulus) in [(15, 4_294_928_641), (51, 26113)] {
        for (short, tile) in [(0u64, None), (1, Some(18)), (0, Some(18))] {
            let given = [("M", length), ("Q", modulus)].into_iter();
            let tiles = ["TILE_A", "TILE_B"].map(|name| tile.map(|width| (name, width)));
            let values = Values::new(core, given.chain(tiles.into_iter().flatten())).unwrap();
            let design = core
                .configure(&values)
                .unwrap()
                .design()
                .unwrap()
                .with("SHORT", short);
            if (short, tile) == (0, Some(18)) {
                // What a product takes is more than what is left of the loop.
                let said = refusal(&design);
                assert!(said.contains("the multiplier takes more cycles"), "{said}");
                continue;
            }
            let model = Model::build(&design, &Options::quick_random()).unwrap();
            let mut simulation = model.start_random(3).unwrap();
            simulation.reset(2).unwrap();
            for round in 0..4 {
                let vectors = core.configure(&values).unwrap().vectors(1, round).unwrap();
                let outcome = vectors
                    .run(&mut simulation, round, &Progress::none())
                    .unwrap();
                let expected = core.configure(&values).unwrap().timing().checked.cycles;
                assert_eq!(outcome.measured, expected, "{length}, {short}, {tile:?}");
            }
        }
    }
}
