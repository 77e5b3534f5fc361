//! A served drive under a mixed load for a long time: does its memory stay what it was?
//!
//! ```sh
//! cargo build --release -p toroid
//! cargo run --release -p toroid-nvme --example soak -- target/release/toroid --seconds 3600 --pause 100 --curve soak.csv
//! ```
//!
//! The server is a process of its own, `toroid drive serve` on loopback with two images. On one, connections read, write, compare and flush blocks
//! ([`blocks`]). On the other, commands of `toroid` replace keys, run programs and map columns ([`computing`]), reads trigger a program, and hosts
//! come and go, politely or not ([`visitors`]). All that comes back is compared with what it must be.
//!
//! It prints what came of it as tables, with the server's memory over time, and fails if a command took longer than 30 s, failed, or brought what
//! it should not.

mod blocks;
mod computing;
mod server;
mod visitors;

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use toroid_nvme::Response;

use server::{Server, Usage};

type Failure = Box<dyn Error + Send + Sync>;

/// What counts as a time-out.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the server has to return memory when the hosts are gone.
const IDLE: Duration = Duration::from_secs(5);

/// Puts a served drive under a mixed load.
#[derive(Parser)]
struct Options {
    /// The program that serves
    toroid: PathBuf,
    /// How long
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Connections that work on blocks
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Commands of each of them at a time
    #[arg(long, default_value_t = 32)]
    commands: usize,
    /// Milliseconds between two commands on the same blocks, and between two reads that trigger a program
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Seconds between two rounds of commands of `toroid`, and between two visits
    #[arg(long, default_value_t = 1)]
    round: u64,
    /// Rounds after which the keys are replaced
    #[arg(long, default_value_t = 10)]
    keys: u64,
    /// Looks at the server's memory
    #[arg(long, default_value_t = 60)]
    looks: u32,
    /// A file for the looks, as comma-separated values
    #[arg(long)]
    curve: Option<PathBuf>,
}

/// What was done, and the longest time of a command.
#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    compares: AtomicU64,
    flushes: AtomicU64,
    programs: AtomicU64,
    triggered_reads: AtomicU64,
    rows: AtomicU64,
    keys: AtomicU64,
    visits: AtomicU64,
    worst: AtomicU64,
    keep_alive_worst: AtomicU64,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Numbers that differ from place to place.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

async fn timed(
    command: impl Future<Output = Response>,
    worst: &AtomicU64,
) -> Result<Response, Failure> {
    let start = Instant::now();
    let response = tokio::time::timeout(LIMIT, command)
        .await
        .map_err(|_| "a command took longer than 30 s")?;
    worst.fetch_max(start.elapsed().as_micros() as u64, Ordering::Relaxed);
    Ok(response)
}

/// Looks at the server until `end`. The file has each look at once.
async fn watch(
    server: &Server,
    options: &Options,
    begin: Instant,
    counters: &Counters,
) -> Result<Vec<(u64, Usage)>, Failure> {
    let mut file = options.curve.as_ref().map(File::create).transpose()?;
    if let Some(file) = &mut file {
        writeln!(
            file,
            "seconds,resident_kib,anonymous_kib,sockets,block_commands,programs,triggered_reads,rows,keys,visits"
        )?;
    }
    let mut curve = Vec::new();
    for look in 1..=options.looks {
        let share = f64::from(look) / f64::from(options.looks);
        let after = Duration::from_secs_f64((options.seconds as f64 - 1.0) * share);
        tokio::time::sleep_until((begin + after).into()).await;
        let usage = server.usage()?;
        if let Some(file) = &mut file {
            let Usage {
                resident,
                anonymous,
                sockets,
            } = usage;
            writeln!(
                file,
                "{},{resident},{anonymous},{sockets},{},{},{},{},{},{}",
                after.as_secs(),
                counters.of_blocks(),
                get(&counters.programs),
                get(&counters.triggered_reads),
                get(&counters.rows),
                get(&counters.keys),
                get(&counters.visits),
            )?;
        }
        curve.push((after.as_secs(), usage));
    }
    Ok(curve)
}

impl Counters {
    fn of_blocks(&self) -> u64 {
        [&self.reads, &self.writes, &self.compares, &self.flushes]
            .map(get)
            .iter()
            .sum()
    }
}

async fn soak(server: Arc<Server>, options: Options) -> Result<(), Failure> {
    let counters = Arc::new(Counters::default());
    blocks::clear(&server, &options).await?;
    computing::prepare(&server)?;
    let begin = Instant::now();
    let end = begin + Duration::from_secs(options.seconds);
    let mut tasks = tokio::task::JoinSet::new();
    blocks::start(&server, &options, end, &counters, &mut tasks).await?;
    {
        let (server, counters) = (Arc::clone(&server), Arc::clone(&counters));
        let (round, keys) = (Duration::from_secs(options.round), options.keys);
        tasks.spawn_blocking(move || computing::work(&server, end, round, keys, &counters));
    }
    let pause = Duration::from_millis(options.pause);
    tasks.spawn(computing::trigger(
        Arc::clone(&server),
        end,
        pause,
        Arc::clone(&counters),
    ));
    tasks.spawn(visitors::come(
        Arc::clone(&server),
        end,
        Duration::from_secs(options.round),
        Arc::clone(&counters),
    ));
    let ended = async {
        while let Some(result) = tasks.join_next().await {
            result??;
        }
        Ok::<_, Failure>(())
    };
    // A failure ends the run at once.
    let (curve, ()) = tokio::try_join!(watch(&server, &options, begin, &counters), ended)?;
    let elapsed = begin.elapsed().as_secs_f64();
    // The hosts are gone; so are, soon, their connections.
    let mut left = usize::MAX;
    for _ in 0..100 {
        left = server.usage()?.sockets;
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(IDLE).await;
    let after = server.usage()?;
    report(&options, &counters, elapsed, &curve, after);
    if left > 0 {
        return Err("connections stay open".into());
    }
    Ok(())
}

fn report(
    options: &Options,
    counters: &Counters,
    elapsed: f64,
    curve: &[(u64, Usage)],
    after: Usage,
) {
    let Counters {
        reads,
        writes,
        compares,
        flushes,
        programs,
        triggered_reads,
        rows,
        keys,
        visits,
        worst,
        keep_alive_worst,
    } = counters;
    let all = counters.of_blocks();
    let milliseconds = |counter: &AtomicU64| get(counter) as f64 / 1000.0;
    let numbers = |counters: &[&AtomicU64]| {
        let numbers = counters.iter().map(|counter| get(counter).to_string());
        numbers.collect::<Vec<_>>().join(", ")
    };
    let (connections, commands) = (options.connections, options.commands);
    println!("| {connections} connections with {commands} commands each | {elapsed:.0} s |");
    println!("| --- | ---: |");
    let rate = all as f64 / elapsed;
    println!("| commands on blocks | {all} ({rate:.0} per second) |");
    let kinds = numbers(&[reads, writes, compares, flushes]);
    println!("| reads, writes, compares, flushes | {kinds} |");
    let computed = numbers(&[programs, triggered_reads, rows]);
    println!("| programs by commands and by reads, rows mapped | {computed} |");
    let others = numbers(&[keys, visits]);
    println!("| keys replaced, visits | {others} |");
    println!("| failures, wrong contents, time-outs | 0 |");
    println!("| longest command | {:.0} ms |", milliseconds(worst));
    let keep_alive = milliseconds(keep_alive_worst);
    println!("| longest Keep Alive | {keep_alive:.0} ms |");
    println!();
    println!("| after | resident MiB | of it anonymous | connections |");
    println!("| ---: | ---: | ---: | ---: |");
    let mebibytes = |kibibytes: u64| format!("{:.1}", kibibytes as f64 / 1024.0);
    let row = |when: String, usage: &Usage| {
        let (resident, anonymous) = (mebibytes(usage.resident), mebibytes(usage.anonymous));
        println!("| {when} | {resident} | {anonymous} | {} |", usage.sockets);
    };
    for (seconds, usage) in curve {
        row(format!("{seconds} s"), usage);
    }
    row(format!("{} s without hosts", IDLE.as_secs()), &after);
}

fn run(options: Options) -> Result<(), Failure> {
    let server = Arc::new(Server::start(&options)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(soak(server, options))
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
