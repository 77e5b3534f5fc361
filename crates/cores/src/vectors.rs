//! Inputs of a core with the results that the library gives, and how they are run in the simulator.

use crate::error::CoreError;
use crate::ports::{Field, Ports, StreamPorts};
use toroid_sim::simulation::{Agent, Simulation};
use toroid_sim::stream::{Beat, Sink, Source};
use toroid_task::{Cancelled, Progress};

/// For a core without handshake: a row of inputs enters in every cycle, its outputs are there `latency` cycles later.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The ports that rows enter by.
    pub inputs: Vec<Field>,
    /// The ports that results leave by.
    pub outputs: Vec<Field>,
    /// By the formula.
    pub latency: u64,
    /// Inputs and outputs, in the order of the ports.
    pub rows: Vec<(Vec<u64>, Vec<u64>)>,
}

/// For a core between two AXI4-Streams.
#[derive(Clone, Debug)]
pub struct Streams {
    /// What the core's ports `{input}_tdata` and so on take.
    pub input: &'static str,
    /// What its ports `{output}_tdata` and so on give.
    pub output: &'static str,
    /// What enters.
    pub sent: Vec<Beat>,
    /// What must leave.
    pub expected: Vec<Beat>,
    /// Bits of `tuser` on both sides, where there is one.
    pub user_bits: u32,
    /// From the first beat that enters to the last that leaves, both counted, without stalls, by the formula.
    pub cycles: u64,
}

/// For a core that takes several AXI4-Streams.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The first input stream, and the output.
    pub streams: Streams,
    /// The other input streams.
    pub others: Vec<Input>,
}

/// A further input stream of a core.
#[derive(Clone, Debug)]
pub struct Input {
    /// What the core's ports `{name}_tdata` and so on take.
    pub name: &'static str,
    /// Bytes of a beat.
    pub bytes: usize,
    /// Bits of its `tuser`, where there is one.
    pub user_bits: u32,
    /// What enters, if anything.
    pub sent: Vec<Beat>,
}

/// What a core is tested with.
#[derive(Clone, Debug)]
pub enum Vectors {
    /// In every cycle.
    Pipeline(Pipeline),
    /// By streams.
    Streams(Streams),
    /// By several input streams.
    Joined(Joined),
}

/// What came of a test that found no difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Rows or beats that were compared.
    pub compared: u64,
    /// Clock cycles that the simulation took.
    pub simulated: u64,
    /// The cycles that were counted, of what [`Timing::checked`](crate::interface::Timing) states.
    pub measured: u64,
    /// Those by the formula.
    pub expected: u64,
}

/// Latencies beyond this are not looked for.
const LONGEST: usize = 256;

/// How often a long run reports and can be cancelled, in cycles.
const REPORTED: u64 = 1 << 12;

fn report(progress: &Progress, done: u64, total: u64) -> Result<(), Cancelled> {
    if done.is_multiple_of(REPORTED) {
        progress.report("simulating", done, total);
        progress.check()?;
    }
    Ok(())
}

impl Vectors {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Vectors::Pipeline(pipeline) => pipeline.rows.len(),
            Vectors::Streams(streams) => streams.expected.len(),
            Vectors::Joined(joined) => joined.streams.expected.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What they enter and leave by.
    pub fn ports(&self) -> Ports {
        let (streams, others): (_, &[_]) = match self {
            Vectors::Pipeline(pipeline) => {
                return Ports::Pipeline {
                    inputs: pipeline.inputs.clone(),
                    outputs: pipeline.outputs.clone(),
                };
            }
            Vectors::Streams(streams) => (streams, &[]),
            Vectors::Joined(joined) => (&joined.streams, &joined.others),
        };
        let of = |name, is_input, bytes: usize, user_bits| StreamPorts {
            name,
            is_input,
            data_bits: 8 * bytes as u32,
            user_bits,
        };
        let bytes = |beats: &[Beat]| beats.first().map_or(1, |beat| beat.data.len());
        let mut all = vec![of(
            streams.input,
            true,
            bytes(&streams.sent),
            streams.user_bits,
        )];
        let others = others.iter();
        all.extend(others.map(|other| of(other.name, true, other.bytes, other.user_bits)));
        all.push(of(
            streams.output,
            false,
            bytes(&streams.expected),
            streams.user_bits,
        ));
        Ports::Streams {
            streams: all,
            memory: None,
        }
    }

    /// Runs them. Streams run twice: at full speed, where cycles count, and with stalls on both sides.
    ///
    /// # Errors
    /// If something else comes out.
    pub fn run(
        &self,
        simulation: &mut Simulation,
        seed: u64,
        progress: &Progress,
    ) -> Result<Outcome, CoreError> {
        let (streams, others): (_, &[_]) = match self {
            Vectors::Pipeline(pipeline) => return pipeline.run(simulation, progress),
            Vectors::Streams(streams) => (streams, &[]),
            Vectors::Joined(joined) => (&joined.streams, &joined.others),
        };
        let outcome = streams.run(others, simulation, 0.0, seed, progress)?;
        let stalled = streams.run(others, simulation, 0.4, seed, progress)?;
        Ok(Outcome {
            compared: outcome.compared + stalled.compared,
            simulated: simulation.cycles(),
            ..outcome
        })
    }
}

impl Pipeline {
    fn run(&self, simulation: &mut Simulation, progress: &Progress) -> Result<Outcome, CoreError> {
        let inputs = self
            .inputs
            .iter()
            .map(|field| simulation.input(field.name, field.bits));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let outputs = self
            .outputs
            .iter()
            .map(|field| simulation.output(field.name, field.bits));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let total = self.rows.len() + LONGEST.max(self.latency as usize);
        let mut seen: Vec<Vec<u64>> = Vec::with_capacity(total);
        for cycle in 0..total {
            report(progress, cycle as u64, total as u64)?;
            // Behind the last row the first come again, so that nothing stands still.
            if let Some((values, _)) = self.rows.get(cycle % self.rows.len().max(1)) {
                for (port, value) in inputs.iter().zip(values) {
                    simulation.set(*port, *value);
                }
            }
            simulation.settle()?;
            seen.push(outputs.iter().map(|port| simulation.get(*port)).collect());
            simulation.tick()?;
        }
        let expected = || self.rows.iter().map(|(_, outputs)| outputs);
        let fits = |latency: &usize| {
            seen[*latency..]
                .iter()
                .zip(expected())
                .all(|(seen, row)| seen == row)
        };
        let latency = self.latency as usize;
        let measured = std::iter::once(latency).chain(0..=LONGEST).find(fits);
        match measured {
            Some(measured) => Ok(Outcome {
                compared: self.rows.len() as u64,
                simulated: simulation.cycles(),
                measured: measured as u64,
                expected: self.latency,
            }),
            None => Err(self.difference(&seen[latency..])),
        }
    }

    fn difference(&self, seen: &[Vec<u64>]) -> CoreError {
        let list = |fields: &[Field], values: &[u64]| {
            let shown = fields
                .iter()
                .zip(values)
                .map(|(field, value)| format!("{} {value:#x}", field.name));
            shown.collect::<Vec<_>>().join(", ")
        };
        let rows = self.rows.iter().zip(seen).enumerate();
        let wrong = rows.filter(|(_, ((_, expected), seen))| expected != *seen);
        let first = wrong.clone().next();
        CoreError::Wrong(match first {
            Some((i, ((inputs, expected), seen))) => format!(
                "{} of {} results differ from the library; row {i}: of {} expected {}, found {}",
                wrong.count(),
                self.rows.len(),
                list(&self.inputs, inputs),
                list(&self.outputs, expected),
                list(&self.outputs, seen)
            ),
            None => "no result".to_owned(),
        })
    }
}

impl Streams {
    fn run(
        &self,
        others: &[Input],
        simulation: &mut Simulation,
        stall: f64,
        seed: u64,
        progress: &Progress,
    ) -> Result<Outcome, CoreError> {
        let mut source = Source::new(simulation, self.input, stall, seed)?;
        let mut sink = Sink::new(simulation, self.output, stall, seed.wrapping_add(1))?;
        source.extend(self.sent.iter().cloned());
        let mut more = Vec::new();
        for (number, other) in (2..).zip(others) {
            let seed = seed.wrapping_add(number);
            let mut source = Source::new(simulation, other.name, stall, seed)?;
            source.extend(other.sent.iter().cloned());
            more.push(source);
        }
        let limit = 100 + 8 * self.cycles;
        let mut entered = None;
        let mut done = 0;
        while sink.received().len() < self.expected.len() {
            if done == limit {
                let missing = sink.received().len();
                return Err(CoreError::Wrong(format!(
                    "beat {missing} of {} did not leave within {limit} cycles",
                    self.expected.len()
                )));
            }
            report(progress, done, limit)?;
            let now = simulation.cycles();
            let mut agents: Vec<&mut dyn Agent> = vec![&mut source, &mut sink];
            agents.extend(more.iter_mut().map(|source| source as &mut dyn Agent));
            simulation.cycle(&mut agents)?;
            if source.sent() == 1 {
                entered.get_or_insert(now);
            }
            done += 1;
        }
        for (i, (seen, expected)) in sink.received().iter().zip(&self.expected).enumerate() {
            if seen != expected {
                let form = |beat: &Beat| {
                    let digits: String = beat
                        .data
                        .iter()
                        .rev()
                        .map(|byte| format!("{byte:02x}"))
                        .collect();
                    format!(
                        "{digits} (tlast {}, tuser {})",
                        u8::from(beat.last),
                        beat.user
                    )
                };
                return Err(CoreError::Wrong(format!(
                    "beat {i} differs from the library: expected {}, found {}",
                    form(expected),
                    form(seen)
                )));
            }
        }
        let first = entered.unwrap_or(0);
        Ok(Outcome {
            compared: self.expected.len() as u64,
            simulated: simulation.cycles(),
            measured: sink.last_cycle().map_or(0, |last| last + 1 - first),
            expected: self.cycles,
        })
    }
}
