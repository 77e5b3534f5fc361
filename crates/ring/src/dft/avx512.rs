//! The vector of AVX-512: one register of sixteen words.

use super::arithmetic::Arithmetic;
use super::avx2::Lanes8;
use super::kernel::{self, Vector};
use super::prime_factor::PrimeFactor;
use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmplt_epu32_mask, _mm512_loadu_si512, _mm512_mask_add_epi32,
    _mm512_mask_blend_epi32, _mm512_mask_shuffle_epi32, _mm512_mask_storeu_epi32,
    _mm512_maskz_loadu_epi32, _mm512_min_epu32, _mm512_mul_epu32, _mm512_mullo_epi32,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_sub_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

#[derive(Clone, Copy)]
struct Lanes16(__m512i);

/// The mask of the first `count` lanes, at most 16.
#[inline(always)]
fn first(count: usize) -> u16 {
    ((1u32 << count) - 1) as u16
}

// SAFETY (of every block below): the function at the end of this file is the only way here, and it requires AVX-512 F;
// pointers are as the trait says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Lanes16 {
    const LANES: usize = 16;
    type Half = Lanes8;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u32, count: usize) -> Self {
        unsafe { Self(_mm512_maskz_loadu_epi32(first(count), from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut u32, count: usize) {
        unsafe { _mm512_mask_storeu_epi32(to.cast(), first(count), self.0) }
    }

    #[inline(always)]
    fn splat(value: u32) -> Self {
        unsafe { Self(_mm512_set1_epi32(value as i32)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm512_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm512_sub_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        unsafe { Self(_mm512_min_epu32(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_low(self, other: Self) -> Self {
        unsafe { Self(_mm512_mullo_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_high(self, splat: Self) -> Self {
        unsafe {
            let even = _mm512_mul_epu32(self.0, splat.0);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(self.0), splat.0);
            // The even lanes take the odd lanes of `even`.
            Self(_mm512_mask_shuffle_epi32::<0xf5>(odd, 0x5555, even))
        }
    }

    #[inline(always)]
    fn add_where_less(self, a: Self, b: Self, addend: Self) -> Self {
        unsafe {
            let less = _mm512_cmplt_epu32_mask(a.0, b.0);
            Self(_mm512_mask_add_epi32(self.0, less, self.0, addend.0))
        }
    }

    #[inline(always)]
    fn pick<const BIT: u32>(self, other: Self) -> Self {
        let mask = match BIT {
            0 => 0xaaaa,
            1 => 0xcccc,
            2 => 0xf0f0,
            _ => 0xff00,
        };
        unsafe { Self(_mm512_mask_blend_epi32(mask, self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const u32, rows: &[u16], to: *mut u32, stride: usize) {
        let rows = &rows[..16];
        unsafe {
            let mut x = [_mm512_setzero_si512(); 16];
            for i in 0..16 {
                x[i] = _mm512_loadu_si512(from.add(usize::from(rows[i]) * 16).cast());
            }
            // By words and by pairs: x[4i + j] has word j of each quarter, of the rows 4i to 4i + 3.
            let mut y = x;
            for i in 0..8 {
                y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
                y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
            }
            for i in [0, 4, 8, 12] {
                x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
                x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
                x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
                x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
            }
            // By quarters: 0x88 takes quarters 0 and 2 of both operands, 0xdd quarters 1 and 3.
            for j in 0..4 {
                let a = _mm512_shuffle_i32x4::<0x88>(x[j], x[j + 4]);
                let b = _mm512_shuffle_i32x4::<0xdd>(x[j], x[j + 4]);
                let c = _mm512_shuffle_i32x4::<0x88>(x[j + 8], x[j + 12]);
                let d = _mm512_shuffle_i32x4::<0xdd>(x[j + 8], x[j + 12]);
                let quarters = [
                    _mm512_shuffle_i32x4::<0x88>(a, c),
                    _mm512_shuffle_i32x4::<0x88>(b, d),
                    _mm512_shuffle_i32x4::<0xdd>(a, c),
                    _mm512_shuffle_i32x4::<0xdd>(b, d),
                ];
                for (quarter, row) in quarters.into_iter().enumerate() {
                    Self(row).store(to.add((4 * quarter + j) * stride));
                }
            }
        }
    }
}

/// # Safety
/// See [`kernel::transform`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn transform<A: Arithmetic>(
    plan: &PrimeFactor,
    inverse: bool,
    data: *mut u32,
    scratch: *mut u32,
) {
    // SAFETY: the caller's promise.
    unsafe { kernel::transform::<Lanes16, A>(plan, inverse, data, scratch) }
}
