//! Ring keys in their registers, and programs on ring columns.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::Arc;

use common::{COMMAND, cor, vr};
use toroid_engine::backend::RingOperand;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::{
    Attributes, BackendError, CancelToken, Engine, EngineConfig, EngineError, KeyKind,
    MadeRingColumn, MemorySwap, Part, RingForm, RingInput, RingJob, RingRows, StoreOutcome,
};
use toroid_isa::{Program, VrNumber};
use toroid_rns::batch::{MATRIX_BYTES, write_keys};
use toroid_rns::ring_set::{RingSet, TINY_RING, TINY_RING9};
use toroid_rns::samples::{GADGET, SampleKeys};
use toroid_rns::stored::{Layout, StoredColumn};
use toroid_rns::{Batch, Context, EvaluationKeys, KeyRequest, SecretKey};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{Chunk, Column, ColumnForm};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::TINY_WOPBS;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::{ClientKey, glwe};

const SET: &RingSet = &TINY_RING;

/// Room for two ring keys, but not for three.
fn engine() -> Engine {
    let config = EngineConfig {
        persistent_bytes: 5 * MATRIX_BYTES as u64 / 2,
        ..EngineConfig::default()
    };
    let backend = CpuBackend::with_cores(ArithmeticKind::Ntt, 1);
    Engine::new(config, Arc::new(backend), Arc::new(MemorySwap::new()))
}

fn ring_key(key_id: u32) -> VrNumber {
    VrNumber::key(key_id, KeyKind::Ring).unwrap()
}

/// Stores a key in parts of so many bytes.
fn store(engine: &Engine, key_id: u32, bytes: &[u8], part: usize) -> Result<(), EngineError> {
    let mut outcome = StoreOutcome::Incomplete;
    for (number, piece) in bytes.chunks(part).enumerate() {
        outcome = engine.store_part(&Part {
            context: COMMAND,
            vr: ring_key(key_id),
            params: &TINY_WOPBS,
            total_size: bytes.len() as u64,
            offset: (number * part) as u64,
            bytes: piece,
            attributes: Attributes::default(),
        })?;
    }
    assert_eq!(outcome, StoreOutcome::Complete);
    Ok(())
}

fn attributes() -> Attributes {
    Attributes {
        encoding: Encoding::new(4, false).ok(),
        log2_variance: Some(-30.0),
        ..Attributes::default()
    }
}

/// Runs `return x` for a key id on a column.
fn run(
    engine: &Engine,
    key_id: u32,
    column: &StoredColumn,
    cancel: &CancelToken,
) -> Result<StoredColumn, EngineError> {
    let text = format!(".key {key_id}\n.reg x = cor:1\n    homintadd x, 3\n    return x\n");
    let assembly = toroid_isa::assemble(&text).unwrap();
    let program: Program = assembly.program;
    let inputs = [RingInput {
        vr: cor(key_id, 1),
        attributes: attributes(),
        operand: RingOperand::Column(column),
    }];
    let job = RingJob {
        program_vr: vr(&format!("prg:{key_id}:0")),
        program: &program,
        set: SET,
        inputs: &inputs,
        form: RingForm::Column,
        kept: None,
    };
    let made = engine.map_ring(&job, 1 << 20, cancel)?;
    assert_eq!(made.facts.bootstraps, 0);
    match made.rows {
        RingRows::Column(column) => Ok(column),
        RingRows::Samples(_) => panic!("samples in place of a ring column"),
    }
}

#[test]
fn ring_keys_come_in_parts_and_go_when_others_need_their_room() {
    let mut rng = Csprng::from_seed([7; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(SET, &client).unwrap();
    let key = write_keys(Vec::new(), SET, &secret, &mut rng, &Progress::none()).unwrap();
    let batch = Batch::read_from(key.as_slice(), &Progress::none()).unwrap();
    assert!((MATRIX_BYTES as u64..9 * MATRIX_BYTES as u64 / 8).contains(&batch.memory()));
    let messages: Vec<u32> = (0..100).map(|row| row % 16).collect();
    let place = (Layout::plain(4), SET.seeded_width);
    let column = StoredColumn::encrypt_in(&secret, place, &messages, &mut rng).unwrap();
    let go_on = CancelToken::new();

    let engine = engine();
    let missing = run(&engine, 0, &column, &go_on).unwrap_err();
    assert!(matches!(missing, EngineError::MissingRingKey { vr } if vr == ring_key(0)));
    // Damage anywhere, a key that ends early, and one that goes on.
    let mut damaged = key.clone();
    damaged[key.len() / 2] ^= 1;
    let longer = [&key[..], &[0; 5000]].concat();
    for bytes in [&damaged[..], &key[..key.len() - 1], &longer[..]] {
        let error = store(&engine, 0, bytes, 4096).unwrap_err();
        let is_malformed = matches!(
            error,
            EngineError::Backend {
                source: BackendError::MalformedKey { .. },
                ..
            }
        );
        assert!(is_malformed, "{error:?}");
        assert!(engine.info(ring_key(0)).is_none());
    }
    store(&engine, 0, &key, 4096).unwrap();
    store(&engine, 1, &key, 100_000).unwrap();
    // The first is used, so that the second has to go.
    let made = run(&engine, 0, &column, &go_on).unwrap();
    let expected: Vec<u32> = messages.iter().map(|m| (m + 3) % 16).collect();
    assert_eq!(made.decrypt(&secret).unwrap(), expected);
    store(&engine, 2, &key, key.len()).unwrap();
    let held = [0, 1, 2].map(|key_id| engine.info(ring_key(key_id)).is_some());
    assert_eq!(held, [true, false, true]);

    // Columns that are not what is stated, of another key, and the end.
    let other = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let other = SecretKey::derive(SET, &other).unwrap();
    let theirs = StoredColumn::encrypt_in(&other, place, &messages, &mut rng).unwrap();
    let error = run(&engine, 0, &theirs, &go_on).unwrap_err().to_string();
    assert!(
        error.contains("another key") || error.contains("back end"),
        "{error}"
    );
    let narrow = (Layout::plain(3), SET.seeded_width);
    let narrow = StoredColumn::encrypt_in(&secret, narrow, &[1, 2], &mut rng).unwrap();
    let error = run(&engine, 0, &narrow, &go_on).unwrap_err();
    assert!(matches!(error, EngineError::Column { .. }), "{error}");
}

/// A ring whose primes are not those of its set, as those of another version are not.
#[test]
fn ring_keys_and_columns_of_another_version_are_refused() {
    let mut rng = Csprng::from_seed([8; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(SET, &client).unwrap();
    let key = write_keys(Vec::new(), SET, &secret, &mut rng, &Progress::none()).unwrap();
    let mut params = SET.params().clone();
    params.chain.pop();
    let other = SecretKey::generate(&Context::new(params).unwrap(), &mut rng);
    let request = KeyRequest {
        conjugation: Some(1),
        ..KeyRequest::default()
    };
    let none = Progress::none();
    let theirs = EvaluationKeys::generate_to(Vec::new(), &other, &request, &mut rng, &none);
    let place = (Layout::plain(4), SET.seeded_width);
    let column = StoredColumn::encrypt_in(&other, place, &[1, 2, 3], &mut rng).unwrap();

    let engine = engine();
    let error = store(&engine, 0, &theirs.unwrap(), 4096).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("make the keys again"), "{error}");
    assert!(engine.info(ring_key(0)).is_none());
    store(&engine, 0, &key, 4096).unwrap();
    let error = run(&engine, 0, &column, &CancelToken::new()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("encrypt the column again"), "{error}");
}

fn conversion_key(key_id: u32) -> VrNumber {
    VrNumber::key(key_id, KeyKind::Conversion).unwrap()
}

/// Stores a whole object in a register.
fn put(
    engine: &Engine,
    vr: VrNumber,
    bytes: &[u8],
    attributes: Attributes,
) -> Result<(), EngineError> {
    let outcome = engine.store_part(&Part {
        context: COMMAND,
        vr,
        params: &TINY_WOPBS,
        total_size: bytes.len() as u64,
        offset: 0,
        bytes,
        attributes,
    })?;
    assert_eq!(outcome, StoreOutcome::Complete);
    Ok(())
}

/// A client key with its keys of the ring on an engine.
struct Converting {
    engine: Engine,
    client: ClientKey,
    conversion: Vec<u8>,
    rng: Csprng,
}

impl Converting {
    fn new() -> Converting {
        let mut rng = Csprng::from_seed([17; 32]);
        let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
        let secret = SecretKey::derive(SET, &client).unwrap();
        let none = Progress::none();
        let ring = write_keys(Vec::new(), SET, &secret, &mut rng, &none).unwrap();
        let keys = SampleKeys::generate(&client, &secret, GADGET, &mut rng).unwrap();
        let conversion = keys.write_to(Vec::new(), &none).unwrap();
        let engine = engine();
        store(&engine, 0, &ring, ring.len()).unwrap();
        Converting {
            engine,
            client,
            conversion,
            rng,
        }
    }

    /// The numbers in fresh chunks of so many rows.
    fn chunks(&mut self, numbers: &[i64], encoding: Encoding, rows: usize) -> Vec<Chunk> {
        let chunk = |numbers: &[i64]| {
            let bytes = self.client.encrypt_chunk(numbers, encoding, &mut self.rng);
            Chunk::new(
                &TINY_WOPBS,
                ColumnForm::Seeded,
                &bytes.unwrap(),
                numbers.len(),
            )
            .unwrap()
        };
        numbers.chunks(rows).map(chunk).collect()
    }

    /// Runs a program on chunks that stand in x, with the functions of its text.
    fn run(
        &self,
        body: &str,
        input: (&[Chunk], Encoding),
        form: RingForm,
    ) -> Result<MadeRingColumn, EngineError> {
        self.run_in(body, input, form, None)
    }

    /// The same in some rows alone.
    fn run_in(
        &self,
        body: &str,
        (chunks, encoding): (&[Chunk], Encoding),
        form: RingForm,
        kept: Option<&[bool]>,
    ) -> Result<MadeRingColumn, EngineError> {
        let sign = if encoding.is_signed() {
            ""
        } else {
            " unsigned"
        };
        let text =
            format!(".reg x = cor:1\n.tv f{sign} in=4 out=4 = 3 - x\n{body}\n    return x\n");
        let assembly = toroid_isa::assemble(&text).unwrap();
        for vector in &assembly.test_vectors {
            let table = vector.table(TINY_WOPBS.message_bits).unwrap();
            let bytes = glwe::function_bytes(&TINY_WOPBS, encoding, encoding, &table).unwrap();
            let attributes = Attributes {
                encoding: Some(encoding),
                ..Attributes::default()
            };
            put(&self.engine, vector.vr, &bytes, attributes).unwrap();
        }
        let inputs = [RingInput {
            vr: cor(0, 1),
            attributes: Attributes {
                encoding: Some(encoding),
                log2_variance: Some(2.0 * TINY_WOPBS.log2_glwe_noise),
                ..Attributes::default()
            },
            operand: RingOperand::Samples(chunks),
        }];
        let job = RingJob {
            program_vr: vr("prg:0:0"),
            program: &assembly.program,
            set: SET,
            inputs: &inputs,
            form,
            kept,
        };
        self.engine.map_ring(&job, 1 << 20, &CancelToken::new())
    }

    /// Decrypts what a run in a form has made.
    fn decrypt(&self, made: &MadeRingColumn, encoding: Encoding) -> Vec<i64> {
        match &made.rows {
            RingRows::Samples(bytes) => {
                let column = Column::new(&TINY_WOPBS, bytes).unwrap();
                let chunk = |number| {
                    let chunk = column.chunk_of(number).unwrap();
                    self.client.decrypt_chunk(&chunk, encoding).unwrap()
                };
                let segments = column.header().segments().len();
                (0..segments).flat_map(chunk).collect()
            }
            RingRows::Column(column) => {
                let secret = SecretKey::derive(SET, &self.client).unwrap();
                let first = encoding.messages().start;
                let messages = column.decrypt(&secret).unwrap().into_iter();
                let number = |m: u32| (i64::from(m) - first).rem_euclid(16) + first;
                messages.map(number).collect()
            }
        }
    }
}

/// Samples become a ring column, a function is applied, and the result stays one or becomes samples: signed or not, of full chunks and a part of one.
#[test]
fn samples_become_ring_columns_and_samples_again() {
    let mut bench = Converting::new();
    let missing = conversion_key(0);
    for signed in [false, true] {
        let encoding = Encoding::new(4, signed).unwrap();
        let first = encoding.messages().start;
        let numbers: Vec<i64> = (0..200).map(|row| (row * 7) % 16 + first).collect();
        let f = |x: &i64| (3 - x - first).rem_euclid(16) + first;
        let expected: Vec<i64> = numbers.iter().map(f).collect();
        let chunks = bench.chunks(&numbers, encoding, 128);
        let input = (&chunks[..], encoding);
        if !signed {
            // Not before there is a key for it, and not with what is no such key.
            let error = bench.run("    bootstrap f, x", input, RingForm::Column);
            let error = error.unwrap_err();
            let is_missing =
                matches!(error, EngineError::MissingConversionKey { vr } if vr == missing);
            assert!(is_missing, "{error:?}");
            assert!(
                error.to_string().contains("needs conversion keys"),
                "{error}"
            );
            let mut damaged = bench.conversion.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            let short = &bench.conversion[..bench.conversion.len() - 1];
            for bytes in [&damaged[..], short] {
                let error = put(&bench.engine, missing, bytes, Attributes::default());
                let is_malformed = matches!(
                    error,
                    Err(EngineError::Backend {
                        source: BackendError::MalformedKey { .. },
                        ..
                    })
                );
                assert!(is_malformed, "{error:?}");
                assert!(bench.engine.info(missing).is_none());
            }
            let key = bench.conversion.clone();
            put(&bench.engine, missing, &key, Attributes::default()).unwrap();
        }
        for form in [RingForm::Column, RingForm::Samples] {
            let made = bench.run("    bootstrap f, x", input, form).unwrap();
            assert_eq!(made.facts.outputs[0].rows, 200);
            assert!(made.facts.outputs[0].noise.log2_failure() < -120.0);
            assert_eq!(bench.decrypt(&made, encoding), expected, "{form:?}");
            let plain = made.facts.outputs[0].noise.variance();

            // Rows that are left out have 0.
            let kept: Vec<bool> = (0..200).map(|row| row % 7 > 3).collect();
            let made = bench.run_in("    bootstrap f, x", input, form, Some(&kept));
            let made = made.unwrap();
            assert!(made.facts.outputs[0].noise.log2_failure() < -120.0);
            assert!(made.facts.outputs[0].noise.variance() > plain);
            let rows = expected.iter().zip(&kept);
            let rows = rows.map(|(value, kept)| if *kept { *value } else { 0 });
            let rows: Vec<i64> = rows.collect();
            assert_eq!(bench.decrypt(&made, encoding), rows, "{form:?}");
        }
    }
}

#[test]
fn what_does_not_go_between_samples_and_a_ring_is_refused() {
    let mut bench = Converting::new();
    let key = bench.conversion.clone();
    put(
        &bench.engine,
        conversion_key(0),
        &key,
        Attributes::default(),
    )
    .unwrap();
    let encoding = Encoding::new(4, false).unwrap();
    let chunks = bench.chunks(&[1; 200], encoding, 128);
    let small = bench.chunks(&[1; 100], encoding, 40);
    let refused = |body: &str, chunks: &[Chunk], form, words: &str| {
        let error = bench.run(body, (chunks, encoding), form).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    // A sum has no bit of padding; rows of a packed chunk share noise; chunks that are not full leave gaps.
    refused(
        "    homintadd x, 1",
        &chunks,
        RingForm::Samples,
        "result of a function",
    );
    let sum = "    homsum x, 2\n    bootstrap f, x";
    refused(
        sum,
        &chunks,
        RingForm::Column,
        "sums of rows that come as samples",
    );
    let sum = "    bootstrap f, x\n    homsum x, 2\n    bootstrap f, x";
    refused(sum, &chunks, RingForm::Samples, "stand in 4 pieces");
    refused(
        "    bootstrap f, x",
        &small,
        RingForm::Column,
        "chunk 0 of 40 rows",
    );
    // What would not leave out rows, and other rows than there are.
    let refused = |body: &str, kept: &[bool], words: &str| {
        let input = (&chunks[..], encoding);
        let error = bench.run_in(body, input, RingForm::Column, Some(kept));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let kept = [true; 200];
    for body in [
        "    homintmult x, 3",
        "    bootstrap f, x\n    homintadd x, 1",
        "    bootstrap f, x\n    homintadd x, 1\n    homsum x, 2\n    bootstrap f, x",
    ] {
        refused(body, &kept, "left out would not be 0");
    }
    refused(
        "    bootstrap f, x",
        &kept[1..],
        "199 rows are kept or left out, of 200",
    );
    // More noise than a table bears is not refused, but said.
    let noisy = bench.run(
        "    homintmult x, 1000000000\n    bootstrap f, x",
        (&chunks, encoding),
        RingForm::Column,
    );
    assert!(noisy.unwrap().facts.outputs[0].noise.log2_failure() > -1.0);
}

/// Functions of sums of multiples of functions of two narrow columns, signed or not, become one table of both columns, and give what they give one by one:
/// `v = 3·g(x) - 2·h(y) + 5·g(y) + 7`, then f(v), and f of another sum. What a function of one column alone is does not change.
#[test]
fn functions_of_two_narrow_columns_are_one_table() {
    let set = &TINY_RING9;
    let mut rng = Csprng::from_seed([41; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(set, &client).unwrap();
    let none = Progress::none();
    let key = write_keys(Vec::new(), set, &secret, &mut rng, &none).unwrap();
    let engine = engine();
    store(&engine, 0, &key, key.len()).unwrap();
    for (signed, x_bits, y_bits) in [(false, 5, 4), (true, 3, 5)] {
        let [x_encoding, y_encoding] = [x_bits, y_bits].map(|bits| Encoding::new(bits, signed));
        let (x_encoding, y_encoding) = (x_encoding.unwrap(), y_encoding.unwrap());
        let draw = |encoding: Encoding, step: i64| -> Vec<i64> {
            let (first, size) = (encoding.messages().start, 1 << encoding.bits());
            (0..256)
                .map(|row| (row * step + row / 32) % size + first)
                .collect()
        };
        let (x, y) = (draw(x_encoding, 7), draw(y_encoding, 5));
        let sign = if signed { "" } else { " unsigned" };
        let text = format!(
            "\
.reg x = cor:1
.reg y = cor:2
.reg a = cor:3
.reg b = cor:4
.tv g{sign} in={x_bits} out=9 = x * 11 - 3
.tv h{sign} in={y_bits} out=9 = x * x
.tv k{sign} in={y_bits} out=5 = x / 2 + 1
.tv f{sign} in=9 out=9 = x * 3 + x / 4
    bootstrap [h, k], [a, b], y
    bootstrap g, x
    homintmult x, 3
    homintmult a, 2
    homsub x, a
    homintmult b, 5
    homadd x, b
    homintadd x, 7
    mov y, x
    homadd y, b
    bootstrap f, x
    bootstrap f, y
    homadd x, y
    return x
"
        );
        let assembly = toroid_isa::assemble(&text).unwrap();
        for vector in &assembly.test_vectors {
            let table = vector.table(TINY_WOPBS.message_bits).unwrap();
            let encoding = |bits: Option<u32>| Encoding::new(bits.unwrap(), signed).unwrap();
            let (input, output) = (encoding(vector.p_in), encoding(vector.p_out));
            let bytes = glwe::function_bytes(&TINY_WOPBS, input, output, &table).unwrap();
            let attributes = Attributes {
                encoding: Some(input),
                output: Some(output),
                ..Attributes::default()
            };
            put(&engine, vector.vr, &bytes, attributes).unwrap();
        }
        let columns = [(x_encoding, &x), (y_encoding, &y)].map(|(encoding, numbers)| {
            let modulus = 1i64 << encoding.bits();
            let messages = numbers.iter().map(|x| x.rem_euclid(modulus) as u32);
            let place = (Layout::plain(encoding.bits()), set.seeded_width);
            let messages: Vec<u32> = messages.collect();
            StoredColumn::encrypt_in(&secret, place, &messages, &mut rng).unwrap()
        });
        let inputs = [(1, x_encoding, &columns[0]), (2, y_encoding, &columns[1])];
        let inputs = inputs.map(|(data, encoding, column)| RingInput {
            vr: cor(0, data),
            attributes: Attributes {
                encoding: Some(encoding),
                log2_variance: Some(-40.0),
                ..Attributes::default()
            },
            operand: RingOperand::Column(column),
        });
        let job = RingJob {
            program_vr: vr("prg:0:0"),
            program: &assembly.program,
            set,
            inputs: &inputs,
            form: RingForm::Column,
            kept: None,
        };
        let made = engine.map_ring(&job, 1 << 20, &CancelToken::new()).unwrap();
        // Two tables in place of five functions of four values.
        assert_eq!(made.facts.bootstraps, 2 * 256);
        assert_eq!(made.facts.on_ciphertext, [2]);
        assert_eq!(made.facts.tasks.len(), 4);
        let RingRows::Column(column) = &made.rows else {
            panic!("samples in place of a ring column");
        };
        let first = if signed { -256 } else { 0 };
        let wrapped =
            |value: i64, first: i64, modulus: i64| (value - first).rem_euclid(modulus) + first;
        let f = |value: i64| {
            let x = wrapped(value, first, 512);
            x * 3 + x.div_euclid(4)
        };
        let row = |(x, y): (&i64, &i64)| {
            let (g, h, k) = (x * 11 - 3, y * y, y.div_euclid(2) + 1);
            // k has the upper five of nine bits.
            let v = 3 * g - 2 * h + 5 * 16 * k + 7;
            (f(v) + f(v + 5 * 16 * k)).rem_euclid(512) as u32
        };
        let expected: Vec<u32> = x.iter().zip(&y).map(row).collect();
        assert_eq!(column.decrypt(&secret).unwrap(), expected);

        // The same in some rows alone.
        let kept: Vec<bool> = (0..256).map(|row| row % 5 != 2 && row < 200).collect();
        let job = RingJob {
            kept: Some(&kept),
            ..job
        };
        let made = engine.map_ring(&job, 1 << 20, &CancelToken::new()).unwrap();
        let RingRows::Column(column) = &made.rows else {
            panic!("samples in place of a ring column");
        };
        let expected = expected.iter().zip(&kept);
        let expected = expected.map(|(value, kept)| if *kept { *value } else { 0 });
        assert_eq!(
            column.decrypt(&secret).unwrap(),
            expected.collect::<Vec<_>>()
        );
    }
}
