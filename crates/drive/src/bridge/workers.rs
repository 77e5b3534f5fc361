//! Threads that execute commands, independent of any asynchronous runtime, and that tenants share.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// How tenants share the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Whoever has a job may use every thread: for short jobs.
    Free,
    /// Some threads are left for a tenant that comes later: for long jobs.
    Reserved,
}

/// Jobs by tenant, each tenant's in the order in which they came. Tenants take turns.
pub(crate) struct Queue {
    state: Mutex<Jobs>,
    changed: Condvar,
    threads: usize,
    sharing: Sharing,
}

#[derive(Default)]
struct Jobs {
    tenants: BTreeMap<u64, Tenant>,
    /// Tenants with jobs, the next one first.
    turns: VecDeque<u64>,
    closed: bool,
}

#[derive(Default)]
struct Tenant {
    jobs: VecDeque<Job>,
    running: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job; drops it if the queue is closed. Without threads, does it.
    pub(crate) fn push(&self, tenant: u64, job: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if self.threads == 0 {
            drop(state);
            return execute(job);
        }
        let jobs = &mut state.tenants.entry(tenant).or_default().jobs;
        jobs.push_back(Box::new(job));
        if jobs.len() == 1 {
            state.turns.push_back(tenant);
        }
        // A thread that is called while the lock is held only waits again.
        drop(state);
        self.changed.notify_one();
    }

    /// Jobs that no thread has taken yet.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.tenants.values().map(|tenant| tenant.jobs.len()).sum()
    }

    /// Waits for a job; `None` if the queue is closed and empty.
    fn next(&self) -> Option<(u64, Job)> {
        let mut state = self.lock();
        loop {
            let most = match self.sharing {
                Sharing::Free => self.threads,
                // At least one thread is free for the next tenant, as long as there are more threads than tenants.
                Sharing::Reserved => (self.threads / (state.tenants.len() + 1)).max(1),
            };
            // Whatever the shares, the last free thread is for a tenant that has none yet.
            let busy: usize = state.tenants.values().map(|tenant| tenant.running).sum();
            let last = self.sharing == Sharing::Reserved && busy + 1 >= self.threads;
            let Jobs { tenants, turns, .. } = &mut *state;
            let place = turns.iter().position(|tenant| {
                let tenant = tenants.get(tenant);
                tenant.is_some_and(|tenant| tenant.running < most && (tenant.running == 0 || !last))
            });
            let turn = place.and_then(|place| turns.remove(place));
            if let Some(id) = turn
                && let Some(tenant) = tenants.get_mut(&id)
                && let Some(job) = tenant.jobs.pop_front()
            {
                tenant.running += 1;
                if !tenant.jobs.is_empty() {
                    turns.push_back(id);
                }
                return Some((id, job));
            }
            if state.closed && state.turns.is_empty() {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, id: u64) {
        let mut state = self.lock();
        if let Some(tenant) = state.tenants.get_mut(&id) {
            tenant.running = tenant.running.saturating_sub(1);
            if tenant.running == 0 && tenant.jobs.is_empty() {
                state.tenants.remove(&id);
            }
        }
        // Of jobs that wait for their tenant's share of the threads, this one's tenant, or with one tenant less every other, may have one now. Jobs
        // that wait for a thread alone have called one already.
        let waits = self.sharing == Sharing::Reserved && !state.turns.is_empty();
        let tells = waits || state.closed;
        drop(state);
        if tells {
            self.changed.notify_all();
        }
    }
}

/// Does a job. One that panics answers for itself alone; what it held says so when it is dropped.
fn execute(job: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a command ended in a panic");
    }
}

/// A queue with threads that take jobs from it.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    pub(crate) fn new(name: &str, count: usize, sharing: Sharing) -> io::Result<Workers> {
        let workers = Workers {
            queue: Arc::new(Queue {
                state: Mutex::default(),
                changed: Condvar::new(),
                threads: count,
                sharing,
            }),
            threads: Mutex::default(),
        };
        for _ in 0..count {
            let queue = Arc::clone(&workers.queue);
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    while let Some((tenant, job)) = queue.next() {
                        execute(job);
                        queue.done(tenant);
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
    use std::sync::mpsc;

    #[test]
    fn every_job_runs_and_a_panic_stays_alone() {
        for sharing in [Sharing::Free, Sharing::Reserved] {
            let done = Arc::new(AtomicU32::new(0));
            let workers = Workers::new("test", 2, sharing).unwrap();
            for i in 0..100 {
                let done = Arc::clone(&done);
                workers.queue().push(i % 7, move || {
                    assert!(i % 10 != 0, "meant to panic");
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            workers.close();
            assert_eq!(done.load(Ordering::Relaxed), 90);
            workers.queue().push(0, || panic!("the queue is closed"));
        }
    }

    #[test]
    fn tenants_take_turns() {
        let workers = Workers::new("test", 1, Sharing::Reserved).unwrap();
        let (go, gate) = mpsc::channel::<()>();
        workers.queue().push(9, move || gate.recv().unwrap());
        while workers.queue().len() > 0 {
            std::thread::yield_now();
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        for (tenant, jobs) in [(1, 50), (2, 2), (3, 1)] {
            for _ in 0..jobs {
                let order = Arc::clone(&order);
                let job = move || order.lock().unwrap().push(tenant);
                workers.queue().push(tenant, job);
            }
        }
        assert_eq!(workers.queue().len(), 53);
        go.send(()).unwrap();
        workers.close();
        let order = order.lock().unwrap();
        assert_eq!(order[..6], [1, 2, 3, 1, 2, 1]);
        assert_eq!(order.len(), 53);
    }

    #[test]
    fn long_jobs_of_one_tenant_leave_threads_for_another() {
        let workers = Workers::new("test", 4, Sharing::Reserved).unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..20 {
            let held = Arc::clone(&held);
            workers.queue().push(1, move || {
                // Ends when the test does.
                let _ = held.lock().unwrap().recv();
            });
        }
        let (tell, told) = mpsc::channel();
        workers.queue().push(2, move || tell.send(()).unwrap());
        told.recv().unwrap();
        assert!(workers.queue().len() >= 18);
        drop(hold);
    }

    #[test]
    fn tenants_that_run_leave_the_last_thread_for_one_that_does_not() {
        let workers = Workers::new("test", 16, Sharing::Reserved).unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let push = |tenant| {
            let held = Arc::clone(&held);
            workers.queue().push(tenant, move || {
                // Ends when the test does.
                let _ = held.lock().unwrap().recv();
            });
        };
        let running = || {
            let state = workers.queue().lock();
            state
                .tenants
                .values()
                .map(|tenant| tenant.running)
                .sum::<usize>()
        };
        // Half, a third and a quarter of the threads would be all of them.
        for (tenant, busy) in [(1, 8), (2, 13), (3, 15)] {
            for _ in 0..20 {
                push(tenant);
            }
            while running() < busy {
                std::thread::yield_now();
            }
        }
        let (tell, told) = mpsc::channel();
        workers.queue().push(4, move || tell.send(()).unwrap());
        told.recv().unwrap();
        drop(hold);
    }
}
