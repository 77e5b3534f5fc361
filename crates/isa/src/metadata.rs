//! Secure computing metadata: what a block says of the encrypted object that it holds a part of (platform paper, section 4.1).
//!
//! The 64 bytes travel as NVMe metadata beside each logical block, or at the head of a logical block in the second half of the
//! LBA space (section 5). `docs/reference/formats.md` has the table of fields.

use std::fmt;

use crate::{KeyKind, VrNumber, VrType};
use thiserror::Error;
use zerocopy::little_endian::{F32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"TSCM";
const VERSION: u8 = 1;
const COMPUTED: u8 = 1;
const SIGNED: u8 = 2;
const COLUMN: u8 = 4;

/// The layout on the border.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    version: u8,
    ty: u8,
    params: U16,
    key_id: U32,
    data_id: U32,
    size: U64,
    offset: U64,
    blocks: U32,
    message_bits: u8,
    flags: u8,
    output_bits: u8,
    reserved_39: u8,
    log2_variance: F32,
    log2_p_fail: F32,
    key_tag: KeyTagStart,
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == ScMetadata::SIZE);

/// Metadata of one part of an object that is, or becomes, the content of a virtual register.
///
/// Every value obeys the checks of [`ScMetadata::from_bytes`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScMetadata {
    vr: VrNumber,
    params: u16,
    size: u64,
    offset: u64,
    blocks: u32,
    message_bits: u8,
    output_bits: u8,
    signed: bool,
    computed: bool,
    column: bool,
    log2_variance: Option<f32>,
    log2_p_fail: Option<f32>,
    key_tag: Option<KeyTagStart>,
}

/// The first bytes of the tag that names a client key.
pub type KeyTagStart = [u8; 12];

/// Stands for no tag.
const NO_KEY_TAG: KeyTagStart = [0; 12];

/// Why bytes are not secure computing metadata, or why it cannot hold a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// Not 64 bytes long.
    #[error("secure computing metadata of {found} bytes; expected 64")]
    Length {
        /// Bytes found.
        found: usize,
    },
    /// Neither all zero nor with the magic number.
    #[error(
        "no secure computing metadata: it starts with {found:02x?}; expected \"TSCM\", or zeroes for none"
    )]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// Written by another version.
    #[error("secure computing metadata of version {found}; expected 1")]
    Version {
        /// The version field.
        found: u8,
    },
    /// The checksum does not match.
    #[error(
        "secure computing metadata with checksum {stored:#010x}, but its bytes give {computed:#010x}"
    )]
    Checksum {
        /// The checksum field.
        stored: u32,
        /// CRC-32C of the bytes before it.
        computed: u32,
    },
    /// No such type.
    #[error("type {found} does not exist; expected 0 (PRG) to 4 (TLWE-CoW)")]
    Type {
        /// The type field.
        found: u8,
    },
    /// Key id of more than 24 bits.
    #[error("key id {found} is too large; expected at most 16777215")]
    KeyId {
        /// The key id field.
        found: u32,
    },
    /// The type does not have this data id (Table 3).
    #[error("data id {found} does not exist for type {ty}; expected {expected}")]
    DataId {
        /// The type.
        ty: VrType,
        /// The data id field.
        found: u32,
        /// The data ids that exist.
        expected: &'static str,
    },
    /// An object of no bytes, or larger than the 38-bit virtual address space.
    #[error("object of {found} bytes; expected 1 to 2^38")]
    Size {
        /// The size field.
        found: u64,
    },
    /// The part starts after the object's end.
    #[error("part at offset {offset} of an object of {size} bytes")]
    Offset {
        /// The offset field.
        offset: u64,
        /// The size field.
        size: u64,
    },
    /// More message bits than any message has.
    #[error("{found} message bits; expected at most 64")]
    MessageBits {
        /// The message bits field.
        found: u8,
    },
    /// A noise variance or failure probability that is not a number from 0 to 1.
    #[error("{field} is not the logarithm of a number above 0 and at most 1")]
    Logarithm {
        /// Name of the field.
        field: &'static str,
    },
    /// A flag or byte that this version does not use is set.
    #[error("reserved bits in bytes {bytes} are set")]
    Reserved {
        /// Where they are.
        bytes: &'static str,
    },
}

impl ScMetadata {
    /// Bytes of the encoded form.
    pub const SIZE: usize = 64;

    /// Largest object: the 38-bit virtual address space.
    pub const MAX_OBJECT: u64 = 1 << 38;

    /// Metadata for the first part (offset 0) of an object of `size` bytes, encrypted with the parameter set `params`.
    ///
    /// # Errors
    /// [`MetadataError::DataId`] for a program with a data id other than 0 or a key that is no data id of [`KeyKind`],
    /// [`MetadataError::Size`] for a size of 0 or above 2^38.
    pub fn new(vr: VrNumber, params: u16, size: u64) -> Result<ScMetadata, MetadataError> {
        let expected = match vr.ty() {
            VrType::Prg if vr.data_id() != 0 => Some("0"),
            VrType::Key
                if !KeyKind::ALL
                    .iter()
                    .any(|kind| kind.data_id() == vr.data_id()) =>
            {
                Some("1 (BKNTT), 2 (KSK), 3 (ring) or 4 (conversion)")
            }
            _ => None,
        };
        if let Some(expected) = expected {
            return Err(MetadataError::DataId {
                ty: vr.ty(),
                found: vr.data_id(),
                expected,
            });
        }
        if size == 0 || size > Self::MAX_OBJECT {
            return Err(MetadataError::Size { found: size });
        }
        Ok(ScMetadata {
            vr,
            params,
            size,
            offset: 0,
            blocks: 0,
            message_bits: 0,
            output_bits: 0,
            signed: false,
            computed: false,
            column: false,
            log2_variance: None,
            log2_p_fail: None,
            key_tag: None,
        })
    }

    /// The same for the part that starts at byte `offset` of the object.
    ///
    /// # Errors
    /// [`MetadataError::Offset`] unless the offset lies within the object.
    pub fn with_offset(mut self, offset: u64) -> Result<ScMetadata, MetadataError> {
        if offset >= self.size {
            return Err(MetadataError::Offset {
                offset,
                size: self.size,
            });
        }
        self.offset = offset;
        Ok(self)
    }

    /// The same for `blocks` logical blocks from the cluster's first: the second-half form. 0 is the NVMe-metadata form.
    pub fn with_blocks(mut self, blocks: u32) -> ScMetadata {
        self.blocks = blocks;
        self
    }

    /// The same for the whole object, in the NVMe-metadata form: without the place of a part.
    #[must_use]
    pub fn whole(self) -> ScMetadata {
        ScMetadata {
            offset: 0,
            blocks: 0,
            ..self
        }
    }

    /// The same for messages of `bits` bits (0: unknown), signed or not.
    ///
    /// # Errors
    /// [`MetadataError::MessageBits`] for more than 64 bits.
    pub fn with_message(mut self, bits: u8, signed: bool) -> Result<ScMetadata, MetadataError> {
        if bits > 64 {
            return Err(MetadataError::MessageBits { found: bits });
        }
        self.message_bits = bits;
        self.signed = signed;
        Ok(self)
    }

    /// The same with the width of a test vector's output values where it is not that of its input; 0: the same. Ignored for
    /// other types.
    ///
    /// # Errors
    /// [`MetadataError::MessageBits`] above 64.
    pub fn with_output_bits(mut self, bits: u8) -> Result<ScMetadata, MetadataError> {
        if bits > 64 {
            return Err(MetadataError::MessageBits { found: bits });
        }
        if self.vr.ty() == VrType::Tv {
            self.output_bits = bits;
        }
        Ok(self)
    }

    /// The same with the noise variance over the torus and the failure probability of all bootstraps behind the sample, both
    /// as base-2 logarithms. `None`, and a variance whose logarithm is 0 or more, state nothing. A probability of 1 becomes the
    /// largest number below it, since a sample that states no failure counts as one that has none; minus infinity becomes the
    /// least finite number.
    pub fn with_noise(
        mut self,
        log2_variance: Option<f64>,
        log2_p_fail: Option<f64>,
    ) -> ScMetadata {
        self.log2_variance = log2_variance.and_then(stated);
        let below_one = -f64::from(f32::MIN_POSITIVE);
        self.log2_p_fail = log2_p_fail.and_then(|log2| stated(log2.min(below_one)));
        self
    }

    /// The same with the mark that the drive computed the object.
    pub fn with_computed(mut self, computed: bool) -> ScMetadata {
        self.computed = computed;
        self
    }

    /// The same with the mark that the object is a column of samples ([`ScMetadata::column`]). Ignored for other types.
    pub fn with_column(mut self, column: bool) -> ScMetadata {
        self.column = column && self.vr.ty().is_sample();
        self
    }

    /// The same with the start of the tag of the client key that the object belongs to; all zero states nothing. A drive refuses objects
    /// of several client keys under one key id.
    pub fn with_key_tag(mut self, tag: KeyTagStart) -> ScMetadata {
        self.key_tag = (tag != NO_KEY_TAG).then_some(tag);
        self
    }

    /// The virtual register: type, key id and data id.
    pub fn vr(&self) -> VrNumber {
        self.vr
    }

    /// Identifier of the parameter set.
    pub fn params(&self) -> u16 {
        self.params
    }

    /// Bytes of the whole object.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Offset in the object of the first byte that this block, or run of blocks, holds; below [`ScMetadata::size`].
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the object from [`ScMetadata::offset`] to its end.
    pub fn remaining(&self) -> u64 {
        self.size - self.offset
    }

    /// Second-half form: logical blocks that this metadata covers. 0 in the NVMe-metadata form.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Bits of the message (of a test vector: of its input); 0 if unknown.
    pub fn message_bits(&self) -> u8 {
        self.message_bits
    }

    /// Width of a test vector's output values; 0: that of its input.
    pub fn output_bits(&self) -> u8 {
        self.output_bits
    }

    /// Whether messages are signed.
    pub fn signed(&self) -> bool {
        self.signed
    }

    /// Whether the drive computed the object.
    pub fn computed(&self) -> bool {
        self.computed
    }

    /// Whether the object is a column: a header and chunks of samples, of which the rest of the metadata speaks row by row.
    pub fn column(&self) -> bool {
        self.column
    }

    /// Base-2 logarithm of the noise variance over the torus, if stated; finite and below 0.
    pub fn log2_variance(&self) -> Option<f32> {
        self.log2_variance
    }

    /// Base-2 logarithm of the failure probability, if stated; finite and below 0.
    pub fn log2_p_fail(&self) -> Option<f32> {
        self.log2_p_fail
    }

    /// Start of the tag of the client key that the object belongs to, if stated.
    pub fn key_tag(&self) -> Option<KeyTagStart> {
        self.key_tag
    }

    /// The 64 bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION,
            ty: self.vr.ty().number(),
            params: self.params.into(),
            key_id: self.vr.key_id().into(),
            data_id: self.vr.data_id().into(),
            size: self.size.into(),
            offset: self.offset.into(),
            blocks: self.blocks.into(),
            message_bits: self.message_bits,
            flags: [
                (self.computed, COMPUTED),
                (self.signed, SIGNED),
                (self.column, COLUMN),
            ]
            .into_iter()
            .filter(|(set, _)| *set)
            .fold(0, |flags, (_, flag)| flags | flag),
            output_bits: self.output_bits,
            reserved_39: 0,
            log2_variance: self.log2_variance.unwrap_or(0.0).into(),
            log2_p_fail: self.log2_p_fail.unwrap_or(0.0).into(),
            key_tag: self.key_tag.unwrap_or(NO_KEY_TAG),
            crc: 0.into(),
        };
        raw.crc = raw.checksum().into();
        zerocopy::transmute!(raw)
    }

    /// Takes metadata from its 64 bytes; all zero is `None`: plain data.
    ///
    /// # Errors
    /// Says which field is wrong, in the order magic, version, checksum, fields.
    pub fn from_bytes(bytes: &[u8]) -> Result<Option<ScMetadata>, MetadataError> {
        let raw =
            Raw::ref_from_bytes(bytes).map_err(|_| MetadataError::Length { found: bytes.len() })?;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if raw.magic != MAGIC {
            return Err(MetadataError::Magic { found: raw.magic });
        }
        if raw.version != VERSION {
            return Err(MetadataError::Version { found: raw.version });
        }
        let computed = raw.checksum();
        if raw.crc != computed {
            return Err(MetadataError::Checksum {
                stored: raw.crc.get(),
                computed,
            });
        }
        raw.decode().map(Some)
    }
}

impl Raw {
    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - size_of::<U32>()])
    }

    fn decode(&self) -> Result<ScMetadata, MetadataError> {
        let ty = VrType::from_number(self.ty).ok_or(MetadataError::Type { found: self.ty })?;
        let key_id = self.key_id.get();
        let vr = VrNumber::new(ty, key_id, self.data_id.get())
            .map_err(|_| MetadataError::KeyId { found: key_id })?;
        if self.flags & !(COMPUTED | SIGNED | COLUMN) != 0
            || (self.flags & COLUMN != 0 && !ty.is_sample())
        {
            return Err(MetadataError::Reserved { bytes: "37" });
        }
        if self.reserved_39 != 0 || (self.output_bits != 0 && ty != VrType::Tv) {
            return Err(MetadataError::Reserved { bytes: "38-39" });
        }
        let metadata = ScMetadata::new(vr, self.params.get(), self.size.get())?
            .with_offset(self.offset.get())?
            .with_blocks(self.blocks.get())
            .with_message(self.message_bits, self.flags & SIGNED != 0)?
            .with_output_bits(self.output_bits)?
            .with_computed(self.flags & COMPUTED != 0)
            .with_column(self.flags & COLUMN != 0)
            .with_key_tag(self.key_tag);
        Ok(ScMetadata {
            log2_variance: logarithm("log2 variance", self.log2_variance.get())?,
            log2_p_fail: logarithm("log2 p_fail", self.log2_p_fail.get())?,
            ..metadata
        })
    }
}

/// The value as the metadata can state it: `None` unless it is below 0.
fn stated(log2: f64) -> Option<f32> {
    let value = (log2 as f32).max(f32::MIN);
    // NaN compares as false; f32::max would have hidden it.
    (log2 < 0.0 && value < 0.0).then_some(value)
}

fn logarithm(field: &'static str, value: f32) -> Result<Option<f32>, MetadataError> {
    if value == 0.0 {
        Ok(None)
    } else if value.is_finite() && value < 0.0 {
        Ok(Some(value))
    } else {
        Err(MetadataError::Logarithm { field })
    }
}

impl fmt::Display for ScMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.vr, self.size)?;
        if self.offset > 0 {
            write!(f, ", from byte {}", self.offset)?;
        }
        if self.blocks > 0 {
            write!(f, ", in {} blocks", self.blocks)?;
        }
        Ok(())
    }
}
