//! The drive as a host sees it: what its commands do to the SSD and to virtual registers.

#![allow(clippy::unwrap_used)]

mod common;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use futures::executor::block_on;
use futures::future::join_all;
use proptest::prelude::*;
use toroid_drive::bridge::{Effect, TraceKind, status};
use toroid_drive::ssd::Fault;
use toroid_drive::{Drive, DriveError, SWAP_NSID};
use toroid_engine::PARTIAL_LIFETIME;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::{decode_sample, encode_sample, test_vector};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{Instruction, Program, assemble, encode};
use toroid_nvme::{Controller, DsmRange, Request, Sqe, Status, opcode};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::Goldilocks;
use toroid_tfhe::params::{MESSAGE7, TINY, TINY32};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use zerocopy::IntoBytes;

fn decode(bytes: &[u8]) -> u64 {
    decode_sample(&TINY, bytes, TINY.message_bits)
}

fn upload_program(bench: &Bench, source: &str) {
    let program = encode(&assemble(source).unwrap().program);
    bench.write_object(PROGRAM_LBA, sc(vr("prg:0:0"), &program), &program);
}

/// Table 6, with x in a sample of type 3 and y in one of type 4.
#[test]
fn table_6() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        assert_eq!(bench.write_sample(X_LBA, X, &message(3)), Effect::Stored);
        assert_eq!(bench.write_sample(Y_LBA, Y, &message(1)), Effect::Computed);

        let (result, metadata, effect) = bench.read_object(Y_LBA, TINY.lwe_bytes());
        assert_eq!(
            effect,
            Effect::Stored,
            "a read of type 4 loads the register"
        );
        assert_eq!(decode(&result), 3);
        let metadata = metadata.unwrap();
        assert_eq!((metadata.vr(), metadata.computed()), (vr(Y), true));
        assert_eq!(metadata.message_bits(), 4);
        let run = bench.drive.program_runs().pop().unwrap();
        assert_eq!((run.trigger, run.cid), (vr(Y), CID));
        let close = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-3;
        assert!(close(
            metadata.log2_variance().unwrap(),
            run.variance.log2()
        ));
        assert!(close(metadata.log2_p_fail().unwrap(), run.log2_failure));
        assert!(run.log2_failure < 0.0);
        assert_eq!(bench.sample(Y), result);
        // Table 5 leaves ((x-y)^2)/4 where x was.
        assert_eq!(bench.sample(X), message(1));
        let statistics = bench.drive.statistics();
        assert_eq!((statistics.bootstraps, statistics.failed), (2, 0));
        assert_eq!(statistics.programs[&0].runs, 1);

        // Steps 1 to 8 need not be done again.
        bench.write_sample(X_LBA, X, &message(2));
        bench.write_sample(Y_LBA, Y, &message(2));
        let (result, ..) = bench.read_object(Y_LBA, TINY.lwe_bytes());
        assert_eq!(decode(&result), 4);
    }
}

#[test]
fn data_rewritten_under_its_metadata_is_the_hosts_again() {
    let bench = Bench::new(SECOND_HALF);
    bench.upload();
    bench.write_sample(X_LBA, X, &message(3));
    bench.write_sample(Y_LBA, Y, &message(1));
    let first = bench.drive.program_runs().pop().unwrap();
    bench.write_sample(X_LBA, X, &message(3));
    let y = sc(vr(Y), &message(1));
    // Only the data: the metadata of step 11 still stands, and not that of the result.
    let data = bench.requests(Y_LBA, y, &message(1)).pop().unwrap();
    bench.succeed(data.clone());
    let second = bench.drive.program_runs().pop().unwrap();
    assert_eq!(first.log2_failure, second.log2_failure);
    // Without a program the data stays the host's, and its metadata on the SSD says so.
    bench.drive.engine().remove(vr("prg:0:0"));
    bench.succeed(data);
    let (stored, metadata, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());
    assert_eq!(stored, message(1));
    assert_eq!(metadata, Some(y.with_blocks(1)));
}

#[test]
fn a_result_stays_one_after_a_trigger_that_failed() {
    let bench = Bench::new(SECOND_HALF);
    bench.upload();
    bench.write_sample(X_LBA, X, &message(3));
    bench.write_sample(Y_LBA, Y, &message(1));
    let (product, of_product, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());
    assert!(of_product.unwrap().computed());
    // The next y: its metadata comes first, and reads back as it was written.
    bench.write_sample(X_LBA, X, &message(3));
    let requests = bench.requests(Y_LBA, sc(vr(Y), &message(2)), &message(2));
    let [metadata, data] = requests.as_slice() else {
        panic!("{} requests", requests.len());
    };
    bench.succeed(metadata.clone());
    assert_eq!(bench.read_plain(Y_LBA + BLOCKS, 1), metadata.data);
    // The trigger fails: the old product is there, and is not said to be fresh.
    let key = bench.drive.engine();
    key.remove(vr("key:0:2"));
    assert_eq!(bench.fail(data.clone()), status::KEY_MISSING);
    let (stored, described, effect) = bench.read_object(Y_LBA, TINY.lwe_bytes());
    assert_eq!((stored, effect), (product, Effect::Stored));
    assert_eq!(described, of_product);
    assert!(key.info(vr(Y)).unwrap().computed);
    // Once the trigger works, its data and its result take the place.
    bench.upload_keys();
    assert_eq!(
        Effect::of(&bench.succeed(data.clone()).cqe),
        Some(Effect::Computed)
    );
    let (result, described, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());
    assert_eq!(decode(&result), 6);
    assert!(described.unwrap().computed());
    // Without a program the data of the host takes it.
    bench.drive.engine().remove(vr("prg:0:0"));
    for request in &requests {
        bench.succeed(request.clone());
    }
    let (stored, described, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());
    assert_eq!(stored, message(2));
    assert!(!described.unwrap().computed());
}

#[test]
fn compute_on_read() {
    for mode in MODES {
        let bench = Bench::new(mode);
        // y and x are there before the program, which then runs on each read of x.
        assert_eq!(bench.write_sample(Y_LBA, Y, &message(2)), Effect::Stored);
        assert_eq!(bench.write_sample(X_LBA, X, &message(3)), Effect::Stored);
        let (plain, metadata, effect) = bench.read_object(X_LBA, TINY.lwe_bytes());
        assert_eq!((plain, effect), (message(3), Effect::Stored));
        assert!(!metadata.unwrap().computed());
        bench.upload();
        let before = bench.state();
        for _ in 0..2 {
            let (result, metadata, effect) = bench.read_object(X_LBA, TINY.lwe_bytes());
            assert_eq!((decode(&result), effect), (6, Effect::Computed));
            let metadata = metadata.unwrap();
            assert!(metadata.computed() && metadata.log2_p_fail().is_some());
        }
        let after = bench.state();
        assert!(
            (before.1, before.2) == (after.1, after.2),
            "the SSD keeps the sample"
        );
        // The metadata of the result goes when the data is no longer that of the result.
        bench.write_sample(X_LBA, X, &message(2));
        if mode == SECOND_HALF {
            let shown = bench.read_plain(X_LBA + BLOCKS, 1);
            let shown = ScMetadata::from_bytes(&shown[..64]).unwrap().unwrap();
            assert!(!shown.computed());
        }
    }
}

#[test]
fn registers_are_loaded_again_after_a_restart() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        bench.write_sample(X_LBA, X, &message(3));
        bench.write_sample(Y_LBA, Y, &message(1));
        let (result, metadata, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());

        let bench = bench.reopen();
        assert!(bench.drive.engine().list().is_empty());
        let (again, same, effect) = bench.read_object(Y_LBA, TINY.lwe_bytes());
        assert_eq!((again, same, effect), (result, metadata, Effect::Stored));
        let info = bench.drive.engine().info(vr(Y)).unwrap();
        assert!(info.computed);
        let p_fail = metadata.unwrap().log2_p_fail().unwrap();
        assert!((info.noise.unwrap().log2_failure() - f64::from(p_fail)).abs() < 1e-3);

        // The other objects, piece by piece as a host reads them; then x, whose read is the trigger: x · (x·y).
        for (lba, bytes) in [
            (BKNTT_LBA, TINY.bootstrapping_key_bytes() as usize),
            (KSK_LBA, TINY.key_switching_key_bytes() as usize),
            (TV_LBA, bench.test_vector.len()),
            (PROGRAM_LBA, bench.program.len()),
        ] {
            let mut effect = Effect::None;
            for start in (0..bytes.div_ceil(BLOCK) as u64).step_by(CLUSTER as usize) {
                let left = bytes - start as usize * BLOCK;
                let piece = left.min(CLUSTER as usize * BLOCK);
                effect = bench.read_object(lba + start, piece).2;
            }
            assert_eq!(effect, Effect::Stored);
        }
        let (product, ..) = bench.read_object(X_LBA, TINY.lwe_bytes());
        assert_eq!(decode(&product), 9);
    }
}

#[test]
fn reads_of_a_loaded_object_leave_its_register_alone() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        let registers = bench.drive.engine().list().len();
        let (key, key_len) = (KSK_LBA, TINY.key_switching_key_bytes() as usize);
        // As udev looks at a device: the first block, a few, one in the middle, the last.
        let last = key + key_len.div_ceil(BLOCK) as u64 - 1;
        for (lba, len) in [
            (key, BLOCK),
            (key, 8 * BLOCK),
            (key + CLUSTER + 3, BLOCK),
            (last, BLOCK),
            (BKNTT_LBA, BLOCK),
            (TV_LBA, BLOCK),
            (PROGRAM_LBA, BLOCK),
        ] {
            let (.., effect) = bench.read_object(lba, len);
            assert_eq!(effect, Effect::Stored, "{len} bytes at LBA {lba}");
            assert_eq!(bench.drive.engine().list().len(), registers);
        }
        bench.write_sample(X_LBA, X, &message(3));
        assert_eq!(bench.write_sample(Y_LBA, Y, &message(1)), Effect::Computed);

        // While a host loads the key after a restart, another looks at its first blocks.
        let bench = bench.reopen();
        let load = |disturb: bool| {
            let mut effect = Effect::None;
            for start in (0..key_len.div_ceil(BLOCK) as u64).step_by(CLUSTER as usize) {
                let left = key_len - start as usize * BLOCK;
                let piece = left.min(CLUSTER as usize * BLOCK);
                effect = bench.read_object(key + start, piece).2;
                if disturb && effect == Effect::PartTaken {
                    assert_eq!(bench.read_object(key, BLOCK).2, Effect::PartTaken);
                }
            }
            effect
        };
        assert_eq!(load(true), Effect::Stored);
        // Another key of the same register replaces it: then the blocks of the first one bring something else.
        let other = vec![1; key_len];
        assert_eq!(
            bench.write_object(FREE_LBA, sc(vr("key:0:2"), &other), &other),
            Effect::Stored
        );
        assert_eq!(bench.read_object(key, BLOCK).2, Effect::PartTaken);
        assert_eq!(load(false), Effect::Stored);
    }
}

#[test]
fn what_a_retry_cannot_help_says_so() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.write_object(
            PROGRAM_LBA,
            sc(vr("prg:0:0"), &bench.program),
            &bench.program,
        );
        // No key, no test vector and no x: Linux would try the trigger six times.
        let y = sc(vr(Y), &message(1));
        let trigger = bench.requests(Y_LBA, y, &message(1));
        let responses: Vec<_> = trigger
            .into_iter()
            .map(|request| bench.submit(request))
            .collect();
        let response = responses.last().unwrap();
        assert_eq!(response.cqe.status(), status::KEY_MISSING);
        assert!(response.cqe.do_not_retry());
        // The medium may work the next time.
        bench.ssd.fail_read(1);
        let response = bench.submit(read(FREE_LBA, BLOCK));
        assert_eq!(response.cqe.status(), Status::UNRECOVERED_READ_ERROR);
        assert!(!response.cqe.do_not_retry());
    }
}

#[test]
fn plain_data_does_what_an_ssd_does() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let data = vec![7; 3 * BLOCK];
        bench.write_plain(5, &data);
        assert_eq!(bench.read_plain(5, 3), data);
        assert_eq!(bench.read_plain(8, 1), vec![0; BLOCK]);
        let metadata = vec![0; if mode == NVME { 64 } else { 0 }];
        let compare = |byte| Request {
            sqe: Sqe::compare(CID, 1, 6, 0),
            data: vec![byte; BLOCK],
            metadata: metadata.clone(),
        };
        bench.succeed(compare(7));
        assert_eq!(bench.fail(compare(8)), Status::COMPARE_FAILURE);
        bench.succeed(Request::new(Sqe::write_zeroes(CID, 1, 5, 0)));
        let range = DsmRange {
            slba: 7.into(),
            blocks: 1.into(),
            ..DsmRange::default()
        };
        bench.succeed(Request {
            data: range.as_bytes().to_vec(),
            ..Request::new(Sqe::deallocate(CID, 1, 0))
        });
        let mut expected = vec![0; BLOCK];
        expected.extend(vec![7; BLOCK]);
        expected.extend(vec![0; BLOCK]);
        assert_eq!(bench.read_plain(5, 3), expected);
        bench.succeed(Request::new(Sqe::flush(CID, 1)));
        bench.ssd.power_off();
        bench.ssd.power_on();
        assert_eq!(bench.read_plain(5, 3), expected, "flushed");
        let fua = Request {
            sqe: Sqe::write(CID, 1, 9, 0).with_fua(),
            data: vec![9; BLOCK],
            metadata,
        };
        bench.succeed(fua);
        bench.write_plain(10, &data);
        bench.ssd.power_off();
        bench.ssd.power_on();
        assert_eq!(bench.read_plain(9, 1), vec![9; BLOCK], "FUA");
        assert_eq!(bench.read_plain(10, 1), vec![0; BLOCK], "volatile");
        assert!(bench.drive.engine().list().is_empty());
    }
}

#[test]
fn impossible_commands_get_the_statuses_of_the_specification() {
    let bench = Bench::new(NVME);
    let before = bench.state();
    let too_long = Sqe::read(CID, 1, 0, (bench.config.mdts_bytes / BLOCK as u32) as u16);
    let unknown = Sqe {
        opcode: 0x7F,
        ..Sqe::flush(CID, 1)
    };
    let cases = [
        (Sqe::read(CID, 2, 0, 0), Status::INVALID_NAMESPACE),
        (Sqe::read(CID, 1, BLOCKS, 0), Status::LBA_OUT_OF_RANGE),
        (Sqe::read(CID, 1, u64::MAX, 5), Status::LBA_OUT_OF_RANGE),
        (too_long, Status::INVALID_FIELD),
        (Sqe::write(CID, 1, 0, 0), Status::DATA_SGL_LENGTH_INVALID),
        (unknown, Status::INVALID_OPCODE),
    ];
    for (sqe, expected) in cases {
        assert_eq!(bench.fail(Request::new(sqe)), expected, "{sqe}");
        let entry = bench.last_error(CID).unwrap();
        assert_eq!((entry.status, entry.command), (expected, sqe));
        assert!(!entry.reason.is_empty());
    }
    let mut without_metadata = bench.requests(0, sc(vr(X), &message(0)), &message(0));
    without_metadata[0].metadata.clear();
    let status = bench.fail(without_metadata.remove(0));
    assert_eq!(status, Status::METADATA_SGL_LENGTH_INVALID);
    assert!(bench.state() == before);
    assert_eq!(bench.drive.identify_controller().mdts_bytes(), 32768);
    assert_eq!(
        bench.drive.identify_namespace(1).unwrap().nsze.get(),
        BLOCKS
    );
    assert!(bench.drive.identify_namespace(2).is_none());
    assert!(Drive::explain(status::KEY_MISSING).contains("key"));
}

/// Every refusal: nothing changes, and host and error log learn why.
#[test]
fn refused_commands_leave_everything_as_it_was() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        bench.write_sample(X_LBA, X, &message(3));
        let lba = FREE_LBA;
        let y = message(1);
        let refuse = |sc: ScMetadata, bytes: &[u8], expected: Status| {
            let requests = bench.requests(lba, sc, bytes);
            // In the second-half form some are refused when they are registered.
            let mut refused = None;
            for request in requests {
                let before = bench.state();
                let response = bench.submit(request);
                if !response.cqe.status().is_success() {
                    assert!(bench.state() == before, "{sc} changed something");
                    refused = Some(response.cqe.status());
                }
            }
            assert_eq!(refused, Some(expected), "{sc}");
            let entry = bench.last_error(CID).unwrap();
            assert_eq!(entry.status, expected);
            bench.succeed(Request::new(Sqe::write_zeroes(CID, 1, lba, 31)));
            if mode == SECOND_HALF {
                bench.succeed(Request::new(Sqe::write_zeroes(CID, 1, lba + BLOCKS, 0)));
            }
            entry.reason
        };
        let of = |text: &str, bytes: &[u8]| sc(vr(text), bytes);

        let reason = refuse(of(Y, &y[..200]), &y[..200], status::WRONG_SIZE);
        assert!(reason.contains("264"), "{reason}");
        let unknown = ScMetadata::new(vr(Y), 999, 264).unwrap();
        refuse(unknown, &y, status::WRONG_PARAMETERS);
        let other = encode_sample(&TINY32, 1, 3);
        let other_set = ScMetadata::new(vr(Y), TINY32.id, other.len() as u64).unwrap();
        refuse(other_set, &other, status::WRONG_PARAMETERS);
        let [ours, theirs] = [[1; 12], [2; 12]];
        let x = of(X, &message(3)).with_key_tag(ours);
        bench.write_object(X_LBA, x, &message(3));
        for register in [Y, "cor:0:9"] {
            let other_client = of(register, &y).with_key_tag(theirs);
            let reason = refuse(other_client, &y, status::WRONG_KEY_TAG);
            assert!(reason.contains("another client key"), "{reason}");
        }
        for register in [X, Y, "tv:0:5"] {
            let mut bytes = y.clone();
            if register == "tv:0:5" {
                bytes = bench.test_vector.clone();
            }
            bytes[16..24].fill(0xFF);
            refuse(of(register, &bytes), &bytes, status::MALFORMED_WORDS);
        }
        refuse(of("prg:0:0", &[1; 40]), &[1; 40], status::PROGRAM_MALFORMED);
        let late = of("tv:0:5", &bench.test_vector);
        let late = late.with_offset(BLOCK as u64).unwrap();
        let rest = &bench.test_vector[BLOCK..2 * BLOCK];
        refuse(late, rest, status::PART_ORDER);
        if mode == NVME {
            for wide in [41, 60] {
                let bits = of(X, &y).with_message(wide, false).unwrap();
                refuse(bits, &y, status::METADATA_INVALID);
            }
        }

        // What only the run finds out.
        let engine = bench.drive.engine();
        engine.remove(vr("key:0:2"));
        let reason = refuse(of(Y, &y), &y, status::KEY_MISSING);
        assert!(reason.contains("key-switching key"), "{reason}");
        engine.remove(bench.tv);
        bench.upload_keys();
        refuse(of(Y, &y), &y, status::REGISTER_EMPTY);
        let n = vr(X);
        let program = Program::new(vec![Instruction::Pop { n }, Instruction::Return { n }]);
        let program = encode(&program.unwrap());
        bench.write_object(PROGRAM_LBA, sc(vr("prg:0:0"), &program), &program);
        refuse(of(Y, &y), &y, status::PROGRAM_REFUSED);
        // A program touches its own key id alone, whoever triggers it.
        let other = encode_sample(&TINY32, 1, 3);
        let other_sc = ScMetadata::new(vr("cor:7:1"), TINY32.id, other.len() as u64).unwrap();
        bench.write_object(FREE_LBA + CLUSTER, other_sc, &other);
        upload_program(&bench, "return cor:7:1");
        let reason = refuse(of(Y, &y), &y, status::PROGRAM_REFUSED);
        assert!(reason.contains("key ids"), "{reason}");
    }
}

/// A sample of several blocks, with a program that needs no keys: padding, and what happens to pieces of it.
#[test]
fn samples_of_many_blocks() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let value = |m| encode_sample(&MESSAGE7, m, 7);
        let of = |text: &str| {
            let bytes = MESSAGE7.lwe_bytes() as u64;
            let sc = ScMetadata::new(vr(text), MESSAGE7.id, bytes).unwrap();
            sc.with_message(7, false).unwrap()
        };
        let source = "homadd cow:0:2, cor:0:1\nreturn cow:0:2";
        let program = encode(&assemble(source).unwrap().program);
        let program_sc = ScMetadata::new(vr("prg:0:0"), MESSAGE7.id, program.len() as u64).unwrap();
        bench.write_object(PROGRAM_LBA, program_sc, &program);
        bench.write_object(X_LBA, of(X), &value(30));

        let mut requests = bench.requests(Y_LBA, of(Y), &value(12));
        let mut data = requests.pop().unwrap();
        let padding = data.data.len() - MESSAGE7.lwe_bytes();
        assert!(padding > 0);
        data.data[MESSAGE7.lwe_bytes()..].fill(0xEE);
        for request in requests {
            bench.succeed(request);
        }
        bench.succeed(data.clone());
        let whole = data.data.len();
        let (read, ..) = bench.read_object(Y_LBA, whole);
        assert_eq!(
            decode_sample(&MESSAGE7, &read[..MESSAGE7.lwe_bytes()], 7),
            42
        );
        assert_eq!(read[MESSAGE7.lwe_bytes()..], vec![0xEE; padding]);

        // A trigger in pieces is refused; a piece of a stored sample is only data.
        let mut half = data.clone();
        half.sqe = Sqe::write(CID, 1, Y_LBA, 3);
        half.data.truncate(4 * BLOCK);
        half.metadata
            .truncate(if mode == NVME { 4 * 64 } else { 0 });
        let before = bench.state();
        assert_eq!(bench.fail(half), status::TRIGGER_SPLIT);
        assert_eq!(bench.fail(read_of(X_LBA, 2)), status::TRIGGER_SPLIT);
        assert!(bench.state() == before);
        let middle = bench.succeed(read_of(Y_LBA + 2, 3));
        assert_eq!(middle.data, read[2 * BLOCK..5 * BLOCK]);
        assert_eq!(Effect::of(&middle.cqe), Some(Effect::NotLoaded));
        let entry = bench.last_error(CID).unwrap();
        assert_eq!(entry.status, Status::SUCCESS);
        assert!(entry.reason.contains(Y), "{}", entry.reason);
        assert!(bench.state() == before);
        // Two pieces in order make the register anew.
        let first = bench.succeed(read_of(Y_LBA, 10));
        assert_eq!(Effect::of(&first.cqe), Some(Effect::PartTaken));
        let second = bench.succeed(read_of(Y_LBA + 10, whole / BLOCK - 10));
        assert_eq!(Effect::of(&second.cqe), Some(Effect::Stored));
        assert_eq!(bench.sample(Y), read[..MESSAGE7.lwe_bytes()]);
        // Beyond the object's end, or over two objects.
        let beyond = bench.submit(read_of(Y_LBA + 10, whole / BLOCK - 9));
        assert_eq!(beyond.cqe.status(), status::METADATA_MISMATCH);
    }
}

#[test]
fn reads_do_not_disturb_an_upload_in_parts() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        let old = bench.test_vector.clone();
        let new = test_vector(&TINY, 4, |m| 15 - m);
        let blocks = new.len().div_ceil(BLOCK);
        assert!(blocks > 2);
        let described = sc(bench.tv, &new);
        let parts = (0..blocks).map(|block| {
            let offset = block * BLOCK;
            let mut data = new[offset..new.len().min(offset + BLOCK)].to_vec();
            data.resize(BLOCK, 0);
            let part = described.with_offset(offset as u64).unwrap();
            Request {
                sqe: Sqe::write(CID, 1, TV_LBA + block as u64, 0),
                data,
                metadata: bench.metadata(part, 1),
            }
        });
        let whole = |bench: &Bench| bench.drive.engine().info(bench.tv).is_some();
        for (number, part) in parts.enumerate() {
            let effect = Effect::of(&bench.succeed(part).cqe);
            let last = number + 1 == blocks;
            let expected = if last {
                Effect::Stored
            } else {
                Effect::PartTaken
            };
            assert_eq!(effect, Some(expected), "part {number} in {mode:?}");
            // The first block, all of them, and the last.
            bench.succeed(read_of(TV_LBA, 1));
            bench.succeed(read_of(TV_LBA, blocks));
            bench.succeed(read_of(TV_LBA + blocks as u64 - 1, 1));
            assert!(whole(&bench));
        }
        assert!(old != new);
        let stored = bench.read_plain(TV_LBA, blocks);
        assert!(stored[..new.len()] == new);
    }
}

fn read_of(lba: u64, blocks: usize) -> Request {
    read(lba, blocks * BLOCK)
}

/// Every write that a command issues fails once; then nothing has changed, and the same command succeeds.
#[test]
fn ssd_faults_have_no_effect() {
    let faults = [
        Fault::Error,
        Fault::Full { bytes: 100 },
        Fault::Torn { bytes: 300 },
    ];
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        let program = encode(&assemble(TABLE_5).unwrap().program);
        let objects: [(u64, ScMetadata, Vec<u8>, Effect); 5] = [
            (X_LBA, sc(vr(X), &message(3)), message(3), Effect::Stored),
            (Y_LBA, sc(vr(Y), &message(1)), message(1), Effect::Computed),
            (
                TV_LBA,
                sc(bench.tv, &bench.test_vector),
                bench.test_vector.clone(),
                Effect::Stored,
            ),
            (
                PROGRAM_LBA,
                sc(vr("prg:0:0"), &program),
                program,
                Effect::Stored,
            ),
            (X_LBA, sc(vr(X), &message(2)), message(2), Effect::Stored),
        ];
        let mut failures = 0;
        for (lba, sc, bytes, effect) in objects {
            let mut requests = bench.requests(lba, sc, &bytes);
            let data = requests.pop().unwrap();
            for request in requests {
                bench.succeed(request);
            }
            for fault in faults {
                for nth in 1.. {
                    let before = bench.state();
                    bench.ssd.fail_write(nth, fault);
                    let response = bench.submit(data.clone());
                    if response.cqe.status().is_success() {
                        assert_eq!(Effect::of(&response.cqe), Some(effect));
                        // Takes the fault back that no write met.
                        bench.ssd.power_on();
                        break;
                    }
                    failures += 1;
                    let expected = match fault {
                        Fault::Full { .. } => Status::CAPACITY_EXCEEDED,
                        _ => Status::WRITE_FAULT,
                    };
                    assert_eq!(response.cqe.status(), expected);
                    assert!(!response.cqe.do_not_retry());
                    assert!(bench.state() == before, "{sc}: {fault:?} of write {nth}");
                }
            }
        }
        assert!(failures >= 15, "{failures}");
        // Reads.
        let before = bench.state();
        bench.ssd.fail_read(1);
        let status = bench.fail(read(X_LBA, 264));
        assert_eq!(status, Status::UNRECOVERED_READ_ERROR);
        assert!(bench.state() == before);
    }
}

#[test]
fn a_key_in_parts_survives_faults_of_the_ssd() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let bytes = vec![1; TINY.key_switching_key_bytes() as usize];
        let key = sc(vr("key:0:2"), &bytes);
        let requests = bench.requests(KSK_LBA, key, &bytes);
        assert!(requests.len() > 4);
        bench.write_object(KSK_LBA, key, &bytes);
        // A part fails: the object must be sent again from its beginning.
        for request in &requests[..3] {
            bench.succeed(request.clone());
        }
        bench.ssd.fail_write(1, Fault::Error);
        let failing = if mode == NVME { 3 } else { 5 };
        for request in &requests[3..failing] {
            let response = bench.submit(request.clone());
            let status = response.cqe.status();
            assert!(status.is_success() || status == Status::WRITE_FAULT);
        }
        let rest = requests[failing..].last().unwrap().clone();
        assert_eq!(bench.fail(rest), status::PART_ORDER);
        bench.ssd.power_on();
        assert_eq!(bench.write_object(KSK_LBA, key, &bytes), Effect::Stored);
    }
}

#[test]
fn an_upload_that_nobody_continues_expires() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let engine = bench.drive.engine();
        let bytes = vec![1; TINY.key_switching_key_bytes() as usize];
        let key = sc(vr("key:0:2"), &bytes);
        let parts = bench.requests(KSK_LBA, key, &bytes);
        // Its first blocks, in the second half with their registration.
        let begun = if mode == NVME { 1 } else { 2 };
        assert!(parts.len() > begun);
        for part in &parts[..begun] {
            bench.succeed(part.clone());
        }
        assert!(engine.persistent_bytes().0 > 0);
        assert_eq!(engine.drop_idle_parts(PARTIAL_LIFETIME), 0);
        assert_eq!(engine.drop_idle_parts(Duration::ZERO), 1);
        assert_eq!(engine.persistent_bytes().0, 0);
        // What comes later continues nothing; from its beginning on the key finds room again.
        let (last, before) = parts.split_last().unwrap();
        if mode == SECOND_HALF {
            // Its registration.
            bench.succeed(before.last().unwrap().clone());
        }
        assert_eq!(bench.fail(last.clone()), status::PART_ORDER);
        assert_eq!(bench.write_object(KSK_LBA, key, &bytes), Effect::Stored);
        assert_eq!(engine.drop_idle_parts(Duration::ZERO), 0);
    }
}

fn swap_commands(trace: &[toroid_drive::bridge::TraceEvent]) -> Vec<(usize, Sqe)> {
    let commands = trace.iter().enumerate();
    commands
        .filter_map(|(i, event)| match event.kind {
            TraceKind::SsdCommand { sqe } if sqe.nsid.get() == SWAP_NSID => Some((i, sqe)),
            _ => None,
        })
        .collect()
}

/// Fig. 3: the order of a write and a read that compute.
#[test]
fn figure_3() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        bench.write_sample(X_LBA, X, &message(3));
        bench.drive.trace(true);
        bench.write_sample(Y_LBA, Y, &message(1));
        bench.drive.trace(false);
        let trace = bench.drive.take_trace();
        let at = |wanted: &dyn Fn(&TraceKind) -> bool| {
            trace.iter().rposition(|event| wanted(&event.kind)).unwrap()
        };
        let host = at(&|kind| matches!(kind, TraceKind::HostCommand { .. }));
        let started = at(&|kind| matches!(kind, TraceKind::ProgramStarted { .. }));
        let ended = at(&|kind| matches!(kind, TraceKind::ProgramEnded { .. }));
        let ssd = at(
            &|kind| matches!(kind, TraceKind::SsdCommand { sqe } if sqe.opcode == opcode::WRITE),
        );
        let completion = at(&|kind| matches!(kind, TraceKind::Completion { .. }));
        let order = [host, started, ended, ssd, completion];
        assert!(order.is_sorted(), "{trace:#?}");
        assert!(trace.iter().map(|event| event.at).is_sorted());

        bench.drive.trace(true);
        bench.succeed(read(X_LBA, 264));
        let kinds: Vec<&str> = bench
            .drive
            .take_trace()
            .iter()
            .map(|event| match event.kind {
                TraceKind::HostCommand { .. } => "host",
                TraceKind::SsdCommand { .. } => "ssd",
                TraceKind::SsdCompletion { .. } => "data",
                TraceKind::ProgramStarted { .. } => "program",
                TraceKind::ProgramEnded { .. } => "result",
                TraceKind::Completion { .. } => "completion",
                _ => "page",
            })
            .collect();
        let expected = ["host", "ssd", "data", "program", "result", "completion"];
        assert_eq!(kinds, expected);
    }
}

/// Section 4.3: page commands carry the trigger's identifier, its completion waits for them, other commands do not.
#[test]
fn paging() {
    let memory = memory_ssd();
    let slow = Arc::new(SlowSsd::new(memory.clone(), swap_start(NVME)));
    let bench = Bench::on(NVME, slow.clone(), memory, |config| {
        config.paged_bytes = 4 * 4096;
    });
    for i in 0..4 {
        let register = format!("cor:0:{i}");
        bench.write_sample(u64::from(i as u32), &register, &message(i));
    }
    bench.drive.trace(true);
    slow.close();
    let mut trigger = bench.requests(8, sc(vr("cor:0:8"), &message(8)), &message(8));
    let mut trigger = trigger.pop().unwrap();
    trigger.sqe.cid = 0xABC.into();
    let pending = bench.drive.submit(trigger);
    // The page-out hangs, everything else goes on.
    let mut trace = Vec::new();
    wait_until(|| {
        trace.extend(bench.drive.take_trace());
        !swap_commands(&trace).is_empty()
    });
    bench.write_plain(100, &vec![1; BLOCK]);
    assert_eq!(bench.read_plain(100, 1), vec![1; BLOCK]);
    bench.succeed(Request::new(Sqe::flush(CID, 1)));
    slow.open();
    let response = block_on(pending);
    assert_eq!(response.cqe.cid.get(), 0xABC);
    assert_eq!(Effect::of(&response.cqe), Some(Effect::Stored));

    trace.extend(bench.drive.take_trace());
    let swap = swap_commands(&trace);
    assert_eq!(swap.len(), 1);
    let (issued, sqe) = swap[0];
    assert_eq!((sqe.cid.get(), sqe.opcode), (0xABC, opcode::WRITE));
    let position = |wanted: TraceKind| trace.iter().position(|e| e.kind == wanted).unwrap();
    let paged_out = position(TraceKind::SsdCompletion {
        sqe,
        status: Status::SUCCESS,
    });
    let completed = position(TraceKind::Completion {
        cid: 0xABC,
        status: Status::SUCCESS,
    });
    let others: Vec<usize> = (0..trace.len())
        .filter(|i| matches!(trace[*i].kind, TraceKind::Completion { cid, .. } if cid == CID))
        .collect();
    assert_eq!(others.len(), 3);
    assert!(others.iter().all(|i| issued < *i && *i < paged_out));
    assert!(paged_out < completed);

    // A failing swap area fails the trigger alone.
    let before = bench.state();
    let next = bench.requests(9, sc(vr("cor:0:9"), &message(9)), &message(9));
    // Pages that `state` brought in are in the swap area as well; new ones are not.
    for i in 0..4 {
        bench.write_sample(u64::from(i as u32), &format!("cor:0:{i}"), &message(i));
    }
    bench.ssd.fail_write(1, Fault::Error);
    assert_eq!(bench.fail(next[0].clone()), status::PAGING_FAILED);
    assert!(bench.state() == before);
    bench.succeed(next[0].clone());
}

/// A program on ten times as many samples as the paged area holds.
#[test]
fn ten_times_more_samples_than_memory() {
    const PAGES: u64 = 10;
    let samples = 10 * PAGES;
    let mut source = String::new();
    for i in 1..samples {
        writeln!(source, "homadd cow:0:0, cor:0:{i}").unwrap();
        if i % 10 == 0 {
            writeln!(source, "bootstrap tv:0:0, cor:0:{i}").unwrap();
        }
    }
    source += "return cow:0:0";
    let mut results = Vec::new();
    for (mode, pages) in [(NVME, PAGES), (SECOND_HALF, PAGES), (NVME, 1000)] {
        let bench = Bench::with(mode, |config| config.paged_bytes = pages * 4096);
        bench.upload();
        let base = FREE_LBA;
        for i in 1..samples {
            let register = format!("cor:0:{i}");
            bench.write_sample(base + i, &register, &message(i as i64 % 5));
        }
        upload_program(&bench, &source);
        bench.drive.trace(true);
        let effect = bench.write_sample(base, "cow:0:0", &message(1));
        assert_eq!(effect, Effect::Computed);
        let (result, ..) = bench.read_object(base, 264);
        let trace = bench.drive.take_trace();
        let swap = swap_commands(&trace);
        assert!(swap.iter().all(|(_, sqe)| sqe.cid.get() == CID));
        let paging = bench.drive.statistics().paging;
        if pages == PAGES {
            assert!(paging.page_ins >= samples - PAGES && paging.page_outs > 0);
            assert!(swap.len() as u64 >= samples - PAGES);
        } else {
            assert_eq!((paging.page_ins, paging.page_outs), (0, 0));
        }
        let all: Vec<Vec<u8>> = (1..samples)
            .map(|i| bench.sample(&format!("cor:0:{i}")))
            .collect();
        results.push((result, all));
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn many_commands_at_once() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.upload();
        upload_program(
            &bench,
            "mov cor:0:9, cow:0:2\nbootstrap tv:0:0, cor:0:9\nreturn cor:0:9",
        );
        let objects: Vec<(u64, ScMetadata, Vec<u8>)> = (0..40u32)
            .map(|i| {
                let bytes = message(i64::from(i) % 6);
                (Y_LBA + u64::from(i), sc(vr(Y), &bytes), bytes)
            })
            .collect();
        let mut data = Vec::new();
        for (lba, sc, bytes) in &objects {
            let mut requests = bench.requests(*lba, *sc, bytes);
            data.push(requests.pop().unwrap());
            for request in requests {
                bench.succeed(request);
            }
        }
        let plain = (0..40u64).map(|i| {
            let metadata = vec![0; if mode == NVME { 64 } else { 0 }];
            Request {
                sqe: Sqe::write(i as u16, 1, FREE_LBA + i, 0),
                data: vec![i as u8; BLOCK],
                metadata,
            }
        });
        let futures = data.into_iter().zip(plain).flat_map(|(a, b)| [a, b]);
        let futures: Vec<_> = futures.map(|r| bench.drive.submit(r)).collect();
        let responses = block_on(join_all(futures));
        assert!(responses.iter().all(|r| r.cqe.status().is_success()));
        for (lba, _, bytes) in &objects {
            let m = decode(bytes);
            let (result, metadata, _) = bench.read_object(*lba, 264);
            assert_eq!(decode(&result), m * m / 4);
            assert!(metadata.unwrap().computed());
        }
        for i in 0..40 {
            assert_eq!(bench.read_plain(FREE_LBA + i, 1), vec![i as u8; BLOCK]);
        }
        assert_eq!(bench.drive.statistics().programs[&0].runs, 40);
    }
}

#[test]
fn cancelled_commands_have_no_effect() {
    let memory = memory_ssd();
    let slow = Arc::new(SlowSsd::new(memory.clone(), swap_start(NVME)));
    let bench = Bench::on(NVME, slow.clone(), memory, |config| {
        config.paged_bytes = 4 * 4096;
    });
    bench.upload();
    for i in 3..8 {
        bench.write_sample(i, &format!("cor:0:{i}"), &message(1));
    }
    let mut source = String::new();
    for i in 3..8 {
        writeln!(source, "homadd cow:0:2, cor:0:{i}").unwrap();
    }
    upload_program(&bench, &(source + "return cow:0:2"));
    let before = bench.state();
    for i in 3..8 {
        bench.write_sample(i, &format!("cor:0:{i}"), &message(1));
    }
    // The run hangs in a page-out of its own; a second one waits behind it.
    slow.close();
    let y = bench.requests(Y_LBA, sc(vr(Y), &message(1)), &message(1));
    bench.drive.trace(true);
    let first = bench.drive.submit(y[0].clone());
    let second = bench.drive.submit(y[0].clone());
    wait_until(|| {
        let trace = bench.drive.take_trace();
        trace
            .iter()
            .any(|event| matches!(event.kind, TraceKind::PageOut { .. }))
    });
    assert_eq!(bench.drive.cancel(CID + 1), 0);
    assert_eq!(bench.drive.cancel_all(), 2);
    slow.open();
    for pending in [first, second] {
        let response = block_on(pending);
        assert_eq!(response.cqe.status(), Status::ABORT_REQUESTED);
        assert!(!response.cqe.do_not_retry());
    }
    assert!(bench.state() == before);
    // The second may have been cancelled before it was known to be a trigger.
    let statistics = bench.drive.statistics();
    assert_eq!(statistics.failed, 2);
    assert!(statistics.programs[&0].failures >= 1);
    bench.drive.shutdown().unwrap();
    assert_eq!(
        bench.fail(Request::new(Sqe::flush(CID, 1))),
        Status::ABORTED_SQ_DELETION
    );
}

#[test]
fn dropping_a_drive_ends_what_is_under_way() {
    let bench = Bench::new(NVME);
    bench.upload();
    bench.write_sample(X_LBA, X, &message(3));
    let y = bench.requests(Y_LBA, sc(vr(Y), &message(1)), &message(1));
    for _ in 0..20 {
        drop(bench.drive.submit(y[0].clone()));
    }
    let ssd = bench.ssd.clone();
    drop(bench);
    assert_eq!(Arc::strong_count(&ssd), 1);
}

#[test]
fn the_second_half() {
    let bench = Bench::new(SECOND_HALF);
    let x = sc(vr(X), &message(3));
    let register = |lba: u64, sc: ScMetadata| second_half(lba, &sc.to_bytes());
    // Refused: no blocks, beyond the cluster, beyond the object, unknown parameter set, damaged.
    let before = bench.state();
    let bad_params = ScMetadata::new(vr(X), 999, 264).unwrap().with_blocks(1);
    let tv = sc(bench.tv, &bench.test_vector);
    let mut damaged = x.with_blocks(1).to_bytes();
    damaged[20] ^= 1;
    for (request, expected) in [
        (register(0, x), status::METADATA_INVALID),
        (register(0, x.with_blocks(2)), status::METADATA_INVALID),
        (
            register(CLUSTER - 2, tv.with_blocks(3)),
            status::METADATA_INVALID,
        ),
        (register(0, bad_params), status::WRONG_PARAMETERS),
        (second_half(0, &damaged), status::METADATA_INVALID),
    ] {
        assert_eq!(bench.fail(request), expected);
    }
    assert!(bench.state() == before);

    // Plain data in the second half is plain data.
    bench.succeed(second_half(7, b"hello"));
    assert_eq!(bench.read_plain(BLOCKS + 7, 1)[..5], *b"hello");
    assert_eq!(bench.write_sample(0, X, &message(3)), Effect::Stored);
    // An all-zero block takes the registration away: the data is plain again.
    bench.succeed(second_half(0, &[0; 64]));
    let response = bench.succeed(read(0, 264));
    assert_eq!(Effect::of(&response.cqe), Some(Effect::None));
    // So do Write Zeroes, and other data.
    for remove in [
        Request::new(Sqe::write_zeroes(CID, 1, BLOCKS, 0)),
        second_half(0, b"other data"),
    ] {
        bench.succeed(register(0, x.with_blocks(1)));
        let loaded = bench.succeed(read(0, 264));
        assert_eq!(Effect::of(&loaded.cqe), Some(Effect::Stored));
        bench.succeed(remove);
        let plain = bench.succeed(read(0, 264));
        assert_eq!(Effect::of(&plain.cqe), Some(Effect::None));
    }
    // Over the beginning and the end of a run, and over the middle of the LBA space.
    bench.succeed(register(4, tv.with_blocks(4)));
    for (lba, blocks) in [(3, 2), (7, 2), (3, 6)] {
        let status = bench.fail(read(lba, blocks * BLOCK));
        assert_eq!(status, status::METADATA_MISMATCH);
    }
    assert_eq!(
        bench.fail(read(BLOCKS - 1, 2 * BLOCK)),
        status::METADATA_MISMATCH
    );
    // Metadata that was damaged on the SSD stops commands on its cluster until it is written again.
    let image = bench.drive.image();
    let mut block = damaged.to_vec();
    block.resize(BLOCK, 0);
    image
        .write_blocks(BLOCKS + 20 * CLUSTER, &block, &[], false)
        .unwrap();
    let bench = bench.reopen();
    let status = bench.fail(read(20 * CLUSTER, BLOCK));
    assert_eq!(status, status::METADATA_INVALID);
    bench.succeed(second_half(20 * CLUSTER, &[0; 64]));
    bench.read_plain(20 * CLUSTER, 1);
    bench.read_plain(21 * CLUSTER, 1);
}

#[test]
fn blocks_that_do_not_belong_together() {
    let bench = Bench::new(NVME);
    let tv = sc(bench.tv, &bench.test_vector);
    let good = bench.requests(TV_LBA, tv, &bench.test_vector).remove(0);
    let before = bench.state();
    let edit = |block: usize, bytes: &[u8; 64]| {
        let mut request = good.clone();
        request.metadata[block * 64..][..64].copy_from_slice(bytes);
        bench.fail(request)
    };
    let next = tv.with_offset(BLOCK as u64).unwrap();
    for bytes in [
        [0; 64],
        [9; 64],
        tv.to_bytes(),
        next.with_computed(true).to_bytes(),
        sc(vr("tv:0:7"), &bench.test_vector).to_bytes(),
    ] {
        assert_eq!(edit(1, &bytes), status::METADATA_MISMATCH);
    }
    assert_eq!(edit(0, &[0; 64]), status::METADATA_MISMATCH);
    assert_eq!(edit(0, &[9; 64]), status::METADATA_INVALID);
    let with_blocks = tv.with_blocks(1).to_bytes();
    assert_eq!(edit(0, &with_blocks), status::METADATA_INVALID);
    assert!(bench.state() == before);
    bench.succeed(good);
    bench.write_sample(TV_LBA - 1, X, &message(0));
    assert_eq!(
        bench.fail(read_of(TV_LBA - 1, 2)),
        status::METADATA_MISMATCH
    );
}

#[test]
fn configurations() {
    for mdts in [4096, 8191, 3 << 20, 1 << 26] {
        let image =
            toroid_drive::image::Image::format_on(Box::new(Shared(memory_ssd())), &options(NVME));
        let mut config = Bench::new(NVME).config;
        config.mdts_bytes = mdts;
        let opened = Drive::open(image.unwrap(), config);
        assert!(matches!(opened, Err(DriveError::Mdts { found, .. }) if found == mdts));
    }
}

fn metadata_bytes() -> impl Strategy<Value = Vec<u8>> {
    let valid = (
        0..5u8,
        0..3u32,
        prop_oneof![Just(264u64), Just(512), Just(8192), 1..20000u64],
        prop_oneof![Just(TINY.id), Just(TINY32.id), 0..9u16],
        0..4u64,
        0..4u32,
    )
        .prop_map(|(ty, data_id, size, params, offset, blocks)| {
            let ty = toroid_isa::VrType::from_number(ty).unwrap();
            let vr = toroid_isa::VrNumber::new(ty, 0, data_id).unwrap();
            let Ok(sc) = ScMetadata::new(vr, params, size) else {
                return vec![0; 64];
            };
            let sc = sc.with_offset(offset * BLOCK as u64).unwrap_or(sc);
            sc.with_blocks(blocks).to_bytes().to_vec()
        });
    let random = prop::collection::vec(any::<u8>(), 64);
    prop_oneof![
        4 => valid.clone(),
        1 => random,
        1 => (valid, 0..64usize, 1..255u8).prop_map(|(mut bytes, at, flip)| {
            bytes[at] ^= flip;
            bytes
        }),
        1 => Just(vec![0; 64]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the metadata says, a command succeeds or has no effect, and the drive still works.
    #[test]
    fn malformed_metadata(
        commands in prop::collection::vec(
            (metadata_bytes(), 0..80u64, 1..5u16, any::<u8>(), any::<bool>()),
            1..12,
        ),
        second in any::<bool>(),
    ) {
        let mode = if second { SECOND_HALF } else { NVME };
        let bench = Bench::new(mode);
        upload_program(&bench, "return cor:0:1");
        for (metadata, lba, blocks, fill, is_read) in commands {
            let data_len = usize::from(blocks) * BLOCK;
            let request = if is_read {
                read_of(lba, usize::from(blocks))
            } else if second && fill % 2 == 0 {
                second_half(lba, &metadata)
            } else {
                Request {
                    sqe: Sqe::write(CID, 1, lba, blocks - 1),
                    data: vec![fill; data_len],
                    metadata: if second { Vec::new() } else {
                        match ScMetadata::from_bytes(&metadata) {
                            Ok(Some(sc)) => (0..u64::from(blocks))
                                .flat_map(|i| {
                                    let sc = sc.with_blocks(0);
                                    sc.with_offset(sc.offset() + i * BLOCK as u64).unwrap_or(sc).to_bytes()
                                })
                                .collect(),
                            _ => metadata.repeat(usize::from(blocks)),
                        }
                    },
                }
            };
            let before = bench.state();
            let response = bench.submit(request);
            if response.cqe.status().is_success() {
                prop_assert_eq!(response.data.is_empty(), !is_read);
            } else {
                prop_assert!(bench.state() == before);
                prop_assert_ne!(response.cqe.status(), Status::INTERNAL_ERROR);
                prop_assert!(bench.last_error(CID).is_some());
            }
        }
        bench.write_plain(FREE_LBA, &[1; BLOCK]);
        prop_assert_eq!(bench.read_plain(FREE_LBA, 1), vec![1; BLOCK]);
    }
}

/// The whole way with real cryptography: encrypted x and y, Table 5, decrypted x·y; with keys of both forms.
#[test]
fn the_cpu_multiplies_encrypted_numbers() {
    let mut rng = Csprng::from_seed([5; 32]);
    let key = ClientKey::generate(&TINY, &mut rng);
    let encoding = Encoding::new(4, true).unwrap();
    let keys = KeyForm::ALL.map(|form| {
        let progress = Progress::none();
        let (mut bootstrapping, mut key_switching) = (Vec::new(), Vec::new());
        key.bootstrapping_key(form, &mut rng, &progress, &mut |bytes| {
            bootstrapping.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        key.key_switching_key(form, &mut rng, &progress, &mut |bytes| {
            key_switching.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        (bootstrapping, key_switching)
    });
    let table: Vec<u64> = encoding
        .messages()
        .map(|m| encoding.encode::<Goldilocks>((m * m / 4).min(7)).unwrap())
        .collect();
    let test_vector = glwe::test_vector::<Goldilocks>(&TINY, encoding, &table).unwrap();
    let test_vector: Vec<u8> = test_vector
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let signed = |vr, bytes: &[u8]| sc(vr, bytes).with_message(4, true).unwrap();

    for mode in MODES {
        for (arithmetic, (bootstrapping, key_switching)) in
            [ArithmeticKind::Ntt, ArithmeticKind::Fft]
                .into_iter()
                .zip(&keys)
        {
            let bench = Bench::with(mode, |config| {
                config.backend = Arc::new(CpuBackend::new(arithmetic));
            });
            let key_sc = |data_id: u32, bytes: &[u8]| sc(vr(&format!("key:0:{data_id}")), bytes);
            bench.write_object(BKNTT_LBA, key_sc(1, bootstrapping), bootstrapping);
            bench.write_object(KSK_LBA, key_sc(2, key_switching), key_switching);
            bench.write_object(TV_LBA, signed(bench.tv, &test_vector), &test_vector);
            let program = vr("prg:0:0");
            bench.write_object(PROGRAM_LBA, sc(program, &bench.program), &bench.program);
            for (x, y) in [(2, 1), (-1, 2), (2, -2), (1, 0)] {
                let x_bytes = key.encrypt_sample(x, encoding, &mut rng).unwrap();
                let y_bytes = key.encrypt_sample(y, encoding, &mut rng).unwrap();
                bench.write_object(X_LBA, signed(vr(X), &x_bytes), &x_bytes);
                let effect = bench.write_object(Y_LBA, signed(vr(Y), &y_bytes), &y_bytes);
                assert_eq!(effect, Effect::Computed);
                let (result, metadata, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());
                assert_eq!(key.decrypt_sample(&result, encoding).unwrap(), x * y);
                let metadata = metadata.unwrap();
                assert!(metadata.computed() && metadata.signed());
                assert!(metadata.log2_p_fail().unwrap() < -20.0);
            }
        }
    }
}
