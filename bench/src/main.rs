//! Toroid measured against its peers: tfhe-rs and its transforms tfhe-fft and tfhe-ntt.
//!
//! Both sides of a row run in one process, on one thread, in turn (ours, peer, ours, peer, …), so that whatever else the
//! machine does falls on both alike; every row has processes of its own, so that no row inherits another's memory. Both
//! results are checked. Open [`rows`] for what is measured, [`measure`] for how, [`peer_key`] for the peer's keys.

mod measure;
mod peer_key;
mod report;
mod rows;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;

use crate::measure::Measurement;
use crate::report::{Machine, Outcome};
use crate::rows::{Row, Settings};

/// What a row can fail with.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measures Toroid against its peers, both sides in turn, on one thread.
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
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
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
            println!("{:14} {} (peer: {})", row.name, row.title, row.peer);
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
    let mut machine = Machine::look();
    print!("{}", report::machine_lines(&machine));
    let mut outcomes = Vec::new();
    for row in chosen {
        eprintln!("measuring {} …", row.name);
        let mut measurement = Measurement::default();
        for _ in 0..row.launches {
            measurement.extend(launch(row, arguments)?);
        }
        let outcome = Outcome::new(row, measurement);
        eprintln!("{}", outcome.line());
        outcomes.push(outcome);
    }
    machine.load_after = report::load_average();
    print!("{}", report::table(&outcomes));
    print!("{}", report::notes(&machine, &outcomes));
    if let Some(path) = &arguments.markdown {
        write(path, &report::markdown(&machine, &outcomes))?;
    }
    if let Some(path) = &arguments.json {
        write(path, &report::json(&outcomes)?)?;
    }
    Ok(())
}

/// Writes a file, and the folders above it where there are none.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Runs this program for one row.
fn launch(row: &Row, arguments: &Arguments) -> Result<Measurement, Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--launch", row.name]);
    if let Some(runs) = arguments.runs {
        command.args(["--runs", &runs.to_string()]);
    }
    if arguments.quick {
        command.arg("--quick");
    }
    let output = command
        .envs(report::launch_environment())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", row.name, output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The inside of [`launch`]: prints the measurement of one row.
fn launched(name: &str, arguments: &Arguments) -> Result<(), Error> {
    let settings = Settings {
        runs: arguments.runs,
        quick: arguments.quick,
    };
    let row = rows::ALL
        .iter()
        .find(|row| row.name == name)
        .ok_or_else(|| format!("no row {name:?}"))?;
    // Both libraries share their work among rayon's threads where they can: one thread for both. The row runs on that
    // thread itself, so that no hand-over is timed.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
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
