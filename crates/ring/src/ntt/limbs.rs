//! The SIMD kernel of the NTT, written once over [`Vector`], a vector of 64-bit lanes.
//!
//! Passes of radix 8 instead of rows: with `v` a root of a block, a pass multiplies slot `q` of the block by `v^q` and
//! then does a small DFT, whose twiddles are powers of two, since 2 is a 192nd root of unity: 2^96 = -1, 2^48 is the
//! fourth root and 2^24 the eighth root that the rows of [`portable`](super::portable) use. A first pass of radix 4 or
//! 2 takes the levels that are left over, and needs no twiddles.
//!
//! 2^3 being a 64th root, two passes in a row are a DFT of 64 elements with shifts between its halves, so that only the
//! first of them multiplies; likewise the first pass of all and the next. [`super::tables`] lays down which are which.
//!
//! Inside a pass an element is a pair of signed limbs, `lo + hi·φ` with φ = 2^32 and φ^2 = φ - 1, in 64-bit lanes that
//! leave room for the sums and shifts of the DFT without carries. Products by twiddles take four signed 32-bit
//! multiplications. Between passes an element is one word: any `u64` congruent to it before a pass of shifts, to it plus
//! [`BIAS`] before a pass of products, which saves operations there.
//!
//! # What bounds it
//!
//! Operations on a vector, for each vector of elements: 15 to multiply by a twiddle and split the result into limbs, 6 to
//! shift and split, 8 for a DFT of eight (7.25 for the first of four), 7 to make a word of limbs, 6 for the two
//! transposes of the last pass, 2 to make a word canonical. For N = 16384 (passes of 4, 8, 8, 8 and 8, of which the third
//! and the fifth multiply) the forward transform comes to about 124. A Zen 4 core does two 512-bit operations per cycle
//! (one multiplication, one shift), so 62 cycles a vector at best; measured are 72. It is bound by operations, not by
//! loads or multiplications; the twiddles, 16 bytes an element in the last pass, come from the second level of cache.
//!
//! Bounds below are in units of φ = 2^32 unless they say otherwise.

use std::hint::black_box;

use super::tables::{Pass, Tables, Twiddles, exponent};

/// 2^64 - p = 2^32 - 1; also the mask of the low half of a lane.
pub const EPSILON: u64 = 0xffff_ffff;

/// 2^31 on each limb: flipping these bits in a word congruent to an element plus `BIAS` gives the element's two limbs as
/// signed 32-bit integers.
pub const BIAS: u64 = 0x8000_0000_8000_0000;

/// Zero modulo p as limbs, with a high limb so large that an element plus it has a positive one:
/// 2^28 + (2^60 - 2^28)·φ, since 2^60·φ = 2^28·φ^2 = 2^28·φ - 2^28.
const ZERO: [u64; 2] = [1 << 28, (1 << 60) - (1 << 28)];

/// A block of at most this many elements stays in the first-level cache through all its remaining passes.
const CACHED: usize = 2048;

/// A vector of 64-bit lanes. A value exists only where its instruction set does, which is what the constructors
/// [`splat`](Vector::splat) and [`load`](Vector::load) ask of their callers; the other methods rely on it.
pub trait Vector: Copy {
    const LANES: usize;
    /// Runs a kernel as a function compiled for the instruction set of this vector.
    ///
    /// # Safety
    /// As for [`Kernel::run`].
    unsafe fn call(kernel: impl Kernel);
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
    fn shift_left(self, bits: u32) -> Self;
    fn shift_right(self, bits: u32) -> Self;
    /// The low half of a lane shifted left: the low half of the result, zero-extended.
    fn shift_left_low(self, bits: u32) -> Self;
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
    /// Asks for the line of the cache at `at`, which need not be readable.
    fn prefetch(at: *const u64);
    /// From `LANES` consecutive blocks of eight words to vectors of their words `0`, `1`, ... `7`.
    fn transpose(rows: [Self; 8]) -> [Self; 8];
    /// Undoes [`Vector::transpose`].
    fn transpose_back(columns: [Self; 8]) -> [Self; 8];
}

/// A part of the kernel that is compiled into a function of its own for each instruction set. Whoever makes a value
/// promises that what it points to is there.
pub trait Kernel {
    /// # Safety
    /// As for [`Vector::splat`]; the promise that the type states must hold.
    unsafe fn run<V: Vector>(self);
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
        let lo = other.hi.shift_left(16);
        let hi = other.lo.add(other.hi).shift_left(16);
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
            lo: self.lo.sub(sum).shift_left(16),
            hi: sum.shift_left(16),
        }
    }

    /// `2^24·self + 2^72·other`; 2^72 = 2^8·φ^2, and φ^2·(lo + hi·φ) = -(lo + hi) + lo·φ.
    #[inline(always)]
    fn mix_24_72(self, other: Self) -> Self {
        Limbs {
            lo: self
                .lo
                .shift_left(24)
                .sub(other.lo.add(other.hi).shift_left(8)),
            hi: self.hi.shift_left(24).add(other.lo.shift_left(8)),
        }
    }

    /// A word congruent to an element within 3·2^25 of `ZERO`: `lo + 2^32·(hi mod 2^32) + (2^32 - 1)·(hi / 2^32)`.
    ///
    /// With `hi` in `[5·2^57 - 2^28, 11·2^57)` and `lo` within 3·2^57 + 2^32, the last term and `lo` make a sum in
    /// `[0, 2^61)`.
    #[inline(always)]
    fn word(self, c: &Constants<V>) -> V {
        let small = self.hi.high().mul_unsigned(c.epsilon).add(self.lo);
        self.hi.shift_left(32).add_modulo(small)
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
    zero: V,
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
                zero: V::splat(0),
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

/// Eight times the inverse of [`dft8`]; from limbs within 2 to limbs within 2^26 + 2^20. Slot 0 is never shifted.
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

/// `2^exponent` times any word, with limbs within 2.
///
/// Shifted by less than 32 bits the word is `low + mid·φ + top·φ^2`, each part below 1, and φ^2 = φ - 1; φ^3 = -1.
#[inline(always)]
fn shifted<V: Vector>(word: V, exponent: usize, c: &Constants<V>) -> Limbs<V> {
    let bits = (exponent % 32) as u32;
    let low = word.shift_left_low(bits);
    let (mid, top) = if bits == 0 {
        (word.high(), c.zero)
    } else {
        let mid = word.shift_right(32 - bits).and(c.epsilon);
        (mid, word.shift_right(64 - bits))
    };
    let (lo, hi) = match exponent / 32 % 6 {
        0 => (low.sub(top), mid.add(top)),
        1 => (c.zero.sub(mid.add(top)), low.add(mid)),
        2 => (c.zero.sub(low.add(mid)), low.sub(top)),
        3 => (top.sub(low), c.zero.sub(mid.add(top))),
        4 => (mid.add(top), c.zero.sub(low.add(mid))),
        _ => (low.add(mid), top.sub(low)),
    };
    Limbs { lo, hi }
}

/// The exponent of 2 whose power is `z^power`, where z = 2^3 is a primitive 64th root of unity.
const fn root_64(power: usize) -> usize {
    3 * (power % 64)
}

/// The first pass of radix 4: the four remainders that [`dft8`] would give of a polynomial whose upper half is `z`.
/// From limbs below 1 to limbs within 3·2^25.
#[inline(always)]
fn first4<V: Vector>(z: [Limbs<V>; 4]) -> [Limbs<V>; 4] {
    let (b0, b2) = z[0].butterfly_48(z[2]);
    let (y0, y1) = b0.butterfly(z[1].mix_24_72(z[3]));
    let (y2, y3) = b2.butterfly(z[3].mix_24_72(z[1]));
    [y0, y1, y2, y3]
}

/// Four times the inverse of [`first4`]; from limbs within 2 to limbs within 2^26 + 2^20.
#[inline(always)]
fn inverse_first4<V: Vector>(y: [Limbs<V>; 4]) -> [Limbs<V>; 4] {
    let (z0, z2) = y[0].add(y[1]).inverse_butterfly_48(y[2].add(y[3]));
    let (d, e) = (y[1].sub(y[0]), y[3].sub(y[2]));
    [z0, e.mix_24_72(d), z2, d.mix_24_72(e)]
}

/// The four limbs of a twiddle, the same in every lane.
///
/// # Safety
/// As for [`Vector::splat`], and four words must be readable at `from`.
#[inline(always)]
unsafe fn splat_twiddle<V: Vector>(from: *const u64) -> Twiddle<V> {
    // SAFETY: the caller's promise.
    unsafe {
        [
            V::splat(*from),
            V::splat(*from.add(1)),
            V::splat(*from.add(2)),
            V::splat(*from.add(3)),
        ]
    }
}

/// Twiddles of `LANES` elements: from a vector of limbs of `w`, and one of limbs of `φ·w`.
///
/// The high limbs are loaded as the low halves of the vectors half a word further on: a processor has loads to spare,
/// but no shifts.
///
/// # Safety
/// As for [`Vector::splat`], and `2 * LANES + 1` words must be readable at `from`.
#[inline(always)]
unsafe fn load_twiddle<V: Vector>(from: *const u64) -> Twiddle<V> {
    // SAFETY: the caller's promise.
    unsafe {
        let square = from.add(V::LANES);
        [
            V::load(from),
            V::load(from.byte_add(4)),
            V::load(square),
            V::load(square.byte_add(4)),
        ]
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

/// Eight words of a block, one for each slot: the word of slot `q` is `q * stride` words after the first.
#[derive(Clone, Copy)]
struct Columns {
    first: *mut u64,
    stride: usize,
    /// How many words each slot has, a multiple of the lanes.
    count: usize,
}

/// The same columns of several blocks.
#[derive(Clone, Copy)]
struct Blocks {
    /// Those of the first block.
    columns: Columns,
    blocks: usize,
    /// From the first word of one to that of the next.
    step: usize,
}

/// Several [`Columns`] with twiddles of their own: ranges of the columns of one block, or one block after another.
#[derive(Clone, Copy)]
struct Ranges {
    /// The first of them.
    columns: Columns,
    ranges: usize,
    /// From the first word of one to that of the next.
    step: usize,
    twiddles: *const u64,
}

impl Columns {
    /// All columns of a block.
    ///
    /// # Safety
    /// `a` must be valid for `n` words, the pass made for `n`, and `block` below its number of blocks.
    unsafe fn new(a: *mut u64, n: usize, pass: &Pass, block: usize) -> Self {
        let length = n / pass.blocks;
        let stride = length / pass.radix;
        Self {
            // SAFETY: the caller's promise.
            first: unsafe { a.add(block * length) },
            stride,
            count: stride,
        }
    }

    /// Several equal ranges, `count / ranges` a multiple of the lanes.
    fn ranges(self, ranges: usize, twiddles: *const u64) -> Ranges {
        let step = self.count / ranges;
        Ranges {
            columns: Self {
                count: step,
                ..self
            },
            ranges,
            step,
            twiddles,
        }
    }

    /// One of eight equal ranges.
    ///
    /// # Safety
    /// `eighth` must be below 8, and `count / 8` a multiple of the lanes.
    unsafe fn eighth(self, eighth: usize) -> Self {
        let count = self.count / 8;
        Self {
            // SAFETY: the caller's promise.
            first: unsafe { self.first.add(eighth * count) },
            count,
            ..self
        }
    }
}

impl Blocks {
    /// One of eight equal ranges of the columns of each block.
    ///
    /// # Safety
    /// As for [`Columns::eighth`].
    unsafe fn eighth(self, eighth: usize) -> Self {
        Self {
            // SAFETY: the caller's promise.
            columns: unsafe { self.columns.eighth(eighth) },
            ..self
        }
    }
}

/// A radix-8 pass of the forward transform with full twiddles, over some columns of a block; from words plus `BIAS`.
/// `ALL`: slot 0 has a twiddle too.
///
/// The columns must be valid, and four words of `twiddles` for each slot that has one.
#[derive(Clone, Copy)]
struct ForwardFull<const ALL: bool, const OUT_BIASED: bool>(Ranges);

impl<const ALL: bool, const OUT_BIASED: bool> Kernel for ForwardFull<ALL, OUT_BIASED> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Ranges {
            columns,
            ranges,
            step,
            mut twiddles,
        } = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(const { offset(!ALL, OUT_BIASED) });
            for range in 0..ranges {
                for j in (0..columns.count).step_by(V::LANES) {
                    let a = columns.first.add(range * step + j);
                    let word = V::load(a);
                    let mut z = [c.split(word); 8];
                    if ALL {
                        z[0] = small_product(word.xor(c.bias), splat_twiddle(twiddles), &c);
                    }
                    z[0] = z[0].add(offset);
                    unroll!(q in 1..8 {
                        let w = splat_twiddle(twiddles.add(4 * (q - 1 + ALL as usize)));
                        z[q] = small_product(V::load(a.add(q * columns.stride)).xor(c.bias), w, &c);
                    });
                    let z = dft8(z);
                    unroll!(q in 0..8 {
                        z[q].word(&c).store(a.add(q * columns.stride));
                    });
                }
                twiddles = twiddles.add(28 + 4 * ALL as usize);
            }
        }
    }
}

/// A radix-8 pass of the forward transform whose twiddle in slot `q` is the 64th root of unity to the `K·q`; from any
/// words to words plus `BIAS`.
///
/// The columns must be valid.
#[derive(Clone, Copy)]
struct ForwardShifts<const K: usize>(Blocks);

impl<const K: usize> Kernel for ForwardShifts<K> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Blocks {
            columns,
            blocks,
            step,
        } = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(const { offset(false, true) });
            for block in 0..blocks {
                for j in (0..columns.count).step_by(V::LANES) {
                    let a = columns.first.add(block * step + j);
                    let mut z = [c.split(V::load(a)).add(offset); 8];
                    unroll!(q in 1..8 {
                        z[q] = shifted(V::load(a.add(q * columns.stride)), root_64(K * q), &c);
                    });
                    let z = dft8(z);
                    unroll!(q in 0..8 {
                        z[q].word(&c).store(a.add(q * columns.stride));
                    });
                }
            }
        }
    }
}

/// The first pass of the forward transform where its radix is 4 or 2; from any words to any words.
///
/// The columns, of `R` slots, must be valid.
#[derive(Clone, Copy)]
struct ForwardFirst<const R: usize> {
    columns: Columns,
}

impl<const R: usize> Kernel for ForwardFirst<R> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { columns } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(ZERO);
            for j in (0..columns.count).step_by(V::LANES) {
                let a = columns.first.add(j);
                let mut z = [c.split(V::load(a)).add(offset); R];
                unroll!(q in 1..R {
                    z[q] = c.split(V::load(a.add(q * columns.stride)));
                });
                if let Some(z) = z.first_chunk_mut::<4>() {
                    *z = first4(*z);
                } else if let Some(z) = z.first_chunk_mut::<2>() {
                    (z[0], z[1]) = z[0].butterfly_48(z[1]);
                }
                unroll!(q in 0..R {
                    z[q].word(&c).store(a.add(q * columns.stride));
                });
            }
        }
    }
}

/// A pass of the inverse transform whose twiddle in slot `i`, for columns in the eighth `Q` of a block, is the 64th root
/// of unity to the `-Q·k`, `k` being the [`exponent`] of the slot; from any words to words plus `BIAS` or, in the last
/// pass, of radix 4, to canonical words.
///
/// The columns, of `R` slots, must be valid.
#[derive(Clone, Copy)]
struct InverseShifts<const R: usize, const Q: usize>(Blocks);

impl<const R: usize, const Q: usize> Kernel for InverseShifts<R, Q> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Blocks {
            columns,
            blocks,
            step,
        } = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(const { offset(false, R == 8) });
            for block in 0..blocks {
                for j in (0..columns.count).step_by(V::LANES) {
                    let a = columns.first.add(block * step + j);
                    let mut z = [Limbs {
                        lo: c.zero,
                        hi: c.zero,
                    }; R];
                    unroll!(i in 0..R {
                        let power = 64 - exponent(R, i) * Q % 64;
                        z[i] = shifted(V::load(a.add(i * columns.stride)), root_64(power), &c);
                    });
                    if let Some(z) = z.first_chunk_mut::<8>() {
                        z[0] = z[0].add(offset);
                        *z = inverse_dft8(*z);
                    } else if let Some(z) = z.first_chunk_mut::<4>() {
                        *z = inverse_first4(*z);
                        unroll!(i in 0..4 {
                            z[i] = z[i].add(offset);
                        });
                    }
                    unroll!(i in 0..R {
                        let word = z[i].word(&c);
                        let word = if R == 8 { word } else { word.canonical() };
                        word.store(a.add(i * columns.stride));
                    });
                }
            }
        }
    }
}

/// The last pass of the inverse transform where its radix is 2, for columns in the eighth `eighth` of the block; as
/// [`InverseShifts`], but compiled once, the time that shifts known in advance would save being small here.
///
/// The columns, of two slots, must be valid.
#[derive(Clone, Copy)]
struct InverseLast2 {
    columns: Columns,
    eighth: usize,
}

impl Kernel for InverseLast2 {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { columns, eighth } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(ZERO);
            let power = |slot| root_64(64 - exponent(2, slot) * eighth % 64);
            let (power0, power1) = (power(0), power(1));
            for j in (0..columns.count).step_by(V::LANES) {
                let a = columns.first.add(j);
                let b = a.add(columns.stride);
                let (y0, y1) = (
                    shifted(V::load(a), power0, &c),
                    shifted(V::load(b), power1, &c),
                );
                let (z0, z1) = y0.inverse_butterfly_48(y1);
                z0.add(offset).word(&c).canonical().store(a);
                z1.add(offset).word(&c).canonical().store(b);
            }
        }
    }
}

/// A radix-8 pass of the inverse transform with full twiddles, from words plus `BIAS` to any words, or to canonical ones
/// in the `FINAL` pass. `ELEMENTS`: there is a twiddle for each element, otherwise for each slot.
///
/// The columns must be valid, and the twiddles of all slots of a vector, or of all vectors.
#[derive(Clone, Copy)]
struct InverseFull<const ELEMENTS: bool, const OUT_BIASED: bool, const FINAL: bool>(Ranges);

impl<const ELEMENTS: bool, const OUT_BIASED: bool, const FINAL: bool> Kernel
    for InverseFull<ELEMENTS, OUT_BIASED, FINAL>
{
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Ranges {
            columns,
            ranges,
            step,
            mut twiddles,
        } = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(const { offset(false, OUT_BIASED) });
            for range in 0..ranges {
                for j in (0..columns.count).step_by(V::LANES) {
                    let a = columns.first.add(range * step + j);
                    let mut z = [offset; 8];
                    unroll!(i in 0..8 {
                        let w = if ELEMENTS {
                            load_twiddle(twiddles.add(2 * V::LANES * i))
                        } else {
                            splat_twiddle(twiddles.add(4 * i))
                        };
                        let word = V::load(a.add(i * columns.stride));
                        z[i] = small_product(word.xor(c.bias), w, &c);
                    });
                    if ELEMENTS {
                        twiddles = twiddles.add(16 * V::LANES);
                    }
                    z[0] = z[0].add(offset);
                    let mut z = inverse_dft8(z);
                    unroll!(i in 0..8 {
                        let mut word = z[i].word(&c);
                        if FINAL {
                            // What the first pass of the forward transform multiplied by.
                            z[i] = shifted(word, root_64(64 - exponent(1, 0) * i), &c);
                            word = z[i].add(offset).word(&c).canonical();
                        }
                        word.store(a.add(i * columns.stride));
                    });
                }
                if !ELEMENTS {
                    twiddles = twiddles.add(32);
                }
            }
        }
    }
}

/// What becomes of the transform's results.
pub trait Leaf: Copy {
    /// Takes eight vectors of results, any words, that belong at `to`, elements `at` and following of the transform.
    ///
    /// # Safety
    /// As for [`Vector::store`] eight times; `at` must be below the degree.
    unsafe fn take<V: Vector>(self, words: [V; 8], to: *mut u64, at: usize);
}

/// Stores the results, canonical.
#[derive(Clone, Copy)]
pub struct Keep;

impl Leaf for Keep {
    #[inline(always)]
    unsafe fn take<V: Vector>(self, mut words: [V; 8], to: *mut u64, _: usize) {
        unroll!(q in 0..8 {
            words[q] = words[q].canonical();
        });
        // SAFETY: the caller's promise.
        unsafe { store8(words, to) }
    }
}

/// Adds the results' products by keys to sums; without `ADD`, overwrites the sums.
#[derive(Clone, Copy)]
pub struct Accumulate<const ADD: bool> {
    /// `columns` times `degree` words.
    pub keys: *const u64,
    /// As many.
    pub sums: *mut u64,
    pub columns: usize,
    pub degree: usize,
}

/// How many words ahead keys are asked for.
const AHEAD: usize = 256;

impl<const ADD: bool> Leaf for Accumulate<ADD> {
    #[inline(always)]
    unsafe fn take<V: Vector>(self, words: [V; 8], _: *mut u64, at: usize) {
        // SAFETY: whoever made `self` promised the lengths, and the caller an `at` within them.
        unsafe {
            let epsilon = V::splat(black_box(EPSILON));
            let zero = V::splat(0);
            for column in 0..self.columns {
                let keys = self.keys.add(column * self.degree + at);
                let sums = self.sums.add(column * self.degree + at);
                unroll!(i in 0..8 {
                    if (i * V::LANES).is_multiple_of(8) {
                        V::prefetch(keys.wrapping_add(AHEAD + i * V::LANES));
                    }
                    let sum = sums.add(i * V::LANES);
                    let addend = if ADD { V::load(sum) } else { zero };
                    let key = V::load(keys.add(i * V::LANES));
                    multiply_add(words[i], key, addend, epsilon).store(sum);
                });
            }
        }
    }
}

/// The last pass of the forward transform, of radix 8 on `groups` times `LANES` blocks of eight consecutive words, each
/// with twiddles of its own; from words plus `BIAS`. They are elements `at` and following of the transform.
///
/// `a` must be valid for `8 * LANES * groups` words and `twiddles` for 14/8 as many and one.
#[derive(Clone, Copy)]
struct ForwardLast<L> {
    a: *mut u64,
    groups: usize,
    twiddles: *const u64,
    at: usize,
    leaf: L,
}

impl<L: Leaf> Kernel for ForwardLast<L> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self {
            a,
            groups,
            twiddles,
            at,
            leaf,
        } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(const { offset(true, false) });
            for group in 0..groups {
                let done = 8 * V::LANES * group;
                let twiddles = twiddles.add(14 * V::LANES * group);
                let mut words = V::transpose(load8(a.add(done)));
                let mut z = [c.split(words[0]).add(offset); 8];
                unroll!(q in 1..8 {
                    let w = load_twiddle(twiddles.add(2 * V::LANES * (q - 1)));
                    z[q] = small_product(words[q].xor(c.bias), w, &c);
                });
                let z = dft8(z);
                unroll!(q in 0..8 {
                    words[q] = z[q].word(&c);
                });
                leaf.take(V::transpose_back(words), a.add(done), at + done);
            }
        }
    }
}

/// The first pass of the inverse transform, on blocks as in [`forward_last`]; from any words to words plus `BIAS`.
///
/// `a` must be valid for `8 * LANES * groups` words.
#[derive(Clone, Copy)]
struct InverseFirst {
    a: *mut u64,
    groups: usize,
}

impl Kernel for InverseFirst {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { a, groups } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let c = Constants::<V>::new();
            let offset = Limbs::<V>::splat(const { offset(false, true) });
            for group in 0..groups {
                let a = a.add(8 * V::LANES * group);
                let mut words = V::transpose(load8(a));
                let mut z = [c.split(words[0]).add(offset); 8];
                unroll!(q in 1..8 {
                    z[q] = c.split(words[q]);
                });
                let z = inverse_dft8(z);
                unroll!(q in 0..8 {
                    words[q] = z[q].word(&c);
                });
                store8(V::transpose_back(words), a);
            }
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

/// The passes on blocks that do not fit into the first-level cache, and those on blocks that do.
fn split_passes(passes: &[Pass], n: usize) -> (&[Pass], &[Pass]) {
    let cached = passes.iter().position(|pass| n / pass.blocks <= CACHED);
    passes.split_at(cached.unwrap_or(passes.len()))
}

/// The forward transform; the loops over passes and blocks. The results go to `leaf`.
///
/// # Safety
/// As for [`Vector::splat`]; `tables` must have been made for `a.len()` and `V::LANES`, forward.
#[inline(always)]
pub unsafe fn forward<V: Vector>(a: &mut [u64], tables: &Tables, leaf: impl Leaf) {
    let (large, small) = split_passes(&tables.passes, a.len());
    let last = tables.last.as_ptr().cast::<u64>();
    let n = a.len();
    let a = a.as_mut_ptr();
    // SAFETY: the blocks of a pass tile `a`; the last pass has twiddles for all of `a`.
    unsafe {
        for pass in large {
            forward_blocks::<V>(a, n, pass, 0, pass.blocks);
        }
        let chunks = (n / CACHED).max(1);
        let length = n / chunks;
        for chunk in 0..chunks {
            for pass in small {
                let blocks = pass.blocks / chunks;
                forward_blocks::<V>(a, n, pass, chunk * blocks, blocks);
            }
            let groups = length / (8 * V::LANES);
            let done = chunk * length;
            V::call(ForwardLast {
                a: a.add(done),
                groups,
                twiddles: last.add(done / 8 * 14),
                at: done,
                leaf,
            });
        }
    }
}

/// The inverse transform, [`forward`] in reverse; from any words.
///
/// # Safety
/// As for [`Vector::splat`]; `tables` must have been made for `a.len()` and `V::LANES`, inverse.
#[inline(always)]
pub unsafe fn inverse<V: Vector>(a: &mut [u64], tables: &Tables) {
    let (large, small) = split_passes(&tables.passes, a.len());
    let n = a.len();
    let a = a.as_mut_ptr();
    // SAFETY: as in `forward`.
    unsafe {
        let chunks = (n / CACHED).max(1);
        let length = n / chunks;
        for chunk in 0..chunks {
            V::call(InverseFirst {
                a: a.add(chunk * length),
                groups: length / (8 * V::LANES),
            });
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
unsafe fn forward_blocks<V: Vector>(a: *mut u64, n: usize, pass: &Pass, from: usize, count: usize) {
    // SAFETY: blocks `from` to `from + count` of the pass exist, and so do their twiddles.
    unsafe {
        let columns = Columns::new(a, n, pass, from);
        let length = n / pass.blocks;
        if let Twiddles::Ranges { ranges: 1, limbs } = &pass.twiddles {
            V::call(ForwardFull::<false, true>(Ranges {
                columns,
                ranges: count,
                step: length,
                twiddles: limbs.as_ptr().add(28 * from),
            }));
            return;
        }
        if let Twiddles::Ranges { ranges, limbs } = &pass.twiddles {
            for block in from..from + count {
                let limbs = limbs.as_ptr().add(32 * ranges * block);
                let columns = Columns::new(a, n, pass, block);
                V::call(ForwardFull::<true, false>(columns.ranges(*ranges, limbs)));
            }
            return;
        }
        match pass.radix {
            2 => V::call(ForwardFirst::<2> { columns }),
            4 => V::call(ForwardFirst::<4> { columns }),
            _ => {
                // Every eighth block has the same twiddles.
                let kinds = count.min(8);
                for block in from..from + kinds {
                    let blocks = Blocks {
                        columns: Columns::new(a, n, pass, block),
                        blocks: count / kinds,
                        step: kinds * length,
                    };
                    match exponent(pass.blocks, block) {
                        0 => V::call(ForwardShifts::<0>(blocks)),
                        1 => V::call(ForwardShifts::<1>(blocks)),
                        2 => V::call(ForwardShifts::<2>(blocks)),
                        3 => V::call(ForwardShifts::<3>(blocks)),
                        4 => V::call(ForwardShifts::<4>(blocks)),
                        5 => V::call(ForwardShifts::<5>(blocks)),
                        6 => V::call(ForwardShifts::<6>(blocks)),
                        _ => V::call(ForwardShifts::<7>(blocks)),
                    }
                }
            }
        }
    }
}

/// Some blocks of a pass of the inverse transform.
///
/// # Safety
/// As for [`forward_blocks`].
unsafe fn inverse_blocks<V: Vector>(a: *mut u64, n: usize, pass: &Pass, from: usize, count: usize) {
    // SAFETY: as in `forward_blocks`.
    unsafe {
        if let Twiddles::Elements { to_shifts, lines } = &pass.twiddles {
            let ranges = Ranges {
                columns: Columns::new(a, n, pass, from),
                ranges: count,
                step: n / pass.blocks,
                twiddles: lines.as_ptr().cast::<u64>().add(128 * from),
            };
            match (pass.blocks, to_shifts) {
                (1, _) => V::call(InverseFull::<true, false, true>(ranges)),
                (_, true) => V::call(InverseFull::<true, false, false>(ranges)),
                (_, false) => V::call(InverseFull::<true, true, false>(ranges)),
            }
            return;
        }
        if let Twiddles::Ranges { ranges, limbs } = &pass.twiddles {
            for block in from..from + count {
                let limbs = limbs.as_ptr().add(32 * ranges * block);
                let ranges = Columns::new(a, n, pass, block).ranges(*ranges, limbs);
                match pass.blocks {
                    1 => V::call(InverseFull::<false, false, true>(ranges)),
                    _ => V::call(InverseFull::<false, false, false>(ranges)),
                }
            }
            return;
        }
        let blocks = Blocks {
            columns: Columns::new(a, n, pass, from),
            blocks: count,
            step: n / pass.blocks,
        };
        match pass.radix {
            8 => inverse_shifts::<V, 8>(blocks),
            4 => inverse_shifts::<V, 4>(blocks),
            _ => {
                for eighth in 0..8 {
                    let columns = blocks.columns.eighth(eighth);
                    V::call(InverseLast2 { columns, eighth });
                }
            }
        }
    }
}

/// [`InverseShifts`] on all columns of some blocks.
///
/// # Safety
/// As for [`Kernel::run`].
unsafe fn inverse_shifts<V: Vector, const R: usize>(blocks: Blocks) {
    // SAFETY: the caller's promise; the eighths tile the columns.
    unsafe {
        V::call(InverseShifts::<R, 0>(blocks.eighth(0)));
        V::call(InverseShifts::<R, 1>(blocks.eighth(1)));
        V::call(InverseShifts::<R, 2>(blocks.eighth(2)));
        V::call(InverseShifts::<R, 3>(blocks.eighth(3)));
        V::call(InverseShifts::<R, 4>(blocks.eighth(4)));
        V::call(InverseShifts::<R, 5>(blocks.eighth(5)));
        V::call(InverseShifts::<R, 6>(blocks.eighth(6)));
        V::call(InverseShifts::<R, 7>(blocks.eighth(7)));
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
pub struct MulAddAssign<'a> {
    pub acc: &'a mut [u64],
    pub a: &'a [u64],
    pub b: &'a [u64],
}

impl Kernel for MulAddAssign<'_> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { acc, a, b } = self;
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
}

/// `a = a ⊙ b`.
pub struct MulAssign<'a> {
    pub a: &'a mut [u64],
    pub b: &'a [u64],
}

impl Kernel for MulAssign<'_> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { a, b } = self;
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
}

/// `a = c·a`.
pub struct ScaleAssign<'a> {
    pub a: &'a mut [u64],
    pub c: u64,
}

impl Kernel for ScaleAssign<'_> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { a, c } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let (epsilon, zero, c) = (V::splat(black_box(EPSILON)), V::splat(0), V::splat(c));
            for i in (0..a.len()).step_by(V::LANES) {
                let at = a.as_mut_ptr().add(i);
                multiply_add(V::load(at), c, zero, epsilon).store(at);
            }
        }
    }
}
