//! The requester of a run.

use std::collections::BTreeSet;

use toroid_task::CancelToken;

/// Who asks for a run. A `&CancelToken` converts into one: tenant 0, with every key id.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// The tenant; all tenants get equal shares of the arithmetic.
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
