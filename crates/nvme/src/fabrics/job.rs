//! Work that a queue of a target gives to its transport's tasks: commands for the storage, and steps of an authentication.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::Semaphore;
use toroid_task::CancelToken;

use super::auth::{AuthCommand, ControllerAuth};
use super::controller::{Flight, Flights};
use crate::{BROADCAST_NSID, Controller, Request, Response, Sqe, Status};

/// How often a shutdown checks whether commands are still in flight.
const IDLE_POLL: Duration = Duration::from_millis(5);

/// Work, and the ticket with which its result returns to the queue.
pub struct Action {
    /// For [`TargetQueue::complete`](super::TargetQueue::complete).
    pub ticket: Ticket,
    /// The work.
    pub job: Job,
}

/// Identifies work that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticket {
    /// A command.
    Command(u16),
    /// A step of an authentication, with the identifier of its command.
    Authentication(u16),
    /// The flush of a shutdown.
    Shutdown,
}

/// Work for a task.
pub enum Job {
    /// [`Controller::submit_abortable`].
    Io {
        /// The storage.
        controller: Arc<dyn Controller>,
        /// The command.
        request: Request,
        /// Aborts the command.
        cancel: CancelToken,
        /// To be kept until the command has ended, even if the connection ends before.
        flight: Flight,
    },
    /// Flush of everything, as soon as `idle` allows.
    Flush {
        /// The storage.
        controller: Arc<dyn Controller>,
        /// Tells when the commands that the flush must cover have ended.
        idle: Idle,
    },
    /// [`Controller::admin`].
    Admin {
        /// The storage.
        controller: Arc<dyn Controller>,
        /// The command.
        request: Request,
    },
    /// [`Authentication::run`], which computes for milliseconds.
    Authenticate(Authentication),
}

impl Action {
    /// Does the work. A step of an authentication takes a permit of `exponentiations` and runs on tokio's blocking threads.
    pub fn run(self, exponentiations: &Arc<Semaphore>) -> BoxFuture<'static, (Ticket, Response)> {
        let ticket = self.ticket;
        match self.job {
            Job::Io {
                controller,
                request,
                cancel,
                flight,
            } => async move {
                let response = controller.submit_abortable(request, cancel).await;
                drop(flight);
                (ticket, response)
            }
            .boxed(),
            Job::Flush { controller, idle } => async move {
                while !idle.is_idle() {
                    tokio::time::sleep(IDLE_POLL).await;
                }
                let request = Request::new(Sqe::flush(0, BROADCAST_NSID));
                (ticket, controller.submit(request).await)
            }
            .boxed(),
            Job::Admin {
                controller,
                request,
            } => async move { (ticket, controller.admin(request).await) }.boxed(),
            Job::Authenticate(authentication) => {
                let exponentiations = Arc::clone(exponentiations);
                async move {
                    let _permit = exponentiations.acquire().await;
                    let done = tokio::task::spawn_blocking(|| authentication.run()).await;
                    let lost = |_| Response::failure(0, Status::INTERNAL_ERROR, false);
                    (ticket, done.unwrap_or_else(lost))
                }
                .boxed()
            }
        }
    }
}

/// Tells whether commands of a controller are in flight.
pub struct Idle(pub(super) Arc<Flights>);

impl Idle {
    /// Whether there are none.
    pub fn is_idle(&self) -> bool {
        self.0.none()
    }
}

/// A step of an authentication.
pub struct Authentication {
    pub(super) auth: Arc<Mutex<ControllerAuth>>,
    pub(super) command: AuthCommand,
    pub(super) data: Vec<u8>,
}

impl Authentication {
    /// Does the step. Blocks.
    pub fn run(self) -> Response {
        let mut auth = self.auth.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match self.command {
            AuthCommand::Send { .. } => auth.send(&self.data).map(|()| Vec::new()),
            AuthCommand::Receive { len } => auth.receive(len as usize).map(|mut message| {
                // The host has asked for this many bytes, however long the message is.
                message.resize((len as usize).max(message.len()), 0);
                message
            }),
        };
        match result {
            Ok(data) => Response {
                data,
                ..Response::success(0)
            },
            Err(status) => Response::failure(0, status, true),
        }
    }
}
