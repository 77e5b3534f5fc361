//! Programs over ring columns, ciphertext by ciphertext.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use toroid_engine::{FunctionOf, RingFacts, RingForecast};
use toroid_isa::{Program, VrNumber};
use toroid_rns::stored::StoredColumn as Ciphertext;
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;

use super::{RingColumn, RingRowFacts, RingRows};
use crate::blob::BlobError;
use crate::columns::executor::Executor;
use crate::columns::head::damaged;
use crate::columns::map::{MapPlan, MapRequest, Route, Tables};
use crate::columns::{ColumnError, JobRecord, mismatch, of};
use crate::session::{Object, Session, SessionError};

/// A run on ring columns with what it runs on.
pub(in crate::columns) struct RingJob<'a> {
    request: &'a MapRequest<'a>,
    pub(in crate::columns) program: Program,
    pub(in crate::columns) key_id: u32,
    inputs: Vec<(VrNumber, RingColumn)>,
    pub(in crate::columns) objects: Vec<Object<'static>>,
    /// What is known of the result's rows.
    result: RingRowFacts,
    digest: [u8; 32],
    pub(in crate::columns) plan: MapPlan,
}

impl RingJob<'_> {
    fn record(&self, done: u64) -> JobRecord {
        JobRecord {
            digest: self.digest,
            done,
            total: self.plan.rows,
            complete: done == self.plan.rows,
        }
    }

    /// A result with what follows from the program, whatever the drive states.
    fn checked(&self, bytes: &[u8], rows: u32) -> Result<RingRows, ColumnError> {
        let column = Ciphertext::from_bytes(bytes)?;
        let bits = self.result.encoding.bits();
        let layout = toroid_rns::stored::Layout::plain(bits);
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

impl Session {
    /// What a request on ring columns will do; `None` where its columns are samples.
    pub(in crate::columns) async fn prepare_ring<'a>(
        &self,
        request: &'a MapRequest<'a>,
    ) -> Result<Option<RingJob<'a>>, SessionError> {
        let assembly = request.program;
        let (mut inputs, mut samples) = (Vec::<(VrNumber, RingColumn)>::new(), None);
        for (register, name) in request.inputs {
            let vr = assembly.registers.get(*register);
            let vr = *vr.ok_or_else(|| SessionError::NoSuchRegister((*register).to_owned()))?;
            match self.ring_column(name).await? {
                Some(column) => inputs.push((vr, column)),
                None => samples = Some(*name),
            }
        }
        inputs.sort_by_key(|(vr, _)| *vr);
        let Some((first, column)) = inputs.first() else {
            return Ok(None);
        };
        if let Some(name) = samples {
            let (ring, found) = ("a ring column like the others", "a column of samples");
            return Err(of(name)(mismatch("its form", ring, found)));
        }
        let (facts, key_id) = (column.head.facts, first.key_id());
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
        let total: u64 = rows.iter().map(|rows| u64::from(*rows)).sum();
        let at = of(request.output);
        if request
            .rows
            .as_ref()
            .is_some_and(|wanted| *wanted != (0..total))
        {
            let found = "a part of them";
            return Err(at(mismatch(
                "the range of rows of ring columns",
                "all",
                found,
            )));
        }
        let tables = self.tables(facts.params, key_id, assembly)?;
        let Tables {
            program,
            functions,
            objects,
        } = tables;
        let mut hash = Sha256::new();
        hash.update(b"toroid ring map 1");
        let bytes = toroid_isa::encode(&program);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
        let mut known = BTreeMap::new();
        for (vr, column) in &inputs {
            let own = column.head.facts;
            let mut of_rows = Sha256::new();
            of_rows.update(own.set.id.to_le_bytes());
            of_rows.update([own.encoding.bits() as u8, own.encoding.is_signed().into()]);
            of_rows.update(own.tag.unwrap_or_default());
            for place in &column.head.places {
                for word in [place.bytes, place.rows, place.crc32c] {
                    of_rows.update(word.to_le_bytes());
                }
            }
            let of_rows: [u8; 32] = of_rows.finalize().into();
            hash.update(vr.to_u64().to_le_bytes());
            hash.update(of_rows);
            let facts = RingFacts {
                rows: rows.iter().copied().max().unwrap_or(0).into(),
                variance: own.noise.log2_variance.map_or(1.0, f64::exp2),
                log2_failure: match own.noise.log2_variance {
                    Some(_) => own.noise.log2_failure.unwrap_or(f64::NEG_INFINITY),
                    None => 0.0,
                },
                encoding: own.encoding,
                computed: own.computed,
                number: of_rows[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b)),
            };
            known.insert(*vr, facts);
        }
        let function = |tv: VrNumber| -> Option<(Encoding, Encoding)> {
            let (input, output) = functions.get(&tv)?;
            Some(((*input)?, (*output).or(*input)?))
        };
        let functions: &FunctionOf<'_> = &function;
        let forecast = RingForecast {
            program_vr: VrNumber::program(key_id)?,
            program: &program,
            set: facts.set,
            params: facts.params,
            inputs: &known,
            functions,
        };
        let forecast = forecast.facts();
        let mut of_program = forecast.map_err(|error| at(error.into()))?;
        let output = of_program.outputs.first_mut();
        let output = output.ok_or(SessionError::NoResult)?;
        output.rows = total;
        let noise = output.noise.clone();
        let encoding = output.encoding.ok_or(SessionError::NoResult)?;
        of_program.bootstraps = 0;
        for task in &mut of_program.tasks {
            task.rows = total;
            of_program.bootstraps += total * task.functions as u64;
        }
        let result = RingRowFacts {
            encoding,
            noise: noise.stated(facts.params),
            computed: true,
            ..facts
        };
        let digest: [u8; 32] = hash.finalize().into();
        let mut job = RingJob {
            request,
            program,
            key_id,
            objects,
            result,
            digest,
            plan: MapPlan {
                params: facts.params,
                route: Route::Ring(facts.set),
                rows: total,
                facts: of_program,
                noise,
                done: 0,
                complete: false,
            },
            inputs,
        };
        let other = || of(request.output)(ColumnError::OtherJob);
        match self.column_blob(request.output)? {
            None => {}
            Some(_) => match self.ring_column(request.output).await {
                Ok(Some(found)) if found.head.job.is_some_and(|j| j.digest == digest) => {
                    let record = found.head.job.unwrap_or_default();
                    (job.plan.done, job.plan.complete) = (record.done, record.complete);
                }
                // Whatever it is, it is to go.
                _ if request.replace => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(other()),
            },
        }
        Ok(Some(job))
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
        let places = job.inputs.first().map(|(_, column)| &column.head.places);
        let mut first = 0;
        progress.report("map", job.plan.done, total);
        for (number, place) in places.into_iter().flatten().enumerate() {
            let (start, end) = (first, first + u64::from(place.rows));
            first = end;
            if start < job.plan.done {
                continue;
            }
            progress.check().map_err(BlobError::from)?;
            let mut inputs = Vec::with_capacity(job.inputs.len());
            for (vr, column) in &job.inputs {
                let Some(place) = column.head.places.get(number) else {
                    continue;
                };
                let bytes = column.piece(place).await?;
                let sc = column.head.facts.metadata(*vr, bytes.len() as u64)?;
                inputs.push((sc, bytes));
            }
            let given: Vec<_> = inputs.iter().map(|(sc, b)| (*sc, b.as_slice())).collect();
            let Some((sc, bytes)) = executor.run_objects(&job.program, &given).await? else {
                return Err(of(name)(ColumnError::Memory {
                    rows: place.rows.into(),
                    needed: Executor::object_bytes(&given),
                    room: executor.room(),
                }));
            };
            commands += 1;
            if sc.params() != job.result.set.id || !sc.computed() || !sc.column() {
                let reason = "the drive returned something else than a ring column";
                return Err(of(name)(damaged(reason)));
            }
            let result = job.checked(&bytes, place.rows).map_err(of(name))?;
            let record = job.record(end);
            self.commit_ciphertext(job, (start, record), &result, &quiet)
                .await?;
            progress.report("map", end, total);
        }
        Ok(commands)
    }

    /// Appends the result of a ciphertext, with the record that says so.
    async fn commit_ciphertext(
        &self,
        job: &RingJob<'_>,
        (start, record): (u64, JobRecord),
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
            (Some(column), _) => {
                self.extend_ring_column(column, result, Some(record), progress)
                    .await?;
            }
            // Somebody else works on the same output, or has deleted it.
            (None, _) if start > 0 => return Err(other()),
            (None, Some(_)) if !job.request.replace => return Err(other()),
            (None, former) => {
                let former = former.map(|blob| blob.id);
                let of_job = (job.key_id, Some(record));
                self.new_ring_column((name, former), of_job, result, progress)
                    .await?;
            }
        }
        Ok(())
    }
}
