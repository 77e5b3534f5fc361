//! Files of values: tables that stand beside a program's text. `docs/reference/isa.md` describes their form.

use crate::lexer::integer;
use crate::test_vector::{MAX_INPUT_BITS, TestVectorSource, signed};

/// The most characters of a word that an error quotes.
const MAX_QUOTED_CHARS: usize = 40;

/// Why a text is not a list of values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    /// Something in a line is wrong.
    #[error("line {line}: {message}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A table cannot have this many values.
    #[error("{found} values, a power of two from 2 to {} expected", 1 << MAX_INPUT_BITS)]
    Count {
        /// The number of values.
        found: usize,
    },
}

impl TestVectorSource {
    /// The table in a file's text: integers as the language writes them, negative ones with `-`, between white space or commas;
    /// `#` begins a comment that goes to the end of the line.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line; or a number of values that is not a power of two from 2 to 2^16.
    pub fn from_values(text: &str) -> Result<TestVectorSource, ValuesError> {
        parse_values(text).map(TestVectorSource::Table)
    }
}

/// Why the file of a test vector gave no table.
#[derive(Debug, thiserror::Error)]
#[error("test vector {name}, file {path:?}: {reason}")]
pub struct FileError {
    /// The test vector's name.
    pub name: String,
    /// The path as the program's text gives it.
    pub path: String,
    /// What is wrong with it.
    pub reason: FileErrorReason,
}

/// What is wrong with the file of a test vector.
#[derive(Debug, thiserror::Error)]
pub enum FileErrorReason {
    /// It could not be read.
    #[error("{0}")]
    Read(Box<dyn std::error::Error + Send + Sync>),
    /// It does not hold a list of values.
    #[error(transparent)]
    Values(#[from] ValuesError),
    /// The values are not as many as the test vector's input asks for.
    #[error("{found} values, {expected} expected for an input of {p_in} bits")]
    Length {
        /// The number of values.
        found: usize,
        /// 2^p_in.
        expected: usize,
        /// The input width.
        p_in: u32,
    },
    /// The files of one program hold too many values together.
    #[error("more than {MAX_FILE_VALUES} values in the files of one program")]
    TooMany,
}

/// The most values that the files of one program hold together: sixteen tables of the widest input.
pub(crate) const MAX_FILE_VALUES: usize = 1 << 20;

/// Integers between white space or commas, with `#` comments.
pub(crate) fn parse_values(text: &str) -> Result<Vec<i64>, ValuesError> {
    let mut values = Vec::new();
    // Whether a comma may come: once after every value.
    let mut comma_expected = false;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let wrong = |message: String| ValuesError::Line {
            line: index + 1,
            message,
        };
        let line = line.split('#').next().unwrap_or_default();
        for (field_index, field) in line.split(',').enumerate() {
            if field_index > 0 && !std::mem::take(&mut comma_expected) {
                return Err(wrong("expected a value before `,`".to_owned()));
            }
            for word in field.split_whitespace() {
                if values.len() >= 1 << MAX_INPUT_BITS {
                    return Err(wrong(format!("more than {} values", 1 << MAX_INPUT_BITS)));
                }
                values.push(value(word).map_err(|message| {
                    let quoted: String = word.chars().take(MAX_QUOTED_CHARS).collect();
                    wrong(format!("{quoted:?}: {message}"))
                })?);
                comma_expected = true;
            }
        }
    }
    if values.len() < 2 || !values.len().is_power_of_two() {
        return Err(ValuesError::Count {
            found: values.len(),
        });
    }
    Ok(values)
}

fn value(word: &str) -> Result<i64, String> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    signed(negative, integer(digits)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_separate_values() {
        for text in [
            "1 -2 3 4",
            "1,-2,3,4",
            "1, -2,\n3,\t4,\n",
            "\u{feff}# title, with commas\r\n1 -2 # two\r\n\r\n 0x3,0b1_00 # end",
            "1\n-2\n3\n4",
            "1 ,\n -2 3\n,4",
        ] {
            assert_eq!(parse_values(text), Ok(vec![1, -2, 3, 4]), "{text:?}");
        }
    }

    #[test]
    fn errors_have_their_line() {
        for (text, expected) in [
            ("", "0 values, a power of two from 2 to 65536 expected"),
            ("# 1 2", "0 values, a power of two from 2 to 65536 expected"),
            (
                "1 2\n3",
                "3 values, a power of two from 2 to 65536 expected",
            ),
            (
                "1 2\n3 4a",
                "line 2: \"4a\": `a` is not a digit of a decimal number",
            ),
            (
                "1 - 2",
                "line 1: \"-\": expected digits of a decimal number",
            ),
            (
                "1;2",
                "line 1: \"1;2\": `;` is not a digit of a decimal number",
            ),
            (
                "1 +2",
                "line 1: \"+2\": `+` is not a digit of a decimal number",
            ),
            (
                "1.5 2",
                "line 1: \"1.5\": `.` is not a digit of a decimal number",
            ),
            (", 1 2", "line 1: expected a value before `,`"),
            ("1\n2,,3", "line 2: expected a value before `,`"),
            ("1,\n,2", "line 2: expected a value before `,`"),
            (
                "\n1 9223372036854775808",
                "line 2: \"9223372036854775808\": 9223372036854775808 does not fit 64 bits",
            ),
            (
                "99999999999999999999",
                "line 1: \"99999999999999999999\": the number does not fit 64 bits",
            ),
            (
                "\u{1b}[2J",
                "line 1: \"\\u{1b}[2J\": `\\u{1b}` is not a digit of a decimal number",
            ),
        ] {
            assert_eq!(
                parse_values(text).unwrap_err().to_string(),
                expected,
                "{text:?}"
            );
        }
        assert_eq!(parse_values("-9223372036854775808 0").unwrap()[0], i64::MIN);
        let mut largest = "7\n".repeat(1 << MAX_INPUT_BITS);
        assert_eq!(parse_values(&largest).unwrap().len(), 1 << MAX_INPUT_BITS);
        largest.push('7');
        assert_eq!(
            parse_values(&largest).unwrap_err().to_string(),
            "line 65537: more than 65536 values"
        );
    }
}
