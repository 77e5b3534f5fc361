//! Division with rounding and raising, against whole integers.

use crypto_bigint::{NonZero, U1024};
use proptest::prelude::*;
use toroid_rns::{Basis, Context, Form, RnsError, RnsParams, RnsPoly};

use crate::oracle::{coefficient, coefficients, primes, product, uniform, word};

/// The integer nearest to x/d, as a residue: d is odd, so that there are no ties.
fn rounded(x: &U1024, d: &U1024) -> U1024 {
    let half = d.wrapping_sub(&U1024::ONE).shr_vartime(1);
    x.wrapping_add(&half)
        .div_rem_vartime(&NonZero::new(*d).unwrap())
        .0
}

/// Compares every coefficient of a quotient with the rounded one.
fn check(before: &RnsPoly, after: &RnsPoly, dropped: &[u64]) {
    let (before, after) = (coefficients(before), coefficients(after));
    let kept = primes(after.context(), after.basis());
    for at in 0..before.context().degree() {
        let expected = rounded(&coefficient(&before, at), &product(dropped));
        for (limb, q) in kept.iter().enumerate() {
            assert_eq!(after.limb(limb)[at], word(&expected, *q), "{at}, {limb}");
        }
    }
}

#[test]
fn division_by_special_primes_rounds() {
    for (degree, limbs, digit) in [(16, 5, 3), (64, 9, 7), (128, 4, 1), (32, 12, 8)] {
        let context = Context::new(RnsParams::uniform(degree, limbs, digit).unwrap()).unwrap();
        for chain in [1, limbs - 1, limbs] {
            for special in [1, digit] {
                let basis = Basis { chain, special };
                let before = uniform(&context, basis, Form::Values, 1);
                let after = before.clone().divide_by_special();
                assert_eq!(after.basis(), Basis::chain(chain));
                check(&before, &after, &primes(&context, basis)[chain..]);
            }
        }
    }
}

#[test]
fn division_by_special_primes_and_one_of_the_chain_rounds_once() {
    for (degree, limbs, digit) in [(16, 5, 3), (64, 9, 7), (32, 12, 8)] {
        let context = Context::new(RnsParams::uniform(degree, limbs, digit).unwrap()).unwrap();
        for chain in [2, limbs - 1, limbs] {
            let basis = Basis {
                chain,
                special: digit,
            };
            let before = uniform(&context, basis, Form::Values, 5);
            let after = before.clone().divide_by_special_and_last().unwrap();
            assert_eq!(after.basis(), Basis::chain(chain - 1));
            check(&before, &after, &primes(&context, basis)[chain - 1..]);
        }
        let one = Basis {
            chain: 1,
            special: digit,
        };
        let last = uniform(&context, one, Form::Values, 6);
        let refused = last.divide_by_special_and_last();
        assert!(matches!(refused, Err(RnsError::Limbs { needed: 2, .. })));
    }
}

#[test]
fn rescaling_rounds() {
    let context = Context::new(RnsParams::uniform(64, 6, 2).unwrap()).unwrap();
    for limbs in 2..=6 {
        for count in 1..=3.min(limbs - 1) {
            let basis = Basis::chain(limbs);
            let before = uniform(&context, basis, Form::Values, 2);
            let after = before.clone().divide_by_last(count).unwrap();
            assert_eq!(after.basis(), Basis::chain(limbs - count));
            check(&before, &after, &primes(&context, basis)[limbs - count..]);
        }
    }
    let last = uniform(&context, Basis::chain(1), Form::Values, 3);
    assert!(matches!(
        last.divide_by_last(1),
        Err(RnsError::Limbs {
            needed: 2,
            found: 1,
            ..
        })
    ));
}

#[test]
fn raising_takes_the_representative_nearest_to_zero() {
    let context = Context::new(RnsParams::uniform(64, 5, 2).unwrap()).unwrap();
    let mut low = uniform(&context, Basis::chain(1), Form::Coefficients, 4);
    let q = low.prime(0);
    // The edges, whose quotient x/q is nearest to the middle.
    low.limb_mut(0)[..6].copy_from_slice(&[0, 1, q - 1, q / 2 - 1, q / 2, q / 2 + 1]);
    let expected = low.to_i128();
    low.to_values();
    for basis in [Basis::chain(1), Basis::chain(4), context.full_basis()] {
        let raised = coefficients(&low.raise(basis));
        for (limb, prime) in primes(&context, basis).into_iter().enumerate() {
            for (at, x) in expected.iter().enumerate() {
                let wanted = x.rem_euclid(prime.into()) as u64;
                // The two numbers nearest to q/2 may come out on either side.
                let other = (x - x.signum() * i128::from(q)).rem_euclid(prime.into()) as u64;
                let found = raised.limb(limb)[at];
                assert!(found == wanted || (4..6).contains(&at) && found == other);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whole numbers x = k·P + r with a small r, positive or negative, come out as k: nothing is lost to the rounding of f64 even
    /// where many digits are 0 or at their largest.
    #[test]
    fn multiples_divide(k in 0u64..1 << 48, r in -1000i64..1000, digit in 1usize..=8) {
        let context = Context::new(RnsParams::uniform(16, 3, digit).unwrap()).unwrap();
        let basis = context.full_basis();
        let mut poly = RnsPoly::zero(&context, basis, Form::Coefficients);
        let special = &context.params().special;
        for (limb, q) in primes(&context, basis).into_iter().enumerate() {
            let p = word(&product(special), q);
            let x = i128::from(k % q) * i128::from(p) + i128::from(r);
            poly.limb_mut(limb).fill(x.rem_euclid(q.into()) as u64);
        }
        poly.to_values();
        let quotient = poly.divide_by_special();
        prop_assert!(quotient.to_i128().iter().all(|x| *x == i128::from(k)));
    }
}
