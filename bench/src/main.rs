//! Toroid measured against its peers: tfhe-rs and its transforms tfhe-fft and tfhe-ntt.
//!
//! Both sides run in one process, on one thread, in turn (ours, peer, ours, peer, …), so that whatever else the machine
//! does falls on both alike. Every side decrypts and checks its result before it is timed. Open [`rows`] for what is
//! measured, [`measure`] for how, [`peer_key`] for the peer's keys.

mod measure;
mod peer_key;
mod report;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

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
    /// Runs of every row instead of the row's own number
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for row in rows::ALL {
            println!("{:14} {} (peer: {})", row.name, row.title, row.peer);
        }
        return ExitCode::SUCCESS;
    }
    report::ask_for_huge_pages();
    // Both libraries share their work among rayon's threads where they can: one thread for both. The row runs on that
    // thread itself, so that no hand-over is timed.
    let outcome = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .stack_size(64 << 20)
        .build()
        .map_err(Error::from)
        .and_then(|pool| pool.install(|| run(&arguments)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let settings = Settings {
        runs: arguments.runs,
        quick: arguments.quick,
    };
    let chosen = choose(&arguments.rows)?;
    let mut machine = Machine::look();
    print!("{}", report::machine_lines(&machine));
    let mut outcomes = Vec::new();
    for row in chosen {
        eprintln!("measuring {} …", row.name);
        let measurement =
            (row.measure)(row, &settings).map_err(|error| format!("{}: {error}", row.name))?;
        let outcome = Outcome::new(row, measurement);
        eprintln!("{}", outcome.line());
        outcomes.push(outcome);
    }
    machine.load_after = report::load_average();
    print!("{}", report::table(&outcomes));
    print!("{}", report::notes(&machine, &outcomes));
    if let Some(path) = &arguments.markdown {
        std::fs::write(path, report::markdown(&machine, &outcomes))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &arguments.json {
        std::fs::write(path, report::json(&outcomes)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
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
