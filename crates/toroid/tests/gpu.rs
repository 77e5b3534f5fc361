//! `--backend gpu` and `auto` on a machine without a device.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::process::{Command, Output};

fn demo(backend: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toroid"))
        .args(["demo", "--params", "tiny", "--backend", backend])
        .env("TOROID_CUDA_DRIVER", "/nowhere/libcuda.so")
        .output()
        .unwrap()
}

const REASON: &str = "no CUDA driver: /nowhere/libcuda.so does not exist";

#[test]
fn without_a_device_gpu_fails_and_auto_takes_the_processor() {
    let refused = demo("gpu");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("--backend gpu: {REASON}")), "{said}");
    let done = demo("auto");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let note = format!("computing on the processor: {REASON}");
    assert!(said.contains(&note), "{said}");
}
