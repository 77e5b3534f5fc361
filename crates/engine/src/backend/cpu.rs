//! The CPU back end: `toroid-tfhe` on the exact (NTT) or the fast (f64 FFT) arithmetic.

mod schedule;

use std::any::Any;
use std::sync::Arc;

use toroid_isa::KeyKind;
use toroid_ring::simd::SimdLevel;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Ntt};
use toroid_tfhe::bootstrap::{BootstrappingKey, BootstrappingKeyLoader, Job, bootstrap_all};
use toroid_tfhe::key_loader::{
    KeyLoader, SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader,
};
use toroid_tfhe::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use toroid_tfhe::lwe::{self, words_from_bytes};
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::wopbs::{PartsLoader, Run, WopbsKey, WopbsKeySwitchingKey};

use schedule::{Batch, Call, Results, Scheduler};

use super::{Backend, BackendError, BackendStatistics, KeySink, LoadedKey};
use crate::cancel::Requester;

/// Runs everything on the processor of this machine, with the kernels of one instruction set.
#[derive(Debug)]
pub struct CpuBackend {
    arithmetic: ArithmeticKind,
    simd: SimdLevel,
    scheduler: Scheduler,
}

impl CpuBackend {
    /// A back end on this arithmetic, with the fastest kernels and all cores that the processor has.
    #[must_use]
    pub fn new(arithmetic: ArithmeticKind) -> CpuBackend {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        CpuBackend::with_cores(arithmetic, cores)
    }

    /// [`CpuBackend::new`] with this many cores for bootstraps, at least one.
    #[must_use]
    pub fn with_cores(arithmetic: ArithmeticKind, cores: usize) -> CpuBackend {
        CpuBackend {
            arithmetic,
            simd: SimdLevel::best(),
            scheduler: Scheduler::new(cores),
        }
    }
}

impl From<TfheError> for BackendError {
    fn from(error: TfheError) -> BackendError {
        match error {
            TfheError::Cancelled => BackendError::Cancelled,
            _ => BackendError::Failed {
                reason: error.to_string(),
            },
        }
    }
}

/// What a key's loader refuses is the key's fault.
fn refused_key(error: TfheError) -> BackendError {
    match error {
        TfheError::NotCanonical { .. } | TfheError::Length { .. } => BackendError::MalformedKey {
            reason: error.to_string(),
        },
        _ => error.into(),
    }
}

/// Calls a generic function with the modulus and the arithmetic of a parameter set and a arithmetic.
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

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn arithmetic(&self) -> ArithmeticKind {
        self.arithmetic
    }

    fn begin_key(
        &self,
        params: &ParamSet,
        kind: KeyKind,
        form: KeyForm,
    ) -> Result<Box<dyn KeySink>, BackendError> {
        dispatch!(
            params,
            self.arithmetic,
            begin(params, (kind, form), self.simd)
        )
    }

    fn bootstrap(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        test_vectors: &[&[u8]],
        sample: &[u8],
        requester: Requester<'_>,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let wopbs = params.wopbs.is_some();
        let rows = params.ggsw_rows();
        let polynomials = params.glwe_dimension + 1;
        let address = |key: &dyn LoadedKey| std::ptr::from_ref(key).addr();
        let call = Call {
            tenant: requester.tenant,
            cancel: requester.cancel,
            keys: [address(bootstrapping), address(key_switching)],
            test_vectors,
            sample,
            cost: (params.lwe_dimension * params.ring_degree) as u64 * (rows * polynomials) as u64,
            cores: if wopbs {
                EXACT_THREADS
            } else {
                rows * test_vectors.len()
            },
            batches: !wopbs,
        };
        self.scheduler.run(&call, |batch| {
            dispatch!(
                params,
                self.arithmetic,
                programmable(params, bootstrapping, key_switching, batch)
            )
        })
    }

    fn statistics(&self) -> BackendStatistics {
        self.scheduler.statistics()
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        match params.modulus {
            ModulusKind::Torus32 => {
                linear::<Torus32>(dst, |d| lwe::add_assign::<Torus32>(d, &words(src)))
            }
            ModulusKind::Goldilocks => {
                linear::<Goldilocks>(dst, |d| lwe::add_assign::<Goldilocks>(d, &words(src)))
            }
        }
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        match params.modulus {
            ModulusKind::Torus32 => {
                linear::<Torus32>(dst, |d| lwe::sub_assign::<Torus32>(d, &words(src)))
            }
            ModulusKind::Goldilocks => {
                linear::<Goldilocks>(dst, |d| lwe::sub_assign::<Goldilocks>(d, &words(src)))
            }
        }
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        match params.modulus {
            ModulusKind::Torus32 => linear::<Torus32>(dst, |d| lwe::mul_assign::<Torus32>(d, v)),
            ModulusKind::Goldilocks => {
                linear::<Goldilocks>(dst, |d| lwe::mul_assign::<Goldilocks>(d, v))
            }
        }
    }
}

/// Words of a sample whose length and canonicity the engine has checked. Copies: a VR need not be aligned.
fn words<W: bytemuck::Pod>(bytes: &[u8]) -> Vec<W> {
    bytemuck::pod_collect_to_vec(bytes)
}

fn linear<M: Modulus>(sample: &mut [u8], operation: impl FnOnce(&mut [M::Word])) {
    let mut sample_words = words::<M::Word>(sample);
    operation(&mut sample_words);
    sample.copy_from_slice(bytemuck::cast_slice(&sample_words));
}

/// A loaded key with what the trait asks of it.
struct Loaded<K> {
    key: K,
    params: ParamSet,
    kind: KeyKind,
    bytes: u64,
}

impl<K: Send + Sync + 'static> Loaded<K> {
    fn share(params: ParamSet, kind: KeyKind, bytes: u64, key: K) -> Arc<dyn LoadedKey> {
        Arc::new(Loaded {
            key,
            params,
            kind,
            bytes,
        })
    }
}

impl<K: Send + Sync + 'static> LoadedKey for Loaded<K> {
    fn params(&self) -> &ParamSet {
        &self.params
    }

    fn kind(&self) -> KeyKind {
        self.kind
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn loaded<K: 'static>(key: &dyn LoadedKey) -> Result<&K, BackendError> {
    key.as_any()
        .downcast_ref::<Loaded<K>>()
        .map(|loaded| &loaded.key)
        .ok_or_else(|| BackendError::Failed {
            reason: "the key was loaded by another back end".to_owned(),
        })
}

/// Makes a loaded key of what a loader gives.
type Finish<K> = fn(K) -> Result<Arc<dyn LoadedKey>, TfheError>;

/// A loader as a sink, with what becomes of its key.
struct Loading<L: KeyLoader> {
    loader: L,
    finish: Finish<L::Key>,
}

impl<L: KeyLoader + Send> KeySink for Loading<L> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.loader.write(bytes).map_err(refused_key)
    }

    fn finish(self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError> {
        self.loader
            .finish()
            .and_then(self.finish)
            .map_err(refused_key)
    }
}

fn begin<M: Modulus, A: Arithmetic<M>>(
    params: &ParamSet,
    (kind, form): (KeyKind, KeyForm),
    simd: SimdLevel,
) -> Result<Box<dyn KeySink>, BackendError> {
    Ok(match (kind, form) {
        (KeyKind::Bootstrapping, KeyForm::Expanded) => {
            bootstrapping_sink::<M, A, _>(params, form, |part| {
                BootstrappingKeyLoader::<M, A>::new(part, simd)
            })
        }
        (KeyKind::Bootstrapping, KeyForm::Seeded) => {
            bootstrapping_sink::<M, A, _>(params, form, |part| {
                SeededBootstrappingKeyLoader::<M, A>::new(part, simd)
            })
        }
        (KeyKind::KeySwitching, KeyForm::Expanded) => {
            key_switching_sink::<M, _>(params, form, |part| {
                KeySwitchingKeyLoader::<M>::new(part, simd)
            })
        }
        (KeyKind::KeySwitching, KeyForm::Seeded) => {
            key_switching_sink::<M, _>(params, form, |part| {
                SeededKeySwitchingKeyLoader::<M>::new(part, simd)
            })
        }
    }?)
}

/// A sink for the bootstrapping key of a set; `make` gives a loader for it, or for each part of it.
fn bootstrapping_sink<M: Modulus, A: Arithmetic<M>, L>(
    params: &ParamSet,
    form: KeyForm,
    make: impl Fn(&ParamSet) -> Result<L, TfheError>,
) -> Result<Box<dyn KeySink>, TfheError>
where
    L: KeyLoader<Key = BootstrappingKey<M, A>> + Send + 'static,
{
    const KIND: KeyKind = KeyKind::Bootstrapping;
    if params.wopbs.is_some() {
        return Ok(Box::new(Loading {
            loader: PartsLoader::bootstrapping(params, form, make)?,
            finish: |(params, parts)| {
                let key = WopbsKey::new(&params, parts)?;
                Ok(Loaded::share(params, KIND, key.memory(), key))
            },
        }));
    }
    Ok(Box::new(Loading {
        loader: make(params)?,
        finish: |key| Ok(Loaded::share(*key.params(), KIND, key.memory(), key)),
    }))
}

/// A sink for the key-switching key of a set; `make` gives a loader for it, or for each part of it.
fn key_switching_sink<M: Modulus, L>(
    params: &ParamSet,
    form: KeyForm,
    make: impl Fn(&ParamSet) -> Result<L, TfheError>,
) -> Result<Box<dyn KeySink>, TfheError>
where
    L: KeyLoader<Key = KeySwitchingKey<M>> + Send + 'static,
{
    const KIND: KeyKind = KeyKind::KeySwitching;
    if params.wopbs.is_some() {
        return Ok(Box::new(Loading {
            loader: PartsLoader::key_switching(params, form, make)?,
            finish: |(params, parts)| {
                let key = WopbsKeySwitchingKey::new(&params, parts)?;
                Ok(Loaded::share(params, KIND, key.memory(), key))
            },
        }));
    }
    Ok(Box::new(Loading {
        loader: make(params)?,
        finish: |key| Ok(Loaded::share(*key.params(), KIND, key.memory(), key)),
    }))
}

/// The most threads that speed up an exact bootstrap.
const EXACT_THREADS: usize = 4;

/// Programmable bootstraps, which stream the bootstrapping key together; exact ones are of one sample, and share its bits.
fn programmable<M: Modulus, A: Arithmetic<M>>(
    params: &ParamSet,
    bootstrapping: &dyn LoadedKey,
    key_switching: &dyn LoadedKey,
    batch: &Batch<'_>,
) -> Result<Vec<Results>, BackendError> {
    let test_vector = |bytes: &&[u8]| {
        words_from_bytes::<M>("a test vector", params, bytes, params.test_vector_words())
    };
    let mut test_vectors = Vec::new();
    let mut samples = Vec::new();
    for (functions, sample) in &batch.tasks {
        let sample = words_from_bytes::<M>("a LWE sample", params, sample, params.lwe_words())?;
        for function in functions {
            test_vectors.push(test_vector(function)?);
            samples.push(sample.clone());
        }
    }
    let mut results = if params.wopbs.is_some() {
        let functions: Vec<&[M::Word]> = test_vectors.iter().map(Vec::as_slice).collect();
        let (key, sample) = (loaded::<WopbsKey<M, A>>(bootstrapping)?, samples.first());
        key.bootstrap(
            loaded::<WopbsKeySwitchingKey<M>>(key_switching)?,
            &functions,
            sample.map_or(&[], Vec::as_slice),
            Run {
                threads: batch.threads,
                cancelled: batch.cancelled,
            },
        )?
    } else {
        let mut jobs: Vec<Job<'_, M>> = test_vectors
            .iter()
            .zip(&mut samples)
            .map(|(test_vector, sample)| (test_vector.as_slice(), sample.as_mut_slice()))
            .collect();
        bootstrap_all(
            loaded::<BootstrappingKey<M, A>>(bootstrapping)?,
            loaded::<KeySwitchingKey<M>>(key_switching)?,
            &mut jobs,
            batch.threads,
            batch.cancelled,
        )?;
        samples
    }
    .into_iter();
    let of_task = |(functions, _): &(Vec<&[u8]>, &[u8])| {
        let own = results.by_ref().take(functions.len());
        own.map(|words| bytemuck::cast_slice(&words).to_vec())
            .collect()
    };
    Ok(batch.tasks.iter().map(of_task).collect())
}
