//! NVMe/TCP: PDUs and digests, the connections of a controller and of a host, and their sockets.
//!
//! Everything that does not depend on TCP is in [`fabrics`](crate::fabrics).

pub mod controller;
mod error;
pub mod host;
mod pdu;
mod poll;
mod socket;
mod stream;
mod tls;

pub use controller::{Listener, serve};
pub use error::ConnectionError;
pub use host::{Address, AddressError, Connector, SCHEME, connect};
pub use pdu::{Digests, PORT, ProtocolError};
