//! Measured noise beside its formulas, on seeds that are fixed.

use std::sync::Arc;

use toroid_rns::{
    Automorphism, Basis, Ciphertext, Context, EvaluationKeys, Form, KeyRequest, Plaintext,
    RnsParams, RnsPoly, SecretKey, Shape, noise,
};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

const DEGREE: usize = 1 << 11;
const LIMBS: usize = 5;

struct Bench {
    context: Arc<Context>,
    secret: SecretKey,
    keys: EvaluationKeys,
    rng: Csprng,
}

fn bench() -> Bench {
    let params = RnsParams::uniform(DEGREE, LIMBS, 2).unwrap();
    let context = Context::new(params).unwrap();
    let mut rng = Csprng::from_seed([11; 32]);
    let secret = SecretKey::generate(&context, &mut rng);
    let request = KeyRequest {
        relinearization: Some(LIMBS),
        conjugation: None,
        rotations: vec![(1, LIMBS)],
        mod_raise: true,
    };
    let keys = EvaluationKeys::generate(&secret, &request, &mut rng, &Progress::none()).unwrap();
    Bench {
        context,
        secret,
        keys,
        rng,
    }
}

impl Bench {
    fn params(&self) -> &RnsParams {
        self.context.params()
    }

    /// A plaintext of uniform coefficients below 2^`bits`, centered, with their mean square.
    fn plaintext(&mut self, bits: u32, limbs: usize) -> (Plaintext, f64) {
        let coefficients: Vec<i64> = (0..DEGREE)
            .map(|_| (self.rng.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1)))
            .collect();
        let square = coefficients
            .iter()
            .map(|c| (*c as f64).powi(2))
            .sum::<f64>()
            / DEGREE as f64;
        let basis = Basis::chain(limbs);
        let poly = RnsPoly::from_i64(&self.context, basis, &coefficients).unwrap();
        (Plaintext::new(poly, 1.0), square)
    }

    fn encrypt(&mut self, plaintext: &Plaintext) -> Ciphertext {
        self.secret.encrypt(plaintext, &mut self.rng).unwrap()
    }

    fn phase(&self, ciphertext: &Ciphertext) -> RnsPoly {
        self.secret.decrypt(ciphertext).unwrap().into_poly()
    }
}

/// The mean square of the coefficients of a difference.
fn difference(left: &RnsPoly, right: &RnsPoly) -> f64 {
    let mut difference = left.clone();
    difference.sub_assign(right);
    let coefficients = difference.to_i128();
    coefficients
        .iter()
        .map(|c| (*c as f64).powi(2))
        .sum::<f64>()
        / DEGREE as f64
}

fn check(what: &str, measured: f64, formula: f64) {
    let ratio = measured / formula;
    assert!(
        (0.8..1.2).contains(&ratio),
        "{what}: {ratio:.3} of {formula:.4e}"
    );
}

#[test]
fn fresh_noise() {
    let mut b = bench();
    let (m, _) = b.plaintext(40, LIMBS);
    let x = b.encrypt(&m);
    check(
        "fresh",
        difference(&b.phase(&x), m.poly()),
        noise::fresh(b.params()),
    );
}

#[test]
fn key_switches() {
    let mut b = bench();
    let (m, _) = b.plaintext(40, LIMBS);
    let x = b.encrypt(&m);
    let automorphism = Automorphism::rotation(&b.context, 1);
    for limbs in [5, 4, 3, 1] {
        let mut x = x.clone();
        x.drop_to(limbs).unwrap();
        let rotated = b.keys.rotate(&x, 1).unwrap();
        let expected = b.phase(&x).automorphism(&automorphism);
        let measured = difference(&b.phase(&rotated), &expected);
        check("rotation", measured, noise::key_switch(b.params(), limbs));
    }
}

/// With a special prime of twice a digit and wide noise, that of the digits is what counts.
#[test]
fn key_switches_with_little_to_divide_by() {
    let shape = Shape {
        degree: DEGREE,
        chain_bits: vec![48; 4],
        special_bits: vec![49],
        digit_limbs: 1,
    };
    let mut params = RnsParams::search(&shape).unwrap();
    params.sigma = 100.0;
    let context = Context::new(params).unwrap();
    let mut rng = Csprng::from_seed([12; 32]);
    let secret = SecretKey::generate(&context, &mut rng);
    let request = KeyRequest {
        rotations: vec![(1, 4)],
        ..KeyRequest::default()
    };
    let keys = EvaluationKeys::generate(&secret, &request, &mut rng, &Progress::none()).unwrap();
    let zero = RnsPoly::zero(&context, Basis::chain(4), Form::Values);
    let x = secret
        .encrypt(&Plaintext::new(zero, 1.0), &mut rng)
        .unwrap();
    let automorphism = Automorphism::rotation(&context, 1);
    let phase = |x: &Ciphertext| secret.decrypt(x).unwrap().into_poly();
    let expected = phase(&x).automorphism(&automorphism);
    let measured = difference(&phase(&keys.rotate(&x, 1).unwrap()), &expected);
    check("digits", measured, noise::key_switch(context.params(), 4));
}

#[test]
fn rescaling() {
    let mut b = bench();
    let (m, _) = b.plaintext(40, LIMBS);
    for count in [1, 2] {
        let dropped: Vec<u64> = b.params().chain[LIMBS - count..].to_vec();
        let factor: i128 = dropped.iter().map(|q| i128::from(*q)).product();
        // A multiple of the dropped primes, whose quotient is the ciphertext itself but for its noise.
        let mut multiple = m.poly().clone();
        multiple.mul_scalar(factor);
        let large = b.encrypt(&Plaintext::new(multiple, 1.0));
        let small = large.rescale(count).unwrap();
        let measured = difference(&b.phase(&small), m.poly());
        let formula = noise::rescale(b.params(), noise::fresh(b.params()), factor as f64);
        check("rescaling", measured, formula);
    }
}

#[test]
fn products() {
    let mut b = bench();
    let ((m, m2), (n, n2)) = (b.plaintext(20, LIMBS), b.plaintext(12, LIMBS));
    let (x, y) = (b.encrypt(&m), b.encrypt(&n));
    let product = RnsPoly::dot(Basis::chain(LIMBS), &[(m.poly(), n.poly())]);
    let z = b.keys.mul(&x, &y).unwrap();
    let fresh = noise::fresh(b.params());
    let formula =
        noise::product(b.params(), [m2, n2], [fresh; 2]) + noise::key_switch(b.params(), LIMBS);
    check("product", difference(&b.phase(&z), &product), formula);
    let mut z = x.clone();
    z.mul_plain(&n).unwrap();
    let formula = noise::mul_plain(b.params(), n2, fresh);
    check("plain product", difference(&b.phase(&z), &product), formula);
}

#[test]
fn products_with_one_division() {
    let mut b = bench();
    let zero = RnsPoly::zero(&b.context, Basis::chain(LIMBS), Form::Values);
    let zero = Plaintext::new(zero, 1.0);
    let (x, y) = (b.encrypt(&zero), b.encrypt(&zero));
    for limbs in [LIMBS, 3, 2] {
        let (mut x, y) = (x.clone(), y.clone());
        x.drop_to(limbs).unwrap();
        let tensor = x.tensor(&y).unwrap();
        let z = b.keys.relinearize_rescale(&tensor).unwrap();
        let expected = RnsPoly::zero(&b.context, Basis::chain(limbs - 1), Form::Values);
        let measured = difference(&b.phase(&z), &expected);
        let formula = noise::key_switch_rescale(b.params(), limbs);
        check("product, rescaled", measured, formula);
    }
}

#[test]
fn raising() {
    let mut b = bench();
    let (m, _) = b.plaintext(40, 1);
    let x = b.encrypt(&m);
    let raised = b.keys.mod_raise(&x).unwrap();
    let q = b.params().chain[0];
    let before = b.phase(&x).to_i128();
    let after = b.phase(&raised).to_i128();
    let errors = after.iter().zip(&before).map(|(after, before)| {
        let q = i128::from(q);
        let rest = (after - before).rem_euclid(q);
        if rest > q / 2 { rest - q } else { rest }
    });
    let measured = errors.map(|e| (e as f64).powi(2)).sum::<f64>() / DEGREE as f64;
    check("mod-raise", measured, noise::mod_raise(b.params()));
}
