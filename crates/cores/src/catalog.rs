//! The list of cores, what a core is, and its parameters.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::sources::design;
use crate::vectors::{Outcome, Vectors};
use crate::{
    engine, ntt_elastic, ntt_inplace, ntt_rader, ntt_sdf, ntt_streaming, permutation, polymul_sdf,
    units,
};
use toroid_sim::model::{Design, Model, ModelError, Options};
use toroid_sim::process::Watch;
use toroid_sim::simulation::{Simulation, SimulationError};
use toroid_sim::sources::UnknownModule;

/// A parameter of a core.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name, that of the module on top.
    pub name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// The value where none is given.
    pub default: u64,
    /// The values that it can have.
    pub range: RangeInclusive<u64>,
}

impl Parameter {
    /// Its range, as [`CoreError::Value`] has it.
    pub(crate) fn expectation(&self) -> String {
        format!("from {} to {}", self.range.start(), self.range.end())
    }
}

pub(crate) const TILE_A: Parameter = Parameter {
    name: "TILE_A",
    doc: "bits of the first operand of a DSP tile: 24 for Xilinx, 18 for ECP5",
    default: 24,
    range: 2..=64,
};

pub(crate) const TILE_B: Parameter = Parameter {
    name: "TILE_B",
    doc: "bits of the second operand of a DSP tile: 17 for Xilinx, 18 for ECP5",
    default: 17,
    range: 2..=64,
};

/// A value for each parameter of a core, and the list of numbers that some take beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    parameters: BTreeMap<&'static str, u64>,
    list: Option<Vec<usize>>,
}

impl Values {
    /// Those given, and the defaults of the others.
    ///
    /// # Errors
    /// If a name is unknown or given twice, or a value is out of its range.
    pub fn new<'a>(
        core: &dyn Core,
        given: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Result<Values, CoreError> {
        let parameters = core.parameters();
        let mut values = BTreeMap::new();
        for (name, value) in given {
            let parameter = parameters.iter().find(|parameter| parameter.name == name);
            let Some(parameter) = parameter else {
                let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
                return Err(CoreError::UnknownParameter {
                    core: core.name(),
                    name: name.to_owned(),
                    names: names.join(", "),
                });
            };
            if !parameter.range.contains(&value) {
                return Err(CoreError::Value {
                    core: core.name(),
                    name: parameter.name,
                    expected: parameter.expectation(),
                    found: value,
                });
            }
            if values.insert(parameter.name, value).is_some() {
                return Err(CoreError::Twice(parameter.name));
            }
        }
        for parameter in parameters {
            values.entry(parameter.name).or_insert(parameter.default);
        }
        Ok(Values {
            parameters: values,
            list: None,
        })
    }

    /// With a list of numbers, which [`Core::design`] holds against the parameters.
    ///
    /// # Errors
    /// If the core takes none with these values.
    pub fn with_list(self, core: &dyn Core, list: Vec<usize>) -> Result<Values, CoreError> {
        match core.takes_list(&self) {
            true => Ok(Values {
                list: Some(list),
                ..self
            }),
            false => Err(CoreError::List {
                core: core.name(),
                reason: "it takes no list with these parameters; permutation with KIND 3 does"
                    .to_owned(),
            }),
        }
    }

    /// The list of numbers, if there is one.
    pub fn list(&self) -> Option<&[usize]> {
        self.list.as_deref()
    }

    /// The value of a parameter, 0 if the core has none of this name.
    pub fn get(&self, name: &str) -> u64 {
        self.parameters.get(name).copied().unwrap_or(0)
    }

    /// All, by their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.parameters.iter().map(|(name, value)| (*name, *value))
    }
}

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
        /// What it should be, as it goes on behind "must be".
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
    /// The core has no vectors to be packed with it.
    #[error("{0} comes without vectors: its test drives a memory; see `toroid core test`")]
    NoVectors(&'static str),
    /// A file of the core's folder cannot be written.
    #[error("cannot write {path}: {reason}")]
    File {
        /// The file or folder.
        path: String,
        /// Why.
        reason: std::io::Error,
    },
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
    /// Whether the [`Watch`] ended the work.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, CoreError::Model(error) if error.is_cancelled())
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

/// A cycle count that a formula gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycles {
    /// What takes so long, for example "latency".
    pub what: &'static str,
    /// The formula, in the core's parameters.
    pub formula: &'static str,
    /// Its value.
    pub cycles: u64,
}

/// What a paper reports of its core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperRow {
    /// The paper and its table.
    pub source: &'static str,
    /// Look-up tables.
    pub lut: f64,
    /// Flip-flops.
    pub ff: f64,
    /// DSP slices.
    pub dsp: f64,
    /// Block memories of 36 Kbit.
    pub ramb36: f64,
}

/// A core.
pub trait Core: Sync {
    /// Its name, that of the module on top.
    fn name(&self) -> &'static str;

    /// What it does, in a line.
    fn summary(&self) -> &'static str;

    /// Its parameters.
    fn parameters(&self) -> &'static [Parameter];

    /// Whether it takes a list of numbers with these values ([`Values::with_list`]).
    fn takes_list(&self, _values: &Values) -> bool {
        false
    }

    /// The sources, ROM contents and parameters of the module on top.
    ///
    /// # Errors
    /// If the values do not go together.
    fn design(&self, values: &Values) -> Result<Design, CoreError> {
        let design = design(self.name())?;
        Ok(values
            .iter()
            .fold(design, |design, (name, value)| design.with(name, value)))
    }

    /// What its formulas say of its speed; the first is what the vectors are held against.
    fn cycles(&self, values: &Values) -> Vec<Cycles>;

    /// What stands one behind the other in a core that is a pipeline, with the cycles of each and what was not taken in its
    /// place, a line each.
    fn structure(&self, _values: &Values) -> Vec<String> {
        Vec::new()
    }

    /// About `count` inputs, extreme ones among them, with the library's results; `None` for a core whose test needs more
    /// than that, which then has a [`test`](Core::test) of its own.
    fn vectors(&self, values: &Values, count: usize, seed: u64) -> Option<Vectors>;

    /// Holds a simulation against the library, by vectors of one seed after the other until `count` were compared.
    ///
    /// # Errors
    /// If the core computes something else, breaks a protocol or stops.
    fn test(
        &self,
        simulation: &mut Simulation,
        values: &Values,
        count: usize,
        seed: u64,
        watch: &dyn Watch,
    ) -> Result<Outcome, CoreError> {
        let run = |simulation: &mut Simulation, seed| {
            let vectors = self.vectors(values, count, seed);
            vectors
                .ok_or(CoreError::NoVectors(self.name()))?
                .run(simulation, seed, watch)
        };
        let first = run(simulation, seed)?;
        let mut compared = first.compared;
        for round in 1.. {
            if compared >= count as u64 {
                break;
            }
            match run(simulation, seed.wrapping_add(round))?.compared {
                0 => break,
                more => compared += more,
            }
        }
        Ok(Outcome {
            compared,
            simulated: simulation.cycles(),
            ..first
        })
    }

    /// Whether synthesis maps each of its modules once and counts their copies, as is due to large cores.
    fn is_large(&self) -> bool {
        false
    }

    /// What the paper reports of the like.
    fn paper(&self) -> Option<PaperRow> {
        None
    }
}

/// Every core.
pub static CORES: &[&dyn Core] = &[
    &units::GoldilocksMul,
    &units::ButterflyIntegrated,
    &ntt_inplace::NttInplace,
    &ntt_streaming::NttStreaming,
    &ntt_rader::NttRader,
    &ntt_sdf::NttSdf,
    &polymul_sdf::PolymulSdf,
    &ntt_elastic::NttElastic,
    &permutation::StreamPermutation,
    &engine::ComputingEngine,
];

/// The core of this name.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<&'static dyn Core, CoreError> {
    let found = CORES.iter().find(|core| core.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = CORES.iter().map(|core| core.name()).collect();
        CoreError::UnknownCore {
            name: name.to_owned(),
            names: names.join(", "),
        }
    })
}

/// Simulates a core and holds it against the library; with the formula's count beside the one that was found.
///
/// # Errors
/// As of [`Model::build_watched`] and [`Core::test`].
pub fn test(
    core: &dyn Core,
    values: &Values,
    count: usize,
    seed: u64,
    waves: Option<&std::path::Path>,
    watch: &dyn Watch,
) -> Result<Outcome, CoreError> {
    let options = Options {
        trace: waves.is_some(),
        // As after power-up: nothing may depend on what registers and memories begin with.
        random_start: true,
        quick: !core.is_large(),
    };
    let model = Model::build_watched(&core.design(values)?, &options, watch)?;
    let mut simulation = model.start_random(seed as u32)?;
    if let Some(path) = waves {
        simulation.trace_to(path)?;
    }
    simulation.reset(4)?;
    core.test(&mut simulation, values, count, seed, watch)
}
