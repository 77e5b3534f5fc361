//! The submission queue entry and the I/O commands of the NVM command set.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{BROADCAST_NSID, Status};

/// Opcodes of the NVM command set.
pub mod opcode {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

const CDW12_DTYPE: u32 = 0xF << 20;
const CDW12_DEAC: u32 = 1 << 25;
const CDW12_FUA: u32 = 1 << 30;
const CDW11_AD: u32 = 1 << 2;

/// Submission queue entry, 64 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Opcode.
    pub opcode: u8,
    /// Fused operation (bits 1:0) and PRP or SGL for data transfer (bits 7:6).
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// Namespace identifier.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer.
    pub dptr: [u8; 16],
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}

const _: () = assert!(size_of::<Sqe>() == 64);

impl Sqe {
    fn io(opcode: u8, cid: u16, nsid: u32, slba: u64, nlb: u16) -> Sqe {
        Sqe {
            opcode,
            cid: cid.into(),
            nsid: nsid.into(),
            cdw10: (slba as u32).into(),
            cdw11: ((slba >> 32) as u32).into(),
            cdw12: u32::from(nlb).into(),
            ..Sqe::default()
        }
    }

    /// Read of `nlb + 1` logical blocks from `slba`.
    pub fn read(cid: u16, nsid: u32, slba: u64, nlb: u16) -> Sqe {
        Sqe::io(opcode::READ, cid, nsid, slba, nlb)
    }

    /// Write of `nlb + 1` logical blocks from `slba`.
    pub fn write(cid: u16, nsid: u32, slba: u64, nlb: u16) -> Sqe {
        Sqe::io(opcode::WRITE, cid, nsid, slba, nlb)
    }

    /// Compare of `nlb + 1` logical blocks from `slba` with the request's data.
    pub fn compare(cid: u16, nsid: u32, slba: u64, nlb: u16) -> Sqe {
        Sqe::io(opcode::COMPARE, cid, nsid, slba, nlb)
    }

    /// Write of zeroes (data and metadata) to `nlb + 1` logical blocks from `slba`.
    pub fn write_zeroes(cid: u16, nsid: u32, slba: u64, nlb: u16) -> Sqe {
        Sqe::io(opcode::WRITE_ZEROES, cid, nsid, slba, nlb)
    }

    /// Flush of the namespace, or of all with [`BROADCAST_NSID`].
    pub fn flush(cid: u16, nsid: u32) -> Sqe {
        Sqe {
            opcode: opcode::FLUSH,
            cid: cid.into(),
            nsid: nsid.into(),
            ..Sqe::default()
        }
    }

    /// Deallocation (Dataset Management) of the `ranges + 1` ranges that the request's data lists as [`DsmRange`]s.
    pub fn deallocate(cid: u16, nsid: u32, ranges: u8) -> Sqe {
        Sqe {
            opcode: opcode::DATASET_MANAGEMENT,
            cid: cid.into(),
            nsid: nsid.into(),
            cdw10: u32::from(ranges).into(),
            cdw11: CDW11_AD.into(),
            ..Sqe::default()
        }
    }

    /// The same command with Force Unit Access: a write completes only when it is on non-volatile media, a read comes from there.
    pub fn with_fua(mut self) -> Sqe {
        self.cdw12 = (self.cdw12.get() | CDW12_FUA).into();
        self
    }
}

/// One range of a Dataset Management command, 16 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes (hints).
    pub attributes: U32,
    /// Length in logical blocks.
    pub blocks: U32,
    /// First logical block.
    pub slba: U64,
}

const _: () = assert!(size_of::<DsmRange>() == 16);

impl DsmRange {
    /// The ranges in the data of a Dataset Management command; it ignores bytes after the last whole range.
    pub fn list(data: &[u8]) -> &[DsmRange] {
        let count = data.len() / size_of::<DsmRange>();
        match <[DsmRange]>::ref_from_prefix_with_elems(data, count) {
            Ok((ranges, _)) => ranges,
            Err(_) => &[],
        }
    }
}

/// The logical blocks that a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Namespace identifier, neither 0 nor FFFFFFFFh.
    pub nsid: u32,
    /// First logical block.
    pub slba: u64,
    /// Logical blocks, 1 to 65536 (the wire's 0-based NLB, plus one).
    pub blocks: u32,
    /// Force Unit Access.
    pub fua: bool,
}

/// Typed view of a submission queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Makes everything written to the namespace non-volatile.
    Flush {
        /// Namespace identifier; [`BROADCAST_NSID`] for all.
        nsid: u32,
    },
    /// Reads logical blocks.
    Read(Io),
    /// Writes logical blocks.
    Write(Io),
    /// Compares logical blocks with the request's data.
    Compare(Io),
    /// Sets logical blocks, and their metadata, to zero.
    WriteZeroes {
        /// The blocks.
        io: Io,
        /// Whether the controller may deallocate them.
        deallocate: bool,
    },
    /// Hints on ranges of logical blocks.
    DatasetManagement {
        /// Namespace identifier.
        nsid: u32,
        /// Ranges in the request's data, 1 to 256, each a [`DsmRange`].
        ranges: u16,
        /// Whether the ranges are to be deallocated.
        deallocate: bool,
    },
}

impl Command {
    /// Decodes `sqe`.
    ///
    /// Fails with Invalid Command Opcode for an opcode not in [`opcode`], Invalid Namespace or Format for a namespace
    /// identifier that the command does not allow, and Invalid Field in Command for a fused command, a reserved data
    /// transfer type or a directive. Whether namespace and blocks exist is checked by
    /// [`ControllerInfo::check`](crate::ControllerInfo::check).
    pub fn parse(sqe: &Sqe) -> Result<Command, Status> {
        let nsid = sqe.nsid.get();
        let command = match sqe.opcode {
            opcode::FLUSH => Command::Flush { nsid },
            opcode::WRITE => Command::Write(Io::parse(sqe)),
            opcode::READ => Command::Read(Io::parse(sqe)),
            opcode::COMPARE => Command::Compare(Io::parse(sqe)),
            opcode::WRITE_ZEROES => Command::WriteZeroes {
                io: Io::parse(sqe),
                deallocate: sqe.cdw12.get() & CDW12_DEAC != 0,
            },
            opcode::DATASET_MANAGEMENT => Command::DatasetManagement {
                nsid,
                ranges: (sqe.cdw10.get() as u8 as u16) + 1,
                deallocate: sqe.cdw11.get() & CDW11_AD != 0,
            },
            _ => return Err(Status::INVALID_OPCODE),
        };
        if sqe.flags & 3 != 0 || sqe.flags >> 6 == 3 {
            return Err(Status::INVALID_FIELD);
        }
        let broadcast_allowed = matches!(command, Command::Flush { .. });
        if nsid == 0 || (nsid == BROADCAST_NSID && !broadcast_allowed) {
            return Err(Status::INVALID_NAMESPACE);
        }
        if matches!(command, Command::Write(_)) && sqe.cdw12.get() & CDW12_DTYPE != 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(command)
    }

    /// Namespace identifier that the command addresses.
    pub fn nsid(&self) -> u32 {
        match *self {
            Command::Flush { nsid } | Command::DatasetManagement { nsid, .. } => nsid,
            Command::Read(io)
            | Command::Write(io)
            | Command::Compare(io)
            | Command::WriteZeroes { io, .. } => io.nsid,
        }
    }
}

impl Io {
    fn parse(sqe: &Sqe) -> Io {
        Io {
            nsid: sqe.nsid.get(),
            slba: u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get()),
            blocks: u32::from(sqe.cdw12.get() as u16) + 1,
            fua: sqe.cdw12.get() & CDW12_FUA != 0,
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.blocks == 1 { "" } else { "s" };
        write!(
            f,
            "{} block{s} at LBA {} of namespace {}",
            self.blocks, self.slba, self.nsid
        )
    }
}

impl fmt::Display for Sqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Command::parse(self) {
            Ok(command) => command.fmt(f),
            Err(_) => write!(
                f,
                "command with opcode {:02X}h for namespace {}",
                self.opcode, self.nsid
            ),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Flush { nsid } if *nsid == BROADCAST_NSID => {
                write!(f, "Flush of all namespaces")
            }
            Command::Flush { nsid } => write!(f, "Flush of namespace {nsid}"),
            Command::Read(io) => write!(f, "Read of {io}"),
            Command::Write(io) => write!(f, "Write of {io}"),
            Command::Compare(io) => write!(f, "Compare of {io}"),
            Command::WriteZeroes { io, .. } => write!(f, "Write Zeroes of {io}"),
            Command::DatasetManagement { nsid, ranges, .. } => {
                write!(
                    f,
                    "Dataset Management of {ranges} ranges of namespace {nsid}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout_of_a_write() {
        let sqe = Sqe::write(0x1234, 5, 0x0102_0304_0506_0708, 0x00FF).with_fua();
        let mut expected = [0u8; 64];
        expected[0] = 1;
        expected[2..4].copy_from_slice(&[0x34, 0x12]);
        expected[4] = 5;
        expected[40..48].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        expected[48..52].copy_from_slice(&[0xFF, 0, 0, 0x40]);
        assert_eq!(sqe.as_bytes(), expected);
    }

    #[test]
    fn offsets_of_all_fields() {
        let bytes: [u8; 64] = std::array::from_fn(|i| i as u8);
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        assert_eq!((sqe.opcode, sqe.flags), (0, 1));
        assert_eq!(sqe.cid.get(), 0x0302);
        assert_eq!(sqe.nsid.get(), 0x0706_0504);
        assert_eq!(sqe.cdw2.get(), 0x0B0A_0908);
        assert_eq!(sqe.cdw3.get(), 0x0F0E_0D0C);
        assert_eq!(sqe.mptr.get(), 0x1716_1514_1312_1110);
        assert_eq!(sqe.dptr[0], 24);
        assert_eq!(sqe.cdw10.get(), 0x2B2A_2928);
        assert_eq!(sqe.cdw15.get(), 0x3F3E_3D3C);
    }

    #[test]
    fn rejects_what_it_does_not_know() {
        let good = Sqe::write(1, 1, 0, 0);
        assert!(Command::parse(&good).is_ok());
        let with = |edit: fn(&mut Sqe)| {
            let mut sqe = good;
            edit(&mut sqe);
            Command::parse(&sqe)
        };
        assert_eq!(with(|s| s.opcode = 0x7F), Err(Status::INVALID_OPCODE));
        assert_eq!(with(|s| s.flags = 1), Err(Status::INVALID_FIELD));
        assert_eq!(with(|s| s.flags = 0xC0), Err(Status::INVALID_FIELD));
        assert!(with(|s| s.flags = 0x40).is_ok());
        assert_eq!(with(|s| s.nsid = 0.into()), Err(Status::INVALID_NAMESPACE));
        assert_eq!(
            with(|s| s.nsid = BROADCAST_NSID.into()),
            Err(Status::INVALID_NAMESPACE)
        );
        assert_eq!(
            with(|s| s.cdw12 = (1 << 20).into()),
            Err(Status::INVALID_FIELD)
        );
        assert!(Command::parse(&Sqe::flush(1, BROADCAST_NSID)).is_ok());
        assert_eq!(
            Command::parse(&Sqe::flush(1, 0)),
            Err(Status::INVALID_NAMESPACE)
        );
    }

    #[test]
    fn dataset_management() {
        assert_eq!(
            Command::parse(&Sqe::deallocate(1, 2, 255)),
            Ok(Command::DatasetManagement {
                nsid: 2,
                ranges: 256,
                deallocate: true
            })
        );
    }

    #[test]
    fn display() {
        assert_eq!(
            Command::parse(&Sqe::read(1, 1, 16, 7)).unwrap().to_string(),
            "Read of 8 blocks at LBA 16 of namespace 1"
        );
    }

    proptest! {
        #[test]
        fn io_round_trip(cid: u16, nsid in 1..BROADCAST_NSID, slba: u64, nlb: u16, fua: bool) {
            let expected = Io { nsid, slba, blocks: u32::from(nlb) + 1, fua };
            for (sqe, command) in [
                (Sqe::read(cid, nsid, slba, nlb), Command::Read(expected)),
                (Sqe::write(cid, nsid, slba, nlb), Command::Write(expected)),
                (Sqe::compare(cid, nsid, slba, nlb), Command::Compare(expected)),
                (Sqe::write_zeroes(cid, nsid, slba, nlb), Command::WriteZeroes { io: expected, deallocate: false }),
            ] {
                let sqe = if fua { sqe.with_fua() } else { sqe };
                prop_assert_eq!(sqe.cid.get(), cid);
                prop_assert_eq!(Command::parse(&sqe), Ok(command));
                prop_assert_eq!(command.nsid(), nsid);
            }
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: [u8; 32], tail: [u8; 32]) {
            let sqe = Sqe::read_from_bytes(&[bytes, tail].concat()).unwrap();
            if let Ok(command) = Command::parse(&sqe) {
                prop_assert_ne!(command.nsid(), 0);
            }
        }
    }
}
