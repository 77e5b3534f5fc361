use std::path::PathBuf;

use thiserror::Error;
use toroid_isa::metadata::MetadataError;
use toroid_nvme::NvmeError;
use toroid_task::Cancelled;

use super::BlobId;

/// Why an operation of the blob store did not succeed. Unless a variant says otherwise, nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BlobError {
    /// No blob has this identifier: it was deleted, or never created in this store.
    #[error("no blob {0} in this store")]
    NoSuchBlob(BlobId),
    /// Too few free clusters for the data.
    #[error("no space: {needed} bytes of clusters needed, {free} free")]
    NoSpace {
        /// Bytes needed, whole clusters.
        needed: u64,
        /// Bytes free, whole clusters.
        free: u64,
    },
    /// Too few free metadata pages for the blob's record.
    #[error("no space for blob metadata: {needed} pages needed, {free} free")]
    NoMetadataPages {
        /// Pages needed.
        needed: u32,
        /// Pages free.
        free: u32,
    },
    /// The medium holds something that this store did not write.
    #[error("corrupt medium: {what} at LBA {lba}")]
    Corrupt {
        /// What was found.
        what: &'static str,
        /// Logical block.
        lba: u64,
    },
    /// There is no super block.
    #[error("namespace {nsid} is not formatted as a blob store")]
    NotFormatted {
        /// Namespace identifier.
        nsid: u32,
    },
    /// The store was written by a later version.
    #[error("blob store of format version {found}; versions up to {supported} are supported")]
    VersionTooNew {
        /// Version found.
        found: u32,
        /// Latest version that this code reads.
        supported: u32,
    },
    /// The namespace, or the sizes asked for, cannot hold a store, or not the one that its super block describes.
    #[error("unsuitable namespace: {0}")]
    Unsuitable(String),
    /// The name of a blob is too long.
    #[error("blob name of {0} bytes; at most 255 are allowed")]
    NameTooLong(usize),
    /// As many bytes were announced as `expected`, and as many given as `found`.
    #[error("size mismatch: {expected} bytes expected, {found} found")]
    SizeMismatch {
        /// Bytes expected.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// The current version of the blob is not the one that the update was made for: someone changed it meanwhile.
    #[error(
        "blob {id} has changed: the update is for version {expected}, the current one is {found}"
    )]
    Changed {
        /// The blob.
        id: BlobId,
        /// Sequence number of the version that the caller expected.
        expected: u64,
        /// Sequence number of the current version.
        found: u64,
    },
    /// A range of bytes goes beyond the size of the content.
    #[error("{len} bytes from offset {offset} on go beyond the size of {size} bytes")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Bytes of the content.
        size: u64,
    },
    /// Two pieces of an update give the same byte.
    #[error("two pieces of an update give the byte at offset {0}")]
    Overlap(u64),
    /// Another blob of the name got content first ([`BlobWriter::alone`](super::BlobWriter::alone)).
    #[error("there is a blob {0:?} already")]
    NameTaken(String),
    /// The blob has secure computing metadata, and the operation is for plain data only.
    #[error("blob {0} has secure computing metadata, and its content is replaced as a whole only")]
    NotPlain(BlobId),
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// The writer failed, or a call on it was abandoned, before; its data is not complete.
    #[error("the writer has failed before; start a new one")]
    WriterFailed,
    /// An earlier change failed in a way that leaves open what the medium holds. Reading still works, changes do not until
    /// the store is mounted again.
    #[error("the store refuses changes after a failed one; mount it again")]
    InDoubt,
    /// The store is mounted for reading only.
    #[error("the store is mounted for reading only")]
    ReadOnly,
    /// Someone else has mounted the store for changes since: what this mount knows of it no longer holds.
    #[error(
        "the store has been mounted for changes by another client since; mount it again, and use it from one client at a time"
    )]
    MountedElsewhere,
    /// The store has made as many changes as its format can count.
    #[error("no sequence number is left for a change; copy the blobs to a new store")]
    NoSequenceNumber,
    /// The data does not fit into memory; use the streaming or the file form.
    #[error("no memory for a blob of {0} bytes")]
    OutOfMemory(u64),
    /// The secure computing metadata does not fit the data.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The controller failed a command.
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    /// A file of the host could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The operating system gave no random bytes for the identifier of a new store.
    #[error("no random bytes from the operating system: {0}")]
    Random(String),
}

impl From<Cancelled> for BlobError {
    fn from(_: Cancelled) -> BlobError {
        BlobError::Cancelled
    }
}
