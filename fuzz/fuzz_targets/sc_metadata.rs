//! Arbitrary bytes are either secure computing metadata that obeys its rules, plain data, or refused.
//!
//! The input is tried as it is and, since the checksum would keep almost every input from the fields, with magic number,
//! version and checksum put right. What follows the first 64 bytes goes through the setters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::Input;
use toroid_isa::VrType;
use toroid_isa::metadata::ScMetadata;

fn check_rules(metadata: &ScMetadata) {
    assert!(metadata.vr().key_id() < 1 << 24);
    assert!((1..=ScMetadata::MAX_OBJECT).contains(&metadata.size()));
    assert!(metadata.offset() < metadata.size());
    assert_eq!(metadata.remaining(), metadata.size() - metadata.offset());
    assert!(metadata.message_bits() <= 64 && metadata.output_bits() <= 64);
    assert!(metadata.output_bits() == 0 || metadata.vr().ty() == VrType::Tv);
    for figure in [metadata.log2_variance(), metadata.log2_p_fail()] {
        assert!(figure.is_none_or(|log2| log2.is_finite() && log2 < 0.0));
    }
    let bytes = metadata.to_bytes();
    assert_eq!(ScMetadata::from_bytes(&bytes), Ok(Some(*metadata)));
    assert!(!metadata.to_string().is_empty());
}

fn check(bytes: &[u8]) -> Option<ScMetadata> {
    match ScMetadata::from_bytes(bytes) {
        Ok(Some(metadata)) => {
            check_rules(&metadata);
            // The one other form of "not stated" is a negative zero.
            let mut expected = bytes.to_vec();
            for at in [40, 44] {
                if expected[at..at + 4] == (-0.0f32).to_le_bytes() {
                    expected[at + 3] = 0;
                }
            }
            let crc = crc32c::crc32c(&expected[..60]);
            expected[60..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(metadata.to_bytes(), *expected);
            Some(metadata)
        }
        Ok(None) => {
            assert_eq!(bytes, [0; ScMetadata::SIZE]);
            None
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut input = Input::new(data);
    let mut bytes: [u8; ScMetadata::SIZE] = input.array();
    bytes[..5].copy_from_slice(b"TSCM\x01");
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    let Some(mut metadata) = check(&bytes) else {
        return;
    };
    while !input.is_empty() {
        let changed = match input.u8() % 6 {
            0 => metadata.with_offset(input.u64()),
            1 => metadata.with_message(input.u8(), input.u8() & 1 != 0),
            2 => {
                let mut log2 = || {
                    let bits = input.u64();
                    (bits != 0).then(|| f64::from_bits(bits))
                };
                Ok(metadata.with_noise(log2(), log2()))
            }
            3 => Ok(metadata.with_blocks(input.u32())),
            4 => metadata.with_output_bits(input.u8()),
            _ => Ok(metadata.with_computed(input.u8() & 1 != 0)),
        };
        if let Ok(changed) = changed {
            metadata = changed;
            check_rules(&metadata);
        }
    }
});
