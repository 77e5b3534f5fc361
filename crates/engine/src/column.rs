//! Programs on columns: every instruction works on all rows, and every bootstrap is a batch.
//!
//! [`Engine::map`] runs a program on *columns*, ordered rows of LWE samples that it reads tile by tile from where they are kept, and
//! hands the rows of the results to a [`MapSink`] as they become known. It changes no register. A run that ended early goes on from the
//! last [`Checkpoint`] that its sink was given.
//!
//! Open `column/plan.rs` first, which takes a program apart, then `column/execute.rs`.

mod bytes;
mod execute;
mod forecast;
pub(crate) mod plan;

use std::collections::BTreeMap;
use std::ops::Range;

use toroid_isa::{Program, VrNumber, verify};
use toroid_tfhe::column::RowSum;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

use crate::address::{PAGE_BYTES, units_of};
use crate::engine::Engine;
use crate::error::{EngineError, RowError};
use crate::partial::Origin;
use crate::processor::Transaction;
use crate::register::{Attributes, same_statement};
use crate::requester::Requester;
use crate::swap::PagingContext;
use crate::table::Table;

use execute::Execution;
use plan::{Plan, Setting};

pub use bytes::{ColumnBytes, ColumnRun, MadeColumn, packed_noise};
pub use forecast::Forecast;
pub use plan::{ColumnFacts, MAX_ROWS};

/// Bytes of samples that a sum reads at a time, where its source knows no better way.
const SUM_BYTES: usize = 1 << 20;

/// Where the rows of a column come from.
pub trait RowSource: Sync {
    /// The samples of these rows, one after the other, as little-endian words.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError>;

    /// The sum of these rows, as one sample: word by word that of the samples that [`RowSource::read`] gives. Without a better way, it
    /// reads some of them at a time.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn sum(&self, params: &ParamSet, rows: Range<u64>, sample: &mut [u8]) -> Result<(), RowError> {
        let mut sum = RowSum::new(params);
        let width = params.lwe_bytes();
        let most = (SUM_BYTES / width).max(1) as u64;
        let mut samples = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let end = rows.end.min(row.saturating_add(most));
            samples.resize((end - row) as usize * width, 0);
            self.read(row..end, &mut samples)?;
            let added = sum.add_samples(&samples);
            added.map_err(|error| RowError::Refused(error.to_string()))?;
            row = end;
        }
        let sum = sum.finish();
        sample.copy_from_slice(&sum.map_err(|error| RowError::Refused(error.to_string()))?);
        Ok(())
    }

    /// A number that sources of the same rows have in common, and no others: a hash of all of them.
    fn number(&self) -> u64;
}

/// A column that a program reads.
#[derive(Clone, Copy)]
pub struct ColumnInput<'a> {
    /// The register that it stands in.
    pub vr: VrNumber,
    /// Its parameter set.
    pub params: &'static ParamSet,
    /// The number of its rows, at least one.
    pub rows: u64,
    /// What is stated of each row.
    pub attributes: Attributes,
    /// Its rows.
    pub source: &'a dyn RowSource,
}

/// What a program is to do with columns.
#[derive(Clone, Copy)]
pub struct MapJob<'a> {
    /// The name of the program in errors; its key id is that of every register.
    pub program_vr: VrNumber,
    /// The program.
    pub program: &'a Program,
    /// The columns. Registers that the program reads and that are none of them are those of the engine, single samples.
    pub inputs: &'a [ColumnInput<'a>],
    /// The registers whose content at the end is wanted; empty: the one that the program returns.
    pub outputs: &'a [VrNumber],
    /// The most bytes of samples in work at a time, beside the rows that moves and later stages read, which are paged.
    pub memory: u64,
}

/// What a run on columns gives, known before it begins.
#[derive(Clone, Debug)]
pub struct MapOutput {
    /// The register.
    pub vr: VrNumber,
    /// The rows of its column.
    pub rows: u64,
    /// Noise of a row, and the failure probability of the bootstraps behind it.
    pub noise: Noise,
    /// Encoding of its messages; `None`: unknown, or a Boolean gate's.
    pub encoding: Option<Encoding>,
}

impl MapOutput {
    /// log2 of the probability that a bootstrap behind any row failed (union bound).
    #[must_use]
    pub fn log2_failure(&self) -> f64 {
        (self.noise.log2_failure() + (self.rows as f64).log2()).min(0.0)
    }
}

/// What a program will do with columns.
#[derive(Clone, Debug)]
pub struct MapFacts {
    /// What it gives.
    pub outputs: Vec<MapOutput>,
    /// Bootstraps in all rows together.
    pub bootstraps: u64,
    /// For each bootstrapped value its rows, the bits of its messages and the functions that are applied to it, sample by sample.
    pub tasks: Vec<MapTask>,
    /// The functions of each value, or of two values, that a ciphertext is taken apart for, by ciphertexts of a ring.
    pub on_ciphertext: Vec<usize>,
}

/// Bootstraps of the rows of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapTask {
    /// The rows.
    pub rows: u64,
    /// Bits of the message that the functions read.
    pub input_bits: u32,
    /// The functions of each row.
    pub functions: usize,
}

/// How far a run on columns has come: enough to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Rows of the inputs that are done.
    pub rows: u64,
    /// Sums that are not complete yet, in the order of the program.
    pub sums: Vec<Vec<u8>>,
}

/// Takes what a run on columns gives.
pub trait MapSink {
    /// Takes rows of output number `output`, from `first` on. The rows of an output come in their order.
    ///
    /// # Errors
    /// Why they cannot be taken, which ends the run.
    fn take(&mut self, output: usize, first: u64, samples: &[u8]) -> Result<(), RowError>;

    /// Everything up to this checkpoint has been taken; called after every tile. Runs whose instructions move rows, or need all rows
    /// before others, have no checkpoint. Whoever goes on from a checkpoint drops the rows that were taken after it: they come again. A
    /// checkpoint belongs to a job; that the program, its inputs, and the registers that it reads are still the same is for the caller to see to.
    ///
    /// # Errors
    /// Why it cannot be kept, which ends the run.
    fn reached(&mut self, checkpoint: &Checkpoint) -> Result<(), RowError>;
}

impl Engine {
    /// What a program will do with columns, without doing it: rows, noise and failure probability of its results, and its bootstraps.
    ///
    /// # Errors
    /// Those of [`Engine::map`] that come before its first row.
    pub fn plan_map<'r>(
        &self,
        context: PagingContext,
        job: &MapJob<'_>,
        requester: impl Into<Requester<'r>>,
    ) -> Result<MapFacts, EngineError> {
        let (_, plan) = self.prepare_map(context, job, &requester.into())?;
        Ok(facts(&plan))
    }

    /// Runs a program on columns, from its beginning or from a checkpoint of the same job.
    ///
    /// The program sees the engine's registers as they are when it begins, with the columns in place of those of their numbers. It
    /// changes none of them. It works on a tile of rows at a time, all instructions before the next tile.
    ///
    /// # Errors
    /// [`EngineError::Rows`] for columns that do not fit the program or each other, [`EngineError::Column`] where rows cannot be read or
    /// taken, and those of [`Engine::evaluate`].
    pub fn map<'r>(
        &self,
        context: PagingContext,
        job: &MapJob<'_>,
        from: Option<Checkpoint>,
        sink: &mut dyn MapSink,
        requester: impl Into<Requester<'r>>,
    ) -> Result<MapFacts, EngineError> {
        let requester = requester.into();
        let (transaction, plan) = self.prepare_map(context, job, &requester)?;
        let facts = facts(&plan);
        Execution::new(transaction, plan, job, requester).run(from, sink)?;
        Ok(facts)
    }

    fn prepare_map(
        &self,
        context: PagingContext,
        job: &MapJob<'_>,
        requester: &Requester<'_>,
    ) -> Result<(Transaction<'_>, Plan), EngineError> {
        let mut transaction = Transaction::new(self, context, job.program_vr);
        let mut inputs = BTreeMap::new();
        {
            for input in job.inputs {
                input.attributes.check(input.vr)?;
            }
            let numbers = numbers(job.inputs)?;
            let table = self.table();
            let mut tags = job.inputs.iter().filter_map(|input| {
                let tag = input.attributes.key_tag?;
                Some((input.vr, tag))
            });
            if let Some((_, first)) = tags.next()
                && let Some((vr, _)) = tags.find(|(_, tag)| *tag != first)
            {
                return Err(EngineError::KeyTagMismatch { vr });
            }
            for (input, known) in job.inputs.iter().zip(known(&table, job.inputs, &numbers)) {
                let place = (input.vr, Origin::Write);
                if !input.vr.ty().is_sample() {
                    return Err(EngineError::NotASample { vr: input.vr });
                }
                table.check_params(place, input.params)?;
                table.check_key_tag(place, input.attributes.key_tag)?;
                let facts = ColumnFacts {
                    rows: input.rows,
                    noise: known.noise,
                    number: known.number,
                    encoding: input.attributes.encoding,
                };
                let rows = input.rows;
                if rows == 0 || rows > MAX_ROWS || inputs.insert(input.vr, facts).is_some() {
                    return Err(EngineError::Column {
                        vr: input.vr,
                        source: RowError::Refused(format!(
                            "{rows} rows found (1 to {MAX_ROWS} expected), or the column stands twice among the inputs"
                        )),
                    });
                }
            }
            transaction.look(&table, job.program, &[], requester)?;
        }
        transaction.set_columns(inputs.keys().copied().collect());
        let errors = |errors| EngineError::Verify {
            vr: job.program_vr,
            errors,
        };
        verify(job.program, &transaction, None).map_err(errors)?;
        let mut params = job.inputs.first().map(|input| input.params);
        let of_inputs = job.inputs.iter().map(|input| (input.vr, input.params));
        let of_samples = transaction.sets();
        for (vr, found) in of_inputs.chain(of_samples) {
            if vr.key_id() != job.program_vr.key_id() {
                return Err(EngineError::KeyIdDenied { vr: job.program_vr });
            }
            let expected = *params.get_or_insert(found);
            if expected.id != found.id {
                return Err(EngineError::ParamsMismatch {
                    vr,
                    expected: expected.name,
                    found: found.name,
                });
            }
        }
        let params = params.ok_or(EngineError::NoSuchRegister { vr: job.program_vr })?;
        for (vr, number, noise, encoding) in transaction.samples() {
            inputs.entry(vr).or_insert_with(|| ColumnFacts {
                number,
                rows: 1,
                noise: noise.clone(),
                encoding,
            });
        }
        let setting = Setting {
            program: job.program_vr,
            params,
            arithmetic: self.backend.arithmetic(),
            inputs: &inputs,
            functions: &|tv| transaction.encodings(tv),
        };
        let plan = Plan::new(&setting, job.program, job.outputs)?;
        // Others need the paged area, too.
        let room = (self.config.paged_bytes + self.config.swap_bytes) / 2;
        let page = units_of(params.lwe_bytes() as u64) * PAGE_BYTES as u64;
        let needed = plan.kept_rows() * u128::from(page);
        if needed > u128::from(room) {
            return Err(EngineError::MapTooLarge {
                vr: job.program_vr,
                what: "rows that moves of rows, or later stages, read",
                needed,
                room,
            });
        }
        Ok((transaction, plan))
    }
}

/// An input, as it begins and as a whole, with its noise.
struct Known {
    first: u64,
    number: u64,
    rows: u64,
    noise: Noise,
}

/// Numbers of the first row and of all rows of each input.
fn numbers(inputs: &[ColumnInput<'_>]) -> Result<Vec<(u64, u64)>, EngineError> {
    let number = |input: &ColumnInput<'_>| {
        let mut first = vec![0; input.params.lwe_bytes()];
        if input.rows > 0 {
            let read = input.source.read(0..1, &mut first);
            read.map_err(|error| error.of(input.vr))?;
        }
        let first = fingerprint(&first);
        let all = if input.rows == 1 {
            first
        } else {
            input.source.number()
        };
        Ok((first, all))
    };
    inputs.iter().map(number).collect()
}

/// The noise of the inputs' rows. The same samples in several registers are one source. Columns that begin with the same
/// sample and are not the same may share any of their rows, so that their standard deviations add up.
fn known(table: &Table, inputs: &[ColumnInput<'_>], numbers: &[(u64, u64)]) -> Vec<Known> {
    let mut all: Vec<Known> = Vec::with_capacity(inputs.len());
    for (input, (first, number)) in inputs.iter().zip(numbers) {
        let (first, number) = (*first, *number);
        let stated = input.attributes.noise(input.params);
        let noise = if input.rows == 1 {
            table.noise_of(input.vr.key_id(), first, stated)
        } else {
            stated
        };
        let params = input.params;
        let mut input = Known {
            first,
            number,
            rows: input.rows,
            noise,
        };
        for other in all.iter_mut().filter(|other| other.first == input.first) {
            let same = (other.number, other.rows) == (input.number, input.rows);
            if same && same_statement(&other.noise, &input.noise) {
                input.noise = other.noise.clone();
            } else {
                for noise in [&mut other.noise, &mut input.noise] {
                    let (variance, failure) = (noise.variance(), noise.log2_failure());
                    *noise = Noise::stored(params, variance, failure, true);
                }
            }
        }
        all.push(input);
    }
    all
}

/// The tasks of a plan that apply a function, as they are sample by sample.
pub(crate) fn map_tasks(plan: &Plan) -> Vec<MapTask> {
    let tasks = plan.tasks.iter().filter(|task| !task.functions.is_empty());
    let tasks = tasks.map(|task| MapTask {
        rows: plan.values.get(task.input).map_or(0, |value| value.rows),
        input_bits: task.input_bits,
        functions: task.functions.len(),
    });
    tasks.collect()
}

fn facts(plan: &Plan) -> MapFacts {
    let output = |((vr, value), noise): (&(VrNumber, usize), &Noise)| {
        let value = plan.values.get(*value)?;
        Some(MapOutput {
            vr: *vr,
            rows: value.rows,
            noise: noise.clone(),
            encoding: value.encoding,
        })
    };
    let tasks = map_tasks(plan);
    MapFacts {
        outputs: plan
            .outputs
            .iter()
            .zip(&plan.noises)
            .filter_map(output)
            .collect(),
        bootstraps: plan.bootstraps(),
        on_ciphertext: tasks.iter().map(|task| task.functions).collect(),
        tasks,
    }
}
