//! The negacyclic number-theoretic transform (NTT) modulo the Goldilocks prime, and its inverse (INTT).
//!
//! [`NttPlan::forward`] maps a polynomial of degree below N to its values at the odd powers of psi, the N roots of
//! X^N + 1: position `i` of the output is `f(psi^(2·rev(i) + 1))`, where `rev` reverses the log2(N) bits of `i` and psi
//! is [`goldilocks::psi`]`(N)`. Products in Z_p\[X\]/(X^N + 1) become products of positions. As in the platform paper,
//! input is in natural and output in bit-reversed order, the powers of psi are merged into the twiddles, and neither
//! transform is normalized: `inverse(forward(f)) = N·f`, so that a key is scaled by 1/N once, in advance.
//!
//! # The paper's algorithms
//!
//! Appendix A of the platform paper builds the NTT of the butterfly `(t + u, (t - u)·w)` (Gentleman-Sande, Algorithm 1)
//! and the INTT of `(t + u·w, t - u·w)` (Cooley-Tukey, Algorithm 2). Its equations hold, but what they define,
//! `NTT_i(f) = psi^i·Σ f_j·omega^(ij)`, is the transpose of the negacyclic transform `Σ psi^j·f_j·omega^(ij)`: the first
//! output is `f(1)`, and 1 is not a root of X^N + 1, so products of positions are not negacyclic products. The same two
//! butterflies with their parts exchanged are right, and that is what is here: the Cooley-Tukey butterfly for the NTT,
//! the Gentleman-Sande butterfly for the INTT, both in the paper's orders of input and output. In a butterfly of the
//! NTT, `f mod (X^2k - z^2)` splits into `f mod (X^k - z)` and `f mod (X^k + z)`; one twiddle `z` serves a whole
//! block, and the blocks' twiddles lie in bit-reversed order, so that every row reads its twiddles as one stream.

use crate::RingError;
use crate::goldilocks;
use crate::simd::SimdLevel;

#[cfg(target_arch = "x86_64")]
use limbs::Vector;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod limbs;
mod portable;
#[cfg(target_arch = "x86_64")]
mod tables;

/// The twiddles of one ring degree and the choice of kernel.
#[derive(Clone, Debug)]
pub struct NttPlan {
    degree: usize,
    simd: SimdLevel,
    kernel: Kernel,
}

/// Each kernel with its twiddles, forward and inverse.
#[derive(Clone, Debug)]
enum Kernel {
    Portable {
        forward: Vec<u64>,
        inverse: Vec<u64>,
    },
    #[cfg(target_arch = "x86_64")]
    Avx2 {
        forward: tables::Tables,
        inverse: tables::Tables,
    },
    #[cfg(target_arch = "x86_64")]
    Avx512 {
        forward: tables::Tables,
        inverse: tables::Tables,
    },
}

impl Kernel {
    fn new(simd: SimdLevel, forward: Vec<u64>, inverse: Vec<u64>) -> Self {
        #[cfg(target_arch = "x86_64")]
        if forward.len() >= tables::MIN_DEGREE {
            let tables = |lanes| {
                (
                    tables::Tables::forward(&forward, lanes),
                    tables::Tables::inverse(&inverse, lanes),
                )
            };
            match simd {
                SimdLevel::Avx512 => {
                    let (forward, inverse) = tables(avx512::LANES);
                    return Kernel::Avx512 { forward, inverse };
                }
                SimdLevel::Avx2 => {
                    let (forward, inverse) = tables(avx2::LANES);
                    return Kernel::Avx2 { forward, inverse };
                }
                SimdLevel::Portable => {}
            }
        }
        Kernel::Portable { forward, inverse }
    }
}

impl NttPlan {
    /// A plan for the degree `n`, a power of two from 2 to 2^17, with the best kernel of this processor.
    ///
    /// # Errors
    /// [`RingError::Degree`] for any other `n`.
    pub fn new(n: usize) -> Result<Self, RingError> {
        Self::with_simd(n, SimdLevel::best())
    }

    /// A plan with the kernel of an instruction set; below N = 64 that is always the portable one.
    ///
    /// # Errors
    /// [`RingError::Degree`] as for [`NttPlan::new`], [`RingError::SimdLevelUnavailable`] where the processor lacks `simd`.
    pub fn with_simd(n: usize, simd: SimdLevel) -> Result<Self, RingError> {
        let psi = goldilocks::psi(n)?;
        if !simd.is_available() {
            return Err(RingError::SimdLevelUnavailable(simd));
        }
        let forward = powers_bit_reversed(psi, n);
        let inverse = powers_bit_reversed(goldilocks::inv(psi), n);
        Ok(Self {
            degree: n,
            simd,
            kernel: Kernel::new(simd, forward, inverse),
        })
    }

    /// The ring degree N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The instruction set that the plan was made for.
    #[must_use]
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// NTT in place: N canonical coefficients in natural order to N canonical values in bit-reversed order, not
    /// normalized.
    ///
    /// # Panics
    /// If `a` is not N elements long.
    pub fn forward(&self, a: &mut [u64]) {
        self.check(a);
        match &self.kernel {
            Kernel::Portable { forward, .. } => portable::forward(a, forward),
            // SAFETY: `with_simd` made sure of the instruction set and of tables for N, and `check` of the length.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 { forward, .. } => unsafe {
                limbs::forward::<avx2::Lanes4>(a, forward, limbs::Keep)
            },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 { forward, .. } => unsafe {
                limbs::forward::<avx512::Lanes8>(a, forward, limbs::Keep)
            },
        }
    }

    /// INTT in place: N canonical values in bit-reversed order to N canonical coefficients in natural order, times N.
    ///
    /// # Panics
    /// If `a` is not N elements long.
    pub fn inverse(&self, a: &mut [u64]) {
        self.check(a);
        match &self.kernel {
            Kernel::Portable { inverse, .. } => portable::inverse(a, inverse),
            // SAFETY: as in `forward`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 { inverse, .. } => unsafe { limbs::inverse::<avx2::Lanes4>(a, inverse) },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 { inverse, .. } => unsafe {
                limbs::inverse::<avx512::Lanes8>(a, inverse)
            },
        }
    }

    /// `sums[c] += NTT(a) ⊙ keys[c]` for columns c = 0, 1, …; without `ADD`, `sums` is overwritten. All are canonical;
    /// `keys` and `sums` hold the columns in a row, N elements each. `a` serves as scratch and holds nothing of use
    /// afterwards.
    ///
    /// The products are made while each part of the transform is in the first level of cache, and keys are asked for
    /// ahead, so that reading them from memory overlaps the transform.
    ///
    /// # Panics
    /// If `a` is not N elements long, or `keys` and `sums` not equally many times N.
    pub fn forward_mul_add<const ADD: bool>(&self, a: &mut [u64], keys: &[u64], sums: &mut [u64]) {
        self.check(a);
        assert!(
            keys.len() == sums.len() && sums.len().is_multiple_of(self.degree),
            "columns of {} elements each, {} of keys and {} of sums",
            self.degree,
            keys.len(),
            sums.len()
        );
        #[cfg(target_arch = "x86_64")]
        let leaf = limbs::Accumulate::<ADD> {
            keys: keys.as_ptr(),
            sums: sums.as_mut_ptr(),
            columns: sums.len() / self.degree,
            degree: self.degree,
        };
        match &self.kernel {
            Kernel::Portable { forward, .. } => {
                portable::forward(a, forward);
                for (sum, key) in sums
                    .chunks_exact_mut(self.degree)
                    .zip(keys.chunks_exact(self.degree))
                {
                    if !ADD {
                        sum.fill(0);
                    }
                    portable::mul_add_assign(sum, a, key);
                }
            }
            // SAFETY: as in `forward`; the lengths that `leaf` states are checked.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 { forward, .. } => unsafe {
                limbs::forward::<avx2::Lanes4>(a, forward, leaf)
            },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 { forward, .. } => unsafe {
                limbs::forward::<avx512::Lanes8>(a, forward, leaf)
            },
        }
    }

    /// `acc += a ⊙ b`, position by position; all canonical.
    ///
    /// # Panics
    /// If a slice is not N elements long.
    pub fn mul_add_assign(&self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        self.check(acc);
        self.check(a);
        self.check(b);
        match &self.kernel {
            Kernel::Portable { .. } => portable::mul_add_assign(acc, a, b),
            // SAFETY: `with_simd` made sure of the instruction set, `check` of N elements, a multiple of the lanes.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 { .. } => unsafe { avx2::Lanes4::call(limbs::MulAddAssign { acc, a, b }) },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 { .. } => unsafe {
                avx512::Lanes8::call(limbs::MulAddAssign { acc, a, b })
            },
        }
    }

    /// `a = a ⊙ b`, position by position; all canonical.
    ///
    /// # Panics
    /// If a slice is not N elements long.
    pub fn mul_assign(&self, a: &mut [u64], b: &[u64]) {
        self.check(a);
        self.check(b);
        match &self.kernel {
            Kernel::Portable { .. } => portable::mul_assign(a, b),
            // SAFETY: as in `mul_add_assign`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 { .. } => unsafe { avx2::Lanes4::call(limbs::MulAssign { a, b }) },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 { .. } => unsafe { avx512::Lanes8::call(limbs::MulAssign { a, b }) },
        }
    }

    /// `a = c·a`, in either domain; `a` and `c` canonical.
    ///
    /// # Panics
    /// If `a` is not N elements long.
    pub fn scale_assign(&self, a: &mut [u64], c: u64) {
        self.check(a);
        match &self.kernel {
            Kernel::Portable { .. } => portable::scale_assign(a, c),
            // SAFETY: as in `mul_add_assign`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 { .. } => unsafe { avx2::Lanes4::call(limbs::ScaleAssign { a, c }) },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 { .. } => unsafe { avx512::Lanes8::call(limbs::ScaleAssign { a, c }) },
        }
    }

    fn check(&self, a: &[u64]) {
        assert!(
            a.len() == self.degree,
            "a polynomial of this plan has {} elements, the slice has {}",
            self.degree,
            a.len()
        );
    }
}

/// `root^rev(i)` for `i` below `n`, where `rev` reverses the log2(n) bits of `i`.
fn powers_bit_reversed(root: u64, n: usize) -> Vec<u64> {
    let shift = usize::BITS - n.trailing_zeros();
    let mut powers = vec![0; n];
    let mut power = 1;
    for i in 0..n {
        powers[i.reverse_bits() >> shift] = power;
        power = goldilocks::mul(power, root);
    }
    powers
}
