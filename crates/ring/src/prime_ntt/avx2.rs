//! Vectors of one 256-bit register.

use std::arch::x86_64::*;

use super::double::{Doubles, ROUND};
use super::kernel::Vector;

/// Four f64.
#[derive(Clone, Copy)]
pub(super) struct F64x4(__m256d);

/// Four rows of four 64-bit lanes, transposed.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn transpose4(r: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (a0, a1) = (
            _mm256_unpacklo_epi64(r[0], r[1]),
            _mm256_unpackhi_epi64(r[0], r[1]),
        );
        let (a2, a3) = (
            _mm256_unpacklo_epi64(r[2], r[3]),
            _mm256_unpackhi_epi64(r[2], r[3]),
        );
        [
            _mm256_permute2x128_si256::<0x20>(a0, a2),
            _mm256_permute2x128_si256::<0x20>(a1, a3),
            _mm256_permute2x128_si256::<0x31>(a0, a2),
            _mm256_permute2x128_si256::<0x31>(a1, a3),
        ]
    }
}

/// Four blocks of eight words, two rows each, to the columns of the blocks.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn columns_of_4_blocks(r: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let [c0, c1, c2, c3] = transpose4([r[0], r[2], r[4], r[6]]);
        let [c4, c5, c6, c7] = transpose4([r[1], r[3], r[5], r[7]]);
        [c0, c1, c2, c3, c4, c5, c6, c7]
    }
}

/// Undoes [`columns_of_4_blocks`].
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn rows_of_4_blocks(c: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let [r0, r2, r4, r6] = transpose4([c[0], c[1], c[2], c[3]]);
        let [r1, r3, r5, r7] = transpose4([c[4], c[5], c[6], c[7]]);
        [r0, r1, r2, r3, r4, r5, r6, r7]
    }
}

// SAFETY (of every block below): a value of this type exists only where AVX2 and FMA do, as `Vector` says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for F64x4 {
    type Word = u64;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: u64) -> Self {
        unsafe { Self(_mm256_set1_pd(f64::from_bits(x))) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        unsafe { Self(_mm256_loadu_pd(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        unsafe { _mm256_storeu_pd(to.cast(), self.0) }
    }

    #[inline(always)]
    fn prefetch(at: *const u64) {
        // A prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe {
            columns_of_4_blocks(rows.map(|r| _mm256_castpd_si256(r.0)))
                .map(|c| Self(_mm256_castsi256_pd(c)))
        }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        unsafe {
            rows_of_4_blocks(columns.map(|c| _mm256_castpd_si256(c.0)))
                .map(|r| Self(_mm256_castsi256_pd(r)))
        }
    }

    #[inline(always)]
    fn halves(self, other: Self) -> (Self, Self) {
        unsafe {
            (
                Self(_mm256_permute2f128_pd::<0x20>(self.0, other.0)),
                Self(_mm256_permute2f128_pd::<0x31>(self.0, other.0)),
            )
        }
    }

    #[inline(always)]
    fn block_of_lane(lane: usize) -> usize {
        lane
    }
}

// SAFETY (of every block below): as above.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Doubles for F64x4 {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm256_add_pd(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm256_sub_pd(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        unsafe { Self(_mm256_mul_pd(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        unsafe { Self(_mm256_fmadd_pd(self.0, factor.0, addend.0)) }
    }

    #[inline(always)]
    fn mul_sub(self, factor: Self, subtrahend: Self) -> Self {
        unsafe { Self(_mm256_fmsub_pd(self.0, factor.0, subtrahend.0)) }
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        unsafe { Self(_mm256_fnmadd_pd(self.0, factor.0, addend.0)) }
    }

    #[inline(always)]
    fn from_words(self) -> Self {
        // Added to the bits of `ROUND`, a word counts in the units of its binade.
        unsafe {
            let round = _mm256_set1_pd(ROUND);
            let sum = _mm256_add_epi64(_mm256_castpd_si256(self.0), _mm256_castpd_si256(round));
            Self(_mm256_sub_pd(_mm256_castsi256_pd(sum), round))
        }
    }

    #[inline(always)]
    fn to_words(self) -> Self {
        unsafe {
            let round = _mm256_set1_pd(ROUND);
            let sum = _mm256_castpd_si256(_mm256_add_pd(self.0, round));
            Self(_mm256_castsi256_pd(_mm256_sub_epi64(
                sum,
                _mm256_castpd_si256(round),
            )))
        }
    }

    #[inline(always)]
    fn lift(self, q: Self) -> Self {
        unsafe {
            let sum = _mm256_add_epi64(_mm256_castpd_si256(self.0), _mm256_castpd_si256(q.0));
            // Selects by the sign, which is that of the word.
            Self(_mm256_blendv_pd(self.0, _mm256_castsi256_pd(sum), self.0))
        }
    }

    #[inline(always)]
    fn lower(self, q: Self) -> Self {
        unsafe {
            let lowered = _mm256_castsi256_pd(_mm256_sub_epi64(
                _mm256_castpd_si256(self.0),
                _mm256_castpd_si256(q.0),
            ));
            Self(_mm256_blendv_pd(lowered, self.0, lowered))
        }
    }

    #[inline(always)]
    fn add_words(self, other: Self) -> Self {
        unsafe {
            let sum = _mm256_add_epi64(_mm256_castpd_si256(self.0), _mm256_castpd_si256(other.0));
            Self(_mm256_castsi256_pd(sum))
        }
    }
}

runners!("avx2,fma,bmi1,bmi2,lzcnt,popcnt");
