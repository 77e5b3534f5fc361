#![doc = include_str!("../README.md")]

pub mod arithmetic;
mod catalog;
pub mod cost;
pub mod engine;
pub mod family;
pub mod ntt_elastic;
pub mod ntt_inplace;
pub mod ntt_rader;
pub mod ntt_sdf;
pub mod ntt_streaming;
pub mod order;
pub mod package;
pub mod permutation;
pub mod polymul_sdf;
pub mod setting;
pub mod sources;
pub mod synthesis;
#[cfg(test)]
mod testing;
pub mod tools;
pub mod transform;
mod units;
pub mod vectors;

pub use catalog::{CORES, Core, CoreError, Cycles, PaperRow, Parameter, Values, find, test};
pub(crate) use catalog::{TILE_A, TILE_B};
