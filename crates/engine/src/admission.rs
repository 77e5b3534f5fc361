//! Decides which runs may go side by side.
//!
//! Two runs conflict if one writes a register whose old content the other needs. Active runs never conflict, so the order in
//! which they commit is an order in which they could have run one by one. A run also counts as earlier than a store that
//! happened since it began; a later run that touches the same register therefore waits for it.
//!
//! Runs wait in the order in which they came. Only runs that do not conflict with a waiting run pass it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toroid_isa::{AssumePresent, KeyKind, Program, VrNumber, verify};

use crate::error::EngineError;
use crate::table::Table;
use toroid_task::CancelToken;

/// How often a run that waits for others looks at its cancellation token.
const CANCEL_POLL: Duration = Duration::from_millis(10);

/// The registers of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    /// Those whose content from before the run it needs.
    reads: BTreeSet<VrNumber>,
    writes: BTreeSet<VrNumber>,
}

impl Footprint {
    /// Of a program that a staged sample in `staged` may have triggered.
    pub(crate) fn new(
        program: &Program,
        program_vr: VrNumber,
        staged: Option<VrNumber>,
    ) -> Footprint {
        let everything = AssumePresent {
            stack_slots: usize::MAX,
        };
        let Ok(facts) = verify(program, &everything, None) else {
            // The engine will refuse the program, which touches nothing then.
            return Footprint::default();
        };
        let mut reads: BTreeSet<VrNumber> = facts.inputs.into_iter().collect();
        let mut writes = facts.written;
        if let Some(vr) = staged {
            reads.remove(&vr);
            writes.insert(vr);
        }
        let key_ids: BTreeSet<u32> = facts.test_vectors.iter().map(|vr| vr.key_id()).collect();
        for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
            reads.extend(
                key_ids
                    .iter()
                    .filter_map(|id| VrNumber::key(*id, kind).ok()),
            );
        }
        reads.extend(facts.test_vectors);
        reads.insert(program_vr);
        Footprint { reads, writes }
    }

    fn conflicts(&self, other: &Footprint) -> bool {
        !self.reads.is_disjoint(&other.writes) || !self.writes.is_disjoint(&other.reads)
    }

    fn contains(&self, vr: &VrNumber) -> bool {
        self.reads.contains(vr) || self.writes.contains(vr)
    }

    fn registers(&self) -> impl Iterator<Item = &VrNumber> {
        self.reads.iter().chain(&self.writes)
    }
}

struct Waiting {
    ticket: u64,
    footprint: Footprint,
}

struct Running {
    ticket: u64,
    footprint: Footprint,
    /// Stamp of the table at its begin.
    begun: u64,
}

#[derive(Default)]
struct Runs {
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    running: Vec<Running>,
}

impl Runs {
    /// Whether nothing but the bound on runs keeps the run at this place of the queue from beginning.
    fn is_free(&self, place: usize, table: &Table) -> bool {
        let Some(Waiting { footprint, .. }) = self.waiting.get(place) else {
            return false;
        };
        let earlier = self.waiting.iter().take(place);
        let stored_between = |running: &Running| {
            footprint
                .registers()
                .any(|vr| running.footprint.contains(vr) && table.touched_since(*vr, running.begun))
        };
        earlier
            .map(|other| &other.footprint)
            .all(|other| !footprint.conflicts(other))
            && self
                .running
                .iter()
                .all(|running| !footprint.conflicts(&running.footprint) && !stored_between(running))
    }

    /// Whether the run at this place of the queue may begin.
    fn may_begin(&self, place: usize, table: &Table, limit: usize) -> bool {
        let before = (0..place).filter(|other| self.is_free(*other, table));
        self.running.len() < limit
            && self.is_free(place, table)
            && self.running.len() + before.count() < limit
    }

    fn place(&self, ticket: u64) -> Option<usize> {
        self.waiting
            .iter()
            .position(|waiting| waiting.ticket == ticket)
    }
}

/// Lets runs in.
pub(crate) struct Admission {
    state: Mutex<Runs>,
    changed: Condvar,
    tickets: AtomicU64,
    limit: usize,
}

/// A run that waits or is active; it leaves when dropped.
pub(crate) struct Admitted<'a> {
    admission: &'a Admission,
    ticket: u64,
}

impl Admission {
    /// At most `limit` runs at a time, at least one.
    pub(crate) fn new(limit: usize) -> Admission {
        Admission {
            state: Mutex::default(),
            changed: Condvar::new(),
            tickets: AtomicU64::new(0),
            limit: limit.max(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a run may begin. `program` gives the run's program and staged register as they now are; `begin` takes the
    /// run's view of the table and gives its stamp. The table is locked from the decision until the view is taken.
    pub(crate) fn admit<'a, 't, T>(
        &'a self,
        cancel: &CancelToken,
        table: impl Fn() -> MutexGuard<'t, Table>,
        program: impl Fn(&Table) -> Result<(Arc<Program>, VrNumber), EngineError>,
        staged: Option<VrNumber>,
        begin: impl FnOnce(&mut Table, &Arc<Program>) -> Result<(u64, T), EngineError>,
    ) -> Result<(Admitted<'a>, T), EngineError> {
        let admitted = Admitted {
            admission: self,
            ticket: self.tickets.fetch_add(1, Ordering::Relaxed),
        };
        let ticket = admitted.ticket;
        let mut known: Option<Arc<Program>> = None;
        // Declared after `admitted`, whose drop takes the lock: an early return gives it back first.
        let mut state = self.lock();
        loop {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let mut table = table();
            let (current, program_vr) = program(&table)?;
            let same = |known: &Arc<Program>| Arc::ptr_eq(known, &current);
            if !known.as_ref().is_some_and(same) {
                let footprint = Footprint::new(&current, program_vr, staged);
                // Another program may be stored while this run waits, which keeps its place.
                match state.place(ticket) {
                    Some(place) => state.waiting[place].footprint = footprint,
                    None => state.waiting.push(Waiting { ticket, footprint }),
                }
                known = Some(Arc::clone(&current));
            }
            let place = state.place(ticket).unwrap_or(usize::MAX);
            if state.may_begin(place, &table, self.limit) {
                let (begun, view) = begin(&mut table, &current)?;
                let Waiting { footprint, .. } = state.waiting.remove(place);
                state.running.push(Running {
                    ticket,
                    footprint,
                    begun,
                });
                drop(state);
                drop(table);
                self.changed.notify_all();
                return Ok((admitted, view));
            }
            drop(table);
            (state, _) = self
                .changed
                .wait_timeout(state, CANCEL_POLL)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many runs wait, and how many are active.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.running.len())
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        let ticket = self.ticket;
        state.waiting.retain(|waiting| waiting.ticket != ticket);
        state.running.retain(|running| running.ticket != ticket);
        drop(state);
        self.admission.changed.notify_all();
    }
}
