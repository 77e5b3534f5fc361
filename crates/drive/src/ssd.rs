//! The SSD behind the drive: logical blocks in a file or on a block device ([`FileSsd`]) or, for tests, in memory ([`MemSsd`])
//! or on an SSD with faults ([`FaultySsd`]).
//!
//! Every SSD can be waited for ([`Ssd::read`] and the others). One that is asynchronous also takes operations that nobody waits
//! for ([`Ssd::submit`]), and answers reads at once where it can ([`Ssd::try_read_now`]).

mod faulty;
mod file;
mod memory;
mod pool;
mod sync;
mod transfer;
mod uring;

use std::io;
use std::thread::JoinHandle;

use thiserror::Error;
use toroid_nvme::Status;

pub use faulty::{FaultySsd, Injection};
pub(crate) use file::size_of;
pub use file::{FileSsd, IoEngine, IoMode, IoOptions};
pub use memory::{Fault, MemSsd};

/// Logical blocks on a medium. All methods can be called from several threads at once; calls that overlap in time and in
/// blocks are not ordered, so a caller for whom that matters holds a lock.
pub trait Ssd: Send + Sync {
    /// Bytes per block.
    fn block_size(&self) -> u32;

    /// Number of blocks.
    fn blocks(&self) -> u64;

    /// Fills `buf`, a whole number of blocks, from block `lba` on. On failure the content of `buf` is unspecified.
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError>;

    /// Writes `data`, a whole number of blocks, from block `lba` on. With `fua` the blocks are on non-volatile media on return.
    /// On failure each of these blocks may hold old bytes, new bytes, or some of each.
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError>;

    /// Makes every completed write non-volatile. Once a flush has failed, all later ones fail: the medium no longer knows
    /// what it lost.
    fn flush(&self) -> Result<(), SsdError>;

    /// Makes `count` blocks from `lba` on read as zeroes, and gives their space back where the medium can.
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError>;

    /// Fills `buf` like [`Ssd::read`], and says true, if that takes no waiting for the medium; else says false, with the
    /// content of `buf` unspecified.
    fn try_read_now(&self, _lba: u64, _buf: &mut [u8]) -> Result<bool, SsdError> {
        Ok(false)
    }

    /// Whether `count` blocks from `lba` on are known to be zero because nothing was ever written to them. To ask is much
    /// cheaper than to read them.
    fn is_hole(&self, _lba: u64, _count: u64) -> bool {
        false
    }

    /// Whether [`Ssd::submit`] returns without waiting for the medium.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Starts an operation, and has `done` called when it has ended: on any thread, and perhaps before this returns. Dropping
    /// the SSD waits for all of them.
    fn submit(&self, operation: Operation, done: Done) {
        done(match operation {
            Operation::Read { lba, mut buf } => self.read(lba, &mut buf).map(|()| buf),
            Operation::Write { lba, data, fua } => self.write(lba, &data, fua).map(|()| data),
            Operation::Flush => self.flush().map(|()| Vec::new()),
        });
    }
}

/// What an SSD can be asked to do without waiting, as the method of the same name does it.
#[derive(Debug)]
pub enum Operation {
    /// [`Ssd::read`].
    Read {
        /// First block.
        lba: u64,
        /// To be filled: a whole number of blocks.
        buf: Vec<u8>,
    },
    /// [`Ssd::write`].
    Write {
        /// First block.
        lba: u64,
        /// A whole number of blocks.
        data: Vec<u8>,
        /// On non-volatile media when it ends.
        fua: bool,
    },
    /// [`Ssd::flush`].
    Flush,
}

/// Told how an operation ended; gets its buffer back.
///
/// It may run on the thread that moves all others' bytes too, so it must neither wait nor work for long.
pub type Done = Box<dyn FnOnce(Result<Vec<u8>, SsdError>) + Send>;

/// Why the SSD did not do what it was asked.
#[derive(Debug, Error)]
pub enum SsdError {
    /// Blocks that do not exist.
    #[error("{count} blocks from block {lba} exceed the medium of {blocks} blocks")]
    OutOfRange {
        /// First block.
        lba: u64,
        /// Number of blocks.
        count: u64,
        /// Blocks of the medium.
        blocks: u64,
    },
    /// A buffer that does not have the expected length.
    #[error("buffer of {found} bytes; expected {expected}")]
    BufferLength {
        /// What was expected.
        expected: String,
        /// Bytes found.
        found: usize,
    },
    /// No space left (ENOSPC), or the user's quota is used up (EDQUOT).
    #[error("no space left for the write at block {lba}")]
    Full {
        /// First block of the write.
        lba: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The medium did not deliver the data.
    #[error("read at block {lba} failed")]
    Read {
        /// First block of the read.
        lba: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The medium did not take the data.
    #[error("write at block {lba} failed")]
    Write {
        /// First block of the write.
        lba: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The medium did not make earlier writes non-volatile.
    #[error("flush failed")]
    Flush {
        /// What the operating system said.
        source: io::Error,
    },
    /// A flush failed before, so nothing can be promised until the medium is opened anew.
    #[error("an earlier flush failed; open the drive anew and check its content")]
    FlushFailedBefore,
}

impl SsdError {
    /// The NVMe status that a host gets.
    pub fn status(&self) -> Status {
        match self {
            SsdError::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE,
            SsdError::BufferLength { .. } => Status::INVALID_FIELD,
            SsdError::Full { .. } => Status::CAPACITY_EXCEEDED,
            SsdError::Read { .. } => Status::UNRECOVERED_READ_ERROR,
            SsdError::Write { .. } | SsdError::Flush { .. } | SsdError::FlushFailedBefore => {
                Status::WRITE_FAULT
            }
        }
    }

    fn from_write(lba: u64, source: io::Error) -> SsdError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                SsdError::Full { lba, source }
            }
            _ => SsdError::Write { lba, source },
        }
    }
}

/// Checks that blocks exist.
fn check_range(lba: u64, count: u64, blocks: u64) -> Result<(), SsdError> {
    match lba.checked_add(count) {
        Some(end) if end <= blocks => Ok(()),
        _ => Err(SsdError::OutOfRange { lba, count, blocks }),
    }
}

/// Checks that a buffer holds whole blocks, and that they exist.
fn check_buffer(lba: u64, len: usize, block_size: u32, blocks: u64) -> Result<(), SsdError> {
    if !len.is_multiple_of(block_size as usize) {
        return Err(SsdError::BufferLength {
            expected: format!("a multiple of {block_size}"),
            found: len,
        });
    }
    check_range(lba, len as u64 / u64::from(block_size), blocks)
}

/// Waits for the end of a thread; not if it is the thread itself that lets go of the last of its owners.
fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        // The threads catch panics of others, and have none of their own.
        let _ = thread.join();
    }
}
