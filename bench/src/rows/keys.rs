//! Key generation.

use std::ops::ControlFlow;
use std::time::Duration;

use tfhe::core_crypto::prelude::*;
use toroid_ring::simd::Isa;
use toroid_tfhe::bootstrap::{BootstrappingKey, BootstrappingKeyLoader};
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Modulus, Torus32};
use toroid_tfhe::params::{PAPER, ParamSet};
use toroid_tfhe::product::{Arithmetic, Fast};
use toroid_tfhe::random::Csprng;

use super::{Row, Settings};
use crate::Error;
use crate::measure::{Measurement, interleave, timed};
use crate::peer_key::Shape;

/// Of the peer's key, in a quick run.
const QUICK_SHARE: usize = 10;

/// The bootstrapping key at `paper`.
pub fn paper(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let share = if settings.quick { QUICK_SHARE } else { 1 };
    let mut measurement = interleave(row.runs(settings), ours, || peer(share))?;
    measurement.note = if settings.quick {
        format!(
            "the peer made the part for 1/{QUICK_SHARE} of the key bits; its time is {QUICK_SHARE} times that"
        )
    } else {
        String::new()
    };
    Ok(measurement)
}

fn ours() -> Result<Duration, Error> {
    let mut rng = Csprng::from_os()?;
    let (time, key) = timed(|| {
        let client = ClientKey::generate(&PAPER, &mut rng);
        bootstrapping_key::<Torus32, Fast>(&PAPER, &client, &mut rng)
    });
    key?;
    Ok(time)
}

/// Our bootstrapping key, loaded.
pub fn bootstrapping_key<M: Modulus, A: Arithmetic<M>>(
    params: &'static ParamSet,
    client: &ClientKey,
    rng: &mut Csprng,
) -> Result<BootstrappingKey<M, A>, Error> {
    let mut loader = BootstrappingKeyLoader::<M, A>::new(params, Isa::best())?;
    client.bootstrapping_key(rng, &mut |_, _| ControlFlow::Continue(()), &mut |bytes| {
        loader.write(bytes)
    })?;
    Ok(loader.finish()?)
}

fn peer(share: usize) -> Result<Duration, Error> {
    let shape = Shape::of(&PAPER)?;
    let mut seeder = new_seeder();
    let seeder = seeder.as_mut();
    let (time, _key) = timed(|| {
        let mut secret = SecretRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed());
        let lwe = LweSecretKey::<Vec<u32>>::generate_new_binary(
            LweDimension(shape.lwe_dimension.0 / share),
            &mut secret,
        );
        let glwe = GlweSecretKey::<Vec<u32>>::generate_new_binary(
            GlweDimension(1),
            shape.polynomial_size,
            &mut secret,
        );
        let mut generator =
            EncryptionRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed(), seeder);
        let standard = allocate_and_generate_new_lwe_bootstrap_key(
            &lwe,
            &glwe,
            shape.base_log,
            shape.level_count,
            shape.glwe_noise,
            CiphertextModulus::new_native(),
            &mut generator,
        );
        fourier(&standard)
    });
    Ok(time * share as u32)
}

/// The peer's key in the Fourier domain.
pub fn fourier(standard: &LweBootstrapKeyOwned<u32>) -> FourierLweBootstrapKeyOwned {
    let mut key = FourierLweBootstrapKey::new(
        standard.input_lwe_dimension(),
        standard.glwe_size(),
        standard.polynomial_size(),
        standard.decomposition_base_log(),
        standard.decomposition_level_count(),
    );
    convert_standard_lwe_bootstrap_key_to_fourier(standard, &mut key);
    key
}
