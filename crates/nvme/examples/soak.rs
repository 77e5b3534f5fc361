//! A drive under the load of many hosts for a long time: 64 connections with 32 commands each, reads, writes, compares and flushes whose content
//! is checked, against `toroid drive serve` in a process of its own.
//!
//! ```sh
//! cargo build --release -p toroid
//! cargo run --release -p toroid-nvme --example soak -- target/release/toroid [SECONDS [CONNECTIONS [COMMANDS]]]
//! ```
//!
//! Prints what came of it as a table, with the server's memory over time. Fails if a command took longer than 30 s, failed, or brought what it should not.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use toroid_nvme::fabrics::{ConnectOptions, RemoteController};
use toroid_nvme::tcp::{self, Address};
use toroid_nvme::{Controller, Request, Response, Sqe, Status, admin, write_zeroes};

type Failure = Box<dyn Error + Send + Sync>;

const BLOCK: usize = 4096;
/// Blocks of each of the commands' places.
const BLOCKS: u64 = 16;
/// What counts as a time-out.
const LIMIT: Duration = Duration::from_secs(30);
const NQN: &str = "nqn.2024-01.io.example:soak";
/// Controllers that one host may have.
const CONTROLLERS_PER_HOST: usize = 8;
/// How often the server's memory is looked at.
const SAMPLES: u32 = 20;
/// How long the server has to return memory when the hosts are gone.
const IDLE: Duration = Duration::from_secs(5);

struct Server {
    child: Child,
    address: Address,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    fn start(toroid: &Path, bytes: u64) -> Result<Server, Failure> {
        let folder = std::env::temp_dir().join(format!("toroid-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let image = folder.join("d.img");
        let format = Command::new(toroid)
            .args(["drive", "format", "--swap", "1MiB", "--size"])
            .arg(format!("{}KiB", bytes / 1024))
            .arg(&image)
            .status()?;
        if !format.success() {
            return Err("the image could not be formatted".into());
        }
        let mut child = Command::new(toroid)
            .args(["drive", "serve", "--listen", "127.0.0.1:0"])
            .args(["--log-level", "warn", "--nqn", NQN])
            .arg(&image)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = None;
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines().take(4) {
                let line = line?;
                let mut words = line.split_whitespace();
                address = words.find_map(|word| word.parse::<Address>().ok());
                if address.is_some() {
                    break;
                }
            }
        }
        let address = address.ok_or("the server told no address")?;
        Ok(Server {
            child,
            address,
            folder,
        })
    }

    /// Resident memory in KiB, and open connections.
    fn usage(&self) -> Result<(u64, usize), Failure> {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = std::fs::read_to_string(process.join("status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.split_whitespace().next());
        // Without the socket that listens.
        let is_socket = |file: &std::fs::DirEntry| {
            let target = std::fs::read_link(file.path());
            target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        };
        let files = std::fs::read_dir(process.join("fd"))?.flatten();
        let sockets = files.filter(is_socket).count().saturating_sub(1);
        Ok((resident.ok_or("no VmRSS")?.parse()?, sockets))
    }
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    compares: AtomicU64,
    flushes: AtomicU64,
    worst: AtomicU64,
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

/// Content of a block: it tells its place and its version.
fn put(lba: u64, version: u64, data: &mut Vec<u8>) {
    for _ in 0..BLOCK / 16 {
        data.extend_from_slice(&lba.to_le_bytes());
        data.extend_from_slice(&version.to_le_bytes());
    }
}

/// Commands at one place, one after the other, until `end`.
async fn place(
    controller: Arc<RemoteController>,
    start: u64,
    end: Instant,
    counters: Arc<Counters>,
) -> Result<(), Failure> {
    let mut versions = [0u64; BLOCKS as usize];
    let mut numbers = Numbers(start << 1 | 1);
    let mut version = 0;
    while Instant::now() < end {
        let first = numbers.below(BLOCKS);
        let most = if numbers.below(8) == 0 { BLOCKS } else { 2 };
        let count = (1 + numbers.below(most)).min(BLOCKS - first);
        let range = first as usize..(first + count) as usize;
        let (slba, nlb) = (start + first, (count - 1) as u16);
        let choice = numbers.below(1000);
        let (sqe, counter) = match choice {
            0..=1 => (Sqe::flush(0, 1), &counters.flushes),
            2..=80 => (Sqe::compare(0, 1, slba, nlb), &counters.compares),
            81..=540 => (Sqe::write(0, 1, slba, nlb), &counters.writes),
            _ => (Sqe::read(0, 1, slba, nlb), &counters.reads),
        };
        let writes = (81..=540).contains(&choice);
        if writes {
            version += 1;
            versions[range.clone()].fill(version);
        }
        let mut content = Vec::new();
        for (lba, version) in (slba..).zip(&versions[range]) {
            match version {
                0 => content.resize(content.len() + BLOCK, 0),
                version => put(lba, *version, &mut content),
            }
        }
        // Every eighth comparison is with something else.
        let differs = (2..=80).contains(&choice) && choice.is_multiple_of(8);
        if differs {
            content[0] ^= 0x55;
        }
        let data = if (2..=540).contains(&choice) {
            content.clone()
        } else {
            Vec::new()
        };
        let request = Request {
            sqe,
            data,
            metadata: Vec::new(),
        };
        let response = timed(controller.submit(request), &counters.worst).await?;
        let expected = if differs {
            Status::COMPARE_FAILURE
        } else {
            Status::SUCCESS
        };
        if response.cqe.status() != expected {
            return Err(format!("{sqe}: {}", response.cqe.status()).into());
        }
        if choice > 540 && response.data != content {
            return Err(format!("{sqe}: not what was written").into());
        }
        counter.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn soak(
    server: &Server,
    seconds: u64,
    connections: usize,
    commands: usize,
) -> Result<(), Failure> {
    let counters = Arc::new(Counters::default());
    let keep_alive_worst = Arc::new(AtomicU64::new(0));
    {
        // Zeroes over what formatting has put there.
        let options = ConnectOptions::new("nqn.2024-01.io.example:host", [99; 16]);
        let controller = tcp::connect(&server.address, &options).await?;
        let blocks = (connections * commands) as u64 * BLOCKS;
        write_zeroes(&controller, 1, 0, blocks).await?;
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let mut tasks = tokio::task::JoinSet::new();
    let mut first = None;
    for number in 0..connections {
        let id = (number / CONTROLLERS_PER_HOST) as u8 + 1;
        let options = ConnectOptions {
            queue_entries: commands as u16 + 1,
            timeout: LIMIT,
            ..ConnectOptions::new(format!("nqn.2024-01.io.example:host-{id}"), [id; 16])
        };
        let controller = Arc::new(tcp::connect(&server.address, &options).await?);
        first.get_or_insert_with(|| Arc::clone(&controller));
        for i in 0..commands {
            let start = ((number * commands + i) as u64) * BLOCKS;
            tasks.spawn(place(
                Arc::clone(&controller),
                start,
                end,
                Arc::clone(&counters),
            ));
        }
    }
    let first = first.ok_or("no connections")?;
    let worst = Arc::clone(&keep_alive_worst);
    let keep_alive = tokio::spawn(async move {
        while Instant::now() < end {
            let request = Request::new(Sqe {
                opcode: admin::opcode::KEEP_ALIVE,
                ..Sqe::default()
            });
            let response = timed(first.admin(request), &worst).await?;
            if response.cqe.status() != Status::SUCCESS {
                return Err(Failure::from("Keep Alive failed"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    });
    let mut curve = Vec::new();
    for sample in 1..=SAMPLES {
        let after = Duration::from_secs_f64(
            (seconds as f64 - 1.0) * f64::from(sample) / f64::from(SAMPLES),
        );
        tokio::time::sleep_until((begin + after).into()).await;
        let (resident, sockets) = server.usage()?;
        curve.push((after.as_secs(), resident, sockets));
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    keep_alive.await??;
    let elapsed = begin.elapsed().as_secs_f64();
    // The hosts are gone; so are, soon, their connections.
    let mut sockets_after = usize::MAX;
    for _ in 0..100 {
        sockets_after = server.usage()?.1;
        if sockets_after == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (reads, writes) = (get(&counters.reads), get(&counters.writes));
    let (compares, flushes) = (get(&counters.compares), get(&counters.flushes));
    let all = reads + writes + compares + flushes;
    let milliseconds = |counter: &AtomicU64| get(counter) as f64 / 1000.0;
    println!("| {connections} connections with {commands} commands each | {elapsed:.0} s |");
    println!("| --- | ---: |");
    println!(
        "| commands | {all} ({:.0} per second) |",
        all as f64 / elapsed
    );
    println!("| reads, writes, compares, flushes | {reads}, {writes}, {compares}, {flushes} |");
    println!("| failures, wrong contents, time-outs | 0 |");
    println!(
        "| longest command | {:.0} ms |",
        milliseconds(&counters.worst)
    );
    println!(
        "| longest Keep Alive | {:.0} ms |",
        milliseconds(&keep_alive_worst)
    );
    let mebibytes = |kibibytes: u64| format!("{:.1} MiB", kibibytes as f64 / 1024.0);
    for (after, resident, sockets) in curve {
        println!(
            "| server after {after} s | {}, {sockets} connections |",
            mebibytes(resident)
        );
    }
    tokio::time::sleep(IDLE).await;
    let (resident, sockets) = server.usage()?;
    println!(
        "| server {} s after the hosts | {}, {sockets} connections |",
        IDLE.as_secs(),
        mebibytes(resident)
    );
    if sockets_after > 0 {
        return Err("connections stay open".into());
    }
    Ok(())
}

fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let toroid = arguments
        .next()
        .ok_or("usage: soak TOROID [SECONDS [CONNECTIONS [COMMANDS]]]")?;
    let mut number = |default: usize| match arguments.next() {
        Some(text) => text
            .parse()
            .map_err(|_| format!("{text:?} is not a number")),
        None => Ok(default),
    };
    let (seconds, connections, commands) = (number(600)?, number(64)?, number(32)?);
    let blocks = (connections * commands) as u64 * BLOCKS;
    let server = Server::start(Path::new(&toroid), blocks * BLOCK as u64)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(soak(&server, seconds as u64, connections, commands))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
