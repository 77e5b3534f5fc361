//! OpenFHE, by its Python package in an environment of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use toroid_bench_common::Error;

/// Its name and version.
pub const NAME: &str = "OpenFHE 1.6.1";

/// Bits of the tables for which it has parameters.
pub const BITS: [u32; 2] = [1, 8];

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peer.py");
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/requirements.txt");
const ENVIRONMENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/column-engine-python"
);

/// Seconds of a step.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Lap {
    pub wall_s: f64,
    pub processor_s: f64,
}

/// What the script prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    pub bits: u32,
    #[serde(default)]
    pub threads: usize,
    pub values: usize,
    pub degree: usize,
    pub prime_bits: u32,
    pub depth: usize,
    pub setup: Lap,
    pub keys: Lap,
    pub table: Lap,
    pub shared: Lap,
    pub further: Lap,
    pub checked: u64,
    pub wrong: u64,
    pub sigma_steps: f64,
    pub worst_steps: f64,
    pub peak_mib: f64,
}

/// Installs the package; returns the interpreter that has it.
pub fn install(python: &Path) -> Result<PathBuf, Error> {
    let folder = Path::new(ENVIRONMENT);
    let (interpreter, complete) = (folder.join("bin/python"), folder.join("complete"));
    let wanted = fs::read_to_string(REQUIREMENTS)?;
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == wanted) {
        return Ok(interpreter);
    }
    succeed(
        Command::new(python)
            .args(["-I", "-m", "venv", "--clear"])
            .arg(folder),
    )?;
    let pip = ["-I", "-m", "pip", "install", "--quiet", "--requirement"];
    succeed(Command::new(&interpreter).args(pip).arg(REQUIREMENTS))?;
    fs::write(complete, wanted)?;
    Ok(interpreter)
}

fn succeed(command: &mut Command) -> Result<(), Error> {
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !status.success() {
        return Err(format!("{command:?} ended with {status}").into());
    }
    Ok(())
}

/// Evaluates tables.
pub fn measure(python: &Path, bits: u32, threads: usize) -> Result<Figures, Error> {
    let mut script = Command::new(python);
    script.args(["-I", SCRIPT, &bits.to_string()]);
    script.env("OMP_NUM_THREADS", threads.to_string());
    let mut figures: Figures = crate::process::answer(&mut script)?;
    figures.threads = threads;
    Ok(figures)
}
