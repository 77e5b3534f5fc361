//! Who asks for work, and the flag that asks it to stop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks a run to stop, from any thread; clones share one flag. Once cancelled, always cancelled.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// A token over a flag that is shared with others.
    #[must_use]
    pub fn sharing(flag: Arc<AtomicBool>) -> CancelToken {
        CancelToken(flag)
    }

    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// For whom a program runs. A `&CancelToken` is one: tenant 0, with every key id.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// Who shares the arithmetic with whom: each tenant gets the same share of it.
    pub tenant: u64,
    /// Ends the run.
    pub cancel: &'a CancelToken,
    /// The key ids whose registers the run may touch; `None`: all.
    pub key_ids: Option<&'a BTreeSet<u32>>,
}

impl<'a> From<&'a CancelToken> for Requester<'a> {
    fn from(cancel: &'a CancelToken) -> Requester<'a> {
        Requester {
            tenant: 0,
            cancel,
            key_ids: None,
        }
    }
}
