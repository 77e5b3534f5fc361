//! Secure computing metadata: layout, round trips, and everything that is refused.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use toroid_isa::metadata::{MetadataError, ScMetadata};
use toroid_isa::{VrNumber, VrType};

fn vr(ty: VrType, key_id: u32, data_id: u32) -> VrNumber {
    VrNumber::new(ty, key_id, data_id).unwrap()
}

fn sample() -> ScMetadata {
    ScMetadata::new(vr(VrType::LweCow, 0x0001_0203, 0x0405_0607), 0x0809, 4004)
        .unwrap()
        .with_offset(0x0100)
        .unwrap()
        .with_blocks(3)
        .with_message(7, true)
        .unwrap()
        .with_noise(Some(-30.5), Some(-64.0))
        .with_computed(true)
        .with_key_tag(TAG)
}

const TAG: [u8; 12] = *b"\x01 key's tag ";

fn reseal(bytes: &mut [u8; 64]) {
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
}

/// Decodes the sample after an edit, with a valid checksum.
fn edited(edit: impl FnOnce(&mut [u8; 64])) -> Result<Option<ScMetadata>, MetadataError> {
    let mut bytes = sample().to_bytes();
    edit(&mut bytes);
    reseal(&mut bytes);
    ScMetadata::from_bytes(&bytes)
}

#[test]
fn layout() {
    let bytes = sample().to_bytes();
    let mut expected = [0u8; 64];
    expected[..4].copy_from_slice(b"TSCM");
    expected[4] = 1;
    expected[5] = 4;
    expected[6..8].copy_from_slice(&[9, 8]);
    expected[8..12].copy_from_slice(&[3, 2, 1, 0]);
    expected[12..16].copy_from_slice(&[7, 6, 5, 4]);
    expected[16..18].copy_from_slice(&[0xA4, 0x0F]);
    expected[25] = 1;
    expected[32] = 3;
    expected[36] = 7;
    expected[37] = 3;
    expected[40..44].copy_from_slice(&(-30.5f32).to_le_bytes());
    expected[44..48].copy_from_slice(&(-64.0f32).to_le_bytes());
    expected[48..60].copy_from_slice(&TAG);
    reseal(&mut expected);
    assert_eq!(bytes, expected);
    assert_eq!(ScMetadata::from_bytes(&bytes), Ok(Some(sample())));
}

#[test]
fn zeroes_are_plain_data() {
    assert_eq!(ScMetadata::from_bytes(&[0; 64]), Ok(None));
}

#[test]
fn every_field_is_checked() {
    use MetadataError as E;
    let cases: [(Result<_, _>, MetadataError); 18] = [
        (edited(|b| b[0] = b'X'), E::Magic { found: *b"XSCM" }),
        (edited(|b| b[4] = 2), E::Version { found: 2 }),
        (edited(|b| b[5] = 5), E::Type { found: 5 }),
        (edited(|b| b[11] = 1), E::KeyId { found: 0x0101_0203 }),
        (
            edited(|b| b[5] = 0),
            E::DataId {
                ty: VrType::Prg,
                found: 0x0405_0607,
                expected: "0",
            },
        ),
        (
            edited(|b| {
                b[5] = 2;
                b[12..16].copy_from_slice(&[5, 0, 0, 0]);
            }),
            E::DataId {
                ty: VrType::Key,
                found: 5,
                expected: "1 (BKNTT), 2 (KSK), 3 (ring) or 4 (conversion)",
            },
        ),
        (edited(|b| b[16..24].fill(0)), E::Size { found: 0 }),
        (
            edited(|b| b[16..24].fill(0xFF)),
            E::Size { found: u64::MAX },
        ),
        (
            edited(|b| b[24..26].copy_from_slice(&[0xA4, 0x0F])),
            E::Offset {
                offset: 4004,
                size: 4004,
            },
        ),
        (edited(|b| b[36] = 65), E::MessageBits { found: 65 }),
        (edited(|b| b[37] |= 8), E::Reserved { bytes: "37" }),
        // Samples alone come in columns.
        (
            edited(|b| {
                b[5] = 1;
                b[37] |= 4;
            }),
            E::Reserved { bytes: "37" },
        ),
        (edited(|b| b[37] |= 0x80), E::Reserved { bytes: "37" }),
        (edited(|b| b[38] = 1), E::Reserved { bytes: "38-39" }),
        (edited(|b| b[39] = 1), E::Reserved { bytes: "38-39" }),
        (
            edited(|b| b[40..44].copy_from_slice(&1.0f32.to_le_bytes())),
            E::Logarithm {
                field: "log2 variance",
            },
        ),
        (
            edited(|b| b[44..48].copy_from_slice(&f32::NAN.to_le_bytes())),
            E::Logarithm {
                field: "log2 p_fail",
            },
        ),
        (
            edited(|b| b[44..48].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes())),
            E::Logarithm {
                field: "log2 p_fail",
            },
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, Err(expected));
        assert!(!expected.to_string().is_empty());
    }
}

#[test]
fn samples_alone_come_in_columns() {
    let column = sample().with_column(true);
    assert!(column.column() && !sample().column());
    assert_eq!(column.to_bytes()[37], 7);
    assert_eq!(ScMetadata::from_bytes(&column.to_bytes()), Ok(Some(column)));
    assert_eq!(column.with_column(false), sample());
    let program = ScMetadata::new(VrNumber::program(1).unwrap(), 1, 64).unwrap();
    assert_eq!(program.with_column(true), program);
}

#[test]
fn every_flipped_bit_is_noticed() {
    for bit in 0..512 {
        let mut bytes = sample().to_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(ScMetadata::from_bytes(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn lengths_other_than_64_are_refused() {
    for len in [0, 1, 63, 65, 4096] {
        assert_eq!(
            ScMetadata::from_bytes(&vec![0; len]),
            Err(MetadataError::Length { found: len })
        );
    }
}

#[test]
fn builders_check_too() {
    let tv = vr(VrType::Tv, 0, 0);
    assert!(ScMetadata::new(tv, 1, 0).is_err());
    assert!(ScMetadata::new(tv, 1, ScMetadata::MAX_OBJECT).is_ok());
    assert!(ScMetadata::new(tv, 1, ScMetadata::MAX_OBJECT + 1).is_err());
    let metadata = ScMetadata::new(tv, 1, 10).unwrap();
    assert!(metadata.with_offset(9).is_ok());
    assert_eq!(metadata.with_offset(9).unwrap().remaining(), 1);
    assert!(metadata.with_offset(10).is_err());
    assert!(metadata.with_message(65, false).is_err());
    assert!(ScMetadata::new(vr(VrType::Prg, 0, 1), 1, 10).is_err());
    assert!(ScMetadata::new(vr(VrType::Key, 0, 0), 1, 10).is_err());
    assert!(ScMetadata::new(vr(VrType::Key, 0, 2), 1, 10).is_ok());
}

#[test]
fn noise_that_cannot_be_stated() {
    let noise = |value| sample().with_noise(Some(value), None).log2_variance();
    assert_eq!(noise(f64::NAN), None);
    assert_eq!(noise(0.0), None);
    assert_eq!(noise(3.0), None);
    assert_eq!(noise(f64::INFINITY), None);
    assert_eq!(noise(-1e-300), None);
    assert_eq!(noise(f64::NEG_INFINITY), Some(f32::MIN));
    assert_eq!(noise(-1e300), Some(f32::MIN));
    assert_eq!(noise(-30.25), Some(-30.25));
    let least = sample().with_noise(Some(f64::NEG_INFINITY), Some(-1e300));
    assert_eq!(ScMetadata::from_bytes(&least.to_bytes()), Ok(Some(least)));
}

#[test]
fn a_failure_that_is_certain_is_not_taken_for_none() {
    for certain in [0.0, 1.5, -1e-300, f64::NAN] {
        let sc = sample().with_noise(None, Some(certain));
        assert_eq!(sc.log2_p_fail(), Some(-f32::MIN_POSITIVE), "{certain}");
        assert_eq!(ScMetadata::from_bytes(&sc.to_bytes()), Ok(Some(sc)));
    }
    assert_eq!(sample().with_noise(None, None).log2_p_fail(), None);
}

fn any_metadata() -> impl Strategy<Value = ScMetadata> {
    let register = prop_oneof![
        (0..1u32 << 24).prop_map(|key| vr(VrType::Prg, key, 0)),
        (0..1u32 << 24, any::<u32>()).prop_map(|(key, data)| vr(VrType::Tv, key, data)),
        (0..1u32 << 24, 1..=2u32).prop_map(|(key, data)| vr(VrType::Key, key, data)),
        (0..1u32 << 24, any::<u32>()).prop_map(|(key, data)| vr(VrType::LweCor, key, data)),
        (0..1u32 << 24, any::<u32>()).prop_map(|(key, data)| vr(VrType::LweCow, key, data)),
    ];
    let extent = (1..=ScMetadata::MAX_OBJECT).prop_flat_map(|size| (Just(size), 0..size));
    let noise = proptest::option::of(-1e6..0.0f64);
    (
        register,
        any::<u16>(),
        extent,
        any::<u32>(),
        (0..=64u8, any::<bool>(), any::<bool>()),
        (noise.clone(), noise),
    )
        .prop_map(
            |(vr, params, (size, offset), blocks, (bits, signed, computed), noise)| {
                ScMetadata::new(vr, params, size)
                    .unwrap()
                    .with_offset(offset)
                    .unwrap()
                    .with_blocks(blocks)
                    .with_message(bits, signed)
                    .unwrap()
                    .with_noise(noise.0, noise.1)
                    .with_computed(computed)
            },
        )
}

proptest! {
    #[test]
    fn round_trip(metadata in any_metadata()) {
        prop_assert_eq!(ScMetadata::from_bytes(&metadata.to_bytes()), Ok(Some(metadata)));
    }

    #[test]
    fn any_bytes_are_refused_or_encode_to_themselves(
        mut bytes in any::<[u8; 32]>().prop_flat_map(|head| (Just(head), any::<[u8; 32]>()))
            .prop_map(|(head, tail)| <[u8; 64]>::try_from([head, tail].concat()).unwrap()),
        // Random bytes never pass the magic and the checksum; half of the cases get past both.
        sealed: bool,
        ty in 0..6u8,
    ) {
        if sealed {
            bytes[..6].copy_from_slice(&[b'T', b'S', b'C', b'M', 1, ty]);
            bytes[11] = 0;
            bytes[20..24].fill(0);
            bytes[37..40].fill(0);
            bytes[48..60].fill(0);
            reseal(&mut bytes);
        }
        if let Ok(Some(metadata)) = ScMetadata::from_bytes(&bytes) {
            prop_assert_eq!(ScMetadata::from_bytes(&metadata.to_bytes()), Ok(Some(metadata)));
        }
    }
}
