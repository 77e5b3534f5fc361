//! The compiled model: a shared library with the C interface of `shim.cpp`. All `unsafe` code of the crate is here.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port of a model: where it lies, to be asked for by name once and used often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    offset: usize,
    model: u32,
    bits: u32,
    bytes: u32,
    output: bool,
}

impl Port {
    /// Its width.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// How many 32-bit words a value has.
    pub fn words(&self) -> usize {
        self.bits.div_ceil(32) as usize
    }

    /// Whether the design drives it.
    pub fn is_output(&self) -> bool {
        self.output
    }

    /// Whether values have more than 64 bits and are words in the model's memory.
    pub fn is_wide(&self) -> bool {
        self.bits > 64
    }
}

#[repr(C)]
struct RawPort {
    name: *const c_char,
    offset: u64,
    bits: u32,
    bytes: u32,
    is_output: u32,
}

type Handle = *mut c_void;

pub(crate) struct ModelLibrary {
    id: u32,
    ports: Vec<(String, Port)>,
    new: unsafe extern "C" fn(u32, u32) -> Handle,
    root: unsafe extern "C" fn(Handle) -> *mut u8,
    eval: unsafe extern "C" fn(Handle) -> u32,
    log: unsafe extern "C" fn(Handle, *mut c_char, u64) -> u64,
    trace: unsafe extern "C" fn(Handle, *const c_char) -> u32,
    dump: unsafe extern "C" fn(Handle, u64),
    delete: unsafe extern "C" fn(Handle),
    // Last, so that everything that points into it goes first.
    _library: libloading::Library,
}

static NEXT_MODEL: AtomicU32 = AtomicU32::new(0);

impl ModelLibrary {
    pub fn load(path: &Path) -> Result<Arc<ModelLibrary>, libloading::Error> {
        // SAFETY: the library was compiled by this crate from Verilator's output and `shim.cpp`, whose initializers only
        // set up its own statics.
        let library = unsafe { libloading::Library::new(path) }?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: `shim.cpp` defines this function with the type of the field that it is stored in; the
                // library outlives the pointer, as it is a field of the same structure.
                *unsafe { library.get($name) }?
            };
        }
        let list: unsafe extern "C" fn(*mut u64) -> *const RawPort = symbol!(b"toroid_ports\0");
        let id = NEXT_MODEL.fetch_add(1, Ordering::Relaxed);
        let mut count = 0;
        // SAFETY: the function returns a static array of `count` ports.
        let raw = unsafe {
            let first = list(&mut count);
            std::slice::from_raw_parts(first, count as usize)
        };
        let ports = raw
            .iter()
            .map(|port| {
                // SAFETY: `name` is a string literal of the library.
                let name = unsafe { CStr::from_ptr(port.name) };
                let parsed = Port {
                    offset: port.offset as usize,
                    model: id,
                    bits: port.bits,
                    bytes: port.bytes,
                    output: port.is_output != 0,
                };
                (name.to_string_lossy().into_owned(), parsed)
            })
            .collect();
        Ok(Arc::new(ModelLibrary {
            id,
            ports,
            new: symbol!(b"toroid_new\0"),
            root: symbol!(b"toroid_root\0"),
            eval: symbol!(b"toroid_eval\0"),
            log: symbol!(b"toroid_log\0"),
            trace: symbol!(b"toroid_trace\0"),
            dump: symbol!(b"toroid_dump\0"),
            delete: symbol!(b"toroid_delete\0"),
            _library: library,
        }))
    }

    pub fn ports(&self) -> &[(String, Port)] {
        &self.ports
    }
}

/// One running copy of a model.
pub(crate) struct Instance {
    handle: Handle,
    root: NonNull<u8>,
    compiled: Arc<ModelLibrary>,
}

// SAFETY: an instance is reached through its owner alone, and `shim.cpp` sets the run-time's idea of the thread's
// simulation at every entry.
unsafe impl Send for Instance {}

impl Instance {
    /// `None` if the model cannot be made, for want of memory.
    pub fn new(library: Arc<ModelLibrary>, random: Option<u32>) -> Option<Instance> {
        // SAFETY: the function takes any values.
        let handle = unsafe { (library.new)(random.is_some().into(), random.unwrap_or(1)) };
        // SAFETY: `handle` is what `toroid_new` returned.
        let root = NonNull::new(unsafe { (library.root)(handle) })?;
        Some(Instance {
            handle,
            root,
            compiled: library,
        })
    }

    pub fn compiled(&self) -> &ModelLibrary {
        &self.compiled
    }

    /// Evaluates; whether the model goes on.
    pub fn eval(&mut self) -> bool {
        // SAFETY: `handle` is alive until `drop`.
        unsafe { (self.compiled.eval)(self.handle) == 0 }
    }

    pub fn log(&self) -> String {
        // SAFETY: with capacity 0 nothing is written.
        let length = unsafe { (self.compiled.log)(self.handle, NonNull::dangling().as_ptr(), 0) };
        let mut bytes = vec![0u8; length as usize];
        // SAFETY: the buffer has `length` bytes, the most that is written.
        unsafe { (self.compiled.log)(self.handle, bytes.as_mut_ptr().cast(), length) };
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn trace(&mut self, path: &CString) -> bool {
        // SAFETY: `handle` is alive, `path` ends in NUL.
        unsafe { (self.compiled.trace)(self.handle, path.as_ptr()) != 0 }
    }

    pub fn dump(&mut self, time: u64) {
        // SAFETY: `handle` is alive.
        unsafe { (self.compiled.dump)(self.handle, time) }
    }

    /// Where a port lies. A port of another model is refused: its place may be outside of this one.
    #[inline]
    fn place(&self, port: Port) -> NonNull<u8> {
        assert!(
            port.model == self.compiled.id,
            "the port belongs to another model"
        );
        // SAFETY: the library states offsets of members of the structure at `root`.
        unsafe { self.root.add(port.offset) }
    }

    /// The value of a port of up to 64 bits, or the lower 64 bits of a wider one.
    #[inline]
    pub fn get(&self, port: Port) -> u64 {
        let place = self.place(port);
        // SAFETY: the member at `place` is an aligned unsigned integer of `bytes` bytes, or an array of u32 words, at
        // least two; nothing else has access to it while `self` is borrowed.
        unsafe {
            match port.bytes {
                1 => place.read().into(),
                2 => place.cast::<u16>().read().into(),
                4 => place.cast::<u32>().read().into(),
                8 => place.cast::<u64>().read(),
                _ => {
                    let words = place.cast::<[u32; 2]>().read();
                    u64::from(words[0]) | u64::from(words[1]) << 32
                }
            }
        }
    }

    /// Sets a port of up to 64 bits; of a wider one the lower 64 bits, the others to 0. Excess bits are dropped.
    #[inline]
    pub fn set(&mut self, port: Port, value: u64) {
        let place = self.place(port);
        let value = match port.bits {
            bits @ 0..64 => value & !(u64::MAX << bits),
            _ => value,
        };
        // SAFETY: as in `get`, with `self` borrowed mutably.
        unsafe {
            match port.bytes {
                1 => place.write(value as u8),
                2 => place.cast::<u16>().write(value as u16),
                4 => place.cast::<u32>().write(value as u32),
                8 => place.cast::<u64>().write(value),
                _ => {
                    let words = self.words_mut(port);
                    words.fill(0);
                    words[0] = value as u32;
                    words[1] = (value >> 32) as u32;
                }
            }
        }
    }

    /// The words of a wide port, lowest first.
    #[inline]
    pub fn words(&self, port: Port) -> &[u32] {
        assert!(port.is_wide(), "only a port of more than 64 bits is words");
        let place = self.place(port).cast::<u32>();
        // SAFETY: a member of more than 64 bits is an array of that many u32 words; the borrow of `self` keeps it still.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), port.words()) }
    }

    /// The words of a wide port, lowest first.
    #[inline]
    pub fn words_mut(&mut self, port: Port) -> &mut [u32] {
        assert!(port.is_wide(), "only a port of more than 64 bits is words");
        let place = self.place(port).cast::<u32>();
        // SAFETY: as in `words`, with `self` borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), port.words()) }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: `handle` is alive, and not used again.
        unsafe { (self.compiled.delete)(self.handle) }
    }
}
