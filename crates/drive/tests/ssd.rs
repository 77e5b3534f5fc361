//! Every SSD through the same tests, and what is particular to each.

#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use proptest::prelude::*;
use toroid_drive::image::{self, FormatOptions, Image, ImageError};
use toroid_drive::ssd::{
    Fault, FaultySsd, FileSsd, Injection, IoEngine, IoMode, IoOptions, MemSsd, Operation, Ssd,
    SsdError,
};
use toroid_nvme::Status;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;

/// All ways to move the bytes of a file.
const OPTIONS: [IoOptions; 4] = [
    options(IoMode::Buffered, IoEngine::IoUring),
    options(IoMode::Buffered, IoEngine::Threads),
    options(IoMode::Direct, IoEngine::IoUring),
    options(IoMode::Direct, IoEngine::Threads),
];

const fn options(mode: IoMode, engine: IoEngine) -> IoOptions {
    IoOptions { mode, engine }
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// An SSD of `blocks` blocks on what `path` names. None, with a note, where this machine has no such thing: io_uring may be
/// forbidden, and a file system may have no direct I/O, or none in such small units.
fn try_on(path: &Path, block_size: usize, blocks: u64, options: IoOptions) -> Option<FileSsd> {
    match FileSsd::with_options(open(path), block_size as u32, blocks, options) {
        Ok(ssd) => Some(ssd),
        Err(error) => {
            println!("skipped: {options:?} on {}: {error}", path.display());
            None
        }
    }
}

fn file_ssd() -> (tempfile::NamedTempFile, FileSsd) {
    let file = sized_file(BLOCK, BLOCKS);
    let ssd = FileSsd::new(open(file.path()), BLOCK as u32, BLOCKS).unwrap();
    (file, ssd)
}

fn sized_file(block_size: usize, blocks: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes = blocks * block_size as u64;
    file.as_file().set_len(bytes).unwrap();
    file
}

/// A loop device over a file; detached when dropped.
struct Loop {
    device: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    /// None, with a note, where the machine or the user cannot make one.
    fn new(bytes: u64) -> Option<Loop> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file.path())
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Loop {
                device: String::from_utf8(output.stdout).unwrap().trim().into(),
                _file: file,
            }),
            other => {
                println!("skipped: no loop device: {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// A file system in memory that holds 1 MiB; unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// None, with a note, where the user cannot mount.
    fn new() -> Option<Tmpfs> {
        let directory = tempfile::tempdir().unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status();
        if status.is_ok_and(|status| status.success()) {
            return Some(Tmpfs(directory));
        }
        println!("skipped: cannot mount a tmpfs");
        None
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Runs a test on every SSD, each `blocks` zero blocks of `block_size` bytes.
fn on_all(block_size: usize, blocks: u64, test: impl Fn(&str, &dyn Ssd)) {
    test("memory", &MemSsd::new(block_size as u32, blocks));
    let memory = MemSsd::new(block_size as u32, blocks);
    test("no faults", &FaultySsd::new(Arc::new(memory)));
    for options in OPTIONS {
        let file = sized_file(block_size, blocks);
        if let Some(ssd) = try_on(file.path(), block_size, blocks, options) {
            test(&format!("file {options:?}"), &ssd);
        }
        if let Some(device) = Loop::new(blocks * block_size as u64)
            && let Some(ssd) = try_on(&device.device, block_size, blocks, options)
        {
            test(&format!("device {options:?}"), &ssd);
        }
    }
    let file = sized_file(block_size, blocks);
    let ssd = FileSsd::new(open(file.path()), block_size as u32, blocks).unwrap();
    test("file by default", &ssd);
}

fn block(ssd: &dyn Ssd, lba: u64) -> Vec<u8> {
    let mut buf = vec![0xEE; ssd.block_size() as usize];
    ssd.read(lba, &mut buf).unwrap();
    buf
}

/// Submits an operation and waits for its end.
fn ended(ssd: &dyn Ssd, operation: Operation) -> Result<Vec<u8>, SsdError> {
    let (sender, receiver) = channel();
    ssd.submit(
        operation,
        Box::new(move |result| sender.send(result).unwrap()),
    );
    receiver.recv().unwrap()
}

fn submit_read(ssd: &dyn Ssd, lba: u64, bytes: usize) -> Result<Vec<u8>, SsdError> {
    let buf = vec![0xEE; bytes];
    ended(ssd, Operation::Read { lba, buf })
}

fn submit_write(ssd: &dyn Ssd, lba: u64, data: &[u8], fua: bool) -> Result<Vec<u8>, SsdError> {
    let data = data.to_vec();
    ended(ssd, Operation::Write { lba, data, fua })
}

#[test]
fn reads_back_what_was_written() {
    for block_size in [512, 4096] {
        on_all(block_size, BLOCKS, |name, ssd| {
            assert_eq!(ssd.block_size() as usize, block_size);
            assert_eq!(ssd.blocks(), BLOCKS);
            assert_eq!(block(ssd, 63), vec![0; block_size], "{name}");
            let data: Vec<u8> = (0..3 * block_size).map(|i| (i / 3) as u8).collect();
            for fua in [false, true] {
                ssd.write(61, &data, fua).unwrap();
                ssd.flush().unwrap();
                let mut buf = vec![0; 3 * block_size];
                ssd.read(61, &mut buf).unwrap();
                assert!(buf == data, "{name}");
                ssd.write_zeroes(62, 1).unwrap();
                assert_eq!(block(ssd, 61), data[..block_size], "{name}");
                assert_eq!(block(ssd, 62), vec![0; block_size], "{name}");
                assert_eq!(block(ssd, 63), data[2 * block_size..], "{name}");
            }
            ssd.write(0, &[], false).unwrap();
            ssd.write_zeroes(64, 0).unwrap();
        });
    }
}

#[test]
fn submitted_operations_do_what_the_others_do() {
    on_all(BLOCK, BLOCKS, |name, ssd| {
        let data: Vec<u8> = (0..3 * BLOCK).map(|i| (i / 5) as u8).collect();
        for fua in [false, true] {
            assert_eq!(
                submit_read(ssd, 61, BLOCK).unwrap(),
                block(ssd, 61),
                "{name}"
            );
            assert!(submit_write(ssd, 61, &data, fua).unwrap() == data, "{name}");
            assert!(submit_read(ssd, 61, 3 * BLOCK).unwrap() == data, "{name}");
            assert_eq!(block(ssd, 62), data[BLOCK..2 * BLOCK], "{name}");
            assert!(ended(ssd, Operation::Flush).unwrap().is_empty());
            ssd.write_zeroes(60, 4).unwrap();
        }
        assert_eq!(submit_read(ssd, 64, 0).unwrap(), []);
        assert_eq!(submit_write(ssd, 64, &[], false).unwrap(), []);
        assert!(matches!(
            submit_read(ssd, 63, 2 * BLOCK),
            Err(SsdError::OutOfRange { .. })
        ));
        assert!(submit_write(ssd, u64::MAX, &data, false).is_err());
        assert!(matches!(
            submit_write(ssd, 0, &data[1..], true),
            Err(SsdError::BufferLength { .. })
        ));
        ssd.flush().unwrap();
    });
}

#[test]
fn reads_that_need_no_waiting_are_right() {
    on_all(4096, BLOCKS, |name, ssd| {
        let data: Vec<u8> = (0..4 * 4096).map(|i| (i / 7) as u8).collect();
        ssd.write(2, &data, false).unwrap();
        let mut buf = vec![0; data.len()];
        let now = ssd.try_read_now(2, &mut buf).unwrap();
        assert!(!now || buf == data, "{name}");
        // What was just written is in memory; but tmpfs does not say so, and direct reads always wait.
        println!("{name}: {now}");
        assert!(ssd.try_read_now(63, &mut buf).is_err());
        assert!(ssd.try_read_now(0, &mut buf[1..]).is_err());
    });
    let (_file, ssd) = file_ssd();
    ssd.write(0, &[5; BLOCK], false).unwrap();
    let mut buf = [0; BLOCK];
    if ssd.try_read_now(0, &mut buf).unwrap() {
        assert_eq!(buf, [5; BLOCK]);
    }
}

#[test]
fn buffers_may_lie_anywhere_in_memory() {
    on_all(BLOCK, BLOCKS, |name, ssd| {
        let content: Vec<u8> = (0..2 * BLOCK).map(|i| (i % 251) as u8).collect();
        let mut room = vec![0; 2 * BLOCK + 4096];
        for shift in [0, 1, 3, 8, 511, 512, 4095] {
            let data = &mut room[shift..][..2 * BLOCK];
            data.copy_from_slice(&content);
            ssd.write(7, data, shift % 2 == 0).unwrap();
            data.fill(0);
            ssd.read(7, data).unwrap();
            assert!(data == content, "{name}, {shift}");
            ssd.write_zeroes(7, 2).unwrap();
        }
    });
}

/// Far more operations at once than fit into a ring, of all sizes, on blocks of their own.
#[test]
fn many_operations_at_once_all_end_right() {
    on_all(BLOCK, 4096, |name, ssd| {
        let (sender, receiver) = channel();
        let content = |start: u64, count: u64| -> Vec<u8> {
            (start..start + count)
                .flat_map(|lba| [(lba % 255) as u8 + 1; BLOCK])
                .collect()
        };
        let starts: Vec<u64> = (0..4096).step_by(8).collect();
        for &lba in &starts {
            let (sender, data) = (sender.clone(), content(lba, 1 + lba / 8 % 8));
            let fua = lba % 512 == 0;
            ssd.submit(
                Operation::Write { lba, data, fua },
                Box::new(move |result| sender.send((lba, result)).unwrap()),
            );
        }
        for _ in &starts {
            receiver.recv().unwrap().1.unwrap();
        }
        for round in 0..2 {
            for &lba in &starts {
                let sender = sender.clone();
                let buf = vec![0; BLOCK * (1 + lba as usize / 8 % 8)];
                ssd.submit(
                    Operation::Read { lba, buf },
                    Box::new(move |result| sender.send((lba, result)).unwrap()),
                );
            }
            for _ in &starts {
                let (lba, read) = receiver.recv().unwrap();
                assert!(
                    read.unwrap() == content(lba, 1 + lba / 8 % 8),
                    "{name}, {round}"
                );
            }
        }
    });
}

/// Operations that overlap in time and blocks: none fails.
#[test]
fn overlapping_operations_leave_whole_sectors() {
    on_all(4096, 16, |name, ssd| {
        let (sender, receiver) = channel();
        let mut count = 0;
        for i in 0..200u64 {
            let (lba, blocks) = (i * 5 % 13, 1 + i % 3);
            let data = vec![1 + (i % 250) as u8; blocks as usize * 4096];
            let operation = match i % 4 {
                0 => Operation::Read { lba, buf: data },
                1 if i % 40 == 1 => Operation::Flush,
                _ => Operation::Write {
                    lba,
                    data,
                    fua: false,
                },
            };
            let sender = sender.clone();
            ssd.submit(
                operation,
                Box::new(move |result| sender.send(result).unwrap()),
            );
            count += 1;
        }
        for _ in 0..count {
            receiver.recv().unwrap().unwrap();
        }
        for lba in 0..16 {
            // Which of the writes of a block came last is open; that a sector is of one of them is not.
            for sector in block(ssd, lba).chunks(512) {
                let whole = sector.iter().all(|byte| *byte == sector[0]);
                assert!(whole, "{name}, block {lba}");
            }
        }
    });
}

#[test]
fn dropping_an_ssd_waits_for_what_is_under_way() {
    for options in OPTIONS {
        let file = sized_file(4096, 512);
        let Some(ssd) = try_on(file.path(), 4096, 512, options) else {
            continue;
        };
        let (sender, receiver) = channel();
        for lba in 0..512 {
            let (sender, data) = (sender.clone(), vec![lba as u8 | 1; 4096]);
            let write = Operation::Write {
                lba,
                data,
                fua: false,
            };
            ssd.submit(write, Box::new(move |result| sender.send(result).unwrap()));
        }
        drop(ssd);
        assert_eq!(receiver.try_iter().filter(Result::is_ok).count(), 512);
        let ssd = FileSsd::new(open(file.path()), 4096, 512).unwrap();
        assert_eq!(block(&ssd, 300), [300u16 as u8 | 1; 4096]);
    }
}

/// The last owner of an SSD may be a completion.
#[test]
fn an_ssd_may_be_dropped_by_its_own_completion() {
    for options in OPTIONS {
        let file = sized_file(4096, 4);
        let Some(ssd) = try_on(file.path(), 4096, 4, options) else {
            continue;
        };
        let ssd = Arc::new(ssd);
        let (sender, receiver) = channel();
        let (theirs, gate) = (Arc::clone(&ssd), Arc::new(Barrier::new(2)));
        let opened = Arc::clone(&gate);
        let done = move |result: Result<Vec<u8>, SsdError>| {
            opened.wait();
            drop(theirs);
            sender.send(result).unwrap();
        };
        let data = vec![1; 4096];
        ssd.submit(
            Operation::Write {
                lba: 0,
                data,
                fua: false,
            },
            Box::new(done),
        );
        drop(ssd);
        gate.wait();
        receiver.recv().unwrap().unwrap();
    }
}

#[test]
fn a_panic_in_a_completion_stays_alone() {
    for options in OPTIONS {
        let file = sized_file(4096, 4);
        let Some(ssd) = try_on(file.path(), 4096, 4, options) else {
            continue;
        };
        ssd.submit(Operation::Flush, Box::new(|_| panic!("meant to panic")));
        submit_write(&ssd, 1, &[3; 4096], true).unwrap();
        assert_eq!(submit_read(&ssd, 1, 4096).unwrap(), [3; 4096]);
    }
}

#[test]
fn bounds_and_lengths_are_checked() {
    on_all(BLOCK, BLOCKS, |_, ssd| {
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
    on_all(BLOCK, BLOCKS, |_, ssd| {
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
    let ssd = FileSsd::new(open(file.path()), BLOCK as u32, BLOCKS).unwrap();
    assert_eq!(block(&ssd, 5), [7; BLOCK]);
}

#[test]
fn a_short_file_is_refused_or_fails_to_read() {
    let (file, ssd) = file_ssd();
    assert!(FileSsd::new(open(file.path()), BLOCK as u32, BLOCKS + 1).is_err());
    assert!(FileSsd::new(open(file.path()), BLOCK as u32, u64::MAX).is_err());
    assert!(FileSsd::new(open(file.path()), 0, 0).is_err());
    drop(ssd);
    for options in OPTIONS {
        file.as_file().set_len(BLOCKS * BLOCK as u64).unwrap();
        let Some(ssd) = try_on(file.path(), BLOCK, BLOCKS, options) else {
            continue;
        };
        file.as_file().set_len(1024).unwrap();
        let mut buf = [0; 2 * BLOCK];
        let errors = [
            ssd.read(1, &mut buf).unwrap_err(),
            submit_read(&ssd, 1, 2 * BLOCK).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, SsdError::Read { lba: 1, .. }));
            assert_eq!(error.status(), Status::UNRECOVERED_READ_ERROR);
        }
        assert!(!ssd.try_read_now(1, &mut buf).unwrap());
    }
}

#[test]
fn a_file_without_write_permission_fails_to_write() {
    for options in OPTIONS {
        let file = sized_file(BLOCK, BLOCKS);
        let read_only = File::open(file.path()).unwrap();
        let Ok(ssd) = FileSsd::with_options(read_only, BLOCK as u32, BLOCKS, options) else {
            continue;
        };
        let errors = [
            ssd.write(0, &[0; BLOCK], false).unwrap_err(),
            submit_write(&ssd, 0, &[0; BLOCK], false).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, SsdError::Write { .. }));
            assert_eq!(error.status(), Status::WRITE_FAULT);
        }
        ssd.flush().unwrap();
    }
}

#[test]
fn a_durable_write_that_the_file_does_not_take_loses_nothing() {
    for options in OPTIONS {
        for submitted in [false, true] {
            let file = sized_file(BLOCK, BLOCKS);
            let read_only = File::open(file.path()).unwrap();
            let Ok(ssd) = FileSsd::with_options(read_only, BLOCK as u32, BLOCKS, options) else {
                continue;
            };
            let written = if submitted {
                submit_write(&ssd, 0, &[0; BLOCK], true).map(|_| ())
            } else {
                ssd.write(0, &[0; BLOCK], true)
            };
            let error = written.unwrap_err();
            assert!(matches!(error, SsdError::Write { .. }));
            assert_eq!(error.status(), Status::WRITE_FAULT);
            ssd.flush().unwrap();
            ended(&ssd, Operation::Flush).unwrap();
        }
    }
}

#[test]
fn direct_io_in_too_large_units_is_refused() {
    let Some(device) = Loop::new(1 << 20) else {
        return;
    };
    let status = Command::new("losetup")
        .args(["--sector-size", "4096"])
        .arg(&device.device)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        println!("skipped: losetup cannot set the size of sectors");
        return;
    }
    let direct = options(IoMode::Direct, IoEngine::Threads);
    let error = FileSsd::with_options(open(&device.device), 512, 2048, direct)
        .err()
        .unwrap();
    assert!(error.to_string().contains("4096 bytes"), "{error}");
    let ssd = FileSsd::with_options(open(&device.device), 4096, 256, direct).unwrap();
    ssd.write(255, &[7; 4096], true).unwrap();
    assert_eq!(block(&ssd, 255), [7; 4096]);
    // Blocks smaller than the device's still work through the page cache, zeroing included.
    let ssd = FileSsd::new(open(&device.device), 512, 2048).unwrap();
    ssd.write_zeroes(2047, 1).unwrap();
    assert_eq!(block(&ssd, 2046), [7; 512]);
    assert_eq!(block(&ssd, 2047), [0; 512]);
}

#[test]
fn a_full_file_system_refuses_writes_and_loses_nothing() {
    for options in OPTIONS {
        let Some(tmpfs) = Tmpfs::new() else { return };
        let path = tmpfs.0.path().join("ssd");
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let Some(ssd) = try_on(&path, 4096, 1024, options) else {
            continue;
        };
        ssd.write(0, &[1; 4 * 4096], true).unwrap();
        let large = vec![2; 2 << 20];
        let errors = [
            ssd.write(4, &large, false).unwrap_err(),
            submit_write(&ssd, 4, &large, false).unwrap_err(),
            submit_write(&ssd, 4, &large, true).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, SsdError::Full { lba: 4, .. }), "{error:?}");
            assert_eq!(error.status(), Status::CAPACITY_EXCEEDED);
        }
        // Nothing that was accepted is lost, so flushes go on to work; and there is room again once some is given back.
        ssd.flush().unwrap();
        assert_eq!(block(&ssd, 3), [1; 4096]);
        ssd.write_zeroes(4, 512).unwrap();
        submit_write(&ssd, 4, &large[..4096], true).unwrap();
        assert_eq!(submit_read(&ssd, 4, 4096).unwrap(), [2; 4096]);
    }
}

#[test]
fn faults_hit_the_blocks_asked_for() {
    let file = sized_file(BLOCK, BLOCKS);
    let inner = FileSsd::new(open(file.path()), BLOCK as u32, BLOCKS).unwrap();
    let ssd = FaultySsd::new(Arc::new(inner));
    ssd.write(0, &[1; 8 * BLOCK], false).unwrap();
    for fault in ["read:2..4", "write:4..5", "full:5..6"] {
        ssd.inject(fault.parse().unwrap());
    }
    for (lba, count, fails) in [(0, 2, false), (1, 2, true), (3, 2, true), (4, 4, false)] {
        let mut buf = vec![0; count * BLOCK];
        let results = [
            ssd.read(lba, &mut buf).err(),
            ssd.try_read_now(lba, &mut buf).err(),
            submit_read(&ssd, lba, buf.len()).err(),
        ];
        for result in results {
            assert_eq!(result.is_some(), fails, "{lba}");
            let status = result.map(|error| error.status());
            assert!(status.is_none_or(|status| status == Status::UNRECOVERED_READ_ERROR));
        }
    }
    for (lba, count, status) in [
        (0, 4, None),
        (3, 2, Some(Status::WRITE_FAULT)),
        (5, 3, Some(Status::CAPACITY_EXCEEDED)),
        (6, 2, None),
    ] {
        let data = vec![2; count * BLOCK];
        let results = [
            ssd.write(lba, &data, false).err(),
            ssd.write(lba, &data, true).err(),
            submit_write(&ssd, lba, &data, false).err(),
            ssd.write_zeroes(lba, count as u64).err(),
        ];
        for result in results {
            assert_eq!(result.map(|error| error.status()), status, "{lba}");
        }
    }
    ssd.inject(Injection::Flush);
    assert!(ssd.flush().is_err() && ended(&ssd, Operation::Flush).is_err());
    assert!(ssd.write(0, &[1; BLOCK], true).is_err());
    ssd.heal();
    ssd.flush().unwrap();
    assert_eq!(block(&ssd, 4), [1; BLOCK]);
    assert_eq!(block(&ssd, 6), [0; BLOCK]);
    for wrong in [
        "",
        "read",
        "read:1",
        "read:2..2",
        "read:2..1",
        "none:1..2",
        "full:a..b",
    ] {
        assert!(wrong.parse::<Injection>().is_err(), "{wrong}");
    }
}

fn small_image() -> FormatOptions {
    FormatOptions {
        size: 64 * 4096,
        cluster_blocks: 4,
        swap: 16 * 4096,
        ..FormatOptions::default()
    }
}

#[test]
fn a_block_device_holds_an_image() {
    let Some(device) = Loop::new(1 << 20) else {
        return;
    };
    let path = &device.device;
    open(path).write_all(&[0xAA; 1 << 20]).unwrap();
    assert!(matches!(image::info(path), Err(ImageError::Foreign)));
    assert!(
        image::format(path, &small_image()).is_err(),
        "not to be replaced"
    );
    assert!(matches!(image::info(path), Err(ImageError::Foreign)));
    let too_large = FormatOptions {
        size: 1 << 20,
        overwrite: true,
        ..small_image()
    };
    assert!(matches!(
        image::format(path, &too_large),
        Err(ImageError::Options { .. })
    ));
    let fitting = FormatOptions {
        overwrite: true,
        ..small_image()
    };
    let made = image::format(path, &fitting).unwrap();
    assert_eq!(image::info(path).unwrap(), made);
    for options in OPTIONS {
        let image = match Image::open_with(path, options) {
            Ok(image) => image,
            Err(error) => {
                println!("skipped: {options:?}: {error:?}");
                continue;
            }
        };
        assert!(matches!(Image::open(path), Err(ImageError::Locked { .. })));
        assert!(matches!(
            image::format(path, &fitting),
            Err(ImageError::Locked { .. })
        ));
        let (mut data, mut metadata) = ([1; 2 * 4096], [1; 128]);
        image.read_blocks(62, &mut data, &mut metadata).unwrap();
        assert_eq!((data, metadata), ([0; 2 * 4096], [0; 128]), "{options:?}");
        image
            .write_blocks(62, &[3; 2 * 4096], &[4; 128], true)
            .unwrap();
        image.read_blocks(62, &mut data, &mut metadata).unwrap();
        assert_eq!((data, metadata), ([3; 2 * 4096], [4; 128]));
        image.write_zeroes(62, 2, true).unwrap();
    }
}

#[test]
fn an_image_shows_injected_faults() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.img");
    image::format(&path, &small_image()).unwrap();
    let faults = ["read:3..4", "full:5..6"].map(|fault| fault.parse().unwrap());
    let image = Image::open_faulty(&path, IoOptions::default(), faults).unwrap();
    let status = |lba: u64| {
        let read = image.read_blocks(lba, &mut [0; 4096], &mut [0; 64]);
        let write = image.write_blocks(lba, &[1; 4096], &[1; 64], false);
        [read, write].map(|result| result.err().map(|error| error.status()))
    };
    assert_eq!(status(2), [None, None]);
    // A write reads what it may have to restore, but repairs what it cannot read.
    assert_eq!(status(3), [Some(Status::UNRECOVERED_READ_ERROR), None]);
    assert_eq!(status(5), [None, Some(Status::CAPACITY_EXCEEDED)]);
    assert_eq!(status(6), [None, None]);
}

/// Not a test by itself: the child of `what_was_flushed_survives_a_kill`, which tells on its standard output up to where it
/// has flushed.
#[test]
fn child_that_is_killed() {
    let Ok(path) = std::env::var("TOROID_TEST_KILLED_SSD") else {
        return;
    };
    let engine = match std::env::var("TOROID_TEST_KILLED_ENGINE").as_deref() {
        Ok("threads") => IoEngine::Threads,
        _ => IoEngine::Auto,
    };
    let buffered = options(IoMode::Buffered, engine);
    let ssd = FileSsd::with_options(open(Path::new(&path)), 512, 4096, buffered).unwrap();
    for lba in 0u64.. {
        let data = [lba.to_le_bytes(); 64].concat();
        if lba % 3 == 0 {
            submit_write(&ssd, lba % 4096, &data, true).unwrap();
        } else {
            submit_write(&ssd, lba % 4096, &data, false).unwrap();
            ended(&ssd, Operation::Flush).unwrap();
        }
        println!("durable {lba}");
    }
}

#[test]
fn what_was_flushed_survives_a_kill() {
    use std::io::{BufRead, BufReader};
    for engine in ["auto", "threads"] {
        let file = sized_file(512, 4096);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "child_that_is_killed"])
            .env("TOROID_TEST_KILLED_SSD", file.path())
            .env("TOROID_TEST_KILLED_ENGINE", engine)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut durable = None;
        // What the pipe still holds after the kill was durable too.
        for line in lines.map_while(Result::ok) {
            let Some((_, lba)) = line.split_once("durable ") else {
                continue;
            };
            durable = lba.parse::<u64>().ok().or(durable);
            if durable == Some(40) {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let durable = durable.unwrap();
        assert!((40..4096).contains(&durable));
        let ssd = FileSsd::new(open(file.path()), 512, 4096).unwrap();
        for lba in 0..=durable {
            assert_eq!(
                block(&ssd, lba),
                [lba.to_le_bytes(); 64].concat(),
                "{engine}"
            );
        }
    }
}

#[test]
fn zeroed_blocks_give_their_space_back() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    let ssd = FileSsd::new(open(file.path()), 4096, 16384).unwrap();
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
