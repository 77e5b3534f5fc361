//! The list of cores.

use std::path::Path;

use toroid_sim::model::{Model, Options};

use crate::error::CoreError;
use crate::interface::{Core, Family, Values};
use crate::vectors::Outcome;
use toroid_task::Progress;

/// Every core, by their names.
pub fn cores() -> Vec<&'static Core> {
    let mut cores: Vec<_> = inventory::iter::<&'static Core>().copied().collect();
    cores.sort_by_key(|core| core.name);
    cores
}

/// The core of this name.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<&'static Core, CoreError> {
    let cores = cores();
    let found = cores.iter().find(|core| core.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = cores.iter().map(|core| core.name).collect();
        CoreError::UnknownCore {
            name: name.to_owned(),
            names: names.join(", "),
        }
    })
}

/// The cores that compute transforms, by their names.
pub fn families() -> impl Iterator<Item = (&'static Core, Family)> {
    let cores = cores().into_iter();
    cores.filter_map(|core| Some((core, core.family?)))
}

/// Simulates a core and compares it with the library; the outcome has the formula's count beside the one that was found.
///
/// # Errors
/// As of [`Model::build_with`] and [`Configured::test`](crate::interface::Configured::test).
pub fn test(
    core: &Core,
    values: &Values,
    count: usize,
    seed: u64,
    waves: Option<&Path>,
    progress: &Progress,
) -> Result<Outcome, CoreError> {
    let options = Options {
        trace: waves.is_some(),
        // As after power-up: nothing may depend on what registers and memories begin with.
        random_start: true,
        quick: !core.is_large,
    };
    let configured = core.configure(values)?;
    let model = Model::build_with(&configured.design()?, &options, progress)?;
    let mut simulation = model.start_random(seed as u32)?;
    if let Some(path) = waves {
        simulation.trace_to(path)?;
    }
    simulation.reset(4)?;
    configured.test(&mut simulation, count, seed, progress)
}
