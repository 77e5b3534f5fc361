//! Seeded keys: the expansion against known answers, and the same key in every form.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::crc32c;
use proptest::prelude::*;
use toroid_ring::goldilocks;
use toroid_ring::ntt::NttPlan;
use toroid_ring::simd::SimdLevel;
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Naive, Ntt};
use toroid_tfhe::bits;
use toroid_tfhe::bootstrap::{BootstrappingKey, BootstrappingKeyLoader};
use toroid_tfhe::key_loader::{SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader};
use toroid_tfhe::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32, Words};
use toroid_tfhe::params::{
    GATE, MESSAGE4, MESSAGE7, ModulusKind, PAPER, ParamSet, StageParams, TINY, TINY32,
};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::{KeyForm, MaskSeed, SEED_BYTES};

/// Of one parameter set, with the seed 0, 1, … 31: CRC-32C of the masks of the first and last row of the bootstrapping
/// key, of the first and last sample of the key-switching key, and the bytes of both. Computed by an implementation of
/// ChaCha20 from its specification.
type Answer = (&'static ParamSet, [u32; 2], [u32; 2], u64, u64);

const ANSWERS: [Answer; 6] = [
    (
        &PAPER,
        [0xd64b_0075, 0x261d_61ab],
        [0xb07f_0fac, 0xb6c1_c2d1],
        524_288_032,
        458_784,
    ),
    (
        &MESSAGE7,
        [0xec79_cfcc, 0x3a96_13a0],
        [0x6934_69bb, 0xc57f_907c],
        306_094_112,
        262_176,
    ),
    (
        &MESSAGE4,
        [0xa0e1_937c, 0x5233_7a74],
        [0xe15d_7508, 0x01c0_5c68],
        25_589_792,
        32_800,
    ),
    (
        &GATE,
        [0x27ef_ca1d, 0x5fde_9c85],
        [0xc67d_7a57, 0x20ac_ae8d],
        12_718_112,
        16_416,
    ),
    (
        &TINY,
        [0x27ef_ca1d, 0x62de_d9e5],
        [0xfb77_406b, 0xb74c_febf],
        196_640,
        6_176,
    ),
    (
        &TINY32,
        [0x45d8_39f4, 0xdadf_f1d4],
        [0xfb77_406b, 0xca6a_1542],
        221_216,
        10_272,
    ),
];

fn check_masks<M: Modulus>(params: &ParamSet, rows: [u32; 2], samples: [u32; 2]) {
    let seed = MaskSeed::from_bytes(std::array::from_fn(|i| i as u8));
    let last_row = (params.lwe_dimension * params.ggsw_rows() - 1) as u64;
    let last_sample = (params.key_switch.levels * params.extracted_dimension() - 1) as u64;
    let mut masks = vec![M::Word::default(); params.extracted_dimension()];
    for (row, expected) in [0, last_row].into_iter().zip(rows) {
        seed.expand_row::<M>(row, &mut masks);
        assert_eq!(crc32c(bytemuck::cast_slice(&masks)), expected, "row {row}");
    }
    let mut mask = vec![0; params.lwe_dimension];
    for (sample, expected) in [0, last_sample].into_iter().zip(samples) {
        seed.expand_sample(sample, &mut mask);
        assert_eq!(
            crc32c(bytemuck::cast_slice(&mask)),
            expected,
            "sample {sample}"
        );
    }
}

#[test]
fn masks_and_sizes_are_the_known_answers() {
    assert_eq!(ANSWERS.map(|answer| answer.0.id), [1, 2, 3, 4, 5, 6]);
    // The keys of the other sets are made of several such keys.
    let single = ParamSet::ALL.iter().filter(|set| !set.is_wide());
    assert_eq!(ANSWERS.len(), single.count());
    for (params, rows, samples, bootstrapping, key_switching) in ANSWERS {
        match params.modulus {
            ModulusKind::Torus32 => check_masks::<Torus32>(params, rows, samples),
            ModulusKind::Goldilocks => check_masks::<Goldilocks>(params, rows, samples),
        }
        let (seeded, expanded) = (KeyForm::Seeded, KeyForm::Expanded);
        assert_eq!(seeded.bootstrapping_key_bytes(params), bootstrapping);
        assert_eq!(seeded.key_switching_key_bytes(params), key_switching);
        // The form is told from the size: never the same, and half at most, unless bodies are whole words.
        let words = KeyForm::SeededWords;
        assert_eq!(words.key_switching_key_bytes(params), key_switching);
        let rows = (params.lwe_dimension * params.ggsw_rows()) as u64;
        let body = (params.ring_degree * params.modulus.word_bytes()) as u64;
        assert_eq!(words.bootstrapping_key_bytes(params), 32 + rows * body);
        assert!(bootstrapping <= 32 + rows * body);
        assert!(2 * (bootstrapping - 32) <= expanded.bootstrapping_key_bytes(params));
        assert!(2 * (key_switching - 32) <= expanded.key_switching_key_bytes(params));
    }
}

fn client(params: &ParamSet) -> ClientKey {
    ClientKey::generate(params, &mut Csprng::from_seed([11; 32]))
}

/// Both public keys of one generator as bytes.
fn keys(client: &ClientKey, form: KeyForm) -> (Vec<u8>, Vec<u8>) {
    let mut rng = Csprng::from_seed([12; 32]);
    let (mut bootstrapping, mut key_switching) = (Vec::new(), Vec::new());
    let last = Arc::new(Mutex::new((0, 0)));
    let seen = Arc::clone(&last);
    let progress = Progress::new(move |_, done, total| {
        assert!(done <= total);
        *seen.lock().unwrap() = (done, total);
    });
    client
        .bootstrapping_key(form, &mut rng, &progress, &mut |bytes| {
            bootstrapping.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    client
        .key_switching_key(form, &mut rng, &progress, &mut |bytes| {
            key_switching.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    let bytes = key_switching.len() as u64;
    assert_eq!(*last.lock().unwrap(), (bytes, bytes));
    (bootstrapping, key_switching)
}

fn split_seed(seeded: &[u8]) -> (MaskSeed, &[u8]) {
    let (seed, bodies) = seeded.split_at(SEED_BYTES);
    (MaskSeed::from_bytes(seed.try_into().unwrap()), bodies)
}

/// Seed and bodies of a bootstrapping key: the leading bits of words, the lowest bit first.
fn rows<M: Modulus>(params: &ParamSet, seeded: &[u8]) -> (MaskSeed, Vec<M::Word>) {
    let (seed, bytes) = split_seed(seeded);
    let width = params.body_bits as usize;
    let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
    let coefficient = |index: usize| {
        let bits = (0..width).map(|place| bit(index * width + place) << (64 - width + place));
        M::from_u64_torus(bits.sum())
    };
    let count = 8 * bytes.len() / width;
    (seed, (0..count).map(coefficient).collect())
}

/// Seed and bodies of a key-switching key.
fn samples(seeded: &[u8]) -> (MaskSeed, Vec<u32>) {
    let (seed, bodies) = split_seed(seeded);
    (seed, bytemuck::pod_collect_to_vec(bodies))
}

/// The expanded bytes are what the seeded ones expand to, step by step.
fn expansion_is_the_expanded_key<M: Modulus>(params: &ParamSet) {
    let client = client(params);
    let seeded = keys(&client, KeyForm::Seeded);
    let expanded = keys(&client, KeyForm::Expanded);
    for (form, keys) in [(KeyForm::Seeded, &seeded), (KeyForm::Expanded, &expanded)] {
        assert_eq!(keys.0.len() as u64, form.bootstrapping_key_bytes(params));
        assert_eq!(keys.1.len() as u64, form.key_switching_key_bytes(params));
    }
    assert_ne!(seeded.0[..SEED_BYTES], seeded.1[..SEED_BYTES]);

    let (seed, bodies) = rows::<M>(params, &seeded.0);
    let n = params.ring_degree;
    let plan = NttPlan::new(n).unwrap();
    let scale = goldilocks::inv(n as u64);
    let mut words: Vec<u64> = Vec::new();
    for (row, body) in bodies.chunks_exact(n).enumerate() {
        let mut masks = vec![M::Word::default(); params.extracted_dimension()];
        seed.expand_row::<M>(row as u64, &mut masks);
        for polynomial in masks.chunks_exact(n).chain([body]) {
            let mut lifted: Vec<u64> = polynomial.iter().map(|w| M::to_goldilocks(*w)).collect();
            plan.forward(&mut lifted);
            plan.scale_assign(&mut lifted, scale);
            words.extend(lifted);
        }
    }
    assert!(bytemuck::cast_slice::<u64, u8>(&words) == expanded.0);

    let (seed, bodies) = samples(&seeded.1);
    let mut words: Vec<u32> = Vec::new();
    for (sample, body) in bodies.iter().enumerate() {
        let mut mask = vec![0; params.lwe_dimension];
        seed.expand_sample(sample as u64, &mut mask);
        words.extend(mask);
        words.push(*body);
    }
    assert!(bytemuck::cast_slice::<u32, u8>(&words) == expanded.1);
}

#[test]
fn seeded_keys_expand_to_the_expanded_ones() {
    expansion_is_the_expanded_key::<Goldilocks>(&TINY);
    expansion_is_the_expanded_key::<Torus32>(&TINY32);
}

#[test]
fn keys_do_not_depend_on_the_threads() {
    let client = client(&TINY32);
    let pools = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap()
    });
    let [one, three] = pools.map(|pool| pool.install(|| keys(&client, KeyForm::Seeded)));
    assert!(one == three);
}

/// An unrolled key loads alike from all its forms and without a detour by bytes; what is not all of it is refused.
#[test]
fn unrolled_keys_are_the_same_in_all_forms() {
    let client = client(&TINY);
    let (simd, progress) = (SimdLevel::best(), Progress::none());
    let generator = || Csprng::from_seed([14; 32]);
    let mut sample = vec![0; TINY.lwe_words()];
    let mut test_vector = vec![0; TINY.glwe_words()];
    generator().fill_uniform::<Goldilocks>(&mut sample);
    generator().fill_uniform::<Goldilocks>(&mut test_vector);
    let rotated = |key: &BootstrappingKey<Goldilocks, Ntt>| {
        assert!(key.is_unrolled());
        let mut out = vec![0; TINY.extracted_dimension() + 1];
        key.blind_rotate(&test_vector, &sample, &mut out, &CancelToken::new())
            .unwrap();
        out
    };
    let direct = client.loaded_unrolled_bootstrapping_key(simd, &mut generator(), &progress);
    let expected = rotated(&direct.unwrap());
    for form in KeyForm::ALL {
        let mut bytes = Vec::new();
        client
            .unrolled_bootstrapping_key(form, &mut generator(), &progress, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
        let stage = TINY.unrolled();
        assert_eq!(stage.lwe_dimension, 3 * TINY.lwe_dimension / 2);
        assert_eq!(bytes.len() as u64, form.ggsw_list_bytes(&stage));
        let load = |bytes: &[u8]| match form {
            KeyForm::Expanded => {
                let mut loader = BootstrappingKeyLoader::unrolled(&TINY, simd)?;
                loader.write(bytes)?;
                loader.finish()
            }
            form => {
                let mut loader = SeededBootstrappingKeyLoader::unrolled(&TINY, form, simd)?;
                loader.write(bytes)?;
                loader.finish()
            }
        };
        assert!(rotated(&load(&bytes).unwrap()) == expected, "{form:?}");
        let short = load(&bytes[..bytes.len() - 8]);
        assert!(matches!(short, Err(TfheError::Length { .. })));
    }
}

/// Coefficients of a row that are looked at, in eighths of its degree.
const COEFFICIENTS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 8];

/// Rows and samples decrypt to what they should, with the noise of the set and that of rounding: message of row c·l + level is
/// -bit·g_level·s_c for a mask component c, bit·g_level for the body.
fn rows_and_samples_encrypt_the_key<M: Modulus>(params: &ParamSet) {
    let client = client(params);
    let (bootstrapping, key_switching) = keys(&client, KeyForm::Seeded);
    // Bits of the keys, from trivial samples under them.
    let n = params.ring_degree;
    let bit = |key: &toroid_tfhe::lwe::LweSecretKey, index: usize| {
        let mut sample = vec![M::Word::default(); key.dimension() + 1];
        sample[index] = M::from_signed(-1);
        M::centered(key.phase::<M>(&sample))
    };
    let lwe: Vec<i64> = (0..params.lwe_dimension)
        .map(|i| bit(client.lwe(), i))
        .collect();
    let extracted = client.glwe().extracted_key();
    let glwe: Vec<i64> = (0..params.extracted_dimension())
        .map(|i| bit(&extracted, i))
        .collect();
    assert!(lwe.iter().chain(&glwe).all(|bit| (0..2).contains(bit)));

    let check = |squares: f64, count: usize, log2_units: f64, step: f64, what: &str| {
        let sigma = log2_units.exp2();
        let ratio = squares / count as f64 / (sigma * sigma + step * step / 12.0);
        let bound = 5.0 * (2.0 / count as f64).sqrt();
        assert!((ratio - 1.0).abs() < bound, "{what}: {ratio}");
    };

    let (seed, bodies) = rows::<M>(params, &bootstrapping);
    let mut squares = 0.0;
    for (row, body) in bodies.chunks_exact(n).enumerate() {
        let (index, row_of_bit) = (row / params.ggsw_rows(), row % params.ggsw_rows());
        let (component, gadget, level) = params.ggsw_row(row_of_bit);
        let message = M::select(M::gadget_value(gadget, level), lwe[index].cast_unsigned());
        let mut masks = vec![M::Word::default(); params.extracted_dimension()];
        seed.expand_row::<M>(row as u64, &mut masks);
        // A few coefficients by the definition of the negacyclic product; all would be quadratic.
        for at in COEFFICIENTS.map(|eighths| (eighths * n / 8).min(n - 1)) {
            let mut phase = body[at];
            for (mask, secret) in masks.chunks_exact(n).zip(glwe.chunks_exact(n)) {
                for (j, bit) in secret.iter().enumerate() {
                    let term = M::select(mask[(at + n - j) % n], bit.cast_unsigned());
                    phase = if j > at {
                        M::add(phase, term)
                    } else {
                        M::sub(phase, term)
                    };
                }
            }
            let expected = if component == params.glwe_dimension {
                M::select(message, u64::from(at == 0))
            } else {
                M::neg(M::select(message, glwe[component * n + at].cast_unsigned()))
            };
            squares += (M::centered(M::sub(phase, expected)) as f64).powi(2);
        }
    }
    check(
        squares,
        COEFFICIENTS.len() * bodies.len() / n,
        params.log2_glwe_noise + M::KIND.log2(),
        // Bodies are rounded.
        (M::KIND.log2() - f64::from(params.body_bits)).exp2(),
        "rows",
    );

    let (seed, bodies) = samples(&key_switching);
    let mut squares = 0.0;
    for (sample, body) in bodies.iter().enumerate() {
        let mut words = vec![*body; params.lwe_words()];
        seed.expand_sample(sample as u64, &mut words[..params.lwe_dimension]);
        let (index, level) = (
            sample / params.key_switch.levels,
            sample % params.key_switch.levels,
        );
        let expected = Torus32::select(
            Torus32::gadget_value(params.key_switch, level),
            glwe[index].cast_unsigned(),
        );
        let error = Torus32::sub(client.lwe().phase::<Torus32>(&words), expected);
        squares += (Torus32::centered(error) as f64).powi(2);
    }
    check(
        squares,
        bodies.len(),
        params.log2_lwe_noise + 32.0,
        1.0,
        "samples",
    );
}

#[test]
fn rows_and_samples_hold_their_messages_with_the_noise_of_the_set() {
    rows_and_samples_encrypt_the_key::<Goldilocks>(&TINY);
    rows_and_samples_encrypt_the_key::<Torus32>(&TINY32);
}

/// Something that takes bytes, in pieces of this length.
fn load<L, K>(
    mut loader: L,
    bytes: &[u8],
    piece: usize,
    write: impl Fn(&mut L, &[u8]) -> Result<(), TfheError>,
    finish: impl Fn(L) -> Result<K, TfheError>,
) -> K {
    for piece in bytes.chunks(piece) {
        write(&mut loader, piece).unwrap();
    }
    finish(loader).unwrap()
}

/// One bootstrapping key by every way into memory; what it rotates is the same bit for bit.
fn bootstrapping_keys_are_the_same<M: Modulus, A: Arithmetic<M>>(params: &ParamSet) {
    let client = client(params);
    let simd = SimdLevel::best();
    let seeded = keys(&client, KeyForm::Seeded).0;
    let expanded = keys(&client, KeyForm::Expanded).0;
    let direct = client
        .loaded_bootstrapping_key::<M, A>(simd, &mut Csprng::from_seed([12; 32]), &Progress::none())
        .unwrap();
    let mut rng = Csprng::from_seed([13; 32]);
    let mut sample = vec![M::Word::default(); params.lwe_words()];
    let mut test_vector = vec![M::Word::default(); params.glwe_words()];
    rng.fill_uniform::<M>(&mut sample);
    rng.fill_uniform::<M>(&mut test_vector);
    let rotate = |key: &BootstrappingKey<M, A>| {
        let mut out = vec![M::Word::default(); params.extracted_dimension() + 1];
        key.blind_rotate(&test_vector, &sample, &mut out, &CancelToken::new())
            .unwrap();
        out
    };
    let expected = rotate(&direct);
    let words = keys(&client, KeyForm::SeededWords).0;
    for (of_words, bytes, piece) in [
        (false, &seeded, 7),
        (false, &seeded, 4099),
        (false, &seeded, 1 << 20),
        (true, &words, 4099),
    ] {
        let loader = match of_words {
            true => SeededBootstrappingKeyLoader::<M, A>::of_words(params, simd),
            false => SeededBootstrappingKeyLoader::<M, A>::new(params, simd),
        };
        let key = load(
            loader.unwrap(),
            bytes,
            piece,
            SeededBootstrappingKeyLoader::write,
            SeededBootstrappingKeyLoader::finish,
        );
        assert!(rotate(&key) == expected, "{}: {piece}", params.name);
    }
    let key = load(
        BootstrappingKeyLoader::<M, A>::new(params, simd).unwrap(),
        &expanded,
        1 << 20,
        BootstrappingKeyLoader::write,
        BootstrappingKeyLoader::finish,
    );
    assert!(rotate(&key) == expected, "{}", params.name);
}

#[test]
fn every_way_to_load_a_bootstrapping_key_gives_the_same() {
    bootstrapping_keys_are_the_same::<Goldilocks, Ntt>(&TINY);
    bootstrapping_keys_are_the_same::<Goldilocks, Fft>(&TINY);
    bootstrapping_keys_are_the_same::<Goldilocks, Naive>(&TINY);
    bootstrapping_keys_are_the_same::<Torus32, Ntt>(&TINY32);
    bootstrapping_keys_are_the_same::<Torus32, Fft>(&TINY32);
    bootstrapping_keys_are_the_same::<Torus32, Naive>(&TINY32);
}

fn key_switching_keys_are_the_same<M: Modulus>(params: &ParamSet) {
    let client = client(params);
    let simd = SimdLevel::best();
    let seeded = keys(&client, KeyForm::Seeded).1;
    let expanded = keys(&client, KeyForm::Expanded).1;
    let mut rng = Csprng::from_seed([13; 32]);
    let mut extracted = vec![M::Word::default(); params.extracted_dimension() + 1];
    rng.fill_uniform::<M>(&mut extracted);
    let switch = |key: &KeySwitchingKey<M>| {
        let mut out = vec![M::Word::default(); params.lwe_words()];
        key.switch(&extracted, &mut out, 2).unwrap();
        out
    };
    let key = load(
        KeySwitchingKeyLoader::<M>::new(params, simd).unwrap(),
        &expanded,
        1 << 20,
        KeySwitchingKeyLoader::write,
        KeySwitchingKeyLoader::finish,
    );
    let expected = switch(&key);
    for piece in [1, 4099, 1 << 20] {
        let key = load(
            SeededKeySwitchingKeyLoader::<M>::new(params, simd).unwrap(),
            &seeded,
            piece,
            SeededKeySwitchingKeyLoader::write,
            SeededKeySwitchingKeyLoader::finish,
        );
        assert!(switch(&key) == expected, "{}: {piece}", params.name);
    }
    let mut rng = Csprng::from_seed([12; 32]);
    let progress = Progress::none();
    // The bootstrapping key's turn at the generator comes first.
    client
        .bootstrapping_key(KeyForm::Seeded, &mut rng, &progress, &mut |_| Ok(()))
        .unwrap();
    let direct = client
        .loaded_key_switching_key::<M>(simd, &mut rng, &progress)
        .unwrap();
    assert!(switch(&direct) == expected, "{}", params.name);
}

#[test]
fn every_way_to_load_a_key_switching_key_gives_the_same() {
    key_switching_keys_are_the_same::<Goldilocks>(&TINY);
    key_switching_keys_are_the_same::<Torus32>(&TINY32);
}

#[test]
fn generation_can_be_cancelled_and_its_sink_can_fail() {
    let client = client(&TINY);
    let mut rng = Csprng::from_seed([14; 32]);
    for form in KeyForm::ALL {
        // Cancelled by its second report.
        let cancel = CancelToken::new();
        let (calls, token) = (AtomicUsize::new(0), cancel.clone());
        let progress = Progress::new(move |_, _, _| {
            if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                token.cancel();
            }
        });
        let progress = progress.with_cancel(cancel);
        let cancelled = client.bootstrapping_key(form, &mut rng, &progress, &mut |_| Ok(()));
        assert!(matches!(cancelled, Err(TfheError::Cancelled)));
        let failed = client.key_switching_key(form, &mut rng, &Progress::none(), &mut |_| {
            Err(TfheError::Format("no room".to_owned()))
        });
        assert!(matches!(failed, Err(TfheError::Format(_))));
    }
}

/// The first piece of `bytes`, cut at `cuts`, that the loader refuses, by its ends, and why.
fn first_refused(
    loader: &mut SeededBootstrappingKeyLoader<Goldilocks, Ntt>,
    bytes: &[u8],
    cuts: Vec<usize>,
) -> (usize, usize, TfheError) {
    let mut cuts: Vec<usize> = cuts.into_iter().chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    let refused = cuts.windows(2).find_map(|cut| {
        let error = loader.write(&bytes[cut[0]..cut[1]]).err()?;
        Some((cut[0], cut[1], error))
    });
    refused.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A word that is not below p is refused wherever it stands and however the bytes are cut; the bytes before it count,
    /// those of the refused piece do not.
    #[test]
    fn words_beyond_the_modulus_are_refused_in_any_piece(
        word in 0..32_768usize,
        cuts in prop::collection::vec(0..262_176usize, 0..6),
    ) {
        let total = KeyForm::SeededWords.bootstrapping_key_bytes(&TINY) as usize;
        let mut bytes = vec![0xFE; total];
        let bad = SEED_BYTES + 8 * word;
        bytes[bad..bad + 8].fill(0xFF);
        for body in bytes[SEED_BYTES..].chunks_exact_mut(8).enumerate().filter(|(i, _)| *i != word) {
            body.1[7] = 0x7F;
        }
        let mut loader = SeededBootstrappingKeyLoader::<Goldilocks, Ntt>::of_words(&TINY, SimdLevel::best()).unwrap();
        let (start, end, error) = first_refused(&mut loader, &bytes, cuts);
        prop_assert!(start < bad + 8 && bad + 8 <= end);
        let found = matches!(error, TfheError::NotCanonical { index, .. } if index == word as u64);
        prop_assert!(found, "{error}");
        // A word cannot be mended once half of it has been taken; a whole one can.
        if start <= bad {
            bytes[bad..bad + 8].fill(1);
            loader.write(&bytes[start..]).unwrap();
            prop_assert!(loader.finish().is_ok());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The same of packed coefficients, which end within bytes: 45 bits wide, the largest below p end in zeros.
    #[test]
    fn coefficients_beyond_the_modulus_are_refused_in_any_piece(
        at in 0..4096usize,
        cuts in prop::collection::vec(0..23_072usize, 0..6),
    ) {
        let stage = StageParams {
            body_bits: 45,
            lwe_dimension: 4,
            ..TINY.stage
        };
        let total = KeyForm::Seeded.ggsw_list_bytes(&stage) as usize;
        prop_assert_eq!(total, SEED_BYTES + 4096 * 45 / 8);
        // Above 2^32 - 1 in the upper 32 bits, anything but zeros below.
        let beyond = (1u64 << 45) - 1;
        let values = (0..4096).map(|index| if index == at { beyond } else { 1 << 44 });
        let mut bytes = vec![0xFE; SEED_BYTES];
        bits::write(values, 45, &mut bytes);
        let mut loader = SeededBootstrappingKeyLoader::<Goldilocks, Ntt>::new(&stage, SimdLevel::best()).unwrap();
        let (start, end, error) = first_refused(&mut loader, &bytes, cuts);
        let last_byte = SEED_BYTES + (45 * at + 44) / 8;
        prop_assert!(start <= last_byte && last_byte < end);
        let found = matches!(error, TfheError::NotCanonical { index, .. } if index == at as u64);
        prop_assert!(found, "{error}");
    }
}
