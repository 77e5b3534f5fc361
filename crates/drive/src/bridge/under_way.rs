//! Programs that run now, and how far they are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toroid_engine::{BOOTSTRAPS, PASSES};
use toroid_isa::VrNumber;
use toroid_task::Progress;

use super::command::Context;
use super::log::Log;

/// A program that a thread has taken, and that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProgram {
    /// The host's name; empty: the drive itself.
    pub host: String,
    /// Register of the program.
    pub program: VrNumber,
    /// Time since a thread took it. It may wait for other programs and for cores.
    pub time: Duration,
    /// Rows of its longest column; 1 for single samples.
    pub rows: u64,
    /// Rows that are done. A program that passes over rows several times counts a share of each pass.
    pub rows_done: u64,
    /// Bootstraps that are done.
    pub bootstraps_done: u64,
}

#[derive(Debug)]
struct Running {
    host: String,
    program: VrNumber,
    begun: Instant,
    rows: u64,
    rows_done: AtomicU64,
    bootstraps_done: AtomicU64,
}

/// The programs that run now, by the serial numbers of their commands.
#[derive(Default)]
pub(crate) struct UnderWay {
    running: Mutex<BTreeMap<u64, Arc<Running>>>,
    rows: AtomicU64,
    bootstraps: AtomicU64,
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows and bootstraps that programs have done, whether or not they have ended.
    pub(crate) fn done(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.rows), get(&self.bootstraps))
    }

    /// In the order in which they came.
    pub(crate) fn programs(&self) -> Vec<RunningProgram> {
        let of = |running: &Arc<Running>| RunningProgram {
            host: running.host.clone(),
            program: running.program,
            time: running.begun.elapsed(),
            rows: running.rows,
            rows_done: running.rows_done.load(Ordering::Relaxed),
            bootstraps_done: running.bootstraps_done.load(Ordering::Relaxed),
        };
        self.lock().values().map(of).collect()
    }
}

/// One program while it runs; it is under way no more when this is dropped.
pub(crate) struct Run {
    log: Arc<Log>,
    serial: u64,
    running: Arc<Running>,
    progress: Progress,
}

impl Run {
    /// A program begins that the command of `context` runs on `rows` rows.
    pub(crate) fn begin(log: &Arc<Log>, context: &Context, program: VrNumber, rows: u64) -> Run {
        let running = Arc::new(Running {
            host: context.host.identity.name.clone(),
            program,
            begun: Instant::now(),
            rows,
            rows_done: AtomicU64::new(0),
            bootstraps_done: AtomicU64::new(0),
        });
        log.under_way
            .lock()
            .insert(context.serial, Arc::clone(&running));
        let (own, total) = (Arc::clone(&running), Arc::clone(log));
        let report = move |what: &str, done: u64, all: u64| match what {
            PASSES => {
                let share = u128::from(own.rows) * u128::from(done) / u128::from(all.max(1));
                raise(&own.rows_done, &total.under_way.rows, share as u64);
            }
            BOOTSTRAPS => raise(&own.bootstraps_done, &total.under_way.bootstraps, done),
            _ => {}
        };
        Run {
            log: Arc::clone(log),
            serial: context.serial,
            running,
            progress: Progress::new(report),
        }
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The program has ended well, after so many bootstraps. Gives its rows.
    pub(crate) fn ended(&self, bootstraps: u64) -> u64 {
        let Running {
            rows,
            rows_done,
            bootstraps_done,
            ..
        } = &*self.running;
        raise(rows_done, &self.log.under_way.rows, *rows);
        raise(bootstraps_done, &self.log.under_way.bootstraps, bootstraps);
        *rows
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.log.under_way.lock().remove(&self.serial);
    }
}

/// Raises a count to `done`, and the total by as much.
fn raise(count: &AtomicU64, total: &AtomicU64, done: u64) {
    let before = count.fetch_max(done, Ordering::Relaxed);
    total.fetch_add(done.saturating_sub(before), Ordering::Relaxed);
}
