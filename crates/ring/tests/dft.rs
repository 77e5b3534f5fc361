//! One suite for every kernel of the discrete Fourier transform: the definition, the laws, and the borders of words.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use toroid_ring::RingError;
use toroid_ring::dft::{Algorithm, DftPlan};
use toroid_ring::simd::SimdLevel;

/// Every product of different primes of 3, 5, 17 and 257 that is tested in full.
const PRIME_FACTOR: [usize; 12] = [3, 5, 15, 17, 51, 85, 255, 257, 771, 1285, 3855, 4369];

/// 5·17·257, the length of the paper.
const PAPER: usize = 21845;

const OTHER: [usize; 16] = [1, 2, 4, 6, 7, 8, 9, 12, 13, 21, 25, 33, 45, 64, 105, 289];

fn mul(a: u32, b: u32, q: u32) -> u32 {
    (u64::from(a) * u64::from(b) % u64::from(q)) as u32
}

fn pow(base: u32, exponent: u64, q: u32) -> u32 {
    (0..64 - exponent.leading_zeros())
        .rev()
        .fold(1 % q, |power, bit| {
            let square = mul(power, power, q);
            if exponent >> bit & 1 == 1 {
                mul(square, base, q)
            } else {
                square
            }
        })
}

fn is_prime(n: u64) -> bool {
    n > 1
        && (2..)
            .take_while(|d| d * d <= n)
            .all(|d| !n.is_multiple_of(d))
}

/// The largest prime below `bound` that is 1 modulo `step`.
fn prime_below(bound: u64, step: u64) -> u32 {
    let first = (bound - 2) / step * step + 1;
    (0..first / step)
        .map(|i| first - i * step)
        .find(|&q| is_prime(q))
        .unwrap() as u32
}

/// Primes for a length at the borders between the arithmetics, with roots for the convolutions, and small ones.
fn moduli(length: usize) -> Vec<u32> {
    let step = length as u64 * if length.is_multiple_of(257) { 256 } else { 16 };
    let smallest = (1..).map(|k| k * step + 1).find(|&q| is_prime(q)).unwrap() as u32;
    let mut moduli = vec![smallest];
    for bits in [20, 29, 30, 31, 32] {
        if 1u64 << bits > 40 * step {
            moduli.push(prime_below(1 << bits, step));
        }
    }
    // The primes next above 2^30 and 2^31.
    for bits in [30, 31] {
        let first = (1u64 << bits) / step * step + step + 1;
        let q = (0..)
            .map(|i| first + i * step)
            .find(|&q| is_prime(q))
            .unwrap();
        moduli.push(q as u32);
    }
    moduli
}

fn plans(length: usize, q: u32) -> impl Iterator<Item = DftPlan> {
    SimdLevel::available().map(move |simd| DftPlan::with_simd(length, q, simd).unwrap())
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

fn inputs(length: usize, q: u32) -> Vec<Vec<u32>> {
    let alternating = |a: u32, b: u32| {
        (0..length)
            .map(|i| if i % 2 == 0 { a } else { b })
            .collect()
    };
    vec![
        vec![0; length],
        vec![q - 1; length],
        alternating(q - 1, 0),
        alternating(q / 2, q / 2 + 1),
        random(length, 2, 1)
            .iter()
            .map(|&bit| bit * (q - 1))
            .collect(),
        (0..length).map(|i| u32::from(i == length - 1)).collect(),
        random(length, q, 2),
    ]
}

/// The transform by its definition.
fn definition(x: &[u32], root: u32, q: u32) -> Vec<u32> {
    let m = x.len();
    let powers: Vec<u32> = (0..m as u64).map(|e| pow(root, e, q)).collect();
    (0..m)
        .map(|k| {
            let mut exponent = 0;
            let mut sum = 0u128;
            for &word in x {
                sum += u128::from(u64::from(word) * u64::from(powers[exponent]));
                exponent += k;
                if exponent >= m {
                    exponent -= m;
                }
            }
            (sum % u128::from(q)) as u32
        })
        .collect()
}

/// Scratch with values that a transform must not rely on.
fn scratch(plan: &DftPlan) -> Vec<u32> {
    vec![0xdead_beef; plan.scratch_len()]
}

fn forward(plan: &DftPlan, x: &[u32]) -> Vec<u32> {
    let mut x = x.to_vec();
    plan.forward(&mut x, &mut scratch(plan));
    x
}

fn inverse(plan: &DftPlan, x: &[u32]) -> Vec<u32> {
    let mut x = x.to_vec();
    plan.inverse(&mut x, &mut scratch(plan));
    x
}

/// Forward and inverse against the definition, on every instruction set.
fn check_definition(length: usize, q: u32, algorithm: Algorithm, inputs: &[Vec<u32>]) {
    let root = DftPlan::new(length, q).unwrap().root();
    for (i, x) in inputs.iter().enumerate() {
        let values = definition(x, root, q);
        // Value k at 1/w is value -k at w.
        let mut inverse_values = values.clone();
        inverse_values[1..].reverse();
        for plan in plans(length, q) {
            let simd = plan.simd();
            assert_eq!(plan.algorithm(), algorithm);
            assert_eq!(plan.root(), root);
            assert!(
                forward(&plan, x) == values,
                "forward, m = {length}, q = {q}, input {i}, {simd}"
            );
            assert!(
                inverse(&plan, x) == inverse_values,
                "inverse, m = {length}, q = {q}, input {i}, {simd}"
            );
        }
    }
}

#[test]
fn prime_factor_lengths_are_the_definition() {
    for length in PRIME_FACTOR.into_iter().filter(|&length| length < 1000) {
        for q in moduli(length) {
            check_definition(length, q, Algorithm::PrimeFactor, &inputs(length, q));
        }
    }
}

#[test]
fn long_prime_factor_lengths_are_the_definition() {
    for length in PRIME_FACTOR.into_iter().filter(|&length| length > 1000) {
        for q in moduli(length) {
            let inputs = [random(length, q, 3)];
            check_definition(length, q, Algorithm::PrimeFactor, &inputs);
        }
    }
}

#[test]
fn the_length_of_the_paper_is_the_definition() {
    for (bits, seed) in [(30, 4), (32, 5)] {
        let q = prime_below(1 << bits, 256 * PAPER as u64);
        check_definition(PAPER, q, Algorithm::PrimeFactor, &[random(PAPER, q, seed)]);
    }
}

#[test]
fn other_lengths_are_the_definition() {
    for length in OTHER {
        for q in moduli(length) {
            check_definition(length, q, Algorithm::Bluestein, &inputs(length, q));
        }
    }
    // Modulo 2 and 3, and where the convolutions of Rader's algorithm have no roots: 257 - 1 does not divide 1543 - 2.
    check_definition(1, 2, Algorithm::Bluestein, &[vec![0], vec![1]]);
    check_definition(2, 3, Algorithm::Bluestein, &[vec![1, 2], vec![2, 2]]);
    check_definition(257, 1543, Algorithm::Bluestein, &inputs(257, 1543));
}

/// The paper's length where the kernels do not agree by construction: values at the borders, for every arithmetic.
#[test]
fn extremes_at_the_length_of_the_paper() {
    for q in moduli(PAPER) {
        let all = vec![q - 1; PAPER];
        let mut expected = vec![0; PAPER];
        expected[0] = mul(q - 1, PAPER as u32 % q, q);
        for plan in plans(PAPER, q) {
            assert!(forward(&plan, &all) == expected, "q = {q}, {}", plan.simd());
            for (at, value) in [(1, q - 1), (255, 1), (PAPER - 1, q / 2)] {
                let mut x = vec![0; PAPER];
                x[at] = value;
                let expected: Vec<u32> = (0..PAPER as u64)
                    .map(|k| mul(value, pow(plan.root(), k * at as u64 % PAPER as u64, q), q))
                    .collect();
                assert!(
                    forward(&plan, &x) == expected,
                    "x_{at}, q = {q}, {}",
                    plan.simd()
                );
            }
        }
        for x in inputs(PAPER, q) {
            let oracle = DftPlan::with_simd(PAPER, q, SimdLevel::Portable).unwrap();
            let (values, inverse_values) = (forward(&oracle, &x), inverse(&oracle, &x));
            assert!(values.iter().chain(&inverse_values).all(|&x| x < q));
            for plan in plans(PAPER, q) {
                assert!(
                    forward(&plan, &x) == values,
                    "forward, q = {q}, {}",
                    plan.simd()
                );
                assert!(
                    inverse(&plan, &x) == inverse_values,
                    "inverse, q = {q}, {}",
                    plan.simd()
                );
            }
        }
    }
}

#[test]
fn inverse_undoes_forward_times_the_length() {
    for length in PRIME_FACTOR
        .into_iter()
        .chain(OTHER)
        .chain([PAPER, 65535, 32768])
    {
        // 65535 = 3·5·17·257
        for q in moduli(length).into_iter().rev().take(3) {
            for plan in plans(length, q) {
                let x = random(length, q, 6);
                let mut y = inverse(&plan, &forward(&plan, &x));
                let scaled: Vec<u32> = x.iter().map(|&x| mul(x, length as u32 % q, q)).collect();
                assert!(y == scaled, "m = {length}, q = {q}, {}", plan.simd());
                plan.scale_assign(&mut y, plan.inverse_length());
                assert!(y == x, "m = {length}, q = {q}, {}", plan.simd());
            }
        }
    }
}

/// The transform of a cyclic convolution is the product of the transforms.
#[test]
fn convolution_theorem() {
    for length in [15, 85, 257, 771, 33, 45, 105, 2] {
        for q in moduli(length) {
            let (a, b) = (random(length, q, 7), random(length, q, 8));
            let mut product = vec![0; length];
            for (i, &x) in a.iter().enumerate() {
                for (j, &y) in b.iter().enumerate() {
                    let at = &mut product[(i + j) % length];
                    *at = ((u64::from(*at) + u64::from(mul(x, y, q))) % u64::from(q)) as u32;
                }
            }
            for plan in plans(length, q) {
                let mut values = forward(&plan, &a);
                plan.mul_assign(&mut values, &forward(&plan, &b));
                assert!(
                    values == forward(&plan, &product),
                    "m = {length}, q = {q}, {}",
                    plan.simd()
                );
            }
        }
    }
}

#[test]
fn products_of_words() {
    for q in [2, 3, 5, 65537, 1_073_479_681, 4_294_967_291] {
        let edges = [0, 1, q / 2, q / 2 + 1, q - 2, q - 1].map(|x: u32| x.min(q - 1));
        for plan in plans(1, q) {
            for (a, b) in edges.iter().flat_map(|&a| edges.map(|b| (a, b))) {
                let (mut product, mut scaled) = ([a], [a]);
                plan.mul_assign(&mut product, &[b]);
                plan.scale_assign(&mut scaled, b);
                assert_eq!(
                    (product, scaled),
                    ([mul(a, b, q)], [mul(a, b, q)]),
                    "{a}·{b} modulo {q}"
                );
            }
        }
    }
}

#[test]
fn a_root_of_the_caller() {
    for (length, algorithm) in [(85, Algorithm::PrimeFactor), (9, Algorithm::Bluestein)] {
        let q = prime_below(1 << 31, 16 * length as u64);
        let default = DftPlan::new(length, q).unwrap();
        let root = pow(default.root(), 2, q);
        assert_ne!(root, default.root());
        for simd in SimdLevel::available() {
            let plan = DftPlan::with_root(length, q, root, simd).unwrap();
            assert_eq!((plan.root(), plan.algorithm()), (root, algorithm));
            let x = random(length, q, 9);
            assert_eq!(forward(&plan, &x), definition(&x, root, q));
        }
    }
}

#[test]
fn the_root_is_a_power_of_the_least_primitive_root() {
    // 3 is the least primitive root modulo 257, 2 modulo 11, 5 modulo 97.
    assert_eq!(DftPlan::new(1, 257).unwrap().root(), 1);
    assert_eq!(DftPlan::new(256, 257).unwrap().root(), 3);
    assert_eq!(DftPlan::new(5, 11).unwrap().root(), 4);
    assert_eq!(DftPlan::new(3, 97).unwrap().root(), pow(5, 32, 97));
}

/// Slices that begin anywhere give the same values.
#[test]
fn alignment_does_not_matter() {
    let q = prime_below(1 << 30, 256 * 1285);
    for plan in plans(1285, q) {
        let x = random(1285, q, 10);
        let expected = forward(&plan, &x);
        for offset in 0..16 {
            let mut data = vec![0; 1285 + offset];
            let mut scratch = vec![u32::MAX; plan.scratch_len() + offset];
            data[offset..].copy_from_slice(&x);
            plan.forward(&mut data[offset..], &mut scratch[offset..]);
            assert!(
                data[offset..] == expected,
                "offset {offset}, {}",
                plan.simd()
            );
        }
    }
}

#[test]
fn what_has_no_plan() {
    let max = DftPlan::MAX_LENGTH;
    for found in [0, max + 1, usize::MAX] {
        assert_eq!(
            DftPlan::new(found, 257).unwrap_err(),
            RingError::DftLength { found, max }
        );
    }
    for (length, modulus) in [(5, 0), (5, 1), (5, 21), (5, 13), (1, 4), (256, 65537 * 3)] {
        let expected = RingError::DftModulus { modulus, length };
        assert_eq!(DftPlan::new(length, modulus).unwrap_err(), expected);
    }
    for root in [0, 1, 2, 11, 12, 15, u32::MAX] {
        let expected = RingError::DftRoot {
            root,
            length: 5,
            modulus: 11,
        };
        let plan = DftPlan::with_root(5, 11, root, SimdLevel::Portable);
        assert_eq!(plan.unwrap_err(), expected);
    }
    // An element of order 5 is none of order 15.
    assert!(DftPlan::with_root(15, 61, pow(2, 12, 61), SimdLevel::Portable).is_err());
    for simd in SimdLevel::ALL {
        match DftPlan::with_simd(5, 11, simd) {
            Ok(plan) => assert!(simd.is_available() && plan.simd() == simd),
            Err(error) => {
                assert!(!simd.is_available() && error == RingError::SimdLevelUnavailable(simd))
            }
        }
    }
}

#[test]
#[should_panic(expected = "a transform of 5 points was given 4 words")]
fn wrong_length() {
    let plan = DftPlan::new(5, 11).unwrap();
    plan.forward(&mut [0; 4], &mut scratch(&plan));
}

#[test]
#[should_panic(expected = "words of scratch, the slice has 1")]
fn too_little_scratch() {
    DftPlan::new(5, 11).unwrap().inverse(&mut [0; 5], &mut [0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn transforms_are_linear(at in 0usize..13, bits in 24u32..33, seed in any::<u64>()) {
        let length = [PRIME_FACTOR.as_slice(), &[PAPER]].concat()[at];
        let q = prime_below(1 << bits, 256 * length as u64);
        let c = (seed % u64::from(q)) as u32;
        let (a, b) = (random(length, q, seed), random(length, q, !seed));
        let combine = |a: &[u32], b: &[u32]| -> Vec<u32> {
            a.iter()
                .zip(b)
                .map(|(&a, &b)| ((u64::from(mul(a, c, q)) + u64::from(b)) % u64::from(q)) as u32)
                .collect()
        };
        for plan in plans(length, q) {
            let sum = combine(&a, &b);
            prop_assert_eq!(forward(&plan, &sum), combine(&forward(&plan, &a), &forward(&plan, &b)));
            prop_assert_eq!(inverse(&plan, &sum), combine(&inverse(&plan, &a), &inverse(&plan, &b)));
        }
    }
}

/// Rader's correlation by the spectra of the axes, one axis at a time, is the transform; and there are axes only where the
/// plan is that of prime factors.
#[test]
fn the_axes_give_the_transform() {
    for (length, q) in [(15, 7681), (85, 87041), (51, 26113)] {
        let plan = DftPlan::new(length, q).unwrap();
        let axes = plan.rader_axes().unwrap();
        assert_eq!(
            axes.iter().map(|axis| axis.prime).product::<usize>(),
            length
        );
        let x = random(length, q, 3);
        let mut values = x.clone();
        for axis in &axes {
            let (p, others) = (axis.prime, length / axis.prime);
            let powers: Vec<usize> = (0..p - 1)
                .map(|j| pow(axis.generator as u32, j as u64, p as u32) as usize)
                .collect();
            assert_eq!(pow(axis.omega, (p as u64 - 1) / 2, q), q - 1);
            for line in 0..others {
                let at = |residue: usize| {
                    let is_it = |n: &usize| n % p == residue && n % others == line;
                    (0..length).find(is_it).unwrap()
                };
                let word = |residue: usize| u64::from(values[at(residue)]);
                let zero = word(0);
                // The correlation's transform: that of the words at 1/omega, times the spectrum.
                let product = |spectrum: &[u32], i: usize| {
                    let bits = (p - 1).ilog2();
                    let t = i.reverse_bits() >> (usize::BITS - bits);
                    let point = pow(axis.omega, ((p - 1) * p - t) as u64, q);
                    let sum = powers.iter().rev().fold(0, |sum, &power| {
                        (u64::from(mul(sum as u32, point, q)) + word(power)) % u64::from(q)
                    });
                    (t, mul(sum as u32, spectrum[i], q))
                };
                let spectrum: Vec<(usize, u32)> =
                    (0..p - 1).map(|i| product(&axis.forward, i)).collect();
                let first = (0..p).map(word).sum::<u64>() % u64::from(q);
                let new: Vec<u64> = (0..p - 1)
                    .map(|l| {
                        let term = |&(t, word): &(usize, u32)| {
                            let exponent = (p - 1) * p - t * l % (p - 1);
                            u64::from(mul(word, pow(axis.omega, exponent as u64, q), q))
                        };
                        (zero + spectrum.iter().map(term).sum::<u64>()) % u64::from(q)
                    })
                    .collect();
                let places: Vec<usize> = powers.iter().map(|&power| at(power)).collect();
                values[at(0)] = first as u32;
                for (place, new) in places.into_iter().zip(new) {
                    values[place] = new as u32;
                }
            }
        }
        assert_eq!(values, definition(&x, plan.root(), q), "{length}");
        for axis in &axes {
            // The inverse's constants differ in sign where the power is odd.
            for (i, (&forward, &inverse)) in axis.forward.iter().zip(&axis.inverse).enumerate() {
                let is_odd = i >= (axis.prime - 1) / 2;
                assert_eq!(inverse, if is_odd { q - forward } else { forward });
            }
        }
    }
    assert!(DftPlan::new(16, 97).unwrap().rader_axes().is_none());
}
