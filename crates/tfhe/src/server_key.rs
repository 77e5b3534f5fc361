//! The key that computes: functions and Boolean gates on ciphertexts, for any parameter set and arithmetic.
//!
//! ```
//! use toroid_tfhe::params::TINY; // insecure, for tests; MESSAGE8 is its like for use
//!
//! let (client, server) = toroid_tfhe::generate(&TINY)?;
//! let (a, b) = (client.encrypt(3)?, client.encrypt(2)?);
//! let c = server.apply(|x| x * x / 4, &(&a + &b))?;
//! assert_eq!(client.decrypt(&c)?, 6);
//! assert!(c.log2_failure() < -40.0);
//! # Ok::<(), toroid_tfhe::TfheError>(())
//! ```

mod functions;
mod gates;
mod stream;

use toroid_ring::simd::SimdLevel;
use toroid_task::{CancelToken, Progress};

use crate::TfheError;
use crate::any_key::{self, AnyBootstrappingKey, AnyKeySwitchingKey, Task};
use crate::arithmetic::ArithmeticKind;
use crate::bootstrap::Run;
use crate::ciphertext::Ciphertext;
use crate::encoding::Encoding;
use crate::keys::{ClientKey, KeyTag};
use crate::noise::{Assumptions, StatedNoise};
use crate::params::ParamSet;
use crate::random::Csprng;

/// The public keys of a client, loaded: bootstrapping and key-switching key.
///
/// Clones share the keys, so that every thread may have its own.
#[derive(Clone)]
pub struct ServerKey {
    tag: KeyTag,
    bootstrapping: AnyBootstrappingKey,
    key_switching: AnyKeySwitchingKey,
    threads: usize,
    cancel: CancelToken,
}

impl std::fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerKey")
            .field("params", &self.params().name)
            .field("tag", &self.tag)
            .field("arithmetic", &self.arithmetic())
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// A client key and its server key, with the operating system's generator, for computing by FFT.
///
/// # Errors
/// [`TfheError::Entropy`], or the system's refusal of memory.
pub fn generate(params: &ParamSet) -> Result<(ClientKey, ServerKey), TfheError> {
    let mut rng = Csprng::from_os()?;
    generate_with(params, ArithmeticKind::Fft, &mut rng, &Progress::none())
}

/// A client key and its server key, with this arithmetic and this generator, reporting progress in bytes of the seeded keys.
///
/// ```
/// use toroid_task::Progress;
/// use toroid_tfhe::arithmetic::ArithmeticKind;
/// use toroid_tfhe::{generate_with, params::TINY, random::Csprng};
///
/// let mut rng = Csprng::from_os()?;
/// let progress = Progress::new(|what, done, total| eprintln!("{what}: {done} of {total} bytes"));
/// let (client, server) = generate_with(&TINY, ArithmeticKind::Ntt, &mut rng, &progress)?;
/// # Ok::<(), toroid_tfhe::TfheError>(())
/// ```
///
/// # Errors
/// [`TfheError::Cancelled`], or the system's refusal of memory.
pub fn generate_with(
    params: &ParamSet,
    arithmetic: ArithmeticKind,
    rng: &mut Csprng,
    progress: &Progress,
) -> Result<(ClientKey, ServerKey), TfheError> {
    let client = ClientKey::generate(params, rng);
    let server = client.server_key_with(arithmetic, rng, progress)?;
    Ok((client, server))
}

impl ClientKey {
    /// The server key, with the operating system's generator, for computing by FFT.
    ///
    /// # Errors
    /// [`TfheError::Entropy`], or the system's refusal of memory.
    pub fn server_key(&self) -> Result<ServerKey, TfheError> {
        let mut rng = Csprng::from_os()?;
        self.server_key_with(ArithmeticKind::Fft, &mut rng, &Progress::none())
    }

    /// The server key, with this arithmetic and this generator.
    ///
    /// # Errors
    /// [`TfheError::Cancelled`], or the system's refusal of memory.
    pub fn server_key_with(
        &self,
        arithmetic: ArithmeticKind,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<ServerKey, TfheError> {
        let simd = SimdLevel::best();
        let (bootstrapping, key_switching) =
            any_key::generate(self, arithmetic, simd, rng, progress)?;
        Ok(ServerKey::new(*self.tag(), bootstrapping, key_switching))
    }

    /// The server key with an unrolled bootstrapping key. It has 1.5 times the bytes and makes more noise
    /// ([`crate::noise::unrolled_step_variance`]; `toroid params explain` has the figures of each set), and pays at small rings for batches
    /// of samples ([`ServerKey::apply_batch`]), which share the reading of the key.
    ///
    /// ```
    /// use toroid_task::Progress;
    /// use toroid_tfhe::arithmetic::ArithmeticKind;
    /// use toroid_tfhe::{ClientKey, params::TINY, random::Csprng};
    ///
    /// let mut rng = Csprng::from_os()?;
    /// let client = ClientKey::generate(&TINY, &mut rng);
    /// let server = client.unrolled_server_key_with(ArithmeticKind::Fft, &mut rng, &Progress::none())?;
    /// let x = server.apply(|x| 2 * x, &client.encrypt(3)?)?;
    /// assert_eq!(client.decrypt(&x)?, 6);
    /// # Ok::<(), toroid_tfhe::TfheError>(())
    /// ```
    ///
    /// # Errors
    /// [`TfheError::NotUnrolled`] for a set of wide functions, [`TfheError::Cancelled`], or the system's refusal of memory.
    pub fn unrolled_server_key_with(
        &self,
        arithmetic: ArithmeticKind,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<ServerKey, TfheError> {
        let simd = SimdLevel::best();
        let (bootstrapping, key_switching) =
            any_key::generate_unrolled(self, arithmetic, simd, rng, progress)?;
        Ok(ServerKey::new(*self.tag(), bootstrapping, key_switching))
    }
}

/// A function as a bootstrap takes it.
struct Function {
    test_vector: Vec<u8>,
    output: Option<Encoding>,
}

impl ServerKey {
    fn new(
        tag: KeyTag,
        bootstrapping: AnyBootstrappingKey,
        key_switching: AnyKeySwitchingKey,
    ) -> ServerKey {
        ServerKey {
            tag,
            bootstrapping,
            key_switching,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            cancel: CancelToken::new(),
        }
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        self.bootstrapping.params()
    }

    /// The tag of the client key.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// The arithmetic of its bootstraps.
    #[must_use]
    pub fn arithmetic(&self) -> ArithmeticKind {
        self.bootstrapping.arithmetic()
    }

    /// What noise formulas take for granted of its bootstraps.
    #[must_use]
    pub fn assumptions(&self) -> Assumptions {
        self.bootstrapping.assumptions()
    }

    /// Bytes of memory that the keys hold.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.bootstrapping.memory() + self.key_switching.memory()
    }

    /// The threads that a call may use; all processors if nothing else was said.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The same keys, computing on up to this many threads.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> ServerKey {
        ServerKey {
            threads: threads.max(1),
            ..self
        }
    }

    /// The same keys; calls end with [`TfheError::Cancelled`] once this token is cancelled.
    #[must_use]
    pub fn with_cancel(self, cancel: CancelToken) -> ServerKey {
        ServerKey { cancel, ..self }
    }

    /// Applies every function to every input: a list of results for each input.
    fn bootstrap(
        &self,
        inputs: &[&Ciphertext],
        functions: &[Function],
    ) -> Result<Vec<Vec<Ciphertext>>, TfheError> {
        for input in inputs {
            input.expect_key(self.params(), Some(&self.tag))?;
        }
        let test_vectors: Vec<&[u8]> = functions
            .iter()
            .map(|function| function.test_vector.as_slice())
            .collect();
        let tasks: Vec<Task<'_>> = inputs
            .iter()
            .map(|input| Task {
                test_vectors: &test_vectors,
                input_bits: input.encoding().map_or(0, Encoding::bits),
                sample: input.sample(),
            })
            .collect();
        let run = Run {
            threads: self.threads,
            cancel: &self.cancel,
        };
        let sample_bytes = self.params().lwe_bytes();
        let mut results = vec![0; inputs.len() * functions.len() * sample_bytes];
        self.bootstrapping
            .bootstrap(&self.key_switching, &tasks, &mut results, run)?;
        let mut samples = results.chunks_exact(sample_bytes);
        inputs
            .iter()
            .map(|input| {
                functions
                    .iter()
                    .zip(samples.by_ref())
                    .map(|(function, sample)| self.bootstrapped(input, function.output, sample))
                    .collect()
            })
            .collect()
    }

    /// The ciphertext that a bootstrap of `input` gave.
    fn bootstrapped(
        &self,
        input: &Ciphertext,
        output: Option<Encoding>,
        sample: &[u8],
    ) -> Result<Ciphertext, TfheError> {
        let bits = input.encoding().map_or(0, Encoding::bits);
        let of_input = u64::from(crc32c::crc32c(input.sample()));
        let noise = input.noise().bootstrapped(
            self.params(),
            bits,
            self.bootstrapping.assumptions(),
            of_input,
        );
        let result =
            Ciphertext::from_sample(self.params(), output, sample, StatedNoise::default())?;
        Ok(result.with_tag(self.tag).with_noise(noise))
    }
}
