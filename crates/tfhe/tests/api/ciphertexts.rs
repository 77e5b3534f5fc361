use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::{Noise, StatedNoise};
use toroid_tfhe::params::{GATE, ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::{Ciphertext, ClientKey, TfheError};

fn client(params: &'static ParamSet, seed: u8) -> ClientKey {
    ClientKey::generate(params, &mut Csprng::from_seed([seed; 32]))
}

#[test]
fn every_message_of_both_encodings_is_decrypted() {
    for params in [&TINY, &TINY32, &TINY_WOPBS] {
        let client = client(params, 1);
        for signed in [false, true] {
            let encoding = Encoding::new(params.message_bits, signed).unwrap();
            for message in encoding.messages() {
                let x = client.encrypt_with(encoding, message).unwrap();
                assert_eq!(client.decrypt(&x).unwrap(), message);
                assert_eq!(x.encoding(), Some(encoding));
                assert_eq!(x.params(), params);
            }
            let end = encoding.messages().end;
            let refused = client.encrypt_with(encoding, end);
            assert!(matches!(refused, Err(TfheError::MessageRange { .. })));
        }
    }
}

#[test]
fn bits_and_integers_are_kept_apart() {
    let key = client(&GATE, 1);
    for bit in [false, true] {
        let x = key.encrypt_bit(bit).unwrap();
        assert_eq!(key.decrypt_bit(&x).unwrap(), bit);
        let refused = key.decrypt(&x);
        assert!(matches!(refused, Err(TfheError::EncodingMismatch { .. })));
    }
    assert!(matches!(key.encrypt(1), Err(TfheError::MessageBits(0))));
    let key = client(&TINY, 1);
    let refused = key.decrypt_bit(&key.encrypt(1).unwrap());
    assert!(matches!(refused, Err(TfheError::EncodingMismatch { .. })));
}

#[test]
fn a_ciphertext_comes_back_from_its_bytes() {
    let key = client(&TINY, 1);
    let x = key.encrypt(-5).unwrap();
    let back = Ciphertext::from_bytes(&x.to_bytes()).unwrap();
    assert_eq!(back.sample(), x.sample());
    assert_eq!(back.tag(), Some(key.tag()));
    assert_eq!(back.stated_noise(), StatedNoise::fresh(&TINY));
    assert_eq!(key.decrypt(&back).unwrap(), -5);

    let stated = StatedNoise {
        log2_variance: Some(-20.0),
        log2_failure: Some(-80.0),
    };
    let computed = Ciphertext::from_sample(&TINY, x.encoding(), x.sample(), stated).unwrap();
    let back = Ciphertext::from_bytes(&computed.to_bytes()).unwrap();
    assert_eq!(back.stated_noise(), stated);
    assert_eq!(back.tag(), None);
    assert_eq!(key.decrypt(&back).unwrap(), -5);
    assert!(back.log2_failure() > x.log2_failure());

    let bit = client(&GATE, 1).encrypt_bit(true).unwrap();
    let back = Ciphertext::from_bytes(&bit.to_bytes()).unwrap();
    assert_eq!(back.encoding(), None);
    assert!(client(&GATE, 1).decrypt_bit(&back).unwrap());
}

#[test]
fn damaged_bytes_and_other_objects_are_refused() {
    let key = client(&TINY, 1);
    let bytes = key.encrypt(3).unwrap().to_bytes();
    let refused = |bytes: &[u8]| match Ciphertext::from_bytes(bytes) {
        Err(TfheError::Format(text)) => text,
        other => panic!("{other:?}"),
    };
    let crc = |bytes: &mut [u8]| {
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    };
    let mut version = bytes.clone();
    version[8] = 2;
    crc(&mut version);
    assert!(refused(&version).contains("version 2"));
    let mut set = bytes.clone();
    set[12] = 99;
    crc(&mut set);
    assert!(refused(&set).contains("unknown parameter set"));
    assert!(refused(&bytes[..bytes.len() - 1]).contains("ends in the middle"));
    let file = toroid_tfhe::serialize::write_client_key(Vec::new(), &key).unwrap();
    assert!(refused(&file).contains("a client key"));
}

#[test]
fn other_keys_and_sets_are_refused() {
    let (key, other) = (client(&TINY, 1), client(&TINY, 2));
    let x = key.encrypt(3).unwrap();
    assert!(matches!(other.decrypt(&x), Err(TfheError::KeyMismatch(_))));
    let refused = client(&TINY32, 1).decrypt(&x);
    assert!(matches!(refused, Err(TfheError::ParamsMismatch { .. })));
    let fresh = StatedNoise::fresh(&TINY);
    let unknown = Ciphertext::from_sample(&TINY, x.encoding(), x.sample(), fresh);
    assert_eq!(key.decrypt(&unknown.unwrap()).unwrap(), 3);
}

#[test]
fn a_ciphertext_whose_noise_is_not_stated_is_decrypted_on_demand_alone() {
    let key = client(&TINY, 1);
    let x = key.encrypt(3).unwrap();
    let unstated = StatedNoise::default();
    let unstated = Ciphertext::from_sample(&TINY, x.encoding(), x.sample(), unstated).unwrap();
    let sum = &unstated + &x;
    let back = Ciphertext::from_bytes(&sum.to_bytes()).unwrap();
    for (ciphertext, message) in [(unstated, 3), (sum, 6), (back, 6)] {
        let refused = key.decrypt(&ciphertext);
        assert!(matches!(refused, Err(TfheError::FailureProbability { .. })));
        assert_eq!(key.decrypt_above(&ciphertext, 0.0).unwrap(), message);
    }
    let bit = key.encrypt_bit(true).unwrap();
    let unstated = Ciphertext::from_sample(&TINY, None, bit.sample(), StatedNoise::default());
    assert!(key.decrypt_bit(&unstated.unwrap()).is_err());
}

#[test]
fn a_ciphertext_that_may_well_be_wrong_is_decrypted_on_demand_alone() {
    let key = client(&TINY, 1);
    let x = key.encrypt(3).unwrap();
    let stated = |log2_failure| StatedNoise {
        log2_failure: Some(log2_failure),
        ..StatedNoise::fresh(&TINY)
    };
    let of = |noise| Ciphertext::from_sample(&TINY, x.encoding(), x.sample(), noise).unwrap();
    assert_eq!(key.decrypt(&of(stated(-65.0))).unwrap(), 3);
    for log2_failure in [-63.0, f64::NAN] {
        let refused = key.decrypt(&of(stated(log2_failure)));
        assert!(matches!(refused, Err(TfheError::FailureProbability { .. })));
    }
    assert_eq!(key.decrypt_above(&of(stated(-63.0)), -60.0).unwrap(), 3);
}

#[test]
fn what_encrypts_nothing_is_not_decrypted() {
    let key = client(&TINY, 1);
    let x = key.encrypt(3).unwrap();
    let mut plain = x.sample().to_vec();
    let body = plain.len() - 8;
    plain[..body].fill(0);
    let plain = Ciphertext::from_sample(&TINY, x.encoding(), &plain, StatedNoise::fresh(&TINY));
    let refused = key.decrypt_above(&plain.unwrap(), 0.0);
    assert!(matches!(refused, Err(TfheError::NotEncrypted(_))));
}

#[test]
fn a_computed_sample_that_was_stored_shares_its_noise_with_others_whatever_its_flag_says() {
    let fresh = TINY.lwe_variance();
    let one = Noise::stored(&TINY, fresh, f64::NEG_INFINITY, false);
    let other = Noise::stored(&TINY, 9.0 * fresh, f64::NEG_INFINITY, false);
    let result = Noise::stored(&TINY, fresh, -80.0, false);
    let close = |noise: Noise, factor: f64| (noise.variance() / fresh - factor).abs() < 1e-6;
    let again = Noise::stored(&TINY, fresh, f64::NEG_INFINITY, false);
    assert!(close(one.plus(&again, 1.0), 2.0));
    assert!(close(result.plus(&other, 1.0), 16.0));
}

#[test]
fn copies_of_a_fresh_ciphertext_are_one_source_of_noise() {
    let x = client(&TINY, 1).encrypt(3).unwrap();
    let (a, b) = (
        Ciphertext::from_bytes(&x.to_bytes()).unwrap(),
        Ciphertext::from_bytes(&x.to_bytes()).unwrap(),
    );
    let one = x.noise().variance();
    for (left, right) in [(&a, &b), (&x, &a)] {
        let sum = (left + right).noise().variance();
        assert!((sum / one - 4.0).abs() < 1e-9, "{}", sum / one);
    }
    let other = client(&TINY, 1).encrypt(3).unwrap();
    let sum = (&a + &other).noise().variance();
    assert!((sum / one - 2.0).abs() < 1e-9, "{}", sum / one);
}
