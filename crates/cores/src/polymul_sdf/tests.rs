//! The core `polymul_sdf` against the library's products. `toroid-hw-bench sdf` does the same at the settings of the tables, and at
//! large ones.

use crate::find;
use crate::ntt_sdf::tests::{refuses_at_elaboration, refuses_what_there_is_no_transform_for};
use crate::testing::{
    Given, other, reset_leaves_nothing_behind, run, start, streams, values, verify,
    waiting_output_stops_input,
};
use toroid_ring::goldilocks;
use toroid_sim::stream::{Sink, Source};
use toroid_sim::toolchain::tests_are_skipped;

const SOLINAS: u64 = 1;
const MONTGOMERY: u64 = 2;
const BARRETT: u64 = 3;

/// 2^35 - 2^19 + 1
const Q35: u64 = 34_359_214_081;
/// 2^38 - 2^36 + 1
const Q38: u64 = 206_158_430_209;
/// 2^64 - 2^10 + 1
const WIDEST: u64 = 18_446_744_073_709_550_593;

#[test]
fn moduli_of_all_widths() {
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
                &[base, &[("PARALLEL", 0)]].concat(),
                &[base, &[("REDUCTION", BARRETT)]].concat(),
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

#[test]
fn a_reset_leaves_nothing_behind() {
    let serial = [("ARCHITECTURE", 1), ("LOG_N", 4), ("PARALLEL", 0)];
    reset_leaves_nothing_behind("polymul_sdf", &serial);
    reset_leaves_nothing_behind("polymul_sdf", &[("ARCHITECTURE", 2), ("LOG_N", 4)]);
}

#[test]
fn what_there_is_no_product_for_is_refused() {
    refuses_what_there_is_no_transform_for("polymul_sdf");
}

#[test]
fn illegal_parameters_are_refused_at_elaboration() {
    refuses_at_elaboration("polymul_sdf", &[]);
}

#[test]
fn an_output_that_waits_stops_the_input() {
    // As many as are on their way where nothing waits, and one.
    let parallel = |latency, interval| latency - interval + 1;
    waiting_output_stops_input(
        "polymul_sdf",
        &[("ARCHITECTURE", 1), ("LOG_N", 3)],
        parallel,
    );
    for architecture in [0, 2] {
        let given = [
            ("ARCHITECTURE", architecture),
            ("LOG_N", 3),
            ("PARALLEL", 0),
        ];
        waiting_output_stops_input("polymul_sdf", &given, |latency, interval| {
            // These are second factors. The first factor comes before each, and one more after them.
            let room = parallel(latency, interval);
            let beats = interval / 2;
            room + (room / beats + 1) * beats
        });
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
