//! What is measured.

mod bootstrap;
mod keys;
mod transform;

use crate::Error;
use crate::measure::Measurement;

/// How a row is to be measured.
pub struct Settings {
    /// Runs of every launch instead of the row's own number.
    pub runs: Option<usize>,
    /// Fewer runs, and a part of the longest key generation.
    pub quick: bool,
}

/// Unit of a row's figures.
#[derive(Clone, Copy)]
pub enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
}

/// One comparison.
pub struct Row {
    /// Name on the command line and in files.
    pub name: &'static str,
    /// What is timed.
    pub title: &'static str,
    /// What ours is compared with.
    pub peer: &'static str,
    pub unit: Unit,
    /// The largest ratio, best of ours over best of the peer, that meets the target.
    pub bar: Option<f64>,
    /// Launches of the program: the place of buffers in memory, and what the peer chooses by measuring, differ.
    pub launches: usize,
    /// Runs of each side in a launch.
    pub runs: usize,
    pub measure: fn(&Row, &Settings) -> Result<Measurement, Error>,
}

impl Row {
    /// Runs of each side under these settings.
    fn runs(&self, settings: &Settings) -> usize {
        let quick = if settings.quick {
            self.runs.div_ceil(4)
        } else {
            self.runs
        };
        settings.runs.unwrap_or(quick).max(1)
    }
}

/// Every row, in the order of the table.
pub static ALL: &[Row] = &[
    Row {
        name: "pbs-f64",
        title: "PBS at `paper` (blind rotation and extraction, no key switch), f64 FFT",
        peer: "tfhe-rs 1.8.2 core_crypto, u32 torus, same parameters",
        unit: Unit::Milliseconds,
        bar: Some(1.0),
        launches: 1,
        runs: 16,
        measure: bootstrap::paper_f64,
    },
    Row {
        name: "pbs-exact",
        title: "PBS at `paper`, exact integers (NTT)",
        peer: "tfhe-rs 1.8.2 ntt64, q = 2^64-2^32+1, same parameters",
        unit: Unit::Milliseconds,
        bar: Some(0.4),
        launches: 1,
        runs: 10,
        measure: bootstrap::paper_exact,
    },
    Row {
        name: "message4",
        title: "KS + PBS of 2 + 2 bits, failure ≤ 2^-128 (`message4`)",
        peer: "tfhe-rs 1.8.2 shortint PARAM_MESSAGE_2_CARRY_2_KS_PBS (TUNIFORM_2M128)",
        unit: Unit::Milliseconds,
        bar: Some(0.7),
        launches: 4,
        runs: 25,
        measure: bootstrap::message4,
    },
    Row {
        name: "nand",
        title: "gate NAND (`gate`, failure ≤ 2^-128)",
        peer: "tfhe-rs 1.8.2 boolean DEFAULT_PARAMETERS",
        unit: Unit::Milliseconds,
        bar: Some(0.7),
        launches: 4,
        runs: 25,
        measure: bootstrap::nand,
    },
    Row {
        name: "ntt-16384",
        title: "negacyclic NTT, N = 16384, Goldilocks prime",
        peer: "tfhe-ntt 0.7.1 prime64",
        unit: Unit::Microseconds,
        bar: Some(0.5),
        launches: 4,
        runs: 100,
        measure: transform::ntt::<16384>,
    },
    Row {
        name: "ntt-2048",
        title: "negacyclic NTT, N = 2048, Goldilocks prime",
        peer: "tfhe-ntt 0.7.1 prime64",
        unit: Unit::Microseconds,
        bar: None,
        launches: 4,
        runs: 100,
        measure: transform::ntt::<2048>,
    },
    Row {
        name: "ntt-1024",
        title: "negacyclic NTT, N = 1024, Goldilocks prime",
        peer: "tfhe-ntt 0.7.1 prime64",
        unit: Unit::Microseconds,
        bar: None,
        launches: 4,
        runs: 100,
        measure: transform::ntt::<1024>,
    },
    Row {
        name: "intt-16384",
        title: "inverse negacyclic NTT, N = 16384, Goldilocks prime",
        peer: "tfhe-ntt 0.7.1 prime64",
        unit: Unit::Microseconds,
        bar: None,
        launches: 4,
        runs: 100,
        measure: transform::intt::<16384>,
    },
    Row {
        name: "fft-16384",
        title: "negacyclic f64 FFT, N = 16384 (8192 complex points)",
        peer: "tfhe-fft 0.10.1 unordered",
        unit: Unit::Microseconds,
        bar: Some(0.95),
        launches: 4,
        runs: 100,
        measure: transform::fft::<16384>,
    },
    Row {
        name: "fft-2048",
        title: "negacyclic f64 FFT, N = 2048",
        peer: "tfhe-fft 0.10.1 unordered",
        unit: Unit::Microseconds,
        bar: None,
        launches: 4,
        runs: 100,
        measure: transform::fft::<2048>,
    },
    Row {
        name: "fft-1024",
        title: "negacyclic f64 FFT, N = 1024",
        peer: "tfhe-fft 0.10.1 unordered",
        unit: Unit::Microseconds,
        bar: None,
        launches: 4,
        runs: 100,
        measure: transform::fft::<1024>,
    },
    Row {
        name: "ifft-16384",
        title: "inverse negacyclic f64 FFT, N = 16384",
        peer: "tfhe-fft 0.10.1 unordered",
        unit: Unit::Microseconds,
        bar: None,
        launches: 4,
        runs: 100,
        measure: transform::ifft::<16384>,
    },
    Row {
        name: "keygen",
        title: "bootstrapping key at `paper`, generated and transformed (f64)",
        peer: "tfhe-rs 1.8.2 core_crypto, one thread",
        unit: Unit::Seconds,
        // 6 s, where the peer takes 110 s on a quiet Zen 4 core.
        bar: Some(0.055),
        launches: 1,
        runs: 1,
        measure: keys::paper,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

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
