//! The computational drive: an NVMe controller that computes on encrypted data where it is stored.
//!
//! A [`Drive`] takes NVMe commands, keeps blocks on an SSD (a file or block device, [`image`]), and bridges commands that carry secure
//! computing metadata ([`toroid_isa::metadata`]) to the engine: samples, keys, test vectors and programs land in virtual registers as they are
//! written and read, and writes and reads of samples can trigger programs (platform paper, sections 3 to 5). The engine pages
//! to the SSD through the drive.
//!
//! What it is not: it knows nothing of blobs, sessions and secret keys (`toroid-client`), nor of transports, and it does no
//! arithmetic.
//!
//! Open `bridge.rs` first, then `drive.rs`. The NVMe standard's own computational storage is in `computational`
//! (feature `computational-programs`, experimental).

pub mod bridge;
#[cfg(feature = "computational-programs")]
pub mod computational;
mod drive;
pub mod image;
mod locks;
pub mod ssd;
mod subsystem;
mod task;

pub use bridge::{HostIdentity, HostStatistics, KeyAccess, SWAP_NSID};
#[cfg(feature = "computational-programs")]
pub use computational::{
    Computational, ComputationalConfig, ComputationalController, ComputationalError,
};
pub use drive::{Drive, DriveConfig, DriveController, DriveError};
pub use subsystem::{SubsystemController, SubsystemError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
