//! Why columns cannot be used.

use std::ops::Range;

use toroid_isa::VrNumber;
use toroid_tfhe::TfheError;

use crate::ledger::LedgerFault;

/// What names of columns are in the blob store.
pub(super) const PREFIX: &str = "column:";

/// Most bytes of a column that is an object of a register: the most that a drive may be set up to take in one command.
pub const MAX_OBJECT_BYTES: u64 = 1 << 25;

/// Longest name of a column, bytes.
pub const MAX_NAME_BYTES: usize = 255 - PREFIX.len();

/// Why a column cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnError {
    /// The drive has none of this name.
    #[error("the drive has no such column")]
    Missing,
    /// The drive has one of this name already.
    #[error("the drive has such a column already")]
    Exists,
    /// No name of a column.
    #[error("a column's name has 1 to {max} bytes without control characters", max = MAX_NAME_BYTES)]
    Name,
    /// What the drive has of it is not a column, or damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The drive gave something else than what this client put there.
    #[error("what the drive has of it cannot be trusted: {0}")]
    Untrusted(#[from] LedgerFault),
    /// Rows of another kind.
    #[error("{what} is {found}; expected {expected}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// As it should be.
        expected: String,
        /// As it is.
        found: String,
    },
    /// Rows that the column does not have.
    #[error("rows {}..{} of a column of {of}", rows.start, rows.end)]
    Rows {
        /// The rows asked for.
        rows: Range<u64>,
        /// Those that there are.
        of: u64,
    },
    /// More segments than a column keeps.
    #[error(
        "it would consist of {0} pieces; map it to a new column by a program that returns it, which joins them"
    )]
    Pieces(usize),
    /// Too large for an object of a register.
    #[error(
        "an object of {0} bytes; a drive takes a column of at most {MAX_OBJECT_BYTES} in one command"
    )]
    Object(u64),
    /// It belongs to another client key than a key of its key id.
    #[error(
        "it belongs to another client key than {0}: take another key id, or delete what the other key has there"
    )]
    OtherKey(VrNumber),
    /// The scheme refused.
    #[error(transparent)]
    Tfhe(#[from] TfheError),
    /// A program cannot run on it.
    #[cfg(feature = "image")]
    #[error(transparent)]
    Program(#[from] toroid_engine::EngineError),
    /// The drive has no namespaces through which programs run on columns.
    #[cfg(feature = "image")]
    #[error(
        "the drive shows this host no namespace that runs programs on columns: serve it with --experimental-computational-programs; on a Linux block \
         device run this as root, on Linux 6.0 or later"
    )]
    NoPrograms,
    /// The drive lacks a key by which samples become ring columns and are computed on there.
    #[cfg(feature = "image")]
    #[error(
        "the column engine needs conversion keys: make those of key id {0} on the drive by toroid column keys"
    )]
    ConversionKey(u32),
    /// The drive does not change columns between samples and ring columns.
    #[cfg(feature = "image")]
    #[error("the drive's version does not convert samples to ring columns")]
    NoConversion,
    /// The drive leaves out no rows.
    #[cfg(feature = "image")]
    #[error("the drive's version leaves out no rows of a run")]
    LeavesNothingOut,
    /// Rows are left out where they are computed sample by sample.
    #[cfg(feature = "image")]
    #[error(
        "rows are left out where they go by ciphertexts alone: take ring columns, or have the samples go by ciphertexts"
    )]
    LeftOutSamples,
    /// Other rows are kept or left out than a program sees.
    #[cfg(feature = "image")]
    #[error("{given} rows are kept or left out; the program sees {rows}")]
    KeptRows {
        /// Rows that the program sees.
        rows: u64,
        /// Rows that are kept or left out.
        given: u64,
    },
    /// The drive runs so many programs of this host already.
    #[cfg(feature = "image")]
    #[error(
        "all {0} program indices of this host are in use: other runs have them, and give them back when they end"
    )]
    Busy(usize),
    /// A unit of the smallest size has no room in the drive's memory.
    #[cfg(feature = "image")]
    #[error("{needed} bytes for {rows} rows and their result; the drive has {room} for a program")]
    Memory {
        /// Rows of the unit.
        rows: u64,
        /// Bytes that they take.
        needed: u64,
        /// Bytes that there are.
        room: u64,
    },
    /// An input is the result of a run that is not complete.
    #[cfg(feature = "image")]
    #[error("a run that fills it is not complete: let it end first")]
    Unfinished,
    /// The output is an input of the same run.
    #[cfg(feature = "image")]
    #[error("it is an input of this run: give the output another name")]
    IsInput,
    /// The output holds something else than this job's result.
    #[cfg(feature = "image")]
    #[error(
        "it holds something else than the result of this program on these rows: give another name, or have it replaced"
    )]
    OtherJob,
}
