//! The commands of the NVM command set, up to the programs that they trigger.

use std::ops::Range;
use std::sync::Arc;

use toroid_engine::{Engine, EngineError, Prepared, StoreOutcome};
use toroid_isa::{VrNumber, VrType};
use toroid_nvme::{Command, ControllerInfo, DsmRange, Io, Request, Sqe, Status};

use super::access::Hosted;
use super::carrier::Carrier;
use super::carrier::nvme_metadata::NvmeMetadata;
use super::carrier::second_half::SecondHalf;
use super::command::{Blocks, Context, Effect, Reply, blocks_of};
use super::log::Log;
use super::object::Object;
use super::ssd_side::{NSID, SsdSide, Transfer};
use super::status::Fault;
use super::watches::{Watch, Watches};
use crate::image::MetadataMode;

/// How often a read starts again because its blocks were written meanwhile.
pub(crate) const READ_TRIES: usize = 16;

pub(crate) struct Bridge {
    pub(crate) info: ControllerInfo,
    pub(crate) engine: Engine,
    pub(crate) ssd: Arc<SsdSide>,
    pub(crate) log: Arc<Log>,
    pub(crate) carrier: Box<dyn Carrier>,
    /// Of reads that bring data to registers.
    pub(crate) watches: Arc<Watches>,
}

/// What is left of a command.
pub(crate) enum Step {
    Done(Reply),
    /// A program must run.
    Run(Box<Trigger>),
}

/// A command that triggers a program: a write of type 4, or a read of type 3 with the data from the SSD.
pub(crate) struct Trigger {
    pub(crate) io: Io,
    pub(crate) object: Object,
    pub(crate) blocks: Blocks,
    /// Of a read.
    pub(crate) watch: Option<Watch>,
}

impl Trigger {
    pub(crate) fn is_write(&self) -> bool {
        self.watch.is_none()
    }
}

impl Bridge {
    pub(crate) fn new(
        info: ControllerInfo,
        engine: Engine,
        ssd: Arc<SsdSide>,
        log: Arc<Log>,
    ) -> Bridge {
        let (shared, mdts) = (Arc::clone(&ssd), info.mdts_bytes);
        let carrier: Box<dyn Carrier> = match ssd.image().info().metadata_mode() {
            MetadataMode::NvmeMetadata => Box::new(NvmeMetadata::new(shared, mdts)),
            MetadataMode::SecondHalf => Box::new(SecondHalf::new(shared, mdts)),
        };
        Bridge {
            info,
            engine,
            ssd,
            log,
            carrier,
            watches: Arc::default(),
        }
    }

    /// Does everything of a command but running a program.
    pub(crate) fn start(&self, context: &Context, request: Request) -> Result<Step, Fault> {
        context.check_cancelled()?;
        let command = self
            .info
            .check(&request)
            .map_err(|status| Fault::new(status, self.describe(status, &request)))?;
        match command {
            Command::Read(io) => return self.read(context, io),
            Command::Write(io) => return self.write(context, io, request),
            Command::Flush { .. } => {
                let flush = Sqe::flush(context.cid(), NSID);
                self.ssd.submit(flush, Transfer::None)?;
                return Ok(Step::Done(self.was_flushed()));
            }
            Command::Compare(io) => self.compare(context, io, &request)?,
            Command::WriteZeroes { io, .. } => {
                self.zero(context, &[blocks_of(io)], Transfer::None)?;
            }
            Command::DatasetManagement { deallocate, .. } => {
                if deallocate {
                    self.deallocate(context, &request.data)?;
                }
            }
        }
        self.log.count(|statistics| statistics.others += 1);
        Ok(Step::Done(Effect::None.into()))
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
                    u64::from(io.blocks) * u64::from(self.ssd.image().info().block_size()),
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

    pub(crate) fn read(&self, context: &Context, io: Io) -> Result<Step, Fault> {
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
    fn try_read(&self, context: &Context, io: Io, last: bool) -> Result<Option<Step>, Fault> {
        let watch = self.watches.watch(blocks_of(io));
        let (blocks, description) = self.carrier.read(context, io)?;
        let Some(description) = description else {
            let reply = self.was_read(&context.host, blocks, Effect::None);
            return Ok(Some(Step::Done(reply)));
        };
        let object = Object::of(context, description, blocks.data.len())?;
        if self.triggers(&object, VrType::LweCor) {
            object.check_whole()?;
            return Ok(Some(Step::Run(Box::new(Trigger {
                io,
                object,
                blocks,
                watch: Some(watch),
            }))));
        }
        let effect = if object.sc().column() {
            Some(Effect::None)
        } else {
            self.load(context, &object, &blocks, &watch, last)
        };
        let Some(effect) = effect else {
            return Ok(None);
        };
        self.carrier.delivered(&object.description, None);
        let reply = self.was_read(&context.host, blocks, effect);
        Ok(Some(Step::Done(reply)))
    }

    /// Loads what was read into its register, if the engine can take it. `None` if the blocks were written meanwhile and
    /// this is not the `last` try.
    fn load(
        &self,
        context: &Context,
        object: &Object,
        blocks: &Blocks,
        watch: &Watch,
        last: bool,
    ) -> Option<Effect> {
        let part = object.part(context, &blocks.data);
        let held = part.as_ref().ok().and_then(|part| self.engine.holds(part));
        let prepare = || part.and_then(|part| Ok(self.engine.prepare_read(&part)?));
        let prepared = held.is_none().then(prepare);
        // A write that comes later waits for the effect of what is prepared.
        let stale = watch.saw_a_write();
        if stale && !last {
            return None;
        }
        let Some(prepared) = prepared else {
            return held.map(Effect::stored);
        };
        let reason = match prepared {
            Ok(prepared) if !stale => {
                return Some(self.take(context, object, prepared));
            }
            Ok(_) => "its blocks were written while it was read".to_owned(),
            Err(fault) => fault.detail,
        };
        Some(self.not_loaded(context, reason))
    }

    /// Makes the effect of a part appear.
    fn take(&self, context: &Context, object: &Object, prepared: Prepared<'_>) -> Effect {
        let outcome = prepared.commit();
        if outcome == StoreOutcome::Superseded {
            let vr = object.sc().vr();
            return self.not_loaded(context, EngineError::Superseded { vr }.to_string());
        }
        if object.sc().column() {
            return Effect::None;
        }
        self.stored(object);
        Effect::stored(outcome)
    }

    fn not_loaded(&self, context: &Context, reason: String) -> Effect {
        let account = &context.host.account;
        self.log
            .error(account, context.sqe, Status::SUCCESS, reason);
        Effect::NotLoaded
    }

    fn write(&self, context: &Context, io: Io, request: Request) -> Result<Step, Fault> {
        let blocks = Blocks {
            data: request.data,
            metadata: request.metadata,
        };
        let bytes = blocks.data.len();
        if self.carrier.register(context, io, &blocks)? {
            let reply = self.was_written(&context.host, bytes, Effect::None);
            return Ok(Step::Done(reply));
        }
        let (locked, description) = self.carrier.lock_for_write(context, io, &blocks.metadata)?;
        let Some(description) = description else {
            self.ssd.put(context.cid(), io, &blocks)?;
            self.watches.written(&blocks_of(io));
            let reply = self.was_written(&context.host, bytes, Effect::None);
            return Ok(Step::Done(reply));
        };
        // Of an object, everything is looked at again before its effect.
        drop(locked);
        let object = Object::of(context, description, bytes)?;
        if self.triggers(&object, VrType::LweCow) {
            object.check_whole()?;
            return Ok(Step::Run(Box::new(Trigger {
                io,
                object,
                blocks,
                watch: None,
            })));
        }
        let prepared = if object.sc().column() {
            self.prepare_column(&object, &blocks.data)?
        } else {
            self.engine.prepare(&object.part(context, &blocks.data)?)?
        };
        let put = self
            .carrier
            .commit(context, io, &blocks, &object.description, None);
        self.watches.written(&blocks_of(io));
        put?;
        let effect = self.take(context, &object, prepared);
        let reply = self.was_written(&context.host, bytes, effect);
        Ok(Step::Done(reply))
    }

    /// Whether a command on this object runs a program, if it is on a register of this type.
    fn triggers(&self, object: &Object, ty: VrType) -> bool {
        let vr = object.sc().vr();
        vr.ty() == ty
            && VrNumber::program(vr.key_id())
                .is_ok_and(|program| self.engine.info(program).is_some())
    }

    fn compare(&self, context: &Context, io: Io, request: &Request) -> Result<(), Fault> {
        let stored = self.carrier.stored(context, io)?;
        if stored.data != request.data || stored.metadata != request.metadata {
            return Err(Fault::new(
                Status::COMPARE_FAILURE,
                format!("{} holds something else", request.sqe),
            ));
        }
        Ok(())
    }

    fn deallocate(&self, context: &Context, data: &[u8]) -> Result<(), Fault> {
        let ranges: Vec<Range<u64>> = DsmRange::list(data)
            .iter()
            .map(|range| (range.slba.get(), u64::from(range.blocks.get())))
            .map(|(first, blocks)| first..first.saturating_add(blocks))
            .collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let metadata = &[][..];
        self.zero(context, &ranges, Transfer::Out { data, metadata })
    }

    /// Has the SSD set blocks to zero by the host's own command.
    fn zero(
        &self,
        context: &Context,
        ranges: &[Range<u64>],
        transfer: Transfer<'_>,
    ) -> Result<(), Fault> {
        let _locked = self.carrier.lock_for_zeroes(context, ranges)?;
        let done = self.ssd.submit(context.sqe, transfer);
        self.carrier.zeroed(ranges, done.is_ok());
        ranges.iter().for_each(|range| self.watches.written(range));
        Ok(done?)
    }

    pub(crate) fn was_read(&self, host: &Hosted, blocks: Blocks, effect: Effect) -> Reply {
        let bytes = blocks.data.len() as u64;
        self.log.count(|statistics| {
            statistics.reads += 1;
            statistics.bytes_read += bytes;
        });
        host.account.count(|statistics| {
            statistics.reads += 1;
            statistics.bytes_read += bytes;
        });
        Reply { blocks, effect }
    }

    pub(crate) fn was_written(&self, host: &Hosted, bytes: usize, effect: Effect) -> Reply {
        self.log.count(|statistics| {
            statistics.writes += 1;
            statistics.bytes_written += bytes as u64;
        });
        host.account.count(|statistics| {
            statistics.writes += 1;
            statistics.bytes_written += bytes as u64;
        });
        effect.into()
    }

    pub(crate) fn was_flushed(&self) -> Reply {
        self.log.count(|statistics| statistics.flushes += 1);
        Effect::None.into()
    }

    pub(crate) fn stored(&self, object: &Object) {
        self.log
            .count(|statistics| statistics.bytes_stored += object.len as u64);
    }
}
