//! Toroid measured against its peers: tfhe-rs and its transforms tfhe-fft and tfhe-ntt.
//!
//! Both sides of a row run in one process, in turn (ours, peer, ours, peer, …), so that whatever else the machine does
//! falls on both alike; every row has processes of its own, so that no row inherits another's memory. Both results are
//! checked. Open [`rows`] for what is measured, [`measure`] for how, [`machine`] for the bounds, [`peer_key`] for the
//! peer's keys, [`outcome`] for the figures of a row, [`environment`] for what they depend on.

mod environment;
mod machine;
mod measure;
mod outcome;
mod peer_key;
mod row;
mod rows;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use serde::de::DeserializeOwned;
use toroid_bench_common::{Error, machine as system, pages};

use crate::environment::Environment;
use crate::machine::Machine;
use crate::measure::Measurement;
use crate::outcome::Outcome;
use crate::row::{Row, Settings};

/// The hidden row that measures the machine.
const MACHINE: &str = "machine";

/// Measures Toroid against its peers, both sides in turn.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Rows to measure, separated by commas: names of --list or their beginnings; all without this
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Runs of each side in a launch instead of the row's own number
    #[arg(long)]
    runs: Option<usize>,
    /// A quarter of the runs, and key generation of the peer on a tenth of the key, scaled
    #[arg(long)]
    quick: bool,
    /// Write cpu.md, cpu.json and cpu.svg to docs/results
    #[arg(long, conflicts_with_all = ["json", "markdown", "svg", "rows"])]
    write: bool,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Draw ours, peer and bound
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the rows and stop
    #[arg(long)]
    list: bool,
    /// Measure one row in this process and print its times as JSON
    #[arg(long, hide = true)]
    launch: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for row in rows::ALL {
            let peer = row.peer.unwrap_or("none");
            println!("{:18} {} (peer: {peer})", row.name, row.title);
        }
        return ExitCode::SUCCESS;
    }
    let outcome = match &arguments.launch {
        Some(name) => launched(name, &arguments),
        None => run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the chosen rows, each in processes of its own, and reports.
fn run(arguments: &Arguments) -> Result<(), Error> {
    let chosen = choose(&arguments.rows)?;
    eprintln!("measuring the machine …");
    let machine: Machine = launch(MACHINE, arguments)?;
    let mut environment = Environment::look(machine);
    let mut outcomes = Vec::new();
    let count = chosen.len();
    for (index, row) in chosen.into_iter().enumerate() {
        eprintln!("[{}/{count}] measuring {} …", index + 1, row.name);
        let mut measurement = Measurement::default();
        for _ in 0..row.launches {
            measurement.extend(launch(row.name, arguments)?);
        }
        let outcome = Outcome::new(row, &machine, measurement, &outcomes);
        eprintln!("{}", outcome.line());
        outcomes.push(outcome);
    }
    environment.load_after = system::load_average();
    let out = arguments.write.then_some(Path::new(pages::RESULTS));
    for page in pages::publish("cpu", &outcomes, &environment, out)? {
        let given = if page.file.ends_with(".md") {
            &arguments.markdown
        } else {
            &arguments.svg
        };
        if let Some(path) = given {
            pages::write(path, &page.text)?;
        }
    }
    if let Some(path) = &arguments.json {
        pages::write(path, &pages::json(&outcomes)?)?;
    }
    Ok(())
}

/// Runs this program for one row, or for the machine.
fn launch<T: DeserializeOwned>(row: &str, arguments: &Arguments) -> Result<T, Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--launch", row]);
    if let Some(runs) = arguments.runs {
        command.args(["--runs", &runs.to_string()]);
    }
    if arguments.quick {
        command.arg("--quick");
    }
    let output = command
        .envs(environment::launch_environment())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{row}: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The inside of [`launch`]: prints the measurement.
fn launched(name: &str, arguments: &Arguments) -> Result<(), Error> {
    if name == MACHINE {
        println!("{}", serde_json::to_string(&Machine::measure())?);
        return Ok(());
    }
    let settings = Settings {
        runs: arguments.runs,
        quick: arguments.quick,
    };
    let row = rows::ALL
        .iter()
        .find(|row| row.name == name)
        .ok_or_else(|| format!("no row {name:?}"))?;
    // Both libraries share their work among rayon's threads where they can: as many for both. The row runs on one of
    // these itself, so that no hand-over is timed.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(row.threads)
        .stack_size(64 << 20)
        .build()?;
    let measurement = pool.install(|| (row.measure)(row, &settings))?;
    println!("{}", serde_json::to_string(&measurement)?);
    Ok(())
}

/// The rows whose names begin with one of the words; all rows for no words.
fn choose(words: &[String]) -> Result<Vec<&'static Row>, Error> {
    if let Some(unknown) = words
        .iter()
        .find(|word| !rows::ALL.iter().any(|row| row.name.starts_with(*word)))
    {
        return Err(format!("no row begins with {unknown:?}: see --list").into());
    }
    Ok(rows::ALL
        .iter()
        .filter(|row| words.is_empty() || words.iter().any(|word| row.name.starts_with(word)))
        .collect())
}
