//! Batches of bootstraps: what each task gets, who gets in between, and what ends a batch.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::Arc;

use common::*;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::{
    PlaintextBackend, decode_sample, encode_sample, test_vector,
};
use toroid_engine::{
    Backend, BackendError, BootstrapTask, CancelToken, KeyForm, LoadedKey, Requester,
};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;

/// Loaded keys, samples, and functions to apply to them.
struct Bench {
    params: &'static ParamSet,
    client: ClientKey,
    keys: [Arc<dyn LoadedKey>; 2],
    vectors: Vec<Vec<u8>>,
    samples: Vec<Vec<u8>>,
    input: Encoding,
}

/// What the functions of a [`Bench`] do.
const FUNCTIONS: [fn(u64) -> u64; 3] = [|m| m + 1, |m| m / 2, |m| 3 * m];

impl Bench {
    /// With samples of the messages 0, 1, 2, ….
    fn new(backend: &dyn Backend, params: &'static ParamSet, samples: usize) -> Bench {
        let mut rng = Csprng::from_seed([8; 32]);
        let client = ClientKey::generate(params, &mut rng);
        let keys = KINDS.map(|kind| loaded_key(backend, &client, kind, KeyForm::Seeded, &mut rng));
        let bits = params.message_bits;
        let input = Encoding::new(bits, false).unwrap();
        let vectors = FUNCTIONS.map(|f| test_vector(params, bits, f)).to_vec();
        let samples = (0..samples as i64)
            .map(|index| index % (1 << bits))
            .map(|message| client.encrypt_sample(message, input, &mut rng).unwrap())
            .collect();
        Bench {
            params,
            client,
            keys,
            vectors,
            samples,
            input,
        }
    }

    fn vectors(&self) -> Vec<&[u8]> {
        self.vectors.iter().map(Vec::as_slice).collect()
    }

    /// Task number i applies the first 1 + i mod `functions` functions to sample i.
    fn tasks<'a>(&'a self, vectors: &'a [&'a [u8]], functions: usize) -> Vec<BootstrapTask<'a>> {
        self.samples
            .iter()
            .enumerate()
            .map(|(index, sample)| BootstrapTask {
                test_vectors: &vectors[..1 + index % functions],
                sample,
                input_bits: self.params.message_bits,
            })
            .collect()
    }

    fn batch(
        &self,
        backend: &dyn Backend,
        tasks: &[BootstrapTask<'_>],
        results: &mut [u8],
        requester: Requester<'_>,
    ) -> Result<(), BackendError> {
        let [bootstrapping, key_switching] = &self.keys;
        backend.bootstrap_batch(
            self.params,
            &**bootstrapping,
            &**key_switching,
            tasks,
            results,
            requester,
        )
    }

    fn room(&self, tasks: &[BootstrapTask<'_>]) -> Vec<u8> {
        let samples: usize = tasks.iter().map(|task| task.test_vectors.len()).sum();
        vec![0; samples * self.params.lwe_bytes()]
    }
}

#[test]
fn a_batch_gives_what_single_calls_give() {
    for (params, arithmetic) in [
        (&TINY, ArithmeticKind::Ntt),
        (&TINY32, ArithmeticKind::Fft),
        (&TINY_WOPBS, ArithmeticKind::Ntt),
    ] {
        let alone = CpuBackend::with_cores(arithmetic, 1);
        let bench = Bench::new(&alone, params, 100);
        let vectors = bench.vectors();
        let cancel = CancelToken::new();
        let tasks = bench.tasks(&vectors, 3);
        let [bootstrapping, key_switching] = &bench.keys;
        let singly = tasks.iter().map(|task| {
            let requester = Requester::from(&cancel);
            alone.bootstrap(params, &**bootstrapping, &**key_switching, *task, requester)
        });
        let singly: Vec<Vec<u8>> = singly.map(Result::unwrap).collect();
        for (cores, counts) in [
            (1, [7, 9].as_slice()),
            (2, &[0, 1, 7, 8, 9, 100]),
            (5, &[3, 8]),
        ] {
            let backend = CpuBackend::with_cores(arithmetic, cores);
            for count in counts {
                let tasks = &tasks[..*count];
                let mut results = bench.room(tasks);
                bench
                    .batch(&backend, tasks, &mut results, (&cancel).into())
                    .unwrap();
                // The FFT's rounding depends on how the work is shared out among threads.
                let equal =
                    arithmetic == ArithmeticKind::Fft || results == singly[..*count].concat();
                assert!(equal, "{} on {cores} cores, {count} tasks", params.name);
                let mut results = results.chunks_exact(params.lwe_bytes());
                for (index, task) in tasks.iter().enumerate() {
                    let message = index as u64 % (1 << params.message_bits);
                    let of_task = results.by_ref().take(task.test_vectors.len());
                    for (f, sample) in FUNCTIONS.iter().zip(of_task) {
                        let found = bench.client.decrypt_sample(sample, bench.input).unwrap();
                        let expected = f(message) % (2 << params.message_bits);
                        assert_eq!(found, expected as i64, "{} {index}", params.name);
                    }
                }
            }
        }
    }
}

#[test]
fn bytes_need_not_stand_aligned() {
    fn unaligned<'a>(bytes: &[u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        room.resize(bytes.len() + 8, 0);
        let start = room.as_ptr().align_offset(8) + 1;
        let place = &mut room[start..][..bytes.len()];
        place.copy_from_slice(bytes);
        place
    }
    for params in [&TINY, &TINY_WOPBS] {
        let backend = CpuBackend::with_cores(ArithmeticKind::Ntt, 1);
        let bench = Bench::new(&backend, params, 1);
        let vectors = bench.vectors();
        let cancel = CancelToken::new();
        let [task] = bench.tasks(&vectors, 1)[..] else {
            panic!("one sample");
        };
        let mut rooms = [Vec::new(), Vec::new()];
        let [for_sample, for_vector] = &mut rooms;
        let moved = BootstrapTask {
            test_vectors: &[unaligned(task.test_vectors[0], for_vector)],
            sample: unaligned(task.sample, for_sample),
            ..task
        };
        let results = [task, moved].map(|task| {
            let mut results = bench.room(&[task]);
            bench
                .batch(&backend, &[task], &mut results, (&cancel).into())
                .unwrap();
            results
        });
        assert_eq!(results[0], results[1], "{}", params.name);
    }
}

#[test]
fn results_of_another_length_and_tasks_without_functions_are_refused() {
    let cpu = CpuBackend::with_cores(ArithmeticKind::Ntt, 2);
    let plaintext = PlaintextBackend::new();
    for backend in [&cpu as &dyn Backend, &plaintext] {
        let bench = Bench::new(backend, &TINY, 3);
        let vectors = bench.vectors();
        let mut tasks = bench.tasks(&vectors, 2);
        let cancel = CancelToken::new();
        let bytes = bench.room(&tasks).len();
        assert_eq!(bytes, 4 * TINY.lwe_bytes());
        for length in [0, bytes - 1, bytes + 1, bytes + TINY.lwe_bytes()] {
            let mut results = vec![0; length];
            let refused = bench.batch(backend, &tasks, &mut results, (&cancel).into());
            let Err(BackendError::Failed { reason }) = refused else {
                panic!("{refused:?} for {length} bytes");
            };
            assert!(reason.contains("4 samples"), "{reason}");
            assert!(reason.contains(&format!("{length} bytes")), "{reason}");
        }
        tasks[1].test_vectors = &[];
        let mut results = bench.room(&tasks);
        let refused = bench.batch(backend, &tasks, &mut results, (&cancel).into());
        let Err(BackendError::Failed { reason }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(reason, "task 1 has no test vector");
    }
    assert_eq!((plaintext.batches(), plaintext.tasks()), (0, 0));
}

#[test]
fn the_plaintext_back_end_counts_batches_tasks_and_bootstraps() {
    let backend = PlaintextBackend::new();
    let bench = Bench::new(&backend, &TINY, 0);
    let vectors = bench.vectors();
    let samples: Vec<Vec<u8>> = (0..9).map(|m| encode_sample(&TINY, m, 4)).collect();
    let tasks: Vec<BootstrapTask<'_>> = samples
        .iter()
        .zip((0..3).cycle())
        .map(|(sample, function)| BootstrapTask {
            test_vectors: &vectors[function..],
            sample,
            input_bits: 4,
        })
        .collect();
    let mut results = bench.room(&tasks);
    let cancel = CancelToken::new();
    for batch in [&tasks[..0], &tasks] {
        let bytes = bench.room(batch).len();
        let results = &mut results[..bytes];
        bench
            .batch(&backend, batch, results, (&cancel).into())
            .unwrap();
    }
    let found: Vec<u64> = results
        .chunks_exact(TINY.lwe_bytes())
        .map(|sample| decode_sample(&TINY, sample, 4))
        .collect();
    let expected: Vec<u64> = (0..9u64)
        .flat_map(|m| FUNCTIONS[m as usize % 3..].iter().map(move |f| f(m) % 32))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        (backend.batches(), backend.tasks(), backend.bootstraps()),
        (2, 9, 18)
    );
}
