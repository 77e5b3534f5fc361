//! The speed of a drive over NVMe/TCP on loopback: `cargo run --release -p toroid-nvme-bench -- --write`.
//!
//! The client and the target run in one process, each as one thread on a processor of its own; the target's thread opens the drive, whose threads
//! stay on its processor. Reads go to random places of a file in the page cache, so that the figures are those of the drive and its transport, not
//! of a medium. [`compute`] measures a command that triggers a program, on all processors.

mod compute;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rustix::thread::{CpuSet, sched_setaffinity};
use toroid_bench_common::{Error, machine, pages};
use toroid_drive::image::{FormatOptions, MetadataMode};
use toroid_nvme::tcp::Digests;
use toroid_nvme::write_blocks;
use toroid_nvme_bench::load::{BLOCK, Load, SPAN};
use toroid_nvme_bench::loopback::{connect, connect_encrypted, make_image, runtime, serve_here};
use toroid_nvme_bench::row::{Row, Unit};

/// Measures a drive over NVMe/TCP on loopback.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Seconds of each of a row's runs
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Runs of each row
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Where the image is put; the system's temporary folder without this
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Leave out the row of a command that triggers a program
    #[arg(long)]
    plain: bool,
    /// Write nvme.md and nvme.json to docs/results
    #[arg(long, conflicts_with = "plain")]
    write: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nvme bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let data = serde_json::json!({
        "machine": machine::describe(),
        "load": machine::load_average(),
    });
    let mut rows = plain(arguments)?;
    if !arguments.plain {
        rows.push(compute::row(arguments.folder.as_deref())?);
    }
    let out = arguments.write.then_some(Path::new(pages::RESULTS));
    pages::publish("nvme", &rows, &data, out)?;
    Ok(())
}

/// Keeps the calling thread, and those that it will start, on one processor.
fn pin(processor: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

/// The rows of plain reads and writes.
fn plain(arguments: &Arguments) -> Result<Vec<Row>, Error> {
    let options = FormatOptions {
        size: 2 * SPAN,
        swap: 16 << 20,
        metadata_mode: MetadataMode::SecondHalf,
        ..FormatOptions::default()
    };
    let (_folder, path) = make_image(arguments.folder.as_deref(), &options)?;
    let (started, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let result = pin(0).and_then(|()| serve_here(&path, started));
        if let Err(error) = result {
            eprintln!("target: {error}");
        }
    });
    let (address, _drive) = address.recv()?;
    pin(1)?;
    runtime()?.block_on(async {
        let host = connect(address, Digests::default()).await?;
        let noise: Vec<u8> = (0..1 << 20)
            .map(|i: u32| (i.wrapping_mul(0x9E37_79B9) >> 24) as u8)
            .collect();
        for slba in (0..SPAN / BLOCK).step_by(noise.len() / BLOCK as usize) {
            write_blocks(&host, 1, slba, &noise, &[], false).await?;
        }
        let digested = connect(
            address,
            Digests {
                header: true,
                data: true,
            },
        )
        .await?;
        let encrypted = connect_encrypted(address).await?;
        let all = [
            Load {
                name: "4 KiB random read, queue depth 128",
                depth: 128,
                bytes: 4 << 10,
                write: false,
                unit: Unit::Iops,
                bar: Some(100_000.0),
                host: &host,
            },
            Load {
                name: "4 KiB random read, queue depth 1",
                depth: 1,
                bytes: 4 << 10,
                write: false,
                unit: Unit::Iops,
                bar: Some(20_000.0),
                host: &host,
            },
            Load {
                name: "128 KiB read, queue depth 16",
                depth: 16,
                bytes: 128 << 10,
                write: false,
                unit: Unit::Bytes,
                bar: Some(1.5e9),
                host: &host,
            },
            Load {
                name: "4 KiB random read, queue depth 128, both digests",
                depth: 128,
                bytes: 4 << 10,
                write: false,
                unit: Unit::Iops,
                bar: None,
                host: &digested,
            },
            Load {
                name: "128 KiB read, queue depth 16, both digests",
                depth: 16,
                bytes: 128 << 10,
                write: false,
                unit: Unit::Bytes,
                bar: None,
                host: &digested,
            },
            Load {
                name: "4 KiB random write, queue depth 128",
                depth: 128,
                bytes: 4 << 10,
                write: true,
                unit: Unit::Iops,
                bar: None,
                host: &host,
            },
            Load {
                name: "128 KiB write, queue depth 16",
                depth: 16,
                bytes: 128 << 10,
                write: true,
                unit: Unit::Bytes,
                bar: None,
                host: &host,
            },
            Load {
                name: "4 KiB random read, queue depth 128, TLS",
                depth: 128,
                bytes: 4 << 10,
                write: false,
                unit: Unit::Iops,
                bar: None,
                host: &encrypted,
            },
            Load {
                name: "4 KiB random read, queue depth 1, TLS",
                depth: 1,
                bytes: 4 << 10,
                write: false,
                unit: Unit::Iops,
                bar: None,
                host: &encrypted,
            },
            Load {
                name: "128 KiB read, queue depth 16, TLS",
                depth: 16,
                bytes: 128 << 10,
                write: false,
                unit: Unit::Bytes,
                bar: None,
                host: &encrypted,
            },
            Load {
                name: "128 KiB write, queue depth 16, TLS",
                depth: 16,
                bytes: 128 << 10,
                write: true,
                unit: Unit::Bytes,
                bar: None,
                host: &encrypted,
            },
        ];
        let mut rows = Vec::new();
        for load in &all {
            eprintln!("measuring {} …", load.name);
            let mut rates = Vec::new();
            for _ in 0..arguments.runs.max(1) {
                rates.push(
                    load.rate(Duration::from_secs_f64(arguments.seconds))
                        .await?,
                );
            }
            rows.push(Row::throughput(load.name, load.unit, rates, load.bar));
        }
        Ok(rows)
    })
}
