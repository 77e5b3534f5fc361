//! Who gets the cores next: bootstraps fair between tenants, and batched under one key.
//!
//! While cores are free, a call goes ahead at once and takes as many as it has work for. Else it waits. When cores come free,
//! the tenant that has been served least comes first (start-time fair queueing, by the work that its parameter set asks for;
//! a tenant that was idle starts where the least served one is). Calls that wait for the very same keys go along in one batch,
//! so that the keys are streamed once for all of them. The thread of the call chosen first computes for the whole batch.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::{BackendError, BackendStatistics};
use crate::cancel::CancelToken;

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
    /// Whether it can go along with others.
    pub(super) batches: bool,
}

/// Bootstraps of one sample: test vectors and the sample.
pub(super) type Task<'a> = (Vec<&'a [u8]>, &'a [u8]);

/// A sample for each test vector of a task.
pub(super) type Results = Vec<Vec<u8>>;

/// What the work of a batch goes by.
pub(super) struct Batch<'a> {
    pub(super) tasks: Vec<Task<'a>>,
    pub(super) threads: usize,
    /// Whether nobody wants the results any more.
    pub(super) cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// Lets calls have the cores.
#[derive(Debug)]
pub(super) struct Scheduler(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    /// In the order in which they came. Empty while cores are free.
    waiting: Vec<Arc<Waiting>>,
    tenants: HashMap<u64, Tenant>,
    /// What the tenant chosen last had been served.
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
    /// Cores are the call's, for itself and those that go along.
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

impl State {
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

/// Cores in use; gives them to others when dropped, and answers those that got no result.
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

/// A call, waiting or not; leaves when dropped.
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
            let State { tenants, .. } = &mut *state;
            tenants.retain(|_, tenant| tenant.calls > 0 || tenant.served > clock);
        }
    }
}

impl Scheduler {
    pub(super) fn new(cores: usize) -> Scheduler {
        Scheduler(Mutex::new(State {
            free: cores.max(1),
            waiting: Vec::new(),
            tenants: HashMap::new(),
            clock: 0,
            statistics: BackendStatistics::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn statistics(&self) -> BackendStatistics {
        let state = self.lock();
        BackendStatistics {
            waiting: state.waiting.len() as u64,
            ..state.statistics
        }
    }

    /// Does a call when its turn has come, with `work` on this thread, or on that of a call that it goes along with.
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
        let own: Task<'_> = (call.test_vectors.to_vec(), call.sample);
        let along = lead.others.iter().map(|other| {
            let test_vectors = other.test_vectors.iter().map(Vec::as_slice).collect();
            (test_vectors, other.sample.as_slice())
        });
        let cancelled = || {
            call.cancel.is_cancelled()
                && lead.others.iter().all(|other| other.cancel.is_cancelled())
        };
        let mut results = work(&Batch {
            tasks: std::iter::once(own).chain(along).collect(),
            threads,
            cancelled: &cancelled,
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
