//! Test vectors: the functions that a Bootstrap applies, as integers to integers.

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
    /// Whether the message is signed: from -2^(p-1) to 2^(p-1) - 1, else from 0 to 2^p - 1.
    pub signed: bool,
    /// The bits of the input; `None` is the message width of the parameter set.
    pub p_in: Option<u32>,
    /// For a function of two arguments, the bits among `p_in` that are those of the lower one, y
    /// ([`TestVectorSource::table2`]).
    pub p_y: Option<u32>,
    /// The bits of the output; `None` is the message width of the parameter set.
    pub p_out: Option<u32>,
    /// The function.
    pub source: TestVectorSource,
}

impl TestVector {
    /// The values for every input, from the smallest to the largest, with a parameter set of this message width.
    ///
    /// # Errors
    /// Those of [`TestVectorSource::table`] and [`TestVectorSource::table2`].
    pub fn table(&self, message_bits: u32) -> Result<Vec<i64>, TableError> {
        let p_in = self.p_in.unwrap_or(message_bits);
        match self.p_y {
            None => self.source.table(p_in, self.signed),
            Some(p_y) => self
                .source
                .table2((p_in.saturating_sub(p_y), p_y), self.signed),
        }
    }
}

/// The function of a test vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestVectorSource {
    /// A formula in `x`, or in `x` and `y`.
    Expression(Expression),
    /// The values for the inputs from the smallest to the largest.
    Table(Vec<i64>),
    /// The path of a file with such values, relative to the folder of the program's text. It has no table until somebody
    /// reads it ([`crate::Assembly::resolve_files`], [`TestVectorSource::from_values`]).
    File(String),
}

impl TestVectorSource {
    /// The table of a function of one argument, for a `p_in` of [`TestVectorSource::table`].
    ///
    /// # Errors
    /// [`TableError::InputBits`] if `p_in` is not in 1 to [`MAX_INPUT_BITS`].
    pub fn from_fn(
        p_in: u32,
        signed: bool,
        f: impl FnMut(i64) -> i64,
    ) -> Result<TestVectorSource, TableError> {
        Ok(TestVectorSource::Table(
            messages(p_in, signed)?.map(f).collect(),
        ))
    }

    /// The table of a function of two arguments, for the widths of [`TestVectorSource::table2`].
    ///
    /// # Errors
    /// [`TableError::ArgumentBits`] if a width is 0 or both have more than [`MAX_INPUT_BITS`].
    pub fn from_fn2(
        (p, q): (u32, u32),
        signed: bool,
        mut f: impl FnMut(i64, i64) -> i64,
    ) -> Result<TestVectorSource, TableError> {
        Ok(TestVectorSource::Table(
            argument_pairs((p, q), signed)?
                .map(|(x, y)| f(x, y))
                .collect(),
        ))
    }

    /// The values for the 2^`p_in` inputs, from the smallest (0, or -2^(`p_in`-1) if `signed`) to the largest. They are not
    /// reduced to any output width.
    ///
    /// # Errors
    /// `p_in` is not in 1 to [`MAX_INPUT_BITS`], a table has not 2^`p_in` values, the expression has no value at some x or has
    /// a second argument, or the file has not been read.
    pub fn table(&self, p_in: u32, signed: bool) -> Result<Vec<i64>, TableError> {
        let inputs = messages(p_in, signed)?.map(|x| (x, 0));
        match self {
            TestVectorSource::Expression(expression) if expression.has_y() => {
                Err(TableError::SecondArgument {
                    expression: expression.to_string(),
                })
            }
            _ => self.values(p_in, inputs, |x, _| format!("x = {x}")),
        }
    }

    /// The values for the inputs m of p + q bits, from the smallest to the largest, that stand for x·2^`q` + y modulo
    /// 2^(`p`+`q`). Unsigned: x from 0 to 2^`p` - 1, y from 0 to 2^`q` - 1. Signed: x from -2^(`p`-1) to 2^(`p`-1) - 1, y from
    /// -2^(`q`-1) to 2^(`q`-1) - 1.
    ///
    /// # Errors
    /// A width is 0 or both have more than [`MAX_INPUT_BITS`], a table has not 2^(`p`+`q`) values, the expression has no value
    /// somewhere, or the file has not been read.
    pub fn table2(&self, (p, q): (u32, u32), signed: bool) -> Result<Vec<i64>, TableError> {
        let inputs = argument_pairs((p, q), signed)?;
        self.values(p + q, inputs, |x, y| format!("x = {x}, y = {y}"))
    }

    /// The values at the 2^`p_in` inputs; `shown` is how an error names one.
    fn values(
        &self,
        p_in: u32,
        inputs: impl Iterator<Item = (i64, i64)>,
        shown: impl Fn(i64, i64) -> String,
    ) -> Result<Vec<i64>, TableError> {
        match self {
            TestVectorSource::Expression(expression) => {
                let mut stack = Vec::new();
                inputs
                    .map(|(x, y)| {
                        expression.evaluate_on(&mut stack, x, y).map_err(|reason| {
                            TableError::Evaluation {
                                expression: expression.to_string(),
                                at: shown(x, y),
                                reason,
                            }
                        })
                    })
                    .collect()
            }
            TestVectorSource::Table(values) if values.len() == 1 << p_in => Ok(values.clone()),
            TestVectorSource::Table(values) => Err(TableError::Length {
                found: values.len(),
                expected: 1 << p_in,
                p_in,
            }),
            TestVectorSource::File(path) => Err(TableError::Unread { path: path.clone() }),
        }
    }
}

/// How many of these values do not fit the message of `p_out` bits and its padding bit, and so wrap around the torus: those
/// outside -2^`p_out` … 2^`p_out` - 1 if `signed`, else outside 0 … 2^(`p_out`+1) - 1.
///
/// Wrapping can be meant: in (x+y)²/4 - (x-y)²/4 the wraps cancel.
///
/// # Errors
/// [`TableError::OutputBits`] if `p_out` is not in 1 to [`MAX_OUTPUT_BITS`].
pub fn wrap_count(table: &[i64], p_out: u32, signed: bool) -> Result<usize, TableError> {
    if !(1..=MAX_OUTPUT_BITS).contains(&p_out) {
        return Err(TableError::OutputBits { found: p_out });
    }
    let half = 1i64 << p_out;
    let range = if signed { -half..half } else { 0..2 * half };
    Ok(table.iter().filter(|value| !range.contains(value)).count())
}

/// The inputs of `p_in` bits, from the smallest to the largest.
fn messages(p_in: u32, signed: bool) -> Result<std::ops::Range<i64>, TableError> {
    if !(1..=MAX_INPUT_BITS).contains(&p_in) {
        return Err(TableError::InputBits { found: p_in });
    }
    let size = 1i64 << p_in;
    let first = if signed { -(size / 2) } else { 0 };
    Ok(first..first + size)
}

/// x and y of the inputs of p + q bits, from the smallest input to the largest.
fn argument_pairs(
    (p, q): (u32, u32),
    signed: bool,
) -> Result<impl Iterator<Item = (i64, i64)>, TableError> {
    if p == 0 || q == 0 || p.saturating_add(q) > MAX_INPUT_BITS {
        return Err(TableError::ArgumentBits { found: (p, q) });
    }
    let reduce = move |value: i64, bits: u32| {
        let half = if signed { 1 << (bits - 1) } else { 0 };
        (value + half).rem_euclid(1 << bits) - half
    };
    Ok(messages(p + q, signed)?.map(move |m| {
        let y = reduce(m, q);
        (reduce((m - y) >> q, p), y)
    }))
}

/// The integer with this sign and amount.
pub(crate) fn signed(negative: bool, amount: u64) -> Result<i64, String> {
    let value = i128::from(amount) * if negative { -1 } else { 1 };
    i64::try_from(value).map_err(|_| format!("{value} does not fit 64 bits"))
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
    /// The widths of two arguments are out of range.
    #[error(
        "an input of {}+{} bits (expected at least 1 each and at most {MAX_INPUT_BITS} together)",
        found.0, found.1
    )]
    ArgumentBits {
        /// The widths.
        found: (u32, u32),
    },
    /// An expression in x and y where there is only x.
    #[error("`{expression}` is a function of x and y (expected one of x alone, or `in=P+Q`)")]
    SecondArgument {
        /// The text of the expression.
        expression: String,
    },
    /// The values stand in a file that has not been read.
    #[error("the values in the file {path:?} have not been read")]
    Unread {
        /// The file.
        path: String,
    },
    /// The expression has no value for some input.
    #[error("`{expression}` has no value at {at}: {reason}")]
    Evaluation {
        /// The text of the expression.
        expression: String,
        /// The arguments of the smallest such input, such as `x = 3`.
        at: String,
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
        let wraps = |text: &str, p_out, signed| {
            let table = TestVectorSource::parse(text)
                .unwrap()
                .table(3, signed)
                .unwrap();
            wrap_count(&table, p_out, signed)
        };
        // x = -4 … 3: 16 9 4 1 0 1 4 9; with 3 bits and padding -8 … 7 fit.
        assert_eq!(wraps("x*x", 3, true), Ok(3));
        // x = 0 … 7: 0 1 4 9 16 25 36 49; 0 … 15 fit.
        assert_eq!(wraps("x*x", 3, false), Ok(4));
        assert_eq!(wraps("x-1", 3, false), Ok(1));
        assert_eq!(wraps("x*x", 32, true), Ok(0));
        for found in [0, 33] {
            assert_eq!(
                wraps("x", found, true),
                Err(TableError::OutputBits { found })
            );
        }
    }

    #[test]
    fn closures_are_functions_too() {
        for signed in [true, false] {
            let square = TestVectorSource::from_fn(5, signed, |x| x * x - 3).unwrap();
            let text = TestVectorSource::parse("x*x - 3").unwrap();
            assert_eq!(square.table(5, signed), text.table(5, signed));
            let product = TestVectorSource::from_fn2((3, 2), signed, |x, y| x * 10 + y).unwrap();
            let text = TestVectorSource::parse("10*x + y").unwrap();
            assert_eq!(product.table2((3, 2), signed), text.table2((3, 2), signed));
        }
        assert_eq!(
            TestVectorSource::from_fn(17, true, |x| x),
            Err(TableError::InputBits { found: 17 })
        );
        for found in [(0, 3), (3, 0), (8, 9), (u32::MAX, 2)] {
            let none = TestVectorSource::from_fn2(found, true, |x, _| x);
            assert_eq!(none, Err(TableError::ArgumentBits { found }));
        }
    }

    #[test]
    fn two_arguments_are_packed_into_one_input() {
        let table2 = |text: &str, bits, signed| {
            TestVectorSource::parse(text)
                .unwrap()
                .table2(bits, signed)
                .unwrap()
        };
        // Unsigned, 1 + 2 bits: m = 4·x + y.
        assert_eq!(
            table2("10*x + y", (1, 2), false),
            [0, 1, 2, 3, 10, 11, 12, 13]
        );
        // Signed: m = -4 is 4·(-1) + 0, m = -2 is 4·0 - 2, m = 2 is 4·1 - 2, where 1 is -1 modulo 2.
        assert_eq!(
            table2("10*x + y", (1, 2), true),
            [-10, -9, -2, -1, 0, 1, -12, -11]
        );
        for (p, q) in [(1, 1), (1, 5), (5, 1), (4, 4), (7, 3)] {
            for signed in [false, true] {
                let first = if signed { -1 << (p + q - 1) } else { 0 };
                let (xs, ys) = (table2("x", (p, q), signed), table2("y", (p, q), signed));
                let range = |bits| messages(bits, signed).unwrap();
                let mut seen = std::collections::BTreeSet::new();
                for (m, (x, y)) in (first..).zip(xs.into_iter().zip(ys)) {
                    assert!(range(p).contains(&x) && range(q).contains(&y));
                    assert_eq!((x * (1 << q) + y - m).rem_euclid(1 << (p + q)), 0);
                    assert!(seen.insert((x, y)));
                }
                assert_eq!(seen.len(), 1 << (p + q));
            }
        }
        let inverse = TestVectorSource::parse("8/y").unwrap();
        assert_eq!(
            inverse.table2((2, 2), false).unwrap_err().to_string(),
            "`8/y` has no value at x = 0, y = 0: division by zero"
        );
        assert_eq!(
            inverse.table(4, false).unwrap_err().to_string(),
            "`8/y` is a function of x and y (expected one of x alone, or `in=P+Q`)"
        );
        assert_eq!(
            inverse.table2((9, 8), true).unwrap_err().to_string(),
            "an input of 9+8 bits (expected at least 1 each and at most 16 together)"
        );
        let table = TestVectorSource::Table(vec![1, 2, 3, 4]);
        assert_eq!(table.table2((1, 1), true).unwrap(), [1, 2, 3, 4]);
        assert!(table.table2((1, 2), true).is_err());
    }

    #[test]
    fn a_file_that_is_not_read_has_no_table() {
        let file = TestVectorSource::parse("file \"a/b.txt\"").unwrap();
        assert_eq!(file, TestVectorSource::File("a/b.txt".to_owned()));
        for table in [file.table(3, true), file.table2((1, 2), true)] {
            assert_eq!(
                table.unwrap_err().to_string(),
                "the values in the file \"a/b.txt\" have not been read"
            );
        }
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
