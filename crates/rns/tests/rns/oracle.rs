//! Polynomials of whole integers, schoolbook.

use std::sync::Arc;

use crypto_bigint::{NonZero, U1024};
use toroid_ring::simd::SimdLevel;
use toroid_rns::{Basis, Context, Form, RnsParams, RnsPoly, Threads};
use toroid_tfhe::random::Csprng;

/// The primes of a basis.
pub fn primes(context: &Context, basis: Basis) -> Vec<u64> {
    (0..basis.limbs())
        .map(|limb| context.prime(basis, limb))
        .collect()
}

/// Contexts of the same parameters that have to agree bit by bit, the oracle first.
pub fn contexts(params: &RnsParams) -> Vec<Arc<Context>> {
    let one = SimdLevel::available().map(|simd| (simd, Threads::One));
    let all = one.chain([(SimdLevel::best(), Threads::Pool)]);
    all.map(|(simd, threads)| Context::with(params.clone(), simd, threads).unwrap())
        .collect()
}

/// A polynomial of uniform words.
pub fn uniform(context: &Arc<Context>, basis: Basis, form: Form, seed: u8) -> RnsPoly {
    let mut rng = Csprng::from_seed([seed; 32]);
    let mut poly = RnsPoly::zero(context, basis, form);
    for limb in 0..basis.limbs() {
        let q = context.prime(basis, limb);
        poly.limb_mut(limb).fill_with(|| rng.next_u64() % q);
    }
    poly
}

/// The product of numbers.
pub fn product(primes: &[u64]) -> U1024 {
    let words = primes.iter().map(|q| U1024::from_u64(*q));
    words.fold(U1024::ONE, |product, q| product.wrapping_mul(&q))
}

pub fn rem(x: &U1024, modulus: &U1024) -> U1024 {
    x.rem_vartime(&NonZero::new(*modulus).unwrap())
}

/// The number below the product of `primes` with these residues.
pub fn whole(residues: &[u64], primes: &[u64]) -> U1024 {
    let modulus = product(primes);
    let terms = residues.iter().zip(primes).map(|(residue, q)| {
        let others: Vec<u64> = primes.iter().copied().filter(|p| p != q).collect();
        let rest = product(&others);
        let inverse = toroid_ring::prime::inv(word(&rest, *q), *q);
        let factor = toroid_ring::prime::mul(*residue, inverse, *q);
        rest.wrapping_mul(&U1024::from_u64(factor))
    });
    terms.fold(U1024::ZERO, |sum, term| {
        rem(&sum.wrapping_add(&term), &modulus)
    })
}

/// x mod q.
pub fn word(x: &U1024, q: u64) -> u64 {
    rem(x, &U1024::from_u64(q)).to_words()[0]
}

/// Coefficient `at` of a polynomial in coefficients, below the product of its primes.
pub fn coefficient(poly: &RnsPoly, at: usize) -> U1024 {
    let residues: Vec<u64> = (0..poly.limbs()).map(|limb| poly.limb(limb)[at]).collect();
    whole(&residues, &primes(poly.context(), poly.basis()))
}

/// A copy in coefficients.
pub fn coefficients(poly: &RnsPoly) -> RnsPoly {
    let mut poly = poly.clone();
    poly.to_coefficients();
    poly
}

/// The negacyclic product of integer polynomials.
pub fn negacyclic(a: &[i128], b: &[i128]) -> Vec<i128> {
    let degree = a.len();
    let mut product = vec![0; degree];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            if i + j < degree {
                product[i + j] += x * y;
            } else {
                product[i + j - degree] -= x * y;
            }
        }
    }
    product
}

/// f(X^g).
pub fn substitute(f: &[i128], exponent: usize) -> Vec<i128> {
    let degree = f.len();
    let mut image = vec![0; degree];
    for (i, x) in f.iter().enumerate() {
        let at = i * exponent % (2 * degree);
        image[at % degree] = if at < degree { *x } else { -x };
    }
    image
}
