//! The part of the CUDA driver API that the back end uses, found at run time.
//!
//! Handles are integers as wide as pointers, so that they may go from thread to thread, as the driver permits. Nothing here knows
//! what a key or a kernel is; [`crate::device`] makes sure that handles are used while they live.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::error::GpuError;
use crate::image::Image;

/// Names the library of the driver in place of the usual places.
pub const DRIVER_VARIABLE: &str = "TOROID_CUDA_DRIVER";

/// Where the library is looked for, in this order.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"];

/// A symbol of the driver without a device that tests use, and of no other.
const SHIM: &str = "toroid_shim_configure";

/// The oldest version that loads the kernels: 12.0, which has clusters and PTX 8.0.
const OLDEST: c_int = 12_000;

/// `CUresult`.
pub(crate) type Code = c_int;
/// Of a context, stream, event, module or function.
pub(crate) type Handle = usize;
/// `CUdeviceptr`.
pub(crate) type Address = u64;

/// `CUDA_SUCCESS`.
const SUCCESS: Code = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: Code = 2;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: Code = 100;

/// `CUdevice_attribute`: those that are asked for.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum DeviceAttribute {
    /// In kHz.
    Clock = 13,
    Processors = 16,
    /// In kHz; two transfers a cycle.
    MemoryClock = 36,
    /// In bits.
    MemoryBus = 37,
    CapabilityMajor = 75,
    CapabilityMinor = 76,
    /// Rate of f32 to that of f64.
    SingleToDouble = 87,
    /// Of a block that asks for more than 48 KiB.
    SharedMemory = 97,
}

/// `CUfunction_attribute`: those that are set.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum FunctionAttribute {
    DynamicSharedMemory = 8,
    NonPortableClusters = 14,
}

/// How the blocks of a launch run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Each for itself.
    No,
    /// In clusters of this many.
    Clusters(u32),
    /// All at the same time.
    All,
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    pub(crate) together: Together,
}

/// `CUlaunchAttribute`.
#[repr(C)]
struct LaunchAttribute {
    id: c_uint,
    reserved: c_uint,
    value: [u32; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const LaunchAttribute,
    count: c_uint,
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72 && size_of::<LaunchConfig>() == 56);

impl LaunchAttribute {
    fn new(together: Together) -> LaunchAttribute {
        // `CU_LAUNCH_ATTRIBUTE_IGNORE`, `_COOPERATIVE` and `_CLUSTER_DIMENSION`.
        let (id, first) = match together {
            Together::No => (0, [0; 3]),
            Together::All => (2, [1, 0, 0]),
            Together::Clusters(size) => (4, [size, 1, 1]),
        };
        let mut value = [0; 16];
        value[..3].copy_from_slice(&first);
        LaunchAttribute {
            id,
            reserved: 0,
            value,
        }
    }
}

impl LaunchConfig {
    fn new(shape: &LaunchShape, stream: Handle, attribute: &LaunchAttribute) -> LaunchConfig {
        LaunchConfig {
            grid: shape.grid,
            block: [shape.block, 1, 1],
            shared: shape.shared,
            stream,
            attributes: attribute,
            count: u32::from(shape.together != Together::No),
        }
    }
}

/// Declares the functions of the library, each as a field.
macro_rules! functions {
    ($($field:ident: $symbol:literal($($argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Functions {
            /// # Safety
            /// The symbols of the library must be those of the CUDA driver.
            unsafe fn of(library: &Library) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    $($field: {
                        type Function = unsafe extern "C" fn($($argument),*) -> Code;
                        // SAFETY: the caller vouches for the symbol, and the type is that of the driver's header.
                        *unsafe { library.get::<Function>($symbol) }?
                    },)*
                })
            }
        }
    };
}

functions! {
    device_count: "cuDeviceGetCount"(*mut c_int);
    device: "cuDeviceGet"(*mut c_int, c_int);
    device_name: "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute: "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_memory: "cuDeviceTotalMem_v2"(*mut usize, c_int);
    context_retain: "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    context_release: "cuDevicePrimaryCtxRelease_v2"(c_int);
    context_reset: "cuDevicePrimaryCtxReset_v2"(c_int);
    context_set: "cuCtxSetCurrent"(Handle);
    memory_info: "cuMemGetInfo_v2"(*mut usize, *mut usize);
    allocate: "cuMemAlloc_v2"(*mut Address, usize);
    free: "cuMemFree_v2"(Address);
    host_allocate: "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    host_free: "cuMemFreeHost"(*mut c_void);
    upload: "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Handle);
    download: "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, Handle);
    fill: "cuMemsetD8Async"(Address, u8, usize, Handle);
    stream_create: "cuStreamCreate"(*mut Handle, c_uint);
    stream_synchronize: "cuStreamSynchronize"(Handle);
    stream_destroy: "cuStreamDestroy_v2"(Handle);
    event_create: "cuEventCreate"(*mut Handle, c_uint);
    event_record: "cuEventRecord"(Handle, Handle);
    event_synchronize: "cuEventSynchronize"(Handle);
    event_elapsed: "cuEventElapsedTime"(*mut f32, Handle, Handle);
    event_destroy: "cuEventDestroy_v2"(Handle);
    module_load: "cuModuleLoadDataEx"(*mut Handle, *const c_void, c_uint, *const c_int, *const *mut c_void);
    module_unload: "cuModuleUnload"(Handle);
    module_function: "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    function_set: "cuFuncSetAttribute"(Handle, c_int, c_int);
    launch: "cuLaunchKernelEx"(*const LaunchConfig, Handle, *const *const c_void, *const *const c_void);
    blocks_at_once: "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, Handle, c_int, usize);
    clusters_at_once: "cuOccupancyMaxActiveClusters"(*mut c_int, Handle, *const LaunchConfig);
    error_name: "cuGetErrorName"(Code, *mut *const c_char);
    error_string: "cuGetErrorString"(Code, *mut *const c_char);
}

/// The driver, initialised.
pub(crate) struct Driver {
    functions: Functions,
    version: c_int,
    simulated: bool,
    /// Holds the functions in memory.
    _library: Library,
}

/// The name of a device and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Bytes of memory.
    pub memory: u64,
    /// Streaming multiprocessors.
    pub processors: u32,
    /// Bytes of shared memory that a block may ask for.
    pub shared_memory: u32,
    /// Cycles a second of its processors; 0 where the driver does not tell, as in the two that follow.
    pub clock: u64,
    /// f64 multiply-adds a second that it can do at this clock.
    pub multiply_adds: u64,
    /// Bytes a second that its memory can give.
    pub bandwidth: u64,
}

impl DeviceInfo {
    /// Whether it can run the kernels.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.capability >= (8, 0)
    }

    /// The image of the kernels that it runs.
    #[must_use]
    pub fn image(&self) -> Option<Image> {
        self.is_supported().then_some(if self.has_clusters() {
            Image::Sm90
        } else {
            Image::Sm80
        })
    }

    /// Why it runs no kernels, if that is so.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let (major, minor) = self.capability;
        (!self.is_supported()).then(|| {
            format!("compute capability {major}.{minor} is below 8.0, which the kernels need")
        })
    }

    /// Whether its blocks can form clusters.
    #[must_use]
    pub fn has_clusters(&self) -> bool {
        self.capability >= (9, 0)
    }
}

/// Where a library of the driver may be.
fn libraries(path: Option<&Path>) -> Vec<OsString> {
    let named = path
        .map(PathBuf::from)
        .or_else(|| env::var_os(DRIVER_VARIABLE).map(PathBuf::from));
    match named {
        Some(path) => vec![path.into_os_string()],
        None => LIBRARIES.map(OsString::from).to_vec(),
    }
}

/// The first library that can be loaded.
fn open(path: Option<&Path>) -> Result<Library, GpuError> {
    let candidates = libraries(path);
    let mut reasons = Vec::new();
    for candidate in &candidates {
        // SAFETY: the driver's library, or one that the user put into its place, runs no code when it is loaded that harms us.
        match unsafe { Library::new(candidate) } {
            Ok(library) => return Ok(library),
            Err(_) if candidate == LIBRARIES[0] => {
                reasons.push(format!("{} was not found", LIBRARIES[0]));
            }
            Err(_) if !Path::new(candidate).exists() => {
                reasons.push(format!("{} does not exist", candidate.display()));
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(GpuError::NoDriver(reasons.join(", ")))
}

impl Driver {
    /// Loads and initialises the driver: the library at `path`, else the one that [`DRIVER_VARIABLE`] names, else the system's.
    pub(crate) fn load(path: Option<&Path>) -> Result<Driver, GpuError> {
        let library = open(path)?;
        let missing = |error: libloading::Error| GpuError::NoDriver(error.to_string());
        let version = {
            type Initialise = unsafe extern "C" fn(c_uint) -> Code;
            type Version = unsafe extern "C" fn(*mut c_int) -> Code;
            // SAFETY: the types are those of the driver's header, and every version has both symbols.
            let (initialise, version) = unsafe {
                (
                    library.get::<Initialise>("cuInit").map_err(missing)?,
                    library
                        .get::<Version>("cuDriverGetVersion")
                        .map_err(missing)?,
                )
            };
            let mut found = 0;
            // SAFETY: `found` is there to be written to; the version may be asked for before `cuInit`.
            let code = unsafe { version(&raw mut found) };
            if code == SUCCESS && found < OLDEST {
                return Err(GpuError::OldDriver {
                    found,
                    needed: OLDEST,
                });
            }
            // SAFETY: flags must be 0.
            match unsafe { initialise(0) } {
                SUCCESS => found,
                NO_DEVICE => return Err(GpuError::NoDevice("the driver found none".to_owned())),
                code => {
                    return Err(GpuError::Call {
                        call: "cuInit",
                        code,
                        name: "CUresult".to_owned(),
                        description: "the driver does not start".to_owned(),
                    });
                }
            }
        };
        // SAFETY: a library with `cuInit` and a fitting version is the driver's.
        let functions = unsafe { Functions::of(&library) }.map_err(missing)?;
        // SAFETY: the symbol is looked for, not used.
        let simulated = unsafe { library.get::<*const c_void>(SHIM) }.is_ok();
        Ok(Driver {
            functions,
            version,
            simulated,
            _library: library,
        })
    }

    /// The same for all that loaded the same library.
    pub(crate) fn identity(&self) -> usize {
        self.functions.context_retain as usize
    }

    /// 1000·major + 10·minor.
    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    /// Whether it runs kernels on the processor, without a device.
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// The error that a code means, if it means one.
    fn check(&self, call: &'static str, code: Code) -> Result<(), GpuError> {
        if code == SUCCESS {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is there to be written to.
            let known = unsafe { function(code, &raw mut text) } == SUCCESS && !text.is_null();
            known.then(|| {
                // SAFETY: the driver gives text that ends with 0 and stays.
                let text = unsafe { CStr::from_ptr(text) };
                text.to_string_lossy().into_owned()
            })
        };
        Err(GpuError::Call {
            call,
            code,
            name: text(self.functions.error_name).unwrap_or_else(|| "unknown code".to_owned()),
            description: text(self.functions.error_string).unwrap_or_default(),
        })
    }

    /// The devices of this machine.
    pub(crate) fn devices(&self) -> Result<Vec<DeviceInfo>, GpuError> {
        let mut count = 0;
        // SAFETY: `count` is there to be written to.
        let code = unsafe { (self.functions.device_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code)?;
        (0..count)
            .map(|ordinal| self.device_info(ordinal))
            .collect()
    }

    fn device_info(&self, ordinal: c_int) -> Result<DeviceInfo, GpuError> {
        let mut device = 0;
        // SAFETY: `device` is there to be written to.
        let code = unsafe { (self.functions.device)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", code)?;
        let mut name = [0u8; 256];
        // SAFETY: `name` has as many bytes as the call is told.
        let code = unsafe {
            (self.functions.device_name)(name.as_mut_ptr().cast(), name.len() as c_int, device)
        };
        self.check("cuDeviceGetName", code)?;
        let mut memory = 0;
        // SAFETY: `memory` is there to be written to.
        let code = unsafe { (self.functions.device_memory)(&raw mut memory, device) };
        self.check("cuDeviceTotalMem", code)?;
        let attribute = |attribute: DeviceAttribute| {
            let mut value = 0;
            // SAFETY: `value` is there to be written to.
            let code = unsafe {
                (self.functions.device_attribute)(&raw mut value, attribute as c_int, device)
            };
            self.check("cuDeviceGetAttribute", code).map(|()| value)
        };
        let told = |what| attribute(what).map_or(0, |value| u64::from(value.unsigned_abs()));
        let length = name.iter().position(|byte| *byte == 0);
        let capability = (
            attribute(DeviceAttribute::CapabilityMajor)?,
            attribute(DeviceAttribute::CapabilityMinor)?,
        );
        let processors = attribute(DeviceAttribute::Processors)?.unsigned_abs();
        let clock = 1000 * told(DeviceAttribute::Clock);
        // f32 multiply-adds a cycle and processor: CUDA C++ programming guide, throughput of native arithmetic instructions.
        let singles = if capability == (8, 0) { 64 } else { 128 };
        let doubles = singles / told(DeviceAttribute::SingleToDouble).max(1);
        Ok(DeviceInfo {
            ordinal,
            name: String::from_utf8_lossy(&name[..length.unwrap_or(name.len())]).into_owned(),
            capability,
            memory: memory as u64,
            processors,
            shared_memory: attribute(DeviceAttribute::SharedMemory)?.unsigned_abs(),
            clock,
            multiply_adds: clock * u64::from(processors) * doubles,
            bandwidth: 2000 * told(DeviceAttribute::MemoryClock) * told(DeviceAttribute::MemoryBus)
                / 8,
        })
    }

    /// The primary context of a device, which the caller releases.
    pub(crate) fn retain(&self, device: i32) -> Result<Handle, GpuError> {
        let mut context = 0;
        // SAFETY: `context` is there to be written to.
        let code = unsafe { (self.functions.context_retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(context)
    }

    pub(crate) fn release(&self, device: i32) -> Result<(), GpuError> {
        // SAFETY: a number is all that it takes.
        let code = unsafe { (self.functions.context_release)(device) };
        self.check("cuDevicePrimaryCtxRelease", code)
    }

    /// Destroys all that the primary context holds.
    pub(crate) fn reset(&self, device: i32) -> Result<(), GpuError> {
        // SAFETY: a number is all that it takes. Handles of what was destroyed are not used any more.
        let code = unsafe { (self.functions.context_reset)(device) };
        self.check("cuDevicePrimaryCtxReset", code)
    }

    /// Makes a context that of this thread.
    pub(crate) fn enter(&self, context: Handle) -> Result<(), GpuError> {
        // SAFETY: the context was retained.
        let code = unsafe { (self.functions.context_set)(context) };
        self.check("cuCtxSetCurrent", code)
    }

    /// Bytes of the device's memory: free, and all.
    pub(crate) fn memory(&self) -> Result<(u64, u64), GpuError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are there to be written to.
        let code = unsafe { (self.functions.memory_info)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let mut address = 0;
        // SAFETY: `address` is there to be written to.
        let code = unsafe { (self.functions.allocate)(&raw mut address, bytes) };
        self.check("cuMemAlloc", code)?;
        Ok(address)
    }

    /// # Safety
    /// The address must come from [`Driver::allocate`] in the present context, and nothing may use it any more.
    pub(crate) unsafe fn free(&self, address: Address) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.functions.free)(address) };
        self.check("cuMemFree", code)
    }

    /// Memory of this machine that devices copy from and to by themselves.
    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<*mut u8, GpuError> {
        let mut memory = std::ptr::null_mut();
        // SAFETY: `memory` is there to be written to.
        let code = unsafe { (self.functions.host_allocate)(&raw mut memory, bytes, 0) };
        self.check("cuMemHostAlloc", code)?;
        Ok(memory.cast())
    }

    /// # Safety
    /// The memory must come from [`Driver::allocate_pinned`], and nothing may use it any more.
    pub(crate) unsafe fn free_pinned(&self, memory: *mut u8) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.functions.host_free)(memory.cast()) };
        self.check("cuMemFreeHost", code)
    }

    /// # Safety
    /// There must be room for the bytes at `to`, and they must stay as they are until the stream has come so far.
    pub(crate) unsafe fn upload(
        &self,
        to: Address,
        bytes: &[u8],
        stream: Handle,
    ) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code =
            unsafe { (self.functions.upload)(to, bytes.as_ptr().cast(), bytes.len(), stream) };
        self.check("cuMemcpyHtoDAsync", code)
    }

    /// # Safety
    /// There must be as many bytes at `from`, and nothing may look at `bytes` until the stream has come so far.
    pub(crate) unsafe fn download(
        &self,
        bytes: &mut [u8],
        from: Address,
        stream: Handle,
    ) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code = unsafe {
            (self.functions.download)(bytes.as_mut_ptr().cast(), from, bytes.len(), stream)
        };
        self.check("cuMemcpyDtoHAsync", code)
    }

    /// # Safety
    /// There must be as many bytes at `at`.
    pub(crate) unsafe fn zero(
        &self,
        at: Address,
        bytes: usize,
        stream: Handle,
    ) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.functions.fill)(at, 0, bytes, stream) };
        self.check("cuMemsetD8Async", code)
    }

    pub(crate) fn create_stream(&self) -> Result<Handle, GpuError> {
        // `CU_STREAM_NON_BLOCKING`.
        const FLAGS: c_uint = 1;
        let mut stream = 0;
        // SAFETY: `stream` is there to be written to.
        let code = unsafe { (self.functions.stream_create)(&raw mut stream, FLAGS) };
        self.check("cuStreamCreate", code)?;
        Ok(stream)
    }

    pub(crate) fn synchronize_stream(&self, stream: Handle) -> Result<(), GpuError> {
        // SAFETY: streams live while their owner does.
        let code = unsafe { (self.functions.stream_synchronize)(stream) };
        self.check("cuStreamSynchronize", code)
    }

    /// # Safety
    /// Nothing may use the stream any more.
    pub(crate) unsafe fn destroy_stream(&self, stream: Handle) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.functions.stream_destroy)(stream) };
        self.check("cuStreamDestroy", code)
    }

    pub(crate) fn create_event(&self) -> Result<Handle, GpuError> {
        // `CU_EVENT_BLOCKING_SYNC`: who waits leaves the core to others.
        const FLAGS: c_uint = 1;
        let mut event = 0;
        // SAFETY: `event` is there to be written to.
        let code = unsafe { (self.functions.event_create)(&raw mut event, FLAGS) };
        self.check("cuEventCreate", code)?;
        Ok(event)
    }

    pub(crate) fn record(&self, event: Handle, stream: Handle) -> Result<(), GpuError> {
        // SAFETY: both live while their owners do.
        let code = unsafe { (self.functions.event_record)(event, stream) };
        self.check("cuEventRecord", code)
    }

    pub(crate) fn synchronize_event(&self, event: Handle) -> Result<(), GpuError> {
        // SAFETY: events live while their owner does.
        let code = unsafe { (self.functions.event_synchronize)(event) };
        self.check("cuEventSynchronize", code)
    }

    /// Milliseconds from one event to another.
    pub(crate) fn elapsed(&self, from: Handle, to: Handle) -> Result<f32, GpuError> {
        let mut time = 0.0;
        // SAFETY: `time` is there to be written to.
        let code = unsafe { (self.functions.event_elapsed)(&raw mut time, from, to) };
        self.check("cuEventElapsedTime", code)?;
        Ok(time)
    }

    /// # Safety
    /// Nothing may use the event any more.
    pub(crate) unsafe fn destroy_event(&self, event: Handle) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.functions.event_destroy)(event) };
        self.check("cuEventDestroy", code)
    }

    /// Compiles and loads PTX.
    pub(crate) fn load_module(&self, ptx: &CStr) -> Result<Handle, GpuError> {
        // `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`, which is passed as a pointer.
        const OPTIONS: [c_int; 2] = [5, 6];
        let mut log = vec![0u8; 4096];
        let size = std::ptr::without_provenance_mut::<c_void>(log.len());
        let values = [log.as_mut_ptr().cast::<c_void>(), size];
        let mut module = 0;
        // SAFETY: PTX ends with 0, and the log has as many bytes as the call is told.
        let code = unsafe {
            (self.functions.module_load)(
                &raw mut module,
                ptx.as_ptr().cast(),
                OPTIONS.len() as c_uint,
                OPTIONS.as_ptr(),
                values.as_ptr(),
            )
        };
        let loaded = self.check("cuModuleLoadDataEx", code);
        loaded.map_err(|error| match error {
            GpuError::Call {
                call,
                code,
                name,
                description,
            } => {
                let length = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let said = String::from_utf8_lossy(&log[..length]);
                GpuError::Call {
                    call,
                    code,
                    name,
                    description: format!("{description} {}", said.trim())
                        .trim_end()
                        .to_owned(),
                }
            }
            other => other,
        })?;
        Ok(module)
    }

    /// # Safety
    /// Nothing may use the module or its functions any more.
    pub(crate) unsafe fn unload_module(&self, module: Handle) -> Result<(), GpuError> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.functions.module_unload)(module) };
        self.check("cuModuleUnload", code)
    }

    pub(crate) fn function(&self, module: Handle, name: &CStr) -> Result<Handle, GpuError> {
        let mut function = 0;
        // SAFETY: the name ends with 0, and modules live while their owner does.
        let code =
            unsafe { (self.functions.module_function)(&raw mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", code)?;
        Ok(function)
    }

    pub(crate) fn set_function(
        &self,
        function: Handle,
        attribute: FunctionAttribute,
        value: u32,
    ) -> Result<(), GpuError> {
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        // SAFETY: functions live while their module does.
        let code = unsafe { (self.functions.function_set)(function, attribute as c_int, value) };
        self.check("cuFuncSetAttribute", code)
    }

    /// How many blocks of a function a multiprocessor runs at once.
    pub(crate) fn blocks_at_once(
        &self,
        function: Handle,
        shape: &LaunchShape,
    ) -> Result<u32, GpuError> {
        let mut blocks = 0;
        let block = c_int::try_from(shape.block).unwrap_or(c_int::MAX);
        // SAFETY: `blocks` is there to be written to.
        let code = unsafe {
            (self.functions.blocks_at_once)(&raw mut blocks, function, block, shape.shared as usize)
        };
        self.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(blocks.unsigned_abs())
    }

    /// How many clusters of a function the device runs at once.
    pub(crate) fn clusters_at_once(
        &self,
        function: Handle,
        shape: &LaunchShape,
    ) -> Result<u32, GpuError> {
        let attribute = LaunchAttribute::new(shape.together);
        let config = LaunchConfig::new(shape, 0, &attribute);
        let mut clusters = 0;
        // SAFETY: `clusters` is there to be written to, and the attribute lives beside the configuration.
        let code = unsafe {
            (self.functions.clusters_at_once)(&raw mut clusters, function, &raw const config)
        };
        self.check("cuOccupancyMaxActiveClusters", code)?;
        Ok(clusters.unsigned_abs())
    }

    /// # Safety
    /// `argument` must be the one argument of the kernel, and what it refers to must hold what the kernel expects, until the stream
    /// has come so far.
    pub(crate) unsafe fn launch<A>(
        &self,
        function: Handle,
        shape: &LaunchShape,
        argument: &A,
        stream: Handle,
    ) -> Result<(), GpuError> {
        let attribute = LaunchAttribute::new(shape.together);
        let config = LaunchConfig::new(shape, stream, &attribute);
        let arguments = [std::ptr::from_ref(argument).cast::<c_void>()];
        // SAFETY: as the caller promises; the driver copies the argument.
        let code = unsafe {
            (self.functions.launch)(
                &raw const config,
                function,
                arguments.as_ptr(),
                std::ptr::null(),
            )
        };
        self.check("cuLaunchKernelEx", code)
    }
}

/// Whether a code means that the context, and all that it holds, is of no use any more.
pub(crate) fn is_sticky(code: Code) -> bool {
    // ECC error; NVLink error; illegal address; time limit; destroyed context; assertion; and hardware stack error to launch failure;
    // unknown error.
    matches!(code, 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 999)
}
