#![doc = include_str!("../README.md")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks work to stop, from any thread. Clones share one flag; a cancelled token stays cancelled.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    flag: Arc<AtomicBool>,
    /// Cancelled together, they cancel this token.
    members: Option<Arc<[CancelToken]>>,
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// A token for work that several ask for: it is cancelled once all of their tokens are. That of none is cancelled.
    ///
    /// ```
    /// use toroid_task::CancelToken;
    ///
    /// let (first, second) = (CancelToken::new(), CancelToken::new());
    /// let both = CancelToken::all_of([first.clone(), second.clone()]);
    /// first.cancel();
    /// assert!(!both.is_cancelled());
    /// second.cancel();
    /// assert!(both.is_cancelled());
    /// ```
    #[must_use]
    pub fn all_of(tokens: impl IntoIterator<Item = CancelToken>) -> CancelToken {
        CancelToken {
            flag: Arc::default(),
            members: Some(tokens.into_iter().collect()),
        }
    }

    /// Asks to stop.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let all = |members: &Arc<[CancelToken]>| members.iter().all(CancelToken::is_cancelled);
        self.flag.load(Ordering::Relaxed) || self.members.as_ref().is_some_and(all)
    }

    /// [`Cancelled`] once someone asked to stop.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() {
            Err(Cancelled)
        } else {
            Ok(())
        }
    }
}

/// The work stopped because its [`CancelToken`] was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

type Report = dyn Fn(&str, u64, u64) + Send + Sync;

/// Where long work reports how far it is, and the token by which it is asked to stop. Clones share both.
#[derive(Clone, Default)]
pub struct Progress {
    cancel: CancelToken,
    report: Option<Arc<Report>>,
}

impl Progress {
    /// Reports nothing and never stops.
    #[must_use]
    pub fn none() -> Progress {
        Progress::default()
    }

    /// Calls `report` with the name of the work, the steps done and the steps in total.
    pub fn new(report: impl Fn(&str, u64, u64) + Send + Sync + 'static) -> Progress {
        Progress {
            cancel: CancelToken::new(),
            report: Some(Arc::new(report)),
        }
    }

    /// The same reports; stops when `cancel` is cancelled.
    #[must_use]
    pub fn with_cancel(self, cancel: CancelToken) -> Progress {
        Progress { cancel, ..self }
    }

    /// The token by which the work is asked to stop.
    #[must_use]
    pub fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// Tells that `done` of `total` steps of the work named `what` are done.
    pub fn report(&self, what: &str, done: u64, total: u64) {
        if let Some(report) = &self.report {
            report(what, done, total);
        }
    }

    /// Whether someone asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// [`Cancelled`] once someone asked to stop.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn check(&self) -> Result<(), Cancelled> {
        self.cancel.check()
    }
}

impl From<CancelToken> for Progress {
    fn from(cancel: CancelToken) -> Progress {
        Progress::none().with_cancel(cancel)
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("reports", &self.report.is_some())
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn clones_share_the_token_and_the_reports() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let progress = Progress::new(move |what, done, total| {
            kept.lock().unwrap().push((what.to_owned(), done, total))
        });
        let clone = progress.clone();
        clone.report("a", 1, 2);
        progress.report("b", 2, 2);
        assert_eq!(
            *seen.lock().unwrap(),
            [("a".to_owned(), 1, 2), ("b".to_owned(), 2, 2)]
        );
        progress.cancel_token().cancel();
        assert!(clone.is_cancelled());
        assert_eq!(clone.check(), Err(Cancelled));
    }

    #[test]
    fn another_token_takes_the_place_of_the_first() {
        let (first, second) = (CancelToken::new(), CancelToken::new());
        let progress = Progress::from(first.clone()).with_cancel(second.clone());
        first.cancel();
        assert_eq!(progress.check(), Ok(()));
        second.cancel();
        assert_eq!(progress.check(), Err(Cancelled));
    }
}
