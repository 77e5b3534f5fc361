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
//!
//! Where 2^52 is 7.99·q at least, transforms are [`Lazy`]: products after Shoup, of which everything counts modulo 2^52 alone, so that the two low
//! halves are added to x on the way, without a look at what they carry beyond 52 bits. With c = floor(w·2^52/q) and t = floor(y·c/2^52),
//! r = w·y - t·q is in [0, 2q) for any word y below 2^52; a butterfly is x + r and x + 2q - r, six operations, and elements grow by 2q a level.
//! One in two is settled where they would pass 2^52, which [`super::tables`] counts: x - q·floor(x/q), in [0, q] but for a unit, takes three.

use std::arch::x86_64::*;

use super::avx512::F64x8;
use super::double::{Doubles, Elements, Residues};
use super::kernel::{Field, Twiddle, Vector};
use super::tables::{Forms, Growth, Modulus};

const MASK: u64 = (1 << 52) - 1;

/// A twiddle: w·2^52 mod q and that over q modulo 2^52.
pub(super) fn twiddle(w: u64, q: u64) -> [u64; 2] {
    let v = ((u128::from(w) << 52) % u128::from(q)) as u64;
    [v, v.wrapping_mul(inverse(q)) & MASK]
}

/// A twiddle of [`Lazy`]: w and floor(w·2^52/q).
pub(super) fn shoup(w: u64, q: u64) -> [u64; 2] {
    [w, ((u128::from(w) << 52) / u128::from(q)) as u64]
}

/// The least 2^52/q of [`Lazy`]: what the inverse transform's elements stay below, in units of q.
const LAZY_LIMIT: f64 = 7.99;

/// Whether transforms modulo `q` are [`Lazy`].
pub(super) fn is_lazy(q: u64) -> bool {
    limit(q) >= LAZY_LIMIT
}

/// 2^52 in units of q.
fn limit(q: u64) -> f64 {
    (1u64 << 52) as f64 / q as f64
}

/// The forms of [`Integers`].
pub(super) fn forms() -> Forms<u64> {
    Forms {
        compact: Some(|w, q| twiddle(w, q)[0]),
        ..Forms::uniform(twiddle, Growth::NONE)
    }
}

/// The forms of [`Lazy`]. Elements grow by 2q a level.
pub(super) fn lazy_forms(q: u64) -> Forms<u64> {
    Forms {
        twiddle: shoup,
        growth: Growth {
            bound: 1.0,
            limit: limit(q),
            settled: 1.0 + 2.0 / q as f64,
            product: [2.0, 0.0],
        },
        ..forms()
    }
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
        words
    }

    #[inline(always)]
    fn enter_signed(self, words: F64x8) -> F64x8 {
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
        self.unite_pair(x, y, w)
    }

    #[inline(always)]
    unsafe fn divide_blocks<const SETTLE: bool>(
        self,
        x: [F64x8; 8],
        w: *const u64,
        roots: *const u64,
    ) -> [F64x8; 8] {
        // SAFETY: the caller's promise.
        unsafe { self.divide_compact(x, w, roots) }
    }

    #[inline(always)]
    unsafe fn unite_blocks(self, y: [F64x8; 8], w: *const u64, roots: *const u64) -> [F64x8; 8] {
        // SAFETY: the caller's promise.
        unsafe { self.unite_compact(y, w, roots) }
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

    /// Twelve products are below 12·q^2, at most 3·2^52·q, and 512 by weights below 2^32 are below 2^41·q: what is multiplied is below 4q, so below 2^52.
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
        self.enter_signed(self.doubles.settle(x).to_words())
    }
}

/// The arithmetic of transforms where 2^52 is [`LAZY_LIMIT`]·q at least. The working form is a word whose low 52 bits count.
#[derive(Clone, Copy)]
pub(super) struct Lazy {
    integers: Integers,
    /// -q modulo 2^52.
    negated: F64x8,
    /// 4q
    fourfold: F64x8,
    /// floor(2^(52 + s)/q), where q has s + 1 bits.
    reciprocal: F64x8,
    /// s
    shift: F64x8,
    /// -3·2^s
    thrice: F64x8,
    mask: F64x8,
}

impl Lazy {
    /// `x + w·y - t·q`, the latter two in [0, 2q) together.
    #[inline(always)]
    fn add_product_to(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> F64x8 {
        let quotient = high(zero(), y, w[1]);
        add_low(add_low(x, y, w[0]), quotient, self.negated)
    }

    /// In [0, q + 1], with `less` of zero: the reciprocal is rounded down by less than one, which counts for less than 2^-s in the quotient. With
    /// -k·2^s, k·q more.
    #[inline(always)]
    fn settle_from(self, x: F64x8, less: F64x8) -> F64x8 {
        let scaled = high(less, x, self.reciprocal);
        // SAFETY: as in `low`.
        let quotient = unsafe {
            F64x8(_mm512_castsi512_pd(_mm512_srav_epi64(
                _mm512_castpd_si512(scaled.0),
                _mm512_castpd_si512(self.shift.0),
            )))
        };
        add_low(x, quotient, self.negated)
    }

    /// `w·y` in [0, 2q).
    #[inline(always)]
    fn times(self, y: F64x8, w: Twiddle<F64x8>) -> F64x8 {
        self.add_product_to(zero(), y, w)
    }

    /// As a word below 2^52.
    #[inline(always)]
    fn settled_word(self, x: F64x8) -> F64x8 {
        // SAFETY: as in `low`.
        unsafe { F64x8(_mm512_and_pd(self.settle(x).0, self.mask.0)) }
    }
}

impl Field for Lazy {
    type Vector = F64x8;
    const SETTLES: bool = true;

    #[inline(always)]
    unsafe fn new(modulus: &Modulus<u64>) -> Self {
        let q = modulus.q;
        let shift = u64::from(q.ilog2());
        let reciprocal = ((1u128 << (52 + shift)) / u128::from(q)) as u64;
        // SAFETY: the caller's promise.
        unsafe {
            Lazy {
                integers: Integers::new(modulus),
                negated: F64x8::splat((1 << 52) - q),
                fourfold: F64x8::splat(4 * q),
                reciprocal: F64x8::splat(reciprocal),
                shift: F64x8::splat(shift),
                thrice: F64x8::splat((3u64 << shift).wrapping_neg()),
                mask: F64x8::splat(MASK),
            }
        }
    }

    #[inline(always)]
    fn enter(self, words: F64x8) -> F64x8 {
        words
    }

    #[inline(always)]
    fn enter_signed(self, words: F64x8) -> F64x8 {
        words.lift(self.integers.q)
    }

    #[inline(always)]
    fn leave(self, x: F64x8) -> F64x8 {
        self.settled_word(x).lower(self.integers.q)
    }

    #[inline(always)]
    fn settle(self, x: F64x8) -> F64x8 {
        self.settle_from(x, zero())
    }

    #[inline(always)]
    fn settle_sum(self, x: F64x8) -> F64x8 {
        self.settle(x)
    }

    #[inline(always)]
    fn butterfly(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8) {
        let sum = self.add_product_to(x, y, w);
        let twice = x.add_words(x).add_words(self.integers.twice);
        (sum, twice.sub_words(sum))
    }

    #[inline(always)]
    fn inverse_butterfly(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8) {
        let difference = self.difference(x, y);
        (self.sum(x, y), self.times(difference, w))
    }

    #[inline(always)]
    unsafe fn divide_blocks<const SETTLE: bool>(
        self,
        x: [F64x8; 8],
        w: *const u64,
        roots: *const u64,
    ) -> [F64x8; 8] {
        // SAFETY: the caller's promise.
        unsafe { self.divide_compact(x, w, roots) }
    }

    #[inline(always)]
    unsafe fn unite_blocks(self, y: [F64x8; 8], w: *const u64, roots: *const u64) -> [F64x8; 8] {
        // SAFETY: the caller's promise.
        unsafe { self.unite_compact(y, w, roots) }
    }

    #[inline(always)]
    fn mul(self, a: F64x8, b: F64x8) -> F64x8 {
        self.integers.mul(a, b)
    }

    #[inline(always)]
    fn scale(self, a: F64x8, w: Twiddle<F64x8>) -> F64x8 {
        self.integers.scale(a, w)
    }

    #[inline(always)]
    fn add(self, a: F64x8, b: F64x8) -> F64x8 {
        self.integers.add(a, b)
    }
}

impl Elements for Lazy {
    type Sum = [F64x8; 2];

    #[inline(always)]
    fn nothing(self) -> [F64x8; 2] {
        self.integers.nothing()
    }

    #[inline(always)]
    fn add_scaled(self, sum: [F64x8; 2], y: F64x8, w: Twiddle<F64x8>) -> [F64x8; 2] {
        self.integers.add_scaled(sum, y, w)
    }

    #[inline(always)]
    fn leave_scaled(self, sum: [F64x8; 2]) -> F64x8 {
        self.integers.leave_scaled(sum)
    }

    #[inline(always)]
    fn add_product(self, sum: [F64x8; 2], a: F64x8, b: F64x8) -> [F64x8; 2] {
        self.integers.add_product(sum, a, b)
    }

    #[inline(always)]
    fn leave_products(self, sum: [F64x8; 2]) -> F64x8 {
        self.integers.leave_products(sum)
    }

    #[inline(always)]
    fn doubles(self) -> Residues<F64x8> {
        self.integers.doubles()
    }

    #[inline(always)]
    fn value(self, x: F64x8) -> F64x8 {
        self.settled_word(x).to_doubles()
    }

    #[inline(always)]
    fn element(self, x: F64x8) -> F64x8 {
        self.integers.element(x)
    }
}

/// Tables of three words for each block of eight elements and direction in place of fourteen: transforms of many limbs read their tables from memory
/// that is farther than the second level of cache, and took twice the time.
///
/// The twiddles of a level are its first one, times roots of unity that are the same for all blocks: a fourth of a turn at the second level, a fourth,
/// an eighth and three eighths at the third. Elements are multiplied by the root first, then by the block's twiddle after Montgomery, whose companion
/// is one multiplication: 18 operations more for twelve butterflies.
trait Compact: Field<Vector = F64x8> {
    /// Multiplication after Montgomery.
    fn integers(self) -> Integers;
    /// An element that the first level multiplies by nothing, so large that three levels of [`Compact::pair`] leave no element below 0.
    fn raised(self, x: F64x8) -> F64x8;
    /// `(x + w·y, x - w·y)`, for a `w` after Montgomery.
    fn pair(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8);
    /// `root·y` below 2q.
    fn turned(self, y: F64x8, root: Twiddle<F64x8>) -> F64x8;
    /// `x + y` in the inverse transform.
    fn sum(self, x: F64x8, y: F64x8) -> F64x8;
    /// `x - y` in the inverse transform, as a word below 2^52.
    fn difference(self, x: F64x8, y: F64x8) -> F64x8;

    /// `(x + y, w·(x - y))`
    #[inline(always)]
    fn unite_pair(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8) {
        let difference = self.difference(x, y);
        (self.sum(x, y), self.integers().times(difference, w))
    }

    /// `(x + y, w·root·(x - y))`
    #[inline(always)]
    fn unite_turned(
        self,
        x: F64x8,
        y: F64x8,
        root: Twiddle<F64x8>,
        w: Twiddle<F64x8>,
    ) -> (F64x8, F64x8) {
        let difference = self.turned(self.difference(x, y), root);
        (self.sum(x, y), self.integers().times(difference, w))
    }

    /// The three twiddles of a block in each lane, with companions.
    ///
    /// # Safety
    /// `w` points to three vectors.
    #[inline(always)]
    unsafe fn twiddles(self, w: *const u64) -> [Twiddle<F64x8>; 3] {
        let inverse = self.integers().inverse;
        // SAFETY: the caller's promise.
        let [a, b, c] = unsafe {
            [
                F64x8::load(w),
                F64x8::load(w.add(F64x8::LANES)),
                F64x8::load(w.add(2 * F64x8::LANES)),
            ]
        };
        [
            [a, low(a, inverse)],
            [b, low(b, inverse)],
            [c, low(c, inverse)],
        ]
    }

    /// The roots of a fourth, an eighth and three eighths of a turn.
    ///
    /// # Safety
    /// `roots` points to three pairs of words.
    #[inline(always)]
    unsafe fn roots(roots: *const u64) -> [Twiddle<F64x8>; 3] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                [F64x8::splat(*roots), F64x8::splat(*roots.add(1))],
                [F64x8::splat(*roots.add(2)), F64x8::splat(*roots.add(3))],
                [F64x8::splat(*roots.add(4)), F64x8::splat(*roots.add(5))],
            ]
        }
    }

    /// # Safety
    /// As for [`Field::divide_blocks`].
    #[inline(always)]
    unsafe fn divide_compact(self, x: [F64x8; 8], w: *const u64, roots: *const u64) -> [F64x8; 8] {
        // SAFETY: the caller's promise.
        let ([w0, w1, w2], [fourth, eighth, eighths]) =
            unsafe { (self.twiddles(w), Self::roots(roots)) };
        let (a0, a4) = self.pair(self.raised(x[0]), x[4], w0);
        let (a2, a6) = self.pair(self.raised(x[2]), x[6], w0);
        let (a1, a5) = self.pair(self.raised(x[1]), x[5], w0);
        let (a3, a7) = self.pair(self.raised(x[3]), x[7], w0);
        let (b0, b2) = self.pair(a0, a2, w1);
        let (b1, b3) = self.pair(a1, a3, w1);
        let (b4, b6) = self.pair(a4, self.turned(a6, fourth), w1);
        let (b5, b7) = self.pair(a5, self.turned(a7, fourth), w1);
        let (y0, y1) = self.pair(b0, b1, w2);
        let (y2, y3) = self.pair(b2, self.turned(b3, fourth), w2);
        let (y4, y5) = self.pair(b4, self.turned(b5, eighth), w2);
        let (y6, y7) = self.pair(b6, self.turned(b7, eighths), w2);
        [y0, y1, y2, y3, y4, y5, y6, y7]
    }

    /// # Safety
    /// As for [`Field::unite_blocks`].
    #[inline(always)]
    unsafe fn unite_compact(self, y: [F64x8; 8], w: *const u64, roots: *const u64) -> [F64x8; 8] {
        // SAFETY: the caller's promise.
        let ([w0, w1, w2], [fourth, eighth, eighths]) =
            unsafe { (self.twiddles(w), Self::roots(roots)) };
        let (a0, a1) = self.unite_pair(y[0], y[1], w2);
        let (a2, a3) = self.unite_turned(y[2], y[3], fourth, w2);
        let (a4, a5) = self.unite_turned(y[4], y[5], eighth, w2);
        let (a6, a7) = self.unite_turned(y[6], y[7], eighths, w2);
        let (b0, b2) = self.unite_pair(a0, a2, w1);
        let (b1, b3) = self.unite_pair(a1, a3, w1);
        let (b4, b6) = self.unite_turned(a4, a6, fourth, w1);
        let (b5, b7) = self.unite_turned(a5, a7, fourth, w1);
        let (x0, x4) = self.unite_pair(self.settle(b0), self.settle(b4), w0);
        let (x1, x5) = self.unite_pair(b1, b5, w0);
        let (x2, x6) = self.unite_pair(b2, b6, w0);
        let (x3, x7) = self.unite_pair(b3, b7, w0);
        [
            self.settle_sum(x0),
            self.settle(x1),
            self.settle(x2),
            self.settle(x3),
            x4,
            x5,
            x6,
            x7,
        ]
    }
}

impl Compact for Integers {
    #[inline(always)]
    fn integers(self) -> Integers {
        self
    }

    /// Butterflies keep elements in their range.
    #[inline(always)]
    fn raised(self, x: F64x8) -> F64x8 {
        x
    }

    #[inline(always)]
    fn pair(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8) {
        self.butterfly(x, y, w)
    }

    #[inline(always)]
    fn turned(self, y: F64x8, root: Twiddle<F64x8>) -> F64x8 {
        self.times(y, root)
    }

    #[inline(always)]
    fn sum(self, x: F64x8, y: F64x8) -> F64x8 {
        x.add_words(y).lower(self.twice)
    }

    #[inline(always)]
    fn difference(self, x: F64x8, y: F64x8) -> F64x8 {
        x.add_words(self.twice).sub_words(y)
    }
}

impl Compact for Lazy {
    #[inline(always)]
    fn integers(self) -> Integers {
        self.integers
    }

    /// In [3q, 4q + 1].
    #[inline(always)]
    fn raised(self, x: F64x8) -> F64x8 {
        self.settle_from(x, self.thrice)
    }

    /// `x` changes by less than q.
    #[inline(always)]
    fn pair(self, x: F64x8, y: F64x8, w: Twiddle<F64x8>) -> (F64x8, F64x8) {
        let multiple = low(y, w[1]);
        let sum = high(x, y, w[0]).sub_words(high(zero(), multiple, self.integers.q));
        (sum, x.add_words(x).sub_words(sum))
    }

    #[inline(always)]
    fn turned(self, y: F64x8, root: Twiddle<F64x8>) -> F64x8 {
        self.times(y, root)
    }

    #[inline(always)]
    fn sum(self, x: F64x8, y: F64x8) -> F64x8 {
        x.add_words(y)
    }

    /// A test counts how large sums and differences become.
    #[inline(always)]
    fn difference(self, x: F64x8, y: F64x8) -> F64x8 {
        x.add_words(self.fourfold).sub_words(y)
    }
}

runners!("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx2,fma,bmi1,bmi2,lzcnt,popcnt");

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds of elements of [`Lazy`]'s inverse transform in units of q, where 2^52 is `LAZY_LIMIT` of them.
    fn butterfly(x: f64, y: f64) -> (f64, f64) {
        let difference = x + 4.0;
        assert!(y <= 4.0 && difference < LAZY_LIMIT && x + y < LAZY_LIMIT);
        (x + y, 1.0 + difference / LAZY_LIMIT)
    }

    /// The bounds of what a node of radix 8, 4 or 2 leaves of elements below `y`.
    fn unite(radix: usize, y: f64) -> Vec<f64> {
        const SETTLED: f64 = 1.0 + 1e-6;
        let (a0, a1) = butterfly(y, y);
        if radix == 2 {
            return vec![SETTLED, a1];
        }
        let (_, b2) = butterfly(a0, a0);
        let (b1, b3) = butterfly(a1, a1);
        if radix == 4 {
            return vec![SETTLED, b2, b3];
        }
        let products = [SETTLED, b1, b2, b3].map(|b| butterfly(b, b).1);
        [vec![SETTLED], products.to_vec()].concat()
    }

    /// Passes of radix 8 come first in the inverse transform, then two of radix 4 at most, or one of radix 2.
    #[test]
    fn lazy_elements_of_the_inverse_transform_stay_below_2_to_the_52() {
        let largest = |radix, bound| unite(radix, bound).into_iter().fold(1.5, f64::max);
        let eights = (0..10).fold(1.5, |bound, _| largest(8, bound));
        assert!(largest(8, eights) - eights < 1e-9);
        let fours = largest(4, largest(4, eights));
        assert!(fours.max(largest(2, eights)) < LAZY_LIMIT);
    }
}
