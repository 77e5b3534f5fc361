//! Computational storage the standard's way: programs in indices, samples in memory namespaces.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use common::*;
use futures::executor::block_on;
use proptest::prelude::*;
use tokio::net::TcpListener;
use toroid_drive::bridge::status::{
    MEMORY_RANGE, METADATA_INVALID, METADATA_MISMATCH, NO_PROGRAM, NO_RANGE_SET, NO_ROOM,
    PART_ORDER, PROGRAM_IN_USE, PROGRAM_INACTIVE, PROGRAM_MALFORMED, PROGRAM_REFUSED,
    REGISTER_EMPTY, TOO_MANY_RANGES, TRIGGER_SPLIT, WRONG_KEY_TAG, WRONG_PARAMETERS, WRONG_SIZE,
};
use toroid_drive::bridge::{Effect, RingWay};
use toroid_drive::computational::request::{self, MemoryRange};
use toroid_drive::computational::{MAX_PROGRAMS, MAX_RANGE_SETS, MAX_RANGES, PROGRAM_TYPE, opcode};
use toroid_drive::{
    Computational, ComputationalConfig, ComputationalController, ComputationalError, HostIdentity,
    KeyAccess,
};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::{InterceptedBackend, decode_sample};
use toroid_engine::{BackendError, KeyForm, Requester, RingForm};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, assemble, encode};
use toroid_nvme::admin::{cns, csi, opcode as admin};
use toroid_nvme::fabrics::{ConnectOptions, Hosts, Limits, Sgl, Subsystem, Target};
use toroid_nvme::log::log_page;
use toroid_nvme::tcp::{self, Address, serve};
use toroid_nvme::{
    BROADCAST_NSID, Controller, OtherNamespace, Request, Response, Sqe, Status, read_blocks,
};
use toroid_rns::ring_set::TINY_RING;
use toroid_task::CancelToken;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{self, Column, ColumnBytesBuilder, ColumnForm, Segment, rows_per_chunk};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::Goldilocks;
use toroid_tfhe::params::{TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;

/// The namespace of programs, and two of memory.
const PROGRAMS: u32 = 10;
const MEMORY: u32 = 11;
const MORE_MEMORY: u32 = 12;
const MEMORY_BYTES: u32 = 64 << 10;
const MORE_BYTES: u32 = 4096;

fn computational_config() -> ComputationalConfig {
    ComputationalConfig {
        memories: vec![(MEMORY, MEMORY_BYTES), (MORE_MEMORY, MORE_BYTES)],
        program_bytes: 1 << 20,
        ..ComputationalConfig::new(PROGRAMS)
    }
}

fn attach(
    bench: &Bench,
    all: &Computational,
    name: &str,
    keys: KeyAccess,
) -> Result<ComputationalController, ComputationalError> {
    let controller = bench.drive.controller_for(HostIdentity {
        name: name.to_owned(),
        tenant: 1 + name.len() as u64,
        keys,
    });
    all.attach(Arc::new(controller.clone()), controller)
}

/// A drive with keys and a test vector, and a host that may do everything.
fn bench() -> (Bench, ComputationalController) {
    let bench = Bench::new(SECOND_HALF);
    bench.upload_keys();
    bench.write_object(TV_LBA, sc(bench.tv, &bench.test_vector), &bench.test_vector);
    let all = Computational::new(computational_config()).unwrap();
    let controller = attach(&bench, &all, "host", KeyAccess::All).unwrap();
    (bench, controller)
}

/// The tests' own command identifier.
fn with_id(mut request: Request) -> Request {
    request.sqe.cid = CID.into();
    request
}

fn command(opcode: u8, nsid: u32, words: [u32; 6], data: Vec<u8>, reply: u32) -> Request {
    with_id(request::command(opcode, nsid, words, data, reply))
}

fn load_part(index: u16, key_id: u32, size: u32, offset: u32, bytes: &[u8]) -> Request {
    let name = VrNumber::program(key_id).unwrap();
    with_id(request::load_program(
        PROGRAMS,
        index,
        name,
        (size, offset),
        bytes,
    ))
}

fn load(index: u16, key_id: u32, program: &[u8]) -> Request {
    load_part(index, key_id, program.len() as u32, 0, program)
}

fn unload(index: u16) -> Request {
    with_id(request::unload_program(PROGRAMS, index))
}

fn activate(index: u16, on: bool) -> Request {
    with_id(request::activate_program(PROGRAMS, index, on))
}

/// Namespace, first byte, bytes.
type Ranges<'a> = &'a [(u32, u64, u32)];

fn ranges(all: Ranges<'_>) -> Vec<MemoryRange> {
    let range = |(nsid, start, len): &(u32, u64, u32)| MemoryRange {
        nsid: *nsid,
        start: *start,
        len: *len,
    };
    all.iter().map(range).collect()
}

fn create(all: Ranges<'_>) -> Request {
    with_id(request::create_range_set(PROGRAMS, &ranges(all)))
}

fn descriptors(all: Ranges<'_>) -> Vec<u8> {
    create(all).data
}

fn delete(set: u16) -> Request {
    with_id(request::delete_range_set(PROGRAMS, set))
}

/// Execution of a program on a set: the inputs as a bit each, the result from 1 on.
fn execute(index: u16, set: u16, inputs: u32, result: u32) -> Request {
    let which = (inputs.into(), result.into());
    with_id(request::execute_on_set(PROGRAMS, index, set, which))
}

fn on_memory(opcode: u8, nsid: u32, start: u64, len: u32, data: Vec<u8>) -> Request {
    let words = [start as u32, (start >> 32) as u32, len, 0, 0, 0];
    let reply = if opcode == self::opcode::READ { len } else { 0 };
    command(opcode, nsid, words, data, reply)
}

fn write_memory(nsid: u32, start: u64, data: &[u8]) -> Request {
    with_id(request::write_memory(nsid, start, data))
}

fn read_memory(nsid: u32, start: u64, len: u32) -> Request {
    with_id(request::read_memory(MemoryRange { nsid, start, len }))
}

fn copy(nsid: u32, to: u64, total: u64, format: u32, sources: &[(u32, u64, u32)]) -> Request {
    let mut data = Vec::new();
    for (nsid, from, amount) in sources {
        data.extend_from_slice(&nsid.to_le_bytes());
        data.extend_from_slice(&[0; 4]);
        data.extend_from_slice(&from.to_le_bytes());
        data.extend_from_slice(&amount.to_le_bytes());
        data.extend_from_slice(&[0; 12]);
    }
    let ranges = sources.len() as u32 - 1;
    let words = [to as u32, (to >> 32) as u32, ranges | format << 8, 0, 0, 0];
    let mut request = command(opcode::COPY, nsid, words, data, 0);
    request.sqe.cdw2 = (total as u32).into();
    request.sqe.cdw3 = ((total >> 32) as u32).into();
    request
}

/// Memory Read has the opcode of Get Log Page.
async fn submit_to(controller: &dyn Controller, request: Request) -> Response {
    let on_memory = [MEMORY, MORE_MEMORY].contains(&request.sqe.nsid.get());
    let admin = [
        admin::LOAD_PROGRAM,
        admin::PROGRAM_ACTIVATION,
        admin::MEMORY_RANGE_SET,
        admin::IDENTIFY,
        admin::GET_LOG_PAGE,
    ];
    match !on_memory && admin.contains(&request.sqe.opcode) || request.sqe.opcode == admin::IDENTIFY
    {
        true => controller.admin(request).await,
        false => controller.submit(request).await,
    }
}

async fn succeed(controller: &dyn Controller, request: Request) -> Response {
    let sqe = request.sqe;
    let response = submit_to(controller, request).await;
    let status = response.cqe.status();
    assert!(
        status.is_success(),
        "opcode {:02X}h: {status}: {:?}",
        sqe.opcode,
        controller.errors().first()
    );
    assert_eq!(response.cqe.cid.get(), CID);
    response
}

fn ok(controller: &ComputationalController, request: Request) -> Response {
    block_on(succeed(controller, request))
}

/// The status of what must fail, with a reason.
fn fail(controller: &ComputationalController, request: Request) -> Status {
    let command = request.sqe;
    let before = controller.errors().first().map_or(0, |error| error.count);
    let response = block_on(submit_to(controller, request));
    assert!(response.data.is_empty());
    let status = response.cqe.status();
    assert!(!status.is_success());
    let errors = controller.errors();
    assert_eq!(
        (errors[0].count, errors[0].status, errors[0].command),
        (before + 1, status, command)
    );
    assert!(!errors[0].reason.is_empty());
    status
}

/// A sample behind its metadata, as a range of memory holds it.
fn record(sc: ScMetadata, bytes: &[u8]) -> Vec<u8> {
    [&sc.to_bytes()[..], bytes].concat()
}

fn sc_of(register: &str, m: i64) -> ScMetadata {
    sc(vr(register), &message(m))
}

fn plain_record(register: &str, m: i64) -> Vec<u8> {
    record(sc_of(register, m), &message(m))
}

const RECORD: u32 = 64 + TINY.stage.lwe_bytes() as u32;
/// Where x, y and a result of their own are.
const AT: [u64; 3] = [4096, 8192, 32768];

fn table_5() -> Vec<u8> {
    encode(&assemble(TABLE_5).unwrap().program)
}

/// x and y in memory, Table 5 active in index 3, their range set.
fn prepare(controller: &ComputationalController, x: &[u8], y: &[u8]) -> u16 {
    ok(controller, write_memory(MEMORY, AT[0], x));
    ok(controller, write_memory(MEMORY, AT[1], y));
    ok(controller, load(3, 0, &table_5()));
    ok(controller, activate(3, true));
    let ranges = AT.map(|start| (MEMORY, start, RECORD));
    ok(controller, create(&ranges)).cqe.dw0.get() as u16
}

fn result_at(controller: &ComputationalController, start: u64) -> (ScMetadata, Vec<u8>) {
    let data = ok(controller, read_memory(MEMORY, start, RECORD)).data;
    let (head, bytes) = data.split_at(64);
    (
        ScMetadata::from_bytes(head).unwrap().unwrap(),
        bytes.to_vec(),
    )
}

#[test]
fn a_product_and_no_register_changes() {
    let (bench, controller) = bench();
    let before = bench.state();
    let set = prepare(&controller, &plain_record(X, 5), &plain_record(Y, 2));
    let response = ok(&controller, execute(3, set, 0b011, 3));
    assert_eq!(response.cqe.dw0.get(), Effect::Computed as u32);
    let (sc, bytes) = result_at(&controller, AT[2]);
    assert_eq!(decode_sample(&TINY, &bytes, 4), 10);
    assert!(sc.computed());
    assert_eq!((sc.vr(), sc.params()), (vr("cor:0:9"), TINY.id));
    // The inputs stay.
    for (start, record) in [(AT[0], plain_record(X, 5)), (AT[1], plain_record(Y, 2))] {
        assert_eq!(
            ok(&controller, read_memory(MEMORY, start, RECORD)).data,
            record
        );
    }
    // Again, with the result in place of y.
    ok(&controller, execute(3, set, 0b011, 2));
    let (sc, bytes) = result_at(&controller, AT[1]);
    assert_eq!((decode_sample(&TINY, &bytes, 4), sc.vr()), (10, vr(Y)));
    // How many blocks the sample has elsewhere does not matter.
    let elsewhere = sc_of(Y, 2).with_blocks(3);
    ok(
        &controller,
        write_memory(MEMORY, AT[1], &record(elsewhere, &message(2))),
    );
    ok(&controller, execute(3, set, 0b011, 2));
    let (sc, bytes) = result_at(&controller, AT[1]);
    assert_eq!((decode_sample(&TINY, &bytes, 4), sc.blocks()), (10, 3));
    // With ranges of the command's own, and no result wanted.
    let ranges = [(MEMORY, AT[0], RECORD), (MEMORY, AT[2], RECORD)];
    let own = |dlen: u32, result: u32| {
        let mut request = execute(3, 0, 0b01, result);
        request.data = descriptors(&ranges);
        request.sqe.cdw3 = 2.into();
        request.sqe.mptr = u64::from(dlen).into();
        request
    };
    // y is not on the drive, which no run has changed.
    assert_eq!(fail(&controller, own(64, 2)), REGISTER_EMPTY);
    assert!(bench.state() == before);
    bench.write_sample(Y_LBA, Y, &message(1));
    ok(&controller, own(64, 2));
    assert_eq!(decode_sample(&TINY, &result_at(&controller, AT[2]).1, 4), 5);
    ok(&controller, own(0, 0));
    assert_eq!(
        fail(&controller, own(60, 2)),
        Status::DATA_SGL_LENGTH_INVALID
    );
    let statistics = bench.drive.statistics();
    assert_eq!(statistics.programs[&0].runs, 5);
    assert_eq!(statistics.programs[&0].failures, 1);
}

/// The same program on the same samples, the standard's way and by compute-on-write: the same 64 + n bytes.
#[test]
fn the_same_bits_as_compute_on_write() {
    let mut rng = Csprng::from_seed([7; 32]);
    let key = ClientKey::generate(&TINY, &mut rng);
    let encoding = Encoding::new(4, true).unwrap();
    let mut keys = [Vec::new(), Vec::new()];
    let go_on = Progress::none();
    let [bootstrapping, key_switching] = &mut keys;
    key.bootstrapping_key(KeyForm::Seeded, &mut rng, &go_on, &mut |bytes| {
        bootstrapping.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    key.key_switching_key(KeyForm::Seeded, &mut rng, &go_on, &mut |bytes| {
        key_switching.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    let table: Vec<u64> = encoding
        .messages()
        .map(|m| encoding.encode::<Goldilocks>((m * m / 4).min(7)).unwrap())
        .collect();
    let test_vector: Vec<u8> = glwe::test_vector::<Goldilocks>(&TINY, encoding, &table)
        .unwrap()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let signed = |vr, bytes: &[u8]| sc(vr, bytes).with_message(4, true).unwrap();
    for mode in MODES {
        let bench = Bench::with(mode, |config| {
            config.backend = Arc::new(CpuBackend::new(ArithmeticKind::Ntt));
        });
        for (lba, kind, bytes) in [(BKNTT_LBA, 1, &keys[0]), (KSK_LBA, 2, &keys[1])] {
            bench.write_object(lba, sc(vr(&format!("key:0:{kind}")), bytes), bytes);
        }
        bench.write_object(TV_LBA, signed(bench.tv, &test_vector), &test_vector);
        let all = Computational::new(computational_config()).unwrap();
        let controller = attach(&bench, &all, "host", KeyAccess::All).unwrap();
        for (x, y) in [(2, 1), (-1, 2), (2, -2)] {
            let x_bytes = key.encrypt_sample(x, encoding, &mut rng).unwrap();
            let y_bytes = key.encrypt_sample(y, encoding, &mut rng).unwrap();
            let x_record = record(signed(vr(X), &x_bytes), &x_bytes);
            let y_record = record(signed(vr(Y), &y_bytes), &y_bytes);
            let set = prepare(&controller, &x_record, &y_record);
            ok(&controller, execute(3, set, 0b011, 2));
            let (sc, bytes) = result_at(&controller, AT[1]);
            assert_eq!(key.decrypt_sample(&bytes, encoding).unwrap(), x * y);

            bench.write_object(X_LBA, signed(vr(X), &x_bytes), &x_bytes);
            let program = sc_of_program(&bench);
            bench.write_object(PROGRAM_LBA, program, &bench.program);
            let effect = bench.write_object(Y_LBA, signed(vr(Y), &y_bytes), &y_bytes);
            assert_eq!(effect, Effect::Computed);
            let (written, metadata, _) = bench.read_object(Y_LBA, TINY.lwe_bytes());
            assert_eq!(bytes, written);
            let stored = metadata.unwrap().with_blocks(0);
            assert_eq!(sc, stored);
            ok(&controller, activate(3, false));
            ok(&controller, unload(3));
            ok(&controller, delete(set));
        }
    }
}

/// Columns come and go as bytes in memory: seeded from the client, packed from the drive, a sum as a single sample.
#[test]
fn programs_run_on_columns() {
    let params = &TINY_WOPBS;
    let mut rng = Csprng::from_seed([9; 32]);
    let key = ClientKey::generate(params, &mut rng);
    let encoding = Encoding::new(9, false).unwrap();
    let bench = Bench::with(SECOND_HALF, |config| {
        config.backend = Arc::new(CpuBackend::new(ArithmeticKind::Fft));
    });
    let of_set = |register: &str, bytes: &[u8]| {
        let sc = ScMetadata::new(vr(register), params.id, bytes.len() as u64).unwrap();
        sc.with_message(if register.starts_with("key") { 0 } else { 9 }, false)
            .unwrap()
    };
    let mut bytes = Vec::new();
    let mut write = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    key.key_switching_key(KeyForm::Seeded, &mut rng, &Progress::none(), &mut write)
        .unwrap();
    bench.write_object(KSK_LBA, of_set("key:0:2", &bytes), &bytes);
    bytes.clear();
    let mut write = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    key.bootstrapping_key(KeyForm::Seeded, &mut rng, &Progress::none(), &mut write)
        .unwrap();
    bench.write_object(BKNTT_LBA, of_set("key:0:1", &bytes), &bytes);
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
    bench.write_object(TV_LBA, of_set("tv:0:0", &test_vector), &test_vector);
    let before = bench.state();
    let all = Computational::new(computational_config()).unwrap();
    let controller = attach(&bench, &all, "host", KeyAccess::All).unwrap();

    // Two chunks, the second of which is not full.
    let values: Vec<i64> = (0..200).map(|row| row * 37 % 512).collect();
    let mut seeded = |values: &[i64]| {
        let mut builder = ColumnBytesBuilder::new(params, 2);
        for rows in values.chunks(rows_per_chunk(params)) {
            let chunk = key.encrypt_chunk(rows, encoding, &mut rng).unwrap();
            let form = ColumnForm::Seeded;
            builder.push_chunk(form, rows.len(), &chunk).unwrap();
        }
        builder.finish().unwrap()
    };
    let column = seeded(&values);
    let fresh = |register: &str, bytes: &[u8]| {
        of_set(register, bytes)
            .with_noise(Some(params.lwe_variance().log2()), None)
            .with_column(true)
    };
    let run_as = |program: &str,
                  (column, stated): (&[u8], &dyn Fn(ScMetadata) -> ScMetadata),
                  expected: Result<(), Status>| {
        let program = encode(&assemble(program).unwrap().program);
        ok(&controller, load(3, 0, &program));
        ok(&controller, activate(3, true));
        let input = record(stated(fresh("cor:0:0", column)), column);
        let padded = [&input[..], &[0; 3]].concat();
        let input_len = padded.len() / 4 * 4;
        ok(&controller, write_memory(MEMORY, 0, &padded[..input_len]));
        let ranges = [(MEMORY, 0, input_len as u32), (MEMORY, 32768, 32768)];
        let set = ok(&controller, create(&ranges)).cqe.dw0.get() as u16;
        let command = execute(3, set, 0b01, 2);
        match expected {
            Ok(()) => assert_eq!(
                ok(&controller, command).cqe.dw0.get(),
                Effect::Computed as u32
            ),
            Err(status) => assert_eq!(fail(&controller, command), status),
        }
        ok(&controller, activate(3, false));
        ok(&controller, unload(3));
        ok(&controller, delete(set));
        let data = ok(&controller, read_memory(MEMORY, 32768, 32768)).data;
        let sc = ScMetadata::from_bytes(&data[..64]).unwrap();
        let made = sc.map(|sc| (sc, data[64..64 + sc.size() as usize].to_vec()));
        made.filter(|_| expected.is_ok())
    };
    let run = |program: &str, column: &[u8], expected: Result<(), Status>| {
        run_as(program, (column, &|sc| sc), expected)
    };
    let each = "bootstrap tv:0, cor:0\nhomintadd cor:0, 1\nreturn cor:0";
    let (sc, bytes) = run(each, &column, Ok(())).unwrap();
    assert!(sc.column() && sc.computed());
    assert_eq!(
        (sc.vr(), sc.params(), sc.message_bits()),
        (vr("cor:0:0"), params.id, 9)
    );
    assert!(f64::from(sc.log2_variance().unwrap()) > params.lwe_variance().log2());
    assert!(sc.log2_p_fail().is_some());
    let made = Column::new(params, &bytes).unwrap();
    let segments = made.header().segments();
    assert_eq!((made.header().rows(), segments.len()), (200, 2));
    assert!(segments.iter().all(|of| of.form == ColumnForm::Packed));
    let decrypted = |bytes: &[u8]| -> Vec<i64> {
        let column = Column::new(params, bytes).unwrap();
        let segments = column.header().segments().iter().enumerate();
        let of_segment = |(index, segment): (usize, &Segment)| {
            let chunk = column.chunk_of(index).unwrap();
            let rows = key.decrypt_chunk(&chunk, encoding).unwrap();
            rows[segment.rows_in_chunk()].to_vec()
        };
        segments.flat_map(of_segment).collect()
    };
    let found = decrypted(&bytes);
    let expected: Vec<i64> = values.iter().map(|value| keep(*value) + 1).collect();
    assert_eq!(found, expected);

    // A range of rows that was cut out of a column, with others in the place of some.
    let whole = Column::new(params, &column).unwrap();
    let mut header = whole.header().clone();
    let others = header.slice(0..3).unwrap();
    header.replace(150..152, others).unwrap();
    let cut = header.slice(100..190).unwrap();
    let chunk_of = |segment: &Segment| {
        let segments = whole.header().segments();
        let shared = segments.iter().position(|of| of.shares_chunk(segment));
        whole.chunk_bytes(shared.unwrap()).unwrap()
    };
    let cut = cut.iter().map(|segment| (*segment, chunk_of(segment)));
    let cut = column::assemble(params, cut).unwrap();
    let (_, bytes) = run(each, &cut, Ok(())).unwrap();
    let mut expected = expected;
    expected.splice(150..152, expected[0..3].to_vec());
    assert_eq!(decrypted(&bytes), expected[100..190]);

    // A sum is a single sample.
    let narrow: Vec<i64> = (0..50).map(|row| row % 7).collect();
    let few = seeded(&narrow);
    let (sc, bytes) = run("homsum cor:0, 0\nreturn cor:0", &few, Ok(())).unwrap();
    assert!(!sc.column() && sc.computed());
    let total: i64 = narrow.iter().sum();
    assert_eq!(key.decrypt_sample(&bytes, encoding).unwrap(), total);

    // A sum has more bits than functions take, of samples as wide as it is.
    let wide = Encoding::of_samples(params, 20, false).unwrap();
    let large: Vec<i64> = (0..100).map(|row| row * 523 % 4096).collect();
    let chunk = key.encrypt_chunk(&large, wide, &mut Csprng::from_seed([11; 32]));
    let mut builder = ColumnBytesBuilder::new(params, 1);
    builder
        .push_chunk(ColumnForm::Seeded, 100, &chunk.unwrap())
        .unwrap();
    let large_bytes = builder.finish().unwrap();
    let total = "homsum cor:0, 0\nreturn cor:0";
    for (bits, expected) in [(20, Ok(())), (41, Err(METADATA_INVALID))] {
        let stated = |sc: ScMetadata| sc.with_message(bits, false).unwrap();
        let found = run_as(total, (&large_bytes, &stated), expected);
        if let Some((sc, bytes)) = found {
            assert_eq!(sc.message_bits(), 20);
            let found = key.decrypt_sample(&bytes, wide).unwrap();
            assert_eq!(found, large.iter().sum::<i64>());
        }
    }

    // A result that has no room is refused before the program runs.
    let runs = bench.drive.statistics().bootstraps;
    ok(
        &controller,
        load(3, 0, &encode(&assemble(each).unwrap().program)),
    );
    ok(&controller, activate(3, true));
    let input = record(fresh("cor:0:0", &column), &column);
    let len = input.len() / 4 * 4 + 4;
    ok(
        &controller,
        write_memory(MEMORY, 0, &[&input[..], &[0; 4]].concat()[..len]),
    );
    let ranges = [(MEMORY, 0, len as u32), (MEMORY, 32768, 1024)];
    let set = ok(&controller, create(&ranges)).cqe.dw0.get() as u16;
    assert_eq!(fail(&controller, execute(3, set, 0b01, 2)), NO_ROOM);
    assert_eq!(fail(&controller, execute(3, set, 0b01, 0)), NO_ROOM);
    assert_eq!(bench.drive.statistics().bootstraps, runs);
    ok(&controller, delete(set));

    // Columns of two client keys do not meet.
    let tagged =
        |register: &str, tag: u8| record(fresh(register, &few).with_key_tag([tag; 12]), &few);
    for (tags, refused) in [([1, 2], true), ([2, 2], false)] {
        let program = encode(
            &assemble("homadd cor:0, cor:1\nreturn cor:0")
                .unwrap()
                .program,
        );
        ok(&controller, activate(3, false));
        ok(&controller, unload(3));
        ok(&controller, load(3, 0, &program));
        ok(&controller, activate(3, true));
        let records = [tagged("cor:0:0", tags[0]), tagged("cor:0:1", tags[1])];
        let len = records[0].len().next_multiple_of(4);
        for (at, record) in [0, 8192].into_iter().zip(&records) {
            let padded = [&record[..], &[0; 4]].concat();
            ok(&controller, write_memory(MEMORY, at, &padded[..len]));
        }
        let ranges = [
            (MEMORY, 0, len as u32),
            (MEMORY, 8192, len as u32),
            (MEMORY, 32768, 32768),
        ];
        let set = ok(&controller, create(&ranges)).cqe.dw0.get() as u16;
        let command = execute(3, set, 0b011, 3);
        if refused {
            assert_eq!(fail(&controller, command), WRONG_KEY_TAG);
        } else {
            ok(&controller, command);
        }
        ok(&controller, delete(set));
    }
    ok(&controller, activate(3, false));
    ok(&controller, unload(3));

    // What is no column, and rows that do not fit the program.
    let mut damaged = few.clone();
    damaged[8] ^= 1;
    run(each, &damaged, Err(METADATA_INVALID));
    let mut damaged = few.clone();
    *damaged.last_mut().unwrap() ^= 1;
    run(each, &damaged, Err(METADATA_INVALID));
    run("lower cor:0, 4\nreturn cor:0", &few, Err(PROGRAM_REFUSED));
    assert!(bench.state() == before, "no register has changed");
    let statistics = bench.drive.statistics();
    assert_eq!(statistics.programs[&0].runs, 5);
    assert_eq!(statistics.bootstraps, 290);
}

fn sc_of_program(bench: &Bench) -> ScMetadata {
    sc(vr("prg:0:0"), &bench.program)
}

#[test]
fn programs_come_and_go() {
    let (_bench, controller) = bench();
    let program = table_5();
    let size = program.len() as u32;
    // Nothing there.
    assert_eq!(fail(&controller, activate(3, true)), NO_PROGRAM);
    assert_eq!(fail(&controller, unload(3)), NO_PROGRAM);
    assert_eq!(fail(&controller, execute(3, 0, 0, 0)), NO_PROGRAM);
    for index in [MAX_PROGRAMS as u16, u16::MAX] {
        for request in [
            load(index, 0, &program),
            unload(index),
            activate(index, true),
            execute(index, 0, 0, 0),
        ] {
            assert_eq!(fail(&controller, request), NO_PROGRAM);
        }
    }
    // In parts, which must continue each other.
    let part = |from: usize, to: usize| load_part(3, 0, size, from as u32, &program[from..to]);
    ok(&controller, part(0, 40));
    assert_eq!(fail(&controller, activate(3, true)), NO_PROGRAM);
    assert_eq!(fail(&controller, execute(3, 0, 0, 0)), NO_PROGRAM);
    assert_eq!(fail(&controller, part(41, 60)), PART_ORDER);
    assert_eq!(fail(&controller, part(40, 60)), PART_ORDER);
    ok(&controller, part(0, 40));
    let other_key = load_part(3, 1, size, 40, &program[40..]);
    assert_eq!(fail(&controller, other_key), PART_ORDER);
    ok(&controller, part(0, 40));
    ok(&controller, part(0, 16));
    ok(&controller, part(16, program.len()));
    assert_eq!(fail(&controller, load(3, 0, &program)), PROGRAM_IN_USE);
    assert_eq!(fail(&controller, execute(3, 0, 0, 0)), PROGRAM_INACTIVE);
    for _ in 0..2 {
        ok(&controller, activate(3, true));
    }
    assert_eq!(fail(&controller, unload(3)), PROGRAM_IN_USE);
    assert_eq!(fail(&controller, load(3, 0, &program)), PROGRAM_IN_USE);
    ok(&controller, activate(3, false));
    assert_eq!(fail(&controller, execute(3, 0, 0, 0)), PROGRAM_INACTIVE);
    ok(&controller, unload(3));
    assert_eq!(fail(&controller, unload(3)), NO_PROGRAM);
    // A part can be given up.
    ok(&controller, part(0, 40));
    ok(&controller, unload(3));

    let edited = |edit: fn(&mut Sqe)| {
        let mut request = load(4, 0, &table_5());
        edit(&mut request.sqe);
        request
    };
    for edit in [
        // Another program type, another type of identifier, an identifier that is none.
        (|sqe| sqe.cdw10 = (sqe.cdw10.get() ^ 1 << 16).into()) as fn(&mut Sqe),
        |sqe| sqe.cdw10 = (sqe.cdw10.get() ^ 1 << 25).into(),
        |sqe| sqe.cdw12 = 1.into(),
        |sqe| sqe.cdw13 = (1 << 24).into(),
        |sqe| sqe.cdw13 = u32::MAX.into(),
        // Beyond the size.
        |sqe| sqe.cdw11 = (sqe.cdw11.get() - 1).into(),
        |sqe| sqe.cdw15 = u32::MAX.into(),
        |sqe| sqe.flags = 1,
    ] {
        assert_eq!(fail(&controller, edited(edit)), Status::INVALID_FIELD);
    }
    let length = Status::DATA_SGL_LENGTH_INVALID;
    assert_eq!(
        fail(&controller, edited(|sqe| sqe.cdw14 = 1.into())),
        length
    );
    assert_eq!(
        fail(&controller, load_part(4, 0, 0, 0, &[])),
        Status::INVALID_FIELD
    );
    assert_eq!(fail(&controller, load(4, 0, &[1; 15])), WRONG_SIZE);
    let huge = load_part(4, 0, u32::MAX, 0, &[1; 16]);
    assert_eq!(fail(&controller, huge), WRONG_SIZE);
    let large = load_part(4, 0, (1 << 20) + 1, 0, &[1; 16]);
    assert_eq!(fail(&controller, large), Status::CAPACITY_EXCEEDED);
    assert_eq!(fail(&controller, load(4, 0, &[1; 64])), PROGRAM_MALFORMED);
    let mut damaged = table_5();
    damaged[20] ^= 1;
    assert_eq!(fail(&controller, load(4, 0, &damaged)), PROGRAM_MALFORMED);
    assert_eq!(fail(&controller, unload(4)), NO_PROGRAM);
    // The room is for all programs together.
    ok(&controller, load_part(5, 0, 1 << 19, 0, &[1; 16]));
    ok(&controller, load_part(6, 0, 1 << 19, 0, &[1; 16]));
    assert_eq!(
        fail(&controller, load(4, 0, &program)),
        Status::CAPACITY_EXCEEDED
    );
    ok(&controller, load_part(6, 0, 1 << 18, 0, &[1; 16]));
    ok(&controller, load(4, 0, &program));

    let mut request = activate(4, true);
    request.sqe.cdw10 = (4 | 2 << 16).into();
    assert_eq!(fail(&controller, request), Status::INVALID_FIELD);
    for request in [activate(4, true), unload(4), delete(1)] {
        let carrying = Request {
            data: vec![0; 4],
            ..request
        };
        assert_eq!(fail(&controller, carrying), length);
    }
    // Commands of the set go to its namespace only.
    for nsid in [0, 1, MEMORY, BROADCAST_NSID] {
        let mut request = activate(4, true);
        request.sqe.nsid = nsid.into();
        let status = block_on(controller.admin(request)).cqe.status();
        assert_eq!(status, Status::INVALID_NAMESPACE);
    }
    let mut request = execute(4, 0, 0, 0);
    request.sqe.opcode = opcode::READ;
    let status = block_on(controller.submit(request)).cqe.status();
    assert_eq!(status, Status::INVALID_OPCODE);
}

#[test]
fn memory_range_sets_come_and_go() {
    let (_bench, controller) = bench();
    let one = [(MEMORY, 0, 4096)];
    assert_eq!(fail(&controller, delete(1)), NO_RANGE_SET);
    for id in 1..=MAX_RANGE_SETS as u32 {
        assert_eq!(ok(&controller, create(&one)).cqe.dw0.get(), id);
    }
    assert_eq!(fail(&controller, create(&one)), TOO_MANY_RANGES);
    ok(&controller, delete(7));
    assert_eq!(fail(&controller, delete(7)), NO_RANGE_SET);
    assert_eq!(fail(&controller, delete(0)), NO_RANGE_SET);
    assert_eq!(fail(&controller, delete(u16::MAX)), NO_RANGE_SET);
    let most: Vec<_> = (0..MAX_RANGES as u64).map(|n| (MEMORY, n * 8, 8)).collect();
    assert_eq!(ok(&controller, create(&most)).cqe.dw0.get(), 7);
    ok(&controller, delete(7));
    let page = ok(
        &controller,
        log(log_page::MEMORY_RANGE_SETS, PROGRAMS, 0, 64 + 63 * 64),
    )
    .data;
    assert_eq!(page[..2], 63u16.to_le_bytes());
    assert_eq!(page[64..67], [1, 0, 1]);
    assert_eq!(page[96..128], descriptors(&one));

    let more: Vec<_> = (0..=MAX_RANGES as u64)
        .map(|n| (MEMORY, n * 8, 8))
        .collect();
    assert_eq!(fail(&controller, create(&more)), TOO_MANY_RANGES);
    assert_eq!(fail(&controller, create(&[])), TOO_MANY_RANGES);
    let size = u64::from(MEMORY_BYTES);
    for ranges in [
        [(MEMORY, 0, 0)],
        [(MEMORY, 2, 8)],
        [(MEMORY, 0, 6)],
        [(MEMORY, size, 4)],
        [(MEMORY, size - 4, 8)],
        [(MEMORY, u64::MAX - 3, 8)],
        [(MORE_MEMORY, 0, MORE_BYTES + 4)],
        [(PROGRAMS, 0, 4)],
        [(1, 0, 4)],
        [(0, 0, 4)],
    ] {
        assert_eq!(
            fail(&controller, create(&ranges)),
            MEMORY_RANGE,
            "{ranges:?}"
        );
    }
    let overlap = [(MEMORY, 0, 8), (MORE_MEMORY, 0, 8), (MEMORY, 4, 8)];
    assert_eq!(fail(&controller, create(&overlap)), MEMORY_RANGE);
    assert_eq!(ok(&controller, create(&overlap[..2])).cqe.dw0.get(), 7);
    let mut request = create(&one);
    request.data.pop();
    assert_eq!(fail(&controller, request), Status::DATA_SGL_LENGTH_INVALID);
    let mut request = create(&one);
    request.sqe.cdw10 = 2.into();
    assert_eq!(fail(&controller, request), Status::INVALID_FIELD);
}

#[test]
fn what_a_program_cannot_be_executed_on() {
    let (bench, controller) = bench();
    let set = prepare(&controller, &plain_record(X, 5), &plain_record(Y, 2));
    let before = ok(&controller, read_memory(MEMORY, 0, 32768)).data;
    assert_eq!(
        fail(&controller, execute(3, set + 1, 0b011, 3)),
        NO_RANGE_SET
    );
    assert_eq!(
        fail(&controller, execute(3, set, 0b1011, 3)),
        Status::INVALID_FIELD
    );
    assert_eq!(
        fail(&controller, execute(3, set, 0b011, 4)),
        Status::INVALID_FIELD
    );
    assert_eq!(
        fail(&controller, execute(3, set, 0b011, u32::MAX)),
        Status::INVALID_FIELD
    );
    let mut high = execute(3, set, 0b011, 3);
    high.sqe.cdw11 = 1.into();
    assert_eq!(fail(&controller, high), Status::INVALID_FIELD);
    // A parameter set, a ring that there is not, and bits beside it; single samples in a ring.
    for form in [9, 0x4fff, 0x2000_4001, 0x8000_0000] {
        let mut in_ring = execute(3, set, 0b011, 3);
        in_ring.sqe.cdw14 = form.into();
        assert_eq!(fail(&controller, in_ring), Status::INVALID_FIELD);
    }
    let form = RingForm::Samples;
    let way = RingWay {
        set: &TINY_RING,
        form,
    };
    let in_ring = request::in_ring(execute(3, set, 0b011, 3), way);
    assert_eq!(fail(&controller, in_ring), METADATA_MISMATCH);
    let mut both = execute(3, set, 0b011, 3);
    both.sqe.cdw3 = 1.into();
    both.data = descriptors(&[(MEMORY, 0, RECORD)]);
    assert_eq!(fail(&controller, both), Status::INVALID_FIELD);
    // A range without a sample, which is not an input by itself.
    assert_eq!(
        fail(&controller, execute(3, set, 0b111, 0)),
        METADATA_INVALID
    );
    assert_eq!(fail(&controller, execute(3, set, 0b001, 3)), REGISTER_EMPTY);

    let refuse = |record: &[u8], expected: Status| {
        ok(&controller, write_memory(MEMORY, AT[1], record));
        assert_eq!(fail(&controller, execute(3, set, 0b011, 3)), expected);
    };
    let bytes = message(2);
    let y = sc(vr(Y), &bytes);
    let mut damaged = record(y, &bytes);
    damaged[9] ^= 1;
    refuse(&damaged, METADATA_INVALID);
    refuse(&record(y.with_offset(4).unwrap(), &bytes), TRIGGER_SPLIT);
    refuse(&plain_record(X, 2), METADATA_MISMATCH);
    refuse(&record(sc(vr("tv:0:0"), &bytes), &bytes), METADATA_INVALID);
    let other = ScMetadata::new(vr(Y), 999, bytes.len() as u64).unwrap();
    refuse(&record(other, &bytes), WRONG_PARAMETERS);
    let short = ScMetadata::new(vr(Y), TINY.id, 4).unwrap();
    refuse(&record(short, &bytes), WRONG_SIZE);
    let other = vec![0; TINY32.lwe_bytes()];
    let of_other = ScMetadata::new(vr(Y), TINY32.id, other.len() as u64).unwrap();
    refuse(&record(of_other, &other), WRONG_PARAMETERS);
    let long = ScMetadata::new(vr(Y), TINY.id, 1 << 38).unwrap();
    refuse(&record(long, &bytes), MEMORY_RANGE);
    ok(
        &controller,
        write_memory(MEMORY, AT[1], &plain_record(Y, 2)),
    );

    // Ranges that are too small for a sample, its metadata or the result.
    for (len, expected) in [(60, MEMORY_RANGE), (RECORD - 4, MEMORY_RANGE)] {
        let small = [(MEMORY, AT[0], RECORD), (MEMORY, AT[1], len)];
        let small = ok(&controller, create(&small)).cqe.dw0.get() as u16;
        assert_eq!(fail(&controller, execute(3, small, 0b11, 0)), expected);
    }
    let small = [
        (MEMORY, AT[0], RECORD),
        (MEMORY, AT[1], RECORD),
        (MORE_MEMORY, 0, RECORD - 4),
    ];
    let small = ok(&controller, create(&small)).cqe.dw0.get() as u16;
    assert_eq!(
        fail(&controller, execute(3, small, 0b011, 3)),
        PROGRAM_REFUSED
    );
    assert!(
        ok(&controller, read_memory(MORE_MEMORY, 0, MORE_BYTES))
            .data
            .iter()
            .all(|byte| *byte == 0)
    );
    let after = ok(&controller, read_memory(MEMORY, 0, 32768)).data;
    assert!(after == before);

    // What the program needs beside.
    bench.drive.engine().remove(bench.tv);
    assert_eq!(fail(&controller, execute(3, set, 0b011, 3)), REGISTER_EMPTY);
}

#[test]
fn hosts_have_nothing_in_common() {
    let (bench, _) = bench();
    let all = Computational::new(computational_config()).unwrap();
    let only = |key_ids: &[u32]| KeyAccess::Only(key_ids.iter().copied().collect());
    let a = attach(&bench, &all, "a", only(&[0])).unwrap();
    let b = attach(&bench, &all, "b", only(&[7])).unwrap();
    let set = prepare(&a, &plain_record(X, 5), &plain_record(Y, 2));
    ok(&a, execute(3, set, 0b011, 3));
    // b sees nothing of a's memory, programs and sets.
    let all_of_it = |controller| ok(controller, read_memory(MEMORY, 0, 32768)).data;
    assert!(all_of_it(&b).iter().all(|byte| *byte == 0));
    assert_eq!(fail(&b, execute(3, set, 0b011, 3)), NO_PROGRAM);
    assert_eq!(fail(&b, delete(set)), NO_RANGE_SET);
    let list = |controller: &ComputationalController| {
        ok(controller, log(log_page::PROGRAMS, PROGRAMS, 0, 64 * 17)).data
    };
    assert!(list(&b)[64..].iter().all(|byte| *byte == 0));
    assert_ne!(list(&a), list(&b));
    let nguids = |controller: &ComputationalController| {
        let others = controller.info().other_namespaces.iter();
        others.map(|other| other.nguid).collect::<Vec<_>>()
    };
    assert!(nguids(&a).iter().all(|id| !nguids(&b).contains(id)));

    // Key ids that b may not use: of the program, of its registers, of a sample.
    assert_eq!(fail(&b, load(3, 0, &table_5())), Status::ACCESS_DENIED);
    assert_eq!(fail(&b, load(3, 7, &table_5())), Status::ACCESS_DENIED);
    let sum = "
        .reg r1 = cor:7:1
        return r1
    ";
    let sum = encode(&assemble(sum).unwrap().program);
    ok(&b, load(3, 7, &sum));
    ok(&b, activate(3, true));
    ok(&b, write_memory(MEMORY, AT[0], &plain_record(X, 5)));
    ok(&b, write_memory(MEMORY, AT[1], &plain_record("cor:7:1", 6)));
    let own = ok(&b, create(&AT.map(|start| (MEMORY, start, RECORD))))
        .cqe
        .dw0
        .get() as u16;
    assert_eq!(fail(&b, execute(3, own, 0b011, 3)), Status::ACCESS_DENIED);
    ok(&b, execute(3, own, 0b010, 3));
    assert_eq!(decode_sample(&TINY, &result_at(&b, AT[2]).1, 4), 6);
    // The same registers elsewhere stay a's.
    assert_eq!(decode_sample(&TINY, &result_at(&a, AT[2]).1, 4), 10);

    // On another connection a finds the same; with fewer keys it cannot go on there.
    let again = attach(&bench, &all, "a", only(&[0])).unwrap();
    ok(&again, execute(3, set, 0b011, 3));
    let fewer = attach(&bench, &all, "a", only(&[1])).unwrap();
    assert_eq!(
        fail(&fewer, execute(3, set, 0b011, 3)),
        Status::ACCESS_DENIED
    );
    // Its programs and sets go with its last connection, so that one that was killed does not keep them; its memory stays.
    drop((a, again, fewer));
    let a = attach(&bench, &all, "a", only(&[0])).unwrap();
    assert_eq!(decode_sample(&TINY, &result_at(&a, AT[2]).1, 4), 10);
    assert_eq!(fail(&a, execute(3, set, 0b011, 3)), NO_PROGRAM);
    assert_eq!(fail(&a, delete(set)), NO_RANGE_SET);
}

#[test]
fn so_many_hosts_and_no_more() {
    let (bench, _) = bench();
    let all = Computational::new(ComputationalConfig {
        hosts: 2,
        ..computational_config()
    })
    .unwrap();
    let a = attach(&bench, &all, "a", KeyAccess::All).unwrap();
    let again = attach(&bench, &all, "a", KeyAccess::All).unwrap();
    ok(&a, write_memory(MEMORY, 0, &[1; 4]));
    assert_eq!(ok(&again, read_memory(MEMORY, 0, 4)).data, [1; 4]);
    let _b = attach(&bench, &all, "b", KeyAccess::All).unwrap();
    let full = attach(&bench, &all, "c", KeyAccess::All).err();
    assert_eq!(full, Some(ComputationalError::Hosts(2)));
    drop((a, again));
    let _c = attach(&bench, &all, "c", KeyAccess::All).unwrap();
    let full = attach(&bench, &all, "a", KeyAccess::All).err();
    assert_eq!(full, Some(ComputationalError::Hosts(2)));

    let refused = |edit: fn(&mut ComputationalConfig)| {
        let mut config = computational_config();
        edit(&mut config);
        Computational::new(config).err()
    };
    assert_eq!(
        refused(|config| config.programs_nsid = 0),
        Some(ComputationalError::Nsid(0))
    );
    let broadcast = refused(|config| config.memories.push((BROADCAST_NSID, 4096)));
    assert_eq!(broadcast, Some(ComputationalError::Nsid(BROADCAST_NSID)));
    let twice = refused(|config| config.programs_nsid = MEMORY);
    assert_eq!(twice, Some(ComputationalError::Twice(MEMORY)));
    for bytes in [0, 4095, (1 << 30) + 4096] {
        let all = Computational::new(ComputationalConfig {
            memories: vec![(MEMORY, bytes)],
            ..computational_config()
        });
        assert_eq!(
            all.err(),
            Some(ComputationalError::Size {
                nsid: MEMORY,
                bytes
            })
        );
    }
    let taken = Computational::new(ComputationalConfig::new(1)).unwrap();
    let taken = attach(&bench, &taken, "a", KeyAccess::All).err();
    assert_eq!(taken, Some(ComputationalError::Twice(1)));
}

fn log(page: u8, nsid: u32, offset: u64, len: u32) -> Request {
    let dwords = len / 4 - 1;
    let words = [
        u32::from(page) | dwords << 16,
        dwords >> 16,
        offset as u32,
        (offset >> 32) as u32,
        0,
        0,
    ];
    command(admin::GET_LOG_PAGE, nsid, words, Vec::new(), len)
}

fn identify(cns: u8, csi: u8, nsid: u32) -> Request {
    let words = [cns.into(), u32::from(csi) << 24, 0, 0, 0, 0];
    command(admin::IDENTIFY, nsid, words, Vec::new(), 4096)
}

#[test]
fn what_the_controller_tells() {
    let (_bench, controller) = bench();
    let others: Vec<_> = controller
        .info()
        .other_namespaces
        .iter()
        .map(|o| (o.nsid, o.csi))
        .collect();
    let expected = [
        (MEMORY, csi::MEMORY),
        (MORE_MEMORY, csi::MEMORY),
        (PROGRAMS, csi::PROGRAMS),
    ];
    assert_eq!(others, expected);
    let data = ok(
        &controller,
        identify(cns::NAMESPACE_OF_SET, csi::PROGRAMS, PROGRAMS),
    )
    .data;
    assert_eq!(data.len(), 4096);
    assert_eq!(
        data[..17],
        [16, 0, 64, 0, 2, 0, 64, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    let forms = request::CONVERTS | request::LEAVES_OUT;
    assert_eq!(data[request::FORMS_BYTE], forms);
    let data = ok(
        &controller,
        identify(cns::NAMESPACE_OF_SET, csi::MEMORY, MORE_MEMORY),
    )
    .data;
    assert_eq!(data[..12], [0, 16, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]);
    for csi in [csi::MEMORY, csi::PROGRAMS] {
        assert_eq!(
            ok(&controller, identify(cns::CONTROLLER_OF_SET, csi, 0)).data,
            vec![0; 4096]
        );
    }
    for (csi, nsid) in [
        (csi::MEMORY, PROGRAMS),
        (csi::PROGRAMS, MEMORY),
        (csi::MEMORY, 1),
        (2, MEMORY),
    ] {
        let response = block_on(controller.admin(identify(cns::NAMESPACE_OF_SET, csi, nsid)));
        assert!(!response.cqe.status().is_success());
    }

    ok(&controller, load(1, 0, &table_5()));
    ok(&controller, load(2, 5, &table_5()));
    ok(&controller, activate(2, true));
    let page = ok(&controller, log(log_page::PROGRAMS, PROGRAMS, 0, 64 * 17)).data;
    assert_eq!(page[..2], 16u16.to_le_bytes());
    assert_eq!(page[64..128], [0; 64]);
    assert_eq!(
        page[128..144],
        [0b0000_1001, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        page[192..208],
        [0b0000_1101, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]
    );
    assert!(page[208..].iter().all(|byte| *byte == 0));
    let part = ok(
        &controller,
        log(log_page::PROGRAMS, BROADCAST_NSID, 192, 16),
    )
    .data;
    assert_eq!(part, page[192..208]);
    let types = ok(&controller, log(log_page::PROGRAM_TYPES, PROGRAMS, 0, 256)).data;
    assert_eq!((types[0], types[64], types.len()), (1, PROGRAM_TYPE, 256));
    let status = |request| block_on(controller.admin(request)).cqe.status();
    for (offset, len) in [(2, 16), (64 * 17 + 4, 4), (u64::MAX - 3, 4), (0, 64 << 10)] {
        let request = log(log_page::PROGRAMS, PROGRAMS, offset, len);
        assert_eq!(status(request), Status::INVALID_FIELD);
    }
    assert_eq!(
        status(log(log_page::PROGRAMS, MEMORY, 0, 64)),
        Status::INVALID_LOG_PAGE
    );
    assert_eq!(status(log(0x85, PROGRAMS, 0, 64)), Status::INVALID_LOG_PAGE);
    // What is not its own goes on.
    let foreign = command(0xC1, PROGRAMS, [0; 6], Vec::new(), 0);
    assert_eq!(status(foreign), Status::INVALID_OPCODE);
    assert!(block_on(read_blocks(&controller, 1, 0, 1)).is_ok());
}

#[test]
fn blocks_are_copied_as_the_host_would_read_them() {
    let (bench, _) = bench();
    let all = Computational::new(computational_config()).unwrap();
    let only = KeyAccess::Only([0].into());
    let controller = attach(&bench, &all, "host", only).unwrap();
    bench.write_plain(FREE_LBA, &[1; BLOCK]);
    bench.write_plain(FREE_LBA + 1, &[2; BLOCK]);
    bench.write_sample(X_LBA, X, &message(3));
    let blocks = 3 * BLOCK as u64;
    // Numbers of blocks are 0-based.
    ok(
        &controller,
        copy(
            MEMORY,
            64,
            blocks,
            2,
            &[(1, FREE_LBA + 1, 0), (1, FREE_LBA, 1)],
        ),
    );
    let read = ok(&controller, read_memory(MEMORY, 0, 128 + blocks as u32)).data;
    let expected = [
        &[0; 64][..],
        &[2; BLOCK],
        &[1; BLOCK],
        &[2; BLOCK],
        &[0; 64],
    ]
    .concat();
    assert!(read == expected);
    // A sample behind metadata that the host writes is what a program takes.
    let x = message(3);
    let blocks = x.len().div_ceil(BLOCK) as u32;
    ok(
        &controller,
        write_memory(MEMORY, AT[0], &sc(vr(X), &x).to_bytes()),
    );
    let len = u64::from(blocks) * BLOCK as u64;
    ok(
        &controller,
        copy(MEMORY, AT[0] + 64, len, 2, &[(1, X_LBA, blocks - 1)]),
    );
    ok(
        &controller,
        write_memory(MEMORY, AT[0] + u64::from(RECORD), &[0; 64]),
    );
    let stored = ok(&controller, read_memory(MEMORY, AT[0], RECORD)).data;
    assert!(stored == plain_record(X, 3));

    for (total, sources) in [
        (1024, &[(1, FREE_LBA, 0)][..]),
        (512, &[(1, FREE_LBA, 1)]),
        (510, &[(1, FREE_LBA, 0)]),
        (65536, &[(1, FREE_LBA, 127)]),
    ] {
        assert_eq!(
            fail(&controller, copy(MEMORY, 0, total, 2, sources)),
            Status::INVALID_FIELD
        );
    }
    let beyond = fail(
        &controller,
        copy(MEMORY, u64::from(MEMORY_BYTES), 512, 2, &[(1, FREE_LBA, 0)]),
    );
    assert_eq!(beyond, Status::INVALID_FIELD);
    for nsid in [0, 9, PROGRAMS, MEMORY] {
        let foreign = copy(MEMORY, 0, 512, 2, &[(nsid, 0, 0)]);
        assert_eq!(fail(&controller, foreign), Status::INVALID_NAMESPACE);
    }
    let status = |request| block_on(controller.submit(request)).cqe.status();
    let outside = copy(MEMORY, 0, 512, 2, &[(1, u64::MAX, 0)]);
    assert_eq!(status(outside), Status::LBA_OUT_OF_RANGE);
    // Of a key id that is not the host's.
    bench.write_object(FREE_LBA + 8, sc(vr("cor:7:1"), &x), &x);
    let denied = copy(MEMORY, 0, 512, 2, &[(1, FREE_LBA + 8, 0)]);
    assert_eq!(status(denied), Status::ACCESS_DENIED);
    let read = ok(&controller, read_memory(MEMORY, 0, 64)).data;
    assert_eq!(read, [0; 64]);
}

#[test]
fn memory_commands_that_are_refused() {
    let (_bench, controller) = bench();
    let size = u64::from(MEMORY_BYTES);
    let invalid = Status::INVALID_FIELD;
    for (start, len) in [
        (2, 4),
        (0, 2),
        (size, 4),
        (size - 4, 8),
        (u64::MAX - 3, 4),
        (u64::MAX - 3, 8),
    ] {
        assert_eq!(fail(&controller, read_memory(MEMORY, start, len)), invalid);
        assert_eq!(
            fail(
                &controller,
                write_memory(MEMORY, start, &vec![1; len as usize])
            ),
            invalid
        );
        let fill = on_memory(opcode::FILL, MEMORY, start, len, Vec::new());
        assert_eq!(fail(&controller, fill), invalid);
        let source = copy(MEMORY, 0, len.into(), 4, &[(MORE_MEMORY, start, len)]);
        assert_eq!(fail(&controller, source), invalid);
        let to = copy(MEMORY, start, len.into(), 4, &[(MORE_MEMORY, 0, len)]);
        assert_eq!(fail(&controller, to), invalid);
    }
    // More than a command moves.
    assert_eq!(fail(&controller, read_memory(MEMORY, 0, 32772)), invalid);
    assert_eq!(
        fail(&controller, write_memory(MEMORY, 0, &[0; 32772])),
        invalid
    );
    let more = vec![(MEMORY, 0, MEMORY_BYTES); 2];
    assert_eq!(
        fail(&controller, copy(MEMORY, 0, 2 * size, 4, &more)),
        invalid
    );
    assert_eq!(
        fail(&controller, copy(MEMORY, 0, 8, 4, &[(MEMORY, 0, 4)])),
        invalid
    );
    assert_eq!(
        fail(&controller, copy(MEMORY, 0, 4, 3, &[(MEMORY, 0, 4)])),
        invalid
    );
    let foreign = copy(MEMORY, 0, 4, 4, &[(1, 0, 4)]);
    assert_eq!(fail(&controller, foreign), Status::INVALID_NAMESPACE);
    let length = Status::DATA_SGL_LENGTH_INVALID;
    assert_eq!(
        fail(
            &controller,
            on_memory(opcode::WRITE, MEMORY, 0, 8, vec![1; 4])
        ),
        length
    );
    assert_eq!(
        fail(
            &controller,
            on_memory(opcode::READ, MEMORY, 0, 8, vec![1; 8])
        ),
        length
    );
    assert_eq!(
        fail(
            &controller,
            on_memory(opcode::FILL, MEMORY, 0, 8, vec![1; 8])
        ),
        length
    );
    let mut cut = copy(MEMORY, 0, 4, 4, &[(MEMORY, 0, 4)]);
    cut.data.pop();
    assert_eq!(fail(&controller, cut), length);
    let unknown = on_memory(0x20, MEMORY, 0, 4, Vec::new());
    assert_eq!(fail(&controller, unknown), Status::INVALID_OPCODE);
    let mut metadata = read_memory(MEMORY, 0, 4);
    metadata.metadata = vec![0; 64];
    assert_eq!(
        fail(&controller, metadata),
        Status::METADATA_SGL_LENGTH_INVALID
    );
    let mut fused = read_memory(MEMORY, 0, 4);
    fused.sqe.flags = 1;
    assert_eq!(fail(&controller, fused), invalid);
    let read = ok(&controller, read_memory(MEMORY, 0, 32768)).data;
    assert!(read.iter().all(|byte| *byte == 0));
}

#[derive(Clone, Debug)]
enum Step {
    Write(bool, u64, Vec<u8>),
    Read(bool, u64, u32),
    Fill(bool, u64, u32),
    Copy(bool, u64, Vec<(bool, u64, u32)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Some beyond the end, some not aligned.
    let place = || prop_oneof![8 => (0..1100u64).prop_map(|n| n * 4), 1 => 0..4400u64];
    let len = || prop_oneof![8 => (0..300u32).prop_map(|n| n * 4), 1 => 0..1200u32];
    let source = (any::<bool>(), place(), len());
    let step = prop_oneof![
        (any::<bool>(), place(), len(), any::<u8>()).prop_map(|(which, at, len, seed)| {
            let bytes = (0..len).map(|n| (n as u8).wrapping_mul(7) ^ seed).collect();
            Step::Write(which, at, bytes)
        }),
        (any::<bool>(), place(), len()).prop_map(|(which, at, len)| Step::Read(which, at, len)),
        (any::<bool>(), place(), len()).prop_map(|(which, at, len)| Step::Fill(which, at, len)),
        (any::<bool>(), place(), prop::collection::vec(source, 1..4))
            .prop_map(|(which, at, sources)| Step::Copy(which, at, sources)),
    ];
    prop::collection::vec(step, 1..40)
}

/// The bytes of a model that a command is for, if it may have them.
fn span(model: &[u8], at: u64, len: u64) -> Option<std::ops::Range<usize>> {
    let aligned = at.is_multiple_of(4) && len.is_multiple_of(4);
    (aligned && at + len <= model.len() as u64).then_some(at as usize..(at + len) as usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Memory is bytes: every command does to it what it does to two arrays.
    #[test]
    fn memory_is_an_array(steps in steps()) {
        let bench = Bench::new(SECOND_HALF);
        let all = Computational::new(ComputationalConfig {
            memories: vec![(MEMORY, 4096), (MORE_MEMORY, 4096)],
            ..computational_config()
        })
        .unwrap();
        let controller = attach(&bench, &all, "host", KeyAccess::All).unwrap();
        let mut model = [vec![0u8; 4096], vec![0u8; 4096]];
        let nsid = |which: bool| if which { MORE_MEMORY } else { MEMORY };
        for step in steps {
            let (request, fits) = match &step {
                Step::Write(which, at, bytes) => {
                    let memory = &mut model[usize::from(*which)];
                    let range = span(memory, *at, bytes.len() as u64);
                    if let Some(range) = range.clone() {
                        memory[range].copy_from_slice(bytes);
                    }
                    (write_memory(nsid(*which), *at, bytes), range.is_some())
                }
                Step::Read(which, at, len) => {
                    let range = span(&model[usize::from(*which)], *at, u64::from(*len));
                    (read_memory(nsid(*which), *at, *len), range.is_some())
                }
                Step::Fill(which, at, len) => {
                    let memory = &mut model[usize::from(*which)];
                    let range = span(memory, *at, u64::from(*len));
                    if let Some(range) = range.clone() {
                        memory[range].fill(0);
                    }
                    (on_memory(opcode::FILL, nsid(*which), *at, *len, Vec::new()), range.is_some())
                }
                Step::Copy(which, at, sources) => {
                    let total = sources.iter().map(|(_, _, len)| u64::from(*len)).sum();
                    let ranges: Vec<_> = sources.iter().map(|(w, at, len)| (nsid(*w), *at, *len)).collect();
                    let request = copy(nsid(*which), *at, total, 4, &ranges);
                    let bytes: Option<Vec<Vec<u8>>> = sources
                        .iter()
                        .map(|(which, at, len)| {
                            let memory = &model[usize::from(*which)];
                            span(memory, *at, u64::from(*len)).map(|range| memory[range].to_vec())
                        })
                        .collect();
                    let to = span(&model[usize::from(*which)], *at, total);
                    match (bytes, to) {
                        (Some(bytes), Some(to)) => {
                            model[usize::from(*which)][to].copy_from_slice(&bytes.concat());
                            (request, true)
                        }
                        _ => (request, false),
                    }
                }
            };
            let response = block_on(controller.submit(request));
            prop_assert_eq!(response.cqe.status().is_success(), fits, "{:?}", step);
            if let (Step::Read(which, at, len), true) = (&step, fits) {
                let range = *at as usize..*at as usize + *len as usize;
                prop_assert!(response.data == model[usize::from(*which)][range]);
            }
        }
        for which in [false, true] {
            let read = ok(&controller, read_memory(nsid(which), 0, 4096)).data;
            prop_assert!(read == model[usize::from(which)]);
        }
    }

    /// Whatever a host sends, the answer is a status.
    #[test]
    fn any_command_is_answered(
        opcode in prop_oneof![0..6u8, 0x85..0x8Au8, any::<u8>()],
        is_admin: bool,
        nsid in prop_oneof![Just(PROGRAMS), Just(MEMORY), any::<u32>()],
        words in prop::array::uniform6(prop_oneof![0..5u32, any::<u32>()]),
        low in prop::array::uniform2(prop_oneof![0..5u32, any::<u32>()]),
        data in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..200),
    ) {
        static BENCH: std::sync::OnceLock<(Bench, ComputationalController)> = std::sync::OnceLock::new();
        let (_bench, controller) = BENCH.get_or_init(|| {
            let (bench, controller) = bench();
            prepare(&controller, &plain_record(X, 1), &plain_record(Y, 1));
            (bench, controller)
        });
        let mut request = command(opcode, nsid, words, data, 0);
        [request.sqe.cdw2, request.sqe.cdw3] = low.map(Into::into);
        let response = match is_admin {
            true => block_on(controller.admin(request)),
            false => block_on(controller.submit(request)),
        };
        prop_assert_eq!(response.cqe.cid.get(), CID);
        prop_assert_ne!(response.cqe.status(), Status::INTERNAL_ERROR);
    }
}

/// Holds bootstraps up until it is opened or the run is cancelled.
struct Gate {
    closed: AtomicBool,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        let _locked = self.lock.lock().unwrap();
        self.closed.store(false, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn pass(&self, requester: Requester<'_>) -> Result<(), BackendError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut locked = self.lock.lock().unwrap();
        while self.closed.load(Ordering::SeqCst) {
            if requester.cancel.is_cancelled() {
                return Err(BackendError::Cancelled);
            }
            let poll = std::time::Duration::from_millis(1);
            (locked, _) = self.changed.wait_timeout(locked, poll).unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_program_that_runs_can_be_aborted_and_holds_nobody_up() {
    let gate = Arc::new(Gate {
        closed: AtomicBool::new(true),
        waiting: AtomicUsize::new(0),
        lock: Mutex::default(),
        changed: Condvar::new(),
    });
    let gated = Arc::clone(&gate);
    let backend = InterceptedBackend::new(move |requester: Requester<'_>, bootstrap| {
        gated.pass(requester)?;
        bootstrap()
    });
    let bench = Bench::with(SECOND_HALF, |config| config.backend = Arc::new(backend));
    bench.upload_keys();
    bench.write_object(TV_LBA, sc(bench.tv, &bench.test_vector), &bench.test_vector);
    let all = Computational::new(computational_config()).unwrap();
    let controller = attach(&bench, &all, "host", KeyAccess::All).unwrap();
    let set = prepare(&controller, &plain_record(X, 5), &plain_record(Y, 2));
    let abort = CancelToken::new();
    let aborted = controller.submit_abortable(execute(3, set, 0b011, 3), abort.clone());
    let other = controller.submit(execute(3, set, 0b011, 3));
    // Both run, side by side.
    wait_until(|| gate.waiting.load(Ordering::SeqCst) == 2);
    assert_eq!(fail(&controller, activate(3, false)), PROGRAM_IN_USE);
    assert_eq!(fail(&controller, unload(3)), PROGRAM_IN_USE);
    abort.cancel();
    assert_eq!(block_on(aborted).cqe.status(), Status::ABORT_REQUESTED);
    let memory = ok(&controller, read_memory(MEMORY, AT[2], RECORD)).data;
    assert!(memory.iter().all(|byte| *byte == 0));
    // What changes now is not what the other took.
    ok(
        &controller,
        write_memory(MEMORY, AT[0], &plain_record(X, 7)),
    );
    ok(&controller, delete(set));
    gate.open();
    assert!(block_on(other).cqe.status().is_success());
    assert_eq!(
        decode_sample(&TINY, &result_at(&controller, AT[2]).1, 4),
        10
    );
    // The thread of the run may give the program back a moment after the completion.
    wait_until(|| {
        block_on(controller.admin(activate(3, false)))
            .cqe
            .status()
            .is_success()
    });
    ok(&controller, unload(3));

    let asked = CancelToken::new();
    asked.cancel();
    ok(&controller, load(3, 0, &table_5()));
    ok(&controller, activate(3, true));
    let ended = block_on(controller.submit_abortable(execute(3, 0, 0, 0), asked));
    assert_eq!(ended.cqe.status(), Status::ABORT_REQUESTED);
    bench.drive.shutdown().unwrap();
    for request in [execute(3, 0, 0, 0), read_memory(MEMORY, 0, 4), unload(3)] {
        let status = block_on(submit_to(&controller, request)).cqe.status();
        assert_eq!(status, Status::ABORTED_SQ_DELETION);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tcp_all_of_it_is_there() {
    const NQN: &str = "nqn.2024-01.io.example:drive";
    let (bench, inside) = bench();
    let behind = Arc::new(inside);
    let storage = Arc::clone(&behind);
    let subsystem = Subsystem {
        nqn: NQN.into(),
        storage: Arc::new(move |_: &str| Ok(Arc::clone(&storage) as Arc<dyn Controller>)),
        hosts: Hosts::Any,
    };
    let target = Target::new(vec![subsystem], Limits::default(), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: Address = format!("nvme+tcp://{}/{NQN}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let server = tokio::spawn(serve(listener, target, 16, std::future::pending()));
    let options = ConnectOptions::new("nqn.2024-01.io.example:host", [9; 16]);
    let controller = tcp::connect(&address, &options).await.unwrap();
    let sorted = |controller: &dyn Controller| {
        let mut others: Vec<OtherNamespace> = controller.info().other_namespaces.clone();
        others.sort_by_key(|other| other.nsid);
        others
    };
    assert_eq!(sorted(&controller), sorted(&*behind));
    assert_eq!(sorted(&controller).len(), 3);
    let data = succeed(
        &controller,
        identify(cns::NAMESPACE_OF_SET, csi::PROGRAMS, PROGRAMS),
    )
    .await;
    assert_eq!(data.data[..4], [16, 0, 64, 0]);
    let data = succeed(
        &controller,
        identify(cns::CONTROLLER_OF_SET, csi::MEMORY, 0),
    )
    .await;
    assert_eq!(data.data, vec![0; 4096]);

    succeed(
        &controller,
        write_memory(MEMORY, AT[0], &plain_record(X, 5)),
    )
    .await;
    succeed(
        &controller,
        write_memory(MEMORY, AT[1], &plain_record(Y, 2)),
    )
    .await;
    succeed(&controller, load(3, 0, &table_5())).await;
    succeed(&controller, activate(3, true)).await;
    let ranges = AT.map(|start| (MEMORY, start, RECORD));
    let set = succeed(&controller, create(&ranges)).await.cqe.dw0.get() as u16;
    let done = succeed(&controller, execute(3, set, 0b011, 3)).await;
    assert_eq!(done.cqe.dw0.get(), Effect::Computed as u32);
    let read = succeed(&controller, read_memory(MEMORY, AT[2], RECORD))
        .await
        .data;
    assert_eq!(decode_sample(&TINY, &read[64..], 4), 10);
    assert!(read == ok(&behind, read_memory(MEMORY, AT[2], RECORD)).data);
    let fill = on_memory(opcode::FILL, MEMORY, AT[2], RECORD, Vec::new());
    succeed(&controller, fill).await;
    let sources = [(MEMORY, AT[0], RECORD), (MEMORY, AT[1], RECORD)];
    let total = 2 * u64::from(RECORD);
    succeed(&controller, copy(MEMORY, AT[2], total, 4, &sources)).await;
    let read = succeed(&controller, read_memory(MEMORY, AT[2], total as u32))
        .await
        .data;
    assert!(read == [plain_record(X, 5), plain_record(Y, 2)].concat());
    let mut own = execute(3, 0, 0b11, 2);
    own.data = descriptors(&ranges[..2]);
    own.sqe.cdw3 = 2.into();
    own.sqe.mptr = 64.into();
    succeed(&controller, own).await;

    let page = succeed(&controller, log(log_page::PROGRAMS, PROGRAMS, 64 * 4, 64))
        .await
        .data;
    assert_eq!(page[..2], [0b0000_1101, PROGRAM_TYPE]);
    let supported = succeed(&controller, log(log_page::SUPPORTED, 0, 0, 1024))
        .await
        .data;
    for id in [
        log_page::PROGRAMS,
        log_page::PROGRAM_TYPES,
        log_page::MEMORY_RANGE_SETS,
    ] {
        assert_eq!(supported[usize::from(id) * 4], 1);
    }
    let unknown = submit_to(&controller, log(0x90, PROGRAMS, 0, 64)).await;
    assert_eq!(unknown.cqe.status(), Status::INVALID_LOG_PAGE);
    // Failures keep their status and their reason.
    let refused = submit_to(&controller, activate(9, true)).await;
    assert_eq!(refused.cqe.status(), NO_PROGRAM);
    let reasons = controller.reasons().await.unwrap();
    assert!(reasons[0].2.contains("program index 9"), "{reasons:?}");
    // The plain namespace beside them.
    assert!(read_blocks(&controller, 1, FREE_LBA, 1).await.is_ok());
    // A host without room for what it asks for.
    let mut short = read_memory(MEMORY, 0, 64);
    short.sqe.dptr = Sgl::Transport { length: 32 }.to_bytes();
    let response = submit_to(&controller, short).await;
    assert_eq!(response.cqe.status(), Status::DATA_SGL_LENGTH_INVALID);
    drop(bench);
    server.abort();
}

#[test]
fn names_of_programs_are_their_key_ids() {
    // What the tests load as key id 5 is what the drive calls prg:5:0.
    assert_eq!(VrNumber::program(5).unwrap().to_u64(), 5 << 32);
}
