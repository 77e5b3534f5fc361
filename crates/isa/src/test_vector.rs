//! Test vectors: the functions that a Bootstrap applies, as integers to integers.

use crate::assembler::parse_source;
use crate::diagnostic::AssembleErrors;
use crate::expression::{EvaluationError, Expression};
use crate::vr::VrNumber;

/// The most bits that a test vector's input may have.
pub const MAX_INPUT_BITS: u32 = 16;
/// The most bits that a test vector's output may have.
pub const MAX_OUTPUT_BITS: u32 = 32;

/// A test vector that an assembly text declares with `.tv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestVector {
    /// The name in the text.
    pub name: String,
    /// The register that the program's Bootstraps name.
    pub vr: VrNumber,
    /// Whether the message is signed: x from -2^(p-1) to 2^(p-1) - 1, else from 0 to 2^p - 1.
    pub signed: bool,
    /// The bits of the input; `None` is the message width of the parameter set.
    pub p_in: Option<u32>,
    /// The bits of the output; `None` is the message width of the parameter set.
    pub p_out: Option<u32>,
    /// The function.
    pub source: TestVectorSource,
}

/// The function of a test vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestVectorSource {
    /// A formula in `x`.
    Expression(Expression),
    /// The values for x from the smallest to the largest input.
    Table(Vec<i64>),
}

impl TestVectorSource {
    /// Reads what stands right of the `=` of a `.tv`: an expression, or a table in brackets.
    ///
    /// # Errors
    /// What is wrong with the text, as [`crate::assemble`] reports it.
    pub fn parse(text: &str) -> Result<TestVectorSource, AssembleErrors> {
        parse_source(text)
    }

    /// The values for the 2^`p_in` inputs, from the smallest x (0, or -2^(`p_in`-1) if `signed`) to the largest. They are not
    /// reduced to any output width.
    ///
    /// # Errors
    /// `p_in` is not in 1 to [`MAX_INPUT_BITS`], a table has not 2^`p_in` values, or the expression has no value at some x.
    pub fn table(&self, p_in: u32, signed: bool) -> Result<Vec<i64>, TableError> {
        if !(1..=MAX_INPUT_BITS).contains(&p_in) {
            return Err(TableError::InputBits { found: p_in });
        }
        let size = 1i64 << p_in;
        match self {
            TestVectorSource::Expression(expression) => {
                let first = if signed { -(size / 2) } else { 0 };
                (first..first + size)
                    .map(|x| {
                        expression
                            .evaluate(x)
                            .map_err(|reason| TableError::Evaluation {
                                expression: expression.to_string(),
                                x,
                                reason,
                            })
                    })
                    .collect()
            }
            TestVectorSource::Table(values) => {
                if values.len() as u64 != size as u64 {
                    return Err(TableError::Length {
                        found: values.len(),
                        expected: size as usize,
                        p_in,
                    });
                }
                Ok(values.clone())
            }
        }
    }

    /// How many of the 2^`p_in` values do not fit the message of `p_out` bits and its padding bit, and so wrap around the
    /// torus: those outside -2^`p_out` … 2^`p_out` - 1 if `signed`, else outside 0 … 2^(`p_out`+1) - 1.
    ///
    /// Wrapping can be meant: in (x+y)²/4 - (x-y)²/4 the wraps cancel.
    ///
    /// # Errors
    /// As [`TestVectorSource::table`], or `p_out` is not in 1 to [`MAX_OUTPUT_BITS`].
    pub fn wrap_count(&self, p_in: u32, p_out: u32, signed: bool) -> Result<usize, TableError> {
        if !(1..=MAX_OUTPUT_BITS).contains(&p_out) {
            return Err(TableError::OutputBits { found: p_out });
        }
        let half = 1i64 << p_out;
        let range = if signed { -half..half } else { 0..2 * half };
        Ok(self
            .table(p_in, signed)?
            .iter()
            .filter(|value| !range.contains(value))
            .count())
    }
}

/// Why a test vector has no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The input width is out of range.
    #[error("an input of {found} bits (expected 1 to {MAX_INPUT_BITS})")]
    InputBits {
        /// The width.
        found: u32,
    },
    /// The output width is out of range.
    #[error("an output of {found} bits (expected 1 to {MAX_OUTPUT_BITS})")]
    OutputBits {
        /// The width.
        found: u32,
    },
    /// The table has the wrong number of values.
    #[error("the table has {found} values (expected {expected} for an input of {p_in} bits)")]
    Length {
        /// The number of values.
        found: usize,
        /// 2^p_in.
        expected: usize,
        /// The input width.
        p_in: u32,
    },
    /// The expression has no value at some x.
    #[error("`{expression}` has no value at x = {x}: {reason}")]
    Evaluation {
        /// The text of the expression.
        expression: String,
        /// The smallest such x.
        x: i64,
        /// Why.
        reason: EvaluationError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_run_from_the_smallest_input() {
        let source = TestVectorSource::parse("x*x/4").unwrap();
        assert_eq!(source.table(3, true).unwrap(), [4, 2, 1, 0, 0, 0, 1, 2]);
        assert_eq!(source.table(3, false).unwrap(), [0, 0, 1, 2, 4, 6, 9, 12]);
        assert_eq!(source.table(16, true).unwrap().len(), 1 << 16);
        let table = TestVectorSource::parse("[-1, 2,\n 0x3, 4,]").unwrap();
        assert_eq!(table.table(2, true).unwrap(), [-1, 2, 3, 4]);
    }

    #[test]
    fn wraps_are_counted_beyond_the_padding() {
        let square = TestVectorSource::parse("x*x").unwrap();
        // x = -4 … 3: 16 9 4 1 0 1 4 9; with 3 bits and padding -8 … 7 fit.
        assert_eq!(square.wrap_count(3, 3, true).unwrap(), 3);
        // x = 0 … 7: 0 1 4 9 16 25 36 49; 0 … 15 fit.
        assert_eq!(square.wrap_count(3, 3, false).unwrap(), 4);
        assert_eq!(
            TestVectorSource::parse("x-1")
                .unwrap()
                .wrap_count(3, 3, false)
                .unwrap(),
            1
        );
        assert_eq!(square.wrap_count(3, 32, true).unwrap(), 0);
    }

    #[test]
    fn errors_say_where() {
        let inverse = TestVectorSource::parse("8/(x+2)").unwrap();
        assert_eq!(
            inverse.table(3, true).unwrap_err().to_string(),
            "`8/(x+2)` has no value at x = -2: division by zero"
        );
        assert!(inverse.table(3, false).is_ok());
        assert_eq!(
            inverse.table(0, true),
            Err(TableError::InputBits { found: 0 })
        );
        assert_eq!(
            inverse.table(17, true),
            Err(TableError::InputBits { found: 17 })
        );
        assert_eq!(
            inverse.wrap_count(3, 33, true),
            Err(TableError::OutputBits { found: 33 })
        );
        let table = TestVectorSource::Table(vec![1, 2]);
        assert_eq!(
            table.table(2, true).unwrap_err().to_string(),
            "the table has 2 values (expected 4 for an input of 2 bits)"
        );
    }

    #[test]
    fn sources_are_parsed_alone_and_whole() {
        for text in [
            "",
            "x +",
            "x 1",
            "[1, 2] 3",
            "[1, 2, 3]",
            "[",
            "mov x, y",
            "x*x\nx",
        ] {
            assert!(TestVectorSource::parse(text).is_err(), "{text}");
        }
        assert!(TestVectorSource::parse("x ; the identity\n").is_ok());
    }
}
