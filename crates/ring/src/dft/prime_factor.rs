//! The tables of the prime-factor transform, for lengths that are products of different primes of 3, 5, 17 and 257.

use super::arithmetic::{Arithmetic, Full, Lazy};
use super::kernel::OVERRUN;
use super::numbers::{inv, mul, pow, primitive_root};
use crate::simd::SimdLevel;

/// The primes p for which Rader's convolution of p - 1 points has a length that is a power of two below 2^16.
const FERMAT_PRIMES: [usize; 4] = [257, 17, 5, 3];

/// The plan of one length and one modulus. The length is `rows` times `columns`.
#[derive(Clone, Debug)]
pub(super) struct PrimeFactor {
    simd: SimdLevel,
    pub modulus: u32,
    /// 257 if that divides the length, else 1.
    pub rows: usize,
    pub columns: usize,
    /// Words in a row of the grid: `rows`, up to a multiple of 16.
    pub stride: usize,
    /// z of each block of the tree of X^256 - 1, or of the subtree that the greatest prime needs; see `kernel.rs`.
    pub roots: Box<[[u32; 2]; 128]>,
    pub inverse_roots: Box<[[u32; 2]; 128]>,
    /// That of the largest prime.
    pub spectrum: Spectrum,
    /// One for each prime other than 257.
    pub axes: Vec<Axis>,
    /// Cyclic, by step t: where the row of the input begins whose word c is congruent to t modulo `rows` at column 0.
    pub input_rows: Vec<u32>,
    /// Cyclic, by point: its row in the block, in Rader's order.
    pub block_rows: Vec<u32>,
    /// By value: its row in the block, in Rader's order; zeros up to `stride`.
    pub block_order: Vec<u16>,
    /// Cyclic, by step t: where the row -t of the grid begins.
    pub grid_rows: Vec<u32>,
    /// Cyclic, by step t: where the row of the output begins that receives row -t at lane 0.
    pub output_rows: Vec<u32>,
}

/// The transforms along one of the primes in `columns`.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub prime: usize,
    pub spectrum: Spectrum,
    /// Line after line, where in the grid the rows to read begin, in Rader's order: point 0, then g^0, g^-1, …
    pub read: Vec<u32>,
    /// Likewise the rows to write: value 0, then g^0, g^1, …
    pub write: Vec<u32>,
}

/// What Rader's algorithm multiplies by for one prime: the transform of w^(g^j), j = 0, 1, …, divided by the number of
/// points.
#[derive(Clone, Debug)]
pub(super) struct Spectrum {
    forward: Vec<[u32; 2]>,
    inverse: Vec<[u32; 2]>,
}

impl Spectrum {
    #[inline(always)]
    pub fn of(&self, inverse: bool) -> &[[u32; 2]] {
        if inverse {
            &self.inverse
        } else {
            &self.forward
        }
    }
}

/// One of the prime factors of a length, and what Rader's algorithm needs for it: the constants of a plan for others who
/// compute the same transform, such as a circuit.
///
/// With Good and Thomas, word n stands at the residues of n modulo the primes, and value k at those of k. With Rader,
/// x_j is the word at residue [`generator`](Self::generator)^j; X at residue generator^l is then x at residue 0 plus
/// the sum of x_j · root^(generator^(j + l)) over j.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaderAxis {
    /// The prime p.
    pub prime: usize,
    /// The least primitive root modulo p.
    pub generator: usize,
    /// The p-th root of unity of this axis: w to the power that is 1 modulo p and 0 modulo the other primes.
    pub root: u32,
    /// A primitive root of unity for the p - 1 points of the convolution.
    pub omega: u32,
    /// The values of the sum of root^(generator^j)·x^j / (p - 1), in bit-reversed order: place i has that at omega to the
    /// power i with its bits reversed.
    pub forward: Vec<u32>,
    /// The same of 1/root.
    pub inverse: Vec<u32>,
}

impl RaderAxis {
    /// Of a prime factor of `length` of a transform whose root is `root`; `omega` is of order `points`, which p - 1 divides.
    fn new(length: usize, prime: usize, root: u32, (omega, points): (u32, usize), q: u32) -> Self {
        let others = length / prime;
        let exponent = others * inverse_modulo(others, prime);
        let root = pow(root, exponent as u32, q);
        let omega = pow(omega, (points / (prime - 1)) as u32, q);
        RaderAxis {
            prime,
            generator: primitive_root(prime as u32) as usize,
            root,
            omega,
            forward: rader_spectrum(prime, root, omega, q),
            inverse: rader_spectrum(prime, inv(root, q), omega, q),
        }
    }
}

/// The axes of a transform of `length` points with the primitive root of unity `root`, the greatest prime first; none if
/// the length has other factors or there are no roots of unity modulo the prime `q` for the convolutions.
pub(super) fn rader_axes(length: usize, root: u32, q: u32) -> Option<Vec<RaderAxis>> {
    let primes: Vec<usize> = FERMAT_PRIMES
        .into_iter()
        .filter(|&p| length.is_multiple_of(p))
        .collect();
    let points = primes.first()? - 1;
    if primes.iter().product::<usize>() != length || !(q as usize - 1).is_multiple_of(points) {
        return None;
    }
    let omega = pow(primitive_root(q), (q - 1) / points as u32, q);
    let axis = |&prime: &usize| RaderAxis::new(length, prime, root, (omega, points), q);
    Some(primes.iter().map(axis).collect())
}

impl PrimeFactor {
    /// The plan for `length` points with the primitive root of unity `root`; none if the length has other factors or
    /// there are no roots of unity modulo the prime `modulus` for the convolutions.
    pub fn new(length: usize, modulus: u32, root: u32, simd: SimdLevel) -> Option<Self> {
        let factors = rader_axes(length, root, modulus)?;
        let greatest = factors.first()?;
        let (points, omega) = (greatest.prime - 1, greatest.omega);
        let constant = if is_lazy(modulus) {
            Lazy::constant
        } else {
            Full::constant
        };

        let level_roots = |omega: u32| -> Box<[[u32; 2]; 128]> {
            let mut roots = Box::new([[0; 2]; 128]);
            for (b, z) in roots.iter_mut().enumerate().take(points / 2) {
                *z = constant(point(2 * b, points, omega, modulus), modulus);
            }
            roots
        };

        let spectrum = |axis: &RaderAxis| {
            let constants = |words: &[u32]| words.iter().map(|&w| constant(w, modulus)).collect();
            Spectrum {
                forward: constants(&axis.forward),
                inverse: constants(&axis.inverse),
            }
        };

        let rows = if greatest.prime == 257 { 257 } else { 1 };
        let columns = length / rows;
        let stride = rows.next_multiple_of(16);
        let axes = factors
            .iter()
            .filter(|factor| factor.prime != 257)
            .map(|factor| {
                let prime = factor.prime;
                let order = rader_order(prime);
                Axis {
                    prime,
                    spectrum: spectrum(factor),
                    read: lines(columns, stride, &order.read),
                    write: lines(columns, stride, &order.write),
                }
            })
            .collect();

        let order = rader_order(rows);
        let mut block_rows = vec![0; rows];
        let mut block_order = vec![0; stride];
        for position in 0..rows {
            block_rows[order.read[position]] = position as u32;
            block_order[order.write[position]] = position as u16;
        }
        let row_step = inverse_modulo(columns, rows);
        let column_step = columns - inverse_modulo(rows, columns);
        Some(PrimeFactor {
            simd,
            modulus,
            rows,
            columns,
            stride,
            roots: level_roots(omega),
            inverse_roots: level_roots(inv(omega, modulus)),
            spectrum: spectrum(greatest),
            axes,
            input_rows: cyclic(rows, |t| (t * row_step % rows * columns) as u32),
            block_rows: cyclic(rows, |point| block_rows[point]),
            block_order,
            grid_rows: cyclic(columns, |t| ((columns - t) % columns * stride) as u32),
            output_rows: cyclic(columns, |t| (t * column_step % columns * rows) as u32),
        })
    }

    /// Words of scratch that a transform needs: the grid, and a block of 16 columns.
    pub fn scratch_len(&self) -> usize {
        self.grid_len() + 16 * self.rows
    }

    /// Words of the grid: the values of each prime `rows`, in rows by column. Blocks of columns may be incomplete.
    pub fn grid_len(&self) -> usize {
        self.stride * self.columns.next_multiple_of(16)
    }

    /// Transforms `data`, m canonical words, forward or with the inverse of the root.
    pub fn transform(&self, inverse: bool, data: &mut [u32], scratch: &mut [u32]) {
        if is_lazy(self.modulus) {
            self.transform_with::<Lazy>(inverse, data, scratch);
        } else {
            self.transform_with::<Full>(inverse, data, scratch);
        }
    }

    fn transform_with<A: Arithmetic>(&self, inverse: bool, data: &mut [u32], scratch: &mut [u32]) {
        assert!(data.len() == self.rows * self.columns && scratch.len() >= self.scratch_len());
        let (data, scratch) = (data.as_mut_ptr(), scratch.as_mut_ptr());
        // SAFETY: the lengths are checked above; the processor runs `self.simd`, checked when the plan was made.
        unsafe {
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512 => super::avx512::transform::<A>(self, inverse, data, scratch),
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2 => super::avx2::transform::<A>(self, inverse, data, scratch),
                _ => super::portable::transform::<A>(self, inverse, data, scratch),
            }
        }
    }
}

/// Whether 4q fits into a word.
fn is_lazy(q: u32) -> bool {
    q < 1 << 30
}

/// Two periods of `len` entries, and [`OVERRUN`] more.
fn cyclic(len: usize, entry: impl Fn(usize) -> u32) -> Vec<u32> {
    (0..2 * len + OVERRUN).map(|i| entry(i % len)).collect()
}

/// Where Rader's algorithm finds the points and the values of a prime: 0, then the powers of a generator. For 1, just 0.
struct RaderOrder {
    /// 0, g^0, g^-1, …
    read: Vec<usize>,
    /// 0, g^0, g^1, …
    write: Vec<usize>,
}

fn rader_order(prime: usize) -> RaderOrder {
    let p = prime as u32;
    let g = primitive_root(p);
    let order = |exponent: fn(u32, u32) -> u32| {
        let powers = (0..p - 1).map(|j| pow(g, exponent(p - 1, j), p) as usize);
        std::iter::once(0).chain(powers).collect()
    };
    RaderOrder {
        read: order(|points, j| points - j),
        write: order(|_, j| j),
    }
}

/// For each line along a prime in a grid of `height` rows, which are numbered by residue, where the rows of the
/// residues in `order`, modulo the prime, begin.
fn lines(height: usize, stride: usize, order: &[usize]) -> Vec<u32> {
    let prime = order.len();
    let others = height / prime;
    let unit = inverse_modulo(others, prime);
    (0..others)
        .flat_map(|line| order.iter().map(move |&residue| (line, residue)))
        .map(|(line, residue)| (line * prime + residue * unit % prime * others) % height)
        .map(|row| (row * stride) as u32)
        .collect()
}

/// The values of Σ root^(g^j)·x^j, divided by the number of points, in the order in which the kernel has them;
/// `omega` is a primitive root of unity for the p - 1 points.
fn rader_spectrum(prime: usize, root: u32, omega: u32, q: u32) -> Vec<u32> {
    let points = prime - 1;
    let scale = inv(points as u32 % q, q);
    let kernel: Vec<u32> = rader_order(prime).write[1..]
        .iter()
        .map(|&power| mul(pow(root, power as u32, q), scale, q))
        .collect();
    (0..points)
        .map(|i| {
            let x = point(i, points, omega, q);
            kernel.iter().rev().fold(0, |sum, &c| {
                ((u64::from(mul(sum, x, q)) + u64::from(c)) % u64::from(q)) as u32
            })
        })
        .collect()
}

/// Where the transform of `points` points evaluates at position `i`: omega to the power i with its bits reversed.
fn point(i: usize, points: usize, omega: u32, q: u32) -> u32 {
    let reversed = i.reverse_bits() >> (usize::BITS - points.ilog2());
    pow(omega, reversed as u32, q)
}

/// The inverse of `a` modulo the coprime `n`; 0 modulo 1.
fn inverse_modulo(a: usize, n: usize) -> usize {
    (0..n).find(|&x| a * x % n == 1 % n).unwrap_or(0)
}
