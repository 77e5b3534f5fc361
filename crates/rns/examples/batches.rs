//! Times batches of one pipeline:
//! `cargo run --release -p toroid-rns --example batches -- BITS LOG2_DEGREE KEYS THREADS MEGABYTES`.
//!
//! KEYS is `fast`, a key for every step of a matrix, or `lean`, two or three a stage. THREADS share the limbs of each operation. So many
//! MEGABYTES of encoded matrices are kept for the next batch. Times are seconds of processors, those of all threads, and of the day.

mod timed;

use std::error::Error;
use std::sync::Arc;

use toroid_ring::simd::SimdLevel;
use toroid_rns::column;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::EvaluationKeys;
use toroid_rns::evaluator::{Evaluator, lean_key_request, order_primes};
use toroid_rns::matrix::Matrices;
use toroid_rns::params::RnsParams;
use toroid_rns::pipeline::Pipeline;
use toroid_rns::search::search;
use toroid_rns::table::Table;
use toroid_rns::{SecretKey, Threads};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

use timed::{Timed, peak_memory, time};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bits, log2_degree, kind, threads, megabytes] = arguments.as_slice() else {
        return Err("BITS LOG2_DEGREE KEYS THREADS MEGABYTES".into());
    };
    let bits: u32 = bits.parse()?;
    let degree = 1usize << log2_degree.parse::<u32>()?;
    let threads: usize = threads.parse()?;
    let kept = Arc::new(Matrices::new(megabytes.parse::<usize>()? * 1_000_000));
    let (candidate, _) =
        search(degree, bits, bits).ok_or("no parameters for this many bits at this degree")?;
    let embedding = Embedding::new(degree);
    let pipeline = Pipeline::new(&embedding, candidate.shape, candidate.stages);
    let request = match kind.as_str() {
        "fast" => pipeline.key_request(),
        "lean" => lean_key_request(&pipeline),
        other => return Err(format!("keys are fast or lean, not {other}").into()),
    };
    let mut params = RnsParams::search(&candidate.sizes())?;
    order_primes(&mut params, |level| candidate.log2_scale_at(level).into());
    let log2_scale = candidate.log2_scale_at(candidate.levels()).into();
    let sharing = match threads {
        1 => Threads::One,
        _ => Threads::Pool,
    };
    let context = Context::with(params, SimdLevel::best(), sharing)?;
    let mut rng = Csprng::from_os()?;
    let secret = SecretKey::generate(&context, &mut rng);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    let progress = Progress::default();
    let (keys, times) =
        time(|| pool.install(|| EvaluationKeys::generate(&secret, &request, &mut rng, &progress)));
    let keys = keys?;
    println!(
        "keys: {:.1} s, {:.1} s of processors; {} MB of memory, {} MB packed",
        times.0,
        times.1,
        keys.memory() / 1_000_000,
        keys.packed_bytes() / 1_000_000
    );
    for batch in 1..=2 {
        let messages: Vec<u32> = (0..degree)
            .map(|_| (rng.next_u64() as u32) >> (32 - bits))
            .collect();
        let column = column::encrypt(&secret, bits, &messages, &mut rng)?;
        let values = (0..1 << bits).map(|_| (rng.next_u64() as u32) >> (32 - bits));
        let table = Table::new(bits, bits, values.collect())?;
        let evaluator = Evaluator::new(&keys, &embedding, log2_scale);
        let mut timed = Timed::new(evaluator.with_matrices(Arc::clone(&kept)));
        let (out, times) = time(|| {
            pool.install(|| {
                let raised = timed.time("mod-raise", |inner| inner.raise(&column))?;
                let digits = pipeline.digits(&mut timed, &raised)?;
                pipeline.look_up(&mut timed, &digits, &table)
            })
        });
        let found = column::decrypt(&secret, bits, &out?)?;
        let pairs = found.iter().zip(&messages);
        let wrong = pairs.filter(|(found, message)| **found != table.values()[**message as usize]);
        println!(
            "batch {batch}: {:.2} s, {:.2} s of processors, {} wrong; {} MB of matrices kept, {:?} MB at most in all",
            times.0,
            times.1,
            wrong.count(),
            kept.bytes() / 1_000_000,
            peak_memory()
        );
        for (what, (count, (day, processors))) in &timed.times {
            println!("{what:>14}: {count:4} in {day:.2} s, {processors:.2} s of processors");
        }
    }
    Ok(())
}
