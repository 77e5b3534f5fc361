//! The helpers over a [`Controller`], and the memory controller that tests build on.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use futures::executor::block_on;
use proptest::prelude::*;
use toroid_nvme::testing::RamController;
use toroid_nvme::*;
use zerocopy::IntoBytes;

const BLOCK: usize = 512;

fn namespace(metadata: u16) -> Namespace {
    Namespace::new(1, BLOCK as u32, 4096, metadata).unwrap()
}

fn info(mdts_bytes: u32, metadata: u16) -> ControllerInfo {
    ControllerInfo {
        mdts_bytes,
        volatile_write_cache: true,
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
        namespaces: vec![namespace(metadata)],
        other_namespaces: Vec::new(),
        vendor_statuses: &[VendorStatus {
            sc: 0xC1,
            meaning: "the widget is missing",
        }],
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ seed).collect()
}

fn submit(controller: &RamController, sqe: Sqe, data: Vec<u8>, metadata: Vec<u8>) -> Response {
    block_on(controller.submit(Request {
        sqe,
        data,
        metadata,
    }))
}

#[test]
fn transfers_are_split_at_the_limit() {
    let controller = RamController::with_info(info(8192, 64));
    let data = pattern(40 * BLOCK, 1);
    let metadata = pattern(40 * 64, 2);
    block_on(write_blocks(&controller, 1, 100, &data, &metadata, false)).unwrap();
    let read = block_on(read_blocks(&controller, 1, 100, 40)).unwrap();
    assert_eq!((read.data, read.metadata), (data, metadata));
    let ranges: Vec<_> = controller
        .submitted()
        .iter()
        .map(|sqe| match Command::parse(sqe) {
            Ok(Command::Read(io) | Command::Write(io)) => (io.slba, io.blocks),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ranges[..3], [(100, 16), (116, 16), (132, 8)]);
    assert_eq!(ranges[3..], ranges[..3]);
}

#[test]
fn unwritten_blocks_read_as_zero_and_metadata_defaults_to_zero() {
    let controller = RamController::new(namespace(64));
    let read = block_on(read_blocks(&controller, 1, 0, 3)).unwrap();
    assert_eq!(read.data, vec![0; 3 * BLOCK]);
    block_on(write_blocks(
        &controller,
        1,
        0,
        &[1; BLOCK],
        &[9; 64],
        false,
    ))
    .unwrap();
    block_on(write_blocks(&controller, 1, 0, &[2; BLOCK], &[], false)).unwrap();
    assert_eq!(
        block_on(read_blocks(&controller, 1, 0, 1))
            .unwrap()
            .metadata,
        [0; 64]
    );
}

#[test]
fn lengths_and_ranges_are_checked() {
    let controller = RamController::new(namespace(64));
    let write = |slba, data: &[u8], metadata: &[u8]| {
        block_on(write_blocks(&controller, 1, slba, data, metadata, false)).unwrap_err()
    };
    assert!(matches!(
        write(0, &[0; 511], &[]),
        NvmeError::BufferLength { buffer: "data", .. }
    ));
    assert!(matches!(
        write(0, &[0; 512], &[0; 63]),
        NvmeError::BufferLength {
            buffer: "metadata",
            ..
        }
    ));
    assert!(matches!(
        write(4096, &[0; 512], &[]),
        NvmeError::OutOfRange { .. }
    ));
    assert!(matches!(
        block_on(read_blocks(&controller, 1, u64::MAX, 2)),
        Err(NvmeError::OutOfRange { .. })
    ));
    assert_eq!(
        block_on(read_blocks(&controller, 2, 0, 1)),
        Err(NvmeError::UnknownNamespace { nsid: 2 })
    );
    assert!(controller.submitted().is_empty());
}

#[test]
fn a_controller_checks_requests() {
    let controller = RamController::with_info(info(8192, 64));
    let status = |sqe, data: usize, metadata: usize| {
        let cqe = submit(&controller, sqe, vec![0; data], vec![0; metadata]).cqe;
        assert_eq!(cqe.cid.get(), 77);
        assert_eq!(cqe.do_not_retry(), !cqe.status().is_success());
        cqe.status()
    };
    assert_eq!(status(Sqe::write(77, 1, 0, 1), 1024, 128), Status::SUCCESS);
    assert_eq!(
        status(Sqe::write(77, 1, 0, 1), 1023, 128),
        Status::DATA_SGL_LENGTH_INVALID
    );
    assert_eq!(
        status(Sqe::write(77, 1, 0, 1), 1024, 0),
        Status::METADATA_SGL_LENGTH_INVALID
    );
    assert_eq!(
        status(Sqe::read(77, 1, 0, 0), 512, 0),
        Status::DATA_SGL_LENGTH_INVALID
    );
    assert_eq!(
        status(Sqe::read(77, 1, 4095, 1), 0, 0),
        Status::LBA_OUT_OF_RANGE
    );
    assert_eq!(
        status(Sqe::read(77, 1, u64::MAX, 0), 0, 0),
        Status::LBA_OUT_OF_RANGE
    );
    assert_eq!(status(Sqe::read(77, 1, 0, 15), 0, 0), Status::SUCCESS);
    assert_eq!(status(Sqe::read(77, 1, 0, 16), 0, 0), Status::INVALID_FIELD);
    assert_eq!(
        status(Sqe::read(77, 9, 0, 0), 0, 0),
        Status::INVALID_NAMESPACE
    );
    assert_eq!(
        status(Sqe::flush(77, BROADCAST_NSID), 0, 0),
        Status::SUCCESS
    );
    assert_eq!(status(Sqe::flush(77, 9), 0, 0), Status::INVALID_NAMESPACE);
    assert_eq!(
        status(Sqe::flush(77, 1), 1, 0),
        Status::DATA_SGL_LENGTH_INVALID
    );
    assert_eq!(
        status(Sqe::write_zeroes(77, 1, 0, 4095), 0, 0),
        Status::SUCCESS
    );
    assert_eq!(
        status(Sqe::write_zeroes(77, 1, 1, 4095), 0, 0),
        Status::LBA_OUT_OF_RANGE
    );
    let mut unknown = Sqe::read(77, 1, 0, 0);
    unknown.opcode = 0x55;
    assert_eq!(status(unknown, 0, 0), Status::INVALID_OPCODE);
}

#[test]
fn compare_zeroes_and_deallocate() {
    let controller = RamController::new(namespace(64));
    let (data, metadata) = (pattern(4 * BLOCK, 3), pattern(4 * 64, 4));
    block_on(write_blocks(&controller, 1, 10, &data, &metadata, false)).unwrap();
    let compare = |metadata: &[u8]| {
        let sqe = Sqe::compare(5, 1, 10, 3);
        submit(&controller, sqe, data.clone(), metadata.to_vec())
            .cqe
            .status()
    };
    assert_eq!(compare(&metadata), Status::SUCCESS);
    let mut other = metadata.clone();
    other[255] ^= 1;
    assert_eq!(compare(&other), Status::COMPARE_FAILURE);

    block_on(write_zeroes(&controller, 1, 11, 1)).unwrap();
    let ranges = [(12u64, 1u32), (13, 4000)].map(|(slba, blocks)| DsmRange {
        attributes: 0.into(),
        blocks: blocks.into(),
        slba: slba.into(),
    });
    let bytes = ranges.as_bytes().to_vec();
    let response = submit(&controller, Sqe::deallocate(6, 1, 1), bytes, vec![]);
    assert!(response.cqe.status().is_success());
    let read = block_on(read_blocks(&controller, 1, 10, 4)).unwrap();
    assert_eq!(read.data[..BLOCK], data[..BLOCK]);
    assert_eq!(read.metadata[..64], metadata[..64]);
    assert!(read.data[BLOCK..].iter().all(|&b| b == 0));
    assert!(read.metadata[64..].iter().all(|&b| b == 0));

    let outside = DsmRange {
        blocks: 1.into(),
        slba: 4096.into(),
        ..DsmRange::default()
    };
    let response = submit(
        &controller,
        Sqe::deallocate(6, 1, 0),
        outside.as_bytes().to_vec(),
        vec![],
    );
    assert_eq!(response.cqe.status(), Status::LBA_OUT_OF_RANGE);
}

#[test]
fn a_crash_loses_what_was_not_flushed() {
    let controller = RamController::new(namespace(0));
    let write = |lba, byte, fua| {
        block_on(write_blocks(&controller, 1, lba, &[byte; BLOCK], &[], fua)).unwrap()
    };
    let byte = |lba| block_on(read_blocks(&controller, 1, lba, 1)).unwrap().data[0];
    write(0, 1, false);
    write(1, 1, false);
    block_on(flush(&controller, 1)).unwrap();
    write(0, 2, false);
    write(1, 2, true);
    write(2, 2, false);
    assert_eq!([byte(0), byte(1), byte(2)], [2, 2, 2]);
    assert_eq!(controller.unflushed_blocks(), 2);
    controller.crash();
    assert_eq!([byte(0), byte(1), byte(2)], [1, 2, 0]);

    write(0, 3, false);
    write(0, 4, false);
    write(1, 3, false);
    write(2, 3, false);
    controller.crash_with(|_, lba, versions| {
        assert_eq!(versions, if lba == 0 { 2 } else { 1 });
        usize::from(lba != 1)
    });
    assert_eq!([byte(0), byte(1), byte(2)], [3, 2, 3]);
}

#[test]
fn faults_hit_the_command_asked_for_and_change_nothing() {
    let controller = RamController::with_info(info(8192, 0));
    let write = |byte| block_on(write_blocks(&controller, 1, 0, &[byte; BLOCK], &[], true));
    controller.fail_nth(2, Status::WRITE_FAULT);
    write(1).unwrap();
    let error = write(2).unwrap_err();
    assert_eq!(error.status(), Some(Status::WRITE_FAULT));
    assert_eq!(
        error.to_string(),
        "Write of 1 block at LBA 0 of namespace 1 failed: Write Fault (2h/80h)"
    );
    assert_eq!(
        block_on(read_blocks(&controller, 1, 0, 1)).unwrap().data[0],
        1
    );
    write(3).unwrap();
    controller.fail_from(1, u64::MAX, Status::vendor(0xC1));
    for _ in 0..3 {
        assert_eq!(
            write(4).unwrap_err().to_string(),
            "Write of 1 block at LBA 0 of namespace 1 failed: the widget is missing (7h/C1h)"
        );
    }
    controller.clear_faults();
    assert_eq!(
        block_on(read_blocks(&controller, 1, 0, 1)).unwrap().data[0],
        3
    );
}

#[test]
fn a_failed_part_stops_the_rest() {
    let controller = RamController::with_info(info(8192, 0));
    controller.fail_nth(2, Status::INTERNAL_ERROR);
    let error = block_on(write_blocks(
        &controller,
        1,
        0,
        &[1; 48 * BLOCK],
        &[],
        false,
    ))
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Write of 16 blocks at LBA 16")
    );
    assert_eq!(controller.submitted().len(), 2);
}

#[test]
fn controllers_are_shared_between_threads() {
    let controller: Arc<dyn Controller> = Arc::new(RamController::new(namespace(0)));
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let controller = &controller;
            scope.spawn(move || {
                for i in 0..50 {
                    let lba = u64::from(thread) * 50 + i;
                    let data = [thread + 1; BLOCK];
                    block_on(write_blocks(controller, 1, lba, &data, &[], false)).unwrap();
                }
            });
        }
    });
    for thread in 0..4u8 {
        let read = block_on(read_blocks(&controller, 1, u64::from(thread) * 50, 50)).unwrap();
        assert!(read.data.iter().all(|&byte| byte == thread + 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_an_array(
        operations in proptest::collection::vec((0..5u8, 0..60u64, 1..5u64, any::<u8>()), 1..60),
        power in 0..4u32,
    ) {
        let controller = RamController::with_info(info(8192 << power, 64));
        let (mut live, mut durable) = (vec![0u8; 64], vec![0u8; 64]);
        for (kind, lba, blocks, byte) in operations {
            let range = lba as usize..(lba + blocks) as usize;
            let data = vec![byte; blocks as usize * BLOCK];
            let metadata = vec![byte; blocks as usize * 64];
            match kind {
                0 => {
                    block_on(write_blocks(&controller, 1, lba, &data, &metadata, false)).unwrap();
                    live[range].fill(byte);
                }
                1 => {
                    block_on(write_blocks(&controller, 1, lba, &data, &metadata, true)).unwrap();
                    live[range.clone()].fill(byte);
                    durable[range].fill(byte);
                }
                2 => {
                    block_on(write_zeroes(&controller, 1, lba, blocks)).unwrap();
                    live[range].fill(0);
                }
                3 => {
                    block_on(flush(&controller, 1)).unwrap();
                    durable.clone_from(&live);
                }
                _ => {
                    controller.crash();
                    live.clone_from(&durable);
                }
            }
            let read = block_on(read_blocks(&controller, 1, 0, 64)).unwrap();
            for (lba, &byte) in live.iter().enumerate() {
                prop_assert!(read.data[lba * BLOCK..][..BLOCK].iter().all(|&b| b == byte));
                prop_assert!(read.metadata[lba * 64..][..64].iter().all(|&b| b == byte));
            }
        }
    }
}
