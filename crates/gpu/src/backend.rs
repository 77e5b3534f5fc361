//! The back end: bootstraps on devices, all else on the processor.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use toroid_engine::Requester;
use toroid_engine::backend::cpu::{Cost, CpuBackend};
use toroid_engine::backend::schedule::{Pass, Scheduler, Work};
use toroid_engine::backend::{
    Backend, BackendError, BackendStatistics, BootstrapTask, KeySink, LoadedKey, RingKeys,
    RingMade, RingOperand, RingProgram, check_results, loaded,
};
use toroid_isa::KeyKind;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::modulus::Goldilocks;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::wopbs::Plan;

use crate::device::{Context, Device};
use crate::driver::{DeviceInfo, Driver};
use crate::error::GpuError;
use crate::key::{GpuKey, Sink, Store};
use crate::pass::{self, Job, Keys};
use crate::shape::{Grouping, SetShape, Shape, WideShape};
use crate::wide::Wide;

/// How a back end finds its devices and uses them.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// The library of the driver; `None`: the one that [`crate::DRIVER_VARIABLE`] names, else the system's.
    pub driver: Option<PathBuf>,
    /// How blocks do a blind rotation; those of wide functions are done by a block each.
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

/// Runs bootstraps on all devices of this machine that can, and everything else on its processor.
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
/// The same for wide functions.
const WIDE_PASS: usize = 64;

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
        let most = if params.is_wide() {
            WIDE_PASS
        } else {
            by_degree.clamp(LARGE_PASS, MAX_PASS)
        };
        self.most.unwrap_or(most).max(1)
    }

    /// The layout of a set; `None` where the processor does its bootstraps.
    fn shape(&self, params: &ParamSet) -> Result<Option<SetShape>, GpuError> {
        let shared = self.devices().map(|device| device.shared_memory).min();
        SetShape::new(params, self.arithmetic, shared.unwrap_or_default() as usize)
    }

    /// Whether devices do the bootstraps of a set, else the processor.
    #[must_use]
    pub fn computes(&self, params: &ParamSet) -> bool {
        matches!(self.shape(params), Ok(Some(_)))
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

    fn cost(&self, task: &BootstrapTask<'_>) -> u64 {
        Cost::new(self.params).of(task)
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
        let use_device = Use {
            work: self,
            store: &stores[used.device],
            context: &context,
            keys: &keys,
        };
        match self.bootstrapping.shape() {
            SetShape::Programmable(shape) => use_device.programmable(shape, pass, results)?,
            SetShape::Wide(shape) => use_device.wide(shape, pass, results)?,
        }
        Ok(())
    }
}

/// A device in use, with its keys.
struct Use<'a> {
    work: &'a Bootstraps<'a>,
    store: &'a Store,
    context: &'a Context,
    keys: &'a Keys,
}

impl Use<'_> {
    fn programmable(
        &self,
        shape: &Shape,
        pass: &Pass<'_>,
        results: &mut [u8],
    ) -> Result<(), GpuError> {
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
        let sample_bytes = self.work.params.lwe_bytes();
        let most = self.work.most();
        // A single task may have more functions than a pass has room for.
        for (jobs, results) in jobs
            .chunks(most)
            .zip(results.chunks_mut(most * sample_bytes))
        {
            loop {
                let grouping = self.work.backend.grouping;
                match pass::run(
                    self.context,
                    shape,
                    grouping,
                    self.keys,
                    jobs,
                    results,
                    pass.cancel,
                ) {
                    // Keys that nobody uses make room for the pass.
                    Err(GpuError::Memory { .. }) if self.store.drop_key(self.context) => {}
                    done => break done?,
                }
            }
        }
        Ok(())
    }

    fn wide(&self, shape: &WideShape, pass: &Pass<'_>, results: &mut [u8]) -> Result<(), GpuError> {
        let key = self.work.bootstrapping.shape();
        let begins = |kind| key.parts(kind).into_iter().map(|(_, at)| at);
        let mut of_key = begins(KeyKind::Bootstrapping);
        let mut of_switching = begins(KeyKind::KeySwitching);
        let mut wide = Wide {
            context: self.context,
            params: self.work.params,
            shape,
            keys: self.keys,
            bootstrapping: std::array::from_fn(|_| of_key.next().unwrap_or_default()),
            key_switching: std::array::from_fn(|_| of_switching.next().unwrap_or_default()),
            most: self.work.most(),
            cancel: pass.cancel,
        };
        loop {
            match wide.run(pass.tasks, results) {
                // Keys that nobody uses make room for the pass; then it is done in smaller parts.
                Err(GpuError::Memory { .. })
                    if self.context.drop_lanes() || self.store.drop_key(self.context) => {}
                Err(GpuError::Memory { .. }) if wide.most > 1 => wide.most /= 2,
                done => return done,
            }
        }
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
        let shape = if of_bootstraps {
            self.shape(params)?
        } else {
            None
        };
        let Some(shape) = shape else {
            return self.cpu.begin_key(params, kind, form);
        };
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
        let is_here = |key: &dyn LoadedKey| key.as_any().is::<GpuKey>();
        if params.is_wide() && !is_here(bootstrapping) && !is_here(key_switching) {
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
        if params.is_wide() {
            for task in tasks {
                let plan = Plan::<Goldilocks>::new(params).map_err(GpuError::Key)?;
                plan.check_bits(task.input_bits).map_err(GpuError::Key)?;
            }
        }
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
        match self.shape(params) {
            Ok(None) => self.cpu.batch_hint(params),
            _ => self.most(params) * self.scheduler.slots(),
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
        let on_host = match bootstrapping.as_any().downcast_ref::<GpuKey>() {
            Some(key) => Some(key.on_host(&self.cpu)?),
            None => None,
        };
        let key = on_host.as_deref().unwrap_or(bootstrapping);
        self.cpu.pack(params, key, samples, rows, requester)
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
