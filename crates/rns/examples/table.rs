//! Times a table on a whole column, one thread: `cargo run --release -p toroid-rns --example table -- BITS [LOG2_DEGREE]`.
//!
//! The parameters are those that the search finds. Keys are generated on all cores; the table is evaluated on one.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use toroid_rns::column;
use toroid_rns::complex::Complex;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::EvaluationKeys;
use toroid_rns::evaluator::{Evaluator, order_primes};
use toroid_rns::params::RnsParams;
use toroid_rns::pipeline::Pipeline;
use toroid_rns::search::search;
use toroid_rns::slots::{LinearSlots, Slots};
use toroid_rns::table::Table;
use toroid_rns::transform::StepPlan;
use toroid_rns::{Ciphertext, RnsError, SecretKey};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

/// An evaluator that adds up the time of each kind of operation.
struct Timed<'a> {
    inner: Evaluator<'a>,
    times: BTreeMap<&'static str, (usize, Duration)>,
}

impl<'a> Timed<'a> {
    fn time<R>(&mut self, what: &'static str, work: impl FnOnce(&mut Evaluator<'a>) -> R) -> R {
        let start = Instant::now();
        let result = work(&mut self.inner);
        let (count, time) = self.times.entry(what).or_default();
        *count += 1;
        *time += start.elapsed();
        result
    }
}

impl Slots for Timed<'_> {
    type Value = Ciphertext;
    type Error = RnsError;

    fn level(&self, value: &Ciphertext) -> usize {
        self.inner.level(value)
    }

    fn add(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.add(a, b))
    }

    fn sub(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.sub(a, b))
    }

    fn affine(
        &mut self,
        a: &Ciphertext,
        factor: i32,
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.affine(a, factor, constant))
    }

    fn products(&mut self, pairs: &[(&Ciphertext, &Ciphertext)]) -> Result<Ciphertext, RnsError> {
        self.time("products", |inner| inner.products(pairs))
    }

    fn combine(
        &mut self,
        terms: &[(&Ciphertext, Complex)],
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        self.time("combinations", |inner| inner.combine(terms, constant))
    }

    fn conjugate(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("conjugations", |inner| inner.conjugate(a))
    }

    fn times_i(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.times_i(a))
    }
}

impl LinearSlots for Timed<'_> {
    fn transform(&mut self, plan: &StepPlan, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("matrices", |inner| inner.transform(plan, a))
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
    let (candidate, judgement) =
        search(degree, bits, bits).ok_or("no parameters for this many bits at this degree")?;
    println!("{candidate:?}\n{judgement:?}");

    let embedding = Embedding::new(degree);
    let pipeline = Pipeline::new(&embedding, candidate.shape, candidate.stages);
    let mut params = RnsParams::search(&candidate.sizes())?;
    let log2_scale = f64::from(candidate.log2_scale);
    order_primes(&mut params, log2_scale);
    let context = Context::new(params)?;
    let mut rng = Csprng::from_os()?;
    let secret = SecretKey::generate(&context, &mut rng);
    let start = Instant::now();
    let keys = EvaluationKeys::generate(
        &secret,
        &pipeline.key_request(),
        &mut rng,
        &Progress::default(),
    )?;
    let megabytes = keys.memory() as f64 / 1e6;
    println!(
        "keys: {:.1} s, {megabytes:.0} MB of memory",
        start.elapsed().as_secs_f64()
    );

    let messages: Vec<u32> = (0..degree)
        .map(|_| (rng.next_u64() as u32) >> (32 - bits))
        .collect();
    let column = column::encrypt(&secret, bits, &messages, &mut rng)?;
    let tables = [0, 1].map(|_| {
        let values = (0..1 << bits).map(|_| (rng.next_u64() as u32) >> (32 - bits));
        Table::new(bits, bits, values.collect())
    });

    let mut timed = Timed {
        inner: Evaluator::new(&keys, &embedding, log2_scale),
        times: BTreeMap::new(),
    };
    let start = Instant::now();
    let raised = timed.time("mod-raise", |inner| inner.raise(&column))?;
    let digits = pipeline.digits(&mut timed, &raised)?;
    let shared = start.elapsed();
    for (number, table) in tables.into_iter().enumerate() {
        let table = table?;
        let start = Instant::now();
        let out = pipeline.look_up(&mut timed, &digits, &table)?;
        let own = start.elapsed();
        let found = column::decrypt(&secret, bits, &out)?;
        let right = |(found, message): (&u32, &u32)| *found == table.values()[*message as usize];
        let wrong = found
            .iter()
            .zip(&messages)
            .filter(|pair| !right(*pair))
            .count();
        let total = if number == 0 { shared + own } else { own };
        println!(
            "table {}: {:.2} s, {:.4} ms a value, {wrong} of {degree} wrong",
            number + 1,
            total.as_secs_f64(),
            total.as_secs_f64() * 1e3 / degree as f64,
        );
    }
    for (what, (count, time)) in &timed.times {
        println!("{what:>14}: {count:4} in {:.2} s", time.as_secs_f64());
    }
    Ok(())
}
