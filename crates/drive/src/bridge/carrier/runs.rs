//! Secure computing metadata in the second half of the LBA space (platform paper, section 5, Fig. 10).
//!
//! A block written at a + 2^(L-1) whose first bytes are an `ScMetadata` registers it for the *run* of its `blocks` logical
//! blocks from a on. A run lies within one cluster of the image and ends, at the latest, where the next one begins. An
//! all-zero block, and any block without the magic number, takes the registration away. The SSD holds the truth; memory holds
//! what was read of it, cluster by cluster, when first needed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::bridge::access::{KeyAccess, denied};
use crate::bridge::status::{Fault, METADATA_INVALID, METADATA_MISMATCH};
use crate::image::ImageInfo;
use crate::locks::{Guard, RangeLocks};
use crate::task::block_on;
use toroid_isa::metadata::{MetadataError, ScMetadata};
use toroid_nvme::Status;

/// The one thing that [`Runs::updates`] locks.
const UPDATES: [Range<u64>; 1] = [Range { start: 0, end: 1 }];

/// The run that a command lies in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunView {
    /// First LBA of the run.
    pub(crate) start: u64,
    /// What the block in the second half says: the truth of the stored data.
    pub(crate) stored: ScMetadata,
    /// What the host registered: the truth of data that it writes. Differs from `stored` where the drive has put a result
    /// in the place of the host's data.
    pub(crate) registered: ScMetadata,
}

struct Run {
    stored: ScMetadata,
    registered: ScMetadata,
    /// What describes the data that the last read of the run delivered, where a program computed it.
    delivered: Option<ScMetadata>,
}

enum Entry {
    Run(Run),
    /// The block claims to be metadata, but is not valid.
    Damaged(MetadataError),
}

#[derive(Default)]
struct Registered {
    /// One bit a cluster, 64 clusters an entry: those whose part of the second half has been read.
    loaded: HashMap<u64, u64>,
    /// By the first LBA.
    entries: BTreeMap<u64, Entry>,
}

/// The metadata of the first half's blocks.
pub(crate) struct Runs {
    /// 2^(L-1): blocks of each half.
    half: u64,
    cluster: u64,
    block_size: usize,
    /// Blocks of the second half read at a time.
    chunk: u64,
    /// Held exclusively by who changes the second half on the SSD or reads it into memory, so that memory and SSD agree;
    /// shared by who reads data that must fit its metadata.
    /// Fair: neither side keeps the other out.
    updates: RangeLocks,
    state: RwLock<Registered>,
}

impl Registered {
    fn is_loaded(&self, cluster: u64) -> bool {
        let word = self.loaded.get(&(cluster / 64)).copied().unwrap_or(0);
        word >> (cluster % 64) & 1 != 0
    }

    fn forget(&mut self, cluster: u64, blocks: u64) {
        if let Some(word) = self.loaded.get_mut(&(cluster / 64)) {
            *word &= !(1 << (cluster % 64));
        }
        let first = cluster * blocks;
        let entries: Vec<u64> = self
            .entries
            .range(first..first + blocks)
            .map(|(start, _)| *start)
            .collect();
        for start in entries {
            self.entries.remove(&start);
        }
    }

    fn set_loaded(&mut self, cluster: u64) {
        *self.loaded.entry(cluster / 64).or_default() |= 1 << (cluster % 64);
    }

    fn put(&mut self, lba: u64, parsed: Result<Option<ScMetadata>, MetadataError>) {
        match parsed {
            Ok(Some(metadata)) => {
                let run = Run {
                    stored: metadata,
                    registered: metadata,
                    delivered: None,
                };
                self.entries.insert(lba, Entry::Run(run));
            }
            Ok(None) => {
                self.entries.remove(&lba);
            }
            Err(error) => {
                self.entries.insert(lba, Entry::Damaged(error));
            }
        }
    }
}

impl Runs {
    /// For an image of this geometry, whose second half is read at most `mdts` bytes at a time.
    pub(crate) fn new(image: &ImageInfo, mdts: u32) -> Runs {
        let cluster = u64::from(image.cluster_blocks());
        let most = u64::from(mdts / image.block_size()).clamp(1, 1 << 16);
        Runs {
            half: image.data_blocks(),
            cluster,
            block_size: image.block_size() as usize,
            chunk: cluster.min(most),
            updates: RangeLocks::default(),
            state: RwLock::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Registered> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registered> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held while the second half changes, on the SSD and here.
    pub(crate) fn begin_update(&self) -> Guard<'_> {
        block_on(self.updates.lock(&UPDATES, true))
    }

    /// To be held while data and metadata are looked up that must fit each other.
    pub(crate) fn begin_read(&self) -> Guard<'_> {
        block_on(self.updates.lock(&UPDATES, false))
    }

    /// [`Runs::begin_read`], if nobody changes the second half now.
    pub(crate) fn try_begin_read(&self) -> Option<Guard<'_>> {
        self.updates.lock_now(&UPDATES, false)
    }

    /// Whether the blocks are known to be plain data of the first half that no run claims, so that they are anyone's.
    pub(crate) fn is_plain(&self, data: &Range<u64>) -> bool {
        let state = self.read();
        data.end <= self.half
            && self.clusters(data).all(|cluster| state.is_loaded(cluster))
            && self.claims(&state, data.clone()).next().is_none()
    }

    /// What reaches into these blocks of the first half: runs in the length that they claim, whether or not another begins
    /// before their end, and damaged metadata, which may be that of a run to the end of the cluster.
    fn claims<'a>(
        &self,
        state: &'a Registered,
        data: Range<u64>,
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let cluster = self.cluster;
        let first = data.start - data.start % cluster;
        let end = if data.is_empty() { first } else { data.end };
        let over = state.entries.range(first..end);
        over.filter_map(move |(start, entry)| {
            let claimed = match entry {
                Entry::Run(run) => start + u64::from(run.stored.blocks()),
                Entry::Damaged(_) => (start / cluster + 1) * cluster,
            };
            (claimed > data.start).then_some(entry)
        })
    }

    /// Whether a command that begins here is on the second half; one that reaches into it from the first is not.
    pub(crate) fn is_second(&self, lba: u64) -> bool {
        lba >= self.half
    }

    /// Whether the blocks lie in the second half.
    ///
    /// # Errors
    /// [`METADATA_MISMATCH`] for blocks in both halves.
    pub(crate) fn contains(&self, blocks: &Range<u64>) -> Result<bool, Fault> {
        let Range { start: lba, end } = *blocks;
        if lba < self.half && end > self.half {
            return Err(Fault::new(
                METADATA_MISMATCH,
                format!(
                    "{} blocks at LBA {lba} reach from data into metadata, which begins at LBA {}",
                    end - lba,
                    self.half
                ),
            ));
        }
        Ok(lba >= self.half)
    }

    /// The LBA of the metadata of the run that begins at `start`.
    pub(crate) fn metadata_lba(&self, start: u64) -> u64 {
        start + self.half
    }

    /// Reads the clusters of the blocks into memory that are not there yet. `read` reads blocks of the namespace.
    pub(crate) fn load(
        &self,
        blocks: &Range<u64>,
        read: impl Fn(u64, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let clusters = blocks.start / self.cluster..blocks.end.div_ceil(self.cluster);
        {
            let state = self.read();
            if clusters.clone().all(|cluster| state.is_loaded(cluster)) {
                return Ok(());
            }
        }
        let mut bytes = vec![0; self.chunk as usize * self.block_size];
        for cluster in clusters {
            let _update = self.begin_update();
            if self.read().is_loaded(cluster) {
                continue;
            }
            let first = cluster * self.cluster;
            // Both are powers of two.
            for start in (first..first + self.cluster).step_by(self.chunk as usize) {
                read(self.metadata_lba(start), &mut bytes)?;
                let mut state = self.write();
                for (lba, block) in (start..).zip(bytes.chunks_exact(self.block_size)) {
                    state.put(lba, parse(block));
                }
            }
            self.write().set_loaded(cluster);
        }
        Ok(())
    }

    /// The run that the blocks, which are loaded, lie in; `None` for plain data.
    ///
    /// # Errors
    /// [`METADATA_MISMATCH`] where a run begins or ends within them, [`METADATA_INVALID`] where its metadata is damaged;
    /// Namespace Not Ready where a failed command has just put the metadata in doubt.
    pub(crate) fn lookup(&self, blocks: &Range<u64>) -> Result<Option<RunView>, Fault> {
        let state = self.read();
        let Range { start: lba, end } = *blocks;
        let blocks = end - lba;
        if !self
            .clusters(&(lba..end))
            .all(|cluster| state.is_loaded(cluster))
        {
            return Err(Fault::passing(
                Status::NAMESPACE_NOT_READY,
                format!("the metadata of LBA {lba} must be read again"),
            ));
        }
        if let Some((start, _)) = state.entries.range(lba + 1..end).next() {
            return Err(Fault::new(
                METADATA_MISMATCH,
                format!(
                    "{blocks} blocks at LBA {lba} reach into the object part that begins at LBA {start}"
                ),
            ));
        }
        let Some((&start, entry)) = state.entries.range(..=lba).next_back() else {
            return Ok(None);
        };
        let cluster_end = (start / self.cluster + 1) * self.cluster;
        let run = match entry {
            Entry::Run(run) => run,
            Entry::Damaged(_) if lba >= cluster_end => return Ok(None),
            Entry::Damaged(error) => {
                return Err(Fault::new(
                    METADATA_INVALID,
                    format!("{error} (at LBA {})", self.metadata_lba(start)),
                ));
            }
        };
        let run_end = start + u64::from(run.stored.blocks());
        if lba >= run_end {
            return Ok(None);
        }
        if end > run_end {
            return Err(Fault::new(
                METADATA_MISMATCH,
                format!(
                    "{blocks} blocks at LBA {lba} reach beyond the object part at LBA {start} of {} blocks",
                    run.stored.blocks()
                ),
            ));
        }
        Ok(Some(RunView {
            start,
            stored: run.stored,
            registered: run.registered,
        }))
    }

    /// The blocks of the first half that a range is of, and those whose metadata it holds, both as places in the first half.
    fn halves(&self, blocks: &Range<u64>) -> (Range<u64>, Range<u64>) {
        let Range { start, end } = *blocks;
        let data = start.min(self.half)..end.min(self.half);
        let metadata = start.max(self.half) - self.half..end.max(self.half) - self.half;
        (data, metadata)
    }

    fn clusters(&self, blocks: &Range<u64>) -> Range<u64> {
        if blocks.is_empty() {
            return 0..0;
        }
        blocks.start / self.cluster..blocks.end.div_ceil(self.cluster)
    }

    /// The blocks of the first half whose metadata decides about access to a range.
    pub(crate) fn decisive(&self, blocks: &Range<u64>) -> [Range<u64>; 2] {
        self.halves(blocks).into()
    }

    /// Checks that a host may use the blocks, in either half: that no run with another's key id claims them, and that
    /// they hold no metadata of one. Damaged metadata is another's. `false`: the metadata is not all in memory. The caller holds the update lock, in either way.
    ///
    /// # Errors
    /// Access denied.
    pub(crate) fn check_access(
        &self,
        ranges: &[Range<u64>],
        keys: &KeyAccess,
    ) -> Result<bool, Fault> {
        if keys.only().is_none() {
            return Ok(true);
        }
        let state = self.read();
        for range in ranges {
            let (data, metadata) = self.halves(range);
            let mut clusters = self.clusters(&data).chain(self.clusters(&metadata));
            if !clusters.all(|cluster| state.is_loaded(cluster)) {
                return Ok(false);
            }
            let foreign = |entry: &Entry| match entry {
                Entry::Run(run) => {
                    !keys.allows(run.stored.vr().key_id())
                        || !keys.allows(run.registered.vr().key_id())
                }
                Entry::Damaged(_) => true,
            };
            let mut at = state.entries.range(metadata);
            if self.claims(&state, data).any(foreign) || at.any(|(_, entry)| foreign(entry)) {
                return Err(denied());
            }
        }
        Ok(true)
    }

    /// Blocks of either half may have become anything: their metadata will be read from the SSD when needed. The caller
    /// holds the update lock.
    pub(crate) fn forget(&self, blocks: &Range<u64>) {
        let (data, metadata) = self.halves(blocks);
        let mut state = self.write();
        for cluster in self.clusters(&metadata) {
            state.forget(cluster, self.cluster);
        }
        let first = data.start - data.start % self.cluster;
        for (_, entry) in state.entries.range_mut(first..data.end.max(first)) {
            if let Entry::Run(run) = entry {
                run.delivered = None;
            }
        }
    }

    /// Checks what a host wants to write to the second half from `lba` on, and gives what each block registers.
    ///
    /// # Errors
    /// Whatever is wrong with a block that begins with the magic number.
    pub(crate) fn check_write(
        &self,
        lba: u64,
        data: &[u8],
        check: impl Fn(&ScMetadata) -> Result<(), Fault>,
    ) -> Result<Vec<Option<ScMetadata>>, Fault> {
        (lba - self.half..)
            .zip(data.chunks_exact(self.block_size))
            .map(|(start, block)| {
                let Some(metadata) = parse(block)? else {
                    return Ok(None);
                };
                self.check_run(start, &metadata)?;
                check(&metadata)?;
                Ok(Some(metadata))
            })
            .collect()
    }

    fn check_run(&self, start: u64, metadata: &ScMetadata) -> Result<(), Fault> {
        let blocks = u64::from(metadata.blocks());
        let left = self.cluster - start % self.cluster;
        if blocks == 0 || blocks > left {
            return Err(Fault::new(
                METADATA_INVALID,
                format!(
                    "metadata for {blocks} blocks from LBA {start} on; expected 1 to {left}, to the end of the cluster"
                ),
            ));
        }
        let needed = metadata.remaining().div_ceil(self.block_size as u64);
        if blocks > needed {
            return Err(Fault::new(
                METADATA_INVALID,
                format!(
                    "metadata for {blocks} blocks from LBA {start} on, but the object ends after {needed}"
                ),
            ));
        }
        Ok(())
    }

    /// The host has written these blocks of the second half, from `lba` on. The caller holds the update lock.
    pub(crate) fn written(&self, lba: u64, registered: Vec<Option<ScMetadata>>) {
        let mut state = self.write();
        for (start, metadata) in (lba - self.half..).zip(registered) {
            // What is not loaded yet will be read from the SSD when needed.
            if state.is_loaded(start / self.cluster) {
                state.put(start, Ok(metadata));
            }
        }
    }

    /// Blocks of the namespace are zero now, in either half. The caller holds the update lock.
    pub(crate) fn zeroed(&self, blocks: &Range<u64>) {
        let mut state = self.write();
        let Range { start: lba, end } = *blocks;
        let starts = lba.max(self.half) - self.half..end.max(self.half) - self.half;
        let gone: Vec<u64> = state
            .entries
            .range(starts)
            .map(|(start, _)| *start)
            .collect();
        for start in gone {
            state.entries.remove(&start);
        }
        let first = lba - lba % self.cluster;
        for (_, entry) in state
            .entries
            .range_mut(first..end.clamp(first, self.half.max(first)))
        {
            if let Entry::Run(run) = entry {
                run.delivered = None;
            }
        }
    }

    /// Whether the run still is as the caller saw it. The caller holds the update lock if it acts on it.
    pub(crate) fn is_current(&self, view: &RunView) -> bool {
        matches!(
            self.read().entries.get(&view.start),
            Some(Entry::Run(run)) if run.stored == view.stored && run.registered == view.registered
        )
    }

    /// The data of the run has been written, and `stored` describes it. The caller holds the update lock.
    pub(crate) fn data_written(&self, start: u64, stored: ScMetadata) {
        if let Some(Entry::Run(run)) = self.write().entries.get_mut(&start) {
            run.stored = stored;
            run.delivered = None;
        }
    }

    /// A read of the run delivered what `delivered` describes; `None`: the stored data.
    pub(crate) fn delivered(&self, view: &RunView, delivered: Option<ScMetadata>) {
        if let Some(Entry::Run(run)) = self.write().entries.get_mut(&view.start)
            && run.stored == view.stored
        {
            run.delivered = delivered;
        }
    }

    /// Puts the metadata of delivered results into blocks of the second half that a host reads from `lba` on.
    pub(crate) fn overlay(&self, lba: u64, data: &mut [u8]) {
        let state = self.read();
        let first = lba - self.half;
        let blocks = (data.len() / self.block_size) as u64;
        for (start, entry) in state.entries.range(first..first + blocks) {
            if let Entry::Run(Run {
                delivered: Some(delivered),
                ..
            }) = entry
            {
                let at = (start - first) as usize * self.block_size;
                data[at..at + ScMetadata::SIZE].copy_from_slice(&delivered.to_bytes());
            }
        }
    }
}

/// What a block of the second half says; a block without the magic number is plain data.
fn parse(block: &[u8]) -> Result<Option<ScMetadata>, MetadataError> {
    let bytes = block.get(..ScMetadata::SIZE).unwrap_or(block);
    match ScMetadata::from_bytes(bytes) {
        Err(MetadataError::Magic { .. }) => Ok(None),
        parsed => parsed,
    }
}
