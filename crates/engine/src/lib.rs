//! The secure computing engine: what holds virtual registers and runs programs on them.
//!
//! An [`Engine`] keeps keys, test vectors and programs in a persistent area and LWE samples in a paged area that
//! overflows to a [`Swap`] area, behind 38-bit virtual addresses; its processor runs the program of a key id as a
//! transaction (platform paper, sections 4 to 4.4). The arithmetic sits behind the [`Backend`] trait.
//!
//! What it is not: it knows nothing of NVMe, of secure computing metadata or of files (`toroid-drive` translates), and it
//! holds no secret key.
//!
//! Open `engine.rs` first, then `paging.rs` and `processor.rs`.

pub mod backend;

mod address;
mod admission;
mod column;
mod config;
mod engine;
mod error;
mod extents;
mod imprint;
mod paging;
mod part;
mod partial;
mod processor;
mod register;
mod requester;
mod ring;
mod store;
mod swap;
mod table;

pub use address::{AddressError, PAGE_BYTES, PageTableEntry, SwapSlot, VirtualAddress};
pub use backend::{
    Backend, BackendError, BackendStatistics, BootstrapTask, KeySink, LoadedKey, RingProgram,
    results_of_tasks,
};
pub use column::{
    Checkpoint, ColumnBytes, ColumnFacts, ColumnInput, ColumnRun, Forecast, MAX_ROWS, MadeColumn,
    MapFacts, MapJob, MapOutput, MapSink, MapTask, RowSource, packed_noise,
};
pub use config::{EngineConfig, PARTIAL_LIFETIME, ReplacementPolicy};
pub use engine::{Engine, Sample};
pub use error::{EngineError, RowError};
pub use paging::PagingStatistics;
pub use part::Part;
pub use processor::{InstructionTiming, PreparedRun, Run, RunOutcome};
pub use register::{Attributes, RegisterInfo, check_size, register_bytes};
pub use requester::{BOOTSTRAPS, PASSES, Requester};
pub use ring::{
    FunctionOf, MadeRingColumn, RingFacts, RingForecast, RingForm, RingInput, RingJob, RingRows,
};
pub use store::{Prepared, StoreOutcome};
pub use swap::{MemorySwap, PagingContext, Swap, SwapError};
pub use toroid_isa::KeyKind;
pub use toroid_task::CancelToken;
pub use toroid_tfhe::seeded::KeyForm;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
