//! The search for parameters, and its noise against that of ciphertexts.

#![allow(clippy::unwrap_used)]

mod bench;

use bench::Bench;
use toroid_rns::column;
use toroid_rns::search::{Candidate, LOG2_FAILURE, largest_modulus, search};
use toroid_rns::slots::LinearSlots;
use toroid_rns::table::{self, Digits, Exponential, Shape, Table};

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
            (judgement.key_switches, judgement.transforms),
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

#[test]
fn noise_of_ciphertexts_is_that_of_the_formulas() {
    let shape = Shape {
        digits: Digits::new(3, 3).unwrap(),
        exponential: Exponential::new(16.5, 31, 3).unwrap(),
        cleanings: 1,
    };
    let candidate = candidate(shape);
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
    let values = (0..64u32)
        .map(|m| m.wrapping_mul(0x9e37_79b9) >> 26)
        .collect();
    let table = Table::new(6, 6, values).unwrap();
    let out = bench
        .pipeline
        .look_up(&mut evaluator, &digits, &table)
        .unwrap();
    let phase = bench.secret.decrypt(&out).unwrap().poly().to_i128();
    let q = bench.context.params().chain[0] as f64;
    let squares: f64 = phase
        .iter()
        .zip(&messages)
        .map(|(&x, &m)| {
            let off = x as f64 / q - f64::from(table.values()[m as usize]) / 64.0;
            (off - off.round()).powi(2)
        })
        .sum();
    let deviation = (squares / degree as f64).sqrt();
    let ratio = deviation / judgement.output_deviation;
    assert!((0.05..1.0).contains(&ratio), "results: {ratio}");
}
