//! Secret keys: where their bits come from, and bits that come from elsewhere.

use toroid_task::Progress;
use toroid_tfhe::ClientKey;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe::GlweSecretKey;
use toroid_tfhe::key_bits;
use toroid_tfhe::lwe::LweSecretKey;
use toroid_tfhe::modulus::{Goldilocks, Torus32};
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::{KeyForm, SEED_BYTES};

fn rng() -> Csprng {
    Csprng::from_seed([21; 32])
}

#[test]
fn tags_and_masks_take_nothing_from_the_stream_of_secrets() {
    let (mut a, mut b) = (rng(), rng());
    let client = ClientKey::generate(&TINY, &mut a);
    let mut bits = vec![0; TINY.lwe_dimension];
    b.fill_bits(&mut bits);
    assert_eq!(client.lwe().bits(), bits);

    let (mut a, mut b) = (rng(), rng());
    let encoding = Encoding::new(4, true).unwrap();
    client.encrypt_sample(3, encoding, &mut a).unwrap();
    b.add_noise::<Goldilocks>(TINY.log2_lwe_noise, &mut [0]);
    assert_eq!(a.next_u64(), b.next_u64());
}

#[test]
fn a_key_is_made_again_from_its_bits() {
    for params in [&TINY, &TINY_WOPBS] {
        let client = ClientKey::generate(params, &mut rng());
        let lwe = client.small_keys().iter();
        let lwe = lwe
            .map(|key| LweSecretKey::from_bits(key.bits()).unwrap())
            .collect();
        let glwe = client.glwe();
        let glwe = GlweSecretKey::from_bits(glwe.bits(), glwe.ring_degree()).unwrap();
        let again = ClientKey::from_keys(params, lwe, glwe, &mut rng()).unwrap();
        let encoding = client.encoding().unwrap();
        let sample = client.encrypt_sample(3, encoding, &mut rng()).unwrap();
        assert_eq!(again.decrypt_sample(&sample, encoding).unwrap(), 3);
    }
}

#[test]
fn key_bits_are_text_that_gives_the_key_again() {
    for params in [&TINY, &TINY32, &TINY_WOPBS] {
        let client = ClientKey::generate(params, &mut rng());
        let text = key_bits::to_text(&client);
        let again = key_bits::from_text(&text, &mut rng()).unwrap();
        assert_eq!(*key_bits::to_text(&again), *text);
        assert_eq!(again.tag(), client.tag());
        // The lines are what their names say.
        let lines: Vec<&str> = text.lines().collect();
        let bits = |bits: &[u64]| bits.iter().map(u64::to_string).collect::<String>();
        let keys = client.small_keys();
        for (line, key) in lines[3..].iter().zip(keys) {
            assert_eq!(*line, format!("lwe {}", bits(key.bits())));
        }
        let polynomials = client.glwe().bits().chunks(params.ring_degree);
        let polynomials: Vec<_> = polynomials.map(|p| format!("glwe {}", bits(p))).collect();
        assert_eq!(lines[3 + keys.len()..], polynomials);
        // A key from elsewhere has no tag yet.
        let foreign = text.replace(lines[2], "tag -");
        let foreign = key_bits::from_text(&foreign, &mut Csprng::from_seed([22; 32])).unwrap();
        assert_ne!(foreign.tag(), client.tag());
        assert_eq!(foreign.lwe().bits(), client.lwe().bits());
    }
    for params in ParamSet::ALL {
        let bits = params.extracted_dimension() + 4 * params.lwe_dimension;
        assert!(bits + 1024 < key_bits::MAX_TEXT, "{}", params.name);
    }
}

#[test]
fn malformed_key_bits_are_refused() {
    let client = ClientKey::generate(&TINY, &mut rng());
    let text = key_bits::to_text(&client);
    let lines: Vec<&str> = text.lines().collect();
    let zeros = format!("lwe {}", "0".repeat(TINY.lwe_dimension));
    let two = lines[3].replacen('1', "2", 1);
    for (wrong, words) in [
        (String::new(), "lack the line \"toroid key bits 1\""),
        (text.replacen("bits 1", "bits 12", 1), "version"),
        (text.replacen("params tiny", "params huge", 1), "\"huge\""),
        (
            text.replacen("params tiny", "params tiny32", 1),
            "tiny32 has",
        ),
        (text.replacen("tag ", "tag +", 1), "tag"),
        (
            text.replacen(lines[2], "tag 0é0000000000000000000000000000", 1),
            "tag",
        ),
        (text.replacen("\nlwe", "\nglwe", 1), "lack the line \"lwe\""),
        (
            text.replacen(lines[3], &lines[3][..lines[3].len() - 1], 1),
            "bits in a line",
        ),
        (text.replacen(lines[3], &two, 1), "other than 0 and 1"),
        (text.replacen(lines[3], &zeros, 1), "are 0"),
        (text.replace('\n', "\r\n"), "version"),
        (text.trim_end().to_owned(), "without a line feed"),
        (format!("{}\n", *text), "go on"),
        (format!("{}glwe 1\n", *text), "go on"),
    ] {
        let error = key_bits::from_text(&wrong, &mut rng()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}: {words}");
    }
}

#[test]
fn rows_in_the_coefficient_domain_are_the_bootstrapping_key() {
    for params in [&TINY, &TINY_WOPBS] {
        let client = ClientKey::generate(params, &mut rng());
        let (mut bodies, mut words) = (Vec::new(), 0);
        let go_on = Progress::none();
        client
            .bootstrapping_key_rows::<Goldilocks>(&mut rng(), &go_on, |rows| {
                words += rows.len();
                let row = params.glwe_words();
                for row in rows.chunks_exact(row) {
                    bodies.extend_from_slice(&row[params.extracted_dimension()..]);
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(8 * words as u64, params.bootstrapping_key_bytes());
        // The seeded form has the same bodies, behind a seed in each part.
        let mut seeded = Vec::new();
        client
            .bootstrapping_key(KeyForm::SeededWords, &mut rng(), &go_on, &mut |bytes| {
                if bytes.len() != SEED_BYTES {
                    seeded.extend_from_slice(bytes);
                }
                Ok(())
            })
            .unwrap();
        assert!(seeded == bytemuck::cast_slice::<u64, u8>(&bodies));
        let refused = client.bootstrapping_key_rows::<Torus32>(&mut rng(), &go_on, |_| Ok(()));
        assert!(refused.is_err());
    }
}

#[test]
fn what_is_no_key_is_refused() {
    for bits in [&[0, 0, 0, 0][..], &[0, 1, 2, 0], &[u64::MAX; 4], &[]] {
        assert!(LweSecretKey::from_bits(bits).is_err(), "{bits:?}");
        assert!(GlweSecretKey::from_bits(bits, 2).is_err(), "{bits:?}");
    }
    assert!(GlweSecretKey::from_bits(&[0, 1, 0], 2).is_err());
    assert!(GlweSecretKey::from_bits(&[0, 1], 0).is_err());
    let client = ClientKey::generate(&TINY, &mut rng());
    let glwe = client.glwe().clone();
    let short = LweSecretKey::from_bits(&client.lwe().bits()[1..]).unwrap();
    assert!(ClientKey::from_keys(&TINY, vec![short], glwe.clone(), &mut rng()).is_err());
    assert!(ClientKey::from_keys(&TINY, vec![], glwe, &mut rng()).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn key_bits_are_locked_and_left_out_of_core_dumps() {
    let client = ClientKey::generate(&TINY, &mut rng());
    let address = client.lwe().bits().as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| {
        let range = line.split(' ').next().unwrap().split_once('-');
        !range.is_some_and(|(from, to)| {
            let number = |text| usize::from_str_radix(text, 16);
            matches!((number(from), number(to)), (Ok(from), Ok(to)) if (from..to).contains(&address))
        })
    });
    let flags = lines
        .find_map(|line| line.strip_prefix("VmFlags:"))
        .unwrap();
    let flags: Vec<_> = flags.split_whitespace().collect();
    assert!(flags.contains(&"dd"), "{flags:?}");
    assert_eq!(flags.contains(&"lo"), client.is_locked(), "{flags:?}");
}
