//! The order of commands that overlap in their blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// First block and number of blocks.
pub(crate) type Range = (u64, u64);

fn overlap(a: &[Range], b: &[Range]) -> bool {
    a.iter().any(|(first, blocks)| {
        let meets = |(other, count): &Range| first < &(other + count) && other < &(first + blocks);
        b.iter().any(meets)
    })
}

/// Locks on ranges of blocks, and watches for writes. A lock is held for the time of SSD commands only, and whoever holds
/// one takes no lock of the engine.
#[derive(Default)]
pub(crate) struct Ranges {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last_ticket: u64,
    /// Those that hold or wait for a lock, in the order in which they came.
    locks: Vec<Lock>,
    watches: Vec<(Range, Arc<AtomicBool>)>,
}

struct Lock {
    ticket: u64,
    ranges: Vec<Range>,
    exclusive: bool,
}

/// Gives the ranges free when dropped.
pub(crate) struct RangeGuard<'a> {
    ranges: &'a Ranges,
    ticket: u64,
}

/// Tells whether blocks were written since they began to be watched.
pub(crate) struct Watch {
    written: Arc<AtomicBool>,
    ranges: Arc<Ranges>,
}

impl Ranges {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for those that came earlier and overlap, unless both only read.
    pub(crate) fn lock(&self, ranges: &[Range], exclusive: bool) -> RangeGuard<'_> {
        let mut state = self.state();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.locks.push(Lock {
            ticket,
            ranges: ranges.to_vec(),
            exclusive,
        });
        let blocked = |state: &mut State| {
            let earlier = state.locks.iter().take_while(|lock| lock.ticket != ticket);
            let mut in_the_way = earlier.filter(|lock| exclusive || lock.exclusive);
            in_the_way.any(|lock| overlap(&lock.ranges, ranges))
        };
        drop(
            self.changed
                .wait_while(state, blocked)
                .unwrap_or_else(PoisonError::into_inner),
        );
        RangeGuard {
            ranges: self,
            ticket,
        }
    }

    /// Watches blocks that are about to be read.
    pub(crate) fn watch(self: &Arc<Ranges>, range: Range) -> Watch {
        let written = Arc::new(AtomicBool::new(false));
        self.state().watches.push((range, Arc::clone(&written)));
        Watch {
            written,
            ranges: Arc::clone(self),
        }
    }

    /// Blocks have been written, but no register shows it yet.
    pub(crate) fn written(&self, range: Range) {
        for (watched, written) in &self.state().watches {
            if overlap(&[*watched], &[range]) {
                written.store(true, Ordering::Release);
            }
        }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let ticket = self.ticket;
        self.ranges
            .state()
            .locks
            .retain(|lock| lock.ticket != ticket);
        self.ranges.changed.notify_all();
    }
}

impl Watch {
    pub(crate) fn saw_a_write(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.ranges.state();
        state
            .watches
            .retain(|(_, written)| !Arc::ptr_eq(written, &self.written));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn ranges_overlap_in_at_least_one_block() {
        for (a, b, expected) in [
            ((0, 4), (4, 4), false),
            ((0, 5), (4, 4), true),
            ((5, 1), (4, 4), true),
            ((8, 1), (4, 4), false),
            ((0, 100), (4, 4), true),
        ] {
            assert_eq!(overlap(&[a], &[(50, 0), b]), expected, "{a:?} {b:?}");
            assert_eq!(overlap(&[b], &[a]), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn writers_exclude_each_other_and_readers_do_not() {
        let ranges = Ranges::default();
        let mut counter = [0u64; 8];
        let shared = Mutex::new(());
        let entered = AtomicBool::new(false);
        thread::scope(|scope| {
            let first = ranges.lock(&[(0, 4), (10, 2)], false);
            let second = ranges.lock(&[(2, 4)], false);
            let (ranges, entered) = (&ranges, &entered);
            let writer = scope.spawn(move || {
                let _lock = ranges.lock(&[(11, 1)], true);
                entered.store(true, Ordering::SeqCst);
            });
            let apart = ranges.lock(&[(6, 4)], true);
            drop(apart);
            while ranges.state().locks.len() < 3 {
                thread::yield_now();
            }
            assert!(!entered.load(Ordering::SeqCst));
            drop(first);
            writer.join().unwrap();
            drop(second);
        });
        let cell = Mutex::new(&mut counter);
        thread::scope(|scope| {
            for thread in 0..4u64 {
                let (ranges, cell, shared) = (&ranges, &cell, &shared);
                scope.spawn(move || {
                    for i in 0..200 {
                        let _lock = ranges.lock(&[(thread % 2 + i % 3, 4)], true);
                        // Nobody else is in here, since all these ranges have block 3 in common.
                        let _alone = shared.try_lock().unwrap();
                        cell.lock().unwrap()[0] += 1;
                    }
                });
            }
        });
        assert_eq!(counter[0], 800);
        assert!(ranges.state().locks.is_empty());
    }

    #[test]
    fn a_watch_sees_writes_of_its_blocks_only() {
        let ranges = Arc::new(Ranges::default());
        let watch = ranges.watch((4, 2));
        ranges.written((6, 10));
        assert!(!watch.saw_a_write());
        ranges.written((0, 5));
        assert!(watch.saw_a_write());
        drop(watch);
        assert!(ranges.state().watches.is_empty());
    }
}
