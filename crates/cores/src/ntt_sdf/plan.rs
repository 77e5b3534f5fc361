//! Plans of transforms by single-delay feedback (`hw/ntt_sdf`) and of the products of polynomials made of them (`hw/polymul_sdf`):
//! their twiddles, their orders and their cycles.

use toroid_ring::prime;

use crate::arithmetic::{
    Product, Reduction, hex_of, is_short, montgomery_word, root, solinas, transform,
};
use crate::ntt_streaming;
use crate::order::network::Permutation;
use crate::order::{End, Order, reversed, with_ends};
use crate::setting::SettingError;
use crate::sources::design;
use toroid_sim::model::{Design, Value};
use toroid_sim::sources::UnknownModule;

/// How the stages of a transform are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Radix-2 single-delay feedback: one word per cycle.
    R2sdf,
    /// Radix-2^2 single-delay feedback: one word per cycle, every other stage multiplies by one constant only.
    R22sdf,
    /// Both words of a butterfly side by side: two words per cycle.
    Modr2,
}

impl Architecture {
    /// Each at the place of its value of the cores' parameter `ARCHITECTURE`.
    pub const ALL: [Architecture; 3] = [
        Architecture::R2sdf,
        Architecture::R22sdf,
        Architecture::Modr2,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::R2sdf => "R2SDF",
            Architecture::R22sdf => "R2^2SDF",
            Architecture::Modr2 => "Modr2",
        }
    }

    /// log2 of the words of a beat.
    pub fn log_lanes(self) -> u32 {
        u32::from(self == Architecture::Modr2)
    }
}

/// What a transform is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// How its stages are joined.
    pub architecture: Architecture,
    /// log2 of the words of a polynomial.
    pub log_n: u32,
    /// A prime.
    pub modulus: u64,
    /// How products are reduced; `None`: at the least cost.
    pub reduction: Option<Reduction>,
    /// INTT, divided by N, or NTT.
    pub is_inverse: bool,
    /// Modulo x^N - 1 or x^N + 1.
    pub is_cyclic: bool,
    /// Whether values, too, are in the order of their numbers, rather than with the bits of these reversed.
    pub is_natural: bool,
    /// Bits of both operands of a DSP tile.
    pub tiles: (u32, u32),
    /// A rest of up to this many bits beside the tiles of a short product is multiplied in look-up tables.
    pub narrow: u32,
}

/// A product of every word with an entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Factor {
    /// The bit of the index that the butterfly beside it pairs.
    bit: u32,
    /// Word i takes row (i >> shift) modulo the rows.
    shift: u32,
    /// Words whose bit is 0 are multiplied by 1.
    passes: bool,
    /// The rows.
    rows: Vec<u64>,
}

impl Factor {
    fn of(&self, index: usize) -> u64 {
        match self.passes && (index >> self.bit) & 1 == 0 {
            true => 1,
            false => self.rows[(index >> self.shift) % self.rows.len()],
        }
    }
}

/// A transform.
#[derive(Clone, Debug)]
pub struct Plan {
    setting: Setting,
    front: End,
    back: End,
    /// Of two lanes.
    pairs: Option<ntt_streaming::Plan>,
}

impl Plan {
    /// The plan of a setting.
    ///
    /// # Errors
    /// [`SettingError`]
    pub fn new(setting: Setting) -> Result<Plan, SettingError> {
        let Setting { log_n, modulus, .. } = setting;
        if !(2..=15).contains(&log_n) {
            return Err(SettingError::Length(log_n));
        }
        let order = 1u64 << if setting.is_cyclic { log_n } else { log_n + 1 };
        if modulus < 8 || modulus % order != 1 || !prime::is_prime(modulus) {
            return Err(SettingError::Modulus {
                number: 0,
                modulus,
                order,
            });
        }
        if setting.reduction == Some(Reduction::Solinas) && solinas(modulus).is_none() {
            return Err(SettingError::Form);
        }
        if setting.architecture == Architecture::Modr2 {
            let values = match setting.is_natural {
                true => Order::Natural,
                false => Order::BitReversed,
            };
            let (input, output) = match setting.is_inverse {
                false => (Order::Halves, values),
                true => (values, Order::Halves),
            };
            let pairs = ntt_streaming::Plan::new(ntt_streaming::Setting {
                log_n,
                log_n_min: log_n,
                log_lanes: 1,
                moduli: vec![modulus],
                is_inverse: setting.is_inverse,
                is_cyclic: setting.is_cyclic,
                input,
                output,
                has_feedback: false,
                tiles: setting.tiles,
                narrow: setting.narrow,
                reduction: setting.reduction,
            })?;
            return Ok(Plan {
                front: pairs.front().clone(),
                back: pairs.back().clone(),
                pairs: Some(pairs),
                setting,
            });
        }
        let end = |is_there: bool| -> Result<End, SettingError> {
            Ok(match is_there {
                true => End::Lanes(Permutation::bit_reversal(0, log_n)?.route()),
                false => End::Wires,
            })
        };
        Ok(Plan {
            front: end(setting.is_natural && setting.is_inverse)?,
            back: end(setting.is_natural && !setting.is_inverse)?,
            pairs: None,
            setting,
        })
    }

    /// What was asked for.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// How products are reduced.
    pub fn reduction(&self) -> Reduction {
        let least = || Reduction::least(self.setting.modulus);
        self.setting.reduction.unwrap_or_else(least)
    }

    /// Bits of a word.
    pub fn bits(&self) -> u32 {
        self.setting.modulus.ilog2() + 1
    }

    pub(crate) fn word(&self) -> u32 {
        montgomery_word(&[self.setting.modulus], self.setting.tiles)
    }

    /// Beats of a polynomial.
    pub fn beats(&self) -> u64 {
        1 << (self.setting.log_n - self.setting.architecture.log_lanes())
    }

    /// The order of a polynomial's coefficients on the stream.
    pub fn coefficients(&self) -> Order {
        match self.setting.architecture {
            Architecture::Modr2 => Order::Halves,
            Architecture::R2sdf | Architecture::R22sdf => Order::Natural,
        }
    }

    /// The order of its values.
    pub fn values(&self) -> Order {
        match self.setting.is_natural {
            true => Order::Natural,
            false => Order::BitReversed,
        }
    }

    /// Cycles of a stage: a product, and a sum.
    pub fn stage_latency(&self) -> u64 {
        self.reduction()
            .latency(self.bits(), self.word(), self.setting.tiles)
            + 1
    }

    /// Whether the last words are made canonical in a register of their own: the memory of a permutation of one lane is one.
    fn has_register(&self) -> bool {
        self.reduction() == Reduction::Solinas
            && (self.pairs.is_some() || matches!(self.back, End::Wires))
    }

    /// Cycles from a beat of the input to the beat of the same number of the output, where beats follow each other.
    pub fn pipeline(&self) -> u64 {
        if let Some(pairs) = &self.pairs {
            return pairs.pipeline();
        }
        let end = |end: &End| match end {
            End::Lanes(network) => network.latency() as u64,
            _ => 0,
        };
        u64::from(self.setting.log_n) * self.stage_latency() + self.beats() - 1
            + u64::from(self.has_register())
            + end(&self.front)
            + end(&self.back)
    }

    /// Cycles from the first beat in to the last beat out, both counted, of one transform.
    pub fn latency(&self) -> u64 {
        self.pipeline() + self.beats()
    }

    /// Products by twiddles, the constant ones of R2^2SDF among them.
    pub fn multipliers(&self) -> u64 {
        self.setting.log_n.into()
    }

    /// The DSP slices: a tile of a product each.
    pub fn dsp(&self) -> u64 {
        let each: u64 = self
            .products()
            .iter()
            .map(|p| p.tiles(self.setting.tiles))
            .sum();
        self.multipliers() * each
    }

    /// The products of integers in a product by a twiddle.
    pub(crate) fn products(&self) -> Vec<Product> {
        self.reduction()
            .products(self.bits(), self.word(), self.setting.narrow)
    }

    /// What the twiddles of a block are powers of, z: in a level of the tree of an in-place transform whose root is level 0.
    fn twiddle(&self, level: u32, block: usize, power: u64) -> u64 {
        let Setting {
            log_n,
            modulus,
            is_inverse,
            is_cyclic,
            ..
        } = self.setting;
        let exponent = match is_cyclic {
            true => reversed(block, level) << (log_n - level - 1),
            false => reversed((1 << level) + block, log_n),
        };
        let order = 1u64 << if is_cyclic { log_n } else { log_n + 1 };
        let exponent = exponent as u64 * power % order;
        let exponent = if is_inverse {
            order - exponent
        } else {
            exponent
        };
        prime::pow(root(modulus, log_n, is_cyclic), exponent, modulus)
    }

    /// The product beside the butterfly of a bit.
    fn factor(&self, bit: u32) -> Factor {
        let Setting {
            architecture,
            log_n,
            modulus,
            is_inverse,
            ..
        } = self.setting;
        let level = log_n - 1 - bit;
        let is_last = is_inverse && bit == log_n - 1;
        let scale = match is_last {
            true => prime::inv((1u64 << log_n) % modulus, modulus),
            false => 1,
        };
        let is_single =
            architecture == Architecture::R2sdf || (bit == log_n - 1 && bit.is_multiple_of(2));
        let scaled = |twiddle| prime::mul(twiddle, scale, modulus);
        let (shift, rows): (u32, Vec<u64>) = if is_single {
            let blocks = (0..1usize << level).map(|block| self.twiddle(level, block, 1));
            match is_last {
                true => (bit, std::iter::once(1).chain(blocks).map(scaled).collect()),
                false => (bit + 1, blocks.collect()),
            }
        } else if bit % 2 == 1 {
            let quarters = (0..4usize << level).map(|row| {
                // Of the first of the two halves that the block falls into.
                let z = self.twiddle(level + 1, 2 * (row >> 2), (row & 3) as u64);
                scaled(z)
            });
            (bit - 1, quarters.collect())
        } else {
            // Block 1 of level 1: x^(N / 2) less the other square root.
            let first = self.twiddle(1, 0, 1);
            let second = self.twiddle(1, 1, 1);
            let j = prime::mul(second, prime::inv(first, modulus), modulus);
            (bit, vec![1, 1, 1, j])
        };
        Factor {
            bit,
            shift,
            passes: is_single && !is_last,
            rows,
        }
    }

    /// What stands before and after the stages.
    pub(crate) fn ends(&self) -> [&End; 2] {
        [&self.front, &self.back]
    }

    /// The rows of each product's table, in the order of the stages; of one lane.
    pub fn table_rows(&self) -> Vec<u64> {
        let rows = |bit| self.factor(bit).rows.len() as u64;
        self.bits_in_order().into_iter().map(rows).collect()
    }

    /// What the word of this index is multiplied by beside the butterfly of a bit, as the multiplier takes it; of one lane.
    pub fn operand(&self, bit: u32, index: usize) -> u64 {
        let q = self.setting.modulus;
        let factor = self.factor(bit).of(index);
        self.reduction()
            .encoded(factor, q, self.bits(), self.word())
    }

    /// The bits of the index in the order in which their butterflies come, of one lane.
    fn bits_in_order(&self) -> Vec<u32> {
        let log_n = self.setting.log_n;
        match self.setting.is_inverse {
            true => (0..log_n).collect(),
            false => (0..log_n).rev().collect(),
        }
    }

    /// The stages of one lane on whole polynomials, from the order of the input to that of the output: what `hw/ntt_sdf` computes, in
    /// the same products and sums. `None` of two lanes.
    pub fn model(&self, words: &[u64]) -> Option<Vec<u64>> {
        if self.pairs.is_some() {
            return None;
        }
        let q = self.setting.modulus;
        let arrange = |end: &End, words: Vec<u64>| match end {
            End::Wires => words,
            _ => Order::BitReversed.arrange(0, &words),
        };
        let mut words = arrange(&self.front, words.to_vec());
        for bit in self.bits_in_order() {
            let factor = self.factor(bit);
            let multiply = |words: &mut [u64]| {
                for (i, word) in words.iter_mut().enumerate() {
                    *word = prime::mul(*word, factor.of(i), q);
                }
            };
            if !self.setting.is_inverse {
                multiply(&mut words);
            }
            for i in (0..words.len()).filter(|i| (i >> bit) & 1 == 0) {
                let (a, b) = (u128::from(words[i]), u128::from(words[i | 1 << bit]));
                let wide = u128::from(q);
                words[i] = ((a + b) % wide) as u64;
                words[i | 1 << bit] = ((a + wide - b) % wide) as u64;
            }
            if self.setting.is_inverse {
                multiply(&mut words);
            }
        }
        Some(arrange(&self.back, words))
    }

    /// The tables of the stages, their names beginning with `prefix`.
    pub(crate) fn files(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        let (q, bits, word) = (self.setting.modulus, self.bits(), self.word());
        let table = |stage: u32| match &self.pairs {
            Some(pairs) => pairs.twiddles(stage),
            None => {
                let factor = self.factor(self.bits_in_order()[stage as usize]);
                let line = |row: &u64| {
                    let encoded = self.reduction().encoded(*row, q, bits, word);
                    hex_of(std::iter::once(encoded), bits as usize) + "\n"
                };
                factor.rows.iter().map(line).collect()
            }
        };
        let stages = 0..self.setting.log_n;
        stages
            .map(|stage| {
                (
                    format!("{prefix}_{stage:02}.hex"),
                    table(stage).into_bytes(),
                )
            })
            .collect()
    }

    /// A design with the parameters that every module of such stages has.
    pub(crate) fn with_arithmetic(&self, design: Design) -> Design {
        let is = |reduction| u64::from(self.reduction() == reduction);
        let narrow = match is_short(self.bits()) && self.reduction() == Reduction::Solinas {
            true => self.setting.narrow,
            false => 0,
        };
        let q = Value::Bits {
            width: 64,
            hex: format!("{:016x}", self.setting.modulus),
        };
        let mut design = design
            .with("ARCHITECTURE", self.setting.architecture as u64)
            .with("LOG_N", self.setting.log_n);
        design.parameters.push(("Q".to_owned(), q));
        design
            .with("SOLINAS", is(Reduction::Solinas))
            .with("BARRETT", is(Reduction::Barrett))
            .with("TILE_A", self.setting.tiles.0)
            .with("TILE_B", self.setting.tiles.1)
            .with("SHORT", u64::from(is_short(self.bits())))
            .with("NARROW", narrow)
    }

    /// The design of `hw/ntt_sdf`.
    ///
    /// # Errors
    /// If its sources are not there.
    pub fn design(&self) -> Result<Design, UnknownModule> {
        let is_ascending = match &self.pairs {
            Some(pairs) => pairs.is_ascending(),
            None => self.setting.is_inverse,
        };
        let design = self.with_arithmetic(design("ntt_sdf")?);
        let design = design
            .with("INVERSE", u64::from(self.setting.is_inverse))
            .with("ASCENDING", u64::from(is_ascending));
        let mut design = with_ends(design, &self.front, &self.back);
        let twiddles = ("TWIDDLES".to_owned(), Value::File("twiddles".to_owned()));
        design.parameters.push(twiddles);
        design.files.extend(self.files("twiddles"));
        Ok(design)
    }

    /// The transform of a polynomial by the library where it has one for the modulus, in order of indices on both sides.
    pub fn expected(&self, words: &[u64]) -> Vec<u64> {
        let Setting {
            modulus,
            is_inverse,
            is_cyclic,
            ..
        } = self.setting;
        transform(words, modulus, is_inverse, is_cyclic)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]
    use super::*;
    use toroid_sim::random::Random;

    #[test]
    fn the_stages_of_one_lane_are_a_transform() {
        let mut random = Random::new(1);
        for architecture in [Architecture::R2sdf, Architecture::R22sdf] {
            for log_n in 2..=9 {
                for case in 0..8u32 {
                    let setting = Setting {
                        architecture,
                        log_n,
                        modulus: 12_289,
                        reduction: None,
                        is_inverse: case & 1 == 1,
                        is_cyclic: case & 2 == 2,
                        is_natural: case & 4 == 4,
                        tiles: (24, 17),
                        narrow: 0,
                    };
                    let plan = Plan::new(setting).unwrap();
                    let words: Vec<u64> = (0..1 << log_n).map(|_| random.below(12_289)).collect();
                    let (input, output) = match plan.setting.is_inverse {
                        true => (plan.values(), plan.coefficients()),
                        false => (plan.coefficients(), plan.values()),
                    };
                    let found = plan.model(&input.arrange(0, &words)).unwrap();
                    let expected = output.arrange(0, &plan.expected(&words));
                    assert_eq!(found, expected, "{:?}", plan.setting);
                }
            }
        }
    }
}
