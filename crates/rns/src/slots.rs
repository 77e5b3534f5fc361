//! What can be done with vectors of complex slots of which every product costs a level.

use toroid_ring::prime_ntt::Ntt50Plan;

use crate::complex::Complex;
use crate::transform::StepPlan;

/// The most values of a sum by [`Slots::weigh`].
pub const MAX_WEIGHTS: usize = Ntt50Plan::MAX_WEIGHED;

/// Arithmetic on vectors of slots with levels.
///
/// The evaluation of tables ([`crate::table`]) is written once, on this trait. [`crate::model`] computes in the clear with
/// noise of stated variance, [`crate::formula`] follows each source of noise by derivatives, and [`crate::evaluator`] works on
/// ciphertexts. A value of level l bears l more multiplications; operands of different levels meet at the lower one.
pub trait Slots {
    /// A vector of slots.
    type Value: Clone;
    /// What can go wrong: at least that the levels are used up.
    type Error;

    /// How many more multiplications a value bears.
    fn level(&self, value: &Self::Value) -> usize;

    /// `a + b`.
    ///
    /// # Errors
    /// Those of the implementation, as in every method.
    fn add(&mut self, a: &Self::Value, b: &Self::Value) -> Result<Self::Value, Self::Error>;

    /// `a - b`.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn sub(&mut self, a: &Self::Value, b: &Self::Value) -> Result<Self::Value, Self::Error>;

    /// `factor·a + constant` for a small integer factor, which takes no level.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn affine(
        &mut self,
        a: &Self::Value,
        factor: i32,
        constant: Complex,
    ) -> Result<Self::Value, Self::Error>;

    /// `Σ a·b` over at least one pair; one level.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn products(
        &mut self,
        pairs: &[(&Self::Value, &Self::Value)],
    ) -> Result<Self::Value, Self::Error>;

    /// `Σ factor·value + constant` over at least one term, at a level below those of all its values.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn combine_at(
        &mut self,
        level: usize,
        terms: &[(&Self::Value, Complex)],
        constant: Complex,
    ) -> Result<Self::Value, Self::Error>;

    /// [`Slots::combine_at`] for each row of factors, one for each value, with the row's constant.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn combine_rows_at(
        &mut self,
        level: usize,
        values: &[&Self::Value],
        rows: &[(Vec<Complex>, Complex)],
    ) -> Result<Vec<Self::Value>, Self::Error> {
        let rows = rows.iter().map(|(factors, constant)| {
            let terms: Vec<_> = values
                .iter()
                .copied()
                .zip(factors.iter().copied())
                .collect();
            self.combine_at(level, &terms, *constant)
        });
        rows.collect()
    }

    /// The complex conjugates.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn conjugate(&mut self, a: &Self::Value) -> Result<Self::Value, Self::Error>;

    /// `i·a`, which takes no level.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn times_i(&mut self, a: &Self::Value) -> Result<Self::Value, Self::Error>;

    /// The same value at a level, its own or a lower one.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn lower(&mut self, a: &Self::Value, level: usize) -> Result<Self::Value, Self::Error>;

    /// For each row of weights below 2^16, one for each of up to [`MAX_WEIGHTS`] values: `Σ weight·value/2^log2_unit`; one level.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn weigh(
        &mut self,
        values: &[&Self::Value],
        rows: &[Vec<u32>],
        log2_unit: u32,
    ) -> Result<Vec<Self::Value>, Self::Error> {
        let unit = (-f64::from(log2_unit)).exp2();
        let factor = |&weight: &u32| Complex::real(f64::from(weight) * unit);
        rows.iter()
            .map(|row| {
                let weights = row.iter().map(factor);
                let terms: Vec<_> = values.iter().copied().zip(weights).collect();
                self.combine(&terms, Complex::ZERO)
            })
            .collect()
    }

    /// `Σ factor·value + constant` over at least one term; one level.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn combine(
        &mut self,
        terms: &[(&Self::Value, Complex)],
        constant: Complex,
    ) -> Result<Self::Value, Self::Error> {
        let levels = terms.iter().map(|(value, _)| self.level(value));
        // Where a value has no level to spend, no level is below its own.
        let level = levels.min().unwrap_or(0).saturating_sub(1);
        self.combine_at(level, terms, constant)
    }

    /// The sum of at least one value.
    ///
    /// # Errors
    /// As [`Slots::add`].
    ///
    /// # Panics
    /// If there are no values.
    fn sum(&mut self, values: &[&Self::Value]) -> Result<Self::Value, Self::Error> {
        let (first, rest) = values.split_first().expect("a sum has a value");
        rest.iter()
            .try_fold((*first).clone(), |sum, value| self.add(&sum, value))
    }

    /// `a·b`; one level.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn mul(&mut self, a: &Self::Value, b: &Self::Value) -> Result<Self::Value, Self::Error> {
        self.products(&[(a, b)])
    }
}

/// Slots that move as well.
pub trait LinearSlots: Slots {
    /// A matrix times a value; one level.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn transform(&mut self, plan: &StepPlan, a: &Self::Value) -> Result<Self::Value, Self::Error>;

    /// Matrices times a value, one after the other; a level each.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn transform_all(
        &mut self,
        plans: &[StepPlan],
        a: Self::Value,
    ) -> Result<Self::Value, Self::Error> {
        plans
            .iter()
            .try_fold(a, |value, plan| self.transform(plan, &value))
    }
}

/// Slots whose coefficients are fractions of a turn at level 0: columns at rest, which can be raised.
pub trait ColumnSlots: LinearSlots {
    /// A column of level 0 at another level: its coefficients modulo 1, nearest to 0, plus integers that nobody chose, so that their absolute
    /// values are at most (h + 1)/2 for a sparse secret of weight h.
    ///
    /// # Errors
    /// As [`Slots::add`].
    fn raise(&mut self, column: &Self::Value, level: usize) -> Result<Self::Value, Self::Error>;
}
