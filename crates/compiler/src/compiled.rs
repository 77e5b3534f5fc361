//! What a compilation is asked for, and what it gives: a program, how its columns are encrypted, and how its results are read.
//!
//! [`Options`] and [`Compiled`] have a form in JSON, with the names of their fields, which other languages read. A field of [`Options`] that is
//! not there has its default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::interval::Interval;

/// The most columns of digits that a program reads: a run on a drive takes no more.
pub const MAX_COLUMNS: usize = 63;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The parameter sets to choose from, by their names.
    pub sets: Vec<String>,
    /// The rows of the input columns: the failure probability is that of all of them together, and a sum is one of so many.
    pub rows: u64,
    /// log2 of the failure probability that the results of all rows together may have.
    pub log2_failure: f64,
    /// The bits of a digit of a number that takes several; chosen by the set if not given.
    pub digit_bits: Option<u32>,
    /// Whether simpler graphs of the same meaning are tried, beside the graph as it is written; the cheapest program is taken.
    pub simplify: bool,
    /// The layouts of columns that are encrypted already, by the names of the inputs. An input takes those of its values that its column holds.
    pub inputs: BTreeMap<String, Layout>,
    /// Whether each digit of an output has a row of the result to itself, and as it is if it cannot be negative, so that it can be an input of another
    /// program. Otherwise digits share rows that have room for several, each less its least number.
    pub separate: bool,
    /// Whether the inputs are results of the same program, which runs again and again: they have the noise of results, and no result carries on the noise
    /// of an input.
    pub repeated: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sets: ["message16", "message14", "message8", "message4"]
                .map(str::to_owned)
                .into(),
            rows: 1,
            log2_failure: -128.0,
            digit_bits: None,
            simplify: true,
            inputs: BTreeMap::new(),
            separate: false,
            repeated: false,
        }
    }
}

/// How a number is encrypted: as the sum of its digits, each times 2^shift. A digit is a column of its own, of messages of the set's width.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The digits, the lowest first.
    pub digits: Vec<Digit>,
}

/// A digit of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digit {
    /// Its bits, with that of the sign. The message is encrypted with as many as the set has.
    pub bits: u32,
    /// Whether it has a sign: the highest digit of numbers that may be negative.
    pub signed: bool,
    /// The bits of the number below it.
    pub shift: u32,
}

impl Layout {
    /// The layout of the numbers of an interval for digits of so many bits, where a digit alone may have `single_bits`. It depends on nothing
    /// else, so that a column serves several programs.
    #[must_use]
    pub fn of(interval: Interval, single_bits: u32, digit_bits: u32) -> Layout {
        let signed = interval.low < 0;
        let magnitude = |value: i128| i128::BITS - (value ^ (value >> 127)).leading_zeros();
        let bits = magnitude(interval.low).max(magnitude(interval.high)) + u32::from(signed);
        let bits = bits.max(1);
        let digit_bits = digit_bits.max(1);
        if bits <= single_bits {
            return Layout {
                digits: vec![Digit {
                    bits,
                    signed,
                    shift: 0,
                }],
            };
        }
        let digits = (0..bits.div_ceil(digit_bits)).map(|digit| {
            let shift = digit * digit_bits;
            Digit {
                bits: digit_bits.min(bits - shift),
                signed: signed && shift + digit_bits >= bits,
                shift,
            }
        });
        Layout {
            digits: digits.collect(),
        }
    }

    /// The numbers that the layout holds; none of digits that leave bits out, share some, or have more than 64 together.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        let mut bits: u32 = 0;
        let mut signed = false;
        for digit in &self.digits {
            if signed || digit.shift != bits || !(1..=32).contains(&digit.bits) {
                return None;
            }
            bits += digit.bits;
            signed = digit.signed;
            if bits > 64 {
                return None;
            }
        }
        let low = if signed { -(1 << (bits - 1)) } else { 0 };
        let high = low + (1 << bits) - 1;
        (bits > 0).then_some(Interval { low, high })
    }

    /// The digits of a number, the lowest first; none if the layout cannot hold it.
    #[must_use]
    pub fn split(&self, value: i128) -> Option<Vec<i64>> {
        if !self.interval()?.contains(value) {
            return None;
        }
        let mut rest = value;
        let mut digits = Vec::with_capacity(self.digits.len());
        for digit in &self.digits {
            let count = 1_i128 << digit.bits;
            let low = if digit.signed { -(count / 2) } else { 0 };
            let message = (rest - low).rem_euclid(count) + low;
            digits.push(message as i64);
            rest = (rest - message) >> digit.bits;
        }
        Some(digits)
    }
}

/// A program, with what encrypts its inputs and reads its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// The name of the parameter set.
    pub set: String,
    /// The program, as text of the instruction set, for columns.
    pub program: String,
    /// The inputs.
    pub inputs: Vec<CompiledInput>,
    /// The outputs.
    pub outputs: Vec<CompiledOutput>,
    /// Rows of the result for each row of the inputs, or for each group of them: 1, 2, 4 and so on.
    pub result_rows: u64,
    /// Rows of the inputs that one group of the result is the sum of; nothing where each row has its own results.
    pub group: Option<u64>,
    /// The bits of a message of the result.
    pub result_bits: u32,
    /// Whether messages of the result have a sign.
    pub result_signed: bool,
    /// What a row costs.
    pub cost: Cost,
    /// All sets that were asked for, with what the program costs there or why it is refused.
    pub alternatives: Vec<Alternative>,
}

/// An input of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledInput {
    /// The name of the graph's input.
    pub name: String,
    /// Its values.
    pub interval: Interval,
    /// How it is encrypted.
    pub layout: Layout,
    /// The registers of its digits, by their names in the program, in the layout's order.
    pub registers: Vec<String>,
}

/// An output of a program: offset + Σ factor·part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledOutput {
    /// The name of the graph's output.
    pub name: String,
    /// Its values; of a sum those of a row.
    pub interval: Interval,
    /// Where it stands in the rows of the result.
    pub parts: Vec<Part>,
    /// What is added to the parts of each row or group.
    pub offset: i128,
    /// Whether it is the sum of all rows: the client adds what it decodes of each group.
    pub sum: bool,
    /// What is added for each row of a group, beside the offset.
    pub offset_per_row: i128,
}

/// Some bits of a row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The row, from 0 to one less than [`Compiled::result_rows`].
    pub row: u64,
    /// The bits of the message below it.
    pub shift: u32,
    /// Its bits, which are not negative.
    pub bits: u32,
    /// What it counts.
    pub factor: i128,
}

/// What a row of the inputs costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Functions that are applied.
    pub bootstraps: u64,
    /// Samples that functions are applied to; those of one sample share a part of the work.
    pub tasks: u64,
    /// Seconds on one core of the machine of the documented times.
    pub seconds_per_row: f64,
    /// log2 of the probability that a result of any row is wrong.
    pub log2_failure: f64,
    /// Bytes of the keys that the drive needs, as they are sent: each with a seed in place of its masks.
    pub key_bytes: u64,
    /// Bytes of a row of the inputs that the program reads on the drive, once they are seeded.
    pub input_bytes_per_row: u64,
    /// Bytes of the result for a row of the inputs, before the drive packs it.
    pub result_bytes_per_row: u64,
}

/// A parameter set that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Its name.
    pub set: String,
    /// What the program costs there.
    pub cost: Option<Cost>,
    /// Why the program is refused there.
    pub refused: Option<String>,
}

impl CompiledOutput {
    /// The number that stands in the rows of the result that belong to one row of the inputs, or to one group of `rows` rows.
    ///
    /// # Errors
    /// Fewer rows than the output has parts in, parts that no message has, and a number beyond 2^127.
    pub fn decode(&self, results: &[i64], rows: u64) -> Result<i128, Error> {
        let mut value = self
            .offset_per_row
            .checked_mul(i128::from(rows))
            .and_then(|offset| offset.checked_add(self.offset))
            .ok_or_else(|| self.too_large())?;
        for part in &self.parts {
            let row = usize::try_from(part.row).ok();
            let row = row.and_then(|row| results.get(row)).ok_or_else(|| {
                Error::new(format!(
                    "output `{}` stands in row {} of {} rows of the result",
                    self.name,
                    part.row,
                    results.len()
                ))
            })?;
            if part
                .shift
                .checked_add(part.bits)
                .is_none_or(|end| end > u64::BITS)
            {
                return Err(Error::new(format!(
                    "output `{}` has {} bits above bit {} of a row, which has {}",
                    self.name,
                    part.bits,
                    part.shift,
                    u64::BITS
                )));
            }
            let message = (i128::from(*row) >> part.shift) & ((1 << part.bits) - 1);
            value = part
                .factor
                .checked_mul(message)
                .and_then(|part| value.checked_add(part))
                .ok_or_else(|| self.too_large())?;
        }
        Ok(value)
    }

    fn too_large(&self) -> Error {
        Error::new(format!("output `{}` exceeds 2^127", self.name))
    }
}

impl Compiled {
    /// The outputs of all rows of the result, by their names: a number for each row of the inputs, or one for a sum. `rows` is how many the
    /// inputs had.
    ///
    /// # Errors
    /// Results that are not those of so many rows, and what [`CompiledOutput::decode`] refuses.
    pub fn decode(&self, results: &[i64], rows: u64) -> Result<BTreeMap<String, Vec<i128>>, Error> {
        let group = self.group.unwrap_or(1).max(1);
        let groups = rows.div_ceil(group);
        let width = self.result_rows.max(1);
        if groups.checked_mul(width) != Some(results.len() as u64) {
            return Err(Error::new(format!(
                "the result has {} rows; {rows} rows of the inputs make {groups} times {width}",
                results.len()
            )));
        }
        let mut outputs = BTreeMap::new();
        for output in &self.outputs {
            let chunks = results.chunks(width as usize).enumerate();
            let values = chunks.map(|(number, results)| {
                let left = rows - number as u64 * group;
                output.decode(results, left.min(group))
            });
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let values = if output.sum {
                let mut values = values.iter();
                let sum = values.try_fold(0_i128, |sum, value| sum.checked_add(*value));
                vec![sum.ok_or_else(|| output.too_large())?]
            } else {
                values
            };
            outputs.insert(output.name.clone(), values);
        }
        Ok(outputs)
    }
}
