//! What each instruction does, and what a run reports.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use toroid_engine::backend::testing::{decode_sample, encode_sample};
use toroid_engine::{Attributes, CancelToken, EngineError};
use toroid_isa::{Instruction, VerifyReason, assemble};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::{Noise, bootstrap_output_variance, shared_variance};
use toroid_tfhe::params::{GATE, MESSAGE7, ParamSet, TINY, TINY32};

const SETS: [&ParamSet; 2] = [&TINY, &TINY32];

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

#[test]
fn every_instruction_does_what_table_4_says() {
    let (x, y, z, tv) = (cor(0, 1), cor(0, 2), cor(0, 3), vr("tv:0:0"));
    use Instruction::*;
    let programs: [(&str, Vec<Instruction>, i64); 12] = [
        ("return", vec![], 3),
        ("mov", vec![Move { dst: x, src: y }], 2),
        ("mov to itself", vec![Move { dst: x, src: x }], 3),
        ("homadd", vec![HomAdd { dst: x, src: y }], 5),
        ("homadd to itself", vec![HomAdd { dst: x, src: x }], 6),
        ("homsub", vec![HomSub { dst: x, src: y }], 1),
        ("homintmult", vec![HomIntMult { n: x, v: -3 }], -9),
        ("homintadd", vec![HomIntAdd { n: x, v: 4 }], 7),
        ("homintadd below zero", vec![HomIntAdd { n: x, v: -5 }], -2),
        ("homsum", vec![HomSum { n: x, g: 0 }], 3),
        ("bootstrap", vec![Bootstrap { tv, n: x }], 7),
        (
            "push, pop",
            vec![
                Push { n: x },
                Push { n: y },
                Pop { n: x },
                Pop { n: z },
                HomSub { dst: x, src: z },
            ],
            -1,
        ),
    ];
    for params in SETS {
        for (name, mut instructions, expected) in programs.clone() {
            let engine = engine(1 << 20);
            store_keys(&engine, 0, params);
            store_function(&engine, tv, params, |m| (m + 4) % 16);
            store_message(&engine, x, params, 3);
            store_message(&engine, y, params, 2);
            instructions.push(Return { n: x });
            store_program(&engine, 0, params, &instructions);
            let outcome = run(&engine, 0).unwrap();
            let message = decode_sample(params, &outcome.bytes, params.message_bits);
            let modulus = 2 << params.message_bits;
            assert_eq!(
                message as i64,
                expected.rem_euclid(modulus),
                "{name} at {}",
                params.name
            );
            assert_eq!(outcome.returned, x);
            assert_eq!(outcome.instructions.len(), instructions.len());
            assert!(
                outcome
                    .instructions
                    .iter()
                    .zip(&instructions)
                    .all(|(timing, made)| timing.instruction == *made)
            );
            let sample = engine.read_sample(COMMAND, x).unwrap();
            assert_eq!(
                sample.bytes, outcome.bytes,
                "{name}: the register holds the result"
            );
            assert_eq!(sample.noise, outcome.noise);
            assert_eq!(sample.computed, instructions.len() > 1);
            let y_after = engine.read_sample(COMMAND, y).unwrap();
            assert_eq!(
                y_after.bytes,
                encode_sample(params, 2, params.message_bits),
                "{name} leaves its source"
            );
        }
    }
}

#[test]
fn table_5_multiplies() {
    // x·y = (x+y)²/4 - (x-y)²/4; x >= y since plain messages are unsigned here.
    let source = "
        .reg r1 = cor:0:1
        .reg r2 = cor:0:2
        .reg r3 = cow:0:3
        .tv square4 = x*x/4
        mov r1, r2
        homadd r1, r3
        bootstrap square4, r1
        homsub r2, r3
        bootstrap square4, r2
        homsub r1, r2
        return r1
    ";
    let assembly = assemble(source).unwrap();
    let tv = assembly.test_vectors[0].vr;
    let (r1, r2, r3) = (cor(0, 1), cor(0, 2), vr("cow:0:3"));
    for (x, y) in [(0, 0), (1, 1), (3, 1), (3, 2), (2, 0)] {
        let engine = engine(1 << 20);
        store_keys(&engine, 0, &TINY);
        store_function(&engine, tv, &TINY, |m| m * m / 4);
        store_program(&engine, 0, &TINY, assembly.program.instructions());
        store_message(&engine, r2, &TINY, x);
        let bytes = encode_sample(&TINY, y, 4);
        let part = whole(r3, &TINY, &bytes, bits(4));
        let outcome = engine
            .store_part_and_run(&part, &CancelToken::new())
            .unwrap()
            .unwrap();
        assert_eq!(
            decode_sample(&TINY, &outcome.bytes, 4) as i64,
            x * y,
            "{x}·{y}"
        );
        assert_eq!(outcome.returned, r1);
        // What both bootstraps share cancels in their difference.
        let own = bootstrap_output_variance(&TINY, ArithmeticKind::Ntt)
            - shared_variance(&TINY, ArithmeticKind::Ntt);
        // The plaintext back end gives x + 0 and x - 0 the same bytes: two bootstraps of one sample.
        let sources = if y == 0 { 4.0 } else { 2.0 };
        assert!(close(outcome.noise.variance(), sources * own));
        assert!(outcome.noise.log2_failure() > f64::NEG_INFINITY);
        assert!(engine.info(r1).unwrap().computed && engine.info(r2).unwrap().computed);
        assert!(
            !engine.info(r3).unwrap().computed,
            "the trigger is stored, not computed"
        );
        assert_eq!(engine.read_sample(COMMAND, r3).unwrap().bytes, bytes);
    }
}

#[test]
fn noise_follows_the_instructions() {
    let (x, y, computed, tv) = (cor(0, 1), cor(0, 2), cor(0, 3), vr("tv:0:0"));
    let engine = engine(1 << 20);
    store_keys(&engine, 0, &TINY);
    store_function(&engine, tv, &TINY, |m| m);
    let bytes = encode_sample(&TINY, 1, 4);
    let stated = Attributes {
        log2_variance: Some(-40.0),
        log2_failure: Some(-70.0),
        ..bits(4)
    };
    let computed_part = whole(computed, &TINY, &bytes, stated);
    engine.store_part(&computed_part).unwrap();
    store_message(&engine, x, &TINY, 1);
    store_message(&engine, y, &TINY, 2);
    let vx = TINY.lwe_variance();
    let noise_of = |instructions: &[Instruction]| -> Noise {
        let mut program = instructions.to_vec();
        program.push(Instruction::Return { n: cor(0, 9) });
        store_program(&engine, 0, &TINY, &program);
        run(&engine, 0).unwrap().noise
    };
    let z = cor(0, 9);
    let start = Instruction::Move { dst: z, src: x };
    let sum = noise_of(&[start, Instruction::HomAdd { dst: z, src: y }]);
    assert!(close(sum.variance(), 2.0 * vx));
    assert_eq!(sum.log2_failure(), f64::NEG_INFINITY);
    let add = Instruction::HomAdd {
        dst: z,
        src: computed,
    };
    let sum = noise_of(&[start, add]);
    assert!(
        close(sum.variance(), (vx.sqrt() + (-20.0f64).exp2()).powi(2)),
        "what was computed may share its sources with any sample"
    );
    assert_eq!(sum.log2_failure(), -70.0);
    let doubled = noise_of(&[start, Instruction::HomAdd { dst: z, src: x }]);
    assert!(
        close(doubled.variance(), 4.0 * vx),
        "one source twice adds up by its amplitude"
    );
    let multiple = noise_of(&[start, Instruction::HomIntMult { n: z, v: -3 }]);
    assert!(close(multiple.variance(), 9.0 * vx));
    let stacked = noise_of(&[
        Instruction::Push { n: x },
        Instruction::Pop { n: z },
        Instruction::HomSub { dst: z, src: x },
    ]);
    assert_eq!(stacked.variance(), 0.0, "the stack keeps the source");
    let before = engine.read_sample(COMMAND, x).unwrap().noise;
    let bootstrapped = noise_of(&[start, Instruction::Bootstrap { tv, n: z }]);
    let expected = before.bootstrapped(&TINY, 4, ArithmeticKind::Ntt, 0);
    assert!(close(bootstrapped.variance(), expected.variance()));
    assert_eq!(bootstrapped.log2_failure(), expected.log2_failure());
}

#[test]
fn gates_have_the_margin_of_gates() {
    let (x, tv) = (cor(0, 1), vr("tv:0:0"));
    let engine = engine(1 << 20);
    store_keys(&engine, 0, &GATE);
    store_function(&engine, tv, &GATE, |_| 0);
    store_message(&engine, x, &GATE, 0);
    store_program(
        &engine,
        0,
        &GATE,
        &[
            Instruction::Bootstrap { tv, n: x },
            Instruction::Return { n: x },
        ],
    );
    let outcome = run(&engine, 0).unwrap();
    assert_eq!(outcome.encoding, None);
    let expected = Noise::encryption(&GATE).bootstrapped(&GATE, 0, ArithmeticKind::Ntt, 0);
    assert_eq!(outcome.noise.log2_failure(), expected.log2_failure());
}

#[test]
fn message_bits_and_sign_come_from_the_operands() {
    let (x, y, tv) = (cor(0, 1), cor(0, 2), vr("tv:0:0"));
    let engine = engine(1 << 20);
    store_keys(&engine, 0, &TINY);
    let vector = toroid_engine::backend::testing::test_vector(&TINY, 2, |m| m);
    engine
        .store_part(&whole(
            tv,
            &TINY,
            &vector,
            Attributes {
                encoding: Encoding::new(2, true).ok(),
                ..bits(2)
            },
        ))
        .unwrap();
    store_message(&engine, x, &TINY, 1);
    store_message(&engine, y, &TINY, 1);
    store_program(
        &engine,
        0,
        &TINY,
        &[
            Instruction::Bootstrap { tv, n: x },
            Instruction::Return { n: x },
        ],
    );
    let outcome = run(&engine, 0).unwrap();
    assert_eq!(outcome.encoding, Encoding::new(2, true).ok());
    store_program(
        &engine,
        0,
        &TINY,
        &[
            Instruction::HomAdd { dst: y, src: x },
            Instruction::Return { n: y },
        ],
    );
    let outcome = run(&engine, 0).unwrap();
    assert_eq!(outcome.encoding, Encoding::new(4, true).ok());
}

#[test]
fn what_is_made_of_a_sample_that_states_no_noise_fails_for_certain() {
    let (known, unknown, z, tv) = (cor(0, 1), cor(0, 2), cor(0, 9), vr("tv:0:0"));
    let engine = engine(1 << 20);
    store_keys(&engine, 0, &TINY);
    store_function(&engine, tv, &TINY, |m| m);
    store_message(&engine, known, &TINY, 1);
    let bytes = encode_sample(&TINY, 2, 4);
    let silent = Attributes {
        log2_variance: None,
        log2_failure: Some(-300.0),
        ..bits(4)
    };
    let part = whole(unknown, &TINY, &bytes, silent);
    engine.store_part(&part).unwrap();
    let start = Instruction::Move { dst: z, src: known };
    let add = Instruction::HomAdd {
        dst: z,
        src: unknown,
    };
    let bootstrap = Instruction::Bootstrap { tv, n: z };
    let failure_of = |instructions: &[Instruction]| {
        let mut program = instructions.to_vec();
        program.push(Instruction::Return { n: z });
        store_program(&engine, 0, &TINY, &program);
        run(&engine, 0).unwrap().noise.log2_failure()
    };
    assert!(failure_of(&[start, bootstrap]) < -64.0);
    assert_eq!(failure_of(&[start, add]), 0.0);
    assert_eq!(failure_of(&[start, add, bootstrap]), 0.0);
}

#[test]
fn programs_that_cannot_run_are_refused_with_every_reason() {
    let engine = engine(1 << 20);
    let (x, y, tv) = (cor(5, 1), cor(5, 2), vr("tv:5:0"));
    store_message(&engine, x, &TINY, 1);
    let reasons = |instructions: &[Instruction]| -> Vec<VerifyReason> {
        store_program(&engine, 5, &TINY, instructions);
        match run(&engine, 5) {
            Err(EngineError::Verify {
                vr: program,
                errors,
            }) => {
                assert_eq!(program, vr("prg:5:0"));
                errors.into_iter().map(|error| error.reason).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    let ret = Instruction::Return { n: x };
    assert_eq!(reasons(&[]), vec![VerifyReason::MissingReturn]);
    assert_eq!(
        reasons(&[Instruction::HomAdd { dst: x, src: y }, ret]),
        vec![VerifyReason::UnknownRegister { vr: y }]
    );
    assert!(
        reasons(&[Instruction::Bootstrap { tv, n: x }, ret])
            .contains(&VerifyReason::MissingTestVector { vr: tv })
    );
    assert_eq!(
        reasons(
            &[
                [Instruction::Push { n: x }; 5],
                [Instruction::Pop { n: x }; 5]
            ]
            .concat()
            .into_iter()
            .chain([ret])
            .collect::<Vec<_>>()
        ),
        vec![VerifyReason::StackOverflow { slots: 4 }]
    );
    assert_eq!(
        reasons(&[Instruction::Pop { n: x }, ret]),
        vec![VerifyReason::StackUnderflow]
    );
    assert_eq!(
        reasons(&[Instruction::Push { n: x }, ret]),
        vec![VerifyReason::StackNotEmpty { depth: 1 }]
    );
    assert_eq!(samples(&engine).len(), 1);
}

#[test]
fn a_full_stack_is_no_overflow() {
    let engine = engine(1 << 20);
    let x = cor(0, 1);
    store_message(&engine, x, &TINY, 1);
    let mut program = vec![Instruction::Push { n: x }; 4];
    program.extend([Instruction::HomIntMult { n: x, v: 0 }]);
    program.extend((0..4).map(|index| Instruction::Pop {
        n: cor(0, 10 + index),
    }));
    program.extend((0..4).map(|index| Instruction::HomAdd {
        dst: x,
        src: cor(0, 10 + index),
    }));
    program.push(Instruction::Return { n: x });
    store_program(&engine, 0, &TINY, &program);
    assert_eq!(decode_sample(&TINY, &run(&engine, 0).unwrap().bytes, 4), 4);
}

#[test]
fn triggers_must_be_samples_with_a_program() {
    let engine = engine(1 << 20);
    let cancel = CancelToken::new();
    assert!(matches!(
        engine.run(COMMAND, vr("tv:0:0"), &cancel),
        Err(EngineError::NotASample { .. })
    ));
    let missing = engine.run(COMMAND, vr("cow:0:0"), &cancel);
    assert!(
        matches!(missing, Err(EngineError::NoSuchRegister { vr: program }) if program == vr("prg:0:0"))
    );
    let vector = vec![0; MESSAGE7.test_vector_bytes()];
    let part = whole(vr("tv:0:0"), &MESSAGE7, &vector, bits(7));
    assert!(matches!(
        engine.store_part_and_run(&part, &cancel),
        Err(EngineError::NotASample { .. })
    ));
    assert!(engine.list().is_empty());
}

#[test]
fn a_trigger_whose_run_fails_keeps_its_old_content() {
    let engine = engine(1 << 20);
    let (x, tv) = (vr("cow:0:1"), vr("tv:0:0"));
    let cancel = CancelToken::new();
    store_message(&engine, x, &TINY, 1);
    let before = samples(&engine);
    let bytes = encode_sample(&TINY, 2, 4);
    let part = whole(x, &TINY, &bytes, bits(4));
    assert!(matches!(
        engine.store_part_and_run(&part, &cancel),
        Err(EngineError::NoSuchRegister { .. })
    ));
    store_program(
        &engine,
        0,
        &TINY,
        &[
            Instruction::Bootstrap { tv, n: x },
            Instruction::Return { n: x },
        ],
    );
    assert!(matches!(
        engine.store_part_and_run(&part, &cancel),
        Err(EngineError::Verify { .. })
    ));
    assert_eq!(samples(&engine), before);
    assert_eq!(
        engine.paging().resident_pages,
        1,
        "pages of failed runs are given back"
    );
}

#[test]
fn a_trigger_may_come_in_parts() {
    let engine = engine(1 << 20);
    let x = vr("cow:0:1");
    let cancel = CancelToken::new();
    store_program(
        &engine,
        0,
        &TINY,
        &[
            Instruction::HomAdd { dst: x, src: x },
            Instruction::Return { n: x },
        ],
    );
    let bytes = encode_sample(&TINY, 2, 4);
    let first = toroid_engine::Part {
        bytes: &bytes[..100],
        ..whole(x, &TINY, &bytes, bits(4))
    };
    assert!(
        engine
            .store_part_and_run(&first, &cancel)
            .unwrap()
            .is_none()
    );
    assert!(engine.info(x).is_none());
    let second = toroid_engine::Part {
        offset: 100,
        bytes: &bytes[100..],
        ..first
    };
    let outcome = engine
        .store_part_and_run(&second, &cancel)
        .unwrap()
        .unwrap();
    assert_eq!(decode_sample(&TINY, &outcome.bytes, 4), 4);
    assert_eq!(engine.read_sample(COMMAND, x).unwrap().bytes, outcome.bytes);
}

#[test]
fn key_ids_stand_side_by_side() {
    let engine = engine(1 << 20);
    for (key_id, params) in [(1, &TINY), (2, &TINY32), (0xff_ffff, &TINY)] {
        let tv = vr(&format!("tv:{key_id}:0"));
        let x = cor(key_id, 1);
        store_keys(&engine, key_id, params);
        store_function(&engine, tv, params, |m| m + 1);
        store_message(&engine, x, params, 2);
        store_program(
            &engine,
            key_id,
            params,
            &[
                Instruction::Bootstrap { tv, n: x },
                Instruction::Return { n: x },
            ],
        );
    }
    for (key_id, params) in [(1, &TINY), (2, &TINY32), (0xff_ffff, &TINY)] {
        let outcome = run(&engine, key_id).unwrap();
        assert_eq!(outcome.params.id, params.id);
        assert_eq!(
            decode_sample(params, &outcome.bytes, params.message_bits),
            3
        );
        assert_eq!(engine.params_of(key_id).unwrap().id, params.id);
    }
    assert_eq!(engine.clear_key_id(2), 5);
    assert!(engine.params_of(2).is_none());
    assert_eq!(engine.list().len(), 10);
}

#[test]
fn a_sample_that_comes_again_is_no_new_source_of_noise() {
    let engine = engine(1 << 20);
    let (sum, x) = (cor(0, 0), cor(0, 1));
    // No sum is ever 1: equal samples would be one sample.
    store_message(&engine, sum, &TINY, 5);
    let program = [
        Instruction::HomAdd { dst: sum, src: x },
        Instruction::Return { n: sum },
    ];
    store_program(&engine, 0, &TINY, &program);
    let bytes = encode_sample(&TINY, 1, 4);
    for _ in 0..3 {
        engine
            .store_part_and_run(&whole(x, &TINY, &bytes, bits(4)), &CancelToken::new())
            .unwrap();
    }
    let fresh = TINY.lwe_variance();
    let variance = |vr| engine.info(vr).unwrap().noise.unwrap().variance();
    assert!(
        close(variance(sum), (1.0 + 9.0) * fresh),
        "x came three times, one source"
    );
    // The result, read back with the statement that metadata can carry, is the result.
    let result = engine.read_sample(COMMAND, sum).unwrap();
    let stated = f64::from(result.noise.variance().log2() as f32);
    let attributes = Attributes {
        log2_variance: Some(stated),
        computed: true,
        ..bits(4)
    };
    let y = cor(0, 2);
    engine
        .store_part(&whole(y, &TINY, &result.bytes, attributes))
        .unwrap();
    assert_eq!(engine.info(y).unwrap().noise.unwrap(), result.noise);
    assert!(engine.info(y).unwrap().computed);
    // With another statement it is another sample.
    let attributes = Attributes {
        log2_variance: Some(stated + 1.0),
        ..bits(4)
    };
    engine
        .store_part(&whole(y, &TINY, &result.bytes, attributes))
        .unwrap();
    assert_ne!(engine.info(y).unwrap().noise.unwrap(), result.noise);
}
