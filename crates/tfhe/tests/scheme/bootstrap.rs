//! Bootstrapping: bit-exact with the oracle, right plaintexts on every arithmetic and instruction set, gates.

use crate::common::{Server, decrypt, encrypt, function};
use std::time::Duration;
use toroid_ring::simd::SimdLevel;
use toroid_task::CancelToken;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Naive, Ntt};
use toroid_tfhe::bootstrap::{Run, bootstrap, bootstrap_all};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::gates::{self, Gate};
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::words_from_bytes;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32, Words};
use toroid_tfhe::params::{ParamSet, StageParams, TINY, TINY32};
use toroid_tfhe::random::Csprng;

fn client(params: &ParamSet, seed: u8) -> (ClientKey, Csprng) {
    let mut rng = Csprng::from_seed([seed; 32]);
    (ClientKey::generate(params, &mut rng), rng)
}

/// The integer arithmetic on every instruction set, against schoolbook products, word for word.
fn exact_is_the_oracle<M: Modulus>(params: &ParamSet, unrolled: bool)
where
    Ntt: Arithmetic<M>,
    Naive: Arithmetic<M>,
{
    let (client, mut rng) = client(params, 1);
    let encoding = Encoding::new(params.message_bits, true).unwrap();
    let oracle = Server::<M, Naive>::with(&client, 2, SimdLevel::Portable, unrolled);
    let tv = function::<M>(params, encoding, |m| m / 2 - 1);
    // A test vector with a mask, too: any GLWE sample may be rotated.
    let mut masked = tv.clone();
    rng.fill_uniform::<M>(&mut masked[..params.extracted_dimension()]);
    let samples: Vec<_> = [-2, 3]
        .into_iter()
        .map(|m| encrypt::<M>(&client, m, encoding, &mut rng))
        .collect();
    let expected: Vec<_> = samples
        .iter()
        .flat_map(|s| [oracle.apply(&tv, s), oracle.apply(&masked, s)])
        .collect();
    for simd in SimdLevel::available() {
        let ntt = Server::<M, Ntt>::with(&client, 2, simd, unrolled);
        let found: Vec<_> = samples
            .iter()
            .flat_map(|s| [ntt.apply(&tv, s), ntt.apply(&masked, s)])
            .collect();
        assert!(found == expected, "{simd}");
    }
}

#[test]
fn the_exact_path_is_bit_exact_with_the_naive_oracle() {
    for unrolled in [false, true] {
        exact_is_the_oracle::<Goldilocks>(&TINY, unrolled);
        exact_is_the_oracle::<Torus32>(&TINY32, unrolled);
    }
}

/// Every message, signed and unsigned, on one arithmetic.
fn every_message<M: Modulus, A: Arithmetic<M>>(params: &ParamSet, simd: SimdLevel, unrolled: bool) {
    let (client, mut rng) = client(params, 3);
    let server = Server::<M, A>::with(&client, 4, simd, unrolled);
    for signed in [false, true] {
        let encoding = Encoding::new(params.message_bits, signed).unwrap();
        let f = |m: i64| (m * m * 3 + 5 * m + 1) % (1 << params.message_bits);
        let tv = function::<M>(params, encoding, f);
        for m in encoding.messages() {
            let sample = encrypt::<M>(&client, m, encoding, &mut rng);
            let result = server.apply(&tv, &sample);
            let expected = decrypt::<M>(
                &client,
                &toroid_tfhe::lwe::trivial::<M>(params, M::encode(f(m), encoding.bits() + 1)),
                encoding,
            );
            assert_eq!(
                decrypt::<M>(&client, &result, encoding),
                expected,
                "f({m}), {simd}"
            );
        }
    }
}

#[test]
fn every_message_of_the_small_sets_on_both_paths() {
    for simd in SimdLevel::available() {
        for unrolled in [false, true] {
            every_message::<Goldilocks, Ntt>(&TINY, simd, unrolled);
            every_message::<Goldilocks, Fft>(&TINY, simd, unrolled);
            every_message::<Torus32, Ntt>(&TINY32, simd, unrolled);
            every_message::<Torus32, Fft>(&TINY32, simd, unrolled);
        }
    }
}

/// The last bit of an odd number of them has no partner.
#[test]
fn unrolled_keys_of_an_odd_number_of_bits() {
    let odd = ParamSet {
        stage: StageParams {
            lwe_dimension: TINY.lwe_dimension - 1,
            ..TINY.stage
        },
        ..TINY
    };
    assert_eq!(odd.unrolled_samples(), 48);
    every_message::<Goldilocks, Ntt>(&odd, SimdLevel::best(), true);
    every_message::<Goldilocks, Fft>(&odd, SimdLevel::best(), true);
}

/// Every pair of bits turns by every pair of exponents as it should, on a mask of nothing else.
#[test]
fn pairs_of_bits_turn_by_their_exponents() {
    let (client, mut rng) = client(&TINY, 21);
    let server = Server::<Goldilocks, Fft>::with(&client, 22, SimdLevel::best(), true);
    let (n, bits) = (TINY.ring_degree, client.lwe().bits());
    let order = 2 * n as u64;
    let tv = function::<Goldilocks>(&TINY, Encoding::new(4, false).unwrap(), |m| m);
    let secret = client.glwe().extracted_key();
    let mut out = vec![0; TINY.extracted_dimension() + 1];
    for pair in 0..TINY.lwe_dimension / 2 {
        let exponents = [rng.next_u64() % order, rng.next_u64() % order];
        for [a, b] in [exponents, [exponents[0], 0], [0, exponents[1]]] {
            let mut sample = vec![0; TINY.lwe_words()];
            // Exponents as words of the torus; the mean of their rounding errors is 0.
            sample[2 * pair] = Goldilocks::encode(a.cast_signed(), 10);
            sample[2 * pair + 1] = Goldilocks::encode(b.cast_signed(), 10);
            server
                .bootstrapping
                .blind_rotate(&tv, &sample, &mut out, &CancelToken::new())
                .unwrap();
            let turned = (a * bits[2 * pair] + b * bits[2 * pair + 1]) % order;
            let back = (order - turned) % order;
            let at = TINY.extracted_dimension() + back as usize % n;
            let expected = if back < n as u64 {
                tv[at]
            } else {
                Goldilocks::neg(tv[at])
            };
            let error = Goldilocks::sub(secret.phase::<Goldilocks>(&out), expected);
            let error = Goldilocks::centered(error).unsigned_abs();
            assert!(error < 1 << 50, "pair {pair}, {a}, {b}: off by {error}");
        }
    }
}

/// Teams of every size and batches give what one thread gives.
fn threads_and_batches_agree<M: Modulus, A: Arithmetic<M>>(params: &ParamSet, unrolled: bool) {
    let (client, mut rng) = client(params, 11);
    let server = Server::<M, A>::with(&client, 12, SimdLevel::best(), unrolled);
    let encoding = Encoding::new(params.message_bits, true).unwrap();
    let tables = [|m: i64| m, |m: i64| 1 - m].map(|f| function::<M>(params, encoding, f));
    let samples: Vec<_> = encoding
        .messages()
        .take(5)
        .map(|m| encrypt::<M>(&client, m, encoding, &mut rng))
        .collect();
    let jobs = || samples.iter().zip(tables.iter().cycle());
    let expected: Vec<_> = jobs().map(|(s, tv)| server.apply(tv, s)).collect();
    let same = |found: &[M::Word], expected: &[M::Word], what: &str| match A::KIND {
        ArithmeticKind::Ntt => assert!(found == expected, "{what}"),
        ArithmeticKind::Fft => assert_eq!(
            decrypt::<M>(&client, found, encoding),
            decrypt::<M>(&client, expected, encoding),
            "{what}"
        ),
    };
    for threads in 1..=params.ggsw_rows() + 1 {
        let (sample, tv) = (&samples[1], &tables[1]);
        let mut found = sample.clone();
        bootstrap(
            &server.bootstrapping,
            &server.key_switching,
            tv,
            &mut found,
            Run::with_threads(threads),
        )
        .unwrap();
        same(&found, &expected[1], &format!("{threads} threads"));
    }
    for threads in [1, 2, 3, 11] {
        let mut found = samples.clone();
        let mut work: Vec<_> = found
            .iter_mut()
            .zip(jobs())
            .map(|(sample, (_, tv))| (&tv[..], &mut sample[..]))
            .collect();
        let (keys, switch) = (&server.bootstrapping, &server.key_switching);
        let cancel = CancelToken::new();
        let cancelled = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(3));
                cancel.cancel();
            });
            let cancel = &cancel;
            let run = Run { threads, cancel };
            // However fast a batch is, one of them is stopped.
            loop {
                let mut kept = samples.clone();
                let mut work: Vec<_> = kept
                    .iter_mut()
                    .zip(jobs())
                    .map(|(sample, (_, tv))| (&tv[..], &mut sample[..]))
                    .collect();
                if let Err(error) = bootstrap_all(keys, switch, &mut work, run) {
                    assert!(kept == samples);
                    break error;
                }
            }
        });
        assert!(matches!(cancelled, TfheError::Cancelled));
        bootstrap_all(keys, switch, &mut work, Run::with_threads(threads)).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            same(found, expected, &format!("a batch on {threads} threads"));
        }
    }
}

#[test]
fn threads_and_batches_agree_on_both_moduli_and_paths() {
    for unrolled in [false, true] {
        threads_and_batches_agree::<Goldilocks, Ntt>(&TINY, unrolled);
        threads_and_batches_agree::<Goldilocks, Fft>(&TINY, unrolled);
        threads_and_batches_agree::<Torus32, Ntt>(&TINY32, unrolled);
        threads_and_batches_agree::<Torus32, Fft>(&TINY32, unrolled);
    }
}

fn every_gate<M: Modulus, A: Arithmetic<M>>(params: &ParamSet, unrolled: bool) {
    let (client, mut rng) = client(params, 5);
    let server = Server::<M, A>::with(&client, 6, SimdLevel::best(), unrolled);
    let words = |bytes: &[u8]| {
        words_from_bytes::<M>("a sample", params, bytes, params.lwe_words()).unwrap()
    };
    for gate in Gate::ALL {
        for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
            let x = words(&client.encrypt_bit_sample(a, &mut rng).unwrap());
            let y = words(&client.encrypt_bit_sample(b, &mut rng).unwrap());
            let mut z = gates::evaluate(gate, &server.bootstrapping, &server.key_switching, &x, &y)
                .unwrap();
            let bit = |z: &[M::Word]| client.decrypt_bit_sample(bytemuck::cast_slice(z)).unwrap();
            assert_eq!(bit(&z), gate.plain(a, b), "{gate:?} {a} {b}");
            gates::not::<M>(&mut z);
            assert_eq!(bit(&z), !gate.plain(a, b));
        }
    }
}

#[test]
fn every_gate_on_both_moduli_and_paths() {
    for unrolled in [false, true] {
        every_gate::<Torus32, Ntt>(&TINY32, unrolled);
        every_gate::<Torus32, Fft>(&TINY32, unrolled);
        every_gate::<Goldilocks, Ntt>(&TINY, unrolled);
        every_gate::<Goldilocks, Fft>(&TINY, unrolled);
    }
}
