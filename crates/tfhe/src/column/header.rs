//! What the bytes of a column begin with.

use std::ops::Range;

use crate::TfheError;
use crate::params::ParamSet;

use super::segment::{Segment, malformed};

const MAGIC: [u8; 4] = *b"TCOL";
const VERSION: u16 = 1;
/// Bytes before the segments.
const FIXED: usize = 32;
/// Bytes before the checksum.
const BEFORE_CRC: usize = 28;

/// What a column's bytes begin with: a directory of its rows, as segments of chunks. The rows of the column are those of its segments, in
/// sequence. Chunks stand anywhere behind the header.
///
/// Each change leaves the chunks as they are, so that a column at rest takes new rows, and other rows in place of some, without a chunk being
/// written again: the chunks of the new rows go behind all others, and a header is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnHeader {
    params: ParamSet,
    segments: Vec<Segment>,
    /// Of each segment, the row behind its last one.
    ends: Vec<u64>,
}

/// Bytes of a header with this many segments.
pub(super) const fn header_len(segments: u64) -> u64 {
    (Segment::BYTES as u64)
        .saturating_mul(segments)
        .saturating_add(FIXED as u64)
}

fn too_many(segments: usize) -> TfheError {
    malformed(format!(
        "{segments} segments of a column; expected at most {}",
        u32::MAX
    ))
}

fn overflow() -> TfheError {
    malformed("a column of more than 2^64 rows")
}

impl ColumnHeader {
    /// Bytes from which [`ColumnHeader::byte_len_of`] knows how many the whole header has.
    pub const FIXED_BYTES: usize = FIXED;

    /// The header of a column of these segments of chunks.
    ///
    /// # Errors
    /// Those of [`Segment::check`]; [`TfheError::Format`] for no segments, for more than 2^32 - 1, and for more than 2^64 - 1 rows.
    pub fn new(params: &ParamSet, segments: Vec<Segment>) -> Result<ColumnHeader, TfheError> {
        if segments.is_empty() {
            return Err(malformed("a column of 0 rows; expected at least 1"));
        }
        let mut header = ColumnHeader {
            params: *params,
            segments,
            ends: Vec::new(),
        };
        header.total(&header.segments)?;
        header.count_from(0);
        Ok(header)
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// The rows of all segments together, at least one.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The segments, at least one.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether bytes begin as those of a column do.
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Bytes of the header: 32, and 32 for each segment.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        ColumnHeader::byte_len_for(self.segments.len())
    }

    /// Bytes of a header of so many segments.
    #[must_use]
    pub fn byte_len_for(segments: usize) -> u64 {
        header_len(segments as u64)
    }

    /// Bytes of the whole header that begins with these, of which it looks at [`ColumnHeader::FIXED_BYTES`]. They are not checked by
    /// the checksum, which is that of the whole: whoever makes room for the header compares them with what there is first.
    ///
    /// # Errors
    /// [`TfheError::Format`] with what is wrong.
    pub fn byte_len_of(bytes: &[u8]) -> Result<u64, TfheError> {
        Ok(header_len(Fixed::read(bytes)?.segments.into()))
    }

    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + self.segments.len() * Segment::BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.rows().to_le_bytes());
        bytes.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        bytes.resize(FIXED, 0);
        for segment in &self.segments {
            bytes.extend_from_slice(&segment.to_bytes());
        }
        let crc = checksum(&bytes);
        bytes[BEFORE_CRC..FIXED].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header at the beginning of `bytes`, and says how many of them it is.
    ///
    /// # Errors
    /// [`TfheError::Format`] with what is wrong, and those of [`ColumnHeader::new`].
    pub fn from_bytes(params: &ParamSet, bytes: &[u8]) -> Result<(ColumnHeader, usize), TfheError> {
        let fixed = Fixed::read(bytes)?;
        let len = header_len(fixed.segments.into());
        let header = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
        let header = header.ok_or_else(|| {
            let found = bytes.len();
            malformed(format!(
                "a column of {found} bytes; its header alone has {len}"
            ))
        })?;
        if fixed.crc32c != checksum(header) {
            return Err(malformed("the header of the column is damaged"));
        }
        let (segments, _) = header[FIXED..].as_chunks::<{ Segment::BYTES }>();
        let segments = segments.iter().map(Segment::from_bytes);
        let read = ColumnHeader::new(params, segments.collect::<Result<_, _>>()?)?;
        if read.rows() != fixed.rows {
            return Err(malformed(format!(
                "a column of {} rows, the segments of which have {}",
                fixed.rows,
                read.rows()
            )));
        }
        Ok((read, header.len()))
    }

    /// The segment of a row, and the place of the row among those of the segment. `None` for a row that the column does not have.
    #[must_use]
    pub fn locate(&self, row: u64) -> Option<(usize, u32)> {
        let index = self.ends.partition_point(|end| *end <= row);
        (index < self.ends.len()).then(|| (index, (row - self.start(index)) as u32))
    }

    /// The rows of the column that a segment holds.
    #[must_use]
    pub fn rows_of(&self, segment: usize) -> Option<Range<u64>> {
        self.ends.get(segment).map(|end| self.start(segment)..*end)
    }

    /// The segments of a range of rows, the first and the last one with those of their rows that lie in it.
    ///
    /// # Errors
    /// [`TfheError::ColumnRows`] for rows that the column does not have.
    pub fn slice(&self, rows: Range<u64>) -> Result<Vec<Segment>, TfheError> {
        self.check_rows(&rows)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.ends.partition_point(|end| *end <= rows.start);
        let last = self.ends.partition_point(|end| *end < rows.end);
        let clipped = |index: usize| {
            let (start, end) = (self.start(index), self.ends[index]);
            let within = rows.start.max(start) - start..rows.end.min(end) - start;
            self.segments[index].clipped(within)
        };
        Ok((first..=last).map(clipped).collect())
    }

    /// Puts the rows of other segments in the place of a range of rows. Where both have equally many, the rows behind keep their numbers; no rows
    /// for some take these away, and rows for none go in between.
    ///
    /// # Errors
    /// [`TfheError::ColumnRows`], and those of [`ColumnHeader::new`] for the column that it would become. The header stays as it was.
    pub fn replace(&mut self, rows: Range<u64>, with: Vec<Segment>) -> Result<(), TfheError> {
        self.check_rows(&rows)?;
        let added = self.total(&with)?;
        let kept = self.rows() - (rows.end - rows.start);
        if kept.checked_add(added).ok_or_else(overflow)? == 0 {
            return Err(malformed("a column of 0 rows; expected at least 1"));
        }
        let first = self.ends.partition_point(|end| *end <= rows.start);
        let mut last = self.ends.partition_point(|end| *end <= rows.end);
        let mut pieces = Vec::with_capacity(with.len() + 2);
        if let Some(held) = self.rows_of(first).filter(|held| held.start < rows.start) {
            pieces.push(self.segments[first].clipped(0..rows.start - held.start));
        }
        pieces.extend(with);
        if let Some(held) = self.rows_of(last).filter(|held| held.start < rows.end) {
            let behind = rows.end - held.start..held.end - held.start;
            pieces.push(self.segments[last].clipped(behind));
            last += 1;
        }
        let count = self.segments.len() - (last - first) + pieces.len();
        if count > u32::MAX as usize {
            return Err(too_many(count));
        }
        self.segments.splice(first..last, pieces);
        self.count_from(first);
        Ok(())
    }

    /// Appends the rows of a segment.
    ///
    /// # Errors
    /// Those of [`ColumnHeader::new`] for the column that it would become. The header stays as it was.
    pub fn push(&mut self, segment: Segment) -> Result<(), TfheError> {
        let end = self.rows();
        self.replace(end..end, vec![segment])
    }

    /// The first row of a segment.
    fn start(&self, segment: usize) -> u64 {
        let before = segment.checked_sub(1);
        before.map_or(0, |before| self.ends[before])
    }

    /// The rows of these segments, each of which is one that the column may have.
    fn total(&self, segments: &[Segment]) -> Result<u64, TfheError> {
        if segments.len() > u32::MAX as usize {
            return Err(too_many(segments.len()));
        }
        let mut rows = 0u64;
        for segment in segments {
            segment.check(&self.params)?;
            rows = rows.checked_add(segment.rows.into()).ok_or_else(overflow)?;
        }
        Ok(rows)
    }

    /// Counts the rows from a segment on.
    fn count_from(&mut self, segment: usize) {
        let mut end = self.start(segment);
        self.ends.truncate(segment);
        let counted = self.segments[segment..].iter().map(|segment| {
            end += u64::from(segment.rows);
            end
        });
        self.ends.extend(counted);
    }

    fn check_rows(&self, rows: &Range<u64>) -> Result<(), TfheError> {
        if rows.start <= rows.end && rows.end <= self.rows() {
            return Ok(());
        }
        Err(TfheError::ColumnRows {
            rows: rows.clone(),
            of: self.rows(),
        })
    }
}

/// The checksum of a whole header, which does not cover itself.
fn checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..BEFORE_CRC]), &header[FIXED..])
}

/// What stands before the segments.
struct Fixed {
    rows: u64,
    segments: u32,
    crc32c: u32,
}

impl Fixed {
    fn read(bytes: &[u8]) -> Result<Fixed, TfheError> {
        let Some((fixed, _)) = bytes.split_first_chunk::<FIXED>() else {
            return Err(malformed(format!(
                "a column of {} bytes; its header alone has more than {FIXED}",
                bytes.len(),
            )));
        };
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&fixed[at..at + 4]);
            u32::from_le_bytes(word)
        };
        if fixed[..4] != MAGIC {
            return Err(malformed("not a column: it does not begin with TCOL"));
        }
        let version = u16::from_le_bytes([fixed[4], fixed[5]]);
        if version != VERSION {
            return Err(malformed(format!(
                "column version {version}; expected {VERSION}"
            )));
        }
        if fixed[6..8] != [0; 2] || fixed[20..BEFORE_CRC] != [0; 8] {
            return Err(malformed("reserved bytes of a column's header are not 0"));
        }
        let segments = word(16);
        if segments == 0 {
            return Err(malformed("a column of 0 rows; expected at least 1"));
        }
        Ok(Fixed {
            rows: u64::from(word(8)) | u64::from(word(12)) << 32,
            segments,
            crc32c: word(BEFORE_CRC),
        })
    }
}
