//! Keys and samples exchanged with tfhe-rs: `cargo run --release -p toroid-bench-api --bin exchange`.
//!
//! Both ways, for a set with a 32-bit torus, one with the Goldilocks modulus, and one for wide functions: a client key travels as the text of
//! [`key_bits`], samples of all messages are encrypted on one side and decrypted on the other. tfhe-rs works modulo 2^32 and 2^64;
//! words modulo 2^64 - 2^32 + 1 are scaled to 2^64, and back, with rounding.

use std::error::Error;

use tfhe::core_crypto::commons::math::random::Uniform;
use tfhe::core_crypto::prelude::*;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::key_bits;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{MESSAGE4, MESSAGE16, PAPER, ParamSet};
use toroid_tfhe::random::Csprng;

/// Samples of each message.
const SAMPLES: i64 = 10;
const GOLDILOCKS: u128 = (1 << 64) - (1 << 32) + 1;

/// Words of samples: tfhe-rs's, and the bytes of ours.
trait Word: UnsignedTorus + Encryptable<Uniform, Gaussian<f64>> {
    fn read(bytes: &[u8]) -> Vec<Self>;
    fn write(words: &[Self]) -> Vec<u8>;
    /// The message of 4 bits and a bit of padding, and the nearest to a phase.
    fn encode(message: i64) -> Self;
    fn decode(phase: Self) -> i64;
}

impl Word for u32 {
    fn read(bytes: &[u8]) -> Vec<u32> {
        let (words, _) = bytes.as_chunks();
        words.iter().copied().map(u32::from_le_bytes).collect()
    }

    fn write(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn encode(message: i64) -> u32 {
        (message as u32) << 27
    }

    fn decode(phase: u32) -> i64 {
        (phase.wrapping_add(1 << 26) >> 27).into()
    }
}

impl Word for u64 {
    fn read(bytes: &[u8]) -> Vec<u64> {
        let (words, _) = bytes.as_chunks();
        let words = words.iter().copied().map(u64::from_le_bytes);
        let scaled = words.map(|word| ((u128::from(word) << 64) + GOLDILOCKS / 2) / GOLDILOCKS);
        scaled.map(|word| word as u64).collect()
    }

    fn write(words: &[u64]) -> Vec<u8> {
        let words = words.iter().map(|word| u128::from(*word));
        let scaled = words.map(|word| ((word * GOLDILOCKS + (1 << 63)) >> 64) % GOLDILOCKS);
        scaled
            .flat_map(|word| (word as u64).to_le_bytes())
            .collect()
    }

    fn encode(message: i64) -> u64 {
        (message as u64) << 59
    }

    fn decode(phase: u64) -> i64 {
        (phase.wrapping_add(1 << 58) >> 59) as i64
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    exchange::<u32>(&PAPER)?;
    exchange::<u64>(&MESSAGE4)?;
    exchange::<u64>(&MESSAGE16)?;
    Ok(())
}

fn exchange<W: Word>(set: &ParamSet) -> Result<(), Box<dyn Error>> {
    let messages: Vec<i64> = (0..16 * SAMPLES).map(|count| count % 16).collect();
    let encoding = Encoding::new(4, false)?;
    let mut rng = Csprng::from_os()?;

    let ours = ClientKey::generate(set, &mut rng);
    // The key of samples.
    let name = if set.is_wide() { "glwe " } else { "lwe " };
    let theirs = peer_key::<W>(&key_bits::to_text(&ours), name)?;
    for message in &messages {
        let sample = ours.encrypt_sample(*message, encoding, &mut rng)?;
        let modulus = CiphertextModulus::new_native();
        let sample = LweCiphertext::from_container(W::read(&sample), modulus);
        let found = W::decode(decrypt_lwe_ciphertext(&theirs, &sample).0);
        check(set, *message, found)?;
    }
    let count = messages.len();
    println!(
        "{}: tfhe-rs decrypted {count} of {count} samples of Toroid's",
        set.name
    );

    let mut seeder = new_seeder();
    let seeder = seeder.as_mut();
    let mut secret = SecretRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed());
    let mut noise = EncryptionRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed(), seeder);
    let size = PolynomialSize(set.ring_degree);
    let dimension = GlweDimension(set.glwe_dimension);
    let glwe: GlweSecretKeyOwned<W> =
        allocate_and_generate_new_binary_glwe_secret_key(dimension, size, &mut secret);
    let mut theirs = None;
    let mut text = format!("toroid key bits 1\nparams {}\ntag -\n", set.name);
    for part in set.key_switching_parts() {
        let dimension = LweDimension(part.lwe_dimension);
        let small: LweSecretKeyOwned<W> =
            allocate_and_generate_new_binary_lwe_secret_key(dimension, &mut secret);
        text.push_str(&line("lwe ", small.as_ref()));
        theirs = Some(small);
    }
    for polynomial in glwe.as_ref().chunks(set.ring_degree) {
        text.push_str(&line("glwe ", polynomial));
    }
    let ours = key_bits::from_text(&text, &mut rng)?;
    let theirs = match theirs {
        Some(small) if !set.is_wide() => small,
        _ => glwe.into_lwe_secret_key(),
    };
    let deviation = StandardDev(set.log2_lwe_noise.exp2());
    let distribution = Gaussian::from_dispersion_parameter(deviation, 0.0);
    for message in &messages {
        let sample = allocate_and_encrypt_new_lwe_ciphertext(
            &theirs,
            Plaintext(W::encode(*message)),
            distribution,
            CiphertextModulus::new_native(),
            &mut noise,
        );
        let found = ours.decrypt_sample(&W::write(sample.as_ref()), encoding)?;
        check(set, *message, found)?;
    }
    println!(
        "{}: Toroid decrypted {count} of {count} samples of tfhe-rs's",
        set.name
    );
    Ok(())
}

/// A key of the text of a client key: the bits of all lines of this name.
fn peer_key<W: Word>(text: &str, name: &str) -> Result<LweSecretKeyOwned<W>, Box<dyn Error>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let bits = lines.flat_map(str::chars).map(|bit| match bit {
        '0' => Ok(W::ZERO),
        '1' => Ok(W::ONE),
        other => Err(format!("{other:?} is no key bit")),
    });
    Ok(LweSecretKey::from_container(
        bits.collect::<Result<_, _>>()?,
    ))
}

fn line<W: Word>(name: &str, bits: &[W]) -> String {
    let digit = |bit: &W| if *bit == W::ZERO { '0' } else { '1' };
    let digits: String = bits.iter().map(digit).collect();
    format!("{name}{digits}\n")
}

fn check(set: &ParamSet, expected: i64, found: i64) -> Result<(), String> {
    match expected == found {
        true => Ok(()),
        false => Err(format!("{}: {expected} came out as {found}", set.name)),
    }
}
