#![doc = include_str!("../README.md")]

pub mod memory;
pub mod model;
pub mod process;
pub mod random;
pub mod simulation;
pub mod sources;
pub mod stream;
pub mod toolchain;
