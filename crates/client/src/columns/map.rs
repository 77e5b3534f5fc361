//! Programs over columns, unit of rows by unit of rows.
//!
//! A program that works row by row, or on groups of rows, runs on one unit of rows after the other; each result is appended to the output
//! together with the [`JobRecord`], in one change. The rows stand as one run would leave them: a unit has whole groups, whether they are summed,
//! taken apart or joined, so that its result is a part of the whole one. A sum of all rows is that of the units' sums. A program that goes on
//! with such a sum runs once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use sha2::{Digest as _, Sha256};
use toroid_engine::{ColumnFacts, Forecast, MapFacts, MapOutput, packed_noise};
use toroid_isa::{Assembly, Instruction, Program, VrNumber, VrType};
use toroid_rns::ring_set::RingSet;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{ColumnForm, Segment, rows_per_chunk};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;

use super::executor::{Executor, Limits};
use super::head::{JobRecord, Run};
use super::object::result_bytes;
use super::ring::RingJob;
use super::rows::{EncryptedRows, log2_failure};
use super::stored::{Change, StoredColumn, bytes_of_segments};
use super::way::{self, Reason, RowForm, Way};
use super::{ColumnError, ColumnStat, mismatch, of};
use crate::blob::{BlobError, BlobStat};
use crate::ledger::Origin;
use crate::session::{Object, Session, SessionError, check_widths};

/// Rows of a unit of a program with bootstraps, which take most of its time.
const UNIT_ROWS: u64 = 256;

/// What a program is to do with columns of a drive.
#[derive(Clone, Debug)]
pub struct MapRequest<'a> {
    /// The program, assembled for the key id of the columns.
    pub program: &'a Assembly,
    /// Registers, by their names in the program, and the columns that stand in them.
    pub inputs: &'a [(&'a str, &'a str)],
    /// The rows of the columns that the program sees; all of them if not given. Columns of a single row go with all.
    pub rows: Option<Range<u64>>,
    /// The column that the result becomes.
    pub output: &'a str,
    /// Whether a column of this name that holds something else is replaced.
    pub replace: bool,
    /// Rows of a unit; chosen if not given. Ciphertexts of a ring are units of their own.
    pub unit: Option<u64>,
    /// The way over columns of samples.
    pub way: Way,
    /// The form of the result: that which the way leaves if not given.
    pub form: Option<RowForm>,
    /// Which of the rows that the program sees count; all of them if not given. The result has 0 in the others, and sums have nothing of them: the last
    /// functions before the result and before sums give 0 there. The drive sees which rows count. Runs by ciphertexts alone leave out rows.
    pub kept: Option<&'a [bool]>,
}

impl MapRequest<'_> {
    /// The register that the program has by this name.
    pub(super) fn register(&self, name: &str) -> Result<VrNumber, SessionError> {
        let vr = self.program.registers.get(name).copied();
        vr.ok_or_else(|| SessionError::NoSuchRegister(name.to_owned()))
    }
}

/// How the rows of columns are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Route {
    /// Sample by sample.
    Samples,
    /// Ciphertext by ciphertext of a ring: the columns are ring columns, or become some.
    Ring(&'static RingSet),
}

impl Route {
    /// `samples` or `ring`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Route::Samples => "samples",
            Route::Ring(_) => "ring",
        }
    }
}

/// What a program will do with columns of a drive.
#[derive(Clone, Debug)]
pub struct MapPlan {
    /// The parameter set.
    pub params: &'static ParamSet,
    /// How the rows are computed.
    pub route: Route,
    /// Why so.
    pub reason: Reason,
    /// The ring by whose ciphertexts the same rows could go, of those that a drive has keys of; nothing where that was not looked into.
    pub ring: Option<&'static RingSet>,
    /// The form of the result.
    pub form: RowForm,
    /// Whether rows of the inputs or of the result change between samples and ring columns, so that the drive needs a conversion key.
    pub converts: bool,
    /// Rows of the inputs.
    pub rows: u64,
    /// Commands of a run from its beginning: units of rows, or ciphertexts.
    pub commands: u64,
    /// Rows, noise and bootstraps of a run in one command, whose rows are not packed.
    pub facts: MapFacts,
    /// Noise of a row of the result: that of the facts, and what packing and adding up units put to it.
    pub noise: Noise,
    /// Those of the rows whose results the output holds already.
    pub done: u64,
    /// Whether the output is complete.
    pub complete: bool,
}

impl MapPlan {
    fn output(&self) -> Option<&MapOutput> {
        self.facts.outputs.first()
    }

    /// Rows of the result.
    #[must_use]
    pub fn output_rows(&self) -> u64 {
        self.output().map_or(0, |output| output.rows)
    }

    /// log2 of the probability that a row of the result decrypts to a wrong number.
    #[must_use]
    pub fn log2_failure(&self) -> f64 {
        let ring = match (self.route, self.form) {
            (Route::Ring(set), RowForm::Ring) => Some(set),
            _ => None,
        };
        let noise = self.noise.stated(self.params);
        let of_output = |output: &MapOutput| log2_failure(ring, output.encoding, noise);
        self.output().map_or(0.0, of_output)
    }
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct MapReport {
    /// The output.
    pub output: ColumnStat,
    /// Rows of the inputs.
    pub rows: u64,
    /// Those of them that this run worked on; the others were done before.
    pub computed: u64,
    /// Commands that ran the program.
    pub commands: u64,
}

/// How the rows of a register follow from those of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One row, whatever the inputs have.
    Single,
    /// So many rows for every so many of the inputs, in lowest terms; fewer of the last ones where those do not fill a sum.
    Each { made: u64, of: u64 },
    /// So many sums of all.
    Totals(u64),
    /// All rows are needed for each.
    Whole,
}

/// The most sums of all rows that are added up side by side, a power of two.
const MOST_TOTALS: u64 = 1 << 10;

impl Shape {
    /// A row for each of the inputs.
    pub(super) const ROW_BY_ROW: Shape = Shape::Each { made: 1, of: 1 };

    /// `made` rows, less by `by`, for every `of` rows.
    fn each(made: u64, of: u64, by: u64) -> Shape {
        let common = gcd(made, by);
        let (made, by) = (made / common, by / common);
        match of.checked_mul(by) {
            Some(of) => {
                let common = gcd(made, of);
                Shape::Each {
                    made: made / common,
                    of: of / common,
                }
            }
            None => Shape::Whole,
        }
    }

    /// That of a sum or difference.
    fn with(self, other: Shape) -> Shape {
        match (self, other) {
            (Shape::Single, other @ (Shape::Single | Shape::Each { .. })) => other,
            (own @ Shape::Each { .. }, Shape::Single) => own,
            (Shape::Each { .. }, other) if self == other => self,
            _ => Shape::Whole,
        }
    }

    /// That of what goes on with these rows.
    fn alone(self) -> Shape {
        match self {
            Shape::Totals(_) => Shape::Whole,
            shape => shape,
        }
    }

    /// That of the rows of two registers, put together.
    fn joined(self, other: Shape) -> Shape {
        match (self, other) {
            (Shape::Each { made, of }, other) if self == other => match made.checked_mul(2) {
                Some(made) => Shape::each(made, of, 1),
                None => Shape::Whole,
            },
            (Shape::Totals(count), other) if self == other && count < MOST_TOTALS => {
                Shape::Totals(2 * count)
            }
            _ => Shape::Whole,
        }
    }

    /// Whether a program with such a result runs in units.
    pub(super) fn is_divisible(self) -> bool {
        matches!(self, Shape::Each { .. } | Shape::Totals(_))
    }
}

/// How a program can be run in units: the shape of its result, and the rows of which a unit has a multiple.
pub(super) fn shape(program: &Program, columns: &[VrNumber]) -> (Shape, u64) {
    let mut registers: BTreeMap<VrNumber, Shape> =
        columns.iter().map(|vr| (*vr, Shape::ROW_BY_ROW)).collect();
    let mut stack = Vec::new();
    let mut step = 1;
    // A unit holds rows of this shape in whole groups of so many.
    let mut in_groups = |shape: Shape, group: u64| {
        if let Shape::Each { made, of } = shape {
            step = lcm(step, of.saturating_mul(group / gcd(group, made)));
        }
    };
    for instruction in program.instructions() {
        let of = |vr: &VrNumber| registers.get(vr).copied().unwrap_or(Shape::Single);
        let (register, shape) = match instruction {
            Instruction::Return { n } => {
                let shape = of(n);
                return (shape, step);
            }
            Instruction::Push { n } => {
                stack.push(of(n));
                continue;
            }
            Instruction::Pop { n } => (n, stack.pop().unwrap_or(Shape::Whole)),
            Instruction::Move { dst, src } => (dst, of(src)),
            Instruction::Bootstrap { n, .. }
            | Instruction::HomIntMult { n, .. }
            | Instruction::HomIntAdd { n, .. } => (n, of(n).alone()),
            Instruction::HomAdd { dst, src } | Instruction::HomSub { dst, src } => {
                (dst, of(dst).with(of(src)))
            }
            Instruction::HomSum { n, g } => {
                let group = u64::from(*g);
                let shape = match of(n) {
                    Shape::Each { .. } if group == 0 => Shape::Totals(1),
                    shape @ Shape::Each { made, of } => {
                        in_groups(shape, group);
                        Shape::each(made, of, group)
                    }
                    shape => shape.alone(),
                };
                (n, shape)
            }
            Instruction::Lower { n, d } | Instruction::Upper { n, d } => {
                let shape = match of(n) {
                    shape @ Shape::Each { made, of } if *d > 0 => {
                        in_groups(shape, 2 * u64::from(*d));
                        Shape::each(made, of, 2)
                    }
                    _ => Shape::Whole,
                };
                (n, shape)
            }
            Instruction::Join { lower, upper, d } => {
                let shape = of(lower);
                if *d > 0 {
                    in_groups(shape, u64::from(*d));
                }
                (lower, shape.joined(of(upper)))
            }
        };
        registers.insert(*register, shape);
    }
    (Shape::Whole, step)
}

/// The program that adds up sums of all rows: of every `count` rows of the first register, a power of two, the first ones, the second ones, and
/// so on.
fn sums_of_totals(key_id: u32, count: u64) -> Result<Program, SessionError> {
    let registers = (0..count as u32).map(|id| VrNumber::new(VrType::LweCor, key_id, id));
    let registers = registers.collect::<Result<Vec<_>, _>>()?;
    let pairs = |half: usize| {
        let (first, second) = registers.split_at(half.min(registers.len()));
        let pairs = first.iter().copied().zip(second.iter().copied());
        pairs.collect::<Vec<_>>()
    };
    let mut instructions = Vec::new();
    let mut halves = Vec::new();
    let mut known = 1;
    while known < registers.len() {
        for (lower, upper) in pairs(known) {
            instructions.push(Instruction::Move {
                dst: upper,
                src: lower,
            });
            instructions.push(Instruction::Lower { n: lower, d: 1 });
            instructions.push(Instruction::Upper { n: upper, d: 1 });
        }
        halves.push(known);
        known *= 2;
    }
    let sums = registers
        .iter()
        .map(|n| Instruction::HomSum { n: *n, g: 0 });
    instructions.extend(sums);
    for half in halves.into_iter().rev() {
        let joined = pairs(half).into_iter();
        instructions.extend(joined.map(|(lower, upper)| Instruction::Join { lower, upper, d: 1 }));
    }
    let first = registers.first().copied();
    instructions.extend(first.map(|n| Instruction::Return { n }));
    Ok(Program::new(instructions)?)
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x.max(1)
}

fn lcm(a: u64, b: u64) -> u64 {
    (a / gcd(a, b)).saturating_mul(b)
}

/// A job with what it runs on.
struct Job<'a> {
    request: &'a MapRequest<'a>,
    /// The program, with test-vector registers of its own.
    program: Program,
    params: &'static ParamSet,
    key_id: u32,
    /// The registers of columns, with the rows that stand in them.
    inputs: Vec<(VrNumber, StoredColumn, Range<u64>)>,
    objects: Vec<Object<'static>>,
    plan: MapPlan,
    digest: [u8; 32],
    /// What a ledger is to have of the run.
    origin: Option<Origin>,
    shape: Shape,
    step: u64,
    /// Rows of a unit.
    unit: u64,
}

impl Job<'_> {
    /// What the drive is not believed to be below, of sums that have this share of the rows.
    fn noise(&self, share: f64) -> Option<Noise> {
        let noise = &self.plan.output()?.noise;
        Some(match self.shape {
            Shape::Totals(_) if share < 1.0 => noise_of_share(self.params, noise, share),
            _ => noise.clone(),
        })
    }

    /// A result with what follows from the program, whatever the drive states. Sums of all rows have this `share` of them yet; `packings` is how
    /// often the rows were packed.
    fn checked(
        &self,
        mut result: EncryptedRows,
        share: f64,
        packings: usize,
    ) -> Result<EncryptedRows, ColumnError> {
        let of_inputs = self.inputs.first().map(|(_, column, _)| column.head.facts);
        if let Some(facts) = of_inputs {
            facts.check_same(&result.facts)?;
            result.facts.tag = facts.tag;
        }
        let encoding = self.plan.output().and_then(|output| output.encoding);
        if encoding != result.facts.encoding {
            let bits = |encoding: Option<Encoding>| encoding.map_or(0, Encoding::bits);
            return Err(mismatch(
                "the result's message",
                format!("{} bits", bits(encoding)),
                format!("{} bits", bits(result.facts.encoding)),
            ));
        }
        if let Some(mut noise) = self.noise(share) {
            for _ in 0..packings {
                noise = packed_noise(self.params, ArithmeticKind::Fft, &noise);
            }
            result = result.with_noise_of_at_least(&noise);
        }
        Ok(result)
    }

    /// Rows of the inputs, counted from the first of the job, read from the drive. What the program never looks at stays there, unless that is all.
    async fn read(
        &self,
        unit: &Range<u64>,
        progress: &Progress,
    ) -> Result<Vec<(VrNumber, EncryptedRows)>, SessionError> {
        let quiet = Progress::from(progress.cancel_token().clone());
        let read = crate::session::inputs(&self.program);
        let nothing = !self.inputs.iter().any(|(vr, ..)| read.contains(vr));
        let mut inputs = Vec::with_capacity(self.inputs.len());
        let needed = self.inputs.iter();
        for (vr, column, rows) in needed.filter(|(vr, ..)| nothing || read.contains(vr)) {
            let rows = if self.is_single(rows) {
                rows.clone()
            } else {
                rows.start + unit.start..rows.start + unit.end
            };
            inputs.push((*vr, column.rows(rows, &quiet).await?));
        }
        Ok(inputs)
    }

    fn origin(&self, session: &Session) -> Option<Origin> {
        let ranges = self.inputs.iter().map(|(_, _, rows)| rows.clone());
        let rows = ranges.max_by_key(|rows| rows.end - rows.start)?;
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|(vr, column, _)| (*vr, column.name.as_str()));
        session.origin_of_run(&self.program, (rows, None), inputs)
    }

    fn run(&self, done: u64, complete: bool) -> Run {
        Run {
            record: JobRecord {
                digest: self.digest,
                done,
                total: self.plan.rows,
                complete,
            },
            origin: self.origin.clone(),
        }
    }

    fn filling(&self) -> Filling<'_> {
        Filling {
            request: self.request,
            key_id: self.key_id,
            digest: self.digest,
        }
    }

    fn is_single(&self, rows: &Range<u64>) -> bool {
        rows.end - rows.start == 1 && self.plan.rows > 1
    }
}

/// What says which column of samples a run fills.
pub(super) struct Filling<'a> {
    pub(super) request: &'a MapRequest<'a>,
    pub(super) key_id: u32,
    pub(super) digest: [u8; 32],
}

/// A job on columns of either form.
enum AnyJob<'a> {
    Samples(Box<Job<'a>>),
    Ring(Box<RingJob<'a>>),
}

impl AnyJob<'_> {
    fn into_plan(self) -> MapPlan {
        match self {
            AnyJob::Samples(job) => job.plan,
            AnyJob::Ring(job) => job.plan,
        }
    }

    fn plan(&self) -> &MapPlan {
        match self {
            AnyJob::Samples(job) => &job.plan,
            AnyJob::Ring(job) => &job.plan,
        }
    }

    /// The key id, and the program with test-vector registers of its own.
    fn program(&self) -> (u32, &Program) {
        match self {
            AnyJob::Samples(job) => (job.key_id, &job.program),
            AnyJob::Ring(job) => (job.key_id, &job.program),
        }
    }

    /// The column that the result becomes.
    fn output(&self) -> &str {
        match self {
            AnyJob::Samples(job) => job.request.output,
            AnyJob::Ring(job) => job.request.output,
        }
    }

    /// Notes what a ledger is to have of the run, once it has the functions.
    fn enter_origin(&mut self, session: &Session) {
        match self {
            AnyJob::Samples(job) => job.origin = job.origin(session),
            AnyJob::Ring(job) => job.origin = job.origin(session),
        }
    }

    /// The functions, for the drive.
    fn take_objects(&mut self) -> Vec<Object<'static>> {
        std::mem::take(match self {
            AnyJob::Samples(job) => &mut job.objects,
            AnyJob::Ring(job) => &mut job.objects,
        })
    }
}

/// The functions of a program, in registers that no other functions have: programs that run at the same time, or are stored on the drive,
/// keep theirs.
pub(super) struct Tables {
    pub(super) program: Program,
    /// Encodings of input and output.
    pub(super) functions: BTreeMap<VrNumber, (Option<Encoding>, Option<Encoding>)>,
    pub(super) objects: Vec<Object<'static>>,
}

/// The register of a function: its data id is the beginning of a digest, with the highest bit set, which no assembler sets by itself.
fn register_of(key_id: u32, object: &Object<'_>) -> Result<VrNumber, SessionError> {
    let mut hash = Sha256::new();
    let sc = object.metadata();
    hash.update(sc.params().to_le_bytes());
    hash.update([sc.message_bits(), sc.signed().into(), sc.output_bits()]);
    hash.update(object.bytes().unwrap_or_default());
    let digest: [u8; 32] = hash.finalize().into();
    let id = digest
        .iter()
        .take(4)
        .fold(0, |id, byte| id << 8 | u32::from(*byte));
    Ok(VrNumber::new(VrType::Tv, key_id, id | 1 << 31)?)
}

/// Rows that a column as a whole, or the part of it that was asked for, puts into a register.
fn rows_of(column: &StoredColumn, wanted: Option<&Range<u64>>) -> Range<u64> {
    match (column.head.header.rows(), wanted) {
        (1, _) => 0..1,
        (_, Some(wanted)) => wanted.clone(),
        (rows, None) => 0..rows,
    }
}

impl Session {
    /// What [`Session::map`] will do: nothing runs, and nothing on the drive changes.
    ///
    /// # Errors
    /// Those of [`Session::map`] that come before the first row.
    pub async fn plan_map(&self, request: &MapRequest<'_>) -> Result<MapPlan, SessionError> {
        Ok(self.prepare_any(request).await?.into_plan())
    }

    /// What a request will do, by the way that it names or that is chosen for it.
    async fn prepare_any<'a>(
        &self,
        request: &'a MapRequest<'a>,
    ) -> Result<AnyJob<'a>, SessionError> {
        if let Some(job) = self.prepare_ring(request).await? {
            return Ok(AnyJob::Ring(Box::new(job)));
        }
        let by_samples = async |reason: Reason| {
            let mut job = self.prepare(request).await?;
            job.plan.reason = match &reason {
                Reason::NoOther(_) if job.plan.done > 0 || job.plan.complete => Reason::Begun,
                _ => reason,
            };
            Ok(AnyJob::Samples(Box::new(job)))
        };
        match request.way {
            Way::Samples if request.form == Some(RowForm::Ring) => {
                let (what, expected) = ("the form of the result", "that of a run by ciphertexts");
                Err(of(request.output)(mismatch(what, expected, "ring")))
            }
            Way::Samples if request.kept.is_some() => {
                Err(of(request.output)(ColumnError::LeftOutSamples))
            }
            Way::Auto if request.kept.is_some() => {
                let reason = Reason::NoOther("rows are left out".to_owned());
                let job = self.prepare_converted(request, reason).await?;
                Ok(AnyJob::Ring(Box::new(job)))
            }
            Way::Samples => by_samples(Reason::Asked).await,
            Way::Ring => Ok(AnyJob::Ring(Box::new(
                self.prepare_converted(request, Reason::Asked).await?,
            ))),
            Way::Auto => {
                let ring = match self.prepare_converted(request, Reason::Times).await {
                    Ok(job) => job,
                    Err(error) if request.form == Some(RowForm::Ring) => return Err(error),
                    Err(error) => return by_samples(Reason::NoOther(why(&error))).await,
                };
                if ring.plan.done > 0 || ring.plan.complete {
                    return Ok(AnyJob::Ring(Box::new(ring.because(Reason::Begun))));
                }
                let samples = self.prepare(request).await?;
                let against = match samples.plan.done > 0 || samples.plan.complete {
                    true => Some(Reason::Begun),
                    false => way::against_ring(&samples.plan, &ring.plan),
                };
                match against {
                    None => Ok(AnyJob::Ring(Box::new(ring))),
                    Some(_) if request.form == Some(RowForm::Ring) => {
                        Ok(AnyJob::Ring(Box::new(ring.because(Reason::Asked))))
                    }
                    Some(reason) => {
                        let mut job = samples;
                        job.plan.reason = reason;
                        job.plan.ring = ring.plan.ring;
                        Ok(AnyJob::Samples(Box::new(job)))
                    }
                }
            }
        }
    }

    /// Runs a program on columns, with the result as a column. What the drive states of the result's noise is never below what follows from the
    /// program and its inputs.
    ///
    /// A run that ended early, for whatever reason, left the results of the units that it had done, and the same request goes on behind them: on the
    /// same program, the same rows, the same output. Where the result is complete, nothing is computed.
    ///
    /// # Errors
    /// [`ColumnError`]: columns that are missing, have other rows than each other or belong to several keys; an output that holds something else;
    /// a program that does not fit. Those of the store and of the drive.
    pub async fn map(
        &self,
        request: &MapRequest<'_>,
        progress: &Progress,
    ) -> Result<MapReport, SessionError> {
        let mut job = self.prepare_any(request).await?;
        let plan = job.plan();
        let (complete, rows, before) = (plan.complete, plan.rows, plan.done);
        let mut commands = 0;
        if !complete {
            let functions = self.put_functions(job.take_objects()).await?;
            job.enter_origin(self);
            let run = self.run_job(&job, progress).await;
            // A drive that failed, or was told to stop, may refuse this too; the first failure counts.
            let deleted = self.delete_functions(functions).await;
            commands = run?;
            deleted?;
        }
        let output = match job.plan().form {
            RowForm::Samples => self.column(request.output).await?.stat(),
            RowForm::Ring => self.stat_of_ring(request.output).await?,
        };
        Ok(MapReport {
            output,
            rows,
            computed: rows - before,
            commands,
        })
    }

    /// Runs what is not done yet; gives the number of commands.
    async fn run_job(&self, job: &AnyJob<'_>, progress: &Progress) -> Result<u64, SessionError> {
        let (key_id, program) = job.program();
        let name = VrNumber::program(key_id)?;
        let drive = (self.store().controller(), self.runs().clone());
        let mut executor = Executor::take(drive, job.output(), name, program).await?;
        let run = match job {
            AnyJob::Samples(job) => self.run_units(job, &mut executor, progress).await,
            AnyJob::Ring(job) => self.run_ciphertexts(job, &mut executor, progress).await,
        };
        let released = executor.release().await;
        let commands = run?;
        released?;
        Ok(commands)
    }

    async fn prepare<'a>(&self, request: &'a MapRequest<'a>) -> Result<Job<'a>, SessionError> {
        let mut inputs: Vec<(VrNumber, StoredColumn, Range<u64>)> = Vec::new();
        for (register, name) in request.inputs {
            let vr = request.register(register)?;
            if inputs.iter().any(|(other, ..)| *other == vr) {
                return Err(SessionError::Twice(vr));
            }
            let column = self.column(name).await?;
            if column.head.job.is_some_and(|job| !job.complete) {
                return Err(of(name)(ColumnError::Unfinished));
            }
            let rows = rows_of(&column, request.rows.as_ref());
            column.slice(rows.clone())?;
            inputs.push((vr, column, rows));
        }
        let Some((first, column, _)) = inputs.first() else {
            return Err(SessionError::Triggers(0));
        };
        let (params, key_id) = (column.head.facts.params, first.key_id());
        let mut facts = column.head.facts;
        let rows = inputs.iter().map(|(_, _, rows)| rows.end - rows.start);
        let rows = rows.max().unwrap_or(1);
        for (_, column, own) in &inputs {
            let at = of(&column.name);
            if let Err(error) = facts.check_same(&column.head.facts) {
                return Err(at(error));
            }
            facts.tag = facts.tag.or(column.head.facts.tag);
            if column.head.key_id != key_id {
                return Err(at(mismatch("its key id", key_id, column.head.key_id)));
            }
            let count = own.end - own.start;
            if count != rows && count != 1 {
                return Err(at(mismatch("its number of rows", rows, count)));
            }
        }
        self.check_column_key(key_id, facts.tag)
            .map_err(of(&column.name))?;
        let at = of(request.output);
        if inputs
            .iter()
            .any(|(_, column, _)| column.name == request.output)
        {
            return Err(at(ColumnError::IsInput));
        }
        let mut hash = Sha256::new();
        hash.update(b"toroid map 1");
        let tables = self.tables(params, key_id, request.program)?;
        let Tables {
            program,
            functions,
            objects,
        } = tables;
        hash_bytes(&mut hash, &toroid_isa::encode(&program));
        let known = self.known(&inputs, &mut hash, &program)?;
        let bits = |encoding: Option<Encoding>| encoding.map(Encoding::bits);
        for (vr, ..) in &inputs {
            check_widths(&program, *vr, |register| match register.ty() {
                VrType::Tv => bits(functions.get(&register)?.0),
                _ => bits(known.get(&register)?.encoding),
            })?;
        }
        let forecast = Forecast {
            program_vr: VrNumber::program(key_id)?,
            program: &program,
            params,
            arithmetic: ArithmeticKind::Fft,
            inputs: &known,
            functions: &|tv| functions.get(&tv).copied().unwrap_or_default(),
        };
        let facts = forecast.facts();
        let facts = facts.map_err(|error| of(request.output)(error.into()))?;
        let many = inputs
            .iter()
            .filter(|(_, _, own)| own.end - own.start == rows && rows > 1);
        let many: Vec<VrNumber> = many.map(|(vr, ..)| *vr).collect();
        let (shape, step) = shape(&program, &many);
        let digest = hash.finalize().into();
        let wanted = match request.unit {
            Some(unit) => unit.max(1),
            None if facts.bootstraps > 0 => UNIT_ROWS,
            None => rows,
        };
        let limits = self.limits_for(request, inputs.len()).await?;
        let mut unit = rows;
        if shape.is_divisible() {
            unit = unit_of(params, wanted, step, rows);
            while limits.is_some_and(|limits| bytes_of_unit(&inputs, shape, unit) > limits.bytes) {
                let smaller = unit_of(params, unit / 2, step, rows);
                if smaller >= unit {
                    break;
                }
                unit = smaller;
            }
        }
        let noise = expected_noise(params, &facts, shape, (unit, rows));
        let mut job = Job {
            request,
            program,
            params,
            key_id,
            inputs,
            objects,
            plan: MapPlan {
                params,
                route: Route::Samples,
                reason: Reason::Asked,
                ring: None,
                form: RowForm::Samples,
                converts: false,
                rows,
                commands: rows.div_ceil(unit.max(1)),
                facts,
                noise,
                done: 0,
                complete: false,
            },
            digest,
            origin: None,
            shape,
            step,
            unit,
        };
        let known = self.done_of(request, &job.digest, rows).await?;
        (job.plan.done, job.plan.complete) = known;
        Ok(job)
    }

    /// What a run with so many inputs has on this drive; nothing where the drive runs no programs on columns.
    pub(super) async fn limits_for(
        &self,
        request: &MapRequest<'_>,
        inputs: usize,
    ) -> Result<Option<Limits>, SessionError> {
        let limits = Executor::limits_on(&*self.store().controller()).await?;
        if let Some(limits) = &limits {
            let checked = limits.check_inputs(inputs, request.kept.is_some());
            checked.map_err(of(request.output))?;
        }
        Ok(limits)
    }

    /// How far a run has come whose output is a column of samples, and whether it is complete.
    pub(super) async fn done_of(
        &self,
        request: &MapRequest<'_>,
        digest: &[u8; 32],
        rows: u64,
    ) -> Result<(u64, bool), SessionError> {
        let nothing = (0, false);
        match self.column(request.output).await {
            Err(error) if is_missing(&error) => Ok(nothing),
            // Whatever it is, it is to go.
            Err(SessionError::Column { .. }) if request.replace => Ok(nothing),
            Err(error) => Err(error),
            Ok(found) => match found.head.job.filter(|record| record.digest == *digest) {
                Some(record) if record.total == rows => Ok((record.done, record.complete)),
                Some(_) => {
                    let reason = "its record of a run has another number of rows".to_owned();
                    Err(of(request.output)(ColumnError::Damaged(reason)))
                }
                None if request.replace => Ok(nothing),
                None => Err(of(request.output)(ColumnError::OtherJob)),
            },
        }
    }

    /// The functions that a program's text has, and those that it finds on the drive.
    pub(super) fn tables(
        &self,
        params: &'static ParamSet,
        key_id: u32,
        assembly: &Assembly,
    ) -> Result<Tables, SessionError> {
        let mut functions = BTreeMap::new();
        let mut moved = BTreeMap::new();
        let mut objects: BTreeMap<VrNumber, Object<'static>> = BTreeMap::new();
        for vector in &assembly.test_vectors {
            let (object, report) = Object::test_vector(params, vector)?;
            let vr = register_of(key_id, &object)?;
            let encoding = |bits| Encoding::new(bits, vector.signed).ok();
            let (input, output) = report.bits;
            functions.insert(vr, (encoding(input), encoding(output)));
            moved.insert(vector.vr, vr);
            objects.insert(vr, object.for_register(vr)?);
        }
        let mut program = assembly.program.instructions().to_vec();
        for instruction in &mut program {
            let Instruction::Bootstrap { tv, .. } = instruction else {
                continue;
            };
            if let Some(vr) = moved.get(tv) {
                *tv = *vr;
                continue;
            }
            self.find(*tv).ok_or(SessionError::Missing(*tv))?;
            let Some(sc) = self.operand(*tv)? else {
                functions.insert(*tv, (None, None));
                continue;
            };
            let encoding = |bits: u8| Encoding::new(bits.into(), sc.signed()).ok();
            let output = match sc.output_bits() {
                0 => sc.message_bits(),
                bits => bits,
            };
            functions.insert(*tv, (encoding(sc.message_bits()), encoding(output)));
        }
        Ok(Tables {
            program: Program::new(program)?,
            functions,
            objects: objects.into_values().collect(),
        })
    }

    /// What is known of every register that the program reads.
    pub(super) fn known(
        &self,
        inputs: &[(VrNumber, StoredColumn, Range<u64>)],
        hash: &mut Sha256,
        program: &Program,
    ) -> Result<BTreeMap<VrNumber, ColumnFacts>, SessionError> {
        let mut known: BTreeMap<VrNumber, ColumnFacts> = BTreeMap::new();
        let mut sorted: Vec<_> = inputs.iter().collect();
        sorted.sort_by_key(|(vr, ..)| *vr);
        let mut slices: Vec<(VrNumber, Vec<Segment>)> = Vec::new();
        for (vr, column, rows) in sorted {
            let slice = column.slice(rows.clone())?;
            hash.update(vr.to_u64().to_le_bytes());
            let mut of_rows = Sha256::new();
            let facts = &column.head.facts;
            let bits = facts.encoding.map_or(0, Encoding::bits);
            let signed = facts.encoding.is_some_and(Encoding::is_signed);
            of_rows.update([bits as u8, u8::from(signed)]);
            of_rows.update(facts.params.id.to_le_bytes());
            of_rows.update(facts.tag.unwrap_or_default());
            for segment in &slice {
                of_rows.update([segment.form as u8]);
                for word in [
                    segment.chunk_rows,
                    segment.first,
                    segment.rows,
                    segment.crc32c,
                ] {
                    of_rows.update(word.to_le_bytes());
                }
                let bound = column.head.bound.as_ref();
                if let Some(digest) = bound.and_then(|bound| bound.chunk(segment.offset)) {
                    of_rows.update(digest);
                }
            }
            let of_rows: [u8; 32] = of_rows.finalize().into();
            hash.update(of_rows);
            let number = of_rows
                .iter()
                .take(8)
                .fold(0, |n, b| n << 8 | u64::from(*b));
            let own: BTreeSet<(u32, u32)> =
                slice.iter().map(|s| (s.crc32c, s.chunk_rows)).collect();
            let shares = |other: &Vec<Segment>| {
                let mut all = other.iter();
                all.any(|segment| own.contains(&(segment.crc32c, segment.chunk_rows)))
            };
            // Parts of the same rows in two registers share noise that cannot be told apart.
            let shared = slices.iter().any(|(other, all)| {
                known.get(other).is_some_and(|facts| facts.number != number) && shares(all)
            });
            let noise = facts.stored_noise(facts.computed || shared);
            let same = known.values().find(|facts| facts.number == number);
            let noise = same.map_or(noise, |facts| facts.noise.clone());
            known.insert(
                *vr,
                ColumnFacts {
                    rows: rows.end - rows.start,
                    noise,
                    encoding: facts.encoding,
                    number,
                },
            );
            slices.push((*vr, slice));
        }
        let is_own = |vr: &VrNumber| vr.ty() == VrType::Tv && vr.data_id() >> 31 == 1;
        for vr in program
            .instructions()
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::Bootstrap { tv, .. } if !is_own(tv) => Some(*tv),
                _ => None,
            })
        {
            let stat = self.find(vr).ok_or(SessionError::Missing(vr))?;
            hash_stored(hash, vr, &stat);
        }
        let mut samples = crate::session::inputs(program);
        samples.retain(|vr| vr.ty().is_sample() && !known.contains_key(vr));
        // Nobody here knows whether two of them are the same sample.
        let several = samples.len() > 1;
        for vr in samples {
            let stat = self.find(vr).ok_or(SessionError::Missing(vr))?;
            let sc = stat.sc.ok_or(SessionError::Missing(vr))?;
            hash.update(vr.to_u64().to_le_bytes());
            hash_stored(hash, vr, &stat);
            let unknown = sc.with_noise(None, None);
            let sc = self.operand(vr)?.unwrap_or(unknown);
            let facts = super::rows::RowFacts::of(&sc).map_err(of(&vr.to_string()))?;
            known.insert(
                vr,
                ColumnFacts {
                    rows: 1,
                    noise: facts.stored_noise(facts.computed || several),
                    encoding: facts.encoding,
                    number: stat.sequence,
                },
            );
        }
        Ok(known)
    }

    /// Runs the units that are not done yet; gives the number of commands.
    async fn run_units(
        &self,
        job: &Job<'_>,
        executor: &mut Executor,
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let (name, total) = (job.request.output, job.plan.rows);
        let program = &job.program;
        let mut commands = 0;
        let mut done = job.plan.done;
        let mut unit = job.unit;
        progress.report("map", done, total);
        while done < total {
            progress.check().map_err(BlobError::from)?;
            let rows = done..total.min(done.saturating_add(unit));
            let inputs = job.read(&rows, progress).await?;
            let inputs: Vec<_> = inputs.iter().map(|(vr, rows)| (*vr, rows)).collect();
            let Some(result) = executor.run(program, &inputs).await? else {
                let smaller = unit_of(job.params, unit / 2, job.step, total);
                if job.shape.is_divisible() && smaller < unit {
                    unit = smaller;
                    continue;
                }
                return Err(of(name)(ColumnError::Memory {
                    rows: unit,
                    needed: Executor::bytes_of(&inputs),
                    room: executor.room(),
                }));
            };
            commands += 1;
            let packings = usize::from(is_packed(&result));
            let share = (rows.end - rows.start) as f64 / total as f64;
            let result = job.checked(result, share, packings).map_err(of(name))?;
            done = rows.end;
            let run = job.run(rows.end, false);
            self.commit_unit(&job.filling(), (rows.start, run), &result, progress)
                .await?;
            if !matches!(job.shape, Shape::Totals(_)) {
                commands += self.join_pieces(job, executor, false, progress).await?;
            }
            progress.report("map", done, total);
        }
        commands += match job.shape {
            Shape::Totals(count) => self.add_up(job, count, executor, progress).await?,
            _ => self.join_pieces(job, executor, true, progress).await?,
        };
        let column = self.own_output(job).await?;
        let mut change = Change::of(&column);
        change.run(job.run(total, true));
        let quiet = Progress::from(progress.cancel_token().clone());
        self.commit_change(&column, change, &quiet).await?;
        Ok(commands)
    }

    /// The output, as far as it is this job's.
    async fn own_output(&self, job: &Job<'_>) -> Result<StoredColumn, SessionError> {
        let column = self.column(job.request.output).await?;
        let is_own = column
            .head
            .job
            .is_some_and(|record| record.digest == job.digest);
        if is_own {
            Ok(column)
        } else {
            Err(of(&column.name)(ColumnError::OtherJob))
        }
    }

    /// Appends the result of a unit, with the record that says so.
    pub(super) async fn commit_unit(
        &self,
        job: &Filling<'_>,
        (start, run): (u64, Run),
        result: &EncryptedRows,
        progress: &Progress,
    ) -> Result<(), SessionError> {
        let quiet = Progress::from(progress.cancel_token().clone());
        let name = job.request.output;
        let found = self.column(name).await;
        let is_own = |column: &StoredColumn| {
            let found = column.head.job;
            found.is_some_and(|found| found.digest == job.digest && found.done == start)
        };
        match found {
            Ok(column) if is_own(&column) => {
                let end = column.head.header.rows();
                let mut change = Change::of(&column);
                change.replace(end..end, result).map_err(of(name))?;
                change.run(run);
                self.commit_change(&column, change, &quiet).await?;
            }
            // Somebody else works on the same output, or has deleted it.
            _ if start > 0 => return Err(of(name)(ColumnError::OtherJob)),
            Ok(_) if !job.request.replace => return Err(of(name)(ColumnError::OtherJob)),
            Err(error) if !job.request.replace && !is_missing(&error) => return Err(error),
            _ => {
                // Whatever stands there goes, if it may, when the new one comes.
                let former = match job.request.replace {
                    true => self.column_blob(name)?.map(|blob| blob.id),
                    false => None,
                };
                let of_job = (job.key_id, Some(run));
                self.new_column((name, former), of_job, result, &quiet)
                    .await?;
            }
        }
        Ok(())
    }

    /// Packs rows again that units of less than a chunk have left behind: a chunk at a time, and what is left at the `end` of the run.
    async fn join_pieces(
        &self,
        job: &Job<'_>,
        executor: &mut Executor,
        end: bool,
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let name = job.request.output;
        let full = rows_per_chunk(job.params) as u64;
        let vr = VrNumber::new(VrType::LweCor, job.key_id, 0)?;
        let identity = Program::new(vec![Instruction::Return { n: vr }])?;
        let quiet = Progress::from(progress.cancel_token().clone());
        let mut commands = 0;
        // Rows of a command; fewer where they have no room.
        let mut most = full;
        while job.params.is_wide() && most > 1 {
            let column = self.own_output(job).await?;
            let segments = column.head.header.segments();
            let small = segments.iter().rev();
            let small = small.take_while(|segment| {
                u64::from(segment.rows) < most.min(full) || segment.form == ColumnForm::Expanded
            });
            let small: Vec<u64> = small.map(|segment| segment.rows.into()).collect();
            let waiting: u64 = small.iter().sum();
            if small.len() < 2 || !(end || waiting >= full) {
                break;
            }
            let start = column.head.header.rows() - waiting;
            let rows = start..start + waiting.min(most);
            let input = column.rows(rows.clone(), &quiet).await?;
            let Some(result) = executor.run(&identity, &[(vr, &input)]).await? else {
                most /= 2;
                continue;
            };
            commands += 1;
            if !is_packed(&result) {
                break;
            }
            let result = job.checked(result, 1.0, 2).map_err(of(name))?;
            let mut change = Change::of(&column);
            change.replace(rows, &result).map_err(of(name))?;
            change.origin.clone_from(&job.origin);
            self.commit_change(&column, change, &quiet).await?;
        }
        Ok(commands)
    }

    /// Adds up the sums of the units, `totals` of each, as many at a time as have room.
    async fn add_up(
        &self,
        job: &Job<'_>,
        totals: u64,
        executor: &mut Executor,
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let name = job.request.output;
        let quiet = Progress::from(progress.cancel_token().clone());
        let vr = VrNumber::new(VrType::LweCor, job.key_id, 0)?;
        let sum = sums_of_totals(job.key_id, totals)?;
        let mut commands = 0;
        let mut most = u64::MAX;
        loop {
            let column = self.own_output(job).await?;
            let rows = column.head.header.rows();
            if rows == totals {
                return Ok(commands);
            }
            progress.check().map_err(BlobError::from)?;
            let count = rows.min(most);
            let input = column.rows(rows - count..rows, &quiet).await?;
            let Some(result) = executor.run(&sum, &[(vr, &input)]).await? else {
                most = count / totals / 2 * totals;
                if most < 2 * totals {
                    let needed = Executor::bytes_of(&[(vr, &input)]);
                    let room = executor.room();
                    let rows = count;
                    return Err(of(name)(ColumnError::Memory { rows, needed, room }));
                }
                continue;
            };
            commands += 1;
            let share = count as f64 / rows as f64;
            let packings = 2 * usize::from(is_packed(&result));
            let result = job.checked(result, share, packings).map_err(of(name))?;
            let mut change = Change::of(&column);
            change
                .replace(rows - count..rows, &result)
                .map_err(of(name))?;
            change.origin.clone_from(&job.origin);
            self.commit_change(&column, change, &quiet).await?;
        }
    }
}

/// Bytes of the drive's memory that the inputs of a unit of so many rows take with its result, by the first unit.
fn bytes_of_unit(inputs: &[(VrNumber, StoredColumn, Range<u64>)], shape: Shape, unit: u64) -> u64 {
    let mut bytes = 0_u64;
    for (_, column, rows) in inputs {
        let params = column.head.facts.params;
        let end = rows.end.min(rows.start.saturating_add(unit));
        let segments = column.slice(rows.start..end).unwrap_or_default();
        bytes = bytes.saturating_add(Executor::bytes_for(bytes_of_segments(params, &segments)));
    }
    let made = match shape {
        Shape::Each { made, of } => unit.saturating_mul(made).div_ceil(of),
        Shape::Totals(count) => count,
        Shape::Single | Shape::Whole => 1,
    };
    let result = inputs.first().map_or(0, |(_, column, _)| {
        result_bytes(column.head.facts.params, made.max(1)).unwrap_or(0)
    });
    bytes.saturating_add(Executor::bytes_for(result))
}

/// Rows of a unit of about this many: a multiple of `step`, and beyond a chunk a whole number of chunks where that is one.
fn unit_of(params: &ParamSet, wanted: u64, step: u64, total: u64) -> u64 {
    if wanted >= total {
        return total;
    }
    let multiple = |rows: u64, of: u64| (rows / of).max(1).saturating_mul(of);
    let chunk = rows_per_chunk(params) as u64;
    let unit = multiple(wanted, step);
    let whole = lcm(step, chunk);
    if unit > chunk && whole <= unit {
        multiple(unit, whole).min(total)
    } else {
        unit.min(total)
    }
}

/// The noise of the result of these units: their sums count as if they shared their noise, and as if each were of as many rows.
fn expected_noise(
    params: &ParamSet,
    facts: &MapFacts,
    shape: Shape,
    (unit, rows): (u64, u64),
) -> Noise {
    let Some(output) = facts.outputs.first() else {
        return Noise::fresh(0.0);
    };
    let noise = output.noise.clone();
    // A single row stays a sample.
    let packed = |noise: Noise| match output.rows {
        0 | 1 => noise,
        _ => packed_noise(params, ArithmeticKind::Fft, &noise),
    };
    let units = rows.div_ceil(unit.max(1));
    match shape {
        Shape::Totals(_) if units > 1 => {
            let count = units as f64;
            let of_unit = packed(noise_of_share(params, &noise, unit as f64 / rows as f64));
            let failure = (of_unit.log2_failure() + count.log2()).min(0.0);
            let variance = of_unit.variance() * count * count;
            packed(Noise::stored(params, variance, failure, true))
        }
        Shape::Each { .. } if units > 1 => packed(packed(noise)),
        _ => packed(noise),
    }
}

/// The noise of a sum of this share of the rows of a sum of this noise.
fn noise_of_share(params: &ParamSet, noise: &Noise, share: f64) -> Noise {
    let failure = (noise.log2_failure() + share.log2()).min(0.0);
    Noise::stored(params, noise.variance() * share, failure, true)
}

/// Why there is no way.
fn why(error: &SessionError) -> String {
    match error {
        // Whatever the column.
        SessionError::Column {
            source:
                source @ (ColumnError::ConversionKey(_)
                | ColumnError::NoConversion
                | ColumnError::Program(_)
                | ColumnError::Memory { .. }),
            ..
        } => source.to_string(),
        SessionError::Column { name, source } => format!("column {name}: {source}"),
        error => error.to_string(),
    }
}

fn is_missing(error: &SessionError) -> bool {
    match error {
        SessionError::Column { source, .. } => matches!(source, ColumnError::Missing),
        _ => false,
    }
}

fn is_packed(rows: &EncryptedRows) -> bool {
    let column = rows.column().ok();
    column.is_some_and(|column| {
        let mut segments = column.header().segments().iter();
        segments.any(|segment| segment.form == ColumnForm::Packed)
    })
}

/// Which object stands in a register: its version, with the code of it if it is bound.
fn hash_stored(hash: &mut Sha256, vr: VrNumber, stat: &BlobStat) {
    hash.update(stat.id.0.to_le_bytes());
    hash.update(stat.sequence.to_le_bytes());
    if stat.name != vr.to_string() {
        hash_bytes(hash, stat.name.as_bytes());
    }
}

fn hash_bytes(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(made: u64, of: u64) -> Shape {
        Shape::Each { made, of }
    }

    /// The shape of a program's result and the step of its units; x and y are columns, s is a sample.
    fn of_text(body: &str) -> (Shape, u64) {
        let text = format!(
            ".reg x = cor:0\n.reg y = cor:1\n.reg s = cor:2\n.tv f unsigned = x\n{body}\nreturn x\n"
        );
        let program = toroid_isa::assemble(&text).unwrap().program;
        let columns = ["cor:0:0", "cor:0:1"].map(|vr| vr.parse().unwrap());
        shape(&program, &columns)
    }

    #[test]
    fn programs_that_work_row_by_row_run_in_units() {
        for body in [
            "bootstrap f, x",
            "homadd x, y\nhomsub x, s\nhomintmult x, 3\nhomintadd x, -1",
            "push y\npop x",
            "mov x, s\nhomadd x, y",
        ] {
            assert_eq!(of_text(body), (Shape::ROW_BY_ROW, 1), "{body}");
        }
        // The sum of groups, of a sum of groups, and of what goes with a single sample.
        assert_eq!(of_text("homsum x, 4"), (each(1, 4), 4));
        assert_eq!(
            of_text("homsum x, 4\nbootstrap f, x\nhomsum x, 6"),
            (each(1, 24), 24)
        );
        assert_eq!(
            of_text("homsum x, 4\nhomsum y, 6\nmov y, s\nhomadd x, y"),
            (each(1, 4), 12)
        );
        assert_eq!(of_text("homsum s, 5\nhomadd x, s"), (Shape::ROW_BY_ROW, 1));
    }

    #[test]
    fn programs_that_move_rows_within_groups_run_in_units() {
        // Results side by side, as they are and as sums of groups.
        assert_eq!(of_text("join x, y, 1"), (each(2, 1), 1));
        assert_eq!(of_text("join x, y, 1\njoin x, x, 2"), (each(4, 1), 1));
        assert_eq!(
            of_text("homsum x, 3\nhomsum y, 3\njoin x, y, 1"),
            (each(2, 3), 3)
        );
        // Sums across what was joined: 3 of 2 rows each, and 4.
        assert_eq!(of_text("join x, y, 1\nhomsum x, 3"), (each(2, 3), 3));
        assert_eq!(of_text("join x, y, 1\nhomsum x, 4"), (each(1, 2), 2));
        // Groups of 2d rows are taken apart, and of d rows put together.
        assert_eq!(of_text("lower x, 2"), (each(1, 2), 4));
        assert_eq!(of_text("join x, y, 6"), (each(2, 1), 6));
        assert_eq!(
            of_text("mov y, x\nlower x, 3\nupper y, 3\njoin x, y, 1"),
            (Shape::ROW_BY_ROW, 6)
        );
        // A group of more rows than there are.
        let huge = "lower x, 4294967295\nlower x, 4294967291\nhomsum x, 4294967279";
        assert_eq!(of_text(huge).1, u64::MAX);
    }

    #[test]
    fn sums_of_all_rows_are_sums_of_units() {
        assert_eq!(
            of_text("bootstrap f, x\nhomsum x, 0"),
            (Shape::Totals(1), 1)
        );
        assert_eq!(of_text("homsum x, 3\nhomsum x, 0"), (Shape::Totals(1), 3));
        assert_eq!(of_text("homsum y, 0\nmov x, y"), (Shape::Totals(1), 1));
        let sums = "homsum x, 0\nhomsum y, 0\njoin x, y, 1";
        assert_eq!(of_text(sums), (Shape::Totals(2), 1));
        let sums = format!("{sums}\njoin x, x, 2");
        assert_eq!(of_text(&sums), (Shape::Totals(4), 1));
    }

    #[test]
    fn what_needs_all_rows_runs_at_once() {
        for body in [
            "homsum x, 0\nbootstrap f, x",
            "homsum x, 0\nhomadd x, s",
            "homsum x, 0\nhomadd y, x\nmov x, y",
            "homsum x, 0\nhomintadd x, 1",
            "homsum x, 0\nhomsum x, 0",
            "homsum x, 2\nhomadd x, y",
            "homsum x, 0\nlower x, 1",
            // As many rows as the other only where there is one.
            "homsum y, 0\njoin x, y, 1",
            "homsum x, 2\njoin x, y, 1",
        ] {
            assert_eq!(of_text(body).0, Shape::Whole, "{body}");
        }
        // One row, whatever the columns have.
        assert_eq!(of_text("mov x, s").0, Shape::Single);
    }

    #[test]
    fn steps_are_least_common_multiples() {
        assert_eq!((lcm(4, 6), lcm(1, 7), lcm(9, 3)), (12, 7, 9));
        assert_eq!(lcm(u64::MAX, u64::MAX - 1), u64::MAX);
    }
}
