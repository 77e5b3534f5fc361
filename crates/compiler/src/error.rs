//! What is wrong with a graph, and where.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toroid_task::Cancelled;

use crate::interval::Interval;

/// A place in the program that a graph was made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// The file, as the statement names it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A graph that is refused: what is wrong, where, the intervals of the operands, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The place in the program that the graph was made from.
    pub location: Option<Location>,
    /// The line of the graph's text, from 1, if it comes from text.
    pub line: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// The operands, with their intervals.
    pub operands: Vec<(String, Interval)>,
    /// What would help.
    pub help: Option<String>,
}

impl Error {
    /// An error without a place.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Error {
        Error {
            location: None,
            line: None,
            message: message.into(),
            operands: Vec::new(),
            help: None,
        }
    }

    /// Adds what would help.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }

    /// Adds an operand with its interval.
    #[must_use]
    pub fn with_operand(mut self, name: impl Into<String>, interval: Interval) -> Error {
        self.operands.push((name.into(), interval));
        self
    }

    /// Adds the place, unless there is one.
    #[must_use]
    pub fn at(mut self, location: Option<&Location>) -> Error {
        if self.location.is_none() {
            self.location = location.cloned();
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.location, self.line) {
            (Some(location), _) => write!(f, "{location}: ")?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        write!(f, "{}", self.message)?;
        for (name, interval) in &self.operands {
            write!(f, "\n  {name} is {interval}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Cancelled> for Error {
    fn from(cancelled: Cancelled) -> Error {
        Error::new(cancelled.to_string())
    }
}
