//! What can be wrong with a request for a core, or with the core.

use toroid_sim::model::ModelError;
use toroid_sim::simulation::SimulationError;
use toroid_sim::sources::UnknownModule;
use toroid_task::Cancelled;

/// What can be wrong with a request for a core.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// There is no such core.
    #[error("there is no core {name}; there are {names}")]
    UnknownCore {
        /// The name asked for.
        name: String,
        /// The names that there are.
        names: String,
    },
    /// The core has no such parameter.
    #[error("{core} has no parameter {name}; it has {names}")]
    UnknownParameter {
        /// The core.
        core: &'static str,
        /// The name given.
        name: String,
        /// The names that there are.
        names: String,
    },
    /// A parameter is given twice.
    #[error("parameter {0} is given twice")]
    Twice(&'static str),
    /// A value is out of its range, or does not go with the others.
    #[error("{core}: {name} must be {expected}, not {found}")]
    Value {
        /// The core.
        core: &'static str,
        /// The parameter.
        name: &'static str,
        /// What it should be: the sentence continues after "must be".
        expected: String,
        /// What it is.
        found: u64,
    },
    /// A list lacks, is not what the parameters need, or is given to a core that takes none.
    #[error("{core}: {reason}")]
    List {
        /// The core.
        core: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A module of the core is not there.
    #[error(transparent)]
    Module(#[from] UnknownModule),
    /// The core could not be made into a model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The core could not be run, or broke a protocol.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// The core computes something else than the library.
    #[error("{0}")]
    Wrong(String),
    /// The core does not say what its ports are.
    #[error("{0} has neither vectors nor a list of its ports")]
    NoPorts(&'static str),
    /// A file of the core's folder cannot be written.
    #[error("cannot write {path}: {reason}")]
    File {
        /// The file or folder.
        path: String,
        /// Why.
        reason: std::io::Error,
    },
    /// A text of the core's folder cannot be made.
    #[error(transparent)]
    Template(#[from] minijinja::Error),
    /// Someone cancelled the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// Synthesis failed.
    #[error("synthesis of {core} failed: {output}")]
    Synthesis {
        /// The core.
        core: &'static str,
        /// The end of what the tool said.
        output: String,
    },
}

impl CoreError {
    /// Whether someone cancelled the work.
    pub fn is_cancelled(&self) -> bool {
        match self {
            CoreError::Cancelled(_) => true,
            CoreError::Model(error) => error.is_cancelled(),
            _ => false,
        }
    }

    /// Whether the request itself was wrong, rather than what came of it.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            CoreError::UnknownCore { .. }
                | CoreError::UnknownParameter { .. }
                | CoreError::Twice(_)
                | CoreError::Value { .. }
                | CoreError::List { .. }
        )
    }
}
