#![doc = include_str!("../README.md")]

pub mod admin;
mod command;
mod completion;
mod controller;
mod error_log;
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
    Request, Response, VendorStatus, execute, execute_admin, flush, read_blocks, write_blocks,
    write_zeroes,
};
pub use error_log::ErrorLog;
pub use identify::{IdentifyController, IdentifyError, IdentifyNamespace, LbaFormat};
pub use namespace::{BROADCAST_NSID, Namespace, NamespaceError};
pub use status::{Status, StatusCodeType};
