//! The search for parameters, and its noise against that of ciphertexts.

#![allow(clippy::unwrap_used)]

mod bench;

use bench::Bench;
use toroid_rns::search::{Applied, Candidate, LOG2_FAILURE, largest_modulus, search};
use toroid_rns::slots::LinearSlots;
use toroid_rns::table::{self, Digits, Exponential, Shape, Table};
use toroid_rns::{Ciphertext, column};

#[test]
fn one_to_eight_bits_have_parameters() {
    // Degree, bits, and what the crate's README says.
    for (degree, bits, limbs, scales, key_switches, transforms) in [
        (1 << 15, 1, 16, [39, 38], 119, 7312),
        (1 << 16, 4, 22, [41, 40], 174, 12833),
        (1 << 16, 8, 27, [49, 44], 258, 21490),
    ] {
        let (candidate, judgement) = search(degree, bits, bits).unwrap();
        assert_eq!(judgement.limbs, limbs);
        assert_eq!([candidate.log2_scale, candidate.log2_inner], scales);
        assert_eq!(
            (judgement.cost.key_switches, judgement.cost.transforms),
            (key_switches, transforms)
        );
        assert!(judgement.log2_failure <= LOG2_FAILURE);
        assert!(judgement.log2_modulus <= largest_modulus(degree));
        assert_eq!(judgement.limbs, candidate.sizes().chain_bits.len());
        // The judgement is that of the candidate, and a coarser scale fails no less often, as the search takes for granted.
        assert_eq!(candidate.judge(), Some(judgement));
        let coarser = Candidate {
            log2_inner: candidate.log2_inner - 2,
            ..candidate
        };
        assert!(
            coarser
                .judge_noise()
                .is_none_or(|j| j.log2_failure >= judgement.log2_failure)
        );
    }
    assert_eq!(search(1 << 15, 8, 8), None);
    assert_eq!(search(1 << 16, 9, 9), None);
}

/// A candidate at a degree for tests, which protects nothing.
fn candidate(shape: Shape) -> Candidate {
    Candidate {
        degree: 1 << 11,
        log2_scale: 40,
        log2_inner: 40,
        first_bits: 40,
        special: 5,
        digit_limbs: 6,
        stages: 2,
        shape,
        output_bits: 6,
    }
}

/// One of two digits of three bits, which are cleaned.
fn of_two_digits() -> Candidate {
    candidate(Shape {
        digits: Digits::new(3, 3).unwrap(),
        exponential: Exponential::new(16.5, 31, 3).unwrap(),
        cleanings: 1,
    })
}

/// A table of random messages of six bits.
fn some_table() -> Table {
    let values = (0..64u32).map(|m| m.wrapping_mul(0x9e37_79b9) >> 26);
    Table::new(6, 6, values.collect()).unwrap()
}

/// The standard deviation of a column's coefficients about messages of six bits.
fn deviation(bench: &Bench, column: &Ciphertext, messages: &[u32]) -> f64 {
    let phase = bench.secret.decrypt(column).unwrap().poly().to_i128();
    let q = bench.context.params().chain[0] as f64;
    let squares = phase.iter().zip(messages).map(|(&x, &message)| {
        let off = x as f64 / q - f64::from(message) / 64.0;
        (off - off.round()).powi(2)
    });
    (squares.sum::<f64>() / messages.len() as f64).sqrt()
}

#[test]
fn noise_of_ciphertexts_is_that_of_the_formulas() {
    let candidate = of_two_digits();
    let mut bench = Bench::new(&candidate);
    let degree = candidate.degree;
    let messages: Vec<u32> = (0..degree as u32).map(|k| k * 11 % 64).collect();
    let column = column::encrypt(&bench.secret, 6, &messages, &mut bench.rng).unwrap();
    let mut evaluator = bench.evaluator();
    let raised = evaluator.raise(&column).unwrap();

    // Phases: what arrives in the slots, against what the raised polynomial has in its coefficients.
    let mut exact = bench.decrypt(&raised);
    let mut value = raised.clone();
    for plan in bench.pipeline.to_slots() {
        value = evaluator.transform(plan, &value).unwrap();
        exact = plan.apply(&exact);
    }
    let (real, imaginary) = table::split(&mut evaluator, &value).unwrap();
    let (mut squares, mut largest) = (0.0, 0f64);
    for (part, exact) in [
        (
            bench.decrypt(&real),
            exact.iter().map(|x| 2.0 * x.re).collect::<Vec<_>>(),
        ),
        (
            bench.decrypt(&imaginary),
            exact.iter().map(|x| 2.0 * x.im).collect(),
        ),
    ] {
        for (found, exact) in part.iter().zip(exact) {
            squares += (found.re - exact).powi(2);
            largest = largest.max(exact.abs());
        }
    }
    assert!(largest <= 1.0, "phases are within the bound: {largest}");
    let ratio = squares / degree as f64 / candidate.phase_variance(0.0);
    assert!((0.5..1.2).contains(&ratio), "phases: {ratio}");

    // Results: the formula bounds any table.
    let judgement = candidate.judge_noise().unwrap();
    let digits = bench.pipeline.digits(&mut evaluator, &raised).unwrap();
    let table = some_table();
    let out = bench
        .pipeline
        .look_up(&mut evaluator, &digits, &table)
        .unwrap();
    let right: Vec<u32> = messages
        .iter()
        .map(|&m| table.values()[m as usize])
        .collect();
    let ratio = deviation(&bench, &out, &right) / judgement.output_deviation;
    assert!((0.05..1.0).contains(&ratio), "results: {ratio}");
}

/// Tables of two columns and of some rows: every value, and no more noise than the formulas say.
#[test]
fn pairs_and_masks_on_ciphertexts() {
    let candidate = of_two_digits();
    let mut bench = Bench::new(&candidate);
    let rows = candidate.degree;
    let x: Vec<u32> = (0..rows as u32).map(|k| k * 11 % 8).collect();
    let y: Vec<u32> = (0..rows as u32).map(|k| k / 8 % 8).collect();
    let [of_x, of_y] =
        [&x, &y].map(|messages| column::encrypt(&bench.secret, 3, messages, &mut bench.rng));
    let (of_x, of_y) = (of_x.unwrap(), of_y.unwrap());
    let mut evaluator = bench.evaluator();
    let [of_x, of_y] = [of_x, of_y].map(|column| evaluator.raise(&column).unwrap());
    let digits = bench
        .pipeline
        .digits_of_two(&mut evaluator, &of_x, &of_y)
        .unwrap();
    let table = some_table();
    let right: Vec<u32> = x
        .iter()
        .zip(&y)
        .map(|(x, y)| table.values()[(x << 3 | y) as usize])
        .collect();
    let mask: Vec<bool> = (0..rows).map(|k| k % 3 == 1).collect();
    let kept = right.iter().zip(&mask);
    let kept = kept.map(|(&value, &kept)| if kept { value } else { 0 });
    let kept: Vec<u32> = kept.collect();
    let whole = bench.pipeline.look_up(&mut evaluator, &digits, &table);
    let some = bench
        .pipeline
        .look_up_rows(&mut evaluator, &digits, &table, &mask);
    let q = bench.context.params().chain[0] as f64;
    for (out, expected, to_some_rows) in [(whole, right, false), (some, kept, true)] {
        let out = out.unwrap();
        assert!(column::decrypt(&bench.secret, 6, &out).unwrap() == expected);
        let applied = Applied {
            to_two: true,
            to_some_rows,
        };
        let stated = candidate.noise_applied(3.2 / q, applied).unwrap();
        let ratio = deviation(&bench, &out, &expected) / stated.deviation;
        assert!((0.02..1.0).contains(&ratio), "{applied:?}: {ratio}");
    }
}

/// Two columns bear as much noise each as one of as many bits as the larger digit, so that a table of both bears more than one of a packed pair.
#[test]
fn two_columns_bear_more_noise_than_one() {
    let (candidate, _) = search(1 << 16, 8, 8).unwrap();
    let bears = |applied: Applied| {
        let fails = |log2: f64| {
            let noise = candidate.noise_applied(log2.exp2(), applied);
            noise.is_none_or(|noise| noise.log2_failure > LOG2_FAILURE)
        };
        let log2s = (-400..0).map(|tenths| f64::from(tenths) / 10.0);
        log2s.take_while(|&log2| !fails(log2)).last().unwrap()
    };
    let one = Applied::default();
    let (two, some) = (
        Applied {
            to_two: true,
            ..one
        },
        Applied {
            to_some_rows: true,
            ..one
        },
    );
    // The low digit of one column is read from its phases times 2^4.
    assert!(bears(two) - bears(one) > 3.0, "{}", bears(two) - bears(one));
    assert!(bears(some) <= bears(one));
    let one_digit = Candidate {
        shape: Shape {
            digits: Digits::new(4, 0).unwrap(),
            ..candidate.shape
        },
        ..candidate
    };
    assert_eq!(one_digit.noise_applied(0.0, two), None);
}
