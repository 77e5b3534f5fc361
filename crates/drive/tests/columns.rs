//! Columns as objects of registers: a write or read of one runs the program on all of its rows.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use futures::executor::block_on;
use proptest::prelude::*;
use toroid_drive::bridge::Effect;
use toroid_drive::bridge::status::{
    KEY_MISSING, METADATA_INVALID, PROGRAM_REFUSED, REGISTER_EMPTY, TRIGGER_SPLIT, WRONG_KEY_TAG,
    WRONG_PARAMETERS,
};
use toroid_drive::ssd::Fault;
use toroid_drive::{HostIdentity, KeyAccess};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::{InterceptedBackend, decode_sample};
use toroid_engine::{BackendError, KeyForm, Requester};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{assemble, encode};
use toroid_nvme::{Controller, Request, Status};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{Column, ColumnBytesBuilder, ColumnForm, column_bytes, rows_per_chunk};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::Goldilocks;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;

/// (x + y)²/4 + 1, of a y in each row and a single x.
const EACH: &str = "
    .reg x = cor:0:1
    .reg y = cow:0:2
    .tv square4 = x*x/4
    homadd y, x
    bootstrap square4, y
    homintadd y, 1
    return y
";

/// A column of trivial samples, a few rows a chunk.
fn column(values: &[i64]) -> Vec<u8> {
    let mut builder = ColumnBytesBuilder::new(&TINY, 0);
    for rows in values.chunks(7) {
        let samples: Vec<u8> = rows.iter().flat_map(|value| message(*value)).collect();
        builder
            .push_chunk(ColumnForm::Expanded, rows.len(), &samples)
            .unwrap();
    }
    let mut bytes = builder.finish().unwrap();
    // Equal chunks stand there once, and those of a result may all differ.
    let full = column_bytes(&TINY, ColumnForm::Expanded, values.len() as u64).unwrap();
    bytes.resize(bytes.len().max(full as usize), 0);
    bytes
}

/// Metadata of a column of fresh rows.
fn of_column(register: &str, bytes: &[u8]) -> ScMetadata {
    sc(vr(register), bytes).with_column(true)
}

/// The samples of an expanded column.
fn samples(bytes: &[u8]) -> Vec<Vec<u8>> {
    let column = Column::new(&TINY, bytes).unwrap();
    let segments = 0..column.header().segments().len();
    segments
        .flat_map(|segment| {
            let chunk = column.chunk_of(segment).unwrap();
            let mut rows = vec![0; chunk.rows() * TINY.lwe_bytes()];
            chunk.expand(0..chunk.rows(), &mut rows).unwrap();
            let rows = rows.chunks_exact(TINY.lwe_bytes());
            rows.map(<[u8]>::to_vec).collect::<Vec<_>>()
        })
        .collect()
}

fn messages(bytes: &[u8]) -> Vec<u64> {
    let samples = samples(bytes);
    let decoded = samples.iter().map(|row| decode_sample(&TINY, row, 4));
    decoded.collect()
}

fn upload_program(bench: &Bench, source: &str) {
    let program = encode(&assemble(source).unwrap().program);
    bench.write_object(PROGRAM_LBA, sc(vr("prg:0:0"), &program), &program);
}

/// A drive with keys, test vector, x = 3 in its register, and a program.
fn bench_with(bench: Bench, source: &str) -> Bench {
    bench.upload_keys();
    bench.write_object(TV_LBA, sc(bench.tv, &bench.test_vector), &bench.test_vector);
    bench.write_sample(X_LBA, X, &message(3));
    upload_program(&bench, source);
    bench
}

#[test]
fn compute_on_write_of_a_column() {
    for mode in MODES {
        let bench = bench_with(Bench::new(mode), EACH);
        let values: Vec<i64> = (0..100).map(|row| row * 7 % 13).collect();
        let bytes = column(&values);
        let effect = bench.write_object(Y_LBA, of_column(Y, &bytes), &bytes);
        assert_eq!(effect, Effect::Computed);
        let (result, metadata, effect) = bench.read_object(Y_LBA, bytes.len());
        assert_eq!(effect, Effect::None, "no register holds a column");
        let expected: Vec<u64> = values
            .iter()
            .map(|y| (y + 3).unsigned_abs().pow(2) / 4 % 32 + 1)
            .collect();
        assert_eq!(messages(&result), expected);
        let metadata = metadata.unwrap();
        assert!(metadata.column() && metadata.computed());
        assert_eq!((metadata.vr(), metadata.message_bits()), (vr(Y), 4));
        assert_eq!(metadata.size(), bytes.len() as u64);
        assert!(metadata.log2_p_fail().is_some());
        // No register has changed.
        assert!(bench.drive.engine().info(vr(Y)).is_none());
        assert_eq!(bench.sample(X), message(3));
        let statistics = bench.drive.statistics();
        assert_eq!((statistics.bootstraps, statistics.failed), (100, 0));
        assert_eq!((statistics.rows, statistics.programs[&0].runs), (100, 1));
        assert_eq!(statistics.hosts[""].rows, 100);
        assert_eq!(bench.drive.running_programs(), []);
        // The same again, over the result; and a sample as before.
        bench.write_object(Y_LBA, of_column(Y, &bytes), &bytes);
        let (again, ..) = bench.read_object(Y_LBA, bytes.len());
        assert_eq!(again, result);
        assert_eq!(bench.write_sample(Y_LBA, Y, &message(2)), Effect::Computed);
        let (single, metadata, effect) = bench.read_object(Y_LBA, TINY.lwe_bytes());
        assert_eq!(
            (decode_sample(&TINY, &single, 4), effect),
            (7, Effect::Stored)
        );
        assert!(!metadata.unwrap().column());
        assert_eq!(bench.sample(Y), single);
        // A column in its place: the register does not keep what stood there before.
        bench.write_object(Y_LBA, of_column(Y, &bytes), &bytes);
        assert!(bench.drive.engine().info(vr(Y)).is_none());
    }
}

#[test]
fn compute_on_read_of_a_column() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let values: Vec<i64> = (0..50).map(|row| row % 6).collect();
        let bytes = column(&values);
        // Before there is a program it is stored, and its register is empty.
        bench.write_sample(X_LBA, X, &message(5));
        let effect = bench.write_object(X_LBA, of_column(X, &bytes), &bytes);
        assert_eq!(effect, Effect::None);
        assert!(bench.drive.engine().info(vr(X)).is_none());
        let (plain, metadata, effect) = bench.read_object(X_LBA, bytes.len());
        assert_eq!((&plain, effect), (&bytes, Effect::None));
        assert!(!metadata.unwrap().computed());
        assert_eq!(bench.write_sample(Y_LBA, Y, &message(2)), Effect::Stored);
        bench.upload_keys();
        bench.write_object(TV_LBA, sc(bench.tv, &bench.test_vector), &bench.test_vector);
        upload_program(
            &bench,
            &EACH
                .replace("return y", "return x")
                .replace("y, ", "x, ")
                .replace("homadd x, x", "homadd x, y")
                .replace("square4, y", "square4, x"),
        );
        let before = bench.state();
        for _ in 0..2 {
            let (result, metadata, effect) = bench.read_object(X_LBA, bytes.len());
            assert_eq!(effect, Effect::Computed);
            let squared = |x: &i64| (x + 2).unsigned_abs().pow(2) / 4 + 1;
            let expected: Vec<u64> = values.iter().map(squared).collect();
            assert_eq!(messages(&result), expected);
            let metadata = metadata.unwrap();
            assert!(metadata.computed() && metadata.column());
        }
        // Neither the SSD nor a register has changed.
        assert!(bench.state() == before);
        // A part of it is not computed on.
        assert_eq!(bench.fail(read(X_LBA, BLOCK)), TRIGGER_SPLIT);
        // After a restart the program is loaded again, and the column is still there.
        let bench = bench_with(bench.reopen(), "homintadd cor:0:1, 1\nreturn cor:0:1");
        let effect = bench.write_object(X_LBA, of_column(X, &bytes), &bytes);
        assert_eq!(effect, Effect::None, "a write of type 3 triggers nothing");
        let (result, _, effect) = bench.read_object(X_LBA, bytes.len());
        assert_eq!(effect, Effect::Computed);
        let expected: Vec<u64> = values.iter().map(|x| x.unsigned_abs() + 1).collect();
        assert_eq!(messages(&result), expected);
    }
}

/// A random program on y, with x beside it. Neither leaves y's register.
fn program() -> impl Strategy<Value = String> {
    let instruction = prop_oneof![
        Just("homadd cow:0:2, cor:0:1".to_owned()),
        Just("homsub cow:0:2, cor:0:1".to_owned()),
        Just("homadd cor:0:9, cow:0:2".to_owned()),
        Just("homadd cow:0:2, cor:0:9".to_owned()),
        Just("bootstrap tv:0:0, cow:0:2".to_owned()),
        Just("push cow:0:2\npop cor:0:9".to_owned()),
        (-3..4).prop_map(|v| format!("homintmult cow:0:2, {v}")),
        (-9..9).prop_map(|v| format!("homintadd cow:0:2, {v}")),
    ];
    prop::collection::vec(instruction, 0..12).prop_map(|instructions| {
        let first = ["mov cor:0:9, cor:0:1".to_owned()];
        let all: Vec<String> = first.into_iter().chain(instructions).collect();
        format!("{}\nreturn cow:0:2", all.join("\n"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Row by row the bytes are those of compute-on-write of the row alone.
    #[test]
    fn every_row_is_what_its_sample_becomes(
        program in program(),
        values in prop::collection::vec(0i64..32, 1..20),
        x in 0i64..32,
        second_half: bool,
    ) {
        let bench = bench_with(Bench::new(MODES[usize::from(second_half)]), &program);
        bench.write_object(TV_LBA, sc(vr("tv:0:0"), &bench.test_vector), &bench.test_vector);
        bench.write_sample(X_LBA, X, &message(x));
        let bytes = column(&values);
        bench.write_object(Y_LBA, of_column(Y, &bytes), &bytes);
        let (result, of_rows, _) = bench.read_object(Y_LBA, bytes.len());
        let rows = samples(&result);
        prop_assert_eq!(rows.len(), values.len());
        for (row, value) in rows.iter().zip(&values) {
            bench.write_sample(Y_LBA, Y, &message(*value));
            let (single, of_single, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());
            prop_assert_eq!(row, &single);
            prop_assert_eq!(of_rows.unwrap().message_bits(), of_single.unwrap().message_bits());
        }
    }
}

#[test]
fn a_result_stands_in_an_object_as_long_as_the_column() {
    for mode in MODES {
        let bench = bench_with(Bench::new(mode), "homsum cow:0:2, 0\nreturn cow:0:2");
        // A single row is a column of one row.
        let bytes = column(&[1, 2, 3, 4]);
        bench.write_object(Y_LBA, of_column(Y, &bytes), &bytes);
        let (sum, metadata, _) = bench.read_object(Y_LBA, bytes.len());
        assert_eq!(messages(&sum), [10]);
        let needed = column_bytes(&TINY, ColumnForm::Expanded, 1).unwrap() as usize;
        assert!(sum[needed..].iter().all(|byte| *byte == 0));
        assert!(metadata.unwrap().column());
        // Twice the rows do not fit, and nothing runs.
        upload_program(
            &bench,
            "bootstrap tv:0:1, cow:0:2\njoin cow:0:2, cow:0:2, 1\nreturn cow:0:2",
        );
        bench.write_object(
            TV_LBA,
            sc(vr("tv:0:1"), &bench.test_vector),
            &bench.test_vector,
        );
        let mut requests = bench.requests(Y_LBA, of_column(Y, &bytes), &bytes);
        let data = requests.pop().unwrap();
        requests.into_iter().for_each(|request| {
            bench.succeed(request);
        });
        let before = bench.state();
        assert_eq!(bench.fail(data), PROGRAM_REFUSED);
        let reason = bench.last_error(CID).unwrap().reason;
        assert!(
            reason.contains("8 rows has") && reason.contains("zeroes behind it"),
            "{reason}"
        );
        assert!(bench.state() == before);
        assert_eq!(bench.drive.statistics().bootstraps, 0);
        // With room behind it they do.
        let mut roomy = bytes.clone();
        roomy.resize(2 * bytes.len() + 64, 0);
        bench.write_object(Y_LBA, of_column(Y, &roomy), &roomy);
        let (joined, ..) = bench.read_object(Y_LBA, roomy.len());
        assert_eq!(messages(&joined), [0, 0, 1, 1, 2, 2, 4, 4]);
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    for mode in MODES {
        let bench = bench_with(Bench::new(mode), EACH);
        let good = column(&[1, 2, 3, 4, 5, 6, 7, 8]);
        bench.write_object(Y_LBA, of_column(Y, &good), &good);
        // The metadata comes first; then the data must have no effect.
        let refused = |sc: ScMetadata, bytes: &[u8], status: Status| {
            let mut requests = bench.requests(Y_LBA, sc, bytes);
            let first = requests
                .iter()
                .position(|request| u64::from(request.sqe.cdw10.get()) < BLOCKS)
                .unwrap();
            let data = requests.remove(first);
            requests.drain(..first).for_each(|request| {
                bench.succeed(request);
            });
            let before = bench.state();
            assert_eq!(bench.fail(data), status);
            assert!(!bench.last_error(CID).unwrap().reason.is_empty());
            assert!(bench.state() == before);
        };
        let damaged = |at: usize| {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            damaged
        };
        for at in [0, 8, 40, good.len() - 1] {
            refused(of_column(Y, &good), &damaged(at), METADATA_INVALID);
            // As an object that triggers nothing, too.
            refused(of_column(X, &good), &damaged(at), METADATA_INVALID);
        }
        let cut = &good[..good.len() - 1];
        refused(of_column(Y, cut), cut, METADATA_INVALID);
        refused(
            of_column(Y, &good).with_message(60, false).unwrap(),
            &good,
            METADATA_INVALID,
        );
        // Of another set, and of one that does not exist. The second half takes the metadata of none.
        let other = ScMetadata::new(vr(Y), TINY32.id, good.len() as u64).unwrap();
        let mut other_set = ColumnBytesBuilder::new(&TINY32, 1);
        let sample = vec![0; TINY32.lwe_bytes()];
        other_set
            .push_chunk(ColumnForm::Expanded, 1, &sample)
            .unwrap();
        let mut of_other_set = other_set.finish().unwrap();
        of_other_set.resize(good.len(), 0);
        refused(other.with_column(true), &of_other_set, WRONG_PARAMETERS);
        // Of another client key than x, and one whose program lacks something.
        let x = sc(vr(X), &message(3)).with_key_tag([1; 12]);
        bench.write_object(X_LBA, x, &message(3));
        let tagged = |tag: u8| of_column(Y, &good).with_key_tag([tag; 12]);
        refused(tagged(2), &good, WRONG_KEY_TAG);
        let stored = of_column("cor:0:7", &good).with_key_tag([2; 12]);
        refused(stored, &good, WRONG_KEY_TAG);
        bench.write_object(Y_LBA, tagged(1), &good);
        upload_program(&bench, "lower cow:0:2, 16\nreturn cow:0:2");
        refused(of_column(Y, &good), &good, PROGRAM_REFUSED);
        upload_program(&bench, "homadd cow:0:2, cor:0:77\nreturn cow:0:2");
        refused(of_column(Y, &good), &good, REGISTER_EMPTY);
        upload_program(&bench, EACH);
        bench.drive.engine().remove(vr("key:0:2"));
        refused(of_column(Y, &good), &good, KEY_MISSING);
        bench.upload_keys();
        // A column comes whole in one command, and so it has at most the size of one.
        let large = column(&(0..200).map(|row| row % 10).collect::<Vec<_>>());
        assert!(large.len() > bench.config.mdts_bytes as usize);
        refused(of_column(Y, &large), &large, TRIGGER_SPLIT);
        refused(of_column("cor:0:7", &large), &large, TRIGGER_SPLIT);
        let part = of_column(Y, &good).with_offset(BLOCK as u64).unwrap();
        let left = &good[BLOCK..];
        refused(part, left, TRIGGER_SPLIT);
        // All is as it was.
        bench.write_object(Y_LBA, tagged(1), &good);
        let (result, ..) = bench.read_object(Y_LBA, good.len());
        assert_eq!(messages(&result)[0], 5);
    }
}

#[test]
fn faults_of_the_ssd_have_no_effect() {
    for mode in MODES {
        let bench = bench_with(Bench::new(mode), EACH);
        bench.write_sample(Y_LBA, Y, &message(1));
        let bytes = column(&[1, 2, 3]);
        let mut requests = bench.requests(Y_LBA, of_column(Y, &bytes), &bytes);
        let data = requests.pop().unwrap();
        requests.into_iter().for_each(|request| {
            bench.succeed(request);
        });
        for nth in 1.. {
            let before = bench.state();
            bench.ssd.fail_write(nth, Fault::Error);
            let response = bench.submit(data.clone());
            if response.cqe.status().is_success() {
                assert!(nth > 1);
                break;
            }
            assert_eq!(response.cqe.status(), Status::WRITE_FAULT);
            assert!(bench.state() == before);
        }
        bench.ssd.power_on();
        assert!(bench.drive.engine().info(vr(Y)).is_none());
    }
}

#[test]
fn a_host_without_the_key_id_cannot_use_a_column() {
    let bench = bench_with(Bench::new(NVME), EACH);
    let bytes = column(&[1, 2, 3]);
    let bound = bench.drive.controller_for(HostIdentity {
        name: "bound".to_owned(),
        tenant: 7,
        keys: KeyAccess::Only([5].into()),
    });
    let denied = |request: Request| {
        let status = block_on(bound.submit(request)).cqe.status();
        assert_eq!(status, Status::ACCESS_DENIED);
    };
    let before = bench.state();
    let write = bench.requests(Y_LBA, of_column(Y, &bytes), &bytes);
    denied(write.into_iter().next().unwrap());
    assert!(bench.state() == before);
    bench.write_object(Y_LBA, of_column(Y, &bytes), &bytes);
    denied(read(Y_LBA, bytes.len()));
}

#[test]
fn a_run_that_is_aborted_changes_nothing() {
    let waiting = Arc::new(AtomicUsize::new(0));
    let reached = Arc::clone(&waiting);
    let backend = InterceptedBackend::new(move |requester: Requester<'_>, bootstrap| {
        // The first tiles are done; then the run waits until it is cancelled.
        if reached.fetch_add(1, Ordering::SeqCst) < 2 {
            return bootstrap();
        }
        while !requester.cancel.is_cancelled() {
            std::thread::yield_now();
        }
        Err(BackendError::Cancelled)
    });
    let bench = Bench::with(SECOND_HALF, |config| config.backend = Arc::new(backend));
    let bench = bench_with(bench, EACH);
    let bytes = column(&(0..60).map(|row| row % 10).collect::<Vec<_>>());
    let mut requests = bench.requests(Y_LBA, of_column(Y, &bytes), &bytes);
    let data = requests.pop().unwrap();
    requests.into_iter().for_each(|request| {
        bench.succeed(request);
    });
    let before = bench.state();
    let run = bench.drive.submit(data);
    wait_until(|| waiting.load(Ordering::SeqCst) > 2);
    // It tells how far it is.
    let running = bench.drive.running_programs();
    let [running] = running.as_slice() else {
        panic!("{running:?}");
    };
    assert_eq!((running.program, running.rows), (vr("prg:0:0"), 60));
    let done = running.rows_done;
    assert!(0 < done && done < 60, "{done} rows");
    assert_eq!(running.bootstraps_done, done);
    let statistics = bench.drive.statistics();
    assert_eq!((statistics.rows, statistics.bootstraps), (done, done));
    assert_eq!(bench.drive.cancel(CID), 1);
    let response = block_on(run);
    assert_eq!(response.cqe.status(), Status::ABORT_REQUESTED);
    assert!(!response.cqe.do_not_retry());
    assert!(bench.state() == before);
    assert_eq!(bench.drive.statistics().programs[&0].failures, 1);
    // What it did was done.
    assert_eq!(bench.drive.statistics().rows, done);
    assert_eq!(bench.drive.running_programs(), []);
}

/// Seeded from the client, packed from the drive, with real cryptography.
#[test]
fn a_seeded_column_becomes_a_packed_one() {
    let params: &ParamSet = &TINY_WOPBS;
    let mut rng = Csprng::from_seed([21; 32]);
    let key = ClientKey::generate(params, &mut rng);
    let encoding = Encoding::new(9, false).unwrap();
    let bench = Bench::with(NVME, |config| {
        config.backend = Arc::new(CpuBackend::new(ArithmeticKind::Fft));
        config.mdts_bytes = 65536;
    });
    let of_set = |register: &str, bytes: &[u8], bits: u8| {
        let sc = ScMetadata::new(vr(register), params.id, bytes.len() as u64).unwrap();
        sc.with_message(bits, false).unwrap()
    };
    let mut keys = [Vec::new(), Vec::new()];
    let [bootstrapping, key_switching] = &mut keys;
    let go_on = Progress::none();
    key.bootstrapping_key(KeyForm::Seeded, &mut rng, &go_on, &mut |piece| {
        bootstrapping.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    key.key_switching_key(KeyForm::Seeded, &mut rng, &go_on, &mut |piece| {
        key_switching.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    bench.write_object(BKNTT_LBA, of_set("key:0:1", &keys[0], 0), &keys[0]);
    bench.write_object(KSK_LBA, of_set("key:0:2", &keys[1], 0), &keys[1]);
    let keep = |m: i64| if m > 200 { m - 200 } else { 0 };
    let table: Vec<u64> = encoding
        .messages()
        .map(|m| encoding.encode::<Goldilocks>(keep(m)).unwrap())
        .collect();
    let test_vector: Vec<u8> = glwe::test_vector::<Goldilocks>(params, encoding, &table)
        .unwrap()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    bench.write_object(TV_LBA, of_set("tv:0:0", &test_vector, 9), &test_vector);
    let source = "bootstrap tv:0, cow:0\nhomadd cow:0, cor:1\nreturn cow:0";
    let program = encode(&assemble(source).unwrap().program);
    bench.write_object(PROGRAM_LBA, of_set("prg:0:0", &program, 0), &program);
    // A single sample, which goes with all rows.
    let single = key.encrypt_sample(5, encoding, &mut rng).unwrap();
    let fresh = Some(params.lwe_variance().log2());
    let of_single = of_set("cor:0:1", &single, 9).with_noise(fresh, None);
    bench.write_object(FREE_LBA, of_single, &single);

    let values: Vec<i64> = (0..200).map(|row| row * 37 % 512).collect();
    let mut builder = ColumnBytesBuilder::new(params, 2);
    for rows in values.chunks(rows_per_chunk(params)) {
        let chunk = key.encrypt_chunk(rows, encoding, &mut rng).unwrap();
        let form = ColumnForm::Seeded;
        builder.push_chunk(form, rows.len(), &chunk).unwrap();
    }
    let mut column = builder.finish().unwrap();
    let of_column = |column: &[u8]| {
        let sc = of_set("cow:0:0", column, 9).with_noise(fresh, None);
        sc.with_column(true)
    };
    // A packed column has more bytes than a seeded one.
    let status = bench.fail_object(0, of_column(&column), &column);
    assert_eq!(status, PROGRAM_REFUSED);
    let room = column_bytes(params, ColumnForm::Packed, 200).unwrap();
    column.resize(room as usize, 0);
    let effect = bench.write_object(0, of_column(&column), &column);
    assert_eq!(effect, Effect::Computed);
    let (result, metadata, _) = bench.read_object(0, column.len());
    let metadata = metadata.unwrap();
    assert!(metadata.column() && metadata.computed());
    assert!(f64::from(metadata.log2_variance().unwrap()) > params.lwe_variance().log2());
    let made = Column::new(params, &result).unwrap();
    let segments = made.header().segments();
    assert!(segments.iter().all(|of| of.form == ColumnForm::Packed));
    let found: Vec<i64> = (0..segments.len())
        .flat_map(|segment| {
            let chunk = made.chunk_of(segment).unwrap();
            key.decrypt_chunk(&chunk, encoding).unwrap()
        })
        .collect();
    let expected: Vec<i64> = values.iter().map(|value| keep(*value) + 5).collect();
    assert_eq!(found, expected);
}
