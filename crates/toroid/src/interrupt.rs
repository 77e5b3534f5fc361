//! Ctrl-C: the first asks long work to stop and clean up, the second ends the process.

use std::sync::OnceLock;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

static TOKEN: OnceLock<CancellationToken> = OnceLock::new();

/// Cancelled by Ctrl-C.
pub fn token() -> CancellationToken {
    TOKEN.get_or_init(CancellationToken::new).clone()
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
