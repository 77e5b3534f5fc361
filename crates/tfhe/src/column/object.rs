//! A whole column as bytes: a header, then its chunks.

use std::ops::Range;

use crate::TfheError;
use crate::params::ParamSet;

use super::chunk::Chunk;
use super::form::{ColumnForm, chunk_bytes, rows_per_chunk};

const MAGIC: [u8; 4] = *b"TCOL";
const VERSION: u16 = 1;

/// What the bytes of a column begin with: its form and how many rows it has. Its chunks follow, full ones of
/// [`rows_per_chunk`] rows and a last one of the rest, so that the place of each follows from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnHeader {
    /// The form of every chunk.
    pub form: ColumnForm,
    /// The rows of all chunks together, at least one.
    pub rows: u64,
}

fn malformed(reason: impl Into<String>) -> TfheError {
    TfheError::Format(reason.into())
}

impl ColumnHeader {
    /// Bytes of the header.
    pub const BYTES: usize = 32;

    /// Whether bytes begin as those of a column do.
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ColumnHeader::BYTES] {
        let form = match self.form {
            ColumnForm::Seeded => 0,
            ColumnForm::Packed => 1,
            ColumnForm::Expanded => 2,
        };
        let mut bytes = [0; ColumnHeader::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = form;
        bytes[8..16].copy_from_slice(&self.rows.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`TfheError::Format`] with what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<ColumnHeader, TfheError> {
        let Some((header, _)) = bytes.split_first_chunk::<{ ColumnHeader::BYTES }>() else {
            return Err(malformed(format!(
                "a column of {} bytes; its header alone has {}",
                bytes.len(),
                ColumnHeader::BYTES
            )));
        };
        let [
            m0,
            m1,
            m2,
            m3,
            v0,
            v1,
            form,
            _,
            r0,
            r1,
            r2,
            r3,
            r4,
            r5,
            r6,
            r7,
            ..,
        ] = *header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(malformed("not a column: it does not begin with TCOL"));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(malformed(format!(
                "column version {version}; expected {VERSION}"
            )));
        }
        let form = ColumnForm::ALL
            .get(usize::from(form))
            .copied()
            .ok_or_else(|| malformed(format!("column form {form}; expected 0 to 2")))?;
        let rows = u64::from_le_bytes([r0, r1, r2, r3, r4, r5, r6, r7]);
        let header = ColumnHeader { form, rows };
        // One form of each header: reserved bytes are 0, and the checksum is right.
        if header.to_bytes() != bytes[..ColumnHeader::BYTES] {
            return Err(malformed("the header of the column is damaged"));
        }
        if rows == 0 {
            return Err(malformed("a column of 0 rows; expected at least 1"));
        }
        Ok(header)
    }

    /// The chunks.
    #[must_use]
    pub fn chunks(&self, params: &ParamSet) -> u64 {
        self.rows.div_ceil(rows_per_chunk(params) as u64)
    }

    /// The rows of a chunk, by its number.
    #[must_use]
    pub fn chunk_rows(&self, params: &ParamSet, chunk: u64) -> Range<u64> {
        let full = rows_per_chunk(params) as u64;
        let start = chunk.saturating_mul(full).min(self.rows);
        start..start.saturating_add(full).min(self.rows)
    }

    /// Where a chunk stands in the bytes of the column.
    ///
    /// # Errors
    /// [`TfheError::NoForm`] for a form that the set does not have, [`TfheError::ChunkRows`] for a chunk that the column does not have.
    pub fn chunk_place(&self, params: &ParamSet, chunk: u64) -> Result<Range<u64>, TfheError> {
        let full = chunk_bytes(params, self.form, rows_per_chunk(params))? as u64;
        let rows = self.chunk_rows(params, chunk);
        let bytes = chunk_bytes(params, self.form, (rows.end - rows.start) as usize)? as u64;
        let start = (ColumnHeader::BYTES as u64).saturating_add(chunk.saturating_mul(full));
        Ok(start..start.saturating_add(bytes))
    }

    /// Bytes of the whole column.
    ///
    /// # Errors
    /// [`TfheError::NoForm`] for a form that the set does not have.
    pub fn bytes(&self, params: &ParamSet) -> Result<u64, TfheError> {
        let last = self.chunks(params).saturating_sub(1);
        Ok(self.chunk_place(params, last)?.end)
    }
}

/// A column in memory, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    params: &'a ParamSet,
    header: ColumnHeader,
    bytes: &'a [u8],
}

impl<'a> Column<'a> {
    /// The column that these bytes are.
    ///
    /// # Errors
    /// Those of [`ColumnHeader::from_bytes`] and [`ColumnHeader::bytes`]; [`TfheError::Length`] for other bytes than the header says.
    pub fn new(params: &'a ParamSet, bytes: &'a [u8]) -> Result<Column<'a>, TfheError> {
        let header = ColumnHeader::from_bytes(bytes)?;
        let expected = header.bytes(params)?;
        if expected != bytes.len() as u64 {
            return Err(TfheError::Length {
                what: "a column",
                params: params.name,
                expected,
                found: bytes.len() as u64,
            });
        }
        Ok(Column {
            params,
            header,
            bytes,
        })
    }

    /// Its form and rows.
    #[must_use]
    pub fn header(&self) -> ColumnHeader {
        self.header
    }

    /// A chunk, by its number.
    ///
    /// # Errors
    /// Those of [`Chunk::new`] and [`ColumnHeader::chunk_place`].
    pub fn chunk(&self, chunk: u64) -> Result<Chunk, TfheError> {
        let place = self.header.chunk_place(self.params, chunk)?;
        let rows = self.header.chunk_rows(self.params, chunk);
        // `new` has checked that all chunks are there.
        let bytes = self.bytes.get(place.start as usize..place.end as usize);
        let rows = (rows.end - rows.start) as usize;
        Chunk::new(
            self.params,
            self.header.form,
            bytes.unwrap_or_default(),
            rows,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{MESSAGE16, TINY, TINY_WOPBS};

    #[test]
    fn places_follow_from_numbers() {
        let header = ColumnHeader {
            form: ColumnForm::Packed,
            rows: 2500,
        };
        assert_eq!(header.chunks(&MESSAGE16), 3);
        assert_eq!(header.chunk_rows(&MESSAGE16, 2), 2048..2500);
        let full = chunk_bytes(&MESSAGE16, ColumnForm::Packed, 1024).unwrap() as u64;
        let rest = chunk_bytes(&MESSAGE16, ColumnForm::Packed, 452).unwrap() as u64;
        assert_eq!(header.chunk_place(&MESSAGE16, 0).unwrap(), 32..32 + full);
        assert_eq!(
            header.chunk_place(&MESSAGE16, 2).unwrap(),
            32 + 2 * full..32 + 2 * full + rest
        );
        assert_eq!(header.bytes(&MESSAGE16).unwrap(), 32 + 2 * full + rest);
        assert!(header.chunk_place(&MESSAGE16, 3).is_err());
        assert!(header.bytes(&TINY).is_err(), "no packing keys");
        // A million numbers of 16 bits: 32 MB seeded and 64 MB packed are the most.
        let million = |form| {
            ColumnHeader {
                form,
                rows: 1_000_000,
            }
            .bytes(&MESSAGE16)
            .unwrap()
        };
        assert!(million(ColumnForm::Seeded) <= 32_000_000);
        assert!(million(ColumnForm::Packed) <= 64_000_000);
    }

    #[test]
    fn a_header_has_one_form() {
        for form in ColumnForm::ALL {
            let header = ColumnHeader {
                form,
                rows: 0x1234_5678_9abc,
            };
            let bytes = header.to_bytes();
            assert_eq!(ColumnHeader::from_bytes(&bytes).unwrap(), header);
            assert!(ColumnHeader::begins(&bytes));
            for place in 0..bytes.len() {
                let mut damaged = bytes;
                damaged[place] ^= 4;
                assert!(ColumnHeader::from_bytes(&damaged).is_err(), "byte {place}");
            }
            for length in 0..bytes.len() {
                assert!(ColumnHeader::from_bytes(&bytes[..length]).is_err());
            }
        }
        let none = ColumnHeader {
            form: ColumnForm::Seeded,
            rows: 0,
        };
        assert!(ColumnHeader::from_bytes(&none.to_bytes()).is_err());
        // More rows than any memory has are an error of the length, not an overflow.
        let huge = ColumnHeader {
            form: ColumnForm::Expanded,
            rows: u64::MAX,
        };
        assert!(Column::new(&TINY_WOPBS, &huge.to_bytes()).is_err());
    }
}
