//! Our tables.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use toroid_bench_common::{Error, machine};
use toroid_ring::simd::SimdLevel;
use toroid_rns::column;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::{EvaluationKeys, KeyRequest};
use toroid_rns::evaluator::{Evaluator, lean_key_request, order_primes};
use toroid_rns::matrix::Matrices;
use toroid_rns::params::RnsParams;
use toroid_rns::pipeline::Pipeline;
use toroid_rns::search;
use toroid_rns::table::Table;
use toroid_rns::wide::{self, WidePipeline};
use toroid_rns::wide_search::{self, WideCandidate};
use toroid_rns::{Ciphertext, SecretKey, Threads};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

/// What was measured, and what the formulas say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    pub bits: u32,
    pub threads: usize,
    pub values: usize,
    /// N.
    pub degree: usize,
    pub limbs: usize,
    pub prime_bits: u32,
    pub log2_modulus: f64,
    pub log2_failure: f64,
    pub key_switches: usize,
    pub transforms: usize,
    /// Context and matrices.
    pub setup_s: f64,
    pub keys_s: f64,
    /// In memory.
    pub keys_mb: f64,
    /// On the wire: seeds and bodies.
    pub packed_mb: f64,
    pub first_s: f64,
    pub further_s: f64,
    pub checked: u64,
    pub wrong: u64,
    pub peak_mib: f64,
}

/// Bytes of encoded matrices that are kept for the next column.
const MATRICES: usize = 0;

/// The kernels that this processor runs.
pub fn instructions() -> String {
    SimdLevel::best().to_string()
}

/// What differs between tables of one pass and of two.
enum Engine {
    Narrow(Box<Pipeline>, f64),
    Wide(Box<WidePipeline>, Box<WideCandidate>),
}

/// What the formulas say of the parameters.
struct Stated {
    limbs: usize,
    prime_bits: u32,
    log2_modulus: f64,
    log2_failure: f64,
    key_switches: usize,
    transforms: usize,
}

fn no_parameters(bits: u32) -> Error {
    format!("no parameters for tables of {bits} bits").into()
}

/// Finds parameters and makes matrices.
fn engine(
    embedding: &Embedding,
    bits: u32,
) -> Result<(Engine, RnsParams, KeyRequest, Stated), Error> {
    let degree = embedding.degree();
    if wide::BITS.contains(&bits) {
        let found = wide_search::search(degree, bits, bits);
        let (candidate, judgement) = found.ok_or_else(|| no_parameters(bits))?;
        let pipeline = WidePipeline::new(embedding, candidate.shape, candidate.stages);
        let mut params = RnsParams::search(&candidate.sizes())?;
        order_primes(&mut params, |level| candidate.log2_scale_at(level).into());
        let stated = Stated {
            limbs: judgement.limbs,
            prime_bits: candidate.log2_fine,
            log2_modulus: judgement.log2_modulus,
            log2_failure: judgement.log2_failure,
            key_switches: judgement.first.key_switches,
            transforms: judgement.first.transforms,
        };
        let request = pipeline.lean_key_request();
        let engine = Engine::Wide(Box::new(pipeline), Box::new(candidate));
        return Ok((engine, params, request, stated));
    }
    let found = search::search(degree, bits, bits);
    let (candidate, judgement) = found.ok_or_else(|| no_parameters(bits))?;
    let pipeline = Pipeline::new(embedding, candidate.shape, candidate.stages);
    let mut params = RnsParams::search(&candidate.sizes())?;
    order_primes(&mut params, |level| candidate.log2_scale_at(level).into());
    let log2_scale = candidate.log2_scale_at(candidate.levels()).into();
    let stated = Stated {
        limbs: judgement.limbs,
        prime_bits: candidate.log2_scale,
        log2_modulus: judgement.log2_modulus,
        log2_failure: judgement.log2_failure,
        key_switches: judgement.key_switches,
        transforms: judgement.transforms,
    };
    let request = lean_key_request(&pipeline);
    let engine = Engine::Narrow(Box::new(pipeline), log2_scale);
    Ok((engine, params, request, stated))
}

/// Evaluates two random tables on a random column.
pub fn measure(bits: u32, threads: usize) -> Result<Figures, Error> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    pool.install(|| in_pool(bits, threads))
}

fn in_pool(bits: u32, threads: usize) -> Result<Figures, Error> {
    // Bits fit into the smaller ring.
    let degree = if bits == 1 { 1 << 15 } else { 1 << 16 };
    let start = Instant::now();
    let embedding = Embedding::new(degree);
    let (engine, params, request, stated) = engine(&embedding, bits)?;
    let sharing = match threads {
        1 => Threads::One,
        _ => Threads::Pool,
    };
    let context = Context::with(params, SimdLevel::best(), sharing)?;
    let setup_s = start.elapsed().as_secs_f64();
    let mut rng = Csprng::from_os()?;
    let secret = SecretKey::generate(&context, &mut rng);
    let start = Instant::now();
    let keys = EvaluationKeys::generate(&secret, &request, &mut rng, &Progress::default())?;
    let keys_s = start.elapsed().as_secs_f64();

    let mut draw = |count: usize| -> Vec<u32> {
        (0..count)
            .map(|_| (rng.next_u64() as u32) >> (32 - bits))
            .collect()
    };
    let messages = draw(degree);
    let tables = [draw(1 << bits), draw(1 << bits)];
    let tables = tables.map(|values| Table::new(bits, bits, values));
    let column = column::encrypt(&secret, bits, &messages, &mut rng)?;
    let matrices = Arc::new(Matrices::new(MATRICES));
    let (mut seconds, mut wrong) = (Vec::new(), 0);
    let mut check = |table: &Table, result: &Ciphertext| -> Result<(), Error> {
        let found = column::decrypt(&secret, bits, result)?;
        let pairs = found.iter().zip(&messages);
        wrong += pairs
            .filter(|(found, message)| **found != table.values()[**message as usize])
            .count() as u64;
        Ok(())
    };
    let start = Instant::now();
    match &engine {
        Engine::Narrow(pipeline, log2_scale) => {
            let evaluator = Evaluator::new(&keys, &embedding, *log2_scale);
            let mut evaluator = evaluator.with_matrices(matrices);
            let raised = evaluator.raise(&column)?;
            let digits = pipeline.digits(&mut evaluator, &raised)?;
            seconds.push(start.elapsed().as_secs_f64());
            for table in tables {
                let (table, start) = (table?, Instant::now());
                let result = pipeline.look_up(&mut evaluator, &digits, &table)?;
                seconds.push(start.elapsed().as_secs_f64());
                check(&table, &result)?;
            }
        }
        Engine::Wide(pipeline, candidate) => {
            let top = candidate.log2_scale_at(candidate.levels());
            let evaluator = Evaluator::new(&keys, &embedding, f64::from(top));
            let mut evaluator = evaluator.with_matrices(matrices);
            let digits = pipeline.digits(&mut evaluator, &column)?;
            seconds.push(start.elapsed().as_secs_f64());
            for table in tables {
                let (table, start) = (table?, Instant::now());
                let result = pipeline.look_up(&mut evaluator, &digits, &table)?;
                seconds.push(start.elapsed().as_secs_f64());
                check(&table, &result)?;
            }
        }
    }
    Ok(Figures {
        bits,
        threads,
        values: degree,
        degree,
        limbs: stated.limbs,
        prime_bits: stated.prime_bits,
        log2_modulus: stated.log2_modulus,
        log2_failure: stated.log2_failure,
        key_switches: stated.key_switches,
        transforms: stated.transforms,
        setup_s,
        keys_s,
        keys_mb: keys.memory() as f64 / 1e6,
        packed_mb: keys.packed_bytes() as f64 / 1e6,
        first_s: seconds[0] + seconds[1],
        further_s: seconds[2],
        checked: 2 * degree as u64,
        wrong,
        peak_mib: machine::peak_memory().unwrap_or_default() as f64 / (1 << 20) as f64,
    })
}
