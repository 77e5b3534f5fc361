//! Moduli, polynomials and every transform of Toroid.
//!
//! One file an algorithm, beside [`naive`], the oracle of all; SIMD kernels in a folder per instruction set, chosen
//! once at run time by [`simd::SimdLevel`]. Not here: ciphertexts, keys, noise (see `toroid-tfhe`).
//! Open [`goldilocks`] first, then [`ntt`] and [`fft`]; [`prime_ntt`] and [`dft`] are the transforms over other primes,
//! [`cyclotomic`] the rings on them.

pub mod cyclotomic;
pub mod dft;
mod error;
pub mod fft;
pub mod goldilocks;
pub mod naive;
pub mod ntt;
pub mod prime;
pub mod prime_ntt;
pub mod simd;

pub use error::RingError;
