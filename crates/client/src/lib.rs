//! The middleware a user programs against: blobs, keys, programs, samples and sessions, over any [`Controller`](toroid_nvme::Controller).
//!
//! [`Drive::open`](drive::Drive::open) opens a drive wherever it is: an image in this process, a drive behind NVMe/TCP, or a block
//! device of a Linux that is connected to one. Its methods block. Under it, [`session`] is async and works on any controller; [`blob`] is the
//! store in which it keeps its objects. What a plain `dd` writes and reads is in [`raw`].
//!
//! Feature `image` (on by default) brings drives in this process. Without it this crate links neither drive nor engine.
//!
//! Open `drive.rs` first, then `session.rs`.

pub mod blob;
#[cfg(target_os = "linux")]
pub mod block_device;
pub mod drive;
mod host_identity;
pub mod location;
pub mod prelude;
pub mod raw;
pub mod session;
pub mod tables;

pub use host_identity::HostIdentityError;
