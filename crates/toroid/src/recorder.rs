//! What each command to a drive took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use toroid_nvme::{BROADCAST_NSID, Command, Controller, ControllerInfo, Request, Response};

/// What a command was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Secure computing metadata in the second half of the LBA space.
    Metadata,
    /// Data of blobs.
    Data,
    /// The blob store's own records, and flushes.
    Store,
}

/// One completed command.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    pub purpose: Purpose,
    pub bytes: u64,
    pub duration: Duration,
}

/// Passes commands on to the drive and notes what each took.
pub struct Recorder {
    controller: Arc<dyn Controller>,
    /// First logical block that holds data of blobs.
    first_data_lba: AtomicU64,
    issued: Mutex<Vec<Issued>>,
}

impl Recorder {
    pub fn new(controller: Arc<dyn Controller>) -> Recorder {
        Recorder {
            controller,
            first_data_lba: AtomicU64::new(0),
            issued: Mutex::default(),
        }
    }

    /// Tells where the blobs' data begins; commands before it are the store's.
    pub fn set_first_data_lba(&self, lba: u64) {
        self.first_data_lba.store(lba, Ordering::Relaxed);
    }

    /// The commands since the last call.
    pub fn take(&self) -> Vec<Issued> {
        std::mem::take(&mut self.issued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn purpose(&self, command: &Command) -> Purpose {
        let (Command::Read(io) | Command::Write(io)) = command else {
            return Purpose::Store;
        };
        let namespace = self.controller.info().namespace(io.nsid);
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
        let completion = self.controller.submit(request);
        Box::pin(async move {
            let response = completion.await;
            // Other command sets use the same opcodes.
            let of_blocks = command.ok().filter(|command| {
                let nsid = command.nsid();
                nsid == BROADCAST_NSID || self.controller.info().namespace(nsid).is_some()
            });
            if let Some(command) = of_blocks {
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

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        self.controller.admin(request)
    }

    fn info(&self) -> &ControllerInfo {
        self.controller.info()
    }
}
