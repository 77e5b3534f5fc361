//! The NTT and INTT by single-delay feedback.

pub(crate) mod cost;
mod plan;
#[cfg(test)]
pub(crate) mod tests;

pub use plan::*;

use crate::arithmetic::Reduction;
use crate::arithmetic::nearest_primes;
use crate::cost::Figures;
use crate::error::CoreError;
use crate::interface::{
    Configured, Core, Cycles, Family, Given, Parameter, TILE_A, TILE_B, Timing, Values,
};
use crate::setting::SettingError;
use crate::technology::Technology;
use crate::transform::Transform;
use crate::vectors::{Streams, Vectors};
use toroid_sim::model::Design;
use toroid_sim::random::Random;
use toroid_sim::stream::Beat;

pub(crate) const ARCHITECTURE: Parameter = Parameter {
    name: "ARCHITECTURE",
    doc: "0: R2SDF; 1: R2^2SDF; 2: Modr2, two words per cycle",
    default: 2,
    range: 0..=2,
};

pub(crate) const LOG_N: Parameter = Parameter {
    name: "LOG_N",
    doc: "log2 of the words of a polynomial",
    default: 8,
    range: 2..=15,
};

pub(crate) const REDUCTION: Parameter = Parameter {
    name: "REDUCTION",
    doc: "of products: 0 at the least cost; 1 by Q = 2^i - 2^j + 1, j < i - 1; 2 Montgomery's; 3 Barrett's",
    default: 0,
    range: 0..=3,
};

pub(crate) const NARROW: Parameter = Parameter {
    name: "NARROW",
    doc: "modulo 2^i - 2^j + 1 up to 34 bits, a rest of up to this many bits beside the tiles of a product is multiplied in look-up tables",
    default: 3,
    range: 0..=16,
};

const PARAMETERS: [Parameter; 10] = [
    ARCHITECTURE,
    LOG_N,
    Parameter {
        name: "Q",
        doc: "modulus, a prime that is 1 modulo 2^(LOG_N + 1), or modulo 2^LOG_N if CYCLIC",
        default: 7_681,
        range: 11..=u64::MAX,
    },
    REDUCTION,
    Parameter {
        name: "INVERSE",
        doc: "0: NTT; 1: INTT, divided by N",
        default: 0,
        range: 0..=1,
    },
    Parameter {
        name: "CYCLIC",
        doc: "0: modulo x^N + 1; 1: modulo x^N - 1",
        default: 0,
        range: 0..=1,
    },
    Parameter {
        name: "NATURAL",
        doc: "the order of values: 0 bit-reversed, which is free; 1 natural. Coefficients are in natural order, of Modr2 word i beside word i + N / 2",
        default: 0,
        range: 0..=1,
    },
    TILE_A,
    TILE_B,
    NARROW,
];

/// What the parameters say, also of `polymul_sdf`, which has neither INVERSE, CYCLIC nor NATURAL.
pub(crate) fn setting(values: &Values) -> Setting {
    let is_set = |name| values.get(name) == Some(1);
    Setting {
        architecture: Architecture::ALL[values["ARCHITECTURE"] as usize],
        log_n: values["LOG_N"] as u32,
        modulus: values["Q"],
        reduction: match values["REDUCTION"] {
            1 => Some(Reduction::Solinas),
            2 => Some(Reduction::Montgomery),
            3 => Some(Reduction::Barrett),
            _ => None,
        },
        is_inverse: is_set("INVERSE"),
        is_cyclic: is_set("CYCLIC"),
        is_natural: is_set("NATURAL"),
        tiles: (values["TILE_A"] as u32, values["TILE_B"] as u32),
        narrow: values["NARROW"] as u32,
    }
}

/// The plan of a setting of the core.
///
/// # Errors
/// If the values do not go together.
pub fn plan(values: &Values) -> Result<Plan, CoreError> {
    Plan::new(setting(values)).map_err(|error| refused("ntt_sdf", &error, values))
}

pub(crate) fn refused(core: &'static str, error: &SettingError, values: &Values) -> CoreError {
    let (name, expected) = match error {
        SettingError::Modulus { modulus, order, .. } => {
            let nearest = nearest_primes(*modulus, *order);
            (
                "Q",
                format!("a prime of 4 to 64 bits that is 1 modulo {order}, as {nearest}"),
            )
        }
        SettingError::Form => (
            "REDUCTION",
            "0, 2 or 3 for a Q that is not 2^i - 2^j + 1 with j < i - 1".to_owned(),
        ),
        SettingError::Length(_) => ("LOG_N", LOG_N.expectation()),
        // What no value of a parameter leads to.
        error => return CoreError::Wrong(format!("{core}: {error}")),
    };
    CoreError::Value {
        core,
        name,
        expected,
        found: values[name],
    }
}

/// Polynomials back to back.
const POLYNOMIALS: usize = 4;

/// The beats of a polynomial, in the order of the stream.
pub(crate) fn beats(plan: &Plan, words: &[u64]) -> Vec<Beat> {
    let lanes = 1 << plan.setting().architecture.log_lanes();
    let bytes = plan.bits().div_ceil(8) as usize;
    let chunks = words.chunks(lanes).enumerate();
    let beat = |(beat, words): (usize, &[u64])| {
        Beat::of_words(words, bytes, beat as u64 + 1 == plan.beats())
    };
    chunks.map(beat).collect()
}

// Solinas' form, Montgomery's reduction, Barrett's: 1, 2, 3.
const VARIANTS: &[Given] = &[
    &[("ARCHITECTURE", 0), ("REDUCTION", 1), ("LOG_N", 4)],
    &[
        ("ARCHITECTURE", 0),
        ("REDUCTION", 2),
        ("INVERSE", 1),
        ("NATURAL", 1),
    ],
    &[("ARCHITECTURE", 0), ("REDUCTION", 3), ("NATURAL", 1)],
    &[("ARCHITECTURE", 1), ("REDUCTION", 1), ("NATURAL", 1)],
    &[("ARCHITECTURE", 1), ("REDUCTION", 2), ("LOG_N", 3)],
    &[("ARCHITECTURE", 1), ("REDUCTION", 3), ("INVERSE", 1)],
    &[
        ("ARCHITECTURE", 2),
        ("REDUCTION", 1),
        ("INVERSE", 1),
        ("NATURAL", 1),
    ],
    &[("ARCHITECTURE", 2), ("REDUCTION", 2), ("NATURAL", 1)],
    &[("ARCHITECTURE", 2), ("REDUCTION", 3), ("LOG_N", 2)],
    // The narrowest modulus, and the widest of its form.
    &[
        ("ARCHITECTURE", 0),
        ("Q", 13),
        ("CYCLIC", 1),
        ("LOG_N", 2),
        ("REDUCTION", 1),
    ],
    &[
        ("ARCHITECTURE", 1),
        ("Q", 18_446_744_069_414_584_321),
        ("INVERSE", 1),
    ],
];

/// The core.
pub static CORE: Core = Core {
    variants: VARIANTS,
    is_large: true,
    family: Some(Family {
        settings: cost::settings,
        samples: cost::samples,
        large_samples: |_| Vec::new(),
    }),
    ..Core::new(
        "ntt_sdf",
        "NTT or INTT modulo a prime up to 64 bits by single-delay feedback, one or two words per cycle, without bubbles",
        &PARAMETERS,
        |values| Ok(Box::new(plan(values)?)),
    )
};

inventory::submit!(&CORE);

impl Configured for Plan {
    fn design(&self) -> Result<Design, CoreError> {
        Ok(Plan::design(self)?)
    }

    fn timing(&self) -> Timing {
        Timing {
            checked: Cycles {
                what: "four transforms back to back, first beat in to last beat out",
                formula: "latency + 3 N / LANES",
                cycles: self.pipeline() + POLYNOMIALS as u64 * self.beats(),
            },
            parts: vec![],
            latency: Some(Cycles {
                what: "latency, first beat in to last beat out",
                formula: "2 N / LANES - 1 + LOG_N B + R + E, of a stage's product and sum B, canonical words R and a permutation E",
                cycles: Plan::latency(self),
            }),
            interval: Some(Cycles {
                what: "from a transform to the next",
                formula: "N / LANES",
                cycles: self.beats(),
            }),
        }
    }

    /// Four transforms, whatever `count`.
    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let Setting {
            architecture,
            log_n,
            modulus,
            is_inverse,
            ..
        } = *self.setting();
        let (input, output) = match is_inverse {
            false => (self.coefficients(), self.values()),
            true => (self.values(), self.coefficients()),
        };
        let lanes = architecture.log_lanes();
        let mut random = Random::new(seed);
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for number in 0..POLYNOMIALS as u64 {
            let words = random.words(modulus, number.wrapping_add(seed), 1 << log_n);
            sent.extend(beats(self, &input.arrange(lanes, &words)));
            expected.extend(beats(self, &output.arrange(lanes, &self.expected(&words))));
        }
        Some(Vectors::Streams(Streams {
            input: "in",
            output: "out",
            sent,
            expected,
            user_bits: 0,
            cycles: self.timing().checked.cycles,
        }))
    }

    fn cost(&self, technology: Technology, _transform: Option<&Transform>) -> Option<Figures> {
        cost::figures(self, technology)
    }
}
