//! The discrete Fourier transform of m points modulo a prime q < 2^32, for lengths that are not powers of two.
//!
//! X\[k\] = Σ x_j·w^(jk) for a primitive m-th root of unity w, so q is 1 modulo m. [`DftPlan::forward`] computes it in
//! place, in natural order on both sides; [`DftPlan::inverse`] does the same with 1/w. Neither is normalized:
//! `inverse(forward(x)) = m·x`, and [`DftPlan::inverse_length`] is 1/m.
//!
//! # Prime factors
//!
//! Lengths that are products of different primes of 3, 5, 17 and 257, above all m = 21845 = 5·17·257 of HElib's BGV
//! parameters, follow *Hardware Acceleration of the Prime-Factor and Rader NTT for BGV Fully Homomorphic Encryption*
//! (Du Pont): by Good and Thomas, the transform along residues modulo coprime factors is a transform in several
//! dimensions without twiddles, and by Rader a transform of p points is a cyclic convolution of p - 1 points, here a
//! power of two. Its Algorithm 1 (x_0 joins one point of the convolution instead of all values) is `rader` in
//! `dft/kernel.rs`; q must be 1 modulo the largest p - 1 too, so modulo 256·m for the paper's m.
//!
//! With P = 257 (1 if that does not divide m) and C = m/P, a lane of a vector is a transform of its own in both halves:
//!
//! 1. Sixteen columns at a time, the P-point transforms of all residues modulo C. The input is read in rows of C words.
//!    The row that holds point r of column c is (r - c)/C modulo P, so a vector takes its lanes from a diagonal, which
//!    a barrel shifter of four selects aligns on the way in (the paper's "remove and reapply offset"). No index table
//!    by element is needed; Rader's order is the order in which rows are stored.
//! 2. A block is transposed into a grid of C rows of P words.
//! 3. Sixteen words of each row at a time, the transforms along the other primes. Their orders, Good's and Rader's, are
//!    orders of rows, so they are free. On the way out the diagonals of rows of P words are aligned likewise.
//!
//! Other lengths up to 2^16 points, and moduli without these roots, use Bluestein's algorithm with an
//! exact convolution in the Goldilocks field, `dft/bluestein.rs`.
//!
//! # What bounds it
//!
//! At m = 21845 and q < 2^30, AVX-512: a butterfly is 12 operations on vectors of 16 words, of which 4 are products, and
//! a quarter of the butterflies has the factor 1 and needs no product. The transforms of 257 points take 127,000
//! operations, those of 17 and 5 points 85,000, alignment and transposes 23,000. Zen 4 starts two per cycle (one product, one
//! transposing shuffle), so no schedule of them takes less than about 120,000 cycles; the products alone would allow
//! 63,000. Measured at 3.69 GHz: 41 us, about 152,000 cycles, 0.79 of that bound. The transforms of 257 points, whose block
//! stays in the first level of cache, are at 0.92 of theirs; the rest is lost on rows that come from the second level and
//! on vectors that cross lines, for neither 85 nor 257 words fill whole lines. For q above 2^30 every sum is made
//! canonical, which costs 1.65 times as much.

mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bluestein;
mod kernel;
mod numbers;
mod portable;
mod prime_factor;

use crate::RingError;
use crate::prime::is_prime;
use crate::simd::SimdLevel;
use bluestein::Bluestein;
use numbers::{has_order, inv, pow, primitive_root};
pub use prime_factor::RaderAxis;
use prime_factor::{PrimeFactor, rader_axes};

/// Words that aligning the scratch to a cache line may cost.
const ALIGNMENT: usize = 15;

/// How a [`DftPlan`] computes its transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Good and Thomas's prime-factor algorithm over Rader's.
    PrimeFactor,
    /// Bluestein's algorithm over an exact convolution.
    Bluestein,
}

/// The tables of the transforms of one length modulo one prime, and the choice of kernel.
#[derive(Clone, Debug)]
pub struct DftPlan {
    length: usize,
    modulus: u32,
    root: u32,
    simd: SimdLevel,
    kernel: Kernel,
}

#[derive(Clone, Debug)]
enum Kernel {
    PrimeFactor(Box<PrimeFactor>),
    Bluestein(Box<Bluestein>),
}

impl DftPlan {
    /// The greatest length of a plan.
    pub const MAX_LENGTH: usize = Bluestein::MAX_LENGTH;

    /// A plan for `length` points (m) modulo `modulus` (q) on the best instruction set, [`SimdLevel::best`]. Its root w is
    /// g^((q - 1)/m), where g is the least primitive root modulo q.
    ///
    /// # Errors
    /// [`RingError::DftLength`] unless `length` is from 1 to [`Self::MAX_LENGTH`]; [`RingError::DftModulus`] unless
    /// `modulus` is a prime that is 1 modulo `length`.
    pub fn new(length: usize, modulus: u32) -> Result<Self, RingError> {
        Self::with_simd(length, modulus, SimdLevel::best())
    }

    /// As [`Self::new`], on the instruction set `simd`.
    ///
    /// # Errors
    /// As [`Self::new`]; [`RingError::SimdLevelUnavailable`] if this processor cannot run `simd`.
    pub fn with_simd(length: usize, modulus: u32, simd: SimdLevel) -> Result<Self, RingError> {
        check(length, modulus)?;
        let root = pow(
            primitive_root(modulus),
            (modulus - 1) / length as u32,
            modulus,
        );
        Self::with_root(length, modulus, root, simd)
    }

    /// As [`Self::with_simd`], with `root` for w.
    ///
    /// # Errors
    /// As [`Self::with_simd`]; [`RingError::DftRoot`] unless `root` is a primitive `length`-th root of unity, below
    /// `modulus`.
    pub fn with_root(
        length: usize,
        modulus: u32,
        root: u32,
        simd: SimdLevel,
    ) -> Result<Self, RingError> {
        check(length, modulus)?;
        if root >= modulus || !has_order(root, length as u32, modulus) {
            return Err(RingError::DftRoot {
                root,
                length,
                modulus,
            });
        }
        if !simd.is_available() {
            return Err(RingError::SimdLevelUnavailable(simd));
        }
        let kernel = match PrimeFactor::new(length, modulus, root, simd) {
            Some(plan) => Kernel::PrimeFactor(Box::new(plan)),
            None => Kernel::Bluestein(Box::new(Bluestein::new(length, modulus, root, simd)?)),
        };
        Ok(DftPlan {
            length,
            modulus,
            root,
            simd,
            kernel,
        })
    }

    /// The number of points, m.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The modulus q.
    #[must_use]
    pub fn modulus(&self) -> u32 {
        self.modulus
    }

    /// The primitive m-th root of unity w.
    #[must_use]
    pub fn root(&self) -> u32 {
        self.root
    }

    /// 1/m modulo q.
    #[must_use]
    pub fn inverse_length(&self) -> u32 {
        inv(self.length as u32, self.modulus)
    }

    /// The instruction set of this plan.
    #[must_use]
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// How this plan computes its transforms.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.kernel {
            Kernel::PrimeFactor(_) => Algorithm::PrimeFactor,
            Kernel::Bluestein(_) => Algorithm::Bluestein,
        }
    }

    /// The prime factors of the length with Rader's constants, the greatest first; none unless [`Self::algorithm`] is
    /// [`Algorithm::PrimeFactor`].
    #[must_use]
    pub fn rader_axes(&self) -> Option<Vec<RaderAxis>> {
        rader_axes(self.length, self.root, self.modulus)
    }

    /// The words of scratch that a transform needs.
    #[must_use]
    pub fn scratch_len(&self) -> usize {
        ALIGNMENT
            + match &self.kernel {
                Kernel::PrimeFactor(plan) => plan.scratch_len(),
                Kernel::Bluestein(plan) => plan.scratch_len(),
            }
    }

    /// Transforms `data`, m words below q, in place: `data[k] = Σ data[j]·w^(jk)`. Afterwards they are below q.
    ///
    /// `scratch` has at least [`Self::scratch_len`] words, whose values do not matter. Words of `data` that are not
    /// below q give wrong values, though no undefined behaviour.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn forward(&self, data: &mut [u32], scratch: &mut [u32]) {
        self.transform(false, data, scratch);
    }

    /// As [`Self::forward`], with 1/w for w; m times the inverse of it.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn inverse(&self, data: &mut [u32], scratch: &mut [u32]) {
        self.transform(true, data, scratch);
    }

    fn transform(&self, inverse: bool, data: &mut [u32], scratch: &mut [u32]) {
        self.check(data);
        assert!(
            scratch.len() >= self.scratch_len(),
            "a transform of {} points needs {} words of scratch, the slice has {}",
            self.length,
            self.scratch_len(),
            scratch.len()
        );
        let aligned = scratch.as_ptr().align_offset(64).min(ALIGNMENT);
        let scratch = &mut scratch[aligned..];
        match &self.kernel {
            Kernel::PrimeFactor(plan) => plan.transform(inverse, data, scratch),
            Kernel::Bluestein(plan) => plan.transform(inverse, data, scratch),
        }
    }

    /// `a = a ⊙ b`, value by value; all are m words below q.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn mul_assign(&self, a: &mut [u32], b: &[u32]) {
        self.check(a);
        self.check(b);
        mul_words(self.simd, a, b, self.modulus, barrett(self.modulus));
    }

    /// `a = c·a`; all words are below q.
    ///
    /// # Panics
    /// If `a` has another length.
    pub fn scale_assign(&self, a: &mut [u32], c: u32) {
        self.check(a);
        scale_words(self.simd, a, c, self.modulus, barrett(self.modulus));
    }

    fn check(&self, words: &[u32]) {
        assert!(
            words.len() == self.length,
            "a transform of {} points was given {} words",
            self.length,
            words.len()
        );
    }
}

fn check(length: usize, modulus: u32) -> Result<(), RingError> {
    if !(1..=DftPlan::MAX_LENGTH).contains(&length) {
        return Err(RingError::DftLength {
            found: length,
            max: DftPlan::MAX_LENGTH,
        });
    }
    if !is_prime(modulus.into()) || !(modulus - 1).is_multiple_of(length as u32) {
        return Err(RingError::DftModulus { modulus, length });
    }
    Ok(())
}

/// floor((2^64 - 1)/q)
fn barrett(q: u32) -> u64 {
    u64::MAX / u64::from(q)
}

/// `a·b mod q` by Barrett's reduction: with a·b < q^2 < 2^64 and `reciprocal` at most 1 + 2^-64·(q + 1) below 2^64/q,
/// the quotient is too small by less than 2.
#[inline(always)]
fn mul_barrett(a: u32, b: u32, q: u32, reciprocal: u64) -> u32 {
    let product = u64::from(a) * u64::from(b);
    let quotient = ((u128::from(product) * u128::from(reciprocal)) >> 64) as u64;
    let rest = product - quotient * u64::from(q);
    rest.min(rest.wrapping_sub(u64::from(q))) as u32
}

crate::multiversion! {
    fn mul_words(a: &mut [u32], b: &[u32], q: u32, reciprocal: u64) {
        for (a, &b) in a.iter_mut().zip(b) {
            *a = mul_barrett(*a, b, q, reciprocal);
        }
    }
}

crate::multiversion! {
    fn scale_words(a: &mut [u32], c: u32, q: u32, reciprocal: u64) {
        for a in a {
            *a = mul_barrett(*a, c, q, reciprocal);
        }
    }
}
