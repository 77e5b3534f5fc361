//! Changes of a part of a blob: the new version takes over the clusters that stay as they are.

use std::ops::Range;
use std::sync::Arc;

use toroid_task::Progress;

use super::clusters::Lease;
use super::store::{Content, InFlight, Inner, OpenCluster, Target, to_the_end};
use super::{BlobError, BlobId, BlobReader, BlobStat, BlobStore};

/// What an update writes: pieces that do not overlap, in the order of their offsets, none of them empty.
struct Pieces(Vec<(u64, Vec<u8>)>);

impl Pieces {
    fn new(mut pieces: Vec<(u64, Vec<u8>)>, size: u64) -> Result<Self, BlobError> {
        for (offset, bytes) in &pieces {
            let len = bytes.len() as u64;
            if offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(BlobError::OutOfRange {
                    offset: *offset,
                    len,
                    size,
                });
            }
        }
        pieces.retain(|(_, bytes)| !bytes.is_empty());
        pieces.sort_by_key(|(offset, _)| *offset);
        for pair in pieces.windows(2) {
            if let [former, next] = pair
                && next.0 < end(former)
            {
                return Err(BlobError::Overlap(next.0));
            }
        }
        Ok(Self(pieces))
    }

    /// The pieces that have bytes within `range`.
    fn within(&self, range: Range<u64>) -> &[(u64, Vec<u8>)] {
        let first = self.0.partition_point(|piece| end(piece) <= range.start);
        let last = self.0.partition_point(|(offset, _)| *offset < range.end);
        &self.0[first..last.max(first)]
    }

    /// Whether the pieces give every byte of `range`.
    fn cover(&self, range: Range<u64>) -> bool {
        let given = |piece| end(piece).min(range.end) - piece.0.max(range.start);
        let given: u64 = self.within(range.clone()).iter().map(given).sum();
        given == range.end - range.start
    }

    /// Puts what the pieces have from `offset` on into `bytes`.
    fn overlay(&self, offset: u64, bytes: &mut [u8]) {
        for (start, piece) in self.within(offset..offset + bytes.len() as u64) {
            let skipped = offset.saturating_sub(*start) as usize;
            let at = start.saturating_sub(offset) as usize;
            let room = &mut bytes[at..];
            let piece = &piece[skipped..];
            let len = piece.len().min(room.len());
            room[..len].copy_from_slice(&piece[..len]);
        }
    }

    /// The clusters of `cluster_bytes` that are not those of a content of `former` bytes once it has `size`: the places, rising.
    fn clusters(&self, former: u64, size: u64, cluster_bytes: u64) -> Vec<u32> {
        let grown = (size > former).then_some(former..size);
        let pieces = self.0.iter().map(|piece| piece.0..end(piece));
        let mut places: Vec<u32> = pieces
            .chain(grown)
            .flat_map(|range| range.start / cluster_bytes..range.end.div_ceil(cluster_bytes))
            .map(|place| place as u32)
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

fn end(piece: &(u64, Vec<u8>)) -> u64 {
    piece.0 + piece.1.len() as u64
}

impl BlobStore {
    /// Replaces parts of a plain blob's content, all at once and durably, and gives it `size` bytes: more or fewer than before, or as many.
    /// Each of `pieces` is an offset and the bytes that are there from then on. What no piece gives stays; beyond the former size it is zero.
    ///
    /// Only clusters in which something changes are read and written, as new clusters; the new version takes over all others. So an
    /// update needs free clusters for what it changes alone, and a few bytes cost up to a cluster. Clusters beyond a smaller size become
    /// free, without being erased.
    ///
    /// `expected` is the sequence number of the version that the update is made for ([`BlobStat::sequence`]). Readers that have
    /// started go on to see that version.
    ///
    /// The store has no checksum of the new content, since it does not read the rest: [`BlobStat::crc32c`] is `None` until the
    /// blob is written as a whole again. Whoever updates a blob keeps checksums in its content. Reports each written
    /// command to `progress`, and stops before the next one when it is cancelled.
    ///
    /// # Errors
    /// After these nothing has changed: [`BlobError::Changed`] where the current version is another, even if that changed during the
    /// call; [`BlobError::NotPlain`]; [`BlobError::OutOfRange`] for a piece beyond `size`, [`BlobError::Overlap`];
    /// [`BlobError::NoSuchBlob`], [`BlobError::NoSpace`], [`BlobError::NoMetadataPages`] and [`BlobError::Cancelled`]. So it is
    /// after [`BlobError::Nvme`], unless changes fail with [`BlobError::InDoubt`] from then on: then the next mount finds the update done or not.
    pub async fn update(
        &self,
        id: BlobId,
        expected: u64,
        size: u64,
        pieces: Vec<(u64, Vec<u8>)>,
        progress: &Progress,
    ) -> Result<BlobStat, BlobError> {
        let inner = &self.inner;
        let former = inner.version(id)?;
        former.check_is(expected)?;
        if former.sc.is_some() {
            return Err(BlobError::NotPlain(id));
        }
        let pieces = Pieces::new(pieces, size)?;

        let cluster_bytes = inner.sb.cluster_bytes();
        let count = size.div_ceil(cluster_bytes);
        let Some(count) = u32::try_from(count)
            .ok()
            .filter(|count| u64::from(*count) <= inner.sb.total_clusters())
        else {
            let kept = former.size.div_ceil(cluster_bytes);
            return Err(inner.no_space(count - kept));
        };
        let places = pieces.clusters(former.size, size, cluster_bytes);
        let fresh = inner.take_clusters(places.len() as u64).await?;
        let lease = Arc::new(former.lease.successor(count, &places, fresh));

        let cancel = progress.cancel_token().clone();
        let former = BlobReader::new(inner.clone(), former).with_progress(cancel.into());
        Rewrite {
            inner,
            former,
            size,
            pieces,
            lease: &lease,
            progress,
        }
        .clusters(&places)
        .await?;

        progress.check()?;
        let content = Content {
            name: None,
            sc: None,
            size,
            data_crc: None,
            lease,
            made_from: Some(expected),
        };
        let inner = inner.clone();
        to_the_end(async move {
            inner.flush().await?;
            let contents = vec![(Target::Blob(id), content)];
            Ok(inner.commit_contents(contents).await?.remove(0))
        })
        .await
    }
}

/// The clusters of an update on their way to the drive.
struct Rewrite<'a> {
    inner: &'a Arc<Inner>,
    former: BlobReader,
    size: u64,
    pieces: Pieces,
    lease: &'a Arc<Lease>,
    progress: &'a Progress,
}

impl Rewrite<'_> {
    /// Writes the clusters at `places` of the content, which rise, up to its end.
    async fn clusters(&self, places: &[u32]) -> Result<(), BlobError> {
        let cluster_bytes = self.inner.sb.cluster_bytes();
        let extent = |place: &u32| {
            let start = u64::from(*place) * cluster_bytes;
            start..self.size.min(start + cluster_bytes)
        };
        let total = places.iter().map(extent).map(|e| e.end - e.start).sum();
        let mut done = 0;
        let mut in_flight = InFlight::default();
        let mut clusters = (0..).zip(self.lease.iter());
        for place in places {
            let Some((_, cluster)) = clusters.find(|(at, _)| at == place) else {
                return Err(BlobError::WriterFailed);
            };
            let cluster = OpenCluster::new(self.inner, cluster, None, self.lease);
            let extent = extent(place);
            let mut offset = extent.start;
            while offset < extent.end {
                self.progress.check()?;
                let end = extent.end.min(offset + self.inner.plain_command_bytes());
                let data = self.content(offset..end).await?;
                let write = cluster
                    .clone()
                    .write(offset % cluster_bytes, data, Vec::new());
                while in_flight.is_full() {
                    done += in_flight.end_one().await?.unwrap_or(0);
                    self.progress.report("write", done, total);
                }
                in_flight.start(end - offset, write);
                offset = end;
            }
        }
        while let Some(bytes) = in_flight.end_one().await? {
            done += bytes;
            self.progress.report("write", done, total);
        }
        Ok(())
    }

    /// The new content of a range, followed by zeros up to the end of a block.
    async fn content(&self, range: Range<u64>) -> Result<Vec<u8>, BlobError> {
        let block_bytes = u64::from(self.inner.sb.block_bytes);
        let bytes = (range.end - range.start).next_multiple_of(block_bytes);
        let former = range.start..range.end.min(self.former.size());
        let mut data = Vec::new();
        if !former.is_empty() && !self.pieces.cover(former.clone()) {
            let len = (former.end - former.start) as usize;
            data = self.former.read_at(former.start, len).await?;
        }
        data.resize(bytes as usize, 0);
        self.pieces.overlay(range.start, &mut data);
        Ok(data)
    }
}
