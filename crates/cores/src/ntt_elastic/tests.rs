//! The core `ntt_elastic` against the library's transforms. `toroid-hw-bench elastic` does the same for many more and for the
//! settings of its paper.

use crate::ntt_elastic::{Mode, Plan, Transform};
use crate::ntt_elastic::{plan, vectors};
use crate::testing::{refusal, replaced};
use crate::vectors::{Joined, Vectors};
use crate::{CoreError, Values, find};
use toroid_ring::{goldilocks, prime};
use toroid_sim::model::Value;
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_sim::stream::{Sink, Source};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

/// Settings of the core: those that are not given keep their defaults.
type Given<'a> = &'a [(&'static str, u64)];

/// Eight lanes, with transforms of 256 and 512 words.
const SMALL: Given = &[("LOG_LANES", 3), ("WORD", 8)];

fn values(given: Given) -> Result<Values, CoreError> {
    Values::new(find("ntt_elastic").unwrap(), given.iter().copied())
}

fn start(given: Given, seed: u32) -> (Plan, Simulation) {
    let values = values(given).unwrap();
    let simulation = crate::testing::start("ntt_elastic", &values, seed);
    (plan(&values).unwrap(), simulation)
}

/// A sequence at full speed, where cycles count, and with gaps and stalls.
fn verify(plan: &Plan, simulation: &mut Simulation, sequence: &[Transform], random: &mut Random) {
    let vectors = Vectors::Joined(vectors(plan, sequence, random).unwrap());
    let outcome = vectors
        .run(simulation, random.word(), &Progress::none())
        .unwrap();
    assert_eq!(outcome.measured, plan.cycles(sequence));
}

/// The sources of words and factors, with all that enters, and the sink; seeds from `seed` on.
fn agents(
    simulation: &Simulation,
    joined: &Joined,
    stall: f64,
    seed: u64,
) -> (Source, Source, Sink) {
    let mut source = Source::new(simulation, "in", stall, seed).unwrap();
    let mut factors = Source::new(simulation, "factor", stall, seed + 1).unwrap();
    let sink = Sink::new(simulation, "out", stall, seed + 2).unwrap();
    source.extend(joined.streams.sent.iter().cloned());
    factors.extend(joined.others[0].sent.iter().cloned());
    (source, factors, sink)
}

#[test]
fn four_lanes_and_tiles_of_another_family() {
    if tests_are_skipped() {
        return;
    }
    let given: Given = &[
        ("LOG_LANES", 2),
        ("WORD", 6),
        ("TILE_A", 18),
        ("TILE_B", 18),
    ];
    let outcome = crate::test(
        find("ntt_elastic").unwrap(),
        &values(given).unwrap(),
        1,
        7,
        None,
        &Progress::none(),
    );
    let outcome = outcome.unwrap();
    assert_eq!(outcome.measured, outcome.expected);
}

#[test]
fn length_modulus_and_kind_change_from_transform_to_transform() {
    if tests_are_skipped() {
        return;
    }
    let (plan, mut simulation) = start(SMALL, 3);
    let mut random = Random::new(5);
    for count in [1, 2, 30] {
        let sequence: Vec<Transform> = (0..count).map(|_| plan.draw(&mut random)).collect();
        verify(&plan, &mut simulation, &sequence, &mut random);
    }
}

#[test]
fn moduli_of_every_kind() {
    if tests_are_skipped() {
        return;
    }
    let (plan, mut simulation) = start(SMALL, 4);
    let mut random = Random::new(6);
    let mut sequence = Vec::new();
    for log_n in [8, 9] {
        for mode in Mode::ALL {
            let log_order = if mode.is_cyclic() { log_n } else { log_n + 1 };
            let all = || prime::ntt_primes(1 << (log_order - 1), u64::MAX);
            // The largest, the largest that has no root of a higher order, one of few bits.
            let exact = all().find(|q| (q - 1).trailing_zeros() == log_order);
            let few = prime::ntt_primes(1 << (log_order - 1), 13_000).last();
            let moduli = [all().next(), exact, few, Some(goldilocks::P)];
            sequence.extend(moduli.map(|q| Transform {
                q: q.unwrap(),
                mode,
                log_n,
            }));
        }
    }
    verify(&plan, &mut simulation, &sequence, &mut random);
}

#[test]
fn there_is_no_bubble() {
    if tests_are_skipped() {
        return;
    }
    let (plan, mut simulation) = start(SMALL, 5);
    let mut random = Random::new(7);
    let sequence: Vec<Transform> = (0..40).map(|_| plan.draw(&mut random)).collect();
    let joined = vectors(&plan, &sequence, &mut random).unwrap();
    let (mut source, mut factors, mut sink) = agents(&simulation, &joined, 0.0, 1);
    let Joined { streams, .. } = joined;
    let mut ends = Vec::new();
    while sink.received().len() < streams.expected.len() {
        let before = source.sent();
        simulation
            .cycle(&mut [&mut source, &mut factors, &mut sink])
            .unwrap();
        if before != source.sent() {
            ends.push(simulation.cycles());
        }
    }
    assert_eq!(sink.received(), streams.expected);
    // A beat was taken in every cycle between the first and the last, and one left.
    let beats = streams.expected.len() as u64;
    assert_eq!(ends[ends.len() - 1] - ends[0] + 1, beats);
    let between = sink.last_cycle().unwrap() - sink.first_cycle().unwrap();
    // A first transform that is shorter than the others waits less than they do.
    let waited = plan.latency(sequence[0].log_n) - plan.beats(sequence[0].log_n);
    let longest = plan.latency(*plan.log_n().end()) - plan.beats(*plan.log_n().end());
    assert!((beats..=beats + longest - waited).contains(&(between + 1)));
}

#[test]
fn a_preamble_comes_behind_a_transform() {
    if tests_are_skipped() {
        return;
    }
    let (plan, mut simulation) = start(SMALL, 6);
    let mut random = Random::new(11);
    let mut all: Option<Joined> = None;
    for count in [1, 2, 1, 3, 1] {
        let sequence: Vec<Transform> = (0..count).map(|_| plan.draw(&mut random)).collect();
        let next = vectors(&plan, &sequence, &mut random).unwrap();
        let Some(all) = &mut all else {
            all = Some(next);
            continue;
        };
        // Of two preambles the second one counts.
        let other = plan.factors(&[plan.draw(&mut random)]).unwrap();
        let factors = &mut all.others[0].sent;
        factors.extend_from_slice(&other[..plan.preamble() as usize]);
        factors.extend_from_slice(&next.others[0].sent);
        all.streams.sent.extend(next.streams.sent);
        all.streams.expected.extend(next.streams.expected);
        all.streams.cycles += next.streams.cycles + 2 * plan.preamble();
    }
    Vectors::Joined(all.unwrap())
        .run(&mut simulation, 1, &Progress::none())
        .unwrap();
}

#[test]
fn an_idle_core_begins_with_a_preamble() {
    if tests_are_skipped() {
        return;
    }
    let (plan, mut simulation) = start(SMALL, 7);
    let mut random = Random::new(12);
    let one = plan.draw(&mut random);
    let joined = vectors(&plan, &[one], &mut random).unwrap();
    let (mut source, mut factors, mut sink) = agents(&simulation, &joined, 0.0, 1);
    let Joined { streams, .. } = joined;
    let mut first_factor = None;
    while sink.received().len() < streams.expected.len() {
        let cycle = simulation.cycles();
        simulation
            .cycle(&mut [&mut source, &mut factors, &mut sink])
            .unwrap();
        if factors.sent() > 0 {
            first_factor.get_or_insert(cycle);
        }
    }
    let cycles = sink.last_cycle().unwrap() + 1 - first_factor.unwrap();
    assert_eq!(cycles, plan.idle_latency(one.log_n));
}

#[test]
fn a_reset_leaves_nothing_behind() {
    if tests_are_skipped() {
        return;
    }
    let (plan, mut simulation) = start(SMALL, 9);
    let mut random = Random::new(8);
    for _ in 0..5 {
        let sequence: Vec<Transform> = (0..5).map(|_| plan.draw(&mut random)).collect();
        let joined = vectors(&plan, &sequence, &mut random).unwrap();
        let (mut source, mut factors, mut sink) =
            agents(&simulation, &joined, 0.2, random.word() >> 2);
        for _ in 0..random.below(600) {
            simulation
                .cycle(&mut [&mut source, &mut factors, &mut sink])
                .unwrap();
        }
        simulation.reset(1).unwrap();
        verify(&plan, &mut simulation, &sequence[..2], &mut random);
    }
}

#[test]
fn a_length_that_is_not_there_is_the_shortest() {
    if tests_are_skipped() {
        return;
    }
    // Of four lanes there is one length; the field has a bit.
    let (plan, mut simulation) = start(
        &[
            ("LOG_LANES", 2),
            ("WORD", 6),
            ("TILE_A", 18),
            ("TILE_B", 18),
        ],
        2,
    );
    let mut random = Random::new(3);
    let sequence = [plan.draw(&mut random)];
    let Joined {
        mut streams,
        others,
    } = vectors(&plan, &sequence, &mut random).unwrap();
    streams.sent[0].user |= 1;
    Vectors::Joined(Joined { streams, others })
        .run(&mut simulation, 1, &Progress::none())
        .unwrap();
}

#[test]
fn what_there_is_no_core_for_is_refused() {
    let refused = |given: Given| {
        plan(&values(given).unwrap())
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(&[("WORD", 18), ("TILE_A", 18)]),
        "ntt_elastic: WORD must be from 4 to 17, not 18"
    );
    assert_eq!(
        refused(&[("TILE_B", 8)]),
        "ntt_elastic: TILE_B must be at least 12, not 8"
    );
    assert_eq!(
        refused(&[("WORD", 4), ("TILE_A", 4)]),
        "ntt_elastic: TILE_A must be at least 5, not 4"
    );
    let out_of_range = |given: Given| values(given).unwrap_err().to_string();
    assert_eq!(
        out_of_range(&[("LOG_LANES", 6)]),
        "ntt_elastic: LOG_LANES must be from 2 to 5, not 6"
    );
    assert_eq!(
        out_of_range(&[("WORD", 22)]),
        "ntt_elastic: WORD must be from 4 to 21, not 22"
    );
}

#[test]
fn illegal_parameters_are_refused_at_elaboration() {
    if tests_are_skipped() {
        return;
    }
    let design = find("ntt_elastic")
        .unwrap()
        .configure(&values(SMALL).unwrap())
        .unwrap()
        .design()
        .unwrap();
    for (name, value, message) in [
        ("LOG_LANES", 1, "LOG_LANES must be 2 to 5"),
        ("WORD", 24, "2 <= WORD < TILE_A"),
        ("WORD", 1, "2 <= WORD"),
        ("TILE_B", 6, "steps of at most TILE_B + WORD bits"),
    ] {
        let said = refusal(&replaced(&design, name, Value::Int(value)));
        assert!(said.contains(message), "{name}: {said}");
    }
}

/// The lanes of the paper's core: every kind of transform of 1024, 2048 and 4096 words.
#[test]
fn sixteen_lanes() {
    if tests_are_skipped() {
        return;
    }
    let (plan, mut simulation) = start(&[], 10);
    assert_eq!(plan.log_n(), 10..=12);
    let mut random = Random::new(13);
    let sequence: Vec<Transform> = (0..12)
        .map(|i| plan.draw_as(Mode::ALL[i % 4], 10 + i as u32 % 3, &mut random))
        .collect();
    verify(&plan, &mut simulation, &sequence, &mut random);
}
