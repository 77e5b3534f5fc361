//! The list of cores.

use std::path::Path;

use toroid_sim::model::{Model, Options};
use toroid_sim::process::Watch;

use crate::error::CoreError;
use crate::interface::{Core, Values};
use crate::vectors::Outcome;

/// Every core.
pub static CORES: &[&dyn Core] = &[
    &crate::units::GoldilocksMul,
    &crate::units::ButterflyIntegrated,
    &crate::ntt_inplace::NttInplace,
    &crate::ntt_streaming::NttStreaming,
    &crate::ntt_rader::NttRader,
    &crate::ntt_sdf::NttSdf,
    &crate::polymul_sdf::PolymulSdf,
    &crate::ntt_elastic::NttElastic,
    &crate::permutation::StreamPermutation,
    &crate::engine::ComputingEngine,
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

/// The cores that compute transforms, by their names.
pub fn transforms() -> impl Iterator<Item = &'static dyn Core> {
    let mut cores: Vec<_> = CORES
        .iter()
        .copied()
        .filter(|core| core.is_transform())
        .collect();
    cores.sort_by_key(|core| core.name());
    cores.into_iter()
}

/// Simulates a core and compares it with the library; the outcome has the formula's count beside the one that was found.
///
/// # Errors
/// As of [`Model::build_watched`] and [`Configured::test`](crate::interface::Configured::test).
pub fn test(
    core: &dyn Core,
    values: &Values,
    count: usize,
    seed: u64,
    waves: Option<&Path>,
    watch: &dyn Watch,
) -> Result<Outcome, CoreError> {
    let options = Options {
        trace: waves.is_some(),
        // As after power-up: nothing may depend on what registers and memories begin with.
        random_start: true,
        quick: !core.is_large(),
    };
    let configured = core.configure(values)?;
    let model = Model::build_watched(&configured.design()?, &options, watch)?;
    let mut simulation = model.start_random(seed as u32)?;
    if let Some(path) = waves {
        simulation.trace_to(path)?;
    }
    simulation.reset(4)?;
    configured.test(&mut simulation, count, seed, watch)
}
