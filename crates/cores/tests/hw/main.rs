//! All of `hw/` and every core of the list: lint, format, proofs, and folders that test themselves.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod formal;
mod fusesoc;
mod lint;
mod packages;
mod routed;
