#![doc = include_str!("../README.md")]
//!
//! # Layout
//!
//! Each algorithm is a file beside [`naive`], the oracle of all. SIMD kernels are in a folder per instruction set, and
//! [`simd::SimdLevel`] chooses one at run time. [`prime_ntt`] and [`dft`] are the transforms over other primes, [`cyclotomic`]
//! the rings on them.

#[cfg(feature = "dft")]
pub mod cyclotomic;
#[cfg(feature = "dft")]
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
