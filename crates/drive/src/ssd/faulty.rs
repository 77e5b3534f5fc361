//! Faults on chosen blocks of any SSD.

use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;

use super::{Done, Operation, Ssd, SsdError, check_range};

/// What goes wrong on some blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Reads that touch them fail with EIO.
    Read(Range<u64>),
    /// Writes that touch them fail with EIO, and change nothing.
    Write(Range<u64>),
    /// Writes that touch them fail with ENOSPC, and change nothing.
    Full(Range<u64>),
    /// Every flush, and every write with FUA, fails with EIO.
    Flush,
}

impl Injection {
    /// The same fault, `blocks` blocks further on.
    #[must_use]
    pub fn moved_by(self, blocks: u64) -> Injection {
        let moved =
            |lbas: Range<u64>| lbas.start.saturating_add(blocks)..lbas.end.saturating_add(blocks);
        match self {
            Injection::Read(lbas) => Injection::Read(moved(lbas)),
            Injection::Write(lbas) => Injection::Write(moved(lbas)),
            Injection::Full(lbas) => Injection::Full(moved(lbas)),
            Injection::Flush => Injection::Flush,
        }
    }
}

impl FromStr for Injection {
    type Err = String;

    /// `read:10..20`, `write:10..20`, `full:10..20` (the end is not part of it) or `flush`.
    fn from_str(text: &str) -> Result<Injection, String> {
        let wrong = || {
            format!(
                "{text:?} is not a fault; expected read:A..B, write:A..B or full:A..B with block numbers A < B, or flush"
            )
        };
        if text == "flush" {
            return Ok(Injection::Flush);
        }
        let (kind, lbas) = text.split_once(':').ok_or_else(wrong)?;
        let (start, end) = lbas.split_once("..").ok_or_else(wrong)?;
        let (start, end) = start.parse().ok().zip(end.parse().ok()).ok_or_else(wrong)?;
        let lbas: Range<u64> = start..end;
        match kind {
            _ if lbas.is_empty() => Err(wrong()),
            "read" => Ok(Injection::Read(lbas)),
            "write" => Ok(Injection::Write(lbas)),
            "full" => Ok(Injection::Full(lbas)),
            _ => Err(wrong()),
        }
    }
}

/// An SSD on which chosen blocks fail, for tests; asynchronous if the one below is.
pub struct FaultySsd {
    inner: Arc<dyn Ssd>,
    faults: RwLock<Vec<Injection>>,
}

impl FaultySsd {
    /// `inner`, without faults yet.
    pub fn new(inner: Arc<dyn Ssd>) -> FaultySsd {
        FaultySsd {
            inner,
            faults: RwLock::default(),
        }
    }

    /// Adds a fault, for operations from now on.
    pub fn inject(&self, fault: Injection) {
        self.faults
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(fault);
    }

    /// Takes all faults away.
    pub fn heal(&self) {
        self.faults
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// The first error that some fault gives.
    fn check(&self, meet: impl Fn(&Injection) -> Option<SsdError>) -> Result<(), SsdError> {
        let faults = self.faults.read().unwrap_or_else(PoisonError::into_inner);
        faults.iter().find_map(meet).map_or(Ok(()), Err)
    }

    /// The blocks of `bytes` bytes, where they exist; what does not exist is for the SSD to refuse.
    fn range(&self, lba: u64, bytes: usize) -> Range<u64> {
        let count = bytes as u64 / u64::from(self.block_size());
        match check_range(lba, count, self.blocks()) {
            Ok(()) => lba..lba + count,
            Err(_) => lba..lba,
        }
    }

    fn check_read(&self, lba: u64, bytes: usize) -> Result<(), SsdError> {
        let asked = self.range(lba, bytes);
        self.check(|fault| match fault {
            Injection::Read(lbas) if overlap(lbas, &asked) => Some(SsdError::Read {
                lba,
                source: error(Errno::IO),
            }),
            _ => None,
        })
    }

    fn check_write(&self, asked: &Range<u64>, fua: bool) -> Result<(), SsdError> {
        let lba = asked.start;
        self.check(|fault| match fault {
            Injection::Write(lbas) if overlap(lbas, asked) => {
                Some(SsdError::from_write(lba, error(Errno::IO)))
            }
            Injection::Full(lbas) if overlap(lbas, asked) => {
                Some(SsdError::from_write(lba, error(Errno::NOSPC)))
            }
            Injection::Flush if fua => Some(SsdError::from_write(lba, error(Errno::IO))),
            _ => None,
        })
    }

    fn check_flush(&self) -> Result<(), SsdError> {
        self.check(|fault| match fault {
            Injection::Flush => Some(SsdError::Flush {
                source: error(Errno::IO),
            }),
            _ => None,
        })
    }
}

fn error(errno: Errno) -> io::Error {
    errno.into()
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Ssd for FaultySsd {
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.check_read(lba, buf.len())?;
        self.inner.read(lba, buf)
    }

    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        self.check_write(&self.range(lba, data.len()), fua)?;
        self.inner.write(lba, data, fua)
    }

    fn flush(&self) -> Result<(), SsdError> {
        self.check_flush()?;
        self.inner.flush()
    }

    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.check_write(&(lba..lba.saturating_add(count)), false)?;
        self.inner.write_zeroes(lba, count)
    }

    fn try_read_now(&self, lba: u64, buf: &mut [u8]) -> Result<bool, SsdError> {
        self.check_read(lba, buf.len())?;
        self.inner.try_read_now(lba, buf)
    }

    fn is_asynchronous(&self) -> bool {
        self.inner.is_asynchronous()
    }

    fn submit(&self, operation: Operation, done: Done) {
        let checked = match &operation {
            Operation::Read { lba, buf } => self.check_read(*lba, buf.len()),
            Operation::Write { lba, data, fua } => {
                self.check_write(&self.range(*lba, data.len()), *fua)
            }
            Operation::Flush => self.check_flush(),
        };
        match checked {
            Ok(()) => self.inner.submit(operation, done),
            Err(error) => done(Err(error)),
        }
    }
}
