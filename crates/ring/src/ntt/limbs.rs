//! The SIMD kernel of the NTT, written once over [`Vector`], a vector of 64-bit lanes.
//!
//! Passes of radix 8 (and 4) instead of rows: with `v` a root of a block, a pass multiplies slot `q` of the block by
//! `v^q` and then does a small DFT, whose twiddles are powers of two, since 2 is a 192nd root of unity:
//! 2^96 = -1, 2^48 is the fourth root and 2^24 the eighth root that the rows of [`portable`](super::portable) use.
//!
//! Inside a pass an element is a pair of signed limbs, `lo + hi·φ` with φ = 2^32 and φ^2 = φ - 1, in 64-bit lanes that
//! leave room for the sums and shifts of the DFT without carries. Products by twiddles take four signed 32-bit
//! multiplications. Between passes an element is one word, any `u64` congruent to it plus a constant, which saves
//! operations: [`BIAS`] in the forward transform, -2^31 in the inverse.
//!
//! Bounds below are in units of φ = 2^32 unless they say otherwise.

use std::hint::black_box;

use super::tables::{Pass, Tables};

/// 2^64 - p = 2^32 - 1; also the mask of the low half of a lane.
pub const EPSILON: u64 = 0xffff_ffff;

/// 2^31 on each limb: flipping these bits in a word congruent to an element plus `BIAS` gives the element's two limbs as
/// signed 32-bit integers.
pub const BIAS: u64 = 0x8000_0000_8000_0000;

/// Zero modulo p as limbs, with a high limb so large that an element plus it has a positive one:
/// 2^28 + (2^60 - 2^28)·φ, since 2^60·φ = 2^28·φ^2 = 2^28·φ - 2^28.
const ZERO: [u64; 2] = [1 << 28, (1 << 60) - (1 << 28)];

/// Zero modulo p as limbs, with a high limb of about 2^63: 2^31 + (2^63 - 2^31)·φ.
pub const WIDE_ZERO: [u64; 2] = [1 << 31, (1 << 63) - (1 << 31)];

/// A block of at most this many elements stays in the first-level cache through all its remaining passes.
const CACHED: usize = 2048;

/// A vector of 64-bit lanes. A value exists only where its instruction set does, which is what the constructors
/// [`splat`](Vector::splat) and [`load`](Vector::load) ask of their callers; the other methods rely on it.
pub trait Vector: Copy {
    const LANES: usize;
    /// # Safety
    /// The processor must have the instruction set of this vector.
    unsafe fn splat(x: u64) -> Self;
    /// # Safety
    /// As for [`Vector::splat`], and `LANES` words must be readable at `from`.
    unsafe fn load(from: *const u64) -> Self;
    /// # Safety
    /// `LANES` words must be writable at `to`.
    unsafe fn store(self, to: *mut u64);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Product of the low halves as signed integers.
    fn mul_signed(self, other: Self) -> Self;
    /// Product of the low halves as unsigned integers.
    fn mul_unsigned(self, other: Self) -> Self;
    fn shift_left<const BITS: u32>(self) -> Self;
    /// The high half, zero-extended.
    fn high(self) -> Self;
    /// The high half, sign-extended.
    fn high_signed(self) -> Self;
    /// The low half of `self` below the low half of `high`.
    fn join(self, high: Self) -> Self;
    /// A word congruent to `self + other` modulo p, where the sum is at most 2^65 - 2^32.
    fn add_modulo(self, other: Self) -> Self;
    /// A word congruent to `self - other` modulo p, where `other` is at most p; canonical if `self` is.
    fn sub_modulo(self, other: Self) -> Self;
    /// The canonical form of any word.
    fn canonical(self) -> Self;
    /// From `LANES` consecutive blocks of eight words to vectors of their words `0`, `1`, ... `7`.
    fn transpose(rows: [Self; 8]) -> [Self; 8];
    /// Undoes [`Vector::transpose`].
    fn transpose_back(columns: [Self; 8]) -> [Self; 8];
}

/// `lo + hi·φ`, limbs signed.
#[derive(Clone, Copy)]
struct Limbs<V> {
    lo: V,
    hi: V,
}

impl<V: Vector> Limbs<V> {
    /// # Safety
    /// As for [`Vector::splat`].
    #[inline(always)]
    unsafe fn splat([lo, hi]: [u64; 2]) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Limbs {
                lo: V::splat(lo),
                hi: V::splat(hi),
            }
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Limbs {
            lo: self.lo.add(other.lo),
            hi: self.hi.add(other.hi),
        }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Limbs {
            lo: self.lo.sub(other.lo),
            hi: self.hi.sub(other.hi),
        }
    }

    #[inline(always)]
    fn butterfly(self, other: Self) -> (Self, Self) {
        (self.add(other), self.sub(other))
    }

    /// `(self + 2^48·other, self - 2^48·other)`; 2^48 = 2^16·φ, and φ·(lo + hi·φ) = -hi + (lo + hi)·φ.
    #[inline(always)]
    fn butterfly_48(self, other: Self) -> (Self, Self) {
        let lo = other.hi.shift_left::<16>();
        let hi = other.lo.add(other.hi).shift_left::<16>();
        (
            Limbs {
                lo: self.lo.sub(lo),
                hi: self.hi.add(hi),
            },
            Limbs {
                lo: self.lo.add(lo),
                hi: self.hi.sub(hi),
            },
        )
    }

    /// `(self + other, 2^-48·(self - other))`; 2^-48 = -2^48.
    #[inline(always)]
    fn inverse_butterfly_48(self, other: Self) -> (Self, Self) {
        (self.add(other), other.sub(self).times_48())
    }

    #[inline(always)]
    fn times_48(self) -> Self {
        let sum = self.lo.add(self.hi);
        Limbs {
            lo: self.lo.sub(sum).shift_left::<16>(),
            hi: sum.shift_left::<16>(),
        }
    }

    /// `2^24·self + 2^72·other`; 2^72 = 2^8·φ^2, and φ^2·(lo + hi·φ) = -(lo + hi) + lo·φ.
    #[inline(always)]
    fn mix_24_72(self, other: Self) -> Self {
        Limbs {
            lo: self
                .lo
                .shift_left::<24>()
                .sub(other.lo.add(other.hi).shift_left::<8>()),
            hi: self.hi.shift_left::<24>().add(other.lo.shift_left::<8>()),
        }
    }

    /// A word congruent to an element within 3·2^25 of `ZERO`: `lo + 2^32·(hi mod 2^32) + (2^32 - 1)·(hi / 2^32)`.
    ///
    /// With `hi` in `[5·2^57 - 2^28, 11·2^57)` and `lo` within 3·2^57 + 2^32, the last term and `lo` make a sum in
    /// `[0, 2^61)`.
    #[inline(always)]
    fn word(self, c: &Constants<V>) -> V {
        let small = self.hi.high().mul_unsigned(c.epsilon).add(self.lo);
        self.hi.shift_left::<32>().add_modulo(small)
    }
}

/// A loop over at most eight slots as straight code, so that the slots stay in registers.
macro_rules! unroll {
    ($slot:ident in $from:literal..$to:tt $body:block) => {
        unroll!(@ $slot $from $to $body 0 1 2 3 4 5 6 7)
    };
    (@ $slot:ident $from:literal $to:tt $body:block $($i:literal)*) => {
        $({
            let $slot: usize = $i;
            if ($from..$to).contains(&$slot) $body
        })*
    };
}

/// Constants that a pass keeps in registers.
struct Constants<V> {
    epsilon: V,
    bias: V,
    wide_zero: Limbs<V>,
}

impl<V: Vector> Constants<V> {
    /// # Safety
    /// As for [`Vector::splat`].
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Constants {
                // Opaque, or else the compiler makes two operations of a multiplication by this constant.
                epsilon: V::splat(black_box(EPSILON)),
                bias: V::splat(BIAS),
                wide_zero: Limbs::splat(WIDE_ZERO),
            }
        }
    }

    /// The limbs of a word, unsigned, each below 1.
    #[inline(always)]
    fn split(&self, word: V) -> Limbs<V> {
        Limbs {
            lo: word.and(self.epsilon),
            hi: word.high(),
        }
    }
}

/// A twiddle `w` as the four signed 32-bit limbs of `w` and of `φ·w`, in the low halves of the lanes.
///
/// The tables hold only twiddles whose products stay within 64 bits ([`super::tables`] says how).
type Twiddle<V> = [V; 4];

/// The product of a twiddle and an element given by its signed 32-bit limbs (in one word), as two limbs of 64 bits.
#[inline(always)]
fn product<V: Vector>(limbs: V, w: Twiddle<V>) -> Limbs<V> {
    let high = limbs.high();
    Limbs {
        lo: limbs.mul_signed(w[0]).add(high.mul_signed(w[2])),
        hi: limbs.mul_signed(w[1]).add(high.mul_signed(w[3])),
    }
}

/// The same product with limbs `lo` in `(-1/2, 3/2)` and `hi` in `(-1, 2)`: each limb of [`product`] splits into a
/// signed high part within 1/2 and an unsigned low part below 1.
#[inline(always)]
fn small_product<V: Vector>(limbs: V, w: Twiddle<V>, c: &Constants<V>) -> Limbs<V> {
    let Limbs { lo, hi } = product(limbs, w);
    let square = hi.high_signed();
    Limbs {
        lo: lo.and(c.epsilon).sub(square),
        hi: hi.and(c.epsilon).add(square).add(lo.high_signed()),
    }
}

/// The DFT of eight elements, outputs in bit-reversed order: the rows of the portable kernel with twiddles 1;
/// 1, 2^48; 1, 2^48, 2^24, 2^72.
///
/// From limbs within 2 the outputs are within 3·2^25: the first row gives 4, a product by 2^48 in the second 7·2^16,
/// and 2^24 in the third at most 4·2^24 + 8·2^8, since it acts on the first row's results: 2^24·(s5 + 2^48·s7) =
/// 2^24·s5 + 2^72·s7 and 2^72·(s5 - 2^48·s7) = 2^72·s5 + 2^24·s7. Slot 0 is never shifted.
#[inline(always)]
fn dft8<V: Vector>(z: [Limbs<V>; 8]) -> [Limbs<V>; 8] {
    let (a0, a4) = z[0].butterfly(z[4]);
    let (a1, a5) = z[1].butterfly(z[5]);
    let (a2, a6) = z[2].butterfly(z[6]);
    let (a3, a7) = z[3].butterfly(z[7]);
    let (b0, b2) = a0.butterfly(a2);
    let (b1, b3) = a1.butterfly(a3);
    let (y0, y1) = b0.butterfly(b1);
    let (y2, y3) = b2.butterfly_48(b3);
    let (b4, b6) = a4.butterfly_48(a6);
    let (y4, y5) = b4.butterfly(a5.mix_24_72(a7));
    let (y6, y7) = b6.butterfly(a7.mix_24_72(a5));
    [y0, y1, y2, y3, y4, y5, y6, y7]
}

/// The DFT of four elements, outputs in bit-reversed order; from limbs within 2 to limbs within 7·2^16 + 4.
#[inline(always)]
fn dft4<V: Vector>(z: [Limbs<V>; 4]) -> [Limbs<V>; 4] {
    let (a0, a2) = z[0].butterfly(z[2]);
    let (a1, a3) = z[1].butterfly(z[3]);
    let (y0, y1) = a0.butterfly(a1);
    let (y2, y3) = a2.butterfly_48(a3);
    [y0, y1, y2, y3]
}

/// Eight times the inverse of [`dft8`]; from limbs within 1 to limbs within 2^25. Slot 0 is never shifted.
///
/// With `d = y5 - y4` and `e = y7 - y6` the slots 5 and 7 of the second row are 2^72·d + 2^24·e and, as 2^120 = -2^24,
/// 2^48·(2^24·e - 2^72·d) = 2^72·e + 2^24·d.
#[inline(always)]
fn inverse_dft8<V: Vector>(y: [Limbs<V>; 8]) -> [Limbs<V>; 8] {
    let (b0, b1) = y[0].butterfly(y[1]);
    let (b2, b3) = y[2].inverse_butterfly_48(y[3]);
    let (a0, a2) = b0.butterfly(b2);
    let (a1, a3) = b1.butterfly(b3);
    let (a4, a6) = y[4].add(y[5]).inverse_butterfly_48(y[6].add(y[7]));
    let (d, e) = (y[5].sub(y[4]), y[7].sub(y[6]));
    let (a5, a7) = (e.mix_24_72(d), d.mix_24_72(e));
    let (z0, z4) = a0.butterfly(a4);
    let (z1, z5) = a1.butterfly(a5);
    let (z2, z6) = a2.butterfly(a6);
    let (z3, z7) = a3.butterfly(a7);
    [z0, z1, z2, z3, z4, z5, z6, z7]
}

/// Four times the inverse of [`dft4`]; from limbs within 1 to limbs within 2^19.
#[inline(always)]
fn inverse_dft4<V: Vector>(y: [Limbs<V>; 4]) -> [Limbs<V>; 4] {
    let (a0, a1) = y[0].butterfly(y[1]);
    let (a2, a3) = y[2].inverse_butterfly_48(y[3]);
    let (z0, z2) = a0.butterfly(a2);
    let (z1, z3) = a1.butterfly(a3);
    [z0, z1, z2, z3]
}

/// The product of a twiddle and a word plus [`BIAS`], as a word without it; too small by 2^31 unless `EXACT`.
///
/// Adding `WIDE_ZERO` makes the high limb, with the carry of the low one, a `u64`. Its low limb is what may be left out.
#[inline(always)]
fn word_product<V: Vector, const EXACT: bool>(word: V, w: Twiddle<V>, c: &Constants<V>) -> V {
    let Limbs { mut lo, hi } = product(word.xor(c.bias), w);
    if EXACT {
        lo = lo.add(c.wide_zero.lo);
    }
    let hi = hi.add(lo.high_signed()).add(c.wide_zero.hi);
    lo.join(hi).add_modulo(hi.high().mul_unsigned(c.epsilon))
}

/// Limbs to subtract from slot 0 of an inverse DFT of `radix` elements, which has no product: the bias that the other
/// slots needed, less 2^31 for each word of the input that is too small by it, plus 2^31 to make the output so.
const fn slot_0_excess(radix: usize, input_exact: bool, output_exact: bool) -> [u64; 2] {
    let input = if input_exact { 0 } else { radix as i64 };
    let output = if output_exact { 0 } else { 1 };
    [((1 + output - input) << 31) as u64, 1 << 31]
}

/// The twiddles of slots 1 to R - 1, the same in every lane.
///
/// # Safety
/// As for [`Vector::splat`], and `4 * (R - 1)` words must be readable at `from`.
#[inline(always)]
unsafe fn splat_twiddle<V: Vector>(from: *const u64, slot: usize) -> Twiddle<V> {
    // SAFETY: the caller's promise.
    unsafe {
        let from = from.add(4 * (slot - 1));
        [
            V::splat(*from),
            V::splat(*from.add(1)),
            V::splat(*from.add(2)),
            V::splat(*from.add(3)),
        ]
    }
}

/// The twiddle of one slot of `LANES` blocks: a vector of limbs of `w`, and one of limbs of `φ·w`.
///
/// # Safety
/// As for [`Vector::splat`], and `14 * LANES` words must be readable at `from`.
#[inline(always)]
unsafe fn load_twiddle<V: Vector>(from: *const u64, slot: usize) -> Twiddle<V> {
    // SAFETY: the caller's promise.
    unsafe {
        let w = V::load(from.add(2 * (slot - 1) * V::LANES));
        let square = V::load(from.add((2 * slot - 1) * V::LANES));
        [w, w.high(), square, square.high()]
    }
}

/// Limbs to add to slot 0 of a DFT, and so to every output: zero, plus the change of bias.
const fn offset(input_biased: bool, output_biased: bool) -> [u64; 2] {
    let [lo, hi] = ZERO;
    match (input_biased, output_biased) {
        (true, false) => [lo.wrapping_sub(1 << 31), hi - (1 << 31)],
        (false, true) => [lo + (1 << 31), hi + (1 << 31)],
        _ => [lo, hi],
    }
}

/// One radix-8 or radix-4 pass of the forward transform over a block of `length` elements, `length / R` a multiple of
/// `LANES`. The first pass takes canonical words, the others words plus `BIAS`; all give words plus `BIAS`.
///
/// # Safety
/// As for [`Vector::splat`]; `a` must be valid for `length` words, and `twiddles` for `4 * (R - 1)`.
#[inline(always)]
unsafe fn forward_pass<V: Vector, const R: usize, const FIRST: bool>(
    a: *mut u64,
    length: usize,
    twiddles: *const u64,
) {
    let stride = length / R;
    // SAFETY: the caller's promise; the largest index is (R - 1)·stride + stride - 1 < length.
    unsafe {
        let c = Constants::<V>::new();
        let offset = Limbs::<V>::splat(const { offset(!FIRST, true) });
        for j in (0..stride).step_by(V::LANES) {
            let first = c.split(V::load(a.add(j))).add(offset);
            let mut z = [first; R];
            unroll!(q in 1..R {
                let mut word = V::load(a.add(q * stride + j));
                if FIRST {
                    word = c.bias.add_modulo(word);
                }
                z[q] = small_product(word.xor(c.bias), splat_twiddle(twiddles, q), &c);
            });
            dft(&mut z);
            unroll!(q in 0..R {
                z[q].word(&c).store(a.add(q * stride + j));
            });
        }
    }
}

/// One radix-8 or radix-4 pass of the inverse transform, as [`forward_pass`]: from words too small by 2^31 to the same,
/// in the last pass to canonical words.
///
/// # Safety
/// As for [`forward_pass`].
#[inline(always)]
unsafe fn inverse_pass<V: Vector, const R: usize, const LAST: bool>(
    a: *mut u64,
    length: usize,
    twiddles: *const u64,
) {
    let stride = length / R;
    // SAFETY: the caller's promise; the largest index is (R - 1)·stride + stride - 1 < length.
    unsafe {
        let c = Constants::<V>::new();
        let offset = Limbs::<V>::splat(const { offset(false, true) });
        let excess = Limbs::<V>::splat(const { slot_0_excess(R, false, LAST) });
        for j in (0..stride).step_by(V::LANES) {
            let mut z = [c.split(V::load(a.add(j))).add(offset); R];
            unroll!(q in 1..R {
                z[q] = c.split(V::load(a.add(q * stride + j)));
            });
            inverse_dft(&mut z);
            unroll!(q in 0..R {
                let mut word = if q == 0 {
                    z[q].sub(excess).word(&c)
                } else {
                    word_product::<V, LAST>(z[q].word(&c), splat_twiddle(twiddles, q), &c)
                };
                if LAST {
                    word = word.canonical();
                }
                word.store(a.add(q * stride + j));
            });
        }
    }
}

/// The DFT of 8 or 4 elements, by the length of `z`.
#[inline(always)]
fn dft<V: Vector, const R: usize>(z: &mut [Limbs<V>; R]) {
    if let Some(z) = z.first_chunk_mut::<8>() {
        *z = dft8(*z);
    } else if let Some(z) = z.first_chunk_mut::<4>() {
        *z = dft4(*z);
    }
}

/// The inverse DFT of 8 or 4 elements, by the length of `z`.
#[inline(always)]
fn inverse_dft<V: Vector, const R: usize>(z: &mut [Limbs<V>; R]) {
    if let Some(z) = z.first_chunk_mut::<8>() {
        *z = inverse_dft8(*z);
    } else if let Some(z) = z.first_chunk_mut::<4>() {
        *z = inverse_dft4(*z);
    }
}

/// The last pass of the forward transform, of radix 8 on `groups` times `LANES` blocks of eight consecutive words, each
/// with twiddles of its own; from words plus `BIAS` to canonical words.
///
/// # Safety
/// As for [`Vector::splat`]; `a` must be valid for `8 * LANES * groups` words and `twiddles` for 14/8 as many.
#[inline(always)]
unsafe fn forward_last<V: Vector>(a: *mut u64, groups: usize, twiddles: *const u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let c = Constants::<V>::new();
        let offset = Limbs::<V>::splat(const { offset(true, false) });
        for group in 0..groups {
            let a = a.add(8 * V::LANES * group);
            let twiddles = twiddles.add(14 * V::LANES * group);
            let words = V::transpose(load8(a));
            let mut z = [c.split(words[0]).add(offset); 8];
            unroll!(q in 1..8 {
                z[q] = small_product(words[q].xor(c.bias), load_twiddle(twiddles, q), &c);
            });
            let z = dft8(z);
            let mut words = words;
            unroll!(q in 0..8 {
                words[q] = z[q].word(&c).canonical();
            });
            store8(V::transpose_back(words), a);
        }
    }
}

/// The first pass of the inverse transform, the mirror image of [`forward_last`]; from canonical words to words
/// too small by 2^31.
///
/// # Safety
/// As for [`forward_last`].
#[inline(always)]
unsafe fn inverse_first<V: Vector>(a: *mut u64, groups: usize, twiddles: *const u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let c = Constants::<V>::new();
        let offset = Limbs::<V>::splat(const { offset(false, true) });
        let excess = Limbs::<V>::splat(const { slot_0_excess(8, true, false) });
        for group in 0..groups {
            let a = a.add(8 * V::LANES * group);
            let twiddles = twiddles.add(14 * V::LANES * group);
            let mut words = V::transpose(load8(a));
            let mut z = [c.split(words[0]).add(offset); 8];
            unroll!(q in 1..8 {
                z[q] = c.split(words[q]);
            });
            let z = inverse_dft8(z);
            words[0] = z[0].sub(excess).word(&c);
            unroll!(q in 1..8 {
                words[q] = word_product::<V, false>(z[q].word(&c), load_twiddle(twiddles, q), &c);
            });
            store8(V::transpose_back(words), a);
        }
    }
}

/// # Safety
/// As for [`Vector::load`], eight times.
#[inline(always)]
unsafe fn load8<V: Vector>(from: *const u64) -> [V; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut vectors = [V::load(from); 8];
        unroll!(i in 1..8 {
            vectors[i] = V::load(from.add(i * V::LANES));
        });
        vectors
    }
}

/// # Safety
/// As for [`Vector::store`], eight times.
#[inline(always)]
unsafe fn store8<V: Vector>(vectors: [V; 8], to: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe {
        unroll!(i in 0..8 {
            vectors[i].store(to.add(i * V::LANES));
        });
    }
}

/// The forward transform; the loops over passes and blocks.
///
/// # Safety
/// As for [`Vector::splat`]; `tables` must have been made for `a.len()` and `V::LANES`.
#[inline(always)]
pub unsafe fn forward<V: Vector>(a: &mut [u64], tables: &Tables) {
    let (passes, last) = (&tables.passes[..], tables.last.as_ptr().cast::<u64>());
    let n = a.len();
    let a = a.as_mut_ptr();
    // SAFETY: the blocks of a pass tile `a`; a pass has twiddles for each of its blocks, the last pass for all of `a`.
    unsafe {
        let cached = passes.iter().position(|pass| n / pass.blocks <= CACHED);
        let (large, small) = passes.split_at(cached.unwrap_or(passes.len()));
        for pass in large {
            forward_blocks::<V>(a, n, pass, 0, pass.blocks);
        }
        let chunks = small.first().map_or(1, |pass| pass.blocks);
        let length = n / chunks;
        for chunk in 0..chunks {
            for pass in small {
                let blocks = pass.blocks / chunks;
                forward_blocks::<V>(a, n, pass, chunk * blocks, blocks);
            }
            let groups = length / (8 * V::LANES);
            let done = chunk * length;
            forward_last::<V>(a.add(done), groups, last.add(done / 8 * 14));
        }
    }
}

/// The inverse transform, [`forward`] in reverse.
///
/// # Safety
/// As for [`forward`].
#[inline(always)]
pub unsafe fn inverse<V: Vector>(a: &mut [u64], tables: &Tables) {
    let (passes, first) = (&tables.passes[..], tables.last.as_ptr().cast::<u64>());
    let n = a.len();
    let a = a.as_mut_ptr();
    // SAFETY: as in `forward`.
    unsafe {
        let cached = passes.iter().position(|pass| n / pass.blocks <= CACHED);
        let (large, small) = passes.split_at(cached.unwrap_or(passes.len()));
        let chunks = small.first().map_or(1, |pass| pass.blocks);
        let length = n / chunks;
        for chunk in 0..chunks {
            let groups = length / (8 * V::LANES);
            let done = chunk * length;
            inverse_first::<V>(a.add(done), groups, first.add(done / 8 * 14));
            for pass in small.iter().rev() {
                let blocks = pass.blocks / chunks;
                inverse_blocks::<V>(a, n, pass, chunk * blocks, blocks);
            }
        }
        for pass in large.iter().rev() {
            inverse_blocks::<V>(a, n, pass, 0, pass.blocks);
        }
    }
}

/// Some blocks of a pass of the forward transform.
///
/// # Safety
/// As for [`Vector::splat`]; `a` must be valid for `n` words and the pass made for `n`.
#[inline(always)]
unsafe fn forward_blocks<V: Vector>(a: *mut u64, n: usize, pass: &Pass, from: usize, count: usize) {
    let length = n / pass.blocks;
    for block in from..from + count {
        // SAFETY: `block` is below `pass.blocks`, so its words and its twiddles exist.
        unsafe {
            let a = a.add(block * length);
            let twiddles = pass.twiddles.as_ptr().add(block * 4 * (pass.radix - 1));
            match (pass.radix, pass.blocks) {
                (8, 1) => forward_pass::<V, 8, true>(a, length, twiddles),
                (8, _) => forward_pass::<V, 8, false>(a, length, twiddles),
                (_, 1) => forward_pass::<V, 4, true>(a, length, twiddles),
                (_, _) => forward_pass::<V, 4, false>(a, length, twiddles),
            }
        }
    }
}

/// Some blocks of a pass of the inverse transform.
///
/// # Safety
/// As for [`forward_blocks`].
#[inline(always)]
unsafe fn inverse_blocks<V: Vector>(a: *mut u64, n: usize, pass: &Pass, from: usize, count: usize) {
    let length = n / pass.blocks;
    for block in from..from + count {
        // SAFETY: `block` is below `pass.blocks`, so its words and its twiddles exist.
        unsafe {
            let a = a.add(block * length);
            let twiddles = pass.twiddles.as_ptr().add(block * 4 * (pass.radix - 1));
            match (pass.radix, pass.blocks) {
                (8, 1) => inverse_pass::<V, 8, true>(a, length, twiddles),
                (8, _) => inverse_pass::<V, 8, false>(a, length, twiddles),
                (_, 1) => inverse_pass::<V, 4, true>(a, length, twiddles),
                (_, _) => inverse_pass::<V, 4, false>(a, length, twiddles),
            }
        }
    }
}

/// `a·b + c` of canonical words, canonical.
///
/// The product is `low + 2^64·middle + 2^96·top`, that is `low + middle·(2^32 - 1) - top`, as in section 4.6 of the
/// platform paper.
#[inline(always)]
fn multiply_add<V: Vector>(a: V, b: V, addend: V, epsilon: V) -> V {
    let (a1, b1) = (a.high(), b.high());
    let low = a.mul_unsigned(b);
    let cross = a1.mul_unsigned(b).add(low.high());
    let cross2 = a.mul_unsigned(b1).add(cross.and(epsilon));
    let high = a1.mul_unsigned(b1).add(cross.high()).add(cross2.high());
    low.join(cross2)
        .add_modulo(high.mul_unsigned(epsilon))
        .add_modulo(addend.sub_modulo(high.high()))
        .canonical()
}

/// `acc += a ⊙ b`.
///
/// # Safety
/// As for [`Vector::splat`]; the slices must be equally long, a multiple of `LANES`.
#[inline(always)]
pub unsafe fn mul_add_assign<V: Vector>(acc: &mut [u64], a: &[u64], b: &[u64]) {
    // SAFETY: the caller's promise.
    unsafe {
        let epsilon = V::splat(black_box(EPSILON));
        for i in (0..acc.len()).step_by(V::LANES) {
            let (x, y) = (V::load(a.as_ptr().add(i)), V::load(b.as_ptr().add(i)));
            let at = acc.as_mut_ptr().add(i);
            multiply_add(x, y, V::load(at), epsilon).store(at);
        }
    }
}

/// `a = a ⊙ b`.
///
/// # Safety
/// As for [`mul_add_assign`].
#[inline(always)]
pub unsafe fn mul_assign<V: Vector>(a: &mut [u64], b: &[u64]) {
    // SAFETY: the caller's promise.
    unsafe {
        let (epsilon, zero) = (V::splat(black_box(EPSILON)), V::splat(0));
        for i in (0..a.len()).step_by(V::LANES) {
            let at = a.as_mut_ptr().add(i);
            let y = V::load(b.as_ptr().add(i));
            multiply_add(V::load(at), y, zero, epsilon).store(at);
        }
    }
}

/// `a = c·a`.
///
/// # Safety
/// As for [`mul_add_assign`].
#[inline(always)]
pub unsafe fn scale_assign<V: Vector>(a: &mut [u64], c: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let (epsilon, zero, c) = (V::splat(black_box(EPSILON)), V::splat(0), V::splat(c));
        for i in (0..a.len()).step_by(V::LANES) {
            let at = a.as_mut_ptr().add(i);
            multiply_add(V::load(at), c, zero, epsilon).store(at);
        }
    }
}
