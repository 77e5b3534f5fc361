//! The parts of the page.

use clap::ValueEnum;
use serde::Serialize;

/// The part of the page that a row stands in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Bytes a number
    Sizes,
    /// A column on a drive
    Storage,
    /// The program filter.tasm
    Filter,
    /// The other programs
    Examples,
}

/// A row of the page.
pub type Row = toroid_bench_common::row::Row<Part>;
