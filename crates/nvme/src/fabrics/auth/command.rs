//! The fabrics commands that carry authentication messages (Base Specification, "Authentication Send" and "Authentication Receive").

use crate::fabrics::command::{FABRICS_OPCODE, fabrics, fctype};
use crate::{Sqe, Status};

/// Security protocol (SECP): assigned to NVM Express.
const SECP: u8 = 0xE9;
/// First byte of the security protocol specific field (SPSP0).
const SPSP0: u8 = 0x01;
/// Second byte of the security protocol specific field (SPSP1).
const SPSP1: u8 = 0x01;

/// An Authentication Send or Authentication Receive command. Its data pointer is the transport's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthCommand {
    /// Carries a message from host to controller.
    Send {
        /// Transfer length (TL), bytes, not 0.
        len: u32,
    },
    /// Fetches a message of the controller.
    Receive {
        /// Allocation length (AL), bytes, not 0.
        len: u32,
    },
}

impl AuthCommand {
    /// The command as a submission queue entry.
    pub fn sqe(self, cid: u16) -> Sqe {
        let (kind, len) = match self {
            AuthCommand::Send { len } => (fctype::AUTH_SEND, len),
            AuthCommand::Receive { len } => (fctype::AUTH_RECEIVE, len),
        };
        let mut sqe = fabrics(cid, kind);
        sqe.cdw10 = u32::from_le_bytes([0, SPSP0, SPSP1, SECP]).into();
        sqe.cdw11 = len.into();
        sqe
    }

    /// Reads `sqe`.
    ///
    /// Fails with Invalid Command Opcode for any other command, and with Invalid Field in Command for another security protocol or
    /// a length of 0.
    pub fn parse(sqe: &Sqe) -> Result<AuthCommand, Status> {
        // The command type has the place of the namespace identifier's lowest byte.
        let kind = sqe.nsid.get() as u8;
        let len = sqe.cdw11.get();
        let command = match (sqe.opcode, kind) {
            (FABRICS_OPCODE, fctype::AUTH_SEND) => AuthCommand::Send { len },
            (FABRICS_OPCODE, fctype::AUTH_RECEIVE) => AuthCommand::Receive { len },
            _ => return Err(Status::INVALID_OPCODE),
        };
        let [_, spsp0, spsp1, secp] = sqe.cdw10.get().to_le_bytes();
        if (spsp0, spsp1, secp) != (SPSP0, SPSP1, SECP) || len == 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::{FromBytes, IntoBytes};

    #[test]
    fn layout_of_both_commands() {
        for (command, fctype) in [
            (AuthCommand::Send { len: 0x0102_0304 }, 5),
            (AuthCommand::Receive { len: 0x0102_0304 }, 6),
        ] {
            let sqe = command.sqe(0x1234);
            let mut expected = [0u8; 64];
            expected[..5].copy_from_slice(&[0x7F, 0x40, 0x34, 0x12, fctype]);
            expected[41..48].copy_from_slice(&[1, 1, 0xE9, 4, 3, 2, 1]);
            assert_eq!(sqe.as_bytes(), expected);
            assert_eq!(AuthCommand::parse(&sqe), Ok(command));
        }
    }

    #[test]
    fn refuses_other_commands_and_protocols() {
        let good = AuthCommand::Send { len: 8 }.sqe(1);
        let with = |edit: fn(&mut Sqe)| {
            let mut sqe = good;
            edit(&mut sqe);
            AuthCommand::parse(&sqe).unwrap_err()
        };
        assert_eq!(with(|s| s.opcode = 0x81), Status::INVALID_OPCODE);
        assert_eq!(with(|s| s.nsid = 1.into()), Status::INVALID_OPCODE);
        assert_eq!(
            with(|s| s.cdw10 = 0xE901_0200.into()),
            Status::INVALID_FIELD
        );
        assert_eq!(
            with(|s| s.cdw10 = 0xE902_0100.into()),
            Status::INVALID_FIELD
        );
        assert_eq!(
            with(|s| s.cdw10 = 0xEF01_0100.into()),
            Status::INVALID_FIELD
        );
        assert_eq!(with(|s| s.cdw11 = 0.into()), Status::INVALID_FIELD);
    }

    proptest! {
        #[test]
        fn any_entry_is_read_or_refused(bytes in any::<[[u8; 32]; 2]>()) {
            let _ = AuthCommand::parse(&Sqe::read_from_bytes(bytes.as_bytes()).unwrap());
        }
    }
}
