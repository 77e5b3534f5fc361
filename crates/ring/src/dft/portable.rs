//! The vector of plain Rust: one word. A vector of several, in an array, takes the compiler minutes and gains little.

use super::arithmetic::Arithmetic;
use super::kernel::{self, Vector};
use super::prime_factor::PrimeFactor;

#[derive(Clone, Copy)]
struct Word(u32);

impl Vector for Word {
    const LANES: usize = 1;
    type Half = Self;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's promise.
        Word(unsafe { *from })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u32, _: usize) -> Self {
        // SAFETY: the caller's promise.
        Word(unsafe { *from })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { *to = self.0 }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut u32, _: usize) {
        // SAFETY: the caller's promise.
        unsafe { *to = self.0 }
    }

    #[inline(always)]
    fn splat(value: u32) -> Self {
        Word(value)
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Word(self.0.wrapping_add(other.0))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Word(self.0.wrapping_sub(other.0))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Word(self.0.min(other.0))
    }

    #[inline(always)]
    fn mul_low(self, other: Self) -> Self {
        Word(self.0.wrapping_mul(other.0))
    }

    #[inline(always)]
    fn mul_high(self, splat: Self) -> Self {
        Word(((u64::from(self.0) * u64::from(splat.0)) >> 32) as u32)
    }

    #[inline(always)]
    fn add_where_less(self, a: Self, b: Self, addend: Self) -> Self {
        // All ones where a < b. Which words are less is unpredictable: a comparison would become a slow branch.
        let mask = ((i64::from(a.0) - i64::from(b.0)) >> 32) as u32;
        Word(self.0.wrapping_add(addend.0 & mask))
    }

    #[inline(always)]
    fn pick<const BIT: u32>(self, _: Self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn transpose(from: *const u32, rows: &[u16], to: *mut u32, _: usize) {
        // SAFETY: the caller's promise.
        unsafe { *to = *from.add(usize::from(rows[0])) }
    }
}

/// # Safety
/// See [`kernel::transform`].
pub(super) unsafe fn transform<A: Arithmetic>(
    plan: &PrimeFactor,
    inverse: bool,
    data: *mut u32,
    scratch: *mut u32,
) {
    // SAFETY: the caller's promise.
    unsafe { kernel::transform::<Word, A>(plan, inverse, data, scratch) }
}
