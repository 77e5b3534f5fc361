//! Secure computing metadata as NVMe metadata: 64 bytes for each block, moved together with its data.

use std::ops::Range;
use std::sync::Arc;

use toroid_isa::metadata::ScMetadata;
use toroid_nvme::Io;

use super::{Carrier, Description, PlainLock};
use crate::bridge::access::KeyAccess;
use crate::bridge::command::{Blocks, Context, blocks_of};
use crate::bridge::ssd_side::{NSID, SsdSide};
use crate::bridge::status::{Fault, METADATA_INVALID, METADATA_MISMATCH};
use crate::locks::{Guard, RangeLocks};
use futures::executor::block_on;

pub(crate) struct NvmeMetadata {
    ssd: Arc<SsdSide>,
    /// Blocks that commands work on.
    locks: RangeLocks,
    block_size: u64,
    /// Most blocks of an SSD command.
    most: u64,
}

impl NvmeMetadata {
    pub(crate) fn new(ssd: Arc<SsdSide>, mdts: u32) -> NvmeMetadata {
        let block_size = ssd.image().info().block_size();
        NvmeMetadata {
            ssd,
            locks: RangeLocks::default(),
            block_size: block_size.into(),
            most: u64::from(mdts / block_size),
        }
    }

    /// Checks that the host may use what the blocks hold. The caller has locked them.
    fn check_stored(&self, context: &Context, ranges: &[Range<u64>]) -> Result<(), Fault> {
        if context.keys().only().is_none() {
            return Ok(());
        }
        for range in ranges {
            for slba in range.clone().step_by(self.most as usize) {
                let io = Io {
                    nsid: NSID,
                    slba,
                    blocks: self.most.min(range.end - slba) as u32,
                    fua: false,
                };
                let stored = self.ssd.fetch(context.cid(), io)?;
                context.keys().check_metadata(&stored.metadata)?;
                context.check_cancelled()?;
            }
        }
        Ok(())
    }

    /// The metadata of the first block, if that of the others continues it block by block; `None` if all is zero.
    fn describe(&self, metadata: &[u8], blocks: u32) -> Result<Option<Description>, Fault> {
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
        Ok(Some(sc.into()))
    }
}

impl Carrier for NvmeMetadata {
    fn stored(&self, context: &Context, io: Io) -> Result<Blocks, Fault> {
        let _shared = block_on(self.locks.lock(&[blocks_of(io)], false));
        let blocks = self.ssd.fetch(context.cid(), io)?;
        context.keys().check_metadata(&blocks.metadata)?;
        Ok(blocks)
    }

    fn read(&self, context: &Context, io: Io) -> Result<(Blocks, Option<Description>), Fault> {
        let blocks = self.stored(context, io)?;
        let description = self.describe(&blocks.metadata, io.blocks)?;
        Ok((blocks, description))
    }

    fn lock_for_write(
        &self,
        context: &Context,
        io: Io,
        metadata: &[u8],
    ) -> Result<(Guard<'_>, Option<Description>), Fault> {
        let guard = self.lock_for_zeroes(context, &[blocks_of(io)])?;
        Ok((guard, self.describe(metadata, io.blocks)?))
    }

    fn register(&self, _: &Context, _: Io, _: &Blocks) -> Result<bool, Fault> {
        Ok(false)
    }

    fn commit(
        &self,
        context: &Context,
        io: Io,
        blocks: &Blocks,
        _: &Description,
        _: Option<ScMetadata>,
    ) -> Result<(), Fault> {
        let _locked = self.lock_for_zeroes(context, &[blocks_of(io)])?;
        Ok(self.ssd.put(context.cid(), io, blocks)?)
    }

    fn lock_for_zeroes(
        &self,
        context: &Context,
        ranges: &[Range<u64>],
    ) -> Result<Guard<'_>, Fault> {
        let guard = block_on(self.locks.lock(ranges, true));
        self.check_stored(context, ranges)?;
        Ok(guard)
    }

    fn zeroed(&self, _: &[Range<u64>], _: bool) {}

    fn delivered(&self, _: &Description, _: Option<&ScMetadata>) {}

    fn nvme_metadata(&self, first: &ScMetadata, blocks: u32) -> Result<Vec<u8>, Fault> {
        let mut metadata = Vec::with_capacity(blocks as usize * ScMetadata::SIZE);
        for block in 0..u64::from(blocks) {
            let offset = first.offset() + block * self.block_size;
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

    fn is_plain_write(&self, _: Io, metadata: &[u8]) -> bool {
        metadata.iter().all(|byte| *byte == 0)
    }

    fn try_lock_for_plain_write(&self, _: Io) -> Option<PlainLock<'_>> {
        Some(PlainLock { _guard: None })
    }

    fn try_lock_for_plain_read(&self) -> Option<PlainLock<'_>> {
        Some(PlainLock { _guard: None })
    }

    fn is_plain_read(&self, _: &KeyAccess, _: Io) -> bool {
        true
    }

    fn may_read_unlocked(&self, _: &KeyAccess) -> bool {
        true
    }

    fn overlay(&self, _: Io, _: &mut [u8]) {}
}
