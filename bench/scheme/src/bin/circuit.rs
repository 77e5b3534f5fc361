//! Both circuit bootstrappings of a full set on one thread: time, sizes of the keys, noise of the GGSW samples.
//!
//! `cargo run --release -p toroid-bench-scheme --bin circuit [-- SET [RUNS [ntt [LEVELS BITS]]]]`; prints a Markdown table. Without
//! arguments: message16, 3 runs, f64 arithmetic, and three levels of 9 bits for the private key switch.
//!
//! Noise is the standard deviation over the torus, as log2, measured and by the formulas: of the constant coefficient of a body
//! row, of its others, and of a mask row's coefficients. Then the times of both packings, with the noise of their formulas.

use std::time::Instant;

use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Ntt};
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::words_from_bytes;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Words};
use toroid_tfhe::params::{Gadget, ParamSet, WopbsParams};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::wopbs::packing::switch_packing_noise;
use toroid_tfhe::wopbs::private::{PrivateSwitchKey, private_product_fft_variance, switch_noise};
use toroid_tfhe::wopbs::{Bits, WopbsKey, WopbsKeySwitchingKey, noise};

/// A run that nobody stops.
fn alone() -> Run<'static> {
    Run::with_threads(1)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str);
    let name = argument(0).unwrap_or("message16");
    let params = ParamSet::by_name(name).ok_or_else(|| format!("no parameter set {name}"))?;
    let runs = argument(1).map_or(Ok(3), str::parse)?;
    let gadget = Gadget {
        levels: argument(3).map_or(Ok(3), str::parse)?,
        log2_base: argument(4).map_or(Ok(9), str::parse)?,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| match argument(2) {
        Some("ntt") => measure::<Ntt>(params, runs, gadget),
        _ => measure::<Fft>(params, runs, gadget),
    })?;
    Ok(())
}

/// Sums of squared errors, each with the number of errors.
#[derive(Default)]
struct Squares {
    body: (f64, usize),
    rest: (f64, usize),
    mask: (f64, usize),
}

fn measure<A: Arithmetic<Goldilocks>>(
    params: &ParamSet,
    runs: usize,
    gadget: Gadget,
) -> Result<(), TfheError> {
    let wopbs = params.wopbs.ok_or(TfheError::NotWopbs(params.name))?;
    let mut rng = Csprng::from_os()?;
    let quiet = Progress::none();
    let simd = SimdLevel::best();
    let client = ClientKey::generate(params, &mut rng);
    let key: WopbsKey<Goldilocks, A> = client.loaded_wopbs_key(simd, &mut rng, &quiet)?;
    let switching: WopbsKeySwitchingKey<Goldilocks> =
        client.loaded_wopbs_key_switching_key(simd, &mut rng, &quiet)?;
    let started = Instant::now();
    let private =
        client.loaded_circuit_private_key::<Goldilocks, A>(gadget, simd, &mut rng, &quiet)?;
    println!(
        "{}, {:?} arithmetic; private key switch of {} x {} bits, its keys made in {:.1} s",
        params.name,
        A::KIND,
        gadget.levels,
        gadget.log2_base,
        started.elapsed().as_secs_f64(),
    );

    let p = params.message_bits;
    let encoding = Encoding::new(p, false)?;
    let table: Vec<u64> = (0..1 << p).map(|m| Goldilocks::encode(m & 15, 5)).collect();
    let mut times = [f64::INFINITY; 2];
    let mut squares = [Squares::default(), Squares::default()];
    let mut wrong = [0, 0];
    for _ in 0..runs {
        let message = (rng.next_u64() & ((1 << p) - 1)).cast_signed();
        let bytes = client.encrypt_sample(message, encoding, &mut rng)?;
        let sample =
            words_from_bytes::<Goldilocks>("a sample", params, &bytes, params.lwe_words())?;
        for way in 0..2 {
            let started = Instant::now();
            let bits = if way == 0 {
                key.extract_bits(&switching, p, &sample, alone())?
            } else {
                key.extract_bits_privately(&private, &switching, p, &sample, alone())?
            };
            times[way] = times[way].min(started.elapsed().as_secs_f64());
            add_errors(&client, wopbs, &bits, message, &mut squares[way])?;
            let read = key.look_up(&bits, &table, alone())?;
            let found = Goldilocks::decode(client.lwe().phase::<Goldilocks>(&read), 5);
            wrong[way] += usize::from(found != (message & 15).cast_unsigned());
        }
    }

    let stages = noise::stages(params, wopbs, A::KIND, p);
    let switch = switch_noise(params, gadget, A::KIND);
    let message = stages.extract_rotation + switch.message;
    let others = params.ring_degree as f64 - 1.0;
    let formulas = [
        [
            stages.body_row,
            stages.body_row_rest / others,
            stages.mask_row,
        ],
        [
            message + switch.rows,
            switch.rows,
            message / 2.0 + switch.rows,
        ],
    ];
    let memory = [key.memory(), private.memory()];
    println!(
        "| circuit bootstrapping | ms a bit, with its extraction | key, MiB | body row | its others | mask row | wrong |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for way in 0..2 {
        let Squares { body, rest, mask } = &squares[way];
        let noise: Vec<String> = [body, rest, mask]
            .into_iter()
            .zip(formulas[way])
            .map(|((sum, count), formula)| {
                let measured = sum / *count as f64;
                format!("{:.2} ({:.2})", measured.log2() / 2.0, formula.log2() / 2.0)
            })
            .collect();
        println!(
            "| {} | {:.2} | {:.1} | {} | {} of {runs} |",
            ["trace and secret products", "private key switch"][way],
            times[way] * 1e3 / f64::from(p),
            memory[way] as f64 / 2f64.powi(20),
            noise.join(" | "),
            wrong[way],
        );
    }
    println!("The first key holds those of the extraction and of the refresh too.");
    if A::KIND == ArithmeticKind::Fft {
        let variance = private_product_fft_variance(&wopbs.circuit, gadget);
        println!(
            "f64 adds 2^{:.2} in an external product with a privately made sample.",
            variance.log2() / 2.0
        );
    }
    drop(private);

    let mut one = vec![0; params.ring_degree];
    one[0] = 1;
    let switch: PrivateSwitchKey<Goldilocks, A> =
        client.loaded_private_switch_key(&one, gadget, simd, &mut rng, &quiet)?;
    for count in [32, params.ring_degree] {
        let mut sample = vec![0; params.lwe_words()];
        rng.fill_uniform::<Goldilocks>(&mut sample);
        let apart = params.ring_degree / count;
        let placed: Vec<_> = (0..count).map(|i| (i * apart, &sample[..])).collect();
        let started = Instant::now();
        key.pack(&placed, alone())?;
        let traced = started.elapsed();
        let started = Instant::now();
        switch.pack(&placed, alone())?;
        let switched = started.elapsed();
        let noise = switch_packing_noise(params, gadget, count, A::KIND);
        println!(
            "packing {count}: {:.1} ms and 2^{:.2} by automorphisms, {:.1} ms and 2^{:.2} by a key switch of {:.1} MiB",
            traced.as_secs_f64() * 1e3,
            stages.trace.log2() / 2.0,
            switched.as_secs_f64() * 1e3,
            (noise.message + noise.rows).log2() / 2.0,
            switch.memory() as f64 / 2f64.powi(20),
        );
    }
    Ok(())
}

/// Adds the errors of all rows of a message's bits.
fn add_errors<A: Arithmetic<Goldilocks>>(
    client: &ClientKey,
    wopbs: &WopbsParams,
    bits: &Bits<'_, Goldilocks, A>,
    message: i64,
    squares: &mut Squares,
) -> Result<(), TfheError> {
    let circuit = &wopbs.circuit;
    let n = circuit.ring_degree;
    let add = |which: &mut (f64, usize), error: u64| {
        which.0 += (Goldilocks::centered(error) as f64 / 2f64.powi(64)).powi(2);
        which.1 += 1;
    };
    for bit in 0..circuit.lwe_dimension {
        for row in 0..circuit.ggsw_rows() {
            let words = bits.row(bit, row).unwrap_or_default();
            let mut phase = client.glwe_phase::<Goldilocks>(&words)?;
            let (component, gadget, level) = circuit.ggsw_row(row);
            let value = (message >> bit & 1).cast_unsigned();
            let unit = Goldilocks::select(Goldilocks::gadget_value(gadget, level), value);
            if component == circuit.glwe_dimension {
                phase[0] = Goldilocks::sub(phase[0], unit);
                add(&mut squares.body, phase[0]);
                for word in &phase[1..] {
                    add(&mut squares.rest, *word);
                }
            } else {
                // -s times the unit: the phase of a sample that is the unit in the mask and 0 elsewhere.
                let mut expected = vec![0; circuit.glwe_words()];
                expected[component * n] = unit;
                let expected = client.glwe_phase::<Goldilocks>(&expected)?;
                for (word, expected) in phase.iter().zip(expected) {
                    add(&mut squares.mask, Goldilocks::sub(*word, expected));
                }
            }
        }
    }
    Ok(())
}
