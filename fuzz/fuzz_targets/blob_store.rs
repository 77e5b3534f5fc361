//! A blob store whose super block and metadata pages hold arbitrary bytes is refused, or mounts as one in which every cluster
//! has one owner and changes to one blob, of the whole or of parts, leave the others and the readers alone.
//!
//! A sound store is the start; the input splices bytes into it, copies and clears blocks, and chooses whether the checksums of
//! the changed blocks are put right again.
#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use toroid_client::blob::{
    BlobError, BlobId, BlobReader, BlobStat, BlobStore, FormatOptions, MountOptions, NewBlob,
};
use toroid_fuzz::{Input, repeat};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, VrType};
use toroid_nvme::testing::RamController;
use toroid_nvme::{Blocks, Controller, ControllerInfo, Namespace, read_blocks, write_blocks};
use toroid_task::Progress;

const BLOCK: usize = 512;
const BLOCKS: u64 = 256;
const CLUSTER_BYTES: u64 = 2048;
const PAGES: u32 = 22;
/// Super block, twice, then the metadata pages.
const HEAD_BLOCKS: usize = 2 + PAGES as usize;
const NSID: u32 = 1;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().build();
    runtime.expect("a runtime without drivers")
});
static WITH_METADATA: LazyLock<Blocks> = LazyLock::new(|| RUNTIME.block_on(sound(64)));
static SECOND_HALF: LazyLock<Blocks> = LazyLock::new(|| RUNTIME.block_on(sound(0)));

fn host(metadata_size: u16) -> Arc<RamController> {
    let namespace = Namespace::new(NSID, BLOCK as u32, BLOCKS, metadata_size);
    Arc::new(RamController::with_info(ControllerInfo {
        mdts_bytes: 8192,
        // Writes go straight to the medium: this target is not about power loss.
        volatile_write_cache: false,
        serial: "RAM".into(),
        model: "RAM".into(),
        firmware: "1".into(),
        namespaces: vec![namespace.expect("a possible geometry")],
        other_namespaces: Vec::new(),
        vendor_statuses: &[],
    }))
}

/// All blocks of a store with a few blobs, one of them in several extents.
async fn sound(metadata_size: u16) -> Blocks {
    let host = host(metadata_size);
    let options = FormatOptions {
        cluster_bytes: CLUSTER_BYTES,
        metadata_pages: Some(PAGES),
    };
    let store = BlobStore::format(host.clone(), NSID, options).await;
    let store = store.expect("possible sizes");
    let mut ids = Vec::new();
    for (number, size) in [3000usize, 5000, 2048, 1, 0, 7000].into_iter().enumerate() {
        let vr = VrNumber::new(VrType::LweCor, 1, number as u32).expect("a small key id");
        let sc = (number % 2 == 1)
            .then(|| ScMetadata::new(vr, 5, size as u64).expect("a possible size"));
        let name = if number == 2 {
            "n".repeat(255)
        } else {
            format!("blob {number}")
        };
        let blob = NewBlob { name, sc };
        let id = store.create_blob(blob).await.expect("there is room");
        if size > 0 {
            let data = vec![number as u8; size];
            let written = store.write_blob(id, &data, &Progress::none()).await;
            written.expect("there is room");
        }
        ids.push(id);
    }
    store.delete_blob(ids[2]).await.expect("it is there");
    let longer = store
        .write_blob(ids[0], &[9; 9000], &Progress::none())
        .await;
    longer.expect("there is room");
    let blocks = read_blocks(&*host, NSID, 0, BLOCKS).await;
    let mut blocks = blocks.expect("blocks that exist");
    // The identifier is random, and the input must mean the same in every run.
    let head = blocks.data.chunks_exact_mut(BLOCK).take(HEAD_BLOCKS);
    for (number, block) in head.enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            let at = if number < 2 { 24 } else { 8 };
            block[at..at + 16].fill(0xA5);
            set_crc(number, block);
        }
    }
    blocks
}

/// Puts the checksum of a super block or metadata page right.
fn set_crc(number: usize, block: &mut [u8]) {
    if number < 2 {
        let crc = crc32c::crc32c(&block[..124]);
        block[124..128].copy_from_slice(&crc.to_le_bytes());
    } else {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..60]), &block[64..]);
        block[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Changes blocks as the input says.
fn damage(head: &mut [u8], choice: u8, input: &mut Input) {
    let edits = input.u8() % 16;
    for _ in 0..edits {
        let what = input.u8();
        let number = usize::from(input.u8()) % HEAD_BLOCKS;
        let block = &mut head[number * BLOCK..][..BLOCK];
        match what % 6 {
            0 => {
                let at = usize::from(input.u16()) % BLOCK;
                let len = usize::from(input.u8()).min(BLOCK - at);
                let bytes = input.bytes(len);
                block[at..at + bytes.len()].copy_from_slice(bytes);
            }
            // Header fields and the fixed part of a record are aligned.
            1 => {
                let at = usize::from(input.u8()) % 48 * 4;
                block[at..at + 4].copy_from_slice(&input.array::<4>());
            }
            2 => {
                let at = usize::from(input.u8()) % 48 * 4;
                block[at] = input.u8();
            }
            3 => {
                let at = usize::from(input.u16()) % BLOCK;
                block[at] ^= 1 << (what >> 5);
            }
            4 => {
                let from = usize::from(input.u8()) % HEAD_BLOCKS;
                head.copy_within(from * BLOCK..(from + 1) * BLOCK, number * BLOCK);
            }
            _ => block.fill(0),
        }
        let block = &mut head[number * BLOCK..][..BLOCK];
        if choice & 2 != 0 && block.iter().any(|byte| *byte != 0) {
            set_crc(number, block);
        }
    }
}

fn changed(error: &BlobError) {
    assert!(!error.to_string().is_empty());
}

/// What every state of a mounted store must obey; gives what each blob holds.
async fn contents(store: &BlobStore) -> BTreeMap<BlobId, (BlobStat, Option<Vec<u8>>)> {
    let info = store.info().await;
    let list = store.list();
    assert_eq!(list.len(), info.blobs);
    let mut contents = BTreeMap::new();
    for stat in list {
        assert_eq!(store.stat(stat.id).expect("it is in the list"), stat);
        assert!(stat.name.len() <= 255);
        assert_eq!(u64::from(stat.clusters), stat.size.div_ceil(CLUSTER_BYTES));
        let data = match store.read_blob(stat.id, &Progress::none()).await {
            Ok(data) => {
                assert_eq!(data.data.len() as u64, stat.size);
                let (start, len) = (data.data.len() / 3, data.data.len() / 2);
                let reader = store.reader(stat.id).expect("it is in the list");
                let range = reader.read_at(start as u64, len).await;
                assert!(range.expect("it was read before") == data.data[start..start + len]);
                Some(data.data)
            }
            Err(error) => {
                changed(&error);
                None
            }
        };
        contents.insert(stat.id, (stat, data));
    }
    contents
}

/// Clusters that belong to blobs and those that are free are all there are, which they cannot be if one belongs to two.
async fn check_owners(store: &BlobStore) {
    let info = store.info().await;
    let owned: u64 = store
        .list()
        .iter()
        .map(|stat| u64::from(stat.clusters))
        .sum();
    assert_eq!(owned + u64::from(info.free_clusters), info.clusters.into());
    assert!(info.free_metadata_pages <= info.metadata_pages);
}

/// Puts blocks on a medium that is all zero.
async fn fill(host: &RamController, whole: &Blocks) {
    let metadata_size = whole.metadata.len() / BLOCKS as usize;
    let metadata = |lba: usize| &whole.metadata[lba * metadata_size..(lba + 1) * metadata_size];
    for (lba, data) in whole.data.chunks_exact(BLOCK).enumerate() {
        if data.iter().chain(metadata(lba)).any(|byte| *byte != 0) {
            let written = write_blocks(host, NSID, lba as u64, data, metadata(lba), false).await;
            written.expect("a block that exists");
        }
    }
}

/// Updates parts of a blob as the input says. With it comes what the blob must hold then, where what it held before is known.
async fn update(
    store: &BlobStore,
    id: BlobId,
    former: Option<&[u8]>,
    input: &mut Input<'_>,
) -> Result<Option<Vec<u8>>, BlobError> {
    let stat = store.stat(id)?;
    let how = input.u8();
    let size = match how & 3 {
        0 => stat.size,
        1 => stat.size.saturating_add(u64::from(input.u16())),
        2 => u64::from(input.u16()) % 9000,
        _ => input.u64(),
    };
    let pieces: Vec<(u64, Vec<u8>)> = (0..how >> 2 & 3)
        .map(|_| {
            let offset = match input.u8() {
                255 => input.u64(),
                254 => stat.size,
                near => u64::from(near) * 37,
            };
            let len = usize::from(input.u16()) % 5000;
            (offset, repeat(&[how, 0x77, 0x22], len))
        })
        .collect();
    let expected = if how >> 4 == 15 {
        input.u64()
    } else {
        stat.sequence
    };
    let progress = Progress::none();
    let new = store
        .update(id, expected, size, pieces.clone(), &progress)
        .await?;
    assert_eq!(expected, stat.sequence);
    assert!(stat.sc.is_none());
    assert_eq!((new.size, new.crc32c), (size, None));
    Ok(former.map(|former| {
        let mut data = former.to_vec();
        data.resize(size as usize, 0);
        for (offset, bytes) in pieces {
            data[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        data
    }))
}

async fn run(sound: &Blocks, choice: u8, input: &mut Input<'_>) {
    let mut data = sound.data.clone();
    damage(&mut data[..HEAD_BLOCKS * BLOCK], choice, input);
    let host = host(if sound.metadata.is_empty() { 0 } else { 64 });
    let whole = Blocks {
        data,
        metadata: sound.metadata.clone(),
    };
    fill(&host, &whole).await;
    let options = MountOptions {
        drop_damaged: choice & 4 != 0,
        ..MountOptions::default()
    };
    let store = match BlobStore::mount(host.clone() as Arc<dyn Controller>, NSID, options).await {
        Ok(store) => store,
        Err(error) => return changed(&error),
    };
    check_owners(&store).await;
    let mut expected = contents(&store).await;
    let mut snapshots: Vec<(BlobReader, Vec<u8>)> = Vec::new();

    for _ in 0..input.u8() % 8 {
        let what = input.u8();
        let nth = usize::from(what >> 2) % (expected.len() + 1);
        let id = expected
            .keys()
            .nth(nth)
            .copied()
            .unwrap_or(BlobId(input.u64()));
        if let (Ok(reader), Some((_, Some(data)))) = (store.reader(id), expected.get(&id)) {
            snapshots.push((reader, data.clone()));
        }
        let touched = match what % 4 {
            0 => {
                let name = "n".repeat(usize::from(input.u8()));
                match store.create_blob(NewBlob { name, sc: None }).await {
                    Ok(id) => {
                        assert!(!expected.contains_key(&id));
                        Some(id)
                    }
                    Err(error) => {
                        changed(&error);
                        None
                    }
                }
            }
            1 => match store.delete_blob(id).await {
                Ok(()) => Some(id),
                Err(error) => {
                    changed(&error);
                    None
                }
            },
            2 => {
                let former = expected.get(&id).and_then(|(_, data)| data.as_deref());
                match update(&store, id, former, input).await {
                    Ok(data) => {
                        if let Some(data) = data {
                            let read = store.read_blob(id, &Progress::none()).await;
                            assert!(read.expect("it was written just now").data == data);
                        }
                        Some(id)
                    }
                    Err(error) => {
                        changed(&error);
                        None
                    }
                }
            }
            _ => {
                let data = repeat(&[what, 0xEE, 0x11], usize::from(input.u16()) % 9000);
                let mut writer = match store.writer_with_sc(id, data.len() as u64, None).await {
                    Ok(writer) => writer,
                    Err(error) => {
                        changed(&error);
                        continue;
                    }
                };
                writer
                    .write(&data)
                    .await
                    .expect("the medium takes everything");
                match writer.commit().await {
                    Ok(_) => {
                        let read = store.read_blob(id, &Progress::none()).await;
                        assert!(read.expect("it was written just now").data == data);
                        Some(id)
                    }
                    Err(error) => {
                        changed(&error);
                        None
                    }
                }
            }
        };
        let mut found = contents(&store).await;
        if let Some(id) = touched {
            expected.remove(&id);
            if let Some(new) = found.remove(&id) {
                assert!(expected == found);
                expected.insert(id, new.clone());
                found.insert(id, new);
            }
        }
        assert!(expected == found);
        for (reader, data) in &snapshots {
            let read = reader.read_at(0, data.len()).await;
            assert!(read.expect("its clusters are kept") == *data);
        }
        snapshots.truncate(usize::from(what >> 6));
    }

    drop((snapshots, store));
    let store = BlobStore::mount(host as Arc<dyn Controller>, NSID, options).await;
    let store = store.expect("it was mounted before");
    check_owners(&store).await;
    assert!(contents(&store).await == expected);
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.u8();
    // Made before the runtime is entered, since they use it too.
    let sound: &Blocks = if choice & 1 == 0 {
        &WITH_METADATA
    } else {
        &SECOND_HALF
    };
    RUNTIME.block_on(run(sound, choice, &mut input));
});
