//! Programs on ring columns: whole ciphertexts of a ring ([`toroid_rns`]) at a time, each with tens of thousands of rows.
//!
//! A plan is that of any program on columns, and its values become steps of a [`Batch`](toroid_rns::Batch), which the back end
//! does under a ring key. A row of a ring column is a number modulo 2^bits, without the bit of padding that a sample has.
//! Rows stay where they are: nothing moves them. Sums of groups of rows come from a product with a polynomial, without any key, and a group's
//! row is then the coefficient at which the group began: the column has as many *pieces* more ([`Layout`]) as the group has rows.
//!
//! Columns of samples become ring columns on their way in, and the result of a function becomes samples on its way out ([`RingForm`]), under
//! the keys between both ([`toroid_rns::samples`]). Rows of such columns stand in as many pieces as a ciphertext has chunks.

mod pairs;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use toroid_isa::{AssumePresent, Instruction, KeyKind, Program, VrNumber, verify};
use toroid_rns::batch::Step;
use toroid_rns::modulus_switch::pair_variance;
use toroid_rns::ring_set::RingSet;
use toroid_rns::samples::{GADGET, Padding, column_variance, sample_variance};
use toroid_rns::stored::{Layout, Statement, StoredColumn};
use toroid_rns::table::Table as RingTable;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{
    Chunk, ColumnBytesBuilder, ColumnForm, column_bytes, packed_rounding, rows_per_chunk,
};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::modulus::{Goldilocks, Modulus};
use toroid_tfhe::noise::{Noise, log2_add};
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::random::fingerprint;

use crate::backend::{RingKeys, RingMade, RingOperand, RingProgram, RingTarget};
use crate::column::plan::{ColumnFacts, Operation, Plan, Setting, ValueId};
use crate::column::{MapFacts, MapOutput, map_tasks};
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::error::{EngineError, RowError};
use crate::partial::Origin;
use crate::register::Attributes;
use crate::requester::Requester;
use crate::table::Content;
use pairs::Pairs;

/// The form of the result of a program on ring columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingForm {
    /// A ring column.
    #[default]
    Column,
    /// Packed chunks of samples.
    Samples,
}

/// What is known of a ring column, or of samples that become one, before a program runs on it.
#[derive(Clone, Copy, Debug)]
pub struct RingFacts {
    /// Its rows.
    pub rows: u64,
    /// The variance of a row's noise, in turns squared.
    pub variance: f64,
    /// log2 of the failure probability of all that led to it.
    pub log2_failure: f64,
    /// Encoding of its messages.
    pub encoding: Encoding,
    /// Whether its noise may have sources in common with that of others: a program made it.
    pub computed: bool,
    /// log2 of the number of pieces in which its rows stand ([`Layout`]).
    pub log2_pieces: u32,
    /// Whether it comes as samples.
    pub is_converted: bool,
    /// A number that columns of the same rows have in common, and no others.
    pub number: u64,
}

impl RingFacts {
    /// What is known of `rows` rows of samples that become a ring column: the noise of the conversion is added to that of the samples.
    ///
    /// # Errors
    /// [`RowError::Refused`] for samples that no ring column is made of.
    pub fn of_samples(
        set: &RingSet,
        params: &ParamSet,
        (rows, number): (u64, u64),
        noise: &Noise,
        encoding: Option<Encoding>,
    ) -> Result<RingFacts, RowError> {
        let encoding = encoding.ok_or_else(|| {
            RowError::Refused("messages of unknown width do not go into a ring".to_owned())
        })?;
        let variance = noise.variance();
        Ok(RingFacts {
            rows,
            variance: column_variance(set.params(), params, GADGET, Padding::Drop, variance),
            log2_failure: noise.log2_failure(),
            encoding,
            computed: true,
            log2_pieces: log2_chunks(set, params)?,
            is_converted: true,
            number,
        })
    }
}

/// log2 of the chunks of samples that a full ciphertext is made of.
fn log2_chunks(set: &RingSet, params: &ParamSet) -> Result<u32, RowError> {
    let wide = params.is_wide() && params.modulus == ModulusKind::Goldilocks;
    let chunks = set.rows().checked_div(params.ring_degree).filter(|_| wide);
    let chunks = chunks.filter(|chunks| *chunks > 0).ok_or_else(|| {
        let (name, samples) = (set.name, params.name);
        RowError::Refused(format!(
            "samples of {samples} do not become columns of {name}"
        ))
    })?;
    Ok(chunks.ilog2())
}

/// Encodings of the input and the output of a test vector.
pub type FunctionOf<'a> = dyn Fn(VrNumber) -> Option<(Encoding, Encoding)> + 'a;

/// What a program is to do with ring columns.
#[derive(Clone, Copy)]
pub struct RingForecast<'a> {
    /// The name of the program in errors.
    pub program_vr: VrNumber,
    /// The program.
    pub program: &'a Program,
    /// The ring.
    pub set: &'static RingSet,
    /// The parameter set of the samples and test vectors of the key id.
    pub params: &'static ParamSet,
    /// The columns, by the registers that they stand in.
    pub inputs: &'a BTreeMap<VrNumber, RingFacts>,
    /// The functions of test vectors.
    pub functions: &'a FunctionOf<'a>,
    /// The form of the result.
    pub form: RingForm,
    /// Whether rows are left out ([`RingJob::kept`]).
    pub leaves_out: bool,
}

/// A program on ring columns, taken apart.
struct RingPlan {
    set: &'static RingSet,
    plan: Plan,
    /// The functions of two values.
    pairs: Pairs,
    /// The tasks that have 0 in rows that are left out.
    in_rows: BTreeSet<usize>,
    output: ValueId,
    /// The values that the output is made of.
    needed: BTreeSet<ValueId>,
    /// log2 of the pieces of each value.
    pieces: HashMap<ValueId, u32>,
    facts: MapFacts,
    /// The variance of a row of the output before it is rounded for storage.
    variance: f64,
}

/// Noise of a row from one source, in turns squared.
#[derive(Clone, Copy, Debug)]
struct Known {
    variance: f64,
    /// What of it is rounding of masks for storage.
    rounding: f64,
    /// Whether it has nothing in common with that of any other source or row.
    is_fresh: bool,
}

impl Known {
    /// Noise of which nobody knows what it has in common with other noise.
    fn shared(variance: f64) -> Known {
        Known {
            variance,
            rounding: 0.0,
            is_fresh: false,
        }
    }
}

/// Noise as a sum of that of sources, each a value with its factor.
#[derive(Clone, Default)]
struct Sources {
    factors: BTreeMap<ValueId, f64>,
    log2_failure: f64,
}

impl Sources {
    fn of(source: ValueId, log2_failure: f64) -> Sources {
        Sources {
            factors: BTreeMap::from([(source, 1.0)]),
            log2_failure,
        }
    }

    fn plus(&self, other: &Sources, sign: f64) -> Sources {
        let mut sum = self.clone();
        for (source, factor) in &other.factors {
            *sum.factors.entry(*source).or_default() += sign * factor;
        }
        sum.log2_failure = log2_add(self.log2_failure, other.log2_failure).min(0.0);
        sum
    }

    fn times(&self, factor: f64) -> Sources {
        let mut product = self.clone();
        product.factors.values_mut().for_each(|own| *own *= factor);
        product
    }

    /// Fresh sources are independent. Of others nobody knows, so that their deviations add up.
    fn variance(&self, known: &HashMap<ValueId, Known>) -> f64 {
        self.variance_of(known, |of| of.variance)
    }

    fn variance_of(
        &self,
        known: &HashMap<ValueId, Known>,
        variance: impl Fn(&Known) -> f64,
    ) -> f64 {
        let (mut independent, mut together) = (0.0, 0.0);
        for (source, factor) in &self.factors {
            let of = known.get(source).copied().unwrap_or(Known::shared(1.0));
            if of.is_fresh {
                independent += factor * factor * variance(&of);
            } else {
                together += factor.abs() * variance(&of).sqrt();
            }
        }
        independent + together * together
    }

    /// The variance of sums of `group` rows of N.
    ///
    /// A table's noise is independent from row to row, as the formulas have it, which are those of the average case. What rounding a mask adds is a
    /// product with the secret: a sum of rows has the square norm of `group` coefficients' sums of the secret, which is that of `group` rows
    /// on average alone. It is a sum of about N/group squares of equal size, and above `1 + 2√(x·group/N) + 2x·group/N` times the average
    /// with a probability of e^-x (Laurent and Massart, 2000): that of 2^-128 is taken here.
    fn variance_of_sums(&self, known: &HashMap<ValueId, Known>, group: u64, degree: usize) -> f64 {
        let share = 128.0 * std::f64::consts::LN_2 * group as f64 / degree as f64;
        let excess = 2.0 * share.sqrt() + 2.0 * share;
        group as f64 * self.variance_of(known, |of| of.variance + excess * of.rounding)
    }
}

impl RingForecast<'_> {
    /// Rows, noise and failure probability of the result, and the tables behind it; then log2 of the pieces in which the result's rows stand.
    /// Nothing runs.
    ///
    /// # Errors
    /// [`EngineError::Verify`] for a program that would not run, [`EngineError::Rows`] for instructions that ring columns do not have
    /// and widths that do not fit, [`EngineError::Column`] for columns of several numbers of rows.
    pub fn facts(&self) -> Result<(MapFacts, u32), EngineError> {
        let plan = self.plan()?;
        let log2_pieces = plan.log2_pieces();
        Ok((plan.facts, log2_pieces))
    }

    fn refused(
        &self,
        place: Option<(usize, &Instruction)>,
        what: impl Into<String>,
    ) -> EngineError {
        match place {
            Some((index, instruction)) => EngineError::Rows {
                vr: self.program_vr,
                index,
                text: instruction.to_string(),
                what: what.into(),
            },
            None => RowError::Refused(what.into()).of(self.program_vr),
        }
    }

    fn plan(&self) -> Result<RingPlan, EngineError> {
        let everything = AssumePresent {
            stack_slots: EngineConfig::default().stack_slots,
        };
        verify(self.program, &everything, None).map_err(|errors| EngineError::Verify {
            vr: self.program_vr,
            errors,
        })?;
        let moves = self.program.instructions().iter().enumerate();
        let mut moves = moves.filter(|(_, instruction)| {
            matches!(
                instruction,
                Instruction::Lower { .. } | Instruction::Upper { .. } | Instruction::Join { .. }
            )
        });
        if let Some(place) = moves.next() {
            let what = "rows of a ring column stay where they are; map columns of samples instead";
            return Err(self.refused(Some(place), what));
        }
        let mut all = self.inputs.values();
        let rows = all.next().map_or(0, |facts| facts.rows);
        if rows == 0 || rows > self.set.rows() as u64 || all.any(|facts| facts.rows != rows) {
            let most = self.set.rows();
            let what = format!(
                "ring columns of one number of rows expected, from 1 to {most} in a ciphertext"
            );
            return Err(self.refused(None, what));
        }
        let inputs = self.inputs.iter().map(|(vr, facts)| {
            let noise = Noise::stored(self.params, facts.variance, facts.log2_failure, true);
            let known = ColumnFacts {
                rows: facts.rows,
                noise,
                encoding: Some(facts.encoding),
                number: facts.number,
            };
            (*vr, known)
        });
        let inputs: BTreeMap<VrNumber, ColumnFacts> = inputs.collect();
        let setting = Setting {
            program: self.program_vr,
            params: self.params,
            arithmetic: ArithmeticKind::Fft,
            inputs: &inputs,
            functions: &|tv| (self.functions)(tv).map_or((None, None), |(i, o)| (Some(i), Some(o))),
        };
        let mut plan = Plan::new(&setting, self.program, &[])?;
        let (vr, output) = *plan
            .outputs
            .first()
            .ok_or_else(|| self.refused(None, "a program without a result"))?;
        let pieces = self.pieces(&plan)?;
        let pairs = Pairs::find(&plan, self.set);
        let needed = pairs.needed(&plan, output);
        let in_rows = match self.leaves_out {
            true => self.in_rows(&plan, &pairs, output)?,
            false => BTreeSet::new(),
        };
        let (variance, log2_failure) = self.noise(&plan, (&pairs, &in_rows, &needed), output)?;
        let encoding = self.encoding(&plan, output)?;
        let tasks = map_tasks(&plan);
        for task in &mut plan.tasks {
            task.functions.retain(|(_, value)| needed.contains(value));
        }
        let bootstraps = plan.bootstraps();
        let on_ciphertext = pairs.functions(&plan);
        let stored = match self.form {
            RingForm::Column => {
                variance + pair_variance(self.set.params(), self.set.computed_width)
            }
            RingForm::Samples => {
                self.check_samples(&plan, output, pieces.get(&output).copied())?;
                let params = self.set.params();
                let keep = Padding::Keep;
                let made = sample_variance(params, self.params, GADGET, keep, variance);
                made + packed_rounding(self.params).unwrap_or(1.0)
            }
        };
        let noise = Noise::stored(self.params, stored, log2_failure, true);
        let facts = MapFacts {
            outputs: vec![MapOutput {
                vr,
                rows: plan.values[output].rows,
                noise,
                encoding: Some(encoding),
            }],
            bootstraps,
            tasks,
            on_ciphertext,
        };
        Ok(RingPlan {
            set: self.set,
            plan,
            pairs,
            in_rows,
            output,
            needed,
            pieces,
            facts,
            variance,
        })
    }

    /// The tasks whose functions have 0 in rows that are left out, so that the output has 0 there, and no sum has anything of them: the last functions before the
    /// output and before sums of rows. Refuses programs in which something else than functions comes there.
    fn in_rows(
        &self,
        plan: &Plan,
        pairs: &Pairs,
        output: ValueId,
    ) -> Result<BTreeSet<usize>, EngineError> {
        // Values come after those that they are made of.
        let mut summed = vec![false; plan.values.len()];
        for (id, value) in plan.values.iter().enumerate() {
            summed[id] = matches!(value.operation, Operation::Sum(..))
                || plan
                    .operands(value.operation)
                    .any(|operand| summed[operand]);
        }
        let (mut tasks, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![output]);
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let operation = plan.values[id].operation;
            match operation {
                _ if summed[id] => open.extend(plan.operands(operation)),
                Operation::Bootstrap(task) => tasks.extend(pairs.together(task)),
                Operation::Input(_) | Operation::AddInt(..) => {
                    let what = "rows that are left out would not be 0 in the result, or in a sum: only functions leave out rows, \
                                so apply one, if only of the same value, behind the last constant";
                    return Err(self.refused(None, what));
                }
                _ => open.extend(plan.operands(operation)),
            }
        }
        Ok(tasks)
    }

    /// Refuses results that do not become samples. A sample has a bit of padding above its message, which only a table leaves there.
    fn check_samples(
        &self,
        plan: &Plan,
        output: ValueId,
        log2_pieces: Option<u32>,
    ) -> Result<(), EngineError> {
        let chunks = log2_chunks(self.set, self.params);
        let chunks = chunks.map_err(|error| error.of(self.program_vr))?;
        if !matches!(plan.values[output].operation, Operation::Bootstrap(_)) {
            let what = "samples are made of the result of a function; return one, if only of the same value";
            return Err(self.refused(None, what));
        }
        if log2_pieces.unwrap_or(0) != chunks {
            let (samples, found) = (1 << chunks, 1 << log2_pieces.unwrap_or(0));
            let what = format!(
                "these rows stand in {found} pieces of a ciphertext, and those that were samples in {samples} pieces: a column that was put as ciphertexts \
                 has another order of rows and becomes no samples; take a ring column as the result, or put the numbers as samples"
            );
            return Err(self.refused(None, what));
        }
        Ok(())
    }

    /// log2 of the pieces in which the rows of each value stand; refuses sums of groups that no pieces are made of, and operands whose rows stand
    /// in different places.
    fn pieces(&self, plan: &Plan) -> Result<HashMap<ValueId, u32>, EngineError> {
        let mut pieces: HashMap<ValueId, u32> = HashMap::new();
        for id in plan.needed() {
            let value = &plan.values[id];
            let of = |id: &ValueId| pieces.get(id).copied().unwrap_or(0);
            let own = match value.operation {
                Operation::Input(vr) => self.inputs.get(&vr).map_or(0, |facts| facts.log2_pieces),
                Operation::Add(a, b) | Operation::Sub(a, b) => {
                    let rows = [a, b].map(|operand| plan.values[operand].rows);
                    if rows[0] != rows[1] || of(&a) != of(&b) {
                        let what = format!(
                            "a sum of {} and {} rows, which stand in different places of ring columns",
                            rows[0], rows[1]
                        );
                        return Err(self.refused(None, what));
                    }
                    of(&a)
                }
                Operation::Sum(a, group) => {
                    let (rows, most) = (plan.values[a].rows, self.set.rows() as u64 >> of(&a));
                    let groups = group.is_power_of_two() && rows.is_multiple_of(group);
                    if group > most && of(&a) > 0 {
                        let what = format!(
                            "sums of {group} of {rows} rows, which stand in {} pieces of at most {most}; no sum goes beyond a piece: take sums of {most} rows or fewer, and add those up once they are decrypted",
                            1 << of(&a)
                        );
                        return Err(self.refused(None, what));
                    }
                    if group > most || !(groups || group == rows) {
                        let what = format!(
                            "sums of {group} of {rows} rows; ring columns have sums of all rows of a ciphertext, and of groups of 2, 4, 8, ... rows of which none is short"
                        );
                        return Err(self.refused(None, what));
                    }
                    // The sum of all is the first coefficient, as it is in any number of pieces.
                    match value.rows {
                        1 => of(&a),
                        _ => of(&a) + group.ilog2(),
                    }
                }
                operation => {
                    let operands = plan.operands(operation);
                    operands.map(|operand| of(&operand)).max().unwrap_or(0)
                }
            };
            pieces.insert(id, own);
        }
        Ok(pieces)
    }

    fn encoding(&self, plan: &Plan, value: ValueId) -> Result<Encoding, EngineError> {
        let encoding = plan.values.get(value).and_then(|value| value.encoding);
        encoding
            .filter(|encoding| encoding.bits() <= self.set.bits())
            .ok_or_else(|| {
                let (most, name) = (self.set.bits(), self.set.name);
                self.refused(
                    None,
                    format!("a value has more than the {most} bits of {name}"),
                )
            })
    }

    /// The variance of a row of the output, and the failure probability; checks the widths of all values.
    fn noise(
        &self,
        plan: &Plan,
        (pairs, in_rows, needed): (&Pairs, &BTreeSet<usize>, &BTreeSet<ValueId>),
        output: ValueId,
    ) -> Result<(f64, f64), EngineError> {
        let mut sources: HashMap<ValueId, Sources> = HashMap::new();
        let mut known: HashMap<ValueId, Known> = HashMap::new();
        let mut converted = BTreeSet::new();
        for &id in needed {
            let value = &plan.values[id];
            self.encoding(plan, id)?;
            let of = |id: &ValueId| sources.get(id).cloned().unwrap_or_default();
            let made = match value.operation {
                Operation::Input(vr) => {
                    let facts = self.inputs.get(&vr);
                    let facts = facts.ok_or(EngineError::NoSuchRegister { vr })?;
                    let (params, width) = (self.set.params(), self.set.computed_width);
                    let of = Known {
                        variance: facts.variance,
                        rounding: match facts.computed {
                            true => pair_variance(params, width).min(facts.variance),
                            false => 0.0,
                        },
                        is_fresh: !facts.computed,
                    };
                    known.insert(id, of);
                    if facts.is_converted {
                        converted.insert(id);
                    }
                    Sources::of(id, facts.log2_failure)
                }
                Operation::Add(a, b) | Operation::Sub(a, b) => {
                    let sign = match value.operation {
                        Operation::Add(..) => 1.0,
                        _ => -1.0,
                    };
                    of(&a).plus(&of(&b), sign)
                }
                Operation::Mul(a, factor) => of(&a).times(factor.into()),
                Operation::AddInt(a, _) => of(&a),
                Operation::Bootstrap(task) => {
                    let to_some_rows = in_rows.contains(&task);
                    let (before, (variance, failure)) = match pairs.of_task(task) {
                        Some(pair) => {
                            let [high, low] = pair.values.map(|value| of(&value));
                            let variances = [&high, &low].map(|input| input.variance(&known));
                            let before = log2_add(high.log2_failure, low.log2_failure);
                            (before, self.set.table_noise_of_two(variances, to_some_rows))
                        }
                        None => {
                            let task = &plan.tasks[task];
                            let own = self.encoding(plan, task.input)?.bits();
                            if own != task.input_bits {
                                let expected = task.input_bits;
                                let what =
                                    format!("a function of {expected} bits of a message of {own}");
                                return Err(self.refused(None, what));
                            }
                            let input = of(&task.input);
                            let variance = input.variance(&known);
                            let noise = match to_some_rows {
                                true => self.set.table_noise_in_rows(variance),
                                false => self.set.table_noise(variance),
                            };
                            (input.log2_failure, noise)
                        }
                    };
                    known.insert(id, Known::shared(variance));
                    Sources::of(id, log2_add(before, failure).min(0.0))
                }
                Operation::Sum(a, group) => {
                    let rows = of(&a);
                    if rows.factors.keys().any(|source| converted.contains(source)) {
                        // What rows of a packed chunk share adds up.
                        let what = "sums of rows that come as samples; sum up a function of them, or sample by sample";
                        return Err(self.refused(None, what));
                    }
                    let variance = rows.variance_of_sums(&known, group, self.set.rows());
                    known.insert(id, Known::shared(variance));
                    let failure = rows.log2_failure + (group as f64).log2();
                    Sources::of(id, failure.min(0.0))
                }
                Operation::Lower(..) | Operation::Upper(..) | Operation::Join(..) => {
                    return Err(self.refused(None, "rows of a ring column stay where they are"));
                }
            };
            sources.insert(id, made);
        }
        let made = sources.get(&output).cloned().unwrap_or_default();
        Ok((made.variance(&known), made.log2_failure))
    }
}

/// What is above the values of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Above {
    Nothing,
    /// The bit of padding of samples.
    Padding,
}

/// What a function's result in samples has too much: their tables have no negative values.
fn offset_of(output: Encoding) -> i32 {
    match output.is_signed() {
        true => 1 << (output.bits() - 1),
        false => 0,
    }
}

/// The table of a wide function's test vector, as the ring has it: the value of every message of the set's bits. One for samples has
/// [`offset_of`] too much.
fn table_of(
    set: &RingSet,
    params: &ParamSet,
    (input, output): (Encoding, Encoding),
    above: Above,
    bytes: &[u8],
) -> Result<RingTable, RowError> {
    let refused = |what: String| RowError::Refused(what);
    if !params.is_wide() || params.modulus != ModulusKind::Goldilocks {
        let name = params.name;
        return Err(refused(format!(
            "ring columns take functions of sets for wide functions, not of {name}"
        )));
    }
    let words = bytes.as_chunks::<8>().0;
    let (shift, bits) = (params.message_bits - input.bits(), set.bits());
    if words.len() != 1 << params.message_bits || input.bits() > bits || output.bits() > bits {
        return Err(refused(format!(
            "a function from {} to {} bits; {} takes at most {bits}",
            input.bits(),
            output.bits(),
            set.name
        )));
    }
    let value = |message: usize| {
        let word = u64::from_le_bytes(words[message << shift]);
        // The value has a bit of padding above it.
        let value = Goldilocks::decode(word, output.bits() + 1) as u32;
        let offset = match above {
            Above::Nothing => 0,
            Above::Padding => offset_of(output).cast_unsigned(),
        };
        (value + offset) & ((1 << output.bits()) - 1)
    };
    let values: Vec<u32> = (0..1usize << bits)
        .map(|entry| value(entry >> (bits - input.bits())))
        .collect();
    let table = RingTable::new(bits, output.bits(), values);
    let table = table.map_err(|error| refused(error.to_string()))?;
    Ok(match above {
        Above::Nothing => table,
        Above::Padding => table.padded(),
    })
}

impl RingPlan {
    /// log2 of the pieces of the result.
    fn log2_pieces(&self) -> u32 {
        self.pieces.get(&self.output).copied().unwrap_or(0)
    }

    /// The steps of the plan, and the number of the value that is wanted, in a form; those in the rows that are kept with these.
    fn steps(
        &self,
        (form, kept): (RingForm, Option<&[bool]>),
        registers: &[VrNumber],
        table: impl Fn(VrNumber, Above) -> Result<RingTable, EngineError>,
    ) -> Result<(Vec<Step>, usize), EngineError> {
        let plan = &self.plan;
        let mut numbers: HashMap<ValueId, usize> = HashMap::new();
        let (mut steps, mut made) = (Vec::new(), 0);
        // All rows stand in as many pieces as those of the inputs until they are summed.
        let kept = kept.map(|kept| {
            let mut inputs = plan.values.iter().enumerate();
            let input = inputs.find(|(_, value)| matches!(value.operation, Operation::Input(_)));
            let log2_pieces = input.and_then(|(id, _)| self.pieces.get(&id).copied());
            let layout = Layout {
                log2_pieces: log2_pieces.unwrap_or(0),
                ..Layout::plain(1)
            };
            let mut coefficients = vec![false; self.set.rows()];
            for (row, kept) in kept.iter().enumerate() {
                coefficients[layout.coefficient(self.set.rows(), row)] = *kept;
            }
            Arc::<[bool]>::from(coefficients)
        });
        let in_rows = |step: Step| match &kept {
            Some(kept) => Step::InRows(Arc::clone(kept), Box::new(step)),
            None => step,
        };
        for &id in &self.needed {
            if numbers.contains_key(&id) {
                continue;
            }
            let value = &plan.values[id];
            let number = |id: ValueId| numbers.get(&id).copied().unwrap_or(usize::MAX);
            let bits = value.encoding.map_or(0, Encoding::bits);
            let step = match value.operation {
                Operation::Input(vr) => {
                    let place = registers.iter().position(|register| *register == vr);
                    Step::Input(place.ok_or(EngineError::NoSuchRegister { vr })?)
                }
                Operation::Add(a, b) => Step::Add(number(a), number(b)),
                Operation::Sub(a, b) => Step::Sub(number(a), number(b)),
                Operation::Mul(a, factor) => Step::Multiply(number(a), factor),
                Operation::AddInt(a, constant) => Step::AddConstant(number(a), constant, bits),
                Operation::Bootstrap(task) => {
                    let (mut tables, mut values) = (Vec::new(), Vec::new());
                    for together in self.pairs.together(task) {
                        for (tv, value) in &plan.tasks[together].functions {
                            // Nothing else reads the value that is returned.
                            let above = match form {
                                RingForm::Samples if *value == self.output => Above::Padding,
                                _ => Above::Nothing,
                            };
                            let own = table(*tv, above)?;
                            tables.push(match self.pairs.of_task(together) {
                                Some(pair) => pair.table(&own, |tv| table(tv, Above::Nothing))?,
                                None => own,
                            });
                            values.push(*value);
                        }
                    }
                    let step = match self.pairs.of_task(task) {
                        Some(pair) => Step::TablesOfTwo(pair.values.map(number), tables),
                        None => Step::Tables(number(plan.tasks[task].input), tables),
                    };
                    steps.push(match self.in_rows.contains(&task) {
                        true => in_rows(step),
                        false => step,
                    });
                    for value in values {
                        numbers.insert(value, made);
                        made += 1;
                    }
                    continue;
                }
                Operation::Sum(a, group) => {
                    let log2_stride = self.pieces.get(&a).copied().unwrap_or(0);
                    Step::Sum(number(a), group as usize, log2_stride)
                }
                Operation::Lower(..) | Operation::Upper(..) | Operation::Join(..) => continue,
            };
            steps.push(step);
            numbers.insert(id, made);
            made += 1;
        }
        let output = numbers.get(&self.output).copied().unwrap_or(usize::MAX);
        let encoding = plan
            .values
            .get(self.output)
            .and_then(|value| value.encoding);
        match encoding.filter(|_| form == RingForm::Samples) {
            Some(encoding) if encoding.is_signed() => {
                let padded = encoding.bits() + 1;
                let step = Step::AddConstant(output, -offset_of(encoding), padded);
                steps.push(in_rows(step));
                Ok((steps, made))
            }
            _ => Ok((steps, output)),
        }
    }
}

/// Rows that a program reads: those of one ciphertext.
pub struct RingInput<'a> {
    /// The register that they stand in.
    pub vr: VrNumber,
    /// What is stated of them, beside what a ring column's own header states.
    pub attributes: Attributes,
    /// The rows.
    pub operand: RingOperand<'a>,
}

/// What a program is to do with ring columns.
pub struct RingJob<'a> {
    /// The name of the program in errors; its key id is that of every register.
    pub program_vr: VrNumber,
    /// The program.
    pub program: &'a Program,
    /// The ring.
    pub set: &'static RingSet,
    /// The columns. A program on ring columns reads no single samples.
    pub inputs: &'a [RingInput<'a>],
    /// The form of the result.
    pub form: RingForm,
    /// Which rows count, if not all do: the result has 0 in the others, and sums have nothing of them. The last functions before the result and before
    /// sums see to it, so that there must be some.
    pub kept: Option<&'a [bool]>,
}

/// The rows of a result in their form.
#[derive(Clone, Debug)]
pub enum RingRows {
    /// A ring column.
    Column(StoredColumn),
    /// A column of packed chunks ([`toroid_tfhe::column`]).
    Samples(Vec<u8>),
}

/// The result of a program on ring columns.
#[derive(Clone, Debug)]
pub struct MadeRingColumn {
    /// What the run did, and what is known of the result.
    pub facts: MapFacts,
    /// The parameter set of the key id's samples.
    pub params: &'static ParamSet,
    /// The result.
    pub rows: RingRows,
}

impl Engine {
    /// Runs a program on ring columns under the ring key of its key id. Rows that come as samples, and a result in samples, take the conversion key
    /// as well. It changes no register. The result has at most `room` bytes.
    ///
    /// # Errors
    /// [`EngineError::MissingRingKey`] and [`EngineError::MissingConversionKey`] where a key is not loaded, those of [`RingForecast::facts`],
    /// [`EngineError::MapTooLarge`] before anything is computed, [`EngineError::KeyTagMismatch`], and a failure of the back end.
    pub fn map_ring<'r>(
        &self,
        job: &RingJob<'_>,
        room: u64,
        requester: impl Into<Requester<'r>>,
    ) -> Result<MadeRingColumn, EngineError> {
        let requester = requester.into();
        let key_id = job.program_vr.key_id();
        let key_of = |kind| {
            VrNumber::key(key_id, kind)
                .map_err(|_| EngineError::NoSuchRegister { vr: job.program_vr })
        };
        let (key_vr, conversion_vr) = (key_of(KeyKind::Ring)?, key_of(KeyKind::Conversion)?);
        let mut of_samples = job.inputs.iter().map(|input| input.operand);
        let converts = job.form == RingForm::Samples
            || of_samples.any(|operand| matches!(operand, RingOperand::Samples(_)));
        let mut functions = BTreeMap::new();
        let (key, params, conversion) = {
            let mut table = self.table();
            for input in job.inputs {
                if input.vr.key_id() != key_id {
                    return Err(EngineError::KeyIdDenied { vr: job.program_vr });
                }
                table.check_key_tag((input.vr, Origin::Write), input.attributes.key_tag)?;
            }
            let (key, params) = table
                .use_ring_key(key_vr)
                .ok_or(EngineError::MissingRingKey { vr: key_vr })?;
            let conversion = match converts {
                true => {
                    let found = table.use_ring_key(conversion_vr);
                    let missing = EngineError::MissingConversionKey { vr: conversion_vr };
                    Some(found.ok_or(missing)?.0)
                }
                false => None,
            };
            for instruction in job.program.instructions() {
                let Instruction::Bootstrap { tv, .. } = *instruction else {
                    continue;
                };
                let register = table.get(tv);
                let register = register.ok_or(EngineError::NoSuchRegister { vr: tv })?;
                if let Content::TestVector { bytes, output } = &register.content
                    && let Some(input) = register.encoding
                {
                    let output = output.unwrap_or(input);
                    functions.insert(tv, ((input, output), bytes.clone()));
                }
            }
            (key, params, conversion)
        };
        for key in std::iter::once(&key).chain(&conversion) {
            if key.ring_set() != Some(job.set) {
                return Err(EngineError::ParamsMismatch {
                    vr: job.program_vr,
                    expected: key.ring_set().map_or("another key", |set| set.name),
                    found: job.set.name,
                });
            }
        }
        let mut inputs = BTreeMap::new();
        for input in job.inputs {
            let facts = ring_facts(job.set, params, input)?;
            if inputs.insert(input.vr, facts).is_some() {
                let what = "two columns stand in one register".to_owned();
                return Err(RowError::Refused(what).of(input.vr));
            }
        }
        let forecast = RingForecast {
            program_vr: job.program_vr,
            program: job.program,
            set: job.set,
            params,
            inputs: &inputs,
            functions: &|tv| functions.get(&tv).map(|(encodings, _)| *encodings),
            form: job.form,
            leaves_out: job.kept.is_some(),
        };
        let plan = forecast.plan()?;
        let rows = job.inputs.first().map_or(0, |input| input.operand.rows());
        if let Some(kept) = job.kept
            && kept.len() != rows
        {
            let what = format!("{} rows are kept or left out, of {rows}", kept.len());
            return Err(RowError::Refused(what).of(job.program_vr));
        }
        let output = plan.facts.outputs.first();
        let (vr, rows, encoding) = output
            .and_then(|output| Some((output.vr, output.rows, output.encoding?)))
            .ok_or(EngineError::NoSuchRegister { vr: job.program_vr })?;
        let log2_failure = output.map_or(0.0, |output| output.noise.log2_failure());
        let width = job.set.computed_width;
        let refused = |error: TfheError| RowError::Refused(error.to_string()).of(vr);
        let needed = match job.form {
            RingForm::Column => {
                StoredColumn::computed_bytes(job.set.params(), width, rows as usize) as u64
            }
            RingForm::Samples => column_bytes(params, ColumnForm::Packed, rows).map_err(refused)?,
        };
        if needed > room {
            return Err(EngineError::MapTooLarge {
                vr: job.program_vr,
                what: "a result",
                needed: needed.into(),
                room,
            });
        }
        let layout = Layout {
            log2_pieces: plan.log2_pieces(),
            ..Layout::plain(encoding.bits())
        };
        let registers: Vec<VrNumber> = job.inputs.iter().map(|input| input.vr).collect();
        let (steps, output) = plan.steps((job.form, job.kept), &registers, |tv, above| {
            let (encodings, bytes) = functions
                .get(&tv)
                .ok_or(EngineError::NoSuchRegister { vr: tv })?;
            table_of(job.set, params, *encodings, above, bytes).map_err(|error| error.of(tv))
        })?;
        let statement = Statement {
            log2_variance: Some(plan.variance.log2() as f32),
            log2_failure: Some(log2_failure as f32).filter(|log2| log2.is_finite()),
        };
        let program = RingProgram {
            steps: &steps,
            output,
            rows: rows as usize,
            target: match job.form {
                RingForm::Column => RingTarget::Column((layout, width), statement),
                RingForm::Samples => RingTarget::Samples,
            },
        };
        let operands: Vec<RingOperand<'_>> = job.inputs.iter().map(|input| input.operand).collect();
        let keys = RingKeys {
            ring: &*key,
            conversion: conversion.as_deref(),
        };
        let made = self
            .backend
            .run_ring(keys, &operands, &program, requester)
            .map_err(|source| match source {
                crate::backend::BackendError::Cancelled => EngineError::Cancelled,
                source => EngineError::Backend { vr, source },
            })?;
        let rows = match made {
            RingMade::Column(column) => RingRows::Column(column),
            RingMade::Samples(chunks) => {
                RingRows::Samples(packed(params, &chunks, rows as usize).map_err(refused)?)
            }
        };
        Ok(MadeRingColumn {
            facts: plan.facts,
            params,
            rows,
        })
    }
}

/// The first rows of chunks that share masks, as a column.
fn packed(params: &ParamSet, chunks: &[Chunk], rows: usize) -> Result<Vec<u8>, TfheError> {
    let full = rows_per_chunk(params);
    let mut column = ColumnBytesBuilder::new(params, rows.div_ceil(full));
    for (number, chunk) in chunks.iter().take(rows.div_ceil(full)).enumerate() {
        let count = full.min(rows - number * full);
        let bytes = chunk.clone().leading(count)?.packed();
        column.push_chunk(ColumnForm::Packed, count, &bytes.unwrap_or_default())?;
    }
    column.finish()
}

/// What is known of an input; refuses a column that is not of the set, or not what is stated of it.
fn ring_facts(
    set: &'static RingSet,
    params: &'static ParamSet,
    input: &RingInput<'_>,
) -> Result<RingFacts, EngineError> {
    input.attributes.check(input.vr)?;
    let facts = match input.operand {
        RingOperand::Column(column) => facts_of_column(set, input, column),
        RingOperand::Samples(chunks) => facts_of_samples(set, params, input, chunks),
    };
    facts.map_err(|error| error.of(input.vr))
}

fn facts_of_samples(
    set: &RingSet,
    params: &ParamSet,
    input: &RingInput<'_>,
    chunks: &[Chunk],
) -> Result<RingFacts, RowError> {
    let (full, last) = (rows_per_chunk(params), chunks.len().saturating_sub(1));
    let mut number = 0;
    for (place, chunk) in chunks.iter().enumerate() {
        let rows = chunk.rows();
        let of_params = chunk.params() == params && chunk.shares_masks();
        if !of_params || (place < last && rows != full) {
            let what = format!(
                "chunk {place} of {rows} rows; a ring column is made of seeded or packed chunks of {full} rows of {}, but for the last",
                params.name
            );
            return Err(RowError::Refused(what));
        }
        let words = chunk.glwe().unwrap_or_default();
        number = (number ^ fingerprint(bytemuck::cast_slice(words))).rotate_left(1);
    }
    let rows = chunks.iter().map(|chunk| chunk.rows() as u64).sum();
    let noise = input.attributes.noise(params);
    RingFacts::of_samples(
        set,
        params,
        (rows, number),
        &noise,
        input.attributes.encoding,
    )
}

fn facts_of_column(
    set: &RingSet,
    input: &RingInput<'_>,
    column: &StoredColumn,
) -> Result<RingFacts, RowError> {
    let refused = |what: String| RowError::Refused(what);
    set.check_column(column)
        .map_err(|error| refused(error.to_string()))?;
    let encoding = input.attributes.encoding;
    let layout = column.layout();
    let encoding = encoding.filter(|encoding| layout.is_plain(encoding.bits()));
    let encoding = encoding.ok_or_else(|| {
        refused(format!(
            "the column has {layout:?}, other than what is stated"
        ))
    })?;
    // What is worse counts: the statement in the metadata, or that in the header.
    let stated = [
        input.attributes.log2_variance,
        column.statement().log2_variance.map(f64::from),
    ];
    let log2_variance = stated.into_iter().flatten().reduce(f64::max);
    let failures = [
        input.attributes.log2_failure,
        column.statement().log2_failure.map(f64::from),
    ];
    let log2_failure = failures.into_iter().flatten().reduce(f64::max);
    Ok(RingFacts {
        rows: column.rows() as u64,
        variance: log2_variance.map_or(1.0, f64::exp2),
        log2_failure: match log2_variance {
            Some(_) => log2_failure.unwrap_or(f64::NEG_INFINITY),
            None => 0.0,
        },
        encoding,
        computed: input.attributes.computed || !column.is_seeded(),
        log2_pieces: layout.log2_pieces,
        is_converted: false,
        number: fingerprint(&column.to_bytes()),
    })
}
