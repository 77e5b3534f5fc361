//! The orders in which words of a polynomial stand in a stream, and what brings words from one to another.

pub mod network;

use toroid_sim::model::{Design, Value};

use network::Network;

/// The order in which the words of a polynomial stand in a stream: word of index i in beat and lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// i = beat · LANES + lane.
    Natural,
    /// The same with the bits of i reversed.
    BitReversed,
    /// The two halves side by side, each in natural order: i = (upper half of the lanes) · N/2 + beat · LANES/2 + lane
    /// within that half.
    Halves,
    /// Words of a beat N / LANES apart: i = beat + lane · N / LANES.
    Strided,
    /// The same with the two digits of the beat's number swapped: i = k1 + LANES · k2 + lane · N / LANES in beat
    /// k1 · N / LANES² + k2. Frames have LANES² words or more.
    StridedSwapped,
}

impl Order {
    /// Those of the core, each at the place of its value of the parameters `IN_ORDER` and `OUT_ORDER`.
    pub const ALL: [Order; 3] = [Order::Natural, Order::BitReversed, Order::Halves];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Natural => "natural",
            Order::BitReversed => "bit-reversed",
            Order::Halves => "halves",
            Order::Strided => "strided",
            Order::StridedSwapped => "strided-swapped",
        }
    }

    /// Its number, which for those of [`Order::ALL`] is the value of the core's parameters `IN_ORDER` and `OUT_ORDER`; the
    /// others are none of them.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The index of the word at a place, beat · 2^`log_lanes` + lane, among 2^`log_n`.
    pub fn index(self, log_n: u32, log_lanes: u32, place: usize) -> usize {
        match self {
            Order::Natural => place,
            Order::BitReversed => reversed(place, log_n),
            Order::Halves => {
                let (beat, lane) = (place >> log_lanes, place & ((1 << log_lanes) - 1));
                let half = log_lanes - 1;
                ((lane >> half) << (log_n - 1)) | (beat << half) | (lane & ((1 << half) - 1))
            }
            Order::Strided | Order::StridedSwapped => {
                let (beat, lane) = (place >> log_lanes, place & ((1 << log_lanes) - 1));
                let low = match self {
                    Order::StridedSwapped => {
                        let digit = log_n - 2 * log_lanes;
                        (beat >> digit) | ((beat & ((1 << digit) - 1)) << log_lanes)
                    }
                    _ => beat,
                };
                (lane << (log_n - log_lanes)) | low
            }
        }
    }

    /// A polynomial of 2^`log_n` words, in order of their indices, as this order has them.
    pub fn arrange(self, log_lanes: u32, words: &[u64]) -> Vec<u64> {
        let log_n = words.len().trailing_zeros();
        let places = 0..words.len();
        places
            .map(|place| words[self.index(log_n, log_lanes, place)])
            .collect()
    }
}

pub(crate) fn reversed(index: usize, bits: u32) -> usize {
    match bits {
        0 => index,
        _ => index.reverse_bits() >> (usize::BITS - bits),
    }
}

/// What brings words from one order to another before or after the stages.
#[derive(Clone, Debug)]
pub enum End {
    /// Nothing: the orders are the same.
    Wires,
    /// A chain of delay commutators, as many as there are bits of a beat's number.
    Commutators,
    /// A permutation network whose two lanes are the halves of the lanes.
    Halves(Network),
    /// A permutation network of all lanes.
    Lanes(Network),
}

/// A design with what stands before and after its stages.
pub(crate) fn with_ends(mut design: Design, front: &End, back: &End) -> Design {
    for (end, prefix) in [(front, "FRONT"), (back, "BACK")] {
        design = design.with(
            prefix,
            match end {
                End::Wires => 0u64,
                End::Commutators => 1,
                End::Halves(_) | End::Lanes(_) => 2,
            },
        );
        if let End::Halves(network) | End::Lanes(network) = end {
            let own = network.parameters(Design::default());
            let file = |name: &str| format!("{}_{name}", prefix.to_lowercase());
            for (name, value) in own.parameters {
                let value = match value {
                    Value::File(name) => Value::File(file(&name)),
                    value => value,
                };
                // The beats are the transform's.
                if name != "LOG_BEATS" {
                    design.parameters.push((format!("{prefix}_{name}"), value));
                }
            }
            let files = own.files.into_iter();
            let files = files.map(|(name, contents)| (file(&name), contents));
            design.files.extend(files);
        }
    }
    design
}
