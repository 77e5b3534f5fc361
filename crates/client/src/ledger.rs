//! The ledger: what a client keeps of the objects that it put onto drives, so that it notices when a drive gives back something else.
//!
//! Each sample that a session with a ledger puts carries a *binding* in the name of its blob: a version and a message authentication code of the
//! store, register, version, metadata and content under a key that follows from the client key. The drive cannot make one. The
//! ledger keeps the newest version and a digest for each register, which the drive cannot turn back. Of a program's results, which nobody
//! can bind before they are there, it keeps what they were computed from, and their digest. Versions that another ledger of the same
//! client key has counted on are learned when they come back, and count from then on.
//!
//! | | with the ledger | with the client key and an empty ledger |
//! | --- | --- | --- |
//! | another sample in its place, another register's, another client's, a plaintext | noticed | noticed |
//! | an earlier version | noticed | not noticed |
//! | a result | noticed if it is not the one of the latest run | refused |
//!
//! The file is text, with a code of the whole in its last line; `docs/reference/formats.md` has its form.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use toroid_isa::VrNumber;
use toroid_isa::metadata::ScMetadata;
use toroid_tfhe::ClientKey;
use toroid_tfhe::mac::MacKey;
use uuid::Uuid;

use crate::unfinished::Unfinished;

/// SHA-256 of an object.
pub type Digest = [u8; 32];

/// Bytes of a code in a blob's name.
const CODE_BYTES: usize = 16;
const MAGIC: &str = "toroid ledger 1";

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

/// Why an object of a drive is not what the ledger expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerFault {
    /// Other content or metadata than this client key has bound to the register.
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
    /// The program's operands that the ledger knows, with their versions when it was run.
    pub inputs: Vec<(VrNumber, u64)>,
}

/// What the ledger has of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Counts what was put there.
    pub version: u64,
    /// Of metadata and content; `None` once the object is deleted.
    pub digest: Option<Digest>,
    /// Of a result: what it was computed from.
    pub origin: Option<Origin>,
}

/// A version with its code, as a blob's name carries it.
struct Binding {
    version: u64,
    code: Vec<u8>,
}

/// What a client knows of its objects on drives. One file serves all drives of a client key.
#[derive(Debug)]
pub struct Ledger {
    key: MacKey,
    path: Option<PathBuf>,
    entries: Entries,
}

type Entries = BTreeMap<(Uuid, VrNumber), Entry>;

impl Ledger {
    /// The ledger of a client key in a file, which is made with the first entry.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn open(client: &ClientKey, path: impl Into<PathBuf>) -> Result<Ledger, LedgerError> {
        let path = path.into();
        let mut ledger = Ledger::in_memory(client);
        ledger.entries = ledger.read(&path)?;
        ledger.path = Some(path);
        Ok(ledger)
    }

    /// What the file has; nothing where there is none.
    fn read(&self, path: &Path) -> Result<Entries, LedgerError> {
        match fs::read(path) {
            Ok(bytes) => {
                let entries = std::str::from_utf8(&bytes).ok();
                let entries = entries.and_then(|text| self.parse(text));
                entries.ok_or_else(|| LedgerError::NotOurs(path.to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entries::new()),
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
            key: client.mac_key("toroid ledger 1"),
            path: None,
            entries: BTreeMap::new(),
        }
    }

    /// What it has of a register of a store.
    #[must_use]
    pub fn entry(&self, store: Uuid, register: VrNumber) -> Option<&Entry> {
        self.entries.get(&(store, register))
    }

    /// The name of the blob for a new object, and its entry.
    pub(crate) fn bind(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        content: &[u8],
        former_name: Option<&str>,
    ) -> (String, Entry) {
        let register = sc.vr();
        let newest = self.entry(store, register).map_or(0, |entry| entry.version);
        // Where another ledger of the same client key has counted on.
        let digest = digest(sc, content);
        let former = former_name.and_then(|name| Binding::of(name, register));
        let former = former.map_or(0, |binding| binding.version);
        let version = newest.max(former.min(u64::MAX / 2)) + 1;
        let code = self.code(store, register, version, &digest);
        let name = format!("{register} {version} {}", hex(&code[..CODE_BYTES]));
        let entry = Entry {
            version,
            digest: Some(digest),
            origin: None,
        };
        (name, entry)
    }

    /// Checks what a drive gave for a register. The entry is one to enter: of a version that another ledger has counted on.
    pub(crate) fn check(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        content: &[u8],
        name: &str,
    ) -> Result<Option<Entry>, LedgerFault> {
        let register = sc.vr();
        let digest = digest(sc, content);
        let entry = self.entry(store, register);
        if entry.is_some_and(|entry| entry.digest == Some(digest)) {
            return Ok(None);
        }
        if sc.computed() {
            return Err(LedgerFault::UnknownResult);
        }
        let binding = Binding::of(name, register).ok_or(LedgerFault::Changed)?;
        let parts = parts(store, register, binding.version, &digest);
        let parts = parts.each_ref().map(Vec::as_slice);
        if !self.key.verify(&parts, &binding.code) {
            return Err(LedgerFault::Changed);
        }
        let found = binding.version;
        match entry.map(|entry| entry.version) {
            Some(newest) if found == newest => Err(LedgerFault::Gone { found }),
            Some(newest) if found < newest => Err(LedgerFault::RolledBack { found, newest }),
            _ => Ok(Some(Entry {
                version: found,
                digest: Some(digest),
                origin: None,
            })),
        }
    }

    /// The entry of a result that a run gave.
    pub(crate) fn result(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        content: &[u8],
        program: Digest,
        operands: impl IntoIterator<Item = VrNumber>,
    ) -> Entry {
        let version = |register| self.entry(store, register).map(|entry| entry.version);
        let inputs = operands.into_iter();
        Entry {
            version: version(sc.vr()).unwrap_or(0),
            digest: Some(digest(sc, content)),
            origin: Some(Origin {
                program,
                inputs: inputs
                    .filter_map(|register| Some((register, version(register)?)))
                    .collect(),
            }),
        }
    }

    /// What is left of a register whose object is deleted.
    pub(crate) fn deleted(&self, store: Uuid, register: VrNumber) -> Option<Entry> {
        let entry = self.entry(store, register)?;
        Some(Entry {
            version: entry.version,
            digest: None,
            origin: None,
        })
    }

    /// Enters registers of a store, durably. Where the file has newer versions, which another process entered meanwhile, those stay.
    pub(crate) fn enter(
        &mut self,
        store: Uuid,
        entries: impl IntoIterator<Item = (VrNumber, Entry)>,
    ) -> Result<(), LedgerError> {
        let entered = entries.into_iter();
        let entered = entered.map(|(register, entry)| ((store, register), entry));
        let Some(path) = self.path.clone() else {
            self.merge(entered);
            return Ok(());
        };
        let failed = |source| LedgerError::File {
            path: path.clone(),
            source,
        };
        // Held until the file is replaced.
        let _lock = lock(&path).map_err(failed)?;
        self.merge(self.read(&path)?);
        self.merge(entered);
        replace(&path, &self.text()).map_err(failed)
    }

    /// Takes entries over, but for those of earlier versions than it has.
    fn merge(&mut self, entries: impl IntoIterator<Item = ((Uuid, VrNumber), Entry)>) {
        for (key, entry) in entries {
            let known = self.entries.get(&key);
            if known.is_none_or(|known| known.version <= entry.version) {
                self.entries.insert(key, entry);
            }
        }
    }

    fn code(&self, store: Uuid, register: VrNumber, version: u64, digest: &Digest) -> [u8; 32] {
        let parts = parts(store, register, version, digest);
        self.key.code(&parts.each_ref().map(Vec::as_slice))
    }

    fn text(&self) -> String {
        let mut text = format!("{MAGIC}\n");
        for ((store, register), entry) in &self.entries {
            let digest = entry.digest.map_or("-".to_owned(), |digest| hex(&digest));
            // Writing to a string does not fail.
            let _ = write!(text, "{store} {register} {} {digest}", entry.version);
            if let Some(origin) = &entry.origin {
                let _ = write!(text, " {}", hex(&origin.program));
                for (register, version) in &origin.inputs {
                    let _ = write!(text, " {register}={version}");
                }
            }
            text.push('\n');
        }
        let code = self.key.code(&[b"ledger", text.as_bytes()]);
        text + &hex(&code) + "\n"
    }

    fn parse(&self, text: &str) -> Option<Entries> {
        let (entries, code) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let signed = text.get(..=entries.len())?;
        if !self
            .key
            .verify(&[b"ledger", signed.as_bytes()], &from_hex(code)?)
        {
            return None;
        }
        let mut lines = entries.lines();
        let entries = (lines.next() == Some(MAGIC)).then_some(lines)?;
        entries.map(parse_entry).collect()
    }
}

fn parse_entry(line: &str) -> Option<((Uuid, VrNumber), Entry)> {
    let mut words = line.split(' ');
    let store = words.next()?.parse().ok()?;
    let register = words.next()?.parse().ok()?;
    let version = words.next()?.parse().ok()?;
    let digest = match words.next()? {
        "-" => None,
        digest => Some(from_hex(digest)?.try_into().ok()?),
    };
    let origin = match words.next() {
        None => None,
        Some(program) => Some(Origin {
            program: from_hex(program)?.try_into().ok()?,
            inputs: words
                .map(|input| {
                    let (register, version) = input.split_once('=')?;
                    Some((register.parse().ok()?, version.parse().ok()?))
                })
                .collect::<Option<_>>()?,
        }),
    };
    let entry = Entry {
        version,
        digest,
        origin,
    };
    Some(((store, register), entry))
}

impl Binding {
    /// The one in the name of a blob of this register.
    fn of(name: &str, register: VrNumber) -> Option<Binding> {
        let mut words = name.split(' ');
        let named: VrNumber = words.next()?.parse().ok()?;
        let version = words.next()?.parse().ok()?;
        let code = from_hex(words.next()?).filter(|code| code.len() == CODE_BYTES)?;
        (named == register && words.next().is_none()).then_some(Binding { version, code })
    }
}

/// What the code of a binding is of. A sample is a column of one row.
fn parts(store: Uuid, register: VrNumber, version: u64, digest: &Digest) -> [Vec<u8>; 5] {
    let rows = [0u64, 1].map(u64::to_le_bytes).concat();
    [
        store.as_bytes().to_vec(),
        u64::from(register).to_le_bytes().to_vec(),
        rows,
        version.to_le_bytes().to_vec(),
        digest.to_vec(),
    ]
}

/// Of what the metadata says of the object as a whole, with the start of the key tag, and of its content.
fn digest(sc: &ScMetadata, content: &[u8]) -> Digest {
    let mut sha = Sha256::new();
    sha.update(sc.whole().to_bytes());
    sha.update(content);
    sha.finalize().into()
}

/// Digest of a program's binary form.
pub(crate) fn program_digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
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
