//! Writing and reading of a blob's data piece by piece, with buffers of one command.

use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use toroid_isa::metadata::ScMetadata;
use toroid_nvme as nvme;
use toroid_task::Progress;

use super::clusters::Lease;
use super::layout::MAX_NAME_BYTES;
use super::store::{
    Content, IN_FLIGHT, InFlight, Inner, OpenCluster, Target, Version, drive_may_replace,
    to_the_end,
};
use super::{BlobError, BlobStat, ScCarrier};

/// Takes the new content of a blob piece by piece; [`commit`](Self::commit) puts it in place of the old. Dropped without a commit, it
/// leaves the old content.
pub struct BlobWriter {
    inner: Arc<Inner>,
    target: Target,
    name: Option<String>,
    sc: Option<ScMetadata>,
    /// The version that alone may be replaced.
    made_from: Option<u64>,
    size: u64,
    lease: Arc<Lease>,
    clusters: Vec<u32>,
    /// Bytes that went to the drive, and those of them whose commands have ended.
    sent: u64,
    written: u64,
    in_flight: InFlight,
    /// The cluster of the next command, unless that begins another.
    cluster: Option<OpenCluster>,
    /// Bytes of the next command so far.
    buffer: Vec<u8>,
    crc: u32,
    /// A piece may be missing: a command failed, or the call that sent it was abandoned.
    failed: bool,
    progress: Progress,
}

impl BlobWriter {
    pub(super) async fn new(
        inner: Arc<Inner>,
        target: Target,
        size: u64,
        sc: Option<ScMetadata>,
    ) -> Result<Self, BlobError> {
        check_size(sc.as_ref(), size)?;
        let lease = inner.take_clusters_for(size).await?;
        Ok(Self {
            target,
            name: None,
            sc,
            made_from: None,
            size,
            clusters: lease.iter().collect(),
            lease: Arc::new(lease),
            sent: 0,
            written: 0,
            in_flight: InFlight::default(),
            cluster: None,
            buffer: Vec::new(),
            crc: 0,
            failed: false,
            progress: Progress::none(),
            inner,
        })
    }

    /// Reports each command to `progress`, and stops before the next one when `progress` is cancelled.
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Gives the blob another name together with the new content.
    pub fn with_name(mut self, name: String) -> Result<Self, BlobError> {
        self.set_name(name)?;
        Ok(self)
    }

    /// [`BlobWriter::with_name`] for a name that is known only once the content has been written.
    pub fn set_name(&mut self, name: String) -> Result<(), BlobError> {
        check_name(&name)?;
        self.name = Some(name);
        Ok(())
    }

    /// Has the content replace that version of the blob which has this sequence number ([`BlobStat::sequence`]), and no other: where another
    /// is the current one at the commit, that fails with [`BlobError::Changed`].
    #[must_use]
    pub fn in_place_of(mut self, sequence: u64) -> Self {
        self.made_from = Some(sequence);
        self
    }

    /// Has the commit of a new blob fail with [`BlobError::NameTaken`] where another one has the name, with content, by then.
    #[must_use]
    pub fn alone(mut self) -> Self {
        if let Target::New { alone, .. } = &mut self.target {
            *alone = true;
        }
        self
    }

    /// Appends `data`. Where a command fails, this call or a later one does. After an error other than [`BlobError::SizeMismatch`] the writer is of no more use.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<(), BlobError> {
        let given = self.sent + self.buffer.len() as u64 + data.len() as u64;
        if given > self.size {
            return Err(BlobError::SizeMismatch {
                expected: self.size,
                found: given,
            });
        }
        let command_bytes = match self.sc {
            Some(_) => self.inner.command_bytes(),
            None => self.inner.plain_command_bytes(),
        } as usize;
        while !data.is_empty() {
            if self.buffer.is_empty() {
                let block_bytes = u64::from(self.inner.sb.block_bytes);
                let left = (self.size - self.sent).next_multiple_of(block_bytes);
                let bytes = usize::try_from(left).map_or(command_bytes, |l| l.min(command_bytes));
                self.buffer.reserve_exact(bytes);
            }
            let (now, later) = data.split_at(data.len().min(command_bytes - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            data = later;
            if self.buffer.len() == command_bytes {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Makes the content that of the blob, durably; gives what the store then knows of the blob.
    ///
    /// Fails with [`BlobError::SizeMismatch`] if not all bytes were given, with [`BlobError::NoSuchBlob`] if the blob was deleted
    /// meanwhile, and with [`BlobError::Changed`] as [`in_place_of`](Self::in_place_of) says.
    pub async fn commit(self) -> Result<BlobStat, BlobError> {
        let inner = self.inner.clone();
        let content = self.finish().await?;
        to_the_end(async move {
            inner.flush().await?;
            Ok(inner.commit_contents(vec![content]).await?.remove(0))
        })
        .await
    }

    /// Sends what is left of the content.
    pub(super) async fn finish(mut self) -> Result<(Target, Content), BlobError> {
        let given = self.sent + self.buffer.len() as u64;
        if given != self.size {
            return Err(BlobError::SizeMismatch {
                expected: self.size,
                found: given,
            });
        }
        self.send_rest().await?;
        if self.failed {
            return Err(BlobError::WriterFailed);
        }
        self.progress.check()?;
        let content = Content {
            name: self.name,
            data_crc: (!drive_may_replace(self.sc.as_ref())).then_some(self.crc),
            sc: self.sc,
            size: self.size,
            lease: self.lease,
            made_from: self.made_from,
        };
        Ok((self.target, content))
    }

    /// Sends what is left, and gives the content up.
    pub(super) async fn abandon(mut self) -> Result<Arc<Lease>, BlobError> {
        self.send_rest().await?;
        Ok(self.lease)
    }

    /// Sends what is left, and waits for the end of all commands.
    async fn send_rest(&mut self) -> Result<(), BlobError> {
        if !self.buffer.is_empty() {
            self.send().await?;
        }
        let failed = std::mem::replace(&mut self.failed, true);
        while self.end_one().await? {
            self.progress.check()?;
        }
        self.failed = failed;
        Ok(())
    }

    /// Waits for the end of a command; tells whether there was one.
    async fn end_one(&mut self) -> Result<bool, BlobError> {
        let Some(ended) = self.in_flight.end_one().await? else {
            return Ok(false);
        };
        self.written += ended;
        self.progress.report("write", self.written, self.size);
        Ok(true)
    }

    /// Sends the buffer as one command.
    async fn send(&mut self) -> Result<(), BlobError> {
        if self.failed {
            return Err(BlobError::WriterFailed);
        }
        self.failed = true;
        self.progress.check()?;
        let inner = self.inner.clone();
        let block_bytes = u64::from(inner.sb.block_bytes);
        let cluster_bytes = inner.sb.cluster_bytes();
        let offset = self.sent;
        let within = offset % cluster_bytes;
        let cluster = match self.cluster.take() {
            Some(cluster) if within > 0 => cluster,
            _ => self.open(offset)?,
        };
        self.cluster = Some(cluster.clone());
        let mut data = std::mem::take(&mut self.buffer);
        let bytes = data.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &data);
        data.resize((bytes.div_ceil(block_bytes) * block_bytes) as usize, 0);

        let mut metadata = Vec::new();
        if let (Some(sc), ScCarrier::NvmeMetadata) = (self.sc, inner.sb.carrier) {
            for block in 0..bytes.div_ceil(block_bytes) {
                let sc = sc.with_offset(offset + block * block_bytes)?;
                metadata.extend_from_slice(&sc.with_blocks(0).to_bytes());
            }
        }
        while self.in_flight.is_full() {
            self.end_one().await?;
        }
        let write = cluster.write(within, data, metadata);
        self.in_flight.start(bytes, write);
        self.sent += bytes;
        if self.sc.is_some() {
            // The drive wants the parts of an object in their order.
            self.end_one().await?;
        }
        self.failed = false;
        Ok(())
    }

    /// The cluster of the data at `offset`, the first that it holds.
    fn open(&self, offset: u64) -> Result<OpenCluster, BlobError> {
        let sb = &self.inner.sb;
        let place = offset / sb.cluster_bytes();
        let Some(&cluster) = self.clusters.get(place as usize) else {
            return Err(BlobError::WriterFailed);
        };
        let sc = match self.sc {
            Some(sc) => {
                let covered = (self.size - offset).min(sb.cluster_bytes());
                let blocks = covered.div_ceil(sb.block_bytes.into());
                Some(sc.with_offset(offset)?.with_blocks(blocks as u32))
            }
            None => None,
        };
        Ok(OpenCluster::new(&self.inner, cluster, sc, &self.lease))
    }
}

pub(super) fn check_name(name: &str) -> Result<(), BlobError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(BlobError::NameTooLong(name.len()));
    }
    Ok(())
}

fn check_size(sc: Option<&ScMetadata>, size: u64) -> Result<(), BlobError> {
    match sc {
        Some(sc) if sc.size() != size => Err(BlobError::SizeMismatch {
            expected: sc.size(),
            found: size,
        }),
        _ => Ok(()),
    }
}

/// Gives the content that a blob had when the reader was made, piece by piece.
pub struct BlobReader {
    inner: Arc<Inner>,
    version: Arc<Version>,
    clusters: Vec<u32>,
    done: u64,
    crc: u32,
    sc: Option<ScMetadata>,
    progress: Progress,
}

impl BlobReader {
    pub(super) fn new(inner: Arc<Inner>, version: Arc<Version>) -> Self {
        Self {
            clusters: version.lease.iter().collect(),
            inner,
            version,
            done: 0,
            crc: 0,
            sc: None,
            progress: Progress::none(),
        }
    }

    /// Reports each command to `progress`, and stops before the next one when `progress` is cancelled.
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Bytes of the content.
    pub fn size(&self) -> u64 {
        self.version.size
    }

    /// What the store knows of the version that is read. Its sequence number is what [`BlobStore::update`](super::BlobStore::update) expects.
    pub fn stat(&self) -> BlobStat {
        self.version.stat()
    }

    /// The `len` bytes from `offset` on, wherever [`next_chunk`](Self::next_chunk) is. Only the blocks that hold them are
    /// read, and no checksum of the content is checked.
    ///
    /// The drive takes reads of blocks with secure computing metadata as it takes those of whole objects: it may load parts into
    /// registers, and refuses a part of a sample that it computes on a read.
    ///
    /// # Errors
    /// [`BlobError::OutOfRange`] if the content ends before the range does, [`BlobError::OutOfMemory`],
    /// [`BlobError::Cancelled`], [`BlobError::Nvme`].
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, BlobError> {
        let range = offset..offset.saturating_add(len as u64);
        let mut bytes = Vec::new();
        self.read_ranges(std::slice::from_ref(&range), &mut bytes, &self.progress)
            .await?;
        Ok(bytes)
    }

    /// Appends ranges of the content to `bytes`, one behind the other, as [`read_at`](Self::read_at) reads one. Reports each command to
    /// `progress`, and stops before the next one when it is cancelled.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    pub async fn read_ranges(
        &self,
        ranges: &[Range<u64>],
        bytes: &mut Vec<u8>,
        progress: &Progress,
    ) -> Result<(), BlobError> {
        let size = self.version.size;
        let (mut reads, mut len) = (Vec::new(), 0u64);
        for range in ranges {
            if range.start > range.end || range.end > size {
                return Err(BlobError::OutOfRange {
                    offset: range.start,
                    len: range.end.saturating_sub(range.start),
                    size,
                });
            }
            let mut done = range.start;
            while done < range.end {
                let (lba, wanted) = self.command_at(done, range.end)?;
                done += wanted.len() as u64;
                reads.push((lba, wanted));
            }
            len = len.saturating_add(range.end - range.start);
        }
        let room = usize::try_from(len).ok();
        room.and_then(|len| bytes.try_reserve_exact(len).ok())
            .ok_or(BlobError::OutOfMemory(len))?;
        let reads = reads.into_iter().map(|(lba, range)| async move {
            progress.check()?;
            let blocks = (range.end as u64).div_ceil(self.inner.sb.block_bytes.into());
            let read = nvme::read_blocks(&*self.inner.controller, self.inner.nsid, lba, blocks);
            Ok::<_, BlobError>((read.await?.data, range))
        });
        // The drive wants the parts of an object in their order.
        let in_flight = match self.version.sc {
            Some(_) => 1,
            None => IN_FLIGHT,
        };
        let mut reads = stream::iter(reads).buffered(in_flight);
        let mut done = 0;
        while let Some((data, range)) = reads.try_next().await? {
            done += range.len() as u64;
            bytes.extend_from_slice(data.get(range).unwrap_or_default());
            progress.report("read", done, len);
        }
        Ok(())
    }

    /// The block where a command begins that reads from byte `offset` on, and the bytes of its data that are wanted, up to `end`
    /// of the content.
    fn command_at(&self, offset: u64, end: u64) -> Result<(u64, Range<usize>), BlobError> {
        let (_, lba) = self.place(offset)?;
        let skipped = offset % u64::from(self.inner.sb.block_bytes);
        let first = offset - skipped;
        let cluster_bytes = self.inner.sb.cluster_bytes();
        let in_cluster = cluster_bytes - first % cluster_bytes;
        let most = match self.version.sc {
            Some(_) => self.inner.command_bytes(),
            None => self.inner.plain_command_bytes(),
        };
        let bytes = (end - first).min(in_cluster.min(most));
        Ok((lba, skipped as usize..bytes as usize))
    }

    /// The cluster and the block that hold the byte at `offset`.
    fn place(&self, offset: u64) -> Result<(u32, u64), BlobError> {
        let sb = &self.inner.sb;
        let cluster_bytes = sb.cluster_bytes();
        let Some(&cluster) = self.clusters.get((offset / cluster_bytes) as usize) else {
            return Err(BlobError::Corrupt {
                what: "extents of a blob that do not match its size",
                lba: 0,
            });
        };
        let block = offset % cluster_bytes / u64::from(sb.block_bytes);
        Ok((cluster, sb.cluster_lba(cluster) + block))
    }

    /// The next piece, at most one command long; `None` after the last.
    ///
    /// The last piece comes only if the checksum of the whole content is right, where there is one; otherwise the call fails with
    /// [`BlobError::Corrupt`].
    pub async fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        let left = self.version.size - self.done;
        if left == 0 {
            return Ok(None);
        }
        self.progress.check()?;
        let sb = &self.inner.sb;
        let block_bytes = u64::from(sb.block_bytes);
        let bytes = left.min(self.inner.command_bytes());
        let corrupt = |what, lba| BlobError::Corrupt { what, lba };
        let (cluster, lba) = self.place(self.done)?;
        let controller = &*self.inner.controller;
        let nsid = self.inner.nsid;
        let read = nvme::read_blocks(controller, nsid, lba, bytes.div_ceil(block_bytes)).await?;
        if self.done == 0 && self.version.sc.is_some() {
            // In the second half, what belongs to the data is there only after the data was read.
            let (sc, at) = match sb.carrier {
                ScCarrier::NvmeMetadata => (read.metadata, lba),
                ScCarrier::SecondHalf => {
                    let at = self.inner.second_half_lba(cluster);
                    (nvme::read_blocks(controller, nsid, at, 1).await?.data, at)
                }
            };
            self.sc = sc
                .get(..ScMetadata::SIZE)
                .and_then(|bytes| ScMetadata::from_bytes(bytes).ok())
                .ok_or(corrupt("unreadable secure computing metadata", at))?;
        }
        let mut data = read.data;
        data.truncate(bytes as usize);
        self.crc = crc32c::crc32c_append(self.crc, &data);
        self.done += bytes;
        if self.done == self.version.size && self.version.data_crc.is_some_and(|c| c != self.crc) {
            return Err(corrupt(
                "wrong checksum of the data of a blob that ends",
                lba,
            ));
        }
        self.progress.report("read", self.done, self.version.size);
        Ok(Some(data))
    }

    /// The metadata that came back from the drive with the first piece; `None` before it, and for plain data.
    pub fn sc(&self) -> Option<ScMetadata> {
        self.sc
    }
}
