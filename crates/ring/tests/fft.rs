//! One suite for the f64 transform on every instruction set of this processor.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use toroid_ring::RingError;
use toroid_ring::fft::{AlignedVec, FftPlan, KeyFormat};
use toroid_ring::naive;
use toroid_ring::simd::SimdLevel;

/// 2^-53, the unit roundoff.
const UNIT: f64 = f64::EPSILON / 2.0;

fn plans(degree: usize) -> impl Iterator<Item = FftPlan> {
    SimdLevel::available().map(move |simd| FftPlan::with_simd(degree, simd).unwrap())
}

fn degrees(max: usize) -> impl Iterator<Item = usize> {
    (4..=17)
        .map(|log| 1 << log)
        .filter(move |degree| *degree <= max)
}

/// Numbers of a fixed sequence, between -1 and 1.
fn noise(len: usize, seed: u64) -> AlignedVec {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = AlignedVec::zeroed(len);
    for x in out.iter_mut() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *x = (state >> 11) as f64 * (2.0 * UNIT) - 1.0;
    }
    out
}

fn forward(plan: &FftPlan, coeffs: &[f64]) -> AlignedVec {
    let mut spectrum = AlignedVec::zeroed(plan.degree());
    plan.forward(coeffs, &mut spectrum);
    spectrum
}

/// inverse(spectrum) / (N/2)
fn inverse(plan: &FftPlan, mut spectrum: AlignedVec) -> AlignedVec {
    let mut coeffs = AlignedVec::zeroed(plan.degree());
    plan.inverse(&mut spectrum, &mut coeffs);
    coeffs
        .iter_mut()
        .for_each(|x| *x *= 2.0 / plan.degree() as f64);
    coeffs
}

fn point(spectrum: &[f64], slot: usize) -> (f64, f64) {
    let at = slot / 8 * 16 + slot % 8;
    (spectrum[at], spectrum[at + 8])
}

/// The Euclidean norm; summed in two stages, so that its own roundings stay below those that are tested.
fn norm(x: &[f64]) -> f64 {
    let sum_of_squares = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    x.chunks(256).map(sum_of_squares).sum::<f64>().sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b) * (a - b))
        .sum::<f64>()
        .sqrt()
}

/// The error that a transform of `degree` may make, relative in the Euclidean norm: the roundings of the levels add
/// up like a random walk.
fn bound(degree: usize) -> f64 {
    2.0 * UNIT * f64::from(degree.ilog2()).sqrt()
}

#[test]
fn agrees_with_the_definition() {
    for degree in degrees(2048) {
        let coeffs = noise(degree, 1);
        let expected = naive::fft_definition(&coeffs);
        for plan in plans(degree) {
            let spectrum = forward(&plan, &coeffs);
            let mut seen = vec![false; degree / 2];
            for slot in 0..degree / 2 {
                let (re, im) = point(&spectrum, slot);
                let e = plan.natural_index(slot);
                assert!(!seen[e], "N = {degree}: value {e} stands in two slots");
                seen[e] = true;
                let error = (re - expected[e].0).hypot(im - expected[e].1);
                // The oracle adds N terms one by one and rounds its angles; it is the less exact of the two.
                assert!(
                    error < 4.0 * UNIT * degree as f64,
                    "N = {degree}, {}, slot {slot}: off by {error}",
                    plan.simd()
                );
            }
        }
    }
}

/// A monomial's spectrum consists of powers of ζ, which are known to the last place: any wrong factor shows at full size.
#[test]
fn monomials_at_the_largest_degrees() {
    for degree in [1 << 14, 1 << 15, 1 << 16, 1 << 17] {
        for plan in plans(degree) {
            for exponent in [0, 1, degree / 2 - 1, degree / 2 + 3, degree - 1] {
                let mut coeffs = AlignedVec::zeroed(degree);
                coeffs[exponent] = 1.0;
                let spectrum = forward(&plan, &coeffs);
                for slot in 0..degree / 2 {
                    let e = plan.natural_index(slot);
                    let turns = (exponent * (4 * e + 1) % (2 * degree)) as f64 / degree as f64;
                    let (sin, cos) = (std::f64::consts::PI * turns).sin_cos();
                    let (re, im) = point(&spectrum, slot);
                    assert!(
                        (re - cos).hypot(im - sin) < 16.0 * UNIT,
                        "N = {degree}, X^{exponent}, {}, slot {slot}",
                        plan.simd()
                    );
                }
            }
        }
    }
}

#[test]
fn round_trip_error_is_bounded() {
    for degree in degrees(1 << 17) {
        let coeffs = noise(degree, 2);
        for plan in plans(degree) {
            let back = inverse(&plan, forward(&plan, &coeffs));
            let error = distance(&back, &coeffs) / norm(&coeffs);
            assert!(
                error < bound(degree),
                "N = {degree}, {}: {error:e}",
                plan.simd()
            );
        }
    }
}

/// Σ |value|² = N/2 · Σ coefficient².
#[test]
fn parseval() {
    for degree in degrees(1 << 15) {
        let coeffs = noise(degree, 3);
        for plan in plans(degree) {
            let spectrum = forward(&plan, &coeffs);
            let ratio = norm(&spectrum) / norm(&coeffs) / (degree as f64 / 2.0).sqrt();
            assert!(
                (ratio - 1.0).abs() < 4.0 * bound(degree),
                "N = {degree}, {}",
                plan.simd()
            );
        }
    }
}

#[test]
fn is_linear() {
    for degree in degrees(4096) {
        let (a, b) = (noise(degree, 4), noise(degree, 5));
        let mut combined = a.clone();
        combined
            .iter_mut()
            .zip(b.iter())
            .for_each(|(a, b)| *a = 3.0 * *a - b);
        for plan in plans(degree) {
            let mut expected = forward(&plan, &a);
            let of_b = forward(&plan, &b);
            expected
                .iter_mut()
                .zip(of_b.iter())
                .for_each(|(a, b)| *a = 3.0 * *a - b);
            let error = distance(&forward(&plan, &combined), &expected) / norm(&expected);
            assert!(
                error < 4.0 * bound(degree),
                "N = {degree}, {}: {error:e}",
                plan.simd()
            );
        }
    }
}

#[test]
fn instruction_sets_agree() {
    for degree in degrees(1 << 15) {
        let coeffs = noise(degree, 6);
        let mut plans = plans(degree);
        let reference = plans.next().unwrap();
        let expected = forward(&reference, &coeffs);
        for plan in plans {
            let found = forward(&plan, &coeffs);
            let error = distance(&found, &expected) / norm(&expected);
            assert!(
                error < 2.0 * bound(degree),
                "N = {degree}, {}: {error:e}",
                plan.simd()
            );
            let (a, b) = (
                inverse(&plan, expected.clone()),
                inverse(&reference, expected.clone()),
            );
            let error = distance(&a, &b) / norm(&b);
            assert!(
                error < 2.0 * bound(degree),
                "N = {degree}, {}: {error:e}",
                plan.simd()
            );
            let slots = 0..degree / 2;
            assert!(
                slots
                    .into_iter()
                    .all(|s| plan.natural_index(s) == reference.natural_index(s))
            );
        }
    }
}

fn integers(len: usize, bits: u32, seed: u64) -> Vec<i64> {
    let scale = (1_i64 << bits) as f64;
    noise(len, seed)
        .iter()
        .map(|x| (x * scale) as i64)
        .collect()
}

fn as_f64(x: &[i64]) -> Vec<f64> {
    x.iter().map(|x| *x as f64).collect()
}

/// Products of integers, exact after rounding: torus words of 32 bits by digits of 9, as in the blind rotation.
#[test]
fn negacyclic_product_is_exact_after_rounding() {
    for degree in degrees(2048) {
        let (a, b) = (integers(degree, 31, 7), integers(degree, 8, 8));
        let expected = naive::negacyclic_mul_i128(&a, &b);
        for plan in plans(degree) {
            let (x, y) = (forward(&plan, &as_f64(&a)), forward(&plan, &as_f64(&b)));
            let mut product = AlignedVec::zeroed(degree);
            plan.mul_into(&mut product, &x, &y);
            let product = inverse(&plan, product);
            for (found, expected) in product.iter().zip(&expected) {
                assert_eq!(
                    found.round() as i128,
                    *expected,
                    "N = {degree}, {}",
                    plan.simd()
                );
            }
        }
    }
}

#[test]
fn sums_of_products() {
    for degree in [16, 64, 128, 1024] {
        let rows: Vec<_> = (0..5).map(|i| integers(degree, 20, 10 + i)).collect();
        let keys: Vec<_> = (0..5).map(|i| integers(degree, 16, 20 + i)).collect();
        let start = integers(degree, 30, 30);
        let mut expected: Vec<i128> = start.iter().map(|x| i128::from(*x)).collect();
        for (row, key) in rows.iter().zip(&keys) {
            for (sum, term) in expected
                .iter_mut()
                .zip(naive::negacyclic_mul_i128(row, key))
            {
                *sum += term;
            }
        }
        for plan in plans(degree) {
            let spectra = |polys: &[Vec<i64>]| -> Vec<AlignedVec> {
                polys.iter().map(|p| forward(&plan, &as_f64(p))).collect()
            };
            let (rows, keys) = (spectra(&rows), spectra(&keys));
            let mut at_once = forward(&plan, &as_f64(&start));
            let mut one_by_one = at_once.clone();
            let rows: Vec<&[f64]> = rows.iter().map(|r| &**r).collect();
            let keys: Vec<&[f64]> = keys.iter().map(|k| &**k).collect();
            plan.mul_add_rows(&mut at_once, &rows, &keys);
            for (row, key) in rows.iter().zip(&keys) {
                plan.mul_add_assign(&mut one_by_one, row, key);
            }
            for acc in [at_once, one_by_one] {
                for (found, expected) in inverse(&plan, acc).iter().zip(&expected) {
                    assert_eq!(
                        found.round() as i128,
                        *expected,
                        "N = {degree}, {}",
                        plan.simd()
                    );
                }
            }
        }
    }
}

#[test]
fn slices_need_not_be_aligned() {
    for plan in plans(1024) {
        let coeffs = noise(1025, 40);
        let expected = forward(&plan, &coeffs[1..]);
        let mut memory = AlignedVec::zeroed(1027);
        plan.forward(&coeffs[1..], &mut memory[3..]);
        assert_eq!(memory[3..], expected[..]);
        let mut back = AlignedVec::zeroed(1029);
        plan.inverse(&mut memory[3..], &mut back[5..]);
        assert!(
            distance(
                &back[5..],
                &coeffs[1..].iter().map(|x| 512.0 * x).collect::<Vec<_>>()
            ) < 1e-10
        );
    }
}

#[test]
fn refuses_other_degrees() {
    for found in [0, 1, 8, 24, 1000, 1 << 18] {
        let error = FftPlan::new(found).unwrap_err();
        let (min, max) = (FftPlan::MIN_DEGREE, FftPlan::MAX_DEGREE);
        assert_eq!(error, RingError::Degree { found, min, max });
    }
}

#[test]
#[should_panic(expected = "coefficients of 15 numbers given to a transform of degree 16")]
fn panics_on_short_coefficients() {
    FftPlan::new(16)
        .unwrap()
        .forward(&[0.0; 15], &mut [0.0; 16]);
}

#[test]
#[should_panic(expected = "spectrum of 32 numbers given to a transform of degree 16")]
fn panics_on_a_long_spectrum() {
    FftPlan::new(16)
        .unwrap()
        .inverse(&mut [0.0; 32], &mut [0.0; 16]);
}

#[test]
#[should_panic(expected = "2 rows to multiply by 1 keys")]
fn panics_on_missing_keys() {
    let row: &[f64] = &[0.0; 16];
    FftPlan::new(16)
        .unwrap()
        .mul_add_rows(&mut [0.0; 16], &[row, row], &[row]);
}

#[test]
#[should_panic(expected = "operand of 8 numbers given to a transform of degree 16")]
fn panics_on_a_short_operand() {
    FftPlan::new(16)
        .unwrap()
        .mul_add_assign(&mut [0.0; 16], &[0.0; 16], &[0.0; 8]);
}

proptest! {
    #[test]
    fn products_of_any_integers_are_exact(
        (a, b) in (4_u32..9).prop_flat_map(|log| {
            let poly = || proptest::collection::vec(-(1_i64 << 20)..1 << 20, 1 << log);
            (poly(), poly())
        })
    ) {
        let expected = naive::negacyclic_mul_i128(&a, &b);
        for plan in plans(a.len()) {
            let (x, y) = (forward(&plan, &as_f64(&a)), forward(&plan, &as_f64(&b)));
            let mut product = AlignedVec::zeroed(a.len());
            plan.mul_into(&mut product, &x, &y);
            let found: Vec<i128> = inverse(&plan, product).iter().map(|x| x.round() as i128).collect();
            prop_assert_eq!(&found, &expected);
        }
    }
}

/// The fused transform and product is the transform, then the product, up to the last roundings of the sums.
#[test]
fn transform_and_product_in_one() {
    for degree in degrees(1 << 14) {
        let coeffs = noise(degree, 1);
        for columns in 1..=3 {
            // Fixed-point numbers as large as they may be, and the factors that they stand for.
            let numbers = noise(columns * degree, 2);
            let large: Vec<f64> = numbers
                .iter()
                .map(|x| (x * 2f64.powi(31)).clamp(-2_147_483_647.0, 2_147_483_647.0))
                .collect();
            let mut rounded = large.clone();
            let (mask, body) = rounded.split_at_mut((columns - 1) * degree);
            for x in mask {
                let high = x.round_ties_even();
                *x = high + ((*x - high) * 256.0).round_ties_even().min(127.0) / 256.0;
            }
            for x in body {
                *x = x.round_ties_even();
            }
            for (format, given, factors) in [
                (KeyFormat::Float, &numbers, &numbers[..]),
                (
                    KeyFormat::Fixed,
                    &AlignedVec::from_slice(&large),
                    &rounded[..],
                ),
            ] {
                for plan in plans(degree) {
                    let mut row = vec![0; format.row_bytes(degree, columns)];
                    plan.pack_key(format, given, &mut row);
                    let spectrum = forward(&plan, &coeffs);
                    let mut expected = AlignedVec::zeroed(columns * degree);
                    let mut found = noise(columns * degree, 3);
                    let mut scratch = AlignedVec::zeroed(degree);
                    for round in 0..2 {
                        for (sum, key) in expected
                            .chunks_exact_mut(degree)
                            .zip(factors.chunks_exact(degree))
                        {
                            if round == 0 {
                                plan.mul_into(sum, &spectrum, key);
                            } else {
                                plan.mul_add_assign(sum, &spectrum, key);
                            }
                        }
                        let coeffs = &coeffs[..];
                        if round == 0 {
                            plan.forward_mul_add::<false>(
                                coeffs,
                                &mut scratch,
                                format,
                                &row,
                                &mut found,
                            );
                        } else {
                            plan.forward_mul_add::<true>(
                                coeffs,
                                &mut scratch,
                                format,
                                &row,
                                &mut found,
                            );
                        }
                        let error = distance(&found, &expected) / norm(&expected);
                        assert!(
                            error <= 4.0 * UNIT,
                            "{degree}, {format:?}, {}: {error:e}",
                            plan.simd()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn rotated_products_agree_with_products_by_monomials() {
    for degree in degrees(1 << 13).filter(|degree| *degree >= 128) {
        for (rows, columns) in [(2, 2), (6, 2), (1, 1), (3, 3)] {
            for format in [KeyFormat::Float, KeyFormat::Fixed] {
                let mut keys = noise(3 * rows * columns * degree, 4);
                for number in keys.iter_mut() {
                    // Whole numbers, which both formats hold.
                    *number = (*number * 1e6).round();
                }
                let digits = noise(rows * degree, 5);
                for plan in plans(degree) {
                    let rotations = plan.rotations().unwrap();
                    let row_bytes = format.row_bytes(degree, columns);
                    let mut packed = vec![0; 3 * rows * row_bytes];
                    let unpacked = keys.chunks_exact(columns * degree);
                    for (row, key) in packed.chunks_exact_mut(row_bytes).zip(unpacked) {
                        plan.pack_key(format, key, row);
                    }
                    plan.interleave_keys(format, columns, &mut packed);
                    let mut spectra = AlignedVec::zeroed(rows * degree);
                    for (row, spectrum) in spectra.chunks_exact_mut(degree).enumerate() {
                        let coeffs = &digits[row * degree..][..degree];
                        plan.forward_from(coeffs, spectrum);
                        assert!(*spectrum == *forward(&plan, coeffs));
                    }
                    for [a, b] in [[1, 2 * degree - 1], [degree + 77, 64], [0, 5], [0, 0]] {
                        let mut expected = AlignedVec::zeroed(columns * degree);
                        for (sample, exponent) in [a, b, a + b].into_iter().enumerate() {
                            let mut monomial = AlignedVec::zeroed(degree);
                            let exponent = exponent % (2 * degree);
                            monomial[exponent % degree] =
                                if exponent < degree { 1.0 } else { -1.0 };
                            monomial[0] -= 1.0;
                            let monomial = forward(&plan, &monomial);
                            for (column, sum) in expected.chunks_exact_mut(degree).enumerate() {
                                let mut inner = AlignedVec::zeroed(degree);
                                for (row, digits) in spectra.chunks_exact(degree).enumerate() {
                                    let at = ((sample * rows + row) * columns + column) * degree;
                                    plan.mul_add_assign(&mut inner, digits, &keys[at..][..degree]);
                                }
                                plan.mul_add_assign(sum, &inner, &monomial);
                            }
                        }
                        let mut found = noise(columns * degree, 6);
                        plan.mul_rotated(&rotations, &spectra, format, &packed, [a, b], &mut found);
                        let error = distance(&found, &expected);
                        assert!(
                            error <= 16.0 * UNIT * norm(&expected),
                            "{degree}, {rows} rows, {columns} columns, {format:?}, {}: {error:e}",
                            plan.simd()
                        );
                    }
                }
            }
        }
    }
    assert!(FftPlan::new(64).unwrap().rotations().is_none());
}

#[test]
#[should_panic(expected = "bytes of keys")]
fn panics_on_rotated_products_with_too_few_keys() {
    let plan = FftPlan::new(128).unwrap();
    let keys = vec![0; 2 * KeyFormat::Float.row_bytes(128, 1)];
    plan.mul_rotated(
        &plan.rotations().unwrap(),
        &[0.0; 128],
        KeyFormat::Float,
        &keys,
        [1, 2],
        &mut [0.0; 128],
    );
}

#[test]
fn fixed_point_keys_saturate() {
    for plan in plans(16) {
        let mut row = vec![0; KeyFormat::Fixed.row_bytes(16, 1)];
        plan.pack_key(KeyFormat::Fixed, &[1e10; 16], &mut row);
        assert!(
            row.chunks_exact(4)
                .all(|word| word == i32::MAX.to_ne_bytes())
        );
    }
}

#[test]
#[should_panic(expected = "bytes of keys for 2 columns")]
fn panics_on_keys_for_other_columns() {
    let plan = FftPlan::new(128).unwrap();
    let mut scratch = vec![0.0; 128];
    let key = vec![0; KeyFormat::Float.row_bytes(128, 1)];
    let coeffs = [0.0; 128];
    plan.forward_mul_add::<true>(
        &coeffs[..],
        &mut scratch,
        KeyFormat::Float,
        &key,
        &mut [0.0; 256],
    );
}
