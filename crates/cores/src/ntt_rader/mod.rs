//! The discrete Fourier transform of lengths that are products of 3, 5, 17 and 257.

pub(crate) mod cost;
mod plan;
#[cfg(test)]
mod tests;

pub use plan::*;

use toroid_ring::cyclotomic::CyclotomicRing;

use crate::cost::Figures;
use crate::error::CoreError;
use crate::interface::{
    Configured, Core, Cycles, Family, Given, PaperRow, Parameter, TILE_A, TILE_B, Timing, Values,
};
use crate::technology::Technology;
use crate::transform::Transform;
use crate::vectors::{Streams, Vectors};
use toroid_sim::model::Design;
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_sim::stream::{Beat, Sink, Source, transfer};

const PARAMETERS: [Parameter; 4] = [
    Parameter {
        name: "M",
        doc: "points, a product of two or more of 3, 5, 17 and 257",
        default: 21845,
        range: 15..=65535,
    },
    Parameter {
        name: "Q",
        doc: "modulus, a prime below 2^32 that is 1 modulo 256 M",
        default: 4_244_570_881,
        range: 257..=u32::MAX as u64,
    },
    TILE_A,
    TILE_B,
];

/// The plan of a setting of the core.
///
/// # Errors
/// If the values do not go together.
pub fn plan(values: &Values) -> Result<Plan, CoreError> {
    Plan::new(values["M"], values["Q"]).map_err(|error| {
        let refused = |name, expected| CoreError::Value {
            core: "ntt_rader",
            name,
            expected,
            found: values[name],
        };
        match error {
            SettingError::Modulus { order, .. } => {
                let least = least_modulus(values["M"]);
                let hint = least.map_or_else(|_| String::new(), |q| format!(", for example {q}"));
                refused(
                    "Q",
                    format!("a prime below 2^32 that is 1 modulo {order}{hint}"),
                )
            }
            _ => refused(
                "M",
                "a product of two or more different primes of 3, 5, 17 and 257".to_owned(),
            ),
        }
    })
}

/// The words of beats.
fn words(beats: &[Beat]) -> Vec<u32> {
    let words = beats.iter().flat_map(|beat| beat.words(4));
    words.map(|word| word as u32).collect()
}

/// Transforms of a row of vectors: both directions, and both changes of direction.
const DIRECTIONS: [bool; 4] = [false, true, true, false];

const VARIANTS: &[Given] = &[
    &[("M", 15), ("Q", 7681)],
    &[
        ("M", 15),
        ("Q", 4_294_928_641),
        ("TILE_A", 18),
        ("TILE_B", 18),
    ],
    &[("M", 255), ("Q", 783_361)],
];

/// The paper's implementation.
pub const PAPER: PaperRow = PaperRow {
    source: "Du Pont, prime-factor and Rader NTT for BGV, Alveo U250, m = 21845",
    lut: 224_074.0,
    ff: 179_900.0,
    dsp: 1024.0,
    ramb36: 300.0,
};

/// The core.
pub static CORE: Core = Core {
    variants: VARIANTS,
    is_large: true,
    paper: Some(PAPER),
    family: Some(Family {
        settings: cost::settings,
        samples: cost::samples,
        large_samples: |_| Vec::new(),
    }),
    ..Core::new(
        "ntt_rader",
        "DFT of 21845 points and its like modulo 32-bit primes, by prime factors and Rader, direction by the transform",
        &PARAMETERS,
        |values| {
            Ok(Box::new(Tiled {
                plan: plan(values)?,
                tiles: (values["TILE_A"] as u32, values["TILE_B"] as u32),
            }))
        },
    )
};

inventory::submit!(&CORE);

/// A plan, and the bits of both operands of a DSP tile.
pub(crate) struct Tiled {
    pub plan: Plan,
    pub tiles: (u32, u32),
}

impl Configured for Tiled {
    fn design(&self) -> Result<Design, CoreError> {
        Ok(self.plan.design(self.tiles)?)
    }

    fn timing(&self) -> Timing {
        let Tiled { plan, .. } = self;
        let more = DIRECTIONS.len() as u64 - 1;
        Timing {
            checked: Cycles {
                what: "four transforms back to back, first beat in to last beat out",
                formula: "alone + 3 interval",
                cycles: plan.alone() + more * plan.interval(),
            },
            parts: vec![Cycles {
                what: "computing",
                formula: "interval + 22",
                cycles: plan.computing(),
            }],
            latency: Some(Cycles {
                what: "alone, first beat in to last beat out",
                formula: "2 C + computing + 9, of C = M / P beats, P the greatest prime",
                cycles: plan.alone(),
            }),
            interval: Some(Cycles {
                what: "interval, from a transform to the next",
                formula: "17 ceil(C / 17) 2 log2(P - 1) + 2 S, of a program of S steps",
                cycles: plan.interval(),
            }),
        }
    }

    /// Four transforms of random or extreme words, whatever `count`.
    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let Tiled { plan, .. } = self;
        let q = u64::from(plan.dft().modulus());
        let mut random = Random::new(seed);
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for (i, is_inverse) in DIRECTIONS.into_iter().enumerate() {
            let words = random.words(q, (i as u64).wrapping_add(seed), plan.dft().length());
            let words: Vec<u32> = words.into_iter().map(|word| word as u32).collect();
            let results = plan.expected(is_inverse, &words);
            // Only the first beat says what the transform is.
            let mut noise = Random::new(seed ^ i as u64);
            let user = |beat| {
                if beat == 0 {
                    is_inverse.into()
                } else {
                    noise.word() & 1
                }
            };
            sent.extend(plan.beats(&words, user));
            expected.extend(plan.beats(&results, |_| is_inverse.into()));
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

    fn cost(&self, technology: Technology, _transform: Option<&Transform>) -> Option<Figures> {
        cost::figures(self, technology)
    }
}

/// A product of two elements, and what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Its coefficients, lowest first.
    pub words: Vec<u32>,
    /// Cycles from the first beat of the factors in to the last beat of the inverse transform out, both counted.
    pub cycles: u64,
}

impl Plan {
    /// The product of two elements of the ring of BGV, Z_q\[x\]/Φ_m(x), whose three transforms `simulation` computes: a
    /// model of `ntt_rader` with this length and modulus, after a reset or idle. The factors enter in turn.
    /// Once all their values at the m-th roots of unity are there, the library multiplies them, which takes no cycles, and
    /// of what the inverse transform gives it takes the remainder modulo Φ_m.
    ///
    /// # Errors
    /// If the model has not the ports of the core, stops, breaks the protocol or gives too few beats.
    ///
    /// # Panics
    /// If `a` or `b` does not have φ(m) words, or the model is of another length.
    pub fn multiply(
        &self,
        simulation: &mut Simulation,
        a: &[u32],
        b: &[u32],
    ) -> Result<Product, CoreError> {
        let ring = CyclotomicRing::with_plan(self.dft().clone())
            .map_err(|error| CoreError::Wrong(error.to_string()))?;
        let mut source = Source::new(simulation, "in", 0.0, 1)?;
        let mut sink = Sink::new(simulation, "out", 0.0, 1)?;
        let limit = 4 * self.alone();
        for factor in [a, b] {
            assert_eq!(
                factor.len(),
                ring.degree(),
                "expected the words of an element"
            );
            let mut words = factor.to_vec();
            words.resize(ring.index(), 0);
            source.extend(self.beats(&words, |_| 0));
        }
        // Behind a reset, the first beat waits.
        let mut begin = simulation.cycles();
        for _ in 0..limit {
            begin = simulation.cycles();
            simulation.cycle(&mut [&mut source, &mut sink])?;
            if source.sent() > 0 {
                break;
            }
        }
        transfer(simulation, &mut source, &mut sink, 2 * self.words(), limit)?;
        let values = words(&sink.take());
        let (first, second) = values.split_at(ring.index());
        let mut products = first.to_vec();
        self.dft().mul_assign(&mut products, second);
        source.extend(self.beats(&products, |_| 1));
        transfer(simulation, &mut source, &mut sink, self.words(), limit)?;
        Ok(Product {
            words: ring.reduce(&words(sink.received())),
            cycles: simulation.cycles() - begin,
        })
    }

    /// The transform by the library, the inverse divided by m.
    ///
    /// # Panics
    /// If these are not m words.
    pub fn expected(&self, is_inverse: bool, words: &[u32]) -> Vec<u32> {
        let dft = self.dft();
        let mut results = words.to_vec();
        let mut scratch = vec![0; dft.scratch_len()];
        if is_inverse {
            dft.inverse(&mut results, &mut scratch);
            dft.scale_assign(&mut results, dft.inverse_length());
        } else {
            dft.forward(&mut results, &mut scratch);
        }
        results
    }

    /// The words of a transform as beats, each with what `user` says of it.
    pub fn beats(&self, words: &[u32], user: impl FnMut(usize) -> u64) -> Vec<Beat> {
        let mut user = user;
        let beat = |(beat, words): (usize, &[u32])| {
            let words: Vec<u64> = words.iter().map(|&word| word.into()).collect();
            Beat::of_words(&words, 4, beat + 1 == self.words()).with_user(user(beat))
        };
        words.chunks(self.columns()).enumerate().map(beat).collect()
    }
}
