//! Columns that come with the command: they trigger programs as samples do, and are stored without one.
//!
//! No register holds a column. The program that one triggers finds it in the register that its metadata names, and single samples in all
//! others. It changes no register.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toroid_engine::{
    Attributes, ColumnBytes, ColumnInput, ColumnRun, MapFacts, MapJob, Prepared, Requester,
    RowError, RowSource,
};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{Program, VrNumber};
use toroid_nvme::Status;
use toroid_tfhe::column::{ColumnBytesBuilder, ColumnForm};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

use super::command::Context;
use super::commands::{Bridge, READ_TRIES};
use super::object::{Object, attributes, with_result};
use super::status::{
    Fault, KEY_MISSING, METADATA_INVALID, PROGRAM_REFUSED, WRONG_PARAMETERS, WRONG_SIZE,
};
use super::under_way::Run;
use super::watches::Watch;

/// Most bytes of samples that a run on columns has in work.
const TILE_BYTES: u64 = 64 << 20;

/// Rows that came with a command.
enum Rows<'a> {
    Single(&'a [u8]),
    Column(Box<ColumnBytes<'a>>),
}

impl RowSource for Rows<'_> {
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        match self {
            Rows::Single(sample) => {
                samples.copy_from_slice(sample);
                Ok(())
            }
            Rows::Column(column) => column.read(rows, samples),
        }
    }

    fn sum(&self, params: &ParamSet, rows: Range<u64>, sum: &mut [u8]) -> Result<(), RowError> {
        match self {
            Rows::Single(_) => self.read(rows, sum),
            Rows::Column(column) => column.sum(params, rows, sum),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Rows::Single(sample) => fingerprint(sample),
            Rows::Column(column) => column.number(),
        }
    }
}

/// A column or a single sample, and what its metadata says.
pub(super) struct Input<'a> {
    vr: VrNumber,
    params: &'static ParamSet,
    attributes: Attributes,
    rows: Rows<'a>,
}

impl<'a> Input<'a> {
    /// The input of these bytes, which are all there are of it. What stands behind the last chunk of a column does not count.
    pub(super) fn new(sc: &ScMetadata, bytes: &'a [u8]) -> Result<Input<'a>, Fault> {
        if !sc.vr().ty().is_sample() {
            let reason = format!("{sc}; expected LWE samples");
            return Err(Fault::new(METADATA_INVALID, reason));
        }
        let params = ParamSet::by_id(sc.params()).ok_or_else(|| {
            let reason = format!("parameter set {} of {} is unknown", sc.params(), sc.vr());
            Fault::new(WRONG_PARAMETERS, reason)
        })?;
        let single = params.lwe_bytes();
        if sc.offset() != 0
            || bytes.len() as u64 != sc.size()
            || (!sc.column() && bytes.len() != single)
        {
            let reason = format!("{sc} with {} bytes; expected all of it", bytes.len());
            return Err(Fault::new(WRONG_SIZE, reason));
        }
        let rows = if sc.column() {
            let column = ColumnBytes::new(params, bytes)
                .map_err(|error| Fault::new(METADATA_INVALID, format!("{}: {error}", sc.vr())))?;
            Rows::Column(Box::new(column))
        } else {
            Rows::Single(bytes)
        };
        Ok(Input {
            vr: sc.vr(),
            params,
            attributes: attributes(sc, params)?,
            rows,
        })
    }

    fn count(&self) -> u64 {
        match &self.rows {
            Rows::Single(_) => 1,
            Rows::Column(column) => column.header().rows(),
        }
    }
}

/// Inputs as the engine takes them.
pub(super) fn columns<'a>(inputs: &'a [Input<'_>]) -> Vec<ColumnInput<'a>> {
    let column = |input: &'a Input<'_>| ColumnInput {
        vr: input.vr,
        params: input.params,
        rows: input.count(),
        attributes: input.attributes,
        source: &input.rows,
    };
    inputs.iter().map(column).collect()
}

/// Rows of the longest column.
pub(super) fn rows_of(columns: &[ColumnInput<'_>]) -> u64 {
    columns.iter().map(|column| column.rows).max().unwrap_or(1)
}

/// What a program is to do with inputs: to make what it returns.
pub(super) fn job<'a>(
    (name, program): (VrNumber, &'a Program),
    inputs: &'a [ColumnInput<'a>],
) -> MapJob<'a> {
    MapJob {
        program_vr: name,
        program,
        inputs,
        outputs: &[],
        memory: TILE_BYTES,
    }
}

/// What a program has made of the column that triggered it.
pub(super) struct MappedColumn {
    /// For the column's place: as long as the column is.
    pub(super) bytes: Vec<u8>,
    /// What describes it.
    pub(super) sc: ScMetadata,
    pub(super) facts: MapFacts,
    pub(super) duration: Duration,
}

impl Bridge {
    /// Checks a column, whole in the blocks of a command, and prepares to empty its register.
    pub(super) fn prepare_column(
        &self,
        object: &Object,
        data: &[u8],
    ) -> Result<Prepared<'_>, Fault> {
        object.check_whole()?;
        Input::new(object.sc(), &data[..object.len])?;
        self.prepare_emptying(object)
    }

    /// Prepares to empty the register of a column, which may still hold a sample that stood in its place before.
    pub(super) fn prepare_emptying(&self, object: &Object) -> Result<Prepared<'_>, Fault> {
        let sc = object.sc();
        let prepared = self
            .engine
            .prepare_emptying(sc.vr(), object.params, sc.key_tag());
        Ok(prepared?)
    }

    /// Runs the program of a column's key id on the column, whose `data` are all in the command. `None` if the blocks of a read were
    /// written before the run began.
    pub(super) fn map_trigger(
        &self,
        context: &Context,
        (object, data): (&Object, &[u8]),
        watch: Option<&Watch>,
    ) -> Result<Option<(MappedColumn, Run)>, Fault> {
        let sc = object.sc();
        let name = VrNumber::program(sc.vr().key_id())
            .map_err(|error| Fault::new(METADATA_INVALID, error.to_string()))?;
        let input = [Input::new(sc, &data[..object.len])?];
        let columns = columns(&input);
        let under_way = Run::begin(&self.log, context, name, rows_of(&columns));
        // The program's own key id, whatever the host may use: another may have stored it.
        let key_ids = BTreeSet::from([name.key_id()]);
        let requester = Requester {
            tenant: context.host.identity.tenant,
            cancel: &context.cancel,
            key_ids: Some(&key_ids),
            progress: Some(under_way.progress()),
        };
        for _ in 0..READ_TRIES {
            context.check_cancelled()?;
            let begun = Instant::now();
            let program = self.engine.program(name)?;
            let job = job((name, &program), &columns);
            let run = self
                .engine
                .begin_columns(context.paging(), &job, requester)?;
            // The program is that of the time at which the run looked at the registers.
            if !Arc::ptr_eq(&program, &self.engine.program(name)?) {
                continue;
            }
            // What is stored from here on is later than the run.
            if watch.is_some_and(Watch::saw_a_write) {
                return Ok(None);
            }
            return execute(run, object, begun).map(|mapped| Some((mapped, under_way)));
        }
        let reason =
            format!("the program in {name} was replaced {READ_TRIES} times as it was to begin");
        Err(Fault::passing(Status::INTERNAL_ERROR, reason))
    }
}

/// Executes a run whose result takes the place of a column.
fn execute(run: ColumnRun<'_, '_>, object: &Object, begun: Instant) -> Result<MappedColumn, Fault> {
    let (needed, room) = (run.column_bytes()?, object.len as u64);
    if needed > room {
        let rows = run.facts().outputs.first().map_or(0, |output| output.rows);
        if run.lacks_key_to_pack() {
            let reason = format!(
                "the result of {rows} rows has {needed} bytes where no bootstrapping key is loaded that packs it, \
                 and the column in whose place it stands {room}"
            );
            return Err(Fault::new(KEY_MISSING, reason));
        }
        let reason = format!(
            "the result of {rows} rows has {needed} bytes, and the column in whose place it stands {room}; \
             write the column with zeroes behind it, as an object of {needed} bytes"
        );
        return Err(Fault::new(PROGRAM_REFUSED, reason));
    }
    let (made, facts) = run.execute()?;
    // A verified program returns one register.
    let made = made
        .into_iter()
        .next()
        .ok_or_else(|| Fault::new(PROGRAM_REFUSED, "the program returned nothing"))?;
    let mut bytes = match made.facts.rows {
        1 => column_of_one_row(object.params, &made.bytes)?,
        _ => made.bytes,
    };
    bytes.resize(object.len, 0);
    Ok(MappedColumn {
        bytes,
        sc: with_result(*object.sc(), made.facts.encoding, &made.facts.noise)?,
        facts,
        duration: begun.elapsed(),
    })
}

fn column_of_one_row(params: &ParamSet, sample: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut column = ColumnBytesBuilder::new(params, 1);
    column
        .push_chunk(ColumnForm::Expanded, 1, sample)
        .and_then(|()| column.finish())
        .map_err(|error| Fault::new(PROGRAM_REFUSED, error.to_string()))
}
