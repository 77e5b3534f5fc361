//! What can go wrong in the engine.

use toroid_isa::{DecodeError, VerifyError, VrNumber};

use crate::backend::BackendError;
use crate::config::MAX_PARTIAL_OBJECTS;
use crate::swap::SwapError;

/// Why the engine refused or failed a request. No virtual register has changed, except that a key whose replacement was
/// begun is gone.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The register holds nothing.
    #[error("virtual register {vr} is empty")]
    NoSuchRegister {
        /// The register.
        vr: VrNumber,
    },
    /// The ring key of a program on ring columns is not loaded.
    #[error("{vr} is empty: a program on ring columns needs a ring key there")]
    MissingRingKey {
        /// The key's register.
        vr: VrNumber,
    },
    /// The keys between samples and ring columns are not loaded.
    #[error("the column engine needs conversion keys: {vr} is empty")]
    MissingConversionKey {
        /// The keys' register.
        vr: VrNumber,
    },
    /// Registers of this type do not hold LWE samples.
    #[error("virtual register {vr} is not an LWE sample (expected type cor or cow)")]
    NotASample {
        /// The register.
        vr: VrNumber,
    },
    /// The data id is not one that Table 3 has for the type.
    #[error("virtual register {vr} does not exist: {expected}")]
    DataId {
        /// The register.
        vr: VrNumber,
        /// The data ids that exist.
        expected: &'static str,
    },
    /// The size is not that of Table 3, nor that of a seeded key.
    #[error(
        "{vr} has {found} bytes (expected {expected}{} for parameter set {params})",
        seeded.map_or_else(String::new, |bytes| format!(", or {bytes} seeded,"))
    )]
    Size {
        /// The register.
        vr: VrNumber,
        /// Name of the parameter set.
        params: &'static str,
        /// Size of Table 3, bytes.
        expected: u64,
        /// Size of the seeded form, bytes, if it is a key.
        seeded: Option<u64>,
        /// Stated size, bytes.
        found: u64,
    },
    /// The size is not one that a program can have.
    #[error("program {vr} has {found} bytes (expected {least} to {most})")]
    ProgramSize {
        /// The register.
        vr: VrNumber,
        /// Size of the shortest program, bytes.
        least: u64,
        /// Size of the longest program, bytes.
        most: u64,
        /// Stated size, bytes.
        found: u64,
    },
    /// The key id has objects of another parameter set.
    #[error(
        "{vr} is of parameter set {found}, but key id {key_id} is in use with {expected}; put it under another key id, or open the drive anew",
        key_id = vr.key_id()
    )]
    ParamsMismatch {
        /// The register.
        vr: VrNumber,
        /// Name of the key id's parameter set.
        expected: &'static str,
        /// Name of the object's parameter set.
        found: &'static str,
    },
    /// The key id has objects of another client key.
    #[error(
        "{vr} belongs to another client key than the other objects of key id {key_id}; put it under another key id, or write a bootstrapping key of its client first",
        key_id = vr.key_id()
    )]
    KeyTagMismatch {
        /// The register.
        vr: VrNumber,
    },
    /// The program touches registers that its requester must not touch.
    #[error("program {vr} touches registers of key ids that are not open to it")]
    KeyIdDenied {
        /// The program's register.
        vr: VrNumber,
    },
    /// A part holds no bytes.
    #[error("a part of {vr} is empty")]
    EmptyPart {
        /// The register.
        vr: VrNumber,
    },
    /// A part reaches beyond the object's end.
    #[error(
        "a part of {vr} has {found} bytes at offset {offset} (expected at most {total} bytes in all)"
    )]
    PartTooLong {
        /// The register.
        vr: VrNumber,
        /// Offset of the part.
        offset: u64,
        /// Bytes of the part.
        found: u64,
        /// Size of the object.
        total: u64,
    },
    /// A part does not begin where the last one ended. What had come of the object is dropped.
    #[error(
        "a part of {vr} begins at offset {found} (expected {expected}); send the object again from offset 0"
    )]
    PartOrder {
        /// The register.
        vr: VrNumber,
        /// Where the next part begins.
        expected: u64,
        /// Where the part begins.
        found: u64,
    },
    /// A part states another size, parameter set or attribute than the first part. What had come of the object is dropped.
    #[error(
        "a part of {vr} contradicts the first part in its {what}; send the object again from offset 0"
    )]
    PartContradicts {
        /// The register.
        vr: VrNumber,
        /// What differs.
        what: &'static str,
    },
    /// Another command started the object anew, or removed it, while this one stored a part of it.
    #[error("another command started {vr} anew or removed it")]
    Superseded {
        /// The register.
        vr: VrNumber,
    },
    /// Too many objects are incomplete.
    #[error(
        "{MAX_PARTIAL_OBJECTS} objects of the key id, or too many of all, wait for their next parts (expected fewer); complete or remove some first"
    )]
    TooManyPartialObjects,
    /// An attribute is out of its range.
    #[error("{what} of {vr} is {found} (expected {expected})")]
    Attribute {
        /// The register.
        vr: VrNumber,
        /// Which attribute.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        found: f64,
    },
    /// A word is not below the modulus.
    #[error(
        "word {index} of {vr} is {found:#018x} (expected less than the modulus 0xffffffff00000001)"
    )]
    NotCanonical {
        /// The register.
        vr: VrNumber,
        /// Index of the word.
        index: usize,
        /// The word.
        found: u64,
    },
    /// The bytes are not a program.
    #[error("{vr}: {source}")]
    Program {
        /// The register.
        vr: VrNumber,
        /// What is wrong.
        source: DecodeError,
    },
    /// The program cannot run on the present registers.
    #[error("program {vr} cannot run: {}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Verify {
        /// The program's register.
        vr: VrNumber,
        /// Every reason.
        errors: Vec<VerifyError>,
    },
    /// The program ended without a Return, or took from an empty stack.
    #[error("program {vr} {what}")]
    Execution {
        /// The program's register.
        vr: VrNumber,
        /// What it did.
        what: &'static str,
    },
    /// The numbers of rows do not fit an instruction.
    #[error("program {vr}, instruction {index}, `{text}`: {what}")]
    Rows {
        /// The program's register.
        vr: VrNumber,
        /// The index of the instruction.
        index: usize,
        /// Its text.
        text: String,
        /// Which numbers were found, and which are expected.
        what: String,
    },
    /// A run on columns needs more room than it may take.
    #[error("program {vr} needs {needed} bytes for {what}, and {room} are there for it")]
    MapTooLarge {
        /// The program's register.
        vr: VrNumber,
        /// What for.
        what: &'static str,
        /// Bytes needed.
        needed: u128,
        /// Bytes there are.
        room: u64,
    },
    /// Rows of a column could not be read, or taken.
    #[error("column {vr}: {source}")]
    Column {
        /// The register of the column.
        vr: VrNumber,
        /// Why.
        source: RowError,
    },
    /// A Push found the stack full.
    #[error("program {vr} pushes more than the {slots} samples that the stack holds")]
    StackOverflow {
        /// The program's register.
        vr: VrNumber,
        /// Slots of the stack.
        slots: usize,
    },
    /// The persistent area has not enough room.
    #[error("{vr} needs {needed} bytes of the persistent area, {available} are free of {total}")]
    PersistentAreaFull {
        /// The register.
        vr: VrNumber,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        available: u64,
        /// Bytes of the area.
        total: u64,
    },
    /// A page is larger than the whole paged area.
    #[error("a page of {needed} bytes does not fit the paged area of {total} bytes")]
    PagedAreaTooSmall {
        /// Bytes of the page.
        needed: u64,
        /// Bytes of the area.
        total: u64,
    },
    /// The swap area has not enough room for a page.
    #[error("the swap area of {total} bytes has no room for a page of {needed} bytes")]
    SwapFull {
        /// Bytes of the page.
        needed: u64,
        /// Bytes of the area.
        total: u64,
    },
    /// No virtual page numbers are left.
    #[error("no {needed} consecutive virtual pages are free")]
    VirtualSpaceFull {
        /// Page numbers needed.
        needed: u64,
    },
    /// A page-out failed.
    #[error("page-out failed: {0}")]
    PageOut(#[source] SwapError),
    /// A page-in failed.
    #[error("page-in failed: {0}")]
    PageIn(#[source] SwapError),
    /// The back end failed.
    #[error("{vr}: {source}")]
    Backend {
        /// The key that was stored, or the sample that was bootstrapped.
        vr: VrNumber,
        /// What happened.
        source: BackendError,
    },
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
}

/// Why rows could not be read, or taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// What is wrong with them.
    #[error("{0}")]
    Refused(String),
    /// The back end failed, or was cancelled, where it made their form.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl RowError {
    /// The error of a run on this column.
    pub(crate) fn of(self, vr: VrNumber) -> EngineError {
        match self {
            RowError::Backend(BackendError::Cancelled) => EngineError::Cancelled,
            RowError::Backend(source) => EngineError::Backend { vr, source },
            source @ RowError::Refused(_) => EngineError::Column { vr, source },
        }
    }
}
