#![doc = include_str!("../README.md")]

#[cfg(target_endian = "big")]
compile_error!("words are kept as they stand on the wire: little-endian");

pub mod any_key;
pub mod arithmetic;
pub mod bits;
pub mod bodies;
pub mod bootstrap;
pub mod ciphertext;
pub mod column;
pub mod encoding;
pub mod encrypted_key;
mod error;
pub mod gates;
mod ggsw;
pub mod glwe;
pub mod key_bits;
pub mod key_loader;
pub mod key_switch;
pub mod keys;
pub mod lwe;
pub mod mac;
mod memory;
pub mod modulus;
pub mod noise;
pub mod parallel;
pub mod params;
pub mod random;
pub mod seeded;
pub mod serialize;
pub mod server_key;
mod variance;
pub mod wopbs;

pub use ciphertext::Ciphertext;
pub use error::TfheError;
pub use keys::ClientKey;
pub use server_key::{ServerKey, generate, generate_with};
