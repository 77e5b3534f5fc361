//! Times tables on a whole column, one thread: `cargo run --release -p toroid-rns --example table -- BITS [LOG2_DEGREE]`, for 1 to 16
//! bits.
//!
//! The parameters are those that the search finds; for more than 8 bits those for 2^16 values, which protect nothing at a smaller degree. Keys are the lean ones, generated on all cores; tables are evaluated on one. Every value
//! is checked.

mod timed;

use std::error::Error;

use toroid_rns::column;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::{EvaluationKeys, KeyRequest};
use toroid_rns::evaluator::{Evaluator, lean_key_request, order_primes};
use toroid_rns::params::RnsParams;
use toroid_rns::pipeline::Pipeline;
use toroid_rns::search::search;
use toroid_rns::table::Table;
use toroid_rns::wide::{self, WidePipeline};
use toroid_rns::wide_search::{self, WideCandidate};
use toroid_rns::{Ciphertext, RnsError, SecretKey, Shape};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

use timed::{Timed, peak_memory, time};

/// A batch of one column: its messages and two tables.
struct Batch {
    secret: SecretKey,
    keys: EvaluationKeys,
    embedding: Embedding,
    bits: u32,
    log2_scale: f64,
    messages: Vec<u32>,
    column: Ciphertext,
    tables: [Table; 2],
}

impl Batch {
    fn new(
        embedding: Embedding,
        bits: u32,
        sizes: &Shape,
        log2_scale: impl Fn(usize) -> u32,
        request: &KeyRequest,
    ) -> Result<Batch, Box<dyn Error>> {
        let mut params = RnsParams::search(sizes)?;
        order_primes(&mut params, |level| log2_scale(level).into());
        let top = log2_scale(params.chain.len() - 1);
        let context = Context::new(params)?;
        let mut rng = Csprng::from_os()?;
        let secret = SecretKey::generate(&context, &mut rng);
        let (keys, times) =
            time(|| EvaluationKeys::generate(&secret, request, &mut rng, &Progress::default()));
        let keys = keys?;
        println!(
            "keys: {:.1} s, {:.1} s of processors; {} MB of memory, {} MB packed",
            times.0,
            times.1,
            keys.memory() / 1_000_000,
            keys.packed_bytes() / 1_000_000
        );
        let mut draw = |count: usize| -> Vec<u32> {
            (0..count)
                .map(|_| (rng.next_u64() as u32) >> (32 - bits))
                .collect()
        };
        let messages = draw(embedding.degree());
        let tables = [
            Table::new(bits, bits, draw(1 << bits))?,
            Table::new(bits, bits, draw(1 << bits))?,
        ];
        let column = column::encrypt(&secret, bits, &messages, &mut rng)?;
        Ok(Batch {
            secret,
            keys,
            embedding,
            bits,
            log2_scale: top.into(),
            messages,
            column,
            tables,
        })
    }

    /// Times the digits of the column, and each table.
    fn run<'a, D>(
        &'a self,
        digits: impl FnOnce(&mut Timed<'a>, &Ciphertext) -> Result<D, RnsError>,
        look_up: impl Fn(&mut Timed<'a>, &D, &Table) -> Result<Ciphertext, RnsError>,
    ) -> Result<(), Box<dyn Error>> {
        let degree = self.embedding.degree();
        let mut timed = Timed::new(Evaluator::new(&self.keys, &self.embedding, self.log2_scale));
        let (digits, shared) = time(|| digits(&mut timed, &self.column));
        let digits = digits?;
        println!("digits: {:.2} s, {:.2} s of processors", shared.0, shared.1);
        for (what, (count, (day, processors))) in &timed.times {
            println!("{what:>14}: {count:4} in {day:.2} s, {processors:.2} s of processors");
        }
        for (number, table) in self.tables.iter().enumerate() {
            timed.times.clear();
            let (out, own) = time(|| look_up(&mut timed, &digits, table));
            let found = column::decrypt(&self.secret, self.bits, &out?)?;
            let pairs = found.iter().zip(&self.messages);
            let wrong = pairs
                .filter(|(found, message)| **found != table.values()[**message as usize])
                .count();
            let total = |own: f64, shared: f64| if number == 0 { shared + own } else { own };
            let processors = total(own.1, shared.1);
            println!(
                "table {}: {:.2} s, {processors:.2} s of processors, {:.4} ms a value, {wrong} of {degree} wrong",
                number + 1,
                total(own.0, shared.0),
                processors * 1e3 / degree as f64,
            );
            for (what, (count, (day, processors))) in &timed.times {
                println!("{what:>14}: {count:4} in {day:.2} s, {processors:.2} s of processors");
            }
        }
        println!("{:?} MB at most in all", peak_memory());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bits: u32 = arguments.next().unwrap_or_else(|| "4".to_owned()).parse()?;
    let log2_degree: u32 = arguments
        .next()
        .unwrap_or_else(|| "16".to_owned())
        .parse()?;
    let degree = 1usize << log2_degree;
    let embedding = Embedding::new(degree);
    let none = "no parameters for this many bits at this degree";
    if wide::BITS.contains(&bits) {
        let (candidate, judgement) = wide_search::search(1 << 16, bits, bits).ok_or(none)?;
        let candidate = WideCandidate {
            degree,
            ..candidate
        };
        println!("{candidate:?}\n{judgement:?}");
        let pipeline = WidePipeline::new(&embedding, candidate.shape, candidate.stages);
        let (sizes, request) = (candidate.sizes(), pipeline.lean_key_request());
        let scale = |level| candidate.log2_scale_at(level);
        let batch = Batch::new(embedding, bits, &sizes, scale, &request)?;
        return batch.run(
            |timed, column| pipeline.digits(timed, column),
            |timed, digits, table| pipeline.look_up(timed, digits, table),
        );
    }
    let (candidate, judgement) = search(degree, bits, bits).ok_or(none)?;
    println!("{candidate:?}\n{judgement:?}");
    let pipeline = Pipeline::new(&embedding, candidate.shape, candidate.stages);
    let (sizes, request) = (candidate.sizes(), lean_key_request(&pipeline));
    let scale = |level| candidate.log2_scale_at(level);
    let batch = Batch::new(embedding, bits, &sizes, scale, &request)?;
    batch.run(
        |timed, column| {
            let raised = timed.time("mod-raise", |inner| inner.raise(column))?;
            pipeline.digits(timed, &raised)
        },
        |timed, digits, table| pipeline.look_up(timed, digits, table),
    )
}
