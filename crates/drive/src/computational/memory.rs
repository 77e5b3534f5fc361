//! Memory namespaces: bytes, and the commands on them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use toroid_nvme::{Sqe, Status};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode;
use crate::bridge::Fault;

/// Addresses and lengths are multiples of it.
pub(super) const GRANULARITY: u64 = 4;

/// The content of a memory namespace.
pub(super) struct Memory {
    pub(super) nsid: u32,
    bytes: Mutex<Vec<u8>>,
}

impl Memory {
    /// Zeroes.
    pub(super) fn new(nsid: u32, bytes: u32) -> Memory {
        Memory {
            nsid,
            bytes: Mutex::new(vec![0; bytes as usize]),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // Bytes are never inconsistent.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> u64 {
        self.lock().len() as u64
    }

    /// Calls `work` with these bytes, if there are so many.
    fn with<T>(&self, span: Span, work: impl FnOnce(&mut [u8]) -> T) -> Result<T, Fault> {
        let mut bytes = self.lock();
        let len = bytes.len();
        match span.of(&mut bytes) {
            Some(found) => Ok(work(found)),
            None => Err(Fault::new(
                Status::INVALID_FIELD,
                format!("{span} of namespace {}, which has {len}", self.nsid),
            )),
        }
    }

    pub(super) fn read(&self, span: Span) -> Result<Vec<u8>, Fault> {
        self.with(span, |bytes| bytes.to_vec())
    }

    /// Writes all of `data`, from `start` on.
    pub(super) fn write(&self, start: u64, data: &[u8]) -> Result<(), Fault> {
        let len = data.len() as u64;
        self.with(Span { start, len }, |bytes| bytes.copy_from_slice(data))
    }

    /// Sets bytes to zero.
    pub(super) fn fill(&self, span: Span) -> Result<(), Fault> {
        self.with(span, |bytes| bytes.fill(0))
    }
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) len: u64,
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes from byte {}", self.len, self.start)
    }
}

impl Span {
    /// One past the last byte.
    pub(super) fn end(self) -> Option<u64> {
        self.start.checked_add(self.len)
    }

    pub(super) fn is_aligned(self) -> bool {
        self.start.is_multiple_of(GRANULARITY) && self.len.is_multiple_of(GRANULARITY)
    }

    fn aligned(self) -> Result<Span, Fault> {
        if self.is_aligned() {
            return Ok(self);
        }
        let reason = format!("{self}; expected multiples of {GRANULARITY}");
        Err(Fault::new(Status::INVALID_FIELD, reason))
    }

    fn of(self, bytes: &mut [u8]) -> Option<&mut [u8]> {
        let start = usize::try_from(self.start).ok()?;
        let end = usize::try_from(self.end()?).ok()?;
        bytes.get_mut(start..end)
    }
}

/// A command on a memory namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemoryCommand {
    Read(Span),
    Write(Span),
    Fill(Span),
    /// To the first byte named, from these sources in their order.
    Copy {
        to: u64,
        sources: Sources,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sources {
    /// Of memory namespaces.
    Memory(Vec<(u32, Span)>),
    /// Namespace, first block and number of blocks, 1 to 65536, of namespaces of the NVM command set.
    Blocks(Vec<(u32, u64, u32)>),
}

/// Source range in the format 2h: logical blocks.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BlockSource {
    nsid: U32,
    reserved_4: [u8; 4],
    slba: U64,
    /// 0-based.
    blocks: U16,
    reserved_18: [u8; 14],
}

/// Source range in the format 4h: bytes of a memory namespace.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MemorySource {
    nsid: U32,
    reserved_4: [u8; 4],
    start: U64,
    len: U32,
    reserved_20: [u8; 12],
}

const _: () = assert!(size_of::<BlockSource>() == 32 && size_of::<MemorySource>() == 32);

impl MemoryCommand {
    /// Decodes a command with the data that came with it. `most` is the most bytes that one command moves.
    pub(super) fn parse(sqe: &Sqe, data: &[u8], most: u32) -> Result<MemoryCommand, Fault> {
        let start = u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get());
        let len = u64::from(sqe.cdw12.get());
        let span = Span { start, len };
        let carried = match sqe.opcode {
            opcode::WRITE => len,
            opcode::COPY => return Self::parse_copy(sqe, data, start),
            opcode::READ | opcode::FILL => 0,
            other => {
                return Err(Fault::new(
                    Status::INVALID_OPCODE,
                    format!("opcode {other:02X}h on a memory namespace"),
                ));
            }
        };
        let span = span.aligned()?;
        if sqe.opcode != opcode::FILL && len > most.into() {
            let reason = format!("{span}; expected at most {most} bytes per command (MDTS)");
            return Err(Fault::new(Status::INVALID_FIELD, reason));
        }
        expect_data(data, carried)?;
        Ok(match sqe.opcode {
            opcode::READ => MemoryCommand::Read(span),
            opcode::WRITE => MemoryCommand::Write(span),
            _ => MemoryCommand::Fill(span),
        })
    }

    fn parse_copy(sqe: &Sqe, data: &[u8], to: u64) -> Result<MemoryCommand, Fault> {
        let total = u64::from(sqe.cdw3.get()) << 32 | u64::from(sqe.cdw2.get());
        let ranges = (sqe.cdw12.get() & 0xFF) as usize + 1;
        let format = sqe.cdw12.get() >> 8 & 0xF;
        let invalid = |reason: String| Fault::new(Status::INVALID_FIELD, reason);
        Span {
            start: to,
            len: total,
        }
        .aligned()?;
        expect_data(data, ranges as u64 * 32)?;
        let sources = match format {
            2 => {
                let list = <[BlockSource]>::ref_from_bytes(data)
                    .unwrap_or_default()
                    .iter();
                let block =
                    |s: &BlockSource| (s.nsid.get(), s.slba.get(), u32::from(s.blocks.get()) + 1);
                // How many bytes they are, the namespaces tell.
                Sources::Blocks(list.map(block).collect())
            }
            4 => {
                let list = <[MemorySource]>::ref_from_bytes(data)
                    .unwrap_or_default()
                    .iter();
                let sources = list
                    .map(|s| {
                        let (start, len) = (s.start.get(), s.len.get().into());
                        Ok((s.nsid.get(), Span { start, len }.aligned()?))
                    })
                    .collect::<Result<Vec<_>, Fault>>()?;
                // 256 lengths of 32 bits.
                let sum: u64 = sources.iter().map(|(_, span)| span.len).sum();
                if sum != total {
                    return Err(invalid(format!(
                        "sources of {sum} bytes; expected the {total} of the command"
                    )));
                }
                Sources::Memory(sources)
            }
            other => {
                return Err(invalid(format!(
                    "source ranges in format {other:X}h; expected 2h (blocks) or 4h (memory)"
                )));
            }
        };
        Ok(MemoryCommand::Copy { to, sources })
    }
}

/// Checks how many bytes came with a command.
pub(super) fn expect_data(data: &[u8], expected: u64) -> Result<(), Fault> {
    if data.len() as u64 == expected {
        return Ok(());
    }
    Err(Fault::new(
        Status::DATA_SGL_LENGTH_INVALID,
        format!("{} bytes of data; expected {expected}", data.len()),
    ))
}
