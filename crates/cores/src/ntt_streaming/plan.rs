//! Plans of streaming transforms: what stands before, between and after the stages of `hw/ntt_streaming`, their twiddles and
//! their cycles.

use std::fmt;

use toroid_ring::prime;

use crate::arithmetic::{
    Product, Reduction, hex_of, index_bits, is_short, montgomery_word, root, solinas, transform,
};
use crate::order::network::{Network, Permutation, PermutationError};
use crate::order::{End, Order, reversed, with_ends};
use crate::setting::SettingError;
use crate::sources::design;
use toroid_sim::model::{Design, Value};
use toroid_sim::sources::UnknownModule;

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

    /// What stands after them.
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

    /// The parts in their order, with the cycles that each adds and, of permutations that need words of several
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
        let mut design = design("ntt_streaming")?
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
    /// If the length is not a power of two, or there is no root of unity for it.
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
