//! The cores `ntt_sdf` and `polymul_sdf` against the library's transforms and products. `toroid-hw-bench sdf` does the same at the
//! settings of the tables, and at large ones.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use toroid_cosim::core::{self, CoreError, Values, find};
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
