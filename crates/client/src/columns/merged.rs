//! Results of a program on parts of the rows, added up.
//!
//! A program that adds up groups of rows leaves a sum of each range of rows that it ran on. Sums of disjoint ranges, on one drive or on several, make the sum
//! of all of them, with the noise that one run on as many rows leaves.

use std::collections::BTreeMap;

use toroid_engine::packed_noise;
use toroid_task::Progress;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{ColumnBytesBuilder, ColumnForm, RowSum, rows_per_chunk};
use toroid_tfhe::noise::StatedNoise;

use super::map::{MapPlan, MapRequest, Route};
use super::rows::EncryptedRows;
use super::way::Way;
use super::{ColumnError, mismatch, of};
use crate::session::{Session, SessionError};

/// The noise of results of a program on a number of rows, and how many of their rows there are.
#[derive(Clone, Copy)]
struct Expected {
    /// With that of packing.
    variance: f64,
    packing: f64,
    rows: u64,
}

impl Expected {
    fn of(plan: &MapPlan) -> Option<Expected> {
        let output = plan.facts.outputs.first()?;
        let plain = output.noise.variance();
        let packed = packed_noise(plan.params, ArithmeticKind::Fft, &output.noise);
        Some(Expected {
            variance: plan.noise.variance(),
            packing: (packed.variance() - plain).max(0.0),
            rows: plan.output_rows(),
        })
    }
}

impl Session {
    /// Adds up results of one program, row by row of the results. Each part has the number of rows of the inputs that it is the result of; no row stands
    /// in two of them. `request` is the program on as many rows as all parts have together, of the same columns or others like them: it says what noise such
    /// a sum has. Where a part states more noise than follows from the program, the sum is taken to have more in the same proportion.
    ///
    /// # Errors
    /// [`ColumnError::Mismatch`] for parts of other rows than a run on all of them gives, because the program does not add that many up, or for
    /// ring columns; [`TfheError::KeyMismatch`]; those of [`Session::plan_map`].
    pub async fn add_results(
        &self,
        request: &MapRequest<'_>,
        parts: &[(&EncryptedRows, u64)],
        progress: &Progress,
    ) -> Result<EncryptedRows, SessionError> {
        let at = || of(request.output);
        let nothing = TfheError::ColumnRows { rows: 0..0, of: 0 };
        let Some((first, _)) = parts.first() else {
            return Err(nothing.into());
        };
        let mut facts = first.facts;
        let mut expected: BTreeMap<u64, Expected> = BTreeMap::new();
        let total: u64 = parts.iter().map(|(_, rows)| rows).sum();
        let start = request.rows.as_ref().map_or(0, |rows| rows.start);
        for rows in parts.iter().map(|(_, rows)| *rows).chain([total]) {
            if expected.contains_key(&rows) {
                continue;
            }
            let of_rows = MapRequest {
                rows: Some(start..start + rows),
                unit: Some(rows),
                way: Way::Samples,
                ..request.clone()
            };
            let plan = self.plan_map(&of_rows).await?;
            if plan.route != Route::Samples {
                return Err(at()(mismatch(
                    "the columns",
                    "samples",
                    "ciphertexts of a ring",
                )));
            }
            if let Some(of_rows) = Expected::of(&plan) {
                expected.insert(rows, of_rows);
            }
        }
        let of_rows = |rows: u64| {
            let known = expected.get(&rows).copied();
            known.ok_or_else(|| at()(ColumnError::Damaged("the program has no result".to_owned())))
        };
        let whole = of_rows(total)?;
        let mut excess = 1.0_f64;
        let mut packing = 0.0_f64;
        let mut failure = f64::NEG_INFINITY;
        let mut is_stated = true;
        for (part, rows) in parts {
            facts.check_fits(&part.facts).map_err(at())?;
            if part.count != whole.rows {
                return Err(at()(mismatch("a result of its", part.count, whole.rows)));
            }
            let own = of_rows(*rows)?;
            let stated = part.facts.noise;
            is_stated &= stated.log2_variance.is_some();
            excess = excess.max(stated.log2_variance.map_or(1.0, f64::exp2) / own.variance);
            packing += own.packing.sqrt();
            let behind = stated.log2_failure.unwrap_or(f64::NEG_INFINITY);
            failure = toroid_tfhe::noise::log2_add(failure, behind);
            facts = facts.with(&part.facts);
        }
        // The noise of packing is of the same keys in all parts, so that its deviations add up.
        let variance = excess * (whole.variance + packing * packing);
        facts.noise = StatedNoise {
            log2_variance: is_stated.then(|| variance.log2()),
            log2_failure: failure.is_finite().then(|| failure.min(0.0)),
        };
        let bytes = sum(parts, whole.rows, progress)?;
        Ok(EncryptedRows {
            facts,
            bytes,
            count: whole.rows,
            origin: None,
        })
    }
}

/// The bytes of a column of the sums.
fn sum(
    parts: &[(&EncryptedRows, u64)],
    rows: u64,
    progress: &Progress,
) -> Result<Vec<u8>, SessionError> {
    let params = parts[0].0.facts.params;
    let mut sums = vec![RowSum::new(params); rows as usize];
    for (part, _) in parts {
        progress.check().map_err(|_| TfheError::Cancelled)?;
        let column = part.column()?;
        let mut sums = sums.iter_mut();
        for (number, segment) in column.header().segments().iter().enumerate() {
            let chunk = column.chunk_of(number)?;
            for (row, sum) in segment.rows_in_chunk().zip(&mut sums) {
                sum.add_samples(&chunk.sum(row..row + 1)?)?;
            }
        }
    }
    let full = rows_per_chunk(params);
    let mut builder = ColumnBytesBuilder::new(params, sums.len().div_ceil(full));
    let samples = sums.into_iter().map(RowSum::finish);
    let samples = samples.collect::<Result<Vec<_>, _>>()?;
    for samples in samples.chunks(full) {
        builder.push_chunk(ColumnForm::Expanded, samples.len(), &samples.concat())?;
    }
    Ok(builder.finish()?)
}
