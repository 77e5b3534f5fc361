//! Columns as bytes ([`toroid_tfhe::column`]): rows from any form, and results packed where the back end packs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use toroid_isa::KeyKind;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{
    self, Chunk, Column, ColumnBytesBuilder, ColumnForm, ColumnHeader, RowSum, Segment,
    column_bytes, packed_variance, rows_per_chunk,
};
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

use super::execute::Execution;
use super::plan::Plan;
use super::{Checkpoint, MapFacts, MapJob, MapOutput, MapSink, RowSource};
use crate::backend::LoadedKey;
use crate::engine::Engine;
use crate::error::{EngineError, RowError};
use crate::processor::Transaction;
use crate::requester::Requester;
use crate::swap::PagingContext;

/// The noise of rows of this noise once a drive has packed them; that of rows of a set that packs nothing stays.
#[must_use]
pub fn packed_noise(params: &ParamSet, arithmetic: ArithmeticKind, noise: &Noise) -> Noise {
    match packed_variance(params, arithmetic, noise.variance()) {
        Some(packed) => Noise::stored(params, packed, noise.log2_failure(), true),
        None => noise.clone(),
    }
}

fn refused(error: impl ToString) -> RowError {
    RowError::Refused(error.to_string())
}

/// The rows of a column in memory. The chunk that was read last stays expanded, since tiles are shorter than chunks.
pub struct ColumnBytes<'a> {
    column: Column<'a>,
    number: u64,
    last: Mutex<Option<(Segment, Arc<Chunk>)>>,
}

impl<'a> ColumnBytes<'a> {
    /// The rows of the column that these bytes are. It checks the checksums of all chunks.
    ///
    /// # Errors
    /// Why they are none.
    pub fn new(params: &ParamSet, bytes: &'a [u8]) -> Result<ColumnBytes<'a>, RowError> {
        let column = Column::new(params, bytes).map_err(refused)?;
        let number = number_of(&column).map_err(refused)?;
        Ok(ColumnBytes {
            column,
            number,
            last: Mutex::new(None),
        })
    }

    /// Its segments and rows.
    #[must_use]
    pub fn header(&self) -> &ColumnHeader {
        self.column.header()
    }

    /// Goes through rows of the column: the number of each segment that they lie in, and which rows of its chunk they are.
    fn each_segment(
        &self,
        rows: Range<u64>,
        mut take: impl FnMut(usize, Range<usize>) -> Result<(), RowError>,
    ) -> Result<(), RowError> {
        let header = self.header();
        let mut row = rows.start;
        while row < rows.end {
            let place = header.locate(row);
            let held = place.and_then(|(index, _)| header.rows_of(index));
            let (Some((index, within)), Some(held)) = (place, held) else {
                return Err(refused(format!("the column has {} rows", header.rows())));
            };
            let end = rows.end.min(held.end);
            let from = header.segments()[index].first as usize + within as usize;
            take(index, from..from + (end - row) as usize)?;
            row = end;
        }
        Ok(())
    }

    /// Writes rows of a segment, counted from the first one of its chunk.
    fn expand(
        &self,
        index: usize,
        rows: Range<usize>,
        samples: &mut [u8],
    ) -> Result<(), TfheError> {
        let (params, segment) = (self.header().params(), &self.header().segments()[index]);
        if segment.form == ColumnForm::Expanded {
            let (chunk, of) = (self.column.chunk_bytes(index)?, segment.chunk_rows as usize);
            return column::expand(params, segment.form, chunk, of, rows, samples);
        }
        self.chunk(index, segment)?.expand(rows, samples)
    }

    fn chunk(&self, index: usize, segment: &Segment) -> Result<Arc<Chunk>, TfheError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref();
        if let Some((_, chunk)) = known.filter(|(known, _)| known.shares_chunk(segment)) {
            return Ok(Arc::clone(chunk));
        }
        let chunk = Arc::new(self.column.chunk_of(index)?);
        *last = Some((*segment, Arc::clone(&chunk)));
        Ok(chunk)
    }
}

/// A hash of the rows of a column: of its chunks and of which of their rows it has, wherever they stand.
///
/// # Errors
/// Why a chunk is none.
fn number_of(column: &Column<'_>) -> Result<u64, TfheError> {
    let params = column.header().params();
    let mut known = HashMap::new();
    let mut rows: Vec<(u64, Segment)> = Vec::new();
    for (index, segment) in column.header().segments().iter().enumerate() {
        let content = match known.entry(segment.offset) {
            Entry::Occupied(content) => *content.get(),
            Entry::Vacant(place) => {
                let chunk = column.chunk_bytes(index)?;
                segment.check_chunk(params, chunk)?;
                *place.insert(fingerprint(chunk))
            }
        };
        match rows.last_mut() {
            Some((of, before))
                if *of == content
                    && before.form == segment.form
                    && before.rows_in_chunk().end == segment.first as usize =>
            {
                before.rows += segment.rows;
            }
            _ => rows.push((content, *segment)),
        }
    }
    let words = rows.iter().flat_map(|(content, segment)| {
        let place = [segment.form as u32, segment.first, segment.rows];
        [*content, place[0].into(), place[1].into(), place[2].into()]
    });
    let words: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    Ok(fingerprint(&words))
}

impl RowSource for ColumnBytes<'_> {
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        let width = self.header().params().lwe_bytes();
        let mut rest = samples;
        self.each_segment(rows, |index, rows| {
            let (out, behind) = std::mem::take(&mut rest)
                .split_at_mut_checked(rows.len() * width)
                .ok_or_else(|| refused("rows found no room"))?;
            rest = behind;
            self.expand(index, rows, out).map_err(refused)
        })
    }

    fn sum(&self, _: &ParamSet, rows: Range<u64>, sample: &mut [u8]) -> Result<(), RowError> {
        let params = self.header().params();
        let mut sum = RowSum::new(params);
        self.each_segment(rows, |index, rows| {
            let segment = &self.header().segments()[index];
            let added = if segment.form == ColumnForm::Expanded {
                let chunk = self.column.chunk_bytes(index).map_err(refused)?;
                let width = params.lwe_bytes();
                let samples = chunk.get(rows.start * width..rows.end * width);
                sum.add_samples(samples.unwrap_or_default())
            } else {
                let chunk = self.chunk(index, segment).map_err(refused)?;
                sum.add(&chunk, rows)
            };
            added.map_err(refused)
        })?;
        sample.copy_from_slice(&sum.finish().map_err(refused)?);
        Ok(())
    }

    fn number(&self) -> u64 {
        self.number
    }
}

/// A result of a run on columns.
#[derive(Clone, Debug)]
pub struct MadeColumn {
    /// What is known of its rows, whatever packing added to their noise included.
    pub facts: MapOutput,
    /// The bytes of a column; of a single row, its sample.
    pub bytes: Vec<u8>,
}

/// Makes the results of a run on columns, in memory: packed where the back end packs samples of the set, else expanded.
struct ColumnBuilder<'e, 'r> {
    engine: &'e Engine,
    params: &'static ParamSet,
    requester: Requester<'r>,
    /// The key that packs, where the results are packed.
    key: Option<Arc<dyn LoadedKey>>,
    columns: Vec<Building>,
}

/// The form of results.
fn form(is_packed: bool) -> ColumnForm {
    if is_packed {
        ColumnForm::Packed
    } else {
        ColumnForm::Expanded
    }
}

/// A column whose rows are still coming.
struct Building {
    facts: MapOutput,
    chunks: ColumnBytesBuilder,
    /// The rows that `chunks` has.
    rows: u64,
    /// Samples of the rows behind them; of a single row, the sample.
    pending: Vec<u8>,
}

impl<'e, 'r> ColumnBuilder<'e, 'r> {
    /// Room for these results of a run on columns of this set.
    fn new(
        engine: &'e Engine,
        params: &'static ParamSet,
        facts: &MapFacts,
        key: Option<Arc<dyn LoadedKey>>,
        requester: Requester<'r>,
    ) -> ColumnBuilder<'e, 'r> {
        let building = |facts: &MapOutput| {
            let chunks = facts.rows.div_ceil(rows_per_chunk(params) as u64) as usize;
            Building {
                facts: facts.clone(),
                chunks: ColumnBytesBuilder::new(params, chunks),
                rows: 0,
                pending: Vec::new(),
            }
        };
        ColumnBuilder {
            engine,
            params,
            requester,
            key,
            columns: facts.outputs.iter().map(building).collect(),
        }
    }

    fn form(&self) -> ColumnForm {
        form(self.key.is_some())
    }

    /// The columns, once the run has ended well.
    fn finish(self) -> Result<Vec<MadeColumn>, EngineError> {
        let ColumnBuilder {
            params,
            engine,
            key,
            columns,
            ..
        } = self;
        let arithmetic = engine.backend.arithmetic();
        let made = |building: Building| {
            let Building {
                mut facts,
                chunks,
                pending,
                ..
            } = building;
            if key.is_some() && facts.rows > 1 {
                facts.noise = packed_noise(params, arithmetic, &facts.noise);
            }
            let bytes = if facts.rows == 1 {
                pending
            } else {
                let bytes = chunks.finish();
                bytes.map_err(|error| refused(error).of(facts.vr))?
            };
            Ok(MadeColumn { facts, bytes })
        };
        columns.into_iter().map(made).collect()
    }

    /// Ends the chunk whose rows wait.
    fn end_chunk(&mut self, output: usize) -> Result<(), RowError> {
        let form = self.form();
        let Some(building) = self.columns.get_mut(output) else {
            return Ok(());
        };
        let samples = std::mem::take(&mut building.pending);
        let rows = samples.chunks_exact(self.params.lwe_bytes());
        let placed: Vec<(usize, &[u8])> = rows.enumerate().collect();
        let count = placed.len();
        let packed = match &self.key {
            Some(key) => {
                let backend = &self.engine.backend;
                Some(backend.pack(self.params, &**key, &placed, count, self.requester)?)
            }
            None => None,
        };
        building.rows += count as u64;
        let chunk = packed.as_ref().unwrap_or(&samples);
        let taken = building.chunks.push_chunk(form, count, chunk);
        taken.map_err(refused)
    }
}

impl MapSink for ColumnBuilder<'_, '_> {
    fn take(&mut self, output: usize, _: u64, samples: &[u8]) -> Result<(), RowError> {
        let full = rows_per_chunk(self.params) * self.params.lwe_bytes();
        let mut rest = samples;
        while !rest.is_empty() {
            let Some(building) = self.columns.get_mut(output) else {
                return Ok(());
            };
            let room = full - building.pending.len();
            let (now, behind) = rest.split_at(room.min(rest.len()));
            building.pending.extend_from_slice(now);
            rest = behind;
            let waiting = (building.pending.len() / self.params.lwe_bytes()) as u64;
            let whole = building.rows + waiting == building.facts.rows;
            if building.facts.rows > 1 && (building.pending.len() == full || whole) {
                self.end_chunk(output)?;
            }
        }
        Ok(())
    }

    fn reached(&mut self, _: &Checkpoint) -> Result<(), RowError> {
        Ok(())
    }
}

/// A run on columns that has begun: it sees the registers as they were then, and changes none of them.
#[must_use = "the program runs in `execute`"]
pub struct ColumnRun<'e, 'a> {
    transaction: Transaction<'e>,
    plan: Plan,
    facts: MapFacts,
    job: &'a MapJob<'a>,
    requester: Requester<'a>,
    /// The key that packs, where the results are packed.
    key: Option<Arc<dyn LoadedKey>>,
}

impl ColumnRun<'_, '_> {
    /// What the run will do.
    #[must_use]
    pub fn facts(&self) -> &MapFacts {
        &self.facts
    }

    /// Bytes of the longest result as a column, even of a single row.
    ///
    /// # Errors
    /// [`EngineError::Column`] for a result without rows.
    pub fn column_bytes(&self) -> Result<u64, EngineError> {
        self.longest(|params, rows| match rows {
            1 => column_bytes(params, ColumnForm::Expanded, rows),
            rows => column_bytes(params, form(self.key.is_some()), rows),
        })
    }

    /// Bytes of the longest result as [`ColumnRun::execute`] makes it.
    fn bytes(&self) -> Result<u64, EngineError> {
        self.longest(|params, rows| match rows {
            1 => Ok(params.lwe_bytes() as u64),
            rows => column_bytes(params, form(self.key.is_some()), rows),
        })
    }

    fn longest(
        &self,
        bytes: impl Fn(&ParamSet, u64) -> Result<u64, TfheError>,
    ) -> Result<u64, EngineError> {
        let mut longest = 0;
        for output in &self.facts.outputs {
            let bytes = bytes(self.plan.params, output.rows);
            longest = longest.max(bytes.map_err(|error| refused(error).of(output.vr))?);
        }
        Ok(longest)
    }

    /// Whether results stay expanded for want of a key alone: the back end packs the set's samples.
    #[must_use]
    pub fn lacks_key_to_pack(&self) -> bool {
        self.key.is_none() && self.transaction.engine.backend.packs(self.plan.params)
    }

    /// Runs the program. Gives its results, each packed where the back end packs, a single row as its sample; and what the run did.
    ///
    /// # Errors
    /// Those of [`Engine::map`].
    pub fn execute(self) -> Result<(Vec<MadeColumn>, MapFacts), EngineError> {
        let ColumnRun {
            transaction,
            plan,
            facts,
            job,
            requester,
            key,
        } = self;
        let mut builder =
            ColumnBuilder::new(transaction.engine, plan.params, &facts, key, requester);
        Execution::new(transaction, plan, job, requester).run(None, &mut builder)?;
        Ok((builder.finish()?, facts))
    }
}

impl Engine {
    /// Begins a run on columns whose results are wanted in memory. The run sees the registers as they are when this returns; whatever is
    /// stored in them from then on counts as later than the run.
    ///
    /// # Errors
    /// Those of [`Engine::map`] that come before its first row.
    pub fn begin_columns<'e, 'a>(
        &'e self,
        context: PagingContext,
        job: &'a MapJob<'a>,
        requester: impl Into<Requester<'a>>,
    ) -> Result<ColumnRun<'e, 'a>, EngineError> {
        let requester = requester.into();
        let (transaction, plan) = self.prepare_map(context, job, &requester)?;
        // The key that the run bootstraps with, whatever comes into its register meanwhile.
        let key = transaction.key(job.program_vr, KeyKind::Bootstrapping);
        Ok(ColumnRun {
            facts: super::facts(&plan),
            key: key.ok().filter(|_| self.backend.packs(plan.params)),
            transaction,
            plan,
            job,
            requester,
        })
    }

    /// [`Engine::map`] from beginning to end, with the results in memory, at most `room` bytes for each, beside what the run did.
    ///
    /// # Errors
    /// Those of [`Engine::map`]; [`EngineError::MapTooLarge`] before the first row where a result has no room.
    pub fn map_to_columns<'a>(
        &self,
        context: PagingContext,
        job: &'a MapJob<'a>,
        room: u64,
        requester: impl Into<Requester<'a>>,
    ) -> Result<(Vec<MadeColumn>, MapFacts), EngineError> {
        let run = self.begin_columns(context, job, requester)?;
        let needed = run.bytes()?;
        if needed > room {
            return Err(EngineError::MapTooLarge {
                vr: job.program_vr,
                what: "a result",
                needed: needed.into(),
                room,
            });
        }
        run.execute()
    }
}
