//! The GPU back end.
//!
//! Kernels are freestanding CUDA C++ in `kernels/`; the crate carries the PTX that `kernels/compile` makes of them, so that neither
//! building nor running needs a toolkit.

/// PTX for devices of compute capability 8.0 and more: blocks of a group wait by flags.
pub const PTX_80: &str = include_str!("../kernels/ptx/toroid.sm_80.ptx");
/// PTX for devices of compute capability 9.0 and more: blocks of a group are a cluster.
pub const PTX_90: &str = include_str!("../kernels/ptx/toroid.sm_90.ptx");
