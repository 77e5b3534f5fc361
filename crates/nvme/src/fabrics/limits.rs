//! What hosts may use of a target.

use std::time::Duration;

use thiserror::Error;

/// What the hosts of a target may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues per controller.
    pub io_queues: u16,
    /// Entries per queue: commands in flight.
    pub queue_entries: u16,
    /// Bytes of data in a command capsule.
    pub in_capsule_bytes: u32,
    /// Bytes of data that the commands of one connection may hold at a time; further commands wait.
    pub bytes_in_flight: usize,
    /// Bytes that all connections together may hold for the data of commands, and for input and output.
    pub total_bytes_in_flight: usize,
    /// Connections per address that have not connected to a controller yet; further ones are closed.
    pub newcomers_per_address: usize,
    /// Controllers of all hosts together. As many again are available for discovery and for hosts that have not authenticated yet.
    pub controllers: usize,
    /// Controllers per host.
    pub controllers_per_host: usize,
    /// Time from the start of the connection to the end of Connect, and from there to the end of authentication.
    pub handshake: Duration,
    /// Time without progress after which a peer that takes no data is disconnected.
    pub stall: Duration,
    /// How long an idle connection is busy-polled before its thread sleeps (0: never). A wake-up costs tens of microseconds, paid twice per
    /// command at queue depth 1.
    pub poll: Duration,
}

/// A limit is too small to be of use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the limit of {what} is {found}; expected at least {least}")]
pub struct LimitError {
    what: &'static str,
    found: u64,
    least: u64,
}

impl Default for Limits {
    /// 16 I/O queues of 256 entries, 8 KiB per capsule, 16 MiB in flight and 256 MiB in all, 256 newcomers per address, 1024 controllers,
    /// 16 per host; 10 s for the handshake, 30 s of stall, 50 us of polling.
    fn default() -> Limits {
        Limits {
            io_queues: 16,
            queue_entries: 256,
            in_capsule_bytes: 8 << 10,
            bytes_in_flight: 16 << 20,
            total_bytes_in_flight: 256 << 20,
            newcomers_per_address: 256,
            controllers: 1024,
            controllers_per_host: 16,
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            poll: Duration::from_micros(50),
        }
    }
}

impl Limits {
    /// Checks that no limit is too small to be of use.
    ///
    /// # Errors
    /// [`LimitError`].
    pub fn check(&self) -> Result<(), LimitError> {
        let least = [
            ("I/O queues per controller", u64::from(self.io_queues), 1),
            ("entries per queue", self.queue_entries.into(), 2),
            ("bytes in a capsule", self.in_capsule_bytes.into(), 1024),
            ("bytes in flight", self.bytes_in_flight as u64, 1 << 20),
            (
                "total bytes in flight",
                self.total_bytes_in_flight as u64,
                16 << 20,
            ),
            (
                "newcomers per address",
                self.newcomers_per_address as u64,
                1,
            ),
            ("controllers", self.controllers as u64, 1),
            ("controllers per host", self.controllers_per_host as u64, 1),
        ];
        match least.into_iter().find(|(_, found, least)| found < least) {
            Some((what, found, least)) => Err(LimitError { what, found, least }),
            None => Ok(()),
        }
    }
}
