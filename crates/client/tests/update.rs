//! Updates of parts of a blob, and reads of them: against a vector of bytes, under readers, side by side, on a full store, and cut
//! short at every command.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use common::*;
use toroid_client::blob::{BlobError, BlobId, BlobReader, BlobStat, BlobStore, NewBlob};
use toroid_isa::VrType;
use toroid_nvme::testing::RamController;
use toroid_nvme::{Command, Status};
use toroid_task::{CancelToken, Progress};

const CLUSTER: u64 = 8 * BLOCK as u64;
const HALF: u64 = 1 << 12;
/// MDTS of half a cluster, so that clusters take two commands.
const MDTS: u32 = 4 * BLOCK;

type Pieces = Vec<(u64, Vec<u8>)>;

fn controller(metadata_size: u16) -> Arc<RamController> {
    let blocks = if metadata_size == 0 { 2 * HALF } else { HALF };
    Arc::new(ram(blocks, metadata_size, MDTS))
}

fn plain() -> NewBlob {
    NewBlob {
        name: "column".into(),
        sc: None,
    }
}

async fn put(store: &BlobStore, data: &[u8]) -> BlobStat {
    let id = store.create_blob(plain()).await.unwrap();
    write(store, id, data).await
}

async fn write(store: &BlobStore, id: BlobId, data: &[u8]) -> BlobStat {
    store.write_blob(id, data, &Progress::none()).await.unwrap()
}

async fn get(store: &BlobStore, id: BlobId) -> Vec<u8> {
    store.read_blob(id, &Progress::none()).await.unwrap().data
}

async fn update(
    store: &BlobStore,
    stat: &BlobStat,
    size: u64,
    pieces: Pieces,
) -> Result<BlobStat, BlobError> {
    let progress = Progress::none();
    store
        .update(stat.id, stat.sequence, size, pieces, &progress)
        .await
}

/// What an update makes of `data`.
fn apply(data: &[u8], size: u64, pieces: &Pieces) -> Vec<u8> {
    let mut data = data.to_vec();
    data.resize(size as usize, 0);
    for (offset, bytes) in pieces {
        data[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    data
}

/// A random update of a content of `former` bytes: an append, a replacement, a smaller size, or all of them.
fn random_update(rng: &mut Rng, former: u64, most: u64) -> (u64, Pieces) {
    let size = match rng.below(4) {
        0 => former,
        1 => rng.below(most),
        2 => former - rng.below(former + 1).min(3000),
        _ => (former + rng.below(3000)).min(most),
    };
    let mut pieces = Pieces::new();
    let mut at = match rng.below(3) {
        0 => former.min(size),
        _ => rng.below(size + 1),
    };
    for _ in 0..rng.below(4) {
        let end = (at + [1, 100, 513, CLUSTER, 3 * CLUSTER][rng.below(5) as usize]).min(size);
        pieces.push((at, pattern(rng.next(), (end - at) as usize)));
        at = (end + rng.below(2000) * rng.below(2)).min(size);
    }
    if rng.below(2) == 0 {
        pieces.reverse();
    }
    (size, pieces)
}

/// Clusters in use are those of the blobs, once a change has settled what earlier ones set free.
async fn no_leak(store: &BlobStore) {
    let id = store.create_blob(plain()).await.unwrap();
    store.delete_blob(id).await.unwrap();
    let owned: u32 = store.list().iter().map(|stat| stat.clusters).sum();
    let info = store.info().await;
    assert_eq!(info.free_clusters + owned, info.clusters);
}

async fn random_range(rng: &mut Rng, reader: &BlobReader, data: &[u8]) {
    let offset = rng.below(data.len() as u64 + 1) as usize;
    let len = rng.below((data.len() - offset) as u64 + 1) as usize;
    let read = reader.read_at(offset as u64, len).await.unwrap();
    assert!(read == data[offset..offset + len]);
}

#[tokio::test]
async fn random_updates_do_to_a_blob_what_they_do_to_a_vector() {
    for (metadata_size, seed) in [(0, 1), (64, 2), (0, 3), (64, 4)] {
        let mut rng = Rng(seed);
        let controller = controller(metadata_size);
        let mut store = format(&controller, CLUSTER).await;
        let mut data = Vec::new();
        let id = store.create_blob(plain()).await.unwrap();
        let mut stat = store.stat(id).unwrap();
        // Reuses what the updates set free.
        let mut other = put(&store, &[]).await;
        let mut other_data = Vec::new();
        let mut snapshots: Vec<(BlobReader, Vec<u8>)> = Vec::new();
        for round in 0..250 {
            if rng.below(3) == 0 {
                snapshots.push((store.reader(id).unwrap(), data.clone()));
            }
            let (size, pieces) = random_update(&mut rng, data.len() as u64, 60_000);
            data = apply(&data, size, &pieces);
            let new = update(&store, &stat, size, pieces).await.unwrap();
            assert!(new.sequence > stat.sequence);
            assert_eq!((new.size, new.crc32c, new.written), (size, None, true));
            assert_eq!(u64::from(new.clusters), size.div_ceil(CLUSTER));
            assert_eq!(
                (&new.name, store.stat(id).unwrap()),
                (&stat.name, new.clone())
            );
            stat = new;
            assert!(get(&store, id).await == data, "round {round}");
            let reader = store.reader(id).unwrap();
            assert_eq!(reader.stat(), stat);
            random_range(&mut rng, &reader, &data).await;
            if rng.below(4) == 0 {
                other_data = pattern(round, rng.below(40_000) as usize);
                other = write(&store, other.id, &other_data).await;
            }
            for (reader, data) in &snapshots {
                random_range(&mut rng, reader, data).await;
            }
            if snapshots.len() > 4 || rng.below(20) == 0 && !snapshots.is_empty() {
                let at = rng.below(snapshots.len() as u64) as usize;
                let (mut reader, data) = snapshots.swap_remove(at);
                let mut seen = Vec::new();
                while let Some(chunk) = reader.next_chunk().await.unwrap() {
                    seen.extend_from_slice(&chunk);
                }
                assert!(seen == data);
            }
            if round % 25 == 24 {
                snapshots.clear();
                no_leak(&store).await;
                store = mount(&controller).await;
                no_leak(&store).await;
                assert_eq!(store.stat(id).unwrap(), stat);
                assert!(get(&store, id).await == data);
                assert!(get(&store, other.id).await == other_data);
            }
        }
        // Written as a whole it has a checksum again.
        let written = write(&store, id, &data).await;
        assert_eq!(written.crc32c, Some(crc32c::crc32c(&data)));
    }
}

/// Logical blocks of data that the commands since `from` read and wrote.
async fn traffic(controller: &RamController, store: &BlobStore, from: usize) -> (u64, u64) {
    let first = store.info().await.first_data_lba;
    let (mut read, mut written) = (0, 0);
    for sqe in &controller.submitted()[from..] {
        match Command::parse(sqe) {
            Ok(Command::Read(io)) if (first..HALF).contains(&io.slba) => {
                assert!(u64::from(io.blocks) * u64::from(BLOCK) <= u64::from(MDTS));
                read += u64::from(io.blocks);
            }
            Ok(Command::Write(io)) if (first..HALF).contains(&io.slba) => {
                assert!(u64::from(io.blocks) * u64::from(BLOCK) <= u64::from(MDTS));
                written += u64::from(io.blocks);
            }
            _ => {}
        }
    }
    (read, written)
}

#[tokio::test]
async fn only_clusters_that_change_are_read_and_written() {
    for metadata_size in [0, 64] {
        let controller = controller(metadata_size);
        let store = format(&controller, CLUSTER).await;
        let size = 10 * CLUSTER + 100;
        let stat = put(&store, &pattern(1, size as usize)).await;
        let before = store.placement(stat.id).unwrap();
        let from = controller.submitted().len();
        // One byte of the fourth cluster, all of the seventh, half of the eighth.
        let whole = 3 * CLUSTER / 2;
        let pieces = vec![
            (6 * CLUSTER, vec![1; whole as usize]),
            (3 * CLUSTER, vec![2]),
        ];
        let stat = update(&store, &stat, size, pieces).await.unwrap();
        assert_eq!(traffic(&controller, &store, from).await, (8 + 4, 3 * 8));
        let after = store.placement(stat.id).unwrap();
        for (place, (before, after)) in before.iter().zip(&after).enumerate() {
            let changed = [3, 6, 7].contains(&place);
            assert_eq!(before.cluster != after.cluster, changed, "{place}");
        }

        // An append takes the last cluster along, and a smaller size nothing.
        let from = controller.submitted().len();
        let pieces = vec![(size, vec![3; CLUSTER as usize])];
        let stat = update(&store, &stat, size + CLUSTER, pieces).await.unwrap();
        assert_eq!(traffic(&controller, &store, from).await, (1, 8 + 1));
        let from = controller.submitted().len();
        let stat = update(&store, &stat, 2 * CLUSTER + 1, Vec::new())
            .await
            .unwrap();
        assert_eq!(traffic(&controller, &store, from).await, (0, 0));
        assert_eq!(stat.clusters, 3);

        // A range takes the blocks that hold it.
        let reader = store.reader(stat.id).unwrap();
        for (offset, len, blocks) in [(0, 0, 0), (511, 2, 2), (CLUSTER - 1, 2, 2), (5, 6000, 12)] {
            let from = controller.submitted().len();
            assert_eq!(reader.read_at(offset, len).await.unwrap().len(), len);
            assert_eq!(traffic(&controller, &store, from).await, (blocks, 0));
        }
        // What was beyond the smaller size does not come back.
        let stat = update(&store, &stat, 3 * CLUSTER, Vec::new())
            .await
            .unwrap();
        let reader = store.reader(stat.id).unwrap();
        let grown = reader.read_at(2 * CLUSTER + 1, CLUSTER as usize - 1).await;
        assert!(grown.unwrap().iter().all(|byte| *byte == 0));
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_changes_nothing() {
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let data = pattern(1, 10_000);
    let stat = put(&store, &data).await;
    no_leak(&store).await;
    let info = store.info().await;
    let secret = NewBlob {
        name: "sc".into(),
        sc: Some(sc(VrType::Tv, 1, 10)),
    };
    let secret = store.create_blob(secret).await.unwrap();
    let written = write(&store, secret, &[1; 10]).await;
    let refused = update(&store, &written, 10, Vec::new()).await;
    assert!(matches!(refused, Err(BlobError::NotPlain(id)) if id == secret));
    store.delete_blob(secret).await.unwrap();

    let cases: [(u64, Pieces); 4] = [
        (10_000, vec![(9_999, vec![1, 2])]),
        (10, vec![(11, Vec::new())]),
        (u64::MAX, vec![(u64::MAX, vec![1])]),
        (0, vec![(0, vec![1])]),
    ];
    for (size, pieces) in cases {
        let refused = update(&store, &stat, size, pieces).await;
        assert!(matches!(refused, Err(BlobError::OutOfRange { .. })));
    }
    let pieces = vec![(10, vec![1; 10]), (0, vec![2; 11])];
    let refused = update(&store, &stat, 10_000, pieces).await;
    assert!(matches!(refused, Err(BlobError::Overlap(10))));
    for size in [u64::MAX, u64::from(info.clusters + 1) * CLUSTER] {
        let refused = update(&store, &stat, size, Vec::new()).await;
        assert!(matches!(refused, Err(BlobError::NoSpace { .. })));
    }
    let absent = BlobStat {
        id: BlobId(1 << 40),
        ..stat.clone()
    };
    let refused = update(&store, &absent, 1, Vec::new()).await;
    assert!(matches!(refused, Err(BlobError::NoSuchBlob(_))));
    let cancel = CancelToken::new();
    cancel.cancel();
    let pieces = vec![(0, vec![1])];
    let progress = Progress::from(cancel);
    let refused = store.update(stat.id, stat.sequence, 5, pieces, &progress);
    assert!(matches!(refused.await, Err(BlobError::Cancelled)));

    let reader = store.reader(stat.id).unwrap();
    for (offset, len) in [
        (0, 10_001),
        (10_000, 1),
        (10_001, 0),
        (u64::MAX, 1),
        (1, usize::MAX),
    ] {
        let refused = reader.read_at(offset, len).await;
        assert!(matches!(
            refused,
            Err(BlobError::OutOfRange { size: 10_000, .. })
        ));
    }
    assert_eq!(reader.read_at(10_000, 0).await.unwrap(), b"");
    drop(reader);

    assert_eq!(store.stat(stat.id).unwrap(), stat);
    assert!(get(&store, stat.id).await == data);
    assert_eq!(store.info().await, info);
}

#[tokio::test]
async fn a_whole_content_takes_the_place_of_its_version_alone() {
    for metadata_size in [0, 64] {
        let controller = controller(metadata_size);
        let store = format(&controller, CLUSTER).await;
        let old = put(&store, &pattern(1, 20_000)).await;
        let writer = |sequence: u64| {
            let store = store.clone();
            async move {
                let writer = store.writer(old.id, 9000).await.unwrap();
                let mut writer = writer.in_place_of(sequence);
                writer.write(&pattern(2, 9000)).await.unwrap();
                writer
            }
        };
        let late = writer(old.sequence).await;
        // The other change comes once all has been written but the commit.
        let new = update(&store, &old, 20_000, vec![(0, vec![1])])
            .await
            .unwrap();
        let before = get(&store, old.id).await;
        assert!(matches!(
            late.commit().await,
            Err(BlobError::Changed { id, expected, found })
                if (id, expected, found) == (old.id, old.sequence, new.sequence)
        ));
        assert!(get(&store, old.id).await == before);
        writer(new.sequence).await.commit().await.unwrap();
        assert!(get(&store, old.id).await == pattern(2, 9000));
    }
}

#[tokio::test]
async fn an_update_of_another_version_is_refused() {
    for metadata_size in [0, 64] {
        let controller = controller(metadata_size);
        let store = format(&controller, CLUSTER).await;
        let old = put(&store, &pattern(1, 20_000)).await;
        let new = update(&store, &old, 20_000, vec![(0, vec![1])])
            .await
            .unwrap();
        let refused = update(&store, &old, 1, Vec::new()).await;
        assert!(matches!(
            refused,
            Err(BlobError::Changed { id, expected, found })
                if (id, expected, found) == (old.id, old.sequence, new.sequence)
        ));
        // The other change comes while the clusters are written, which are more than commands are on their way at a time.
        let size = 24 * CLUSTER;
        for how in 0..3 {
            let before = get(&store, old.id).await;
            let stat = store.stat(old.id).unwrap();
            let (begun, reached) = std::sync::mpsc::channel();
            let progress = Progress::new(move |_, done, _| {
                let _ = begun.send(done);
            });
            let slow = store.update(old.id, stat.sequence, size, vec![(7, vec![7])], &progress);
            let mut slow = Box::pin(slow);
            while reached.try_recv().is_err() {
                assert!(futures::poll!(&mut slow).is_pending());
                tokio::task::yield_now().await;
            }
            match how {
                0 => drop(
                    update(&store, &stat, 9, vec![(8, vec![how])])
                        .await
                        .unwrap(),
                ),
                1 => drop(write(&store, old.id, &before).await),
                _ => store.delete_blob(old.id).await.unwrap(),
            }
            match (how, slow.await) {
                (2, Err(BlobError::NoSuchBlob(_))) => {}
                (0 | 1, Err(BlobError::Changed { .. })) => {}
                (_, other) => panic!("{other:?}"),
            }
            if how == 0 {
                assert_eq!(
                    get(&store, old.id).await,
                    apply(&before, 9, &vec![(8, vec![0])])
                );
            }
            if how == 1 {
                assert!(get(&store, old.id).await == before);
            }
            no_leak(&store).await;
        }
    }
}

/// Tasks that read, update, and begin again where another was faster lose no step.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn updates_side_by_side_lose_nothing() {
    let controller = controller(0);
    let store = format(&controller, CLUSTER).await;
    let id = put(&store, &[0; 8]).await.id;
    let tasks = (0..4u64).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut steps = 0;
            while steps < 25 {
                let reader = store.reader(id).unwrap();
                let count = reader.read_at(0, 8).await.unwrap();
                let count = u64::from_le_bytes(count.try_into().unwrap()) + 1;
                let size = reader.size() + 500;
                let pieces = vec![
                    (0, count.to_le_bytes().to_vec()),
                    (reader.size(), vec![task as u8; 500]),
                ];
                tokio::task::yield_now().await;
                match update(&store, &reader.stat(), size, pieces).await {
                    Ok(_) => steps += 1,
                    Err(BlobError::Changed { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let done = futures::future::join_all(tasks.collect::<Vec<_>>()).await;
    done.into_iter().for_each(Result::unwrap);
    let store = mount(&controller).await;
    let data = get(&store, id).await;
    assert_eq!(data[..8], 100u64.to_le_bytes());
    let mut rows = [0; 4];
    for row in data[8..].chunks(500) {
        assert!(row.iter().all(|byte| *byte == row[0]));
        rows[usize::from(row[0])] += 1;
    }
    assert_eq!(rows, [25; 4]);
    no_leak(&store).await;
}

#[tokio::test]
async fn a_full_store_takes_an_update_that_fits_and_no_other() {
    let controller = controller(64);
    let store = format(&controller, CLUSTER).await;
    let clusters = store.info().await.clusters;
    let size = u64::from(clusters - 2) * CLUSTER;
    let mut data = pattern(1, size as usize);
    let mut stat = put(&store, &data).await;
    for round in 0..20 {
        // Each needs what the one before it has set free.
        let pieces = vec![(round * CLUSTER + 5, vec![round as u8; CLUSTER as usize])];
        data = apply(&data, size, &pieces);
        stat = update(&store, &stat, size, pieces).await.unwrap();
    }
    let pieces = vec![(5, vec![9; 2 * CLUSTER as usize])];
    let refused = update(&store, &stat, size, pieces.clone()).await;
    assert!(matches!(
        refused,
        Err(BlobError::NoSpace { needed, free }) if (needed, free) == (3 * CLUSTER, 2 * CLUSTER)
    ));
    assert_eq!(store.stat(stat.id).unwrap(), stat);
    assert!(get(&store, stat.id).await == data);
    // A reader keeps what an update replaces; what both share is there once.
    let reader = store.reader(stat.id).unwrap();
    let old = data.clone();
    let first = vec![(0, vec![1; 5000])];
    data = apply(&data, size, &first);
    stat = update(&store, &stat, size, first.clone()).await.unwrap();
    let refused = update(&store, &stat, size, first.clone()).await;
    assert!(matches!(refused, Err(BlobError::NoSpace { free: 0, .. })));
    assert!(reader.read_at(0, size as usize).await.unwrap() == old);
    drop(reader);
    stat = update(&store, &stat, size, first).await.unwrap();
    // A smaller size sets free what it leaves out.
    stat = update(&store, &stat, size - CLUSTER, Vec::new())
        .await
        .unwrap();
    data.truncate((size - CLUSTER) as usize);
    data = apply(&data, size - CLUSTER, &pieces);
    stat = update(&store, &stat, size - CLUSTER, pieces).await.unwrap();
    assert!(get(&look(&controller).await, stat.id).await == data);
    store.delete_blob(stat.id).await.unwrap();
    assert_eq!(store.info().await.free_clusters, clusters);
}

/// Updates a blob three times with the `nth` command and those after it failing, and cuts the power; gives whether it was reached.
async fn updates_with_a_fault(metadata_size: u16, nth: u64, count: u64) -> bool {
    let mut rng = Rng(nth * 1000 + count);
    let controller = controller(metadata_size);
    let store = format(&controller, CLUSTER).await;
    let kept = pattern(2, 5000);
    let other = put(&store, &kept).await;
    let stat = put(&store, &pattern(1, 10_000)).await;
    let mut contents = vec![pattern(1, 10_000)];
    let changes: [(u64, Pieces); 3] = [
        (14_000, vec![(10_000, vec![1; 4000])]),
        (14_000, vec![(4000, vec![2; 200]), (0, vec![3])]),
        (9_000, vec![(8_500, vec![4; 500])]),
    ];
    let reader = store.reader(stat.id).unwrap();
    let before = controller.submitted().len() as u64;
    controller.fail_from(nth, count, Status::WRITE_FAULT);
    // Whether each content may be the current one.
    let mut possible = vec![0];
    for (size, pieces) in &changes {
        let current = store.stat(stat.id).unwrap();
        let content = apply(&contents[possible[0]], *size, pieces);
        contents.push(content);
        let number = contents.len() - 1;
        match update(&store, &current, *size, pieces.clone()).await {
            Ok(_) => possible = vec![number],
            Err(BlobError::Nvme(_) | BlobError::InDoubt) => possible.push(number),
            Err(error) => panic!("{error}"),
        }
    }
    let reached = controller.submitted().len() as u64 - before >= nth;
    controller.clear_faults();
    // The mounted store shows what was acknowledged last, and what its readers began with.
    assert!(get(&store, stat.id).await == contents[possible[0]]);
    assert!(reader.read_at(0, 10_000).await.unwrap() == contents[0]);
    drop((reader, store));
    for how in 0..3 {
        match how {
            0 => {}
            1 => controller.crash_with(|_, _, versions| rng.below(versions as u64 + 1) as usize),
            _ => controller.crash(),
        }
        let store = mount(&controller).await;
        let found = get(&store, stat.id).await;
        let found = contents.iter().position(|content| *content == found);
        assert!(
            possible.contains(&found.unwrap()),
            "{found:?} of {possible:?}"
        );
        assert!(get(&store, other.id).await == kept);
        no_leak(&store).await;
        // And the store works on: others get all that is free, and this blob stays as it is.
        let free = u64::from(store.info().await.free_clusters);
        let filler = put(&store, &vec![5; (free * CLUSTER) as usize]).await;
        let content = &contents[found.unwrap()];
        assert!(get(&store, stat.id).await == *content);
        store.delete_blob(filler.id).await.unwrap();
        let current = store.stat(stat.id).unwrap();
        let pieces = vec![(4095, vec![6 + how; 2])];
        contents.push(apply(content, 9_000, &pieces));
        possible = vec![contents.len() - 1];
        update(&store, &current, 9_000, pieces).await.unwrap();
    }
    reached
}

#[tokio::test]
async fn a_failing_command_anywhere_leaves_old_or_new() {
    for metadata_size in [0, 64] {
        for count in [1, 2, 3, 1000] {
            let mut nth = 1;
            while updates_with_a_fault(metadata_size, nth, count).await {
                nth += 1;
            }
            assert!(nth > 20);
        }
    }
}

/// The power goes at a random command of random updates, with any subset of the unflushed blocks, again and again.
#[tokio::test]
async fn power_cuts_leave_old_or_new() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let controller = controller(if seed % 2 == 0 { 0 } else { 64 });
        let store = format(&controller, CLUSTER).await;
        let id = put(&store, &[]).await.id;
        drop(store);
        let mut data = Vec::new();
        for cut in 0..6 {
            let store = mount(&controller).await;
            controller.fail_from(1 + rng.below(150), u64::MAX, Status::WRITE_FAULT);
            let begun = loop {
                let (size, pieces) = random_update(&mut rng, data.len() as u64, 40_000);
                let new = apply(&data, size, &pieces);
                let stat = store.stat(id).unwrap();
                match update(&store, &stat, size, pieces).await {
                    Ok(_) => data = new,
                    Err(BlobError::Nvme(_)) => break new,
                    Err(error) => panic!("{error}"),
                }
            };
            controller.clear_faults();
            drop(store);
            controller.crash_with(|_, _, versions| rng.below(versions as u64 + 1) as usize);
            let store = mount(&controller).await;
            let found = get(&store, id).await;
            assert!(found == data || found == begun, "seed {seed}, cut {cut}");
            data = found;
            no_leak(&store).await;
        }
    }
}
