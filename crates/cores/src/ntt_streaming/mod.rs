//! The streaming NTT and INTT.

pub(crate) mod cost;
mod plan;
#[cfg(test)]
mod tests;

pub use plan::*;

use crate::arithmetic::{Reduction, nearest_primes};
use crate::cost::Figures;
use crate::error::CoreError;
use crate::interface::{
    Configured, Core, Cycles, Family, Given, Parameter, TILE_A, TILE_B, Timing, Values,
};
use crate::order::Order;
use crate::setting::SettingError;
use crate::technology::Technology;
use crate::transform::Transform;
use crate::vectors::{Streams, Vectors};
use toroid_sim::model::Design;
use toroid_sim::random::Random;
use toroid_sim::stream::Beat;

const ORDER: &str = "0 natural, 1 bit-reversed, 2 its halves side by side, each natural";

const PARAMETERS: [Parameter; 15] = [
    Parameter {
        name: "LOG_N",
        doc: "log2 of the words of a transform",
        default: 10,
        range: 2..=15,
    },
    Parameter {
        name: "LOG_LANES",
        doc: "log2 of the words of a beat, at most LOG_N",
        default: 5,
        range: 1..=7,
    },
    Parameter {
        name: "Q",
        doc: "modulus, a prime that is 1 modulo 2^(LOG_N + 1), or modulo 2^LOG_N if CYCLIC; of the form 2^i - 2^j + 1 it costs least",
        default: 268_369_921,
        range: 11..=u64::MAX,
    },
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
        name: "IN_ORDER",
        doc: ORDER,
        default: 0,
        range: 0..=2,
    },
    Parameter {
        name: "OUT_ORDER",
        doc: ORDER,
        default: 1,
        range: 0..=2,
    },
    Parameter {
        name: "FEEDBACK",
        doc: "1: stages that pair words of different beats have LANES butterflies, not LANES / 2, and natural order on one side, bit-reversed on the other take the least latency; 0: halves side by side do",
        default: 0,
        range: 0..=1,
    },
    Parameter {
        name: "LOG_N_MIN",
        doc: "log2 of the words of the shortest transform, which tuser chooses; 0: LOG_N",
        default: 0,
        range: 0..=15,
    },
    Parameter {
        name: "Q_2",
        doc: "a second modulus, which tuser chooses; 0: none",
        default: 0,
        range: 0..=u64::MAX,
    },
    Parameter {
        name: "Q_3",
        doc: "a third modulus; 0: none",
        default: 0,
        range: 0..=u64::MAX,
    },
    Parameter {
        name: "Q_4",
        doc: "a fourth modulus; 0: none",
        default: 0,
        range: 0..=u64::MAX,
    },
    TILE_A,
    TILE_B,
    Parameter {
        name: "NARROW",
        doc: "modulo 2^i - 2^j + 1 up to 34 bits, a rest of up to this many bits beside the tiles of a product is multiplied in look-up tables",
        default: 3,
        range: 0..=16,
    },
];

/// The plan of a setting of the core.
///
/// # Errors
/// If the values do not go together.
pub fn plan(values: &Values) -> Result<Plan, CoreError> {
    let others = ["Q_2", "Q_3", "Q_4"].map(|name| values[name]);
    let moduli = std::iter::once(values["Q"]).chain(others.into_iter().filter(|q| *q != 0));
    let log_n = values["LOG_N"] as u32;
    let setting = Setting {
        log_n,
        log_n_min: match values["LOG_N_MIN"] {
            0 => log_n,
            log_n_min => log_n_min as u32,
        },
        log_lanes: values["LOG_LANES"] as u32,
        moduli: moduli.collect(),
        is_inverse: values["INVERSE"] == 1,
        is_cyclic: values["CYCLIC"] == 1,
        input: Order::ALL[values["IN_ORDER"] as usize],
        output: Order::ALL[values["OUT_ORDER"] as usize],
        has_feedback: values["FEEDBACK"] == 1,
        tiles: (values["TILE_A"] as u32, values["TILE_B"] as u32),
        narrow: values["NARROW"] as u32,
        reduction: None,
    };
    Plan::new(setting).map_err(|error| refused(&error, values))
}

fn refused(error: &SettingError, values: &Values) -> CoreError {
    let (name, expected) = match error {
        SettingError::Modulus { number, modulus, order } => {
            let nearest = nearest_primes(*modulus, *order);
            // Those that are 0 are none.
            let given = ["Q", "Q_2", "Q_3", "Q_4"].into_iter().filter(|name| values[name] != 0);
            let name = given.clone().nth(*number).unwrap_or("Q");
            (name, format!("a prime of 4 to 64 bits that is 1 modulo {order}, as {nearest}"))
        }
        SettingError::Orders => (
            "IN_ORDER",
            "2 with OUT_ORDER = 1, or 1 with OUT_ORDER = 2, and no FEEDBACK, where tuser chooses degrees or moduli".to_owned(),
        ),
        SettingError::Size { lanes, shortest, longest } => {
            match lanes > longest || shortest == longest {
                true => ("LOG_LANES", format!("at most LOG_N = {longest}")),
                false => ("LOG_N_MIN", format!("from LOG_LANES = {lanes} to LOG_N = {longest}")),
            }
        }
        SettingError::Length(_) => ("LOG_N", PARAMETERS[0].expectation()),
        // What no value of a parameter leads to.
        error => return CoreError::Wrong(format!("ntt_streaming: {error}")),
    };
    CoreError::Value {
        core: "ntt_streaming",
        name,
        expected,
        found: values[name],
    }
}

/// Transforms back to back that go through all degrees and moduli, and how many there are at least.
const TRANSFORMS: usize = 4;

struct Polynomial {
    modulus: usize,
    log_n: u32,
}

fn polynomials(plan: &Plan) -> Vec<Polynomial> {
    let setting = plan.setting();
    let degrees = (setting.log_n_min..=setting.log_n).rev();
    let mut all: Vec<Polynomial> = degrees
        .flat_map(|log_n| {
            (0..setting.moduli.len()).map(move |modulus| Polynomial { modulus, log_n })
        })
        .collect();
    for i in 0.. {
        if all.len() >= TRANSFORMS {
            break;
        }
        let Polynomial { modulus, log_n } = all[i];
        all.push(Polynomial { modulus, log_n });
    }
    all
}

const VARIANTS: &[Given] = &[
    &[("LOG_N", 5), ("LOG_LANES", 2), ("FEEDBACK", 1)],
    &[
        ("LOG_N", 9),
        ("LOG_LANES", 1),
        ("FEEDBACK", 1),
        ("INVERSE", 1),
        ("IN_ORDER", 1),
        ("OUT_ORDER", 0),
    ],
    &[
        ("LOG_N", 5),
        ("LOG_LANES", 2),
        ("FEEDBACK", 1),
        ("Q", 998_244_353),
    ],
    // Degrees, and moduli, by the transform.
    &[
        ("LOG_N", 9),
        ("LOG_LANES", 1),
        ("LOG_N_MIN", 3),
        ("IN_ORDER", 2),
    ],
    &[
        ("LOG_N", 6),
        ("LOG_LANES", 2),
        ("LOG_N_MIN", 4),
        ("Q_2", 65_537),
        ("IN_ORDER", 1),
        ("OUT_ORDER", 2),
        ("INVERSE", 1),
    ],
    &[
        ("LOG_N", 6),
        ("LOG_LANES", 1),
        ("Q_2", 132_120_577),
        ("Q_3", 786_433),
        ("Q_4", 65_537),
        ("IN_ORDER", 2),
    ],
    // Moduli of 64 bits, of another form and of the form 2^i - 2^j + 1.
    &[
        ("LOG_N", 4),
        ("LOG_LANES", 2),
        ("Q", 18_446_744_073_709_550_593),
    ],
    &[
        ("LOG_N", 4),
        ("LOG_LANES", 2),
        ("Q", 18_446_744_069_414_584_321),
    ],
];

/// Barrett's reduction, which no parameter chooses.
fn barrett() -> Result<Vec<Design>, CoreError> {
    let given = [("LOG_N", 5), ("LOG_LANES", 2), ("Q", 998_244_353)];
    let values = Values::new(&CORE, given)?;
    let setting = Setting {
        reduction: Some(Reduction::Barrett),
        ..plan(&values)?.setting().clone()
    };
    let plan = Plan::new(setting).map_err(|error| refused(&error, &values))?;
    Ok(vec![plan.design()?])
}

/// The core.
pub static CORE: Core = Core {
    variants: VARIANTS,
    beyond_parameters: barrett,
    is_large: true,
    family: Some(Family {
        settings: cost::settings,
        samples: cost::samples,
        large_samples: cost::large_samples,
    }),
    ..Core::new(
        "ntt_streaming",
        "NTT or INTT modulo primes up to 64 bits, fully unrolled, LANES words per cycle, without bubbles",
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
        let beats: u64 = polynomials(self)
            .iter()
            .map(|one| self.beats(one.log_n))
            .sum();
        Timing {
            checked: Cycles {
                what: "transforms of every kind back to back, at least four, first beat in to last beat out",
                formula: "latency - N / LANES + beats of all",
                cycles: self.pipeline() + beats,
            },
            parts: vec![],
            latency: Some(Cycles {
                what: "latency, first beat in to last beat out",
                formula: "2 N / LANES - 1 + LOG_N B + R + E, of a butterfly B, canonical words R and orders E",
                cycles: self.latency(),
            }),
            interval: Some(Cycles {
                what: "from a transform to the next",
                formula: "N / LANES",
                cycles: self.beats(self.setting().log_n),
            }),
        }
    }

    fn structure(&self) -> Vec<String> {
        self.parts().iter().map(ToString::to_string).collect()
    }

    /// One transform of each degree and modulus, or four, whatever `count`.
    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let setting = self.setting();
        let mut random = Random::new(seed);
        let mut noise = Random::new(seed ^ 1);
        let bytes = self.bits().div_ceil(8) as usize;
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for (i, polynomial) in polynomials(self).into_iter().enumerate() {
            let q = setting.moduli[polynomial.modulus];
            let kind = (i as u64).wrapping_add(seed);
            let words = random.words(q, kind, 1 << polynomial.log_n);
            let results = self.expected(polynomial.modulus, &words);
            let user = self.user(polynomial.modulus, polynomial.log_n);
            let lanes = 1 << setting.log_lanes;
            let input = setting.input.arrange(setting.log_lanes, &words);
            let output = setting.output.arrange(setting.log_lanes, &results);
            for (beat, words) in input.chunks(lanes).enumerate() {
                let is_last = beat as u64 + 1 == self.beats(polynomial.log_n);
                // Only the first beat says what the polynomial is.
                let noise = noise.below(1 << self.user_bits());
                let user = if beat == 0 { user } else { noise };
                sent.push(Beat::of_words(words, bytes, is_last).with_user(user));
            }
            for (beat, words) in output.chunks(lanes).enumerate() {
                let is_last = beat as u64 + 1 == self.beats(polynomial.log_n);
                expected.push(Beat::of_words(words, bytes, is_last).with_user(user));
            }
        }
        Some(Vectors::Streams(Streams {
            input: "in",
            output: "out",
            sent,
            expected,
            user_bits: self.user_bits(),
            cycles: self.timing().checked.cycles,
        }))
    }

    fn cost(&self, technology: Technology, _transform: Option<&Transform>) -> Option<Figures> {
        cost::figures(self, technology)
    }
}
