//! Operations on polynomials against integers.

use proptest::prelude::*;
use toroid_rns::automorphism::{conjugation_exponent, rotation_exponent};
use toroid_rns::{Automorphism, Basis, Context, Form, RnsError, RnsParams, RnsPoly};

use crate::oracle::{coefficients, contexts, negacyclic, primes, substitute, uniform};

const DEGREES: [usize; 5] = [16, 32, 64, 256, 1024];

fn params(degree: usize) -> RnsParams {
    RnsParams::uniform(degree, 4, 2).unwrap()
}

fn values(poly: &RnsPoly) -> RnsPoly {
    let mut poly = poly.clone();
    poly.to_values();
    poly
}

fn small(degree: usize, seed: i128) -> Vec<i128> {
    let mut x = seed;
    (0..degree)
        .map(|_| {
            x = (x * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % (1 << 61);
            x % 1_000_003 - 500_001
        })
        .collect()
}

#[test]
fn products_are_negacyclic() {
    for degree in DEGREES {
        let context = Context::new(params(degree)).unwrap();
        for basis in [Basis::chain(1), Basis::chain(3), context.full_basis()] {
            let (a, b) = (small(degree, 1), small(degree, 2));
            let [mut x, mut y] =
                [&a, &b].map(|f| values(&RnsPoly::from_i128(&context, basis, f).unwrap()));
            let expected = negacyclic(&a, &b);
            let sum: Vec<i128> = expected.iter().zip(&a).map(|(p, a)| p + a).collect();
            let dot = RnsPoly::dot(basis, &[(&x, &y), (&x, &y), (&y, &x)]);
            let three: Vec<i128> = expected.iter().map(|p| 3 * p).collect();
            assert_eq!(dot.to_i128(), three);
            let mut acc = x.clone();
            acc.mul_add_assign(&x, &y);
            assert_eq!(acc.to_i128(), sum);
            x.mul_assign(&y);
            assert_eq!(x.to_i128(), expected);
            y.mul_scalar(-7);
            let scaled: Vec<i128> = b.iter().map(|c| -7 * c).collect();
            assert_eq!(y.to_i128(), scaled);
        }
    }
}

#[test]
fn automorphisms_substitute_in_both_forms() {
    for degree in DEGREES {
        let context = Context::new(params(degree)).unwrap();
        let f = small(degree, 3);
        let poly = RnsPoly::from_i128(&context, context.full_basis(), &f).unwrap();
        let rotations = [1, -1, 2, 5, degree as i64 / 4, -7].map(|r| rotation_exponent(degree, r));
        let all = [
            1,
            3,
            conjugation_exponent(degree),
            degree + 1,
            2 * degree - 3,
        ];
        for exponent in rotations.into_iter().chain(all) {
            let automorphism = Automorphism::new(&context, exponent);
            let expected = substitute(&f, exponent);
            assert_eq!(poly.automorphism(&automorphism).to_i128(), expected);
            let image = values(&poly).automorphism(&automorphism);
            assert_eq!((image.form(), image.to_i128()), (Form::Values, expected));
            let back = Automorphism::new(&context, automorphism.inverse_exponent());
            assert_eq!(poly.automorphism(&automorphism).automorphism(&back), poly);
        }
    }
    let context = Context::new(params(16)).unwrap();
    assert_eq!(Automorphism::rotation(&context, 8).exponent(), 1);
    assert_eq!(Automorphism::conjugation(&context).exponent(), 31);
}

#[test]
fn monomials_shift_in_both_forms() {
    for degree in DEGREES {
        let context = Context::new(params(degree)).unwrap();
        let f = small(degree, 4);
        let poly = RnsPoly::from_i128(&context, context.full_basis(), &f).unwrap();
        let n = degree as i64;
        for power in [
            0,
            1,
            n / 2,
            n - 1,
            n,
            3 * n / 2,
            2 * n - 1,
            2 * n,
            -1,
            -n / 2,
            5 * n + 3,
        ] {
            let at = power.rem_euclid(2 * n) as usize;
            let mut monomial = vec![0; degree];
            monomial[at % degree] = if at < degree { 1 } else { -1 };
            let expected = negacyclic(&f, &monomial);
            for mut poly in [poly.clone(), values(&poly)] {
                poly.mul_monomial(power);
                assert_eq!(poly.to_i128(), expected, "X^{power} of degree {degree}");
            }
        }
    }
}

#[test]
fn sums_count_modulo_every_prime() {
    let context = Context::new(params(64)).unwrap();
    let basis = context.full_basis();
    for form in [Form::Coefficients, Form::Values] {
        let [a, b] = [5, 6].map(|seed| uniform(&context, basis, form, seed));
        let (mut sum, mut difference, mut negated) = (a.clone(), a.clone(), a.clone());
        sum.add_assign(&b);
        difference.sub_assign(&b);
        negated.neg_assign();
        for (limb, q) in primes(&context, basis).into_iter().enumerate() {
            for i in 0..context.degree() {
                let (x, y) = (a.limb(limb)[i], b.limb(limb)[i]);
                assert_eq!(sum.limb(limb)[i], (x + y) % q);
                assert_eq!(difference.limb(limb)[i], (x + q - y) % q);
                assert_eq!(negated.limb(limb)[i], (q - x) % q);
            }
        }
        negated.add_assign(&a);
        assert_eq!(negated, RnsPoly::zero(&context, basis, form));
    }
    // Operands with more limbs lend the first.
    let long = uniform(&context, Basis::chain(4), Form::Values, 7);
    let mut short = uniform(&context, Basis::chain(2), Form::Values, 8);
    let mut cut = long.clone();
    cut.drop_to(2);
    let mut expected = short.clone();
    short.add_assign(&long);
    expected.add_assign(&cut);
    assert_eq!(short, expected);
    assert_eq!(long.in_basis(Basis::chain(2)), cut);
}

#[test]
fn constants_are_added_to_one_coefficient() {
    let context = Context::new(params(32)).unwrap();
    let mut f = small(32, 9);
    let poly = RnsPoly::from_i128(&context, Basis::chain(3), &f).unwrap();
    let constant = -(1 << 90) + 12345;
    f[0] += constant;
    for mut poly in [poly.clone(), values(&poly)] {
        poly.add_scalar(constant);
        assert_eq!(poly.to_i128(), f);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn integers_come_back(
        wide in prop::collection::vec(-(1i128 << 96)..1 << 96, 16),
        narrow in prop::collection::vec(any::<i64>(), 16),
    ) {
        let context = Context::new(params(16)).unwrap();
        let poly = RnsPoly::from_i128(&context, context.full_basis(), &wide).unwrap();
        prop_assert_eq!(poly.to_i128(), wide.clone());
        prop_assert_eq!(values(&poly).to_i128(), wide);
        prop_assert_eq!(coefficients(&values(&poly)), poly);
        let poly = RnsPoly::from_i64(&context, Basis::chain(2), &narrow).unwrap();
        let expected: Vec<i128> = narrow.iter().map(|c| i128::from(*c)).collect();
        prop_assert_eq!(poly.to_i128(), expected);
        let small: Vec<i64> = narrow.iter().map(|c| c >> 16).collect();
        let poly = RnsPoly::from_i64(&context, Basis::chain(1), &small).unwrap();
        let expected: Vec<i128> = small.iter().map(|c| i128::from(*c)).collect();
        prop_assert_eq!(poly.to_i128(), expected);
    }
}

#[test]
fn kernels_agree_bit_by_bit() {
    for degree in [128, 4096] {
        let results: Vec<Vec<Vec<u64>>> = contexts(&params(degree))
            .iter()
            .map(|context| {
                let basis = context.full_basis();
                let [mut a, b] =
                    [1, 2].map(|seed| uniform(context, basis, Form::Coefficients, seed));
                let mut kept = Vec::new();
                let mut keep = |poly: &RnsPoly| kept.push(poly.words().to_vec());
                let (mut sum, mut difference, mut negated) = (a.clone(), a.clone(), a.clone());
                sum.add_assign(&b);
                difference.sub_assign(&b);
                negated.neg_assign();
                [&sum, &difference, &negated]
                    .into_iter()
                    .for_each(&mut keep);
                a.to_values();
                keep(&a);
                let b = values(&b);
                let dot = RnsPoly::dot(basis, &[(&a, &b), (&b, &b), (&sum_of(&a, &b), &a)]);
                keep(&dot);
                let mut product = a.clone();
                product.mul_assign(&b);
                product.mul_add_assign(&a, &dot);
                product.mul_scalar(12345);
                product.mul_monomial(degree as i64 / 2);
                product.mul_monomial(3);
                keep(&product);
                keep(&product.automorphism(&Automorphism::rotation(context, 3)));
                keep(&coefficients(&product));
                keep(&product.clone().divide_by_special());
                let mut chain = product.in_basis(Basis::chain(4));
                keep(&chain.clone().divide_by_last(1).unwrap());
                keep(&chain.clone().divide_by_last(2).unwrap());
                chain.drop_to(1);
                keep(&chain.raise(basis));
                kept
            })
            .collect();
        for result in &results[1..] {
            assert!(result == &results[0], "degree {degree}");
        }
    }
}

fn sum_of(a: &RnsPoly, b: &RnsPoly) -> RnsPoly {
    let mut sum = a.clone();
    sum.add_assign(b);
    sum
}

#[test]
fn wrong_lengths_are_refused() {
    let context = Context::new(params(16)).unwrap();
    for length in [0, 15, 17] {
        assert!(matches!(
            RnsPoly::from_i64(&context, Basis::chain(1), &vec![0; length]),
            Err(RnsError::Length { expected: 16, found }) if found == length
        ));
    }
}

#[test]
#[should_panic(expected = "no basis")]
fn a_basis_has_no_more_primes_than_the_context() {
    let context = Context::new(params(16)).unwrap();
    let _ = RnsPoly::zero(&context, Basis::chain(5), Form::Values);
}

#[test]
#[should_panic(expected = "products are taken of values")]
fn coefficients_are_not_multiplied() {
    let context = Context::new(params(16)).unwrap();
    let mut poly = RnsPoly::zero(&context, Basis::chain(2), Form::Coefficients);
    let other = poly.clone();
    poly.mul_assign(&other);
}

/// A combination does what products with scalars and monomials do, one after the other.
#[test]
fn combinations_are_sums_of_multiples() {
    for context in contexts(&RnsParams::uniform(128, 4, 2).unwrap()) {
        let values: Vec<_> = (0..30)
            .map(|seed| uniform(&context, Basis::chain(4), Form::Values, seed))
            .collect();
        for count in [1, 2, 11, 12, 30] {
            let terms: Vec<_> = (values.iter().take(count).zip(0i128..))
                .map(|(value, i)| (value, [(i - 2) << (4 * i), (5 - i) << 40]))
                .collect();
            let mut expected = RnsPoly::zero(&context, Basis::chain(3), Form::Values);
            for (value, [x, y]) in &terms {
                let mut own = (*value).clone();
                own.drop_to(3);
                let mut turned = own.clone();
                turned.mul_monomial(64);
                own.mul_scalar(*x);
                turned.mul_scalar(*y);
                expected.add_assign(&own);
                expected.add_assign(&turned);
            }
            assert!(RnsPoly::combination(Basis::chain(3), &terms) == expected);
            let divided = RnsPoly::combination_divided(3, &terms).unwrap();
            let expected = expected.divide_by_last(1).unwrap();
            assert!(divided == expected);
            // Of several rows each is the same.
            let values: Vec<_> = terms.iter().map(|(value, _)| *value).collect();
            let factors: Vec<_> = terms.iter().map(|(_, factor)| *factor).collect();
            let rows = [vec![[3, -1]; count], factors, vec![[0, 0]; count]];
            let divided = RnsPoly::combinations_divided(3, &values, &rows).unwrap();
            assert!(divided[1] == expected);
            assert!(divided[2] == RnsPoly::zero(&context, Basis::chain(2), Form::Values));
            let refused = RnsPoly::combination_divided(1, &terms);
            assert!(matches!(refused, Err(RnsError::Limbs { .. })));
        }
        let mut sum = values[0].clone();
        sum.add_gaussian([-5 << 70, 3 << 60]);
        let mut expected = values[0].clone();
        expected.mul_monomial(-64);
        expected.add_scalar(3 << 60);
        expected.mul_monomial(64);
        expected.add_scalar(-5 << 70);
        assert!(sum == expected);
        for poly in [&mut sum, &mut expected] {
            poly.to_coefficients();
            poly.add_gaussian([1, -7]);
            poly.to_values();
        }
        assert!(sum == expected);
    }
}
