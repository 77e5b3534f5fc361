//! The core `ntt_sdf` against the library's transforms. `toroid-hw-bench sdf` does the same at the settings of the tables, and
//! at large ones.

use crate::find;
use crate::ntt_sdf::{Architecture, Plan, Setting};
use crate::testing::{
    Given, refusal, replaced, reset_leaves_nothing_behind, unconfigured, values, verify,
    waiting_output_stops_input,
};
use toroid_ring::goldilocks;
use toroid_sim::model::Value;
use toroid_sim::toolchain::tests_are_skipped;

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
}

#[test]
fn a_reset_leaves_nothing_behind() {
    // The longest of its delays are memories.
    reset_leaves_nothing_behind("ntt_sdf", &[("ARCHITECTURE", 0), ("LOG_N", 8)]);
    reset_leaves_nothing_behind(
        "ntt_sdf",
        &[
            ("ARCHITECTURE", 1),
            ("LOG_N", 5),
            ("INVERSE", 1),
            ("REDUCTION", BARRETT),
        ],
    );
}

/// What a core with these parameters refuses.
pub(crate) fn refuses_what_there_is_no_transform_for(name: &str) {
    // No prime below 7681 is 1 modulo 1024; the next above is named.
    assert_eq!(
        unconfigured(name, &[("LOG_N", 9)]),
        format!(
            "{name}: Q must be a prime of 4 to 64 bits that is 1 modulo 1024, as 12289, not 7681"
        )
    );
    assert_eq!(
        unconfigured(name, &[("LOG_N", 4), ("Q", 257), ("REDUCTION", SOLINAS)]),
        format!(
            "{name}: REDUCTION must be 0, 2 or 3 for a Q that is not 2^i - 2^j + 1 with j < i - 1, not 1"
        )
    );
    assert_eq!(
        unconfigured(name, &[("ARCHITECTURE", 3)]),
        format!("{name}: ARCHITECTURE must be from 0 to 2, not 3")
    );
    for log_n in [1, 16] {
        assert_eq!(
            unconfigured(name, &[("LOG_N", log_n)]),
            format!("{name}: LOG_N must be from 2 to 15, not {log_n}")
        );
    }
}

#[test]
fn what_there_is_no_transform_for_is_refused() {
    refuses_what_there_is_no_transform_for("ntt_sdf");
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

/// What modules with these parameters refuse, and a parameter of one alone.
pub(crate) fn refuses_at_elaboration(name: &str, more: &[(&str, Value, &str)]) {
    if tests_are_skipped() {
        return;
    }
    let q = |hex: &str| Value::Bits {
        width: 64,
        hex: hex.to_owned(),
    };
    let illegal = "ARCHITECTURE is 0 to 2, LOG_N 2 to 20; SOLINAS needs Q = 2^i - 2^j + 1";
    let given = values(name, &[("ARCHITECTURE", 0), ("LOG_N", 4)]).unwrap();
    let design = find(name)
        .unwrap()
        .configure(&given)
        .unwrap()
        .design()
        .unwrap();
    let common = [
        ("ARCHITECTURE", Value::Int(3), illegal),
        ("BARRETT", Value::Int(1), illegal),
        ("LOG_N", Value::Int(1), illegal),
        ("Q", q("1e61"), illegal),
    ];
    for (parameter, value, message) in common.iter().chain(more) {
        let said = refusal(&replaced(&design, parameter, value.clone()));
        let message = format!("{name}: {message}");
        assert!(said.contains(&message), "{parameter}: {said}");
    }
}

#[test]
fn illegal_parameters_are_refused_at_elaboration() {
    let ends = "commutators at an end need two lanes";
    refuses_at_elaboration("ntt_sdf", &[("FRONT", Value::Int(1), ends)]);
}

#[test]
fn an_output_that_waits_stops_the_input() {
    // As many as are on their way where nothing waits, and one.
    waiting_output_stops_input(
        "ntt_sdf",
        &[("ARCHITECTURE", 0), ("LOG_N", 3)],
        |latency, interval| latency - interval + 1,
    );
}
