//! What a core is: its parameters, and what is known of it once they have values.

use std::collections::BTreeMap;
use std::ops::{Index, RangeInclusive};

use toroid_sim::model::Design;
use toroid_sim::simulation::Simulation;

use crate::cost::Figures;
use crate::error::CoreError;
use crate::ports::Ports;
use crate::technology::Technology;
use crate::transform::Transform;
use crate::vectors::{Outcome, Vectors};
use toroid_task::Progress;

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
        core: &Core,
        given: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Result<Values, CoreError> {
        let parameters = core.parameters;
        let mut values = BTreeMap::new();
        for (name, value) in given {
            let parameter = parameters.iter().find(|parameter| parameter.name == name);
            let Some(parameter) = parameter else {
                let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
                return Err(CoreError::UnknownParameter {
                    core: core.name,
                    name: name.to_owned(),
                    names: names.join(", "),
                });
            };
            if !parameter.range.contains(&value) {
                return Err(CoreError::Value {
                    core: core.name,
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

    /// With a list of numbers, which [`Core::configure`] checks against the parameters.
    ///
    /// # Errors
    /// If the core takes none with these values.
    pub fn with_list(self, core: &Core, list: Vec<usize>) -> Result<Values, CoreError> {
        if !(core.takes_list)(&self) {
            return Err(CoreError::List {
                core: core.name,
                reason: "it takes no list with these parameters".to_owned(),
            });
        }
        Ok(Values {
            list: Some(list),
            ..self
        })
    }

    /// The list of numbers, if there is one.
    pub fn list(&self) -> Option<&[usize]> {
        self.list.as_deref()
    }

    /// The value of a parameter, if the core has it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.parameters.get(name).copied()
    }

    /// All, by their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.parameters.iter().map(|(name, value)| (*name, *value))
    }
}

impl Index<&str> for Values {
    type Output = u64;

    /// The value of a parameter of the core.
    ///
    /// # Panics
    /// If the core has no parameter of this name.
    fn index(&self, name: &str) -> &u64 {
        &self.parameters[name]
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

/// What formulas say of the speed of a configured core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What the core's test measures.
    pub checked: Cycles,
    /// Parts of it.
    pub parts: Vec<Cycles>,
    /// From the first beat in to the last beat out of one transform, both counted; of a permutation, of one beat.
    pub latency: Option<Cycles>,
    /// From the first beat of a transform to the first beat of the next.
    pub interval: Option<Cycles>,
}

impl Timing {
    /// A core of which only one cycle count is of interest.
    pub fn only(checked: Cycles) -> Timing {
        Timing {
            checked,
            parts: Vec::new(),
            latency: None,
            interval: None,
        }
    }

    /// All counts, the checked one first.
    pub fn rows(&self) -> impl Iterator<Item = &Cycles> {
        std::iter::once(&self.checked)
            .chain(&self.parts)
            .chain(&self.latency)
            .chain(&self.interval)
    }
}

/// Values of some parameters of a core.
pub type Given = &'static [(&'static str, u64)];

/// Makes a core with values, which must be its own ([`Values::new`]); fails where they do not go together.
pub type Configure = fn(&Values) -> Result<Box<dyn Configured>, CoreError>;

/// A core, before its parameters have values. `inventory::submit!` in its module puts it into the list ([`cores`](crate::cores)).
#[derive(Debug)]
pub struct Core {
    /// Its name, that of the module on top.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// What [`Core::configure`](Core::configure()) does.
    pub configure: Configure,
    /// Whether it takes a list of numbers with these values ([`Values::with_list`]).
    pub takes_list: fn(&Values) -> bool,
    /// Settings with modules or generate branches that the defaults leave out. Lint goes through all.
    pub variants: &'static [Given],
    /// Designs with modules or generate branches that no parameter leads to. Lint goes through these, too.
    pub beyond_parameters: fn() -> Result<Vec<Design>, CoreError>,
    /// Whether synthesis maps each of its modules once and counts their copies, as is due to large cores.
    pub is_large: bool,
    /// What a paper reports of the like.
    pub paper: Option<PaperRow>,
    /// How the explorer chooses its settings, if it computes transforms: then it also has a [`cost`](Configured::cost).
    pub family: Option<Family>,
}

inventory::collect!(&'static Core);

impl Core {
    /// A small core that computes no transform, takes no list and has no variants.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        parameters: &'static [Parameter],
        configure: Configure,
    ) -> Core {
        Core {
            name,
            summary,
            parameters,
            configure,
            takes_list: |_| false,
            variants: &[],
            beyond_parameters: || Ok(Vec::new()),
            is_large: false,
            paper: None,
            family: None,
        }
    }

    /// The core with these values, which must be its own ([`Values::new`]).
    ///
    /// # Errors
    /// If the values do not go together.
    pub fn configure(&self, values: &Values) -> Result<Box<dyn Configured>, CoreError> {
        (self.configure)(values)
    }
}

/// The settings of a core that computes transforms.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Every setting that computes a transform on a technology, or why there is none: the end of a sentence that begins with
    /// the core's name.
    pub settings: fn(&Transform, Technology) -> Result<Vec<Values>, String>,
    /// The settings that are synthesized for the resource model.
    pub samples: fn(Technology) -> Vec<Values>,
    /// Settings that are synthesized only to check the model, as they are larger than what it is fitted to.
    pub large_samples: fn(Technology) -> Vec<Values>,
}

/// A core whose parameters have values that go together.
pub trait Configured {
    /// The sources, ROM contents and parameters of the module on top.
    ///
    /// # Errors
    /// If its ROMs cannot be made.
    fn design(&self) -> Result<Design, CoreError>;

    /// What its formulas say of its speed.
    fn timing(&self) -> Timing;

    /// The stages of a core that is a pipeline, in their order, with the cycles of each and the alternatives, a line each.
    fn structure(&self) -> Vec<String> {
        Vec::new()
    }

    /// About `count` inputs, extreme ones among them, with the library's results; `None` for a core whose test needs more
    /// than that, which then has a [`test`](Configured::test) of its own.
    fn vectors(&self, count: usize, seed: u64) -> Option<Vectors>;

    /// The ports of a core that has no vectors, which else say them.
    fn ports(&self) -> Option<Ports> {
        None
    }

    /// Compares a simulation with the library, by vectors of seed after seed until `count` were compared.
    ///
    /// # Errors
    /// If the core computes something else, breaks a protocol or stops.
    fn test(
        &self,
        simulation: &mut Simulation,
        count: usize,
        seed: u64,
        progress: &Progress,
    ) -> Result<Outcome, CoreError> {
        let run = |simulation: &mut Simulation, seed| {
            let none = || CoreError::Wrong("there are no vectors to test with".to_owned());
            let vectors = self.vectors(count, seed).ok_or_else(none)?;
            vectors.run(simulation, seed, progress)
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

    /// What is known without synthesis of a core that computes a transform, cycles by the functions that
    /// [`timing`](Configured::timing) has them from; `None` for settings that there is no model of.
    ///
    /// `transform` says which of its directions is meant where a setting has both: forward without one.
    fn cost(&self, _technology: Technology, _transform: Option<&Transform>) -> Option<Figures> {
        None
    }
}
