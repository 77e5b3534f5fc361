//! What one command brings of an object.

use toroid_isa::VrNumber;
use toroid_tfhe::params::ParamSet;

use crate::register::Attributes;
use crate::swap::PagingContext;

/// A part of an object, as one command brings it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The command.
    pub context: PagingContext,
    /// The register to store the object in.
    pub vr: VrNumber,
    /// The object's parameter set.
    pub params: &'static ParamSet,
    /// Size of the whole object in bytes.
    pub total_size: u64,
    /// Offset of the part's first byte in the object.
    pub offset: u64,
    /// The bytes of the part; at least one.
    pub bytes: &'a [u8],
    /// What the metadata says of the object; the same in every part.
    pub attributes: Attributes,
}
