//! The block device host, over a plain file and, where the system lets the test make one, a loop device.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use toroid_client::blob::{BlobStore, FormatOptions, NewBlob};
use toroid_client::block_device::{BlockDeviceController, BlockDeviceError, NSID};
use toroid_nvme::{
    Controller, DsmRange, Request, Sqe, Status, flush, read_blocks, write_blocks, write_zeroes,
};
use toroid_task::Progress;
use zerocopy::IntoBytes;

const BYTES: u64 = 16 << 20;

fn file(folder: &Path) -> PathBuf {
    let path = folder.join("blocks");
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    path
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i / 5) as u8 ^ (i >> 11) as u8 ^ seed)
        .collect()
}

/// A loop device, given back at the end.
struct Loop(PathBuf);

impl Loop {
    /// `None` where the system has none to give.
    fn over(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        let name = String::from_utf8(output.stdout).ok()?;
        let path = PathBuf::from(name.trim());
        (output.status.success() && path.exists()).then_some(Loop(path))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

async fn check_commands(path: &Path) {
    let controller = BlockDeviceController::open(path).unwrap();
    let namespace = controller.info().namespace(NSID).unwrap().clone();
    let block = namespace.block_size() as usize;
    assert_eq!(namespace.capacity(), BYTES);
    assert_eq!(namespace.metadata_size(), 0);
    for blocks in [1, 2, 7, 300] {
        let data = pattern(blocks * block, blocks as u8);
        for fua in [false, true] {
            write_blocks(&controller, NSID, 3, &data, &[], fua)
                .await
                .unwrap();
            flush(&controller, NSID).await.unwrap();
            let read = read_blocks(&controller, NSID, 3, blocks as u64)
                .await
                .unwrap();
            assert!(read.data == data && read.metadata.is_empty());
        }
    }
    let data = pattern(4 * block, 9);
    write_blocks(&controller, NSID, 8, &data, &[], false)
        .await
        .unwrap();
    let compare = |data: Vec<u8>| {
        controller.submit(Request {
            data,
            ..Request::new(Sqe::compare(7, NSID, 8, 3))
        })
    };
    let same = compare(data.clone()).await.cqe;
    assert_eq!((same.status(), same.cid.get()), (Status::SUCCESS, 7));
    let mut other = data.clone();
    other[block] ^= 1;
    assert_eq!(compare(other).await.cqe.status(), Status::COMPARE_FAILURE);
    write_zeroes(&controller, NSID, 9, 2).await.unwrap();
    let read = read_blocks(&controller, NSID, 8, 4).await.unwrap().data;
    assert_eq!(read[..block], data[..block]);
    assert_eq!(read[block..3 * block], vec![0; 2 * block]);
    assert_eq!(read[3 * block..], data[3 * block..]);
    let range = |slba: u64| DsmRange {
        attributes: 0.into(),
        blocks: 1.into(),
        slba: slba.into(),
    };
    let ranges = [range(8), range(11)];
    let deallocate = Request {
        data: ranges.as_bytes().to_vec(),
        ..Request::new(Sqe::deallocate(1, NSID, 1))
    };
    assert_eq!(
        controller.submit(deallocate).await.cqe.status(),
        Status::SUCCESS
    );

    let beyond = controller.submit(Request::new(Sqe::read(1, NSID, BYTES, 0)));
    assert_eq!(beyond.await.cqe.status(), Status::LBA_OUT_OF_RANGE);
    let errors = controller.errors();
    assert_eq!(errors[0].status, Status::LBA_OUT_OF_RANGE);
    assert_eq!(errors[1].status, Status::COMPARE_FAILURE);
    assert!(errors[0].count > errors[1].count);
}

/// A store that is mounted again has what was written, by way of commands as large as the device takes.
async fn check_store(path: &Path) {
    let open = || Arc::new(BlockDeviceController::open(path).unwrap());
    let data = pattern(2_500_001, 1);
    let id = {
        let store = BlobStore::format(open(), NSID, FormatOptions::default())
            .await
            .unwrap();
        let id = store.create_blob(NewBlob::default()).await.unwrap();
        store
            .write_blob(id, &data, &Progress::none())
            .await
            .unwrap();
        id
    };
    let store = BlobStore::mount(open(), NSID, Default::default())
        .await
        .unwrap();
    let read = store.read_blob(id, &Progress::none()).await.unwrap();
    assert!(read.data == data);
}

#[tokio::test]
async fn a_plain_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    check_commands(&path).await;
    check_store(&path).await;
}

#[tokio::test]
async fn a_loop_device() {
    let folder = tempfile::tempdir().unwrap();
    let Some(device) = Loop::over(&file(folder.path())) else {
        eprintln!("no loop device to be had: nothing is tested");
        return;
    };
    check_commands(&device.0).await;
    check_store(&device.0).await;
    let held = BlockDeviceController::open(&device.0).unwrap();
    assert!(matches!(
        BlockDeviceController::open(&device.0),
        Err(BlockDeviceError::Busy { .. })
    ));
    drop(held);
}

#[test]
fn what_is_no_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        BlockDeviceController::open(folder.path()),
        Err(BlockDeviceError::Kind { .. })
    ));
    let missing = BlockDeviceController::open(&folder.path().join("none"));
    let message = missing.err().unwrap().to_string();
    assert!(message.contains("none"), "{message}");
    let empty = folder.path().join("empty");
    File::create(&empty).unwrap();
    assert!(matches!(
        BlockDeviceController::open(&empty),
        Err(BlockDeviceError::Namespace { .. })
    ));
}
