//! Vectors of one 512-bit register.

use std::arch::x86_64::*;

use super::double::Doubles;
use super::kernel::Vector;

/// Eight f64.
#[derive(Clone, Copy)]
pub(super) struct F64x8(__m512d);

/// Eight rows of eight 64-bit lanes, transposed.
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn transpose8(r: [__m512i; 8]) -> [__m512i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        // Pairs: lanes 2j of rows 2i and 2i + 1 at pair j of `even[i]`, lanes 2j + 1 in `odd`.
        let pairs = |a, b| (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        let (e0, o0) = pairs(r[0], r[1]);
        let (e1, o1) = pairs(r[2], r[3]);
        let (e2, o2) = pairs(r[4], r[5]);
        let (e3, o3) = pairs(r[6], r[7]);
        // Pair j of vector i becomes pair i of vector j; 0x88 takes pairs 0 and 2 of both operands, 0xdd 1 and 3.
        let transpose_pairs = |t: [__m512i; 4]| {
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
        };
        let e = transpose_pairs([e0, e1, e2, e3]);
        let o = transpose_pairs([o0, o1, o2, o3]);
        [e[0], o[0], e[1], o[1], e[2], o[2], e[3], o[3]]
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
    fn prefetch(at: *const u64) {
        // A prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        unsafe {
            transpose8(rows.map(|r| _mm512_castpd_si512(r.0))).map(|c| Self(_mm512_castsi512_pd(c)))
        }
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
    fn from_words(self) -> Self {
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
}

runners!("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt");
