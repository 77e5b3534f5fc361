//! Arbitrary bytes are either a file of the ring layer or refused; what is read writes out to the same bytes.
//!
//! The first byte chooses: the rest is the file as it is (even), or choices of which a file with the right checksums and parameters is
//! made (odd).
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::{Input, alone, repeat};
use toroid_rns::format::{Kind, Reader, read_secret_key, write_params, write_secret_key};
use toroid_rns::samples::SampleKeys;
use toroid_rns::{Context, EvaluationKeys, RnsParams, Shape};
use toroid_task::Progress;
use toroid_tfhe::params::TINY_WOPBS;
use toroid_tfhe::serialize::{CHUNK_BYTES, Frame, HEADER_BYTES};

/// Contexts of the least degree, and of that of the samples.
static CONTEXTS: LazyLock<[Arc<Context>; 2]> = LazyLock::new(|| {
    [16, TINY_WOPBS.ring_degree].map(|degree| {
        let params = RnsParams::search(&Shape {
            degree,
            chain_bits: vec![30, 30],
            special_bits: vec![31],
            digit_limbs: 1,
        });
        Context::new(params.expect("there are such primes")).expect("they make a context")
    })
});

/// Their parameters as a payload begins with them.
static PARAMS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    CONTEXTS.each_ref().map(|context| {
        let params = write_params(Vec::new(), context.params()).expect("a vector takes everything");
        params[HEADER_BYTES..params.len() - 4].to_vec()
    })
});

fn check(file: &[u8]) {
    let reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let kind = reader.kind();
    let contexts = CONTEXTS.iter();
    let context = contexts
        .into_iter()
        .find(|context| context.params() == reader.params());
    let none = Progress::none();
    let again = match (kind, context) {
        (Kind::Parameters, _) => reader
            .into_params()
            .and_then(|params| write_params(Vec::new(), &params)),
        (_, None) => return,
        (Kind::SecretKey, Some(context)) => {
            read_secret_key(reader, context).and_then(|key| write_secret_key(Vec::new(), &key))
        }
        (Kind::EvaluationKeys, Some(context)) => EvaluationKeys::read_from(reader, context, &none)
            .and_then(|keys| keys.write_to(Vec::new(), &none)),
        (Kind::SampleKeys, Some(context)) => SampleKeys::read_from(reader, context, &none)
            .and_then(|keys| keys.write_to(Vec::new(), &none)),
    };
    match again {
        Ok(again) => assert!(again == file, "{} changes", kind.name()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A file with the right checksums; wrong in nothing but what the input says.
fn made_up(input: &mut Input) -> Vec<u8> {
    let choice = input.u8();
    let kind = Kind::ALL[usize::from(choice & 3)];
    let mut payload = PARAMS[usize::from(choice >> 2 & 1)].clone();
    let mut frame = Frame {
        kind: kind.number(),
        params: if kind == Kind::SampleKeys {
            TINY_WOPBS.id
        } else {
            0
        },
        encoding: [0; 2],
        payload: 0,
        tag: if kind == Kind::Parameters {
            [0; 16]
        } else {
            [7; 16]
        },
        rest: [0; 20],
    };
    if kind == Kind::EvaluationKeys {
        let count = input.u8() % 8;
        payload.extend_from_slice(&[count, 0, 0, 0, 0, 0, 0, 0]);
        for _ in 0..count {
            let (code, limbs) = (input.u8() % 5, input.u8() % 4);
            let exponent = u32::from(input.u8());
            payload.extend_from_slice(&[code, limbs, 0, 0]);
            payload.extend_from_slice(&exponent.to_le_bytes());
            payload.extend_from_slice(&[choice; 32]);
        }
    }
    if kind == Kind::SampleKeys {
        payload.extend_from_slice(&[9; 16]);
        payload.extend_from_slice(&[input.u8() % 8, input.u8() % 32, 0, 0, 0, 0, 0, 0]);
    }
    // Rows of these degrees are short.
    let length = usize::from(input.u16()) % (16 << 10);
    payload.extend(repeat(input.rest(), length));
    frame.payload = payload.len() as u64;
    if choice & 0x80 != 0 {
        frame.payload += 1;
    }
    let mut file = frame.to_bytes().to_vec();
    for (index, chunk) in payload.chunks(CHUNK_BYTES).enumerate() {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&(index as u64).to_le_bytes()), chunk);
        file.extend_from_slice(chunk);
        file.extend_from_slice(&crc.to_le_bytes());
    }
    file
}

fuzz_target!(|data: &[u8]| {
    alone();
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    if first % 2 == 0 {
        check(rest);
    } else {
        check(&made_up(&mut Input::new(rest)));
    }
});
