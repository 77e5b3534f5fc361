//! Synchronization of a file, one at a time.
//!
//! The kernel tells of a lost page to one `fdatasync` only, and forgets it. So one thread does them all, and has the last word:
//! after the first failure nothing is ever said to be durable again. Whoever asks during one joins the next, since
//! the one in progress may have begun before the write that is meant.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::SsdError;

/// SyncCallback whether everything that was written before it was handed over is durable.
pub(super) type SyncCallback = Box<dyn FnOnce(Result<(), SsdError>) + Send>;

pub(super) struct Syncs {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// Where to ask for a synchronization.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Default)]
struct Requests {
    waiting: Vec<SyncCallback>,
    failed: bool,
    closing: bool,
}

impl Syncs {
    /// # Errors
    /// Whatever the operating system says if it has no thread.
    pub(super) fn new(
        synchronize: impl Fn() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Syncs> {
        let queue = Arc::new(Queue::default());
        let theirs = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("toroid-sync".into())
            .spawn(move || theirs.run(synchronize))?;
        Ok(Syncs {
            queue,
            thread: Some(thread),
        })
    }

    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for Syncs {
    /// Waits for what has been asked for.
    fn drop(&mut self) {
        self.queue.lock().closing = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            super::join(thread);
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// [`SsdError::FlushFailedBefore`].
    pub(super) fn check(&self) -> Result<(), SsdError> {
        if self.lock().failed {
            return Err(SsdError::FlushFailedBefore);
        }
        Ok(())
    }

    /// Has `told` called, on another thread, when what has been written by now is durable, or is not.
    pub(super) fn ask(&self, told: SyncCallback) {
        self.lock().waiting.push(told);
        self.changed.notify_one();
    }

    /// Waits until what has been written by now is durable.
    ///
    /// # Errors
    /// [`SsdError::Flush`], [`SsdError::FlushFailedBefore`].
    pub(super) fn wait(&self) -> Result<(), SsdError> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        self.ask(Box::new(move |result| {
            // Whoever asked waits below.
            let _ = tell.send(result);
        }));
        told.recv().unwrap_or(Err(SsdError::FlushFailedBefore))
    }

    fn run(&self, synchronize: impl Fn() -> io::Result<()>) {
        loop {
            let mut state = self
                .changed
                .wait_while(self.lock(), |state| {
                    state.waiting.is_empty() && !state.closing
                })
                .unwrap_or_else(PoisonError::into_inner);
            let asked = std::mem::take(&mut state.waiting);
            let failed = state.failed;
            drop(state);
            if asked.is_empty() {
                return;
            }
            let result = if failed { Ok(()) } else { synchronize() };
            if result.is_err() {
                self.lock().failed = true;
            }
            for told in asked {
                let answer = match &result {
                    _ if failed => Err(SsdError::FlushFailedBefore),
                    Ok(()) => Ok(()),
                    Err(error) => Err(SsdError::Flush {
                        source: copy(error),
                    }),
                };
                super::transfer::guarded(|| told(answer));
            }
        }
    }
}

/// An error is told to several.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    fn ask(queue: &Queue) -> mpsc::Receiver<Result<(), SsdError>> {
        let (tell, told) = mpsc::channel();
        queue.ask(Box::new(move |result| tell.send(result).unwrap()));
        told
    }

    #[test]
    fn whoever_asks_during_a_synchronization_joins_the_next() {
        let (begun, begins) = mpsc::channel();
        let (end, may_end) = mpsc::channel();
        let syncs = Syncs::new(move || {
            begun.send(()).unwrap();
            may_end.recv().unwrap()
        })
        .unwrap();
        let first = ask(syncs.queue());
        begins.recv().unwrap();
        let later = [ask(syncs.queue()), ask(syncs.queue())];
        end.send(Ok(())).unwrap();
        assert!(first.recv().unwrap().is_ok());
        begins.recv().unwrap();
        assert!(later.iter().all(|told| told.try_recv().is_err()));
        end.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        // One failure is everyone's who waited for it, and nobody's after him is better.
        for told in &later {
            assert!(matches!(
                told.recv().unwrap(),
                Err(SsdError::Flush { source }) if source.kind() == io::ErrorKind::StorageFull
            ));
        }
        assert!(matches!(
            syncs.queue().wait(),
            Err(SsdError::FlushFailedBefore)
        ));
        assert!(syncs.queue().check().is_err());
    }

    #[test]
    fn dropping_waits_for_what_was_asked() {
        let done = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&done);
        let syncs = Syncs::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
        syncs.queue().ask(Box::new(|_| panic!("meant to panic")));
        let told = ask(syncs.queue());
        drop(syncs);
        assert!(told.try_recv().unwrap().is_ok());
        assert!(done.load(Ordering::SeqCst) >= 1);
    }
}
