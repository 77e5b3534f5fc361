//! Ciphertexts: every operation decrypts to what it does to the plaintext.

use std::sync::Arc;

use toroid_rns::automorphism::{conjugation_exponent, rotation_exponent};
use toroid_rns::ciphertext::{SCALE_TOLERANCE, Tensor};
use toroid_rns::{
    Basis, Ciphertext, Context, EvaluationKeys, Extended, KeyRequest, KeySwitchKey, Plaintext,
    RnsError, RnsParams, RnsPoly, SecretKey,
};
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::random::Csprng;

use crate::oracle::{contexts, negacyclic, substitute};

const DEGREE: usize = 64;
const LIMBS: usize = 5;
const SCALE: f64 = (1u64 << 40) as f64;

struct Fixture {
    context: Arc<Context>,
    secret: SecretKey,
    keys: EvaluationKeys,
    rng: Csprng,
}

fn request() -> KeyRequest {
    KeyRequest {
        relinearization: Some(LIMBS),
        conjugation: Some(LIMBS),
        rotations: vec![(1, LIMBS), (-3, LIMBS), (5, 2), (0, LIMBS)],
        mod_raise: true,
    }
}

fn fixture_of(context: &Arc<Context>) -> Fixture {
    let mut rng = Csprng::from_seed([7; 32]);
    let secret = SecretKey::generate(context, &mut rng);
    let keys = EvaluationKeys::generate(&secret, &request(), &mut rng, &Progress::none()).unwrap();
    Fixture {
        context: Arc::clone(context),
        secret,
        keys,
        rng,
    }
}

fn fixture() -> Fixture {
    fixture_of(&Context::new(RnsParams::uniform(DEGREE, LIMBS, 2).unwrap()).unwrap())
}

/// Coefficients of 5 bits, so that products at the square of the scale stay below 2^97.
fn message(seed: i128) -> Vec<i128> {
    (0..DEGREE as i128)
        .map(|i| (i * i * 37 + seed * 101 + i * seed) % 32 - 16)
        .collect()
}

fn scaled(message: &[i128], factor: i128) -> Vec<i128> {
    message.iter().map(|c| c * factor).collect()
}

impl Fixture {
    fn plain(&self, message: &[i128], limbs: usize, scale: f64) -> Plaintext {
        let coefficients = scaled(message, scale as i128);
        let basis = Basis::chain(limbs);
        Plaintext::new(
            RnsPoly::from_i128(&self.context, basis, &coefficients).unwrap(),
            scale,
        )
    }

    fn encrypt(&mut self, message: &[i128], limbs: usize) -> Ciphertext {
        let plaintext = self.plain(message, limbs, SCALE);
        self.secret.encrypt(&plaintext, &mut self.rng).unwrap()
    }

    /// Checks that a ciphertext holds a message to within `error` of its unit.
    fn check(&self, ciphertext: &Ciphertext, expected: &[i128], error: f64) {
        let found = self.secret.decrypt(ciphertext).unwrap();
        for (found, expected) in found.poly().to_i128().iter().zip(expected) {
            let found = *found as f64 / ciphertext.scale();
            let difference = (found - *expected as f64).abs();
            assert!(difference < error, "{found} instead of {expected}");
        }
    }
}

#[test]
fn fresh_ciphertexts_decrypt() {
    let mut f = fixture();
    for limbs in 1..=LIMBS {
        let m = message(limbs as i128);
        let plaintext = f.plain(&m, limbs, SCALE);
        let seeded = f.secret.encrypt_seeded(&plaintext, &mut f.rng).unwrap();
        f.check(&seeded.expand(), &m, 1e-9);
        let mut ciphertext = f.encrypt(&m, limbs);
        f.check(&ciphertext, &m, 1e-9);
        let again = f.encrypt(&m, limbs);
        assert_ne!(ciphertext, again);
        ciphertext.drop_to(1).unwrap();
        f.check(&ciphertext, &m, 1e-9);
    }
    let other = fixture();
    let m = f.encrypt(&message(1), 2);
    assert!(matches!(other.secret.decrypt(&m), Err(RnsError::Context)));
    assert!(matches!(other.keys.rotate(&m, 1), Err(RnsError::Context)));
}

#[test]
fn linear_operations() {
    let mut f = fixture();
    let (m, n) = (message(1), message(2));
    let (x, y) = (f.encrypt(&m, LIMBS), f.encrypt(&n, 3));
    let sum = |sign: i128| -> Vec<i128> { m.iter().zip(&n).map(|(a, b)| a + sign * b).collect() };
    let mut z = x.clone();
    z.add_assign(&y).unwrap();
    assert_eq!(z.limbs(), 3);
    f.check(&z, &sum(1), 1e-9);
    let mut z = y.clone();
    z.sub_assign(&x).unwrap();
    z.neg_assign();
    f.check(&z, &sum(-1), 1e-9);
    let plaintext = f.plain(&n, LIMBS, SCALE);
    let mut z = x.clone();
    z.add_plain(&plaintext).unwrap();
    f.check(&z, &sum(1), 1e-9);
    z.sub_plain(&plaintext).unwrap();
    z.sub_plain(&plaintext).unwrap();
    f.check(&z, &sum(-1), 1e-9);
    let mut z = x.clone();
    z.mul_scalar(-5);
    z.add_scalar(17 * SCALE as i128);
    let mut expected = scaled(&m, -5);
    expected[0] += 17;
    f.check(&z, &expected, 1e-9);
    let mut z = x.clone();
    z.mul_monomial(3);
    let mut cube = vec![0; DEGREE];
    cube[3] = 1;
    f.check(&z, &negacyclic(&m, &cube), 1e-9);
    let small = f.plain(&n, LIMBS, 1024.0);
    let mut z = x.clone();
    z.mul_plain(&small).unwrap();
    let product = negacyclic(&m, &n);
    f.check(&z, &product, 1e-6);
    z.mul_plain_add(&x, &small).unwrap();
    f.check(&z, &scaled(&product, 2), 1e-6);
    let mut zero = Ciphertext::zero(&f.context, 2, SCALE);
    zero.add_assign(&x).unwrap();
    f.check(&zero, &m, 1e-9);
}

#[test]
fn products_and_rescaling() {
    let mut f = fixture();
    let (m, n) = (message(3), message(4));
    let (x, y) = (f.encrypt(&m, LIMBS), f.encrypt(&n, LIMBS));
    let product = negacyclic(&m, &n);
    let z = f.keys.mul(&x, &y).unwrap();
    assert_eq!(z.scale(), SCALE * SCALE);
    f.check(&z, &product, 1e-5);
    let z = z.rescale(1).unwrap();
    assert_eq!(
        (z.limbs(), z.b().basis()),
        (LIMBS - 1, Basis::chain(LIMBS - 1))
    );
    let expected = SCALE * SCALE / f.context.params().chain[LIMBS - 1] as f64;
    assert!((z.scale() / expected - 1.0).abs() < SCALE_TOLERANCE);
    // The scale is 2^31 now.
    f.check(&z, &product, 1e-5);
    let square = f.keys.square(&x).unwrap();
    f.check(&square, &negacyclic(&m, &m), 1e-5);
    let mut tensor = x.tensor(&y).unwrap();
    tensor.add_assign(&y.tensor(&y).unwrap()).unwrap();
    let mut own = x.clone();
    own.mul_scalar(SCALE as i128);
    own.set_scale(SCALE * SCALE);
    tensor.add_ciphertext(&own).unwrap();
    let expected: Vec<i128> = (product.iter().zip(negacyclic(&n, &n)).zip(&m))
        .map(|((p, s), m)| p + s + m)
        .collect();
    f.check(&f.keys.relinearize(&tensor).unwrap(), &expected, 1e-5);
    // At fewer limbs, with a partial last digit, and rescaled by several primes.
    for limbs in 2..LIMBS {
        let (mut x, mut y) = (x.clone(), y.clone());
        x.drop_to(limbs).unwrap();
        let z = f.keys.mul(&x, &y).unwrap();
        f.check(&z, &product, 1e-5);
        y.mul_scalar(SCALE as i128);
        y.set_scale(SCALE * SCALE);
        let z = f.keys.mul(&x, &y).unwrap();
        if limbs > 2 {
            let z = z.rescale(2).unwrap();
            assert_eq!(z.limbs(), limbs - 2);
            f.check(&z, &product, 0.1);
        }
    }
}

#[test]
fn one_division_relinearizes_and_rescales() {
    let mut f = fixture();
    let (x, y) = (f.encrypt(&message(3), LIMBS), f.encrypt(&message(4), LIMBS));
    let tensor = x.tensor(&y).unwrap();
    let once = f.keys.relinearize_rescale(&tensor).unwrap();
    let twice = f.keys.relinearize(&tensor).unwrap().rescale(1).unwrap();
    assert_eq!((once.limbs(), once.scale()), (twice.limbs(), twice.scale()));
    for (once, twice) in [(once.b(), twice.b()), (once.a(), twice.a())] {
        let mut difference = once.clone();
        difference.sub_assign(twice);
        assert!(difference.to_i128().iter().all(|d| d.abs() <= 1));
    }
    let turned = f.keys.rotate_rescale(&x, 1).unwrap();
    let twice = f.keys.rotate(&x, 1).unwrap().rescale(1).unwrap();
    assert_eq!(
        (turned.limbs(), turned.scale()),
        (twice.limbs(), twice.scale())
    );
    for (once, twice) in [(turned.b(), twice.b()), (turned.a(), twice.a())] {
        let mut difference = once.clone();
        difference.sub_assign(twice);
        assert!(difference.to_i128().iter().all(|d| d.abs() <= 1));
    }
    assert!(f.keys.rotate_rescale(&x, 0).unwrap() == x.clone().rescale(1).unwrap());
    let low = f.encrypt(&message(3), 1);
    assert!(matches!(
        f.keys.rotate_rescale(&low, 1),
        Err(RnsError::Limbs { .. })
    ));
    let refused = f.keys.relinearize_rescale(&low.tensor(&low).unwrap());
    assert!(matches!(refused, Err(RnsError::Limbs { .. })));
}

#[test]
fn sums_of_products_are_those_of_each() {
    let mut f = fixture();
    let values: Vec<_> = (0..6).map(|i| f.encrypt(&message(i), LIMBS)).collect();
    for count in [1, 2, 6, 15, 31] {
        let pairs: Vec<_> = (0..count)
            .map(|i| (&values[i % 6], &values[(i * i + 1) % 6]))
            .collect();
        let mut expected = pairs[0].0.tensor(pairs[0].1).unwrap();
        for (x, y) in &pairs[1..] {
            expected.add_assign(&x.tensor(y).unwrap()).unwrap();
        }
        assert!(Tensor::sum(&pairs).unwrap() == expected, "{count}");
        let rescaled = f.keys.relinearize_rescale(&expected).unwrap();
        let at_once = f.keys.products_rescale(&pairs).unwrap();
        assert!(at_once == rescaled, "{count}");
    }
    let copy = values[0].clone();
    let square = Tensor::sum(&[(&values[0], &values[0])]).unwrap();
    assert!(square == values[0].tensor(&copy).unwrap());
    let mut other = copy;
    other.set_scale(2.0 * SCALE);
    let rescaled = f.keys.relinearize_rescale(&square).unwrap();
    let at_once = f.keys.products_rescale(&[(&values[0], &values[0])]);
    assert!(at_once.unwrap() == rescaled);
    let refused = Tensor::sum(&[(&values[0], &values[0]), (&other, &values[0])]);
    assert!(matches!(refused, Err(RnsError::Scale { .. })));
}

#[test]
fn rotations_and_conjugation() {
    let mut f = fixture();
    let m = message(5);
    let x = f.encrypt(&m, LIMBS);
    let hoisted = f.keys.hoist(&x).unwrap();
    for steps in [1, -3, 0, DEGREE as i64 / 2 + 1] {
        let expected = substitute(&m, rotation_exponent(DEGREE, steps));
        let rotated = f.keys.rotate(&x, steps).unwrap();
        f.check(&rotated, &expected, 1e-7);
        assert_eq!(hoisted.rotate(steps).unwrap(), rotated);
        assert!(f.keys.rotates(steps, LIMBS));
    }
    let expected = substitute(&m, conjugation_exponent(DEGREE));
    f.check(&f.keys.conjugate(&x).unwrap(), &expected, 1e-7);
    f.check(&hoisted.conjugate().unwrap(), &expected, 1e-7);
    let mut low = x.clone();
    low.drop_to(2).unwrap();
    let rotated = f.keys.rotate(&low, 5).unwrap();
    f.check(
        &rotated,
        &substitute(&m, rotation_exponent(DEGREE, 5)),
        1e-7,
    );
    assert!(!f.keys.rotates(5, 3) && !f.keys.rotates(2, 1));
    for (ciphertext, steps) in [(&x, 5), (&x, 2), (&low, 2)] {
        assert!(matches!(
            f.keys.rotate(ciphertext, steps),
            Err(RnsError::MissingKey { .. })
        ));
    }
}

#[test]
fn sums_of_rotations_are_divided_once() {
    let mut f = fixture();
    let (m, n) = (message(7), message(8));
    let x = f.encrypt(&m, 4);
    let hoisted = f.keys.hoist(&x).unwrap();
    let basis = Basis {
        chain: 4,
        ..f.context.full_basis()
    };
    let factor = RnsPoly::from_i128(&f.context, basis, &scaled(&n, 1024)).unwrap();
    let factor = Plaintext::new(factor, 1024.0);
    let mut sum = Extended::zero(&f.context, 4, 1024.0 * SCALE);
    let mut expected = vec![0; DEGREE];
    for steps in [0, 1, -3] {
        let rotated = hoisted.rotate_extended(steps).unwrap();
        sum.mul_plain_add(&rotated, &factor).unwrap();
        let rotated = substitute(&m, rotation_exponent(DEGREE, steps));
        let terms = negacyclic(&rotated, &n).into_iter();
        expected
            .iter_mut()
            .zip(terms)
            .for_each(|(sum, term)| *sum += term);
    }
    f.check(&sum.clone().divide(), &expected, 1e-5);
    let twice = sum.clone();
    sum.add_assign(&twice).unwrap();
    f.check(&sum.divide(), &scaled(&expected, 2), 1e-5);
    let one = hoisted.rotate_extended(1).unwrap();
    f.check(&one.clone().divide(), &substitute(&m, 5), 1e-7);
    let mut other = Extended::zero(&f.context, 4, 1.0);
    assert!(matches!(
        other.add_assign(&one),
        Err(RnsError::Scale { .. })
    ));
    assert!(hoisted.rotate_extended(2).is_err());
}

#[test]
fn ciphertexts_go_under_another_secret() {
    let mut f = fixture();
    let m = message(9);
    let other = SecretKey::generate(&f.context, &mut f.rng);
    let key = KeySwitchKey::between(&f.secret, &other, 4, &mut f.rng).unwrap();
    for limbs in 1..=4 {
        let x = f.encrypt(&m, limbs);
        let switched = key.switch(&x).unwrap();
        let found = other.decrypt(&switched).unwrap().poly().to_i128();
        for (found, expected) in found.iter().zip(&m) {
            assert!((*found as f64 / SCALE - *expected as f64).abs() < 1e-7);
        }
    }
    let x = f.encrypt(&m, 5);
    assert!(matches!(key.switch(&x), Err(RnsError::MissingKey { .. })));
    assert!(KeySwitchKey::between(&f.secret, &other, 6, &mut f.rng).is_err());
    let stranger = fixture();
    let foreign = KeySwitchKey::between(&f.secret, &stranger.secret, 4, &mut f.rng);
    assert!(matches!(foreign, Err(RnsError::Context)));
}

#[test]
fn raising_adds_small_multiples_of_the_first_prime() {
    let mut f = fixture();
    let m = message(6);
    let x = f.encrypt(&m, 1);
    let raised = f.keys.mod_raise(&x).unwrap();
    assert_eq!((raised.limbs(), raised.scale()), (LIMBS, SCALE));
    let q = i128::from(f.context.params().chain[0]);
    let found = f.secret.decrypt(&raised).unwrap().poly().to_i128();
    for (found, expected) in found.iter().zip(&m) {
        let multiple = (found + q / 2).div_euclid(q);
        // The weight of the sparse secret is a quarter of the degree, 16: |I| is at most (16 + 1)/2.
        assert!(multiple.abs() <= 9, "I = {multiple}");
        let rest = (found - multiple * q) as f64 / SCALE;
        assert!((rest - *expected as f64).abs() < 1e-7);
    }
    assert!(found.iter().any(|found| found.abs() > q / 2));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let mut f = fixture();
    let mut x = f.encrypt(&message(1), 2);
    let mut y = x.clone();
    y.set_scale(SCALE * 1.001);
    assert!(matches!(x.add_assign(&y), Err(RnsError::Scale { .. })));
    assert!(matches!(x.sub_assign(&y), Err(RnsError::Scale { .. })));
    let narrow = f.plain(&message(2), 1, SCALE);
    assert!(matches!(x.add_plain(&narrow), Err(RnsError::Limbs { .. })));
    assert!(matches!(x.mul_plain(&narrow), Err(RnsError::Limbs { .. })));
    assert!(matches!(x.drop_to(3), Err(RnsError::Limbs { .. })));
    assert!(matches!(x.clone().rescale(2), Err(RnsError::Limbs { .. })));
    let unlike = f.plain(&message(2), 2, 2.0 * SCALE);
    assert!(matches!(x.sub_plain(&unlike), Err(RnsError::Scale { .. })));
    let none = KeyRequest::default();
    let keys = EvaluationKeys::generate(&f.secret, &none, &mut f.rng, &Progress::none()).unwrap();
    assert_eq!(keys.memory(), 0);
    let low = f.encrypt(&message(1), 1);
    for result in [
        keys.mul(&x, &x),
        keys.rotate(&x, 1),
        keys.conjugate(&x),
        keys.mod_raise(&low),
    ] {
        assert!(matches!(result, Err(RnsError::MissingKey { .. })));
    }
    assert_eq!(keys.rotate(&x, 0).unwrap(), x);
    let wide = KeyRequest {
        relinearization: Some(LIMBS + 1),
        ..none
    };
    let error = EvaluationKeys::generate(&f.secret, &wide, &mut f.rng, &Progress::none());
    assert!(matches!(error, Err(RnsError::Limbs { .. })));
}

#[test]
fn generation_stops_when_asked() {
    let mut f = fixture();
    let cancel = CancelToken::new();
    cancel.cancel();
    let progress = Progress::none().with_cancel(cancel);
    let stopped = EvaluationKeys::generate(&f.secret, &request(), &mut f.rng, &progress);
    assert!(matches!(stopped, Err(RnsError::Cancelled(_))));
}

#[test]
fn kernels_and_threads_agree_bit_by_bit() {
    let params = RnsParams::uniform(1024, LIMBS, 2).unwrap();
    let results: Vec<Vec<Vec<u64>>> = contexts(&params)
        .iter()
        .map(|context| {
            let mut f = fixture_of(context);
            let coefficients: Vec<i64> = (0..1024).map(|i| i * i % 257).collect();
            let poly = RnsPoly::from_i64(context, Basis::chain(LIMBS), &coefficients).unwrap();
            let plaintext = Plaintext::new(poly, 1.0);
            let x = f.secret.encrypt(&plaintext, &mut f.rng).unwrap();
            let y = f.keys.mul(&x, &x).unwrap().rescale(1).unwrap();
            let mut y = f.keys.rotate(&y, -3).unwrap();
            y.drop_to(1).unwrap();
            let z = f.keys.mod_raise(&y).unwrap();
            [x, y, z]
                .iter()
                .flat_map(|c| [c.b().words().to_vec(), c.a().words().to_vec()])
                .collect()
        })
        .collect();
    for result in &results[1..] {
        assert!(result == &results[0]);
    }
}
