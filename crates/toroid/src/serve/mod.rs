//! Drives on the network: what `toroid drive serve` is made of.
//!
//! `config.rs` says what is to be served, `drives.rs` opens it, `counters.rs` measures every command on its way to a drive, `figures.rs` gathers
//! what there is to tell, which `metrics.rs` and `http.rs` do; `memory.rs` returns memory after a load.

pub mod config;
pub mod counters;
pub mod drives;
pub mod figures;
pub mod http;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod secret;
