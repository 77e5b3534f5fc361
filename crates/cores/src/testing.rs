//! What tests of several cores need.

use crate::interface::{Core, Values};
use crate::registry::find;
use crate::vectors::{Joined, Streams, Vectors};
use toroid_sim::model::{Design, Model, ModelError, Options, Value};
use toroid_sim::simulation::Simulation;

/// A core of the list behind a reset.
pub fn start(core: &str, values: &Values, seed: u32) -> Simulation {
    let design = find(core)
        .unwrap()
        .configure(values)
        .unwrap()
        .design()
        .unwrap();
    let model = Model::build(&design, &Options::quick_random()).unwrap();
    let mut simulation = model.start_random(seed).unwrap();
    simulation.reset(2).unwrap();
    simulation
}

/// A design with another value of one of its parameters.
pub fn replaced(design: &Design, name: &str, value: Value) -> Design {
    let mut design = design.clone();
    let mut parameters = design.parameters.iter_mut();
    parameters.find(|(each, _)| each == name).unwrap().1 = value;
    design
}

/// What is said of a design that cannot be elaborated.
#[track_caller]
pub fn refusal(design: &Design) -> String {
    match Model::build(design, &Options::quick_random()) {
        Err(ModelError::Elaboration { message, .. }) => message,
        other => panic!("{} {:?}: {other:?}", design.top, design.parameters),
    }
}

/// Cycles of vectors in a simulation of a core, to hold figures against: of all, and of the first of so many transforms alone.
pub fn measured(core: &dyn Core, values: &Values, transforms: usize) -> (u64, u64) {
    let configured = core.configure(values).unwrap();
    let model = Model::build(&configured.design().unwrap(), &Options::quick_random()).unwrap();
    let mut simulation = model.start_random(1).unwrap();
    simulation.reset(4).unwrap();
    let mut run = |vectors: &Vectors| vectors.run(&mut simulation, 1, &()).unwrap().measured;
    let mut vectors = configured.vectors(transforms, 1).unwrap();
    let all = run(&vectors);
    let first = |streams: &mut Streams| {
        let rest = streams.sent.len() - streams.sent.len() / transforms;
        streams.sent.truncate(streams.sent.len() - rest);
        streams.expected.truncate(streams.expected.len() - rest);
        rest
    };
    match &mut vectors {
        Vectors::Streams(streams) => {
            first(streams);
        }
        // The others have a beat for each of these, behind what comes before the first transform.
        Vectors::Joined(Joined { streams, others }) => {
            let rest = first(streams);
            for other in others {
                other.sent.truncate(other.sent.len() - rest);
            }
        }
        Vectors::Pipeline(_) => unreachable!("transforms come as streams"),
    }
    let alone = run(&vectors);
    (all, alone)
}
