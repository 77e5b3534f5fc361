//! What all measurements of cores share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toroid_cores::synthesis::{Device, Resources, SCRIPT, synthesize_design};
use toroid_cores::tools::{CELLS, SYNTHESIS};
use toroid_cores::vectors::Outcome;
use toroid_cores::{Core, Values};
use toroid_sim::model::Design;

use crate::Error;
use crate::report::{keep, kept};

/// The bar of so many steps, with what is under way.
pub fn steps(count: u64) -> Result<ProgressBar, Error> {
    let bar = ProgressBar::new(count);
    bar.set_style(ProgressStyle::with_template(
        "{wide_bar} {pos}/{len} {msg}",
    )?);
    Ok(bar)
}

/// The cycles of a test, which must be those of the formula.
pub fn counted(outcome: &Outcome) -> Result<u64, Error> {
    let (found, formula) = (outcome.measured, outcome.expected);
    match found == formula {
        true => Ok(found),
        false => Err(format!("{found} cycles, by the formula {formula}").into()),
    }
}

/// A sign that something without steps is under way.
pub fn spinner(message: &str) -> Result<ProgressBar, Error> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}")?);
    bar.set_message(message.to_owned());
    bar.enable_steady_tick(Duration::from_millis(500));
    Ok(bar)
}

/// A name for what was found of a design: it belongs to these sources, ROMs and parameters, and to the tools that found it.
pub fn key(prefix: &str, design: &Design) -> String {
    let mut hasher = DefaultHasher::new();
    for (name, text) in &design.sources {
        (name, text).hash(&mut hasher);
    }
    for (name, contents) in &design.files {
        (name, contents).hash(&mut hasher);
    }
    format!("{:?}", design.parameters).hash(&mut hasher);
    for group in [toroid_sim::toolchain::SIMULATION, SYNTHESIS, CELLS] {
        group.requirements.hash(&mut hasher);
    }
    SCRIPT.hash(&mut hasher);
    format!("{prefix}-{:016x}", hasher.finish())
}

/// LUTs of logic, memories and shift registers.
pub fn luts(resources: &Resources) -> f64 {
    (resources.lut + resources.lutram) as f64
}

/// Block memories of 36 Kbit, of which two of 18 make one.
pub fn blocks(resources: &Resources) -> f64 {
    resources.ramb36 as f64 + resources.ramb18 as f64 / 2.0
}

/// What `find` finds of a design; what is kept of it in `work` by this prefix is not searched again.
pub fn once<T: Serialize + DeserializeOwned>(
    prefix: &str,
    design: &Design,
    work: &Path,
    find: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let name = key(prefix, design);
    if let Ok(found) = kept(work, &name, prefix) {
        return Ok(found);
    }
    let found = find()?;
    keep(work, &name, &found)?;
    Ok(found)
}

/// What a core takes of a Xilinx 7; what is kept in `work` is not synthesized again.
pub fn synthesized(core: &dyn Core, values: &Values, work: &Path) -> Result<Resources, Error> {
    synthesized_design(core.name(), &core.design(values)?, core.is_large(), work)
}

/// [`synthesized`] for any design; `name` is for errors.
pub fn synthesized_design(
    name: &'static str,
    design: &Design,
    is_large: bool,
    work: &Path,
) -> Result<Resources, Error> {
    let prefix = if is_large {
        "synthesis-by-module"
    } else {
        "synthesis"
    };
    once(prefix, design, work, || {
        Ok(synthesize_design(name, design, is_large, Device::Xc7, &())?)
    })
}
