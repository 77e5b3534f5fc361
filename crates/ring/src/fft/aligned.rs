//! A slice of numbers that starts on a cache line.

use std::ops::{Deref, DerefMut};

/// A cache line, or one AVX-512 vector.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([f64; 8]);

// SAFETY: eight f64 without padding; every bit pattern is a value.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: as above, `Copy` and `'static`.
unsafe impl bytemuck::Pod for Line {}

/// Numbers in memory that starts on a multiple of 64 bytes, so that no vector load or store crosses a cache line.
#[derive(Clone, Debug)]
pub struct AlignedVec {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedVec {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        AlignedVec {
            lines: vec![Line([0.0; 8]); len.div_ceil(8)],
            len,
        }
    }

    /// A copy of `values`.
    #[must_use]
    pub fn from_slice(values: &[f64]) -> Self {
        let mut copy = Self::zeroed(values.len());
        copy.copy_from_slice(values);
        copy
    }
}

impl Deref for AlignedVec {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl DerefMut for AlignedVec {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}
