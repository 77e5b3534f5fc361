//! Programs that are in no register, run on samples that come with the command.

use std::time::Instant;

use toroid_engine::backend::RingOperand;
use toroid_engine::{Attributes, PagingContext, Requester, RingForm, RingInput, RingJob, RingRows};
use toroid_isa::{Program, VrNumber};
use toroid_rns::ring_set::RingSet;
use toroid_rns::stored::StoredColumn;
use toroid_tfhe::TfheError;
use toroid_tfhe::column::{Chunk, Column, Segment};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::ParamSet;

use super::columns::{Input, columns, job, rows_of};
use super::command::Context;
use super::commands::Bridge;
use super::object::{Object, check, with_result};
use super::status::{Fault, METADATA_INVALID, METADATA_MISMATCH, PROGRAM_REFUSED, TRIGGER_SPLIT};
use super::under_way::Run;

use toroid_isa::metadata::ScMetadata;

/// A LWE sample with its metadata.
pub(crate) struct Described {
    pub(crate) sc: ScMetadata,
    pub(crate) bytes: Vec<u8>,
}

/// The ring in which a program computes on columns, and what becomes of its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingWay {
    /// The ring.
    pub set: &'static RingSet,
    /// The form of the result.
    pub form: RingForm,
}

impl RingWay {
    /// The bit of a command for a result in samples; the ring set's number is below it.
    const SAMPLES: u32 = 1 << 31;

    /// The way that a command's dword names; `None` for a ring that there is not, and bits of no meaning.
    pub(crate) fn from_word(word: u32) -> Option<RingWay> {
        let number = u16::try_from(word & !Self::SAMPLES).ok()?;
        Some(RingWay {
            set: RingSet::by_id(number)?,
            form: match word & Self::SAMPLES {
                0 => RingForm::Column,
                _ => RingForm::Samples,
            },
        })
    }

    /// The dword of a command that names it, which is not 0.
    pub(crate) fn to_word(self) -> u32 {
        let form = match self.form {
            RingForm::Column => 0,
            RingForm::Samples => Self::SAMPLES,
        };
        u32::from(self.set.id) | form
    }
}

/// Where the result of a program goes.
#[derive(Clone, Copy)]
pub(crate) struct ResultPlace {
    /// The input whose place it takes; without one it is described as the register that the program returned.
    pub(crate) place: Option<usize>,
    /// The most bytes of a column.
    pub(crate) room: u64,
    /// The ring to compute in; that of the inputs if not given, where they are ring columns.
    pub(crate) ring: Option<RingWay>,
}

impl Bridge {
    /// Runs a program on samples, which it finds in the registers that their metadata name, beside what the drive has in the
    /// others. No register changes.
    pub(crate) fn evaluate(
        &self,
        context: &Context,
        (name, program): (VrNumber, &Program),
        inputs: &[Described],
        ResultPlace { place, room, ring }: ResultPlace,
    ) -> Result<Described, Fault> {
        context.keys().check_register(name)?;
        let (kept, inputs) = kept_rows(name, inputs)?;
        let of_inputs = || {
            let set = inputs.iter().find_map(|i| RingSet::by_id(i.sc.params()))?;
            let form = RingForm::Column;
            Some(RingWay { set, form })
        };
        if let Some(way) = ring.or_else(of_inputs) {
            return self.map_ring(context, (name, program), (way, inputs, kept), room);
        }
        if kept.is_some() {
            let reason = "rows are left out of runs by ciphertexts of a ring, not of samples";
            return Err(Fault::new(METADATA_MISMATCH, reason));
        }
        if inputs.iter().any(|input| input.sc.column()) {
            return self.map(context, (name, program), inputs, (place, room));
        }
        let objects = inputs
            .iter()
            .map(|input| described(context, input))
            .collect::<Result<Vec<_>, _>>()?;
        for (place, object) in objects.iter().enumerate() {
            let vr = object.sc().vr();
            if objects
                .iter()
                .skip(place + 1)
                .any(|other| other.sc().vr() == vr)
            {
                let reason = format!("two inputs are for {vr}");
                return Err(Fault::new(METADATA_MISMATCH, reason));
            }
        }
        let parts = objects
            .iter()
            .zip(inputs)
            .map(|(object, input)| object.part(context, &input.bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let under_way = Run::begin(&self.log, context, name, 1);
        let (requester, paging) = requester(context, &under_way);
        let ran = self
            .engine
            .evaluate(paging, name, program, &parts, requester)
            .map_err(Fault::from);
        let outcome = ran.inspect_err(|_| self.program_failed(context, name.key_id()))?;
        let trigger = place.or((!objects.is_empty()).then_some(0));
        let trigger = trigger.and_then(|place| objects.get(place));
        let trigger = trigger.map_or(outcome.returned, |object| object.sc().vr());
        self.program_ran(context, trigger, &outcome, &under_way);
        let sc = match place.and_then(|place| objects.get(place)) {
            Some(object) => object.result(&outcome)?,
            None => {
                let (params, len) = (outcome.params, outcome.bytes.len());
                let sc = ScMetadata::new(outcome.returned, params.id, len as u64)?;
                let object = Object {
                    description: sc.into(),
                    params,
                    len,
                };
                object.result(&outcome)?
            }
        };
        Ok(Described {
            sc,
            bytes: outcome.bytes,
        })
    }

    /// The same on columns, with single samples beside them.
    fn map(
        &self,
        context: &Context,
        (name, program): (VrNumber, &Program),
        inputs: &[Described],
        (place, room): (Option<usize>, u64),
    ) -> Result<Described, Fault> {
        let rows = inputs
            .iter()
            .map(|input| {
                context.keys().check_register(input.sc.vr())?;
                Input::new(&input.sc, &input.bytes)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let columns = columns(&rows);
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
        let job = job((name, program), &columns);
        let under_way = Run::begin(&self.log, context, name, rows_of(&columns));
        let (requester, paging) = requester(context, &under_way);
        let begun = Instant::now();
        let (made, facts) = self
            .engine
            .map_to_columns(paging, &job, room, requester)
            .map_err(Fault::from)
            .inspect_err(|_| self.program_failed(context, name.key_id()))?;
        self.map_ran(context, name, (&facts, begun.elapsed()), &under_way);
        // A verified program returns one register.
        let made = made
            .into_iter()
            .next()
            .ok_or_else(|| Fault::new(PROGRAM_REFUSED, "the program returned nothing"))?;
        let at = place.and_then(|place| columns.get(place));
        let vr = at.map_or(made.facts.vr, |input| input.vr);
        let params = at.or(columns.first()).map_or(0, |input| input.params.id);
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

/// The bytes that say which rows a program is to keep, and the inputs behind them: the first range may have, described as the program's own register, a bit
/// for each row.
fn kept_rows(name: VrNumber, inputs: &[Described]) -> Result<(Option<&[u8]>, &[Described]), Fault> {
    let Some((first, others)) = inputs.split_first() else {
        return Ok((None, inputs));
    };
    if first.sc.vr() != name {
        return Ok((None, inputs));
    }
    if first.sc.offset() != 0 || first.bytes.len() as u64 != first.sc.size() {
        let found = first.bytes.len();
        let reason = format!("{}: found {found} bytes of the rows to keep", first.sc);
        return Err(Fault::new(METADATA_INVALID, reason));
    }
    Ok((Some(&first.bytes), others))
}

/// A bit for each of so many rows, the lowest bit of a byte first, and no other bits.
fn bits_of_rows(bytes: &[u8], rows: usize) -> Result<Vec<bool>, Fault> {
    let bit = |row: usize| bytes[row / 8] >> (row % 8) & 1 == 1;
    if bytes.len() != rows.div_ceil(8) || (rows..8 * bytes.len()).any(bit) {
        let found = bytes.len();
        let reason = format!("{found} bytes of the rows to keep, or a bit beyond {rows} rows");
        return Err(Fault::new(METADATA_INVALID, reason));
    }
    Ok((0..rows).map(bit).collect())
}

/// Rows of one ciphertext that came with the command.
enum OwnedOperand {
    Column(StoredColumn),
    Samples(Vec<Chunk>),
}

/// A column that came with the command, for a program that computes in a ring: a ring column, or one of samples.
fn ring_operand(set: &RingSet, input: &Described) -> Result<(OwnedOperand, Attributes), Fault> {
    let sc = &input.sc;
    let refused = |what: String| Fault::new(METADATA_INVALID, format!("{sc}: {what}"));
    let samples = ParamSet::by_id(sc.params());
    if (sc.params() != set.id && samples.is_none()) || !sc.column() || !sc.vr().ty().is_sample() {
        let what = format!("expected a column of {} or of samples", set.name);
        return Err(Fault::new(METADATA_MISMATCH, format!("{sc}: {what}")));
    }
    if sc.offset() != 0 || input.bytes.len() as u64 != sc.size() {
        return Err(refused(format!("found {} bytes of it", input.bytes.len())));
    }
    let encoding = Encoding::new(sc.message_bits().into(), sc.signed());
    let attributes = Attributes {
        encoding: Some(encoding.map_err(|error| refused(error.to_string()))?),
        output: None,
        computed: sc.computed(),
        log2_variance: sc.log2_variance().map(f64::from),
        log2_failure: sc.log2_p_fail().map(f64::from),
        key_tag: sc.key_tag(),
    };
    let Some(params) = samples else {
        let column = StoredColumn::from_bytes(&input.bytes);
        let column = column.map_err(|error| refused(error.to_string()))?;
        return Ok((OwnedOperand::Column(column), attributes));
    };
    let most = set.rows().div_ceil(params.ring_degree);
    let chunks = leading_chunks((params, most), &input.bytes);
    let chunks = chunks.map_err(|error| refused(error.to_string()))?;
    Ok((OwnedOperand::Samples(chunks), attributes))
}

/// The chunks of a column, as many at most, of whose rows each segment has the first ones.
fn leading_chunks(
    (params, most): (&ParamSet, usize),
    bytes: &[u8],
) -> Result<Vec<Chunk>, TfheError> {
    let column = Column::new(params, bytes)?;
    let segments = column.header().segments();
    if segments.len() > most {
        let reason = format!(
            "{} chunks; a ciphertext of the ring has rows of {most}",
            segments.len()
        );
        return Err(TfheError::Format(reason));
    }
    let segments = segments.iter().enumerate();
    let chunk = |(number, segment): (usize, &Segment)| {
        let rows = segment.rows_in_chunk();
        if rows.start != 0 {
            let reason =
                format!("rows {rows:?} of a chunk, which a ring column does not begin with");
            return Err(TfheError::Format(reason));
        }
        column.chunk_of(number)?.leading(rows.end)
    };
    segments.map(chunk).collect()
}

impl Bridge {
    /// A program that computes in a ring on columns, which are all of its inputs.
    fn map_ring(
        &self,
        context: &Context,
        (name, program): (VrNumber, &Program),
        (way, inputs, kept): (RingWay, &[Described], Option<&[u8]>),
        room: u64,
    ) -> Result<Described, Fault> {
        let RingWay { set, form } = way;
        let mut operands = Vec::with_capacity(inputs.len());
        for input in inputs {
            context.keys().check_register(input.sc.vr())?;
            operands.push(ring_operand(set, input)?);
        }
        let operands = inputs.iter().zip(&operands);
        let columns: Vec<RingInput<'_>> = operands
            .map(|(input, (operand, attributes))| RingInput {
                vr: input.sc.vr(),
                attributes: *attributes,
                operand: match operand {
                    OwnedOperand::Column(column) => RingOperand::Column(column),
                    OwnedOperand::Samples(chunks) => RingOperand::Samples(chunks),
                },
            })
            .collect();
        let rows = columns.iter().map(|input| input.operand.rows());
        let rows = rows.max().unwrap_or(1);
        let kept = kept.map(|bytes| bits_of_rows(bytes, rows)).transpose()?;
        let job = RingJob {
            program_vr: name,
            program,
            set,
            inputs: &columns,
            form,
            kept: kept.as_deref(),
        };
        let under_way = Run::begin(&self.log, context, name, rows as u64);
        let (requester, _) = requester(context, &under_way);
        let begun = Instant::now();
        let made = self.engine.map_ring(&job, room, requester);
        let made = made
            .map_err(Fault::from)
            .inspect_err(|_| self.program_failed(context, name.key_id()))?;
        self.map_ran(context, name, (&made.facts, begun.elapsed()), &under_way);
        let output = made.facts.outputs.first();
        let output =
            output.ok_or_else(|| Fault::new(PROGRAM_REFUSED, "the program returned nothing"))?;
        let (params, bytes) = match made.rows {
            RingRows::Column(column) => (set.id, column.to_bytes()),
            RingRows::Samples(bytes) => (made.params.id, bytes),
        };
        let tag = inputs.iter().find_map(|input| input.sc.key_tag());
        let sc = ScMetadata::new(output.vr, params, bytes.len() as u64)?
            .with_column(true)
            .with_key_tag(tag.unwrap_or_default());
        Ok(Described {
            sc: with_result(sc, output.encoding, &output.noise)?,
            bytes,
        })
    }
}

/// Who asks, and for which command pages move.
fn requester<'a>(context: &'a Context, under_way: &'a Run) -> (Requester<'a>, PagingContext) {
    let requester = Requester {
        tenant: context.host.identity.tenant,
        cancel: &context.cancel,
        key_ids: context.keys().only(),
        progress: Some(under_way.progress()),
    };
    (requester, context.paging())
}

/// The sample as the bridge knows objects.
fn described(context: &Context, input: &Described) -> Result<Object, Fault> {
    let sc = input.sc;
    context.keys().check_register(sc.vr())?;
    if !sc.vr().ty().is_sample() {
        let reason = format!("{sc}; expected a LWE sample");
        return Err(Fault::new(METADATA_INVALID, reason));
    }
    let params = check(&sc)?;
    if sc.offset() != 0 || input.bytes.len() as u64 != sc.size() {
        return Err(Fault::new(
            TRIGGER_SPLIT,
            format!("{sc} with {} bytes; expected all of it", input.bytes.len()),
        ));
    }
    Ok(Object {
        description: sc.into(),
        params,
        len: input.bytes.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_to_keep_are_as_many_bits_as_rows() {
        let rows = bits_of_rows(&[0b1000_0001, 0b10], 10).unwrap();
        let kept: Vec<usize> = (0..10).filter(|row| rows[*row]).collect();
        assert_eq!((rows.len(), kept), (10, vec![0, 7, 9]));
        for bytes in [&[1][..], &[1, 0, 0], &[1, 0b100]] {
            let fault = bits_of_rows(bytes, 10).unwrap_err();
            assert_eq!(fault.status, METADATA_INVALID);
        }
    }
}
