//! What a column's blob begins with.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..64 | secure computing metadata: parameter set, key id, encoding, noise of the noisiest row, key tag |
//! | 64..128 | the [`JobRecord`] of the run that makes the column; zeroes without one |
//! | 128.. | the header of the column ([`ColumnHeader`]), whose segments name chunks by their distance from byte 128 |
//! | behind it | what binds the column to a client key ([`Bound`]) |
//!
//! The first chunk stands far enough behind the header that appends have room for more segments. Chunks are never changed: a
//! replaced row gets a chunk of its own.

use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, VrType};
use toroid_rns::ring_set::RingSet;
use toroid_tfhe::column::{ColumnHeader, Segment};
use toroid_tfhe::params::ParamSet;

use super::ColumnError;
use super::binding::{Bound, Described};
use super::rows::RowFacts;
use crate::ledger::Origin;
use crate::session::SessionError;

/// Where the column's header begins, from which offsets count.
pub(super) const BASE: u64 = (ScMetadata::SIZE + JobRecord::SIZE) as u64;
/// Least bytes before the first chunk.
const LEAST_ROOM: u64 = 64 << 10;
/// Most segments of a column: its head stays below 16 MiB.
const MAX_SEGMENTS: usize = 1 << 19;

/// How far a run on columns has come that fills a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobRecord {
    /// SHA-256 of program, test vectors and input rows.
    pub digest: [u8; 32],
    /// Rows of the inputs whose results are there.
    pub done: u64,
    /// Rows of the inputs.
    pub total: u64,
    /// Whether the result is complete.
    pub complete: bool,
}

/// The run that fills a column.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "image"),
    expect(dead_code, reason = "programs run over columns of images alone")
)]
pub(super) struct Run {
    pub(super) record: JobRecord,
    /// What a ledger is to have of it.
    pub(super) origin: Option<Origin>,
}

impl JobRecord {
    pub(super) const SIZE: usize = 64;
    const MAGIC: [u8; 4] = *b"TMAP";

    pub(super) fn to_bytes(self) -> [u8; JobRecord::SIZE] {
        let mut bytes = [0; JobRecord::SIZE];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4] = self.complete.into();
        bytes[8..40].copy_from_slice(&self.digest);
        bytes[40..48].copy_from_slice(&self.done.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.total.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Those of the record of a column that may have none.
    pub(super) fn bytes_of(job: Option<JobRecord>) -> [u8; JobRecord::SIZE] {
        job.map_or([0; JobRecord::SIZE], JobRecord::to_bytes)
    }

    pub(super) fn from_bytes(
        bytes: &[u8; JobRecord::SIZE],
    ) -> Result<Option<JobRecord>, ColumnError> {
        if bytes == &[0; JobRecord::SIZE] {
            return Ok(None);
        }
        let mut record = JobRecord {
            complete: bytes[4] == 1,
            ..JobRecord::default()
        };
        record.digest.copy_from_slice(&bytes[8..40]);
        let number = |at: usize| {
            bytes[at..at + 8]
                .iter()
                .rfold(0, |n, b| n << 8 | u64::from(*b))
        };
        (record.done, record.total) = (number(40), number(48));
        if record.to_bytes() != *bytes
            || record.done > record.total
            || record.complete && record.done < record.total
        {
            return Err(damaged("its record of a run has another checksum"));
        }
        Ok(Some(record))
    }
}

pub(super) fn damaged(reason: impl ToString) -> ColumnError {
    ColumnError::Damaged(reason.to_string())
}

/// The head of a column.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) facts: RowFacts,
    pub(super) key_id: u32,
    pub(super) job: Option<JobRecord>,
    pub(super) header: ColumnHeader,
    /// What binds it to a client key; nobody has checked it yet.
    pub(super) bound: Option<Bound>,
}

impl Head {
    /// How many of these first bytes of a blob to read before the whole head.
    pub(super) const FIXED: usize = BASE as usize + ColumnHeader::FIXED_BYTES;

    /// Bytes of the head that begins with these [`Head::FIXED`], without a binding, and the most that it has with one.
    pub(super) fn byte_len_of(fixed: &[u8]) -> Result<(u64, u64), ColumnError> {
        let header = fixed.get(BASE as usize..).unwrap_or_default();
        let len = ColumnHeader::byte_len_of(header).map_err(damaged)?;
        if len > ((MAX_SEGMENTS + 1) * Segment::BYTES) as u64 {
            return Err(damaged(format!("a header of {len} bytes")));
        }
        let segments = len as usize / Segment::BYTES;
        let head = BASE + len;
        Ok((head, head + Bound::byte_len(Some(segments))))
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Head, ColumnError> {
        let short = || damaged("its head is too short");
        let (sc, rest) = bytes.split_at_checked(ScMetadata::SIZE).ok_or_else(short)?;
        let (job, header) = rest
            .split_first_chunk::<{ JobRecord::SIZE }>()
            .ok_or_else(short)?;
        let sc = ScMetadata::from_bytes(sc).map_err(damaged)?;
        let sc = sc.ok_or_else(|| damaged("it does not begin with secure computing metadata"))?;
        let facts = RowFacts::of(&sc)?;
        let read = ColumnHeader::from_bytes(facts.params, header).map_err(damaged)?;
        let mut head = Head {
            facts,
            key_id: sc.vr().key_id(),
            job: JobRecord::from_bytes(job)?,
            header: read.0,
            bound: None,
        };
        // What is there may be the first chunk.
        let end = header.len().min((head.first_chunk() - BASE) as usize);
        let behind = header.get(read.1..end).unwrap_or_default();
        head.bound = Bound::from_bytes(behind, head.places());
        Ok(head)
    }

    /// What is said of the column as a whole.
    fn metadata(&self) -> Result<ScMetadata, SessionError> {
        let vr = VrNumber::new(VrType::LweCor, self.key_id, 0)?;
        // What the segments say counts; the size is there because metadata has one.
        let size = self.header.rows().clamp(1, ScMetadata::MAX_OBJECT);
        self.facts.metadata(vr, size)
    }

    /// What is bound of it.
    pub(super) fn described(&self) -> Result<Described, SessionError> {
        let pieces = self.header.segments().iter().map(|segment| {
            let form = segment.form as u32;
            let words = [form, segment.chunk_rows, segment.first, segment.rows];
            (segment.offset, words)
        });
        Ok(Described {
            sc: self.metadata()?,
            job: JobRecord::bytes_of(self.job).to_vec(),
            rows: self.header.rows(),
            pieces: pieces.collect(),
        })
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, SessionError> {
        let sc = self.metadata()?.to_bytes();
        let header = self.header.to_bytes();
        let bound = Bound::to_bytes(self.bound.as_ref());
        Ok([&sc[..], &JobRecord::bytes_of(self.job), &header, &bound].concat())
    }

    /// Bytes of it, with a binding of so many chunks if there is to be one.
    pub(super) fn byte_len(&self, bound: Option<usize>) -> u64 {
        BASE + self.header.byte_len() + Bound::byte_len(bound)
    }

    /// Refuses more segments than a head has room for.
    pub(super) fn check(&self) -> Result<(), ColumnError> {
        match self.header.segments().len() {
            segments if segments > MAX_SEGMENTS => Err(ColumnError::Pieces(segments)),
            _ => Ok(()),
        }
    }

    /// Bytes for the head of a column that is written whole: twice what it needs with a binding.
    pub(super) fn room(&self) -> u64 {
        let most = self.byte_len(Some(self.header.segments().len()));
        LEAST_ROOM.max((2 * most).next_multiple_of(4096))
    }

    /// Where the first chunk stands in the blob.
    pub(super) fn first_chunk(&self) -> u64 {
        let offsets = self.header.segments().iter().map(|segment| segment.offset);
        BASE.saturating_add(offsets.min().unwrap_or(0))
    }

    /// The segments without repetition of chunks, in the order of their places.
    pub(super) fn chunks(&self) -> Vec<Segment> {
        let mut chunks = self.header.segments().to_vec();
        chunks.sort_unstable_by_key(|segment| segment.offset);
        chunks.dedup_by(|a, b| a.shares_chunk(b));
        chunks
    }

    /// Where the chunks stand, from [`BASE`], in the order of their places.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        self.chunks().into_iter().map(|chunk| chunk.offset)
    }
}

/// The parameter set of an identifier.
pub(super) fn set_of(id: u16) -> Result<&'static ParamSet, ColumnError> {
    ParamSet::by_id(id).ok_or_else(|| damaged(format!("parameter set {id} is unknown")))
}

/// The ring of a column whose blob begins so; `None` for samples.
pub(super) fn ring_of_head(bytes: &[u8]) -> Option<&'static RingSet> {
    let sc = ScMetadata::from_bytes(bytes.get(..ScMetadata::SIZE)?);
    RingSet::by_id(sc.ok().flatten()?.params())
}
