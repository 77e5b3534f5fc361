//! The vector of AVX2 with FMA: two registers.

use super::kernel::{self, Points, Simd8};
use super::rotation::Product;
use super::{Coefficients, Pass, Receiver};
use std::arch::x86_64::{
    __m256d, _MM_HINT_T0, _mm_cvtepi8_epi32, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch,
    _mm_srli_si128, _mm256_add_pd, _mm256_cvtepi32_pd, _mm256_fmadd_pd, _mm256_fmsub_pd,
    _mm256_fnmadd_pd, _mm256_loadu_pd, _mm256_mul_pd, _mm256_permute2f128_pd, _mm256_set1_pd,
    _mm256_storeu_pd, _mm256_sub_pd, _mm256_unpackhi_pd, _mm256_unpacklo_pd,
};

#[derive(Clone, Copy)]
struct Lanes(__m256d, __m256d);

// SAFETY of every block in this impl: the functions below are the only way here, and they require AVX2 and FMA.
impl Simd8 for Lanes {
    const NODE_IN_MEMORY: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: above, and the caller's promise.
        unsafe { Lanes(_mm256_loadu_pd(from), _mm256_loadu_pd(from.add(4))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: above, and the caller's promise.
        unsafe {
            _mm256_storeu_pd(to, self.0);
            _mm256_storeu_pd(to.add(4), self.1);
        }
    }

    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: above.
        let half = unsafe { _mm256_set1_pd(value) };
        Lanes(half, half)
    }

    #[inline(always)]
    unsafe fn load_i32(from: *const i32) -> Self {
        // SAFETY: above, and the caller's promise.
        unsafe {
            Lanes(
                _mm256_cvtepi32_pd(_mm_loadu_si128(from.cast())),
                _mm256_cvtepi32_pd(_mm_loadu_si128(from.add(4).cast())),
            )
        }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        // SAFETY: above, and the caller's promise.
        unsafe {
            let bytes = _mm_loadl_epi64(from.cast());
            Lanes(
                _mm256_cvtepi32_pd(_mm_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_pd(_mm_cvtepi8_epi32(_mm_srli_si128::<4>(bytes))),
            )
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_add_pd(self.0, other.0),
                _mm256_add_pd(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_sub_pd(self.0, other.0),
                _mm256_sub_pd(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_mul_pd(self.0, other.0),
                _mm256_mul_pd(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_fmadd_pd(self.0, factor.0, addend.0),
                _mm256_fmadd_pd(self.1, factor.1, addend.1),
            )
        }
    }

    #[inline(always)]
    fn mul_sub(self, factor: Self, subtrahend: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_fmsub_pd(self.0, factor.0, subtrahend.0),
                _mm256_fmsub_pd(self.1, factor.1, subtrahend.1),
            )
        }
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_fnmadd_pd(self.0, factor.0, addend.0),
                _mm256_fnmadd_pd(self.1, factor.1, addend.1),
            )
        }
    }

    #[inline(always)]
    fn even_lanes(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_unpacklo_pd(self.0, other.0),
                _mm256_unpacklo_pd(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn odd_lanes(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Lanes(
                _mm256_unpackhi_pd(self.0, other.0),
                _mm256_unpackhi_pd(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

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
    fn transpose_pairs(t: [Self; 4]) -> [Self; 4] {
        // SAFETY: above.
        unsafe {
            // 0x20 takes the lower pairs of both operands, 0x31 the upper ones.
            [
                Lanes(
                    _mm256_permute2f128_pd::<0x20>(t[0].0, t[1].0),
                    _mm256_permute2f128_pd::<0x20>(t[2].0, t[3].0),
                ),
                Lanes(
                    _mm256_permute2f128_pd::<0x31>(t[0].0, t[1].0),
                    _mm256_permute2f128_pd::<0x31>(t[2].0, t[3].0),
                ),
                Lanes(
                    _mm256_permute2f128_pd::<0x20>(t[0].1, t[1].1),
                    _mm256_permute2f128_pd::<0x20>(t[2].1, t[3].1),
                ),
                Lanes(
                    _mm256_permute2f128_pd::<0x31>(t[0].1, t[1].1),
                    _mm256_permute2f128_pd::<0x31>(t[2].1, t[3].1),
                ),
            ]
        }
    }
}

/// # Safety
/// See [`kernel::fold`].
#[target_feature(enable = "avx2,fma")]
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
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn descend(plan: &super::FftPlan, spectrum: *mut f64, leaf: impl kernel::Leaf) {
    // SAFETY: the caller's promise.
    unsafe { kernel::descend::<Lanes, _>(plan, spectrum, leaf) }
}

/// # Safety
/// See [`kernel::ascend`].
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn ascend(plan: &super::FftPlan, spectrum: *mut f64) {
    // SAFETY: the caller's promise.
    unsafe { kernel::ascend::<Lanes>(plan, spectrum) }
}

/// # Safety
/// See [`kernel::unfold`].
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn unfold(plan: &super::FftPlan, spectrum: *mut f64, coeffs: impl Receiver) {
    // SAFETY: the caller's promise.
    unsafe { kernel::unfold::<Lanes>(plan, spectrum, coeffs) }
}

/// # Safety
/// See [`kernel::mul_rows`].
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn mul_rows<const ADD: bool>(acc: &mut [f64], rows: &[&[f64]], keys: &[&[f64]]) {
    // SAFETY: the caller's promise.
    unsafe { kernel::mul_rows::<Lanes, ADD>(acc, rows, keys) }
}

/// # Safety
/// See [`Product::run`].
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run(product: impl Product) {
    // SAFETY: the caller's promise.
    unsafe { product.run::<Lanes>() }
}

/// # Safety
/// See [`Simd8::pass_in_place`].
#[target_feature(enable = "avx2,fma")]
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
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn divide_in_place(at: Points, factors: *const f64) {
    // SAFETY: the caller's promise.
    unsafe { kernel::divide_in_place::<Lanes>(at, factors) }
}
