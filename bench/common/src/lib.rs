//! What the benchmarks share: the [`machine`] that they ran on, [`pages`] made from templates and kept figures, and the [`row`]s of their tables.

pub mod machine;
pub mod pages;
pub mod row;

/// What a measurement can fail with.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
