//! `toroid gpu bench`: bootstraps on GPUs, timed and checked beside this machine's processor.
//!
//! Keys are made on the spot. Exact results are compared with the processor's bit by bit; those by f64 are decrypted, and their noise is
//! compared with the formula.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail, ensure};
use serde::Serialize;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, BackendError, BootstrapTask, LoadedKey};
use toroid_engine::{CancelToken, Requester};
use toroid_gpu::{Cost, DeviceInfo, DriverInfo, GpuBackend, GpuOptions};
use toroid_isa::KeyKind;
use toroid_task::Progress;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::gates;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::Torus32;
use toroid_tfhe::noise::bootstrap_output_variance;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

use super::page::{self, Page};
use super::{NOT_A_DEVICE, version, with_help};
use crate::commands::parse_param_set;
use crate::output::{Output, usage};
use crate::progress::Steps;
use crate::{interrupt, machine};

/// Parameter sets that are measured if none are named, with the bars for them by fast arithmetic.
const SETS: [&str; 5] = ["paper", "message7", "message4", "gate", "message16"];
/// What bars are for, and no kernel does.
const COLUMN_ENGINE: &str =
    "column engine, a pass over 65,536 values of 8 bits: columns of rings are the processor's";

/// Arguments of `toroid gpu bench`.
#[derive(clap::Args)]
pub struct Args {
    /// Parameter sets; paper, message7, message4, gate and message16 if not given.
    #[arg(long, value_name = "SET,...", value_delimiter = ',', value_parser = parse_param_set)]
    params: Vec<&'static ParamSet>,
    /// fft (64-bit floating point) or ntt (exact); both if not given.
    #[arg(long, value_name = "fft|ntt")]
    arithmetic: Option<ArithmeticKind>,
    /// How many bootstraps go at once; 1, 8, 64 and what fills a pass if not given.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    batches: Vec<u32>,
    /// Runs of each size, of which the best and the median count.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How often the same sample is bootstrapped, alone and in batches; all results must be the same bytes.
    #[arg(long, default_value_t = 1000)]
    repetitions: u32,
    /// Steps in all of the chains of bootstraps that are compared with the processor's: ntt only.
    #[arg(long, default_value_t = 100_000)]
    steps: u32,
    /// Samples whose noise is measured: fft only.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Few runs, repetitions, steps and samples: whether it works, in seconds.
    #[arg(long, conflicts_with_all = ["runs", "repetitions", "steps", "samples"])]
    quick: bool,
    /// Seed of the keys and samples, which protect nothing then; random ones if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Write gpu.json and data/gpu.json, from which the page gpu.md is made, to this folder.
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,
    /// Replace what was written there before.
    #[arg(long, requires = "write")]
    force: bool,
}

/// How much is done.
#[derive(Clone, Copy)]
struct Amounts {
    runs: usize,
    repetitions: usize,
    steps: usize,
    samples: usize,
}

impl Args {
    fn amounts(&self) -> Amounts {
        if self.quick {
            return Amounts {
                runs: 2,
                repetitions: 4,
                steps: 200,
                samples: 8,
            };
        }
        Amounts {
            runs: self.runs as usize,
            repetitions: self.repetitions as usize,
            steps: self.steps as usize,
            samples: self.samples as usize,
        }
    }

    fn sets(&self) -> Vec<&'static ParamSet> {
        if self.params.is_empty() {
            return SETS.into_iter().filter_map(ParamSet::by_name).collect();
        }
        self.params.clone()
    }

    fn arithmetics(&self) -> Vec<ArithmeticKind> {
        let both = [ArithmeticKind::Fft, ArithmeticKind::Ntt];
        self.arithmetic.map_or(both.to_vec(), |only| vec![only])
    }

    fn sizes(&self, gpu: &GpuBackend, params: &ParamSet) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.batches.iter().map(|size| *size as usize).collect();
        if sizes.is_empty() {
            sizes = vec![8, 64, gpu.batch_hint(params)];
        }
        // The latency is that of one.
        sizes.push(1);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn rng(&self) -> anyhow::Result<Csprng> {
        Ok(match self.seed {
            Some(seed) => {
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&seed.to_le_bytes());
                Csprng::from_seed(bytes)
            }
            None => Csprng::from_os()?,
        })
    }
}

/// Times of one batch size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Batch {
    /// Bootstraps at once.
    pub size: usize,
    /// Of all of them, the best run and the median one.
    pub best_ms: f64,
    pub median_ms: f64,
}

impl Batch {
    /// Of one of them, in the best run.
    pub fn each_ms(&self) -> f64 {
        self.best_ms / self.size as f64
    }
}

/// Noise of fast arithmetic.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Noise {
    pub samples: usize,
    /// log2 of the standard deviation as a fraction of the torus, measured and by the formula.
    pub log2_measured: f64,
    pub log2_formula: f64,
    /// Of the variances.
    pub ratio: f64,
    /// By how much the ratio may differ from 1, 99.9 of 100 times.
    pub interval: f64,
}

/// What was measured and checked of a set in one arithmetic.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub set: &'static str,
    pub arithmetic: String,
    /// Making both keys and loading them, here and there.
    pub keys_s: f64,
    pub key_bytes: u64,
    pub gpu: Vec<Batch>,
    pub cpu: Vec<Batch>,
    /// Of one bootstrap, by the model of an H200.
    pub model_ms: f64,
    /// Of the device's f64 rate and bandwidth, in the best batch.
    pub arithmetic_share: Option<f64>,
    pub bandwidth_share: Option<f64>,
    /// Results that were compared with the processor's, or decrypted, and those that were wrong.
    pub checked: usize,
    pub wrong: usize,
    /// Results of the same sample, and those that were not the same bytes.
    pub repeated: usize,
    pub different: usize,
    /// Steps of chains of bootstraps, whose last results were the processor's.
    pub chain_steps: usize,
    pub noise: Option<Noise>,
}

impl Figures {
    pub fn latency_ms(&self) -> Option<f64> {
        self.gpu.first().map(|batch| batch.best_ms)
    }

    pub fn amortized_ms(&self) -> Option<f64> {
        self.gpu.iter().map(Batch::each_ms).reduce(f64::min)
    }

    fn is_right(&self) -> bool {
        self.wrong == 0 && self.different == 0
    }
}

/// A back end with both keys.
struct Side<'a> {
    backend: &'a dyn Backend,
    keys: [Arc<dyn LoadedKey>; 2],
}

impl Side<'_> {
    fn bootstrap(
        &self,
        params: &ParamSet,
        vector: &[u8],
        samples: &[Vec<u8>],
        cancel: &CancelToken,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let vectors = [vector];
        let tasks: Vec<BootstrapTask<'_>> = samples
            .iter()
            .map(|sample| BootstrapTask {
                test_vectors: &vectors,
                sample,
                input_bits: params.message_bits,
            })
            .collect();
        let mut results = vec![0; samples.len() * params.lwe_bytes()];
        let [bootstrapping, switching] = &self.keys;
        self.backend.bootstrap_batch(
            params,
            &**bootstrapping,
            &**switching,
            &tasks,
            &mut results,
            Requester::from(cancel),
        )?;
        let results = results.chunks(params.lwe_bytes());
        Ok(results.map(<[u8]>::to_vec).collect())
    }

    /// Times batches of the first samples.
    fn time(&self, run: &Run<'_>, samples: &[Vec<u8>], runs: usize) -> Result<Batch, BackendError> {
        let mut times = Vec::new();
        // The first one also loads and warms up.
        for each in 0..=runs {
            let started = Instant::now();
            self.bootstrap(run.params, &run.vector, samples, run.cancel())?;
            if each > 0 {
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Batch {
            size: samples.len(),
            best_ms: times.first().copied().unwrap_or_default(),
            median_ms: times.get(runs / 2).copied().unwrap_or_default(),
        })
    }
}

/// A set while it is measured: messages, their samples, and a function of them.
struct Run<'a> {
    params: &'static ParamSet,
    client: ClientKey,
    vector: Vec<u8>,
    /// With the torus position of each result.
    samples: Vec<(Vec<u8>, f64)>,
    progress: &'a Progress,
}

impl Run<'_> {
    fn cancel(&self) -> &CancelToken {
        self.progress.cancel_token()
    }

    fn samples(&self, count: usize) -> Vec<Vec<u8>> {
        let samples = self.samples.iter().cycle().take(count);
        samples.map(|(sample, _)| sample.clone()).collect()
    }

    /// The distance of a result from where it should be, on the torus.
    fn error(&self, result: &[u8], expected: f64) -> Result<f64, TfheError> {
        let distance = self.client.phase(result)? - expected;
        Ok(distance - distance.round())
    }
}

/// Both keys, made once and given to both back ends as they come.
fn load<'a>(
    client: &ClientKey,
    backends: [&'a dyn Backend; 2],
    rng: &mut Csprng,
    progress: &Progress,
) -> anyhow::Result<[Side<'a>; 2]> {
    let params = client.params();
    let mut keys = [Vec::new(), Vec::new()];
    for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
        let form = KeyForm::Seeded;
        let mut sinks = Vec::new();
        for backend in backends {
            sinks.push(backend.begin_key(params, kind, form)?);
        }
        let mut failure = None;
        let take = &mut |piece: &[u8]| {
            for sink in &mut sinks {
                if let Err(error) = sink.write(piece) {
                    failure = Some(error);
                    return Err(TfheError::Cancelled);
                }
            }
            Ok(())
        };
        let made = if kind == KeyKind::Bootstrapping {
            client.bootstrapping_key(form, rng, progress, take)
        } else {
            client.key_switching_key(form, rng, progress, take)
        };
        if let Some(error) = failure {
            return Err(error.into());
        }
        made?;
        for (sink, keys) in sinks.into_iter().zip(&mut keys) {
            keys.push(sink.finish()?);
        }
    }
    let mut sides = Vec::new();
    for (backend, keys) in backends.into_iter().zip(keys) {
        let keys = keys.try_into().map_err(|_| anyhow!("not two keys"))?;
        sides.push(Side { backend, keys });
    }
    sides.try_into().map_err(|_| anyhow!("not two back ends"))
}

/// Samples of random messages, and the test vector of a function of them.
fn prepare<'a>(
    params: &'static ParamSet,
    count: usize,
    rng: &mut Csprng,
    progress: &'a Progress,
) -> anyhow::Result<Run<'a>> {
    let client = ClientKey::generate(params, rng);
    let mut samples = Vec::with_capacity(count);
    let vector = if params.message_bits == 0 {
        for _ in 0..count {
            let bit = rng.next_u64() & 1 == 1;
            let position = if bit { 0.125 } else { -0.125 };
            samples.push((client.encrypt_bit_sample(bit, rng)?, position));
        }
        bytemuck::cast_slice(&gates::test_vector::<Torus32>(params)).to_vec()
    } else {
        let encoding = Encoding::new(params.message_bits, false)?;
        let messages = encoding.messages();
        let function = |message: i64| (3 * message * message + 7 * message + 1) % messages.end;
        for _ in 0..count {
            let message = (rng.next_u64() % messages.end.cast_unsigned()).cast_signed();
            let position = function(message) as f64 / (2 * messages.end) as f64;
            samples.push((client.encrypt_sample(message, encoding, rng)?, position));
        }
        let table: Vec<i64> = messages.clone().map(function).collect();
        glwe::function_bytes(params, encoding, encoding, &table)?
    };
    Ok(Run {
        params,
        client,
        vector,
        samples,
        progress,
    })
}

/// One set in one arithmetic.
fn measure(
    args: &Args,
    (params, arithmetic): (&'static ParamSet, ArithmeticKind),
    rng: &mut Csprng,
    progress: &Progress,
) -> anyhow::Result<Figures> {
    let amounts = args.amounts();
    let gpu = GpuBackend::new(arithmetic, &GpuOptions::default())
        .map_err(|error| anyhow!(with_help(&error)))?;
    let cpu = CpuBackend::new(arithmetic);
    let sizes = args.sizes(&gpu, params);
    let largest = sizes.last().copied().unwrap_or(1);
    let name = format!("{}, {arithmetic}", params.name);
    let tell = |what: &str, done: usize, total: usize| {
        progress.report(&format!("{name}: {what}"), done as u64, total as u64);
        progress.check()
    };
    tell("keys", 0, 1)?;
    let started = Instant::now();
    let run = prepare(params, amounts.samples.max(largest), rng, progress)?;
    let quiet = Progress::none().with_cancel(run.cancel().clone());
    let [gpu_side, cpu_side] = load(&run.client, [&gpu, &cpu], rng, &quiet)?;
    let keys_s = started.elapsed().as_secs_f64();

    let mut on_gpu = Vec::new();
    for (done, size) in sizes.iter().enumerate() {
        tell("times", done, sizes.len())?;
        on_gpu.push(gpu_side.time(&run, &run.samples(*size), amounts.runs)?);
    }
    let mut on_cpu = Vec::new();
    // One, and what the processor takes at once.
    for (done, size) in [1, cpu.batch_hint(params)].into_iter().enumerate() {
        tell("times of the processor", done, 2)?;
        on_cpu.push(cpu_side.time(&run, &run.samples(size), amounts.runs.min(3))?);
    }
    let (checked, wrong, noise) = match arithmetic {
        ArithmeticKind::Ntt => {
            let count = largest.min(amounts.samples);
            tell("bits", 0, count)?;
            let samples = run.samples(count);
            let [ours, theirs] = [&gpu_side, &cpu_side]
                .map(|side| side.bootstrap(params, &run.vector, &samples, run.cancel()));
            let (ours, theirs) = (ours?, theirs?);
            let differing = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
            (count, differing, None)
        }
        ArithmeticKind::Fft => {
            let (noise, wrong) = noise(&run, &gpu_side, largest, &tell)?;
            (noise.samples, wrong, Some(noise))
        }
    };
    let (repeated, different) = repeat(&run, &gpu_side, amounts.repetitions, largest, &tell)?;
    let chain_steps = match arithmetic {
        ArithmeticKind::Ntt => chains(&run, [&gpu_side, &cpu_side], amounts.steps, &tell)?,
        ArithmeticKind::Fft => 0,
    };
    tell("done", 1, 1)?;
    let cost = Cost::new(params, arithmetic)?;
    let fastest = on_gpu
        .iter()
        .copied()
        .min_by(|a, b| a.each_ms().total_cmp(&b.each_ms()));
    let of_device = |rate: fn(&DeviceInfo) -> u64, amount: f64| {
        let all: u64 = gpu.devices().map(rate).sum();
        fastest
            .filter(|_| all > 0)
            .map(|batch| amount / (batch.best_ms / 1e3) / all as f64)
    };
    let size = fastest.map_or(1, |batch| batch.size) as f64;
    let passes = (size / gpu.batch_hint(params) as f64).ceil();
    let group = if params.ring_degree > 2048 { 16 } else { 1 };
    Ok(Figures {
        set: params.name,
        arithmetic: arithmetic.to_string(),
        keys_s,
        key_bytes: cost.key_bytes,
        gpu: on_gpu,
        cpu: on_cpu,
        model_ms: cost.step_ms(group) * cost.steps as f64,
        arithmetic_share: cost
            .multiply_adds
            .and_then(|each| of_device(|device| device.multiply_adds, each as f64 * size)),
        // Each pass reads the key once at least.
        bandwidth_share: of_device(|device| device.bandwidth, cost.key_bytes as f64 * passes),
        checked,
        wrong,
        repeated,
        different,
        chain_steps,
        noise,
    })
}

type Tell<'a> = dyn Fn(&str, usize, usize) -> Result<(), toroid_task::Cancelled> + 'a;

/// Bootstraps every sample, decrypts it, and takes its distance from where it should be.
fn noise(
    run: &Run<'_>,
    side: &Side<'_>,
    batch: usize,
    tell: &Tell<'_>,
) -> anyhow::Result<(Noise, usize)> {
    let params = run.params;
    let half_step = 0.25 / f64::from(1u32 << params.message_bits.max(1));
    let (mut squares, mut wrong) = (0.0, 0);
    let count = run.samples.len();
    for (part, chunk) in run.samples.chunks(batch).enumerate() {
        tell("noise", part * batch, count)?;
        let samples: Vec<Vec<u8>> = chunk.iter().map(|(sample, _)| sample.clone()).collect();
        let results = side.bootstrap(params, &run.vector, &samples, run.cancel())?;
        for (result, (_, expected)) in results.iter().zip(chunk) {
            let error = run.error(result, *expected)?;
            squares += error * error;
            wrong += usize::from(error.abs() >= half_step);
        }
    }
    let measured = squares / count as f64;
    let formula = bootstrap_output_variance(params, ArithmeticKind::Fft);
    let noise = Noise {
        samples: count,
        log2_measured: measured.log2() / 2.0,
        log2_formula: formula.log2() / 2.0,
        ratio: measured / formula,
        // The mean square of independent Gaussian samples.
        interval: 3.29 * (2.0 / count as f64).sqrt(),
    };
    Ok((noise, wrong))
}

/// The same sample again and again, alone and at every place of batches: how many results, and how many that differ from the first.
fn repeat(
    run: &Run<'_>,
    side: &Side<'_>,
    repetitions: usize,
    batch: usize,
    tell: &Tell<'_>,
) -> anyhow::Result<(usize, usize)> {
    let bootstrap =
        |samples: &[Vec<u8>]| side.bootstrap(run.params, &run.vector, samples, run.cancel());
    let one = run.samples(1);
    let first = bootstrap(&one)?;
    let (mut repeated, mut different) = (0, 0);
    let mut compare = |results: Vec<Vec<u8>>| {
        repeated += results.len();
        different += results.iter().filter(|result| **result != first[0]).count();
    };
    for done in 0..repetitions {
        tell("the same alone", done, repetitions)?;
        compare(bootstrap(&one)?);
    }
    let mut size = 1;
    let mut done = 0;
    while done < repetitions {
        tell("the same in batches", done, repetitions)?;
        size = if size < batch { size + 1 } else { 2 };
        let size = size.min(repetitions - done);
        compare(bootstrap(&vec![one[0].clone(); size])?);
        done += size;
    }
    Ok((repeated, different))
}

/// Bootstraps of results of bootstraps, several chains side by side, on both back ends: how many steps the chains have.
fn chains(
    run: &Run<'_>,
    [ours, theirs]: [&Side<'_>; 2],
    steps: usize,
    tell: &Tell<'_>,
) -> anyhow::Result<usize> {
    const CHAINS: usize = 16;
    let params = run.params;
    let length = steps.div_ceil(CHAINS * params.lwe_dimension);
    let mut samples = [run.samples(CHAINS), run.samples(CHAINS)];
    for link in 0..length {
        tell("chains", link, length)?;
        for (side, samples) in [ours, theirs].into_iter().zip(&mut samples) {
            *samples = side.bootstrap(params, &run.vector, samples, run.cancel())?;
        }
        let [ours, theirs] = &samples;
        ensure!(
            ours == theirs,
            "{}: chains differ from the processor's at bootstrap {}",
            params.name,
            link + 1
        );
    }
    Ok(length * CHAINS * params.lwe_dimension)
}

/// Names of all checks, for where none can be made.
fn checks(args: &Args) -> Vec<String> {
    let mut names = Vec::new();
    for params in args.sets() {
        for arithmetic in args.arithmetics() {
            let of_arithmetic = match arithmetic {
                ArithmeticKind::Fft => ["decryption", "noise beside its formula"],
                ArithmeticKind::Ntt => ["bits beside the processor's", "chains of bootstraps"],
            };
            let checks = [
                "latency and amortized time",
                "the same alone and in batches",
            ];
            for check in checks.into_iter().chain(of_arithmetic) {
                names.push(format!("{}, {arithmetic}: {check}", params.name));
            }
        }
    }
    names
}

/// Runs `toroid gpu bench`.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let options = GpuOptions::default();
    let found = DriverInfo::ask(&options)
        .and_then(|driver| GpuBackend::new(ArithmeticKind::Fft, &options).map(|gpu| (driver, gpu)));
    let (driver, gpu) = match found {
        Ok(found) => found,
        Err(error) => {
            for check in checks(args) {
                output.line(format!("SKIPPED {check}: {error}"));
            }
            output.line(format!("SKIPPED {COLUMN_ENGINE}"));
            bail!("nothing was measured: {}", with_help(&error));
        }
    };
    if driver.simulated {
        output.note(NOT_A_DEVICE);
    }
    if let Some(folder) = &args.write {
        let is_of_devices = |folder: PathBuf| folder.ends_with("docs/results");
        if driver.simulated && folder.canonicalize().is_ok_and(is_of_devices) {
            return Err(usage(format!(
                "{} has results of devices alone, and there is none",
                folder.display()
            )));
        }
        page::prepare(folder, args.force)?;
    }
    let steps = Steps::new(output);
    let progress = steps.progress();
    let mut rng = args.rng()?;
    let (mut figures, mut skipped) = (Vec::new(), Vec::new());
    for params in args.sets() {
        for arithmetic in args.arithmetics() {
            if params.is_wide() {
                skipped.push(format!(
                    "{}, {arithmetic}: no times of wide functions are taken",
                    params.name
                ));
                continue;
            }
            if !gpu.computes(params) {
                skipped.push(format!(
                    "{}, {arithmetic}: its bootstraps are the processor's",
                    params.name
                ));
                continue;
            }
            let measured = measure(args, (params, arithmetic), &mut rng, &progress);
            let measured = match measured {
                Err(_) if interrupt::is_interrupted() => bail!("interrupted"),
                measured => measured.with_context(|| format!("{}, {arithmetic}", params.name))?,
            };
            output.line(page::text(&measured));
            figures.push(measured);
        }
    }
    steps.finish();
    skipped.push(COLUMN_ENGINE.to_owned());
    for check in &skipped {
        output.line(format!("SKIPPED {check}"));
    }
    let wrong = figures.iter().find(|figures| !figures.is_right());
    let wrong = wrong.map(|figures| format!("{}, {}", figures.set, figures.arithmetic));
    let device = gpu.devices().next().context("no device")?;
    let image = device.image().context("no kernels")?;
    let page = Page {
        date: page::date(),
        machine: machine::describe(),
        devices: gpu.devices().map(|device| device.name.clone()).collect(),
        is_device: !driver.simulated,
        driver: version(driver.version),
        processors: device.processors,
        clock_ghz: device.clock as f64 / 1e9,
        tflops: 2.0 * device.multiply_adds as f64 / 1e12,
        bandwidth_tbps: device.bandwidth as f64 / 1e12,
        kernels: image.to_string(),
        kernels_sha256: image.hash(),
        rows: page::rows(&figures),
        figures,
        skipped,
    };
    if let Some(folder) = &args.write {
        page.write(folder, args.force)?;
    }
    output.result(&page, || page.summary())?;
    match wrong {
        Some(name) => bail!("{name}: results are wrong"),
        None => Ok(()),
    }
}
