#![cfg_attr(feature = "image", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "image"), doc = "The client of drives on the network.")]

pub mod blob;
#[cfg(target_os = "linux")]
pub mod block_device;
pub mod columns;
pub mod drive;
mod host_identity;
pub mod ledger;
pub mod location;
pub mod prelude;
pub mod raw;
pub mod session;
pub mod tables;
mod unfinished;

pub use host_identity::HostIdentityError;
