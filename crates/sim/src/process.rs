//! Other programs, whose work reports progress and can be cancelled, and locks between processes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use toroid_task::{Cancelled, Progress};

/// Why another program gives no result.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It cannot be run at all.
    #[error("cannot run {program}: {reason}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        reason: io::Error,
    },
    /// Its output cannot be read, or it cannot be waited for.
    #[error("cannot follow another program")]
    Io(#[from] io::Error),
    /// Someone cancelled it.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// How often a running program or a lock is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// A program that ended, and what it said on both streams.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it said.
    pub output: String,
}

struct Running {
    child: Child,
    output: File,
}

impl Running {
    fn start(command: &mut Command) -> Result<Running, ProcessError> {
        // A file takes any amount of output without anyone reading along.
        let output = tempfile::tempfile()?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()
            .map_err(|reason| ProcessError::Start { program, reason })?;
        Ok(Running { child, output })
    }

    fn poll(&mut self) -> Result<Option<Finished>, ProcessError> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        self.output.rewind()?;
        self.output.read_to_end(&mut bytes)?;
        let output = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Some(Finished { status, output }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // No effect on one that ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end.
///
/// # Errors
/// If it cannot be run or followed, or was cancelled.
pub fn run(command: &mut Command, progress: &Progress) -> Result<Finished, ProcessError> {
    let mut running = Running::start(command)?;
    loop {
        if let Some(finished) = running.poll()? {
            return Ok(finished);
        }
        progress.check()?;
        std::thread::sleep(PAUSE);
    }
}

/// Runs programs, as many at once as there are processors; ends them all when one fails.
///
/// The first failure is returned; `None` if all succeeded.
pub(crate) fn run_all(
    commands: Vec<Command>,
    what: &str,
    progress: &Progress,
) -> Result<Option<Finished>, ProcessError> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let total = commands.len() as u64;
    let mut waiting = commands.into_iter();
    let mut running: Vec<Running> = Vec::new();
    let mut done = 0;
    progress.report(what, done, total);
    loop {
        while running.len() < jobs
            && let Some(mut command) = waiting.next()
        {
            running.push(Running::start(&mut command)?);
        }
        if running.is_empty() {
            return Ok(None);
        }
        let mut still = Vec::with_capacity(running.len());
        for mut one in running {
            match one.poll()? {
                None => still.push(one),
                Some(finished) if finished.status.success() => {
                    done += 1;
                    progress.report(what, done, total);
                }
                Some(finished) => return Ok(Some(finished)),
            }
        }
        running = still;
        progress.check()?;
        std::thread::sleep(PAUSE);
    }
}

/// A lock between processes and threads, held until it is dropped. Its file stays.
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file unlocks it")] File);

impl Lock {
    pub fn take(path: &Path, progress: &Progress) -> Result<Lock, ProcessError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            progress.check()?;
            std::thread::sleep(PAUSE);
        }
    }
}
