//! What tests of several cores need.

#![allow(dead_code, reason = "each test file uses some of it")]

use toroid_cosim::core::{Values, find};
use toroid_cosim::model::{Design, Model, ModelError, Options, Value};
use toroid_cosim::simulation::Simulation;

/// A core of the list behind a reset.
pub fn start(core: &str, values: &Values, seed: u32) -> Simulation {
    let design = find(core).unwrap().design(values).unwrap();
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
