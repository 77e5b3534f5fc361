//! What is measured.

mod bootstrap;
mod keys;
mod program;
mod transform;
mod wopbs;

use toroid_tfhe::params::{GATE, MESSAGE4, MESSAGE14, MESSAGE16, PAPER};

use crate::machine::{self, Bound, Load};
use crate::row::{Limit, Row, Unit};

const BATCH: Load = Load {
    batch: 8,
    threads: 1,
};
const TWO_THREADS: Load = Load {
    batch: 1,
    threads: 2,
};

/// What rows of long operations share.
const LONG: Row = Row {
    name: "",
    title: "",
    peer: None,
    unit: Unit::Milliseconds,
    bar: None,
    limit: None,
    launches: 1,
    runs: 16,
    threads: 1,
    bound: None,
    measure: keys::sizes,
};

/// What rows of operations of some milliseconds share.
const GATES: Row = Row {
    launches: 4,
    runs: 25,
    ..LONG
};

/// What rows of wide functions share.
const WIDE: Row = Row {
    launches: 3,
    runs: 6,
    ..LONG
};

/// What rows of the size of a key share.
const SIZES: Row = Row { runs: 1, ..LONG };

/// What rows of transforms share.
const TRANSFORM: Row = Row {
    unit: Unit::Microseconds,
    launches: 4,
    runs: 100,
    ..LONG
};

/// Every row, in the order of the table.
pub static ALL: &[Row] = &[
    Row {
        name: "pbs-f64",
        title: "PBS at `paper` (blind rotation and extraction, no key switch), f64 FFT",
        peer: Some("tfhe-rs 1.8.2 core_crypto, u32 torus, same parameters"),
        bar: Some(0.55),
        limit: Some(Limit::Value(150.0)),
        bound: Some(|machine, measured| {
            machine::fft_rotation(machine, &PAPER, measured.key_bytes, machine::SINGLE)
        }),
        measure: |row, settings| bootstrap::paper_fft(row, settings, machine::SINGLE),
        ..LONG
    },
    Row {
        name: "pbs-f64-2-threads",
        title: "the same on two threads, time on the wall",
        peer: Some("tfhe-rs 1.8.2 core_crypto, one thread"),
        bar: Some(0.33),
        limit: Some(Limit::Value(85.0)),
        bound: Some(|machine, measured| {
            machine::fft_rotation(machine, &PAPER, measured.key_bytes, TWO_THREADS)
        }),
        measure: |row, settings| bootstrap::paper_fft(row, settings, TWO_THREADS),
        ..LONG
    },
    Row {
        name: "pbs-f64-batch-8",
        title: "the same, a batch of 8 on one thread, time per sample",
        peer: Some("tfhe-rs 1.8.2 core_crypto, batch of 8 on one thread"),
        bar: Some(0.5),
        limit: Some(Limit::Value(145.0)),
        runs: 4,
        bound: Some(|machine, measured| {
            machine::fft_rotation(machine, &PAPER, measured.key_bytes, BATCH)
        }),
        measure: |row, settings| bootstrap::paper_fft(row, settings, BATCH),
        ..LONG
    },
    Row {
        name: "pbs-ntt",
        title: "PBS at `paper`, exact integers",
        peer: Some("tfhe-rs 1.8.2 ntt64, q = 2^64-2^32+1, same parameters"),
        bar: Some(0.4),
        limit: Some(Limit::Value(300.0)),
        runs: 10,
        bound: Some(|machine, measured| {
            machine::halves_rotation(machine, &PAPER, measured.key_bytes)
        }),
        measure: bootstrap::paper_ntt,
        ..LONG
    },
    Row {
        name: "message4",
        title: "KS + PBS of 2 + 2 bits, failure ≤ 2^-128 (`message4`)",
        peer: Some("tfhe-rs 1.8.2 shortint PARAM_MESSAGE_2_CARRY_2_KS_PBS (TUNIFORM_2M128)"),
        bar: Some(0.7),
        bound: Some(|machine, measured| machine::bootstrap(machine, &MESSAGE4, measured.key_bytes)),
        measure: bootstrap::message4,
        ..GATES
    },
    Row {
        name: "message4-unrolled",
        title: "the same by an unrolled key",
        peer: Some("ours by an ordinary key"),
        limit: Some(Limit::Value(8.0)),
        bound: Some(|machine, measured| {
            machine::unrolled_bootstrap(machine, &MESSAGE4, measured.key_bytes, machine::SINGLE)
        }),
        measure: |row, settings| bootstrap::message4_unrolled(row, settings, 1),
        ..GATES
    },
    Row {
        name: "message4-unrolled-batch-8",
        title: "the same by an unrolled key, a batch of 8 on one thread, time per sample",
        peer: Some("ours by an ordinary key, the same batch"),
        runs: 6,
        bound: Some(|machine, measured| {
            machine::unrolled_bootstrap(machine, &MESSAGE4, measured.key_bytes, BATCH)
        }),
        measure: |row, settings| bootstrap::message4_unrolled(row, settings, BATCH.batch),
        ..GATES
    },
    Row {
        name: "nand",
        title: "gate NAND (`gate`, failure ≤ 2^-128)",
        peer: Some("tfhe-rs 1.8.2 boolean DEFAULT_PARAMETERS"),
        bar: Some(0.7),
        limit: Some(Limit::Value(4.5)),
        bound: Some(|machine, measured| machine::bootstrap(machine, &GATE, measured.key_bytes)),
        measure: bootstrap::nand,
        ..GATES
    },
    Row {
        name: "wide-16",
        title: "wide function of 16 bits to 16 (random table) at `message16`, failure ≤ 2^-128, f64 FFT",
        peer: Some(
            "tfhe-rs 1.8.2 integer wopbs_without_padding, 8 blocks of 2 bits, LEGACY_WOPBS_ONLY_8_BLOCKS_PARAM_MESSAGE_2_CARRY_0_KS_PBS",
        ),
        limit: Some(Limit::Value(180.0)),
        bound: Some(|machine, _| machine::wopbs_function(machine, &MESSAGE16)),
        measure: |row, settings| wopbs::function(row, settings, &MESSAGE16),
        ..WIDE
    },
    Row {
        name: "wide-16-2-threads",
        title: "the same on two threads, time on the wall",
        limit: Some(Limit::Value(105.0)),
        threads: 2,
        measure: |row, settings| wopbs::on_threads(row, settings, &MESSAGE16),
        ..WIDE
    },
    Row {
        name: "wide-16-second",
        title: "a second function of the same sample: what it takes beside the first",
        measure: |row, settings| wopbs::second(row, settings, &MESSAGE16),
        ..LONG
    },
    Row {
        name: "wide-14",
        title: "wide function of 14 bits to 14 (random table) at `message14`, failure ≤ 2^-128, f64 FFT",
        peer: Some(
            "tfhe-rs 1.8.2 integer wopbs_without_padding, 7 blocks of 2 bits, of the 8 of LEGACY_WOPBS_ONLY_8_BLOCKS_PARAM_MESSAGE_2_CARRY_0_KS_PBS",
        ),
        limit: Some(Limit::Row("wide-16")),
        bound: Some(|machine, _| machine::wopbs_function(machine, &MESSAGE14)),
        measure: |row, settings| wopbs::function(row, settings, &MESSAGE14),
        ..WIDE
    },
    Row {
        name: "ntt-16384",
        title: "negacyclic NTT, N = 16384, Goldilocks prime",
        peer: Some("tfhe-ntt 0.7.1 prime64"),
        bar: Some(0.5),
        bound: Some(|machine, _| machine::goldilocks(machine, 16384)),
        measure: transform::goldilocks::<16384>,
        ..TRANSFORM
    },
    Row {
        name: "ntt-2048",
        title: "negacyclic NTT, N = 2048, Goldilocks prime",
        peer: Some("tfhe-ntt 0.7.1 prime64"),
        bound: Some(|machine, _| machine::goldilocks(machine, 2048)),
        measure: transform::goldilocks::<2048>,
        ..TRANSFORM
    },
    Row {
        name: "intt-16384",
        title: "inverse negacyclic NTT, N = 16384, Goldilocks prime",
        peer: Some("tfhe-ntt 0.7.1 prime64"),
        bound: Some(|machine, _| machine::goldilocks(machine, 16384)),
        measure: transform::inverse_goldilocks::<16384>,
        ..TRANSFORM
    },
    Row {
        name: "ntt50-16384",
        title: "negacyclic NTT, N = 16384, prime of 50 bits",
        peer: Some("tfhe-ntt 0.7.1 prime64, the same prime"),
        bar: Some(0.8),
        bound: Some(|machine, _| machine::prime(machine, 16384, 3.0, 8.0, "vpmadd52")),
        measure: transform::prime50::<16384, 50>,
        ..TRANSFORM
    },
    Row {
        name: "ntt49-16384",
        title: "negacyclic NTT, N = 16384, prime of 49 bits",
        peer: Some("tfhe-ntt 0.7.1 prime64, the same prime"),
        bar: Some(0.8),
        bound: Some(|machine, _| machine::prime(machine, 16384, 3.0, 8.0, "vpmadd52")),
        measure: transform::prime50::<16384, 49>,
        ..TRANSFORM
    },
    Row {
        name: "ntt49-32768",
        title: "negacyclic NTT, N = 32768, prime of 49 bits",
        peer: Some("tfhe-ntt 0.7.1 prime64, the same prime"),
        bar: Some(0.8),
        bound: Some(|machine, _| machine::prime(machine, 32768, 3.0, 8.0, "vpmadd52")),
        measure: transform::prime50::<32768, 49>,
        ..TRANSFORM
    },
    Row {
        name: "ntt49-65536",
        title: "negacyclic NTT, N = 65536, prime of 49 bits",
        peer: Some("tfhe-ntt 0.7.1 prime64, the same prime"),
        bar: Some(0.8),
        bound: Some(|machine, _| machine::prime(machine, 65536, 3.0, 8.0, "vpmadd52")),
        measure: transform::prime50::<65536, 49>,
        ..TRANSFORM
    },
    Row {
        name: "ntt31-16384",
        title: "negacyclic NTT, N = 16384, prime of 30 bits",
        peer: Some("tfhe-ntt 0.7.1 prime32, the same prime"),
        bar: Some(0.8),
        bound: Some(|machine, _| {
            machine::prime(
                machine,
                16384,
                4.0,
                16.0,
                "multiplications of 32 bits (Shoup)",
            )
        }),
        measure: transform::prime31::<16384>,
        ..TRANSFORM
    },
    Row {
        name: "ntt62-16384",
        title: "negacyclic NTT, N = 16384, prime of 62 bits",
        peer: Some("tfhe-ntt 0.7.1 prime64, the same prime"),
        bar: Some(0.8),
        bound: Some(|machine, _| {
            machine::prime(
                machine,
                16384,
                6.0,
                8.0,
                "multiplications (Shoup: four for the high half, two low products)",
            )
        }),
        measure: transform::prime62::<16384>,
        ..TRANSFORM
    },
    Row {
        name: "fft-16384",
        title: "negacyclic f64 FFT, N = 16384 (8192 complex points)",
        peer: Some("tfhe-fft 0.10.1 unordered"),
        bar: Some(0.95),
        bound: Some(|machine, _| machine::fft(machine, 16384)),
        measure: transform::fft::<16384>,
        ..TRANSFORM
    },
    Row {
        name: "fft-2048",
        title: "negacyclic f64 FFT, N = 2048",
        peer: Some("tfhe-fft 0.10.1 unordered"),
        bar: Some(0.95),
        bound: Some(|machine, _| machine::fft(machine, 2048)),
        measure: transform::fft::<2048>,
        ..TRANSFORM
    },
    Row {
        name: "ifft-16384",
        title: "inverse negacyclic f64 FFT, N = 16384",
        peer: Some("tfhe-fft 0.10.1 unordered"),
        bound: Some(|machine, _| machine::fft(machine, 16384)),
        measure: transform::ifft::<16384>,
        ..TRANSFORM
    },
    Row {
        name: "dft-21845",
        title: "DFT of m = 21845 = 5·17·257 points, prime of 31 bits",
        peer: Some("tfhe-ntt 0.7.1 prime32, NTT of N = 16384, prime of 30 bits"),
        bar: Some(4.0),
        limit: Some(Limit::Value(45.0)),
        bound: Some(|machine, _| machine::dft_21845(machine)),
        measure: transform::dft_21845,
        ..TRANSFORM
    },
    Row {
        name: "keygen",
        title: "bootstrapping key at `paper`, generated and transformed (f64), one thread",
        peer: Some("tfhe-rs 1.8.2 core_crypto, one thread"),
        unit: Unit::Seconds,
        runs: 1,
        bound: Some(|machine, _| machine::key_generation(machine, &PAPER, 1)),
        measure: keys::one_thread,
        ..LONG
    },
    Row {
        name: "keygen-2-threads",
        title: "the same on two threads, time on the wall",
        unit: Unit::Seconds,
        limit: Some(Limit::Value(6.0)),
        runs: 3,
        threads: 2,
        bound: Some(|machine, _| machine::key_generation(machine, &PAPER, 2)),
        measure: keys::two_threads,
        ..LONG
    },
    Row {
        name: "keys-seeded",
        title: "both public keys at `paper`, size of the seeded form",
        peer: Some("the expanded form (BKNTT and KSK of the platform paper)"),
        unit: Unit::Gigabytes,
        bar: Some(0.5),
        ..SIZES
    },
    Row {
        name: "keys-wide-16",
        title: "both public keys at `message16`, canonical form",
        unit: Unit::Megabytes,
        limit: Some(Limit::Value(600.0)),
        measure: |_, _| wopbs::sizes(&MESSAGE16),
        ..SIZES
    },
    Row {
        name: "keys-wide-14",
        title: "the same at `message14`",
        unit: Unit::Megabytes,
        limit: Some(Limit::Value(600.0)),
        measure: |_, _| wopbs::sizes(&MESSAGE14),
        ..SIZES
    },
    Row {
        name: "program",
        title: "x·y by two bootstraps at `message7`, from the write of y over NVMe to its completion, all cores, time on the wall",
        peer: Some("one bootstrap of ours, the faster of the program's two"),
        bar: Some(2.1),
        runs: 8,
        threads: 2,
        bound: Some(|_, measured| Bound {
            seconds: 2.0 * crate::measure::best(&measured.peer),
            by: "two bootstraps".to_owned(),
        }),
        measure: program::multiply,
        ..LONG
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Settings;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ALL.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn every_row_runs_at_least_once() {
        for row in ALL {
            assert!(
                row.runs(&Settings {
                    runs: Some(0),
                    quick: false
                }) >= 1
            );
            assert!(
                row.runs(&Settings {
                    runs: None,
                    quick: true
                }) >= 1
            );
        }
    }
}
