//! A device: its context, which may be lost and made anew, and what lives in a context.
//!
//! Whoever works in a context holds it open ([`Context::enter`]). [`Device::context`] makes a lost one anew, once nobody holds it open.
//! What a lost context held is gone: memory, streams and events of it are forgotten instead of given back, for their numbers may be
//! those of new ones.
//!
//! A process has one context for each device, the primary one, which all back ends in it share ([`Primary`]). Who makes it anew does so for
//! all: the others find that theirs is of an earlier generation, and load their kernels and keys again without another reset.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use bytemuck::Pod;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::driver::{
    Address, DeviceInfo, Driver, FunctionAttribute, Handle, LaunchShape, OUT_OF_MEMORY, Together,
    is_sticky,
};
use crate::error::GpuError;
use crate::image::Image;
use crate::twiddles;

/// A device and its present context.
pub(crate) struct Device {
    driver: Arc<Driver>,
    info: DeviceInfo,
    /// Whether blocks wait in clusters, else by flags.
    clusters: bool,
    primary: Arc<Primary>,
    context: Mutex<Option<Arc<Context>>>,
}

/// The primary context of a device, whoever uses it in this process.
#[derive(Default)]
struct Primary {
    /// Held open by who works in the context, closed while it is made anew.
    gate: RwLock<()>,
    /// How often it was made anew.
    generation: AtomicU64,
    /// Whether it is of no use any more and must be made anew.
    failed: AtomicBool,
}

impl Primary {
    /// That of a device of a driver.
    fn of(driver: &Driver, ordinal: i32) -> Arc<Primary> {
        type Known = HashMap<(usize, i32), Weak<Primary>>;
        static ALL: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
        let mut all = ALL.lock();
        let known = all.entry((driver.identity(), ordinal)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Primary::default());
            *known = Arc::downgrade(&new);
            new
        })
    }
}

/// What everything in a context refers to.
struct Shared {
    driver: Arc<Driver>,
    ordinal: i32,
    context: Handle,
    primary: Arc<Primary>,
    generation: u64,
}

/// A context with the kernels.
pub(crate) struct Context {
    shared: Arc<Shared>,
    info: DeviceInfo,
    clusters: bool,
    module: Handle,
    functions: Mutex<HashMap<String, Handle>>,
    /// The shared memory that each kernel was allowed to take: the most of all launches, since others may be about to launch it, too.
    allowed: Mutex<HashMap<Handle, u32>>,
    /// Of complex points (true) or field elements, by their number.
    twiddles: Mutex<HashMap<(bool, usize), Arc<Twiddles>>>,
    /// What no pass uses at the moment.
    lanes: Mutex<Vec<Lane>>,
}

/// The tables of a transform.
pub(crate) struct Twiddles {
    pub(crate) forward: Buffer,
    /// `None`: the conjugates of the others.
    inverse: Option<Buffer>,
}

impl Twiddles {
    /// The table that kernels take for the inverse.
    pub(crate) fn inverse(&self) -> &Buffer {
        self.inverse.as_ref().unwrap_or(&self.forward)
    }
}

/// A context held open by a thread.
pub(crate) struct Open<'a>(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'a, ()>);

/// A kernel of a context.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(Handle);

/// Memory of the device.
pub(crate) struct Buffer {
    shared: Arc<Shared>,
    address: Address,
    bytes: usize,
}

/// Memory of this machine that the device copies from and to by itself.
pub(crate) struct Pinned {
    shared: Arc<Shared>,
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is its own, as that of a vector is.
unsafe impl Send for Pinned {}
// SAFETY: likewise.
unsafe impl Sync for Pinned {}

/// Work that is done in its order.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    stream: Handle,
}

/// A place in a stream.
pub(crate) struct Event {
    shared: Arc<Shared>,
    event: Handle,
}

/// How many places of a stream a pass remembers: two chunks of steps, and where the first of them began.
pub(crate) const EVENTS: usize = 3;

/// What a pass works with.
pub(crate) struct Lane {
    pub(crate) stream: Stream,
    pub(crate) events: [Event; EVENTS],
    pub(crate) memory: Buffer,
    pub(crate) host: Pinned,
}

impl Device {
    pub(crate) fn new(driver: &Arc<Driver>, info: DeviceInfo, clusters: bool) -> Device {
        Device {
            driver: Arc::clone(driver),
            clusters: clusters && info.has_clusters(),
            primary: Primary::of(driver, info.ordinal),
            info,
            context: Mutex::new(None),
        }
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The present context, made anew where it was lost. The caller must hold none open.
    pub(crate) fn context(&self) -> Result<Arc<Context>, GpuError> {
        let mut present = self.context.lock();
        if let Some(context) = &*present
            && !context.is_lost()
        {
            return Ok(Arc::clone(context));
        }
        if present.is_some() || self.primary.failed.load(Ordering::SeqCst) {
            let _nobody_else = self.primary.gate.write();
            // Unless another has done so.
            if self.primary.failed.load(Ordering::SeqCst) {
                // Where it does not come back, the calls that follow say so.
                self.driver.reset(self.info.ordinal)?;
                self.primary.generation.fetch_add(1, Ordering::SeqCst);
                self.primary.failed.store(false, Ordering::SeqCst);
            }
            if present.is_some() {
                self.driver.release(self.info.ordinal)?;
                *present = None;
            }
        }
        let context = Context::new(self).map(Arc::new)?;
        *present = Some(Arc::clone(&context));
        Ok(context)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // One that is not lost is released with the last of what it holds.
        if self
            .context
            .get_mut()
            .as_ref()
            .is_some_and(|context| context.is_lost())
        {
            // The process may have ended the driver already.
            let _ = self.driver.release(self.info.ordinal);
        }
    }
}

impl Shared {
    /// Notes what makes the context useless.
    fn watch<T>(&self, result: Result<T, GpuError>) -> Result<T, GpuError> {
        if let Err(GpuError::Call { code, .. }) = &result
            && is_sticky(*code)
        {
            // Of one that was made anew meanwhile, nothing is known.
            if self.generation == self.primary.generation.load(Ordering::SeqCst) {
                self.primary.failed.store(true, Ordering::SeqCst);
            }
        }
        result
    }

    /// Whether the primary context failed, by whomever, or was made anew.
    fn is_lost(&self) -> bool {
        self.primary.failed.load(Ordering::SeqCst)
            || self.generation != self.primary.generation.load(Ordering::SeqCst)
    }

    /// Has something given back, unless it is gone with the context.
    fn give_back(&self, back: impl FnOnce(&Driver) -> Result<(), GpuError>) {
        // Who makes a lost context anew drops it behind the closed gate.
        if self.is_lost() {
            return;
        }
        let _open = self.primary.gate.read_recursive();
        if !self.is_lost() {
            let entered = self.driver.enter(self.context);
            // A driver that ends with the process has given all back already.
            let _ = self.watch(entered.and_then(|()| back(&self.driver)));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A lost one is released when it is made anew, or with its device.
        if !self.is_lost() {
            // The process may have ended the driver already.
            let _ = self.driver.release(self.ordinal);
        }
    }
}

impl Context {
    fn new(device: &Device) -> Result<Context, GpuError> {
        let driver = &device.driver;
        // Nobody makes it anew meanwhile.
        let _open = device.primary.gate.read_recursive();
        let generation = device.primary.generation.load(Ordering::SeqCst);
        let handle = driver.retain(device.info.ordinal)?;
        let shared = Arc::new(Shared {
            driver: Arc::clone(driver),
            ordinal: device.info.ordinal,
            context: handle,
            generation,
            primary: Arc::clone(&device.primary),
        });
        driver.enter(handle)?;
        let image = if device.clusters {
            Image::Sm90
        } else {
            Image::Sm80
        };
        let ptx =
            CString::new(image.ptx()).map_err(|error| GpuError::Unsupported(error.to_string()))?;
        let module = shared.watch(driver.load_module(&ptx))?;
        Ok(Context {
            shared,
            info: device.info.clone(),
            clusters: device.clusters,
            module,
            functions: Mutex::default(),
            allowed: Mutex::default(),
            twiddles: Mutex::default(),
            lanes: Mutex::default(),
        })
    }

    fn is_lost(&self) -> bool {
        self.shared.is_lost()
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Whether blocks wait in clusters, else by flags.
    pub(crate) fn has_clusters(&self) -> bool {
        self.clusters
    }

    /// Makes it the context of this thread, until the guard is dropped; may be done again within.
    pub(crate) fn enter(&self) -> Result<Open<'_>, GpuError> {
        let open = self.shared.primary.gate.read_recursive();
        if self.is_lost() {
            return Err(GpuError::Lost("another call failed on it"));
        }
        let entered = self.shared.driver.enter(self.shared.context);
        self.shared.watch(entered)?;
        Ok(Open(open))
    }

    /// Bytes of its memory that are free.
    pub(crate) fn free_memory(&self) -> Result<u64, GpuError> {
        let memory = self.shared.driver.memory();
        self.shared.watch(memory).map(|(free, _)| free)
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Buffer, GpuError> {
        let bytes = bytes.max(1);
        match self.shared.watch(self.shared.driver.allocate(bytes)) {
            Ok(address) => Ok(Buffer {
                shared: Arc::clone(&self.shared),
                address,
                bytes,
            }),
            Err(GpuError::Call { code, .. }) if code == OUT_OF_MEMORY => Err(GpuError::Memory {
                free: self.free_memory()?,
                needed: bytes as u64,
            }),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, GpuError> {
        let bytes = bytes.max(1);
        let memory = self.shared.driver.allocate_pinned(bytes);
        let memory = self.shared.watch(memory)?;
        // SAFETY: the driver gave so many bytes, which are nobody else's.
        unsafe { memory.write_bytes(0, bytes) };
        Ok(Pinned {
            shared: Arc::clone(&self.shared),
            memory,
            bytes,
        })
    }

    pub(crate) fn stream(&self) -> Result<Stream, GpuError> {
        let stream = self.shared.watch(self.shared.driver.create_stream())?;
        Ok(Stream {
            shared: Arc::clone(&self.shared),
            stream,
        })
    }

    pub(crate) fn event(&self) -> Result<Event, GpuError> {
        let event = self.shared.watch(self.shared.driver.create_event())?;
        Ok(Event {
            shared: Arc::clone(&self.shared),
            event,
        })
    }

    /// The kernel of this name.
    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel, GpuError> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(Kernel(*function));
        }
        let text = CString::new(name).map_err(|error| GpuError::Unsupported(error.to_string()))?;
        let function = self.shared.driver.function(self.module, &text);
        let function = self.shared.watch(function)?;
        functions.insert(name.to_owned(), function);
        Ok(Kernel(function))
    }

    /// Prepares a kernel for a launch of this shape, and says how many groups of blocks, of the clusters' size or single ones, run at once.
    pub(crate) fn groups_at_once(
        &self,
        kernel: Kernel,
        shape: &LaunchShape,
    ) -> Result<u32, GpuError> {
        let driver = &self.shared.driver;
        self.allow(kernel, shape)?;
        self.shared.watch(match shape.together {
            Together::Clusters(_) => driver.clusters_at_once(kernel.0, shape),
            Together::No | Together::All => driver
                .blocks_at_once(kernel.0, shape)
                .map(|blocks| blocks * self.info.processors),
        })
    }

    /// Lets a kernel take what a launch of this shape needs.
    pub(crate) fn allow(&self, kernel: Kernel, shape: &LaunchShape) -> Result<(), GpuError> {
        /// Larger clusters must be asked for.
        const PORTABLE: u32 = 8;
        let driver = &self.shared.driver;
        let mut allowed = self.allowed.lock();
        let most = allowed.entry(kernel.0).or_default();
        if shape.shared > *most {
            let shared = driver.set_function(
                kernel.0,
                FunctionAttribute::DynamicSharedMemory,
                shape.shared,
            );
            self.shared.watch(shared)?;
            *most = shape.shared;
        }
        drop(allowed);
        if matches!(shape.together, Together::Clusters(size) if size > PORTABLE) {
            let allowed = driver.set_function(kernel.0, FunctionAttribute::NonPortableClusters, 1);
            self.shared.watch(allowed)?;
        }
        Ok(())
    }

    /// The twiddles of so many points.
    pub(crate) fn twiddles(
        &self,
        is_complex: bool,
        points: usize,
    ) -> Result<Arc<Twiddles>, GpuError> {
        let mut all = self.twiddles.lock();
        if let Some(twiddles) = all.get(&(is_complex, points)) {
            return Ok(Arc::clone(twiddles));
        }
        let stream = self.stream()?;
        let uploaded = |bytes: &[u8]| -> Result<Buffer, GpuError> {
            let buffer = self.allocate(bytes.len())?;
            stream.upload_now(&buffer, bytes)?;
            Ok(buffer)
        };
        let twiddles = Arc::new(if is_complex {
            let table = twiddles::complex(points);
            Twiddles {
                forward: uploaded(bytemuck::cast_slice(&table))?,
                inverse: None,
            }
        } else {
            let [forward, inverse] =
                twiddles::field(points).map_err(|error| GpuError::Key(error.into()))?;
            Twiddles {
                forward: uploaded(bytemuck::cast_slice(&forward))?,
                inverse: Some(uploaded(bytemuck::cast_slice(&inverse))?),
            }
        });
        all.insert((is_complex, points), Arc::clone(&twiddles));
        Ok(twiddles)
    }

    /// A lane with so many bytes on the device and here; [`Context::leave_lane`] takes it back.
    pub(crate) fn lane(&self, memory: usize, host: usize) -> Result<Lane, GpuError> {
        let idle = self.lanes.lock().pop();
        if let Some(lane) = idle
            && lane.memory.bytes >= memory
            && lane.host.bytes >= host
        {
            return Ok(lane);
        }
        // A smaller one is given back first.
        Ok(Lane {
            stream: self.stream()?,
            events: [self.event()?, self.event()?, self.event()?],
            memory: self.allocate(memory)?,
            host: self.allocate_pinned(host)?,
        })
    }

    pub(crate) fn leave_lane(&self, lane: Lane) {
        self.lanes.lock().push(lane);
    }

    /// Gives back the memory of lanes that nobody uses; whether there were any.
    pub(crate) fn drop_lanes(&self) -> bool {
        let lanes = std::mem::take(&mut *self.lanes.lock());
        !lanes.is_empty()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: who uses functions holds the context.
        self.shared
            .give_back(|driver| unsafe { driver.unload_module(self.module) });
    }
}

impl Buffer {
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is of the context's memory, and not of one that was lost.
    pub(crate) fn is_in(&self, context: &Context) -> bool {
        Arc::ptr_eq(&self.shared, &context.shared)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it is of this context; work that uses it has been waited for, or the driver waits for it.
        self.shared
            .give_back(|driver| unsafe { driver.free(self.address) });
    }
}

impl Pinned {
    pub(crate) fn words<W: Pod>(&self) -> &[W] {
        // SAFETY: the memory is there, initialised, and its own.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory, self.bytes) };
        bytemuck::cast_slice(&bytes[..self.bytes / size_of::<W>() * size_of::<W>()])
    }

    pub(crate) fn words_mut<W: Pod>(&mut self) -> &mut [W] {
        // SAFETY: likewise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.memory, self.bytes) };
        let whole = self.bytes / size_of::<W>() * size_of::<W>();
        bytemuck::cast_slice_mut(&mut bytes[..whole])
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: as for buffers.
        self.shared
            .give_back(|driver| unsafe { driver.free_pinned(self.memory) });
    }
}

impl Stream {
    /// Copies bytes that stay as they are until the stream has come so far.
    ///
    /// # Safety
    /// As it says, and the bytes must be within one [`Buffer`].
    pub(crate) unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let done = unsafe { self.shared.driver.upload(to, bytes, self.stream) };
        self.shared.watch(done)
    }

    /// Copies bytes to a buffer's beginning, and waits until they are there.
    pub(crate) fn upload_now(&self, to: &Buffer, bytes: &[u8]) -> Result<(), GpuError> {
        assert!(bytes.len() <= to.bytes, "a buffer too small");
        // SAFETY: there is room, and the bytes stay where they are.
        unsafe { self.upload(to.address, bytes) }?;
        self.synchronize()
    }

    /// # Safety
    /// As for [`Stream::upload`]; nothing may look at the bytes before.
    pub(crate) unsafe fn download(&self, bytes: &mut [u8], from: Address) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let done = unsafe { self.shared.driver.download(bytes, from, self.stream) };
        self.shared.watch(done)
    }

    /// # Safety
    /// The bytes must be within one [`Buffer`].
    pub(crate) unsafe fn zero(&self, at: Address, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let done = unsafe { self.shared.driver.zero(at, bytes, self.stream) };
        self.shared.watch(done)
    }

    /// # Safety
    /// The argument must be that of the kernel, and what it refers to must be within buffers that live until the stream has come so
    /// far, and hold what `kernels/abi.h` says.
    pub(crate) unsafe fn launch<A>(
        &self,
        kernel: Kernel,
        shape: &LaunchShape,
        argument: &A,
    ) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let done = unsafe {
            self.shared
                .driver
                .launch(kernel.0, shape, argument, self.stream)
        };
        self.shared.watch(done)
    }

    pub(crate) fn record(&self, event: &Event) -> Result<(), GpuError> {
        self.shared
            .watch(self.shared.driver.record(event.event, self.stream))
    }

    /// Waits until all is done.
    pub(crate) fn synchronize(&self) -> Result<(), GpuError> {
        self.shared
            .watch(self.shared.driver.synchronize_stream(self.stream))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it is of this context, and its own.
        self.shared
            .give_back(|driver| unsafe { driver.destroy_stream(self.stream) });
    }
}

impl Event {
    pub(crate) fn synchronize(&self) -> Result<(), GpuError> {
        self.shared
            .watch(self.shared.driver.synchronize_event(self.event))
    }

    /// Milliseconds since another event.
    pub(crate) fn since(&self, earlier: &Event) -> Result<f32, GpuError> {
        let elapsed = self.shared.driver.elapsed(earlier.event, self.event);
        self.shared.watch(elapsed)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is of this context, and its own.
        self.shared
            .give_back(|driver| unsafe { driver.destroy_event(self.event) });
    }
}
