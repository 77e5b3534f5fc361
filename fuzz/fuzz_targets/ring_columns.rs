//! Arbitrary bytes are either a ring column at rest or refused; a column that is read writes out to the same bytes, and so do its sums
//! and multiples. Rounding up to the ring's modulus and down again leaves a column as it is.
//!
//! The first byte chooses: the rest is the column as it is (even), or has its tag, length and checksums made good (odd).
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::{Input, repeat};
use toroid_rns::stored::{HEADER_BYTES, StoredColumn};
use toroid_rns::{Context, RnsParams, Shape};

const LOG2_DEGREE: u8 = 6;

static CONTEXT: LazyLock<Arc<Context>> = LazyLock::new(|| {
    let params = RnsParams::search(&Shape {
        degree: 1 << LOG2_DEGREE,
        chain_bits: vec![49],
        special_bits: vec![50],
        digit_limbs: 1,
    });
    Context::new(params.expect("there are such primes")).expect("they make a context")
});

fn check(bytes: &[u8]) {
    let mut column = match StoredColumn::from_bytes(bytes) {
        Ok(column) => column,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(column.to_bytes() == bytes);
    if let Ok(ciphertext) = column.to_ciphertext(&CONTEXT) {
        let (layout, rows) = (column.layout(), column.rows());
        let again = StoredColumn::of_ciphertext(
            &ciphertext,
            layout,
            rows,
            *column.tag(),
            column.statement(),
        );
        let again = again.expect("the column has such a layout");
        if !column.is_seeded() && again.width() == column.width() {
            let [again, before] =
                [&again, &column].map(|column| column.to_bytes()[HEADER_BYTES..].to_vec());
            assert!(again == before, "rounding up and down changes a column");
        }
    }
    if column.is_seeded() {
        assert!(column.mul_assign(3).is_err());
        return;
    }
    let other = column.clone();
    column.add_assign(&other).expect("a column is like itself");
    let mut double = other.clone();
    double.mul_assign(2).expect("the column is computed");
    let sum = column.to_bytes();
    assert!(sum[HEADER_BYTES..] == double.to_bytes()[HEADER_BYTES..]);
    let read = StoredColumn::from_bytes(&sum).expect("it was written just now");
    assert!(read.to_bytes() == sum);
}

/// The bytes with the tag of the context, the length that the header asks for, and checksums.
fn mended(input: &mut Input) -> Vec<u8> {
    let mut header: [u8; HEADER_BYTES] = input.array();
    header[..6].copy_from_slice(b"RCOL\x01\0");
    let choice = header[11];
    header[11] = 0;
    if choice & 1 == 0 {
        header[52..56].fill(0);
        header[48..52].copy_from_slice(&[LOG2_DEGREE, 0, 0, 0]);
        header[16..24].copy_from_slice(&CONTEXT.params().tag());
        header[12] %= 65;
        header[13..16].fill(0);
        header[6] %= 3;
        header[9] %= 3;
    }
    if choice & 2 == 0 {
        header[40..48].fill(0);
    }
    let rows = usize::from(header[12]);
    let words = if header[6] == 0 {
        rows
    } else {
        rows + (1 << LOG2_DEGREE)
    };
    let seed = if header[6] == 0 { 32 } else { 0 };
    let body = repeat(
        input.rest(),
        seed + (words * usize::from(header[7])).div_ceil(8),
    );
    header[56..60].copy_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    [&header[..], &body].concat()
}

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    if first % 2 == 0 {
        check(rest);
    } else {
        check(&mended(&mut Input::new(rest)));
    }
});
