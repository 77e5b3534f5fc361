//! Tables of 9 to 16 bits: on the model, on ciphertexts at small degrees, and the search for parameters.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use toroid_rns::column;
use toroid_rns::complex::Complex;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::EvaluationKeys;
use toroid_rns::evaluator::{Evaluator, order_primes_by};
use toroid_rns::model::{Model, Vector};
use toroid_rns::params::RnsParams;
use toroid_rns::search::{LOG2_FAILURE, largest_modulus};
use toroid_rns::slots::{ColumnSlots, LinearSlots, Slots};
use toroid_rns::table::{self, Digits, Exponential, Table, TableError};
use toroid_rns::wide::{Part, WidePipeline, WideShape};
use toroid_rns::wide_search::{WideCandidate, search, search_shape};
use toroid_rns::{Ciphertext, SecretKey};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

const EXPONENTIAL: (usize, u32) = (31, 3);

fn exponential() -> Exponential {
    let (degree, doublings) = EXPONENTIAL;
    Exponential::new(16.5, degree, doublings).unwrap()
}

/// Tables that look random.
fn random_table(bits: u32, output_bits: u32, seed: u32) -> Table {
    let value = |m: u32| {
        let mixed = (m ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
        (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35) >> (32 - output_bits)
    };
    Table::new(bits, output_bits, (0..1 << bits).map(value).collect()).unwrap()
}

/// A candidate at a degree for tests, which protects nothing.
fn candidate(degree: usize, shape: WideShape, output_bits: u32) -> WideCandidate {
    WideCandidate {
        degree,
        log2_coarse: 42,
        log2_fine: 48,
        special: 7,
        digit_limbs: 7,
        stages: 3,
        shape,
        output_bits,
    }
}

#[test]
fn explore() {
    for (s, f) in [(40, 50), (42, 50), (43, 50), (44, 48), (44, 50), (46, 50)] {
        for low in [1, 2, 3] {
        for e in [(31, 3), (47, 2), (63, 2)] {
            let exponential = Exponential::new(16.5, e.0, e.1).unwrap();
            let mut c = candidate(1 << 16, WideShape::new(16, exponential).unwrap(), 16);
            c.log2_coarse = s;
            c.log2_fine = f;
            c.shape.lowest_cleanings = low;
            let start = std::time::Instant::now();
            let j = c.judge_noise();
            let Some(j) = j else { println!("{s} {f} none {:?}", c.sizes().chain_bits); continue };
            println!("{s} {f} {low} {e:?}: out 2^{:.2} bias 2^{:.2} fail {:.1} limbs {} logQP {} {:?} {:?}", j.output_deviation.log2(), j.bias.log2(), j.log2_failure, j.limbs, j.log2_modulus, j.first, start.elapsed());
            let n = c.noise(4.0 * j.output_deviation).unwrap();
            let l = |x: f64| x.log2() / 2.0;
            println!("    low phases 2^{:.2}, column 2^{:.2}, high phases 2^{:.2}, values 2^{:.2}", l(n.low_phases), l(n.low_column), l(n.high_phases), l(n.values));
            let n = c.noise(0.0).unwrap();
            println!("    no input: low phases 2^{:.2}, column 2^{:.2}, high phases 2^{:.2}, values 2^{:.2} bias 2^{:.2}", l(n.low_phases), l(n.low_column), l(n.high_phases), l(n.values), n.bias.log2());
        }
        }
    }
}
