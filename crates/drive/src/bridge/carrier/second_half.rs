//! Secure computing metadata in the second half of the LBA space, which registers blocks of the first.

use std::ops::Range;
use std::sync::Arc;

use toroid_isa::metadata::ScMetadata;
use toroid_nvme::{Io, Sqe, Status};

use super::runs::{RunView, Runs};
use super::{Carrier, Description, PlainLock};
use crate::bridge::access::KeyAccess;
use crate::bridge::command::{Blocks, Context, blocks_of};
use crate::bridge::object;
use crate::bridge::ssd_side::{NSID, SsdSide, Transfer};
use crate::bridge::status::{Fault, METADATA_MISMATCH};
use crate::locks::Guard;

/// How often metadata are read again that other commands take out of memory.
const LOAD_TRIES: usize = 16;

pub(crate) struct SecondHalf {
    ssd: Arc<SsdSide>,
    runs: Runs,
    block_size: u64,
}

impl SecondHalf {
    pub(crate) fn new(ssd: Arc<SsdSide>, mdts: u32) -> SecondHalf {
        let image = ssd.image().info();
        SecondHalf {
            runs: Runs::new(image, mdts),
            block_size: image.block_size().into(),
            ssd,
        }
    }

    /// Reads the metadata of blocks of the first half that are not in memory.
    fn load(&self, context: &Context, blocks: &Range<u64>) -> Result<(), Fault> {
        self.runs.load(blocks, |slba, data| {
            context.check_cancelled()?;
            let blocks = data.len() as u64 / self.block_size;
            let sqe = Sqe::read(context.cid(), NSID, slba, blocks.saturating_sub(1) as u16);
            let metadata = &mut [][..];
            Ok(self.ssd.submit(sqe, Transfer::In { data, metadata })?)
        })
    }

    /// Takes a lock under which the host may use these blocks.
    fn lock<'a>(
        &'a self,
        context: &Context,
        ranges: &[Range<u64>],
        lock: fn(&'a Runs) -> Guard<'a>,
    ) -> Result<Guard<'a>, Fault> {
        for _ in 0..LOAD_TRIES {
            if context.keys().only().is_some() {
                for blocks in ranges.iter().flat_map(|range| self.runs.decisive(range)) {
                    self.load(context, &blocks)?;
                }
            }
            let guard = lock(&self.runs);
            if self.runs.check_access(ranges, context.keys())? {
                return Ok(guard);
            }
        }
        Err(not_loaded())
    }

    /// Locks blocks whose run is to be looked up, and looks it up. Blocks of the second half are in none.
    fn lock_run(&self, context: &Context, io: Io) -> Result<(Guard<'_>, Option<RunView>), Fault> {
        let blocks = blocks_of(io);
        if self.runs.contains(&blocks)? {
            let guard = self.lock(context, &[blocks], Runs::begin_read)?;
            return Ok((guard, None));
        }
        let guard = self.lock_loaded(context, &blocks, Runs::begin_read)?;
        let run = self.runs.lookup(&blocks)?;
        Ok((guard, run))
    }

    /// Takes a lock under which the host may use these blocks of the first half, and their metadata are in memory.
    fn lock_loaded<'a>(
        &'a self,
        context: &Context,
        blocks: &Range<u64>,
        lock: fn(&'a Runs) -> Guard<'a>,
    ) -> Result<Guard<'a>, Fault> {
        for _ in 0..LOAD_TRIES {
            self.load(context, blocks)?;
            let guard = self.lock(context, std::slice::from_ref(blocks), lock)?;
            if self.runs.is_loaded(blocks) {
                return Ok(guard);
            }
        }
        Err(not_loaded())
    }

    /// What describes a command on blocks of this run.
    fn describe(&self, io: Io, run: RunView, of_run: &ScMetadata) -> Result<Description, Fault> {
        let skipped = (io.slba - run.start) * self.block_size;
        Ok(Description {
            sc: of_run.with_offset(of_run.offset() + skipped)?,
            run: Some(run),
        })
    }

    /// Puts metadata into the head of the block that registers a run.
    fn put_metadata(
        &self,
        context: &Context,
        io: Io,
        run: &RunView,
        sc: &ScMetadata,
    ) -> Result<(), Fault> {
        let head = Io {
            slba: self.runs.metadata_lba(run.start),
            blocks: 1,
            ..io
        };
        let mut block = self.ssd.fetch(context.cid(), head)?;
        block.data[..ScMetadata::SIZE].copy_from_slice(&sc.to_bytes());
        Ok(self.ssd.put(context.cid(), head, &block)?)
    }

    /// Writes data and the metadata that describe them from now on: both or none, but for a loss of power.
    fn put_both(
        &self,
        context: &Context,
        io: Io,
        blocks: &Blocks,
        run: &RunView,
        sc: &ScMetadata,
    ) -> Result<(), Fault> {
        let old = self.ssd.fetch(context.cid(), io)?;
        self.ssd.put(context.cid(), io, blocks)?;
        let put = self.put_metadata(context, io, run, sc);
        if let Err(fault) = &put {
            if let Err(undo) = self.ssd.put(context.cid(), io, &old) {
                tracing::error!(%fault, %undo, lba = io.slba, "a failed write could not be undone");
            }
            let lba = self.runs.metadata_lba(run.start);
            self.runs.forget(&(lba..lba + 1));
        }
        put
    }
}

/// Others keep taking the metadata of the blocks out of memory.
fn not_loaded() -> Fault {
    Fault::passing(
        Status::NAMESPACE_NOT_READY,
        "the metadata of the blocks must be read again",
    )
}

impl Carrier for SecondHalf {
    fn stored(&self, context: &Context, io: Io) -> Result<Blocks, Fault> {
        let _shared = self.lock(context, &[blocks_of(io)], Runs::begin_read)?;
        Ok(self.ssd.fetch(context.cid(), io)?)
    }

    fn read(&self, context: &Context, io: Io) -> Result<(Blocks, Option<Description>), Fault> {
        let (_shared, run) = self.lock_run(context, io)?;
        let mut blocks = self.ssd.fetch(context.cid(), io)?;
        self.overlay(io, &mut blocks.data);
        let description = run.map(|run| self.describe(io, run, &run.stored));
        Ok((blocks, description.transpose()?))
    }

    fn lock_for_write(
        &self,
        context: &Context,
        io: Io,
        _: &[u8],
    ) -> Result<(Guard<'_>, Option<Description>), Fault> {
        let (guard, run) = self.lock_run(context, io)?;
        let description = run.map(|run| self.describe(io, run, &run.registered));
        Ok((guard, description.transpose()?))
    }

    fn register(&self, context: &Context, io: Io, blocks: &Blocks) -> Result<bool, Fault> {
        let written = blocks_of(io);
        if !self.runs.contains(&written)? {
            return Ok(false);
        }
        let registered = self.runs.check_write(io.slba, &blocks.data, |sc| {
            context.keys().check_register(sc.vr())?;
            object::check(sc).map(|_params| ())
        })?;
        let starts = io.slba - self.runs.metadata_lba(0)..;
        let mut ranges = vec![written.clone()];
        ranges.extend(starts.zip(&registered).filter_map(|(start, sc)| {
            let blocks = u64::from(sc.as_ref()?.blocks());
            Some(start..start + blocks)
        }));
        let _update = self.lock(context, &ranges, Runs::begin_update)?;
        if let Err(error) = self.ssd.put(context.cid(), io, blocks) {
            self.runs.forget(&written);
            return Err(error.into());
        }
        self.runs.written(io.slba, registered);
        Ok(true)
    }

    fn commit(
        &self,
        context: &Context,
        io: Io,
        blocks: &Blocks,
        description: &Description,
        result: Option<ScMetadata>,
    ) -> Result<(), Fault> {
        let Some(run) = &description.run else {
            return Err(Fault::passing(
                Status::INTERNAL_ERROR,
                "the blocks of the object are in no run",
            ));
        };
        let _update = self.lock_loaded(context, &blocks_of(io), Runs::begin_update)?;
        if !self.runs.is_current(run) {
            return Err(Fault::passing(
                METADATA_MISMATCH,
                format!(
                    "the metadata at LBA {} changed during the command",
                    self.runs.metadata_lba(run.start)
                ),
            ));
        }
        let stored = result.unwrap_or(run.registered);
        if stored == run.block {
            self.ssd.put(context.cid(), io, blocks)?;
        } else {
            self.put_both(context, io, blocks, run, &stored)?;
        }
        self.runs.data_written(run, stored);
        Ok(())
    }

    fn lock_for_zeroes(
        &self,
        context: &Context,
        ranges: &[Range<u64>],
    ) -> Result<Guard<'_>, Fault> {
        self.lock(context, ranges, Runs::begin_update)
    }

    fn zeroed(&self, ranges: &[Range<u64>], succeeded: bool) {
        for blocks in ranges {
            if succeeded {
                self.runs.zeroed(blocks);
            } else {
                self.runs.forget(blocks);
            }
        }
    }

    fn delivered(&self, description: &Description, result: Option<&ScMetadata>) {
        if let Some(run) = &description.run {
            self.runs.delivered(run, result.copied());
        }
    }

    fn nvme_metadata(&self, _: &ScMetadata, _: u32) -> Result<Vec<u8>, Fault> {
        Ok(Vec::new())
    }

    fn is_plain_write(&self, io: Io, _: &[u8]) -> bool {
        self.runs.is_plain(&blocks_of(io))
    }

    fn try_lock_for_plain_write(&self, io: Io) -> Option<PlainLock<'_>> {
        let lock = self.try_lock_for_plain_read()?;
        self.runs.is_plain(&blocks_of(io)).then_some(lock)
    }

    fn try_lock_for_plain_read(&self) -> Option<PlainLock<'_>> {
        let guard = self.runs.try_begin_read()?;
        Some(PlainLock {
            _guard: Some(guard),
        })
    }

    fn is_plain_read(&self, keys: &KeyAccess, io: Io) -> bool {
        let anyone = keys.only().is_none();
        anyone && self.runs.is_second(io.slba) || self.runs.is_plain(&blocks_of(io))
    }

    /// While the SSD works, a run of another host's may come and go: a bound host must not see what it held.
    fn may_read_unlocked(&self, keys: &KeyAccess) -> bool {
        keys.only().is_none()
    }

    fn overlay(&self, io: Io, data: &mut [u8]) {
        if self.runs.is_second(io.slba) {
            self.runs.overlay(io.slba, data);
        }
    }
}
