//! Graphs of integer operations become programs of the secure computing engine.
//!
//! A [`Graph`] says what to compute: statements on integers with exact intervals, from text ([`Graph::parse`]) or from the builder ([`Graph::add`] and
//! its friends). [`Graph::evaluate`] says what it means, and is the oracle of everything else in this crate.
//!
//! What it is not: it encrypts nothing, runs nothing and knows no drive. `toroid-client` does that with what comes out of here.
//!
//! Open `graph.rs` first. The text form is described for its users in `docs/reference/graph.md`.
//!
//! ```
//! use std::collections::BTreeMap;
//! use toroid_compiler::Graph;
//!
//! let graph = Graph::parse(
//!     "
//!     input salary: 0..65535
//!     tenth = salary // 10
//!     net = salary - tenth
//!     output net = net
//!     ",
//! )?;
//! assert_eq!(graph.evaluate(&BTreeMap::from([("salary", 105)]))?["net"], 95);
//! # Ok::<(), toroid_compiler::Error>(())
//! ```

mod compiled;
mod error;
mod evaluate;
mod graph;
mod interval;
mod lower;
mod simplify;
mod text;

pub use compiled::{
    Alternative, Compiled, CompiledInput, CompiledOutput, Cost, Digit, Layout, MAX_COLUMNS,
    Options, Part,
};
pub use error::{Error, Location};
pub use graph::{
    BitOperation, Comparison, Graph, MAX_STATEMENTS, MAX_TABLE_ENTRIES, Node, Op, Output, Width,
};
pub use interval::{Interval, MAX_MAGNITUDE};
pub use lower::{compile, compile_until};
pub use simplify::Pass;
pub use text::{MAX_SOURCE_BYTES, Statements};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
