//! How secure computing metadata travels with the blocks that they describe: one implementation for each form that an image
//! can have.

pub(crate) mod nvme_metadata;
mod recent;
mod runs;
pub(crate) mod second_half;

use std::ops::Range;

use toroid_isa::metadata::ScMetadata;
use toroid_nvme::Io;

use super::access::KeyAccess;
use super::command::{Blocks, Context};
use super::status::Fault;
use crate::locks::Guard;
use runs::RunView;

/// What describes the blocks of a command.
#[derive(Clone, Copy)]
pub(crate) struct Description {
    /// With the offset of the command's first byte.
    pub(crate) sc: ScMetadata,
    /// In the second half: the run that the command lies in.
    run: Option<RunView>,
}

impl From<ScMetadata> for Description {
    fn from(sc: ScMetadata) -> Description {
        Description { sc, run: None }
    }
}

/// Keeps plain blocks plain. The form with NVMe metadata needs no lock for that: data and metadata change together.
pub(crate) struct PlainLock<'a> {
    _guard: Option<Guard<'a>>,
}

/// Locks, reads and writes blocks together with what describes them.
///
/// Every method that takes a [`Context`] also checks that its host may use the blocks ([`KeyAccess`]). Locks are held for the
/// time of SSD commands only, and whoever holds one takes no lock of the engine.
pub(crate) trait Carrier: Send + Sync {
    /// Reads blocks as the SSD holds them.
    fn stored(&self, context: &Context, io: Io) -> Result<Blocks, Fault>;

    /// Reads blocks as a host sees them, and what describes them; `None` for plain data.
    fn read(&self, context: &Context, io: Io) -> Result<(Blocks, Option<Description>), Fault>;

    /// Locks blocks that are to be written, with the `metadata` of the command, so that plain data stay plain. Gives what
    /// describes the data of the command; `None` for plain data.
    fn lock_for_write(
        &self,
        context: &Context,
        io: Io,
        metadata: &[u8],
    ) -> Result<(Guard<'_>, Option<Description>), Fault>;

    /// Writes blocks, unless they are data: metadata that register other blocks. Says whether it did.
    fn register(&self, context: &Context, io: Io, blocks: &Blocks) -> Result<bool, Fault>;

    /// Writes an object's part, or the `result` that takes its place, with what describes it. Locks the blocks, and checks
    /// that they are still described as `description` says.
    ///
    /// The caller tells the [`Watches`](super::watches::Watches) afterwards, without the lock. A read in between delivers the new
    /// blocks, and starts again for nothing. A read of the old ones cannot bring them to the register before: it waits for
    /// what the caller has prepared, whose effect comes last, or is dropped with it.
    fn commit(
        &self,
        context: &Context,
        io: Io,
        blocks: &Blocks,
        description: &Description,
        result: Option<ScMetadata>,
    ) -> Result<(), Fault>;

    /// Locks blocks that are to become zero.
    fn lock_for_zeroes(&self, context: &Context, ranges: &[Range<u64>])
    -> Result<Guard<'_>, Fault>;

    /// Blocks that the caller has locked are zero, or, where that failed, in doubt.
    fn zeroed(&self, ranges: &[Range<u64>], succeeded: bool);

    /// A read has delivered the blocks' data, or a program's `result` in their place.
    fn delivered(&self, description: &Description, result: Option<&ScMetadata>);

    /// NVMe metadata for blocks that hold one part of an object.
    fn nvme_metadata(&self, first: &ScMetadata, blocks: u32) -> Result<Vec<u8>, Fault>;

    /// Whether a write is known to be of plain data that replace plain data.
    fn is_plain_write(&self, io: Io, metadata: &[u8]) -> bool;

    /// Locks the blocks of a plain write, without waiting and if it is still plain.
    fn try_lock_for_plain_write(&self, io: Io) -> Option<PlainLock<'_>>;

    /// Locks blocks for a plain read, without waiting.
    fn try_lock_for_plain_read(&self) -> Option<PlainLock<'_>>;

    /// Whether a read with zero NVMe metadata is of plain data.
    fn is_plain_read(&self, keys: &KeyAccess, io: Io) -> bool;

    /// Whether a plain read may go on without a lock, if it is found plain again at its end.
    fn may_read_unlocked(&self, keys: &KeyAccess) -> bool;

    /// Puts what describes delivered results into blocks that a host reads.
    fn overlay(&self, io: Io, data: &mut [u8]);
}
