//! An in-process drive with a session on it, for one command of this program.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::BoxFuture;
use toroid_client::blob;
use toroid_client::session::Session;
use toroid_drive::bridge::Effect;
use toroid_drive::image::{self, FormatOptions, Image, ImageError};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_nvme::{Command, ControllerInfo, Host, Request, Response};
use toroid_tfhe::noise;

use crate::interrupt;

/// The drive's one namespace.
const NSID: u32 = 1;

/// Bytes of a blob store's cluster, and blocks of an image's.
const CLUSTER_BYTES: u64 = 1 << 20;

/// What a host command was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Secure computing metadata in the second half of the LBA space.
    Metadata,
    /// Secure computing data.
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
    drive: Arc<Drive>,
    issued: Mutex<Vec<Issued>>,
}

impl Recorder {
    /// The commands since the last call.
    pub fn take(&self) -> Vec<Issued> {
        std::mem::take(&mut self.issued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn purpose(&self, command: &Command, response: &Response) -> Purpose {
        let (Command::Read(io) | Command::Write(io)) = command else {
            return Purpose::Store;
        };
        let namespace = self.drive.controller().namespace(io.nsid);
        let second_half = namespace
            .filter(|namespace| namespace.metadata_size() == 0)
            .is_some_and(|namespace| io.slba >= namespace.blocks() / 2);
        if second_half {
            Purpose::Metadata
        } else if Effect::of(&response.cqe).is_some_and(|effect| effect != Effect::None) {
            Purpose::Data
        } else {
            Purpose::Store
        }
    }
}

impl Host for Recorder {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let command = Command::parse(&request.sqe);
        let sent = request.data.len() as u64;
        let started = Instant::now();
        let completion = self.drive.submit(request);
        Box::pin(async move {
            let response = completion.await;
            if let Ok(command) = command {
                let issued = Issued {
                    purpose: self.purpose(&command, &response),
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
        self.drive.controller()
    }
}

/// An open drive.
pub struct Opened {
    pub drive: Arc<Drive>,
    pub recorder: Arc<Recorder>,
    pub session: Session,
    runtime: tokio::runtime::Runtime,
}

/// Makes an image and the blob store on it.
pub fn format(path: &Path, mut options: FormatOptions) -> anyhow::Result<()> {
    options.cluster_blocks = (CLUSTER_BYTES / u64::from(options.block_size)) as u32;
    let shown = path.display();
    image::format(path, &options).map_err(of_image(path))?;
    let made = make_store(path).with_context(|| format!("cannot format {shown}"));
    if made.is_err() && !options.overwrite {
        // Of no use to anybody, and in the way of the next try.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Makes the blob store on a fresh image.
fn make_store(path: &Path) -> anyhow::Result<()> {
    let (drive, recorder, runtime) = start(path, noise::Path::Fast)?;
    let store = blob::FormatOptions {
        cluster_bytes: CLUSTER_BYTES,
        ..blob::FormatOptions::default()
    };
    runtime.block_on(Session::format(recorder, NSID, store))?;
    drive.shutdown()?;
    Ok(())
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

fn start(
    path: &Path,
    arithmetic: noise::Path,
) -> anyhow::Result<(Arc<Drive>, Arc<Recorder>, tokio::runtime::Runtime)> {
    let shown = path.display();
    let image = Image::open(path).map_err(of_image(path))?;
    let config = DriveConfig::new(Arc::new(CpuBackend::new(arithmetic)));
    let drive =
        Arc::new(Drive::open(image, config).with_context(|| format!("cannot open {shown}"))?);
    let recorder = Arc::new(Recorder {
        drive: Arc::clone(&drive),
        issued: Mutex::default(),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    Ok((drive, recorder, runtime))
}

impl Opened {
    /// Opens the drive image at `path`; bootstraps run in this arithmetic.
    pub fn open(path: &Path, arithmetic: noise::Path) -> anyhow::Result<Opened> {
        let (drive, recorder, runtime) = start(path, arithmetic)?;
        let session = runtime
            .block_on(Session::open(Arc::clone(&recorder) as Arc<dyn Host>, NSID))
            .with_context(|| format!("cannot open the blob store on {}", path.display()))?;
        Ok(Opened {
            drive,
            recorder,
            session,
            runtime,
        })
    }

    /// Runs a session's call to its end. Ctrl-C cancels the drive's commands; a failure tells the drive's reason.
    pub fn wait<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let errors_before = self
            .drive
            .error_log()
            .first()
            .map_or(0, |entry| entry.count);
        let cancelled = interrupt::token();
        let result = self.runtime.block_on(async {
            tokio::pin!(call);
            tokio::select! {
                result = &mut call => result,
                () = cancelled.cancelled() => loop {
                    // Again and again: the call may be between two commands.
                    self.drive.cancel_all();
                    let pause = std::time::Duration::from_millis(50);
                    if let Ok(result) = tokio::time::timeout(pause, &mut call).await {
                        break result;
                    }
                },
            }
        });
        result.map_err(|error| {
            let error = anyhow::Error::new(error);
            match self.drive.error_log().into_iter().next() {
                Some(entry) if entry.count > errors_before => error.context(entry.reason),
                _ => error,
            }
        })
    }

    /// Ends the drive's work and makes everything durable.
    pub fn close(self) -> anyhow::Result<()> {
        drop(self.session);
        self.drive.shutdown()?;
        Ok(())
    }
}
