//! Transfers on threads that wait for them: for buffered writes, and for kernels that have no io_uring or do not permit it.
//!
//! A write into the page cache takes less time than to wake a thread for it. So one thread does what comes as long as none of it takes long,
//! and tells of several transfers at a time, which wakes who waits for them once. A transfer that takes long calls another thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::file::Medium;
use super::transfer::Transfer;

/// Threads, and so transfers at a time: enough to keep an SSD busy.
const THREADS: usize = 16;
/// Transfers that wait for each thread at work before another one is called.
const SHARE: usize = 32;
/// Transfers that a thread does before it tells of them.
const TOGETHER: usize = 16;
/// What a transfer takes that waits for a medium. One in memory takes a few microseconds.
const LONG: Duration = Duration::from_micros(100);

pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    medium: Arc<Medium>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Transfer>,
    /// Threads at work, and those that have been called.
    awake: usize,
    /// Threads that have been called and have not come yet.
    called: usize,
    closing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a thread, if one has nothing to do.
    fn call(&self, mut state: MutexGuard<'_, State>) {
        if state.awake < THREADS {
            state.awake += 1;
            state.called += 1;
            drop(state);
            self.changed.notify_one();
        }
    }

    /// One thread's work, until the pool closes.
    fn run(&self) {
        let mut done = Vec::with_capacity(TOGETHER);
        loop {
            let idle = |state: &mut State| state.called == 0 && !state.closing;
            let waited = self.changed.wait_while(self.lock(), idle);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            if state.called == 0 {
                return;
            }
            state.called -= 1;
            drop(state);
            self.work(&mut done);
        }
    }

    /// Does what waits, until nothing does.
    fn work(&self, done: &mut Vec<(Transfer, io::Result<()>)>) {
        loop {
            let mut state = self.lock();
            let next = state.queue.pop_front();
            if next.is_none() && done.is_empty() {
                state.awake -= 1;
                return;
            }
            drop(state);
            let mut tells = next.is_none();
            if let Some(mut transfer) = next {
                let start = Instant::now();
                let result = self.medium.execute(&mut transfer);
                done.push((transfer, result));
                tells = done.len() == TOGETHER;
                if start.elapsed() >= LONG {
                    tells = true;
                    let state = self.lock();
                    if !state.queue.is_empty() {
                        self.call(state);
                    }
                }
            }
            if tells {
                for (transfer, result) in done.drain(..) {
                    transfer.end(result);
                }
            }
        }
    }
}

impl Pool {
    pub(super) fn new(medium: &Arc<Medium>) -> io::Result<Pool> {
        let mut pool = Pool {
            shared: Arc::new(Shared {
                medium: Arc::clone(medium),
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
            threads: Vec::new(),
        };
        for _ in 0..THREADS {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name("toroid-ssd".into())
                .spawn(move || shared.run())?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub(super) fn start(&self, transfer: Transfer) {
        let mut state = self.shared.lock();
        state.queue.push_back(transfer);
        if state.queue.len() > state.awake * SHARE {
            self.shared.call(state);
        }
    }
}

impl Drop for Pool {
    /// Waits for all transfers.
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            super::join(thread);
        }
    }
}
