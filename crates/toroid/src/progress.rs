//! Progress bars.

use indicatif::{ProgressBar, ProgressStyle};
use toroid_task::Progress;

use crate::interrupt;
use crate::output::Output;

/// Of work in steps whose names change.
const STEPS_TEMPLATE: &str = "{msg:40} {bar:30} {pos:>6} of {len:6} {elapsed:>4}";

const COUNTER_TEMPLATE: &str = "{msg:28} {bar:30} {human_pos:>11} of {human_len:11} {eta:>4}";

const TEMPLATE: &str = "{msg:28} {bar:30} {bytes:>11} of {total_bytes:11} {eta:>4}";

/// A bar over bytes; hidden where bars are not wanted or standard error is not a terminal.
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

/// A bar over things that are counted, such as rows; hidden where [`bar`] hides.
pub fn counter(output: &Output, message: &'static str) -> ProgressBar {
    let bar = bar(output, message);
    if let Ok(style) = ProgressStyle::with_template(COUNTER_TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

/// Moves a bar.
pub fn advance(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total);
    bar.set_position(done);
}

/// Progress that moves a bar; Ctrl-C cancels its work.
pub fn report_to(bar: &ProgressBar) -> Progress {
    let bar = bar.clone();
    Progress::new(move |_, done, total| advance(&bar, done, total)).with_cancel(interrupt::token())
}

/// A bar over the steps of long work, which Ctrl-C cancels. It goes away at the end of a work, and comes back with the next.
pub struct Steps(ProgressBar);

impl Steps {
    pub fn new(output: &Output) -> Steps {
        if !output.shows_progress() {
            return Steps(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(STEPS_TEMPLATE) {
            bar.set_style(style);
        }
        Steps(bar)
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }

    /// Progress that shows and hides the bar.
    pub fn progress(&self) -> Progress {
        let bar = self.0.clone();
        let report = move |what: &str, done, total| {
            if done >= total {
                return bar.finish_and_clear();
            }
            if bar.is_finished() {
                bar.reset();
            }
            if bar.message() != what {
                bar.set_message(what.to_owned());
            }
            advance(&bar, done, total);
        };
        Progress::new(report).with_cancel(interrupt::token())
    }
}
