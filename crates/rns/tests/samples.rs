//! Samples to columns and back, at degrees that protect nothing.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use toroid_rns::batch::{self, Batch, Input, Step, Turns};
use toroid_rns::format::Reader;
use toroid_rns::ring_set::{RING8, RING12, RING16, TINY_RING, TINY_RING9};
use toroid_rns::samples::{GADGET, Padding, SampleKeys, column_variance, sample_variance};
use toroid_rns::search::LOG2_FAILURE;
use toroid_rns::stored::{Layout, Statement, StoredColumn};
use toroid_rns::table::Table;
use toroid_rns::{Ciphertext, Context, RnsParams, SecretKey, Shape, column, noise};
use toroid_task::{CancelToken, Cancelled, Progress};
use toroid_tfhe::column::{Chunk, ColumnForm, packed_rounding};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::{StatedNoise, log2_decoding_failure};
use toroid_tfhe::params::{Gadget, MESSAGE8, MESSAGE14, MESSAGE16, TINY, TINY_WOPBS};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::{ClientKey, ciphertext};

const BITS: u32 = 9;
const DEGREE: usize = 1 << 11;
/// Rows of a chunk.
const ROWS: usize = 128;
/// A gadget whose keys, not its rounding, make the noise.
const COARSE: Gadget = Gadget {
    levels: 2,
    log2_base: 17,
};

struct Bench {
    client: ClientKey,
    secret: SecretKey,
    keys: SampleKeys,
    rng: Csprng,
}

fn bench(gadget: Gadget) -> Bench {
    let params = RnsParams::search(&Shape {
        degree: DEGREE,
        chain_bits: vec![42],
        special_bits: vec![50],
        digit_limbs: 1,
    });
    let context = Context::new(params.unwrap()).unwrap();
    let mut rng = Csprng::from_seed([21; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::generate(&context, &mut rng);
    let keys = SampleKeys::generate(&client, &secret, gadget, &mut rng).unwrap();
    Bench {
        client,
        secret,
        keys,
        rng,
    }
}

impl Bench {
    fn params(&self) -> &RnsParams {
        self.secret.context().params()
    }

    fn messages(&mut self) -> Vec<u32> {
        (0..DEGREE)
            .map(|_| (self.rng.next_u64() >> (64 - BITS)) as u32)
            .collect()
    }

    /// The messages in fresh chunks, in their order.
    fn chunks(&mut self, messages: &[u32]) -> Vec<Chunk> {
        let encoding = Encoding::new(BITS, false).unwrap();
        let chunk = |rows: &[u32]| {
            let rows: Vec<i64> = rows.iter().map(|m| i64::from(*m)).collect();
            let bytes = self.client.encrypt_chunk(&rows, encoding, &mut self.rng);
            Chunk::new(&TINY_WOPBS, ColumnForm::Seeded, &bytes.unwrap(), rows.len()).unwrap()
        };
        messages.chunks(ROWS).map(chunk).collect()
    }

    fn layout(&self, padding: Padding) -> Layout {
        Layout {
            bits: BITS,
            padding: padding == Padding::Keep,
            log2_pieces: self.keys.pieces().ilog2(),
        }
    }

    /// The mean square by which a column's rows are off their messages, in turns.
    fn column_noise(&self, column: &Ciphertext, messages: &[u32], padding: Padding) -> f64 {
        let phases = self.secret.decrypt(column).unwrap().poly().to_i128();
        let q = self.params().chain[0] as f64;
        let layout = self.layout(padding);
        let unit = (-f64::from(layout.places())).exp2();
        let squares = messages.iter().enumerate().map(|(row, message)| {
            let phase = phases[layout.coefficient(DEGREE, row)] as f64 / q;
            let off = phase - f64::from(*message) * unit;
            (off - off.round()).powi(2)
        });
        squares.sum::<f64>() / messages.len() as f64
    }

    /// The mean square by which samples are off their messages, in turns, whatever their padding.
    fn sample_noise(&self, chunks: &[Chunk], messages: &[u32]) -> f64 {
        let unit = (-f64::from(BITS) - 1.0).exp2();
        let mut sample = vec![0; TINY_WOPBS.lwe_bytes()];
        let squares = messages.iter().enumerate().map(|(row, message)| {
            let at = row % ROWS;
            chunks[row / ROWS].expand(at..at + 1, &mut sample).unwrap();
            let off = self.client.phase(&sample).unwrap() - f64::from(*message) * unit;
            (off - (2.0 * off).round() / 2.0).powi(2)
        });
        squares.sum::<f64>() / messages.len() as f64
    }
}

/// Mean squares of 2048 numbers scatter by 3 %, keys of 256 bits and of 2048 trits by 6 % and 2 % in what they make of rounding.
fn ratio(what: &str, found: f64, expected: f64) {
    let ratio = found / expected;
    assert!((0.8..1.25).contains(&ratio), "{what}: {ratio}");
}

#[test]
fn samples_become_columns_with_the_noise_of_the_formula() {
    for gadget in [GADGET, COARSE] {
        let mut bench = bench(gadget);
        let messages = bench.messages();
        let chunks = bench.chunks(&messages);
        for padding in [Padding::Keep, Padding::Drop] {
            let column = bench.keys.to_column(&chunks, padding).unwrap();
            let fresh = (2.0 * TINY_WOPBS.log2_glwe_noise).exp2();
            let expected = column_variance(bench.params(), &TINY_WOPBS, gadget, padding, fresh);
            let found = bench.column_noise(&column, &messages, padding);
            ratio("to a column", found, expected);

            let statement = Statement {
                log2_variance: Some(expected.log2() as f32),
                log2_failure: None,
            };
            let (layout, tag) = (bench.layout(padding), *bench.secret.tag());
            let stored = StoredColumn::of_ciphertext(&column, layout, DEGREE, tag, statement);
            assert_eq!(stored.unwrap().decrypt(&bench.secret).unwrap(), messages);
        }
    }
}

#[test]
fn columns_become_samples_with_the_noise_of_the_formula() {
    for gadget in [GADGET, COARSE] {
        let mut bench = bench(gadget);
        let messages = bench.messages();
        for padding in [Padding::Keep, Padding::Drop] {
            let layout = bench.layout(padding);
            let mut placed = vec![0; DEGREE];
            for (row, message) in messages.iter().enumerate() {
                placed[layout.coefficient(DEGREE, row)] = *message;
            }
            let column =
                column::encrypt(&bench.secret, layout.places(), &placed, &mut bench.rng).unwrap();
            let chunks = bench.keys.to_chunks(&column, padding).unwrap();
            let q = bench.params().chain[0] as f64;
            let fresh = noise::fresh(bench.params()) / (q * q);
            let expected = sample_variance(bench.params(), &TINY_WOPBS, gadget, padding, fresh);
            ratio(
                "to samples",
                bench.sample_noise(&chunks, &messages),
                expected,
            );
            if padding == Padding::Keep {
                let encoding = Encoding::new(BITS, false).unwrap();
                for (chunk, own) in chunks.iter().zip(messages.chunks(ROWS)) {
                    let read = bench.client.decrypt_chunk(chunk, encoding).unwrap();
                    assert!(read.iter().zip(own).all(|(read, m)| *read == i64::from(*m)));
                }
            }
        }
    }
}

#[test]
fn a_stored_column_goes_through_a_bootstrap_of_samples() {
    let mut bench = bench(GADGET);
    let server = bench.client.server_key().unwrap();
    let encoding = Encoding::new(BITS, false).unwrap();
    let messages = bench.messages();
    let layout = bench.layout(Padding::Drop);
    let fresh = StoredColumn::encrypt(&bench.secret, layout, &messages, &mut bench.rng).unwrap();
    let context = Arc::clone(bench.secret.context());
    let column = fresh.to_ciphertext(&context).unwrap();
    let (known, tag) = (fresh.statement(), *bench.secret.tag());
    let computed = StoredColumn::of_ciphertext(&column, layout, DEGREE, tag, known).unwrap();
    let column = computed.to_ciphertext(&context).unwrap();
    let chunks = bench.keys.to_chunks(&column, Padding::Drop).unwrap();
    // Rounding at rest, of the fresh column and of the computed one, is what decides; samples are half of it.
    let log2_variance = computed.statement().log2_variance.unwrap();
    let expected = f64::from(log2_variance).exp2() / 4.0;
    ratio("at rest", bench.sample_noise(&chunks, &messages), expected);
    for row in [0, 1, ROWS, DEGREE - 1] {
        let mut sample = vec![0; TINY_WOPBS.lwe_bytes()];
        let at = row % ROWS;
        chunks[row / ROWS].expand(at..at + 1, &mut sample).unwrap();
        let noise = StatedNoise {
            log2_variance: Some(expected.log2()),
            ..StatedNoise::fresh(&TINY_WOPBS)
        };
        let x = ciphertext::Ciphertext::from_sample(&TINY_WOPBS, Some(encoding), &sample, noise);
        let x = x.unwrap().with_tag(*bench.client.tag());
        let result = server.apply(|m| (m * 37 + 5) % 512, &x).unwrap();
        let expected = (i64::from(messages[row]) * 37 + 5) % 512;
        assert_eq!(bench.client.decrypt(&result).unwrap(), expected);
    }
}

#[test]
fn keys_come_back_and_others_are_refused() {
    let mut bench = bench(GADGET);
    let none = Progress::none();
    let context = Arc::clone(bench.secret.context());
    let file = bench.keys.write_to(Vec::new(), &none).unwrap();
    let read = |file: &[u8], progress: &Progress| {
        SampleKeys::read_from(Reader::new(file)?, &context, progress)
    };
    let back = read(&file, &none).unwrap();
    assert!(back.write_to(Vec::new(), &none).unwrap() == file);
    assert_eq!(back.tag(), bench.secret.tag());
    assert_eq!(back.client_tag(), bench.client.tag());
    let messages = bench.messages();
    let chunks = bench.chunks(&messages);
    let [column, again] = [&bench.keys, &back].map(|keys| {
        let column = keys.to_column(&chunks, Padding::Drop).unwrap();
        let samples = keys.to_chunks(&column, Padding::Drop).unwrap();
        (column, samples[3].glwe().unwrap().to_vec())
    });
    assert!(column == again);

    let refused = |file: &[u8], words: &str| {
        let error = read(file, &none).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    };
    let header = |at: usize, byte: u8| {
        let mut file = file.clone();
        file[at] = byte;
        let crc = crc32c::crc32c(&file[..60]);
        file[60..64].copy_from_slice(&crc.to_le_bytes());
        file
    };
    refused(&header(12, 99), "unknown identifier 99");
    refused(
        &header(12, TINY.id as u8),
        "tiny, which has no shared masks",
    );
    refused(&header(14, 1), "reserved bytes of the header");
    refused(&header(10, 34), "the parameter set of samples is 9, not 0");
    refused(&header(10, 40), "kind of object is 40");
    let cancel = CancelToken::new();
    cancel.cancel();
    assert!(read(&file, &Progress::from(cancel)).is_err());

    let wide = Gadget {
        levels: 5,
        log2_base: 11,
    };
    let keys = SampleKeys::generate(&bench.client, &bench.secret, wide, &mut bench.rng);
    assert!(keys.err().unwrap().to_string().contains("the gadget"));
    let programmable = ClientKey::generate(&TINY, &mut bench.rng);
    let keys = SampleKeys::generate(&programmable, &bench.secret, GADGET, &mut bench.rng);
    assert!(keys.is_err());
    let many: Vec<Chunk> = chunks.iter().chain(&chunks[..1]).cloned().collect();
    let column = bench.keys.to_column(&many, Padding::Keep);
    assert!(
        column
            .err()
            .unwrap()
            .to_string()
            .contains("the chunks are 17")
    );
}

/// Each turn at once.
struct AtOnce;

impl Turns for AtOnce {
    fn turn(&self, _: u64, work: &mut (dyn FnMut() + Send)) -> Result<(), Cancelled> {
        work();
        Ok(())
    }
}

/// Samples, a table in a ring, samples: with the noise of the formulas, and the bit of padding that samples have.
#[test]
fn samples_go_through_a_table_and_back() {
    let set = &TINY_RING9;
    let mut rng = Csprng::from_seed([22; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(set, &client).unwrap();
    let none = Progress::none();
    let keys = SampleKeys::generate(&client, &secret, GADGET, &mut rng).unwrap();
    let file = keys.write_to(Vec::new(), &none).unwrap();
    let bytes = SampleKeys::file_bytes(set, &TINY_WOPBS).unwrap();
    assert_eq!(file.len() as u64, bytes);
    let (of_set, keys) = SampleKeys::read_of_set(file.as_slice(), &none).unwrap();
    assert_eq!(of_set, set);
    let file = batch::write_keys(Vec::new(), set, &secret, &mut rng, &none).unwrap();
    let ring = Batch::read_from(file.as_slice(), &none).unwrap();

    let encoding = Encoding::new(BITS, false).unwrap();
    let messages: Vec<i64> = (0..set.rows() as i64).map(|row| row * 37 % 512).collect();
    let chunks = messages.chunks(ROWS).map(|rows| {
        let bytes = client.encrypt_chunk(rows, encoding, &mut rng).unwrap();
        Chunk::new(&TINY_WOPBS, ColumnForm::Seeded, &bytes, rows.len()).unwrap()
    });
    let chunks: Vec<Chunk> = chunks.collect();
    let f = |m: u32| m.wrapping_mul(m).wrapping_mul(0x9e37_79b9) >> 23;
    let table = Table::new(BITS, BITS, (0..512).map(f).collect());
    let steps = [
        Step::Input(0),
        Step::Tables(0, vec![table.unwrap().padded()]),
    ];
    let input = [Input::Samples(&chunks, &keys)];
    let value = ring.run(&input, &steps, 1, &AtOnce).unwrap();
    let made = keys.to_chunks(&value, Padding::Keep).unwrap();

    let expected: Vec<i64> = messages.iter().map(|m| f(*m as u32).into()).collect();
    let mut found = Vec::new();
    for chunk in &made {
        found.extend(client.decrypt_chunk(chunk, encoding).unwrap());
    }
    assert_eq!(found, expected);
    let params = set.params();
    let fresh = (2.0 * TINY_WOPBS.log2_glwe_noise).exp2();
    let column = column_variance(params, &TINY_WOPBS, GADGET, Padding::Drop, fresh);
    let (result, _) = set.table_noise(column);
    let formula = sample_variance(params, &TINY_WOPBS, GADGET, Padding::Keep, result);
    let mut sample = vec![0; TINY_WOPBS.lwe_bytes()];
    let mut squares = 0.0;
    for (row, message) in expected.iter().enumerate() {
        let at = row % ROWS;
        made[row / ROWS].expand(at..at + 1, &mut sample).unwrap();
        let off = client.phase(&sample).unwrap() - *message as f64 / 1024.0;
        squares += (off - off.round()).powi(2);
    }
    // The formula of a table is an upper bound.
    let ratio = squares / expected.len() as f64 / formula;
    assert!((1e-4..1.25).contains(&ratio), "{ratio}");
}

#[test]
fn keys_of_no_ring_or_of_another_gadget_are_refused() {
    let none = Progress::none();
    let bench = bench(GADGET);
    let refused = |file: &[u8], words: &str| {
        let error = SampleKeys::read_of_set(file, &none).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
    };
    let file = bench.keys.write_to(Vec::new(), &none).unwrap();
    refused(&file, "no set of this version");
    let mut rng = Csprng::from_seed([24; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(&TINY_RING9, &client).unwrap();
    let keys = SampleKeys::generate(&client, &secret, COARSE, &mut rng).unwrap();
    refused(&keys.write_to(Vec::new(), &none).unwrap(), "the gadget");
    let error = keys.expect_set(&MESSAGE16).unwrap_err().to_string();
    assert!(error.contains("tiny-wopbs, not message16"), "{error}");
}

/// Fresh samples, a table in the ring, and samples again: every step of it, and the numbers read at its end. Without a bit of padding
/// the table sees 2^-b between messages, and the samples that it makes have 2^-(b+1).
#[test]
fn the_way_of_samples_through_a_table_fails_less_than_promised() {
    for (set, samples, bits) in [
        (&RING8, &MESSAGE8, 8),
        (&RING12, &MESSAGE14, 12),
        (&RING16, &MESSAGE14, 14),
        (&RING16, &MESSAGE16, 16),
        (&TINY_RING, &TINY_WOPBS, 4),
        (&TINY_RING9, &TINY_WOPBS, 9),
    ] {
        let params = set.params();
        let fresh = (2.0 * samples.log2_glwe_noise).exp2();
        let column = column_variance(params, samples, GADGET, Padding::Drop, fresh);
        // A sum of two columns, too.
        let (result, table) = set.table_noise(2.0 * column);
        assert!(table <= LOG2_FAILURE, "{}: {table}", set.name);
        let back = sample_variance(params, samples, GADGET, Padding::Keep, result)
            + packed_rounding(samples).unwrap();
        let rows = (set.rows() as f64).log2();
        let read = log2_decoding_failure(bits, back, f64::NEG_INFINITY) + rows;
        assert!(read <= LOG2_FAILURE, "{} {bits}: {read}", set.name);
    }
}
