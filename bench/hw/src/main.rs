//! The cores measured: `cargo run --release -p toroid-hw-bench -- --help`.

mod bootstrap;
mod elastic;
mod energy;
mod engine;
mod measured;
mod multipliers;
mod operations;
mod rader;
mod routed;
mod row;
mod samples;
mod sdf;
mod sdf_energy;
mod streaming;
mod synthesis;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use toroid_bench_common::machine::Measured;
use toroid_bench_common::{Error, pages};
use toroid_cores::engine::{Form, Shape};
use toroid_sim::memory::Timing;
use toroid_task::Progress;
use toroid_tfhe::params::{ParamSet, StageParams};

use crate::engine::{LOG_LANES, STREAMING_LOG_LANES};

/// Measures the cores of Toroid.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Simulates a bootstrap on the engine and compares it with the integer arithmetic
    Bootstrap {
        /// The parameter set
        #[arg(long, default_value = "paper")]
        params: String,
        /// On the streaming engine
        #[arg(long)]
        streaming: bool,
        /// log2 of the lanes of each circuit, which has half as many butterflies, 7 by default; of the streaming engine, of the
        /// words a cycle through its transform, 6 by default
        #[arg(long)]
        log_lanes: Option<u32>,
        /// Steps of blind rotation instead of the set's n
        #[arg(long)]
        steps: Option<usize>,
        /// Cycles of latency of main memory
        #[arg(long, default_value_t = 64)]
        latency: u64,
        /// Beats per cycle that each port of main memory gives
        #[arg(long, default_value_t = 1.0, value_parser = ratio)]
        bandwidth: f64,
        /// Clock in MHz, for times
        #[arg(long, default_value_t = 200.0, value_parser = positive)]
        clock: f64,
        /// A file for what is printed, with the machine and the date
        #[arg(long)]
        log: Option<PathBuf>,
    },
    /// Synthesizes the whole engine for Xilinx 7 series, piece by piece
    Synth {
        /// The streaming engine
        #[arg(long)]
        streaming: bool,
        /// log2 of the ring degree
        #[arg(long, default_value_t = 14)]
        log_n: u32,
        /// log2 of the lanes of each circuit, 7 by default; of the streaming engine, of the words a cycle through its transform, 6 by
        /// default
        #[arg(long)]
        log_lanes: Option<u32>,
        /// Pieces at once, each of which takes a processor and up to 3 GB
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// Seconds that a piece may take
        #[arg(long, default_value_t = 3600)]
        timeout: u64,
        /// Of pieces that differ in a constant only, map one in so many, and take the others for the mean
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        one_in: u32,
        /// The folder that results are kept in
        #[arg(long, default_value = "target/hw")]
        work: PathBuf,
    },
    /// Estimates the energy of a bootstrap at the set `paper`, which needs OpenSTA and what `synth` found
    Energy {
        /// The folder of the results
        #[arg(long, default_value = "target/hw")]
        work: PathBuf,
    },
    /// Simulates transforms, HomAdd, HomSub, HomIntMult and one step of blind rotation at the set `paper`
    Operations {
        /// The folder of the results
        #[arg(long, default_value = "target/hw")]
        work: PathBuf,
    },
    /// Synthesizes settings of the cores for the resource model of `toroid core explore`; those that the file has are kept
    Samples {
        /// The file, which is part of toroid-explore
        #[arg(long, default_value = "../crates/explore/src/synthesis.json")]
        file: PathBuf,
        /// Seconds that a setting may take
        #[arg(long, default_value_t = 900)]
        timeout: u64,
        /// Synthesize again what the file has
        #[arg(long)]
        again: bool,
        /// The largest settings, too, which take many minutes and gigabytes each
        #[arg(long)]
        large: bool,
    },
    /// Simulates and synthesizes the streaming NTT at every setting of its paper, and with --write writes
    /// docs/results/hw-streaming.md and .json
    Streaming(Page),
    /// Simulates and synthesizes the prime-factor and Rader transform, and with --write writes docs/results/hw-rader.md and .json
    Rader(Page),
    /// Simulates and synthesizes transforms and multipliers by single-delay feedback at the settings of their thesis and larger ones,
    /// and with --write writes docs/results/hw-sdf.md and .json
    Sdf {
        #[command(flatten)]
        page: Page,
        /// Measure only part I of N of the settings, as I/N, for several runs at a time; nothing is written then
        #[arg(long, value_parser = part)]
        part: Option<(usize, usize)>,
    },
    /// Simulates streaming NTTs at settings drawn at random and compares them with the library
    StreamingRandom {
        /// How many settings
        #[arg(long, default_value_t = 100)]
        count: usize,
        /// Seed of the settings, words and stalls
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A file for what is printed, with the machine and the date
        #[arg(long)]
        log: Option<PathBuf>,
    },
    /// Compares all multipliers of polynomials modulo x^N + 1, and with --write writes docs/results/hw-multipliers.md and .json
    Multipliers(Page),
    /// Simulates and synthesizes the elastic NTT, and with --write writes docs/results/hw-elastic.md, .json and the log of its run;
    /// its estimate of an ASIC needs OpenSTA
    Elastic {
        /// Transforms back to back
        #[arg(long, default_value_t = 1000, value_parser = several)]
        count: usize,
        #[command(flatten)]
        page: Page,
    },
    /// Places and routes cores and units, which takes minutes each, and with --write writes docs/results/hw-routed.md and .json after
    /// each; results that are there are kept
    Routed {
        /// Place and route only this; may be repeated. Otherwise all that has no result, or one of other sources
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Where the placer's random choices begin
        #[arg(long, default_value_t = 1)]
        seed: u32,
        /// Write the files
        #[arg(long)]
        write: bool,
        /// Where the results are, and where to write them
        #[arg(long, default_value = "../docs/results")]
        out: PathBuf,
    },
    /// Simulates a sequence of elastic NTTs drawn at random and compares it with the library
    ElasticSequence {
        /// log2 of the lanes
        #[arg(long, default_value_t = 5)]
        log_lanes: u64,
        /// Every modulus is 1 modulo 2^word
        #[arg(long, default_value_t = 10)]
        word: u64,
        /// How many transforms
        #[arg(long, default_value_t = 4, value_parser = several)]
        count: usize,
        /// Seed of the transforms, words and stalls
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A file for what is printed, with the machine and the date
        #[arg(long)]
        log: Option<PathBuf>,
    },
    /// Puts together what the other commands found, as a table, and with --write as docs/results/hw-engine.md, .json and .svg
    Report {
        /// The folder of the results
        #[arg(long, default_value = "target/hw")]
        work: PathBuf,
        /// The log of a bootstrap
        #[arg(long, default_value = "../docs/results/hw-engine-bootstrap.log")]
        log: PathBuf,
        /// The log of a bootstrap of the streaming engine
        #[arg(
            long,
            default_value = "../docs/results/hw-engine-streaming-bootstrap.log"
        )]
        streaming_log: PathBuf,
        /// Take all but the streaming engine's part from the page that there is, and its resources, too, unless there are new ones
        #[arg(long)]
        again: bool,
        /// Write the files
        #[arg(long)]
        write: bool,
        /// Where to write them
        #[arg(long, default_value = "../docs/results")]
        out: PathBuf,
    },
}

/// Where the results of a page are, and where the page goes.
#[derive(clap::Args)]
struct Page {
    /// The folder that results are kept in; what is there is not measured again
    #[arg(long, default_value = "target/hw")]
    work: PathBuf,
    /// Write the files
    #[arg(long)]
    write: bool,
    /// Where to write them
    #[arg(long, default_value = "../docs/results")]
    out: PathBuf,
}

impl Page {
    /// Where to write, if at all.
    fn out(&self) -> Option<&Path> {
        self.write.then_some(self.out.as_path())
    }
}

/// A positive number.
fn positive(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a positive number".to_owned())
}

/// At least two.
fn several(text: &str) -> Result<usize, String> {
    let value = text.parse().ok().filter(|value: &usize| *value >= 2);
    value.ok_or_else(|| "expected a number of at least 2".to_owned())
}

/// I/N, with I below N.
fn part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(part, parts)| {
        let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
        (part < parts).then_some((part, parts))
    });
    numbers.ok_or_else(|| "expected I/N with I below N, from 0".to_owned())
}

/// More than 0, at most 1.
fn ratio(text: &str) -> Result<f64, String> {
    let value = positive(text).ok().filter(|value| *value <= 1.0);
    value.ok_or_else(|| "expected a number above 0 and at most 1".to_owned())
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
            streaming,
            log_lanes,
            steps,
            latency,
            bandwidth,
            clock,
            log,
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
            let shown = bar.clone();
            let progress = Progress::new(move |_, now, all| {
                shown.set_length(all);
                shown.set_position(now);
            });
            let (form, log_lanes) = sized(streaming, log_lanes);
            let measured = bootstrap::bootstrap(form, &params, log_lanes, timing, &progress)?;
            bar.finish_and_clear();
            let time = measured.cycles as f64 / clock / 1e3;
            let seconds = measured.simulated.as_secs_f64();
            let text = format!(
                "{}, memory {latency} cycles at {bandwidth} beats per cycle\n\
                 {}\n\
                 cycles: {} (formula: {}), {time:.3} ms at {clock} MHz\n\
                 main memory: {} beats of {} bytes\n\
                 simulation: {seconds:.1} s, {:.0} cycles/s; model made in {:.1} s\n",
                engine::setting(Shape::of(form, &params, log_lanes)?),
                bootstrap::EQUAL[0],
                measured.cycles,
                measured.formula,
                measured.beats_read,
                measured.beat_bytes,
                measured.cycles as f64 / seconds,
                measured.built.as_secs_f64()
            );
            print!("{text}");
            if let Some(path) = log {
                let command: Vec<String> = std::env::args().skip(1).collect();
                let head = format!(
                    "toroid-hw-bench {}\n{}\n",
                    command.join(" "),
                    Measured::now().line()
                );
                pages::write(&path, &(head + &text))?;
            }
        }
        Commands::Synth {
            streaming,
            log_n,
            log_lanes,
            jobs,
            timeout,
            one_in,
            work,
        } => {
            let timeout = Duration::from_secs(timeout);
            let one_in = one_in as usize;
            let (form, log_lanes) = sized(streaming, log_lanes);
            let whole = synthesis::synthesize(
                form,
                log_n,
                log_lanes,
                &work,
                synthesis::Limits {
                    jobs,
                    timeout,
                    one_in,
                },
            )?;
            pages::keep(&work, &synthesis::name(form, log_n, log_lanes), &whole)?;
            print!("{}", pages::json(&whole)?);
            if !whole.failed.is_empty() {
                return Err(format!(
                    "not all pieces could be mapped:\n{}",
                    whole.failed.join("\n")
                )
                .into());
            }
        }
        Commands::Energy { work } => {
            let shape = Shape::new(&toroid_tfhe::params::PAPER, LOG_LANES)?;
            let name = synthesis::name(Form::InPlace, shape.log_n(), LOG_LANES);
            let whole = pages::kept(&work, &name)?;
            let estimate = energy::estimate(shape, &whole, &work)?;
            pages::keep(&work, "energy", &estimate)?;
            print!("{}", pages::json(&estimate)?);
        }
        Commands::Operations { work } => {
            let found = operations::measure(&toroid_tfhe::params::PAPER, LOG_LANES)?;
            pages::keep(&work, "operations", &found)?;
            print!("{}", pages::json(&found)?);
        }
        Commands::Samples {
            file,
            timeout,
            again,
            large,
        } => samples::write(&file, Duration::from_secs(timeout), again, large)?,
        Commands::Streaming(page) => streaming::page(&page.work, page.out())?,
        Commands::Rader(page) => rader::page(&page.work, page.out())?,
        Commands::Sdf { page, part } => sdf::page(&page.work, page.out(), part)?,
        Commands::StreamingRandom { count, seed, log } => {
            streaming::random(count, seed, log.as_deref())?;
        }
        Commands::Multipliers(page) => multipliers::page(&page.work, page.out())?,
        Commands::Elastic { count, page } => elastic::page(&page.work, count, page.out())?,
        Commands::Routed {
            only,
            seed,
            write,
            out,
        } => routed::page(&only, seed, &out, write)?,
        Commands::ElasticSequence {
            log_lanes,
            word,
            count,
            seed,
            log,
        } => elastic::sequence(log_lanes, word, count, seed, log.as_deref())?,
        Commands::Report {
            work,
            log,
            streaming_log,
            again,
            write,
            out,
        } => {
            let to = write.then_some(out.as_path());
            if again {
                engine::page_again(&work, &out, &streaming_log, to)?;
            } else {
                engine::page(&work, &log, &streaming_log, to)?;
            }
        }
    }
    Ok(())
}

/// Which engine, and the log2 of its lanes.
fn sized(streaming: bool, log_lanes: Option<u32>) -> (Form, u32) {
    match streaming {
        false => (Form::InPlace, log_lanes.unwrap_or(LOG_LANES)),
        true => (Form::Streaming, log_lanes.unwrap_or(STREAMING_LOG_LANES)),
    }
}

/// A parameter set by its name, with another n if wanted.
fn find(name: &str, steps: Option<usize>) -> Result<ParamSet, Error> {
    let set = ParamSet::ALL.into_iter().find(|set| set.name == name);
    let set = set.ok_or_else(|| format!("there is no parameter set {name}"))?;
    Ok(match steps {
        None => *set,
        Some(lwe_dimension) => ParamSet {
            stage: StageParams {
                lwe_dimension,
                ..set.stage
            },
            ..*set
        },
    })
}
