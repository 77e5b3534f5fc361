//! One comparison: what is timed, beside what, and what it must reach.

use toroid_bench_common::Error;

use crate::machine::{Bound, Machine};
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
    /// Bytes, in the place of seconds.
    Gigabytes,
    /// The same.
    Megabytes,
}

/// What a figure of ours must not exceed, whatever the peer takes.
#[derive(Clone, Copy)]
pub enum Limit {
    /// In the row's unit.
    Value(f64),
    /// The best of ours in an earlier row, of the same unit.
    Row(&'static str),
}

/// One comparison.
#[derive(Clone, Copy)]
pub struct Row {
    /// Name on the command line and in files.
    pub name: &'static str,
    /// What is timed.
    pub title: &'static str,
    /// What ours is compared with.
    pub peer: Option<&'static str>,
    pub unit: Unit,
    /// The largest ratio, best of ours over best of the peer, that meets the target.
    pub bar: Option<f64>,
    /// The largest best of ours that meets the target.
    pub limit: Option<Limit>,
    /// Launches of the program: the place of buffers in memory, and what the peer chooses by measuring, differ.
    pub launches: usize,
    /// Runs of each side in a launch.
    pub runs: usize,
    /// Threads that rayon may use.
    pub threads: usize,
    /// The least time that this machine allows.
    pub bound: Option<fn(&Machine, &Measurement) -> Bound>,
    pub measure: fn(&Row, &Settings) -> Result<Measurement, Error>,
}

impl Row {
    /// Runs of each side under these settings.
    pub fn runs(&self, settings: &Settings) -> usize {
        let quick = if settings.quick {
            self.runs.div_ceil(4)
        } else {
            self.runs
        };
        settings.runs.unwrap_or(quick).max(1)
    }
}
