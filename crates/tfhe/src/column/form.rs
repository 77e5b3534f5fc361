//! The forms of a chunk, and their sizes.

use std::fmt;

use crate::TfheError;
use crate::bits;
use crate::params::ParamSet;
use crate::seeded::SEED_BYTES;

use super::noise::{packed_width, seeded_width};

/// Rows of a full chunk of a set without wide functions, whose rows share no masks.
const UNSHARED_ROWS: usize = 1024;

/// The form of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnForm {
    /// A seed and a body a row.
    Seeded,
    /// Masks that all rows share and a body a row, modulo a power of two.
    Packed,
    /// An LWE sample a row.
    Expanded,
}

impl ColumnForm {
    /// All forms.
    pub const ALL: [ColumnForm; 3] = [ColumnForm::Seeded, ColumnForm::Packed, ColumnForm::Expanded];

    /// What the form is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ColumnForm::Seeded => "seeded",
            ColumnForm::Packed => "packed",
            ColumnForm::Expanded => "expanded",
        }
    }

    /// What a chunk of this form is called in errors.
    pub(super) const fn chunk(self) -> &'static str {
        match self {
            ColumnForm::Seeded => "a seeded chunk",
            ColumnForm::Packed => "a packed chunk",
            ColumnForm::Expanded => "an expanded chunk",
        }
    }
}

impl fmt::Display for ColumnForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The most rows of one chunk: N for a set for wide functions, 1024 for any other.
#[must_use]
pub const fn rows_per_chunk(params: &ParamSet) -> usize {
    if params.is_wide() {
        params.stage.ring_degree
    } else {
        UNSHARED_ROWS
    }
}

/// Bytes of a chunk of this many rows: 32 + ⌈rows·b/8⌉ seeded, ⌈(k·N + rows)·w/8⌉ packed, rows·[`lwe_bytes`] expanded, b and w
/// being [`seeded_width`] and [`packed_width`].
///
/// # Errors
/// [`TfheError::ChunkRows`] for no rows or more than [`rows_per_chunk`]; [`TfheError::NoForm`] for the packed form of a set without
/// wide functions.
///
/// [`lwe_bytes`]: crate::params::StageParams::lwe_bytes
pub fn chunk_bytes(params: &ParamSet, form: ColumnForm, rows: usize) -> Result<usize, TfheError> {
    let most = rows_per_chunk(params);
    if rows == 0 || rows > most {
        return Err(TfheError::ChunkRows {
            rows,
            most,
            params: params.name,
        });
    }
    Ok(match form {
        ColumnForm::Seeded => SEED_BYTES + bits::bytes(rows, seeded_width(params)),
        ColumnForm::Packed => {
            let width = packed_width(params).ok_or(TfheError::NoForm {
                form: form.name(),
                params: params.name,
            })?;
            bits::bytes(params.extracted_dimension() + rows, width)
        }
        ColumnForm::Expanded => rows * params.lwe_bytes(),
    })
}
