//! Namespaces: logical blocks, each with or without metadata.

use thiserror::Error;

use crate::Status;

/// The namespace identifier that addresses all namespaces, where a command allows it.
pub const BROADCAST_NSID: u32 = 0xFFFF_FFFF;

/// Geometry of one namespace. Metadata, where there is any, is in a separate buffer (never interleaved with the data).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    nsid: u32,
    block_size: u32,
    blocks: u64,
    metadata_size: u16,
    nguid: [u8; 16],
}

/// Why a namespace cannot have the geometry asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NamespaceError {
    /// Namespace identifier 0 or FFFFFFFFh.
    #[error("namespace identifier {0:#x} is reserved; expected 1 to 0xfffffffe")]
    Nsid(u32),
    /// Not a power of two from 512 to 65536.
    #[error("block size {0} is not a power of two from 512 to 65536")]
    BlockSize(u32),
    /// Metadata of a size other than 0 or 64.
    #[error("metadata of {0} bytes per block; expected 0 or 64")]
    MetadataSize(u16),
    /// No blocks.
    #[error("a namespace needs at least one block")]
    Empty,
    /// The capacity in bytes exceeds 2^63 - 1, the largest offset that a file has.
    #[error("{blocks} blocks of {block_size} bytes exceed 2^63 - 1 bytes")]
    TooLarge {
        /// Logical blocks asked for.
        blocks: u64,
        /// Bytes per block.
        block_size: u32,
    },
}

impl Namespace {
    /// Block size used unless another is asked for.
    pub const DEFAULT_BLOCK_SIZE: u32 = 4096;

    /// Namespace `nsid` of `blocks` logical blocks, each with `block_size` bytes (a power of two from 512 to 65536) and
    /// `metadata_size` bytes of metadata (0 or 64).
    pub fn new(
        nsid: u32,
        block_size: u32,
        blocks: u64,
        metadata_size: u16,
    ) -> Result<Namespace, NamespaceError> {
        check_nsid(nsid)?;
        if !block_size.is_power_of_two() || !(512..=65536).contains(&block_size) {
            return Err(NamespaceError::BlockSize(block_size));
        }
        if metadata_size != 0 && metadata_size != 64 {
            return Err(NamespaceError::MetadataSize(metadata_size));
        }
        if blocks == 0 {
            return Err(NamespaceError::Empty);
        }
        let per_block = u64::from(block_size) + u64::from(metadata_size);
        if blocks
            .checked_mul(per_block)
            .is_none_or(|bytes| bytes > i64::MAX as u64)
        {
            return Err(NamespaceError::TooLarge { blocks, block_size });
        }
        Ok(Namespace {
            nsid,
            block_size,
            blocks,
            metadata_size,
            nguid: [0; 16],
        })
    }

    /// The same namespace with a globally unique identifier (NGUID).
    pub fn with_nguid(mut self, nguid: [u8; 16]) -> Namespace {
        self.nguid = nguid;
        self
    }

    /// The same namespace under another identifier.
    ///
    /// # Errors
    /// [`NamespaceError::Nsid`].
    pub fn with_nsid(&self, nsid: u32) -> Result<Namespace, NamespaceError> {
        check_nsid(nsid)?;
        Ok(Namespace {
            nsid,
            ..self.clone()
        })
    }

    /// Namespace identifier, 1 to FFFFFFFEh.
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Bytes of data per logical block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Logical blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of metadata per logical block: 0 or 64.
    pub fn metadata_size(&self) -> u16 {
        self.metadata_size
    }

    /// Globally unique identifier; all zero where there is none.
    pub fn nguid(&self) -> [u8; 16] {
        self.nguid
    }

    /// Capacity in bytes, metadata not counted.
    pub fn capacity(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }

    /// Bytes of data in `blocks` logical blocks.
    pub fn data_len(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.block_size)
    }

    /// Bytes of metadata in `blocks` logical blocks.
    pub fn metadata_len(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.metadata_size)
    }

    /// Extended LBAs: every block with its metadata after it.
    pub(crate) fn interleave(&self, data: &[u8], metadata: &[u8]) -> Vec<u8> {
        let mut extended = Vec::with_capacity(data.len() + metadata.len());
        let data = data.chunks(self.block_size as usize);
        for (data, metadata) in data.zip(metadata.chunks(self.metadata_size.into())) {
            extended.extend_from_slice(data);
            extended.extend_from_slice(metadata);
        }
        extended
    }

    /// Data and metadata of extended LBAs; what is left of an incomplete one counts as data.
    pub(crate) fn separate(&self, extended: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let block = self.block_size as usize;
        let mut data = Vec::with_capacity(extended.len());
        let mut metadata = Vec::new();
        for extended in extended.chunks(block + usize::from(self.metadata_size)) {
            let (block, after) = extended.split_at(block.min(extended.len()));
            data.extend_from_slice(block);
            metadata.extend_from_slice(after);
        }
        (data, metadata)
    }

    /// Fails with [`Status::LBA_OUT_OF_RANGE`] unless the `blocks` logical blocks from `slba` all exist.
    pub fn check_range(&self, slba: u64, blocks: u64) -> Result<(), Status> {
        match slba.checked_add(blocks) {
            Some(end) if end <= self.blocks => Ok(()),
            _ => Err(Status::LBA_OUT_OF_RANGE),
        }
    }
}

fn check_nsid(nsid: u32) -> Result<(), NamespaceError> {
    match nsid {
        0 | BROADCAST_NSID => Err(NamespaceError::Nsid(nsid)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn geometry_is_checked() {
        assert_eq!(Namespace::new(0, 4096, 1, 0), Err(NamespaceError::Nsid(0)));
        assert_eq!(
            Namespace::new(BROADCAST_NSID, 4096, 1, 0),
            Err(NamespaceError::Nsid(BROADCAST_NSID))
        );
        for bad in [0, 256, 513, 4095, 131_072, u32::MAX] {
            assert_eq!(
                Namespace::new(1, bad, 1, 0),
                Err(NamespaceError::BlockSize(bad))
            );
        }
        assert_eq!(
            Namespace::new(1, 512, 1, 8),
            Err(NamespaceError::MetadataSize(8))
        );
        assert_eq!(Namespace::new(1, 512, 0, 64), Err(NamespaceError::Empty));
        assert!(matches!(
            Namespace::new(1, 512, u64::MAX / 256, 0),
            Err(NamespaceError::TooLarge { .. })
        ));
        // Fits without its metadata, not with it.
        assert!(Namespace::new(1, 512, i64::MAX as u64 / 512, 0).is_ok());
        assert!(Namespace::new(1, 512, i64::MAX as u64 / 512, 64).is_err());
    }

    proptest! {
        #[test]
        fn range_check_agrees_with_wide_arithmetic(blocks in 1..=1u64 << 50, slba: u64, count: u64) {
            let namespace = Namespace::new(1, 4096, blocks, 0).unwrap();
            let fits = u128::from(slba) + u128::from(count) <= u128::from(blocks);
            prop_assert_eq!(namespace.check_range(slba, count).is_ok(), fits);
        }

        #[test]
        fn range_check_near_the_end(blocks in 1..=100u64, slba in 0..=120u64, count in 0..=120u64) {
            let namespace = Namespace::new(1, 512, blocks, 0).unwrap();
            prop_assert_eq!(namespace.check_range(slba, count).is_ok(), slba + count <= blocks);
        }
    }
}
