//! Ring columns in the blob store: numbers in whole ciphertexts of a ring, tens of thousands in each.
//!
//! The blob of a ring column:
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..64 | secure computing metadata: the number of the ring's set in place of a parameter set, key id, encoding, noise, key tag of the client key |
//! | 64..128 | the [`JobRecord`] of the run that makes the column; zeroes without one |
//! | 128..144 | `RDIR`, version 1 (u16), parameter set of the client key (u16), number of ciphertexts (u32), CRC-32C of these 12 bytes and all entries |
//! | 144.. | an entry of 24 bytes for each ciphertext: its offset in the blob (u64), its bytes, its rows, its CRC-32C, log2 of its pieces (u32 each) |
//! | behind them | what binds the column to a client key ([`Bound`]) |
//! | 65536.. | the ciphertexts ([`toroid_rns::stored`]), in the order of their rows |
//!
//! Rows that are appended come as ciphertexts of their own: a mask is never used for other rows than those that it was made for.

#[cfg(feature = "image")]
mod map;
#[cfg(feature = "image")]
pub(super) use map::RingJob;

use std::ops::Range;

use toroid_isa::metadata::{KeyTagStart, ScMetadata};
use toroid_isa::{VrNumber, VrType};
use toroid_rns::SecretKey;
use toroid_rns::format::FormatError;
use toroid_rns::ring_set::RingSet;
use toroid_rns::stored::{Layout, StoredColumn as Ciphertext};
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::StatedNoise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::{ClientKey, TfheError};

use super::binding::{Bound, Described};
use super::head::{Run, damaged, ring_of_head, set_of};
use super::rows::{check_decryption, check_tags, log2_failure, noisier};
use super::stored::Destination;
use super::{ColumnError, ColumnStat, JobRecord, mismatch, of};
use crate::blob::{BlobError, BlobId, BlobReader, BlobStat};
use crate::ledger::Entry;
use crate::session::{Session, SessionError, tag_start};

const MAGIC: [u8; 4] = *b"RDIR";
const VERSION: u16 = 1;
/// Where the directory begins.
const DIRECTORY: usize = ScMetadata::SIZE + JobRecord::SIZE;
/// Where its entries begin.
const ENTRIES: usize = DIRECTORY + 16;
const ENTRY_BYTES: usize = 24;
/// Where the ciphertexts begin.
const HEAD_BYTES: usize = 64 << 10;
/// The most ciphertexts of a column that is not bound.
const MAX_PIECES: usize = (HEAD_BYTES - ENTRIES) / ENTRY_BYTES;

impl From<FormatError> for ColumnError {
    fn from(error: FormatError) -> ColumnError {
        ColumnError::Damaged(error.to_string())
    }
}

/// What all rows of a ring column have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RingRowFacts {
    set: &'static RingSet,
    /// The parameter set of the client key.
    params: &'static ParamSet,
    encoding: Encoding,
    /// Of the noisiest row.
    noise: StatedNoise,
    computed: bool,
    tag: Option<KeyTagStart>,
}

impl RingRowFacts {
    /// What metadata says of a column whose client key has this set.
    fn of(sc: &ScMetadata, params: &'static ParamSet) -> Result<RingRowFacts, ColumnError> {
        let set = RingSet::by_id(sc.params());
        let set = set.ok_or_else(|| damaged(format!("ring set {} is unknown", sc.params())))?;
        let encoding = Encoding::new(sc.message_bits().into(), sc.signed())?;
        if encoding.bits() > set.bits() {
            let (bits, name) = (encoding.bits(), set.name);
            return Err(damaged(format!("messages of {bits} bits in {name}")));
        }
        Ok(RingRowFacts {
            set,
            params,
            encoding,
            noise: StatedNoise {
                log2_variance: sc.log2_variance().map(f64::from),
                log2_failure: sc.log2_p_fail().map(f64::from),
            },
            computed: sc.computed(),
            tag: sc.key_tag(),
        })
    }

    fn metadata(&self, vr: VrNumber, size: u64) -> Result<ScMetadata, SessionError> {
        let bits = self.encoding.bits() as u8;
        Ok(ScMetadata::new(vr, self.set.id, size)?
            .with_message(bits, self.encoding.is_signed())?
            .with_noise(self.noise.log2_variance, self.noise.log2_failure)
            .with_computed(self.computed)
            .with_column(true)
            .with_key_tag(self.tag.unwrap_or_default()))
    }

    /// Refuses rows of another ring, set or client key.
    fn check_same(&self, other: &RingRowFacts) -> Result<(), ColumnError> {
        if self.set != other.set {
            return Err(mismatch("the ring", self.set.name, other.set.name));
        }
        let (own, theirs) = (self.params, other.params);
        if own.id != theirs.id {
            return Err(mismatch("the parameter set", own.name, theirs.name));
        }
        check_tags(self.tag, other.tag)
    }

    /// What holds of both.
    fn with(self, other: &RingRowFacts) -> RingRowFacts {
        RingRowFacts {
            noise: noisier(self.noise, other.noise),
            computed: self.computed || other.computed,
            tag: self.tag.or(other.tag),
            ..self
        }
    }
}

/// Rows of a ring column, encrypted: on their way to a drive, or back.
#[derive(Clone, Debug)]
pub struct RingRows {
    facts: RingRowFacts,
    /// Ciphertexts, and which of their rows are meant.
    pieces: Vec<(Ciphertext, Range<usize>)>,
}

impl RingRows {
    /// Encrypts numbers of at most the ring's bits under the ring secrets that follow from a client key, as many in a ciphertext as there is room for.
    ///
    /// # Errors
    /// [`TfheError::MessageRange`] for a number that the encoding does not have, [`TfheError::ChunkRows`] for no numbers, [`TfheError::MessageTooWide`],
    /// [`TfheError::Cancelled`].
    pub fn encrypt(
        client: &ClientKey,
        (set, encoding): (&'static RingSet, Encoding),
        numbers: &[i64],
        progress: &Progress,
    ) -> Result<RingRows, SessionError> {
        let params = set_of(client.params().id).map_err(of("ring"))?;
        let (bits, range) = (encoding.bits(), encoding.messages());
        if bits > set.bits() {
            let found = set.bits();
            return Err(TfheError::MessageTooWide {
                bits,
                found,
                params: set.name,
            }
            .into());
        }
        if numbers.is_empty() {
            return Err(of("ring")(mismatch("the number of rows", "at least 1", 0)));
        }
        if let Some(row) = numbers.iter().position(|number| !range.contains(number)) {
            // The number itself is a secret.
            let found = format!("one beyond it in row {row}");
            let range = format!("{} to {}", range.start, range.end - 1);
            return Err(of("ring")(mismatch("a number", range, found)));
        }
        let secret = SecretKey::derive(set, client).map_err(|error| own(error.into()))?;
        let mut rng = Csprng::from_os()?;
        let (mut pieces, mut done) = (Vec::new(), 0);
        for numbers in numbers.chunks(set.rows()) {
            progress.check().map_err(|_| TfheError::Cancelled)?;
            let messages = numbers.iter().map(|number| {
                let message = number.rem_euclid(1 << bits);
                message as u32
            });
            let messages = zeroize::Zeroizing::new(messages.collect::<Vec<u32>>());
            let place = (Layout::plain(bits), set.seeded_width);
            let piece = Ciphertext::encrypt_in(&secret, place, &messages, &mut rng).map_err(own)?;
            pieces.push((piece, 0..numbers.len()));
            done += numbers.len() as u64;
            progress.report("encrypt", done, done);
        }
        let variance = pieces
            .iter()
            .filter_map(|(piece, _)| piece.statement().log2_variance)
            .fold(f32::NEG_INFINITY, f32::max);
        Ok(RingRows {
            facts: RingRowFacts {
                set,
                params,
                encoding,
                noise: StatedNoise {
                    log2_variance: Some(variance.into()),
                    log2_failure: None,
                },
                computed: false,
                tag: Some(tag_start(client.tag())),
            },
            pieces,
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|(_, rows)| rows.len() as u64).sum()
    }

    /// Never: a column has rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// log2 of the probability that decrypting a row gives a wrong number; 0 where its noise is not stated.
    #[must_use]
    pub fn log2_failure(&self) -> f64 {
        let RingRowFacts {
            set,
            encoding,
            noise,
            ..
        } = self.facts;
        log2_failure(Some(set), Some(encoding), noise)
    }

    /// Decrypts all rows up to a failure probability of a row, given by its base-2 logarithm: 0 takes anything. Numbers are those
    /// of the encoding: a sum wraps modulo 2^bits.
    ///
    /// # Errors
    /// [`TfheError::KeyMismatch`] for rows of another client key, [`TfheError::FailureProbability`], [`TfheError::Cancelled`].
    pub fn decrypt_above(
        &self,
        client: &ClientKey,
        max_log2_failure: f64,
        progress: &Progress,
    ) -> Result<Vec<i64>, SessionError> {
        let RingRowFacts { set, encoding, .. } = self.facts;
        let log2 = self.log2_failure();
        check_decryption(client, self.facts.tag, log2, max_log2_failure)?;
        let secret = SecretKey::derive(set, client).map_err(|error| own(error.into()))?;
        let (bits, first) = (encoding.bits(), encoding.messages().start);
        let mut numbers = Vec::with_capacity(self.len() as usize);
        for (done, (piece, rows)) in (1..).zip(&self.pieces) {
            progress.check().map_err(|_| TfheError::Cancelled)?;
            // Before the tag, which other parameters make another one.
            set.check_column(piece).map_err(own)?;
            if !piece.layout().is_plain(bits) {
                let reason = "a ciphertext has another layout than the column".to_owned();
                return Err(of("ring")(ColumnError::Damaged(reason)));
            }
            if piece.tag() != secret.tag() {
                return Err(TfheError::KeyMismatch("the column").into());
            }
            let messages = zeroize::Zeroizing::new(piece.decrypt(&secret).map_err(own)?);
            let messages = messages.get(rows.clone()).unwrap_or_default();
            let number =
                |message: &u32| (i64::from(*message) - first).rem_euclid(1 << bits) + first;
            numbers.extend(messages.iter().map(number));
            progress.report("decrypt", done, self.pieces.len() as u64);
        }
        Ok(numbers)
    }
}

/// An error of the ring layer on numbers here.
fn own(error: FormatError) -> SessionError {
    TfheError::Format(error.to_string()).into()
}

/// Where a ciphertext stands.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    offset: u64,
    bytes: u32,
    rows: u32,
    crc32c: u32,
    /// log2 of the pieces in which its rows stand, those of all ciphertexts of a column.
    log2_pieces: u32,
}

/// The head of a ring column.
#[derive(Clone, Debug)]
struct RingHead {
    facts: RingRowFacts,
    key_id: u32,
    job: Option<JobRecord>,
    places: Vec<Place>,
    /// What binds it to a client key; nobody has checked it yet.
    bound: Option<Bound>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

impl RingHead {
    fn rows(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.rows)).sum()
    }

    /// log2 of the pieces in which the rows of each ciphertext stand.
    fn log2_pieces(&self) -> u32 {
        self.places.first().map_or(0, |place| place.log2_pieces)
    }

    fn end(&self) -> u64 {
        let ends = self
            .places
            .iter()
            .map(|place| place.offset + u64::from(place.bytes));
        ends.max().unwrap_or(HEAD_BYTES as u64)
    }

    fn from_bytes(bytes: &[u8], size: u64) -> Result<RingHead, ColumnError> {
        let short = || damaged("its head is too short");
        let (sc, rest) = bytes.split_at_checked(ScMetadata::SIZE).ok_or_else(short)?;
        let job = rest
            .first_chunk::<{ JobRecord::SIZE }>()
            .ok_or_else(short)?;
        let sc = ScMetadata::from_bytes(sc).map_err(damaged)?;
        let sc = sc.ok_or_else(|| damaged("it does not begin with secure computing metadata"))?;
        let word = |at: usize| u32_at(bytes, at).ok_or_else(short);
        if bytes.get(DIRECTORY..DIRECTORY + 4) != Some(&MAGIC) {
            return Err(damaged("its directory does not begin with RDIR"));
        }
        let versions = word(DIRECTORY + 4)?;
        if versions as u16 != VERSION {
            return Err(damaged(format!(
                "its directory has version {}",
                versions as u16
            )));
        }
        let params = set_of((versions >> 16) as u16)?;
        let count = word(DIRECTORY + 8)? as usize;
        if count == 0 || count > MAX_PIECES {
            return Err(damaged(format!("a directory of {count} ciphertexts")));
        }
        let end = ENTRIES + count * ENTRY_BYTES;
        let entries = bytes.get(ENTRIES..end).ok_or_else(short)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[DIRECTORY..DIRECTORY + 12]), entries);
        if word(DIRECTORY + 12)? != crc {
            return Err(damaged("its directory has another checksum"));
        }
        let facts = RingRowFacts::of(&sc, params)?;
        let mut places = Vec::with_capacity(count);
        for at in (ENTRIES..end).step_by(ENTRY_BYTES) {
            let offset = u64::from(word(at)?) | u64::from(word(at + 4)?) << 32;
            let place = Place {
                offset,
                bytes: word(at + 8)?,
                rows: word(at + 12)?,
                crc32c: word(at + 16)?,
                log2_pieces: word(at + 20)?,
            };
            let ends = offset.checked_add(place.bytes.into());
            let fits = offset >= HEAD_BYTES as u64 && ends.is_some_and(|end| end <= size);
            let rows = 1..=facts.set.rows() as u64;
            let log2_pieces = places
                .first()
                .map_or(place.log2_pieces, |first: &Place| first.log2_pieces);
            let stands =
                place.log2_pieces == log2_pieces && log2_pieces <= facts.set.rows().ilog2();
            if !fits || !rows.contains(&place.rows.into()) || !stands {
                return Err(damaged("its directory names a ciphertext that cannot be"));
            }
            places.push(place);
        }
        let behind = bytes.get(end..HEAD_BYTES.min(bytes.len()));
        let offsets = places.iter().map(|place| place.offset);
        Ok(RingHead {
            facts,
            key_id: sc.vr().key_id(),
            job: JobRecord::from_bytes(job)?,
            bound: Bound::from_bytes(behind.unwrap_or_default(), offsets),
            places,
        })
    }

    /// What is said of the column as a whole.
    fn metadata(&self) -> Result<ScMetadata, SessionError> {
        let vr = VrNumber::new(VrType::LweCor, self.key_id, 0)?;
        let size = self.rows().clamp(1, ScMetadata::MAX_OBJECT);
        self.facts.metadata(vr, size)
    }

    /// What is bound of it.
    fn described(&self) -> Result<Described, SessionError> {
        let params = self.facts.params.id.into();
        let pieces = self.places.iter().map(|place| {
            let words = [place.bytes, place.rows, params, place.log2_pieces];
            (place.offset, words)
        });
        Ok(Described {
            sc: self.metadata()?,
            job: JobRecord::bytes_of(self.job).to_vec(),
            rows: self.rows(),
            pieces: pieces.collect(),
        })
    }

    fn to_bytes(&self) -> Result<Vec<u8>, SessionError> {
        let mut bytes = self.metadata()?.to_bytes().to_vec();
        bytes.extend(JobRecord::bytes_of(self.job));
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.facts.params.id.to_le_bytes());
        bytes.extend((self.places.len() as u32).to_le_bytes());
        let mut entries = Vec::with_capacity(self.places.len() * ENTRY_BYTES);
        for place in &self.places {
            entries.extend(place.offset.to_le_bytes());
            for word in [place.bytes, place.rows, place.crc32c, place.log2_pieces] {
                entries.extend(word.to_le_bytes());
            }
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[DIRECTORY..]), &entries);
        bytes.extend(crc.to_le_bytes());
        bytes.extend(entries);
        bytes.extend(Bound::to_bytes(self.bound.as_ref()));
        Ok(bytes)
    }

    /// Places ciphertexts behind the others; gives their bytes with their offsets.
    fn place(&mut self, rows: &RingRows) -> Result<Vec<(u64, Vec<u8>)>, ColumnError> {
        self.facts.check_same(&rows.facts)?;
        if self.facts.encoding != rows.facts.encoding {
            let (own, theirs) = (self.facts.encoding, rows.facts.encoding);
            return Err(mismatch("the encoding of the rows", own, theirs));
        }
        let mut placed = Vec::new();
        for (piece, _) in &rows.pieces {
            let (own, theirs) = (self.log2_pieces(), piece.layout().log2_pieces);
            if !self.places.is_empty() && own != theirs {
                return Err(mismatch("log2 of the pieces of its rows", own, theirs));
            }
            let bytes = piece.to_bytes();
            let offset = self.end();
            self.places.push(Place {
                offset,
                bytes: bytes.len() as u32,
                rows: piece.rows() as u32,
                crc32c: crc32c::crc32c(&bytes),
                log2_pieces: theirs,
            });
            placed.push((offset, bytes));
        }
        self.facts = self.facts.with(&rows.facts);
        match self.places.len() {
            pieces if pieces > MAX_PIECES => Err(ColumnError::Pieces(pieces)),
            _ => Ok(placed),
        }
    }
}

/// A ring column as it stands in the store: what others do to it later does not show.
pub struct RingColumn {
    name: String,
    head: RingHead,
    /// Whether a ledger knows the head, so that its digests of ciphertexts count.
    is_bound: bool,
    blob: BlobStat,
    reader: BlobReader,
}

impl RingColumn {
    /// What the drive has of it.
    #[must_use]
    pub fn stat(&self) -> ColumnStat {
        let facts = self.head.facts;
        ColumnStat {
            name: self.name.clone(),
            params: facts.params,
            ring: Some(facts.set),
            key_id: self.head.key_id,
            rows: self.head.rows(),
            encoding: Some(facts.encoding),
            noise: facts.noise,
            computed: facts.computed,
            bytes: self.blob.size,
            forms: [0; 3],
            pieces: self.head.places.len(),
            job: self.head.job,
        }
    }

    /// The key id, and the start of the tag of the client key.
    pub(super) fn key(&self) -> (u32, Option<KeyTagStart>) {
        (self.head.key_id, self.head.facts.tag)
    }

    /// The bytes of a ciphertext.
    async fn piece(&self, place: &Place) -> Result<Vec<u8>, SessionError> {
        let bytes = self
            .reader
            .read_at(place.offset, place.bytes as usize)
            .await?;
        if crc32c::crc32c(&bytes) != place.crc32c {
            return Err(of(&self.name)(damaged("a ciphertext has another checksum")));
        }
        if self.is_bound {
            let bound = self.head.bound.as_ref();
            Bound::check_chunk(bound, place.offset, &bytes).map_err(of(&self.name))?;
        }
        Ok(bytes)
    }

    /// Rows of the column, of which the drive reads those ciphertexts that hold them.
    ///
    /// # Errors
    /// [`ColumnError::Rows`], [`ColumnError::Damaged`], [`ColumnError::Untrusted`], those of the store.
    pub async fn rows(
        &self,
        rows: Range<u64>,
        progress: &Progress,
    ) -> Result<RingRows, SessionError> {
        let at = of(&self.name);
        let count = self.head.rows();
        if rows.is_empty() || rows.end > count {
            return Err(at(ColumnError::Rows { rows, of: count }));
        }
        let (mut first, mut pieces) = (0, Vec::new());
        for place in &self.head.places {
            progress.check().map_err(BlobError::from)?;
            let end = first + u64::from(place.rows);
            let (from, to) = (rows.start.max(first), rows.end.min(end));
            if from < to {
                let bytes = self.piece(place).await?;
                let piece = Ciphertext::from_bytes(&bytes);
                let piece = piece.map_err(|error| of(&self.name)(error.into()))?;
                let found = (piece.rows(), piece.layout().log2_pieces);
                if found != (place.rows as usize, place.log2_pieces) {
                    return Err(of(&self.name)(damaged("a ciphertext has other rows")));
                }
                pieces.push((piece, (from - first) as usize..(to - first) as usize));
                progress.report("read", to - rows.start, rows.end - rows.start);
            }
            first = end;
        }
        let facts = self.head.facts;
        Ok(RingRows { facts, pieces })
    }
}

impl Session {
    /// A ring column as it stands; `None` for a column of samples.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], [`ColumnError::Damaged`], [`ColumnError::Untrusted`] for another column than the ledger expects, where
    /// there is one, those of the store.
    pub async fn ring_column(&self, name: &str) -> Result<Option<RingColumn>, SessionError> {
        let column = self.ring_column_as_stored(name).await?;
        if let Some(RingColumn { head, .. }) = &column {
            self.check_column(name, head.bound.as_ref(), &head.described()?)?;
        }
        Ok(column)
    }

    /// The same, whatever the ledger says of it.
    pub(in crate::columns) async fn ring_column_as_stored(
        &self,
        name: &str,
    ) -> Result<Option<RingColumn>, SessionError> {
        let blob = self.find_column(name)?;
        let reader = self.store().reader(blob.id)?;
        // The reader's version counts from here on.
        let blob = reader.stat();
        let len = blob.size.min(HEAD_BYTES as u64) as usize;
        let bytes = reader.read_at(0, len).await?;
        if ring_of_head(&bytes).is_none() {
            return Ok(None);
        }
        let head = RingHead::from_bytes(&bytes, blob.size).map_err(of(name))?;
        Ok(Some(RingColumn {
            name: name.to_owned(),
            head,
            is_bound: self.has_ledger(),
            blob,
            reader,
        }))
    }

    /// Makes a ring column of rows, for the keys of a key id.
    ///
    /// # Errors
    /// [`ColumnError::Exists`], [`ColumnError::Name`], those of the store.
    pub async fn create_ring_column(
        &self,
        name: &str,
        key_id: u32,
        rows: &RingRows,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        self.new_ring_column((name, None), (key_id, None), rows, progress)
            .await
    }

    /// The same, by a run, and perhaps in the place of the blob that has the name.
    async fn new_ring_column(
        &self,
        (name, former): (&str, Option<BlobId>),
        (key_id, run): (u32, Option<Run>),
        rows: &RingRows,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        if former.is_none() && self.column_blob(name)?.is_some() {
            return Err(of(name)(ColumnError::Exists));
        }
        let mut head = RingHead {
            facts: rows.facts,
            key_id,
            job: run.as_ref().map(|run| run.record),
            places: Vec::new(),
            bound: None,
        };
        let placed = head.place(rows).map_err(of(name))?;
        let entry = self.bind_ring_column(name, &mut head, &placed, run)?;
        let mut bytes = head.to_bytes()?;
        bytes.resize(HEAD_BYTES, 0);
        let mut pieces = vec![bytes];
        pieces.extend(placed.into_iter().map(|(_, piece)| piece));
        let place = former.map_or(Destination::New, Destination::Any);
        self.write_blob(name, place, head.end(), pieces, progress)
            .await?;
        self.enter_column(name, entry)?;
        self.stat_of_ring(name).await
    }

    /// Binds the column of a head that gets these ciphertexts, if there is a ledger; the entry is one to enter once the drive has them.
    fn bind_ring_column(
        &self,
        name: &str,
        head: &mut RingHead,
        new: &[(u64, Vec<u8>)],
        run: Option<Run>,
    ) -> Result<Option<Entry>, SessionError> {
        let former = head.bound.as_ref();
        let digests = || {
            let places = head.places.iter().map(|place| place.offset);
            let new = new.iter().map(|(place, bytes)| (*place, bytes.as_slice()));
            Bound::chunks_with(former, places, new)
        };
        let origin = run.and_then(|run| run.origin);
        let bound = self.bind_column(name, former, &head.described()?, digests, origin)?;
        let (bound, entry) = bound.unzip();
        head.bound = bound;
        let end = ENTRIES + head.places.len() * ENTRY_BYTES;
        let room = (HEAD_BYTES - end) as u64;
        let pieces = head.bound.is_some().then_some(head.places.len());
        match Bound::byte_len(pieces) {
            bytes if bytes > room => Err(of(name)(ColumnError::Pieces(head.places.len()))),
            _ => Ok(entry),
        }
    }

    pub(super) async fn stat_of_ring(&self, name: &str) -> Result<ColumnStat, SessionError> {
        let column = self.ring_column(name).await?;
        let column = column.ok_or_else(|| of(name)(ColumnError::Missing))?;
        Ok(column.stat())
    }

    /// Appends rows to a ring column, as ciphertexts of their own: all of them or none. A run that fills the column does not go on.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], [`ColumnError::Mismatch`] for a column of samples and rows of another ring or encoding, [`TfheError::KeyMismatch`],
    /// [`BlobError::Changed`] where somebody else changed the column meanwhile, those of the store.
    pub async fn append_ring_rows(
        &self,
        name: &str,
        rows: &RingRows,
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        let column = self.ring_column(name).await?;
        let column = column.ok_or_else(|| {
            of(name)(mismatch("its form", "a ring column", "a column of samples"))
        })?;
        self.change_ring_column(column, rows, (None, false), progress)
            .await
    }

    /// Puts rows behind those of a column, or in the place of all of them, with the record of a run.
    async fn change_ring_column(
        &self,
        column: RingColumn,
        rows: &RingRows,
        (run, replaces): (Option<Run>, bool),
        progress: &Progress,
    ) -> Result<ColumnStat, SessionError> {
        let RingColumn {
            name,
            mut head,
            blob,
            ..
        } = column;
        head.job = run.as_ref().map(|run| run.record);
        if replaces {
            head.places.clear();
        }
        let mut pieces = head.place(rows).map_err(of(&name))?;
        let entry = self.bind_ring_column(&name, &mut head, &pieces, run)?;
        pieces.insert(0, (0, head.to_bytes()?));
        let (id, expected) = (blob.id, blob.sequence);
        let store = self.store();
        store
            .update(id, expected, head.end(), pieces, progress)
            .await?;
        self.enter_column(&name, entry)?;
        self.stat_of_ring(&name).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use toroid_rns::Context;
    use toroid_rns::ring_set::TINY_RING;
    use toroid_tfhe::params::TINY_WOPBS;

    /// The set has had other primes: the column is no longer one of it, whatever its head says.
    #[test]
    fn a_column_of_another_version_of_its_ring_is_refused_by_name() {
        let mut rng = Csprng::from_seed([9; 32]);
        let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
        let place = (&TINY_RING, Encoding::new(4, false).unwrap());
        let mut rows = RingRows::encrypt(&client, place, &[1, 2, 3], &Progress::none()).unwrap();
        assert_eq!(
            rows.decrypt_above(&client, 0.0, &Progress::none()).unwrap(),
            [1, 2, 3]
        );
        let mut params = TINY_RING.params().clone();
        params.chain.pop();
        let other = SecretKey::generate(&Context::new(params).unwrap(), &mut rng);
        let place = (Layout::plain(4), TINY_RING.seeded_width);
        let theirs = Ciphertext::encrypt_in(&other, place, &[1, 2, 3], &mut rng).unwrap();
        rows.pieces = vec![(theirs, 0..3)];
        let error = rows
            .decrypt_above(&client, 0.0, &Progress::none())
            .unwrap_err()
            .to_string();
        assert!(error.contains("tiny-ring in this version"), "{error}");
        assert!(error.contains("encrypt the column again"), "{error}");
    }

    #[test]
    fn heads_are_read_as_written_or_refused() {
        let facts = RingRowFacts {
            set: &TINY_RING,
            params: &TINY_WOPBS,
            encoding: Encoding::new(4, true).unwrap(),
            noise: StatedNoise {
                log2_variance: Some(-40.0),
                log2_failure: Some(-130.0),
            },
            computed: true,
            tag: Some([3; 12]),
        };
        let place = |offset, rows| Place {
            offset,
            bytes: 100,
            rows,
            crc32c: 7,
            log2_pieces: 3,
        };
        let head = RingHead {
            facts,
            key_id: 5,
            job: None,
            places: vec![place(65536, 256), place(65636, 9)],
            bound: None,
        };
        let bytes = head.to_bytes().unwrap();
        let read = RingHead::from_bytes(&bytes, 65736).unwrap();
        assert_eq!((read.facts, read.key_id), (facts, 5));
        assert_eq!((&read.places, read.rows()), (&head.places, 265));
        // A ciphertext beyond the end, and any byte that is another before that there is no binding.
        assert!(RingHead::from_bytes(&bytes, 65735).is_err());
        for at in 0..bytes.len() - Bound::byte_len(None) as usize {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(RingHead::from_bytes(&damaged, 65736).is_err(), "byte {at}");
            assert!(RingHead::from_bytes(&bytes[..at], 65736).is_err());
        }
    }
}
