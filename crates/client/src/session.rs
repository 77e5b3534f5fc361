//! Sessions: keys, test vectors, programs and samples on a drive, addressed by the virtual registers they land in.
//!
//! Every object is one blob whose secure computing metadata names its register; writing the blob again replaces it.
//! Table 6 of the platform paper is [`Session::put_keys`] and [`Session::run`]. One by one these are [`Session::generate_key`] twice,
//! [`Session::put_test_vector`], [`Session::put_program`], [`Session::put_sample`] of x, and the trigger: `put_sample` of y into a
//! TLWE-CoW register, whose result [`Session::get_sample`] fetches.

mod program;
mod width;

use std::io::Read;
use std::sync::Arc;

use tokio::sync::mpsc;
use toroid_isa::metadata::{MetadataError, ScMetadata};
use toroid_isa::{
    Instruction, KeyKind, Program, ProgramTooLong, TableError, TestVector, VrError, VrNumber,
    VrType, wrap_count,
};
use toroid_nvme::Controller;
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::noise::StatedNoise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::{Kind, ObjectReader};
use toroid_tfhe::{Ciphertext, ClientKey, TfheError};

pub use program::Outputs;

use crate::blob::{
    BlobError, BlobId, BlobStat, BlobStore, BlobWriter, FormatOptions, MountOptions, NewBlob,
};

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
    /// The generating task was lost.
    #[error("key generation stopped: {0}")]
    Task(#[from] tokio::task::JoinError),
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
}

impl StoredSample {
    /// The sample that metadata and data describe; `None` where the data has not the size of a sample of the metadata's parameter set.
    ///
    /// # Errors
    /// [`TfheError::NotCanonical`].
    pub fn new(sc: ScMetadata, data: &[u8]) -> Result<Option<StoredSample>, TfheError> {
        let Some(params) = ParamSet::by_id(sc.params()).filter(|set| set.lwe_bytes() == data.len())
        else {
            return Ok(None);
        };
        let noise = StatedNoise {
            log2_variance: sc.log2_variance().map(f64::from),
            log2_failure: sc.log2_p_fail().map(f64::from),
        };
        let encoding = Encoding::new(u32::from(sc.message_bits()), sc.signed()).ok();
        Ok(Some(StoredSample {
            register: sc.vr(),
            ciphertext: Ciphertext::from_sample(params, encoding, data, noise)?,
            computed: sc.computed(),
        }))
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
}

impl Session {
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
        Ok(Session { store })
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
        Ok(Session { store })
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
        let id = self.blob(sc).await?;
        let writer = self.store.writer_with_sc(id, sc.size(), Some(sc)).await?;
        Ok(writer.with_progress(progress.clone()))
    }

    async fn put(
        &self,
        sc: ScMetadata,
        data: &[u8],
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        let mut writer = self.writer(sc, progress).await?;
        writer.write(data).await?;
        Ok(writer.commit().await?)
    }

    /// Generates a public key on all cores and writes it to the drive, seeded, as it comes. A few GGSW samples a thread are
    /// in memory at a time, never the key.
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
        let params = client.params();
        let sc = key_metadata(key_id, params, kind, KeyForm::Seeded)?;
        let mut writer = self.writer(sc, progress).await?;
        let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(1);
        let client = client.clone();
        let task = tokio::task::spawn_blocking(move || {
            let mut rng = Csprng::from_os()?;
            let form = KeyForm::Seeded;
            // The store's writer looks at the cancellation token; when it stops, the channel closes.
            let progress = Progress::none();
            let mut sink = |bytes: &[u8]| {
                sender
                    .blocking_send(bytes.to_vec())
                    .map_err(|_| TfheError::Cancelled)
            };
            match kind {
                KeyKind::Bootstrapping => {
                    client.bootstrapping_key(form, &mut rng, &progress, &mut sink)
                }
                KeyKind::KeySwitching => {
                    client.key_switching_key(form, &mut rng, &progress, &mut sink)
                }
            }
        });
        while let Some(bytes) = receiver.recv().await {
            writer.write(&bytes).await?;
        }
        task.await??;
        Ok(writer.commit().await?)
    }

    /// Generates both public keys of a client key onto the drive: [`Session::generate_key`] twice.
    ///
    /// # Errors
    /// Those of [`Session::generate_key`].
    pub async fn put_keys(
        &self,
        key_id: u32,
        client: &ClientKey,
        progress: &Progress,
    ) -> Result<(), SessionError> {
        for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
            self.generate_key(key_id, client, kind, progress).await?;
        }
        Ok(())
    }

    /// Writes a public key from its file, in the form that it has there.
    ///
    /// # Errors
    /// Those of the file and of the store.
    pub async fn put_key<R: Read>(
        &self,
        key_id: u32,
        mut reader: ObjectReader<R>,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        let (kind, form) = public_key(reader.header().kind).ok_or_else(|| {
            TfheError::Format(format!(
                "a {} is not a public key",
                reader.header().kind.name()
            ))
        })?;
        let sc = key_metadata(key_id, &reader.header().params, kind, form)?;
        let mut writer = self.writer(sc, progress).await?;
        while let Some(chunk) = reader.next_chunk()? {
            writer.write(chunk).await?;
        }
        Ok(writer.commit().await?)
    }

    /// Builds a program's test vector for a parameter set and writes it.
    ///
    /// # Errors
    /// [`SessionError::TestVector`] where the expression fails at some input or the values stand in a file that has not been
    /// read ([`crate::tables::read_files`]), and those of the store.
    pub async fn put_test_vector(
        &self,
        params: &ParamSet,
        vector: &TestVector,
    ) -> Result<TestVectorReport, SessionError> {
        let (bytes, input, report) = test_vector_bytes(params, vector)?;
        let sc = ScMetadata::new(vector.vr, params.id, bytes.len() as u64)?
            .with_message(input.bits() as u8, input.is_signed())?
            .with_output_bits(report.bits.1 as u8)?;
        self.put(sc, &bytes, &Progress::none()).await?;
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
        let bytes = toroid_isa::encode(program);
        let sc = ScMetadata::new(VrNumber::program(key_id)?, params.id, bytes.len() as u64)?;
        self.put(sc, &bytes, &Progress::none()).await
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
        let sc = sample_metadata(vr, sample)?;
        self.put(sc, sample.sample(), &Progress::none()).await
    }

    /// Makes room for a sample of a register, for others to write its blocks ([`raw`](crate::raw)). Where there is one already, its room
    /// stays as it is.
    ///
    /// # Errors
    /// [`SessionError::WrongType`], and those of the store.
    pub async fn reserve(&self, vr: VrNumber, params: &ParamSet) -> Result<BlobStat, SessionError> {
        if !vr.ty().is_sample() {
            return Err(SessionError::WrongType(vr, "LWE samples"));
        }
        let sc = ScMetadata::new(vr, params.id, params.lwe_bytes() as u64)?;
        let same = |stat: &BlobStat| {
            stat.size == sc.size() && stat.sc.is_some_and(|other| other.params() == params.id)
        };
        if let Some(stat) = self.find(vr).filter(same) {
            return Ok(stat);
        }
        let id = self.blob(sc).await?;
        Ok(self.store.reserve(id, sc).await?)
    }

    /// Reads a sample. A TLWE-CoR sample runs the program, if the drive has one; what comes back is the result.
    ///
    /// # Errors
    /// [`SessionError::Missing`], and those of the store.
    pub async fn get_sample(&self, vr: VrNumber) -> Result<StoredSample, SessionError> {
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
        StoredSample::new(sc, &blob.data)?.ok_or_else(|| {
            unexpected(format!(
                "{} bytes of parameter set {}",
                blob.data.len(),
                sc.params()
            ))
        })
    }

    /// Deletes what is stored for a register. The register itself keeps its content until the drive is opened anew.
    ///
    /// # Errors
    /// [`SessionError::Missing`], and those of the store.
    pub async fn delete(&self, vr: VrNumber) -> Result<(), SessionError> {
        let stat = self.find(vr).ok_or(SessionError::Missing(vr))?;
        Ok(self.store.delete_blob(stat.id).await?)
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
                && blob
                    .sc
                    .is_some_and(|sc| sc.vr().ty() == VrType::LweCor && sc.vr().key_id() == key_id)
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
            let session = Session { store };
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
            let fits = |sc: ScMetadata| sc.vr().key_id() == key_id && wanted(sc.vr().ty());
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
            let mut reader = self.store.reader(blob.id)?;
            while let Some(chunk) = reader.next_chunk().await? {
                progress.check().map_err(BlobError::from)?;
                done += chunk.len() as u64;
                progress.report("load", done, total);
            }
        }
        Ok(done)
    }
}

/// Which public key a file of this kind holds, and in which form; `None` for anything else.
#[must_use]
pub fn public_key(kind: Kind) -> Option<(KeyKind, KeyForm)> {
    match kind {
        Kind::BootstrappingKey => Some((KeyKind::Bootstrapping, KeyForm::Expanded)),
        Kind::KeySwitchingKey => Some((KeyKind::KeySwitching, KeyForm::Expanded)),
        Kind::SeededBootstrappingKey => Some((KeyKind::Bootstrapping, KeyForm::Seeded)),
        Kind::SeededKeySwitchingKey => Some((KeyKind::KeySwitching, KeyForm::Seeded)),
        Kind::ClientKey | Kind::EncryptedClientKey | Kind::TestVector | Kind::Sample => None,
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
    Ok(match sample.encoding() {
        Some(encoding) => sc.with_message(encoding.bits() as u8, encoding.is_signed())?,
        None => sc,
    })
}

fn key_metadata(
    key_id: u32,
    params: &ParamSet,
    kind: KeyKind,
    form: KeyForm,
) -> Result<ScMetadata, SessionError> {
    let size = match kind {
        KeyKind::Bootstrapping => form.bootstrapping_key_bytes(params),
        KeyKind::KeySwitching => form.key_switching_key_bytes(params),
    };
    Ok(ScMetadata::new(
        VrNumber::key(key_id, kind)?,
        params.id,
        size,
    )?)
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
