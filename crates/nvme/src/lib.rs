//! NVMe as a library: the structures of the base specification and of the NVM command set, the [`Controller`] trait through which a program
//! submits commands to a controller, and NVMe over TCP, target and initiator.
//!
//! What it is: submission and completion entries, status codes, Identify structures, log pages, namespaces with metadata, helpers that
//! split reads and writes at the controller's limits, in-band authentication ([`auth`]), and the transport ([`tcp`]), whose state machines do
//! no I/O. Names and numbers follow NVM Express Base Specification 2.x.
//!
//! What it is not: a driver, or anything that knows of encrypted data. A [`Request`] carries its buffers by value, so PRP lists and
//! doorbells have no place here.
//!
//! Open `host.rs` first; `command.rs` and `status.rs` say what travels through it. `tcp/target.rs` is where a target begins.

pub mod admin;
mod command;
mod completion;
mod controller;
pub mod fabrics;
mod identify;
pub mod log;
mod namespace;
mod status;
pub mod tcp;
pub mod testing;

pub use command::{Command, DsmRange, Io, Sqe, opcode};
pub use completion::Cqe;
pub use controller::{
    Blocks, Controller, ControllerInfo, ErrorInformation, Health, NvmeError, OtherNamespace,
    Request, Response, VendorStatus, flush, read_blocks, write_blocks, write_zeroes,
};
pub use identify::{IdentifyController, IdentifyError, IdentifyNamespace, LbaFormat};
pub use namespace::{BROADCAST_NSID, Namespace, NamespaceError};
pub use status::{Status, StatusCodeType};
