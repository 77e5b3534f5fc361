//! The server is killed under write load, again and again; what was flushed, or written with FUA, is there afterwards.
//!
//! `cargo test --release -p toroid --test kill -- --ignored` kills it 60 times in either form of metadata. A kill takes what the process has
//! not given to the kernel; it is no loss of power.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod serving;

use std::path::Path;
use std::time::Duration;

use serving::{Numbers, Server, options, runtime, toroid};
use toroid_nvme::fabrics::RemoteController;
use toroid_nvme::tcp;
use toroid_nvme::{NvmeError, flush, read_blocks, write_blocks, write_zeroes};

const BLOCK: usize = 4096;
/// Connections, and writers on each.
const HOSTS: usize = 4;
const WRITERS: usize = 4;
/// Blocks of each writer.
const BLOCKS: usize = 32;

/// A block of this version: every 16 bytes tell where they belong.
fn block(lba: u64, version: u64) -> Vec<u8> {
    let unit = [lba.to_le_bytes(), version.to_le_bytes()].concat();
    unit.repeat(BLOCK / unit.len())
}

/// What a writer knows of one of its blocks.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The latest version that was sent.
    sent: u64,
    /// The latest that was acknowledged.
    written: u64,
    /// The latest that must survive.
    durable: u64,
}

/// A writer's blocks, from `start` on.
struct Model {
    start: u64,
    blocks: Vec<Known>,
    version: u64,
}

impl Model {
    async fn step(
        &mut self,
        controller: &RemoteController,
        numbers: &mut Numbers,
    ) -> Result<(), NvmeError> {
        match numbers.below(10) {
            0 => {
                let before: Vec<u64> = self.blocks.iter().map(|known| known.written).collect();
                flush(controller, 1).await?;
                for (known, written) in self.blocks.iter_mut().zip(before) {
                    known.durable = known.durable.max(written);
                }
            }
            1 => {
                let read = read_blocks(controller, 1, self.start, BLOCKS as u64).await?;
                self.check(&read.data, |known| known.written);
            }
            choice => {
                let first = numbers.below(BLOCKS as u64) as usize;
                let count = (1 + numbers.below(8) as usize).min(BLOCKS - first);
                let fua = choice == 2;
                self.version += 1;
                let version = self.version;
                let mut data = Vec::new();
                let lba = self.start + first as u64;
                for (i, known) in self.blocks[first..first + count].iter_mut().enumerate() {
                    known.sent = version;
                    data.extend(block(lba + i as u64, version));
                }
                write_blocks(controller, 1, lba, &data, &[], fua).await?;
                for known in &mut self.blocks[first..first + count] {
                    known.written = version;
                    known.durable = if fua { version } else { known.durable };
                }
            }
        }
        Ok(())
    }

    /// Every block is whole, and at least as new as `least` says.
    fn check(&self, data: &[u8], least: impl Fn(&Known) -> u64) {
        for (i, (found, known)) in data.chunks(BLOCK).zip(&self.blocks).enumerate() {
            let lba = self.start + i as u64;
            let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
            if version == 0 {
                assert!(
                    found.iter().all(|byte| *byte == 0),
                    "block {lba} is damaged"
                );
            } else {
                let other = found.chunks(16).find(|unit| *unit != &found[..16]);
                assert!(
                    found == block(lba, version),
                    "block {lba} is torn: version {version}, and {other:?}"
                );
            }
            let (least, most) = (least(known), known.sent);
            assert!(
                (least..=most).contains(&version),
                "block {lba} has version {version}; expected {least} to {most}"
            );
        }
    }
}

/// Load on all connections until they break; the models come back.
async fn load(
    server: &Server,
    models: Vec<Model>,
    seed: u64,
) -> Vec<tokio::task::JoinHandle<Model>> {
    let mut tasks = Vec::new();
    let mut models = models.into_iter();
    for number in 0..HOSTS {
        let controller = tcp::connect(&server.address, &options(number as u8 + 1)).await;
        let controller = std::sync::Arc::new(controller.unwrap());
        for (i, mut model) in models.by_ref().take(WRITERS).enumerate() {
            let controller = std::sync::Arc::clone(&controller);
            let mut numbers = Numbers(seed ^ ((number * WRITERS + i) as u64 + 1) << 32 | 1);
            tasks.push(tokio::spawn(async move {
                while model.step(&controller, &mut numbers).await.is_ok() {}
                model
            }));
        }
    }
    tasks
}

fn kills(image: &Path, metadata: &str, kills: u64) {
    let size = format!("{}KiB", 2 * HOSTS * WRITERS * BLOCKS * BLOCK / 1024);
    let formatted = toroid()
        .args(["drive", "format", "--metadata", metadata, "--size", &size])
        .args(["--swap", "1MiB"])
        .arg(image)
        .output()
        .unwrap();
    assert!(formatted.status.success(), "{formatted:?}");
    let runtime = runtime();
    let mut models: Vec<Model> = (0..HOSTS * WRITERS)
        .map(|i| Model {
            start: (i * BLOCKS) as u64,
            blocks: vec![Known::default(); BLOCKS],
            version: 0,
        })
        .collect();
    let (mut writes, mut lost) = (0, 0);
    for kill in 0..=kills {
        let mut server = Server::start(image, &[]);
        models = runtime.block_on(async {
            let controller = tcp::connect(&server.address, &options(99)).await.unwrap();
            if kill == 0 {
                // Over what formatting has put there.
                let blocks = (HOSTS * WRITERS * BLOCKS) as u64;
                write_zeroes(&controller, 1, 0, blocks).await.unwrap();
                flush(&controller, 1).await.unwrap();
            }
            for model in &mut models {
                let read = read_blocks(&controller, 1, model.start, BLOCKS as u64)
                    .await
                    .unwrap();
                model.check(&read.data, |known| known.durable);
                for (found, known) in read.data.chunks(BLOCK).zip(&mut model.blocks) {
                    let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
                    lost += u64::from(version < known.written);
                    // What is there now must not be taken back; what was under way will not come any more.
                    known.sent = version;
                    known.written = version;
                }
            }
            drop(controller);
            if kill == kills {
                return Vec::new();
            }
            let before: u64 = models.iter().map(|model| model.version).sum();
            let mut numbers = Numbers(kill + 0x9E37_79B9);
            let tasks = load(&server, models, kill).await;
            tokio::time::sleep(Duration::from_millis(20 + numbers.below(400))).await;
            server.kill();
            let mut models = Vec::new();
            for task in tasks {
                models.push(task.await.unwrap());
            }
            writes += models.iter().map(|model| model.version).sum::<u64>() - before;
            models
        });
    }
    assert!(writes > kills, "there was no load");
    eprintln!(
        "{metadata}: {kills} kills, {writes} writes, {lost} blocks older than their last acknowledged write, none older than its last flush"
    );
}

fn both(count: u64) {
    let folder = tempfile::tempdir().unwrap();
    for metadata in ["second-half", "nvme"] {
        kills(&folder.path().join(metadata), metadata, count);
    }
}

#[test]
fn flushed_blocks_survive_three_kills() {
    both(3);
}

#[test]
#[ignore = "takes minutes"]
fn flushed_blocks_survive_a_hundred_kills() {
    both(60);
}
