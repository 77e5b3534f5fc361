//! The host's side: connecting to a controller and its queues over a [`Transport`], and discovery.

mod discover;
mod options;
mod queue;
mod remote;
mod setup;

pub use discover::discover;
pub use options::{ConnectError, ConnectOptions};
pub use queue::{HostQueue, QueueSettings, Submission, Transport};
pub use remote::RemoteController;
