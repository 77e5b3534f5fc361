//! The back end: programmable bootstraps on devices, all else on the processor.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use toroid_engine::Requester;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::schedule::{Pass, Scheduler, Work};
use toroid_engine::backend::{
    Backend, BackendError, BackendStatistics, BootstrapTask, KeySink, LoadedKey, RingKeys,
    RingMade, RingOperand, RingProgram, check_results, loaded,
};
use toroid_isa::KeyKind;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;

use crate::device::Device;
use crate::driver::{DeviceInfo, Driver};
use crate::error::GpuError;
use crate::key::{GpuKey, Sink, Store};
use crate::pass::{self, Job, Keys};
use crate::shape::{Grouping, Shape};

/// How a back end finds its devices and uses them.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// The library of the driver; `None`: the one that [`crate::DRIVER_VARIABLE`] names, else the system's.
    pub driver: Option<PathBuf>,
    /// How blocks do a blind rotation.
    pub grouping: Grouping,
    /// Blocks wait by flags, though the device has clusters.
    pub flags: bool,
    /// The most bootstraps of a pass: fewer let others have their turn sooner, more do more in a second. `None`: by the degree of the
    /// ring.
    pub most: Option<usize>,
}

/// The driver of this machine, and its devices.
#[derive(Clone, Debug)]
pub struct DriverInfo {
    /// Its version: 1000·major + 10·minor.
    pub version: i32,
    /// Whether it has no device and runs the kernels on the processor, as tests do.
    pub simulated: bool,
    /// All devices, also those that the kernels do not run on.
    pub devices: Vec<DeviceInfo>,
}

impl DriverInfo {
    /// Asks the driver.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`], [`GpuError::OldDriver`], [`GpuError::NoDevice`] where the driver knows of none, or a failure.
    pub fn ask(options: &GpuOptions) -> Result<DriverInfo, GpuError> {
        let driver = Driver::load(options.driver.as_deref())?;
        Ok(DriverInfo {
            version: driver.version(),
            simulated: driver.is_simulated(),
            devices: driver.devices()?,
        })
    }
}

/// Runs programmable bootstraps on all devices of this machine that can, and everything else on its processor.
pub struct GpuBackend {
    arithmetic: ArithmeticKind,
    grouping: Grouping,
    most: Option<usize>,
    stores: Arc<[Store]>,
    /// Devices that no pass uses.
    free: Mutex<Vec<usize>>,
    /// Counts keys, so that they spread over the devices.
    keys: AtomicUsize,
    scheduler: Scheduler,
    cpu: CpuBackend,
}

/// Bootstraps of a pass for a ring of degree 16384, and the most for smaller ones: some ten milliseconds of work, after which
/// others have their turn.
const LARGE_PASS: usize = 64;
const MAX_PASS: usize = 512;

impl GpuBackend {
    /// A back end on this arithmetic.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`], [`GpuError::OldDriver`], [`GpuError::NoDevice`], or a failure of the driver.
    pub fn new(arithmetic: ArithmeticKind, options: &GpuOptions) -> Result<GpuBackend, GpuError> {
        let driver = Arc::new(Driver::load(options.driver.as_deref())?);
        let devices = driver.devices()?;
        let (supported, others): (Vec<_>, Vec<_>) =
            devices.into_iter().partition(DeviceInfo::is_supported);
        if supported.is_empty() {
            let found = others.iter().map(|device| {
                let (major, minor) = device.capability;
                format!("found {}, {major}.{minor}", device.name)
            });
            let found: Vec<_> = found.collect();
            return Err(GpuError::NoDevice(if found.is_empty() {
                "the driver found none".to_owned()
            } else {
                found.join("; ")
            }));
        }
        let stores: Arc<[Store]> = supported
            .into_iter()
            .map(|info| Store::new(Device::new(&driver, info, !options.flags)))
            .collect();
        for store in &*stores {
            // What goes wrong with the kernels goes wrong now.
            store.device.context()?;
        }
        Ok(GpuBackend {
            arithmetic,
            grouping: options.grouping,
            most: options.most,
            free: Mutex::new((0..stores.len()).collect()),
            keys: AtomicUsize::new(0),
            scheduler: Scheduler::new(stores.len()),
            stores,
            cpu: CpuBackend::new(arithmetic),
        })
    }

    /// The most bootstraps of a pass.
    fn most(&self, params: &ParamSet) -> usize {
        let by_degree = LARGE_PASS * 16384 / params.ring_degree;
        self.most
            .unwrap_or(by_degree.clamp(LARGE_PASS, MAX_PASS))
            .max(1)
    }

    /// Whether devices do the bootstraps of a set, else the processor.
    #[must_use]
    pub fn computes(&self, params: &ParamSet) -> bool {
        !params.is_wide()
    }

    /// Its devices.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.stores.iter().map(|store| store.device.info())
    }
}

/// Bootstraps under a pair of keys.
struct Bootstraps<'a> {
    backend: &'a GpuBackend,
    bootstrapping: &'a GpuKey,
    key_switching: &'a GpuKey,
    params: &'a ParamSet,
}

/// A device in use. Dropped, it is free for others.
struct InUse<'a> {
    backend: &'a GpuBackend,
    device: usize,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.backend.free.lock().push(self.device);
    }
}

impl Bootstraps<'_> {
    /// A free device, if there is one that holds the keys. There are as many as passes at a time.
    fn device(&self) -> Result<InUse<'_>, BackendError> {
        let mut free = self.backend.free.lock();
        let holds =
            |device: &usize| self.bootstrapping.is_on(*device) && self.key_switching.is_on(*device);
        let place = free.iter().position(holds).unwrap_or_default();
        if free.is_empty() {
            return Err(BackendError::Failed {
                reason: "no device is free".to_owned(),
            });
        }
        Ok(InUse {
            backend: self.backend,
            device: free.swap_remove(place),
        })
    }
}

impl Work for Bootstraps<'_> {
    fn keys(&self) -> [usize; 2] {
        [self.bootstrapping, self.key_switching].map(|key| std::ptr::from_ref(key).addr())
    }

    fn most(&self) -> usize {
        self.backend.most(self.params)
    }

    /// Words of the key that a blind rotation reads.
    fn cost(&self, task: &BootstrapTask<'_>) -> u64 {
        (task.test_vectors.len() * self.params.lwe_dimension * self.params.ggsw_words()) as u64
    }

    fn slots(&self, _: usize) -> usize {
        1
    }

    fn pass(&self, pass: &Pass<'_>, results: &mut [u8]) -> Result<(), BackendError> {
        let used = self.device()?;
        let stores = &self.backend.stores;
        let context = stores[used.device].device.context()?;
        let _open = context.enter()?;
        let keys = Keys {
            bootstrapping: self.bootstrapping.on(stores, used.device, &context)?,
            key_switching: self.key_switching.on(stores, used.device, &context)?,
        };
        let jobs: Vec<Job<'_>> = pass
            .tasks
            .iter()
            .flat_map(|task| {
                task.test_vectors.iter().map(|test_vector| Job {
                    test_vector,
                    sample: task.sample,
                })
            })
            .collect();
        let sample_bytes = self.params.lwe_bytes();
        let most = self.most();
        // A single task may have more functions than a pass has room for.
        for (jobs, results) in jobs
            .chunks(most)
            .zip(results.chunks_mut(most * sample_bytes))
        {
            loop {
                let shape = self.bootstrapping.shape();
                let grouping = self.backend.grouping;
                match pass::run(&context, shape, grouping, &keys, jobs, results, pass.cancel) {
                    // Keys that nobody uses make room for the pass.
                    Err(GpuError::Memory { .. }) if stores[used.device].drop_key(&context) => {}
                    done => break done?,
                }
            }
        }
        Ok(())
    }
}

impl Backend for GpuBackend {
    fn name(&self) -> &'static str {
        "gpu"
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
        let of_bootstraps = matches!(kind, KeyKind::Bootstrapping | KeyKind::KeySwitching);
        if params.is_wide() || !of_bootstraps {
            return self.cpu.begin_key(params, kind, form);
        }
        let shape = Shape::new(params, self.arithmetic)?;
        // A pair of keys comes to one device.
        let count = self.keys.fetch_add(1, Ordering::Relaxed);
        let device = count / 2 % self.stores.len();
        let sink = Sink::new(&self.stores, device, params, kind, (shape, form));
        Ok(Box::new(sink))
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
        if params.is_wide() {
            let cpu = &self.cpu;
            return cpu.bootstrap_batch(
                params,
                bootstrapping,
                key_switching,
                tasks,
                results,
                requester,
            );
        }
        check_results(params, tasks, results)?;
        let work = Bootstraps {
            backend: self,
            bootstrapping: loaded(bootstrapping)?,
            key_switching: loaded(key_switching)?,
            params,
        };
        for (key, kind) in [
            (bootstrapping, KeyKind::Bootstrapping),
            (key_switching, KeyKind::KeySwitching),
        ] {
            if key.params() != params || key.kind() != kind {
                return Err(BackendError::Failed {
                    reason: format!("not a {kind} of parameter set {}", params.name),
                });
            }
        }
        self.scheduler
            .run_batch(tasks, results, params.lwe_bytes(), requester, &work)
    }

    fn batch_hint(&self, params: &ParamSet) -> usize {
        if params.is_wide() {
            self.cpu.batch_hint(params)
        } else {
            self.most(params) * self.scheduler.slots()
        }
    }

    fn packs(&self, params: &ParamSet) -> bool {
        self.cpu.packs(params)
    }

    fn pack(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        samples: &[(usize, &[u8])],
        rows: usize,
        requester: Requester<'_>,
    ) -> Result<Vec<u8>, BackendError> {
        self.cpu
            .pack(params, bootstrapping, samples, rows, requester)
    }

    fn run_ring(
        &self,
        keys: RingKeys<'_>,
        operands: &[RingOperand<'_>],
        program: &RingProgram<'_>,
        requester: Requester<'_>,
    ) -> Result<RingMade, BackendError> {
        self.cpu.run_ring(keys, operands, program, requester)
    }

    fn statistics(&self) -> BackendStatistics {
        let (device, host) = (self.scheduler.statistics(), self.cpu.statistics());
        BackendStatistics {
            waiting: device.waiting + host.waiting,
            batches: device.batches + host.batches,
            batched: device.batched + host.batched,
        }
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.cpu.hom_add(params, dst, src);
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.cpu.hom_sub(params, dst, src);
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        self.cpu.hom_int_mult(params, dst, v);
    }
}
