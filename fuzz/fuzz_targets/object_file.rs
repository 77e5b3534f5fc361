//! Arbitrary bytes are either the file of an object or refused; what is read writes out to the same bytes.
//!
//! The first byte chooses: the rest is the file as it is (even), or header fields and payload of which a file with the right
//! checksums is made (odd). With 255, and 254, objects of more than 16 KiB come through, which take far longer. Files as they are may also be
//! key bits in text.
#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::{Input, repeat};
use toroid_tfhe::encrypted_key;
use toroid_tfhe::key_bits;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::serialize::{
    CHUNK_BYTES, HEADER_BYTES, Header, Kind, ObjectReader, read_client_key, write_client_key,
    write_object,
};

const KINDS: [Kind; 10] = [
    Kind::ClientKey,
    Kind::BootstrappingKey,
    Kind::KeySwitchingKey,
    Kind::TestVector,
    Kind::Sample,
    Kind::SeededBootstrappingKey,
    Kind::SeededWordsBootstrappingKey,
    Kind::SeededKeySwitchingKey,
    Kind::EncryptedClientKey,
    Kind::UnrolledBootstrappingKey,
];
/// Longest payload that is made up: two chunks of the bootstrapping key of `tiny32`, the longest of the sets for tests.
const MAX_PAYLOAD: u64 = 2 << 20;
const MAX_SHORT: u64 = 16 << 10;

/// Gives at most `step` bytes at a time.
struct Slow<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl Read for Slow<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let count = buf.len().min(self.step);
        self.bytes.read(&mut buf[..count])
    }
}

fn set_crc(header: &mut [u8; HEADER_BYTES]) {
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
}

/// The header in the form that is written: noise figures that are not stated are positive zeroes, and none is nearer to 0
/// than the least normal number.
fn written_form(mut header: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    for at in [40, 44] {
        let figure = f32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
        let figure = match figure {
            0.0 => 0.0,
            _ => figure.min(-f32::MIN_POSITIVE),
        };
        header[at..at + 4].copy_from_slice(&figure.to_le_bytes());
    }
    set_crc(&mut header);
    header
}

fn check(file: &[u8], step: usize, long: bool) {
    if let Some(bytes) = file.first_chunk::<HEADER_BYTES>() {
        match Header::from_bytes(bytes) {
            Ok(header) => {
                assert_eq!(header.to_bytes(), written_form(*bytes));
                let fitting = KINDS.iter().filter(|kind| header.expect(**kind).is_ok());
                assert_eq!(fitting.count(), 1);
                assert!(header.expect(header.kind).is_ok());
                if !long && header.kind.payload_bytes(&header.params) > MAX_SHORT {
                    return;
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let read = ObjectReader::new(file).and_then(ObjectReader::read_all);
    let slow = ObjectReader::new(Slow { bytes: file, step }).and_then(ObjectReader::read_all);
    let key = read_client_key(file);
    let (header, payload) = match (read, slow) {
        (Ok(read), Ok(slow)) => {
            assert_eq!(read, slow);
            read
        }
        (Err(error), Err(slow)) => {
            assert_eq!(error.to_string(), slow.to_string());
            assert!(key.is_err());
            return;
        }
        (read, slow) => panic!("{:?}, but in pieces {:?}", read.is_ok(), slow.is_ok()),
    };
    let again = write_object(Vec::new(), &header, &payload).expect("the payload has its length");
    assert!(again[HEADER_BYTES..] == file[HEADER_BYTES..]);
    match key {
        Ok(key) => {
            assert_eq!(header.kind, Kind::ClientKey);
            let again = write_client_key(Vec::new(), &key).expect("a vector takes everything");
            let back = read_client_key(again.as_slice()).expect("it was written just now");
            assert_eq!(back.tag(), &header.tag);
            assert_eq!(back.params().id, header.params.id);
            let twice = write_client_key(Vec::new(), &back).expect("a vector takes everything");
            assert!(again == twice);
        }
        // Zeros alone and bits behind the last one are no key.
        Err(error) => assert!(header.kind != Kind::ClientKey || !error.to_string().is_empty()),
    }
    // Argon2id takes what the file asks for: a cost that is not small is left alone.
    let cost = |at: usize| {
        payload.get(at..at + 4).map_or(0, |bytes| {
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        })
    };
    if header.kind == Kind::EncryptedClientKey && cost(4) <= 32 && cost(8) <= 2 {
        let opened = ObjectReader::new(file).and_then(|reader| encrypted_key::read(reader, b"x"));
        assert!(opened.is_err(), "a file that nobody encrypted opens");
    }
}

/// A text is key bits or refused; the key has the bits of the text.
fn check_key_bits(file: &[u8]) {
    let Ok(text) = std::str::from_utf8(file) else {
        return;
    };
    if let Ok(key) = key_bits::from_text(text, &mut Csprng::from_seed([1; 32])) {
        let again = key_bits::to_text(&key);
        // A set may go by a former name, and a tag may be new or in capitals.
        let rest = |line: &&str| !line.starts_with("params ") && !line.starts_with("tag ");
        assert!(text.lines().filter(rest).eq(again.lines().filter(rest)));
    }
}

/// A file of header fields and payload, with the right checksums; wrong in nothing but what the input says.
fn made_up(input: &mut Input, long: bool) -> Vec<u8> {
    let most = if long { MAX_PAYLOAD } else { MAX_SHORT };
    let choice = input.u8();
    let mut header: [u8; HEADER_BYTES] = input.array();
    header[..10].copy_from_slice(b"TOROIDOB\x01\0");
    if choice & 1 != 0 {
        header[48..60].fill(0);
    }
    if choice & 2 != 0 {
        header[10] = 1 + header[10] % 8;
        header[12] = 1 + header[12] % 6;
        (header[11], header[13]) = (0, 0);
        let kind = KINDS[usize::from(header[10] - 1)];
        if let Some(params) = ParamSet::by_id(header[12].into()) {
            header[16..24].copy_from_slice(&kind.payload_bytes(params).to_le_bytes());
        }
    }
    if choice & 4 != 0 {
        header[14] %= 17;
        header[15] = u8::from(header[14] != 0) & header[15];
    }
    set_crc(&mut header);
    let stated =
        Header::from_bytes(&header).map(|header| header.kind.payload_bytes(&header.params));
    let payload = match stated {
        Ok(bytes) if choice & 8 != 0 && bytes <= most => repeat(input.rest(), bytes as usize),
        _ => input.rest().to_vec(),
    };
    let mut file = header.to_vec();
    for (index, chunk) in payload.chunks(CHUNK_BYTES).enumerate() {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&(index as u64).to_le_bytes()), chunk);
        file.extend_from_slice(chunk);
        file.extend_from_slice(&crc.to_le_bytes());
    }
    match choice >> 6 {
        1 => file.truncate(file.len() - usize::from(choice >> 4 & 3)),
        2 => file.push(choice),
        _ => {}
    }
    file
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let mode = input.u8();
    let step = 1 + usize::from(mode >> 1 & 63) * 64;
    let long = mode >= 254;
    if mode & 1 == 0 {
        let file = input.rest();
        check(file, step, long);
        check_key_bits(file);
    } else {
        check(&made_up(&mut input, long), step, long);
    }
});
