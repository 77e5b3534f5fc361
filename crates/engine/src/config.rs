//! Sizes and limits of the engine.

use std::time::Duration;

/// How many objects of a key id may be incomplete at a time.
pub(crate) const MAX_PARTIAL_OBJECTS: usize = 1024;
/// How many objects of all key ids may be incomplete: bounds memory, and leaves room for a key id while others use up theirs.
pub(crate) const MAX_PARTIAL_OBJECTS_IN_ALL: usize = 16 * MAX_PARTIAL_OBJECTS;
/// How long the parts of an object are kept that wait for the next one.
pub const PARTIAL_LIFETIME: Duration = Duration::from_secs(600);

/// Sizes of the engine's memory areas. Sizes in bytes count in whole units of 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The most bytes that keys, test vectors and programs may take together.
    pub persistent_bytes: u64,
    /// Size of the paged area in bytes: main memory for LWE samples.
    pub paged_bytes: u64,
    /// Slots of the stack of each run, each for one LWE sample.
    pub stack_slots: usize,
    /// Size of the swap area in bytes.
    pub swap_bytes: u64,
    /// Which pages leave main memory when it is full.
    pub replacement: ReplacementPolicy,
    /// How many programs may run at a time, at least one.
    pub runs: usize,
}

impl Default for EngineConfig {
    /// 4 GiB for keys, 64 MiB for samples, 256 stack slots, 1 GiB of swap, CLOCK, 16 programs.
    fn default() -> EngineConfig {
        EngineConfig {
            persistent_bytes: 4 << 30,
            paged_bytes: 64 << 20,
            stack_slots: 256,
            swap_bytes: 1 << 30,
            replacement: ReplacementPolicy::Clock,
            runs: 16,
        }
    }
}

/// Which pages leave main memory when room is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplacementPolicy {
    /// A hand circles over the frames and takes the first window without a page used since its last visit.
    #[default]
    Clock,
    /// The window whose most recent use is the longest ago. Looks at every frame on each replacement.
    LeastRecentlyUsed,
}
