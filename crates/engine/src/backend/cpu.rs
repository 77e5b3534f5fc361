//! The CPU back end: `toroid-tfhe` on NTT (exact) or f64 FFT (fast) arithmetic.

mod schedule;

use std::any::Any;
use std::sync::Arc;

use toroid_isa::KeyKind;
use toroid_ring::simd::SimdLevel;
use toroid_tfhe::TfheError;
use toroid_tfhe::any_key::{AnyBootstrappingKey, AnyKeyLoader, AnyKeySwitchingKey};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::key_loader::KeyLoader;
use toroid_tfhe::lwe;
use toroid_tfhe::modulus::Modulus;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::with_modulus;

use schedule::{Call, Scheduler};

use super::{Backend, BackendError, BackendStatistics, KeySink, LoadedKey};
use crate::requester::Requester;

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
        Ok(match kind {
            KeyKind::Bootstrapping => Box::new(AnyKeyLoader::bootstrapping(
                params,
                self.arithmetic,
                form,
                self.simd,
            )?),
            KeyKind::KeySwitching => {
                Box::new(AnyKeyLoader::key_switching(params, form, self.simd)?)
            }
        })
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
        let address = |key: &dyn LoadedKey| std::ptr::from_ref(key).addr();
        let keys = [address(bootstrapping), address(key_switching)];
        let bootstrapping = loaded::<AnyBootstrappingKey>(bootstrapping)?;
        let key_switching = loaded::<AnyKeySwitchingKey>(key_switching)?;
        let call = Call {
            tenant: requester.tenant,
            cancel: requester.cancel,
            keys,
            test_vectors,
            sample,
            cost: (params.lwe_dimension * params.ggsw_words()) as u64,
            cores: bootstrapping.threads(test_vectors.len()),
            batches: bootstrapping.batches(),
        };
        self.scheduler.run(&call, |batch| {
            let run = Run {
                threads: batch.threads,
                cancel: &batch.cancel,
            };
            Ok(bootstrapping.bootstrap(key_switching, &batch.tasks, run)?)
        })
    }

    fn statistics(&self) -> BackendStatistics {
        self.scheduler.statistics()
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        with_modulus!(params.modulus, M => linear::<M>(dst, |d| lwe::add_assign::<M>(d, &words(src))));
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        with_modulus!(params.modulus, M => linear::<M>(dst, |d| lwe::sub_assign::<M>(d, &words(src))));
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        with_modulus!(params.modulus, M => linear::<M>(dst, |d| lwe::mul_assign::<M>(d, v)));
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

/// Implements what the trait asks of a loaded key.
macro_rules! loaded_key {
    ($key:ty, $kind:ident) => {
        impl LoadedKey for $key {
            fn params(&self) -> &ParamSet {
                self.params()
            }

            fn kind(&self) -> KeyKind {
                KeyKind::$kind
            }

            fn bytes(&self) -> u64 {
                self.memory()
            }

            fn as_any(&self) -> &dyn Any {
                self
            }
        }
    };
}

loaded_key!(AnyBootstrappingKey, Bootstrapping);
loaded_key!(AnyKeySwitchingKey, KeySwitching);

fn loaded<K: 'static>(key: &dyn LoadedKey) -> Result<&K, BackendError> {
    key.as_any()
        .downcast_ref::<K>()
        .ok_or_else(|| BackendError::Failed {
            reason: "the key was loaded by another back end".to_owned(),
        })
}

impl<K: LoadedKey + 'static> KeySink for AnyKeyLoader<K> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        KeyLoader::write(self, bytes).map_err(refused_key)
    }

    fn finish(self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError> {
        let key = KeyLoader::finish(*self).map_err(refused_key)?;
        Ok(Arc::new(key))
    }
}
