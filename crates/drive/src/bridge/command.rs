//! A command on its way, and what it brings back.

use std::ops::Range;
use std::sync::Arc;

use toroid_engine::{CancelToken, PagingContext, StoreOutcome};
use toroid_nvme::{Cqe, Io, Sqe};

use super::access::{Hosted, KeyAccess};
use super::status::Fault;

/// What a successful command did in the engine, as dword 0 of its completion tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Effect {
    /// Nothing: plain data, or a column, which no register holds.
    None = 0,
    /// A part of an object was taken; others are to come.
    PartTaken = 1,
    /// The virtual register holds the object.
    Stored = 2,
    /// The program ran, and its result is in the data.
    Computed = 3,
    /// The data were read or written, but the engine could not take them; the error log says why.
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

    pub(crate) fn stored(outcome: StoreOutcome) -> Effect {
        match outcome {
            StoreOutcome::Complete => Effect::Stored,
            StoreOutcome::Incomplete => Effect::PartTaken,
            StoreOutcome::Superseded => Effect::NotLoaded,
        }
    }
}

/// Data of blocks, and their NVMe metadata where the image has them.
#[derive(Default)]
pub(crate) struct Blocks {
    pub(crate) data: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
}

/// What a command brings back.
pub(crate) struct Reply {
    pub(crate) blocks: Blocks,
    pub(crate) effect: Effect,
}

impl From<Effect> for Reply {
    fn from(effect: Effect) -> Reply {
        Reply {
            blocks: Blocks::default(),
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
}

impl Context {
    pub(crate) fn cid(&self) -> u16 {
        self.sqe.cid.get()
    }

    /// The command for which pages move.
    pub(crate) fn paging(&self) -> PagingContext {
        PagingContext {
            command_id: self.cid(),
            queue: self.serial,
        }
    }

    pub(crate) fn keys(&self) -> &KeyAccess {
        &self.host.identity.keys
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), Fault> {
        if self.cancel.is_cancelled() {
            return Err(Fault::cancelled());
        }
        Ok(())
    }
}

/// The blocks of a command.
pub(crate) fn blocks_of(io: Io) -> Range<u64> {
    io.slba..io.slba + u64::from(io.blocks)
}
