//! Evaluates random tables on batches of random columns, checks every value, and sets what is measured beside the formulas:
//! `cargo run --release -p toroid-rns --example batches -- BITS LOG2_DEGREE KEYS THREADS MEGABYTES BATCHES`.
//!
//! BITS are 1 to 16. The parameters are those that the search finds for 2^16 values; at a smaller degree they protect nothing and are
//! fast to try. KEYS is `fast`, a key for every step of a matrix, or `lean`, two or three a stage. THREADS share the limbs of each operation. So many
//! MEGABYTES of encoded matrices are kept for the next batch. Times are seconds of processors, those of all threads, and of the day.
//!
//! Inputs carry the largest noise that a table bears: Gaussian noise, as large as the formulas allow before a batch fails with more than
//! 2^-128. Each stage's noise is measured against the exact value that it stands for, over all batches. Phases, selectors and the low part's
//! column have noise as in the average case; the formula of the results bounds that of any table. The command fails if any value is wrong.

mod timed;

use std::error::Error;
use std::sync::Arc;

use toroid_ring::simd::SimdLevel;
use toroid_rns::column;
use toroid_rns::complex::Complex;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::EvaluationKeys;
use toroid_rns::evaluator::{Evaluator, lean_key_request, order_primes};
use toroid_rns::formula::Formula;
use toroid_rns::matrix::Matrices;
use toroid_rns::model::{Model, NoLevel, OperationNoise};
use toroid_rns::params::RnsParams;
use toroid_rns::pipeline::Pipeline;
use toroid_rns::search::{Candidate, LOG2_FAILURE, TableNoise, search};
use toroid_rns::slots::{ColumnSlots, LinearSlots, Slots};
use toroid_rns::table::{self, Selected, Table};
use toroid_rns::transform::StepPlan;
use toroid_rns::wide::{self, Apart, Part, WidePipeline, clean_down, raw_selectors};
use toroid_rns::wide_search::{self, WideCandidate};
use toroid_rns::{Basis, Ciphertext, Plaintext, RnsPoly, SecretKey, Threads};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

use timed::{Timed, peak_memory, time};

/// The most phases at which formulas are evaluated, of those that the first column has.
const POINTS: usize = 256;

/// Parameters and pipeline.
enum Kind {
    Narrow(Candidate, Pipeline),
    Wide(WideCandidate, WidePipeline),
}

impl Kind {
    fn new(embedding: &Embedding, bits: u32) -> Option<Kind> {
        let degree = embedding.degree();
        if wide::BITS.contains(&bits) {
            let (found, _) = wide_search::search(1 << 16, bits, bits)?;
            let candidate = WideCandidate { degree, ..found };
            let pipeline = WidePipeline::new(embedding, candidate.shape, candidate.stages);
            return Some(Kind::Wide(candidate, pipeline));
        }
        let (found, _) = search(1 << 16, bits, bits)?;
        let candidate = Candidate { degree, ..found };
        let pipeline = Pipeline::new(embedding, candidate.shape, candidate.stages);
        Some(Kind::Narrow(candidate, pipeline))
    }

    fn table_noise(&self, input: f64) -> Option<TableNoise> {
        match self {
            Kind::Narrow(candidate, _) => candidate.table_noise(input),
            Kind::Wide(candidate, _) => candidate.table_noise(input),
        }
    }

    /// The largest standard deviation of a column's noise, in turns, with which a batch fails with 2^[`LOG2_FAILURE`] at most, and what a table
    /// makes of it.
    fn largest_input(&self) -> Option<(f64, TableNoise)> {
        let bears = |log2: f64| {
            let noise = self.table_noise(log2.exp2())?;
            (noise.log2_failure <= LOG2_FAILURE).then_some((log2.exp2(), noise))
        };
        let (mut low, mut high) = (-50.0, 0.0);
        for _ in 0..30 {
            let middle = f64::midpoint(low, high);
            match bears(middle) {
                Some(_) => low = middle,
                None => high = middle,
            }
        }
        bears(low)
    }
}

/// The noise of a stage over all batches.
struct Stage {
    name: &'static str,
    /// By the formula.
    variance: f64,
    squares: f64,
    count: usize,
    largest: f64,
}

/// All stages, in the order in which they came.
#[derive(Default)]
struct Stages(Vec<Stage>);

impl Stages {
    /// Enters errors of a stage with what the formula says, which it is asked the first time.
    fn enter<E>(
        &mut self,
        name: &'static str,
        errors: impl Iterator<Item = f64>,
        variance: impl FnOnce() -> Result<f64, E>,
    ) -> Result<(), E> {
        let place = match self.0.iter().position(|stage| stage.name == name) {
            Some(place) => place,
            None => {
                self.0.push(Stage {
                    name,
                    variance: variance()?,
                    squares: 0.0,
                    count: 0,
                    largest: 0.0,
                });
                self.0.len() - 1
            }
        };
        let stage = &mut self.0[place];
        for error in errors {
            stage.squares += error * error;
            stage.count += 1;
            stage.largest = stage.largest.max(error.abs());
        }
        Ok(())
    }

    fn print(&self) {
        println!(
            "{:>30} {:>9} {:>9} {:>6} {:>9}",
            "log2 of noise", "measured", "formula", "ratio", "largest"
        );
        for stage in &self.0 {
            let measured = (stage.squares / stage.count as f64).sqrt();
            let formula = stage.variance.sqrt();
            println!(
                "{:>30} {:9.2} {:9.2} {:6.3} {:9.2}",
                stage.name,
                measured.log2(),
                formula.log2(),
                measured / formula,
                stage.largest.log2()
            );
        }
    }
}

/// Variances of the real parts of selectors, at all points.
fn variances(formula: &Formula, selectors: &[<Formula as Slots>::Value]) -> Vec<f64> {
    let of = |selector| formula.real_variances(selector);
    selectors.iter().flat_map(of).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean square of what so many cleanings leave of Gaussian noise of these variances: 3e² of e each.
fn left_of(variances: &[f64], cleanings: u32) -> f64 {
    let power = 1 << cleanings;
    let factor = 3f64.powi(power - 1);
    // E[e^2p] = 1·3·5···(2p - 1) times the variance to the p.
    let moment: f64 = (1..=power).map(|k| f64::from(2 * k - 1)).product();
    let squares = variances.iter().map(|variance| variance.powi(power));
    factor * factor * moment * mean(&squares.collect::<Vec<_>>())
}

/// The phases of half a column, and what they are without noise.
type Phases = (Ciphertext, Vec<f64>);

/// One batch with its secret, to look into each stage.
struct Probe<'a, 'k> {
    embedding: &'a Embedding,
    secret: &'a SecretKey,
    timed: &'a mut Timed<'k>,
    stages: &'a mut Stages,
}

impl Probe<'_, '_> {
    fn slots(&self, value: &Ciphertext) -> Result<Vec<Complex>, Box<dyn Error>> {
        Ok(self.timed.decode(&self.secret.decrypt(value)?))
    }

    /// The phases of both halves of a raised column whose messages have so many bits, and what they are without noise; `variance` is that of the
    /// formula.
    fn phases(
        &mut self,
        name: &'static str,
        raised: Ciphertext,
        to_slots: &[StepPlan],
        (bits, variance): (u32, f64),
    ) -> Result<[Phases; 2], Box<dyn Error>> {
        let steps = f64::from(bits).exp2();
        let coefficients = self.embedding.to_coefficients(&self.slots(&raised)?);
        let exact: Vec<f64> = coefficients
            .iter()
            .map(|x| (x * steps).round() / steps)
            .collect();
        let mut exact = self.embedding.to_slots(&exact);
        let mut value = raised;
        for plan in to_slots {
            value = self.timed.transform(plan, &value)?;
            exact = plan.apply(&exact);
        }
        let (real, imaginary) = table::split(self.timed, &value)?;
        let halves = [
            (real, exact.iter().map(|x| 2.0 * x.re).collect::<Vec<_>>()),
            (imaginary, exact.iter().map(|x| 2.0 * x.im).collect()),
        ];
        for (half, exact) in &halves {
            let found = self.slots(half)?;
            let errors = found.iter().zip(exact).map(|(found, x)| found.re - x);
            self.stages
                .enter(name, errors, || Ok::<_, NoLevel>(variance))?;
        }
        Ok(halves)
    }

    /// Selectors, which are 0 or 1.
    fn selectors(
        &mut self,
        name: &'static str,
        selectors: &[Ciphertext],
        variance: f64,
    ) -> Result<(), Box<dyn Error>> {
        for selector in selectors {
            let found = self.slots(selector)?;
            let errors = found.iter().map(|x| x.re - f64::from(u8::from(x.re > 0.5)));
            self.stages
                .enter(name, errors, || Ok::<_, NoLevel>(variance))?;
        }
        Ok(())
    }

    /// A column of values as fractions of 2^bits.
    fn column(
        &mut self,
        name: &'static str,
        column: &Ciphertext,
        (bits, values): (u32, &[u32]),
        variance: f64,
    ) -> Result<(), Box<dyn Error>> {
        let q = self.secret.context().params().chain[0] as f64;
        let phase = self.secret.decrypt(column)?.poly().to_i128();
        let unit = (-f64::from(bits)).exp2();
        let errors = phase.iter().zip(values).map(|(&x, &value)| {
            let off = x as f64 / q - f64::from(value) * unit;
            off - off.round()
        });
        Ok(self
            .stages
            .enter(name, errors, || Ok::<_, NoLevel>(variance))?)
    }

    fn narrow(
        &mut self,
        (candidate, pipeline): (&Candidate, &Pipeline),
        column: &Ciphertext,
        (bits, input): (u32, f64),
        table: &Table,
    ) -> Result<Ciphertext, Box<dyn Error>> {
        let shape = pipeline.shape();
        let raised = ColumnSlots::raise(self.timed, column, candidate.levels())?;
        let variance = candidate.phase_variance(input);
        let place = (bits, variance);
        let [real, imaginary] = self.phases("phases", raised, pipeline.to_slots(), place)?;
        let mut formula = Formula::new(candidate.noise_by_level());
        let points = &real.1[..POINTS.min(real.1.len())];
        let t = formula.input(self.timed.level(&real.0), points, variance);
        let expected = table::select(&mut formula, &t, shape)?;
        let mut selected = |half: &Ciphertext| -> Result<_, Box<dyn Error>> {
            let selected = table::select(self.timed, half, shape)?;
            match (&selected, &expected) {
                (Selected::One(own), Selected::One(of)) => {
                    self.selectors("selectors", own, mean(&variances(&formula, of)))?;
                }
                (Selected::Two(high, low), Selected::Two(of_high, of_low)) => {
                    self.selectors("high selectors", high, mean(&variances(&formula, of_high)))?;
                    self.selectors("low selectors", low, mean(&variances(&formula, of_low)))?;
                }
                (Selected::Spectrum(powers, low), Selected::Spectrum(of_powers, of_low)) => {
                    // Nothing but this look takes selectors of these powers.
                    let times = self.timed.times.clone();
                    let high = table::selectors(self.timed, powers, usize::MAX)?;
                    self.timed.times = times;
                    let of_high = table::selectors(&mut formula, of_powers, usize::MAX)?;
                    self.selectors(
                        "high selectors",
                        &high,
                        mean(&variances(&formula, &of_high)),
                    )?;
                    self.selectors("low selectors", low, mean(&variances(&formula, of_low)))?;
                }
                // A bit has no selectors.
                _ => {}
            }
            Ok(selected)
        };
        let halves = [selected(&real.0)?, selected(&imaginary.0)?];
        let digits = table::square(self.timed, halves, shape)?;
        Ok(pipeline.look_up(self.timed, &digits, table)?)
    }

    /// A part of wide messages.
    fn part(
        &mut self,
        (candidate, pipeline): (&WideCandidate, &WidePipeline),
        column: &Ciphertext,
        part: Part,
        variance: f64,
    ) -> Result<Apart<Ciphertext>, Box<dyn Error>> {
        let (shape, below) = (pipeline.shape(), candidate.stages);
        let (phases, names) = match part {
            Part::Low => (
                "low phases",
                [
                    ["low late, raw", "low late, cleaned"],
                    ["low early, raw", "low early, cleaned"],
                ],
            ),
            Part::High => (
                "high phases",
                [
                    ["high late, raw", "high late, cleaned"],
                    ["high early, raw", "high early, cleaned"],
                ],
            ),
        };
        let raised = ColumnSlots::raise(self.timed, column, pipeline.top(part))?;
        let pass = shape.pass(part, None);
        let place = (pass.digits.bits(), variance);
        let halves = self.phases(phases, raised, pipeline.to_slots(), place)?;
        let mut formula = Formula::new(candidate.noise_by_level());
        let points = &halves[0].1[..POINTS.min(halves[0].1.len())];
        let t = formula.input(self.timed.level(&halves[0].0), points, variance);
        let mut expected = raw_selectors(&mut formula, &t, &pass, below)?;
        let mut made = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        for (made, (half, _)) in made.iter_mut().zip(&halves) {
            *made = raw_selectors(self.timed, half, &pass, below)?;
        }
        for (digit, (cleanings, level)) in pass.uses.into_iter().enumerate() {
            let [raw, cleaned] = names[digit];
            let of = &mut expected[digit];
            let before = variances(&formula, of);
            clean_down(&mut formula, of, cleanings, below + level)?;
            let after = mean(&variances(&formula, of)) + left_of(&before, cleanings);
            for half in &mut made {
                self.selectors(raw, &half[digit], mean(&before))?;
                clean_down(self.timed, &mut half[digit], cleanings, below + level)?;
                self.selectors(cleaned, &half[digit], after)?;
            }
        }
        Ok(Apart::new(made))
    }

    fn wide(
        &mut self,
        (candidate, pipeline): (&WideCandidate, &WidePipeline),
        column: &Ciphertext,
        (messages, input): (&[u32], f64),
        table: &Table,
    ) -> Result<Ciphertext, Box<dyn Error>> {
        let shape = pipeline.shape();
        let noise = candidate.noise(input, 0.0)?;
        let own = (candidate, pipeline);
        let above = self
            .timed
            .affine(column, 1 << shape.high.bits(), Complex::ZERO)?;
        let low = self.part(own, &above, Part::Low, noise.low_phases)?;
        let taken = pipeline.column_of(self.timed, &low, Part::Low)?;
        let mask = (1 << shape.low.bits()) - 1;
        let values: Vec<u32> = messages.iter().map(|message| message & mask).collect();
        let of_low = (shape.bits(), values.as_slice());
        self.column("low part's column", &taken, of_low, noise.low_column)?;
        let rest = self.timed.sub(column, &taken)?;
        let high = self.part(own, &rest, Part::High, noise.high_phases)?;
        let digits = pipeline.pair(self.timed, &high, &low)?;
        Ok(pipeline.look_up(self.timed, &digits, table)?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bits, log2_degree, keys, threads, megabytes, batches] = arguments.as_slice() else {
        return Err("BITS LOG2_DEGREE KEYS THREADS MEGABYTES BATCHES".into());
    };
    let bits: u32 = bits.parse()?;
    let embedding = Embedding::new(1usize << log2_degree.parse::<u32>()?);
    let degree = embedding.degree();
    let threads: usize = threads.parse()?;
    let batches: usize = batches.parse()?;
    let kept = Arc::new(Matrices::new(megabytes.parse::<usize>()? * 1_000_000));
    let kind = Kind::new(&embedding, bits).ok_or("no parameters for this many bits")?;
    let (input, table_noise) = kind
        .largest_input()
        .ok_or("no noise is small enough for this degree")?;
    let is_lean = match keys.as_str() {
        "fast" => false,
        "lean" => true,
        other => return Err(format!("keys are fast or lean, not {other}").into()),
    };
    let (sizes, scales, request): (_, Vec<u32>, _) = match &kind {
        Kind::Narrow(candidate, pipeline) => (
            candidate.sizes(),
            (0..=candidate.levels())
                .map(|level| candidate.log2_scale_at(level))
                .collect(),
            match is_lean {
                true => lean_key_request(pipeline),
                false => pipeline.key_request(),
            },
        ),
        Kind::Wide(candidate, pipeline) => (
            candidate.sizes(),
            (0..=candidate.levels())
                .map(|level| candidate.log2_scale_at(level))
                .collect(),
            match is_lean {
                true => pipeline.lean_key_request(),
                false => pipeline.key_request(),
            },
        ),
    };
    let mut params = RnsParams::search(&sizes)?;
    order_primes(&mut params, |level| scales[level].into());
    let log2_scale = scales.last().copied().unwrap_or_default().into();
    let sharing = match threads {
        1 => Threads::One,
        _ => Threads::Pool,
    };
    let context = Context::with(params, SimdLevel::best(), sharing)?;
    let q = context.params().chain[0] as f64;
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
    println!(
        "inputs have noise of 2^{:.2} turns, with which a batch fails with 2^{:.1}",
        input.log2(),
        table_noise.log2_failure
    );
    let mut stages = Stages::default();
    let mut all_wrong = 0;
    for batch in 1..=batches {
        let mut draw = |count: usize| -> Vec<u32> {
            (0..count)
                .map(|_| (rng.next_u64() as u32) >> (32 - bits))
                .collect()
        };
        let messages = draw(degree);
        let table = Table::new(bits, bits, draw(1 << bits))?;
        let mut normal = Model::new(OperationNoise::default(), rng.next_u64());
        let noise: Vec<i64> = (0..degree)
            .map(|_| (normal.normal() * input * q).round() as i64)
            .collect();
        let noise = RnsPoly::from_i64(&context, Basis::chain(1), &noise)?;
        let mut column = column::encrypt(&secret, bits, &messages, &mut rng)?;
        column.add_plain(&Plaintext::new(noise, q))?;
        let evaluator = Evaluator::new(&keys, &embedding, log2_scale);
        let mut timed = Timed::new(evaluator.with_matrices(Arc::clone(&kept)));
        let mut probe = Probe {
            embedding: &embedding,
            secret: &secret,
            timed: &mut timed,
            stages: &mut stages,
        };
        probe.column("inputs", &column, (bits, &messages), input * input)?;
        let out = pool.install(|| match &kind {
            Kind::Narrow(candidate, pipeline) => probe
                .narrow((candidate, pipeline), &column, (bits, input), &table)
                .map_err(|error| error.to_string()),
            Kind::Wide(candidate, pipeline) => probe
                .wide((candidate, pipeline), &column, (&messages, input), &table)
                .map_err(|error| error.to_string()),
        })?;
        let right: Vec<u32> = messages
            .iter()
            .map(|&message| table.values()[message as usize])
            .collect();
        let variance = table_noise.deviation.powi(2);
        probe.column("results, at most", &out, (bits, &right), variance)?;
        let found = column::decrypt(&secret, bits, &out)?;
        let wrong = found.iter().zip(&right).filter(|(x, y)| x != y).count();
        all_wrong += wrong;
        let total = timed.times.values().fold((0.0, 0.0), |sum, (_, times)| {
            (sum.0 + times.0, sum.1 + times.1)
        });
        println!(
            "batch {batch}: {:.2} s, {:.2} s of processors, {wrong} wrong; {} MB of matrices kept, {:?} MB at most in all",
            total.0,
            total.1,
            kept.bytes() / 1_000_000,
            peak_memory()
        );
        if batch == batches {
            for (what, (count, (day, processors))) in &timed.times {
                println!("{what:>14}: {count:4} in {day:.2} s, {processors:.2} s of processors");
            }
        }
    }
    stages.print();
    println!("{all_wrong} of {} values wrong", batches * degree);
    match all_wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} values are wrong").into()),
    }
}
