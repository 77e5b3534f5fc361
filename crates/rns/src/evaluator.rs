//! Slots of ciphertexts: the pipeline's arithmetic on RLWE.
//!
//! Every value of level l has one scale, that of its level: a product of two values of level l, divided by the prime q_l, has
//! the scale of level l - 1 exactly. Values of higher levels are multiplied by the integer that brings them there, so that
//! sums never meet different scales. A scale drifts from the size of the primes by twice as much at each level;
//! [`order_primes`] puts the chain's primes into an order that brings it back. The scale of level 0 is q_0: there
//! a value stands for a fraction of the modulus, as a column at rest has it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::RnsError;
use crate::ciphertext::{Ciphertext, Plaintext};
use crate::complex::Complex;
use crate::context::{Basis, Context};
use crate::embedding::Embedding;
use crate::evaluation::{EvaluationKeys, KeyRequest};
use crate::matrix::Matrices;
use crate::params::RnsParams;
use crate::pipeline::Pipeline;
use crate::poly::RnsPoly;
use crate::slots::{ColumnSlots, LinearSlots, Slots};
use crate::transform::{StepPlan, rotations};

/// Puts the primes of a chain other than q_0 into the order in which the scale of each level stays closest to 2 to what `log2_scale` says. Each prime
/// stays among those of its size.
pub fn order_primes(params: &mut RnsParams, log2_scale: impl Fn(usize) -> f64) {
    let Some((_, rest)) = params.chain.split_first_mut() else {
        return;
    };
    let size = |q: u64| (q as f64).log2().round() as u32;
    let mut scale = log2_scale(rest.len()).exp2();
    for last in (0..rest.len()).rev() {
        // The prime whose rescaling leaves a square nearest to the wanted scale. That of level 0 is q_0, whatever the prime.
        let below = log2_scale(last.max(1)).exp2();
        let ideal = scale * scale / below;
        let off = |q: u64| (q as f64 - ideal).abs();
        let own = size(rest[last]);
        let best = (0..=last)
            .filter(|&i| size(rest[i]) == own)
            .min_by(|&i, &j| off(rest[i]).total_cmp(&off(rest[j])));
        rest.swap(best.unwrap_or(last), last);
        scale = scale * scale / rest[last] as f64;
    }
}

/// The keys of a pipeline by which its matrices go step after step, two or three rotations a stage, instead of those for every step:
/// smaller and slower.
#[must_use]
pub fn lean_key_request(pipeline: &Pipeline) -> KeyRequest {
    KeyRequest {
        rotations: rotations(
            pipeline.to_slots(),
            pipeline.to_coefficients(),
            pipeline.levels() + 1,
            |plan| plan.horner().rotations(),
        ),
        ..pipeline.key_request()
    }
}

/// The scale of each level, from that of the highest one on.
fn scales(params: &RnsParams, top: f64) -> Vec<f64> {
    let mut scale = top;
    let mut scales = vec![0.0; params.chain.len()];
    for (level, &q) in params.chain.iter().enumerate().rev() {
        scales[level] = if level == 0 { q as f64 } else { scale };
        scale = scale * scale / q as f64;
    }
    scales
}

/// Arithmetic on the slots of ciphertexts under one set of keys.
pub struct Evaluator<'a> {
    keys: &'a EvaluationKeys,
    embedding: &'a Embedding,
    /// By level.
    scales: Vec<f64>,
    matrices: Arc<Matrices>,
}

impl<'a> Evaluator<'a> {
    /// An evaluator whose highest level has a scale of 2^`log2_scale`, about the size of the chain's primes.
    ///
    /// # Panics
    /// If the embedding has another degree than the keys.
    #[must_use]
    pub fn new(keys: &'a EvaluationKeys, embedding: &'a Embedding, log2_scale: f64) -> Self {
        let params = keys.context().params();
        assert_eq!(params.degree, embedding.degree());
        Evaluator {
            keys,
            embedding,
            scales: scales(params, log2_scale.exp2()),
            matrices: Arc::new(Matrices::new(0)),
        }
    }

    /// Keeps encoded matrices, for evaluators of the same context and scale to share. Without, each ciphertext has them encoded.
    #[must_use]
    pub fn with_matrices(self, matrices: Arc<Matrices>) -> Self {
        Evaluator { matrices, ..self }
    }

    fn context(&self) -> &Arc<Context> {
        self.keys.context()
    }

    /// q_level.
    fn prime(&self, level: usize) -> f64 {
        self.context().params().chain[level] as f64
    }

    /// The scale of a level.
    ///
    /// # Panics
    /// If the chain is shorter.
    #[must_use]
    pub fn scale(&self, level: usize) -> f64 {
        self.scales[level]
    }

    /// From a column of one limb to the highest level: coefficients m/q_0 + I, where I is what the mod-raise leaves.
    ///
    /// # Errors
    /// Those of [`EvaluationKeys::mod_raise`].
    ///
    /// # Panics
    /// If the ciphertext has more than one limb.
    pub fn raise(&self, column: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.raised(column, self.scales.len() - 1)
    }

    fn raised(&self, column: &Ciphertext, level: usize) -> Result<Ciphertext, RnsError> {
        let mut raised = self.keys.mod_raise_to(column, level + 1)?;
        raised.set_scale(self.prime(0));
        Ok(raised)
    }

    /// The polynomial whose slots, times the scale, are nearest to these, in the first `limbs` primes.
    ///
    /// # Errors
    /// [`RnsError::Length`] unless there are N/2 slots.
    pub fn encode(
        &self,
        slots: &[Complex],
        scale: f64,
        limbs: usize,
    ) -> Result<Plaintext, RnsError> {
        if slots.len() != self.embedding.slots() {
            return Err(RnsError::Length {
                expected: self.embedding.slots(),
                found: slots.len(),
            });
        }
        let coefficients = self.embedding.to_coefficients(slots);
        let integers: Vec<i64> = coefficients
            .iter()
            .map(|x| (x * scale).round() as i64)
            .collect();
        let poly = RnsPoly::from_i64(self.context(), Basis::chain(limbs), &integers)?;
        Ok(Plaintext::new(poly, scale))
    }

    /// The slots of a plaintext.
    #[must_use]
    pub fn decode(&self, plaintext: &Plaintext) -> Vec<Complex> {
        let integers = plaintext.poly().to_i128();
        let coefficients: Vec<f64> = integers
            .iter()
            .map(|&x| x as f64 / plaintext.scale())
            .collect();
        self.embedding.to_slots(&coefficients)
    }

    /// The operand at a level, at the scale of that level; itself where it is there.
    fn lowered<'c>(
        &self,
        a: &'c Ciphertext,
        level: usize,
    ) -> Result<Cow<'c, Ciphertext>, RnsError> {
        if a.limbs() == level + 1 {
            return Ok(Cow::Borrowed(a));
        }
        let factor = nearest(self.scales[level] * self.prime(level + 1) / a.scale());
        Ok(Cow::Owned(self.rescaled(level + 1, &[(a, [factor, 0])])?))
    }

    /// A combination at a level, divided by its prime; what is left has the scale of the level below, as the caller arranged.
    fn rescaled(
        &self,
        level: usize,
        terms: &[(&Ciphertext, [i128; 2])],
    ) -> Result<Ciphertext, RnsError> {
        let mut rescaled = Ciphertext::combination_rescaled(level + 1, terms)?;
        rescaled.set_scale(self.scales[level - 1]);
        Ok(rescaled)
    }

    /// The lowest level of the operands of a product, if a product may be there.
    fn common_level(
        what: &'static str,
        lowest: usize,
        levels: impl Iterator<Item = usize>,
    ) -> Result<usize, RnsError> {
        let level = levels.min().unwrap_or(0);
        if level < lowest {
            return Err(RnsError::Limbs {
                what,
                needed: lowest + 1,
                found: level + 1,
            });
        }
        Ok(level)
    }

    fn add_constant(a: &mut Ciphertext, constant: Complex) {
        let parts = gaussian(constant, a.scale());
        if parts != [0, 0] {
            a.add_gaussian(parts);
        }
    }
}

/// The nearest integer.
fn nearest(x: f64) -> i128 {
    x.round() as i128
}

fn level(a: &Ciphertext) -> usize {
    a.limbs() - 1
}

/// The integers nearest to both parts of a multiple.
fn gaussian(x: Complex, factor: f64) -> [i128; 2] {
    [x.re, x.im].map(|part| nearest(part * factor))
}

impl Slots for Evaluator<'_> {
    type Value = Ciphertext;
    type Error = RnsError;

    fn level(&self, value: &Ciphertext) -> usize {
        level(value)
    }

    fn add(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let common = level(a).min(level(b));
        let mut sum = self.lowered(a, common)?.into_owned();
        sum.add_assign(self.lowered(b, common)?.as_ref())?;
        Ok(sum)
    }

    fn sub(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let common = level(a).min(level(b));
        let mut difference = self.lowered(a, common)?.into_owned();
        difference.sub_assign(self.lowered(b, common)?.as_ref())?;
        Ok(difference)
    }

    fn affine(
        &mut self,
        a: &Ciphertext,
        factor: i32,
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        let mut result = match factor {
            1 => a.clone(),
            _ => Ciphertext::combination(a.limbs(), &[(a, [factor.into(), 0])])?,
        };
        Self::add_constant(&mut result, constant);
        Ok(result)
    }

    fn products(&mut self, pairs: &[(&Ciphertext, &Ciphertext)]) -> Result<Ciphertext, RnsError> {
        // Not at level 1: the scale of level 0 is no product's.
        let levels = pairs.iter().map(|(a, b)| level(a).min(level(b)));
        let common = Self::common_level("a product of slots", 2, levels)?;
        let lowered = pairs
            .iter()
            .map(|(a, b)| Ok((self.lowered(a, common)?, self.lowered(b, common)?)))
            .collect::<Result<Vec<_>, RnsError>>()?;
        let pairs: Vec<_> = lowered
            .iter()
            .zip(pairs)
            .map(|((left, right), (a, b))| {
                // A square stays one.
                let right = if std::ptr::eq(*a, *b) { left } else { right };
                (left.as_ref(), right.as_ref())
            })
            .collect();
        let mut product = self.keys.products_rescale(&pairs)?;
        product.set_scale(self.scales[common - 1]);
        Ok(product)
    }

    fn combine_at(
        &mut self,
        below: usize,
        terms: &[(&Ciphertext, Complex)],
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        let levels = terms.iter().map(|(value, _)| level(value));
        Self::common_level("a combination of slots", below + 1, levels)?;
        let scale = self.scales[below] * self.prime(below + 1);
        let terms: Vec<_> = terms
            .iter()
            .map(|&(value, factor)| (value, gaussian(factor, scale / value.scale())))
            .collect();
        // What is above the level drops before it costs anything.
        let mut result = self.rescaled(below + 1, &terms)?;
        Self::add_constant(&mut result, constant);
        Ok(result)
    }

    /// In one pass over the values.
    fn combine_rows_at(
        &mut self,
        below: usize,
        values: &[&Ciphertext],
        rows: &[(Vec<Complex>, Complex)],
    ) -> Result<Vec<Ciphertext>, RnsError> {
        let levels = values.iter().map(|value| level(value));
        Self::common_level("combinations of slots", below + 1, levels)?;
        let scale = self.scales[below] * self.prime(below + 1);
        let row = |(factors, _): &(Vec<Complex>, Complex)| {
            let terms = factors.iter().zip(values);
            let factors = terms.map(|(&factor, value)| gaussian(factor, scale / value.scale()));
            factors.collect::<Vec<_>>()
        };
        let factors: Vec<_> = rows.iter().map(row).collect();
        let mut results = Ciphertext::combinations_rescaled(below + 2, values, &factors)?;
        for (result, (_, constant)) in results.iter_mut().zip(rows) {
            result.set_scale(self.scales[below]);
            Self::add_constant(result, *constant);
        }
        Ok(results)
    }

    /// In one pass.
    fn sum(&mut self, values: &[&Ciphertext]) -> Result<Ciphertext, RnsError> {
        let common = values.iter().map(|value| level(value)).min().unwrap_or(0);
        let lowered = values
            .iter()
            .map(|value| self.lowered(value, common))
            .collect::<Result<Vec<_>, RnsError>>()?;
        let terms: Vec<_> = lowered
            .iter()
            .map(|value| (value.as_ref(), [1, 0]))
            .collect();
        Ciphertext::combination(common + 1, &terms)
    }

    fn conjugate(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.keys.conjugate(a)
    }

    fn times_i(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let mut turned = a.clone();
        turned.mul_monomial((self.embedding.degree() / 2) as i64);
        Ok(turned)
    }

    fn lower(&mut self, a: &Ciphertext, level: usize) -> Result<Ciphertext, RnsError> {
        Self::common_level("a lower level", level, std::iter::once(self::level(a)))?;
        Ok(self.lowered(a, level)?.into_owned())
    }

    fn weigh(
        &mut self,
        values: &[&Ciphertext],
        rows: &[Vec<u32>],
        log2_unit: u32,
    ) -> Result<Vec<Ciphertext>, RnsError> {
        let levels = values.iter().map(|value| level(value));
        let common = Self::common_level("weighted sums of slots", 1, levels)?;
        let lowered = values
            .iter()
            .map(|value| self.lowered(value, common))
            .collect::<Result<Vec<_>, RnsError>>()?;
        let values: Vec<&Ciphertext> = lowered.iter().map(Cow::as_ref).collect();
        let unit = f64::from(log2_unit).exp2() * self.scales[common];
        let factor = nearest(self.scales[common - 1] * self.prime(common) / unit);
        let sums = Ciphertext::weighted(&values, rows, factor)?;
        sums.into_iter()
            .map(|sum| {
                let mut sum = sum.rescale(1)?;
                sum.set_scale(self.scales[common - 1]);
                Ok(sum)
            })
            .collect()
    }
}

impl ColumnSlots for Evaluator<'_> {
    fn raise(&mut self, column: &Ciphertext, level: usize) -> Result<Ciphertext, RnsError> {
        self.raised(column, level)
    }
}

impl LinearSlots for Evaluator<'_> {
    fn transform(&mut self, plan: &StepPlan, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let common = Self::common_level("a matrix", 1, std::iter::once(level(a)))?;
        let scale = self.scales[common - 1] * self.prime(common);
        let encoding = scale / a.scale();
        let mut product = self
            .keys
            .multiply_matrix(&self.matrices, plan, encoding, a)?;
        product.set_scale(self.scales[common - 1]);
        Ok(product)
    }
}
