//! In-band authentication with DH-HMAC-CHAP (Base Specification, "NVMe In-band Authentication"), of the host and, if it asks for
//! it, of the controller.
//!
//! This module has both sides as state machines without I/O. [`ControllerAuth`] takes what AUTH_Send commands carry and gives
//! what AUTH_Receive commands fetch; [`HostAuth`] says what to send and takes what was received; [`AuthCommand`] builds and reads
//! the commands themselves; [`Secret`] is a key in the form `DHHC-1:...` of the specification and of nvme-cli.
//!
//! It is not a secure channel: what follows on the connection is neither encrypted nor bound to the authentication, and secure
//! channel concatenation (SC_C other than 0) is refused. It does not keep time either: the transport limits how
//! long a host may take to authenticate.
//!
//! A transaction takes up to five messages, each the data of one command:
//!
//! ```text
//! host                                    controller
//! AUTH_Negotiate            -- AUTH_Send -->     hashes and groups that the host accepts
//! DH-HMAC-CHAP_Challenge    <- AUTH_Receive -    the choice, challenge C1, g^x
//! DH-HMAC-CHAP_Reply        -- AUTH_Send -->     response R1, g^y, challenge C2 if the controller is to authenticate
//! DH-HMAC-CHAP_Success1     <- AUTH_Receive -    response R2 if it was asked for
//! DH-HMAC-CHAP_Success2     -- AUTH_Send -->     only after an R2
//! ```
//!
//! `message.rs` holds their layouts, `controller.rs` and `host.rs` their order, and this file the response.

mod command;
mod controller;
mod ffdhe;
mod host;
mod message;
mod secret;
#[cfg(test)]
mod tests;
mod tls;

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use thiserror::Error;
use zeroize::Zeroizing;

pub use command::AuthCommand;
pub use controller::{AuthState, ControllerAuth};
pub use host::{HostAuth, HostStep};
pub use secret::{Secret, SecretError};
pub use tls::{GeneratedKey, TlsKey, TlsKeyError, TlsPsk};

/// Allocation length that holds every message of a controller, bytes: what a host should ask for with AUTH_Receive.
pub const RECEIVE_LEN: u32 = 4096;

/// Length of the largest message that a host can send, bytes: an AUTH_Negotiate with 255 protocol descriptors.
pub const MAX_SEND_LEN: u32 = 8 + 255 * 64;

/// Hash function of DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthHash {
    /// Identifier 01h, 32 bytes.
    Sha256,
    /// Identifier 02h, 48 bytes.
    Sha384,
    /// Identifier 03h, 64 bytes.
    Sha512,
}

impl AuthHash {
    /// All of them, by identifier.
    pub const ALL: [AuthHash; 3] = [AuthHash::Sha256, AuthHash::Sha384, AuthHash::Sha512];

    /// Identifier in messages and secrets.
    pub const fn id(self) -> u8 {
        match self {
            AuthHash::Sha256 => 1,
            AuthHash::Sha384 => 2,
            AuthHash::Sha512 => 3,
        }
    }

    /// The hash function with the identifier `id`, if there is one.
    pub fn from_id(id: u8) -> Option<AuthHash> {
        AuthHash::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Length of the output, bytes.
    pub const fn output_len(self) -> usize {
        match self {
            AuthHash::Sha256 => 32,
            AuthHash::Sha384 => 48,
            AuthHash::Sha512 => 64,
        }
    }

    fn digest(self, data: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            AuthHash::Sha256 => Sha256::digest(data).to_vec(),
            AuthHash::Sha384 => Sha384::digest(data).to_vec(),
            AuthHash::Sha512 => Sha512::digest(data).to_vec(),
        })
    }

    /// HMAC of the concatenation of `parts`.
    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        fn with<M: KeyInit + Mac>(key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
            let mut mac =
                <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
            for part in parts {
                mac.update(part);
            }
            Zeroizing::new(mac.finalize().into_bytes().to_vec())
        }
        match self {
            AuthHash::Sha256 => with::<Hmac<Sha256>>(key, parts),
            AuthHash::Sha384 => with::<Hmac<Sha384>>(key, parts),
            AuthHash::Sha512 => with::<Hmac<Sha512>>(key, parts),
        }
    }
}

impl fmt::Display for AuthHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthHash::Sha256 => "SHA-256",
            AuthHash::Sha384 => "SHA-384",
            AuthHash::Sha512 => "SHA-512",
        })
    }
}

/// Diffie-Hellman group of DH-HMAC-CHAP: none, or a safe-prime group of RFC 7919.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DhGroup {
    /// Identifier 00h: no exchange; responses are of the challenges alone.
    Null,
    /// Identifier 01h, 2048 bits.
    Ffdhe2048,
    /// Identifier 02h, 3072 bits.
    Ffdhe3072,
    /// Identifier 03h, 4096 bits.
    Ffdhe4096,
    /// Identifier 04h, 6144 bits.
    Ffdhe6144,
    /// Identifier 05h, 8192 bits.
    Ffdhe8192,
}

impl DhGroup {
    /// All of them, by identifier.
    pub const ALL: [DhGroup; 6] = [
        DhGroup::Null,
        DhGroup::Ffdhe2048,
        DhGroup::Ffdhe3072,
        DhGroup::Ffdhe4096,
        DhGroup::Ffdhe6144,
        DhGroup::Ffdhe8192,
    ];

    /// Identifier in messages.
    pub const fn id(self) -> u8 {
        match self {
            DhGroup::Null => 0,
            DhGroup::Ffdhe2048 => 1,
            DhGroup::Ffdhe3072 => 2,
            DhGroup::Ffdhe4096 => 3,
            DhGroup::Ffdhe6144 => 4,
            DhGroup::Ffdhe8192 => 5,
        }
    }

    /// The group with the identifier `id`, if there is one.
    pub fn from_id(id: u8) -> Option<DhGroup> {
        DhGroup::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Bits of the prime; 0 for [`DhGroup::Null`].
    pub const fn bits(self) -> u32 {
        match self {
            DhGroup::Null => 0,
            DhGroup::Ffdhe2048 => 2048,
            DhGroup::Ffdhe3072 => 3072,
            DhGroup::Ffdhe4096 => 4096,
            DhGroup::Ffdhe6144 => 6144,
            DhGroup::Ffdhe8192 => 8192,
        }
    }

    /// Length of a public value, bytes.
    pub const fn value_len(self) -> usize {
        self.bits() as usize / 8
    }
}

impl fmt::Display for DhGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DhGroup::Null => f.write_str("null"),
            group => write!(f, "ffdhe{}", group.bits()),
        }
    }
}

/// What one side accepts. A controller chooses the first of its own hashes and groups that the host offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthPolicy {
    /// Hash functions in order of preference; those after the 30th are not used.
    pub hashes: Vec<AuthHash>,
    /// Groups in order of preference; those after the 30th are not used.
    pub groups: Vec<DhGroup>,
}

impl AuthPolicy {
    /// What is left for a key of TLS: hash functions of cipher suites, and groups that make a session key.
    fn for_concatenation(mut self) -> AuthPolicy {
        self.hashes.retain(|hash| *hash != AuthHash::Sha512);
        self.groups.retain(|group| *group != DhGroup::Null);
        self
    }
}

impl Default for AuthPolicy {
    /// Everything: SHA-256 first, ffdhe3072 (128-bit security) first, [`DhGroup::Null`] last.
    ///
    /// The null group gives away nothing of a secret of 32 random bytes, as [`Secret::generate`] makes it. It exposes secrets that can be
    /// guessed: an eavesdropper can try them one by one.
    fn default() -> AuthPolicy {
        AuthPolicy {
            hashes: AuthHash::ALL.to_vec(),
            groups: vec![
                DhGroup::Ffdhe3072,
                DhGroup::Ffdhe4096,
                DhGroup::Ffdhe6144,
                DhGroup::Ffdhe8192,
                DhGroup::Ffdhe2048,
                DhGroup::Null,
            ],
        }
    }
}

/// Why an authentication failed, as AUTH_Failure1 and AUTH_Failure2 say it (reason code explanation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FailureReason {
    /// 01h.
    #[error("authentication failed")]
    AuthenticationFailed,
    /// 02h.
    #[error("authentication protocol not usable")]
    ProtocolNotUsable,
    /// 03h.
    #[error("secure channel concatenation mismatch")]
    ConcatenationMismatch,
    /// 04h.
    #[error("hash function not usable")]
    HashNotUsable,
    /// 05h.
    #[error("Diffie-Hellman group not usable")]
    GroupNotUsable,
    /// 06h.
    #[error("incorrect payload")]
    IncorrectPayload,
    /// 07h.
    #[error("incorrect protocol message")]
    IncorrectMessage,
    /// A code that the specification reserves.
    #[error("reserved reason code explanation {0:02X}h")]
    Reserved(u8),
}

impl FailureReason {
    /// The reason code explanation.
    pub const fn code(self) -> u8 {
        match self {
            FailureReason::AuthenticationFailed => 1,
            FailureReason::ProtocolNotUsable => 2,
            FailureReason::ConcatenationMismatch => 3,
            FailureReason::HashNotUsable => 4,
            FailureReason::GroupNotUsable => 5,
            FailureReason::IncorrectPayload => 6,
            FailureReason::IncorrectMessage => 7,
            FailureReason::Reserved(code) => code,
        }
    }

    /// The reason with the given reason code explanation.
    pub const fn from_code(code: u8) -> FailureReason {
        match code {
            1 => FailureReason::AuthenticationFailed,
            2 => FailureReason::ProtocolNotUsable,
            3 => FailureReason::ConcatenationMismatch,
            4 => FailureReason::HashNotUsable,
            5 => FailureReason::GroupNotUsable,
            6 => FailureReason::IncorrectPayload,
            7 => FailureReason::IncorrectMessage,
            code => FailureReason::Reserved(code),
        }
    }
}

/// Why an authentication failed, from the side that noticed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AuthError {
    /// A message is too short for its kind, or its fields give another length.
    #[error("{message} message: expected {expected} bytes, found {found}")]
    Length {
        /// The specification's name of the message.
        message: &'static str,
        /// Bytes that it must have.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// A message came in place of the one that comes next.
    #[error(
        "expected {expected}, found a message of type {auth_type:02X}h with identifier {auth_id:02X}h"
    )]
    UnexpectedMessage {
        /// What comes next.
        expected: &'static str,
        /// AUTH_TYPE found.
        auth_type: u8,
        /// AUTH_ID found.
        auth_id: u8,
    },
    /// A message of another transaction.
    #[error("expected a message of transaction {expected}, found one of transaction {found}")]
    Transaction {
        /// T_ID of the transaction in progress.
        expected: u16,
        /// T_ID found.
        found: u16,
    },
    /// A field has a value that it must not have.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: u32,
    },
    /// The host asks for secure channel concatenation and is not to, or does not ask for it and must.
    #[error("SC_C {0:02X}h is not what this host may ask for: a key for a secure channel, or none")]
    Concatenation(u8),
    /// No DH-HMAC-CHAP among the protocols offered.
    #[error("the host does not offer DH-HMAC-CHAP")]
    NoProtocol,
    /// No hash function that both sides accept.
    #[error("the host offers no hash function that the controller accepts")]
    NoHash,
    /// No group that both sides accept.
    #[error("the host offers no Diffie-Hellman group that the controller accepts")]
    NoGroup,
    /// The controller chose a hash function that was not offered, or one of another length.
    #[error("the controller chose hash function {id:02X}h of {len} bytes, which was not offered")]
    HashNotOffered {
        /// Hash function identifier.
        id: u8,
        /// Hash length, bytes.
        len: u8,
    },
    /// The controller chose a group that was not offered.
    #[error("the controller chose Diffie-Hellman group {0:02X}h, which was not offered")]
    GroupNotOffered(u8),
    /// A public value that is not between 2 and p - 2.
    #[error("the public value is not one of the group {0}")]
    PublicValue(DhGroup),
    /// The host's response is wrong: it does not have the secret.
    #[error("the host's response is wrong")]
    HostResponse,
    /// The controller's response is wrong: it does not have the secret.
    #[error("the controller's response is wrong")]
    ControllerResponse,
    /// The host asks the controller to authenticate, but the controller has no secret.
    #[error("the host asks the controller to authenticate, but it has no secret")]
    NoControllerSecret,
    /// The controller should have authenticated, and did not.
    #[error("the controller did not authenticate")]
    ControllerSilent,
    /// The other side sent AUTH_Failure1 or AUTH_Failure2.
    #[error("refused by the other side: {0}")]
    Refused(FailureReason),
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system")]
    Random,
}

impl AuthError {
    /// What the other side is told.
    pub fn reason(&self) -> FailureReason {
        match self {
            AuthError::UnexpectedMessage { .. } => FailureReason::IncorrectMessage,
            AuthError::Length { .. } | AuthError::Transaction { .. } | AuthError::Field { .. } => {
                FailureReason::IncorrectPayload
            }
            AuthError::PublicValue(_) => FailureReason::IncorrectPayload,
            AuthError::Concatenation(_) => FailureReason::ConcatenationMismatch,
            AuthError::NoProtocol => FailureReason::ProtocolNotUsable,
            AuthError::NoHash | AuthError::HashNotOffered { .. } => FailureReason::HashNotUsable,
            AuthError::NoGroup | AuthError::GroupNotOffered(_) => FailureReason::GroupNotUsable,
            AuthError::HostResponse
            | AuthError::ControllerResponse
            | AuthError::NoControllerSecret
            | AuthError::ControllerSilent
            | AuthError::Random => FailureReason::AuthenticationFailed,
            AuthError::Refused(reason) => *reason,
        }
    }
}

/// Who answers a challenge. The response covers it, so that one side's response never passes for the other's.
#[derive(Clone, Copy)]
enum Role {
    Host,
    Controller,
}

/// What a response covers beside the challenge itself.
struct Exchange<'a> {
    hash: AuthHash,
    /// Shared Diffie-Hellman secret; `None` with the null group.
    shared: Option<&'a [u8]>,
    t_id: u16,
    /// Whether a key for a secure channel is to come out of it.
    concatenation: bool,
    host_nqn: &'a str,
    sub_nqn: &'a str,
}

impl Exchange<'_> {
    /// The generated key: of the session key and both challenges. `None` without concatenation, or with the null group.
    fn generated(&self, challenges: [&[u8]; 2]) -> Option<GeneratedKey> {
        let session = self
            .hash
            .digest(self.shared.filter(|_| self.concatenation)?);
        Some(GeneratedKey {
            hash: self.hash,
            key: self.hash.hmac(&session, &challenges),
        })
    }

    fn sc_c(&self) -> u8 {
        if self.concatenation {
            message::NEW_TLS_PSK
        } else {
            message::NO_CONCATENATION
        }
    }

    /// The response of `role`, which has `secret`, to `challenge` with the sequence number `sequence`.
    fn response(
        &self,
        role: Role,
        secret: &Secret,
        challenge: &[u8],
        sequence: u32,
    ) -> Zeroizing<Vec<u8>> {
        let (label, own_nqn, other_nqn) = match role {
            Role::Host => ("HostHost", self.host_nqn, self.sub_nqn),
            Role::Controller => ("Controller", self.sub_nqn, self.host_nqn),
        };
        let augmented = self
            .shared
            .map(|shared| self.hash.hmac(&self.hash.digest(shared), &[challenge]));
        self.hash.hmac(
            &secret.transformed(own_nqn),
            &[
                augmented.as_deref().map_or(challenge, Vec::as_slice),
                &sequence.to_le_bytes(),
                &self.t_id.to_le_bytes(),
                &[self.sc_c()],
                label.as_bytes(),
                own_nqn.as_bytes(),
                &[0],
                other_nqn.as_bytes(),
            ],
        )
    }
}

/// Source of random numbers.
#[derive(Debug)]
enum Random {
    System,
    #[cfg(test)]
    Fixed(std::collections::VecDeque<u8>),
}

impl Random {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), AuthError> {
        match self {
            Random::System => getrandom::fill(bytes).map_err(|_| AuthError::Random),
            #[cfg(test)]
            Random::Fixed(source) => {
                for byte in bytes {
                    *byte = source.pop_front().ok_or(AuthError::Random)?;
                }
                Ok(())
            }
        }
    }

    fn challenge(&mut self, hash: AuthHash) -> Result<Vec<u8>, AuthError> {
        let mut challenge = vec![0; hash.output_len()];
        self.fill(&mut challenge)?;
        Ok(challenge)
    }
}

/// Sequence numbers of challenges: the first is random, the others count up, none is 0, which has a meaning of its own.
#[derive(Debug, Default)]
struct Sequence(u32);

impl Sequence {
    fn next(&mut self, random: &mut Random) -> Result<u32, AuthError> {
        if self.0 == 0 {
            let mut bytes = [0; 4];
            random.fill(&mut bytes)?;
            self.0 = u32::from_le_bytes(bytes).max(1);
        } else {
            self.0 = self.0.checked_add(1).unwrap_or(1);
        }
        Ok(self.0)
    }
}
