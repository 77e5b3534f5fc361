//! Runs a plan: stage by stage, tile by tile.
//!
//! A tile's samples of a value are a *lane*. Lanes live until the last operation of the tile that reads them. What a later stage reads is
//! kept in the paged area, a page for each row, so that moves of rows move page numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use toroid_isa::{KeyKind, VrNumber};

use super::plan::{Operation, Plan, Readers, Task, ValueId};
use super::{Checkpoint, ColumnInput, MapJob, MapSink, RowSource};
use crate::backend::{BackendError, BootstrapTask};
use crate::error::{EngineError, RowError};
use crate::paging::{PageId, PagedMemory};
use crate::processor::{Transaction, constant};
use crate::requester::{BOOTSTRAPS, PASSES, Requester};

/// Batches of the size that the back end likes that a tile makes. More of them waste less at a tile's end; fewer of them come to a
/// checkpoint sooner.
const BATCHES_OF_A_TILE: u64 = 4;

/// The rows of a tile that only adds up rows of inputs, which it does not hold.
const ROWS_OF_A_SUM: u64 = 1 << 16;

/// A run of a plan.
pub(super) struct Execution<'e, 'a> {
    transaction: Transaction<'e>,
    plan: Plan,
    job: &'a MapJob<'a>,
    requester: Requester<'a>,
    needed: BTreeSet<ValueId>,
    /// The values of each stage, in an order in which they can run.
    stages: BTreeMap<usize, Vec<ValueId>>,
    /// What reads a value; nothing of it for one that no operation reads.
    readers: HashMap<ValueId, Readers>,
    /// The values that are outputs, with the places of these.
    places: HashMap<ValueId, Vec<usize>>,
    /// Bytes of a sample.
    width: usize,
    /// Values of a single row.
    singles: HashMap<ValueId, Vec<u8>>,
    /// Values of several rows that later stages read.
    kept: HashMap<ValueId, Pages<'e>>,
    /// Outputs whose rows the sink has, by their places.
    delivered: BTreeSet<usize>,
    /// Passes over rows and bootstraps: those done, and all.
    passes: (u64, u64),
    bootstraps: (u64, u64),
}

/// A page for each row of a column; gives them back when dropped.
struct Pages<'e> {
    memory: &'e PagedMemory,
    pages: Vec<PageId>,
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        for page in &self.pages {
            self.memory.release(*page);
        }
    }
}

/// Operations on values of equally many rows within a stage.
struct Pipeline {
    rows: u64,
    /// In an order in which they can run.
    values: Vec<ValueId>,
    /// Where in `values` a value is read last.
    last_use: HashMap<ValueId, usize>,
    /// Where bootstraps that need no result of each other go to the back end together: how many lie one behind the other up to each value. `values` are in
    /// that order.
    depths: Option<HashMap<ValueId, usize>>,
}

/// The samples of a tile.
struct Tile {
    rows: Range<u64>,
    lanes: HashMap<ValueId, Vec<u8>>,
    /// Memory of lanes that are no longer read.
    spare: Vec<Vec<u8>>,
}

impl Tile {
    fn count(&self) -> usize {
        (self.rows.end - self.rows.start) as usize
    }

    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }
}

/// A sum that rows are still added to.
struct Running {
    group: u64,
    sum: Vec<u8>,
}

/// By the values that they become.
type Sums = BTreeMap<ValueId, Running>;

impl<'e, 'a> Execution<'e, 'a> {
    pub(super) fn new(
        transaction: Transaction<'e>,
        plan: Plan,
        job: &'a MapJob<'a>,
        requester: Requester<'a>,
    ) -> Self {
        let needed = plan.needed();
        let bootstraps = plan.bootstraps();
        let width = plan.params.lwe_bytes();
        let mut stages: BTreeMap<usize, Vec<ValueId>> = BTreeMap::new();
        for id in &needed {
            stages.entry(plan.values[*id].stage).or_default().push(*id);
        }
        let readers = plan.readers(&needed);
        let mut places: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (place, (_, value)) in plan.outputs.iter().enumerate() {
            places.entry(*value).or_default().push(place);
        }
        Execution {
            transaction,
            plan,
            job,
            requester,
            needed,
            stages,
            readers,
            places,
            width,
            singles: HashMap::new(),
            kept: HashMap::new(),
            delivered: BTreeSet::new(),
            passes: (0, 0),
            bootstraps: (0, bootstraps),
        }
    }

    pub(super) fn run(
        mut self,
        from: Option<Checkpoint>,
        sink: &mut dyn MapSink,
    ) -> Result<(), EngineError> {
        let resumable = self.resumable();
        let mut from = from.filter(|checkpoint| *checkpoint != Checkpoint::default());
        if from.is_some() && !resumable {
            return Err(self.column_error(
                self.job.program_vr,
                "the program moves rows or needs all rows before others, and begins anew: no checkpoint expected".to_owned(),
            ));
        }
        let stages: Vec<usize> = self.stages.keys().copied().collect();
        for stage in &stages {
            self.passes.1 += self
                .pipelines(*stage)
                .iter()
                .map(|own| own.rows)
                .sum::<u64>();
        }
        for stage in stages {
            for pipeline in self.pipelines(stage) {
                let resume = if pipeline.rows > 1 { from.take() } else { None };
                self.pipeline(stage, &pipeline, resume, resumable, sink)?;
            }
            self.move_rows(stage)?;
            let (readers, places) = (&self.readers, &self.places);
            self.singles.retain(|value, _| {
                let later = readers
                    .get(value)
                    .is_some_and(|readers| readers.last_stage > stage);
                later || places.contains_key(value)
            });
        }
        self.deliver_rest(sink)
    }

    fn column_error(&self, vr: VrNumber, reason: String) -> EngineError {
        EngineError::Column {
            vr,
            source: RowError::Refused(reason),
        }
    }

    /// Whether all that a run knows between two tiles is in a checkpoint: there is one pipeline of several rows, nothing of which is
    /// read by later stages but sums.
    fn resumable(&self) -> bool {
        let moves = |value: &ValueId| self.plan.values[*value].operation.moves_rows();
        if self.needed.iter().any(moves) {
            return false;
        }
        let several = |value: &&ValueId| self.plan.values[**value].rows > 1;
        let mut with_rows = BTreeSet::new();
        for value in self.needed.iter().filter(several) {
            let value = &self.plan.values[*value];
            if value.stage > 0 {
                return false;
            }
            if !matches!(value.operation, Operation::Sum(..)) {
                with_rows.insert(value.rows);
            }
        }
        with_rows.len() <= 1
            && self.needed.iter().all(|value| {
                let is_sum = matches!(self.plan.values[*value].operation, Operation::Sum(..));
                !(is_sum && self.plan.values[*value].rows > 1 && self.is_read(*value))
            })
    }

    /// Whether an operation reads the value.
    fn is_read(&self, value: ValueId) -> bool {
        self.readers.contains_key(&value)
    }

    /// Whether rows of the value must be kept beyond their tile in this stage.
    fn is_kept(&self, value: ValueId, stage: usize) -> bool {
        let is_input = matches!(self.plan.values[value].operation, Operation::Input(_));
        self.readers
            .get(&value)
            .is_some_and(|readers| readers.moves_rows || (readers.last_stage > stage && !is_input))
    }

    fn of_stage(&self, stage: usize) -> &[ValueId] {
        self.stages.get(&stage).map_or(&[], Vec::as_slice)
    }

    /// The pipelines of a stage: that of single rows first, on which the others may depend.
    fn pipelines(&self, stage: usize) -> Vec<Pipeline> {
        let mut by_rows: BTreeMap<u64, Vec<ValueId>> = BTreeMap::new();
        for id in self.of_stage(stage) {
            let value = &self.plan.values[*id];
            let rows = match value.operation {
                operation if operation.moves_rows() => continue,
                Operation::Sum(operand, _) => self.plan.values[operand].rows,
                // Inputs are read where operations ask for them.
                Operation::Input(_)
                    if value.rows > 1 && !self.is_output(*id) && !self.is_kept(*id, stage) =>
                {
                    continue;
                }
                _ => value.rows,
            };
            by_rows.entry(rows).or_default().push(*id);
        }
        let pipeline = |(rows, mut values): (u64, Vec<ValueId>)| {
            let goes_by_depth = self.goes_by_depth(rows, &values);
            let depths = goes_by_depth.then(|| self.sort_by_depth(&mut values));
            let mut last_use = HashMap::new();
            for (place, value) in values.iter().enumerate() {
                for operand in self.read_lanes(self.plan.values[*value].operation) {
                    last_use.insert(operand, place);
                }
            }
            Pipeline {
                rows,
                values,
                last_use,
                depths,
            }
        };
        by_rows.into_iter().map(pipeline).collect()
    }

    /// Whether so few rows leave the back end idle when functions run one after the other, and there is memory for the samples of all values at a time.
    fn goes_by_depth(&self, rows: u64, values: &[ValueId]) -> bool {
        let mut all: BTreeSet<ValueId> = values.iter().copied().collect();
        for value in values {
            all.extend(self.plan.operands(self.plan.values[*value].operation));
        }
        // What the back end gives stands beside the samples that it is divided into.
        let bytes = 2 * all.len() as u64 * self.width as u64;
        let bootstraps = values.iter().filter(|value| self.is_bootstrap(**value));
        bootstraps.count() > 1
            && rows < self.batch_hint() as u64
            && bytes.saturating_mul(rows) <= self.job.memory
    }

    /// How many bootstraps lie one behind the other up to each value; puts the values into this order, bootstraps first.
    fn sort_by_depth(&self, values: &mut [ValueId]) -> HashMap<ValueId, usize> {
        let mut depths: HashMap<ValueId, usize> = HashMap::new();
        for value in values.iter() {
            let operands = self.plan.operands(self.plan.values[*value].operation);
            let below = operands.filter_map(|operand| depths.get(&operand)).max();
            let depth = below.unwrap_or(&0) + usize::from(self.is_bootstrap(*value));
            depths.insert(*value, depth);
        }
        values.sort_by_key(|value| (depths.get(value).copied(), !self.is_bootstrap(*value)));
        depths
    }

    fn is_bootstrap(&self, value: ValueId) -> bool {
        matches!(self.plan.values[value].operation, Operation::Bootstrap(_))
    }

    /// How many tasks at once the back end likes.
    fn batch_hint(&self) -> usize {
        self.transaction.engine.backend.batch_hint(self.plan.params)
    }

    fn is_output(&self, value: ValueId) -> bool {
        self.places.contains_key(&value)
    }

    /// The input of several rows that an operation adds up as it is: its source knows how, and no row of it needs a lane.
    fn summed(&self, operation: Operation) -> Option<&'a ColumnInput<'a>> {
        let Operation::Sum(operand, _) = operation else {
            return None;
        };
        let value = &self.plan.values[operand];
        let Operation::Input(vr) = value.operation else {
            return None;
        };
        let mut inputs = self.job.inputs.iter().filter(|_| value.rows > 1);
        inputs.find(|input| input.vr == vr)
    }

    /// The values whose lanes an operation reads.
    fn read_lanes(&self, operation: Operation) -> impl Iterator<Item = ValueId> {
        let reads = self.summed(operation).is_none();
        self.plan.operands(operation).filter(move |_| reads)
    }

    /// The most lanes that live at one time, with the copies that operations make.
    fn most_lanes(&self, pipeline: &Pipeline) -> usize {
        let mut live: BTreeSet<ValueId> = BTreeSet::new();
        let mut most = 1;
        for (place, id) in pipeline.values.iter().enumerate() {
            let operation = self.plan.values[*id].operation;
            if self.summed(operation).is_some() {
                continue;
            }
            live.extend(self.plan.operands(operation));
            let mut copies = 1;
            if let Operation::Bootstrap(task) = operation
                && !live.contains(id)
            {
                let functions = &self.plan.tasks[task].functions;
                copies += functions.len();
                live.extend(functions.iter().map(|(_, value)| *value));
            }
            live.insert(*id);
            most = most.max(live.len() + copies);
            // A single row that goes with all rows stays.
            let goes = |value: &ValueId| {
                let read = pipeline.last_use.get(value);
                let single = self.plan.values[*value].rows == 1 && pipeline.rows > 1;
                read.is_none_or(|last| *last <= place) && !single
            };
            for value in self.plan.operands(operation).chain([*id]) {
                if goes(&value) {
                    live.remove(&value);
                }
            }
        }
        most
    }

    /// The rows of a tile: as many as the lanes that live at one time leave room for in the job's memory.
    fn tile_rows(&self, pipeline: &Pipeline) -> Result<u64, EngineError> {
        let row = (self.most_lanes(pipeline) * self.width) as u64;
        let fitting = self.job.memory / row;
        if fitting == 0 {
            return Err(EngineError::MapTooLarge {
                vr: self.job.program_vr,
                what: "the samples of a single row that it works on at a time",
                needed: row.into(),
                room: self.job.memory,
            });
        }
        let is_summed = |value: &ValueId| self.summed(self.plan.values[*value].operation).is_some();
        if pipeline.values.iter().all(is_summed) {
            return Ok(ROWS_OF_A_SUM.clamp(1, pipeline.rows));
        }
        let wanted = if pipeline.values.iter().any(|id| self.is_bootstrap(*id)) {
            self.batch_hint() as u64 * BATCHES_OF_A_TILE
        } else {
            pipeline.rows
        };
        Ok(wanted.min(fitting).clamp(1, pipeline.rows))
    }

    fn pipeline(
        &mut self,
        stage: usize,
        pipeline: &Pipeline,
        resume: Option<Checkpoint>,
        resumable: bool,
        sink: &mut dyn MapSink,
    ) -> Result<(), EngineError> {
        let mut sums = Sums::new();
        for id in &pipeline.values {
            if let Operation::Sum(_, group) = self.plan.values[*id].operation {
                let running = Running {
                    group,
                    sum: Vec::new(),
                };
                sums.insert(*id, running);
            }
        }
        let mut start = 0;
        if let Some(checkpoint) = resume {
            let fits = checkpoint.rows <= pipeline.rows && checkpoint.sums.len() == sums.len();
            let mut pairs = sums.iter().zip(&checkpoint.sums);
            let sound = fits
                && pairs.all(|((value, running), sum)| {
                    let several = self.plan.values[*value].rows > 1;
                    let ended = several && checkpoint.rows.is_multiple_of(running.group);
                    sum.len() == if ended { 0 } else { self.width }
                });
            if !sound {
                let reason = "the checkpoint is that of another job".to_owned();
                return Err(self.column_error(self.job.program_vr, reason));
            }
            for sum in &checkpoint.sums {
                crate::register::check_words(self.job.program_vr, self.plan.params, sum)?;
            }
            start = checkpoint.rows;
            for (running, sum) in sums.values_mut().zip(checkpoint.sums) {
                running.sum = sum;
            }
        }
        let tile_rows = self.tile_rows(pipeline)?;
        self.passes.0 += start;
        let mut broadcast = HashMap::new();
        let mut spare = Vec::new();
        while start < pipeline.rows {
            let end = (start + tile_rows).min(pipeline.rows);
            let mut tile = Tile {
                rows: start..end,
                lanes: HashMap::new(),
                spare,
            };
            for (place, value) in pipeline.values.iter().enumerate() {
                if self.requester.cancel.is_cancelled() {
                    return Err(EngineError::Cancelled);
                }
                let here = (pipeline, place);
                self.step(here, &mut tile, &mut broadcast, &mut sums, sink)?;
                self.keep(stage, *value, &tile, sink)?;
                let operands = self.read_lanes(self.plan.values[*value].operation);
                for read in operands.chain([*value]) {
                    if pipeline
                        .last_use
                        .get(&read)
                        .is_none_or(|last| *last <= place)
                        && let Some(lane) = tile.lanes.remove(&read)
                    {
                        tile.spare.push(lane);
                    }
                }
            }
            spare = tile.spare;
            spare.extend(tile.lanes.into_values());
            self.passes.0 += end - start;
            self.requester.report(PASSES, self.passes.0, self.passes.1);
            start = end;
            if resumable && pipeline.rows > 1 {
                let checkpoint = Checkpoint {
                    rows: start,
                    sums: sums.values().map(|running| running.sum.clone()).collect(),
                };
                let reached = sink.reached(&checkpoint);
                reached.map_err(|error| error.of(self.job.program_vr))?;
            }
        }
        for (value, running) in sums {
            if self.plan.values[value].rows == 1 {
                self.singles.insert(value, running.sum);
            } else if !running.sum.is_empty() {
                // The last group has fewer rows.
                let place = self.plan.values[value].rows - 1;
                self.emit_sum(value, place, &running.sum, sink)?;
            }
        }
        for value in &pipeline.values {
            if self.plan.values[*value].rows > 1 {
                self.delivered
                    .extend(self.places.get(value).into_iter().flatten());
            }
        }
        Ok(())
    }

    fn not_computed(&self) -> EngineError {
        EngineError::Execution {
            vr: self.job.program_vr,
            what: "reads a value that has not been computed",
        }
    }

    /// Makes the lane of the value at a place of a pipeline.
    fn step(
        &mut self,
        (pipeline, place): (&Pipeline, usize),
        tile: &mut Tile,
        broadcast: &mut HashMap<ValueId, Vec<u8>>,
        sums: &mut Sums,
        sink: &mut dyn MapSink,
    ) -> Result<(), EngineError> {
        let id = pipeline.values[place];
        let operation = self.plan.values[id].operation;
        let engine = self.transaction.engine;
        let backend = &*engine.backend;
        let params = self.plan.params;
        match operation {
            Operation::Input(_) => self.load(id, tile, broadcast),
            Operation::Add(a, b) | Operation::Sub(a, b) => {
                let mut sum = self.copy(a, tile, broadcast)?;
                self.load(b, tile, broadcast)?;
                let other = self.lane(b, tile, broadcast)?;
                let bytes = sum.len();
                let other = other.get(..bytes).unwrap_or(other);
                match operation {
                    Operation::Add(..) => backend.hom_add(params, &mut sum, other),
                    _ => backend.hom_sub(params, &mut sum, other),
                }
                tile.lanes.insert(id, sum);
                Ok(())
            }
            Operation::Mul(a, v) => {
                let mut product = self.copy(a, tile, broadcast)?;
                backend.hom_int_mult(params, &mut product, v);
                tile.lanes.insert(id, product);
                Ok(())
            }
            Operation::AddInt(a, v) => {
                let mut sum = self.copy(a, tile, broadcast)?;
                let summand = constant(params, self.plan.values[a].encoding, v);
                for sample in sum.chunks_exact_mut(self.width) {
                    backend.hom_add(params, sample, &summand);
                }
                tile.lanes.insert(id, sum);
                Ok(())
            }
            Operation::Bootstrap(_) => {
                if tile.lanes.contains_key(&id) {
                    return Ok(());
                }
                let tasks = self.tasks_from(pipeline, place, tile);
                for task in &tasks {
                    self.load(task.input, tile, broadcast)?;
                }
                self.bootstrap(&tasks, tile, broadcast)
            }
            Operation::Sum(operand, _) => {
                if let Some(input) = self.summed(operation) {
                    return self.sum_input(id, input, tile.rows.clone(), sums, sink);
                }
                self.load(operand, tile, broadcast)?;
                let Some(running) = sums.get_mut(&id) else {
                    return Ok(());
                };
                // The memory of a sum serves for the next one.
                let group = running.group;
                let mut sum = std::mem::take(&mut running.sum);
                let lane = self.lane(operand, tile, broadcast)?;
                let several = self.plan.values[id].rows > 1;
                for (row, sample) in tile.rows.clone().zip(lane.chunks_exact(self.width)) {
                    if sum.is_empty() {
                        sum.extend_from_slice(sample);
                    } else {
                        backend.hom_add(params, &mut sum, sample);
                    }
                    if several && (row + 1).is_multiple_of(group) {
                        self.emit_sum(id, row / group, &sum, sink)?;
                        sum.clear();
                    }
                }
                if let Some(running) = sums.get_mut(&id) {
                    running.sum = sum;
                }
                Ok(())
            }
            Operation::Lower(..) | Operation::Upper(..) | Operation::Join(..) => Ok(()),
        }
    }

    /// Adds up rows of an input, from its source.
    fn sum_input(
        &mut self,
        id: ValueId,
        input: &ColumnInput<'_>,
        rows: Range<u64>,
        sums: &mut Sums,
        sink: &mut dyn MapSink,
    ) -> Result<(), EngineError> {
        let Some(running) = sums.get_mut(&id) else {
            return Ok(());
        };
        let (params, several) = (self.plan.params, self.plan.values[id].rows > 1);
        let mut row = rows.start;
        while row < rows.end {
            if self.requester.cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let mut end = rows.end;
            if several {
                end = end.min((row / running.group + 1) * running.group);
            }
            let mut sum = vec![0; self.width];
            let source: &dyn RowSource = input.source;
            let summed = source.sum(params, row..end, &mut sum);
            summed.map_err(|error| error.of(input.vr))?;
            crate::register::check_words(input.vr, params, &sum)?;
            if !running.sum.is_empty() {
                let backend = &self.transaction.engine.backend;
                backend.hom_add(params, &mut sum, &running.sum);
            }
            running.sum = sum;
            if several && end.is_multiple_of(running.group) {
                let sum = std::mem::take(&mut running.sum);
                self.emit_sum(id, row / running.group, &sum, sink)?;
            }
            row = end;
        }
        Ok(())
    }

    /// Hands a sum of several to where it is wanted.
    fn emit_sum(
        &mut self,
        id: ValueId,
        place: u64,
        sum: &[u8],
        sink: &mut dyn MapSink,
    ) -> Result<(), EngineError> {
        if self.is_read(id) {
            self.append(id, sum)?;
        }
        self.hand_over(id, place, sum, sink)
    }

    /// Gives rows of a value to the outputs that they are of.
    fn hand_over(
        &self,
        id: ValueId,
        first: u64,
        samples: &[u8],
        sink: &mut dyn MapSink,
    ) -> Result<(), EngineError> {
        for place in self.places.get(&id).map_or(&[][..], Vec::as_slice) {
            let vr = self.plan.outputs[*place].0;
            sink.take(*place, first, samples)
                .map_err(|error| error.of(vr))?;
        }
        Ok(())
    }

    /// Keeps the lane of a value for later stages, and gives it to its outputs.
    fn keep(
        &mut self,
        stage: usize,
        id: ValueId,
        tile: &Tile,
        sink: &mut dyn MapSink,
    ) -> Result<(), EngineError> {
        let value = &self.plan.values[id];
        if matches!(value.operation, Operation::Sum(..)) {
            return Ok(());
        }
        let Some(lane) = tile.lanes.get(&id) else {
            return Ok(());
        };
        if value.rows == 1 {
            let readers = self.readers.get(&id);
            if self.is_output(id)
                || readers.is_some_and(|readers| readers.beyond || readers.moves_rows)
            {
                self.singles.insert(id, lane.clone());
            }
            return Ok(());
        }
        self.hand_over(id, tile.rows.start, lane, sink)?;
        if self.is_kept(id, stage) {
            self.append(id, lane)?;
        }
        Ok(())
    }

    /// Appends rows to the pages of a value.
    fn append(&mut self, id: ValueId, samples: &[u8]) -> Result<(), EngineError> {
        let memory = &self.transaction.engine.memory;
        let kept = self.kept.entry(id).or_insert_with(|| Pages {
            memory,
            pages: Vec::new(),
        });
        for sample in samples.chunks_exact(self.width) {
            kept.pages
                .push(memory.create(&mut self.transaction.io, sample)?);
        }
        Ok(())
    }

    /// A copy of a value's lane, or the lane itself where nothing else reads it from memory of its own.
    fn copy(
        &mut self,
        id: ValueId,
        tile: &mut Tile,
        broadcast: &mut HashMap<ValueId, Vec<u8>>,
    ) -> Result<Vec<u8>, EngineError> {
        self.load(id, tile, broadcast)?;
        let bytes = tile.count() * self.width;
        let mut copy = tile.buffer(bytes);
        let lane = self.lane(id, tile, broadcast)?;
        copy.copy_from_slice(lane.get(..bytes).unwrap_or(lane));
        Ok(copy)
    }

    fn lane<'t>(
        &self,
        id: ValueId,
        tile: &'t Tile,
        broadcast: &'t HashMap<ValueId, Vec<u8>>,
    ) -> Result<&'t [u8], EngineError> {
        let lane = tile.lanes.get(&id).or_else(|| broadcast.get(&id));
        lane.map(Vec::as_slice).ok_or(EngineError::Execution {
            vr: self.job.program_vr,
            what: "reads a value that has not been computed",
        })
    }

    /// Sees to it that the samples of a value are in its lane, or for a single row in that of a broadcast.
    fn load(
        &mut self,
        id: ValueId,
        tile: &mut Tile,
        broadcast: &mut HashMap<ValueId, Vec<u8>>,
    ) -> Result<(), EngineError> {
        if tile.lanes.contains_key(&id) {
            return Ok(());
        }
        let bytes = tile.count() * self.width;
        let value = &self.plan.values[id];
        let (rows, operation) = (value.rows, value.operation);
        if rows == 1 {
            if broadcast.get(&id).is_some_and(|lane| lane.len() >= bytes) {
                return Ok(());
            }
            let single = match (self.singles.get(&id), operation) {
                (Some(single), _) => single.clone(),
                (None, Operation::Input(vr)) => self.input(vr, 0..1)?,
                (None, _) => return Err(self.not_computed()),
            };
            broadcast.insert(id, single.repeat(tile.count()));
            if let Some(lane) = broadcast.get(&id)
                && tile.rows == (0..1)
            {
                tile.lanes.insert(id, lane.clone());
            }
            return Ok(());
        }
        let mut lane = tile.buffer(bytes);
        if let Operation::Input(vr) = operation {
            self.read_rows(vr, tile.rows.clone(), &mut lane)?;
        } else {
            let range = tile.rows.start as usize..tile.rows.end as usize;
            let kept = self.kept.get(&id);
            let pages = kept.and_then(|kept| Some((kept.memory, kept.pages.get(range)?)));
            let (memory, pages) = pages.ok_or(EngineError::Execution {
                vr: self.job.program_vr,
                what: "reads rows that have not been computed",
            })?;
            for (page, sample) in pages.iter().zip(lane.chunks_exact_mut(self.width)) {
                let read = memory.read(&mut self.transaction.io, *page, self.width)?;
                sample.copy_from_slice(&read);
            }
        }
        tile.lanes.insert(id, lane);
        Ok(())
    }

    /// Rows of an input.
    fn input(&mut self, vr: VrNumber, rows: Range<u64>) -> Result<Vec<u8>, EngineError> {
        if self.job.inputs.iter().any(|input| input.vr == vr) {
            let mut samples = vec![0; (rows.end - rows.start) as usize * self.width];
            self.read_rows(vr, rows, &mut samples)?;
            return Ok(samples);
        }
        self.transaction.sample(vr)
    }

    fn read_rows(
        &self,
        vr: VrNumber,
        rows: Range<u64>,
        samples: &mut [u8],
    ) -> Result<(), EngineError> {
        let input = self.job.inputs.iter().find(|input| input.vr == vr);
        let input = input.ok_or(EngineError::NoSuchRegister { vr })?;
        let source: &dyn RowSource = input.source;
        let read = source.read(rows, samples);
        read.map_err(|error| error.of(vr))?;
        crate::register::check_words(vr, input.params, samples)
    }

    /// The task of the bootstrap at a place, with those behind it that it goes to the back end with: as many as the back end likes.
    fn tasks_from(&self, pipeline: &Pipeline, place: usize, tile: &Tile) -> Vec<Task> {
        let depth_of = |value| pipeline.depths.as_ref().map(|depths| depths.get(value));
        let depth = depth_of(&pipeline.values[place]);
        let most = depth.map_or(1, |_| self.batch_hint().div_ceil(tile.count()));
        let mut numbers = Vec::new();
        for value in &pipeline.values[place..] {
            let Operation::Bootstrap(task) = self.plan.values[*value].operation else {
                break;
            };
            if numbers.len() == most || depth_of(value) != depth {
                break;
            }
            if !tile.lanes.contains_key(value) && !numbers.contains(&task) {
                numbers.push(task);
            }
        }
        let tasks = numbers
            .into_iter()
            .map(|task| self.plan.tasks[task].clone());
        tasks.collect()
    }

    /// Bootstraps the rows of a tile, all functions of a task at once.
    fn bootstrap(
        &mut self,
        tasks: &[Task],
        tile: &mut Tile,
        broadcast: &HashMap<ValueId, Vec<u8>>,
    ) -> Result<(), EngineError> {
        let n = self.job.program_vr;
        let params = self.plan.params;
        let bootstrapping = self.transaction.key(n, KeyKind::Bootstrapping)?;
        let key_switching = self.transaction.key(n, KeyKind::KeySwitching)?;
        let vectors = tasks
            .iter()
            .map(|task| {
                let of_task = task.functions.iter();
                of_task
                    .map(|(tv, _)| self.transaction.function(*tv))
                    .collect()
            })
            .collect::<Result<Vec<Vec<&[u8]>>, _>>()?;
        let count = tile.count();
        let all: usize = vectors.iter().map(Vec::len).sum();
        let mut results = tile.buffer(count * all * self.width);
        let mut samples = Vec::with_capacity(tasks.len() * count);
        for (task, test_vectors) in tasks.iter().zip(&vectors) {
            let lane = self.lane(task.input, tile, broadcast)?;
            let of_rows = lane.chunks_exact(self.width).take(count);
            samples.extend(of_rows.map(|sample| BootstrapTask {
                test_vectors,
                sample,
                input_bits: task.input_bits,
            }));
        }
        let backend = &*self.transaction.engine.backend;
        backend
            .bootstrap_batch(
                params,
                &*bootstrapping,
                &*key_switching,
                &samples,
                &mut results,
                self.requester,
            )
            .map_err(|source| match source {
                BackendError::Cancelled => EngineError::Cancelled,
                source => EngineError::Backend { vr: n, source },
            })?;
        self.bootstraps.0 += (count * all) as u64;
        let (done, total) = self.bootstraps;
        self.requester.report(BOOTSTRAPS, done, total);
        if let [task] = tasks
            && let [(_, value)] = *task.functions
        {
            tile.lanes.insert(value, results);
            return Ok(());
        }
        let mut rest = &results[..];
        for task in tasks {
            let functions = task.functions.len();
            let (of_task, others) = rest.split_at(count * functions * self.width);
            for (place, (_, value)) in task.functions.iter().enumerate() {
                let mut lane = tile.buffer(count * self.width);
                let of_function = of_task
                    .chunks_exact(self.width)
                    .skip(place)
                    .step_by(functions);
                for (sample, result) in lane.chunks_exact_mut(self.width).zip(of_function) {
                    sample.copy_from_slice(result);
                }
                tile.lanes.insert(*value, lane);
            }
            rest = others;
        }
        tile.spare.push(results);
        Ok(())
    }

    /// Executes the moves of rows of a stage, and lets go of what no later stage reads.
    fn move_rows(&mut self, stage: usize) -> Result<(), EngineError> {
        let memory = &self.transaction.engine.memory;
        let of_stage = self.of_stage(stage).iter().copied();
        let moves: Vec<ValueId> = of_stage
            .filter(|id| self.plan.values[*id].operation.moves_rows())
            .collect();
        // A single row has no page yet.
        for id in &moves {
            let operands = self.plan.operands(self.plan.values[*id].operation);
            for operand in operands.collect::<Vec<_>>() {
                if let Some(sample) = self.singles.get(&operand).cloned()
                    && !self.kept.contains_key(&operand)
                {
                    self.append(operand, &sample)?;
                }
            }
        }
        for id in moves {
            if self.requester.cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let empty: &[PageId] = &[];
            let pages_of = |value: ValueId| {
                let kept = self.kept.get(&value);
                kept.map_or(empty, |kept| kept.pages.as_slice())
            };
            let half = |value, d: u64, upper: bool| -> Vec<PageId> {
                let blocks = pages_of(value).chunks(2 * d as usize);
                let skip = if upper { d as usize } else { 0 };
                blocks
                    .flat_map(|block| block.iter().skip(skip).take(d as usize).copied())
                    .collect()
            };
            let pages = match self.plan.values[id].operation {
                Operation::Lower(a, d) => half(a, d, false),
                Operation::Upper(a, d) => half(a, d, true),
                Operation::Join(a, b, d) => {
                    let blocks = pages_of(a)
                        .chunks(d as usize)
                        .zip(pages_of(b).chunks(d as usize));
                    blocks
                        .flat_map(|(lower, upper)| lower.iter().chain(upper).copied())
                        .collect()
                }
                _ => continue,
            };
            for page in &pages {
                memory.retain(*page);
            }
            if let ([page], 1) = (pages.as_slice(), self.plan.values[id].rows) {
                let sample = memory.read(&mut self.transaction.io, *page, self.width);
                memory.release(*page);
                self.singles.insert(id, sample?);
                continue;
            }
            self.kept.insert(id, Pages { memory, pages });
        }
        let later = |value: &ValueId| {
            let readers = self.readers.get(value);
            self.is_output(*value) || readers.is_some_and(|readers| readers.last_stage > stage)
        };
        let done: Vec<ValueId> = self
            .kept
            .keys()
            .copied()
            .filter(|value| !later(value))
            .collect();
        for value in done {
            self.kept.remove(&value);
        }
        Ok(())
    }

    /// Gives the sink what no pipeline gave it: single rows, and rows that moved.
    fn deliver_rest(&mut self, sink: &mut dyn MapSink) -> Result<(), EngineError> {
        for (place, (vr, value)) in self.plan.outputs.clone().into_iter().enumerate() {
            if self.delivered.contains(&place) {
                continue;
            }
            let rows = self.plan.values[value].rows;
            let operation = self.plan.values[value].operation;
            for row in 0..rows {
                if self.requester.cancel.is_cancelled() {
                    return Err(EngineError::Cancelled);
                }
                let sample = if rows == 1 {
                    match (self.singles.get(&value), operation) {
                        (Some(single), _) => single.clone(),
                        (None, Operation::Input(input)) => self.input(input, 0..1)?,
                        (None, _) => return Err(self.not_computed()),
                    }
                } else {
                    let kept = self.kept.get(&value);
                    let page = kept.and_then(|kept| kept.pages.get(row as usize).copied());
                    let page = page.ok_or(EngineError::NoSuchRegister { vr })?;
                    let memory = &self.transaction.engine.memory;
                    memory.read(&mut self.transaction.io, page, self.width)?
                };
                let taken = sink.take(place, row, &sample);
                taken.map_err(|error| error.of(vr))?;
            }
        }
        Ok(())
    }
}
