//! Residues as words below 2^52, for primes below 2^50 where AVX-512 has products of 52-bit integers (IFMA).
//!
//! Products by twiddles after Montgomery: the twiddle w is kept as v = w·2^52 mod q, with the companion v/q mod 2^52.
//! The low 52 bits m of y·(v/q) make m·q agree with y·v in its low half, so that w·y is congruent to the difference of
//! the high halves alone: three multiplications and a subtraction, and no garbage beyond 52 bits. Below 2^52, y·v/2^52 is
//! below q, and so is m·q/2^52; with q added to the one, the difference is in (0, 2q).
//!
//! Butterflies after Harvey, elements below 4q < 2^52 in the forward and below 2q in the inverse transform, take nine
//! operations. That is one more than with f64 ([`super::double`]), but the five beside the products are on integers,
//! each a cycle of latency, which may start on any of the four vector pipes of Zen 4 rather than on two of them.

use std::arch::x86_64::*;

use super::avx512::F64x8;
use super::double::{Doubles, Elements, Residues};
use super::kernel::{Field, Twiddle, Vector};
use super::tables::Modulus;

const MASK: u64 = (1 << 52) - 1;

/// A twiddle: w·2^52 mod q and that over q modulo 2^52.
pub(super) fn twiddle(w: u64, q: u64) -> [u64; 2] {
    let v = ((u128::from(w) << 52) % u128::from(q)) as u64;
    [v, v.wrapping_mul(inverse(q)) & MASK]
}

/// 1/q modulo 2^64.
fn inverse(q: u64) -> u64 {
    Modulus::<u64>::new(q).inverse
}

/// The low 52 bits of the product of the low 52 bits.
#[inline(always)]
fn low(a: F64x8, b: F64x8) -> F64x8 {
    // SAFETY: the caller has a field, which exists only where IFMA does.
    unsafe {
        let (a, b) = (_mm512_castpd_si512(a.0), _mm512_castpd_si512(b.0));
        F64x8(_mm512_castsi512_pd(_mm512_madd52lo_epu64(
            _mm512_setzero_si512(),
            a,
            b,
        )))
    }
}

/// The low 52 bits of the product of the low 52 bits, added to `sum`.
#[inline(always)]
fn add_low(sum: F64x8, a: F64x8, b: F64x8) -> F64x8 {
    // SAFETY: as in `low`.
    unsafe {
        let (a, b) = (_mm512_castpd_si512(a.0), _mm512_castpd_si512(b.0));
        F64x8(_mm512_castsi512_pd(_mm512_madd52lo_epu64(
            _mm512_castpd_si512(sum.0),
            a,
            b,
        )))
    }
}

/// The bits from 52 on.
#[inline(always)]
fn carry(x: F64x8) -> F64x8 {
    // SAFETY: as in `low`.
    unsafe {
        F64x8(_mm512_castsi512_pd(_mm512_srli_epi64::<52>(
            _mm512_castpd_si512(x.0),
        )))
    }
}

/// The bits from 52 on of the product of the low 52 bits, added to `sum`.
#[inline(always)]
fn high(sum: F64x8, a: F64x8, b: F64x8) -> F64x8 {
    // SAFETY: as in `low`.
    unsafe {
        let (a, b) = (_mm512_castpd_si512(a.0), _mm512_castpd_si512(b.0));
        F64x8(_mm512_castsi512_pd(_mm512_madd52hi_epu64(
            _mm512_castpd_si512(sum.0),
            a,
            b,
        )))
    }
}

#[inline(always)]
fn zero() -> F64x8 {
    // SAFETY: as in `low`.
    unsafe { F64x8(_mm512_setzero_pd()) }
}

/// The arithmetic. The working form is a word below 4q in the forward and below 2q in the inverse transform.
#[derive(Clone, Copy)]
pub(super) struct Integers {
    q: F64x8,
    twice: F64x8,
    /// 1/q modulo 2^52.
    inverse: F64x8,
    /// 2^52 as a twiddle.
    r: Twiddle<F64x8>,
    doubles: Residues<F64x8>,
}

impl Integers {
    /// `w·y` below 2q, for any word `y` below 2^52.
    #[inline(always)]
    fn times(self, y: F64x8, w: Twiddle<F64x8>) -> F64x8 {
        let multiple = low(y, w[1]);
        high(self.q, y, w[0]).sub_words(high(zero(), multiple, self.q))
    }

    /// A sum of products over 2^52, plus q at most: with the multiple of q that its low half asks for, the low half is 0.
    #[inline(always)]
    fn reduced(self, sum: [F64x8; 2]) -> F64x8 {
        let multiple = low(sum[0], self.inverse);
        sum[1]
            .add_words(carry(sum[0]))
            .add_words(self.q)
            .sub_words(high(zero(), multiple, self.q))
    }
}

impl Field for Integers {
    type Vector = F64x8;
    const SETTLES: bool = false;

    #[inline(always)]
    unsafe fn new(modulus: &Modulus<u64>) -> Self {
        let q = modulus.q;
        let r = twiddle((1 << 52) % q, q);
        // SAFETY: the caller's promise.
        unsafe {
            Integers {
                q: F64x8::splat(q),
                twice: F64x8::splat(2 * q),
                inverse: F64x8::splat(modulus.inverse & MASK),
                r: [F64x8::splat(r[0]), F64x8::splat(r[1])],
                doubles: Residues::new(modulus),
            }
        }
    }

    #[inline(always)]
    fn enter(self, words: F64x8) -> F64x8 {
        words.add_words(self.q)
    }

    #[inline(always)]
    fn leave(self, x: F64x8) -> F64x8 {
        x.lower(self.twice).lower(self.q)
    }

    #[inline(always)]
    fn settle(self, x: F64x8) -> F64x8 {
        x
    }

    #[inline(always)]
    fn butterfly(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8) {
        let y = self.times(y, w);
        let x = x.lower(self.twice);
        (x.add_words(y), x.add_words(self.twice).sub_words(y))
    }

    #[inline(always)]
    fn inverse_butterfly(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8) {
        let difference = x.add_words(self.twice).sub_words(y);
        (x.add_words(y).lower(self.twice), self.times(difference, w))
    }

    #[inline(always)]
    fn mul(self, a: F64x8, b: F64x8) -> F64x8 {
        let multiple = low(low(a, b), self.inverse);
        let reduced = high(self.q, a, b).sub_words(high(zero(), multiple, self.q));
        self.times(reduced, self.r).lower(self.q)
    }

    #[inline(always)]
    fn scale(self, a: F64x8, w: Twiddle<F64x8>) -> F64x8 {
        self.times(a, w).lower(self.q)
    }

    #[inline(always)]
    fn add(self, a: F64x8, b: F64x8) -> F64x8 {
        a.add_words(b).lower(self.q)
    }
}

impl Elements for Integers {
    /// The sums of the low halves and of the high halves of products.
    type Sum = [F64x8; 2];

    #[inline(always)]
    fn nothing(self) -> [F64x8; 2] {
        [zero(), zero()]
    }

    #[inline(always)]
    fn add_scaled(self, sum: [F64x8; 2], y: F64x8, w: Twiddle<F64x8>) -> [F64x8; 2] {
        self.add_product(sum, y, w[0])
    }

    /// Products are below 2^50·q, so that twelve of them over 2^52 are below 3q, and below 4q with q added.
    #[inline(always)]
    fn leave_scaled(self, sum: [F64x8; 2]) -> F64x8 {
        self.reduced(sum).lower(self.twice).lower(self.q)
    }

    #[inline(always)]
    fn add_product(self, sum: [F64x8; 2], a: F64x8, b: F64x8) -> [F64x8; 2] {
        [add_low(sum[0], a, b), high(sum[1], a, b)]
    }

    #[inline(always)]
    fn fold(self, sum: [F64x8; 2]) -> [F64x8; 2] {
        sum
    }

    /// Products are below q^2, at most 2^50·q: what is multiplied is below 4q here too, so below 2^52.
    #[inline(always)]
    fn leave_products(self, sum: [F64x8; 2]) -> F64x8 {
        self.times(self.reduced(sum), self.r).lower(self.q)
    }

    #[inline(always)]
    fn doubles(self) -> Residues<F64x8> {
        self.doubles
    }

    #[inline(always)]
    fn value(self, x: F64x8) -> F64x8 {
        x.lower(self.twice).to_doubles()
    }

    #[inline(always)]
    fn element(self, x: F64x8) -> F64x8 {
        self.enter(self.doubles.settle(x).to_words())
    }
}

runners!("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx2,fma,bmi1,bmi2,lzcnt,popcnt");
