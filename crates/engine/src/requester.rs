//! The requester of a run.

use std::collections::BTreeSet;

use toroid_task::{CancelToken, Progress};

/// Who asks for a run. A `&CancelToken` converts into one: tenant 0, with every key id.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// The tenant; all tenants get equal shares of the arithmetic.
    pub tenant: u64,
    /// Ends the run.
    pub cancel: &'a CancelToken,
    /// The key ids whose registers the run may touch; `None`: all.
    pub key_ids: Option<&'a BTreeSet<u32>>,
    /// Where the run tells how far it is, as [`PASSES`] and [`BOOTSTRAPS`]; `None`: nowhere.
    pub progress: Option<&'a Progress>,
}

/// The name under which a run on columns reports passes over rows: a program that needs rows several times makes several passes.
pub const PASSES: &str = "passes over rows";
/// The name under which a run reports bootstraps.
pub const BOOTSTRAPS: &str = "bootstraps";

impl Requester<'_> {
    pub(crate) fn report(&self, what: &str, done: u64, total: u64) {
        if let Some(progress) = self.progress {
            progress.report(what, done, total);
        }
    }
}

impl<'a> From<&'a CancelToken> for Requester<'a> {
    fn from(cancel: &'a CancelToken) -> Requester<'a> {
        Requester {
            tenant: 0,
            cancel,
            key_ids: None,
            progress: None,
        }
    }
}
