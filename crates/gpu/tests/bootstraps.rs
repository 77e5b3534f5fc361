//! Bootstraps by the kernels, on a driver without a device, against the processor's.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{KeyBytes, Work, backend, driver, key_bytes, load, options};
use toroid_engine::CancelToken;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::test_vector;
use toroid_engine::backend::{Backend, BackendError};
use toroid_gpu::{GpuOptions, Grouping};
use toroid_isa::KeyKind;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{
    GATE, MESSAGE4, MESSAGE7, PAPER, ParamSet, StageParams, TINY, TINY_WOPBS, TINY32,
};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

/// The exact paths agree bit for bit, in every arrangement of blocks.
fn bootstraps_agree(
    params: &'static ParamSet,
    samples: usize,
    forms: &[KeyForm],
    groupings: &[(Grouping, bool)],
) {
    let Some(driver) = driver() else { return };
    let mut rng = Csprng::from_seed([11; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let work = Work::random(params, samples, 2, &mut rng);
    let cancel = CancelToken::new();
    for form in forms {
        let keys = KeyBytes::generate(&client, *form, &mut rng);
        let expected = work.run(&cpu, &keys.load(&cpu, params), &cancel).unwrap();
        for (grouping, flags) in groupings {
            let gpu = backend(
                ArithmeticKind::Ntt,
                &GpuOptions {
                    grouping: *grouping,
                    flags: *flags,
                    ..options(driver)
                },
            );
            let found = work.run(&gpu, &keys.load(&gpu, params), &cancel).unwrap();
            assert!(
                found == expected,
                "{} with {form:?}, {grouping:?}, flags {flags}",
                params.name
            );
        }
    }
}

const SOLO: [(Grouping, bool); 1] = [(Grouping::Auto, false)];
const GROUPS: [(Grouping, bool); 8] = [
    (Grouping::Group(2), false),
    (Grouping::Group(4), false),
    (Grouping::Group(8), false),
    (Grouping::Group(16), false),
    (Grouping::Group(2), true),
    (Grouping::Group(4), true),
    (Grouping::Group(8), true),
    (Grouping::Group(16), true),
];

#[test]
fn exact_bootstraps_over_the_goldilocks_field_are_those_of_the_processor() {
    bootstraps_agree(&TINY, 3, &KeyForm::ALL, &SOLO);
}

#[test]
fn exact_bootstraps_over_the_32_bit_torus_are_those_of_the_processor() {
    bootstraps_agree(&TINY32, 3, &KeyForm::ALL, &SOLO);
}

#[test]
fn exact_bootstraps_do_not_depend_on_the_group_nor_on_how_blocks_wait() {
    bootstraps_agree(&TINY, 2, &[KeyForm::Seeded], &GROUPS);
}

/// A set with a few steps of its blind rotation, since threads of a device are slow on a processor.
const fn shortened(set: &ParamSet, steps: usize) -> ParamSet {
    ParamSet {
        id: 900 + set.id,
        stage: StageParams {
            lwe_dimension: steps,
            ..set.stage
        },
        ..*set
    }
}

#[test]
fn exact_bootstraps_at_the_degrees_of_secure_sets_are_those_of_the_processor() {
    static SETS: [ParamSet; 4] = [
        shortened(&GATE, 9),
        shortened(&MESSAGE4, 5),
        shortened(&MESSAGE7, 2),
        shortened(&PAPER, 2),
    ];
    for params in &SETS {
        bootstraps_agree(params, 1, &[KeyForm::Seeded], &SOLO);
    }
}

/// All messages of a set, squared.
fn decrypts(params: &'static ParamSet, backend: &dyn Backend) {
    let mut rng = Csprng::from_seed([13; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let keys = KeyBytes::generate(&client, KeyForm::Seeded, &mut rng).load(backend, params);
    let encoding = Encoding::new(params.message_bits, false).unwrap();
    let square = |message: u64| message * message % (1 << params.message_bits);
    let messages = encoding.messages();
    let work = Work {
        params,
        samples: messages
            .clone()
            .map(|message| client.encrypt_sample(message, encoding, &mut rng).unwrap())
            .collect(),
        test_vectors: vec![test_vector(params, params.message_bits, square)],
    };
    let results = work.run(backend, &keys, &CancelToken::new()).unwrap();
    for (message, result) in messages.zip(results.chunks(params.lwe_bytes())) {
        let found = client.decrypt_sample(result, encoding).unwrap();
        let expected = square(message.cast_unsigned()).cast_signed();
        assert_eq!(found, expected, "{} {message}", params.name);
    }
}

#[test]
fn fast_bootstraps_decrypt_to_the_functions_of_their_messages() {
    let Some(driver) = driver() else { return };
    for (params, flags) in [(&TINY, false), (&TINY, true), (&TINY32, false)] {
        let grouping = if flags {
            Grouping::Group(4)
        } else {
            Grouping::Auto
        };
        let gpu = backend(
            ArithmeticKind::Fft,
            &GpuOptions {
                grouping,
                flags,
                ..options(driver)
            },
        );
        decrypts(params, &gpu);
    }
}

#[test]
fn results_are_the_same_alone_and_in_batches() {
    let Some(driver) = driver() else { return };
    for arithmetic in [ArithmeticKind::Ntt, ArithmeticKind::Fft] {
        let gpu = backend(arithmetic, &options(driver));
        let mut rng = Csprng::from_seed([17; 32]);
        let client = ClientKey::generate(&TINY, &mut rng);
        let keys = KeyBytes::generate(&client, KeyForm::Seeded, &mut rng).load(&gpu, &TINY);
        let work = Work::random(&TINY, 9, 1, &mut rng);
        let cancel = CancelToken::new();
        let together = work.run(&gpu, &keys, &cancel).unwrap();
        for (sample, expected) in work.samples.iter().zip(together.chunks(TINY.lwe_bytes())) {
            let alone = Work {
                params: &TINY,
                samples: vec![sample.clone()],
                test_vectors: work.test_vectors.clone(),
            };
            assert!(alone.run(&gpu, &keys, &cancel).unwrap() == expected);
        }
    }
}

#[test]
fn malformed_keys_are_refused_as_by_the_processor() {
    let Some(driver) = driver() else { return };
    let gpu = backend(ArithmeticKind::Ntt, &options(driver));
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let mut rng = Csprng::from_seed([19; 32]);
    let client = ClientKey::generate(&TINY, &mut rng);
    for form in KeyForm::ALL {
        for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
            let bytes = key_bytes(&client, kind, form, &mut rng);
            let mut ones = bytes.clone();
            let middle = bytes.len() / 2 / 8 * 8;
            ones[middle..middle + 16].fill(0xff);
            let longer = [&bytes[..], &[0]].concat();
            for malformed in [&ones, &bytes[..bytes.len() - 1], &longer, &[]] {
                // The processor counts the bytes of all parts of a key, seeded or not.
                let results = [&gpu as &dyn Backend, &cpu].map(|backend| {
                    match load(backend, &TINY, (kind, form), malformed) {
                        Err(BackendError::MalformedKey { reason }) => reason.replace("seeded ", ""),
                        other => format!("{:?}", other.map(|key| key.kind())),
                    }
                });
                assert_eq!(results[0], results[1], "{kind} {form:?}");
            }
        }
    }
}

/// What has no kernels is done by the processor, with its keys.
#[test]
fn wide_functions_are_those_of_the_processor() {
    let Some(driver) = driver() else { return };
    let params = &TINY_WOPBS;
    let gpu = backend(ArithmeticKind::Ntt, &options(driver));
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let mut rng = Csprng::from_seed([23; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let keys = KeyBytes::generate(&client, KeyForm::Seeded, &mut rng);
    let work = Work::random(params, 1, 1, &mut rng);
    let cancel = CancelToken::new();
    let results = [&gpu as &dyn Backend, &cpu].map(|backend| {
        work.run(backend, &keys.load(backend, params), &cancel)
            .unwrap()
    });
    assert!(results[0] == results[1]);
    assert!(gpu.packs(params) && !gpu.packs(&TINY));
    let mut sums = [work.samples[0].clone(), work.samples[0].clone()];
    gpu.hom_add(params, &mut sums[0], &results[0]);
    cpu.hom_add(params, &mut sums[1], &results[0]);
    assert!(sums[0] == sums[1]);
}

#[test]
fn keys_of_another_set_or_kind_are_refused() {
    let Some(driver) = driver() else { return };
    let gpu = backend(ArithmeticKind::Ntt, &options(driver));
    let mut rng = Csprng::from_seed([29; 32]);
    let keys = [&TINY, &TINY32].map(|params| {
        let client = ClientKey::generate(params, &mut rng);
        KeyBytes::generate(&client, KeyForm::Seeded, &mut rng).load(&gpu, params)
    });
    let work = Work::random(&TINY, 1, 1, &mut rng);
    let cancel = CancelToken::new();
    let [[bootstrapping, switching], [other, _]] = keys;
    for pair in [
        [other, switching.clone()],
        [switching, bootstrapping.clone()],
        [bootstrapping.clone(), bootstrapping],
    ] {
        let refused = work.run(&gpu, &pair, &cancel).unwrap_err();
        assert!(matches!(refused, BackendError::Failed { .. }), "{refused}");
    }
}
