//! The middleware a user programs against: blobs, keys, programs, samples and sessions, over any [`Controller`](toroid_nvme::Controller).
//!
//! A host is a drive in this process (`toroid_drive::Drive`), one behind NVMe/TCP (`toroid_nvme::fabrics::RemoteController`), or a block device of a Linux
//! that is connected to one ([`block_device`]). What a plain `dd` writes and reads is in [`raw`].
//!
//! Open `session.rs` first.

pub mod blob;
#[cfg(target_os = "linux")]
pub mod block_device;
pub mod raw;
pub mod session;
pub mod tables;
