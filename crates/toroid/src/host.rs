//! A drive with a session on it, for one command of this program: in this process, behind NVMe/TCP, or a block device.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::BoxFuture;
use tokio::runtime::Runtime;
use toroid_client::blob::{self, BlobError};
#[cfg(target_os = "linux")]
use toroid_client::block_device::BlockDeviceController;
use toroid_client::session::{Session, SessionError};
use toroid_drive::bridge::ProgramRun;
use toroid_drive::image::{self, FormatOptions, Image, ImageError};
use toroid_drive::{Drive, DriveConfig};
use toroid_nvme::fabrics::{DISCOVERY_NQN, RemoteController};
use toroid_nvme::tcp::Address;
use toroid_nvme::{Command, Controller, ControllerInfo, Request, Response, Status};

use crate::backend::Arithmetic;
use crate::interrupt;
use crate::location::{HostArgs, Location, is_block_device};
use crate::output::usage;

/// Bytes of a blob store's cluster, and blocks of an image's.
const CLUSTER_BYTES: u64 = 1 << 20;

/// What a host command was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Secure computing metadata in the second half of the LBA space.
    Metadata,
    /// Data of blobs.
    Data,
    /// The blob store's own records, and flushes.
    Store,
}

/// One completed host command.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    pub purpose: Purpose,
    pub bytes: u64,
    pub duration: Duration,
}

/// Passes commands on to the drive and notes what each took.
pub struct Recorder {
    host: Arc<dyn Controller>,
    /// First logical block that holds data of blobs.
    first_data_lba: AtomicU64,
    issued: Mutex<Vec<Issued>>,
}

impl Recorder {
    fn new(host: Arc<dyn Controller>) -> Arc<Recorder> {
        Arc::new(Recorder {
            host,
            first_data_lba: AtomicU64::new(0),
            issued: Mutex::default(),
        })
    }

    /// The commands since the last call.
    pub fn take(&self) -> Vec<Issued> {
        std::mem::take(&mut self.issued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn purpose(&self, command: &Command) -> Purpose {
        let (Command::Read(io) | Command::Write(io)) = command else {
            return Purpose::Store;
        };
        let namespace = self.host.controller().namespace(io.nsid);
        let second_half = namespace
            .filter(|namespace| namespace.metadata_size() == 0)
            .is_some_and(|namespace| io.slba >= namespace.blocks() / 2);
        if second_half {
            Purpose::Metadata
        } else if io.slba >= self.first_data_lba.load(Ordering::Relaxed) {
            Purpose::Data
        } else {
            Purpose::Store
        }
    }
}

impl Controller for Recorder {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let command = Command::parse(&request.sqe);
        let sent = request.data.len() as u64;
        let started = Instant::now();
        let completion = self.host.submit(request);
        Box::pin(async move {
            let response = completion.await;
            if let Ok(command) = command {
                let issued = Issued {
                    purpose: self.purpose(&command),
                    bytes: sent + response.data.len() as u64,
                    duration: started.elapsed(),
                };
                self.issued
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(issued);
            }
            response
        })
    }

    fn controller(&self) -> &ControllerInfo {
        self.host.controller()
    }
}

/// The way to the drive.
enum Link {
    Image(Arc<Drive>),
    Remote(Arc<RemoteController>, Address),
    #[cfg(target_os = "linux")]
    Device(Arc<BlockDeviceController>),
}

/// An open drive.
pub struct Opened {
    pub recorder: Arc<Recorder>,
    pub session: Session,
    link: Link,
    nsid: u32,
    /// Count of the newest failure that the drive had logged when it was last asked.
    seen: AtomicU64,
    runtime: Runtime,
}

/// Makes an image and the blob store on it.
///
/// A file that is there is replaced only by a complete one.
pub fn format(path: &Path, mut options: FormatOptions) -> anyhow::Result<()> {
    options.cluster_blocks = (CLUSTER_BYTES / u64::from(options.block_size)) as u32;
    let device = is_block_device(path);
    if device || !(options.overwrite && path.exists()) {
        image::format(path, &options).map_err(of_image(path))?;
        let made = make_store(path, path);
        if made.is_err() && !device {
            // Of no use to anybody, and in the way of the next try.
            let _ = std::fs::remove_file(path);
        }
        return made;
    }
    let cannot = |action: &str| format!("cannot {action} {}", path.display());
    // Of a link, what it leads to is replaced.
    let place = path.canonicalize().with_context(|| cannot("open"))?;
    let old = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&place)
        .with_context(|| cannot("open"))?;
    if !old.metadata().with_context(|| cannot("open"))?.is_file() {
        let path = path.to_owned();
        return Err(ImageError::NotAFile { path }.into());
    }
    // Held to the end, so that no drive opens what is about to go.
    match old.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            let path = path.to_owned();
            return Err(ImageError::Locked { path }.into());
        }
        Err(std::fs::TryLockError::Error(error)) => {
            return Err(error).with_context(|| cannot("lock"));
        }
    }
    let folder = place.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".toroid-").suffix(".img");
    if let Ok(metadata) = old.metadata() {
        builder.permissions(metadata.permissions());
    }
    let beside = builder
        .tempfile_in(folder)
        .with_context(|| format!("cannot write in {}", folder.display()))?
        .into_temp_path();
    image::format(&beside, &options).map_err(of_image(path))?;
    make_store(&beside, path)?;
    beside.persist(&place).with_context(|| cannot("replace"))?;
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| cannot("make durable"))
}

/// Makes the blob store on a fresh image, which is, or is about to be, at `shown`.
fn make_store(path: &Path, shown: &Path) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let drive = open_image(path, &Arithmetic::default())?;
    let made = runtime.block_on(async {
        let host = Arc::clone(&drive) as Arc<dyn Controller>;
        Session::format(
            host,
            first_namespace(drive.controller(), None)?,
            store_options(),
        )
        .await?;
        anyhow::Ok(())
    });
    made.with_context(|| format!("cannot format {}", shown.display()))?;
    drive.shutdown()?;
    Ok(())
}

fn store_options() -> blob::FormatOptions {
    blob::FormatOptions {
        cluster_bytes: CLUSTER_BYTES,
        ..blob::FormatOptions::default()
    }
}

/// Makes a blob store on a drive that is there. What is stored on it is lost, which takes `force`.
pub fn format_store(location: &Location, host: &HostArgs, force: bool) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let link = Link::open(location, host, &Arithmetic::default(), &runtime)?;
    let nsid = link.nsid(host)?;
    runtime.block_on(async {
        if !force {
            match Session::open(link.host(), nsid).await {
                Err(SessionError::Blob(BlobError::NotFormatted { .. })) => {}
                Err(error) => {
                    return Err(anyhow::Error::new(error).context(format!(
                        "{location} may hold something; --force replaces it"
                    )));
                }
                Ok(_) => anyhow::bail!("{location} holds a blob store; --force replaces it"),
            }
        }
        Session::format(link.host(), nsid, store_options())
            .await
            .with_context(|| format!("cannot format {location}"))?;
        Ok(())
    })
}

/// Says which image an error is of, where it does not say so itself.
pub fn of_image(path: &Path) -> impl FnOnce(ImageError) -> anyhow::Error {
    move |error| match error {
        ImageError::Io { .. } | ImageError::Locked { .. } | ImageError::NotAFile { .. } => {
            error.into()
        }
        _ => anyhow::Error::new(error).context(path.display().to_string()),
    }
}

/// A runtime for the work of a command.
pub fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn open_image(path: &Path, arithmetic: &Arithmetic) -> anyhow::Result<Arc<Drive>> {
    let image = Image::open(path).map_err(of_image(path))?;
    let config = DriveConfig::new(arithmetic.backend());
    let drive = Drive::open(image, config);
    Ok(Arc::new(drive.with_context(|| {
        format!("cannot open {}", path.display())
    })?))
}

fn first_namespace(info: &ControllerInfo, wanted: Option<u32>) -> anyhow::Result<u32> {
    match wanted {
        Some(nsid) => info.namespace(nsid).with_context(|| {
            let all: Vec<String> = info
                .namespaces
                .iter()
                .map(|namespace| namespace.nsid().to_string())
                .collect();
            format!(
                "the drive has no namespace {nsid}; there are {}",
                all.join(", ")
            )
        }),
        None => info
            .namespaces
            .first()
            .context("the drive shows this host no namespace"),
    }
    .map(|namespace| namespace.nsid())
}

impl Link {
    fn open(
        location: &Location,
        host: &HostArgs,
        arithmetic: &Arithmetic,
        runtime: &Runtime,
    ) -> anyhow::Result<Link> {
        match location {
            Location::Image(path) => Ok(Link::Image(open_image(path, arithmetic)?)),
            Location::Remote(address) => {
                if address.nqn == DISCOVERY_NQN {
                    return Err(usage(format!(
                        "{address} names no drive; toroid drive discover {address} tells which there are"
                    )));
                }
                let options = host.connect_options()?;
                let connector = host.connector(address);
                let connected = runtime.block_on(async {
                    tokio::select! {
                        connected = connector.connect(&options) => connected.map_err(anyhow::Error::new),
                        () = interrupt::cancelled() => Err(anyhow::anyhow!("interrupted")),
                    }
                });
                let connected =
                    connected.with_context(|| format!("cannot use the drive at {address}"))?;
                Ok(Link::Remote(Arc::new(connected), address.clone()))
            }
            #[cfg(target_os = "linux")]
            Location::Device(path) => {
                Ok(Link::Device(Arc::new(BlockDeviceController::open(path)?)))
            }
            #[cfg(not(target_os = "linux"))]
            Location::Device(path) => {
                anyhow::bail!("{}: block devices are for Linux", path.display())
            }
        }
    }

    fn host(&self) -> Arc<dyn Controller> {
        match self {
            Link::Image(drive) => Arc::clone(drive) as Arc<dyn Controller>,
            Link::Remote(host, _) => Arc::clone(host) as Arc<dyn Controller>,
            #[cfg(target_os = "linux")]
            Link::Device(host) => Arc::clone(host) as Arc<dyn Controller>,
        }
    }

    fn nsid(&self, host: &HostArgs) -> anyhow::Result<u32> {
        first_namespace(self.host().controller(), host.nsid)
    }

    /// The newest failure that the drive has logged: its count and its reason.
    fn newest_failure(&self, runtime: &Runtime) -> Option<(u64, String)> {
        match self {
            Link::Image(drive) => {
                let entry = drive.error_log().into_iter().next()?;
                Some((entry.count, entry.reason))
            }
            Link::Remote(host, address) => {
                if !host.is_connected() {
                    return Some((u64::MAX, format!("the connection to {address} has ended")));
                }
                // A controller of another make has no such page.
                let reasons = runtime.block_on(host.reasons()).ok()?;
                let (count, _, reason) = reasons.into_iter().next()?;
                Some((count, reason))
            }
            #[cfg(target_os = "linux")]
            Link::Device(host) => {
                let entry = host.errors().into_iter().next()?;
                Some((entry.count, entry.reason))
            }
        }
    }
}

impl Opened {
    /// Opens a drive. The arithmetic is that of an image; other drives have their own.
    pub fn open(
        location: &Location,
        host: &HostArgs,
        arithmetic: &Arithmetic,
    ) -> anyhow::Result<Opened> {
        let runtime = runtime()?;
        let link = Link::open(location, host, arithmetic, &runtime)?;
        let nsid = link.nsid(host)?;
        let recorder = Recorder::new(link.host());
        let session = runtime
            .block_on(Session::open(
                Arc::clone(&recorder) as Arc<dyn Controller>,
                nsid,
            ))
            .with_context(|| format!("cannot open the blob store on {location}"))?;
        let info = runtime.block_on(session.store().info());
        recorder
            .first_data_lba
            .store(info.first_data_lba, Ordering::Relaxed);
        let seen = link.newest_failure(&runtime).map_or(0, |(count, _)| count);
        Ok(Opened {
            recorder,
            session,
            link,
            nsid,
            seen: seen.into(),
            runtime,
        })
    }

    /// Whether the drive is one that others may have used before this command, and its registers may hold something.
    pub fn is_shared(&self) -> bool {
        !matches!(self.link, Link::Image(_))
    }

    /// What the controller tells of itself.
    pub fn controller(&self) -> &ControllerInfo {
        self.recorder.controller()
    }

    /// The namespace in use.
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// The latest program that ran on an image; elsewhere only the drive knows.
    pub fn program_run(&self) -> Option<ProgramRun> {
        match &self.link {
            Link::Image(drive) => drive.program_runs().pop(),
            _ => None,
        }
    }

    /// The reason of the newest failure that the drive has logged since it was last asked.
    pub fn new_failure(&self) -> Option<String> {
        let (count, reason) = self.link.newest_failure(&self.runtime)?;
        (count > self.seen.swap(count, Ordering::Relaxed)).then_some(reason)
    }

    /// Runs a session's call to its end. Ctrl-C cancels the drive's commands; a failure tells the drive's reason.
    pub fn wait<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        self.wait_for(call).map_err(|error| {
            let error = anyhow::Error::new(error);
            if interrupt::token().is_cancelled() && self.is_shared() {
                return error.context("interrupted");
            }
            match self.new_failure() {
                Some(reason) => error.context(reason),
                None => error,
            }
        })
    }

    /// The same, with the call's own error.
    pub fn wait_for<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.runtime.block_on(async {
            tokio::pin!(call);
            tokio::select! {
                result = &mut call => result,
                () = interrupt::cancelled() => loop {
                    match &self.link {
                        // Again and again: the call may be between two commands.
                        Link::Image(drive) => {
                            drive.cancel_all();
                        }
                        // The drive aborts what is under way.
                        Link::Remote(host, _) => host.disconnect(),
                        // The command under way ends as it may; there is no next one.
                        #[cfg(target_os = "linux")]
                        Link::Device(_) => {}
                    }
                    let pause = Duration::from_millis(50);
                    if let Ok(result) = tokio::time::timeout(pause, &mut call).await {
                        break result;
                    }
                },
            }
        })
    }

    /// Ends the drive's work and makes everything durable.
    pub fn close(self) -> anyhow::Result<()> {
        drop(self.session);
        if let Link::Image(drive) = &self.link {
            drive.shutdown()?;
        }
        Ok(())
    }
}

/// The status that the drive completed a command with, behind a session's error.
pub fn status_of(error: &SessionError) -> Option<Status> {
    match error {
        SessionError::Blob(BlobError::Nvme(error)) => error.status(),
        _ => None,
    }
}
