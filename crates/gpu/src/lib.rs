#![doc = include_str!("../README.md")]

mod abi;
mod backend;
mod choice;
mod cost;
mod device;
mod driver;
mod error;
mod image;
mod key;
mod launch;
mod pass;
mod shape;
mod twiddles;
mod wide;

pub use backend::{DriverInfo, GpuBackend, GpuOptions};
pub use choice::{BackendName, Chosen};
pub use cost::Cost;
pub use driver::{DRIVER_VARIABLE, DeviceInfo};
pub use error::GpuError;
pub use image::Image;
pub use shape::Grouping;
