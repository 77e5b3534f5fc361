//! Columns as bytes ([`toroid_tfhe::column`]): rows from any form, and results packed where the back end packs.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use toroid_isa::{KeyKind, VrNumber};
use toroid_tfhe::column::{
    Chunk, Column, ColumnForm, ColumnHeader, packed_variance, rows_per_chunk,
};
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

use super::execute::Execution;
use super::{Checkpoint, MapFacts, MapJob, MapOutput, MapSink, RowSource};
use crate::backend::LoadedKey;
use crate::engine::Engine;
use crate::error::{EngineError, RowError};
use crate::requester::Requester;
use crate::swap::PagingContext;

/// What packing adds to a row's noise, measured over its formula, is at most this (`docs/explanation/noise.md`).
const PACKING_MARGIN: f64 = 1.3;

fn refused(error: impl ToString) -> RowError {
    RowError::Refused(error.to_string())
}

/// The rows of a column in memory. The chunk that was read last stays expanded, since tiles are shorter than chunks.
pub struct ColumnBytes<'a> {
    params: &'a ParamSet,
    column: Column<'a>,
    number: u64,
    last: Mutex<Option<(u64, Arc<Chunk>)>>,
}

impl<'a> ColumnBytes<'a> {
    /// The rows of the column that these bytes are.
    ///
    /// # Errors
    /// Why they are none.
    pub fn new(params: &'a ParamSet, bytes: &'a [u8]) -> Result<ColumnBytes<'a>, RowError> {
        Ok(ColumnBytes {
            params,
            column: Column::new(params, bytes).map_err(refused)?,
            number: fingerprint(bytes),
            last: Mutex::new(None),
        })
    }

    /// Form and rows.
    #[must_use]
    pub fn header(&self) -> ColumnHeader {
        self.column.header()
    }

    fn chunk(&self, number: u64) -> Result<Arc<Chunk>, RowError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, chunk)) = last.as_ref().filter(|(known, _)| *known == number) {
            return Ok(Arc::clone(chunk));
        }
        let chunk = Arc::new(self.column.chunk(number).map_err(refused)?);
        *last = Some((number, Arc::clone(&chunk)));
        Ok(chunk)
    }
}

impl RowSource for ColumnBytes<'_> {
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        let (full, width) = (rows_per_chunk(self.params) as u64, self.params.lwe_bytes());
        let mut rest = samples;
        let mut row = rows.start;
        while row < rows.end {
            let of_chunk = self.header().chunk_rows(self.params, row / full);
            let end = rows.end.min(of_chunk.end);
            let count = end.saturating_sub(row) as usize;
            let (out, behind) = rest
                .split_at_mut_checked(count * width)
                .filter(|_| count > 0)
                .ok_or_else(|| refused(format!("the column has {} rows", self.header().rows)))?;
            let from = (row - of_chunk.start) as usize;
            self.chunk(row / full)?
                .expand(from..from + count, out)
                .map_err(refused)?;
            (rest, row) = (behind, end);
        }
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

/// A column whose rows are still coming.
struct Building {
    facts: MapOutput,
    bytes: Vec<u8>,
    /// The rows that `bytes` has.
    rows: u64,
    /// Samples of the rows behind them.
    pending: Vec<u8>,
}

impl<'e, 'r> ColumnBuilder<'e, 'r> {
    /// Room for these results of a run on columns of this set, at most `room` bytes for each.
    fn new(
        engine: &'e Engine,
        (program, params): (VrNumber, &'static ParamSet),
        facts: &MapFacts,
        key: Option<Arc<dyn LoadedKey>>,
        (requester, room): (Requester<'r>, u64),
    ) -> Result<ColumnBuilder<'e, 'r>, EngineError> {
        let key = key.filter(|_| engine.backend.packs(params));
        let builder = ColumnBuilder {
            engine,
            params,
            requester,
            key,
            columns: Vec::new(),
        };
        let building = |facts: &MapOutput| {
            let needed = if facts.rows == 1 {
                params.lwe_bytes() as u64
            } else {
                let bytes = builder.header(facts.rows).bytes(params);
                bytes.map_err(|error| refused(error).of(facts.vr))?
            };
            if needed > room {
                return Err(EngineError::MapTooLarge {
                    vr: program,
                    what: "a result",
                    needed: needed.into(),
                    room,
                });
            }
            Ok(Building {
                facts: facts.clone(),
                bytes: Vec::new(),
                rows: 0,
                pending: Vec::new(),
            })
        };
        let columns = facts
            .outputs
            .iter()
            .map(building)
            .collect::<Result<_, _>>()?;
        Ok(ColumnBuilder { columns, ..builder })
    }

    fn header(&self, rows: u64) -> ColumnHeader {
        let form = if self.key.is_some() {
            ColumnForm::Packed
        } else {
            ColumnForm::Expanded
        };
        ColumnHeader { form, rows }
    }

    /// The columns, once the run has ended well.
    fn finish(self) -> Vec<MadeColumn> {
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
                mut facts, bytes, ..
            } = building;
            let variance = facts.noise.variance();
            if key.is_some()
                && facts.rows > 1
                && let Some(packed) = packed_variance(params, arithmetic, variance)
            {
                let failure = facts.noise.log2_failure();
                let variance = variance + PACKING_MARGIN * (packed - variance);
                facts.noise = Noise::stored(params, variance, failure, true);
            }
            MadeColumn { facts, bytes }
        };
        columns.into_iter().map(made).collect()
    }

    /// Ends the chunk whose rows wait, or, of a single row, the column.
    fn end_chunk(&mut self, output: usize) -> Result<(), RowError> {
        let Some(building) = self.columns.get_mut(output) else {
            return Ok(());
        };
        let samples = std::mem::take(&mut building.pending);
        let (known, total) = (building.rows, building.facts.rows);
        if total == 1 {
            building.bytes = samples;
            return Ok(());
        }
        let rows = samples.chunks_exact(self.params.lwe_bytes());
        let placed: Vec<(usize, &[u8])> = rows.enumerate().collect();
        let packed = match &self.key {
            Some(key) => {
                let backend = &self.engine.backend;
                let count = placed.len();
                Some(backend.pack(self.params, &**key, &placed, count, self.requester)?)
            }
            None => None,
        };
        let header = self.header(total);
        let Some(building) = self.columns.get_mut(output) else {
            return Ok(());
        };
        if known == 0 {
            building.bytes.extend_from_slice(&header.to_bytes());
        }
        building.rows += placed.len() as u64;
        building
            .bytes
            .extend_from_slice(packed.as_ref().unwrap_or(&samples));
        Ok(())
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
            if building.pending.len() == full || building.rows + waiting == building.facts.rows {
                self.end_chunk(output)?;
            }
        }
        Ok(())
    }

    fn reached(&mut self, _: &Checkpoint) -> Result<(), RowError> {
        Ok(())
    }
}

impl Engine {
    /// [`Engine::map`] from beginning to end, with the results in memory, at most `room` bytes for each, beside what the run did.
    ///
    /// # Errors
    /// Those of [`Engine::map`]; [`EngineError::MapTooLarge`] before the first row where a result has no room.
    pub fn map_to_columns<'r>(
        &self,
        context: PagingContext,
        job: &MapJob<'_>,
        room: u64,
        requester: impl Into<Requester<'r>>,
    ) -> Result<(Vec<MadeColumn>, MapFacts), EngineError> {
        let requester = requester.into();
        let (transaction, plan) = self.prepare_map(context, job, &requester)?;
        let facts = super::facts(&plan);
        let of_set = (job.program_vr, plan.params);
        // The key that the run bootstraps with, whatever comes into its register meanwhile.
        let key = transaction.key(job.program_vr, KeyKind::Bootstrapping).ok();
        let mut builder = ColumnBuilder::new(self, of_set, &facts, key, (requester, room))?;
        Execution::new(transaction, plan, job, requester).run(None, &mut builder)?;
        Ok((builder.finish(), facts))
    }
}
