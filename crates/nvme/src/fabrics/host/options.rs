//! How a host connects, and why it cannot.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::fabrics::auth::{AuthError, Secret, TlsKey};
use crate::{IdentifyError, Status, VendorStatus};

/// How a host connects to a controller.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// This host's NQN.
    pub host_nqn: String,
    /// This host's identifier, a UUID.
    pub host_id: [u8; 16],
    /// I/O queues; the controller may grant fewer.
    pub io_queues: u16,
    /// Entries per I/O queue; the controller may allow fewer.
    pub queue_entries: u16,
    /// The secret with which this host authenticates when the controller asks for it.
    pub secret: Option<Secret>,
    /// The secret with which the controller must authenticate; `None`: it need not.
    pub controller_secret: Option<Secret>,
    /// The key with which every connection is encrypted by TLS; `None`: none is.
    pub tls_key: Option<TlsKey>,
    /// Derive the key of the connections from the authentication (secure channel concatenation). Needs both secrets, and no `tls_key`.
    pub concatenate: bool,
    /// Keep alive time-out; a Keep Alive command goes out after each half of it.
    pub keep_alive: Duration,
    /// Time for the connection, its handshake and every admin command.
    pub timeout: Duration,
    /// How long a queue that waits for its controller is busy-polled before its thread sleeps (0: never).
    pub poll: Duration,
    /// The meaning of the controller's vendor-specific status codes.
    pub vendor_statuses: &'static [VendorStatus],
}

impl ConnectOptions {
    /// One I/O queue of 256 entries, 10 s of keep alive and of time-out, 50 us of polling.
    pub fn new(host_nqn: impl Into<String>, host_id: [u8; 16]) -> ConnectOptions {
        ConnectOptions {
            host_nqn: host_nqn.into(),
            host_id,
            io_queues: 1,
            queue_entries: 256,
            secret: None,
            controller_secret: None,
            tls_key: None,
            concatenate: false,
            keep_alive: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            poll: Duration::from_micros(50),
            vendor_statuses: &[],
        }
    }
}

/// Why a controller cannot be connected to, or did not answer an admin command.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// An error of the operating system.
    #[error("cannot connect to {address}")]
    Io {
        /// Address of the controller.
        address: String,
        /// The error.
        source: io::Error,
    },
    /// No secure channel: the keys differ, the controller does not know this host's, or does not speak TLS.
    #[error("no secure channel to {address}; expected the key that it has for this host")]
    Tls {
        /// Address of the controller.
        address: String,
        /// The error.
        source: io::Error,
    },
    /// The connection broke.
    #[error(transparent)]
    Connection(Box<dyn std::error::Error + Send + Sync>),
    /// The controller did not answer in time.
    #[error("{what} took longer than {limit:?}")]
    Timeout {
        /// What took too long.
        what: &'static str,
        /// The time-out.
        limit: Duration,
    },
    /// A command failed.
    #[error(
        "{what} failed: {} ({:X}h/{:02X}h)",
        status.fabrics_name().unwrap_or("unnamed status"),
        status.sct(),
        status.sc()
    )]
    Refused {
        /// Which command.
        what: &'static str,
        /// Its status.
        status: Status,
        /// Dword 0 of its completion.
        result: u32,
    },
    /// The address has no such subsystem.
    #[error("there is no subsystem {nqn}; discovery lists those that exist")]
    NoSuchSubsystem {
        /// The NQN asked for.
        nqn: String,
    },
    /// This host is not on the subsystem's list of hosts.
    #[error("the subsystem does not admit host {nqn}")]
    HostRefused {
        /// This host's NQN.
        nqn: String,
    },
    /// One side asks for authentication, but this host has no secret.
    #[error("authentication needs this host's secret")]
    NoSecret,
    /// The key of the connections is to come from the authentication, but a secret is missing, or there is a key already.
    #[error(
        "a key from the authentication needs this host's secret and the controller's, and no TLS key"
    )]
    Concatenation,
    /// The authentication failed.
    #[error("authentication failed: {0}")]
    Auth(#[from] AuthError),
    /// The discovery log changed whenever it was read.
    #[error("the discovery log keeps changing while it is read")]
    Unsteady,
    /// The controller failed to become ready.
    #[error("the controller reports a fatal error")]
    Fatal,
    /// An Identify structure is invalid.
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    /// The controller returned data of the wrong length.
    #[error("{what}: {found} bytes; expected {expected}")]
    Length {
        /// Which data.
        what: &'static str,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
}
