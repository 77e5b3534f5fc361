//! What tests of several cores need.

use crate::error::CoreError;
use crate::interface::{Core, Values};
use crate::registry::find;
use crate::vectors::{Joined, Streams, Vectors};
use toroid_sim::model::{Design, Model, ModelError, Options, Value};
use toroid_sim::random::Random;
use toroid_sim::simulation::{Agent, Simulation};
use toroid_sim::stream::{Beat, Sink, Source};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

/// Settings of a core: those that are not given keep their defaults.
pub type Given<'a> = &'a [(&'static str, u64)];

/// The values of a core of the list.
pub fn values(core: &str, given: Given) -> Result<Values, CoreError> {
    Values::new(find(core).unwrap(), given.iter().copied())
}

/// Why a core cannot be configured so.
pub fn unconfigured(core: &str, given: Given) -> String {
    let configured = values(core, given).and_then(|values| find(core)?.configure(&values));
    configured.map(drop).unwrap_err().to_string()
}

/// The vectors of settings back to back, with cycles as by the formula, and under random back-pressure.
pub fn verify(core: &str, settings: &[Given]) {
    if tests_are_skipped() {
        return;
    }
    for given in settings {
        let values = values(core, given).unwrap();
        let core = find(core).unwrap();
        let outcome = crate::test(core, &values, 1, 7, None, &Progress::none())
            .unwrap_or_else(|error| panic!("{given:?}: {error}"));
        assert_eq!(outcome.measured, outcome.expected, "{given:?}");
    }
}

/// The first input stream with the output, and what enters by the second, if there is one and it takes anything.
pub fn streams(vectors: &Vectors) -> (&Streams, &[Beat]) {
    match vectors {
        Vectors::Joined(joined) => (&joined.streams, &joined.others[0].sent),
        Vectors::Streams(streams) => (streams, &[]),
        Vectors::Pipeline(_) => unreachable!(),
    }
}

/// Runs for some cycles, with the second input if there is one.
pub fn run(
    simulation: &mut Simulation,
    cycles: u64,
    source: &mut Source,
    other: &mut Option<Source>,
    sink: &mut Sink,
) {
    for _ in 0..cycles {
        let mut agents: Vec<&mut dyn Agent> = vec![source, sink];
        agents.extend(other.iter_mut().map(|other| other as &mut dyn Agent));
        simulation.cycle(&mut agents).unwrap();
    }
}

/// The source of the second input.
pub fn other(simulation: &Simulation, stall: f64, seed: u64) -> Option<Source> {
    let is_there = simulation.has_port("b_tvalid_i");
    is_there.then(|| Source::new(simulation, "b", stall, seed).unwrap())
}

/// Resets a core in the midst of vectors; those after it come as they should.
pub fn reset_leaves_nothing_behind(name: &str, given: Given) {
    if tests_are_skipped() {
        return;
    }
    let values = values(name, given).unwrap();
    let core = find(name).unwrap();
    let mut simulation = start(name, &values, 9);
    let mut random = Random::new(1);
    for _ in 0..12 {
        let vectors = core
            .configure(&values)
            .unwrap()
            .vectors(1, random.word())
            .unwrap();
        let (streams, others) = streams(&vectors);
        let mut source = Source::new(&simulation, streams.input, 0.3, random.word()).unwrap();
        let mut other = other(&simulation, 0.3, random.word());
        let mut sink = Sink::new(&simulation, "out", 0.3, random.word()).unwrap();
        source.extend(streams.sent.iter().cloned());
        other
            .iter_mut()
            .for_each(|other| other.extend(others.iter().cloned()));
        let cycles = random.below(2 * streams.cycles);
        run(&mut simulation, cycles, &mut source, &mut other, &mut sink);
        simulation.reset(1).unwrap();
        let outcome = vectors
            .run(&mut simulation, random.word(), &Progress::none())
            .unwrap();
        assert_eq!(outcome.measured, outcome.expected, "{name} {given:?}");
    }
}

/// Nothing is taken at the output until the input has stopped, and then everything comes as it should. `room` gives the beats that
/// the first input then has sent, from the latency and the interval.
pub fn waiting_output_stops_input(name: &str, given: Given, room: impl Fn(u64, u64) -> u64) {
    if tests_are_skipped() {
        return;
    }
    let values = values(name, given).unwrap();
    let core = find(name).unwrap();
    let timing = core.configure(&values).unwrap().timing();
    let [latency, interval] =
        [timing.latency, timing.interval].map(|cycles| cycles.unwrap().cycles);
    let mut simulation = start(name, &values, 4);
    let mut other = other(&simulation, 0.3, 2);
    let mut expected = Vec::new();
    let mut source = None;
    for seed in 0..20 {
        let vectors = core.configure(&values).unwrap().vectors(1, seed).unwrap();
        let (streams, others) = streams(&vectors);
        let source =
            source.get_or_insert_with(|| Source::new(&simulation, streams.input, 0.0, 1).unwrap());
        source.extend(streams.sent.iter().cloned());
        other
            .iter_mut()
            .for_each(|other| other.extend(others.iter().cloned()));
        expected.extend_from_slice(&streams.expected);
    }
    let mut source = source.unwrap();
    let mut waiting = Sink::new(&simulation, "out", 1.0, 3).unwrap();
    run(&mut simulation, 600, &mut source, &mut other, &mut waiting);
    assert_eq!(source.sent(), room(latency, interval), "{name} {given:?}");
    assert!(waiting.received().is_empty());
    let mut taking = Sink::new(&simulation, "out", 0.0, 3).unwrap();
    run(&mut simulation, 2500, &mut source, &mut other, &mut taking);
    assert_eq!(taking.received(), &expected[..], "{name} {given:?}");
}

/// A core of the list after a reset.
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

/// Cycles of vectors in a simulation of a core, to check figures by: of all, and of the first of so many transforms alone.
pub fn measured(core: &Core, values: &Values, transforms: usize) -> (u64, u64) {
    let configured = core.configure(values).unwrap();
    let model = Model::build(&configured.design().unwrap(), &Options::quick_random()).unwrap();
    let mut simulation = model.start_random(1).unwrap();
    simulation.reset(4).unwrap();
    let mut run = |vectors: &Vectors| {
        vectors
            .run(&mut simulation, 1, &Progress::none())
            .unwrap()
            .measured
    };
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
        // The others have a beat for each of these, after what comes before the first transform.
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
