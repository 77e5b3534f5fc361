//! Virtual register numbers (platform paper, sections 4.1 and 4.2).

use std::fmt;
use std::str::FromStr;

/// What a virtual register holds: the types of Table 2, with their numbers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum VrType {
    /// A secure computing program.
    Prg = 0,
    /// A test vector.
    Tv = 1,
    /// A key that bootstrapping uses; the data id says which ([`KeyKind`]).
    Key = 2,
    /// An LWE sample whose read runs the program (compute-on-read).
    LweCor = 3,
    /// An LWE sample whose write runs the program (compute-on-write).
    LweCow = 4,
}

impl VrType {
    /// Every type, in the order of their numbers.
    pub const ALL: [VrType; 5] = [
        VrType::Prg,
        VrType::Tv,
        VrType::Key,
        VrType::LweCor,
        VrType::LweCow,
    ];

    /// The type with this number of Table 2, if there is one.
    pub const fn from_number(number: u8) -> Option<VrType> {
        match number {
            0 => Some(VrType::Prg),
            1 => Some(VrType::Tv),
            2 => Some(VrType::Key),
            3 => Some(VrType::LweCor),
            4 => Some(VrType::LweCow),
            _ => None,
        }
    }

    /// The number of the type in Table 2.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The name in text: `prg`, `tv`, `key`, `cor` or `cow`.
    pub const fn name(self) -> &'static str {
        match self {
            VrType::Prg => "prg",
            VrType::Tv => "tv",
            VrType::Key => "key",
            VrType::LweCor => "cor",
            VrType::LweCow => "cow",
        }
    }

    /// The type with this name, in either case, if there is one.
    pub fn from_name(name: &str) -> Option<VrType> {
        VrType::ALL
            .into_iter()
            .find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// Whether registers of this type hold LWE samples.
    pub const fn is_sample(self) -> bool {
        matches!(self, VrType::LweCor | VrType::LweCow)
    }
}

impl fmt::Display for VrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The keys of a key id, with their data ids: those that a Bootstrap needs are in Table 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum KeyKind {
    /// BKNTT, the transformed bootstrapping key.
    Bootstrapping = 1,
    /// KSK, the public functional key-switching key.
    KeySwitching = 2,
    /// The evaluation keys of ring columns.
    Ring = 3,
    /// The keys between samples and ring columns.
    Conversion = 4,
}

impl KeyKind {
    /// Every kind, in the order of their data ids.
    pub const ALL: [KeyKind; 4] = [
        KeyKind::Bootstrapping,
        KeyKind::KeySwitching,
        KeyKind::Ring,
        KeyKind::Conversion,
    ];

    /// The data id of the key's virtual register.
    pub const fn data_id(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KeyKind::Bootstrapping => "bootstrapping key",
            KeyKind::KeySwitching => "key-switching key",
            KeyKind::Ring => "ring key",
            KeyKind::Conversion => "conversion key",
        })
    }
}

/// The number of a virtual register: type in bits 56-63, key id in bits 32-55, data id in bits 0-31.
///
/// Every value of this type has one of the five types and a key id below 2^24. Which data ids a type can have (Table 3) is
/// for the drive to say. The text form is `type:key:data`, for example `cor:0:1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VrNumber(u64);

impl VrNumber {
    /// The largest key id.
    pub const MAX_KEY_ID: u32 = (1 << 24) - 1;

    /// The register of this type, key id and data id.
    ///
    /// # Errors
    /// [`VrError::KeyId`] if the key id is 2^24 or more.
    pub const fn new(ty: VrType, key_id: u32, data_id: u32) -> Result<VrNumber, VrError> {
        if key_id > Self::MAX_KEY_ID {
            return Err(VrError::KeyId { found: key_id });
        }
        Ok(VrNumber(
            (ty as u64) << 56 | (key_id as u64) << 32 | data_id as u64,
        ))
    }

    /// The register of a key.
    ///
    /// # Errors
    /// [`VrError::KeyId`] if the key id is 2^24 or more.
    pub const fn key(key_id: u32, kind: KeyKind) -> Result<VrNumber, VrError> {
        VrNumber::new(VrType::Key, key_id, kind.data_id())
    }

    /// The register of the program that triggers with this key id run.
    ///
    /// # Errors
    /// [`VrError::KeyId`] if the key id is 2^24 or more.
    pub const fn program(key_id: u32) -> Result<VrNumber, VrError> {
        VrNumber::new(VrType::Prg, key_id, 0)
    }

    /// Takes the 64-bit form apart.
    ///
    /// # Errors
    /// [`VrError::Type`] if the top byte is not a type.
    pub const fn from_u64(raw: u64) -> Result<VrNumber, VrError> {
        match VrType::from_number((raw >> 56) as u8) {
            Some(_) => Ok(VrNumber(raw)),
            None => Err(VrError::Type {
                found: (raw >> 56) as u8,
            }),
        }
    }

    /// The 64-bit form.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// What the register holds.
    pub const fn ty(self) -> VrType {
        match self.0 >> 56 {
            0 => VrType::Prg,
            1 => VrType::Tv,
            2 => VrType::Key,
            3 => VrType::LweCor,
            _ => VrType::LweCow,
        }
    }

    /// The set of keys that the content belongs to; below 2^24.
    pub const fn key_id(self) -> u32 {
        (self.0 >> 32) as u32 & Self::MAX_KEY_ID
    }

    /// The identifier among the registers of the same type and key id.
    pub const fn data_id(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for VrNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.ty(), self.key_id(), self.data_id())
    }
}

impl fmt::Debug for VrNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VrNumber({self})")
    }
}

impl TryFrom<u64> for VrNumber {
    type Error = VrError;

    fn try_from(raw: u64) -> Result<Self, VrError> {
        VrNumber::from_u64(raw)
    }
}

impl From<VrNumber> for u64 {
    fn from(vr: VrNumber) -> u64 {
        vr.0
    }
}

impl FromStr for VrNumber {
    type Err = VrError;

    fn from_str(text: &str) -> Result<Self, VrError> {
        let malformed = || VrError::Syntax {
            found: text.chars().take(40).collect(),
        };
        let mut parts = text.split(':');
        let (Some(ty), Some(key), Some(data), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let number = |digits: &str| -> Result<u32, VrError> {
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(malformed());
            }
            digits.parse().map_err(|_| malformed())
        };
        VrNumber::new(
            VrType::from_name(ty).ok_or_else(malformed)?,
            number(key)?,
            number(data)?,
        )
    }
}

/// Why something is not a virtual register number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VrError {
    /// The type field is not one of Table 2.
    #[error("virtual register type {found} does not exist (expected 0 to 4)")]
    Type {
        /// The type field.
        found: u8,
    },
    /// The key id does not fit its 24 bits.
    #[error("key id {found} is too large (expected at most 16777215)")]
    KeyId {
        /// The key id.
        found: u32,
    },
    /// The text has not the form `type:key:data`.
    #[error(
        "`{found}` is not a virtual register (expected TYPE:KEY:DATA, such as cor:0:1, with TYPE one of prg, tv, key, cor, cow, and decimal numbers of 32 bits)"
    )]
    Syntax {
        /// The text, at most its first 40 characters.
        found: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_sit_where_the_number_says() {
        let vr = VrNumber::new(VrType::LweCow, 0x00ab_cdef, 0x1234_5678).unwrap();
        assert_eq!(vr.to_u64(), 0x04ab_cdef_1234_5678);
        assert_eq!(
            (vr.ty(), vr.key_id(), vr.data_id()),
            (VrType::LweCow, 0x00ab_cdef, 0x1234_5678)
        );
        assert_eq!(VrNumber::from_u64(0x04ab_cdef_1234_5678), Ok(vr));
        assert_eq!(
            VrNumber::key(7, KeyKind::KeySwitching).unwrap().to_string(),
            "key:7:2"
        );
        assert_eq!(VrNumber::program(7).unwrap().to_string(), "prg:7:0");
    }

    #[test]
    fn bad_numbers_are_refused() {
        assert_eq!(
            VrNumber::new(VrType::Tv, 1 << 24, 0),
            Err(VrError::KeyId { found: 1 << 24 })
        );
        assert_eq!(VrNumber::from_u64(5 << 56), Err(VrError::Type { found: 5 }));
        assert_eq!(
            VrNumber::from_u64(u64::MAX),
            Err(VrError::Type { found: 255 })
        );
    }

    #[test]
    fn text_form_is_strict() {
        assert_eq!("COR:0:1".parse(), VrNumber::new(VrType::LweCor, 0, 1));
        assert_eq!(
            "key:16777215:4294967295".parse(),
            VrNumber::new(VrType::Key, 0xff_ffff, u32::MAX)
        );
        for text in [
            "",
            "cor",
            "cor:0",
            "cor:0:1:2",
            "cor::1",
            "cor:+0:1",
            "cor:-1:1",
            "reg:0:1",
            "cor:0:4294967296",
            "cor: 0:1",
        ] {
            assert!(
                matches!(text.parse::<VrNumber>(), Err(VrError::Syntax { .. })),
                "{text}"
            );
        }
        assert_eq!(
            "cor:16777216:0".parse::<VrNumber>(),
            Err(VrError::KeyId { found: 1 << 24 })
        );
    }
}
