//! The TFHE scheme of Toroid, generic over the ciphertext modulus.
//!
//! Parameter sets, keys, TLWE/TRLWE/TRGSW samples, programmable and gate bootstrapping on an exact (NTT) and a fast
//! (f64 FFT) path, noise with failure probabilities, serialization. Not here: transforms (`toroid-ring`), programs
//! (`toroid-isa`), storage. Open [`params`] first and [`noise`].

pub mod noise;
pub mod params;
