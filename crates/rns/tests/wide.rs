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

/// The parameters of 16 bits at a degree for tests, which protects nothing.
fn candidate(degree: usize, shape: WideShape) -> WideCandidate {
    WideCandidate {
        degree,
        log2_coarse: 43,
        log2_fine: 49,
        first_bits: 44,
        special: 7,
        digit_limbs: 7,
        stages: 3,
        shape,
        output_bits: shape.bits(),
    }
}

fn wide(bits: u32) -> WideShape {
    WideShape::new(bits, exponential()).unwrap()
}

/// Keys, and what belongs to them.
struct Bench {
    candidate: WideCandidate,
    embedding: Embedding,
    pipeline: WidePipeline,
    secret: SecretKey,
    keys: EvaluationKeys,
    rng: Csprng,
}

impl Bench {
    fn new(candidate: WideCandidate) -> Bench {
        let embedding = Embedding::new(candidate.degree);
        let pipeline = WidePipeline::new(&embedding, candidate.shape, candidate.stages);
        let mut params = RnsParams::search(&candidate.sizes()).unwrap();
        order_primes_by(&mut params, |level| candidate.log2_scale_at(level).into());
        let context = Context::new(params).unwrap();
        let mut rng = Csprng::from_seed([7; 32]);
        let secret = SecretKey::generate(&context, &mut rng);
        let request = pipeline.lean_key_request();
        let progress = Progress::default();
        let keys = EvaluationKeys::generate(&secret, &request, &mut rng, &progress).unwrap();
        Bench {
            candidate,
            embedding,
            pipeline,
            secret,
            keys,
            rng,
        }
    }

    fn evaluator(&self) -> Evaluator<'_> {
        let top = self.candidate.log2_scale_at(self.candidate.levels());
        Evaluator::new(&self.keys, &self.embedding, top.into())
    }

    fn messages(&self, bits: u32, seed: u32) -> Vec<u32> {
        let degree = self.candidate.degree as u32;
        (0..degree)
            .map(|k| (k + seed).wrapping_mul(2_654_435_761) >> (32 - bits))
            .collect()
    }

    fn encrypt(&mut self, bits: u32, messages: &[u32]) -> Ciphertext {
        column::encrypt(&self.secret, bits, messages, &mut self.rng).unwrap()
    }

    /// A result's messages, and the standard deviation of its noise in turns.
    fn decrypt(&self, bits: u32, column: &Ciphertext) -> (Vec<u32>, f64) {
        let messages = column::decrypt(&self.secret, bits, column).unwrap();
        let phase = self.secret.decrypt(column).unwrap().poly().to_i128();
        let q = self.secret.context().params().chain[0] as f64;
        let steps = f64::from(bits).exp2();
        let squares: f64 = phase
            .iter()
            .map(|&x| {
                let turns = x as f64 / q;
                (turns - (turns * steps).round() / steps).powi(2)
            })
            .sum();
        (messages, (squares / phase.len() as f64).sqrt())
    }
}

#[test]
fn wide_tables_have_parameters() {
    for bits in [12, 14, 16] {
        let start = std::time::Instant::now();
        let found = search(1 << 16, bits, bits);
        println!("1 {bits}: {:?}\n1 {:?}", found, start.elapsed());
        if let Some((c, j)) = found {
            println!("1 {:?}", c.noise(4.0 * j.output_deviation));
        }
    }
}

#[test]
fn every_message_of_sixteen_bits_in_the_model() {
    let candidate = candidate(1 << 16, wide(16));
    let embedding = Embedding::new(candidate.degree);
    let pipeline = WidePipeline::new(&embedding, candidate.shape, candidate.stages);
    let noise = candidate.judge_noise().unwrap();
    let mut model = Model::new(candidate.noise_by_level(), 3);
    let deviation = 4.0 * noise.output_deviation;
    let messages: Vec<u32> = (0..1u32 << 16).map(|k| k.wrapping_mul(40_503) & 0xffff).collect();
    let phases: Vec<f64> = messages
        .iter()
        .map(|&m| f64::from(m) / 65536.0 + deviation * model.normal())
        .collect();
    let column = Vector {
        level: 0,
        slots: embedding.to_slots(&phases),
    };
    let digits = pipeline.digits(&mut model, &column).unwrap();
    for seed in 0..3 {
        let table = random_table(16, 16, seed);
        let out = pipeline.look_up(&mut model, &digits, &table).unwrap();
        assert_eq!(out.level, 0);
        let found = embedding.to_coefficients(&out.slots);
        let mut squares = 0.0;
        for (found, &m) in found.iter().zip(&messages) {
            let off = found - f64::from(table.values()[m as usize]) / 65536.0;
            assert!((off - off.round()).abs() < 1.0 / 131_072.0, "{m}: {found}");
            squares += (off - off.round()).powi(2);
        }
        let measured = (squares / 65536.0).sqrt() / noise.output_deviation;
        println!("1 model {measured}");
        assert!((0.1..1.0).contains(&measured), "{measured}");
    }
}

#[test]
fn tables_of_sixteen_bits_on_ciphertexts() {
    let mut bench = Bench::new(candidate(1 << 9, wide(16)));
    let messages = bench.messages(16, 0);
    let column = bench.encrypt(16, &messages);
    let stated = bench.candidate.judge_noise().unwrap();
    let mut evaluator = bench.evaluator();
    let digits = bench.pipeline.digits(&mut evaluator, &column).unwrap();
    for seed in 0..2 {
        let table = random_table(16, 16, seed);
        let out = bench.pipeline.look_up(&mut evaluator, &digits, &table).unwrap();
        let (found, deviation) = bench.decrypt(16, &out);
        let right: Vec<u32> = messages.iter().map(|&m| table.values()[m as usize]).collect();
        assert!(found == right, "{seed}");
        let ratio = deviation / stated.output_deviation;
        println!("1 ciphertexts {ratio}");
        assert!((0.05..1.0).contains(&ratio), "{ratio}");
    }
}
