//! The cores measured: `cargo run --release -p toroid-hw-bench -- --help`.

mod bootstrap;
mod energy;
mod synthesis;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use toroid_cosim::memory::Timing;
use toroid_tfhe::params::ParamSet;

/// What a measurement can fail with.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measures the cores of Toroid.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Simulates a bootstrap on the engine and compares it with the exact path
    Bootstrap {
        /// The parameter set
        #[arg(long, default_value = "paper")]
        params: String,
        /// log2 of the lanes of each circuit, which has half as many butterflies
        #[arg(long, default_value_t = 7)]
        log_lanes: u32,
        /// Steps of blind rotation instead of the set's n
        #[arg(long)]
        steps: Option<usize>,
        /// Cycles of latency of main memory
        #[arg(long, default_value_t = 64)]
        latency: u64,
        /// Beats a cycle that each port of main memory gives
        #[arg(long, default_value_t = 1.0)]
        bandwidth: f64,
        /// Clock in MHz, for times
        #[arg(long, default_value_t = 200.0)]
        clock: f64,
    },
    /// Synthesizes the whole engine for Xilinx 7 series, piece by piece
    Synth {
        /// log2 of the ring degree
        #[arg(long, default_value_t = 14)]
        log_n: u32,
        /// log2 of the lanes of each circuit
        #[arg(long, default_value_t = 7)]
        log_lanes: u32,
        /// Pieces at once, each of which takes a processor and up to 3 GB
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// Seconds that a piece may take
        #[arg(long, default_value_t = 3600)]
        timeout: u64,
        /// The folder that results are kept in
        #[arg(long, default_value = "target/hw")]
        work: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Error> {
    match arguments.command {
        Commands::Bootstrap {
            params,
            log_lanes,
            steps,
            latency,
            bandwidth,
            clock,
        } => {
            let params = find(&params, steps)?;
            let timing = Timing {
                latency,
                bandwidth,
                ..Timing::default()
            };
            let bar = ProgressBar::new(0);
            bar.set_style(ProgressStyle::with_template(
                "{wide_bar} {pos}/{len} cycles, {per_sec}, {eta} left",
            )?);
            let measured = bootstrap::bootstrap(params, log_lanes, timing, &|now, all| {
                bar.set_length(all);
                bar.set_position(now);
            })?;
            bar.finish_and_clear();
            let time = measured.cycles as f64 / clock / 1e3;
            println!(
                "{}: n = {}, N = {}, {} butterflies, memory {latency} cycles at {bandwidth} beats a cycle",
                params.name,
                params.lwe_dimension,
                params.ring_degree,
                1 << log_lanes
            );
            println!("result: equal to the exact path, word by word");
            println!(
                "cycles: {} (formula: {}), {time:.3} ms at {clock} MHz",
                measured.cycles, measured.formula
            );
            println!(
                "main memory: {} beats of {} bytes",
                measured.beats_read,
                8 << log_lanes
            );
            println!(
                "simulation: {:.1} s, {:.0} cycles/s; model made in {:.1} s",
                measured.simulated.as_secs_f64(),
                measured.cycles as f64 / measured.simulated.as_secs_f64(),
                measured.built.as_secs_f64()
            );
        }
        Commands::Synth {
            log_n,
            log_lanes,
            jobs,
            timeout,
            work,
        } => {
            let timeout = Duration::from_secs(timeout);
            let whole = synthesis::synthesize(
                log_n,
                log_lanes,
                &work,
                synthesis::Limits { jobs, timeout },
            )?;
            print!("{}", synthesis::table(&whole));
            if !whole.failed.is_empty() {
                return Err(format!(
                    "not all pieces could be mapped:\n{}",
                    whole.failed.join("\n")
                )
                .into());
            }
        }
    }
    Ok(())
}

/// A parameter set by its name, with another n if wanted.
fn find(name: &str, steps: Option<usize>) -> Result<&'static ParamSet, Error> {
    let set = ParamSet::ALL.into_iter().find(|set| set.name == name);
    let set = set.ok_or_else(|| format!("there is no parameter set {name}"))?;
    Ok(match steps {
        None => set,
        Some(lwe_dimension) => Box::leak(Box::new(ParamSet {
            lwe_dimension,
            ..*set
        })),
    })
}
