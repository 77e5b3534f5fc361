//! The vector of AVX2: one register of eight words.

use super::arithmetic::Arithmetic;
use super::kernel::{self, Vector};
use super::prime_factor::PrimeFactor;
use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_andnot_si256, _mm256_blend_epi32, _mm256_cmpeq_epi32,
    _mm256_cmpgt_epi32, _mm256_loadu_si256, _mm256_maskload_epi32, _mm256_maskstore_epi32,
    _mm256_max_epu32, _mm256_min_epu32, _mm256_mul_epu32, _mm256_mullo_epi32,
    _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

#[derive(Clone, Copy)]
pub(super) struct Lanes8(__m256i);

/// All ones in the first `count` lanes.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn first(count: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        _mm256_cmpgt_epi32(
            _mm256_set1_epi32(count as i32),
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        )
    }
}

// SAFETY (of every block below): the functions at the end of this file and of `avx512.rs` are the only way here, and
// they require AVX2; pointers are as the trait says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Lanes8 {
    const LANES: usize = 8;
    type Half = Self;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u32, count: usize) -> Self {
        unsafe { Self(_mm256_maskload_epi32(from.cast(), first(count))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut u32, count: usize) {
        unsafe { _mm256_maskstore_epi32(to.cast(), first(count), self.0) }
    }

    #[inline(always)]
    fn splat(value: u32) -> Self {
        unsafe { Self(_mm256_set1_epi32(value as i32)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Self(_mm256_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Self(_mm256_sub_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        unsafe { Self(_mm256_min_epu32(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_low(self, other: Self) -> Self {
        unsafe { Self(_mm256_mullo_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul_high(self, splat: Self) -> Self {
        unsafe {
            let even = _mm256_mul_epu32(self.0, splat.0);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(self.0), splat.0);
            Self(_mm256_blend_epi32::<0xaa>(
                _mm256_srli_epi64::<32>(even),
                odd,
            ))
        }
    }

    #[inline(always)]
    fn add_where_less(self, a: Self, b: Self, addend: Self) -> Self {
        unsafe {
            let not_less = _mm256_cmpeq_epi32(_mm256_max_epu32(a.0, b.0), a.0);
            self.add(Self(_mm256_andnot_si256(not_less, addend.0)))
        }
    }

    #[inline(always)]
    fn pick<const BIT: u32>(self, other: Self) -> Self {
        unsafe {
            Self(match BIT {
                0 => _mm256_blend_epi32::<0xaa>(self.0, other.0),
                1 => _mm256_blend_epi32::<0xcc>(self.0, other.0),
                _ => _mm256_blend_epi32::<0xf0>(self.0, other.0),
            })
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const u32, rows: &[u16], to: *mut u32, stride: usize) {
        let rows = &rows[..8];
        unsafe {
            let mut x = [_mm256_setzero_si256(); 8];
            for i in 0..8 {
                x[i] = _mm256_loadu_si256(from.add(usize::from(rows[i]) * 8).cast());
            }
            // By words, by pairs, by halves.
            let mut y = x;
            for i in 0..4 {
                y[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
                y[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
            }
            for i in [0, 4] {
                x[i] = _mm256_unpacklo_epi64(y[i], y[i + 2]);
                x[i + 1] = _mm256_unpackhi_epi64(y[i], y[i + 2]);
                x[i + 2] = _mm256_unpacklo_epi64(y[i + 1], y[i + 3]);
                x[i + 3] = _mm256_unpackhi_epi64(y[i + 1], y[i + 3]);
            }
            for i in 0..4 {
                let low = _mm256_permute2x128_si256::<0x20>(x[i], x[i + 4]);
                let high = _mm256_permute2x128_si256::<0x31>(x[i], x[i + 4]);
                Self(low).store(to.add(i * stride));
                Self(high).store(to.add((i + 4) * stride));
            }
        }
    }
}

/// # Safety
/// See [`kernel::transform`].
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn transform<A: Arithmetic>(
    plan: &PrimeFactor,
    inverse: bool,
    data: *mut u32,
    scratch: *mut u32,
) {
    // SAFETY: the caller's promise.
    unsafe { kernel::transform::<Lanes8, A>(plan, inverse, data, scratch) }
}
