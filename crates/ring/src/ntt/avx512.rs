//! The kernel of [`limbs`] on vectors of eight lanes (AVX-512 F, DQ).

use std::arch::x86_64::*;

use super::limbs::{EPSILON, Kernel, Vector};
use crate::goldilocks::P;

pub const LANES: usize = 8;

#[derive(Clone, Copy)]
pub struct Lanes8(__m512i);

// SAFETY (of every block below): a value of this type exists only where AVX-512 does, as `Vector` says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Lanes8 {
    const LANES: usize = LANES;

    unsafe fn call(kernel: impl Kernel) {
        #[target_feature(
            enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
        )]
        unsafe fn call(kernel: impl Kernel) {
            unsafe { kernel.run::<Lanes8>() }
        }
        unsafe { call(kernel) }
    }

    #[inline(always)]
    unsafe fn splat(x: u64) -> Self {
        unsafe { Self(_mm512_set1_epi64(x as i64)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm512_add_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm512_sub_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        unsafe { Self(_mm512_and_si512(self.0, other.0)) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_signed(self, other: Self) -> Self {
        unsafe { Self(_mm512_mul_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_unsigned(self, other: Self) -> Self {
        unsafe { Self(_mm512_mul_epu32(self.0, other.0)) }
    }

    #[inline(always)]
    fn shift_left(self, bits: u32) -> Self {
        unsafe { Self(_mm512_sll_epi64(self.0, _mm_cvtsi64_si128(i64::from(bits)))) }
    }

    #[inline(always)]
    fn shift_right(self, bits: u32) -> Self {
        unsafe { Self(_mm512_srl_epi64(self.0, _mm_cvtsi64_si128(i64::from(bits)))) }
    }

    #[inline(always)]
    fn shift_left_low(self, bits: u32) -> Self {
        unsafe {
            let bits = _mm_cvtsi64_si128(i64::from(bits));
            Self(_mm512_maskz_sll_epi32(0x5555, self.0, bits))
        }
    }

    #[inline(always)]
    fn high(self) -> Self {
        unsafe { Self(_mm512_srli_epi64::<32>(self.0)) }
    }

    #[inline(always)]
    fn high_signed(self) -> Self {
        unsafe { Self(_mm512_srai_epi64::<32>(self.0)) }
    }

    #[inline(always)]
    fn join(self, high: Self) -> Self {
        unsafe {
            let (low, high) = (_mm512_castsi512_ps(self.0), _mm512_castsi512_ps(high.0));
            Self(_mm512_castps_si512(_mm512_mask_moveldup_ps(
                low, 0xaaaa, high,
            )))
        }
    }

    #[inline(always)]
    fn add_modulo(self, other: Self) -> Self {
        unsafe {
            let sum = _mm512_add_epi64(self.0, other.0);
            let carry = _mm512_cmplt_epu64_mask(sum, other.0);
            Self(_mm512_mask_add_epi64(
                sum,
                carry,
                sum,
                _mm512_set1_epi64(EPSILON as i64),
            ))
        }
    }

    #[inline(always)]
    fn sub_modulo(self, other: Self) -> Self {
        unsafe {
            let borrow = _mm512_cmplt_epu64_mask(self.0, other.0);
            let difference = _mm512_sub_epi64(self.0, other.0);
            Self(_mm512_mask_sub_epi64(
                difference,
                borrow,
                difference,
                _mm512_set1_epi64(EPSILON as i64),
            ))
        }
    }

    #[inline(always)]
    fn canonical(self) -> Self {
        unsafe {
            let less = _mm512_sub_epi64(self.0, _mm512_set1_epi64(P as i64));
            Self(_mm512_min_epu64(self.0, less))
        }
    }

    #[inline(always)]
    fn prefetch(at: *const u64) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe {
            let [
                Self(r0),
                Self(r1),
                Self(r2),
                Self(r3),
                Self(r4),
                Self(r5),
                Self(r6),
                Self(r7),
            ] = rows;
            let (a0, a1) = (_mm512_unpacklo_epi64(r0, r1), _mm512_unpackhi_epi64(r0, r1));
            let (a2, a3) = (_mm512_unpacklo_epi64(r2, r3), _mm512_unpackhi_epi64(r2, r3));
            let (a4, a5) = (_mm512_unpacklo_epi64(r4, r5), _mm512_unpackhi_epi64(r4, r5));
            let (a6, a7) = (_mm512_unpacklo_epi64(r6, r7), _mm512_unpackhi_epi64(r6, r7));
            // Now a0 holds words 0, 2, 4, 6 of rows 0 and 1 in its four quarters, a1 words 1, 3, 5, 7, and so on.
            let (b0, b4) = quarters(a0, a2);
            let (b1, b5) = quarters(a1, a3);
            let (b2, b6) = quarters(a4, a6);
            let (b3, b7) = quarters(a5, a7);
            // b0: words 0, 4 of rows 0, 1, then of rows 2, 3; b4: words 2, 6; b2, b6: the same of rows 4 to 7.
            let (c0, c4) = quarters(b0, b2);
            let (c1, c5) = quarters(b1, b3);
            let (c2, c6) = quarters(b4, b6);
            let (c3, c7) = quarters(b5, b7);
            [
                Self(c0),
                Self(c1),
                Self(c2),
                Self(c3),
                Self(c4),
                Self(c5),
                Self(c6),
                Self(c7),
            ]
        }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        Self::transpose(columns)
    }
}

/// The even quarters of `a` and of `b`, and the odd ones.
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn quarters(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    // SAFETY: the caller's promise.
    unsafe {
        (
            _mm512_shuffle_i64x2::<0x88>(a, b),
            _mm512_shuffle_i64x2::<0xdd>(a, b),
        )
    }
}
