//! Exit codes: the one table of them, which `toroid --help` shows.

use std::process::ExitCode;

use toroid_tfhe::TfheError;

use crate::output::Usage;

/// Exit codes and what they mean.
const TABLE: [(u8, &str); 6] = [
    (DONE, "done"),
    (FAILED, "refused or failed; standard error has the reason"),
    (
        USAGE,
        "wrong usage: an option, argument or value that is missing, unknown or contradicts another",
    ),
    (
        UNSURE,
        "not decrypted: the failure probability is above the limit, or nobody states it",
    ),
    (
        PANIC,
        "an error in toroid itself; please report what standard error says",
    ),
    (INTERRUPTED, "interrupted by Ctrl-C"),
];
const DONE: u8 = 0;
const FAILED: u8 = 1;
/// Also that of clap.
const USAGE: u8 = 2;
const UNSURE: u8 = 3;
/// Rust's own.
const PANIC: u8 = 101;
/// As shells count signals: 128 and SIGINT.
pub const INTERRUPTED: u8 = 130;

/// The table as text.
pub fn help() -> String {
    let row = |(code, meaning): &(u8, &str)| format!("  {code:<3}  {meaning}");
    let rows: Vec<String> = TABLE.iter().map(row).collect();
    format!("Exit codes:\n{}", rows.join("\n"))
}

/// The code of a failure, or of an interruption that led to it.
pub fn code(error: &anyhow::Error, interrupted: bool) -> ExitCode {
    let unsure = |cause: &(dyn std::error::Error + 'static)| {
        let refused = cause.downcast_ref::<TfheError>();
        matches!(refused, Some(TfheError::FailureProbability { .. }))
    };
    ExitCode::from(if interrupted {
        INTERRUPTED
    } else if error.is::<Usage>() {
        USAGE
    } else if error.chain().any(unsure) {
        UNSURE
    } else {
        FAILED
    })
}
