//! Programs on columns that come with the command.

use std::ops::Range;
use std::time::Instant;

use toroid_engine::{Attributes, ColumnBytes, ColumnInput, MapJob, RowError, RowSource};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{Program, VrNumber};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

use super::command::Context;
use super::commands::Bridge;
use super::evaluate::{Described, requester};
use super::object::{attributes, with_result};
use super::status::{
    Fault, METADATA_INVALID, METADATA_MISMATCH, PROGRAM_REFUSED, WRONG_PARAMETERS, WRONG_SIZE,
};

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

    fn number(&self) -> u64 {
        match self {
            Rows::Single(sample) => fingerprint(sample),
            Rows::Column(column) => column.number(),
        }
    }
}

/// A column or a single sample, and what its metadata says.
struct Input<'a> {
    vr: VrNumber,
    params: &'static ParamSet,
    attributes: Attributes,
    rows: Rows<'a>,
}

impl Input<'_> {
    fn count(&self) -> u64 {
        match &self.rows {
            Rows::Single(_) => 1,
            Rows::Column(column) => column.header().rows(),
        }
    }
}

impl Bridge {
    /// Runs a program on columns, which it finds in the registers that their metadata name, with single samples beside them. No register
    /// changes. The result is the column, or single sample, that the program returns, described as if it took the place of the
    /// input with the index `place`.
    pub(super) fn map(
        &self,
        context: &Context,
        (name, program): (VrNumber, &Program),
        inputs: &[Described],
        (place, room): (Option<usize>, u64),
    ) -> Result<Described, Fault> {
        let rows = inputs
            .iter()
            .map(|input| described(context, input))
            .collect::<Result<Vec<_>, _>>()?;
        let columns: Vec<ColumnInput<'_>> = rows
            .iter()
            .map(|input| ColumnInput {
                vr: input.vr,
                params: input.params,
                rows: input.count(),
                attributes: input.attributes,
                source: &input.rows,
            })
            .collect();
        for (place, column) in columns.iter().enumerate() {
            if columns
                .iter()
                .skip(place + 1)
                .any(|other| other.vr == column.vr)
            {
                let reason = format!("two inputs are for {}", column.vr);
                return Err(Fault::new(METADATA_MISMATCH, reason));
            }
        }
        let job = MapJob {
            program_vr: name,
            program,
            inputs: &columns,
            outputs: &[],
            memory: TILE_BYTES,
        };
        let (requester, paging) = requester(context);
        let begun = Instant::now();
        let (made, facts) = self
            .engine
            .map_to_columns(paging, &job, room, requester)
            .map_err(Fault::from)
            .inspect_err(|_| self.program_failed(context, name.key_id()))?;
        self.map_ran(context, name, &facts, begun.elapsed());
        // A verified program returns one register.
        let made = made
            .into_iter()
            .next()
            .ok_or_else(|| Fault::new(PROGRAM_REFUSED, "the program returned nothing"))?;
        let first = columns.first().copied();
        let like = place
            .and_then(|place| columns.get(place))
            .copied()
            .or(first);
        let vr = place
            .and_then(|place| columns.get(place))
            .map_or(made.facts.vr, |input| input.vr);
        let params = like.map_or(0, |input| input.params.id);
        let tag = inputs.iter().find_map(|input| input.sc.key_tag());
        let sc = ScMetadata::new(vr, params, made.bytes.len() as u64)?
            .with_column(made.facts.rows > 1)
            .with_key_tag(tag.unwrap_or_default());
        Ok(Described {
            sc: with_result(sc, made.facts.encoding, &made.facts.noise)?,
            bytes: made.bytes,
        })
    }
}

/// The rows of an input as the engine takes them.
fn described<'a>(context: &Context, input: &'a Described) -> Result<Input<'a>, Fault> {
    let sc = input.sc;
    context.keys().check_register(sc.vr())?;
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
        || input.bytes.len() as u64 != sc.size()
        || (!sc.column() && input.bytes.len() != single)
    {
        let reason = format!("{sc} with {} bytes; expected all of it", input.bytes.len());
        return Err(Fault::new(WRONG_SIZE, reason));
    }
    let rows = if sc.column() {
        let column = ColumnBytes::new(params, &input.bytes)
            .map_err(|error| Fault::new(METADATA_INVALID, format!("{}: {error}", sc.vr())))?;
        Rows::Column(Box::new(column))
    } else {
        Rows::Single(&input.bytes)
    };
    Ok(Input {
        vr: sc.vr(),
        params,
        attributes: attributes(&sc, params)?,
        rows,
    })
}
