//! Why a connection ends.

use thiserror::Error;

use super::pdu::ProtocolError;
use crate::fabrics::Expired;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectionError {
    /// One side violated the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The stream ended within a PDU.
    #[error("the stream ended within a PDU")]
    CutOff,
    /// An encrypted stream ended, and the peer has not announced it.
    #[error("the stream ended without TLS's close_notify, so it may have been cut")]
    Unannounced,
    /// The host let a deadline pass.
    #[error(transparent)]
    Expired(#[from] Expired),
    /// The peer does not read what is sent.
    #[error("the peer takes no data")]
    Stalled,
}
