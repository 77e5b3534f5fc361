//! The figures of a server at one moment: metrics, the page in the browser, `toroid drive top` and the Python package all show these.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toroid_drive::bridge::DriveStatistics;
use toroid_drive::{Drive, HostStatistics};
use toroid_nvme::Controller;

use super::drives::Served;
use super::metrics::Sources;

/// What the JSON says it is.
const KIND: &str = "drive";
/// Failures of a drive that the JSON has, the newest ones.
const ERRORS: usize = 10;
/// Hosts of a drive that the JSON has: those with the most programs.
const HOSTS: usize = 50;

/// Of a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figures {
    /// `drive`.
    pub kind: String,
    /// Of the program.
    pub version: String,
    /// Since the server began.
    pub uptime_seconds: f64,
    /// Whether every drive can be written, and the server is not about to end.
    pub ok: bool,
    /// Whether the server is about to end.
    pub stopping: bool,
    pub connections: Connections,
    pub commands: Commands,
    pub memory: ProcessMemory,
    pub bootstraps: Bootstraps,
    pub drives: Vec<DriveFigures>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Connections {
    pub now: u64,
    pub controllers: u64,
    /// Data, input and output that they hold now.
    pub bytes: u64,
    pub accepted: u64,
    pub refused: u64,
    pub failed: u64,
}

/// I/O commands.
#[derive(Debug, Serialize, Deserialize)]
pub struct Commands {
    pub in_flight: u64,
    pub abandoned: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// What is in main memory; `None` where the operating system does not tell.
    pub process_bytes: Option<u64>,
}

/// Of the arithmetic, which all drives share.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bootstraps {
    /// Calls that wait for cores now.
    pub waiting: u64,
    /// Passes over keys.
    pub batches: u64,
    /// Bootstraps done together with those of another program.
    pub batched: u64,
}

/// Of one drive.
#[derive(Debug, Serialize, Deserialize)]
pub struct DriveFigures {
    pub subsystem: String,
    pub nsid: u32,
    pub read_only: bool,
    pub rows: u64,
    pub bootstraps: u64,
    pub pages_in: u64,
    pub pages_out: u64,
    pub register_bytes: u64,
    pub media_errors: u64,
    pub programs: Programs,
    pub memory: Memory,
    pub space: Space,
    pub running: Vec<Running>,
    pub hosts: Vec<Host>,
    pub errors: Vec<Failure>,
    /// How many hosts are known, with those that `hosts` leaves out.
    pub hosts_known: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Programs {
    pub running: u64,
    /// Triggers that wait for a thread or for another program.
    pub waiting: u64,
    pub ran: u64,
    pub failed: u64,
    /// Time of those that ran to their end.
    pub seconds: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Memory {
    pub samples_bytes: u64,
    pub samples_limit: u64,
    pub swapped_bytes: u64,
    pub swap_bytes: u64,
    pub keys_bytes: u64,
    pub keys_limit: u64,
}

/// Of the image.
#[derive(Debug, Serialize, Deserialize)]
pub struct Space {
    /// The size of the file, or of the namespace on a block device.
    pub bytes: u64,
    /// What of it takes room, with the swap area; `None` for a block device.
    pub used_bytes: Option<u64>,
    /// Free in its file system; `None` for a block device.
    pub free_bytes: Option<u64>,
}

/// A program that runs now.
#[derive(Debug, Serialize, Deserialize)]
pub struct Running {
    pub program: String,
    /// Empty: the drive itself.
    pub host: String,
    pub seconds: f64,
    /// As far as can be told from the rows that are done.
    pub seconds_left: Option<f64>,
    pub rows: u64,
    pub rows_done: u64,
    pub bootstraps_done: u64,
}

/// What a host did.
#[derive(Debug, Serialize, Deserialize)]
pub struct Host {
    pub host: String,
    pub programs: u64,
    pub rows: u64,
    pub bootstraps: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub failures: u64,
}

/// A command that failed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Counts the failures of the drive, from 1.
    pub count: u64,
    pub status: String,
    pub reason: String,
}

impl Figures {
    /// The figures of now.
    pub fn of(sources: &Sources) -> Figures {
        let target = sources.target.statistics();
        let counts = sources.counters.snapshot();
        let backend = sources.backend.statistics();
        let drives: Vec<DriveFigures> = sources.drives.iter().map(DriveFigures::of).collect();
        let stopping = sources.target.is_closing();
        Figures {
            kind: KIND.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: sources.started.elapsed().as_secs_f64(),
            ok: !stopping && drives.iter().all(|drive| !drive.read_only),
            stopping,
            connections: Connections {
                now: target.connections,
                controllers: target.controllers,
                bytes: target.bytes_in_flight,
                accepted: target.accepted,
                refused: target.refused,
                failed: target.failed,
            },
            commands: Commands {
                in_flight: counts.in_flight,
                abandoned: counts.abandoned,
                read_bytes: counts.bytes_read,
                written_bytes: counts.bytes_written,
            },
            memory: ProcessMemory {
                process_bytes: process_bytes(),
            },
            bootstraps: Bootstraps {
                waiting: backend.waiting,
                batches: backend.batches,
                batched: backend.batched,
            },
            drives,
        }
    }

    /// What the page and `toroid drive top` get: without all but the newest failures and the busiest hosts.
    pub fn short(mut self) -> Figures {
        for drive in &mut self.drives {
            drive.errors.truncate(ERRORS);
            drive
                .hosts
                .sort_by_key(|host| std::cmp::Reverse(host.programs));
            drive.hosts.truncate(HOSTS);
        }
        self
    }
}

impl DriveFigures {
    fn of(served: &Served) -> DriveFigures {
        let drive = &*served.drive;
        let statistics = drive.statistics();
        let (keys_bytes, keys_limit) = drive.engine().persistent_bytes();
        let errors = drive.errors().into_iter();
        let running: Vec<Running> = running(drive);
        DriveFigures {
            subsystem: served.subsystem.clone(),
            nsid: served.nsid,
            read_only: drive.health().read_only,
            rows: statistics.rows,
            bootstraps: statistics.bootstraps,
            pages_in: statistics.paging.page_ins,
            pages_out: statistics.paging.page_outs,
            register_bytes: statistics.bytes_stored,
            media_errors: statistics.media_errors,
            programs: programs(&statistics, running.len() as u64),
            memory: Memory {
                samples_bytes: statistics.paging.resident_bytes,
                samples_limit: drive.engine().config().paged_bytes,
                swapped_bytes: statistics.paging.swapped_bytes,
                swap_bytes: drive.image().swap_len(),
                keys_bytes,
                keys_limit,
            },
            space: space(served),
            running,
            // The drive's own name is empty.
            hosts_known: statistics
                .hosts
                .keys()
                .filter(|name| !name.is_empty())
                .count() as u64,
            hosts: hosts(&statistics),
            errors: errors
                .map(|error| Failure {
                    count: error.count,
                    status: Drive::explain(error.status),
                    reason: error.reason,
                })
                .collect(),
        }
    }
}

fn programs(statistics: &DriveStatistics, running: u64) -> Programs {
    let of_keys = statistics.programs.values();
    Programs {
        running,
        waiting: statistics.waiting_programs as u64,
        ran: of_keys.clone().map(|of| of.runs).sum(),
        failed: of_keys.clone().map(|of| of.failures).sum(),
        seconds: of_keys.map(|of| of.total.as_secs_f64()).sum(),
    }
}

fn running(drive: &Drive) -> Vec<Running> {
    let programs = drive.running_programs().into_iter();
    programs
        .map(|program| {
            let (rows, rows_done) = (program.rows, program.rows_done);
            let seconds = program.time.as_secs_f64();
            let left = rows.saturating_sub(rows_done) as f64;
            Running {
                program: program.program.to_string(),
                host: program.host,
                seconds,
                seconds_left: (rows_done > 0).then(|| seconds * left / rows_done as f64),
                rows,
                rows_done,
                bootstraps_done: program.bootstraps_done,
            }
        })
        .collect()
}

fn hosts(statistics: &DriveStatistics) -> Vec<Host> {
    let named = statistics.hosts.iter().filter(|(name, _)| !name.is_empty());
    let host = |(name, of): (&String, &HostStatistics)| Host {
        host: name.clone(),
        programs: of.programs,
        rows: of.rows,
        bootstraps: of.bootstraps,
        read_bytes: of.bytes_read,
        written_bytes: of.bytes_written,
        failures: of.failed,
    };
    named.map(host).collect()
}

fn space(served: &Served) -> Space {
    let file = fs::metadata(&served.image)
        .ok()
        .filter(fs::Metadata::is_file);
    let namespaces = &served.drive.info().namespaces;
    let device = || {
        namespaces
            .iter()
            .map(toroid_nvme::Namespace::capacity)
            .sum()
    };
    Space {
        bytes: file.as_ref().map_or_else(device, fs::Metadata::len),
        used_bytes: file.as_ref().and_then(allocated),
        free_bytes: file.and_then(|_| free(&served.image)),
    }
}

#[cfg(unix)]
fn allocated(file: &fs::Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;

    Some(file.blocks() * 512)
}

#[cfg(not(unix))]
fn allocated(_: &fs::Metadata) -> Option<u64> {
    None
}

#[cfg(unix)]
fn free(image: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(image).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}

/// Main memory that the process takes.
fn process_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = resident.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
