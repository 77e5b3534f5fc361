//! Exact bootstraps.

use std::ops::ControlFlow;

use toroid_ring::simd::Isa;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::exact::{ExactKey, ExactKeySwitchingKey, Run};
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus};
use toroid_tfhe::params::{ParamSet, TINY_EXACT};
use toroid_tfhe::product::{Arithmetic, Exact, Fast, Naive};
use toroid_tfhe::random::Csprng;

const ALONE: Run<'static> = Run {
    threads: 1,
    cancelled: &|| false,
};

struct Keys<A: Arithmetic<Goldilocks>> {
    client: ClientKey,
    key: ExactKey<Goldilocks, A>,
    switching: ExactKeySwitchingKey<Goldilocks>,
}

fn keys<A: Arithmetic<Goldilocks>>(params: &'static ParamSet, seed: u8) -> Keys<A> {
    let mut rng = Csprng::from_seed([seed; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let mut quiet = |_: u64, _: u64| ControlFlow::Continue(());
    let isa = Isa::best();
    Keys {
        key: client.loaded_exact_key(isa, &mut rng, &mut quiet).unwrap(),
        switching: client
            .loaded_exact_key_switching_key(isa, &mut rng, &mut quiet)
            .unwrap(),
        client,
    }
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

/// Every message through a random table of all p + 1 bits.
fn every_message<A: Arithmetic<Goldilocks>>(threads: usize) {
    let params = &TINY_EXACT;
    let keys = keys::<A>(params, 1);
    let mut rng = Csprng::from_seed([2; 32]);
    let encoding = Encoding::new(params.message_bits, false).unwrap();
    let (values, table) = random_table(params, &mut rng);
    let table = glwe::test_vector::<Goldilocks>(params, encoding, &table).unwrap();
    let run = Run { threads, ..ALONE };
    for message in encoding.messages() {
        let sample = words(&keys.client.encrypt(message, encoding, &mut rng).unwrap());
        let out = keys
            .key
            .bootstrap(&keys.switching, &[&table], &sample, run)
            .unwrap();
        let decoded = keys
            .client
            .decrypt(bytemuck::cast_slice(&out[0]), encoding)
            .unwrap();
        assert_eq!(decoded, values[message as usize], "message {message}");
    }
}

#[test]
fn every_message_of_a_random_table_on_the_fast_path() {
    every_message::<Fast>(1);
    every_message::<Fast>(2);
}

#[test]
fn every_message_of_a_random_table_on_the_exact_path() {
    every_message::<Exact>(1);
}

#[test]
fn the_exact_path_is_the_oracles() {
    let params = &TINY_EXACT;
    let (fast, slow) = (keys::<Exact>(params, 3), keys::<Naive>(params, 3));
    let mut rng = Csprng::from_seed([4; 32]);
    let encoding = Encoding::new(params.message_bits, true).unwrap();
    let (_, table) = random_table(params, &mut rng);
    let sample = words(&fast.client.encrypt(-77, encoding, &mut rng).unwrap());
    let [a, b] = [
        fast.key
            .bootstrap(&fast.switching, &[&table], &sample, ALONE),
        slow.key
            .bootstrap(&slow.switching, &[&table], &sample, ALONE),
    ];
    assert_eq!(a.unwrap(), b.unwrap());
}
