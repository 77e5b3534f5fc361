//! The core `ntt_rader` against the library's transforms. `toroid-hw-bench rader` does the same for large lengths and many moduli.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use toroid_cosim::core::{self, CoreError, Values, find};
use toroid_cosim::toolchain::tests_are_skipped;

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
    let outcome = core::test(core, &values, 1, 7, None, &())
        .unwrap_or_else(|error| panic!("{length} modulo {modulus}: {error}"));
    assert_eq!(outcome.measured, outcome.expected, "{length}");
}

#[test]
fn small_lengths() {
    verify(15, 7681);
    verify(51, 26113);
    verify(85, 87041);
    verify(255, 783_361);
}
