//! The core `ntt_streaming` against the library's transforms. `toroid-hw-bench streaming-random` and `streaming` do the same for
//! many more and for large settings.

use crate::ntt_streaming::plan;
use crate::ntt_streaming::{Plan, Setting};
use crate::order::{End, Order};
use crate::setting::SettingError;
use crate::testing::{self, Given, refusal, replaced, start};
use crate::vectors::{Streams, Vectors};
use crate::{CoreError, Values, find};
use toroid_ring::{goldilocks, prime};
use toroid_sim::model::Value;
use toroid_sim::random::Random;
use toroid_sim::stream::{Beat, Sink, Source};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

fn values(given: Given) -> Result<Values, CoreError> {
    testing::values("ntt_streaming", given)
}

fn verify(settings: &[Given]) {
    testing::verify("ntt_streaming", settings);
}

const NATURAL: u64 = 0;
const REVERSED: u64 = 1;
const HALVES: u64 = 2;

#[test]
fn every_pair_of_orders() {
    verify(&[
        &[
            ("LOG_N", 5),
            ("LOG_LANES", 2),
            ("IN_ORDER", NATURAL),
            ("OUT_ORDER", NATURAL),
        ],
        &[
            ("LOG_N", 6),
            ("LOG_LANES", 1),
            ("IN_ORDER", NATURAL),
            ("INVERSE", 1),
        ],
        &[("LOG_N", 5), ("LOG_LANES", 3), ("IN_ORDER", HALVES)],
        &[
            ("LOG_N", 4),
            ("LOG_LANES", 2),
            ("IN_ORDER", REVERSED),
            ("OUT_ORDER", HALVES),
            ("INVERSE", 1),
        ],
        &[
            ("LOG_N", 6),
            ("LOG_LANES", 2),
            ("IN_ORDER", REVERSED),
            ("OUT_ORDER", NATURAL),
        ],
        &[
            ("LOG_N", 5),
            ("LOG_LANES", 2),
            ("IN_ORDER", REVERSED),
            ("OUT_ORDER", REVERSED),
            ("INVERSE", 1),
        ],
        &[
            ("LOG_N", 4),
            ("LOG_LANES", 4),
            ("IN_ORDER", NATURAL),
            ("OUT_ORDER", NATURAL),
        ],
        &[
            ("LOG_N", 4),
            ("LOG_LANES", 2),
            ("IN_ORDER", NATURAL),
            ("OUT_ORDER", HALVES),
        ],
        &[
            ("LOG_N", 4),
            ("LOG_LANES", 2),
            ("IN_ORDER", HALVES),
            ("OUT_ORDER", NATURAL),
            ("INVERSE", 1),
        ],
        &[
            ("LOG_N", 4),
            ("LOG_LANES", 1),
            ("IN_ORDER", HALVES),
            ("OUT_ORDER", HALVES),
            ("INVERSE", 1),
        ],
    ]);
}

#[test]
fn every_kind_of_modulus() {
    let small: &[(&'static str, u64)] = &[("LOG_N", 4), ("LOG_LANES", 2), ("IN_ORDER", HALVES)];
    let with = |more: Given| [small, more].concat();
    // Few bits and no root of order 2 N, j = i - 2, a Fermat prime, 32 and 64 bits of the form 2^i - 2^j + 1, others of 30, 50 and 64 bits.
    verify(&[
        &[("LOG_N", 5), ("LOG_LANES", 2), ("Q", 97), ("CYCLIC", 1)],
        &with(&[("Q", 12_289), ("INVERSE", 1)]),
        &with(&[("Q", 65_537)]),
        &with(&[("Q", (1 << 32) - (1 << 20) + 1)]),
        &with(&[("Q", goldilocks::P)]),
        &with(&[("Q", 998_244_353), ("INVERSE", 1), ("CYCLIC", 1)]),
        &with(&[("Q", 1_125_899_906_826_241)]),
        &with(&[("Q", 18_446_744_073_709_550_593), ("INVERSE", 1)]),
        &with(&[("TILE_A", 18), ("TILE_B", 18), ("NARROW", 0)]),
    ]);
}

#[test]
fn feedback_keeps_words_in_order() {
    let small: &[(&'static str, u64)] = &[("LOG_N", 5), ("LOG_LANES", 2), ("FEEDBACK", 1)];
    let with = |more: Given| [small, more].concat();
    verify(&[
        &with(&[("IN_ORDER", NATURAL)]),
        &with(&[("IN_ORDER", NATURAL), ("INVERSE", 1)]),
        &with(&[
            ("IN_ORDER", REVERSED),
            ("OUT_ORDER", NATURAL),
            ("CYCLIC", 1),
        ]),
        &with(&[
            ("IN_ORDER", REVERSED),
            ("OUT_ORDER", NATURAL),
            ("INVERSE", 1),
        ]),
        &with(&[("IN_ORDER", NATURAL), ("Q", 998_244_353)]),
        &[
            ("LOG_N", 9),
            ("LOG_LANES", 1),
            ("FEEDBACK", 1),
            ("IN_ORDER", NATURAL),
        ],
    ]);
}

#[test]
fn long_delays_are_in_memories() {
    verify(&[&[("LOG_N", 10), ("LOG_LANES", 1), ("IN_ORDER", HALVES)]]);
}

/// Beats of polynomials that follow each other, and what must leave.
fn sequence(plan: &Plan, count: usize, random: &mut Random) -> (Vec<Beat>, Vec<Beat>) {
    let setting = plan.setting();
    let bytes = plan.bits().div_ceil(8) as usize;
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let modulus = random.below(setting.moduli.len() as u64) as usize;
        let degrees = u64::from(setting.log_n - setting.log_n_min + 1);
        let log_n = setting.log_n_min + random.below(degrees) as u32;
        let user = plan.user(modulus, log_n);
        let words: Vec<u64> = (0..1 << log_n)
            .map(|_| random.below(setting.moduli[modulus]))
            .collect();
        let results = plan.expected(modulus, &words);
        let beats = |order: Order, words: &[u64]| -> Vec<Beat> {
            let words = order.arrange(setting.log_lanes, words);
            let mut beats: Vec<Beat> = words
                .chunks(1 << setting.log_lanes)
                .map(|words| Beat::of_words(words, bytes, false).with_user(user))
                .collect();
            beats.last_mut().unwrap().last = true;
            beats
        };
        sent.extend(beats(setting.input, &words));
        expected.extend(beats(setting.output, &results));
    }
    (sent, expected)
}

#[test]
fn degree_and_modulus_change_from_transform_to_transform_without_a_bubble() {
    if tests_are_skipped() {
        return;
    }
    let settings: [Given; 4] = [
        // Delays of up to 128 beats, which are in memories.
        &[
            ("LOG_N", 9),
            ("LOG_LANES", 1),
            ("LOG_N_MIN", 3),
            ("IN_ORDER", HALVES),
        ],
        &[
            ("LOG_N", 7),
            ("LOG_LANES", 2),
            ("LOG_N_MIN", 2),
            ("IN_ORDER", HALVES),
        ],
        &[
            ("LOG_N", 6),
            ("LOG_LANES", 1),
            ("LOG_N_MIN", 3),
            ("Q_2", 132_120_577),
            ("Q_3", 786_433),
            ("IN_ORDER", HALVES),
        ],
        &[
            ("LOG_N", 6),
            ("LOG_LANES", 2),
            ("LOG_N_MIN", 4),
            ("Q_2", 65_537),
            ("IN_ORDER", REVERSED),
            ("OUT_ORDER", HALVES),
            ("INVERSE", 1),
        ],
    ];
    for given in settings {
        let values = values(given).unwrap();
        let plan = plan(&values).unwrap();
        let core = find("ntt_streaming").unwrap();
        let mut simulation = start(core.name, &values, 3);
        let mut random = Random::new(5);
        for _ in 0..3 {
            let (sent, expected) = sequence(&plan, 60, &mut random);
            let cycles = plan.pipeline() + sent.len() as u64;
            let vectors = Vectors::Streams(Streams {
                input: "in",
                output: "out",
                sent,
                expected,
                user_bits: plan.user_bits(),
                cycles,
            });
            let outcome = vectors
                .run(&mut simulation, random.word(), &Progress::none())
                .unwrap();
            assert_eq!(outcome.measured, cycles, "{given:?}");
        }
    }
}

#[test]
fn a_degree_or_modulus_that_is_not_there_is_number_0() {
    if tests_are_skipped() {
        return;
    }
    let given: Given = &[
        ("LOG_N", 6),
        ("LOG_LANES", 2),
        ("LOG_N_MIN", 4),
        ("Q_2", 132_120_577),
        ("Q_3", 786_433),
        ("IN_ORDER", HALVES),
    ];
    let values = values(given).unwrap();
    let plan = plan(&values).unwrap();
    let core = find("ntt_streaming").unwrap();
    let mut simulation = start(core.name, &values, 3);
    let words: Vec<u64> = (0..64).collect();
    let arranged = |order: Order, words: &[u64], user| -> Vec<Beat> {
        let words = order.arrange(2, words);
        let beats = words.chunks(4).enumerate();
        beats
            .map(|(beat, words)| Beat::of_words(words, 4, beat == 15).with_user(user))
            .collect()
    };
    // Shift 3 of 0 to 2, and modulus 3 of 0 to 2.
    let sent = arranged(Order::Halves, &words, 0b11_11);
    let expected = arranged(Order::BitReversed, &plan.expected(0, &words), 0);
    let cycles = plan.latency();
    let vectors = Vectors::Streams(Streams {
        input: "in",
        output: "out",
        sent,
        expected,
        user_bits: plan.user_bits(),
        cycles,
    });
    vectors.run(&mut simulation, 1, &Progress::none()).unwrap();
}

#[test]
fn a_reset_leaves_nothing_behind() {
    if tests_are_skipped() {
        return;
    }
    for given in [
        &[("LOG_N", 6), ("LOG_LANES", 2), ("IN_ORDER", HALVES)] as Given,
        &[
            ("LOG_N", 6),
            ("LOG_LANES", 1),
            ("IN_ORDER", NATURAL),
            ("OUT_ORDER", NATURAL),
        ],
        &[("LOG_N", 6), ("LOG_LANES", 2), ("FEEDBACK", 1)],
        &[
            ("LOG_N", 6),
            ("LOG_LANES", 1),
            ("LOG_N_MIN", 3),
            ("Q_2", 132_120_577),
            ("IN_ORDER", HALVES),
        ],
    ] {
        let values = values(given).unwrap();
        let plan = plan(&values).unwrap();
        let core = find("ntt_streaming").unwrap();
        let mut simulation = start(core.name, &values, 9);
        let mut random = Random::new(1);
        for _ in 0..12 {
            let (sent, _) = sequence(&plan, 3, &mut random);
            let mut source = Source::new(&simulation, "in", 0.3, random.word()).unwrap();
            let mut sink = Sink::new(&simulation, "out", 0.3, random.word()).unwrap();
            source.extend(sent);
            for _ in 0..random.below(200) {
                simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
            }
            simulation.reset(1).unwrap();
            let (sent, expected) = sequence(&plan, 2, &mut random);
            let cycles = plan.pipeline() + sent.len() as u64;
            let vectors = Vectors::Streams(Streams {
                input: "in",
                output: "out",
                sent,
                expected,
                user_bits: plan.user_bits(),
                cycles,
            });
            let outcome = vectors
                .run(&mut simulation, random.word(), &Progress::none())
                .unwrap();
            assert_eq!(outcome.measured, cycles, "{given:?}");
        }
    }
}

#[test]
fn what_there_is_no_transform_for_is_refused() {
    let refused = |given: Given| {
        let values = values(given).unwrap();
        plan(&values).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(&[("Q", 268_369_923)]).contains("1 modulo 2048, as 268369921 and "));
    assert!(
        refused(&[
            ("LOG_N", 15),
            ("Q", 268_369_921),
            ("CYCLIC", 0),
            ("Q_2", 12_289)
        ])
        .contains("12289")
    );
    for log_n_min in [0, 3] {
        assert_eq!(
            refused(&[("LOG_N", 4), ("LOG_N_MIN", log_n_min), ("LOG_LANES", 5)]),
            "ntt_streaming: LOG_LANES must be at most LOG_N = 4, not 5"
        );
    }
    assert_eq!(
        refused(&[("LOG_N_MIN", 4), ("LOG_LANES", 5)]),
        "ntt_streaming: LOG_N_MIN must be from LOG_LANES = 5 to LOG_N = 10, not 4"
    );
    let message = refused(&[("Q_3", 268_369_923)]);
    assert!(
        message.contains("Q_3 must be") && message.contains("not 268369923"),
        "{message}"
    );
    assert!(refused(&[("LOG_N_MIN", 9), ("FEEDBACK", 1)]).contains("no FEEDBACK"));
    assert!(refused(&[("LOG_N_MIN", 9), ("IN_ORDER", NATURAL)]).contains("IN_ORDER"));
    assert!(values(&[("LOG_N", 16)]).is_err());
    assert!(values(&[("IN_ORDER", 3)]).is_err());
    let no_modulus = Setting {
        log_n: 4,
        log_n_min: 4,
        log_lanes: 2,
        moduli: Vec::new(),
        is_inverse: false,
        is_cyclic: false,
        input: Order::Halves,
        output: Order::BitReversed,
        has_feedback: false,
        tiles: (24, 17),
        narrow: 3,
        reduction: None,
    };
    assert_eq!(Plan::new(no_modulus).unwrap_err(), SettingError::Moduli(0));
}

#[test]
fn illegal_parameters_are_refused_at_elaboration() {
    if tests_are_skipped() {
        return;
    }
    let core = find("ntt_streaming").unwrap();
    let design = core
        .configure(&values(&[("LOG_N", 4), ("LOG_LANES", 2), ("IN_ORDER", HALVES)]).unwrap())
        .unwrap()
        .design()
        .unwrap();
    let q = |hex: &str| Value::Bits {
        width: 64,
        hex: hex.to_owned(),
    };
    let sizes =
        "ntt_streaming: LOG_N is 2 to 20, LOG_LANES 1 to 10, SHIFTS 1 to LOG_N - LOG_LANES + 1";
    let moduli =
        "ntt_streaming: moduli are odd and at least 5, and for SOLINAS one Q = 2^i - 2^j + 1";
    for (name, value, message) in [
        ("LOG_LANES", Value::Int(5), sizes),
        ("LOG_N", Value::Int(21), sizes),
        ("Q", q("10001"), moduli),
        ("Q", q("3b800001"), moduli),
        ("Q", q("fff0002"), moduli),
        ("SHIFTS", Value::Int(4), sizes),
        ("FRONT", Value::Int(3), "FRONT and BACK are 0 to 2"),
    ] {
        let said = refusal(&replaced(&design, name, value));
        assert!(said.contains(message), "{name}: {said}");
    }
}

#[test]
fn the_shorter_form_stands_between_stages_and_at_the_ends() {
    for given in [
        &[("LOG_N", 12), ("LOG_LANES", 5), ("IN_ORDER", HALVES)] as Given,
        &[
            ("LOG_N", 12),
            ("LOG_LANES", 5),
            ("IN_ORDER", NATURAL),
            ("OUT_ORDER", NATURAL),
        ],
        &[("LOG_N", 7), ("LOG_LANES", 5), ("IN_ORDER", NATURAL)],
        &[
            ("LOG_N", 9),
            ("LOG_LANES", 3),
            ("IN_ORDER", REVERSED),
            ("OUT_ORDER", NATURAL),
            ("INVERSE", 1),
        ],
    ] {
        let plan = plan(&values(given).unwrap()).unwrap();
        let parts = plan.parts();
        assert_eq!(
            parts.iter().map(|part| part.latency).sum::<u64>(),
            plan.pipeline()
        );
        let commutators = parts
            .iter()
            .filter(|part| part.what.starts_with("a delay commutator"));
        assert_eq!(
            commutators.clone().count() as u32,
            plan.setting().log_n - plan.setting().log_lanes
        );
        for part in commutators {
            let (_, other) = part.other.unwrap();
            assert!(part.latency < other, "{part:?}");
        }
    }
    let front = |log_n| {
        let given = [("LOG_N", log_n), ("LOG_LANES", 5), ("IN_ORDER", NATURAL)];
        plan(&values(&given).unwrap()).unwrap().front().clone()
    };
    // Of 4 beats: 1 + 2 cycles against 2 + 2.
    assert!(matches!(front(5), End::Wires));
    assert!(matches!(front(7), End::Commutators));
    assert!(matches!(front(10), End::Halves(_)));
    // Whichever stands at the end, the other form would take longer.
    for log_n in 6..=12 {
        let given = [("LOG_N", log_n), ("LOG_LANES", 5), ("IN_ORDER", NATURAL)];
        let plan = plan(&values(&given).unwrap()).unwrap();
        let first = &plan.parts()[0];
        assert!(first.latency <= first.other.unwrap().1, "{first:?}");
    }
}

#[test]
fn what_is_expected_is_the_definition() {
    let mut random = Random::new(2);
    for (q, log_n) in [
        (97, 4),
        (12_289, 5),
        (goldilocks::P, 4),
        (18_446_744_073_709_550_593, 4),
        (257, 8),
        (1_125_899_906_826_241, 3),
    ] {
        let n = 1usize << log_n;
        for is_cyclic in [false, true] {
            if !is_cyclic && (q - 1) % (2 * n as u64) != 0 {
                continue;
            }
            let setting = |is_inverse| Setting {
                log_n,
                log_n_min: log_n,
                log_lanes: 1,
                moduli: vec![q],
                is_inverse,
                is_cyclic,
                input: Order::Natural,
                output: Order::Natural,
                has_feedback: false,
                tiles: (24, 17),
                narrow: 3,
                reduction: None,
            };
            let words: Vec<u64> = (0..n).map(|_| random.below(q)).collect();
            let values = Plan::new(setting(false)).unwrap().expected(0, &words);
            let psi = |n: usize| match q {
                goldilocks::P => goldilocks::psi(n).unwrap(),
                q => prime::psi(n, q).unwrap(),
            };
            let omega = psi(n / 2);
            for (k, value) in values.iter().enumerate() {
                let point = match is_cyclic {
                    true => prime::pow(omega, k as u64, q),
                    false => prime::mul(prime::pow(omega, k as u64, q), psi(n), q),
                };
                let sum = words.iter().rev().fold(0u64, |sum, word| {
                    ((u128::from(prime::mul(sum, point, q)) + u128::from(*word)) % u128::from(q))
                        as u64
                });
                assert_eq!(*value, sum, "q = {q}, N = {n}, k = {k}, cyclic {is_cyclic}");
            }
            let back = Plan::new(setting(true)).unwrap().expected(0, &values);
            assert_eq!(back, words);
        }
    }
}

#[test]
fn orders_are_where_they_say() {
    let words: Vec<u64> = (0..16).collect();
    let beats = |order: Order| -> Vec<Vec<u64>> {
        let words = order.arrange(2, &words);
        words.chunks(4).map(<[u64]>::to_vec).collect()
    };
    assert_eq!(beats(Order::Natural)[1], [4, 5, 6, 7]);
    assert_eq!(beats(Order::BitReversed)[1], [2, 10, 6, 14]);
    assert_eq!(beats(Order::Halves)[1], [2, 3, 10, 11]);
}
