//! Programs that print what they measured.

use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use toroid_bench_common::Error;

/// What a process prints as JSON; its errors go where ours go.
pub fn answer<T: DeserializeOwned>(command: &mut Command) -> Result<T, Error> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
