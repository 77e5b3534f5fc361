//! Columns that are encrypted together: one seed gives those of all their chunks, so that bytes of all columns have one head, and state no other
//! seed (docs/reference/formats.md).

use std::borrow::Cow;

use crate::TfheError;
use crate::encoding::Encoding;
use crate::params::ParamSet;
use crate::random::Csprng;
use crate::seeded::{MaskSeed, SEED_BYTES};

use super::form::{ColumnForm, chunk_bytes, rows_per_chunk};
use super::object::{Column, ColumnBytesBuilder};
use super::segment::malformed;

const MAGIC: [u8; 4] = *b"TCOG";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 56;
const RUN_BYTES: usize = 24;
const CRC_BYTES: usize = 4;
/// Numbers of chunks are below it.
const MAX_CHUNKS: u64 = 1 << 56;

/// The first bytes of a client key's tag; zeroes where nobody states it.
type TagStart = [u8; 12];

/// A fresh seed, and the chunks that have taken theirs from it.
#[derive(Debug)]
pub struct GroupSeed {
    seed: MaskSeed,
    taken: u64,
    process: u32,
}

/// The seed of one chunk, for [`ClientKey::encrypt_chunk_of`](crate::ClientKey::encrypt_chunk_of). Nobody else has it, and it encrypts once: there is no copy of it.
#[derive(Debug)]
pub struct ChunkSeed {
    seed: MaskSeed,
    process: u32,
}

impl GroupSeed {
    /// A fresh seed, from the generator's public stream.
    #[must_use]
    pub fn generate(rng: &mut Csprng) -> GroupSeed {
        GroupSeed {
            seed: MaskSeed::generate(rng),
            taken: 0,
            process: std::process::id(),
        }
    }

    /// The seed that [`MaskSeed::of_chunk`] gives those of the chunks from.
    #[must_use]
    pub fn seed(&self) -> MaskSeed {
        self.seed
    }

    /// How many chunks have a seed: the number of the next one.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The seed of the next chunk.
    #[must_use]
    pub fn next_chunk(&mut self) -> ChunkSeed {
        let seed = self.seed.of_chunk(self.taken);
        self.taken += 1;
        ChunkSeed {
            seed,
            process: self.process,
        }
    }
}

impl ChunkSeed {
    /// The seed, to encrypt with.
    ///
    /// # Errors
    /// [`TfheError::Forked`] in another process than that which generated it: both could encrypt under the same masks.
    pub(super) fn use_up(self) -> Result<MaskSeed, TfheError> {
        if self.process == std::process::id() {
            Ok(self.seed)
        } else {
            Err(TfheError::Forked)
        }
    }
}

/// A column of a group, as it was encrypted.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupColumn<'a> {
    /// The encoding of its messages.
    pub encoding: Encoding,
    /// Its rows.
    pub rows: u64,
    /// Number of its first chunk in the group; the others follow it.
    pub first: u64,
    /// The column ([`Column`]): full seeded chunks and a last one of the rest, in sequence.
    pub bytes: Cow<'a, [u8]>,
}

/// Columns that were encrypted together, all of them or some, in any order.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnGroup<'a> {
    /// Their parameter set.
    pub params: &'static ParamSet,
    /// Start of the tag of their client key; zeroes state nothing.
    pub tag: TagStart,
    /// The seed of the group.
    pub seed: MaskSeed,
    /// The columns.
    pub columns: Vec<GroupColumn<'a>>,
}

/// Columns one behind the other that have the same encoding and number of rows, and chunks that follow each other.
struct Run {
    first: u64,
    rows: u64,
    columns: u32,
    encoding: Encoding,
}

fn chunks(params: &ParamSet, rows: u64) -> u64 {
    rows.div_ceil(rows_per_chunk(params) as u64)
}

fn refuse(what: &str) -> TfheError {
    malformed(format!("columns that were encrypted together: {what}"))
}

impl ColumnGroup<'_> {
    /// The columns as bytes: a head and the seed, what the columns are, the bodies of all rows, and a checksum.
    ///
    /// # Errors
    /// Those of [`Column::new`]; [`TfheError::Format`] for a column whose chunks are not those of its rows under its seeds.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TfheError> {
        let params = self.params;
        let mut runs: Vec<Run> = Vec::new();
        let mut bodies = Vec::new();
        for column in &self.columns {
            let parts = Column::new(params, &column.bytes)?;
            let segments = parts.header().segments().len();
            for (segment, number) in (0..segments).zip(column.first..) {
                let chunk = parts.chunk_bytes(segment)?;
                let seed = self.seed.of_chunk(number);
                let body = chunk.strip_prefix(seed.as_bytes());
                bodies.extend_from_slice(body.ok_or_else(|| refuse("a seed of another group"))?);
            }
            if segments as u64 != chunks(params, column.rows)
                || parts.header().rows() != column.rows
            {
                return Err(refuse("a column that has changed"));
            }
            match runs.last_mut() {
                Some(run)
                    if run.encoding == column.encoding
                        && run.rows == column.rows
                        && run.columns < u32::MAX
                        && run.first + segments as u64 * u64::from(run.columns) == column.first =>
                {
                    run.columns += 1;
                }
                _ => runs.push(Run {
                    first: column.first,
                    rows: column.rows,
                    columns: 1,
                    encoding: column.encoding,
                }),
            }
        }
        let room = HEAD_BYTES + RUN_BYTES * runs.len() + bodies.len() + CRC_BYTES;
        let mut bytes = Vec::with_capacity(room);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&params.id.to_le_bytes());
        bytes.extend_from_slice(&(runs.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.tag);
        bytes.extend_from_slice(self.seed.as_bytes());
        for run in &runs {
            bytes.extend_from_slice(&run.first.to_le_bytes());
            bytes.extend_from_slice(&run.rows.to_le_bytes());
            bytes.extend_from_slice(&run.columns.to_le_bytes());
            let signed = u8::from(run.encoding.is_signed());
            bytes.extend_from_slice(&[run.encoding.bits() as u8, signed, 0, 0]);
        }
        bytes.extend_from_slice(&bodies);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    /// The columns that [`ColumnGroup::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`TfheError::Format`] for anything else; those of [`Encoding::of_samples`].
    pub fn from_bytes(bytes: &[u8]) -> Result<ColumnGroup<'static>, TfheError> {
        let (content, crc) = bytes
            .split_last_chunk::<CRC_BYTES>()
            .ok_or_else(|| refuse("too few bytes"))?;
        let mut reader = Reader(content);
        if reader.take()? != MAGIC {
            return Err(refuse("they do not begin with TCOG"));
        }
        if u16::from_le_bytes(reader.take()?) != VERSION {
            return Err(refuse("a version that this program does not read"));
        }
        if crc32c::crc32c(content) != u32::from_le_bytes(*crc) {
            return Err(refuse("their checksum does not match"));
        }
        let id = u16::from_le_bytes(reader.take()?);
        let params = ParamSet::by_id(id).ok_or_else(|| refuse("an unknown parameter set"))?;
        let runs = u32::from_le_bytes(reader.take()?);
        let tag = reader.take()?;
        let seed = MaskSeed::from_bytes(reader.take()?);
        let mut heads = Reader(reader.bytes(RUN_BYTES.saturating_mul(runs as usize))?);
        let mut columns = Vec::new();
        while !heads.0.is_empty() {
            let run = Run::read(&mut heads, params)?;
            let mut first = run.first;
            for _ in 0..run.columns {
                columns.push(reader.column(params, &seed, &run, first)?);
                first += chunks(params, run.rows);
            }
        }
        if columns.is_empty() || !reader.0.is_empty() {
            return Err(refuse("no columns, or bytes behind them"));
        }
        Ok(ColumnGroup {
            params,
            tag,
            seed,
            columns,
        })
    }
}

impl Run {
    fn read(reader: &mut Reader<'_>, params: &ParamSet) -> Result<Run, TfheError> {
        let first = u64::from_le_bytes(reader.take()?);
        let rows = u64::from_le_bytes(reader.take()?);
        let columns = u32::from_le_bytes(reader.take()?);
        let encoding = match reader.take()? {
            [bits, signed @ (0 | 1), 0, 0] => {
                Encoding::of_samples(params, u32::from(bits), signed == 1)?
            }
            _ => return Err(refuse("an encoding that there is not")),
        };
        let end = chunks(params, rows)
            .checked_mul(u64::from(columns))
            .and_then(|chunks| first.checked_add(chunks));
        if rows == 0 || columns == 0 || end.is_none_or(|end| end > MAX_CHUNKS) {
            return Err(refuse("columns without rows, or with too many"));
        }
        Ok(Run {
            first,
            rows,
            columns,
            encoding,
        })
    }
}

/// Bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], TfheError> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| refuse("they end early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], TfheError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// A column of a run from its bodies.
    fn column(
        &mut self,
        params: &ParamSet,
        seed: &MaskSeed,
        run: &Run,
        first: u64,
    ) -> Result<GroupColumn<'static>, TfheError> {
        let full = rows_per_chunk(params) as u64;
        let mut builder = ColumnBytesBuilder::new(params, 1);
        for (index, number) in (0..chunks(params, run.rows)).zip(first..) {
            let rows = full.min(run.rows - index * full) as usize;
            let body = self.bytes(chunk_bytes(params, ColumnForm::Seeded, rows)? - SEED_BYTES)?;
            let chunk = [&seed.of_chunk(number).as_bytes()[..], body].concat();
            builder.push_chunk(ColumnForm::Seeded, rows, &chunk)?;
        }
        Ok(GroupColumn {
            encoding: run.encoding,
            rows: run.rows,
            first,
            bytes: Cow::Owned(builder.finish()?),
        })
    }
}
