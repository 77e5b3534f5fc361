//! Progress bars.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use toroid_client::blob::Transfer;

use crate::interrupt;
use crate::output::Output;

const TEMPLATE: &str = "{msg:28} {bar:30} {bytes:>11} of {total_bytes:11} {eta:>4}";

/// A bar over bytes; hidden where bars are not wanted or standard error is no terminal.
pub fn bar(output: &Output, message: &'static str) -> ProgressBar {
    if !output.shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0).with_message(message);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

/// Moves a bar.
pub fn advance(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total);
    bar.set_position(done);
}

/// A transfer that moves a bar and that Ctrl-C cancels.
pub fn transfer(bar: &ProgressBar) -> Transfer {
    let bar = bar.clone();
    Transfer {
        progress: Some(Arc::new(move |done, total| advance(&bar, done, total))),
        cancel: interrupt::token(),
    }
}
