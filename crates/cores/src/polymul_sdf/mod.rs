//! Products of polynomials by transforms with single-delay feedback.

mod plan;
#[cfg(test)]
mod tests;

pub use plan::*;

use crate::error::CoreError;
use crate::interface::{
    Configured, Core, Cycles, Given, Parameter, TILE_A, TILE_B, Timing, Values,
};
use crate::ntt_sdf::Setting;
use crate::ntt_sdf::{ARCHITECTURE, LOG_N, NARROW, REDUCTION, beats, refused, setting};
use crate::vectors::{Input, Joined, Streams, Vectors};
use toroid_sim::model::Design;
use toroid_sim::random::Random;

const PARAMETERS: [Parameter; 8] = [
    ARCHITECTURE,
    Parameter {
        name: "PARALLEL",
        doc: "1: two NTTs, the factors side by side on a and b; 0: one NTT, the factors in turn on a",
        default: 1,
        range: 0..=1,
    },
    LOG_N,
    Parameter {
        name: "Q",
        doc: "modulus, a prime that is 1 modulo 2^(LOG_N + 1)",
        default: 7_681,
        range: 11..=u64::MAX,
    },
    REDUCTION,
    TILE_A,
    TILE_B,
    NARROW,
];

/// The multiplier of a setting of the core.
///
/// # Errors
/// If the values do not go together.
pub fn plan(values: &Values) -> Result<Multiplier, CoreError> {
    Multiplier::new(setting(values), values["PARALLEL"] == 1)
        .map_err(|error| refused("polymul_sdf", &error, values))
}

/// Products back to back.
const PRODUCTS: u64 = 3;

const VARIANTS: &[Given] = &[
    &[("PARALLEL", 0), ("ARCHITECTURE", 0), ("REDUCTION", 1)],
    &[("PARALLEL", 0), ("ARCHITECTURE", 1), ("REDUCTION", 3)],
    &[("PARALLEL", 0), ("ARCHITECTURE", 2), ("REDUCTION", 2)],
    &[("PARALLEL", 1), ("ARCHITECTURE", 0), ("REDUCTION", 2)],
    &[("PARALLEL", 1), ("ARCHITECTURE", 1), ("REDUCTION", 1)],
    &[("PARALLEL", 1), ("ARCHITECTURE", 2), ("REDUCTION", 3)],
];

/// The core.
pub static CORE: Core = Core {
    variants: VARIANTS,
    is_large: true,
    ..Core::new(
        "polymul_sdf",
        "products of polynomials modulo x^N + 1 by NTTs with single-delay feedback, one or two words per cycle, without bubbles",
        &PARAMETERS,
        |values| Ok(Box::new(plan(values)?)),
    )
};

inventory::submit!(&CORE);

impl Configured for Multiplier {
    fn design(&self) -> Result<Design, CoreError> {
        Ok(Multiplier::design(self)?)
    }

    fn timing(&self) -> Timing {
        Timing {
            checked: Cycles {
                what: "three products back to back, first beat in to last beat out",
                formula: "latency + 2 intervals",
                cycles: self.pipeline() + PRODUCTS * self.interval(),
            },
            parts: vec![],
            latency: Some(Cycles {
                what: "latency, first beat in to last beat out",
                formula: "3 N / LANES - 2 + 2 (LOG_N B + R) + P, of a stage's product and sum B, canonical words R and a product of values P; without PARALLEL N / LANES more",
                cycles: self.latency(),
            }),
            interval: Some(Cycles {
                what: "from a product to the next",
                formula: "N / LANES, without PARALLEL twice that",
                cycles: self.interval(),
            }),
        }
    }

    /// Three products, whatever `count`.
    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let Setting {
            architecture,
            log_n,
            modulus,
            ..
        } = *self.forward().setting();
        let order = self.forward().coefficients();
        let lanes = architecture.log_lanes();
        let mut random = Random::new(seed);
        let (mut first, mut second, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..PRODUCTS {
            let mut factor = |more: u64| {
                let number = number.wrapping_add(seed).wrapping_add(more);
                random.words(modulus, number, 1 << log_n)
            };
            let (a, b) = (factor(0), factor(number));
            let product = self.expected(&a, &b);
            let beats = |words: &[u64]| beats(self.forward(), &order.arrange(lanes, words));
            first.extend(beats(&a));
            match self.is_parallel() {
                true => second.extend(beats(&b)),
                false => first.extend(beats(&b)),
            }
            expected.extend(beats(&product));
        }
        let bytes = first.first()?.data.len();
        Some(Vectors::Joined(Joined {
            streams: Streams {
                input: "a",
                output: "out",
                sent: first,
                expected,
                user_bits: 0,
                cycles: self.timing().checked.cycles,
            },
            others: vec![Input {
                name: "b",
                bytes,
                user_bits: 0,
                sent: second,
            }],
        }))
    }
}
