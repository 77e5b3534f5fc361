//! The host's side: [`Connection`], a state machine without I/O, and [`connect`], its sockets.

mod address;
mod client;
mod connection;

pub use address::{Address, AddressError, SCHEME};
pub use client::{Connector, connect};
pub use connection::Connection;
