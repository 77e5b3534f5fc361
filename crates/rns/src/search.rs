//! The search for parameters: levels, primes, scales, noise, failure and security of tables on columns.
//!
//! A candidate is judged by formulas alone; nothing is encrypted.
//!
//! - **Depth** is that of the pipeline, and the chain has one prime more.
//! - **Overflow**: a mod-raise leaves |x| ≤ (h + 1)/2 for a sparse secret of weight h, as x is the sum of h + 1 numbers in
//!   [-1/2, 1/2]. The exponential is made for that bound: no phase is outside, and there is no probability to count.
//! - **Noise** comes from [`Formula`] on the very pipeline that runs: first order, average case. What is squared by cleaning is bounded
//!   at [`TAIL`] standard deviations of each selector; what is left of it counts as noise of the next table.
//! - **Failure** of a batch: all rows' and selectors' chances of noise beyond that, and of a result beyond half a step of the output.
//! - **Security** of the main secret: log2(Q·P) at most [`largest_modulus`]. That of the sparse one, used at q_0·p_0 alone: bounded
//!   by [`crate::params::MAX_ENCAPSULATION_BITS`].

use toroid_tfhe::noise::{log2_add, log2_tail};
use toroid_tfhe::params::smallest_log2_noise;

use crate::complex::Complex;
use crate::formula::{Dual, Formula};
use crate::interpolation;
use crate::ladder::{Ladder, descend};
use crate::model::{LevelNoise, Model, NoLevel, Operation, OperationNoise, Vector};
use crate::noise;
use crate::params::{MAX_DIGIT_LIMBS, MAX_SPECIAL_LIMBS, RnsParams, Shape as Sizes};
use crate::table::{self, Digits, Exponential, Selected, Shape, Table};

/// Standard deviations beyond which noise of a selector counts as a failure.
pub const TAIL: f64 = 14.3;

/// The largest failure probability of a batch, as its logarithm.
pub const LOG2_FAILURE: f64 = -128.0;

/// The squared norm of integer weights that a column may be multiplied with, or summed up, before its next table.
pub const INPUT_NORM: f64 = 16.0;

/// Bits of q_0 in all candidates whose scales are not coarser: its roundings vanish beside the noise of tables of 8 bits, and what it lacks
/// is there for the matrices of the first stage.
const FIRST_BITS: u32 = 40;

/// Phases at which formulas are evaluated.
const POINTS: usize = 16;

/// log2 of the largest Q·P for 128 bits: a uniform ternary secret, noise of [`RnsParams::SIGMA`] units.
///
/// At N = 32768 and 65536 by the lattice-estimator (commit 27a581b of 2026-06-06, cost model MATZOV; the cheapest of usvp, bdd and
/// dual_hybrid): 128.6 and 128.9 bits. `bench/scheme/estimator/rns.py` asks it again. Security guidelines for implementing homomorphic encryption
/// (eprint 2024/463) have 1747 for N = 65536. Below, the line that the sets of samples take their noise from, which lies
/// on the safe side; above, nothing was estimated, and what holds for N = 65536 holds.
#[must_use]
pub fn largest_modulus(degree: usize) -> f64 {
    match degree {
        65536.. => 1736.0,
        32768.. => 864.0,
        _ => RnsParams::SIGMA.log2() - smallest_log2_noise(degree),
    }
}

/// Parameters of a pipeline, not yet judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// N.
    pub degree: usize,
    /// Bits of the scale of the stages from coefficients to slots: their results are multiplied by all that follows.
    pub log2_scale: u32,
    /// Bits of the scale of the levels below, but for those on the way down.
    pub log2_inner: u32,
    /// Bits of q_0, the modulus of a column at rest. A small one leaves more bits to the matrices of the first stage.
    pub first_bits: u32,
    /// Special primes.
    pub special: usize,
    /// Primes of a digit of a key switch.
    pub digit_limbs: usize,
    /// Stages of each linear map.
    pub stages: usize,
    /// How tables are computed.
    pub shape: Shape,
    /// Bits of the tables' values.
    pub output_bits: u32,
}

/// What operations cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Key switches.
    pub key_switches: usize,
    /// Transforms of one prime in them: the measure of the search.
    pub transforms: usize,
    /// Limbs of keys that they read, of N words each.
    pub key_limbs: usize,
}

/// What the formulas say of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Primes of the chain.
    pub limbs: usize,
    /// log2(Q·P).
    pub log2_modulus: f64,
    /// Standard deviation of a result's noise, in turns.
    pub output_deviation: f64,
    /// The most that cleaning leaves of the input's noise in a result, in turns.
    pub bias: f64,
    /// log2 of the probability that any value of a batch is wrong, for inputs that are sums of results with squared norm
    /// [`INPUT_NORM`].
    pub log2_failure: f64,
    /// The cost of one table.
    pub cost: Cost,
}

/// What a table makes of a column, by the formulas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableNoise {
    /// Standard deviation of a result, in turns, with what cleaning leaves: what the next table meets.
    pub deviation: f64,
    /// The most that cleaning leaves of the input's noise in a result, in turns.
    pub bias: f64,
    /// log2 of the probability that any value of the batch is wrong.
    pub log2_failure: f64,
}

/// To what a table is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Its digits are the messages of two columns ([`crate::pipeline::Pipeline::digits_of_two`]), each with the noise of the input.
    pub to_two: bool,
    /// A mask in the clear leaves out rows ([`crate::pipeline::Pipeline::look_up_rows`]).
    pub to_some_rows: bool,
}

impl Candidate {
    /// The noise of results for a column with noise of this standard deviation, in turns; nothing where the pipeline lacks levels.
    #[must_use]
    pub fn table_noise(&self, input: f64) -> Option<TableNoise> {
        self.noise_applied(input, Applied::default())
    }

    /// The same for a table of two columns or of some rows. Nothing for two columns where the shape has one digit.
    #[must_use]
    pub fn noise_applied(&self, input: f64, applied: Applied) -> Option<TableNoise> {
        if applied.to_two && self.shape.digits.low() == 0 {
            return None;
        }
        let (deviation, bias, log2_failure) = self.failure(input, applied).ok()?;
        Some(TableNoise {
            deviation: carried(deviation, bias),
            bias,
            log2_failure,
        })
    }

    /// Levels of the pipeline.
    #[must_use]
    pub fn levels(&self) -> usize {
        2 * self.stages + self.shape.levels()
    }

    /// Bits of the scale of a level: at level 0 that of q_0.
    #[must_use]
    pub fn log2_scale_at(&self, level: usize) -> u32 {
        if level == 0 {
            return self.first_bits;
        }
        let steps = (self.levels() - self.stages).saturating_sub(level);
        (0..steps).fold(self.log2_scale, |bits, _| descend(bits, self.log2_inner))
    }

    fn ladder(&self) -> Ladder {
        Ladder {
            degree: self.degree,
            scales: (0..=self.levels())
                .map(|level| self.log2_scale_at(level))
                .collect(),
            special: self.special,
            digit_limbs: self.digit_limbs,
        }
    }

    /// Noise of the operations, by level.
    #[must_use]
    pub fn noise_by_level(&self) -> LevelNoise {
        self.ladder().noise()
    }

    /// What primes are searched for.
    ///
    /// # Panics
    /// If the scales need primes of sizes that there are not; no candidate that is found does.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.ladder().sizes().expect("scales that primes lead to")
    }

    /// Judges the candidate; nothing where its key switches are not sound or Q·P is too large.
    #[must_use]
    pub fn judge(&self) -> Option<Judgement> {
        let secure = self.ladder().log2_modulus()? <= largest_modulus(self.degree);
        self.judge_noise().filter(|_| secure)
    }

    /// Judges the candidate whatever the size of Q·P; nothing where its key switches are not sound.
    #[must_use]
    pub fn judge_noise(&self) -> Option<Judgement> {
        let log2_modulus = self.ladder().log2_modulus()?;
        // A fixed point: the input is a sum of results.
        let fresh = RnsParams::SIGMA / f64::from(self.first_bits).exp2();
        let (mut output_deviation, mut bias, mut log2_failure) =
            self.failure(fresh, Applied::default()).ok()?;
        for _ in 0..3 {
            let input = carried(output_deviation, bias) * INPUT_NORM.sqrt();
            (output_deviation, bias, log2_failure) =
                self.failure(input, Applied::default()).ok()?;
        }
        let cost = self.cost().ok()?;
        Some(Judgement {
            limbs: self.levels() + 1,
            log2_modulus,
            output_deviation,
            bias,
            log2_failure,
            cost,
        })
    }

    /// Variance of the phases over K that the exponential sees, for a column with noise of this standard deviation (in turns).
    #[must_use]
    pub fn phase_variance(&self, input: f64) -> f64 {
        self.maps().phases(input)
    }

    /// The linear maps.
    fn maps(&self) -> Maps {
        Maps {
            degree: self.degree,
            stages: self.stages,
            top: self.levels(),
            bound: self.shape.exponential.bound(),
            noise: self.noise_by_level(),
            ladder: self.ladder(),
            baby_switches: 1.0,
        }
    }

    /// Standard deviation of a result, bias and failure for a column with noise of this standard deviation (in turns).
    fn failure(&self, input: f64, applied: Applied) -> Result<(f64, f64, f64), NoLevel> {
        let noise = self.noise_by_level();
        let variance = self.phase_variance(input);
        let top = self.stages + self.shape.levels();
        let (high, low) = (self.shape.digits.high(), self.shape.digits.low());
        let all = 1usize << (high + low);
        // Digits that differ, each at another integer: noise depends on the message by the roots' places alone.
        let points = |message_of: &dyn Fn(usize) -> f64| -> Vec<f64> {
            (0..POINTS)
                .map(|i| {
                    let message = ((i * 5 % 16) << low | (i * 3 + 1) & ((1 << low) - 1)) % all;
                    let integer = (i * 7 % 33) as f64 - 16.0;
                    (integer + message_of(message)) / self.shape.exponential.bound()
                })
                .collect()
        };

        // A digit that is cleaned once is not yet clean when it is selected.
        let raw_shape = Shape {
            cleanings: match self.shape.cleanings {
                1 => 1,
                _ => 0,
            },
            ..self.shape
        };
        let mut formula = Formula::new(noise.clone());
        let selected = if applied.to_two {
            let of_high = points(&|message| (message >> low) as f64 / f64::from(1 << high));
            let mask = (1usize << low) - 1;
            let of_low = points(&|message| (message & mask) as f64 / f64::from(1 << low));
            let [high, low] = [of_high, of_low].map(|at| formula.input(top, &at, variance));
            table::select_of_two(&mut formula, [&high, &low], &raw_shape)?
        } else {
            let points = points(&|message| message as f64 / all as f64);
            let t = formula.input(top, &points, variance);
            table::select(&mut formula, &t, &raw_shape)?
        };
        let exponential = self.shape.exponential.error() * f64::from(1 << high);
        let digits = digits_of(&mut formula, &selected)?;
        let selectors: usize = digits.iter().map(Vec::len).sum();
        let (bias, values) = if self.shape.cleanings == 0 {
            let mut deviations = vec![noise.at(self.stages).rescale.sqrt(); POINTS];
            // Any table: errors of selectors add up, each with a weight below 1. Imaginary parts of one half meet real ones of the other.
            for selector in digits.iter().flatten() {
                for (sum, variance) in deviations.iter_mut().zip(formula.variances(selector)) {
                    *sum += variance.sqrt();
                }
            }
            let deviation = deviations.into_iter().fold(0.0, f64::max);
            (self.second_order(variance), 2.0 * deviation * deviation)
        } else {
            let mut errors = vec![Vec::new(); POINTS];
            for digit in &digits {
                let mut own = vec![(0.0, 0.0); POINTS];
                for selector in digit {
                    let values = formula.values(selector).iter();
                    for ((own, value), variance) in
                        own.iter_mut().zip(values).zip(formula.variances(selector))
                    {
                        // A polynomial of degree n/2 that is at most 1 has a slope of at most n/2 (Bernstein).
                        let off = TAIL * variance.sqrt() + exponential * digit.len() as f64 / 2.0;
                        let off = (1..self.shape.cleanings)
                            .fold(off, |e, _| 3.0 * e * e + 2.0 * e * e * e);
                        match value.re > 0.5 {
                            true => own.0 = off,
                            false => own.1 += off * off,
                        }
                    }
                }
                errors
                    .iter_mut()
                    .zip(own)
                    .for_each(|(all, own)| all.push(own));
            }
            let biases = errors
                .iter()
                .map(|errors| interpolation::squares_error(errors));
            let turned = self.turned_noise(&mut formula, digits)?;
            (
                biases.fold(0.0, f64::max),
                self.squares_noise(&noise, applied) + turned,
            )
        };
        let output = match applied.to_some_rows {
            true => self.maps().masked_coefficients(values),
            false => self.maps().coefficients(values),
        };
        let rows = (self.degree as f64).log2();
        let margin = (-f64::from(self.output_bits) - 1.0).exp2() - bias;
        // Beyond a quarter of half a step, terms of higher order than those bounded may count.
        let failure = if bias > margin / 4.0 {
            0.0
        } else {
            // Real parts and imaginary ones.
            let before = (2.0 * selectors as f64).log2() + log2_tail(TAIL, 1.0);
            log2_add(before, log2_tail(margin, output)) + rows
        };
        Ok((output.sqrt(), bias, failure.min(0.0)))
    }

    /// E|e|² of the slots of a result from the imaginary parts of selectors of the only or the low digit, at most for any table.
    ///
    /// Squares of selectors r and s of both halves share a value, r² + i·s², and so do the table's values a and b for them. Where r = 1 + e and s = 1 + f, the real
    /// half's norm 1 - 2e makes Re((1 - 2e)·(a·(1 + 2e) + i·b·(1 + 2f))) = a + 2b·Im(e - f) of them, and the imaginary half's the like: norms
    /// undo errors of their own half alone, and imaginary parts of errors leave theirs. Each of the four terms has 4·b² times the variance of an imaginary part.
    fn turned_noise(&self, formula: &mut Formula, digits: Vec<Vec<Dual>>) -> Result<f64, NoLevel> {
        let mut selectors = digits.into_iter().next_back().unwrap_or_default();
        if self.shape.cleanings > 1 {
            table::clean_all(formula, &mut selectors, self.shape.cleanings - 1)?;
        }
        let mut largest = 0.0f64;
        for selector in &selectors {
            let values = formula.values(selector).iter();
            for (value, variance) in values.zip(formula.imaginary_variances(selector)) {
                if value.re > 0.5 {
                    largest = largest.max(variance);
                }
            }
        }
        Ok(16.0 * largest)
    }

    /// E|e|² of the slots of a result from the roundings of squares and of what follows, at most for any table; that of selectors goes with
    /// the squares' norm, but for what [`Self::turned_noise`] says. Sums have half of each half's values.
    fn squares_noise(&self, noise: &LevelNoise, applied: Applied) -> f64 {
        let rounded = |above: usize| noise.at(self.stages + above).rescale;
        let (high, low) = (self.shape.digits.high(), self.shape.digits.low());
        let size = |bits: u32| f64::from(1 << bits);
        // The two products, and one's conjugate; sums of either half count twice, with their real or their imaginary part. A norm meets half of two values.
        let end = noise.at(self.stages);
        let mut values = 2.0 * end.rescale + end.key_switch + 4.0 * rounded(1) + 2.0 * rounded(1);
        // Above that, squares of the only or the low digit: both halves have them once. So has each half the sum for its norm.
        let mut squares = high;
        let mut top = 2;
        if low > 0 {
            values += match self.shape.has_spectrum() && !applied.to_two {
                // Rows, and squares of the high digit: each moves from one row's values to another's.
                false => 4.0 * rounded(2) + 2.0 * size(high) * rounded(2),
                // Rows after Fourier, all of them, meet sums of absolute value 1. The rows' squares, of half values, are a half at most all together, by
                // Parseval, and sums meet them; that of 0 meets the norm as well. One of two sums is another's conjugate, as one of two powers is: what key
                // switches add there is in no square.
                true => {
                    let switched = |above: usize| noise.at(self.stages + above).key_switch;
                    let rows = 4.0 * size(high) * rounded(2);
                    rows + 6.0 * rounded(2) + 2.0 * switched(2) + 8.0 * size(high) * switched(3)
                }
            };
            // A norm's sums meet.
            values += 2.0 * rounded(2);
            (squares, top) = (low, 3);
        }
        values + (size(squares) + 2.0) * rounded(top)
    }

    /// The most that second-order terms make of noise where nothing is cleaned: interpolations of degree n/2 have a second derivative of
    /// at most (n/2)² times their largest value, which is 1 at the roots and below 3 between them.
    fn second_order(&self, variance: f64) -> f64 {
        let radians =
            TAIL * variance.sqrt() * std::f64::consts::TAU * self.shape.exponential.bound();
        let half = f64::from(1 << (self.shape.digits.high() - 1));
        let error = self.shape.exponential.error();
        1.5 * (half * radians).powi(2) + 3.0 * half * error
    }

    /// The cost of one table.
    fn cost(&self) -> Result<Cost, NoLevel> {
        let mut model = Model::new(OperationNoise::default(), 0);
        let t = Vector {
            level: self.shape.levels() + self.stages,
            slots: vec![Complex::ZERO],
        };
        let halves = [
            table::select(&mut model, &t, &self.shape)?,
            table::select(&mut model, &t, &self.shape)?,
        ];
        let digits = table::square(&mut model, halves, &self.shape)?;
        let all = 1usize << self.shape.digits.bits();
        let table = Table::new(
            self.shape.digits.bits(),
            1,
            (0..all).map(|m| (m % 2) as u32).collect(),
        );
        if let Ok(table) = table {
            table::look_up(&mut model, &digits, &table)?;
        }
        let inside = model
            .ledger()
            .iter()
            .filter(|((which, _), _)| *which == Operation::KeySwitch);
        let mut switches: Vec<_> = inside.map(|((_, level), count)| (*level, *count)).collect();
        let steps = matrix_switches(self.degree, self.stages);
        let top = self.levels();
        for stage in 0..self.stages {
            switches.push((top - stage, steps));
            switches.push((stage + 1, steps));
        }
        switches.push((top - self.stages, 1));
        Ok(cost_of(&switches, self.special, self.digit_limbs))
    }
}

/// The standard deviation of a result for the next table: that of its noise, and of a Gaussian for what cleaning leaves. At its bound that
/// one has a tail of [`TAIL`] standard deviations. Cleaning leaves squares of Gaussian noise, which below the bound are rarer: the exponent
/// of their tail falls as x, that of a Gaussian as x².
fn carried(deviation: f64, bias: f64) -> f64 {
    deviation.hypot(bias / TAIL)
}

/// Key switches of a stage of a linear map: baby and giant steps, about twice the root of its diagonals.
pub(crate) fn matrix_switches(degree: usize, stages: usize) -> usize {
    let levels = (degree as f64 / 2.0).log2() / stages as f64;
    (2.0 * (2.0 * levels.exp2()).sqrt()).ceil() as usize
}

/// The cost of key switches, given by their levels and how many of each there are.
pub(crate) fn cost_of(switches: &[(usize, usize)], special: usize, digit_limbs: usize) -> Cost {
    let mut cost = Cost::default();
    for (level, count) in switches {
        let limbs = level + 1;
        let of_digits = limbs.div_ceil(digit_limbs) * (limbs + special);
        cost.key_switches += count;
        cost.transforms += count * (of_digits + 2 * special + 2 * limbs);
        cost.key_limbs += count * 2 * of_digits;
    }
    cost
}

/// The noise of mod-raise and linear maps.
pub(crate) struct Maps {
    pub(crate) degree: usize,
    pub(crate) stages: usize,
    /// The level to which a column is raised.
    pub(crate) top: usize,
    /// K.
    pub(crate) bound: f64,
    pub(crate) ladder: Ladder,
    /// That of the ladder.
    pub(crate) noise: LevelNoise,
    /// Key switches that a baby step takes, in the mean.
    pub(crate) baby_switches: f64,
}

impl Maps {
    /// Levels of butterflies in a stage.
    fn levels(&self) -> f64 {
        (self.degree as f64 / 2.0).log2() / self.stages as f64
    }

    /// Variance of the phases over K, for a column with noise of this standard deviation (in turns).
    pub(crate) fn phases(&self, input: f64) -> f64 {
        // A mod-raise ends with a rounding under the sparse secret and a key switch; both are units of q_0.
        let unit = (-f64::from(self.ladder.scales[0])).exp2();
        let rounding = noise::rounding(RnsParams::ENCAPSULATION_WEIGHT as f64);
        let main = noise::rounding(2.0 * self.degree as f64 / 3.0);
        let rise = rounding + main + self.ladder.key_noise();
        let degree = self.degree as f64;
        let mut variance = degree * (input * input + rise * unit * unit);
        // Diagonals of matrices are rounded, and each meets a slot: N coefficients with the variance of h + 1 numbers in [-1/2, 1/2]
        // in the first stage.
        let weight = RnsParams::ENCAPSULATION_WEIGHT as f64;
        let mut size = degree * (weight + 1.0) / 12.0;
        // A diagonal of the first stage has N coefficients.
        let mut coefficients = degree;
        // Each level of butterflies halves the variance; the last stage divides by 2K as well.
        let levels = self.levels();
        for stage in 0..self.stages {
            let mut gain = (-levels).exp2();
            if stage + 1 == self.stages {
                gain *= (0.5 / self.bound).powi(2);
            }
            let (here, below) = (
                self.noise.at(self.top - stage),
                self.noise.at(self.top - stage - 1),
            );
            variance = (variance + self.baby_switches * here.key_switch) * gain + below.rescale;
            let matrix = self.ladder.log2_matrix(self.top - stage, stage == 0);
            let rounded = coefficients / 12.0 / (2.0 * matrix).exp2();
            variance += size * rounded * levels.exp2() * 2.0;
            // Slots shrink as their noise does, and the diagonals of the next stage repeat themselves in shorter blocks.
            size *= (-levels).exp2();
            coefficients *= (-levels).exp2();
        }
        // Twice the real part, and the noise of a conjugation.
        2.0 * variance + self.noise.at(self.top - self.stages).key_switch / 2.0
    }

    /// Variance of a coefficient of the result, in turns, for slots of this variance.
    pub(crate) fn coefficients(&self, variance: f64) -> f64 {
        self.after_stages(self.stages, variance)
    }

    /// The same for the rows of a mask in the clear: half of what is conjugated counts at most, and the first matrix is applied twice.
    pub(crate) fn masked_coefficients(&self, variance: f64) -> f64 {
        let (here, below) = (self.noise.at(self.stages), self.noise.at(self.stages - 1));
        let variance =
            variance + here.key_switch / 4.0 + 2.0 * self.baby_switches * here.key_switch;
        let variance = variance * self.levels().exp2() + 2.0 * below.rescale;
        self.after_stages(self.stages - 1, variance)
    }

    /// Variance of a coefficient of the result, for slots of this variance with so many stages to come.
    fn after_stages(&self, stages: usize, mut variance: f64) -> f64 {
        for level in (1..=stages).rev() {
            let (here, below) = (self.noise.at(level), self.noise.at(level - 1));
            variance += self.baby_switches * here.key_switch;
            variance = variance * self.levels().exp2() + below.rescale;
        }
        variance / self.degree as f64
    }
}

/// The selectors of each digit, those of a digit that is not cleaned too.
fn digits_of(formula: &mut Formula, selected: &Selected<Dual>) -> Result<Vec<Vec<Dual>>, NoLevel> {
    Ok(match selected {
        Selected::Powers(powers) => vec![table::selectors(formula, powers, usize::MAX)?],
        Selected::One(digit) => vec![digit.clone()],
        Selected::Two(high, low) => vec![high.clone(), low.clone()],
        Selected::Spectrum(powers, low) => {
            vec![table::selectors(formula, powers, usize::MAX)?, low.clone()]
        }
    })
}

/// The cheapest candidate for tables from `bits` to `output_bits` at this degree whose batches fail with
/// 2^[`LOG2_FAILURE`] at most; nothing where there is none.
#[must_use]
pub fn search(degree: usize, bits: u32, output_bits: u32) -> Option<(Candidate, Judgement)> {
    let high = if bits > table::MAX_DIGIT_BITS {
        bits.div_ceil(2)
    } else {
        bits
    };
    let digits = Digits::new(high, bits - high).ok()?;
    let bound = (RnsParams::ENCAPSULATION_WEIGHT + 1) as f64 / 2.0;
    // The first cleans nothing: a bit is the extremum of a cosine, flat in itself.
    let cleanings: &[u32] = if bits == 1 { &[0] } else { &[1, 2] };
    let mut candidates = Vec::new();
    for (polynomial, doublings) in [(27, 3), (31, 3), (47, 2), (63, 2)] {
        let exponential = Exponential::new(bound, polynomial, doublings).ok()?;
        for &cleanings in cleanings {
            for (special, digit_limbs) in digit_shapes() {
                for log2_inner in 28..=49 {
                    for log2_scale in log2_inner..=49 {
                        candidates.push(Candidate {
                            degree,
                            log2_scale,
                            log2_inner,
                            first_bits: log2_inner.max(FIRST_BITS.min(log2_scale)),
                            special,
                            digit_limbs,
                            stages: 3,
                            shape: Shape {
                                digits,
                                exponential,
                                cleanings,
                            },
                            output_bits,
                        });
                    }
                }
            }
        }
    }
    cheapest(candidates)
}

/// Parameters among which a search chooses.
pub(crate) trait Searched: Copy {
    type Judgement;
    fn ladder(&self) -> Ladder;
    /// Transforms of one table.
    fn transforms(&self) -> Option<usize>;
    /// Whether another candidate needs as many for certain.
    fn costs_as(&self, other: &Self) -> bool;
    /// Whether there is no less noise than in another candidate.
    fn is_coarser(&self, other: &Self) -> bool;
    /// log2 of the failure probability, and all that is known.
    fn judged(&self) -> Option<(f64, Self::Judgement)>;
}

/// The candidate with the fewest transforms that is secure and fails with 2^[`LOG2_FAILURE`] at most.
pub(crate) fn cheapest<C: Searched>(candidates: Vec<C>) -> Option<(C, C::Judgement)> {
    let mut costs: Vec<(C, usize)> = Vec::new();
    let mut sound = Vec::new();
    for candidate in candidates {
        let ladder = candidate.ladder();
        let log2_modulus = ladder.log2_modulus();
        let Some(log2_modulus) = log2_modulus.filter(|&x| x <= largest_modulus(ladder.degree))
        else {
            continue;
        };
        let known = costs.iter().find(|(other, _)| candidate.costs_as(other));
        let cost = match known {
            Some((_, cost)) => *cost,
            None => {
                let cost = candidate.transforms()?;
                costs.push((candidate, cost));
                cost
            }
        };
        sound.push((cost, log2_modulus as u32, candidate));
    }
    // The cheapest first, and of these the largest modulus, which has the least noise.
    sound.sort_by_key(|&(cost, log2_modulus, _)| (cost, std::cmp::Reverse(log2_modulus)));
    let mut failed: Vec<C> = Vec::new();
    sound.into_iter().find_map(|(_, _, candidate)| {
        if failed.iter().any(|other| candidate.is_coarser(other)) {
            return None;
        }
        let (log2_failure, judgement) = candidate.judged()?;
        if log2_failure > LOG2_FAILURE {
            failed.push(candidate);
            return None;
        }
        Some((candidate, judgement))
    })
}

/// Numbers of special primes, each with the numbers of a digit's primes that may be sound.
pub(crate) fn digit_shapes() -> impl Iterator<Item = (usize, usize)> {
    let special = 1..=MAX_SPECIAL_LIMBS;
    special.flat_map(|special| {
        (special..=MAX_DIGIT_LIMBS.min(2 * special)).map(move |digit| (special, digit))
    })
}

impl Searched for Candidate {
    type Judgement = Judgement;

    fn ladder(&self) -> Ladder {
        self.ladder()
    }

    fn transforms(&self) -> Option<usize> {
        self.cost().ok().map(|cost| cost.transforms)
    }

    fn costs_as(&self, other: &Candidate) -> bool {
        self.shape == other.shape
            && (self.special, self.digit_limbs) == (other.special, other.digit_limbs)
    }

    fn is_coarser(&self, other: &Candidate) -> bool {
        self.shape == other.shape
            && self.log2_scale <= other.log2_scale
            && self.log2_inner <= other.log2_inner
            && self.first_bits >= other.first_bits
    }

    fn judged(&self) -> Option<(f64, Judgement)> {
        let judgement = self.judge()?;
        Some((judgement.log2_failure, judgement))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// E|e|² of a slot of a table's values, to first order: the pipeline itself on derivatives, for some messages in both halves.
    fn first_order(candidate: &Candidate, table: &Table) -> f64 {
        let shape = &candidate.shape;
        let mut formula = Formula::new(candidate.noise_by_level());
        let top = candidate.stages + shape.levels();
        let variance = candidate.phase_variance(1e-9);
        let all = 1usize << shape.digits.bits();
        let halves = [0, 3].map(|first| {
            let messages = (0..4).map(|i| (first + 5 * i) % all);
            let phases = messages.map(|m| m as f64 / all as f64 / shape.exponential.bound());
            let t = formula.input(top, &phases.collect::<Vec<_>>(), variance);
            table::select(&mut formula, &t, shape).unwrap()
        });
        let digits = table::square(&mut formula, halves, shape).unwrap();
        let values = table::look_up(&mut formula, &digits, table).unwrap();
        let variances = formula.variances(&values);
        variances.into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn no_table_has_more_noise_than_the_formula() {
        for (bits, cleanings) in [(1, 0), (2, 1), (4, 1), (6, 1), (8, 1), (6, 2)] {
            let (mut candidate, _) = search(1 << 16, bits, bits).unwrap();
            candidate.shape.cleanings = cleanings;
            let (stated, ..) = candidate.failure(1e-9, Applied::default()).unwrap();
            let all = 1u32 << bits;
            let tables: [&dyn Fn(u32) -> bool; 4] =
                [&|_| true, &|m| m % 2 == 0, &|m| m < all / 2, &|m| {
                    m.wrapping_mul(0x9e37_79b9) >> 31 == 0
                }];
            let mut largest = 0.0f64;
            for one in tables {
                // As many bits as make 1 of the largest value, nearly.
                let values = (0..all).map(|m| 0xffff * u32::from(one(m))).collect();
                let table = Table::new(bits, 16, values).unwrap();
                largest = largest.max(first_order(&candidate, &table));
            }
            let ratio = candidate.maps().coefficients(largest) / stated.powi(2);
            assert!((0.2..=1.001).contains(&ratio), "{bits} bits: {ratio}");
        }
    }
}
