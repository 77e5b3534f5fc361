//! Permutations of streams.

#[cfg(test)]
mod tests;

use crate::error::CoreError;
use crate::interface::{Configured, Core, Cycles, Parameter, Timing, Values};
use crate::order::network::{Network, Permutation};
use crate::sources::design;
use crate::vectors::{Streams, Vectors};
use toroid_sim::model::Design;
use toroid_sim::random::Random;
use toroid_sim::stream::Beat;

/// The `KIND` that takes a list: number n is the place in the input of the word whose place in the output is n.
const LISTED: u64 = 3;

const PARAMETERS: [Parameter; 6] = [
    Parameter {
        name: "LOG_LANES",
        doc: "log2 of the words of a beat",
        default: 2,
        range: 0..=7,
    },
    Parameter {
        name: "LOG_BEATS",
        doc: "log2 of the beats of a frame",
        default: 4,
        range: 0..=12,
    },
    Parameter {
        name: "WIDTH",
        doc: "bits of a word",
        default: 64,
        range: 1..=64,
    },
    Parameter {
        name: "KIND",
        doc: "the permutation: 0 reverses the bits of indices, 1 takes words in steps, 2 is random, 3 is that of a list",
        default: 0,
        range: 0..=LISTED,
    },
    Parameter {
        name: "LOG_STRIDE",
        doc: "log2 of the steps, for KIND 1; at most LOG_LANES + LOG_BEATS",
        default: 1,
        range: 0..=19,
    },
    Parameter {
        name: "SEED",
        doc: "of the permutation, for KIND 2",
        default: 1,
        range: 0..=u32::MAX as u64,
    },
];

fn permutation(values: &Values) -> Result<Permutation, CoreError> {
    let log_lanes = values["LOG_LANES"] as u32;
    let log_beats = values["LOG_BEATS"] as u32;
    let log_stride = values["LOG_STRIDE"] as u32;
    let made = match values["KIND"] {
        0 => Permutation::bit_reversal(log_lanes, log_beats),
        1 if log_stride > log_lanes + log_beats => {
            return Err(CoreError::Value {
                core: "permutation",
                name: "LOG_STRIDE",
                expected: format!("at most LOG_LANES + LOG_BEATS = {}", log_lanes + log_beats),
                found: log_stride.into(),
            });
        }
        1 => Permutation::stride(log_lanes, log_beats, log_stride),
        LISTED => {
            let refused = |reason| CoreError::List {
                core: "permutation",
                reason,
            };
            let list = values.list().ok_or_else(|| {
                refused("KIND 3 needs a list of the places that words come from".to_owned())
            })?;
            return Permutation::new(log_lanes, log_beats, list.to_vec())
                .map_err(|error| refused(error.to_string()));
        }
        _ => Permutation::random(log_lanes, log_beats, values["SEED"]),
    };
    made.map_err(|error| CoreError::Wrong(error.to_string()))
}

/// Frames of the vectors.
const FRAMES: usize = 4;

/// The core.
pub static CORE: Core = Core {
    takes_list: |values| values["KIND"] == LISTED,
    ..Core::new(
        "permutation",
        "a fixed permutation of the words of a frame, streamed beat by beat",
        &PARAMETERS,
        |values| {
            let permutation = permutation(values)?;
            Ok(Box::new(Frames {
                network: permutation.route(),
                permutation,
                lanes: 1 << values["LOG_LANES"],
                beats: 1 << values["LOG_BEATS"],
                width: values["WIDTH"],
            }))
        },
    )
};

inventory::submit!(&CORE);

/// A permutation of frames of `beats` beats of `lanes` words of `width` bits.
struct Frames {
    permutation: Permutation,
    network: Network,
    lanes: usize,
    beats: usize,
    width: u64,
}

impl Configured for Frames {
    fn design(&self) -> Result<Design, CoreError> {
        let design = self.network.parameters(design("permutation")?);
        Ok(design.with("WIDTH", self.width))
    }

    fn timing(&self) -> Timing {
        let (latency, beats) = (self.network.latency() as u64, self.beats as u64);
        Timing {
            checked: Cycles {
                what: "four frames, first beat in to last beat out",
                formula: "4 M + latency, with M = 2^LOG_BEATS",
                cycles: FRAMES as u64 * beats + latency,
            },
            parts: vec![],
            latency: Some(Cycles {
                what: "a beat, latency",
                formula: "registers of switches + (DELAY + 2 where words change their beats)",
                cycles: latency,
            }),
            interval: Some(Cycles {
                what: "from a frame to the next",
                formula: "M",
                cycles: beats,
            }),
        }
    }

    /// Four frames, whatever `count`.
    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let Frames {
            permutation,
            lanes,
            beats,
            width,
            ..
        } = self;
        let bytes = width.div_ceil(8) as usize;
        let mut random = Random::new(seed);
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..FRAMES {
            let words: Vec<u64> = (0..lanes * beats)
                .map(|_| random.word() >> (64 - width))
                .collect();
            for (words, stream) in [
                (permutation.apply(&words), &mut expected),
                (words, &mut sent),
            ] {
                let chunks = words.chunks(*lanes).enumerate();
                stream
                    .extend(chunks.map(|(i, words)| Beat::of_words(words, bytes, i + 1 == *beats)));
            }
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
}
