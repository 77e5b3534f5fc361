//! Both SSDs through the same tests, and what is particular to each.

#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;
use toroid_drive::ssd::{Fault, FileSsd, MemSsd, Ssd, SsdError};
use toroid_nvme::Status;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;

fn open(file: &tempfile::NamedTempFile) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(file.path())
        .unwrap()
}

fn file_ssd() -> (tempfile::NamedTempFile, FileSsd) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BLOCKS * BLOCK as u64).unwrap();
    let ssd = FileSsd::new(open(&file), BLOCK as u32, BLOCKS).unwrap();
    (file, ssd)
}

fn with_both(test: impl Fn(&dyn Ssd)) {
    test(&MemSsd::new(BLOCK as u32, BLOCKS));
    let (_file, ssd) = file_ssd();
    test(&ssd);
}

fn block(ssd: &dyn Ssd, lba: u64) -> Vec<u8> {
    let mut buf = vec![0xEE; BLOCK];
    ssd.read(lba, &mut buf).unwrap();
    buf
}

#[test]
fn reads_back_what_was_written() {
    with_both(|ssd| {
        assert_eq!((ssd.block_size(), ssd.blocks()), (512, 64));
        assert_eq!(block(ssd, 63), [0; BLOCK]);
        let data: Vec<u8> = (0..3 * BLOCK).map(|i| (i / 3) as u8).collect();
        for fua in [false, true] {
            ssd.write(61, &data, fua).unwrap();
            ssd.flush().unwrap();
            let mut buf = vec![0; 3 * BLOCK];
            ssd.read(61, &mut buf).unwrap();
            assert_eq!(buf, data);
            ssd.write_zeroes(62, 1).unwrap();
            assert_eq!(block(ssd, 61), data[..BLOCK]);
            assert_eq!(block(ssd, 62), [0; BLOCK]);
            assert_eq!(block(ssd, 63), data[2 * BLOCK..]);
        }
        ssd.write(0, &[], false).unwrap();
        ssd.write_zeroes(64, 0).unwrap();
    });
}

#[test]
fn bounds_and_lengths_are_checked() {
    with_both(|ssd| {
        let mut buf = [0; 2 * BLOCK];
        for lba in [63, 64, u64::MAX, u64::MAX / 512] {
            let error = ssd.read(lba, &mut buf).unwrap_err();
            assert!(matches!(error, SsdError::OutOfRange { .. }), "{lba}");
            assert_eq!(error.status(), Status::LBA_OUT_OF_RANGE);
            assert!(ssd.write(lba, &buf, true).is_err());
        }
        assert!(ssd.write_zeroes(1, 64).is_err());
        assert!(ssd.write_zeroes(1, u64::MAX).is_err());
        assert!(matches!(
            ssd.write(0, &buf[1..], false),
            Err(SsdError::BufferLength { found: 1023, .. })
        ));
        assert!(ssd.read(0, &mut buf[1..]).is_err());
        assert_eq!(block(ssd, 63), [0; BLOCK]);
    });
}

#[test]
fn threads_share_an_ssd() {
    with_both(|ssd| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for lba in (thread..BLOCKS).step_by(4) {
                        ssd.write(lba, &[lba as u8 + 1; BLOCK], lba % 8 == 0)
                            .unwrap();
                    }
                });
            }
        });
        for lba in 0..BLOCKS {
            assert_eq!(block(ssd, lba), [lba as u8 + 1; BLOCK]);
        }
    });
}

#[test]
fn a_file_keeps_its_blocks() {
    let (file, ssd) = file_ssd();
    ssd.write(5, &[7; BLOCK], true).unwrap();
    drop(ssd);
    let ssd = FileSsd::new(open(&file), BLOCK as u32, BLOCKS).unwrap();
    assert_eq!(block(&ssd, 5), [7; BLOCK]);
}

#[test]
fn a_short_file_is_refused_or_fails_to_read() {
    let (file, ssd) = file_ssd();
    assert!(FileSsd::new(open(&file), BLOCK as u32, BLOCKS + 1).is_err());
    assert!(FileSsd::new(open(&file), BLOCK as u32, u64::MAX).is_err());
    assert!(FileSsd::new(open(&file), 0, 0).is_err());
    file.as_file().set_len(1000).unwrap();
    let error = ssd.read(1, &mut [0; BLOCK]).unwrap_err();
    assert!(matches!(error, SsdError::Read { lba: 1, .. }));
    assert_eq!(error.status(), Status::UNRECOVERED_READ_ERROR);
}

#[test]
fn a_file_without_write_permission_fails_to_write() {
    let (file, _) = file_ssd();
    let ssd = FileSsd::new(File::open(file.path()).unwrap(), BLOCK as u32, BLOCKS).unwrap();
    let error = ssd.write(0, &[0; BLOCK], false).unwrap_err();
    assert!(matches!(error, SsdError::Write { .. }));
    assert_eq!(error.status(), Status::WRITE_FAULT);
}

#[test]
fn an_error_at_a_durable_write_poisons_later_flushes() {
    let (file, _) = file_ssd();
    let ssd = FileSsd::new(File::open(file.path()).unwrap(), BLOCK as u32, BLOCKS).unwrap();
    assert!(matches!(
        ssd.write(0, &[0; BLOCK], true),
        Err(SsdError::Write { .. })
    ));
    assert!(matches!(ssd.flush(), Err(SsdError::FlushFailedBefore)));
    assert!(matches!(
        ssd.write(0, &[0; BLOCK], true),
        Err(SsdError::FlushFailedBefore)
    ));
}

#[test]
fn zeroed_blocks_give_their_space_back() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    let ssd = FileSsd::new(open(&file), 4096, 16384).unwrap();
    let space = || file.as_file().metadata().unwrap().blocks() * 512;
    assert!(space() < 1 << 20);
    ssd.write(0, &vec![1; 32 << 20], true).unwrap();
    let full = space();
    assert!(full >= 32 << 20);
    ssd.write_zeroes(0, 8192).unwrap();
    assert_eq!(file.as_file().metadata().unwrap().len(), 64 << 20);
    let mut buf = vec![1; 4096];
    ssd.read(8191, &mut buf).unwrap();
    assert_eq!(buf, [0; 4096]);
    // A file system that cannot punch holes keeps the space.
    if space() != full {
        assert!(space() < 1 << 20);
    }
}

#[test]
fn memory_faults_hit_the_write_asked_for() {
    let ssd = MemSsd::new(BLOCK as u32, BLOCKS);
    ssd.write(0, &[1; 2 * BLOCK], false).unwrap();

    ssd.fail_write(2, Fault::Error);
    ssd.write(2, &[1; BLOCK], false).unwrap();
    let error = ssd.write(0, &[2; 2 * BLOCK], false).unwrap_err();
    assert_eq!(error.status(), Status::WRITE_FAULT);
    assert_eq!(block(&ssd, 0), [1; BLOCK]);

    ssd.fail_write(1, Fault::Torn { bytes: 600 });
    assert!(ssd.write(0, &[3; 2 * BLOCK], false).is_err());
    assert_eq!(block(&ssd, 0), [3; BLOCK]);
    assert_eq!(block(&ssd, 1)[..88], [3; 88]);
    assert_eq!(block(&ssd, 1)[88..], [1; BLOCK - 88]);

    ssd.fail_write(1, Fault::Full { bytes: 0 });
    let error = ssd.write(9, &[3; BLOCK], false).unwrap_err();
    assert!(matches!(error, SsdError::Full { lba: 9, .. }));
    assert_eq!(error.status(), Status::CAPACITY_EXCEEDED);

    ssd.fail_read(2);
    assert_eq!(block(&ssd, 0), [3; BLOCK]);
    assert!(ssd.read(0, &mut [0; BLOCK]).is_err());
    assert_eq!(block(&ssd, 0), [3; BLOCK]);

    ssd.fail_flush();
    assert!(matches!(ssd.flush(), Err(SsdError::Flush { .. })));
    assert!(matches!(ssd.flush(), Err(SsdError::FlushFailedBefore)));
}

#[test]
fn memory_loses_what_was_not_flushed() {
    let ssd = MemSsd::new(BLOCK as u32, BLOCKS);
    ssd.write(0, &[1; 3 * BLOCK], false).unwrap();
    ssd.flush().unwrap();
    ssd.write(0, &[2; BLOCK], false).unwrap();
    ssd.write(1, &[2; BLOCK], true).unwrap();
    ssd.write_zeroes(2, 1).unwrap();
    ssd.write(3, &[2; BLOCK], false).unwrap();
    ssd.power_off();
    assert!(ssd.read(0, &mut [0; BLOCK]).is_err());
    assert!(ssd.write(0, &[0; BLOCK], false).is_err());
    assert!(ssd.flush().is_err());
    ssd.power_on();
    let first_bytes = [0, 1, 2, 3].map(|lba| block(&ssd, lba)[0]);
    assert_eq!(first_bytes, [1, 2, 1, 0]);
    assert_eq!(ssd.allocated_blocks(), 3);

    ssd.fail_write(1, Fault::PowerLoss { bytes: 100 });
    ssd.write(0, &[9; BLOCK], false).unwrap_err();
    ssd.power_on();
    assert_eq!(block(&ssd, 0)[..100], [9; 100]);
    assert_eq!(block(&ssd, 0)[100..], [1; BLOCK - 100]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn file_and_memory_agree(
        operations in proptest::collection::vec((0..4u8, 0..70u64, 0..6usize, any::<u8>()), 1..40),
    ) {
        let memory = MemSsd::new(BLOCK as u32, BLOCKS);
        let (_file, file) = file_ssd();
        for (kind, lba, count, byte) in operations {
            let data = vec![byte; count * BLOCK];
            let results = [&memory as &dyn Ssd, &file].map(|ssd| match kind {
                0 | 1 => ssd.write(lba, &data, kind == 1).is_ok(),
                2 => ssd.write_zeroes(lba, count as u64).is_ok(),
                _ => ssd.flush().is_ok(),
            });
            prop_assert_eq!(results[0], results[1]);
        }
        let contents = [&memory as &dyn Ssd, &file].map(|ssd| {
            let mut all = vec![0; BLOCK * BLOCKS as usize];
            ssd.read(0, &mut all).unwrap();
            all
        });
        prop_assert!(contents[0] == contents[1]);
    }
}
