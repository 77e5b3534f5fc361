//! Runs the SystemVerilog cores of `hw/` in Verilator, from Rust, and holds them against the library.
//!
//! A [`Design`](model::Design) becomes a [`Model`](model::Model) at run time (verilated, compiled, loaded, kept in a cache);
//! a [`Simulation`](simulation::Simulation) of it has ports and a clock. [`stream`] and [`memory`] are what stands around
//! a core, [`core`] is the list of cores with their parameters, cycle counts and tests, [`explore`] chooses one for a
//! transform and a device, [`toolchain`] installs the tools.
//! Not here: the cores themselves (`hw/`), and what they compute (`toroid-ring`, `toroid-tfhe`).
//! Open [`simulation`] first, then [`model`].
//!
//! ```no_run
//! use toroid_cosim::model::{Design, Model, Options};
//!
//! let design = Design::of("goldilocks_mul")?;
//! let model = Model::build(&design, &Options::default())?;
//! let mut simulation = model.start()?;
//! let a = simulation.input("a_i", 64)?;
//! simulation.reset(2)?;
//! simulation.set(a, 7);
//! simulation.tick()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod core;
pub mod engine;
pub mod explore;
pub mod memory;
pub mod model;
pub mod ntt_elastic;
pub mod ntt_inplace;
pub mod ntt_rader;
pub mod ntt_sdf;
pub mod ntt_streaming;
pub mod permutation;
pub mod process;
pub mod random;
pub mod simulation;
pub mod sources;
pub mod stream;
pub mod toolchain;
