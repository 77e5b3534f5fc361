//! The kernels as text that drivers compile.

use std::fmt;

use sha2::{Digest, Sha256};

/// For a family of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Compute capability 8.0 and more: blocks of a group wait by flags.
    Sm80,
    /// Compute capability 9.0 and more: blocks of a group are a cluster.
    Sm90,
}

impl Image {
    /// Its PTX.
    #[must_use]
    pub const fn ptx(self) -> &'static str {
        match self {
            Image::Sm80 => include_str!("../kernels/ptx/toroid.sm_80.ptx"),
            Image::Sm90 => include_str!("../kernels/ptx/toroid.sm_90.ptx"),
        }
    }

    /// SHA-256 of its PTX in hexadecimal, which tells measurements of different kernels apart.
    #[must_use]
    pub fn hash(self) -> String {
        let digest = Sha256::digest(self.ptx());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Image::Sm80 => "sm_80",
            Image::Sm90 => "sm_90",
        })
    }
}
