//! Residues as words, for primes below 2^31 in words of 32 bits and below 2^63 in words of 64 bits.
//!
//! Products by twiddles after Shoup: with the companion v = floor(w·2^B/q) of w, x·w - q·floor(x·v/2^B) is in [0, 2q)
//! for every word x, and takes the high half of one product and the low halves of two. Butterflies after Harvey (Faster
//! arithmetic for number-theoretic transforms): where 4q fits into a word (`LAZY`), elements are below 4q in the forward
//! and below 2q in the inverse transform; for the largest primes they are canonical throughout.

use super::kernel::{Field, Twiddle, Vector, WordOf};
use super::tables::Modulus;

/// Lanes of unsigned words.
pub trait Words: Vector {
    /// Whether [`Words::high_near`] is exact.
    const NEAR_IS_EXACT: bool;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    /// `self - m`, or `self` where that is negative; `self - m` is within half the range of a word.
    fn lower(self, m: Self) -> Self;
    /// `self + m` where `self` is negative, as a difference within half the range of a word.
    fn lift(self, m: Self) -> Self;
    /// The low half of the product.
    fn low(self, other: Self) -> Self;
    /// The high half of the product.
    fn high(self, other: Self) -> Self;
    /// The high half of the product, or up to 2 less.
    fn high_near(self, other: Self) -> Self;
}

/// The arithmetic. The working form is a word below 4q in the forward and below 2q in the inverse transform if `LAZY`,
/// else canonical.
#[derive(Clone, Copy)]
pub(super) struct Residues<V, const LAZY: bool> {
    q: V,
    /// 2q if `LAZY`.
    twice: V,
    /// 1/q modulo 2^B.
    inverse: V,
    /// 2^B mod q.
    r: Twiddle<V>,
}

impl<V: Words, const LAZY: bool> Residues<V, LAZY> {
    /// `w·y`, below 2q if `LAZY`, else canonical, for any word `y`.
    ///
    /// A quotient that is 2 too small leaves a remainder below 4q.
    #[inline(always)]
    fn times(self, y: V, w: Twiddle<V>) -> V {
        if LAZY {
            let quotient = y.high_near(w[1]);
            let product = y.low(w[0]).sub(quotient.low(self.q));
            if V::NEAR_IS_EXACT {
                product
            } else {
                product.lower(self.twice)
            }
        } else {
            let quotient = y.high(w[1]);
            y.low(w[0]).sub(quotient.low(self.q)).lower(self.q)
        }
    }

    /// From below 2q if `LAZY`, else from canonical.
    #[inline(always)]
    fn canonical(self, x: V) -> V {
        if LAZY { x.lower(self.q) } else { x }
    }
}

impl<V: Words, const LAZY: bool> Field for Residues<V, LAZY> {
    type Vector = V;
    const SETTLES: bool = false;

    #[inline(always)]
    unsafe fn new(modulus: &Modulus<WordOf<Self>>) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let q = V::splat(modulus.q);
            Residues {
                q,
                twice: q.add(q),
                inverse: V::splat(modulus.inverse),
                r: [V::splat(modulus.r[0]), V::splat(modulus.r[1])],
            }
        }
    }

    #[inline(always)]
    fn enter(self, words: V) -> V {
        words
    }

    #[inline(always)]
    fn leave(self, x: V) -> V {
        if LAZY {
            x.lower(self.twice).lower(self.q)
        } else {
            x
        }
    }

    #[inline(always)]
    fn settle(self, x: V) -> V {
        x
    }

    #[inline(always)]
    fn butterfly(self, x: V, y: V, w: Twiddle<V>) -> (V, V) {
        let y = self.times(y, w);
        if LAZY {
            let x = x.lower(self.twice);
            (x.add(y), x.add(self.twice).sub(y))
        } else {
            (x.add(y).lower(self.q), x.sub(y).lift(self.q))
        }
    }

    #[inline(always)]
    fn inverse_butterfly(self, x: V, y: V, w: Twiddle<V>) -> (V, V) {
        if LAZY {
            let difference = x.add(self.twice).sub(y);
            (x.add(y).lower(self.twice), self.times(difference, w))
        } else {
            let difference = x.sub(y).lift(self.q);
            (x.add(y).lower(self.q), self.times(difference, w))
        }
    }

    /// After Montgomery: a·b - q·(a·b/q mod 2^B) is a multiple of 2^B, since the low halves agree.
    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        let multiple = a.low(b).low(self.inverse);
        let reduced = a.high(b).sub(multiple.high(self.q)).lift(self.q);
        self.canonical(self.times(reduced, self.r))
    }

    #[inline(always)]
    fn scale(self, a: V, w: Twiddle<V>) -> V {
        self.canonical(self.times(a, w))
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        a.add(b).lower(self.q)
    }
}
