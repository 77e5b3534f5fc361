//! Long calls: without the interpreter's lock, with progress, ended by Ctrl-C.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use toroid_task::{CancelToken, Progress};

use crate::failure::Failure;

/// How often a call looks for signals.
const PATIENCE: Duration = Duration::from_millis(50);

/// How often a call that is to end asks again: it may have been between two commands.
const INSISTENCE: Duration = Duration::from_millis(250);

enum Message {
    Report(String, u64, u64),
    Done,
}

/// Runs `work` on a thread of its own. The calling thread passes what the work reports to `progress`, a callable of the stage, the steps done and the
/// steps in total, and looks for signals, and whether a task that awaits the call was cancelled. Once one of them raises, it cancels the work, calls
/// `interrupt` until the work has ended, and raises.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    interrupt: impl Fn() + Send,
    work: impl FnOnce(&Progress) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::channel();
    let cancel = CancelToken::new();
    let check = py.import("toroid._cancel")?.getattr("check")?;
    // Of a call that was interrupted or cancelled nothing more begins.
    check.call0()?;
    py.check_signals()?;
    let check = check.unbind();
    let reports = match &progress {
        Some(_) => {
            let sender = sender.clone();
            Progress::new(move |stage, done, total| {
                // Nobody listens any more where the call has ended.
                let _ = sender.send(Message::Report(stage.to_owned(), done, total));
            })
        }
        None => Progress::none(),
    }
    .with_cancel(cancel.clone());
    py.detach(move || {
        let (result, raised) = thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let result = work(&reports);
                let _ = sender.send(Message::Done);
                result
            });
            let mut raised: Option<PyErr> = None;
            let mut asked = Instant::now();
            while !worker.is_finished() {
                let message = receiver.recv_timeout(PATIENCE);
                if raised.is_some() {
                    if asked.elapsed() > INSISTENCE {
                        interrupt();
                        asked = Instant::now();
                    }
                    continue;
                }
                let report = match message {
                    Ok(Message::Done) | Err(RecvTimeoutError::Disconnected) => break,
                    Ok(Message::Report(stage, done, total)) => Some((stage, done, total)),
                    Err(RecvTimeoutError::Timeout) => None,
                };
                let looked = Python::attach(|py| {
                    if let (Some(report), Some(progress)) = (report, &progress) {
                        progress.call1(py, report)?;
                    }
                    check.call0(py)?;
                    py.check_signals()
                });
                if let Err(error) = looked {
                    raised = Some(error);
                    cancel.cancel();
                    interrupt();
                    asked = Instant::now();
                }
            }
            // What was reported last.
            if let (None, Some(progress)) = (&raised, &progress) {
                let rest = receiver.try_iter().filter_map(|message| match message {
                    Message::Report(stage, done, total) => Some((stage, done, total)),
                    Message::Done => None,
                });
                for report in rest {
                    let called = Python::attach(|py| progress.call1(py, report).map(drop));
                    if let Err(error) = called {
                        raised = Some(error);
                        break;
                    }
                }
            }
            (worker.join(), raised)
        });
        match (raised, result) {
            (_, Err(panic)) => resume_unwind(panic),
            (Some(error), _) => Err(error),
            (None, Ok(result)) => Ok(result),
        }
    })?
    .map_err(|failure| failure.raise(py))
}
