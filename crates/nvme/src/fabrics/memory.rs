//! Memory for the data of commands, which all connections of a target share.
//!
//! A connection gets more as long as it then holds no more than what is still free beside it. So connections share in equal parts, and some
//! memory is always free for one that has none yet, however many others hold theirs back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::controller::Wake;

/// Connections that are told at a time that memory has become free.
const TOLD: usize = 4;

pub(super) struct Memory {
    total: usize,
    used: AtomicUsize,
    /// By the connection's identifier.
    waiting: Mutex<VecDeque<(u64, Wake)>>,
    any_waits: AtomicBool,
}

impl Memory {
    pub(super) fn new(total: usize) -> Memory {
        Memory {
            total,
            used: AtomicUsize::new(0),
            waiting: Mutex::default(),
            any_waits: AtomicBool::new(false),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(u64, Wake)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Whether a connection that is said to hold `own` bytes, and holds `held` now, may hold so many `more`. One that is alone may always
    /// hold one thing.
    pub(super) fn allows(&self, own: usize, held: usize, more: usize) -> bool {
        let others = self.used().saturating_sub(own);
        let alone = others == 0 && held == 0;
        alone || held + more <= self.total.saturating_sub(others) / 2
    }

    /// A connection that held `from` bytes holds `to`.
    pub(super) fn change(&self, from: usize, to: usize) {
        if to >= from {
            self.used.fetch_add(to - from, Ordering::SeqCst);
            return;
        }
        let left = self.used.fetch_sub(from - to, Ordering::SeqCst) - (from - to);
        if self.any_waits.load(Ordering::SeqCst) {
            let mut waiting = self.waiting();
            let told = if left == 0 { waiting.len() } else { TOLD };
            let told: Vec<_> = (0..told).map_while(|_| waiting.pop_front()).collect();
            self.any_waits.store(!waiting.is_empty(), Ordering::SeqCst);
            drop(waiting);
            told.iter().for_each(|(_, wake)| wake());
        }
    }

    /// Calls `wake` once when memory has become free, however often the connection asks for it until then. Ask again afterwards whether
    /// there is some now.
    pub(super) fn wait(&self, connection: u64, wake: &Wake) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|(other, _)| *other == connection) {
            waiting.push_back((connection, Wake::clone(wake)));
        }
        self.any_waits.store(true, Ordering::SeqCst);
    }

    /// A connection that held `bytes` has ended.
    pub(super) fn end(&self, connection: u64, bytes: usize) {
        if self.any_waits.load(Ordering::SeqCst) {
            self.waiting().retain(|(other, _)| *other != connection);
        }
        self.change(bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn connections_share_and_leave_some_for_others() {
        let memory = Memory::new(1 << 30);
        assert!(memory.allows(0, 0, 8 << 30), "one alone");
        let mut held = Vec::new();
        for _ in 0..20 {
            let mut own = 0;
            while memory.allows(own, own, 256) {
                memory.change(own, own + 256);
                own += 256;
            }
            assert!(own >= 256);
            held.push(own);
            assert!(memory.used() <= 1 << 30);
        }
        for own in held {
            memory.change(own, 0);
        }
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn those_that_wait_are_told_in_turn_and_all_at_the_end() {
        let memory = Memory::new(1000);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let wake: Wake = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        memory.change(0, 1000);
        for connection in (0..20).chain(0..20) {
            memory.wait(connection, &wake);
        }
        memory.change(1000, 999);
        assert_eq!(calls.load(Ordering::SeqCst), TOLD);
        // One of those that wait ends, and another one of those that hold something.
        memory.end(19, 0);
        memory.end(30, 1);
        assert_eq!(calls.load(Ordering::SeqCst), 2 * TOLD);
        memory.change(998, 0);
        assert_eq!(calls.load(Ordering::SeqCst), 19);
        memory.change(0, 1);
        memory.change(1, 0);
        assert_eq!(calls.load(Ordering::SeqCst), 19);
    }
}
