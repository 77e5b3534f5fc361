#![doc = include_str!("../README.md")]

mod abi;
mod backend;
mod device;
mod driver;
mod error;
mod key;
mod pass;
mod shape;
mod twiddles;

pub use backend::{DriverInfo, GpuBackend, GpuOptions};
pub use driver::{DRIVER_VARIABLE, DeviceInfo};
pub use error::GpuError;
pub use shape::Grouping;

/// PTX for devices of compute capability 8.0 and more: blocks of a group wait by flags.
pub const PTX_80: &str = include_str!("../kernels/ptx/toroid.sm_80.ptx");
/// PTX for devices of compute capability 9.0 and more: blocks of a group are a cluster.
pub const PTX_90: &str = include_str!("../kernels/ptx/toroid.sm_90.ptx");
