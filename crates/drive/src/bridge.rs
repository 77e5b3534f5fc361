//! The bridge: what each command does to the SSD and to the engine (platform paper, sections 3 and 4.1, Fig. 3).
//!
//! A command on blocks without secure computing metadata is passed on to the SSD. With metadata:
//!
//! | command | type | what happens |
//! | --- | --- | --- |
//! | write | 0-3 | the data goes to the SSD and into the virtual register |
//! | write | 4 | the data goes into the register; the program of the key id runs; its result goes to the SSD |
//! | read | 0-2, 4 | the data goes to the host and into the register |
//! | read | 3 | the data goes into the register; the program of the key id runs; its result goes to the host |
//!
//! While virtual register (0, key id, 0) holds no program, a write of type 4 acts like one of type 3, and a read of type 3
//! like one of type 4, so that samples can be stored, loaded and fetched before there is a program. After a restart, read the
//! samples that a program only uses before the program itself.
//!
//! **Columns** trigger as samples do, and the program runs on all of their rows. No register holds a column: one that is stored empties the
//! register that its metadata name, and the program that it triggers changes none. So a program finds one column, and single samples, which
//! go with all of its rows, in all other registers. A column comes whole in one command. The result, which is always a column, stands in an object of
//! the same size, with zeroes behind it; one that is longer is refused before it is computed.
//!
//! **Writes** take effect in the order: checks, staging in the engine (and the run), SSD, registers. If the SSD refuses, the
//! registers stay as they were. One exception is the engine's: the first part of a key drops the key that it replaces.
//!
//! **Reads** that only load a register leave it alone if it holds what they bring: a key, a program or a test vector whose blocks
//! have not changed since it was stored. So any host may read any blocks, such as the first ones of a key, without unloading
//! it. They deliver their data even where the engine cannot take it (a part out of order, no
//! room, a key id in use with another parameter set): storage comes first. The completion's dword 0 ([`Effect`]) and the
//! error log tell. A read fails where its metadata is invalid or its blocks belong to different objects, and where the
//! program that it triggers fails, since the stored sample must not pass for a result.
//!
//! **The result's metadata** has the flag "computed by the drive", the noise, the failure probability and the message bits
//! of the result. As NVMe metadata it travels with the data. In the second half, that of a write replaces the first 64 bytes
//! of the block that registered the data; that of a read is shown in that block, without being stored, to reads that
//! follow, until the run is read or written again or the drive is closed: on the SSD it would describe data that are not
//! there. In the same way the drive remembers what the host registered for a result's place, and that a result is one until
//! data takes its place, whatever was registered meanwhile: after a trigger that failed, a read shows the metadata of the
//! old result. Of each of these it remembers the latest 65536.
//!
//! **Order.** Commands that overlap in their blocks run one after the other; only reads run at the same time. A read that loads a
//! register starts again if its blocks are written before the register has the data, so that the register never returns to
//! what the blocks held before.
//!
//! **Access.** A host may be bound to some key ids ([`KeyAccess`]). Before any of its commands takes effect, the metadata of
//! all blocks concerned is checked, in the same step as the effect.
//!
//! **Power loss.** A completed write is safe after a flush, or with FUA. A write that has not completed can be torn: only some of
//! its blocks are new, or the data is new and the NVMe metadata old. In the second-half form a result can be stored while its
//! metadata still describe the host's sample, since the data is written first. As with any drive, the host knows only that the
//! command has not completed.
//!
//! Open `bridge/commands.rs` first. `bridge/carrier.rs` is what the two forms of metadata have in common.

mod access;
mod carrier;
mod columns;
mod command;
mod commands;
#[cfg(feature = "computational-programs")]
mod evaluate;
mod log;
mod object;
mod plain;
mod ssd_side;
pub mod status;
mod triggered;
mod under_way;
mod watches;
mod workers;

pub use access::{HostIdentity, HostStatistics, KeyAccess};
pub use command::Effect;
#[cfg(feature = "computational-programs")]
pub use evaluate::RingWay;
pub use log::{DriveStatistics, ProgramRun, ProgramStatistics, TraceEvent, TraceKind};
pub use ssd_side::SWAP_NSID;
pub use under_way::RunningProgram;

pub(crate) use access::Hosted;
pub(crate) use command::{Context, Reply};
pub(crate) use commands::{Bridge, Step};
#[cfg(feature = "computational-programs")]
pub(crate) use evaluate::{Described, ResultPlace};
pub(crate) use log::Log;
pub(crate) use plain::{Ended, Plain};
pub(crate) use ssd_side::{NSID, SsdSide};
pub(crate) use status::Fault;
pub(crate) use workers::{Queue, Sharing, Workers};
