//! Logs of a server: lines of text or of JSON on the standard error stream.

use std::io::stderr;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Which events are written: a level, or levels by module, such as `info,toroid_drive=debug`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Level(String);

impl Default for Level {
    fn default() -> Level {
        Level("info".to_owned())
    }
}

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Level, String> {
        const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        let known = |level: &str| LEVELS.contains(&level);
        let fits = |part: &str| match part.split_once('=') {
            Some((module, level)) => !module.is_empty() && known(level),
            None => known(part),
        };
        if text.split(',').all(fits) && text.parse::<Targets>().is_ok() {
            return Ok(Level(text));
        }
        Err(format!(
            "{text:?} is not a log level; expected {}, or MODULE=LEVEL, several separated by commas",
            LEVELS.join(", ")
        ))
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        Level::try_from(text.to_owned())
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes events from now on.
pub fn install(level: &Level, format: Format) -> anyhow::Result<()> {
    let targets: Targets = level.0.parse().context("the log level")?;
    let registry = tracing_subscriber::registry().with(targets);
    match format {
        Format::Text => registry
            .with(layer().with_ansi(false).with_writer(stderr))
            .try_init(),
        Format::Json => registry
            .with(layer().json().flatten_event(true).with_writer(stderr))
            .try_init(),
    }
    .context("cannot write a log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        for good in ["info", "off", "warn,toroid_drive=debug", "a::b=trace"] {
            assert!(good.parse::<Level>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "info,", "toroid_drive", "=info", "a=loud"] {
            assert!(bad.parse::<Level>().is_err(), "{bad}");
        }
    }
}
