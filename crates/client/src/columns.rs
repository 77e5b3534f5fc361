//! Columns on a drive: encrypted numbers in rows, by the thousands, each column one blob.
//!
//! A column has a name, a parameter set, a key id and rows. [`EncryptedRows`] are rows on their way: encrypted here, read from a column, or
//! computed. [`Session::append_rows`] and [`Session::replace_rows`] change a column at once or not at all, without rewriting what
//! stays, and [`Session::read_rows`] reads the chunks that hold the rows it is asked for, and no others.
//!
//! With the feature `image`, `Session::map` runs a program over columns on the drive: unit of rows by unit of rows through the
//! Execute Program command, with the result as another column. Each unit is committed with a record of the job, so that a run that ended early goes on where
//! it was, and one that is complete computes nothing again.
//!
//! Open `columns/head.rs` first, which has the form of a column in its blob, then `columns/map.rs`.

#[cfg(feature = "image")]
mod executor;
mod head;
#[cfg(feature = "image")]
mod map;
mod rows;
mod stored;

use std::ops::Range;

use toroid_tfhe::TfheError;

use crate::session::SessionError;

pub use head::JobRecord;
#[cfg(feature = "image")]
pub use map::{MapPlan, MapReport, MapRequest};
pub use rows::EncryptedRows;
pub use stored::{ColumnStat, StoredColumn};

/// What names of columns are in the blob store.
const PREFIX: &str = "column:";

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
        "the drive shows this host no namespace that runs programs on columns: serve it with --experimental-computational-programs"
    )]
    NoPrograms,
    /// The drive runs so many programs of this host already.
    #[cfg(feature = "image")]
    #[error(
        "all {0} program indices of this host are in use; those of programs that ended early stay so until the drive is served anew"
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
    /// The output holds something else than this job's result.
    #[cfg(feature = "image")]
    #[error("it holds something else than this result: give another name, or have it replaced")]
    OtherJob,
}

/// Longest name of a column, bytes.
pub const MAX_NAME_BYTES: usize = 255 - PREFIX.len();

/// The error of the column of this name.
fn of(name: &str) -> impl FnOnce(ColumnError) -> SessionError {
    let name = name.to_owned();
    move |source| SessionError::Column { name, source }
}

fn mismatch(what: &'static str, expected: impl ToString, found: impl ToString) -> ColumnError {
    ColumnError::Mismatch {
        what,
        expected: expected.to_string(),
        found: found.to_string(),
    }
}
