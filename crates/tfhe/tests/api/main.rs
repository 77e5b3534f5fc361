//! Tests of the keys and ciphertexts that applications use.

// A failed set-up is a failed test.
#![allow(clippy::unwrap_used)]

mod ciphertexts;
mod gates;
mod keys;
mod operators;

use std::sync::OnceLock;

use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::{ParamSet, TINY};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::{ClientKey, ServerKey, generate_with};

/// Keys from a seed.
fn keys(params: &ParamSet, arithmetic: ArithmeticKind, seed: u8) -> (ClientKey, ServerKey) {
    let mut rng = Csprng::from_seed([seed; 32]);
    generate_with(params, arithmetic, &mut rng, &Progress::none()).unwrap()
}

/// Keys of the set that most tests use.
fn tiny() -> &'static (ClientKey, ServerKey) {
    static KEYS: OnceLock<(ClientKey, ServerKey)> = OnceLock::new();
    KEYS.get_or_init(|| keys(&TINY, ArithmeticKind::Fft, 1))
}
