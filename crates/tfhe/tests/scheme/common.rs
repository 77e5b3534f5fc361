//! What the tests of bootstrapping share.

use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::Arithmetic;
use toroid_tfhe::bootstrap::{BootstrappingKey, Run, bootstrap};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::key_switch::KeySwitchingKey;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::words_from_bytes;
use toroid_tfhe::modulus::Modulus;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;

/// CRC-32C, bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0x82F6_3B78 & (crc & 1).wrapping_neg())
        })
    })
}

/// Keys of one arithmetic, from a client key.
pub struct Server<M: Modulus, A: Arithmetic<M>> {
    pub bootstrapping: BootstrappingKey<M, A>,
    pub key_switching: KeySwitchingKey<M>,
}

impl<M: Modulus, A: Arithmetic<M>> Server<M, A> {
    /// The same seed gives the same keys, for every arithmetic.
    pub fn new(client: &ClientKey, seed: u8, simd: SimdLevel) -> Server<M, A> {
        Self::with(client, seed, simd, false)
    }

    /// With an unrolled bootstrapping key, or an ordinary one.
    pub fn with(client: &ClientKey, seed: u8, simd: SimdLevel, unrolled: bool) -> Server<M, A> {
        let mut rng = Csprng::from_seed([seed; 32]);
        let progress = Progress::none();
        let key = if unrolled {
            client.loaded_unrolled_bootstrapping_key(simd, &mut rng, &progress)
        } else {
            client.loaded_bootstrapping_key(simd, &mut rng, &progress)
        };
        Server {
            bootstrapping: key.unwrap(),
            key_switching: client
                .loaded_key_switching_key(simd, &mut rng, &progress)
                .unwrap(),
        }
    }

    pub fn apply(&self, test_vector: &[M::Word], sample: &[M::Word]) -> Vec<M::Word> {
        let mut sample = sample.to_vec();
        bootstrap(
            &self.bootstrapping,
            &self.key_switching,
            test_vector,
            &mut sample,
            Run::with_threads(1),
        )
        .unwrap();
        sample
    }
}

pub fn encrypt<M: Modulus>(
    client: &ClientKey,
    message: i64,
    encoding: Encoding,
    rng: &mut Csprng,
) -> Vec<M::Word> {
    let bytes = client.encrypt_sample(message, encoding, rng).unwrap();
    words_from_bytes::<M>(
        "a sample",
        client.params(),
        &bytes,
        client.params().lwe_words(),
    )
    .unwrap()
}

pub fn decrypt<M: Modulus>(client: &ClientKey, sample: &[M::Word], encoding: Encoding) -> i64 {
    client
        .decrypt_sample(bytemuck::cast_slice(sample), encoding)
        .unwrap()
}

/// Test vector of a function, outputs in the same encoding.
pub fn function<M: Modulus>(
    params: &ParamSet,
    encoding: Encoding,
    f: impl Fn(i64) -> i64,
) -> Vec<M::Word> {
    let table: Vec<M::Word> = encoding
        .messages()
        .map(|m| M::encode(f(m), encoding.bits() + 1))
        .collect();
    glwe::test_vector::<M>(params, encoding, &table).unwrap()
}
