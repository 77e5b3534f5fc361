//! Writing and reading of a blob's data piece by piece, with buffers of one command.

use std::sync::Arc;

use toroid_isa::metadata::ScMetadata;
use toroid_nvme as nvme;
use toroid_task::Progress;

use super::clusters::Lease;
use super::layout::MAX_NAME_BYTES;
use super::store::{Content, Inner, Target, Version, drive_may_replace, to_the_end};
use super::{BlobError, BlobStat, ScCarrier};

/// Takes the new content of a blob piece by piece; [`commit`](Self::commit) puts it in place of the old. Dropped without a commit, it
/// leaves the old content.
pub struct BlobWriter {
    inner: Arc<Inner>,
    target: Target,
    name: Option<String>,
    sc: Option<ScMetadata>,
    size: u64,
    lease: Arc<Lease>,
    clusters: Vec<u32>,
    /// Bytes that went to the drive.
    sent: u64,
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
            size,
            clusters: lease.iter().collect(),
            lease: Arc::new(lease),
            sent: 0,
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
        check_name(&name)?;
        self.name = Some(name);
        Ok(self)
    }

    /// Appends `data`. After an error other than [`BlobError::SizeMismatch`] the writer is of no more use.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<(), BlobError> {
        let given = self.sent + self.buffer.len() as u64 + data.len() as u64;
        if given > self.size {
            return Err(BlobError::SizeMismatch {
                expected: self.size,
                found: given,
            });
        }
        let command_bytes = self.inner.command_bytes() as usize;
        while !data.is_empty() {
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
    /// Fails with [`BlobError::SizeMismatch`] if not all bytes were given, and with [`BlobError::NoSuchBlob`] if the blob was deleted
    /// meanwhile.
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
        if !self.buffer.is_empty() {
            self.send().await?;
        }
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
            made_from: None,
        };
        Ok((self.target, content))
    }

    /// Sends what is left, and gives the content up.
    pub(super) async fn abandon(mut self) -> Result<Arc<Lease>, BlobError> {
        if !self.buffer.is_empty() {
            self.send().await?;
        }
        Ok(self.lease)
    }

    /// Sends the buffer as one command, preceded by what its cluster needs.
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
        let Some(&cluster) = self.clusters.get((offset / cluster_bytes) as usize) else {
            return Err(BlobError::WriterFailed);
        };
        let mut data = std::mem::take(&mut self.buffer);
        let bytes = data.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &data);
        data.resize((bytes.div_ceil(block_bytes) * block_bytes) as usize, 0);

        let mut before = None;
        let mut metadata = Vec::new();
        let sc_at = |offset, blocks| match self.sc {
            Some(sc) => Ok(Some(sc.with_offset(offset)?.with_blocks(blocks).to_bytes())),
            None => Ok::<_, BlobError>(None),
        };
        match inner.sb.carrier {
            ScCarrier::NvmeMetadata => {
                for block in 0..bytes.div_ceil(block_bytes) {
                    if let Some(sc) = sc_at(offset + block * block_bytes, 0)? {
                        metadata.extend_from_slice(&sc);
                    }
                }
            }
            ScCarrier::SecondHalf if within == 0 => {
                let covered = (self.size - offset).min(cluster_bytes);
                before = Some(sc_at(offset, covered.div_ceil(block_bytes) as u32)?);
            }
            ScCarrier::SecondHalf => {}
        }
        let lba = inner.sb.cluster_lba(cluster) + within / block_bytes;
        let lease = self.lease.clone();
        to_the_end(async move {
            match before {
                Some(Some(sc)) => {
                    let mut block = vec![0; block_bytes as usize];
                    block[..ScMetadata::SIZE].copy_from_slice(&sc);
                    let lba = inner.second_half_lba(cluster);
                    inner.write(lba, &block, &[]).await?;
                }
                Some(None) => {
                    let lba = inner.second_half_lba(cluster);
                    inner.write_zeroes(lba, 1).await?;
                }
                None => {}
            }
            inner.write(lba, &data, &metadata).await?;
            // Kept to here, so that the clusters find no other owner while the commands run.
            drop(lease);
            Ok(())
        })
        .await?;
        self.sent += bytes;
        self.failed = false;
        self.progress.report("write", self.sent, self.size);
        Ok(())
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
        let size = self.version.size;
        let out_of_range = BlobError::OutOfRange {
            offset,
            len: len as u64,
            size,
        };
        let end = offset.checked_add(len as u64).filter(|&end| end <= size);
        let end = end.ok_or(out_of_range)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(len)
            .map_err(|_| BlobError::OutOfMemory(len as u64))?;
        let block_bytes = u64::from(self.inner.sb.block_bytes);
        let cluster_bytes = self.inner.sb.cluster_bytes();
        let mut done = offset;
        while done < end {
            self.progress.check()?;
            let (_, lba) = self.place(done)?;
            let skipped = done % block_bytes;
            let first = done - skipped;
            let in_cluster = cluster_bytes - first % cluster_bytes;
            let now = (end - first).min(in_cluster.min(self.inner.command_bytes()));
            let blocks = now.div_ceil(block_bytes);
            let read = nvme::read_blocks(&*self.inner.controller, self.inner.nsid, lba, blocks);
            let read = read.await?.data;
            bytes.extend_from_slice(&read[skipped as usize..now as usize]);
            done = first + now;
            self.progress.report("read", done - offset, len as u64);
        }
        Ok(bytes)
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
