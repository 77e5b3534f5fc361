//! Tables on whole columns measured: `cargo run --release -p toroid-column-engine-bench -- --write`.
//!
//! [`ours`] evaluates random tables on a random column, [`peer`] does the same with OpenFHE, [`samples`] evaluates functions sample by
//! sample with our library and tfhe-rs. Each runs in processes of its own, so that memory is counted apart. Every value is decrypted
//! and compared with the table's.

mod ours;
mod peer;
mod process;
mod row;
mod samples;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use serde_json::Value;
use toroid_bench_common::{Error, machine, pages, speed};

/// Measures tables on whole columns.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Bits of the messages
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 12, 16])]
    bits: Vec<u32>,
    /// Threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// A CPython 3.10, for which OpenFHE's package is built
    #[arg(long, default_value = "python3.10")]
    python: PathBuf,
    /// Measure neither OpenFHE nor single samples, and print a line of JSON for each measurement
    #[arg(long, conflicts_with = "write")]
    alone: bool,
    /// Write column-engine.md and column-engine.json to docs/results
    #[arg(long, conflicts_with_all = ["bits", "threads"])]
    write: bool,
    /// Evaluate tables of so many bits in this process and print the figures
    #[arg(long, hide = true)]
    child: Option<u32>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("column engine bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    if let Some(bits) = arguments.child {
        let threads = arguments.threads.first().copied().unwrap_or(1);
        println!("{}", serde_json::to_string(&ours::measure(bits, threads)?)?);
        return Ok(());
    }
    let (date, load) = (machine::date(), machine::load_average());
    let read = speed::read(1);
    let mut rows = Vec::new();
    let (mut engines, mut peers) = (Vec::new(), Vec::new());
    let python = match arguments.alone {
        true => None,
        false => Some(peer::install(&arguments.python)?),
    };
    for &bits in &arguments.bits {
        for &threads in &arguments.threads {
            eprintln!("{bits} bits, threads: {threads}");
            let mut child = Command::new(std::env::current_exe()?);
            child.args(["--child", &bits.to_string()]);
            child.args(["--threads", &threads.to_string()]);
            let ours: ours::Figures = process::answer(&mut child)?;
            if arguments.alone {
                println!("{}", serde_json::to_string(&ours)?);
            }
            let peer = match &python {
                Some(python) if peer::BITS.contains(&bits) => {
                    eprintln!("{bits} bits, threads: {threads}, OpenFHE");
                    Some(peer::measure(python, bits, threads)?)
                }
                _ => None,
            };
            rows.extend(row::tables(&ours, peer.as_ref()));
            engines.push(ours);
            peers.extend(peer);
        }
    }
    if arguments.alone {
        return Ok(());
    }
    eprintln!("single samples");
    rows.extend(row::break_even(&samples::measure()?, &engines));
    let machine = machine::describe();
    let data = serde_json::json!({
        "date": date,
        "other": other(kept()?, &machine),
        "machine": machine,
        "instructions": ours::instructions(),
        "load": load,
        "load_after": machine::load_average(),
        "read": read,
        "peer": peer::NAME,
        "engines": engines,
        "peers": peers,
    });
    let out = arguments.write.then_some(Path::new(pages::RESULTS));
    pages::publish("column-engine", &rows, &data, out)?;
    Ok(())
}

/// The figures that are kept, if any are.
fn kept() -> Result<Option<Value>, Error> {
    let folder = Path::new(pages::RESULTS).join("data");
    match folder.join("column-engine.json").exists() {
        true => pages::kept(&folder, "column-engine").map(Some),
        false => Ok(None),
    }
}

/// Of the figures that are kept, those of other processors than this machine's: of two others the later ones.
fn other(kept: Option<Value>, machine: &str) -> Option<Value> {
    // A system's version follows its processors.
    let processors = |machine: &str| machine.split(", ").next().map(str::to_owned);
    let mut kept = kept?;
    let before = kept.as_object_mut()?.remove("other");
    match kept["machine"].as_str() {
        Some(of) if processors(of) == processors(machine) => before.filter(|it| !it.is_null()),
        _ => Some(kept),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_of_another_processor_are_kept() {
        let run = |machine: &str, date: u32| json!({ "machine": machine, "date": date });
        let with = |mut run: Value, other: Value| {
            run["other"] = other;
            run
        };
        assert_eq!(other(None, "2 processors (A), Linux 1"), None);
        let first = run("2 processors (A), Linux 1", 1);
        let same = other(Some(first.clone()), "2 processors (A), Linux 2");
        assert_eq!(same, None);
        let alone = with(first.clone(), Value::Null);
        assert_eq!(other(Some(alone), "2 processors (A), Linux 1"), None);
        let beside = other(Some(first.clone()), "2 processors (B), Linux 1");
        assert_eq!(beside, Some(first.clone()));
        let second = with(run("2 processors (B), Linux 1", 2), first.clone());
        let again = other(Some(second.clone()), "2 processors (B), Linux 3");
        assert_eq!(again, Some(first));
        let third = other(Some(second), "2 processors (C), Linux 1");
        assert_eq!(third, Some(run("2 processors (B), Linux 1", 2)));
    }
}
