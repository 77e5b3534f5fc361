//! The passes of the transforms, written once over [`Field`]: vectors of residues and their butterflies.
//!
//! Everything here is `#[inline(always)]`: it becomes part of the functions in `avx2.rs` and `avx512.rs`, which are
//! compiled for their instruction set.

use super::tables::{Modulus, Pass, Tables};
use super::word::Word;

/// Vectors of the blocks that the last pass, the leaf, takes apart in registers.
pub(super) const VECTORS: usize = 8;

/// Words before the per-lane twiddles of a leaf: the pairs of its first step, filled up to whole lines of the cache.
pub(super) const fn across_words(lanes: usize) -> usize {
    if lanes == 4 { 8 } else { 16 }
}

/// A twiddle and its companion, which makes the quotient of a product by the modulus a product too.
pub type Twiddle<V> = [V; 2];

/// A vector of lanes. A value exists only where its instruction set does, which is what the constructors
/// [`splat`](Vector::splat) and [`load`](Vector::load) ask of their callers; the other methods rely on it.
pub trait Vector: Copy {
    type Word: Word;
    const LANES: usize;
    /// # Safety
    /// The processor must have the instruction set of this vector.
    unsafe fn splat(x: Self::Word) -> Self;
    /// # Safety
    /// As for [`Vector::splat`], and `LANES` words must be readable at `from`.
    unsafe fn load(from: *const Self::Word) -> Self;
    /// # Safety
    /// `LANES` words must be writable at `to`.
    unsafe fn store(self, to: *mut Self::Word);
    /// From rows of blocks of eight words, as the kernel loads them, to vectors of their words `0`, `1`, ... `7`;
    /// [`Vector::block_of_lane`] says which block is in which lane.
    fn transpose(rows: [Self; 8]) -> [Self; 8];
    /// Undoes [`Vector::transpose`].
    fn transpose_back(columns: [Self; 8]) -> [Self; 8];
    /// The lower halves of both vectors, then the upper halves; undoes itself.
    fn halves(self, other: Self) -> (Self, Self);
    /// Which of the `LANES` blocks of eight consecutive words of a leaf is in a lane of the columns. With 16 lanes the
    /// rows have been through [`Vector::halves`], pair by pair.
    fn block_of_lane(lane: usize) -> usize;
}

/// Arithmetic modulo q on vectors.
///
/// The working form of an element, between passes, is any representative in a range that the implementation states.
pub trait Field: Copy {
    type Vector: Vector;
    /// Whether [`Field::settle`] does anything.
    const SETTLES: bool;

    /// # Safety
    /// The processor must have the instruction set of [`Field::Vector`].
    unsafe fn new(modulus: &Modulus<<Self::Vector as Vector>::Word>) -> Self;
    /// Canonical words to the working form.
    fn enter(self, words: Self::Vector) -> Self::Vector;
    /// What the forward transform starts from to the working form: canonical words, and for primes below 2^50 any signed words between -q and q.
    #[inline(always)]
    fn enter_signed(self, words: Self::Vector) -> Self::Vector {
        self.enter(words)
    }
    /// The working form to canonical words.
    fn leave(self, x: Self::Vector) -> Self::Vector;
    /// The smallest working form, where butterflies do not keep the working form within its range.
    fn settle(self, x: Self::Vector) -> Self::Vector;
    /// The sum of two settled elements, as the inverse transform's passes leave it.
    #[inline(always)]
    fn settle_sum(self, x: Self::Vector) -> Self::Vector {
        x
    }
    /// `(x + w·y, x - w·y)`
    fn butterfly(
        self,
        x: Self::Vector,
        y: Self::Vector,
        w: Twiddle<Self::Vector>,
    ) -> (Self::Vector, Self::Vector);
    /// `(x + y, w·(x - y))`
    fn inverse_butterfly(
        self,
        x: Self::Vector,
        y: Self::Vector,
        w: Twiddle<Self::Vector>,
    ) -> (Self::Vector, Self::Vector);
    /// The last step of a leaf: blocks of eight elements, one in each lane, down to single ones. `w` are the twiddles of the step, `roots` those of the
    /// first three nodes, as [`Tables`] has them.
    ///
    /// # Safety
    /// `w` and `roots` point to what tables for this field have there.
    #[inline(always)]
    unsafe fn divide_blocks<const SETTLE: bool>(
        self,
        x: [Self::Vector; 8],
        w: *const WordOf<Self>,
        roots: *const WordOf<Self>,
    ) -> [Self::Vector; 8] {
        let _ = roots;
        x.divide::<SETTLE>(self, PerLane(w))
    }
    /// Undoes [`Field::divide_blocks`], but for a factor.
    ///
    /// # Safety
    /// As for [`Field::divide_blocks`].
    #[inline(always)]
    unsafe fn unite_blocks(
        self,
        y: [Self::Vector; 8],
        w: *const WordOf<Self>,
        roots: *const WordOf<Self>,
    ) -> [Self::Vector; 8] {
        let _ = roots;
        y.unite::<false>(self, PerLane(w))
    }
    /// The canonical product of canonical words.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The canonical product of a twiddle and canonical words.
    fn scale(self, a: Self::Vector, w: Twiddle<Self::Vector>) -> Self::Vector;
    /// The canonical sum of canonical words.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

pub type WordOf<F> = <<F as Field>::Vector as Vector>::Word;

/// Divides a node, `f mod (X^R·k - z)`, into R nodes of degree k.
trait Radix<F: Field>: Sized {
    fn divide<const SETTLE: bool>(self, f: F, w: impl Twiddles<F>) -> Self;
    /// Puts the nodes together again; `LAST` says that the result need not be within the range of the working form.
    fn unite<const LAST: bool>(self, f: F, w: impl Twiddles<F>) -> Self;
}

/// The twiddles of the levels of a radix, the root's first; read as late as possible, since registers are few.
trait Twiddles<F: Field>: Copy {
    fn get(self, i: usize) -> Twiddle<F::Vector>;
}

/// The same twiddle in all lanes: pairs of words at the pointer, which points to all that are asked for.
#[derive(Clone, Copy)]
struct Splat<W>(*const W);

/// A twiddle for each lane: pairs of vectors at the pointer.
#[derive(Clone, Copy)]
struct PerLane<W>(*const W);

impl<F: Field> Twiddles<F> for Splat<WordOf<F>> {
    #[inline(always)]
    fn get(self, i: usize) -> Twiddle<F::Vector> {
        // SAFETY: whoever made `self` promised this twiddle and the instruction set.
        unsafe {
            [
                F::Vector::splat(*self.0.add(2 * i)),
                F::Vector::splat(*self.0.add(2 * i + 1)),
            ]
        }
    }
}

impl<F: Field> Twiddles<F> for PerLane<WordOf<F>> {
    #[inline(always)]
    fn get(self, i: usize) -> Twiddle<F::Vector> {
        // SAFETY: whoever made `self` promised this twiddle and the instruction set.
        unsafe {
            let at = self.0.add(2 * i * F::Vector::LANES);
            [
                F::Vector::load(at),
                F::Vector::load(at.add(F::Vector::LANES)),
            ]
        }
    }
}

#[inline(always)]
fn settle_if<F: Field, const SETTLE: bool>(f: F, x: F::Vector) -> F::Vector {
    if SETTLE { f.settle(x) } else { x }
}

impl<F: Field> Radix<F> for [F::Vector; 2] {
    #[inline(always)]
    fn divide<const SETTLE: bool>(self, f: F, w: impl Twiddles<F>) -> Self {
        let (y0, y1) = f.butterfly(settle_if::<F, SETTLE>(f, self[0]), self[1], w.get(0));
        [y0, y1]
    }

    #[inline(always)]
    fn unite<const LAST: bool>(self, f: F, w: impl Twiddles<F>) -> Self {
        let (x0, x1) = f.inverse_butterfly(self[0], self[1], w.get(0));
        if LAST { [x0, x1] } else { [f.settle(x0), x1] }
    }
}

impl<F: Field> Radix<F> for [F::Vector; 4] {
    #[inline(always)]
    fn divide<const SETTLE: bool>(self, f: F, w: impl Twiddles<F>) -> Self {
        let x = self;
        let (a0, a2) = f.butterfly(settle_if::<F, SETTLE>(f, x[0]), x[2], w.get(0));
        let (a1, a3) = f.butterfly(settle_if::<F, SETTLE>(f, x[1]), x[3], w.get(0));
        let (y0, y1) = f.butterfly(a0, a1, w.get(1));
        let (y2, y3) = f.butterfly(a2, a3, w.get(2));
        [y0, y1, y2, y3]
    }

    /// From representatives within q (see [`super::double`]) to some within 0.6·q.
    #[inline(always)]
    fn unite<const LAST: bool>(self, f: F, w: impl Twiddles<F>) -> Self {
        let y = self;
        let (a0, a1) = f.inverse_butterfly(y[0], y[1], w.get(1));
        let (a2, a3) = f.inverse_butterfly(y[2], y[3], w.get(2));
        let (x0, x2) = f.inverse_butterfly(a0, a2, w.get(0));
        let (x1, x3) = f.inverse_butterfly(a1, a3, w.get(0));
        if LAST {
            [x0, x1, x2, x3]
        } else {
            [f.settle(x0), f.settle(x1), x2, x3]
        }
    }
}

impl<F: Field> Radix<F> for [F::Vector; 8] {
    #[inline(always)]
    fn divide<const SETTLE: bool>(self, f: F, w: impl Twiddles<F>) -> Self {
        let x = self;
        let (a0, a4) = f.butterfly(settle_if::<F, SETTLE>(f, x[0]), x[4], w.get(0));
        let (a2, a6) = f.butterfly(settle_if::<F, SETTLE>(f, x[2]), x[6], w.get(0));
        let (a1, a5) = f.butterfly(settle_if::<F, SETTLE>(f, x[1]), x[5], w.get(0));
        let (a3, a7) = f.butterfly(settle_if::<F, SETTLE>(f, x[3]), x[7], w.get(0));
        let (b0, b2) = f.butterfly(a0, a2, w.get(1));
        let (b1, b3) = f.butterfly(a1, a3, w.get(1));
        let (b4, b6) = f.butterfly(a4, a6, w.get(2));
        let (b5, b7) = f.butterfly(a5, a7, w.get(2));
        let (y0, y1) = f.butterfly(b0, b1, w.get(3));
        let (y2, y3) = f.butterfly(b2, b3, w.get(4));
        let (y4, y5) = f.butterfly(b4, b5, w.get(5));
        let (y6, y7) = f.butterfly(b6, b7, w.get(6));
        [y0, y1, y2, y3, y4, y5, y6, y7]
    }

    /// From representatives within q (see [`super::double`]) to some within q.
    #[inline(always)]
    fn unite<const LAST: bool>(self, f: F, w: impl Twiddles<F>) -> Self {
        let y = self;
        let (a0, a1) = f.inverse_butterfly(y[0], y[1], w.get(3));
        let (a2, a3) = f.inverse_butterfly(y[2], y[3], w.get(4));
        let (a4, a5) = f.inverse_butterfly(y[4], y[5], w.get(5));
        let (a6, a7) = f.inverse_butterfly(y[6], y[7], w.get(6));
        let (b0, b2) = f.inverse_butterfly(a0, a2, w.get(1));
        let (b1, b3) = f.inverse_butterfly(a1, a3, w.get(1));
        let (b4, b6) = f.inverse_butterfly(a4, a6, w.get(2));
        let (b5, b7) = f.inverse_butterfly(a5, a7, w.get(2));
        let (x0, x4) = f.inverse_butterfly(f.settle(b0), f.settle(b4), w.get(0));
        let (x1, x5) = f.inverse_butterfly(b1, b5, w.get(0));
        let (x2, x6) = f.inverse_butterfly(b2, b6, w.get(0));
        let (x3, x7) = f.inverse_butterfly(b3, b7, w.get(0));
        if LAST {
            [x0, x1, x2, x3, x4, x5, x6, x7]
        } else {
            [
                f.settle_sum(x0),
                f.settle(x1),
                f.settle(x2),
                f.settle(x3),
                x4,
                x5,
                x6,
                x7,
            ]
        }
    }
}

/// Divides one node of `size` elements into `R`, column by column; with `FIRST` from the caller's words.
///
/// # Safety
/// `size` words are valid at `a`, `size / R` a multiple of the lanes; `w` has R - 1 twiddles.
#[inline(always)]
unsafe fn divide_columns<F: Field, const R: usize, const FIRST: bool, const SETTLE: bool>(
    f: F,
    a: *mut WordOf<F>,
    size: usize,
    w: Splat<WordOf<F>>,
) where
    [F::Vector; R]: Radix<F>,
{
    let step = size / R;
    for at in (0..step).step_by(F::Vector::LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let a = a.add(at);
            let mut x = [F::Vector::load(a); R];
            for (r, x) in x.iter_mut().enumerate() {
                *x = F::Vector::load(a.add(r * step));
                if FIRST {
                    *x = f.enter_signed(*x);
                }
            }
            for (r, y) in x.divide::<SETTLE>(f, w).into_iter().enumerate() {
                y.store(a.add(r * step));
            }
        }
    }
}

/// Puts one node of `size` elements together from `R`; with `LAST` to canonical words.
///
/// # Safety
/// As for [`divide_columns`].
#[inline(always)]
unsafe fn unite_columns<F: Field, const R: usize, const LAST: bool>(
    f: F,
    a: *mut WordOf<F>,
    size: usize,
    w: Splat<WordOf<F>>,
) where
    [F::Vector; R]: Radix<F>,
{
    let step = size / R;
    for at in (0..step).step_by(F::Vector::LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let a = a.add(at);
            let mut y = [F::Vector::load(a); R];
            for (r, y) in y.iter_mut().enumerate() {
                *y = F::Vector::load(a.add(r * step));
            }
            for (r, mut x) in y.unite::<LAST>(f, w).into_iter().enumerate() {
                if LAST {
                    x = f.leave(x);
                }
                x.store(a.add(r * step));
            }
        }
    }
}

/// # Safety
/// `a` points to a node of the pass, `w` to its twiddles.
#[inline(always)]
unsafe fn divide_node<F: Field, const FIRST: bool, const SETTLE: bool>(
    f: F,
    pass: &Pass,
    a: *mut WordOf<F>,
    w: Splat<WordOf<F>>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match pass.radix {
            8 => divide_columns::<F, 8, FIRST, SETTLE>(f, a, pass.size, w),
            4 => divide_columns::<F, 4, FIRST, SETTLE>(f, a, pass.size, w),
            _ => divide_columns::<F, 2, FIRST, SETTLE>(f, a, pass.size, w),
        }
    }
}

/// # Safety
/// `a` points to a node of the pass, `w` to its twiddles.
#[inline(always)]
unsafe fn unite_node<F: Field, const LAST: bool>(
    f: F,
    pass: &Pass,
    a: *mut WordOf<F>,
    w: Splat<WordOf<F>>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match pass.radix {
            8 => unite_columns::<F, 8, LAST>(f, a, pass.size, w),
            4 => unite_columns::<F, 4, LAST>(f, a, pass.size, w),
            _ => unite_columns::<F, 2, LAST>(f, a, pass.size, w),
        }
    }
}

/// The first step of a leaf, across vectors: down to blocks of 8 elements, or of 16 with 16 lanes.
#[inline(always)]
fn divide_across<F: Field, const SETTLE: bool>(
    f: F,
    x: [F::Vector; 8],
    w: Splat<WordOf<F>>,
) -> [F::Vector; 8] {
    if F::Vector::LANES == 4 {
        let even = [x[0], x[2], x[4], x[6]].divide::<SETTLE>(f, w);
        let odd = [x[1], x[3], x[5], x[7]].divide::<SETTLE>(f, w);
        [
            even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3],
        ]
    } else {
        x.divide::<SETTLE>(f, w)
    }
}

/// Undoes [`divide_across`], but for a factor.
#[inline(always)]
fn unite_across<F: Field>(f: F, y: [F::Vector; 8], w: Splat<WordOf<F>>) -> [F::Vector; 8] {
    if F::Vector::LANES == 4 {
        let even = [y[0], y[2], y[4], y[6]].unite::<false>(f, w);
        let odd = [y[1], y[3], y[5], y[7]].unite::<false>(f, w);
        [
            even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3],
        ]
    } else {
        y.unite::<false>(f, w)
    }
}

/// Takes a leaf of `8·LANES` elements down to single ones: across vectors, a transpose, across vectors again. Returns
/// columns, as [`Vector::transpose`] makes them. `FIRST` and `SECOND` say which steps settle.
///
/// # Safety
/// `a` points to the elements in working form, `w` to the twiddles of the leaf, `roots` to those of the first nodes.
#[inline(always)]
unsafe fn divide_leaf<F: Field, const FIRST: bool, const SECOND: bool>(
    f: F,
    a: *const WordOf<F>,
    w: *const WordOf<F>,
    roots: *const WordOf<F>,
) -> [F::Vector; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut x = [F::Vector::load(a); VECTORS];
        for (r, x) in x.iter_mut().enumerate() {
            *x = F::Vector::load(a.add(r * F::Vector::LANES));
        }
        x = divide_across::<F, FIRST>(f, x, Splat(w));
        let mut w = w.add(across_words(F::Vector::LANES));
        if F::Vector::LANES > 8 {
            for (i, pair) in x.chunks_exact_mut(2).enumerate() {
                let (low, high) = pair[0].halves(pair[1]);
                let twiddle = Twiddles::<F>::get(PerLane(w), i);
                (pair[0], pair[1]) = f.butterfly(low, high, twiddle);
            }
            w = w.add(VECTORS * F::Vector::LANES);
        }
        f.divide_blocks::<SECOND>(F::Vector::transpose(x), w, roots)
    }
}

/// # Safety
/// `8·LANES` words must be writable at `a`.
#[inline(always)]
unsafe fn store_leaf<F: Field>(f: F, a: *mut WordOf<F>, mut columns: [F::Vector; 8]) {
    for x in &mut columns {
        *x = f.leave(*x);
    }
    let mut x = F::Vector::transpose_back(columns);
    if F::Vector::LANES > 8 {
        for pair in x.chunks_exact_mut(2) {
            (pair[0], pair[1]) = pair[0].halves(pair[1]);
        }
    }
    for (r, x) in x.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { x.store(a.add(r * F::Vector::LANES)) }
    }
}

/// Undoes [`divide_leaf`] (but for a factor) from columns in working form to `8·LANES` elements at `a`.
///
/// # Safety
/// `8·LANES` words must be writable at `a`; `w` points to the twiddles of the leaf, `roots` to those of the first nodes.
#[inline(always)]
unsafe fn unite_leaf<F: Field>(
    f: F,
    a: *mut WordOf<F>,
    w: *const WordOf<F>,
    roots: *const WordOf<F>,
    columns: [F::Vector; 8],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let pairs = w.add(across_words(F::Vector::LANES));
        let mut last = pairs;
        if F::Vector::LANES > 8 {
            last = last.add(VECTORS * F::Vector::LANES);
        }
        let mut x = F::Vector::transpose_back(f.unite_blocks(columns, last, roots));
        if F::Vector::LANES > 8 {
            for (i, pair) in x.chunks_exact_mut(2).enumerate() {
                let twiddle = Twiddles::<F>::get(PerLane(pairs), i);
                let (low, high) = f.inverse_butterfly(pair[0], pair[1], twiddle);
                (pair[0], pair[1]) = low.halves(high);
            }
        }
        let x = unite_across(f, x, Splat(w));
        for (r, x) in x.into_iter().enumerate() {
            x.store(a.add(r * F::Vector::LANES));
        }
    }
}

/// Canonical words at `a` as columns in working form.
///
/// # Safety
/// `8·LANES` words must be readable at `a`.
#[inline(always)]
pub(super) unsafe fn load_leaf<F: Field>(f: F, a: *const WordOf<F>) -> [F::Vector; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut x = [F::Vector::load(a); VECTORS];
        for (r, x) in x.iter_mut().enumerate() {
            *x = F::Vector::load(a.add(r * F::Vector::LANES));
        }
        if F::Vector::LANES > 8 {
            for pair in x.chunks_exact_mut(2) {
                (pair[0], pair[1]) = pair[0].halves(pair[1]);
            }
        }
        let mut columns = F::Vector::transpose(x);
        for x in &mut columns {
            *x = f.enter(*x);
        }
        columns
    }
}

/// What becomes of the values of a leaf.
pub(super) trait Finish<F: Field>: Copy {
    /// Whether the values have to be within 2.3·q, where the field settles (see [`super::double`]).
    fn settled(self) -> bool;
    /// # Safety
    /// `columns` are the values of the `8·LANES` elements from number `start` on of the polynomial at `a`.
    unsafe fn finish(self, f: F, a: *mut WordOf<F>, start: usize, columns: [F::Vector; 8]);
}

/// Writes canonical values in their places.
#[derive(Clone, Copy)]
pub(super) struct Keep;

impl<F: Field> Finish<F> for Keep {
    #[inline(always)]
    fn settled(self) -> bool {
        false
    }

    #[inline(always)]
    unsafe fn finish(self, f: F, a: *mut WordOf<F>, start: usize, columns: [F::Vector; 8]) {
        // SAFETY: the caller's promise.
        unsafe { store_leaf(f, a.add(start), columns) }
    }
}

/// # Safety
/// `a` points to N words, N the degree of the tables, which were made for the lanes of `F`; what `finish` points to
/// has the lengths that it states; the processor runs `F`.
#[inline(always)]
pub(super) unsafe fn forward<F: Field>(
    modulus: &Modulus<WordOf<F>>,
    tables: &Tables<WordOf<F>>,
    a: *mut WordOf<F>,
    finish: impl Finish<F>,
) {
    let twiddles = tables.words().as_ptr();
    let Some((first, rest)) = tables.passes.split_first() else {
        return;
    };
    let leaf = VECTORS * F::Vector::LANES;
    // SAFETY: the caller's promise; passes and twiddles are those of N elements.
    unsafe {
        let f = F::new(modulus);
        let roots = twiddles.add(tables.roots);
        divide_node::<F, true, false>(f, first, a, Splat(twiddles.add(first.twiddles)));
        for (number, start) in (0..tables.degree).step_by(leaf).enumerate() {
            for pass in rest {
                if start.is_multiple_of(pass.size) {
                    let node = start / pass.size;
                    let w = Splat(twiddles.add(pass.twiddles + 2 * (pass.radix - 1) * node));
                    if F::SETTLES && pass.settle {
                        divide_node::<F, false, true>(f, pass, a.add(start), w);
                    } else {
                        divide_node::<F, false, false>(f, pass, a.add(start), w);
                    }
                }
            }
            let w = twiddles.add(tables.leaves + tables.leaf_words * number);
            let at = a.add(start);
            let columns = match tables.settle_leaves {
                _ if !F::SETTLES => divide_leaf::<F, false, false>(f, at, w, roots),
                [false, false] if !finish.settled() => {
                    divide_leaf::<F, false, false>(f, at, w, roots)
                }
                [false, _] => divide_leaf::<F, false, true>(f, at, w, roots),
                [true, _] => divide_leaf::<F, true, true>(f, at, w, roots),
            };
            finish.finish(f, a, start, columns);
        }
    }
}

/// Where the values of a leaf come from.
pub(super) trait Start<F: Field>: Copy {
    /// # Safety
    /// `start` is the number of the first of `8·LANES` elements of the polynomial at `a`.
    unsafe fn start(self, f: F, a: *const WordOf<F>, start: usize) -> [F::Vector; 8];
}

impl<F: Field> Start<F> for Keep {
    #[inline(always)]
    unsafe fn start(self, f: F, a: *const WordOf<F>, start: usize) -> [F::Vector; 8] {
        // SAFETY: the caller's promise.
        unsafe { load_leaf(f, a.add(start)) }
    }
}

/// # Safety
/// As for [`forward`].
#[inline(always)]
pub(super) unsafe fn inverse<F: Field>(
    modulus: &Modulus<WordOf<F>>,
    tables: &Tables<WordOf<F>>,
    a: *mut WordOf<F>,
    start: impl Start<F>,
) {
    let twiddles = tables.words().as_ptr();
    let Some((first, rest)) = tables.passes.split_first() else {
        return;
    };
    let leaf = VECTORS * F::Vector::LANES;
    // SAFETY: the caller's promise; passes and twiddles are those of N elements.
    unsafe {
        let f = F::new(modulus);
        let roots = twiddles.add(tables.roots);
        for (number, at) in (0..tables.degree).step_by(leaf).enumerate() {
            let w = twiddles.add(tables.leaves + tables.leaf_words * number);
            unite_leaf(f, a.add(at), w, roots, start.start(f, a, at));
            let end = at + leaf;
            for pass in rest.iter().rev() {
                if end.is_multiple_of(pass.size) {
                    let node = end / pass.size - 1;
                    let w = Splat(twiddles.add(pass.twiddles + 2 * (pass.radix - 1) * node));
                    unite_node::<F, false>(f, pass, a.add(end - pass.size), w);
                }
            }
        }
        unite_node::<F, true>(f, first, a, Splat(twiddles.add(first.twiddles)));
    }
}

/// `a = a ⊙ b`
///
/// # Safety
/// The slices have the same length, a multiple of the lanes; the processor runs `F`.
#[inline(always)]
pub(super) unsafe fn mul_assign<F: Field>(
    modulus: &Modulus<WordOf<F>>,
    a: &mut [WordOf<F>],
    b: &[WordOf<F>],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = F::new(modulus);
        for at in (0..a.len()).step_by(F::Vector::LANES) {
            let to = a.as_mut_ptr().add(at);
            let b = F::Vector::load(b.as_ptr().add(at));
            f.mul(F::Vector::load(to), b).store(to);
        }
    }
}

/// `acc += a ⊙ b`
///
/// # Safety
/// As for [`mul_assign`].
#[inline(always)]
pub(super) unsafe fn mul_add_assign<F: Field>(
    modulus: &Modulus<WordOf<F>>,
    acc: &mut [WordOf<F>],
    a: &[WordOf<F>],
    b: &[WordOf<F>],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = F::new(modulus);
        for at in (0..acc.len()).step_by(F::Vector::LANES) {
            let to = acc.as_mut_ptr().add(at);
            let (a, b) = (
                F::Vector::load(a.as_ptr().add(at)),
                F::Vector::load(b.as_ptr().add(at)),
            );
            f.add(F::Vector::load(to), f.mul(a, b)).store(to);
        }
    }
}

/// `a = w·a`, with the twiddle `w`.
///
/// # Safety
/// The length of `a` is a multiple of the lanes; the processor runs `F`.
#[inline(always)]
pub(super) unsafe fn scale_assign<F: Field>(
    modulus: &Modulus<WordOf<F>>,
    a: &mut [WordOf<F>],
    w: [WordOf<F>; 2],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let f = F::new(modulus);
        let w = [F::Vector::splat(w[0]), F::Vector::splat(w[1])];
        for at in (0..a.len()).step_by(F::Vector::LANES) {
            let to = a.as_mut_ptr().add(at);
            f.scale(F::Vector::load(to), w).store(to);
        }
    }
}
