//! Functions of single samples: the rows of the benchmark of bootstraps, by that benchmark.

use std::process::Command;

use serde::Deserialize;
use toroid_bench_common::Error;

/// Bits of the input and the benchmark's row of a function of so many bits.
const ROWS: [(u32, &str); 2] = [(1, "nand"), (16, "wide-16")];

/// A function of one sample, on one thread.
pub struct Sample {
    pub bits: u32,
    pub milliseconds: f64,
    pub peer: String,
    pub peer_milliseconds: f64,
}

#[derive(Deserialize)]
struct Outcome {
    row: String,
    ours: f64,
    unit: String,
    peer: Option<String>,
    peer_value: Option<f64>,
}

/// Measures them.
pub fn measure() -> Result<Vec<Sample>, Error> {
    let file = tempfile::NamedTempFile::new()?;
    let names = ROWS.map(|(_, name)| name).join(",");
    let status = Command::new(env!("CARGO"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(["run", "--release", "--locked", "--package", "toroid-bench"])
        .args(["--", "--rows", &names, "--json"])
        .arg(file.path())
        .stdout(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("the benchmark of bootstraps ended with {status}").into());
    }
    let outcomes: Vec<Outcome> = serde_json::from_slice(&std::fs::read(file.path())?)?;
    let mut samples = Vec::new();
    for (bits, name) in ROWS {
        let Some(outcome) = outcomes.iter().find(|outcome| outcome.row == name) else {
            continue;
        };
        if outcome.unit != "ms" {
            return Err(format!("row {name} is in {}, not in ms", outcome.unit).into());
        }
        samples.push(Sample {
            bits,
            milliseconds: outcome.ours,
            peer: outcome.peer.clone().unwrap_or_default(),
            peer_milliseconds: outcome.peer_value.unwrap_or(f64::NAN),
        });
    }
    Ok(samples)
}
