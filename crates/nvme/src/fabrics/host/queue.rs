//! A host's queue: a task that owns the connection, and the handle through which commands reach it. [`Transport`] opens them.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use super::options::ConnectError;
use crate::fabrics::auth::TlsPsk;
use crate::{Response, Sqe, Status};

/// What a transport does for a host: it opens the connections of queues.
pub trait Transport: Sync {
    /// Opens the connection of a queue, and spawns a task with [`HostQueue::spawn`] that serves it. The queue's Connect command is up to the
    /// caller.
    fn open(
        &self,
        settings: QueueSettings,
    ) -> impl Future<Output = Result<HostQueue, ConnectError>> + Send;
}

/// Settings of a queue's connection.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Entries of the queue, at least 2.
    pub entries: u16,
    /// Bytes of data that the controller accepts in a command capsule of an I/O queue; `None` for an admin queue.
    pub in_capsule: Option<usize>,
    /// How long a queue that waits for its controller is busy-polled (0: never).
    pub poll: Duration,
    /// The key with which the connection must be encrypted; `None`: it need not be.
    pub tls: Option<TlsPsk>,
}

/// A command on its way to the task of a queue.
pub struct Submission {
    /// The command, with any identifier.
    pub sqe: Sqe,
    /// Data for the controller.
    pub data: Vec<u8>,
    /// Bytes of data that the host has room for.
    pub expected: usize,
    /// Takes the response.
    pub answer: oneshot::Sender<Response>,
}

/// A queue of a host: the handle of a task that owns its connection. The task ends when the handle is dropped.
pub struct HostQueue {
    commands: mpsc::UnboundedSender<Submission>,
    task: JoinHandle<Result<(), ConnectError>>,
}

impl HostQueue {
    /// Spawns the task that `serve` returns. It takes commands until the channel closes or the connection ends, and returns why it ended.
    pub fn spawn<F>(serve: impl FnOnce(mpsc::UnboundedReceiver<Submission>) -> F) -> HostQueue
    where
        F: Future<Output = Result<(), ConnectError>> + Send + 'static,
    {
        let (commands, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(serve(receiver));
        HostQueue { commands, task }
    }

    /// Submits a command with its data, or with room for `expected` bytes. Fails with Host Pathing Error once the connection has ended.
    pub fn submit(
        &self,
        sqe: Sqe,
        data: Vec<u8>,
        expected: usize,
    ) -> impl Future<Output = Response> + Send + use<> {
        let (answer, receiver) = oneshot::channel();
        let sent = self.commands.send(Submission {
            sqe,
            data,
            expected,
            answer,
        });
        let cid = sqe.cid.get();
        async move {
            let lost = || Response::failure(cid, Status::HOST_PATHING_ERROR, false);
            let mut response = match sent {
                Ok(()) => receiver.await.unwrap_or_else(|_| lost()),
                Err(_) => lost(),
            };
            response.cqe.cid = cid.into();
            response
        }
    }

    /// Why the queue's task ended, if it did.
    pub(super) async fn reason(&mut self) -> Option<ConnectError> {
        match tokio::time::timeout(Duration::from_millis(100), &mut self.task).await {
            Ok(Ok(Err(error))) => Some(error),
            _ => None,
        }
    }

    /// Ends the connection.
    pub(super) fn abort(&self) {
        self.task.abort();
    }

    pub(super) fn abort_handle(&self) -> AbortHandle {
        self.task.abort_handle()
    }

    /// Whether the connection has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// The channel of the queue's commands, for a task that outlives borrows of the queue.
    pub(super) fn commands(&self) -> mpsc::UnboundedSender<Submission> {
        self.commands.clone()
    }
}
