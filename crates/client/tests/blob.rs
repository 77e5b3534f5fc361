//! The blob store over controllers in memory: what it keeps, what it sends to the drive, and how it fails.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use futures::future::BoxFuture;
use proptest::prelude::*;
use tokio::sync::oneshot;
use toroid_client::blob::{
    BlobError, BlobId, BlobStore, FormatOptions, MountOptions, NewBlob, ScCarrier,
};
use toroid_isa::VrType;
use toroid_isa::metadata::ScMetadata;
use toroid_nvme::testing::RamController;
use toroid_nvme::{
    self as nvme, Command, Controller, ControllerInfo, Request, Response, Sqe, Status, opcode,
};
use toroid_task::{CancelToken, Progress};

const CLUSTER: u64 = 8 * BLOCK as u64;
const HALF: u64 = 1 << 12;
/// MDTS of half a cluster, so that clusters take two commands.
const MDTS: u32 = 4 * BLOCK;

fn controller(metadata_size: u16) -> Arc<RamController> {
    let blocks = if metadata_size == 0 { 2 * HALF } else { HALF };
    Arc::new(ram(blocks, metadata_size, MDTS))
}

fn plain(name: &str) -> NewBlob {
    NewBlob {
        name: name.into(),
        sc: None,
    }
}

fn with_sc(name: &str, sc: ScMetadata) -> NewBlob {
    NewBlob {
        name: name.into(),
        sc: Some(sc),
    }
}

async fn put(store: &BlobStore, blob: NewBlob, data: &[u8]) -> BlobId {
    let id = store.create_blob(blob).await.unwrap();
    store.write_blob(id, data, &Progress::none()).await.unwrap();
    id
}

async fn get(store: &BlobStore, id: BlobId) -> Vec<u8> {
    store.read_blob(id, &Progress::none()).await.unwrap().data
}

async fn free_clusters(store: &BlobStore) -> u32 {
    // A change settles what earlier ones set free.
    let id = store.create_blob(plain("settle")).await.unwrap();
    store.delete_blob(id).await.unwrap();
    store.info().await.free_clusters
}

#[tokio::test]
async fn contents_of_any_size_come_back_before_and_after_a_mount() {
    for metadata_size in [0, 64] {
        let controller = controller(metadata_size);
        let store = format(&controller, CLUSTER).await;
        assert_eq!(
            store.info().await.carrier,
            if metadata_size == 0 {
                ScCarrier::SecondHalf
            } else {
                ScCarrier::NvmeMetadata
            }
        );
        let mut blobs = Vec::new();
        let sizes = [0, 1, 511, 512, 513, 2048, 2049, 4095, 4096, 4097, 40_000];
        for (i, size) in sizes.into_iter().enumerate() {
            let data = pattern(i as u64, size);
            blobs.push((put(&store, plain("p"), &data).await, data.clone(), None));
            if size > 0 {
                for ty in VrType::ALL {
                    let data_id = match ty {
                        VrType::Prg => 0,
                        VrType::Key => 1,
                        _ => i as u32,
                    };
                    let sc = sc(ty, data_id, size as u64);
                    let id = put(&store, with_sc("s", sc), &data).await;
                    blobs.push((id, data.clone(), Some(sc)));
                }
            }
        }
        for store in [store, mount(&controller).await] {
            for (id, data, sc) in &blobs {
                let read = store.read_blob(*id, &Progress::none()).await.unwrap();
                assert_eq!(read.data, *data);
                let covered = data.len().min(CLUSTER as usize).div_ceil(BLOCK as usize) as u32;
                let covered = if metadata_size == 0 { covered } else { 0 };
                assert_eq!(read.sc, sc.map(|sc| sc.with_blocks(covered)));
                let stat = store.stat(*id).unwrap();
                assert_eq!(stat.sc, *sc);
                assert_eq!(stat.size, data.len() as u64);
                assert!(stat.written);
                let replaced = sc.is_some_and(|sc| sc.vr().ty().is_sample());
                assert_eq!(
                    stat.crc32c,
                    (!replaced).then(|| crc32c::crc32c(data)),
                    "{sc:?}"
                );
                if let Some(sc) = sc {
                    assert!(store.find_by_sc(sc.vr()).contains(&stat));
                }
            }
            assert_eq!(store.list().len(), blobs.len());
        }
    }
}

#[tokio::test]
async fn a_created_blob_is_empty_and_keeps_its_name() {
    let controller = controller(64);
    let store = format(&controller, CLUSTER).await;
    let name = "ü".repeat(127) + "x";
    assert_eq!(name.len(), 255);
    let id = store.create_blob(plain(&name)).await.unwrap();
    for store in [&store, &mount(&controller).await] {
        let stat = store.stat(id).unwrap();
        assert_eq!((stat.name.as_str(), stat.size), (name.as_str(), 0));
        assert!(!stat.written);
        assert_eq!(get(store, id).await, b"");
    }
    assert!(matches!(
        store.create_blob(plain(&"x".repeat(256))).await,
        Err(BlobError::NameTooLong(256))
    ));
}

#[tokio::test]
async fn deleted_blobs_are_gone_and_identifiers_are_not_used_again() {
    let controller = controller(0);
    let mut store = format(&controller, CLUSTER).await;
    let free = store.info().await;
    let mut last = BlobId(0);
    for round in 0..5 {
        let id = put(&store, plain("x"), &pattern(round, 30_000)).await;
        assert!(id > last);
        last = id;
        store.delete_blob(id).await.unwrap();
        for store in [&store, &look(&controller).await] {
            assert!(matches!(store.stat(id), Err(BlobError::NoSuchBlob(x)) if x == id));
        }
        assert!(matches!(
            store.delete_blob(id).await,
            Err(BlobError::NoSuchBlob(_))
        ));
        assert!(matches!(
            store.write_blob(id, b"x", &Progress::none()).await,
            Err(BlobError::NoSuchBlob(_))
        ));
        assert_eq!(store.info().await, free);
        store = mount(&controller).await;
        assert_eq!(store.info().await, free);
    }
}

/// Records every request; on the way it may replace samples as the drive does.
struct Drive {
    ram: RamController,
    requests: Mutex<Vec<Request>>,
    /// Whether types 3 and 4 are "computed": their data inverted and marked.
    compute: bool,
    /// Second-half metadata by the LBA that it applies to.
    clusters: Mutex<HashMap<u64, ScMetadata>>,
}

impl Drive {
    fn new(metadata_size: u16, compute: bool) -> Arc<Drive> {
        let blocks = if metadata_size == 0 { 2 * HALF } else { HALF };
        Arc::new(Drive {
            ram: ram(blocks, metadata_size, MDTS),
            requests: Mutex::default(),
            compute,
            clusters: Mutex::default(),
        })
    }

    fn computed(sc: ScMetadata) -> ScMetadata {
        sc.with_computed(true).with_noise(Some(-20.0), Some(-64.0))
    }

    async fn put_second_half(&self, lba: u64, sc: ScMetadata) {
        let mut block = vec![0; BLOCK as usize];
        block[..64].copy_from_slice(&Drive::computed(sc).to_bytes());
        nvme::write_blocks(&self.ram, 1, lba + HALF, &block, &[], false)
            .await
            .unwrap();
    }

    async fn run(&self, mut request: Request) -> Response {
        self.requests.lock().unwrap().push(request.clone());
        let Ok(command) = Command::parse(&request.sqe) else {
            return self.ram.submit(request).await;
        };
        let second_half = self.ram.info().namespaces[0].metadata_size() == 0;
        let (io, write) = match command {
            Command::Write(io) => (io, true),
            Command::Read(io) => (io, false),
            _ => return self.ram.submit(request).await,
        };
        if second_half && io.slba >= HALF {
            if write && let Ok(Some(sc)) = ScMetadata::from_bytes(&request.data[..64]) {
                self.clusters.lock().unwrap().insert(io.slba - HALF, sc);
            }
            return self.ram.submit(request).await;
        }
        let known = self.clusters.lock().unwrap().get(&io.slba).copied();
        let first = |bytes: &[u8]| bytes.get(..64).and_then(|b| ScMetadata::from_bytes(b).ok());
        if write {
            let sc = known.or(first(&request.metadata).flatten());
            if let Some(sc) = sc.filter(|sc| self.compute && sc.vr().ty() == VrType::LweCow) {
                request.data.iter_mut().for_each(|b| *b ^= 0xFF);
                if second_half {
                    self.put_second_half(io.slba, sc).await;
                } else {
                    request.metadata[..64].copy_from_slice(&Drive::computed(sc).to_bytes());
                }
            }
            return self.ram.submit(request).await;
        }
        let mut response = self.ram.submit(request).await;
        let sc = known.or(first(&response.metadata).flatten());
        if let Some(sc) = sc.filter(|sc| self.compute && sc.vr().ty() == VrType::LweCor) {
            response.data.iter_mut().for_each(|b| *b ^= 0xFF);
            if second_half {
                self.put_second_half(io.slba, sc).await;
            } else {
                response.metadata[..64].copy_from_slice(&Drive::computed(sc).to_bytes());
            }
        }
        response
    }
}

impl Controller for Drive {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        Box::pin(self.run(request))
    }

    fn info(&self) -> &ControllerInfo {
        self.ram.info()
    }
}

#[tokio::test]
async fn results_that_the_drive_puts_into_the_data_come_back_with_their_metadata() {
    for metadata_size in [0, 64] {
        for ty in [VrType::LweCor, VrType::LweCow] {
            let drive = Drive::new(metadata_size, true);
            let store = format(&drive, CLUSTER).await;
            let data = pattern(1, 700);
            let id = put(&store, with_sc("s", sc(ty, 2, 700)), &data).await;
            let inverted: Vec<u8> = data.iter().map(|b| !b).collect();
            for store in [&store, &mount(&drive).await] {
                let read = store.read_blob(id, &Progress::none()).await.unwrap();
                assert_eq!(read.data, inverted);
                let sc = read.sc.unwrap();
                assert!(sc.computed());
                assert_eq!(sc.log2_p_fail(), Some(-64.0));
            }
        }
    }
}

#[tokio::test]
async fn parts_reach_the_drive_in_order_each_with_its_metadata_before_it() {
    let size = 2 * CLUSTER + CLUSTER / 2 + 5;
    for metadata_size in [0, 64] {
        let drive = Drive::new(metadata_size, false);
        let store = format(&drive, CLUSTER).await;
        let sc = sc(VrType::Key, 1, size);
        let id = store.create_blob(with_sc("key", sc)).await.unwrap();
        drive.requests.lock().unwrap().clear();
        let data = pattern(3, size as usize);
        // In pieces that fit neither blocks nor commands.
        let mut writer = store.writer(id, size).await.unwrap();
        for piece in data.chunks(777) {
            writer.write(piece).await.unwrap();
        }
        writer.commit().await.unwrap();
        assert_eq!(get(&store, id).await, data);

        let mut done = 0u64;
        let mut covering: Option<(u64, ScMetadata)> = None;
        let requests = drive.requests.lock().unwrap().clone();
        for request in &requests {
            let Ok(Command::Write(io)) = Command::parse(&request.sqe) else {
                continue;
            };
            assert!(request.data.len() <= MDTS as usize);
            if metadata_size == 0 && io.slba >= HALF {
                let part = ScMetadata::from_bytes(&request.data[..64])
                    .unwrap()
                    .unwrap();
                assert!(request.data[64..].iter().all(|&b| b == 0));
                assert_eq!(part.offset(), done);
                assert_eq!(part.vr(), sc.vr());
                let covered = (size - done).min(CLUSTER).div_ceil(BLOCK as u64);
                assert_eq!(u64::from(part.blocks()), covered);
                covering = Some((io.slba - HALF, part));
                continue;
            }
            let left = &data[done as usize..];
            if done == size
                || !request
                    .data
                    .starts_with(&left[..left.len().min(BLOCK as usize)])
            {
                // The record of the blob, which follows its data.
                assert_eq!(done, size);
                continue;
            }
            let bytes = left.len().min(request.data.len());
            assert_eq!(request.data[..bytes], left[..bytes]);
            let within = io.slba * BLOCK as u64 % CLUSTER;
            assert!(within + request.data.len() as u64 <= CLUSTER);
            if metadata_size == 0 {
                let (cluster, part) = covering.unwrap();
                assert_eq!(io.slba - cluster, (done - part.offset()) / BLOCK as u64);
                assert!(io.slba + u64::from(io.blocks) <= cluster + u64::from(part.blocks()));
            } else {
                for (i, md) in request.metadata.chunks(64).enumerate() {
                    let part = ScMetadata::from_bytes(md).unwrap().unwrap();
                    let offset = done + (i * BLOCK as usize) as u64;
                    assert_eq!(part, sc.with_offset(offset).unwrap());
                }
            }
            done += bytes as u64;
        }
        assert_eq!(done, size);
    }
}

async fn second_half(controller: &RamController) -> Vec<u8> {
    nvme::read_blocks(controller, 1, HALF, HALF)
        .await
        .unwrap()
        .data
}

#[tokio::test]
async fn no_metadata_stays_on_free_clusters_or_under_plain_data() {
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let size = 3 * CLUSTER;
    let data = pattern(5, size as usize);
    let key = put(&store, with_sc("k", sc(VrType::Key, 1, size)), &data).await;
    assert!(second_half(&controller).await.iter().any(|&b| b != 0));
    store.delete_blob(key).await.unwrap();
    assert!(second_half(&controller).await.iter().all(|&b| b == 0));

    // A reader keeps the clusters when the blob goes, so that they are freed with their metadata in place.
    let key = put(&store, with_sc("k", sc(VrType::Key, 1, size)), &data).await;
    let mut reader = store.reader(key).unwrap();
    reader.next_chunk().await.unwrap().unwrap();
    store.delete_blob(key).await.unwrap();
    let mut rest = 0;
    while let Some(chunk) = reader.next_chunk().await.unwrap() {
        rest += chunk.len();
    }
    assert_eq!(rest as u64, size - u64::from(MDTS));
    drop(reader);
    assert!(second_half(&controller).await.iter().any(|&b| b != 0));
    let store = mount(&controller).await;
    let id = put(&store, plain("p"), &data).await;
    assert!(second_half(&controller).await.iter().all(|&b| b == 0));

    // Overwritten with metadata, then without: zeroed when the old version is let go.
    let with = sc(VrType::Tv, 1, 10);
    let mut writer = store.writer_with_sc(id, 10, Some(with)).await.unwrap();
    writer.write(&[1; 10]).await.unwrap();
    assert_eq!(writer.commit().await.unwrap().sc, Some(with));
    let mut writer = store.writer_with_sc(id, 10, None).await.unwrap();
    writer.write(&[2; 10]).await.unwrap();
    writer.commit().await.unwrap();
    free_clusters(&store).await;
    assert!(second_half(&controller).await.iter().all(|&b| b == 0));
    assert_eq!(get(&store, id).await, [2; 10]);
}

#[tokio::test]
async fn readers_see_the_content_as_of_their_start() {
    for metadata_size in [0, 64] {
        let controller = controller(metadata_size);
        let store = format(&controller, CLUSTER).await;
        let old = pattern(1, 20_000);
        let id = put(&store, plain("x"), &old).await;
        let mut reader = store.reader(id).unwrap();
        let mut seen = reader.next_chunk().await.unwrap().unwrap();
        for round in 2..30 {
            let new = pattern(round, 20_000);
            store.write_blob(id, &new, &Progress::none()).await.unwrap();
            assert_eq!(get(&store, id).await, new);
        }
        store.delete_blob(id).await.unwrap();
        for _ in 0..10 {
            put(&store, plain("y"), &[7; 20_000]).await;
        }
        while let Some(chunk) = reader.next_chunk().await.unwrap() {
            seen.extend_from_slice(&chunk);
        }
        assert_eq!(seen, old);
    }
}

#[tokio::test]
async fn a_full_store_says_so_and_still_overwrites_and_deletes() {
    let controller = controller(64);
    let store = format(&controller, CLUSTER).await;
    let clusters = store.info().await.clusters;
    let all = u64::from(clusters) * CLUSTER;
    let id = store.create_blob(plain("big")).await.unwrap();
    assert!(matches!(
        store.writer(id, all + 1).await.map(drop),
        Err(BlobError::NoSpace { needed, free }) if needed == all + CLUSTER && free == all
    ));
    let half = all / 2 / CLUSTER * CLUSTER;
    for round in 0..4 {
        // Each needs what the one before it has just set free.
        let data = pattern(round, half as usize);
        store
            .write_blob(id, &data, &Progress::none())
            .await
            .unwrap();
        assert_eq!(get(&store, id).await, data);
    }
    assert!(matches!(
        store.writer(id, all / 2 + 2 * CLUSTER).await.map(drop),
        Err(BlobError::NoSpace { .. })
    ));
    store.delete_blob(id).await.unwrap();
    assert_eq!(store.info().await.free_clusters, clusters);
}

#[tokio::test]
async fn metadata_pages_run_out_with_an_error() {
    let controller = controller(64);
    let options = FormatOptions {
        cluster_bytes: CLUSTER,
        metadata_pages: Some(4),
    };
    let store = BlobStore::format(controller.clone(), 1, options)
        .await
        .unwrap();
    let ids: Vec<_> =
        futures::future::join_all((0..4).map(|_| store.create_blob(plain("x")))).await;
    let ids: Vec<_> = ids.into_iter().map(Result::unwrap).collect();
    assert!(matches!(
        store.create_blob(plain("x")).await,
        Err(BlobError::NoMetadataPages { needed: 1, free: 0 })
    ));
    assert!(matches!(
        store.write_blob(ids[0], b"x", &Progress::none()).await,
        Err(BlobError::NoMetadataPages { .. })
    ));
    store.delete_blob(ids[1]).await.unwrap();
    for _ in 0..3 {
        store
            .write_blob(ids[0], b"x", &Progress::none())
            .await
            .unwrap();
    }
    assert_eq!(mount(&controller).await.list(), store.list());
}

#[tokio::test]
async fn a_fragmented_blob_takes_a_chain_of_metadata_pages() {
    let controller = Arc::new(ram(1 << 11, 64, MDTS));
    let store = format(&controller, u64::from(BLOCK)).await;
    let pages = store.info().await.free_metadata_pages;
    let mut small = Vec::new();
    for i in 0..300 {
        small.push(put(&store, plain("s"), &[i as u8]).await);
    }
    for id in small.iter().step_by(2) {
        store.delete_blob(*id).await.unwrap();
    }
    let before = store.info().await.free_metadata_pages;
    let data = pattern(9, 200 * BLOCK as usize);
    let id = put(&store, plain("big"), &data).await;
    let taken = before - store.info().await.free_metadata_pages;
    assert!(taken >= 3, "{taken} pages");
    for store in [&store, &look(&controller).await] {
        assert_eq!(get(store, id).await, data);
        for (i, id) in small.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(get(store, *id).await, [i as u8]);
        }
    }
    for id in small.iter().skip(1).step_by(2).chain([&id]) {
        store.delete_blob(*id).await.unwrap();
    }
    assert_eq!(store.info().await.free_metadata_pages, pages);
    assert_eq!(mount(&controller).await.info().await, store.info().await);
}

#[tokio::test]
async fn a_cancelled_or_dropped_write_leaves_the_old_content() {
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let old = pattern(1, 10_000);
    let id = put(&store, plain("x"), &old).await;
    let free = free_clusters(&store).await;

    let cancel = CancelToken::new();
    let calls = Arc::new(AtomicU64::new(0));
    let progress = Progress::new({
        let (cancel, calls) = (cancel.clone(), calls.clone());
        move |what, done, total| {
            assert_eq!(what, "write");
            assert_eq!(total, 50_000);
            assert_eq!(
                done,
                (calls.fetch_add(1, Ordering::SeqCst) + 1) * u64::from(MDTS)
            );
            if done > 20_000 {
                cancel.cancel();
            }
        }
    })
    .with_cancel(cancel);
    let new = pattern(2, 50_000);
    assert!(matches!(
        store.write_blob(id, &new, &progress).await,
        Err(BlobError::Cancelled)
    ));
    assert_eq!(calls.load(Ordering::SeqCst), 10);
    assert!(matches!(
        store.read_blob(id, &progress).await,
        Err(BlobError::Cancelled)
    ));
    let mut writer = store.writer(id, 50_000).await.unwrap();
    writer.write(&new).await.unwrap();
    drop(writer);
    assert_eq!(free_clusters(&store).await, free);
    assert_eq!(get(&store, id).await, old);
    assert_eq!(get(&mount(&controller).await, id).await, old);
}

#[tokio::test]
async fn sizes_that_do_not_match_are_refused() {
    let store = format(&controller(0), CLUSTER).await;
    let id = store
        .create_blob(with_sc("s", sc(VrType::Tv, 1, 100)))
        .await
        .unwrap();
    assert!(matches!(
        store.write_blob(id, &[0; 99], &Progress::none()).await,
        Err(BlobError::SizeMismatch {
            expected: 100,
            found: 99
        })
    ));
    let mut writer = store.writer(id, 100).await.unwrap();
    writer.write(&[0; 60]).await.unwrap();
    assert!(matches!(
        writer.write(&[0; 41]).await,
        Err(BlobError::SizeMismatch {
            expected: 100,
            found: 101
        })
    ));
    assert!(matches!(
        writer.commit().await,
        Err(BlobError::SizeMismatch {
            expected: 100,
            found: 60
        })
    ));
    assert!(!store.stat(id).unwrap().written);
}

#[tokio::test]
async fn files_go_in_and_out() {
    let dir = tempfile::tempdir().unwrap();
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let data = pattern(4, 123_457);
    std::fs::write(&from, &data).unwrap();
    std::fs::write(&to, b"old").unwrap();
    let with = sc(VrType::Tv, 9, data.len() as u64);
    let id = store.create_blob(with_sc("f", with)).await.unwrap();
    let progress = Progress::none();
    let stat = store.write_blob_file(id, &from, &progress).await.unwrap();
    assert_eq!(stat.crc32c, Some(crc32c::crc32c(&data)));
    let back = store.read_blob_file(id, &to, &progress).await.unwrap();
    assert_eq!(back.unwrap().vr(), with.vr());
    assert_eq!(std::fs::read(&to).unwrap(), data);

    // Nothing of a failed read appears.
    corrupt(&controller, HALF / 2, &data).await;
    let error = store
        .read_blob_file(id, &from, &progress)
        .await
        .unwrap_err();
    assert!(matches!(error, BlobError::Corrupt { .. }), "{error}");
    assert_eq!(std::fs::read(&from).unwrap(), data);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    assert!(matches!(
        store.write_blob_file(id, dir.path().join("none"), &progress).await,
        Err(BlobError::File { path, .. }) if path.ends_with("none")
    ));
    assert!(matches!(
        store.read_blob_file(id, "/", &progress).await,
        Err(BlobError::File { .. })
    ));
}

/// Changes a bit in the first block, of those below `end`, that holds the start of `data`.
async fn corrupt(controller: &RamController, end: u64, data: &[u8]) {
    for lba in 0..end {
        let mut block = nvme::read_blocks(controller, 1, lba, 1).await.unwrap();
        if block.data.starts_with(&data[..64]) {
            block.data[100] ^= 4;
            nvme::write_blocks(controller, 1, lba, &block.data, &block.metadata, true)
                .await
                .unwrap();
            return;
        }
    }
    panic!("data not found");
}

#[tokio::test]
async fn changed_data_is_detected_where_the_drive_does_not_compute() {
    for ty in VrType::ALL {
        let controller = controller(64);
        let store = format(&controller, CLUSTER).await;
        let data = pattern(8, 6000);
        let data_id = u32::from(ty != VrType::Prg);
        let id = put(&store, with_sc("s", sc(ty, data_id, 6000)), &data).await;
        corrupt(&controller, HALF, &data).await;
        let read = store.read_blob(id, &Progress::none()).await;
        assert_eq!(read.is_ok(), ty.is_sample(), "{ty}");
    }
}

#[tokio::test]
async fn one_bad_copy_of_the_super_block_is_repaired() {
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let id = put(&store, plain("x"), b"content").await;
    for lba in [0, 1, 0] {
        nvme::write_blocks(&*controller, 1, lba, &[0x55; BLOCK as usize], &[], true)
            .await
            .unwrap();
        assert_eq!(get(&mount(&controller).await, id).await, b"content");
    }
    for lba in [0, 1] {
        nvme::write_blocks(&*controller, 1, lba, &[0; BLOCK as usize], &[], true)
            .await
            .unwrap();
    }
    let mounted = BlobStore::mount(controller.clone(), 1, MountOptions::default()).await;
    assert!(matches!(
        mounted.map(drop),
        Err(BlobError::NotFormatted { nsid: 1 })
    ));
}

/// Commands that changed the medium so far.
fn writes_of(controller: &RamController) -> usize {
    let changes = |sqe: &Sqe| [opcode::WRITE, opcode::WRITE_ZEROES].contains(&sqe.opcode);
    controller
        .submitted()
        .iter()
        .filter(|sqe| changes(sqe))
        .count()
}

/// Two clients that change a store know nothing of each other's clusters.
#[tokio::test]
async fn a_mount_for_changes_ends_those_of_the_mount_before() {
    for metadata_size in [0, 64] {
        let controller = controller(metadata_size);
        let first = format(&controller, CLUSTER).await;
        let id = put(&first, plain("x"), b"old").await;
        let clusters = [1, 2].map(|piece| pattern(piece, CLUSTER as usize));
        let mut under_way = first.new_writer(plain("y"), 2 * CLUSTER).await.unwrap();
        under_way.write(&clusters[0]).await.unwrap();
        assert_eq!(get(&look(&controller).await, id).await, b"old");
        // A mount that only reads disturbs nobody, and changes nothing.
        let refused = look(&controller).await.create_blob(plain("z")).await;
        assert!(matches!(refused, Err(BlobError::ReadOnly)));
        let id = put(&first, plain("x"), b"newer").await;

        let second = mount(&controller).await;
        let theirs = pattern(9, 2 * CLUSTER as usize);
        let of_second = put(&second, plain("theirs"), &theirs).await;
        let writes = writes_of(&controller);
        let sequence = first.stat(id).unwrap().sequence;
        let none = Progress::none();
        let pieces = vec![(0, b"N".to_vec())];
        let refused = [
            first.create_blob(plain("z")).await.map(drop),
            first.write_blob(id, b"newest", &none).await.map(drop),
            first.update(id, sequence, 5, pieces, &none).await.map(drop),
            first.delete_blob(id).await,
            async {
                under_way.write(&clusters[1]).await?;
                under_way.commit().await.map(drop)
            }
            .await,
        ];
        for refused in refused {
            assert!(matches!(refused, Err(BlobError::MountedElsewhere)));
        }
        assert_eq!(writes_of(&controller), writes);
        assert_eq!(get(&second, of_second).await, theirs);
        assert_eq!(get(&first, id).await, b"newer");
        assert_eq!(get(&second, id).await, b"newer");
        put(&second, plain("z"), b"more").await;
        // One that mounts again goes on.
        let first = mount(&controller).await;
        put(&first, plain("x"), b"last").await;
        assert_eq!(first.list().len(), 5);
    }
}

/// A medium may claim any sequence number; the next one must neither overflow nor count as older.
#[tokio::test]
async fn without_a_next_sequence_number_the_store_only_reads() {
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let id = put(&store, plain("x"), b"content").await;
    drop(store);
    for lba in 2..10 {
        let mut page = nvme::read_blocks(&*controller, 1, lba, 1)
            .await
            .unwrap()
            .data;
        let is_head = page[4] == 1;
        if is_head {
            page[32..40].copy_from_slice(&(u64::MAX >> 1).to_le_bytes());
            let crc = crc32c::crc32c_append(crc32c::crc32c(&page[..60]), &page[64..]);
            page[60..64].copy_from_slice(&crc.to_le_bytes());
            nvme::write_blocks(&*controller, 1, lba, &page, &[], true)
                .await
                .unwrap();
        }
    }
    for _ in 0..2 {
        let store = mount(&controller).await;
        let created = store.create_blob(plain("y")).await.map(drop);
        let written = store.write_blob(id, b"new", &Progress::none()).await;
        let deleted = store.delete_blob(id).await;
        for refused in [created, written.map(drop), deleted] {
            assert!(matches!(refused, Err(BlobError::NoSequenceNumber)));
        }
        assert_eq!(get(&store, id).await, b"content");
    }
}

#[tokio::test]
async fn unsuitable_namespaces_and_options_are_refused() {
    let odd: Arc<dyn Controller> = Arc::new(ram(1000, 0, MDTS));
    let even: Arc<dyn Controller> = Arc::new(ram(1024, 0, MDTS));
    let try_format =
        async |controller: &Arc<dyn Controller>, nsid, cluster_bytes, metadata_pages| {
            let options = FormatOptions {
                cluster_bytes,
                metadata_pages,
            };
            BlobStore::format(controller.clone(), nsid, options)
                .await
                .map(drop)
        };
    assert!(try_format(&even, 1, CLUSTER, None).await.is_ok());
    for (controller, cluster, pages) in [
        (&odd, CLUSTER, None),
        (&even, CLUSTER + 1, None),
        (&even, 0, None),
        (&even, 256, None),
        (&even, 1 << 40, None),
        (&even, 1 << 60, None),
        (&even, CLUSTER, Some(0)),
        (&even, CLUSTER, Some(510)),
        (&even, CLUSTER, Some(u32::MAX)),
    ] {
        let error = try_format(controller, 1, cluster, pages).await.unwrap_err();
        assert!(matches!(error, BlobError::Unsuitable(_)), "{error}");
    }
    assert!(matches!(
        try_format(&even, 2, CLUSTER, None).await,
        Err(BlobError::Nvme(_))
    ));
}

/// Runs create, write, overwrite and delete with the `nth` command failing; gives whether it was reached.
async fn changes_with_a_fault(metadata_size: u16, nth: u64, count: u64) -> bool {
    let controller = controller(metadata_size);
    let store = format(&controller, CLUSTER).await;
    let contents: Vec<Vec<u8>> = (0..3).map(|i| pattern(i, 5000)).collect();
    let keep = put(&store, plain("keep"), &contents[0]).await;
    let id = put(&store, with_sc("x", sc(VrType::Tv, 1, 5000)), &contents[0]).await;
    let before = controller.submitted().len() as u64;
    controller.fail_from(nth, count, Status::WRITE_FAULT);
    // What the blob may hold; `None` is "deleted".
    let mut possible: Vec<Option<usize>> = vec![Some(0)];
    for i in [1, 2, 1] {
        match store.write_blob(id, &contents[i], &Progress::none()).await {
            Ok(_) => possible = vec![Some(i)],
            Err(BlobError::Nvme(_) | BlobError::InDoubt) => possible.push(Some(i)),
            Err(e) => panic!("{e}"),
        }
    }
    match store.delete_blob(id).await {
        Ok(()) => possible = vec![None],
        Err(BlobError::Nvme(_) | BlobError::InDoubt) => possible.push(None),
        Err(e) => panic!("{e}"),
    }
    let reached = controller.submitted().len() as u64 - before >= nth;
    controller.clear_faults();
    let mut stores = vec![store];
    for crash in [false, true] {
        if crash {
            controller.crash();
        }
        stores.push(mount(&controller).await);
        for store in &stores[usize::from(crash) * 2..] {
            assert_eq!(get(store, keep).await, contents[0]);
            let found = match store.read_blob(id, &Progress::none()).await {
                Ok(read) => Some(contents.iter().position(|c| *c == read.data).unwrap()),
                Err(BlobError::NoSuchBlob(_)) => None,
                Err(e) => panic!("{e}"),
            };
            assert!(possible.contains(&found), "{found:?} not in {possible:?}");
        }
    }
    // And the store works on.
    let store = mount(&controller).await;
    let new = put(&store, plain("new"), &contents[2]).await;
    assert_eq!(get(&mount(&controller).await, new).await, contents[2]);
    reached
}

#[tokio::test]
async fn a_failing_command_anywhere_leaves_old_or_new() {
    for metadata_size in [0, 64] {
        for count in [1, 2, 3, 1000] {
            let mut nth = 1;
            while changes_with_a_fault(metadata_size, nth, count).await {
                nth += 1;
            }
            assert!(nth > 20);
        }
    }
}

/// Replaces the contents of two blobs and makes a third, all at once, with the `nth` command failing; gives whether it was reached.
async fn a_group_with_a_fault(metadata_size: u16, nth: u64, count: u64) -> bool {
    let controller = controller(metadata_size);
    let store = format(&controller, CLUSTER).await;
    let [old, new] = [1, 2].map(|seed| pattern(seed, 5000));
    let a = put(&store, plain("a"), &old).await;
    let b = put(&store, with_sc("b", sc(VrType::Tv, 1, 5000)), &old).await;
    let before = controller.submitted().len() as u64;
    controller.fail_from(nth, count, Status::WRITE_FAULT);
    let change = async {
        let mut writers = vec![
            store.writer(a, 5000).await?,
            store.writer(b, 5000).await?,
            store.new_writer(plain("c"), 5000).await?,
        ];
        for writer in &mut writers {
            writer.write(&new).await?;
        }
        store.commit_all(writers).await
    };
    let changed = change.await;
    let reached = controller.submitted().len() as u64 - before >= nth;
    controller.clear_faults();
    let all_or_none = async |store: &BlobStore| {
        let names: Vec<_> = store.list().into_iter().map(|blob| blob.name).collect();
        let third = names.contains(&"c".to_owned());
        let expected = if third { &new } else { &old };
        for blob in store.list() {
            assert_eq!(&get(store, blob.id).await, expected, "{names:?}, {nth}");
        }
        third
    };
    let stands = all_or_none(&store).await;
    if let Ok(stats) = &changed {
        let names: Vec<_> = stats.iter().map(|stat| stat.name.as_str()).collect();
        assert_eq!((stands, names), (true, vec!["a", "b", "c"]));
    }
    let mut rng = Rng(nth * 1000 + count);
    match count {
        1 => {}
        2 => controller.crash(),
        _ => controller.crash_with(|_, _, versions| rng.below(versions as u64 + 1) as usize),
    }
    let mounted = mount(&controller).await;
    let stands = all_or_none(&mounted).await;
    assert!(stands || changed.is_err());
    // And the store works on, with every cluster and page that it had.
    let info = mounted.info().await;
    let data = pattern(3, 5000);
    mounted
        .write_blob(a, &data, &Progress::none())
        .await
        .unwrap();
    let again = mount(&controller).await;
    assert_eq!(get(&again, a).await, data);
    let after = again.info().await;
    assert_eq!(after.free_clusters, info.free_clusters);
    assert_eq!(after.free_metadata_pages, info.free_metadata_pages);
    reached
}

#[tokio::test]
async fn several_blobs_change_together_or_not_at_all() {
    for metadata_size in [0, 64] {
        for count in [1, 2, 3, 1000] {
            let mut nth = 1;
            while a_group_with_a_fault(metadata_size, nth, count).await {
                nth += 1;
            }
            assert!(nth > 15);
        }
    }
}

#[tokio::test]
async fn a_group_that_does_not_fit_changes_nothing() {
    let controller = controller(64);
    let store = format(&controller, CLUSTER).await;
    let all = u64::from(store.info().await.clusters) * CLUSTER;
    let id = put(&store, plain("kept"), &pattern(1, 5000)).await;
    let writers = vec![store.writer(id, 5000).await.unwrap()];
    let second = store.new_writer(plain("large"), all - 2 * CLUSTER).await;
    assert!(matches!(second.map(drop), Err(BlobError::NoSpace { .. })));
    drop(writers);
    assert_eq!(get(&store, id).await, pattern(1, 5000));
    assert_eq!(store.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_share_a_store() {
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let shared = put(&store, plain("shared"), &[0; 9000]).await;
    let tasks = (0..8u64).map(|t| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut rng = Rng(t);
            let mut mine: Vec<(BlobId, Vec<u8>)> = Vec::new();
            for round in 0..40 {
                match rng.below(4) {
                    0 => {
                        let data = pattern(rng.next(), rng.below(12_000) as usize);
                        mine.push((put(&store, plain("t"), &data).await, data));
                    }
                    1 if !mine.is_empty() => {
                        let (id, _) = mine.swap_remove(rng.below(mine.len() as u64) as usize);
                        store.delete_blob(id).await.unwrap();
                    }
                    2 => {
                        let fill = [(t * 40 + round) as u8; 9000];
                        store
                            .write_blob(shared, &fill, &Progress::none())
                            .await
                            .unwrap();
                    }
                    _ => {
                        let seen = get(&store, shared).await;
                        assert!(seen.iter().all(|b| *b == seen[0]), "mixed content");
                    }
                }
                for (id, data) in &mine {
                    assert_eq!(get(&store, *id).await, *data);
                }
            }
            mine
        })
    });
    let done = futures::future::join_all(tasks.collect::<Vec<_>>()).await;
    let store = mount(&controller).await;
    for (id, data) in done.into_iter().flat_map(Result::unwrap) {
        assert_eq!(get(&store, id).await, data);
    }
}

/// A small store with some history, for the tests that damage it, and its blobs.
async fn sample_store(metadata_size: u16) -> (Arc<RamController>, Vec<(BlobId, Vec<u8>)>) {
    let controller = Arc::new(ram(512, metadata_size, MDTS));
    let options = FormatOptions {
        cluster_bytes: u64::from(BLOCK),
        metadata_pages: Some(16),
    };
    let store = BlobStore::format(controller.clone(), 1, options)
        .await
        .unwrap();
    let mut blobs = Vec::new();
    for i in 0..6u64 {
        let data = pattern(i, 300 * i as usize);
        blobs.push((put(&store, plain("blob"), &data).await, data));
    }
    store.delete_blob(blobs.remove(2).0).await.unwrap();
    (controller, blobs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_medium_gives_errors_or_right_data(
        metadata_size in prop::sample::select(vec![0u16, 64]),
        flips in prop::collection::vec((0u64..20, 0usize..512, 1u8..), 1..6),
        copied in prop::option::of((0u64..18, 0u64..18)),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (controller, blobs) = sample_store(metadata_size).await;
            if let Some((from, to)) = copied {
                let block = nvme::read_blocks(&*controller, 1, from, 1).await.unwrap();
                nvme::write_blocks(&*controller, 1, to, &block.data, &[], true).await.unwrap();
            }
            for (lba, at, by) in flips {
                let mut block = nvme::read_blocks(&*controller, 1, lba, 1).await.unwrap();
                block.data[at] ^= by;
                nvme::write_blocks(&*controller, 1, lba, &block.data, &[], true).await.unwrap();
            }
            for drop_damaged in [false, true] {
                let options = MountOptions { drop_damaged, ..MountOptions::default() };
                let Ok(store) = BlobStore::mount(controller.clone(), 1, options).await else {
                    continue;
                };
                for (id, data) in &blobs {
                    if let Ok(read) = store.read_blob(*id, &Progress::none()).await
                        && store.stat(*id).unwrap().written {
                        assert!(read.data == *data);
                    }
                }
                let id = put(&store, plain("after"), b"after").await;
                assert_eq!(get(&store, id).await, b"after");
            }
        });
    }
}

/// What a [`Slow`] drive saw; clusters by their first block.
#[derive(Debug, PartialEq)]
enum Event {
    Cleared(u64),
    Began(u64),
    Flushed { waiting: usize },
}

/// A drive that keeps data writes of full length waiting until it is told to end the newest of them.
struct Slow {
    ram: RamController,
    waiting: Mutex<Vec<oneshot::Sender<bool>>>,
    log: Mutex<Vec<Event>>,
}

impl Slow {
    fn new() -> Arc<Slow> {
        Arc::new(Slow {
            ram: ram(2 * HALF, 0, MDTS),
            waiting: Mutex::default(),
            log: Mutex::default(),
        })
    }

    async fn run(&self, request: Request) -> Response {
        let blocks = CLUSTER / u64::from(BLOCK);
        match Command::parse(&request.sqe) {
            Ok(Command::Write(io)) if request.data.len() == MDTS as usize => {
                let cluster = io.slba / blocks * blocks;
                self.log.lock().unwrap().push(Event::Began(cluster));
                let (end, ended) = oneshot::channel();
                self.waiting.lock().unwrap().push(end);
                if !ended.await.unwrap() {
                    let cid = request.sqe.cid.get();
                    return Response::failure(cid, Status::WRITE_FAULT, false);
                }
                self.ram.submit(request).await
            }
            Ok(Command::WriteZeroes { io, .. }) if io.slba >= HALF => {
                let response = self.ram.submit(request).await;
                self.log
                    .lock()
                    .unwrap()
                    .push(Event::Cleared(io.slba - HALF));
                response
            }
            Ok(Command::Flush { .. }) => {
                let waiting = self.waiting.lock().unwrap().len();
                self.log.lock().unwrap().push(Event::Flushed { waiting });
                self.ram.submit(request).await
            }
            _ => self.ram.submit(request).await,
        }
    }

    /// Ends the newest write that waits, well or with an error; gives how many waited.
    fn end_newest(&self, well: bool) -> usize {
        let mut waiting = self.waiting.lock().unwrap();
        let count = waiting.len();
        if let Some(write) = waiting.pop() {
            write.send(well).unwrap();
        }
        count
    }

    /// Lets `write` run on, the newest command first; the one with the number `failing` fails. Gives the result and the most that waited.
    async fn complete<T: Send + 'static>(
        &self,
        write: impl Future<Output = T> + Send + 'static,
        failing: usize,
    ) -> (T, usize) {
        let write = tokio::spawn(write);
        let (mut most, mut ended) = (0, 0);
        while !write.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let waiting = self.end_newest(ended != failing);
            most = most.max(waiting);
            ended += usize::from(waiting > 0);
        }
        (write.await.unwrap(), most)
    }

    /// Whether the drive knew of each cluster that it holds plain data before any of them came, and nothing waited when it was flushed.
    fn check_order(&self) {
        let mut cleared = HashSet::new();
        for event in self.log.lock().unwrap().drain(..) {
            match event {
                Event::Cleared(cluster) => drop(cleared.insert(cluster)),
                Event::Began(cluster) => assert!(cleared.contains(&cluster), "{cluster}"),
                Event::Flushed { waiting } => assert_eq!(waiting, 0),
            }
        }
    }
}

impl Controller for Slow {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        Box::pin(self.run(request))
    }

    fn info(&self) -> &ControllerInfo {
        self.ram.info()
    }
}

#[tokio::test]
async fn several_commands_of_plain_data_may_end_in_any_order() {
    const NONE: usize = usize::MAX;
    let size = 5 * CLUSTER;
    let drive = Slow::new();
    let store = format(&drive, CLUSTER).await;
    let id = store.create_blob(plain("x")).await.unwrap();
    let write = |data: Vec<u8>| {
        let store = store.clone();
        async move { store.write_blob(id, &data, &Progress::none()).await }
    };
    let first = pattern(1, size as usize);
    let (written, waited) = drive.complete(write(first.clone()), NONE).await;
    written.unwrap();
    assert!(waited > 4, "{waited}");
    drive.check_order();
    assert!(get(&look(&drive).await, id).await == first);

    // Whichever fails, nothing has changed.
    for failing in [0, 3, 9] {
        let (written, _) = drive
            .complete(write(pattern(2, size as usize)), failing)
            .await;
        assert!(matches!(written, Err(BlobError::Nvme(_))));
        while drive.end_newest(true) > 0 {}
        assert!(get(&store, id).await == first);
    }
    let update = {
        let (store, sequence) = (store.clone(), store.stat(id).unwrap().sequence);
        let pieces = vec![(0, pattern(3, 3 * CLUSTER as usize))];
        async move {
            let none = Progress::none();
            store.update(id, sequence, size, pieces, &none).await
        }
    };
    let (updated, waited) = drive.complete(update, NONE).await;
    updated.unwrap();
    assert!(waited > 2, "{waited}");
    let expected = [
        &pattern(3, 3 * CLUSTER as usize)[..],
        &first[3 * CLUSTER as usize..],
    ]
    .concat();
    assert!(get(&look(&drive).await, id).await == expected);

    // Clusters that commands are on their way to belong to nobody else.
    let free = free_clusters(&store).await;
    let mut writer = store.writer(id, size).await.unwrap();
    writer.write(&first).await.unwrap();
    drop(writer);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(store.info().await.free_clusters, free - 5);
    while drive.end_newest(true) > 0 {}
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(free_clusters(&store).await, free);
}
