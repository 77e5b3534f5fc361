//! The elastic NTT.

pub(crate) mod cost;
mod plan;
#[cfg(test)]
mod tests;

pub use plan::*;

use crate::cost::Figures;
use crate::error::CoreError;
use crate::interface::{
    Configured, Core, Cycles, Family, Given, PaperRow, Parameter, TILE_A, TILE_B, Timing, Values,
};
use crate::technology::Technology;
use crate::transform;
use crate::vectors::{Input, Joined, Streams, Vectors};
use toroid_sim::model::Design;
use toroid_sim::random::Random;

const PARAMETERS: [Parameter; 4] = [
    Parameter {
        name: "LOG_LANES",
        doc: "log2 of the words of a beat; transforms have LANES^2 * 4 to LANES^3 words",
        default: 4,
        range: 2..=5,
    },
    Parameter {
        name: "WORD",
        doc: "every modulus is 1 modulo 2^WORD",
        default: 10,
        range: 4..=21,
    },
    TILE_A,
    TILE_B,
];

/// The plan of a setting of the core.
///
/// # Errors
/// If the values do not go together.
pub fn plan(values: &Values) -> Result<Plan, CoreError> {
    let setting = Setting {
        log_lanes: values["LOG_LANES"] as u32,
        word: values["WORD"] as u32,
        tiles: (values["TILE_A"] as u32, values["TILE_B"] as u32),
    };
    Plan::new(setting).map_err(|error| {
        let (name, expected) = match error {
            ElasticError::Tiles { operand, least, .. } => (operand, format!("at least {least}")),
            ElasticError::Word { largest, .. } => ("WORD", format!("from 4 to {largest}")),
            ElasticError::Lanes(_) => ("LOG_LANES", PARAMETERS[0].expectation()),
            // What no value of a parameter leads to.
            error => return CoreError::Wrong(format!("ntt_elastic: {error}")),
        };
        CoreError::Value {
            core: "ntt_elastic",
            name,
            expected,
            found: values[name],
        }
    })
}

/// Vectors of a sequence of transforms of random words, extreme ones among them.
///
/// # Errors
/// If the core has not one of the transforms.
pub fn vectors(
    plan: &Plan,
    sequence: &[Transform],
    random: &mut Random,
) -> Result<Joined, ElasticError> {
    let mut sent_factors = plan.factors(sequence)?;
    let mut noise = Random::new(random.word());
    // Only the first beat of a preamble or of a transform says which it is.
    let mut at = 0;
    let lengths = sequence.iter().map(|one| plan.beats(one.log_n));
    for length in std::iter::once(plan.preamble()).chain(lengths) {
        for beat in &mut sent_factors[at + 1..at + length as usize] {
            beat.user = noise.below(2);
        }
        at += length as usize;
    }
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    for one in sequence {
        let kind = random.below(4);
        let words = random.words(one.q, kind, 1 << one.log_n);
        for (beat, row) in plan.input(one, &words).into_iter().enumerate() {
            // Only the first beat says what the transform is.
            let noise = noise.below(1 << plan.user_bits());
            sent.push(if beat == 0 { row } else { row.with_user(noise) });
        }
        expected.extend(plan.output(one, &plan.expected(one, &words)));
    }
    let streams = Streams {
        input: "in",
        output: "out",
        sent,
        expected,
        user_bits: plan.user_bits(),
        cycles: plan.cycles(sequence),
    };
    let factors = Input {
        name: "factor",
        bytes: 16,
        user_bits: 1,
        sent: sent_factors,
    };
    Ok(Joined {
        streams,
        others: vec![factors],
    })
}

// The fewest lanes and the most, the least word and the greatest, tiles of another family.
const VARIANTS: &[Given] = &[
    &[("LOG_LANES", 2), ("WORD", 4)],
    &[("LOG_LANES", 2), ("WORD", 21)],
    &[
        ("LOG_LANES", 2),
        ("TILE_A", 18),
        ("TILE_B", 18),
        ("WORD", 6),
    ],
    &[("LOG_LANES", 5), ("WORD", 8)],
];

/// The paper's implementation, of 16 lanes.
pub const PAPER: PaperRow = PaperRow {
    source: "Z. Guan et al., ESC-NTT, Alveo U280, 16 lanes",
    lut: 523_000.0,
    ff: 1_478_000.0,
    dsp: 6518.0,
    // 1,237.5 KB
    ramb36: 275.0,
};

/// The core.
pub static CORE: Core = Core {
    variants: VARIANTS,
    is_large: true,
    paper: Some(PAPER),
    family: Some(Family {
        settings: cost::settings,
        samples: cost::samples,
        large_samples: cost::large_samples,
    }),
    ..Core::new(
        "ntt_elastic",
        "NTT, INTT and negacyclic ones modulo primes up to 64 bits, length, modulus and kind by the transform, without bubbles",
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
        let log_n = *self.log_n().end();
        Timing {
            checked: Cycles {
                what: "a transform of each kind, the longest and the shortest in turn, back to back, first beat in to last beat out",
                formula: "beats of all and latency - N / LANES of the longest",
                cycles: self.cycles(&sequence(self, 1)),
            },
            parts: vec![],
            latency: Some(Cycles {
                what: "latency of the longest, first beat in to last beat out",
                formula: "2 N / LANES + (3 log2(LANES) + 2) P + 2 log2(LANES) + 6, of a product P",
                cycles: self.latency(log_n),
            }),
            interval: Some(Cycles {
                what: "from a transform to the next",
                formula: "N / LANES",
                cycles: self.beats(log_n),
            }),
        }
    }

    fn structure(&self) -> Vec<String> {
        let (lanes, mul) = (self.lanes(), self.mul_latency());
        let log_lanes = u64::from(self.setting().log_lanes);
        let unit = log_lanes * (mul + 1);
        vec![
            "two registers of the input: 2 cycles".to_owned(),
            format!(
                "a transform over the lanes, {log_lanes} stages of {} butterflies: {unit} cycles",
                lanes / 2
            ),
            format!(
                "until the powers of the lanes are made, {} products deep: {} cycles",
                log_lanes + 1,
                mul - log_lanes
            ),
            format!("a product in each lane: {mul} cycles"),
            format!(
                "{lanes} banks of {} words, between two rotations: 4 cycles, and N / LANES - N2 + 1 until the words are there",
                2 * lanes * lanes
            ),
            format!("transforms of N2 words over the lanes: {unit} cycles"),
            format!(
                "delay commutators of 1 to {} beats: {} cycles",
                lanes / 2,
                lanes - 1
            ),
            format!("a transform over the lanes: {unit} cycles"),
        ]
    }

    /// A transform of each kind, whatever `count`.
    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let sequence = sequence(self, seed);
        vectors(self, &sequence, &mut Random::new(seed))
            .ok()
            .map(Vectors::Joined)
    }

    fn cost(
        &self,
        technology: Technology,
        transform: Option<&transform::Transform>,
    ) -> Option<Figures> {
        cost::figures(self, technology, transform)
    }
}

/// A transform of each kind and a random modulus, the longest and the shortest in turn.
fn sequence(plan: &Plan, seed: u64) -> Vec<Transform> {
    let mut random = Random::new(seed);
    let range = plan.log_n();
    let one = |(i, mode): (usize, Mode)| {
        let log_n = if i.is_multiple_of(2) {
            *range.end()
        } else {
            *range.start()
        };
        let mode = Mode::ALL[(mode as usize + i / 2) % 4];
        plan.draw_as(mode, log_n, &mut random)
    };
    Mode::ALL.into_iter().enumerate().map(one).collect()
}
