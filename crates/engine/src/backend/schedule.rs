//! Decides who gets the slots next: it is fair between tenants, and does tasks under one key together.
//!
//! A slot is what does one task at a time: a core, or a part of a device. A batch is cut into slices, and each slice is a call
//! that asks for slots ([`Scheduler::run_batch`]).
//!
//! While slots are free, a call starts at once and takes as many as it has work for. Otherwise it waits. When slots become
//! free, the least served tenant comes first (start-time fair queueing, weighted by the work that the tasks ask for;
//! an idle tenant re-enters at the level of the least served one). Calls that wait for the same keys join one pass, which
//! streams the keys once. The thread of the call chosen first does the whole pass.

mod slices;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toroid_task::CancelToken;

use super::{BackendError, BackendStatistics, BootstrapTask};

pub use slices::Work;

/// How often a call that waits looks at its cancellation token.
const CANCEL_POLL: Duration = Duration::from_millis(5);

/// How many idle tenants are remembered before those that owe nothing are forgotten.
const IDLE_TENANTS: usize = 256;

/// Tasks that are done at once.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) tenant: u64,
    pub(super) cancel: &'a CancelToken,
    /// Addresses of the loaded keys, which stay where they are while the call lasts.
    pub(super) keys: [usize; 2],
    pub(super) tasks: &'a [BootstrapTask<'a>],
    /// Work of all tasks, in any unit that all calls share.
    pub(super) cost: u64,
    /// Most slots that speed up the call.
    pub(super) slots: usize,
    /// The most bootstraps of a pass that it does together with others. One that has as many itself joins none.
    pub(super) most: usize,
}

/// The tasks of a call and of those that joined it, and the slots that they may use.
#[derive(Debug)]
pub struct Pass<'a> {
    /// The tasks, at least one but for work that has none.
    pub tasks: &'a [BootstrapTask<'a>],
    /// The slots.
    pub slots: usize,
    /// Cancelled once nobody wants the results.
    pub cancel: &'a CancelToken,
}

/// Gives slots to calls.
#[derive(Debug)]
pub struct Scheduler {
    slots: usize,
    queues: Mutex<Queues>,
}

#[derive(Debug)]
struct Queues {
    free: usize,
    /// In the order in which they came. Empty while slots are free.
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

/// A call that had to wait. Another thread may do its tasks, even once nobody waits for them any more, so it has what that takes.
#[derive(Debug)]
struct Waiting {
    tenant: u64,
    cancel: CancelToken,
    keys: [usize; 2],
    bootstraps: usize,
    result_bytes: usize,
    cost: u64,
    slots: usize,
    most: usize,
    /// If it can join others, its tasks.
    tasks: Option<Vec<OwnedTask>>,
    turn: Mutex<Turn>,
    changed: Condvar,
}

/// A [`BootstrapTask`].
#[derive(Debug)]
struct OwnedTask {
    test_vectors: Vec<Vec<u8>>,
    sample: Vec<u8>,
    input_bits: u32,
}

impl From<&BootstrapTask<'_>> for OwnedTask {
    fn from(task: &BootstrapTask<'_>) -> OwnedTask {
        OwnedTask {
            test_vectors: task.test_vectors.iter().map(|tv| tv.to_vec()).collect(),
            sample: task.sample.to_vec(),
            input_bits: task.input_bits,
        }
    }
}

#[derive(Debug)]
enum Turn {
    Waiting,
    /// The call has slots, for itself and those that join it.
    Leads {
        slots: usize,
        others: Vec<Arc<Waiting>>,
    },
    /// Another call does the tasks of this one.
    GoesAlong,
    Done(Result<Vec<u8>, BackendError>),
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

    fn charge(&mut self, tenant: u64, cost: u64) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.served = tenant.served.saturating_add(cost);
        }
    }

    /// Takes out the call of the least served tenant, the earliest of several, among those that are wanted.
    fn take_next(&mut self, wanted: impl Fn(&Waiting) -> bool) -> Option<Arc<Waiting>> {
        let candidates = self.waiting.iter().enumerate();
        let (place, _) = candidates
            .filter(|(_, call)| wanted(call))
            .min_by_key(|(place, call)| (self.served(call.tenant), *place))?;
        let call = self.waiting.remove(place);
        self.charge(call.tenant, call.cost);
        Some(call)
    }

    /// Gives free slots to those that wait.
    fn dispatch(&mut self) {
        while self.free > 0 {
            let clock = self.waiting.iter().map(|call| self.served(call.tenant));
            self.clock = clock.min().unwrap_or(0).max(self.clock);
            let Some(first) = self.take_next(|_| true) else {
                return;
            };
            let mut bootstraps = first.bootstraps;
            let mut slots = first.slots;
            let mut others = Vec::new();
            while first.tasks.is_some()
                && let Some(other) = self.take_next(|call| {
                    call.tasks.is_some()
                        && call.keys == first.keys
                        && bootstraps + call.bootstraps <= first.most
                })
            {
                bootstraps += other.bootstraps;
                slots += other.slots;
                other.set(Turn::GoesAlong);
                others.push(other);
            }
            if !others.is_empty() {
                self.statistics.batched += bootstraps as u64;
            }
            let slots = self.take_slots(slots);
            first.set(Turn::Leads { slots, others });
        }
    }

    fn take_slots(&mut self, wanted: usize) -> usize {
        let taken = wanted.max(1).min(self.free);
        self.free -= taken;
        self.statistics.batches += 1;
        taken
    }
}

/// Slots in use. Dropped, it gives them to others and answers calls that got no result.
struct Lead<'a> {
    scheduler: &'a Scheduler,
    slots: usize,
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
        state.free += self.slots;
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
    /// A scheduler of this many slots, at least one.
    #[must_use]
    pub fn new(slots: usize) -> Scheduler {
        let slots = slots.max(1);
        Scheduler {
            slots,
            queues: Mutex::new(Queues {
                free: slots,
                waiting: Vec::new(),
                tenants: HashMap::new(),
                clock: 0,
                statistics: BackendStatistics::default(),
            }),
        }
    }

    /// All slots, free or not.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The passes that it gave slots to, and what waits.
    #[must_use]
    pub fn statistics(&self) -> BackendStatistics {
        let state = self.lock();
        BackendStatistics {
            waiting: state.waiting.len() as u64,
            ..state.statistics
        }
    }

    /// Does a call when its turn has come: `work` runs on this thread, or on that of the call that it joins. It receives memory
    /// for the results of its tasks.
    pub(super) fn run(
        &self,
        call: &Call<'_>,
        results: &mut [u8],
        work: impl FnOnce(&Pass<'_>, &mut [u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
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
            state.charge(call.tenant, call.cost);
            let slots = state.take_slots(call.slots);
            drop(state);
            return self.lead(call, results, (slots, Vec::new()), work);
        }
        let bootstraps = bootstraps(call.tasks);
        let waiting = Arc::new(Waiting {
            tenant: call.tenant,
            cancel: call.cancel.clone(),
            keys: call.keys,
            bootstraps,
            result_bytes: results.len(),
            cost: call.cost,
            slots: call.slots,
            most: call.most,
            tasks: (bootstraps.max(1) < call.most)
                .then(|| call.tasks.iter().map(OwnedTask::from).collect()),
            turn: Mutex::new(Turn::Waiting),
            changed: Condvar::new(),
        });
        state.waiting.push(Arc::clone(&waiting));
        drop(state);
        match self.wait(&waiting) {
            Turn::Leads { slots, others } => self.lead(call, results, (slots, others), work),
            Turn::Done(done) => {
                results.copy_from_slice(&done?);
                Ok(())
            }
            Turn::Waiting | Turn::GoesAlong => Err(BackendError::Cancelled),
        }
    }

    /// Waits for the results that another call computes, or for slots; gives any other turn if the call is cancelled first.
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
        results: &mut [u8],
        (slots, others): (usize, Vec<Arc<Waiting>>),
        work: impl FnOnce(&Pass<'_>, &mut [u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let lead = Lead {
            scheduler: self,
            slots,
            others,
        };
        if lead.others.is_empty() {
            let pass = Pass {
                tasks: call.tasks,
                slots,
                cancel: call.cancel,
            };
            return work(&pass, results);
        }
        let along: Vec<(&OwnedTask, Vec<&[u8]>)> = lead
            .others
            .iter()
            .flat_map(|other| other.tasks.iter().flatten())
            .map(|task| (task, task.test_vectors.iter().map(Vec::as_slice).collect()))
            .collect();
        let along = along.iter().map(|(task, test_vectors)| BootstrapTask {
            test_vectors,
            sample: &task.sample,
            input_bits: task.input_bits,
        });
        let tasks: Vec<BootstrapTask<'_>> = call.tasks.iter().copied().chain(along).collect();
        let tokens = lead.others.iter().map(|other| &other.cancel);
        let cancel = CancelToken::all_of(tokens.chain([call.cancel]).cloned());
        let bytes: usize = lead.others.iter().map(|other| other.result_bytes).sum();
        let mut all = vec![0; results.len() + bytes];
        let pass = Pass {
            tasks: &tasks,
            slots,
            cancel: &cancel,
        };
        let done = work(&pass, &mut all);
        let (own, mut rest) = all.split_at(results.len());
        for other in &lead.others {
            let (part, behind) = rest.split_at(other.result_bytes);
            rest = behind;
            other.set(Turn::Done(done.clone().map(|()| part.to_vec())));
        }
        done?;
        results.copy_from_slice(own);
        Ok(())
    }
}

/// How many results tasks have.
fn bootstraps(tasks: &[BootstrapTask<'_>]) -> usize {
    tasks.iter().map(|task| task.test_vectors.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::thread;

    /// A task whose result has one byte.
    const TASK: BootstrapTask<'_> = BootstrapTask {
        test_vectors: &[&[1]],
        sample: &[7],
        input_bits: 1,
    };

    fn call<'a>(tenant: u64, key: usize, cancel: &'a CancelToken) -> Call<'a> {
        Call {
            tenant,
            cancel,
            keys: [key; 2],
            tasks: &[TASK],
            cost: 3,
            slots: 1,
            most: 8,
        }
    }

    /// Results that tell how many tasks were done together.
    fn answer(pass: &Pass<'_>, results: &mut [u8]) -> Result<(), BackendError> {
        assert_eq!(results.len(), pass.tasks.len());
        results.fill(pass.tasks.len() as u8);
        Ok(())
    }

    /// Has a call done; gives its result.
    fn run(
        scheduler: &Scheduler,
        call: &Call<'_>,
        work: impl FnOnce(&Pass<'_>, &mut [u8]) -> Result<(), BackendError>,
    ) -> Result<u8, BackendError> {
        let mut result = [0];
        scheduler.run(call, &mut result, work)?;
        Ok(result[0])
    }

    fn wait_for(scheduler: &Scheduler, waiting: u64) {
        while scheduler.statistics().waiting != waiting {
            thread::yield_now();
        }
    }

    /// Has calls (tenant and key) come one by one while the only slot is taken by tenant 0; gives the tenants in the order in
    /// which their passes were done, and the result of each call.
    fn behind(calls: &[(u64, usize)]) -> (Scheduler, Vec<u64>, Vec<u8>) {
        let scheduler = Scheduler::new(1);
        let order = Mutex::new(Vec::new());
        let cancel = CancelToken::new();
        let (go, gate) = mpsc::channel::<()>();
        let results = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                run(&scheduler, &call(0, 0, &cancel), move |pass, results| {
                    gate.recv().unwrap();
                    answer(pass, results)
                })
            });
            while scheduler.statistics().batches == 0 {
                thread::yield_now();
            }
            let mut threads = Vec::new();
            for (came, (tenant, key)) in (1..).zip(calls) {
                let (scheduler, order, cancel) = (&scheduler, &order, &cancel);
                threads.push(scope.spawn(move || {
                    run(scheduler, &call(*tenant, *key, cancel), |pass, results| {
                        order.lock().unwrap().push(*tenant);
                        answer(pass, results)
                    })
                }));
                wait_for(scheduler, came);
            }
            go.send(()).unwrap();
            assert!(holder.join().unwrap().is_ok());
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.map(Result::unwrap).collect()
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
                run(&scheduler, &call(0, 0, &first), move |pass, results| {
                    gate.recv().unwrap();
                    answer(pass, results)
                })
            });
            while scheduler.statistics().batches == 0 {
                thread::yield_now();
            }
            let waiting =
                scope.spawn(|| run(&scheduler, &call(1, 0, &second), |_, _| panic!("cancelled")));
            wait_for(&scheduler, 1);
            second.cancel();
            assert_eq!(waiting.join().unwrap(), Err(BackendError::Cancelled));
            assert_eq!(scheduler.statistics().waiting, 0);
            go.send(()).unwrap();
            assert!(holder.join().unwrap().is_ok());
        });
    }

    #[test]
    fn a_panic_gives_the_slots_back_and_answers_those_that_go_along() {
        let scheduler = Scheduler::new(2);
        let (go, gate) = mpsc::channel::<()>();
        let cancel = CancelToken::new();
        let two = Call {
            slots: 9,
            ..call(0, 0, &cancel)
        };
        thread::scope(|scope| {
            let (scheduler, cancel) = (&scheduler, &cancel);
            scope.spawn(move || {
                run(scheduler, &two, move |pass, results| {
                    assert_eq!(pass.slots, 2, "a lone call gets all slots");
                    gate.recv().unwrap();
                    answer(pass, results)
                })
            });
            while scheduler.statistics().batches == 0 {
                thread::yield_now();
            }
            let others: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(move || {
                        catch_unwind(AssertUnwindSafe(|| {
                            run(scheduler, &call(1, 1, cancel), |_, _| {
                                panic!("meant to panic")
                            })
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
            let failed = |result: &&Result<u8, BackendError>| {
                matches!(result, Err(BackendError::Failed { .. }))
            };
            assert_eq!(results.iter().flatten().filter(failed).count(), 2);
        });
        assert_eq!(run(&scheduler, &call(3, 3, &cancel), answer), Ok(1));
        assert_eq!(scheduler.lock().free, 2);
    }
}
