//! Our tables.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use toroid_bench_common::{Error, machine, speed};
use toroid_ring::prime_ntt::Ntt50Plan;
use toroid_ring::simd::SimdLevel;
use toroid_rns::batch::MATRIX_BYTES;
use toroid_rns::column;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::{EvaluationKeys, KeyRequest};
use toroid_rns::evaluator::{Evaluator, lean_key_request, order_primes};
use toroid_rns::matrix::Matrices;
use toroid_rns::params::RnsParams;
use toroid_rns::pipeline::Pipeline;
use toroid_rns::search::{self, Cost};
use toroid_rns::table::Table;
use toroid_rns::wide::{self, WidePipeline};
use toroid_rns::wide_search::{self, WideCandidate};
use toroid_rns::{Ciphertext, RnsError, SecretKey, Threads};
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
    /// Bytes of keys that the key switches read.
    pub key_bytes: f64,
    /// Microseconds of one transform, modulo one prime after the other.
    pub transform_us: f64,
    /// The least that one takes by its operations.
    pub transform_bound_us: f64,
    /// Context and matrices.
    pub setup_s: f64,
    pub keys_s: f64,
    /// In memory.
    pub keys_mb: f64,
    /// On the wire: seeds and bodies.
    pub packed_mb: f64,
    /// The first column's first table, matrices encoded on the way.
    pub first_s: f64,
    /// Another table of the same column.
    pub further_s: f64,
    /// The next column's first table, by the matrices that the first column left.
    pub next_s: f64,
    pub checked: u64,
    pub wrong: u64,
    pub peak_mib: f64,
}

/// The kernels that this processor runs.
pub fn instructions() -> String {
    SimdLevel::best().to_string()
}

/// What differs between tables of one pass and of two.
enum Engine {
    Narrow(Box<Pipeline>, f64),
    Wide(Box<WidePipeline>, Box<WideCandidate>),
}

/// What one column takes, in seconds.
struct Lap {
    /// To take the messages apart.
    digits_s: f64,
    tables_s: Vec<f64>,
}

impl Engine {
    /// Evaluates tables on a column.
    fn evaluate(
        &self,
        keys: &EvaluationKeys,
        embedding: &Embedding,
        matrices: &Arc<Matrices>,
        column: &Ciphertext,
        tables: &[Table],
    ) -> Result<(Lap, Vec<Ciphertext>), Error> {
        let scale = match self {
            Engine::Narrow(_, log2_scale) => *log2_scale,
            Engine::Wide(_, candidate) => candidate.log2_scale_at(candidate.levels()).into(),
        };
        let evaluator = Evaluator::new(keys, embedding, scale);
        let mut evaluator = evaluator.with_matrices(Arc::clone(matrices));
        let start = Instant::now();
        let (digits_s, (tables_s, results)) = match self {
            Engine::Narrow(pipeline, _) => {
                let raised = evaluator.raise(column)?;
                let digits = pipeline.digits(&mut evaluator, &raised)?;
                let digits_s = start.elapsed().as_secs_f64();
                let look_up = |table: &Table| pipeline.look_up(&mut evaluator, &digits, table);
                (digits_s, each_timed(tables, look_up)?)
            }
            Engine::Wide(pipeline, _) => {
                let digits = pipeline.digits(&mut evaluator, column)?;
                let digits_s = start.elapsed().as_secs_f64();
                let look_up = |table: &Table| pipeline.look_up(&mut evaluator, &digits, table);
                (digits_s, each_timed(tables, look_up)?)
            }
        };
        let lap = Lap { digits_s, tables_s };
        Ok((lap, results))
    }
}

/// Looks up one table after the other: the seconds and the result of each.
fn each_timed(
    tables: &[Table],
    mut look_up: impl FnMut(&Table) -> Result<Ciphertext, RnsError>,
) -> Result<(Vec<f64>, Vec<Ciphertext>), RnsError> {
    let (mut seconds, mut results) = (Vec::new(), Vec::new());
    for table in tables {
        let start = Instant::now();
        results.push(look_up(table)?);
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok((seconds, results))
}

/// What the formulas say of the parameters.
struct Stated {
    limbs: usize,
    prime_bits: u32,
    log2_modulus: f64,
    log2_failure: f64,
    cost: Cost,
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
            cost: judgement.first,
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
        cost: judgement.cost,
    };
    let request = lean_key_request(&pipeline);
    let engine = Engine::Narrow(Box::new(pipeline), log2_scale);
    Ok((engine, params, request, stated))
}

/// Microseconds of a forward transform of N words modulo each prime of the chain in turn, the best of several rounds.
fn transform_us(degree: usize, params: &RnsParams) -> Result<f64, Error> {
    const ROUNDS: usize = 10;
    let (mut plans, mut limbs) = (Vec::new(), Vec::new());
    for &prime in &params.chain {
        plans.push(Ntt50Plan::with_simd(degree, prime, SimdLevel::best())?);
        limbs.push((0..degree as u64).collect::<Vec<_>>());
    }
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for (plan, limb) in plans.iter().zip(&mut limbs) {
            plan.forward(limb);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(1e6 * best / plans.len() as f64)
}

/// Microseconds of the operations of a transform: six for each butterfly of eight lanes, two of them a cycle.
fn transform_bound_us(degree: usize) -> f64 {
    let butterflies = degree as f64 / 2.0 * f64::from(degree.ilog2());
    1e6 * 6.0 * butterflies / 8.0 / 2.0 / speed::clock()
}

/// Evaluates two random tables on a random column, and one on the next column.
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
    let transform_us = transform_us(degree, context.params())?;
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
    let columns = [draw(degree), draw(degree)];
    let mut tables = Vec::new();
    for _ in 0..2 {
        tables.push(Table::new(bits, bits, draw(1 << bits))?);
    }
    let matrices = Arc::new(Matrices::new(MATRIX_BYTES));
    let (mut laps, mut checked, mut wrong) = (Vec::new(), 0, 0);
    for (messages, tables) in columns.iter().zip([&tables[..], &tables[..1]]) {
        let column = column::encrypt(&secret, bits, messages, &mut rng)?;
        let (lap, results) = engine.evaluate(&keys, &embedding, &matrices, &column, tables)?;
        laps.push(lap);
        for (table, result) in tables.iter().zip(&results) {
            let found = column::decrypt(&secret, bits, result)?;
            let right = |message: &u32| table.values()[*message as usize];
            let pairs = found.iter().zip(messages);
            wrong += pairs
                .filter(|(found, message)| **found != right(message))
                .count() as u64;
            checked += degree as u64;
        }
    }
    let first_s = |lap: &Lap| lap.digits_s + lap.tables_s[0];
    Ok(Figures {
        bits,
        threads,
        values: degree,
        degree,
        limbs: stated.limbs,
        prime_bits: stated.prime_bits,
        log2_modulus: stated.log2_modulus,
        log2_failure: stated.log2_failure,
        key_switches: stated.cost.key_switches,
        transforms: stated.cost.transforms,
        key_bytes: (8 * degree * stated.cost.key_limbs) as f64,
        transform_us,
        transform_bound_us: transform_bound_us(degree),
        setup_s,
        keys_s,
        keys_mb: keys.memory() as f64 / 1e6,
        packed_mb: keys.packed_bytes() as f64 / 1e6,
        first_s: first_s(&laps[0]),
        further_s: laps[0].tables_s[1],
        next_s: first_s(&laps[1]),
        checked,
        wrong,
        peak_mib: machine::peak_memory().unwrap_or_default() as f64 / (1 << 20) as f64,
    })
}
