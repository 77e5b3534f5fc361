#![doc = include_str!("../README.md")]

pub mod arithmetic;
pub mod cost;
pub mod engine;
pub mod error;
pub mod interface;
pub mod ntt_elastic;
pub mod ntt_inplace;
pub mod ntt_rader;
pub mod ntt_sdf;
pub mod ntt_streaming;
pub mod order;
pub mod package;
pub mod permutation;
pub mod polymul_sdf;
pub mod ports;
mod registry;
pub mod setting;
pub mod sources;
pub mod stream_transform;
pub mod synthesis;
pub mod technology;
#[cfg(test)]
mod testing;
pub mod tools;
pub mod transform;
mod units;
pub mod vectors;

pub use error::CoreError;
pub use interface::{
    Configure, Configured, Core, Cycles, Family, PaperRow, Parameter, Timing, Values,
};
pub use ports::{Field, MemoryPorts, Ports, StreamPorts};
pub use registry::{cores, families, find, test};
