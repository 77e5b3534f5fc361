//! Cyclotomic polynomials and rings: known coefficients, products of FLINT, values by the definition.
#![allow(clippy::unwrap_used)]

use toroid_ring::RingError;
use toroid_ring::cyclotomic::{CyclotomicRing, MAX_INDEX, cyclotomic_polynomial};
use toroid_ring::dft::DftPlan;
use toroid_ring::simd::SimdLevel;

/// Made by `cyclotomic_products.py`, which says what the columns are.
const PRODUCTS: &str = include_str!("data/cyclotomic_products.txt");

fn mul(a: u32, b: u32, q: u32) -> u32 {
    (u64::from(a) * u64::from(b) % u64::from(q)) as u32
}

/// The generator of splitmix64, reduced to words below q.
fn random(length: usize, q: u32, seed: u64) -> Vec<u32> {
    (1..=length as u64)
        .map(|i| {
            let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % u64::from(q)) as u32
        })
        .collect()
}

fn fnv1a(words: &[u32]) -> u64 {
    words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The value of a polynomial.
fn horner(polynomial: &[u32], x: u32, q: u32) -> u32 {
    polynomial.iter().rev().fold(0, |sum, &c| {
        ((u64::from(mul(sum, x, q)) + u64::from(c)) % u64::from(q)) as u32
    })
}

/// The remainder modulo the monic `divisor`, by long division.
fn remainder(polynomial: &[u32], divisor: &[i64], q: u32) -> Vec<u32> {
    let degree = divisor.len() - 1;
    let mut rest: Vec<i64> = polynomial.iter().map(|&c| i64::from(c)).collect();
    while rest.len() > degree {
        let top = rest.pop().unwrap();
        let low = rest.len() - degree;
        for (word, &d) in rest[low..].iter_mut().zip(divisor) {
            *word = (*word - top * d).rem_euclid(i64::from(q));
        }
    }
    rest.resize(degree, 0);
    rest.into_iter().map(|c| c as u32).collect()
}

/// Rings of some lengths and moduli, on every instruction set.
fn rings(cases: &[(usize, u32)]) -> Vec<CyclotomicRing> {
    cases
        .iter()
        .flat_map(|&(m, q)| SimdLevel::available().map(move |simd| (m, q, simd)))
        .map(|(m, q, simd)| {
            CyclotomicRing::with_plan(DftPlan::with_simd(m, q, simd).unwrap()).unwrap()
        })
        .collect()
}

const SMALL: [(usize, u32); 16] = [
    (1, 2),
    (1, 97),
    (2, 3),
    (3, 7),
    (4, 13),
    (7, 29),
    (8, 17),
    (9, 19),
    (15, 241),
    (30, 31),
    (45, 181),
    (85, 4_294_958_881),
    (105, 211),
    (128, 257),
    (210, 211),
    (255, 12_241),
];

#[test]
fn known_polynomials() {
    let known: [(usize, &[i64]); 9] = [
        (1, &[-1, 1]),
        (2, &[1, 1]),
        (3, &[1, 1, 1]),
        (4, &[1, 0, 1]),
        (6, &[1, -1, 1]),
        (8, &[1, 0, 0, 0, 1]),
        (9, &[1, 0, 0, 1, 0, 0, 1]),
        (12, &[1, 0, -1, 0, 1]),
        (15, &[1, -1, 0, 1, -1, 1, 0, -1, 1]),
    ];
    for (m, phi) in known {
        assert_eq!(cyclotomic_polynomial(m).unwrap(), phi, "index {m}");
    }
    let phi = cyclotomic_polynomial(105).unwrap();
    let half = [
        1, 1, 1, 0, 0, -1, -1, -2, -1, -1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, -1, 0, -1, 0, -1,
    ];
    assert_eq!(phi[..25], half);
    assert!(phi.iter().eq(phi.iter().rev()));
    assert_eq!(phi.len(), 49);
}

/// The degrees, the least and greatest coefficients, and the sums of their sizes, as FLINT has them.
#[test]
fn heights_of_polynomials() {
    for (m, degree, least, greatest, sum) in [
        (385, 240, -3, 2, 219),
        (1365, 576, -4, 3, 639),
        (1785, 768, -4, 5, 987),
        (2805, 1280, -6, 6, 2231),
        (6545, 3840, -8, 9, 6563),
        (10465, 6336, -14, 14, 20747),
        (21845, 16384, -1, 2, 5777),
        (65535, 32768, -4, 4, 17203),
    ] {
        let phi = cyclotomic_polynomial(m).unwrap();
        assert_eq!(phi.len(), degree + 1, "index {m}");
        assert_eq!(phi.iter().min(), Some(&least), "index {m}");
        assert_eq!(phi.iter().max(), Some(&greatest), "index {m}");
        assert_eq!(phi.iter().map(|c| c.abs()).sum::<i64>(), sum, "index {m}");
    }
}

/// x^m - 1 is the product of Φ_d over the divisors d of m.
#[test]
fn polynomials_multiply_to_x_to_the_m_less_1() {
    for m in (1..=64).chain([105, 210, 255, 330]) {
        let mut product = vec![1];
        for d in (1..=m).filter(|&d| m % d == 0) {
            let phi = cyclotomic_polynomial(d).unwrap();
            let mut next = vec![0; product.len() + phi.len() - 1];
            for (i, a) in product.iter().enumerate() {
                for (j, b) in phi.iter().enumerate() {
                    next[i + j] += a * b;
                }
            }
            product = next;
        }
        let mut expected = vec![0; m + 1];
        (expected[0], expected[m]) = (-1, 1);
        assert_eq!(product, expected, "index {m}");
    }
}

#[test]
fn products_and_remainders_of_flint() {
    let mut indices = Vec::new();
    for line in PRODUCTS.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [m, q, seed, product, rest] = fields[..] else {
            panic!("{line}");
        };
        let m: usize = m.parse().unwrap();
        let q: u32 = q.parse().unwrap();
        let seed: u64 = seed.parse().unwrap();
        let ring = CyclotomicRing::new(m, q).unwrap();
        let a = random(ring.degree(), q, seed);
        let b = random(ring.degree(), q, !seed);
        let hash = |hash: &str| u64::from_str_radix(hash, 16).unwrap();
        assert_eq!(
            fnv1a(&ring.mul(&a, &b)),
            hash(product),
            "product, m = {m}, q = {q}"
        );
        let long = random(3 * m + 1, q, seed);
        assert_eq!(
            fnv1a(&ring.reduce(&long)),
            hash(rest),
            "remainder, m = {m}, q = {q}"
        );
        indices.push(m);
    }
    assert!(indices.len() == 44 && indices.contains(&21845));
}

#[test]
fn values_are_those_at_the_primitive_roots() {
    for ring in rings(&SMALL) {
        let (m, q) = (ring.index(), ring.plan().modulus());
        let units: Vec<u32> = (0..m as u32)
            .filter(|&k| {
                (1..=m as u32)
                    .filter(|d| (m as u32).is_multiple_of(*d) && k.is_multiple_of(*d))
                    .count()
                    == 1
            })
            .collect();
        assert_eq!(ring.units(), units, "m = {m}");
        assert_eq!(ring.degree(), units.len());
        assert_eq!(ring.polynomial(), cyclotomic_polynomial(m).unwrap());
        let a = random(ring.degree(), q, 1);
        let values: Vec<u32> = units
            .iter()
            .map(|&k| {
                let x = (0..k).fold(1 % q, |power, _| mul(power, ring.plan().root(), q));
                horner(&a, x, q)
            })
            .collect();
        assert_eq!(ring.evaluate(&a), values, "m = {m}, q = {q}");
        assert_eq!(ring.interpolate(&values), a, "m = {m}, q = {q}");
    }
}

#[test]
fn remainders_are_those_of_long_division() {
    for ring in rings(&SMALL) {
        let (m, q) = (ring.index(), ring.plan().modulus());
        for length in [0, 1, ring.degree(), m - 1, m, m + 1, 2 * m + 1, 5 * m] {
            for polynomial in [random(length, q, 2), vec![q - 1; length]] {
                let expected = remainder(&polynomial, ring.polynomial(), q);
                assert_eq!(
                    ring.reduce(&polynomial),
                    expected,
                    "m = {m}, q = {q}, {length} words"
                );
            }
        }
    }
}

#[test]
fn products_are_those_of_the_ring() {
    for ring in rings(&SMALL) {
        let q = ring.plan().modulus();
        let degree = ring.degree();
        for (a, b) in [
            (random(degree, q, 3), random(degree, q, 4)),
            (vec![q - 1; degree], vec![q - 1; degree]),
        ] {
            let mut product = vec![0u32; 2 * degree - 1];
            for (i, &x) in a.iter().enumerate() {
                for (j, &y) in b.iter().enumerate() {
                    let sum = u64::from(product[i + j]) + u64::from(mul(x, y, q));
                    product[i + j] = (sum % u64::from(q)) as u32;
                }
            }
            let expected = remainder(&product, ring.polynomial(), q);
            assert_eq!(ring.mul(&a, &b), expected, "m = {}, q = {q}", ring.index());
        }
    }
}

#[test]
fn the_ring_of_the_paper() {
    let m = 21845;
    for ring in rings(&[(m, 950_694_401), (m, 4_244_570_881)]) {
        let q = ring.plan().modulus();
        assert_eq!(ring.degree(), 16384);
        let (a, b) = (random(16384, q, 5), random(16384, q, 6));
        let (values, others) = (ring.evaluate(&a), ring.evaluate(&b));
        assert!(ring.interpolate(&values) == a);
        let products: Vec<u32> = values
            .iter()
            .zip(&others)
            .map(|(&x, &y)| mul(x, y, q))
            .collect();
        assert!(ring.interpolate(&products) == ring.mul(&a, &b));
        // x^16383·x^5462 = x^m = 1
        let power = |e: usize| (0..16384).map(|i| u32::from(i == e)).collect::<Vec<_>>();
        assert!(ring.mul(&power(16383), &power(5462)) == power(0));
    }
}

#[test]
fn what_has_no_ring() {
    for found in [0, MAX_INDEX + 1] {
        let expected = RingError::CyclotomicIndex {
            found,
            max: MAX_INDEX,
        };
        assert_eq!(cyclotomic_polynomial(found).unwrap_err(), expected);
    }
    assert_eq!(
        CyclotomicRing::new(5, 13).unwrap_err(),
        RingError::DftModulus {
            modulus: 13,
            length: 5
        }
    );
}

#[test]
#[should_panic(expected = "an element of this ring has 4 words, the slice has 5")]
fn wrong_length() {
    let _ = CyclotomicRing::new(5, 11).unwrap().evaluate(&[0; 5]);
}
