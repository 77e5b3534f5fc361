//! Watches for writes of blocks that a read brings to a register.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::locks::overlap;

#[derive(Default)]
pub(crate) struct Watches(Mutex<Vec<(Range<u64>, Arc<AtomicBool>)>>);

/// Tells whether blocks were written since they began to be watched.
pub(crate) struct Watch {
    written: Arc<AtomicBool>,
    watches: Arc<Watches>,
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, Vec<(Range<u64>, Arc<AtomicBool>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches blocks that are about to be read.
    pub(crate) fn watch(self: &Arc<Watches>, blocks: Range<u64>) -> Watch {
        let written = Arc::new(AtomicBool::new(false));
        self.lock().push((blocks, Arc::clone(&written)));
        Watch {
            written,
            watches: Arc::clone(self),
        }
    }

    /// Blocks have been written, but no register shows it yet.
    pub(crate) fn written(&self, blocks: &Range<u64>) {
        for (watched, written) in &*self.lock() {
            if overlap(watched, blocks) {
                written.store(true, Ordering::Release);
            }
        }
    }
}

impl Watch {
    pub(crate) fn saw_a_write(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = self.watches.lock();
        watches.retain(|(_, written)| !Arc::ptr_eq(written, &self.written));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_writes_of_its_blocks_only() {
        let watches = Arc::new(Watches::default());
        let watch = watches.watch(4..6);
        watches.written(&(6..16));
        assert!(!watch.saw_a_write());
        watches.written(&(0..5));
        assert!(watch.saw_a_write());
        drop(watch);
        assert!(watches.lock().is_empty());
    }
}
