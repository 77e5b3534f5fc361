//! Errors in assembly text, with the place and the line they are in.

use std::fmt;

/// The number of errors after which the assembler and the verifier stop looking for more.
pub const MAX_ERRORS: usize = 20;

/// The most characters of a line that an error quotes.
const MAX_QUOTED_CHARS: usize = 120;

/// A place in a source text; the source is at most [`crate::MAX_SOURCE_BYTES`] long, so that `u32` holds every offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The offset of the line's first byte.
    pub line_start: u32,
    /// The offset of the place itself.
    pub offset: u32,
}

/// An error that has not yet been given the line's text.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    pub position: Position,
    pub message: String,
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn new(position: Position, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            position,
            message: message.into(),
            help: None,
        }
    }

    pub fn with_help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds "did you mean" with the candidate that `word` is most likely a misspelling of, if one is close enough.
    pub fn with_suggestion<'a>(
        mut self,
        word: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Diagnostic {
        if let Some(candidate) = closest(word, candidates) {
            self.help = Some(format!("did you mean `{candidate}`?"));
        }
        self
    }

    pub fn locate(self, source: &str) -> AssembleError {
        let start = self.position.line_start as usize;
        let rest = source.get(start..).unwrap_or_default();
        let line = rest.split(['\n', '\r']).next().unwrap_or_default();
        let before = source
            .get(start..self.position.offset as usize)
            .unwrap_or_default();
        let column = before.chars().count();
        // A long line is cut to a window around the place.
        let skipped = if column + 20 > MAX_QUOTED_CHARS {
            column - MAX_QUOTED_CHARS / 2
        } else {
            0
        };
        let mut text = String::new();
        let mut chars = line.chars().skip(skipped);
        for c in chars.by_ref().take(MAX_QUOTED_CHARS) {
            text.push(match c {
                '\t' => ' ',
                c if c.is_control() => char::REPLACEMENT_CHARACTER,
                c => c,
            });
        }
        let mut caret = column - skipped;
        if chars.next().is_some() {
            text.push('…');
        }
        if skipped > 0 {
            text.insert(0, '…');
            caret += 1;
        }
        AssembleError {
            line: self.position.line,
            column: column as u32 + 1,
            text,
            caret,
            message: self.message,
            help: self.help,
        }
    }
}

/// One thing that is wrong in an assembly text.
///
/// `Display` prints the message, the line with a caret under the place, and the help, over several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembleError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The line's text for display: tabs are spaces, control characters are replaced, and a long line is cut.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it, where that is clear.
    pub help: Option<String>,
    caret: usize,
}

impl fmt::Display for AssembleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        writeln!(f, "line {number}, column {}: {}", self.column, self.message)?;
        writeln!(f, "  {number} | {}", self.text)?;
        write!(
            f,
            "  {:width$} | {:caret$}^",
            "",
            "",
            width = number.len(),
            caret = self.caret
        )?;
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for AssembleError {}

/// Everything that is wrong in an assembly text, in the order of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembleErrors {
    /// The errors; at least one, at most [`MAX_ERRORS`].
    pub errors: Vec<AssembleError>,
    /// Whether the assembler stopped looking because it had found [`MAX_ERRORS`].
    pub stopped: bool,
}

impl fmt::Display for AssembleErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        if self.stopped {
            write!(f, "\nstopped after {MAX_ERRORS} errors")?;
        }
        Ok(())
    }
}

impl std::error::Error for AssembleErrors {}

/// Collects errors up to [`MAX_ERRORS`].
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    found: Vec<Diagnostic>,
}

impl Diagnostics {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if !self.is_full() {
            self.found.push(diagnostic);
        }
    }

    pub fn is_full(&self) -> bool {
        self.found.len() >= MAX_ERRORS
    }

    pub fn into_result<T>(mut self, source: &str, value: T) -> Result<T, AssembleErrors> {
        if self.found.is_empty() {
            return Ok(value);
        }
        let stopped = self.is_full();
        self.found
            .sort_by_key(|diagnostic| diagnostic.position.offset);
        Err(AssembleErrors {
            errors: self
                .found
                .into_iter()
                .map(|diagnostic| diagnostic.locate(source))
                .collect(),
            stopped,
        })
    }
}

/// The candidate nearest to `word` in edits and swaps of neighbours, if it is within a third of the length.
fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Bounds the work that hostile text with many declared names can ask for.
    const MAX_CANDIDATES: usize = 4096;
    let word = word.to_ascii_lowercase();
    let limit = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= limit && candidate.len() > 1)
        .map(|candidate| {
            (
                strsim::osa_distance(&word, &candidate.to_ascii_lowercase()),
                candidate,
            )
        })
        .filter(|&(edits, candidate)| edits <= limit && edits < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        let names = ["homadd", "homsub", "push", "pop"];
        assert_eq!(closest("homad", names), Some("homadd"));
        assert_eq!(closest("HOMSUBB", names), Some("homsub"));
        assert_eq!(closest("jump", names), None);
        assert_eq!(closest("x", names), None);
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let source = format!("{}@{}", " ".repeat(500), "b".repeat(500));
        let error = Diagnostic::new(
            Position {
                line: 1,
                line_start: 0,
                offset: 500,
            },
            "m",
        )
        .locate(&source);
        assert_eq!(error.column, 501);
        assert_eq!(error.text.chars().nth(error.caret), Some('@'));
        assert!(error.text.chars().count() <= MAX_QUOTED_CHARS + 2);
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        let source = "\tmov \u{1b}[31m";
        let error = Diagnostic::new(
            Position {
                line: 1,
                line_start: 0,
                offset: 5,
            },
            "m",
        )
        .locate(source);
        assert_eq!(error.text, " mov \u{fffd}[31m");
        assert_eq!(
            error.to_string(),
            "line 1, column 6: m\n  1 |  mov \u{fffd}[31m\n    |      ^"
        );
    }
}
