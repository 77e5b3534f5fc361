//! The driver without a device, keys and samples.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part of it, and a failed test panics"
)]

mod shim;

use std::ffi::{CString, c_char, c_int, c_longlong, c_ulonglong, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use libloading::Library;
use toroid_engine::backend::{Backend, BackendError, BootstrapTask, LoadedKey};
use toroid_engine::{CancelToken, Requester};
use toroid_gpu::{GpuBackend, GpuOptions};
use toroid_isa::KeyKind;
use toroid_ring::goldilocks;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

pub use shim::driver;

pub fn options(driver: &Path) -> GpuOptions {
    GpuOptions {
        driver: Some(driver.to_owned()),
        ..GpuOptions::default()
    }
}

/// Held, since what was set goes with the library.
fn library(driver: &Path) -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the library is this crate's.
    LIBRARY.get_or_init(|| unsafe { Library::new(driver) }.unwrap())
}

/// Sets a property of the process's devices.
pub fn configure(driver: &Path, key: &str, value: i64) {
    type Configure = unsafe extern "C" fn(*const c_char, c_longlong) -> c_int;
    let key = CString::new(key).unwrap();
    // SAFETY: the function takes text that ends with 0, and a number.
    let result = unsafe {
        let configure = library(driver).get::<Configure>("toroid_shim_configure");
        configure.unwrap()(key.as_ptr(), value)
    };
    assert_eq!(result, 0);
}

/// Launches that did steps of rotations since [`cancel_at`], or with `outstanding` the most of them on their way at a time.
pub fn figure(driver: &Path, key: &str) -> i64 {
    type Figure = unsafe extern "C" fn(*const c_char) -> c_longlong;
    let key = CString::new(key).unwrap();
    // SAFETY: the function takes text that ends with 0.
    unsafe {
        let figure = library(driver).get::<Figure>("toroid_shim_figure");
        figure.unwrap()(key.as_ptr())
    }
}

/// Has a token cancelled in the middle of the launch of this number, from 1 for the next one.
pub fn cancel_at(driver: &Path, rotation: u64, token: &CancelToken) {
    type Call = unsafe extern "C" fn(*mut c_void);
    type CallAt = unsafe extern "C" fn(c_ulonglong, Call, *mut c_void);
    unsafe extern "C" fn cancel(token: *mut c_void) {
        // SAFETY: it is the token below, and the call is the only one.
        unsafe { Box::from_raw(token.cast::<CancelToken>()) }.cancel();
    }
    let token = Box::into_raw(Box::new(token.clone())).cast();
    // SAFETY: the function keeps a number, a function and its argument.
    unsafe {
        let call_at = library(driver).get::<CallAt>("toroid_shim_call_at");
        call_at.unwrap()(rotation, cancel, token);
    }
}

pub fn key_bytes(key: &ClientKey, kind: KeyKind, form: KeyForm, rng: &mut Csprng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sink = &mut |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let quiet = Progress::none();
    if kind == KeyKind::Bootstrapping {
        key.bootstrapping_key(form, rng, &quiet, sink).unwrap();
    } else {
        key.key_switching_key(form, rng, &quiet, sink).unwrap();
    }
    bytes
}

pub fn load(
    backend: &dyn Backend,
    params: &ParamSet,
    (kind, form): (KeyKind, KeyForm),
    bytes: &[u8],
) -> Result<Arc<dyn LoadedKey>, BackendError> {
    let mut sink = backend.begin_key(params, kind, form)?;
    // Pieces that end within words and rows.
    for piece in bytes.chunks(100_003) {
        sink.write(piece)?;
    }
    sink.finish()
}

/// A pair of keys as bytes.
pub struct KeyBytes {
    pub form: KeyForm,
    pub bootstrapping: Vec<u8>,
    pub key_switching: Vec<u8>,
}

impl KeyBytes {
    pub fn generate(client: &ClientKey, form: KeyForm, rng: &mut Csprng) -> KeyBytes {
        KeyBytes {
            form,
            bootstrapping: key_bytes(client, KeyKind::Bootstrapping, form, rng),
            key_switching: key_bytes(client, KeyKind::KeySwitching, form, rng),
        }
    }

    pub fn try_load(
        &self,
        backend: &dyn Backend,
        params: &ParamSet,
    ) -> Result<[Arc<dyn LoadedKey>; 2], BackendError> {
        let bootstrapping = (KeyKind::Bootstrapping, self.form);
        let switching = (KeyKind::KeySwitching, self.form);
        Ok([
            load(backend, params, bootstrapping, &self.bootstrapping)?,
            load(backend, params, switching, &self.key_switching)?,
        ])
    }

    pub fn load(&self, backend: &dyn Backend, params: &ParamSet) -> [Arc<dyn LoadedKey>; 2] {
        self.try_load(backend, params).unwrap()
    }
}

/// Canonical random words.
pub fn random_words(params: &ParamSet, count: usize, rng: &mut Csprng) -> Vec<u8> {
    let words = (0..count).map(|_| rng.next_u64());
    match params.modulus {
        ModulusKind::Torus32 => words.flat_map(|word| (word as u32).to_le_bytes()).collect(),
        ModulusKind::Goldilocks => words
            .flat_map(|word| (word % goldilocks::P).to_le_bytes())
            .collect(),
    }
}

/// Samples of random words, with test vectors of random words: the results of exact arithmetic agree whatever they mean.
pub struct Work {
    pub params: &'static ParamSet,
    pub samples: Vec<Vec<u8>>,
    pub test_vectors: Vec<Vec<u8>>,
}

impl Work {
    pub fn random(
        params: &'static ParamSet,
        samples: usize,
        vectors: usize,
        rng: &mut Csprng,
    ) -> Work {
        let mut words = |count| random_words(params, count, rng);
        Work {
            params,
            samples: (0..samples).map(|_| words(params.lwe_words())).collect(),
            test_vectors: (0..vectors)
                .map(|_| words(params.test_vector_words()))
                .collect(),
        }
    }

    /// A batch in which each sample has one of the functions, and the first sample all of them.
    pub fn run(
        &self,
        backend: &dyn Backend,
        keys: &[Arc<dyn LoadedKey>; 2],
        cancel: &CancelToken,
    ) -> Result<Vec<u8>, BackendError> {
        self.run_as(backend, keys, Requester::from(cancel))
    }

    pub fn run_as(
        &self,
        backend: &dyn Backend,
        keys: &[Arc<dyn LoadedKey>; 2],
        requester: Requester<'_>,
    ) -> Result<Vec<u8>, BackendError> {
        let vectors: Vec<&[u8]> = self.test_vectors.iter().map(Vec::as_slice).collect();
        let tasks: Vec<BootstrapTask<'_>> = self
            .samples
            .iter()
            .enumerate()
            .map(|(at, sample)| BootstrapTask {
                test_vectors: match at {
                    0 => &vectors,
                    _ => &vectors[at % vectors.len()..][..1],
                },
                sample,
                input_bits: self.params.message_bits,
            })
            .collect();
        let count: usize = tasks.iter().map(|task| task.test_vectors.len()).sum();
        let mut results = vec![0; count * self.params.lwe_bytes()];
        let [bootstrapping, switching] = keys;
        backend.bootstrap_batch(
            self.params,
            &**bootstrapping,
            &**switching,
            &tasks,
            &mut results,
            requester,
        )?;
        Ok(results)
    }
}

pub fn backend(arithmetic: ArithmeticKind, options: &GpuOptions) -> GpuBackend {
    GpuBackend::new(arithmetic, options).unwrap()
}
