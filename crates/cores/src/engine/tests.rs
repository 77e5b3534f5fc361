//! The computing engines in simulation against the integer arithmetic of the library.

use crate::sources::design;
use std::sync::Arc;

use crate::engine::{self, Command, Engine, EngineError, Form, RtlBackend, Shape, formula, layout};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, LoadedKey};
use toroid_engine::{BootstrapTask, CancelToken, Requester};
use toroid_isa::KeyKind;
use toroid_ring::goldilocks;
use toroid_sim::memory::Timing;
use toroid_sim::model::{Design, Model, Options};
use toroid_sim::simulation::Simulation;
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{self, Gadget, ModulusKind, ModulusSwitch, ParamSet, StageParams};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

/// A few steps of blind rotation over the 32-bit torus, with a gadget that leaves bits over.
static STEPS32: ParamSet = ParamSet {
    id: 900,
    purpose: "tests of the engine",
    stage: StageParams {
        name: "steps32",
        modulus: ModulusKind::Torus32,
        lwe_dimension: 11,
        ring_degree: 512,
        glwe_dimension: 1,
        gadget: Gadget {
            levels: 3,
            log2_base: 5,
        },
        body_gadget: Some(Gadget {
            levels: 2,
            log2_base: 7,
        }),
        key_switch: Gadget {
            levels: 3,
            log2_base: 3,
        },
        body_bits: 27,
        modulus_switch: ModulusSwitch::Nearest,
        ..params::TINY.stage
    },
    wopbs: None,
    ..params::TINY
};

/// With one step more than [`STEPS32`], and a LWE sample of as many rows.
static ONE_STEP_MORE: ParamSet = ParamSet {
    stage: StageParams {
        lwe_dimension: 12,
        ..STEPS32.stage
    },
    ..STEPS32
};

/// [`STEPS32`] at a degree that the streaming engine has.
static SQUARE32: ParamSet = ParamSet {
    stage: StageParams {
        name: "square32",
        ring_degree: 256,
        ..STEPS32.stage
    },
    ..STEPS32
};

/// With one step more than [`SQUARE32`].
static SQUARE32_MORE: ParamSet = ParamSet {
    stage: StageParams {
        lwe_dimension: 12,
        ..SQUARE32.stage
    },
    ..SQUARE32
};

/// Over the Goldilocks modulus, with a single row for each component and samples of several rows.
static SQUARE64: ParamSet = ParamSet {
    stage: StageParams {
        name: "square64",
        ring_degree: 256,
        lwe_dimension: 70,
        ..params::TINY.stage
    },
    ..params::TINY
};

/// [`SQUARE32`] with columns of 32 words.
static SQUARE1024: ParamSet = ParamSet {
    stage: StageParams {
        name: "square1024",
        ring_degree: 1024,
        lwe_dimension: 5,
        ..SQUARE32.stage
    },
    ..SQUARE32
};

/// With larger digits than the streaming engine takes.
static LARGE_DIGITS: ParamSet = ParamSet {
    stage: StageParams {
        gadget: Gadget {
            levels: 1,
            log2_base: 25,
        },
        ..SQUARE64.stage
    },
    ..SQUARE64
};

/// With so large a sample that its partial sums do not fit.
static MANY_SUMS: ParamSet = ParamSet {
    stage: StageParams {
        lwe_dimension: 2000,
        ..STEPS32.stage
    },
    ..STEPS32
};

fn key_bytes(key: &ClientKey, kind: KeyKind, form: KeyForm, rng: &mut Csprng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sink = &mut |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    match kind {
        KeyKind::Bootstrapping => key.bootstrapping_key(form, rng, &Progress::none(), sink),
        KeyKind::KeySwitching => key.key_switching_key(form, rng, &Progress::none(), sink),
        KeyKind::Ring | KeyKind::Conversion => panic!("keys of rings do not come from here"),
    }
    .unwrap();
    bytes
}

fn load(
    backend: &dyn Backend,
    params: &ParamSet,
    (kind, form): (KeyKind, KeyForm),
    bytes: &[u8],
) -> Arc<dyn LoadedKey> {
    let mut sink = backend.begin_key(params, kind, form).unwrap();
    // Pieces that end within words and rows.
    for piece in bytes.chunks(100_003) {
        sink.write(piece).unwrap();
    }
    sink.finish().unwrap()
}

/// Canonical random words.
fn random_words(params: &ParamSet, count: usize, rng: &mut Csprng) -> Vec<u8> {
    layout::bytes_of(params, (0..count).map(|_| rng.next_u64() % goldilocks::P))
}

/// Bootstraps random words with random test vectors: the results must agree whatever they mean.
fn bootstraps_agree(params: &ParamSet, rtl: &RtlBackend) {
    let mut rng = Csprng::from_seed([7; 32]);
    let key = ClientKey::generate(params, &mut rng);
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let keys = |form: KeyForm, rng: &mut Csprng| {
        [KeyKind::Bootstrapping, KeyKind::KeySwitching].map(|kind| {
            let bytes = key_bytes(&key, kind, form, rng);
            [rtl as &dyn Backend, &cpu].map(|backend| load(backend, params, (kind, form), &bytes))
        })
    };
    for form in KeyForm::ALL {
        let [bootstrapping, switching] = keys(form, &mut rng);
        let sample = random_words(params, params.lwe_words(), &mut rng);
        let test_vector = random_words(params, params.test_vector_words(), &mut rng);
        let cancel = CancelToken::new();
        let results = [0, 1].map(|at| {
            let backend: &dyn Backend = if at == 0 { rtl } else { &cpu };
            let requester = Requester::from(&cancel);
            let task = BootstrapTask {
                test_vectors: &[&test_vector],
                sample: &sample,
                input_bits: params.message_bits,
            };
            let keys = (&*bootstrapping[at], &*switching[at]);
            backend
                .bootstrap(params, keys.0, keys.1, task, requester)
                .unwrap()
        });
        assert_eq!(results[0], results[1], "{} with {form:?}", params.name);
    }
    println!("{}: {:?}", params.name, rtl.rtl_statistics());
}

/// Memory with what a real one does: latency, less than a beat per cycle, random stalls.
const SLOW: Timing = Timing {
    latency: 90,
    bandwidth: 0.4,
    stall: 0.2,
    outstanding: 3,
};

#[test]
fn bootstraps_are_those_of_the_exact_path() {
    if tests_are_skipped() {
        return;
    }
    bootstraps_agree(&STEPS32, &RtlBackend::new(2, Timing::default()));
    // A top chunk of one bit; two ports of memory.
    bootstraps_agree(&STEPS32, &RtlBackend::new(4, SLOW));
    bootstraps_agree(&params::TINY, &RtlBackend::new(5, SLOW));
}

#[test]
fn streamed_bootstraps_are_those_of_the_exact_path() {
    if tests_are_skipped() {
        return;
    }
    let fast = RtlBackend::of(Form::Streaming, 3, Timing::default());
    bootstraps_agree(&SQUARE32, &fast);
    bootstraps_agree(&SQUARE64, &fast);
    // Many rows, of which the cycles must be those of the formula but for memory's latency.
    let many_rows = RtlBackend::of(Form::Streaming, 3, Timing::default());
    bootstraps_agree(&SQUARE1024, &many_rows);
    let found = many_rows.rtl_statistics().bootstrap;
    let shape = Shape::of(Form::Streaming, &SQUARE1024, 3).unwrap();
    let expected = formula::bootstrap(shape).total() + 2 * Timing::default().latency;
    assert_eq!(found.cycles, found.count * expected);
}

/// An engine with keys and three registers, and what the integer arithmetic makes of them.
struct Bench {
    shape: Shape,
    keys: [Arc<dyn LoadedKey>; 2],
    laid: [Arc<Vec<u64>>; 2],
    test_vector: Vec<u8>,
    registers: Vec<Vec<u8>>,
}

impl Bench {
    fn new(shape: Shape) -> Bench {
        let params = &shape.params;
        let mut rng = Csprng::from_seed([5; 32]);
        let key = ClientKey::generate(params, &mut rng);
        let cpu = CpuBackend::new(ArithmeticKind::Ntt);
        let bytes = [KeyKind::Bootstrapping, KeyKind::KeySwitching]
            .map(|kind| (kind, key_bytes(&key, kind, KeyForm::Seeded, &mut rng)));
        let samples = layout::expand_switching_key(params, &bytes[1].1);
        Bench {
            shape,
            laid: [
                Arc::new(
                    layout::BootstrappingKey::expand(shape, KeyForm::Seeded, &bytes[0].1)
                        .unwrap()
                        .words,
                ),
                Arc::new(layout::switching_key_to_memory(shape, &samples)),
            ],
            keys: bytes.map(|(kind, bytes)| load(&cpu, params, (kind, KeyForm::Seeded), &bytes)),
            test_vector: random_words(params, params.test_vector_words(), &mut rng),
            registers: (0..3)
                .map(|_| random_words(params, params.lwe_words(), &mut rng))
                .collect(),
        }
    }

    /// An engine whose registers and memories hold anything.
    fn start(&self) -> Simulation {
        Bench::start_of(&engine::design(self.shape).unwrap())
    }

    /// The like of another design.
    fn start_of(design: &Design) -> Simulation {
        let options = Options {
            random_start: true,
            ..Options::default()
        };
        let model = Model::build(design, &options).unwrap();
        model.start_random(17).unwrap()
    }

    fn fill(&self, engine: &mut Engine<'_>) {
        let [bootstrapping, switching] = &self.laid;
        engine
            .set_keys(bootstrapping.clone(), switching.clone())
            .unwrap();
        engine.set_test_vector(0, &self.test_vector).unwrap();
        for (number, sample) in (0..).zip(&self.registers) {
            engine.set_register(number, sample).unwrap();
        }
    }

    /// What the registers hold after some commands; and what was returned.
    fn expected(&self, commands: &[Command]) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let cpu = CpuBackend::new(ArithmeticKind::Ntt);
        let params = &self.shape.params;
        let (mut registers, mut stack, mut returned) = (self.registers.clone(), Vec::new(), None);
        for command in commands {
            match *command {
                Command::Return(n) => returned = Some(registers[n as usize].clone()),
                Command::Move(to, from) => {
                    registers[to as usize] = registers[from as usize].clone()
                }
                Command::Push(n) => stack.push(registers[n as usize].clone()),
                Command::Pop(n) => registers[n as usize] = stack.pop().unwrap(),
                Command::HomAdd(to, from) => {
                    let other = registers[from as usize].clone();
                    cpu.hom_add(params, &mut registers[to as usize], &other);
                }
                Command::HomSub(to, from) => {
                    let other = registers[from as usize].clone();
                    cpu.hom_sub(params, &mut registers[to as usize], &other);
                }
                Command::HomIntMult(n, v) => {
                    cpu.hom_int_mult(params, &mut registers[n as usize], v)
                }
                Command::Bootstrap(_, n) => {
                    let cancel = CancelToken::new();
                    let [bootstrapping, switching] = &self.keys;
                    let task = BootstrapTask {
                        test_vectors: &[&self.test_vector],
                        sample: &registers[n as usize],
                        input_bits: params.message_bits,
                    };
                    let requester = Requester::from(&cancel);
                    let result =
                        cpu.bootstrap(params, &**bootstrapping, &**switching, task, requester);
                    registers[n as usize] = result.unwrap();
                }
            }
        }
        (registers, returned)
    }
}

/// The platform paper's Table 5 with the stack in use: every instruction of Table 4.
const PROGRAM: [Command; 12] = [
    Command::Push(1),
    Command::Push(2),
    Command::Move(0, 1),
    Command::HomAdd(0, 2),
    Command::Bootstrap(0, 0),
    Command::HomSub(1, 2),
    Command::Bootstrap(0, 1),
    Command::HomSub(0, 1),
    Command::HomIntMult(0, -3),
    Command::Pop(1),
    Command::Pop(2),
    Command::Return(0),
];

#[test]
fn programs_run_from_the_command_stream() {
    if tests_are_skipped() {
        return;
    }
    for (shape, timing, stall) in [
        (Shape::new(&STEPS32, 3), Timing::default(), 0.0),
        (Shape::new(&params::TINY, 3), SLOW, 0.5),
        (
            Shape::of(Form::Streaming, &SQUARE64, 3),
            Timing::default(),
            0.0,
        ),
        (Shape::of(Form::Streaming, &SQUARE32, 3), SLOW, 0.5),
    ] {
        let bench = Bench::new(shape.unwrap());
        let mut simulation = bench.start();
        let mut engine = Engine::new(&mut simulation, bench.shape, timing, stall, 11).unwrap();
        bench.fill(&mut engine);
        for command in PROGRAM {
            engine.run(command, &Progress::none()).unwrap();
        }
        let (registers, returned) = bench.expected(&PROGRAM);
        for (number, expected) in (0..).zip(&registers) {
            assert_eq!(
                engine.register(number).unwrap(),
                *expected,
                "register {number}"
            );
        }
        assert_eq!(engine.take_result(), returned);
    }
}

/// Stops a bootstrap in each of its parts by a reset, and runs it after each.
fn resets_end_what_is_under_way(shape: Shape) {
    let bench = Bench::new(shape);
    let mut simulation = bench.start();
    let mut engine = Engine::new(&mut simulation, bench.shape, SLOW, 0.3, 3).unwrap();
    bench.fill(&mut engine);
    let bootstrap = Command::Bootstrap(0, 0);
    let (expected, _) = bench.expected(&[bootstrap]);
    // Without stalls these would be in the load, the modulus switch, blind rotation and the key switch; with them all come earlier.
    let formula = formula::bootstrap(bench.shape);
    let rotation = formula.start + formula.count * formula.steps.total();
    let parts = [
        10,
        formula.start / 2,
        formula.start,
        rotation / 3,
        rotation,
        formula.total() - 100,
    ];
    let anywhere = (1..8).map(|part| formula.total() * part / 8);
    for after in parts.into_iter().chain(anywhere) {
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let progress = Progress::new(move |_, cycles, _| {
            if cycles >= after {
                canceller.cancel();
            }
        });
        let stopped = engine.run(bootstrap, &progress.with_cancel(cancel));
        assert!(
            matches!(stopped, Err(EngineError::Cancelled(_))),
            "after {after} cycles"
        );
        engine.reset().unwrap();
        engine.run(bootstrap, &Progress::none()).unwrap();
        assert_eq!(
            engine.register(0).unwrap(),
            expected[0],
            "after {after} cycles"
        );
        engine.set_register(0, &bench.registers[0]).unwrap();
    }
}

#[test]
fn a_reset_ends_what_is_under_way() {
    if tests_are_skipped() {
        return;
    }
    resets_end_what_is_under_way(Shape::new(&STEPS32, 3).unwrap());
    resets_end_what_is_under_way(Shape::of(Form::Streaming, &SQUARE32, 3).unwrap());
}

#[test]
fn cycles_are_those_of_the_formula() {
    if tests_are_skipped() {
        return;
    }
    let cycles = |shape: Result<Shape, EngineError>| {
        let bench = Bench::new(shape.unwrap());
        let mut simulation = bench.start();
        let mut engine =
            Engine::new(&mut simulation, bench.shape, Timing::default(), 0.0, 0).unwrap();
        bench.fill(&mut engine);
        let found = engine
            .run(Command::Bootstrap(0, 0), &Progress::none())
            .unwrap();
        (found, formula::bootstrap(bench.shape))
    };
    let in_place = [&STEPS32, &ONE_STEP_MORE].map(|params| cycles(Shape::new(params, 3)));
    let streaming =
        [&SQUARE32, &SQUARE32_MORE].map(|params| cycles(Shape::of(Form::Streaming, params, 3)));
    // With a step more comes a word more to switch, which the engine in place hides behind the end of an operation.
    for ([(found, expected), (more, expected_more)], word) in [(in_place, 0), (streaming, 1)] {
        assert_eq!(more - found, expected.steps.total() + word, "a step");
        println!("{found} and {more} cycles, {expected:?}");
        // Memory's latency before the first beat and after the last is not in the formula.
        let latency = 2 * Timing::default().latency;
        for (found, expected) in [(found, expected.total()), (more, expected_more.total())] {
            let beyond = found.checked_sub(expected);
            assert!(
                beyond.is_some_and(|beyond| beyond <= latency + 32),
                "{found} cycles, {expected} by the formula"
            );
        }
    }
}

#[test]
fn multipliers_of_more_slices_take_fewer_cycles() {
    if tests_are_skipped() {
        return;
    }
    let bench = Bench::new(Shape::of(Form::Streaming, &SQUARE32, 3).unwrap());
    let command = Command::Bootstrap(0, 0);
    let (expected, _) = bench.expected(&[command]);
    let cycles = [8, 0].map(|karatsuba: u64| {
        let design = engine::design(bench.shape).unwrap();
        let mut simulation = Bench::start_of(&design.with("KARATSUBA", karatsuba));
        let mut engine =
            Engine::new(&mut simulation, bench.shape, Timing::default(), 0.0, 0).unwrap();
        bench.fill(&mut engine);
        let cycles = engine.run(command, &Progress::none()).unwrap();
        assert_eq!(engine.register(0).unwrap(), expected[0]);
        cycles
    });
    // Two transforms and two products in each step, and three operations on samples besides, each of two cycles.
    let steps = bench.shape.params.lwe_dimension as u64;
    assert_eq!(cycles[0] - cycles[1], 2 * (4 * steps + 3));
}

#[test]
fn impossible_shapes_are_refused() {
    for (shape, reason) in [
        (Shape::new(&params::TINY32, 3), "k = 2"),
        (Shape::new(&params::TINY_WOPBS, 3), "circuit bootstrapping"),
        (Shape::new(&params::TINY, 6), "a 16th of the coefficients"),
        (Shape::new(&params::TINY, 1), "2^2 to 2^8 lanes"),
        (Shape::new(&MANY_SUMS, 5), "take fewer lanes"),
        (
            Shape::of(Form::Streaming, &params::TINY, 3),
            "2^6, 2^8 ... or 2^14",
        ),
        (
            Shape::of(Form::Streaming, &SQUARE64, 1),
            "to their square root",
        ),
        (
            Shape::of(Form::Streaming, &SQUARE64, 5),
            "to their square root",
        ),
        (
            Shape::of(Form::Streaming, &LARGE_DIGITS, 3),
            "at most 24 bits",
        ),
    ] {
        let error = shape.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    if tests_are_skipped() {
        return;
    }
    let design = design("engine")
        .unwrap()
        .with("LOG_N", 17u64)
        .with("LOG_LANES", 3u64);
    let error = Model::build(&design, &Options::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("engine: LOG_N must be 6 to 16"), "{error}");
}

#[test]
fn linear_instructions_are_those_of_the_exact_path() {
    if tests_are_skipped() {
        return;
    }
    let mut rng = Csprng::from_seed([9; 32]);
    let in_place = RtlBackend::new(2, Timing::default());
    let streaming = RtlBackend::of(Form::Streaming, 3, Timing::default());
    for (params, rtl) in [
        (&STEPS32, &in_place),
        (&params::TINY, &in_place),
        (&SQUARE32, &streaming),
        (&SQUARE64, &streaming),
    ] {
        let cpu = CpuBackend::new(ArithmeticKind::Ntt);
        let a = random_words(params, params.lwe_words(), &mut rng);
        let b = random_words(params, params.lwe_words(), &mut rng);
        for v in [0, 1, -1, 3, -1234567, i32::MAX, i32::MIN] {
            let results = [rtl as &dyn Backend, &cpu].map(|backend| {
                let mut sample = a.clone();
                backend.hom_add(params, &mut sample, &b);
                backend.hom_int_mult(params, &mut sample, v);
                backend.hom_sub(params, &mut sample, &b);
                sample
            });
            assert_eq!(results[0], results[1], "{} times {v}", params.name);
        }
    }
}

#[test]
fn cores_test_themselves() {
    crate::testing::verify("engine", &[&[]]);
    // The fewest lanes, and as many as rows of a column.
    let fewest: &[_] = &[("LOG_N", 6), ("LOG_LANES", 2)];
    crate::testing::verify("engine_streaming", &[fewest, &[("LOG_N", 6)]]);
    for (given, reason) in [
        (&[("LOG_N", 9)][..], "LOG_N must be even, not 9"),
        (&[("LOG_N", 10), ("LOG_LANES", 2)], "from LOG_N / 4"),
        (&[("LOG_N", 8), ("LOG_LANES", 5)], "to LOG_N / 2"),
    ] {
        let error = crate::testing::unconfigured("engine_streaming", given);
        assert!(error.contains(reason), "{error}");
    }
}
