//! The library of a driver without a device, for tests of this crate and of those above it.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library, built from its sources once; `None`, said by name, where there is no C++ compiler.
pub fn driver() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        if Command::new("c++").arg("--version").output().is_err() {
            return None;
        }
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/kernels");
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
