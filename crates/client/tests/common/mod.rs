//! What the tests of the blob store share.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use toroid_client::blob::{BlobStore, FormatOptions, MountOptions};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, VrType};
use toroid_nvme::testing::RamController;
use toroid_nvme::{Controller, ControllerInfo, Namespace};

/// Bytes of a block in most tests.
pub const BLOCK: u32 = 512;

/// A controller in memory with `metadata_size` bytes of metadata a block.
pub fn ram(blocks: u64, metadata_size: u16, mdts_bytes: u32) -> RamController {
    RamController::with_info(info(blocks, metadata_size, mdts_bytes))
}

pub fn info(blocks: u64, metadata_size: u16, mdts_bytes: u32) -> ControllerInfo {
    ControllerInfo {
        mdts_bytes,
        volatile_write_cache: true,
        serial: "1".into(),
        model: "blob store test".into(),
        firmware: "1".into(),
        namespaces: vec![Namespace::new(1, BLOCK, blocks, metadata_size).unwrap()],
        other_namespaces: Vec::new(),
        vendor_statuses: &[],
    }
}

pub fn options(cluster_bytes: u64) -> FormatOptions {
    FormatOptions {
        cluster_bytes,
        metadata_pages: None,
    }
}

pub async fn format(controller: &Arc<impl Controller + 'static>, cluster_bytes: u64) -> BlobStore {
    BlobStore::format(controller.clone(), 1, options(cluster_bytes))
        .await
        .unwrap()
}

/// A mount that only reads.
pub async fn look(controller: &Arc<impl Controller + 'static>) -> BlobStore {
    let only_reads = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    BlobStore::mount(controller.clone(), 1, only_reads)
        .await
        .unwrap()
}

pub async fn mount(controller: &Arc<impl Controller + 'static>) -> BlobStore {
    BlobStore::mount(controller.clone(), 1, Default::default())
        .await
        .unwrap()
}

pub fn sc(ty: VrType, data_id: u32, size: u64) -> ScMetadata {
    ScMetadata::new(VrNumber::new(ty, 3, data_id).unwrap(), 1, size).unwrap()
}

/// Bytes that depend on `seed` and position.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.next().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// SplitMix64: small, seedable, and good enough to pick test cases.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
