//! The vector of AVX-512: one register.

use super::kernel::{self, Points, Simd8};
use super::rotation::Product;
use super::{Coefficients, Pass, Receiver};
use std::arch::x86_64::{
    __m512d, _MM_HINT_T1, _mm_loadl_epi64, _mm_prefetch, _mm256_cvtepi8_epi32, _mm256_loadu_si256,
    _mm512_add_pd, _mm512_cvtepi32_pd, _mm512_fmadd_pd, _mm512_fmsub_pd, _mm512_fnmadd_pd,
    _mm512_loadu_pd, _mm512_mul_pd, _mm512_set1_pd, _mm512_shuffle_f64x2, _mm512_storeu_pd,
    _mm512_sub_pd, _mm512_unpackhi_pd, _mm512_unpacklo_pd,
};

#[derive(Clone, Copy)]
struct Lanes(__m512d);

// SAFETY of every block in this impl: the functions below are the only way here, and they require AVX-512 F.
impl Simd8 for Lanes {
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: above, and the caller's promise.
        Lanes(unsafe { _mm512_loadu_pd(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: above, and the caller's promise.
        unsafe { _mm512_storeu_pd(to, self.0) }
    }

    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_set1_pd(value) })
    }

    #[inline(always)]
    unsafe fn load_i32(from: *const i32) -> Self {
        // SAFETY: above, and the caller's promise.
        Lanes(unsafe { _mm512_cvtepi32_pd(_mm256_loadu_si256(from.cast())) })
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        // SAFETY: above, and the caller's promise.
        Lanes(unsafe { _mm512_cvtepi32_pd(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) })
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_add_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_sub_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_mul_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_fmadd_pd(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    fn mul_sub(self, factor: Self, subtrahend: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_fmsub_pd(self.0, factor.0, subtrahend.0) })
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_fnmadd_pd(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    fn even_lanes(self, other: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_unpacklo_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn odd_lanes(self, other: Self) -> Self {
        // SAFETY: above.
        Lanes(unsafe { _mm512_unpackhi_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
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
    fn transpose_pairs(t: [Self; 4]) -> [Self; 4] {
        // SAFETY: above.
        unsafe {
            // 0x88 takes pairs 0 and 2 of both operands, 0xdd pairs 1 and 3.
            let a = _mm512_shuffle_f64x2::<0x88>(t[0].0, t[1].0);
            let b = _mm512_shuffle_f64x2::<0xdd>(t[0].0, t[1].0);
            let c = _mm512_shuffle_f64x2::<0x88>(t[2].0, t[3].0);
            let d = _mm512_shuffle_f64x2::<0xdd>(t[2].0, t[3].0);
            [
                Lanes(_mm512_shuffle_f64x2::<0x88>(a, c)),
                Lanes(_mm512_shuffle_f64x2::<0x88>(b, d)),
                Lanes(_mm512_shuffle_f64x2::<0xdd>(a, c)),
                Lanes(_mm512_shuffle_f64x2::<0xdd>(b, d)),
            ]
        }
    }
}

/// # Safety
/// See [`kernel::fold`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
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
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
pub(super) unsafe fn descend(plan: &super::FftPlan, spectrum: *mut f64, leaf: impl kernel::Leaf) {
    // SAFETY: the caller's promise.
    unsafe { kernel::descend::<Lanes, _>(plan, spectrum, leaf) }
}

/// # Safety
/// See [`kernel::ascend`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
pub(super) unsafe fn ascend(plan: &super::FftPlan, spectrum: *mut f64) {
    // SAFETY: the caller's promise.
    unsafe { kernel::ascend::<Lanes>(plan, spectrum) }
}

/// # Safety
/// See [`kernel::unfold`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
pub(super) unsafe fn unfold(plan: &super::FftPlan, spectrum: *mut f64, coeffs: impl Receiver) {
    // SAFETY: the caller's promise.
    unsafe { kernel::unfold::<Lanes>(plan, spectrum, coeffs) }
}

/// # Safety
/// See [`kernel::mul_rows`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
pub(super) unsafe fn mul_rows<const ADD: bool>(acc: &mut [f64], rows: &[&[f64]], keys: &[&[f64]]) {
    // SAFETY: the caller's promise.
    unsafe { kernel::mul_rows::<Lanes, ADD>(acc, rows, keys) }
}

/// # Safety
/// See [`Product::run`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
pub(super) unsafe fn run(product: impl Product) {
    // SAFETY: the caller's promise.
    unsafe { product.run::<Lanes>() }
}

/// # Safety
/// See [`Simd8::pass_in_place`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
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
