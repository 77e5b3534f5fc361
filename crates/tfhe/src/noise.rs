//! Noise formulas and failure probabilities.
//!
//! Variances are over the torus (q = 1), for uniform binary keys, each term an independent Gaussian; [`Assumptions`] say which keys
//! and which processor. The formulas are
//! those of Chillotti, Gama, Georgieva and Izabachène (TFHE, J. Cryptology 2020) in their average-case form, without the
//! terms below 2^-8 of the others (rounding of dropped digits that are exact halves); the constant of the f64 FFT is
//! our own, fitted to measurement. Tests check each of them against measured noise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arithmetic::ArithmeticKind;
use crate::params::ParamSet;
use crate::wopbs;

pub use crate::variance::*;

/// The part of a bootstrapped sample's variance that all samples under the same keys share.
///
/// Balanced digits lie in [-B/2, B/2) and have the mean -1/2: every key switch and every blind rotation adds the same
/// -1/2 times the sum of the key's noises. A sum of m bootstrapped samples has m^2 times this.
#[must_use]
pub fn shared_variance(params: &ParamSet, assumptions: impl Into<Assumptions>) -> f64 {
    if let Some(wopbs) = params.wopbs {
        return wopbs::noise::shared_variance(params, wopbs, assumptions);
    }
    let assumptions = assumptions.into();
    // Of an unrolled key, the products that a step takes off without turning them.
    let samples = if assumptions.unrolled {
        params.unrolled_samples()
    } else {
        params.lwe_dimension
    };
    let key_switch = params.extracted_dimension() as f64
        * params.key_switch.levels as f64
        * params.lwe_variance();
    let rotations = samples as f64
        * params.ggsw_rows() as f64
        * params.ring_degree as f64
        * loaded_key_variance(params, assumptions);
    (key_switch + rotations) / 4.0
}

/// Variance of a bootstrapped sample: blind rotation and key switch; for wide functions, the blind rotations of all digits.
#[must_use]
pub fn bootstrap_output_variance(params: &ParamSet, assumptions: impl Into<Assumptions>) -> f64 {
    let assumptions = assumptions.into();
    if let Some(wopbs) = params.wopbs {
        return wopbs::noise::stages(params, wopbs, assumptions, params.message_bits).output;
    }
    blind_rotation_variance(params, assumptions) + key_switch_variance(params, assumptions)
}

/// The noise of a sample as a combination of sources, and the probability that a bootstrap that led to it failed.
///
/// Each fresh encryption and each bootstrap is a source of its own, so that `x + x` has four times the variance of `x`,
/// and `(x + y) - (x - y)` that of `2y`. Bootstraps of the same sample (with any functions) are correlated in a way that
/// depends on the functions: their standard deviations add up. What all bootstraps under the same keys share
/// ([`shared_variance`]) is one source. Beyond [`Noise::MAX_SOURCES`] the sources are replaced by one whose standard
/// deviation is the sum of theirs in any combination that follows: never too small.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    terms: BTreeMap<u64, Term>,
    /// Standard deviation of what was merged; adds up linearly, whatever the signs.
    merged: f64,
    log2_failure: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Term {
    coefficient: f64,
    variance: f64,
    /// Terms of one group are correlated in an unknown way.
    group: u64,
    /// Whether each row of a column has such a source of its own.
    in_each_row: bool,
}

/// The source of [`shared_variance`]. Samples of several key ids never meet in one combination.
const SHARED_SOURCE: u64 = u64::MAX;

/// Set in the groups of bootstraps, so that they are never the number of a source.
const BOOTSTRAP_GROUP: u64 = 1 << 63;

/// Set in the sources of fresh samples that were read, so that they are never those of samples made in this process.
const READ_SOURCE: u64 = 1 << 62;

/// Whether a variance is that of a fresh encryption, but for the rounding of files and metadata.
fn is_fresh(params: &ParamSet, variance: f64) -> bool {
    variance <= params.lwe_variance() * (1.0 + 1e-4)
}

fn next_source() -> u64 {
    static NEXT_SOURCE: AtomicU64 = AtomicU64::new(0);
    NEXT_SOURCE.fetch_add(1, Ordering::Relaxed)
}

/// What a file or a drive states of a sample's noise, as base-2 logarithms; nothing where it states nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatedNoise {
    /// log2 of the variance over the torus.
    pub log2_variance: Option<f64>,
    /// log2 of the probability that some bootstrap that led to the sample failed; nothing where there was none.
    pub log2_failure: Option<f64>,
}

impl StatedNoise {
    /// What is stated of a fresh encryption.
    #[must_use]
    pub fn fresh(params: &ParamSet) -> StatedNoise {
        StatedNoise {
            log2_variance: Some(params.lwe_variance().log2()),
            log2_failure: None,
        }
    }

    /// [`Noise::stored`] of what is stated. Where no variance is, the sample may be anything: its failure probability is 1.
    #[must_use]
    pub fn stored(&self, params: &ParamSet, computed: bool) -> Noise {
        let certain = 0.0;
        let (variance, log2_failure) = match self.log2_variance {
            Some(log2) => (log2.exp2(), self.log2_failure.unwrap_or(f64::NEG_INFINITY)),
            None => (0.0, certain),
        };
        Noise::stored(params, variance, log2_failure, computed)
    }
}

impl Noise {
    /// How many sources a sample's noise keeps apart.
    pub const MAX_SOURCES: usize = 256;

    /// Noise of a new, independent sample of this variance, which no bootstrap led to.
    #[must_use]
    pub fn fresh(variance: f64) -> Noise {
        Noise::with_failure(variance, f64::NEG_INFINITY)
    }

    /// Noise of a new, independent sample of this variance, and this failure probability of the bootstraps that led to it.
    #[must_use]
    pub fn with_failure(variance: f64, log2_failure: f64) -> Noise {
        Noise::of_source(next_source(), variance, log2_failure)
    }

    fn of_source(source: u64, variance: f64, log2_failure: f64) -> Noise {
        let term = Term {
            coefficient: 1.0,
            variance,
            group: source,
            in_each_row: false,
        };
        Noise {
            terms: BTreeMap::from([(source, term)]),
            merged: 0.0,
            log2_failure,
        }
    }

    /// Noise of a sample that comes back from where its sources are not known, with what is stated of it. No sample under a
    /// set's keys has less noise than a fresh encryption, whatever is stated. A computed one may share its sources with
    /// any other: its standard deviation adds up linearly. What has more noise than a fresh encryption, or a failure probability
    /// behind it, was computed, whether that is stated or not.
    #[must_use]
    pub fn stored(params: &ParamSet, variance: f64, log2_failure: f64, computed: bool) -> Noise {
        let variance = variance.max(params.lwe_variance());
        if !computed && log2_failure == f64::NEG_INFINITY && is_fresh(params, variance) {
            return Noise::fresh(variance);
        }
        Noise {
            terms: BTreeMap::new(),
            merged: variance.sqrt(),
            log2_failure,
        }
    }

    /// Noise of a sample of which this is stated ([`Noise::stored`]), and which this number tells from others: a fresh one that is
    /// read twice is one source.
    pub(crate) fn of_sample(params: &ParamSet, stated: StatedNoise, fingerprint: u64) -> Noise {
        let log2_failure = stated.log2_failure.unwrap_or(f64::NEG_INFINITY);
        if let Some(log2_variance) = stated.log2_variance
            && log2_failure == f64::NEG_INFINITY
            && is_fresh(params, log2_variance.exp2())
        {
            let source = fingerprint & (READ_SOURCE - 1) | READ_SOURCE;
            return Noise::of_source(source, params.lwe_variance(), log2_failure);
        }
        stated.stored(params, true)
    }

    /// What to state of this noise of a sample of `params`.
    #[must_use]
    pub fn stated(&self, params: &ParamSet) -> StatedNoise {
        let fails = self.log2_failure > f64::NEG_INFINITY;
        StatedNoise {
            log2_variance: Some(self.variance().max(params.lwe_variance()).log2()),
            log2_failure: fails.then_some(self.log2_failure),
        }
    }

    /// Noise of a freshly encrypted LWE sample.
    #[must_use]
    pub fn encryption(params: &ParamSet) -> Noise {
        Noise::fresh(params.lwe_variance())
    }

    /// Variance over the torus.
    #[must_use]
    pub fn variance(&self) -> f64 {
        let mut groups = BTreeMap::<u64, f64>::new();
        for term in self.terms.values() {
            *groups.entry(term.group).or_default() += term.coefficient.abs() * term.variance.sqrt();
        }
        let independent: f64 = groups.values().map(|deviation| deviation * deviation).sum();
        (independent.sqrt() + self.merged).powi(2)
    }

    /// log2 of the probability that some bootstrap that led to this sample failed (union bound).
    #[must_use]
    pub fn log2_failure(&self) -> f64 {
        self.log2_failure
    }

    /// Noise of `self + factor·other`.
    #[must_use]
    pub fn plus(&self, other: &Noise, factor: f64) -> Noise {
        let mut sum = self.clone();
        for (source, term) in &other.terms {
            let entry = sum.terms.entry(*source).or_insert(Term {
                coefficient: 0.0,
                ..*term
            });
            entry.coefficient += factor * term.coefficient;
            if entry.coefficient == 0.0 {
                sum.terms.remove(source);
            }
        }
        sum.merged += factor.abs() * other.merged;
        sum.log2_failure = log2_add(sum.log2_failure, other.log2_failure);
        if sum.terms.len() > Self::MAX_SOURCES {
            sum.merged = sum.variance().sqrt();
            sum.terms.clear();
        }
        sum
    }

    /// This noise in every row of a column, each row with sources of its own; [`shared_variance`] stays one source of all rows.
    #[must_use]
    pub fn in_each_row(mut self) -> Noise {
        for (source, term) in &mut self.terms {
            term.in_each_row = *source != SHARED_SOURCE;
        }
        self
    }

    /// The noise of a single sample that was the only row of a column.
    #[must_use]
    pub fn in_one_row(mut self) -> Noise {
        for term in self.terms.values_mut() {
            term.in_each_row = false;
        }
        self
    }

    /// Noise of the sum of `rows` rows of a column. The sources of its rows are independent; what the rows have in common, and what
    /// was merged, counts `rows` times. The sum may meet its own summands again, so that it stays in their groups.
    #[must_use]
    pub fn sum_of_rows(&self, rows: u64) -> Noise {
        let count = rows as f64;
        let mut sum = self.with_other_rows(|term| term.variance *= count);
        for term in sum.terms.values_mut().filter(|term| !term.in_each_row) {
            term.coefficient *= count;
        }
        sum.merged *= count;
        sum.log2_failure = (sum.log2_failure + count.log2()).min(0.0);
        sum
    }

    /// Noise of a column whose rows come from other places of this one. A row may meet another with which it shares sources, so that
    /// it stays in their groups.
    #[must_use]
    pub fn of_moved_rows(&self) -> Noise {
        self.with_other_rows(|_| ())
    }

    /// The noise with new sources in place of those that each row has for itself.
    fn with_other_rows(&self, change: impl Fn(&mut Term)) -> Noise {
        let mut other = self.clone();
        other.terms = BTreeMap::new();
        for (source, term) in &self.terms {
            let mut term = *term;
            if term.in_each_row {
                change(&mut term);
                other.terms.insert(next_source(), term);
            } else {
                other.terms.insert(*source, term);
            }
        }
        other
    }

    /// The larger variance and the larger failure probability of two estimates of the same sample.
    #[must_use]
    pub fn or_worse(&self, other: &Noise) -> Noise {
        let mut worse = if other.variance() > self.variance() {
            other.clone()
        } else {
            self.clone()
        };
        worse.log2_failure = self.log2_failure.max(other.log2_failure);
        worse
    }

    /// Noise of `factor` times the sample.
    #[must_use]
    pub fn times(&self, factor: f64) -> Noise {
        let mut product = self.clone();
        for term in product.terms.values_mut() {
            term.coefficient *= factor;
        }
        product.terms.retain(|_, term| term.coefficient != 0.0);
        product.merged *= factor.abs();
        product
    }

    /// Noise of the sample after a bootstrap of a function of p bits (`message_bits` = 0: a Boolean gate). `input` is a
    /// number that bootstraps of the same sample have in common, such as a hash of its bytes.
    #[must_use]
    pub fn bootstrapped(
        &self,
        params: &ParamSet,
        message_bits: u32,
        assumptions: impl Into<Assumptions>,
        input: u64,
    ) -> Noise {
        let assumptions = assumptions.into();
        let failure = log2_bootstrap_failure(params, assumptions, message_bits, self.variance());
        let shared = shared_variance(params, assumptions);
        let own = Term {
            coefficient: 1.0,
            variance: bootstrap_output_variance(params, assumptions) - shared,
            group: input | BOOTSTRAP_GROUP,
            in_each_row: false,
        };
        let common = Term {
            coefficient: 1.0,
            variance: shared,
            group: SHARED_SOURCE,
            in_each_row: false,
        };
        Noise {
            terms: BTreeMap::from([(next_source(), own), (SHARED_SOURCE, common)]),
            merged: 0.0,
            log2_failure: log2_add(self.log2_failure, failure),
        }
    }
}

impl ParamSet {
    /// log2 of the probability that a bootstrap of a p-bit function (0: a gate) fails, when its input is a combination of
    /// independent bootstrapped samples whose squared coefficients sum to `norm2` (1 for a bootstrapped sample as it is; a
    /// gate's sum of two: 2).
    #[must_use]
    pub fn log2_failure(&self, message_bits: u32, norm2: f64) -> f64 {
        self.log2_failure_under(ArithmeticKind::Fft, message_bits, norm2)
    }

    /// [`Self::log2_failure`] under other assumptions than the nominal ones.
    #[must_use]
    pub fn log2_failure_under(
        &self,
        assumptions: impl Into<Assumptions>,
        message_bits: u32,
        norm2: f64,
    ) -> f64 {
        let assumptions = assumptions.into();
        let input = norm2 * bootstrap_output_variance(self, assumptions);
        log2_bootstrap_failure(self, assumptions, message_bits, input)
    }
}

/// log2 of the probability that a bootstrap of a p-bit function (0: a Boolean gate) fails on a sample of this variance. A wide
/// function reads 1 to [`ParamSet::message_bits`].
#[must_use]
pub fn log2_bootstrap_failure(
    params: &ParamSet,
    assumptions: impl Into<Assumptions>,
    message_bits: u32,
    input_variance: f64,
) -> f64 {
    match params.wopbs {
        None => log2_tail(
            margin(message_bits),
            input_variance + modulus_switch_variance(params),
        ),
        Some(wopbs) => {
            wopbs::noise::log2_failure(params, wopbs, assumptions, message_bits, input_variance)
        }
    }
}

/// log2 of the probability that decoding p bits of a sample of this variance goes wrong, there or in a bootstrap that led to it.
#[must_use]
pub fn log2_decoding_failure(message_bits: u32, variance: f64, log2_behind: f64) -> f64 {
    log2_add(log2_behind, log2_tail(margin(message_bits), variance))
}
