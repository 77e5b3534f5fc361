//! The vector of plain Rust. Products and sums are rounded one by one, since a fused operation is a slow call where
//! the processor has none.

use super::kernel::{self, Points, Simd8};
use super::key::Format;
use super::rotation::Product;
use super::{Coefficients, Pass, Receiver};

#[derive(Clone, Copy)]
struct Lanes([f64; 8]);

impl Lanes {
    #[inline(always)]
    fn zip(mut self, other: Self, op: impl Fn(f64, f64) -> f64) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = op(*a, b);
        }
        self
    }
}

impl Simd8 for Lanes {
    const NODE_IN_MEMORY: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: the caller's promise.
        Lanes(unsafe { from.cast::<[f64; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f64; 8]>().write(self.0) }
    }

    #[inline(always)]
    fn splat(value: f64) -> Self {
        Lanes([value; 8])
    }

    #[inline(always)]
    unsafe fn load_i32(from: *const i32) -> Self {
        // SAFETY: the caller's promise; the integers may be anywhere in a row of bytes.
        Lanes(unsafe { from.cast::<[i32; 8]>().read_unaligned() }.map(f64::from))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        // SAFETY: the caller's promise.
        Lanes(unsafe { from.cast::<[i8; 8]>().read() }.map(f64::from))
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.mul(factor).add(addend)
    }

    #[inline(always)]
    fn mul_sub(self, factor: Self, subtrahend: Self) -> Self {
        self.mul(factor).sub(subtrahend)
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        addend.sub(self.mul(factor))
    }

    #[inline(always)]
    fn even_lanes(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        Lanes([a[0], b[0], a[2], b[2], a[4], b[4], a[6], b[6]])
    }

    #[inline(always)]
    fn odd_lanes(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        Lanes([a[1], b[1], a[3], b[3], a[5], b[5], a[7], b[7]])
    }

    #[inline(always)]
    fn prefetch(_: *const u8) {}

    #[inline(always)]
    unsafe fn pass_in_place<const UNITE: bool>(
        pass: &Pass,
        node: usize,
        at: Points,
        twiddles: *const f64,
    ) {
        // SAFETY: the caller's promise.
        unsafe { pass_in_place::<UNITE>(pass, node, at, twiddles) }
    }

    #[inline(always)]
    unsafe fn divide_in_place(at: Points, factors: *const f64) {
        // SAFETY: the caller's promise.
        unsafe { divide_in_place(at, factors) }
    }

    #[inline(always)]
    fn transpose_pairs(rows: [Self; 4]) -> [Self; 4] {
        let mut out = rows;
        for (j, out) in out.iter_mut().enumerate() {
            for (i, row) in rows.iter().enumerate() {
                out.0[2 * i] = row.0[2 * j];
                out.0[2 * i + 1] = row.0[2 * j + 1];
            }
        }
        out
    }
}

/// # Safety
/// See [`kernel::fold`].
pub(super) unsafe fn fold(
    plan: &super::FftPlan,
    coeffs: impl Coefficients,
    spectrum: *mut f64,
    key: *const u8,
) {
    // SAFETY: the caller's promise.
    unsafe { kernel::fold::<Lanes>(plan, coeffs, spectrum, key) }
}

/// # Safety
/// See [`kernel::descend`].
pub(super) unsafe fn descend(plan: &super::FftPlan, spectrum: *mut f64, leaf: impl kernel::Leaf) {
    // SAFETY: the caller's promise.
    unsafe { kernel::descend::<Lanes, _>(plan, spectrum, leaf) }
}

/// # Safety
/// See [`kernel::ascend`].
pub(super) unsafe fn ascend(plan: &super::FftPlan, spectrum: *mut f64) {
    // SAFETY: the caller's promise.
    unsafe { kernel::ascend::<Lanes>(plan, spectrum) }
}

/// # Safety
/// See [`kernel::unfold`].
pub(super) unsafe fn unfold(plan: &super::FftPlan, spectrum: *mut f64, coeffs: impl Receiver) {
    // SAFETY: the caller's promise.
    unsafe { kernel::unfold::<Lanes>(plan, spectrum, coeffs) }
}

/// # Safety
/// See [`kernel::mul_rows`].
pub(super) unsafe fn mul_rows<const ADD: bool>(acc: &mut [f64], rows: &[&[f64]], keys: &[&[f64]]) {
    // SAFETY: the caller's promise.
    unsafe { kernel::mul_rows::<Lanes, ADD>(acc, rows, keys) }
}

/// The products of a spectrum that is one node of fewer points than the kernels know.
///
/// # Safety
/// What `leaf` points to has the lengths that it states; `spectrum` has its degree.
pub(super) unsafe fn mul_node<F: Format, const ADD: bool>(
    leaf: kernel::MulAdd<F, ADD, 0>,
    spectrum: &[f64],
) {
    // SAFETY: the caller's promise.
    unsafe { kernel::mul_node::<Lanes, F, ADD>(leaf, spectrum) }
}

/// # Safety
/// See [`Product::run`].
pub(super) unsafe fn run(product: impl Product) {
    // SAFETY: the caller's promise.
    unsafe { product.run::<Lanes>() }
}

/// # Safety
/// See [`Simd8::pass_in_place`].
#[inline(never)]
unsafe fn pass_in_place<const UNITE: bool>(
    pass: &Pass,
    node: usize,
    at: Points,
    twiddles: *const f64,
) {
    // SAFETY: the caller's promise.
    unsafe { kernel::pass_in_place::<Lanes, UNITE>(pass, node, at, twiddles) }
}

/// # Safety
/// See [`Simd8::divide_in_place`].
#[inline(never)]
unsafe fn divide_in_place(at: Points, factors: *const f64) {
    // SAFETY: the caller's promise.
    unsafe { kernel::divide_in_place::<Lanes>(at, factors) }
}
