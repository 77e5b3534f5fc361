//! Columns in the blob store.

use std::collections::BTreeMap;
#[cfg(feature = "image")]
use std::collections::BTreeSet;
use std::ops::Range;

use toroid_isa::VrNumber;
use toroid_isa::metadata::KeyTagStart;
use toroid_rns::ring_set::RingSet;
use toroid_task::Progress;
use toroid_tfhe::TfheError;
#[cfg(feature = "image")]
use toroid_tfhe::column::chunk_bytes;
use toroid_tfhe::column::{ColumnForm, ColumnHeader, Segment, assemble, put_header};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::StatedNoise;
use toroid_tfhe::params::ParamSet;

use super::binding::Bound;
use super::head::{BASE, Head, JobRecord, Run, damaged};
use super::rows::{EncryptedRows, log2_failure};
use super::{ColumnError, MAX_NAME_BYTES, PREFIX, mismatch, of};
use crate::blob::{BlobError, BlobId, BlobReader, BlobStat, NewBlob};
use crate::ledger::{Origin, Subject};
use crate::session::{Session, SessionError};

/// Chunks that a change may leave behind, in bytes, before the column is written anew without them.
const SPARE: u64 = 4 << 20;

/// Bytes that are read of a column before anything is known of it: the heads of most columns have no more.
const HEAD: u64 = 32 << 10;

/// What a drive has of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnStat {
    /// Its name.
    pub name: String,
    /// The parameter set.
    pub params: &'static ParamSet,
    /// The ring of a ring column; `None` for samples.
    pub ring: Option<&'static RingSet>,
    /// The key id of the keys that compute on it.
    pub key_id: u32,
    /// Its rows.
    pub rows: u64,
    /// The encoding of their messages; `None`: not stated.
    pub encoding: Option<Encoding>,
    /// What is stated of the noise of the noisiest row.
    pub noise: StatedNoise,
    /// Whether a program made rows of it.
    pub computed: bool,
    /// Bytes that it takes on the drive, clusters not counted.
    pub bytes: u64,
    /// Rows of the seeded, packed and expanded form.
    pub forms: [u64; 3],
    /// Pieces that it consists of: runs of rows of a chunk, or ciphertexts of a ring.
    pub pieces: usize,
    /// The run that fills it, or has filled it.
    pub job: Option<JobRecord>,
}

impl ColumnStat {
    /// log2 of the probability that decrypting a row gives a wrong number, as [`EncryptedRows::log2_failure`].
    #[must_use]
    pub fn log2_failure(&self) -> f64 {
        log2_failure(self.ring, self.encoding, self.noise)
    }
}

/// Chunks in memory, by their offsets.
struct Chunks {
    bytes: Vec<u8>,
    places: BTreeMap<u64, Range<usize>>,
}

impl Chunks {
    fn get(&self, offset: u64) -> Option<&[u8]> {
        self.bytes.get(self.places.get(&offset)?.clone())
    }
}

/// A column as it stands in the store: what others do to it later does not show.
pub struct StoredColumn {
    pub(super) name: String,
    pub(super) head: Head,
    /// Whether a ledger knows the head, so that its digests of chunks count.
    is_bound: bool,
    blob: BlobStat,
    reader: BlobReader,
}

impl Head {
    /// What a drive has of the column of this head, in a blob of so many bytes.
    fn stat(&self, name: &str, bytes: u64) -> ColumnStat {
        let Head { facts, header, .. } = self;
        let mut forms = [0; 3];
        for segment in header.segments() {
            let place = ColumnForm::ALL
                .iter()
                .position(|form| *form == segment.form);
            if let Some(rows) = place.and_then(|place| forms.get_mut(place)) {
                *rows += u64::from(segment.rows);
            }
        }
        ColumnStat {
            name: name.to_owned(),
            params: facts.params,
            ring: None,
            key_id: self.key_id,
            rows: header.rows(),
            encoding: facts.encoding,
            noise: facts.noise,
            computed: facts.computed,
            bytes,
            forms,
            pieces: header.segments().len(),
            job: self.job,
        }
    }
}

impl StoredColumn {
    /// What the drive has of it.
    #[must_use]
    pub fn stat(&self) -> ColumnStat {
        self.head.stat(&self.name, self.blob.size)
    }

    /// The segments of a range of rows.
    pub(super) fn slice(&self, rows: Range<u64>) -> Result<Vec<Segment>, SessionError> {
        let count = self.head.header.rows();
        if rows.is_empty() || rows.end > count {
            return Err(of(&self.name)(ColumnError::Rows { rows, of: count }));
        }
        let slice = self.head.header.slice(rows);
        slice.map_err(|error| of(&self.name)(error.into()))
    }

    /// The chunks of these segments behind so much room, each read once. They are those that were bound, if the column is bound; nobody
    /// has checked their checksums.
    async fn chunks(
        &self,
        segments: &[Segment],
        room: usize,
        progress: &Progress,
    ) -> Result<Chunks, SessionError> {
        let params = self.head.facts.params;
        let mut wanted: BTreeMap<u64, u64> = BTreeMap::new();
        for segment in segments {
            let len = segment.chunk_len(params);
            let len = len.map_err(|error| of(&self.name)(error.into()))?;
            wanted.insert(segment.offset, len);
        }
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut places = BTreeMap::new();
        let mut first = room;
        for (offset, len) in wanted {
            let start = BASE.saturating_add(offset);
            let end = start.saturating_add(len);
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
            places.insert(offset, first..first + len as usize);
            first += len as usize;
        }
        let mut bytes = vec![0; room];
        let read = self.reader.read_ranges(&runs, &mut bytes, progress);
        read.await?;
        let chunks = Chunks { bytes, places };
        if self.is_bound {
            let bound = self.head.bound.as_ref();
            for offset in chunks.places.keys() {
                let chunk = chunks.get(*offset).unwrap_or_default();
                Bound::check_chunk(bound, *offset, chunk).map_err(of(&self.name))?;
            }
        }
        Ok(chunks)
    }

    /// Rows of the column, of which the drive reads those chunks that hold them.
    ///
    /// # Errors
    /// [`ColumnError::Rows`], [`ColumnError::Damaged`] for a chunk of another checksum, [`ColumnError::Untrusted`] for another than was put, those of the
    /// store.
    pub async fn rows(
        &self,
        rows: Range<u64>,
        progress: &Progress,
    ) -> Result<EncryptedRows, SessionError> {
        let count = rows.end.saturating_sub(rows.start);
        let segments = self.slice(rows)?;
        // Chunks that stay as they are need not be moved.
        let whole = segments.iter().all(|segment| {
            segment.form != ColumnForm::Expanded || segment.rows == segment.chunk_rows
        });
        let room = match whole {
            true => ColumnHeader::byte_len_for(segments.len()) as usize,
            false => 0,
        };
        let chunks = self.chunks(&segments, room, progress).await?;
        let params = self.head.facts.params;
        let bytes = if whole {
            whole_column(params, segments, chunks)
        } else {
            let pieces = segments.iter().map(|segment| {
                let chunk = chunks.get(segment.offset).unwrap_or_default();
                cut(params, *segment, chunk)
            });
            let pieces = pieces.collect::<Result<Vec<_>, _>>();
            pieces.and_then(|pieces| assemble(params, pieces))
        };
        Ok(EncryptedRows {
            facts: self.head.facts,
            bytes: bytes.map_err(|error| of(&self.name)(damaged(error)))?,
            count,
            origin: None,
        })
    }
}

/// Bytes of the rows of segments as [`StoredColumn::rows`] gives them: chunks without rows of their own come whole.
#[cfg(feature = "image")]
pub(super) fn bytes_of_segments(params: &ParamSet, segments: &[Segment]) -> u64 {
    let mut known = BTreeSet::new();
    let chunks = segments.iter().map(|segment| {
        if segment.form == ColumnForm::Expanded {
            return u64::from(segment.rows) * params.lwe_bytes() as u64;
        }
        if !known.insert(segment.offset) {
            return 0;
        }
        chunk_bytes(params, segment.form, segment.chunk_rows as usize).unwrap_or(0) as u64
    });
    chunks.sum::<u64>() + ColumnHeader::byte_len_for(segments.len())
}

/// A column of chunks that were read behind room for its header.
fn whole_column(
    params: &ParamSet,
    mut segments: Vec<Segment>,
    chunks: Chunks,
) -> Result<Vec<u8>, TfheError> {
    let mut former: Option<Segment> = None;
    for segment in &mut segments {
        let stored = *segment;
        if !former.is_some_and(|former| former.shares_chunk(&stored)) {
            let chunk = chunks.get(stored.offset).unwrap_or_default();
            stored.check_chunk(params, chunk)?;
        }
        let place = chunks.places.get(&stored.offset);
        segment.offset = place.map_or(0, |place| place.start as u64);
        former = Some(stored);
    }
    put_header(params, segments, chunks.bytes)
}

/// The rows of a segment without the others of its chunk, where each row has words of its own and the chunk its checksum.
fn cut<'a>(
    params: &ParamSet,
    segment: Segment,
    chunk: &'a [u8],
) -> Result<(Segment, &'a [u8]), TfheError> {
    if segment.form != ColumnForm::Expanded {
        return Ok((segment, chunk));
    }
    segment.check_chunk(params, chunk)?;
    let rows = segment.rows_in_chunk();
    let bytes = rows.start * params.lwe_bytes()..rows.end * params.lwe_bytes();
    let own = chunk.get(bytes).unwrap_or_default();
    let segment = Segment::of_chunk(params, segment.form, rows.len(), segment.offset, own)?;
    Ok((segment, own))
}

/// A change of a column: its head as it will be, and the chunks that it gets.
pub(super) struct Change {
    pub(super) head: Head,
    /// Chunks with their places, in bytes from [`BASE`].
    chunks: Vec<(u64, Vec<u8>)>,
    end: u64,
    /// Of the rows of a run: what a ledger is to have of it.
    pub(super) origin: Option<Origin>,
}

impl Change {
    /// A change of this column, to which nothing is changed yet.
    pub(super) fn of(column: &StoredColumn) -> Change {
        Change {
            head: column.head.clone(),
            chunks: Vec::new(),
            end: column.blob.size.saturating_sub(BASE),
            origin: None,
        }
    }

    /// Enters how far the run has come that makes the change.
    #[cfg(feature = "image")]
    pub(super) fn run(&mut self, run: Run) {
        self.head.job = Some(run.record);
        self.origin = run.origin;
    }

    /// The segments of rows, whose chunks come behind all others.
    fn place(&mut self, rows: &EncryptedRows) -> Result<Vec<Segment>, ColumnError> {
        let column = rows.column()?;
        let mut places = BTreeMap::new();
        let mut placed = Vec::new();
        for (number, segment) in column.header().segments().iter().enumerate() {
            let offset = match places.get(&segment.offset) {
                Some(offset) => *offset,
                None => {
                    let chunk = column.chunk_bytes(number)?;
                    let offset = self.end;
                    self.end += chunk.len() as u64;
                    self.chunks.push((offset, chunk.to_vec()));
                    places.insert(segment.offset, offset);
                    offset
                }
            };
            placed.push(Segment { offset, ..*segment });
        }
        Ok(placed)
    }

    /// Puts other rows, any number of them, in the place of some.
    pub(super) fn replace(
        &mut self,
        rows: Range<u64>,
        with: &EncryptedRows,
    ) -> Result<(), ColumnError> {
        self.head.facts.check_fits(&with.facts)?;
        let of = self.head.header.rows();
        if rows.start > rows.end || rows.end > of {
            return Err(ColumnError::Rows { rows, of });
        }
        let segments = self.place(with)?;
        self.head.header.replace(rows, segments)?;
        self.head.facts = self.head.facts.with(&with.facts);
        self.head.check()
    }
}

/// Where a column is written as a whole.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    /// A blob that comes into being with it.
    New,
    /// A blob, whatever it holds.
    Any(BlobId),
    /// A blob that still is of this version.
    Version(BlobId, u64),
}

pub(super) fn blob_name(name: &str) -> Result<String, SessionError> {
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    if fits {
        Ok(format!("{PREFIX}{name}"))
    } else {
        Err(of(name)(ColumnError::Name))
    }
}

impl Session {
    /// The blob of a column.
    pub(super) fn column_blob(&self, name: &str) -> Result<Option<BlobStat>, SessionError> {
        let blob_name = blob_name(name)?;
        let mut blobs = self.store().list().into_iter();
        Ok(blobs.find(|blob| blob.name == blob_name && blob.written && blob.sc.is_none()))
    }

    /// The blob of a column that is there.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], [`ColumnError::Name`].
    pub fn find_column(&self, name: &str) -> Result<BlobStat, SessionError> {
        let blob = self.column_blob(name)?;
        blob.ok_or_else(|| of(name)(ColumnError::Missing))
    }

    /// A column as it stands.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], [`ColumnError::Damaged`], [`ColumnError::Untrusted`] for another column than the ledger expects, where
    /// there is one, those of the store.
    pub async fn column(&self, name: &str) -> Result<StoredColumn, SessionError> {
        let column = self.column_as_stored(name).await?;
        let head = &column.head;
        self.check_column(name, head.bound.as_ref(), &head.described()?)?;
        Ok(column)
    }

    /// The same, whatever the ledger says of it.
    async fn column_as_stored(&self, name: &str) -> Result<StoredColumn, SessionError> {
        let blob = self.find_column(name)?;
        let reader = self.store().reader(blob.id)?;
        // The reader's version counts from here on.
        let blob = reader.stat();
        if blob.size < Head::FIXED as u64 {
            return Err(of(name)(damaged(format!("it has {} bytes", blob.size))));
        }
        let mut bytes = reader.read_at(0, blob.size.min(HEAD) as usize).await?;
        if super::head::ring_of_head(&bytes).is_some() {
            let samples = "a column of samples";
            return Err(of(name)(mismatch("its form", samples, "a ring column")));
        }
        let (len, most) = Head::byte_len_of(&bytes).map_err(of(name))?;
        if len > blob.size {
            let reason = format!("a head of {len} bytes in {}", blob.size);
            return Err(of(name)(damaged(reason)));
        }
        let most = most.min(blob.size);
        if most > bytes.len() as u64 {
            bytes = reader.read_at(0, most as usize).await?;
        }
        let head = Head::from_bytes(&bytes).map_err(of(name))?;
        Ok(StoredColumn {
            name: name.to_owned(),
            head,
            is_bound: self.has_ledger(),
            blob,
            reader,
        })
    }

    /// The columns of the drive by their names, with the error of one that cannot be read.
    pub async fn columns(&self) -> BTreeMap<String, Result<ColumnStat, SessionError>> {
        let mut columns = BTreeMap::new();
        for blob in self.store().list() {
            if let Some(name) = blob.name.strip_prefix(PREFIX).filter(|_| blob.written) {
                let stat = match self.ring_column(name).await {
                    Ok(Some(column)) => Ok(column.stat()),
                    Ok(None) => self.column(name).await.map(|column| column.stat()),
                    Err(error) => Err(error),
                };
                columns.insert(name.to_owned(), stat);
            }
        }
        columns
    }

    /// A column of a key id that belongs to another client key than what has this tag. Its own statement counts, whatever a ledger says of it.
    ///
    /// # Errors
    /// Those of a column that cannot be read, but for one that is damaged or gone: nobody computes with such a one.
    pub(crate) async fn column_of_other_key(
        &self,
        key_id: u32,
        tag: KeyTagStart,
    ) -> Result<Option<String>, SessionError> {
        for blob in self.store().list() {
            let Some(name) = blob.name.strip_prefix(PREFIX).filter(|_| blob.written) else {
                continue;
            };
            match self.key_of_column(name).await {
                Ok((id, Some(other))) if id == key_id && other != tag => {
                    return Ok(Some(name.to_owned()));
                }
                Ok(_) => {}
                Err(SessionError::Column {
                    source: ColumnError::Missing | ColumnError::Damaged(_),
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The key id of a column, and the start of its client key's tag where it states one.
    async fn key_of_column(&self, name: &str) -> Result<(u32, Option<KeyTagStart>), SessionError> {
        if let Some(column) = self.ring_column_as_stored(name).await? {
            return Ok(column.key());
        }
        let head = self.column_as_stored(name).await?.head;
        Ok((head.key_id, head.facts.tag))
    }

    /// Makes a column of rows, for the keys of a key id.
    ///
    /// # Errors
    /// [`ColumnError::Exists`], [`ColumnError::Name`], those of the store.
    pub async fn create_column(
        &self,
        name: &str,
        key_id: u32,
        rows: &EncryptedRows,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        self.new_column((name, None), (key_id, None), rows, progress)
            .await
    }

    /// The same, by a run, and perhaps in the place of the blob that has the name.
    pub(super) async fn new_column(
        &self,
        (name, former): (&str, Option<BlobId>),
        (key_id, run): (u32, Option<Run>),
        rows: &EncryptedRows,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        // A key id of no register would be found out by whoever reads it.
        VrNumber::program(key_id)?;
        if former.is_none() && self.column_blob(name)?.is_some() {
            return Err(of(name)(ColumnError::Exists));
        }
        let column = rows.column().map_err(|error| of(name)(error.into()))?;
        let head = Head {
            facts: rows.facts,
            key_id,
            job: run.as_ref().map(|run| run.record),
            header: column.header().clone(),
            bound: None,
        };
        let mut chunks = Vec::new();
        for (number, segment) in head.header.segments().iter().enumerate() {
            let chunk = column.chunk_bytes(number);
            let chunk = chunk.map_err(|error| of(name)(error.into()))?;
            chunks.push((*segment, chunk));
        }
        let place = former.map_or(Destination::New, Destination::Any);
        let origin = run.and_then(|run| run.origin);
        self.write_whole((name, origin), place, head, chunks, progress)
            .await
    }

    /// Writes a column from its beginning, with its chunks in the order of their segments and room for more of these.
    async fn write_whole(
        &self,
        (name, origin): (&str, Option<Origin>),
        place: Destination,
        mut head: Head,
        segments: Vec<(Segment, &[u8])>,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        head.check().map_err(of(name))?;
        let params = head.facts.params;
        let room = head.room();
        let mut end = room - BASE;
        let mut placed: Vec<Segment> = Vec::new();
        let mut chunks: Vec<(u64, &[u8])> = Vec::new();
        let mut places: BTreeMap<u64, u64> = BTreeMap::new();
        for (segment, chunk) in segments {
            let place = *places.entry(segment.offset).or_insert(end);
            if place == end {
                end += chunk.len() as u64;
                chunks.push((place, chunk));
            }
            placed.push(Segment {
                offset: place,
                ..segment
            });
        }
        let header = ColumnHeader::new(params, placed);
        head.header = header.map_err(|error| of(name)(error.into()))?;
        let digests = || Bound::chunks_with(None, head.places(), chunks.iter().copied());
        let former = head.bound.as_ref();
        let bound = self.bind_column(name, former, &head.described()?, digests, origin)?;
        let (bound, entry) = bound.unzip();
        head.bound = bound;
        let mut bytes = head.to_bytes()?;
        bytes.resize(room as usize, 0);
        let size = BASE + end;
        let mut pieces: Vec<&[u8]> = vec![&bytes];
        pieces.extend(chunks.into_iter().map(|(_, chunk)| chunk));
        let blob = self.write_blob(name, place, size, pieces, progress).await?;
        self.enter_column(name, entry)?;
        let head = Head::from_bytes(&bytes).map_err(of(name))?;
        Ok(head.stat(name, blob.size))
    }

    /// Writes the blob of a column as a whole, piece by piece.
    pub(super) async fn write_blob<P: AsRef<[u8]>>(
        &self,
        name: &str,
        place: Destination,
        size: u64,
        pieces: Vec<P>,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        let store = self.store();
        let writer = match place {
            Destination::Version(id, sequence) => {
                store.writer(id, size).await?.in_place_of(sequence)
            }
            Destination::Any(id) => store.writer(id, size).await?,
            Destination::New => {
                let blob = NewBlob {
                    name: blob_name(name)?,
                    sc: None,
                };
                store.new_writer(blob, size).await?.alone()
            }
        };
        let mut writer = writer.with_progress(progress.clone());
        for piece in pieces {
            writer.write(piece.as_ref()).await?;
        }
        match writer.commit().await {
            Err(BlobError::NameTaken(_)) => Err(of(name)(ColumnError::Exists)),
            committed => Ok(committed?),
        }
    }

    /// Makes a change of a column durable, if the column is still as it was when the change began.
    pub(super) async fn commit_change(
        &self,
        column: &StoredColumn,
        change: Change,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        let Change {
            mut head,
            chunks,
            end,
            origin,
        } = change;
        let chunk_bytes = |head: &Head| -> u64 {
            let lens = head.chunks();
            let lens = lens.iter().map(|chunk| chunk.chunk_len(head.facts.params));
            lens.map(|len| len.unwrap_or(0)).sum()
        };
        let live = chunk_bytes(&head);
        let spare = end.saturating_sub(head.first_chunk().saturating_sub(BASE) + live);
        let bound = self.has_ledger().then(|| head.chunks().len());
        if head.byte_len(bound) > head.first_chunk() || spare > SPARE + live {
            let new: BTreeMap<u64, Vec<u8>> = chunks.into_iter().collect();
            let old: Vec<Segment> = head.chunks();
            let old: Vec<Segment> = old
                .into_iter()
                .filter(|segment| !new.contains_key(&segment.offset))
                .collect();
            let kept = column.chunks(&old, 0, progress).await?;
            for segment in old {
                let chunk = kept.get(segment.offset).unwrap_or_default();
                let checked = segment.check_chunk(head.facts.params, chunk);
                checked.map_err(|error| of(&column.name)(damaged(error)))?;
            }
            let segments = head.header.segments().iter();
            let segments = segments.map(|segment| {
                let chunk = new.get(&segment.offset).map(Vec::as_slice);
                let chunk = chunk.or_else(|| kept.get(segment.offset));
                (*segment, chunk.unwrap_or_default())
            });
            let segments = segments.collect();
            let place = Destination::Version(column.blob.id, column.blob.sequence);
            return self
                .write_whole((&column.name, origin), place, head, segments, progress)
                .await;
        }
        let former = head.bound.as_ref();
        let digests = || {
            let new = chunks
                .iter()
                .map(|(place, chunk)| (*place, chunk.as_slice()));
            Bound::chunks_with(former, head.places(), new)
        };
        let described = head.described()?;
        let bound = self.bind_column(&column.name, former, &described, digests, origin)?;
        let (bound, entry) = bound.unzip();
        head.bound = bound;
        let bytes = head.to_bytes()?;
        let head = Head::from_bytes(&bytes).map_err(of(&column.name))?;
        let mut pieces = vec![(0, bytes)];
        let chunks = chunks.into_iter();
        pieces.extend(chunks.map(|(offset, chunk)| (BASE + offset, chunk)));
        let (id, expected) = (column.blob.id, column.blob.sequence);
        let store = self.store();
        let blob = store
            .update(id, expected, BASE + end, pieces, progress)
            .await?;
        self.enter_column(&column.name, entry)?;
        Ok(head.stat(&column.name, blob.size))
    }

    /// Appends rows to a column: all of them or none. A run that fills the column does not go on.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], [`ColumnError::Mismatch`] for rows of another parameter set or encoding, [`TfheError::KeyMismatch`],
    /// [`BlobError::Changed`] where somebody else changed the column meanwhile, those of the store.
    ///
    /// [`TfheError::KeyMismatch`]: toroid_tfhe::TfheError::KeyMismatch
    pub async fn append_rows(
        &self,
        name: &str,
        rows: &EncryptedRows,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        let column = self.column(name).await?;
        let end = column.head.header.rows();
        let mut change = Change::of(&column);
        change.replace(end..end, rows).map_err(of(name))?;
        change.head.job = None;
        self.commit_change(&column, change, progress).await
    }

    /// Puts rows in the place of as many others, from row `first` on: all of them or none. A run that fills the column does not go on.
    ///
    /// # Errors
    /// As [`Session::append_rows`]; [`ColumnError::Rows`] where the column has not so many.
    pub async fn replace_rows(
        &self,
        name: &str,
        first: u64,
        rows: &EncryptedRows,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        let column = self.column(name).await?;
        let mut change = Change::of(&column);
        let range = first..first.saturating_add(rows.len());
        change.replace(range, rows).map_err(of(name))?;
        change.head.job = None;
        self.commit_change(&column, change, progress).await
    }

    /// Rows of a column ([`StoredColumn::rows`]); all of them if no range is given.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], and those of [`StoredColumn::rows`].
    pub async fn read_rows(
        &self,
        name: &str,
        rows: Option<Range<u64>>,
        progress: &Progress,
    ) -> Result<EncryptedRows, SessionError> {
        let column = self.column(name).await?;
        let rows = rows.unwrap_or(0..column.head.header.rows());
        column.rows(rows, progress).await
    }

    /// Deletes a column.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], those of the store.
    pub async fn delete_column(&self, name: &str) -> Result<(), SessionError> {
        let blob = self.find_column(name)?;
        self.store().delete_blob(blob.id).await?;
        let deleted = self.ledger();
        let deleted = deleted.and_then(|ledger| {
            let subject = Subject::Column(name.to_owned());
            ledger.deleted(self.store().uuid(), subject)
        });
        self.enter_column(name, deleted)
    }
}
