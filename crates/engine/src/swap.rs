//! The swap area, seen from the engine (platform paper, section 4.3).

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::address::SwapSlot;

/// The command that makes the engine page: the paging trigger command.
///
/// A [`Swap`] that issues NVMe commands gives them this command identifier and holds the trigger's completion back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PagingContext {
    /// Command identifier of the trigger.
    pub command_id: u16,
    /// Submission queue of the trigger; opaque to the engine.
    pub queue: u64,
}

/// A page could not be moved to or from the swap area. Carries the cause, which can be downcast.
#[derive(Debug)]
pub struct SwapError(Box<dyn Error + Send + Sync>);

impl SwapError {
    /// An error with this cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> SwapError {
        SwapError(cause.into())
    }

    /// The cause as a `T`, if it is one.
    #[must_use]
    pub fn cause<T: Error + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Display for SwapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SwapError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Moves pages between main memory and the swap area.
///
/// The engine holds no lock during these calls, may make several at a time from several threads, never two at a time for
/// the same slot, and never pages a slot in that was not paged out before. Lengths are multiples of 4096 bytes, and slots
/// stay below the `swap_bytes` of the engine's configuration. The calls must not come back to the engine and must not
/// panic.
pub trait Swap: Send + Sync {
    /// Writes a page to the swap area.
    ///
    /// # Errors
    /// Fails the triggering command; the page then stays in main memory.
    fn page_out(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &[u8],
    ) -> Result<(), SwapError>;

    /// Reads a page back, as long as it was when paged out.
    ///
    /// # Errors
    /// Fails the triggering command; the page then stays in the swap area.
    fn page_in(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &mut [u8],
    ) -> Result<(), SwapError>;
}

/// A swap area in the host's memory: for tests, and for engines without an SSD.
#[derive(Debug, Default)]
pub struct MemorySwap {
    slots: Mutex<BTreeMap<SwapSlot, Vec<u8>>>,
}

impl MemorySwap {
    /// An empty swap area.
    #[must_use]
    pub fn new() -> MemorySwap {
        MemorySwap::default()
    }
}

impl Swap for MemorySwap {
    fn page_out(
        &self,
        _context: PagingContext,
        slot: SwapSlot,
        data: &[u8],
    ) -> Result<(), SwapError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.insert(slot, data.to_vec());
        Ok(())
    }

    fn page_in(
        &self,
        _context: PagingContext,
        slot: SwapSlot,
        data: &mut [u8],
    ) -> Result<(), SwapError> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.get(&slot) {
            Some(page) if page.len() == data.len() => {
                data.copy_from_slice(page);
                Ok(())
            }
            Some(page) => Err(SwapError::new(format!(
                "swap slot {} holds {} bytes (expected {})",
                slot.unit(),
                page.len(),
                data.len()
            ))),
            None => Err(SwapError::new(format!(
                "swap slot {} holds nothing",
                slot.unit()
            ))),
        }
    }
}
