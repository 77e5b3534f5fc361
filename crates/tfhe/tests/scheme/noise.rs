//! The noise formulas against measured noise, on the small sets.
//!
//! A variance estimated from S independent Gaussian samples has a relative standard error of sqrt(2/S). With S = 4000
//! (40 keys, 100 samples each) that is 2.2 %; the tests allow five times this, an error of about 6e-7 a comparison.
//! The large sets are measured by the example `measure`.

use crate::common::{Server, encrypt, function};
use toroid_ring::simd::Isa;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::noise::{self, Path};
use toroid_tfhe::params::{ParamSet, TINY, TINY32};
use toroid_tfhe::product::{Arithmetic, Exact, Fast};
use toroid_tfhe::random::Csprng;

const KEYS: u8 = 40;
const SAMPLES: usize = 100;

/// Mean square over all samples, as a fraction of the formula's variance.
fn check(what: &str, squares: &[f64], formula: f64) {
    let count = squares.len() as f64;
    let ratio = squares.iter().sum::<f64>() / count / formula;
    let tolerance = 5.0 * (2.0 / count).sqrt();
    assert!(
        (ratio - 1.0).abs() < tolerance,
        "{what}: measured/formula {ratio}, allowed 1 ± {tolerance}"
    );
}

fn fraction<M: Modulus>(word: M::Word) -> f64 {
    M::centered(word) as f64 / M::KIND.log2().exp2()
}

fn stages<M: Modulus, A: Arithmetic<M>>(params: &'static ParamSet) {
    let encoding = Encoding::new(params.message_bits, true).unwrap();
    let (mut fresh, mut rotated, mut switched, mut whole) = (vec![], vec![], vec![], vec![]);
    for seed in 0..KEYS {
        let mut rng = Csprng::from_seed([seed; 32]);
        let client = ClientKey::generate(params, &mut rng);
        let server = Server::<M, A>::new(&client, seed + 100, Isa::best());
        let tv = function::<M>(params, encoding, |m| m);
        let extracted_key = client.glwe().extracted_key().unwrap();
        let mut extracted = vec![M::Word::default(); params.extracted_dimension() + 1];
        let mut out = vec![M::Word::default(); params.tlwe_words()];
        for i in 0..SAMPLES {
            let range = encoding.messages();
            let message = range.start + (i as i64) % (range.end - range.start);
            let expected = encoding.encode::<M>(message).unwrap();
            let sample = encrypt::<M>(&client, message, encoding, &mut rng);
            fresh.push(fraction::<M>(M::sub(client.lwe().phase::<M>(&sample), expected)).powi(2));
            server
                .bootstrapping
                .blind_rotate(&tv, &sample, &mut extracted, &|| false)
                .unwrap();
            let phase = extracted_key.phase::<M>(&extracted);
            rotated.push(fraction::<M>(M::sub(phase, expected)).powi(2));
            server.key_switching.switch(&extracted, &mut out);
            let after = client.lwe().phase::<M>(&out);
            switched.push(fraction::<M>(M::sub(after, phase)).powi(2));
            whole.push(fraction::<M>(M::sub(after, expected)).powi(2));
        }
    }
    let name = params.name;
    check(
        &format!("{name}: encryption"),
        &fresh,
        params.lwe_variance(),
    );
    check(
        &format!("{name}: blind rotation"),
        &rotated,
        noise::blind_rotation_variance(params, A::PATH),
    );
    check(
        &format!("{name}: key switch"),
        &switched,
        noise::key_switch_variance(params),
    );
    check(
        &format!("{name}: bootstrap"),
        &whole,
        noise::bootstrap_output_variance(params, A::PATH),
    );
}

#[test]
fn every_stage_of_tiny_has_the_variance_of_its_formula() {
    stages::<Goldilocks, Exact>(&TINY);
    stages::<Goldilocks, Fast>(&TINY);
}

#[test]
fn every_stage_of_tiny32_has_the_variance_of_its_formula() {
    stages::<Torus32, Exact>(&TINY32);
    stages::<Torus32, Fast>(&TINY32);
}

#[test]
fn the_stated_failure_probabilities_hold() {
    for params in ParamSet::ALL {
        let (bits, norm2, bound) = match params.name {
            "paper" => (4, 1.0, -64.0),
            "message7" => (7, 2.0, -60.0),
            "message4" => (4, 17.0, -128.0),
            _ => continue,
        };
        let found = params.log2_failure(bits, norm2);
        assert!(found <= bound, "{}: 2^{found} for {bits} bits", params.name);
    }
    let gate = ParamSet::by_name("gate").unwrap();
    // XOR: twice the sum of two bootstrapped samples, against a margin of 1/4: the same ratio as the others.
    let input = 2.0 * noise::bootstrap_output_variance(gate, Path::Fast);
    let failure = noise::log2_tail(
        noise::GATE_MARGIN,
        input + noise::modulus_switch_variance(gate),
    );
    assert!(failure <= -128.0, "gate: 2^{failure}");
}

#[test]
fn tails_are_those_of_the_normal_distribution() {
    // Standard values of 2(1 - Phi(z)).
    for (z, expected) in [
        (1.0, 0.317_310_507_862_914_f64),
        (2.0, 0.045_500_263_896_358_4),
        (5.0, 5.733_031_437_583_878e-7),
        (6.0, 1.973_175_290_075_396e-9),
        (8.0, 1.244_192_114_854_357e-15),
        (10.0, 1.523_970_604_832_105e-23),
    ] {
        let found = noise::log2_tail(z, 1.0);
        assert!(
            (found - expected.log2()).abs() < 0.01,
            "z = {z}: {found}, {}",
            expected.log2()
        );
    }
}
