//! The blob store: named objects of any size on an NVMe namespace, each with its secure computing metadata.
//!
//! Follows section 5 of the platform paper (Figs. 9 and 10, Table 7): super block, metadata pages and data clusters lie in
//! one namespace; the client keeps a copy of the metadata in memory; the `ScMetadata` of a blob goes to the drive
//! with its data, either as NVMe metadata of every block or through the second half of the LBA space ([`ScCarrier`]).
//!
//! # Promises
//!
//! - **Durable on return.** A call that changes the store returns success only after a Flush. Whatever happens
//!   then (the process killed, power lost with any subset of unflushed blocks), a mount finds the change.
//! - **Atomic.** A call that has not returned has either happened wholly or not at all after such an event. Data goes to
//!   clusters that no blob owns and is flushed; then the blob's record goes to metadata pages that no blob owns and is flushed;
//!   the record is found by mount if all its pages are there, and the one with the highest sequence number counts. Only
//!   after a marker on the old record's first page has been flushed too are its pages and clusters free for others. The medium
//!   must write single blocks atomically, nothing more.
//! - **Snapshots for readers.** A reader sees the content as of its start, while others overwrite, update or delete the blob; the
//!   clusters are kept until it is done.
//! - **Integrity.** Every metadata page has a CRC-32C. So has the data of each blob, checked by every full read, except for types
//!   3 and 4, whose data the drive itself may replace by a program's result on its way, and for blobs that an update has changed.
//!
//! # Updates
//!
//! [`BlobStore::update`] changes parts of a plain blob, with the same promises. It writes each cluster in which something changes anew, to a
//! cluster that no blob owns; the record of the new version names these and, for the rest, the clusters of the version before. Of the two records
//! only one counts at any time, so on the medium a cluster has one owner still. In memory each version that shares a cluster holds
//! it: when the marker on the old record is durable and its readers are done, those clusters that the new version does not have become free.
//!
//! An update is made for one version of the blob, which its caller has read ([`BlobReader::stat`], [`BlobReader::read_at`]), and is refused
//! if another came between. It reads no more than it must, so that the store has no checksum of the content afterwards:
//! checksums of its parts belong into the content.
//!
//! # One client at a time
//!
//! A mount for changes puts a random identifier into the super block. A change looks for it before each cluster that it writes and before
//! its record; where it finds another's, it fails with [`BlobError::MountedElsewhere`]. What is left of a cluster or of a record that was begun
//! before another client mounted is not held back, and may damage what that one writes: whoever has two clients must end one before the other
//! starts. Mounts that only read refuse changes and disturb nobody; what they read while another client changes the store may be gone, which checksums show.
//!
//! # Order
//!
//! The parts of a blob with secure computing metadata reach the drive by one command after the other, in the order of their offsets; of plain data
//! several commands are on their way at a time. Each is within one cluster and no longer than MDTS. In the second-half form the block that carries a cluster's `ScMetadata` is written before its
//! data; a cluster that takes plain data has that block zeroed first, so that metadata of an earlier owner never applies.
//!
//! All calls must be made within a Tokio runtime: commands whose caller goes away are completed by tasks of their own.
//!
//! Open `blob/store.rs` first, then `blob/layout.rs` for the format.

mod clusters;
mod error;
mod files;
mod layout;
mod mount;
mod store;
mod stream;
mod update;

use std::fmt;

use toroid_isa::metadata::ScMetadata;

pub use error::BlobError;
pub use mount::{FormatOptions, MountOptions};
pub use store::BlobStore;
pub use stream::{BlobReader, BlobWriter};

/// Identifier of a blob, unique in its store for all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub u64);

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How the `ScMetadata` of a blob travels with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScCarrier {
    /// As the 64 bytes of NVMe metadata of every logical block.
    NvmeMetadata,
    /// As the first 64 bytes of the block at LBA a + 2^(L-1), where a is the first LBA of the cluster that the data lies in and
    /// 2^L the number of blocks of the namespace.
    SecondHalf,
}

/// What a blob is created with.
#[derive(Clone, Debug, Default)]
pub struct NewBlob {
    /// Name, up to 255 bytes. Names need not be unique.
    pub name: String,
    /// Secure computing metadata; `None` for plain data. The store sets offset and blocks; the size must be
    /// that of the data to be written, unless [`BlobStore::writer_with_sc`] replaces the metadata.
    pub sc: Option<ScMetadata>,
}

/// What the store knows of a blob.
#[derive(Clone, Debug, PartialEq)]
pub struct BlobStat {
    /// Identifier.
    pub id: BlobId,
    /// Name.
    pub name: String,
    /// Bytes of data.
    pub size: u64,
    /// Whether data was written since the blob was created.
    pub written: bool,
    /// Secure computing metadata as the client gave it. What the drive computed since comes back with a read only.
    pub sc: Option<ScMetadata>,
    /// Clusters that the data takes.
    pub clusters: u32,
    /// CRC-32C of the data, where the store keeps one: not of samples, and not after an update of a part.
    pub crc32c: Option<u32>,
    /// Sequence number of the store's change that made this version.
    pub sequence: u64,
}

/// Where one run of a blob's data lies on the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Number of the cluster.
    pub cluster: u32,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks.
    pub blocks: u64,
    /// The logical block in the second half that carries the metadata of this run; `None` where metadata travels with the data.
    pub metadata_lba: Option<u64>,
}

/// The content of a blob.
#[derive(Clone, Debug, PartialEq)]
pub struct BlobData {
    /// The data.
    pub data: Vec<u8>,
    /// The metadata that came back from the drive with the first block, with the noise and failure probability of a computed
    /// result; `None` for plain data.
    pub sc: Option<ScMetadata>,
}

/// Size and use of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// Identifier given at format.
    pub uuid: [u8; 16],
    /// Version of the on-disk format.
    pub version: u32,
    /// How secure computing metadata reaches the drive.
    pub carrier: ScCarrier,
    /// Bytes of a logical block and of a metadata page.
    pub block_bytes: u32,
    /// Bytes of a cluster.
    pub cluster_bytes: u64,
    /// Clusters for data.
    pub clusters: u32,
    /// Clusters that are free. Those of overwritten content count once the next change is made.
    pub free_clusters: u32,
    /// First logical block of the first of them; what lies before are the store's own records.
    pub first_data_lba: u64,
    /// Metadata pages.
    pub metadata_pages: u32,
    /// Metadata pages that are free, counted as for clusters.
    pub free_metadata_pages: u32,
    /// Blobs.
    pub blobs: usize,
}
