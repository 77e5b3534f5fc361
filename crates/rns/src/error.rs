//! What can go wrong in the ring layer.

use toroid_ring::RingError;
use toroid_task::Cancelled;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum RnsError {
    /// Parameters that no context is made for.
    #[error("parameters: {0}")]
    Params(String),
    /// There are not as many primes of a size as were asked for.
    #[error("there are fewer than {wanted} primes of {bits} bits that are 1 modulo {modulo}")]
    Primes {
        /// Bits of the primes.
        bits: u32,
        /// Primes asked for.
        wanted: usize,
        /// Twice the ring degree.
        modulo: u64,
    },
    /// Two objects belong to different contexts.
    #[error("operands of different contexts")]
    Context,
    /// A ciphertext or plaintext has too few limbs for an operation.
    #[error("{what} needs {needed} limbs at least, not {found}")]
    Limbs {
        /// The operation.
        what: &'static str,
        /// Limbs needed.
        needed: usize,
        /// Limbs found.
        found: usize,
    },
    /// Operands of a sum have different scales.
    #[error("a sum of operands with scales 2^{left:.6} and 2^{right:.6}")]
    Scale {
        /// log2 of the one scale.
        left: f64,
        /// log2 of the other.
        right: f64,
    },
    /// A number of coefficients other than the ring degree.
    #[error("a polynomial has {expected} coefficients, not {found}")]
    Length {
        /// The ring degree.
        expected: usize,
        /// Coefficients found.
        found: usize,
    },
    /// The evaluation keys lack the key of an operation, or have it for fewer limbs.
    #[error("there is no evaluation key for {what} at {limbs} limbs")]
    MissingKey {
        /// The operation.
        what: String,
        /// Limbs of the ciphertext.
        limbs: usize,
    },
    /// The caller asked to stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// From the transforms.
    #[error(transparent)]
    Ring(#[from] RingError),
}
