//! Wide functions: parameter sets whose test vectors are tables.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::Arc;

use common::*;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::{
    PlaintextBackend, decode_sample, encode_sample, test_vector,
};
use toroid_engine::{
    Attributes, Backend, BackendError, BootstrapTask, CancelToken, Engine, EngineError, KeyForm,
    KeyKind, MemorySwap, StoreOutcome,
};
use toroid_isa::{VrNumber, assemble};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::{MESSAGE16, ModulusKind, ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;

const BITS: u32 = TINY_WOPBS.message_bits;

#[test]
fn test_vectors_of_the_plaintext_back_end_are_the_schemes() {
    fn of_the_scheme<M: Modulus>(params: &ParamSet, bits: u32) -> Vec<u8> {
        let input = Encoding::new(bits, false).unwrap();
        let table: Vec<M::Word> = input
            .messages()
            .map(|m| M::encode((3 * m + 1) % (2 << bits), bits + 1))
            .collect();
        let words = glwe::test_vector::<M>(params, input, &table).unwrap();
        bytemuck::cast_slice(&words).to_vec()
    }
    for params in [&TINY, &TINY32, &TINY_WOPBS] {
        for bits in 1..=params.message_bits {
            let expected = match params.modulus {
                ModulusKind::Torus32 => of_the_scheme::<Torus32>(params, bits),
                ModulusKind::Goldilocks => of_the_scheme::<Goldilocks>(params, bits),
            };
            let found = test_vector(params, bits, |m| 3 * m + 1);
            assert!(found == expected, "{}, {bits} bits", params.name);
        }
    }
}

#[test]
fn the_plaintext_back_end_reads_tables() {
    let engine = engine(1 << 20);
    let f = |m: u64| (m * m + 5) % (2 << BITS);
    store_keys(&engine, 0, &TINY_WOPBS);
    store_function(&engine, vr("tv:0:0"), &TINY_WOPBS, f);
    let assembly = assemble(".reg f = tv:0\n.reg n = cor:0\nbootstrap f, n\nreturn n").unwrap();
    store_program(&engine, 0, &TINY_WOPBS, assembly.program.instructions());
    for message in (0..2 << BITS).step_by(23) {
        store_message(&engine, cor(0, 0), &TINY_WOPBS, message);
        let outcome = run(&engine, 0).unwrap();
        // Whatever the padding bit is.
        let expected = f(message as u64 % (1 << BITS));
        assert_eq!(decode_sample(&TINY_WOPBS, &outcome.bytes, BITS), expected);
    }
}

/// Several functions of one sample on the processor, from keys of both forms; what the engine says of the results.
#[test]
fn the_engine_evaluates_wide_functions() {
    let input = Encoding::new(BITS, true).unwrap();
    let functions: [fn(i64) -> i64; 3] = [|m| m * m / 4, |m| -m, |m| m / 16];
    let mut rng = Csprng::from_seed([1; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    for (form, arithmetic) in [
        (KeyForm::Seeded, ArithmeticKind::Fft),
        (KeyForm::Expanded, ArithmeticKind::Ntt),
    ] {
        let backend = Arc::new(CpuBackend::new(arithmetic));
        let engine = Engine::new(config(1 << 20), backend, Arc::new(MemorySwap::new()));
        for kind in KINDS {
            let bytes = key_bytes(&client, kind, form, &mut rng);
            let register = VrNumber::key(0, kind).unwrap();
            store(&engine, register, &TINY_WOPBS, &bytes).unwrap();
        }
        let attributes = Attributes {
            encoding: Some(input),
            log2_variance: Some(TINY_WOPBS.lwe_variance().log2()),
            ..Attributes::default()
        };
        for (index, f) in functions.iter().enumerate() {
            let table: Vec<u64> = input
                .messages()
                .map(|m| Goldilocks::encode(f(m).rem_euclid(2 << BITS), BITS + 1))
                .collect();
            let words = glwe::test_vector::<Goldilocks>(&TINY_WOPBS, input, &table).unwrap();
            let bytes = bytemuck::cast_slice(&words);
            let register = vr(&format!("tv:0:{index}"));
            let part = whole(register, &TINY_WOPBS, bytes, attributes);
            assert_eq!(engine.store_part(&part).unwrap(), StoreOutcome::Complete);
        }
        let text = ".reg f = tv:0\n.reg g = tv:1\n.reg h = tv:2\n.reg a = cor:0\n.reg b = cor:1\n.reg c = cor:2\n\
                    bootstrap [f, g, h], [a, b, c], a\nreturn a";
        let assembly = assemble(text).unwrap();
        store_program(&engine, 0, &TINY_WOPBS, assembly.program.instructions());
        for message in [-256, -77, -1, 0, 1, 200, 255] {
            let sample = client.encrypt_sample(message, input, &mut rng).unwrap();
            let part = whole(cor(0, 0), &TINY_WOPBS, &sample, attributes);
            assert_eq!(engine.store_part(&part).unwrap(), StoreOutcome::Complete);
            let outcome = run(&engine, 0).unwrap();
            let fresh =
                Noise::encryption(&TINY_WOPBS).bootstrapped(&TINY_WOPBS, BITS, arithmetic, 1);
            for (index, f) in functions.iter().enumerate() {
                let result = engine.read_sample(COMMAND, cor(0, index as u32)).unwrap();
                let decoded = client.decrypt_sample(&result.bytes, input).unwrap();
                let wrapped = (f(message) + (1 << BITS)).rem_euclid(2 << BITS) - (1 << BITS);
                assert_eq!(
                    decoded, wrapped,
                    "function {index} of {message}, {arithmetic:?}"
                );
                assert_eq!(result.noise.variance(), fresh.variance());
                assert_eq!(result.noise.log2_failure(), fresh.log2_failure());
                assert_eq!(result.encoding, Some(input));
                // Functions of one sample: what they do not share may be correlated in any way.
                let double = outcome.noise.plus(&result.noise, 1.0).variance();
                assert!((double / (4.0 * fresh.variance()) - 1.0).abs() < 1e-9);
            }
        }
        let info = |text: &str| engine.info(vr(text)).unwrap().bytes;
        assert_eq!(info("tv:0:0"), 8 << BITS);
        assert_eq!(info("cor:0:0"), TINY_WOPBS.lwe_bytes() as u64);
        assert_eq!(info("key:0:1"), TINY_WOPBS.bootstrapping_key_bytes());
        assert_eq!(info("key:0:2"), TINY_WOPBS.key_switching_key_bytes());
    }
}

/// A table whose entries beside those of `messages` messages are wrong, so that only a bootstrap of that input width reads it right.
fn sparse(bits: u32, f: impl Fn(u64) -> u64) -> Vec<u8> {
    let step = 1 << (BITS - bits);
    let words: Vec<u64> = (0..1u64 << BITS)
        .map(|entry| {
            let value = f(entry / step);
            if entry % step == 0 { value } else { value ^ 1 }
        })
        .map(|value| Goldilocks::encode(value as i64, BITS + 1))
        .collect();
    bytemuck::cast_slice(&words).to_vec()
}

/// Functions of messages of 3 bits and of the set's width, of one sample: each reads as many bits as its input has, and fails as
/// that says.
#[test]
fn functions_read_the_bits_of_their_input() {
    const NARROW: u32 = 3;
    let mut rng = Csprng::from_seed([4; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let cpu = |arithmetic| Arc::new(CpuBackend::new(arithmetic));
    let backends: [(Arc<dyn Backend>, ArithmeticKind); 3] = [
        (Arc::new(PlaintextBackend::new()), ArithmeticKind::Ntt),
        (cpu(ArithmeticKind::Ntt), ArithmeticKind::Ntt),
        (cpu(ArithmeticKind::Fft), ArithmeticKind::Fft),
    ];
    for (backend, arithmetic) in backends {
        let engine = Engine::new(
            config(1 << 20),
            Arc::clone(&backend),
            Arc::new(MemorySwap::new()),
        );
        for kind in KINDS {
            let bytes = key_bytes(&client, kind, KeyForm::Expanded, &mut rng);
            let register = VrNumber::key(0, kind).unwrap();
            store(&engine, register, &TINY_WOPBS, &bytes).unwrap();
        }
        let [f, g]: [fn(u64) -> u64; 2] = [|m| 70 * m + 2, |m| 7 - m];
        let vectors = [
            ("tv:0:0", sparse(NARROW, f), Some(NARROW)),
            ("tv:0:1", sparse(NARROW, g), Some(NARROW)),
            ("tv:0:2", test_vector(&TINY_WOPBS, BITS, |m| m), None),
            // No table of the set has such an input: it counts as none that is stated.
            ("tv:0:3", test_vector(&TINY_WOPBS, BITS, |m| m), Some(10)),
        ];
        for (register, bytes, input) in &vectors {
            let attributes = Attributes {
                encoding: input.map(|bits| Encoding::new(bits, false).unwrap()),
                ..Attributes::default()
            };
            let part = whole(vr(register), &TINY_WOPBS, bytes, attributes);
            assert_eq!(engine.store_part(&part).unwrap(), StoreOutcome::Complete);
        }
        let text = ".reg f = tv:0\n.reg g = tv:1\n.reg h = tv:2\n.reg i = tv:3\n\
                    .reg a = cor:0\n.reg b = cor:1\n.reg c = cor:2\n.reg d = cor:3\n\
                    bootstrap [f, g, h, i], [a, b, c, d], a\nreturn a";
        let assembly = assemble(text).unwrap();
        store_program(&engine, 0, &TINY_WOPBS, assembly.program.instructions());
        for message in 0..1u64 << NARROW {
            // Off by a quarter of the distance between two messages: by 2^(9-3)/4 of the wide ones.
            let (wide, off) = ((message << (BITS - NARROW)) as i64, 16);
            let mut sample = encode_sample(&TINY_WOPBS, wide + off, BITS);
            if backend.name() == "cpu" {
                let input = Encoding::new(BITS, false).unwrap();
                sample = client.encrypt_sample(wide + off, input, &mut rng).unwrap();
            }
            let attributes = Attributes {
                log2_variance: Some(TINY_WOPBS.lwe_variance().log2()),
                ..Attributes::default()
            };
            let part = whole(cor(0, 0), &TINY_WOPBS, &sample, attributes);
            assert_eq!(engine.store_part(&part).unwrap(), StoreOutcome::Complete);
            let outcome = run(&engine, 0).unwrap();
            assert_eq!(outcome.instructions.len(), assembly.program.len());
            let expected = [f(message), g(message), wide as u64 + 16, wide as u64 + 16];
            for (index, (expected, (.., input))) in expected.iter().zip(&vectors).enumerate() {
                let result = engine.read_sample(COMMAND, cor(0, index as u32)).unwrap();
                let decoded = match backend.name() {
                    "cpu" => client
                        .decrypt_sample(&result.bytes, Encoding::new(BITS, false).unwrap())
                        .unwrap() as u64,
                    _ => decode_sample(&TINY_WOPBS, &result.bytes, BITS),
                };
                assert_eq!(decoded, *expected, "function {index} of {message}");
                let bits = input.map_or(BITS, |bits| bits.min(BITS));
                let noise = Noise::encryption(&TINY_WOPBS);
                let noise = noise.bootstrapped(&TINY_WOPBS, bits, arithmetic, 1);
                assert_eq!(result.noise.log2_failure(), noise.log2_failure());
            }
        }
    }
}

#[test]
fn wrong_objects_are_refused() {
    let engine = engine(1 << 20);
    let glwe = vec![0; 8 * TINY_WOPBS.glwe_words()];
    let refused = store(&engine, vr("tv:0:0"), &TINY_WOPBS, &glwe);
    assert!(matches!(refused, Err(EngineError::Size { .. })));
    let large = Engine::new(
        config(1 << 20),
        Arc::new(PlaintextBackend::new()),
        Arc::new(MemorySwap::new()),
    );
    store_function(&large, vr("tv:0:0"), &MESSAGE16, |m| m ^ 1);
    store(
        &large,
        cor(0, 0),
        &MESSAGE16,
        &encode_sample(&MESSAGE16, 40_000, 16),
    )
    .unwrap();
    assert_eq!(large.info(vr("tv:0:0")).unwrap().bytes, 512 << 10);
    assert_eq!(large.info(cor(0, 0)).unwrap().bytes, 2049 * 8);

    let backend = CpuBackend::new(ArithmeticKind::Fft);
    let mut rng = Csprng::from_seed([2; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    for kind in KINDS {
        for form in KeyForm::ALL {
            let mut bytes = key_bytes(&client, kind, form, &mut rng);
            let mut sink = backend.begin_key(&TINY_WOPBS, kind, form).unwrap();
            sink.write(&bytes[1..]).unwrap();
            let Err(BackendError::MalformedKey { .. }) = sink.finish() else {
                panic!("a {kind} that ends early");
            };
            bytes.push(0);
            let mut sink = backend.begin_key(&TINY_WOPBS, kind, form).unwrap();
            assert!(matches!(
                sink.write(&bytes),
                Err(BackendError::MalformedKey { .. })
            ));
        }
    }
}

#[test]
fn a_cancelled_bootstrap_stops_and_keys_count_their_memory() {
    let backend = CpuBackend::new(ArithmeticKind::Fft);
    let mut rng = Csprng::from_seed([3; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let [bootstrapping, key_switching] =
        KINDS.map(|kind| loaded_key(&backend, &client, kind, KeyForm::Seeded, &mut rng));
    for (key, kind, least) in [
        (
            &bootstrapping,
            KeyKind::Bootstrapping,
            TINY_WOPBS.bootstrapping_key_bytes(),
        ),
        (
            &key_switching,
            KeyKind::KeySwitching,
            TINY_WOPBS.key_switching_key_bytes(),
        ),
    ] {
        assert_eq!((key.params(), key.kind()), (&TINY_WOPBS, kind));
        let memory = key.bytes();
        assert!(
            (least..3 * least).contains(&memory),
            "{kind}: {memory}, {least}"
        );
    }
    let table = test_vector(&TINY_WOPBS, BITS, |m| m);
    let sample = encode_sample(&TINY_WOPBS, 7, BITS);
    let cancel = CancelToken::new();
    let bootstrap = || {
        let task = BootstrapTask {
            test_vectors: &[&table, &table],
            sample: &sample,
            input_bits: BITS,
        };
        let keys = (&*bootstrapping, &*key_switching);
        backend.bootstrap(&TINY_WOPBS, keys.0, keys.1, task, (&cancel).into())
    };
    assert_eq!(bootstrap().unwrap().len(), 2 * TINY_WOPBS.lwe_bytes());
    cancel.cancel();
    assert_eq!(bootstrap(), Err(BackendError::Cancelled));
}
