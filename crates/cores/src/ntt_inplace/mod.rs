//! The in-place NTT and INTT.

pub(crate) mod cost;
mod plan;
#[cfg(test)]
mod tests;

pub use plan::*;

use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;

use crate::cost::Figures;
use crate::error::CoreError;
use crate::interface::{
    Configured, Core, Cycles, Family, Parameter, TILE_A, TILE_B, Timing, Values,
};
use crate::sources::design;
use crate::technology::Technology;
use crate::transform::Transform;
use crate::vectors::{Streams, Vectors};
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
    pub log_n: u32,
    pub log_lanes: u32,
    pub circuits: usize,
    /// Bits of both operands of a DSP tile.
    pub tiles: (u64, u64),
    /// Beats of a polynomial.
    beats: u64,
    /// From a beat of a row to the first that may read its words.
    hazard: u64,
}

impl Shape {
    pub(crate) fn of(values: &Values) -> Result<Shape, CoreError> {
        let (log_n, log_lanes) = (values["LOG_N"], values["LOG_LANES"]);
        if log_lanes >= log_n || log_n > 8 * log_lanes {
            return Err(CoreError::Value {
                core: "ntt_inplace",
                name: "LOG_LANES",
                expected: format!("below LOG_N = {log_n} and at least LOG_N / 8"),
                found: log_lanes,
            });
        }
        let tiles = (values["TILE_A"], values["TILE_B"]);
        Ok(Shape {
            log_n: log_n as u32,
            log_lanes: log_lanes as u32,
            circuits: values["CIRCUITS"] as usize,
            beats: 1 << (log_n - log_lanes),
            hazard: 15 + 64u64.div_ceil(tiles.0) + 65u64.div_ceil(tiles.1),
            tiles,
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

    /// The beats of a polynomial for each circuit; the user bit of those after the first is noise at the input.
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
pub static CORE: Core = Core {
    is_large: true,
    family: Some(Family {
        settings: cost::settings,
        samples: cost::samples,
        large_samples: |_| Vec::new(),
    }),
    ..Core::new(
        "ntt_inplace",
        "negacyclic NTT and INTT modulo 2^64 - 2^32 + 1 in place, direction by the transform",
        &PARAMETERS,
        |values| Ok(Box::new(Shape::of(values)?)),
    )
};

inventory::submit!(&CORE);

impl Configured for Shape {
    fn design(&self) -> Result<Design, CoreError> {
        let rom = twiddle_rom(self.log_n, self.log_lanes)
            .map_err(|error| CoreError::Wrong(error.to_string()))?;
        let design =
            design("ntt_inplace")?.with_file("TWIDDLE_FILE", "twiddles.hex", rom.into_bytes());
        Ok(design
            .with("CIRCUITS", self.circuits as u64)
            .with("LOG_LANES", self.log_lanes)
            .with("LOG_N", self.log_n)
            .with("TILE_A", self.tiles.0)
            .with("TILE_B", self.tiles.1))
    }

    fn timing(&self) -> Timing {
        Timing {
            checked: Cycles {
                what: "NTT and INTT, first beat in to last beat out",
                formula: "3 M + NTT + INTT + 10, with M = N / 2^LOG_LANES",
                cycles: self.interval(false) + self.alone(true),
            },
            parts: vec![
                Cycles {
                    what: "NTT itself",
                    formula: "LOG_N M + bubbles + H, with H = 15 + ceil(64 / TILE_A) + ceil(65 / TILE_B)",
                    cycles: self.transform(false),
                },
                Cycles {
                    what: "INTT itself",
                    formula: "LOG_N M + bubbles + H",
                    cycles: self.transform(true),
                },
            ],
            latency: Some(Cycles {
                what: "NTT, first beat in to last beat out",
                formula: "2 M + NTT + 9",
                cycles: self.alone(false),
            }),
            interval: Some(Cycles {
                what: "from an NTT to the next transform",
                formula: "M + NTT + 1",
                cycles: self.interval(false),
            }),
        }
    }

    /// An NTT and an INTT, whatever `count`: of random words in even circuits and extreme ones in odd ones, or the other
    /// way round by the seed.
    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let plan = NttPlan::new(1 << self.log_n).ok()?;
        let mut random = Random::new(seed);
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for is_inverse in [false, true] {
            let mut polynomials: Vec<Vec<u64>> = (0..self.circuits)
                .map(|circuit| {
                    let is_extreme = (circuit as u64 + seed + u64::from(is_inverse)) % 2 == 1;
                    let mut word = || match is_extreme {
                        true => EXTREMES[random.below(EXTREMES.len() as u64) as usize],
                        false => random.below(P),
                    };
                    (0..1 << self.log_n).map(|_| word()).collect()
                })
                .collect();
            let mut noise = Random::new(seed ^ 1);
            sent.extend(self.stream(&polynomials, |beat| match beat {
                0 => is_inverse.into(),
                _ => noise.word() & 1,
            }));
            for polynomial in &mut polynomials {
                match is_inverse {
                    true => plan.inverse(polynomial),
                    false => plan.forward(polynomial),
                }
            }
            expected.extend(self.stream(&polynomials, |_| is_inverse.into()));
        }
        Some(Vectors::Streams(Streams {
            input: "in",
            output: "out",
            sent,
            expected,
            user_bits: 1,
            cycles: self.timing().checked.cycles,
        }))
    }

    fn cost(&self, technology: Technology, transform: Option<&Transform>) -> Option<Figures> {
        cost::figures(self, technology, transform)
    }
}
