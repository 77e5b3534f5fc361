//! The core `ntt_streaming` against the library's transforms.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use toroid_cosim::core::ntt_streaming::plan;
use toroid_cosim::core::{self, Values, find};
use toroid_cosim::toolchain::tests_are_skipped;

fn verify(given: &[(&'static str, u64)]) {
    if tests_are_skipped() {
        return;
    }
    let core = find("ntt_streaming").unwrap();
    let values = Values::new(core, given.iter().copied()).unwrap();
    let start = std::time::Instant::now();
    match core::test(core, &values, 1, 7, None, &()) {
        Ok(outcome) => println!(
            "{given:?} ok {} {} {:?}",
            outcome.measured,
            outcome.expected,
            start.elapsed()
        ),
        Err(error) => println!(
            "{given:?} FAIL {}",
            error.to_string().chars().take(200).collect::<String>()
        ),
    }
}

#[test]
fn small() {
    let p = 18446744069414584321u64;
    verify(&[("LOG_N", 5), ("LOG_LANES", 2), ("Q", p), ("IN_ORDER", 2)]);
    verify(&[
        ("LOG_N", 5),
        ("LOG_LANES", 2),
        ("Q", p),
        ("IN_ORDER", 1),
        ("OUT_ORDER", 2),
        ("INVERSE", 1),
    ]);
    for q in [
        65537u64,
        12289,
        65537 * 2 - 1,
        4293918721,
        1152921504606846976 - 0,
        786433,
        132120577,
        1125899906826241,
        18446744073709550593,
    ] {
        if !toroid_ring::prime::is_prime(q) {
            println!("{q} no prime");
            continue;
        }
        verify(&[
            ("LOG_N", 4),
            ("LOG_LANES", 2),
            ("Q", q),
            ("IN_ORDER", 2),
            ("CYCLIC", 0),
        ]);
        verify(&[
            ("LOG_N", 4),
            ("LOG_LANES", 1),
            ("Q", q),
            ("IN_ORDER", 2),
            ("CYCLIC", 1),
            ("INVERSE", 1),
        ]);
    }
    verify(&[
        ("LOG_N", 7),
        ("LOG_LANES", 2),
        ("LOG_N_MIN", 4),
        ("IN_ORDER", 2),
    ]);
    verify(&[
        ("LOG_N", 7),
        ("LOG_LANES", 2),
        ("LOG_N_MIN", 2),
        ("IN_ORDER", 1),
        ("OUT_ORDER", 2),
        ("INVERSE", 1),
    ]);
    verify(&[
        ("LOG_N", 6),
        ("LOG_LANES", 2),
        ("LOG_N_MIN", 5),
        ("IN_ORDER", 2),
        ("Q_2", 132120577),
        ("Q_3", 786433),
    ]);
    verify(&[
        ("LOG_N", 6),
        ("LOG_LANES", 1),
        ("LOG_N_MIN", 4),
        ("IN_ORDER", 1),
        ("OUT_ORDER", 2),
        ("INVERSE", 1),
        ("Q_2", 132120577),
    ]);
    verify(&[
        ("LOG_N", 9),
        ("LOG_LANES", 1),
        ("IN_ORDER", 0),
        ("OUT_ORDER", 0),
    ]);
}
#[test]
fn rows() {
    for (n, l) in [(9u64, 5u64), (9, 6), (9, 7), (12, 5)] {
        verify(&[("LOG_N", n), ("LOG_LANES", l), ("IN_ORDER", 2)]);
    }
}
