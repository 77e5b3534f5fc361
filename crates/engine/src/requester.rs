//! For whom a program runs.

use std::collections::BTreeSet;

use toroid_task::CancelToken;

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
