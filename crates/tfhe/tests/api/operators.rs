use proptest::prelude::*;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::log2_bootstrap_failure;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::{Ciphertext, TfheError};

use crate::{keys, tiny};

/// A value as an encoding reads it over the whole torus.
fn wrapped(encoding: Encoding, value: i64) -> i64 {
    let outputs = encoding.outputs();
    (value - outputs.start).rem_euclid(outputs.end - outputs.start) + outputs.start
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn operators_are_those_of_integers(a: i64, b: i64, clear in -1000i64..1000, factor in -3i32..=3, signed: bool) {
        let (client, _) = tiny();
        let encoding = Encoding::new(4, signed).unwrap();
        let start = encoding.messages().start;
        let (a, b) = (a.rem_euclid(16) + start, b.rem_euclid(16) + start);
        let x = &client.encrypt_with(encoding, a).unwrap();
        let y = &client.encrypt_with(encoding, b).unwrap();
        let check = |result: Ciphertext, value: i64| {
            assert_eq!(client.decrypt(&result).unwrap(), wrapped(encoding, value));
        };
        check(x + y, a + b);
        check(x - y, a - b);
        check(-x, -a);
        check(x + clear, a + clear);
        check(x - clear, a - clear);
        check(x * factor, a * i64::from(factor));
        check(x.clone() * 2 - y + 1, 2 * a - b + 1);
        let mut sum = x.clone();
        sum += y;
        sum -= &(x + x);
        check(sum, b - a);
    }

    #[test]
    fn functions_are_those_of_integers(message in -8i64..8, table in proptest::collection::vec(-16i64..16, 16)) {
        let (client, server) = tiny();
        let f = |x: i64| table[(x + 8) as usize];
        let x = client.encrypt(message).unwrap();
        let y = server.apply(f, &x).unwrap();
        prop_assert_eq!(client.decrypt(&y).unwrap(), f(message));
    }
}

#[test]
fn noise_follows_the_operations() {
    let (client, server) = tiny();
    let x = client.encrypt(1).unwrap();
    let fresh = x.noise().variance();
    assert!((fresh / TINY.lwe_variance() - 1.0).abs() < 1e-9);
    assert!(((&x + &x).noise().variance() / fresh - 4.0).abs() < 1e-9);
    assert!(((&x * -3).noise().variance() / fresh - 9.0).abs() < 1e-9);
    assert_eq!((&x - &x).noise().variance(), 0.0);
    let y = server.apply(|x| x, &(&x * 2)).unwrap();
    assert!(y.log2_failure() > x.log2_failure());
    assert!(y.log2_failure() < -40.0);
    assert!(y.stated_noise().log2_failure.is_some());
}

#[test]
fn every_set_and_arithmetic_applies_functions() {
    let f = |x: i64| x * x - 3;
    for params in [&TINY, &TINY32, &TINY_WOPBS] {
        for arithmetic in [ArithmeticKind::Ntt, ArithmeticKind::Fft] {
            let (client, server) = keys(params, arithmetic, 5);
            assert_eq!(server.params(), params);
            assert_eq!(server.arithmetic(), arithmetic);
            for signed in [true, false] {
                let encoding = Encoding::new(params.message_bits, signed).unwrap();
                for message in encoding.messages().step_by(3) {
                    let x = client.encrypt_with(encoding, message).unwrap();
                    let y = server.apply(f, &x).unwrap();
                    let expected = wrapped(encoding, f(message));
                    assert_eq!(client.decrypt(&y).unwrap(), expected, "{message}");
                }
            }
        }
    }
}

#[test]
fn many_functions_and_many_arguments_are_those_one_by_one() {
    for params in [&TINY, &TINY_WOPBS] {
        let (client, server) = keys(params, ArithmeticKind::Ntt, 6);
        let (f, g) = (|x: i64| x / 3, |x: i64| x * x - 5);
        let x = client.encrypt(-7).unwrap();
        let [y, z] = server.apply_many([&f, &g], &x).unwrap();
        assert_eq!(y.sample(), server.apply(f, &x).unwrap().sample());
        assert_eq!(z.sample(), server.apply(g, &x).unwrap().sample());
        let arguments = [client.encrypt(2).unwrap(), x, client.encrypt(7).unwrap()];
        let batch = server.apply_batch(g, &arguments).unwrap();
        for (argument, result) in arguments.iter().zip(&batch) {
            let alone = server.clone().with_threads(1).apply(g, argument).unwrap();
            assert_eq!(result.sample(), alone.sample());
        }
        assert!(server.apply_batch(g, &[]).unwrap().is_empty());
    }
}

fn all_pairs(params: &'static ParamSet, signed: bool, (p, q): (u32, u32), own_scale: bool) {
    let (client, server) = &keys(params, ArithmeticKind::Fft, 7);
    let both = Encoding::new(p + q, signed).unwrap();
    let f = |x: i64, y: i64| (3 * x - 2 * y + i64::from(x < y)).rem_euclid(1 << (p + q));
    for x in Encoding::new(p, signed).unwrap().messages() {
        for y in Encoding::new(q, signed).unwrap().messages() {
            let upper = if own_scale {
                Encoding::new(p, signed).unwrap()
            } else {
                both
            };
            let a = client.encrypt_with(upper, x).unwrap();
            let b = client.encrypt_with(both, y).unwrap();
            let result = server.apply2(f, &a, &b).unwrap();
            let expected = wrapped(both, f(x, y));
            assert_eq!(client.decrypt(&result).unwrap(), expected, "{x}, {y}");
        }
    }
}

#[test]
fn functions_of_two_arguments_are_right_for_all_pairs() {
    all_pairs(&TINY, true, (2, 2), false);
    all_pairs(&TINY, false, (2, 2), true);
    all_pairs(&TINY, true, (1, 3), true);
    all_pairs(&TINY32, false, (2, 1), false);
    // Narrower than the set's messages.
    all_pairs(&TINY_WOPBS, true, (2, 2), false);
    all_pairs(&TINY_WOPBS, false, (1, 3), true);
}

/// A wide function of a narrow ciphertext reads its bits, and fails as rarely as that says.
#[test]
fn narrow_ciphertexts_have_a_failure_probability_of_their_own() {
    let (client, server) = keys(&TINY_WOPBS, ArithmeticKind::Ntt, 8);
    let fails = |bits| {
        let encoding = Encoding::new(bits, false).unwrap();
        let x = client.encrypt_with(encoding, 1).unwrap();
        let results = [
            server.apply(|x| x ^ 1, &x).unwrap(),
            server.apply_many([&|x| x ^ 1], &x).unwrap()[0].clone(),
            server.apply_batch(|x| x ^ 1, &[x]).unwrap()[0].clone(),
        ];
        for result in &results {
            assert_eq!(client.decrypt(result).unwrap(), 0);
            let variance = TINY_WOPBS.lwe_variance();
            let formula = log2_bootstrap_failure(&TINY_WOPBS, ArithmeticKind::Ntt, bits, variance);
            assert!((result.noise().log2_failure() - formula).abs() < 1e-6);
        }
        results[0].noise().log2_failure()
    };
    let failures = [1, 3, TINY_WOPBS.message_bits].map(fails);
    assert!(failures.is_sorted() && failures[0] < failures[2] - 1.0);
    let wide = Encoding::new(TINY_WOPBS.message_bits + 1, false).unwrap();
    let x = client.encrypt_with(wide, 1).unwrap();
    let refused = server.apply(|x| x, &x);
    assert!(matches!(refused, Err(TfheError::MessageTooWide { .. })));
}

#[test]
fn functions_take_and_give_other_encodings() {
    let (client, server) = tiny();
    let (wide, narrow) = (
        Encoding::new(4, false).unwrap(),
        Encoding::new(2, true).unwrap(),
    );
    let x = client.encrypt_with(wide, 13).unwrap();
    let y = server.apply_to(narrow, |x| -i64::from(x > 9), &x).unwrap();
    assert_eq!(y.encoding(), Some(narrow));
    assert_eq!(client.decrypt(&y).unwrap(), -1);
    let wide = Encoding::new(10, true).unwrap();
    let x = client.encrypt_with(wide, 1).unwrap();
    let refused = server.apply(|x| x, &x);
    assert!(matches!(refused, Err(TfheError::FunctionTooWide { .. })));
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let (client, server) = tiny();
    let (other, other_server) = keys(&TINY, ArithmeticKind::Fft, 8);
    let (x, y) = (client.encrypt(1).unwrap(), other.encrypt(1).unwrap());
    assert!(matches!(x.checked_add(&y), Err(TfheError::KeyMismatch(_))));
    let refused = other_server.apply(|x| x, &x);
    assert!(matches!(refused, Err(TfheError::KeyMismatch(_))));
    let refused = server.apply2(|x, y| x + y, &x, &y);
    assert!(matches!(refused, Err(TfheError::KeyMismatch(_))));

    let unsigned = Encoding::new(4, false).unwrap();
    let z = client.encrypt_with(unsigned, 1).unwrap();
    let mismatch = |result| matches!(result, Err(TfheError::EncodingMismatch { .. }));
    assert!(mismatch(x.checked_add(&z)));
    assert!(mismatch(x.checked_sub(&z)));
    assert!(mismatch(server.apply2(|x, y| x + y, &x, &z)));
    let bit = client.encrypt_bit(true).unwrap();
    assert!(mismatch(bit.checked_add(&bit)));
    assert!(mismatch(bit.checked_add_clear(1)));
    assert!(mismatch(bit.checked_mul_clear(2)));
    assert!(mismatch(server.apply(|x| x, &bit)));
    assert!(mismatch(x.checked_not()));
    assert!(mismatch(server.nand(&x, &bit)));

    let (small, _) = keys(&TINY32, ArithmeticKind::Fft, 9);
    let signed = Encoding::new(4, true).unwrap();
    let x32 = small.encrypt_with(signed, 1).unwrap();
    assert!(matches!(
        x.checked_add(&x32),
        Err(TfheError::ParamsMismatch { .. })
    ));
    assert!(matches!(
        server.apply(|x| x, &x32),
        Err(TfheError::ParamsMismatch { .. })
    ));
}

#[test]
#[should_panic(expected = "belongs to another client key")]
fn operators_panic_where_checked_ones_refuse() {
    let (other, _) = keys(&TINY, ArithmeticKind::Fft, 8);
    let _ = tiny().0.encrypt(1).unwrap() + other.encrypt(1).unwrap();
}
