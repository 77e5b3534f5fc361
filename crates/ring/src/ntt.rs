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
//! `NTT_i(f) = psi^i·Σ f_j·omega^(ij)`, is the transposed of the negacyclic transform `Σ psi^j·f_j·omega^(ij)`: the first
//! output is `f(1)`, and 1 is no root of X^N + 1, so products of positions are not negacyclic products. The same two
//! butterflies with their parts exchanged are right, and that is what is here: the Cooley-Tukey butterfly for the NTT,
//! the Gentleman-Sande butterfly for the INTT, both in the paper's orders of input and output. In a butterfly of the
//! NTT, `f mod (X^2k - z^2)` splits into `f mod (X^k - z)` and `f mod (X^k + z)`; one twiddle `z` serves a whole
//! block, and the blocks' twiddles lie in bit-reversed order, so that every row reads its twiddles as one stream.

use crate::RingError;
use crate::goldilocks;
use crate::simd::Isa;

/// The twiddles of one ring degree and the choice of kernel.
#[derive(Clone, Debug)]
pub struct NttPlan {
    degree: usize,
    isa: Isa,
    forward: Vec<u64>,
    inverse: Vec<u64>,
}

impl NttPlan {
    /// A plan for the degree `n`, a power of two from 2 to 2^17, with the best kernel of this processor.
    ///
    /// # Errors
    /// [`RingError::Degree`] for any other `n`.
    pub fn new(n: usize) -> Result<Self, RingError> {
        Self::with_isa(n, Isa::best())
    }

    /// A plan with the kernel of an instruction set.
    ///
    /// # Errors
    /// [`RingError::Degree`] as for [`NttPlan::new`], [`RingError::IsaUnavailable`] where the processor lacks `isa`.
    pub fn with_isa(n: usize, isa: Isa) -> Result<Self, RingError> {
        let psi = goldilocks::psi(n)?;
        if !isa.is_available() {
            return Err(RingError::IsaUnavailable(isa));
        }
        Ok(Self {
            degree: n,
            isa,
            forward: powers_bit_reversed(psi, n),
            inverse: powers_bit_reversed(goldilocks::inv(psi), n),
        })
    }

    /// The ring degree N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The instruction set of the kernels.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// NTT in place: N canonical coefficients in natural order to N canonical values in bit-reversed order, not
    /// normalized.
    ///
    /// # Panics
    /// If `a` is not N elements long.
    pub fn forward(&self, a: &mut [u64]) {
        self.check(a);
        portable::forward(a, &self.forward);
    }

    /// INTT in place: N canonical values in bit-reversed order to N canonical coefficients in natural order, times N.
    ///
    /// # Panics
    /// If `a` is not N elements long.
    pub fn inverse(&self, a: &mut [u64]) {
        self.check(a);
        portable::inverse(a, &self.inverse);
    }

    /// `acc += a ⊙ b`, position by position; all canonical.
    ///
    /// # Panics
    /// If a slice is not N elements long.
    pub fn mul_add_assign(&self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        self.check(acc);
        self.check(a);
        self.check(b);
        for ((acc, &a), &b) in acc.iter_mut().zip(a).zip(b) {
            *acc = goldilocks::reduce(u128::from(a) * u128::from(b) + u128::from(*acc));
        }
    }

    /// `a = a ⊙ b`, position by position; all canonical.
    ///
    /// # Panics
    /// If a slice is not N elements long.
    pub fn mul_assign(&self, a: &mut [u64], b: &[u64]) {
        self.check(a);
        self.check(b);
        for (a, &b) in a.iter_mut().zip(b) {
            *a = goldilocks::mul(*a, b);
        }
    }

    /// `a = c·a`, in either domain; `a` and `c` canonical.
    ///
    /// # Panics
    /// If `a` is not N elements long.
    pub fn scale_assign(&self, a: &mut [u64], c: u64) {
        self.check(a);
        for a in a {
            *a = goldilocks::mul(*a, c);
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

/// The transforms row by row, in plain Rust.
mod portable {
    use crate::goldilocks::{add, mul, sub};

    /// Algorithm 1's loops with the Cooley-Tukey butterfly; `twiddles` are powers of psi in bit-reversed order.
    pub fn forward(a: &mut [u64], twiddles: &[u64]) {
        let mut blocks = 1;
        while blocks < a.len() {
            let length = a.len() / blocks;
            for (block, &w) in a.chunks_exact_mut(length).zip(&twiddles[blocks..]) {
                let (low, high) = block.split_at_mut(length / 2);
                for (t, u) in low.iter_mut().zip(high) {
                    let product = mul(*u, w);
                    (*t, *u) = (add(*t, product), sub(*t, product));
                }
            }
            blocks *= 2;
        }
    }

    /// Algorithm 2's loops with the Gentleman-Sande butterfly; `twiddles` are powers of 1/psi in bit-reversed order.
    pub fn inverse(a: &mut [u64], twiddles: &[u64]) {
        let mut blocks = a.len() / 2;
        while blocks > 0 {
            let length = a.len() / blocks;
            for (block, &w) in a.chunks_exact_mut(length).zip(&twiddles[blocks..]) {
                let (low, high) = block.split_at_mut(length / 2);
                for (t, u) in low.iter_mut().zip(high) {
                    (*t, *u) = (add(*t, *u), mul(sub(*t, *u), w));
                }
            }
            blocks /= 2;
        }
    }
}
