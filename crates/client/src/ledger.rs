//! The ledger: what a client keeps of the objects that it put onto drives, so that it notices when a drive gives back something else.
//!
//! Each object that a session with a ledger puts carries a *binding* in the name of its blob: a version and a message authentication code of the
//! store, register, version, metadata and content under a key that follows from the client key. The drive cannot make one. The
//! ledger keeps the newest version, a digest and the metadata for each register, which the drive cannot turn back. Of a program's results, which nobody
//! can bind before they are there, it keeps what they were computed from, their digest, and the noise that the client expects of them. Versions that
//! another ledger of the same client key has counted on are learned when they come back, and count from then on. A version is
//! entered as given away before the object goes to the drive, so that no two objects ever have the same one.
//!
//! A [column at rest](crate::columns) carries its binding behind its head, with the digest of each of its chunks, so that rows are checked as
//! they are read. A program's result that is a column is written by the client, and bound like any other; the ledger keeps what it was computed from.
//!
//! It also keeps which store was at which place, so that another one in its place is noticed.
//!
//! | | with the ledger | with the client key and an empty ledger |
//! | --- | --- | --- |
//! | another sample in its place, another register's, another client's, a plaintext | noticed | noticed |
//! | an earlier version | noticed | not noticed |
//! | a result in a register | noticed if it is not the one of the latest run | refused |
//!
//! The file is text, with a code of the whole in its last line; `docs/reference/formats.md` has its form.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, VrType};
use toroid_tfhe::ClientKey;
use toroid_tfhe::mac::MacKey;
use toroid_tfhe::noise::StatedNoise;
use uuid::Uuid;

use crate::unfinished::Unfinished;

/// SHA-256 of an object.
pub type Digest = [u8; 32];

/// Bytes of the code of a binding.
pub(crate) const CODE_BYTES: usize = 16;
/// The first line; that of files which know no rows that are left out; that of files which know no columns; and that of files which know no places and
/// of each register only version, digest and origin.
const MAGIC: &str = "toroid ledger 4";
const MAGIC_WITHOUT_KEPT: &str = "toroid ledger 3";
const MAGIC_WITHOUT_COLUMNS: &str = "toroid ledger 2";
const FIRST_MAGIC: &str = "toroid ledger 1";
/// The first word of a place's line, where others have the store's identifier.
const PLACE: &str = "place";
/// What the word of a column begins with, before its name in hexadecimal digits.
const COLUMN: &str = "column:";
/// What the word of the rows that a program has run on begins with.
const ROWS: &str = "rows:";
/// What the word of which of these rows count begins with, before their digest.
const KEPT: &str = "kept:";

/// Why a ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Its file cannot be read or written.
    #[error("ledger {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not one that this client key has written.
    #[error("{0} is no ledger of this client key, or was changed")]
    NotOurs(PathBuf),
}

/// What a client binds: what an entry of a ledger is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The object of a register.
    Register(VrNumber),
    /// The column at rest of this name.
    Column(String),
}

impl From<VrNumber> for Subject {
    fn from(register: VrNumber) -> Subject {
        Subject::Register(register)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Register(register) => write!(f, "{register}"),
            Subject::Column(name) => write!(f, "column {name}"),
        }
    }
}

impl Subject {
    /// As a word of the ledger's file, which names of columns need not be.
    fn word(&self) -> String {
        match self {
            Subject::Register(register) => register.to_string(),
            Subject::Column(name) => format!("{COLUMN}{}", hex(name.as_bytes())),
        }
    }

    fn of_word(word: &str) -> Option<Subject> {
        match word.strip_prefix(COLUMN) {
            Some(name) => Some(Subject::Column(String::from_utf8(from_hex(name)?).ok()?)),
            None => Some(Subject::Register(word.parse().ok()?)),
        }
    }
}

/// Why an object of a drive is not what the ledger expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerFault {
    /// Other content or metadata than this client key has bound to the register, or to the name of the column.
    #[error("it is not what this client put there")]
    Changed,
    /// Of the newest version, but deleted since, or replaced by a program's result.
    #[error(
        "it is version {found} as this client has put it, which is deleted or replaced by a result"
    )]
    Gone {
        /// Version of the object.
        found: u64,
    },
    /// An earlier version.
    #[error("it is version {found}, but this client has put version {newest} there")]
    RolledBack {
        /// Version of the object.
        found: u64,
        /// Version in the ledger.
        newest: u64,
    },
    /// The drive says that it computed the object, and the ledger knows of no run that made it.
    #[error("the drive says that it is a result, but it is none of a run that this client knows")]
    UnknownResult,
}

/// What a result was computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// SHA-256 of the program's binary form.
    pub program: Digest,
    /// Of a column: the rows of its inputs that the program ran on.
    pub rows: Option<Range<u64>>,
    /// Of a run that leaves out rows: which of them count, as [`kept_digest`] has it.
    pub kept: Option<Digest>,
    /// The program's operands that the ledger knows, with their versions when it was run.
    pub inputs: Vec<(Subject, u64)>,
}

/// What the ledger has of a register or of a column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Counts what was put there; 0 before anything was.
    pub version: u64,
    /// The largest version that was given away, also to an object that the drive may not have stored in the end.
    pub reserved: u64,
    /// Of metadata and content; `None` once the object is deleted.
    pub digest: Option<Digest>,
    /// The metadata as this client gave it; of a result with the noise that the client expects. `None` where the ledger is of
    /// a former form, and once the object is deleted.
    pub metadata: Option<ScMetadata>,
    /// Of a result: what it was computed from.
    pub origin: Option<Origin>,
}

/// A version with its code, as the name of a register's blob carries it, or a column behind its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) version: u64,
    pub(crate) code: [u8; CODE_BYTES],
}

/// What a binding is of.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a> {
    /// What describes all of it.
    pub(crate) sc: &'a ScMetadata,
    /// A sample is a column of one row.
    pub(crate) rows: u64,
    pub(crate) digest: Digest,
}

/// What a client knows of its objects on drives. One file serves all drives of a client key.
#[derive(Debug)]
pub struct Ledger {
    key: MacKey,
    path: Option<PathBuf>,
    known: Known,
}

/// What a ledger's file has.
#[derive(Debug, Default)]
struct Known {
    entries: BTreeMap<(Uuid, Subject), Entry>,
    /// The stores by the digest of their place.
    places: BTreeMap<Digest, Uuid>,
}

impl Known {
    /// Takes an entry over, but for one of an earlier version than it has. What was given away stays given away.
    fn merge(&mut self, key: (Uuid, Subject), entry: Entry) {
        let known = self.entries.entry(key).or_default();
        let reserved = known.reserved.max(entry.reserved).max(entry.version);
        if known.version <= entry.version {
            *known = entry;
        }
        known.reserved = reserved;
    }
}

impl Ledger {
    /// The ledger of a client key in a file, which is made with the first entry.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn open(client: &ClientKey, path: impl Into<PathBuf>) -> Result<Ledger, LedgerError> {
        let path = path.into();
        let mut ledger = Ledger::in_memory(client);
        ledger.known = ledger.read(&path)?;
        ledger.path = Some(path);
        Ok(ledger)
    }

    /// What the file has; nothing where there is none.
    fn read(&self, path: &Path) -> Result<Known, LedgerError> {
        match fs::read(path) {
            Ok(bytes) => {
                let known = std::str::from_utf8(&bytes).ok();
                let known = known.and_then(|text| self.parse(text));
                known.ok_or_else(|| LedgerError::NotOurs(path.to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Known::default()),
            Err(source) => Err(LedgerError::File {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// An empty ledger that is lost with the process.
    #[must_use]
    pub fn in_memory(client: &ClientKey) -> Ledger {
        Ledger {
            key: client.mac_key(FIRST_MAGIC),
            path: None,
            known: Known::default(),
        }
    }

    /// What it has of a register or a column of a store.
    #[must_use]
    pub fn entry(&self, store: Uuid, subject: impl Into<Subject>) -> Option<&Entry> {
        self.known.entries.get(&(store, subject.into()))
    }

    /// Gives versions away, durably, for what is about to be put; the bindings of what stands there may be of
    /// versions that another ledger of the same client key has counted on.
    pub(crate) fn reserve(
        &mut self,
        store: Uuid,
        subjects: Vec<(Subject, Option<Binding>)>,
    ) -> Result<Vec<u64>, LedgerError> {
        self.change(|known| {
            let reserve = |(subject, former): (Subject, Option<Binding>)| {
                let former = former.map_or(0, |binding| binding.version.min(u64::MAX / 2));
                let entry = known.entries.entry((store, subject)).or_default();
                entry.reserved = entry.reserved.max(former) + 1;
                entry.reserved
            };
            subjects.into_iter().map(reserve).collect()
        })
    }

    /// The name of the blob for an object of a version that was given away, and its entry.
    pub(crate) fn bind(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        digest: Digest,
        version: u64,
    ) -> (String, Entry) {
        let content = Content {
            sc,
            rows: 1,
            digest,
        };
        let (binding, entry) = self.binding(store, &sc.vr().into(), content, version);
        (binding.name(sc.vr()), entry)
    }

    /// The binding of a version that was given away, and its entry.
    pub(crate) fn binding(
        &self,
        store: Uuid,
        subject: &Subject,
        content: Content<'_>,
        version: u64,
    ) -> (Binding, Entry) {
        let parts = parts(store, subject, content, version);
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        let whole = self.key.code(&parts);
        let code = std::array::from_fn(|at| whole[at]);
        let entry = Entry {
            version,
            reserved: version,
            digest: Some(content.digest),
            metadata: Some(content.sc.whole()),
            origin: None,
        };
        (Binding { version, code }, entry)
    }

    /// Checks what a drive gave for a register. The entry is one to enter: of a version that another ledger has counted on.
    pub(crate) fn check(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        digest: Digest,
        name: &str,
    ) -> Result<Option<Entry>, LedgerFault> {
        let register = sc.vr();
        let entry = self.entry(store, register);
        let is_known = entry.is_some_and(|entry| entry.digest == Some(digest));
        if sc.computed() && !is_known {
            return Err(LedgerFault::UnknownResult);
        }
        let content = Content {
            sc,
            rows: 1,
            digest,
        };
        self.check_bound(
            store,
            &register.into(),
            content,
            Binding::of(name, register).as_ref(),
        )
    }

    /// Checks what a drive gave with a binding, or without one. The entry is one to enter: of a version that another ledger has counted on.
    pub(crate) fn check_bound(
        &self,
        store: Uuid,
        subject: &Subject,
        content: Content<'_>,
        binding: Option<&Binding>,
    ) -> Result<Option<Entry>, LedgerFault> {
        let entry = self.entry(store, subject.clone());
        if entry.is_some_and(|entry| entry.digest == Some(content.digest)) {
            return Ok(None);
        }
        let binding = binding.ok_or(LedgerFault::Changed)?;
        let found = binding.version;
        let parts = parts(store, subject, content, found);
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        if !self.key.verify(&parts, &binding.code) {
            return Err(LedgerFault::Changed);
        }
        match entry.map(|entry| entry.version) {
            Some(newest) if found == newest => Err(LedgerFault::Gone { found }),
            Some(newest) if found < newest => Err(LedgerFault::RolledBack { found, newest }),
            _ => Ok(Some(self.binding(store, subject, content, found).1)),
        }
    }

    /// What this client gave as the metadata of an object that a program reads, of a result with the noise that it expects, if what the
    /// drive's records say of the object agrees. `None` where the ledger cannot tell: of objects that it does not know, of
    /// newer versions, and of a TLWE-CoW sample, in whose place a result may stand.
    pub(crate) fn operand(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        name: &str,
    ) -> Result<Option<ScMetadata>, LedgerFault> {
        let register = sc.vr();
        let Some(entry) = self.entry(store, register) else {
            return Ok(None);
        };
        let (Some(digest), Some(metadata)) = (entry.digest, entry.metadata) else {
            return Ok(None);
        };
        if entry.origin.is_some() {
            return Ok(Some(metadata));
        }
        if name != self.bind(store, &metadata, digest, entry.version).0 {
            let newest = entry.version;
            return match Binding::of(name, register).map(|binding| binding.version) {
                Some(found) if found > newest => Ok(None),
                Some(found) if found < newest => Err(LedgerFault::RolledBack { found, newest }),
                _ => Err(LedgerFault::Changed),
            };
        }
        if sc.whole() != metadata {
            return Err(LedgerFault::Changed);
        }
        Ok((register.ty() != VrType::LweCow).then_some(metadata))
    }

    /// What a result is computed from: a program, with those of its operands that the ledger knows.
    pub(crate) fn origin(
        &self,
        store: Uuid,
        program: Digest,
        (rows, kept): (Option<Range<u64>>, Option<Digest>),
        operands: impl IntoIterator<Item = Subject>,
    ) -> Origin {
        let known = |operand: Subject| {
            let version = self.entry(store, operand.clone())?.version;
            Some((operand, version))
        };
        Origin {
            program,
            rows,
            kept,
            inputs: operands.into_iter().filter_map(known).collect(),
        }
    }

    /// The entry of a result that a run gave: the drive's metadata and the digest of it and the content, and the noise that the client expects.
    pub(crate) fn result(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        (digest, noise): (Digest, StatedNoise),
        origin: Origin,
    ) -> Entry {
        let expected = sc.with_noise(noise.log2_variance, noise.log2_failure);
        let version = self.entry(store, sc.vr()).map_or(0, |entry| entry.version);
        Entry {
            version,
            reserved: version,
            digest: Some(digest),
            metadata: Some(expected.whole()),
            origin: Some(origin),
        }
    }

    /// What is left of an entry whose object is deleted.
    pub(crate) fn deleted(&self, store: Uuid, subject: Subject) -> Option<Entry> {
        let entry = self.entry(store, subject)?;
        Some(Entry {
            version: entry.version,
            reserved: entry.reserved,
            ..Entry::default()
        })
    }

    /// Learns what other processes have entered into the file.
    pub(crate) fn refresh(&mut self) -> Result<(), LedgerError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let read = self.read(path)?;
        for (key, entry) in read.entries {
            self.known.merge(key, entry);
        }
        self.known.places.extend(read.places);
        Ok(())
    }

    /// Enters registers and columns of a store, durably. Where the file has newer versions, which another process entered meanwhile, those stay.
    pub(crate) fn enter(
        &mut self,
        store: Uuid,
        entries: impl IntoIterator<Item = (Subject, Entry)>,
    ) -> Result<(), LedgerError> {
        self.change(|known| {
            for (subject, entry) in entries {
                known.merge((store, subject), entry);
            }
        })
    }

    /// The store that was at a place before, if it is not this one.
    pub(crate) fn other_store(&self, place: &str, store: Uuid) -> Option<Uuid> {
        let known = self.known.places.get(&place_digest(place)).copied();
        known.filter(|known| *known != store)
    }

    /// Enters which store is at a place.
    pub(crate) fn enter_place(&mut self, place: &str, store: Uuid) -> Result<(), LedgerError> {
        let place = place_digest(place);
        if self.known.places.get(&place) == Some(&store) {
            return Ok(());
        }
        self.change(|known| {
            known.places.insert(place, store);
        })
    }

    /// Changes what the file has, durably.
    fn change<T>(&mut self, change: impl FnOnce(&mut Known) -> T) -> Result<T, LedgerError> {
        let Some(path) = self.path.clone() else {
            return Ok(change(&mut self.known));
        };
        let failed = |source| LedgerError::File {
            path: path.clone(),
            source,
        };
        // Held until the file is replaced.
        let _lock = lock(&path).map_err(failed)?;
        self.refresh()?;
        let changed = change(&mut self.known);
        replace(&path, &self.text()).map_err(failed)?;
        Ok(changed)
    }

    fn text(&self) -> String {
        let mut text = format!("{MAGIC}\n");
        for (place, store) in &self.known.places {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{PLACE} {} {store}", hex(place));
        }
        for ((store, subject), entry) in &self.known.entries {
            let subject = subject.word();
            let digest = entry.digest.map_or("-".to_owned(), |digest| hex(&digest));
            let metadata = entry.metadata.map(|sc| hex(&sc.to_bytes()));
            let metadata = metadata.unwrap_or("-".to_owned());
            let (version, reserved) = (entry.version, entry.reserved);
            let _ = write!(
                text,
                "{store} {subject} {version} {reserved} {digest} {metadata}"
            );
            if let Some(origin) = &entry.origin {
                let _ = write!(text, " {}", hex(&origin.program));
                if let Some(rows) = &origin.rows {
                    let _ = write!(text, " {ROWS}{}..{}", rows.start, rows.end);
                }
                if let Some(kept) = &origin.kept {
                    let _ = write!(text, " {KEPT}{}", hex(kept));
                }
                for (subject, version) in &origin.inputs {
                    let _ = write!(text, " {}={version}", subject.word());
                }
            }
            text.push('\n');
        }
        let code = self.key.code(&[b"ledger", text.as_bytes()]);
        text + &hex(&code) + "\n"
    }

    fn parse(&self, text: &str) -> Option<Known> {
        let (entries, code) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let signed = text.get(..=entries.len())?;
        if !self
            .key
            .verify(&[b"ledger", signed.as_bytes()], &from_hex(code)?)
        {
            return None;
        }
        let mut lines = entries.lines();
        let first = match lines.next()? {
            MAGIC | MAGIC_WITHOUT_KEPT | MAGIC_WITHOUT_COLUMNS => false,
            FIRST_MAGIC => true,
            _ => return None,
        };
        let mut known = Known::default();
        for line in lines {
            let mut words = line.split(' ');
            if !first && let Some(place) = line.strip_prefix(PLACE) {
                let (place, store) = place.strip_prefix(' ')?.split_once(' ')?;
                let place = from_hex(place)?.try_into().ok()?;
                known.places.insert(place, store.parse().ok()?);
            } else {
                let store = words.next()?.parse().ok()?;
                let subject = Subject::of_word(words.next()?)?;
                let entry = parse_entry(&mut words, first)?;
                known.entries.insert((store, subject), entry);
            }
        }
        Some(known)
    }
}

/// The words of an entry after store and register or column; in the `first` form of the file it has fewer.
fn parse_entry<'a>(words: &mut impl Iterator<Item = &'a str>, first: bool) -> Option<Entry> {
    let mut words = words.peekable();
    let version = words.next()?.parse().ok()?;
    let reserved = match first {
        true => version,
        false => words.next()?.parse().ok()?,
    };
    let digest = match words.next()? {
        "-" => None,
        digest => Some(from_hex(digest)?.try_into().ok()?),
    };
    let metadata = match first {
        true => "-",
        false => words.next()?,
    };
    let metadata = match metadata {
        "-" => None,
        metadata => ScMetadata::from_bytes(&from_hex(metadata)?).ok()?,
    };
    let origin = match words.next() {
        None => None,
        Some(program) => {
            let rows = words.next_if(|word| word.starts_with(ROWS));
            let kept = words.next_if(|word| word.starts_with(KEPT));
            Some(Origin {
                program: from_hex(program)?.try_into().ok()?,
                rows: match rows {
                    None => None,
                    Some(rows) => {
                        let (start, end) = rows.strip_prefix(ROWS)?.split_once("..")?;
                        Some(start.parse().ok()?..end.parse().ok()?)
                    }
                },
                kept: match kept {
                    None => None,
                    Some(kept) => Some(from_hex(kept.strip_prefix(KEPT)?)?.try_into().ok()?),
                },
                inputs: words
                    .map(|input| {
                        let (subject, version) = input.split_once('=')?;
                        Some((Subject::of_word(subject)?, version.parse().ok()?))
                    })
                    .collect::<Option<_>>()?,
            })
        }
    };
    Some(Entry {
        version,
        reserved,
        digest,
        metadata,
        origin,
    })
}

impl Binding {
    /// The one in the name of a blob of this register.
    pub(crate) fn of(name: &str, register: VrNumber) -> Option<Binding> {
        let mut words = name.split(' ');
        let named: VrNumber = words.next()?.parse().ok()?;
        let version = words.next()?.parse().ok()?;
        let code = from_hex(words.next()?)?.try_into().ok()?;
        (named == register && words.next().is_none()).then_some(Binding { version, code })
    }

    /// The name of a blob of this register.
    fn name(&self, register: VrNumber) -> String {
        format!("{register} {} {}", self.version, hex(&self.code))
    }
}

/// What the code of a binding is of. That of a column has a part more than that of a register.
fn parts(store: Uuid, subject: &Subject, content: Content<'_>, version: u64) -> Vec<Vec<u8>> {
    let (named, kind) = match subject {
        Subject::Register(register) => (u64::from(*register).to_le_bytes().to_vec(), None),
        Subject::Column(name) => (name.as_bytes().to_vec(), Some(b"column".to_vec())),
    };
    let mut parts = vec![
        store.as_bytes().to_vec(),
        named,
        [0, content.rows].map(u64::to_le_bytes).concat(),
        version.to_le_bytes().to_vec(),
        content.digest.to_vec(),
    ];
    parts.extend(kind);
    parts
}

/// Digest of what the metadata says of an object as a whole, with the start of the key tag, and of its content, piece by piece.
pub(crate) struct ObjectDigest(Sha256);

impl ObjectDigest {
    pub(crate) fn new(sc: &ScMetadata) -> ObjectDigest {
        let mut sha = Sha256::new();
        sha.update(sc.whole().to_bytes());
        ObjectDigest(sha)
    }

    pub(crate) fn update(&mut self, content: &[u8]) {
        self.0.update(content);
    }

    pub(crate) fn finish(self) -> Digest {
        self.0.finalize().into()
    }

    /// Of an object as a whole.
    pub(crate) fn of(sc: &ScMetadata, content: &[u8]) -> Digest {
        let mut digest = ObjectDigest::new(sc);
        digest.update(content);
        digest.finish()
    }
}

/// The digest by which a ledger knows the rows of a run that count: SHA-256 of their number as a u64, and of a bit for each, 1 for those that do, the lowest
/// bit of a byte first.
#[must_use]
pub fn kept_digest(kept: &[bool]) -> Digest {
    let mut sha = Sha256::new();
    sha.update((kept.len() as u64).to_le_bytes());
    sha.update(bytes_of_kept(kept));
    sha.finalize().into()
}

/// A bit for each row, 1 for those that count, the lowest bit of a byte first.
pub(crate) fn bytes_of_kept(kept: &[bool]) -> Vec<u8> {
    let byte = |rows: &[bool]| {
        let bits = rows.iter().enumerate();
        bits.fold(0, |byte, (place, kept)| byte | u8::from(*kept) << place)
    };
    kept.chunks(8).map(byte).collect()
}

/// SHA-256 of bytes as they are.
pub(crate) fn bytes_digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

fn place_digest(place: &str) -> Digest {
    bytes_digest(place.as_bytes())
}

/// Keeps other processes from replacing the ledger until it is dropped. The lock has a file of its own, as the ledger's is replaced.
fn lock(path: &Path) -> io::Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let file = File::create(beside)?;
    file.lock()?;
    Ok(file)
}

/// Puts a file in place of another; after a crash there is one of the two.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = Unfinished::create(path)?;
    file.write_all(text.as_bytes())?;
    file.finish()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.len().is_multiple_of(2).then(|| digits.chunks(2))?;
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use toroid_tfhe::params::TINY;
    use toroid_tfhe::random::Csprng;

    use super::*;

    #[test]
    fn a_ledger_of_the_former_form_is_read() {
        let client = ClientKey::generate(&TINY, &mut Csprng::from_seed([1; 32]));
        let ledger = Ledger::in_memory(&client);
        let (store, digest) = (Uuid::from_bytes([2; 16]), hex(&[3; 32]));
        let lines = format!(
            "{FIRST_MAGIC}\n{store} cor:0:1 4 {digest}\n{store} cor:0:2 5 -\n{store} cow:0:2 6 {digest} {digest} cor:0:1=4\n"
        );
        let code = ledger.key.code(&[b"ledger", lines.as_bytes()]);
        let known = ledger.parse(&format!("{lines}{}\n", hex(&code))).unwrap();
        let entries: Vec<_> = known.entries.values().collect();
        let versions: Vec<_> = entries.iter().map(|e| (e.version, e.reserved)).collect();
        assert_eq!(versions, [(4, 4), (5, 5), (6, 6)]);
        assert_eq!(entries[0].digest, Some([3; 32]));
        assert_eq!((entries[1].digest, entries[1].metadata), (None, None));
        let origin = entries[2].origin.as_ref().unwrap();
        assert_eq!(
            origin.inputs,
            [(Subject::Register("cor:0:1".parse().unwrap()), 4)]
        );
        // It is written in the present one, and comes back the same.
        let written = Ledger { known, ..ledger };
        let again = written.parse(&written.text()).unwrap();
        assert_eq!(again.entries, written.known.entries);
    }

    #[test]
    fn columns_come_back_as_written() {
        let client = ClientKey::generate(&TINY, &mut Csprng::from_seed([1; 32]));
        let mut ledger = Ledger::in_memory(&client);
        let column = |name: &str| Subject::Column(name.to_owned());
        let of_column = Origin {
            program: [4; 32],
            rows: Some(3..100),
            kept: Some(kept_digest(&[true, false])),
            inputs: vec![
                (column("a = é"), 7),
                (Subject::Register("tv:0:2".parse().unwrap()), 2),
            ],
        };
        let of_register = Origin {
            rows: None,
            kept: None,
            ..of_column.clone()
        };
        let store = Uuid::from_bytes([2; 16]);
        let entry = |origin| Entry {
            version: 3,
            reserved: 4,
            digest: Some([1; 32]),
            metadata: None,
            origin: Some(origin),
        };
        let register = Subject::Register("cow:0:2".parse().unwrap());
        let entries = [
            (column(" x"), entry(of_column)),
            (register, entry(of_register)),
        ];
        ledger.enter(store, entries).unwrap();
        let text = ledger.text();
        let known = ledger.parse(&text).unwrap();
        assert_eq!(known.entries, ledger.known.entries);
        let (lines, _) = text.trim_end().rsplit_once('\n').unwrap();
        let signed = |lines: &str| {
            let code = ledger.key.code(&[b"ledger", lines.as_bytes()]);
            ledger.parse(&format!("{lines}{}\n", hex(&code)))
        };
        // Former forms differ in their first line.
        for former in [MAGIC_WITHOUT_COLUMNS, MAGIC_WITHOUT_KEPT] {
            let known = signed(&(lines.replacen(MAGIC, former, 1) + "\n")).unwrap();
            assert_eq!(known.entries, ledger.known.entries);
        }
        // A mask whose digest has another length, or stands elsewhere, is none.
        let kept = format!(" {KEPT}{}", hex(&kept_digest(&[true, false])));
        for (found, other) in [
            (kept.as_str(), kept[..kept.len() - 2].to_owned()),
            (&kept, format!("{kept}{kept}")),
        ] {
            let lines = lines.replacen(found, &other, 1) + "\n";
            assert!(signed(&lines).is_none(), "{lines}");
        }
        // What stands in the file is what counts: another mask needs another code.
        let other = text.replacen(&kept, &kept.replace('0', "1"), 1);
        assert!(other != text && ledger.parse(&other).is_none());
    }
}
