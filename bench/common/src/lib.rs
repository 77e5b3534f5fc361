//! What the benchmarks share: the [`machine`] that they ran on, and [`pages`] made from templates and kept figures.

pub mod machine;
pub mod pages;

/// What a measurement can fail with.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
