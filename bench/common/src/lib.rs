//! What the benchmarks share: the [`machine`] that they ran on, [`pages`] made from templates and kept figures, the [`row`]s of their tables, and the [`speed`] of processor and
//! memory.

pub mod machine;
pub mod pages;
pub mod row;
pub mod speed;

/// What a measurement can fail with.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
