//! The model: slots in the clear, with noise of stated variance added by each operation, and a ledger of operations.
//!
//! It is the plain oracle of [`crate::evaluator`]: the same pipeline runs on it, and it keeps the same levels. Its noise is that of the ciphertexts'
//! operations in the average case, taken as Gaussian and independent: rescaling after every product, and key switches of
//! conjugations and rotations. The key switch of a product is divided by the prime of the rescaling that follows, and vanishes
//! beside it.

use std::collections::BTreeMap;

use crate::complex::Complex;
use crate::embedding::Embedding;
use crate::params::RnsParams;
use crate::slots::{ColumnSlots, LinearSlots, Slots};
use crate::transform::StepPlan;

/// The variance E|e|² that an operation adds to the value of each slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperationNoise {
    /// Rescaling.
    pub rescale: f64,
    /// A key switch that no rescaling follows.
    pub key_switch: f64,
}

impl OperationNoise {
    /// For values at a scale: rounding a pair (b, a) to integers leaves 1/12 in each coefficient of b and of a, and a meets a secret
    /// of squared norm `secret_norm`; a slot sums N coefficients. A key switch ends with such a rounding, and adds `key_noise`, the
    /// variance of a coefficient from the noise of keys.
    #[must_use]
    pub fn at_scale(degree: usize, secret_norm: f64, scale: f64, key_noise: f64) -> OperationNoise {
        let slot = degree as f64 / (scale * scale);
        let rounding = (1.0 + secret_norm) / 12.0;
        OperationNoise {
            rescale: rounding * slot,
            key_switch: (rounding + key_noise) * slot,
        }
    }
}

/// The noise of operations by level, as scales differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LevelNoise(Vec<OperationNoise>);

impl LevelNoise {
    /// That of values of each level, from 0 on; the last is that of all levels above too. A rescaling counts for the level that it leads to.
    #[must_use]
    pub fn new(levels: Vec<OperationNoise>) -> LevelNoise {
        LevelNoise(levels)
    }

    /// That of a level.
    #[must_use]
    pub fn at(&self, level: usize) -> OperationNoise {
        let own = self.0.get(level).or(self.0.last());
        own.copied().unwrap_or_default()
    }
}

impl From<OperationNoise> for LevelNoise {
    fn from(noise: OperationNoise) -> LevelNoise {
        LevelNoise(vec![noise])
    }
}

/// What an operation costs on ciphertexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// A key switch: of a product, a conjugation, a rotation.
    KeySwitch,
    /// A rotation of a value that was rotated already: its decomposition is there.
    HoistedRotation,
    /// Rescaling by one prime.
    Rescale,
    /// A product of two ciphertexts, before the key switch.
    Product,
    /// A product with a constant.
    Constant,
    /// A product with a vector that is encoded.
    Plaintext,
}

/// The levels of a value are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the levels are used up")]
pub struct NoLevel;

/// A vector in the clear.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// How many more multiplications it bears.
    pub level: usize,
    /// Its slots.
    pub slots: Vec<Complex>,
}

/// The model and its ledger.
#[derive(Clone, Debug)]
pub struct Model {
    noise: LevelNoise,
    generator: u64,
    ledger: BTreeMap<(Operation, usize), usize>,
}

impl Model {
    /// A model with this noise; a seed gives the same noise again.
    #[must_use]
    pub fn new(noise: impl Into<LevelNoise>, seed: u64) -> Model {
        Model {
            noise: noise.into(),
            generator: seed,
            ledger: BTreeMap::new(),
        }
    }

    /// How often each operation was done, by the level of its operands.
    #[must_use]
    pub fn ledger(&self) -> &BTreeMap<(Operation, usize), usize> {
        &self.ledger
    }

    /// How often an operation was done at any level.
    #[must_use]
    pub fn count(&self, operation: Operation) -> usize {
        let of_it = self
            .ledger
            .iter()
            .filter(|((which, _), _)| *which == operation);
        of_it.map(|(_, count)| count).sum()
    }

    /// Numbers in [0, 1); no cryptographic ones.
    fn uniform(&mut self) -> f64 {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        self.generator = self.generator.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.generator;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Gaussian numbers of variance 1; no cryptographic ones.
    pub fn normal(&mut self) -> f64 {
        // Box and Muller.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * Complex::turn(self.uniform()).re
    }

    fn disturb(&mut self, slots: &mut [Complex], variance: f64) {
        if variance > 0.0 {
            let sigma = (variance / 2.0).sqrt();
            for slot in slots {
                *slot += Complex::new(self.normal(), self.normal()) * sigma;
            }
        }
    }

    fn note(&mut self, operation: Operation, level: usize, times: usize) {
        *self.ledger.entry((operation, level)).or_default() += times;
    }

    /// The operand at a level: multiplied by 1 and rescaled where it comes from above.
    fn lowered(&mut self, a: &Vector, level: usize) -> Vec<Complex> {
        let mut slots = a.slots.clone();
        if a.level > level {
            self.note(Operation::Constant, level + 1, 1);
            self.rescale(level + 1, &mut slots);
        }
        slots
    }

    fn rescale(&mut self, level: usize, slots: &mut [Complex]) {
        self.note(Operation::Rescale, level, 1);
        self.disturb(slots, self.noise.at(level - 1).rescale);
    }

    fn pairwise(
        &mut self,
        a: &Vector,
        b: &Vector,
        operation: impl Fn(Complex, Complex) -> Complex,
    ) -> Vector {
        let level = a.level.min(b.level);
        let (left, right) = (self.lowered(a, level), self.lowered(b, level));
        let slots = left.iter().zip(&right).map(|(&x, &y)| operation(x, y));
        Vector {
            level,
            slots: slots.collect(),
        }
    }
}

impl Slots for Model {
    type Value = Vector;
    type Error = NoLevel;

    fn level(&self, value: &Vector) -> usize {
        value.level
    }

    fn add(&mut self, a: &Vector, b: &Vector) -> Result<Vector, NoLevel> {
        Ok(self.pairwise(a, b, |x, y| x + y))
    }

    fn sub(&mut self, a: &Vector, b: &Vector) -> Result<Vector, NoLevel> {
        Ok(self.pairwise(a, b, |x, y| x - y))
    }

    fn affine(&mut self, a: &Vector, factor: i32, constant: Complex) -> Result<Vector, NoLevel> {
        let slots = a.slots.iter().map(|&x| x * f64::from(factor) + constant);
        Ok(Vector {
            level: a.level,
            slots: slots.collect(),
        })
    }

    fn products(&mut self, pairs: &[(&Vector, &Vector)]) -> Result<Vector, NoLevel> {
        let level = pairs.iter().map(|(a, b)| a.level.min(b.level)).min();
        let level = level.filter(|&level| level > 0).ok_or(NoLevel)?;
        let mut sum = Vec::new();
        for (a, b) in pairs {
            let (left, right) = (self.lowered(a, level), self.lowered(b, level));
            sum.resize(left.len(), Complex::ZERO);
            for ((sum, &x), &y) in sum.iter_mut().zip(&left).zip(&right) {
                *sum += x * y;
            }
        }
        self.note(Operation::Product, level, pairs.len());
        self.note(Operation::KeySwitch, level, 1);
        self.rescale(level, &mut sum);
        Ok(Vector {
            level: level - 1,
            slots: sum,
        })
    }

    fn combine_at(
        &mut self,
        level: usize,
        terms: &[(&Vector, Complex)],
        constant: Complex,
    ) -> Result<Vector, NoLevel> {
        if terms.iter().any(|(value, _)| value.level <= level) {
            return Err(NoLevel);
        }
        let mut sum = Vec::new();
        for (value, factor) in terms {
            sum.resize(value.slots.len(), constant);
            for (sum, &x) in sum.iter_mut().zip(&value.slots) {
                *sum += x * *factor;
            }
        }
        self.note(Operation::Constant, level + 1, terms.len());
        self.rescale(level + 1, &mut sum);
        Ok(Vector { level, slots: sum })
    }

    fn conjugate(&mut self, a: &Vector) -> Result<Vector, NoLevel> {
        let mut slots: Vec<_> = a.slots.iter().map(|x| x.conj()).collect();
        self.note(Operation::KeySwitch, a.level, 1);
        self.disturb(&mut slots, self.noise.at(a.level).key_switch);
        Ok(Vector {
            level: a.level,
            slots,
        })
    }

    fn times_i(&mut self, a: &Vector) -> Result<Vector, NoLevel> {
        Ok(Vector {
            level: a.level,
            slots: a.slots.iter().map(|&x| x * Complex::I).collect(),
        })
    }

    fn lower(&mut self, a: &Vector, level: usize) -> Result<Vector, NoLevel> {
        if a.level < level {
            return Err(NoLevel);
        }
        let slots = self.lowered(a, level);
        Ok(Vector { level, slots })
    }

    fn weigh(
        &mut self,
        values: &[&Vector],
        rows: &[Vec<u32>],
        log2_unit: u32,
    ) -> Result<Vec<Vector>, NoLevel> {
        let level = values.iter().map(|value| value.level).min();
        let level = level.filter(|&level| level > 0).ok_or(NoLevel)?;
        let unit = (-f64::from(log2_unit)).exp2();
        let count = values.first().map_or(0, |value| value.slots.len());
        let rows = rows.iter().map(|row| {
            let mut sum = vec![Complex::ZERO; count];
            // Parts of all values stay in cache.
            for (part, sum) in sum.chunks_mut(512).enumerate() {
                for (value, &weight) in values.iter().zip(row) {
                    let weight = f64::from(weight) * unit;
                    for (sum, &x) in sum.iter_mut().zip(&value.slots[512 * part..]) {
                        *sum += x * weight;
                    }
                }
            }
            self.note(Operation::Constant, level, values.len());
            self.rescale(level, &mut sum);
            Vector {
                level: level - 1,
                slots: sum,
            }
        });
        Ok(rows.collect())
    }
}

impl LinearSlots for Model {
    fn transform(&mut self, plan: &StepPlan, a: &Vector) -> Result<Vector, NoLevel> {
        let level = Some(a.level).filter(|&level| level > 0).ok_or(NoLevel)?;
        let mut babies = Vec::new();
        for &rotation in plan.babies() {
            let mut rotated = a.slots.clone();
            rotated.rotate_left(rotation);
            if rotation != 0 {
                self.note(Operation::HoistedRotation, level, 1);
                self.disturb(&mut rotated, self.noise.at(level).key_switch);
            }
            babies.push(rotated);
        }
        let mut out = vec![Complex::ZERO; a.slots.len()];
        for giant in plan.giants() {
            let mut sum = vec![Complex::ZERO; a.slots.len()];
            for (baby, diagonal) in &giant.terms {
                for ((sum, &x), &y) in sum.iter_mut().zip(diagonal).zip(&babies[*baby]) {
                    *sum += x * y;
                }
            }
            self.note(Operation::Plaintext, level, giant.terms.len());
            self.note(
                Operation::KeySwitch,
                level,
                usize::from(giant.rotation != 0),
            );
            sum.rotate_left(giant.rotation);
            for (out, x) in out.iter_mut().zip(sum) {
                *out += x;
            }
        }
        self.rescale(level, &mut out);
        Ok(Vector {
            level: level - 1,
            slots: out,
        })
    }
}

impl ColumnSlots for Model {
    fn raise(&mut self, column: &Vector, level: usize) -> Result<Vector, NoLevel> {
        let embedding = Embedding::new(2 * column.slots.len());
        let mut coefficients = embedding.to_coefficients(&column.slots);
        for x in &mut coefficients {
            // As a mod-raise with a sparse secret leaves them.
            let terms = (0..RnsParams::ENCAPSULATION_WEIGHT).map(|_| self.uniform() - 0.5);
            *x += terms.sum::<f64>().round() - x.round();
        }
        Ok(Vector {
            level,
            slots: embedding.to_slots(&coefficients),
        })
    }
}
