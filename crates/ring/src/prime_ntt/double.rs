//! Residues as f64, for primes below 2^50: integers of at most 53 bits, so that sums and differences are exact.
//!
//! A product x·w is h + l with h = fl(x·w) and l = x·w - h, both exact, from two multiplications (fused, the second).
//! The quotient c is the integer nearest to x·(w/q), with w/q rounded beforehand: adding 1.5·2^52 to a number below 2^51
//! rounds it to an integer. Then x·w - c·q = (h - c·q) + l, where h - c·q is one more fused operation, exact again since
//! the result is small. So a butterfly takes four multiplications and four additions.
//!
//! Bounds: with |w| <= q/2 and |x| <= 2^52, |x·w/q| is below 2^51, and w/q, rounded to within 2^-55, puts c off by at
//! most 1/8 more than the rounding. So products are within (1/2 + |x|/2^55)·q, at most 5/8·q, and in the forward
//! transform elements grow by as much a level; [`super::tables`] counts, and says which passes have to [`settle`] the
//! terms x of their first butterflies `x ± w·y` first. The sums x + y of the inverse transform double; there it is
//! fixed which of them are settled: from elements within q, no difference exceeds 4·q.
//!
//! [`settle`]: Field::settle

use super::kernel::{Field, Finish, Start, Twiddle, VECTORS, Vector, WordOf};
use super::tables::{Growth, Modulus};

/// 1.5·2^52: the double in whose binade the unit is 1, up and down by 2^51.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;

/// The largest element that may be multiplied.
const LIMIT: f64 = 4_503_599_627_370_496.0;

/// Lanes of f64; as [`Vector`], of their bits.
pub trait Doubles: Vector<Word = u64> {
    /// Asks for the line of the cache at `at`, which need not be readable.
    fn prefetch(at: *const u64);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self·factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// `self·factor - subtrahend`, rounded once.
    fn mul_sub(self, factor: Self, subtrahend: Self) -> Self;
    /// `addend - self·factor`, rounded once.
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self;
    /// From signed words within 2^51.
    fn to_doubles(self) -> Self;
    /// To signed words, from integers within 2^51.
    fn to_words(self) -> Self;
    /// On signed words: `self`, or `self + q` where it is negative.
    fn lift(self, q: Self) -> Self;
    /// On unsigned words below 2^63: `self`, or `self - q` where that is not negative.
    fn lower(self, q: Self) -> Self;
    /// On words.
    fn add_words(self, other: Self) -> Self;
    /// On words.
    fn sub_words(self, other: Self) -> Self;
}

/// A twiddle: w in [-q/2, q/2] and w/q, as bits.
pub(super) fn twiddle(w: u64, q: u64) -> [u64; 2] {
    let centered = centered(w, q);
    [centered.to_bits(), (centered / q as f64).to_bits()]
}

/// How elements grow: products are within (1/2 + |x|/2^55)·q.
pub(super) fn growth(q: u64) -> Growth {
    Growth {
        bound: 1.0,
        limit: LIMIT / q as f64,
        settled: 0.5 + 1e-6,
        product: [0.5, 0.125],
    }
}

/// The representative of `w` nearest to zero.
fn centered(w: u64, q: u64) -> f64 {
    if w > q / 2 {
        -((q - w) as f64)
    } else {
        w as f64
    }
}

/// The arithmetic. The working form is an integer within 2^52.
#[derive(Clone, Copy)]
pub struct Residues<V> {
    q: V,
    /// q as a word.
    q_word: V,
    /// 1/q
    inverse: V,
    round: V,
}

impl<V: Doubles> Residues<V> {
    /// `x·y - c·q` for a quotient `c`.
    #[inline(always)]
    fn remainder(self, x: V, y: V, quotient: V) -> V {
        let high = x.mul(y);
        let low = x.mul_sub(y, high);
        quotient.neg_mul_add(self.q, high).add(low)
    }

    /// `w·y`
    #[inline(always)]
    fn times(self, y: V, w: Twiddle<V>) -> V {
        let quotient = y.mul_add(w[1], self.round).sub(self.round);
        self.remainder(y, w[0], quotient)
    }

    /// `x·y + sum` within 1.5·q, where |x·y| is within 2.3/2·q^2 and the sum within 1.5·q.
    ///
    /// The quotient is that of h, with an error of 0.3 since h and 1/q are rounded, plus the sum's own.
    #[inline(always)]
    fn product_and_sum(self, x: V, y: V, sum: V) -> V {
        let high = x.mul(y);
        let low = x.mul_sub(y, high);
        let own = sum.mul_add(self.inverse, self.round);
        let quotient = high.mul_add(self.inverse, own).sub(self.round);
        quotient.neg_mul_add(self.q, high).add(low).add(sum)
    }

    /// Of the product of canonical words.
    #[inline(always)]
    fn product(self, x: V, y: V) -> V {
        let quotient = x.mul(y).mul_add(self.inverse, self.round).sub(self.round);
        self.remainder(x, y, quotient)
    }
}

impl<V: Doubles> Field for Residues<V> {
    type Vector = V;
    const SETTLES: bool = true;

    #[inline(always)]
    unsafe fn new(modulus: &Modulus<u64>) -> Self {
        let q = modulus.q as f64;
        // SAFETY: the caller's promise.
        unsafe {
            Residues {
                q: V::splat(q.to_bits()),
                q_word: V::splat(modulus.q),
                inverse: V::splat((1.0 / q).to_bits()),
                round: V::splat(ROUND.to_bits()),
            }
        }
    }

    #[inline(always)]
    fn enter(self, words: V) -> V {
        words.to_doubles()
    }

    #[inline(always)]
    fn leave(self, x: V) -> V {
        self.settle(x).to_words().lift(self.q_word)
    }

    #[inline(always)]
    fn settle(self, x: V) -> V {
        let quotient = x.mul_add(self.inverse, self.round).sub(self.round);
        quotient.neg_mul_add(self.q, x)
    }

    #[inline(always)]
    fn butterfly(self, x: V, y: V, w: Twiddle<V>) -> (V, V) {
        let y = self.times(y, w);
        (x.add(y), x.sub(y))
    }

    #[inline(always)]
    fn inverse_butterfly(self, x: V, y: V, w: Twiddle<V>) -> (V, V) {
        (x.add(y), self.times(x.sub(y), w))
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        self.leave(self.product(self.settle(a.to_doubles()), b.to_doubles()))
    }

    #[inline(always)]
    fn scale(self, a: V, w: Twiddle<V>) -> V {
        self.leave(self.times(a.to_doubles(), w))
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        a.add_words(b).lower(self.q_word)
    }
}

/// Products that are summed before a sum is folded.
const PRODUCTS: usize = 8;

/// Fields of primes below 2^50, between whose elements and f64 there is a way, with sums of products,
/// [`Ntt50Plan::TERMS`](super::Ntt50Plan::TERMS) at most, that are reduced once.
pub trait Elements: Field<Vector: Doubles> {
    /// A sum of products on its way.
    type Sum: Copy;
    /// Whether [`Elements::fold`] does anything. Otherwise sums have room for 512 products by weights below 2^32.
    const FOLDS: bool = false;

    /// A sum of nothing.
    fn nothing(self) -> Self::Sum;
    /// `sum + w·y`, for a word `y` below 2^50.
    fn add_scaled(self, sum: Self::Sum, y: Self::Vector, w: Twiddle<Self::Vector>) -> Self::Sum;
    /// The canonical words of a sum of [`Elements::add_scaled`].
    fn leave_scaled(self, sum: Self::Sum) -> Self::Vector;
    /// `sum + a·b`, for canonical words.
    fn add_product(self, sum: Self::Sum, a: Self::Vector, b: Self::Vector) -> Self::Sum;
    /// Makes room in a sum for [`PRODUCTS`] further products.
    #[inline(always)]
    fn fold(self, sum: Self::Sum) -> Self::Sum {
        sum
    }
    /// The canonical words of a sum of [`Elements::add_product`].
    fn leave_products(self, sum: Self::Sum) -> Self::Vector;
    /// The arithmetic on f64.
    fn doubles(self) -> Residues<Self::Vector>;
    /// From the working form after the forward transform to an f64 within 2.3·q.
    fn value(self, x: Self::Vector) -> Self::Vector;
    /// From an f64 within 1.5·q to the working form before the inverse transform.
    fn element(self, x: Self::Vector) -> Self::Vector;
}

impl<V: Doubles> Elements for Residues<V> {
    type Sum = V;
    const FOLDS: bool = true;

    #[inline(always)]
    fn nothing(self) -> V {
        self.q.sub(self.q)
    }

    /// Products are within 5/8·q, so that a sum is within 7.5·q, below 2^53.
    #[inline(always)]
    fn add_scaled(self, sum: V, y: V, w: Twiddle<V>) -> V {
        sum.add(self.times(y.to_doubles(), w))
    }

    #[inline(always)]
    fn leave_scaled(self, sum: V) -> V {
        self.leave(sum)
    }

    /// The quotient is that of h, off by 1/4 at most since h and 1/q are rounded. So products are within 3/4·q, and a sum of
    /// nine, or of eight and a folded one, is within 6.8·q, below 2^53.
    #[inline(always)]
    fn add_product(self, sum: V, a: V, b: V) -> V {
        sum.add(self.product(a.to_doubles(), b.to_doubles()))
    }

    #[inline(always)]
    fn fold(self, sum: V) -> V {
        self.settle(sum)
    }

    #[inline(always)]
    fn leave_products(self, sum: V) -> V {
        self.leave(sum)
    }

    #[inline(always)]
    fn doubles(self) -> Residues<V> {
        self
    }

    #[inline(always)]
    fn value(self, x: V) -> V {
        x
    }

    #[inline(always)]
    fn element(self, x: V) -> V {
        self.settle(x)
    }
}

/// `sums[c] += values·keys[c]` (or `=` without `ADD`) for each of `columns` polynomials of `degree` words in a row.
///
/// Keys and sums are f64 in the order of the leaves' columns; keys within q/2, sums within 1.5·q.
#[derive(Clone, Copy)]
pub(super) struct MulAdd<const ADD: bool> {
    pub(super) keys: *const u64,
    pub(super) sums: *mut u64,
    pub(super) columns: usize,
    pub(super) degree: usize,
}

/// How many leaves ahead a key is asked for: its memory's latency, in the time that a leaf takes.
const LEAVES_AHEAD: usize = 6;

impl<F: Elements, const ADD: bool> Finish<F> for MulAdd<ADD> {
    #[inline(always)]
    fn settled(self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn finish(self, f: F, _: *mut u64, start: usize, columns: [F::Vector; 8]) {
        let mut columns = columns;
        for x in &mut columns {
            *x = f.value(*x);
        }
        let f = f.doubles();
        for column in 0..self.columns {
            let at = column * self.degree + start;
            for (r, x) in columns.into_iter().enumerate() {
                let at = at + r * F::Vector::LANES;
                F::Vector::prefetch(
                    self.keys
                        .wrapping_add(at + LEAVES_AHEAD * VECTORS * F::Vector::LANES),
                );
                // SAFETY: the promise of whoever made `self`, and the caller's.
                unsafe {
                    let key = F::Vector::load(self.keys.add(at));
                    let sum = if ADD {
                        f.product_and_sum(x, key, F::Vector::load(self.sums.add(at)))
                    } else {
                        f.product(x, key)
                    };
                    sum.store(self.sums.add(at));
                }
            }
        }
    }
}

/// Reads sums of [`MulAdd`].
#[derive(Clone, Copy)]
pub(super) struct Sums;

impl<F: Elements> Start<F> for Sums {
    #[inline(always)]
    unsafe fn start(self, f: F, a: *const u64, start: usize) -> [F::Vector; 8] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut x = [F::Vector::load(a.add(start)); VECTORS];
            for (r, x) in x.iter_mut().enumerate() {
                *x = f.element(F::Vector::load(a.add(start + r * F::Vector::LANES)));
            }
            x
        }
    }
}

/// Canonical words in their places to f64 within q/2 in the order of the leaves' columns.
///
/// # Safety
/// The length of `key` is a multiple of `8·LANES`; the processor runs `V`.
#[inline(always)]
pub(super) unsafe fn prepare_key<V: Doubles>(
    modulus: &Modulus<WordOf<Residues<V>>>,
    key: &mut [u64],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = Residues::<V>::new(modulus);
        for start in (0..key.len()).step_by(VECTORS * V::LANES) {
            let at = key.as_mut_ptr().add(start);
            let columns = super::kernel::load_leaf(f, at);
            for (r, x) in columns.into_iter().enumerate() {
                f.settle(x).store(at.add(r * V::LANES));
            }
        }
    }
}

/// `sum += other`, of sums of [`MulAdd`], within q.
///
/// # Safety
/// The slices have the same length, a multiple of the lanes; the processor runs `V`.
#[inline(always)]
pub(super) unsafe fn add_sum<V: Doubles>(
    modulus: &Modulus<WordOf<Residues<V>>>,
    sum: &mut [u64],
    other: &[u64],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = Residues::<V>::new(modulus);
        for at in (0..sum.len()).step_by(V::LANES) {
            let to = sum.as_mut_ptr().add(at);
            let other = V::load(other.as_ptr().add(at));
            f.settle(V::load(to).add(other)).store(to);
        }
    }
}

/// `out = sum_r weights[r]·rows[r]`: words below 2^50.
///
/// # Safety
/// The length of `out` is a multiple of the lanes, each row has that many words, and there are as many rows as weights,
/// [`Ntt50Plan::TERMS`](super::Ntt50Plan::TERMS) at most; the processor runs `F`.
#[inline(always)]
pub(super) unsafe fn combine<F: Elements>(
    modulus: &Modulus<u64>,
    out: &mut [u64],
    rows: &[&[u64]],
    weights: &[[u64; 2]],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = F::new(modulus);
        let block = BLOCK * F::Vector::LANES;
        let whole = out.len() / block * block;
        for at in (0..whole).step_by(block) {
            combine_block::<F, BLOCK>(f, out, rows, weights, at);
        }
        for at in (whole..out.len()).step_by(F::Vector::LANES) {
            combine_block::<F, 1>(f, out, rows, weights, at);
        }
    }
}

/// Vectors whose sums [`combine`] makes side by side, so that weights are read once for all of them.
const BLOCK: usize = 4;

/// The `B` vectors from `at` on.
///
/// # Safety
/// They lie in `out` and in each row; the rest as for [`combine`].
#[inline(always)]
unsafe fn combine_block<F: Elements, const B: usize>(
    f: F,
    out: &mut [u64],
    rows: &[&[u64]],
    weights: &[[u64; 2]],
    at: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [f.nothing(); B];
        for (row, w) in rows.iter().zip(weights) {
            let w = [F::Vector::splat(w[0]), F::Vector::splat(w[1])];
            for (i, sum) in sums.iter_mut().enumerate() {
                let y = F::Vector::load(row.as_ptr().add(at + i * F::Vector::LANES));
                *sum = f.add_scaled(*sum, y, w);
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            let to = out.as_mut_ptr().add(at + i * F::Vector::LANES);
            f.leave_scaled(sum).store(to);
        }
    }
}

/// How many words ahead [`dot`] asks for its rows: rows are many, and each starts anew with every page.
const WORDS_AHEAD: usize = 128;

/// `out = sum_r a[r] ⊙ b[r] + w·c` for a term (c, w) in `scaled`, all canonical.
///
/// # Safety
/// All slices have one length, a multiple of the lanes; there are [`Ntt50Plan::TERMS`](super::Ntt50Plan::TERMS) terms at most; the processor runs `F`.
#[inline(always)]
pub(super) unsafe fn dot<F: Elements>(
    modulus: &Modulus<u64>,
    out: &mut [u64],
    terms: &[(&[u64], &[u64])],
    scaled: Option<(&[u64], u64)>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = F::new(modulus);
        for at in (0..out.len()).step_by(F::Vector::LANES) {
            let mut sum = f.nothing();
            if let Some((c, w)) = scaled {
                let c = F::Vector::load(c.as_ptr().add(at));
                sum = f.add_product(sum, c, F::Vector::splat(w));
            }
            for (number, terms) in terms.chunks(PRODUCTS).enumerate() {
                if number > 0 {
                    sum = f.fold(sum);
                }
                for (a, b) in terms {
                    // The next parts of long rows are where these go on.
                    F::Vector::prefetch(a.as_ptr().wrapping_add(at + WORDS_AHEAD));
                    F::Vector::prefetch(b.as_ptr().wrapping_add(at + WORDS_AHEAD));
                    let a = F::Vector::load(a.as_ptr().add(at));
                    let b = F::Vector::load(b.as_ptr().add(at));
                    sum = f.add_product(sum, a, b);
                }
            }
            f.leave_products(sum).store(out.as_mut_ptr().add(at));
        }
    }
}

/// Vectors whose sums [`weigh`] makes side by side, for each row.
const WEIGHED: usize = 2;

/// `out_r = w·sum_k rows[r][k]·values_k`: parts of values stand one after the other in `values`, those of results in `out`. Weights are canonical and below 2^32.
///
/// # Safety
/// A part is a multiple of [`WEIGHED`] vectors, `out` has `R` of them, `values` as many as each row has weights; the processor runs `F`.
#[inline(always)]
pub(super) unsafe fn weigh<F: Elements, const R: usize>(
    modulus: &Modulus<u64>,
    out: &mut [u64],
    values: &[u64],
    rows: [&[u64]; R],
    w: [u64; 2],
) {
    let part = out.len() / R;
    let (lanes, count) = (F::Vector::LANES, rows[0].len());
    // SAFETY: the caller's promise.
    unsafe {
        let f = F::new(modulus);
        let w = [F::Vector::splat(w[0]), F::Vector::splat(w[1])];
        for at in (0..part).step_by(WEIGHED * lanes) {
            let mut sums = [[f.nothing(); WEIGHED]; R];
            for start in (0..count).step_by(PRODUCTS) {
                // A loop over sums on their way has the compiler keep them in memory, even where it does nothing: sums on f64 alone pay for it.
                if F::FOLDS && start > 0 {
                    for sum in sums.as_flattened_mut() {
                        *sum = f.fold(*sum);
                    }
                }
                for k in start..count.min(start + PRODUCTS) {
                    let from = values.as_ptr().add(k * part + at);
                    let words: [F::Vector; WEIGHED] =
                        [F::Vector::load(from), F::Vector::load(from.add(lanes))];
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        let weight = F::Vector::splat(*row.as_ptr().add(k));
                        for (sum, words) in sums.iter_mut().zip(words) {
                            *sum = f.add_product(*sum, words, weight);
                        }
                    }
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (i, sum) in sums.into_iter().enumerate() {
                    let to = out.as_mut_ptr().add(r * part + at + i * lanes);
                    f.scale(f.leave_products(sum), w).store(to);
                }
            }
        }
    }
}

/// `a = w·(a - b)`, all canonical.
///
/// # Safety
/// The slices have the same length, a multiple of the lanes; the processor runs `F`.
#[inline(always)]
pub(super) unsafe fn sub_scale_assign<F: Elements>(
    modulus: &Modulus<u64>,
    a: &mut [u64],
    b: &[u64],
    w: [u64; 2],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = F::new(modulus);
        let w = [F::Vector::splat(w[0]), F::Vector::splat(w[1])];
        let q = F::Vector::splat(modulus.q);
        for at in (0..a.len()).step_by(F::Vector::LANES) {
            let to = a.as_mut_ptr().add(at);
            let b = F::Vector::load(b.as_ptr().add(at));
            let difference = F::Vector::load(to).add_words(q).sub_words(b);
            f.scale(difference, w).store(to);
        }
    }
}
