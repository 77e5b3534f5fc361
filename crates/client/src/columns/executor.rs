//! Programs that a drive runs on columns in its memory: the commands of the namespaces for computational programs.

use std::sync::Arc;

use toroid_drive::bridge::RingWay;
use toroid_drive::bridge::status::{NO_ROOM, PART_ORDER, PROGRAM_IN_USE};
use toroid_drive::computational::MAX_PROGRAMS;
use toroid_drive::computational::request::{self, MemoryRange};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{Program, VrNumber};
use toroid_nvme::admin::csi;
use toroid_nvme::{Controller, NvmeError, Request, execute, execute_admin};
use toroid_tfhe::column::{ColumnForm, Segment, assemble};

use super::rows::{EncryptedRows, RowFacts};
use super::{ColumnError, mismatch, of};
use crate::blob::BlobError;
use crate::session::SessionError;
use crate::session::runs::{Index, Runs};

/// A program index of the drive, with the part of the memory that goes with it: whoever holds the index has it alone.
pub(super) struct Executor {
    controller: Arc<dyn Controller>,
    programs: u32,
    memory: u32,
    runs: Runs,
    /// The index that is held, and the program that is loaded there and active.
    held: Option<(Index, Vec<u8>)>,
    limits: Limits,
    /// The column that the run makes.
    output: String,
    name: VrNumber,
}

/// What a run on a drive has.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of memory for inputs and result.
    pub(super) bytes: u64,
    /// Most memory ranges, that of the result among them.
    ranges: usize,
    /// Whether columns change between samples and ring columns there.
    pub(super) converts: bool,
    /// Whether runs by ciphertexts leave out rows there.
    leaves_out: bool,
}

impl Limits {
    /// Those of the namespaces for programs and for memory.
    async fn of(
        controller: &dyn Controller,
        (programs, memory): (u32, u32),
    ) -> Result<Limits, SessionError> {
        let data = identified(controller, request::identify_programs(programs)).await?;
        let ranges = data.get(6).copied().unwrap_or_default().into();
        let forms = data.get(request::FORMS_BYTE).copied().unwrap_or_default();
        let converts = forms & request::CONVERTS != 0;
        let leaves_out = forms & request::LEAVES_OUT != 0;
        let data = identified(controller, request::identify_memory(memory)).await?;
        let bytes = data.first_chunk().copied().unwrap_or_default();
        let bytes = u64::from_le_bytes(bytes) / MAX_PROGRAMS as u64 / 4096 * 4096;
        Ok(Limits {
            bytes,
            ranges,
            converts,
            leaves_out,
        })
    }

    /// Refuses more inputs than there are memory ranges beside that of the result, and that of the rows that are kept if there are some.
    pub(super) fn check_inputs(&self, count: usize, has_kept: bool) -> Result<(), ColumnError> {
        if has_kept && !self.leaves_out {
            return Err(ColumnError::LeavesNothingOut);
        }
        let most = self.ranges.saturating_sub(1 + usize::from(has_kept));
        if count > most {
            return Err(mismatch("the number of inputs", most, count));
        }
        Ok(())
    }
}

fn failed(error: NvmeError) -> SessionError {
    BlobError::from(error).into()
}

fn padded(len: u64) -> u64 {
    len.next_multiple_of(4096)
}

impl Executor {
    /// Takes a free program index of the drive for a run of a session, which makes the column `output`.
    ///
    /// # Errors
    /// [`ColumnError::NoPrograms`], [`ColumnError::Busy`]; those of the commands.
    pub(super) async fn take(
        (controller, runs): (Arc<dyn Controller>, Runs),
        output: &str,
        name: VrNumber,
        program: &Program,
    ) -> Result<Executor, SessionError> {
        let Some((programs, memory)) = namespaces(&*controller) else {
            return Err(of(output)(ColumnError::NoPrograms));
        };
        let limits = Limits::of(&*controller, (programs, memory)).await?;
        let mut executor = Executor {
            controller,
            programs,
            memory,
            runs,
            held: None,
            limits,
            output: output.to_owned(),
            name,
        };
        executor.load(program).await?;
        Ok(executor)
    }

    /// What a run on this drive has; nothing where it runs no programs on columns.
    pub(super) async fn limits_on(
        controller: &dyn Controller,
    ) -> Result<Option<Limits>, SessionError> {
        Ok(match namespaces(controller) {
            Some(found) => Some(Limits::of(controller, found).await?),
            None => None,
        })
    }

    /// Bytes of memory for inputs and result of a run.
    pub(super) fn room(&self) -> u64 {
        self.limits.bytes
    }

    async fn admin(&self, request: Request) -> Result<(), SessionError> {
        let submitted = execute_admin(&*self.controller, request).await;
        submitted.map(drop).map_err(failed)
    }

    /// Has a program loaded and active; gives its index. Other sessions of this host may take the index between two programs, so that each program
    /// looks for one that is free.
    async fn load(&mut self, program: &Program) -> Result<u16, SessionError> {
        let bytes = toroid_isa::encode(program);
        match &self.held {
            Some((held, loaded)) if *loaded == bytes => return Ok(held.get()),
            _ => self.release().await?,
        }
        for index in 0..MAX_PROGRAMS as u16 {
            let Some(held) = self.runs.take_index(index) else {
                continue;
            };
            match self.load_at(index, &bytes).await {
                Ok(()) => {
                    self.held = Some((held, bytes));
                    return Ok(index);
                }
                // Whoever loads a program of several parts there has begun.
                Err(error)
                    if [Some(PROGRAM_IN_USE), Some(PART_ORDER)].contains(&error.status()) => {}
                Err(error) => return Err(error),
            }
        }
        Err(of(&self.output)(ColumnError::Busy(MAX_PROGRAMS)))
    }

    async fn load_at(&self, index: u16, bytes: &[u8]) -> Result<(), SessionError> {
        // MDTS is a multiple of 4 KiB.
        let most = self.controller.info().mdts_bytes.max(4096) as usize;
        let size = bytes.len() as u32;
        for (number, part) in bytes.chunks(most).enumerate() {
            let place = (size, (number * most) as u32);
            let load = request::load_program(self.programs, index, self.name, place, part);
            self.admin(load).await?;
        }
        let activate = request::activate_program(self.programs, index, true);
        self.admin(activate).await
    }

    /// Gives the index back.
    pub(super) async fn release(&mut self) -> Result<(), SessionError> {
        let Some((held, _)) = &self.held else {
            return Ok(());
        };
        let index = held.get();
        let deactivate = request::activate_program(self.programs, index, false);
        self.admin(deactivate).await?;
        let unload = request::unload_program(self.programs, index);
        self.admin(unload).await?;
        self.held = None;
        Ok(())
    }

    async fn write(&self, start: u64, bytes: &[u8]) -> Result<(), SessionError> {
        let most = self.controller.info().mdts_bytes.max(4096) as usize;
        for (number, part) in bytes.chunks(most).enumerate() {
            let at = start + (number * most) as u64;
            let write = request::write_memory(self.memory, at, part);
            execute(&*self.controller, write).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn read(&self, start: u64, len: u64) -> Result<Vec<u8>, SessionError> {
        let most = u64::from(self.controller.info().mdts_bytes.max(4096));
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let done = bytes.len() as u64;
            let part = MemoryRange {
                nsid: self.memory,
                start: start + done,
                len: (len - done).min(most) as u32,
            };
            let read = execute(&*self.controller, request::read_memory(part)).await;
            let read = read.map_err(failed)?;
            if read.data.len() != part.len as usize {
                return Err(BlobError::from(NvmeError::BadResponse {
                    command: request::read_memory(part).sqe,
                    data: read.data.len(),
                    metadata: read.metadata.len(),
                    expected_data: part.len.into(),
                    expected_metadata: 0,
                })
                .into());
            }
            bytes.extend_from_slice(&read.data);
        }
        Ok(bytes)
    }

    /// Bytes of the memory that an object of so many bytes takes.
    pub(super) fn bytes_for(object: u64) -> u64 {
        padded(object.saturating_add(ScMetadata::SIZE as u64))
    }

    /// Bytes of the memory that these objects take.
    pub(super) fn object_bytes(inputs: &[(ScMetadata, &[u8])]) -> u64 {
        let inputs = inputs.iter();
        inputs
            .map(|(_, bytes)| Executor::bytes_for(bytes.len() as u64))
            .sum()
    }

    /// Bytes of the memory that these inputs take.
    pub(super) fn bytes_of(inputs: &[(VrNumber, &EncryptedRows)]) -> u64 {
        let inputs = inputs.iter();
        inputs
            .map(|(_, rows)| Executor::bytes_for(rows.bytes.len() as u64))
            .sum()
    }

    /// Runs a program on columns. `None` where the result has no room behind the inputs: fewer rows may have.
    pub(super) async fn run<'r>(
        &mut self,
        program: &Program,
        inputs: &[(VrNumber, &'r EncryptedRows)],
    ) -> Result<Option<EncryptedRows>, SessionError> {
        let object = |(vr, rows): &(VrNumber, &'r EncryptedRows)| {
            let sc = rows.facts.metadata(*vr, rows.bytes.len() as u64)?;
            Ok((sc, rows.bytes.as_slice()))
        };
        let objects = inputs.iter().map(object);
        let objects = objects.collect::<Result<Vec<_>, SessionError>>()?;
        let made = self.run_objects(program, &objects, None).await?;
        made.map(|(sc, bytes)| self.rows_of(&sc, bytes)).transpose()
    }

    /// The rows of a result in samples.
    pub(super) fn rows_of(
        &self,
        sc: &ScMetadata,
        mut bytes: Vec<u8>,
    ) -> Result<EncryptedRows, SessionError> {
        let facts = RowFacts::of(sc).map_err(|error| self.damaged(error.to_string()))?;
        if !facts.computed {
            return Err(self.damaged("something that no program computed".to_owned()));
        }
        if !sc.column() {
            let sample = Segment::of_chunk(facts.params, ColumnForm::Expanded, 1, 0, &bytes)?;
            bytes = assemble(facts.params, [(sample, bytes.as_slice())])?;
        }
        let mut result = EncryptedRows {
            facts,
            bytes,
            count: 0,
            origin: None,
        };
        result.count = result.column()?.header().rows();
        Ok(result)
    }

    fn damaged(&self, found: String) -> SessionError {
        SessionError::Unexpected {
            vr: self.name,
            expected: "the result of a program on columns".to_owned(),
            found,
        }
    }

    /// Runs a program on objects, each with its metadata, in a ring if one is given. `None` where the result has no room behind the inputs.
    pub(super) async fn run_objects(
        &mut self,
        program: &Program,
        inputs: &[(ScMetadata, &[u8])],
        way: Option<RingWay>,
    ) -> Result<Option<(ScMetadata, Vec<u8>)>, SessionError> {
        let of_inputs = Executor::object_bytes(inputs);
        let Some(room) = self
            .limits
            .bytes
            .checked_sub(of_inputs)
            .filter(|room| *room >= 4096)
        else {
            return Ok(None);
        };
        let index = self.load(program).await?;
        let mut ranges = Vec::with_capacity(inputs.len() + 1);
        let mut at = u64::from(index) * self.limits.bytes;
        for (sc, object) in inputs {
            let mut bytes = sc.to_bytes().to_vec();
            bytes.extend_from_slice(object);
            bytes.resize(padded(bytes.len() as u64) as usize, 0);
            self.write(at, &bytes).await?;
            ranges.push(MemoryRange {
                nsid: self.memory,
                start: at,
                len: bytes.len() as u32,
            });
            at += bytes.len() as u64;
        }
        let result = MemoryRange {
            nsid: self.memory,
            start: at,
            len: room.min(u64::from(u32::MAX) / 4096 * 4096) as u32,
        };
        ranges.push(result);
        let which = ((1 << inputs.len()) - 1, ranges.len() as u64);
        let mut run = request::execute_on_ranges(self.programs, index, &ranges, which);
        if let Some(way) = way {
            run = request::in_ring(run, way);
        }
        if let Err(error) = execute(&*self.controller, run).await {
            if error.status() == Some(NO_ROOM) {
                return Ok(None);
            }
            return Err(failed(error));
        }
        let head = self.read(at, ScMetadata::SIZE as u64).await?;
        let sc = ScMetadata::from_bytes(&head)?;
        let sc = sc.ok_or_else(|| self.damaged("none".to_owned()))?;
        if sc.size() > room - ScMetadata::SIZE as u64 {
            return Err(self.damaged(format!("one of {} bytes", sc.size())));
        }
        let bytes = self.read(at + ScMetadata::SIZE as u64, sc.size().next_multiple_of(4));
        let mut bytes = bytes.await?;
        bytes.truncate(sc.size() as usize);
        Ok(Some((sc, bytes)))
    }
}

/// The namespaces for programs and for their memory.
fn namespaces(controller: &dyn Controller) -> Option<(u32, u32)> {
    let namespace = |csi| {
        let mut others = controller.info().other_namespaces.iter();
        others
            .find(|other| other.csi == csi)
            .map(|other| other.nsid)
    };
    Some((namespace(csi::PROGRAMS)?, namespace(csi::MEMORY)?))
}

async fn identified(
    controller: &dyn Controller,
    identify: Request,
) -> Result<Vec<u8>, SessionError> {
    let response = execute_admin(controller, identify).await.map_err(failed)?;
    Ok(response.data)
}
