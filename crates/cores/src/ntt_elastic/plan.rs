//! Plans of elastic transforms: the stream of factors of `hw/ntt_elastic` for a sequence of transforms, the order of its words,
//! and its cycles.
//!
//! A transform of N = LANES^2 · N2 words takes B = LANES · N2 beats. With input index n = c + B · lane in beat c, and output index
//! k = k1 + LANES · k2 + B · lane in beat k1 · N2 + k2, it is a transform of LANES words over the lanes, a product with powers of
//! a root, a transform of N2 words whose twiddles have the next such product in them, and another one of LANES words.

use toroid_ring::prime;

use crate::arithmetic::{mul_latency, root, transform};
use crate::order::{Order, reversed};
use crate::sources::design;
use toroid_sim::model::Design;
use toroid_sim::random::Random;
use toroid_sim::sources::UnknownModule;
use toroid_sim::stream::Beat;

/// What a transform computes; its number is the core's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Cyclic: values of a polynomial modulo x^N - 1.
    Ntt,
    /// Its inverse, divided by N.
    Intt,
    /// Negacyclic: values of a polynomial modulo x^N + 1.
    Ncn,
    /// Its inverse, divided by N.
    Incn,
}

impl Mode {
    /// Each at the place of its number.
    pub const ALL: [Mode; 4] = [Mode::Ntt, Mode::Intt, Mode::Ncn, Mode::Incn];

    /// Whether it goes back to coefficients.
    pub fn is_inverse(self) -> bool {
        matches!(self, Mode::Intt | Mode::Incn)
    }

    /// Whether it is modulo x^N - 1.
    pub fn is_cyclic(self) -> bool {
        matches!(self, Mode::Ntt | Mode::Intt)
    }
}

/// What the core is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// log2 of the words of a beat, 2 to 5.
    pub log_lanes: u32,
    /// Every modulus is 1 modulo 2^`word`, 4 to 21.
    pub word: u32,
    /// Bits of both operands of a DSP tile.
    pub tiles: (u32, u32),
}

/// One transform of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The modulus, a prime.
    pub q: u64,
    /// What it computes.
    pub mode: Mode,
    /// log2 of N.
    pub log_n: u32,
}

/// What is wrong with a [`Setting`] or a [`Transform`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElasticError {
    /// Lanes.
    #[error("log2 of the lanes must be 2 to 5, not {0}")]
    Lanes(u32),
    /// Bits that every modulus has in common.
    #[error("WORD must be {WORD_MIN} to {largest}, not {found}")]
    Word {
        /// The largest for the tiles.
        largest: u32,
        /// What was asked for.
        found: u32,
    },
    /// What a product takes at once does not fit a tile.
    #[error("{operand} must be at least {least}, not {found}")]
    Tiles {
        /// `TILE_A` or `TILE_B`.
        operand: &'static str,
        /// The least.
        least: u32,
        /// What was asked for.
        found: u32,
    },
    /// Words of a transform.
    #[error("log2 of N must be {least} to {most}, not {found}")]
    Size {
        /// log2 of the least N.
        least: u32,
        /// log2 of the largest.
        most: u32,
        /// What was asked for.
        found: u32,
    },
    /// There is no such transform modulo this number.
    #[error("{modulus} is not a prime that is 1 modulo {order}")]
    Modulus {
        /// The number.
        modulus: u64,
        /// What q - 1 must be a multiple of.
        order: u64,
    },
}

/// The bits of a modulus and of a word.
const WIDTH: u32 = 64;

/// The fewest bits that moduli have in common.
const WORD_MIN: u32 = 4;

/// The orders of the input and of the output: words N / LANES apart, with the digits of the beat's number swapped at the output.
pub(crate) const ORDERS: (Order, Order) = (Order::Strided, Order::StridedSwapped);

/// log2 of the least N2.
const LOG_N2_MIN: u32 = 2;

/// An elastic transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    setting: Setting,
}

impl Plan {
    /// The plan of a setting.
    ///
    /// # Errors
    /// [`ElasticError`]
    pub fn new(setting: Setting) -> Result<Plan, ElasticError> {
        if !(2..=5).contains(&setting.log_lanes) {
            return Err(ElasticError::Lanes(setting.log_lanes));
        }
        if setting.tiles.0 <= WORD_MIN {
            return Err(ElasticError::Tiles {
                operand: "TILE_A",
                least: WORD_MIN + 1,
                found: setting.tiles.0,
            });
        }
        let largest = (setting.tiles.0 - 1).min(21);
        if !(WORD_MIN..=largest).contains(&setting.word) {
            return Err(ElasticError::Word {
                largest,
                found: setting.word,
            });
        }
        let plan = Plan { setting };
        let (_, step) = plan.steps();
        match step - setting.word <= setting.tiles.1 {
            true => Ok(plan),
            false => Err(ElasticError::Tiles {
                operand: "TILE_B",
                least: step - setting.word,
                found: setting.tiles.1,
            }),
        }
    }

    /// What was asked for.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Words of a beat.
    pub fn lanes(&self) -> usize {
        1 << self.setting.log_lanes
    }

    /// log2 of the least and of the largest N.
    pub fn log_n(&self) -> std::ops::RangeInclusive<u32> {
        let log_lanes = self.setting.log_lanes;
        2 * log_lanes + LOG_N2_MIN..=3 * log_lanes
    }

    /// Steps of a reduction and the bits of each: `toroid_pkg::montgomery_wide_step`.
    pub fn steps(&self) -> (u32, u32) {
        let most = (2 * self.setting.word + 2).min(self.setting.tiles.0);
        let steps = WIDTH.div_ceil(most);
        (steps, WIDTH.div_ceil(steps).max(self.setting.word + 1))
    }

    /// Cycles of a product: `toroid_pkg::montgomery_wide_latency`.
    pub fn mul_latency(&self) -> u64 {
        mul_latency((WIDTH, WIDTH), self.setting.tiles, true) + 4 * u64::from(self.steps().0) + 2
    }

    #[track_caller]
    fn assert_log_n(&self, log_n: u32) {
        let range = self.log_n();
        assert!(
            range.contains(&log_n),
            "log2 of N must be {} to {}, not {log_n}",
            range.start(),
            range.end()
        );
    }

    /// Beats of a transform of 2^`log_n` words.
    ///
    /// # Panics
    /// If `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn beats(&self, log_n: u32) -> u64 {
        self.assert_log_n(log_n);
        1 << (log_n - self.setting.log_lanes)
    }

    /// Beats of factors that come before the first transform of a sequence, without data, two constants in each.
    pub fn preamble(&self) -> u64 {
        2 * self.lanes() as u64
    }

    /// Whether a transform is one of this core.
    ///
    /// # Errors
    /// [`ElasticError`]
    pub fn check(&self, transform: &Transform) -> Result<(), ElasticError> {
        let range = self.log_n();
        if !range.contains(&transform.log_n) {
            return Err(ElasticError::Size {
                least: *range.start(),
                most: *range.end(),
                found: transform.log_n,
            });
        }
        let log_order = match transform.mode.is_cyclic() {
            true => transform.log_n,
            false => transform.log_n + 1,
        };
        let order = 1 << log_order.max(self.setting.word);
        if transform.q % order != 1 || !prime::is_prime(transform.q) {
            return Err(ElasticError::Modulus {
                modulus: transform.q,
                order,
            });
        }
        Ok(())
    }

    /// `tuser` of a transform.
    ///
    /// # Panics
    /// If its `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn user(&self, transform: &Transform) -> u64 {
        self.assert_log_n(transform.log_n);
        let shift = u64::from(self.log_n().end() - transform.log_n);
        ((transform.mode as u64) << (self.user_bits() - 2)) | shift
    }

    /// Bits of `tuser`.
    pub fn user_bits(&self) -> u32 {
        2 + match self.setting.log_lanes {
            2 | 3 => 1,
            _ => 2,
        }
    }

    /// The index of the word of a place in one of the core's orders.
    #[track_caller]
    fn index(&self, order: Order, log_n: u32, beat: usize, lane: usize) -> usize {
        self.assert_log_n(log_n);
        let log_lanes = self.setting.log_lanes;
        order.index(log_n, log_lanes, (beat << log_lanes) | lane)
    }

    /// The index of a word of the input.
    ///
    /// # Panics
    /// If `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn input_index(&self, log_n: u32, beat: usize, lane: usize) -> usize {
        self.index(ORDERS.0, log_n, beat, lane)
    }

    /// The index of a word of the output.
    ///
    /// # Panics
    /// If `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn output_index(&self, log_n: u32, beat: usize, lane: usize) -> usize {
        self.index(ORDERS.1, log_n, beat, lane)
    }

    /// The beats of a transform whose words, given in order of their indices, stand in an order.
    #[track_caller]
    fn arranged(&self, transform: &Transform, words: &[u64], order: Order) -> Vec<Beat> {
        self.assert_log_n(transform.log_n);
        assert_eq!(
            words.len(),
            1 << transform.log_n,
            "expected the words of a transform"
        );
        let words = order.arrange(self.setting.log_lanes, words);
        let rows = words.chunks(self.lanes()).enumerate();
        let user = self.user(transform);
        let beats = self.beats(transform.log_n) as usize;
        rows.map(|(beat, row)| Beat::of_words(row, 8, beat + 1 == beats).with_user(user))
            .collect()
    }

    /// The beats of a transform's input; `words` in order of their indices.
    ///
    /// # Panics
    /// If there are not N words, or `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn input(&self, transform: &Transform, words: &[u64]) -> Vec<Beat> {
        self.arranged(transform, words, ORDERS.0)
    }

    /// The beats that leave; `words` in order of their indices.
    ///
    /// # Panics
    /// If there are not N words, or `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn output(&self, transform: &Transform, words: &[u64]) -> Vec<Beat> {
        self.arranged(transform, words, ORDERS.1)
    }

    /// The result of a transform by the library, in order of indices on both sides.
    ///
    /// # Panics
    /// If the length is not a power of two, or there is no root of unity for it.
    pub fn expected(&self, one: &Transform, words: &[u64]) -> Vec<u64> {
        transform(words, one.q, one.mode.is_inverse(), one.mode.is_cyclic())
    }

    /// The stream of factors of a sequence, which begins with its [`preamble`](Plan::preamble): in each beat a factor of its own
    /// transform, below, and a constant of the next one, above; `tuser` is 1 in beats of a preamble, which have constants in both.
    ///
    /// # Errors
    /// If the core has not one of the transforms.
    pub fn factors(&self, sequence: &[Transform]) -> Result<Vec<Beat>, ElasticError> {
        let all = sequence
            .iter()
            .map(|one| self.check(one).map(|()| Factors::new(self, one)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut beats = Vec::new();
        let mut push =
            |changing: &dyn Fn(usize) -> u64, length: u64, next: Option<&Factors>, user: u64| {
                let constants = next.map(Factors::constants).unwrap_or_default();
                for beat in 0..length as usize {
                    let constant = constants.get(beat).copied().unwrap_or(0);
                    let words = [changing(beat), constant];
                    beats.push(Beat::of_words(&words, 8, false).with_user(user));
                }
            };
        let constants = all.first().map(Factors::constants).unwrap_or_default();
        let below = |beat: usize| constants.get(self.preamble() as usize + beat).copied();
        push(
            &|beat| below(beat).unwrap_or(0),
            self.preamble(),
            all.first(),
            1,
        );
        for (i, one) in sequence.iter().enumerate() {
            push(
                &|beat| all[i].changing(beat),
                self.beats(one.log_n),
                all.get(i + 1),
                0,
            );
        }
        Ok(beats)
    }

    /// Cycles from the first beat of data in to the last beat out, both counted, of transforms back to back that wait for
    /// nothing.
    ///
    /// # Panics
    /// If the `log_n` of one is none of [`Plan::log_n`].
    #[track_caller]
    pub fn cycles(&self, sequence: &[Transform]) -> u64 {
        let mut taken = 0;
        let mut read = 0;
        for log_n in sequence.iter().map(|one| one.log_n) {
            taken += self.beats(log_n);
            // Reading ends with the last beat that is written, N2 - 1 beats after its begin.
            let first = taken + 1 - (1 << (log_n - 2 * self.setting.log_lanes));
            read = first.max(read) + self.beats(log_n);
        }
        read + self.transit()
    }

    /// Cycles of a beat on its way, but those that it waits in the first transposition.
    fn transit(&self) -> u64 {
        let (mul, log_lanes) = (self.mul_latency(), u64::from(self.setting.log_lanes));
        let unit = log_lanes * (mul + 1);
        self.first_product() + mul + 1 + 3 + unit + self.lanes() as u64 - 1 + unit
    }

    /// Beats that may be in the pipeline: the queue after it has room for as many (`DEPTH` of its `stream_ends`).
    pub fn room(&self) -> u64 {
        let lanes = self.lanes() as u64;
        lanes * lanes - lanes + 2 + self.transit()
    }

    /// The cycle in which a beat that came in cycle 0 enters the product between the first two units: after the first unit, and
    /// not before its factors.
    fn first_product(&self) -> u64 {
        let (mul, log_lanes) = (self.mul_latency(), u64::from(self.setting.log_lanes));
        2 + (log_lanes * (mul + 1)).max((log_lanes + 1) * mul)
    }

    /// Cycles from the first beat in to the last beat out, both counted, of a transform of 2^`log_n` words.
    ///
    /// # Panics
    /// If `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn latency(&self, log_n: u32) -> u64 {
        self.cycles(&[Transform {
            q: 0,
            mode: Mode::Ntt,
            log_n,
        }])
    }

    /// Cycles from the first beat of its preamble in to the last beat of data out, both counted, of a transform of 2^`log_n` words
    /// in an idle core: factors pass a register before they are used.
    ///
    /// # Panics
    /// If `log_n` is none of [`Plan::log_n`].
    #[track_caller]
    pub fn idle_latency(&self, log_n: u32) -> u64 {
        self.preamble() + 1 + self.latency(log_n)
    }

    /// Multipliers modulo q: of the transforms' butterflies, of the product between them, and of the factors.
    pub fn multipliers(&self) -> [u64; 3] {
        let (lanes, log_lanes) = (self.lanes() as u64, u64::from(self.setting.log_lanes));
        // A square, and for each power that doubles, its square and the factors times it.
        let first = 1 + (log_lanes - 1) + (lanes - 1);
        let second = lanes - 1;
        [3 * log_lanes * lanes / 2, lanes, first + second]
    }

    /// The DSP slices: a tile of a product each.
    pub fn dsp(&self) -> u64 {
        let (tile_a, tile_b) = self.setting.tiles;
        let (steps, step) = self.steps();
        let upper = WIDTH - self.setting.word;
        // The last tile of at most 3 bits is made of look-up tables.
        let tiles = upper / tile_b + u32::from(upper % tile_b > 3);
        let product = WIDTH.div_ceil(tile_a) * WIDTH.div_ceil(tile_b);
        debug_assert!(step <= tile_a);
        self.multipliers().iter().sum::<u64>() * u64::from(product + steps * (1 + tiles))
    }

    /// The design of `hw/ntt_elastic`.
    ///
    /// # Errors
    /// If its sources are not there.
    pub fn design(&self) -> Result<Design, UnknownModule> {
        let Setting {
            log_lanes,
            word,
            tiles,
        } = self.setting;
        Ok(design("ntt_elastic")?
            .with("LOG_LANES", log_lanes)
            .with("WORD", word)
            .with("TILE_A", tiles.0)
            .with("TILE_B", tiles.1))
    }

    /// A transform drawn at random.
    pub fn draw(&self, random: &mut Random) -> Transform {
        let range = self.log_n();
        let sizes = u64::from(range.end() - range.start() + 1);
        let log_n = range.start() + random.below(sizes) as u32;
        let mode = Mode::ALL[random.below(4) as usize];
        self.draw_as(mode, log_n, random)
    }

    /// A transform of this kind with one of the largest primes of a number of bits that is drawn at random, 64 in one of three
    /// cases and 63 in another.
    ///
    /// # Panics
    /// If `log_n` is none of [`Plan::log_n`].
    pub fn draw_as(&self, mode: Mode, log_n: u32, random: &mut Random) -> Transform {
        self.assert_log_n(log_n);
        let log_order = if mode.is_cyclic() { log_n } else { log_n + 1 };
        let log_half = log_order.max(self.setting.word) - 1;
        let bits = match random.below(3) {
            0 => 64,
            1 => 63,
            _ => u64::from(log_half) + 8 + random.below(56 - u64::from(log_half)),
        };
        let bound = if bits == 64 { u64::MAX } else { 1 << bits };
        let skip = random.below(4) as usize;
        let Some(q) = prime::ntt_primes(1 << log_half, bound).nth(skip) else {
            unreachable!(
                "fewer than four primes of at most {bits} bits are 1 modulo 2^{log_half} * 2"
            );
        };
        Transform { q, mode, log_n }
    }
}

/// The factors of a transform, times R.
struct Factors {
    plan: Plan,
    one: Transform,
    /// R modulo q.
    radix: u64,
    /// psi, or 1 for a cyclic transform, and omega; of an inverse transform their inverses.
    psi: u64,
    omega: u64,
}

impl Factors {
    fn new(plan: &Plan, one: &Transform) -> Factors {
        let q = one.q;
        let (steps, step) = plan.steps();
        let omega = root(q, one.log_n, true);
        let psi = root(q, one.log_n, false);
        // The roots are such that psi squared is omega, which both are for either.
        let psi = if one.mode.is_cyclic() { 1 } else { psi };
        let omega = if one.mode.is_cyclic() {
            omega
        } else {
            prime::mul(psi, psi, q)
        };
        let side = |x| {
            if one.mode.is_inverse() {
                prime::inv(x, q)
            } else {
                x
            }
        };
        Factors {
            plan: *plan,
            one: *one,
            radix: prime::pow(2, (steps * step).into(), q),
            psi: side(psi),
            omega: side(omega),
        }
    }

    fn encoded(&self, x: u64) -> u64 {
        prime::mul(x, self.radix, self.one.q)
    }

    fn power(&self, x: u64, exponent: u64) -> u64 {
        prime::pow(x, exponent, self.one.q)
    }

    /// The factor of a beat: the ratio of the factors after the first unit, or what it is the square of.
    fn changing(&self, beat: usize) -> u64 {
        let q = self.one.q;
        self.encoded(match self.one.mode {
            Mode::Ncn => self.power(self.psi, beat as u64),
            _ => prime::mul(self.power(self.omega, beat as u64), self.psi, q),
        })
    }

    /// The constants in their order.
    fn constants(&self) -> Vec<u64> {
        let (plan, one) = (&self.plan, &self.one);
        let (log_lanes, log_n) = (plan.setting.log_lanes, one.log_n);
        let (lanes, beats) = (plan.lanes() as u64, plan.beats(log_n));
        let log_n2 = log_n - 2 * log_lanes;
        let q = one.q;
        // Roots of order LANES, and of order 2 LANES for the first unit of an NCN and the last of an INCN.
        let of_lanes = self.power(self.omega, beats);
        let psi_of_lanes = self.power(self.psi, beats);
        let (front, back) = match one.mode {
            Mode::Ncn => (psi_of_lanes, 1),
            Mode::Incn => (1, psi_of_lanes),
            _ => (1, 1),
        };
        let n_inverse = match one.mode.is_inverse() {
            true => prime::inv((1u64 << log_n) % q, q),
            false => 1,
        };
        let mut words = vec![n_inverse];
        // The first unit: of stage s, word i.
        for stage in 0..log_lanes {
            for i in 0..1usize << stage {
                let of_group = reversed(i, stage) as u64 * (lanes >> (stage + 1));
                let own = self.power(front, lanes >> (stage + 1));
                words.push(prime::mul(self.power(of_lanes, of_group), own, q));
            }
        }
        // The third: of stage t, word y.
        for stage in 0..log_lanes {
            let bits = log_lanes - 1 - stage;
            for y in 0..1usize << bits {
                let own = self.power(back, 1 << stage);
                let exponent = (reversed(y, bits) as u64) << stage;
                words.push(prime::mul(self.power(of_lanes, exponent), own, q));
            }
        }
        // The second: of its first stage, word e.
        for e in 0..lanes as usize / 2 {
            let group_bits = log_lanes - log_n2;
            let group = reversed(e & ((1 << group_bits) - 1), group_bits) as u64;
            let i = (e >> group_bits) as u64;
            words.push(self.power(of_lanes, (i << group_bits) + group));
        }
        // The second: what all factors of beat j of a group of N2 are multiplied by.
        let of_second = self.power(self.omega, lanes);
        let back_second = match one.mode {
            Mode::Incn => self.power(self.psi, lanes),
            _ => 1,
        };
        for j in 0..1u64 << log_n2 {
            words.push(prime::mul(self.power(of_second, j), back_second, q));
        }
        let encoded = words.into_iter().map(|word| self.encoded(word));
        std::iter::once(q).chain(encoded).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    const LANE_BITS: [u32; 4] = [2, 3, 4, 5];

    fn plan(log_lanes: u32) -> Plan {
        Plan::new(Setting {
            log_lanes,
            word: [4, 8, 10, 12][log_lanes as usize - 2],
            tiles: (24, 17),
        })
        .unwrap()
    }

    fn words_of(beats: &[Beat]) -> Vec<Vec<u64>> {
        beats.iter().map(|beat| beat.words(8)).collect()
    }

    /// What the core does with a transform, word by word as its header describes it; products are a · b / R.
    fn simulated(
        plan: &Plan,
        one: &Transform,
        data: &[Beat],
        changing: &[u64],
        constants: &[u64],
    ) -> Vec<Vec<u64>> {
        let l = plan.setting.log_lanes;
        let lanes = plan.lanes();
        let s = one.log_n - 2 * l;
        let q = constants[0];
        let (steps, step) = plan.steps();
        let per_radix = prime::inv(prime::pow(2, (steps * step).into(), q), q);
        let mul = |a, b| prime::mul(prime::mul(a, b, q), per_radix, q);
        let add = |a, b| prime::add(a, b, q);
        let sub = |a, b| prime::sub(a, b, q);
        let (first, third, second) = (2, lanes + 1, 2 * lanes);
        let per_beat = second + lanes / 2;
        let mut rows = words_of(data);
        for (row, &g) in rows.iter_mut().zip(changing) {
            for stage in 0..l {
                let pair = l - 1 - stage;
                for a in (0..lanes).filter(|a| (a >> pair) & 1 == 0) {
                    let w = constants[first + (1 << stage) - 1 + (a >> (pair + 1))];
                    let (x, y) = (row[a], mul(row[a | (1 << pair)], w));
                    (row[a], row[a | (1 << pair)]) = (add(x, y), sub(x, y));
                }
            }
            let is_ncn = one.mode == Mode::Ncn;
            let (base, ratio) = if is_ncn {
                (g, mul(g, g))
            } else {
                (constants[1], g)
            };
            let mut power = base;
            for k1 in 0..lanes {
                let p = reversed(k1, l);
                row[p] = mul(row[p], power);
                power = mul(power, ratio);
            }
        }
        // The first transposition, in banks.
        let index_of_lane = |lane: usize, j: usize| {
            let n2 = lane >> (l - s);
            let n3 = (reversed(lane & ((1 << (l - s)) - 1), l - s) << s) | j;
            (n2 << l) | n3
        };
        let mut banks = vec![vec![None; rows.len()]; lanes];
        for (c, row) in rows.iter().enumerate() {
            let rotation =
                ((c >> l) << (l - s)) | (reversed(c & (lanes - 1), l) & ((1 << (l - s)) - 1));
            for (p, word) in row.iter().enumerate() {
                banks[(p + rotation) % lanes][c] = Some(*word);
            }
        }
        let mut read = Vec::new();
        for k1 in 0..lanes {
            let p = reversed(k1, l);
            for j in 0..1usize << s {
                let lane = |lane: usize| {
                    banks[(p + lane) % lanes][index_of_lane(lane, j)]
                        .take()
                        .unwrap()
                };
                read.push((0..lanes).map(lane).collect::<Vec<u64>>());
            }
        }
        for (beat, row) in read.iter_mut().enumerate() {
            let u = constants[per_beat + (beat & ((1 << s) - 1))];
            let mut twiddles: Vec<u64> = (0..lanes / 2)
                .map(|e| mul(u, constants[second + e]))
                .collect();
            for stage in 0..s {
                let pair = l - 1 - stage;
                for a in (0..lanes).filter(|a| (a >> pair) & 1 == 0) {
                    let w = twiddles[a & ((1 << pair) - 1)];
                    let (x, y) = (row[a], row[a | (1 << pair)]);
                    (row[a], row[a | (1 << pair)]) = (add(x, y), mul(sub(x, y), w));
                }
                let half = twiddles.len() / 2;
                twiddles = twiddles[..half].iter().map(|w| mul(*w, *w)).collect();
            }
        }
        // The second transposition exchanges bits of the beat and of the lane.
        let mut crossed = read.clone();
        for (beat, row) in read.iter().enumerate() {
            for (lane, word) in row.iter().enumerate() {
                let (mut to_beat, mut to_lane) = (beat, lane);
                for t in 0..s {
                    let differ = ((beat >> t) ^ (lane >> (l - 1 - t))) & 1;
                    to_beat ^= differ << t;
                    to_lane ^= differ << (l - 1 - t);
                }
                crossed[to_beat][to_lane] = *word;
            }
        }
        for row in &mut crossed {
            let mut at = third;
            for stage in 0..l {
                for a in (0..lanes).filter(|a| (a >> stage) & 1 == 0) {
                    let w = constants[at + (a >> (stage + 1))];
                    let (x, y) = (row[a], row[a | (1 << stage)]);
                    (row[a], row[a | (1 << stage)]) = (add(x, y), mul(sub(x, y), w));
                }
                at += lanes >> (stage + 1);
            }
        }
        crossed
    }

    #[test]
    fn three_units_make_a_transform() {
        let mut random = Random::new(1);
        for log_lanes in LANE_BITS {
            let plan = plan(log_lanes);
            for log_n in plan.log_n().filter(|log_n| *log_n <= 12) {
                for mode in Mode::ALL {
                    let log_half = (if mode.is_cyclic() { log_n } else { log_n + 1 })
                        .max(plan.setting.word)
                        - 1;
                    let q = prime::ntt_primes(1 << log_half, u64::MAX).next().unwrap();
                    let one = Transform { q, mode, log_n };
                    let words: Vec<u64> = (0..1 << log_n).map(|_| random.below(q)).collect();
                    let factors = plan.factors(&[one]).unwrap();
                    let (preamble, own) = factors.split_at(plan.preamble() as usize);
                    assert_eq!(own.len() as u64, plan.beats(log_n));
                    let preamble = words_of(preamble);
                    let column = |at: usize| preamble.iter().map(move |words| words[at]);
                    let constants: Vec<u64> = column(1).chain(column(0)).collect();
                    let changing: Vec<u64> = words_of(own).iter().map(|words| words[0]).collect();
                    let found = simulated(
                        &plan,
                        &one,
                        &plan.input(&one, &words),
                        &changing,
                        &constants,
                    );
                    let expected = plan.output(&one, &plan.expected(&one, &words));
                    assert_eq!(found, words_of(&expected), "{log_lanes} {log_n} {mode:?}");
                }
            }
        }
    }

    #[test]
    fn constants_fit_the_shortest_transform() {
        for log_lanes in LANE_BITS {
            let plan = plan(log_lanes);
            let log_n = *plan.log_n().end();
            let q = prime::ntt_primes(1 << log_n, u64::MAX).next().unwrap();
            let longest = Transform {
                q,
                mode: Mode::Incn,
                log_n,
            };
            let constants = Factors::new(&plan, &longest).constants();
            assert_eq!(constants.len(), 7 * plan.lanes() / 2);
            assert!(constants.len() as u64 <= 2 * plan.preamble());
            assert!(constants.len() as u64 <= plan.beats(*plan.log_n().start()));
        }
    }

    #[test]
    fn words_of_a_beat_are_those_of_its_number_in_digits() {
        for log_lanes in LANE_BITS {
            let plan = plan(log_lanes);
            let lanes = plan.lanes();
            for log_n in plan.log_n() {
                let beats = (1 << log_n) / lanes;
                let n2 = beats / lanes;
                for (beat, lane) in (0..beats).flat_map(|c| (0..lanes).map(move |lane| (c, lane))) {
                    assert_eq!(plan.input_index(log_n, beat, lane), beat + beats * lane);
                    let (k1, k2) = (beat / n2, beat % n2);
                    let k = k1 + lanes * k2 + beats * lane;
                    assert_eq!(plan.output_index(log_n, beat, lane), k);
                }
            }
        }
    }

    #[test]
    fn every_drawn_transform_is_one_of_the_core() {
        for log_lanes in LANE_BITS {
            for word in WORD_MIN..=21 {
                let setting = Setting {
                    log_lanes,
                    word,
                    tiles: (24, 24),
                };
                let plan = Plan::new(setting).unwrap();
                let mut random = Random::new(word.into());
                for _ in 0..20 {
                    assert_eq!(plan.check(&plan.draw(&mut random)), Ok(()), "{setting:?}");
                }
            }
        }
        // The fewest primes that one is drawn from: of log2(q - 1) zeros and at most so many bits, any of the first four.
        for log_half in 5..=20 {
            let primes = prime::ntt_primes(1 << log_half, 1 << (log_half + 8));
            assert!(primes.count() >= 4, "{log_half}");
        }
    }

    #[test]
    fn lengths_that_the_core_has_not_are_named() {
        let plan = plan(3);
        let calls: [&dyn Fn(u32) -> u64; 6] = [
            &|log_n| plan.beats(log_n),
            &|log_n| plan.latency(log_n),
            &|log_n| plan.idle_latency(log_n),
            &|log_n| plan.input_index(log_n, 0, 0) as u64,
            &|log_n| plan.output_index(log_n, 0, 0) as u64,
            &|log_n| plan.draw_as(Mode::Ntt, log_n, &mut Random::new(1)).q,
        ];
        for call in calls {
            for log_n in [0, 7, 10] {
                let call = std::panic::AssertUnwindSafe(|| call(log_n));
                let panic = std::panic::catch_unwind(call).unwrap_err();
                assert_eq!(
                    *panic.downcast::<String>().unwrap(),
                    format!("log2 of N must be 8 to 9, not {log_n}")
                );
            }
        }
    }

    #[test]
    fn what_a_core_has_not_is_refused() {
        let plan = plan(4);
        let of = |q, mode, log_n| plan.check(&Transform { q, mode, log_n });
        assert_eq!(of(12_289, Mode::Ntt, 12), Ok(()));
        assert!(matches!(
            of(12_289, Mode::Ncn, 12),
            Err(ElasticError::Modulus { order: 8192, .. })
        ));
        assert!(matches!(
            of(12_289, Mode::Ntt, 13),
            Err(ElasticError::Size { .. })
        ));
        assert!(matches!(
            of(4097, Mode::Ntt, 10),
            Err(ElasticError::Modulus { order: 1024, .. })
        ));
        let setting = |log_lanes, word| {
            Plan::new(Setting {
                log_lanes,
                word,
                tiles: (24, 17),
            })
        };
        assert!(matches!(setting(6, 10), Err(ElasticError::Lanes(6))));
        assert!(matches!(setting(4, 22), Err(ElasticError::Word { .. })));
        assert!(matches!(setting(4, 3), Err(ElasticError::Word { .. })));
    }
}
