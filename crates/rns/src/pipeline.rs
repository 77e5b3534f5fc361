//! A whole column: coefficients to slots, tables on both halves, slots to coefficients.

use crate::embedding::Embedding;
use crate::evaluation::KeyRequest;
use crate::slots::LinearSlots;
use crate::table::{self, Ready, Shape, Table};
use crate::transform::{self, StepPlan, rotations};
use crate::wide::masked;

/// The matrices and the shape of the tables of one kind.
#[derive(Clone, Debug)]
pub struct Pipeline {
    shape: Shape,
    to_slots: Vec<StepPlan>,
    to_coefficients: Vec<StepPlan>,
}

impl Pipeline {
    /// The pipeline of a shape on ring degree N, with this many stages each way.
    ///
    /// # Panics
    /// As [`transform::coefficients_to_slots`].
    #[must_use]
    pub fn new(embedding: &Embedding, shape: Shape, stages: usize) -> Pipeline {
        let mut there = transform::coefficients_to_slots(embedding, stages);
        // Values become phases over K, and `split` doubles. The last stage scales, so that the noise of those before is scaled too.
        if let Some(last) = there.last_mut() {
            last.scale(0.5 / shape.exponential.bound());
        }
        Pipeline {
            shape,
            to_slots: StepPlan::sequence(&there),
            to_coefficients: StepPlan::sequence(&transform::slots_to_coefficients(
                embedding, stages,
            )),
        }
    }

    /// How tables are computed.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Levels from the raised ciphertext to the result.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.to_slots.len() + self.shape.levels() + self.to_coefficients.len()
    }

    /// The evaluation keys of the pipeline on a chain of as many limbs as it has levels and one more: each for the limbs at
    /// which it is used first.
    #[must_use]
    pub fn key_request(&self) -> KeyRequest {
        let top = self.levels() + 1;
        let inside = top - self.to_slots.len();
        KeyRequest {
            relinearization: Some(inside),
            conjugation: Some(inside),
            rotations: rotations(
                &self.to_slots,
                &self.to_coefficients,
                top,
                StepPlan::rotations,
            ),
            mod_raise: true,
        }
    }

    /// The stages from coefficients to slots.
    #[must_use]
    pub fn to_slots(&self) -> &[StepPlan] {
        &self.to_slots
    }

    /// The stages from slots to coefficients.
    #[must_use]
    pub fn to_coefficients(&self) -> &[StepPlan] {
        &self.to_coefficients
    }

    /// From a polynomial whose coefficients are phases of absolute value K at most to the digits of all messages, which
    /// every table of the column shares.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn digits<S: LinearSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
    ) -> Result<Ready<S::Value>, S::Error> {
        let (real, imaginary) = self.phases(slots, column)?;
        let halves = [
            table::select(slots, &real, &self.shape)?,
            table::select(slots, &imaginary, &self.shape)?,
        ];
        table::square(slots, halves, &self.shape)
    }

    /// The digits of pairs of messages from two raised columns: the high digit is the one's message, the low digit the other's. A table's index is
    /// x·2^(bits of y) + y. That costs about two passes, and each column may have noise of its own as if it were alone; a column x·2^k + y
    /// takes one, and multiplies the noise of x.
    ///
    /// # Errors
    /// Those of the arithmetic.
    ///
    /// # Panics
    /// If the shape has one digit.
    pub fn digits_of_two<S: LinearSlots>(
        &self,
        slots: &mut S,
        high: &S::Value,
        low: &S::Value,
    ) -> Result<Ready<S::Value>, S::Error> {
        let high = self.phases(slots, high)?;
        let low = self.phases(slots, low)?;
        let halves = [
            table::select_of_two(slots, [&high.0, &low.0], &self.shape)?,
            table::select_of_two(slots, [&high.1, &low.1], &self.shape)?,
        ];
        table::square(slots, halves, &self.shape)
    }

    /// The phases over K of both halves of a raised column.
    fn phases<S: LinearSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
    ) -> Result<(S::Value, S::Value), S::Error> {
        let value = slots.transform_all(&self.to_slots, column.clone())?;
        table::split(slots, &value)
    }

    /// The polynomial whose coefficients are the table's values as fractions of 2^output_bits.
    ///
    /// # Errors
    /// Those of the arithmetic.
    ///
    /// # Panics
    /// As [`table::look_up`].
    pub fn look_up<S: LinearSlots>(
        &self,
        slots: &mut S,
        digits: &Ready<S::Value>,
        table: &Table,
    ) -> Result<S::Value, S::Error> {
        let value = table::look_up(slots, digits, table)?;
        slots.transform_all(&self.to_coefficients, value)
    }

    /// The same for the rows of a mask alone; the other rows are 0. The mask is a part of the first matrix back to coefficients and takes no level.
    ///
    /// # Errors
    /// Those of the arithmetic.
    ///
    /// # Panics
    /// As [`table::look_up`], and if the mask has not N rows.
    pub fn look_up_rows<S: LinearSlots>(
        &self,
        slots: &mut S,
        digits: &Ready<S::Value>,
        table: &Table,
        mask: &[bool],
    ) -> Result<S::Value, S::Error> {
        let value = table::look_up(slots, digits, table)?;
        masked(slots, &self.to_coefficients, value, mask)
    }
}
