//! Tables on encrypted columns, end to end at small degrees.

#![allow(clippy::unwrap_used)]

mod bench;

use std::sync::Arc;

use bench::Bench;
use toroid_rns::column::{self, ColumnError};
use toroid_rns::complex::Complex;
use toroid_rns::evaluation::EvaluationKeys;
use toroid_rns::evaluator::lean_key_request;
use toroid_rns::matrix::Matrices;
use toroid_rns::search::Candidate;
use toroid_rns::slots::{LinearSlots, Slots};
use toroid_rns::table::{Digits, Exponential, Shape, Table};
use toroid_rns::{Ciphertext, Plaintext, RnsPoly};
use toroid_task::Progress;

/// Keys at a degree for tests, which protects nothing.
fn bench(degree: usize, shape: Shape, stages: usize) -> Bench {
    Bench::new(&Candidate {
        degree,
        log2_scale: 42,
        log2_inner: 42,
        first_bits: 42,
        special: 6,
        digit_limbs: 7,
        stages,
        shape,
        output_bits: 8,
    })
}

fn shape(high: u32, low: u32, cleanings: u32) -> Shape {
    Shape {
        digits: Digits::new(high, low).unwrap(),
        exponential: Exponential::new(16.5, 31, 3).unwrap(),
        cleanings,
    }
}

fn worst(a: &[Complex], b: &[Complex]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(x, y)| (*x - *y).abs())
        .fold(0.0, f64::max)
}

fn slots(n: usize, seed: usize) -> Vec<Complex> {
    (0..n)
        .map(|p| {
            Complex::new(
                ((p * 37 + seed) % 101) as f64 - 50.0,
                ((p * 53 + seed) % 89) as f64 - 44.0,
            ) * 0.02
        })
        .collect()
}

#[test]
fn arithmetic_on_slots_is_that_of_the_clear() {
    let mut bench = bench(1 << 8, shape(1, 0, 0), 2);
    let n = bench.embedding.slots();
    let (x, y) = (slots(n, 1), slots(n, 5));
    let (a, b) = (bench.encrypt(&x, 6), bench.encrypt(&y, 5));
    let mut evaluator = bench.evaluator();
    let close = |found: &Ciphertext, expected: &dyn Fn(usize) -> Complex| {
        let expected: Vec<_> = (0..n).map(expected).collect();
        let off = worst(&bench.decrypt(found), &expected);
        assert!(off < 1e-8, "{off:e}");
    };
    let product = evaluator.mul(&a, &b).unwrap();
    assert_eq!(evaluator.level(&product), 3);
    close(&product, &|p| x[p] * y[p]);
    close(&evaluator.add(&a, &product).unwrap(), &|p| {
        x[p] + x[p] * y[p]
    });
    close(&evaluator.sub(&product, &b).unwrap(), &|p| {
        x[p] * y[p] - y[p]
    });
    let c = Complex::new(0.25, -0.75);
    close(&evaluator.affine(&a, -2, c).unwrap(), &|p| x[p] * -2.0 + c);
    close(
        &evaluator
            .combine(&[(&a, c), (&product, Complex::I)], c)
            .unwrap(),
        &|p| x[p] * c + x[p] * y[p] * Complex::I + c,
    );
    close(&evaluator.products(&[(&a, &b), (&b, &b)]).unwrap(), &|p| {
        x[p] * y[p] + y[p] * y[p]
    });
    close(&evaluator.conjugate(&a).unwrap(), &|p| x[p].conj());
    close(&evaluator.times_i(&a).unwrap(), &|p| x[p] * Complex::I);
    let low = bench.encrypt(&x, 2);
    let mut evaluator = bench.evaluator();
    assert!(evaluator.mul(&low, &low).is_err());
    assert!(evaluator.encode(&x[1..], 1.0, 1).is_err());
}

#[test]
fn slots_and_coefficients_both_ways() {
    let mut bench = bench(1 << 10, shape(1, 0, 0), 3);
    let n = bench.embedding.slots();
    let x = slots(n, 3);
    let top = bench.pipeline.levels() + 1;
    let a = bench.encrypt(&x, top);
    let mut evaluator = bench.evaluator();
    let mut value = a;
    let mut expected = x;
    for plan in bench.pipeline.to_slots() {
        value = evaluator.transform(plan, &value).unwrap();
        expected = plan.apply(&expected);
        let off = worst(&bench.decrypt(&value), &expected);
        assert!(off < 1e-7, "{off:e}");
    }
    // The keys of the way back are for few limbs.
    while evaluator.level(&value) > 3 {
        value = evaluator
            .combine(&[(&value, Complex::ONE)], Complex::ZERO)
            .unwrap();
    }
    for plan in bench.pipeline.to_coefficients() {
        value = evaluator.transform(plan, &value).unwrap();
        expected = plan.apply(&expected);
    }
    let off = worst(&bench.decrypt(&value), &expected);
    assert!(off < 1e-6, "{off:e}");
}

/// Every way to multiply by a matrix, on all stages of a pipeline: with all keys or few, kept or encoded each time.
#[test]
fn matrices_kept_or_not_and_with_few_keys() {
    let mut bench = bench(1 << 9, shape(1, 0, 0), 3);
    let request = lean_key_request(&bench.pipeline);
    let lean = EvaluationKeys::generate(
        &bench.secret,
        &request,
        &mut bench.rng,
        &Progress::default(),
    )
    .unwrap();
    assert!(lean.memory() < bench.keys.memory() && lean.packed_bytes() < lean.memory() / 2);
    let mut expected = slots(bench.embedding.slots(), 4);
    let mut value = bench.encrypt(&expected, bench.pipeline.levels() + 1);
    let (some, all) = (Matrices::new(1 << 18), Matrices::new(1 << 30));
    let caches = [Matrices::new(0), some, all].map(Arc::new);
    for plan in bench.pipeline.to_slots() {
        let results: Vec<Ciphertext> = (caches.iter().chain(&caches))
            .map(|cache| {
                let mut evaluator = bench.evaluator().with_matrices(Arc::clone(cache));
                evaluator.transform(plan, &value).unwrap()
            })
            .collect();
        assert!(results.iter().all(|result| *result == results[0]));
        let mut few = bench.evaluator_with(&lean);
        let close = |found: &Ciphertext, expected: &[Complex]| {
            let off = worst(&bench.decrypt(found), expected);
            assert!(off < 1e-7, "{off:e}");
        };
        expected = plan.apply(&expected);
        close(&few.transform(plan, &value).unwrap(), &expected);
        value = results[0].clone();
        close(&value, &expected);
    }
    let bytes = caches.map(|cache| cache.bytes());
    assert!(bytes[0] == 0 && bytes[1] <= 1 << 18 && bytes[1] < bytes[2]);
}

/// All messages of a column with noise of up to `deviation` turns, and some tables of them.
fn tables(degree: usize, shape: Shape, stages: usize, outputs: u32, deviation: f64) {
    let mut bench = bench(degree, shape, stages);
    let bits = shape.digits.bits();
    let messages: Vec<u32> = (0..degree as u32)
        .map(|k| k.wrapping_mul(2_654_435_761) >> (32 - bits))
        .collect();
    let mut column = column::encrypt(&bench.secret, bits, &messages, &mut bench.rng).unwrap();
    let most = deviation * bench.context.params().chain[0] as f64;
    let noise: Vec<i64> = (0..degree as i64)
        .map(|k| (most * ((k % 5 - 2) as f64 / 2.0)) as i64)
        .collect();
    let noise = RnsPoly::from_i64(&bench.context, column.b().basis(), &noise).unwrap();
    column
        .add_plain(&Plaintext::new(noise, column.scale()))
        .unwrap();

    let mut evaluator = bench.evaluator();
    let raised = evaluator.raise(&column).unwrap();
    let digits = bench.pipeline.digits(&mut evaluator, &raised).unwrap();
    for seed in 0..2u32 {
        let values = (0..1u32 << bits)
            .map(|m| {
                (m * 2 + seed + 1)
                    .wrapping_mul(0x9e37_79b9)
                    .rotate_left(7)
                    .wrapping_mul(0x85eb_ca6b)
                    >> (32 - outputs)
            })
            .collect();
        let table = Table::new(bits, outputs, values).unwrap();
        let out = bench
            .pipeline
            .look_up(&mut evaluator, &digits, &table)
            .unwrap();
        let found = column::decrypt(&bench.secret, outputs, &out).unwrap();
        let wrong = found
            .iter()
            .zip(&messages)
            .filter(|(f, m)| **f != table.values()[**m as usize])
            .count();
        assert_eq!(wrong, 0, "of {degree} rows");
    }
}

#[test]
fn one_bit() {
    tables(1 << 10, shape(1, 0, 0), 3, 1, 0.05);
}

#[test]
fn four_bits() {
    tables(1 << 10, shape(4, 0, 1), 3, 4, 0.002);
}

#[test]
fn eight_bits_by_digits() {
    tables(1 << 10, shape(4, 4, 1), 3, 8, 3e-5);
}

#[test]
fn a_table_of_a_table() {
    let mut bench = bench(1 << 9, shape(3, 3, 1), 2);
    let messages: Vec<u32> = (0..512).map(|k| k % 64).collect();
    let table = Table::new(6, 6, (0..64).map(|m| m * 27 % 61).collect()).unwrap();
    let mut column = column::encrypt(&bench.secret, 6, &messages, &mut bench.rng).unwrap();
    let mut expected = messages;
    let mut evaluator = bench.evaluator();
    for _ in 0..3 {
        // A sum of two columns in between, modulo 2^6.
        let twice = column.clone();
        column.add_assign(&twice).unwrap();
        let raised = evaluator.raise(&column).unwrap();
        let digits = bench.pipeline.digits(&mut evaluator, &raised).unwrap();
        column = bench
            .pipeline
            .look_up(&mut evaluator, &digits, &table)
            .unwrap();
        expected
            .iter_mut()
            .for_each(|m| *m = table.values()[(*m as usize * 2) % 64]);
        assert_eq!(
            column::decrypt(&bench.secret, 6, &column).unwrap(),
            expected
        );
    }
}

#[test]
fn wrong_columns_are_refused() {
    let mut bench = bench(1 << 6, shape(1, 0, 0), 2);
    let (secret, rng) = (&bench.secret, &mut bench.rng);
    assert!(matches!(
        column::encrypt(secret, 0, &[0; 64], rng),
        Err(ColumnError::Bits(0))
    ));
    assert!(matches!(
        column::encrypt(secret, 18, &[0; 64], rng),
        Err(ColumnError::Bits(18))
    ));
    let mut messages = [3; 64];
    messages[9] = 4;
    let refused = column::encrypt(secret, 2, &messages, rng);
    assert!(matches!(
        refused,
        Err(ColumnError::Message {
            row: 9,
            message: 4,
            bits: 2
        })
    ));
    assert!(column::encrypt(secret, 4, &[0; 63], rng).is_err());
    let column = column::encrypt(secret, 16, &[65535; 64], rng).unwrap();
    assert_eq!(column::decrypt(secret, 16, &column).unwrap(), [65535; 64]);
    let high = bench.encrypt(&slots(32, 0), 2);
    assert!(column::decrypt(&bench.secret, 4, &high).is_err());
    assert!(column::decrypt(&bench.secret, 0, &column).is_err());
}
