//! Decides who gets the cores next: it is fair between tenants, and batches bootstraps under one key.
//!
//! While cores are free, a call starts at once and takes as many as it has work for. Otherwise it waits. When cores become
//! free, the least served tenant comes first (start-time fair queueing, weighted by the work that its parameter set asks for;
//! an idle tenant re-enters at the level of the least served one). Calls that wait for the same keys join one batch, which
//! streams the keys once. The thread of the call chosen first computes the whole batch.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toroid_tfhe::any_key::{Results, Task};

use super::super::{BackendError, BackendStatistics};
use toroid_task::CancelToken;

/// The most bootstraps of a batch, but for a single call that has more.
const MAX_BATCH: usize = 8;

/// How often a call that waits looks at its cancellation token.
const CANCEL_POLL: Duration = Duration::from_millis(5);

/// How many idle tenants are remembered before those that owe nothing are forgotten.
const IDLE_TENANTS: usize = 256;

/// A call of the back end: bootstraps of one sample.
pub(super) struct Call<'a> {
    pub(super) tenant: u64,
    pub(super) cancel: &'a CancelToken,
    /// Addresses of the loaded keys, which stay where they are while the call lasts.
    pub(super) keys: [usize; 2],
    pub(super) test_vectors: &'a [&'a [u8]],
    pub(super) sample: &'a [u8],
    /// Work of one bootstrap, in any unit that all calls share.
    pub(super) cost: u64,
    /// Most cores that speed up the call.
    pub(super) cores: usize,
    /// Whether it can join others in a batch.
    pub(super) batches: bool,
}

/// A batch, and the cores that it may use.
pub(super) struct Batch<'a> {
    pub(super) tasks: Vec<Task<'a>>,
    pub(super) threads: usize,
    /// Cancelled once nobody wants the results.
    pub(super) cancel: CancelToken,
}

/// Gives cores to calls.
#[derive(Debug)]
pub(super) struct Scheduler(Mutex<Queues>);

#[derive(Debug)]
struct Queues {
    free: usize,
    /// In the order in which they came. Empty while cores are free.
    waiting: Vec<Arc<Waiting>>,
    tenants: HashMap<u64, Tenant>,
    /// Work that the tenant chosen last had been served.
    clock: u64,
    statistics: BackendStatistics,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    /// Work done for it.
    served: u64,
    /// Its calls.
    calls: usize,
}

/// A call that had to wait.
#[derive(Debug)]
struct Waiting {
    tenant: u64,
    cancel: CancelToken,
    keys: [usize; 2],
    test_vectors: Vec<Vec<u8>>,
    sample: Vec<u8>,
    cost: u64,
    cores: usize,
    batches: bool,
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Debug)]
enum Turn {
    Waiting,
    /// The call has cores, for itself and those that join it.
    Leads {
        threads: usize,
        others: Vec<Arc<Waiting>>,
    },
    /// Another call computes for this one.
    GoesAlong,
    Done(Result<Results, BackendError>),
}

impl Waiting {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, turn: Turn) {
        *self.turn() = turn;
        self.changed.notify_one();
    }
}

impl Queues {
    fn served(&self, tenant: u64) -> u64 {
        self.tenants.get(&tenant).map_or(0, |tenant| tenant.served)
    }

    fn charge(&mut self, tenant: u64, cost: u64, bootstraps: usize) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            let work = cost.saturating_mul(bootstraps as u64);
            tenant.served = tenant.served.saturating_add(work);
        }
    }

    /// Takes out the call of the least served tenant, the earliest of several, among those that are wanted.
    fn take_next(&mut self, wanted: impl Fn(&Waiting) -> bool) -> Option<Arc<Waiting>> {
        let candidates = self.waiting.iter().enumerate();
        let (place, _) = candidates
            .filter(|(_, call)| wanted(call))
            .min_by_key(|(place, call)| (self.served(call.tenant), *place))?;
        let call = self.waiting.remove(place);
        self.charge(call.tenant, call.cost, call.test_vectors.len());
        Some(call)
    }

    /// Gives free cores to those that wait.
    fn dispatch(&mut self) {
        while self.free > 0 {
            let clock = self.waiting.iter().map(|call| self.served(call.tenant));
            self.clock = clock.min().unwrap_or(0).max(self.clock);
            let Some(first) = self.take_next(|_| true) else {
                return;
            };
            let mut bootstraps = first.test_vectors.len();
            let mut cores = first.cores;
            let mut others = Vec::new();
            while first.batches
                && let Some(other) = self.take_next(|call| {
                    call.batches
                        && call.keys == first.keys
                        && bootstraps + call.test_vectors.len() <= MAX_BATCH
                })
            {
                bootstraps += other.test_vectors.len();
                cores += other.cores;
                other.set(Turn::GoesAlong);
                others.push(other);
            }
            if !others.is_empty() {
                self.statistics.batched += bootstraps as u64;
            }
            let threads = self.take_cores(cores);
            first.set(Turn::Leads { threads, others });
        }
    }

    fn take_cores(&mut self, wanted: usize) -> usize {
        let taken = wanted.max(1).min(self.free);
        self.free -= taken;
        self.statistics.batches += 1;
        taken
    }
}

/// Cores in use. Dropped, it gives them to others and answers calls that got no result.
struct Lead<'a> {
    scheduler: &'a Scheduler,
    threads: usize,
    others: Vec<Arc<Waiting>>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        for other in &self.others {
            let unanswered = matches!(*other.turn(), Turn::GoesAlong);
            if unanswered {
                other.set(Turn::Done(Err(BackendError::Failed {
                    reason: "the computation was given up".to_owned(),
                })));
            }
        }
        let mut state = self.scheduler.lock();
        state.free += self.threads;
        state.dispatch();
    }
}

/// A call, waiting or not; it leaves when dropped.
struct Presence<'a> {
    scheduler: &'a Scheduler,
    tenant: u64,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        let mut state = self.scheduler.lock();
        if let Some(tenant) = state.tenants.get_mut(&self.tenant) {
            tenant.calls = tenant.calls.saturating_sub(1);
        }
        if state.tenants.len() > IDLE_TENANTS {
            let clock = state.clock;
            let Queues { tenants, .. } = &mut *state;
            tenants.retain(|_, tenant| tenant.calls > 0 || tenant.served > clock);
        }
    }
}

impl Scheduler {
    pub(super) fn new(cores: usize) -> Scheduler {
        Scheduler(Mutex::new(Queues {
            free: cores.max(1),
            waiting: Vec::new(),
            tenants: HashMap::new(),
            clock: 0,
            statistics: BackendStatistics::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn statistics(&self) -> BackendStatistics {
        let state = self.lock();
        BackendStatistics {
            waiting: state.waiting.len() as u64,
            ..state.statistics
        }
    }

    /// Does a call when its turn has come: `work` runs on this thread, or on that of the call whose batch it joins.
    pub(super) fn run(
        &self,
        call: &Call<'_>,
        work: impl FnOnce(&Batch<'_>) -> Result<Vec<Results>, BackendError>,
    ) -> Result<Results, BackendError> {
        if call.cancel.is_cancelled() {
            return Err(BackendError::Cancelled);
        }
        let mut state = self.lock();
        let clock = state.clock;
        let tenant = state.tenants.entry(call.tenant).or_default();
        if tenant.calls == 0 {
            tenant.served = tenant.served.max(clock);
        }
        tenant.calls += 1;
        let _presence = Presence {
            scheduler: self,
            tenant: call.tenant,
        };
        if state.free > 0 {
            state.clock = state.served(call.tenant).max(clock);
            state.charge(call.tenant, call.cost, call.test_vectors.len());
            let threads = state.take_cores(call.cores);
            drop(state);
            return self.lead(call, threads, Vec::new(), work);
        }
        let waiting = Arc::new(Waiting {
            tenant: call.tenant,
            cancel: call.cancel.clone(),
            keys: call.keys,
            test_vectors: call.test_vectors.iter().map(|tv| tv.to_vec()).collect(),
            sample: call.sample.to_vec(),
            cost: call.cost,
            cores: call.cores,
            batches: call.batches,
            turn: Mutex::new(Turn::Waiting),
            changed: Condvar::new(),
        });
        state.waiting.push(Arc::clone(&waiting));
        drop(state);
        match self.wait(&waiting) {
            Turn::Leads { threads, others } => self.lead(call, threads, others, work),
            Turn::Done(results) => results,
            Turn::Waiting | Turn::GoesAlong => Err(BackendError::Cancelled),
        }
    }

    /// Waits for the result that another call computes, or for cores; gives any other turn if the call is cancelled first.
    fn wait(&self, waiting: &Arc<Waiting>) -> Turn {
        let mut turn = waiting.turn();
        loop {
            match std::mem::replace(&mut *turn, Turn::Waiting) {
                Turn::Waiting => {}
                Turn::GoesAlong => *turn = Turn::GoesAlong,
                ended => return ended,
            }
            if waiting.cancel.is_cancelled() {
                drop(turn);
                let mut state = self.lock();
                state.waiting.retain(|other| !Arc::ptr_eq(other, waiting));
                // From here on nobody gives it a turn that it does not see.
                turn = waiting.turn();
                drop(state);
                return std::mem::replace(&mut *turn, Turn::Waiting);
            }
            (turn, _) = waiting
                .changed
                .wait_timeout(turn, CANCEL_POLL)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lead(
        &self,
        call: &Call<'_>,
        threads: usize,
        others: Vec<Arc<Waiting>>,
        work: impl FnOnce(&Batch<'_>) -> Result<Vec<Results>, BackendError>,
    ) -> Result<Results, BackendError> {
        let lead = Lead {
            scheduler: self,
            threads,
            others,
        };
        let own = Task {
            test_vectors: call.test_vectors.to_vec(),
            sample: call.sample,
        };
        let along = lead.others.iter().map(|other| Task {
            test_vectors: other.test_vectors.iter().map(Vec::as_slice).collect(),
            sample: &other.sample,
        });
        let others = lead.others.iter().map(|other| other.cancel.clone());
        let cancel = CancelToken::all_of(others.chain([call.cancel.clone()]));
        let mut results = work(&Batch {
            tasks: std::iter::once(own).chain(along).collect(),
            threads,
            cancel,
        })
        .map(Vec::into_iter);
        let mut next = || match &mut results {
            Ok(results) => results.next().ok_or_else(|| BackendError::Failed {
                reason: "a batch has too few results".to_owned(),
            }),
            Err(error) => Err(error.clone()),
        };
        let own = next();
        for other in &lead.others {
            other.set(Turn::Done(next()));
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::thread;

    const SAMPLE: &[u8] = &[7];

    fn call<'a>(tenant: u64, key: usize, cancel: &'a CancelToken) -> Call<'a> {
        Call {
            tenant,
            cancel,
            keys: [key; 2],
            test_vectors: &[&[1]],
            sample: SAMPLE,
            cost: 3,
            cores: 1,
            batches: true,
        }
    }

    /// A result that tells which batch it comes from.
    fn answer(batch: &Batch<'_>) -> Vec<Results> {
        vec![vec![vec![batch.tasks.len() as u8]]; batch.tasks.len()]
    }

    fn wait_for(scheduler: &Scheduler, waiting: u64) {
        while scheduler.statistics().waiting != waiting {
            thread::yield_now();
        }
    }

    /// Has calls (tenant and key) come one by one while the only core is taken by tenant 0; gives the tenants in the order in
    /// which their batches were done, and the result of each call.
    fn behind(calls: &[(u64, usize)]) -> (Scheduler, Vec<u64>, Vec<u8>) {
        let scheduler = Scheduler::new(1);
        let order = Mutex::new(Vec::new());
        let cancel = CancelToken::new();
        let (go, gate) = mpsc::channel::<()>();
        let results = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                scheduler.run(&call(0, 0, &CancelToken::new()), move |batch| {
                    gate.recv().unwrap();
                    Ok(answer(batch))
                })
            });
            while scheduler.statistics().batches == 0 {
                thread::yield_now();
            }
            let mut threads = Vec::new();
            for (came, (tenant, key)) in (1..).zip(calls) {
                let (scheduler, order, cancel) = (&scheduler, &order, &cancel);
                threads.push(scope.spawn(move || {
                    scheduler.run(&call(*tenant, *key, cancel), |batch| {
                        order.lock().unwrap().push(*tenant);
                        Ok(answer(batch))
                    })
                }));
                wait_for(scheduler, came);
            }
            go.send(()).unwrap();
            assert!(holder.join().unwrap().is_ok());
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.map(|result| result.unwrap()[0][0]).collect()
        });
        (scheduler, order.into_inner().unwrap(), results)
    }

    #[test]
    fn a_tenant_with_one_call_is_not_behind_one_with_many() {
        let mut calls: Vec<(u64, usize)> = (0..100).map(|key| (1, key)).collect();
        calls.push((2, 1000));
        let (_, order, _) = behind(&calls);
        assert_eq!(order.len(), 101);
        assert!(order[..2].contains(&2), "{order:?}");
    }

    #[test]
    fn tenants_with_many_calls_take_turns() {
        let calls: Vec<(u64, usize)> = (0..20).map(|i| (1 + i / 10, i as usize)).collect();
        let (_, order, _) = behind(&calls);
        for pair in order.chunks(2) {
            assert_ne!(pair[0], pair[1], "{order:?}");
        }
    }

    #[test]
    fn calls_with_the_same_keys_go_along() {
        let mut calls: Vec<(u64, usize)> = (0..11).map(|i| (1 + i % 3, 5)).collect();
        calls.push((4, 6));
        let (scheduler, order, results) = behind(&calls);
        assert_eq!(order.len(), 3, "eight, the other three, and the other key");
        let of_size = |size| results.iter().filter(|result| **result == size).count();
        assert_eq!((of_size(8), of_size(3), of_size(1)), (8, 3, 1));
        let statistics = scheduler.statistics();
        assert_eq!((statistics.batches, statistics.batched), (4, 11));
    }

    #[test]
    fn a_cancelled_call_leaves_the_queue() {
        let scheduler = Scheduler::new(1);
        let (go, gate) = mpsc::channel::<()>();
        let (first, second) = (CancelToken::new(), CancelToken::new());
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                scheduler.run(&call(0, 0, &first), move |batch| {
                    gate.recv().unwrap();
                    Ok(answer(batch))
                })
            });
            while scheduler.statistics().batches == 0 {
                thread::yield_now();
            }
            let waiting =
                scope.spawn(|| scheduler.run(&call(1, 0, &second), |_| panic!("cancelled")));
            wait_for(&scheduler, 1);
            second.cancel();
            assert_eq!(waiting.join().unwrap(), Err(BackendError::Cancelled));
            assert_eq!(scheduler.statistics().waiting, 0);
            go.send(()).unwrap();
            assert!(holder.join().unwrap().is_ok());
        });
    }

    #[test]
    fn a_panic_gives_the_cores_back_and_answers_those_that_go_along() {
        let scheduler = Scheduler::new(2);
        let (go, gate) = mpsc::channel::<()>();
        let cancel = CancelToken::new();
        let two = Call {
            cores: 9,
            ..call(0, 0, &cancel)
        };
        thread::scope(|scope| {
            let (scheduler, cancel) = (&scheduler, &cancel);
            scope.spawn(move || {
                scheduler.run(&two, move |batch| {
                    assert_eq!(batch.threads, 2, "a lone call gets all cores");
                    gate.recv().unwrap();
                    Ok(answer(batch))
                })
            });
            while scheduler.statistics().batches == 0 {
                thread::yield_now();
            }
            let others: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(move || {
                        catch_unwind(AssertUnwindSafe(|| {
                            scheduler.run(&call(1, 1, cancel), |_| panic!("meant to panic"))
                        }))
                    })
                })
                .collect();
            wait_for(scheduler, 3);
            go.send(()).unwrap();
            let results: Vec<_> = others
                .into_iter()
                .map(|other| other.join().unwrap())
                .collect();
            let panicked = results.iter().filter(|result| result.is_err()).count();
            assert_eq!(panicked, 1);
            let failed = |result: &&Result<Results, BackendError>| {
                matches!(result, Err(BackendError::Failed { .. }))
            };
            assert_eq!(results.iter().flatten().filter(failed).count(), 2);
        });
        let again = scheduler.run(&call(3, 3, &cancel), |batch| Ok(answer(batch)));
        assert!(again.is_ok());
        assert_eq!(scheduler.lock().free, 2);
    }
}
