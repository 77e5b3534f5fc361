//! The drive of one command of this program, whose commands are recorded and which Ctrl-C interrupts.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use toroid_client::blob::BlobError;
use toroid_client::drive::{Drive, DriveError, OpenOptions};
use toroid_client::location::Location;
use toroid_client::session::{Session, SessionError};
use toroid_drive::bridge::ProgramRun;
use toroid_drive::image::display_size;
use toroid_nvme::Controller;
use toroid_nvme::fabrics::DISCOVERY_NQN;

use crate::backend::Computing;
use crate::drive_args::{DriveArgs, HostArgs};
use crate::interrupt;
use crate::ledger_args::OpenLedger;
use crate::output::usage;
use crate::recorder::Recorder;

/// An open drive.
pub struct Opened {
    pub drive: Drive,
    pub recorder: Arc<Recorder>,
}

impl DriveArgs {
    /// Opens the drive, which computes with the f64 FFT if it is an image.
    pub fn open(&self) -> anyhow::Result<Opened> {
        self.open_with(None)
    }

    /// The same, with a ledger.
    pub fn open_with(&self, ledger: Option<OpenLedger>) -> anyhow::Result<Opened> {
        self.open_to_compute(&Computing::default(), ledger)
    }

    /// Opens the drive, which computes by this if it is an image, with a ledger.
    pub fn open_to_compute(
        &self,
        computing: &Computing,
        ledger: Option<OpenLedger>,
    ) -> anyhow::Result<Opened> {
        Opened::open(&self.location, &self.host, computing, ledger)
    }

    /// Opens the drive for reads, on which it computes, with a ledger.
    pub fn open_for_reads(&self, ledger: Option<OpenLedger>) -> anyhow::Result<Opened> {
        let options = self.host.options()?.reads();
        Opened::computing(&self.location, options, &Computing::default(), ledger)
    }

    /// Opens the drive to see what is on it.
    pub fn open_read_only(&self) -> anyhow::Result<Opened> {
        self.open_read_only_with(None)
    }

    /// The same, with a ledger.
    pub fn open_read_only_with(&self, ledger: Option<OpenLedger>) -> anyhow::Result<Opened> {
        let options = self.host.options()?.read_only();
        Opened::with(&self.location, with_ledger(options, ledger))
    }
}

fn with_ledger(options: OpenOptions, ledger: Option<OpenLedger>) -> OpenOptions {
    match ledger {
        Some(ledger) => ledger.options(options),
        None => options,
    }
}

impl Opened {
    /// Opens a drive. The arithmetic is that of an image; other drives have their own.
    pub fn open(
        location: &Location,
        host: &HostArgs,
        computing: &Computing,
        ledger: Option<OpenLedger>,
    ) -> anyhow::Result<Opened> {
        Opened::computing(location, host.options()?, computing, ledger)
    }

    fn computing(
        location: &Location,
        options: OpenOptions,
        computing: &Computing,
        ledger: Option<OpenLedger>,
    ) -> anyhow::Result<Opened> {
        let options = options.backend(Arc::clone(&computing.backend));
        Opened::with(location, with_ledger(options, ledger))
    }

    fn with(location: &Location, options: OpenOptions) -> anyhow::Result<Opened> {
        if let Location::Remote(address) = location
            && address.nqn == DISCOVERY_NQN
        {
            return Err(usage(format!(
                "{address} names no drive; toroid drive discover {address} tells which there are"
            )));
        }
        let recorder = Arc::new(OnceLock::new());
        let made = Arc::clone(&recorder);
        let drive = options
            .wrap(move |controller| {
                let recorder = made.get_or_init(|| Arc::new(Recorder::new(controller)));
                Arc::clone(recorder) as Arc<dyn Controller>
            })
            .open(location.clone())
            .map_err(|error| match error {
                DriveError::OtherStore { .. } => {
                    anyhow::Error::new(error).context("--new-store takes another store from now on")
                }
                error => error.into(),
            })?;
        let info = drive.wait(drive.session().store().info());
        let recorder = Arc::clone(recorder.wait());
        recorder.set_first_data_lba(info.first_data_lba);
        Ok(Opened { drive, recorder })
    }

    pub fn session(&self) -> &Session {
        self.drive.session()
    }

    /// Whether others may have used the drive before this command, so that its registers may hold something.
    pub fn is_shared(&self) -> bool {
        self.drive.image().is_none()
    }

    /// The latest program that ran on an image; a drive that is not in this process does not tell.
    pub fn program_run(&self) -> Option<ProgramRun> {
        self.drive.image()?.program_runs().pop()
    }

    /// Runs a session's call to its end; a failure tells the drive's reason.
    pub fn wait<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        self.drive.wait(call).map_err(|error| {
            let error = anyhow::Error::new(error);
            if interrupt::token().is_cancelled() && self.is_shared() {
                return error.context("interrupted");
            }
            if let Some(SessionError::Blob(BlobError::NoSpace { needed, free })) = error.downcast_ref() {
                let [needed, free] = [*needed, *free].map(display_size);
                return error.context(format!(
                    "the drive has {free} free, and this needs {needed}: delete something there, or make a larger drive (toroid drive format --size)"
                ));
            }
            match self.drive.new_failure() {
                Some(reason) => error.context(reason),
                None => error,
            }
        })
    }

    /// Ends the drive's work and makes everything durable.
    pub fn close(self) -> anyhow::Result<()> {
        Ok(self.drive.close()?)
    }
}
