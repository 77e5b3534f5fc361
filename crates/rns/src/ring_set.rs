//! Rings by name: everything about a ring that is not secret, chosen once.
//!
//! A set fixes the pipeline of its tables, the primes, and the widths of columns at rest. These widths are wider than
//! decryption needs ([`crate::modulus_switch`]): a table squares what noise does to its selectors, so that a column at rest
//! must have less noise to be looked up than to be read. [`RingSet::table_noise`] says how much a table bears.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use toroid_ring::simd::SimdLevel;

use crate::RnsError;
use crate::context::{Context, Threads};
use crate::embedding::Embedding;
use crate::evaluation::KeyRequest;
use crate::evaluator::{lean_key_request, order_primes};
use crate::params::RnsParams;
use crate::pipeline::Pipeline;
use crate::search::{Candidate, TableNoise};
use crate::table::{Digits, Exponential, Shape};

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
    log2_scale: u32,
    special: usize,
    digit_limbs: usize,
    stages: usize,
    /// Bits of the high and of the low digit.
    digits: (u32, u32),
    /// Degree of the exponential's polynomial, and doublings.
    exponential: (usize, u32),
    params: OnceLock<RnsParams>,
    context: Mutex<Weak<Context>>,
}

/// Tables of 8 bits on 65536 numbers.
pub static RING8: RingSet = RingSet {
    id: FIRST_ID,
    name: "ring8",
    is_insecure: false,
    seeded_width: 22,
    computed_width: 28,
    degree: 1 << 16,
    log2_scale: 46,
    special: 7,
    digit_limbs: 7,
    stages: 3,
    digits: (4, 4),
    exponential: (31, 3),
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
    log2_scale: 42,
    special: 6,
    digit_limbs: 7,
    stages: 2,
    digits: (2, 2),
    exponential: (31, 3),
    params: OnceLock::new(),
    context: Mutex::new(Weak::new()),
};

impl PartialEq for RingSet {
    fn eq(&self, other: &RingSet) -> bool {
        self.id == other.id
    }
}

impl RingSet {
    /// All sets.
    pub const ALL: [&'static RingSet; 2] = [&RING8, &TINY_RING];

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
        self.digits.0 + self.digits.1
    }

    /// The rows of a full ciphertext, N.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.degree
    }

    /// The parameters as the search has them.
    ///
    /// # Panics
    /// Never: the sets' digits and polynomials are possible ones.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        let bound = (RnsParams::ENCAPSULATION_WEIGHT + 1) as f64 / 2.0;
        let (degree, doublings) = self.exponential;
        let digits = Digits::new(self.digits.0, self.digits.1);
        let exponential = Exponential::new(bound, degree, doublings);
        Candidate {
            degree: self.degree,
            log2_scale: self.log2_scale,
            first_bits: self.log2_scale,
            special: self.special,
            digit_limbs: self.digit_limbs,
            stages: self.stages,
            shape: Shape {
                digits: digits.expect("a set has digits of 1 to 4 bits"),
                exponential: exponential.expect("a set has an exponential"),
                cleanings: 1,
            },
            output_bits: self.bits(),
        }
    }

    /// log2 of a coefficient's scale.
    pub(crate) fn log2_scale(&self) -> f64 {
        f64::from(self.log2_scale)
    }

    /// The primes.
    ///
    /// # Panics
    /// Never: the sets' primes exist.
    #[must_use]
    pub fn params(&self) -> &RnsParams {
        self.params.get_or_init(|| {
            let found = RnsParams::search(&self.candidate().sizes());
            let mut params = found.expect("a set has primes");
            order_primes(&mut params, self.log2_scale());
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
    pub(crate) fn pipeline(&self, embedding: &Embedding) -> Pipeline {
        Pipeline::new(embedding, self.candidate().shape, self.stages)
    }

    /// The evaluation keys that its tables need, few of them: two or three for each stage of a matrix.
    #[must_use]
    pub fn key_request(&self) -> KeyRequest {
        lean_key_request(&self.pipeline(&Embedding::new(self.degree)))
    }

    /// The variance of a table's result in turns squared, and log2 of the probability that any value of the batch is wrong, for a
    /// column whose rows have noise of this variance.
    #[must_use]
    pub fn table_noise(&self, variance: f64) -> (f64, f64) {
        match self.candidate().table_noise(variance.sqrt()) {
            Some(TableNoise {
                deviation,
                log2_failure,
                ..
            }) if log2_failure < 0.0 => (deviation * deviation, log2_failure),
            _ => (1.0, 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::modulus_switch::{body_variance, pair_variance};
    use crate::search::{LOG2_FAILURE, largest_modulus};

    #[test]
    fn sets_are_found_and_judged() {
        for set in RingSet::ALL {
            assert_eq!(RingSet::by_id(set.id), Some(set));
            assert_eq!(RingSet::by_name(set.name), Some(set));
            let judgement = set.candidate().judge_noise().unwrap();
            assert!(judgement.log2_failure <= LOG2_FAILURE);
            let is_secure = judgement.log2_modulus <= largest_modulus(set.degree);
            assert_eq!(is_secure, !set.is_insecure);
        }
    }

    /// A table bears columns at rest, the sum of two of them, and what another table has made and storing has rounded.
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
            // Decryption would bear far more.
            let coarse = crate::modulus_switch::computed_width(set.params(), set.bits());
            assert!(coarse < set.computed_width);
        }
    }
}
