//! The kernel of [`limbs`] on vectors of four lanes (AVX2).

use std::arch::x86_64::*;

use super::limbs::{EPSILON, Kernel, Vector};
use crate::goldilocks::P;

pub const LANES: usize = 4;

#[derive(Clone, Copy)]
pub struct Lanes4(__m256i);

/// A mask of the lanes in which `a` is below `b`, unsigned.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn below(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let sign = _mm256_set1_epi64x(i64::MIN);
        _mm256_cmpgt_epi64(_mm256_xor_si256(b, sign), _mm256_xor_si256(a, sign))
    }
}

/// Four vectors as the rows of a matrix, transposed.
#[inline(always)]
fn transpose4(rows: [Lanes4; 4]) -> [Lanes4; 4] {
    let [r0, r1, r2, r3] = rows;
    // SAFETY: the vectors exist, so AVX2 does.
    unsafe {
        let (a0, a1) = (
            _mm256_unpacklo_epi64(r0.0, r1.0),
            _mm256_unpackhi_epi64(r0.0, r1.0),
        );
        let (a2, a3) = (
            _mm256_unpacklo_epi64(r2.0, r3.0),
            _mm256_unpackhi_epi64(r2.0, r3.0),
        );
        [
            Lanes4(_mm256_permute2x128_si256::<0x20>(a0, a2)),
            Lanes4(_mm256_permute2x128_si256::<0x20>(a1, a3)),
            Lanes4(_mm256_permute2x128_si256::<0x31>(a0, a2)),
            Lanes4(_mm256_permute2x128_si256::<0x31>(a1, a3)),
        ]
    }
}

// SAFETY (of every block below): a value of this type exists only where AVX2 does, as `Vector` says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Lanes4 {
    const LANES: usize = LANES;

    unsafe fn call(kernel: impl Kernel) {
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn call(kernel: impl Kernel) {
            unsafe { kernel.run::<Lanes4>() }
        }
        unsafe { call(kernel) }
    }

    #[inline(always)]
    unsafe fn splat(x: u64) -> Self {
        unsafe { Self(_mm256_set1_epi64x(x as i64)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm256_add_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm256_sub_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        unsafe { Self(_mm256_and_si256(self.0, other.0)) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_signed(self, other: Self) -> Self {
        unsafe { Self(_mm256_mul_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_unsigned(self, other: Self) -> Self {
        unsafe { Self(_mm256_mul_epu32(self.0, other.0)) }
    }

    #[inline(always)]
    fn shift_left(self, bits: u32) -> Self {
        unsafe { Self(_mm256_sll_epi64(self.0, _mm_cvtsi64_si128(i64::from(bits)))) }
    }

    #[inline(always)]
    fn shift_right(self, bits: u32) -> Self {
        unsafe { Self(_mm256_srl_epi64(self.0, _mm_cvtsi64_si128(i64::from(bits)))) }
    }

    #[inline(always)]
    fn shift_left_low(self, bits: u32) -> Self {
        self.shift_left(bits).and(unsafe { Self::splat(EPSILON) })
    }

    #[inline(always)]
    fn high(self) -> Self {
        unsafe { Self(_mm256_srli_epi64::<32>(self.0)) }
    }

    #[inline(always)]
    fn high_signed(self) -> Self {
        unsafe {
            let sign = _mm256_srai_epi32::<31>(self.0);
            let high = _mm256_shuffle_epi32::<0xf5>(self.0);
            Self(_mm256_blend_epi32::<0xaa>(high, sign))
        }
    }

    #[inline(always)]
    fn join(self, high: Self) -> Self {
        unsafe {
            Self(_mm256_blend_epi32::<0xaa>(
                self.0,
                _mm256_slli_epi64::<32>(high.0),
            ))
        }
    }

    #[inline(always)]
    fn add_modulo(self, other: Self) -> Self {
        unsafe {
            let sum = _mm256_add_epi64(self.0, other.0);
            let correction =
                _mm256_and_si256(below(sum, other.0), _mm256_set1_epi64x(EPSILON as i64));
            Self(_mm256_add_epi64(sum, correction))
        }
    }

    #[inline(always)]
    fn sub_modulo(self, other: Self) -> Self {
        unsafe {
            let correction =
                _mm256_and_si256(below(self.0, other.0), _mm256_set1_epi64x(EPSILON as i64));
            Self(_mm256_sub_epi64(
                _mm256_sub_epi64(self.0, other.0),
                correction,
            ))
        }
    }

    #[inline(always)]
    fn canonical(self) -> Self {
        unsafe {
            let p = _mm256_set1_epi64x(P as i64);
            let keep = below(self.0, p);
            Self(_mm256_sub_epi64(self.0, _mm256_andnot_si256(keep, p)))
        }
    }

    #[inline(always)]
    fn prefetch(at: *const u64) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
        let [c0, c1, c2, c3] = transpose4([r0, r2, r4, r6]);
        let [c4, c5, c6, c7] = transpose4([r1, r3, r5, r7]);
        [c0, c1, c2, c3, c4, c5, c6, c7]
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        let [c0, c1, c2, c3, c4, c5, c6, c7] = columns;
        let [r0, r2, r4, r6] = transpose4([c0, c1, c2, c3]);
        let [r1, r3, r5, r7] = transpose4([c4, c5, c6, c7]);
        [r0, r1, r2, r3, r4, r5, r6, r7]
    }
}
