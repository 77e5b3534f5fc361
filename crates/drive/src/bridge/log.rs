//! What the drive tells of its work: trace, error log, statistics.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toroid_engine::{InstructionTiming, PagingStatistics};
use toroid_isa::VrNumber;
use toroid_nvme::{ErrorInformation, ErrorLog, Sqe, Status};

use super::access::{Account, Accounts, HostStatistics};
use super::under_way::UnderWay;
use crate::ssd::SsdError;

/// Program runs that are kept.
const KEPT: usize = 256;
/// Events that a trace holds at most; later ones are left out.
const TRACE_EVENTS: usize = 1 << 20;

/// One step of the drive's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time since the drive was opened.
    pub at: Duration,
    /// What happened.
    pub kind: TraceKind,
}

/// What happened. The numbers in brackets are those of the arrows in Fig. 3 of the platform paper (read / write).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// The host submitted a command (1).
    HostCommand {
        /// The command.
        sqe: Sqe,
    },
    /// The drive issued a command to the SSD (2 / 4). Namespace [`SWAP_NSID`](crate::SWAP_NSID) is the swap area.
    SsdCommand {
        /// The command; its identifier is that of the host command that it is issued for.
        sqe: Sqe,
    },
    /// The SSD completed a command (4 / 6).
    SsdCompletion {
        /// The command.
        sqe: Sqe,
        /// Its status.
        status: Status,
    },
    /// A program began (5 / 3).
    ProgramStarted {
        /// Command identifier of the trigger.
        cid: u16,
        /// Register of the program.
        program: VrNumber,
        /// The sample whose read or write triggered it.
        trigger: VrNumber,
    },
    /// A program ended. With status success the result takes the place of the data.
    ProgramEnded {
        /// Command identifier of the trigger.
        cid: u16,
        /// Register of the program.
        program: VrNumber,
        /// Success, or why it failed.
        status: Status,
    },
    /// A page leaves main memory for the swap area; the SSD command follows.
    PageOut {
        /// Command identifier of the paging trigger command.
        cid: u16,
        /// Byte offset in the swap area.
        offset: u64,
        /// Bytes of the page.
        bytes: u64,
    },
    /// A page comes back from the swap area; the SSD command follows.
    PageIn {
        /// Command identifier of the paging trigger command.
        cid: u16,
        /// Byte offset in the swap area.
        offset: u64,
        /// Bytes of the page.
        bytes: u64,
    },
    /// The completion went to the host (7).
    Completion {
        /// Command identifier.
        cid: u16,
        /// Status.
        status: Status,
    },
}

/// A program that ran to its end.
#[derive(Clone, Debug)]
pub struct ProgramRun {
    /// Command identifier of the trigger.
    pub cid: u16,
    /// The sample whose read or write triggered it.
    pub trigger: VrNumber,
    /// The register that was returned.
    pub returned: VrNumber,
    /// Time of the program, without waiting for others to end, but with waiting for cores.
    pub duration: Duration,
    /// Every instruction in the order of execution.
    pub instructions: Vec<InstructionTiming>,
    /// Noise variance of the result over the torus.
    pub variance: f64,
    /// log2 of the probability that some bootstrap behind the result failed.
    pub log2_failure: f64,
    /// Pages read from the swap area.
    pub page_ins: u64,
    /// Pages written to the swap area.
    pub page_outs: u64,
}

/// The programs of one key id since the drive was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramStatistics {
    /// Programs that ran to their end.
    pub runs: u64,
    /// Programs that failed or were cancelled.
    pub failures: u64,
    /// Time of all that ran to their end.
    pub total: Duration,
    /// Time of the longest.
    pub longest: Duration,
}

/// Counters since the drive was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveStatistics {
    /// Read commands that succeeded.
    pub reads: u64,
    /// Write commands that succeeded.
    pub writes: u64,
    /// Flush commands that succeeded.
    pub flushes: u64,
    /// Other commands that succeeded.
    pub others: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Bytes of data read by the host.
    pub bytes_read: u64,
    /// Bytes of data written by the host.
    pub bytes_written: u64,
    /// Bytes of objects that went into virtual registers.
    pub bytes_stored: u64,
    /// Rows that programs have computed, as far as they are; a program on single samples has one row.
    pub rows: u64,
    /// Bootstraps that programs have done, as far as they are.
    pub bootstraps: u64,
    /// Programs by key id.
    pub programs: BTreeMap<u32, ProgramStatistics>,
    /// What each host did, by its name. The drive itself, as a host, has the empty name.
    pub hosts: BTreeMap<String, HostStatistics>,
    /// The paged area.
    pub paging: PagingStatistics,
    /// Triggers that wait for a thread, or for programs with which theirs conflicts, now.
    pub waiting_programs: usize,
    /// Calls of the arithmetic that wait for cores, now.
    pub waiting_bootstraps: u64,
    /// Bootstraps done together with those of another program.
    pub batched_bootstraps: u64,
    /// SSD commands that the medium refused.
    pub media_errors: u64,
}

pub(crate) struct Log {
    opened: Instant,
    tracing: AtomicBool,
    trace: Mutex<Vec<TraceEvent>>,
    errors: Mutex<ErrorLog>,
    statistics: Mutex<DriveStatistics>,
    runs: Mutex<VecDeque<ProgramRun>>,
    media_errors: AtomicU64,
    /// A flush has failed.
    read_only: AtomicBool,
    pub(crate) accounts: Accounts,
    pub(crate) under_way: UnderWay,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every value is complete between two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    pub(crate) fn new() -> Log {
        Log {
            opened: Instant::now(),
            tracing: AtomicBool::new(false),
            trace: Mutex::default(),
            errors: Mutex::default(),
            statistics: Mutex::default(),
            runs: Mutex::default(),
            media_errors: AtomicU64::new(0),
            read_only: AtomicBool::new(false),
            accounts: Accounts::default(),
            under_way: UnderWay::default(),
        }
    }

    pub(crate) fn set_tracing(&self, on: bool) {
        self.tracing.store(on, Ordering::Release);
    }

    pub(crate) fn trace(&self, kind: TraceKind) {
        if self.tracing.load(Ordering::Acquire) {
            let mut trace = lock(&self.trace);
            if trace.len() < TRACE_EVENTS {
                // Taken under the lock, so that times rise with the order of events.
                let at = self.opened.elapsed();
                trace.push(TraceEvent { at, kind });
            }
        }
    }

    pub(crate) fn take_trace(&self) -> Vec<TraceEvent> {
        std::mem::take(&mut lock(&self.trace))
    }

    pub(crate) fn error(&self, account: &Account, command: Sqe, status: Status, reason: String) {
        account.error(command, status, reason.clone());
        lock(&self.errors).push(command, status, reason);
    }

    pub(crate) fn errors(&self) -> Vec<ErrorInformation> {
        lock(&self.errors).entries()
    }

    /// Takes note of a command that the SSD did not do.
    pub(crate) fn ssd_failed(&self, error: &SsdError) {
        match error {
            SsdError::Read { .. } | SsdError::Write { .. } => {
                self.media_errors.fetch_add(1, Ordering::Relaxed);
            }
            SsdError::Flush { .. } => {
                self.media_errors.fetch_add(1, Ordering::Relaxed);
                self.read_only.store(true, Ordering::Relaxed);
            }
            SsdError::FlushFailedBefore => self.read_only.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Commands that the medium refused, and whether a flush has failed.
    pub(crate) fn medium(&self) -> (u64, bool) {
        (
            self.media_errors.load(Ordering::Relaxed),
            self.read_only.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut DriveStatistics)) {
        change(&mut lock(&self.statistics));
    }

    pub(crate) fn statistics(&self) -> DriveStatistics {
        let (rows, bootstraps) = self.under_way.done();
        DriveStatistics {
            rows,
            bootstraps,
            hosts: self.accounts.statistics(),
            media_errors: self.medium().0,
            ..lock(&self.statistics).clone()
        }
    }

    pub(crate) fn program_ran(&self, run: ProgramRun) {
        let mut runs = lock(&self.runs);
        if runs.len() == KEPT {
            runs.pop_front();
        }
        runs.push_back(run);
    }

    /// Oldest first.
    pub(crate) fn program_runs(&self) -> Vec<ProgramRun> {
        lock(&self.runs).iter().cloned().collect()
    }
}
