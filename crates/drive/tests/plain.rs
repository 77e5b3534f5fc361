//! Commands on plain data: the same whether they are answered at once, wait for the SSD on no thread, or run on one.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use futures::executor::block_on;
use futures::future::join_all;
use toroid_drive::bridge::{Effect, TraceKind};
use toroid_drive::image::{self, Image, MetadataMode};
use toroid_drive::ssd::{
    Done, FaultySsd, Injection, IoEngine, IoMode, IoOptions, MemSsd, Operation, Ssd, SsdError,
};
use toroid_drive::{Drive, DriveError, HostIdentity, KeyAccess};
use toroid_engine::backend::testing::PlaintextBackend;
use toroid_nvme::{Controller, Request, Response, Sqe, Status};

/// An SSD on which every operation makes its caller wait.
struct Waiting(MemSsd);

impl Ssd for Waiting {
    fn block_size(&self) -> u32 {
        self.0.block_size()
    }
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.0.read(lba, buf)
    }
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        self.0.write(lba, data, fua)
    }
    fn flush(&self) -> Result<(), SsdError> {
        self.0.flush()
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.0.write_zeroes(lba, count)
    }
}

/// An asynchronous SSD that keeps what is submitted, while it is closed, and never reads at once.
struct Held {
    inner: Arc<MemSsd>,
    /// Which operations it keeps.
    keeps: fn(&Operation) -> bool,
    /// `None` while it is open.
    kept: Mutex<Option<Vec<(Operation, Done)>>>,
}

impl Held {
    fn new(inner: Arc<MemSsd>) -> Held {
        Held {
            inner,
            keeps: |_| true,
            kept: Mutex::new(None),
        }
    }

    fn close(&self) {
        *self.kept.lock().unwrap() = Some(Vec::new());
    }

    /// Lets go of what was kept, and of what follows.
    fn open(&self) {
        let kept = self.kept.lock().unwrap().take();
        for (operation, done) in kept.into_iter().flatten() {
            self.inner.submit(operation, done);
        }
    }

    fn kept(&self) -> usize {
        self.kept.lock().unwrap().as_ref().map_or(0, Vec::len)
    }
}

impl Ssd for Held {
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        self.inner.write(lba, data, fua)
    }
    fn flush(&self) -> Result<(), SsdError> {
        self.inner.flush()
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.inner.write_zeroes(lba, count)
    }
    fn is_asynchronous(&self) -> bool {
        true
    }
    fn submit(&self, operation: Operation, done: Done) {
        let mut kept = self.kept.lock().unwrap();
        match kept.as_mut().filter(|_| (self.keeps)(&operation)) {
            Some(kept) => kept.push((operation, done)),
            _ => {
                drop(kept);
                self.inner.submit(operation, done);
            }
        }
    }
}

fn held(mode: MetadataMode) -> (Arc<Held>, Bench) {
    let memory = memory_ssd();
    let held = Arc::new(Held::new(memory.clone()));
    let bench = Bench::on(mode, held.clone(), memory, |_| ());
    (held, bench)
}

fn write(mode: MetadataMode, lba: u64, data: Vec<u8>) -> Request {
    let blocks = data.len() / BLOCK;
    let sqe = Sqe::write(CID, 1, lba, blocks as u16 - 1);
    Request {
        sqe: if lba.is_multiple_of(3) {
            sqe.with_fua()
        } else {
            sqe
        },
        data,
        metadata: vec![0; if mode == NVME { blocks * 64 } else { 0 }],
    }
}

fn effect(response: &Response) -> Option<Effect> {
    Effect::of(&response.cqe)
}

/// Drives on all kinds of SSD.
fn on_all(mode: MetadataMode, test: impl Fn(&str, &Drive)) {
    let drive = |image: Image| Drive::open(image, config(Arc::new(PlaintextBackend::new())));
    let blocks = memory_ssd().blocks();
    let memory = || MemSsd::new(BLOCK as u32, blocks);
    let ssds: [(&str, Box<dyn Ssd>); 4] = [
        ("at once", Box::new(memory())),
        ("on threads", Box::new(Waiting(memory()))),
        ("submitted", Box::new(Held::new(Arc::new(memory())))),
        ("no faults", Box::new(FaultySsd::new(Arc::new(memory())))),
    ];
    for (name, ssd) in ssds {
        let image = Image::format_on(ssd, &options(mode)).unwrap();
        test(name, &drive(image).unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.img");
    for io_mode in [IoMode::Buffered, IoMode::Direct] {
        for engine in [IoEngine::Auto, IoEngine::Threads] {
            image::format(
                &path,
                &image::FormatOptions {
                    overwrite: true,
                    ..options(mode)
                },
            )
            .unwrap();
            let options = IoOptions {
                mode: io_mode,
                engine,
            };
            match Image::open_with(&path, options) {
                Ok(image) => test(&format!("{options:?}"), &drive(image).unwrap()),
                Err(error) => println!("skipped: {options:?}: {error:?}"),
            }
        }
    }
}

#[test]
fn data_statistics_and_trace_do_not_depend_on_the_ssd() {
    for mode in MODES {
        on_all(mode, |name, drive| {
            drive.trace(true);
            let mut model = vec![0u8; 64 * BLOCK];
            let mut bytes = [0, 0];
            for round in 0..40u64 {
                // Disjoint writes at the same time, then reads of everything at the same time.
                let writes: Vec<_> = (0..8)
                    .map(|part| {
                        let lba = part * 8 + (round + part) % 5;
                        let count = 1 + ((round * 3 + part) % 3) as usize;
                        let data = vec![(round * 8 + part) as u8; count * BLOCK];
                        model[lba as usize * BLOCK..][..data.len()].copy_from_slice(&data);
                        bytes[1] += data.len() as u64;
                        drive.submit(write(mode, lba, data))
                    })
                    .collect();
                for response in block_on(join_all(writes)) {
                    assert_eq!(effect(&response), Some(Effect::None), "{name}");
                }
                let lbas = (0..64u64).step_by(4);
                let reads = lbas.clone().map(|lba| drive.submit(read(lba, 4 * BLOCK)));
                for (lba, response) in lbas.zip(block_on(join_all(reads))) {
                    assert_eq!(effect(&response), Some(Effect::None), "{name}");
                    let expected = &model[lba as usize * BLOCK..][..4 * BLOCK];
                    assert!(response.data == expected, "{name}, round {round}");
                    assert!(response.metadata.iter().all(|byte| *byte == 0));
                    bytes[0] += 4 * BLOCK as u64;
                }
                let flushed = block_on(drive.submit(Request::new(Sqe::flush(CID, 1))));
                assert!(flushed.cqe.status().is_success());
            }
            let statistics = drive.statistics();
            assert_eq!((statistics.reads, statistics.writes), (640, 320), "{name}");
            assert_eq!((statistics.flushes, statistics.failed), (40, 0));
            assert_eq!([statistics.bytes_read, statistics.bytes_written], bytes);
            let trace = drive.take_trace();
            let count = |wanted: fn(&TraceKind) -> bool| {
                trace.iter().filter(|event| wanted(&event.kind)).count()
            };
            assert_eq!(
                count(|kind| matches!(kind, TraceKind::HostCommand { .. })),
                1000
            );
            assert_eq!(
                count(|kind| matches!(kind, TraceKind::Completion { .. })),
                1000
            );
            let commands = count(|kind| matches!(kind, TraceKind::SsdCommand { .. }));
            let completions = count(|kind| matches!(kind, TraceKind::SsdCompletion { .. }));
            // The second half is read into memory once, before the first of them.
            assert!((1000..1010).contains(&commands), "{name}: {commands}");
            assert_eq!(commands, completions);
            assert!(trace.iter().map(|event| event.at).is_sorted());
            drive.shutdown().unwrap();
            assert!(matches!(
                block_on(drive.submit(read(0, BLOCK))).cqe.status(),
                Status::ABORTED_SQ_DELETION
            ));
        });
    }
}

#[test]
fn a_read_never_sees_half_of_a_write() {
    for mode in MODES {
        on_all(mode, |name, drive| {
            std::thread::scope(|scope| {
                for thread in 0..4u8 {
                    scope.spawn(move || {
                        for i in 0..60u8 {
                            if thread % 2 == 0 {
                                let data = vec![thread * 60 + i; 8 * BLOCK];
                                let response = block_on(drive.submit(write(mode, 16, data)));
                                assert_eq!(effect(&response), Some(Effect::None));
                            } else {
                                let response = block_on(drive.submit(read(16, 8 * BLOCK)));
                                let first = response.data[0];
                                let whole = response.data.iter().all(|byte| *byte == first);
                                assert!(whole, "{name}");
                            }
                        }
                    });
                }
            });
        });
    }
}

/// Neighbours share blocks of the metadata area.
#[test]
fn writes_of_neighbours_keep_each_others_metadata() {
    on_all(NVME, |name, drive| {
        let sample = message(3);
        assert_eq!(sample.len().div_ceil(BLOCK), 1);
        let mut data = sample.clone();
        data.resize(BLOCK, 0);
        let commands = (0..64u64).map(|lba| {
            let mut request = write(NVME, lba, data.clone());
            if lba % 2 == 0 {
                let register = vr(&format!("cor:0:{lba}"));
                request.metadata = sc(register, &sample).to_bytes().to_vec();
            }
            drive.submit(request)
        });
        let effects: Vec<_> = block_on(join_all(commands)).iter().map(effect).collect();
        for (lba, effect) in effects.iter().enumerate() {
            let expected = [Effect::Stored, Effect::None][lba % 2];
            assert_eq!(*effect, Some(expected), "{name}");
        }
        for lba in 0..64 {
            let response = block_on(drive.submit(read(lba, BLOCK)));
            let expected = [Effect::Stored, Effect::None][lba as usize % 2];
            assert_eq!(effect(&response), Some(expected), "{name}");
            assert_eq!(response.metadata.iter().any(|b| *b != 0), lba % 2 == 0);
        }
    });
}

#[test]
fn a_read_that_meets_a_new_registration_begins_anew() {
    let (held, bench) = held(SECOND_HALF);
    let sample = message(5);
    bench.write_plain(X_LBA, &{
        let mut data = sample.clone();
        data.resize(BLOCK, 0);
        data
    });
    held.close();
    let pending = bench.drive.submit(read(X_LBA, BLOCK));
    wait_until(|| held.kept() == 1);
    let registered = sc(vr(X), &sample).with_blocks(1);
    bench.succeed(second_half(X_LBA, &registered.to_bytes()));
    held.open();
    let response = block_on(pending);
    assert_eq!(effect(&response), Some(Effect::Stored));
    assert_eq!(bench.sample(X), sample);
}

#[test]
fn commands_that_wait_for_the_ssd_take_no_thread() {
    for mode in MODES {
        let (held, bench) = held(mode);
        bench.write_plain(0, &[1; BLOCK]);
        held.close();
        let pending: Vec<_> = (0..100)
            .map(|_| bench.drive.submit(read(0, BLOCK)))
            .collect();
        wait_until(|| held.kept() == 100);
        // More than the drive has threads; there is one left for a command that needs it.
        let zeroes = Sqe::write_zeroes(CID, 1, 8, 0);
        bench.succeed(Request::new(zeroes));
        held.open();
        for response in block_on(join_all(pending)) {
            assert_eq!(response.data, [1; BLOCK]);
        }
    }
}

#[test]
fn flushes_of_one_tenant_hold_up_no_other() {
    for mode in MODES {
        let memory = memory_ssd();
        let held = Arc::new(Held {
            keeps: |operation| matches!(operation, Operation::Flush),
            ..Held::new(memory.clone())
        });
        let bench = Bench::on(mode, held.clone(), memory, |_| ());
        let [one, other] = [1, 2].map(|tenant| {
            bench.drive.controller_for(HostIdentity {
                name: format!("nqn.x:{tenant}"),
                tenant,
                keys: KeyAccess::All,
            })
        });
        held.close();
        // Far more than there are threads, or places in a ring.
        let flush = || Request::new(Sqe::flush(CID, 1));
        let flushes: Vec<_> = (0..5000).map(|_| one.submit(flush())).collect();
        assert_eq!(held.kept(), 5000);
        for lba in 0..20 {
            let written = write(mode, lba + 40, vec![lba as u8; BLOCK]);
            assert!(block_on(other.submit(written)).cqe.status().is_success());
            let found = block_on(other.submit(read(lba + 40, BLOCK)));
            assert_eq!(found.data, vec![lba as u8; BLOCK]);
        }
        let flushed = other.submit(flush());
        held.open();
        let all = flushes.into_iter().chain([flushed]);
        for response in block_on(join_all(all)) {
            assert!(response.cqe.status().is_success());
        }
    }
}

#[test]
fn a_shutdown_waits_for_commands_on_the_ssd() {
    for mode in MODES {
        let (held, bench) = held(mode);
        // Brings the metadata of the second half into memory.
        bench.write_plain(0, &[1; BLOCK]);
        held.close();
        let pending = bench.drive.submit(write(mode, 1, vec![7; BLOCK]));
        wait_until(|| held.kept() == 1);
        std::thread::scope(|scope| {
            let shutdown = scope.spawn(|| bench.drive.shutdown());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!shutdown.is_finished());
            held.open();
            shutdown.join().unwrap().unwrap();
        });
        assert_eq!(effect(&block_on(pending)), Some(Effect::None));
        let bench = bench.reopen();
        assert_eq!(bench.read_plain(1, 1), [7; BLOCK]);
    }
}

#[test]
fn failures_of_the_ssd_become_their_statuses() {
    for mode in MODES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive.img");
        for engine in [IoEngine::Auto, IoEngine::Threads] {
            let replace = image::FormatOptions {
                overwrite: true,
                ..options(mode)
            };
            image::format(&path, &replace).unwrap();
            let io_options = IoOptions {
                mode: IoMode::Buffered,
                engine,
            };
            let faults = ["read:3..4", "full:5..6", "write:7..8"];
            let faults = faults.map(|fault| fault.parse::<Injection>().unwrap());
            let image = Image::open_faulty(&path, io_options, faults).unwrap();
            let drive = Drive::open(image, config(Arc::new(PlaintextBackend::new()))).unwrap();
            let status = |request| block_on(drive.submit(request)).cqe.status();
            assert!(status(write(mode, 4, vec![1; BLOCK])).is_success());
            assert_eq!(status(read(2, 2 * BLOCK)), Status::UNRECOVERED_READ_ERROR);
            assert_eq!(drive.errors()[0].status, Status::UNRECOVERED_READ_ERROR);
            let full = write(mode, 4, vec![2; 2 * BLOCK]);
            assert_eq!(status(full), Status::CAPACITY_EXCEEDED);
            assert_eq!(status(write(mode, 7, vec![2; BLOCK])), Status::WRITE_FAULT);
            let reason = &drive.errors()[0].reason;
            assert!(reason.contains("write at block"), "{reason}");
            assert_eq!(drive.statistics().failed, 3);
            // A failed write has no effect.
            let kept = block_on(drive.submit(read(4, BLOCK)));
            assert_eq!(kept.data, [1; BLOCK]);
            drive.shutdown().unwrap();
            drop(drive);

            let image = Image::open_faulty(&path, io_options, [Injection::Flush]).unwrap();
            let drive = Drive::open(image, config(Arc::new(PlaintextBackend::new()))).unwrap();
            let flush = Request::new(Sqe::flush(CID, 1));
            assert_eq!(
                block_on(drive.submit(flush)).cqe.status(),
                Status::WRITE_FAULT
            );
            assert!(matches!(drive.shutdown(), Err(DriveError::Flush(_))));
        }
    }
}
