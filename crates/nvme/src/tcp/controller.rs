//! The controller's side: [`Connection`], a state machine without I/O, and [`serve`], its sockets.

mod connection;
mod server;

pub use connection::Connection;
pub use server::{Listener, serve};
