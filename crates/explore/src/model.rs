//! What a setting takes of a device: counts of its parts, times coefficients fitted to synthesis runs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::device::Amounts;
use toroid_cores::technology::Technology;
use toroid_cores::{Core, CoreError, Values, families};

/// A synthesis run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The core's name.
    pub core: String,
    /// All its parameters.
    pub parameters: BTreeMap<String, u64>,
    /// What it was mapped to: `xc7` or `ecp5`.
    pub device: String,
    /// Look-up tables of logic.
    pub lut: u64,
    /// Flip-flops.
    pub ff: u64,
    /// Look-up tables that are memories or shift registers.
    pub lutram: u64,
    /// DSP slices.
    pub dsp: u64,
    /// Block memories of 18 Kbit.
    pub ramb18: u64,
    /// Block memories of 36 Kbit.
    pub ramb36: u64,
    /// Whether the run only checks the model, which is not fitted to it.
    pub held_out: bool,
}

impl Run {
    /// The setting.
    ///
    /// # Errors
    /// If the core does not have these parameters.
    pub fn values(&self, core: &Core) -> Result<Values, CoreError> {
        let given = self.parameters.iter();
        Values::new(core, given.map(|(name, value)| (name.as_str(), *value)))
    }

    /// What it took.
    pub fn amounts(&self) -> Amounts {
        Amounts {
            lut: (self.lut + self.lutram) as f64,
            ff: self.ff as f64,
            bram36: self.ramb36 as f64 + self.ramb18 as f64 / 2.0,
            dsp: self.dsp as f64,
        }
    }
}

/// Whether the sample of this place among a core's [`samples`](toroid_cores::Family::samples) is kept from fitting: the second and every fourth
/// after it.
pub fn is_held_out(place: usize) -> bool {
    place % 4 == 1
}

/// Every run that fits or checks models: what `toroid-hw-bench samples` wrote.
///
/// # Panics
/// If the file, a part of this crate, is malformed.
pub fn runs() -> &'static [Run] {
    static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| {
        let parsed = serde_json::from_str(include_str!("synthesis.json"));
        parsed.unwrap_or_else(|error| panic!("synthesis.json of toroid-explore: {error}"))
    });
    &RUNS
}

/// How far a model is off on runs that it was not fitted to, relative to what was found; of block memories, where fewer
/// than one was found, to one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// How many runs there were.
    pub runs: usize,
    /// The median.
    pub median: f64,
    /// The largest.
    pub maximum: f64,
}

impl Errors {
    fn of(found_and_predicted: &[(f64, f64)]) -> Errors {
        let mut errors: Vec<f64> = found_and_predicted
            .iter()
            .map(|(found, predicted)| (predicted - found).abs() / found.max(1.0))
            .collect();
        errors.sort_by(f64::total_cmp);
        let middle = errors.len() / 2;
        let median = match errors.len() {
            0 => 0.0,
            length if length % 2 == 0 => (errors[middle - 1] + errors[middle]) / 2.0,
            _ => errors[middle],
        };
        Errors {
            runs: errors.len(),
            median,
            maximum: errors.last().copied().unwrap_or(0.0),
        }
    }
}

/// A resource as a sum of a core's parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The parts, and what one of each takes: none takes less than nothing.
    pub coefficients: Vec<(&'static str, f64)>,
    /// Of the runs that it was fitted to.
    pub fitted: Errors,
    /// Of those that were held out.
    pub held_out: Errors,
}

/// One of [`Features`](toroid_cores::cost::Features)' lists, or the resource it stands for.
type Parts = Vec<(&'static str, f64)>;

fn sum(coefficients: &Parts, parts: &Parts) -> f64 {
    coefficients
        .iter()
        .zip(parts)
        .map(|((_, each), (_, count))| each * count)
        .sum()
}

impl Fit {
    /// Of rows of parts, what was found, and whether it is held out.
    fn of(rows: &[(Parts, f64, bool)]) -> Fit {
        // Where block memories are few, one more or less should not decide: they weigh as if there were four.
        const LEAST: f64 = 4.0;
        let fitted: Vec<_> = rows.iter().filter(|(.., held_out)| !held_out).collect();
        let weighted: Vec<Vec<f64>> = fitted
            .iter()
            .map(|(parts, found, _)| {
                parts
                    .iter()
                    .map(|(_, count)| count / found.max(LEAST))
                    .collect()
            })
            .collect();
        let targets: Vec<f64> = fitted
            .iter()
            .map(|(_, found, _)| found / found.max(LEAST))
            .collect();
        let names = rows.first().map_or(&[][..], |(parts, ..)| parts);
        let solution = non_negative_least_squares(&weighted, &targets);
        let coefficients: Parts = names.iter().map(|(name, _)| *name).zip(solution).collect();
        let errors = |of_held_out: bool| {
            let pairs: Vec<(f64, f64)> = rows
                .iter()
                .filter(|(.., held_out)| *held_out == of_held_out)
                .map(|(parts, found, _)| (*found, sum(&coefficients, parts)))
                .collect();
            Errors::of(&pairs)
        };
        Fit {
            fitted: errors(false),
            held_out: errors(true),
            coefficients,
        }
    }
}

/// The model of a family on a technology.
#[derive(Clone, Debug)]
pub struct Model {
    /// The core's name.
    pub core: &'static str,
    /// What it is mapped to.
    pub technology: Technology,
    /// Look-up tables, memories among them.
    pub lut: Fit,
    /// Flip-flops.
    pub ff: Fit,
    /// Block memories of 36 Kbit.
    pub bram36: Fit,
    /// Of the formula for DSP slices, on all runs.
    pub dsp: Errors,
    /// Butterflies of the largest run that it was fitted to: beyond is extrapolation.
    pub largest_fitted: u64,
    /// Butterflies of the largest run: beyond that, nothing checks the model.
    pub largest: u64,
}

impl Model {
    fn fitted(core: &'static Core, technology: Technology) -> Option<Model> {
        let name = core.name;
        let rows: Vec<_> = runs()
            .iter()
            .filter(|run| run.core == name && run.device == technology.name())
            .filter_map(|run| {
                let configured = core.configure(&run.values(core).ok()?).ok()?;
                Some((run, configured.cost(technology, None)?))
            })
            .collect();
        if rows.iter().all(|(run, _)| run.held_out) {
            return None;
        }
        let fit = |parts: &dyn Fn(&toroid_cores::cost::Features) -> &Parts,
                   found: &dyn Fn(Amounts) -> f64| {
            let rows: Vec<_> = rows
                .iter()
                .map(|(run, figures)| {
                    (
                        parts(&figures.features).clone(),
                        found(run.amounts()),
                        run.held_out,
                    )
                })
                .collect();
            Fit::of(&rows)
        };
        let dsp: Vec<(f64, f64)> = rows
            .iter()
            .map(|(run, figures)| (run.dsp as f64, figures.dsp as f64))
            .collect();
        let largest = |is_wanted: &dyn Fn(&Run) -> bool| {
            let wanted = rows.iter().filter(|(run, _)| is_wanted(run));
            let butterflies = wanted.map(|(_, figures)| figures.butterflies);
            butterflies.max().unwrap_or(0)
        };
        Some(Model {
            core: name,
            technology,
            lut: fit(&|features| &features.lut, &|amounts| amounts.lut),
            ff: fit(&|features| &features.ff, &|amounts| amounts.ff),
            bram36: fit(&|features| &features.bram36, &|amounts| amounts.bram36),
            dsp: Errors::of(&dsp),
            largest_fitted: largest(&|run| !run.held_out),
            largest: largest(&|_| true),
        })
    }

    /// The model of a core on a technology; `None` where it was never synthesized.
    pub fn find(core: &str, technology: Technology) -> Option<&'static Model> {
        static MODELS: LazyLock<Vec<Model>> = LazyLock::new(|| {
            let pairs = families()
                .flat_map(|(core, _)| Technology::ALL.map(|technology| (core, technology)));
            pairs
                .filter_map(|(core, technology)| Model::fitted(core, technology))
                .collect()
        });
        MODELS
            .iter()
            .find(|model| model.core == core && model.technology == technology)
    }

    /// What a setting with these figures takes.
    pub fn amounts(&self, figures: &toroid_cores::cost::Figures) -> Amounts {
        Amounts {
            lut: sum(&self.lut.coefficients, &figures.features.lut).round(),
            ff: sum(&self.ff.coefficients, &figures.features.ff).round(),
            // In halves, of which blocks of 18 Kbit are one.
            bram36: (2.0 * sum(&self.bram36.coefficients, &figures.features.bram36)).round() / 2.0,
            dsp: figures.dsp as f64,
        }
    }
}

/// The x >= 0 of least |A x - b| by the method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23), with
/// the rows of A.
fn non_negative_least_squares(rows: &[Vec<f64>], targets: &[f64]) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    // Columns of length 1, so that one tolerance fits all.
    let lengths: Vec<f64> = (0..columns)
        .map(|j| rows.iter().map(|row| row[j] * row[j]).sum::<f64>().sqrt())
        .collect();
    let at = |i: usize, j: usize| match lengths[j] {
        0.0 => 0.0,
        length => rows[i][j] / length,
    };
    let dot = |f: &dyn Fn(usize) -> f64| (0..rows.len()).map(f).sum::<f64>();
    let gram: Vec<Vec<f64>> = (0..columns)
        .map(|j| {
            (0..columns)
                .map(|k| dot(&|i| at(i, j) * at(i, k)))
                .collect()
        })
        .collect();
    let moments: Vec<f64> = (0..columns)
        .map(|j| dot(&|i| at(i, j) * targets[i]))
        .collect();
    let mut x = vec![0.0; columns];
    let mut is_free = vec![false; columns];
    for _ in 0..10 * columns {
        let slope = |j: usize| moments[j] - (0..columns).map(|k| gram[j][k] * x[k]).sum::<f64>();
        let steepest = (0..columns)
            .filter(|&j| !is_free[j])
            .max_by(|&j, &k| slope(j).total_cmp(&slope(k)));
        match steepest {
            Some(j) if slope(j) > 1e-9 => is_free[j] = true,
            _ => break,
        }
        loop {
            let free: Vec<usize> = (0..columns).filter(|&j| is_free[j]).collect();
            let solution = solve(&gram, &moments, &free);
            // As far towards the solution as nothing becomes negative.
            let step = free
                .iter()
                .zip(&solution)
                .filter(|(_, new)| **new <= 0.0)
                .map(|(&j, new)| x[j] / (x[j] - new))
                .fold(1.0, f64::min);
            for (&j, new) in free.iter().zip(&solution) {
                x[j] += step * (new - x[j]);
                if *new <= 0.0 && x[j] < 1e-12 {
                    x[j] = 0.0;
                    is_free[j] = false;
                }
            }
            if step >= 1.0 {
                break;
            }
        }
    }
    x.iter()
        .zip(&lengths)
        .map(|(x, length)| if *length > 0.0 { x / length } else { 0.0 })
        .collect()
}

/// Solves the normal equations of some columns by elimination with pivots; a trace of the identity is added, as parts may
/// be multiples of each other.
fn solve(gram: &[Vec<f64>], moments: &[f64], free: &[usize]) -> Vec<f64> {
    let size = free.len();
    let mut rows: Vec<Vec<f64>> = free
        .iter()
        .map(|&j| {
            let row = free
                .iter()
                .map(|&k| gram[j][k] + if j == k { 1e-10 } else { 0.0 });
            row.chain([moments[j]]).collect()
        })
        .collect();
    for column in 0..size {
        let pivot =
            (column..size).max_by(|&i, &j| rows[i][column].abs().total_cmp(&rows[j][column].abs()));
        rows.swap(column, pivot.unwrap_or(column));
        let head = rows[column].clone();
        for (i, row) in rows.iter_mut().enumerate() {
            if i != column {
                let factor = row[column] / head[column];
                for (value, head) in row.iter_mut().zip(&head) {
                    *value -= factor * head;
                }
            }
        }
    }
    (0..size).map(|i| rows[i][size] / rows[i][i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn least_squares_find_what_sums_were_made_of() {
        let rows = [
            vec![1.0, 0.0, 2.0],
            vec![0.0, 3.0, 1.0],
            vec![2.0, 1.0, 0.0],
            vec![1.0, 1.0, 1.0],
        ];
        let truth = [5.0, 0.25, 70.0];
        let targets: Vec<f64> = rows
            .iter()
            .map(|row| row.iter().zip(truth).map(|(a, x)| a * x).sum())
            .collect();
        let found = non_negative_least_squares(&rows, &targets);
        for (found, truth) in found.iter().zip(truth) {
            assert!((found - truth).abs() < 1e-5 * truth, "{found} for {truth}");
        }
        // The free solution is (1, -1): without negative numbers the best is (0.5, 0).
        let found = non_negative_least_squares(&[vec![1.0, 0.0], vec![1.0, 1.0]], &[1.0, 0.0]);
        assert!(
            (found[0] - 0.5).abs() < 1e-6 && found[1] == 0.0,
            "{found:?}"
        );
        assert_eq!(non_negative_least_squares(&[vec![0.0]], &[1.0]), [0.0]);
        assert!(non_negative_least_squares(&[], &[]).is_empty());
    }

    proptest! {
        /// The conditions of Karush, Kuhn and Tucker: no slope where something is taken, none upwards where nothing is.
        #[test]
        fn least_squares_cannot_be_improved(
            rows in prop::collection::vec(prop::collection::vec(0.1f64..10.0, 4), 6..12),
            noise in prop::collection::vec(0.5f64..1.5, 12),
        ) {
            let x = non_negative_least_squares(&rows, &noise);
            let residual: Vec<f64> = rows
                .iter()
                .zip(&noise)
                .map(|(row, target)| target - row.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>())
                .collect();
            for j in 0..4 {
                let slope: f64 = rows.iter().zip(&residual).map(|(row, r)| row[j] * r).sum();
                prop_assert!(x[j] >= 0.0 && slope < 1e-4, "slope {slope} at {}", x[j]);
                prop_assert!(x[j] == 0.0 || slope > -1e-4, "slope {slope} at {}", x[j]);
            }
        }
    }

    #[test]
    fn errors_are_relative_to_what_was_found() {
        let errors = Errors::of(&[(100.0, 90.0), (200.0, 204.0), (0.0, 0.5)]);
        assert_eq!(errors.runs, 3);
        assert!((errors.median - 0.1).abs() < 1e-12 && (errors.maximum - 0.5).abs() < 1e-12);
        assert_eq!(Errors::of(&[]).maximum, 0.0);
    }

    #[test]
    fn every_family_has_models_and_their_multipliers_are_exact() {
        for (core, _) in families() {
            let model = Model::find(core.name, Technology::Xc7).unwrap();
            assert_eq!(model.dsp.maximum, 0.0, "{}", model.core);
            for fit in [&model.lut, &model.ff, &model.bram36] {
                assert!(fit.held_out.runs * 6 >= fit.fitted.runs, "{fit:?}");
                assert!(fit.coefficients.iter().all(|(_, each)| *each >= 0.0));
            }
        }
        for run in runs() {
            let core = toroid_cores::find(&run.core).unwrap();
            let technology = Technology::ALL
                .into_iter()
                .find(|technology| technology.name() == run.device)
                .unwrap();
            let configured = core.configure(&run.values(core).unwrap()).unwrap();
            let figures = configured.cost(technology, None).unwrap();
            assert_eq!(figures.dsp, run.dsp, "{run:?}");
        }
    }

    /// The largest error that is shown is that of the coefficients shown, on the runs that were held out.
    #[test]
    fn the_errors_shown_are_those_of_the_runs() {
        for (core, _) in families() {
            for technology in Technology::ALL {
                let Some(model) = Model::find(core.name, technology) else {
                    continue;
                };
                let mut errors: Vec<f64> = runs()
                    .iter()
                    .filter(|run| {
                        run.core == model.core && run.device == technology.name() && run.held_out
                    })
                    .map(|run| {
                        let values = run.values(core).unwrap();
                        let configured = core.configure(&values).unwrap();
                        let figures = configured.cost(technology, None).unwrap();
                        let found = (run.lut + run.lutram) as f64;
                        (sum(&model.lut.coefficients, &figures.features.lut) / found - 1.0).abs()
                    })
                    .collect();
                errors.sort_by(f64::total_cmp);
                assert_eq!(errors.len(), model.lut.held_out.runs);
                let largest = errors.last().copied().unwrap_or(0.0);
                assert!((largest - model.lut.held_out.maximum).abs() < 1e-12);
            }
        }
    }

    /// The 16 lanes of the paper among them, where it is fitted to four.
    #[test]
    fn elastic_runs_that_were_held_out_are_near() {
        let model = Model::find("ntt_elastic", Technology::Xc7).unwrap();
        for (what, fit) in [
            ("LUT", &model.lut),
            ("FF", &model.ff),
            ("BRAM36", &model.bram36),
        ] {
            let errors = fit.held_out;
            println!(
                "{what} off by {:.2} %, at most {:.2} %, on {} runs: {:?}",
                100.0 * errors.median,
                100.0 * errors.maximum,
                errors.runs,
                fit.coefficients
            );
            assert!(
                errors.runs >= 2 && errors.maximum < 0.15,
                "{what}: {errors:?}"
            );
        }
    }
}
