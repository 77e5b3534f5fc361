//! Sessions: keys, test vectors, programs and samples on a drive, addressed by the virtual registers they land in.
//!
//! Every object is one blob whose secure computing metadata names its register; writing the blob again replaces it.
//! Table 6 of the platform paper is [`Session::put_keys`] and [`Session::run`]. One by one these are [`Session::generate_key`] twice,
//! [`Session::put_test_vector`], [`Session::put_program`], [`Session::put_sample`] of x, and the trigger: `put_sample` of y into a
//! TLWE-CoW register, whose result [`Session::get_sample`] fetches.

mod object;
mod program;
pub(crate) mod runs;
mod width;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toroid_isa::metadata::{KeyTagStart, MetadataError, ScMetadata};
use toroid_isa::{
    Instruction, KeyKind, MAX_ENCODED_BYTES, Program, ProgramTooLong, TableError, TestVector,
    VrError, VrNumber, VrType, wrap_count,
};
use toroid_nvme::{Controller, Status};
use toroid_rns::ring_set::RingSet;
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::KeyTag;
use toroid_tfhe::noise::{Noise, StatedNoise};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::{Kind, ObjectReader};
use toroid_tfhe::{Ciphertext, ClientKey, TfheError};

pub use object::Object;
#[cfg(feature = "image")]
pub(crate) use program::inputs;
use program::noise_of_result;
pub use program::{Outputs, predicted_noise, result_name};
use runs::Runs;
#[cfg(feature = "image")]
pub(crate) use width::check as check_widths;

use crate::blob::{
    BlobError, BlobId, BlobStat, BlobStore, BlobWriter, FormatOptions, MountOptions, NewBlob,
};
use crate::columns::error::ColumnError;
#[cfg(feature = "image")]
use crate::ledger::{
    Binding, Digest, Entry, Ledger, LedgerError, LedgerFault, ObjectDigest, Origin, Subject,
    bytes_digest,
};

/// What a ledger is to have of a program's result: [`Session::accept`].
#[derive(Debug)]
#[must_use]
pub struct ComputedEntry {
    register: VrNumber,
    entry: Entry,
}

impl ComputedEntry {
    /// What the result was computed from.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        self.entry.origin.as_ref()
    }
}

/// Why a session's call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// From the blob store or the drive.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The scheme refused.
    #[error(transparent)]
    Tfhe(#[from] TfheError),
    /// Metadata that cannot exist.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A program that is too long.
    #[error(transparent)]
    Program(#[from] ProgramTooLong),
    /// A register number that cannot exist.
    #[error(transparent)]
    Register(#[from] VrError),
    /// A test vector's expression or table.
    #[error("test vector {name}")]
    TestVector {
        /// Its name in the program.
        name: String,
        /// What is wrong.
        source: TableError,
    },
    /// A test vector whose widths do not fit the parameter set.
    #[error("test vector {name}")]
    TestVectorWidth {
        /// Its name in the program.
        name: String,
        /// Which width, and what fits.
        source: TfheError,
    },
    /// A program applies a function to a sample of another width than it takes.
    #[error(
        "{register} takes a message of {bits} bits into {function}, which is a function of {expected} bits"
    )]
    Width {
        /// The register that triggers the program.
        register: VrNumber,
        /// Message bits of the sample, or of the widest that is added to it.
        bits: u32,
        /// The test vector.
        function: VrNumber,
        /// Message bits that it takes.
        expected: u32,
    },
    /// A program would run on what its registers hold already.
    #[error(
        "the program does not read {register}, so it would run on what stands in {} already; expected one of these as its trigger",
        reads.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    NotRead {
        /// The register whose access triggers the program.
        register: VrNumber,
        /// Those that the program reads.
        reads: Vec<VrNumber>,
    },
    /// Nothing is stored for this register.
    #[error("nothing is stored for {0}")]
    Missing(VrNumber),
    /// The register is not of the type that the call is for.
    #[error("{0} is not a register for {1}")]
    WrongType(VrNumber, &'static str),
    /// What the drive gave back is not what was stored.
    #[error("the drive returned {found} for {vr}, expected {expected}")]
    Unexpected {
        /// Register.
        vr: VrNumber,
        /// Expected.
        expected: String,
        /// Found.
        found: String,
    },
    /// A program has no register of this name.
    #[error("the program has no register {0}")]
    NoSuchRegister(String),
    /// The inputs of a program do not tell what triggers it.
    #[error(
        "{0} inputs trigger the program; expected one in a cow register, or any in cor registers alone"
    )]
    Triggers(usize),
    /// A program without a result.
    #[error("the program returns nothing")]
    NoResult,
    /// The drive stored the samples, but computed nothing.
    #[error("the drive did not run a program for {0}")]
    NotComputed(VrNumber),
    /// Samples that trigger a program can be loaded only around a stored one.
    #[error(
        "no program is stored for {0}, which may hold one: loading would lose it; put the program first, or open the drive anew"
    )]
    NoStoredProgram(VrNumber),
    /// The program that loading displaces could not be brought back.
    #[error("{program} may be left with a program that computes nothing; put the program again")]
    NotRestored {
        /// The program's register.
        program: VrNumber,
        /// Why.
        source: Box<SessionError>,
    },
    /// The file of an object to be put cannot be read.
    #[error("the file for {vr}")]
    Source {
        /// The object.
        vr: VrNumber,
        /// Why.
        source: TfheError,
    },
    /// Two objects of one call are for the same register.
    #[error("two objects are for {0}")]
    Twice(VrNumber),
    /// What is stored for the key id, or comes with it, belongs to another client key.
    #[error(
        "{vr} would belong to another client key than {other} does: put it under another key id, delete what the other key has there, or have its keys \
         replaced"
    )]
    KeyTag {
        /// The object to be put.
        vr: VrNumber,
        /// One that belongs to another client key.
        other: VrNumber,
    },
    /// Keys are to be replaced, and others of the same client key would stay under the key id.
    #[error(
        "{vr} is replaced, and {other} of another client key would stay: delete that first, or put {vr} under another key id"
    )]
    Stays {
        /// The key to be put.
        vr: VrNumber,
        /// One that belongs to another client key.
        other: VrNumber,
    },
    /// The drive gave something else than what this client put there.
    #[error("{vr} on the drive cannot be trusted: {source}")]
    Untrusted {
        /// The register.
        vr: VrNumber,
        /// What is wrong.
        source: LedgerFault,
    },
    /// A column cannot be used as it should be.
    #[error("column {name}")]
    Column {
        /// Its name.
        name: String,
        /// Why.
        source: ColumnError,
    },
    /// From the ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The generating task was lost.
    #[error("key generation stopped: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl SessionError {
    /// The status that the drive completed a command with, if that is why the call did not succeed.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            SessionError::Blob(BlobError::Nvme(error)) => error.status(),
            _ => None,
        }
    }
}

/// What a call puts, of which each key id's part must belong to one client key with what is stored there.
struct Together {
    put: BTreeMap<VrNumber, ScMetadata>,
    /// Whether keys take the place of another client key's, since the caller wants that.
    replaces: bool,
}

impl Together {
    fn of(objects: &[Object<'_>], replaces: bool) -> Result<Together, SessionError> {
        let mut put = BTreeMap::new();
        for object in objects {
            let sc = object.metadata();
            if put.insert(sc.vr(), *sc).is_some() {
                return Err(SessionError::Twice(sc.vr()));
            }
        }
        Ok(Together { put, replaces })
    }

    fn check(&self, stored: &[BlobStat]) -> Result<(), SessionError> {
        let mut tags: BTreeMap<u32, (KeyTagStart, VrNumber)> = BTreeMap::new();
        for sc in objects_of(stored) {
            let is_key = sc.vr().ty() == VrType::Key;
            let counts = !self.put.contains_key(&sc.vr()) || is_key && !self.replaces;
            if let Some(tag) = sc.key_tag().filter(|_| counts) {
                tags.entry(sc.vr().key_id()).or_insert((tag, sc.vr()));
            }
        }
        for (vr, sc) in &self.put {
            if let Some(tag) = sc.key_tag() {
                let (held, other) = *tags.entry(vr.key_id()).or_insert((tag, *vr));
                if held != tag {
                    let vr = *vr;
                    return Err(match self.replaces && !self.put.contains_key(&other) {
                        true => SessionError::Stays { vr, other },
                        false => SessionError::KeyTag { vr, other },
                    });
                }
            }
        }
        Ok(())
    }
}

/// What the drive states of objects that are stored.
fn objects_of(blobs: &[BlobStat]) -> impl Iterator<Item = ScMetadata> {
    blobs
        .iter()
        .filter(|blob| blob.written)
        .filter_map(|blob| blob.sc)
}

/// A sample as it came from the drive.
#[derive(Clone, Debug)]
pub struct StoredSample {
    /// Its register.
    pub register: VrNumber,
    /// The sample, with the noise and the failure probability that the drive states.
    pub ciphertext: Ciphertext,
    /// Whether the drive computed it: it is a program's result.
    pub computed: bool,
    /// Start of the tag of its client key, if the drive states one.
    pub key_tag: Option<KeyTagStart>,
}

impl StoredSample {
    /// The sample that metadata and data describe; `None` where the data has not the size of a sample of the metadata's parameter set, or is a column.
    ///
    /// # Errors
    /// [`TfheError::NotCanonical`].
    pub fn new(sc: ScMetadata, data: &[u8]) -> Result<Option<StoredSample>, TfheError> {
        let params = ParamSet::by_id(sc.params());
        let Some(params) = params.filter(|set| set.lwe_bytes() == data.len() && !sc.column())
        else {
            return Ok(None);
        };
        let noise = stated_noise(&sc);
        let encoding = Encoding::of_samples(params, sc.message_bits().into(), sc.signed()).ok();
        Ok(Some(StoredSample {
            register: sc.vr(),
            ciphertext: Ciphertext::from_sample(params, encoding, data, noise)?,
            computed: sc.computed(),
            key_tag: sc.key_tag(),
        }))
    }
}

/// What a register's blob holds.
pub(crate) struct Blob {
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
}

impl Blob {
    fn sample(&self, sc: ScMetadata) -> Result<StoredSample, SessionError> {
        StoredSample::new(sc, &self.data)?.ok_or_else(|| SessionError::Unexpected {
            vr: sc.vr(),
            expected: "a sample with its metadata".to_owned(),
            found: match (sc.column(), self.data.len()) {
                (true, bytes) => format!("a column of {bytes} bytes"),
                (false, bytes) => format!("{bytes} bytes of parameter set {}", sc.params()),
            },
        })
    }
}

/// What became of a test vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestVectorReport {
    /// Its name in the program.
    pub name: String,
    /// Its register.
    pub vr: VrNumber,
    /// Input messages whose value leaves the output's range (padding bit included) and stands there modulo 2^(p+1).
    pub wrapped: usize,
    /// Input messages.
    pub entries: usize,
    /// Bits of the input and of the output.
    pub bits: (u32, u32),
}

/// A drive with a blob store on it.
pub struct Session {
    store: BlobStore,
    ledger: Option<Arc<Mutex<Ledger>>>,
    /// What runs on columns hold.
    #[cfg(feature = "image")]
    runs: Runs,
}

impl Session {
    /// A session without a ledger.
    fn of(store: BlobStore) -> Session {
        Session {
            store,
            ledger: None,
            #[cfg(feature = "image")]
            runs: Runs::default(),
        }
    }

    /// What runs on columns hold.
    #[cfg(feature = "image")]
    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Formats a namespace: all that it held is lost.
    ///
    /// # Errors
    /// [`SessionError::Blob`].
    pub async fn format(
        controller: Arc<dyn Controller>,
        nsid: u32,
        options: FormatOptions,
    ) -> Result<Session, SessionError> {
        let store = BlobStore::format(controller, nsid, options).await?;
        Ok(Session::of(store))
    }

    /// Opens the store on a namespace.
    ///
    /// # Errors
    /// [`SessionError::Blob`].
    pub async fn open(controller: Arc<dyn Controller>, nsid: u32) -> Result<Session, SessionError> {
        Session::open_with(controller, nsid, MountOptions::default()).await
    }

    /// Opens the store on a namespace in a way of the caller's.
    ///
    /// # Errors
    /// [`SessionError::Blob`].
    pub async fn open_with(
        controller: Arc<dyn Controller>,
        nsid: u32,
        options: MountOptions,
    ) -> Result<Session, SessionError> {
        let store = BlobStore::mount(controller, nsid, options).await?;
        Ok(Session::of(store))
    }

    /// The same session, which binds what it puts and checks what it gets ([`ledger`](crate::ledger)).
    #[must_use]
    pub fn with_ledger(self, ledger: Arc<Mutex<Ledger>>) -> Session {
        Session {
            ledger: Some(ledger),
            ..self
        }
    }

    pub(crate) fn ledger(&self) -> Option<MutexGuard<'_, Ledger>> {
        let ledger = self.ledger.as_ref()?;
        Some(ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The ledger with what other processes have entered since. A session that only reads sees the store as it was when it was opened: what was
    /// entered after that is of objects that it does not see, and would make those that it sees look rolled back.
    pub(crate) fn newest_ledger(&self) -> Result<Option<MutexGuard<'_, Ledger>>, LedgerError> {
        let mut ledger = self.ledger();
        if let Some(ledger) = ledger.as_mut().filter(|_| !self.store.is_read_only()) {
            ledger.refresh()?;
        }
        Ok(ledger)
    }

    /// Whether it binds what it puts.
    pub(crate) fn has_ledger(&self) -> bool {
        self.ledger.is_some()
    }

    /// The store under this session.
    #[must_use]
    pub fn store(&self) -> &BlobStore {
        &self.store
    }

    /// The blob that belongs into a register.
    #[must_use]
    pub fn find(&self, vr: VrNumber) -> Option<BlobStat> {
        self.store
            .find_by_sc(vr)
            .into_iter()
            .rfind(|blob| blob.written)
    }

    /// The register's blob, or a new one.
    async fn blob(&self, sc: ScMetadata) -> Result<BlobId, SessionError> {
        // One that a failed first write left counts too.
        match self.store.find_by_sc(sc.vr()).pop() {
            Some(stat) => Ok(stat.id),
            None => Ok(self
                .store
                .create_blob(NewBlob {
                    name: sc.vr().to_string(),
                    sc: Some(sc),
                })
                .await?),
        }
    }

    /// Starts replacing what is stored for the metadata's register.
    async fn writer(
        &self,
        sc: ScMetadata,
        progress: &Progress,
    ) -> Result<BlobWriter, SessionError> {
        let name = sc.vr().to_string();
        // One that a failed first write left counts too.
        let writer = match self.store.find_by_sc(sc.vr()).pop() {
            Some(stat) => {
                let writer = self.store.writer_with_sc(stat.id, sc.size(), Some(sc));
                let mut writer = writer.await?;
                writer.set_name(name)?;
                writer
            }
            None => {
                let blob = NewBlob { name, sc: Some(sc) };
                self.store.new_writer(blob, sc.size()).await?
            }
        };
        Ok(writer.with_progress(progress.clone()))
    }

    /// Versions for objects that are about to be put, if there is a ledger.
    fn reserve_versions(&self, objects: &[Object<'_>]) -> Result<Option<Vec<u64>>, SessionError> {
        let Some(mut ledger) = self.ledger() else {
            return Ok(None);
        };
        let registers = objects.iter().map(|object| object.metadata().vr());
        let former = |vr| Binding::of(&self.find(vr)?.name, vr);
        let registers = registers.map(|vr| (vr.into(), former(vr))).collect();
        Ok(Some(ledger.reserve(self.store.uuid(), registers)?))
    }

    /// The name under which an object of a version is stored, and its entry in the ledger.
    fn bind(&self, sc: &ScMetadata, digest: Digest, version: u64) -> Option<(String, Entry)> {
        Some(self.ledger()?.bind(self.store.uuid(), sc, digest, version))
    }

    /// Enters into the ledger what has happened on the drive.
    pub(crate) fn enter(
        &self,
        entries: impl IntoIterator<Item = (impl Into<Subject>, Entry)>,
    ) -> Result<(), SessionError> {
        let entries = entries.into_iter();
        let entries = entries.map(|(subject, entry)| (subject.into(), entry));
        match self.ledger() {
            Some(mut ledger) => Ok(ledger.enter(self.store.uuid(), entries)?),
            None => Ok(()),
        }
    }

    /// Writes objects into their registers, bootstrapping keys first: after any failure either all of them are stored, or what was
    /// stored before. There must be room for both. A drive that stays open may have some of the new ones in its registers even so:
    /// [`Session::load`] brings the old ones back.
    ///
    /// # Errors
    /// Before anything is written [`SessionError::Twice`], [`BlobError::NoSpace`], and, where another client key has something under the key id,
    /// [`SessionError::KeyTag`] and [`ColumnError::OtherKey`]; those of the objects' sources, of the store and of the drive.
    pub async fn put(
        &self,
        objects: Vec<Object<'_>>,
        progress: &Progress,
    ) -> Result<Vec<BlobStat>, SessionError> {
        self.check_columns(&objects).await?;
        self.put_checked(objects, false, progress).await
    }

    /// [`Session::put`], by which keys take the place of another client key's: programs no longer run on columns of that one.
    ///
    /// # Errors
    /// Those of [`Session::put`]; also [`SessionError::Stays`] where another object of the other client key stays under the key id.
    pub async fn replace(
        &self,
        objects: Vec<Object<'_>>,
        progress: &Progress,
    ) -> Result<Vec<BlobStat>, SessionError> {
        self.put_checked(objects, true, progress).await
    }

    async fn put_checked(
        &self,
        mut objects: Vec<Object<'_>>,
        replaces: bool,
        progress: &Progress,
    ) -> Result<Vec<BlobStat>, SessionError> {
        let together = Together::of(&objects, replaces)?;
        together.check(&self.store.list())?;
        objects.sort_by_key(|object| {
            let vr = object.metadata().vr();
            vr.ty() != VrType::Key || vr.data_id() != KeyKind::Bootstrapping.data_id()
        });
        let mut writers = Vec::with_capacity(objects.len());
        for object in &objects {
            writers.push(self.writer(*object.metadata(), progress).await?);
        }
        // Before the drive gets any of them: if this client dies now, none of its objects has the version of another.
        let mut versions = self.reserve_versions(&objects)?.map(Vec::into_iter);
        let mut entries = Vec::new();
        for (object, writer) in objects.into_iter().zip(&mut writers) {
            let sc = *object.metadata();
            let digest = object.write(writer).await?;
            let version = versions.as_mut().and_then(Iterator::next);
            let bound = version.and_then(|version| self.bind(&sc, digest, version));
            if let Some((name, entry)) = bound {
                writer.set_name(name)?;
                entries.push((sc.vr(), entry));
            }
        }
        // Another client's may have come meanwhile.
        let check = move |stored: &[BlobStat]| together.check(stored);
        let stats = self.store.commit_all_if(writers, check).await?;
        self.enter(entries)?;
        Ok(stats)
    }

    pub(crate) async fn put_one(
        &self,
        object: Object<'_>,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        Ok(self.put(vec![object], progress).await?.remove(0))
    }

    /// Checks that keys which come to a key id find no columns of another client key there.
    async fn check_columns(&self, objects: &[Object<'_>]) -> Result<(), SessionError> {
        let keys = objects.iter().map(Object::metadata);
        for sc in keys.filter(|sc| sc.vr().ty() == VrType::Key) {
            let (vr, tag) = (sc.vr(), sc.key_tag());
            let of_id = |stored: &ScMetadata| {
                stored.vr().ty() == VrType::Key && stored.vr().key_id() == vr.key_id()
            };
            let is_known = self
                .stored()
                .into_iter()
                .filter(of_id)
                .any(|stored| stored.key_tag() == tag);
            if let Some(tag) = tag.filter(|_| !is_known)
                && let Some(name) = self.column_of_other_key(vr.key_id(), tag).await?
            {
                let source = ColumnError::OtherKey(vr);
                return Err(SessionError::Column { name, source });
            }
        }
        Ok(())
    }

    /// What the drive states of all objects that are stored.
    fn stored(&self) -> Vec<ScMetadata> {
        objects_of(&self.store.list()).collect()
    }

    /// Refuses to compute on a column of a key id that has keys of another client key.
    #[cfg(feature = "image")]
    pub(crate) fn check_column_key(
        &self,
        key_id: u32,
        tag: Option<KeyTagStart>,
    ) -> Result<(), ColumnError> {
        let other = self.stored().into_iter().find(|stored| {
            let vr = stored.vr();
            let differs = |tag| stored.key_tag().is_some_and(|other| other != tag);
            vr.ty() == VrType::Key && vr.key_id() == key_id && tag.is_some_and(differs)
        });
        match other {
            Some(other) => Err(ColumnError::OtherKey(other.vr())),
            None => Ok(()),
        }
    }

    /// Generates a public key and writes it to the drive as it comes ([`Object::generated_key`]).
    ///
    /// # Errors
    /// Those of generation and of the store; [`BlobError::Cancelled`] leaves the old key stored. The drive has dropped it from
    /// its register by then: [`Session::load`] brings it back.
    pub async fn generate_key(
        &self,
        key_id: u32,
        client: &ClientKey,
        kind: KeyKind,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        let key = Object::generated_key(key_id, client, kind)?;
        self.put_one(key, progress).await
    }

    /// Generates both public keys of a client key onto the drive, both or none.
    ///
    /// # Errors
    /// Those of [`Session::put`].
    pub async fn put_keys(
        &self,
        key_id: u32,
        client: &ClientKey,
        progress: &Progress,
    ) -> Result<(), SessionError> {
        let keys = [KeyKind::Bootstrapping, KeyKind::KeySwitching]
            .map(|kind| Object::generated_key(key_id, client, kind));
        let keys = keys.into_iter().collect::<Result<_, _>>()?;
        self.put(keys, progress).await.map(drop)
    }

    /// Generates the key by which the drive computes on ring columns, and writes it to the drive as it comes ([`Object::ring_key`]).
    ///
    /// # Errors
    /// As [`Session::generate_key`].
    pub async fn generate_ring_key(
        &self,
        key_id: u32,
        client: &ClientKey,
        set: &'static RingSet,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        let key = Object::ring_key(key_id, client, set)?;
        self.put_one(key, progress).await
    }

    /// Generates the keys by which columns change between samples and ring columns on the drive, and writes them to the drive
    /// ([`Object::conversion_key`]).
    ///
    /// # Errors
    /// As [`Session::generate_key`].
    pub async fn generate_conversion_key(
        &self,
        key_id: u32,
        client: &ClientKey,
        set: &'static RingSet,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        let key = Object::conversion_key(key_id, client, set)?;
        self.put_one(key, progress).await
    }

    /// Generates all keys by which programs go over columns by ciphertexts of a ring: that of the ring, and the conversion key where samples
    /// of the client key become ring columns. With `replace`, they take the place of those of another client key.
    ///
    /// # Errors
    /// As [`Session::generate_key`], [`Session::replace`].
    pub async fn put_ring_keys(
        &self,
        key_id: u32,
        (client, set): (&ClientKey, &'static RingSet),
        replace: bool,
        progress: &Progress,
    ) -> Result<(BlobStat, Option<BlobStat>), SessionError> {
        // Only samples of sets for wide functions become ring columns.
        let converts = client.params().is_wide();
        if replace {
            let ring = Object::ring_key(key_id, client, set)?;
            let conversion = converts.then(|| Object::conversion_key(key_id, client, set));
            let keys = Vec::from_iter([Some(ring), conversion.transpose()?].into_iter().flatten());
            let mut stats = self.replace(keys, progress).await?.into_iter();
            let ring = stats.next().ok_or(SessionError::NoResult)?;
            return Ok((ring, stats.next()));
        }
        let ring = self
            .generate_ring_key(key_id, client, set, progress)
            .await?;
        let conversion = match converts {
            true => Some(
                self.generate_conversion_key(key_id, client, set, progress)
                    .await?,
            ),
            false => None,
        };
        Ok((ring, conversion))
    }

    /// Has the drive load the ring key of a key id, and the conversion key if a program `converts`. Nothing else loads them: the first is
    /// large, and only programs on ring columns need either. Returns the bytes read.
    ///
    /// # Errors
    /// [`SessionError::Missing`], those of the store.
    pub async fn load_ring_keys(
        &self,
        key_id: u32,
        converts: bool,
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let kinds = [KeyKind::Ring, KeyKind::Conversion].into_iter();
        let mut blobs = Vec::new();
        for kind in kinds.take(1 + usize::from(converts)) {
            let vr = VrNumber::key(key_id, kind)?;
            blobs.push(self.find(vr).ok_or(SessionError::Missing(vr))?);
        }
        let total = blobs.iter().map(|blob| blob.size).sum();
        let mut done = 0;
        for blob in &blobs {
            done = self.pass_through(blob, (done, total), progress).await?;
        }
        Ok(done)
    }

    /// Reads a blob, so that it comes into its register, and checks it if the ledger knows it. Its bytes count on from `done` of `total`;
    /// gives what is done then.
    async fn pass_through(
        &self,
        blob: &BlobStat,
        (mut done, total): (u64, u64),
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let mut reader = self.store.reader(blob.id)?;
        let mut digest = None;
        while let Some(chunk) = reader.next_chunk().await? {
            progress.check().map_err(BlobError::from)?;
            if let Some(sc) = reader.sc() {
                let digest = digest.get_or_insert_with(|| (sc, ObjectDigest::new(&sc)));
                digest.1.update(&chunk);
            }
            done += chunk.len() as u64;
            progress.report("load", done, total);
        }
        if let Some((sc, digest)) = digest.filter(|(sc, _)| self.is_known(sc)) {
            self.check(&sc, digest.finish(), &blob.name)?;
        }
        Ok(done)
    }

    /// Writes a public key from its file, in the form that it has there.
    ///
    /// # Errors
    /// Those of the file and of the store.
    pub async fn put_key<R: Read + Send>(
        &self,
        key_id: u32,
        reader: ObjectReader<R>,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        self.put_one(Object::key(key_id, reader)?, progress).await
    }

    /// Builds a program's test vector for a parameter set and writes it.
    ///
    /// # Errors
    /// Those of [`Object::test_vector`] and of the store.
    pub async fn put_test_vector(
        &self,
        params: &ParamSet,
        vector: &TestVector,
    ) -> Result<TestVectorReport, SessionError> {
        let (object, report) = Object::test_vector(params, vector)?;
        self.put_one(object, &Progress::none()).await?;
        Ok(report)
    }

    /// Writes a program into the program register of its key id.
    ///
    /// # Errors
    /// Those of the store; the drive refuses a program that it cannot run when it is triggered.
    pub async fn put_program(
        &self,
        key_id: u32,
        params: &ParamSet,
        program: &Program,
    ) -> Result<BlobStat, SessionError> {
        let object = Object::program(key_id, params, program)?;
        self.put_one(object, &Progress::none()).await
    }

    /// Writes a sample into its register. A TLWE-CoW sample runs the program; the result then stands in its place.
    ///
    /// # Errors
    /// Those of the store; with the drive's reason where the program failed.
    pub async fn put_sample(
        &self,
        vr: VrNumber,
        sample: &Ciphertext,
    ) -> Result<BlobStat, SessionError> {
        let object = Object::sample(vr, sample)?;
        self.put_one(object, &Progress::none()).await
    }

    /// Makes room for a sample of a register, for others to write its blocks ([`raw`](crate::raw)). Where there is one already, its room
    /// stays as it is.
    ///
    /// # Errors
    /// [`SessionError::WrongType`], and those of the store.
    pub async fn reserve(&self, vr: VrNumber, params: &ParamSet) -> Result<BlobStat, SessionError> {
        let sc = ScMetadata::new(vr, params.id, params.lwe_bytes() as u64)?;
        self.reserve_object(sc).await
    }

    pub(crate) async fn reserve_object(&self, sc: ScMetadata) -> Result<BlobStat, SessionError> {
        let vr = sc.vr();
        if !vr.ty().is_sample() {
            return Err(SessionError::WrongType(vr, "LWE samples"));
        }
        let kind = |sc: &ScMetadata| (sc.size(), sc.params(), sc.column());
        let same = |stat: &BlobStat| stat.sc.is_some_and(|other| kind(&other) == kind(&sc));
        if let Some(stat) = self.find(vr).filter(same) {
            return Ok(stat);
        }
        let id = self.blob(sc).await?;
        Ok(self.store.reserve(id, sc).await?)
    }

    /// Reads a sample. A TLWE-CoR sample runs the program, if the drive has one; what comes back is the result.
    ///
    /// # Errors
    /// [`SessionError::Missing`], and those of the store; [`SessionError::Untrusted`] for anything else than what the ledger expects,
    /// where there is one.
    pub async fn get_sample(&self, vr: VrNumber) -> Result<StoredSample, SessionError> {
        let (sc, blob) = self.read_sample(vr).await?;
        self.check(&sc, ObjectDigest::of(&sc, &blob.data), &blob.name)?;
        let mut stored = blob.sample(sc)?;
        if let Some(noise) = self.expected_noise(vr) {
            stored.ciphertext = stored.ciphertext.with_noise_of_at_least(&noise);
        }
        Ok(stored)
    }

    /// The noise of a register's result that the ledger expects, if it has one.
    pub(crate) fn expected_noise(&self, vr: VrNumber) -> Option<Noise> {
        let ledger = self.ledger()?;
        let entry = ledger.entry(self.store.uuid(), vr)?;
        entry.origin.as_ref()?;
        let sc = entry.metadata?;
        let params = ParamSet::by_id(sc.params())?;
        Some(stated_noise(&sc).stored(params, true))
    }

    /// Checks against the ledger, if there is one, what the drive gave; learns of newer versions.
    pub(crate) fn check(
        &self,
        sc: &ScMetadata,
        digest: Digest,
        name: &str,
    ) -> Result<(), SessionError> {
        let vr = sc.vr();
        let checked = match self.newest_ledger()? {
            Some(ledger) => ledger.check(self.store.uuid(), sc, digest, name),
            None => Ok(None),
        };
        match checked.map_err(|source| SessionError::Untrusted { vr, source })? {
            Some(newer) => self.enter([(vr, newer)]),
            None => Ok(()),
        }
    }

    /// Reads a sample's blob, whatever it holds.
    pub(crate) async fn read_sample(
        &self,
        vr: VrNumber,
    ) -> Result<(ScMetadata, Blob), SessionError> {
        if !vr.ty().is_sample() {
            return Err(SessionError::WrongType(vr, "LWE samples"));
        }
        let stat = self.find(vr).ok_or(SessionError::Missing(vr))?;
        let blob = self.store.read_blob(stat.id, &Progress::none()).await?;
        let unexpected = |found: String| SessionError::Unexpected {
            vr,
            expected: "a sample with its metadata".to_owned(),
            found,
        };
        let sc = blob
            .sc
            .filter(|sc| sc.vr() == vr)
            .ok_or_else(|| unexpected("data without metadata".to_owned()))?;
        let (name, data) = (stat.name, blob.data);
        Ok((sc, Blob { name, data }))
    }

    /// Has the drive run its program on what it stores for the key id: puts `sample` into the register, if there is one, which triggers if it is of type
    /// TLWE-CoW; and reads the register, which triggers if it is of type TLWE-CoR. With a ledger the program must be the one that this client has put there.
    /// The noise that is stated of the result is never below what follows from the program, `sample` and what was stated of the other
    /// operands when they were put. Beside the result is what [`Session::accept`] enters; a result of another client key, or of none where the sample states one, is refused.
    ///
    /// # Errors
    /// [`SessionError::NotComputed`] where no program ran and for a TLWE-CoW register without a sample, [`SessionError::Untrusted`] for a
    /// program other than this client's, [`SessionError::Unexpected`] for a result that states no client key, those of the store and of
    /// the drive.
    pub async fn trigger(
        &self,
        register: VrNumber,
        sample: Option<&Ciphertext>,
    ) -> Result<(StoredSample, Option<ComputedEntry>), SessionError> {
        self.trigger_knowing(register, sample, None).await
    }

    /// [`Session::trigger`], where the caller may know what noise the result has.
    pub(crate) async fn trigger_knowing(
        &self,
        register: VrNumber,
        sample: Option<&Ciphertext>,
        noise: Option<Noise>,
    ) -> Result<(StoredSample, Option<ComputedEntry>), SessionError> {
        if sample.is_none() && register.ty() == VrType::LweCow {
            // What stands there may be the result of a run before.
            return Err(SessionError::NotComputed(register));
        }
        let key_id = register.key_id();
        let program = match self.ledger {
            Some(_) => Some(self.own_program(key_id).await?),
            None => None,
        };
        let predicted = match (&program, &noise) {
            // Checks the operands' records as well.
            (Some((_, program)), _) => self.noise_of_result(program, register, sample)?,
            (None, Some(_)) => None,
            (None, None) => match self.stored_program(key_id).await? {
                Some(program) => self.noise_of_result(&program, register, sample)?,
                None => None,
            },
        };
        let noise = noise.or(predicted);
        if let Some(sample) = sample {
            self.put_sample(register, sample).await?;
        }
        let tag = sample.and_then(Ciphertext::tag).map(tag_start);
        // What triggers by being read was put before.
        let put = self.find(register).and_then(|stat| stat.sc?.key_tag());
        let (sc, blob) = self.read_sample(register).await?;
        let mut stored = blob.sample(sc)?;
        if !stored.computed {
            return Err(SessionError::NotComputed(register));
        }
        // The drive says how noisy the result is, and a client that has a ledger does not have to believe it.
        let params = stored.ciphertext.params();
        let unknown = || StatedNoise::default().stored(params, true);
        let unknown = self.has_ledger().then(unknown);
        if let Some(noise) = noise.or(unknown) {
            stored.ciphertext = stored.ciphertext.with_noise_of_at_least(&noise);
        }
        check_key(register, tag.or(put), stored.key_tag)?;
        let Some((digest, program)) = program else {
            return Ok((stored, None));
        };
        let found = ObjectDigest::of(&sc, &blob.data);
        let noise = stored.ciphertext.stated_noise();
        let entry = self.result_entry(&sc, (found, noise), (digest, &program));
        let entry = entry.map(|entry| ComputedEntry { register, entry });
        Ok((stored, entry))
    }

    /// What a ledger is to have of a result in a register ([`Ledger::result`]), if there is one.
    pub(crate) fn result_entry(
        &self,
        sc: &ScMetadata,
        found: (Digest, StatedNoise),
        (digest, program): (Digest, &Program),
    ) -> Option<Entry> {
        let ledger = self.ledger()?;
        let store = self.store.uuid();
        let operands = program.instructions().iter();
        let operands: BTreeSet<_> = operands.flat_map(Instruction::operands).collect();
        let operands = operands.into_iter().map(Subject::from);
        let origin = ledger.origin(store, digest, (None, None), operands);
        Some(ledger.result(store, sc, found, origin))
    }

    /// Enters a result into the ledger, so that it is taken when it comes again. Whoever computes it again does that before.
    ///
    /// # Errors
    /// [`SessionError::Ledger`].
    pub fn accept(&self, result: Option<ComputedEntry>) -> Result<(), SessionError> {
        // Of a TLWE-CoR register the drive keeps the sample, not the result.
        let stays = result.filter(|result| result.register.ty() == VrType::LweCow);
        self.enter(stays.map(|result| (result.register, result.entry)))
    }

    /// The program that is stored for a key id, if one is.
    pub(crate) async fn stored_program(
        &self,
        key_id: u32,
    ) -> Result<Option<Program>, SessionError> {
        let stat = self.find(VrNumber::program(key_id)?);
        let Some(stat) = stat.filter(|stat| stat.size <= MAX_ENCODED_BYTES as u64) else {
            return Ok(None);
        };
        let stored = self.store.read_blob(stat.id, &Progress::none()).await?;
        Ok(toroid_isa::decode(&stored.data).ok())
    }

    /// The metadata of an object that a program reads: without a ledger as the store's records have it, with one as this client gave it
    /// ([`Ledger::operand`]).
    pub(crate) fn operand(&self, vr: VrNumber) -> Result<Option<ScMetadata>, SessionError> {
        let Some((sc, name)) = self.find(vr).and_then(|stat| Some((stat.sc?, stat.name))) else {
            return Ok(None);
        };
        let Some(ledger) = self.newest_ledger()? else {
            return Ok(Some(sc));
        };
        let operand = ledger.operand(self.store.uuid(), &sc, &name);
        operand.map_err(|source| SessionError::Untrusted { vr, source })
    }

    /// The noise of a program's result, from `sample` in its register and from what is stated of other registers.
    fn noise_of_result(
        &self,
        program: &Program,
        register: VrNumber,
        sample: Option<&Ciphertext>,
    ) -> Result<Option<Noise>, SessionError> {
        let mut operands = BTreeMap::new();
        let all = program.instructions().iter();
        for vr in all.flat_map(Instruction::operands) {
            if sample.is_none() || vr != register {
                operands.insert(vr, self.operand(vr)?);
            }
        }
        let stated = |vr: VrNumber| operands.get(&vr).copied().flatten();
        let stat = self.find(VrNumber::program(register.key_id())?);
        let params = stat.and_then(|stat| ParamSet::by_id(stat.sc?.params()));
        let read = |vr| match sample {
            Some(sample) if vr == register => Some(sample.noise().clone()),
            _ => {
                let sc = stated(vr)?;
                Some(stated_noise(&sc).stored(params?, sc.computed()))
            }
        };
        let width = |tv| match stated(tv)?.message_bits() {
            0 => Some(params?.message_bits),
            bits => Some(bits.into()),
        };
        Ok(params.and_then(|params| noise_of_result(program, params, read, width)))
    }

    /// The program of a key id as this client has put it there, with its digest.
    pub(crate) async fn own_program(&self, key_id: u32) -> Result<(Digest, Program), SessionError> {
        let vr = VrNumber::program(key_id)?;
        let stat = self.find(vr).ok_or(SessionError::Missing(vr))?;
        let blob = self.store.read_blob(stat.id, &Progress::none()).await?;
        let untrusted = |source| SessionError::Untrusted { vr, source };
        let changed = || untrusted(LedgerFault::Changed);
        let sc = blob.sc.filter(|sc| sc.vr() == vr).ok_or_else(changed)?;
        self.check(&sc, ObjectDigest::of(&sc, &blob.data), &stat.name)?;
        let program = toroid_isa::decode(&blob.data).map_err(|_| changed())?;
        Ok((bytes_digest(&blob.data), program))
    }

    /// Deletes what is stored for a register. The register itself keeps its content until the drive is opened anew.
    ///
    /// # Errors
    /// [`SessionError::Missing`], and those of the store.
    pub async fn delete(&self, vr: VrNumber) -> Result<(), SessionError> {
        let stat = self.find(vr).ok_or(SessionError::Missing(vr))?;
        self.store.delete_blob(stat.id).await?;
        let deleted = self.ledger();
        let deleted = deleted.and_then(|ledger| ledger.deleted(self.store.uuid(), vr.into()));
        self.enter(deleted.map(|entry| (vr, entry)))
    }

    /// Has a drive that was just opened fill its registers of a key id from what is stored: keys, test vectors and samples
    /// first, the program last, so that no read runs it. Returns the bytes read.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn load(&self, key_id: u32, progress: &Progress) -> Result<u64, SessionError> {
        self.fill(key_id, |_| true, false, progress).await
    }

    /// Has a drive that may hold objects of the key id already, a program among them, fill its registers from what is stored; the
    /// keys only `with_keys`. Returns the bytes read.
    ///
    /// Reading a TLWE-CoR sample would run a program that is there. So each such read is preceded by a program that returns the sample
    /// itself; the stored program comes last, also where the load fails or is cancelled. It goes on to its end if the future is
    /// dropped. What others trigger with this key id meanwhile gives them their sample back, not a result.
    ///
    /// # Errors
    /// [`SessionError::NoStoredProgram`] before anything is read; [`SessionError::NotRestored`]; those of the store.
    pub async fn reload(
        &self,
        key_id: u32,
        with_keys: bool,
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let wanted = move |ty| with_keys || ty != VrType::Key;
        let program = VrNumber::program(key_id)?;
        let is_cor = |blob: &BlobStat| {
            blob.written
                && blob.sc.is_some_and(|sc| {
                    let vr = sc.vr();
                    vr.ty() == VrType::LweCor && vr.key_id() == key_id && !sc.column()
                })
        };
        if !self.store.list().iter().any(is_cor) {
            return self.fill(key_id, wanted, false, progress).await;
        }
        let stored = self
            .find(program)
            .ok_or(SessionError::NoStoredProgram(program))?;
        let (store, progress) = (self.store.clone(), progress.clone());
        // On its own: a caller that goes away must not leave another program in the register.
        let task = tokio::spawn(async move {
            let session = Session::of(store);
            let filled = session.fill(key_id, wanted, true, &progress).await;
            if filled.is_err() {
                // That the load is cancelled does not cancel this.
                let progress = Progress::none();
                let read = session.store.read_blob(stored.id, &progress);
                read.await.map_err(|error| SessionError::NotRestored {
                    program,
                    source: Box::new(error.into()),
                })?;
            }
            filled
        });
        task.await?
    }

    async fn fill(
        &self,
        key_id: u32,
        wanted: impl Fn(VrType) -> bool,
        has_program: bool,
        progress: &Progress,
    ) -> Result<u64, SessionError> {
        let mut blobs: Vec<BlobStat> = self.store.list();
        blobs.retain(|blob| {
            // No register holds a column.
            let fits =
                |sc: ScMetadata| sc.vr().key_id() == key_id && wanted(sc.vr().ty()) && !sc.column();
            let of_ring = [KeyKind::Ring, KeyKind::Conversion].map(KeyKind::data_id);
            let is_ring_key = |sc: ScMetadata| {
                sc.vr().ty() == VrType::Key && of_ring.contains(&sc.vr().data_id())
            };
            let fits = |sc: ScMetadata| fits(sc) && !is_ring_key(sc);
            blob.written && blob.sc.is_some_and(fits)
        });
        blobs.sort_by_key(|blob| blob.sc.is_some_and(|sc| sc.vr().ty() == VrType::Prg));
        let total: u64 = blobs.iter().map(|blob| blob.size).sum();
        let mut done = 0;
        for blob in blobs {
            if let Some(sc) = blob.sc
                && has_program
                && sc.vr().ty() == VrType::LweCor
            {
                let identity = Program::new(vec![Instruction::Return { n: sc.vr() }])?;
                let bytes = toroid_isa::encode(&identity);
                let program = VrNumber::program(key_id)?;
                let sc = ScMetadata::new(program, sc.params(), bytes.len() as u64)?;
                self.store.pass(sc, &bytes).await?;
            }
            done = self.pass_through(&blob, (done, total), progress).await?;
        }
        Ok(done)
    }

    /// Whether the ledger can tell what a register should hold. Of a result in a TLWE-CoW register it may not: a run without it, or one
    /// whose result was refused, leaves one there, which the next sample replaces.
    fn is_known(&self, sc: &ScMetadata) -> bool {
        let ledger = self.ledger();
        let entry = ledger.as_ref();
        let entry = entry.and_then(|ledger| ledger.entry(self.store.uuid(), sc.vr()));
        entry.is_some_and(|entry| !sc.computed() || entry.origin.is_some())
    }
}

/// Which public key a file of this kind holds, and in which form; `None` for anything else.
#[must_use]
pub fn public_key(kind: Kind) -> Option<(KeyKind, KeyForm)> {
    let of_kind = match kind.is_key_switching_key() {
        true => KeyKind::KeySwitching,
        false => KeyKind::Bootstrapping,
    };
    kind.key_form().map(|form| (of_kind, form))
}

/// What secure computing metadata says of a sample's noise.
pub(crate) fn stated_noise(sc: &ScMetadata) -> StatedNoise {
    StatedNoise {
        log2_variance: sc.log2_variance().map(f64::from),
        log2_failure: sc.log2_p_fail().map(f64::from),
    }
}

/// What secure computing metadata has of a client key's tag.
pub(crate) fn tag_start(tag: &KeyTag) -> KeyTagStart {
    std::array::from_fn(|at| tag[at])
}

/// Checks that a result states the client key that the sample which triggered the program belongs to, if that one states any.
pub(crate) fn check_key(
    register: VrNumber,
    expected: Option<KeyTagStart>,
    found: Option<KeyTagStart>,
) -> Result<(), SessionError> {
    match (expected, found) {
        (Some(_), None) => Err(SessionError::Unexpected {
            vr: register,
            expected: "a result that states its client key".to_owned(),
            found: "one that states none".to_owned(),
        }),
        (Some(expected), Some(found)) if expected != found => {
            Err(TfheError::KeyMismatch("the result").into())
        }
        _ => Ok(()),
    }
}

/// Metadata of a sample for a register.
///
/// # Errors
/// [`SessionError::WrongType`] for a register of something else.
pub fn sample_metadata(vr: VrNumber, sample: &Ciphertext) -> Result<ScMetadata, SessionError> {
    if !vr.ty().is_sample() {
        return Err(SessionError::WrongType(vr, "LWE samples"));
    }
    let (params, noise) = (sample.params(), sample.stated_noise());
    let sc = ScMetadata::new(vr, params.id, params.lwe_bytes() as u64)?
        .with_noise(noise.log2_variance, noise.log2_failure);
    let sc = match sample.tag() {
        Some(tag) => sc.with_key_tag(tag_start(tag)),
        None => sc,
    };
    Ok(match sample.encoding() {
        Some(encoding) => sc.with_message(encoding.bits() as u8, encoding.is_signed())?,
        None => sc,
    })
}

/// The bytes of a program's test vector for a parameter set, and its input encoding.
///
/// # Errors
/// [`SessionError::TestVector`] where the expression fails or a file has not been read, [`SessionError::TestVectorWidth`] where the
/// widths do not fit the set.
pub fn test_vector_bytes(
    params: &ParamSet,
    vector: &TestVector,
) -> Result<(Vec<u8>, Encoding, TestVectorReport), SessionError> {
    let failed = |source| SessionError::TestVector {
        name: vector.name.clone(),
        source,
    };
    let p_in = vector.p_in.unwrap_or(params.message_bits);
    let p_out = vector.p_out.unwrap_or(params.message_bits);
    let unfit = |source| SessionError::TestVectorWidth {
        name: vector.name.clone(),
        source,
    };
    let input = Encoding::new(p_in, vector.signed).map_err(unfit)?;
    let output = Encoding::new(p_out, vector.signed).map_err(unfit)?;
    let table = vector.table(params.message_bits).map_err(failed)?;
    let wrapped = wrap_count(&table, p_out, vector.signed).map_err(failed)?;
    let bytes = glwe::function_bytes(params, input, output, &table).map_err(unfit)?;
    let report = TestVectorReport {
        name: vector.name.clone(),
        vr: vector.vr,
        wrapped,
        entries: table.len(),
        bits: (p_in, p_out),
    };
    Ok((bytes, input, report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_states_the_client_key_of_what_triggered_it() {
        let vr = VrNumber::new(VrType::LweCow, 0, 1).unwrap();
        let [ours, theirs] = [Some([1; 12]), Some([2; 12])];
        let checked = |expected, found| check_key(vr, expected, found);
        checked(ours, ours).unwrap();
        let other = checked(ours, theirs).unwrap_err();
        assert!(matches!(
            other,
            SessionError::Tfhe(TfheError::KeyMismatch(_))
        ));
        let silent = checked(ours, None).unwrap_err();
        assert!(silent.to_string().contains("states none"), "{silent}");
        // Samples of images made before state none.
        checked(None, None).unwrap();
        checked(None, ours).unwrap();
    }
}
