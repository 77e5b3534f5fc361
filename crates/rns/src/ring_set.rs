//! Rings by name: everything about a ring that is not secret, chosen once.
//!
//! A set fixes the pipeline of its tables, the primes, and the widths of columns at rest. These widths are wider than
//! decryption needs ([`crate::modulus_switch`]): a table squares what noise does to its selectors, so that a column at rest
//! must have less noise to be looked up than to be read. [`RingSet::table_noise`] says how much a table bears.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use toroid_ring::simd::SimdLevel;
use toroid_tfhe::params::ParamSet;

use crate::RnsError;
use crate::context::{Context, Threads};
use crate::embedding::Embedding;
use crate::evaluation::KeyRequest;
use crate::evaluator::{lean_key_request, order_primes};
use crate::format::{FormatError, Kind, field};
use crate::params::{RnsParams, Shape as Sizes};
use crate::pipeline::Pipeline;
use crate::search::{Applied, Candidate, TableNoise};
use crate::slots::ColumnSlots;
use crate::stored::StoredColumn;
use crate::table::{Digits, Exponential, Shape, Table};
use crate::wide::{WideDigits, WidePipeline, WideShape};
use crate::wide_search::{RowMask, WideCandidate};

/// The first number of a ring set. Parameter sets of samples have smaller ones, so that a number names one or the other.
pub const FIRST_ID: u16 = 0x4000;

/// A ring by name.
#[derive(Debug)]
pub struct RingSet {
    /// Its number in metadata, from [`FIRST_ID`] on.
    pub id: u16,
    /// Its name.
    pub name: &'static str,
    /// Whether it is for tests, and protects nothing.
    pub is_insecure: bool,
    /// Bits of a word of a fresh column at rest.
    pub seeded_width: u32,
    /// Bits of a word of a computed one.
    pub computed_width: u32,
    degree: usize,
    special: usize,
    digit_limbs: usize,
    stages: usize,
    /// Degree of the exponential's polynomial, and doublings.
    exponential: (usize, u32),
    tables: Tables,
    params: OnceLock<RnsParams>,
    context: Mutex<Weak<Context>>,
}

/// Why a client key has no such ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRing {
    /// One of both is for tests.
    #[error("{ring} and {params}: one of them is for tests and protects nothing")]
    Insecure {
        /// The ring.
        ring: &'static str,
        /// The parameter set of the client key.
        params: &'static str,
    },
    /// No ring has such messages.
    #[error("no ring has messages of {0} bits")]
    Bits(u32),
}

/// How messages are taken apart. Pairs are the bits of a high and of a low digit.
#[derive(Clone, Copy, Debug)]
enum Tables {
    /// In one pass, on columns at rest of a modulus of so many bits.
    Narrow {
        digits: (u32, u32),
        log2_scale: u32,
        log2_inner: u32,
        first_bits: u32,
    },
    /// In two passes.
    Wide {
        high: (u32, u32),
        low: (u32, u32),
        log2_scale: u32,
        log2_coarse: u32,
        log2_fine: u32,
        first_bits: u32,
    },
}

/// Tables of 8 bits on 65536 numbers.
pub static RING8: RingSet = RingSet {
    id: FIRST_ID,
    name: "ring8",
    is_insecure: false,
    seeded_width: 22,
    computed_width: 28,
    degree: 1 << 16,
    special: 9,
    digit_limbs: 9,
    stages: 3,
    exponential: (47, 2),
    tables: Tables::Narrow {
        digits: (4, 4),
        log2_scale: 49,
        log2_inner: 45,
        first_bits: 45,
    },
    params: OnceLock::new(),
    context: Mutex::new(Weak::new()),
};

/// Tables of 4 bits on 256 numbers, for tests: fast and insecure.
pub static TINY_RING: RingSet = RingSet {
    id: FIRST_ID + 1,
    name: "tiny-ring",
    is_insecure: true,
    seeded_width: 16,
    computed_width: 20,
    degree: 1 << 8,
    special: 6,
    digit_limbs: 7,
    stages: 2,
    exponential: (31, 3),
    tables: Tables::Narrow {
        digits: (2, 2),
        log2_scale: 42,
        log2_inner: 42,
        first_bits: 42,
    },
    params: OnceLock::new(),
    context: Mutex::new(Weak::new()),
};

/// Tables of 12 bits on 65536 numbers, for about three quarters of the work of [`RING16`].
pub static RING12: RingSet = RingSet {
    id: FIRST_ID + 2,
    name: "ring12",
    is_insecure: false,
    seeded_width: 30,
    computed_width: 32,
    degree: 1 << 16,
    special: 9,
    digit_limbs: 10,
    stages: 3,
    exponential: (47, 2),
    tables: Tables::Wide {
        high: (4, 4),
        low: (4, 0),
        log2_scale: 42,
        log2_coarse: 42,
        log2_fine: 46,
        first_bits: 44,
    },
    params: OnceLock::new(),
    context: Mutex::new(Weak::new()),
};

/// Tables of 16 bits on 65536 numbers.
pub static RING16: RingSet = RingSet {
    id: FIRST_ID + 3,
    name: "ring16",
    is_insecure: false,
    seeded_width: 36,
    computed_width: 36,
    degree: 1 << 16,
    special: 8,
    digit_limbs: 8,
    stages: 3,
    exponential: (47, 2),
    tables: Tables::Wide {
        high: (4, 4),
        low: (4, 4),
        log2_scale: 49,
        log2_coarse: 38,
        log2_fine: 48,
        first_bits: 44,
    },
    params: OnceLock::new(),
    context: Mutex::new(Weak::new()),
};

/// Tables of 9 bits in two passes on 256 numbers, for tests: fast and insecure.
pub static TINY_RING9: RingSet = RingSet {
    id: FIRST_ID + 4,
    name: "tiny-ring9",
    is_insecure: true,
    seeded_width: 24,
    computed_width: 26,
    degree: 1 << 8,
    special: 7,
    digit_limbs: 7,
    stages: 2,
    exponential: (31, 3),
    tables: Tables::Wide {
        high: (3, 2),
        low: (2, 2),
        log2_scale: 41,
        log2_coarse: 41,
        log2_fine: 46,
        first_bits: 44,
    },
    params: OnceLock::new(),
    context: Mutex::new(Weak::new()),
};

/// The parameters of a set as the search for its kind of tables has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parameters {
    /// Of tables of up to 8 bits.
    Narrow(Candidate),
    /// Of wider ones.
    Wide(WideCandidate),
}

impl Parameters {
    /// What primes are searched for.
    fn sizes(&self) -> Sizes {
        match self {
            Parameters::Narrow(candidate) => candidate.sizes(),
            Parameters::Wide(candidate) => candidate.sizes(),
        }
    }

    /// log2 of the scale of a level.
    fn log2_scale_at(&self, level: usize) -> f64 {
        match self {
            Parameters::Narrow(candidate) => candidate.log2_scale_at(level).into(),
            Parameters::Wide(candidate) => candidate.log2_scale_at(level).into(),
        }
    }

    /// Levels of the pipeline.
    fn levels(&self) -> usize {
        match self {
            Parameters::Narrow(candidate) => candidate.levels(),
            Parameters::Wide(candidate) => candidate.levels(),
        }
    }

    /// log2(Q·P), and log2 of the failure probability of a batch on sums of results with squared norm
    /// [`INPUT_NORM`](crate::search::INPUT_NORM); nothing where key switches are not sound.
    #[must_use]
    pub fn judge_noise(&self) -> Option<(f64, f64)> {
        match self {
            Parameters::Narrow(candidate) => {
                let judgement = candidate.judge_noise()?;
                Some((judgement.log2_modulus, judgement.log2_failure))
            }
            Parameters::Wide(candidate) => {
                let judgement = candidate.judge_noise()?;
                Some((judgement.log2_modulus, judgement.log2_failure))
            }
        }
    }

    fn table_noise(&self, input: f64) -> Option<TableNoise> {
        match self {
            Parameters::Narrow(candidate) => candidate.table_noise(input),
            Parameters::Wide(candidate) => candidate.table_noise(input),
        }
    }

    /// The same in the rows of a mask in the clear.
    fn table_noise_in_rows(&self, input: f64) -> Option<TableNoise> {
        match self {
            Parameters::Narrow(candidate) => {
                let applied = Applied {
                    to_some_rows: true,
                    ..Applied::default()
                };
                candidate.noise_applied(input, applied)
            }
            Parameters::Wide(candidate) => candidate.table_noise_masked(input, RowMask::Clear),
        }
    }
}

/// The pipeline of a set's tables.
pub(crate) enum RingPipeline {
    Narrow(Pipeline),
    Wide(WidePipeline),
}

impl RingPipeline {
    /// The evaluation keys, few of them: two or three for each stage of a matrix.
    fn key_request(&self) -> KeyRequest {
        match self {
            RingPipeline::Narrow(pipeline) => lean_key_request(pipeline),
            RingPipeline::Wide(pipeline) => pipeline.lean_key_request(),
        }
    }

    /// Tables of a column at level 0. They share what takes its messages apart.
    pub(crate) fn look_up<S: ColumnSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
        (tables, rows): (&[Table], Option<&[bool]>),
    ) -> Result<Vec<S::Value>, S::Error> {
        match self {
            RingPipeline::Narrow(pipeline) => {
                let raised = slots.raise(column, pipeline.levels())?;
                let digits = pipeline.digits(slots, &raised)?;
                drop(raised);
                let tables = tables.iter();
                tables
                    .map(|table| match rows {
                        Some(rows) => pipeline.look_up_rows(slots, &digits, table, rows),
                        None => pipeline.look_up(slots, &digits, table),
                    })
                    .collect()
            }
            RingPipeline::Wide(pipeline) => {
                let digits = pipeline.digits(slots, column)?;
                look_up_all(pipeline, slots, &digits, (tables, rows))
            }
        }
    }

    /// Tables of two columns at level 0, which share what takes both apart. Nothing where a set has none ([`RingSet::bits_of_two`]).
    pub(crate) fn look_up_two<S: ColumnSlots>(
        &self,
        slots: &mut S,
        [high, low]: [&S::Value; 2],
        tables: (&[Table], Option<&[bool]>),
    ) -> Result<Option<Vec<S::Value>>, S::Error> {
        let RingPipeline::Wide(pipeline) = self else {
            return Ok(None);
        };
        let digits = pipeline.digits_of_two(slots, high, low)?;
        look_up_all(pipeline, slots, &digits, tables).map(Some)
    }
}

/// Tables of digits, in some rows alone where these are given.
fn look_up_all<S: ColumnSlots>(
    pipeline: &WidePipeline,
    slots: &mut S,
    digits: &WideDigits<S::Value>,
    (tables, rows): (&[Table], Option<&[bool]>),
) -> Result<Vec<S::Value>, S::Error> {
    let tables = tables.iter();
    tables
        .map(|table| match rows {
            Some(rows) => pipeline.look_up_rows(slots, digits, table, rows),
            None => pipeline.look_up(slots, digits, table),
        })
        .collect()
}

impl PartialEq for RingSet {
    fn eq(&self, other: &RingSet) -> bool {
        self.id == other.id
    }
}

impl RingSet {
    /// All sets.
    pub const ALL: [&'static RingSet; 5] = [&RING8, &TINY_RING, &RING12, &RING16, &TINY_RING9];

    /// The set of a number.
    #[must_use]
    pub fn by_id(id: u16) -> Option<&'static RingSet> {
        Self::ALL.into_iter().find(|set| set.id == id)
    }

    /// The set of a name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static RingSet> {
        Self::ALL.into_iter().find(|set| set.name == name)
    }

    /// The ring of a client key's columns: the one that is wanted, or the smallest one that has all messages of the key's parameter set.
    ///
    /// # Errors
    /// [`NoRing`].
    pub fn of_client(
        params: &ParamSet,
        wanted: Option<&'static RingSet>,
    ) -> Result<&'static RingSet, NoRing> {
        let (bits, is_insecure) = (params.message_bits, params.is_insecure());
        match wanted {
            Some(set) if set.is_insecure == is_insecure => Ok(set),
            Some(set) => Err(NoRing::Insecure {
                ring: set.name,
                params: params.name,
            }),
            None => RingSet::for_bits(bits, is_insecure).ok_or(NoRing::Bits(bits)),
        }
    }

    /// The set of the parameters in a file of this kind.
    ///
    /// # Errors
    /// [`FormatError::Field`] for parameters of no set: those of another version of a set have other primes.
    pub fn of_file(kind: Kind, params: &RnsParams) -> Result<&'static RingSet, FormatError> {
        let mut sets = Self::ALL.into_iter();
        let set = sets.find(|set| set.params() == params);
        set.ok_or_else(|| {
            let problem = "are those of no set of this version: make the keys again with it";
            field(kind.name(), "the parameters", problem)
        })
    }

    /// Refuses a column of other parameters than the set has in this version.
    ///
    /// # Errors
    /// [`FormatError::Field`].
    pub fn check_column(&self, column: &StoredColumn) -> Result<(), FormatError> {
        if column.is_of(self.params()) {
            return Ok(());
        }
        let problem = format!(
            "are not those of {} in this version: encrypt the column again with it",
            self.name
        );
        Err(field("a ring column", "the parameters", problem))
    }

    /// The set for client keys that protect something, or for those of tests, that has messages of so many bits; the smallest one.
    #[must_use]
    pub fn for_bits(bits: u32, is_insecure: bool) -> Option<&'static RingSet> {
        let sets = Self::ALL.into_iter();
        let fitting = sets.filter(|set| set.is_insecure == is_insecure && set.bits() >= bits);
        fitting.min_by_key(|set| set.bits())
    }

    /// The most bits of a message.
    #[must_use]
    pub fn bits(&self) -> u32 {
        match self.tables {
            Tables::Narrow { digits, .. } => digits.0 + digits.1,
            Tables::Wide { high, low, .. } => high.0 + high.1 + low.0 + low.1,
        }
    }

    /// The most bits of two messages of which one table takes both: of the high part of its index, then of the low one. A set of tables in one pass has
    /// none: two passes are no less than those of one table that brings the low message to its place, and of one of the sum.
    #[must_use]
    pub fn bits_of_two(&self) -> Option<[u32; 2]> {
        match self.tables {
            Tables::Narrow { .. } => None,
            Tables::Wide { high, low, .. } => Some([high.0 + high.1, low.0 + low.1]),
        }
    }

    /// The rows of a full ciphertext, N.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.degree
    }

    /// The parameters as their search has them.
    ///
    /// # Panics
    /// Never: the sets' digits and polynomials are possible ones.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let bound = (RnsParams::ENCAPSULATION_WEIGHT + 1) as f64 / 2.0;
        let (degree, doublings) = self.exponential;
        let digits = |(high, low)| Digits::new(high, low).expect("a set has digits of 1 to 4 bits");
        let exponential = Exponential::new(bound, degree, doublings);
        let exponential = exponential.expect("a set has an exponential");
        match self.tables {
            Tables::Narrow {
                digits: own,
                log2_scale,
                log2_inner,
                first_bits,
            } => Parameters::Narrow(Candidate {
                degree: self.degree,
                log2_scale,
                log2_inner,
                first_bits,
                special: self.special,
                digit_limbs: self.digit_limbs,
                stages: self.stages,
                shape: Shape {
                    digits: digits(own),
                    exponential,
                    cleanings: 1,
                },
                output_bits: self.bits(),
            }),
            Tables::Wide {
                high,
                low,
                log2_scale,
                log2_coarse,
                log2_fine,
                first_bits,
            } => Parameters::Wide(WideCandidate {
                degree: self.degree,
                log2_scale,
                log2_coarse,
                log2_fine,
                first_bits,
                special: self.special,
                digit_limbs: self.digit_limbs,
                stages: self.stages,
                shape: WideShape::of_digits(digits(high), digits(low), exponential),
                output_bits: self.bits(),
            }),
        }
    }

    /// log2 of the scale of the highest level.
    pub(crate) fn log2_scale(&self) -> f64 {
        let parameters = self.parameters();
        parameters.log2_scale_at(parameters.levels())
    }

    /// The primes.
    ///
    /// # Panics
    /// Never: the sets' primes exist.
    #[must_use]
    pub fn params(&self) -> &RnsParams {
        self.params.get_or_init(|| {
            let parameters = self.parameters();
            let found = RnsParams::search(&parameters.sizes());
            let mut params = found.expect("a set has primes");
            order_primes(&mut params, |level| parameters.log2_scale_at(level));
            params
        })
    }

    /// A context on all threads of the pool that a caller is in. Those who ask while it is in use share it.
    ///
    /// # Errors
    /// Those of [`Context::with`].
    pub fn context(&self) -> Result<Arc<Context>, RnsError> {
        let mut held = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = held.upgrade() {
            return Ok(context);
        }
        let context = Context::with(self.params().clone(), SimdLevel::best(), Threads::Pool)?;
        *held = Arc::downgrade(&context);
        Ok(context)
    }

    /// The pipeline of its tables.
    pub(crate) fn pipeline(&self, embedding: &Embedding) -> RingPipeline {
        match self.parameters() {
            Parameters::Narrow(candidate) => {
                RingPipeline::Narrow(Pipeline::new(embedding, candidate.shape, self.stages))
            }
            Parameters::Wide(candidate) => {
                RingPipeline::Wide(WidePipeline::new(embedding, candidate.shape, self.stages))
            }
        }
    }

    /// The evaluation keys that its tables need, few of them: two or three for each stage of a matrix.
    #[must_use]
    pub fn key_request(&self) -> KeyRequest {
        self.pipeline(&Embedding::new(self.degree)).key_request()
    }

    /// The variance of a table's result in turns squared, and log2 of the probability that any value of the batch is wrong, for a
    /// column whose rows have noise of this variance.
    #[must_use]
    pub fn table_noise(&self, variance: f64) -> (f64, f64) {
        stated(self.parameters().table_noise(variance.sqrt()))
    }

    /// The same for a table in the rows of a mask in the clear alone ([`Step::InRows`](crate::batch::Step::InRows)).
    #[must_use]
    pub fn table_noise_in_rows(&self, variance: f64) -> (f64, f64) {
        stated(self.parameters().table_noise_in_rows(variance.sqrt()))
    }

    /// The same for a table of two columns whose rows have noise of these variances, the high part's first ([`RingSet::bits_of_two`]), in all rows or in some.
    #[must_use]
    pub fn table_noise_of_two(&self, variances: [f64; 2], to_some_rows: bool) -> (f64, f64) {
        let inputs = variances.map(f64::sqrt);
        stated(match self.parameters() {
            Parameters::Narrow(_) => None,
            Parameters::Wide(candidate) => candidate.table_noise_of_two(inputs, to_some_rows),
        })
    }
}

/// The variance and log2 of the failure probability of a result: of one of which nothing can be said, those of any number.
fn stated(noise: Option<TableNoise>) -> (f64, f64) {
    match noise {
        Some(noise) if noise.log2_failure < 0.0 => {
            (noise.deviation * noise.deviation, noise.log2_failure)
        }
        _ => (1.0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::modulus_switch::{body_variance, pair_variance};
    use crate::samples::{GADGET, Padding, column_variance, sample_variance};
    use crate::search::{LOG2_FAILURE, largest_modulus};
    use toroid_tfhe::params::{Gadget, MESSAGE16, TINY_WOPBS};

    #[test]
    fn sets_are_found_and_judged() {
        for set in RingSet::ALL {
            assert_eq!(RingSet::by_id(set.id), Some(set));
            assert_eq!(RingSet::by_name(set.name), Some(set));
            let (log2_modulus, log2_failure) = set.parameters().judge_noise().unwrap();
            assert!(log2_failure <= LOG2_FAILURE, "{}", set.name);
            let is_secure = log2_modulus <= largest_modulus(set.degree);
            assert_eq!(is_secure, !set.is_insecure);
        }
    }

    #[test]
    fn client_keys_have_rings() {
        assert_eq!(RingSet::of_client(&MESSAGE16, None), Ok(&RING16));
        assert_eq!(RingSet::of_client(&MESSAGE16, Some(&RING8)), Ok(&RING8));
        assert_eq!(RingSet::of_client(&TINY_WOPBS, None), Ok(&TINY_RING9));
        let (ring, params) = ("ring8", TINY_WOPBS.name);
        let no_ring = NoRing::Insecure { ring, params };
        assert_eq!(RingSet::of_client(&TINY_WOPBS, Some(&RING8)), Err(no_ring));
    }

    /// A table bears columns at rest, twice such a column, and what another table has made and storing has rounded; one in two passes also
    /// a pair of fresh columns in one message, and the sum of four results.
    #[test]
    fn tables_bear_columns_at_rest() {
        for set in RingSet::ALL {
            let rest = pair_variance(set.params(), set.computed_width);
            let (result, failure) = set.table_noise(body_variance(set.seeded_width));
            assert!(failure <= LOG2_FAILURE, "{}: {failure}", set.name);
            for variance in [rest, 4.0 * rest, result + rest] {
                let (_, failure) = set.table_noise(variance);
                assert!(failure <= LOG2_FAILURE, "{}: {failure}", set.name);
            }
            // A mask in the clear costs noise, and no more of the room of what comes next.
            for variance in [rest, result + rest] {
                let (plain, _) = set.table_noise(variance);
                let (in_rows, failure) = set.table_noise_in_rows(variance);
                assert!(failure <= LOG2_FAILURE, "{}: {failure}", set.name);
                assert!(plain < in_rows && in_rows < 4.0 * plain, "{}", set.name);
            }
            if let Tables::Wide { low, .. } = set.tables {
                let up = 2.0 * f64::from(low.0 + low.1);
                let pair = (1.0 + up.exp2()) * body_variance(set.seeded_width);
                for variance in [pair, 4.0 * (result + rest)] {
                    let (_, failure) = set.table_noise(variance);
                    assert!(failure <= LOG2_FAILURE, "{}: {failure}", set.name);
                }
            }
            // Each of two columns is as if it were alone, with the messages of its part, and what a table makes of them is no worse.
            if let Some(most) = set.bits_of_two() {
                assert_eq!(most.iter().sum::<u32>(), set.bits());
                let inputs = [16.0 * (result + rest); 2];
                let (of_two, failure) = set.table_noise_of_two(inputs, false);
                assert!(failure <= LOG2_FAILURE, "{}: {failure}", set.name);
                assert!((of_two / result).log2().abs() < 1.0, "{}", set.name);
                assert_eq!(set.table_noise_of_two([1e-3, rest], false), (1.0, 0.0));
                let (in_rows, failure) = set.table_noise_of_two(inputs, true);
                assert!(failure <= LOG2_FAILURE, "{}: {failure}", set.name);
                assert!(of_two < in_rows && in_rows < 4.0 * of_two, "{}", set.name);
            }
            // Decryption would bear far more.
            let coarse = crate::modulus_switch::computed_width(set.params(), set.bits());
            assert!(coarse < set.computed_width);
        }
    }

    /// Samples of `message16` as columns: what the packing of bootstrapped ones has left is too much for tables of 16 bits. Fresh ones, and
    /// columns as samples, are not.
    #[test]
    fn tables_bear_samples_or_not() {
        let samples = &MESSAGE16;
        let fine = Gadget {
            levels: 4,
            log2_base: 11,
        };
        // docs/results/wide.md: of a bootstrap, and of packing by automorphisms.
        let packed = (-2.0f64 * 24.26).exp2() + (-2.0f64 * 25.8).exp2();
        let fresh = (2.0 * samples.log2_glwe_noise).exp2();
        for set in [&RING8, &RING12, &RING16] {
            let params = set.params();
            let bears = |gadget, variance| {
                let variance = column_variance(params, samples, gadget, Padding::Drop, variance);
                let (_, failure) = set.table_noise(variance);
                failure <= LOG2_FAILURE
            };
            assert!(bears(fine, fresh), "{}", set.name);
            assert_eq!(bears(GADGET, packed), set.bits() < 16, "{}", set.name);
            // Results that become samples can be read there.
            let rest = pair_variance(params, set.computed_width);
            let (result, _) = set.table_noise(rest);
            let back = sample_variance(params, samples, GADGET, Padding::Drop, result + rest);
            let half = (-f64::from(set.bits()) - 2.0).exp2();
            assert!(half > 14.3 * back.sqrt(), "{}", set.name);
        }
    }
}
