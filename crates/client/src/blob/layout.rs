//! The store's structures on the medium: super block, metadata pages, and the blob record that a chain of pages carries.
//!
//! | blocks | content |
//! | --- | --- |
//! | LBA 0, LBA 1 | the super block, twice; the sound copy with the higher sequence number counts |
//! | LBA 2 to LBA 1 + M | M metadata pages of one block each |
//! | the rest, from a multiple of the cluster size on | clusters; cluster c starts at LBA c · (blocks a cluster) |
//! | 2^(L-1) to 2^L - 1, second-half form only | at a + 2^(L-1), the `ScMetadata` of the cluster at a, then zeros |
//!
//! All integers are little-endian, every checksum is CRC-32C. Super block (128 bytes, the rest of the block is 0):
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-7 | `TOROIDBS` |
//! | 8-11 | version, 1 |
//! | 12-15 | carrier of secure computing metadata: 0 NVMe metadata, 1 second half |
//! | 16-23 | sequence number |
//! | 24-39 | identifier of the store, random |
//! | 40-43, 44-47 | bytes a block, blocks a cluster |
//! | 48-55, 56-63 | blocks of the namespace, blocks for data (all, or half of them) |
//! | 64-67 | metadata pages |
//! | 68-83 | identifier of the newest mount for changes, random; 0: none yet |
//! | 84-123 | 0 |
//! | 124-127 | checksum of bytes 0-123 |
//!
//! Metadata page; one that is all zero was never used:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-3 | `TBMP` |
//! | 4 | 1 head of a record, 2 continuation, 3 free, 4 group under way |
//! | 5-7 | 0 |
//! | 8-23 | identifier of the store |
//! | 24-31 | blob: the sequence number of the change that created it; of a group, the sequence number of its first change |
//! | 32-39 | sequence number of the change that wrote this page, at most 2^63 - 1; of a group, that of its last change |
//! | 40-43, 44-47 | index of this page in its record, pages of the record |
//! | 48-51 | number of the record's next page; 2^32 - 1 after the last |
//! | 52-55 | bytes of payload |
//! | 56-59 | 0 |
//! | 60-63 | checksum of the block without these four bytes |
//! | 64- | payload, then 0 |
//!
//! A page of kind 4 makes void all records whose sequence numbers are those of its group: several blobs change together by writing that page,
//! then their records, then the mark that it is free.
//!
//! Record, cut into the payloads of its pages:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-3 | flags: bit 0 has secure computing metadata, bit 1 was written, bit 2 has a checksum of its data |
//! | 4-7 | checksum of the data, or 0 |
//! | 8-15 | size of the data in bytes |
//! | 16-19, 20-23 | bytes of the name, number of extents |
//! | 24-31 | 0 |
//! | 32-95 | `ScMetadata` as the client gave it, or 0 |
//! | 96- | name, then the extents in the order of the data: first cluster (u32) and number of clusters (u32) |
//!
//! Records of two blobs never name the same cluster. An older record of a blob, which does not count, may name clusters of the newer one: those that
//! an update left as they were.
//!
//! Nothing here does I/O. Decoders take untrusted blocks: they check the checksum first, then every field, and never
//! panic.

use std::mem::size_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlobId, ScCarrier};

/// Version of the structures in this file.
pub(super) const FORMAT_VERSION: u32 = 1;
/// LBAs of the two copies of the super block.
pub(super) const SUPER_BLOCK_LBAS: [u64; 2] = [0, 1];
/// LBA of metadata page 0.
pub(super) const FIRST_PAGE_LBA: u64 = 2;
/// Longest name of a blob, bytes of UTF-8.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// Highest sequence number on a sound medium: no store makes so many changes, and counting on from it does not overflow.
pub(super) const MAX_SEQUENCE: u64 = u64::MAX >> 1;

const SUPER_MAGIC: [u8; 8] = *b"TOROIDBS";
const PAGE_MAGIC: [u8; 4] = *b"TBMP";
const NO_PAGE: u32 = u32::MAX;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawSuperBlock {
    magic: [u8; 8],
    version: U32,
    carrier: U32,
    sequence: U64,
    uuid: [u8; 16],
    block_bytes: U32,
    cluster_blocks: U32,
    namespace_blocks: U64,
    data_blocks: U64,
    metadata_pages: U32,
    mount: [u8; 16],
    reserved: [u8; 40],
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawPageHeader {
    magic: [u8; 4],
    kind: u8,
    reserved: [u8; 3],
    uuid: [u8; 16],
    blob: U64,
    sequence: U64,
    index: U32,
    pages: U32,
    next: U32,
    payload_bytes: U32,
    reserved2: [u8; 4],
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawRecord {
    flags: U32,
    data_crc: U32,
    size: U64,
    name_bytes: U32,
    extents: U32,
    reserved: [u8; 8],
    sc: [u8; 64],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawExtent {
    start: U32,
    count: U32,
}

const PAGE_HEADER_BYTES: usize = size_of::<RawPageHeader>();
const RECORD_BYTES: usize = size_of::<RawRecord>();
const EXTENT_BYTES: usize = size_of::<RawExtent>();
const FLAG_SC: u32 = 1;
const FLAG_DATA: u32 = 2;
const FLAG_CRC: u32 = 4;

/// Geometry and identity of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SuperBlock {
    pub sequence: u64,
    pub uuid: [u8; 16],
    pub carrier: ScCarrier,
    pub block_bytes: u32,
    pub cluster_blocks: u32,
    /// Blocks of the namespace: 2^L where the second half carries the metadata.
    pub namespace_blocks: u64,
    /// Blocks that clusters may lie in, from LBA 0: all, or 2^(L-1).
    pub data_blocks: u64,
    pub metadata_pages: u32,
    /// The newest mount for changes.
    pub mount: [u8; 16],
}

/// Why a block is not a super block of this version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SuperBlockFault {
    /// No magic: nothing was ever formatted here.
    Absent,
    /// Magic, but checksum or fields are wrong.
    Damaged,
    /// Sound, but of a later version.
    TooNew(u32),
}

impl SuperBlock {
    /// The block, `block_bytes` long.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawSuperBlock {
            magic: SUPER_MAGIC,
            version: FORMAT_VERSION.into(),
            carrier: match self.carrier {
                ScCarrier::NvmeMetadata => 0,
                ScCarrier::SecondHalf => 1,
            }
            .into(),
            sequence: self.sequence.into(),
            uuid: self.uuid,
            block_bytes: self.block_bytes.into(),
            cluster_blocks: self.cluster_blocks.into(),
            namespace_blocks: self.namespace_blocks.into(),
            data_blocks: self.data_blocks.into(),
            metadata_pages: self.metadata_pages.into(),
            mount: self.mount,
            reserved: [0; 40],
            crc: 0.into(),
        };
        raw.crc = crc_before_last_word(raw.as_bytes()).into();
        let mut block = vec![0; self.block_bytes as usize];
        block[..size_of::<RawSuperBlock>()].copy_from_slice(raw.as_bytes());
        block
    }

    /// Reads a super block and checks that its geometry is possible in itself.
    pub fn decode(block: &[u8]) -> Result<Self, SuperBlockFault> {
        let Ok((raw, _)) = RawSuperBlock::read_from_prefix(block) else {
            return Err(SuperBlockFault::Absent);
        };
        if raw.magic != SUPER_MAGIC {
            return Err(SuperBlockFault::Absent);
        }
        if raw.crc.get() != crc_before_last_word(raw.as_bytes()) {
            return Err(SuperBlockFault::Damaged);
        }
        if raw.version.get() > FORMAT_VERSION {
            return Err(SuperBlockFault::TooNew(raw.version.get()));
        }
        let carrier = match raw.carrier.get() {
            0 => ScCarrier::NvmeMetadata,
            1 => ScCarrier::SecondHalf,
            _ => return Err(SuperBlockFault::Damaged),
        };
        let sb = SuperBlock {
            sequence: raw.sequence.get(),
            uuid: raw.uuid,
            carrier,
            block_bytes: raw.block_bytes.get(),
            cluster_blocks: raw.cluster_blocks.get(),
            namespace_blocks: raw.namespace_blocks.get(),
            data_blocks: raw.data_blocks.get(),
            metadata_pages: raw.metadata_pages.get(),
            mount: raw.mount,
        };
        if sb.is_possible() {
            Ok(sb)
        } else {
            Err(SuperBlockFault::Damaged)
        }
    }

    /// Whether sizes are powers of two where they must be, at least one data cluster is left and the sequence number can count
    /// on.
    pub fn is_possible(&self) -> bool {
        let halves = match self.carrier {
            ScCarrier::NvmeMetadata => self.data_blocks <= self.namespace_blocks,
            ScCarrier::SecondHalf => {
                self.namespace_blocks.is_power_of_two()
                    && self.data_blocks == self.namespace_blocks / 2
            }
        };
        halves
            && self.block_bytes.is_power_of_two()
            && (512..=1 << 16).contains(&self.block_bytes)
            && self.cluster_blocks.is_power_of_two()
            && self.sequence <= MAX_SEQUENCE
            && self.metadata_pages > 0
            && self.metadata_pages < NO_PAGE
            && self.total_clusters() <= u64::from(u32::MAX)
            && self.first_cluster() < self.total_clusters()
    }

    pub fn cluster_bytes(&self) -> u64 {
        u64::from(self.cluster_blocks) * u64::from(self.block_bytes)
    }

    /// Clusters from LBA 0 on, those that hold super block and metadata pages included.
    pub fn total_clusters(&self) -> u64 {
        self.data_blocks / u64::from(self.cluster_blocks)
    }

    /// Number of the first cluster that may hold data.
    pub fn first_cluster(&self) -> u64 {
        (FIRST_PAGE_LBA + u64::from(self.metadata_pages)).div_ceil(u64::from(self.cluster_blocks))
    }

    pub fn page_lba(&self, page: u32) -> u64 {
        FIRST_PAGE_LBA + u64::from(page)
    }

    pub fn cluster_lba(&self, cluster: u32) -> u64 {
        u64::from(cluster) * u64::from(self.cluster_blocks)
    }

    /// Payload bytes of one metadata page.
    fn page_payload(&self) -> usize {
        self.block_bytes as usize - PAGE_HEADER_BYTES
    }
}

/// A run of consecutive clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub start: u32,
    pub count: u32,
}

/// What the store knows of one version of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub name: String,
    /// Bytes of an `ScMetadata` whose offset and blocks are 0.
    pub sc: Option<[u8; 64]>,
    pub size: u64,
    /// Whether data was ever written (a written blob may have size 0).
    pub written: bool,
    pub data_crc: Option<u32>,
    pub extents: Vec<Extent>,
}

impl Record {
    fn payload(&self) -> Vec<u8> {
        let mut flags = 0;
        if self.sc.is_some() {
            flags |= FLAG_SC;
        }
        if self.written {
            flags |= FLAG_DATA;
        }
        if self.data_crc.is_some() {
            flags |= FLAG_CRC;
        }
        let raw = RawRecord {
            flags: flags.into(),
            data_crc: self.data_crc.unwrap_or(0).into(),
            size: self.size.into(),
            name_bytes: (self.name.len() as u32).into(),
            extents: (self.extents.len() as u32).into(),
            reserved: [0; 8],
            sc: self.sc.unwrap_or([0; 64]),
        };
        let mut out = raw.as_bytes().to_vec();
        out.extend_from_slice(self.name.as_bytes());
        for e in &self.extents {
            let raw = RawExtent {
                start: e.start.into(),
                count: e.count.into(),
            };
            out.extend_from_slice(raw.as_bytes());
        }
        out
    }

    /// Number of metadata pages that this record takes.
    pub fn pages_needed(&self, sb: &SuperBlock) -> usize {
        let bytes = RECORD_BYTES + self.name.len() + self.extents.len() * EXTENT_BYTES;
        bytes.div_ceil(sb.page_payload())
    }

    /// The blocks to write to `pages`, of which there must be `pages_needed`; the first is the head.
    pub fn encode(
        &self,
        sb: &SuperBlock,
        blob: BlobId,
        sequence: u64,
        pages: &[u32],
    ) -> Vec<Vec<u8>> {
        let payload = self.payload();
        let chunks = payload.chunks(sb.page_payload());
        debug_assert_eq!(chunks.len(), pages.len());
        chunks
            .enumerate()
            .map(|(i, chunk)| {
                let header = PageHeader {
                    kind: if i == 0 {
                        PageKind::Head
                    } else {
                        PageKind::Continuation
                    },
                    blob,
                    sequence,
                    index: i as u32,
                    pages: pages.len() as u32,
                    next: pages.get(i + 1).copied(),
                };
                header.encode(sb, chunk)
            })
            .collect()
    }

    /// Reads the record from the joined payloads of its pages; says what is wrong with it otherwise.
    pub fn decode(payload: &[u8], sb: &SuperBlock) -> Result<Self, &'static str> {
        let Ok((raw, rest)) = RawRecord::read_from_prefix(payload) else {
            return Err("blob record shorter than its fixed part");
        };
        let flags = raw.flags.get();
        if flags & !(FLAG_SC | FLAG_DATA | FLAG_CRC) != 0 {
            return Err("unknown flags in a blob record");
        }
        let name_bytes = raw.name_bytes.get() as usize;
        if name_bytes > MAX_NAME_BYTES {
            return Err("blob name longer than 255 bytes");
        }
        let Some((name, rest)) = rest.split_at_checked(name_bytes) else {
            return Err("blob record ends within its name");
        };
        let Ok(name) = std::str::from_utf8(name) else {
            return Err("blob name that is not UTF-8");
        };
        let Ok(raw_extents) = <[RawExtent]>::ref_from_bytes(rest) else {
            return Err("extent list of a blob of a wrong length");
        };
        if raw_extents.len() != raw.extents.get() as usize {
            return Err("extent list of a blob of a wrong length");
        }
        let mut clusters = 0u64;
        let mut extents = Vec::with_capacity(raw_extents.len());
        for e in raw_extents {
            let (start, count) = (e.start.get(), e.count.get());
            let end = u64::from(start) + u64::from(count);
            if count == 0 || u64::from(start) < sb.first_cluster() || end > sb.total_clusters() {
                return Err("extent of a blob outside the data clusters");
            }
            clusters += u64::from(count);
            extents.push(Extent { start, count });
        }
        let size = raw.size.get();
        if clusters != size.div_ceil(sb.cluster_bytes()) {
            return Err("extents of a blob that do not match its size");
        }
        let written = flags & FLAG_DATA != 0;
        if !written && size != 0 {
            return Err("blob with a size but no data");
        }
        Ok(Record {
            name: name.to_owned(),
            sc: (flags & FLAG_SC != 0).then_some(raw.sc),
            size,
            written,
            data_crc: (flags & FLAG_CRC != 0).then_some(raw.data_crc.get()),
            extents,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// First page of a record. Its presence, with all pages that follow it, makes the record valid.
    Head,
    Continuation,
    /// A page that was in use; it keeps the highest sequence numbers alive across mounts.
    Free,
    /// While it is there, the records of the changes from `blob` to `sequence` do not count.
    Group,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub kind: PageKind,
    pub blob: BlobId,
    pub sequence: u64,
    pub index: u32,
    pub pages: u32,
    pub next: Option<u32>,
}

/// A block of the metadata region, as mount finds it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Page<'a> {
    /// All zeros: never used since the store was formatted.
    Blank,
    /// A sound page of this store.
    Used(PageHeader, &'a [u8]),
    /// Anything else: the medium has changed it, or no store has written it.
    Damaged,
}

impl PageHeader {
    fn encode(&self, sb: &SuperBlock, payload: &[u8]) -> Vec<u8> {
        let raw = RawPageHeader {
            magic: PAGE_MAGIC,
            kind: match self.kind {
                PageKind::Head => 1,
                PageKind::Continuation => 2,
                PageKind::Free => 3,
                PageKind::Group => 4,
            },
            reserved: [0; 3],
            uuid: sb.uuid,
            blob: self.blob.0.into(),
            sequence: self.sequence.into(),
            index: self.index.into(),
            pages: self.pages.into(),
            next: self.next.unwrap_or(NO_PAGE).into(),
            payload_bytes: (payload.len() as u32).into(),
            reserved2: [0; 4],
            crc: 0.into(),
        };
        let mut block = vec![0; sb.block_bytes as usize];
        block[..PAGE_HEADER_BYTES].copy_from_slice(raw.as_bytes());
        block[PAGE_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
        let crc = page_crc(&block);
        block[PAGE_HEADER_BYTES - 4..PAGE_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// The block that marks a page as free.
    pub fn free(sb: &SuperBlock, blob: BlobId, sequence: u64) -> Vec<u8> {
        Self::without_payload(PageKind::Free, blob, sequence).encode(sb, &[])
    }

    /// The block that makes the records of these changes void.
    pub fn group(sb: &SuperBlock, first: u64, last: u64) -> Vec<u8> {
        Self::without_payload(PageKind::Group, BlobId(first), last).encode(sb, &[])
    }

    fn without_payload(kind: PageKind, blob: BlobId, sequence: u64) -> PageHeader {
        PageHeader {
            kind,
            blob,
            sequence,
            index: 0,
            pages: 0,
            next: None,
        }
    }
}

impl<'a> Page<'a> {
    pub fn decode(block: &'a [u8], sb: &SuperBlock) -> Self {
        if block.iter().all(|&b| b == 0) {
            return Page::Blank;
        }
        let Ok((raw, body)) = RawPageHeader::ref_from_prefix(block) else {
            return Page::Damaged;
        };
        let kind = match raw.kind {
            1 => PageKind::Head,
            2 => PageKind::Continuation,
            3 => PageKind::Free,
            4 => PageKind::Group,
            _ => return Page::Damaged,
        };
        let payload = body.get(..raw.payload_bytes.get() as usize);
        match payload {
            Some(payload)
                if raw.magic == PAGE_MAGIC
                    && raw.uuid == sb.uuid
                    && raw.blob.get() <= raw.sequence.get()
                    && raw.sequence.get() <= MAX_SEQUENCE
                    && raw.crc.get() == page_crc(block) =>
            {
                let next = raw.next.get();
                Page::Used(
                    PageHeader {
                        kind,
                        blob: BlobId(raw.blob.get()),
                        sequence: raw.sequence.get(),
                        index: raw.index.get(),
                        pages: raw.pages.get(),
                        next: (next != NO_PAGE).then_some(next),
                    },
                    payload,
                )
            }
            _ => Page::Damaged,
        }
    }
}

/// CRC-32C of a metadata block without the four bytes that hold it.
fn page_crc(block: &[u8]) -> u32 {
    let (header, body) = block.split_at(PAGE_HEADER_BYTES);
    crc32c::crc32c_append(crc_before_last_word(header), body)
}

fn crc_before_last_word(bytes: &[u8]) -> u32 {
    crc32c::crc32c(&bytes[..bytes.len() - 4])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sb() -> SuperBlock {
        SuperBlock {
            sequence: 7,
            uuid: [9; 16],
            carrier: ScCarrier::SecondHalf,
            block_bytes: 512,
            cluster_blocks: 8,
            namespace_blocks: 1 << 20,
            data_blocks: 1 << 19,
            metadata_pages: 100,
            mount: [7; 16],
        }
    }

    fn record(extents: u32) -> Record {
        let sb = sb();
        Record {
            name: "schlüssel".into(),
            sc: Some([3; 64]),
            size: u64::from(extents) * 2 * sb.cluster_bytes() - 5,
            written: true,
            data_crc: Some(0xdead_beef),
            extents: (0..extents)
                .map(|i| Extent {
                    start: 100 + 10 * i,
                    count: 2,
                })
                .collect(),
        }
    }

    #[test]
    fn raw_sizes() {
        assert_eq!(size_of::<RawSuperBlock>(), 128);
        assert_eq!(PAGE_HEADER_BYTES, 64);
        assert_eq!(RECORD_BYTES, 96);
    }

    #[test]
    fn super_block_round_trip_and_faults() {
        let sb = sb();
        let mut block = sb.encode();
        assert_eq!(SuperBlock::decode(&block), Ok(sb));
        assert_eq!(SuperBlock::decode(&[0; 512]), Err(SuperBlockFault::Absent));
        block[8] = 2;
        assert_eq!(SuperBlock::decode(&block), Err(SuperBlockFault::Damaged));
        let crc = crc_before_last_word(&block[..128]).to_le_bytes();
        block[124..128].copy_from_slice(&crc);
        assert_eq!(SuperBlock::decode(&block), Err(SuperBlockFault::TooNew(2)));
    }

    #[test]
    fn a_record_of_many_extents_takes_a_chain_of_pages() {
        let sb = sb();
        let record = record(200);
        let pages: Vec<u32> = (0..record.pages_needed(&sb) as u32)
            .map(|i| 3 * i)
            .collect();
        assert_eq!(pages.len(), (96 + 10 + 200 * 8usize).div_ceil(448));
        let mut payload = Vec::new();
        for (i, block) in record.encode(&sb, BlobId(4), 77, &pages).iter().enumerate() {
            let Page::Used(header, part) = Page::decode(block, &sb) else {
                panic!("page {i} does not decode");
            };
            assert_eq!((header.blob, header.sequence), (BlobId(4), 77));
            assert_eq!(header.index as usize, i);
            assert_eq!(header.next, pages.get(i + 1).copied());
            payload.extend_from_slice(part);
        }
        assert_eq!(Record::decode(&payload, &sb), Ok(record));
    }

    /// They would overflow, or give a new blob the identifier of an existing one.
    #[test]
    fn numbers_that_no_store_counts_to_are_damage() {
        let sb = sb();
        for (blob, sequence, sound) in [
            (MAX_SEQUENCE, MAX_SEQUENCE, true),
            (1, MAX_SEQUENCE + 1, false),
            (1, u64::MAX, false),
            (6, 5, false),
        ] {
            let block = record(1)
                .encode(&sb, BlobId(blob), sequence, &[5])
                .remove(0);
            let used = matches!(Page::decode(&block, &sb), Page::Used(..));
            assert_eq!(used, sound, "blob {blob}, sequence number {sequence}");
        }
        let sb = SuperBlock {
            sequence: u64::MAX,
            ..sb
        };
        let decoded = SuperBlock::decode(&sb.encode());
        assert_eq!(decoded, Err(SuperBlockFault::Damaged));
    }

    #[test]
    fn extents_outside_the_data_clusters_are_refused() {
        let sb = sb();
        let mut r = record(1);
        r.extents[0].start = 0;
        assert!(Record::decode(&r.payload(), &sb).is_err());
        r.extents[0].start = sb.total_clusters() as u32 - 1;
        assert!(Record::decode(&r.payload(), &sb).is_err());
        r.extents[0].start -= 1;
        assert!(Record::decode(&r.payload(), &sb).is_ok());
        r.size = 1;
        assert!(Record::decode(&r.payload(), &sb).is_err());
    }

    proptest! {
        #[test]
        fn one_changed_byte_is_damage(at in 0usize..512, by in 1u8..) {
            let sb = sb();
            let mut block = record(1).encode(&sb, BlobId(1), 2, &[5]).remove(0);
            block[at] ^= by;
            prop_assert_eq!(Page::decode(&block, &sb), Page::Damaged);
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let sb = sb();
            let _ = Record::decode(&bytes, &sb);
            let _ = SuperBlock::decode(&bytes);
            if bytes.len() >= 512 {
                let _ = Page::decode(&bytes[..512], &sb);
            }
        }

        #[test]
        fn any_record_fields_decode_without_panic(
            tail in prop::collection::vec(any::<u8>(), 0..300), n in any::<u32>(), m in 0u32..40, size in any::<u64>()
        ) {
            let raw = RawRecord {
                flags: 7.into(), data_crc: 0.into(), size: size.into(), name_bytes: m.into(),
                extents: n.into(), reserved: [0; 8], sc: [0; 64],
            };
            let mut payload = raw.as_bytes().to_vec();
            payload.extend_from_slice(&tail);
            let _ = Record::decode(&payload, &sb());
        }
    }
}
