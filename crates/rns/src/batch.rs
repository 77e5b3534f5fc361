//! Straight-line programs on columns of a ring: sums, multiples, constants, and tables, whole ciphertexts at a time.
//!
//! A [`Batch`] has the evaluation keys of a user. [`Batch::run`] does the [`Step`]s of a program; each of its operations that take long waits
//! for its turn ([`Turns`]), so that others get theirs, and that a cancellation is seen.

use std::io::{Read, Write};
use std::sync::Arc;

use sha2::Digest as _;
use toroid_task::{Cancelled, Progress};
use toroid_tfhe::column::Chunk;
use toroid_tfhe::keys::{ClientKey, KeyTag};
use toroid_tfhe::random::Csprng;

use crate::RnsError;
use crate::ciphertext::{Ciphertext, Plaintext};
use crate::column::MAX_BITS;
use crate::complex::Complex;
use crate::context::Basis;
use crate::embedding::Embedding;
use crate::evaluation::EvaluationKeys;
use crate::evaluator::Evaluator;
use crate::format::{FormatError, Kind, Reader, field};
use crate::matrix::Matrices;
use crate::poly::RnsPoly;
use crate::ring_set::{RingPipeline, RingSet};
use crate::samples::{Padding, SampleKeys};
use crate::secret::SecretKey;
use crate::slots::{ColumnSlots, LinearSlots, Slots};
use crate::stored::StoredColumn;
use crate::table::Table;
use crate::transform::StepPlan;

/// Bytes of encoded matrices that a batch keeps for the next: room for all of those of 8 bits, 553 MB.
pub const MATRIX_BYTES: usize = 544 << 20;

/// Gives operations their turns.
pub trait Turns {
    /// Does a piece of work when its turn has come. `cost` is about the words of keys that it reads.
    ///
    /// # Errors
    /// [`Cancelled`] where the turn does not come any more; the work is not done then.
    fn turn(&self, cost: u64, work: &mut (dyn FnMut() + Send)) -> Result<(), Cancelled>;
}

/// A step of a program. It makes one value, tables as many as they are; values are numbered from 0 on in the order in which they are made.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The input of this number.
    Input(usize),
    /// The sum of two values.
    Add(usize, usize),
    /// The difference of two values.
    Sub(usize, usize),
    /// A multiple of a value.
    Multiply(usize, i32),
    /// A value with a constant number added to every row, in messages of so many bits.
    AddConstant(usize, i32, u32),
    /// Sums of `.1` coefficients of a value, from each on, 2^`.2` apart. Those of which fewer follow are of no use.
    Sum(usize, usize, u32),
    /// Tables of a value, which share its digits. A table takes as many bits as the set has.
    Tables(usize, Vec<Table>),
    /// Tables of two values, which share the digits of both: of the high part of the index, then of the low one, with at most as many bits each as
    /// [`RingSet::bits_of_two`] says. A message of fewer bits is at the top of its part.
    TablesOfTwo([usize; 2], Vec<Table>),
    /// Tables, or the addition of a constant, in some rows alone: those whose coefficients have `true` here, of N. Tables give 0 in the others, which keep what
    /// a constant is added to.
    InRows(Arc<[bool]>, Box<Step>),
}

/// What a program finds at the number of an input.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// A ring column.
    Column(&'a StoredColumn),
    /// The rows of chunks of samples, one chunk after the other, and the keys that make a column of them.
    Samples(&'a [Chunk], &'a SampleKeys),
}

impl<'a> From<&'a StoredColumn> for Input<'a> {
    fn from(column: &'a StoredColumn) -> Input<'a> {
        Input::Column(column)
    }
}

/// What it takes to run programs on columns of a user.
pub struct Batch {
    set: &'static RingSet,
    embedding: Embedding,
    pipeline: RingPipeline,
    keys: EvaluationKeys,
    matrices: Arc<Matrices>,
}

fn step_error(problem: impl Into<String>) -> FormatError {
    field("a program on ring columns", "a step", problem)
}

impl SecretKey {
    /// The secrets of a set that belong to a client key: those that the key's bits and the set's parameters seed, by SHA-256 and the
    /// generator. So there is no second secret to keep, and client keys that are there already have one. Whoever has the client key
    /// can read everything anyway; the other way round, the secrets tell nothing about the bits that seed them.
    ///
    /// # Errors
    /// Those of [`RingSet::context`].
    pub fn derive(set: &RingSet, client: &ClientKey) -> Result<SecretKey, RnsError> {
        let context = set.context()?;
        let mut hash = crate::secret::derivation();
        hash.update(set.params().tag());
        hash.update(client.params().id.to_le_bytes());
        for bits in std::iter::once(client.glwe().bits())
            .chain(client.small_keys().iter().map(|key| key.bits()))
        {
            hash.update((bits.len() as u64).to_le_bytes());
            for bit in bits {
                hash.update([*bit as u8]);
            }
        }
        let mut rng = crate::secret::generator(hash);
        Ok(SecretKey::generate(&context, &mut rng))
    }
}

/// Bytes of the file of a set's evaluation keys.
///
/// # Errors
/// Those of [`RingSet::context`].
pub fn key_bytes(set: &RingSet) -> Result<u64, FormatError> {
    let context = set.context()?;
    EvaluationKeys::file_bytes(&context, &set.key_request())
}

/// Generates the evaluation keys of a set and writes them as they come, on all threads: [`key_bytes`] of them.
///
/// # Errors
/// Those of [`EvaluationKeys::generate_to`].
pub fn write_keys<W: Write>(
    inner: W,
    set: &RingSet,
    secret: &SecretKey,
    rng: &mut Csprng,
    progress: &Progress,
) -> Result<W, FormatError> {
    EvaluationKeys::generate_to(inner, secret, &set.key_request(), rng, progress)
}

impl Batch {
    /// Reads evaluation keys of one of the sets.
    ///
    /// # Errors
    /// [`FormatError::Field`] for parameters of no set, and those of [`EvaluationKeys::read_from`].
    pub fn read_from<R: Read>(inner: R, progress: &Progress) -> Result<Batch, FormatError> {
        let reader = Reader::new(inner)?;
        let set = RingSet::of_file(Kind::EvaluationKeys, reader.params())?;
        let context = set.context()?;
        let keys = EvaluationKeys::read_from(reader, &context, progress)?;
        let embedding = Embedding::new(context.degree());
        Ok(Batch {
            set,
            pipeline: set.pipeline(&embedding),
            embedding,
            keys,
            matrices: Arc::new(Matrices::new(MATRIX_BYTES)),
        })
    }

    /// The set.
    #[must_use]
    pub fn set(&self) -> &'static RingSet {
        self.set
    }

    /// The tag of the secrets.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        self.keys.tag()
    }

    /// Bytes of memory that it takes, with all matrices that it may keep.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.keys.memory() + MATRIX_BYTES as u64
    }

    /// Words of a key that a switch at this level reads.
    fn key_words(&self, level: usize) -> u64 {
        let params = self.set.params();
        let limbs = level + 1;
        let words = 2 * params.digits(limbs) * (limbs + params.special.len()) * params.degree;
        words as u64
    }

    /// The ciphertext of an input.
    fn input(&self, input: Input<'_>, turns: &dyn Turns) -> Result<Ciphertext, FormatError> {
        match input {
            Input::Column(column) => {
                // Before the tag, which other parameters make another one.
                self.set.check_column(column)?;
                if column.tag() != self.tag() {
                    return Err(field("a ring column", "its tag", "names another key"));
                }
                column.to_ciphertext(self.keys.context())
            }
            Input::Samples(chunks, keys) => {
                if keys.tag() != self.tag() {
                    let object = Kind::SampleKeys.name();
                    return Err(field(object, "the tag of the ring", "names another key"));
                }
                let mut made = None;
                turns.turn(keys.words(), &mut || {
                    made = Some(keys.to_column(chunks, Padding::Drop));
                })?;
                made.unwrap_or(Err(Cancelled.into()))
            }
        }
    }

    /// Runs a program; gives the value of a number. Samples lose their bit of padding ([`Padding::Drop`]).
    ///
    /// # Errors
    /// [`FormatError::Field`] for inputs of another set or another key, and for a program that is none; [`FormatError::Rns`] from the operations,
    /// and once cancelled.
    pub fn run<'a>(
        &self,
        inputs: &[impl Into<Input<'a>> + Copy],
        steps: &[Step],
        output: usize,
        turns: &dyn Turns,
    ) -> Result<Ciphertext, FormatError> {
        let mut values: Vec<Ciphertext> = Vec::new();
        for step in steps {
            let value = |number: &usize| {
                let value = values.get(*number);
                value.ok_or_else(|| step_error(format!("reads value {number}, which is not there")))
            };
            let (step, rows) = match step {
                Step::InRows(rows, step) => (&**step, Some(self.rows(rows, step)?)),
                step => (step, None),
            };
            let made = match step {
                Step::Input(number) => {
                    let input = inputs.get(*number).copied();
                    let input = input.ok_or_else(|| step_error(format!("reads input {number}")))?;
                    self.input(input.into(), turns)?
                }
                Step::Add(a, b) => {
                    let mut sum = value(a)?.clone();
                    sum.add_assign(value(b)?)?;
                    sum
                }
                Step::Sub(a, b) => {
                    let mut difference = value(a)?.clone();
                    difference.sub_assign(value(b)?)?;
                    difference
                }
                Step::Multiply(a, factor) => {
                    Ciphertext::combination(1, &[(value(a)?, [(*factor).into(), 0])])?
                }
                Step::AddConstant(a, constant, bits) => {
                    let mut sum = value(a)?.clone();
                    sum.add_plain(&self.constant(*constant, *bits, rows)?)?;
                    sum
                }
                Step::Sum(a, count, log2_stride) => {
                    let mut sums = value(a)?.clone();
                    sums.mul_plain(&self.window(*count, *log2_stride)?)?;
                    sums
                }
                Step::Tables(a, tables) => {
                    let column = value(a)?;
                    let made = self.with_slots(tables, turns, |slots| {
                        self.pipeline.look_up(slots, column, (tables, rows))
                    })?;
                    values.extend(made);
                    continue;
                }
                Step::TablesOfTwo([high, low], tables) => {
                    let columns = [value(high)?, value(low)?];
                    let made = self.with_slots(tables, turns, |slots| {
                        self.pipeline.look_up_two(slots, columns, (tables, rows))
                    })?;
                    let name = self.set.name;
                    let none = || step_error(format!("has a table of two values; {name} has none"));
                    values.extend(made.ok_or_else(none)?);
                    continue;
                }
                Step::InRows(..) => return Err(step_error("chooses rows twice")),
            };
            values.push(made);
        }
        match output < values.len() {
            true => Ok(values.swap_remove(output)),
            false => Err(step_error(format!("makes no value {output}"))),
        }
    }

    /// The rows of a step, if it is one that some rows alone take.
    fn rows<'a>(&self, rows: &'a [bool], step: &Step) -> Result<&'a [bool], FormatError> {
        let takes_rows = matches!(
            step,
            Step::AddConstant(..) | Step::Tables(..) | Step::TablesOfTwo(..)
        );
        let (found, degree) = (rows.len(), self.keys.context().degree());
        match takes_rows && found == degree {
            true => Ok(rows),
            false => Err(step_error(format!(
                "chooses among {found} rows, not {degree}, or is none of tables or a constant"
            ))),
        }
    }

    /// A constant number in all rows, or in some.
    fn constant(
        &self,
        constant: i32,
        bits: u32,
        rows: Option<&[bool]>,
    ) -> Result<Plaintext, FormatError> {
        let context = self.keys.context();
        let q = context.params().chain[0];
        if !(1..=MAX_BITS).contains(&bits) {
            return Err(step_error(format!("adds a message of {bits} bits")));
        }
        let message = i128::from(constant).rem_euclid(1 << bits);
        let nearest = (message * i128::from(q) + (1 << (bits - 1))) >> bits;
        let mut all = vec![nearest as i64; context.degree()];
        for (coefficient, kept) in all.iter_mut().zip(rows.unwrap_or_default()) {
            *coefficient *= i64::from(*kept);
        }
        let poly = RnsPoly::from_i64(context, Basis::chain(1), &all)?;
        Ok(Plaintext::new(poly, q as f64))
    }

    /// The polynomial Σ X^-(j·2^log2_stride) of `count` terms: a product with it takes neither a key nor a level.
    fn window(&self, count: usize, log2_stride: u32) -> Result<Plaintext, FormatError> {
        let context = self.keys.context();
        let degree = context.degree();
        let most = degree.checked_shr(log2_stride).unwrap_or(0);
        if !(1..=most).contains(&count) {
            return Err(step_error(format!("sums up {count} rows, not 1 to {most}")));
        }
        let mut terms = vec![0; degree];
        terms[0] = 1;
        for term in 1..count {
            // X^-k = -X^(N-k).
            terms[degree - (term << log2_stride)] = -1;
        }
        let poly = RnsPoly::from_i64(context, Basis::chain(1), &terms)?;
        Ok(Plaintext::new(poly, 1.0))
    }

    /// Work on the digits of columns for these tables.
    fn with_slots<'a, R>(
        &'a self,
        tables: &[Table],
        turns: &'a dyn Turns,
        work: impl FnOnce(&mut Turning<'a>) -> Result<R, RnsError>,
    ) -> Result<R, FormatError> {
        let entries = 1 << self.set.bits();
        if let Some(table) = tables.iter().find(|table| table.values().len() != entries) {
            let found = table.values().len();
            return Err(step_error(format!(
                "has a table of {found} values, not {entries}"
            )));
        }
        let evaluator = Evaluator::new(&self.keys, &self.embedding, self.set.log2_scale());
        let mut slots = Turning {
            batch: self,
            inner: evaluator.with_matrices(Arc::clone(&self.matrices)),
            turns,
        };
        Ok(work(&mut slots)?)
    }
}

/// Slots whose operations wait for their turns.
struct Turning<'a> {
    batch: &'a Batch,
    inner: Evaluator<'a>,
    turns: &'a dyn Turns,
}

impl<'a> Turning<'a> {
    fn turn<R: Send>(
        &mut self,
        cost: u64,
        work: impl FnOnce(&mut Evaluator<'a>) -> Result<R, RnsError> + Send,
    ) -> Result<R, RnsError> {
        let (mut work, mut done) = (Some(work), None);
        let inner = &mut self.inner;
        self.turns.turn(cost, &mut || {
            if let Some(work) = work.take() {
                done = Some(work(inner));
            }
        })?;
        done.unwrap_or(Err(Cancelled.into()))
    }

    /// Work that reads so many keys at a level.
    fn switches<R: Send>(
        &mut self,
        (keys, level): (usize, usize),
        work: impl FnOnce(&mut Evaluator<'a>) -> Result<R, RnsError> + Send,
    ) -> Result<R, RnsError> {
        let cost = keys.max(1) as u64 * self.batch.key_words(level);
        self.turn(cost, work)
    }
}

impl Slots for Turning<'_> {
    type Value = Ciphertext;
    type Error = RnsError;

    fn level(&self, value: &Ciphertext) -> usize {
        self.inner.level(value)
    }

    fn lower(&mut self, a: &Ciphertext, level: usize) -> Result<Ciphertext, RnsError> {
        self.turn(0, |inner| Slots::lower(inner, a, level))
    }

    fn weigh(
        &mut self,
        values: &[&Ciphertext],
        rows: &[Vec<u32>],
        log2_unit: u32,
    ) -> Result<Vec<Ciphertext>, RnsError> {
        self.turn(0, |inner| inner.weigh(values, rows, log2_unit))
    }

    fn add(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.turn(0, |inner| inner.add(a, b))
    }

    fn sub(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.turn(0, |inner| inner.sub(a, b))
    }

    fn affine(
        &mut self,
        a: &Ciphertext,
        factor: i32,
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        self.turn(0, |inner| inner.affine(a, factor, constant))
    }

    fn products(&mut self, pairs: &[(&Ciphertext, &Ciphertext)]) -> Result<Ciphertext, RnsError> {
        let levels = pairs.iter().map(|(a, b)| self.level(a).min(self.level(b)));
        let level = levels.min().unwrap_or(0);
        self.switches((1, level), |inner| inner.products(pairs))
    }

    fn combine_at(
        &mut self,
        level: usize,
        terms: &[(&Ciphertext, Complex)],
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        self.turn(0, |inner| inner.combine_at(level, terms, constant))
    }

    fn combine_rows_at(
        &mut self,
        level: usize,
        values: &[&Ciphertext],
        rows: &[(Vec<Complex>, Complex)],
    ) -> Result<Vec<Ciphertext>, RnsError> {
        self.turn(0, |inner| inner.combine_rows_at(level, values, rows))
    }

    fn conjugate(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let level = self.level(a);
        self.switches((1, level), |inner| inner.conjugate(a))
    }

    fn times_i(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.turn(0, |inner| inner.times_i(a))
    }
}

impl LinearSlots for Turning<'_> {
    fn transform(&mut self, plan: &StepPlan, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let level = self.level(a);
        let keys = plan.rotations().len();
        self.switches((keys, level), |inner| inner.transform(plan, a))
    }
}

impl ColumnSlots for Turning<'_> {
    fn raise(&mut self, column: &Ciphertext, level: usize) -> Result<Ciphertext, RnsError> {
        self.switches((1, level), |inner| ColumnSlots::raise(inner, column, level))
    }
}
