//! Chunks of columns: forms, rows, sums, packing, noise.

use crate::common::crc32c;
use proptest::prelude::*;
use toroid_ring::simd::SimdLevel;
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::any_key::{self, AnyBootstrappingKey};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::column::{
    Chunk, ColumnForm, chunk_bytes, expand, packed_variance, packed_width, rows_per_chunk,
    seeded_width,
};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Words};
use toroid_tfhe::noise::StatedNoise;
use toroid_tfhe::params::{
    GATE, MESSAGE4, MESSAGE8, MESSAGE14, MESSAGE16, PAPER, ParamSet, TINY, TINY_WOPBS, TINY32,
};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::{MaskSeed, SEED_BYTES};
use toroid_tfhe::{Ciphertext, TfheError, generate_with, with_modulus};

const SETS: [&ParamSet; 3] = [&TINY_WOPBS, &TINY, &TINY32];

fn rng(seed: u8) -> Csprng {
    Csprng::from_seed([seed; 32])
}

fn client(params: &ParamSet, seed: u8) -> ClientKey {
    ClientKey::generate(params, &mut rng(seed))
}

fn encoding(params: &ParamSet, signed: bool) -> Encoding {
    Encoding::new(params.message_bits, signed).unwrap()
}

/// Random messages, the smallest and the largest first.
fn messages(encoding: Encoding, count: usize, rng: &mut Csprng) -> Vec<i64> {
    let range = encoding.messages();
    let mut random = || range.start + (rng.next_u64() >> (64 - encoding.bits())).cast_signed();
    let mut messages: Vec<i64> = (0..count).map(|_| random()).collect();
    for (message, edge) in messages.iter_mut().zip([range.end - 1, range.start]) {
        *message = edge;
    }
    messages
}

/// The samples of some rows, by [`expand`].
fn samples(
    params: &ParamSet,
    form: ColumnForm,
    bytes: &[u8],
    rows_in_chunk: usize,
    rows: std::ops::Range<usize>,
) -> Vec<Vec<u8>> {
    let mut out = vec![0; rows.len() * params.lwe_bytes()];
    expand(params, form, bytes, rows_in_chunk, rows, &mut out).unwrap();
    let samples = out.chunks_exact(params.lwe_bytes());
    samples.map(<[u8]>::to_vec).collect()
}

/// The sum of samples, word by word.
fn sum(params: &ParamSet, samples: &[Vec<u8>]) -> Vec<u8> {
    with_modulus!(params.modulus, M => {
        let mut sum = lwe::trivial::<M>(params, Default::default());
        for sample in samples {
            lwe::add_assign::<M>(&mut sum, &bytemuck::pod_collect_to_vec(sample));
        }
        bytemuck::cast_slice(&sum).to_vec()
    })
}

fn bootstrapping_key(client: &ClientKey, arithmetic: ArithmeticKind) -> AnyBootstrappingKey {
    let (simd, quiet) = (SimdLevel::best(), Progress::none());
    let keys = any_key::generate(client, arithmetic, simd, &mut rng(200), &quiet);
    keys.unwrap().0
}

fn pack(key: &AnyBootstrappingKey, placed: &[(usize, &[u8])], rows: usize) -> Vec<u8> {
    key.pack_chunk(placed, rows, Run::with_threads(1)).unwrap()
}

fn placed(samples: &[Vec<u8>]) -> Vec<(usize, &[u8])> {
    samples.iter().map(Vec::as_slice).enumerate().collect()
}

#[test]
fn sizes_are_the_known_answers() {
    let (seeded, packed, expanded) = (ColumnForm::Seeded, ColumnForm::Packed, ColumnForm::Expanded);
    for (params, form, rows, expected) in [
        (&MESSAGE16, seeded, 1024, 7_072),
        (&MESSAGE16, seeded, 1, 39),
        (&MESSAGE16, packed, 1024, 11_520),
        (&MESSAGE16, packed, 1, 7_684),
        (&MESSAGE16, expanded, 1024, 1024 * 16_392),
        (&MESSAGE14, packed, 1024, 10_368),
        (&MESSAGE8, packed, 1024, 8_832),
        (&MESSAGE4, seeded, 1024, 3_744),
        (&GATE, seeded, 1024, 2_592),
        (&PAPER, seeded, 3, 41),
        (&PAPER, expanded, 3, 9_612),
    ] {
        assert_eq!(rows_per_chunk(params), 1024);
        assert_eq!(
            chunk_bytes(params, form, rows).unwrap(),
            expected,
            "{} {form} {rows}",
            params.name
        );
    }
    assert_eq!(rows_per_chunk(&TINY_WOPBS), 128);
    for form in ColumnForm::ALL {
        for rows in [0, 129, usize::MAX] {
            let refused = chunk_bytes(&TINY_WOPBS, form, rows);
            assert!(matches!(
                refused,
                Err(TfheError::ChunkRows { most: 128, .. })
            ));
        }
    }
    let refused = chunk_bytes(&TINY, packed, 1).unwrap_err();
    assert_eq!(refused.to_string(), "columns of tiny have no packed form");
}

#[test]
fn masks_are_the_known_answers() {
    // Computed by an implementation of ChaCha20 from its specification.
    let seed = MaskSeed::from_bytes(std::array::from_fn(|i| i as u8));
    for (params, number, expected) in [
        (&MESSAGE16, 0, 0x52f7_9444),
        (&TINY_WOPBS, 0, 0x9cf2_3ed3),
        (&MESSAGE4, 0, 0xae6a_c3f1),
        (&MESSAGE4, 1023, 0xc632_1603),
        (&GATE, 0, 0x3073_acf4),
        (&GATE, 1023, 0xad47_5cc2),
    ] {
        with_modulus!(params.modulus, M => {
            let mut masks = vec![Default::default(); params.lwe_dimension];
            seed.expand_chunk::<M>(number, &mut masks);
            let found = crc32c(bytemuck::cast_slice(&masks));
            assert_eq!(found, expected, "{}, masks {number}", params.name);
        });
    }
}

/// The words of a seeded chunk, read by the format's definition alone.
#[test]
fn a_seeded_chunk_is_a_seed_and_the_upper_bits_of_the_bodies() {
    for params in SETS {
        let (client, mut rng) = (client(params, 1), rng(2));
        let encoding = encoding(params, true);
        let messages = messages(encoding, 21, &mut rng);
        let bytes = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
        let width = seeded_width(params) as usize;
        let bit = |at: usize| u64::from(bytes[SEED_BYTES + at / 8] >> (at % 8) & 1);
        let rows = samples(params, ColumnForm::Seeded, &bytes, 21, 0..21);
        let seed = MaskSeed::from_bytes(bytes[..SEED_BYTES].try_into().unwrap());
        for (row, sample) in rows.iter().enumerate() {
            let value = (0..width).fold(0, |value, i| value | bit(row * width + i) << i);
            with_modulus!(params.modulus, M => {
                let words: Vec<<M as Words>::Word> =
                    bytemuck::pod_collect_to_vec(sample);
                let body = words[params.lwe_dimension];
                assert_eq!(M::decode(body, width as u32), value);
                let mut masks = words[..params.lwe_dimension].to_vec();
                let number = if params.is_wide() { 0 } else { row as u64 };
                seed.expand_chunk::<M>(number, &mut masks);
                // Coefficient 0 of the product takes X^0 as it is.
                assert_eq!(masks[0], words[if params.is_wide() { row } else { 0 }]);
            });
        }
    }
}

#[test]
fn chunks_round_trip() {
    for (params, seed) in SETS.into_iter().zip(10..) {
        let (client, mut rng) = (client(params, seed), rng(seed + 50));
        let full = rows_per_chunk(params);
        for count in [1, 2, full - 1, full] {
            for signed in [false, true] {
                let encoding = encoding(params, signed);
                let messages = messages(encoding, count, &mut rng);
                let bytes = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
                let form = ColumnForm::Seeded;
                assert_eq!(bytes.len(), chunk_bytes(params, form, count).unwrap());

                let chunk = Chunk::new(params, form, &bytes, count).unwrap();
                assert_eq!((chunk.rows(), chunk.params()), (count, params));
                assert_eq!(client.decrypt_chunk(&chunk, encoding).unwrap(), messages);

                let rows = samples(params, form, &bytes, count, 0..count);
                let decrypt = |sample: &Vec<u8>| client.decrypt_sample(sample, encoding).unwrap();
                assert_eq!(rows.iter().map(decrypt).collect::<Vec<_>>(), messages);

                let (some, form) = (count / 3..count - count / 4, ColumnForm::Expanded);
                let expanded = rows.concat();
                let of_some = samples(params, form, &expanded, count, some.clone());
                assert_eq!(of_some, rows[some]);
                let chunk = Chunk::new(params, form, &expanded, count).unwrap();
                assert_eq!(client.decrypt_chunk(&chunk, encoding).unwrap(), messages);
            }
        }
    }
}

#[test]
fn messages_that_do_not_fit_are_refused() {
    let (client, mut rng) = (client(&TINY_WOPBS, 3), rng(4));
    let encoding = Encoding::new(4, false).unwrap();
    let refused = client.encrypt_chunk(&[3, 16], encoding, &mut rng);
    let error = refused.unwrap_err();
    assert!(matches!(error, TfheError::MessageRange { .. }));
    // Whoever reads a log learns the range, not the number.
    assert_eq!(error.to_string(), "a message is outside 0..=15");
    for count in [0, 129] {
        let refused = client.encrypt_chunk(&vec![0; count], encoding, &mut rng);
        assert!(matches!(refused, Err(TfheError::ChunkRows { .. })));
    }
}

#[test]
fn every_chunk_has_a_seed_of_its_own() {
    let (client, mut rng) = (client(&TINY_WOPBS, 5), rng(6));
    let encoding = encoding(&TINY_WOPBS, true);
    let [a, b] = [(); 2].map(|()| client.encrypt_chunk(&[7; 9], encoding, &mut rng).unwrap());
    assert_ne!(a[..SEED_BYTES], b[..SEED_BYTES]);
    assert_ne!(a[SEED_BYTES..], b[SEED_BYTES..]);
}

#[test]
fn sums_of_rows_are_those_of_their_samples() {
    for (params, seed) in SETS.into_iter().zip(20..) {
        let (client, mut rng) = (client(params, seed), rng(seed + 50));
        let encoding = encoding(params, true);
        let count = 100;
        let messages = messages(encoding, count, &mut rng);
        let form = ColumnForm::Seeded;
        let bytes = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
        let rows = samples(params, form, &bytes, count, 0..count);
        let chunks = [
            Chunk::new(params, form, &bytes, count).unwrap(),
            Chunk::new(params, ColumnForm::Expanded, &rows.concat(), count).unwrap(),
        ];
        for range in [0..0, 0..1, 99..100, 0..100, 31..77, 1..99] {
            let expected = sum(params, &rows[range.clone()]);
            for chunk in &chunks {
                assert_eq!(chunk.sum(range.clone()).unwrap(), expected, "{range:?}");
            }
        }
    }
    // All rows of a chunk that has as many as the ring has coefficients.
    let (client, mut rng) = (client(&TINY_WOPBS, 23), rng(73));
    let encoding = encoding(&TINY_WOPBS, false);
    let bytes = client.encrypt_chunk(&[2; 128], encoding, &mut rng).unwrap();
    let chunk = Chunk::new(&TINY_WOPBS, ColumnForm::Seeded, &bytes, 128).unwrap();
    let sum = chunk.sum(0..128).unwrap();
    assert_eq!(client.decrypt_sample(&sum, encoding).unwrap(), 256);
}

#[test]
fn arithmetic_of_chunks_is_that_of_their_rows() {
    for (params, seed) in SETS.into_iter().zip(30..) {
        let (client, mut rng) = (client(params, seed), rng(seed + 50));
        let encoding = encoding(params, true);
        let [a, b] = [0, 1].map(|i| (0..5).map(|x| (x + i) % 3 - 1).collect::<Vec<i64>>());
        let [seeded_a, seeded_b] =
            [&a, &b].map(|messages| client.encrypt_chunk(messages, encoding, &mut rng).unwrap());
        let seeded = ColumnForm::Seeded;
        let expanded = samples(params, seeded, &seeded_b, 5, 0..5).concat();
        let a_of = || Chunk::new(params, seeded, &seeded_a, 5).unwrap();
        let decrypted = |chunk: &Chunk| client.decrypt_chunk(chunk, encoding).unwrap();
        let expected = |f: fn(i64, i64) -> i64| -> Vec<i64> {
            a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect()
        };
        for (form, bytes) in [(seeded, &seeded_b), (ColumnForm::Expanded, &expanded)] {
            let b = Chunk::new(params, form, bytes, 5).unwrap();
            let mut sum = a_of();
            sum.add_assign(&b).unwrap();
            assert_eq!(decrypted(&sum), expected(|a, b| a + b));
            sum.mul_assign(-2);
            assert_eq!(decrypted(&sum), expected(|a, b| -2 * (a + b)));
            let mut difference = a_of();
            difference.sub_assign(&b).unwrap();
            assert_eq!(decrypted(&difference), expected(|a, b| a - b));
            // The same words, whichever the layout.
            let mut other = b.clone();
            other.sub_assign(&a_of()).unwrap();
            other.mul_assign(-1);
            assert_eq!(other.sum(1..4).unwrap(), difference.sum(1..4).unwrap());
        }
        let short = samples(params, seeded, &seeded_a, 5, 0..1).concat();
        let mut short = Chunk::new(params, ColumnForm::Expanded, &short, 1).unwrap();
        let refused = short.add_assign(&a_of());
        assert!(matches!(refused, Err(TfheError::Rows { .. })));
    }
    let [wide, other] = [&TINY_WOPBS, &TINY].map(|params| {
        let (client, mut rng) = (client(params, 33), rng(34));
        let bytes = client.encrypt_chunk(&[0], encoding(params, true), &mut rng);
        Chunk::new(params, ColumnForm::Seeded, &bytes.unwrap(), 1).unwrap()
    });
    let refused = wide.clone().add_assign(&other);
    assert!(matches!(refused, Err(TfheError::ParamsMismatch { .. })));
    let stranger = client(&TINY, 35).decrypt_chunk(&wide, encoding(&TINY, true));
    assert!(matches!(stranger, Err(TfheError::ParamsMismatch { .. })));
}

#[test]
fn packed_rows_stand_where_they_were_put() {
    let params = &TINY_WOPBS;
    for (arithmetic, seed) in [(ArithmeticKind::Ntt, 40), (ArithmeticKind::Fft, 41)] {
        let (client, mut rng) = (client(params, seed), rng(seed + 50));
        let key = bootstrapping_key(&client, arithmetic);
        for (count, signed) in [(128, true), (127, false), (5, true), (1, false)] {
            let encoding = encoding(params, signed);
            let messages = messages(encoding, count, &mut rng);
            let seeded = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
            let rows = samples(params, ColumnForm::Seeded, &seeded, count, 0..count);
            let form = ColumnForm::Packed;
            let packed = pack(&key, &placed(&rows), count);
            assert_eq!(packed.len(), chunk_bytes(params, form, count).unwrap());
            let chunk = Chunk::new(params, form, &packed, count).unwrap();
            assert_eq!(client.decrypt_chunk(&chunk, encoding).unwrap(), messages);
            // A chunk that was read is written as the same bytes.
            assert_eq!(chunk.packed().unwrap(), packed);
            let rows = samples(params, form, &packed, count, 0..count);
            for (sample, message) in rows.iter().zip(&messages) {
                assert_eq!(client.decrypt_sample(sample, encoding).unwrap(), *message);
            }
            assert_eq!(chunk.sum(0..count).unwrap(), sum(params, &rows));
        }
    }
}

#[test]
fn rows_are_appended_to_a_packed_chunk_by_a_sum() {
    let params = &TINY_WOPBS;
    let (client, mut rng) = (client(params, 42), rng(92));
    let key = bootstrapping_key(&client, ArithmeticKind::Fft);
    let encoding = encoding(params, true);
    let messages = messages(encoding, 9, &mut rng);
    let seeded = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
    let samples = samples(params, ColumnForm::Seeded, &seeded, 9, 0..9);
    let form = ColumnForm::Packed;
    // Room for rows to come.
    let [first, later] = [0..6, 6..9].map(|rows| {
        let packed = pack(&key, &placed(&samples)[rows], 20);
        Chunk::new(params, form, &packed, 20).unwrap()
    });
    let mut merged = first.clone();
    merged.add_assign(&later).unwrap();
    let bytes = merged.packed().unwrap();
    let read = Chunk::new(params, form, &bytes, 20).unwrap();
    let mut expected = messages;
    expected.resize(20, 0);
    assert_eq!(client.decrypt_chunk(&read, encoding).unwrap(), expected);
    // Nothing is lost: the difference is the first one again.
    let mut rest = read;
    rest.sub_assign(&later).unwrap();
    assert_eq!(rest.packed(), first.packed());
}

#[test]
fn wrong_samples_are_not_packed() {
    let params = &TINY_WOPBS;
    let (client, mut rng) = (client(params, 43), rng(93));
    let key = bootstrapping_key(&client, ArithmeticKind::Fft);
    let encoding = encoding(params, true);
    let sample = client.encrypt_sample(1, encoding, &mut rng).unwrap();
    let mut beyond = sample.clone();
    beyond[8..16].fill(0xff);
    let run = Run::with_threads(1);
    let refused = |placed: &[(usize, &[u8])], rows| key.pack_chunk(placed, rows, run).unwrap_err();
    assert!(matches!(
        refused(&[(0, &sample[8..])], 1),
        TfheError::Length { .. }
    ));
    assert!(matches!(
        refused(&[(0, &beyond)], 1),
        TfheError::NotCanonical { index: 1, .. }
    ));
    assert!(matches!(
        refused(&[(3, &sample)], 3),
        TfheError::Rows { of: 3, .. }
    ));
    assert!(matches!(
        refused(&[(usize::MAX, &sample)], 3),
        TfheError::Rows { .. }
    ));
    let twice = [(2, &sample[..]), (2, &sample)];
    assert!(matches!(
        refused(&twice, 3),
        TfheError::Coefficient { index: 2, .. }
    ));
    assert!(matches!(refused(&[], 0), TfheError::ChunkRows { .. }));
    let cancel = CancelToken::new();
    cancel.cancel();
    let stop = Run {
        threads: 1,
        cancel: &cancel,
    };
    let refused = key.pack_chunk(&[(0, &sample)], 1, stop);
    assert!(matches!(refused, Err(TfheError::Cancelled)));
    let narrow = bootstrapping_key(&self::client(&TINY, 44), ArithmeticKind::Fft);
    let refused = narrow.pack_chunk(&[], 1, run);
    assert!(matches!(
        refused,
        Err(TfheError::NoForm { form: "packed", .. })
    ));
}

#[test]
fn rows_that_share_no_masks_have_no_packed_form() {
    for params in [&TINY, &TINY_WOPBS] {
        let (client, mut rng) = (client(params, 45), rng(95));
        let bytes = client
            .encrypt_chunk(&[1, 2], encoding(params, true), &mut rng)
            .unwrap();
        let seeded = Chunk::new(params, ColumnForm::Seeded, &bytes, 2).unwrap();
        assert_eq!(seeded.packed().is_some(), params.is_wide());
        let expanded = samples(params, ColumnForm::Seeded, &bytes, 2, 0..2).concat();
        let expanded = Chunk::new(params, ColumnForm::Expanded, &expanded, 2).unwrap();
        assert_eq!(expanded.packed(), None);
    }
}

#[test]
fn seeded_rows_are_bootstrapped() {
    for (params, seed) in [(&TINY_WOPBS, 46), (&TINY, 47), (&TINY32, 48)] {
        let mut rng = rng(seed);
        let quiet = Progress::none();
        let (client, server) =
            generate_with(params, ArithmeticKind::Fft, &mut rng, &quiet).unwrap();
        let encoding = encoding(params, true);
        let messages = messages(encoding, 6, &mut rng);
        let bytes = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
        for (sample, message) in samples(params, ColumnForm::Seeded, &bytes, 6, 0..6)
            .iter()
            .zip(messages)
        {
            let fresh = StatedNoise::fresh(params);
            let x = Ciphertext::from_sample(params, Some(encoding), sample, fresh).unwrap();
            let result = server.apply(|x| -1 - x, &x).unwrap();
            assert_eq!(client.decrypt(&result).unwrap(), -1 - message);
        }
    }
}

/// Mean square of some errors as a share of the formula, within 5 standard errors sqrt(2/S) of a variance over S values.
fn check(what: &str, errors: &[f64], independent: f64, formula: f64) {
    let mean_square = errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64;
    let (ratio, tolerance) = (mean_square / formula, 5.0 * (2.0 / independent).sqrt());
    assert!(
        (ratio - 1.0).abs() < tolerance,
        "{what}: measured/formula {ratio}, allowed 1 ± {tolerance}"
    );
}

/// How far the phase of a sample is from a word, as a fraction of the torus.
fn error<M: Modulus>(client: &ClientKey, sample: &[u8], expected: M::Word) -> f64 {
    let sample: Vec<M::Word> = bytemuck::pod_collect_to_vec(sample);
    let phase = client.lwe().phase::<M>(&sample);
    M::centered(M::sub(phase, expected)) as f64 / M::KIND.log2().exp2()
}

#[test]
fn seeded_rows_have_the_noise_of_fresh_samples() {
    for params in SETS {
        let encoding = encoding(params, false);
        let mut errors = Vec::new();
        for seed in 0..8 {
            let (client, mut rng) = (client(params, seed), rng(seed + 100));
            let messages = messages(encoding, 128, &mut rng);
            let bytes = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
            let rows = samples(params, ColumnForm::Seeded, &bytes, 128, 0..128);
            for (sample, message) in rows.iter().zip(messages) {
                errors.push(with_modulus!(params.modulus, M => {
                    error::<M>(&client, sample, encoding.encode::<M>(message).unwrap())
                }));
            }
        }
        check(
            params.name,
            &errors,
            errors.len() as f64,
            params.lwe_variance(),
        );
    }
}

/// What the packing of a full chunk adds to each of its rows.
fn packing_errors(client: &ClientKey, key: &AnyBootstrappingKey, rng: &mut Csprng) -> Vec<f64> {
    let params = client.params();
    let count = rows_per_chunk(params);
    // Uniform words, and with that uniform messages.
    let samples: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let mut words = vec![0; params.lwe_words()];
            rng.fill_uniform::<Goldilocks>(&mut words);
            bytemuck::cast_slice(&words).to_vec()
        })
        .collect();
    let packed = pack(key, &placed(&samples), count);
    let rows = self::samples(params, ColumnForm::Packed, &packed, count, 0..count);
    let error = |(packed, sample): (&Vec<u8>, &Vec<u8>)| {
        let sample: Vec<u64> = bytemuck::pod_collect_to_vec(sample);
        let expected = client.lwe().phase::<Goldilocks>(&sample);
        error::<Goldilocks>(client, packed, expected)
    };
    rows.iter().zip(&samples).map(error).collect()
}

fn packed_rows_have_the_noise_of_their_formula(arithmetic: ArithmeticKind) {
    let params = &TINY_WOPBS;
    let mut errors = Vec::new();
    for seed in 0..12 {
        let (client, mut rng) = (client(params, seed), rng(seed + 100));
        let key = bootstrapping_key(&client, arithmetic);
        for _ in 0..8 {
            errors.extend(packing_errors(&client, &key, &mut rng));
        }
    }
    let formula = packed_variance(params, arithmetic, 0.0).unwrap();
    // Rows that share masks: as many independent errors as half of them, for the spectrum of a product of random polynomials
    // varies as much as its mean is.
    let independent = errors.len() as f64 / 2.0;
    check(&format!("{arithmetic:?}"), &errors, independent, formula);
}

#[test]
fn packed_rows_have_the_noise_of_their_formula_on_the_fast_path() {
    packed_rows_have_the_noise_of_their_formula(ArithmeticKind::Fft);
}

#[test]
fn packed_rows_have_the_noise_of_their_formula_on_the_exact_path() {
    packed_rows_have_the_noise_of_their_formula(ArithmeticKind::Ntt);
}

/// With FFT arithmetic, digits of words that stood above zero would have a mean, and packings under one key a part of their noise in common.
#[test]
fn packed_rows_of_message16_share_no_noise_and_stay_within_the_formula() {
    let (params, arithmetic, chunks) = (&MESSAGE16, ArithmeticKind::Fft, 4);
    let count = rows_per_chunk(params);
    let (client, mut rng) = (client(params, 3), rng(103));
    let key = bootstrapping_key(&client, arithmetic);
    let mut sums = vec![0.0; count];
    let mut mean_square = 0.0;
    for _ in 0..chunks {
        for (sum, error) in sums.iter_mut().zip(packing_errors(&client, &key, &mut rng)) {
            *sum += error;
            mean_square += error * error / f64::from(chunks * count as u32);
        }
    }
    let formula = packed_variance(params, arithmetic, 0.0).unwrap();
    let ratio = mean_square / formula;
    assert!((0.65..0.95).contains(&ratio), "measured/formula {ratio}");
    // Rows of several packings at one place: what their errors have in common stays in the mean.
    let chunks = f64::from(chunks);
    let of_means = sums.iter().map(|sum| (sum / chunks).powi(2)).sum::<f64>() / count as f64;
    let common = (of_means - mean_square / chunks) / (1.0 - 1.0 / chunks) / formula;
    assert!(common.abs() < 0.08, "in common: {common} of the formula");
}

#[test]
fn wrong_rows_and_room_are_refused() {
    for params in SETS {
        let (client, mut rng) = (client(params, 49), rng(99));
        let bytes = client
            .encrypt_chunk(&[0; 5], encoding(params, true), &mut rng)
            .unwrap();
        let expanded = samples(params, ColumnForm::Seeded, &bytes, 5, 0..5).concat();
        for (form, bytes) in [
            (ColumnForm::Seeded, bytes),
            (ColumnForm::Expanded, expanded),
        ] {
            let chunk = Chunk::new(params, form, &bytes, 5).unwrap();
            let mut room = vec![0; 2 * params.lwe_bytes()];
            #[allow(clippy::reversed_empty_ranges)]
            for rows in [4..6, 3..1, 6..6, usize::MAX - 1..usize::MAX] {
                let beyond = |found| matches!(found, Err(TfheError::Rows { of: 5, .. }));
                assert!(beyond(chunk.sum(rows.clone()).map(|_| ())));
                assert!(beyond(chunk.expand(rows.clone(), &mut room)));
                assert!(beyond(expand(params, form, &bytes, 5, rows, &mut room)));
            }
            for rows in [0..1, 0..3] {
                let other = |found| matches!(found, Err(TfheError::Length { .. }));
                assert!(other(chunk.expand(rows.clone(), &mut room)));
                assert!(other(expand(params, form, &bytes, 5, rows, &mut room)));
            }
        }
    }
}

#[test]
fn rows_without_a_mask_are_not_decrypted() {
    for params in SETS {
        let client = client(params, 41);
        let encoding = encoding(params, true);
        for form in [ColumnForm::Packed, ColumnForm::Expanded] {
            let Ok(bytes) = chunk_bytes(params, form, 3) else {
                continue;
            };
            // An expanded row with a mask does not help the others.
            let mut zeros = vec![0; bytes];
            if form == ColumnForm::Expanded {
                zeros[..params.lwe_bytes()].fill(1);
            }
            let chunk = Chunk::new(params, form, &zeros, 3).unwrap();
            let refused = client.decrypt_chunk(&chunk, encoding).unwrap_err();
            assert!(matches!(refused, TfheError::NotEncrypted(_)), "{refused}");
        }
    }
}

/// Which chunks of arbitrary bytes are taken, by the definition of the forms.
fn is_chunk(params: &ParamSet, form: ColumnForm, bytes: &[u8], rows: usize) -> bool {
    if chunk_bytes(params, form, rows).ok() != Some(bytes.len()) {
        return false;
    }
    let ends_with_zeros = |bits: usize| match bits % 8 {
        0 => true,
        used => bytes.last().is_some_and(|last| last >> used == 0),
    };
    match form {
        ColumnForm::Seeded => ends_with_zeros(rows * seeded_width(params) as usize),
        ColumnForm::Packed => {
            let words = params.extracted_dimension() + rows;
            ends_with_zeros(words * packed_width(params).unwrap() as usize)
        }
        ColumnForm::Expanded => with_modulus!(params.modulus, M => {
            bytemuck::pod_collect_to_vec::<u8, <M as Words>::Word>(bytes)
                .into_iter()
                .all(M::is_canonical)
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn bytes_are_a_chunk_or_an_error(
        set in 0..SETS.len(), form in 0..3usize, rows in 0..140usize, other: u16, pick in 0..4u8,
        byte: u8, end: u8, seed: u8
    ) {
        let (params, form) = (SETS[set], ColumnForm::ALL[form]);
        // The whole set of keystream bytes, one byte over and over, or another length.
        let rows = if form == ColumnForm::Expanded { rows % 5 } else { rows };
        let right = chunk_bytes(params, form, rows).unwrap_or(32);
        let mut bytes = vec![byte; if pick == 0 { usize::from(other) } else { right }];
        if pick == 1 {
            rng(seed).fill_bytes(&mut bytes);
        }
        if let Some(last) = bytes.last_mut() {
            *last = end;
        }
        let chunk = Chunk::new(params, form, &bytes, rows);
        prop_assert_eq!(chunk.is_ok(), is_chunk(params, form, &bytes, rows));
        if let Ok(chunk) = chunk {
            let mut out = vec![0; params.lwe_bytes()];
            chunk.expand(rows - 1..rows, &mut out).unwrap();
            let of_row = chunk.sum(rows - 1..rows).unwrap();
            prop_assert_eq!(&of_row, &out);
            if form == ColumnForm::Packed {
                prop_assert_eq!(chunk.packed().unwrap(), bytes);
            }
        }
    }
}

/// A sum of many rows has more bits than any function takes; its noise decides how many it may have.
#[test]
fn sums_are_wider_than_functions() {
    let params = &MESSAGE16;
    let (client, mut rng) = (client(params, 90), rng(91));
    let encoding = Encoding::of_samples(params, 26, false).unwrap();
    let narrow = Encoding::new(16, false).unwrap();
    let messages = messages(narrow, 1000, &mut rng);
    let bytes = client.encrypt_chunk(&messages, encoding, &mut rng).unwrap();
    let chunk = Chunk::new(params, ColumnForm::Seeded, &bytes, 1000).unwrap();
    assert_eq!(client.decrypt_chunk(&chunk, encoding).unwrap(), messages);
    let sum = chunk.sum(0..1000).unwrap();
    let total: i64 = messages.iter().sum();
    assert!(total > 1 << 24);
    assert_eq!(client.decrypt_sample(&sum, encoding).unwrap(), total);

    // The noise of so many fresh rows leaves room for some widths.
    let stated = |bits: u32, rows: f64| {
        let noise = StatedNoise {
            log2_variance: Some((rows * params.lwe_variance()).log2()),
            log2_failure: None,
        };
        let encoding = Encoding::of_samples(params, bits, false).unwrap();
        let sum = Ciphertext::from_sample(params, Some(encoding), &sum, noise).unwrap();
        (sum.log2_failure(), client.decrypt(&sum))
    };
    let (failure, found) = stated(26, 1000.0);
    assert!(failure < -128.0, "{failure}");
    assert_eq!(found.unwrap(), total);
    for (rows, expected) in [(1e3, 39), (1e4, 37), (1e5, 36), (1e6, 34)] {
        let widest = (1..=40).rev().find(|bits| stated(*bits, rows).1.is_ok());
        assert_eq!(widest, Some(expected), "{rows} rows");
    }
    let (failure, refused) = stated(40, 1000.0);
    assert!(failure > -64.0, "{failure}");
    assert!(matches!(refused, Err(TfheError::FailureProbability { .. })));

    // No function takes it, and nobody makes a table for it.
    let table = toroid_tfhe::glwe::function_bytes(params, encoding, narrow, &[]);
    assert!(matches!(
        table,
        Err(TfheError::MessageTooWide {
            bits: 26,
            found: 16,
            ..
        })
    ));
    let (client, server) =
        generate_with(&TINY, ArithmeticKind::Ntt, &mut rng, &Progress::none()).unwrap();
    let wide = Encoding::of_samples(&TINY, 40, true).unwrap();
    let sample = client.encrypt_from(wide, -(1 << 30), &mut rng).unwrap();
    let refused = server.apply(|m| m, &sample);
    assert!(matches!(
        refused,
        Err(TfheError::FunctionTooWide { bits: 40, .. })
    ));
}
