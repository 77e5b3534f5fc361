//! A program on columns, taken apart: the values that it computes, how many rows each has, and which of them the rows of a tile go
//! through together.
//!
//! Every instruction that computes something makes a *value* of its own, so that `mov`, `push` and `pop` cost nothing, and a value that no
//! output needs is never computed. Sums and moves of rows need all rows of a column before anything that follows them can begin: they end
//! a *stage*. Within a stage, values of equally many rows are computed together, tile by tile.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use toroid_isa::{Instruction, Program, VrNumber};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;

use crate::error::EngineError;
use crate::register::function_input;

/// The most rows of a column.
pub const MAX_ROWS: u64 = 1 << 40;

/// The most functions of a task: bounds the memory of their results.
const MAX_FUNCTIONS: usize = 64;

/// The place of a value in [`Plan::values`]. A value comes after those that it is made of.
pub(crate) type ValueId = usize;

/// How a value comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// It is there: the input of this register.
    Input(VrNumber),
    Add(ValueId, ValueId),
    Sub(ValueId, ValueId),
    Mul(ValueId, i32),
    AddInt(ValueId, i32),
    /// A function of [`Plan::tasks`].
    Bootstrap(usize),
    /// Sums of so many rows.
    Sum(ValueId, u64),
    Lower(ValueId, u64),
    Upper(ValueId, u64),
    Join(ValueId, ValueId, u64),
}

impl Operation {
    /// The values that the operation reads, without those of a bootstrap.
    fn operands(self) -> impl Iterator<Item = ValueId> {
        let (first, second) = match self {
            Operation::Input(_) | Operation::Bootstrap(_) => (None, None),
            Operation::Add(a, b) | Operation::Sub(a, b) | Operation::Join(a, b, _) => {
                (Some(a), Some(b))
            }
            Operation::Mul(a, _)
            | Operation::AddInt(a, _)
            | Operation::Sum(a, _)
            | Operation::Lower(a, _)
            | Operation::Upper(a, _) => (Some(a), None),
        };
        first.into_iter().chain(second)
    }

    /// Whether it takes the rows of whole columns to other places.
    pub(crate) fn moves_rows(self) -> bool {
        matches!(
            self,
            Operation::Lower(..) | Operation::Upper(..) | Operation::Join(..)
        )
    }

    /// Whether its result is complete only when all rows of its operands are.
    fn ends_stage(self) -> bool {
        self.moves_rows() || matches!(self, Operation::Sum(..))
    }
}

/// What is known of a value.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) operation: Operation,
    pub(crate) rows: u64,
    pub(crate) encoding: Option<Encoding>,
    /// The stage in which its operation runs.
    pub(crate) stage: usize,
    /// Whether rows were moved on the way to it from inputs and bootstraps.
    moved: bool,
}

/// The operations that read a value.
#[derive(Clone, Copy, Default)]
pub(crate) struct Readers {
    /// The last stage of one of them.
    pub(crate) last_stage: usize,
    /// Whether one of them moves rows.
    pub(crate) moves_rows: bool,
    /// Whether one of them works on several rows, or in a later stage.
    pub(crate) beyond: bool,
}

/// Bootstraps of one value, which the back end gets as one task for each row.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) input: ValueId,
    pub(crate) input_bits: u32,
    /// Test vectors, each with its result.
    pub(crate) functions: Vec<(VrNumber, ValueId)>,
}

/// What is known of a column, or of a single sample, before a program runs on it.
#[derive(Clone, Debug)]
pub struct ColumnFacts {
    /// Its rows, 1 of a single sample.
    pub rows: u64,
    /// Noise of each row.
    pub noise: Noise,
    /// Encoding of its messages; `None`: unknown, or a Boolean gate's.
    pub encoding: Option<Encoding>,
    /// A number that inputs of the same samples have in common, and no others.
    pub number: u64,
}

/// What the engine knows where it plans.
pub(crate) struct Setting<'a> {
    pub(crate) program: VrNumber,
    pub(crate) params: &'static ParamSet,
    pub(crate) arithmetic: ArithmeticKind,
    /// The columns and samples that the program finds.
    pub(crate) inputs: &'a BTreeMap<VrNumber, ColumnFacts>,
    /// Encodings of a test vector's input and output, as far as they are stated.
    pub(crate) functions: &'a dyn Fn(VrNumber) -> (Option<Encoding>, Option<Encoding>),
}

/// A program on columns, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) params: &'static ParamSet,
    pub(crate) values: Vec<Value>,
    pub(crate) tasks: Vec<Task>,
    /// The registers asked for, with the values that they hold at the end.
    pub(crate) outputs: Vec<(VrNumber, ValueId)>,
    /// The noise of each output.
    pub(crate) noises: Vec<Noise>,
}

impl Plan {
    /// Takes a verified program apart.
    ///
    /// # Errors
    /// [`EngineError::Rows`] where the numbers of rows do not fit together.
    pub(crate) fn new(
        setting: &Setting<'_>,
        program: &Program,
        outputs: &[VrNumber],
    ) -> Result<Plan, EngineError> {
        let mut planner = Planner {
            setting,
            values: Vec::new(),
            tasks: Vec::new(),
            inputs: HashMap::new(),
            made: HashMap::new(),
            task_of: HashMap::new(),
            result_of: HashMap::new(),
            registers: HashMap::new(),
            stack: Vec::new(),
            holders: HashMap::new(),
            noises: HashMap::new(),
        };
        let mut returned = None;
        for (index, instruction) in program.instructions().iter().enumerate() {
            let place = (index, instruction);
            if let Instruction::Return { n } = *instruction {
                returned = Some(n);
                break;
            }
            planner.step(place)?;
        }
        let returned: Vec<VrNumber> = returned.into_iter().collect();
        let outputs = if outputs.is_empty() {
            &returned
        } else {
            outputs
        };
        let outputs = outputs
            .iter()
            .map(|vr| Ok((*vr, planner.read(*vr)?)))
            .collect::<Result<Vec<_>, EngineError>>()?;
        let noises = outputs
            .iter()
            .map(|(_, value)| planner.noise(*value))
            .collect();
        let mut plan = Plan {
            params: setting.params,
            noises,
            values: planner.values,
            tasks: planner.tasks,
            outputs,
        };
        plan.drop_unused();
        Ok(plan)
    }

    /// The values that an operation reads.
    pub(crate) fn operands(&self, operation: Operation) -> impl Iterator<Item = ValueId> {
        let bootstrapped = match operation {
            Operation::Bootstrap(task) => self.tasks.get(task).map(|task| task.input),
            _ => None,
        };
        operation.operands().chain(bootstrapped)
    }

    /// Takes the functions that nobody needs out of the tasks.
    fn drop_unused(&mut self) {
        let needed = self.needed();
        for task in &mut self.tasks {
            task.functions.retain(|(_, value)| needed.contains(value));
        }
    }

    /// The values that the outputs are made of.
    pub(crate) fn needed(&self) -> BTreeSet<ValueId> {
        let mut needed = BTreeSet::new();
        let mut open: Vec<ValueId> = self.outputs.iter().map(|(_, value)| *value).collect();
        while let Some(value) = open.pop() {
            if needed.insert(value)
                && let Some(value) = self.values.get(value)
            {
                open.extend(self.operands(value.operation));
            }
        }
        needed
    }

    /// What reads each of these values; nothing of one that none of them reads.
    pub(crate) fn readers(&self, needed: &BTreeSet<ValueId>) -> HashMap<ValueId, Readers> {
        let mut readers: HashMap<ValueId, Readers> = HashMap::new();
        for id in needed {
            let value = &self.values[*id];
            for operand in self.operands(value.operation) {
                let of_operand = readers.entry(operand).or_default();
                of_operand.last_stage = of_operand.last_stage.max(value.stage);
                of_operand.moves_rows |= value.operation.moves_rows();
                of_operand.beyond |= value.rows > 1 || value.stage > self.values[operand].stage;
            }
        }
        readers
    }

    /// The most rows that lie in pages at a time: those that moves of rows, or later stages, read.
    pub(crate) fn kept_rows(&self) -> u128 {
        let needed = self.needed();
        let outputs: BTreeSet<ValueId> = self.outputs.iter().map(|(_, value)| *value).collect();
        let readers = self.readers(&needed);
        let end = needed
            .iter()
            .map(|id| self.values[*id].stage)
            .max()
            .unwrap_or(0)
            + 1;
        let mut change: BTreeMap<usize, i128> = BTreeMap::new();
        for id in needed {
            let value = &self.values[id];
            let read = readers.get(&id).copied().unwrap_or_default();
            let moves = value.operation.moves_rows() || read.moves_rows;
            if value.rows > 1 && (moves || read.last_stage > value.stage) {
                let until = if outputs.contains(&id) {
                    end
                } else {
                    read.last_stage.max(value.stage)
                };
                *change.entry(value.stage).or_default() += i128::from(value.rows);
                *change.entry(until + 1).or_default() -= i128::from(value.rows);
            }
        }
        let mut rows = 0;
        let most = change.values().map(|change| {
            rows += change;
            rows
        });
        most.max().unwrap_or(0).unsigned_abs()
    }

    /// The bootstraps of the whole run.
    pub(crate) fn bootstraps(&self) -> u64 {
        let of_task = |task: &Task| {
            let rows = task
                .functions
                .first()
                .and_then(|(_, value)| self.values.get(*value));
            rows.map_or(0, |value| value.rows) * task.functions.len() as u64
        };
        self.tasks.iter().map(of_task).sum()
    }
}

struct Planner<'a> {
    setting: &'a Setting<'a>,
    values: Vec<Value>,
    tasks: Vec<Task>,
    /// The inputs by their numbers and encodings, and other values but bootstraps by their operations: the same samples are one value.
    inputs: HashMap<(u64, Option<(u32, bool)>), ValueId>,
    made: HashMap<Operation, ValueId>,
    /// The place of a value's task in `tasks`, by the bits that its functions read.
    task_of: HashMap<(ValueId, u32), usize>,
    /// The results of test vectors, by value and bits.
    result_of: HashMap<(ValueId, u32, VrNumber), ValueId>,
    registers: HashMap<VrNumber, ValueId>,
    stack: Vec<ValueId>,
    /// How many registers and places of the stack hold a value.
    holders: HashMap<ValueId, u32>,
    /// The noise of the values that are held.
    noises: HashMap<ValueId, Noise>,
}

impl Planner<'_> {
    /// A register or a place of the stack takes a value.
    fn hold(&mut self, value: ValueId) {
        *self.holders.entry(value).or_default() += 1;
    }

    /// A register or a place of the stack lets go of a value. What nothing holds, nothing can read, and its noise, which may
    /// be kilobytes, is not kept: it is worked out again where the value is made again. That of a bootstrap is small.
    fn let_go(&mut self, value: ValueId) {
        if let Some(count) = self.holders.get_mut(&value) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&value);
                if !matches!(self.values[value].operation, Operation::Bootstrap(_)) {
                    self.noises.remove(&value);
                }
            }
        }
    }

    /// The noise of a value that is held; of any other nothing is known.
    fn noise(&self, value: ValueId) -> Noise {
        let known = self.noises.get(&value);
        known.map_or_else(|| Noise::with_failure(1.0, 0.0), Noise::clone)
    }

    fn set(&mut self, register: VrNumber, value: ValueId) {
        self.hold(value);
        if let Some(old) = self.registers.insert(register, value) {
            self.let_go(old);
        }
    }

    fn read(&mut self, vr: VrNumber) -> Result<ValueId, EngineError> {
        if let Some(value) = self.registers.get(&vr) {
            return Ok(*value);
        }
        let facts = self
            .setting
            .inputs
            .get(&vr)
            .ok_or(EngineError::NoSuchRegister { vr })?;
        let noise = if facts.rows == 1 {
            facts.noise.clone().in_one_row()
        } else {
            facts.noise.clone().in_each_row()
        };
        let encoding = facts.encoding;
        let key = (
            facts.number,
            encoding.map(|encoding| (encoding.bits(), encoding.is_signed())),
        );
        let input = Value {
            operation: Operation::Input(vr),
            rows: facts.rows,
            encoding,
            stage: 0,
            moved: false,
        };
        let value = match self.inputs.get(&key) {
            Some(value) => {
                let known = self.noises.remove(value);
                let noise = known.map_or(noise.clone(), |known| known.or_worse(&noise));
                self.noises.insert(*value, noise);
                *value
            }
            None => {
                let value = self.push(input, noise);
                self.inputs.insert(key, value);
                value
            }
        };
        self.set(vr, value);
        Ok(value)
    }

    /// The value of an operation other than an input and a bootstrap, whose noise this is.
    fn make(&mut self, value: Value, noise: Noise) -> ValueId {
        match self.made.get(&value.operation) {
            Some(known) => {
                let known = *known;
                self.noises.entry(known).or_insert(noise);
                known
            }
            None => {
                let operation = value.operation;
                let made = self.push(value, noise);
                self.made.insert(operation, made);
                made
            }
        }
    }

    fn push(&mut self, value: Value, noise: Noise) -> ValueId {
        let place = self.values.len();
        self.values.push(value);
        self.noises.insert(place, noise);
        place
    }

    /// The first stage in which an operation can read the value.
    fn available(&self, value: ValueId) -> usize {
        let value = &self.values[value];
        value.stage + usize::from(value.operation.ends_stage())
    }

    /// A value made of `first` and `second` row by row.
    fn combine(
        &mut self,
        (index, instruction): (usize, &Instruction),
        operation: Operation,
        (first, second): (ValueId, ValueId),
        sign: f64,
    ) -> Result<ValueId, EngineError> {
        let (a, b) = (&self.values[first], &self.values[second]);
        let rows = match (a.rows, b.rows) {
            (rows, other) if rows == other => rows,
            (1, rows) | (rows, 1) => rows,
            (rows, other) => {
                return Err(self.mismatch(
                    index,
                    instruction,
                    format!("{rows} and {other} rows found, equally many or a single one expected"),
                ));
            }
        };
        let value = Value {
            operation,
            rows,
            encoding: match (a.encoding, b.encoding) {
                (Some(a), Some(b)) => Some(a.common(b)),
                (a, b) => a.or(b),
            },
            stage: self.available(first).max(self.available(second)),
            moved: a.moved || b.moved,
        };
        let noise = self.noise(first).plus(&self.noise(second), sign);
        Ok(self.make(value, noise))
    }

    /// A value made of one other, with what differs.
    fn derive(
        &mut self,
        operation: Operation,
        from: ValueId,
        rows: u64,
        noise: impl FnOnce(&Noise) -> Noise,
    ) -> ValueId {
        let noise = noise(&self.noise(from));
        let value = Value {
            operation,
            rows,
            encoding: self.values[from].encoding,
            stage: self.available(from),
            moved: self.values[from].moved || operation.moves_rows(),
        };
        self.make(value, if rows == 1 { noise.in_one_row() } else { noise })
    }

    fn mismatch(&self, index: usize, instruction: &Instruction, what: String) -> EngineError {
        EngineError::Rows {
            vr: self.setting.program,
            index,
            text: instruction.to_string(),
            what,
        }
    }

    fn step(&mut self, place: (usize, &Instruction)) -> Result<(), EngineError> {
        let (register, value) = match *place.1 {
            Instruction::Return { .. } => return Ok(()),
            Instruction::Push { n } => {
                let value = self.read(n)?;
                self.hold(value);
                self.stack.push(value);
                return Ok(());
            }
            Instruction::Pop { n } => {
                let value = self.stack.pop().ok_or(EngineError::Execution {
                    vr: self.setting.program,
                    what: "pops from an empty stack",
                })?;
                self.set(n, value);
                self.let_go(value);
                return Ok(());
            }
            Instruction::Move { dst, src } => (dst, self.read(src)?),
            Instruction::HomAdd { dst, src } => {
                let (a, b) = (self.read(dst)?, self.read(src)?);
                (dst, self.combine(place, Operation::Add(a, b), (a, b), 1.0)?)
            }
            Instruction::HomSub { dst, src } => {
                let (a, b) = (self.read(dst)?, self.read(src)?);
                (
                    dst,
                    self.combine(place, Operation::Sub(a, b), (a, b), -1.0)?,
                )
            }
            Instruction::HomIntMult { n, v } => {
                let a = self.read(n)?;
                let rows = self.values[a].rows;
                let times = |noise: &Noise| noise.times(f64::from(v));
                (n, self.derive(Operation::Mul(a, v), a, rows, times))
            }
            Instruction::HomIntAdd { n, v } => {
                let a = self.read(n)?;
                let rows = self.values[a].rows;
                (
                    n,
                    self.derive(Operation::AddInt(a, v), a, rows, Noise::clone),
                )
            }
            Instruction::HomSum { n, g } => {
                let a = self.read(n)?;
                (n, self.sum(a, u64::from(g)))
            }
            Instruction::Lower { n, d } => {
                (n, self.half(place, n, u64::from(d), Operation::Lower)?)
            }
            Instruction::Upper { n, d } => {
                (n, self.half(place, n, u64::from(d), Operation::Upper)?)
            }
            Instruction::Join { lower, upper, d } => {
                (lower, self.join(place, (lower, upper), u64::from(d))?)
            }
            Instruction::Bootstrap { tv, n } => {
                let a = self.read(n)?;
                (n, self.bootstrap(tv, a))
            }
        };
        self.set(register, value);
        Ok(())
    }

    fn sum(&mut self, from: ValueId, group: u64) -> ValueId {
        let rows = self.values[from].rows;
        let group = if group == 0 { rows } else { group.min(rows) };
        if group <= 1 {
            return from;
        }
        let sums = rows.div_ceil(group);
        let noise = |noise: &Noise| noise.sum_of_rows(group);
        self.derive(Operation::Sum(from, group), from, sums, noise)
    }

    fn half(
        &mut self,
        (index, instruction): (usize, &Instruction),
        n: VrNumber,
        d: u64,
        operation: fn(ValueId, u64) -> Operation,
    ) -> Result<ValueId, EngineError> {
        let from = self.read(n)?;
        let rows = self.values[from].rows;
        if d == 0 || rows == 0 || !rows.is_multiple_of(2 * d) {
            let what = format!("{rows} rows found, a multiple of {} expected", 2 * d);
            return Err(self.mismatch(index, instruction, what));
        }
        Ok(self.derive(operation(from, d), from, rows / 2, Noise::of_moved_rows))
    }

    fn join(
        &mut self,
        place: (usize, &Instruction),
        (lower, upper): (VrNumber, VrNumber),
        d: u64,
    ) -> Result<ValueId, EngineError> {
        let (a, b) = (self.read(lower)?, self.read(upper)?);
        let (rows, others) = (self.values[a].rows, self.values[b].rows);
        if d == 0 || rows != others || rows == 0 || !rows.is_multiple_of(d) {
            let what = format!(
                "{rows} and {others} rows found, equally many and a multiple of {d} expected"
            );
            return Err(self.mismatch(place.0, place.1, what));
        }
        if 2 * rows > MAX_ROWS {
            let what = format!("{} rows made, at most {MAX_ROWS} expected", 2 * rows);
            return Err(self.mismatch(place.0, place.1, what));
        }
        let (first, second) = (&self.values[a], &self.values[b]);
        if first.encoding != second.encoding {
            let width = |encoding: Option<Encoding>| {
                encoding.map_or_else(|| "an unknown encoding".to_owned(), |e| e.to_string())
            };
            let what = format!(
                "{} and {} found, equal encodings expected",
                width(first.encoding),
                width(second.encoding)
            );
            return Err(self.mismatch(place.0, place.1, what));
        }
        // A row of the result is of one of the two, and which it is nobody keeps: whatever it meets may share its sources.
        let either = self.noise(a).or_worse(&self.noise(b));
        let value = Value {
            operation: Operation::Join(a, b, d),
            rows: 2 * rows,
            encoding: first.encoding,
            stage: self.available(a).max(self.available(b)),
            moved: true,
        };
        Ok(self.make(value, self.sharing(&either)))
    }

    /// The noise of a sample that may share its sources with any other.
    fn sharing(&self, noise: &Noise) -> Noise {
        let (variance, failure) = (noise.variance(), noise.log2_failure());
        Noise::stored(self.setting.params, variance, failure, true)
    }

    fn bootstrap(&mut self, tv: VrNumber, input: ValueId) -> ValueId {
        let Setting {
            params, arithmetic, ..
        } = *self.setting;
        let (stated, output) = (self.setting.functions)(tv);
        let function = function_input(params, stated);
        let input_bits = function.map_or(0, Encoding::bits);
        let next = self.tasks.len();
        let full = |task: &usize| self.tasks[*task].functions.len() >= MAX_FUNCTIONS;
        let open = self.task_of.get(&(input, input_bits)).copied();
        if let Some(value) = self.result_of.get(&(input, input_bits, tv)) {
            return *value;
        }
        let task = open.filter(|task| !full(task)).unwrap_or(next);
        if task == next {
            self.task_of.insert((input, input_bits), next);
            self.tasks.push(Task {
                input,
                input_bits,
                functions: Vec::new(),
            });
        }
        let source = &self.values[input];
        let rows = source.rows;
        // Bootstraps of the same sample are correlated. Where it may have come about in another way, too, nobody knows which those are.
        let number = match source.operation {
            _ if source.moved => None,
            Operation::Input(vr) => self.setting.inputs.get(&vr).map(|facts| facts.number),
            _ if rows == 1 => None,
            _ => Some(input as u64),
        };
        let noise = self.noise(input);
        let noise = noise.bootstrapped(params, input_bits, arithmetic, number.unwrap_or_default());
        let noise = match number {
            None => self.sharing(&noise),
            Some(_) if rows == 1 => noise,
            Some(_) => noise.in_each_row(),
        };
        let value = Value {
            operation: Operation::Bootstrap(task),
            rows,
            encoding: output.or(function),
            stage: self.available(input),
            moved: false,
        };
        let value = self.push(value, noise);
        self.result_of.insert((input, input_bits, tv), value);
        self.tasks[task].functions.push((tv, value));
        value
    }
}
