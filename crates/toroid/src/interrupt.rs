//! Ctrl-C: the first asks long work to stop and clean up, the second ends the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio_util::sync::CancellationToken;

static TOKEN: OnceLock<CancellationToken> = OnceLock::new();

/// Cancelled by Ctrl-C.
pub fn token() -> CancellationToken {
    TOKEN.get_or_init(CancellationToken::new).clone()
}

static EXPECTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C is the way to end the work, and no interruption of it.
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
            std::process::exit(130);
        }
        token.cancel();
    })
    .context("cannot install the Ctrl-C handler")
}
