//! The kernels of the transform, written once over a vector of eight lanes.
//!
//! Everything here is `#[inline(always)]`: it becomes part of the functions in `portable.rs`, `avx2.rs` and
//! `avx512.rs`, which are compiled for their instruction set.
//!
//! The inverse runs on points with real and imaginary part exchanged: w̄·z exchanged is w times z exchanged, and the
//! same holds for the discrete Fourier transforms. So both directions share their factors and their butterflies.

use super::key::Format;
use super::{Angle, Coefficients, FftPlan, LANES, Pass, Receiver};

/// Complex points of the nodes that are transformed in registers.
pub(super) const NODE: usize = 64;

/// Numbers that describe a node of 64 points X^64 - c: d, …, d^7 with d^8 = c, each as real and imaginary part, and
/// two zeros; then for r = 1 … 7 the r-th powers of the factors d_k of its children k = 0 … 7, eight real parts and
/// eight imaginary parts.
pub(super) const NODE_TWIDDLES: usize = 128;

pub(super) fn node_twiddles(node: Angle) -> [f64; NODE_TWIDDLES] {
    let mut out = [0.0; NODE_TWIDDLES];
    for r in 1..8 {
        (out[2 * r - 2], out[2 * r - 1]) = node.child(8, 0).power(r);
        for k in 0..8 {
            let (re, im) = node.child(8, k).child(8, 0).power(r);
            out[16 * r + k] = re;
            out[16 * r + k + LANES] = im;
        }
    }
    out
}

/// Eight f64. The methods of the x86 implementations may only be reached from a function that is compiled for, and
/// runs on a processor with, the instruction set of the implementation.
pub(super) trait Simd8: Copy {
    /// Whether a node of points passes from the transform to what is made of it through memory. Where a processor has too few
    /// registers for it, the points are there anyway, and the code that divides a node is needed once instead of in every [`Leaf`].
    const NODE_IN_MEMORY: bool = false;
    /// # Safety
    /// `from` points to eight numbers.
    unsafe fn load(from: *const f64) -> Self;
    /// # Safety
    /// `to` points to eight writable numbers.
    unsafe fn store(self, to: *mut f64);
    fn splat(value: f64) -> Self;
    /// Eight integers, as numbers.
    ///
    /// # Safety
    /// `from` points to eight integers.
    unsafe fn load_i32(from: *const i32) -> Self;
    /// Eight integers, as numbers.
    ///
    /// # Safety
    /// `from` points to eight integers.
    unsafe fn load_i8(from: *const i8) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self·factor + addend`
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// `self·factor - subtrahend`
    fn mul_sub(self, factor: Self, subtrahend: Self) -> Self;
    /// `addend - self·factor`
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self;
    /// Lanes 0 of `self` and `other`, then lanes 2 of both, 4, 6.
    fn even_lanes(self, other: Self) -> Self;
    /// Lanes 1 of `self` and `other`, then lanes 3 of both, 5, 7.
    fn odd_lanes(self, other: Self) -> Self;
    /// Pair j of lanes of vector i becomes pair i of vector j.
    fn transpose_pairs(rows: [Self; 4]) -> [Self; 4];
    /// Asks for the line of the cache at `at`, which need not be readable.
    fn prefetch(at: *const u8);
    /// [`run_pass`] in place, as a function of its own: the walks of all inputs and leaves share it.
    ///
    /// # Safety
    /// `pass.size` points can be read and written at `at`; `twiddles` are those of the plan.
    unsafe fn pass_in_place<const UNITE: bool>(
        pass: &Pass,
        node: usize,
        at: Points,
        twiddles: *const f64,
    );
    /// [`divide_node`] in place; a function of its own where nodes are in memory.
    ///
    /// # Safety
    /// [`NODE`] points can be read and written at `at`; `factors` points to [`NODE_TWIDDLES`] numbers; the processor runs V.
    #[inline(always)]
    unsafe fn divide_in_place(at: Points, factors: *const f64) {
        // SAFETY: the caller's promise.
        unsafe { divide_in_place::<Self>(at, factors) }
    }
}

/// Eight complex numbers.
#[derive(Clone, Copy)]
pub(super) struct Complex<V> {
    pub(super) re: V,
    pub(super) im: V,
}

impl<V: Simd8> Complex<V> {
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Complex {
            re: self.re.add(b.re),
            im: self.im.add(b.im),
        }
    }

    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Complex {
            re: self.re.sub(b.re),
            im: self.im.sub(b.im),
        }
    }

    /// `self + i·b`
    #[inline(always)]
    fn add_i(self, b: Self) -> Self {
        Complex {
            re: self.re.sub(b.im),
            im: self.im.add(b.re),
        }
    }

    /// `self - i·b`
    #[inline(always)]
    fn sub_i(self, b: Self) -> Self {
        Complex {
            re: self.re.add(b.im),
            im: self.im.sub(b.re),
        }
    }

    #[inline(always)]
    pub(super) fn mul(self, w: Self) -> Self {
        Complex {
            re: self.re.mul_sub(w.re, self.im.mul(w.im)),
            im: self.re.mul_add(w.im, self.im.mul(w.re)),
        }
    }

    /// `self·w + addend`
    #[inline(always)]
    pub(super) fn mul_add(self, w: Self, addend: Self) -> Self {
        Complex {
            re: self.im.neg_mul_add(w.im, self.re.mul_add(w.re, addend.re)),
            im: self.im.mul_add(w.re, self.re.mul_add(w.im, addend.im)),
        }
    }

    /// `self - 1`
    #[inline(always)]
    pub(super) fn less_one(self) -> Self {
        Complex {
            re: self.re.sub(V::splat(1.0)),
            im: self.im,
        }
    }

    /// `2·self - b`: with b = self + x this is self - x, on the multipliers instead of the adders, which the
    /// butterflies load more.
    #[inline(always)]
    fn twice_sub(self, b: Self) -> Self {
        let two = V::splat(2.0);
        Complex {
            re: self.re.mul_sub(two, b.re),
            im: self.im.mul_sub(two, b.im),
        }
    }

    #[inline(always)]
    fn every_other_lane<const ODD: bool>(self, b: Self) -> Self {
        if ODD {
            Complex {
                re: self.re.odd_lanes(b.re),
                im: self.im.odd_lanes(b.im),
            }
        } else {
            Complex {
                re: self.re.even_lanes(b.re),
                im: self.im.even_lanes(b.im),
            }
        }
    }

    /// `self + scale·b`
    #[inline(always)]
    fn add_scaled(self, scale: V, b: Self) -> Self {
        Complex {
            re: b.re.mul_add(scale, self.re),
            im: b.im.mul_add(scale, self.im),
        }
    }

    /// `self - scale·b`
    #[inline(always)]
    fn sub_scaled(self, scale: V, b: Self) -> Self {
        Complex {
            re: b.re.neg_mul_add(scale, self.re),
            im: b.im.neg_mul_add(scale, self.im),
        }
    }
}

/// Points 0, 2, 4, 6 of eight, multiplied by their factors and transformed.
#[inline(always)]
fn divide_even<V: Simd8>(x: [Complex<V>; 4], w: impl Factors<V>) -> [Complex<V>; 4] {
    let a0 = x[2].mul_add(w.get(4), x[0]);
    let b0 = x[0].twice_sub(a0);
    let (x1, x3) = (x[1].mul(w.get(2)), x[3].mul(w.get(6)));
    let (a1, b1) = (x1.add(x3), x1.sub(x3));
    [a0.add(a1), b0.add_i(b1), a0.sub(a1), b0.sub_i(b1)]
}

/// Points 1, 3, 5, 7 of eight, multiplied by their factors and transformed.
#[inline(always)]
fn divide_odd<V: Simd8>(x: [Complex<V>; 4], w: impl Factors<V>) -> [Complex<V>; 4] {
    let (x0, x2) = (x[0].mul(w.get(1)), x[2].mul(w.get(5)));
    let (a0, b0) = (x0.add(x2), x0.sub(x2));
    let (x1, x3) = (x[1].mul(w.get(3)), x[3].mul(w.get(7)));
    let (a1, b1) = (x1.add(x3), x1.sub(x3));
    [a0.add(a1), b0.add_i(b1), a0.sub(a1), b0.sub_i(b1)]
}

/// The transform of eight points from those of the even and of the odd ones: e[k] ± ω^k·o[k].
#[inline(always)]
fn combine<V: Simd8>(e: [Complex<V>; 4], o: [Complex<V>; 4]) -> [Complex<V>; 8] {
    // ω·o[1] and ω^3·o[3] with ω = (1+i)/√2, up to the factor 1/√2 and, for g, the sign.
    let h = V::splat(std::f64::consts::FRAC_1_SQRT_2);
    let f = o[1].add_i(o[1]);
    let g = o[3].sub_i(o[3]);
    [
        e[0].add(o[0]),
        e[1].add_scaled(h, f),
        e[2].add_i(o[2]),
        e[3].sub_scaled(h, g),
        e[0].sub(o[0]),
        e[1].sub_scaled(h, f),
        e[2].sub_i(o[2]),
        e[3].add_scaled(h, g),
    ]
}

/// Divides a node: point r is multiplied by w_r (w_0 = 1), then a Fourier transform of `R` points.
trait Divide<V> {
    fn divide(self, w: impl Factors<V>) -> Self;
    /// The transpose of [`Self::divide`]: a Fourier transform, then the factors.
    fn unite(self, w: impl Factors<V>) -> Self;
}

/// The factors w_1, w_2, … of a butterfly; read as late as possible, since the registers are full.
trait Factors<V>: Copy {
    fn get(self, r: usize) -> Complex<V>;
}

/// The same factor for all lanes: pairs of real and imaginary part at `0`, which points to all that are asked for.
/// Compact, but to spread a number over a register takes an arithmetic slot on some processors (Zen 4 for one): for
/// nodes that use their factors once.
#[derive(Clone, Copy)]
struct Broadcast(*const f64);

/// A factor for each lane: eight real parts and eight imaginary parts for each r, w_1 first.
#[derive(Clone, Copy)]
struct PerLane(*const f64);

impl<V: Simd8> Factors<V> for Broadcast {
    #[inline(always)]
    fn get(self, r: usize) -> Complex<V> {
        // SAFETY: whoever made `self` promised this factor.
        let (re, im) = unsafe { (*self.0.add(2 * r - 2), *self.0.add(2 * r - 1)) };
        Complex {
            re: V::splat(re),
            im: V::splat(im),
        }
    }
}

impl<V: Simd8> Factors<V> for PerLane {
    #[inline(always)]
    fn get(self, r: usize) -> Complex<V> {
        // SAFETY: whoever made `self` promised this factor.
        unsafe {
            let at = self.0.add(16 * (r - 1));
            Complex {
                re: V::load(at),
                im: V::load(at.add(LANES)),
            }
        }
    }
}

impl<V: Simd8> Divide<V> for [Complex<V>; 8] {
    #[inline(always)]
    fn divide(self, w: impl Factors<V>) -> Self {
        let x = self;
        combine(
            divide_even([x[0], x[2], x[4], x[6]], w),
            divide_odd([x[1], x[3], x[5], x[7]], w),
        )
    }

    #[inline(always)]
    fn unite(self, w: impl Factors<V>) -> Self {
        let y = self;
        let (a0, a2) = (y[0].add(y[4]), y[2].add(y[6]));
        let (b0, b2) = (y[0].twice_sub(a0), y[2].twice_sub(a2));
        let (a1, b1) = (y[1].add(y[5]), y[1].sub(y[5]));
        let (a3, b3) = (y[3].add(y[7]), y[3].sub(y[7]));
        let (s0, t0) = (a0.add(a2), a0.sub(a2));
        let (s1, t1) = (a1.add(a3), a1.sub(a3));
        let (u0, u1) = (b0.add_i(b2), b0.sub_i(b2));
        let (p, m) = (b1.add(b3), b1.sub(b3));
        // b1·ω + b3·ω^3 and b1·ω^3 + b3·ω with ω = (1+i)/√2, up to the factor 1/√2 and, for g, the sign.
        let (f, g) = (m.add_i(p), m.sub_i(p));
        let h = V::splat(std::f64::consts::FRAC_1_SQRT_2);
        [
            s0.add(s1),
            u0.add_scaled(h, f).mul(w.get(1)),
            t0.add_i(t1).mul(w.get(2)),
            u1.sub_scaled(h, g).mul(w.get(3)),
            s0.sub(s1).mul(w.get(4)),
            u0.sub_scaled(h, f).mul(w.get(5)),
            t0.sub_i(t1).mul(w.get(6)),
            u1.add_scaled(h, g).mul(w.get(7)),
        ]
    }
}

impl<V: Simd8> Divide<V> for [Complex<V>; 4] {
    #[inline(always)]
    fn divide(self, w: impl Factors<V>) -> Self {
        let x = self;
        let a0 = x[2].mul_add(w.get(2), x[0]);
        let b0 = x[0].twice_sub(a0);
        let (x1, x3) = (x[1].mul(w.get(1)), x[3].mul(w.get(3)));
        let (a1, b1) = (x1.add(x3), x1.sub(x3));
        [a0.add(a1), b0.add_i(b1), a0.sub(a1), b0.sub_i(b1)]
    }

    #[inline(always)]
    fn unite(self, w: impl Factors<V>) -> Self {
        let y = self;
        let (a0, b0) = (y[0].add(y[2]), y[0].sub(y[2]));
        let (a1, b1) = (y[1].add(y[3]), y[1].sub(y[3]));
        [
            a0.add(a1),
            b0.add_i(b1).mul(w.get(1)),
            a0.sub(a1).mul(w.get(2)),
            b0.sub_i(b1).mul(w.get(3)),
        ]
    }
}

impl<V: Simd8> Divide<V> for [Complex<V>; 2] {
    #[inline(always)]
    fn divide(self, w: impl Factors<V>) -> Self {
        let sum = self[1].mul_add(w.get(1), self[0]);
        [sum, self[0].twice_sub(sum)]
    }

    #[inline(always)]
    fn unite(self, w: impl Factors<V>) -> Self {
        [self[0].add(self[1]), self[0].sub(self[1]).mul(w.get(1))]
    }
}

impl<V: Simd8> Divide<V> for [Complex<V>; 1] {
    #[inline(always)]
    fn divide(self, _: impl Factors<V>) -> Self {
        self
    }

    #[inline(always)]
    fn unite(self, _: impl Factors<V>) -> Self {
        self
    }
}

/// Where complex points lie: vector `j/8` of them has its real parts at `re + stride·j`, its imaginary parts at
/// `im + stride·j`.
#[derive(Clone, Copy)]
pub(super) struct Points {
    re: *mut f64,
    im: *mut f64,
    stride: usize,
}

impl Points {
    /// A spectrum, in blocks of eight points.
    #[inline(always)]
    pub(super) fn spectrum(at: *mut f64) -> Points {
        Points {
            re: at,
            im: at.wrapping_add(LANES),
            stride: 2,
        }
    }

    #[inline(always)]
    fn from(self, point: usize) -> Points {
        Points {
            re: self.re.wrapping_add(self.stride * point),
            im: self.im.wrapping_add(self.stride * point),
            stride: self.stride,
        }
    }

    #[inline(always)]
    fn exchanged(self) -> Points {
        Points {
            re: self.im,
            im: self.re,
            stride: self.stride,
        }
    }
}

/// What a pass reads its points from.
pub(super) trait Source: Copy {
    /// # Safety
    /// Eight points from number `point` on can be read.
    unsafe fn load<V: Simd8>(self, point: usize) -> Complex<V>;
}

/// What a pass writes its points to.
pub(super) trait Target {
    /// # Safety
    /// Eight points from number `point` on can be written.
    unsafe fn store<V: Simd8>(&mut self, point: usize, value: Complex<V>);
}

impl Source for Points {
    #[inline(always)]
    unsafe fn load<V: Simd8>(self, point: usize) -> Complex<V> {
        // SAFETY: the caller's promise.
        unsafe {
            Complex {
                re: V::load(self.re.add(self.stride * point)),
                im: V::load(self.im.add(self.stride * point)),
            }
        }
    }
}

impl Target for Points {
    #[inline(always)]
    unsafe fn store<V: Simd8>(&mut self, point: usize, value: Complex<V>) {
        // SAFETY: the caller's promise.
        unsafe {
            value.re.store(self.re.add(self.stride * point));
            value.im.store(self.im.add(self.stride * point));
        }
    }
}

/// A polynomial folded to `half` points: coefficient j is the real, coefficient `half` + j the imaginary part of point j.
#[derive(Clone, Copy)]
struct Folded<T> {
    polynomial: T,
    half: usize,
    /// Bytes that will be wanted, a line for every eight points read.
    ahead: *const u8,
}

impl<C: Coefficients> Source for Folded<C> {
    #[inline(always)]
    unsafe fn load<V: Simd8>(self, point: usize) -> Complex<V> {
        let part = |at| {
            let numbers = self.polynomial.eight(at);
            // SAFETY: eight numbers.
            unsafe { V::load(numbers.as_ptr()) }
        };
        V::prefetch(self.ahead.wrapping_add(point / LANES * LINE));
        Complex {
            re: part(point),
            im: part(self.half + point),
        }
    }
}

/// Real and imaginary parts come exchanged, as the inverse has them.
impl<R: Receiver> Target for Folded<R> {
    #[inline(always)]
    unsafe fn store<V: Simd8>(&mut self, point: usize, value: Complex<V>) {
        for (at, part) in [(point, value.im), (self.half + point, value.re)] {
            let mut numbers = [0.0; LANES];
            // SAFETY: eight numbers.
            unsafe { part.store(numbers.as_mut_ptr()) };
            self.polynomial.eight(at, numbers);
        }
    }
}

/// Divides (or, with `UNITE`, puts together again) one node of `size` points into `R`, column by column.
///
/// # Safety
/// `size` points can be read at `from` and written at `to`; `factors` points to R-1 factors for each lane.
#[inline(always)]
unsafe fn columns<V: Simd8, const R: usize, const UNITE: bool>(
    from: impl Source,
    to: &mut impl Target,
    size: usize,
    factors: *const f64,
) where
    [Complex<V>; R]: Divide<V>,
{
    let step = size / R;
    let mut at = 0;
    while at < step {
        // SAFETY: at + r·step < size, in steps of eight; the rest is the caller's promise.
        unsafe {
            let mut x = [from.load(at); R];
            for (r, x) in x.iter_mut().enumerate() {
                *x = from.load(at + r * step);
            }
            let y = if UNITE {
                x.unite(PerLane(factors))
            } else {
                x.divide(PerLane(factors))
            };
            for (r, y) in y.into_iter().enumerate() {
                to.store(at + r * step, y);
            }
        }
        at += LANES;
    }
}

/// One node of a pass.
///
/// # Safety
/// `pass.size` points can be read at `from` and written at `to`; `twiddles` are those of the plan.
#[inline(always)]
unsafe fn run_pass<V: Simd8, const UNITE: bool>(
    pass: &Pass,
    node: usize,
    from: impl Source,
    to: &mut impl Target,
    twiddles: *const f64,
) {
    // SAFETY: the caller's promise; each node of the pass has radix-1 factors for every lane.
    unsafe {
        let factors = twiddles.add(pass.twiddles + 2 * LANES * (pass.radix - 1) * node);
        match pass.radix {
            8 => columns::<V, 8, UNITE>(from, to, pass.size, factors),
            4 => columns::<V, 4, UNITE>(from, to, pass.size, factors),
            2 => columns::<V, 2, UNITE>(from, to, pass.size, factors),
            _ => columns::<V, 1, UNITE>(from, to, pass.size, factors),
        }
    }
}

/// The body of [`Simd8::pass_in_place`].
///
/// # Safety
/// As there; the processor runs V.
#[inline(always)]
pub(super) unsafe fn pass_in_place<V: Simd8, const UNITE: bool>(
    pass: &Pass,
    node: usize,
    mut at: Points,
    twiddles: *const f64,
) {
    // SAFETY: the caller's promise.
    unsafe { run_pass::<V, UNITE>(pass, node, at, &mut at, twiddles) }
}

/// Vectors 0, 2, 4, 6 of the transpose of `x`; with `ODD` vectors 1, 3, 5, 7.
#[inline(always)]
fn half_transpose<V: Simd8, const ODD: bool>(x: [Complex<V>; 8]) -> [Complex<V>; 4] {
    let p = [
        x[0].every_other_lane::<ODD>(x[1]),
        x[2].every_other_lane::<ODD>(x[3]),
        x[4].every_other_lane::<ODD>(x[5]),
        x[6].every_other_lane::<ODD>(x[7]),
    ];
    let re = V::transpose_pairs([p[0].re, p[1].re, p[2].re, p[3].re]);
    let im = V::transpose_pairs([p[0].im, p[1].im, p[2].im, p[3].im]);
    let mut out = p;
    for (out, (re, im)) in out.iter_mut().zip(re.into_iter().zip(im)) {
        *out = Complex { re, im };
    }
    out
}

/// Takes a node of 64 points down to its leaves, in the order of the spectrum.
///
/// # Safety
/// 64 points can be read at `at`; `factors` points to [`NODE_TWIDDLES`] numbers.
#[inline(always)]
unsafe fn divide_node<V: Simd8>(at: Points, factors: *const f64) -> [Complex<V>; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut x = [at.load(0); 8];
        for (r, x) in x.iter_mut().enumerate() {
            *x = at.load(LANES * r);
        }
        let within = PerLane(factors.add(16));
        // The arithmetic of the even half runs beside the shuffles of the odd half.
        let y: [Complex<V>; 8] = x.divide(Broadcast(factors));
        let even = divide_even(half_transpose::<V, false>(y), within);
        let odd = divide_odd(half_transpose::<V, true>(y), within);
        combine(even, odd)
    }
}

/// Undoes [`divide_node`], up to a factor of 64, in place.
///
/// # Safety
/// 64 points can be read and written at `at`; `factors` points to [`NODE_TWIDDLES`] numbers.
#[inline(always)]
unsafe fn unite_node<V: Simd8>(mut at: Points, factors: *const f64) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut x = [at.load(0); 8];
        for (r, x) in x.iter_mut().enumerate() {
            *x = at.load(LANES * r);
        }
        let y: [Complex<V>; 8] = x.unite(PerLane(factors.add(16)));
        let (e, o) = (half_transpose::<V, false>(y), half_transpose::<V, true>(y));
        let y = [e[0], o[0], e[1], o[1], e[2], o[2], e[3], o[3]].unite(Broadcast(factors));
        for (r, y) in y.into_iter().enumerate() {
            at.store(LANES * r, y);
        }
    }
}

/// The body of [`Simd8::divide_in_place`].
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn divide_in_place<V: Simd8>(mut at: Points, factors: *const f64) {
    // SAFETY: the caller's promise.
    unsafe {
        // Of a loop over the points, the compiler would make one over a copy of them.
        let [x0, x1, x2, x3, x4, x5, x6, x7] = divide_node::<V>(at, factors);
        at.store(0, x0);
        at.store(LANES, x1);
        at.store(2 * LANES, x2);
        at.store(3 * LANES, x3);
        at.store(4 * LANES, x4);
        at.store(5 * LANES, x5);
        at.store(6 * LANES, x6);
        at.store(7 * LANES, x7);
    }
}

/// What becomes of a node of [`NODE`] points of the spectrum.
pub(super) trait Leaf: Copy {
    /// Whether it only writes the points of a node, which takes little code.
    const KEEPS: bool = false;
    /// Before the points of the node that begins with number `start`.
    fn begin<V: Simd8>(self, start: usize);
    /// # Safety
    /// `point` are the eight points of group `group` of the node at `at`, where they may be written; it begins with number
    /// `start` of the spectrum; the processor runs V.
    unsafe fn ready<V: Simd8>(self, point: Complex<V>, at: Points, start: usize, group: usize);
}

/// The spectrum is the result.
#[derive(Clone, Copy)]
pub(super) struct Keep {
    /// Bytes that will be wanted; they need not be readable.
    pub(super) ahead: *const u8,
    /// How many of them each leaf asks for.
    pub(super) share: usize,
}

impl Leaf for Keep {
    const KEEPS: bool = true;

    #[inline(always)]
    fn begin<V: Simd8>(self, start: usize) {
        let ahead = self.ahead.wrapping_add(start / NODE * self.share);
        for line in (0..self.share).step_by(LINE) {
            V::prefetch(ahead.wrapping_add(line));
        }
    }

    #[inline(always)]
    unsafe fn ready<V: Simd8>(self, point: Complex<V>, mut at: Points, _: usize, group: usize) {
        // SAFETY: the caller's promise.
        unsafe { at.store(LANES * group, point) };
    }
}

/// `sums[c] += spectrum·key[c]` (or `=` without `ADD`) for each of `columns` polynomials of `degree` numbers in a row.
/// `COLUMNS` is their number if it is known at compile time, else 0.
#[derive(Clone, Copy)]
pub(super) struct MulAdd<F, const ADD: bool, const COLUMNS: usize> {
    /// A row of keys in the format F.
    pub(super) key: *const u8,
    pub(super) sums: *mut f64,
    pub(super) columns: usize,
    pub(super) degree: usize,
    pub(super) format: std::marker::PhantomData<F>,
}

/// How far ahead of its use a key is asked for, in bytes, to begin with. A row of keys is asked for in equal steps, all
/// through the transform that multiplies by it: a line for each eight points of the pass at the root, the rest at the leaves.
const AHEAD: usize = 65536;
const LINE: usize = 64;

impl<F: Format, const ADD: bool, const COLUMNS: usize> MulAdd<F, ADD, COLUMNS> {
    #[inline(always)]
    fn columns(self) -> usize {
        if COLUMNS == 0 { self.columns } else { COLUMNS }
    }

    /// Eight points of the spectrum, group `group` of a node of `size` points that starts with number `start`.
    ///
    /// # Safety
    /// The promise of whoever made `self`; the node's key stands at `key`; the processor runs V.
    #[inline(always)]
    unsafe fn group<V: Simd8>(
        self,
        point: Complex<V>,
        key: *const u8,
        size: usize,
        start: usize,
        group: usize,
    ) {
        let columns = self.columns();
        for column in 0..columns {
            let mut sums = Points::spectrum(self.sums.wrapping_add(column * self.degree));
            let at = start + LANES * group;
            // SAFETY: the caller's promise.
            unsafe {
                let factor = F::load(key, size, columns, column, group);
                let sum = if ADD {
                    point.mul_add(factor, sums.load(at))
                } else {
                    point.mul(factor)
                };
                sums.store(at, sum);
            }
        }
    }
}

impl<F: Format, const ADD: bool, const COLUMNS: usize> Leaf for MulAdd<F, ADD, COLUMNS> {
    #[inline(always)]
    fn begin<V: Simd8>(self, start: usize) {
        let bytes = F::node_bytes(NODE, self.columns());
        // What the pass at the root has not asked for, divided among the leaves.
        let nodes = self.degree / 2 / NODE;
        let asked = NODE / LANES * LINE;
        let share = bytes.saturating_sub(asked);
        let ahead = self
            .key
            .wrapping_add(AHEAD + nodes * asked + start / NODE * share);
        for line in (0..share).step_by(LINE) {
            V::prefetch(ahead.wrapping_add(line));
        }
    }

    #[inline(always)]
    unsafe fn ready<V: Simd8>(self, point: Complex<V>, _: Points, start: usize, group: usize) {
        let bytes = F::node_bytes(NODE, self.columns());
        let key = self.key.wrapping_add(start / NODE * bytes);
        // SAFETY: the caller's promise, and that of whoever made `self`.
        unsafe { self.group(point, key, NODE, start, group) };
    }
}

/// The products of a spectrum that is one node of fewer than [`NODE`] points.
///
/// # Safety
/// What `leaf` points to has the lengths that it states; `spectrum` has its degree; the processor runs V.
#[inline(always)]
pub(super) unsafe fn mul_node<V: Simd8, F: Format, const ADD: bool>(
    leaf: MulAdd<F, ADD, 0>,
    spectrum: &[f64],
) {
    for (group, numbers) in spectrum.chunks_exact(2 * LANES).enumerate() {
        // SAFETY: the caller's promise, and the numbers of eight points.
        unsafe {
            let point = Complex {
                re: V::load(numbers.as_ptr()),
                im: V::load(numbers[LANES..].as_ptr()),
            };
            leaf.group(point, leaf.key, spectrum.len() / 2, 0, group);
        }
    }
}

/// The pass at the root, from a polynomial. It asks for the first bytes of the key by which the leaves will multiply, which
/// need not be readable.
///
/// # Safety
/// `plan` is for a degree from 128; `coeffs` is a polynomial of it; N numbers can be written at `spectrum`; the processor
/// runs V.
#[inline(always)]
pub(super) unsafe fn fold<V: Simd8>(
    plan: &FftPlan,
    coeffs: impl Coefficients,
    spectrum: *mut f64,
    key: *const u8,
) {
    let folded = Folded {
        polynomial: coeffs,
        half: plan.degree / 2,
        ahead: key.wrapping_add(AHEAD),
    };
    let mut points = Points::spectrum(spectrum);
    // SAFETY: the caller's promise, and the tables were made for N/2 points.
    unsafe {
        let twiddles = plan.twiddles.as_ptr();
        run_pass::<V, false>(&plan.passes[0], 0, folded, &mut points, twiddles);
    }
}

/// Everything after [`fold`], from the points that it left at `spectrum`.
///
/// # Safety
/// `plan` is for a degree from 128; N numbers can be read and written at `spectrum`; what `leaf` points to has the lengths
/// that it states; the processor runs V.
#[inline(always)]
pub(super) unsafe fn descend<V: Simd8, L: Leaf>(plan: &FftPlan, spectrum: *mut f64, leaf: L) {
    let twiddles = plan.twiddles.as_ptr();
    let points = Points::spectrum(spectrum);
    // SAFETY: the caller's promise, and the tables were made for N/2 points.
    unsafe {
        for block in 0..plan.degree / 2 / NODE {
            let start = block * NODE;
            for pass in &plan.passes[1..] {
                if start.is_multiple_of(pass.size) {
                    let node = start / pass.size;
                    V::pass_in_place::<false>(pass, node, points.from(start), twiddles);
                }
            }
            let factors = twiddles.add(plan.node_twiddles + block * NODE_TWIDDLES);
            let node = points.from(start);
            if V::NODE_IN_MEMORY && !L::KEEPS {
                V::divide_in_place(node, factors);
                leaf.begin::<V>(start);
                for group in 0..NODE / LANES {
                    leaf.ready::<V>(node.load(LANES * group), node, start, group);
                }
            } else {
                let points = divide_node::<V>(node, factors);
                leaf.begin::<V>(start);
                for (group, point) in points.into_iter().enumerate() {
                    leaf.ready(point, node, start, group);
                }
            }
        }
    }
}

/// Everything before [`unfold`], in place.
///
/// # Safety
/// `plan` is for a degree from 128; N numbers can be read and written at `spectrum`; the processor runs V.
#[inline(always)]
pub(super) unsafe fn ascend<V: Simd8>(plan: &FftPlan, spectrum: *mut f64) {
    let twiddles = plan.twiddles.as_ptr();
    let points = Points::spectrum(spectrum).exchanged();
    // SAFETY: the caller's promise, and the tables were made for N/2 points.
    unsafe {
        for block in 0..plan.degree / 2 / NODE {
            let factors = twiddles.add(plan.node_twiddles + block * NODE_TWIDDLES);
            unite_node::<V>(points.from(block * NODE), factors);
            let end = (block + 1) * NODE;
            for pass in plan.passes[1..].iter().rev() {
                if end.is_multiple_of(pass.size) {
                    let at = points.from(end - pass.size);
                    V::pass_in_place::<true>(pass, end / pass.size - 1, at, twiddles);
                }
            }
        }
    }
}

/// The pass back at the root, to a polynomial.
///
/// # Safety
/// `plan` is for a degree from 128; N numbers can be read at `spectrum`; `coeffs` takes a polynomial of N coefficients; the
/// processor runs V.
#[inline(always)]
pub(super) unsafe fn unfold<V: Simd8>(plan: &FftPlan, spectrum: *mut f64, coeffs: impl Receiver) {
    let points = Points::spectrum(spectrum).exchanged();
    let mut folded = Folded {
        polynomial: coeffs,
        half: plan.degree / 2,
        ahead: std::ptr::null(),
    };
    // SAFETY: the caller's promise, and the tables were made for N/2 points.
    unsafe {
        let twiddles = plan.twiddles.as_ptr();
        run_pass::<V, true>(&plan.passes[0], 0, points, &mut folded, twiddles);
    }
}

/// `acc = Σ rows[i]·keys[i]`, plus what `acc` was before with `ADD`.
///
/// # Safety
/// All slices have the length of `acc`, a multiple of 16, and there are as many rows as keys; the processor runs V.
#[inline(always)]
pub(super) unsafe fn mul_rows<V: Simd8, const ADD: bool>(
    acc: &mut [f64],
    rows: &[&[f64]],
    keys: &[&[f64]],
) {
    let points = acc.len() / 2;
    let mut acc = Points::spectrum(acc.as_mut_ptr());
    let zero = Complex {
        re: V::splat(0.0),
        im: V::splat(0.0),
    };
    for at in (0..points).step_by(LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sum = if ADD { acc.load(at) } else { zero };
            for (row, key) in rows.iter().zip(keys) {
                let row = Points::spectrum(row.as_ptr().cast_mut());
                let key = Points::spectrum(key.as_ptr().cast_mut());
                sum = row.load::<V>(at).mul_add(key.load(at), sum);
            }
            acc.store(at, sum);
        }
    }
}
