//! Plans of streaming transforms: what stands before, between and behind the stages of `hw/ntt_streaming`, their twiddles and
//! their cycles.

use std::fmt;

use toroid_ring::ntt::NttPlan;
use toroid_ring::prime_ntt::{Ntt32Plan, Ntt63Plan};
use toroid_ring::{goldilocks, prime};

use crate::model::{Design, Value};
use crate::permutation::{Network, Permutation, PermutationError};
use crate::sources::UnknownModule;

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
    /// Words of a beat N / LANES apart: i = beat + lane · N / LANES. Of `ntt_elastic` alone.
    Strided,
    /// The same with the two digits of the beat's number swapped: i = k1 + LANES · k2 + lane · N / LANES in beat
    /// k1 · N / LANES² + k2. Of `ntt_elastic` alone, with LANES² words or more.
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

/// What brings words from one order to another before or behind the stages.
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

/// What a streaming transform is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// log2 of the words of the longest polynomial.
    pub log_n: u32,
    /// log2 of the words of the shortest.
    pub log_n_min: u32,
    /// log2 of the words of a beat.
    pub log_lanes: u32,
    /// The moduli, primes.
    pub moduli: Vec<u64>,
    /// INTT, divided by N, or NTT.
    pub is_inverse: bool,
    /// Modulo x^N - 1 or x^N + 1.
    pub is_cyclic: bool,
    /// The order of the input: of coefficients for an NTT, of values for an INTT.
    pub input: Order,
    /// The order of the output.
    pub output: Order,
    /// Whether stages that pair words of different beats have twice the butterflies, which leaves words in order.
    pub has_feedback: bool,
    /// Bits of both operands of a DSP tile.
    pub tiles: (u32, u32),
    /// A rest of up to this many bits beside the tiles of a short product is multiplied in look-up tables.
    pub narrow: u32,
    /// How products are reduced; `None`: by the form of the modulus where it has that, else Montgomery's way.
    pub reduction: Option<Reduction>,
}

/// How products by twiddles are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduction {
    /// By q = 2^i - 2^j + 1, j < i - 1, on words of one bit more than q.
    Solinas,
    /// Montgomery's reduction.
    Montgomery,
    /// Barrett's reduction, of one modulus.
    Barrett,
}

impl Reduction {
    /// What a modulus allows at the least cost.
    pub fn least(q: u64) -> Reduction {
        match solinas(q) {
            Some(_) => Reduction::Solinas,
            None => Reduction::Montgomery,
        }
    }

    /// Cycles of a product by a twiddle, for moduli of up to `bits` bits; `word` bits of Montgomery's reduction.
    pub(crate) fn latency(self, bits: u32, word: u32, tiles: (u32, u32)) -> u64 {
        let products = self.products(bits, word, 0);
        let all: u64 = products.iter().map(|product| product.latency(tiles)).sum();
        match self {
            Reduction::Solinas => all + 1,
            Reduction::Montgomery => all + products.len() as u64,
            Reduction::Barrett => all + 2,
        }
    }

    /// The products of integers in such a product, one behind the other.
    pub(crate) fn products(self, bits: u32, word: u32, narrow: u32) -> Vec<Product> {
        let is_short = is_short(bits);
        let of = |bits: (u32, u32)| Product {
            bits,
            is_short,
            narrow: 0,
        };
        match self {
            Reduction::Solinas => vec![Product {
                bits: (bits - 1, bits + 1),
                is_short,
                narrow: if is_short { narrow } else { 0 },
            }],
            Reduction::Montgomery => {
                let steps = (0..bits.div_ceil(word)).map(|_| of((bits - word, word)));
                std::iter::once(of((bits, bits))).chain(steps).collect()
            }
            Reduction::Barrett => {
                let wide = of((bits + 1, bits + 1));
                vec![of((bits, bits)), wide, wide]
            }
        }
    }

    /// A twiddle as the multiplier takes it.
    pub(crate) fn encoded(self, twiddle: u64, q: u64, bits: u32, word: u32) -> u64 {
        match (self, solinas(q)) {
            (Reduction::Solinas, Some((i, j))) => {
                let scaled = ((u128::from(twiddle) << j) % u128::from(q)) as u64;
                match scaled > q / 2 {
                    true => (1 << (i - 1)) | (q - scaled),
                    false => scaled,
                }
            }
            (Reduction::Montgomery, _) => {
                let radix = prime::pow(2, (word * bits.div_ceil(word)).into(), q);
                prime::mul(twiddle, radix, q)
            }
            _ => twiddle,
        }
    }
}

/// What is wrong with a [`Setting`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// log2 of the words of a polynomial, of the longest if there are several.
    #[error("log2 of the words of a polynomial must be 2 to 15, not {0}")]
    Length(u32),
    /// The sizes do not go together.
    #[error(
        "1 <= log2 of the lanes ({lanes}) <= log2 of the shortest polynomial ({shortest}) <= log2 of the longest ({longest}) is needed"
    )]
    Size {
        /// log2 of the lanes.
        lanes: u32,
        /// log2 of the words of the shortest polynomial.
        shortest: u32,
        /// log2 of the words of the longest.
        longest: u32,
    },
    /// There is no transform modulo this number.
    #[error("modulus {number}, {modulus}, is no prime of 4 to 64 bits that is 1 modulo {order}")]
    Modulus {
        /// Which of the moduli, from 0 on.
        number: usize,
        /// The number.
        modulus: u64,
        /// The order of the root of unity.
        order: u64,
    },
    /// Other orders are for one degree and one modulus.
    #[error(
        "with several degrees or moduli, an NTT or INTT goes from halves side by side to bit-reversed order, or back"
    )]
    Orders,
    /// An order that another core has.
    #[error("words in {} order are not taken or given by this core", .0.name())]
    Order(Order),
    /// From 1 to 16 moduli.
    #[error("1 to 16 moduli are needed, not {0}")]
    Moduli(usize),
    /// The modulus has not the form.
    #[error(
        "a reduction by the form of the modulus needs one of 2^i - 2^j + 1, j < i - 1, and Barrett's one modulus"
    )]
    Form,
    /// No network.
    #[error(transparent)]
    Permutation(#[from] PermutationError),
}

/// i and j of q = 2^i - 2^j + 1 with 0 < j < i - 1.
pub(crate) fn solinas(q: u64) -> Option<(u32, u32)> {
    let (i, j) = (u64::BITS - q.leading_zeros(), (q - 1).trailing_zeros());
    let is_form = i >= 4 && j + 1 < i && u128::from(q) == (1u128 << i) - (1u128 << j) + 1;
    is_form.then_some((i, j))
}

/// Bits that hold 0 to `count` - 1, at least one: `toroid_pkg::index_width`.
pub(crate) fn index_bits(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros().max(1)
}

/// `toroid_pkg::mul_latency`
pub(crate) fn mul_latency(bits: (u32, u32), tiles: (u32, u32), is_short: bool) -> u64 {
    match is_short {
        true => 3,
        false => (1 + bits.0.div_ceil(tiles.0) + bits.1.div_ceil(tiles.1)).into(),
    }
}

/// Words of up to this many bits are multiplied in a pipeline of three stages, the last of which adds the products of all tiles:
/// at most 2 x 3 of 24 x 17.
const SHORT_BITS: u32 = 34;

/// Whether products of words of this many bits take the pipeline of three stages.
pub(crate) fn is_short(bits: u32) -> bool {
    bits <= SHORT_BITS
}

/// Bits of a word of Montgomery's reduction that all moduli and the tiles allow.
pub(crate) fn montgomery_word(moduli: &[u64], tiles: (u32, u32)) -> u32 {
    let zeros = moduli.iter().map(|q| (q - 1).trailing_zeros());
    zeros.min().unwrap_or(1).min(tiles.1)
}

/// A streaming transform.
#[derive(Clone, Debug)]
pub struct Plan {
    setting: Setting,
    is_ascending: bool,
    front: End,
    back: End,
}

impl Plan {
    /// The plan of a setting with the least latency.
    ///
    /// # Errors
    /// [`SettingError`]
    pub fn new(setting: Setting) -> Result<Plan, SettingError> {
        let Setting {
            log_n,
            log_n_min,
            log_lanes,
            ref moduli,
            is_cyclic,
            ..
        } = setting;
        if !(2..=15).contains(&log_n) {
            return Err(SettingError::Length(log_n));
        }
        if !(1 <= log_lanes && log_lanes <= log_n_min && log_n_min <= log_n) {
            return Err(SettingError::Size {
                lanes: log_lanes,
                shortest: log_n_min,
                longest: log_n,
            });
        }
        if moduli.is_empty() || moduli.len() > 16 {
            return Err(SettingError::Moduli(moduli.len()));
        }
        let order = 1u64 << if is_cyclic { log_n } else { log_n + 1 };
        for (number, &modulus) in moduli.iter().enumerate() {
            if modulus < 8 || modulus % order != 1 || !prime::is_prime(modulus) {
                return Err(SettingError::Modulus {
                    number,
                    modulus,
                    order,
                });
            }
        }
        let is_allowed = match setting.reduction {
            Some(Reduction::Solinas) => moduli.len() == 1 && solinas(moduli[0]).is_some(),
            Some(Reduction::Barrett) => moduli.len() == 1,
            Some(Reduction::Montgomery) | None => true,
        };
        if !is_allowed {
            return Err(SettingError::Form);
        }
        for order in [setting.input, setting.output] {
            if !Order::ALL.contains(&order) {
                return Err(SettingError::Order(order));
            }
        }
        let with = |is_ascending: bool| -> Result<Plan, SettingError> {
            let split = match setting.has_feedback {
                true => Order::Natural,
                false => Order::Halves,
            };
            let (first, last) = match is_ascending {
                true => (Order::BitReversed, split),
                false => (split, Order::BitReversed),
            };
            Ok(Plan {
                front: setting.end(setting.input, first)?,
                back: setting.end(last, setting.output)?,
                is_ascending,
                setting: setting.clone(),
            })
        };
        let (descending, ascending) = (with(false)?, with(true)?);
        let plan = match ascending.latency() < descending.latency() {
            true => ascending,
            false => descending,
        };
        let is_plain = matches!((&plan.front, &plan.back), (End::Wires, End::Wires));
        match plan.sections() > 1 && (!is_plain || plan.setting.has_feedback) {
            true => Err(SettingError::Orders),
            false => Ok(plan),
        }
    }

    /// What was asked for.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Whether butterflies begin with the lowest bit of a place, rather than the highest.
    pub fn is_ascending(&self) -> bool {
        self.is_ascending
    }

    /// What stands before the stages.
    pub fn front(&self) -> &End {
        &self.front
    }

    /// What stands behind them.
    pub fn back(&self) -> &End {
        &self.back
    }

    /// Whether products are reduced by q = 2^i - 2^j + 1.
    pub fn is_solinas(&self) -> bool {
        self.reduction() == Reduction::Solinas
    }

    /// How products are reduced.
    pub fn reduction(&self) -> Reduction {
        self.setting
            .reduction
            .unwrap_or(match self.setting.moduli[..] {
                [modulus] => Reduction::least(modulus),
                _ => Reduction::Montgomery,
            })
    }

    /// Bits of a word.
    pub fn bits(&self) -> u32 {
        let bits = self.setting.moduli.iter().map(|q| q.ilog2() + 1);
        bits.max().unwrap_or(0)
    }

    /// Bits of a word of Montgomery's reduction.
    fn word(&self) -> u32 {
        montgomery_word(&self.setting.moduli, self.setting.tiles)
    }

    fn is_short(&self) -> bool {
        is_short(self.bits())
    }

    fn sections(&self) -> usize {
        self.shifts() * self.setting.moduli.len()
    }

    fn shifts(&self) -> usize {
        (self.setting.log_n - self.setting.log_n_min + 1) as usize
    }

    /// Beats of a polynomial of 2^`log_n` words.
    pub fn beats(&self, log_n: u32) -> u64 {
        1 << (log_n - self.setting.log_lanes)
    }

    /// `tuser` of a polynomial.
    pub fn user(&self, modulus: usize, log_n: u32) -> u64 {
        ((modulus as u64) << index_bits(self.shifts())) | u64::from(self.setting.log_n - log_n)
    }

    /// Bits of `tuser`.
    pub fn user_bits(&self) -> u32 {
        index_bits(self.shifts()) + index_bits(self.setting.moduli.len())
    }

    /// Cycles of a stage.
    pub fn stage_latency(&self) -> u64 {
        let product = self
            .reduction()
            .latency(self.bits(), self.word(), self.setting.tiles);
        product + 1 + u64::from(self.sections() > 1)
    }

    /// Cycles from a beat of the input to the beat of the same number of the output, where beats follow each other.
    pub fn pipeline(&self) -> u64 {
        let Setting { log_n, .. } = self.setting;
        let ends = [&self.front, &self.back].map(|end| self.setting.end_latency(end));
        u64::from(log_n) * self.stage_latency() + self.beats(log_n) - 1
            + u64::from(self.is_solinas())
            + ends.iter().sum::<u64>()
    }

    /// Cycles from the first beat in to the last beat out, both counted, of a polynomial of the largest degree.
    pub fn latency(&self) -> u64 {
        self.pipeline() + self.beats(self.setting.log_n)
    }

    /// Butterflies, each with a multiplier.
    pub fn butterflies(&self) -> u64 {
        let Setting {
            log_n, log_lanes, ..
        } = self.setting;
        (u64::from(log_n) + self.feedbacks().count() as u64) << (log_lanes - 1)
    }

    /// The DSP slices: a tile of a product each, but for tiles of one bit and rows that [`Setting::narrow`] leaves to look-up
    /// tables.
    pub fn dsp(&self) -> u64 {
        let tiles = |product: &Product| product.tiles(self.setting.tiles);
        self.butterflies() * self.products().iter().map(tiles).sum::<u64>()
    }

    /// The products of a butterfly.
    pub(crate) fn products(&self) -> Vec<Product> {
        self.reduction()
            .products(self.bits(), self.word(), self.setting.narrow)
    }

    /// Of each commutator between the stages, log2 of the beats that it delays by.
    pub(crate) fn commutators(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.setting.log_n).filter_map(|stage| self.commutator_bit(stage))
    }

    /// The bits of the beat that stages with feedback pair.
    pub(crate) fn feedbacks(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.setting.log_n).filter_map(|stage| self.feedback_bit(stage))
    }

    /// Of each stage the rows of its twiddles and the words of a row.
    pub(crate) fn twiddle_rows(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.setting.log_n).map(|stage| {
            let rows = self.rows(stage);
            let count = (self.sections() as u64) << rows.bits;
            (count, 1 << rows.group_bits)
        })
    }

    /// The rest that is multiplied in look-up tables where products are short.
    fn narrow(&self) -> u32 {
        match self.is_short() && self.is_solinas() {
            true => self.setting.narrow,
            false => 0,
        }
    }

    /// What stands one behind the other, with the cycles that each adds and, of permutations that need words of several
    /// beats, what the other form would.
    pub fn parts(&self) -> Vec<Part> {
        let Setting {
            log_n, log_lanes, ..
        } = self.setting;
        let end = |end: &End, place: &str| {
            let latency = self.setting.end_latency(end);
            // Between natural order and halves there are two forms.
            let other = match end {
                End::Halves(_) => {
                    Some(("chain of delay commutators", self.setting.chain_latency()))
                }
                End::Commutators => {
                    let network = self.setting.halves_network().ok();
                    network.map(|network| ("permutation network", network.latency() as u64))
                }
                End::Wires | End::Lanes(_) => None,
            };
            let what = match end {
                End::Wires => return None,
                End::Commutators => "a chain of delay commutators".to_owned(),
                End::Halves(network) => format!(
                    "a permutation network of 2 x {} lanes, {} beats deep",
                    1 << (log_lanes - 1),
                    network.delay()
                ),
                End::Lanes(network) => format!(
                    "a permutation network of {} lanes, {} beats deep",
                    1 << log_lanes,
                    network.delay()
                ),
            };
            Some(Part {
                what: format!("{place}: {what}"),
                latency,
                other,
            })
        };
        let mut parts: Vec<Part> = end(&self.front, "order of the input").into_iter().collect();
        let beat_bits = log_n - log_lanes;
        for stage in 0..log_n {
            if let Some(bit) = self.feedback_bit(stage) {
                parts.push(Part {
                    what: format!(
                        "stage {stage}: butterflies of beats {} apart, with feedback",
                        1 << bit
                    ),
                    latency: self.stage_latency() + (1 << bit),
                    other: None,
                });
                continue;
            }
            let pair = self.pair_bit(stage);
            parts.push(Part {
                what: format!("stage {stage}: butterflies of lanes {} apart", 1 << pair),
                latency: self.stage_latency(),
                other: None,
            });
            if let Some(bit) = self.commutator_bit(stage) {
                let exchange = Permutation::of_bits(1, beat_bits, |from| match from {
                    0 => bit + 1,
                    from if from == bit + 1 => 0,
                    from => from,
                });
                parts.push(Part {
                    what: format!("a delay commutator of {} beats", 1 << bit),
                    latency: 1 << bit,
                    other: exchange
                        .ok()
                        .map(|exchange| ("permutation network", exchange.route().latency() as u64)),
                });
            }
        }
        if self.is_solinas() {
            parts.push(Part {
                what: "reduction to canonical words".to_owned(),
                latency: 1,
                other: None,
            });
        }
        parts.extend(end(&self.back, "order of the output"));
        parts
    }

    /// `ntt_streaming_pkg::pair_bit`
    fn pair_bit(&self, stage: u32) -> u32 {
        let Setting {
            log_n, log_lanes, ..
        } = self.setting;
        match self.is_ascending {
            true => stage.min(log_lanes - 1),
            false => (log_n - 1 - stage).min(log_lanes - 1),
        }
    }

    /// `ntt_streaming_pkg::feedback_bit`, where there is feedback.
    fn feedback_bit(&self, stage: u32) -> Option<u32> {
        let Setting {
            log_n, log_lanes, ..
        } = self.setting;
        let bit = match self.is_ascending {
            true => stage.checked_sub(log_lanes),
            false => (log_n - log_lanes).checked_sub(stage + 1),
        };
        bit.filter(|_| self.setting.has_feedback)
    }

    /// `ntt_streaming_pkg::commutator_bit`, where there is no feedback.
    fn commutator_bit(&self, stage: u32) -> Option<u32> {
        let Setting {
            log_n, log_lanes, ..
        } = self.setting;
        if self.setting.has_feedback {
            return None;
        }
        let beat_bits = log_n - log_lanes;
        let bit = match self.is_ascending {
            true => stage.checked_sub(log_lanes - 1),
            false => (beat_bits).checked_sub(stage + 1),
        };
        bit.filter(|bit| *bit < beat_bits)
    }

    /// `ntt_streaming_pkg`: the row of a beat is (beat >> `shift`) modulo 2^`bits`; `group` gives a butterfly's word in it.
    fn rows(&self, stage: u32) -> Rows {
        let Setting {
            log_n,
            log_lanes,
            is_inverse,
            ..
        } = self.setting;
        let beat_bits = log_n - log_lanes;
        let before = match self.is_ascending {
            true => stage.saturating_sub(log_lanes - 1),
            false => stage,
        };
        let before = before.min(beat_bits);
        let bits = if is_inverse {
            beat_bits - before
        } else {
            before
        };
        let is_upper = self.is_ascending == is_inverse;
        if let Some(bit) = self.feedback_bit(stage) {
            return Rows {
                bits: if is_upper { beat_bits - 1 - bit } else { bit },
                shift: if is_upper { bit + 1 } else { 0 },
                group_bits: if is_upper { 0 } else { log_lanes },
                is_upper,
                pair: log_lanes,
            };
        }
        let pair = self.pair_bit(stage);
        Rows {
            bits,
            shift: if is_upper { beat_bits - bits } else { 0 },
            group_bits: if is_upper { log_lanes - 1 - pair } else { pair },
            is_upper,
            pair,
        }
    }

    /// The twiddles of a stage in the form of `$readmemh`: see `hw/ntt_streaming/ntt_stage.sv`.
    pub(crate) fn twiddles(&self, stage: u32) -> String {
        let Setting {
            log_n,
            log_lanes,
            is_inverse,
            is_cyclic,
            ..
        } = self.setting;
        let rows = self.rows(stage);
        let bits = self.bits() as usize;
        let mut text = String::new();
        for &q in &self.setting.moduli {
            for shift in 0..self.shifts() as u32 {
                let log_small = log_n - shift;
                let passes = match self.is_ascending {
                    true => stage >= log_small,
                    false => stage < shift,
                };
                // The stage of a transform of that degree alone; all its beats go through the same rows.
                let own = if self.is_ascending {
                    stage
                } else {
                    stage.wrapping_sub(shift)
                };
                let mut table =
                    vec![vec![self.encoded(1, q, true); 1 << rows.group_bits]; 1 << rows.bits];
                if !passes {
                    let small = Walk::new(self, log_small, own);
                    let root = root(q, log_small, is_cyclic);
                    for beat in 0..1usize << (log_small - log_lanes) {
                        let row = (beat >> rows.shift) & ((1 << rows.bits) - 1);
                        for butterfly in 0..small.butterflies(beat) {
                            let (level, block) = small.block(beat, butterfly);
                            let exponent = match is_cyclic {
                                true => reversed(block, level) << (log_small - level - 1),
                                false => reversed((1 << level) + block, log_small),
                            };
                            let order = 1u64 << if is_cyclic { log_small } else { log_small + 1 };
                            let twiddle = match is_inverse {
                                false => prime::pow(root, exponent as u64, q),
                                // 1 / 2 is (q + 1) / 2.
                                true => prime::mul(
                                    prime::pow(root, order - exponent as u64, q),
                                    q.div_ceil(2),
                                    q,
                                ),
                            };
                            table[row][rows.group(butterfly)] = self.encoded(twiddle, q, false);
                        }
                    }
                }
                for row in table {
                    text.push_str(&hex_of(row.iter().copied(), bits));
                    text.push('\n');
                }
            }
        }
        text
    }

    /// A twiddle as the butterflies take it; `passes`: what hands a word through an inverse stage.
    fn encoded(&self, twiddle: u64, q: u64, passes: bool) -> u64 {
        let twiddle = match self.is_solinas() && passes {
            true => q - twiddle,
            false => twiddle,
        };
        self.reduction()
            .encoded(twiddle, q, self.bits(), self.word())
    }

    /// The design of `hw/ntt_streaming`.
    ///
    /// # Errors
    /// If its sources are not there.
    pub fn design(&self) -> Result<Design, UnknownModule> {
        let Setting {
            log_n,
            log_lanes,
            is_inverse,
            tiles,
            ref moduli,
            ..
        } = self.setting;
        let q: String = moduli.iter().rev().map(|q| format!("{q:016x}")).collect();
        let mut design = Design::of("ntt_streaming")?
            .with("LOG_N", log_n)
            .with("LOG_LANES", log_lanes)
            .with("SHIFTS", self.shifts() as u64)
            .with("MODULI", moduli.len() as u64);
        let q = Value::Bits {
            width: 64 * moduli.len() as u32,
            hex: q,
        };
        design.parameters.push(("Q".to_owned(), q));
        design = design
            .with("SOLINAS", u64::from(self.is_solinas()))
            .with("BARRETT", u64::from(self.reduction() == Reduction::Barrett))
            .with("INVERSE", u64::from(is_inverse))
            .with("ASCENDING", u64::from(self.is_ascending))
            .with("FEEDBACK", u64::from(self.setting.has_feedback))
            .with("TILE_A", tiles.0)
            .with("TILE_B", tiles.1)
            .with("SHORT", u64::from(self.is_short()))
            .with("NARROW", self.narrow());
        design = with_ends(design, &self.front, &self.back);
        design
            .parameters
            .push(("TWIDDLES".to_owned(), Value::File("twiddles".to_owned())));
        for stage in 0..log_n {
            design.files.push((
                format!("twiddles_{stage:02}.hex"),
                self.twiddles(stage).into_bytes(),
            ));
        }
        Ok(design)
    }

    /// The transform of a polynomial by the library where it has one for the modulus, in order of indices on both sides.
    ///
    /// # Panics
    /// If the length is no power of two, or there is no root of unity for it.
    pub fn expected(&self, modulus: usize, words: &[u64]) -> Vec<u64> {
        let Setting {
            is_inverse,
            is_cyclic,
            ref moduli,
            ..
        } = self.setting;
        transform(words, moduli[modulus], is_inverse, is_cyclic)
    }
}

/// A design with what stands before and behind its stages.
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

/// A product in tiles, as `mul_tiles` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    /// Bits of its operands.
    pub bits: (u32, u32),
    /// Whether it is a pipeline of three stages.
    pub is_short: bool,
    /// A row of tiles of up to this many bits is made of look-up tables.
    pub narrow: u32,
}

impl Product {
    /// The bits of the tiles of an operand, the last ones those that are left.
    fn cut(bits: u32, tile: u32) -> impl Iterator<Item = u32> {
        (0..bits.div_ceil(tile)).map(move |n| tile.min(bits - n * tile))
    }

    /// The bits of each row of tiles, and whether it is made of look-up tables.
    pub fn rows(&self, tiles: (u32, u32)) -> impl Iterator<Item = (u32, bool)> + '_ {
        Product::cut(self.bits.0, tiles.0).map(|bits| (bits, bits <= self.narrow))
    }

    /// The bits of each tile of a row.
    pub fn columns(&self, tiles: (u32, u32)) -> impl Iterator<Item = u32> + use<> {
        Product::cut(self.bits.1, tiles.1)
    }

    /// Cycles.
    pub fn latency(&self, tiles: (u32, u32)) -> u64 {
        mul_latency(self.bits, tiles, self.is_short)
    }

    /// Tiles in DSP slices.
    pub fn tiles(&self, tiles: (u32, u32)) -> u64 {
        // A factor of one bit is a gate.
        let columns = self.columns(tiles).filter(|bits| *bits > 1).count();
        let rows = self.rows(tiles);
        let rows = rows.filter(|(bits, is_narrow)| *bits > 1 && !is_narrow);
        (rows.count() * columns) as u64
    }
}

/// A part of a streaming transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub what: String,
    /// The cycles that it adds.
    pub latency: u64,
    /// What could stand in its place, and the cycles that it would add.
    pub other: Option<(&'static str, u64)>,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} cycles", self.what, self.latency)?;
        match self.other {
            Some((other, latency)) => write!(f, " (a {other}: {latency})"),
            None => Ok(()),
        }
    }
}

struct Rows {
    bits: u32,
    shift: u32,
    group_bits: u32,
    is_upper: bool,
    pair: u32,
}

impl Rows {
    fn group(&self, butterfly: usize) -> usize {
        match self.is_upper {
            true => butterfly >> self.pair,
            false => butterfly & ((1 << self.pair) - 1),
        }
    }
}

/// The words before a stage.
struct Walk {
    log_n: u32,
    log_lanes: u32,
    /// The bit of a place that the stage pairs.
    pair: u32,
    /// Of each place, the index of the word that is there, as an in-place transform numbers them.
    slots: Vec<usize>,
}

impl Walk {
    /// The words before a stage of a plan's transforms of 2^`log_n` words.
    fn new(plan: &Plan, log_n: u32, stage: u32) -> Walk {
        let plan = Plan {
            setting: Setting {
                log_n,
                log_n_min: log_n,
                ..plan.setting.clone()
            },
            front: End::Wires,
            back: End::Wires,
            is_ascending: plan.is_ascending,
        };
        let Setting {
            log_lanes,
            is_inverse,
            has_feedback,
            ..
        } = plan.setting;
        let input = match (plan.is_ascending, has_feedback) {
            (true, _) => Order::BitReversed,
            (false, true) => Order::Natural,
            (false, false) => Order::Halves,
        };
        let places = 0..1usize << log_n;
        // The values of an INTT are those of an NTT, which in place come out with the bits of their number reversed.
        let slot = |place| match is_inverse {
            false => input.index(log_n, log_lanes, place),
            true => reversed(input.index(log_n, log_lanes, place), log_n),
        };
        let mut slots: Vec<usize> = places.map(slot).collect();
        for before in 0..stage {
            let Some(bit) = plan.commutator_bit(before) else {
                continue;
            };
            let (lane, beat) = (log_lanes - 1, log_lanes + bit);
            let from = |place: usize| {
                let differ = ((place >> lane) ^ (place >> beat)) & 1;
                place ^ (differ << lane) ^ (differ << beat)
            };
            slots = (0..slots.len()).map(|place| slots[from(place)]).collect();
        }
        Walk {
            log_n,
            log_lanes,
            pair: match plan.feedback_bit(stage) {
                Some(bit) => log_lanes + bit,
                None => plan.pair_bit(stage),
            },
            slots,
        }
    }

    /// How many butterflies take a word of this beat with a smaller number than its partner's.
    fn butterflies(&self, beat: usize) -> usize {
        match self.pair.checked_sub(self.log_lanes) {
            None => 1 << (self.log_lanes - 1),
            Some(bit) if (beat >> bit) & 1 == 0 => 1 << self.log_lanes,
            Some(_) => 0,
        }
    }

    /// The level of a butterfly's block in the tree of an in-place transform, whose root is 0, and the number of the block in its
    /// level.
    fn block(&self, beat: usize, butterfly: usize) -> (u32, usize) {
        let lane = match self.pair < self.log_lanes {
            true => {
                ((butterfly >> self.pair) << (self.pair + 1)) | (butterfly & ((1 << self.pair) - 1))
            }
            false => butterfly,
        };
        let place = (beat << self.log_lanes) | lane;
        let (a, b) = (self.slots[place], self.slots[place | (1 << self.pair)]);
        debug_assert!((a ^ b).is_power_of_two() && a < b);
        let bit = (a ^ b).trailing_zeros();
        (self.log_n - 1 - bit, a >> (bit + 1))
    }
}

impl Setting {
    fn end(&self, from: Order, to: Order) -> Result<End, PermutationError> {
        let (log_n, log_lanes) = (self.log_n, self.log_lanes);
        let places = 1usize << log_n;
        let mut at = vec![0; places];
        for place in 0..places {
            at[from.index(log_n, log_lanes, place)] = place;
        }
        let sources: Vec<usize> = (0..places)
            .map(|place| at[to.index(log_n, log_lanes, place)])
            .collect();
        if sources.iter().enumerate().all(|(to, from)| to == *from) {
            return Ok(End::Wires);
        }
        if from == Order::BitReversed || to == Order::BitReversed {
            return Ok(End::Lanes(
                Permutation::new(log_lanes, log_n - log_lanes, sources)?.route(),
            ));
        }
        // Lanes of a half stay together.
        let half = log_lanes - 1;
        let of_halves = sources.iter().step_by(1 << half).map(|from| from >> half);
        let network = Permutation::new(1, log_n - log_lanes, of_halves.collect())?.route();
        Ok(match (network.latency() as u64) < self.chain_latency() {
            true => End::Halves(network),
            false => End::Commutators,
        })
    }

    /// From natural order to halves side by side, which takes as long as back.
    fn halves_network(&self) -> Result<Network, PermutationError> {
        let beat_bits = self.log_n - self.log_lanes;
        let from = |bit: u32| if bit == 0 { beat_bits } else { bit - 1 };
        Ok(Permutation::of_bits(1, beat_bits, from)?.route())
    }

    /// Of one commutator for each bit of the number of a beat.
    fn chain_latency(&self) -> u64 {
        (1 << (self.log_n - self.log_lanes)) - 1
    }

    pub(crate) fn end_latency(&self, end: &End) -> u64 {
        match end {
            End::Wires => 0,
            End::Commutators => self.chain_latency(),
            End::Halves(network) | End::Lanes(network) => network.latency() as u64,
        }
    }
}

/// Words of `bits` bits side by side, word 0 lowest, as hexadecimal digits.
pub(crate) fn hex_of(words: impl DoubleEndedIterator<Item = u64>, bits: usize) -> String {
    let mut digits = Vec::new();
    let (mut rest, mut held) = (0u128, 0);
    for word in words {
        rest |= u128::from(word) << held;
        held += bits;
        while held >= 4 {
            digits.push(char::from_digit((rest & 15) as u32, 16).unwrap_or('0'));
            rest >>= 4;
            held -= 4;
        }
    }
    if held > 0 {
        digits.push(char::from_digit((rest & 15) as u32, 16).unwrap_or('0'));
    }
    digits.iter().rev().collect()
}

/// The root of unity of a transform of 2^`log_n` words: of order 2 N, or N for a cyclic one.
pub(crate) fn root(q: u64, log_n: u32, is_cyclic: bool) -> u64 {
    let psi = |log_n: u32| match q {
        goldilocks::P => goldilocks::psi(1 << log_n),
        q => prime::psi(1 << log_n, q),
    };
    let root = match is_cyclic {
        true => psi(log_n - 1),
        false => psi(log_n),
    };
    // `Plan::new` has seen that there is one.
    root.unwrap_or(1)
}

/// The transform of a polynomial modulo q, in order of indices on both sides.
pub(crate) fn transform(words: &[u64], q: u64, is_inverse: bool, is_cyclic: bool) -> Vec<u64> {
    let log_n = words.len().trailing_zeros();
    let n = words.len();
    let scaled = |words: Vec<u64>, factor: u64, ratio: u64| -> Vec<u64> {
        let mut power = factor;
        let step = |word| {
            let product = prime::mul(word, power, q);
            power = prime::mul(power, ratio, q);
            product
        };
        words.into_iter().map(step).collect()
    };
    let psi = root(q, log_n, false);
    let of_n = prime::inv(n as u64 % q, q);
    if (q - 1).is_multiple_of(2 * n as u64) && q >> 63 == 0 || q == goldilocks::P {
        // A cyclic transform is a negacyclic one of the coefficients times powers of 1 / psi.
        return match (is_cyclic, is_inverse) {
            (false, false) => negacyclic(words.to_vec(), q, false),
            (false, true) => scaled(negacyclic(words.to_vec(), q, true), of_n, 1),
            (true, false) => negacyclic(scaled(words.to_vec(), 1, prime::inv(psi, q)), q, false),
            (true, true) => scaled(negacyclic(words.to_vec(), q, true), of_n, psi),
        };
    }
    let omega = root(q, log_n, true);
    match (is_cyclic, is_inverse) {
        (true, false) => sums(words, omega, q),
        (true, true) => scaled(sums(words, prime::inv(omega, q), q), of_n, 1),
        (false, false) => sums(&scaled(words.to_vec(), 1, psi), omega, q),
        (false, true) => {
            let values = sums(words, prime::inv(omega, q), q);
            scaled(values, of_n, prime::inv(psi, q))
        }
    }
}

/// A negacyclic transform by the library, from coefficients to values or back, the latter times N.
fn negacyclic(words: Vec<u64>, q: u64, is_inverse: bool) -> Vec<u64> {
    let n = words.len();
    let swapped = |words: Vec<u64>| Order::BitReversed.arrange(0, &words);
    let mut words = if is_inverse { swapped(words) } else { words };
    if q == goldilocks::P {
        if let Ok(plan) = NttPlan::new(n) {
            if is_inverse {
                plan.inverse(&mut words);
            } else {
                plan.forward(&mut words);
            }
        }
    } else if q >> 31 == 0 {
        if let Ok(plan) = Ntt32Plan::new(n, q) {
            let mut narrow: Vec<u32> = words.iter().map(|word| *word as u32).collect();
            if is_inverse {
                plan.inverse(&mut narrow);
            } else {
                plan.forward(&mut narrow);
            }
            words = narrow.into_iter().map(u64::from).collect();
        }
    } else if let Ok(plan) = Ntt63Plan::new(n, q) {
        if is_inverse {
            plan.inverse(&mut words);
        } else {
            plan.forward(&mut words);
        }
    }
    if is_inverse { words } else { swapped(words) }
}

/// X_k = sum over i of x_i w^(i k), for the moduli for which the library has no transform.
fn sums(words: &[u64], w: u64, q: u64) -> Vec<u64> {
    if words.len() == 1 {
        return words.to_vec();
    }
    let part = |first: usize| {
        let words: Vec<u64> = words[first..].iter().step_by(2).copied().collect();
        sums(&words, prime::mul(w, w, q), q)
    };
    let (even, odd) = (part(0), part(1));
    let half = even.len();
    let mut values = vec![0; 2 * half];
    let mut power = 1;
    for k in 0..half {
        let product = u128::from(prime::mul(odd[k], power, q));
        let (even, q_wide) = (u128::from(even[k]), u128::from(q));
        values[k] = ((even + product) % q_wide) as u64;
        values[k + half] = ((even + q_wide - product) % q_wide) as u64;
        power = prime::mul(power, w, q);
    }
    values
}
