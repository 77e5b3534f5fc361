//! The parts of the page.

use serde::Serialize;

/// The part of the page that a row stands in.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Sizes,
    Storage,
    Filter,
    Examples,
}

/// A row of the page.
pub type Row = toroid_bench_common::row::Row<Part>;
