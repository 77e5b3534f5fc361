//! Moduli, polynomials and every transform of Toroid.
//!
//! One file an algorithm, beside [`naive`], the oracle of all; SIMD kernels in a folder per instruction set, chosen
//! once at run time by [`simd::Isa`]. Not here: ciphertexts, keys, noise (see `toroid-tfhe`).
//! Open [`goldilocks`] first, then [`ntt`] and [`fft`].

pub mod fft;
pub mod goldilocks;
pub mod naive;
pub mod ntt;
pub mod simd;

/// What can be wrong with a request to this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The degree of a ring is not a power of two in the range that the transform supports.
    #[error("the ring degree must be a power of two from {min} to {max}, not {found}")]
    Degree {
        /// The degree asked for.
        found: usize,
        /// The smallest supported degree.
        min: usize,
        /// The largest supported degree.
        max: usize,
    },
    /// The instruction set is not available on this processor.
    #[error("this processor cannot run {0} kernels")]
    IsaUnavailable(simd::Isa),
    /// Not the name of an instruction set.
    #[error("unknown instruction set {0:?}: expected portable, avx2 or avx512")]
    UnknownIsa(String),
}
