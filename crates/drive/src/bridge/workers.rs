//! Threads that execute commands, independent of any asynchronous runtime.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// Jobs in the order in which they came.
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job; drops it if the queue is closed.
    pub(crate) fn push(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if !state.closed {
            state.jobs.push_back(Box::new(job));
            self.changed.notify_one();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A queue with threads that take jobs from it.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    pub(crate) fn new(name: &str, count: usize) -> io::Result<Workers> {
        let workers = Workers {
            queue: Arc::new(Queue {
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
            threads: Mutex::default(),
        };
        for _ in 0..count {
            let queue = Arc::clone(&workers.queue);
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    while let Some(job) = queue.next() {
                        // A job that panics answers for itself alone; what it held says so when it is dropped.
                        if catch_unwind(AssertUnwindSafe(job)).is_err() {
                            tracing::error!("a command ended in a panic");
                        }
                    }
                })?;
            workers.threads().push(thread);
        }
        Ok(workers)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Takes no more jobs, does those there are, and ends the threads.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads().drain(..) {
            // The threads catch panics.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn every_job_runs_and_a_panic_stays_alone() {
        let done = Arc::new(AtomicU32::new(0));
        let workers = Workers::new("test", 2).unwrap();
        for i in 0..100 {
            let done = Arc::clone(&done);
            workers.queue().push(move || {
                assert!(i % 10 != 0, "meant to panic");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        workers.close();
        assert_eq!(done.load(Ordering::Relaxed), 90);
        workers.queue().push(|| panic!("the queue is closed"));
    }
}
