//! What all measurements of cores share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toroid_bench_common::Error;
use toroid_bench_common::pages::{keep, kept};
use toroid_cores::synthesis::{Resources, SCRIPTS, synthesize_design};
use toroid_cores::technology::Technology as Device;
use toroid_cores::tools::{CELLS, SYNTHESIS};
use toroid_cores::vectors::{Input, Joined, Outcome, Streams, Vectors};
use toroid_cores::{Core, Values};
use toroid_sim::model::{Design, Model, Options};

use crate::row::Area;
use toroid_task::Progress;

/// The bar of so many steps, with the current one.
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
    if found == formula {
        Ok(found)
    } else {
        Err(format!("{found} cycles, by the formula {formula}").into())
    }
}

/// A sign of work that has no steps.
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
    SCRIPTS.hash(&mut hasher);
    format!("{prefix}-{:016x}", hasher.finish())
}

/// What `find` finds of a design; what is kept of it in `work` by this prefix is not searched again.
pub fn once<T: Serialize + DeserializeOwned>(
    prefix: &str,
    design: &Design,
    work: &Path,
    find: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let name = key(prefix, design);
    if let Ok(found) = kept(work, &name) {
        return Ok(found);
    }
    let found = find()?;
    keep(work, &name, &found)?;
    Ok(found)
}

/// What a core takes of a Xilinx 7; what is kept in `work` is not synthesized again.
pub fn synthesized(core: &Core, values: &Values, work: &Path) -> Result<Area, Error> {
    synthesized_design(
        core.name,
        &core.configure(values)?.design()?,
        core.is_large,
        work,
    )
}

/// [`synthesized`] for any design; `name` is for errors.
pub fn synthesized_design(
    name: &'static str,
    design: &Design,
    is_large: bool,
    work: &Path,
) -> Result<Area, Error> {
    let prefix = if is_large {
        "synthesis-by-module"
    } else {
        "synthesis"
    };
    let found: Resources = once(prefix, design, work, || {
        Ok(synthesize_design(
            name,
            design,
            is_large,
            Device::Xc7,
            &Progress::none(),
        )?)
    })?;
    Ok(found.into())
}

/// Cycles of a transform or product.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Cycles {
    /// First beat in to last beat out, both counted.
    pub latency: u64,
    /// From one to the next, where they follow each other.
    pub interval: u64,
}

/// How the vectors of a core divide into transforms or products.
pub struct Shape {
    /// Beats in and out of each.
    pub beats: [u64; 2],
    /// How many there are.
    pub count: u64,
    /// Cycles of one alone by the formula.
    pub latency: u64,
}

/// One transform or product, and several back to back, compared with the library with and without stalls.
pub fn simulated(
    core: &Core,
    values: &Values,
    shape: &Shape,
    work: &Path,
) -> Result<Cycles, Error> {
    let design = core.configure(values)?.design()?;
    once("cycles", &design, work, || {
        let model = Model::build(&design, &Options::quick_random())?;
        let mut simulation = model.start_random(1)?;
        simulation.reset(4)?;
        let all = core.configure(values)?.vectors(1, 1).ok_or("no vectors")?;
        let one = first(&all, shape).ok_or("no streams")?;
        let one = one.run(&mut simulation, 1, &Progress::none())?;
        let several = all.run(&mut simulation, 2, &Progress::none())?;
        let (latency, several) = (counted(&one)?, counted(&several)?);
        Ok(Cycles {
            latency,
            interval: (several - latency) / (shape.count - 1),
        })
    })
}

/// The first transform or product of the vectors alone.
fn first(all: &Vectors, shape: &Shape) -> Option<Vectors> {
    let [in_beats, out_beats] = shape.beats.map(|beats| beats as usize);
    let of = |streams: &Streams| Streams {
        sent: streams.sent[..in_beats].to_vec(),
        expected: streams.expected[..out_beats].to_vec(),
        cycles: shape.latency,
        ..streams.clone()
    };
    match all {
        Vectors::Pipeline(_) => None,
        Vectors::Streams(streams) => Some(Vectors::Streams(of(streams))),
        Vectors::Joined(joined) => {
            let others = joined.others.iter().map(|other| Input {
                sent: other.sent[..in_beats.min(other.sent.len())].to_vec(),
                ..other.clone()
            });
            Some(Vectors::Joined(Joined {
                streams: of(&joined.streams),
                others: others.collect(),
            }))
        }
    }
}
