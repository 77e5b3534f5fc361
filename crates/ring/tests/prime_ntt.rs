//! One suite for the transforms modulo primes: every kind of modulus on every instruction set, against the definition,
//! the ring's own laws and the schoolbook product.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use toroid_ring::RingError;
use toroid_ring::prime::{self, ntt_primes};
use toroid_ring::prime_ntt::{
    Bits31, Bits50, Bits63, Kind, MAX_DEGREE, Ntt50Plan, PrimeNttPlan, Word,
};
use toroid_ring::simd::SimdLevel;

type WordOf<K> = <PrimeNttPlan<K> as Words>::Word;

/// The words of a plan's polynomials, and a way from numbers to them.
trait Words {
    type Word: Word;
}

impl<K: Kind> Words for PrimeNttPlan<K> {
    type Word = K::Word;
}

/// Runs a generic test for every kind.
macro_rules! for_every_kind {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            generic::$name::<Bits31>();
            generic::$name::<Bits50>();
            generic::$name::<Bits63>();
        }
    )*};
}

for_every_kind! {
    forward_is_the_definition_in_bit_reversed_order
    kernels_agree_bit_for_bit
    inverse_undoes_forward_times_n
    products_are_negacyclic
    powers_of_x_wrap_with_a_sign
    pointwise_operations
    requests_without_a_plan
}

fn degrees(max: usize) -> impl Iterator<Item = usize> {
    (1..=max.ilog2()).map(|log| 1 << log)
}

/// The largest primes of a kind, the largest with one bit less and two bits less, a small one, the smallest.
fn primes<K: Kind>(n: usize) -> Vec<u64> {
    let mut primes: Vec<u64> = ntt_primes(n, 1 << K::BITS).take(2).collect();
    for bound in [1 << (K::BITS - 1), 1 << (K::BITS - 2), 1 << 24] {
        primes.extend(ntt_primes(n, bound).next());
    }
    primes.extend(
        (1..)
            .map(|k| 2 * n as u64 * k + 1)
            .find(|&q| prime::is_prime(q)),
    );
    primes.dedup();
    primes
}

fn plans<K: Kind>(n: usize, q: u64) -> impl Iterator<Item = PrimeNttPlan<K>> {
    SimdLevel::available().map(move |simd| PrimeNttPlan::with_simd(n, q, simd).unwrap())
}

/// The generator of splitmix64, reduced to canonical elements.
fn random(n: usize, q: u64, seed: u64) -> Vec<u64> {
    (1..=n as u64)
        .map(|i| {
            let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % q
        })
        .collect()
}

/// Polynomials that drive the kernels' bounds: constants at the borders, their alternations, and single terms.
fn inputs(n: usize, q: u64) -> Vec<Vec<u64>> {
    let edges = [0, 1, q / 2, q / 2 + 1, q - 1];
    let mut inputs: Vec<Vec<u64>> = edges.iter().map(|&e| vec![e; n]).collect();
    inputs.push((0..n).map(|i| if i % 2 == 0 { q - 1 } else { 0 }).collect());
    inputs.push((0..n).map(|i| if i < n / 2 { q - 1 } else { 0 }).collect());
    inputs.push((0..n).map(|i| edges[i % edges.len()]).collect());
    inputs.push(random(n, 5, 1).iter().map(|&r| edges[r as usize]).collect());
    inputs.push((0..n).map(|i| u64::from(i == n - 1)).collect());
    inputs.extend((2..4).map(|seed| random(n, q, seed)));
    inputs
}

fn add(a: u64, b: u64, q: u64) -> u64 {
    ((u128::from(a) + u128::from(b)) % u128::from(q)) as u64
}

fn sub(a: u64, b: u64, q: u64) -> u64 {
    add(a, q - b, q)
}

/// The product of two polynomials modulo X^N + 1 and q, coefficient by coefficient.
fn schoolbook(a: &[u64], b: &[u64], q: u64) -> Vec<u64> {
    let n = a.len();
    let mut product = vec![0; n];
    for (i, &x) in a.iter().enumerate() {
        for (j, &y) in b.iter().enumerate() {
            let term = prime::mul(x, y, q);
            let at = &mut product[(i + j) % n];
            *at = if i + j < n {
                add(*at, term, q)
            } else {
                sub(*at, term, q)
            };
        }
    }
    product
}

fn words<K: Kind>(a: &[u64]) -> Vec<WordOf<K>> {
    a.iter().map(|&x| WordOf::<K>::truncate(x.into())).collect()
}

fn numbers<W: Word>(a: &[W]) -> Vec<u64> {
    a.iter().map(|x| x.widen()).collect()
}

fn forward<K: Kind>(plan: &PrimeNttPlan<K>, a: &[u64]) -> Vec<u64> {
    let mut a = words::<K>(a);
    plan.forward(&mut a);
    numbers(&a)
}

fn inverse<K: Kind>(plan: &PrimeNttPlan<K>, a: &[u64]) -> Vec<u64> {
    let mut a = words::<K>(a);
    plan.inverse(&mut a);
    numbers(&a)
}

fn multiply<K: Kind>(plan: &PrimeNttPlan<K>, a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut product = words::<K>(&forward(plan, a));
    plan.mul_assign(&mut product, &words::<K>(&forward(plan, b)));
    plan.inverse(&mut product);
    plan.scale_assign(&mut product, prime::inv(a.len() as u64, plan.modulus()));
    numbers(&product)
}

fn bit_reversed(i: usize, n: usize) -> usize {
    i.reverse_bits() >> (usize::BITS - n.ilog2())
}

mod generic {
    use super::*;

    pub fn forward_is_the_definition_in_bit_reversed_order<K: Kind>() {
        for n in degrees(256) {
            for q in primes::<K>(n) {
                let psi = prime::psi(n, q).unwrap();
                for a in inputs(n, q) {
                    let value = |i: usize| {
                        let x = prime::pow(psi, 2 * bit_reversed(i, n) as u64 + 1, q);
                        let step = |sum, &c: &u64| add(prime::mul(sum, x, q), c, q);
                        a.iter().rev().fold(0, step)
                    };
                    let expected: Vec<u64> = (0..n).map(value).collect();
                    for plan in plans::<K>(n, q) {
                        assert!(
                            forward(&plan, &a) == expected,
                            "N = {n}, {q}, {}",
                            plan.simd()
                        );
                    }
                }
            }
        }
    }

    pub fn kernels_agree_bit_for_bit<K: Kind>() {
        for n in degrees(16384).chain([MAX_DEGREE]) {
            for q in primes::<K>(n) {
                let oracle = PrimeNttPlan::<K>::with_simd(n, q, SimdLevel::Portable).unwrap();
                for a in inputs(n, q) {
                    let (values, coefficients) = (forward(&oracle, &a), inverse(&oracle, &a));
                    assert!(values.iter().chain(&coefficients).all(|&x| x < q));
                    for plan in plans::<K>(n, q) {
                        let simd = plan.simd();
                        assert!(forward(&plan, &a) == values, "forward, {n}, {q}, {simd}");
                        assert!(
                            inverse(&plan, &a) == coefficients,
                            "inverse, {n}, {q}, {simd}"
                        );
                    }
                }
            }
        }
    }

    pub fn inverse_undoes_forward_times_n<K: Kind>() {
        for n in degrees(MAX_DEGREE) {
            let q = ntt_primes(n, 1 << K::BITS).next().unwrap();
            for plan in plans::<K>(n, q) {
                let a = random(n, q, 7);
                let scaled: Vec<u64> = a.iter().map(|&x| prime::mul(x, n as u64, q)).collect();
                let simd = plan.simd();
                assert!(inverse(&plan, &forward(&plan, &a)) == scaled, "{n}, {simd}");
                assert!(forward(&plan, &inverse(&plan, &a)) == scaled, "{n}, {simd}");
            }
        }
    }

    pub fn products_are_negacyclic<K: Kind>() {
        for n in degrees(256) {
            for q in primes::<K>(n) {
                let all = inputs(n, q);
                for (a, b) in all.iter().zip(all.iter().rev()) {
                    let expected = schoolbook(a, b, q);
                    for plan in plans::<K>(n, q) {
                        let simd = plan.simd();
                        assert!(multiply(&plan, a, b) == expected, "N = {n}, {q}, {simd}");
                    }
                }
            }
        }
    }

    pub fn powers_of_x_wrap_with_a_sign<K: Kind>() {
        let n = 16384;
        for q in primes::<K>(n) {
            for plan in plans::<K>(n, q) {
                for (i, j) in [(1, 1), (n - 1, 1), (5000, 12000)] {
                    let monomial = |e| -> Vec<u64> { (0..n).map(|k| u64::from(k == e)).collect() };
                    let mut expected = vec![0; n];
                    expected[(i + j) % n] = if i + j < n { 1 } else { q - 1 };
                    let product = multiply(&plan, &monomial(i), &monomial(j));
                    assert!(product == expected, "{i} + {j}, {q}, {}", plan.simd());
                }
            }
        }
    }

    pub fn pointwise_operations<K: Kind>() {
        for n in degrees(1024) {
            for q in primes::<K>(n) {
                let edges = [0, 1, 2, q / 2, q / 2 + 1, q - 2, q - 1];
                let pick = |step: usize, seed| -> Vec<u64> {
                    let edge = |i: usize| edges[i / step % edges.len()];
                    let fill = random(n, q, seed);
                    (0..n)
                        .map(|i| if i < 512 { edge(i) } else { fill[i] })
                        .collect()
                };
                let (acc, a, b) = (pick(49, 1), pick(7, 2), pick(1, 3));
                for plan in plans::<K>(n, q) {
                    let (mut sum, mut product) = (words::<K>(&acc), words::<K>(&a));
                    let mut scaled = words::<K>(&b);
                    plan.mul_add_assign(&mut sum, &words::<K>(&a), &words::<K>(&b));
                    plan.mul_assign(&mut product, &words::<K>(&b));
                    plan.scale_assign(&mut scaled, q - 2);
                    for i in 0..n {
                        let expected = prime::mul(a[i], b[i], q);
                        assert_eq!(product[i].widen(), expected, "{q}, {}", plan.simd());
                        let expected = add(acc[i], expected, q);
                        assert_eq!(sum[i].widen(), expected, "{q}, {}", plan.simd());
                        let expected = prime::mul(b[i], q - 2, q);
                        assert_eq!(scaled[i].widen(), expected, "{q}, {}", plan.simd());
                    }
                }
            }
        }
    }

    pub fn requests_without_a_plan<K: Kind>() {
        let new = |n, q| PrimeNttPlan::<K>::new(n, q).map(|plan| plan.degree());
        for n in [0, 1, 3, 1000, MAX_DEGREE * 2] {
            let (min, max) = (2, MAX_DEGREE);
            assert_eq!(new(n, 97), Err(RingError::Degree { found: n, min, max }));
        }
        let (found, bits) = (1 << K::BITS, K::BITS);
        assert_eq!(
            new(8, found),
            Err(RingError::ModulusTooLarge { found, bits })
        );
        assert_eq!(new(8, 0), Err(RingError::NotPrime(0)));
        assert_eq!(new(8, 49), Err(RingError::NotPrime(49)));
        let (modulus, degree) = (97, 32);
        assert_eq!(new(32, 97), Err(RingError::NoRoot { modulus, degree }));
        for simd in SimdLevel::ALL {
            match PrimeNttPlan::<K>::with_simd(16, 97, simd) {
                Ok(plan) => {
                    assert!(simd.is_available() && plan.simd() == simd);
                    assert_eq!((plan.degree(), plan.modulus()), (16, 97));
                    assert_eq!(Ok(plan.psi()), prime::psi(16, 97));
                }
                Err(error) => {
                    assert!(!simd.is_available() && error == RingError::SimdLevelUnavailable(simd));
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "a polynomial of this plan has 8 words, the slice has 7")]
fn wrong_length() {
    Ntt50Plan::new(8, 97).unwrap().forward(&mut [0; 7]);
}

#[test]
#[should_panic(expected = "keys of 16 words and sums of 8 for columns of 8")]
fn wrong_columns() {
    let plan = Ntt50Plan::new(8, 97).unwrap();
    plan.forward_mul_add::<true>(&mut [0; 8], &[0; 16], &mut [0; 8]);
}

/// `Σ rows·keys` of polynomials by prepared keys, for each column; coefficients as signed words.
fn external_product(plan: &Ntt50Plan, rows: &[Vec<u64>], keys: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let (n, q) = (plan.degree(), plan.modulus());
    let columns = keys.len() / rows.len();
    // What is in the sums beforehand does not count without ADD.
    let mut sums = vec![u64::MAX; columns * n];
    for (r, row) in rows.iter().enumerate() {
        let mut prepared: Vec<u64> = Vec::new();
        for key in &keys[r * columns..(r + 1) * columns] {
            let mut values = forward(plan, key);
            plan.prepare_key(&mut values);
            prepared.extend(values);
        }
        let mut row = row.clone();
        if r == 0 {
            plan.forward_mul_add::<false>(&mut row, &prepared, &mut sums);
        } else {
            plan.forward_mul_add::<true>(&mut row, &prepared, &mut sums);
        }
    }
    sums.chunks_exact_mut(n)
        .map(|sum| {
            plan.inverse_sum(sum);
            plan.scale_assign(sum, prime::inv(n as u64, q));
            sum.to_vec()
        })
        .collect()
}

#[test]
fn external_products() {
    for n in degrees(512) {
        for q in primes::<Bits50>(n) {
            let all = inputs(n, q);
            let (rows, columns) = (all.len(), 2);
            let keys: Vec<Vec<u64>> = (0..rows * columns)
                .map(|i| all[(5 * i + 3) % rows].clone())
                .collect();
            let expected: Vec<Vec<u64>> = (0..columns)
                .map(|c| {
                    let mut sum = vec![0; n];
                    for (r, row) in all.iter().enumerate() {
                        let product = schoolbook(row, &keys[r * columns + c], q);
                        sum = sum
                            .iter()
                            .zip(product)
                            .map(|(&a, b)| add(a, b, q))
                            .collect();
                    }
                    sum
                })
                .collect();
            // Every other row, and every other coefficient, by its negative representative.
            let mut signed = all.clone();
            for x in signed
                .iter_mut()
                .step_by(2)
                .flat_map(|a| a.iter_mut().step_by(2))
            {
                *x = x.wrapping_sub(q);
            }
            for plan in plans::<Bits50>(n, q) {
                for rows in [&all, &signed] {
                    let products = external_product(&plan, rows, &keys);
                    assert!(products == expected, "N = {n}, {q}, {}", plan.simd());
                }
            }
        }
    }
}

/// Many rows of the largest values: sums stay within their bounds.
#[test]
fn long_sums() {
    let (n, rows) = (16384, 40);
    let q = ntt_primes(n, 1 << 50).next().unwrap();
    for (fill, key) in [(q - 1, q / 2), (q / 2, q / 2 + 1), (q - 1, q - 1)] {
        let values: Vec<Vec<u64>> = plans::<Bits50>(n, q)
            .map(|plan| {
                let mut prepared = vec![key; n];
                plan.prepare_key(&mut prepared);
                let mut sums = vec![0; n];
                for _ in 0..rows {
                    plan.forward_mul_add::<true>(&mut vec![fill; n], &prepared, &mut sums);
                }
                plan.inverse_sum(&mut sums);
                sums
            })
            .collect();
        let factor = prime::mul(prime::mul(key, rows * n as u64, q), fill, q);
        for sums in values {
            assert!(sums.iter().all(|&x| x == factor));
        }
    }
}

/// Sums of the largest values, added up in a chain: whatever sum is added to it, it stays one.
#[test]
fn sums_of_sums() {
    let rows = 100;
    for n in [2, 64, 128, 1024] {
        for q in primes::<Bits50>(n) {
            for (fill, key) in [
                (q - 1, q / 2),
                (q / 2, q / 2 + 1),
                (q - 1, q - 1),
                (1, q / 2),
            ] {
                for plan in plans::<Bits50>(n, q) {
                    let mut prepared = vec![key; 2 * n];
                    for key in prepared.chunks_exact_mut(n) {
                        plan.prepare_key(key);
                    }
                    let mut row = vec![0; 2 * n];
                    plan.forward_mul_add::<false>(&mut vec![fill; n], &prepared, &mut row);
                    plan.forward_mul_add::<true>(&mut vec![fill; n], &prepared, &mut row);
                    let mut sums = vec![0; 2 * n];
                    for _ in 0..rows {
                        plan.add_sum(&mut sums, &row);
                        plan.forward_mul_add::<true>(&mut vec![fill; n], &prepared, &mut sums);
                    }
                    // Sums of as many, added to themselves.
                    let other = sums.clone();
                    plan.add_sum(&mut sums, &other);
                    let all = prime::mul(6 * rows, n as u64, q);
                    let factor = prime::mul(prime::mul(key, all, q), fill, q);
                    for sum in sums.chunks_exact_mut(n) {
                        plan.inverse_sum(sum);
                        assert!(
                            sum.iter().all(|&x| x == factor),
                            "{n}, {q}, {}",
                            plan.simd()
                        );
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "sums of 16 and of 8 words for columns of 8")]
fn wrong_sums() {
    let plan = Ntt50Plan::new(8, 97).unwrap();
    plan.add_sum(&mut [0; 16], &[0; 8]);
}

fn check_linear<K: Kind>(log: u32, seed: u64) {
    let n = 1 << log;
    let all = primes::<K>(n);
    let q = all[seed as usize % all.len()];
    let (a, b, c) = (random(n, q, seed), random(n, q, !seed), seed % q);
    let combine = |a: &[u64], b: &[u64]| -> Vec<u64> {
        let pairs = a.iter().zip(b);
        pairs
            .map(|(&a, &b)| add(prime::mul(a, c, q), b, q))
            .collect()
    };
    for plan in plans::<K>(n, q) {
        let sum = combine(&a, &b);
        let values = combine(&forward(&plan, &a), &forward(&plan, &b));
        assert!(forward(&plan, &sum) == values, "{q}, {}", plan.simd());
        let coefficients = combine(&inverse(&plan, &a), &inverse(&plan, &b));
        assert!(inverse(&plan, &sum) == coefficients, "{q}, {}", plan.simd());
    }
}

fn check_product<K: Kind>(log: u32, seed: u64) {
    let n = 1 << log;
    let all = primes::<K>(n);
    let q = all[seed as usize % all.len()];
    let (a, b) = (random(n, q, seed), random(n, q, !seed));
    let expected = schoolbook(&a, &b, q);
    for plan in plans::<K>(n, q) {
        assert!(multiply(&plan, &a, &b) == expected, "{q}, {}", plan.simd());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn transforms_are_linear(log in 1u32..11, seed in any::<u64>()) {
        check_linear::<Bits31>(log, seed);
        check_linear::<Bits50>(log, seed);
        check_linear::<Bits63>(log, seed);
    }

    #[test]
    fn products(log in 1u32..9, seed in any::<u64>()) {
        check_product::<Bits31>(log, seed);
        check_product::<Bits50>(log, seed);
        check_product::<Bits63>(log, seed);
    }
}

/// Words below 2^50, of which the last is the largest.
fn wide(n: usize, seed: u64) -> Vec<u64> {
    let mut words = random(n, 1 << 50, seed);
    words[n - 1] = (1 << 50) - 1;
    words
}

#[test]
fn sums_of_few_products() {
    for (n, part) in [(16, 16), (128, 8), (128, 128), (1024, 264)] {
        for q in primes::<Bits50>(n) {
            for terms in [0, 1, 2, 8, Ntt50Plan::TERMS] {
                let rows = wide(part * terms.max(1), 1);
                let rows: Vec<&[u64]> = rows.chunks_exact(part).take(terms).collect();
                let mut weights = random(terms, q, 2);
                if let Some(first) = weights.first_mut() {
                    *first = q - 1;
                }
                let factors: Vec<Vec<u64>> = (0..2 * terms as u64)
                    .map(|seed| {
                        let mut factor = random(part, q, seed);
                        factor[part - 1] = q - 1;
                        factor
                    })
                    .collect();
                let (left, right) = factors.split_at(terms);
                let combined = |i: usize| -> u64 {
                    let products = weights.iter().enumerate();
                    products.fold(0, |sum, (r, w)| add(sum, prime::mul(*w, rows[r][i], q), q))
                };
                let dot = |i: usize| -> u64 {
                    let pairs = left.iter().zip(right);
                    pairs.fold(0, |sum, (a, b)| add(sum, prime::mul(a[i], b[i], q), q))
                };
                let pairs: Vec<(&[u64], &[u64])> = left
                    .iter()
                    .zip(right)
                    .map(|(a, b)| (a.as_slice(), b.as_slice()))
                    .collect();
                for plan in plans::<Bits50>(n, q) {
                    let mut out = vec![7; part];
                    plan.combine(&mut out, &rows, &plan.weights(&weights));
                    assert_eq!(out, (0..part).map(combined).collect::<Vec<_>>());
                    plan.dot(&mut out, &pairs, None);
                    assert_eq!(out, (0..part).map(dot).collect::<Vec<_>>());
                    let Some(((last, _), pairs)) = pairs.split_last() else {
                        continue;
                    };
                    for w in [0, 1, q / 2, q - 1] {
                        plan.dot(&mut out, pairs, Some((last, w)));
                        let sum = |i: usize| {
                            let of_pairs = pairs.iter();
                            of_pairs.fold(prime::mul(w, last[i], q), |sum, (a, b)| {
                                add(sum, prime::mul(a[i], b[i], q), q)
                            })
                        };
                        assert_eq!(out, (0..part).map(sum).collect::<Vec<_>>());
                    }
                }
            }
            let (a, b) = (random(part, q, 3), random(part, q, 4));
            for c in [0, 1, q - 1, q / 2, u64::MAX] {
                let expected: Vec<u64> = (a.iter().zip(&b))
                    .map(|(a, b)| prime::mul(sub(*a, *b, q), c, q))
                    .collect();
                for plan in plans::<Bits50>(n, q) {
                    let mut out = a.clone();
                    plan.sub_scale_assign(&mut out, &b, c);
                    assert_eq!(out, expected);
                }
            }
        }
    }
}

#[test]
fn weighted_sums_of_many_values() {
    const PART: usize = 32;
    for q in primes::<Bits50>(64) {
        let limit = q.min(1 << 32);
        for count in [1, 7, 8, 9, 13, 511, Ntt50Plan::MAX_WEIGHED] {
            let mut values = random(PART * count, q, 1);
            values[PART * count - 1] = q - 1;
            let rows: Vec<Vec<u64>> = (0..3).map(|row| random(count, limit, row)).collect();
            let rows = [&rows[0], &rows[1], &rows[2], &vec![limit - 1; count]];
            let c = q - 2;
            let sum = |row: &[u64], at: usize| {
                let sum = row.iter().enumerate().fold(0, |sum, (k, weight)| {
                    add(sum, prime::mul(*weight, values[k * PART + at], q), q)
                });
                prime::mul(c, sum, q)
            };
            let sums = rows.map(|row| (0..PART).map(|at| sum(row, at)).collect::<Vec<_>>());
            for plan in plans::<Bits50>(64, q) {
                let mut out = vec![7; 4 * PART];
                plan.weigh(&mut out, &values, rows.map(Vec::as_slice), c);
                assert_eq!(out, sums.concat(), "{count} values modulo {q}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "1 weights for 16 words of values and 16 of results")]
fn a_weight_that_is_too_large() {
    let q = ntt_primes(16, 1 << 50).next().unwrap();
    let plan = Ntt50Plan::new(16, q).unwrap();
    plan.weigh(&mut [0; 16], &[1; 16], [&[1 << 32]], 1);
}

#[test]
#[should_panic(expected = "13 weights are too many")]
fn too_many_weights() {
    let q = ntt_primes(16, 1 << 50).next().unwrap();
    let _ = Ntt50Plan::new(16, q).unwrap().weights(&[1; 13]);
}

#[test]
#[should_panic(expected = "a multiple of 8 words, not 12")]
fn parts_of_no_whole_vectors() {
    let q = ntt_primes(16, 1 << 50).next().unwrap();
    let mut part = [0; 12];
    Ntt50Plan::new(16, q)
        .unwrap()
        .sub_scale_assign(&mut part, &[0; 12], 1);
}
