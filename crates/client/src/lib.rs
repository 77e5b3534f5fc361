//! The middleware a user programs against: blobs, keys, programs, samples and sessions.

pub mod blob;
pub mod session;
pub mod tables;
