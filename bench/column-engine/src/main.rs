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
        "other": other(&machine),
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

/// The figures that are kept of another machine: those kept last, or those that they had beside them.
fn other(machine: &str) -> Option<serde_json::Value> {
    let folder = Path::new(pages::RESULTS).join("data");
    let mut kept: serde_json::Map<_, _> = pages::kept(&folder, "column-engine").ok()?;
    let before = kept.remove("other");
    match kept.get("machine").and_then(|kept| kept.as_str()) {
        Some(kept) if kept == machine => before,
        _ => Some(kept.into()),
    }
}
