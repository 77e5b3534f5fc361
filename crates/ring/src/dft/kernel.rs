//! The prime-factor transform, written once over a vector of `u32` lanes and over an arithmetic.
//!
//! Everything here is `#[inline(always)]`: it becomes part of the functions in `portable.rs`, `avx2.rs` and
//! `avx512.rs`, which are compiled for their instruction set. A lane is a transform of its own, so the kernels hold no
//! shuffles but those of [`skew`] and [`Vector::transpose`], and every constant is the same in all lanes.

// The arrays are registers: loops by index over constant ranges are what the compiler unrolls.
#![allow(clippy::needless_range_loop)]

use super::arithmetic::{Arithmetic, Modulus, Twiddle};
use super::prime_factor::{Axis, PrimeFactor};

/// Steps of the loop in [`skew`] that are unrolled, so that what it keeps stays in registers.
const UNROLL: usize = 8;

/// Entries that [`cyclic`](super::prime_factor) tables have after their second period: [`skew`] starts within the
/// first period and takes one period, `LANES - 1` steps more, and what rounding up to whole unrolled steps adds.
pub(super) const OVERRUN: usize = 15 + UNROLL;

/// Some `u32`: 1, 8 or 16. The methods of the x86 implementations may only be reached from a function
/// that is compiled for, and runs on a processor with, the instruction set of the implementation.
pub(super) trait Vector: Copy {
    const LANES: usize;

    /// A vector of fewer lanes that is cheaper to work on, or the same one.
    type Half: Vector;

    /// # Safety
    /// `from` points to `LANES` words.
    unsafe fn load(from: *const u32) -> Self;
    /// The first `count` words, and zeros.
    /// # Safety
    /// `from` points to `count` words, at most `LANES`.
    unsafe fn load_first(from: *const u32, count: usize) -> Self;
    /// # Safety
    /// `to` points to `LANES` writable words.
    unsafe fn store(self, to: *mut u32);
    /// # Safety
    /// `to` points to `count` writable words, at most `LANES`.
    unsafe fn store_first(self, to: *mut u32, count: usize);
    fn splat(value: u32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    /// The low words of the products.
    fn mul_low(self, other: Self) -> Self;
    /// The high words of the products by a vector whose lanes are all equal.
    fn mul_high(self, splat: Self) -> Self;
    /// `self + addend` in the lanes where `a < b`, `self` in the others.
    fn add_where_less(self, a: Self, b: Self, addend: Self) -> Self;
    /// Lane i of `other` where bit `BIT` of i is set, of `self` where it is not.
    fn pick<const BIT: u32>(self, other: Self) -> Self;
    /// Word i of row j becomes word j of row i: rows are read at `from + rows[j]·LANES`, written at `to + i·stride`.
    /// # Safety
    /// `rows` has `LANES` entries, and all these rows are `LANES` words that can be read or written.
    unsafe fn transpose(from: *const u32, rows: &[u16], to: *mut u32, stride: usize);
}

/// Transforms `data` in place, forward or (`inverse`) with the inverse of the root; neither is normalized.
///
/// # Safety
/// `data` points to m canonical words, `scratch` to [`PrimeFactor::scratch_len`] words; they do not overlap. The
/// processor has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn transform<V: Vector, A: Arithmetic>(
    plan: &PrimeFactor,
    inverse: bool,
    data: *mut u32,
    scratch: *mut u32,
) {
    let grid = scratch;
    // SAFETY: the grid and then the block fit into the scratch.
    let block = unsafe { scratch.add(plan.grid_len()) };
    let mut column = 0;
    while column < plan.columns {
        let rest = plan.columns - column;
        // SAFETY: the caller's promise; below `columns` there is at least one column to work on.
        unsafe {
            if rest <= V::Half::LANES {
                columns::<V::Half, A>(plan, inverse, data, block, grid, column);
                column += V::Half::LANES;
            } else {
                columns::<V, A>(plan, inverse, data, block, grid, column);
                column += V::LANES;
            }
        }
    }
    let mut lane = 0;
    while lane < plan.rows {
        let rest = plan.rows - lane;
        // SAFETY: likewise.
        unsafe {
            if rest <= V::Half::LANES {
                lanes::<V::Half, A>(plan, inverse, grid, data, lane);
                lane += V::Half::LANES;
            } else {
                lanes::<V, A>(plan, inverse, grid, data, lane);
                lane += V::LANES;
            }
        }
    }
}

/// The transforms along 257 of the columns from `column` on, from the input to the grid.
///
/// # Safety
/// As [`transform`].
#[inline(always)]
unsafe fn columns<V: Vector, A: Arithmetic>(
    plan: &PrimeFactor,
    inverse: bool,
    data: *const u32,
    block: *mut u32,
    grid: *mut u32,
    column: usize,
) {
    let m = &Modulus::<V>::new(plan.modulus);
    let warm_up = V::LANES - 1;
    // SAFETY: sources are the beginnings of rows of the input, targets those of rows of the block.
    unsafe {
        skew::<V, A, false>(
            m,
            data.add(column),
            &plan.input_rows[cyclic_start(plan.rows, 0, warm_up)..],
            block,
            &plan.block_rows[cyclic_start(plan.rows, column, warm_up)..],
            plan.rows,
            plan.columns - column,
        );
        if plan.rows == 257 {
            rader257::<V, A>(m, plan, plan.spectrum.of(inverse), block);
        }
        for row in (0..plan.rows).step_by(V::LANES) {
            V::transpose(
                block,
                &plan.block_order[row..row + V::LANES],
                grid.add(column * plan.stride + row),
                plan.stride,
            );
        }
    }
}

/// The transforms along the small primes, for the lanes from `lane` on, and the way from the grid to the output.
///
/// # Safety
/// As [`transform`].
#[inline(always)]
unsafe fn lanes<V: Vector, A: Arithmetic>(
    plan: &PrimeFactor,
    inverse: bool,
    grid: *mut u32,
    data: *mut u32,
    lane: usize,
) {
    let m = &Modulus::<V>::new(plan.modulus);
    let warm_up = V::LANES - 1;
    // SAFETY: a row of the grid has `stride` words, a multiple of the lanes; sources are the beginnings of rows of the
    // grid, targets those of rows of the output.
    unsafe {
        let base = grid.add(lane);
        for axis in &plan.axes {
            small_prime::<V, A>(m, plan, axis, inverse, base);
        }
        // The lanes' number is subtracted from the row's, hence the start.
        let start = plan.columns - lane % plan.columns;
        skew::<V, A, true>(
            m,
            base,
            &plan.grid_rows[cyclic_start(plan.columns, start, warm_up)..],
            data.add(lane),
            &plan.output_rows[cyclic_start(plan.columns, 0, warm_up)..],
            plan.columns,
            plan.rows - lane,
        );
    }
}

/// Where in a cyclic table of period `len` the entry `back` before `start` is.
#[inline(always)]
fn cyclic_start(len: usize, start: usize, back: usize) -> usize {
    (start % len + len - back % len) % len
}

/// Copies `len` rows so that lane i of row t, counted cyclically, comes from row t - i: a barrel shifter of one select
/// for every bit of i. `from + sources[t]` and `to + targets[t]` are the rows, beginning `LANES - 1` rows before row 0,
/// since the selects look back that far; what is stored before row 0 is overwritten at the end of the period.
///
/// On the way in (`OUT` false) the rows that are read have `count` words, the targets are counted in vectors. On the
/// way out the rows that are written have `count` words, and words are made canonical.
///
/// # Safety
/// The rows can be read or written; the tables hold a period and [`OVERRUN`] entries more.
#[inline(always)]
unsafe fn skew<V: Vector, A: Arithmetic, const OUT: bool>(
    m: &Modulus<V>,
    from: *const u32,
    sources: &[u32],
    to: *mut u32,
    targets: &[u32],
    len: usize,
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if count >= V::LANES {
            skew_rows::<V, A, OUT, true>(m, from, sources, to, targets, len, V::LANES);
        } else {
            skew_rows::<V, A, OUT, false>(m, from, sources, to, targets, len, count);
        }
    }
}

/// [`skew`] for whole vectors (`FULL`) or for the first `count` lanes.
///
/// # Safety
/// As [`skew`].
#[inline(always)]
unsafe fn skew_rows<V: Vector, A: Arithmetic, const OUT: bool, const FULL: bool>(
    m: &Modulus<V>,
    from: *const u32,
    sources: &[u32],
    to: *mut u32,
    targets: &[u32],
    len: usize,
    count: usize,
) {
    let zero = V::splat(0);
    let (mut last1, mut last2, mut last4, mut last8) = (zero, [zero; 2], [zero; 4], [zero; 8]);
    let steps = (len + V::LANES - 1).next_multiple_of(UNROLL);
    let (sources, _) = sources[..steps].as_chunks::<UNROLL>();
    let (targets, _) = targets[..steps].as_chunks::<UNROLL>();
    for (sources, targets) in sources.iter().zip(targets) {
        for k in 0..UNROLL {
            // SAFETY: the caller's promise.
            unsafe {
                let source = from.add(sources[k] as usize);
                let mut row = if OUT {
                    A::canonical(m, V::load(source))
                } else if FULL {
                    V::load(source)
                } else {
                    V::load_first(source, count)
                };
                if V::LANES > 1 {
                    let picked = row.pick::<0>(last1);
                    last1 = row;
                    row = picked.pick::<1>(last2[k % 2]);
                    last2[k % 2] = picked;
                    let picked = row.pick::<2>(last4[k % 4]);
                    last4[k % 4] = row;
                    row = picked;
                }
                if V::LANES > 8 {
                    let picked = row.pick::<3>(last8[k]);
                    last8[k] = row;
                    row = picked;
                }
                let target = targets[k] as usize;
                if !OUT {
                    row.store(to.add(target * V::LANES));
                } else if FULL {
                    row.store(to.add(target));
                } else {
                    row.store_first(to.add(target), count);
                }
            }
        }
    }
}

/// The transforms of 3, 5 or 17 points along `axis`, in the lanes of the grid from `base` on.
///
/// # Safety
/// `base` points to the first of these lanes in row 0.
#[inline(always)]
unsafe fn small_prime<V: Vector, A: Arithmetic>(
    m: &Modulus<V>,
    plan: &PrimeFactor,
    axis: &Axis,
    inverse: bool,
    base: *mut u32,
) {
    let spectrum = axis.spectrum.of(inverse);
    let lines = axis
        .read
        .chunks_exact(axis.prime)
        .zip(axis.write.chunks_exact(axis.prime));
    for (read, write) in lines {
        // SAFETY: the caller's promise.
        unsafe {
            match axis.prime {
                3 => rader::<V, A, 2>(m, plan, spectrum, base, read, write),
                5 => rader::<V, A, 4>(m, plan, spectrum, base, read, write),
                _ => rader::<V, A, 16>(m, plan, spectrum, base, read, write),
            }
        }
    }
}

/// Rader's algorithm for the prime `R + 1`, all in registers. `read` says where the row of point 0 begins, then those of the
/// points g^0, g^-1, …; `write` where those of the values 0, g^0, g^1, … do. Reads and writes words below 2q.
///
/// # Safety
/// The rows can be read and written; `spectrum` has `R` entries.
#[inline(always)]
unsafe fn rader<V: Vector, A: Arithmetic, const R: usize>(
    m: &Modulus<V>,
    plan: &PrimeFactor,
    spectrum: &[[u32; 2]],
    base: *mut u32,
    read: &[u32],
    write: &[u32],
) {
    let (read, write, spectrum) = (&read[..R + 1], &write[..R + 1], &spectrum[..R]);
    // SAFETY: the caller's promise.
    unsafe {
        let row = |offset: u32| base.add(offset as usize);
        let x0 = V::load(row(read[0]));
        let mut x = [x0; R];
        for i in 0..R {
            x[i] = V::load(row(read[i + 1]));
        }
        forward::<V, A, R, true, 2, 4>(m, &mut x, &plan.roots, 0);
        let sum = A::add(m, A::below_twice(m, x[0]), x0);
        for i in 0..R {
            x[i] = A::mul(m, x[i], Twiddle::load(&spectrum[i]));
        }
        x[0] = A::add(m, x[0], x0);
        inverse::<V, A, R, true>(m, &mut x, &plan.inverse_roots, 0);
        sum.store(row(write[0]));
        for i in 0..R {
            x[i].store(row(write[i + 1]));
        }
    }
}

/// Rader's algorithm for 257 points in the rows of `block`: point 0, then g^0, g^-1, …; afterwards the values 0, g^0,
/// g^1, …. The convolution of 256 points is a transform of 16 by 16, where the second half of the forward and the first
/// half of the inverse transform stay in registers. Reads canonical words, writes words below 2q.
///
/// # Safety
/// `block` points to 257 vectors.
#[inline(always)]
unsafe fn rader257<V: Vector, A: Arithmetic>(
    m: &Modulus<V>,
    plan: &PrimeFactor,
    spectrum: &[[u32; 2]],
    block: *mut u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let points = block.add(V::LANES);
        for j in 0..16 {
            let x = &mut load16::<V>(points.add(j * V::LANES), 16);
            forward::<V, A, 16, true, 1, 2>(m, x, &plan.roots, 0);
            store16(x, points.add(j * V::LANES), 16);
        }

        for c in 0..16 {
            let at = points.add(c * 16 * V::LANES);
            let x = &mut load16::<V>(at, 1);
            forward::<V, A, 16, false, 4, 4>(m, x, &plan.roots, c);
            let sum = x[0];
            let spectrum = &spectrum[16 * c..16 * c + 16];
            for i in 0..16 {
                x[i] = A::mul(m, x[i], Twiddle::load(&spectrum[i]));
            }
            if c == 0 {
                let x0 = V::load(block);
                A::add(m, A::below_twice(m, sum), x0).store(block);
                x[0] = A::add(m, x[0], x0);
            }
            inverse::<V, A, 16, false>(m, x, &plan.inverse_roots, c);
            store16(x, at, 1);
        }

        for j in 0..16 {
            let x = &mut load16::<V>(points.add(j * V::LANES), 16);
            inverse::<V, A, 16, true>(m, x, &plan.inverse_roots, 0);
            store16(x, points.add(j * V::LANES), 16);
        }
    }
}

/// # Safety
/// `from` points to 16 vectors, each `step` vectors after the one before.
#[inline(always)]
unsafe fn load16<V: Vector>(from: *const u32, step: usize) -> [V; 16] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut x = [V::load(from); 16];
        for i in 1..16 {
            x[i] = V::load(from.add(i * step * V::LANES));
        }
        x
    }
}

/// # Safety
/// As [`load16`], for writing.
#[inline(always)]
unsafe fn store16<V: Vector>(x: &[V; 16], to: *mut u32, step: usize) {
    for i in 0..16 {
        // SAFETY: the caller's promise.
        unsafe { x[i].store(to.add(i * step * V::LANES)) }
    }
}

/// The last log2(R) levels of the cyclic transform on node `c` of the tree of X^N - 1: a level divides X^2k - z^2 into
/// X^k - z and X^k + z, and z of the block b of a level is `roots[b]`, whatever the level. `FIRST` says that c is 0,
/// where z is 1 in the first block. Words are below `B0`·q at first, below `B1`·q after the first level, below 4q then.
#[inline(always)]
fn forward<
    V: Vector,
    A: Arithmetic,
    const R: usize,
    const FIRST: bool,
    const B0: u32,
    const B1: u32,
>(
    m: &Modulus<V>,
    x: &mut [V; R],
    roots: &[[u32; 2]; 128],
    c: usize,
) {
    if R == 16 {
        forward_level::<V, A, R, 8, FIRST, B0>(m, x, roots, c);
        forward_level::<V, A, R, 4, FIRST, B1>(m, x, roots, c);
        forward_level::<V, A, R, 2, FIRST, 4>(m, x, roots, c);
        forward_level::<V, A, R, 1, FIRST, 4>(m, x, roots, c);
    } else if R == 4 {
        forward_level::<V, A, R, 2, FIRST, B0>(m, x, roots, c);
        forward_level::<V, A, R, 1, FIRST, B1>(m, x, roots, c);
    } else {
        forward_level::<V, A, R, 1, FIRST, B0>(m, x, roots, c);
    }
}

#[inline(always)]
fn forward_level<
    V: Vector,
    A: Arithmetic,
    const R: usize,
    const HALF: usize,
    const FIRST: bool,
    const BOUND: u32,
>(
    m: &Modulus<V>,
    x: &mut [V; R],
    roots: &[[u32; 2]; 128],
    c: usize,
) {
    let blocks = R / (2 * HALF);
    let roots = &roots[c * blocks..(c + 1) * blocks];
    for b in 0..blocks {
        let z = Twiddle::load(&roots[b]);
        for i in 2 * HALF * b..2 * HALF * b + HALF {
            (x[i], x[i + HALF]) = if FIRST && b == 0 {
                A::add_sub::<V, BOUND>(m, x[i], x[i + HALF])
            } else {
                A::butterfly::<V, BOUND>(m, x[i], x[i + HALF], z)
            };
        }
    }
}

/// Undoes [`forward`], up to the factor R, with the inverses of the roots; reads and writes words below 2q.
#[inline(always)]
fn inverse<V: Vector, A: Arithmetic, const R: usize, const FIRST: bool>(
    m: &Modulus<V>,
    x: &mut [V; R],
    roots: &[[u32; 2]; 128],
    c: usize,
) {
    inverse_level::<V, A, R, 1, FIRST>(m, x, roots, c);
    if R >= 4 {
        inverse_level::<V, A, R, 2, FIRST>(m, x, roots, c);
    }
    if R >= 16 {
        inverse_level::<V, A, R, 4, FIRST>(m, x, roots, c);
        inverse_level::<V, A, R, 8, FIRST>(m, x, roots, c);
    }
}

#[inline(always)]
fn inverse_level<V: Vector, A: Arithmetic, const R: usize, const HALF: usize, const FIRST: bool>(
    m: &Modulus<V>,
    x: &mut [V; R],
    roots: &[[u32; 2]; 128],
    c: usize,
) {
    let blocks = R / (2 * HALF);
    let roots = &roots[c * blocks..(c + 1) * blocks];
    for b in 0..blocks {
        let z = Twiddle::load(&roots[b]);
        for i in 2 * HALF * b..2 * HALF * b + HALF {
            (x[i], x[i + HALF]) = if FIRST && b == 0 {
                A::inverse_add_sub(m, x[i], x[i + HALF])
            } else {
                A::inverse_butterfly(m, x[i], x[i + HALF], z)
            };
        }
    }
}
