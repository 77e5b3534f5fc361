//! The mounted store: the table of blobs, and the commit that changes it.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::{Mutex, OnceCell};
use toroid_isa::VrNumber;
use toroid_isa::metadata::ScMetadata;
use toroid_nvme::{self as nvme, Controller};
use toroid_task::Progress;
use uuid::Uuid;

use super::clusters::{Clusters, Lease};
use super::layout::{
    FORMAT_VERSION, MAX_SEQUENCE, PageHeader, Record, SUPER_BLOCK_LBAS, SuperBlock,
};
use super::mount::newest_super_block;
use super::stream::check_name;
use super::{
    BlobData, BlobError, BlobId, BlobReader, BlobStat, BlobWriter, FormatOptions, MountOptions,
    NewBlob, Placement, ScCarrier, StoreInfo,
};

/// A mounted blob store. Clones are handles of the same store. One mount at a time may change a store: after another client has mounted it
/// for changes, those of this one fail with [`BlobError::MountedElsewhere`].
#[derive(Clone)]
pub struct BlobStore {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub controller: Arc<dyn Controller>,
    pub nsid: u32,
    pub read_only: bool,
    pub sb: SuperBlock,
    pub clusters: Clusters,
    /// The current version of every blob. Locked for moments only, never across an await.
    pub table: RwLock<BTreeMap<BlobId, Arc<Version>>>,
    /// Held from the first to the last command of a change of metadata.
    pub pages: Mutex<Pages>,
    /// Set once a failure leaves open what the medium holds: a failed Flush may have dropped blocks that an earlier change
    /// relies on.
    pub in_doubt: AtomicBool,
}

/// One version of a blob; immutable. Readers keep it, and with it its clusters, alive.
pub(super) struct Version {
    pub id: BlobId,
    pub sequence: u64,
    pub name: String,
    pub sc: Option<ScMetadata>,
    pub size: u64,
    pub written: bool,
    pub data_crc: Option<u32>,
    pub lease: Arc<Lease>,
    /// Metadata pages of the record, head first.
    pub pages: Vec<u32>,
}

/// The metadata region.
pub(super) struct Pages {
    pub free: Vec<u32>,
    pub next_sequence: u64,
    /// Versions replaced since the last flush. The markers on their heads are written but maybe not durable, so
    /// their pages and clusters must not be reused yet.
    pub replaced: Vec<Arc<Version>>,
}

impl Pages {
    /// The sequence number of the next change.
    fn sequence(&self) -> Result<u64, BlobError> {
        if self.next_sequence > MAX_SEQUENCE {
            return Err(BlobError::NoSequenceNumber);
        }
        Ok(self.next_sequence)
    }
}

/// The blob that gets a content.
pub(super) enum Target {
    Blob(BlobId),
    /// One that comes into being with it.
    New {
        name: String,
        /// Whether it must be the only written one of the name.
        alone: bool,
    },
}

/// What a commit puts in place of a blob's current version.
pub(super) struct Content {
    /// A new name of the blob.
    pub name: Option<String>,
    pub sc: Option<ScMetadata>,
    pub size: u64,
    pub data_crc: Option<u32>,
    pub lease: Arc<Lease>,
    /// Sequence number of the version that it is made from, if it takes over clusters of that one: no other may be replaced.
    pub made_from: Option<u64>,
}

impl Version {
    /// Fails with [`BlobError::Changed`] if this is not the version of that sequence number.
    pub fn check_is(&self, expected: u64) -> Result<(), BlobError> {
        if self.sequence == expected {
            return Ok(());
        }
        Err(BlobError::Changed {
            id: self.id,
            expected,
            found: self.sequence,
        })
    }

    pub fn stat(&self) -> BlobStat {
        BlobStat {
            id: self.id,
            name: self.name.clone(),
            size: self.size,
            written: self.written,
            sc: self.sc,
            clusters: self.lease.len(),
            crc32c: self.data_crc,
            sequence: self.sequence,
        }
    }

    fn record(&self) -> Record {
        Record {
            name: self.name.clone(),
            sc: self.sc.map(|sc| sc.to_bytes()),
            size: self.size,
            written: self.written,
            data_crc: self.data_crc,
            extents: self.lease.extents().to_vec(),
        }
    }
}

/// Changes that count together, and the page that says so.
struct Group {
    page: u32,
    first: u64,
    last: u64,
}

/// Whether the drive may replace data of this type by a program's result, so that the store cannot know its checksum.
pub(super) fn drive_may_replace(sc: Option<&ScMetadata>) -> bool {
    sc.is_some_and(|sc| sc.vr().ty().is_sample())
}

/// Starts `future` at once and runs it to its end even if the caller goes away meanwhile: a command in progress must never
/// meet clusters or pages that have found another owner.
pub(super) fn to_the_end<T: Send + 'static, E: From<BlobError> + Send + 'static>(
    future: impl Future<Output = Result<T, E>> + Send + 'static,
) -> impl Future<Output = Result<T, E>> + Send + 'static {
    let task = tokio::spawn(future);
    async move {
        match task.await {
            Ok(result) => result,
            Err(e) => match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(BlobError::Cancelled.into()),
            },
        }
    }
}

/// Commands of plain data that are on their way to the drive at a time.
pub(super) const IN_FLIGHT: usize = 16;
/// Most bytes of such a command: while the drive works on one, others are on their way.
const PLAIN_BYTES: u64 = 256 << 10;

/// Writes on their way to the drive, each with the number of its bytes. Dropped, it leaves them to run to their ends.
#[derive(Default)]
pub(super) struct InFlight {
    writes: VecDeque<BoxFuture<'static, Result<u64, BlobError>>>,
}

impl InFlight {
    /// Whether there are so many that one must end before the next starts.
    pub fn is_full(&self) -> bool {
        self.writes.len() >= IN_FLIGHT
    }

    /// Starts a write of so many bytes.
    pub fn start(
        &mut self,
        bytes: u64,
        write: impl Future<Output = Result<(), BlobError>> + Send + 'static,
    ) {
        let write = to_the_end(async move { write.await.map(|()| bytes) });
        self.writes.push_back(write.boxed());
    }

    /// Waits for the end of the write that was started first; gives its bytes. `None` where there is none.
    pub async fn end_one(&mut self) -> Result<Option<u64>, BlobError> {
        let Some(write) = self.writes.front_mut() else {
            return Ok(None);
        };
        let ended = write.await;
        self.writes.pop_front();
        ended.map(Some)
    }
}

/// A cluster that gets content: the first command that has some for it tells the drive whose it is.
#[derive(Clone)]
pub(super) struct OpenCluster {
    inner: Arc<Inner>,
    cluster: u32,
    sc: Option<ScMetadata>,
    lease: Arc<Lease>,
    prepared: Arc<OnceCell<()>>,
}

impl OpenCluster {
    /// A cluster of a lease, which gets an object with this metadata, or plain data.
    pub fn new(
        inner: &Arc<Inner>,
        cluster: u32,
        sc: Option<ScMetadata>,
        lease: &Arc<Lease>,
    ) -> OpenCluster {
        OpenCluster {
            inner: Arc::clone(inner),
            cluster,
            sc,
            lease: Arc::clone(lease),
            prepared: Arc::default(),
        }
    }

    /// Writes blocks by one command, from byte `within` of the cluster on. The cluster finds no other owner while that runs.
    pub async fn write(
        self,
        within: u64,
        data: Vec<u8>,
        metadata: Vec<u8>,
    ) -> Result<(), BlobError> {
        let OpenCluster {
            inner,
            cluster,
            sc,
            lease,
            prepared,
        } = &self;
        let prepare = || inner.prepare(*cluster, *sc, lease);
        prepared.get_or_try_init(prepare).await?;
        let lba = inner.sb.cluster_lba(*cluster) + within / u64::from(inner.sb.block_bytes);
        inner.write(lba, data, &metadata).await
    }
}

impl Inner {
    pub fn version(&self, id: BlobId) -> Result<Arc<Version>, BlobError> {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .cloned()
            .ok_or(BlobError::NoSuchBlob(id))
    }

    fn list(&self) -> Vec<BlobStat> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.values().map(|version| version.stat()).collect()
    }

    /// Fails with [`BlobError::NameTaken`] where a blob of this name has content.
    fn check_is_free(&self, name: &str) -> Result<(), BlobError> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut versions = table.values();
        match versions.any(|version| version.written && version.name == name) {
            true => Err(BlobError::NameTaken(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Puts versions into the table, all at once; gives those that they replace.
    fn replace_all(&self, versions: Vec<Version>) -> Vec<Arc<Version>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let versions = versions.into_iter();
        versions
            .filter_map(|version| table.insert(version.id, Arc::new(version)))
            .collect()
    }

    fn remove(&self, id: BlobId) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&id);
    }

    pub async fn flush(&self) -> Result<(), BlobError> {
        let flushed = nvme::flush(&*self.controller, self.nsid).await;
        if flushed.is_err() {
            self.in_doubt.store(true, Ordering::SeqCst);
        }
        Ok(flushed?)
    }

    /// To be called before a change: fails with [`BlobError::MountedElsewhere`] if another client has mounted the store for changes since,
    /// with [`BlobError::ReadOnly`] on a mount that only reads.
    pub async fn check_mount(&self) -> Result<(), BlobError> {
        if self.read_only {
            return Err(BlobError::ReadOnly);
        }
        let newest = newest_super_block(&*self.controller, self.nsid).await?;
        if newest.mount == self.sb.mount {
            Ok(())
        } else if newest.sequence >= self.sb.sequence {
            Err(BlobError::MountedElsewhere)
        } else {
            Err(BlobError::Corrupt {
                what: "the copy of the super block that this mount wrote is lost; the first",
                lba: SUPER_BLOCK_LBAS[0],
            })
        }
    }

    /// To be called before any data of a cluster comes: tells the drive whose it is, in the second-half form, and fails as
    /// [`Inner::check_mount`] does.
    pub fn prepare(
        self: &Arc<Self>,
        cluster: u32,
        sc: Option<ScMetadata>,
        lease: &Arc<Lease>,
    ) -> impl Future<Output = Result<(), BlobError>> + Send + 'static {
        let (inner, lease) = (self.clone(), lease.clone());
        to_the_end(async move {
            inner.check_mount().await?;
            if inner.sb.carrier == ScCarrier::SecondHalf {
                let lba = inner.second_half_lba(cluster);
                match sc {
                    Some(sc) => {
                        let mut block = sc.to_bytes().to_vec();
                        block.resize(inner.sb.block_bytes as usize, 0);
                        inner.write(lba, block, &[]).await?;
                    }
                    None => inner.write_zeroes(lba, 1).await?,
                }
            }
            // Kept to here, so that the cluster finds no other owner while the commands run.
            drop(lease);
            Ok(())
        })
    }

    fn check_not_in_doubt(&self) -> Result<(), BlobError> {
        if self.in_doubt.load(Ordering::SeqCst) {
            Err(BlobError::InDoubt)
        } else {
            Ok(())
        }
    }

    pub async fn write<'d>(
        &self,
        lba: u64,
        data: impl Into<Cow<'d, [u8]>>,
        metadata: &[u8],
    ) -> Result<(), BlobError> {
        Ok(nvme::write_blocks(&*self.controller, self.nsid, lba, data, metadata, false).await?)
    }

    pub async fn write_zeroes(&self, lba: u64, blocks: u64) -> Result<(), BlobError> {
        Ok(nvme::write_zeroes(&*self.controller, self.nsid, lba, blocks).await?)
    }

    /// The LBA of the block that carries the metadata of a cluster in the second-half form.
    pub fn second_half_lba(&self, cluster: u32) -> u64 {
        self.sb.cluster_lba(cluster) + self.sb.data_blocks
    }

    /// Bytes of one data command: a power of two up to MDTS, but no more than a cluster, so that clusters are a
    /// multiple of it.
    pub fn command_bytes(&self) -> u64 {
        let mdts = self.controller.info().mdts_bytes;
        let mdts = mdts.checked_ilog2().map_or(0, |log2| 1 << log2);
        self.sb
            .cluster_bytes()
            .min(mdts)
            .max(u64::from(self.sb.block_bytes))
    }

    /// The same for plain data.
    pub fn plain_command_bytes(&self) -> u64 {
        let most = PLAIN_BYTES.max(u64::from(self.sb.block_bytes));
        self.command_bytes().min(most)
    }

    /// Leases clusters for `size` bytes, if need be those that a flush sets free.
    pub async fn take_clusters_for(self: &Arc<Self>, size: u64) -> Result<Lease, BlobError> {
        self.take_clusters(size.div_ceil(self.sb.cluster_bytes()))
            .await
    }

    /// Leases so many clusters, if need be those that a flush sets free.
    pub async fn take_clusters(self: &Arc<Self>, needed: u64) -> Result<Lease, BlobError> {
        self.check_mount().await?;
        let count = u32::try_from(needed).unwrap_or(u32::MAX);
        if let Some(lease) = self.clusters.take(count) {
            return Ok(lease);
        }
        let this = self.clone();
        to_the_end(async move {
            let mut pages = this.pages.lock().await;
            this.settle(&mut pages).await
        })
        .await?;
        let lease = self.clusters.take(count);
        lease.ok_or_else(|| self.no_space(needed))
    }

    /// The error that so many clusters are not free.
    pub fn no_space(&self, needed: u64) -> BlobError {
        BlobError::NoSpace {
            needed: needed.saturating_mul(self.sb.cluster_bytes()),
            free: u64::from(self.clusters.free()) * self.sb.cluster_bytes(),
        }
    }

    /// Makes everything written so far durable and sets the pages and clusters of replaced versions free.
    async fn settle(&self, pages: &mut Pages) -> Result<(), BlobError> {
        self.flush().await?;
        self.release_replaced(pages).await
    }

    /// To be called when a flush has covered the markers on the replaced versions.
    async fn release_replaced(&self, pages: &mut Pages) -> Result<(), BlobError> {
        self.check_not_in_doubt()?;
        for version in std::mem::take(&mut pages.replaced) {
            pages.free.extend_from_slice(&version.pages);
            self.release(version).await;
        }
        Ok(())
    }

    /// Gives up a version whose record is durably gone. Unless a reader still holds it, its metadata in the second half is zeroed, so
    /// that a free cluster means nothing to the drive. Versions that share clusters have no metadata. The clusters' next owner does the same again before
    /// it writes, and must, since this zeroing may be skipped, fail, or be lost.
    async fn release(&self, version: Arc<Version>) {
        if self.sb.carrier == ScCarrier::SecondHalf
            && version.sc.is_some()
            && Arc::strong_count(&version) == 1
        {
            if let Err(error) = self.check_mount().await {
                tracing::warn!(%error, blob = version.id.0, "metadata of freed clusters not zeroed");
                return;
            }
            for cluster in version.lease.iter() {
                if let Err(error) = self.write_zeroes(self.second_half_lba(cluster), 1).await {
                    tracing::warn!(%error, cluster, "metadata of a freed cluster not zeroed");
                    return;
                }
            }
        }
    }

    /// Creates a blob, durably.
    async fn create(&self, name: String, sc: Option<ScMetadata>) -> Result<BlobStat, BlobError> {
        let mut pages = self.pages.lock().await;
        let sequence = pages.sequence()?;
        let version = Version {
            id: BlobId(sequence),
            sequence,
            name,
            sc,
            size: 0,
            written: false,
            data_crc: None,
            lease: Arc::new(self.clusters.none()),
            pages: Vec::new(),
        };
        let mut stats = self.commit(&mut pages, vec![version]).await?;
        Ok(stats.remove(0))
    }

    /// Gives blobs new content, durably, all of them or none. The data must be in their clusters and flushed.
    pub async fn commit_contents(
        &self,
        contents: Vec<(Target, Content)>,
    ) -> Result<Vec<BlobStat>, BlobError> {
        self.commit_contents_if(contents, |_| Ok(())).await
    }

    /// The same if a check of all blobs as they are then allows it: no other commit comes between.
    async fn commit_contents_if<E: From<BlobError>>(
        &self,
        contents: Vec<(Target, Content)>,
        check: impl FnOnce(&[BlobStat]) -> Result<(), E>,
    ) -> Result<Vec<BlobStat>, E> {
        let mut pages = self.pages.lock().await;
        check(&self.list())?;
        let first = pages.sequence()?;
        let mut versions = Vec::with_capacity(contents.len());
        for (sequence, (target, content)) in (first..).zip(contents) {
            let (id, name) = match target {
                Target::Blob(id) => {
                    let current = self.version(id)?;
                    if let Some(made_from) = content.made_from {
                        current.check_is(made_from)?;
                    }
                    let name = content.name.clone();
                    (id, name.unwrap_or_else(|| current.name.clone()))
                }
                Target::New { name, alone } => {
                    if alone {
                        self.check_is_free(&name)?;
                    }
                    (BlobId(sequence), content.name.clone().unwrap_or(name))
                }
            };
            versions.push(Version {
                id,
                sequence,
                name,
                sc: content.sc,
                size: content.size,
                written: true,
                data_crc: content.data_crc,
                lease: content.lease,
                pages: Vec::new(),
            });
        }
        Ok(self.commit(&mut pages, versions).await?)
    }

    /// Puts versions, which have consecutive sequence numbers and no pages yet, in place of their blobs' current ones: all or none.
    async fn commit(
        &self,
        pages: &mut Pages,
        mut versions: Vec<Version>,
    ) -> Result<Vec<BlobStat>, BlobError> {
        self.check_not_in_doubt()?;
        self.check_mount().await?;
        let (Some(first), Some(last)) = (versions.first(), versions.last()) else {
            return Ok(Vec::new());
        };
        let (first, last) = (first.sequence, last.sequence);
        if last > MAX_SEQUENCE {
            return Err(BlobError::NoSequenceNumber);
        }
        let records: Vec<Record> = versions.iter().map(Version::record).collect();
        let of_records = records.iter().map(|record| record.pages_needed(&self.sb));
        let is_group = versions.len() > 1;
        let needed = of_records.clone().sum::<usize>() + usize::from(is_group);
        if pages.free.len() < needed {
            self.settle(pages).await?;
        }
        let free = pages.free.len();
        let Some(rest) = free.checked_sub(needed) else {
            return Err(BlobError::NoMetadataPages {
                needed: needed as u32,
                free: free as u32,
            });
        };
        let mut taken = pages.free.split_off(rest);
        let group = if is_group { taken.pop() } else { None };
        let group = group.map(|page| Group { page, first, last });
        for (version, count) in versions.iter_mut().zip(of_records) {
            version.pages = taken.split_off(taken.len() - count);
        }
        pages.next_sequence = last + 1;
        if let Err(error) = self
            .write_records(&versions, &records, group.as_ref())
            .await
        {
            // Records may have become durable even so. Unless they are certainly gone, their pages and clusters must stay
            // untouched, and no later change may rely on them being absent.
            match self.revoke(&versions, group.as_ref()).await {
                Ok(()) => {
                    let of_versions = versions.iter().flat_map(|version| &version.pages);
                    pages.free.extend(of_versions);
                    pages.free.extend(group.map(|group| group.page));
                }
                Err(_) => {
                    for version in versions {
                        self.keep_in_doubt(pages, Arc::new(version));
                    }
                }
            }
            return Err(error);
        }
        let stats = versions.iter().map(Version::stat).collect();
        let olds = self.replace_all(versions);
        // The last flush of write_records covered the markers of earlier changes as well. Where the store is in doubt nothing becomes
        // free, but this change is durable all the same.
        let _ = self.release_replaced(pages).await;
        pages.free.extend(group.map(|group| group.page));
        for old in olds {
            let marker = PageHeader::free(&self.sb, old.id, last);
            match self
                .write(self.sb.page_lba(old.pages[0]), &marker, &[])
                .await
            {
                Ok(()) => pages.replaced.push(old),
                Err(_) => self.keep_in_doubt(pages, old),
            }
        }
        Ok(stats)
    }

    /// Writes records; those of a group count once all of them are durable.
    async fn write_records(
        &self,
        versions: &[Version],
        records: &[Record],
        group: Option<&Group>,
    ) -> Result<(), BlobError> {
        if let Some(group) = group {
            self.begin(group).await?;
        }
        for (version, record) in versions.iter().zip(records) {
            let blocks = record.encode(&self.sb, version.id, version.sequence, &version.pages);
            for (page, block) in version.pages.iter().zip(&blocks) {
                self.write(self.sb.page_lba(*page), block, &[]).await?;
            }
        }
        self.flush().await?;
        match group {
            Some(group) => self.end(group).await,
            None => Ok(()),
        }
    }

    /// Removes the records of a change that failed.
    async fn revoke(&self, versions: &[Version], group: Option<&Group>) -> Result<(), BlobError> {
        self.check_not_in_doubt()?;
        if let Some(group) = group {
            // The failure may have been that of its end.
            self.begin(group).await?;
        }
        for version in versions {
            let head = PageHeader::free(&self.sb, version.id, version.sequence);
            let lba = self.sb.page_lba(version.pages[0]);
            self.write(lba, &head, &[]).await?;
        }
        self.flush().await?;
        match group {
            Some(group) => self.end(group).await,
            None => Ok(()),
        }
    }

    /// Makes the records of a group void, whether they are there or not.
    async fn begin(&self, group: &Group) -> Result<(), BlobError> {
        let block = PageHeader::group(&self.sb, group.first, group.last);
        self.write(self.sb.page_lba(group.page), &block, &[])
            .await?;
        self.flush().await
    }

    /// Makes the records of a group count, all at once.
    async fn end(&self, group: &Group) -> Result<(), BlobError> {
        let block = PageHeader::free(&self.sb, BlobId(group.first), group.last);
        self.write(self.sb.page_lba(group.page), &block, &[])
            .await?;
        self.flush().await
    }

    /// Refuses further changes, and keeps pages and clusters that the medium may still refer to from ever being free.
    fn keep_in_doubt(&self, pages: &mut Pages, version: Arc<Version>) {
        tracing::error!(
            blob = version.id.0,
            "metadata in doubt; the store refuses changes"
        );
        self.in_doubt.store(true, Ordering::SeqCst);
        pages.replaced.push(version);
    }

    async fn delete(&self, id: BlobId) -> Result<(), BlobError> {
        let mut pages = self.pages.lock().await;
        self.check_not_in_doubt()?;
        self.check_mount().await?;
        let version = self.version(id)?;
        if let (Some(cluster), Some(_), ScCarrier::SecondHalf) =
            (version.lease.iter().next(), version.sc, self.sb.carrier)
        {
            // The store's records are open to every host of the namespace, but what a blob's key id denies must not be lost to one by
            // deleting its record.
            nvme::read_blocks(
                &*self.controller,
                self.nsid,
                self.second_half_lba(cluster),
                1,
            )
            .await?;
        }
        if !pages.replaced.is_empty() {
            // An older record of this blob must be gone for good before its newest one goes.
            self.settle(&mut pages).await?;
        }
        let sequence = pages.sequence()?;
        pages.next_sequence += 1;
        let marker = PageHeader::free(&self.sb, id, sequence);
        let lba = self.sb.page_lba(version.pages[0]);
        let done = match self.write(lba, &marker, &[]).await {
            Ok(()) => self.flush().await,
            failed => failed,
        };
        if let Err(error) = done {
            self.keep_in_doubt(&mut pages, version);
            return Err(error);
        }
        self.remove(id);
        pages.free.extend_from_slice(&version.pages);
        self.release(version).await;
        Ok(())
    }
}

impl BlobStore {
    /// Makes an empty store in namespace `nsid` of `controller` and mounts it. Everything in the namespace is lost.
    ///
    /// A namespace with 64 bytes of metadata a block gets [`ScCarrier::NvmeMetadata`], one without [`ScCarrier::SecondHalf`];
    /// the latter must have a power of two of blocks. Fails with [`BlobError::Unsuitable`] where the sizes do
    /// not allow a store.
    pub async fn format(
        controller: Arc<dyn Controller>,
        nsid: u32,
        options: FormatOptions,
    ) -> Result<Self, BlobError> {
        super::mount::format(controller.clone(), nsid, options).await?;
        Self::mount(controller, nsid, MountOptions::default()).await
    }

    /// Mounts the store in namespace `nsid` of `controller`; changes that a crash interrupted are undone or found complete.
    pub async fn mount(
        controller: Arc<dyn Controller>,
        nsid: u32,
        options: MountOptions,
    ) -> Result<Self, BlobError> {
        let inner = to_the_end(super::mount::mount(controller, nsid, options)).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Creates a blob without data (Table 7: `create_blob`).
    pub async fn create_blob(&self, blob: NewBlob) -> Result<BlobId, BlobError> {
        check_name(&blob.name)?;
        let inner = self.inner.clone();
        let stat = to_the_end(async move { inner.create(blob.name, blob.sc).await }).await?;
        Ok(stat.id)
    }

    /// Deletes a blob (Table 7: `delete_blob`). Readers that have started finish.
    pub async fn delete_blob(&self, id: BlobId) -> Result<(), BlobError> {
        let inner = self.inner.clone();
        to_the_end(async move { inner.delete(id).await }).await
    }

    /// Replaces the content of a blob by `data` (Table 7: `write_blob2`).
    pub async fn write_blob(
        &self,
        id: BlobId,
        data: &[u8],
        progress: &Progress,
    ) -> Result<BlobStat, BlobError> {
        let mut writer = self
            .writer(id, data.len() as u64)
            .await?
            .with_progress(progress.clone());
        writer.write(data).await?;
        writer.commit().await
    }

    /// Reads the content of a blob (Table 7: `read_blob2`).
    pub async fn read_blob(&self, id: BlobId, progress: &Progress) -> Result<BlobData, BlobError> {
        let mut reader = self.reader(id)?.with_progress(progress.clone());
        let size = reader.size();
        let mut data = Vec::new();
        usize::try_from(size)
            .ok()
            .and_then(|size| data.try_reserve_exact(size).ok())
            .ok_or(BlobError::OutOfMemory(size))?;
        while let Some(chunk) = reader.next_chunk().await? {
            data.extend_from_slice(&chunk);
        }
        Ok(BlobData {
            data,
            sc: reader.sc(),
        })
    }

    /// Starts replacing the content of a blob by `size` bytes that are given piece by piece. Nothing changes until
    /// [`BlobWriter::commit`].
    ///
    /// Fails with [`BlobError::SizeMismatch`] if the blob's metadata states another size.
    pub async fn writer(&self, id: BlobId, size: u64) -> Result<BlobWriter, BlobError> {
        let sc = self.inner.version(id)?.sc;
        BlobWriter::new(self.inner.clone(), Target::Blob(id), size, sc).await
    }

    /// Starts a blob of `size` bytes, which comes into being with the commit.
    pub async fn new_writer(&self, blob: NewBlob, size: u64) -> Result<BlobWriter, BlobError> {
        check_name(&blob.name)?;
        let target = Target::New {
            name: blob.name,
            alone: false,
        };
        BlobWriter::new(self.inner.clone(), target, size, blob.sc).await
    }

    /// Makes the contents of several writers those of their blobs, durably and all at once: after any failure, all blobs have their new
    /// content or all their old one. What the store then knows of the blobs comes in the order of the writers.
    ///
    /// Fails as [`BlobWriter::commit`] does.
    pub async fn commit_all(&self, writers: Vec<BlobWriter>) -> Result<Vec<BlobStat>, BlobError> {
        self.commit_all_if(writers, |_| Ok(())).await
    }

    /// The same if a check of all blobs, as they are when no other commit can come before this one, allows it.
    pub(crate) async fn commit_all_if<E: From<BlobError> + Send + 'static>(
        &self,
        writers: Vec<BlobWriter>,
        check: impl FnOnce(&[BlobStat]) -> Result<(), E> + Send + 'static,
    ) -> Result<Vec<BlobStat>, E> {
        let mut contents = Vec::with_capacity(writers.len());
        for writer in writers {
            contents.push(writer.finish().await?);
        }
        let inner = self.inner.clone();
        to_the_end(async move {
            inner.flush().await?;
            inner.commit_contents_if(contents, check).await
        })
        .await
    }

    /// The same with other secure computing metadata, which the blob gets together with the new content.
    pub async fn writer_with_sc(
        &self,
        id: BlobId,
        size: u64,
        sc: Option<ScMetadata>,
    ) -> Result<BlobWriter, BlobError> {
        self.inner.version(id)?;
        BlobWriter::new(self.inner.clone(), Target::Blob(id), size, sc).await
    }

    /// Makes room for `sc.size()` bytes of content, which the blob has from then on, all zero and without metadata, until somebody writes
    /// the blocks of [`BlobStore::placement`] by other means than this store.
    ///
    /// For samples, of which the store keeps no checksum.
    pub async fn reserve(&self, id: BlobId, sc: ScMetadata) -> Result<BlobStat, BlobError> {
        self.inner.version(id)?;
        let inner = self.inner.clone();
        let lease = Arc::new(inner.take_clusters_for(sc.size()).await?);
        to_the_end(async move {
            let blocks = u64::from(inner.sb.cluster_blocks);
            for cluster in lease.iter() {
                inner.prepare(cluster, None, &lease).await?;
                inner
                    .write_zeroes(inner.sb.cluster_lba(cluster), blocks)
                    .await?;
            }
            inner.flush().await?;
            let content = Content {
                name: None,
                sc: Some(sc),
                size: sc.size(),
                data_crc: None,
                lease,
                made_from: None,
            };
            let contents = vec![(Target::Blob(id), content)];
            Ok(inner.commit_contents(contents).await?.remove(0))
        })
        .await
    }

    /// Hands an object to the drive without keeping it: its parts go to clusters that no blob owns, and are given up there.
    pub async fn pass(&self, sc: ScMetadata, data: &[u8]) -> Result<(), BlobError> {
        // No blob has this identifier, and none gets this content.
        let size = data.len() as u64;
        let target = Target::Blob(BlobId(0));
        let mut writer = BlobWriter::new(self.inner.clone(), target, size, Some(sc)).await?;
        writer.write(data).await?;
        let lease = writer.abandon().await?;
        let inner = self.inner.clone();
        to_the_end(async move {
            for cluster in lease.iter() {
                inner.prepare(cluster, None, &lease).await?;
            }
            Ok(())
        })
        .await
    }

    /// Where the data of a blob lies, in its order: a run for each cluster.
    pub fn placement(&self, id: BlobId) -> Result<Vec<Placement>, BlobError> {
        let version = self.inner.version(id)?;
        let sb = &self.inner.sb;
        let blocks = version.size.div_ceil(u64::from(sb.block_bytes));
        let most = u64::from(sb.cluster_blocks);
        let runs = (0u64..).zip(version.lease.iter());
        Ok(runs
            .map(|(number, cluster)| Placement {
                cluster,
                lba: sb.cluster_lba(cluster),
                blocks: blocks.saturating_sub(number * most).min(most),
                metadata_lba: (sb.carrier == ScCarrier::SecondHalf)
                    .then(|| self.inner.second_half_lba(cluster)),
            })
            .collect())
    }

    /// The controller that the store is on.
    #[cfg(feature = "image")]
    pub(crate) fn controller(&self) -> Arc<dyn Controller> {
        Arc::clone(&self.inner.controller)
    }

    /// Starts reading the content that a blob has now.
    pub fn reader(&self, id: BlobId) -> Result<BlobReader, BlobError> {
        Ok(BlobReader::new(self.inner.clone(), self.inner.version(id)?))
    }

    /// All blobs, in the order of their creation.
    pub fn list(&self) -> Vec<BlobStat> {
        self.inner.list()
    }

    /// What the store knows of a blob.
    pub fn stat(&self, id: BlobId) -> Result<BlobStat, BlobError> {
        Ok(self.inner.version(id)?.stat())
    }

    /// The blobs whose data belongs into this virtual register, in the order of their creation.
    pub fn find_by_sc(&self, vr: VrNumber) -> Vec<BlobStat> {
        let mut found = self.list();
        found.retain(|stat| stat.sc.is_some_and(|sc| sc.vr() == vr));
        found
    }

    /// Identifier given at format.
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.inner.sb.uuid)
    }

    /// Whether it was mounted for reads alone.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    /// Size and use of the store.
    pub async fn info(&self) -> StoreInfo {
        let free_metadata_pages = self.inner.pages.lock().await.free.len() as u32;
        let sb = &self.inner.sb;
        let table = self.inner.table.read();
        StoreInfo {
            uuid: sb.uuid,
            version: FORMAT_VERSION,
            carrier: sb.carrier,
            block_bytes: sb.block_bytes,
            cluster_bytes: sb.cluster_bytes(),
            clusters: (sb.total_clusters() - sb.first_cluster()) as u32,
            free_clusters: self.inner.clusters.free(),
            first_data_lba: sb.cluster_lba(sb.first_cluster() as u32),
            metadata_pages: sb.metadata_pages,
            free_metadata_pages,
            blobs: table.unwrap_or_else(PoisonError::into_inner).len(),
        }
    }
}
