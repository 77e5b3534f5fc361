//! TLS 1.3 with pre-shared keys below NVMe/TCP. The library that speaks it comes with the feature `tls`; without it no secure channel opens.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod s2n;

#[cfg(not(feature = "tls"))]
pub(super) use absent::{Acceptor, Session, connect};
#[cfg(feature = "tls")]
pub(super) use s2n::{Acceptor, Session, connect};

/// Bytes that a session takes up, about: a record each way, what has arrived of the next ones, and s2n-tls's state.
pub(super) const SESSION_BYTES: usize = 64 << 10;
/// First byte of a TLS record of the handshake. A plain connection begins with the type of a PDU, 0.
pub(super) const HANDSHAKE_RECORD: u8 = 22;
