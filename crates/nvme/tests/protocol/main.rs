//! The protocol without sockets: hosts driven by hand, byte by byte, against the target's state machine, and the initiator's against it or
//! against a controller driven by hand.

#![allow(clippy::unwrap_used)]

mod connect;
mod controller;
mod cuts;
mod damage;
mod harness;
mod initiator;
mod known;
mod limits;
mod pdu;
mod random;
