//! Programs that are in no register.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use toroid_engine::backend::testing::{decode_sample, encode_sample};
use toroid_engine::{CancelToken, Engine, EngineError, Part, Requester, RunOutcome};
use toroid_isa::{Instruction, Program, VrNumber};
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS};

const PARAMS: &ParamSet = &TINY;

/// square(cor:0:1) + cor:0:2, in cor:0:1.
fn program() -> Program {
    let (x, y) = (cor(0, 1), cor(0, 2));
    Program::new(vec![
        Instruction::Bootstrap {
            tv: vr("tv:0:7"),
            n: x,
        },
        Instruction::HomAdd { dst: x, src: y },
        Instruction::Return { n: x },
    ])
    .unwrap()
}

fn message(m: i64) -> Vec<u8> {
    encode_sample(PARAMS, m, PARAMS.message_bits)
}

fn sample(vr: VrNumber, bytes: &[u8]) -> Part<'_> {
    whole(vr, PARAMS, bytes, bits(PARAMS.message_bits))
}

fn evaluate(engine: &Engine, samples: &[Part<'_>]) -> Result<RunOutcome, EngineError> {
    let name = VrNumber::program(0).unwrap();
    engine.evaluate(COMMAND, name, &program(), samples, &CancelToken::new())
}

fn bench() -> Engine {
    let engine = engine(1 << 20);
    store_keys(&engine, 0, PARAMS);
    store_function(&engine, vr("tv:0:7"), PARAMS, |m| m * m);
    engine
}

#[test]
fn the_result_is_that_of_a_run_and_no_register_changes() {
    let engine = bench();
    store_message(&engine, cor(0, 1), PARAMS, 1);
    store_message(&engine, cor(0, 2), PARAMS, 5);
    let before = samples(&engine);
    let pages = engine.paging().resident_pages;
    let (x, other) = (message(3), message(2));
    // A register that no sample came for is that of the drive.
    let outcome = evaluate(&engine, &[sample(cor(0, 1), &x)]).unwrap();
    assert_eq!(
        decode_sample(PARAMS, &outcome.bytes, PARAMS.message_bits),
        14
    );
    let outcome = evaluate(&engine, &[sample(cor(0, 1), &x), sample(cor(0, 2), &other)]).unwrap();
    assert_eq!(
        decode_sample(PARAMS, &outcome.bytes, PARAMS.message_bits),
        11
    );
    // Of several for one register the last counts.
    let twice = [sample(cor(0, 1), &other), sample(cor(0, 1), &x)];
    let outcome = evaluate(&engine, &twice).unwrap();
    assert_eq!(samples(&engine), before);
    assert_eq!(engine.paging().resident_pages, pages);

    store_program(&engine, 0, PARAMS, program().instructions());
    let run = engine
        .store_part_and_run(&sample(cor(0, 1), &x), &CancelToken::new())
        .unwrap()
        .unwrap();
    assert_eq!(outcome.bytes, run.bytes);
    assert_eq!(outcome.returned, run.returned);
    assert_eq!(outcome.encoding, run.encoding);
    assert_eq!(outcome.noise.variance(), run.noise.variance());
    assert_eq!(outcome.noise.log2_failure(), run.noise.log2_failure());
}

#[test]
fn one_sample_for_two_registers_has_one_noise() {
    let engine = engine(1 << 20);
    let (a, b) = (cor(9, 1), cor(9, 2));
    let program = Program::new(vec![
        Instruction::HomAdd { dst: a, src: b },
        Instruction::Return { n: a },
    ])
    .unwrap();
    let name = VrNumber::program(9).unwrap();
    let variance = |x: &[u8], y: &[u8]| {
        let parts = [sample(a, x), sample(b, y)];
        let outcome = engine.evaluate(COMMAND, name, &program, &parts, &CancelToken::new());
        outcome.unwrap().noise.variance()
    };
    let ratio = variance(&message(3), &message(3)) / variance(&message(3), &message(2));
    assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn what_is_refused() {
    let engine = bench();
    let x = message(3);
    let missing = evaluate(&engine, &[sample(cor(0, 1), &x)]);
    assert!(
        matches!(missing, Err(EngineError::Verify { .. })),
        "{missing:?}"
    );
    let short = Part {
        total_size: x.len() as u64,
        ..sample(cor(0, 1), &x[4..])
    };
    assert!(matches!(
        evaluate(&engine, &[short]),
        Err(EngineError::Size { .. })
    ));
    let tail = Part { offset: 4, ..short };
    assert!(matches!(
        evaluate(&engine, &[tail]),
        Err(EngineError::Size { .. })
    ));
    let key = sample(vr("key:0:1"), &x);
    assert!(matches!(
        evaluate(&engine, &[key]),
        Err(EngineError::NotASample { .. })
    ));
    let wopbs = vec![0; TINY_WOPBS.lwe_bytes()];
    let other = whole(cor(0, 2), &TINY_WOPBS, &wopbs, bits(4));
    let mixed = evaluate(&engine, &[sample(cor(0, 1), &x), other]);
    assert!(matches!(mixed, Err(EngineError::ParamsMismatch { .. })));
    // A key id that nothing says the parameter set of.
    let (a, b) = (cor(9, 1), cor(9, 2));
    let program = Program::new(vec![
        Instruction::HomAdd { dst: a, src: b },
        Instruction::Return { n: a },
    ])
    .unwrap();
    let parts = [sample(a, &x), Part { vr: b, ..other }];
    let name = VrNumber::program(9).unwrap();
    let mixed = engine.evaluate(COMMAND, name, &program, &parts, &CancelToken::new());
    assert!(matches!(mixed, Err(EngineError::ParamsMismatch { .. })));
    let sums = [sample(a, &x), sample(b, &x)];
    assert!(
        engine
            .evaluate(COMMAND, name, &program, &sums, &CancelToken::new())
            .is_ok()
    );

    let cancelled = CancelToken::new();
    cancelled.cancel();
    let ended = engine.evaluate(COMMAND, name, &program, &sums, &cancelled);
    assert!(matches!(ended, Err(EngineError::Cancelled)));
    let (allowed, cancel) = ([0].into(), CancelToken::new());
    let requester = Requester {
        key_ids: Some(&allowed),
        ..Requester::from(&cancel)
    };
    let denied = engine.evaluate(COMMAND, name, &program, &sums, requester);
    assert!(matches!(denied, Err(EngineError::KeyIdDenied { .. })));
    assert_eq!(samples(&engine), []);
}
