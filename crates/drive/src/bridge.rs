//! The bridge: what each command does to the SSD and to the engine (platform paper, sections 3 and 4.1, Fig. 3).
//!
//! A command on blocks without secure computing metadata is passed on to the SSD. With metadata:
//!
//! | command | type | what happens |
//! | --- | --- | --- |
//! | write | 0-3 | the data goes to the SSD and into the virtual register |
//! | write | 4 | the data goes into the register; the program of the key id runs; its result goes to the SSD |
//! | read | 0-2, 4 | the data goes to the host and into the register |
//! | read | 3 | the data goes into the register; the program of the key id runs; its result goes to the host |
//!
//! Where virtual register (0, key id, 0) holds no program, a write of type 4 is like one of type 3, and a read of type 3 like
//! one of type 4: samples can be stored, loaded and fetched before there is a program. After a restart, samples that a
//! program only uses are therefore read before the program is.
//!
//! **Writes** take effect in the order: checks, staging in the engine (and the run), SSD, registers. If the SSD refuses, the
//! registers stay as they were. One exception is the engine's: the first part of a key drops the key that it replaces.
//!
//! **Reads** that only load a register deliver their data even where the engine cannot take it (a part out of order, no
//! room, a key id in use with another parameter set): storage comes first. The completion's dword 0 ([`Effect`]) and the
//! error log tell. A read fails where its metadata is invalid or its blocks belong to different objects, and where the
//! program that it triggers fails, since the stored sample must not pass for a result.
//!
//! **The result's metadata** has the flag "computed by the drive", the noise, the failure probability and the message bits
//! of the result. As NVMe metadata it travels with the data. In the second half, that of a write replaces the first 64 bytes
//! of the block that registered the data; that of a read is shown in that block, without being stored, to reads that
//! follow, until the run is read or written again or the drive is closed: on the SSD it would describe data that are not
//! there.
//!
//! **Order.** Commands that overlap in their blocks are done one after the other, reads beside reads. A read that loads a
//! register starts again if its blocks are written before the register has the data, so that the register does not go back to
//! what the blocks held before.
//!
//! **Access.** A host may be bound to some key ids ([`KeyAccess`]). Before any of its commands takes effect, the metadata of
//! all blocks concerned is checked, in the same step as the effect.
//!
//! **Power loss.** A completed write is safe after a flush, or with FUA. A write under way can be torn: some of its blocks
//! new; data new and NVMe metadata old; in the second-half form a result stored, but its metadata still that of the host's
//! sample (the data is written first). Only the host can know, as with any drive: the command has not completed.

mod access;
mod evaluate;
mod log;
mod plain;
mod ranges;
mod second_half;
mod ssd_side;
pub mod status;
mod workers;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use toroid_engine::{
    Attributes, CancelToken, Engine, PagingContext, Part, Requester, RunOutcome, StoreOutcome,
    check_size,
};
use toroid_isa::{Instruction, VrNumber, VrType};
use toroid_nvme::{Command, ControllerInfo, Cqe, DsmRange, Io, Request, Sqe, Status};
use toroid_tfhe::params::ParamSet;

use crate::image::MetadataMode;
use toroid_isa::metadata::ScMetadata;

pub use access::{HostIdentity, HostStatistics, KeyAccess};
pub use log::{
    DriveStatistics, ErrorLogEntry, ProgramRun, ProgramStatistics, TraceEvent, TraceKind,
};
pub use ssd_side::SWAP_NSID;

pub(crate) use access::Hosted;
pub(crate) use evaluate::Described;
pub(crate) use log::Log;
pub(crate) use plain::{Ended, Plain};
pub(crate) use ssd_side::{NSID, SsdSide};
pub(crate) use status::Fault;
pub(crate) use workers::{Queue, Sharing, Workers};

use ranges::{Range, RangeGuard, Ranges, Watch};
use second_half::{RunView, SecondHalf};
use ssd_side::Transfer;
use status::{METADATA_INVALID, METADATA_MISMATCH, PROGRAM_REFUSED, TRIGGER_SPLIT};

/// How often a read starts again because its blocks were written meanwhile.
const READ_TRIES: usize = 16;

/// What a successful command did in the engine, as dword 0 of its completion tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Effect {
    /// Nothing: plain data.
    None = 0,
    /// A part of an object was taken; others are to come.
    PartTaken = 1,
    /// The virtual register holds the object.
    Stored = 2,
    /// The program ran, and its result is in the data.
    Computed = 3,
    /// A read delivered its data, but the engine could not take them; the error log says why.
    NotLoaded = 4,
}

impl Effect {
    /// The effect that a completion of a Read or Write of the drive tells of, if it succeeded.
    pub fn of(cqe: &Cqe) -> Option<Effect> {
        if !cqe.status().is_success() {
            return None;
        }
        [
            Effect::None,
            Effect::PartTaken,
            Effect::Stored,
            Effect::Computed,
            Effect::NotLoaded,
        ]
        .into_iter()
        .find(|effect| *effect as u32 == cqe.dw0.get())
    }

    fn stored(outcome: StoreOutcome) -> Effect {
        if outcome.complete {
            Effect::Stored
        } else {
            Effect::PartTaken
        }
    }
}

/// What a command brings back.
pub(crate) struct Reply {
    pub(crate) data: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) effect: Effect,
}

impl Reply {
    fn of(effect: Effect) -> Reply {
        Reply {
            data: Vec::new(),
            metadata: Vec::new(),
            effect,
        }
    }
}

/// A command on its way.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) sqe: Sqe,
    /// Who submitted it.
    pub(crate) host: Arc<Hosted>,
    /// Unique, unlike the command identifier.
    pub(crate) serial: u64,
    pub(crate) cancel: CancelToken,
    /// The register that the command is for, once it is known.
    pub(crate) vr: Option<VrNumber>,
}

impl Context {
    fn cid(&self) -> u16 {
        self.sqe.cid.get()
    }

    fn keys(&self) -> &KeyAccess {
        &self.host.identity.keys
    }
}

/// What is left of a command.
pub(crate) enum Step {
    Done(Reply),
    /// A program must run.
    Run(Box<Trigger>),
}

/// A command that triggers a program: a write of type 4, or a read of type 3 with the data from the SSD.
pub(crate) struct Trigger {
    write: bool,
    io: Io,
    object: Object,
    data: Vec<u8>,
    metadata: Vec<u8>,
    /// Of a read.
    watch: Option<Watch>,
}

/// The part of an object that a command carries.
#[derive(Clone, Copy)]
struct Object {
    /// With the offset of the command's first byte.
    sc: ScMetadata,
    params: &'static ParamSet,
    /// Bytes of the object in the command; what follows in the last block is padding.
    len: usize,
    /// In the second half: the run that the command lies in.
    run: Option<RunView>,
}

pub(crate) struct Bridge {
    pub(crate) info: ControllerInfo,
    pub(crate) engine: Engine,
    pub(crate) ssd: Arc<SsdSide>,
    pub(crate) log: Arc<Log>,
    /// Where metadata is in the second half.
    second_half: Option<SecondHalf>,
    /// Blocks that commands work on. Where metadata is in the second half, its update lock takes the place of the locks.
    ranges: Arc<Ranges>,
    block_size: usize,
}

impl Bridge {
    pub(crate) fn new(
        info: ControllerInfo,
        engine: Engine,
        ssd: Arc<SsdSide>,
        log: Arc<Log>,
    ) -> Bridge {
        let image = ssd.image().info();
        let second_half = match image.metadata_mode() {
            MetadataMode::NvmeMetadata => None,
            MetadataMode::SecondHalf => Some(SecondHalf::new(image, info.mdts_bytes)),
        };
        Bridge {
            info,
            engine,
            block_size: image.block_size() as usize,
            ssd,
            log,
            second_half,
            ranges: Arc::default(),
        }
    }

    /// Does everything of a command but running a program.
    pub(crate) fn start(&self, context: &mut Context, request: Request) -> Result<Step, Fault> {
        if context.cancel.is_cancelled() {
            return Err(Fault::cancelled());
        }
        let command = self
            .info
            .check(&request)
            .map_err(|status| Fault::new(status, self.describe(status, &request)))?;
        let done = match command {
            Command::Read(io) => return self.read(context, io),
            Command::Write(io) => return self.write(context, io, request),
            Command::Flush { .. } => {
                self.ssd
                    .submit(Sqe::flush(context.cid(), NSID), Transfer::None)?;
                return Ok(Step::Done(self.was_flushed()));
            }
            Command::Compare(io) => self.compare(context, io, &request),
            Command::WriteZeroes { io, .. } => {
                self.zero(context, &[(io.slba, u64::from(io.blocks))], Transfer::None)
            }
            Command::DatasetManagement { deallocate, .. } => {
                let ranges: Vec<Range> = DsmRange::list(&request.data)
                    .iter()
                    .map(|range| (range.slba.get(), u64::from(range.blocks.get())))
                    .filter(|_| deallocate)
                    .collect();
                let data = &request.data;
                let transfer = Transfer::Out {
                    data,
                    metadata: &[],
                };
                if ranges.is_empty() {
                    Ok(())
                } else {
                    self.zero(context, &ranges, transfer)
                }
            }
        };
        done?;
        self.log.count(|statistics| statistics.others += 1);
        Ok(Step::Done(Reply::of(Effect::None)))
    }

    /// Why the controller refuses a request at once, for people.
    fn describe(&self, status: Status, request: &Request) -> String {
        let command = request.sqe;
        match (status, Command::parse(&command)) {
            (
                Status::INVALID_FIELD,
                Ok(Command::Read(io) | Command::Write(io) | Command::Compare(io)),
            ) => {
                format!(
                    "{command} transfers {} bytes; expected at most {} (MDTS)",
                    u64::from(io.blocks) * self.block_size as u64,
                    self.info.mdts_bytes
                )
            }
            (Status::LBA_OUT_OF_RANGE, _) => {
                let blocks = self.ssd.image().info().blocks();
                format!("{command} is beyond the {blocks} blocks of the namespace")
            }
            (Status::INVALID_NAMESPACE, _) => {
                format!("namespace {} does not exist; expected {NSID}", command.nsid)
            }
            (Status::DATA_SGL_LENGTH_INVALID, _) => format!(
                "{command} with {} bytes of data, which is not what it needs",
                request.data.len()
            ),
            (Status::METADATA_SGL_LENGTH_INVALID, _) => format!(
                "{command} with {} bytes of metadata, which is not what it needs",
                request.metadata.len()
            ),
            _ => format!("{command}: {status}"),
        }
    }

    fn read(&self, context: &mut Context, io: Io) -> Result<Step, Fault> {
        for _ in 1..READ_TRIES {
            if let Some(step) = self.try_read(context, io, false)? {
                return Ok(step);
            }
        }
        self.try_read(context, io, true)?
            .ok_or_else(|| Fault::passing(Status::INTERNAL_ERROR, "the read did not end"))
    }

    /// Reads; `None` if the blocks were written before their object was in its register. The `last` try delivers the data
    /// nevertheless.
    fn try_read(&self, context: &mut Context, io: Io, last: bool) -> Result<Option<Step>, Fault> {
        let range = (io.slba, u64::from(io.blocks));
        self.load_metadata(context, io)?;
        let watch = self.ranges.watch(range);
        let (run, data, metadata) = match &self.second_half {
            Some(second_half) => {
                let _shared =
                    self.checked(context, second_half, &[range], || second_half.begin_read())?;
                let run = self.find_run(io)?;
                let (mut data, metadata) = self.fetch(context, io)?;
                if second_half.contains(io.slba, u64::from(io.blocks))? {
                    second_half.overlay(io.slba, &mut data);
                }
                (run, data, metadata)
            }
            None => {
                let _shared = self.ranges.lock(&[range], false);
                let (data, metadata) = self.fetch(context, io)?;
                context.keys().check_metadata(&metadata)?;
                (None, data, metadata)
            }
        };
        let Some(object) = self.object(context, io, run, &metadata, false)? else {
            let reply = self.was_read(&context.host, data, metadata, Effect::None);
            return Ok(Some(Step::Done(reply)));
        };
        if object.sc.vr().ty() == VrType::LweCor && self.has_program(object.sc.vr()) {
            object.check_whole()?;
            return Ok(Some(Step::Run(Box::new(Trigger {
                write: false,
                io,
                object,
                data,
                metadata,
                watch: Some(watch),
            }))));
        }
        let part = object.part(context, &data);
        let stored = self.engine.store_part_after(&part, &mut |_| {
            if watch.saw_a_write() {
                let reason = "its blocks were written while it was read";
                return Err(Fault::passing(METADATA_MISMATCH, reason).into());
            }
            Ok(())
        });
        let effect = match stored {
            Ok(outcome) => {
                self.stored(&object);
                Effect::stored(outcome)
            }
            Err(_) if watch.saw_a_write() && !last => return Ok(None),
            Err(error) => {
                let reason = Fault::from(error).detail;
                let account = &context.host.account;
                self.log
                    .error(account, context.sqe, Status::SUCCESS, context.vr, reason);
                Effect::NotLoaded
            }
        };
        if let (Some(second_half), Some(run)) = (&self.second_half, &object.run) {
            second_half.delivered(run, None);
        }
        let reply = self.was_read(&context.host, data, metadata, effect);
        Ok(Some(Step::Done(reply)))
    }

    fn was_read(&self, host: &Hosted, data: Vec<u8>, metadata: Vec<u8>, effect: Effect) -> Reply {
        self.log.count(|statistics| {
            statistics.reads += 1;
            statistics.bytes_read += data.len() as u64;
        });
        host.account.count(|statistics| {
            statistics.reads += 1;
            statistics.bytes_read += data.len() as u64;
        });
        Reply {
            data,
            metadata,
            effect,
        }
    }

    fn write(&self, context: &mut Context, io: Io, request: Request) -> Result<Step, Fault> {
        let Request { data, metadata, .. } = request;
        if let Some(second_half) = &self.second_half
            && second_half.contains(io.slba, u64::from(io.blocks))?
        {
            self.register(context, second_half, io, &data)?;
            let reply = self.was_written(&context.host, data.len(), Effect::None);
            return Ok(Step::Done(reply));
        }
        let range = (io.slba, u64::from(io.blocks));
        self.load_metadata(context, io)?;
        // Plain data stays plain while the lock is held; of an object, everything is looked at again before its effect.
        let (shared, locked);
        let run = match &self.second_half {
            Some(second_half) => {
                shared = Some(
                    self.checked(context, second_half, &[range], || second_half.begin_read())?,
                );
                locked = None;
                self.find_run(io)?
            }
            None => {
                shared = None;
                locked = Some(self.lock_for_write(context, io)?);
                None
            }
        };
        let Some(object) = self.object(context, io, run, &metadata, true)? else {
            self.put(context, io, &data, &metadata)?;
            self.ranges.written(range);
            let reply = self.was_written(&context.host, data.len(), Effect::None);
            return Ok(Step::Done(reply));
        };
        drop((shared, locked));
        if object.sc.vr().ty() == VrType::LweCow && self.has_program(object.sc.vr()) {
            object.check_whole()?;
            return Ok(Step::Run(Box::new(Trigger {
                write: true,
                io,
                object,
                data,
                metadata,
                watch: None,
            })));
        }
        let outcome = self
            .engine
            .store_part_after(&object.part(context, &data), &mut |_| {
                Ok(self.put_object(context, io, &data, &metadata, &object, None)?)
            })?;
        self.stored(&object);
        let reply = self.was_written(&context.host, data.len(), Effect::stored(outcome));
        Ok(Step::Done(reply))
    }

    fn was_written(&self, host: &Hosted, bytes: usize, effect: Effect) -> Reply {
        self.log.count(|statistics| {
            statistics.writes += 1;
            statistics.bytes_written += bytes as u64;
        });
        host.account.count(|statistics| {
            statistics.writes += 1;
            statistics.bytes_written += bytes as u64;
        });
        Reply::of(effect)
    }

    fn was_flushed(&self) -> Reply {
        self.log.count(|statistics| statistics.flushes += 1);
        Reply::of(Effect::None)
    }

    fn stored(&self, object: &Object) {
        self.log
            .count(|statistics| statistics.bytes_stored += object.len as u64);
    }

    /// Runs the program that a command triggers, and ends the command.
    pub(crate) fn run(&self, context: &mut Context, mut trigger: Trigger) -> Result<Reply, Fault> {
        for _ in 0..READ_TRIES {
            let io = trigger.io;
            if let Some(reply) = self.try_run(context, trigger)? {
                return Ok(reply);
            }
            trigger = match self.read(context, io)? {
                Step::Run(trigger) => *trigger,
                Step::Done(reply) => return Ok(reply),
            };
        }
        Err(Fault::passing(
            METADATA_MISMATCH,
            "the blocks were written again and again before the run could begin",
        ))
    }

    /// Runs the program; `None` if the blocks of a read were written before the run began, so that what was read of them must not
    /// go into their register any more.
    fn try_run(&self, context: &mut Context, trigger: Trigger) -> Result<Option<Reply>, Fault> {
        let Trigger {
            write,
            io,
            object,
            mut data,
            mut metadata,
            watch,
        } = trigger;
        let vr = object.sc.vr();
        let cid = context.cid();
        let program = VrNumber::program(vr.key_id())
            .map_err(|error| Fault::new(METADATA_INVALID, error.to_string()))?;
        self.log.trace(TraceKind::ProgramStarted {
            cid,
            program,
            trigger: vr,
        });
        let sample = data.clone();
        let part = object.part(context, &sample);
        let mut ended = false;
        let mut result = None;
        // The program's own key id, whatever the host may use: another may have stored it.
        let key_ids = BTreeSet::from([vr.key_id()]);
        let requester = Requester {
            tenant: context.host.identity.tenant,
            cancel: &context.cancel,
            key_ids: Some(&key_ids),
        };
        let stale = Cell::new(false);
        let begins = || {
            stale.set(watch.as_ref().is_some_and(Watch::saw_a_write));
            if stale.get() {
                let reason = "its blocks were written while it was read";
                return Err(Fault::passing(METADATA_MISMATCH, reason).into());
            }
            Ok(())
        };
        let run = self
            .engine
            .store_part_and_run_after(&part, requester, &begins, &mut |outcome| {
                let Some(outcome) = outcome else {
                    return Err(Fault::new(TRIGGER_SPLIT, "the sample came in parts").into());
                };
                let sc = object.result(outcome)?;
                data[..object.len].copy_from_slice(&outcome.bytes);
                if self.second_half.is_none() {
                    metadata = self.nvme_metadata(&sc, io.blocks)?;
                }
                self.log.trace(TraceKind::ProgramEnded {
                    cid,
                    program,
                    status: Status::SUCCESS,
                });
                ended = true;
                if write {
                    self.put_object(context, io, &data, &metadata, &object, Some(sc))?;
                }
                result = Some(sc);
                Ok(())
            })
            .map_err(Fault::from);
        let outcome = match run {
            Ok(Some(outcome)) => outcome,
            Ok(None) => {
                return Err(Fault::new(TRIGGER_SPLIT, "the sample came in parts"));
            }
            Err(fault) => {
                if !ended {
                    let status = fault.status;
                    self.log.trace(TraceKind::ProgramEnded {
                        cid,
                        program,
                        status,
                    });
                }
                if stale.get() {
                    return Ok(None);
                }
                self.log.count(|statistics| {
                    statistics.programs.entry(vr.key_id()).or_default().failures += 1;
                });
                let account = &context.host.account;
                account.count(|statistics| statistics.program_failures += 1);
                return Err(fault);
            }
        };
        self.stored(&object);
        self.program_ran(context, vr, &outcome);
        if write {
            let reply = self.was_written(&context.host, data.len(), Effect::Computed);
            return Ok(Some(reply));
        }
        if let (Some(second_half), Some(run)) = (&self.second_half, &object.run) {
            second_half.delivered(run, result);
        }
        let reply = self.was_read(&context.host, data, metadata, Effect::Computed);
        Ok(Some(reply))
    }

    fn program_ran(&self, context: &Context, trigger: VrNumber, outcome: &RunOutcome) {
        let bootstraps = outcome
            .instructions
            .iter()
            .filter(|timing| matches!(timing.instruction, Instruction::Bootstrap { .. }))
            .count() as u64;
        self.log.count(|statistics| {
            statistics.bootstraps += bootstraps;
            let program = statistics.programs.entry(trigger.key_id()).or_default();
            program.runs += 1;
            program.total += outcome.duration;
            program.longest = program.longest.max(outcome.duration);
        });
        context.host.account.count(|statistics| {
            statistics.bootstraps += bootstraps;
            statistics.programs += 1;
        });
        tracing::info!(
            host = context.host.identity.name,
            %trigger,
            duration = ?outcome.duration,
            bootstraps,
            page_ins = outcome.page_ins,
            page_outs = outcome.page_outs,
            "program ran"
        );
        self.log.program_ran(ProgramRun {
            cid: context.cid(),
            trigger,
            returned: outcome.returned,
            duration: outcome.duration,
            instructions: outcome.instructions.clone(),
            variance: outcome.noise.variance(),
            log2_failure: outcome.noise.log2_failure(),
            page_ins: outcome.page_ins,
            page_outs: outcome.page_outs,
        });
    }

    fn has_program(&self, vr: VrNumber) -> bool {
        VrNumber::program(vr.key_id()).is_ok_and(|program| self.engine.info(program).is_some())
    }

    /// Room for blocks and their NVMe metadata.
    fn buffers(&self, io: Io) -> (Vec<u8>, Vec<u8>) {
        let blocks = io.blocks as usize;
        let metadata_size = usize::from(self.ssd.image().info().metadata_size());
        (
            vec![0; blocks * self.block_size],
            vec![0; blocks * metadata_size],
        )
    }

    /// Reads blocks and their NVMe metadata.
    fn fetch(&self, context: &Context, io: Io) -> Result<(Vec<u8>, Vec<u8>), Fault> {
        let (mut data, mut metadata) = self.buffers(io);
        let transfer = Transfer::In {
            data: &mut data,
            metadata: &mut metadata,
        };
        let sqe = Sqe::read(context.cid(), NSID, io.slba, (io.blocks - 1) as u16);
        self.ssd.submit(sqe, transfer)?;
        Ok((data, metadata))
    }

    /// Writes blocks and their NVMe metadata.
    fn put(&self, context: &Context, io: Io, data: &[u8], metadata: &[u8]) -> Result<(), Fault> {
        let sqe = Sqe::write(context.cid(), NSID, io.slba, (io.blocks - 1) as u16);
        let sqe = if io.fua { sqe.with_fua() } else { sqe };
        self.ssd.submit(sqe, Transfer::Out { data, metadata })?;
        Ok(())
    }

    /// Writes an object's part, or the `result` that takes its place, with what describes it.
    fn put_object(
        &self,
        context: &Context,
        io: Io,
        data: &[u8],
        metadata: &[u8],
        object: &Object,
        result: Option<ScMetadata>,
    ) -> Result<(), Fault> {
        let range = (io.slba, u64::from(io.blocks));
        let (Some(second_half), Some(run)) = (&self.second_half, &object.run) else {
            let _locked = self.lock_for_write(context, io)?;
            let put = self.put(context, io, data, metadata);
            self.ranges.written(range);
            return put;
        };
        let _update = second_half.begin_update();
        if !second_half.is_current(run) || !second_half.check_access(&[range], context.keys())? {
            return Err(Fault::passing(
                METADATA_MISMATCH,
                format!(
                    "the metadata at LBA {} changed while the command was under way",
                    second_half.metadata_lba(run.start)
                ),
            ));
        }
        let stored = result.unwrap_or(run.registered);
        if stored == run.stored {
            self.put(context, io, data, metadata)?;
            self.ranges.written(range);
        } else {
            let (old, _) = self.fetch(context, io)?;
            self.put(context, io, data, metadata)?;
            self.ranges.written(range);
            let lba = second_half.metadata_lba(run.start);
            if let Err(fault) = self.put_metadata_block(context, lba, io.fua, &stored) {
                if let Err(undo) = self.put(context, io, &old, &[]) {
                    tracing::error!(%fault, %undo, lba = io.slba, "a failed write could not be undone");
                }
                second_half.forget((lba, 1));
                return Err(fault);
            }
        }
        second_half.data_written(run.start, stored);
        Ok(())
    }

    /// Puts metadata into the head of a block of the second half.
    fn put_metadata_block(
        &self,
        context: &Context,
        slba: u64,
        fua: bool,
        sc: &ScMetadata,
    ) -> Result<(), Fault> {
        let io = Io {
            nsid: NSID,
            slba,
            blocks: 1,
            fua,
        };
        let (mut block, _) = self.fetch(context, io)?;
        block[..ScMetadata::SIZE].copy_from_slice(&sc.to_bytes());
        self.put(context, io, &block, &[])
    }

    /// Writes to the second half.
    fn register(
        &self,
        context: &Context,
        second_half: &SecondHalf,
        io: Io,
        data: &[u8],
    ) -> Result<(), Fault> {
        let registered = second_half.check_write(io.slba, data, |sc| {
            context.keys().check_register(sc.vr())?;
            check(sc).map(|_params| ())
        })?;
        let range = (io.slba, u64::from(io.blocks));
        let starts = io.slba - second_half.metadata_lba(0)..;
        let mut ranges = vec![range];
        ranges.extend(starts.zip(&registered).filter_map(|(start, sc)| {
            let sc = sc.as_ref()?;
            Some((start, u64::from(sc.blocks())))
        }));
        let _update = self.checked(context, second_half, &ranges, || second_half.begin_update())?;
        if let Err(fault) = self.put(context, io, data, &[]) {
            second_half.forget(range);
            return Err(fault);
        }
        second_half.written(io.slba, registered);
        Ok(())
    }

    fn compare(&self, context: &Context, io: Io, request: &Request) -> Result<(), Fault> {
        let range = (io.slba, u64::from(io.blocks));
        let (data, metadata) = match &self.second_half {
            Some(second_half) => {
                let _shared =
                    self.checked(context, second_half, &[range], || second_half.begin_read())?;
                self.fetch(context, io)?
            }
            None => {
                let _shared = self.ranges.lock(&[range], false);
                let (data, metadata) = self.fetch(context, io)?;
                context.keys().check_metadata(&metadata)?;
                (data, metadata)
            }
        };
        if data != request.data || metadata != request.metadata {
            return Err(Fault::passing(
                Status::COMPARE_FAILURE,
                format!("{} holds something else", request.sqe),
            ));
        }
        Ok(())
    }

    /// Has the SSD set blocks to zero by the host's own command.
    fn zero(
        &self,
        context: &Context,
        ranges: &[Range],
        transfer: Transfer<'_>,
    ) -> Result<(), Fault> {
        let Some(second_half) = &self.second_half else {
            let _locked = self.ranges.lock(ranges, true);
            self.check_stored(context, ranges)?;
            self.ssd.submit(context.sqe, transfer)?;
            ranges.iter().for_each(|range| self.ranges.written(*range));
            return Ok(());
        };
        let _update = self.checked(context, second_half, ranges, || second_half.begin_update())?;
        let done = self.ssd.submit(context.sqe, transfer);
        for (lba, blocks) in ranges {
            match &done {
                Ok(()) => second_half.zeroed(*lba, *blocks),
                Err(_) => second_half.forget((*lba, *blocks)),
            }
            self.ranges.written((*lba, *blocks));
        }
        Ok(done?)
    }

    /// Where metadata is beside the blocks: keeps others from blocks that are to be written, and checks whose they are.
    fn lock_for_write(&self, context: &Context, io: Io) -> Result<RangeGuard<'_>, Fault> {
        let range = (io.slba, u64::from(io.blocks));
        let guard = self.ranges.lock(&[range], true);
        self.check_stored(context, &[range])?;
        Ok(guard)
    }

    /// Where metadata is beside the blocks: checks whose they are. The caller keeps others from them.
    fn check_stored(&self, context: &Context, ranges: &[Range]) -> Result<(), Fault> {
        if context.keys().only().is_none() {
            return Ok(());
        }
        let most = u64::from(self.info.mdts_bytes) / self.block_size as u64;
        for (lba, blocks) in ranges {
            for skipped in (0..*blocks).step_by(most as usize) {
                let io = Io {
                    nsid: NSID,
                    slba: lba + skipped,
                    blocks: most.min(blocks - skipped) as u32,
                    fua: false,
                };
                let (_, metadata) = self.fetch(context, io)?;
                context.keys().check_metadata(&metadata)?;
                if context.cancel.is_cancelled() {
                    return Err(Fault::cancelled());
                }
            }
        }
        Ok(())
    }

    /// In the second-half form: a lock under which the host may use these blocks.
    fn checked<G>(
        &self,
        context: &Context,
        second_half: &SecondHalf,
        ranges: &[Range],
        lock: impl Fn() -> G,
    ) -> Result<G, Fault> {
        // Another's failed command can take metadata out of memory again.
        for _ in 0..READ_TRIES {
            if context.keys().only().is_some() {
                for range in ranges {
                    for (lba, blocks) in second_half.decisive(*range) {
                        self.load(context, second_half, lba, blocks)?;
                    }
                }
            }
            let guard = lock();
            if second_half.check_access(ranges, context.keys())? {
                return Ok(guard);
            }
        }
        Err(Fault::passing(
            Status::NAMESPACE_NOT_READY,
            "the metadata of the blocks must be read again",
        ))
    }

    /// In the second-half form: makes sure that the metadata of a data command is in memory.
    fn load_metadata(&self, context: &Context, io: Io) -> Result<(), Fault> {
        let blocks = u64::from(io.blocks);
        let Some(second_half) = &self.second_half else {
            return Ok(());
        };
        if second_half.contains(io.slba, blocks)? {
            return Ok(());
        }
        self.load(context, second_half, io.slba, blocks)
    }

    fn load(
        &self,
        context: &Context,
        second_half: &SecondHalf,
        lba: u64,
        blocks: u64,
    ) -> Result<(), Fault> {
        second_half.load(lba, blocks, |slba, data| {
            if context.cancel.is_cancelled() {
                return Err(Fault::cancelled());
            }
            let blocks = (data.len() / self.block_size) as u64;
            let sqe = Sqe::read(context.cid(), NSID, slba, blocks.saturating_sub(1) as u16);
            let metadata = &mut [][..];
            Ok(self.ssd.submit(sqe, Transfer::In { data, metadata })?)
        })
    }

    /// In the second-half form: the run that a data command lies in.
    fn find_run(&self, io: Io) -> Result<Option<RunView>, Fault> {
        let blocks = u64::from(io.blocks);
        match &self.second_half {
            Some(second_half) if !second_half.contains(io.slba, blocks)? => {
                second_half.lookup(io.slba, blocks)
            }
            _ => Ok(None),
        }
    }

    /// The part of an object that a command carries; `None` for plain data.
    fn object(
        &self,
        context: &mut Context,
        io: Io,
        run: Option<RunView>,
        metadata: &[u8],
        write: bool,
    ) -> Result<Option<Object>, Fault> {
        let sc = if self.second_half.is_some() {
            let Some(run) = &run else {
                return Ok(None);
            };
            let sc = if write { run.registered } else { run.stored };
            let skipped = (io.slba - run.start) * self.block_size as u64;
            sc.with_offset(sc.offset() + skipped)?
        } else {
            let Some(sc) = self.common_metadata(metadata, io.blocks)? else {
                return Ok(None);
            };
            sc
        };
        context.keys().check_register(sc.vr())?;
        context.vr = Some(sc.vr());
        let params = check(&sc)?;
        let bytes = io.blocks as usize * self.block_size;
        Ok(Some(Object {
            sc,
            params,
            len: usize::try_from(sc.remaining()).map_or(bytes, |left| left.min(bytes)),
            run,
        }))
    }

    /// The metadata of the first block, if that of the others continues it block by block; `None` if all is zero.
    fn common_metadata(&self, metadata: &[u8], blocks: u32) -> Result<Option<ScMetadata>, Fault> {
        let first = metadata.get(..ScMetadata::SIZE).unwrap_or(metadata);
        let Some(sc) = ScMetadata::from_bytes(first)? else {
            if metadata.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            return Err(Fault::new(
                METADATA_MISMATCH,
                "the first block is plain data, but others have secure computing metadata",
            ));
        };
        if sc.blocks() != 0 {
            return Err(Fault::new(
                METADATA_INVALID,
                format!(
                    "the blocks field is {}; expected 0 in NVMe metadata",
                    sc.blocks()
                ),
            ));
        }
        if self.nvme_metadata(&sc, blocks)? != metadata {
            return Err(Fault::new(
                METADATA_MISMATCH,
                format!("the blocks do not continue {sc} block by block"),
            ));
        }
        Ok(Some(sc))
    }

    /// NVMe metadata for blocks that hold one part of an object.
    fn nvme_metadata(&self, first: &ScMetadata, blocks: u32) -> Result<Vec<u8>, Fault> {
        let mut metadata = Vec::with_capacity(blocks as usize * ScMetadata::SIZE);
        for block in 0..u64::from(blocks) {
            let offset = first.offset() + block * self.block_size as u64;
            let sc = first.with_offset(offset).map_err(|error| {
                Fault::new(
                    METADATA_MISMATCH,
                    format!("the object ends before the command: {error}"),
                )
            })?;
            metadata.extend_from_slice(&sc.to_bytes());
        }
        Ok(metadata)
    }
}

/// Checks what the metadata says of the object as a whole; gives its parameter set.
fn check(sc: &ScMetadata) -> Result<&'static ParamSet, Fault> {
    let params = ParamSet::by_id(sc.params()).ok_or_else(|| {
        Fault::new(
            status::WRONG_PARAMETERS,
            format!("parameter set {} of {} is unknown", sc.params(), sc.vr()),
        )
    })?;
    // The engine checks a program's size itself: a read delivers what it refuses.
    if sc.vr().ty() != VrType::Prg {
        check_size(sc.vr(), params, sc.size())?;
    }
    Ok(params)
}

impl Object {
    /// The part as the engine takes it. `data` are the blocks of the command.
    fn part<'a>(&self, context: &Context, data: &'a [u8]) -> Part<'a> {
        let sc = &self.sc;
        Part {
            context: PagingContext {
                command_id: context.cid(),
                queue: context.serial,
            },
            vr: sc.vr(),
            params: self.params,
            total_size: sc.size(),
            offset: sc.offset(),
            bytes: &data[..self.len],
            attributes: Attributes {
                message_bits: sc.message_bits().into(),
                output_bits: sc.output_bits().into(),
                signed: sc.signed(),
                log2_variance: sc.log2_variance().map(f64::from),
                log2_failure: sc.log2_p_fail().map(f64::from),
                computed: sc.computed(),
            },
        }
    }

    /// A program's result can only take the place of a sample that is all there.
    fn check_whole(&self) -> Result<(), Fault> {
        if self.sc.offset() == 0 && self.len as u64 == self.sc.size() {
            return Ok(());
        }
        Err(Fault::new(
            TRIGGER_SPLIT,
            format!(
                "{} bytes from byte {} of {}; a sample that triggers a program must come whole, {} bytes",
                self.len,
                self.sc.offset(),
                self.sc.vr(),
                self.sc.size()
            ),
        ))
    }

    /// Metadata of the result that takes the sample's place.
    fn result(&self, outcome: &RunOutcome) -> Result<ScMetadata, Fault> {
        if outcome.bytes.len() != self.len || outcome.params.id != self.params.id {
            return Err(Fault::passing(
                PROGRAM_REFUSED,
                format!(
                    "the program returned {} of parameter set {}; expected {}, like {}",
                    outcome.returned,
                    outcome.params.name,
                    self.params.name,
                    self.sc.vr()
                ),
            ));
        }
        let bits = u8::try_from(outcome.message_bits).unwrap_or(0);
        // A logarithm of 0 would read as "not stated", which is the opposite of what it says.
        let stated = |log2: f64| Some(log2.min(-f64::from(f32::EPSILON)));
        Ok(self
            .sc
            .with_message(bits, outcome.signed)?
            .with_noise(
                stated(outcome.noise.variance().log2()),
                stated(outcome.noise.log2_failure()),
            )
            .with_computed(true))
    }
}
