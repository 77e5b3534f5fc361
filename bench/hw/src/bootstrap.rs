//! A bootstrap of the simulated engine, compared with the integer arithmetic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toroid_bench_common::Error;
use toroid_cores::engine::{
    self, Command, Engine, Form, RtlBackend, Shape, formula, key_words, layout,
};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, LoadedKey};
use toroid_engine::{BootstrapTask, CancelToken, Requester};
use toroid_isa::KeyKind;
use toroid_ring::goldilocks::P;
use toroid_sim::memory::Timing;
use toroid_sim::model::{Model, Options};
use toroid_task::Progress;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

/// How a log says that the result is right; kept logs have the second form.
pub const EQUAL: [&str; 2] = [
    "result: equal to the integer arithmetic, word by word",
    "result: equal to the exact path, word by word",
];

/// What a bootstrap took.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Cycles from command to response, as the engine counts them.
    pub cycles: u64,
    /// Cycles by the formula.
    pub formula: u64,
    /// Beats that were read from main memory, of LANES words each.
    pub beats_read: u64,
    /// Bytes of each.
    pub beat_bytes: usize,
    /// Time of the simulation.
    pub simulated: Duration,
    /// Time to verilate, or to find the model in the cache.
    pub built: Duration,
}

/// Generates a key and has both back ends load it as it comes.
fn load(
    backends: [&dyn Backend; 2],
    client: &ClientKey,
    kind: KeyKind,
    rng: &mut Csprng,
) -> Result<[Arc<dyn LoadedKey>; 2], Error> {
    let form = KeyForm::Expanded;
    let [first, second] = backends.map(|backend| backend.begin_key(client.params(), kind, form));
    let (mut first, mut second) = (first?, second?);
    let mut failure = None;
    let sink = &mut |bytes: &[u8]| {
        failure = first.write(bytes).and_then(|()| second.write(bytes)).err();
        match failure {
            None => Ok(()),
            Some(_) => Err(TfheError::Cancelled),
        }
    };
    let progress = &Progress::none();
    let generated = match kind {
        KeyKind::Bootstrapping => client.bootstrapping_key(form, rng, progress, sink),
        KeyKind::KeySwitching => client.key_switching_key(form, rng, progress, sink),
        KeyKind::Ring | KeyKind::Conversion => {
            unreachable!("the engine in hardware has no keys of rings")
        }
    };
    if let Some(error) = failure {
        return Err(error.into());
    }
    generated?;
    Ok([first.finish()?, second.finish()?])
}

/// Simulates one bootstrap of random words and compares it with the integer arithmetic, word by word.
pub fn bootstrap(
    form: Form,
    params: &ParamSet,
    log_lanes: u32,
    timing: Timing,
    progress: &Progress,
) -> Result<Measured, Error> {
    let shape = Shape::of(form, params, log_lanes)?;
    let start = Instant::now();
    let model = Model::build(&engine::design(shape)?, &Options::default())?;
    let built = start.elapsed();

    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let rtl = RtlBackend::of(form, log_lanes, timing);
    let backends: [&dyn Backend; 2] = [&cpu, &rtl];
    let [bootstrapping, laid] = load(backends, &client, KeyKind::Bootstrapping, &mut rng)?;
    let [switching, laid_switching] = load(backends, &client, KeyKind::KeySwitching, &mut rng)?;

    // Any words will do: what is compared is arithmetic.
    let mut words = |count| layout::bytes_of(params, (0..count).map(|_| rng.next_u64() % P));
    let sample = words(params.lwe_words());
    let test_vector = words(params.test_vector_words());

    let mut simulation = model.start()?;
    let mut engine = Engine::new(&mut simulation, shape, timing, 0.0, 0)?;
    engine.set_keys(
        key_words(&*laid)?.clone(),
        key_words(&*laid_switching)?.clone(),
    )?;
    engine.set_test_vector(0, &test_vector)?;
    engine.set_register(0, &sample)?;
    let start = Instant::now();
    let cycles = engine.run(Command::Bootstrap(0, 0), progress)?;
    let simulated = start.elapsed();
    let found = engine.register(0)?;

    let cancel = CancelToken::new();
    let task = BootstrapTask {
        test_vectors: &[&test_vector],
        sample: &sample,
        input_bits: params.message_bits,
    };
    let requester = Requester::from(&cancel);
    let expected = cpu.bootstrap(params, &*bootstrapping, &*switching, task, requester)?;
    if expected != found {
        return Err(format!(
            "{}: the engine's result is not that of the integer arithmetic",
            params.name
        )
        .into());
    }
    Ok(Measured {
        cycles,
        formula: formula::bootstrap(shape).total(),
        beats_read: engine.beats_read(),
        beat_bytes: shape.bytes(1),
        simulated,
        built,
    })
}
