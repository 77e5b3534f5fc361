//! Bootstraps by the kernels, on a driver without a device, against the processor's.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{KeyBytes, Work, backend, driver, key_bytes, load, options};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::test_vector;
use toroid_engine::backend::{Backend, BackendError, BootstrapTask};
use toroid_engine::{CancelToken, Requester};
use toroid_gpu::{GpuOptions, Grouping};
use toroid_isa::KeyKind;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::wopbs::{Choice, Small};
use toroid_tfhe::params::{
    GATE, Gadget, MESSAGE4, MESSAGE7, PAPER, ParamSet, Security, StageParams, TINY, TINY_WOPBS,
    TINY32, WopbsParams,
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
    let wide: &[KeyForm] = &[KeyForm::Seeded];
    for (params, forms) in [(&TINY, &KeyForm::ALL[..]), (&TINY_WOPBS, wide)] {
        let client = ClientKey::generate(params, &mut rng);
        for form in forms {
            for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
                let bytes = key_bytes(&client, kind, *form, &mut rng);
                let mut ones = bytes.clone();
                let middle = bytes.len() / 2 / 8 * 8;
                ones[middle..middle + 16].fill(0xff);
                let longer = [&bytes[..], &[0]].concat();
                for malformed in [&ones, &bytes[..bytes.len() - 1], &longer, &[]] {
                    let results = [&gpu as &dyn Backend, &cpu].map(|backend| {
                        match load(backend, params, (kind, *form), malformed) {
                            Err(BackendError::MalformedKey { reason }) => reason,
                            other => format!("{:?}", other.map(|key| key.kind())),
                        }
                    });
                    assert_eq!(results[0], results[1], "{kind} {form:?}");
                }
            }
        }
    }
}

/// Exact wide functions agree bit for bit: of several samples and of different widths, one of them with several functions, one of them
/// constant.
fn wide_functions_agree(params: &'static ParamSet, form: KeyForm, widths: &[u32], most: usize) {
    let Some(driver) = driver() else { return };
    let gpu = backend(
        ArithmeticKind::Ntt,
        &GpuOptions {
            most: Some(most),
            ..options(driver)
        },
    );
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let mut rng = Csprng::from_seed([23; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let keys = KeyBytes::generate(&client, form, &mut rng);
    let Work {
        samples,
        mut test_vectors,
        ..
    } = Work::random(params, widths.len(), 1, &mut rng);
    test_vectors.push(test_vector(params, params.message_bits, |_| 1));
    let vectors: Vec<&[u8]> = test_vectors.iter().map(Vec::as_slice).collect();
    let tasks: Vec<BootstrapTask<'_>> = samples
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(index, (sample, width))| BootstrapTask {
            test_vectors: if index == 0 { &vectors } else { &vectors[..1] },
            sample,
            input_bits: *width,
        })
        .collect();
    let results = [&gpu as &dyn Backend, &cpu].map(|backend| {
        let [bootstrapping, switching] = keys.load(backend, params);
        let mut results = vec![0; (tasks.len() + 1) * params.lwe_bytes()];
        let cancel = CancelToken::new();
        backend
            .bootstrap_batch(
                params,
                &*bootstrapping,
                &*switching,
                &tasks,
                &mut results,
                Requester::from(&cancel),
            )
            .unwrap();
        results
    });
    for (index, [found, expected]) in results[0]
        .chunks(params.lwe_bytes())
        .zip(results[1].chunks(params.lwe_bytes()))
        .map(|(found, expected)| [found, expected])
        .enumerate()
    {
        assert!(
            found == expected,
            "{} {form:?}, function {index}",
            params.name
        );
    }
    assert!(gpu.statistics().batches > 0 && gpu.batch_hint(params) == most);
}

#[test]
fn exact_wide_functions_are_those_of_the_processor() {
    // Tables of one polynomial, of a part of one, and of two and four.
    wide_functions_agree(&TINY_WOPBS, KeyForm::Seeded, &[9, 2, 8, 9, 7], 64);
}

#[test]
fn exact_wide_functions_do_not_depend_on_the_form_of_keys_nor_on_how_many_go_together() {
    for form in [KeyForm::Expanded, KeyForm::SeededWords] {
        wide_functions_agree(&TINY_WOPBS, form, &[8, 8], 1);
    }
}

/// The gadgets of `message16`, at other degrees and widths, and with as many steps of each rotation.
const fn wide(id: u16, ring_degree: usize, message_bits: u32, steps: usize) -> Choice {
    const fn gadget(levels: usize, log2_base: u32) -> Gadget {
        Gadget { levels, log2_base }
    }
    const fn small(dimension: usize, bootstrap: Gadget, key_switch: Gadget) -> Small {
        Small {
            dimension,
            log2_noise: -24.0,
            gadget: bootstrap,
            key_switch,
            body_bits: 50,
        }
    }
    Choice {
        id,
        names: [
            "wide",
            "extraction",
            "ring key switch",
            "circuit",
            "refresh",
        ],
        purpose: "tests only: INSECURE",
        message_bits,
        ring_degree,
        glwe_dimension: 2,
        log2_glwe_noise: -52.0,
        security: Security {
            bits: 0,
            source: "none: for tests",
        },
        extract: small(steps, gadget(2, 16), gadget(5, 3)),
        refresh: small(steps, gadget(3, 11), gadget(5, 3)),
        switch: gadget(5, 8),
        circuit: gadget(3, 6),
        switch_body_bits: 50,
        digit_bits: 3,
    }
}

const EIGHT_POLYNOMIALS: Choice = wide(950, 128, 10, 3);
const LARGE_DEGREE: Choice = wide(951, 1024, 16, 3);
const FAST: Choice = wide(952, 256, 9, 16);
static STAGES: [WopbsParams; 3] = [
    EIGHT_POLYNOMIALS.stages(),
    LARGE_DEGREE.stages(),
    FAST.stages(),
];
static WIDE: [ParamSet; 3] = [
    EIGHT_POLYNOMIALS.set(&STAGES[0]),
    LARGE_DEGREE.set(&STAGES[1]),
    FAST.set(&STAGES[2]),
];

#[test]
fn exact_wide_functions_of_large_tables_and_rings_are_those_of_the_processor() {
    wide_functions_agree(&WIDE[0], KeyForm::Seeded, &[10], 64);
    wide_functions_agree(&WIDE[1], KeyForm::Seeded, &[11], 64);
}

#[test]
fn fast_wide_functions_decrypt_to_the_functions_of_their_messages() {
    let Some(driver) = driver() else { return };
    let params = &WIDE[2];
    let gpu = backend(ArithmeticKind::Fft, &options(driver));
    let mut rng = Csprng::from_seed([31; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let [bootstrapping, switching] =
        KeyBytes::generate(&client, KeyForm::Seeded, &mut rng).load(&gpu, params);
    let short = GpuOptions {
        most: Some(3),
        ..options(driver)
    };
    // The hint is that of the device, whose passes the option makes shorter, and not the processor's.
    let shorter = backend(ArithmeticKind::Fft, &short).batch_hint(params);
    assert!(shorter < gpu.batch_hint(params));
    let encoding = Encoding::new(params.message_bits, false).unwrap();
    let functions: [fn(u64) -> u64; 2] = [|m| m * m % 512, |m| m / 3];
    let vectors = functions.map(|function| test_vector(params, params.message_bits, function));
    let vectors = [&vectors[0][..], &vectors[1]];
    let messages = [0, 1, 255, 256, 300, 511];
    let samples =
        messages.map(|message| client.encrypt_sample(message, encoding, &mut rng).unwrap());
    let tasks = [0, 1, 2, 3, 4, 5].map(|index: usize| BootstrapTask {
        test_vectors: &vectors,
        sample: &samples[index],
        input_bits: params.message_bits,
    });
    let mut results = vec![0; 2 * tasks.len() * params.lwe_bytes()];
    let cancel = CancelToken::new();
    gpu.bootstrap_batch(
        params,
        &*bootstrapping,
        &*switching,
        &tasks,
        &mut results,
        Requester::from(&cancel),
    )
    .unwrap();
    let expected = messages.iter().flat_map(|message| {
        functions.map(|function| function(message.cast_unsigned()).cast_signed())
    });
    for (result, expected) in results.chunks(params.lwe_bytes()).zip(expected) {
        assert_eq!(client.decrypt_sample(result, encoding).unwrap(), expected);
    }
}

/// What has no kernels is done by the processor, with its keys or with those of devices.
#[test]
fn the_processor_does_what_devices_do_not() {
    let Some(driver) = driver() else { return };
    let params = &TINY_WOPBS;
    let mut rng = Csprng::from_seed([37; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let keys = KeyBytes::generate(&client, KeyForm::Seeded, &mut rng);
    let cancel = CancelToken::new();
    let requester = || Requester::from(&cancel);
    let gpu = backend(ArithmeticKind::Ntt, &options(driver));
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let work = Work::random(params, 2, 1, &mut rng);
    assert!(gpu.packs(params) && !gpu.packs(&TINY));
    let samples: Vec<(usize, &[u8])> = work.samples.iter().map(Vec::as_slice).enumerate().collect();
    let packed = [&gpu as &dyn Backend, &cpu].map(|backend| {
        let [bootstrapping, _] = keys.load(backend, params);
        let packed = backend.pack(params, &*bootstrapping, &samples, 2, requester());
        packed.unwrap()
    });
    assert!(packed[0] == packed[1]);
    let mut sums = [work.samples[0].clone(), work.samples[0].clone()];
    gpu.hom_add(params, &mut sums[0], &work.samples[1]);
    cpu.hom_add(params, &mut sums[1], &work.samples[1]);
    assert!(sums[0] == sums[1]);
    // Rows of complex points have eight of them or more.
    let fast = backend(ArithmeticKind::Fft, &options(driver));
    let loaded = keys.load(&fast, params);
    assert_eq!(
        fast.batch_hint(params),
        CpuBackend::new(ArithmeticKind::Fft).batch_hint(params)
    );
    let word = params.lwe_bytes();
    assert_eq!(work.run(&fast, &loaded, &cancel).unwrap().len(), 2 * word);
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
