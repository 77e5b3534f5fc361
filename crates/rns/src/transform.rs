//! The embedding as a product of sparse matrices: coefficients to slots, and slots to coefficients.
//!
//! A ciphertext holds its message in coefficients, and arithmetic works on slots. The two linear maps between them are dense
//! matrices, but the fast transform factors them into log2(N/2) levels of three diagonals each. Stages of several levels
//! trade diagonals for depth (Chen, Chillotti and Song, Improved bootstrapping for approximate homomorphic encryption, 2019;
//! Han, Hhan and Cheon, Improved homomorphic discrete Fourier transforms, 2018): three stages of five levels have 63 or
//! 32 diagonals each at N = 2^16.
//!
//! No stage reverses bits. Coefficients in slots are therefore *folded and bit-reversed*: slot p holds
//! `m_k + i·m_(k+N/2)`, where the binary digits of k are those of p reversed. Everything between the two maps treats all slots alike, so
//! their order does not matter there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::complex::Complex;
use crate::embedding::Embedding;

/// A square matrix on slots by its diagonals that are not zero: `out[p] = Σ_d diagonal_d[p]·in[p + d mod n]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagonals {
    slots: usize,
    diagonals: BTreeMap<usize, Vec<Complex>>,
}

impl Diagonals {
    /// The matrix with these diagonals, by their offsets.
    ///
    /// # Panics
    /// If an offset is not below the number of slots, or a diagonal has another length.
    #[must_use]
    pub fn new(slots: usize, diagonals: BTreeMap<usize, Vec<Complex>>) -> Diagonals {
        for (&offset, diagonal) in &diagonals {
            assert!(offset < slots && diagonal.len() == slots);
        }
        Diagonals { slots, diagonals }
    }

    /// Slots of a vector.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Offsets and diagonals that are not zero.
    #[must_use]
    pub fn diagonals(&self) -> &BTreeMap<usize, Vec<Complex>> {
        &self.diagonals
    }

    fn empty(slots: usize) -> Diagonals {
        Diagonals {
            slots,
            diagonals: BTreeMap::new(),
        }
    }

    fn entry(&mut self, offset: usize) -> &mut Vec<Complex> {
        let slots = self.slots;
        self.diagonals
            .entry(offset)
            .or_insert_with(|| vec![Complex::ZERO; slots])
    }

    /// The level of butterflies on blocks of `length`, or its inverse.
    fn level(embedding: &Embedding, length: usize, inverse: bool) -> Diagonals {
        let slots = embedding.slots();
        let half = length / 2;
        let mut level = Diagonals::empty(slots);
        for block in (0..slots).step_by(length) {
            for j in 0..half {
                let twiddle = embedding.twiddle(length, j);
                let (low, high) = (block + j, block + j + half);
                // Rows of [1 t; 1 -t], or of its inverse [1/2 1/2; 1/(2t) -1/(2t)]. Where the two neighbours of a slot are the
                // same slot, their diagonals are one.
                let [[a, b], [c, d]] = if inverse {
                    let back = twiddle.conj() * 0.5;
                    let half = Complex::real(0.5);
                    [[half, half], [back, -back]]
                } else {
                    [[Complex::ONE, twiddle], [Complex::ONE, -twiddle]]
                };
                level.entry(0)[low] += a;
                level.entry(half)[low] += b;
                level.entry(slots - half)[high] += c;
                level.entry(0)[high] += d;
            }
        }
        level
    }

    /// The matrix that applies `first`, then `self`.
    fn after(&self, first: &Diagonals) -> Diagonals {
        let slots = self.slots;
        let mut product = Diagonals::empty(slots);
        for (&outer, left) in &self.diagonals {
            for (&inner, right) in &first.diagonals {
                let (wrapped, plain) = right.split_at(outer);
                let shifted = plain.iter().chain(wrapped);
                let sum = product.entry((outer + inner) % slots);
                for ((sum, &a), &b) in sum.iter_mut().zip(left).zip(shifted) {
                    *sum += a * b;
                }
            }
        }
        product
    }

    /// Multiplies the matrix by a number.
    pub fn scale(&mut self, factor: f64) {
        for value in self.diagonals.values_mut().flatten() {
            *value = *value * factor;
        }
    }

    /// The product with a vector, by its definition.
    ///
    /// # Panics
    /// If the vector has another length.
    #[must_use]
    pub fn apply(&self, vector: &[Complex]) -> Vec<Complex> {
        assert_eq!(vector.len(), self.slots);
        let mut out = vec![Complex::ZERO; self.slots];
        for (&offset, diagonal) in &self.diagonals {
            let (wrapped, plain) = vector.split_at(offset);
            for ((out, &a), &b) in out
                .iter_mut()
                .zip(diagonal)
                .zip(plain.iter().chain(wrapped))
            {
                *out += a * b;
            }
        }
        out
    }

    /// The offset after the widest gap, the least where there are several, and the stride: all others follow it by multiples of that.
    fn places(&self) -> (usize, usize) {
        let offsets = || self.diagonals.keys().copied();
        let (mut lowest, mut widest) = (0, 0);
        let mut before = offsets().next_back().unwrap_or(0);
        for offset in offsets() {
            let gap = (offset + self.slots - before - 1) % self.slots + 1;
            if gap > widest {
                (lowest, widest) = (offset, gap);
            }
            before = offset;
        }
        let over = |offset: usize| (offset + self.slots - lowest) % self.slots;
        (lowest, offsets().map(over).fold(self.slots, gcd))
    }

    /// Offsets grow by `offset`, and entries move `place` places ahead.
    fn moved(&self, offset: usize, place: usize) -> Diagonals {
        let diagonals = self.diagonals.iter().map(|(own, diagonal)| {
            let diagonal = rotated_right(diagonal, place);
            ((own + offset) % self.slots, diagonal)
        });
        Diagonals::new(self.slots, diagonals.collect())
    }

    /// The largest sum of squares in a row: by how much independent noise in the slots grows at most, as a variance.
    #[must_use]
    pub fn gain(&self) -> f64 {
        (0..self.slots)
            .map(|row| {
                let entries = self.diagonals.values();
                entries.map(|diagonal| diagonal[row].norm_sqr()).sum()
            })
            .fold(0.0, f64::max)
    }
}

/// How many levels each of `stages` stages takes, the first for blocks of 2: as even as can be, and the stage of the longest
/// blocks first where it cannot, since diagonals that wrap around meet there.
fn levels(slots: usize, stages: usize) -> Vec<usize> {
    let all = slots.trailing_zeros() as usize;
    assert!(
        (1..=all).contains(&stages),
        "{stages} stages of {all} levels"
    );
    (0..stages)
        .map(|stage| all / stages + usize::from(stage + all % stages >= stages))
        .collect()
}

/// The stages from slots to coefficients in the order in which they apply: folded, bit-reversed coefficients in the
/// slots become those of the polynomial.
///
/// # Panics
/// If there is not at least one level of butterflies for every stage.
#[must_use]
pub fn slots_to_coefficients(embedding: &Embedding, stages: usize) -> Vec<Diagonals> {
    let mut length = 1;
    levels(embedding.slots(), stages)
        .into_iter()
        .map(|count| {
            let mut stage: Option<Diagonals> = None;
            for _ in 0..count {
                length *= 2;
                let level = Diagonals::level(embedding, length, false);
                stage = Some(match stage {
                    Some(first) => level.after(&first),
                    None => level,
                });
            }
            stage.unwrap_or_else(|| Diagonals::empty(embedding.slots()))
        })
        .collect()
}

/// The stages from coefficients to slots in the order in which they apply: the inverses of [`slots_to_coefficients`],
/// last one first.
///
/// # Panics
/// As [`slots_to_coefficients`].
#[must_use]
pub fn coefficients_to_slots(embedding: &Embedding, stages: usize) -> Vec<Diagonals> {
    let mut length = 2 * embedding.slots();
    levels(embedding.slots(), stages)
        .into_iter()
        .rev()
        .map(|count| {
            let mut stage: Option<Diagonals> = None;
            for _ in 0..count {
                length /= 2;
                let level = Diagonals::level(embedding, length, true);
                stage = Some(match stage {
                    Some(first) => level.after(&first),
                    None => level,
                });
            }
            stage.unwrap_or_else(|| Diagonals::empty(embedding.slots()))
        })
        .collect()
}

/// A matrix as baby steps and giant steps: `Σ_g rotate_g(Σ_b diagonal_(g,b)·rotate_b(x))`, where `rotate_r` moves slot
/// p + r to slot p (Halevi and Shoup, Bootstrapping for HElib, section 4).
///
/// The rotations by b are those of one input and can share its decomposition; the sums over b cost products alone.
///
/// Where keys are few, the same sums are made by Horner's rule instead, from two or three rotations that are repeated:
/// [`StepPlan::horner`].
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan(Arc<Steps>);

#[derive(Debug, PartialEq)]
struct Steps {
    slots: usize,
    /// Rotations of the input, ascending.
    babies: Vec<usize>,
    giants: Vec<Giant>,
}

/// The rotations by which Horner's rule makes the steps of a plan; 0 for one that is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horner {
    /// From one baby step to the next.
    pub baby: usize,
    /// From one giant step to the next.
    pub giant: usize,
    /// Of the sum at the end, by the lowest giant step.
    pub lowest: usize,
    /// How many times `giant` lies between the lowest and the highest giant step.
    pub span: usize,
}

impl Horner {
    /// The rotations that take a key.
    #[must_use]
    pub fn rotations(&self) -> Vec<usize> {
        let all = [self.baby, self.giant, self.lowest].into_iter();
        all.filter(|&rotation| rotation != 0).collect()
    }
}

/// One giant step: the sum of some baby steps' products, rotated.
#[derive(Clone, Debug, PartialEq)]
pub struct Giant {
    /// Places by which the sum is rotated.
    pub rotation: usize,
    /// For each term the index of its baby step, and the diagonal, rotated back.
    pub terms: Vec<(usize, Vec<Complex>)>,
}

/// What a plan will do, before it has diagonals of its own.
struct PlannedSteps<'a> {
    babies: Vec<usize>,
    /// For each giant step its baby steps, each with its diagonal.
    giants: BTreeMap<usize, Vec<(usize, &'a [Complex])>>,
}

impl PlannedSteps<'_> {
    fn new(matrix: &Diagonals, baby_steps: usize) -> PlannedSteps<'_> {
        assert!(baby_steps > 0);
        let slots = matrix.slots;
        let (lowest, stride) = matrix.places();
        let mut babies = Vec::new();
        let mut giants: BTreeMap<usize, Vec<(usize, &[Complex])>> = BTreeMap::new();
        for (&offset, diagonal) in &matrix.diagonals {
            let step = (offset + slots - lowest) % slots / stride;
            let baby = step % baby_steps;
            let giant = (lowest + (step - baby) * stride) % slots;
            let baby = baby * stride;
            giants.entry(giant).or_default().push((baby, diagonal));
            babies.push(baby);
        }
        babies.sort_unstable();
        babies.dedup();
        PlannedSteps { babies, giants }
    }

    /// How many rotations there are other than by 0.
    fn rotations(&self) -> usize {
        let all = self.babies.iter().chain(self.giants.keys());
        all.filter(|&&rotation| rotation != 0).count()
    }
}

/// Entries, moved some places ahead.
fn rotated_right(entries: &[Complex], places: usize) -> Vec<Complex> {
    let (kept, wrapped) = entries.split_at(entries.len() - places);
    [wrapped, kept].concat()
}

impl StepPlan {
    /// A plan with this many baby steps at most.
    ///
    /// # Panics
    /// If `baby_steps` is 0.
    #[must_use]
    pub fn new(matrix: &Diagonals, baby_steps: usize) -> StepPlan {
        let steps = PlannedSteps::new(matrix, baby_steps);
        let giants = steps.giants.into_iter().map(|(rotation, terms)| {
            let terms = terms.into_iter().filter_map(|(baby, diagonal)| {
                let index = steps.babies.binary_search(&baby).ok()?;
                Some((index, rotated_right(diagonal, rotation)))
            });
            Giant {
                rotation,
                terms: terms.collect(),
            }
        });
        StepPlan(Arc::new(Steps {
            slots: matrix.slots,
            giants: giants.collect(),
            babies: steps.babies,
        }))
    }

    /// The plan with the fewest rotations other than by 0; of several, the one with the most baby steps.
    #[must_use]
    pub fn cheapest(matrix: &Diagonals) -> StepPlan {
        // Steps by powers of two up to the number of diagonals; the minimum lies near the root of that number.
        let sizes = (0..=matrix.diagonals.len().ilog2()).map(|log2| 1 << log2);
        let cheapest = sizes.min_by_key(|&size| {
            let steps = PlannedSteps::new(matrix, size);
            (steps.rotations(), usize::MAX - steps.babies.len())
        });
        StepPlan::new(matrix, cheapest.unwrap_or(1))
    }

    /// The cheapest plans of matrices that apply one after the other. What each but the last does beside a rotation is planned, and the rotation left
    /// to those after it: by [`StepPlan::horner`], only the last takes one at its end.
    #[must_use]
    pub fn sequence(stages: &[Diagonals]) -> Vec<StepPlan> {
        let slots = stages.first().map_or(1, Diagonals::slots);
        let mut lowest: Vec<usize> = stages.iter().map(|stage| stage.places().0).collect();
        // Where the offsets of a stage close a circle, it may begin anywhere: so that all rotations together are the shortest.
        let is_circle = |stage: &Diagonals| stage.diagonals.len() * stage.places().1 == slots;
        if let Some(circle) = stages.iter().position(is_circle) {
            let stride = stages[circle].places().1;
            let others: usize = lowest.iter().sum::<usize>() - lowest[circle];
            lowest[circle] = (slots - others % slots).div_ceil(stride) * stride % slots;
        }
        let mut left = 0;
        let mut plans = Vec::with_capacity(stages.len());
        for (number, (stage, own)) in stages.iter().zip(lowest).enumerate() {
            let is_last = number + 1 == stages.len();
            let moved = if is_last {
                stage.moved(left, 0)
            } else {
                left = (left + own) % slots;
                stage.moved(slots - own, left)
            };
            plans.push(StepPlan::cheapest(&moved));
        }
        plans
    }

    /// The plan of this matrix times a diagonal one: slots are multiplied by `factors` first.
    ///
    /// # Panics
    /// If there is not one factor for each slot.
    #[must_use]
    pub fn scaled(&self, factors: &[f64]) -> StepPlan {
        assert_eq!(factors.len(), self.slots());
        let giants = self.giants().iter().map(|giant| {
            let terms = giant.terms.iter().map(|(baby, diagonal)| {
                let (wrapped, plain) = factors.split_at(self.babies()[*baby]);
                let factors = plain.iter().chain(wrapped);
                let scaled = diagonal.iter().zip(factors).map(|(&x, &factor)| x * factor);
                (*baby, scaled.collect())
            });
            Giant {
                rotation: giant.rotation,
                terms: terms.collect(),
            }
        });
        StepPlan(Arc::new(Steps {
            slots: self.slots(),
            babies: self.babies().to_vec(),
            giants: giants.collect(),
        }))
    }

    /// Slots of a vector.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.0.slots
    }

    /// Rotations of the input, ascending; the index of one is what a [`Giant`]'s terms name.
    #[must_use]
    pub fn babies(&self) -> &[usize] {
        &self.0.babies
    }

    /// The giant steps.
    #[must_use]
    pub fn giants(&self) -> &[Giant] {
        &self.0.giants
    }

    /// Every rotation that takes a key switch, baby steps first: those by 0 take none.
    #[must_use]
    pub fn rotations(&self) -> Vec<usize> {
        let giants = self.giants().iter().map(|giant| giant.rotation);
        let all = self.babies().iter().copied().chain(giants);
        all.filter(|&rotation| rotation != 0).collect()
    }

    /// The steps by Horner's rule: baby step k is baby step k - 1, rotated; the sum of the giant steps starts from the highest
    /// one, and is rotated before each of the others is added.
    #[must_use]
    pub fn horner(&self) -> Horner {
        let slots = self.slots();
        let baby = self.babies().iter().fold(0, |a, &b| gcd(a, b));
        let places: Vec<usize> = self.giants().iter().map(|giant| giant.rotation).collect();
        // Around the circle: the widest gap between neighbours lies between the highest and the lowest one, that before 0 if
        // there are several.
        let mut lowest = 0;
        let mut widest = 0;
        for (i, &place) in places.iter().enumerate() {
            let before = places[(i + places.len() - 1) % places.len()];
            let gap = (place + slots - before - 1) % slots + 1;
            if gap > widest {
                (lowest, widest) = (place, gap);
            }
        }
        let over = |place: usize| (place + slots - lowest) % slots;
        let giant = places.iter().fold(0, |a, &place| gcd(a, over(place)));
        let highest = places.iter().map(|&place| over(place)).max().unwrap_or(0);
        Horner {
            baby,
            giant,
            lowest,
            span: highest.checked_div(giant).unwrap_or(0),
        }
    }

    /// Whether two plans are one and the same object.
    pub(crate) fn is(&self, other: &StepPlan) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The product with a vector, step by step.
    ///
    /// # Panics
    /// If the vector has another length.
    #[must_use]
    pub fn apply(&self, vector: &[Complex]) -> Vec<Complex> {
        assert_eq!(vector.len(), self.slots());
        let rotated = |vector: &[Complex], by: usize| {
            let mut rotated = vector.to_vec();
            rotated.rotate_left(by);
            rotated
        };
        let babies: Vec<_> = self
            .babies()
            .iter()
            .map(|&by| rotated(vector, by))
            .collect();
        let mut out = vec![Complex::ZERO; self.slots()];
        for giant in self.giants() {
            let mut sum = vec![Complex::ZERO; self.slots()];
            for (baby, diagonal) in &giant.terms {
                for ((sum, &a), &b) in sum.iter_mut().zip(diagonal).zip(&babies[*baby]) {
                    *sum += a * b;
                }
            }
            for (out, value) in out.iter_mut().zip(rotated(&sum, giant.rotation)) {
                *out += value;
            }
        }
        out
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The rotations of matrices on ciphertexts of `top` limbs and of those back to one limb, each with the limbs at which it is used.
pub(crate) fn rotations(
    to_slots: &[StepPlan],
    to_coefficients: &[StepPlan],
    top: usize,
    of_plan: impl Fn(&StepPlan) -> Vec<usize>,
) -> Vec<(i64, usize)> {
    let there = to_slots.iter().zip((0..=top).rev());
    let back = to_coefficients.iter().rev().zip(2..);
    let rotations = there.chain(back).flat_map(|(plan, limbs)| {
        let rotations = of_plan(plan).into_iter();
        rotations.map(move |steps| (steps as i64, limbs))
    });
    rotations.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::bit_reverse;

    fn vector(n: usize) -> Vec<Complex> {
        (0..n)
            .map(|p| Complex::new((p * 37 % 101) as f64 - 50.0, (p * 53 % 89) as f64 - 44.0) * 0.02)
            .collect()
    }

    fn worst(a: &[Complex], b: &[Complex]) -> f64 {
        a.iter()
            .zip(b)
            .map(|(x, y)| (*x - *y).abs())
            .fold(0.0, f64::max)
    }

    /// Folded coefficients in bit-reversed order, as the slots hold them between the two maps.
    fn folded(embedding: &Embedding, slots: &[Complex]) -> Vec<Complex> {
        let coefficients = embedding.to_coefficients(slots);
        let (low, high) = coefficients.split_at(embedding.slots());
        let mut folded: Vec<Complex> = low
            .iter()
            .zip(high)
            .map(|(&re, &im)| Complex::new(re, im))
            .collect();
        bit_reverse(&mut folded);
        folded
    }

    #[test]
    fn stages_make_the_embedding() {
        for (degree, stages) in [(16, 1), (16, 3), (64, 2), (1 << 11, 3), (1 << 12, 4)] {
            let embedding = Embedding::new(degree);
            let z = vector(embedding.slots());
            let w = coefficients_to_slots(&embedding, stages)
                .iter()
                .fold(z.clone(), |v, stage| stage.apply(&v));
            assert!(
                worst(&w, &folded(&embedding, &z)) < 1e-12,
                "{degree}, {stages}"
            );
            let back = slots_to_coefficients(&embedding, stages)
                .iter()
                .fold(w, |v, stage| stage.apply(&v));
            assert!(worst(&back, &z) < 1e-11, "{degree}, {stages}");
        }
    }

    #[test]
    fn diagonals_are_as_many_as_the_module_says() {
        let embedding = Embedding::new(1 << 16);
        let counts: Vec<_> = coefficients_to_slots(&embedding, 3)
            .iter()
            .map(|stage| stage.diagonals().len())
            .collect();
        assert_eq!(counts, [32, 63, 63]);
    }

    #[test]
    fn steps_do_what_the_matrix_does() {
        for (degree, stages) in [(32, 1), (256, 2), (1 << 11, 2)] {
            let embedding = Embedding::new(degree);
            let v = vector(embedding.slots());
            let there = coefficients_to_slots(&embedding, stages);
            for stage in there
                .iter()
                .chain(&slots_to_coefficients(&embedding, stages))
            {
                let expected = stage.apply(&v);
                for size in [1, 2, 4, 7, 8, 64] {
                    let plan = StepPlan::new(stage, size);
                    assert!(plan.babies().len() <= size);
                    assert!(worst(&plan.apply(&v), &expected) < 1e-10);
                }
                let plan = StepPlan::cheapest(stage);
                assert!(worst(&plan.apply(&v), &expected) < 1e-10);
            }
        }
    }

    #[test]
    fn sixty_three_diagonals_take_fifteen_rotations() {
        // The offsets of five levels: -31 to 31 strides.
        let slots = 1 << 12;
        let diagonals = (-31isize..=31)
            .map(|k| {
                (
                    (k * 4).rem_euclid(slots as isize) as usize,
                    vec![Complex::ONE; slots],
                )
            })
            .collect();
        let plan = StepPlan::cheapest(&Diagonals::new(slots, diagonals));
        assert_eq!((plan.babies().len(), plan.giants().len()), (8, 8));
        assert_eq!(plan.rotations().len(), 15);
        let expected = Horner {
            baby: 4,
            giant: 32,
            lowest: slots - 124,
            span: 7,
        };
        assert_eq!(plan.horner(), expected);
        assert_eq!(plan.horner().rotations().len(), 3);
    }

    /// All stages together rotate by one place at the end, for which the stage of single places has a key.
    #[test]
    fn sequences_do_what_the_matrices_do() {
        for (degree, stages) in [(32, 1), (256, 2), (1 << 11, 2), (1 << 12, 3)] {
            let embedding = Embedding::new(degree);
            let v = vector(embedding.slots());
            for stages in [
                coefficients_to_slots(&embedding, stages),
                slots_to_coefficients(&embedding, stages),
            ] {
                let expected = stages.iter().fold(v.clone(), |v, stage| stage.apply(&v));
                let plans = StepPlan::sequence(&stages);
                let found = plans.iter().fold(v.clone(), |v, plan| plan.apply(&v));
                assert!(worst(&found, &expected) < 1e-9);
                let lowest: Vec<_> = plans.iter().map(|plan| plan.horner().lowest).collect();
                let (last, others) = lowest.split_last().unwrap_or((&0, &[]));
                assert!(others.iter().all(|&lowest| lowest == 0));
                assert!(*last <= 1, "{degree}: {lowest:?}");
            }
        }
    }

    #[test]
    fn horners_rule_reaches_every_giant_step() {
        for (degree, stages) in [(16, 1), (256, 2), (1 << 11, 2), (1 << 12, 3)] {
            let embedding = Embedding::new(degree);
            let slots = embedding.slots();
            for stage in coefficients_to_slots(&embedding, stages) {
                for size in [1, 2, 4, 8, 64] {
                    let plan = StepPlan::new(&stage, size);
                    let Horner {
                        baby,
                        giant,
                        lowest,
                        span,
                    } = plan.horner();
                    let count = plan.babies().last().copied().unwrap_or(0);
                    let babies: Vec<_> = (0..=count).step_by(baby.max(1)).collect();
                    assert!(plan.babies().iter().all(|step| babies.contains(step)));
                    let reached: Vec<_> =
                        (0..=span).map(|k| (lowest + k * giant) % slots).collect();
                    let giants = plan.giants().iter();
                    assert!(
                        giants
                            .clone()
                            .all(|giant| reached.contains(&giant.rotation))
                    );
                    // None is passed in vain, but for those without a diagonal.
                    assert!(span < 2 * giants.len());
                }
            }
        }
        // A cycle that closes needs no rotation at the end.
        let embedding = Embedding::new(1 << 12);
        let stages = coefficients_to_slots(&embedding, 3);
        let horners = stages
            .iter()
            .map(|stage| StepPlan::cheapest(stage).horner());
        let counts: Vec<_> = horners.map(|horner| horner.rotations().len()).collect();
        assert_eq!(counts, [2, 3, 3]);
    }
}
