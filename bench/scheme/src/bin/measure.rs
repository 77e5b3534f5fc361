//! Bootstraps of the full parameter sets: success, measured noise against the formulas, time.
//!
//! `cargo run --release -p toroid-bench-scheme --bin measure [-- SET[:RUNS][:ntt] …]`; prints a Markdown table.
//! Without arguments: gate and message4 1000 runs, message7 and paper 50, and 10 of message7 on the integer arithmetic.
//!
//! The interval is that of 99.9 % for the mean square of R independent Gaussian samples of the formula's variance:
//! 1 ± 3.29 sqrt(2/R).

use std::time::{Duration, Instant};

use toroid_ring::simd::SimdLevel;
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Ntt};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::gates;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::{self, words_from_bytes};
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::noise;
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::random::Csprng;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut requests: Vec<String> = std::env::args().skip(1).collect();
    if requests.is_empty() {
        requests = [
            "gate:1000",
            "message4:1000",
            "message7:50",
            "paper:50",
            "message7:10:ntt",
        ]
        .map(str::to_owned)
        .to_vec();
    }
    println!(
        "| set, arithmetic | runs | wrong | bootstrapping key, both keys: generated and loaded | bootstrap: median, best | extracted noise: measured/formula | output noise: measured/formula | 99.9 % interval |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for request in requests {
        let mut parts = request.split(':');
        let name = parts.next().unwrap_or_default();
        let params = ParamSet::by_name(name).ok_or_else(|| format!("no parameter set {name}"))?;
        let runs = parts.next().map_or(Ok(20), str::parse)?;
        let arithmetic = match parts.next() {
            Some("ntt") => ArithmeticKind::Ntt,
            _ => ArithmeticKind::Fft,
        };
        match (params.modulus, arithmetic) {
            (ModulusKind::Torus32, ArithmeticKind::Fft) => measure::<Torus32, Fft>(params, runs)?,
            (ModulusKind::Torus32, ArithmeticKind::Ntt) => measure::<Torus32, Ntt>(params, runs)?,
            (ModulusKind::Goldilocks, ArithmeticKind::Fft) => {
                measure::<Goldilocks, Fft>(params, runs)?
            }
            (ModulusKind::Goldilocks, ArithmeticKind::Ntt) => {
                measure::<Goldilocks, Ntt>(params, runs)?
            }
        }
    }
    Ok(())
}

fn measure<M: Modulus, A: Arithmetic<M>>(params: &ParamSet, runs: usize) -> Result<(), TfheError> {
    let mut rng = Csprng::from_os()?;
    let started = Instant::now();
    let client = ClientKey::generate(params, &mut rng);
    let progress = Progress::none();
    let bootstrapping =
        client.loaded_bootstrapping_key::<M, A>(SimdLevel::best(), &mut rng, &progress)?;
    let bootstrapping_time = started.elapsed();
    let key_switching =
        client.loaded_key_switching_key::<M>(SimdLevel::best(), &mut rng, &progress)?;
    let key_time = started.elapsed();

    let gate = params.message_bits == 0;
    let encoding = Encoding::new(params.message_bits.max(1), true)?;
    let function = |m: i64| (3 * m * m + 7 * m + 1).rem_euclid(2 << params.message_bits);
    let test_vector = if gate {
        gates::test_vector::<M>(params)
    } else {
        let table: Vec<M::Word> = encoding
            .messages()
            .map(|m| M::encode(function(m), encoding.bits() + 1))
            .collect();
        glwe::test_vector::<M>(params, encoding, &table)?
    };
    let extracted_key = client.glwe().extracted_key();
    let fraction = |word: M::Word| M::centered(word) as f64 / M::KIND.log2().exp2();

    let (mut wrong, mut times) = (0, Vec::<Duration>::new());
    let (mut extracted_squares, mut output_squares) = (0.0, 0.0);
    let mut extracted = vec![M::Word::default(); params.extracted_dimension() + 1];
    let mut output = vec![M::Word::default(); params.lwe_words()];
    for _ in 0..runs {
        let (bytes, expected, decoded_bits) = if gate {
            let (a, b) = (rng.next_u64() & 1 == 1, rng.next_u64() & 1 == 1);
            let mut sample = words_from_bytes::<M>(
                "a",
                params,
                &client.encrypt_bit_sample(a, &mut rng)?,
                params.lwe_words(),
            )?;
            let other = words_from_bytes::<M>(
                "b",
                params,
                &client.encrypt_bit_sample(b, &mut rng)?,
                params.lwe_words(),
            )?;
            // NAND.
            lwe::add_assign::<M>(&mut sample, &other);
            lwe::mul_assign::<M>(&mut sample, -1);
            lwe::add_assign::<M>(&mut sample, &lwe::trivial::<M>(params, M::encode(1, 3)));
            let expected = M::encode(2 * i64::from(!(a && b)) - 1, 3);
            (bytemuck::cast_slice(&sample).to_vec(), expected, 2)
        } else {
            let range = encoding.messages();
            let m = range.start
                + (rng.next_u64() % (range.end - range.start).cast_unsigned()).cast_signed();
            let expected = M::encode(function(m), encoding.bits() + 1);
            (
                client.encrypt_sample(m, encoding, &mut rng)?,
                expected,
                encoding.bits() + 1,
            )
        };
        let sample = words_from_bytes::<M>("a sample", params, &bytes, params.lwe_words())?;
        let started = Instant::now();
        bootstrapping.blind_rotate(&test_vector, &sample, &mut extracted, &CancelToken::new())?;
        key_switching.switch(&extracted, &mut output, 1)?;
        times.push(started.elapsed());
        let extracted_error = M::sub(extracted_key.phase::<M>(&extracted), expected);
        let output_error = M::sub(client.lwe().phase::<M>(&output), expected);
        extracted_squares += fraction(extracted_error).powi(2);
        output_squares += fraction(output_error).powi(2);
        wrong += usize::from(M::decode(output_error, decoded_bits) != 0);
    }
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let ratio = |squares: f64, formula: f64| squares / runs as f64 / formula;
    println!(
        "| {}, {} | {runs} | {wrong} | {:.2} s, {:.2} s | {:.1} ms, {:.1} ms | {:.3} (formula 2^{:.2}) | {:.3} (2^{:.2}) | 1 ± {:.3} |",
        params.name,
        if A::KIND == ArithmeticKind::Ntt {
            "ntt"
        } else {
            "fft"
        },
        bootstrapping_time.as_secs_f64(),
        key_time.as_secs_f64(),
        ms(times[runs / 2]),
        ms(times[0]),
        ratio(
            extracted_squares,
            noise::blind_rotation_variance(params, A::KIND)
        ),
        noise::blind_rotation_variance(params, A::KIND).log2() / 2.0,
        ratio(
            output_squares,
            noise::bootstrap_output_variance(params, A::KIND)
        ),
        noise::bootstrap_output_variance(params, A::KIND).log2() / 2.0,
        3.29 * (2.0 / runs as f64).sqrt(),
    );
    Ok(())
}
