//! Keys and a pipeline for a candidate, as tests need them.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use toroid_rns::complex::Complex;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::EvaluationKeys;
use toroid_rns::evaluator::{Evaluator, order_primes};
use toroid_rns::params::RnsParams;
use toroid_rns::pipeline::Pipeline;
use toroid_rns::search::Candidate;
use toroid_rns::{Ciphertext, SecretKey};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

pub struct Bench {
    pub embedding: Embedding,
    pub pipeline: Pipeline,
    pub context: Arc<Context>,
    pub secret: SecretKey,
    pub keys: EvaluationKeys,
    pub rng: Csprng,
    log2_scale: f64,
}

impl Bench {
    pub fn new(candidate: &Candidate) -> Bench {
        let embedding = Embedding::new(candidate.degree);
        let pipeline = Pipeline::new(&embedding, candidate.shape, candidate.stages);
        let mut params = RnsParams::search(&candidate.sizes()).unwrap();
        order_primes(&mut params, |level| candidate.log2_scale_at(level).into());
        let log2_scale = candidate.log2_scale_at(candidate.levels()).into();
        let context = Context::new(params).unwrap();
        let mut rng = Csprng::from_seed([5; 32]);
        let secret = SecretKey::generate(&context, &mut rng);
        let request = pipeline.key_request();
        let keys =
            EvaluationKeys::generate(&secret, &request, &mut rng, &Progress::default()).unwrap();
        Bench {
            embedding,
            pipeline,
            context,
            secret,
            keys,
            rng,
            log2_scale,
        }
    }

    pub fn evaluator(&self) -> Evaluator<'_> {
        self.evaluator_with(&self.keys)
    }

    pub fn evaluator_with<'a>(&'a self, keys: &'a EvaluationKeys) -> Evaluator<'a> {
        Evaluator::new(keys, &self.embedding, self.log2_scale)
    }

    pub fn encrypt(&mut self, slots: &[Complex], limbs: usize) -> Ciphertext {
        let evaluator = self.evaluator();
        let scale = evaluator.scale(limbs - 1);
        let plaintext = evaluator.encode(slots, scale, limbs).unwrap();
        self.secret.encrypt(&plaintext, &mut self.rng).unwrap()
    }

    pub fn decrypt(&self, value: &Ciphertext) -> Vec<Complex> {
        self.evaluator()
            .decode(&self.secret.decrypt(value).unwrap())
    }
}
