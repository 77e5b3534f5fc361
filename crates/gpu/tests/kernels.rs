//! The kernels alone, on the processor: against products by definition, with sanitizers, with planted faults; and the PTX that the crate
//! carries.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

fn found(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

/// `shim/check.cpp` with these options of the compiler.
fn compile(folder: &Path, options: &[&str]) -> Result<PathBuf, String> {
    let program = folder.join("check");
    let output = Command::new("c++")
        .args(["-std=c++20", "-O1", "-DTOROID_SHIM"])
        .args(["-Wall", "-Werror", "-Wno-unknown-pragmas"])
        .args(options)
        .args(["-x", "c++", "shim/check.cpp", "shim/fibers.cpp", "-o"])
        .arg(&program)
        .current_dir(kernels())
        .output()
        .unwrap();
    if output.status.success() {
        Ok(program)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Numbers of `enum Fault` in `gpu.h`, without the last one: a thread that does not come to a barrier.
const FAULTS: std::ops::RangeInclusive<u32> = 1..=17;
const ABSENT: u32 = 18;

#[test]
fn kernels_make_the_products_of_the_definition_and_planted_faults_are_found() {
    if !found("c++") {
        println!("SKIPPED: no C++ compiler, so the kernels do not run");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sanitizers = [
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ];
    let program = compile(folder.path(), &sanitizers).unwrap_or_else(|error| {
        println!("SKIPPED: the kernels run without sanitizers, which do not build here: {error}");
        compile(folder.path(), &[]).unwrap()
    });
    let sound = Command::new(&program).output().unwrap();
    assert!(sound.status.success(), "{}", text(&sound));
    println!("{}", text(&sound));

    let program = &program;
    let with = move |fault: u32| {
        Command::new(program)
            .arg(fault.to_string())
            .output()
            .unwrap()
    };
    thread::scope(|scope| {
        let runs: Vec<_> = FAULTS
            .chain([ABSENT])
            .map(|fault| (fault, scope.spawn(move || with(fault))))
            .collect();
        for (fault, run) in runs {
            let output = run.join().unwrap();
            let text = text(&output);
            assert_eq!(output.status.code(), Some(1), "fault {fault}: {text}");
            assert_eq!(
                text.contains("hung"),
                fault == ABSENT,
                "fault {fault}: {text}"
            );
        }
    });
}

#[test]
fn the_ptx_is_what_the_compiler_makes_of_the_kernels() {
    if !found("clang-19") {
        println!("SKIPPED: no clang-19, so nobody sees whether the PTX is up to date");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(kernels().join("compile"))
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    for name in ["toroid.sm_80.ptx", "toroid.sm_90.ptx"] {
        let [made, kept] = [folder.path(), &kernels().join("ptx")]
            .map(|folder| std::fs::read(folder.join(name)).unwrap());
        assert!(
            made == kept,
            "{name} is stale: run crates/gpu/kernels/compile"
        );
    }
}
