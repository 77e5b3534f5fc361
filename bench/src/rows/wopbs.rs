//! Wide functions: any function of many bits, against the peer's bootstrap without padding (bit extraction, circuit
//! bootstrapping, vertical packing). Both sides compute the same random function, and both results are decrypted and checked.

use std::time::Duration;

use tfhe::core_crypto::fft_impl::fft64::math::fft::setup_custom_fft_plan;
use tfhe::integer::wopbs::{IntegerWopbsLUT, WopbsKey as PeerWopbsKey};
use tfhe::integer::{IntegerCiphertext, RadixCiphertext, RadixClientKey, gen_keys_radix};
use tfhe::shortint::parameters::WopbsParameters;
use tfhe::shortint::parameters::parameters_wopbs_only::LEGACY_WOPBS_ONLY_8_BLOCKS_PARAM_MESSAGE_2_CARRY_0_KS_PBS;
use toroid_bench_common::{Error, machine};
use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::Fft;
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::words_from_bytes;
use toroid_tfhe::modulus::{Goldilocks, Modulus};
use toroid_tfhe::noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::wopbs::{WopbsKey, WopbsKeySwitchingKey};

use super::bootstrap::check;
use super::keys;
use super::transform::best_peer_fft;
use crate::measure::{Clock, Measurement, alone, best, interleave, timed};
use crate::row::{Row, Settings};

/// The fastest of the peer's sets for 16 bits without padding. It has no sample of more than 8 bits.
const PEER: WopbsParameters = LEGACY_WOPBS_ONLY_8_BLOCKS_PARAM_MESSAGE_2_CARRY_0_KS_PBS;

/// log2 of the probability that a block of the peer's result is wrong, at most over its messages, by what the CMuxes of the
/// look-up round off alone. The first one chooses between known polynomials, which the gadget holds exactly.
fn log2_peer_failure(bits: u32) -> f64 {
    let digits = (PEER.cbs_level.0 * PEER.cbs_base_log.0) as f64;
    let dimension = (PEER.glwe_dimension.0 * PEER.polynomial_size.0) as f64;
    let cmux = (1.0 + dimension / 2.0) * (-2.0 * digits).exp2() / 12.0;
    let margin = 0.5 / PEER.message_modulus.0 as f64;
    noise::log2_tail(margin, f64::from(bits - 1) * cmux)
}

/// Random values of p bits for every message of p bits.
fn random_function(bits: u32, rng: &mut Csprng) -> Vec<u64> {
    (0..1 << bits)
        .map(|_| rng.next_u64() >> (64 - bits))
        .collect()
}

/// Our side.
struct Ours {
    client: ClientKey,
    encoding: Encoding,
    key: WopbsKey<Goldilocks, Fft>,
    switching: WopbsKeySwitchingKey<Goldilocks>,
    message: usize,
    sample: Vec<u64>,
    functions: Vec<Vec<u64>>,
    test_vectors: Vec<Vec<u64>>,
    outs: Vec<Vec<u64>>,
    peak: Option<u64>,
}

impl Ours {
    /// With random functions of a random message, all evaluated once.
    fn new(params: &ParamSet, functions: usize) -> Result<Self, Error> {
        let mut rng = Csprng::from_os()?;
        let client = ClientKey::generate(params, &mut rng);
        let (simd, progress) = (SimdLevel::best(), Progress::none());
        let key = client.loaded_wopbs_key(simd, &mut rng, &progress)?;
        let switching = client.loaded_wopbs_key_switching_key(simd, &mut rng, &progress)?;
        let bits = params.message_bits;
        let encoding = Encoding::new(bits, false)?;
        let functions: Vec<_> = (0..functions)
            .map(|_| random_function(bits, &mut rng))
            .collect();
        let test_vectors = functions.iter().map(|function| {
            let table: Vec<u64> = function
                .iter()
                .map(|value| Goldilocks::encode(value.cast_signed(), bits + 1))
                .collect();
            glwe::test_vector::<Goldilocks>(params, encoding, &table)
        });
        let message = rng.next_u64() >> (64 - bits);
        let bytes = client.encrypt_sample(message.cast_signed(), encoding, &mut rng)?;
        let mut ours = Ours {
            encoding,
            key,
            switching,
            message: usize::try_from(message)?,
            sample: words_from_bytes::<Goldilocks>("a sample", params, &bytes, params.lwe_words())?,
            test_vectors: test_vectors.collect::<Result<_, _>>()?,
            functions,
            outs: Vec::new(),
            client,
            peak: None,
        };
        ours.run(ours.functions.len(), 1)?;
        ours.peak = machine::peak_memory();
        ours.check()?;
        Ok(ours)
    }

    /// Time of the first `count` functions together on so many threads.
    fn run(&mut self, count: usize, threads: usize) -> Result<Duration, Error> {
        let test_vectors: Vec<&[u64]> = self.test_vectors[..count]
            .iter()
            .map(Vec::as_slice)
            .collect();
        let (bits, run) = (self.encoding.bits(), Run::with_threads(threads));
        let (time, outs) = Clock::of(threads).timed(|| {
            self.key
                .bootstrap(&self.switching, &test_vectors, bits, &self.sample, run)
        });
        self.outs = outs?;
        Ok(time)
    }

    /// Decrypts what the last run gave.
    fn check(&self) -> Result<(), Error> {
        for (out, function) in self.outs.iter().zip(&self.functions) {
            let found = self
                .client
                .decrypt_sample(bytemuck::cast_slice(out), self.encoding)?;
            check("ours", found.cast_unsigned(), function[self.message])?;
        }
        Ok(())
    }
}

/// The peer's side: an integer of blocks without padding.
struct Peer {
    client: RadixClientKey,
    key: PeerWopbsKey,
    input: RadixCiphertext,
    lookup: IntegerWopbsLUT,
    out: RadixCiphertext,
}

impl Peer {
    fn new(bits: u32, message: usize, function: &[u64]) -> Result<Self, Error> {
        let modulus = PEER.message_modulus.0;
        let block_bits = modulus.ilog2();
        let blocks = bits / block_bits;
        setup_custom_fft_plan(best_peer_fft(PEER.polynomial_size.0));
        let (client, server) = gen_keys_radix(PEER, blocks as usize);
        let key = PeerWopbsKey::new_wopbs_key_only_for_wopbs(&client, &server);
        drop(server);
        // The library's own table for radix integers has the lowest block's bits in every block where there is no carry.
        let lookup = (0..blocks)
            .map(|block| {
                function
                    .iter()
                    .map(|value| ((value >> (block * block_bits)) % modulus) << (64 - block_bits))
                    .collect()
            })
            .collect::<Vec<Vec<u64>>>();
        let input = client.encrypt_without_padding(message as u64);
        Ok(Peer {
            out: input.clone(),
            lookup: IntegerWopbsLUT::try_from(lookup)?,
            client,
            key,
            input,
        })
    }

    fn run(&mut self) -> Duration {
        let (time, out) = timed(|| self.key.wopbs_without_padding(&self.input, &self.lookup));
        self.out = out;
        time
    }

    fn check(&self, expected: u64) -> Result<(), Error> {
        check(
            "the peer",
            self.client.decrypt_without_padding(&self.out),
            expected,
        )
    }
}

/// One function of one sample.
pub fn function(row: &Row, settings: &Settings, params: &ParamSet) -> Result<Measurement, Error> {
    let mut ours = Ours::new(params, 1)?;
    let expected = ours.functions[0][ours.message];
    let mut peer = Peer::new(params.message_bits, ours.message, &ours.functions[0])?;
    peer.run();
    let mut measurement = interleave(row.runs(settings), || ours.run(1, 1), || Ok(peer.run()))?;
    ours.check()?;
    peer.check(expected)?;
    measurement.our_peak = ours.peak;
    measurement.key_bytes = ours.key.memory();
    measurement.note = format!(
        "ours is one sample and fails with a probability of 2^{:.1} where a bootstrap gave it; the peer's is {} samples of 2 \
         bits, whose set (n = {}, k = {}, N = {}) states no probability of failure, up to 2^{:.0} per block by our estimate; \
         ring noise of its set 2^{:.1}, of ours 2^{:.2}, both in dimension {}",
        params.log2_failure(params.message_bits, 1.0),
        peer.input.blocks().len(),
        PEER.lwe_dimension.0,
        PEER.glwe_dimension.0,
        PEER.polynomial_size.0,
        log2_peer_failure(params.message_bits),
        PEER.glwe_noise_distribution.gaussian_std_dev().0.log2(),
        params.log2_glwe_noise,
        params.extracted_dimension(),
    );
    Ok(measurement)
}

/// One function of one sample on the threads of the row.
pub fn on_threads(row: &Row, settings: &Settings, params: &ParamSet) -> Result<Measurement, Error> {
    let mut ours = Ours::new(params, 1)?;
    let measured = alone(row.runs(settings), || ours.run(1, row.threads))?;
    ours.check()?;
    Ok(Measurement {
        processor: None,
        our_peak: ours.peak,
        key_bytes: ours.key.memory(),
        ..measured
    })
}

/// What a second function of a sample takes beside the first.
pub fn second(row: &Row, settings: &Settings, params: &ParamSet) -> Result<Measurement, Error> {
    let ours = std::cell::RefCell::new(Ours::new(params, 2)?);
    let measured = interleave(
        row.runs(settings),
        || ours.borrow_mut().run(1, 1),
        || ours.borrow_mut().run(2, 1),
    )?;
    let ours = ours.into_inner();
    ours.check()?;
    let (one, two) = (best(&measured.ours), best(&measured.peer));
    Ok(Measurement {
        ours: vec![two - one],
        peer: Vec::new(),
        our_peak: ours.peak,
        note: format!(
            "both functions together, {:.1} ms, less the first alone, {:.1} ms: each the best of {} runs, in turn",
            1e3 * two,
            1e3 * one,
            measured.ours.len()
        ),
        ..measured
    })
}

/// Size of the public keys in canonical form. A key is loaded too, for the size that it has then and the memory of a bootstrap.
pub fn sizes(params: &ParamSet) -> Result<Measurement, Error> {
    let ours = Ours::new(params, 1)?;
    let loaded = ours.key.memory() + ours.switching.memory();
    Ok(Measurement {
        ours: vec![keys::bytes(KeyForm::Expanded, params)],
        our_peak: ours.peak,
        key_bytes: ours.key.memory(),
        note: format!(
            "{:.1} MB in seeded form, {:.1} MB of memory when loaded; memory of ours is the peak of generating both keys into memory and one bootstrap",
            keys::bytes(KeyForm::Seeded, params) / 1e6,
            loaded as f64 / 1e6
        ),
        ..Measurement::default()
    })
}
