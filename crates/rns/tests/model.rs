//! Tables on the model: right values, levels as stated, noise as the formulas say.

#![allow(clippy::unwrap_used)]

use toroid_rns::complex::Complex;
use toroid_rns::embedding::Embedding;
use toroid_rns::formula::Formula;
use toroid_rns::model::{Model, NoLevel, Operation, OperationNoise, Vector};
use toroid_rns::pipeline::Pipeline;
use toroid_rns::slots::Slots;
use toroid_rns::table::{self, Digits, Exponential, Shape, Table, TableError};

fn shape(high: u32, low: u32, cleanings: u32) -> Shape {
    Shape {
        digits: Digits::new(high, low).unwrap(),
        exponential: Exponential::new(16.5, 31, 3).unwrap(),
        cleanings,
    }
}

/// A table without a pattern.
fn random_table(input_bits: u32, output_bits: u32, seed: u32) -> Table {
    let values = (0..1u32 << input_bits)
        .map(|m| {
            let x = (m + 1)
                .wrapping_mul(0x9e37_79b9)
                .wrapping_add(seed.wrapping_mul(0x85eb_ca6b));
            (x ^ (x >> 15)).wrapping_mul(0x2c1b_3c6d) >> (32 - output_bits)
        })
        .collect();
    Table::new(input_bits, output_bits, values).unwrap()
}

/// How far a fraction of a turn is from another, around the circle.
fn distance(a: f64, b: f64) -> f64 {
    (a - b - (a - b).round()).abs()
}

/// A column of all messages, each at several of the integers that a mod-raise leaves, with noise of up to `deviation` turns.
fn phases(n: usize, bits: u32, deviation: f64) -> (Vec<u32>, Vec<f64>) {
    let messages: Vec<u32> = (0..n as u32)
        .map(|k| k.wrapping_mul(2_654_435_761) >> (32 - bits))
        .collect();
    let phases = messages
        .iter()
        .enumerate()
        .map(|(k, &m)| {
            let integer = (k * 7 % 32) as f64 - 16.0;
            let sign = if k % 3 == 0 { -1.0 } else { 1.0 };
            integer + f64::from(m) / f64::from(1 << bits) + sign * deviation
        })
        .collect();
    (messages, phases)
}

#[test]
fn columns_of_every_width_in_the_model() {
    let noise = OperationNoise {
        rescale: (-56f64).exp2(),
        key_switch: (-56f64).exp2(),
    };
    for (degree, high, low, cleanings, outputs) in [
        (1 << 6, 1, 0, 0, 1),
        (1 << 8, 4, 0, 0, 4),
        (1 << 8, 4, 0, 1, 8),
        (1 << 9, 3, 3, 1, 6),
        (1 << 12, 4, 4, 1, 8),
        (1 << 10, 4, 4, 2, 16),
    ] {
        let shape = shape(high, low, cleanings);
        let pipeline = Pipeline::new(&Embedding::new(degree), shape, 3);
        let bits = shape.digits.bits();
        let deviation = if cleanings == 0 {
            1e-5
        } else {
            2e-5 / f64::from(cleanings)
        };
        let bound = shape.error(deviation) + 30.0 * noise.rescale.sqrt() * 40.0;
        assert!(bound < 0.5 / f64::from(1 << outputs), "{bits}: {bound:e}");
        let (messages, phases) = phases(degree, bits, deviation);
        let embedding = Embedding::new(degree);
        let mut model = Model::new(noise, 1);
        let column = Vector {
            level: pipeline.levels(),
            slots: embedding.to_slots(&phases),
        };
        let digits = pipeline.digits(&mut model, &column).unwrap();
        for seed in 0..2 {
            let table = random_table(bits, outputs, seed);
            let out = pipeline.look_up(&mut model, &digits, &table).unwrap();
            assert_eq!(
                out.level, 0,
                "the levels are those that the pipeline states"
            );
            for (found, &m) in embedding.to_coefficients(&out.slots).iter().zip(&messages) {
                let expected = f64::from(table.values()[m as usize]) / f64::from(1 << outputs);
                assert!(
                    distance(*found, expected) < bound,
                    "{bits} bits, {m}: {found} {expected}"
                );
            }
        }
        let short = Vector {
            level: pipeline.levels() - 1,
            ..column
        };
        let digits = pipeline.digits(&mut model, &short);
        let table = random_table(bits, outputs, 0);
        assert!(
            digits.and_then(|digits| pipeline.look_up(&mut model, &digits, &table)) == Err(NoLevel)
        );
    }
}

/// A table of two columns, on all rows and on those of a mask.
#[test]
fn pairs_of_columns_and_masks_in_the_model() {
    let noise = OperationNoise {
        rescale: (-56f64).exp2(),
        key_switch: (-56f64).exp2(),
    };
    for (high, low, cleanings) in [(4, 4, 1), (4, 4, 2), (4, 1, 1), (1, 3, 1), (2, 2, 2)] {
        let shape = shape(high, low, cleanings);
        let degree = 1 << 10;
        let embedding = Embedding::new(degree);
        let pipeline = Pipeline::new(&embedding, shape, 3);
        let mut model = Model::new(noise, 4);
        let raised = |phases: &[f64]| Vector {
            level: pipeline.levels(),
            slots: embedding.to_slots(phases),
        };
        // Each column has its own messages, and more noise than one column of all bits bears in its lower digit.
        let (x, of_x) = phases(degree, high, 2e-4);
        let (mut y, mut of_y) = phases(degree, low, 2e-4);
        y.rotate_left(11);
        of_y.rotate_left(11);
        let digits = pipeline
            .digits_of_two(&mut model, &raised(&of_x), &raised(&of_y))
            .unwrap();
        let table = random_table(high + low, 6, 3);
        let right: Vec<u32> = x
            .iter()
            .zip(&y)
            .map(|(&x, &y)| table.values()[(x << low | y) as usize])
            .collect();
        let mask: Vec<bool> = (0..degree).map(|k| k % 3 == 0 || k % 7 == 2).collect();
        let kept = right.iter().zip(&mask);
        let kept = kept.map(|(&value, &kept)| if kept { value } else { 0 });
        let whole = pipeline.look_up(&mut model, &digits, &table).unwrap();
        let some = pipeline
            .look_up_rows(&mut model, &digits, &table, &mask)
            .unwrap();
        for (out, expected) in [(whole, right.clone()), (some, kept.collect())] {
            assert_eq!(out.level, 0);
            for (found, value) in embedding.to_coefficients(&out.slots).iter().zip(expected) {
                let off = distance(*found, f64::from(value) / 64.0);
                assert!(off < 1e-3, "{high} and {low} bits: {off:e}");
            }
        }
    }
}

#[test]
fn formulas_give_the_noise_of_the_model() {
    let noise = OperationNoise {
        rescale: (-50f64).exp2(),
        key_switch: (-51f64).exp2(),
    };
    let input = (-50f64).exp2();
    for (high, low, cleanings) in [(1, 0, 0), (3, 0, 0), (2, 0, 1), (2, 2, 0), (2, 1, 1)] {
        let shape = shape(high, low, cleanings);
        let bits = shape.digits.bits();
        let (size, repeats) = (1usize << bits, 1500);
        let bound = shape.exponential.bound();
        let points: Vec<f64> = (0..size)
            .map(|m| (3.0 + m as f64 / size as f64) / bound)
            .collect();
        let table = random_table(bits, 6, 5);

        let mut formula = Formula::new(noise);
        let t = formula.input(shape.levels(), &points, input);
        let halves = [(); 2].map(|()| table::select(&mut formula, &t, &shape).unwrap());
        let digits = table::square(&mut formula, halves, &shape).unwrap();
        let out = table::look_up(&mut formula, &digits, &table).unwrap();
        let expected = formula.real_variances(&out);

        let mut model = Model::new(noise, 7);
        let slots: Vec<_> = (0..size * repeats)
            .map(|k| Complex::real(points[k % size] + model.normal() * input.sqrt()))
            .collect();
        let t = Vector {
            level: shape.levels(),
            slots,
        };
        let halves = [(); 2].map(|()| table::select(&mut model, &t, &shape).unwrap());
        let digits = table::square(&mut model, halves, &shape).unwrap();
        let found = table::look_up(&mut model, &digits, &table).unwrap();
        let values = formula.values(&out);
        let mut ratios = 0.0;
        for (m, &variance) in expected.iter().enumerate() {
            let errors = found
                .slots
                .iter()
                .skip(m)
                .step_by(size)
                .map(|x| x.re - values[m].re);
            let measured = errors.map(|e| e * e).sum::<f64>() / repeats as f64;
            assert!(
                (0.85..1.15).contains(&(measured / variance)),
                "{high} {low} {cleanings} {m}: {}",
                measured / variance
            );
            ratios += measured / variance / size as f64;
        }
        assert!(
            (0.93..1.07).contains(&ratios),
            "{high} {low} {cleanings}: {ratios}"
        );
    }
}

#[test]
fn cleaning_keeps_a_chain_of_tables_alive() {
    let noise = OperationNoise {
        rescale: (-54f64).exp2(),
        key_switch: (-54f64).exp2(),
    };
    let shape = shape(4, 4, 1);
    let degree = 1 << 8;
    let embedding = Embedding::new(degree);
    let pipeline = Pipeline::new(&embedding, shape, 2);
    let table = random_table(8, 8, 9);
    let mut model = Model::new(noise, 3);
    let (mut messages, mut phases) = phases(degree, 8, 1e-6);
    let mut worst = Vec::new();
    for _ in 0..4 {
        let column = Vector {
            level: pipeline.levels(),
            slots: embedding.to_slots(&phases),
        };
        let digits = pipeline.digits(&mut model, &column).unwrap();
        let out = pipeline.look_up(&mut model, &digits, &table).unwrap();
        phases = embedding.to_coefficients(&out.slots);
        messages
            .iter_mut()
            .for_each(|m| *m = table.values()[*m as usize]);
        let off = phases
            .iter()
            .zip(&messages)
            .map(|(x, &m)| distance(*x, f64::from(m) / 256.0));
        worst.push(off.fold(0.0, f64::max));
    }
    assert!(
        worst.iter().all(|&off| off < 2.0 * worst[0] && off < 1e-5),
        "{worst:?}"
    );
}

#[test]
fn two_digits_share_one_exponential() {
    let shape = shape(4, 4, 1);
    let pipeline = Pipeline::new(&Embedding::new(64), shape, 2);
    let mut model = Model::new(OperationNoise::default(), 0);
    let column = Vector {
        level: pipeline.levels(),
        slots: vec![Complex::ZERO; 32],
    };
    let digits = pipeline.digits(&mut model, &column).unwrap();
    let first = model.count(Operation::KeySwitch);
    pipeline
        .look_up(&mut model, &digits, &random_table(8, 8, 0))
        .unwrap();
    let second = model.count(Operation::KeySwitch) - first;
    // Both halves: squares of the low digit, and two sums. Each half: the exponential, 4 squarings, 7 + 4 + 8 powers, 16 conjugations, 16 squares of the high digit.
    let rotations: usize = pipeline
        .to_slots()
        .iter()
        .flat_map(|p| p.giants())
        .filter(|g| g.rotation != 0)
        .count();
    let exponential = (first - 1 - rotations - 16 - 2) / 2 - 4 - 19 - 16 - 16;
    assert!((12..=20).contains(&exponential), "{exponential}");
    assert!(second < 20, "a further table costs {second}");
    assert_eq!(model.level(&column), pipeline.levels());
}

#[test]
fn wrong_tables_are_refused() {
    assert!(matches!(Digits::new(5, 0), Err(TableError::Digits { .. })));
    assert!(matches!(Digits::new(0, 4), Err(TableError::Digits { .. })));
    assert!(matches!(
        Table::new(4, 4, vec![0; 15]),
        Err(TableError::Length { expected: 16, .. })
    ));
    assert!(matches!(
        Table::new(2, 3, vec![0, 7, 8, 0]),
        Err(TableError::Value { index: 2, .. })
    ));
    assert!(matches!(
        Table::new(2, 17, vec![0; 4]),
        Err(TableError::Output(17))
    ));
    assert!(matches!(
        Table::new(200, 4, vec![0; 4]),
        Err(TableError::Length { .. })
    ));
    assert!(Exponential::new(16.5, 1, 3).is_err());
    assert!(Exponential::new(f64::NAN, 31, 3).is_err());
    assert!(Exponential::new(16.5, 31, 9).is_err());
}
