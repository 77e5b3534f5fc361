//! Columns measured: `cargo run --release -p toroid-columns-bench -- --write`.
//!
//! [`programs`] runs the example programs on rows, by the engine, [`storage`] keeps a million rows on a drive, and [`sizes`] compares bytes with
//! the peer's. Every result is decrypted and compared with that of plain numbers.

mod numbers;
mod programs;
mod row;
mod sizes;
mod storage;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use toroid_bench_common::{Error, machine, pages};
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{MESSAGE16, ParamSet};
use toroid_tfhe::random::Csprng;

use crate::row::Part;

/// Rows of the column on a drive in a quick run.
const QUICK_NUMBERS: usize = 20_000;
/// Rows that a quick run filters.
const QUICK_ROWS: usize = 16;

/// Measures columns.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Rows that the program of examples/columns/filter.tasm works on
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(16..=4095))]
    rows: u16,
    /// Rows of the column on a drive
    #[arg(long, default_value_t = 1_000_000)]
    numbers: usize,
    /// Parameter set; programs run with message16 alone
    #[arg(long, default_value = MESSAGE16.name)]
    set: String,
    /// A few rows, no example but the filter
    #[arg(long, conflicts_with = "write")]
    quick: bool,
    /// One part alone
    #[arg(long, value_enum, conflicts_with = "write")]
    only: Option<Part>,
    /// Write columns.md and columns.json to docs/results
    #[arg(long, conflicts_with_all = ["set", "numbers"])]
    write: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("columns bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let params = ParamSet::by_name(&arguments.set)
        .ok_or_else(|| format!("no parameter set {}", arguments.set))?;
    let quick = arguments.quick;
    let filtered = match quick {
        true => QUICK_ROWS,
        false => arguments.rows.into(),
    };
    let count = match quick {
        true => arguments.numbers.min(QUICK_NUMBERS),
        false => arguments.numbers,
    };
    let (date, load) = (machine::date(), machine::load_average());
    let client = ClientKey::generate(params, &mut Csprng::from_os()?);
    let mut rows = Vec::new();
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    // First, so that the peak of the memory is that of programs.
    if *params == MESSAGE16 && (wants(Part::Filter) || wants(Part::Examples)) {
        let others = !quick && wants(Part::Examples);
        rows.extend(programs::measure(&client, filtered, !others)?);
    }
    let column = storage::Numbers::new(params, count)?;
    if wants(Part::Storage) {
        rows.extend(storage::on_an_image(&client, &column)?);
        rows.extend(storage::over_tcp(&client, &column)?);
    }
    if wants(Part::Sizes) {
        rows.extend(sizes::measure(params, count as u64)?);
    }
    let data = serde_json::json!({
        "date": date,
        "machine": machine::describe(),
        "processors": machine::processors(),
        "load": load,
        "load_after": machine::load_average(),
        "set": params.name,
        "filtered": filtered,
        "numbers": count,
        "bits": column.bits,
        "sum_bits": column.encoding.bits(),
        "runs": storage::RUNS,
        "peer": sizes::PEER,
    });
    let out = arguments.write.then_some(Path::new(pages::RESULTS));
    pages::publish("columns", &rows, &data, out)?;
    Ok(())
}
