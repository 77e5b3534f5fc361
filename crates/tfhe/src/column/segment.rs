//! Segments: which rows of which chunk a column consists of.

use std::ops::Range;

use crate::TfheError;
use crate::params::ParamSet;

use super::chunk::Chunk;
use super::form::{ColumnForm, chunk_bytes};

pub(super) fn malformed(reason: impl Into<String>) -> TfheError {
    TfheError::Format(reason.into())
}

/// Consecutive rows of one chunk of a column. Several segments may name the same chunk: those on both sides of a row that was replaced, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The first byte of the chunk, counted from the beginning of the column's header.
    pub offset: u64,
    /// The form of the chunk.
    pub form: ColumnForm,
    /// The rows that the chunk has.
    pub chunk_rows: u32,
    /// The first of them that belongs to the column.
    pub first: u32,
    /// How many of them belong to the column, from `first` on: at least one.
    pub rows: u32,
    /// The CRC-32C of all bytes of the chunk.
    pub crc32c: u32,
}

impl Segment {
    /// Bytes of a segment in a column's header.
    pub const BYTES: usize = 32;

    /// All rows of a chunk of this form, whose first byte is at `offset`.
    ///
    /// # Errors
    /// Those of [`chunk_bytes`]; [`TfheError::Length`] for other bytes than it says.
    pub fn of_chunk(
        params: &ParamSet,
        form: ColumnForm,
        rows: usize,
        offset: u64,
        chunk: &[u8],
    ) -> Result<Segment, TfheError> {
        let expected = chunk_bytes(params, form, rows)?;
        // A chunk has few rows, or `chunk_bytes` had refused it.
        let rows = rows as u32;
        let segment = Segment {
            offset,
            form,
            chunk_rows: rows,
            first: 0,
            rows,
            crc32c: crc32c::crc32c(chunk),
        };
        if chunk.len() == expected {
            Ok(segment)
        } else {
            Err(segment.wrong_length(params, expected as u64, chunk.len() as u64))
        }
    }

    /// Bytes of the chunk.
    ///
    /// # Errors
    /// [`TfheError::ChunkRows`], [`TfheError::NoForm`].
    pub fn chunk_len(&self, params: &ParamSet) -> Result<u64, TfheError> {
        chunk_bytes(params, self.form, self.chunk_rows as usize).map(|bytes| bytes as u64)
    }

    /// Where the chunk stands, counted from the beginning of the column's header.
    ///
    /// # Errors
    /// Those of [`Segment::chunk_len`]; [`TfheError::Format`] for a chunk that ends beyond 2^64 bytes.
    pub fn chunk_place(&self, params: &ParamSet) -> Result<Range<u64>, TfheError> {
        let end = self.offset.checked_add(self.chunk_len(params)?);
        let end = end.ok_or_else(|| malformed(format!("{self:?} ends beyond 2^64 bytes")))?;
        Ok(self.offset..end)
    }

    /// The rows of the chunk that belong to the column.
    #[must_use]
    pub fn rows_in_chunk(&self) -> Range<usize> {
        let first = self.first as usize;
        first..first + self.rows as usize
    }

    /// Whether both name the same chunk.
    #[must_use]
    pub fn shares_chunk(&self, other: &Segment) -> bool {
        let chunk = |of: &Segment| (of.offset, of.form, of.chunk_rows, of.crc32c);
        chunk(self) == chunk(other)
    }

    /// Refuses a segment that no column of the set has.
    ///
    /// # Errors
    /// Those of [`Segment::chunk_place`]; [`TfheError::Rows`] for no rows, or some that the chunk does not have.
    pub fn check(&self, params: &ParamSet) -> Result<(), TfheError> {
        self.chunk_place(params)?;
        let rows = self.rows_in_chunk();
        if rows.is_empty() || rows.end > self.chunk_rows as usize {
            return Err(TfheError::Rows {
                rows,
                of: self.chunk_rows as usize,
            });
        }
        Ok(())
    }

    /// Refuses bytes that are not those of the chunk.
    ///
    /// # Errors
    /// Those of [`Segment::chunk_len`]; [`TfheError::Length`]; [`TfheError::Format`] for bytes of another checksum.
    pub fn check_chunk(&self, params: &ParamSet, chunk: &[u8]) -> Result<(), TfheError> {
        let (expected, found) = (self.chunk_len(params)?, chunk.len() as u64);
        if expected != found {
            return Err(self.wrong_length(params, expected, found));
        }
        if crc32c::crc32c(chunk) != self.crc32c {
            let reason = format!(
                "the chunk at byte {} of the column is damaged: it has another checksum",
                self.offset
            );
            return Err(malformed(reason));
        }
        Ok(())
    }

    /// Reads the chunk from its bytes.
    ///
    /// # Errors
    /// Those of [`Segment::check_chunk`] and [`Chunk::new`].
    pub fn chunk(&self, params: &ParamSet, chunk: &[u8]) -> Result<Chunk, TfheError> {
        self.check_chunk(params, chunk)?;
        Chunk::new(params, self.form, chunk, self.chunk_rows as usize)
    }

    fn wrong_length(&self, params: &ParamSet, expected: u64, found: u64) -> TfheError {
        TfheError::Length {
            what: self.form.chunk(),
            params: params.name,
            expected,
            found,
        }
    }

    /// Those of its rows that lie in a range, which counts from its first one.
    pub(super) fn clipped(&self, rows: Range<u64>) -> Segment {
        // The range lies within the rows, which are of 32 bits.
        Segment {
            first: self.first + rows.start as u32,
            rows: (rows.end - rows.start) as u32,
            ..*self
        }
    }

    pub(super) fn to_bytes(self) -> [u8; Segment::BYTES] {
        let mut bytes = [0; Segment::BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        let words = [self.first, self.rows, self.chunk_rows, self.crc32c];
        for (word, bytes) in words.into_iter().zip(bytes[8..24].chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24] = match self.form {
            ColumnForm::Seeded => 0,
            ColumnForm::Packed => 1,
            ColumnForm::Expanded => 2,
        };
        bytes
    }

    /// What [`Segment::to_bytes`] wrote.
    pub(super) fn from_bytes(bytes: &[u8; Segment::BYTES]) -> Result<Segment, TfheError> {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let form = bytes[24];
        let form = ColumnForm::ALL
            .get(usize::from(form))
            .copied()
            .ok_or_else(|| malformed(format!("column form {form}; expected 0 to 2")))?;
        if bytes[25..] != [0; 7] {
            return Err(malformed("reserved bytes of a column's segment are not 0"));
        }
        Ok(Segment {
            offset: u64::from(word(0)) | u64::from(word(4)) << 32,
            form,
            first: word(8),
            rows: word(12),
            chunk_rows: word(16),
            crc32c: word(20),
        })
    }
}
