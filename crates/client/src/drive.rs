//! A drive, wherever it is: [`Drive::open`].

#[cfg(feature = "image")]
mod image;
mod link;
mod options;
#[cfg(feature = "image")]
mod verifier;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::timeout;
use toroid_isa::{AssembleErrors, Assembly};
use toroid_nvme::fabrics::{ConnectError, DISCOVERY_NQN};
use toroid_nvme::tcp::{Address, AddressError};
use toroid_nvme::{Controller, ControllerInfo};
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::serialize::ObjectReader;
use toroid_tfhe::{Ciphertext, ClientKey, TfheError};
use uuid::Uuid;

use crate::blob::{self, BlobError, MountOptions};
#[cfg(target_os = "linux")]
use crate::block_device::{BlockDeviceController, BlockDeviceError};
use crate::host_identity::HostIdentityError;
use crate::ledger::{Ledger, LedgerError};
use crate::location::Location;
use crate::session::{ComputedEntry, Object, Outputs, Session, SessionError};

#[cfg(feature = "image")]
pub use image::{NewImage, create as create_image};
use link::{Link, Remote};
pub use options::OpenOptions;
#[cfg(feature = "image")]
pub use verifier::Verifier;

/// Bytes of a blob store's cluster, and of an image's.
const CLUSTER_BYTES: u64 = 1 << 20;

/// How often a call looks at the cancel token.
const PATIENCE: Duration = Duration::from_millis(50);

/// Why a drive cannot be opened, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address is that of a discovery service.
    #[error("{0} names no drive, but a service that tells which there are")]
    Discovery(Address),
    /// This host has no identity for the network.
    #[error(transparent)]
    HostIdentity(#[from] HostIdentityError),
    /// A drive on the network cannot be connected to.
    #[error("cannot use the drive at {address}")]
    Connect {
        /// Where the drive is.
        address: Address,
        /// Why.
        source: Box<ConnectError>,
    },
    /// A block device cannot be used as a drive.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// This build, or this operating system, does not open such drives.
    #[error("{location}: {missing}")]
    Unsupported {
        /// Where the drive is.
        location: Location,
        /// What is missing.
        missing: &'static str,
    },
    /// An image cannot be made or opened; the error names the file.
    #[cfg(feature = "image")]
    #[error(transparent)]
    ImageFile(toroid_drive::image::ImageError),
    /// An image cannot be made or opened.
    #[cfg(feature = "image")]
    #[error("{path}", path = path.display())]
    Image {
        /// The image.
        path: PathBuf,
        /// Why.
        source: toroid_drive::image::ImageError,
    },
    /// The drive of an image does not start.
    #[cfg(feature = "image")]
    #[error("cannot open {path}", path = path.display())]
    Start {
        /// The image.
        path: PathBuf,
        /// Why.
        source: toroid_drive::DriveError,
    },
    /// The drive of an image has no namespaces for programs.
    #[cfg(feature = "image")]
    #[error(transparent)]
    Programs(#[from] toroid_drive::ComputationalError),
    /// The drive of an image did not end as it should.
    #[cfg(feature = "image")]
    #[error(transparent)]
    Close(#[from] toroid_drive::DriveError),
    /// A file of the host could not be read, written or replaced.
    #[error("cannot {action} {path}", path = path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The drive has another blob store than the ledger's client has seen there.
    #[error(
        "{location} has blob store {found}, but had {expected} when this ledger last saw it: another drive, or formatted since"
    )]
    OtherStore {
        /// Where the drive is.
        location: Location,
        /// Identifier of the store that was there.
        expected: Uuid,
        /// Identifier of the one that is.
        found: Uuid,
    },
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The drive shows this host no namespace that holds blocks.
    #[error("the drive shows this host no namespace")]
    NoNamespace,
    /// The drive does not have the namespace.
    #[error("the drive has no namespace {nsid}; there are {found}")]
    UnknownNamespace {
        /// The namespace asked for.
        nsid: u32,
        /// Those that there are.
        found: String,
    },
    /// The blob store cannot be opened.
    #[error("cannot open the blob store on {location}")]
    Store {
        /// Where the drive is.
        location: Location,
        /// Why.
        source: Box<SessionError>,
    },
    /// The blob store cannot be made.
    #[error("cannot format {location}")]
    Format {
        /// Where the drive is.
        location: Location,
        /// Why.
        source: Box<SessionError>,
    },
    /// Formatting would destroy a blob store.
    #[error("{0} holds a blob store")]
    HoldsStore(Location),
    /// Formatting might destroy something.
    #[error("{location} may hold something")]
    MayHold {
        /// Where the drive is.
        location: Location,
        /// Why its blob store cannot be opened.
        source: Box<SessionError>,
    },
    /// The operating system gave no threads.
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    /// The caller cancelled the operation.
    #[error("interrupted")]
    Cancelled,
    /// Not a program.
    #[error(transparent)]
    Assemble(#[from] AssembleErrors),
    /// The drive's result is not that of the program on its inputs, computed by arithmetic `ntt`.
    #[error(
        "{0} is not what the program gives by arithmetic ntt: the drive computes by fft, with other keys, or otherwise than it was told"
    )]
    WrongResult(String),
    /// The operating system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
    /// A call on the session did not succeed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The same, where the drive has logged why.
    #[error("{reason}")]
    Failed {
        /// What the drive says.
        reason: String,
        /// The session's error.
        source: Box<SessionError>,
    },
}

impl DriveError {
    fn connect(address: &Address, source: ConnectError) -> DriveError {
        DriveError::Connect {
            address: address.clone(),
            source: Box::new(source),
        }
    }
}

impl From<std::convert::Infallible> for DriveError {
    fn from(never: std::convert::Infallible) -> DriveError {
        match never {}
    }
}

/// The files of a client's public keys, the bootstrapping key first, as `toroid keys generate` names them.
pub const PUBLIC_KEY_FILES: [&str; 2] = ["bootstrapping.key", "key-switching.key"];

/// A drive with a [`Session`] on its blob store: an image in this process, a drive on the network, or a block device.
///
/// Its methods block until the drive has done its work, and must not be called inside an async runtime. There, open a
/// [`Session`] on a controller.
pub struct Drive {
    session: Session,
    controller: Arc<dyn Controller>,
    link: Box<dyn Link>,
    nsid: u32,
    key_id: u32,
    /// Count of the newest failure that the drive had logged when it was last asked.
    seen: AtomicU64,
    cancel: CancelToken,
    runtime: Runtime,
    #[cfg(feature = "image")]
    verifier: Option<Arc<Verifier>>,
    /// The folder of a temporary image, which goes last.
    #[cfg(feature = "image")]
    _folder: Option<tempfile::TempDir>,
}

impl Drive {
    /// Opens the drive at a location: `nvme+tcp://HOST:PORT/NQN`, the path of an image, or a block device.
    ///
    /// # Errors
    /// [`DriveError`].
    pub fn open<L>(location: L) -> Result<Drive, DriveError>
    where
        L: TryInto<Location>,
        DriveError: From<L::Error>,
    {
        OpenOptions::new().open(location)
    }

    /// The options with which to open a drive.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    fn open_with(location: &Location, options: &OpenOptions) -> Result<Drive, DriveError> {
        let runtime = runtime()?;
        let link = connect(location, options, &runtime)?;
        let place = (location, options.new_store);
        Drive::with_session(link, options, place, runtime, async |controller, nsid| {
            let mount = MountOptions {
                read_only: options.read_only || options.reads,
                ..MountOptions::default()
            };
            Session::open_with(controller, nsid, mount)
                .await
                .map_err(|source| DriveError::Store {
                    location: location.clone(),
                    source: Box::new(source),
                })
        })
    }

    fn format_with(
        location: &Location,
        options: &OpenOptions,
        force: bool,
    ) -> Result<Drive, DriveError> {
        let runtime = runtime()?;
        let link = connect(location, options, &runtime)?;
        let place = (location, true);
        Drive::with_session(link, options, place, runtime, async |controller, nsid| {
            let location = location.clone();
            if !force {
                let look = MountOptions {
                    read_only: true,
                    ..MountOptions::default()
                };
                match Session::open_with(Arc::clone(&controller), nsid, look).await {
                    Err(SessionError::Blob(BlobError::NotFormatted { .. })) => {}
                    Err(source) => {
                        let source = Box::new(source);
                        return Err(DriveError::MayHold { location, source });
                    }
                    Ok(_) => return Err(DriveError::HoldsStore(location)),
                }
            }
            let store = blob::FormatOptions {
                cluster_bytes: CLUSTER_BYTES,
                ..blob::FormatOptions::default()
            };
            Session::format(controller, nsid, store)
                .await
                .map_err(|source| DriveError::Format {
                    location,
                    source: Box::new(source),
                })
        })
    }

    fn with_session(
        link: Box<dyn Link>,
        options: &OpenOptions,
        (location, new_store): (&Location, bool),
        runtime: Runtime,
        open: impl AsyncFnOnce(Arc<dyn Controller>, u32) -> Result<Session, DriveError>,
    ) -> Result<Drive, DriveError> {
        let nsid = namespace(link.controller().info(), options.nsid)?;
        let controller = match &options.wrap {
            Some(wrap) => wrap(link.controller()),
            None => link.controller(),
        };
        if let Some(ledger) = &options.ledger {
            // Before the store is read, which may be newer then, but never older than the ledger.
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.refresh()?;
        }
        let mut session = runtime.block_on(open(Arc::clone(&controller), nsid))?;
        if let Some(ledger) = &options.ledger {
            session = session.with_ledger(Arc::clone(ledger));
            check_place(ledger, location, nsid, (&session, new_store))?;
        }
        let seen = runtime.block_on(link.newest_failure());
        Ok(Drive {
            session,
            controller,
            link,
            nsid,
            key_id: options.key_id,
            seen: seen.map_or(0, |(count, _)| count).into(),
            cancel: options.cancel.clone(),
            runtime,
            #[cfg(feature = "image")]
            verifier: options.verifier.clone(),
            #[cfg(feature = "image")]
            _folder: None,
        })
    }

    /// The session on the drive's blob store, whose calls [`Drive::wait`] runs.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What the drive's controller tells of itself.
    #[must_use]
    pub fn info(&self) -> &ControllerInfo {
        self.controller.info()
    }

    /// The namespace in use.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// The drive of an image; `None` for a drive that is not in this process, which others may use too.
    #[cfg(feature = "image")]
    #[must_use]
    pub fn image(&self) -> Option<&Arc<toroid_drive::Drive>> {
        self.link.image()
    }

    /// Generates the public keys that programs need, bootstrapping and key-switching key, onto the drive. The client key stays here.
    ///
    /// # Errors
    /// [`DriveError::Session`], [`DriveError::Failed`].
    pub fn put_keys(&self, client: &ClientKey) -> Result<(), DriveError> {
        let progress = Progress::from(self.cancel.clone());
        self.complete(self.session.put_keys(self.key_id, client, &progress))
    }

    /// Puts the public keys of a folder that `toroid keys generate` made ([`PUBLIC_KEY_FILES`]) onto the drive.
    ///
    /// # Errors
    /// [`DriveError::File`] for a file that cannot be opened, [`DriveError::Session`] also for files of two client keys,
    /// [`DriveError::Failed`].
    pub fn put_key_files(&self, folder: impl AsRef<Path>) -> Result<(), DriveError> {
        let progress = Progress::from(self.cancel.clone());
        let mut readers = Vec::new();
        for name in PUBLIC_KEY_FILES {
            let path = folder.as_ref().join(name);
            let file = File::open(&path).map_err(|source| DriveError::File {
                action: "open",
                path,
                source,
            })?;
            let reader = ObjectReader::new(BufReader::new(file)).map_err(SessionError::from)?;
            readers.push(reader);
        }
        let mut tags = readers.iter().map(|reader| reader.header().tag);
        if tags.next() != tags.next() {
            let mismatch = TfheError::KeyMismatch(PUBLIC_KEY_FILES[1]);
            return Err(SessionError::from(mismatch).into());
        }
        let keys = readers
            .into_iter()
            .map(|reader| Object::key(self.key_id, reader));
        let keys = keys.collect::<Result<_, _>>()?;
        self.complete(self.session.put(keys, &progress)).map(drop)
    }

    /// Has a drive that was opened anew fill its registers from what is stored on it. Returns the bytes read.
    ///
    /// # Errors
    /// [`DriveError::Session`], [`DriveError::Failed`].
    pub fn load(&self) -> Result<u64, DriveError> {
        let progress = Progress::from(self.cancel.clone());
        self.complete(self.session.load(self.key_id, &progress))
    }

    /// Assembles a program, puts it and its test vectors onto the drive, and runs it on inputs: [`Session::run`].
    ///
    /// # Errors
    /// [`DriveError::Assemble`], [`DriveError::Session`], [`DriveError::Failed`].
    pub fn run(
        &self,
        program: &str,
        inputs: &[(&str, &Ciphertext)],
    ) -> Result<Outputs, DriveError> {
        let assembly = toroid_isa::assemble_for(self.key_id, program)?;
        let computed = self.complete(self.session.run_computed(&assembly, inputs))?;
        self.accept(&assembly, inputs, computed)
    }

    /// Computes results again, if there is a verifier, before the ledger takes them.
    fn accept(
        &self,
        program: &Assembly,
        inputs: &[(&str, &Ciphertext)],
        (outputs, entry): (Outputs, Option<ComputedEntry>),
    ) -> Result<Outputs, DriveError> {
        self.verify(program, inputs, &outputs)?;
        self.session.accept(entry)?;
        Ok(outputs)
    }

    #[cfg(feature = "image")]
    fn verify(
        &self,
        program: &Assembly,
        inputs: &[(&str, &Ciphertext)],
        outputs: &Outputs,
    ) -> Result<(), DriveError> {
        match &self.verifier {
            Some(verifier) => verifier.check(program, inputs, outputs).map(drop),
            None => Ok(()),
        }
    }

    #[cfg(not(feature = "image"))]
    fn verify(
        &self,
        _: &Assembly,
        _: &[(&str, &Ciphertext)],
        _: &Outputs,
    ) -> Result<(), DriveError> {
        Ok(())
    }

    /// Assembles a program and puts it and its test vectors onto the drive, for [`Drive::call`].
    ///
    /// # Errors
    /// [`DriveError::Assemble`], [`DriveError::Session`], [`DriveError::Failed`].
    pub fn install(&self, params: &ParamSet, program: &str) -> Result<Assembly, DriveError> {
        let assembly = toroid_isa::assemble_for(self.key_id, program)?;
        self.complete(self.session.install(params, &assembly))?;
        Ok(assembly)
    }

    /// Runs the installed program on inputs: [`Session::call`].
    ///
    /// # Errors
    /// [`DriveError::Session`], [`DriveError::Failed`].
    pub fn call(
        &self,
        program: &Assembly,
        inputs: &[(&str, &Ciphertext)],
    ) -> Result<Outputs, DriveError> {
        let computed = self.complete(self.session.computed(program, inputs))?;
        self.accept(program, inputs, computed)
    }

    /// Runs a session's call to its end; a failure tells the drive's reason.
    ///
    /// # Errors
    /// [`DriveError::Session`], or [`DriveError::Failed`] where the drive has logged a reason.
    pub fn complete<T>(
        &self,
        call: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, DriveError> {
        self.wait(call).map_err(|source| match self.new_failure() {
            Some(reason) => DriveError::Failed {
                reason,
                source: Box::new(source),
            },
            None => source.into(),
        })
    }

    /// Runs a future to its end. Once the drive's cancel token is cancelled, the drive's commands are too.
    pub fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            let mut call = pin!(call);
            loop {
                match timeout(PATIENCE, &mut call).await {
                    Ok(result) => break result,
                    // Again and again: the call may be between two commands.
                    Err(_) if self.cancel.is_cancelled() => self.link.cancel(),
                    Err(_) => {}
                }
            }
        })
    }

    /// The reason of the newest failure that the drive has logged since it was last asked.
    pub fn new_failure(&self) -> Option<String> {
        let (count, reason) = self.runtime.block_on(self.link.newest_failure())?;
        (count > self.seen.swap(count, Ordering::Relaxed)).then_some(reason)
    }

    /// Waits until the drive has answered a small command, whatever else it works on. One whose connection has ended lets nobody wait: each command
    /// fails at once.
    pub fn probe(&self) {
        self.runtime.block_on(self.link.newest_failure());
    }

    /// Ends the drive's work and makes everything durable.
    ///
    /// # Errors
    /// [`DriveError::Close`].
    pub fn close(self) -> Result<(), DriveError> {
        let Drive { session, link, .. } = self;
        drop(session);
        link.close()
    }
}

/// Checks that a drive has the store that the ledger saw at its place, or enters a new one.
fn check_place(
    ledger: &Mutex<Ledger>,
    location: &Location,
    nsid: u32,
    (session, new_store): (&Session, bool),
) -> Result<(), DriveError> {
    let shown = match location {
        // However the path was given.
        Location::Image(path) | Location::Device(path) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            path.display().to_string()
        }
        Location::Remote(address) => address.to_string(),
    };
    let (place, found) = (format!("{shown} {nsid}"), session.store().uuid());
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    match ledger.other_store(&place, found) {
        Some(expected) if !new_store => Err(DriveError::OtherStore {
            location: location.clone(),
            expected,
            found,
        }),
        _ => Ok(ledger.enter_place(&place, found)?),
    }
}

fn runtime() -> Result<Runtime, DriveError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(DriveError::Runtime)
}

fn connect(
    location: &Location,
    options: &OpenOptions,
    runtime: &Runtime,
) -> Result<Box<dyn Link>, DriveError> {
    match location {
        #[cfg(feature = "image")]
        Location::Image(path) => Ok(Box::new(image::open(path, options)?)),
        #[cfg(not(feature = "image"))]
        Location::Image(_) => Err(DriveError::Unsupported {
            location: location.clone(),
            missing: "this program is built without drives in its own process",
        }),
        Location::Remote(address) => {
            if address.nqn == DISCOVERY_NQN {
                return Err(DriveError::Discovery(address.clone()));
            }
            let connect = options.connect_options()?;
            let connected = runtime.block_on(unless_cancelled(
                &options.cancel,
                options.connector(address).connect(&connect),
            ));
            let controller = connected
                .ok_or(DriveError::Cancelled)?
                .map_err(|source| DriveError::connect(address, source))?;
            Ok(Box::new(Remote {
                controller: Arc::new(controller),
                address: address.clone(),
            }))
        }
        #[cfg(target_os = "linux")]
        Location::Device(path) => Ok(Box::new(Arc::new(BlockDeviceController::open(path)?))),
        #[cfg(not(target_os = "linux"))]
        Location::Device(_) => Err(DriveError::Unsupported {
            location: location.clone(),
            missing: "block devices need Linux",
        }),
    }
}

/// The result of `work`; `None` where `cancel` is cancelled before.
async fn unless_cancelled<T>(cancel: &CancelToken, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    while !cancel.is_cancelled() {
        if let Ok(result) = timeout(PATIENCE, &mut work).await {
            return Some(result);
        }
    }
    None
}

/// The namespace to use: the one asked for, or the first that holds blocks.
fn namespace(info: &ControllerInfo, wanted: Option<u32>) -> Result<u32, DriveError> {
    let mut all = info.namespaces.iter().map(|namespace| namespace.nsid());
    match wanted {
        None => all.next().ok_or(DriveError::NoNamespace),
        Some(nsid) if info.namespace(nsid).is_some() => Ok(nsid),
        Some(nsid) => Err(DriveError::UnknownNamespace {
            nsid,
            found: all
                .map(|nsid| nsid.to_string())
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}
