//! Ctrl-C: the first asks long work to stop and clean up, the second ends the process.

use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::sync::Notify;
use toroid_task::CancelToken;

use crate::exit;

static TOKEN: OnceLock<CancelToken> = OnceLock::new();
static CANCELLED: Notify = Notify::const_new();

/// Cancelled by Ctrl-C.
pub fn token() -> CancelToken {
    TOKEN.get_or_init(CancelToken::new).clone()
}

/// Waits for Ctrl-C.
pub async fn cancelled() {
    let mut notified = pin!(CANCELLED.notified());
    // From here on the notification is not missed.
    notified.as_mut().enable();
    if !token().is_cancelled() {
        notified.await;
    }
}

static EXPECTED: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C the regular way to end the work, rather than an interruption of it.
pub fn expect() {
    EXPECTED.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C has interrupted the work.
pub fn is_interrupted() -> bool {
    token().is_cancelled() && !EXPECTED.load(Ordering::Relaxed)
}

/// Installs the handler.
pub fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        let token = token();
        if token.is_cancelled() {
            std::process::exit(exit::INTERRUPTED.into());
        }
        token.cancel();
        CANCELLED.notify_waiters();
    })
    .context("cannot install the Ctrl-C handler")
}
