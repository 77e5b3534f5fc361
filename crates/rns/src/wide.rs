//! Tables of 9 to 16 bits on whole columns, of one column or of two.
//!
//! A message has two parts, a high one and a low one, each of one digit or two, of up to 4 bits. Each part takes a *pass*: mod-raise,
//! coefficients to slots, exponential, selectors ([`crate::table`]). One column is taken apart from below:
//!
//! 1. The column times 2^h, h the bits of the high part, is a column of the low part alone, as the rest is whole turns.
//! 2. The low part's selectors, weighted with what they stand for, go back to coefficients at the lowest modulus. The column minus
//!    these is a column of the high part (Dumezy et al., eprint 2025/1301, take off digits one by one; both digits of 8 bits come out of
//!    one pass here).
//!
//! Each pass has an *early* digit, which is there some levels before the *late* one, if there are two. The table follows the levels:
//!
//! 3. *Pairs*: products of the selectors of the two early digits. All tables of a message share them.
//! 4. For all values of the late digits one sum of pairs, weighted with the table's values: 2^bits weights in all.
//! 5. For each late digit a sum of products of its selectors with what is there so far.
//!
//! So late digits cost 16 or 32 key switches in each table, and the 256 products of late selectors with one another, which a tree of
//! 256 times 256 selectors has, are not there, nor the two levels that it takes to have both digits of a part before the pairs.
//!
//! # Two halves in one
//!
//! Slots are complex, selectors real. The pairs of both halves of a column stand in one value as real and imaginary part,
//! `a·b + c·(i·d)`, a sum of products with one key switch, and so do the weighted sums, at half the cost. The last late digit takes them apart: for
//! selectors r of the one half and s of the other, `Σ (r + s)·w = p` and `Σ (r - s)·w = m` give `(p + conj m)/2`, which is the
//! real part of `Σ r·w` and i times the imaginary part of `Σ s·w`.
//!
//! # Rows of an encrypted mask
//!
//! A column of 0 and 1 says in which rows tables count ([`WidePipeline::digits_where`]). Each product of selectors has one of each digit, so it is enough to
//! multiply those of one digit by the mask's bit: no selector of that digit is 1 in the other rows, and all tables have 0 there. A digit that is there a level
//! before it is needed takes the product without any more levels ([`WideShape::masked_digit`]). The bit itself comes from a pass of fewer levels: it is half of 1 - cos 2πx.

use std::ops::RangeInclusive;

use crate::complex::Complex;
use crate::embedding::{Embedding, bit_reverse};
use crate::evaluation::KeyRequest;
use crate::slots::{ColumnSlots, LinearSlots, Slots};
use crate::table::{self, Digits, Exponential, Table, TableError, clean_all};
use crate::transform::{self, Diagonals, StepPlan, rotations};

/// Bits of the messages that two parts make.
pub const BITS: RangeInclusive<u32> = 9..=16;

/// Weighted sums that are made at a time: pairs are read once for all of them.
const SUMS: usize = 64;

/// How a message is taken apart, and its selectors are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideShape {
    /// Digits of the high part.
    pub high: Digits,
    /// Digits of the low part.
    pub low: Digits,
    /// How the exponential is made.
    pub exponential: Exponential,
    /// How often selectors of late digits are cleaned.
    pub late_cleanings: u32,
    /// How often those of early digits are.
    pub early_cleanings: u32,
    /// Levels beyond those of tables: one for [`WidePipeline::compare`].
    pub spare: usize,
}

/// A digit of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// The part that it belongs to.
    pub part: Part,
    /// Whether it is the part's late one.
    pub is_late: bool,
}

/// How phases become selectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// The digits.
    pub digits: Digits,
    /// How the exponential is made.
    pub exponential: Exponential,
    /// How often the selectors of the late digit, and then of the early one, are cleaned, and the level, above those of the stages back to coefficients,
    /// at which they are used.
    pub uses: [(u32, usize); 2],
}

impl Pass {
    /// Levels from the phases to the end of the table.
    #[must_use]
    pub fn levels(&self) -> usize {
        let [late, early] = self
            .uses
            .map(|(cleanings, level)| 2 * cleanings as usize + level);
        let (high, low) = (self.digits.high() as usize, self.digits.low() as usize);
        let exponential = self.exponential.levels();
        if low == 0 {
            return exponential + high + early;
        }
        // Squarings, the low digit's powers; then its selectors, and the high digit's.
        exponential + high + low - 1
            + (1 + early).max(table::correction_levels(self.digits.high()) + late)
    }
}

/// One of the two parts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The high one.
    High,
    /// The low one.
    Low,
}

/// Bits of a part's early digit.
fn early_bits(digits: Digits) -> u32 {
    if digits.low() == 0 {
        digits.high()
    } else {
        digits.low()
    }
}

/// Bits of a part's late digit, 0 where there is none.
pub(crate) fn late_bits(digits: Digits) -> u32 {
    digits.bits() - early_bits(digits)
}

impl WideShape {
    /// The shape for messages of so many bits: a high part of 8 bits, a low part of the others; all selectors are cleaned twice: what one
    /// cleaning leaves of a column's noise is more than the noise of a table's result, and grows from table to table.
    ///
    /// # Errors
    /// [`TableError::Bits`] for bits outside [`BITS`].
    pub fn new(bits: u32, exponential: Exponential) -> Result<WideShape, TableError> {
        if !BITS.contains(&bits) {
            return Err(TableError::Bits(bits));
        }
        let low = bits - 8;
        let first = if low > table::MAX_DIGIT_BITS {
            low.div_ceil(2)
        } else {
            low
        };
        let [high, low] = [Digits::new(4, 4)?, Digits::new(first, low - first)?];
        Ok(WideShape::of_digits(high, low, exponential))
    }

    /// The shape of any two parts, with selectors cleaned as in [`WideShape::new`].
    #[must_use]
    pub fn of_digits(high: Digits, low: Digits, exponential: Exponential) -> WideShape {
        WideShape {
            high,
            low,
            exponential,
            late_cleanings: 2,
            early_cleanings: 2,
            spare: 0,
        }
    }

    /// Bits of a message.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.high.bits() + self.low.bits()
    }

    /// The digits of a part.
    #[must_use]
    pub fn digits(&self, part: Part) -> Digits {
        match part {
            Part::High => self.high,
            Part::Low => self.low,
        }
    }

    /// Late digits.
    #[must_use]
    pub fn late(&self) -> usize {
        [self.high, self.low]
            .into_iter()
            .filter(|&digits| late_bits(digits) > 0)
            .count()
    }

    /// How the selectors of a part are made; those of a digit that is masked are there a level before they are used.
    #[must_use]
    pub fn pass(&self, part: Part, masked: Option<Digit>) -> Pass {
        let above = |is_late: bool| usize::from(masked == Some(Digit { part, is_late }));
        Pass {
            digits: self.digits(part),
            exponential: self.exponential,
            uses: [
                (self.late_cleanings, self.late_level(part) + above(true)),
                (self.early_cleanings, self.pair_level() + above(false)),
            ],
        }
    }

    /// How the bit of a mask is made, for the selectors of this digit. It is an early digit, without a late one.
    ///
    /// # Panics
    /// Never: there are digits of one bit.
    #[must_use]
    pub fn mask_pass(&self, masked: Digit) -> Pass {
        let level = match masked.is_late {
            true => self.late_level(masked.part),
            false => self.pair_level(),
        };
        let digits = Digits::new(1, 0).expect("a digit of one bit");
        Pass {
            digits,
            exponential: self.exponential,
            uses: [(0, 0), (self.early_cleanings, level + 1)],
        }
    }

    /// The digit whose selectors a mask is multiplied to: the one of the fewest products at the lowest level that has a level for it; none where no digit has.
    #[must_use]
    pub fn masked_digit(&self) -> Option<Digit> {
        let most = self.levels(Part::High).max(self.levels(Part::Low));
        let digits = [
            (Part::High, true),
            (Part::Low, true),
            (Part::Low, false),
            (Part::High, false),
        ];
        let digits = digits.map(|(part, is_late)| Digit { part, is_late });
        digits.into_iter().find(|&digit| {
            let is_there = !digit.is_late || late_bits(self.digits(digit.part)) > 0;
            is_there && self.pass(digit.part, Some(digit)).levels() <= most
        })
    }

    /// The level, above those of the stages back to coefficients, at which the selectors of early digits are multiplied.
    #[must_use]
    pub fn pair_level(&self) -> usize {
        self.late() + 2 + self.spare
    }

    /// The level, counted in the same way, at which a part's late digit is multiplied.
    fn late_level(&self, part: Part) -> usize {
        match part {
            Part::High => 1 + self.spare,
            Part::Low => self.late() + self.spare,
        }
    }

    /// Levels from a part's phases to the end of the table.
    #[must_use]
    pub fn levels(&self, part: Part) -> usize {
        self.pass(part, None).levels()
    }
}

/// The matrices and the shape of wide tables.
#[derive(Clone, Debug)]
pub struct WidePipeline {
    shape: WideShape,
    to_slots: Vec<StepPlan>,
    to_coefficients: Vec<StepPlan>,
}

/// The selectors of a digit, for the real and the imaginary half of a column.
pub type HalfSelectors<V> = [Vec<V>; 2];

/// The selectors of the digits of a part.
pub struct Apart<V> {
    early: HalfSelectors<V>,
    late: Option<HalfSelectors<V>>,
}

/// The digits of a column's messages, ready for any tables.
pub struct WideDigits<V> {
    /// Products of early selectors, the high part's first; both halves in one.
    pairs: Vec<V>,
    /// Late selectors, the low part's first.
    late: Vec<HalfSelectors<V>>,
}

impl<V> Apart<V> {
    /// The selectors of the early digit.
    #[must_use]
    pub fn early(&self) -> &HalfSelectors<V> {
        &self.early
    }

    /// The selectors of the late digit, where there is one.
    #[must_use]
    pub fn late(&self) -> Option<&HalfSelectors<V>> {
        self.late.as_ref()
    }

    /// Of the late selectors, none where there is no such digit, and the early ones, of both halves.
    #[must_use]
    pub fn new([real, imaginary]: [[Vec<V>; 2]; 2]) -> Apart<V> {
        let ([real_late, real_early], [imaginary_late, imaginary_early]) = (real, imaginary);
        Apart {
            early: [real_early, imaginary_early],
            late: (!real_late.is_empty()).then_some([real_late, imaginary_late]),
        }
    }
}

impl<V: Clone> Apart<V> {
    /// Multiplies the selectors of a digit by a bit, half by half.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn mask<S: Slots<Value = V>>(
        &mut self,
        slots: &mut S,
        digit: Digit,
        bit: &Apart<V>,
    ) -> Result<(), S::Error> {
        let halves = match &mut self.late {
            Some(late) if digit.is_late => late,
            _ => &mut self.early,
        };
        for (half, bit) in halves.iter_mut().zip(&bit.early) {
            for selector in half {
                *selector = slots.mul(selector, &bit[1])?;
            }
        }
        Ok(())
    }
}

impl WidePipeline {
    /// The pipeline of a shape on ring degree N, with this many stages each way.
    ///
    /// # Panics
    /// As [`transform::coefficients_to_slots`].
    #[must_use]
    pub fn new(embedding: &Embedding, shape: WideShape, stages: usize) -> WidePipeline {
        let mut there = transform::coefficients_to_slots(embedding, stages);
        // As in `Pipeline::new`.
        if let Some(last) = there.last_mut() {
            last.scale(0.5 / shape.exponential.bound());
        }
        WidePipeline {
            shape,
            to_slots: StepPlan::sequence(&there),
            to_coefficients: StepPlan::sequence(&transform::slots_to_coefficients(
                embedding, stages,
            )),
        }
    }

    /// The pipeline for counts of operations between the linear maps, which keep every slot as it is.
    pub(crate) fn without_matrices(shape: WideShape, stages: usize) -> WidePipeline {
        let plan = StepPlan::new(&Diagonals::new(1, [(0, vec![Complex::ONE])].into()), 1);
        WidePipeline {
            shape,
            to_slots: vec![plan.clone(); stages],
            to_coefficients: vec![plan; stages],
        }
    }

    /// How tables are computed.
    #[must_use]
    pub fn shape(&self) -> &WideShape {
        &self.shape
    }

    /// The stages from coefficients to slots.
    #[must_use]
    pub fn to_slots(&self) -> &[StepPlan] {
        &self.to_slots
    }

    /// The level to which the column of a part is raised.
    #[must_use]
    pub fn top(&self, part: Part) -> usize {
        self.to_slots.len() + self.shape.levels(part) + self.to_coefficients.len()
    }

    /// Levels from the highest raised ciphertext to the result.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.top(Part::High).max(self.top(Part::Low))
    }

    /// The evaluation keys of the pipeline, with one for each step of a matrix.
    #[must_use]
    pub fn key_request(&self) -> KeyRequest {
        self.request(StepPlan::rotations)
    }

    /// Those by which matrices go step after step, two or three rotations a stage: smaller and slower.
    #[must_use]
    pub fn lean_key_request(&self) -> KeyRequest {
        self.request(|plan| plan.horner().rotations())
    }

    fn request(&self, of_plan: impl Fn(&StepPlan) -> Vec<usize>) -> KeyRequest {
        let top = self.levels() + 1;
        let inside = top - self.to_slots.len();
        KeyRequest {
            relinearization: Some(inside),
            conjugation: Some(inside),
            rotations: rotations(&self.to_slots, &self.to_coefficients, top, of_plan),
            mod_raise: true,
        }
    }

    /// The selectors of a part, from a column at level 0 that has no other bits.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn take_apart<S: ColumnSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
        part: Part,
    ) -> Result<Apart<S::Value>, S::Error> {
        self.run_pass(slots, column, &self.shape.pass(part, None))
    }

    /// The selectors of a pass, from a column at level 0 that has no other bits than those of its digits.
    fn run_pass<S: ColumnSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
        pass: &Pass,
    ) -> Result<Apart<S::Value>, S::Error> {
        let below = self.to_coefficients.len();
        let value = slots.raise(column, self.to_slots.len() + pass.levels() + below)?;
        let value = slots.transform_all(&self.to_slots, value)?;
        let (real, imaginary) = table::split(slots, &value)?;
        drop(value);
        Ok(Apart::new([
            selectors(slots, &real, pass, below)?,
            selectors(slots, &imaginary, pass, below)?,
        ]))
    }

    /// The digits of a column's messages.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn digits<S: ColumnSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
    ) -> Result<WideDigits<S::Value>, S::Error> {
        let [high, low] = self.parts(slots, column)?;
        self.pair(slots, &high, &low)
    }

    /// The digits of a column's messages in the rows alone in which another column has 1, and not 0: every table of them has 0 in the other rows. Messages of that
    /// column have one bit, so that only its owner knows which rows these are. Nothing where no digit has a level for it ([`WideShape::masked_digit`]).
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn digits_where<S: ColumnSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
        kept: &S::Value,
    ) -> Result<Option<WideDigits<S::Value>>, S::Error> {
        let Some(digit) = self.shape.masked_digit() else {
            return Ok(None);
        };
        let bit = self.run_pass(slots, kept, &self.shape.mask_pass(digit))?;
        let [mut high, mut low] = self.parts_for(slots, column, Some(digit))?;
        let apart = match digit.part {
            Part::High => &mut high,
            Part::Low => &mut low,
        };
        apart.mask(slots, digit, &bit)?;
        self.pair(slots, &high, &low).map(Some)
    }

    /// The selectors of both parts of a column's messages, the high one first.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn parts<S: ColumnSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
    ) -> Result<[Apart<S::Value>; 2], S::Error> {
        self.parts_for(slots, column, None)
    }

    /// The same where a digit is to be masked.
    fn parts_for<S: ColumnSlots>(
        &self,
        slots: &mut S,
        column: &S::Value,
        masked: Option<Digit>,
    ) -> Result<[Apart<S::Value>; 2], S::Error> {
        let above = slots.affine(column, 1 << self.shape.high.bits(), Complex::ZERO)?;
        let low = self.run_pass(slots, &above, &self.shape.pass(Part::Low, masked))?;
        let taken = self.column_of(slots, &low, Part::Low)?;
        let rest = slots.sub(column, &taken)?;
        let high = self.run_pass(slots, &rest, &self.shape.pass(Part::High, masked))?;
        Ok([high, low])
    }

    /// The column of a part's values as fractions of 2^bits, at level 0.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn column_of<'v, S: LinearSlots>(
        &self,
        slots: &mut S,
        apart: &'v Apart<S::Value>,
        part: Part,
    ) -> Result<S::Value, S::Error> {
        let unit = (-f64::from(self.shape.bits())).exp2();
        let early = early_bits(self.shape.digits(part));
        let mut halves = Vec::new();
        for half in 0..2 {
            let places = |selectors: &'v [S::Value], step: f64| {
                let values = selectors.iter().enumerate();
                values.map(move |(m, value)| (value, Complex::real(m as f64 * step)))
            };
            let mut terms: Vec<_> = places(&apart.early[half], unit).collect();
            if let Some(late) = &apart.late {
                terms.extend(places(&late[half], unit * f64::from(1 << early)));
            }
            let sum = table::weighted_sum(slots, terms.into_iter(), Complex::ZERO, usize::MAX)?;
            halves.push(sum);
        }
        let value = table::join(slots, &halves[0], &halves[1])?;
        self.back(slots, value)
    }

    /// The digits of pairs of messages from two columns: the high part is one column's message, the low part the other's.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn digits_of_two<S: ColumnSlots>(
        &self,
        slots: &mut S,
        high: &S::Value,
        low: &S::Value,
    ) -> Result<WideDigits<S::Value>, S::Error> {
        let low = self.take_apart(slots, low, Part::Low)?;
        let high = self.take_apart(slots, high, Part::High)?;
        self.pair(slots, &high, &low)
    }

    /// The pairs of two parts that were taken apart.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn pair<S: Slots>(
        &self,
        slots: &mut S,
        high: &Apart<S::Value>,
        low: &Apart<S::Value>,
    ) -> Result<WideDigits<S::Value>, S::Error> {
        let [high_real, high_imaginary] = &high.early;
        let [low_real, low_imaginary] = &low.early;
        let mut turned = Vec::with_capacity(low_imaginary.len());
        for value in low_imaginary {
            turned.push(slots.times_i(value)?);
        }
        let mut pairs = Vec::with_capacity(high_real.len() * low_real.len());
        for (a, c) in high_real.iter().zip(high_imaginary) {
            for (b, d) in low_real.iter().zip(&turned) {
                pairs.push(slots.products(&[(a, b), (c, d)])?);
            }
        }
        let late = [low, high]
            .into_iter()
            .filter_map(|apart| apart.late.clone());
        Ok(WideDigits {
            pairs,
            late: late.collect(),
        })
    }

    /// The polynomial whose coefficients are the table's values as fractions of 2^output_bits.
    ///
    /// # Errors
    /// Those of the arithmetic.
    ///
    /// # Panics
    /// If the table is one of messages with another number of bits than the digits have.
    pub fn look_up<S: LinearSlots>(
        &self,
        slots: &mut S,
        digits: &WideDigits<S::Value>,
        table: &Table,
    ) -> Result<S::Value, S::Error> {
        let value = self.values(slots, digits, table)?;
        self.back(slots, value)
    }

    /// The same for the rows of a mask alone; the other rows are 0. The mask is a part of the first matrix back to coefficients and takes no level.
    ///
    /// # Errors
    /// Those of the arithmetic.
    ///
    /// # Panics
    /// As [`WidePipeline::look_up`], and if the mask has not N rows.
    pub fn look_up_rows<S: LinearSlots>(
        &self,
        slots: &mut S,
        digits: &WideDigits<S::Value>,
        table: &Table,
        mask: &[bool],
    ) -> Result<S::Value, S::Error> {
        let value = self.values(slots, digits, table)?;
        masked(slots, &self.to_coefficients, value, mask)
    }

    /// Slots to coefficients, from the level of the stages on.
    fn back<S: LinearSlots>(&self, slots: &mut S, value: S::Value) -> Result<S::Value, S::Error> {
        let value = slots.lower(&value, self.to_coefficients.len())?;
        slots.transform_all(&self.to_coefficients, value)
    }

    /// The same times a factor, which takes no level.
    fn back_times<S: LinearSlots>(
        &self,
        slots: &mut S,
        value: &S::Value,
        factor: f64,
    ) -> Result<S::Value, S::Error> {
        let (first, rest) = self.to_coefficients.split_first().expect("a stage");
        let value = slots.lower(value, self.to_coefficients.len())?;
        let value = slots.transform(&first.scaled(&vec![factor; first.slots()]), &value)?;
        slots.transform_all(rest, value)
    }

    /// The table's values in the slots.
    ///
    /// # Errors
    /// Those of the arithmetic.
    ///
    /// # Panics
    /// As [`WidePipeline::look_up`].
    pub fn values<S: Slots>(
        &self,
        slots: &mut S,
        digits: &WideDigits<S::Value>,
        table: &Table,
    ) -> Result<S::Value, S::Error> {
        assert_eq!(
            table.values().len(),
            1 << self.shape.bits(),
            "a table's values"
        );
        let pairs: Vec<&S::Value> = digits.pairs.iter().collect();
        let rows = self.rows(table);
        match digits.late.as_slice() {
            [] => {
                let sums = slots.weigh(&pairs, &rows, table.output_bits())?;
                Ok(sums[0].clone())
            }
            [last] => {
                let sums = slots.weigh(&pairs, &rows, table.output_bits() + 1)?;
                let sums: Vec<[&S::Value; 2]> = sums.iter().map(|sum| [sum, sum]).collect();
                halves_apart(slots, last, &sums)
            }
            [inner, last, ..] => {
                let size = inner[0].len();
                let mut sums = Vec::with_capacity(last[0].len());
                for rows in rows.chunks((SUMS / size).max(1) * size) {
                    let weighted = slots.weigh(&pairs, rows, table.output_bits() + 1)?;
                    for weighted in weighted.chunks(size) {
                        let mut half = |half: usize| {
                            let pairs: Vec<_> = inner[half].iter().zip(weighted).collect();
                            slots.products(&pairs)
                        };
                        sums.push([half(0)?, half(1)?]);
                    }
                }
                let sums: Vec<[&S::Value; 2]> = sums.iter().map(|[a, b]| [a, b]).collect();
                halves_apart(slots, last, &sums)
            }
        }
    }

    /// For all values of the late digits, the high part's first, the table's values by those of the early digits.
    fn rows(&self, table: &Table) -> Vec<Vec<u32>> {
        let (high, low) = (self.shape.high, self.shape.low);
        let [high_early, low_early] = [high, low].map(early_bits);
        let [high_late, low_late] = [high, low].map(late_bits);
        let lates =
            (0..1usize << high_late).flat_map(|h| (0..1usize << low_late).map(move |l| (h, l)));
        lates
            .map(|(h, l)| {
                let earlies = (0..1usize << high_early)
                    .flat_map(|a| (0..1usize << low_early).map(move |b| (a, b)));
                let message = |(a, b)| ((h << high_early | a) << low.bits()) | l << low_early | b;
                earlies.map(|pair| table.values()[message(pair)]).collect()
            })
            .collect()
    }

    /// Where x < y and where x = y, for the parts of two columns x and y that were taken apart: 0 or 1 in the slots of both halves.
    ///
    /// From the lowest digit on, x < y where a digit of x is smaller, or equal and the digits below are smaller. Needs a spare level. For columns
    /// whose highest bit is 0, a table of the difference x - y has the same answer in one pass less.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn compare<S: Slots>(
        &self,
        slots: &mut S,
        x: &[Apart<S::Value>; 2],
        y: &[Apart<S::Value>; 2],
    ) -> Result<Comparison<S::Value>, S::Error> {
        let mut less = Vec::new();
        let mut equal = Vec::new();
        for half in 0..2 {
            let [high_x, low_x] = x;
            let [high_y, low_y] = y;
            // Digits from the highest on. What is above the lowest two comes last, as it is at the lowest level.
            let mut digits = Vec::new();
            for (x, y) in [(high_x, high_y), (low_x, low_y)] {
                if let (Some(x), Some(y)) = (&x.late, &y.late) {
                    digits.push((&x[half], &y[half]));
                }
                digits.push((&x.early[half], &y.early[half]));
            }
            let compared = digits
                .into_iter()
                .map(|(x, y)| compare_digits(slots, x, y))
                .collect::<Result<Vec<_>, _>>()?;
            let [first, rest @ ..] = compared.as_slice() else {
                unreachable!("a part has a digit");
            };
            let below = below(slots, rest)?;
            let through = slots.mul(&first.equal, &below.less)?;
            less.push(slots.add(&first.less, &through)?);
            equal.push(slots.mul(&first.equal, &below.equal)?);
        }
        Ok(Comparison {
            less: table::join(slots, &less[0], &less[1])?,
            equal: table::join(slots, &equal[0], &equal[1])?,
        })
    }

    /// The column of a comparison's bits as messages 0 and 1 of `output_bits`.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn column_of_bits<S: LinearSlots>(
        &self,
        slots: &mut S,
        bits: &S::Value,
        output_bits: u32,
    ) -> Result<S::Value, S::Error> {
        self.back_times(slots, bits, (-f64::from(output_bits)).exp2())
    }
}

/// Where one column's messages are less than another's, and where they are equal.
pub struct Comparison<V> {
    /// 1 where x < y, else 0.
    pub less: V,
    /// 1 where x = y, else 0.
    pub equal: V,
}

impl<V> Comparison<V> {
    /// 1 where x ≤ y, else 0.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn at_most<S: Slots<Value = V>>(&self, slots: &mut S) -> Result<V, S::Error> {
        slots.add(&self.less, &self.equal)
    }
}

/// `Σ_j y_j·Σ_(i<j) x_i` and `Σ_i x_i·y_i`.
fn compare_digits<S: Slots>(
    slots: &mut S,
    x: &[S::Value],
    y: &[S::Value],
) -> Result<Comparison<S::Value>, S::Error> {
    let mut below = vec![x[0].clone()];
    for value in &x[1..x.len() - 1] {
        let sum = slots.add(&below[below.len() - 1], value)?;
        below.push(sum);
    }
    let less: Vec<_> = below.iter().zip(&y[1..]).collect();
    let equal: Vec<_> = x.iter().zip(y).collect();
    Ok(Comparison {
        less: slots.products(&less)?,
        equal: slots.products(&equal)?,
    })
}

/// The comparison of several digits, the highest first: sums of products of `equal`s from the highest on, with the `less` below.
fn below<S: Slots>(
    slots: &mut S,
    digits: &[Comparison<S::Value>],
) -> Result<Comparison<S::Value>, S::Error> {
    // The high part's early digit and the low part's are there before the low part's late one, which stands between them.
    match digits {
        [only] => Ok(Comparison {
            less: only.less.clone(),
            equal: only.equal.clone(),
        }),
        [high, late, low] => {
            let through = slots.mul(&high.equal, &low.less)?;
            let low_equal = slots.mul(&high.equal, &low.equal)?;
            let below = slots.products(&[(&high.equal, &late.less), (&through, &late.equal)])?;
            Ok(Comparison {
                less: slots.add(&high.less, &below)?,
                equal: slots.mul(&low_equal, &late.equal)?,
            })
        }
        [high, rest @ ..] => {
            let rest = below(slots, rest)?;
            let through = slots.mul(&high.equal, &rest.less)?;
            Ok(Comparison {
                less: slots.add(&high.less, &through)?,
                equal: slots.mul(&high.equal, &rest.equal)?,
            })
        }
        [] => unreachable!("a low part has a digit"),
    }
}

/// The late digit's selectors, none where there is no such digit, and the early one's, from phases over K, where `below` stages follow.
///
/// # Errors
/// Those of the arithmetic.
pub fn selectors<S: Slots>(
    slots: &mut S,
    t: &S::Value,
    pass: &Pass,
    below: usize,
) -> Result<[Vec<S::Value>; 2], S::Error> {
    let mut selected = raw_selectors(slots, t, pass, below)?;
    for (digit, (cleanings, level)) in selected.iter_mut().zip(pass.uses) {
        clean_down(slots, digit, cleanings, below + level)?;
    }
    Ok(selected)
}

/// The same, not cleaned, at the levels from which [`clean_down`] cleans them.
///
/// # Errors
/// Those of the arithmetic.
pub fn raw_selectors<S: Slots>(
    slots: &mut S,
    t: &S::Value,
    pass: &Pass,
    below: usize,
) -> Result<[Vec<S::Value>; 2], S::Error> {
    let digits = pass.digits;
    let levels = pass
        .uses
        .map(|(cleanings, level)| below + level + 2 * cleanings as usize);
    let z = table::exponential(slots, t, &pass.exponential)?;
    if digits.low() == 0 {
        let powers = table::root_powers(slots, &z, digits.high())?;
        let early = table::selectors(slots, &powers, levels[1])?;
        Ok([Vec::new(), early])
    } else {
        table::two_digits(slots, &z, digits, levels)
    }
}

/// Cleans selectors so late that they end at a level: it costs less there, and scales are finer.
///
/// # Errors
/// Those of the arithmetic.
pub fn clean_down<S: Slots>(
    slots: &mut S,
    selectors: &mut [S::Value],
    cleanings: u32,
    level: usize,
) -> Result<(), S::Error> {
    let level = level + 2 * cleanings as usize;
    for value in selectors.iter_mut() {
        if slots.level(value) != level {
            *value = slots.lower(value, level)?;
        }
    }
    clean_all(slots, selectors, cleanings)
}

/// `Re Σ r·a + i·Im Σ s·b` for selectors r and s of both halves and values (a, b) that are half as large as wanted.
fn halves_apart<S: Slots>(
    slots: &mut S,
    [real, imaginary]: &HalfSelectors<S::Value>,
    sums: &[[&S::Value; 2]],
) -> Result<S::Value, S::Error> {
    let mut negative = Vec::with_capacity(imaginary.len());
    for value in imaginary {
        negative.push(slots.affine(value, -1, Complex::ZERO)?);
    }
    let mut product = |second: &[S::Value]| {
        let first = real.iter().zip(sums).map(|(value, [sum, _])| (value, *sum));
        let second = second
            .iter()
            .zip(sums)
            .map(|(value, [_, sum])| (value, *sum));
        slots.products(&first.chain(second).collect::<Vec<_>>())
    };
    let (plus, minus) = (product(imaginary)?, product(&negative)?);
    let conjugate = slots.conjugate(&minus)?;
    slots.add(&plus, &conjugate)
}

/// Slots to coefficients for the rows of a mask, N booleans, and 0 for the others.
///
/// Real and imaginary parts of slots are different rows: `x·v + y·conj(v)` keeps the real part where x + y = 1 and the imaginary
/// part where x - y = 1.
///
/// # Errors
/// Those of the arithmetic.
///
/// # Panics
/// If the mask has not N rows, or there are no stages.
pub fn masked<S: LinearSlots>(
    slots: &mut S,
    to_coefficients: &[StepPlan],
    value: S::Value,
    mask: &[bool],
) -> Result<S::Value, S::Error> {
    let (first, rest) = to_coefficients.split_first().expect("a stage");
    assert_eq!(mask.len(), 2 * first.slots(), "rows of a mask");
    let (real, imaginary) = mask.split_at(first.slots());
    let pairs = real.iter().zip(imaginary);
    let half = |&kept: &bool| if kept { 0.5 } else { 0.0 };
    let mut straight: Vec<f64> = pairs.clone().map(|(r, i)| half(r) + half(i)).collect();
    let mut turned: Vec<f64> = pairs.map(|(r, i)| half(r) - half(i)).collect();
    // Slots are in bit-reversed order, and so is the mask in them.
    bit_reverse(&mut straight);
    bit_reverse(&mut turned);
    let value = slots.lower(&value, to_coefficients.len())?;
    let conjugate = slots.conjugate(&value)?;
    let straight = slots.transform(&first.scaled(&straight), &value)?;
    let turned = slots.transform(&first.scaled(&turned), &conjugate)?;
    let value = slots.add(&straight, &turned)?;
    slots.transform_all(rest, value)
}
