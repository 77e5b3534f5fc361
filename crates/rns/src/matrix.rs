//! Matrices times the slots of ciphertexts.
//!
//! With a key for every step of a plan, baby steps share the digits of the input and stay undivided, P times as large, as do the sums
//! of their products with diagonals. Only the mask of such a sum is divided by P, to be rotated by a giant step; the sum of all giant steps
//! is divided once, together with the rescaling that follows (Bossuat, Mouchet, Troncoso-Pastoriza, Hubaux: Efficient
//! bootstrapping for approximate homomorphic encryption with non-sparse keys, section 4.2). With fewer keys, the steps are made
//! one after the other by [`Horner`]'s rule.
//!
//! A stage of butterflies on short blocks has diagonals that repeat themselves. A vector of slots with a period of p belongs to a polynomial
//! in X^(N/2p), which is all that has to be kept and transformed: its values modulo a prime are 2p different ones, each for N/2p
//! neighbours in bit-reversed order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toroid_ring::prime_ntt::Ntt50Plan;

use crate::RnsError;
use crate::ciphertext::Ciphertext;
use crate::complex::Complex;
use crate::context::{Basis, Context};
use crate::division::Digits;
use crate::embedding::Embedding;
use crate::evaluation::EvaluationKeys;
use crate::poly::{Form, RnsPoly, TILE, add, dot_parts, reduce, tiles};
use crate::transform::{Horner, StepPlan};

/// A diagonal as a polynomial in X^(N/2p): 2p coefficients, and where memory allows its 2p values modulo each prime.
#[derive(Debug)]
struct Diagonal {
    coefficients: Vec<i64>,
    values: Option<Vec<u64>>,
}

/// The diagonals of a plan, encoded at one scale for one basis.
#[derive(Debug)]
pub(crate) struct Matrix {
    context: Arc<Context>,
    plan: StepPlan,
    basis: Basis,
    scale: f64,
    /// By 2p below N, the transforms of that degree for each prime of the basis.
    transforms: BTreeMap<usize, Vec<Ntt50Plan>>,
    /// By giant step and term.
    diagonals: Vec<Vec<Diagonal>>,
}

/// Encoded matrices that are kept for further ciphertexts, up to a number of bytes. Evaluators of all threads may share one.
#[derive(Debug)]
pub struct Matrices {
    budget: usize,
    kept: Mutex<Vec<Arc<Matrix>>>,
}

impl Matrices {
    /// Keeps `budget` bytes at most. What has no room is encoded again for each ciphertext: the diagonals' values, or
    /// everything about a matrix.
    #[must_use]
    pub fn new(budget: usize) -> Matrices {
        Matrices {
            budget,
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Arc<Matrix>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all matrices that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.kept().iter().map(|matrix| matrix.bytes()).sum()
    }

    /// The matrix of a plan, encoded at a scale.
    pub(crate) fn get(
        &self,
        context: &Arc<Context>,
        plan: &StepPlan,
        basis: Basis,
        scale: f64,
    ) -> Result<Arc<Matrix>, RnsError> {
        let same = |matrix: &&Arc<Matrix>| {
            Arc::ptr_eq(&matrix.context, context)
                && matrix.plan.is(plan)
                && (matrix.basis, matrix.scale) == (basis, scale)
        };
        if let Some(matrix) = self.kept().iter().find(same) {
            return Ok(Arc::clone(matrix));
        }
        let room = self.budget.saturating_sub(self.bytes());
        let matrix = Arc::new(Matrix::encode(context, plan, basis, scale, room)?);
        if matrix.bytes() + self.bytes() <= self.budget {
            self.kept().push(Arc::clone(&matrix));
        }
        Ok(matrix)
    }
}

/// The shortest power of two, from 2 on, with which a vector of slots repeats itself.
fn period(slots: &[Complex]) -> usize {
    let mut period = slots.len();
    while period > 2 {
        let (low, high) = slots[..period].split_at(period / 2);
        if low != high {
            break;
        }
        period /= 2;
    }
    period
}

impl Matrix {
    /// Keeps values of diagonals as long as `room` has bytes for them beside all coefficients.
    fn encode(
        context: &Arc<Context>,
        plan: &StepPlan,
        basis: Basis,
        scale: f64,
        room: usize,
    ) -> Result<Matrix, RnsError> {
        let mut matrix = Matrix {
            context: Arc::clone(context),
            plan: plan.clone(),
            basis,
            scale,
            transforms: BTreeMap::new(),
            diagonals: Vec::new(),
        };
        let mut embeddings: BTreeMap<usize, Embedding> = BTreeMap::new();
        let mut jobs = Vec::new();
        for giant in plan.giants() {
            let mut terms = Vec::new();
            for (_, diagonal) in &giant.terms {
                let slots = &diagonal[..period(diagonal)];
                let degree = 2 * slots.len();
                if degree < context.degree() && !matrix.transforms.contains_key(&degree) {
                    let transforms = subring(context, basis, degree)?;
                    matrix.transforms.insert(degree, transforms);
                }
                embeddings
                    .entry(degree)
                    .or_insert_with(|| Embedding::new(degree));
                terms.push(Diagonal {
                    coefficients: vec![0; degree],
                    values: None,
                });
                jobs.push(slots);
            }
            matrix.diagonals.push(terms);
        }
        let diagonals = matrix.diagonals.iter_mut().flatten();
        context.run_jobs(jobs.into_iter().zip(diagonals), |_, (slots, diagonal)| {
            let coefficients = embeddings[&(2 * slots.len())].to_coefficients(slots);
            for (integer, x) in diagonal.coefficients.iter_mut().zip(coefficients) {
                *integer = (x * scale).round() as i64;
            }
        });
        matrix.keep_values(room);
        Ok(matrix)
    }

    /// Makes values of diagonals, as many as `room` bytes have place for beside the coefficients.
    fn keep_values(&mut self, room: usize) {
        let mut room = room.saturating_sub(self.bytes());
        let mut diagonals = std::mem::take(&mut self.diagonals);
        for diagonal in diagonals.iter_mut().flatten() {
            let size = diagonal.coefficients.len();
            let words = size * self.basis.limbs();
            if 8 * words <= room {
                room -= 8 * words;
                let mut values = vec![0; words];
                let limbs = values.chunks_exact_mut(size);
                self.context.run_jobs(limbs, |limb, values| {
                    self.transform(limb, &diagonal.coefficients, values);
                });
                diagonal.values = Some(values);
            }
        }
        self.diagonals = diagonals;
    }

    /// The values of a diagonal modulo the prime of a limb.
    fn transform(&self, limb: usize, coefficients: &[i64], out: &mut [u64]) {
        let plan = match self.transforms.get(&coefficients.len()) {
            Some(transforms) => &transforms[limb],
            None => &self.context.modulus(self.basis, limb).plan,
        };
        reduce(self.context.simd(), coefficients, out, plan.modulus());
        plan.forward(out);
    }

    fn bytes(&self) -> usize {
        let words = |diagonal: &Diagonal| {
            let values = diagonal.values.as_ref().map_or(0, Vec::len);
            diagonal.coefficients.len() + values
        };
        8 * self.diagonals.iter().flatten().map(words).sum::<usize>()
    }

    /// A limb of the sum `Σ diagonal·baby` of a giant step, for both parts of ciphertexts; the limbs of the baby steps are in `babies`.
    fn sum_limb(&self, giant: usize, limb: usize, babies: &[[&[u64]; 2]], [b, a]: [&mut [u64]; 2]) {
        let degree = self.context.degree();
        let plan = &self.context.modulus(self.basis, limb).plan;
        let diagonals = &self.diagonals[giant];
        let values = diagonals.iter().map(|diagonal| {
            let size = diagonal.coefficients.len();
            match &diagonal.values {
                Some(values) => Cow::Borrowed(&values[limb * size..][..size]),
                None => {
                    let mut values = vec![0; size];
                    self.transform(limb, &diagonal.coefficients, &mut values);
                    Cow::Owned(values)
                }
            }
        });
        let values: Vec<Cow<'_, [u64]>> = values.collect();
        let terms = &self.plan.giants()[giant].terms;
        let mut expanded = vec![0; TILE * values.len()];
        for ((at, b), (_, a)) in tiles(b).zip(tiles(a)) {
            let range = at..at + b.len();
            for (values, part) in values.iter().zip(expanded.chunks_exact_mut(TILE)) {
                expand(values, degree / values.len(), at, &mut part[..b.len()]);
            }
            for (part, out) in [b, a].into_iter().enumerate() {
                let values = expanded.chunks_exact(TILE).map(|part| &part[..range.len()]);
                let steps = terms.iter();
                let steps = steps.map(|(baby, _)| &babies[*baby][part][range.clone()]);
                dot_parts(plan, out, steps.zip(values), None);
            }
        }
    }
}

/// Places from `at` on of values that stand for `each` neighbours.
fn expand(values: &[u64], each: usize, at: usize, out: &mut [u64]) {
    if each == 1 {
        out.copy_from_slice(&values[at..][..out.len()]);
    } else if each >= out.len() {
        out.fill(values[at / each]);
    } else {
        for (out, value) in out.chunks_exact_mut(each).zip(&values[at / each..]) {
            out.fill(*value);
        }
    }
}

/// The transforms of a degree modulo the primes of a basis.
fn subring(context: &Context, basis: Basis, degree: usize) -> Result<Vec<Ntt50Plan>, RnsError> {
    (0..basis.limbs())
        .map(|limb| {
            let q = context.prime(basis, limb);
            Ok(Ntt50Plan::with_simd(degree, q, context.simd())?)
        })
        .collect()
}

impl EvaluationKeys {
    /// Whether there is a key for every step of a plan on ciphertexts of `limbs` limbs.
    fn has_steps(&self, plan: &StepPlan, limbs: usize) -> bool {
        let mut rotations = plan.rotations().into_iter();
        rotations.all(|steps| self.rotates(steps as i64, limbs))
    }

    /// The matrix of a plan times the slots of a ciphertext, rescaled by one prime; the matrix is encoded at `scale`, and the scale of the result is
    /// the caller's to set. Uses a key for each step, or those of [`StepPlan::horner`] where one is missing.
    ///
    /// # Errors
    /// [`RnsError::MissingKey`]; [`RnsError::Limbs`] unless there are two limbs.
    pub(crate) fn multiply_matrix(
        &self,
        matrices: &Matrices,
        plan: &StepPlan,
        scale: f64,
        ciphertext: &Ciphertext,
    ) -> Result<Ciphertext, RnsError> {
        let context = self.context();
        let limbs = ciphertext.limbs();
        if self.has_steps(plan, limbs) {
            let basis = Basis {
                chain: limbs,
                ..context.full_basis()
            };
            let matrix = matrices.get(context, plan, basis, scale)?;
            self.step_by_step(&matrix, ciphertext)
        } else {
            let matrix = matrices.get(context, plan, Basis::chain(limbs), scale)?;
            self.by_horner(&matrix, ciphertext)
        }
    }

    fn step_by_step(&self, matrix: &Matrix, x: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let (context, basis) = (self.context(), matrix.basis);
        let mut sums = self.giant_sums(matrix, x)?.into_iter();
        let mut total: Option<[RnsPoly; 2]> = None;
        let mut rest = Vec::new();
        for (giant, sum) in matrix.plan.giants().iter().zip(sums.by_ref()) {
            match giant.rotation {
                0 => total = Some(sum),
                rotation => rest.push((rotation, sum)),
            }
        }
        let zero = || RnsPoly::zero(context, basis, Form::Values);
        let mut total = total.unwrap_or_else(|| [zero(), zero()]);
        for (rotation, [b, a]) in rest {
            let galois = self.rotation_key(rotation as i64, x.limbs())?;
            let a = a.divide_by_special();
            let digits = Digits::new(&a, basis.special);
            let [total_b, total_a] = total.each_mut().map(RnsPoly::words_mut);
            context.each_limb_of([total_b, total_a], |limb, [total_b, total_a]| {
                let q = context.prime(basis, limb);
                let mut buffer = context.pool.take(3 * context.degree());
                let (turned_b, rest) = buffer.words_mut().split_at_mut(context.degree());
                let (turned_a, image) = rest.split_at_mut(context.degree());
                let turned = [&mut *turned_b, &mut *turned_a];
                galois.key.multiply_limb(&digits, [None; 2], limb, turned);
                add(context.simd(), turned_b, b.limb(limb), q);
                for (turned, total) in [(turned_b, total_b), (turned_a, total_a)] {
                    galois.automorphism.values(turned, image);
                    add(context.simd(), total, image, q);
                }
                context.pool.put(buffer);
            });
        }
        let [b, a] = total;
        Ok(Ciphertext {
            b: b.divide_by_special_and_last()?,
            a: a.divide_by_special_and_last()?,
            scale: x.scale(),
        })
    }

    /// P times the sum of each giant step, not yet rotated, modulo Q·P.
    fn giant_sums(&self, matrix: &Matrix, x: &Ciphertext) -> Result<Vec<[RnsPoly; 2]>, RnsError> {
        let (context, basis) = (self.context(), matrix.basis);
        let (degree, limbs) = (context.degree(), x.limbs());
        let digits = Digits::new(&x.a, basis.special);
        let babies = matrix.plan.babies().iter().map(|&steps| match steps {
            0 => Ok(None),
            steps => self.rotation_key(steps as i64, limbs).map(Some),
        });
        let babies = babies.collect::<Result<Vec<_>, _>>()?;
        let giants = matrix.plan.giants();
        let sum = || [0, 1].map(|_| RnsPoly::raw(context, basis, Form::Values));
        let mut sums: Vec<[RnsPoly; 2]> = giants.iter().map(|_| sum()).collect();
        let words = sums.iter_mut().flatten().map(RnsPoly::words_mut).collect();
        context.each_limb_of_all(words, |limb, sums| {
            let plan = &context.modulus(basis, limb).plan;
            let mut buffer = context.pool.take((2 * babies.len() + 2) * degree);
            let (product, steps) = buffer.words_mut().split_at_mut(2 * degree);
            let (product_b, product_a) = product.split_at_mut(degree);
            for (baby, step) in babies.iter().zip(steps.chunks_exact_mut(2 * degree)) {
                let (b, a) = step.split_at_mut(degree);
                match baby {
                    Some(galois) => {
                        let product = [&mut *product_b, &mut *product_a];
                        let more = [Some(&x.b), None];
                        galois.key.multiply_limb(&digits, more, limb, product);
                        galois.automorphism.values(product_b, b);
                        galois.automorphism.values(product_a, a);
                    }
                    None if limb < limbs => {
                        let p = context.special_product(basis.special, plan.modulus());
                        for (own, part) in [(b, &x.b), (a, &x.a)] {
                            own.copy_from_slice(part.limb(limb));
                            plan.scale_assign(own, p);
                        }
                    }
                    None => {
                        b.fill(0);
                        a.fill(0);
                    }
                }
            }
            let steps: Vec<[&[u64]; 2]> = steps
                .chunks_exact(2 * degree)
                .map(|step| {
                    let (b, a) = step.split_at(degree);
                    [b, a]
                })
                .collect();
            let mut sums = sums.into_iter();
            for giant in 0..giants.len() {
                if let (Some(b), Some(a)) = (sums.next(), sums.next()) {
                    matrix.sum_limb(giant, limb, &steps, [b, a]);
                }
            }
            context.pool.put(buffer);
        });
        Ok(sums)
    }

    fn by_horner(&self, matrix: &Matrix, x: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let (context, basis, plan) = (self.context(), matrix.basis, &matrix.plan);
        let Horner {
            baby,
            giant,
            lowest,
            span,
        } = plan.horner();
        let mut steps = vec![x.clone()];
        let highest = plan.babies().last().copied().unwrap_or(0);
        for _ in 0..highest.checked_div(baby).unwrap_or(0) {
            if let Some(last) = steps.last() {
                steps.push(self.rotate(last, baby as i64)?);
            }
        }
        let steps: Vec<&Ciphertext> = plan
            .babies()
            .iter()
            .map(|step| &steps[step.checked_div(baby).unwrap_or(0)])
            .collect();
        let sum = |number: usize| {
            let mut sum = Ciphertext::raw(context, basis.chain, x.scale());
            let [b, a] = [&mut sum.b, &mut sum.a].map(RnsPoly::words_mut);
            context.each_limb_of([b, a], |limb, out| {
                let steps: Vec<[&[u64]; 2]> = steps
                    .iter()
                    .map(|step| [step.b.limb(limb), step.a.limb(limb)])
                    .collect();
                matrix.sum_limb(number, limb, &steps, out);
            });
            sum
        };
        let mut total: Option<Ciphertext> = None;
        for k in (0..=span).rev() {
            if let Some(total) = &mut total {
                *total = self.rotate(total, giant as i64)?;
            }
            let place = (lowest + k * giant) % plan.slots();
            if let Some(number) = plan.giants().iter().position(|g| g.rotation == place) {
                match &mut total {
                    Some(total) => total.add_assign(&sum(number))?,
                    None => total = Some(sum(number)),
                }
            }
        }
        let total = total.unwrap_or_else(|| Ciphertext::zero(context, basis.chain, x.scale()));
        self.rotate_rescale(&total, lowest as i64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::params::RnsParams;
    use crate::transform::coefficients_to_slots;

    /// Encodes diagonals with all their slots and coefficients.
    #[test]
    fn diagonals_that_repeat_themselves_are_encoded_whole() {
        let degree = 1 << 9;
        let context = Context::new(RnsParams::uniform(degree, 3, 2).unwrap()).unwrap();
        let embedding = Embedding::new(degree);
        let basis = context.full_basis();
        let scale = (1u64 << 40) as f64;
        let stages = coefficients_to_slots(&embedding, 3);
        let mut sizes = Vec::new();
        for stage in &stages {
            let plan = StepPlan::cheapest(stage);
            for budget in [0, 1 << 14, 1 << 30] {
                let matrix = Matrix::encode(&context, &plan, basis, scale, budget).unwrap();
                let values = matrix.diagonals.iter().flatten();
                let values = values.filter(|diagonal| diagonal.values.is_some());
                assert!(matrix.bytes() <= budget || values.count() == 0);
                let giants = plan.giants().iter().zip(&matrix.diagonals);
                let terms = giants.flat_map(|(giant, own)| giant.terms.iter().zip(own));
                for ((_, slots), diagonal) in terms {
                    let size = diagonal.coefficients.len();
                    let each = degree / size;
                    let coefficients = embedding.to_coefficients(slots);
                    for (at, x) in coefficients.iter().enumerate() {
                        let own = match at % each {
                            0 => diagonal.coefficients[at / each],
                            _ => 0,
                        };
                        assert!((x * scale - own as f64).abs() <= 1.0);
                    }
                    let mut spread = vec![0; degree];
                    for (at, x) in diagonal.coefficients.iter().enumerate() {
                        spread[at * each] = *x;
                    }
                    let mut poly = RnsPoly::from_i64(&context, basis, &spread).unwrap();
                    poly.to_values();
                    for limb in 0..basis.limbs() {
                        let mut values = vec![0; size];
                        matrix.transform(limb, &diagonal.coefficients, &mut values);
                        let mut out = vec![0; degree];
                        for (at, part) in tiles(&mut out) {
                            expand(&values, each, at, part);
                        }
                        assert_eq!(out, poly.limb(limb));
                        let kept = diagonal.values.as_ref();
                        assert!(kept.is_none_or(|kept| kept[limb * size..][..size] == values));
                    }
                    sizes.push(size);
                }
            }
        }
        // Blocks of 512 slots at most, then of 32, then of 4.
        sizes.dedup();
        assert_eq!(sizes[sizes.len() - 3..], [512, 64, 8]);
    }
}
