//! The ledger: what a client keeps of the objects that it put onto drives, so that it notices when a drive gives back something else.
//!
//! Each object that a session with a ledger puts carries a *binding* in the name of its blob: a version and a message authentication code of the
//! store, register, version, metadata and content under a key that follows from the client key. The drive cannot make one. The
//! ledger keeps the newest version, a digest and the metadata for each register, which the drive cannot turn back. Of a program's results, which nobody
//! can bind before they are there, it keeps what they were computed from, their digest, and the noise that the client expects of them. Versions that
//! another ledger of the same client key has counted on are learned when they come back, and count from then on. A version is
//! entered as given away before the object goes to the drive, so that no two objects ever have the same one.
//!
//! It also keeps which store was at which place, so that another one in its place is noticed.
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
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, VrType};
use toroid_tfhe::ClientKey;
use toroid_tfhe::mac::MacKey;
use toroid_tfhe::noise::StatedNoise;
use uuid::Uuid;

use crate::unfinished::Unfinished;

/// SHA-256 of an object.
pub type Digest = [u8; 32];

/// Bytes of a code in a blob's name.
const CODE_BYTES: usize = 16;
/// The first line, and that of files which know no places and of each register only version, digest and origin.
const MAGIC: &str = "toroid ledger 2";
const FORMER_MAGIC: &str = "toroid ledger 1";
/// The first word of a place's line, where a register's has the store's identifier.
const PLACE: &str = "place";

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
    known: Known,
}

/// What a ledger's file has.
#[derive(Debug, Default)]
struct Known {
    entries: BTreeMap<(Uuid, VrNumber), Entry>,
    /// The stores by the digest of their place.
    places: BTreeMap<Digest, Uuid>,
}

impl Known {
    /// Takes an entry over, but for one of an earlier version than it has. What was given away stays given away.
    fn merge(&mut self, key: (Uuid, VrNumber), entry: Entry) {
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
            key: client.mac_key(FORMER_MAGIC),
            path: None,
            known: Known::default(),
        }
    }

    /// What it has of a register of a store.
    #[must_use]
    pub fn entry(&self, store: Uuid, register: VrNumber) -> Option<&Entry> {
        self.known.entries.get(&(store, register))
    }

    /// Gives versions away, durably, for objects that are about to be put into registers; the names of those that stand there may be of
    /// versions that another ledger of the same client key has counted on.
    pub(crate) fn reserve(
        &mut self,
        store: Uuid,
        registers: &[(VrNumber, Option<String>)],
    ) -> Result<Vec<u64>, LedgerError> {
        self.change(|known| {
            let reserve = |(register, former_name): &(VrNumber, Option<String>)| {
                let former = former_name.as_deref();
                let former = former.and_then(|name| Binding::of(name, *register));
                let former = former.map_or(0, |binding| binding.version.min(u64::MAX / 2));
                let entry = known.entries.entry((store, *register)).or_default();
                entry.reserved = entry.reserved.max(former) + 1;
                entry.reserved
            };
            registers.iter().map(reserve).collect()
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
        let name = self.name(store, sc.vr(), version, &digest);
        let entry = Entry {
            version,
            reserved: version,
            digest: Some(digest),
            metadata: Some(sc.whole()),
            origin: None,
        };
        (name, entry)
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
            _ => Ok(Some(self.bind(store, sc, digest, found).1)),
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
        if name != self.name(store, register, entry.version, &digest) {
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

    /// The entry of a result that a run gave: the drive's metadata and the digest of it and the content, and the noise that the client expects.
    pub(crate) fn result(
        &self,
        store: Uuid,
        sc: &ScMetadata,
        (digest, noise): (Digest, StatedNoise),
        program: Digest,
        operands: impl IntoIterator<Item = VrNumber>,
    ) -> Entry {
        let version = |register| self.entry(store, register).map(|entry| entry.version);
        let inputs = operands.into_iter();
        let expected = sc.with_noise(noise.log2_variance, noise.log2_failure);
        let version_of_it = version(sc.vr()).unwrap_or(0);
        Entry {
            version: version_of_it,
            reserved: version_of_it,
            digest: Some(digest),
            metadata: Some(expected.whole()),
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

    /// Enters registers of a store, durably. Where the file has newer versions, which another process entered meanwhile, those stay.
    pub(crate) fn enter(
        &mut self,
        store: Uuid,
        entries: impl IntoIterator<Item = (VrNumber, Entry)>,
    ) -> Result<(), LedgerError> {
        self.change(|known| {
            for (register, entry) in entries {
                known.merge((store, register), entry);
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

    fn name(&self, store: Uuid, register: VrNumber, version: u64, digest: &Digest) -> String {
        let code = self.code(store, register, version, digest);
        format!("{register} {version} {}", hex(&code[..CODE_BYTES]))
    }

    fn code(&self, store: Uuid, register: VrNumber, version: u64, digest: &Digest) -> [u8; 32] {
        let parts = parts(store, register, version, digest);
        self.key.code(&parts.each_ref().map(Vec::as_slice))
    }

    fn text(&self) -> String {
        let mut text = format!("{MAGIC}\n");
        for (place, store) in &self.known.places {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{PLACE} {} {store}", hex(place));
        }
        for ((store, register), entry) in &self.known.entries {
            let digest = entry.digest.map_or("-".to_owned(), |digest| hex(&digest));
            let metadata = entry.metadata.map(|sc| hex(&sc.to_bytes()));
            let metadata = metadata.unwrap_or("-".to_owned());
            let (version, reserved) = (entry.version, entry.reserved);
            let _ = write!(
                text,
                "{store} {register} {version} {reserved} {digest} {metadata}"
            );
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
        let former = match lines.next()? {
            MAGIC => false,
            FORMER_MAGIC => true,
            _ => return None,
        };
        let mut known = Known::default();
        for line in lines {
            let mut words = line.split(' ');
            if !former && let Some(place) = line.strip_prefix(PLACE) {
                let (place, store) = place.strip_prefix(' ')?.split_once(' ')?;
                let place = from_hex(place)?.try_into().ok()?;
                known.places.insert(place, store.parse().ok()?);
            } else {
                let store = words.next()?.parse().ok()?;
                let register = words.next()?.parse().ok()?;
                let entry = parse_entry(&mut words, former)?;
                known.entries.insert((store, register), entry);
            }
        }
        Some(known)
    }
}

/// The words of an entry after store and register.
fn parse_entry<'a>(words: &mut impl Iterator<Item = &'a str>, former: bool) -> Option<Entry> {
    let version = words.next()?.parse().ok()?;
    let reserved = match former {
        true => version,
        false => words.next()?.parse().ok()?,
    };
    let digest = match words.next()? {
        "-" => None,
        digest => Some(from_hex(digest)?.try_into().ok()?),
    };
    let metadata = match former {
        true => "-",
        false => words.next()?,
    };
    let metadata = match metadata {
        "-" => None,
        metadata => ScMetadata::from_bytes(&from_hex(metadata)?).ok()?,
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

fn place_digest(place: &str) -> Digest {
    Sha256::digest(place).into()
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
            "{FORMER_MAGIC}\n{store} cor:0:1 4 {digest}\n{store} cor:0:2 5 -\n{store} cow:0:2 6 {digest} {digest} cor:0:1=4\n"
        );
        let code = ledger.key.code(&[b"ledger", lines.as_bytes()]);
        let known = ledger.parse(&format!("{lines}{}\n", hex(&code))).unwrap();
        let entries: Vec<_> = known.entries.values().collect();
        let versions: Vec<_> = entries.iter().map(|e| (e.version, e.reserved)).collect();
        assert_eq!(versions, [(4, 4), (5, 5), (6, 6)]);
        assert_eq!(entries[0].digest, Some([3; 32]));
        assert_eq!((entries[1].digest, entries[1].metadata), (None, None));
        let origin = entries[2].origin.as_ref().unwrap();
        assert_eq!(origin.inputs, [("cor:0:1".parse().unwrap(), 4)]);
        // It is written in the present one, and comes back the same.
        let written = Ledger { known, ..ledger };
        let again = written.parse(&written.text()).unwrap();
        assert_eq!(again.entries, written.known.entries);
    }
}
