//! Layouts of the messages (Base Specification, "Authentication Protocol" and "DH-HMAC-CHAP Protocol").

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{AuthError, AuthHash, AuthPolicy, DhGroup, FailureReason};

/// SC_C without secure channel concatenation.
pub(super) const NO_CONCATENATION: u8 = 0;
/// SC_C for a new key of TLS.
pub(super) const NEW_TLS_PSK: u8 = 2;

const DHCHAP_AUTH_ID: u8 = 1;
const FAILURE_REASON_CODE: u8 = 1;

/// AUTH_TYPE and AUTH_ID of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    auth_type: u8,
    auth_id: u8,
    name: &'static str,
}

const fn kind(auth_type: u8, auth_id: u8, name: &'static str) -> Kind {
    Kind {
        auth_type,
        auth_id,
        name,
    }
}

pub(super) const NEGOTIATE: Kind = kind(0, 0x00, "AUTH_Negotiate");
pub(super) const CHALLENGE: Kind = kind(1, 0x01, "DH-HMAC-CHAP_Challenge");
pub(super) const REPLY: Kind = kind(1, 0x02, "DH-HMAC-CHAP_Reply");
pub(super) const SUCCESS1: Kind = kind(1, 0x03, "DH-HMAC-CHAP_Success1");
pub(super) const SUCCESS2: Kind = kind(1, 0x04, "DH-HMAC-CHAP_Success2");
pub(super) const FAILURE1: Kind = kind(0, 0xF0, "AUTH_Failure1");
pub(super) const FAILURE2: Kind = kind(0, 0xF1, "AUTH_Failure2");

macro_rules! layout {
    ($(#[$doc:meta])* $name:ident, $len:literal { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $len);
    };
}

layout! {
    /// What every message starts with.
    Header, 6 {
        auth_type: u8,
        auth_id: u8,
        reserved: U16,
        t_id: U16,
    }
}
layout! {
    /// AUTH_Negotiate, before its protocol descriptors.
    Negotiate, 8 {
        header: Header,
        sc_c: u8,
        napd: u8,
    }
}
layout! {
    /// Protocol descriptor of DH-HMAC-CHAP; those of other protocols have another first byte and the same length.
    Descriptor, 64 {
        auth_id: u8,
        reserved: u8,
        halen: u8,
        dhlen: u8,
        hashes: [u8; 30],
        groups: [u8; 30],
    }
}
layout! {
    /// DH-HMAC-CHAP_Challenge, before the challenge and the public value.
    Challenge, 16 {
        header: Header,
        hl: u8,
        reserved: u8,
        hash_id: u8,
        dhg_id: u8,
        dhvlen: U16,
        seqnum: U32,
    }
}
layout! {
    /// DH-HMAC-CHAP_Reply, before the response, the challenge (there even if it does not count) and the public value.
    Reply, 16 {
        header: Header,
        hl: u8,
        reserved: u8,
        cvalid: u8,
        reserved1: u8,
        dhvlen: U16,
        seqnum: U32,
    }
}
layout! {
    /// DH-HMAC-CHAP_Success1, before the response.
    Success1, 16 {
        header: Header,
        hl: u8,
        reserved: u8,
        rvalid: u8,
        reserved1: [u8; 7],
    }
}
layout! {
    /// DH-HMAC-CHAP_Success2.
    Success2, 16 {
        header: Header,
        reserved: [u8; 10],
    }
}
layout! {
    /// AUTH_Failure1 and AUTH_Failure2.
    Failure, 8 {
        header: Header,
        reason: u8,
        explanation: u8,
    }
}

impl Header {
    fn new(kind: Kind, t_id: u16) -> Header {
        Header {
            auth_type: kind.auth_type,
            auth_id: kind.auth_id,
            reserved: U16::ZERO,
            t_id: t_id.into(),
        }
    }

    /// The header of `payload`, if it is long enough for one.
    pub(super) fn parse(payload: &[u8]) -> Result<Header, AuthError> {
        match Header::read_from_prefix(payload) {
            Ok((header, _)) => Ok(header),
            Err(_) => Err(AuthError::Length {
                message: "authentication",
                expected: size_of::<Header>(),
                found: payload.len(),
            }),
        }
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        (self.auth_type, self.auth_id) == (kind.auth_type, kind.auth_id)
    }

    /// Fails unless this is a message of the kind `expected` and of the transaction `t_id`.
    pub(super) fn check(&self, expected: Kind, t_id: u16) -> Result<(), AuthError> {
        if !self.is(expected) {
            return Err(self.unexpected(expected.name));
        }
        if self.t_id.get() != t_id {
            return Err(AuthError::Transaction {
                expected: t_id,
                found: self.t_id.get(),
            });
        }
        Ok(())
    }

    pub(super) fn unexpected(&self, expected: &'static str) -> AuthError {
        AuthError::UnexpectedMessage {
            expected,
            auth_type: self.auth_type,
            auth_id: self.auth_id,
        }
    }
}

/// The fixed part of a message and the values after it.
fn split<T: FromBytes + KnownLayout + Immutable>(
    kind: Kind,
    payload: &[u8],
) -> Result<(T, &[u8]), AuthError> {
    T::read_from_prefix(payload).map_err(|_| AuthError::Length {
        message: kind.name,
        expected: size_of::<T>(),
        found: payload.len(),
    })
}

/// Fails unless `values`, what follows the fixed part `T`, has `expected` bytes.
fn check_values<T>(kind: Kind, values: &[u8], expected: usize) -> Result<(), AuthError> {
    if values.len() == expected {
        return Ok(());
    }
    Err(AuthError::Length {
        message: kind.name,
        expected: size_of::<T>() + expected,
        found: size_of::<T>() + values.len(),
    })
}

/// The first `len` bytes of `values`, what follows the fixed part `T`; more may follow, since AUTH_Receive commands ask for more.
fn take<T>(kind: Kind, values: &[u8], len: usize) -> Result<&[u8], AuthError> {
    values.get(..len).ok_or(AuthError::Length {
        message: kind.name,
        expected: size_of::<T>() + len,
        found: size_of::<T>() + values.len(),
    })
}

fn check_flag(field: &'static str, value: u8) -> Result<bool, AuthError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(AuthError::Field {
            field,
            expected: "0 or 1",
            found: value.into(),
        }),
    }
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

pub(super) fn negotiate(t_id: u16, policy: &AuthPolicy, sc_c: u8) -> Vec<u8> {
    let mut descriptor = Descriptor::new_zeroed();
    descriptor.auth_id = DHCHAP_AUTH_ID;
    for (slot, hash) in descriptor.hashes.iter_mut().zip(&policy.hashes) {
        *slot = hash.id();
        descriptor.halen += 1;
    }
    for (slot, group) in descriptor.groups.iter_mut().zip(&policy.groups) {
        *slot = group.id();
        descriptor.dhlen += 1;
    }
    let negotiate = Negotiate {
        header: Header::new(NEGOTIATE, t_id),
        sc_c,
        napd: 1,
    };
    join(&[negotiate.as_bytes(), descriptor.as_bytes()])
}

/// The hash function and the group that `policy` prefers among those of an AUTH_Negotiate message, which must ask for `sc_c`.
pub(super) fn choose(
    payload: &[u8],
    policy: &AuthPolicy,
    sc_c: u8,
) -> Result<(AuthHash, DhGroup), AuthError> {
    let (negotiate, values) = split::<Negotiate>(NEGOTIATE, payload)?;
    let count = usize::from(negotiate.napd);
    check_values::<Negotiate>(NEGOTIATE, values, count * size_of::<Descriptor>())?;
    if negotiate.sc_c != sc_c {
        return Err(AuthError::Concatenation(negotiate.sc_c));
    }
    let descriptor = values
        .chunks_exact(size_of::<Descriptor>())
        .filter_map(|chunk| Descriptor::ref_from_bytes(chunk).ok())
        .find(|descriptor| descriptor.auth_id == DHCHAP_AUTH_ID)
        .ok_or(AuthError::NoProtocol)?;
    let list = |field, ids: &'static str, len: u8, all: &[u8]| -> Result<Vec<u8>, AuthError> {
        let ids = all.get(..usize::from(len)).ok_or(AuthError::Field {
            field,
            expected: ids,
            found: len.into(),
        })?;
        Ok(ids.to_vec())
    };
    let hashes = list("HALEN", "at most 30", descriptor.halen, &descriptor.hashes)?;
    let groups = list("DHLEN", "at most 30", descriptor.dhlen, &descriptor.groups)?;
    let hash = policy
        .hashes
        .iter()
        .find(|hash| hashes.contains(&hash.id()))
        .ok_or(AuthError::NoHash)?;
    let group = policy
        .groups
        .iter()
        .find(|group| groups.contains(&group.id()))
        .ok_or(AuthError::NoGroup)?;
    Ok((*hash, *group))
}

/// A challenge, as the host reads it.
pub(super) struct ChallengeValues<'a> {
    pub(super) hash: AuthHash,
    pub(super) group: DhGroup,
    pub(super) sequence: u32,
    pub(super) challenge: &'a [u8],
    /// Public value of the controller, empty with the null group.
    pub(super) public: &'a [u8],
}

pub(super) fn challenge(t_id: u16, values: &ChallengeValues) -> Vec<u8> {
    let fixed = Challenge {
        header: Header::new(CHALLENGE, t_id),
        hl: values.hash.output_len() as u8,
        reserved: 0,
        hash_id: values.hash.id(),
        dhg_id: values.group.id(),
        dhvlen: (values.public.len() as u16).into(),
        seqnum: values.sequence.into(),
    };
    join(&[fixed.as_bytes(), values.challenge, values.public])
}

/// Reads a challenge for a host that offered `policy`.
pub(super) fn parse_challenge<'a>(
    payload: &'a [u8],
    policy: &AuthPolicy,
) -> Result<ChallengeValues<'a>, AuthError> {
    let (fixed, values) = split::<Challenge>(CHALLENGE, payload)?;
    let hash = AuthHash::from_id(fixed.hash_id)
        .filter(|hash| policy.hashes.contains(hash) && hash.output_len() == usize::from(fixed.hl))
        .ok_or(AuthError::HashNotOffered {
            id: fixed.hash_id,
            len: fixed.hl,
        })?;
    let group = DhGroup::from_id(fixed.dhg_id)
        .filter(|group| policy.groups.contains(group))
        .ok_or(AuthError::GroupNotOffered(fixed.dhg_id))?;
    let hl = hash.output_len();
    let dhvlen = usize::from(fixed.dhvlen.get());
    check_dhvlen(group, dhvlen)?;
    let (challenge, public) = take::<Challenge>(CHALLENGE, values, hl + dhvlen)?.split_at(hl);
    Ok(ChallengeValues {
        hash,
        group,
        sequence: fixed.seqnum.get(),
        challenge,
        public,
    })
}

fn check_dhvlen(group: DhGroup, dhvlen: usize) -> Result<(), AuthError> {
    let (fits, expected) = match group {
        DhGroup::Null => (dhvlen == 0, "0 with the null group"),
        group => (
            (1..=group.value_len()).contains(&dhvlen),
            "the length of the group's prime at most, and not 0",
        ),
    };
    if fits {
        return Ok(());
    }
    Err(AuthError::Field {
        field: "DHVLEN",
        expected,
        found: dhvlen as u32,
    })
}

/// A reply, as the controller reads it.
pub(super) struct ReplyValues<'a> {
    pub(super) response: &'a [u8],
    /// Challenge and sequence number for the controller, if it is to authenticate.
    pub(super) challenge: Option<(&'a [u8], u32)>,
    /// Public value of the host, empty with the null group.
    pub(super) public: &'a [u8],
}

/// A reply; `sequence` is sent even if there is no challenge, since 0 would ask for secure channel concatenation.
pub(super) fn reply(
    t_id: u16,
    response: &[u8],
    challenge: Option<&[u8]>,
    sequence: u32,
    public: &[u8],
) -> Vec<u8> {
    let fixed = Reply {
        header: Header::new(REPLY, t_id),
        hl: response.len() as u8,
        reserved: 0,
        cvalid: challenge.is_some().into(),
        reserved1: 0,
        dhvlen: (public.len() as u16).into(),
        seqnum: sequence.into(),
    };
    let none = vec![0; response.len()];
    join(&[
        fixed.as_bytes(),
        response,
        challenge.unwrap_or(&none),
        public,
    ])
}

/// Reads a reply to a challenge with `hash` and `group`.
pub(super) fn parse_reply(
    payload: &[u8],
    hash: AuthHash,
    group: DhGroup,
) -> Result<ReplyValues<'_>, AuthError> {
    let (fixed, values) = split::<Reply>(REPLY, payload)?;
    let hl = hash.output_len();
    check_hl(fixed.hl, hash)?;
    let dhvlen = usize::from(fixed.dhvlen.get());
    check_dhvlen(group, dhvlen)?;
    check_values::<Reply>(REPLY, values, 2 * hl + dhvlen)?;
    let (response, values) = values.split_at(hl);
    let (challenge, public) = values.split_at(hl);
    let sequence = fixed.seqnum.get();
    let challenge = check_flag("CVALID", fixed.cvalid)?.then_some((challenge, sequence));
    Ok(ReplyValues {
        response,
        challenge,
        public,
    })
}

fn check_hl(hl: u8, hash: AuthHash) -> Result<(), AuthError> {
    if usize::from(hl) == hash.output_len() {
        return Ok(());
    }
    Err(AuthError::Field {
        field: "HL",
        expected: "the length of the hash function chosen",
        found: hl.into(),
    })
}

/// Success1. HL is that of the hash even without a response: Linux refuses 0.
pub(super) fn success1(t_id: u16, hash: AuthHash, response: Option<&[u8]>) -> Vec<u8> {
    let fixed = Success1 {
        header: Header::new(SUCCESS1, t_id),
        hl: hash.output_len() as u8,
        reserved: 0,
        rvalid: response.is_some().into(),
        reserved1: [0; 7],
    };
    join(&[fixed.as_bytes(), response.unwrap_or_default()])
}

/// The controller's response in a Success1 message, if there is one.
pub(super) fn parse_success1(payload: &[u8], hash: AuthHash) -> Result<Option<&[u8]>, AuthError> {
    let (fixed, values) = split::<Success1>(SUCCESS1, payload)?;
    if !check_flag("RVALID", fixed.rvalid)? {
        return Ok(None);
    }
    check_hl(fixed.hl, hash)?;
    take::<Success1>(SUCCESS1, values, hash.output_len()).map(Some)
}

pub(super) fn success2(t_id: u16) -> Vec<u8> {
    let message = Success2 {
        header: Header::new(SUCCESS2, t_id),
        reserved: [0; 10],
    };
    message.as_bytes().to_vec()
}

pub(super) fn check_success2(payload: &[u8]) -> Result<(), AuthError> {
    let (_, values) = split::<Success2>(SUCCESS2, payload)?;
    check_values::<Success2>(SUCCESS2, values, 0)
}

pub(super) fn failure(kind: Kind, t_id: u16, reason: FailureReason) -> Vec<u8> {
    let message = Failure {
        header: Header::new(kind, t_id),
        reason: FAILURE_REASON_CODE,
        explanation: reason.code(),
    };
    message.as_bytes().to_vec()
}

pub(super) fn parse_failure(kind: Kind, payload: &[u8]) -> Result<FailureReason, AuthError> {
    let (fixed, _) = split::<Failure>(kind, payload)?;
    Ok(FailureReason::from_code(fixed.explanation))
}
