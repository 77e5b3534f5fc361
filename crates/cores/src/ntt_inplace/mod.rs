//! The in-place NTT and INTT.

pub(crate) mod cost;
mod plan;
#[cfg(test)]
mod tests;

pub use plan::*;

use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;

use crate::sources::design;
use crate::vectors::{Streams, Vectors};
use crate::{Core, CoreError, Cycles, Parameter, TILE_A, TILE_B, Values};
use toroid_sim::model::Design;
use toroid_sim::random::Random;
use toroid_sim::stream::Beat;

const PARAMETERS: [Parameter; 5] = [
    Parameter {
        name: "LOG_N",
        doc: "log2 of the words of a transform",
        default: 14,
        range: 3..=17,
    },
    Parameter {
        name: "LOG_LANES",
        doc: "log2 of the words of a circuit and beat, which are two a butterfly; below LOG_N and at least LOG_N / 8",
        default: 5,
        range: 2..=10,
    },
    Parameter {
        name: "CIRCUITS",
        doc: "transforms side by side, which share the twiddles",
        default: 2,
        range: 1..=8,
    },
    TILE_A,
    TILE_B,
];

/// The parameters, and the cycles by the formulas of the core's README.
pub(crate) struct Shape {
    log_n: u32,
    log_lanes: u32,
    circuits: usize,
    /// Beats of a polynomial.
    beats: u64,
    /// From a beat of a row to the first that may read its words.
    hazard: u64,
}

impl Shape {
    pub(crate) fn of(values: &Values) -> Result<Shape, CoreError> {
        let (log_n, log_lanes) = (values.get("LOG_N"), values.get("LOG_LANES"));
        if log_lanes >= log_n || log_n > 8 * log_lanes {
            return Err(CoreError::Value {
                core: "ntt_inplace",
                name: "LOG_LANES",
                expected: format!("below LOG_N = {log_n} and at least LOG_N / 8"),
                found: log_lanes,
            });
        }
        let tiles = |width: u64, name| width.div_ceil(values.get(name).max(1));
        Ok(Shape {
            log_n: log_n as u32,
            log_lanes: log_lanes as u32,
            circuits: values.get("CIRCUITS") as usize,
            beats: 1 << (log_n - log_lanes),
            hazard: 15 + tiles(64, "TILE_A") + tiles(65, "TILE_B"),
        })
    }

    /// A transform itself, until its last word is in memory.
    fn transform(&self, is_inverse: bool) -> u64 {
        transform_beats(self.log_n, self.log_lanes, is_inverse, self.hazard) + self.hazard
    }

    /// From the first beat in to the last out, both counted.
    pub(crate) fn alone(&self, is_inverse: bool) -> u64 {
        2 * self.beats + self.transform(is_inverse) + 9
    }

    /// From the first beat in to the first of the next transform.
    pub(crate) fn interval(&self, is_inverse: bool) -> u64 {
        self.beats + self.transform(is_inverse) + 1
    }

    /// The beats of a polynomial for each circuit; the user bit of those behind the first is noise at the input.
    fn stream(&self, polynomials: &[Vec<u64>], user: impl FnMut(usize) -> u64) -> Vec<Beat> {
        let lanes = 1 << self.log_lanes;
        let mut user = user;
        (0..self.beats as usize)
            .map(|beat| {
                let words: Vec<u64> = polynomials
                    .iter()
                    .flat_map(|polynomial| &polynomial[beat * lanes..][..lanes])
                    .copied()
                    .collect();
                Beat {
                    user: user(beat),
                    ..Beat::of_words(&words, 8, beat + 1 == self.beats as usize)
                }
            })
            .collect()
    }
}

/// Words on which reductions are at their ends.
const EXTREMES: [u64; 8] = [
    0,
    1,
    (1 << 32) - 1,
    1 << 32,
    P >> 1,
    P - (1 << 32),
    P - 2,
    P - 1,
];

/// The core.
pub struct NttInplace;

impl Core for NttInplace {
    fn name(&self) -> &'static str {
        "ntt_inplace"
    }

    fn summary(&self) -> &'static str {
        "negacyclic NTT and INTT modulo 2^64 - 2^32 + 1 in place, direction by the transform"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn design(&self, values: &Values) -> Result<Design, CoreError> {
        let shape = Shape::of(values)?;
        let rom = twiddle_rom(shape.log_n, shape.log_lanes)
            .map_err(|error| CoreError::Wrong(error.to_string()))?;
        let design =
            design(self.name())?.with_file("TWIDDLE_FILE", "twiddles.hex", rom.into_bytes());
        Ok(values
            .iter()
            .fold(design, |design, (name, value)| design.with(name, value)))
    }

    fn cycles(&self, values: &Values) -> Vec<Cycles> {
        let Ok(shape) = Shape::of(values) else {
            return Vec::new();
        };
        vec![
            Cycles {
                what: "NTT and INTT, first beat in to last beat out",
                formula: "3 M + NTT + INTT + 10, with M = N / 2^LOG_LANES",
                cycles: shape.interval(false) + shape.alone(true),
            },
            Cycles {
                what: "NTT itself",
                formula: "LOG_N M + bubbles + H, with H = 15 + ceil(64 / TILE_A) + ceil(65 / TILE_B)",
                cycles: shape.transform(false),
            },
            Cycles {
                what: "INTT itself",
                formula: "LOG_N M + bubbles + H",
                cycles: shape.transform(true),
            },
            Cycles {
                what: "NTT, first beat in to last beat out",
                formula: "2 M + NTT + 9",
                cycles: shape.alone(false),
            },
            Cycles {
                what: "from an NTT to the next transform",
                formula: "M + NTT + 1",
                cycles: shape.interval(false),
            },
        ]
    }

    /// An NTT and an INTT, whatever `count`: of random words in even circuits and extreme ones in odd ones, or the other
    /// way round by the seed.
    fn vectors(&self, values: &Values, _count: usize, seed: u64) -> Option<Vectors> {
        let shape = Shape::of(values).ok()?;
        let plan = NttPlan::new(1 << shape.log_n).ok()?;
        let mut random = Random::new(seed);
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for is_inverse in [false, true] {
            let mut polynomials: Vec<Vec<u64>> = (0..shape.circuits)
                .map(|circuit| {
                    let is_extreme = (circuit as u64 + seed + u64::from(is_inverse)) % 2 == 1;
                    let mut word = || match is_extreme {
                        true => EXTREMES[random.below(EXTREMES.len() as u64) as usize],
                        false => random.below(P),
                    };
                    (0..1 << shape.log_n).map(|_| word()).collect()
                })
                .collect();
            let mut noise = Random::new(seed ^ 1);
            sent.extend(shape.stream(&polynomials, |beat| match beat {
                0 => is_inverse.into(),
                _ => noise.word() & 1,
            }));
            for polynomial in &mut polynomials {
                match is_inverse {
                    true => plan.inverse(polynomial),
                    false => plan.forward(polynomial),
                }
            }
            expected.extend(shape.stream(&polynomials, |_| is_inverse.into()));
        }
        Some(Vectors::Streams(Streams {
            input: "in",
            output: "out",
            sent,
            expected,
            user_bits: 1,
            cycles: self.cycles(values).first()?.cycles,
        }))
    }

    fn is_large(&self) -> bool {
        true
    }
}
