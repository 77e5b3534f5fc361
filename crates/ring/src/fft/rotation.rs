//! Sums of products turned by powers of X: what two bits of a bootstrapping key do in one step.
//!
//! Point (lane i, group j) of the node X^64 - exp(2πi·θ) is the value at exp(2πi·(θ/64 + i/64 + j/8)). So X^e there is a number
//! of the node, times a vector of e mod 64, times an eighth root of unity: tables of 2N, 64 vectors and 8.

use super::kernel::{Complex, NODE, Points, Simd8, Source, Target};
use super::key::Format;
use super::{AlignedVec, Angle, FftPlan, LANES, turn};
use std::marker::PhantomData;

/// The values of the powers of X, for the spectra of a plan.
#[derive(Clone, Debug)]
pub struct Rotations {
    /// exp(2πi·k/2N) for k = 0 … 2N-1.
    roots: AlignedVec,
    /// exp(2πi·e·i/64) for e = 0 … 63 and the lanes i: eight real and eight imaginary parts for each e.
    lanes: AlignedVec,
    /// For each node of 64 points the number k so that it is X^64 - exp(2πi·k/2N)^64, k < 2N.
    nodes: Vec<u32>,
}

impl Rotations {
    /// For a plan of degree 128 or more; there are none for smaller ones.
    pub(super) fn new(plan: &FftPlan) -> Option<Rotations> {
        let order = 2 * plan.degree;
        if plan.degree / 2 < NODE {
            return None;
        }
        let mut nodes = vec![Angle::ROOT];
        for pass in &plan.passes {
            nodes = nodes
                .iter()
                .flat_map(|node| (0..pass.radix).map(|k| node.child(pass.radix, k)))
                .collect();
        }
        let mut roots = AlignedVec::zeroed(2 * order);
        for (k, root) in roots.chunks_exact_mut(2).enumerate() {
            (root[0], root[1]) = turn(k, order);
        }
        let mut lanes = AlignedVec::zeroed(2 * LANES * NODE);
        for (e, vector) in lanes.chunks_exact_mut(2 * LANES).enumerate() {
            for lane in 0..LANES {
                (vector[lane], vector[lane + LANES]) = turn(e * lane, NODE);
            }
        }
        Some(Rotations {
            roots,
            lanes,
            nodes: nodes.iter().map(|node| node.num as u32).collect(),
        })
    }

    /// Whether they are those of this plan.
    pub(super) fn is_of(&self, plan: &FftPlan) -> bool {
        self.roots.len() == 4 * plan.degree
    }

    /// The number exp(2πi·k/2N); k counts modulo 2N.
    #[inline(always)]
    fn root<V: Simd8>(&self, k: usize) -> Complex<V> {
        let at = 2 * (k % (self.roots.len() / 2));
        Complex {
            re: V::splat(self.roots[at]),
            im: V::splat(self.roots[at + 1]),
        }
    }

    /// X^exponent at the eight points of group 0 of a node.
    #[inline(always)]
    fn first<V: Simd8>(&self, node: usize, exponent: usize) -> Complex<V> {
        let lanes = &self.lanes[2 * LANES * (exponent % NODE)..][..2 * LANES];
        // SAFETY: the numbers of eight points.
        let lanes = unsafe {
            Complex {
                re: V::load(lanes.as_ptr()),
                im: V::load(lanes[LANES..].as_ptr()),
            }
        };
        lanes.mul(self.root(self.nodes[node] as usize * exponent))
    }

    /// The factor from group 0 to group `group` of the same node.
    #[inline(always)]
    fn step<V: Simd8>(&self, exponent: usize, group: usize) -> Complex<V> {
        self.root(exponent * group % LANES * (self.roots.len() / 2 / LANES))
    }
}

/// `sums[c] = Σ_i (X^e_i - 1)·Σ_r spectra[r]·keys[i][r][c]` with e_2 = e_0 + e_1. `ROWS` and `COLUMNS` are the numbers of rows and
/// columns if they are known at compile time, else 0.
#[derive(Clone, Copy)]
pub(super) struct Rotated<'a, F, const ROWS: usize, const COLUMNS: usize> {
    pub(super) rotations: &'a Rotations,
    pub(super) spectra: *const f64,
    pub(super) keys: *const u8,
    pub(super) exponents: [usize; 2],
    pub(super) sums: *mut f64,
    pub(super) degree: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) format: PhantomData<F>,
}

/// What [`Rotated`] is to each instruction set, whatever its numbers are.
pub(super) trait Product {
    /// # Safety
    /// The promise of whoever made `self`; the processor runs V.
    unsafe fn run<V: Simd8>(self);
}

impl<F: Format, const ROWS: usize, const COLUMNS: usize> Rotated<'_, F, ROWS, COLUMNS> {
    #[inline(always)]
    fn rows(self) -> usize {
        if ROWS == 0 { self.rows } else { ROWS }
    }

    #[inline(always)]
    fn columns(self) -> usize {
        if COLUMNS == 0 { self.columns } else { COLUMNS }
    }

    /// The digits of row `row` at a point and on, and the numbers of that row of sample `sample`; `keys` are those of all samples' rows there.
    ///
    /// # Safety
    /// That of [`Product::run`]; all indices are within.
    #[inline(always)]
    unsafe fn operands<V: Simd8>(
        self,
        (sample, row): (usize, usize),
        column: usize,
        keys: *const u8,
        point: usize,
    ) -> (Complex<V>, Complex<V>) {
        let rows = self.rows();
        let place = (sample * rows + row, 3 * rows);
        // SAFETY: the caller's promise.
        unsafe {
            let spectrum = Points::spectrum(self.spectra.add(row * self.degree).cast_mut());
            let key = F::load_interleaved(keys, place, column + 1 == self.columns());
            (spectrum.load(point), key)
        }
    }

    /// The products with the rows of one sample, summed up.
    ///
    /// # Safety
    /// As [`Self::operands`].
    #[inline(always)]
    unsafe fn sum<V: Simd8>(
        self,
        sample: usize,
        column: usize,
        keys: *const u8,
        point: usize,
    ) -> Complex<V> {
        // SAFETY: the caller's promise.
        unsafe {
            let (digits, key) = self.operands((sample, 0), column, keys, point);
            let mut sum = digits.mul(key);
            for row in 1..self.rows() {
                let (digits, key) = self.operands::<V>((sample, row), column, keys, point);
                sum = digits.mul_add(key, sum);
            }
            sum
        }
    }
}

impl<F: Format, const ROWS: usize, const COLUMNS: usize> Product for Rotated<'_, F, ROWS, COLUMNS> {
    #[inline(always)]
    unsafe fn run<V: Simd8>(self) {
        let [a, b] = self.exponents;
        for node in 0..self.degree / 2 / NODE {
            let first_a = self.rotations.first::<V>(node, a);
            let first_b = self.rotations.first::<V>(node, b);
            for group in 0..NODE / LANES {
                let turned_a = first_a.mul(self.rotations.step(a, group));
                let turned_b = first_b.mul(self.rotations.step(b, group));
                let by_a = turned_a.less_one();
                let by_b = turned_b.less_one();
                let by_both = turned_a.mul(turned_b).less_one();
                let point = node * NODE + LANES * group;
                for column in 0..self.columns() {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let (columns, rows) = (self.columns(), 3 * self.rows());
                        let at = F::interleaved(point / LANES, columns, column, rows);
                        let keys = self.keys.add(at);
                        let total = self.sum::<V>(0, column, keys, point).mul(by_a);
                        let second = self.sum::<V>(1, column, keys, point);
                        let total = second.mul_add(by_b, total);
                        let both = self.sum::<V>(2, column, keys, point);
                        let total = both.mul_add(by_both, total);
                        let mut sums = Points::spectrum(self.sums.add(column * self.degree));
                        sums.store(point, total);
                    }
                }
            }
        }
    }
}
