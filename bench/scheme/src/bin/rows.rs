//! Rows a second: the batches that the engine computes columns with, on one core and on all.
//!
//! `cargo run --release -p toroid-bench-scheme --bin rows -- [SET[:BITS[:FUNCTIONS]] [ROWS [TURNS]]]` in `bench/`. BITS is the
//! width of the rows' messages, FUNCTIONS how many functions each row is bootstrapped with. A batch of ROWS rows takes turns on the
//! numbers of cores. Of each number the fastest turn counts.
//!
//! `rows -- sum [SET [ROWS [TURNS]]]` adds up a seeded column instead, on one core.
//!
//! "Processor time a row" is what all threads together take. On a busy machine, where the cores are not free, it still says what more
//! cores cost: the same for any number of cores is a speed-up by that number.

use std::time::Instant;

use toroid_bench_common::{Error, machine};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::{Backend, BootstrapTask, CancelToken, ColumnBytes, Requester, RowSource};
use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::any_key;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{ColumnBytesBuilder, ColumnForm, RowSum, rows_per_chunk};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::MaskSeed;

const USAGE: &str = "usage: [SET[:BITS[:FUNCTIONS]] [ROWS [TURNS]]], or sum [SET [ROWS [TURNS]]]";

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let by_name =
        |name: &str| ParamSet::by_name(name).ok_or_else(|| format!("no parameter set {name}"));
    if let ["sum", rest @ ..] = &arguments[..] {
        let (set, rows, turns) = match rest {
            [] => ("message16", 1_000_000, 3),
            [set] => (*set, 1_000_000, 3),
            [set, rows] => (*set, rows.parse()?, 3),
            [set, rows, turns] => (*set, rows.parse()?, turns.parse()?),
            _ => return Err(USAGE.into()),
        };
        return measure_sum(by_name(set)?, rows, turns);
    }
    let (set, rows, turns) = match arguments[..] {
        [] => ("message8", 8, 3),
        [set] => (set, 8, 3),
        [set, rows] => (set, rows.parse()?, 3),
        [set, rows, turns] => (set, rows.parse()?, turns.parse()?),
        _ => return Err(USAGE.into()),
    };
    let mut set = set.split(':');
    let name = set.next().unwrap_or_default();
    let params = by_name(name)?;
    let bits = set.next().map_or(Ok(params.message_bits), str::parse)?;
    let functions = set.next().map_or(Ok(1), str::parse)?;
    measure(
        params,
        Encoding::new(bits, false)?,
        functions,
        (rows, turns),
    )
}

fn measure(
    params: &ParamSet,
    input: Encoding,
    functions: usize,
    (rows, turns): (usize, usize),
) -> Result<(), Error> {
    let arithmetic = ArithmeticKind::Fft;
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let progress = Progress::none();
    let (bootstrapping, key_switching) =
        any_key::generate(&client, arithmetic, SimdLevel::best(), &mut rng, &progress)?;
    let vectors = (0..functions as i64)
        .map(|function| test_vector(params, input, function))
        .collect::<Result<Vec<_>, _>>()?;
    let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
    let messages: Vec<i64> = (0..rows as i64)
        .map(|row| row % (1 << input.bits()))
        .collect();
    let samples = messages
        .iter()
        .map(|message| client.encrypt_sample(*message, input, &mut rng))
        .collect::<Result<Vec<_>, _>>()?;
    let tasks: Vec<BootstrapTask<'_>> = samples
        .iter()
        .map(|sample| BootstrapTask {
            test_vectors: &vectors,
            sample,
            input_bits: input.bits(),
        })
        .collect();
    println!(
        "{} of {} bits, {rows} rows of {functions} functions, the fastest of {turns} turns; {}; {}; load {}",
        params.name,
        input.bits(),
        machine::date(),
        machine::describe(),
        machine::load_average()
    );
    let mut results = vec![0; rows * functions * params.lwe_bytes()];
    let numbers = [1, machine::processors()];
    let mut fastest = [(f64::INFINITY, f64::INFINITY); 2];
    for _ in 0..turns {
        for (cores, fastest) in numbers.into_iter().zip(&mut fastest) {
            let backend = CpuBackend::with_cores(arithmetic, cores);
            let cancel = CancelToken::new();
            let (start, before) = (Instant::now(), machine::processor_time()?);
            backend.bootstrap_batch(
                params,
                &bootstrapping,
                &key_switching,
                &tasks,
                &mut results,
                Requester::from(&cancel),
            )?;
            let wall = start.elapsed().as_secs_f64() / rows as f64;
            let processor = (machine::processor_time()? - before).as_secs_f64() / rows as f64;
            *fastest = (fastest.0.min(wall), fastest.1.min(processor));
        }
    }
    let mut results = results.chunks_exact(params.lwe_bytes());
    for message in &messages {
        for (function, result) in (0..).zip(results.by_ref().take(functions)) {
            let found = client.decrypt_sample(result, input)?;
            let expected = value(input, function, *message);
            if found != expected {
                return Err(format!("{found} for {message}, where {expected} is right").into());
            }
        }
    }
    println!("| cores | rows a second | time a row | processor time a row | peak memory |");
    println!("| --- | --- | --- | --- | --- |");
    for (cores, (wall, processor)) in numbers.into_iter().zip(fastest) {
        println!(
            "| {cores} | {:.2} | {:.1} ms | {:.1} ms | {} MiB |",
            1.0 / wall,
            1000.0 * wall,
            1000.0 * processor,
            machine::peak_memory().unwrap_or_default() >> 20
        );
    }
    let [(one, one_processor), (all, all_processor)] = fastest;
    println!(
        "{} cores give {:.2} times the rows; by processor time they would give {:.2} times if they were free",
        numbers[1],
        one / all,
        numbers[1] as f64 * one_processor / all_processor
    );
    Ok(())
}

/// What function number `function` makes of a message.
fn value(input: Encoding, function: i64, message: i64) -> i64 {
    ((2 * function + 3) * message + function).rem_euclid(2 << input.bits())
}

fn test_vector(params: &ParamSet, input: Encoding, function: i64) -> Result<Vec<u8>, Error> {
    fn of<M: Modulus>(params: &ParamSet, input: Encoding, function: i64) -> Result<Vec<u8>, Error> {
        let table: Vec<M::Word> = input
            .messages()
            .map(|message| M::encode(value(input, function, message), input.bits() + 1))
            .collect();
        let words = glwe::test_vector::<M>(params, input, &table)?;
        Ok(bytemuck::cast_slice(&words).to_vec())
    }
    match params.modulus {
        ModulusKind::Torus32 => of::<Torus32>(params, input, function),
        ModulusKind::Goldilocks => of::<Goldilocks>(params, input, function),
    }
}

/// Adds up a seeded column of rows by its chunks, beside what the parts of that take: masks, and samples of a few rows.
fn measure_sum(params: &ParamSet, rows: u64, turns: usize) -> Result<(), Error> {
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let encoding = Encoding::new(params.message_bits, false)?;
    let full = rows_per_chunk(params) as u64;
    let chunks = rows.div_ceil(full);
    let mut builder = ColumnBytesBuilder::new(params, chunks as usize);
    let mut total = 0;
    for chunk in 0..chunks {
        let here = chunk * full..rows.min((chunk + 1) * full);
        // Few enough of them are 1 for the sum to be a message.
        let messages: Vec<i64> = here.map(|row| i64::from(row % 1009 == 0)).collect();
        total += messages.iter().sum::<i64>();
        let bytes = client.encrypt_chunk(&messages, encoding, &mut rng)?;
        builder.push_chunk(ColumnForm::Seeded, messages.len(), &bytes)?;
    }
    let bytes = builder.finish()?;
    println!(
        "{}, a seeded column of {rows} rows, {} bytes, the fastest of {turns} turns; {}; {}; load {}",
        params.name,
        bytes.len(),
        machine::date(),
        machine::describe(),
        machine::load_average()
    );
    let mut fastest = [f64::INFINITY; 4];
    let mut sum = vec![0; params.lwe_bytes()];
    let few = rows.min(full);
    let masks_each = if params.is_wide() { chunks } else { rows };
    let mut masks = vec![0u64; params.lwe_bytes() / 8];
    for _ in 0..turns {
        let start = Instant::now();
        let column = ColumnBytes::new(params, &bytes)?;
        fastest[0] = fastest[0].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        column.sum(params, 0..rows, &mut sum)?;
        fastest[1] = fastest[1].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        for number in 0..masks_each {
            MaskSeed::from_bytes([number as u8; 32]).expand_chunk::<Goldilocks>(0, &mut masks);
        }
        fastest[2] = fastest[2].min(start.elapsed().as_secs_f64());
        let mut samples = vec![0; few as usize * params.lwe_bytes()];
        let start = Instant::now();
        column.read(0..few, &mut samples)?;
        let mut plain = RowSum::new(params);
        plain.add_samples(&samples)?;
        plain.finish()?;
        fastest[3] = fastest[3].min(start.elapsed().as_secs_f64());
    }
    let found = client.decrypt_sample(&sum, encoding)?;
    if found != total {
        return Err(format!("{found}, where {total} is right").into());
    }
    println!("| what | time | time a row |");
    println!("| --- | --- | --- |");
    for (what, seconds, rows) in [
        ("checksums and hash of the column", fastest[0], rows),
        ("sum of all rows", fastest[1], rows),
        ("masks alone, of as many bytes", fastest[2], rows),
        ("rows of one chunk, as samples", fastest[3], few),
    ] {
        println!(
            "| {what} | {:.2} ms | {:.1} ns |",
            1000.0 * seconds,
            1e9 * seconds / rows as f64
        );
    }
    Ok(())
}
