//! Blocks in memory, with faults and power cuts on demand.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Ssd, SsdError, check_buffer, check_range};

type Block = Box<[u8]>;

/// What goes wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write fails with EIO and no byte of it arrives.
    Error,
    /// The write fails with ENOSPC after its first `bytes` bytes have arrived.
    Full {
        /// Bytes that arrive.
        bytes: usize,
    },
    /// The write fails with EIO after its first `bytes` bytes have arrived.
    Torn {
        /// Bytes that arrive.
        bytes: usize,
    },
    /// Power is lost after the first `bytes` bytes of the write have arrived, on the medium too; everything fails until
    /// [`MemSsd::power_on`].
    PowerLoss {
        /// Bytes that arrive.
        bytes: usize,
    },
}

/// A sparse SSD in memory, for tests. Writes without FUA are volatile until a flush, and lost at [`MemSsd::power_off`].
pub struct MemSsd {
    block_size: u32,
    blocks: u64,
    state: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    live: HashMap<u64, Block>,
    /// What the medium holds in place of the blocks written since the last flush; `None` is zeroes.
    durable: HashMap<u64, Option<Block>>,
    off: bool,
    /// Writes that pass before the fault, and the fault.
    write_fault: Option<(u64, Fault)>,
    /// Reads that pass before one fails.
    read_fault: Option<u64>,
    flush_fault: bool,
    flush_failed: bool,
}

impl MemSsd {
    /// `blocks` blocks of `block_size` bytes (at least 1), all zero.
    pub fn new(block_size: u32, blocks: u64) -> MemSsd {
        MemSsd {
            block_size: block_size.max(1),
            blocks,
            state: Mutex::default(),
        }
    }

    /// Makes the `nth` write from now (1 is the next) go wrong; replaces a fault set before.
    pub fn fail_write(&self, nth: u64, fault: Fault) {
        self.state().write_fault = Some((nth.saturating_sub(1), fault));
    }

    /// Makes the `nth` read from now (1 is the next) fail with EIO.
    pub fn fail_read(&self, nth: u64) {
        self.state().read_fault = Some(nth.saturating_sub(1));
    }

    /// Makes the next flush fail with EIO.
    pub fn fail_flush(&self) {
        self.state().flush_fault = true;
    }

    /// Cuts the power: volatile writes are lost, and everything fails until [`MemSsd::power_on`].
    pub fn power_off(&self) {
        let mut state = self.state();
        state.off = true;
        let lost = std::mem::take(&mut state.durable);
        for (lba, block) in lost {
            match block {
                Some(block) => state.live.insert(lba, block),
                None => state.live.remove(&lba),
            };
        }
    }

    /// Restores the power, and forgets all faults.
    pub fn power_on(&self) {
        let mut state = self.state();
        state.off = false;
        state.write_fault = None;
        state.read_fault = None;
        state.flush_fault = false;
        state.flush_failed = false;
    }

    /// Blocks that hold data: written, and not set to zero since.
    pub fn allocated_blocks(&self) -> usize {
        self.state().live.len()
    }

    fn state(&self) -> MutexGuard<'_, Contents> {
        // No operation leaves the maps in a state that a later one could not use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the first `len` bytes of `data`.
    fn store(&self, state: &mut Contents, lba: u64, data: &[u8], len: usize, durable: bool) {
        let block_size = self.block_size as usize;
        let data = &data[..len.min(data.len())];
        for (i, part) in data.chunks(block_size).enumerate() {
            let lba = lba + i as u64;
            let old = state.live.get(&lba).cloned();
            let mut block = old
                .clone()
                .unwrap_or_else(|| vec![0; block_size].into_boxed_slice());
            block[..part.len()].copy_from_slice(part);
            state.live.insert(lba, block);
            if durable {
                state.durable.remove(&lba);
            } else {
                state.durable.entry(lba).or_insert(old);
            }
        }
    }
}

fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

fn enospc() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

impl Contents {
    fn write_fault(&mut self) -> Option<Fault> {
        let (skip, fault) = self.write_fault?;
        if skip > 0 {
            self.write_fault = Some((skip - 1, fault));
            return None;
        }
        self.write_fault = None;
        Some(fault)
    }
}

impl Ssd for MemSsd {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        check_buffer(lba, buf.len(), self.block_size, self.blocks)?;
        let mut state = self.state();
        let fails = state.read_fault == Some(0);
        state.read_fault = state.read_fault.and_then(|skip| skip.checked_sub(1));
        if state.off || fails {
            return Err(SsdError::Read { lba, source: eio() });
        }
        for (i, part) in buf.chunks_mut(self.block_size as usize).enumerate() {
            match state.live.get(&(lba + i as u64)) {
                Some(block) => part.copy_from_slice(block),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        check_buffer(lba, data.len(), self.block_size, self.blocks)?;
        let mut state = self.state();
        if state.off {
            return Err(SsdError::from_write(lba, eio()));
        }
        if fua && state.flush_failed {
            return Err(SsdError::FlushFailedBefore);
        }
        let (bytes, error) = match state.write_fault() {
            None => {
                self.store(&mut state, lba, data, data.len(), fua);
                return Ok(());
            }
            Some(Fault::Error) => (0, eio()),
            Some(Fault::Full { bytes }) => (bytes, enospc()),
            Some(Fault::Torn { bytes }) => (bytes, eio()),
            Some(Fault::PowerLoss { bytes }) => {
                drop(state);
                self.power_off();
                self.store(&mut self.state(), lba, data, bytes, true);
                return Err(SsdError::from_write(lba, eio()));
            }
        };
        self.store(&mut state, lba, data, bytes, false);
        Err(SsdError::from_write(lba, error))
    }

    fn flush(&self) -> Result<(), SsdError> {
        let mut state = self.state();
        if state.flush_failed {
            return Err(SsdError::FlushFailedBefore);
        }
        if state.off || state.flush_fault {
            state.flush_failed = true;
            return Err(SsdError::Flush { source: eio() });
        }
        state.durable.clear();
        Ok(())
    }

    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        check_range(lba, count, self.blocks)?;
        let mut state = self.state();
        if state.off {
            return Err(SsdError::from_write(lba, eio()));
        }
        let lbas = lba..lba + count;
        let written: Vec<u64> = state.live.keys().copied().collect();
        for lba in written.into_iter().filter(|lba| lbas.contains(lba)) {
            let old = state.live.remove(&lba);
            state.durable.entry(lba).or_insert(old);
        }
        Ok(())
    }

    fn try_read_now(&self, lba: u64, buf: &mut [u8]) -> Result<bool, SsdError> {
        self.read(lba, buf).map(|()| true)
    }

    /// Memory is never waited for.
    fn is_asynchronous(&self) -> bool {
        true
    }
}
