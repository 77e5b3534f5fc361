//! What can be wrong with a request to this crate.

use crate::simd::SimdLevel;

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
    /// The length of a discrete Fourier transform is not one that there are plans for.
    #[error("the length of a transform must be from 1 to {max}, not {found}")]
    DftLength {
        /// The length asked for.
        found: usize,
        /// The greatest length.
        max: usize,
    },
    /// The modulus does not have the roots of unity of a discrete Fourier transform.
    #[error(
        "a transform of {length} points needs a prime modulus that is 1 modulo {length}, which {modulus} is not"
    )]
    DftModulus {
        /// The modulus asked for.
        modulus: u32,
        /// The length asked for.
        length: usize,
    },
    /// Not a root of unity of the order that a discrete Fourier transform needs.
    #[error("{root} is not a primitive root of unity of order {length} modulo {modulus}")]
    DftRoot {
        /// The root given.
        root: u32,
        /// The length, so the order that the root must have.
        length: usize,
        /// The modulus.
        modulus: u32,
    },
    /// The index of a cyclotomic polynomial is not one that is calculated.
    #[error("the index of a cyclotomic polynomial must be from 1 to {max}, not {found}")]
    CyclotomicIndex {
        /// The index asked for.
        found: usize,
        /// The greatest index.
        max: usize,
    },
    /// The instruction set is not available on this processor.
    #[error("this processor cannot run {0} kernels")]
    SimdLevelUnavailable(SimdLevel),
    /// The modulus is not a prime.
    #[error("the modulus must be a prime, and {0} is not")]
    NotPrime(u64),
    /// The modulus is too large for the kind of transform.
    #[error("the modulus must be below 2^{bits}, not {found}")]
    ModulusTooLarge {
        /// The modulus asked for.
        found: u64,
        /// The moduli are below 2 to this power.
        bits: u32,
    },
    /// There is no element of order twice the degree modulo the prime.
    #[error(
        "a transform of degree {degree} needs a prime that is 1 modulo twice the degree, not {modulus}"
    )]
    NoRoot {
        /// The prime asked for.
        modulus: u64,
        /// The degree asked for.
        degree: usize,
    },
}
