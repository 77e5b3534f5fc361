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
//! A *ring column* ([`RingRows`]) has its numbers in whole ciphertexts of a ring, on which `Session::map` computes by tens of thousands.
//!
//! A column can also be the object of a register, which triggers a program when it is written or read: [`Session::put_rows`].
//!
//! A session with a [ledger](crate::ledger) binds the columns that it writes, and checks those that it reads, chunk by chunk: `columns/binding.rs`.
//!
//! Open `columns/head.rs` first, which has the form of a column in its blob, then `columns/map.rs`.
//!
//! [`Session::append_rows`]: crate::session::Session::append_rows
//! [`Session::replace_rows`]: crate::session::Session::replace_rows
//! [`Session::read_rows`]: crate::session::Session::read_rows
//! [`Session::put_rows`]: crate::session::Session::put_rows

mod binding;
pub(crate) mod error;
#[cfg(feature = "image")]
mod executor;
mod group;
mod head;
#[cfg(feature = "image")]
mod map;
#[cfg(feature = "image")]
mod merged;
mod object;
mod registers;
mod ring;
mod rows;
#[cfg(feature = "image")]
mod stored;
#[cfg(feature = "image")]
mod triggered;
#[cfg(feature = "image")]
mod way;

use crate::session::SessionError;

use error::PREFIX;
pub use error::{ColumnError, MAX_NAME_BYTES, MAX_OBJECT_BYTES};
pub use head::JobRecord;
#[cfg(feature = "image")]
pub use map::{MapPlan, MapReport, MapRequest, Route};
pub use object::result_bytes;
pub use ring::{RingColumn, RingRows};
pub use rows::EncryptedRows;
pub use stored::{ColumnStat, StoredColumn};
#[cfg(feature = "image")]
pub use way::{Reason, RowForm, TimesLeft, Way, WayTimes};

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
