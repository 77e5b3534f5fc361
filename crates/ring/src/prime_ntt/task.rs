//! What a plan asks of the vector kernels, as values that run over any [`Field`].

use super::double::{self, Elements, MulAdd, Sums};
use super::kernel::{self, Field, Keep, Vector};
use super::tables::{Modulus, Tables};
use super::word::Word;

/// Runs on the words of a field.
pub trait Task<W: Word> {
    /// # Safety
    /// The processor runs `F`; pointers and slices are as the kernel of the task asks.
    unsafe fn run<F: Field>(self)
    where
        F::Vector: Vector<Word = W>;
}

/// Runs on fields of primes below 2^50 alone.
pub trait DoublesTask {
    /// # Safety
    /// As for [`Task::run`].
    unsafe fn run<F: Elements>(self);
}

/// [`kernel::forward`] to canonical values.
pub(super) struct Forward<'a, W> {
    pub(super) modulus: &'a Modulus<W>,
    pub(super) tables: &'a Tables<W>,
    pub(super) a: &'a mut [W],
}

impl<W: Word> Task<W> for Forward<'_, W> {
    #[inline(always)]
    unsafe fn run<F: Field>(self)
    where
        F::Vector: Vector<Word = W>,
    {
        // SAFETY: the caller's promise.
        unsafe { kernel::forward::<F>(self.modulus, self.tables, self.a.as_mut_ptr(), Keep) }
    }
}

/// [`kernel::inverse`] from canonical values.
pub(super) struct Inverse<'a, W> {
    pub(super) modulus: &'a Modulus<W>,
    pub(super) tables: &'a Tables<W>,
    pub(super) a: &'a mut [W],
}

impl<W: Word> Task<W> for Inverse<'_, W> {
    #[inline(always)]
    unsafe fn run<F: Field>(self)
    where
        F::Vector: Vector<Word = W>,
    {
        // SAFETY: the caller's promise.
        unsafe { kernel::inverse::<F>(self.modulus, self.tables, self.a.as_mut_ptr(), Keep) }
    }
}

/// [`kernel::mul_assign`]
pub(super) struct MulAssign<'a, W> {
    pub(super) modulus: &'a Modulus<W>,
    pub(super) a: &'a mut [W],
    pub(super) b: &'a [W],
}

impl<W: Word> Task<W> for MulAssign<'_, W> {
    #[inline(always)]
    unsafe fn run<F: Field>(self)
    where
        F::Vector: Vector<Word = W>,
    {
        // SAFETY: the caller's promise.
        unsafe { kernel::mul_assign::<F>(self.modulus, self.a, self.b) }
    }
}

/// [`kernel::mul_add_assign`]
pub(super) struct MulAddAssign<'a, W> {
    pub(super) modulus: &'a Modulus<W>,
    pub(super) acc: &'a mut [W],
    pub(super) a: &'a [W],
    pub(super) b: &'a [W],
}

impl<W: Word> Task<W> for MulAddAssign<'_, W> {
    #[inline(always)]
    unsafe fn run<F: Field>(self)
    where
        F::Vector: Vector<Word = W>,
    {
        // SAFETY: the caller's promise.
        unsafe { kernel::mul_add_assign::<F>(self.modulus, self.acc, self.a, self.b) }
    }
}

/// [`kernel::scale_assign`]
pub(super) struct ScaleAssign<'a, W> {
    pub(super) modulus: &'a Modulus<W>,
    pub(super) a: &'a mut [W],
    pub(super) w: [W; 2],
}

impl<W: Word> Task<W> for ScaleAssign<'_, W> {
    #[inline(always)]
    unsafe fn run<F: Field>(self)
    where
        F::Vector: Vector<Word = W>,
    {
        // SAFETY: the caller's promise.
        unsafe { kernel::scale_assign::<F>(self.modulus, self.a, self.w) }
    }
}

/// [`kernel::forward`] with the products of [`MulAdd`].
pub(super) struct ForwardMulAdd<'a, const ADD: bool> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) tables: &'a Tables<u64>,
    pub(super) a: &'a mut [u64],
    pub(super) finish: MulAdd<ADD>,
}

impl<const ADD: bool> DoublesTask for ForwardMulAdd<'_, ADD> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        let a = self.a.as_mut_ptr();
        // SAFETY: the caller's promise.
        unsafe { kernel::forward::<F>(self.modulus, self.tables, a, self.finish) }
    }
}

/// [`kernel::inverse`] from [`Sums`].
pub(super) struct InverseSum<'a> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) tables: &'a Tables<u64>,
    pub(super) a: &'a mut [u64],
}

impl DoublesTask for InverseSum<'_> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        let a = self.a.as_mut_ptr();
        // SAFETY: the caller's promise.
        unsafe { kernel::inverse::<F>(self.modulus, self.tables, a, Sums) }
    }
}

/// [`double::prepare_key`]
pub(super) struct PrepareKey<'a> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) key: &'a mut [u64],
}

impl DoublesTask for PrepareKey<'_> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        // SAFETY: the caller's promise.
        unsafe { double::prepare_key::<F::Vector>(self.modulus, self.key) }
    }
}

/// [`double::add_sum`]
pub(super) struct AddSum<'a> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) sum: &'a mut [u64],
    pub(super) other: &'a [u64],
}

impl DoublesTask for AddSum<'_> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        // SAFETY: the caller's promise.
        unsafe { double::add_sum::<F::Vector>(self.modulus, self.sum, self.other) }
    }
}

/// [`double::combine`]
pub(super) struct Combine<'a> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) out: &'a mut [u64],
    pub(super) rows: &'a [&'a [u64]],
    pub(super) weights: &'a [[u64; 2]],
}

impl DoublesTask for Combine<'_> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        // SAFETY: the caller's promise.
        unsafe { double::combine::<F>(self.modulus, self.out, self.rows, self.weights) }
    }
}

/// [`double::dot`]
pub(super) struct Dot<'a> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) out: &'a mut [u64],
    pub(super) terms: &'a [(&'a [u64], &'a [u64])],
    pub(super) scaled: Option<(&'a [u64], u64)>,
}

impl DoublesTask for Dot<'_> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        // SAFETY: the caller's promise.
        unsafe { double::dot::<F>(self.modulus, self.out, self.terms, self.scaled) }
    }
}

/// [`double::weigh`]
pub(super) struct Weigh<'a, const R: usize> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) out: &'a mut [u64],
    pub(super) values: &'a [u64],
    pub(super) rows: [&'a [u64]; R],
    pub(super) w: [u64; 2],
}

impl<const R: usize> DoublesTask for Weigh<'_, R> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        // SAFETY: the caller's promise.
        unsafe { double::weigh::<F, R>(self.modulus, self.out, self.values, self.rows, self.w) }
    }
}

/// [`double::sub_scale_assign`]
pub(super) struct SubScaleAssign<'a> {
    pub(super) modulus: &'a Modulus<u64>,
    pub(super) a: &'a mut [u64],
    pub(super) b: &'a [u64],
    pub(super) w: [u64; 2],
}

impl DoublesTask for SubScaleAssign<'_> {
    #[inline(always)]
    unsafe fn run<F: Elements>(self) {
        // SAFETY: the caller's promise.
        unsafe { double::sub_scale_assign::<F>(self.modulus, self.a, self.b, self.w) }
    }
}
