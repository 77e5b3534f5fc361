//! Two ways to calculate modulo q in words of 32 bits, by how many bits q leaves free.
//!
//! A product is by a constant. [`Lazy`] takes it as Shoup does: with w' = floor(2^32·w/q), the word
//! a·w - floor(a·w'/2^32)·q is congruent to a·w and below 2q for every a below 2^32. [`Full`], for which that may not
//! fit into a word, takes it as Montgomery does, on 2^32·w mod q. Bounds above q are those of [`Lazy`]; [`Full`] stays
//! below q everywhere.

use super::kernel::Vector;

/// q and 2q (modulo 2^32), in every lane.
#[derive(Clone, Copy)]
pub(super) struct Modulus<V> {
    q: V,
    twice: V,
}

impl<V: Vector> Modulus<V> {
    #[inline(always)]
    pub(super) fn new(q: u32) -> Self {
        Modulus {
            q: V::splat(q),
            twice: V::splat(q.wrapping_mul(2)),
        }
    }
}

/// A constant as [`Arithmetic::constant`] prepares it, in every lane.
#[derive(Clone, Copy)]
pub(super) struct Twiddle<V> {
    factor: V,
    companion: V,
}

impl<V: Vector> Twiddle<V> {
    #[inline(always)]
    pub(super) fn load(words: &[u32; 2]) -> Self {
        Twiddle {
            factor: V::splat(words[0]),
            companion: V::splat(words[1]),
        }
    }
}

pub(super) trait Arithmetic {
    /// What [`Arithmetic::mul`] needs of the constant `w`, below q.
    fn constant(w: u32, q: u32) -> [u32; 2];

    /// `a·w` below 2q, for every word `a`.
    fn mul<V: Vector>(m: &Modulus<V>, a: V, w: Twiddle<V>) -> V;

    /// `(u + v, u - v)` below the lesser of 2·`BOUND`·q and 4q; `u` and `v` are below `BOUND`·q, 1, 2 or 4.
    fn add_sub<V: Vector, const BOUND: u32>(m: &Modulus<V>, u: V, v: V) -> (V, V);

    /// `(u + v·w, u - v·w)` below 4q; `u` is below `BOUND`·q, 2 or 4, `v` below 4q.
    fn butterfly<V: Vector, const BOUND: u32>(m: &Modulus<V>, u: V, v: V, w: Twiddle<V>) -> (V, V);

    /// `(u + v, u - v)`, all below 2q.
    fn inverse_add_sub<V: Vector>(m: &Modulus<V>, u: V, v: V) -> (V, V);

    /// `(u + v, (u - v)·w)`, all below 2q.
    fn inverse_butterfly<V: Vector>(m: &Modulus<V>, u: V, v: V, w: Twiddle<V>) -> (V, V);

    /// `u + v`, all below 2q.
    fn add<V: Vector>(m: &Modulus<V>, u: V, v: V) -> V;

    /// `a` below 2q, where it was below 4q.
    fn below_twice<V: Vector>(m: &Modulus<V>, a: V) -> V;

    /// `a` below q, where it was below 2q.
    fn canonical<V: Vector>(m: &Modulus<V>, a: V) -> V;
}

/// `a - bound` where that is not negative, else `a`.
#[inline(always)]
fn reduce<V: Vector>(a: V, bound: V) -> V {
    a.min(a.sub(bound))
}

/// q < 2^30: words up to 4q.
pub(super) enum Lazy {}

impl Arithmetic for Lazy {
    fn constant(w: u32, q: u32) -> [u32; 2] {
        [w, ((u64::from(w) << 32) / u64::from(q)) as u32]
    }

    #[inline(always)]
    fn mul<V: Vector>(m: &Modulus<V>, a: V, w: Twiddle<V>) -> V {
        let quotient = a.mul_high(w.companion);
        a.mul_low(w.factor).sub(quotient.mul_low(m.q))
    }

    #[inline(always)]
    fn add_sub<V: Vector, const BOUND: u32>(m: &Modulus<V>, u: V, v: V) -> (V, V) {
        let (u, v) = if BOUND > 2 {
            (reduce(u, m.twice), reduce(v, m.twice))
        } else {
            (u, v)
        };
        let bound = if BOUND == 1 { m.q } else { m.twice };
        (u.add(v), u.add(bound).sub(v))
    }

    #[inline(always)]
    fn butterfly<V: Vector, const BOUND: u32>(m: &Modulus<V>, u: V, v: V, w: Twiddle<V>) -> (V, V) {
        let u = if BOUND > 2 { reduce(u, m.twice) } else { u };
        let product = Self::mul(m, v, w);
        (u.add(product), u.add(m.twice).sub(product))
    }

    #[inline(always)]
    fn inverse_add_sub<V: Vector>(m: &Modulus<V>, u: V, v: V) -> (V, V) {
        (
            reduce(u.add(v), m.twice),
            reduce(u.add(m.twice).sub(v), m.twice),
        )
    }

    #[inline(always)]
    fn inverse_butterfly<V: Vector>(m: &Modulus<V>, u: V, v: V, w: Twiddle<V>) -> (V, V) {
        (
            reduce(u.add(v), m.twice),
            Self::mul(m, u.add(m.twice).sub(v), w),
        )
    }

    #[inline(always)]
    fn add<V: Vector>(m: &Modulus<V>, u: V, v: V) -> V {
        reduce(u.add(v), m.twice)
    }

    #[inline(always)]
    fn below_twice<V: Vector>(m: &Modulus<V>, a: V) -> V {
        reduce(a, m.twice)
    }

    #[inline(always)]
    fn canonical<V: Vector>(m: &Modulus<V>, a: V) -> V {
        reduce(a, m.q)
    }
}

/// Any odd q < 2^32: canonical words.
pub(super) enum Full {}

impl Full {
    #[inline(always)]
    fn sub<V: Vector>(m: &Modulus<V>, u: V, v: V) -> V {
        u.sub(v).add_where_less(u, v, m.q)
    }
}

impl Arithmetic for Full {
    fn constant(w: u32, q: u32) -> [u32; 2] {
        // Each step doubles the bits of 1/q that are right; an odd q is its own inverse modulo 8.
        let inverse = (0..4).fold(q, |x, _| {
            x.wrapping_mul(2u32.wrapping_sub(q.wrapping_mul(x)))
        });
        let factor = ((u64::from(w) << 32) % u64::from(q)) as u32;
        [factor, factor.wrapping_mul(inverse)]
    }

    #[inline(always)]
    fn mul<V: Vector>(m: &Modulus<V>, a: V, w: Twiddle<V>) -> V {
        // a·factor - (a·companion mod 2^32)·q is divisible by 2^32: the low words are equal.
        let high = a.mul_high(w.factor);
        let excess = a.mul_low(w.companion).mul_high(m.q);
        Self::sub(m, high, excess)
    }

    #[inline(always)]
    fn add_sub<V: Vector, const BOUND: u32>(m: &Modulus<V>, u: V, v: V) -> (V, V) {
        (Self::add(m, u, v), Self::sub(m, u, v))
    }

    #[inline(always)]
    fn butterfly<V: Vector, const BOUND: u32>(m: &Modulus<V>, u: V, v: V, w: Twiddle<V>) -> (V, V) {
        Self::add_sub::<V, BOUND>(m, u, Self::mul(m, v, w))
    }

    #[inline(always)]
    fn inverse_add_sub<V: Vector>(m: &Modulus<V>, u: V, v: V) -> (V, V) {
        Self::add_sub::<V, 1>(m, u, v)
    }

    #[inline(always)]
    fn inverse_butterfly<V: Vector>(m: &Modulus<V>, u: V, v: V, w: Twiddle<V>) -> (V, V) {
        (Self::add(m, u, v), Self::mul(m, Self::sub(m, u, v), w))
    }

    #[inline(always)]
    fn add<V: Vector>(m: &Modulus<V>, u: V, v: V) -> V {
        Self::sub(m, u, m.q.sub(v))
    }

    #[inline(always)]
    fn below_twice<V: Vector>(_: &Modulus<V>, a: V) -> V {
        a
    }

    #[inline(always)]
    fn canonical<V: Vector>(_: &Modulus<V>, a: V) -> V {
        a
    }
}
