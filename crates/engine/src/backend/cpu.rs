//! The CPU back end: `toroid-tfhe` on NTT (exact) or f64 FFT (fast) arithmetic.

mod ring;

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};
use toroid_isa::KeyKind;
use toroid_ring::simd::SimdLevel;
use toroid_tfhe::TfheError;
use toroid_tfhe::any_key::{AnyBootstrappingKey, AnyKeyLoader, AnyKeySwitchingKey, Task};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::key_loader::KeyLoader;
use toroid_tfhe::lwe;
use toroid_tfhe::modulus::Modulus;
use toroid_tfhe::params::{ParamSet, StageParams};
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::with_modulus;

use super::schedule::{Call, Pass, Scheduler, Work};
use super::{
    Backend, BackendError, BackendStatistics, BootstrapTask, KeySink, LoadedKey, RingKeys,
    RingMade, RingOperand, RingProgram, check_results, loaded,
};
use crate::requester::Requester;
use ring::{ConversionKey, RingKey, RingSink};

/// Runs everything on the processor of this machine, with the kernels of one instruction set.
#[derive(Debug)]
pub struct CpuBackend {
    arithmetic: ArithmeticKind,
    simd: SimdLevel,
    scheduler: Scheduler,
    /// Threads for operations on ring columns, by their number.
    pools: Mutex<BTreeMap<usize, Arc<ThreadPool>>>,
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
            pools: Mutex::default(),
        }
    }

    /// Threads that share an operation on ring columns.
    fn pool(&self, threads: usize) -> Result<Arc<ThreadPool>, BackendError> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&threads) {
            return Ok(Arc::clone(pool));
        }
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map(Arc::new).map_err(|error| BackendError::Failed {
            reason: error.to_string(),
        })?;
        pools.insert(threads, Arc::clone(&pool));
        Ok(pool)
    }
}

/// The most bootstraps of a pass over a key, but for a single task that has more.
const MAX_PASS: usize = 8;

/// How many slices of a batch each core should have at least, so that the last ones cost little time.
const SLICES_PER_CORE: usize = 4;

/// Bootstraps under a pair of keys.
struct Bootstraps<'a> {
    addresses: [usize; 2],
    bootstrapping: &'a AnyBootstrappingKey,
    key_switching: &'a AnyKeySwitchingKey,
    cost: Cost,
}

/// Words of the bootstrapping key that the blind rotations of a task read.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    bit: u64,
    function: u64,
}

impl Cost {
    /// Of the tasks of a set.
    #[must_use]
    pub fn new(params: &ParamSet) -> Cost {
        let rotation = |stage: &StageParams| (stage.lwe_dimension * stage.ggsw_words()) as u64;
        params.wopbs.map_or_else(
            || Cost {
                bit: 0,
                function: rotation(params),
            },
            |stages| {
                let digits = stages.digits(params.message_bits + 1).len() as u64;
                Cost {
                    bit: rotation(&stages.extract),
                    function: digits * rotation(&stages.refresh),
                }
            },
        )
    }

    /// That of one task.
    #[must_use]
    pub fn of(self, task: &BootstrapTask<'_>) -> u64 {
        self.bit * u64::from(task.input_bits) + self.function * task.test_vectors.len() as u64
    }
}

/// Words of the ring switching keys that the packing of so many samples reads, in the unit of [`Cost`].
fn packing_cost(params: &ParamSet, samples: usize) -> u64 {
    let of_switch = params.wopbs.map_or(0, |stages| {
        let rows = params.glwe_dimension * stages.switch.gadget.levels;
        rows * params.glwe_words()
    });
    let switches = samples + params.ring_degree.trailing_zeros() as usize;
    (switches * of_switch) as u64
}

fn address(key: &dyn LoadedKey) -> usize {
    std::ptr::from_ref(key).addr()
}

impl Work for Bootstraps<'_> {
    fn keys(&self) -> [usize; 2] {
        self.addresses
    }

    fn most(&self) -> usize {
        MAX_PASS
    }

    fn cost(&self, task: &BootstrapTask<'_>) -> u64 {
        self.cost.of(task)
    }

    fn slots(&self, bootstraps: usize) -> usize {
        self.bootstrapping.threads(bootstraps)
    }

    fn pass(&self, pass: &Pass<'_>, results: &mut [u8]) -> Result<(), BackendError> {
        let tasks: Vec<Task<'_>> = pass
            .tasks
            .iter()
            .map(|task| Task {
                test_vectors: task.test_vectors,
                input_bits: task.input_bits,
                sample: task.sample,
            })
            .collect();
        let run = Run {
            threads: pass.slots,
            cancel: pass.cancel,
        };
        Ok(self
            .bootstrapping
            .bootstrap(self.key_switching, &tasks, results, run)?)
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
#[must_use]
pub fn refused_key(error: TfheError) -> BackendError {
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
            KeyKind::Ring | KeyKind::Conversion => Box::new(RingSink::new(params, kind)?),
        })
    }

    fn bootstrap_batch(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        tasks: &[BootstrapTask<'_>],
        results: &mut [u8],
        requester: Requester<'_>,
    ) -> Result<(), BackendError> {
        check_results(params, tasks, results)?;
        let work = Bootstraps {
            addresses: [address(bootstrapping), address(key_switching)],
            bootstrapping: loaded(bootstrapping)?,
            key_switching: loaded(key_switching)?,
            cost: Cost::new(params),
        };
        let sample_bytes = params.lwe_bytes();
        self.scheduler
            .run_batch(tasks, results, sample_bytes, requester, &work)
    }

    /// Several slices for each core: where one slice ends late, other cores go on with the next.
    fn batch_hint(&self, params: &ParamSet) -> usize {
        // A slice of wide functions takes a second or more, after each of which users want to see progress.
        let slices = if params.is_wide() { 1 } else { SLICES_PER_CORE };
        slices * MAX_PASS * self.scheduler.slots()
    }

    fn packs(&self, params: &ParamSet) -> bool {
        params.is_wide()
    }

    fn pack(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        samples: &[(usize, &[u8])],
        rows: usize,
        requester: Requester<'_>,
    ) -> Result<Vec<u8>, BackendError> {
        if !params.is_wide() {
            return Err(BackendError::Unsupported {
                reason: format!(
                    "parameter set {} has no keys that pack samples",
                    params.name
                ),
            });
        }
        let key = loaded::<AnyBootstrappingKey>(bootstrapping)?;
        // It takes its turn as bootstraps do, for as long as one of them about.
        let call = Call {
            tenant: requester.tenant,
            cancel: requester.cancel,
            keys: [address(bootstrapping); 2],
            tasks: &[],
            cost: packing_cost(params, samples.len()),
            slots: 1,
            most: 1,
        };
        let mut packed = Vec::new();
        self.scheduler.run(&call, &mut [], |pass, _| {
            let run = Run {
                threads: pass.slots,
                cancel: pass.cancel,
            };
            packed = key.pack_chunk(samples, rows, run)?;
            Ok(())
        })?;
        Ok(packed)
    }

    fn run_ring(
        &self,
        keys: RingKeys<'_>,
        operands: &[RingOperand<'_>],
        program: &RingProgram<'_>,
        requester: Requester<'_>,
    ) -> Result<RingMade, BackendError> {
        let conversion = keys.conversion.map(loaded::<ConversionKey>).transpose()?;
        let keys = (loaded::<RingKey>(keys.ring)?, conversion);
        ring::run(self, keys, operands, program, requester)
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

/// Words of samples whose length and canonicity the engine has checked. A VR need not be aligned: then they are a copy.
fn words<W: bytemuck::Pod>(bytes: &[u8]) -> Cow<'_, [W]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(words) => Cow::Borrowed(words),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    }
}

fn linear<M: Modulus>(sample: &mut [u8], operation: impl FnOnce(&mut [M::Word])) {
    if let Ok(words) = bytemuck::try_cast_slice_mut(sample) {
        return operation(words);
    }
    let mut copy: Vec<M::Word> = bytemuck::pod_collect_to_vec(sample);
    operation(&mut copy);
    sample.copy_from_slice(bytemuck::cast_slice(&copy));
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

impl<K: LoadedKey + 'static> KeySink for AnyKeyLoader<K> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        KeyLoader::write(self, bytes).map_err(refused_key)
    }

    fn finish(self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError> {
        let key = KeyLoader::finish(*self).map_err(refused_key)?;
        Ok(Arc::new(key))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use toroid_task::{CancelToken, Progress};
    use toroid_tfhe::any_key;
    use toroid_tfhe::keys::ClientKey;
    use toroid_tfhe::params::TINY_WOPBS;
    use toroid_tfhe::random::Csprng;

    use super::*;

    #[test]
    fn packing_waits_for_its_turn() {
        let params = &TINY_WOPBS;
        let backend = CpuBackend::with_cores(ArithmeticKind::Fft, 1);
        let mut rng = Csprng::from_seed([7; 32]);
        let client = ClientKey::generate(params, &mut rng);
        let (simd, quiet) = (SimdLevel::best(), Progress::none());
        let keys = any_key::generate(&client, backend.arithmetic, simd, &mut rng, &quiet);
        let (key, _) = keys.unwrap();
        let sample = vec![0; params.lwe_bytes()];
        let pack = |tenant, cancel: &CancelToken| {
            let requester = Requester {
                tenant,
                cancel,
                key_ids: None,
                progress: None,
            };
            backend.pack(params, &key, &[(0, &sample)], 1, requester)
        };
        let [holds, given_up, wanted] = [(); 3].map(|()| CancelToken::new());
        let call = Call {
            tenant: 1,
            cancel: &holds,
            keys: [0; 2],
            tasks: &[],
            cost: 1,
            slots: 1,
            most: 1,
        };
        let (go, gate) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                backend.scheduler.run(&call, &mut [], move |_, _| {
                    gate.recv().unwrap();
                    Ok(())
                })
            });
            while backend.statistics().batches == 0 {
                thread::yield_now();
            }
            let first = scope.spawn(|| pack(2, &given_up));
            let second = scope.spawn(|| pack(3, &wanted));
            while backend.statistics().waiting != 2 {
                thread::yield_now();
            }
            given_up.cancel();
            assert_eq!(first.join().unwrap(), Err(BackendError::Cancelled));
            go.send(()).unwrap();
            assert!(second.join().unwrap().is_ok());
            assert_eq!(holder.join().unwrap(), Ok(()));
        });
    }

    /// What the columns of a run are made of stands aligned; registers of a stored image need not.
    #[test]
    fn samples_need_not_stand_aligned() {
        let params = &TINY_WOPBS;
        let backend = CpuBackend::with_cores(ArithmeticKind::Fft, 1);
        let words = |first: u64| -> Vec<u8> {
            let words = (first..).take(params.lwe_words());
            words.flat_map(u64::to_le_bytes).collect()
        };
        for shift in 0..3 {
            let mut bytes = [vec![0; shift], words(5)].concat();
            let other = [vec![0; shift], words(7)].concat();
            let (dst, src) = (&mut bytes[shift..], &other[shift..]);
            backend.hom_int_mult(params, dst, 3);
            backend.hom_add(params, dst, src);
            let expected = (0..params.lwe_words() as u64).flat_map(|i| (22 + 4 * i).to_le_bytes());
            assert!(dst.iter().copied().eq(expected));
            backend.hom_sub(params, dst, src);
            backend.hom_sub(params, dst, src);
            backend.hom_sub(params, dst, src);
            let expected = (0..params.lwe_words() as u64).flat_map(|i| (1 + i).to_le_bytes());
            assert!(dst.iter().copied().eq(expected));
        }
    }
}
