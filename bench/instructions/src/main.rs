//! Counts the instructions of Toroid's kernels under Valgrind's Callgrind and compares them with the counts kept in
//! `counts.json`: a check for regressions that does not depend on how busy the machine is.
//!
//! Every kernel runs in a process of its own, on one thread, from fixed seeds; only what it does inside one function is
//! counted. Callgrind knows no AVX-512, so the kernels for AVX2 and the portable ones are counted. Open [`kernels`] for
//! what they are. Encryption and decryption are counted with two keys and messages each, which must not make a difference.

mod kernels;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use serde::{Deserialize, Serialize};
use toroid_ring::simd::SimdLevel;

use crate::kernels::{Error, Kernel};

/// Counts the instructions of the kernels and compares them with those kept.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Keep these counts instead of comparing
    #[arg(long)]
    update: bool,
    /// Only kernels whose names begin so
    #[arg(long, conflicts_with = "update")]
    only: Option<String>,
    /// Largest difference that passes, in percent
    #[arg(long, default_value_t = 2.0)]
    tolerance: f64,
    /// Run one kernel in this process
    #[arg(long, hide = true)]
    kernel: Option<String>,
}

/// The counts as they are kept.
#[derive(Serialize, Deserialize)]
struct Counts {
    /// The compiler that they belong to.
    compiler: String,
    /// Instructions, by instruction set and kernel.
    counts: BTreeMap<String, BTreeMap<String, u64>>,
}

const COMPILER: &str = env!("RUSTC_VERSION");
const SETS: [SimdLevel; 2] = [SimdLevel::Avx2, SimdLevel::Portable];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.kernel {
        Some(name) => run_kernel(name).map(|()| true),
        None => compare(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The inside of [`count`].
fn run_kernel(name: &str) -> Result<(), Error> {
    let kernel = kernels::ALL
        .iter()
        .find(|kernel| kernel.name == name)
        .ok_or_else(|| format!("no kernel {name:?}"))?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()?
        .install(|| kernel.run())
}

/// Instructions of a kernel with the code for an instruction set.
fn count(kernel: &Kernel, simd: SimdLevel) -> Result<u64, Error> {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*toroid_instructions*kernels*counted*",
        ])
        .arg(std::env::current_exe()?)
        .args(["--kernel", kernel.name])
        .env("TOROID_SIMD", simd.to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{} with {simd}: {}\n{text}", kernel.name, output.status).into());
    }
    text.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("{} with {simd}: nothing counted\n{text}", kernel.name).into())
}

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/counts.json"))
}

fn kept() -> Result<Counts, Error> {
    let path = file();
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error}; --update writes it", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Counts, and keeps the counts or says whether they are those kept.
fn compare(arguments: &Arguments) -> Result<bool, Error> {
    let before = match kept() {
        Ok(counts) => counts.counts,
        Err(_) if arguments.update => BTreeMap::new(),
        Err(error) => return Err(error),
    };
    let chosen = |kernel: &&Kernel| {
        arguments
            .only
            .as_ref()
            .is_none_or(|word| kernel.name.starts_with(word))
    };
    let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let (mut worse, mut better, mut unknown) = (0, 0, 0);
    println!("| kernel | instruction set | instructions | kept | difference | |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for simd in SETS {
        for kernel in kernels::ALL.iter().filter(chosen) {
            let found = count(kernel, simd)?;
            let of_set = counts.entry(simd.to_string()).or_default();
            of_set.insert(kernel.name.to_owned(), found);
            let old = before
                .get(&simd.to_string())
                .and_then(|counts| counts.get(kernel.name));
            let Some(old) = old else {
                unknown += 1;
                println!("| {} | {simd} | {found} | - | - | NEW |", kernel.name);
                continue;
            };
            let difference = 100.0 * (found as f64 / *old as f64 - 1.0);
            let verdict = if difference > arguments.tolerance {
                worse += 1;
                "MORE"
            } else if difference < -arguments.tolerance {
                better += 1;
                "fewer"
            } else {
                ""
            };
            println!(
                "| {} | {simd} | {found} | {old} | {difference:+.2} % | {verdict} |",
                kernel.name
            );
        }
    }
    let mut depends = 0;
    for (set, counts) in &counts {
        for [one, other] in kernels::SAME {
            if counts.get(one) != counts.get(other) {
                depends += 1;
                println!("\n{one} takes other instructions for other secrets, with {set}");
            }
        }
    }
    if arguments.update {
        let counts = Counts {
            compiler: COMPILER.to_owned(),
            counts,
        };
        std::fs::write(file(), serde_json::to_string_pretty(&counts)? + "\n")?;
        return Ok(true);
    }
    let compiler = kept()?.compiler;
    if compiler != COMPILER {
        println!("\nThe counts kept are those of {compiler}; this is {COMPILER}.");
    }
    println!(
        "\n{worse} above the tolerance of {} %, {better} below it (keep these with --update), {unknown} new.",
        arguments.tolerance
    );
    Ok(worse == 0 && unknown == 0 && depends == 0)
}
