//! Vectors of one 512-bit register.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::double::Doubles;
use super::kernel::Vector;
use super::residue::Words;

/// Eight f64.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct F64x8(pub(super) __m512d);

/// Eight rows of eight 64-bit lanes, transposed.
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn transpose8(r: [__m512i; 8]) -> [__m512i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let even = transpose_pairs([
            _mm512_unpacklo_epi64(r[0], r[1]),
            _mm512_unpacklo_epi64(r[2], r[3]),
            _mm512_unpacklo_epi64(r[4], r[5]),
            _mm512_unpacklo_epi64(r[6], r[7]),
        ]);
        let odd = transpose_pairs([
            _mm512_unpackhi_epi64(r[0], r[1]),
            _mm512_unpackhi_epi64(r[2], r[3]),
            _mm512_unpackhi_epi64(r[4], r[5]),
            _mm512_unpackhi_epi64(r[6], r[7]),
        ]);
        [
            even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3],
        ]
    }
}

/// Pair j of 64-bit lanes of vector i becomes pair i of vector j.
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn transpose_pairs(t: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        // 0x88 takes pairs 0 and 2 of both operands, 0xdd pairs 1 and 3.
        let a = _mm512_shuffle_i64x2::<0x88>(t[0], t[1]);
        let b = _mm512_shuffle_i64x2::<0xdd>(t[0], t[1]);
        let c = _mm512_shuffle_i64x2::<0x88>(t[2], t[3]);
        let d = _mm512_shuffle_i64x2::<0xdd>(t[2], t[3]);
        [
            _mm512_shuffle_i64x2::<0x88>(a, c),
            _mm512_shuffle_i64x2::<0x88>(b, d),
            _mm512_shuffle_i64x2::<0xdd>(a, c),
            _mm512_shuffle_i64x2::<0xdd>(b, d),
        ]
    }
}

// SAFETY (of every block below): a value of this type exists only where AVX-512 F, DQ, BW, VL do, as `Vector` says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for F64x8 {
    type Word = u64;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: u64) -> Self {
        unsafe { Self(_mm512_set1_pd(f64::from_bits(x))) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        unsafe { Self(_mm512_loadu_pd(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        unsafe { _mm512_storeu_pd(to.cast(), self.0) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        // SAFETY: as above; both are eight registers of 512 bits.
        unsafe { transmute(transpose8(transmute::<[Self; 8], [__m512i; 8]>(rows))) }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        Self::transpose(columns)
    }

    #[inline(always)]
    fn halves(self, other: Self) -> (Self, Self) {
        unsafe {
            (
                Self(_mm512_shuffle_f64x2::<0x44>(self.0, other.0)),
                Self(_mm512_shuffle_f64x2::<0xee>(self.0, other.0)),
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
impl Doubles for F64x8 {
    #[inline(always)]
    fn prefetch(at: *const u64) {
        // A prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm512_add_pd(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm512_sub_pd(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        unsafe { Self(_mm512_mul_pd(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        unsafe { Self(_mm512_fmadd_pd(self.0, factor.0, addend.0)) }
    }

    #[inline(always)]
    fn mul_sub(self, factor: Self, subtrahend: Self) -> Self {
        unsafe { Self(_mm512_fmsub_pd(self.0, factor.0, subtrahend.0)) }
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        unsafe { Self(_mm512_fnmadd_pd(self.0, factor.0, addend.0)) }
    }

    #[inline(always)]
    fn to_doubles(self) -> Self {
        unsafe { Self(_mm512_cvtepi64_pd(_mm512_castpd_si512(self.0))) }
    }

    #[inline(always)]
    fn to_words(self) -> Self {
        unsafe { Self(_mm512_castsi512_pd(_mm512_cvtpd_epi64(self.0))) }
    }

    #[inline(always)]
    fn lift(self, q: Self) -> Self {
        unsafe {
            let x = _mm512_castpd_si512(self.0);
            let lifted = _mm512_add_epi64(x, _mm512_castpd_si512(q.0));
            Self(_mm512_castsi512_pd(_mm512_min_epu64(x, lifted)))
        }
    }

    #[inline(always)]
    fn lower(self, q: Self) -> Self {
        unsafe {
            let x = _mm512_castpd_si512(self.0);
            let lowered = _mm512_sub_epi64(x, _mm512_castpd_si512(q.0));
            Self(_mm512_castsi512_pd(_mm512_min_epu64(x, lowered)))
        }
    }

    #[inline(always)]
    fn add_words(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (_mm512_castpd_si512(self.0), _mm512_castpd_si512(other.0));
            Self(_mm512_castsi512_pd(_mm512_add_epi64(a, b)))
        }
    }

    #[inline(always)]
    fn sub_words(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (_mm512_castpd_si512(self.0), _mm512_castpd_si512(other.0));
            Self(_mm512_castsi512_pd(_mm512_sub_epi64(a, b)))
        }
    }
}

/// 8 words of 64 bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct U64x8(__m512i);

// SAFETY (of every block below): as above.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for U64x8 {
    type Word = u64;
    const LANES: usize = 8;

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
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe { transmute(transpose8(transmute::<[Self; 8], [__m512i; 8]>(rows))) }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        unsafe { transmute(transpose8(transmute::<[Self; 8], [__m512i; 8]>(columns))) }
    }

    #[inline(always)]
    fn halves(self, other: Self) -> (Self, Self) {
        unsafe {
            (
                Self(_mm512_shuffle_i64x2::<0x44>(self.0, other.0)),
                Self(_mm512_shuffle_i64x2::<0xee>(self.0, other.0)),
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
impl Words for U64x8 {
    const NEAR_IS_EXACT: bool = false;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm512_add_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm512_sub_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn lower(self, m: Self) -> Self {
        unsafe { Self(_mm512_min_epu64(self.0, _mm512_sub_epi64(self.0, m.0))) }
    }

    #[inline(always)]
    fn lift(self, m: Self) -> Self {
        unsafe { Self(_mm512_min_epu64(self.0, _mm512_add_epi64(self.0, m.0))) }
    }

    #[inline(always)]
    fn low(self, other: Self) -> Self {
        unsafe { Self(_mm512_mullo_epi64(self.0, other.0)) }
    }

    #[inline(always)]
    fn high(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (self.0, other.0);
            let (a_high, b_high) = (_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            let carry = _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, b));
            let middle = _mm512_add_epi64(_mm512_mul_epu32(a_high, b), carry);
            let low = _mm512_and_si512(middle, _mm512_set1_epi64(0xffff_ffff));
            let other = _mm512_add_epi64(_mm512_mul_epu32(a, b_high), low);
            let carries = _mm512_add_epi64(
                _mm512_srli_epi64::<32>(middle),
                _mm512_srli_epi64::<32>(other),
            );
            Self(_mm512_add_epi64(_mm512_mul_epu32(a_high, b_high), carries))
        }
    }

    #[inline(always)]
    fn high_near(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (self.0, other.0);
            let (a_high, b_high) = (_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            let carries = _mm512_add_epi64(
                _mm512_srli_epi64::<32>(_mm512_mul_epu32(a_high, b)),
                _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, b_high)),
            );
            Self(_mm512_add_epi64(_mm512_mul_epu32(a_high, b_high), carries))
        }
    }
}

/// Four rows of 32-bit lanes, transposed within each 128 bits.
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn transpose_within(r: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (
            _mm512_unpacklo_epi32(r[0], r[1]),
            _mm512_unpackhi_epi32(r[0], r[1]),
        );
        let (c, d) = (
            _mm512_unpacklo_epi32(r[2], r[3]),
            _mm512_unpackhi_epi32(r[2], r[3]),
        );
        [
            _mm512_unpacklo_epi64(a, c),
            _mm512_unpackhi_epi64(a, c),
            _mm512_unpacklo_epi64(b, d),
            _mm512_unpackhi_epi64(b, d),
        ]
    }
}

/// Sixteen blocks of eight words, two a row, to the columns of the blocks. Column c has in its four parts of 128 bits:
/// rows 0 to 3 of the first blocks, of the second blocks, rows 4 to 7 of the first blocks, of the second blocks.
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn columns_of_16_blocks(r: [__m512i; 8]) -> [__m512i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        // Part k of a vector i here: elements i + 4·(k % 2) of blocks k / 2.
        let a = transpose_within([r[0], r[1], r[2], r[3]]);
        let b = transpose_within([r[4], r[5], r[6], r[7]]);
        [
            _mm512_shuffle_i64x2::<0x88>(a[0], b[0]),
            _mm512_shuffle_i64x2::<0x88>(a[1], b[1]),
            _mm512_shuffle_i64x2::<0x88>(a[2], b[2]),
            _mm512_shuffle_i64x2::<0x88>(a[3], b[3]),
            _mm512_shuffle_i64x2::<0xdd>(a[0], b[0]),
            _mm512_shuffle_i64x2::<0xdd>(a[1], b[1]),
            _mm512_shuffle_i64x2::<0xdd>(a[2], b[2]),
            _mm512_shuffle_i64x2::<0xdd>(a[3], b[3]),
        ]
    }
}

/// Undoes [`columns_of_16_blocks`].
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn rows_of_16_blocks(c: [__m512i; 8]) -> [__m512i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        // The first two parts of both operands in turn, and the last two.
        let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        let last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        let a = transpose_within([
            _mm512_permutex2var_epi64(c[0], first, c[4]),
            _mm512_permutex2var_epi64(c[1], first, c[5]),
            _mm512_permutex2var_epi64(c[2], first, c[6]),
            _mm512_permutex2var_epi64(c[3], first, c[7]),
        ]);
        let b = transpose_within([
            _mm512_permutex2var_epi64(c[0], last, c[4]),
            _mm512_permutex2var_epi64(c[1], last, c[5]),
            _mm512_permutex2var_epi64(c[2], last, c[6]),
            _mm512_permutex2var_epi64(c[3], last, c[7]),
        ]);
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
    }
}

/// 16 words of 32 bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct U32x16(__m512i);

// SAFETY (of every block below): as above.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for U32x16 {
    type Word = u32;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: u32) -> Self {
        unsafe { Self(_mm512_set1_epi32(x as i32)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe {
            transmute(columns_of_16_blocks(transmute::<[Self; 8], [__m512i; 8]>(
                rows,
            )))
        }
    }

    #[inline(always)]
    fn transpose_back(columns: [Self; 8]) -> [Self; 8] {
        unsafe {
            transmute(rows_of_16_blocks(transmute::<[Self; 8], [__m512i; 8]>(
                columns,
            )))
        }
    }

    #[inline(always)]
    fn halves(self, other: Self) -> (Self, Self) {
        unsafe {
            (
                Self(_mm512_shuffle_i64x2::<0x44>(self.0, other.0)),
                Self(_mm512_shuffle_i64x2::<0xee>(self.0, other.0)),
            )
        }
    }

    #[inline(always)]
    fn block_of_lane(lane: usize) -> usize {
        4 * (lane / 8 * 2 + lane % 4 / 2) + lane % 2 + 2 * (lane / 4 % 2)
    }
}

// SAFETY (of every block below): as above.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Words for U32x16 {
    const NEAR_IS_EXACT: bool = true;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm512_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm512_sub_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn lower(self, m: Self) -> Self {
        unsafe { Self(_mm512_min_epu32(self.0, _mm512_sub_epi32(self.0, m.0))) }
    }

    #[inline(always)]
    fn lift(self, m: Self) -> Self {
        unsafe { Self(_mm512_min_epu32(self.0, _mm512_add_epi32(self.0, m.0))) }
    }

    #[inline(always)]
    fn low(self, other: Self) -> Self {
        unsafe { Self(_mm512_mullo_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn high(self, other: Self) -> Self {
        unsafe {
            let (a, b) = (self.0, other.0);
            let even = _mm512_mul_epu32(a, b);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            Self(_mm512_mask_shuffle_epi32::<0xf5>(odd, 0x5555, even))
        }
    }

    #[inline(always)]
    fn high_near(self, other: Self) -> Self {
        self.high(other)
    }
}

runners!("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt");
