//! Why the engine does not run.

use toroid_sim::memory::MemoryFault;
use toroid_sim::model::ModelError;
use toroid_sim::simulation::SimulationError;
use toroid_sim::sources::UnknownModule;
use toroid_task::Cancelled;

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// What the engine does not do.
    #[error("{0}")]
    Unsupported(String),
    /// A word of a key that is not below the modulus.
    #[error("word {index} of the key is not below the modulus")]
    NotCanonical {
        /// Its position.
        index: usize,
    },
    /// Bytes of another length than the parameter set says.
    #[error("{what} must have {expected} bytes, not {found}")]
    Length {
        /// What they are.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A number that main memory has no room for.
    #[error("main memory has no room for number {0}")]
    Place(u32),
    /// Main memory has no such place.
    #[error(transparent)]
    Memory(#[from] MemoryFault),
    /// The simulator could not be made.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The simulation stopped.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// The core's sources are not there.
    #[error(transparent)]
    Source(#[from] UnknownModule),
    /// Someone cancelled the run.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}
