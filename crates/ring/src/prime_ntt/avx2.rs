//! Vectors of one 256-bit register.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::double::{Doubles, ROUND};
use super::kernel::Vector;
use super::residue::Words;

/// Four f64.
#[derive(Clone, Copy)]
#[repr(transparent)]
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
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe {
            transmute(columns_of_4_blocks(transmute::<[Self; 8], [__m256i; 8]>(
                rows,
            )))
        }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        unsafe {
            transmute(rows_of_4_blocks(transmute::<[Self; 8], [__m256i; 8]>(
                columns,
            )))
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
    fn prefetch(at: *const u64) {
        // A prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

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
    fn to_doubles(self) -> Self {
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

    #[inline(always)]
    fn sub_words(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (_mm256_castpd_si256(self.0), _mm256_castpd_si256(other.0));
            Self(_mm256_castsi256_pd(_mm256_sub_epi64(a, b)))
        }
    }
}

/// 4 words of 64 bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct U64x4(__m256i);

// SAFETY (of every block below): as above.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for U64x4 {
    type Word = u64;
    const LANES: usize = 4;

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
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe {
            transmute(columns_of_4_blocks(transmute::<[Self; 8], [__m256i; 8]>(
                rows,
            )))
        }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        unsafe {
            transmute(rows_of_4_blocks(transmute::<[Self; 8], [__m256i; 8]>(
                columns,
            )))
        }
    }

    #[inline(always)]
    fn halves(self, other: Self) -> (Self, Self) {
        unsafe {
            (
                Self(_mm256_permute2x128_si256::<0x20>(self.0, other.0)),
                Self(_mm256_permute2x128_si256::<0x31>(self.0, other.0)),
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
impl Words for U64x4 {
    const NEAR_IS_EXACT: bool = false;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm256_add_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm256_sub_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn lower(self, m: Self) -> Self {
        unsafe {
            let lowered = _mm256_castsi256_pd(_mm256_sub_epi64(self.0, m.0));
            // Selects by the sign.
            let x = _mm256_blendv_pd(lowered, _mm256_castsi256_pd(self.0), lowered);
            Self(_mm256_castpd_si256(x))
        }
    }

    #[inline(always)]
    fn lift(self, m: Self) -> Self {
        unsafe {
            let lifted = _mm256_castsi256_pd(_mm256_add_epi64(self.0, m.0));
            let x = _mm256_castsi256_pd(self.0);
            Self(_mm256_castpd_si256(_mm256_blendv_pd(x, lifted, x)))
        }
    }

    #[inline(always)]
    fn low(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (self.0, other.0);
            let crosses = _mm256_mullo_epi32(a, _mm256_shuffle_epi32::<0xb1>(b));
            let sum = _mm256_add_epi32(crosses, _mm256_slli_epi64::<32>(crosses));
            let high = _mm256_blend_epi32::<0xaa>(_mm256_setzero_si256(), sum);
            Self(_mm256_add_epi64(_mm256_mul_epu32(a, b), high))
        }
    }

    #[inline(always)]
    fn high(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (self.0, other.0);
            let (a_high, b_high) = (_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let carry = _mm256_srli_epi64::<32>(_mm256_mul_epu32(a, b));
            let middle = _mm256_add_epi64(_mm256_mul_epu32(a_high, b), carry);
            let low = _mm256_and_si256(middle, _mm256_set1_epi64x(0xffff_ffff));
            let other = _mm256_add_epi64(_mm256_mul_epu32(a, b_high), low);
            let carries = _mm256_add_epi64(
                _mm256_srli_epi64::<32>(middle),
                _mm256_srli_epi64::<32>(other),
            );
            Self(_mm256_add_epi64(_mm256_mul_epu32(a_high, b_high), carries))
        }
    }

    #[inline(always)]
    fn high_near(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (self.0, other.0);
            let (a_high, b_high) = (_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let carries = _mm256_add_epi64(
                _mm256_srli_epi64::<32>(_mm256_mul_epu32(a_high, b)),
                _mm256_srli_epi64::<32>(_mm256_mul_epu32(a, b_high)),
            );
            Self(_mm256_add_epi64(_mm256_mul_epu32(a_high, b_high), carries))
        }
    }
}

/// Four rows of 32-bit lanes, transposed within each 128 bits.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn transpose_within(r: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (
            _mm256_unpacklo_epi32(r[0], r[1]),
            _mm256_unpackhi_epi32(r[0], r[1]),
        );
        let (c, d) = (
            _mm256_unpacklo_epi32(r[2], r[3]),
            _mm256_unpackhi_epi32(r[2], r[3]),
        );
        [
            _mm256_unpacklo_epi64(a, c),
            _mm256_unpackhi_epi64(a, c),
            _mm256_unpacklo_epi64(b, d),
            _mm256_unpackhi_epi64(b, d),
        ]
    }
}

/// Eight rows of eight 32-bit lanes, transposed.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn transpose8(r: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let a = transpose_within([r[0], r[1], r[2], r[3]]);
        let b = transpose_within([r[4], r[5], r[6], r[7]]);
        [
            _mm256_permute2x128_si256::<0x20>(a[0], b[0]),
            _mm256_permute2x128_si256::<0x20>(a[1], b[1]),
            _mm256_permute2x128_si256::<0x20>(a[2], b[2]),
            _mm256_permute2x128_si256::<0x20>(a[3], b[3]),
            _mm256_permute2x128_si256::<0x31>(a[0], b[0]),
            _mm256_permute2x128_si256::<0x31>(a[1], b[1]),
            _mm256_permute2x128_si256::<0x31>(a[2], b[2]),
            _mm256_permute2x128_si256::<0x31>(a[3], b[3]),
        ]
    }
}

/// 8 words of 32 bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct U32x8(__m256i);

// SAFETY (of every block below): as above.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for U32x8 {
    type Word = u32;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: u32) -> Self {
        unsafe { Self(_mm256_set1_epi32(x as i32)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe { transmute(transpose8(transmute::<[Self; 8], [__m256i; 8]>(rows))) }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        unsafe { transmute(transpose8(transmute::<[Self; 8], [__m256i; 8]>(columns))) }
    }

    #[inline(always)]
    fn halves(self, other: Self) -> (Self, Self) {
        unsafe {
            (
                Self(_mm256_permute2x128_si256::<0x20>(self.0, other.0)),
                Self(_mm256_permute2x128_si256::<0x31>(self.0, other.0)),
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
impl Words for U32x8 {
    const NEAR_IS_EXACT: bool = true;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm256_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm256_sub_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn lower(self, m: Self) -> Self {
        unsafe { Self(_mm256_min_epu32(self.0, _mm256_sub_epi32(self.0, m.0))) }
    }

    #[inline(always)]
    fn lift(self, m: Self) -> Self {
        unsafe { Self(_mm256_min_epu32(self.0, _mm256_add_epi32(self.0, m.0))) }
    }

    #[inline(always)]
    fn low(self, other: Self) -> Self {
        unsafe { Self(_mm256_mullo_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn high(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (self.0, other.0);
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            Self(_mm256_blend_epi32::<0xaa>(
                _mm256_shuffle_epi32::<0xf5>(even),
                odd,
            ))
        }
    }

    #[inline(always)]
    fn high_near(self, other: Self) -> Self {
        self.high(other)
    }
}

runners!("avx2,fma,bmi1,bmi2,lzcnt,popcnt");
