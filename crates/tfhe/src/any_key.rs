//! Loaded public keys of any parameter set and arithmetic: what they were made for is decided where they are loaded.
//!
//! Samples and test vectors cross this border as little-endian words.

use std::any::Any;
use std::sync::Arc;

use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;

use crate::TfheError;
use crate::arithmetic::{Arithmetic, ArithmeticKind, Fft, Ntt};
use crate::bootstrap::{BootstrappingKey, BootstrappingKeyLoader, Job, Run, bootstrap_all};
use crate::key_loader::{KeyLoader, SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader};
use crate::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use crate::keys::ClientKey;
use crate::lwe::words_from_bytes;
use crate::modulus::{Goldilocks, Modulus, Torus32};
use crate::params::{ModulusKind, ParamSet, StageParams};
use crate::random::Csprng;
use crate::seeded::KeyForm;
use crate::wopbs::{PartsLoader, WopbsKey, WopbsKeySwitchingKey};

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
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// The functions to apply, [`ParamSet::test_vector_bytes`] each.
    pub test_vectors: Vec<&'a [u8]>,
    /// The sample, [`StageParams::lwe_bytes`](crate::params::StageParams::lwe_bytes) bytes.
    pub sample: &'a [u8],
}

/// The results of a [`Task`]: a sample for each test vector.
pub type Results = Vec<Vec<u8>>;

/// The most threads that speed up the bootstrap of a wide function.
pub const WOPBS_THREADS: usize = 4;

trait Bootstrap: Send + Sync {
    fn params(&self) -> &ParamSet;
    fn arithmetic(&self) -> ArithmeticKind;
    fn memory(&self) -> u64;
    fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        run: Run<'_>,
    ) -> Result<Vec<Results>, TfheError>;
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

    fn memory(&self) -> u64 {
        self.key.memory()
    }

    /// All of them stream the key together.
    fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        run: Run<'_>,
    ) -> Result<Vec<Results>, TfheError> {
        let key_switching = key_switching.get::<KeySwitchingKey<M>>(&self.params)?;
        let mut test_vectors = Vec::new();
        let mut samples = Vec::new();
        for task in tasks {
            let (functions, sample) = words::<M>(&self.params, task)?;
            samples.extend(functions.iter().map(|_| sample.clone()));
            test_vectors.extend(functions);
        }
        let mut jobs: Vec<Job<'_, M>> = test_vectors
            .iter()
            .zip(&mut samples)
            .map(|(test_vector, sample)| (test_vector.as_slice(), sample.as_mut_slice()))
            .collect();
        bootstrap_all(&self.key, key_switching, &mut jobs, run)?;
        let mut results = samples.iter().map(|words| bytes(words));
        let of_task = |task: &Task<'_>| results.by_ref().take(task.test_vectors.len()).collect();
        Ok(tasks.iter().map(of_task).collect())
    }
}

impl<M: Modulus, A: Arithmetic<M>> Bootstrap for WopbsKey<M, A> {
    fn params(&self) -> &ParamSet {
        self.params()
    }

    fn arithmetic(&self) -> ArithmeticKind {
        A::KIND
    }

    fn memory(&self) -> u64 {
        self.memory()
    }

    /// The functions of one sample share its bits.
    fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        run: Run<'_>,
    ) -> Result<Vec<Results>, TfheError> {
        let key_switching = key_switching.get::<WopbsKeySwitchingKey<M>>(self.params())?;
        let threads = run.threads.min(WOPBS_THREADS);
        let run = Run { threads, ..run };
        let of_task = |task: &Task<'_>| {
            let (functions, sample) = words::<M>(self.params(), task)?;
            let functions: Vec<&[M::Word]> = functions.iter().map(Vec::as_slice).collect();
            let results = WopbsKey::bootstrap(self, key_switching, &functions, &sample, run)?;
            Ok(results.iter().map(|words| bytes(words)).collect())
        };
        tasks.iter().map(of_task).collect()
    }
}

/// The test vectors and the sample of a task.
type TaskWords<W> = (Vec<Vec<W>>, Vec<W>);

fn words<M: Modulus>(params: &ParamSet, task: &Task<'_>) -> Result<TaskWords<M::Word>, TfheError> {
    let test_vector = |bytes: &&[u8]| {
        words_from_bytes::<M>("a test vector", params, bytes, params.test_vector_words())
    };
    Ok((
        task.test_vectors
            .iter()
            .map(test_vector)
            .collect::<Result<_, _>>()?,
        words_from_bytes::<M>("an LWE sample", params, task.sample, params.lwe_words())?,
    ))
}

fn bytes<W: bytemuck::Pod>(words: &[W]) -> Vec<u8> {
    bytemuck::cast_slice(words).to_vec()
}

/// Calls a generic function with the modulus of a parameter set and the type of an arithmetic.
macro_rules! dispatch {
    ($params:expr, $arithmetic:expr, $function:ident ( $($arg:expr),* $(,)? )) => {
        match ($params.modulus, $arithmetic) {
            (ModulusKind::Torus32, ArithmeticKind::Ntt) => $function::<Torus32, Ntt>($($arg),*),
            (ModulusKind::Torus32, ArithmeticKind::Fft) => $function::<Torus32, Fft>($($arg),*),
            (ModulusKind::Goldilocks, ArithmeticKind::Ntt) => $function::<Goldilocks, Ntt>($($arg),*),
            (ModulusKind::Goldilocks, ArithmeticKind::Fft) => $function::<Goldilocks, Fft>($($arg),*),
        }
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

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.0.memory()
    }

    /// Any number of programmable bootstraps on up to `run.threads` threads.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] for a key-switching key of another set; [`TfheError::Length`] and
    /// [`TfheError::NotCanonical`] for a sample or test vector; [`TfheError::Cancelled`].
    pub fn bootstrap(
        &self,
        key_switching: &AnyKeySwitchingKey,
        tasks: &[Task<'_>],
        run: Run<'_>,
    ) -> Result<Vec<Results>, TfheError> {
        self.0.bootstrap(key_switching, tasks, run)
    }

    fn plain<M: Modulus, A: Arithmetic<M>>(
        params: ParamSet,
        key: BootstrappingKey<M, A>,
    ) -> Result<Self, TfheError> {
        Ok(AnyBootstrappingKey(Arc::new(Programmable { params, key })))
    }

    fn wopbs<M: Modulus, A: Arithmetic<M>>(
        (params, parts): (ParamSet, Vec<BootstrappingKey<M, A>>),
    ) -> Result<Self, TfheError> {
        Ok(AnyBootstrappingKey(Arc::new(WopbsKey::new(
            &params, parts,
        )?)))
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

    fn plain<M: Modulus>(params: ParamSet, key: KeySwitchingKey<M>) -> Result<Self, TfheError> {
        let memory = key.memory();
        let key = Arc::new(key);
        Ok(AnyKeySwitchingKey {
            key,
            params,
            memory,
        })
    }

    fn wopbs<M: Modulus>(key: WopbsKeySwitchingKey<M>) -> Self {
        let (params, memory) = (*key.params(), key.memory());
        let key = Arc::new(key);
        AnyKeySwitchingKey {
            key,
            params,
            memory,
        }
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

/// Makes a key of any set from a loader's.
type Finish<L, K> = Box<dyn FnOnce(<L as KeyLoader>::Key) -> Result<K, TfheError> + Send>;

/// A loader, and what becomes of its key.
impl<L: KeyLoader + Send, K> Loading<K> for (L, Finish<L, K>) {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        self.0.write(bytes)
    }

    fn finish(self: Box<Self>) -> Result<K, TfheError> {
        self.1(self.0.finish()?)
    }
}

impl<K> KeyLoader for AnyKeyLoader<K> {
    type Key = K;

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
        match params.modulus {
            ModulusKind::Torus32 => key_switching_loader::<Torus32>(params, form, simd),
            ModulusKind::Goldilocks => key_switching_loader::<Goldilocks>(params, form, simd),
        }
    }
}

fn bootstrapping_loader<M: Modulus, A: Arithmetic<M>>(
    params: &ParamSet,
    form: KeyForm,
    simd: SimdLevel,
) -> Result<AnyKeyLoader<AnyBootstrappingKey>, TfheError> {
    fn boxed<M: Modulus, A: Arithmetic<M>, L>(
        params: &ParamSet,
        form: KeyForm,
        make: impl Fn(&StageParams) -> Result<L, TfheError>,
    ) -> Result<AnyKeyLoader<AnyBootstrappingKey>, TfheError>
    where
        L: KeyLoader<Key = BootstrappingKey<M, A>> + Send + 'static,
    {
        if params.wopbs.is_none() {
            let params_of_key = *params;
            let finish: Finish<L, _> =
                Box::new(move |key| AnyBootstrappingKey::plain(params_of_key, key));
            return Ok(AnyKeyLoader(Box::new((make(params)?, finish))));
        }
        let finish: Finish<PartsLoader<L>, _> = Box::new(AnyBootstrappingKey::wopbs::<M, A>);
        let loader = PartsLoader::bootstrapping(params, form, make)?;
        Ok(AnyKeyLoader(Box::new((loader, finish))))
    }
    match form {
        KeyForm::Expanded => boxed(params, form, |part| {
            BootstrappingKeyLoader::<M, A>::new(part, simd)
        }),
        KeyForm::Seeded => boxed(params, form, |part| {
            SeededBootstrappingKeyLoader::<M, A>::new(part, simd)
        }),
    }
}

fn key_switching_loader<M: Modulus>(
    params: &ParamSet,
    form: KeyForm,
    simd: SimdLevel,
) -> Result<AnyKeyLoader<AnyKeySwitchingKey>, TfheError> {
    fn boxed<M: Modulus, L>(
        params: &ParamSet,
        form: KeyForm,
        make: impl Fn(&StageParams) -> Result<L, TfheError>,
    ) -> Result<AnyKeyLoader<AnyKeySwitchingKey>, TfheError>
    where
        L: KeyLoader<Key = KeySwitchingKey<M>> + Send + 'static,
    {
        if params.wopbs.is_none() {
            let params_of_key = *params;
            let finish: Finish<L, _> =
                Box::new(move |key| AnyKeySwitchingKey::plain(params_of_key, key));
            return Ok(AnyKeyLoader(Box::new((make(params)?, finish))));
        }
        let finish: Finish<PartsLoader<L>, _> = Box::new(|(params, parts)| {
            let key = WopbsKeySwitchingKey::new(&params, parts)?;
            Ok(AnyKeySwitchingKey::wopbs(key))
        });
        let loader = PartsLoader::key_switching(params, form, make)?;
        Ok(AnyKeyLoader(Box::new((loader, finish))))
    }
    match form {
        KeyForm::Expanded => boxed(params, form, |part| {
            KeySwitchingKeyLoader::<M>::new(part, simd)
        }),
        KeyForm::Seeded => boxed(params, form, |part| {
            SeededKeySwitchingKeyLoader::<M>::new(part, simd)
        }),
    }
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
    dispatch!(
        client.params(),
        arithmetic,
        loaded(client, simd, rng, progress)
    )
}

fn loaded<M: Modulus, A: Arithmetic<M>>(
    client: &ClientKey,
    simd: SimdLevel,
    rng: &mut Csprng,
    progress: &Progress,
) -> Result<(AnyBootstrappingKey, AnyKeySwitchingKey), TfheError> {
    if client.params().wopbs.is_none() {
        let bootstrapping = client.loaded_bootstrapping_key::<M, A>(simd, rng, progress)?;
        let key_switching = client.loaded_key_switching_key::<M>(simd, rng, progress)?;
        return Ok((
            AnyBootstrappingKey::plain(*client.params(), bootstrapping)?,
            AnyKeySwitchingKey::plain(*client.params(), key_switching)?,
        ));
    }
    let bootstrapping = client.loaded_wopbs_key::<M, A>(simd, rng, progress)?;
    let key_switching = client.loaded_wopbs_key_switching_key::<M>(simd, rng, progress)?;
    Ok((
        AnyBootstrappingKey(Arc::new(bootstrapping)),
        AnyKeySwitchingKey::wopbs(key_switching),
    ))
}
