//! Fabrics commands, properties and Connect data (Base Specification 2.x, "Fabrics Command Set").

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Sqe, Status};

/// Opcode of every Fabrics command; byte 4 of the command (the lowest of the namespace identifier's) is its type.
pub const FABRICS_OPCODE: u8 = 0x7F;
/// NQN of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Longest NQN in bytes.
pub const MAX_NQN: usize = 223;

/// Fabrics command types.
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTH_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTH_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// Offsets of properties.
pub mod property {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller Status, 4 bytes.
    pub const CSTS: u32 = 0x1C;
    /// Controller Ready Timeouts, 4 bytes.
    pub const CRTO: u32 = 0x68;
}

/// Bits of the Controller Configuration property.
pub mod cc {
    /// Enable.
    pub const EN: u32 = 1;
    /// I/O Command Set Selected.
    pub const CSS: u32 = 7 << 4;
    /// I/O Command Set Selected: all supported ones.
    pub const CSS_ALL: u32 = 6 << 4;
    /// Memory Page Size.
    pub const MPS: u32 = 0xF << 7;
    /// Shutdown Notification.
    pub const SHN: u32 = 3 << 14;
    /// I/O submission queue entries of 64 bytes, completion queue entries of 16.
    pub const ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;
}

/// Bits of the Controller Status property.
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1;
    /// Controller Fatal Status.
    pub const CFS: u32 = 1 << 1;
    /// Shutdown processing occurring.
    pub const SHUTDOWN_OCCURRING: u32 = 1 << 2;
    /// Shutdown processing complete.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;
}

/// Connect result: authentication is required.
pub const AUTHENTICATION_REQUIRED: u32 = 1 << 17;
/// Connect attribute: submission queue flow control is off.
pub const CATTR_NO_FLOW_CONTROL: u8 = 1 << 2;

/// Type byte of an SGL descriptor: a data block at an offset in the capsule.
const SGL_IN_CAPSULE: u8 = 0x01;
/// Type byte of an SGL descriptor: a data block that the transport moves.
const SGL_TRANSPORT: u8 = 0x5A;

/// Where a command's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// In the capsule, after the command.
    InCapsule {
        /// Bytes from the start of the capsule's data.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Moved by the transport.
    Transport {
        /// Bytes.
        length: u32,
    },
}

impl Sgl {
    /// The descriptor of a command.
    ///
    /// # Errors
    /// [`Status::SGL_TYPE_INVALID`].
    pub fn parse(dptr: &[u8; 16]) -> Result<Sgl, Status> {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, _, _, _, id] = *dptr;
        let offset = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        match id {
            SGL_IN_CAPSULE => Ok(Sgl::InCapsule { offset, length }),
            SGL_TRANSPORT => Ok(Sgl::Transport { length }),
            // Hosts may leave the descriptor of a command without data empty.
            0 if length == 0 => Ok(Sgl::Transport { length: 0 }),
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// The descriptor's bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        let (address, length, id) = match self {
            Sgl::InCapsule { offset, length } => (offset, length, SGL_IN_CAPSULE),
            Sgl::Transport { length } => (0, length, SGL_TRANSPORT),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[15] = id;
        bytes
    }

    /// Bytes of data.
    pub fn length(self) -> u32 {
        match self {
            Sgl::InCapsule { length, .. } | Sgl::Transport { length } => length,
        }
    }
}

/// Parameters of a Connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Queue identifier; 0 for the admin queue, which creates the controller.
    pub qid: u16,
    /// Entries of the submission queue, 0-based.
    pub sqsize: u16,
    /// Attributes.
    pub cattr: u8,
    /// Keep alive time-out in milliseconds; 0 for none. For the admin queue only.
    pub kato: u32,
}

impl Connect {
    /// The command.
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = fabrics(cid, fctype::CONNECT);
        sqe.cdw10 = (u32::from(self.qid) << 16).into();
        sqe.cdw11 = (u32::from(self.sqsize) | u32::from(self.cattr) << 16).into();
        sqe.cdw12 = self.kato.into();
        sqe
    }

    /// The parameters in a command.
    ///
    /// # Errors
    /// [`Status::CONNECT_INCOMPATIBLE_FORMAT`] for a record format other than 0.
    pub fn parse(sqe: &Sqe) -> Result<Connect, Status> {
        if sqe.cdw10.get() as u16 != 0 {
            return Err(Status::CONNECT_INCOMPATIBLE_FORMAT);
        }
        Ok(Connect {
            qid: (sqe.cdw10.get() >> 16) as u16,
            sqsize: sqe.cdw11.get() as u16,
            cattr: (sqe.cdw11.get() >> 16) as u8,
            kato: sqe.cdw12.get(),
        })
    }
}

/// A Fabrics command of type `fctype`.
pub(crate) fn fabrics(cid: u16, fctype: u8) -> Sqe {
    Sqe {
        opcode: FABRICS_OPCODE,
        flags: 0x40,
        cid: cid.into(),
        nsid: u32::from(fctype).into(),
        ..Sqe::default()
    }
}

/// Property Get of 4 or 8 bytes.
pub(crate) fn property_get(cid: u16, offset: u32, wide: bool) -> Sqe {
    let mut sqe = fabrics(cid, fctype::PROPERTY_GET);
    sqe.cdw10 = u32::from(wide).into();
    sqe.cdw11 = offset.into();
    sqe
}

/// Property Set of 4 bytes.
pub(crate) fn property_set(cid: u16, offset: u32, value: u32) -> Sqe {
    let mut sqe = fabrics(cid, fctype::PROPERTY_SET);
    sqe.cdw11 = offset.into();
    sqe.cdw12 = value.into();
    sqe
}

/// Data of a Connect command, 1024 bytes.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier, a UUID.
    pub hostid: [u8; 16],
    /// Controller: FFFFh asks for a new one.
    pub cntlid: U16,
    reserved_18: [u8; 238],
    subnqn: [u8; 256],
    hostnqn: [u8; 256],
    reserved_768: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Data for connecting `hostnqn` to a controller of `subnqn`.
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &str, hostnqn: &str) -> ConnectData {
        let mut data = ConnectData::new_zeroed();
        data.hostid = hostid;
        data.cntlid = cntlid.into();
        put_text(&mut data.subnqn, subnqn);
        put_text(&mut data.hostnqn, hostnqn);
        data
    }

    /// NQN of the subsystem; `None` if the field holds no NQN.
    pub fn subnqn(&self) -> Option<&str> {
        nqn(&self.subnqn)
    }

    /// NQN of the host, or nothing if it gives none; `None` if the field holds anything else.
    pub fn hostnqn(&self) -> Option<&str> {
        match self.hostnqn {
            [0, ..] => Some(""),
            _ => nqn(&self.hostnqn),
        }
    }
}

/// Whether this is an NQN as the specification defines it: `nqn.`, at most [`MAX_NQN`] bytes, no control characters.
pub fn is_nqn(text: &str) -> bool {
    text.starts_with("nqn.") && text.len() <= MAX_NQN && !text.chars().any(char::is_control)
}

/// A NUL-terminated NQN in a field.
pub(super) fn nqn(field: &[u8; 256]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(field.get(..end)?).ok()?;
    is_nqn(text).then_some(text)
}

/// Zero-padded text, cut so that at least one zero remains.
pub(crate) fn put_text(field: &mut [u8], text: &str) {
    let len = text.len().min(field.len().saturating_sub(1));
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// Dword 0 of the completion of a Connect command with an invalid parameter: the parameter's offset, and whether it is in the data.
pub(crate) fn invalid_parameter(offset: u16, in_data: bool) -> U32 {
    (u32::from(offset) | u32::from(in_data) << 16).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_layout() {
        let connect = Connect {
            qid: 0x0102,
            sqsize: 0x0304,
            cattr: 5,
            kato: 0x0607_0809,
        };
        let sqe = connect.to_sqe(0xABCD);
        let bytes = sqe.as_bytes();
        assert_eq!(bytes[..5], [0x7F, 0x40, 0xCD, 0xAB, 1]);
        assert_eq!(
            bytes[40..52],
            [0, 0, 0x02, 0x01, 0x04, 0x03, 5, 0, 0x09, 0x08, 0x07, 0x06]
        );
        assert_eq!(Connect::parse(&sqe), Ok(connect));
    }

    #[test]
    fn connect_data_layout() {
        let data = ConnectData::new([7; 16], 0x1234, "nqn.a", "nqn.b");
        let bytes = data.as_bytes();
        assert_eq!(bytes[..18], [[7; 16].as_slice(), &[0x34, 0x12]].concat());
        assert_eq!(bytes[256..262], *b"nqn.a\0");
        assert_eq!(bytes[512..518], *b"nqn.b\0");
        assert_eq!(data.subnqn(), Some("nqn.a"));
        assert_eq!(data.hostnqn(), Some("nqn.b"));
    }

    #[test]
    fn only_nqns_are_accepted() {
        let with = |text: &[u8]| {
            let mut data = ConnectData::new([0; 16], 0, "", "");
            data.subnqn[..text.len()].copy_from_slice(text);
            data.subnqn().is_some()
        };
        assert!(with(b"nqn.x"));
        assert!(!with(b""));
        assert!(!with(b"iqn.x"));
        assert!(!with(b"nqn.\xFF"));
        assert!(!with(b"nqn.\n"));
        assert!(!with(&[b"nqn.".as_slice(), &[b'a'; 220]].concat()));
        assert!(!with(&[b"nqn.".as_slice(), &[b'a'; 252]].concat()));
    }

    #[test]
    fn sgl_layout_and_types() {
        for sgl in [
            Sgl::InCapsule {
                offset: 0,
                length: 4096,
            },
            Sgl::Transport { length: 1 << 20 },
        ] {
            assert_eq!(Sgl::parse(&sgl.to_bytes()), Ok(sgl));
        }
        assert_eq!(Sgl::Transport { length: 1 }.to_bytes()[15], 0x5A);
        let mut keyed = Sgl::Transport { length: 1 }.to_bytes();
        keyed[15] = 0x40;
        assert_eq!(Sgl::parse(&keyed), Err(Status::SGL_TYPE_INVALID));
        assert_eq!(Sgl::parse(&[0; 16]), Ok(Sgl::Transport { length: 0 }));
    }
}
