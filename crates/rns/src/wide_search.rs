//! The search for parameters of wide tables, as [`crate::search`] does it for those of up to 8 bits.
//!
//! Scales differ by level. *Coarse* ones do for all levels at which cleaning is to come, since it squares away what their roundings add.
//! From the square of the last cleaning on, *fine* ones are wanted: noise that enters there stays. Phases are multiplied by all that follows, so that the stages
//! that make them have a scale of their own.
//!
//! Noise, beyond what [`crate::search`] says:
//!
//! - The low part's pass sees the column's noise 2^h times as large. The high part's sees that of the column and of the subtracted one.
//! - A table's noise is that of its weighted sum for the worst weights in [0, 1]: of each digit's selectors by [`Formula::weighted_variances`],
//!   of all pairs' roundings as independent ones. The worst table has 1 but where a digit has its last value, and 0 there: the last selector is 1 less
//!   the others and has the noise of all of them, which counts in full where its weight is 0 and theirs are 1.
//! - Phases are sums of h + 1 numbers in [-1/2, 1/2], and hardly ever near the ends of the exponential's interval, where its noise is largest: there, as
//!   many standard deviations fewer count as phases are rarer ([`tail_at`]).
//! - What cleaning leaves of noise beyond first order is bounded at [`TAIL`] standard deviations for each digit and adds up. It shifts the phases of
//!   the next table, by the root of [`INPUT_NORM`] times as much, and those of the high part in the same table.

use toroid_tfhe::noise::{log2_add, log2_tail};

use crate::complex::Complex;
use crate::formula::Formula;
use crate::ladder::{Ladder, descend};
use crate::model::{LevelNoise, Model, NoLevel, Operation, OperationNoise, Vector};
use crate::params::{MAX_PRIME_BITS, RnsParams, Shape as Sizes};
use crate::search::{
    Cost, INPUT_NORM, Maps, Searched, TAIL, TableNoise, cheapest, cost_of, digit_shapes,
    largest_modulus, matrix_switches,
};
use crate::table::{Digits, Exponential, Table};
use crate::wide::{
    Apart, Digit, Part, Pass, WidePipeline, WideShape, clean_down, late_bits, raw_selectors,
    selectors,
};

/// Key switches of a baby step in the mean, where the steps of a matrix are made one after the other: of eight, the first has none.
const LEAN_SWITCHES: f64 = 3.5;

/// Bits of q_0 in all candidates: its roundings vanish beside the noise of tables of 16 bits.
const FIRST_BITS: u32 = 44;

/// Parameters of wide tables, not yet judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideCandidate {
    /// N.
    pub degree: usize,
    /// Bits of the scale of the stages from coefficients to slots, in a pass of two digits.
    pub log2_scale: u32,
    /// Bits of the scale below, but for levels on the way down, and above the last cleaning of early digits.
    pub log2_coarse: u32,
    /// Bits of the scale from there on.
    pub log2_fine: u32,
    /// Bits of q_0, the modulus of a column at rest. A small one leaves more bits to the matrices of the first stage.
    pub first_bits: u32,
    /// Special primes.
    pub special: usize,
    /// Primes of a digit of a key switch.
    pub digit_limbs: usize,
    /// Stages of each linear map.
    pub stages: usize,
    /// How tables are computed.
    pub shape: WideShape,
    /// Bits of the tables' values.
    pub output_bits: u32,
}

/// What the formulas say of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideJudgement {
    /// Primes of the chain.
    pub limbs: usize,
    /// log2(Q·P).
    pub log2_modulus: f64,
    /// Standard deviation of a result's noise, in turns.
    pub output_deviation: f64,
    /// The most that cleaning leaves of noise in a result beyond first order, in turns.
    pub bias: f64,
    /// log2 of the probability that any value of a batch is wrong, for inputs that are sums of results with squared norm
    /// [`INPUT_NORM`].
    pub log2_failure: f64,
    /// Of a column's digits and its first table.
    pub first: Cost,
    /// Of a further table of the same column.
    pub further: Cost,
}

/// Noise in the course of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideNoise {
    /// Variance of the phases over K that the low part's exponential sees.
    pub low_phases: f64,
    /// Variance of a coefficient of the low part's column, in turns.
    pub low_column: f64,
    /// Variance of the phases over K that the high part's exponential sees.
    pub high_phases: f64,
    /// E|e|² of a slot of the table's values, at most.
    pub values: f64,
    /// Variance of a coefficient of the result, in turns, at most.
    pub output: f64,
    /// The most that cleaning leaves beyond first order, in turns.
    pub bias: f64,
}

/// What says which rows a table is applied to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowMask {
    /// Booleans in the clear ([`WidePipeline::look_up_rows`]).
    Clear,
    /// The bits of a column with noise of this standard deviation, in turns ([`WidePipeline::digits_where`]).
    Encrypted(f64),
}

/// A mask's bit, and the digit that it goes to.
struct MaskNoise {
    digit: Digit,
    bit: PartNoise,
}

/// Noise of a part's cleaned selectors.
struct PartNoise {
    /// What the late digit's selectors of one half of a column add to E|e|² of a slot at most, and the early one's.
    digits: [f64; 2],
    /// What cleaning leaves in such sums, in all.
    bias: f64,
}

impl WideCandidate {
    /// Levels of the pipeline.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.top(Part::High).max(self.top(Part::Low))
    }

    /// The level to which the column of a part is raised.
    #[must_use]
    pub fn top(&self, part: Part) -> usize {
        2 * self.stages + self.shape.levels(part)
    }

    /// Bits of the scale of a level: at level 0 that of q_0.
    #[must_use]
    pub fn log2_scale_at(&self, level: usize) -> u32 {
        if level == 0 {
            return self.first_bits;
        }
        // The last cleaning of early digits ends at the level of the pairs.
        if level <= self.stages + self.shape.pair_level() + 1 {
            return self.log2_fine;
        }
        let steps = self.phase_level().saturating_sub(level);
        (0..steps).fold(self.log2_scale, |bits, _| descend(bits, self.log2_coarse))
    }

    /// The lowest level of phases of a pass that has the most digits of all.
    fn phase_level(&self) -> usize {
        let parts = [Part::High, Part::Low];
        let most = parts.map(|part| self.shape.digits(part).low() > 0);
        let most = most.contains(&true);
        let fullest = parts
            .into_iter()
            .filter(|&part| (self.shape.digits(part).low() > 0) == most);
        let levels = fullest.map(|part| self.top(part) - self.stages);
        levels.min().unwrap_or(0)
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

    /// What primes are searched for.
    ///
    /// # Panics
    /// If the scales need primes of sizes that there are not; no candidate that is found does.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.ladder().sizes().expect("scales that primes lead to")
    }

    /// Noise of the operations, by level.
    #[must_use]
    pub fn noise_by_level(&self) -> LevelNoise {
        self.ladder().noise()
    }

    fn maps(&self, pass: &Pass) -> Maps {
        Maps {
            degree: self.degree,
            stages: self.stages,
            top: 2 * self.stages + pass.levels(),
            bound: self.shape.exponential.bound(),
            noise: self.noise_by_level(),
            ladder: self.ladder(),
            baby_switches: LEAN_SWITCHES,
        }
    }

    /// Judges the candidate; nothing where its key switches are not sound or Q·P is too large.
    #[must_use]
    pub fn judge(&self) -> Option<WideJudgement> {
        let secure = self.ladder().log2_modulus()? <= largest_modulus(self.degree);
        self.judge_noise().filter(|_| secure)
    }

    /// Judges the candidate whatever the size of Q·P; nothing where its key switches are not sound.
    #[must_use]
    pub fn judge_noise(&self) -> Option<WideJudgement> {
        let log2_modulus = self.ladder().log2_modulus()?;
        // A fixed point: the input is a sum of results.
        let fresh = RnsParams::SIGMA / f64::from(self.first_bits).exp2();
        let mut noise = self.noise(fresh, 0.0).ok()?;
        for _ in 0..3 {
            let norm = INPUT_NORM.sqrt();
            noise = self
                .noise(norm * noise.output.sqrt(), norm * noise.bias)
                .ok()?;
        }
        let (first, further) = self.costs().ok()?;
        Some(WideJudgement {
            limbs: self.levels() + 1,
            log2_modulus,
            output_deviation: noise.output.sqrt(),
            bias: noise.bias,
            log2_failure: self.log2_failure(noise.output, noise.bias),
            first,
            further,
        })
    }

    /// The noise of results for a column with noise of this standard deviation, in turns; nothing where the pipeline lacks levels.
    ///
    /// What cleaning has left in a column that a table made is no more than this noise at [`TAIL`] deviations, but does not become rarer
    /// where phases are rare. So that much counts as a shift as well, whatever the noise is made of.
    #[must_use]
    pub fn table_noise(&self, input: f64) -> Option<TableNoise> {
        let noise = self.noise(input, TAIL * input).ok()?;
        Some(self.stated(noise.output, noise.bias))
    }

    /// The same for a table of two columns ([`WidePipeline::digits_of_two`]) with noise of these standard deviations, the high part's first, in all rows or in
    /// those of a mask in the clear.
    #[must_use]
    pub fn table_noise_of_two(
        &self,
        [high, low]: [f64; 2],
        to_some_rows: bool,
    ) -> Option<TableNoise> {
        let part = |part: Part, input: f64| {
            let pass = self.shape.pass(part, None);
            let phases = self.maps(&pass).phases(input);
            self.part(&pass, phases, TAIL * input).ok()
        };
        let parts = [part(Part::High, high)?, part(Part::Low, low)?];
        let values = self.values(parts.each_ref());
        let output = match to_some_rows {
            true => self.masked_coefficients(values),
            false => self.coefficients(values),
        };
        Some(self.stated(output, bias_of(parts.each_ref())))
    }

    /// What is said of a result with noise of this variance and what cleaning leaves.
    fn stated(&self, output: f64, bias: f64) -> TableNoise {
        TableNoise {
            deviation: output.sqrt() + bias / TAIL,
            bias,
            log2_failure: self.log2_failure(output, bias),
        }
    }

    /// The same for the rows of a mask; nothing where the pipeline lacks levels, as it does for an encrypted mask where no digit has one
    /// ([`WideShape::masked_digit`]).
    #[must_use]
    pub fn table_noise_masked(&self, input: f64, mask: RowMask) -> Option<TableNoise> {
        let shift = TAIL * input;
        match mask {
            RowMask::Clear => {
                let noise = self.noise(input, shift).ok()?;
                let output = self.masked_coefficients(noise.values);
                Some(self.stated(output, noise.bias))
            }
            RowMask::Encrypted(deviation) => {
                let digit = self.shape.masked_digit()?;
                let pass = self.shape.mask_pass(digit);
                let phases = self.maps(&pass).phases(deviation);
                let bit = self.part(&pass, phases, TAIL * deviation).ok()?;
                let mask = MaskNoise { digit, bit };
                let noise = self.noise_of(input, shift, Some(&mask)).ok()?;
                let stated = self.stated(noise.output, noise.bias);
                // Real parts and imaginary ones of the bit's two selectors.
                let before = (4.0 * self.degree as f64).log2() + log2_tail(TAIL, 1.0);
                Some(TableNoise {
                    log2_failure: log2_add(stated.log2_failure, before).min(0.0),
                    ..stated
                })
            }
        }
    }

    /// Variance of a coefficient of the result, for slots of this variance.
    fn coefficients(&self, values: f64) -> f64 {
        let maps = self.maps(&self.shape.pass(Part::High, None));
        maps.coefficients(values)
    }

    /// The same in the rows of a mask in the clear.
    fn masked_coefficients(&self, values: f64) -> f64 {
        let maps = self.maps(&self.shape.pass(Part::High, None));
        maps.masked_coefficients(values)
    }

    fn log2_failure(&self, output: f64, bias: f64) -> f64 {
        let margin = (-f64::from(self.output_bits) - 1.0).exp2() - bias;
        // Beyond a quarter of half a step, terms of higher order than those bounded may count.
        if bias > margin / 4.0 {
            return 0.0;
        }
        let digits = [self.shape.high, self.shape.low];
        let selectors = digits.map(|digits| (1 << digits.high()) + (1 << digits.low()));
        // Real parts and imaginary ones.
        let selectors = 2.0 * f64::from(selectors.iter().sum::<u32>());
        let before = selectors.log2() + log2_tail(TAIL, 1.0);
        let rows = (self.degree as f64).log2();
        (log2_add(before, log2_tail(margin, output)) + rows).min(0.0)
    }

    /// The noise of a table of one column with noise of this standard deviation and off by `shift` at most beside (in turns).
    ///
    /// # Errors
    /// [`NoLevel`] for a shape whose levels do not do.
    pub fn noise(&self, input: f64, shift: f64) -> Result<WideNoise, NoLevel> {
        self.noise_of(input, shift, None)
    }

    /// The same where a mask's bit goes to a digit.
    fn noise_of(
        &self,
        input: f64,
        shift: f64,
        mask: Option<&MaskNoise>,
    ) -> Result<WideNoise, NoLevel> {
        let noise = self.noise_by_level();
        let high_unit = (-f64::from(self.shape.high.bits())).exp2();
        let masked = mask.map(|mask| mask.digit);
        let pass = self.shape.pass(Part::Low, masked);
        let low_phases = self.maps(&pass).phases(input / high_unit);
        let mut low = self.part(&pass, low_phases, shift / high_unit)?;
        // Both halves are weighted with values below 2^-h, and join.
        let level = self.stages;
        let sum: f64 = low.digits.iter().sum();
        let weighted = 2.0 * (sum * high_unit * high_unit + noise.at(level).rescale);
        let low_column = self.coefficients(weighted);
        let shift = shift + low.bias * high_unit;

        let pass = self.shape.pass(Part::High, masked);
        let high_phases = self.maps(&pass).phases((input * input + low_column).sqrt());
        let mut high = self.part(&pass, high_phases, shift)?;

        if let Some(mask) = mask {
            let part = match mask.digit.part {
                Part::High => &mut high,
                Part::Low => &mut low,
            };
            self.mask(part, mask);
        }
        let values = self.values([&high, &low]);
        let output = self.coefficients(values);
        let bias = bias_of([&high, &low]);
        Ok(WideNoise {
            low_phases,
            low_column,
            high_phases,
            values,
            output,
            bias,
        })
    }

    /// Adds to the noise of a part what a mask's bit makes of it: its own noise once, as one selector is 1, and a rounding for each product.
    fn mask(&self, part: &mut PartNoise, mask: &MaskNoise) {
        let Digit {
            part: which,
            is_late,
        } = mask.digit;
        let digits = self.shape.digits(which);
        let (place, bits) = match is_late {
            true => (0, digits.high()),
            false => (1, digits.bits() - late_bits(digits)),
        };
        let level = self.stages + self.shape.pass(which, None).uses[place].1;
        let rounded = f64::from(1 << bits) * self.noise_by_level().at(level).rescale;
        let [_, bit] = mask.bit.digits;
        part.digits[place] += bit + rounded;
        part.bias = (1.0 + part.bias) * (1.0 + mask.bit.bias) - 1.0;
    }

    /// E|e|² of a slot of a table's values, at most, from the selectors of its parts.
    ///
    /// For selectors r and s of a late digit in both halves, with errors e and f, and sums w = (a + i·b)/2 that have the values a of the real half and b
    /// of the imaginary one, a result is `2·Re Σ r·w + 2i·Im Σ s·w`. So e adds `Re Σ (a + i·b)·e = Σ a·Re e - b·Im e` to its real part and nothing to the
    /// other, and f the like to its imaginary part. Errors of an early digit are in w: e adds `Σ a·Re e` to the real part and `Σ b·Im e` to the imaginary
    /// one, for the values a and b that the late digits of the real and of the imaginary half select, and f the like. In either case both parts of an error
    /// meet values, all of which may be 1: for each digit, each half adds what [`Formula::weighted_variances`] says.
    fn values(&self, [high, low]: [&PartNoise; 2]) -> f64 {
        let noise = self.noise_by_level();
        let late = self.shape.late();
        let pairs = 1usize << (self.shape.bits() - self.late_bits());
        let level = self.stages + self.shape.pair_level();
        let digits: f64 = high.digits.iter().chain(&low.digits).sum();
        // A sum's values are half as large as the result's, where they are taken apart.
        let rounded = |below: usize| noise.at(level - below).rescale;
        let mut values = 2.0 * digits + pairs as f64 * rounded(1) + 4.0 * rounded(2);
        if late > 1 {
            values += 4.0 * rounded(3);
        }
        if late > 0 {
            let end = noise.at(self.stages);
            values += 2.0 * end.rescale + end.key_switch;
        }
        // A weighted sum's unit is an integer before it is rescaled.
        let unit = (f64::from(self.output_bits) - f64::from(self.log2_fine)).exp2();
        values + 2.0 * unit * unit
    }

    /// Bits of all late digits.
    fn late_bits(&self) -> u32 {
        late_bits(self.shape.high) + late_bits(self.shape.low)
    }

    /// The noise of a pass's selectors, for phases over K of a variance that are off by `shift` turns as well.
    fn part(&self, pass: &Pass, phases: f64, shift: f64) -> Result<PartNoise, NoLevel> {
        let digits = pass.digits;
        let (all, low) = (1usize << digits.bits(), digits.low());
        // As in `search`: digits that differ, each at another integer.
        let bound = pass.exponential.bound();
        let points: Vec<f64> = (0..16)
            .map(|i| {
                let message = ((i * 5 % 16) << low | (i * 3 + 1) & ((1 << low) - 1)) % all;
                let integer = (i * 7 % 33) as f64 - 16.0;
                (integer + message as f64 / all as f64) / bound
            })
            .collect();
        let tails: Vec<f64> = points.iter().map(|t| tail_at(t * bound)).collect();
        let mut formula = Formula::new(self.noise_by_level());
        let t = formula.input(self.stages + pass.levels(), &points, phases);
        let mut selected = raw_selectors(&mut formula, &t, pass, self.stages)?;
        let exponential = pass.exponential.error() * f64::from(1 << digits.high());
        // A bit is half of 1 - cos 2πx, flat at both its values: there phases count by their squares.
        let second_order = |tail: f64| match digits.bits() {
            1 => {
                let turns = tail * phases.sqrt() * bound + shift;
                (std::f64::consts::PI * turns).powi(2)
            }
            _ => 0.0,
        };
        let mut bias = 0.0;
        let mut variances = [0.0; 2];
        for ((digit, (cleanings, level)), variance) in
            selected.iter_mut().zip(pass.uses).zip(&mut variances)
        {
            let mut sums = vec![0.0; points.len()];
            for selector in digit.iter() {
                let real = formula.real_variances(selector);
                let imaginary = formula.imaginary_variances(selector);
                let slopes = formula.real_slopes(selector, &t);
                for (point, sum) in sums.iter_mut().enumerate() {
                    // A polynomial of degree n/2 that is at most 1 has a slope of at most n/2 (Bernstein).
                    let off = tails[point] * real[point].sqrt()
                        + (slopes[point] * shift / bound).abs()
                        + second_order(tails[point])
                        + exponential * digit_size(digits) / 2.0;
                    let turned = TAIL * imaginary[point].sqrt();
                    let [off, turned] = (0..cleanings).fold([off, turned], left_of);
                    *sum += off + turned;
                }
            }
            bias += (1.0 + bias) * sums.into_iter().fold(0.0, f64::max);
            clean_down(&mut formula, digit, cleanings, self.stages + level)?;
            let sums = formula.weighted_variances(digit).into_iter();
            *variance = sums.fold(0.0, f64::max);
        }
        Ok(PartNoise {
            digits: variances,
            bias,
        })
    }

    /// Costs of the first table of a column, and of a further one.
    fn costs(&self) -> Result<(Cost, Cost), NoLevel> {
        let bits = self.shape.bits();
        let values = (0..1u32 << bits).map(|m| m % 2).collect();
        let Ok(table) = Table::new(bits, 1, values) else {
            return Err(NoLevel);
        };
        let mut model = Model::new(OperationNoise::default(), 0);
        let t = |part: Part| Vector {
            level: self.top(part) - self.stages,
            slots: vec![Complex::ZERO],
        };
        let mut apart = |part: Part| -> Result<Apart<Vector>, NoLevel> {
            let pass = self.shape.pass(part, None);
            let mut half = || selectors(&mut model, &t(part), &pass, self.stages);
            Ok(Apart::new([half()?, half()?]))
        };
        let (high, low) = (apart(Part::High)?, apart(Part::Low)?);
        // Matrices stand for themselves below: on one slot they would do nothing.
        let pipeline = WidePipeline::without_matrices(self.shape, self.stages);
        let digits = pipeline.pair(&mut model, &high, &low)?;
        let mut first = switches(&model);
        let mut model = Model::new(OperationNoise::default(), 0);
        pipeline.values(&mut model, &digits, &table)?;
        let mut further = switches(&model);
        let steps = matrix_switches(self.degree, self.stages);
        for stage in 0..self.stages {
            for part in [Part::High, Part::Low] {
                first.push((self.top(part) - stage, steps));
            }
            first.push((stage + 1, steps));
            further.push((stage + 1, steps));
        }
        for part in [Part::High, Part::Low] {
            first.push((self.top(part) - self.stages, 1));
        }
        first.extend(&further);
        Ok((self.cost(&first), self.cost(&further)))
    }

    fn cost(&self, switches: &[(usize, usize)]) -> Cost {
        cost_of(switches, self.special, self.digit_limbs)
    }

    /// What an encrypted mask costs beside the digits of a column, whatever the tables; nothing where no digit has a level for it.
    #[must_use]
    pub fn mask_cost(&self) -> Option<Cost> {
        let digit = self.shape.masked_digit()?;
        let pass = self.shape.mask_pass(digit);
        let mut model = Model::new(OperationNoise::default(), 0);
        let phases = |pass: &Pass| Vector {
            level: self.stages + pass.levels(),
            slots: vec![Complex::ZERO],
        };
        let apart = |model: &mut Model, pass: &Pass| {
            let mut half = || selectors(model, &phases(pass), pass, self.stages);
            Ok::<_, NoLevel>(Apart::new([half()?, half()?]))
        };
        let bit = apart(&mut model, &pass).ok()?;
        let own = self.shape.pass(digit.part, Some(digit));
        // What makes the selectors of the digit is none of the mask's cost.
        let mut masked = apart(&mut Model::new(OperationNoise::default(), 0), &own).ok()?;
        masked.mask(&mut model, digit, &bit).ok()?;
        let mut all = switches(&model);
        let top = 2 * self.stages + pass.levels();
        let steps = matrix_switches(self.degree, self.stages);
        all.extend((0..self.stages).map(|stage| (top - stage, steps)));
        all.push((top - self.stages, 1));
        Some(self.cost(&all))
    }
}

/// Key switches of a model, by level.
fn switches(model: &Model) -> Vec<(usize, usize)> {
    let all = model.ledger().iter();
    let own = all.filter(|((which, _), _)| *which == Operation::KeySwitch);
    own.map(|((_, level), count)| (*level, *count)).collect()
}

/// Standard deviations beyond which noise counts as a failure at phases from x on: as many as make the probability of both at once that of
/// [`TAIL`] alone.
///
/// A sum of n = h + 1 numbers in [-1/2, 1/2] is above n/2 - u with a probability of uⁿ/n! at most: that is the volume of the simplex
/// at the corner, which is all of it for u ≤ 1 and has the rest of the corner in it for larger u.
#[must_use]
pub fn tail_at(x: f64) -> f64 {
    let terms = RnsParams::ENCAPSULATION_WEIGHT + 1;
    let rest = (terms as f64 / 2.0 - x.abs()).max(0.0);
    let factorial: f64 = (1..=terms).map(|k| (k as f64).log2()).sum();
    // Two ends.
    let log2_phase = (1.0 + terms as f64 * rest.log2() - factorial).min(0.0);
    let wanted = log2_tail(TAIL, 1.0) - log2_phase;
    let (mut low, mut high) = (0.0, TAIL);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if log2_tail(middle, 1.0) > wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// What cleaning leaves of an error of a selector, in real and imaginary part at most: 3e² + 2e³ and its imaginary part.
fn left_of([real, imaginary]: [f64; 2], _: u32) -> [f64; 2] {
    let size = real.hypot(imaginary);
    [
        3.0 * size.powi(2) + 2.0 * size.powi(3),
        imaginary * (6.0 * real + 6.0 * real.powi(2) + 2.0 * imaginary.powi(2)),
    ]
}

/// What cleaning leaves in products of the selectors of parts.
fn bias_of([high, low]: [&PartNoise; 2]) -> f64 {
    (1.0 + low.bias) * (1.0 + high.bias) - 1.0
}

/// Values of the largest digit.
fn digit_size(digits: Digits) -> f64 {
    f64::from(1 << digits.high().max(digits.low()))
}

/// The cheapest candidate for tables from `bits` to `output_bits` at this degree whose batches fail with 2^[`LOG2_FAILURE`](crate::search::LOG2_FAILURE) at most;
/// nothing where there is none.
#[must_use]
pub fn search(
    degree: usize,
    bits: u32,
    output_bits: u32,
) -> Option<(WideCandidate, WideJudgement)> {
    search_shape(degree, output_bits, |exponential| {
        WideShape::new(bits, exponential).ok()
    })
}

/// The same for shapes of any digits.
#[must_use]
pub fn search_shape(
    degree: usize,
    output_bits: u32,
    shape: impl Fn(Exponential) -> Option<WideShape>,
) -> Option<(WideCandidate, WideJudgement)> {
    let bound = (RnsParams::ENCAPSULATION_WEIGHT + 1) as f64 / 2.0;
    let mut candidates = Vec::new();
    for (polynomial, doublings) in [(31, 3), (47, 2), (63, 2)] {
        let shape = shape(Exponential::new(bound, polynomial, doublings).ok()?)?;
        for (special, digit_limbs) in digit_shapes().filter(|(special, _)| *special >= 4) {
            for log2_coarse in 34..=48 {
                for log2_scale in log2_coarse..=49 {
                    for log2_fine in 44..=MAX_PRIME_BITS {
                        candidates.push(WideCandidate {
                            degree,
                            log2_scale,
                            log2_coarse,
                            log2_fine,
                            first_bits: FIRST_BITS,
                            special,
                            digit_limbs,
                            stages: 3,
                            shape,
                            output_bits,
                        });
                    }
                }
            }
        }
    }
    cheapest(candidates)
}

impl Searched for WideCandidate {
    type Judgement = WideJudgement;

    fn ladder(&self) -> Ladder {
        self.ladder()
    }

    fn transforms(&self) -> Option<usize> {
        self.costs().ok().map(|(first, _)| first.transforms)
    }

    fn costs_as(&self, other: &WideCandidate) -> bool {
        self.shape == other.shape
            && (self.special, self.digit_limbs) == (other.special, other.digit_limbs)
    }

    fn is_coarser(&self, other: &WideCandidate) -> bool {
        self.shape == other.shape
            && self.log2_scale <= other.log2_scale
            && self.log2_coarse <= other.log2_coarse
            && self.log2_fine <= other.log2_fine
    }

    fn judged(&self) -> Option<(f64, WideJudgement)> {
        let judgement = self.judge()?;
        Some((judgement.log2_failure, judgement))
    }
}
