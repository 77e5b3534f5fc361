//! The computing engines (`hw/engine`, `hw/engine_streaming`): their main memory, commands and cycles, and the back end that programs run on.

mod backend;
mod driver;
mod error;
pub mod formula;
pub mod layout;
#[cfg(test)]
mod tests;

pub use backend::{Counted, RtlBackend, RtlStatistics, key_words};
pub use driver::{Command, Engine, design, design_of};
pub use error::EngineError;
pub use layout::{Form, Shape};

use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, BackendError, LoadedKey};
use toroid_engine::{BootstrapTask, CancelToken, Requester};
use toroid_isa::KeyKind;
use toroid_ring::goldilocks::P;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::{self, Gadget, ModulusKind, ModulusSwitch, ParamSet, StageParams};
use toroid_tfhe::seeded::KeyForm;

use crate::error::CoreError;
use crate::interface::{Configured, Core, Cycles, PaperRow, Parameter, Timing, Values};
use crate::ports::{MemoryPorts, Ports, StreamPorts};
use crate::vectors::{Outcome, Vectors};
use toroid_sim::memory;
use toroid_sim::model::Design;
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_task::Progress;

const PARAMETERS: [Parameter; 2] = [
    Parameter {
        name: "LOG_N",
        doc: "log2 of the ring degree N",
        default: 9,
        range: 6..=16,
    },
    Parameter {
        name: "LOG_LANES",
        doc: "log2 of the banks of each of the two circuits, which have half as many butterflies each; at most LOG_N - 4",
        default: 3,
        range: 2..=8,
    },
];

const STREAMING_PARAMETERS: [Parameter; 2] = [
    Parameter {
        name: "LOG_N",
        doc: "log2 of the ring degree N, even",
        default: 8,
        range: 6..=14,
    },
    Parameter {
        name: "LOG_LANES",
        doc: "log2 of the words a cycle through the transform, half of those in a beat of main memory; LOG_N / 4 to LOG_N / 2",
        default: 3,
        range: 2..=7,
    },
];

/// Bits of the widest memory port (`hw/engine/engine.sv`).
const MOST_BITS: u32 = 1024;

/// A set of the core's degree, with few steps, and gadgets that leave bits over and differ between mask and body.
fn set(log_n: u64, modulus: ModulusKind, lwe_dimension: usize) -> ParamSet {
    ParamSet {
        stage: StageParams {
            name: "steps",
            modulus,
            lwe_dimension,
            ring_degree: 1 << log_n,
            gadget: Gadget {
                levels: 3,
                log2_base: 5,
            },
            body_gadget: Some(Gadget {
                levels: 2,
                log2_base: 7,
            }),
            key_switch: Gadget {
                levels: 2,
                log2_base: 4,
            },
            body_bits: params::TINY
                .stage
                .body_bits
                .min(8 * modulus.word_bytes() as u32),
            modulus_switch: match modulus {
                ModulusKind::Torus32 => ModulusSwitch::Nearest,
                ModulusKind::Goldilocks => ModulusSwitch::MeanCompensated,
            },
            ..params::TINY.stage
        },
        ..params::TINY
    }
}

impl From<EngineError> for CoreError {
    fn from(error: EngineError) -> CoreError {
        match error {
            EngineError::Model(error) => error.into(),
            EngineError::Simulation(error) => error.into(),
            EngineError::Source(error) => error.into(),
            EngineError::Cancelled(cancelled) => cancelled.into(),
            _ => CoreError::Wrong(error.to_string()),
        }
    }
}

impl From<BackendError> for CoreError {
    fn from(error: BackendError) -> CoreError {
        CoreError::Wrong(error.to_string())
    }
}

fn load(
    cpu: &CpuBackend,
    params: &ParamSet,
    kind: KeyKind,
    bytes: &[u8],
) -> Result<std::sync::Arc<dyn LoadedKey>, BackendError> {
    let mut sink = cpu.begin_key(params, kind, KeyForm::SeededWords)?;
    sink.write(bytes)?;
    sink.finish()
}

fn configure(values: &Values) -> Result<Box<dyn Configured>, CoreError> {
    let (log_n, log_lanes) = (values["LOG_N"], values["LOG_LANES"]);
    if log_lanes + 4 > log_n {
        return Err(CoreError::Value {
            core: "engine",
            name: "LOG_LANES",
            expected: format!("at most LOG_N - 4 = {}", log_n.saturating_sub(4)),
            found: log_lanes,
        });
    }
    sized(Form::InPlace, log_n, log_lanes)
}

fn configure_streaming(values: &Values) -> Result<Box<dyn Configured>, CoreError> {
    let (log_n, log_lanes) = (values["LOG_N"], values["LOG_LANES"]);
    let wrong = |name, expected: &str, found| {
        Err(CoreError::Value {
            core: "engine_streaming",
            name,
            expected: expected.to_owned(),
            found,
        })
    };
    if !log_n.is_multiple_of(2) {
        return wrong("LOG_N", "even", log_n);
    }
    if !(log_n.div_ceil(4)..=log_n / 2).contains(&log_lanes) {
        return wrong("LOG_LANES", "from LOG_N / 4 to LOG_N / 2", log_lanes);
    }
    sized(Form::Streaming, log_n, log_lanes)
}

fn sized(form: Form, log_n: u64, log_lanes: u64) -> Result<Box<dyn Configured>, CoreError> {
    let paper = ParamSet {
        stage: StageParams {
            ring_degree: 1 << log_n,
            ..params::PAPER.stage
        },
        ..params::PAPER
    };
    let log_lanes = log_lanes as u32;
    let steps = Shape::of(form, &set(log_n, ModulusKind::Torus32, 5), log_lanes)?;
    Ok(Box::new(Sized {
        log_n,
        steps,
        paper: Shape::of(form, &paper, log_lanes)?,
    }))
}

const PAPER_ROW: PaperRow = PaperRow {
    source: "NVMe platform paper, Table 10 (computing engine; its MicroBlazes included)",
    lut: 461_123.0,
    ff: 615_303.0,
    dsp: 1549.0,
    ramb36: 1023.5,
};

/// The core of the engine in place.
pub static CORE: Core = Core {
    is_large: true,
    paper: Some(PAPER_ROW),
    ..Core::new(
        "engine",
        "the computing engine: TFHE instructions on samples and keys in main memory",
        &PARAMETERS,
        configure,
    )
};

inventory::submit!(&CORE);

/// The core of the streaming engine.
pub static STREAMING_CORE: Core = Core {
    is_large: true,
    paper: Some(PAPER_ROW),
    ..Core::new(
        "engine_streaming",
        "the computing engine with blind rotation as a stream: the same instructions in fewer cycles",
        &STREAMING_PARAMETERS,
        configure_streaming,
    )
};

inventory::submit!(&STREAMING_CORE);

/// An engine for N = 2^`log_n`.
struct Sized {
    log_n: u64,
    /// With the set of the test.
    steps: Shape,
    /// With the paper's set at this N.
    paper: Shape,
}

impl Configured for Sized {
    fn design(&self) -> Result<Design, CoreError> {
        Ok(design(self.steps)?)
    }

    fn timing(&self) -> Timing {
        let step = match self.steps.form {
            Form::InPlace => {
                "(l + 1) (T + D) + 2 l (R + D) + (l + 3) (R + D) + 2, with T of a transform, R = 2 N / 2^LOG_LANES, D = 30"
            }
            Form::Streaming => {
                "(l + l') N / 2^LOG_LANES + 2 T + 51, with T of a transform, l and l' levels of mask and body"
            }
        };
        Timing {
            parts: vec![
                Cycles {
                    what: "CMux with the paper's l = 5 at this N",
                    formula: step,
                    cycles: formula::step(self.paper).total(),
                },
                Cycles {
                    what: "bootstrap with the paper's n = 800, l = 5, t = 7 at this N, but for memory's latency",
                    formula: "n CMux + start + key switch",
                    cycles: formula::bootstrap(self.paper).total(),
                },
            ],
            ..Timing::only(Cycles {
                what: match self.steps.form {
                    Form::InPlace => "CMux with l = 3",
                    Form::Streaming => "CMux with l = 3, l' = 2",
                },
                formula: step,
                cycles: formula::step(self.steps).total(),
            })
        }
    }

    fn vectors(&self, _: usize, _: u64) -> Option<Vectors> {
        None
    }

    fn ports(&self) -> Option<Ports> {
        let stream = |name, is_input, data_bits| StreamPorts {
            name,
            is_input,
            data_bits,
            user_bits: 0,
        };
        let beat_bits = 64 << self.steps.log_lanes;
        let data_bits = beat_bits.min(MOST_BITS);
        Some(Ports::Streams {
            streams: vec![
                stream("cmd", true, 128),
                stream("rsp", false, 64),
                stream("result", false, beat_bits),
            ],
            memory: Some(MemoryPorts {
                count: beat_bits / data_bits,
                address_bits: 40,
                data_bits,
            }),
        })
    }

    /// Bootstraps of random words under random keys over both moduli, and the linear instructions, with a memory and streams that stall at
    /// random in the last two of the four rounds, whatever `count`. What is measured is a step: the first round once more with a
    /// step more.
    fn test(
        &self,
        simulation: &mut Simulation,
        _count: usize,
        seed: u64,
        progress: &Progress,
    ) -> Result<Outcome, CoreError> {
        let (start, mut compared) = (simulation.cycles(), 0);
        let slow = memory::Timing {
            bandwidth: 0.6,
            stall: 0.2,
            ..memory::Timing::default()
        };
        let rounds = [
            (ModulusKind::Torus32, 5, memory::Timing::default()),
            (ModulusKind::Torus32, 6, memory::Timing::default()),
            (ModulusKind::Goldilocks, 5, slow),
            (ModulusKind::Torus32, 5, slow),
        ];
        let mut cycles = Vec::new();
        let mut expected = 0;
        for (round, (modulus, steps, timing)) in (0..).zip(rounds) {
            let set = set(self.log_n, modulus, steps);
            let shape = Shape::of(self.steps.form, &set, self.steps.log_core_lanes())?;
            let mut random = Random::new(seed.wrapping_add(round));
            cycles.push(round_of(simulation, shape, timing, &mut random, progress)?);
            expected = formula::step(shape).total();
            compared += 4 * set.lwe_words() as u64;
        }
        // With a step more comes a word more to switch, which the engine in place hides behind the end of an operation.
        let word = u64::from(self.steps.form == Form::Streaming);
        Ok(Outcome {
            compared,
            simulated: simulation.cycles() - start,
            measured: cycles[1].saturating_sub(cycles[0] + word),
            expected,
        })
    }
}

/// Compares each instruction once; gives the cycles of the bootstrap.
fn round_of(
    simulation: &mut Simulation,
    shape: Shape,
    timing: memory::Timing,
    random: &mut Random,
    progress: &Progress,
) -> Result<u64, CoreError> {
    let params = &shape.params;
    let stall = timing.stall;
    let mut words = |count| layout::bytes_of(params, (0..count).map(|_| random.below(P)));
    // A seed and bodies: any words are a key.
    let bodies = params.lwe_dimension * params.ggsw_rows() * params.ring_degree;
    let (mut bootstrapping, mut switching) = (vec![3; 32], vec![5; 32]);
    bootstrapping.extend(words(bodies));
    let samples = KeyForm::SeededWords.key_switching_key_bytes(params) as usize;
    switching.extend((0..samples - 32).map(|at| ((at * 2_654_435_761) >> 13) as u8));
    let (first, second) = (words(params.lwe_words()), words(params.lwe_words()));
    let test_vector = words(params.test_vector_words());

    let mut engine = Engine::new(simulation, shape, timing, stall, 1)?;
    let key = layout::BootstrappingKey::expand(shape, KeyForm::SeededWords, &bootstrapping)?;
    let samples = layout::expand_switching_key(params, &switching);
    let samples = layout::switching_key_to_memory(shape, &samples);
    engine.set_keys(key.words.into(), samples.into())?;
    engine.set_test_vector(0, &test_vector)?;
    engine.set_register(0, &first)?;
    engine.set_register(1, &second)?;

    let cpu = CpuBackend::with_cores(ArithmeticKind::Ntt, 1);
    let keys = (
        load(&cpu, params, KeyKind::Bootstrapping, &bootstrapping)?,
        load(&cpu, params, KeyKind::KeySwitching, &switching)?,
    );
    let mut expected = first;
    let mut bootstrap_cycles = 0;
    let multiplier = -1_234_567;
    for command in [
        Command::HomAdd(0, 1),
        Command::HomIntMult(0, multiplier),
        Command::Bootstrap(0, 0),
        Command::HomSub(0, 1),
    ] {
        let cycles = engine.run(command, progress)?;
        match command {
            Command::HomAdd(..) => cpu.hom_add(params, &mut expected, &second),
            Command::HomIntMult(..) => cpu.hom_int_mult(params, &mut expected, multiplier),
            Command::HomSub(..) => cpu.hom_sub(params, &mut expected, &second),
            _ => {
                bootstrap_cycles = cycles;
                let cancel = CancelToken::new();
                let requester = Requester::from(&cancel);
                let task = BootstrapTask {
                    test_vectors: &[&test_vector],
                    sample: &expected,
                    input_bits: params.message_bits,
                };
                expected = cpu.bootstrap(params, &*keys.0, &*keys.1, task, requester)?;
            }
        }
        let found = engine.register(0)?;
        if found != expected {
            let what = format!(
                "{command:?} over {:?} differs from the integer arithmetic, from byte {} on",
                params.modulus,
                found
                    .iter()
                    .zip(&expected)
                    .take_while(|(a, b)| a == b)
                    .count()
            );
            return Err(CoreError::Wrong(what));
        }
    }
    Ok(bootstrap_cycles)
}
