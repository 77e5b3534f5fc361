//! Columns at rest and conversions at full size, one thread: `cargo run --release -p toroid-rns --example convert [-- BITS]`.
//!
//! Times, bytes, and noise beside its formulas, for columns of 65536 numbers and samples of `message16`.

use std::error::Error;
use std::time::Instant;

use toroid_rns::column;
use toroid_rns::context::Context;
use toroid_rns::evaluation::{EvaluationKeys, KeyRequest};
use toroid_rns::format::Reader;
use toroid_rns::modulus_switch::{COMPUTED_NORM, log2_failure};
use toroid_rns::samples::{GADGET, Padding, SampleKeys, column_variance, sample_variance};
use toroid_rns::stored::{Layout, Statement, StoredColumn, computed_variance};
use toroid_rns::{Ciphertext, RnsParams, SecretKey, Shape};
use toroid_task::Progress;
use toroid_tfhe::ClientKey;
use toroid_tfhe::column::{Chunk, ColumnForm};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::MESSAGE16;
use toroid_tfhe::random::Csprng;

const DEGREE: usize = 1 << 16;

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what}: {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}

/// The mean square of what rows are off their messages by, at unit 2^-places.
fn column_noise(
    secret: &SecretKey,
    column: &Ciphertext,
    layout: Layout,
    messages: &[u32],
) -> Result<f64, Box<dyn Error>> {
    let phases = secret.decrypt(column)?.poly().to_i128();
    let q = secret.context().params().chain[0] as f64;
    let unit = (-f64::from(layout.places())).exp2();
    let squares = messages.iter().enumerate().map(|(row, message)| {
        let phase = phases[layout.coefficient(DEGREE, row)] as f64 / q;
        let off = phase - f64::from(*message) * unit;
        (off - off.round()).powi(2)
    });
    Ok(squares.sum::<f64>() / messages.len() as f64)
}

fn sample_noise(
    client: &ClientKey,
    chunks: &[Chunk],
    bits: u32,
    messages: &[u32],
) -> Result<f64, Box<dyn Error>> {
    let rows = MESSAGE16.ring_degree;
    let unit = (-f64::from(bits) - 1.0).exp2();
    let mut sample = vec![0; MESSAGE16.lwe_bytes()];
    let mut sum = 0.0;
    for (row, message) in messages.iter().enumerate() {
        let at = row % rows;
        chunks[row / rows].expand(at..at + 1, &mut sample)?;
        let off = client.phase(&sample)? - f64::from(*message) * unit;
        sum += (off - (2.0 * off).round() / 2.0).powi(2);
    }
    Ok(sum / messages.len() as f64)
}

/// A measured variance beside that of its formula: both deviations, and their ratio.
fn beside(what: &str, found: f64, formula: f64) {
    println!(
        "{what}: deviation 2^{:.2}, by the formula 2^{:.2}, ratio {:.3}",
        found.log2() / 2.0,
        formula.log2() / 2.0,
        (found / formula).sqrt()
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let bits: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(16), |bits| bits.parse())?;
    let context = Context::new(RnsParams::search(&Shape {
        degree: DEGREE,
        chain_bits: vec![42; 3],
        special_bits: vec![50; 3],
        digit_limbs: 3,
    })?)?;
    let params = context.params().clone();
    let mut rng = Csprng::from_os()?;
    let secret = SecretKey::generate(&context, &mut rng);
    let client = ClientKey::generate(&MESSAGE16, &mut rng);
    let messages: Vec<u32> = (0..DEGREE)
        .map(|_| (rng.next_u64() >> (64 - bits)) as u32)
        .collect();
    let none = Progress::none();

    println!("# {bits} bits at rest");
    let layout = Layout::plain(bits);
    let fresh = timed("encrypt", || {
        StoredColumn::encrypt(&secret, layout, &messages, &mut rng)
    })?;
    let column = timed("read a fresh column", || fresh.to_ciphertext(&context))?;
    let known = fresh
        .statement()
        .log2_variance
        .map_or(0.0, f64::from)
        .exp2();
    beside(
        "fresh",
        column_noise(&secret, &column, layout, &messages)?,
        known,
    );
    let plain = column::encrypt(&secret, bits, &messages, &mut rng)?;
    let unknown = Statement {
        log2_variance: None,
        log2_failure: None,
    };
    let computed = timed("store a computed column", || {
        StoredColumn::of_ciphertext(&plain, layout, DEGREE, *secret.tag(), unknown)
    })?;
    let bytes = timed("write it", || computed.to_bytes());
    let computed = timed("parse it", || StoredColumn::from_bytes(&bytes))?;
    let column = timed("read it", || computed.to_ciphertext(&context))?;
    let formula = computed_variance(&params, layout, 0.0);
    beside(
        "computed",
        column_noise(&secret, &column, layout, &messages)?,
        formula,
    );
    println!(
        "log2 of a batch's failure, sums of {COMPUTED_NORM}: {:.0}",
        log2_failure(&params, bits, COMPUTED_NORM * formula)
    );
    for (name, column) in [("fresh", &fresh), ("computed", &computed)] {
        let per = column.to_bytes().len() as f64 / DEGREE as f64;
        println!("{name}: {} bits, {per:.3} bytes a number", column.width());
    }
    if fresh.decrypt(&secret)? != messages || computed.decrypt(&secret)? != messages {
        return Err("a column at rest has other messages".into());
    }

    println!("# samples of {}", MESSAGE16.name);
    let keys = timed("generate keys", || {
        SampleKeys::generate(&client, &secret, GADGET, &mut rng)
    })?;
    let file = keys.write_to(Vec::new(), &none)?;
    println!("keys: {} bytes", file.len());
    let keys = timed("read keys", || {
        SampleKeys::read_from(Reader::new(file.as_slice())?, &context, &none)
    })?;
    let encoding = Encoding::new(bits, false)?;
    let chunks = messages
        .chunks(MESSAGE16.ring_degree)
        .map(|rows| {
            let rows: Vec<i64> = rows.iter().map(|m| i64::from(*m)).collect();
            let bytes = client.encrypt_chunk(&rows, encoding, &mut rng)?;
            Ok(Chunk::new(
                &MESSAGE16,
                ColumnForm::Seeded,
                &bytes,
                rows.len(),
            )?)
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let layout = Layout {
        log2_pieces: keys.pieces().ilog2(),
        ..layout
    };
    let drop = Padding::Drop;
    let column = timed("64 chunks to a column", || keys.to_column(&chunks, drop))?;
    let samples = (2.0 * MESSAGE16.log2_glwe_noise).exp2();
    let formula = column_variance(&params, &MESSAGE16, GADGET, drop, samples);
    beside(
        "column",
        column_noise(&secret, &column, layout, &messages)?,
        formula,
    );
    let back = timed("the column to 64 chunks", || keys.to_chunks(&column, drop))?;
    let formula = sample_variance(&params, &MESSAGE16, GADGET, drop, formula);
    beside(
        "samples",
        sample_noise(&client, &back, bits, &messages)?,
        formula,
    );

    println!("# evaluation keys of 3 limbs");
    let request = KeyRequest {
        relinearization: Some(3),
        conjugation: Some(3),
        rotations: (0..14).map(|i| (1 << i, 3)).collect(),
        mod_raise: true,
    };
    let file = timed("generate and write", || {
        EvaluationKeys::generate_to(Vec::new(), &secret, &request, &mut rng, &none)
    })?;
    let keys = timed("read", || {
        EvaluationKeys::read_from(Reader::new(file.as_slice())?, &context, &none)
    })?;
    let (file, memory) = (file.len() as f64 / 1e6, keys.memory() as f64 / 1e6);
    println!("{file:.1} MB in a file, {memory:.1} MB in memory");
    Ok(())
}
