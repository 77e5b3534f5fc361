//! NVMe over Fabrics, whatever the transport.
//!
//! - The commands: [`Connect`], [`Sgl`], [`property`], the discovery log, and authentication ([`auth`]).
//! - A target: a [`Target`] has subsystems and [`Limits`]; [`TargetQueue`] executes the commands that a transport's connection receives.
//! - A host: [`RemoteController`] is a [`Controller`](crate::Controller) behind a [`Transport`]; [`discover`] lists subsystems.

mod admin;
pub mod auth;
mod channel;
mod command;
mod controller;
mod discovery;
mod host;
mod job;
mod limits;
mod memory;
mod queue;
mod subsystem;
mod target;

pub use channel::{SecureChannel, TlsMode};
pub use command::{
    AUTHENTICATION_REQUIRED, CATTR_NO_FLOW_CONTROL, Connect, ConnectData, DISCOVERY_NQN,
    FABRICS_OPCODE, MAX_NQN, Sgl, cc, csts, fctype, is_nqn, property,
};
pub use controller::{Event, Flight, Wake};
pub use discovery::{DISCOVERY_ENTRY, DiscoveryEntry, Port};
pub use host::{
    ConnectError, ConnectOptions, HostQueue, QueueSettings, RemoteController, Submission,
    Transport, discover,
};
pub use job::{Action, Authentication, Idle, Job, Ticket};
pub use limits::{LimitError, Limits};
pub use queue::{Expired, Reply, TargetQueue, is_to_controller};
pub use subsystem::{AllowedHost, Hosts, Storage, Subsystem};
pub use target::{Target, TargetError, TargetStatistics};
