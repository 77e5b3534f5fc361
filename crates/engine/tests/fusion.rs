//! Adjacent bootstraps of one sample are one call of the back end, and nothing else differs.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::{
    InterceptedBackend, PlaintextBackend, decode_sample, encode_sample, test_vector,
};
use toroid_engine::{
    Backend, BackendError, BootstrapTask, CancelToken, Engine, EngineError, KeyForm, MemorySwap,
    Requester,
};
use toroid_isa::{Instruction, VrNumber, assemble};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::params::{ModulusKind, ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;

const VECTORS: u32 = 3;
const REGISTERS: u32 = 5;

fn tv(index: u32) -> VrNumber {
    vr(&format!("tv:0:{index}"))
}

/// An engine with keys, the functions m + 1, 2·m and 15 - m, and the messages 1 to 5 in cor:0:0 to cor:0:4.
fn counting_engine(paged_bytes: u64) -> (Engine, Arc<PlaintextBackend>) {
    let backend = Arc::new(PlaintextBackend::new());
    let engine = Engine::new(
        config(paged_bytes),
        Arc::clone(&backend) as _,
        Arc::new(MemorySwap::new()),
    );
    store_keys(&engine, 0, &TINY);
    store_function(&engine, tv(0), &TINY, |m| m + 1);
    store_function(&engine, tv(1), &TINY, |m| 2 * m);
    store_function(&engine, tv(2), &TINY, |m| 15 - m);
    for index in 0..REGISTERS {
        store_message(&engine, cor(0, index), &TINY, i64::from(index) + 1);
    }
    (engine, backend)
}

/// Calls of the back end for a program in the language, which must run; and the messages of cor:0:0 to cor:0:4 then.
fn calls_of(body: &str) -> (u64, Vec<u64>) {
    let (engine, backend) = counting_engine(1 << 20);
    let names = ".reg f = tv:0\n.reg g = tv:1\n.reg h = tv:2\n.reg a = cor:0\n.reg b = cor:1\n.reg c = cor:2\n.reg d = cor:3\n";
    let assembly = assemble(&format!("{names}{body}\nreturn a\n")).unwrap();
    store_program(&engine, 0, &TINY, assembly.program.instructions());
    let outcome = run(&engine, 0).unwrap();
    assert_eq!(outcome.instructions.len(), assembly.program.len());
    for (timing, instruction) in outcome
        .instructions
        .iter()
        .zip(assembly.program.instructions())
    {
        assert_eq!(timing.instruction, *instruction);
    }
    assert_eq!(
        backend.bootstraps(),
        assembly.program.bootstrap_count() as u64
    );
    let messages = (0..REGISTERS)
        .map(|index| {
            let sample = engine.read_sample(COMMAND, cor(0, index)).unwrap();
            decode_sample(&TINY, &sample.bytes, 4)
        })
        .collect();
    (backend.tasks(), messages)
}

#[test]
fn what_is_one_sample_is_one_call() {
    for (body, calls, messages) in [
        (
            "bootstrap [f, g, h], [b, a, c], a",
            1,
            [2, 2, 14, 4, 5].as_slice(),
        ),
        ("bootstrap [f, f], [b, c], d", 1, [1, 5, 5, 4, 5].as_slice()),
        // Moved first, bootstrapped later.
        (
            "mov b, a\nhomadd c, c\nbootstrap f, b\nbootstrap g, a",
            1,
            [2, 2, 6, 4, 5].as_slice(),
        ),
        (
            "bootstrap f, a\nbootstrap g, b",
            2,
            [2, 4, 3, 4, 5].as_slice(),
        ),
        // The second of one register bootstraps the result of the first.
        (
            "bootstrap f, a\nbootstrap g, a",
            2,
            [4, 2, 3, 4, 5].as_slice(),
        ),
        // Written between.
        (
            "mov b, a\nbootstrap f, b\nhomadd a, a\nbootstrap g, a",
            2,
            [4, 2, 3, 4, 5].as_slice(),
        ),
        // Written between, but to another register: not adjacent.
        (
            "mov b, a\nbootstrap f, b\nhomadd c, c\nbootstrap g, a",
            2,
            [2, 2, 6, 4, 5].as_slice(),
        ),
        // Two samples with two functions each.
        (
            "bootstrap [f, g], [a, b], a\nbootstrap [f, g], [c, d], c",
            2,
            [2, 2, 4, 6, 5].as_slice(),
        ),
        // Equal messages are not the same sample.
        (
            "homadd a, a\nbootstrap f, a\nbootstrap g, b",
            2,
            [3, 4, 3, 4, 5].as_slice(),
        ),
    ] {
        assert_eq!(calls_of(body), (calls, messages.to_vec()), "{body}");
    }
}

/// Wide functions share the bits that they extract, of one input width; other functions share none, and no width keeps them apart.
#[test]
fn wide_functions_of_one_width_are_one_call() {
    for (params, calls) in [(&TINY_WOPBS, 3), (&TINY, 1)] {
        let backend = Arc::new(PlaintextBackend::new());
        let engine = Engine::new(
            config(1 << 20),
            Arc::clone(&backend) as _,
            Arc::new(MemorySwap::new()),
        );
        store_keys(&engine, 0, params);
        for (index, width) in [2, 2, params.message_bits, 2].into_iter().enumerate() {
            let bytes = test_vector(params, width, |m| m + 1);
            let part = whole(tv(index as u32), params, &bytes, bits(width));
            engine.store_part(&part).unwrap();
        }
        store_message(&engine, cor(0, 0), params, 0);
        let text = ".reg f = tv:0\n.reg g = tv:1\n.reg h = tv:2\n.reg i = tv:3\n\
                    .reg a = cor:0\n.reg b = cor:1\n.reg c = cor:2\n.reg d = cor:3\n\
                    bootstrap [f, g, h, i], [a, b, c, d], a\nreturn a";
        let assembly = assemble(text).unwrap();
        store_program(&engine, 0, params, assembly.program.instructions());
        run(&engine, 0).unwrap();
        assert_eq!(backend.tasks(), calls, "{}", params.name);
        for (index, width) in [2, 2, params.message_bits, 2].into_iter().enumerate() {
            let result = engine.read_sample(COMMAND, cor(0, index as u32)).unwrap();
            assert_eq!(decode_sample(params, &result.bytes, width), 1);
        }
    }
}

#[test]
fn long_runs_are_several_calls() {
    let (engine, backend) = counting_engine(4 << 20);
    let mut program: Vec<Instruction> = (10..210)
        .map(|index| Instruction::Move {
            dst: cor(0, index),
            src: cor(0, 0),
        })
        .collect();
    program.extend((10..210).map(|index| Instruction::Bootstrap {
        tv: tv(index % VECTORS),
        n: cor(0, index),
    }));
    program.push(Instruction::Return { n: cor(0, 209) });
    store_program(&engine, 0, &TINY, &program);
    let outcome = run(&engine, 0).unwrap();
    assert_eq!((backend.bootstraps(), backend.tasks()), (200, 4));
    assert_eq!(decode_sample(&TINY, &outcome.bytes, 4), 14);
}

#[test]
fn a_run_shares_its_time_and_counts_every_page() {
    // Room for a few samples only.
    let (engine, _) = counting_engine(5 * 4096);
    let (a, b) = (cor(0, 0), cor(0, 1));
    let program = [
        Instruction::Move { dst: b, src: a },
        Instruction::Bootstrap { tv: tv(0), n: a },
        Instruction::Bootstrap { tv: tv(1), n: b },
        Instruction::Return { n: a },
    ];
    store_program(&engine, 0, &TINY, &program);
    let outcome = run(&engine, 0).unwrap();
    let [_, first, second, _] = outcome.instructions.as_slice() else {
        panic!("{:?}", outcome.instructions)
    };
    assert_eq!(first.duration, second.duration);
    assert!(first.duration > Duration::ZERO);
    let sum = |pages: fn(&toroid_engine::InstructionTiming) -> u64| {
        outcome.instructions.iter().map(pages).sum::<u64>()
    };
    assert_eq!(sum(|timing| timing.page_ins), outcome.page_ins);
    assert_eq!(sum(|timing| timing.page_outs), outcome.page_outs);
}

#[test]
fn a_run_that_fails_changes_nothing() {
    for done_before in [true, false] {
        // The second call fails, with its results or without.
        let calls = AtomicU64::new(0);
        let odd = InterceptedBackend::new(move |_, bootstrap| {
            let second = calls.fetch_add(1, Ordering::Relaxed) == 1;
            if done_before || !second {
                bootstrap()?;
            }
            if second {
                let reason = "one too many".to_owned();
                return Err(BackendError::Failed { reason });
            }
            Ok(())
        });
        let engine = Engine::new(config(1 << 20), Arc::new(odd), Arc::new(MemorySwap::new()));
        let (a, b) = (cor(0, 0), cor(0, 1));
        store_keys(&engine, 0, &TINY);
        store_function(&engine, tv(0), &TINY, |m| m + 1);
        store_message(&engine, a, &TINY, 3);
        store_message(&engine, b, &TINY, 4);
        let before = samples(&engine);
        let program = [
            Instruction::Bootstrap { tv: tv(0), n: b },
            Instruction::Move { dst: b, src: a },
            Instruction::Bootstrap { tv: tv(0), n: a },
            Instruction::Bootstrap { tv: tv(0), n: b },
            Instruction::Return { n: a },
        ];
        store_program(&engine, 0, &TINY, &program);
        match run(&engine, 0) {
            Err(EngineError::Backend {
                vr,
                source: BackendError::Failed { reason },
            }) => {
                assert_eq!(vr, a);
                assert_eq!(reason, "one too many");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(samples(&engine), before);
        assert_eq!(engine.paging().resident_pages, 2);
    }
}

/// The bits of a sample are extracted once a task: 64 functions of a sample are one.
#[test]
fn sixty_four_functions_of_one_sample_are_one_task() {
    const COUNT: u32 = 64;
    let bits = TINY_WOPBS.message_bits;
    let f = |index: u32, m: u64| (m * u64::from(2 * index + 1) + u64::from(index)) % (2 << bits);
    let mut program: Vec<Instruction> = (1..COUNT)
        .map(|index| Instruction::Move {
            dst: cor(0, index),
            src: cor(0, 0),
        })
        .collect();
    program.extend((0..COUNT).map(|index| Instruction::Bootstrap {
        tv: tv(index),
        n: cor(0, index),
    }));
    program.push(Instruction::Return { n: cor(0, 0) });
    let evaluate = |backend: Arc<dyn Backend>, keys: [Vec<u8>; 2], sample: &[u8]| {
        let swap = Arc::new(MemorySwap::new());
        let engine = Engine::new(config(1 << 20), backend, swap);
        for (kind, bytes) in KINDS.into_iter().zip(keys) {
            let register = VrNumber::key(0, kind).unwrap();
            store(&engine, register, &TINY_WOPBS, &bytes).unwrap();
        }
        for index in 0..COUNT {
            store_function(&engine, tv(index), &TINY_WOPBS, |m| f(index, m));
        }
        store(&engine, cor(0, 0), &TINY_WOPBS, sample).unwrap();
        store_program(&engine, 0, &TINY_WOPBS, &program);
        run(&engine, 0).unwrap();
        (0..COUNT)
            .map(|index| engine.read_sample(COMMAND, cor(0, index)).unwrap().bytes)
            .collect::<Vec<_>>()
    };

    let plaintext = Arc::new(PlaintextBackend::new());
    let keys = [
        TINY_WOPBS.bootstrapping_key_bytes(),
        TINY_WOPBS.key_switching_key_bytes(),
    ];
    let sample = encode_sample(&TINY_WOPBS, 77, bits);
    let keys = keys.map(|bytes| vec![0; bytes as usize]);
    let results = evaluate(Arc::clone(&plaintext) as _, keys, &sample);
    assert_eq!((plaintext.tasks(), plaintext.bootstraps()), (1, 64));
    for (index, result) in (0..).zip(&results) {
        assert_eq!(decode_sample(&TINY_WOPBS, result, bits), f(index, 77));
    }

    let mut rng = Csprng::from_seed([9; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let keys = KINDS.map(|kind| key_bytes(&client, kind, KeyForm::Seeded, &mut rng));
    let input = Encoding::new(bits, false).unwrap();
    let sample = client.encrypt_sample(77, input, &mut rng).unwrap();
    let cpu = Arc::new(CpuBackend::new(ArithmeticKind::Ntt));
    let results = evaluate(cpu, keys, &sample);
    for (index, result) in (0..).zip(&results) {
        let found = client.decrypt_sample(result, input).unwrap();
        assert_eq!(found as u64, f(index, 77), "function {index}");
    }
}

/// A step of a random program: kind, two registers, a test vector.
fn steps() -> impl Strategy<Value = Vec<(u8, u32, u32, u32)>> {
    prop::collection::vec((0u8..8, 0..REGISTERS, 0..REGISTERS, 0..VECTORS), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_give_the_same_fused_and_unfused(steps in steps()) {
        let body: Vec<Instruction> = steps
            .into_iter()
            .map(|(kind, a, b, function)| match kind {
                0..=2 => Instruction::Move { dst: cor(0, a), src: cor(0, b) },
                3 => Instruction::HomAdd { dst: cor(0, a), src: cor(0, b) },
                _ => Instruction::Bootstrap { tv: tv(function), n: cor(0, a) },
            })
            .collect();
        let bootstraps = body.iter().filter(|made| made.test_vector().is_some()).count() as u64;
        let results = [false, true].map(|apart| {
            let (engine, backend) = counting_engine(1 << 20);
            let spare = cor(0, 9);
            store_message(&engine, spare, &TINY, 0);
            let mut program = Vec::new();
            for instruction in &body {
                program.push(*instruction);
                if apart {
                    program.push(Instruction::HomIntMult { n: spare, v: 1 });
                }
            }
            program.push(Instruction::Return { n: cor(0, 0) });
            store_program(&engine, 0, &TINY, &program);
            let outcome = run(&engine, 0).unwrap();
            let sources: Vec<_> = (0..REGISTERS)
                .map(|index| {
                    let sample = engine.read_sample(COMMAND, cor(0, index)).unwrap();
                    (
                        sample.bytes,
                        (sample.encoding, sample.computed),
                        sample.noise.variance(),
                        sample.noise.log2_failure(),
                        // Correlations too: what is known of sums with the first register.
                        outcome.noise.plus(&sample.noise, -1.0).variance(),
                    )
                })
                .collect();
            (sources, backend.bootstraps(), backend.tasks())
        });
        let [(fused, done, calls), (unfused, done_apart, calls_apart)] = results;
        prop_assert_eq!(fused, unfused);
        prop_assert_eq!((done, done_apart, calls_apart), (bootstraps, bootstraps, bootstraps));
        prop_assert!(calls <= bootstraps);
    }
}

fn function<M: Modulus>(params: &ParamSet, input: Encoding, f: impl Fn(i64) -> i64) -> Vec<u8> {
    let bits = input.bits() + 1;
    let table: Vec<M::Word> = input
        .messages()
        .map(|m| M::encode(f(m).rem_euclid(1 << bits), bits))
        .collect();
    let words = glwe::test_vector::<M>(params, input, &table).unwrap();
    bytemuck::cast_slice(&words).to_vec()
}

#[test]
fn the_cpu_gives_what_single_bootstraps_give() {
    let functions: [fn(i64) -> i64; 3] = [|m| m, |m| m * m / 4, |m| -m];
    for (params, arithmetic, form) in [
        (&TINY, ArithmeticKind::Ntt, KeyForm::Expanded),
        (&TINY, ArithmeticKind::Fft, KeyForm::Expanded),
        (&TINY32, ArithmeticKind::Ntt, KeyForm::Expanded),
        (&TINY32, ArithmeticKind::Fft, KeyForm::Seeded),
        (&TINY_WOPBS, ArithmeticKind::Ntt, KeyForm::Seeded),
        (&TINY_WOPBS, ArithmeticKind::Fft, KeyForm::Expanded),
    ] {
        let backend = CpuBackend::new(arithmetic);
        let mut rng = Csprng::from_seed([3; 32]);
        let client = ClientKey::generate(params, &mut rng);
        let [bootstrapping, key_switching] =
            KINDS.map(|kind| loaded_key(&backend, &client, kind, form, &mut rng));
        let input = Encoding::new(params.message_bits, true).unwrap();
        let vectors = functions.map(|f| match params.modulus {
            ModulusKind::Torus32 => function::<Torus32>(params, input, f),
            ModulusKind::Goldilocks => function::<Goldilocks>(params, input, f),
        });
        let sample = client.encrypt_sample(-2, input, &mut rng).unwrap();
        let bootstrap = |vectors: &[&[u8]]| {
            let task = BootstrapTask {
                test_vectors: vectors,
                sample: &sample,
                input_bits: params.message_bits,
            };
            let cancel = CancelToken::new();
            backend
                .bootstrap(
                    params,
                    &*bootstrapping,
                    &*key_switching,
                    task,
                    (&cancel).into(),
                )
                .unwrap()
        };
        let together = bootstrap(&[&vectors[0], &vectors[1], &vectors[2]]);
        let apart: Vec<u8> = vectors
            .iter()
            .flat_map(|vector| bootstrap(&[vector]))
            .collect();
        // The FFT's rounding depends on how the work is shared out among threads.
        if arithmetic == ArithmeticKind::Ntt {
            assert_eq!(together, apart, "{}", params.name);
        }
        for samples in [&together, &apart] {
            let messages: Vec<i64> = samples
                .chunks_exact(params.lwe_bytes())
                .map(|bytes| client.decrypt_sample(bytes, input).unwrap())
                .collect();
            assert_eq!(messages, [-2, 1, 2], "{} {arithmetic:?}", params.name);
        }
    }
}

#[test]
fn bootstraps_of_several_tenants_go_together_and_give_what_each_gives_alone() {
    const THREADS: u64 = 6;
    for (params, arithmetic) in [
        (&TINY, ArithmeticKind::Ntt),
        (&TINY, ArithmeticKind::Fft),
        (&TINY32, ArithmeticKind::Ntt),
        (&TINY32, ArithmeticKind::Fft),
        (&TINY_WOPBS, ArithmeticKind::Ntt),
    ] {
        let backend = CpuBackend::with_cores(arithmetic, 1);
        let mut rng = Csprng::from_seed([4; 32]);
        let client = ClientKey::generate(params, &mut rng);
        let [bootstrapping, key_switching] =
            KINDS.map(|kind| loaded_key(&backend, &client, kind, KeyForm::Seeded, &mut rng));
        let input = Encoding::new(params.message_bits, true).unwrap();
        let vector = match params.modulus {
            ModulusKind::Torus32 => function::<Torus32>(params, input, |m| -m),
            ModulusKind::Goldilocks => function::<Goldilocks>(params, input, |m| -m),
        };
        let samples: Vec<Vec<u8>> = (0..THREADS)
            .map(|m| {
                client
                    .encrypt_sample(m as i64 - 3, input, &mut rng)
                    .unwrap()
            })
            .collect();
        let cancel = CancelToken::new();
        let bootstrap = |tenant: u64, vectors: &[&[u8]]| {
            let requester = Requester {
                tenant,
                cancel: &cancel,
                key_ids: None,
                progress: None,
            };
            let task = BootstrapTask {
                test_vectors: vectors,
                sample: &samples[tenant as usize],
                input_bits: params.message_bits,
            };
            backend
                .bootstrap(params, &*bootstrapping, &*key_switching, task, requester)
                .unwrap()
        };
        let alone: Vec<_> = (0..THREADS)
            .map(|tenant| bootstrap(tenant, &[&vector, &vector]))
            .collect();
        assert_eq!(backend.statistics().batched, 0);
        let done = || params.is_wide() || backend.statistics().batched > 20;
        for _ in 0..1000 {
            std::thread::scope(|scope| {
                for (tenant, alone) in (0..).zip(&alone) {
                    let (bootstrap, vector) = (&bootstrap, &vector);
                    scope.spawn(move || {
                        for _ in 0..4 {
                            assert_eq!(&bootstrap(tenant, &[vector, vector]), alone);
                        }
                    });
                }
            });
            if done() {
                break;
            }
        }
        assert!(done(), "nothing went together");
        assert_eq!(backend.statistics().waiting, 0);
    }
}
