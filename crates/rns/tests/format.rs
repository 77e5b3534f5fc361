//! Parameters, keys and columns at rest: what is written comes back, and nothing else does.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use toroid_rns::format::{
    FormatError, Kind, Reader, read_secret_key, write_params, write_secret_key,
};
use toroid_rns::modulus_switch::{self, computed_width};
use toroid_rns::stored::{HEADER_BYTES, Layout, Statement, StoredColumn, computed_variance};
use toroid_rns::{Ciphertext, Context, EvaluationKeys, KeyRequest, RnsParams, SecretKey, Shape};
use toroid_rns::{column, noise};
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::random::Csprng;

fn context(degree: usize, limbs: usize) -> Arc<Context> {
    let params = RnsParams::search(&Shape {
        degree,
        chain_bits: vec![42; limbs],
        special_bits: vec![50, 50],
        digit_limbs: 2,
    });
    Context::new(params.unwrap()).unwrap()
}

fn secret(context: &Arc<Context>, seed: u8) -> (SecretKey, Csprng) {
    let mut rng = Csprng::from_seed([seed; 32]);
    (SecretKey::generate(context, &mut rng), rng)
}

fn reader(bytes: &[u8]) -> Result<Reader<&[u8]>, FormatError> {
    Reader::new(bytes)
}

fn refused<T>(result: Result<T, FormatError>, words: &str) {
    let error = result.err().unwrap().to_string();
    assert!(error.contains(words), "{error}");
}

/// The file with bytes of its payload changed, and the checksums of the chunk (there is one) and the header made good.
fn changed(file: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut payload = file[64..file.len() - 4].to_vec();
    change(&mut payload);
    let mut changed = file[..64].to_vec();
    changed[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c(&changed[..60]);
    changed[60..].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&0u64.to_le_bytes()), &payload);
    changed.extend_from_slice(&payload);
    changed.extend_from_slice(&crc.to_le_bytes());
    changed
}

#[test]
fn parameters_come_back() {
    let params = RnsParams::uniform(1 << 16, 25, 7).unwrap();
    let file = write_params(Vec::new(), &params).unwrap();
    let read = reader(&file).unwrap();
    assert_eq!((read.kind(), read.params()), (Kind::Parameters, &params));
    assert_eq!(read.into_params().unwrap(), params);

    let with = |at: usize, byte: u8| changed(&file, |payload| payload[at] = byte);
    refused(reader(&with(0, 1)), "power of two");
    refused(reader(&with(7, 1)), "reserved bytes");
    refused(reader(&with(5, 9)), "shorter");
    refused(reader(&with(24, 3)), "not a prime");
    refused(reader(&with(22, 0xff)), "noise");
    refused(reader(&file[..70]), "ends");
    let longer = changed(&file, |payload| payload.push(0));
    refused(reader(&longer).unwrap().into_params(), "longer");
    // Other parameters have another tag.
    let other = RnsParams::uniform(1 << 16, 24, 7).unwrap();
    assert_ne!(params.tag(), other.tag());
}

#[test]
fn secrets_come_back() {
    let context = context(64, 3);
    let (secret, mut rng) = secret(&context, 1);
    let file = write_secret_key(Vec::new(), &secret).unwrap();
    let back = read_secret_key(reader(&file).unwrap(), &context).unwrap();
    assert_eq!(back.tag(), secret.tag());
    assert_eq!(write_secret_key(Vec::new(), &back).unwrap(), file);
    let messages: Vec<u32> = (0..64).map(|i| i * 5 % 64).collect();
    let column = column::encrypt(&secret, 6, &messages, &mut rng).unwrap();
    assert_eq!(column::decrypt(&back, 6, &column).unwrap(), messages);

    let read = |file: &[u8]| read_secret_key(reader(file).unwrap(), &context);
    let ends = file.len() - 64 - 4;
    refused(
        read(&changed(&file, |payload| payload[ends - 1] = 0xff)),
        "the sparse secret has a coefficient other",
    );
    refused(
        read(&changed(&file, |payload| payload[ends - 16..].fill(0x55))),
        "weight of the sparse secret is 0, not 16",
    );
    refused(
        read(&changed(&file, |payload| {
            payload[ends - 32..ends - 16].fill(0x55);
        })),
        "the main secret is 0",
    );
    refused(
        read(&changed(&file, |payload| payload.truncate(ends - 1))),
        "number of bytes",
    );
    refused(
        read(&changed(&file, |payload| {
            let byte = &mut payload[ends - 32];
            *byte = (*byte & !3) | (((*byte & 3) + 1) % 3);
        })),
        "the tag is not that of the secrets",
    );
    let params = write_params(Vec::new(), context.params()).unwrap();
    refused(read(&params), "ring parameters, not ring secret key");
    let other = self::context(64, 2);
    refused(
        read_secret_key(reader(&file).unwrap(), &other),
        "the number of primes of the chain is 3, not 2",
    );
}

fn request() -> KeyRequest {
    KeyRequest {
        relinearization: Some(3),
        conjugation: Some(2),
        rotations: vec![(1, 4), (5, 3), (-2, 1)],
        mod_raise: true,
    }
}

#[test]
fn evaluation_keys_come_back() {
    let context = context(64, 4);
    let (secret, _) = secret(&context, 2);
    let rng = || Csprng::from_seed([3; 32]);
    let none = Progress::none();
    let keys = EvaluationKeys::generate(&secret, &request(), &mut rng(), &none).unwrap();
    let file = keys.write_to(Vec::new(), &none).unwrap();
    let streamed = EvaluationKeys::generate_to(Vec::new(), &secret, &request(), &mut rng(), &none);
    assert!(streamed.unwrap() == file);

    let seen: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let log = Arc::clone(&seen);
    let progress = Progress::new(move |_, done, total| log.lock().unwrap().push((done, total)));
    let back = EvaluationKeys::read_from(reader(&file).unwrap(), &context, &progress).unwrap();
    assert_eq!((back.tag(), back.memory()), (secret.tag(), keys.memory()));
    assert!(back.write_to(Vec::new(), &none).unwrap() == file);
    let seen = seen.lock().unwrap();
    // Two rows for products, one or two for each automorphism, one for each key of a mod-raise.
    assert_eq!(seen.last(), Some(&(10, 10)));
    assert!(seen.is_sorted());

    let cancel = CancelToken::new();
    cancel.cancel();
    let cancelled = Progress::from(cancel);
    refused(keys.write_to(Vec::new(), &cancelled), "cancelled");
    let read = EvaluationKeys::read_from(reader(&file).unwrap(), &context, &cancelled);
    refused(read, "cancelled");
}

#[test]
fn damaged_evaluation_keys_are_refused_by_name() {
    let context = context(64, 4);
    let (secret, mut rng) = secret(&context, 3);
    let none = Progress::none();
    let keys = EvaluationKeys::generate(&secret, &request(), &mut rng, &none).unwrap();
    let file = keys.write_to(Vec::new(), &none).unwrap();
    let read = |file: &[u8]| EvaluationKeys::read_from(reader(file)?, &context, &none);
    let directory = 24 + 8 * 6 + 8;
    let with = |at: usize, byte: u8| read(&changed(&file, |payload| payload[at] = byte));
    refused(with(directory - 4, 1), "reserved bytes of the directory");
    refused(with(directory - 8, 200), "the number of keys is 200");
    refused(with(directory - 8, 6), "mod-raise has one of its two keys");
    refused(with(directory, 4), "the use of key number 0 is 4");
    refused(
        with(directory + 1, 5),
        "limbs of key number 0 is 5, not 1 to 4",
    );
    refused(
        with(directory + 1, 0),
        "limbs of key number 0 is 0, not 1 to 4",
    );
    refused(with(directory + 1, 2), "the number of bytes");
    refused(with(directory + 3, 1), "a reserved byte of key number 0");
    refused(
        with(directory + 4, 1),
        "the exponent of key number 0 is 1, not 0",
    );
    refused(with(directory + 44, 4), "the exponent of key number 1 is 4");
    refused(
        with(directory + 44, 127),
        "key number 2 does not come behind",
    );
    let rows = directory + 40 * 7;
    let words = changed(&file, |payload| payload[rows..rows + 16].fill(0xff));
    refused(read(&words), "row 0 of the key of products has a residue");
    let cut = changed(&file, |payload| payload.truncate(rows));
    refused(read(&cut), "the number of bytes");
    let mut damaged = file.clone();
    damaged[rows + 100] ^= 1;
    refused(read(&damaged), "chunk 0 is damaged");
}

#[test]
fn a_failing_disk_stops_the_writing() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or_else(|| std::io::Error::other("full"))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let context = context(64, 4);
    let (secret, mut rng) = secret(&context, 3);
    let none = Progress::none();
    let written = EvaluationKeys::generate_to(Full(1000), &secret, &request(), &mut rng, &none);
    refused(written.map(|_| ()), "full");
}

const UNKNOWN: Statement = Statement {
    log2_variance: None,
    log2_failure: None,
};

fn stored(column: &Ciphertext, layout: Layout, rows: usize, secret: &SecretKey) -> StoredColumn {
    let column = StoredColumn::of_ciphertext(column, layout, rows, *secret.tag(), UNKNOWN);
    column.unwrap()
}

#[test]
fn columns_come_back_in_both_forms() {
    let context = context(256, 2);
    let (secret, mut rng) = secret(&context, 4);
    for (bits, rows, padding, log2_pieces) in [
        (1, 256, false, 0),
        (8, 256, true, 0),
        (8, 100, false, 3),
        (16, 1, true, 8),
        (16, 256, true, 2),
    ] {
        let layout = Layout {
            bits,
            padding,
            log2_pieces,
        };
        let messages: Vec<u32> = (0..rows)
            .map(|_| (rng.next_u64() >> (64 - bits)) as u32)
            .collect();
        let fresh = StoredColumn::encrypt(&secret, layout, &messages, &mut rng).unwrap();
        assert!(fresh.is_seeded() && fresh.rows() == rows);
        assert_eq!(fresh.decrypt(&secret).unwrap(), messages);
        let bytes = fresh.to_bytes();
        assert_eq!(
            bytes.len(),
            HEADER_BYTES + 32 + (rows * fresh.width() as usize).div_ceil(8)
        );
        assert_eq!(StoredColumn::from_bytes(&bytes).unwrap(), fresh);

        let read = fresh.to_ciphertext(&context).unwrap();
        let computed = stored(&read, layout, rows, &secret);
        assert!(!computed.is_seeded());
        assert_eq!(computed.decrypt(&secret).unwrap(), messages);
        let bytes = computed.to_bytes();
        let words = 256 + rows;
        assert_eq!(
            bytes.len(),
            HEADER_BYTES + (words * computed.width() as usize).div_ceil(8)
        );
        assert_eq!(StoredColumn::from_bytes(&bytes).unwrap(), computed);
        // What is read and stored again is the same.
        let again = computed.to_ciphertext(&context).unwrap();
        assert_eq!(stored(&again, layout, rows, &secret), computed);
    }
    let mut refused = |layout: Layout, messages: &[u32], words: &str| {
        let column = StoredColumn::encrypt(&secret, layout, messages, &mut rng);
        self::refused(column, words);
    };
    refused(Layout::plain(17), &[1], "number of bits is 17");
    refused(Layout::plain(4), &[], "number of rows is 0");
    refused(Layout::plain(4), &[0; 257], "number of rows is 257");
    refused(Layout::plain(4), &[3, 16], "row 1: 16 has more than 4 bits");
    let two = Ciphertext::zero(&context, 2, 1.0);
    let column = StoredColumn::of_ciphertext(&two, Layout::plain(4), 1, [0; 16], UNKNOWN);
    self::refused(column, "number of limbs is 2");
}

#[test]
fn columns_of_others_are_refused() {
    let (context, other) = (context(256, 1), context(256, 2));
    let (secret, mut rng) = secret(&context, 5);
    let column = StoredColumn::encrypt(&secret, Layout::plain(4), &[1, 2], &mut rng).unwrap();
    refused(column.to_ciphertext(&other), "the tag of its parameters");
    let stranger = SecretKey::generate(&context, &mut rng);
    refused(column.decrypt(&stranger), "the tag of its key");
}

#[test]
fn sums_and_multiples_of_columns_need_no_ring() {
    let context = context(256, 1);
    let (secret, mut rng) = secret(&context, 6);
    let layout = Layout::plain(8);
    let mut column = |seed: u32| {
        let messages: Vec<u32> = (0..256).map(|i| (i * seed) % 256).collect();
        let fresh = column::encrypt(&secret, 8, &messages, &mut rng).unwrap();
        let known = Statement {
            log2_variance: Some(-50.0),
            log2_failure: Some(-140.0),
        };
        StoredColumn::of_ciphertext(&fresh, layout, 256, *secret.tag(), known).unwrap()
    };
    let (a, b) = (column(3), column(5));
    let mut sum = a.clone();
    sum.mul_assign(-2).unwrap();
    sum.add_assign(&b).unwrap();
    let expected: Vec<u32> = (0..256).map(|i| (i * 255) % 256).collect();
    assert_eq!(sum.decrypt(&secret).unwrap(), expected);
    let variance = |column: &StoredColumn| f64::from(column.statement().log2_variance.unwrap());
    let expected = 5.0 * variance(&a).exp2();
    assert!((variance(&sum) - expected.log2()).abs() < 1e-4);
    assert_eq!(sum.statement().log2_failure, Some(-139.0));

    let fresh = StoredColumn::encrypt(&secret, layout, &[0; 256], &mut rng).unwrap();
    refused(sum.add_assign(&fresh), "an operand of a sum");
    refused(fresh.clone().mul_assign(2), "is seeded");
}

#[test]
fn rows_are_summed_without_keys() {
    const DEGREE: usize = 1 << 11;
    let context = context(DEGREE, 1);
    let (secret, mut rng) = secret(&context, 11);
    for (log2_pieces, count) in [(0, 1), (0, 4), (0, DEGREE), (3, 16), (3, DEGREE / 8)] {
        let layout = Layout {
            bits: 8,
            padding: false,
            log2_pieces,
        };
        let messages: Vec<u32> = (0..DEGREE).map(|_| (rng.next_u64() >> 56) as u32).collect();
        let fresh = StoredColumn::encrypt(&secret, layout, &messages, &mut rng).unwrap();
        let column = fresh.to_ciphertext(&context).unwrap();
        let (known, tag) = (fresh.statement(), *secret.tag());
        let column = StoredColumn::of_ciphertext(&column, layout, DEGREE, tag, known).unwrap();
        let mut sums = column.clone();
        sums.sum_windows(count).unwrap();
        let variance = |column: &StoredColumn| column.statement().log2_variance.unwrap();
        let grown = f64::from(variance(&sums) - variance(&column));
        assert!((grown - (count as f64).log2()).abs() < 1e-4);
        let rows = DEGREE >> log2_pieces;
        let ciphertext = sums.to_ciphertext(&context).unwrap();
        let phases = secret.decrypt(&ciphertext).unwrap().poly().to_i128();
        let q = context.params().chain[0] as f64;
        let (mut squares, mut full) = (0.0, 0.0);
        for row in (0..DEGREE).filter(|row| row % rows + count <= rows) {
            let expected: u32 = messages[row..row + count].iter().sum();
            let off = phases[layout.coefficient(DEGREE, row)] as f64 / q;
            let off = off - f64::from(expected % 256) / 256.0;
            squares += (off - off.round()).powi(2);
            full += 1.0;
        }
        let ratio = squares / full / f64::from(variance(&sums)).exp2();
        // Sums of neighbours move together: the longer, the fewer independent ones there are.
        let bounds = if count <= 4 { 0.8..1.2 } else { 0.0..5.0 };
        assert!(bounds.contains(&ratio), "{count}: {ratio}");
        refused(sums.sum_windows(rows + 1), "the number of rows of a sum");
        refused(fresh.clone().sum_windows(2), "is seeded");
    }
}

/// Rows of a column, as far as they are from their messages, in turns: the mean of the squares.
fn measured(secret: &SecretKey, column: &StoredColumn, messages: &[u32]) -> f64 {
    let ciphertext = column.to_ciphertext(secret.context()).unwrap();
    let phases = secret.decrypt(&ciphertext).unwrap();
    let q = secret.context().params().chain[0] as f64;
    let (degree, places) = (messages.len(), column.layout().places());
    let phases = phases.poly().to_i128();
    let squares = messages.iter().enumerate().map(|(row, message)| {
        let phase = phases[column.layout().coefficient(degree, row)] as f64 / q;
        let off = phase - f64::from(*message) / f64::from(places).exp2();
        (off - off.round()).powi(2)
    });
    squares.sum::<f64>() / degree as f64
}

/// Mean squares of 2048 numbers scatter by 3 %; rounding under one secret of 2048 coefficients depends on its norm, by 2 %.
#[test]
fn rounding_adds_the_noise_of_the_formulas() {
    const DEGREE: usize = 1 << 11;
    let context = context(DEGREE, 1);
    let params = context.params().clone();
    let (secret, mut rng) = secret(&context, 7);
    for bits in [8, 16] {
        let layout = Layout::plain(bits);
        let messages: Vec<u32> = (0..DEGREE)
            .map(|_| (rng.next_u64() >> (64 - bits)) as u32)
            .collect();
        let fresh = StoredColumn::encrypt(&secret, layout, &messages, &mut rng).unwrap();
        let ratio = |found: f64, expected: f64| {
            let ratio = found / expected;
            assert!((0.85..1.15).contains(&ratio), "{bits} bits: {ratio}");
        };
        let stated = |column: &StoredColumn| column.statement().log2_variance.unwrap();
        let found = measured(&secret, &fresh, &messages);
        ratio(found, f64::from(stated(&fresh)).exp2());

        let plain = column::encrypt(&secret, bits, &messages, &mut rng).unwrap();
        let q = params.chain[0] as f64;
        let input = noise::fresh(&params) / (q * q);
        let known = Statement {
            log2_variance: Some(input.log2() as f32),
            log2_failure: None,
        };
        let tag = *secret.tag();
        let computed = StoredColumn::of_ciphertext(&plain, layout, DEGREE, tag, known).unwrap();
        let expected = computed_variance(&params, layout, input);
        ratio(measured(&secret, &computed, &messages), expected);
        assert!((f64::from(stated(&computed)) - expected.log2()).abs() < 1e-4);
        assert_eq!(computed.width(), computed_width(&params, bits));
        let failure =
            modulus_switch::log2_failure(&params, bits, modulus_switch::COMPUTED_NORM * expected);
        assert!(failure < -127.0, "{failure}");
    }
}

/// A rounding with few bits fails as often as its formula says.
#[test]
fn the_failure_probability_is_that_of_the_formula() {
    const DEGREE: usize = 1 << 11;
    let context = context(DEGREE, 1);
    let params = context.params();
    let (secret, mut rng) = secret(&context, 8);
    // Rounding under this secret has a deviation of 10.7 units of 2^-16: 12 bits are half a step of 8 units.
    let (bits, width) = (12, 16);
    let q = params.chain[0];
    let messages = vec![0; DEGREE];
    let mut wrong = 0;
    for _ in 0..8 {
        let mut column = column::encrypt(&secret, bits, &messages, &mut rng).unwrap();
        let rounded = |poly: &toroid_rns::RnsPoly| {
            let mut poly = poly.clone();
            poly.to_coefficients();
            modulus_switch::ModulusSwitch::new(q, 1 << width).apply_all(poly.words_mut());
            modulus_switch::ModulusSwitch::new(1 << width, q).apply_all(poly.words_mut());
            poly
        };
        column = Ciphertext::new(rounded(column.b()), rounded(column.a()), q as f64).unwrap();
        let read = column::decrypt(&secret, bits, &column).unwrap();
        wrong += read.iter().filter(|message| **message != 0).count();
    }
    let variance = modulus_switch::pair_variance(params, width);
    let each = toroid_tfhe::noise::log2_tail((-f64::from(bits) - 1.0).exp2(), variance).exp2();
    let expected = each * 8.0 * DEGREE as f64;
    let ratio = wrong as f64 / expected;
    assert!((0.95..1.05).contains(&ratio), "{wrong} of {expected}");
}

#[test]
fn damaged_columns_are_refused_by_name() {
    let context = context(64, 1);
    let (secret, mut rng) = secret(&context, 9);
    let column = StoredColumn::encrypt(&secret, Layout::plain(8), &[7; 64], &mut rng).unwrap();
    let bytes = column.to_bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        StoredColumn::from_bytes(&bytes)
    };
    for (at, byte, words) in [
        (0, 0, "the beginning"),
        (4, 2, "the version is 2, not 1"),
        (6, 2, "the form is 2"),
        (6, 1, "the number of bytes"),
        (7, 49, "the width of a word is 49"),
        (7, 7, "the width of a word is 7"),
        (8, 0, "the number of bits is 0"),
        (9, 3, "the padding is 3"),
        (10, 7, "the number of pieces is 2^7"),
        (11, 1, "reserved bytes"),
        (12, 65, "the number of rows is 65"),
        (43, 0x7f, "the variance of the noise"),
        (47, 0x7f, "the failure probability"),
        (48, 30, "the ring degree is 2^30"),
        (55, 1, "reserved bytes"),
        (56, bytes[56] ^ 1, "the content is damaged"),
    ] {
        refused(with(at, byte), words);
    }
    refused(
        StoredColumn::from_bytes(&bytes[..50]),
        "the header has 50 bytes",
    );
    let mut damaged = bytes.clone();
    damaged[20] ^= 1;
    refused(StoredColumn::from_bytes(&damaged), "the header is damaged");
}

proptest! {
    #[test]
    fn any_flipped_bit_of_a_column_is_found(at in 0usize..64 + 32 + 8 * 14, bit in 0u8..8) {
        let context = context(64, 1);
        let (secret, mut rng) = secret(&context, 10);
        let column = StoredColumn::encrypt(&secret, Layout::plain(8), &[9; 64], &mut rng);
        let mut bytes = column.unwrap().to_bytes();
        if at < bytes.len() {
            bytes[at] ^= 1 << bit;
            prop_assert!(StoredColumn::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_file(bytes: Vec<u8>) {
        prop_assert!(reader(&bytes).is_err());
        prop_assert!(StoredColumn::from_bytes(&bytes).is_err());
        let with_magic = [b"RCOL".as_slice(), &bytes].concat();
        prop_assert!(StoredColumn::from_bytes(&with_magic).is_err());
    }
}
