//! PDUs as bytes, written from the transport specification apart from the crate's own code.

use toroid_nvme::tcp::Digests;
use toroid_nvme::{Cqe, Sqe};
use zerocopy::{FromBytes, IntoBytes};

pub const IC_REQ: u8 = 0;
pub const IC_RESP: u8 = 1;
pub const H2C_TERM: u8 = 2;
pub const C2H_TERM: u8 = 3;
pub const COMMAND: u8 = 4;
pub const RESPONSE: u8 = 5;
pub const H2C_DATA: u8 = 6;
pub const C2H_DATA: u8 = 7;
pub const R2T: u8 = 9;

pub const HDGST: u8 = 1;
pub const DDGST: u8 = 2;
pub const LAST: u8 = 4;
pub const SUCCESS: u8 = 8;

pub const NONE: Digests = Digests {
    header: false,
    data: false,
};
pub const BOTH: Digests = Digests {
    header: true,
    data: true,
};

/// CRC-32C bit by bit: Castagnoli's polynomial, reflected.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 != 0 { 0x82F6_3B78 } else { 0 }
        })
    })
}

/// A PDU with `header` behind the common header.
pub fn pdu(kind: u8, flags: u8, header: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
    let carries = kind >= COMMAND;
    let hdgst = carries && digests.header;
    let ddgst = carries && digests.data && !data.is_empty();
    let hlen = 8 + header.len();
    let pdo = hlen + 4 * usize::from(hdgst);
    let plen = pdo + data.len() + 4 * usize::from(ddgst);
    let shown = if data.is_empty() || !carries { 0 } else { pdo };
    let flags = flags | u8::from(hdgst) | u8::from(ddgst) << 1;
    let mut out = vec![kind, flags, hlen as u8, shown as u8];
    out.extend_from_slice(&(plen as u32).to_le_bytes());
    out.extend_from_slice(header);
    if hdgst {
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
    }
    out.extend_from_slice(data);
    if ddgst {
        out.extend_from_slice(&crc32c(data).to_le_bytes());
    }
    out
}

pub fn initialize(kind: u8, digests: Digests, limit: u32) -> Vec<u8> {
    let mut header = vec![0; 120];
    header[3] = u8::from(digests.header) | u8::from(digests.data) << 1;
    header[4..8].copy_from_slice(&limit.to_le_bytes());
    pdu(kind, 0, &header, &[], NONE)
}

pub fn command(sqe: &Sqe, data: &[u8], digests: Digests) -> Vec<u8> {
    pdu(COMMAND, 0, sqe.as_bytes(), data, digests)
}

pub fn response(cqe: &Cqe, digests: Digests) -> Vec<u8> {
    pdu(RESPONSE, 0, cqe.as_bytes(), &[], digests)
}

/// H2CData, C2HData or R2T.
pub fn transfer(
    (kind, flags): (u8, u8),
    (cid, tag): (u16, u16),
    (offset, length): (u32, u32),
    data: &[u8],
    digests: Digests,
) -> Vec<u8> {
    let mut header = [cid.to_le_bytes(), tag.to_le_bytes()].concat();
    header.extend_from_slice(&offset.to_le_bytes());
    header.extend_from_slice(&length.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    pdu(kind, flags, &header, data, digests)
}

/// H2CData with everything that was asked for.
pub fn host_data(cid: u16, tag: u16, data: &[u8], digests: Digests) -> Vec<u8> {
    let range = (0, data.len() as u32);
    transfer((H2C_DATA, LAST), (cid, tag), range, data, digests)
}

/// A PDU that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    pub kind: u8,
    pub flags: u8,
    /// What follows the common header, without digest.
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.header[at..at + 2].try_into().unwrap())
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.header[at..at + 4].try_into().unwrap())
    }

    pub fn cqe(&self) -> Cqe {
        assert_eq!(self.kind, RESPONSE);
        Cqe::read_from_bytes(&self.header).unwrap()
    }

    /// FES and FEI of a termination request.
    pub fn fatal(&self) -> (u16, u32) {
        assert!(matches!(self.kind, C2H_TERM | H2C_TERM));
        (self.u16(0), self.u32(2))
    }
}

/// Takes the whole PDUs at the front of a stream, and checks lengths and digests.
pub fn take(stream: &mut Vec<u8>, digests: Digests) -> Vec<Pdu> {
    let mut taken = Vec::new();
    while stream.len() >= 8 {
        let plen = u32::from_le_bytes(stream[4..8].try_into().unwrap()) as usize;
        if stream.len() < plen {
            break;
        }
        let bytes: Vec<u8> = stream.drain(..plen).collect();
        let (kind, flags, hlen, pdo) = (bytes[0], bytes[1], bytes[2].into(), bytes[3].into());
        let carries = kind >= COMMAND;
        assert_eq!(flags & HDGST != 0, carries && digests.header);
        if flags & HDGST != 0 {
            let digest = crc32c(&bytes[..hlen]).to_le_bytes();
            assert_eq!(bytes[hlen..hlen + 4], digest);
        }
        let tail = if flags & DDGST != 0 { 4 } else { 0 };
        let from: usize = match (carries, pdo) {
            (true, 0) => plen - tail,
            (true, pdo) => pdo,
            (false, _) => hlen,
        };
        let data = bytes[from..plen - tail].to_vec();
        assert_eq!(tail > 0, carries && digests.data && !data.is_empty());
        if tail > 0 {
            assert_eq!(bytes[plen - 4..], crc32c(&data).to_le_bytes());
        }
        let header = bytes[8..hlen].to_vec();
        taken.push(Pdu {
            kind,
            flags,
            header,
            data,
        });
    }
    taken
}
