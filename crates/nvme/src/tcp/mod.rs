//! NVMe/TCP: PDUs, the target and the initiator. State machines without I/O in [`target`] and [`initiator`]; sockets in [`server`] and
//! [`client`].

pub mod client;
pub mod initiator;
mod pdu;
mod poll;
pub mod server;
mod stream;
pub mod target;

use thiserror::Error;

pub use pdu::ProtocolError;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectionError {
    /// The peers did not understand each other.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The stream ended within a PDU.
    #[error("the stream ended within a PDU")]
    CutOff,
    /// The peer took too long to connect or to authenticate.
    #[error("the peer did not connect in time")]
    Handshake,
    /// No command came within the keep alive time-out.
    #[error("the keep alive timer expired")]
    KeepAlive,
    /// The peer does not take what is sent.
    #[error("the peer takes no data")]
    Stalled,
}
