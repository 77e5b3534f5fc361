//! Times tables on a whole column, one thread: `cargo run --release -p toroid-rns --example table -- BITS [LOG2_DEGREE [where]]`, for 1 to 16
//! bits; with `where` in the rows alone that another encrypted column has 1 for, from 9 bits on.
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
use toroid_rns::wide_search::{self, RowMask, WideCandidate};
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
    /// Bits of the rows that count, and their encryption.
    kept: Vec<u32>,
    of_kept: Ciphertext,
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
        let mut draw = |count: usize, bits: u32| -> Vec<u32> {
            (0..count)
                .map(|_| (rng.next_u64() as u32) >> (32 - bits))
                .collect()
        };
        let messages = draw(embedding.degree(), bits);
        let kept = draw(embedding.degree(), 1);
        let tables = [
            Table::new(bits, bits, draw(1 << bits, bits))?,
            Table::new(bits, bits, draw(1 << bits, bits))?,
        ];
        let column = column::encrypt(&secret, bits, &messages, &mut rng)?;
        let of_kept = column::encrypt(&secret, 1, &kept, &mut rng)?;
        Ok(Batch {
            secret,
            keys,
            embedding,
            bits,
            log2_scale: top.into(),
            messages,
            column,
            kept,
            of_kept,
            tables,
        })
    }

    /// The standard deviation of a result's noise, in turns.
    fn deviation(&self, out: &Ciphertext) -> Result<f64, RnsError> {
        let phase = self.secret.decrypt(out)?.poly().to_i128();
        let q = self.secret.context().params().chain[0] as f64;
        let steps = f64::from(self.bits).exp2();
        let off = phase.iter().map(|&x| {
            let steps_of = x as f64 / q * steps;
            (steps_of - steps_of.round()) / steps
        });
        Ok((off.map(|off| off * off).sum::<f64>() / phase.len() as f64).sqrt())
    }

    /// Times the digits of the column, and each table, in all rows or in those alone that count.
    fn run<'a, D>(
        &'a self,
        digits: impl FnOnce(&mut Timed<'a>, &Ciphertext) -> Result<D, RnsError>,
        look_up: impl Fn(&mut Timed<'a>, &D, &Table) -> Result<Ciphertext, RnsError>,
        to_some_rows: bool,
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
            let out = out?;
            let found = column::decrypt(&self.secret, self.bits, &out)?;
            let rows = found.iter().zip(&self.messages).zip(&self.kept);
            let wrong = rows
                .filter(|((found, message), kept)| {
                    let value = table.values()[**message as usize];
                    **found != if to_some_rows { **kept * value } else { value }
                })
                .count();
            println!(
                "noise: deviation of 2^{:.2} turns",
                self.deviation(&out)?.log2()
            );
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
    let to_some_rows = match arguments.next().as_deref() {
        None => false,
        Some("where") => true,
        Some(other) => return Err(format!("{other}; expected where").into()),
    };
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
        if to_some_rows {
            let input = RnsParams::SIGMA / f64::from(candidate.first_bits).exp2();
            let stated = candidate.table_noise_masked(input, RowMask::Encrypted(input));
            println!("mask: {:?}; {stated:?}", candidate.mask_cost());
        }
        return batch.run(
            |timed, column| match to_some_rows {
                true => pipeline
                    .digits_where(timed, column, &batch.of_kept)?
                    .ok_or_else(|| RnsError::Params("no digit has a level for a mask".to_owned())),
                false => pipeline.digits(timed, column),
            },
            |timed, digits, table| pipeline.look_up(timed, digits, table),
            to_some_rows,
        );
    }
    if to_some_rows {
        return Err("encrypted masks are for 9 bits and more".into());
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
        false,
    )
}
