//! NVMe/TCP PDUs as bytes, to make and to break: written from the specification, apart from the code that is tested.

/// Types of PDUs.
pub const IC_REQ: u8 = 0;
pub const IC_RESP: u8 = 1;
pub const H2C_TERM: u8 = 2;
pub const C2H_TERM: u8 = 3;
pub const COMMAND: u8 = 4;
pub const RESPONSE: u8 = 5;
pub const H2C_DATA: u8 = 6;
pub const C2H_DATA: u8 = 7;
pub const R2T: u8 = 9;

/// Flags.
pub const LAST: u8 = 4;
pub const SUCCESS: u8 = 8;

/// What a connection has agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

/// A PDU: `header` is what follows the common header, `data` lie behind it, 4-byte aligned, each with its digest.
pub fn pdu(kind: u8, flags: u8, header: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
    let carries = matches!(kind, COMMAND | RESPONSE | H2C_DATA | C2H_DATA | R2T);
    let hdgst = carries && digests.header;
    let ddgst = carries && digests.data && !data.is_empty();
    let hlen = 8 + header.len();
    let pdo = hlen + if hdgst { 4 } else { 0 };
    let plen = pdo + data.len() + if ddgst { 4 } else { 0 };
    let mut out = vec![
        kind,
        flags | u8::from(hdgst) | u8::from(ddgst) << 1,
        hlen as u8,
        if data.is_empty() || !carries {
            0
        } else {
            pdo as u8
        },
    ];
    out.extend_from_slice(&(plen as u32).to_le_bytes());
    out.extend_from_slice(header);
    if hdgst {
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    }
    out.extend_from_slice(data);
    if ddgst {
        out.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
    }
    out
}

/// ICReq or ICResp.
pub fn initialize(kind: u8, digests: Digests, alignment: u8, limit: u32) -> Vec<u8> {
    let mut header = vec![0; 120];
    header[2] = alignment;
    header[3] = u8::from(digests.header) | u8::from(digests.data) << 1;
    header[4..8].copy_from_slice(&limit.to_le_bytes());
    pdu(kind, 0, &header, &[], digests)
}

/// H2CData, C2HData or R2T.
pub fn transfer(
    kind: u8,
    flags: u8,
    (cid, tag): (u16, u16),
    (offset, length): (u32, u32),
    data: &[u8],
    digests: Digests,
) -> Vec<u8> {
    let mut header = Vec::with_capacity(16);
    header.extend_from_slice(&cid.to_le_bytes());
    header.extend_from_slice(&tag.to_le_bytes());
    header.extend_from_slice(&offset.to_le_bytes());
    header.extend_from_slice(&length.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    pdu(kind, flags, &header, data, digests)
}

/// A PDU of a side that keeps to the rules.
#[derive(Debug)]
pub struct Parsed {
    pub kind: u8,
    pub flags: u8,
    /// What follows the common header.
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

impl Parsed {
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.header[at], self.header[at + 1]])
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }
}

/// Takes whole PDUs from the front of `stream`; panics at what no side that keeps to the rules sends.
pub fn take(stream: &mut Vec<u8>, digests: Digests) -> Vec<Parsed> {
    let mut taken = Vec::new();
    let mut at = 0;
    while let Some(rest) = stream.get(at..).filter(|rest| rest.len() >= 8) {
        let (kind, flags, hlen, pdo) =
            (rest[0], rest[1], usize::from(rest[2]), usize::from(rest[3]));
        let plen = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        assert!(plen >= hlen && plen < 8 << 20, "PDU length {plen}");
        let expected = match kind {
            IC_REQ | IC_RESP => 128,
            COMMAND => 72,
            H2C_TERM | C2H_TERM | RESPONSE | H2C_DATA | C2H_DATA | R2T => 24,
            _ => panic!("PDU type {kind}"),
        };
        assert_eq!(hlen, expected);
        if rest.len() < plen {
            break;
        }
        let carries = !matches!(kind, IC_REQ | IC_RESP | H2C_TERM | C2H_TERM);
        assert_eq!(flags & 1 != 0, carries && digests.header);
        if flags & 1 != 0 {
            let found = &rest[hlen..hlen + 4];
            assert_eq!(found, crc32c::crc32c(&rest[..hlen]).to_le_bytes());
        }
        let data = match (carries, pdo) {
            (true, 0) => &[][..],
            (true, pdo) => {
                assert!(pdo.is_multiple_of(4) && pdo >= hlen);
                let end = plen - if flags & 2 != 0 { 4 } else { 0 };
                let data = &rest[pdo..end];
                assert_eq!(flags & 2 != 0, digests.data);
                if flags & 2 != 0 {
                    assert_eq!(rest[end..plen], crc32c::crc32c(data).to_le_bytes());
                }
                data
            }
            (false, _) => &rest[hlen..plen],
        };
        taken.push(Parsed {
            kind,
            flags,
            header: rest[8..hlen].to_vec(),
            data: data.to_vec(),
        });
        at += plen;
    }
    stream.drain(..at);
    taken
}
