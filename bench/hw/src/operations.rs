//! Cycles of what is quick to simulate: transforms, linear instructions, one step of blind rotation.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use toroid_bench_common::Error;
use toroid_bench_common::machine::Measured;
use toroid_cores::engine::{self, Command, Engine, Shape, formula, layout};
use toroid_cores::vectors::{Streams, Vectors};
use toroid_cores::{Values, find};
use toroid_engine::backend::Backend;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_ring::goldilocks::P;
use toroid_sim::memory::Timing;
use toroid_sim::model::{Model, Options};
use toroid_sim::random::Random;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::{ParamSet, StageParams};

use crate::bootstrap;
use toroid_task::Progress;

/// Cycles that simulations counted; each result was the library's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operations {
    /// A pair of forward transforms at N = 2^14, one in each circuit of 16 butterflies; without the beats that carry words in and out.
    pub forward_pair: u64,
    /// A pair of transforms back.
    pub inverse_pair: u64,
    /// HomAdd.
    pub hom_add: u64,
    /// HomSub.
    pub hom_sub: u64,
    /// HomIntMult.
    pub hom_int_mult: u64,
    /// One step of blind rotation: a bootstrap of two steps less one of one step.
    pub step: u64,
    /// The same by the formula.
    pub step_formula: u64,
    /// Cycles of these bootstraps of one and two steps.
    pub short_bootstraps: [u64; 2],
    /// The same by the formula.
    pub short_formula: [u64; 2],
    /// When, and on which machine.
    pub measured: String,
}

/// Simulates all of them.
pub fn measure(params: &ParamSet, log_lanes: u32) -> Result<Operations, Error> {
    let bar = ProgressBar::new(8);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {msg} {elapsed}")?);
    let step = |what: &'static str| {
        bar.set_message(what);
        bar.inc(1);
        bar.tick();
    };
    step("transforms");
    let [forward_pair, inverse_pair] = transforms()?;
    step("the engine's model");
    let shape = Shape::new(params, log_lanes)?;
    let model = Model::build(&engine::design(shape)?, &Options::default())?;
    step("linear instructions");
    let [hom_add, hom_sub, hom_int_mult] = linear(shape, &model)?;
    let mut short_bootstraps = [0; 2];
    let mut short_formula = [0; 2];
    for (lwe_dimension, (cycles, expected)) in
        (1..).zip(short_bootstraps.iter_mut().zip(&mut short_formula))
    {
        step("bootstraps of one and two steps");
        let short = ParamSet {
            stage: StageParams {
                lwe_dimension,
                ..params.stage
            },
            ..*params
        };
        let measured = bootstrap::bootstrap(
            engine::Form::InPlace,
            &short,
            log_lanes,
            Timing::default(),
            &Progress::none(),
        )?;
        (*cycles, *expected) = (measured.cycles, measured.formula);
    }
    bar.finish_and_clear();
    Ok(Operations {
        forward_pair,
        inverse_pair,
        hom_add,
        hom_sub,
        hom_int_mult,
        step: short_bootstraps[1] - short_bootstraps[0],
        step_formula: formula::step(shape).total(),
        short_bootstraps,
        short_formula,
        measured: Measured::now().line(),
    })
}

/// The paper's setting of the core `ntt_inplace`, its default: two circuits of 16 butterflies.
fn transforms() -> Result<[u64; 2], Error> {
    let core = find("ntt_inplace")?;
    let values = Values::new(core, [])?;
    let options = Options {
        random_start: true,
        ..Options::default()
    };
    let model = Model::build(&core.configure(&values)?.design()?, &options)?;
    let Some(Vectors::Streams(streams)) = core.configure(&values)?.vectors(1, 1) else {
        return Err("ntt_inplace has no vectors".into());
    };
    let beats = streams.sent.len() / 2;
    let mut found = [0; 2];
    for (transform, cycles) in found.iter_mut().enumerate() {
        let part = transform * beats..(transform + 1) * beats;
        let alone = Streams {
            sent: streams.sent[part.clone()].to_vec(),
            expected: streams.expected[part].to_vec(),
            ..streams.clone()
        };
        let mut simulation = model.start_random(1)?;
        simulation.reset(4)?;
        let outcome = Vectors::Streams(alone).run(&mut simulation, 1, &Progress::none())?;
        *cycles = outcome.measured - 2 * beats as u64;
    }
    Ok(found)
}

fn linear(shape: Shape, model: &Model) -> Result<[u64; 3], Error> {
    let params = &shape.params;
    let mut random = Random::new(3);
    let mut sample = || {
        let words = (0..params.lwe_words()).map(|_| random.below(P));
        layout::bytes_of(params, words)
    };
    let (first, second) = (sample(), sample());
    let mut simulation = model.start()?;
    let mut engine = Engine::new(&mut simulation, shape, Timing::default(), 0.0, 0)?;
    // None of these instructions reads a key.
    engine.set_keys(Arc::default(), Arc::default())?;
    engine.set_register(0, &first)?;
    engine.set_register(1, &second)?;
    let cpu = CpuBackend::with_cores(ArithmeticKind::Ntt, 1);
    let mut expected = first;
    let mut found = [0; 3];
    let commands = [
        Command::HomAdd(0, 1),
        Command::HomSub(0, 1),
        Command::HomIntMult(0, -12_345),
    ];
    for (command, cycles) in commands.into_iter().zip(&mut found) {
        *cycles = engine.run(command, &Progress::none())?;
        match command {
            Command::HomAdd(..) => cpu.hom_add(params, &mut expected, &second),
            Command::HomSub(..) => cpu.hom_sub(params, &mut expected, &second),
            _ => cpu.hom_int_mult(params, &mut expected, -12_345),
        }
        if engine.register(0)? != expected {
            return Err(format!("{command:?} differs from the integer arithmetic").into());
        }
    }
    Ok(found)
}
