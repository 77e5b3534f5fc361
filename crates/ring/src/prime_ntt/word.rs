//! The words that polynomials are made of.

use std::fmt::Debug;

/// An unsigned word of B bits: `u32` or `u64`.
pub trait Word: bytemuck::Pod + Debug + Eq + Ord + Send + Sync {
    /// B.
    const BITS: u32;
    /// The low B bits of `x`.
    fn truncate(x: u128) -> Self;
    /// The value as a number of 64 bits.
    fn widen(self) -> u64;
}

impl Word for u32 {
    const BITS: u32 = 32;

    #[inline(always)]
    fn truncate(x: u128) -> Self {
        x as u32
    }

    #[inline(always)]
    fn widen(self) -> u64 {
        u64::from(self)
    }
}

impl Word for u64 {
    const BITS: u32 = 64;

    #[inline(always)]
    fn truncate(x: u128) -> Self {
        x as u64
    }

    #[inline(always)]
    fn widen(self) -> u64 {
        self
    }
}
