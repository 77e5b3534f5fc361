use toroid_task::{CancelToken, Progress};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::{ClientKey, ServerKey, TfheError, generate, generate_with};

use crate::{keys, tiny};

fn written(client: &ClientKey, form: KeyForm, seed: u8) -> Vec<u8> {
    let mut rng = Csprng::from_seed([seed; 32]);
    let progress = Progress::none();
    client
        .write_server_key(Vec::new(), form, &mut rng, &progress)
        .unwrap()
}

#[test]
fn generated_keys_fit_each_other() {
    let (client, server) = generate(&TINY).unwrap();
    assert_eq!(client.tag(), server.tag());
    assert!(server.memory() > 0);
    let x = server
        .apply(|x| x + 1, &client.encrypt(2).unwrap())
        .unwrap();
    assert_eq!(client.decrypt(&x).unwrap(), 3);
}

#[test]
fn a_server_key_comes_back_from_its_bytes_in_both_forms() {
    let sets: [&ParamSet; 3] = [&TINY, &TINY32, &TINY_WOPBS];
    for params in sets {
        let client = ClientKey::generate(params, &mut Csprng::from_seed([1; 32]));
        let mut rng = Csprng::from_seed([2; 32]);
        let server = client
            .server_key_with(ArithmeticKind::Ntt, &mut rng, &Progress::none())
            .unwrap();
        let x = client.encrypt(-3).unwrap();
        let expected = server.apply(|x| 2 - x, &x).unwrap();
        for form in KeyForm::ALL {
            let bytes = written(&client, form, 2);
            let read = ServerKey::read_from(bytes.as_slice(), ArithmeticKind::Ntt).unwrap();
            assert_eq!(read.tag(), client.tag());
            let found = read.apply(|x| 2 - x, &x).unwrap();
            assert_eq!(found.sample(), expected.sample());
            assert_eq!(client.decrypt(&found).unwrap(), 5);
        }
    }
}

#[test]
fn the_parts_of_a_server_key_may_come_in_any_order_and_no_other_way() {
    let client = &tiny().0;
    let bytes = written(client, KeyForm::Seeded, 3);
    let first = 64 + KeyForm::Seeded.bootstrapping_key_bytes(&TINY) as usize;
    let first = first + 4 * (first - 64).div_ceil(1 << 20);
    let (bootstrapping, key_switching) = bytes.split_at(first);
    let read = |parts: [&[u8]; 2]| ServerKey::from_bytes(&parts.concat());
    let server = read([key_switching, bootstrapping]).unwrap();
    let x = server.apply(|x| -x, &client.encrypt(5).unwrap()).unwrap();
    assert_eq!(client.decrypt(&x).unwrap(), -5);

    let text = |result: Result<ServerKey, TfheError>| result.unwrap_err().to_string();
    assert!(text(read([bootstrapping, bootstrapping])).contains("seeded bootstrapping key"));
    assert!(matches!(read([bootstrapping, &[]]), Err(TfheError::Io(_))));
    assert!(
        text(read([
            bootstrapping,
            &client.encrypt(1).unwrap().to_bytes()
        ]))
        .contains("sample")
    );
    let mut version = bootstrapping.to_vec();
    version[8] = 2;
    let crc = crc32c::crc32c(&version[..60]);
    version[60..64].copy_from_slice(&crc.to_le_bytes());
    assert!(text(read([&version, key_switching])).contains("version 2"));
    let mut damaged = bootstrapping.to_vec();
    damaged[1000] ^= 1;
    assert!(text(read([&damaged, key_switching])).contains("damaged"));

    let other = ClientKey::generate(&TINY, &mut Csprng::from_seed([9; 32]));
    let other = written(&other, KeyForm::Seeded, 3);
    let mixed = read([&other[..first], key_switching]);
    assert!(matches!(mixed, Err(TfheError::KeyMismatch(_))));
    let small = ClientKey::generate(&TINY32, &mut Csprng::from_seed([9; 32]));
    let small = written(&small, KeyForm::Seeded, 3);
    let mixed = read([key_switching, &small]);
    assert!(matches!(mixed, Err(TfheError::ParamsMismatch { .. })));
}

#[test]
fn an_unrolled_server_key_computes_and_comes_back_from_its_bytes() {
    for params in [&TINY, &TINY32] {
        let client = ClientKey::generate(params, &mut Csprng::from_seed([5; 32]));
        let generator = || Csprng::from_seed([6; 32]);
        let progress = Progress::none();
        let server = client
            .unrolled_server_key_with(ArithmeticKind::Ntt, &mut generator(), &progress)
            .unwrap();
        assert!(server.assumptions().unrolled);
        let ordinary = client
            .server_key_with(ArithmeticKind::Ntt, &mut generator(), &progress)
            .unwrap();
        assert!(!ordinary.assumptions().unrolled);
        assert!(server.memory() > ordinary.memory());
        let x = client.encrypt(-3).unwrap();
        let expected = server.apply(|x| 2 - x, &x).unwrap();
        assert_eq!(client.decrypt(&expected).unwrap(), 5);
        let variance = |x: &toroid_tfhe::Ciphertext| x.noise().variance();
        assert!(variance(&expected) > variance(&ordinary.apply(|x| 2 - x, &x).unwrap()));

        let bytes = client
            .write_unrolled_server_key(Vec::new(), &mut generator(), &progress)
            .unwrap();
        let read = ServerKey::read_from(bytes.as_slice(), ArithmeticKind::Ntt).unwrap();
        let found = read.apply(|x| 2 - x, &x).unwrap();
        assert_eq!(found.sample(), expected.sample());
        assert!(ServerKey::from_bytes(&bytes[..bytes.len() - 1]).is_err());
    }
    let client = ClientKey::generate(&TINY_WOPBS, &mut Csprng::from_seed([5; 32]));
    let mut rng = Csprng::from_seed([6; 32]);
    let (arithmetic, progress) = (ArithmeticKind::Fft, Progress::none());
    let refused = client.unrolled_server_key_with(arithmetic, &mut rng, &progress);
    assert!(matches!(refused, Err(TfheError::NotUnrolled("tiny-wopbs"))));
    let refused = client.write_unrolled_server_key(Vec::new(), &mut rng, &progress);
    assert!(matches!(refused, Err(TfheError::NotUnrolled("tiny-wopbs"))));
}

#[test]
fn a_client_key_comes_back_from_its_bytes() {
    for params in [&TINY, &TINY32, &TINY_WOPBS] {
        let (client, _) = keys(params, ArithmeticKind::Fft, 4);
        let back = ClientKey::from_bytes(&client.to_bytes()).unwrap();
        assert_eq!(back.tag(), client.tag());
        assert_eq!(back.decrypt(&client.encrypt(2).unwrap()).unwrap(), 2);
    }
    let mut bytes = tiny().0.to_bytes().to_vec();
    assert!(ClientKey::from_bytes(&bytes[1..]).is_err());
    bytes[70] ^= 1;
    assert!(ClientKey::from_bytes(&bytes).is_err());
}

#[test]
fn generation_reports_and_stops() {
    let cancel = CancelToken::new();
    let stop = cancel.clone();
    let progress = Progress::new(move |what, done, total| {
        assert!(done <= total, "{what}");
        stop.cancel();
    })
    .with_cancel(cancel);
    let mut rng = Csprng::from_seed([5; 32]);
    let stopped = generate_with(&TINY, ArithmeticKind::Fft, &mut rng, &progress);
    assert!(matches!(stopped, Err(TfheError::Cancelled)));
}

#[test]
fn a_cancelled_token_stops_bootstraps() {
    let (client, server) = tiny();
    let cancel = CancelToken::new();
    let server = server.clone().with_cancel(cancel.clone()).with_threads(2);
    let x = client.encrypt(1).unwrap();
    assert!(server.apply(|x| x, &x).is_ok());
    cancel.cancel();
    assert!(matches!(server.apply(|x| x, &x), Err(TfheError::Cancelled)));
    assert!(tiny().1.apply(|x| x, &x).is_ok());
}

#[test]
fn clones_compute_on_several_threads() {
    let (client, server) = tiny();
    std::thread::scope(|scope| {
        for message in -4..4 {
            let server = server.clone().with_threads(1);
            scope.spawn(move || {
                let x = client.encrypt(message).unwrap();
                let y = server.apply(|x| x - 1, &x).unwrap();
                assert_eq!(client.decrypt(&y).unwrap(), message - 1);
            });
        }
    });
}
