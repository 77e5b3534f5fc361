//! What is stored, what is refused, and what a refusal leaves.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use std::time::Duration;
use toroid_engine::backend::testing::{decode_sample, encode_sample, test_vector};
use toroid_engine::{
    Attributes, CancelToken, EngineConfig, EngineError, KeyForm, KeyKind, MemorySwap,
    PARTIAL_LIFETIME, Part, StoreOutcome, register_bytes,
};
use toroid_isa::{Instruction, Program, VrNumber, encode};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::{MESSAGE7, PAPER, ParamSet, TINY, TINY32};

fn part<'a>(of: &Part<'a>, offset: usize, length: usize) -> Part<'a> {
    Part {
        offset: offset as u64,
        bytes: &of.bytes[offset..offset + length],
        ..*of
    }
}

#[test]
fn a_part_of_an_object_that_was_started_anew_has_no_effect() {
    let engine = engine(1 << 20);
    let bytes = test_vector(&TINY, 4, |m| m);
    let all = whole(vr("tv:0:0"), &TINY, &bytes, bits(4));
    let first = engine.prepare(&part(&all, 0, 100)).unwrap();
    assert_eq!(
        engine.store_part(&part(&all, 0, 50)).unwrap(),
        StoreOutcome::Incomplete
    );
    assert_eq!(first.commit(), StoreOutcome::Superseded);
    assert_eq!(
        engine
            .store_part(&part(&all, 50, bytes.len() - 50))
            .unwrap(),
        StoreOutcome::Complete
    );
}

#[test]
fn parts_that_are_read_do_not_meet_those_that_are_written() {
    let engine = engine(1 << 20);
    let (old, new) = (
        test_vector(&TINY, 4, |m| m),
        test_vector(&TINY, 4, |m| 15 - m),
    );
    let all = |bytes| whole(vr("tv:0:0"), &TINY, bytes, bits(4));
    let read = |bytes, from, len| Ok(engine.prepare_read(&part(&all(bytes), from, len))?.commit());
    let write = |bytes, from, len| engine.store_part(&part(&all(bytes), from, len));
    let rest = new.len() - 100;
    // Reads between the parts of a write.
    assert_eq!(write(&new, 0, 100).unwrap(), StoreOutcome::Incomplete);
    assert_eq!(read(&old, 0, 50).unwrap(), StoreOutcome::Incomplete);
    assert_eq!(write(&new, 100, rest).unwrap(), StoreOutcome::Complete);
    // What was read before is older.
    let stale: Result<StoreOutcome, EngineError> = read(&old, 50, 50);
    assert!(matches!(
        stale,
        Err(EngineError::PartOrder { expected: 0, .. })
    ));
    assert_eq!(read(&old, 0, 100).unwrap(), StoreOutcome::Incomplete);
    assert_eq!(read(&old, 100, rest).unwrap(), StoreOutcome::Complete);
}

#[test]
fn sizes_are_those_of_table_3() {
    let size = |text: &str, params: &ParamSet| register_bytes(vr(text), params);
    assert_eq!(size("tv:0:7", &PAPER), Some(2 * 16384 * 4));
    assert_eq!(size("key:0:1", &PAPER), Some(800 * 16384 * 5 * 4 * 8));
    assert_eq!(size("key:0:2", &PAPER), Some(801 * 7 * 16384 * 4));
    assert_eq!(size("cor:0:9", &PAPER), Some(801 * 4));
    assert_eq!(
        size("cow:0:9", &MESSAGE7),
        Some(8 * (MESSAGE7.lwe_dimension as u64 + 1))
    );
    assert_eq!(size("prg:0:0", &PAPER), None);
    assert_eq!(size("key:0:3", &PAPER), None);
    assert_eq!(size("key:0:4", &PAPER), None);
}

#[test]
fn wrong_sizes_and_numbers_change_nothing() {
    let engine = engine(1 << 20);
    for (text, total) in [
        ("cor:0:1", 263),
        ("cow:0:1", 265),
        ("tv:0:0", 8191),
        ("key:0:1", 1),
        ("key:0:2", u64::MAX),
        ("key:0:3", 0),
        ("key:0:3", (4 << 30) + 1),
        ("key:0:4", 0),
        ("key:0:4", (4 << 30) + 1),
    ] {
        let part = Part {
            total_size: total,
            ..whole(vr(text), &TINY, &[0], bits(4))
        };
        let error = engine.store_part(&part).unwrap_err();
        assert!(
            matches!(error, EngineError::Size { found, .. } if found == total),
            "{error}"
        );
        assert!(error.to_string().starts_with(text), "{error}");
    }
    for text in ["key:0:0", "key:0:5", "prg:0:1"] {
        assert!(matches!(
            store(&engine, vr(text), &TINY, &[0; 16]),
            Err(EngineError::DataId { .. })
        ));
    }
    for total in [0, 15, 1 << 40] {
        let part = Part {
            total_size: total,
            ..whole(vr("prg:0:0"), &TINY, &[0], bits(4))
        };
        assert!(matches!(
            engine.store_part(&part),
            Err(EngineError::ProgramSize { .. })
        ));
    }
    assert!(engine.list().is_empty() && engine.params_of(0).is_none());
    assert_eq!(engine.persistent_bytes().0, 0);
}

#[test]
fn parts_come_in_order() {
    let engine = engine(1 << 20);
    let x = cor(0, 1);
    let (old, new) = (encode_sample(&TINY, 1, 4), encode_sample(&TINY, 2, 4));
    store(&engine, x, &TINY, &old).unwrap();
    let all = whole(x, &TINY, &new, bits(4));
    let is_old = || engine.read_sample(COMMAND, x).unwrap().bytes == old;
    let order = |part: &Part<'_>, expected: u64| {
        let error = engine.store_part(part).unwrap_err();
        assert!(
            matches!(error, EngineError::PartOrder { expected: e, .. } if e == expected),
            "{error}"
        );
        assert!(is_old());
    };
    order(&part(&all, 1, 5), 0);
    for wrong in [99, 101] {
        assert_eq!(
            engine.store_part(&part(&all, 0, 100)).unwrap(),
            StoreOutcome::Incomplete
        );
        order(&part(&all, wrong, 10), 100);
        // The wrong part dropped what had come.
        order(&part(&all, 100, 10), 0);
    }
    for (what, wrong) in [
        (
            "attributes",
            Part {
                attributes: bits(3),
                ..part(&all, 100, 10)
            },
        ),
        (
            "attributes",
            Part {
                attributes: Attributes {
                    encoding: Encoding::new(4, true).ok(),
                    ..bits(4)
                },
                ..part(&all, 100, 10)
            },
        ),
    ] {
        engine.store_part(&part(&all, 0, 100)).unwrap();
        let error = engine.store_part(&wrong).unwrap_err();
        assert!(
            matches!(error, EngineError::PartContradicts { what: w, .. } if w == what),
            "{error}"
        );
        order(&part(&all, 100, 10), 0);
    }
    assert!(matches!(
        engine.store_part(&Part { bytes: &[], ..all }),
        Err(EngineError::EmptyPart { .. })
    ));
    assert!(matches!(
        engine.store_part(&Part { offset: 1, ..all }),
        Err(EngineError::PartTooLong { .. })
    ));
    assert!(matches!(
        engine.store_part(&Part {
            offset: u64::MAX,
            ..all
        }),
        Err(EngineError::PartTooLong { .. })
    ));
    // Offset 0 starts anew.
    engine.store_part(&part(&all, 0, 50)).unwrap();
    engine.store_part(&part(&all, 0, 100)).unwrap();
    engine.store_part(&part(&all, 100, 3)).unwrap();
    assert!(is_old());
    assert_eq!(
        engine.store_part(&part(&all, 103, 161)).unwrap(),
        StoreOutcome::Complete
    );
    assert_eq!(engine.read_sample(COMMAND, x).unwrap().bytes, new);
}

#[test]
fn every_type_may_come_byte_by_byte() {
    let engine = engine(1 << 20);
    let program = Program::new(vec![Instruction::Return { n: cor(0, 1) }]).unwrap();
    let objects = [
        (vr("prg:0:0"), encode(&program)),
        (vr("tv:0:0"), test_vector(&TINY32, 3, |m| m)),
        (vr("cow:0:1"), encode_sample(&TINY32, 1, 3)),
    ];
    for (vr, bytes) in &objects {
        let all = whole(*vr, &TINY32, bytes, bits(3));
        for offset in 0..bytes.len() {
            assert!(engine.info(*vr).is_none());
            let outcome = engine.store_part(&part(&all, offset, 1)).unwrap();
            assert_eq!(outcome == StoreOutcome::Complete, offset + 1 == bytes.len());
        }
        assert_eq!(engine.info(*vr).unwrap().bytes, bytes.len() as u64);
    }
}

#[test]
fn words_must_be_canonical() {
    let engine = engine(1 << 20);
    let (x, tv) = (cor(0, 1), vr("tv:0:0"));
    for (vr, mut bytes) in [
        (x, encode_sample(&TINY, 1, 4)),
        (tv, test_vector(&TINY, 4, |m| m)),
    ] {
        store(&engine, vr, &TINY, &bytes).unwrap();
        let index = bytes.len() / 8 - 2;
        bytes[8 * index..8 * index + 8].copy_from_slice(&0xffff_ffff_0000_0000u64.to_le_bytes());
        store(&engine, vr, &TINY, &bytes).unwrap();
        bytes[8 * index..8 * index + 8].copy_from_slice(&0xffff_ffff_0000_0001u64.to_le_bytes());
        let error = store(&engine, vr, &TINY, &bytes).unwrap_err();
        assert!(
            matches!(error, EngineError::NotCanonical { index: i, .. } if i == index),
            "{error}"
        );
        assert!(engine.info(vr).is_some());
    }
    assert_ne!(
        engine.read_sample(COMMAND, x).unwrap().bytes[256 - 8..256],
        0xffff_ffff_0000_0001u64.to_le_bytes()
    );
    // Every word of the 32-bit torus is canonical.
    store(&engine, cor(1, 1), &TINY32, &vec![0xff; TINY32.lwe_bytes()]).unwrap();
}

#[test]
fn attributes_are_checked() {
    let engine = engine(1 << 20);
    let bytes = encode_sample(&TINY, 1, 4);
    for attributes in [
        Attributes {
            log2_variance: Some(f64::NAN),
            ..bits(4)
        },
        Attributes {
            log2_variance: Some(0.5),
            ..bits(4)
        },
        Attributes {
            log2_failure: Some(f64::INFINITY),
            ..bits(4)
        },
    ] {
        let error = engine
            .store_part(&whole(cor(0, 1), &TINY, &bytes, attributes))
            .unwrap_err();
        assert!(matches!(error, EngineError::Attribute { .. }), "{error}");
    }
    assert!(engine.list().is_empty());
    let attributes = Attributes {
        encoding: Encoding::new(3, true).ok(),
        log2_variance: Some(-30.0),
        log2_failure: Some(-64.0),
        ..Attributes::default()
    };
    engine
        .store_part(&whole(cor(0, 1), &TINY, &bytes, attributes))
        .unwrap();
    let info = engine.info(cor(0, 1)).unwrap();
    let noise = info.noise.unwrap();
    assert_eq!(
        (noise.variance().log2(), noise.log2_failure()),
        (-30.0, -64.0)
    );
    assert_eq!((info.encoding, info.computed), (attributes.encoding, false));
}

#[test]
fn a_key_id_has_one_parameter_set() {
    let engine = engine(1 << 20);
    store_message(&engine, cor(0, 1), &TINY, 1);
    let error = store(&engine, cor(0, 2), &TINY32, &encode_sample(&TINY32, 1, 3)).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::ParamsMismatch {
                expected: "tiny",
                found: "tiny32",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "cor:0:2 is of parameter set tiny32, but key id 0 is in use with tiny; put it under another key id, or open the drive anew"
    );
    // So has one that holds only the first part of an object.
    let vector = test_vector(&TINY32, 3, |m| m);
    let all = whole(vr("tv:1:0"), &TINY32, &vector, bits(3));
    engine.store_part(&part(&all, 0, 1)).unwrap();
    assert!(store(&engine, cor(1, 2), &TINY, &encode_sample(&TINY, 1, 4)).is_err());
    // An object may be started anew with another set if nothing else is there.
    let other = test_vector(&TINY, 4, |m| m);
    store(&engine, vr("tv:1:0"), &TINY, &other).unwrap();
    assert_eq!(engine.clear_key_id(0), 1);
    store(&engine, cor(0, 2), &TINY32, &encode_sample(&TINY32, 1, 3)).unwrap();
}

#[test]
fn a_replaced_key_goes_with_the_first_part() {
    let engine = engine(1 << 20);
    store_keys(&engine, 0, &TINY);
    let used = engine.persistent_bytes().0;
    let key = VrNumber::key(0, KeyKind::Bootstrapping).unwrap();
    let bytes = vec![1; TINY.bootstrapping_key_bytes() as usize];
    let all = whole(key, &TINY, &bytes, bits(0));
    // A first part that is refused leaves the key.
    let malformed = vec![0xff; bytes.len()];
    let refused = engine.store_part(&Part {
        bytes: &malformed[..64],
        ..all
    });
    assert!(matches!(refused, Err(EngineError::Backend { .. })));
    assert!(engine.info(key).is_some());
    assert_eq!(engine.persistent_bytes().0, used);
    engine.store_part(&part(&all, 0, 1000)).unwrap();
    assert!(engine.info(key).is_none(), "both may not fit");
    assert_eq!(engine.persistent_bytes().0, used);
    engine
        .store_part(&part(&all, 1000, bytes.len() - 1000))
        .unwrap();
    assert!(engine.info(key).is_some());
    assert_eq!(engine.persistent_bytes().0, used);
}

#[test]
fn seeded_keys_are_told_by_their_size_and_take_the_room_of_expanded_ones() {
    let key = VrNumber::key(0, KeyKind::Bootstrapping).unwrap();
    let table_3 = TINY.bootstrapping_key_bytes();
    let bytes = vec![1; KeyForm::Seeded.bootstrapping_key_bytes(&TINY) as usize];
    let with_room = |persistent_bytes| {
        let limited = EngineConfig {
            persistent_bytes,
            ..config(1 << 20)
        };
        engine_on(limited, std::sync::Arc::new(MemorySwap::new()))
    };
    let engine = with_room(table_3);
    store(&engine, key, &TINY, &bytes).unwrap();
    assert_eq!(engine.info(key).unwrap().bytes, table_3);
    for wrong in [bytes.len() - 1, bytes.len() + 1, bytes.len() - 32] {
        let error = store(&engine, key, &TINY, &vec![1; wrong]).unwrap_err();
        assert!(
            matches!(error, EngineError::Size { seeded: Some(seeded), .. } if seeded == bytes.len() as u64),
            "{error}"
        );
        assert!(error.to_string().contains("seeded"), "{error}");
    }
    assert!(matches!(
        store(&with_room(table_3 - 1), key, &TINY, &bytes),
        Err(EngineError::PersistentAreaFull { .. })
    ));
}

#[test]
fn the_persistent_area_is_limited() {
    let key_bytes = TINY.bootstrapping_key_bytes();
    let limited = EngineConfig {
        persistent_bytes: key_bytes + 8192,
        ..config(1 << 20)
    };
    let engine = engine_on(limited, std::sync::Arc::new(MemorySwap::new()));
    let key = vec![0; key_bytes as usize];
    store(&engine, vr("key:0:1"), &TINY, &key).unwrap();
    // The replacement fits only because the old key makes room.
    store(&engine, vr("key:0:1"), &TINY, &key).unwrap();
    assert!(matches!(
        store(&engine, vr("key:1:1"), &TINY, &key),
        Err(EngineError::PersistentAreaFull { .. })
    ));
    store_function(&engine, vr("tv:0:0"), &TINY, |m| m);
    let error = store(&engine, vr("tv:0:1"), &TINY, &test_vector(&TINY, 4, |m| m)).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::PersistentAreaFull {
                needed: 8192,
                available: 0,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(engine.list().len(), 2);
    // Samples are elsewhere.
    store_message(&engine, cor(0, 0), &TINY, 1);
    engine.remove(vr("key:0:1"));
    store(&engine, vr("key:0:1"), &TINY, &key).unwrap();
}

#[test]
fn malformed_programs_are_refused() {
    let engine = engine(1 << 20);
    store_message(&engine, cor(0, 1), &TINY, 1);
    store_program(&engine, 0, &TINY, &[Instruction::Return { n: cor(0, 1) }]);
    let good = encode(&Program::new(vec![Instruction::Return { n: cor(0, 1) }]).unwrap());
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 0x55;
        let error = store(&engine, vr("prg:0:0"), &TINY, &bad).unwrap_err();
        assert!(matches!(error, EngineError::Program { .. }), "{error}");
    }
    assert_eq!(decode_sample(&TINY, &run(&engine, 0).unwrap().bytes, 4), 1);
    assert_eq!(engine.persistent_bytes().0, 4096);
}

#[test]
fn incomplete_objects_are_limited_and_can_be_removed() {
    let engine = engine(1 << 20);
    let bytes = encode_sample(&TINY, 1, 4);
    let begin =
        |index: u32| engine.store_part(&part(&whole(cor(0, index), &TINY, &bytes, bits(4)), 0, 8));
    let begun = (0..5000).take_while(|index| begin(*index).is_ok()).count();
    assert_eq!(begun, 1024);
    assert!(matches!(
        begin(5000),
        Err(EngineError::TooManyPartialObjects)
    ));
    assert!(begin(7).is_ok(), "one that is there may start anew");
    let other = whole(cor(1, 0), &TINY, &bytes, bits(4));
    assert!(
        engine.store_part(&part(&other, 0, 8)).is_ok(),
        "of another key id"
    );
    assert!(!engine.remove(cor(0, 3)));
    assert!(begin(5000).is_ok());
    assert_eq!(engine.clear_key_id(0), 0);
    assert!(begin(5000).is_ok());
}

#[test]
fn objects_that_are_not_completed_expire() {
    let engine = engine(1 << 20);
    let tv = test_vector(&TINY, 4, |m| m);
    let whole = whole(vr("tv:0:9"), &TINY, &tv, bits(4));
    engine.store_part(&part(&whole, 0, 8)).unwrap();
    assert!(engine.persistent_bytes().0 > 0);
    assert_eq!(engine.drop_idle_parts(PARTIAL_LIFETIME), 0);
    engine.store_part(&part(&whole, 8, 16)).unwrap();
    assert_eq!(engine.drop_idle_parts(Duration::ZERO), 1);
    assert_eq!(engine.persistent_bytes().0, 0);
    assert!(matches!(
        engine.store_part(&part(&whole, 16, 24)),
        Err(EngineError::PartOrder { expected: 0, .. })
    ));
    engine.store_part(&whole).unwrap();
    assert_eq!(engine.drop_idle_parts(Duration::ZERO), 0);
    assert!(engine.info(vr("tv:0:9")).is_some());
}

#[test]
fn list_shows_registers_in_order() {
    let engine = engine(1 << 20);
    store_message(&engine, vr("cow:0:2"), &TINY, 1);
    store_message(&engine, cor(3, 1), &TINY32, 1);
    store_function(&engine, vr("tv:0:9"), &TINY, |m| m);
    let list = engine.list();
    let names: Vec<String> = list.iter().map(|info| info.vr.to_string()).collect();
    assert_eq!(names, ["tv:0:9", "cor:3:1", "cow:0:2"]);
    assert_eq!(list[0].bytes, 8192);
    assert!(list[0].page.is_none() && list[0].noise.is_none());
    assert_ne!(list[0].address, list[1].address);
    assert!(engine.remove(cor(3, 1)));
    assert!(!engine.remove(cor(3, 1)));
    assert!(matches!(
        engine.read_sample(COMMAND, cor(3, 1)),
        Err(EngineError::NoSuchRegister { .. })
    ));
    assert!(matches!(
        engine.read_sample(COMMAND, vr("tv:0:9")),
        Err(EngineError::NotASample { .. })
    ));
}

#[test]
fn what_is_prepared_and_not_committed_has_no_effect() {
    let engine = engine(1 << 20);
    let x = cor(0, 1);
    store_keys(&engine, 0, &TINY);
    store_message(&engine, x, &TINY, 1);
    store_function(&engine, vr("tv:0:0"), &TINY, |m| m);
    store_program(
        &engine,
        0,
        &TINY,
        &[
            Instruction::HomAdd { dst: x, src: x },
            Instruction::Return { n: x },
        ],
    );
    let (before, used) = (samples(&engine), engine.persistent_bytes());
    let registers = engine.list().len();
    let key = vec![0; TINY.bootstrapping_key_bytes() as usize];
    let objects = [
        (x, encode_sample(&TINY, 2, 4)),
        (vr("tv:0:0"), test_vector(&TINY, 4, |m| 15 - m)),
        (vr("tv:0:1"), test_vector(&TINY, 4, |m| 15 - m)),
        (vr("prg:0:0"), encode(&Program::new(vec![]).unwrap())),
        (vr("key:0:1"), key),
    ];
    for (vr, bytes) in &objects {
        let all = whole(*vr, &TINY, bytes, bits(4));
        for attempt in [all, part(&all, 0, 8)] {
            drop(engine.prepare(&attempt).unwrap());
            // What had come is gone with it.
            let next = Part {
                offset: 8,
                bytes: &bytes[8..9],
                ..all
            };
            assert!(
                matches!(
                    engine.store_part(&next),
                    Err(EngineError::PartOrder { expected: 0, .. })
                ),
                "{vr}"
            );
        }
    }
    let bytes = encode_sample(&TINY, 2, 4);
    let trigger = whole(x, &TINY, &bytes, bits(4));
    let cancel = CancelToken::new();
    let run_of_x = engine.begin_run(&trigger, &cancel).unwrap();
    let prepared = run_of_x.execute().unwrap();
    assert_eq!(decode_sample(&TINY, &prepared.outcome().bytes, 4), 4);
    drop(prepared);
    assert_eq!(samples(&engine), before);
    assert_eq!(
        (engine.persistent_bytes(), engine.list().len()),
        (used, registers)
    );
    assert_eq!(
        decode_sample(&TINY, &run(&engine, 0).unwrap().bytes, 4),
        2,
        "the old program is there"
    );
}

#[test]
fn a_key_id_has_one_client_key() {
    let engine = engine(1 << 20);
    let [ours, theirs] = [Some([1; 12]), Some([2; 12])];
    let of = |key_tag| Attributes {
        key_tag,
        ..bits(TINY.message_bits)
    };
    let put = |vr, bytes: &[u8], tag| engine.store_part(&whole(vr, &TINY, bytes, of(tag)));
    let refused = |vr, bytes: &[u8], tag| {
        let error = put(vr, bytes, tag).unwrap_err();
        assert!(matches!(error, EngineError::KeyTagMismatch { .. }));
        assert!(error.to_string().contains("client key"), "{error}");
    };
    let sample = encode_sample(&TINY, 1, 3);
    let bootstrapping = vec![0; TINY.bootstrapping_key_bytes() as usize];
    let switching = vec![0; TINY.key_switching_key_bytes() as usize];
    let [bsk, ksk] = KINDS.map(|kind| VrNumber::key(0, kind).unwrap());

    put(bsk, &bootstrapping, ours).unwrap();
    put(cor(0, 1), &sample, ours).unwrap();
    // What states no tag goes with any; another key id has a key of its own.
    put(cor(0, 2), &sample, None).unwrap();
    put(cor(1, 2), &sample, theirs).unwrap();
    refused(cor(0, 3), &sample, theirs);
    refused(ksk, &switching, theirs);
    refused(cor(0, 1), &sample, theirs);
    // So is the first part of one, and a sample that comes with a run.
    let all = whole(cor(0, 4), &TINY, &sample, of(theirs));
    assert!(engine.store_part(&part(&all, 0, 8)).is_err());
    let program = Program::new(vec![Instruction::Return { n: cor(0, 4) }]).unwrap();
    let cancel = CancelToken::new();
    let ran = engine.evaluate(COMMAND, vr("prg:0:0"), &program, &[all], &cancel);
    assert!(matches!(ran, Err(EngineError::KeyTagMismatch { .. })));
    // Whatever is read does not change whose the key id is.
    let read = engine.prepare_read(&whole(bsk, &TINY, &bootstrapping, of(theirs)));
    assert!(matches!(read, Err(EngineError::KeyTagMismatch { .. })));
    drop(read);
    assert_eq!(engine.list().len(), 4);

    // A bootstrapping key begins the key id anew, with its first part.
    store(&engine, vr("tv:0:0"), &TINY, &test_vector(&TINY, 3, |m| m)).unwrap();
    let new = whole(bsk, &TINY, &bootstrapping, of(theirs));
    engine.store_part(&part(&new, 0, 8)).unwrap();
    let left: Vec<_> = engine.list().iter().map(|info| info.vr).collect();
    assert_eq!(left, [vr("tv:0:0"), cor(1, 2)]);
    refused(ksk, &switching, ours);
    put(ksk, &switching, theirs).unwrap();
    put(cor(0, 1), &sample, theirs).unwrap();
    // With the last register the key id forgets its key.
    engine.clear_key_id(0);
    put(cor(0, 1), &sample, ours).unwrap();
    engine.remove(cor(0, 1));
    put(cor(0, 1), &sample, theirs).unwrap();
}

#[test]
fn a_part_does_not_claim_a_key_id_that_another_client_key_has_got_meanwhile() {
    let engine = engine(1 << 20);
    let of = |key_tag| Attributes {
        key_tag,
        ..bits(TINY.message_bits)
    };
    let [ours, theirs] = [Some([1; 12]), Some([2; 12])];
    let sample = encode_sample(&TINY, 1, 3);
    let all = whole(cor(0, 1), &TINY, &sample, of(ours));
    let first = engine.prepare(&part(&all, 0, 8)).unwrap();
    let other = whole(cor(0, 2), &TINY, &sample, of(theirs));
    engine.store_part(&other).unwrap();
    assert_eq!(first.commit(), StoreOutcome::Superseded);
    // The other's sample is there, and the key id is still theirs.
    assert_eq!(engine.list().len(), 1);
    engine.store_part(&other).unwrap();
    let late = engine.store_part(&part(&all, 8, sample.len() - 8));
    assert!(matches!(late, Err(EngineError::PartOrder { .. })));

    // So with a whole sample, and a part that comes between its check and its effect.
    engine.clear_key_id(0);
    let whole_sample = engine.prepare(&whole(cor(0, 1), &TINY, &sample, of(ours)));
    let whole_sample = whole_sample.unwrap();
    let between = whole(cor(0, 2), &TINY, &sample, of(theirs));
    engine.store_part(&part(&between, 0, 8)).unwrap();
    assert_eq!(whole_sample.commit(), StoreOutcome::Superseded);
    assert!(engine.list().is_empty());
    engine.store_part(&other).unwrap();
}
