//! Key generation and the size of keys.

use std::time::Duration;

use tfhe::core_crypto::prelude::*;
use toroid_bench_common::{Error, machine};
use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::{Arithmetic, Fft};
use toroid_tfhe::bootstrap::BootstrappingKey;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Modulus, Torus32};
use toroid_tfhe::params::{MESSAGE7, PAPER, ParamSet};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

use crate::measure::{Clock, Measurement, alone, interleave, timed};
use crate::peer_key::Shape;
use crate::row::{Row, Settings};

/// Of the peer's key, in a quick run.
const QUICK_SHARE: usize = 10;

/// The bootstrapping key at `paper`, on one thread.
pub fn one_thread(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let share = if settings.quick { QUICK_SHARE } else { 1 };
    let mut peak = None;
    let mut measurement = interleave(
        row.runs(settings),
        || {
            let time = ours(Clock::Thread)?;
            peak = peak.or_else(machine::peak_memory);
            Ok(time)
        },
        || peer(share),
    )?;
    measurement.our_peak = peak;
    if settings.quick {
        measurement.note = format!(
            "the peer made the part for 1/{QUICK_SHARE} of the key bits; its time is {QUICK_SHARE} times that"
        );
    }
    Ok(measurement)
}

/// The same on two threads.
pub fn two_threads(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let mut measurement = alone(row.runs(settings), || ours(Clock::Wall))?;
    measurement.processor = None;
    measurement.our_peak = machine::peak_memory();
    Ok(measurement)
}

fn ours(clock: Clock) -> Result<Duration, Error> {
    let mut rng = Csprng::from_os()?;
    let (time, key) = clock.timed(|| {
        let client = ClientKey::generate(&PAPER, &mut rng);
        bootstrapping_key::<Torus32, Fft>(&client, &mut rng)
    });
    key?;
    Ok(time)
}

/// Our bootstrapping key, loaded.
pub fn bootstrapping_key<M: Modulus, A: Arithmetic<M>>(
    client: &ClientKey,
    rng: &mut Csprng,
) -> Result<BootstrappingKey<M, A>, Error> {
    let progress = Progress::none();
    Ok(client.loaded_bootstrapping_key(SimdLevel::best(), rng, &progress)?)
}

/// Bytes of both public keys.
pub fn bytes(form: KeyForm, params: &ParamSet) -> f64 {
    (form.bootstrapping_key_bytes(params) + form.key_switching_key_bytes(params)) as f64
}

/// Sizes of seeded and expanded keys. They follow from the parameters; nothing is timed.
pub fn sizes(_: &Row, _: &Settings) -> Result<Measurement, Error> {
    Ok(Measurement {
        ours: vec![bytes(KeyForm::Seeded, &PAPER)],
        peer: vec![bytes(KeyForm::Expanded, &PAPER)],
        note: format!(
            "at `message7`, {:.3} of {:.3} GB",
            bytes(KeyForm::Seeded, &MESSAGE7) / 1e9,
            bytes(KeyForm::Expanded, &MESSAGE7) / 1e9
        ),
        ..Measurement::default()
    })
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
