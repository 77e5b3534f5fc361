//! A whole column as bytes in memory: a header, then its chunks.

use std::collections::HashMap;
use std::ops::Range;

use crate::TfheError;
use crate::params::ParamSet;

use super::chunk::Chunk;
use super::form::{ColumnForm, chunk_bytes, rows_per_chunk};
use super::header::{ColumnHeader, header_len};
use super::segment::{Segment, malformed};

/// A column in memory, as bytes.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    header: ColumnHeader,
    bytes: &'a [u8],
}

impl<'a> Column<'a> {
    /// The column that these bytes are. Chunks are looked at only when they are read.
    ///
    /// # Errors
    /// Those of [`ColumnHeader::from_bytes`]; [`TfheError::Format`] for a chunk that stands within the header, overlaps another or ends behind
    /// the last byte.
    pub fn new(params: &ParamSet, bytes: &'a [u8]) -> Result<Column<'a>, TfheError> {
        let (header, used) = ColumnHeader::from_bytes(params, bytes)?;
        let mut chunks: Vec<&Segment> = header.segments().iter().collect();
        chunks.sort_unstable_by_key(|segment| segment.offset);
        chunks.dedup_by(|a, b| a.shares_chunk(b));
        // Without overlaps, there is no more to read than these bytes, however many segments there are.
        let mut end = used as u64;
        for segment in chunks {
            let place = segment.chunk_place(params)?;
            if place.start < end {
                return Err(malformed(format!(
                    "a chunk at byte {} of the column, in the header or in another chunk",
                    place.start
                )));
            }
            end = place.end;
        }
        if end > bytes.len() as u64 {
            return Err(malformed(format!(
                "a column of {} bytes, the last chunk of which ends at byte {end}",
                bytes.len()
            )));
        }
        Ok(Column { header, bytes })
    }

    /// Its segments and rows.
    #[must_use]
    pub fn header(&self) -> &ColumnHeader {
        &self.header
    }

    /// The bytes of a segment's chunk, by the segment's number. Their checksum is not looked at.
    ///
    /// # Errors
    /// [`TfheError::Format`] for a segment that the column does not have.
    pub fn chunk_bytes(&self, segment: usize) -> Result<&'a [u8], TfheError> {
        let place = self.segment(segment)?.chunk_place(self.header.params())?;
        let bytes = self.bytes.get(place.start as usize..place.end as usize);
        bytes.ok_or_else(|| malformed(format!("segment {segment} ends behind the column")))
    }

    /// The chunk of a segment, by the segment's number.
    ///
    /// # Errors
    /// [`TfheError::Format`] for a segment that the column does not have, or for bytes of another checksum than its; those of [`Chunk::new`].
    pub fn chunk_of(&self, segment: usize) -> Result<Chunk, TfheError> {
        let bytes = self.chunk_bytes(segment)?;
        self.segment(segment)?.chunk(self.header.params(), bytes)
    }

    fn segment(&self, segment: usize) -> Result<&Segment, TfheError> {
        let segments = self.header.segments();
        segments.get(segment).ok_or_else(|| {
            let count = segments.len();
            malformed(format!(
                "segment {segment} of a column that has {count} of them"
            ))
        })
    }
}

/// Bytes of a column of this many rows in full chunks of one form, and a last one of the rest.
///
/// # Errors
/// [`TfheError::ChunkRows`] for no rows, [`TfheError::NoForm`].
pub fn column_bytes(params: &ParamSet, form: ColumnForm, rows: u64) -> Result<u64, TfheError> {
    let full = rows_per_chunk(params) as u64;
    let chunks = rows.div_ceil(full);
    let before = chunks.saturating_sub(1);
    let last = chunk_bytes(params, form, (rows - before * full) as usize)? as u64;
    let of_full = chunk_bytes(params, form, full as usize)? as u64;
    let of_chunks = before.saturating_mul(of_full).saturating_add(last);
    Ok(header_len(chunks).saturating_add(of_chunks))
}

/// Makes the bytes of a column: its chunks follow the header without gaps, in the order of the rows, equal ones once.
#[derive(Debug)]
pub struct ColumnBytesBuilder {
    params: ParamSet,
    /// Room for the header, then the chunks.
    bytes: Vec<u8>,
    /// Bytes of that room.
    room: usize,
    segments: Vec<Segment>,
    /// Where chunks of a form, number of rows and checksum stand.
    known: HashMap<(ColumnForm, u32, u32), Vec<Range<usize>>>,
}

impl ColumnBytesBuilder {
    /// A column without rows, with room for a header of `segments` segments. If there will be another number of them, the chunks are moved once.
    #[must_use]
    pub fn new(params: &ParamSet, segments: usize) -> ColumnBytesBuilder {
        let room = header_len(segments as u64) as usize;
        ColumnBytesBuilder {
            params: *params,
            bytes: vec![0; room],
            room,
            segments: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Appends all rows of a chunk.
    ///
    /// # Errors
    /// Those of [`Segment::of_chunk`].
    pub fn push_chunk(
        &mut self,
        form: ColumnForm,
        rows: usize,
        chunk: &[u8],
    ) -> Result<(), TfheError> {
        let segment = Segment::of_chunk(&self.params, form, rows, 0, chunk)?;
        self.place(segment, chunk);
        Ok(())
    }

    /// Appends the rows of a segment, the chunk of which has these bytes. Its offset, which is that of a column that it comes from, has no meaning here.
    ///
    /// # Errors
    /// Those of [`Segment::check`] and [`Segment::check_chunk`].
    pub fn push(&mut self, segment: Segment, chunk: &[u8]) -> Result<(), TfheError> {
        let here = Segment {
            offset: 0,
            ..segment
        };
        here.check(&self.params)?;
        // An error names the place where the chunk comes from.
        segment.check_chunk(&self.params, chunk)?;
        self.place(here, chunk);
        Ok(())
    }

    fn place(&mut self, segment: Segment, chunk: &[u8]) {
        let key = (segment.form, segment.chunk_rows, segment.crc32c);
        let places = self.known.entry(key).or_default();
        let equal = |place: &&Range<usize>| self.bytes.get((*place).clone()) == Some(chunk);
        let start = if let Some(place) = places.iter().find(equal) {
            place.start
        } else {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(chunk);
            places.push(start..self.bytes.len());
            start
        };
        self.segments.push(Segment {
            offset: (start - self.room) as u64,
            ..segment
        });
    }

    /// The bytes of the column.
    ///
    /// # Errors
    /// Those of [`ColumnHeader::new`].
    pub fn finish(self) -> Result<Vec<u8>, TfheError> {
        let ColumnBytesBuilder {
            params,
            mut bytes,
            room,
            mut segments,
            ..
        } = self;
        let header = header_len(segments.len() as u64);
        for segment in &mut segments {
            segment.offset += header;
        }
        let header = ColumnHeader::new(&params, segments)?.to_bytes();
        if header.len() == room {
            bytes[..room].copy_from_slice(&header);
        } else {
            bytes.splice(..room, header);
        }
        Ok(bytes)
    }
}

/// The bytes of a column whose chunks are in place already, behind room for its header ([`ColumnHeader::byte_len_for`]): the segments count their
/// offsets from the first byte. Nobody looks at the checksums of the chunks.
///
/// # Errors
/// Those of [`ColumnHeader::new`] and [`Column::new`].
pub fn put_header(
    params: &ParamSet,
    segments: Vec<Segment>,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, TfheError> {
    let header = ColumnHeader::new(params, segments)?.to_bytes();
    let found = bytes.len();
    let room = bytes.get_mut(..header.len()).ok_or_else(|| {
        let len = header.len();
        malformed(format!(
            "a column of {found} bytes; its header alone has {len}"
        ))
    })?;
    room.copy_from_slice(&header);
    Column::new(params, &bytes)?;
    Ok(bytes)
}

/// The bytes of a column of these segments, each with the bytes of its chunk, as [`ColumnBytesBuilder`] makes them: of segments that
/// [`ColumnHeader::slice`] cut out of a stored column, say.
///
/// # Errors
/// Those of [`ColumnBytesBuilder::push`] and [`ColumnBytesBuilder::finish`].
pub fn assemble<'a>(
    params: &ParamSet,
    segments: impl IntoIterator<Item = (Segment, &'a [u8])>,
) -> Result<Vec<u8>, TfheError> {
    let segments: Vec<_> = segments.into_iter().collect();
    let mut builder = ColumnBytesBuilder::new(params, segments.len());
    let bytes = segments.iter().map(|(_, chunk)| chunk.len()).sum();
    builder.bytes.reserve_exact(bytes);
    for (segment, chunk) in segments {
        builder.push(segment, chunk)?;
    }
    builder.finish()
}
