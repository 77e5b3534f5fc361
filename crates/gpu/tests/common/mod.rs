//! The driver without a device, keys and samples.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part of it, and a failed test panics"
)]

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CString, c_char, c_int, c_longlong};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// The library, built from its sources once; `None`, said by name, where there is no C++ compiler.
pub fn driver() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        if Command::new("c++").arg("--version").output().is_err() {
            return None;
        }
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let mut hasher = DefaultHasher::new();
        for folder in [kernels.clone(), kernels.join("shim")] {
            let mut files: Vec<_> = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.is_file())
                .collect();
            files.sort();
            for file in files {
                fs::read(file).unwrap().hash(&mut hasher);
            }
        }
        let name = format!("libdriver-{:016x}.so", hasher.finish());
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if !library.exists() {
            let made = library.with_extension(std::process::id().to_string());
            let output = Command::new("c++")
                .args(["-std=c++20", "-O2", "-shared", "-fPIC", "-DTOROID_SHIM"])
                .args(["-Wno-unknown-pragmas", "-x", "c++"])
                .args(["shim/driver.cpp", "shim/fibers.cpp", "-o"])
                .arg(&made)
                .current_dir(kernels)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            fs::rename(made, &library).unwrap();
        }
        Some(library)
    });
    if built.is_none() {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        println!("SKIPPED {name}: no C++ compiler, so the kernels do not run");
    }
    built.as_deref()
}

pub fn options(driver: &Path) -> GpuOptions {
    GpuOptions {
        driver: Some(driver.to_owned()),
        ..GpuOptions::default()
    }
}

/// Sets a property of the process's devices.
pub fn configure(driver: &Path, key: &str, value: i64) {
    type Configure = unsafe extern "C" fn(*const c_char, c_longlong) -> c_int;
    // Held, since what was set goes with the library.
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let key = CString::new(key).unwrap();
    // SAFETY: the library is this crate's, and its function takes text that ends with 0, and a number.
    let result = unsafe {
        let library = LIBRARY.get_or_init(|| Library::new(driver).unwrap());
        let configure = library.get::<Configure>("toroid_shim_configure").unwrap();
        configure(key.as_ptr(), value)
    };
    assert_eq!(result, 0);
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
