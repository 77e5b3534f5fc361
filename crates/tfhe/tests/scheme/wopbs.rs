//! Wide functions.

use std::sync::atomic::{AtomicU64, Ordering};

use toroid_ring::simd::SimdLevel;
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Naive, Ntt};
use toroid_tfhe::bootstrap::{BootstrappingKeyLoader, Run};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::key_loader::{
    KeyLoader, PartsLoader, SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader,
};
use toroid_tfhe::key_switch::KeySwitchingKeyLoader;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32, Words};
use toroid_tfhe::params::{ParamSet, StageParams, TINY, TINY_WOPBS};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::wopbs::measure::Measurement;
use toroid_tfhe::wopbs::noise::{log2_failure, stages};
use toroid_tfhe::wopbs::{WideTask, WopbsKey, WopbsKeySwitchingKey};

/// A run that nobody stops.
fn alone() -> Run<'static> {
    Run::with_threads(1)
}

struct Keys<A: Arithmetic<Goldilocks>> {
    client: ClientKey,
    key: WopbsKey<Goldilocks, A>,
    switching: WopbsKeySwitchingKey<Goldilocks>,
}

fn keys<A: Arithmetic<Goldilocks>>(params: &ParamSet, seed: u8) -> Keys<A> {
    let mut rng = Csprng::from_seed([seed; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let quiet = Progress::none();
    let simd = SimdLevel::best();
    Keys {
        key: client.loaded_wopbs_key(simd, &mut rng, &quiet).unwrap(),
        switching: client
            .loaded_wopbs_key_switching_key(simd, &mut rng, &quiet)
            .unwrap(),
        client,
    }
}

#[test]
fn the_keys_of_one_stage_are_those_of_the_whole_dimension() {
    let mut rng = Csprng::from_seed([11; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let (simd, quiet) = (SimdLevel::best(), Progress::none());
    let key = client.loaded_bootstrapping_key::<Goldilocks, Fft>(simd, &mut rng, &quiet);
    assert!(key.is_ok());
    let key = client.loaded_key_switching_key::<Goldilocks>(simd, &mut rng, &quiet);
    assert!(key.is_ok());
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// A table of random values of p + 1 bits, as words.
fn random_table(params: &ParamSet, rng: &mut Csprng) -> (Vec<i64>, Vec<u64>) {
    let p = params.message_bits;
    let values: Vec<i64> = (0..1 << p)
        .map(|_| (rng.next_u64() % (2 << p)) as i64)
        .collect();
    let words = values
        .iter()
        .map(|v| Goldilocks::encode(*v, p + 1))
        .collect();
    (values, words)
}

/// Every `step`th message through a random table of all p + 1 bits.
fn messages<A: Arithmetic<Goldilocks>>(threads: usize, step: usize) {
    let params = &TINY_WOPBS;
    let keys = keys::<A>(params, 1);
    let mut rng = Csprng::from_seed([2; 32]);
    let encoding = Encoding::new(params.message_bits, false).unwrap();
    let (values, table) = random_table(params, &mut rng);
    let table = glwe::test_vector::<Goldilocks>(params, encoding, &table).unwrap();
    let run = Run { threads, ..alone() };
    for message in encoding.messages().step_by(step) {
        let sample = words(
            &keys
                .client
                .encrypt_sample(message, encoding, &mut rng)
                .unwrap(),
        );
        let out = keys
            .key
            .bootstrap(&keys.switching, &[&table], encoding.bits(), &sample, run)
            .unwrap();
        let decoded = keys
            .client
            .decrypt_sample(bytemuck::cast_slice(&out[0]), encoding)
            .unwrap();
        assert_eq!(decoded, values[message as usize], "message {message}");
    }
}

#[test]
fn every_message_of_a_random_table_on_the_fast_path() {
    messages::<Fft>(1, 1);
    messages::<Fft>(2, 37);
}

#[test]
fn messages_of_a_random_table_on_the_exact_path() {
    messages::<Ntt>(1, 7);
    messages::<Ntt>(2, 101);
}

#[test]
fn the_exact_path_is_the_oracles() {
    let params = &TINY_WOPBS;
    let (fast, slow) = (keys::<Ntt>(params, 3), keys::<Naive>(params, 3));
    let mut rng = Csprng::from_seed([4; 32]);
    let encoding = Encoding::new(params.message_bits, true).unwrap();
    let (_, table) = random_table(params, &mut rng);
    let sample = words(&fast.client.encrypt_sample(-77, encoding, &mut rng).unwrap());
    let [a, b] = [
        fast.key.bootstrap(
            &fast.switching,
            &[&table],
            encoding.bits(),
            &sample,
            alone(),
        ),
        slow.key.bootstrap(
            &slow.switching,
            &[&table],
            encoding.bits(),
            &sample,
            alone(),
        ),
    ];
    assert_eq!(a.unwrap(), b.unwrap());
}

/// More tasks than go together, of several widths and numbers of functions.
fn tasks_together<A: Arithmetic<Goldilocks>>(threads: &[usize]) {
    let params = &TINY_WOPBS;
    let keys = keys::<A>(params, 11);
    let mut rng = Csprng::from_seed([12; 32]);
    let tables = [(); 3].map(|()| random_table(params, &mut rng).1);
    let tables = tables.each_ref().map(Vec::as_slice);
    let p = params.message_bits;
    let widths = [p, p, p, 3, 3, 1, p, p, p, p, p, p, p, p, p, p, 2];
    let samples: Vec<_> = widths
        .iter()
        .map(|bits| {
            let encoding = Encoding::new(*bits, false).unwrap();
            words(&keys.client.encrypt_sample(1, encoding, &mut rng).unwrap())
        })
        .collect();
    let tasks: Vec<_> = samples
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(index, (sample, input_bits))| WideTask {
            test_vectors: &tables[..index % 4],
            input_bits,
            sample,
        })
        .collect();
    let expected: Vec<_> = tasks
        .iter()
        .flat_map(|task| {
            let (tables, bits) = (task.test_vectors, task.input_bits);
            keys.key
                .bootstrap(&keys.switching, tables, bits, task.sample, alone())
                .unwrap()
        })
        .collect();
    for threads in threads {
        let run = Run::with_threads(*threads);
        let together = keys.key.bootstrap_all(&keys.switching, &tasks, run);
        assert!(together.unwrap() == expected, "{threads} threads");
    }
    let none = keys.key.bootstrap_all(&keys.switching, &[], alone());
    assert!(none.unwrap().is_empty());
}

#[test]
fn tasks_together_give_what_each_gives_alone() {
    tasks_together::<Ntt>(&[1, 2, 5]);
    // More threads sum up in another order.
    tasks_together::<Fft>(&[1]);
}

/// Threads that one value leaves over divide its external products among them.
#[test]
fn one_value_gives_the_same_on_any_number_of_threads() {
    let keys = keys::<Ntt>(&TINY_WOPBS, 27);
    let mut rng = Csprng::from_seed([28; 32]);
    let table = random_table(&TINY_WOPBS, &mut rng).1;
    let encoding = Encoding::new(TINY_WOPBS.message_bits, false).unwrap();
    let sample = words(&keys.client.encrypt_sample(1, encoding, &mut rng).unwrap());
    let bootstrap = |run| {
        let bits = encoding.bits();
        keys.key
            .bootstrap(&keys.switching, &[&table], bits, &sample, run)
    };
    let expected = bootstrap(alone()).unwrap();
    let cancel = CancelToken::new();
    cancel.cancel();
    for threads in [2, 3, 4, 8] {
        let result = bootstrap(Run::with_threads(threads)).unwrap();
        assert!(result == expected, "{threads} threads");
        let stopped = Run {
            threads,
            cancel: &cancel,
        };
        let cancelled = bootstrap(stopped);
        assert!(matches!(cancelled, Err(TfheError::Cancelled)));
    }
}

/// Keys written in a form, and loaded from it in pieces.
fn loaded<A: Arithmetic<Goldilocks>>(form: KeyForm) {
    let params = &TINY_WOPBS;
    let mut rng = Csprng::from_seed([5; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let (mut bootstrapping, mut switching) = (Vec::new(), Vec::new());
    let last = AtomicU64::new(0);
    let progress = Progress::new(move |_, done, total| {
        assert!(done >= last.swap(done, Ordering::Relaxed) && done <= total);
    });
    client
        .bootstrapping_key(form, &mut rng, &progress, &mut |bytes| {
            bootstrapping.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    client
        .key_switching_key(form, &mut rng, &Progress::none(), &mut |bytes| {
            switching.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    assert_eq!(
        bootstrapping.len() as u64,
        form.bootstrapping_key_bytes(params)
    );
    assert_eq!(switching.len() as u64, form.key_switching_key_bytes(params));

    fn load<L: KeyLoader<Error = TfheError>>(
        mut loader: PartsLoader<L>,
        bytes: &[u8],
    ) -> (ParamSet, Vec<L::Key>) {
        for piece in bytes.chunks(100_003) {
            loader.write(piece).unwrap();
        }
        assert!(loader.write(&[0]).is_err());
        loader.finish().unwrap()
    }
    let simd = SimdLevel::best();
    let (_, parts) = match form {
        KeyForm::Seeded => load(
            PartsLoader::bootstrapping(params, form, |part| {
                SeededBootstrappingKeyLoader::<Goldilocks, A>::new(part, simd)
            })
            .unwrap(),
            &bootstrapping,
        ),
        KeyForm::SeededWords => load(
            PartsLoader::bootstrapping(params, form, |part| {
                SeededBootstrappingKeyLoader::<Goldilocks, A>::of_words(part, simd)
            })
            .unwrap(),
            &bootstrapping,
        ),
        KeyForm::Expanded => load(
            PartsLoader::bootstrapping(params, form, |part| {
                BootstrappingKeyLoader::<Goldilocks, A>::new(part, simd)
            })
            .unwrap(),
            &bootstrapping,
        ),
    };
    let key = WopbsKey::new(params, parts).unwrap();
    let (_, parts) = match form {
        KeyForm::Seeded | KeyForm::SeededWords => load(
            PartsLoader::key_switching(params, form, |part| {
                SeededKeySwitchingKeyLoader::<Goldilocks>::new(part, simd)
            })
            .unwrap(),
            &switching,
        ),
        KeyForm::Expanded => load(
            PartsLoader::key_switching(params, form, |part| {
                KeySwitchingKeyLoader::<Goldilocks>::new(part, simd)
            })
            .unwrap(),
            &switching,
        ),
    };
    let switching = WopbsKeySwitchingKey::new(params, parts).unwrap();
    let encoding = Encoding::new(params.message_bits, false).unwrap();
    let (values, table) = random_table(params, &mut rng);
    let sample = words(&client.encrypt_sample(300, encoding, &mut rng).unwrap());
    let out = key
        .bootstrap(&switching, &[&table], encoding.bits(), &sample, alone())
        .unwrap();
    let decoded = client.decrypt_sample(bytemuck::cast_slice(&out[0]), encoding);
    assert_eq!(decoded.unwrap(), values[300]);
}

#[test]
fn keys_are_loaded_from_all_forms() {
    for form in KeyForm::ALL {
        loaded::<Fft>(form);
        loaded::<Ntt>(form);
    }
}

#[test]
fn several_functions_of_one_sample_and_tables_of_few_values() {
    let params = &TINY_WOPBS;
    let keys = keys::<Fft>(params, 6);
    let mut rng = Csprng::from_seed([7; 32]);
    let encoding = Encoding::new(params.message_bits, true).unwrap();
    let functions: [fn(i64) -> i64; 5] = [
        |x| x,
        |x| i64::from(x < 0),
        |_| -3,
        |x| 64 * (x & 3) - 100,
        |x| -(x.abs()),
    ];
    let tables: Vec<Vec<u64>> = functions
        .iter()
        .map(|f| {
            let table: Vec<u64> = encoding
                .messages()
                .map(|m| Goldilocks::encode(f(m), encoding.bits() + 1))
                .collect();
            glwe::test_vector::<Goldilocks>(params, encoding, &table).unwrap()
        })
        .collect();
    let tables: Vec<&[u64]> = tables.iter().map(Vec::as_slice).collect();
    for message in [-256, -100, -1, 0, 1, 77, 255] {
        let sample = words(
            &keys
                .client
                .encrypt_sample(message, encoding, &mut rng)
                .unwrap(),
        );
        let out = keys
            .key
            .bootstrap(&keys.switching, &tables, encoding.bits(), &sample, alone())
            .unwrap();
        for (f, out) in functions.iter().zip(&out) {
            let decoded = keys
                .client
                .decrypt_sample(bytemuck::cast_slice(out), encoding);
            assert_eq!(decoded.unwrap(), f(message), "message {message}");
        }
    }
}

#[test]
fn narrower_inputs_own_the_entries_about_their_places() {
    let params = &TINY_WOPBS;
    let keys = keys::<Fft>(params, 8);
    let mut rng = Csprng::from_seed([9; 32]);
    for (bits, signed) in [(4, true), (4, false), (1, false)] {
        let encoding = Encoding::new(bits, signed).unwrap();
        let table: Vec<u64> = encoding
            .messages()
            .map(|m| Goldilocks::encode(m * m + 1, 9))
            .collect();
        let table = glwe::test_vector::<Goldilocks>(params, encoding, &table).unwrap();
        let output = Encoding::new(8, false).unwrap();
        for message in encoding.messages() {
            let mut sample = words(
                &keys
                    .client
                    .encrypt_sample(message, encoding, &mut rng)
                    .unwrap(),
            );
            // A quarter of the distance between two messages.
            let off = Goldilocks::encode(if rng.next_u64() & 1 == 0 { 1 } else { -1 }, bits + 3);
            let body = sample.last_mut().unwrap();
            *body = Goldilocks::add(*body, off);
            let out = keys
                .key
                .bootstrap(
                    &keys.switching,
                    &[&table],
                    encoding.bits(),
                    &sample,
                    alone(),
                )
                .unwrap();
            let decoded = keys
                .client
                .decrypt_sample(bytemuck::cast_slice(&out[0]), output);
            assert_eq!(
                decoded.unwrap(),
                message * message + 1,
                "{bits} bits, message {message}"
            );
        }
    }
}

/// Random tables of every width, signed or not, at `count` messages or all, with noise that leaves three eighths of the margin, and a padding
/// bit that may be set. Wide and narrow messages alternate, so that each finds room for more or fewer bits in the spare memory.
fn every_width<A: Arithmetic<Goldilocks>>(count: usize) {
    let params = &TINY_WOPBS;
    let p = params.message_bits;
    let keys = keys::<A>(params, 20);
    let mut rng = Csprng::from_seed([21; 32]);
    let output = Encoding::new(p, false).unwrap();
    let widths = (1..=p).map(|i| if i % 2 == 1 { p - i / 2 } else { i / 2 });
    for (bits, signed) in widths.flat_map(|bits| [(bits, false), (bits, true)]) {
        let encoding = Encoding::new(bits, signed).unwrap();
        let functions: Vec<(Vec<i64>, Vec<u64>)> = [2 << p, 2]
            .iter()
            .map(|count: &u64| {
                let values = encoding.messages().map(|_| (rng.next_u64() % count) as i64);
                let values: Vec<i64> = values.collect();
                let words = values.iter().map(|v| Goldilocks::encode(*v, p + 1));
                let words: Vec<u64> = words.collect();
                let vector = glwe::test_vector::<Goldilocks>(params, encoding, &words);
                (values, vector.unwrap())
            })
            .collect();
        let vectors: Vec<&[u64]> = functions.iter().map(|(_, vector)| &vector[..]).collect();
        // An odd step, so that all bits change.
        let step = ((1 << bits) / count) | 1;
        for (index, message) in encoding.messages().enumerate().step_by(step) {
            let mut sample = words(
                &keys
                    .client
                    .encrypt_sample(message, encoding, &mut rng)
                    .unwrap(),
            );
            let random = rng.next_u64();
            // Half of the distance between two messages is 8 of these.
            let off = Goldilocks::encode(if random & 1 == 0 { 5 } else { -5 }, bits + 5);
            let padding = Goldilocks::encode((random >> 1 & 1) as i64, 1);
            let body = sample.last_mut().unwrap();
            *body = Goldilocks::add(*body, Goldilocks::add(off, padding));
            let out = keys
                .key
                .bootstrap(&keys.switching, &vectors, bits, &sample, alone())
                .unwrap();
            for ((values, _), out) in functions.iter().zip(&out) {
                let decoded = keys
                    .client
                    .decrypt_sample(bytemuck::cast_slice(out), output);
                assert_eq!(
                    decoded.unwrap(),
                    values[index],
                    "{encoding}: message {message}, noise {}",
                    if random & 1 == 0 { "+" } else { "-" }
                );
            }
        }
    }
}

#[test]
fn messages_of_every_width_on_the_fast_path() {
    every_width::<Fft>(64);
}

#[test]
fn messages_of_every_width_on_the_exact_path() {
    every_width::<Ntt>(4);
}

#[test]
fn narrow_messages_on_the_exact_path_are_the_oracles() {
    let params = &TINY_WOPBS;
    let (fast, slow) = (keys::<Ntt>(params, 3), keys::<Naive>(params, 3));
    let mut rng = Csprng::from_seed([4; 32]);
    for bits in [3, 8] {
        let encoding = Encoding::new(bits, true).unwrap();
        let (_, table) = random_table(params, &mut rng);
        let sample = words(&fast.client.encrypt_sample(-3, encoding, &mut rng).unwrap());
        let [a, b] = [
            fast.key
                .bootstrap(&fast.switching, &[&table], bits, &sample, alone()),
            slow.key
                .bootstrap(&slow.switching, &[&table], bits, &sample, alone()),
        ];
        assert_eq!(a.unwrap(), b.unwrap());
    }
}

/// What lies between two messages goes to one of them, so that a function of fewer bits reads a message's upper bits.
#[test]
fn narrow_functions_round_wide_messages() {
    let params = &TINY_WOPBS;
    let keys = keys::<Fft>(params, 22);
    let mut rng = Csprng::from_seed([23; 32]);
    let (wide, narrow) = (
        Encoding::new(9, false).unwrap(),
        Encoding::new(3, false).unwrap(),
    );
    let table: Vec<u64> = narrow
        .messages()
        .map(|m| Goldilocks::encode(m, 4))
        .collect();
    let vector = glwe::test_vector::<Goldilocks>(params, narrow, &table).unwrap();
    for message in wide.messages().step_by(5) {
        let sample = keys.client.encrypt_sample(message, wide, &mut rng);
        let out = keys
            .key
            .bootstrap(
                &keys.switching,
                &[&vector],
                narrow.bits(),
                &words(&sample.unwrap()),
                alone(),
            )
            .unwrap();
        let read = keys
            .client
            .decrypt_sample(bytemuck::cast_slice(&out[0]), narrow)
            .unwrap();
        let neighbours = [message >> 6, (message >> 6) + 1].map(|m| m % 8);
        assert!(neighbours.contains(&read), "{message}: {read}");
        let middle = (16..48).contains(&(message % 64));
        assert!(
            middle || read == (message + 32) / 64 % 8,
            "{message}: {read}"
        );
    }
}

/// As many bootstraps fail as the formula says where noise is large, of messages of a width.
fn failures_are_those_of_the_formula<A: Arithmetic<Goldilocks>>(bits: u32, count: u32) {
    let params = &TINY_WOPBS;
    let mut rng = Csprng::from_seed([25; 32]);
    let encoding = Encoding::new(bits, false).unwrap();
    // Two thirds of the margin.
    let log2_sigma = (2.0f64 / 3.0).log2() - f64::from(bits + 2);
    let formula = log2_failure(
        params,
        params.wopbs.unwrap(),
        A::KIND,
        bits,
        (2.0 * log2_sigma).exp2(),
    )
    .exp2();
    let table: Vec<u64> = encoding
        .messages()
        .map(|m| Goldilocks::encode(m, bits + 1))
        .collect();
    let vector = glwe::test_vector::<Goldilocks>(params, encoding, &table).unwrap();
    let keys = keys::<A>(params, 24);
    let mut failed = 0;
    for _ in 0..count {
        let message = (rng.next_u64() >> (64 - bits)) as i64;
        let mut sample = words(
            &keys
                .client
                .encrypt_sample(message, encoding, &mut rng)
                .unwrap(),
        );
        // Noise this large is made for words of 32 bits alone.
        let mut noise = [0];
        rng.add_noise::<Torus32>(log2_sigma, &mut noise);
        let noise = Goldilocks::encode(Torus32::centered(noise[0]), 32);
        let body = sample.last_mut().unwrap();
        *body = Goldilocks::add(*body, noise);
        let out = keys
            .key
            .bootstrap(&keys.switching, &[&vector], bits, &sample, alone())
            .unwrap();
        let decoded = keys
            .client
            .decrypt_sample(bytemuck::cast_slice(&out[0]), encoding);
        failed += u32::from(decoded.unwrap() != message);
    }
    let expected = formula * f64::from(count);
    let deviation = (expected * (1.0 - formula)).sqrt();
    assert!(
        (f64::from(failed) - expected).abs() < 5.0 * deviation,
        "{bits} bits: {failed} of {count}, formula {expected}"
    );
}

#[test]
fn narrow_messages_fail_as_often_as_the_formula_says() {
    for bits in [1, 3, 8] {
        failures_are_those_of_the_formula::<Fft>(bits, 300);
    }
}

#[test]
fn wrong_inputs_are_refused() {
    let params = &TINY_WOPBS;
    let keys = keys::<Fft>(params, 10);
    let sample = vec![0; params.lwe_words()];
    let table = vec![0; params.test_vector_words()];
    let p = params.message_bits;
    let bootstrap = |tables: &[&[u64]], bits, sample: &[u64]| {
        keys.key
            .bootstrap(&keys.switching, tables, bits, sample, alone())
    };
    for bits in [1, p] {
        assert!(matches!(
            bootstrap(&[&table[1..]], bits, &sample),
            Err(TfheError::Length { .. })
        ));
        assert!(matches!(
            bootstrap(&[&table], bits, &sample[1..]),
            Err(TfheError::Length { .. })
        ));
        assert!(bootstrap(&[], bits, &sample).unwrap().is_empty());
    }
    assert!(matches!(
        bootstrap(&[&table], 0, &sample),
        Err(TfheError::MessageBits(0))
    ));
    assert!(matches!(
        bootstrap(&[&table], p + 1, &sample),
        Err(TfheError::MessageTooWide { .. })
    ));
    let bits = keys
        .key
        .extract_bits(&keys.switching, 3, &sample, alone())
        .unwrap();
    assert_eq!(bits.count(), 3);
    assert!(matches!(
        keys.key.look_up(&bits, &table, alone()),
        Err(TfheError::Length { .. })
    ));
    assert!(keys.key.look_up(&bits, &table[..8], alone()).is_ok());
    let cancel = CancelToken::new();
    cancel.cancel();
    let stop = Run {
        threads: 1,
        cancel: &cancel,
    };
    let cancelled = keys
        .key
        .bootstrap(&keys.switching, &[&table], p, &sample, stop);
    assert!(matches!(cancelled, Err(TfheError::Cancelled)));
    assert!(matches!(
        WopbsKey::<Goldilocks, Fft>::new(&TINY, Vec::new()),
        Err(TfheError::NotWopbs(_))
    ));
    let part = |part: &StageParams, unrolled: bool| {
        let simd = SimdLevel::best();
        let mut loader = if unrolled {
            BootstrappingKeyLoader::<Goldilocks, Fft>::unrolled(part, simd).unwrap()
        } else {
            BootstrappingKeyLoader::<Goldilocks, Fft>::new(part, simd).unwrap()
        };
        let samples = match unrolled {
            true => part.unrolled_samples(),
            false => part.lwe_dimension,
        };
        let rows = samples * part.ggsw_rows();
        loader
            .write_coefficients(&vec![0; rows * part.glwe_words()])
            .unwrap();
        loader.finish().unwrap()
    };
    for unrolled in 0..3 {
        let parts = params.bootstrapping_parts().into_iter().enumerate();
        let parts = parts.map(|(index, stage)| part(stage, index == unrolled));
        let refused = WopbsKey::<Goldilocks, Fft>::new(params, parts.collect());
        assert!(matches!(refused, Err(TfheError::NotUnrolled(_))));
    }
    let missing = WopbsKey::<Goldilocks, Fft>::new(params, Vec::new());
    assert!(matches!(missing, Err(TfheError::ParamsMismatch { .. })));
    let narrow = Encoding::new(1, false).unwrap();
    let between = [0, Goldilocks::encode(1, params.message_bits + 2)];
    let refused = glwe::test_vector::<Goldilocks>(params, narrow, &between);
    assert!(matches!(refused, Err(TfheError::Format(_))));
    let wide = Encoding::new(params.message_bits + 1, false).unwrap();
    let refused = glwe::test_vector::<Goldilocks>(params, wide, &[0; 1 << 10]);
    assert!(matches!(refused, Err(TfheError::MessageTooWide { .. })));
}

/// Noise of look-ups against the bound that the failure probability takes, and against its mean over a table's places.
fn look_ups_keep_the_bound<A: Arithmetic<Goldilocks>>(keys_count: u8, bits: u32) {
    let (bootstraps, tables) = (6, 6);
    let params = &TINY_WOPBS;
    let formulas = stages(params, params.wopbs.unwrap(), A::KIND, bits);
    let bound = formulas.packing + formulas.packing_products;
    let mut variances = [0.0; 2];
    for seed in 0..keys_count {
        let keys = keys::<A>(params, seed);
        let mut rng = Csprng::from_seed([100 + seed; 32]);
        let mut measurement =
            Measurement::new(&keys.client, &keys.key, &keys.switching, bits).unwrap();
        for _ in 0..bootstraps {
            measurement.look_up(tables, &mut rng, alone()).unwrap();
        }
        let results = measurement.results();
        let packings = results
            .iter()
            .filter(|stage| stage.name.contains("vertical packing"));
        for (variance, packing) in variances.iter_mut().zip(packings) {
            *variance += packing.variance / f64::from(keys_count);
        }
    }
    // The look-ups of a bootstrap share the noise of its bits.
    let values = f64::from(keys_count) * f64::from(bootstraps) * 3.0;
    let error = 5.0 * (2.0 / values).sqrt();
    for (name, variance) in ["random messages", "multiples of N"].iter().zip(variances) {
        let (mean, bound) = (variance / formulas.packing_mean, variance / bound);
        assert!(
            (mean - 1.0).abs() < error && bound < 1.0 + error,
            "{name}: {mean} of the mean, {bound} of the bound"
        );
    }
}

#[test]
fn look_ups_keep_the_bound_on_the_fast_path_at_multiples_of_the_ring_degree_too() {
    look_ups_keep_the_bound::<Fft>(24, TINY_WOPBS.message_bits);
}

#[test]
fn look_ups_keep_the_bound_on_the_exact_path_at_multiples_of_the_ring_degree_too() {
    look_ups_keep_the_bound::<Ntt>(12, TINY_WOPBS.message_bits);
}

#[test]
fn look_ups_keep_the_bound_of_narrow_messages() {
    for bits in [3, 8] {
        look_ups_keep_the_bound::<Fft>(12, bits);
    }
}

/// The correlation of look-ups of different tables by the same bits, at messages that are multiples of N. All rows of a bit's samples share
/// their noise there, so any mean of the digits is an error that all tables have in common.
fn tables_by_the_same_bits_share_no_noise<A: Arithmetic<Goldilocks>>(keys_count: u8) {
    let (bootstraps, tables) = (6, 8);
    let params = &TINY_WOPBS;
    let bits = params.message_bits;
    let multiples = (1 << bits) / params.ring_degree as u64;
    let (mut squares, mut products) = (0.0, 0.0);
    for seed in 0..keys_count {
        let keys = keys::<A>(params, 30 + seed);
        let mut rng = Csprng::from_seed([130 + seed; 32]);
        for _ in 0..bootstraps {
            let message = rng.next_u64() % multiples * params.ring_degree as u64;
            let encoding = Encoding::new(bits, false).unwrap();
            let sample = keys
                .client
                .encrypt_sample(message as i64, encoding, &mut rng);
            let sample = words(&sample.unwrap());
            let bits = keys
                .key
                .extract_bits(&keys.switching, bits, &sample, alone())
                .unwrap();
            let (mut sum, mut square) = (0.0, 0.0);
            for _ in 0..tables {
                let (_, table) = random_table(params, &mut rng);
                let out = keys.key.look_up(&bits, &table, alone()).unwrap();
                let phase = keys.client.lwe().phase::<Goldilocks>(&out);
                let error = Goldilocks::sub(phase, table[message as usize]);
                let error = Goldilocks::centered(error) as f64;
                sum += error;
                square += error * error;
            }
            squares += square / f64::from(tables);
            products += (sum * sum - square) / f64::from(tables * (tables - 1));
        }
    }
    // Of tables without anything in common it has a standard deviation of (2/(groups·tables·(tables - 1)))^(1/2).
    let groups = u32::from(keys_count) * bootstraps;
    let error = (2.0 / f64::from(groups * tables * (tables - 1))).sqrt();
    let correlation = products / squares;
    assert!(
        correlation.abs() < 4.0 * error,
        "a correlation of {correlation}; its standard deviation is {error}"
    );
}

#[test]
fn tables_at_multiples_of_the_ring_degree_share_no_noise_on_the_fast_path() {
    tables_by_the_same_bits_share_no_noise::<Fft>(16);
}

#[test]
fn tables_at_multiples_of_the_ring_degree_share_no_noise_on_the_exact_path() {
    tables_by_the_same_bits_share_no_noise::<Ntt>(12);
}

/// Every stage's noise over keys of ten bootstraps each, within five standard errors of its formula.
fn stages_have_the_noise_of_their_formulas<A: Arithmetic<Goldilocks>>(keys_count: u8, bits: u32) {
    let runs = 10;
    let params = &TINY_WOPBS;
    let mut sums: Vec<(&str, f64, f64)> = Vec::new();
    for seed in 0..keys_count {
        let keys = keys::<A>(params, 100 + seed);
        let mut rng = Csprng::from_seed([200 + seed; 32]);
        let mut measurement =
            Measurement::new(&keys.client, &keys.key, &keys.switching, bits).unwrap();
        for _ in 0..runs {
            measurement.follow(&mut rng, alone()).unwrap();
        }
        for (index, stage) in measurement.results().into_iter().enumerate() {
            if sums.len() == index {
                sums.push((stage.name, 0.0, stage.formula));
            }
            sums[index].1 += stage.variance / f64::from(keys_count);
        }
    }
    for (name, variance, formula) in sums {
        // What is independent: the bits of a bootstrap, or the bootstraps.
        let of_bits = name.contains("rows") || name.contains("blind rotation");
        let each = if of_bits { bits } else { 1 };
        let values = f64::from(u32::from(keys_count) * runs * each);
        let ratio = variance / formula;
        // The first step of a short blind rotation meets no mask, and a step whose exponent is 0 is left out.
        let idle = 2.0 / params.wopbs.unwrap().extract.lwe_dimension as f64;
        assert!(
            (ratio - 1.0).abs() < 5.0 * (2.0 / values).sqrt() + idle,
            "{name}: {ratio}"
        );
    }
}

#[test]
fn stages_have_the_noise_of_their_formulas_on_the_fast_path() {
    stages_have_the_noise_of_their_formulas::<Fft>(30, TINY_WOPBS.message_bits);
}

#[test]
fn stages_have_the_noise_of_their_formulas_on_the_exact_path() {
    stages_have_the_noise_of_their_formulas::<Ntt>(8, TINY_WOPBS.message_bits);
}

#[test]
fn stages_have_the_noise_of_their_formulas_for_narrow_messages() {
    stages_have_the_noise_of_their_formulas::<Fft>(30, 3);
}
