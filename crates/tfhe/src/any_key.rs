//! Loaded public keys of any parameter set and arithmetic, chosen when a key is loaded.
//!
//! Callers pass samples and test vectors as little-endian words.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;

use crate::TfheError;
use crate::arithmetic::{Arithmetic, ArithmeticKind, Fft, Ntt};
use crate::bootstrap::{BootstrappingKey, BootstrappingKeyLoader, Job, Run, bootstrap_all};
use crate::column::{self, ColumnForm};
use crate::key_loader::{
    KeyLoader, PartsLoader, SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader, expect_parts,
};
use crate::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use crate::keys::{ClientKey, StageKey, loaded_ggsw_lists, loaded_key_switching_samples};
use crate::lwe::words_in_bytes;
use crate::modulus::Modulus;
use crate::noise::Assumptions;
use crate::params::{ParamSet, StageParams};
use crate::random::Csprng;
use crate::seeded::KeyForm;
use crate::with_modulus;
use crate::wopbs::{WideTask, WopbsKey, WopbsKeySwitchingKey};

/// A loaded bootstrapping key; clones share it.
#[derive(Clone)]
pub struct AnyBootstrappingKey(Arc<dyn Bootstrap>);

/// A loaded key-switching key; clones share it.
#[derive(Clone)]
pub struct AnyKeySwitchingKey {
    key: Arc<dyn Any + Send + Sync>,
    params: ParamSet,
    memory: u64,
}

/// Bootstraps of one sample.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The functions to apply, [`ParamSet::test_vector_bytes`] each.
    pub test_vectors: &'a [&'a [u8]],
    /// Bits of the message that the functions take, without the padding bit: 1 to [`ParamSet::message_bits`]. Wide functions extract
    /// as many, and take as much time; programmable bootstraps ignore it.
    pub input_bits: u32,
    /// The sample, [`StageParams::lwe_bytes`](crate::params::StageParams::lwe_bytes) bytes.
    pub sample: &'a [u8],
}

/// The most threads that speed up the bootstraps of one wide function.
const WOPBS_THREADS: usize = 4;

trait Bootstrap: Send + Sync {
    fn params(&self) -> &ParamSet;
    fn arithmetic(&self) -> ArithmeticKind;
    fn assumptions(&self) -> Assumptions;
    fn memory(&self) -> u64;
    fn threads(&self, functions: usize) -> usize;
    fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        results: &mut [u8],
        run: Run<'_>,
    ) -> Result<(), TfheError>;
    fn pack_chunk(
        &self,
        samples: &[(usize, &[u8])],
        rows: usize,
        run: Run<'_>,
    ) -> Result<Vec<u8>, TfheError>;
}

/// The key of a programmable bootstrap, with its parameter set.
struct Programmable<M: Modulus, A: Arithmetic<M>> {
    params: ParamSet,
    key: BootstrappingKey<M, A>,
}

impl<M: Modulus, A: Arithmetic<M>> Bootstrap for Programmable<M, A> {
    fn params(&self) -> &ParamSet {
        &self.params
    }

    fn arithmetic(&self) -> ArithmeticKind {
        A::KIND
    }

    fn assumptions(&self) -> Assumptions {
        self.key.assumptions()
    }

    fn memory(&self) -> u64 {
        self.key.memory()
    }

    fn threads(&self, functions: usize) -> usize {
        self.key.samples.most_members() * functions
    }

    /// All tasks stream the key together.
    fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        results: &mut [u8],
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let key_switching = key_switching.get::<KeySwitchingKey<M>>(&self.params)?;
        let mut test_vectors = Vec::new();
        let mut samples = Vec::new();
        for task in tasks {
            let sample = sample_words::<M>(&self.params, task)?;
            for test_vector in task.test_vectors {
                test_vectors.push(test_vector_words::<M>(&self.params, test_vector)?);
                samples.extend_from_slice(&sample);
            }
        }
        let mut jobs: Vec<Job<'_, M>> = test_vectors
            .iter()
            .zip(samples.chunks_exact_mut(self.params.lwe_words()))
            .map(|(test_vector, sample)| (&**test_vector, sample))
            .collect();
        bootstrap_all(&self.key, key_switching, &mut jobs, run)?;
        results.copy_from_slice(bytemuck::cast_slice(&samples));
        Ok(())
    }

    fn pack_chunk(&self, _: &[(usize, &[u8])], _: usize, _: Run<'_>) -> Result<Vec<u8>, TfheError> {
        Err(TfheError::NoForm {
            form: ColumnForm::Packed.name(),
            params: self.params.name,
        })
    }
}

impl<M: Modulus, A: Arithmetic<M>> Bootstrap for WopbsKey<M, A> {
    fn params(&self) -> &ParamSet {
        self.params()
    }

    fn arithmetic(&self) -> ArithmeticKind {
        A::KIND
    }

    fn assumptions(&self) -> Assumptions {
        A::KIND.into()
    }

    fn memory(&self) -> u64 {
        self.memory()
    }

    fn threads(&self, _: usize) -> usize {
        WOPBS_THREADS
    }

    /// The functions of one sample share its bits, and all tasks stream the keys together.
    fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        results: &mut [u8],
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let key_switching = key_switching.get::<WopbsKeySwitchingKey<M>>(self.params())?;
        let threads = run.threads.min(WOPBS_THREADS * tasks.len());
        let run = Run { threads, ..run };
        let mut samples = Vec::with_capacity(tasks.len());
        let mut test_vectors = Vec::with_capacity(tasks.len());
        for task in tasks {
            samples.push(sample_words::<M>(self.params(), task)?);
            let words = task
                .test_vectors
                .iter()
                .map(|test_vector| test_vector_words::<M>(self.params(), test_vector));
            test_vectors.push(words.collect::<Result<Vec<_>, _>>()?);
        }
        let slices: Vec<Vec<&[M::Word]>> = test_vectors
            .iter()
            .map(|words| words.iter().map(|words| &**words).collect())
            .collect();
        let tasks: Vec<_> = tasks
            .iter()
            .zip(samples.iter().zip(&slices))
            .map(|(task, (sample, test_vectors))| WideTask {
                test_vectors,
                input_bits: task.input_bits,
                sample,
            })
            .collect();
        let found = self.bootstrap_all(key_switching, &tasks, run)?;
        let results = results.chunks_exact_mut(self.params().lwe_bytes());
        for (sample, result) in found.iter().zip(results) {
            result.copy_from_slice(bytemuck::cast_slice(sample));
        }
        Ok(())
    }

    fn pack_chunk(
        &self,
        samples: &[(usize, &[u8])],
        rows: usize,
        run: Run<'_>,
    ) -> Result<Vec<u8>, TfheError> {
        column::pack(self, samples, rows, run)
    }
}

fn sample_words<'a, M: Modulus>(
    params: &ParamSet,
    task: &Task<'a>,
) -> Result<Cow<'a, [M::Word]>, TfheError> {
    words_in_bytes::<M>("an LWE sample", params, task.sample, params.lwe_words())
}

fn test_vector_words<'a, M: Modulus>(
    params: &ParamSet,
    test_vector: &'a [u8],
) -> Result<Cow<'a, [M::Word]>, TfheError> {
    let words = params.test_vector_words();
    words_in_bytes::<M>("a test vector", params, test_vector, words)
}

/// Calls a generic function with the modulus of a parameter set and the type of an arithmetic.
macro_rules! dispatch {
    ($params:expr, $arithmetic:expr, $function:ident ( $($arg:expr),* $(,)? )) => {
        with_modulus!($params.modulus, M => match $arithmetic {
            ArithmeticKind::Ntt => $function::<M, Ntt>($($arg),*),
            ArithmeticKind::Fft => $function::<M, Fft>($($arg),*),
        })
    };
}

impl AnyBootstrappingKey {
    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        self.0.params()
    }

    /// The arithmetic that it was loaded for.
    #[must_use]
    pub fn arithmetic(&self) -> ArithmeticKind {
        self.0.arithmetic()
    }

    /// What noise formulas take for granted of bootstraps by this key.
    #[must_use]
    pub fn assumptions(&self) -> Assumptions {
        self.0.assumptions()
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.0.memory()
    }

    /// The most threads that speed up a task of this many functions.
    #[must_use]
    pub fn threads(&self, functions: usize) -> usize {
        self.0.threads(functions)
    }

    /// Any number of bootstraps on up to `run.threads` threads. `results` receives a sample for each, task after task and test
    /// vector after test vector, [`StageParams::lwe_bytes`](crate::params::StageParams::lwe_bytes) each.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] for a key-switching key of another set; [`TfheError::Length`] for `results`;
    /// [`TfheError::Length`] and [`TfheError::NotCanonical`] for a sample or test vector; [`TfheError::MessageBits`] and [`TfheError::MessageTooWide`]
    /// for [`Task::input_bits`]; [`TfheError::Cancelled`].
    pub fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        results: &mut [u8],
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let params = self.params();
        let samples: usize = tasks.iter().map(|task| task.test_vectors.len()).sum();
        if results.len() != samples * params.lwe_bytes() {
            return Err(TfheError::Length {
                what: "the results of these tasks",
                params: params.name,
                expected: (samples * params.lwe_bytes()) as u64,
                found: results.len() as u64,
            });
        }
        self.0.bootstrap(key_switching, tasks, results, run)
    }

    /// Packs LWE samples into a chunk of `rows` rows in its packed form ([`ColumnForm::Packed`]), each sample at its row; rows without a
    /// sample hold 0. Noise: [`column::packed_variance`].
    ///
    /// # Errors
    /// [`TfheError::NoForm`] for a set without wide functions; [`TfheError::ChunkRows`]; [`TfheError::Rows`] for a row beyond the chunk,
    /// [`TfheError::Coefficient`] for one named twice; [`TfheError::Length`] and [`TfheError::NotCanonical`] for a sample;
    /// [`TfheError::Cancelled`].
    pub fn pack_chunk(
        &self,
        samples: &[(usize, &[u8])],
        rows: usize,
        run: Run<'_>,
    ) -> Result<Vec<u8>, TfheError> {
        self.0.pack_chunk(samples, rows, run)
    }

    fn from_parts<M: Modulus, A: Arithmetic<M>>(
        params: &ParamSet,
        parts: Vec<BootstrappingKey<M, A>>,
    ) -> Result<Self, TfheError> {
        if M::HAS_WIDE_SETS && params.is_wide() {
            let key = WopbsKey::new(params, parts)?;
            return Ok(AnyBootstrappingKey(Arc::new(key)));
        }
        let what = "the bootstrapping key";
        let [key] = expect_parts(what, [&params.stage], parts, BootstrappingKey::params)?;
        let params = *params;
        Ok(AnyBootstrappingKey(Arc::new(Programmable { params, key })))
    }
}

impl AnyKeySwitchingKey {
    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    fn from_parts<M: Modulus>(
        params: &ParamSet,
        parts: Vec<KeySwitchingKey<M>>,
    ) -> Result<Self, TfheError> {
        let memory = parts.iter().map(KeySwitchingKey::memory).sum();
        let key: Arc<dyn Any + Send + Sync> = if params.is_wide() {
            Arc::new(WopbsKeySwitchingKey::new(params, parts)?)
        } else {
            let what = "the key-switching key";
            let [key] = expect_parts(what, [&params.stage], parts, KeySwitchingKey::params)?;
            Arc::new(key)
        };
        Ok(AnyKeySwitchingKey {
            key,
            params: *params,
            memory,
        })
    }

    /// The key as what its set makes it.
    fn get<K: 'static>(&self, params: &ParamSet) -> Result<&K, TfheError> {
        self.key
            .downcast_ref::<K>()
            .filter(|_| self.params == *params)
            .ok_or_else(|| TfheError::ParamsMismatch {
                what: "the key-switching key",
                expected: params.name.to_owned(),
                found: self.params.name.to_owned(),
            })
    }
}

/// Takes the bytes of a public key in order, so that only its loaded form exists in memory.
pub struct AnyKeyLoader<K>(Box<dyn Loading<K>>);

trait Loading<K>: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError>;
    fn finish(self: Box<Self>) -> Result<K, TfheError>;
}

/// The loader of a key's parts, and what makes the key from them.
struct Parts<L: KeyLoader, K> {
    loader: PartsLoader<L>,
    finish: fn(&ParamSet, Vec<L::Key>) -> Result<K, TfheError>,
}

impl<L: KeyLoader<Error = TfheError> + Send, K> Loading<K> for Parts<L, K> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        self.loader.write(bytes)
    }

    fn finish(self: Box<Self>) -> Result<K, TfheError> {
        let (params, parts) = self.loader.finish()?;
        (self.finish)(&params, parts)
    }
}

impl<K: 'static> AnyKeyLoader<K> {
    fn new<L: KeyLoader<Error = TfheError> + Send + 'static>(
        loader: PartsLoader<L>,
        finish: fn(&ParamSet, Vec<L::Key>) -> Result<K, TfheError>,
    ) -> Self {
        AnyKeyLoader(Box::new(Parts { loader, finish }))
    }
}

impl<K> KeyLoader for AnyKeyLoader<K> {
    type Key = K;
    type Error = TfheError;

    fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        self.0.write(bytes)
    }

    fn finish(self) -> Result<K, TfheError> {
        self.0.finish()
    }
}

impl AnyKeyLoader<AnyBootstrappingKey> {
    /// Room for the bootstrapping key of a set, whose bytes come in this form, with the kernels of `simd`.
    ///
    /// # Errors
    /// The system's refusal of memory.
    pub fn bootstrapping(
        params: &ParamSet,
        arithmetic: ArithmeticKind,
        form: KeyForm,
        simd: SimdLevel,
    ) -> Result<Self, TfheError> {
        dispatch!(params, arithmetic, bootstrapping_loader(params, form, simd))
    }

    /// Room for the unrolled bootstrapping key of a set, whose bytes come in the seeded form, with the kernels of `simd`.
    ///
    /// # Errors
    /// [`TfheError::NotUnrolled`] for a set of wide functions, or the system's refusal of memory.
    pub fn unrolled_bootstrapping(
        params: &ParamSet,
        arithmetic: ArithmeticKind,
        simd: SimdLevel,
    ) -> Result<Self, TfheError> {
        dispatch!(params, arithmetic, unrolled_loader(params, simd))
    }
}

impl AnyKeyLoader<AnyKeySwitchingKey> {
    /// Room for the key-switching key of a set, whose bytes come in this form, with the kernels of `simd`.
    ///
    /// # Errors
    /// The system's refusal of memory.
    pub fn key_switching(
        params: &ParamSet,
        form: KeyForm,
        simd: SimdLevel,
    ) -> Result<Self, TfheError> {
        with_modulus!(params.modulus, M => key_switching_loader::<M>(params, form, simd))
    }
}

fn bootstrapping_loader<M: Modulus, A: Arithmetic<M>>(
    params: &ParamSet,
    form: KeyForm,
    simd: SimdLevel,
) -> Result<AnyKeyLoader<AnyBootstrappingKey>, TfheError> {
    let finish = AnyBootstrappingKey::from_parts::<M, A>;
    Ok(match form {
        KeyForm::Expanded => {
            let make = |part: &StageParams| BootstrappingKeyLoader::<M, A>::new(part, simd);
            AnyKeyLoader::new(PartsLoader::bootstrapping(params, form, make)?, finish)
        }
        KeyForm::Seeded => {
            let make = |part: &StageParams| SeededBootstrappingKeyLoader::<M, A>::new(part, simd);
            AnyKeyLoader::new(PartsLoader::bootstrapping(params, form, make)?, finish)
        }
        KeyForm::SeededWords => {
            let make =
                |part: &StageParams| SeededBootstrappingKeyLoader::<M, A>::of_words(part, simd);
            AnyKeyLoader::new(PartsLoader::bootstrapping(params, form, make)?, finish)
        }
    })
}

fn unrolled_loader<M: Modulus, A: Arithmetic<M>>(
    params: &ParamSet,
    simd: SimdLevel,
) -> Result<AnyKeyLoader<AnyBootstrappingKey>, TfheError> {
    let form = KeyForm::Seeded;
    let make =
        |part: &StageParams| SeededBootstrappingKeyLoader::<M, A>::unrolled(part, form, simd);
    let loader = PartsLoader::unrolled(params, form, make)?;
    Ok(AnyKeyLoader::new(
        loader,
        AnyBootstrappingKey::from_parts::<M, A>,
    ))
}

fn key_switching_loader<M: Modulus>(
    params: &ParamSet,
    form: KeyForm,
    simd: SimdLevel,
) -> Result<AnyKeyLoader<AnyKeySwitchingKey>, TfheError> {
    let finish = AnyKeySwitchingKey::from_parts::<M>;
    Ok(match form {
        KeyForm::Expanded => {
            let make = |part: &StageParams| KeySwitchingKeyLoader::<M>::new(part, simd);
            AnyKeyLoader::new(PartsLoader::key_switching(params, form, make)?, finish)
        }
        KeyForm::Seeded | KeyForm::SeededWords => {
            let make = |part: &StageParams| SeededKeySwitchingKeyLoader::<M>::new(part, simd);
            AnyKeyLoader::new(PartsLoader::key_switching(params, form, make)?, finish)
        }
    })
}

/// Generates the public keys of a client key straight into the form that an arithmetic computes with: the keys that
/// [`ClientKey::bootstrapping_key`] and then [`ClientKey::key_switching_key`] give for the same generator.
///
/// # Errors
/// [`TfheError::Cancelled`], or the system's refusal of memory.
pub fn generate(
    client: &ClientKey,
    arithmetic: ArithmeticKind,
    simd: SimdLevel,
    rng: &mut Csprng,
    progress: &Progress,
) -> Result<(AnyBootstrappingKey, AnyKeySwitchingKey), TfheError> {
    let stages = client.bootstrapping_stages();
    dispatch!(
        client.params(),
        arithmetic,
        loaded(client, &stages, simd, rng, progress)
    )
}

/// [`generate`] with an unrolled bootstrapping key.
///
/// # Errors
/// [`TfheError::NotUnrolled`] for a set of wide functions, [`TfheError::Cancelled`], or the system's refusal of memory.
pub fn generate_unrolled(
    client: &ClientKey,
    arithmetic: ArithmeticKind,
    simd: SimdLevel,
    rng: &mut Csprng,
    progress: &Progress,
) -> Result<(AnyBootstrappingKey, AnyKeySwitchingKey), TfheError> {
    let stages = [client.unrolled_stage()?];
    dispatch!(
        client.params(),
        arithmetic,
        loaded(client, &stages, simd, rng, progress)
    )
}

fn loaded<M: Modulus, A: Arithmetic<M>>(
    client: &ClientKey,
    stages: &[StageKey<'_>],
    simd: SimdLevel,
    rng: &mut Csprng,
    progress: &Progress,
) -> Result<(AnyBootstrappingKey, AnyKeySwitchingKey), TfheError> {
    let params = client.params();
    let parts = loaded_ggsw_lists(stages, simd, rng, progress)?;
    let bootstrapping = AnyBootstrappingKey::from_parts::<M, A>(params, parts)?;
    let stages = client.key_switching_stages();
    let parts = loaded_key_switching_samples(&stages, simd, rng, progress)?;
    let key_switching = AnyKeySwitchingKey::from_parts::<M>(params, parts)?;
    Ok((bootstrapping, key_switching))
}
