//! Bootstraps and gates, with keys. Every side's result is decrypted and checked.

use std::time::Duration;

use tfhe::boolean::prelude::BinaryBooleanGates;
use tfhe::core_crypto::commons::math::ntt::ntt64::Ntt64;
use tfhe::core_crypto::fft_impl::fft64::math::fft::setup_custom_fft_plan;
use tfhe::core_crypto::prelude::*;
use tfhe::shortint::parameters::PARAM_MESSAGE_2_CARRY_2_KS_PBS;
use toroid_bench_common::{Error, machine};
use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Ntt};
use toroid_tfhe::bootstrap::{BootstrappingKey, Job, Rotation, Run, bootstrap, bootstrap_all};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::gates::{self, Gate};
use toroid_tfhe::glwe;
use toroid_tfhe::key_switch::KeySwitchingKey;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::words_from_bytes;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::params::{GATE, MESSAGE4, PAPER, ParamSet};
use toroid_tfhe::random::Csprng;

use super::keys::{bootstrapping_key, fourier};
use super::transform::best_peer_fft;
use crate::machine::{Load, SINGLE};
use crate::measure::{Clock, Measurement, interleave, timed};
use crate::peer_key::{self, Shape, Word};
use crate::row::{Row, Settings};

/// Message bits of the bootstraps at `paper`, beside the bit of padding: few enough that no run fails.
const BITS: u32 = 3;
const MESSAGE: u64 = 5;

/// The function that the bootstraps compute.
fn function(message: u64) -> u64 {
    (3 * message + 2) % (1 << BITS)
}

/// Compares what a side decrypts to.
pub fn check(side: &str, found: u64, expected: u64) -> Result<(), Error> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{side} decrypts to {found} instead of {expected}").into())
    }
}

/// The message of sample `index` of a batch.
fn message(index: usize) -> u64 {
    (MESSAGE + index as u64) % (1 << BITS)
}

/// Our side of PBSs without key switch on the 32-bit torus.
struct Ours<A: Arithmetic<Torus32>> {
    client: ClientKey,
    encoding: Encoding,
    key: BootstrappingKey<Torus32, A>,
    load: Load,
    test_vector: Vec<u32>,
    samples: Vec<Vec<u32>>,
    outs: Vec<Vec<u32>>,
    peak: Option<u64>,
}

impl<A: Arithmetic<Torus32>> Ours<A> {
    fn new(params: &ParamSet, load: Load) -> Result<Self, Error> {
        let mut rng = Csprng::from_os()?;
        let client = ClientKey::generate(params, &mut rng);
        let encoding = Encoding::new(BITS, false)?;
        let table: Vec<u32> = encoding
            .messages()
            .map(|m| Torus32::encode(function(m.cast_unsigned()).cast_signed(), BITS + 1))
            .collect();
        let samples: Result<Vec<_>, Error> = (0..load.batch)
            .map(|index| {
                let bytes =
                    client.encrypt_sample(message(index).cast_signed(), encoding, &mut rng)?;
                let words = params.lwe_words();
                Ok(words_from_bytes::<Torus32>(
                    "a sample", params, &bytes, words,
                )?)
            })
            .collect();
        let mut ours = Ours {
            key: bootstrapping_key(&client, &mut rng)?,
            test_vector: glwe::test_vector::<Torus32>(params, encoding, &table)?,
            samples: samples?,
            outs: vec![vec![0; params.extracted_dimension() + 1]; load.batch],
            client,
            encoding,
            load,
            peak: None,
        };
        ours.run()?;
        ours.peak = machine::peak_memory();
        ours.check()?;
        Ok(ours)
    }

    /// Time of one sample.
    fn run(&mut self) -> Result<Duration, Error> {
        let mut rotations: Vec<_> = self
            .samples
            .iter()
            .zip(&mut self.outs)
            .map(|(sample, out)| Rotation {
                test_vector: &self.test_vector,
                sample,
                out,
            })
            .collect();
        let Load { batch, threads } = self.load;
        let (time, result) = Clock::of(threads).timed(|| {
            self.key
                .blind_rotate_all(&mut rotations, Run::with_threads(threads))
        });
        result?;
        Ok(time / batch as u32)
    }

    fn check(&self) -> Result<(), Error> {
        let secret = self.client.glwe().extracted_key();
        for (index, out) in self.outs.iter().enumerate() {
            let found = self
                .encoding
                .decode::<Torus32>(secret.phase::<Torus32>(out));
            check("ours", found.cast_unsigned(), function(message(index)))?;
        }
        Ok(())
    }

    /// The measurement against the peer, both checked again.
    fn against(
        mut self,
        runs: usize,
        mut peer: impl FnMut() -> Duration,
    ) -> Result<Measurement, Error> {
        peer();
        let mut measurement = interleave(runs, || self.run(), || Ok(peer()))?;
        self.check()?;
        if Clock::of(self.load.threads) == Clock::Wall {
            measurement.processor = None;
        }
        measurement.our_peak = self.peak;
        measurement.key_bytes = self.key.memory();
        measurement.note = KEY_NOTE.to_owned();
        Ok(measurement)
    }
}

/// The peer's secret keys, inputs, accumulator and outputs of PBSs.
struct Peer<W: Word> {
    lwe: LweSecretKeyOwned<W>,
    glwe: GlweSecretKeyOwned<W>,
    samples: Vec<LweCiphertextOwned<W>>,
    accumulator: GlweCiphertextOwned<W>,
    outs: Vec<LweCiphertextOwned<W>>,
    delta: W,
}

impl<W: Word + CastFrom<usize> + CastFrom<u64> + CastInto<u64>> Peer<W> {
    fn new(shape: Shape, batch: usize, seeder: &mut dyn Seeder) -> Self {
        let mut secret = SecretRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed());
        let lwe = LweSecretKey::generate_new_binary(shape.lwe_dimension, &mut secret);
        let glwe = GlweSecretKey::generate_new_binary(
            GlweDimension(1),
            shape.polynomial_size,
            &mut secret,
        );
        let delta = W::ONE << (W::BITS - 1 - BITS as usize);
        let mut generator =
            EncryptionRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed(), seeder);
        let samples = (0..batch)
            .map(|index| {
                allocate_and_encrypt_new_lwe_ciphertext(
                    &lwe,
                    Plaintext(W::cast_from(message(index)) * delta),
                    shape.lwe_noise,
                    W::modulus(),
                    &mut generator,
                )
            })
            .collect();
        let out = LweCiphertext::new(W::ZERO, LweSize(shape.polynomial_size.0 + 1), W::modulus());
        Peer {
            accumulator: generate_programmable_bootstrap_glwe_lut(
                shape.polynomial_size,
                GlweSize(2),
                1 << BITS,
                W::modulus(),
                delta,
                |message: W| W::cast_from(function(message.cast_into())),
            ),
            outs: vec![out; batch],
            lwe,
            glwe,
            samples,
            delta,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let secret = self.glwe.clone().into_lwe_secret_key();
        for (index, out) in self.outs.iter().enumerate() {
            let plaintext = decrypt_lwe_ciphertext(&secret, out);
            let found: u64 = divide_round(plaintext.0, self.delta).cast_into();
            check("the peer", found % (1 << BITS), function(message(index)))?;
        }
        Ok(())
    }
}

const KEY_NOTE: &str = "the peer's bootstrapping key holds real samples, but was made with our NTT, since its own \
                        generation takes minutes (see the row keygen)";

/// PBS at `paper` by f64 FFT; of a batch on both sides, of several threads on ours.
pub fn paper_fft(row: &Row, settings: &Settings, load: Load) -> Result<Measurement, Error> {
    let ours = Ours::<Fft>::new(&PAPER, load)?;
    let shape = Shape::of(&PAPER)?;
    let mut seeder = new_seeder();
    let mut peer = Peer::<u32>::new(shape, load.batch, seeder.as_mut());
    setup_custom_fft_plan(best_peer_fft(shape.polynomial_size.0));
    let key = fourier(&peer_key::standard(
        shape,
        &peer.lwe,
        &peer.glwe,
        seeder.as_mut(),
    )?);
    let fft = tfhe::core_crypto::fft_impl::fft64::math::fft::Fft::new(shape.polynomial_size);
    let fft = fft.as_view();
    let runs = row.runs(settings);
    let measurement = if load.batch == 1 {
        let (sample, out) = (&peer.samples[0], &mut peer.outs[0]);
        let mut buffers = ComputationBuffers::new();
        buffers.resize(
            programmable_bootstrap_lwe_ciphertext_mem_optimized_requirement::<u32>(
                GlweSize(2),
                shape.polynomial_size,
                fft,
            )
            .unaligned_bytes_required(),
        );
        ours.against(runs, || {
            Clock::of(load.threads)
                .timed(|| {
                    programmable_bootstrap_lwe_ciphertext_mem_optimized(
                        sample,
                        out,
                        &peer.accumulator,
                        &key,
                        fft,
                        buffers.stack(),
                    );
                })
                .0
        })?
    } else {
        let modulus = u32::modulus();
        let batch = load.batch;
        let samples = LweCiphertextList::from_container(
            peer.samples
                .iter()
                .flat_map(|sample| sample.as_ref().to_vec())
                .collect::<Vec<_>>(),
            shape.lwe_dimension.to_lwe_size(),
            modulus,
        );
        let accumulators = GlweCiphertextList::from_container(
            peer.accumulator.as_ref().repeat(batch),
            GlweSize(2),
            shape.polynomial_size,
            modulus,
        );
        let out_size = LweSize(shape.polynomial_size.0 + 1);
        let mut outs = LweCiphertextList::new(0u32, out_size, LweCiphertextCount(batch), modulus);
        let mut buffers = ComputationBuffers::new();
        buffers.resize(
            batch_programmable_bootstrap_lwe_ciphertext_mem_optimized_requirement::<u32>(
                GlweSize(2),
                shape.polynomial_size,
                CiphertextCount(batch),
                fft,
            )
            .unaligned_bytes_required(),
        );
        let measurement = ours.against(runs, || {
            let (time, ()) = Clock::of(load.threads).timed(|| {
                batch_programmable_bootstrap_lwe_ciphertext_mem_optimized(
                    &samples,
                    &mut outs,
                    &accumulators,
                    &key,
                    fft,
                    buffers.stack(),
                );
            });
            time / batch as u32
        })?;
        for (out, words) in peer.outs.iter_mut().zip(outs.as_ref().chunks(out_size.0)) {
            out.as_mut().copy_from_slice(words);
        }
        measurement
    };
    peer.check()?;
    Ok(measurement)
}

/// PBS at `paper` by NTT.
pub fn paper_ntt(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let ours = Ours::<Ntt>::new(&PAPER, SINGLE)?;
    let shape = Shape::of(&PAPER)?;
    let mut seeder = new_seeder();
    let mut peer = Peer::<u64>::new(shape, 1, seeder.as_mut());
    let standard = peer_key::standard(shape, &peer.lwe, &peer.glwe, seeder.as_mut())?;
    let mut key = NttLweBootstrapKey::new(
        0u64,
        shape.lwe_dimension,
        GlweSize(2),
        shape.polynomial_size,
        shape.base_log,
        shape.level_count,
        u64::modulus(),
    );
    convert_standard_lwe_bootstrap_key_to_ntt64(
        &standard,
        &mut key,
        NttLweBootstrapKeyOption::Normalize,
    );
    drop(standard);
    let ntt = Ntt64::new(u64::modulus(), shape.polynomial_size);
    let ntt = ntt.as_view();
    let mut buffers = ComputationBuffers::new();
    buffers.resize(
        programmable_bootstrap_ntt64_lwe_ciphertext_mem_optimized_requirement(
            GlweSize(2),
            shape.polynomial_size,
            ntt,
        )
        .unaligned_bytes_required(),
    );
    let (sample, out) = (&peer.samples[0], &mut peer.outs[0]);
    let measurement = ours.against(row.runs(settings), || {
        timed(|| {
            programmable_bootstrap_ntt64_lwe_ciphertext_mem_optimized(
                sample,
                out,
                &peer.accumulator,
                &key,
                ntt,
                buffers.stack(),
            );
        })
        .0
    })?;
    peer.check()?;
    Ok(measurement)
}

/// Our key-switching key, loaded.
fn key_switching_key<M: Modulus>(
    client: &ClientKey,
    rng: &mut Csprng,
) -> Result<KeySwitchingKey<M>, Error> {
    let progress = Progress::none();
    Ok(client.loaded_key_switching_key(SimdLevel::best(), rng, &progress)?)
}

/// Key switch and PBS of four bits.
pub fn message4(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let params = &MESSAGE4;
    let (message, four_bits) = (11u64, |message: u64| (message * message + 3) % 16);
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let key = bootstrapping_key::<Goldilocks, Fft>(&client, &mut rng)?;
    let switch = key_switching_key::<Goldilocks>(&client, &mut rng)?;
    let encoding = Encoding::new(params.message_bits, false)?;
    let table: Vec<u64> = encoding
        .messages()
        .map(|m| {
            Goldilocks::encode(
                four_bits(m.cast_unsigned()).cast_signed(),
                encoding.bits() + 1,
            )
        })
        .collect();
    let test_vector = glwe::test_vector::<Goldilocks>(params, encoding, &table)?;
    let bytes = client.encrypt_sample(message.cast_signed(), encoding, &mut rng)?;
    let sample = words_from_bytes::<Goldilocks>("a sample", params, &bytes, params.lwe_words())?;
    let mut out = sample.clone();
    let mut ours = || {
        out.copy_from_slice(&sample);
        let (time, result) =
            timed(|| bootstrap(&key, &switch, &test_vector, &mut out, Run::with_threads(1)));
        result?;
        Ok(time)
    };
    ours()?;
    let peak = machine::peak_memory();

    setup_custom_fft_plan(best_peer_fft(
        PARAM_MESSAGE_2_CARRY_2_KS_PBS.polynomial_size.0,
    ));
    let (peer_client, server) = tfhe::shortint::gen_keys(PARAM_MESSAGE_2_CARRY_2_KS_PBS);
    let lookup = server.generate_lookup_table(four_bits);
    let ciphertext = peer_client.unchecked_encrypt(message);
    let mut peer_out = server.apply_lookup_table(&ciphertext, &lookup);
    let mut peer = || {
        let (time, result) = timed(|| server.apply_lookup_table(&ciphertext, &lookup));
        peer_out = result;
        time
    };

    let mut measurement = interleave(row.runs(settings), ours, || Ok(peer()))?;
    measurement.our_peak = peak;
    measurement.key_bytes = key.memory();
    let found = encoding.decode::<Goldilocks>(client.lwe().phase::<Goldilocks>(&out));
    check("ours", found.cast_unsigned(), four_bits(message))?;
    check(
        "the peer",
        peer_client.decrypt_message_and_carry(&peer_out),
        four_bits(message),
    )?;
    Ok(measurement)
}

/// Key switch and PBS of so many samples of four bits, with an unrolled key and with an ordinary one, time per sample. Both are ours: the
/// ordinary one stands for the peer.
pub fn message4_unrolled(
    row: &Row,
    settings: &Settings,
    batch: usize,
) -> Result<Measurement, Error> {
    let params = &MESSAGE4;
    let four_bits = |message: i64| (message * message + 3) % 16;
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let (simd, progress) = (SimdLevel::best(), Progress::none());
    let switch = key_switching_key::<Goldilocks>(&client, &mut rng)?;
    let unrolled =
        client.loaded_unrolled_bootstrapping_key::<Goldilocks, Fft>(simd, &mut rng, &progress)?;
    let ordinary = bootstrapping_key::<Goldilocks, Fft>(&client, &mut rng)?;
    let encoding = Encoding::new(params.message_bits, false)?;
    let table: Vec<u64> = encoding
        .messages()
        .map(|m| Goldilocks::encode(four_bits(m), encoding.bits() + 1))
        .collect();
    let test_vector = glwe::test_vector::<Goldilocks>(params, encoding, &table)?;
    let mut samples = Vec::new();
    for message in 0..batch as i64 {
        let bytes = client.encrypt_sample(message, encoding, &mut rng)?;
        let words = params.lwe_words();
        samples.push(words_from_bytes::<Goldilocks>("a sample", params, &bytes, words)?.to_vec());
    }
    let run = |key: &BootstrappingKey<Goldilocks, Fft>| -> Result<Duration, Error> {
        let mut outs = samples.clone();
        let mut jobs: Vec<Job<'_, Goldilocks>> = outs
            .iter_mut()
            .map(|out| (&test_vector[..], &mut out[..]))
            .collect();
        let (time, result) = timed(|| bootstrap_all(key, &switch, &mut jobs, Run::with_threads(1)));
        result?;
        for (message, out) in outs.iter().enumerate() {
            let found = encoding.decode::<Goldilocks>(client.lwe().phase::<Goldilocks>(out));
            let expected = four_bits(message as i64);
            check("ours", found.cast_unsigned(), expected.cast_unsigned())?;
        }
        Ok(time / batch as u32)
    };
    run(&unrolled)?;
    let peak = machine::peak_memory();
    run(&ordinary)?;
    let mut measurement = interleave(row.runs(settings), || run(&unrolled), || run(&ordinary))?;
    measurement.our_peak = peak;
    measurement.key_bytes = unrolled.memory();
    measurement.note = format!(
        "loaded, the unrolled key has {:.0} MB and the ordinary one {:.0} MB",
        unrolled.memory() as f64 / 1e6,
        ordinary.memory() as f64 / 1e6
    );
    Ok(measurement)
}

/// One gate.
pub fn nand(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let params = &GATE;
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let key = bootstrapping_key::<Torus32, Fft>(&client, &mut rng)?;
    let switch = key_switching_key::<Torus32>(&client, &mut rng)?;
    let mut encrypt = |bit: bool| -> Result<Vec<u32>, Error> {
        let bytes = client.encrypt_bit_sample(bit, &mut rng)?;
        Ok(words_from_bytes::<Torus32>(
            "a sample",
            params,
            &bytes,
            params.lwe_words(),
        )?)
    };
    let (a, b) = (encrypt(true)?, encrypt(true)?);
    let mut out = Vec::new();
    let mut ours = || {
        let (time, result) = timed(|| gates::evaluate(Gate::Nand, &key, &switch, &a, &b));
        out = result?;
        Ok(time)
    };
    ours()?;
    let peak = machine::peak_memory();

    setup_custom_fft_plan(best_peer_fft(
        tfhe::boolean::parameters::DEFAULT_PARAMETERS
            .polynomial_size
            .0,
    ));
    let (peer_client, server) = tfhe::boolean::gen_keys();
    let (peer_a, peer_b) = (peer_client.encrypt(true), peer_client.encrypt(true));
    let mut peer_out = server.nand(&peer_a, &peer_b);
    let mut peer = || {
        let (time, result) = timed(|| server.nand(&peer_a, &peer_b));
        peer_out = result;
        time
    };

    let mut measurement = interleave(row.runs(settings), ours, || Ok(peer()))?;
    measurement.our_peak = peak;
    measurement.key_bytes = key.memory();
    let bytes: Vec<u8> = out.iter().flat_map(|word| word.to_le_bytes()).collect();
    check("ours", u64::from(client.decrypt_bit_sample(&bytes)?), 0)?;
    check("the peer", u64::from(peer_client.decrypt(&peer_out)), 0)?;
    Ok(measurement)
}
