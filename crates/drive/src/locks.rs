//! Locks on ranges of blocks, for who waits on a thread and for who does not.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use smallvec::SmallVec;

/// Shared and exclusive locks on ranges of blocks. A request waits for every earlier one that it conflicts with, granted or
/// waiting, so that none starves.
#[derive(Default)]
pub(crate) struct RangeLocks {
    state: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    next_id: u64,
    held: Vec<Entry>,
    /// In the order of arrival.
    waiting: VecDeque<(Entry, oneshot::Sender<()>)>,
}

struct Entry {
    id: u64,
    ranges: SmallVec<[Range<u64>; 1]>,
    exclusive: bool,
}

/// Whether the ranges have a block in common.
pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        (self.exclusive || other.exclusive)
            && self
                .ranges
                .iter()
                .any(|range| other.ranges.iter().any(|other| overlap(range, other)))
    }
}

/// A lock that is held, or waited for, until this is dropped.
pub(crate) struct Guard<'a> {
    locks: &'a RangeLocks,
    id: u64,
}

impl RangeLocks {
    fn state(&self) -> MutexGuard<'_, Entries> {
        // No operation leaves the state in a form that a later one could not use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the lock on all of these ranges.
    pub(crate) async fn lock(&self, ranges: &[Range<u64>], exclusive: bool) -> Guard<'_> {
        let (guard, granted) = {
            let mut state = self.state();
            let entry = state.entry(ranges, exclusive);
            // From here on, its drop takes the entry away wherever it is.
            let guard = Guard {
                locks: self,
                id: entry.id,
            };
            if state.is_free(&entry) {
                state.held.push(entry);
                (guard, None)
            } else {
                let (grant, granted) = oneshot::channel();
                state.waiting.push_back((entry, grant));
                (guard, Some(granted))
            }
        };
        if let Some(granted) = granted {
            // The sender is dropped with the entry alone, which the guard keeps.
            let _ = granted.await;
        }
        guard
    }

    /// The lock, if nobody needs to be waited for.
    pub(crate) fn lock_now(&self, ranges: &[Range<u64>], exclusive: bool) -> Option<Guard<'_>> {
        let mut state = self.state();
        let entry = state.entry(ranges, exclusive);
        let id = entry.id;
        state.is_free(&entry).then(|| {
            state.held.push(entry);
            Guard { locks: self, id }
        })
    }
}

impl Entries {
    fn entry(&mut self, ranges: &[Range<u64>], exclusive: bool) -> Entry {
        self.next_id += 1;
        Entry {
            id: self.next_id,
            ranges: ranges.iter().cloned().collect(),
            exclusive,
        }
    }

    fn is_free(&self, entry: &Entry) -> bool {
        let held = self.held.iter();
        let mut before = held.chain(self.waiting.iter().map(|(waiting, _)| waiting));
        !before.any(|other| entry.conflicts(other))
    }

    /// Takes an entry away, and gives the locks that thereby are free to who waits for them.
    fn remove(&mut self, id: u64) -> Vec<oneshot::Sender<()>> {
        if let Some(at) = self.held.iter().position(|entry| entry.id == id) {
            self.held.swap_remove(at);
        } else {
            self.waiting.retain(|(entry, _)| entry.id != id);
        }
        let mut granted = Vec::new();
        let mut at = 0;
        while let Some((entry, _)) = self.waiting.get(at) {
            let mut before = self.waiting.iter().take(at).map(|(waiting, _)| waiting);
            let blocked = self.held.iter().any(|other| entry.conflicts(other))
                || before.any(|other| entry.conflicts(other));
            if blocked {
                at += 1;
            } else if let Some((entry, grant)) = self.waiting.remove(at) {
                self.held.push(entry);
                granted.push(grant);
            }
        }
        granted
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let granted = self.locks.state().remove(self.id);
        for grant in granted {
            // Runs who waited, perhaps at once: outside of the state's lock.
            let _ = grant.send(());
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a lock on one range")]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn conflicts_wait_in_the_order_of_arrival() {
        let locks = RangeLocks::default();
        let first = block_on(locks.lock(&[0..10], false));
        let second = locks.lock_now(&[5..6], false).unwrap();
        assert!(locks.lock_now(&[9..20], true).is_none());
        let other = locks.lock_now(&[10..20], true).unwrap();
        drop((second, other));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| drop(block_on(locks.lock(&[0..5], true))));
            while locks.state().waiting.is_empty() {
                std::thread::yield_now();
            }
            // A reader that came later does not overtake the writer that waits.
            assert!(locks.lock_now(&[4..5], false).is_none());
            drop(first);
            writer.join().unwrap();
        });
        assert!(locks.lock_now(&[0..u64::MAX], true).is_some());
        assert!(locks.state().held.is_empty());
    }

    #[test]
    fn ranges_overlap_in_at_least_one_block() {
        for (a, b, expected) in [
            (0..4, 4..8, false),
            (0..5, 4..8, true),
            (5..6, 4..8, true),
            (8..9, 4..8, false),
            (0..100, 4..8, true),
            (50..50, 4..80, false),
        ] {
            assert_eq!(overlap(&a, &b), expected, "{a:?} {b:?}");
            assert_eq!(overlap(&b, &a), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_lock_on_several_ranges_is_on_each_of_them_and_no_block_between() {
        let locks = RangeLocks::default();
        let _several = locks.lock_now(&[0..4, 10..12], false).unwrap();
        let _shared = locks.lock_now(&[2..6], false).unwrap();
        assert!(locks.lock_now(&[11..12], true).is_none());
        assert!(locks.lock_now(&[6..10], true).is_some());
    }

    #[test]
    fn who_gives_up_waiting_is_forgotten() {
        let locks = RangeLocks::default();
        let held = locks.lock_now(&[0..1], true).unwrap();
        let mut waiting = Box::pin(locks.lock(&[0..2], true));
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(locks.lock_now(&[1..2], false).is_none());
        drop(waiting);
        assert!(locks.lock_now(&[1..2], false).is_some());
        drop(held);
        assert!(locks.state().held.is_empty());
    }

    #[test]
    fn writers_exclude_each_other() {
        let locks = RangeLocks::default();
        let inside = [const { AtomicU32::new(0) }; 4];
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (locks, inside) = (&locks, &inside);
                scope.spawn(move || {
                    for i in 0..1000u64 {
                        let start = (i * 7 + thread) % 4;
                        let range = start..(start + 1 + i % 2).min(4);
                        let exclusive = (i + thread) % 3 == 0;
                        let _guard = block_on(locks.lock(std::slice::from_ref(&range), exclusive));
                        for at in range.clone() {
                            let before = inside[at as usize]
                                .fetch_add(if exclusive { 1 << 16 } else { 1 }, Ordering::SeqCst);
                            assert!(before < 1 << 16 && (!exclusive || before == 0));
                        }
                        for at in range {
                            inside[at as usize]
                                .fetch_sub(if exclusive { 1 << 16 } else { 1 }, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert!(locks.state().held.is_empty() && locks.state().waiting.is_empty());
    }
}
