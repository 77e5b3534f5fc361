//! One suite for every kernel of the NTT: the definition, the portable kernel bit for bit, and the ring's own laws.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use toroid_ring::RingError;
use toroid_ring::goldilocks::{self, MAX_DEGREE, P};
use toroid_ring::naive::{negacyclic_mul_goldilocks, negacyclic_mul_wrapping_u32, ntt_definition};
use toroid_ring::ntt::NttPlan;
use toroid_ring::simd::SimdLevel;

/// Computed with big integers from the definition, in bit-reversed order.
const NTT_OF_1_TO_8: [u64; 8] = [
    6_954_973_171_044_849_921,
    11_494_601_041_400_289_538,
    2_289_228_838_716_024_577,
    16_160_314_587_202_217_730,
    9_194_946_500_304_551_169,
    9_248_989_416_647_572_738,
    4_619_282_956_461_048_577,
    13_824_639_765_881_783_042,
];

/// Positions and values for `f_j = 0x9e3779b97f4a7c15·(j + 1)^5` and N = 16384, computed likewise.
const NTT_OF_FIFTH_POWERS: [(usize, u64); 6] = [
    (0, 11_896_488_760_113_176_194),
    (1, 5_604_250_367_241_239_218),
    (2, 66_567_858_864_003_856),
    (8191, 2_231_093_631_172_612_280),
    (12345, 15_410_302_754_856_572_038),
    (16383, 17_638_811_548_681_069_106),
];

fn degrees(max: usize) -> impl Iterator<Item = usize> {
    (1..=max.ilog2()).map(|log| 1 << log)
}

fn plans(n: usize) -> impl Iterator<Item = NttPlan> {
    SimdLevel::available().map(move |simd| NttPlan::with_simd(n, simd).unwrap())
}

/// The generator of splitmix64, reduced to canonical elements.
fn random(n: usize, seed: u64) -> Vec<u64> {
    (1..=n as u64)
        .map(|i| {
            let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % P
        })
        .collect()
}

/// Polynomials that drive the kernels' carries: constants at the borders, their alternations, and single terms.
fn extremes(n: usize) -> Vec<Vec<u64>> {
    let edges = [
        0,
        1,
        0xffff_ffff,
        0x1_0000_0000,
        P / 2,
        P - 0xffff_ffff,
        P - 1,
    ];
    let mut inputs: Vec<Vec<u64>> = edges.iter().map(|&e| vec![e; n]).collect();
    inputs.push((0..n).map(|i| if i % 2 == 0 { P - 1 } else { 0 }).collect());
    inputs.push((0..n).map(|i| if i < n / 2 { P - 1 } else { 0 }).collect());
    inputs.push((0..n).map(|i| edges[i % edges.len()]).collect());
    inputs.push(
        random(n, 1)
            .iter()
            .map(|r| edges[(r % 7) as usize])
            .collect(),
    );
    inputs.push((0..n).map(|i| u64::from(i == n - 1)).collect());
    inputs
}

fn inputs(n: usize) -> Vec<Vec<u64>> {
    let mut inputs = extremes(n);
    inputs.extend((2..5).map(|seed| random(n, seed)));
    inputs
}

fn forward(plan: &NttPlan, a: &[u64]) -> Vec<u64> {
    let mut a = a.to_vec();
    plan.forward(&mut a);
    a
}

fn inverse(plan: &NttPlan, a: &[u64]) -> Vec<u64> {
    let mut a = a.to_vec();
    plan.inverse(&mut a);
    a
}

fn multiply(plan: &NttPlan, a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut product = forward(plan, a);
    plan.mul_assign(&mut product, &forward(plan, b));
    plan.inverse(&mut product);
    plan.scale_assign(&mut product, goldilocks::inv(a.len() as u64));
    product
}

fn bit_reversed(i: usize, n: usize) -> usize {
    i.reverse_bits() >> (usize::BITS - n.ilog2())
}

#[test]
fn known_answers() {
    for plan in plans(8) {
        assert_eq!(forward(&plan, &[1, 2, 3, 4, 5, 6, 7, 8]), NTT_OF_1_TO_8);
    }
    let n = 16384;
    let polynomial: Vec<u64> = (1..=n as u64)
        .map(|i| goldilocks::mul(goldilocks::pow(i, 5), 0x9e37_79b9_7f4a_7c15))
        .collect();
    for plan in plans(n) {
        let values = forward(&plan, &polynomial);
        for (i, value) in NTT_OF_FIFTH_POWERS {
            assert_eq!(values[i], value, "position {i}, {}", plan.simd());
        }
    }
}

#[test]
fn forward_is_the_definition_in_bit_reversed_order() {
    for n in degrees(256) {
        for a in inputs(n) {
            let values = ntt_definition(&a).unwrap();
            let expected: Vec<u64> = (0..n).map(|i| values[bit_reversed(i, n)]).collect();
            for plan in plans(n) {
                assert_eq!(forward(&plan, &a), expected, "N = {n}, {}", plan.simd());
            }
        }
    }
}

#[test]
fn kernels_agree_bit_for_bit() {
    for n in degrees(MAX_DEGREE) {
        let oracle = NttPlan::with_simd(n, SimdLevel::Portable).unwrap();
        for a in inputs(n) {
            let (values, coefficients) = (forward(&oracle, &a), inverse(&oracle, &a));
            assert!(values.iter().chain(&coefficients).all(|&x| x < P));
            for plan in plans(n) {
                assert!(
                    forward(&plan, &a) == values,
                    "forward, N = {n}, {}",
                    plan.simd()
                );
                assert!(
                    inverse(&plan, &a) == coefficients,
                    "inverse, N = {n}, {}",
                    plan.simd()
                );
            }
        }
    }
}

#[test]
fn inverse_undoes_forward_times_n() {
    for n in degrees(MAX_DEGREE) {
        for plan in plans(n) {
            let a = random(n, 7);
            let scaled: Vec<u64> = a.iter().map(|&x| goldilocks::mul(x, n as u64)).collect();
            assert!(
                inverse(&plan, &forward(&plan, &a)) == scaled,
                "N = {n}, {}",
                plan.simd()
            );
            assert!(
                forward(&plan, &inverse(&plan, &a)) == scaled,
                "N = {n}, {}",
                plan.simd()
            );
        }
    }
}

#[test]
fn products_are_negacyclic() {
    for n in degrees(512) {
        let all = inputs(n);
        for (a, b) in all.iter().zip(all.iter().rev()) {
            let expected = negacyclic_mul_goldilocks(a, b);
            for plan in plans(n) {
                assert_eq!(multiply(&plan, a, b), expected, "N = {n}, {}", plan.simd());
            }
        }
    }
}

#[test]
fn powers_of_x_wrap_with_a_sign() {
    let n = 16384;
    for plan in plans(n) {
        for (i, j) in [(1, 1), (n - 1, 1), (n - 1, n - 1), (5000, 12000)] {
            let monomial = |e: usize| -> Vec<u64> { (0..n).map(|k| u64::from(k == e)).collect() };
            let mut expected = vec![0; n];
            expected[(i + j) % n] = if i + j < n { 1 } else { P - 1 };
            assert!(
                multiply(&plan, &monomial(i), &monomial(j)) == expected,
                "{i} + {j}, {}",
                plan.simd()
            );
        }
    }
}

/// The external product of a 32-bit torus: exact where the product stays within p/2.
#[test]
fn torus_words_times_small_integers() {
    let n = 256;
    let words: Vec<u32> = random(n, 8).iter().map(|&x| x as u32).collect();
    let digits: Vec<i64> = random(n, 9).iter().map(|&x| (x % 64) as i64 - 32).collect();
    let a: Vec<u64> = words.iter().map(|&x| u64::from(x)).collect();
    let b: Vec<u64> = digits.iter().map(|&x| goldilocks::from_signed(x)).collect();
    for plan in plans(n) {
        let product: Vec<u32> = multiply(&plan, &a, &b)
            .iter()
            .map(|&x| goldilocks::to_centered(x) as u32)
            .collect();
        assert_eq!(product, negacyclic_mul_wrapping_u32(&words, &digits));
    }
}

#[test]
fn pointwise_operations() {
    let edges = extremes(1).concat();
    for n in degrees(MAX_DEGREE) {
        let pick = |step: usize| -> Vec<u64> {
            let fill = random(n, step as u64);
            (0..n)
                .map(|i| {
                    if i < 4096 {
                        edges[i / step % edges.len()]
                    } else {
                        fill[i]
                    }
                })
                .collect()
        };
        let (acc, a, b) = (pick(1), pick(edges.len()), pick(edges.len() * edges.len()));
        for plan in plans(n) {
            let (mut sum, mut product, mut scaled) = (acc.clone(), a.clone(), b.clone());
            plan.mul_add_assign(&mut sum, &a, &b);
            plan.mul_assign(&mut product, &b);
            plan.scale_assign(&mut scaled, P - 2);
            for i in 0..n {
                let expected = goldilocks::mul(a[i], b[i]);
                assert_eq!(product[i], expected, "{}", plan.simd());
                assert_eq!(sum[i], goldilocks::add(acc[i], expected), "{}", plan.simd());
                assert_eq!(scaled[i], goldilocks::mul(b[i], P - 2), "{}", plan.simd());
            }
        }
    }
}

#[test]
fn a_transform_fused_with_its_products() {
    for n in degrees(MAX_DEGREE) {
        let oracle = NttPlan::with_simd(n, SimdLevel::Portable).unwrap();
        for columns in [1, 2, 3] {
            let many = |seed: u64| (0..columns).flat_map(|c| random(n, seed + c)).collect();
            let (mut keys, mut sums): (Vec<u64>, Vec<u64>) = (many(20), many(30));
            for (i, edge) in extremes(1).concat().into_iter().cycle().enumerate().take(n) {
                keys[i] = edge;
                sums[i] = [P - 1, 0, edge][i / 16 % 3];
            }
            for a in [random(n, 40), vec![P - 1; n]] {
                let values = forward(&oracle, &a);
                let mut expected = sums.clone();
                for (sum, key) in expected.chunks_mut(n).zip(keys.chunks(n)) {
                    oracle.mul_add_assign(sum, &values, key);
                }
                let mut overwritten = vec![0; sums.len()];
                for (sum, key) in overwritten.chunks_mut(n).zip(keys.chunks(n)) {
                    oracle.mul_add_assign(sum, &values, key);
                }
                for plan in plans(n) {
                    let (mut added, mut set) = (sums.clone(), sums.clone());
                    plan.forward_mul_add::<true>(&mut a.clone(), &keys, &mut added);
                    plan.forward_mul_add::<false>(&mut a.clone(), &keys, &mut set);
                    assert!(added == expected, "N = {n}, {}", plan.simd());
                    assert!(set == overwritten, "N = {n}, {}", plan.simd());
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "columns of 8 elements each, 8 of keys and 16 of sums")]
fn sums_without_keys() {
    NttPlan::new(8)
        .unwrap()
        .forward_mul_add::<true>(&mut [0; 8], &[0; 8], &mut [0; 16]);
}

/// The transform of the platform paper's appendix (equations of A.1.1, natural order) is the transposed of ours; it is
/// the reason that the roles of the two butterflies are exchanged here.
#[test]
fn the_appendix_defines_the_transposed_transform() {
    let n = 8;
    let psi = goldilocks::psi(n).unwrap();
    let appendix = |f: &[u64]| -> Vec<u64> {
        let term = |i: usize, j: usize| {
            goldilocks::mul(f[j], goldilocks::pow(psi, (i + 2 * i * j) as u64))
        };
        (0..n)
            .map(|i| (0..n).fold(0, |sum, j| goldilocks::add(sum, term(i, j))))
            .collect()
    };
    let unit = |j: usize| -> Vec<u64> { (0..n).map(|k| u64::from(k == j)).collect() };
    for i in 0..n {
        for j in 0..n {
            assert_eq!(appendix(&unit(j))[i], ntt_definition(&unit(i)).unwrap()[j]);
        }
    }
    // X^7·X = -1, but the first output of the appendix's transform is the sum of the coefficients.
    let product = goldilocks::mul(appendix(&unit(7))[0], appendix(&unit(1))[0]);
    let minus_one = [P - 1, 0, 0, 0, 0, 0, 0, 0];
    assert_ne!(product, appendix(&minus_one)[0]);
}

#[test]
fn degrees_that_have_no_plan() {
    for n in [0, 1, 3, 1000, MAX_DEGREE * 2] {
        let expected = RingError::Degree {
            found: n,
            min: 2,
            max: MAX_DEGREE,
        };
        assert_eq!(NttPlan::new(n).unwrap_err(), expected);
        assert_eq!(ntt_definition(&vec![0; n]).unwrap_err(), expected);
    }
    for simd in SimdLevel::ALL {
        match NttPlan::with_simd(8, simd) {
            Ok(plan) => assert!(simd.is_available() && plan.simd() == simd && plan.degree() == 8),
            Err(error) => {
                assert!(!simd.is_available() && error == RingError::SimdLevelUnavailable(simd))
            }
        }
    }
}

#[test]
#[should_panic(expected = "a polynomial of this plan has 8 elements, the slice has 7")]
fn wrong_length() {
    NttPlan::new(8).unwrap().forward(&mut [0; 7]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn transforms_are_linear(log in 1u32..11, seed in any::<u64>(), c in 0..P) {
        let n = 1 << log;
        let (a, b) = (random(n, seed), random(n, !seed));
        let combine = |a: &[u64], b: &[u64]| -> Vec<u64> {
            a.iter().zip(b).map(|(&a, &b)| goldilocks::add(goldilocks::mul(a, c), b)).collect()
        };
        for plan in plans(n) {
            let sum = combine(&a, &b);
            prop_assert_eq!(forward(&plan, &sum), combine(&forward(&plan, &a), &forward(&plan, &b)));
            prop_assert_eq!(inverse(&plan, &sum), combine(&inverse(&plan, &a), &inverse(&plan, &b)));
        }
    }

    #[test]
    fn products(log in 1u32..8, seed in any::<u64>()) {
        let n = 1 << log;
        let (a, b) = (random(n, seed), random(n, !seed));
        let expected = negacyclic_mul_goldilocks(&a, &b);
        for plan in plans(n) {
            prop_assert_eq!(multiply(&plan, &a, &b), expected.clone());
        }
    }
}
