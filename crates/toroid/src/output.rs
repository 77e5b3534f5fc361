//! Text for people, or one JSON object for scripts.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;

/// Where results go.
#[derive(Clone, Copy)]
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    pub fn new(json: bool, quiet: bool) -> Output {
        Output { json, quiet }
    }

    /// Whether progress bars are wanted.
    pub fn shows_progress(&self) -> bool {
        !self.json && !self.quiet
    }

    /// A line for people on the way to the result.
    pub fn line(&self, text: impl AsRef<str>) {
        if !self.json {
            // A line on the way may be lost; the result may not.
            let _ = print_line(text.as_ref());
        }
    }

    /// A remark that is not part of the result.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("note: {}", text.as_ref());
        }
    }

    /// The result: as JSON, or as the text.
    pub fn result(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            print_line(&serde_json::to_string(value)?)?;
        } else {
            print_line(&text())?;
        }
        Ok(())
    }

    /// The reason of a failure, on the standard error stream.
    pub fn failure(&self, error: &anyhow::Error) {
        let reason = reason(error);
        if self.json {
            eprintln!("{}", serde_json::json!({ "error": reason }));
        } else {
            eprintln!("error: {reason}");
        }
    }
}

/// An error and its causes on one line. An error that states its cause itself has it once.
fn reason(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |reason, cause| match reason.ends_with(&cause) {
        true => reason,
        false => format!("{reason}: {cause}"),
    })
}

/// A command line that cannot be meant; it has its own exit code.
#[derive(Debug)]
pub struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The error of a command line that cannot be meant.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}

/// Prints a line; a reader that closed the pipe (`| head`) is not a failure.
fn print_line(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot print the result")
        }
        _ => Ok(()),
    }
}

/// A probability or a deviation for people: 2^-64. What is negligible by any measure is not told apart from 0.
pub fn power_of_two(log2: f64) -> String {
    if log2 < -1000.0 {
        "below 2^-1000".to_owned()
    } else {
        format!("2^{log2:.1}")
    }
}

/// A time for people.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
