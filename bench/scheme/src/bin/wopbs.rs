//! Wide functions of the full parameter sets, in batches with fresh keys: success over all or many inputs, and the noise of
//! every stage against its formula.
//!
//! `cargo run --release -p toroid-bench-scheme --bin wopbs -- functions SET (all|COUNT) [FIRST_BATCH]`: one random table of all p + 1
//! bits (the same in every batch and run), for all 2^p inputs or COUNT random ones. Inputs have the noise of the sum of
//! four bootstrapped samples. A line for each batch of 1024 inputs; FIRST_BATCH goes on where a run was stopped.
//!
//! `cargo run --release -p toroid-bench-scheme --bin wopbs -- noise SET [KEYS [RUNS [BITS]]]`: a Markdown table of the stages, over
//! RUNS bootstraps of messages of BITS bits under each of KEYS keys.
//!
//! `cargo run --release -p toroid-bench-scheme --bin wopbs -- time SET RUNS BITS…`: a Markdown table of the time of a function of
//! messages of each number of bits with results of as many, on one thread.

use std::time::Instant;

use rayon::prelude::*;
use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::arithmetic::Fft;
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::{self, words_from_bytes};
use toroid_tfhe::modulus::{Goldilocks, Modulus};
use toroid_tfhe::noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::wopbs::measure::Measurement;
use toroid_tfhe::wopbs::{WopbsKey, WopbsKeySwitchingKey};

/// Seed of the random table.
const TABLE_SEED: [u8; 32] = [0x16; 32];
const BATCH: usize = 1024;
/// Samples whose sum an input is.
const SUMMANDS: usize = 4;

/// A run that nobody stops.
fn alone() -> Run<'static> {
    Run::with_threads(1)
}

type Keys = (
    ClientKey,
    WopbsKey<Goldilocks, Fft>,
    WopbsKeySwitchingKey<Goldilocks>,
);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let set = |name: &str| {
        ParamSet::by_name(name)
            .filter(|set| set.is_wide())
            .ok_or_else(|| format!("{name} has no wide functions"))
    };
    match arguments[..] {
        ["functions", name, count, ref rest @ ..] => {
            let params = set(name)?;
            let count = match count {
                "all" => None,
                count => Some(count.parse()?),
            };
            let first = rest.first().map_or(Ok(0), |batch| batch.parse())?;
            functions(params, count, first)?;
        }
        ["noise", name, ref rest @ ..] => {
            let number = |index: usize, default| {
                rest.get(index)
                    .map_or(Ok(default), |text: &&str| text.parse())
            };
            let params = set(name)?;
            let bits = number(2, params.message_bits as usize)?.try_into()?;
            stages(params, number(0, 8)?, number(1, 12)?, bits)?;
        }
        ["time", name, runs, ref widths @ ..] if !widths.is_empty() => {
            let widths: Result<Vec<u32>, _> = widths.iter().map(|bits| bits.parse()).collect();
            times(set(name)?, runs.parse()?, &widths?)?;
        }
        _ => {
            return Err(
                "usage: functions SET (all|COUNT) [FIRST_BATCH] | noise SET [KEYS [RUNS [BITS]]] | time SET RUNS BITS…"
                    .into(),
            );
        }
    }
    Ok(())
}

fn keys(params: &ParamSet, rng: &mut Csprng) -> Result<Keys, TfheError> {
    let client = ClientKey::generate(params, rng);
    let progress = Progress::none();
    let key = client.loaded_wopbs_key(SimdLevel::best(), rng, &progress)?;
    let switching = client.loaded_wopbs_key_switching_key(SimdLevel::best(), rng, &progress)?;
    Ok((client, key, switching))
}

fn functions(params: &ParamSet, count: Option<usize>, first: usize) -> Result<(), TfheError> {
    let p = params.message_bits;
    let mut table_rng = Csprng::from_seed(TABLE_SEED);
    let values: Vec<u64> = (0..1 << p)
        .map(|_| table_rng.next_u64() >> (63 - p))
        .collect();
    let table: Vec<u64> = values
        .iter()
        .map(|value| Goldilocks::encode(value.cast_signed(), p + 1))
        .collect();
    let output = noise::bootstrap_output_variance(params, ArithmeticKind::Fft);
    let log2_summand = output.log2() / 2.0;
    let total = count.unwrap_or(1 << p);
    let (mut wrong, mut squares, mut done) = (0, 0.0, 0);
    println!(
        "{}: {total} inputs, each the sum of {SUMMANDS} samples of noise 2^{log2_summand:.2}",
        params.name
    );
    for batch in first..total.div_ceil(BATCH) {
        let mut rng = Csprng::from_os()?;
        let (client, key, switching) = keys(params, &mut rng)?;
        let inputs = batch * BATCH..total.min((batch + 1) * BATCH);
        let samples: Vec<(usize, Vec<u64>)> = inputs
            .map(|index| {
                let message = match count {
                    None => index,
                    Some(_) => (rng.next_u64() >> (64 - p)) as usize,
                };
                let mut sum = vec![0; params.lwe_words()];
                let mut sample = sum.clone();
                for index in 0..SUMMANDS {
                    let summand = if index == 0 { message as i64 } else { 0 };
                    let word = Goldilocks::encode(summand, p + 1);
                    client.lwe().encrypt_into::<Goldilocks>(
                        &mut sample,
                        word,
                        log2_summand,
                        &mut rng,
                    );
                    lwe::add_assign::<Goldilocks>(&mut sum, &sample);
                }
                (message, sum)
            })
            .collect();
        let started = Instant::now();
        let errors: Vec<f64> = samples
            .par_iter()
            .map(|(message, sample)| {
                let out = key.bootstrap(&switching, &[&table], p, sample, alone())?;
                let phase = client.phase(bytemuck::cast_slice(&out[0]))?;
                let error = phase - values[*message] as f64 / f64::from(2 << p);
                Ok(error - error.round())
            })
            .collect::<Result<_, TfheError>>()?;
        let of_batch = errors
            .iter()
            .filter(|error| error.abs() >= 0.25 / f64::from(1 << p));
        let of_batch = of_batch.count();
        wrong += of_batch;
        done += errors.len();
        squares += errors.iter().map(|error| error * error).sum::<f64>();
        println!(
            "batch {batch}: {} inputs, {of_batch} wrong, {:.0} s",
            errors.len(),
            started.elapsed().as_secs_f64()
        );
    }
    let variance = squares / done as f64;
    println!(
        "{}: {done} inputs, {wrong} wrong; output noise 2^{:.2}, {:.3} of the formula's variance (at most)",
        params.name,
        variance.log2() / 2.0,
        variance / output
    );
    Ok(())
}

fn times(params: &ParamSet, runs: usize, widths: &[u32]) -> Result<(), TfheError> {
    let mut rng = Csprng::from_os()?;
    let (client, key, switching) = keys(params, &mut rng)?;
    let mut times = vec![Vec::new(); widths.len()];
    // In turns, so that what disturbs the machine disturbs all widths.
    for _ in 0..runs.max(1) {
        for (bits, times) in widths.iter().zip(&mut times) {
            let input = Encoding::new(*bits, false)?;
            let table: Vec<u64> = input
                .messages()
                .map(|_| (rng.next_u64() >> (64 - bits)).cast_signed())
                .map(|value| Goldilocks::encode(value, bits + 1))
                .collect();
            let test_vector = glwe::test_vector::<Goldilocks>(params, input, &table)?;
            let message = (rng.next_u64() >> (64 - bits)).cast_signed();
            let bytes = client.encrypt_sample(message, input, &mut rng)?;
            let sample =
                words_from_bytes::<Goldilocks>("a sample", params, &bytes, params.lwe_words())?;
            let started = Instant::now();
            let out = key.bootstrap(&switching, &[&test_vector], *bits, &sample, alone())?;
            times.push(1000.0 * started.elapsed().as_secs_f64());
            let found = Goldilocks::decode(client.lwe().phase::<Goldilocks>(&out[0]), bits + 1);
            let expected = Goldilocks::decode(table[message as usize], bits + 1);
            assert_eq!(found, expected, "{bits} bits, message {message}");
        }
    }
    println!("{}: a function on one thread, {runs} runs", params.name);
    println!("\n| message bits | ms, median | best | p_fail |");
    println!("| --- | --- | --- | --- |");
    for (bits, mut times) in widths.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!(
            "| {bits} | {:.1} | {:.1} | 2^{:.1} |",
            times[times.len() / 2],
            times[0],
            params.log2_failure(*bits, 1.0)
        );
    }
    Ok(())
}

fn stages(params: &ParamSet, keys_count: usize, runs: usize, bits: u32) -> Result<(), TfheError> {
    let mut rng = Csprng::from_os()?;
    let mut sums: Vec<(&str, u64, f64, f64)> = Vec::new();
    for _ in 0..keys_count {
        let (client, key, switching) = keys(params, &mut rng)?;
        let mut measurement = Measurement::new(&client, &key, &switching, bits)?;
        let run = Run {
            threads: rayon::current_num_threads(),
            ..alone()
        };
        for _ in 0..runs {
            measurement.follow(&mut rng, run)?;
        }
        for (index, stage) in measurement.results().into_iter().enumerate() {
            if sums.len() == index {
                sums.push((stage.name, 0, 0.0, stage.formula));
            }
            sums[index].1 += stage.count;
            sums[index].2 += stage.variance / keys_count as f64;
        }
    }
    println!(
        "{}, messages of {bits} bits: {keys_count} keys, {runs} bootstraps each",
        params.name
    );
    println!("\n| stage | values | standard deviation | formula | measured/formula (variances) |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, count, variance, formula) in sums {
        println!(
            "| {name} | {count} | 2^{:.2} | 2^{:.2} | {:.3} |",
            variance.log2() / 2.0,
            formula.log2() / 2.0,
            variance / formula
        );
    }
    Ok(())
}
