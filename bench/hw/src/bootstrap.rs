//! A bootstrap of the simulated engine, held against the exact path.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toroid_cosim::engine::formula;
use toroid_cosim::engine::layout::{self, BootstrappingKey};
use toroid_cosim::engine::{self, Command, Engine, Shape};
use toroid_cosim::memory::Timing;
use toroid_cosim::model::{Model, Options};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, KeySink, LoadedKey};
use toroid_engine::{CancelToken, Requester};
use toroid_isa::KeyKind;
use toroid_tfhe::TfheError;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::noise::Path;
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

use crate::Error;

/// What a bootstrap took.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Cycles from command to response, as the engine counts them.
    pub cycles: u64,
    /// Cycles by the formula.
    pub formula: u64,
    /// Beats that were read from main memory, of LANES words each.
    pub beats_read: u64,
    /// Time of the simulation.
    pub simulated: Duration,
    /// Time to verilate, or to find the model in the cache.
    pub built: Duration,
}

/// Generates a key and has every one of `sinks` take it.
fn generate(
    key: &ClientKey,
    kind: KeyKind,
    rng: &mut Csprng,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), TfheError>,
) -> Result<(), TfheError> {
    let progress = &mut |_, _| ControlFlow::Continue(());
    match kind {
        KeyKind::Bootstrapping => key.bootstrapping_key(KeyForm::Expanded, rng, progress, sink),
        KeyKind::KeySwitching => key.key_switching_key(KeyForm::Expanded, rng, progress, sink),
    }
}

/// Simulates one bootstrap of random words and compares it with the exact path, word by word.
pub fn bootstrap(
    params: &'static ParamSet,
    log_lanes: u32,
    timing: Timing,
    progress: &dyn Fn(u64, u64),
) -> Result<Measured, Error> {
    let shape = Shape::new(params, log_lanes)?;
    let start = Instant::now();
    let model = Model::build(&engine::design(shape)?, &Options::default())?;
    let built = start.elapsed();

    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let cpu = CpuBackend::new(Path::Exact);
    let row_bytes = 8 * params.trlwe_words();
    let mut laid = BootstrappingKey::new(shape);
    let mut samples: Vec<u32> = Vec::new();
    let mut loaded: Vec<Arc<dyn LoadedKey>> = Vec::new();
    for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
        let mut sink: Box<dyn KeySink> = cpu.begin_key(params, kind, KeyForm::Expanded)?;
        let (mut rest, mut row) = (Vec::new(), 0);
        let mut failure = None;
        generate(&client, kind, &mut rng, &mut |bytes| {
            if let Err(error) = sink.write(bytes) {
                failure = Some(error);
            }
            rest.extend_from_slice(bytes);
            if kind == KeyKind::Bootstrapping {
                let mut rows = rest.chunks_exact(row_bytes);
                for bytes in rows.by_ref() {
                    let words: Vec<u64> = bytes
                        .chunks_exact(8)
                        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
                        .collect();
                    laid.lay(row, &words);
                    row += 1;
                }
                rest = rows.remainder().to_vec();
            }
            Ok(())
        })?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        if kind == KeyKind::KeySwitching {
            samples = rest
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
                .collect();
        }
        loaded.push(sink.finish()?);
    }
    let switching = Arc::new(layout::switching_key_to_memory(shape, &samples));
    drop(samples);

    // Any words will do: what is compared is arithmetic.
    let mut words = |count: usize| -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * params.modulus.word_bytes());
        for _ in 0..count {
            let word = rng.next_u64() % toroid_ring::goldilocks::P;
            match params.modulus {
                ModulusKind::Torus32 => bytes.extend_from_slice(&(word as u32).to_le_bytes()),
                ModulusKind::Goldilocks => bytes.extend_from_slice(&word.to_le_bytes()),
            }
        }
        bytes
    };
    let sample = words(params.tlwe_words());
    let test_vector = words(params.test_vector_words());

    let mut simulation = model.start()?;
    let mut engine = Engine::new(&mut simulation, shape, timing, 0.0, 0)?;
    engine.set_keys(Arc::new(laid.words), switching)?;
    engine.set_test_vector(0, &test_vector)?;
    engine.set_register(0, &sample)?;
    let expected_cycles = formula::bootstrap(shape).total();
    let start = Instant::now();
    let cycles = engine.run(Command::Bootstrap(0, 0), &mut |cycles| {
        progress(cycles, expected_cycles);
        true
    })?;
    let simulated = start.elapsed();
    let found = engine.register(0)?;

    let cancel = CancelToken::new();
    let expected = cpu.bootstrap(
        params,
        &*loaded[0],
        &*loaded[1],
        &[&test_vector],
        &sample,
        Requester::from(&cancel),
    )?;
    if expected.first() != Some(&found) {
        return Err(format!(
            "{}: the engine's result is not that of the exact path",
            params.name
        )
        .into());
    }
    Ok(Measured {
        cycles,
        formula: expected_cycles,
        beats_read: engine.beats_read(),
        simulated,
        built,
    })
}
