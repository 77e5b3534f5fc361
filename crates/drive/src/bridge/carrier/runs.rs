//! Secure computing metadata in the second half of the LBA space (platform paper, section 5, Fig. 10).
//!
//! A block written at a + 2^(L-1) whose first bytes are an `ScMetadata` registers it for the *run* of its `blocks` logical
//! blocks from a on. A run lies within one cluster of the image and ends, at the latest, where the next one begins. An
//! all-zero block, and any block without the magic number, takes the registration away. The SSD holds the truth; memory holds
//! what was read of it, cluster by cluster, when first needed. Of all this, memory holds a bounded amount: clusters that are not used
//! are read again, and of old results the drive no longer knows more than the SSD.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::recent::Recent;
use crate::bridge::access::{KeyAccess, denied};
use crate::bridge::status::{Fault, METADATA_INVALID, METADATA_MISMATCH};
use crate::image::ImageInfo;
use crate::locks::{Guard, RangeLocks};
use futures::executor::block_on;
use toroid_isa::metadata::{MetadataError, ScMetadata};
use toroid_nvme::Status;

/// The one thing that [`Runs::updates`] locks.
const UPDATES: [Range<u64>; 1] = [Range { start: 0, end: 1 }];

/// Runs that memory holds, and results of each kind: 100 to 200 bytes each.
const MOST: usize = 1 << 16;

/// The run that a command lies in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RunView {
    /// First LBA of the run.
    pub(crate) start: u64,
    /// What the block in the second half says on the SSD.
    pub(crate) block: ScMetadata,
    /// The truth of the stored data. Differs from `block` where the host has registered new data for a result, and not written them.
    pub(crate) stored: ScMetadata,
    /// What the host registered: the truth of data that it writes. Differs from `block` where the drive has put a result
    /// in the place of the host's data.
    pub(crate) registered: ScMetadata,
}

enum Entry {
    /// What the block says.
    Run(ScMetadata),
    /// The block claims to be metadata, but is not valid.
    Damaged(MetadataError),
}

struct Registered {
    /// Runs and results to hold.
    most: usize,
    /// One bit per cluster, 64 clusters per entry: those whose part of the second half has been read.
    loaded: HashMap<u64, u64>,
    /// By the first LBA.
    entries: BTreeMap<u64, Entry>,
    /// Where to look for a cluster that can be read again.
    hand: u64,
    /// What hosts registered, where a result that is described otherwise took the place of their data.
    registered: Recent,
    /// What describes results, where a host has registered new data for their place and not written them.
    replaced: Recent,
    /// What describes the data that the last read of a run delivered, where a program computed it.
    delivered: Recent,
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
    fn new(most: usize) -> Registered {
        Registered {
            most,
            loaded: HashMap::new(),
            entries: BTreeMap::new(),
            hand: 0,
            registered: Recent::new(most),
            replaced: Recent::new(most),
            delivered: Recent::new(most),
        }
    }

    fn is_loaded(&self, cluster: u64) -> bool {
        let word = self.loaded.get(&(cluster / 64)).copied().unwrap_or(0);
        word >> (cluster % 64) & 1 != 0
    }

    /// Takes a cluster out of memory: it can be read again.
    fn unload(&mut self, cluster: u64, blocks: u64) {
        if let Some(word) = self.loaded.get_mut(&(cluster / 64)) {
            *word &= !(1 << (cluster % 64));
        }
        self.remove(cluster * blocks..(cluster + 1) * blocks);
    }

    fn remove(&mut self, starts: Range<u64>) {
        if starts.is_empty() {
            return;
        }
        let gone: Vec<u64> = self
            .entries
            .range(starts)
            .map(|(start, _)| *start)
            .collect();
        for start in gone {
            self.entries.remove(&start);
        }
    }

    /// Takes clusters of `blocks` blocks out of memory, other than `kept`, until no more runs are there than may be.
    fn evict(&mut self, kept: u64, blocks: u64) {
        let mut left = self.entries.len();
        while self.entries.len() > self.most && left > 0 {
            left -= 1;
            let after = self.entries.range(self.hand..).next();
            let Some((start, _)) = after.or_else(|| self.entries.first_key_value()) else {
                return;
            };
            let cluster = start / blocks;
            self.hand = (cluster + 1) * blocks;
            if cluster != kept {
                self.unload(cluster, blocks);
            }
        }
    }

    /// The run that begins here, if it is in memory and not damaged.
    fn view(&self, start: u64) -> Option<RunView> {
        let Entry::Run(block) = self.entries.get(&start)? else {
            return None;
        };
        Some(RunView {
            start,
            block: *block,
            stored: *self.replaced.get(start).unwrap_or(block),
            registered: *self.registered.get(start).unwrap_or(block),
        })
    }

    /// Nothing is known any more of the runs that begin here but what their blocks say.
    fn forget(&mut self, starts: &Range<u64>) {
        for recent in [
            &mut self.registered,
            &mut self.replaced,
            &mut self.delivered,
        ] {
            recent.forget(starts.clone());
        }
    }

    fn set_loaded(&mut self, cluster: u64) {
        *self.loaded.entry(cluster / 64).or_default() |= 1 << (cluster % 64);
    }

    fn put(&mut self, lba: u64, parsed: Result<Option<ScMetadata>, MetadataError>) {
        match parsed {
            Ok(Some(metadata)) => {
                self.entries.insert(lba, Entry::Run(metadata));
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
            state: RwLock::new(Registered::new(MOST)),
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
                Entry::Run(stored) => start + u64::from(stored.blocks()),
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
        if self.is_loaded(blocks) {
            return Ok(());
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
            let mut state = self.write();
            state.set_loaded(cluster);
            state.evict(cluster, self.cluster);
        }
        Ok(())
    }

    /// Whether the metadata of the blocks, of the first half, are in memory.
    pub(crate) fn is_loaded(&self, blocks: &Range<u64>) -> bool {
        let state = self.read();
        self.clusters(blocks)
            .all(|cluster| state.is_loaded(cluster))
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
        let stored = match entry {
            Entry::Run(stored) => *stored,
            Entry::Damaged(_) if lba >= cluster_end => return Ok(None),
            Entry::Damaged(error) => {
                return Err(Fault::new(
                    METADATA_INVALID,
                    format!("{error} (at LBA {})", self.metadata_lba(start)),
                ));
            }
        };
        let run_end = start + u64::from(stored.blocks());
        if lba >= run_end {
            return Ok(None);
        }
        if end > run_end {
            return Err(Fault::new(
                METADATA_MISMATCH,
                format!(
                    "{blocks} blocks at LBA {lba} reach beyond the object part at LBA {start} of {} blocks",
                    stored.blocks()
                ),
            ));
        }
        Ok(state.view(start))
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
                // A result is described like the data in whose place it is, with the same register.
                Entry::Run(stored) => !keys.allows(stored.vr().key_id()),
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
            state.unload(cluster, self.cluster);
            let starts = cluster * self.cluster..(cluster + 1) * self.cluster;
            state.forget(&starts);
        }
        let first = data.start - data.start % self.cluster;
        state.delivered.forget(first..data.end);
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
            let cluster = start / self.cluster;
            // A result stays one until data takes its place.
            let old = state.view(start).map(|run| run.stored);
            let replaced = old.filter(|old| {
                let takes_its_place = |new: &ScMetadata| new != old && is_same_place(new, old);
                old.computed() && metadata.as_ref().is_some_and(takes_its_place)
            });
            state.registered.set(start, None);
            state.replaced.set(start, replaced);
            state.delivered.set(start, None);
            // What is not loaded yet will be read from the SSD when needed.
            if state.is_loaded(cluster) {
                state.put(start, Ok(metadata));
                state.evict(cluster, self.cluster);
            }
        }
    }

    /// Blocks of the namespace are zero now, in either half. The caller holds the update lock.
    pub(crate) fn zeroed(&self, blocks: &Range<u64>) {
        let mut state = self.write();
        let (data, metadata) = self.halves(blocks);
        state.remove(metadata.clone());
        state.forget(&metadata);
        let first = data.start - data.start % self.cluster;
        state.delivered.forget(first..data.end);
    }

    /// Whether the run still is as the caller saw it. The caller holds the update lock if it acts on it.
    pub(crate) fn is_current(&self, view: &RunView) -> bool {
        self.read().view(view.start).as_ref() == Some(view)
    }

    /// The data of the run has been written, and `stored` describes it. The caller holds the update lock.
    pub(crate) fn data_written(&self, run: &RunView, stored: ScMetadata) {
        let mut state = self.write();
        let other = (run.registered != stored).then_some(run.registered);
        state.registered.set(run.start, other);
        state.replaced.set(run.start, None);
        state.delivered.set(run.start, None);
        if let Some(entry) = state.entries.get_mut(&run.start) {
            *entry = Entry::Run(stored);
        }
    }

    /// A read of the run delivered what `delivered` describes; `None`: the stored data.
    pub(crate) fn delivered(&self, view: &RunView, delivered: Option<ScMetadata>) {
        let mut state = self.write();
        if state.view(view.start).as_ref() == Some(view) {
            let stored = (view.stored != view.block).then_some(view.stored);
            state.delivered.set(view.start, delivered.or(stored));
        }
    }

    /// Puts the metadata of delivered results into blocks of the second half that a host reads from `lba` on.
    pub(crate) fn overlay(&self, lba: u64, data: &mut [u8]) {
        let state = self.read();
        let first = lba - self.half;
        let blocks = (data.len() / self.block_size) as u64;
        for (start, delivered) in state.delivered.range(first..first + blocks) {
            let at = (start - first) as usize * self.block_size;
            data[at..at + ScMetadata::SIZE].copy_from_slice(&delivered.to_bytes());
        }
    }
}

/// Whether two runs that begin at one block are for the same part of the same object.
fn is_same_place(a: &ScMetadata, b: &ScMetadata) -> bool {
    let place = |sc: &ScMetadata| (sc.vr(), sc.params(), sc.size(), sc.offset(), sc.blocks());
    place(a) == place(b)
}

/// What a block of the second half says; a block without the magic number is plain data.
fn parse(block: &[u8]) -> Result<Option<ScMetadata>, MetadataError> {
    let bytes = block.get(..ScMetadata::SIZE).unwrap_or(block);
    match ScMetadata::from_bytes(bytes) {
        Err(MetadataError::Magic { .. }) => Ok(None),
        parsed => parsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_holds_a_bounded_number_of_runs() {
        const CLUSTER: u64 = 16;
        let vr = "cor:0:1".parse().unwrap();
        let of = |size| ScMetadata::new(vr, 1, size).unwrap();
        let mut state = Registered::new(100);
        for lba in 0..1600 {
            let cluster = lba / CLUSTER;
            state.set_loaded(cluster);
            state.put(lba, Ok(Some(of(lba + 1))));
            state.evict(cluster, CLUSTER);
            assert!(state.entries.len() <= 100);
            assert!(state.is_loaded(cluster));
        }
        // What is loaded is all there, and what is not has left nothing behind.
        for cluster in 0..1600 / CLUSTER {
            let starts = cluster * CLUSTER..(cluster + 1) * CLUSTER;
            let held = if state.is_loaded(cluster) { CLUSTER } else { 0 };
            assert_eq!(state.entries.range(starts).count() as u64, held);
        }
        // One cluster alone may be larger than the bound.
        let mut state = Registered::new(3);
        state.set_loaded(0);
        for lba in 0..10 {
            state.put(lba, Ok(Some(of(lba + 1))));
        }
        state.evict(0, CLUSTER);
        assert_eq!(state.entries.len(), 10);
    }
}
