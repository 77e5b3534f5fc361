//! PDUs: their headers as bytes, and CRC-32C digests (NVMe/TCP Transport Specification, "Transport Protocol Data Units").

use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

use crate::{Cqe, Sqe};

/// Port that IANA has assigned to NVMe/TCP I/O.
pub const PORT: u16 = 4420;
/// Bytes of the common header.
pub(crate) const COMMON: usize = 8;
/// Bytes of a header or data digest.
pub(crate) const DIGEST: usize = 4;
/// Bytes of data that every controller accepts in the capsule of an admin command.
pub(crate) const ADMIN_IN_CAPSULE: usize = 8 << 10;
/// Bytes of an ICReq or ICResp PDU.
const INITIALIZE: usize = 128;
/// Most bytes of the offending PDU's header that a termination request shows.
const MAX_TERMINATION_DATA: usize = 128;

const HDGSTF: u8 = 1;
const DDGSTF: u8 = 1 << 1;
const LAST: u8 = 1 << 2;
const SUCCESS: u8 = 1 << 3;

/// Why a connection is terminated: Fatal Error Status and Fatal Error Information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A field of a PDU's header is not valid.
    #[error("invalid PDU header: byte {offset}")]
    Header {
        /// Offset of the field.
        offset: u32,
    },
    /// A PDU came when it must not.
    #[error("PDU of type {kind:02X}h out of sequence")]
    Sequence {
        /// Its type.
        kind: u8,
    },
    /// A header digest does not match.
    #[error("header digest {found:08X}h; expected {expected:08X}h")]
    HeaderDigest {
        /// In the PDU.
        found: u32,
        /// Computed.
        expected: u32,
    },
    /// Data outside the range that was asked for.
    #[error("data out of range")]
    DataRange,
    /// More data than a limit allows.
    #[error("more data than the limit allows")]
    DataLimit,
    /// A parameter of the initialization is not supported.
    #[error("unsupported parameter: byte {offset}")]
    Unsupported {
        /// Offset of the field.
        offset: u32,
    },
    /// The other side has ended the connection.
    #[error(
        "the peer terminated the connection: fatal error status {fes:04X}h, information {fei:08X}h"
    )]
    Terminated {
        /// Fatal error status.
        fes: u16,
        /// Fatal error information.
        fei: u32,
    },
}

impl ProtocolError {
    /// Fatal Error Status and Fatal Error Information.
    fn codes(self) -> (u16, u32) {
        match self {
            ProtocolError::Header { offset } => (1, offset),
            ProtocolError::Sequence { .. } => (2, 0),
            ProtocolError::HeaderDigest { found, .. } => (3, found),
            ProtocolError::DataRange => (4, 0),
            ProtocolError::DataLimit => (5, 0),
            ProtocolError::Unsupported { offset } => (6, offset),
            ProtocolError::Terminated { fes, fei } => (fes, fei),
        }
    }
}

/// Digests that a host asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC-32C of every header.
    pub header: bool,
    /// CRC-32C of all data.
    pub data: bool,
}

/// Parameters of an ICReq or ICResp PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialize {
    /// PDU format version, 0.
    pub version: u16,
    /// Alignment of data in PDUs to this side, in units of 4 bytes, 0-based: at most 31.
    pub alignment: u8,
    /// Header digests.
    pub header_digest: bool,
    /// Data digests.
    pub data_digest: bool,
    /// ICReq: most outstanding R2Ts per command, 0-based. ICResp: most bytes of data in an H2CData PDU.
    pub limit: u32,
}

/// A PDU's header, without the common part that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Host: initialize connection.
    InitializeRequest(Initialize),
    /// Controller: initialize connection.
    InitializeResponse(Initialize),
    /// Either side ends the connection; the data are the offending header.
    Terminate {
        /// Whether it comes from the host.
        from_host: bool,
        /// Fatal error status.
        fes: u16,
        /// Fatal error information.
        fei: u32,
    },
    /// A command, perhaps with data.
    Command(Sqe),
    /// A completion.
    Response(Cqe),
    /// Data from the host that an R2T asked for.
    HostData {
        /// Command identifier.
        cid: u16,
        /// Transfer tag of the R2T.
        tag: u16,
        /// Offset from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
        /// Whether they are the last that the R2T asked for.
        last: bool,
    },
    /// Data from the controller.
    ControllerData {
        /// Command identifier.
        cid: u16,
        /// Offset from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
        /// Whether they are the command's last.
        last: bool,
        /// Whether the command has succeeded, so that no response follows.
        success: bool,
    },
    /// The controller is ready for data.
    ReadyToTransfer {
        /// Command identifier.
        cid: u16,
        /// Transfer tag.
        tag: u16,
        /// Offset from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
    },
}

/// PDU types.
mod kind {
    pub(super) const INITIALIZE_REQUEST: u8 = 0;
    pub(super) const INITIALIZE_RESPONSE: u8 = 1;
    pub(super) const TERMINATE_BY_HOST: u8 = 2;
    pub(super) const TERMINATE_BY_CONTROLLER: u8 = 3;
    pub(super) const COMMAND: u8 = 4;
    pub(super) const RESPONSE: u8 = 5;
    pub(super) const HOST_DATA: u8 = 6;
    pub(super) const CONTROLLER_DATA: u8 = 7;
    pub(super) const READY_TO_TRANSFER: u8 = 9;
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// Alignment of data in PDUs to the other side, in bytes; 0 before it is known.
    pub(crate) alignment: usize,
}

/// Where the parts of a PDU are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    flags: u8,
    /// Bytes of the header without its digest.
    pub(crate) header: usize,
    /// Bytes up to the data: header, digest and padding.
    pub(crate) data_offset: usize,
    /// Bytes of data without their digest.
    pub(crate) data: usize,
    /// Whether a data digest follows.
    pub(crate) data_digest: bool,
    /// Whether the header's digest follows it.
    pub(crate) header_digest: bool,
}

impl Frame {
    /// Checks the common header against the type and what was agreed.
    pub(crate) fn parse(common: &[u8; COMMON], agreed: &Agreed) -> Result<Frame, ProtocolError> {
        let [kind, flags, hlen, pdo, p0, p1, p2, p3] = *common;
        let plen = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        let (header, has_data, has_digests) = match kind {
            kind::INITIALIZE_REQUEST | kind::INITIALIZE_RESPONSE => (INITIALIZE, false, false),
            kind::TERMINATE_BY_HOST | kind::TERMINATE_BY_CONTROLLER => (24, true, false),
            kind::COMMAND => (72, true, true),
            kind::HOST_DATA | kind::CONTROLLER_DATA => (24, true, true),
            kind::RESPONSE | kind::READY_TO_TRANSFER => (24, false, true),
            _ => return Err(ProtocolError::Header { offset: 0 }),
        };
        if usize::from(hlen) != header {
            return Err(ProtocolError::Header { offset: 2 });
        }
        let header_digest = has_digests && flags & HDGSTF != 0;
        let data_digest = has_digests && flags & DDGSTF != 0;
        if has_digests && header_digest != agreed.header_digest {
            return Err(ProtocolError::Header { offset: 1 });
        }
        let header_end = header + if header_digest { DIGEST } else { 0 };
        if plen == header_end || !has_data {
            // Some peers set the flag of a digest that the data would have, were there any.
            return if plen == header_end {
                Ok(Frame {
                    kind,
                    flags,
                    header,
                    data_offset: header_end,
                    data: 0,
                    data_digest: false,
                    header_digest,
                })
            } else {
                Err(ProtocolError::Header { offset: 4 })
            };
        }
        // A termination request has no data offset: its data follow the header.
        let data_offset = if has_digests {
            usize::from(pdo)
        } else {
            header
        };
        let tail = if data_digest { DIGEST } else { 0 };
        if has_digests && data_digest != agreed.data_digest {
            return Err(ProtocolError::Header { offset: 1 });
        }
        if data_offset < header_end || !data_offset.is_multiple_of(4) {
            return Err(ProtocolError::Header { offset: 3 });
        }
        let data = plen
            .checked_sub(data_offset + tail)
            .filter(|data| *data > 0)
            .ok_or(ProtocolError::Header { offset: 4 })?;
        if !has_digests && data > MAX_TERMINATION_DATA + DIGEST {
            return Err(ProtocolError::Header { offset: 4 });
        }
        Ok(Frame {
            kind,
            flags,
            header,
            data_offset,
            data,
            data_digest,
            header_digest,
        })
    }

    /// Reads the header, whose digest is checked. `bytes` start with the PDU and hold at least `data_offset` of it.
    pub(crate) fn header(&self, bytes: &[u8]) -> Result<Header, ProtocolError> {
        let at = |offset: usize| bytes.get(offset).copied().unwrap_or(0);
        let u16_at = |offset| u16::from_le_bytes([at(offset), at(offset + 1)]);
        let u32_at = |offset| u32::from(u16_at(offset)) | u32::from(u16_at(offset + 2)) << 16;
        if self.header_digest {
            let found = u32_at(self.header);
            let expected = crc32c::crc32c(bytes.get(..self.header).unwrap_or_default());
            if found != expected {
                return Err(ProtocolError::HeaderDigest { found, expected });
            }
        }
        let initialize = || Initialize {
            version: u16_at(8),
            alignment: at(10),
            header_digest: at(11) & 1 != 0,
            data_digest: at(11) & 2 != 0,
            limit: u32_at(12),
        };
        Ok(match self.kind {
            kind::INITIALIZE_REQUEST => Header::InitializeRequest(initialize()),
            kind::INITIALIZE_RESPONSE => Header::InitializeResponse(initialize()),
            kind::TERMINATE_BY_HOST | kind::TERMINATE_BY_CONTROLLER => Header::Terminate {
                from_host: self.kind == kind::TERMINATE_BY_HOST,
                fes: u16_at(8),
                fei: u32_at(10),
            },
            kind::COMMAND => {
                let sqe = bytes.get(COMMON..).unwrap_or_default();
                let (sqe, _) =
                    Sqe::read_from_prefix(sqe).map_err(|_| ProtocolError::Header { offset: 4 })?;
                Header::Command(sqe)
            }
            kind::RESPONSE => {
                let cqe = bytes.get(COMMON..).unwrap_or_default();
                let (cqe, _) =
                    Cqe::read_from_prefix(cqe).map_err(|_| ProtocolError::Header { offset: 4 })?;
                Header::Response(cqe)
            }
            kind::HOST_DATA => Header::HostData {
                cid: u16_at(8),
                tag: u16_at(10),
                offset: u32_at(12),
                length: u32_at(16),
                last: self.flags & LAST != 0,
            },
            kind::CONTROLLER_DATA => Header::ControllerData {
                cid: u16_at(8),
                offset: u32_at(12),
                length: u32_at(16),
                last: self.flags & LAST != 0,
                success: self.flags & SUCCESS != 0,
            },
            kind::READY_TO_TRANSFER => Header::ReadyToTransfer {
                cid: u16_at(8),
                tag: u16_at(10),
                offset: u32_at(12),
                length: u32_at(16),
            },
            _ => return Err(ProtocolError::Header { offset: 0 }),
        })
    }
}

impl Header {
    /// Type of the PDU.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Header::InitializeRequest(_) => kind::INITIALIZE_REQUEST,
            Header::InitializeResponse(_) => kind::INITIALIZE_RESPONSE,
            Header::Terminate {
                from_host: true, ..
            } => kind::TERMINATE_BY_HOST,
            Header::Terminate { .. } => kind::TERMINATE_BY_CONTROLLER,
            Header::Command(_) => kind::COMMAND,
            Header::Response(_) => kind::RESPONSE,
            Header::HostData { .. } => kind::HOST_DATA,
            Header::ControllerData { .. } => kind::CONTROLLER_DATA,
            Header::ReadyToTransfer { .. } => kind::READY_TO_TRANSFER,
        }
    }

    /// Appends the PDU up to its data, of which there will be `data` bytes (with [`data_digest`] after them where it was
    /// agreed on).
    pub(crate) fn put(&self, data: usize, agreed: &Agreed, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + COMMON, 0);
        let mut flags = 0;
        let mut digests = true;
        match *self {
            Header::InitializeRequest(initialize) | Header::InitializeResponse(initialize) => {
                digests = false;
                out.extend_from_slice(&initialize.version.to_le_bytes());
                out.push(initialize.alignment);
                out.push(
                    u8::from(initialize.header_digest) | u8::from(initialize.data_digest) << 1,
                );
                out.extend_from_slice(&initialize.limit.to_le_bytes());
                out.resize(start + INITIALIZE, 0);
            }
            Header::Terminate { fes, fei, .. } => {
                digests = false;
                out.extend_from_slice(&fes.to_le_bytes());
                out.extend_from_slice(&fei.to_le_bytes());
                out.resize(start + 24, 0);
            }
            Header::Command(sqe) => out.extend_from_slice(sqe.as_bytes()),
            Header::Response(cqe) => out.extend_from_slice(cqe.as_bytes()),
            Header::HostData {
                cid,
                tag,
                offset,
                length,
                last,
            } => {
                flags |= if last { LAST } else { 0 };
                put_transfer(out, cid, tag, offset, length);
            }
            Header::ControllerData {
                cid,
                offset,
                length,
                last,
                success,
            } => {
                flags |= if last { LAST } else { 0 } | if success { SUCCESS } else { 0 };
                put_transfer(out, cid, 0, offset, length);
            }
            Header::ReadyToTransfer {
                cid,
                tag,
                offset,
                length,
            } => put_transfer(out, cid, tag, offset, length),
        }
        let header = out.len() - start;
        let header_digest = digests && agreed.header_digest;
        let data_digest = digests && agreed.data_digest && data > 0;
        let header_end = header + if header_digest { DIGEST } else { 0 };
        let data_offset = match data {
            0 => header_end,
            _ => header_end.next_multiple_of(if digests { agreed.alignment.max(4) } else { 1 }),
        };
        let plen = data_offset + data + if data_digest { DIGEST } else { 0 };
        flags |= if header_digest { HDGSTF } else { 0 } | if data_digest { DDGSTF } else { 0 };
        let pdo = if data > 0 && digests {
            data_offset as u8
        } else {
            0
        };
        let [p0, p1, p2, p3] = (plen as u32).to_le_bytes();
        let common = [self.kind(), flags, header as u8, pdo, p0, p1, p2, p3];
        out[start..start + COMMON].copy_from_slice(&common);
        if header_digest {
            let digest = crc32c::crc32c(&out[start..]);
            out.extend_from_slice(&digest.to_le_bytes());
        }
        out.resize(start + data_offset, 0);
    }
}

fn put_transfer(out: &mut Vec<u8>, cid: u16, tag: u16, offset: u32, length: u32) {
    out.extend_from_slice(&cid.to_le_bytes());
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// The termination request for an error, with the header that it is about.
pub(crate) fn termination(error: ProtocolError, from_host: bool, offending: &[u8]) -> Vec<u8> {
    let (fes, fei) = error.codes();
    let shown = &offending[..offending.len().min(MAX_TERMINATION_DATA)];
    let mut out = Vec::new();
    let header = Header::Terminate {
        from_host,
        fes,
        fei,
    };
    header.put(shown.len(), &Agreed::default(), &mut out);
    out.extend_from_slice(shown);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use proptest::prelude::*;

    fn agreed(header_digest: bool, data_digest: bool, alignment: usize) -> Agreed {
        Agreed {
            header_digest,
            data_digest,
            alignment,
        }
    }

    #[test]
    fn a_command_with_both_digests() {
        let mut out = Vec::new();
        let sqe = Sqe::write(0x1234, 1, 0, 0);
        Header::Command(sqe).put(4096, &agreed(true, true, 4), &mut out);
        // CapsuleCmd, both digest flags, 72 bytes of header, data at 76, 76 + 4096 + 4 bytes in all.
        assert_eq!(out[..8], [4, 3, 72, 76, 0x50, 0x10, 0, 0]);
        assert_eq!(out.len(), 76);
        let digest = crc32c::crc32c(&out[..72]).to_le_bytes();
        assert_eq!(out[72..], digest);
    }

    #[test]
    fn the_initialization_of_a_linux_host() {
        let mut out = Vec::new();
        let initialize = Initialize {
            version: 0,
            alignment: 0,
            header_digest: true,
            data_digest: false,
            limit: 0,
        };
        Header::InitializeRequest(initialize).put(0, &Agreed::default(), &mut out);
        assert_eq!(out.len(), 128);
        assert_eq!(out[..12], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn fields_that_contradict_are_refused() {
        let mut out = Vec::new();
        Header::Response(Cqe::new(1, Status::SUCCESS, false)).put(0, &Agreed::default(), &mut out);
        let with = |offset: usize, value: u8| {
            let mut common: [u8; 8] = out[..8].try_into().unwrap();
            common[offset] = value;
            Frame::parse(&common, &Agreed::default())
        };
        assert!(with(0, 5).is_ok());
        assert_eq!(with(0, 8), Err(ProtocolError::Header { offset: 0 }));
        assert_eq!(with(1, 1), Err(ProtocolError::Header { offset: 1 }));
        assert_eq!(with(2, 25), Err(ProtocolError::Header { offset: 2 }));
        assert_eq!(with(4, 25), Err(ProtocolError::Header { offset: 4 }));
    }

    proptest! {
        #[test]
        fn headers_round_trip(
            which in 0..5u8, cid: u16, tag: u16, offset: u32, length: u32, last: bool, success: bool,
            header_digest: bool, data_digest: bool, units in 1..33usize, data in 1..10_000usize,
        ) {
            let agreed = agreed(header_digest, data_digest, units * 4);
            let (header, data) = match which {
                0 => (Header::Command(Sqe::read(cid, length, u64::from(offset), tag)), data - 1),
                1 => (Header::Response(Cqe::new(cid, Status::WRITE_FAULT, last)), 0),
                2 => (Header::HostData { cid, tag, offset, length, last }, data),
                3 => (Header::ControllerData { cid, offset, length, last, success }, data),
                _ => (Header::ReadyToTransfer { cid, tag, offset, length }, 0),
            };
            let mut out = vec![0xEE; 3];
            header.put(data, &agreed, &mut out);
            let pdu = &out[3..];
            let frame = Frame::parse(pdu[..8].try_into().unwrap(), &agreed).unwrap();
            prop_assert_eq!(frame.data, data);
            prop_assert_eq!(frame.data_offset, pdu.len());
            prop_assert_eq!(frame.data_digest, data_digest && data > 0);
            prop_assert_eq!(frame.header(pdu), Ok(header));
            if header_digest {
                let mut damaged = pdu.to_vec();
                damaged[20] ^= 1;
                let refused = matches!(frame.header(&damaged), Err(ProtocolError::HeaderDigest { .. }));
                prop_assert!(refused);
            }
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: [u8; 8], header in prop::collection::vec(any::<u8>(), 0..160), digests: (bool, bool)) {
            let agreed = agreed(digests.0, digests.1, 4);
            if let Ok(frame) = Frame::parse(&bytes, &agreed) {
                let _ = frame.header(&[bytes.as_slice(), &header].concat());
            }
        }
    }
}
