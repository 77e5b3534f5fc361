//! Programs over ring columns, ciphertext by ciphertext.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use sha2::{Digest as _, Sha256};
use toroid_drive::bridge::RingWay;
use toroid_engine::{FunctionOf, MapFacts, RingFacts, RingForecast, RingForm};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{KeyKind, Program, VrNumber};
use toroid_rns::format::FormatError;
use toroid_rns::modulus_switch::pair_variance;
use toroid_rns::ring_set::RingSet;
use toroid_rns::stored::{Layout, StoredColumn as Ciphertext};
use toroid_task::Progress;
use toroid_tfhe::column::{ColumnForm, column_bytes, rows_per_chunk};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;

use super::{RingColumn, RingRowFacts, RingRows};
use crate::blob::BlobError;
use crate::columns::executor::{Executor, Limits};
use crate::columns::head::{Run, damaged, set_of};
use crate::columns::map::{Filling, MapPlan, MapRequest, Route, Shape, Tables, shape};
use crate::columns::rows::{EncryptedRows, RowFacts};
use crate::columns::stored::{StoredColumn, bytes_of_segments};
use crate::columns::way::{Reason, RowForm};
use crate::columns::{ColumnError, JobRecord, mismatch, of};
use crate::ledger::{Origin, bytes_of_kept, kept_digest};
use crate::session::{Object, Session, SessionError};

/// The rows of a ciphertext that a command computes on.
#[derive(Clone, Debug)]
struct Unit {
    /// The place of the ciphertext in each column.
    number: usize,
    /// Its rows.
    rows: Range<u32>,
    /// Whether these are all of them.
    is_whole: bool,
    /// How many rows the program makes of them.
    made: u32,
}

impl Unit {
    /// The units of a part of rows that stand in ciphertexts of so many rows.
    fn of(ciphertexts: &[u32], wanted: &Range<u64>) -> Vec<Unit> {
        let (mut first, mut units) = (0, Vec::new());
        for (number, rows) in ciphertexts.iter().enumerate() {
            let end = first + u64::from(*rows);
            let (from, to) = (wanted.start.max(first), wanted.end.min(end));
            if from < to {
                units.push(Unit {
                    number,
                    rows: (from - first) as u32..(to - first) as u32,
                    is_whole: (from, to) == (first, end),
                    made: 0,
                });
            }
            first = end;
        }
        units
    }
}

/// A column that a run by ciphertexts reads.
enum Source {
    Ring(Box<RingColumn>),
    /// Samples, from this row on. Each ciphertext is made of whole chunks.
    Samples(Box<StoredColumn>, u64),
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Source::Ring(column) => &column.name,
            Source::Samples(column, _) => &column.name,
        }
    }
}

/// A run by ciphertexts with what it runs on.
pub(in crate::columns) struct RingJob<'a> {
    pub(in crate::columns) request: &'a MapRequest<'a>,
    pub(in crate::columns) program: Program,
    pub(in crate::columns) key_id: u32,
    inputs: Vec<(VrNumber, Source)>,
    pub(in crate::columns) objects: Vec<Object<'static>>,
    /// What is known of the result's rows.
    result: RingRowFacts,
    units: Vec<Unit>,
    /// log2 of the pieces in which they stand.
    log2_pieces: u32,
    /// Whether the result is the sum of what the program makes of each ciphertext.
    is_total: bool,
    digest: [u8; 32],
    /// What a ledger is to have of the run.
    pub(in crate::columns) origin: Option<Origin>,
    pub(in crate::columns) plan: MapPlan,
}

impl RingJob<'_> {
    pub(in crate::columns) fn origin(&self, session: &Session) -> Option<Origin> {
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|(vr, source)| (*vr, source.name()));
        let rows = self.request.rows.clone();
        let rows = rows.unwrap_or(0..self.plan.rows);
        let kept = self.request.kept.map(kept_digest);
        session.origin_of_run(&self.program, (rows, kept), inputs)
    }

    pub(in crate::columns) fn because(mut self, reason: Reason) -> Self {
        self.plan.reason = reason;
        self
    }

    /// What the drive is to be told of the ring: nothing where ring columns become others, as a drive of before does without it.
    fn way(&self) -> Option<RingWay> {
        self.plan.converts.then_some(RingWay {
            set: self.result.set,
            form: form_of(self.plan.form),
        })
    }

    fn filling(&self) -> Filling<'_> {
        Filling {
            request: self.request,
            key_id: self.key_id,
            digest: self.digest,
        }
    }

    fn run(&self, done: u64) -> Run {
        Run {
            record: JobRecord {
                digest: self.digest,
                done,
                total: self.plan.rows,
                complete: done == self.plan.rows,
            },
            origin: self.origin.clone(),
        }
    }

    /// Refuses ciphertexts of which no row counts, where samples are made of them: those would be no encryptions of anything.
    fn check_kept(&self) -> Result<(), ColumnError> {
        let mut rest = self.request.kept.unwrap_or_default();
        for (number, unit) in self.units.iter().enumerate() {
            let Some((own, others)) = rest.split_at_checked(unit.rows.len()) else {
                break;
            };
            if !own.contains(&true) {
                let expected = format!("one of ciphertext {number}, as the result is of samples");
                return Err(mismatch("the rows that are kept", expected, "none"));
            }
            rest = others;
        }
        Ok(())
    }

    /// Refuses ciphertexts that have no room in the drive's memory with their result.
    fn check_room(&self, limits: Limits) -> Result<(), ColumnError> {
        let set = self.result.set;
        let mut first = 0;
        for unit in &self.units {
            let rows = unit.rows.len() as u64;
            let kept = self.request.kept.map(|_| rows.div_ceil(8));
            let mut needed = kept.map_or(0, Executor::bytes_for);
            needed += Executor::bytes_for(match self.plan.form {
                RowForm::Samples => {
                    column_bytes(self.plan.params, ColumnForm::Packed, unit.made.into())?
                }
                RowForm::Ring => computed_bytes(set, unit.made as usize),
            });
            for (_, source) in &self.inputs {
                needed += Executor::bytes_for(match source {
                    Source::Ring(column) if unit.is_whole => {
                        let place = column.head.places.get(unit.number);
                        place.map_or(0, |place| place.bytes.into())
                    }
                    Source::Ring(_) => computed_bytes(set, unit.rows.len()),
                    Source::Samples(column, start) => {
                        let from = start + first;
                        let segments = column.slice(from..from + rows).unwrap_or_default();
                        bytes_of_segments(column.head.facts.params, &segments)
                    }
                });
            }
            if needed > limits.bytes {
                let room = limits.bytes;
                return Err(ColumnError::Memory { rows, needed, room });
            }
            first += rows;
        }
        Ok(())
    }

    /// The rows of a unit, of the bytes of its ciphertext.
    fn part(&self, bytes: Vec<u8>, unit: &Unit) -> Result<Vec<u8>, ColumnError> {
        if unit.is_whole {
            return Ok(bytes);
        }
        let set = self.result.set;
        let context = set.context().map_err(FormatError::from)?;
        let rows = unit.rows.start as usize..unit.rows.end as usize;
        let column = Ciphertext::from_bytes(&bytes)?;
        Ok(column
            .slice_in(&context, rows, set.computed_width)?
            .to_bytes())
    }

    /// A result in samples with what follows from the program, whatever the drive states.
    fn checked_samples(
        &self,
        mut rows: EncryptedRows,
        made: u32,
    ) -> Result<EncryptedRows, ColumnError> {
        let expected = RowFacts {
            params: self.result.params,
            encoding: Some(self.result.encoding),
            noise: rows.facts.noise,
            computed: true,
            tag: self.result.tag,
        };
        expected.check_fits(&rows.facts)?;
        if rows.len() != u64::from(made) || !rows.facts.computed {
            return Err(damaged(
                "the drive returned another column than was asked for",
            ));
        }
        rows.facts.tag = expected.tag;
        Ok(rows.with_noise_of_at_least(&self.plan.noise))
    }

    /// A result with what follows from the program, whatever the drive states.
    fn checked(&self, bytes: &[u8], rows: u32) -> Result<RingRows, ColumnError> {
        let column = Ciphertext::from_bytes(bytes)?;
        let bits = self.result.encoding.bits();
        let layout = Layout {
            log2_pieces: self.log2_pieces,
            ..Layout::plain(bits)
        };
        let is_of_set = column.is_of(self.result.set.params());
        if column.rows() != rows as usize || column.layout() != layout || !is_of_set {
            return Err(damaged(
                "the drive returned another column than was asked for",
            ));
        }
        Ok(RingRows {
            facts: self.result,
            pieces: vec![(column, 0..rows as usize)],
        })
    }
}

/// What a run by ciphertexts is made of.
struct Parts {
    key_id: u32,
    inputs: Vec<(VrNumber, Source)>,
    /// Of the inputs.
    facts: RingRowFacts,
    tables: Tables,
    units: Vec<Unit>,
    known: BTreeMap<VrNumber, RingFacts>,
    form: RowForm,
    limits: Option<Limits>,
    hash: Sha256,
}

fn form_of(form: RowForm) -> RingForm {
    match form {
        RowForm::Samples => RingForm::Samples,
        RowForm::Ring => RingForm::Column,
    }
}

/// Bytes of a ciphertext of so many rows that a drive has made.
fn computed_bytes(set: &RingSet, rows: usize) -> u64 {
    Ciphertext::computed_bytes(set.params(), set.computed_width, rows) as u64
}

/// What a run does: results in samples are others than those that stay in the ring.
fn hash_program(hash: &mut Sha256, program: &Program, form: RowForm) {
    let bytes = toroid_isa::encode(program);
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
    if form == RowForm::Samples {
        hash.update(b"samples");
    }
}

/// Refuses other rows that are kept or left out than a run has, and has the others in the digest of the run.
fn hash_kept(hash: &mut Sha256, request: &MapRequest<'_>, rows: u64) -> Result<(), SessionError> {
    let Some(kept) = request.kept else {
        return Ok(());
    };
    if kept.len() as u64 != rows {
        let given = kept.len() as u64;
        return Err(of(request.output)(ColumnError::KeptRows { rows, given }));
    }
    hash.update(b"kept");
    hash.update(bytes_of_kept(kept));
    Ok(())
}

/// Refuses rows that do not stand in whole chunks with shared masks, but for the last, as a ring column is made of them.
fn check_chunks(column: &StoredColumn, rows: Range<u64>) -> Result<(), SessionError> {
    let segments = column.slice(rows)?;
    let full = rows_per_chunk(column.head.facts.params) as u32;
    let last = segments.len().saturating_sub(1);
    for (place, segment) in segments.iter().enumerate() {
        let is_whole = segment.rows == full || place == last;
        if segment.first != 0 || !is_whole || segment.form == ColumnForm::Expanded {
            let (from, to) = (segment.first, segment.first + segment.rows);
            let expected = format!("whole chunks of {full}, but for the last");
            let found = format!("{from}..{to} of a {} one", segment.form);
            return Err(of(&column.name)(mismatch(
                "the rows of a chunk that go along",
                expected,
                found,
            )));
        }
    }
    Ok(())
}

impl Session {
    /// What a request on ring columns will do; `None` where its columns are samples.
    pub(in crate::columns) async fn prepare_ring<'a>(
        &self,
        request: &'a MapRequest<'a>,
    ) -> Result<Option<RingJob<'a>>, SessionError> {
        let (mut inputs, mut samples) = (Vec::<(VrNumber, RingColumn)>::new(), None);
        for (register, name) in request.inputs {
            let vr = request.register(register)?;
            match self.ring_column(name).await? {
                Some(column) => inputs.push((vr, column)),
                None => samples = Some(*name),
            }
        }
        inputs.sort_by_key(|(vr, _)| *vr);
        let Some((first, column)) = inputs.first() else {
            return Ok(None);
        };
        self.check_column_key(first.key_id(), column.head.facts.tag)
            .map_err(of(&column.name))?;
        let limits = self.limits_for(request, inputs.len()).await?;
        if let Some(name) = samples {
            let (ring, found) = ("a ring column like the others", "a column of samples");
            return Err(of(name)(mismatch("its form", ring, found)));
        }
        let (facts, key_id) = (column.head.facts, first.key_id());
        let form = request.form.unwrap_or(RowForm::Ring);
        if form == RowForm::Samples {
            let at = |error: ColumnError| of(request.output)(error);
            let ring = self.ring_of_conversion(key_id).map_err(at)?;
            if ring != facts.set {
                let what = "the ring of the conversion key";
                return Err(at(mismatch(what, facts.set.name, ring.name)));
            }
            if limits.is_some_and(|limits| !limits.converts) {
                return Err(at(ColumnError::NoConversion));
            }
        }
        let rows_of = |column: &RingColumn| -> Vec<u32> {
            let places = column.head.places.iter();
            places.map(|place| place.rows).collect()
        };
        let rows = rows_of(column);
        for (position, (vr, column)) in inputs.iter().enumerate() {
            let at = of(&column.name);
            if inputs
                .iter()
                .skip(position + 1)
                .any(|(other, _)| other == vr)
            {
                return Err(SessionError::Twice(*vr));
            }
            if column.head.job.is_some_and(|job| !job.complete) {
                return Err(at(ColumnError::Unfinished));
            }
            if let Err(error) = facts.check_same(&column.head.facts) {
                return Err(at(error));
            }
            if column.head.key_id != key_id {
                return Err(at(mismatch("its key id", key_id, column.head.key_id)));
            }
            if rows_of(column) != rows {
                let what = "the rows of its ciphertexts";
                return Err(at(mismatch(what, format!("{rows:?}"), "others")));
            }
            if column.name == request.output {
                return Err(at(ColumnError::IsInput));
            }
        }
        let all: u64 = rows.iter().map(|rows| u64::from(*rows)).sum();
        let wanted = request.rows.clone().unwrap_or(0..all);
        if wanted.is_empty() || wanted.end > all {
            let rows = wanted;
            return Err(of(&column.name)(ColumnError::Rows { rows, of: all }));
        }
        let units = Unit::of(&rows, &wanted);
        let is_whole = units.iter().all(|unit| unit.is_whole);
        let tables = self.tables(facts.params, key_id, request.program)?;
        let mut hash = Sha256::new();
        hash.update(b"toroid ring map 2");
        hash_program(&mut hash, &tables.program, form);
        for unit in &units {
            hash.update((unit.number as u64).to_le_bytes());
            for row in [unit.rows.start, unit.rows.end] {
                hash.update(row.to_le_bytes());
            }
        }
        hash_kept(&mut hash, request, wanted.end - wanted.start)?;
        let mut known = BTreeMap::new();
        for (vr, column) in &inputs {
            let own = column.head.facts;
            let mut of_rows = Sha256::new();
            of_rows.update(own.set.id.to_le_bytes());
            of_rows.update([own.encoding.bits() as u8, own.encoding.is_signed().into()]);
            of_rows.update(own.tag.unwrap_or_default());
            let used = units.iter();
            for place in used.filter_map(|unit| column.head.places.get(unit.number)) {
                for word in [place.bytes, place.rows, place.crc32c, place.log2_pieces] {
                    of_rows.update(word.to_le_bytes());
                }
                let bound = column.head.bound.as_ref();
                if let Some(digest) = bound.and_then(|bound| bound.chunk(place.offset)) {
                    of_rows.update(digest);
                }
            }
            let of_rows: [u8; 32] = of_rows.finalize().into();
            hash.update(vr.to_u64().to_le_bytes());
            hash.update(of_rows);
            if !is_whole && column.head.log2_pieces() != 0 {
                let (whole, found) = ("whole ciphertexts of sums", "a part of one");
                return Err(of(&column.name)(mismatch("a range of rows", whole, found)));
            }
            // A part of a ciphertext is rounded again.
            let rounding = match is_whole {
                true => 0.0,
                false => pair_variance(own.set.params(), own.set.computed_width),
            };
            let variance = own.noise.log2_variance.map_or(1.0, f64::exp2);
            let facts = RingFacts {
                rows: 0,
                variance: variance + rounding,
                log2_failure: match own.noise.log2_variance {
                    Some(_) => own.noise.log2_failure.unwrap_or(f64::NEG_INFINITY),
                    None => 0.0,
                },
                encoding: own.encoding,
                computed: own.computed || !is_whole,
                log2_pieces: column.head.log2_pieces(),
                is_converted: false,
                number: of_rows[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b)),
            };
            known.insert(*vr, facts);
        }
        let inputs = inputs.into_iter();
        let inputs = inputs.map(|(vr, column)| (vr, Source::Ring(Box::new(column))));
        let parts = Parts {
            key_id,
            inputs: inputs.collect(),
            facts,
            tables,
            units,
            known,
            form,
            limits,
            hash,
        };
        let reason = Reason::RingColumns;
        self.ring_job(request, parts, reason).await.map(Some)
    }

    /// What a request on columns of samples will do by ciphertexts of the ring of the drive's keys.
    pub(in crate::columns) async fn prepare_converted<'a>(
        &self,
        request: &'a MapRequest<'a>,
        reason: Reason,
    ) -> Result<RingJob<'a>, SessionError> {
        let mut registers = Vec::<(VrNumber, &str)>::new();
        for (register, name) in request.inputs {
            let vr = request.register(register)?;
            if registers.iter().any(|(other, _)| *other == vr) {
                return Err(SessionError::Twice(vr));
            }
            registers.push((vr, *name));
        }
        registers.sort_by_key(|(vr, _)| *vr);
        let (first, name) = registers.first().ok_or(SessionError::Triggers(0))?;
        let key_id = first.key_id();
        // Most drives have no such keys: no column is read for nothing.
        let set = self.ring_of_conversion(key_id).map_err(of(name))?;
        let limits = self.limits_for(request, registers.len()).await?;
        if limits.is_some_and(|limits| !limits.converts) {
            return Err(of(request.output)(ColumnError::NoConversion));
        }
        let mut inputs = Vec::<(VrNumber, StoredColumn, Range<u64>)>::new();
        for (vr, name) in registers {
            let column = self.column(name).await?;
            let all = 0..column.head.header.rows();
            inputs.push((vr, column, request.rows.clone().unwrap_or(all)));
        }
        let (_, column, rows) = inputs.first().ok_or(SessionError::Triggers(0))?;
        let params = column.head.facts.params;
        let (total, mut row_facts) = (rows.end.saturating_sub(rows.start), column.head.facts);
        for (_, column, own) in &inputs {
            let at = of(&column.name);
            if column.head.job.is_some_and(|job| !job.complete) {
                return Err(at(ColumnError::Unfinished));
            }
            if let Err(error) = row_facts.check_same(&column.head.facts) {
                return Err(at(error));
            }
            row_facts.tag = row_facts.tag.or(column.head.facts.tag);
            if column.head.key_id != key_id {
                return Err(at(mismatch("its key id", key_id, column.head.key_id)));
            }
            let count = own.end.saturating_sub(own.start);
            if count != total {
                return Err(at(mismatch("its number of rows", total, count)));
            }
            if column.name == request.output {
                return Err(at(ColumnError::IsInput));
            }
            check_chunks(column, own.clone())?;
        }
        self.check_column_key(key_id, row_facts.tag)
            .map_err(of(&column.name))?;
        let form = request.form.unwrap_or(RowForm::Ring);
        let tables = self.tables(params, key_id, request.program)?;
        let mut hash = Sha256::new();
        hash.update(b"toroid ring map of samples 1");
        hash.update(set.id.to_le_bytes());
        hash_program(&mut hash, &tables.program, form);
        hash_kept(&mut hash, request, total)?;
        let of_rows = self.known(&inputs, &mut hash, &tables.program)?;
        let mut known = BTreeMap::new();
        for (vr, column, _) in &inputs {
            let Some(facts) = of_rows.get(vr) else {
                continue;
            };
            let place = (facts.rows, facts.number);
            let facts = RingFacts::of_samples(set, params, place, &facts.noise, facts.encoding);
            let facts = facts.map_err(|error| {
                of(&column.name)(mismatch("its rows", "those of a ring", error))
            })?;
            known.insert(*vr, facts);
        }
        let encoding = known.values().next().map(|facts| facts.encoding);
        let full = set.rows() as u64;
        let ciphertexts: Vec<u32> = (0..total.div_ceil(full))
            .map(|number| full.min(total - number * full) as u32)
            .collect();
        let units = Unit::of(&ciphertexts, &(0..total));
        let facts = RingRowFacts {
            set,
            params,
            encoding: encoding.ok_or(SessionError::NoResult)?,
            noise: row_facts.noise,
            computed: true,
            tag: row_facts.tag,
        };
        let inputs = inputs
            .into_iter()
            .map(|(vr, column, rows)| (vr, Source::Samples(Box::new(column), rows.start)));
        let mut parts = Parts {
            key_id,
            inputs: inputs.collect(),
            facts,
            tables,
            units,
            known,
            form,
            limits,
            hash,
        };
        if reason == Reason::Times {
            // What could be samples is the same number either way: nothing in it wraps.
            let form = std::mem::replace(&mut parts.form, RowForm::Samples);
            self.ring_facts(request, &parts)?;
            parts.form = form;
        }
        self.ring_job(request, parts, reason).await
    }

    /// The ring of the keys between samples and ring columns of a key id, both of which are on the drive.
    fn ring_of_conversion(&self, key_id: u32) -> Result<&'static RingSet, ColumnError> {
        let key = |kind| {
            let vr = VrNumber::key(key_id, kind).ok()?;
            self.find(vr)?.sc
        };
        let missing = || ColumnError::ConversionKey(key_id);
        let conversion = key(KeyKind::Conversion).ok_or_else(missing)?;
        key(KeyKind::Ring).ok_or_else(missing)?;
        let (bits, params) = (
            conversion.message_bits().into(),
            set_of(conversion.params())?,
        );
        RingSet::for_bits(bits, params.is_insecure())
            .filter(|set| set.bits() == bits)
            .ok_or_else(|| damaged(format!("the conversion key is for a ring of {bits} bits")))
    }

    /// Rows, noise and pieces of the result of each number of rows of a ciphertext.
    fn ring_facts(
        &self,
        request: &MapRequest<'_>,
        parts: &Parts,
    ) -> Result<BTreeMap<u32, (MapFacts, u32)>, SessionError> {
        let Parts {
            key_id,
            facts,
            tables,
            known,
            ..
        } = parts;
        let at = |error: ColumnError| of(request.output)(error);
        let functions = &tables.functions;
        let function = |tv: VrNumber| -> Option<(Encoding, Encoding)> {
            let (input, output) = functions.get(&tv)?;
            Some(((*input)?, (*output).or(*input)?))
        };
        let functions: &FunctionOf<'_> = &function;
        let name = VrNumber::program(*key_id)?;
        let forecast = |rows: u32| -> Result<(MapFacts, u32), SessionError> {
            let mut inputs = known.clone();
            inputs
                .values_mut()
                .for_each(|facts| facts.rows = rows.into());
            let forecast = RingForecast {
                program_vr: name,
                program: &tables.program,
                set: facts.set,
                params: facts.params,
                inputs: &inputs,
                functions,
                form: form_of(parts.form),
                leaves_out: request.kept.is_some(),
            };
            forecast.facts().map_err(|error| at(error.into()))
        };
        let mut by_rows: BTreeMap<u32, (MapFacts, u32)> = BTreeMap::new();
        for unit in &parts.units {
            if let Entry::Vacant(place) = by_rows.entry(unit.rows.len() as u32) {
                let rows = *place.key();
                place.insert(forecast(rows)?);
            }
        }
        Ok(by_rows)
    }

    /// The run of a request, from its parts.
    async fn ring_job<'a>(
        &self,
        request: &'a MapRequest<'a>,
        parts: Parts,
        reason: Reason,
    ) -> Result<RingJob<'a>, SessionError> {
        let at = |error: ColumnError| of(request.output)(error);
        // Ciphertexts of equally many rows have one forecast; the largest comes last, and its noise counts for all.
        let by_rows = self.ring_facts(request, &parts)?;
        let Parts {
            key_id,
            inputs,
            facts,
            tables,
            mut units,
            form,
            limits,
            hash,
            ..
        } = parts;
        let Tables {
            program, objects, ..
        } = tables;
        let rows: Vec<u32> = units.iter().map(|unit| unit.rows.len() as u32).collect();
        let registers: Vec<VrNumber> = inputs.iter().map(|(vr, _)| *vr).collect();
        let (of_units, _) = shape(&program, &registers);
        let is_total = rows.len() > 1 && matches!(of_units, Shape::Totals(_));
        if rows.len() > 1 && !of_units.is_divisible() {
            let (what, found) = ("the rows of the ciphertexts", format!("{rows:?}"));
            let expected = "those of one ciphertext, as a step of the program needs all rows";
            return Err(at(mismatch(what, expected, found)));
        }
        let largest = by_rows.values().next_back().cloned();
        let (mut of_program, log2_pieces) = largest.ok_or(SessionError::NoResult)?;
        if by_rows.values().any(|(_, pieces)| *pieces != log2_pieces) {
            let what = "the rows of the ciphertexts";
            let expected = "more than those of one group, or those of one ciphertext";
            return Err(at(mismatch(what, expected, format!("{rows:?}"))));
        }
        let rows_of = |facts: &MapFacts| facts.outputs.first().map_or(0, |output| output.rows);
        let facts_of: Vec<&MapFacts> = rows
            .iter()
            .filter_map(|rows| Some(&by_rows.get(rows)?.0))
            .collect();
        for (unit, facts) in units.iter_mut().zip(&facts_of) {
            unit.made = rows_of(facts) as u32;
        }
        of_program.bootstraps = facts_of.iter().map(|facts| facts.bootstraps).sum();
        for (number, task) in of_program.tasks.iter_mut().enumerate() {
            let tasks = facts_of.iter().filter_map(|facts| facts.tasks.get(number));
            task.rows = tasks.map(|task| task.rows).sum();
        }
        let output = of_program.outputs.first_mut();
        let output = output.ok_or(SessionError::NoResult)?;
        if is_total {
            // Nobody knows what the noises of the ciphertexts have in common.
            let count = rows.len() as f64;
            let (variance, failure) = (output.noise.variance(), output.noise.log2_failure());
            let failure = (failure + count.log2()).min(0.0);
            output.noise = Noise::stored(facts.params, variance * count * count, failure, true);
        } else {
            output.rows = units.iter().map(|unit| u64::from(unit.made)).sum();
        }
        let noise = output.noise.clone();
        let encoding = output.encoding.ok_or(SessionError::NoResult)?;
        let result = RingRowFacts {
            encoding,
            noise: noise.stated(facts.params),
            computed: true,
            ..facts
        };
        let of_samples = |(_, source): &(VrNumber, Source)| matches!(source, Source::Samples(..));
        let converts = form == RowForm::Samples || inputs.iter().any(of_samples);
        let mut job = RingJob {
            request,
            program,
            key_id,
            objects,
            result,
            units,
            log2_pieces,
            is_total,
            digest: hash.finalize().into(),
            origin: None,
            plan: MapPlan {
                params: facts.params,
                route: Route::Ring(facts.set),
                reason,
                ring: Some(facts.set),
                form,
                converts,
                rows: rows.iter().map(|rows| u64::from(*rows)).sum(),
                commands: rows.len() as u64,
                facts: of_program,
                noise,
                done: 0,
                complete: false,
            },
            inputs,
        };
        if form == RowForm::Samples {
            job.check_kept().map_err(at)?;
        }
        (job.plan.done, job.plan.complete) = match form {
            RowForm::Samples => self.done_of(request, &job.digest, job.plan.rows).await?,
            RowForm::Ring => self.done_of_ring(request, &job.digest).await?,
        };
        if let Some(limits) = limits.filter(|_| !job.plan.complete) {
            job.check_room(limits).map_err(at)?;
        }
        Ok(job)
    }

    /// How far a run has come whose output is a ring column, and whether it is complete.
    async fn done_of_ring(
        &self,
        request: &MapRequest<'_>,
        digest: &[u8; 32],
    ) -> Result<(u64, bool), SessionError> {
        if self.column_blob(request.output)?.is_none() {
            return Ok((0, false));
        }
        match self.ring_column(request.output).await {
            Ok(Some(found)) if found.head.job.is_some_and(|job| job.digest == *digest) => {
                let record = found.head.job.unwrap_or_default();
                Ok((record.done, record.complete))
            }
            // Whatever it is, it is to go.
            _ if request.replace => Ok((0, false)),
            Err(error) => Err(error),
            Ok(_) => Err(of(request.output)(ColumnError::OtherJob)),
        }
    }

    /// Runs the program on the ciphertexts that are not done yet; gives the number of commands.
    pub(in crate::columns) async fn run_ciphertexts(
        &self,
        job: &RingJob<'_>,
        executor: &mut Executor,
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let name = job.request.output;
        let quiet = Progress::from(progress.cancel_token().clone());
        let (total, mut commands) = (job.plan.rows, 0);
        let mut first = 0;
        progress.report("map", job.plan.done, total);
        for unit in &job.units {
            let rows = unit.rows.len() as u64;
            let (start, end) = (first, first + rows);
            first = end;
            if start < job.plan.done {
                continue;
            }
            progress.check().map_err(BlobError::from)?;
            let mut inputs = Vec::with_capacity(1 + job.inputs.len());
            if let Some(kept) = job.request.kept {
                let kept = bytes_of_kept(&kept[start as usize..end as usize]);
                let program = VrNumber::program(job.key_id)?;
                let sc = ScMetadata::new(program, job.plan.params.id, kept.len() as u64)?;
                inputs.push((sc, kept));
            }
            for (vr, source) in &job.inputs {
                let input = match source {
                    Source::Ring(column) => {
                        let Some(place) = column.head.places.get(unit.number) else {
                            continue;
                        };
                        let bytes = job.part(column.piece(place).await?, unit);
                        let bytes = bytes.map_err(of(&column.name))?;
                        let facts = column.head.facts;
                        (facts.metadata(*vr, bytes.len() as u64)?, bytes)
                    }
                    Source::Samples(column, first) => {
                        let own = column.rows(first + start..first + end, &quiet).await?;
                        let len = own.bytes.len() as u64;
                        (own.facts.metadata(*vr, len)?, own.bytes)
                    }
                };
                inputs.push(input);
            }
            let given: Vec<_> = inputs.iter().map(|(sc, b)| (*sc, b.as_slice())).collect();
            let way = job.way();
            let Some((sc, bytes)) = executor.run_objects(&job.program, &given, way).await? else {
                return Err(of(name)(ColumnError::Memory {
                    rows,
                    needed: Executor::object_bytes(&given),
                    room: executor.room(),
                }));
            };
            commands += 1;
            if job.plan.form == RowForm::Samples {
                let rows = executor.rows_of(&sc, bytes)?;
                let rows = job.checked_samples(rows, unit.made).map_err(of(name))?;
                let run = (start, job.run(end));
                self.commit_unit(&job.filling(), run, &rows, &quiet).await?;
                progress.report("map", end, total);
                continue;
            }
            if sc.params() != job.result.set.id || !sc.computed() || !sc.column() {
                let reason = "the drive returned something else than a ring column";
                return Err(of(name)(damaged(reason)));
            }
            let result = job.checked(&bytes, unit.made).map_err(of(name))?;
            self.commit_ciphertext(job, (start, job.run(end)), &result, &quiet)
                .await?;
            progress.report("map", end, total);
        }
        Ok(commands)
    }

    /// Appends the result of a ciphertext, or adds it to the sum of those before, with the record that says so.
    async fn commit_ciphertext(
        &self,
        job: &RingJob<'_>,
        (start, run): (u64, Run),
        result: &RingRows,
        progress: &Progress,
    ) -> Result<(), SessionError> {
        let name = job.request.output;
        let other = || of(name)(ColumnError::OtherJob);
        let blob = self.column_blob(name)?;
        let found = match &blob {
            Some(_) => self.ring_column(name).await.ok().flatten(),
            None => None,
        };
        let own = found.filter(|column| {
            let record = column.head.job;
            record.is_some_and(|record| record.digest == job.digest && record.done == start)
        });
        match (own, blob) {
            (Some(column), _) if job.is_total => {
                let rows = 0..column.head.rows();
                let mut sum = column.rows(rows, progress).await?;
                for ((own, _), (other, _)) in sum.pieces.iter_mut().zip(&result.pieces) {
                    own.add_assign(other).map_err(super::own)?;
                }
                sum.facts = result.facts;
                self.change_ring_column(column, &sum, (Some(run), true), progress)
                    .await?;
            }
            (Some(column), _) => {
                self.change_ring_column(column, result, (Some(run), false), progress)
                    .await?;
            }
            // Somebody else works on the same output, or has deleted it.
            (None, _) if start > 0 => return Err(other()),
            (None, Some(_)) if !job.request.replace => return Err(other()),
            (None, former) => {
                let former = former.map(|blob| blob.id);
                let of_job = (job.key_id, Some(run));
                self.new_ring_column((name, former), of_job, result, progress)
                    .await?;
            }
        }
        Ok(())
    }
}
