//! Format and mount: the only code that reads the metadata region.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};

use tokio::sync::Mutex;
use toroid_isa::metadata::ScMetadata;
use toroid_nvme::{self as nvme, Controller, Namespace, NvmeError};

use super::clusters::Clusters;
use super::layout::{
    FIRST_PAGE_LBA, FORMAT_VERSION, MAX_SEQUENCE, Page, PageHeader, PageKind, Record,
    SUPER_BLOCK_LBAS, SuperBlock, SuperBlockFault,
};
use super::store::{Inner, Pages, Version};
use super::{BlobError, BlobId, ScCarrier};

/// Most metadata pages that format sets aside unless told otherwise.
const MAX_DEFAULT_PAGES: u64 = 1 << 16;
/// Blocks of metadata read at a time during mount.
const SCAN_BLOCKS: u64 = 256;

/// How to format a store.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Bytes of a cluster, the unit in which blobs take space: a power of two, at least one logical block.
    pub cluster_bytes: u64,
    /// Metadata pages, one logical block each. A blob takes one, a much fragmented one more; a change needs the
    /// pages of the new version beside those of the old. `None`: 5 for every 4 clusters and 64 more, but at most 65536 and at most
    /// a quarter of the blocks for data.
    pub metadata_pages: Option<u32>,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            cluster_bytes: 1 << 20,
            metadata_pages: None,
        }
    }
}

/// How to mount a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountOptions {
    /// What to do with metadata pages that the medium has damaged. Normally mount fails with [`BlobError::Corrupt`] and leaves
    /// the store as it is; if set, they are cleared and the blobs whose records they held are lost.
    pub drop_damaged: bool,
    /// Write nothing: what a crash left half done is seen as it would be mended, and stays as it is. The store may be read, and
    /// not changed. Mounts for changes go on beside it.
    pub read_only: bool,
}

fn namespace(controller: &dyn Controller, nsid: u32) -> Result<&Namespace, BlobError> {
    controller
        .info()
        .namespace(nsid)
        .ok_or(NvmeError::UnknownNamespace { nsid }.into())
}

fn carrier(ns: &Namespace) -> Result<(ScCarrier, u64), BlobError> {
    match ns.metadata_size() {
        64 => Ok((ScCarrier::NvmeMetadata, ns.blocks())),
        0 if ns.blocks().is_power_of_two() => Ok((ScCarrier::SecondHalf, ns.blocks() / 2)),
        0 => Err(BlobError::Unsuitable(format!(
            "{} blocks; without NVMe metadata the number of blocks must be a power of two",
            ns.blocks()
        ))),
        n => Err(BlobError::Unsuitable(format!(
            "{n} bytes of metadata a block; expected 64 or none"
        ))),
    }
}

pub(super) async fn format(
    controller: Arc<dyn Controller>,
    nsid: u32,
    options: FormatOptions,
) -> Result<(), BlobError> {
    let ns = namespace(&*controller, nsid)?;
    let (carrier, data_blocks) = carrier(ns)?;
    let block_bytes = ns.block_size();
    let cluster_blocks = options.cluster_bytes / u64::from(block_bytes);
    let unsuitable_cluster = || {
        BlobError::Unsuitable(format!(
            "clusters of {} bytes; expected a power of two of at least a block of {block_bytes} bytes",
            options.cluster_bytes
        ))
    };
    if !options.cluster_bytes.is_power_of_two() || cluster_blocks == 0 {
        return Err(unsuitable_cluster());
    }
    let cluster_blocks = u32::try_from(cluster_blocks).map_err(|_| unsuitable_cluster())?;
    let clusters = data_blocks / u64::from(cluster_blocks);
    let metadata_pages = options.metadata_pages.unwrap_or(
        (clusters + clusters / 4 + 64).min(MAX_DEFAULT_PAGES.min(data_blocks / 4)) as u32,
    );
    let mut sb = SuperBlock {
        sequence: 1,
        uuid: random()?,
        carrier,
        block_bytes,
        cluster_blocks,
        namespace_blocks: ns.blocks(),
        data_blocks,
        metadata_pages,
        mount: [0; 16],
    };
    if !sb.is_possible() {
        return Err(BlobError::Unsuitable(format!(
            "{} blocks of {block_bytes} bytes do not hold {metadata_pages} metadata pages and 1 to 2^32 - 1 clusters of {} bytes",
            data_blocks, options.cluster_bytes
        )));
    }
    let controller = &*controller;
    // A store that an interrupted format has half erased must not be mounted again.
    nvme::write_zeroes(controller, nsid, 0, FIRST_PAGE_LBA).await?;
    nvme::flush(controller, nsid).await?;
    nvme::write_zeroes(controller, nsid, FIRST_PAGE_LBA, u64::from(metadata_pages)).await?;
    if carrier == ScCarrier::SecondHalf {
        nvme::write_zeroes(controller, nsid, data_blocks, data_blocks).await?;
    }
    nvme::flush(controller, nsid).await?;
    for lba in SUPER_BLOCK_LBAS {
        nvme::write_blocks(controller, nsid, lba, &sb.encode(), &[], false).await?;
        sb.sequence += 1;
    }
    nvme::flush(controller, nsid).await?;
    Ok(())
}

fn random() -> Result<[u8; 16], BlobError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| BlobError::Random(e.to_string()))?;
    Ok(bytes)
}

/// Reads the newer sound copy of the super block, by one command, which must give both.
pub(super) async fn newest_super_block(
    controller: &dyn Controller,
    nsid: u32,
) -> Result<SuperBlock, BlobError> {
    let [first, second] = SUPER_BLOCK_LBAS;
    let both = nvme::read_blocks(controller, nsid, first, second - first + 1).await?;
    let copies = both.data.chunks(both.data.len().div_ceil(2).max(1));
    let sound = copies.filter_map(|copy| SuperBlock::decode(copy).ok());
    sound
        .max_by_key(|sb| sb.sequence)
        .ok_or(BlobError::Corrupt {
            what: "neither copy of the super block is sound; the first",
            lba: first,
        })
}

/// Reads the newer sound copy of the super block, and gives the place of the other, which the next change overwrites.
async fn read_super_block(
    controller: &dyn Controller,
    nsid: u32,
) -> Result<(SuperBlock, u64), BlobError> {
    let mut sound = Vec::new();
    let mut damaged = false;
    let mut unreadable = None;
    for lba in SUPER_BLOCK_LBAS {
        let block = match nvme::read_blocks(controller, nsid, lba, 1).await {
            Ok(block) => block.data,
            Err(error) => {
                unreadable = Some(error);
                continue;
            }
        };
        match SuperBlock::decode(&block) {
            Ok(sb) => sound.push((sb, lba)),
            Err(SuperBlockFault::TooNew(found)) => {
                return Err(BlobError::VersionTooNew {
                    found,
                    supported: FORMAT_VERSION,
                });
            }
            Err(fault) => damaged |= fault == SuperBlockFault::Damaged,
        }
    }
    let newest = sound.into_iter().max_by_key(|(sb, _)| sb.sequence);
    match (newest, unreadable) {
        (Some((sb, newest)), _) => {
            let [first, second] = SUPER_BLOCK_LBAS;
            let other = if newest == first { second } else { first };
            Ok((sb, other))
        }
        (None, Some(error)) => Err(error.into()),
        (None, None) if damaged => Err(BlobError::Corrupt {
            what: "neither copy of the super block is sound; the first",
            lba: SUPER_BLOCK_LBAS[0],
        }),
        (None, None) => Err(BlobError::NotFormatted { nsid }),
    }
}

/// A metadata page that is in use: its header and its payload.
type Used = HashMap<u32, (PageHeader, Vec<u8>)>;

/// What the metadata pages hold.
struct Scan {
    used: Used,
    /// Pages that mount must mark free before anything relies on their records being gone.
    stale: Vec<u32>,
    /// Pages of groups that did not come to their end, and the changes that each makes void.
    groups: Vec<(u32, RangeInclusive<u64>)>,
    next_sequence: u64,
}

/// A whole record: its sequence number, its pages and its payload.
struct Found {
    sequence: u64,
    pages: Vec<u32>,
    payload: Vec<u8>,
}

pub(super) async fn mount(
    controller: Arc<dyn Controller>,
    nsid: u32,
    options: MountOptions,
) -> Result<Inner, BlobError> {
    let sb = super_block(&*controller, nsid, options).await?;
    let mut scan = scan(&*controller, nsid, &sb, options).await?;
    let current = newest_records(&sb, &mut scan)?;
    let clusters = Clusters::new(sb.first_cluster() as u32, sb.total_clusters() as u32);
    let table = versions(&sb, &clusters, current)?;

    if !options.read_only {
        let marker = PageHeader::free(&sb, BlobId(0), scan.next_sequence.min(MAX_SEQUENCE));
        for &page in &scan.stale {
            nvme::write_blocks(&*controller, nsid, sb.page_lba(page), &marker, &[], false).await?;
        }
        // Also covers what an earlier mount, or the store before it, may have left in the drive's cache.
        nvme::flush(&*controller, nsid).await?;
        // Only now: without them the records that they made void would count.
        for (page, _) in &scan.groups {
            nvme::write_blocks(&*controller, nsid, sb.page_lba(*page), &marker, &[], false).await?;
        }
        if !scan.groups.is_empty() {
            nvme::flush(&*controller, nsid).await?;
        }
    }

    let in_use: HashSet<u32> = table
        .values()
        .flat_map(|version| version.pages.iter().copied())
        .collect();
    // Low pages first: taken from the end.
    let free = (0..sb.metadata_pages)
        .rev()
        .filter(|page| !in_use.contains(page))
        .collect();
    Ok(Inner {
        controller,
        nsid,
        read_only: options.read_only,
        sb,
        clusters,
        table: RwLock::new(table),
        pages: Mutex::new(Pages {
            free,
            next_sequence: scan.next_sequence + 1,
            replaced: Vec::new(),
        }),
        in_doubt: AtomicBool::new(false),
    })
}

/// The super block, which must be that of this namespace. A mount for changes puts its own identifier in it, in the place of the older or
/// damaged copy.
async fn super_block(
    controller: &dyn Controller,
    nsid: u32,
    options: MountOptions,
) -> Result<SuperBlock, BlobError> {
    let ns = namespace(controller, nsid)?;
    let (mut sb, other) = read_super_block(controller, nsid).await?;
    let (carrier, data_blocks) = carrier(ns)?;
    if (sb.carrier, sb.data_blocks) != (carrier, data_blocks)
        || (sb.block_bytes, sb.namespace_blocks) != (ns.block_size(), ns.blocks())
    {
        return Err(BlobError::Unsuitable(format!(
            "formatted with {} blocks of {} bytes ({:?}), but the namespace has {} of {} ({carrier:?})",
            sb.namespace_blocks,
            sb.block_bytes,
            sb.carrier,
            ns.blocks(),
            ns.block_size(),
        )));
    }
    if !options.read_only {
        sb.sequence = MAX_SEQUENCE.min(sb.sequence + 1);
        sb.mount = random()?;
        nvme::write_blocks(controller, nsid, other, &sb.encode(), &[], false).await?;
        nvme::flush(controller, nsid).await?;
    }
    Ok(sb)
}

/// Reads all metadata pages.
async fn scan(
    controller: &dyn Controller,
    nsid: u32,
    sb: &SuperBlock,
    options: MountOptions,
) -> Result<Scan, BlobError> {
    let mut scan = Scan {
        used: Used::new(),
        stale: Vec::new(),
        groups: Vec::new(),
        next_sequence: 1,
    };
    let pages = u64::from(sb.metadata_pages);
    for first in (0..pages).step_by(SCAN_BLOCKS as usize) {
        let count = SCAN_BLOCKS.min(pages - first);
        let lba = FIRST_PAGE_LBA + first;
        let blocks = nvme::read_blocks(controller, nsid, lba, count).await?.data;
        for (i, block) in blocks.chunks_exact(sb.block_bytes as usize).enumerate() {
            let page = first as u32 + i as u32;
            match Page::decode(block, sb) {
                Page::Blank => {}
                Page::Damaged if options.drop_damaged => scan.stale.push(page),
                Page::Damaged => {
                    return Err(BlobError::Corrupt {
                        what: "damaged metadata page",
                        lba: sb.page_lba(page),
                    });
                }
                Page::Used(header, payload) => {
                    scan.next_sequence = scan.next_sequence.max(header.sequence + 1);
                    match header.kind {
                        PageKind::Free => {}
                        PageKind::Group => {
                            scan.groups.push((page, header.blob.0..=header.sequence));
                        }
                        PageKind::Head | PageKind::Continuation => {
                            scan.used.insert(page, (header, payload.to_vec()));
                        }
                    }
                }
            }
        }
    }
    Ok(scan)
}

/// The current record of each blob: the whole one with the highest sequence number, unless its group did not come to its end. The heads of all others are stale.
fn newest_records(sb: &SuperBlock, scan: &mut Scan) -> Result<BTreeMap<BlobId, Found>, BlobError> {
    let Scan {
        used,
        stale,
        groups,
        ..
    } = scan;
    let mut current: BTreeMap<BlobId, Found> = BTreeMap::new();
    for (&head, (header, _)) in &*used {
        if header.kind != PageKind::Head {
            continue;
        }
        let void = groups
            .iter()
            .any(|(_, changes)| changes.contains(&header.sequence));
        let Some((pages, payload)) = follow(used, head).filter(|_| !void) else {
            stale.push(head);
            continue;
        };
        let newest = current.get(&header.blob).map(|found| found.sequence);
        if newest == Some(header.sequence) {
            return Err(BlobError::Corrupt {
                what: "second record of the same version of a blob",
                lba: sb.page_lba(head),
            });
        }
        if newest > Some(header.sequence) {
            stale.push(head);
            continue;
        }
        let found = Found {
            sequence: header.sequence,
            pages,
            payload,
        };
        if let Some(older) = current.insert(header.blob, found) {
            stale.push(older.pages[0]);
        }
    }
    Ok(current)
}

/// The version that each record describes, with the clusters that it owns.
fn versions(
    sb: &SuperBlock,
    clusters: &Clusters,
    records: BTreeMap<BlobId, Found>,
) -> Result<BTreeMap<BlobId, Arc<Version>>, BlobError> {
    let mut table = BTreeMap::new();
    for (id, found) in records {
        let lba = sb.page_lba(found.pages[0]);
        let corrupt = |what| BlobError::Corrupt { what, lba };
        let record = Record::decode(&found.payload, sb).map_err(corrupt)?;
        let sc = match record.sc {
            Some(bytes) => match ScMetadata::from_bytes(&bytes) {
                Ok(Some(sc)) => Some(sc),
                _ => return Err(corrupt("unreadable secure computing metadata of a blob")),
            },
            None => None,
        };
        let lease = clusters
            .claim(&record.extents)
            .map_err(|cluster| BlobError::Corrupt {
                what: "cluster that two blobs own",
                lba: sb.cluster_lba(cluster),
            })?;
        let version = Version {
            id,
            sequence: found.sequence,
            name: record.name,
            sc,
            size: record.size,
            written: record.written,
            data_crc: record.data_crc,
            lease: Arc::new(lease),
            pages: found.pages,
        };
        table.insert(id, Arc::new(version));
    }
    Ok(table)
}

/// The pages and the payload of the record that starts at `head`; `None` where a page of it is missing, as a commit that did not
/// finish leaves it.
fn follow(used: &Used, head: u32) -> Option<(Vec<u32>, Vec<u8>)> {
    let (first, payload) = used.get(&head)?;
    let mut chain = vec![head];
    let mut payload = payload.clone();
    let mut next = first.next;
    for index in 1..first.pages {
        let page = next?;
        let (header, part) = used.get(&page)?;
        let expected = PageHeader {
            kind: PageKind::Continuation,
            index,
            next: header.next,
            ..*first
        };
        if *header != expected {
            return None;
        }
        chain.push(page);
        payload.extend_from_slice(part);
        next = header.next;
    }
    (first.index == 0 && next.is_none()).then_some((chain, payload))
}
